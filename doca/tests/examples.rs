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

/// Runs both sides of an RDMA example to completion, and compares the [values] in their output.
#[track_caller]
fn pair(name: &str, server: &[&str], client: &[&str]) {
    run_pair(name, ["18515", "127.0.0.1:18515"], [server, client]);
}

/// The same for a Comch example.
#[track_caller]
fn comch_pair(name: &str, server: &[&str], client: &[&str]) {
    run_pair(name, ["example", "example"], [server, client]);
}

/// Starts the server with its argument, and the client once the server has printed a line with it.
#[track_caller]
fn run_pair(name: &str, arguments: [&str; 2], expected: [&[&str]; 2]) {
    let directory = private_directory();
    let mut server = start(name, &["server", arguments[0]], directory.path());
    let mut output = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line.split_whitespace().next_back(), Some(arguments[0]));
    let mut client = start(name, &["client", arguments[1]], directory.path());
    let mut client_output = client.stdout.take().unwrap();
    finish(client, "the client");
    finish(server, "the server");
    let (mut server_text, mut client_text) = (String::new(), String::new());
    output.read_to_string(&mut server_text).unwrap();
    client_output.read_to_string(&mut client_text).unwrap();
    assert_eq!([values(&server_text), values(&client_text)], expected);
}

/// Quoted strings and numbers in the output of an example, in their order.
fn values(text: &str) -> Vec<&str> {
    let is_number = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    let parts = text.split('"').enumerate();
    parts
        .flat_map(|(index, part)| match index % 2 {
            0 => part
                .split(|c: char| !c.is_ascii_alphanumeric())
                .filter(is_number)
                .collect(),
            _ => vec![part],
        })
        .collect()
}

#[test]
fn comch_control_path() {
    comch_pair(
        "comch_control_path",
        &["hello", "good morning", "bye"],
        &[
            "hello to you too",
            "good morning to you too",
            "bye to you too",
        ],
    );
}

#[test]
fn comch_fast_path() {
    // Number and sum of the messages, and the immediate data of the last one: "the end".
    comch_pair(
        "comch_fast_path",
        &[
            "1000", "500500", "116", "104", "101", "32", "101", "110", "100",
        ],
        &["1000"],
    );
}

#[test]
fn rdma_send_receive() {
    pair(
        "rdma_send_receive",
        &["a message", "another one", "0xd0ca000"],
        &["thank you"],
    );
}

#[test]
fn rdma_read_write() {
    pair(
        "rdma_read_write",
        &["done.", "4096", "was there.", "1000"],
        &["the server's memory"],
    );
}

#[test]
fn rdma_atomics() {
    // The counter before each addition, and the owners of the lock.
    pair(
        "rdma_atomics",
        &["done", "21", "11"],
        &["0", "7", "14", "11", "22", "11"],
    );
}

#[test]
fn rdma_sync_event() {
    pair("rdma_sync_event", &["100"], &["200", "200"]);
}

/// Examples of one process that ends by itself.
#[test]
fn accelerators() {
    for (name, expected) in [
        ("dma_copy", ["from the host", "from the DPU"]),
        // The size of the redundancy in bytes, and the recovered block.
        ("erasure_coding", ["1024", "1"]),
    ] {
        assert_eq!(values(&alone(name)), expected);
    }
    // Sizes in bytes.
    let text = alone("compress");
    let ["4096", deflated, "4096"] = values(&text)[..] else {
        panic!("{text}");
    };
    assert!(deflated.parse::<u32>().unwrap() < 1000, "{text}");
}

/// Runs an example without arguments; returns its output.
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
    assert!(text.contains("PORT"), "{text}");
}
