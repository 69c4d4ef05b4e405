//! Commands that the documents print, run as printed: in an empty directory with the program at
//! `target/release/doca-storage` and on `PATH`, with other ports and shorter durations.
//!
//! A command that is not run here is listed in [`ELSEWHERE`], with the test that runs it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::documents::{commands, documents, root};
use crate::support::{PROGRAM, Sandbox, TIMEOUT, default_deadline, text};
use deployment::process::{Process, Signal};

/// Parts of commands that are not run here, and the tests that run them.
const ELSEWHERE: [(&str, &str); 38] = [
    ("doca-storage up ", "up.rs"),
    (
        "cargo run --release -- ",
        "not cargo but the program: sdk.rs",
    ),
    ("cargo run", ".ci/run"),
    ("cargo test", ".ci/run"),
    ("cargo bench", "measurements of a developer"),
    (
        "cargo build",
        ".ci/run; with --cfg doca_sdk: softdoca/sdk/tests",
    ),
    (
        "cargo install --path",
        "sdk.rs: the program outside of its checkout",
    ),
    ("cargo install cargo-deb", ".ci/package"),
    ("packaging/build", ".ci/package"),
    (".ci/arm64", "itself"),
    ("apt-get", ".ci/package"),
    ("systemctl", ".ci/package"),
    ("docker ", ".ci/containers"),
    ("cd packaging/container", ".ci/containers"),
    ("setpriv", ".ci/package"),
    ("cargo fuzz", "a nightly compiler"),
    ("cargo +nightly", "a nightly compiler"),
    ("nbdfuse", ".ci/volume"),
    ("mkfs.ext4", ".ci/volume"),
    ("fuse2fs", ".ci/volume"),
    ("qemu-img convert -n -O raw", ".ci/volume"),
    ("qemu-", ".ci/guest"),
    ("cloud-hypervisor", "none in Debian"),
    ("nbdinfo", "frontends/nbd/tests, with certificates"),
    (
        "--tls-certificate",
        "frontends/nbd/tests, with certificates",
    ),
    ("--command-channel-name b", "failover.rs"),
    ("curl", "metrics.rs"),
    (" set examine ", "set.rs: backing files of a set"),
    (" set verify ", "set.rs: backing files of a set"),
    (" set status", "operator.rs"),
    (" sdk migrate ", "migrate.rs: programs of earlier releases"),
    ("conformance record", "record_replay.rs"),
    ("conformance replay", "record_replay.rs"),
    ("--hosts", "several_machines.rs"),
    (
        "--compare cpp=DIR",
        "binaries of the C++ reference: given_binaries.rs",
    ),
    ("make test", "a program of the reader's"),
    ("meson", "NVIDIA's applications: sdk.rs"),
    ("/etc/ld.so.conf.d", "the system's linker"),
];

/// C programs: softdoca/shared/tests compiles and runs them, also under valgrind.
const C: [&str; 4] = ["cc ", "c++ ", "./ping_pong", "valgrind "];

/// Test that runs a command which is not run here.
fn elsewhere(document: &Path, command: &str) -> Option<&'static str> {
    if C.iter().any(|word| command.starts_with(word)) {
        return Some("softdoca/shared/tests");
    }
    let is_of_machines = document.ends_with("several-machines.md")
        && (command.contains("-storage ") || command.contains("SOFTDOCA_ADDRESS"));
    if is_of_machines {
        return Some("several_machines.rs");
    }
    // The block device of three targets, in the background of a shell.
    if document.ends_with("README.md") && command.contains("./doca-storage ") {
        return Some(".ci/volume");
    }
    // The deployment that a package installs.
    if document.ends_with("packages.md") && command.contains(" status ") {
        return Some(".ci/package");
    }
    let found = ELSEWHERE.iter().find(|(part, _)| command.contains(part));
    found.map(|(_, place)| *place)
}

/// Shortens a command by appending arguments, before a redirection if there is one.
fn shortened(command: &str) -> String {
    let short = [
        (" bench", "--rounds 1 --seconds 0.02 --only memcpy"),
        (" conformance role target --bin", "--only ids"),
        (
            " conformance matrix",
            "--layout zero-copy --strategy read_throughput_test --operations 64",
        ),
        (" conformance hostile", "--only control-nothing"),
        (
            " conformance faults",
            "--only 'faults.zero_copy: initiator, query_storage_request, SIGTERM'",
        ),
        (" conformance hammer", "--layout zero-copy"),
    ];
    let mut line = command
        .replace("--duration 5m", "--duration 2s")
        .replace(" --rounds 3", "");
    if let Some((_, more)) = short.iter().find(|(part, _)| line.contains(part))
        && !line.contains("--list")
    {
        let end = line.find(" > ").unwrap_or(line.len());
        line.insert_str(end, &format!(" {more}"));
    }
    line
}

/// A page whose commands are run in order.
struct Page {
    sandbox: Sandbox,
    ports: Vec<(&'static str, String)>,
    running: Vec<Process>,
}

impl Page {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let program = Path::new(PROGRAM);
        for directory in ["target/release", "target/dist", "build", "DIR"] {
            fs::create_dir_all(sandbox.path(directory)).expect("a directory");
            let link = sandbox.path(directory).join("doca-storage");
            symlink(program, link).expect("a link");
        }
        symlink(root().join("softdoca"), sandbox.path("softdoca-sources")).expect("a link");
        // A target, and a file with content.
        let script = format!(
            "#!/bin/sh\nexec {} target \"$@\"\n{}",
            program.display(),
            "# text\n".repeat(2000)
        );
        for name in ["build/my_target", "FILE"] {
            let file = sandbox.file(name, script.as_bytes());
            fs::set_permissions(file, fs::Permissions::from_mode(0o700)).expect("executable");
        }
        // Header of a library for x86-64.
        let mut library = [0; 64];
        library[..6].copy_from_slice(b"\x7fELF\x02\x01");
        library[18] = 62;
        sandbox.file("library.so", &library);
        // Created by an installation on another page.
        fs::create_dir_all(sandbox.path("installed/lib")).expect("a directory");
        let listeners: Vec<_> = ["12345", "12346", "12347", "9101", "9102", "9103", "9104"]
            .into_iter()
            .map(|port| (port, TcpListener::bind("127.0.0.1:0").expect("a free port")))
            .collect();
        let ports = listeners
            .iter()
            .map(|(port, listener)| {
                let free = listener.local_addr().expect("an address").port();
                (*port, free.to_string())
            })
            .collect();
        Self {
            sandbox,
            ports,
            running: Vec::new(),
        }
    }

    /// The printed command line, with the paths and ports of this test.
    fn here(&self, command: &str) -> String {
        let place = |name: &str| text(&self.sandbox.path(name)).to_owned();
        let mut line = shortened(command)
            .replace("dpu.example:", "localhost:")
            .replace("--library-path ~/softdoca", "--library-path ~/installed")
            .replace("--cpu 1", "--cpu 0")
            .replace("--block-count 262144", "--block-count 256")
            .replace("/tmp/disk", &place("disk"))
            .replace("/run/user/1000/disk", &place("disk"))
            .replace("/var/lib/doca-storage/blocks", &place("blocks"))
            .replace("/opt/mellanox/doca", &place("mellanox"))
            .replace(
                "SOFTDOCA_TOPOLOGY=softdoca/",
                "SOFTDOCA_TOPOLOGY=softdoca-sources/",
            );
        for (port, free) in &self.ports {
            line = line.replace(port, free);
        }
        if line.contains("sdk install") {
            line += " --library library.so";
        }
        line
    }

    fn shell(&self, line: &str) -> Command {
        let home = self.sandbox.path("");
        let program = self.sandbox.path("target/release");
        let path = std::env::var("PATH").expect("a path");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", line])
            .current_dir(&home)
            .env("HOME", &home)
            .env("PATH", format!("{}:{path}", program.display()))
            .env("SOFTDOCA_RUNTIME_DIR", self.sandbox.runtime())
            .stdin(Stdio::null());
        shell
    }

    /// Starts a role, and waits until it is ready.
    fn start(&mut self, command: &str, ready: &str) {
        let line = self.here(command);
        let line = line.replace("./target/release/doca-storage", "exec doca-storage");
        let mut process = Process::spawn_interactive("role", self.shell(&line)).expect("a shell");
        process
            .wait_for("was ready", TIMEOUT, |line| {
                line.contains(ready).then_some(())
            })
            .unwrap_or_else(|failure| {
                panic!("{command}: {failure}: {}", process.lines().join("\n"))
            });
        self.running.push(process);
    }

    /// Starts the deployment for a client on a page that refers to another page for it.
    fn start_first_deployment(&mut self) {
        if self.running.is_empty() {
            self.start("exec doca-storage target -d 3b:00.0 --cpu 0 --listen-port 12345 --block-count 64 --block-size 4096 --sessions forever", TARGET);
            self.start("exec doca-storage zero-copy -d 03:00.0 -r 3b:00.0 --cpu 0 --storage-server 127.0.0.1:12345 --sessions forever", SERVICE);
        }
    }

    fn run(&mut self, command: &str) {
        let arguments = command.split("doca-storage ").nth(1).unwrap_or_default();
        match arguments.split(' ').next() {
            Some("target") => self.start(command, TARGET),
            Some("zero-copy" | "gga-offload") => self.start(command, SERVICE),
            Some("nbd" | "vhost-user-blk") => {
                self.start_first_deployment();
                self.start(command, "Serving");
                // The service has one client at a time.
                let mut server = self.running.pop().expect("started");
                server.signal(Signal::TERM);
                let status = server.wait(default_deadline()).expect("it ends");
                assert!(status.success(), "{command}: {}", server.lines().join("\n"));
            }
            Some("initiator") if command.contains("2000000000") => {
                let line = self
                    .here(command)
                    .replace("./target/release/doca-storage", "exec doca-storage");
                let mut load =
                    Process::spawn_interactive("initiator", self.shell(&line)).expect("a shell");
                load.wait_for("was started", TIMEOUT, |line| {
                    line.contains("start_storage_request").then_some(())
                })
                .expect("the initiator starts");
                load.signal(Signal::INT);
                let status = load.wait(default_deadline()).expect("it ends");
                let said = load.lines().join("\n");
                assert_eq!(status.code(), Some(1), "interrupted: {said}");
            }
            Some("top") => {
                let line = self.here(command);
                let line = format!(
                    "{{ sleep 1; printf q; }} | script -qec 'stty cols 80 rows 24 && exec {line}' /dev/null"
                );
                self.exits(command, &line, &[0]);
            }
            // Only one of the four roles of the page is running.
            Some("status") => self.exits(command, &self.here(command), &[0, 1]),
            // A short measurement does not reach the target values.
            Some("bench") => self.exits(command, &self.here(command), &[0, 1]),
            _ => self.exits(command, &self.here(command), &[0]),
        }
    }

    fn exits(&self, command: &str, line: &str, codes: &[i32]) {
        let output = self.shell(line).output().expect("a shell");
        let code = output.status.code();
        assert!(
            code.is_some_and(|code| codes.contains(&code)),
            "{command}: {code:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Parts of the lines that a target and a service print when they are ready.
const TARGET: &str = "listening on port";
const SERVICE: &str = "waiting for the initiator";

#[test]
fn every_printed_command_runs() {
    let mut count = 0;
    for document in documents() {
        let mut page = Page::new();
        let printed = fs::read_to_string(&document).expect("readable");
        for command in commands(&printed) {
            if elsewhere(&document, &command).is_some() {
                continue;
            }
            // A different target on the same port belongs to another example.
            let listens = |part: &str| command.contains(part);
            if listens(" target ") && listens("--listen-port 12345") {
                page.running.clear();
            }
            page.run(&command);
            count += 1;
        }
    }
    assert!(count >= 50, "{count} commands");
}
