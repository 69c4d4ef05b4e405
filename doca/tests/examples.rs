//! The examples, as processes.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout for a process.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Path of an example. `cargo test` builds examples into the directory above the test executables, unless it is
/// restricted to single tests.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let profile = own.parent().and_then(Path::parent).unwrap();
    let path = profile.join("examples").join(name);
    assert!(
        path.exists(),
        "{} is missing: run `cargo test -p doca`, or `cargo build -p doca --examples` before this test alone",
        path.display()
    );
    path
}

fn start(name: &str, arguments: &[&str], directory: &Path) -> Child {
    Command::new(example(name))
        .args(arguments)
        .env("SOFTDOCA_RUNTIME_DIR", directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn private_directory() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("doca")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .unwrap()
}

#[track_caller]
fn finish(mut child: Child, what: &str) {
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > TIMEOUT => {
                child.kill().unwrap();
                panic!("{what} did not end within {TIMEOUT:?}");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    assert!(status.success(), "{what}: {status}");
}

/// Runs both sides of an RDMA example to completion, and compares their output.
#[track_caller]
fn pair(name: &str, server_says: &str, client_says: &str) {
    let says = [server_says, client_says];
    let ready = "listening to port 18515\n";
    run_pair(name, ["18515", "127.0.0.1:18515"], ready, says);
}

/// The same for a Comch example.
#[track_caller]
fn comch_pair(name: &str, server_says: &str, client_says: &str) {
    let says = [server_says, client_says];
    run_pair(name, ["example", "example"], "serving example\n", says);
}

/// Starts the server with its argument, and the client once the server has printed `ready`.
#[track_caller]
fn run_pair(name: &str, arguments: [&str; 2], ready: &str, says: [&str; 2]) {
    let directory = private_directory();
    let mut server = start(name, &["server", arguments[0]], directory.path());
    let mut output = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, ready);
    let mut client = start(name, &["client", arguments[1]], directory.path());
    let mut client_output = client.stdout.take().unwrap();
    finish(client, "the client");
    finish(server, "the server");
    let (mut server_text, mut client_text) = (String::new(), String::new());
    output.read_to_string(&mut server_text).unwrap();
    client_output.read_to_string(&mut client_text).unwrap();
    assert_eq!(
        (server_text.as_str(), client_text.as_str()),
        (says[0], says[1])
    );
}

#[test]
fn comch_control_path() {
    comch_pair(
        "comch_control_path",
        "the client says \"hello\"\nthe client says \"good morning\"\nthe client says \"bye\"\nthe client has gone\n",
        "the server says \"hello to you too\"\nthe server says \"good morning to you too\"\n\
         the server says \"bye to you too\"\n",
    );
}

#[test]
fn comch_fast_path() {
    comch_pair(
        "comch_fast_path",
        "received 1000 messages, the sum is 500500\n\
         the last one came with [116, 104, 101, 32, 101, 110, 100]\n",
        "sent 1000 messages\n",
    );
}

#[test]
fn rdma_send_receive() {
    pair(
        "rdma_send_receive",
        "received \"a message\"\nreceived \"another one\" with 0xd0ca000\nthe client has gone\n",
        "sent two messages\nthe server says: thank you\n",
    );
}

#[test]
fn rdma_read_write() {
    pair(
        "rdma_read_write",
        "the client has written \"done.\" at 4096\nand \"was there.\" at 1000\n",
        "read \"the server's memory\"\nwritten\n",
    );
}

#[test]
fn rdma_atomics() {
    pair(
        "rdma_atomics",
        "the client says: done\nthe counter is 21, the lock belongs to 11\n",
        "the counter was 0\nthe counter was 7\nthe counter was 14\n\
         11 has the lock\n22 does not get the lock: 11 has it\n",
    );
}

#[test]
fn rdma_sync_event() {
    pair(
        "rdma_sync_event",
        "the client has set the event to 100\nthe client has added to it\n",
        "the server has set the event to 200\nit was 200\n",
    );
}

/// Examples of one process that ends by itself.
#[test]
fn accelerators() {
    for (name, says) in [
        (
            "dma_copy",
            "fetched \"from the host\"\nstored \"from the DPU\"\n",
        ),
        (
            "erasure_coding",
            "computed 1024 bytes of redundancy\nrecovered block 1\n",
        ),
    ] {
        assert_eq!(alone(name), says);
    }
    let said = alone("compress");
    let deflated = said
        .strip_prefix("4096 bytes are ")
        .and_then(|rest| rest.strip_suffix(" deflated\n4096 bytes inflated are the original\n"))
        .and_then(|number| number.parse::<u32>().ok());
    assert!(deflated.is_some_and(|bytes| bytes < 1000), "{said}");
}

/// Runs an example without arguments; what it has printed.
#[track_caller]
fn alone(name: &str) -> String {
    let directory = private_directory();
    let mut example = start(name, &[], directory.path());
    let mut output = example.stdout.take().unwrap();
    finish(example, name);
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_client_without_a_server_says_so() {
    let directory = private_directory();
    let mut client = start(
        "comch_control_path",
        &["client", "nobody"],
        directory.path(),
    );
    let status = client.wait().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn an_example_without_arguments_says_what_it_expects() {
    let output = Command::new(example("rdma_atomics")).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("server PORT"), "{text}");
}
