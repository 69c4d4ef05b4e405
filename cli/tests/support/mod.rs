//! Real roles as processes, in a private runtime directory.

pub mod gga;

use std::fs::{self, Permissions};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use deployment::Resources;
use deployment::log::{LogEvent, error_name, listening_port};
use deployment::process::{Process, Signal};
use doca::ErrorCode;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use serde_json::Value;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_doca-storage");

/// Timeout of every operation, for loaded machines.
pub const TIMEOUT: Duration = Duration::from_secs(300);

pub const BLOCK_SIZE: usize = 4096;

/// The beginning of the command of a service.
pub const ZERO_COPY: [&str; 7] = ["zero-copy", "-d", "03:00.0", "-r", "3b:00.0", "--cpu", "0"];

/// A private runtime directory, which also holds the test's files.
pub struct Sandbox(deployment::sandbox::Sandbox);

impl Deref for Sandbox {
    type Target = deployment::sandbox::Sandbox;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Sandbox {
    pub fn new() -> Self {
        Self(deployment::sandbox::Sandbox::new().expect("a directory"))
    }

    /// Writes an input file for the roles.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        self.0.file(name, bytes).expect("a file")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
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
        let port = self.port().expect("a free port");
        (self.target_again(port, arguments), port)
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
        let base = ["--storage-server", &storage, "--output", "json"];
        let timeouts = long_timeouts(arguments);
        let words = [&ZERO_COPY, &base[..], arguments, timeouts];
        self.spawn("service", &words.concat())
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
        let timeouts = long_timeouts(arguments);
        self.spawn("initiator", &[&base[..], arguments, timeouts].concat())
    }

    /// Runs an initiator of 64 operations, which must succeed.
    pub fn short_run(&self, strategy: &str, arguments: &[&str]) {
        let operations = ["--run-limit-operation-count", "64"];
        document(self.initiator(strategy, &[&operations[..], arguments].concat()));
    }

    /// Starts a validated run that would take hours, and waits until it performs I/Os.
    pub fn busy_initiator(&self, arguments: &[&str]) -> Process {
        let endless = [
            "--run-limit-operation-count",
            "2000000000",
            "--progress",
            "always",
        ];
        let arguments = [&endless[..], arguments].concat();
        let initiator = self.initiator("read_write_data_validity_test", &arguments);
        wait_for_io(&initiator);
        initiator
    }

    /// Files left in the runtime directory.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        self.0.leftovers().expect("a directory")
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
pub fn waiting(service: Process) -> Process {
    wait_for_log(&service, LogEvent::WaitingForInitiator, 1);
    service
}

/// Flags for long timeouts, so that a loaded machine causes no timeouts; none if the test sets them itself.
pub fn long_timeouts(arguments: &[&str]) -> &'static [&'static str] {
    if arguments.contains(&"--control-timeout") {
        &[]
    } else {
        &["--control-timeout", "60"]
    }
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
    ended(process, 1)
}

/// Waits for the role to exit with this code; returns its standard error.
pub fn ended(mut process: Process, code: i32) -> String {
    let status = process.wait(default_deadline());
    let (_, stderr) = process.into_output();
    let status = status.unwrap_or_else(|| panic!("it has not exited: {stderr}"));
    assert_eq!(status.code(), Some(code), "{stderr}");
    stderr
}

/// Waits for the role to exit with 1 and an error of this code; returns its standard error.
pub fn expect_error(process: Process, code: ErrorCode) -> String {
    let stderr = ended(process, 1);
    assert_eq!(error_name(&stderr), Some(&*code.name()), "{stderr}");
    stderr
}

/// Kills a process, which may be stopped.
pub fn killed(mut process: Process) {
    process.signal(Signal::KILL);
    assert!(process.wait(default_deadline()).is_some(), "killed");
}

/// Waits until a run with `--progress always` has completed further operations.
pub fn wait_for_io(initiator: &Process) {
    initiator
        .wait_for_io(default_deadline())
        .unwrap_or_else(|failure| panic!("{failure}"));
}

/// Waits until the role has logged this event this many times.
pub fn wait_for_log(process: &Process, event: LogEvent<'_>, times: usize) {
    process
        .wait_for_event(event, times, default_deadline())
        .unwrap_or_else(|failure| panic!("{failure}"));
}

/// Waits until the role has printed this value (such as the name of a flag or of a message) this many times.
pub fn wait_for_value(process: &Process, value: &str, times: usize) {
    let deadline = default_deadline();
    while process.stderr().matches(value).count() < times {
        assert!(
            Instant::now() < deadline,
            "{value} was not printed {times} times: {}",
            process.stderr()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Bytes that differ between blocks and within a block.
pub fn content(blocks: usize) -> Vec<u8> {
    contents::noise(1, blocks * BLOCK_SIZE)
}

/// The JSON document that a command has printed.
pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Writes a shell script as a program with this name; returns its path.
pub fn script(directory: &Path, name: &str, script: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a program");
    path
}

/// Checks that a text contains these words or numbers.
pub fn mentions(text: &str, values: &[impl AsRef<str>]) {
    let words: Vec<&str> = text
        .split(|letter: char| !letter.is_alphanumeric() && !"-_.:/".contains(letter))
        .map(|word| word.trim_matches([':', '.']))
        .collect();
    for value in values.iter().map(AsRef::as_ref) {
        assert!(words.contains(&value), "{value} is not in: {text}");
    }
}

/// Text that a program has printed.
pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain characters")
}

/// Reads the resources of a running process.
pub fn resources(process: &Process) -> Resources {
    Resources::of(process.id()).expect("it runs")
}

/// Waits until a process uses no more than `before`, except for memory retained by the allocator, and the descriptors
/// that softdoca keeps for the last few connections. Includes the exit of softdoca's agent, a thread with three
/// descriptors, which may follow the report of the session's end, because the agent exits some time after the last
/// export was destroyed.
pub fn wait_until_flat(process: &Process, before: Resources) {
    const RETAINED: Resources = Resources {
        memory: 2048,
        descriptors: 2 * 8,
        ..Resources::RETAINED
    };
    let deadline = default_deadline();
    while !resources(process).is_flat_since(before, RETAINED) {
        assert!(
            Instant::now() < deadline,
            "{process:?} grew from {before:?} to {:?}",
            resources(process)
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Two authorities, `ca` and `other`; certificates signed by each for 127.0.0.1 and for another host, named
/// `ca-127.0.0.1` and so on; and an expired one of `ca`, `expired-127.0.0.1`. The names of the keys have the suffix
/// `-key`.
pub struct Certificates(PathBuf);

impl Certificates {
    /// Creates the files in a directory.
    pub fn new(directory: &Path) -> Self {
        let certificates = Self::at(directory);
        for authority in ["ca", "other"] {
            let mut params = CertificateParams::new(vec![]).expect("parameters");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key");
            let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
            certificates.write(authority, &issuer.pem());
            for host in ["127.0.0.1", "storage.example"] {
                certificates.sign(&format!("{authority}-{host}"), host, &issuer, |_| {});
            }
            if authority == "ca" {
                certificates.sign("expired-127.0.0.1", "127.0.0.1", &issuer, |params| {
                    params.not_before = date_time_ymd(2020, 1, 1);
                    params.not_after = date_time_ymd(2021, 1, 1);
                });
            }
        }
        certificates
    }

    /// Uses the files that exist in a directory.
    pub fn at(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    fn sign(
        &self,
        name: &str,
        host: &str,
        issuer: &CertifiedIssuer<'_, KeyPair>,
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
        change(&mut params);
        let certificate = params.signed_by(&key, issuer).expect("a certificate");
        self.write(name, &certificate.pem());
        self.write(&format!("{name}-key"), &key.serialize_pem());
    }

    fn write(&self, name: &str, pem: &str) {
        let path = self.path(name);
        fs::write(&path, pem).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its mode");
    }

    /// Path of the file with this name.
    pub fn path(&self, name: &str) -> String {
        text(&self.0.join(format!("{name}.pem"))).to_owned()
    }

    /// Flags for TLS on a control channel with the certificate of this name.
    pub fn flags(&self, name: &str) -> Vec<String> {
        let (certificate, key) = (self.path(name), self.path(&format!("{name}-key")));
        [
            "--tls",
            "--tls-certificate",
            &certificate,
            "--tls-key",
            &key,
        ]
        .map(str::to_owned)
        .to_vec()
    }

    #[allow(dead_code, reason = "only the tests of several machines use it")]
    /// softdoca's environment variables for the certificate of this name, with peers that `ca` has signed.
    pub fn environment(&self, name: &str) -> [(&'static str, String); 3] {
        [
            ("SOFTDOCA_TLS_CERTIFICATE", self.path(name)),
            ("SOFTDOCA_TLS_KEY", self.path(&format!("{name}-key"))),
            ("SOFTDOCA_TLS_CA", self.path("ca")),
        ]
    }
}
