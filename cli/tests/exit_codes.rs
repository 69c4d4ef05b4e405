//! Exit codes of every command: 0 for success, 1 for a failure, 2 for wrong usage; and output that cannot be written.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Output, Stdio};

use crate::support::Sandbox;
use deployment::log::LogEvent;
use deployment::process::Signal;
use rustix::process::{Pid, kill_process};

/// Every command, with its mandatory arguments.
const COMMANDS: [&str; 32] = [
    "",
    "demo",
    "bench",
    "conformance",
    "conformance layout",
    "conformance role",
    "conformance role target",
    "conformance matrix",
    "conformance faults",
    "conformance hammer",
    "conformance simulate",
    "conformance hostile",
    "conformance samples",
    "conformance record",
    "conformance replay",
    "conformance show",
    "conformance faulty-target",
    "sdk",
    "sdk install",
    "sdk env",
    "sdk migrate",
    "sdk functions",
    "sdk devices",
    "status",
    "top",
    "target",
    "zero-copy",
    "gga-offload",
    "initiator",
    "sbc-generator",
    "nbd",
    "vhost-user-blk",
];

fn code(sandbox: &Sandbox, arguments: &str) -> (Option<i32>, String) {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let output = sandbox.command(&words).output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// Standard error of a command that is connected to the journal as by systemd; a file represents the journal.
fn in_the_journal(sandbox: &Sandbox, words: &[&str]) -> (Option<i32>, String) {
    let path = sandbox.file("journal", b"");
    let file = File::options().append(true).open(&path).expect("the file");
    let metadata = file.metadata().expect("its inode");
    let status = sandbox
        .command(words)
        .env(
            "JOURNAL_STREAM",
            format!("{}:{}", metadata.dev(), metadata.ino()),
        )
        .stdout(Stdio::null())
        .stderr(file)
        .status()
        .expect("it runs");
    let text = std::fs::read_to_string(&path).expect("lines");
    (status.code(), text)
}

#[test]
fn lines_in_the_journal_have_priorities_and_no_second_time() {
    let sandbox = Sandbox::new();
    let initiator = "initiator -d 3b:00.0 --cpu 0 --cpu 0 --execution-strategy read_throughput_test --control-timeout 1";
    let words: Vec<_> = initiator.split_whitespace().collect();
    let (code, text) = in_the_journal(&sandbox, &words);
    assert_eq!(code, Some(1), "{text}");
    let warnings = text.lines().filter(|line| line.starts_with("<4> WARN "));
    assert_eq!(warnings.count(), 2, "{text}");
    let last = text.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("<3>doca_storage_initiator_comch: error: "),
        "{text}"
    );
    // The same as JSON, after the priority.
    let json = [&words[..], &["--log-format", "json"]].concat();
    let (_, text) = in_the_journal(&sandbox, &json);
    let first = text.lines().find_map(|line| line.strip_prefix("<4>"));
    let document: serde_json::Value =
        serde_json::from_str(first.expect("a warning")).expect("a JSON document");
    assert_eq!(document["level"], "WARN");
    // Standard error is not the stream that systemd has announced.
    let output = sandbox
        .command(&words)
        .env("JOURNAL_STREAM", "1:1")
        .output()
        .expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !stderr.contains("<4>") && stderr.contains("WARN"),
        "{stderr}"
    );
}

#[test]
fn examples_of_the_packages_front_ends_are_accepted() {
    let sandbox = Sandbox::new();
    for (role, socket) in [
        ("nbd", "nbd.socket"),
        ("vhost-user-blk", "vhost-user-blk.socket"),
    ] {
        let example = format!(
            "{}/../packaging/etc/{role}.json",
            env!("CARGO_MANIFEST_DIR")
        );
        let example = std::fs::read_to_string(example).expect("an example");
        let here = sandbox.path(socket);
        let text = example
            .replace(
                &format!("/run/doca-storage/{socket}"),
                &here.display().to_string(),
            )
            .replace("127.0.0.1:910", "127.0.0.1:0");
        // Metrics listen on a free port: the previous replacement has left one digit of their ports.
        let text = text.replace(":07\"", ":0\"").replace(":08\"", ":0\"");
        let file = sandbox.file(&format!("{role}.json"), text.as_bytes());
        let words = [
            role,
            "--control-timeout",
            "1",
            "--json",
            &file.display().to_string(),
        ];
        let output = sandbox.command(&words).output().expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        // No service is running.
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("DOCA_ERROR_TIME_OUT"), "{stderr}");
    }
}

#[test]
fn negative_size_is_a_wrong_value_of_its_flag() {
    let sandbox = Sandbox::new();
    let command = "target -d 3b:00.0 --cpu 0 --listen-port 0 --block-size -4M";
    let (code, text) = code(&sandbox, command);
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("--block-size") && text.contains("-4M"),
        "{text}"
    );
}

#[test]
fn wrong_usage_is_2_and_help_is_0() {
    let sandbox = Sandbox::new();
    for command in COMMANDS {
        let (wrong, said) = code(&sandbox, &format!("{command} --nonsense"));
        assert_eq!(wrong, Some(2), "{command}: {said}");
        assert!(said.contains("--nonsense"), "{command}: {said}");
        let (help, said) = code(&sandbox, &format!("{command} --help"));
        assert_eq!(help, Some(0), "{command}: {said}");
    }
}

#[test]
fn flags_that_do_not_fit_together_are_wrong_usage() {
    let sandbox = Sandbox::new();
    let service = "-d 03:00.0 -r 3b:00.0 --cpu 0";
    let targets = "--data-1-storage h:1 --data-2-storage h:2 --data-p-storage h:3";
    let commands = [
        "initiator -d 3b:00.0 --cpu 0 --execution-strategy read_only_data_validity_test",
        &format!("gga-offload {service} {targets} --rebuild data_1"),
        &format!("gga-offload {service} {targets} --degraded on"),
        &format!("gga-offload {service} {targets} --logical-block-size 4096 --degraded off"),
        &format!("zero-copy {service} --storage-server 127.0.0:1"),
        "target -d 3b:00.0 --cpu 0 --listen-port 0 --json /no/such/file",
        "conformance layout --only nonsense",
        "conformance role target --only nonsense",
        "conformance hostile --role target --only nonsense",
        "conformance faults --only nonsense",
        "conformance matrix --only nonsense",
        "conformance record --listen 0 --to :1 --to :2 --output x",
    ];
    for arguments in commands {
        let (code, said) = code(&sandbox, arguments);
        assert_eq!(code, Some(2), "{arguments}: {said}");
    }
}

#[test]
fn failures_exit_with_1_whatever_their_number() {
    let sandbox = Sandbox::new();
    let commands = [
        "target -d 09:00.0 --cpu 0 --listen-port 0",
        "zero-copy -d 03:00.0 -r 3b:00.0 --cpu 0 --storage-server no-such-host.invalid:1",
        "status 1 2 3",
        "conformance show /no/such/file",
        "conformance role target --bin /bin/true --timeout 1s --only ids --only content-sbc",
        "sdk env --prefix /no/such/directory",
        "top 1",
    ];
    for arguments in commands {
        let (code, said) = code(&sandbox, arguments);
        assert_eq!(code, Some(1), "{arguments}: {said}");
    }
    let several = "conformance role zero-copy --bin /bin/true --timeout 1 --only ids";
    let (code, said) = code(&sandbox, several);
    assert!(said.contains("2 failed"), "{said}");
    assert_eq!(code, Some(1), "{said}");
}

/// Checks the width of every help line for common terminal widths.
#[test]
fn help_fits_the_terminal() {
    let sandbox = Sandbox::new();
    for command in COMMANDS {
        for width in [80, 100, 120] {
            let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
            let output = sandbox
                .command(&words)
                .env("COLUMNS", width.to_string())
                .output()
                .expect("it runs");
            let text = String::from_utf8(output.stdout).expect("text");
            let longest = text.lines().max_by_key(|line| line.chars().count());
            let longest = longest.expect("help has lines");
            assert!(
                longest.chars().count() <= width,
                "{command} --help at {width}: {longest}"
            );
        }
    }
}

// Output that cannot be written is an error with exit status 1 or, if its reader has closed the pipe, a quiet exit; never a panic.

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

/// Error of a device without space.
const ENOSPC: i32 = rustix::io::Errno::NOSPC.raw_os_error();

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
        stderr.contains(&std::io::Error::from_raw_os_error(ENOSPC).to_string()),
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
    // A line is complete only after its end.
    let is_listening = |text: &str| {
        let lines = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        lines
            .filter_map(LogEvent::parse)
            .any(|event| matches!(event, LogEvent::Listening { .. }))
    };
    while !is_listening(&text) {
        let mut byte = [0];
        reader.read_exact(&mut byte).expect("it says more");
        text.push(char::from(byte[0]));
    }
    drop(reader);
    kill_process(Pid::from_child(&child), Signal::HUP).expect("signalled");
    if role_common::signals::is_hangup_ignored() {
        kill_process(Pid::from_child(&child), Signal::TERM).expect("signalled");
    }
    let status = child.wait().expect("waited");
    assert_eq!(status.code(), Some(0), "{status}: {text}");
}
