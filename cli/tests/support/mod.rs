//! Real roles as processes, in a private runtime directory.

pub mod certificates;
pub mod gga;
pub mod resources;
pub mod role;
pub mod set;
pub mod stored_block;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ::deployment::port::Port;
use ::deployment::process::Process;
use serde_json::Value;
use tempfile::TempDir;

/// Timeout of every operation, for loaded machines.
pub const TIMEOUT: Duration = Duration::from_secs(300);

pub const BLOCK_SIZE: usize = 4096;

/// A private runtime directory, which also holds the test's files.
pub struct Sandbox {
    directory: TempDir,
    /// Ports of its targets, reserved until the end: a target of another test must not get the port of a killed one, where a
    /// service would find it.
    ports: Mutex<Vec<Port>>,
}

impl Sandbox {
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a directory"),
            ports: Mutex::default(),
        }
    }

    pub fn runtime(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// Path of a file with this name, which need not exist.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes an input file for the roles.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_doca-storage"));
        command
            .args(arguments)
            .env("SOFTDOCA_RUNTIME_DIR", self.runtime());
        command
    }

    pub fn spawn(&self, role: &'static str, arguments: &[&str]) -> Process {
        Process::spawn(role, self.command(arguments)).expect("the program starts")
    }

    /// Starts a target, and returns it with its port.
    pub fn target(&self, arguments: &[&str]) -> (Process, u16) {
        let port = Port::reserve().expect("a free port");
        let number = port.number();
        self.ports.lock().expect("no panic").push(port);
        (self.target_again(number, arguments), number)
    }

    /// Starts a target on this port, which an earlier target has used.
    pub fn target_again(&self, port: u16, arguments: &[&str]) -> Process {
        start_target(|words| self.command(words), port, arguments).0
    }

    /// Starts a scripted target, and returns it with its port. At the end it writes its contents to a file with the
    /// name of `content` and the suffix `.dump`.
    pub fn scripted_target(
        &self,
        content: &Path,
        block_size: usize,
        fault: &str,
    ) -> (Process, u16) {
        let dump = format!("{}.dump", text(content));
        let mut target = self.spawn(
            "target",
            &[
                "conformance",
                "faulty-target",
                "--content",
                text(content),
                "--block-size",
                &block_size.to_string(),
                "--fault",
                fault,
                "--dump",
                &dump,
            ],
        );
        let port = target
            .wait_for("was listening", TIMEOUT, listening_port)
            .expect("the target listens");
        (target, port)
    }

    /// Starts a service, and waits until it is ready for an initiator.
    pub fn service(&self, port: u16, arguments: &[&str]) -> Process {
        waiting(self.starting_service(port, arguments))
    }

    /// Starts a service without waiting for its connection to the target.
    pub fn starting_service(&self, port: u16, arguments: &[&str]) -> Process {
        let storage = format!("127.0.0.1:{port}");
        let base = [
            "zero-copy",
            "-d",
            "03:00.0",
            "-r",
            "3b:00.0",
            "--cpu",
            "0",
            "--storage-server",
            &storage,
            "--output",
            "json",
        ];
        let patient = long_timeouts(arguments);
        self.spawn("service", &[&base[..], arguments, patient].concat())
    }

    pub fn initiator(&self, strategy: &str, arguments: &[&str]) -> Process {
        let base = [
            "initiator",
            "-d",
            "3b:00.0",
            "--cpu",
            "0",
            "--execution-strategy",
            strategy,
            "--output",
            "json",
        ];
        let patient = long_timeouts(arguments);
        self.spawn("initiator", &[&base[..], arguments, patient].concat())
    }

    /// Files left in the runtime directory.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.runtime())
            .map(|entries| {
                entries
                    .map(|entry| entry.expect("an entry").path())
                    .collect()
            })
            .unwrap_or_default()
    }
}

/// Starts a target on this port, 0 for any, and waits until it listens. `command` creates the command line of the program.
pub fn start_target(
    command: impl Fn(&[&str]) -> Command,
    port: u16,
    arguments: &[&str],
) -> (Process, u16) {
    let port = port.to_string();
    let base = [
        "target",
        "-d",
        "3b:00.0",
        "--cpu",
        "0",
        "--listen-port",
        &port,
        "--output",
        "json",
    ];
    let command = command(&[&base[..], arguments].concat());
    let mut target = Process::spawn("target", command).expect("the program starts");
    let port = target
        .wait_for("was listening", TIMEOUT, listening_port)
        .expect("the target listens");
    (target, port)
}

/// Waits until the service is ready for an initiator, and returns it.
pub fn waiting(mut service: Process) -> Process {
    service
        .wait_for("was waiting for the initiator", TIMEOUT, |line| {
            line.contains("waiting for the initiator").then_some(())
        })
        .expect("the service waits");
    service
}

/// Flags for long timeouts, so that a loaded machine causes none, unless the test sets them.
pub fn long_timeouts(arguments: &[&str]) -> &'static [&'static str] {
    if arguments.contains(&"--control-timeout") {
        &[]
    } else {
        &["--control-timeout", "60"]
    }
}

/// Port in the line that a target prints when it listens.
pub fn listening_port(line: &str) -> Option<u16> {
    line.rsplit_once("listening on port ")?
        .1
        .trim()
        .parse()
        .ok()
}

pub fn default_deadline() -> Instant {
    Instant::now() + TIMEOUT
}

/// Waits for the role to exit with success; returns its JSON document.
pub fn document(process: Process) -> Value {
    let stdout = process
        .finish(default_deadline(), || false)
        .expect("the role ends well");
    serde_json::from_str(&stdout).expect("a JSON document")
}

/// Waits for the role to exit with 1; returns its standard error.
pub fn expect_failure(process: Process) -> String {
    failure(process, 1)
}

/// Waits for the role to exit with this code; returns its standard error.
pub fn failure(mut process: Process, code: i32) -> String {
    let status = process.wait(default_deadline()).expect("the role ends");
    // Its last lines may still be in the pipe.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(status.code(), Some(code), "{}", process.stderr());
    process.stderr()
}

/// Waits until the role has printed this text on standard error this many times.
pub fn wait_for_log(process: &Process, what: &str, times: usize) {
    let deadline = default_deadline();
    while process.stderr().matches(what).count() < times {
        assert!(
            Instant::now() < deadline,
            "{what:?} was not said {times} times: {}",
            process.stderr()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Bytes that differ between blocks and within a block.
pub fn content(blocks: usize) -> Vec<u8> {
    (0..blocks * BLOCK_SIZE)
        .map(|i| (i / BLOCK_SIZE * 31 + i * 7 + i / 251) as u8)
        .collect()
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain characters")
}
