//! Front ends with two services of the same target.

use std::time::{Duration, Instant};

use deployment::process::{Process, Signal};

use crate::nbd::{FOREVER, serve, stop, target};
use crate::nbd_client::{Client, FLUSH};
use crate::support::{Sandbox, killed, wait_for_value};

/// Channel names of the services, in order of preference.
pub const NAMES: [&str; 2] = ["first", "second"];

/// Flags of a front end with both services on one device.
pub const SERVICES: [&str; 4] = [
    "--command-channel-name",
    NAMES[0],
    "--command-channel-name",
    NAMES[1],
];

/// Starts a service with this channel name.
pub fn service(sandbox: &Sandbox, port: u16, name: &str) -> Process {
    let flags = ["--command-channel-name", name];
    sandbox.service(port, &[&FOREVER[..], &flags].concat())
}

/// Kills a service, which may be stopped.
fn kill(service: Process) {
    service.signal(Signal::KILL);
    killed(service);
}

/// The server's log lines about a service that it has left.
fn failovers(server: &Process) -> Vec<String> {
    let stderr = server.stderr();
    let lines = stderr.lines().filter(|line| line.contains("next is"));
    lines.map(str::to_owned).collect()
}

#[test]
fn ios_continue_at_the_next_service_after_the_current_one_was_killed() {
    let sandbox = Sandbox::new();
    let (target, port) = target(&sandbox, "disk", "4096");
    let [first, second] = NAMES.map(|name| service(&sandbox, port, name));
    let (server, socket) = serve(&sandbox, &SERVICES);
    let mut client = Client::transmitting(&socket, true);
    let mut expected = contents::noise(1, 4 << 20);
    assert_eq!(client.write(0, &expected), 0);
    assert!(failovers(&server).is_empty());

    // Around the list: the second one, and the first one again.
    let mut current = first;
    let mut next = Some(second);
    for round in 0..2 {
        kill(current);
        let begin = Instant::now();
        let data = contents::noise(2 + round, 1 << 20);
        let at = ((1 + round) << 20) + 5;
        expected[at as usize..at as usize + data.len()].copy_from_slice(&data);
        let write = client.send_write(0, at, &data);
        if next.is_none() {
            next = Some(service(&sandbox, port, NAMES[0]));
        }
        assert_eq!(client.result(write), 0);
        println!("failover {round}: {:?}", begin.elapsed());
        let (read, errors) = client.read_structured(0, 0, expected.len() as u32);
        assert_eq!(errors, []);
        assert!(read == expected);
        // The target has lost nothing.
        let flush = client.send(0, FLUSH, 0, 0);
        assert_eq!(client.result(flush), 0);
        current = next.take().expect("started");
        let (left, taken) = (NAMES[round as usize], NAMES[1 - round as usize]);
        let line = format!("storage service \"{left}\" on device 3b:00.0, next is \"{taken}\"");
        wait_for_value(&server, &line, 1);
    }
    stop(server);
    stop(current);
    stop(target);
}

#[test]
fn front_end_opens_the_storage_of_a_service_that_answers() {
    let sandbox = Sandbox::new();
    let (target, port) = target(&sandbox, "disk", "4096");
    let [first, second] = NAMES.map(|name| service(&sandbox, port, name));
    first.signal(Signal::STOP);
    let begin = Instant::now();
    let (server, socket) = serve(&sandbox, &SERVICES);
    println!("opened after {:?}", begin.elapsed());
    let mut client = Client::transmitting(&socket, true);
    assert_eq!(client.write(0, &[1; 4096]), 0);
    let lines = failovers(&server);
    assert!(lines[0].contains("does not answer"), "{lines:?}");
    // A service that does not exist takes no time.
    stop(server);
    kill(first);
    let (server, _) = serve(&sandbox, &SERVICES);
    let lines = failovers(&server);
    assert!(lines[0].contains("is not available"), "{lines:?}");
    stop(server);
    stop(second);
    stop(target);
}

#[test]
fn unresponsive_service_is_left_after_the_io_timeout() {
    let sandbox = Sandbox::new();
    let (target, port) = target(&sandbox, "disk", "4096");
    let [first, second] = NAMES.map(|name| service(&sandbox, port, name));
    let (server, socket) = serve(&sandbox, &[&SERVICES[..], &["--io-timeout", "1"]].concat());
    let mut client = Client::transmitting(&socket, true);
    let old = contents::noise(1, 1 << 20);
    assert_eq!(client.write(0, &old), 0);
    first.signal(Signal::STOP);
    let begin = Instant::now();
    let new = contents::noise(2, 1 << 20);
    let write = client.send_write(0, 1 << 20, &new);
    wait_for_value(&server, "next is \"second\"", 1);
    println!("left after {:?}", begin.elapsed());
    let lines = failovers(&server);
    assert!(lines[0].contains("answers to I/Os"), "{lines:?}");
    // The target is still in a session with the first service.
    std::thread::sleep(Duration::from_secs(1));
    kill(first);
    let begin = Instant::now();
    assert_eq!(client.result(write), 0);
    println!("completed after {:?}", begin.elapsed());
    for (at, data) in [(0, old), (1 << 20, new)] {
        assert!(client.read_structured(0, at, 1 << 20).0 == data);
    }
    stop(server);
    stop(second);
    stop(target);
}
