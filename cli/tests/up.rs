//! `doca-storage up`: a disk that is supervised, used over NBD, and served again.

use std::fs;
use std::path::Path;
use std::process::Command;

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

/// The commands are for scripts and units: they are started as printed, each when the one before is ready.
#[test]
fn printed_commands_serve_the_disk() {
    let sandbox = Sandbox::new();
    let data = sandbox.path("a disk");
    let flags = ["up", "--dry-run", "--data", text(&data), "--size", "64M"];
    let output = sandbox.command(&flags).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    assert!(!data.exists(), "nothing is created");
    fs::create_dir(&data).expect("a directory");
    let lines = String::from_utf8(output.stdout).expect("text");
    let lines = lines.lines().filter(|line| !line.starts_with('#'));
    let ready = [
        "listening on port",
        "listening on port",
        "listening on port",
        "waiting for the initiator",
        "Serving ",
    ];
    let mut processes = Vec::new();
    for (line, ready) in lines.zip(ready) {
        let words = shlex::split(line).expect("words");
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let process = sandbox.spawn("printed", &arguments);
        let found = process.find_line(0, TIMEOUT, |line| line.contains(ready).then_some(()));
        assert!(found.is_some(), "{line}: {:?}", process.lines());
        processes.push(process);
    }
    assert_eq!(processes.len(), ready.len());
    let mut client = Client::transmitting(&data.join("nbd.socket"), false);
    let content = noise(3, 1 << 16);
    assert_eq!(client.write(4096, &content), 0);
    assert_eq!(client.read_simple(4096, 1 << 16), Ok(content));
    drop(client);
    for mut process in processes.into_iter().rev() {
        process.signal(Signal::TERM);
        let status = process.wait(default_deadline()).expect("it ends");
        assert!(status.success(), "{status}");
    }
}

#[test]
fn units_have_the_commands_and_are_valid() {
    let sandbox = Sandbox::new();
    let (data, units) = (sandbox.path("a disk"), sandbox.path("units"));
    fs::create_dir(&units).expect("a directory");
    let flags = ["--size", "64M", "--systemd", text(&units)];
    assert_eq!(
        code(&sandbox, &data, &flags),
        2,
        "--json prints states of processes, of which there are none"
    );
    let arguments = [&["up", "--data", text(&data)], &flags[..]].concat();
    let output = sandbox.command(&arguments).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    assert!(!data.join("data_1.blocks").exists(), "nothing is started");
    let mut names: Vec<String> = fs::read_dir(&units)
        .expect("a directory")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("UTF-8")
        })
        .collect();
    names.sort();
    let expected = [
        "a-disk-data_1.service",
        "a-disk-data_2.service",
        "a-disk-data_p.service",
        "a-disk-front-end.service",
        "a-disk-service.service",
        "a-disk.target",
    ];
    assert_eq!(names, expected);
    let target = fs::read_to_string(units.join(expected[0])).expect("a unit");
    let file = format!("--backing-file \"{}\"", text(&data.join("data_1.blocks")));
    assert!(target.contains(&file), "{target}");

    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    match verify
        .args(names.iter().map(|name| units.join(name)))
        .output()
    {
        // It may warn about other units of this machine.
        Ok(output) => {
            let warnings = String::from_utf8_lossy(&output.stderr);
            assert!(!warnings.contains("a-disk"), "{warnings}");
        }
        Err(error) => eprintln!("NOT RUN: systemd-analyze: {error}"),
    }
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
