//! Tests with several processes and their own runtime directory.
//!
//! A test function runs in three roles: started by the harness, it starts itself in a new directory and checks that no
//! files are left behind in it; as `main`, it is the actual test; and it runs as the peers that `main` starts.

#![allow(dead_code, reason = "each test program uses its part")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "SOFTDOCA_TEST_ROLE";
const MAIN: &str = "main";

/// Runs the test function `test` (its name in the harness) in separate processes.
pub fn run(test: &str, main: fn(), peers: &[(&str, fn())]) {
    run_with(test, |_| Vec::new(), main, peers);
}

/// As [`run`]. `environment` returns additional environment variables of all processes; its argument is a directory for files.
pub fn run_with(
    test: &str,
    environment: fn(&Path) -> Vec<(&'static str, String)>,
    main: fn(),
    peers: &[(&str, fn())],
) {
    match std::env::var(ROLE) {
        Err(_) => in_new_directory(test, environment),
        Ok(role) if role == MAIN => main(),
        Ok(role) => {
            let (_, peer) = peers
                .iter()
                .find(|(name, _)| *name == role)
                .expect("a peer of this test");
            peer();
        }
    }
}

fn in_new_directory(test: &str, environment: fn(&Path) -> Vec<(&'static str, String)>) {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("run");
    let status = command(test, MAIN)
        .env("SOFTDOCA_RUNTIME_DIR", &directory)
        .envs(environment(parent.path()))
        .status()
        .unwrap();
    assert!(status.success(), "{test} failed, see above: {status}");
    let left: Vec<_> = std::fs::read_dir(&directory)
        .map(Iterator::collect)
        .unwrap_or_default();
    assert!(left.is_empty(), "left in the runtime directory: {left:?}");
}

fn command(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role);
    command
}

/// A process started by `main`.
pub struct Peer {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Peer {
    pub fn start(test: &str, role: &str) -> Peer {
        let mut child = command(test, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Peer {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        }
    }

    /// Sends a line, which the peer reads with [`hear`].
    pub fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// The next line that the peer has sent with [`say`].
    pub fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.stdout.read_line(&mut line).unwrap(),
                0,
                "the peer ended without an answer"
            );
            if let Some(text) = line.strip_prefix("> ") {
                return text.trim_end().to_owned();
            }
        }
    }

    /// Sends SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its exit, which must be successful.
    pub fn finish(mut self) {
        drop(self.stdin);
        std::io::copy(&mut self.stdout, &mut std::io::sink()).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the peer failed, see above: {status}");
    }
}

/// Sends a line to `main`. For peers.
pub fn say(line: &str) {
    // The harness may have started a line.
    println!("\n> {line}");
}

/// Reads the next line from `main`. For peers.
pub fn hear() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Encodes bytes as hexadecimal text.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
