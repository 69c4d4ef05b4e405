//! The NBD server with real targets and services.

use std::collections::HashMap;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::metrics::{endpoint, value_is};
use crate::nbd_client::{
    Client, EINVAL, EPERM, FLUSH, FUA, READ, Reply, WRITE, WRITE_ZEROES, reply, request,
};
use crate::support::gga::{OF_SETS, TARGETS};
use crate::support::{
    Sandbox, TIMEOUT, default_deadline, ended, expect_failure, mentions, resources, text,
};
use deployment::process::{Process, Signal};

pub const FOREVER: [&str; 2] = ["--sessions", "forever"];

/// Size of the storages in bytes.
pub const SIZE: usize = 16 << 20;

/// Starts a server, and returns it with its socket.
pub fn serve(sandbox: &Sandbox, arguments: &[&str]) -> (Process, PathBuf) {
    serve_waiting(sandbox, "300", arguments)
}

/// Starts a server whose I/Os fail after this number of seconds without a service.
pub fn serve_waiting(sandbox: &Sandbox, seconds: &str, arguments: &[&str]) -> (Process, PathBuf) {
    let socket = sandbox.path("socket");
    let base = [
        "nbd",
        "-d",
        "3b:00.0",
        "--cpu",
        "0",
        "--control-timeout",
        "60",
        "--reconnect-timeout",
        seconds,
        "--output",
        "json",
        "--socket",
        text(&socket),
    ];
    let mut server = sandbox.spawn("nbd", &[&base[..], arguments].concat());
    server
        .wait_for("was listening", TIMEOUT, |line| {
            let (_, uri) = line.split_once("nbd+unix:///")?;
            assert!(uri.contains(text(&socket)), "{line}");
            mentions(line, &[SIZE.to_string()]);
            Some(())
        })
        .expect("the server listens");
    (server, socket)
}

/// Stops a process cleanly.
pub fn stop(mut process: Process) {
    process.signal(Signal::TERM);
    let status = process.wait(default_deadline()).expect("it ends");
    assert!(status.success(), "{status}: {}", process.stderr());
}

/// Flags of a target with a backing file of this name, so that it supports flush.
pub fn target_flags(sandbox: &Sandbox, name: &str, block_size: &str) -> Vec<String> {
    let blocks = (SIZE / 4096).to_string();
    let file = sandbox.path(name);
    let arguments = [
        "--block-size",
        block_size,
        "--block-count",
        &blocks,
        "--backing-file",
        text(&file),
        "--backing-io",
        "buffered",
    ];
    let flags = arguments.iter().chain(&FOREVER);
    flags.map(|flag| (*flag).to_owned()).collect()
}

pub fn target(sandbox: &Sandbox, name: &str, block_size: &str) -> (Process, u16) {
    let flags = target_flags(sandbox, name, block_size);
    sandbox.target(&flags.iter().map(String::as_str).collect::<Vec<_>>())
}

fn zero_copy_target(sandbox: &Sandbox) -> (Process, u16) {
    target(sandbox, "disk", "4096")
}

/// Checks that unaligned writes, zeroes, flush and FUA are visible to another client and through another server.
fn writes_are_kept(sandbox: &Sandbox) {
    let (server, socket) = serve(sandbox, &[]);
    let mut client = Client::transmitting(&socket, true);
    let mut expected = contents::noise(1, SIZE);
    for (index, piece) in expected.chunks(1 << 20).enumerate() {
        assert_eq!(client.write((index << 20) as u64, piece), 0);
    }
    for (offset, len) in [
        (1, 1),
        (4095, 2),
        (5000, 100_000),
        (SIZE - 700_001, 700_001),
    ] {
        let data = contents::noise(offset as u64, len);
        expected[offset..offset + len].copy_from_slice(&data);
        assert_eq!(client.write(offset as u64, &data), 0);
    }
    let cookie = client.send(FUA, WRITE_ZEROES, 8000, 300_000);
    assert_eq!(client.result(cookie), 0);
    expected[8000..308_000].fill(0);
    let cookie = client.send(0, FLUSH, 0, 0);
    assert_eq!(client.result(cookie), 0);
    let content = |client: &mut Client<_>| {
        let (content, errors) = client.read_structured(0, 0, SIZE as u32);
        assert_eq!(errors, []);
        content
    };
    let mut other = Client::transmitting(&socket, true);
    assert!(content(&mut other) == expected);
    let mut simple = Client::transmitting(&socket, false);
    assert!(simple.read_simple(3, 1 << 20).as_deref() == Ok(&expected[3..3 + (1 << 20)]));
    stop(server);
    assert!(other.is_closed());
    assert!(!socket.exists());

    let (server, socket) = serve(sandbox, &["--read-only"]);
    let mut again = Client::transmitting(&socket, true);
    assert!(content(&mut again) == expected);
    assert_eq!(again.write(0, b"x"), EPERM);
    stop(server);
}

#[test]
fn zero_copy_keeps_writes() {
    let sandbox = Sandbox::new();
    let (target, port) = zero_copy_target(&sandbox);
    let service = sandbox.service(port, &FOREVER);
    writes_are_kept(&sandbox);
    stop(service);
    stop(target);
    assert!(sandbox.leftovers().is_empty(), "{:?}", sandbox.leftovers());
}

#[test]
fn gga_offload_keeps_writes() {
    let sandbox = Sandbox::new();
    // Size of the chunks of blocks of 4096 bytes.
    let targets = TARGETS.map(|name| target(&sandbox, name, "2112"));
    let ports = targets.each_ref().map(|(_, port)| *port);
    let service = sandbox.gga_service(ports, 1, &[&FOREVER[..], &OF_SETS].concat());
    writes_are_kept(&sandbox);
    stop(service);
    targets.into_iter().for_each(|(target, _)| stop(target));
}

/// Number of blocks that [`write_until_disconnected`] writes.
const BLOCKS: usize = 64;

/// Versions of the blocks: the last one sent, and the last one acknowledged. Version 0 is never written.
#[derive(Default, Clone, Copy)]
struct Versions {
    sent: u64,
    acknowledged: u64,
}

fn block(number: usize, version: u64) -> Vec<u8> {
    contents::noise((number as u64) << 32 | version, 4096)
}

/// Keeps 32 writes in flight until the server disconnects. `began` is called after 200 answers.
fn write_until_disconnected(
    stream: &mut UnixStream,
    versions: &mut [Versions; BLOCKS],
    began: impl FnOnce(),
) {
    let mut began = Some(began);
    let mut in_flight = HashMap::new();
    for cookie in 1.. {
        let number = cookie as usize * 13 % BLOCKS;
        versions[number].sent += 1;
        let version = versions[number].sent;
        let mut bytes = request(0, WRITE, cookie, number as u64 * 4096, 4096);
        bytes.extend(block(number, version));
        in_flight.insert(cookie, (number, version));
        if stream.write_all(&bytes).is_err() {
            break;
        }
        if in_flight.len() < 32 {
            continue;
        }
        let Ok(Reply::Simple { cookie, error }) = reply(stream) else {
            break;
        };
        assert_eq!(error, 0);
        let (number, version) = in_flight.remove(&cookie).expect("a write in flight");
        versions[number].acknowledged = version;
        if cookie == 200
            && let Some(began) = began.take()
        {
            began();
        }
    }
}

#[test]
fn killed_front_end_loses_no_block_while_a_target_is_offline() {
    let sandbox = Sandbox::new();
    let targets = TARGETS.map(|name| target(&sandbox, name, "2112"));
    let ports = targets.each_ref().map(|(_, port)| *port);
    let service = sandbox.gga_service(ports, 1, &[&FOREVER[..], &OF_SETS].concat());
    let [data_1, (data_2, _), (mut data_p, _)] = targets;
    let mut versions = [Versions::default(); BLOCKS];
    let (mut server, mut socket) = serve(&sandbox, &[]);
    // data_p is offline from here on: blocks written below are stored only on the other two targets.
    data_p.signal(Signal::TERM);
    data_p.wait(default_deadline()).expect("it ends");
    for _ in 0..2 {
        let mut stream = Client::transmitting(&socket, false).stream;
        write_until_disconnected(&mut stream, &mut versions, || {
            // The session ends when data_1 has stored chunks that data_2 lacks.
            data_2.signal(Signal::STOP);
            std::thread::sleep(Duration::from_millis(200));
            server.signal(Signal::KILL);
            std::thread::sleep(Duration::from_millis(100));
            data_2.signal(Signal::CONT);
        });
        server.wait(default_deadline()).expect("it was killed");
        (server, socket) = serve(&sandbox, &[]);
        let mut client = Client::transmitting(&socket, false);
        for (number, versions) in versions.iter_mut().enumerate() {
            let read = client.read_simple(number as u64 * 4096, 4096);
            let read = read.unwrap_or_else(|error| panic!("block {number}: error {error}"));
            // Writes in flight when the server was killed may or may not have been performed.
            let version = (versions.acknowledged..=versions.sent)
                .find(|&version| version == 0 || block(number, version) == read)
                .unwrap_or_else(|| panic!("block {number} is none of its versions"));
            *versions = Versions {
                sent: versions.sent,
                acknowledged: version,
            };
        }
    }
    stop(server);
    // Their sessions were interrupted, so they exit with status 1.
    drop((service, data_1, data_2));
}

#[test]
fn requests_wait_for_a_service_that_is_restarted() {
    let sandbox = Sandbox::new();
    let (target, port) = zero_copy_target(&sandbox);
    let service = sandbox.service(port, &FOREVER);
    let (server, socket) = serve(&sandbox, &[]);
    let mut client = Client::transmitting(&socket, true);
    let before = contents::noise(1, 1 << 20);
    assert_eq!(client.write(0, &before), 0);

    service.signal(Signal::KILL);
    drop(service);
    let data = contents::noise(2, 1 << 20);
    let write = client.send_write(0, 2 << 20, &data);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let service = sandbox.service(port, &FOREVER);
    assert_eq!(client.result(write), 0);
    assert!(client.read_structured(0, 0, 1 << 20).0 == before);
    assert!(client.read_structured(0, 2 << 20, 1 << 20).0 == data);
    stop(server);
    stop(service);
    stop(target);
}

/// Memory of a process in KiB, once it has not changed for a second.
fn settled_memory(process: &Process) -> u64 {
    let (mut memory, mut since) = (resources(process).memory, Instant::now());
    while since.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(10));
        let now = resources(process).memory;
        if now != memory {
            (memory, since) = (now, Instant::now());
        }
    }
    memory
}

#[test]
fn unread_replies_take_no_more_memory_than_documented() {
    /// KiB per connection: its limit (see docs/src/block-device.md), and the connection itself.
    const PROMISED: u64 = (4 << 10) + 512;
    /// KiB of the buffers of the queue, which all connections share.
    const BUFFERS: u64 = 64 << 10;
    const CLIENTS: u64 = 24;
    let sandbox = Sandbox::new();
    let (target, port) = zero_copy_target(&sandbox);
    let service = sandbox.service(port, &FOREVER);
    let (server, socket) = serve(&sandbox, &["--client-timeout", "1h"]);
    let mut reader = Client::transmitting(&socket, false);
    reader.read_simple(0, 1 << 20).expect("read");
    let before = settled_memory(&server);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let mut client = Client::transmitting(&socket, number % 4 == 0);
            let timeout = Some(Duration::from_millis(50));
            client.stream.set_write_timeout(timeout).expect("a timeout");
            let read = request(0, READ, 1, 0, SIZE as u32);
            while client.stream.write(&read).is_ok() {}
            client
        })
        .collect();
    let grown = settled_memory(&server) - before;
    let limit = CLIENTS * PROMISED + BUFFERS;
    assert!(grown <= limit, "{grown} KiB, expected at most {limit}");
    // Such connections do not prevent others from reading.
    assert!(reader.read_simple(0, SIZE as u32).is_ok());
    drop(clients);
    stop(server);
    stop(service);
    stop(target);
}

#[test]
fn flush_is_offered_only_if_the_targets_have_it() {
    let sandbox = Sandbox::new();
    let blocks = (SIZE / 4096).to_string();
    let in_memory = ["--block-size", "4096", "--block-count", &blocks];
    let (target, port) = sandbox.target(&[&in_memory[..], &FOREVER].concat());
    let service = sandbox.service(port, &FOREVER);
    let (server, socket) = serve(&sandbox, &[]);
    let mut client = Client::transmitting(&socket, true);
    assert_eq!(client.write(1, b"volatile"), 0);
    let cookie = client.send(0, FLUSH, 0, 0);
    assert_eq!(client.result(cookie), EINVAL);
    let cookie = client.send_write(FUA, 0, b"durable");
    assert_eq!(client.result(cookie), EINVAL);
    assert_eq!(
        client.read_structured(0, 0, 9),
        (b"\0volatile".to_vec(), vec![])
    );
    stop(server);
    stop(service);
    stop(target);
}

/// Command of a system program; `None` if it is not installed, which is a failure in CI.
fn installed(program: &str) -> Option<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|it| it.join(program).is_file());
    assert!(
        is_there || std::env::var_os("CI").is_none(),
        "{program} is not installed"
    );
    if !is_there {
        eprintln!("NOT RUN: {program} is not installed");
    }
    is_there.then(|| Command::new(program))
}

#[test]
fn nbdcopy_copies_both_ways() {
    let Some(mut there) = installed("nbdcopy") else {
        return;
    };
    let sandbox = Sandbox::new();
    let (target, port) = zero_copy_target(&sandbox);
    let service = sandbox.service(port, &FOREVER);
    let (server, socket) = serve(&sandbox, &["--export", "a disk"]);
    let uri = format!("nbd+unix:///a%20disk?socket={}", text(&socket));
    let content = contents::noise(3, SIZE);
    let file = sandbox.file("from", &content);
    let copy = sandbox.path("to");
    let there = there.arg("--flush").arg(file).arg(&uri).output();
    let there = there.expect("it runs");
    assert!(there.status.success(), "{there:?}");
    let back = Command::new("nbdcopy").arg(&uri).arg(&copy).output();
    let back = back.expect("it runs");
    assert!(back.status.success(), "{back:?}");
    assert!(std::fs::read(copy).expect("a copy") == content);
    stop(server);
    stop(service);
    stop(target);
}

#[test]
fn clients_ios_are_counted_by_the_metrics() {
    let sandbox = Sandbox::new();
    let (target, port) = zero_copy_target(&sandbox);
    let service = sandbox.service(port, &FOREVER);
    let (server, socket) = serve(&sandbox, &["--metrics", "0"]);
    let address = endpoint(&server);
    let mut client = Client::transmitting(&socket, false);
    for block in 0..8 {
        assert_eq!(client.write(block * 4096, &contents::noise(block, 4096)), 0);
    }
    for block in 0..3 {
        let read = client.read_simple(block * 4096, 4096);
        assert_eq!(read, Ok(contents::noise(block, 4096)));
    }
    for (kind, count) in [("write", 8.0), ("read", 3.0)] {
        let name = |metric: &str| format!("doca_storage_{metric}_total{{kind=\"{kind}\"}}");
        value_is(address, &name("operations"), |it| it == count);
        value_is(address, &name("bytes"), |it| it == count * 4096.0);
    }
    value_is(address, "doca_storage_in_flight", |it| it == 0.0);
    value_is(
        address,
        "doca_storage_errors_total{kind=\"failed\"}",
        |it| it == 0.0,
    );
    drop(client);
    stop(server);
    stop(service);
    stop(target);
}

#[test]
fn impossible_configurations_are_refused() {
    let sandbox = Sandbox::new();
    let base = [
        "nbd",
        "-d",
        "3b:00.0",
        "--cpu",
        "0",
        "--control-timeout",
        "1",
    ];
    let socket = sandbox.path("socket");
    let file = sandbox.file("precious", b"precious");
    let socket = text(&socket);
    let cases: [(&[&str], i32, &str); 6] = [
        (&[], 2, "--socket"),
        (&["--listen", "0.0.0.0:0"], 2, "--insecure"),
        (&["--listen", "nowhere"], 2, "<host>:<port>"),
        (&["--socket", text(&file)], 1, "found a file"),
        (
            &[
                "--socket",
                socket,
                "--tls-certificate",
                "a",
                "--tls-key",
                "b",
            ],
            2,
            "--listen",
        ),
        (
            &[
                "--listen",
                "127.0.0.1:0",
                "--tls-certificate",
                "/no/a",
                "--tls-key",
                "/no/b",
            ],
            1,
            "/no/",
        ),
    ];
    for (arguments, code, expected) in cases {
        let server = sandbox.spawn("nbd", &[&base[..], arguments].concat());
        let said = ended(server, code);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    // Without a running service.
    let server = sandbox.spawn("nbd", &[&base[..], &["--socket", socket]].concat());
    expect_failure(server);
    assert!(!std::path::Path::new(socket).exists());
}
