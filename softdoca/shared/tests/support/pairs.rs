//! The examples for C and C++, each as a pair of processes.

use std::ffi::OsString;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Language, Sdk, repository_source};

/// Starts a program that is awaited with [`output`].
fn start(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process")
}

/// What a program printed when it ended; it must succeed, and soon.
fn output(mut child: Child, name: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().expect("a status").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("to end it");
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("its output");
    assert!(
        output.status.success(),
        "{name}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// `examples/comch_ping_pong.c`.
pub fn ping_pong(sdk: &Sdk, through: &[OsString]) {
    let program = sdk.program(
        Language::C,
        &repository_source("examples/comch_ping_pong.c"),
        &["doca_common", "doca_comch"],
    );
    let server = start(
        sdk.command_through(through, &program, "run")
            .args(["server", "03:00.0", "3b:00.0"]),
    );
    // The client does not wait for a server; it says so and is started again.
    let deadline = Instant::now() + Duration::from_secs(30);
    let printed = loop {
        let client = sdk
            .command_through(through, &program, "run")
            .args(["client", "3b:00.0", "1000"])
            .output()
            .expect("a process");
        if client.status.success() {
            break String::from_utf8_lossy(&client.stdout).into_owned();
        }
        let error = String::from_utf8_lossy(&client.stderr).into_owned();
        assert!(
            error.contains("there is no server") && Instant::now() < deadline,
            "{error}"
        );
    };
    assert_eq!(printed, "1000 round trips\n");
    assert_eq!(output(server, "server"), "answered 1000 messages\n");
}

/// `examples/rdma_write.cpp`.
pub fn write_to_a_peer(sdk: &Sdk, through: &[OsString]) {
    let program = sdk.program(
        Language::Cxx,
        &repository_source("examples/rdma_write.cpp"),
        &["doca_common", "doca_rdma"],
    );
    let socket = sdk
        .scratch("exchange")
        .join(format!("socket-{}", through.len()));
    let responder = start(
        sdk.command_through(through, &program, "run")
            .args(["responder", "03:00.0"])
            .arg(&socket),
    );
    let requester = start(
        sdk.command_through(through, &program, "run")
            .args(["requester", "03:00.0"])
            .arg(&socket)
            .arg("remote words"),
    );
    assert_eq!(output(requester, "requester"), "wrote remote words\n");
    assert_eq!(output(responder, "responder"), "found remote words\n");
}
