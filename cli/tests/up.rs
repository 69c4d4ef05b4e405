//! `doca-storage up`: a disk that is supervised, used over NBD, and served again.

use std::fs;
use std::path::Path;

use contents::noise;
use deployment::process::{Process, Signal};
use serde_json::Value;

use crate::nbd_client::{Client, EINVAL, FLUSH};
use crate::support::{Sandbox, TIMEOUT, default_deadline, text};

/// Starts a disk in this directory; its state changes are printed as lines of JSON.
fn up(sandbox: &Sandbox, data: &Path, flags: &[&str]) -> Process {
    let arguments = [&["up", "--json", "--data", text(data)], flags].concat();
    Process::spawn_interactive("up", sandbox.command(&arguments)).expect("it starts")
}

/// Waits for a state after line `from`, and returns the number of lines up to and including it.
fn wait_for(up: &Process, from: usize, state: &str) -> usize {
    let found = up.find_line(from, TIMEOUT, |line| {
        let status: Value = serde_json::from_str(line).ok()?;
        (status["state"] == state).then_some(())
    });
    assert!(found.is_some(), "{state}: {:?}", up.lines());
    up.line_count()
}

fn stop(mut up: Process) {
    up.signal(Signal::TERM);
    let status = up.wait(default_deadline()).expect("it ends");
    assert!(status.success(), "{status}: {:?}", up.lines());
}

fn code(sandbox: &Sandbox, data: &Path, flags: &[&str]) -> i32 {
    let mut refused = up(sandbox, data, flags);
    let status = refused.wait(default_deadline()).expect("it ends");
    status.code().expect("no signal")
}

/// Processes of the disk, in the order in which they were started: the targets first.
fn processes(data: &Path) -> Vec<i32> {
    let text = fs::read_to_string(data.join("processes.json")).expect("a list");
    let list: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let id = |it: &Value| it["process"].as_i64().and_then(|id| id.try_into().ok());
    list.iter().map(|it| id(it).expect("an id")).collect()
}

fn kill(process: i32) {
    let process = rustix::process::Pid::from_raw(process).expect("an id");
    rustix::process::kill_process(process, Signal::KILL).expect("killed");
}

#[test]
fn disk_survives_the_loss_of_a_target_and_is_served_again() {
    let sandbox = Sandbox::new();
    let data = sandbox.path("disk");
    let socket = data.join("nbd.socket");
    let first = up(&sandbox, &data, &["--size", "64M"]);
    let seen = wait_for(&first, 0, "healthy");
    assert_eq!(code(&sandbox, &data, &[]), 1, "the directory is in use");
    let mut client = Client::transmitting(&socket, false);
    let content = noise(1, 1 << 20);
    assert_eq!(client.write(4096, &content), 0);
    kill(processes(&data)[1]);
    let newer = noise(2, 1 << 20);
    assert_eq!(client.write(8192, &newer), 0);
    let cookie = client.send(0, FLUSH, 0, 0);
    assert_eq!(client.result(cookie), 0);
    wait_for(&first, seen, "healthy");
    assert_eq!(client.read_simple(8192, 1 << 20), Ok(newer.clone()));
    drop(client);
    stop(first);
    assert!(!data.join("processes.json").exists());

    // Replaces a target's disk by an empty file.
    fs::remove_file(data.join("data_p.blocks")).expect("a file");
    assert_eq!(code(&sandbox, &data, &["--size", "1G"]), 2, "another size");
    let mut second = up(&sandbox, &data, &[]);
    wait_for(&second, 0, "healthy");
    let mut client = Client::transmitting(&socket, false);
    let last = client.read_simple((64 << 20) - 4096, 4096);
    assert_eq!(last, Ok(vec![0; 4096]));
    assert_eq!(client.read_simple(64 << 20, 4096), Err(EINVAL));
    assert_eq!(client.read_simple(8192, 1 << 20), Ok(newer.clone()));
    assert_eq!(client.read_simple(4096, 4096), Ok(content[..4096].to_vec()));
    drop(client);

    // A killed supervisor leaves its processes running; the next supervisor stops them.
    let left = processes(&data);
    second.signal(Signal::KILL);
    second.wait(default_deadline()).expect("it ends");
    let third = up(&sandbox, &data, &[]);
    wait_for(&third, 0, "healthy");
    assert!(
        processes(&data)
            .iter()
            .all(|process| !left.contains(process))
    );
    let mut client = Client::transmitting(&socket, false);
    assert_eq!(client.read_simple(8192, 1 << 20), Ok(newer));
    drop(client);
    stop(third);
}

#[test]
fn targets_may_be_on_other_machines() {
    let sandbox = Sandbox::new();
    let data = sandbox.path("disk");
    let (mut targets, mut addresses) = (Vec::new(), Vec::new());
    for number in 0..3 {
        let file = sandbox.path(&format!("{number}.blocks"));
        let (target, port) = sandbox.target(&[
            "--block-size",
            "2112",
            "--block-count",
            "4096",
            "--sessions",
            "forever",
            "--backing-file",
            text(&file),
        ]);
        targets.push(target);
        addresses.push(format!("127.0.0.1:{port}"));
    }
    let addresses = addresses.join(",");
    assert_eq!(
        code(&sandbox, &data, &["--targets", "127.0.0.1:1"]),
        2,
        "one address"
    );
    let up = up(&sandbox, &data, &["--targets", &addresses]);
    let status = up.find_line(0, TIMEOUT, |line| {
        let status: Value = serde_json::from_str(line).ok()?;
        (status["state"] == "healthy").then_some(status)
    });
    assert_eq!(status.expect("healthy")["bytes"], 4096 * 4096);
    assert_eq!(processes(&data).len(), 2, "service and front end");
    let mut client = Client::transmitting(&data.join("nbd.socket"), false);
    let content = noise(1, 1 << 16);
    assert_eq!(client.write(4096, &content), 0);
    assert_eq!(client.read_simple(4096, 1 << 16), Ok(content));
    drop(client);
    stop(up);
    assert!(!data.join("data_1.blocks").exists());
    targets.into_iter().for_each(stop);
}
