//! Output that cannot be written is an error with exit status 1 or, if its reader has closed the pipe, a quiet exit; never a panic.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Output, Stdio};

use crate::support::Sandbox;
use ::deployment::process::Signal;
use rustix::process::{Pid, kill_process};

/// Exit status of a program whose output went to a closed pipe, as shells report SIGPIPE.
const CLOSED_PIPE: i32 = 141;

/// Commands with much output, little output, JSON, and help.
const PRINTING: [&[&str]; 8] = [
    &["conformance", "layout"],
    &["conformance", "layout", "--json"],
    &["conformance", "layout", "--print"],
    &["conformance", "role", "target", "--list"],
    &["sdk", "functions"],
    &["--help"],
    &["conformance", "--help"],
    &["target", "--help"],
];

fn run(sandbox: &Sandbox, arguments: &[&str], stdout: impl Into<Stdio>) -> Output {
    sandbox
        .command(arguments)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|child| child.wait_with_output())
        .expect("the program runs")
}

/// A pipe whose reader is closed.
fn closed_pipe() -> std::io::PipeWriter {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer
}

fn full() -> File {
    File::options()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full")
}

fn check(output: &Output, code: i32, complains: bool, arguments: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {:?} {stderr}",
        output.status.signal()
    );
    assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
    assert_eq!(
        stderr.contains("standard output"),
        complains,
        "{arguments:?}: {stderr}"
    );
}

#[test]
fn full_device_is_an_error_and_closed_pipe_a_quiet_exit() {
    let sandbox = Sandbox::new();
    for arguments in PRINTING {
        check(&run(&sandbox, arguments, full()), 1, true, arguments);
        let output = run(&sandbox, arguments, closed_pipe());
        check(&output, CLOSED_PIPE, false, arguments);
    }
}

#[test]
fn output_errors_of_the_demo_are_reported() {
    let sandbox = Sandbox::new();
    let small = ["demo", "--operations", "64"];
    for arguments in [&small[..], &[&small[..], &["--json"]].concat()] {
        check(&run(&sandbox, arguments, full()), 1, true, arguments);
        let output = run(&sandbox, arguments, closed_pipe());
        check(&output, CLOSED_PIPE, false, arguments);
    }
}

/// A role serves its session, and then reports that its statistics could not be written; a closed pipe is ignored.
#[test]
fn role_that_cannot_print_its_report_fails_after_its_session() {
    for (stdout, code) in [(Stdio::from(full()), 1), (Stdio::from(closed_pipe()), 0)] {
        let sandbox = Sandbox::new();
        let (target, port) = sandbox.target(&[]);
        let service = sandbox.service(port, &[]);
        let arguments = [
            "initiator",
            "-d",
            "3b:00.0",
            "--cpu",
            "0",
            "--execution-strategy",
            "read_write_data_validity_test",
            "--run-limit-operation-count",
            "64",
        ];
        let output = run(&sandbox, &arguments, stdout);
        check(&output, code, code == 1, &arguments);
        crate::support::document(service);
        crate::support::document(target);
    }
}

/// The terminal of a target is closed: standard output and standard error cannot be written, and SIGHUP is a clean shutdown.
#[test]
fn a_closed_terminal_is_a_clean_shutdown() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("blocks");
    let arguments = [
        "target",
        "-d",
        "3b:00.0",
        "--cpu",
        "0",
        "--listen-port",
        "0",
        "--sessions",
        "forever",
        "--backing-file",
        crate::support::text(&file),
    ];
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut child = sandbox
        .command(&arguments)
        .stdout(writer.try_clone().expect("a descriptor"))
        .stderr(writer)
        .spawn()
        .expect("the program runs");
    let mut text = String::new();
    while !text.contains("listening on port") {
        let mut byte = [0];
        reader.read_exact(&mut byte).expect("it says more");
        text.push(char::from(byte[0]));
    }
    drop(reader);
    kill_process(Pid::from_child(&child), Signal::HUP).expect("signalled");
    let status = child.wait().expect("waited");
    assert_eq!(status.code(), Some(0), "{status}: {text}");
}
