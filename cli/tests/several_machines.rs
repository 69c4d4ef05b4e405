//! Deployments over the network, with real roles: on loopback, and on machines that are network namespaces.
//!
//! A machine here has its own network, its own boot id and its own runtime directory. Where the kernel or a container does not let this
//! user make network namespaces, those tests are shown as ignored, and never as passed.

#[allow(dead_code, reason = "the other test binary uses the rest")]
mod support;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use deployment::process::{Process, Signal};
use libtest_mimic::{Arguments, Failed, Trial};
use support::{PATIENCE, document, patient, soon, start_target, text, waiting};
use tempfile::TempDir;

type Test = fn() -> Result<(), Failed>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = vec![
        Trial::test("zero_copy_over_loopback", zero_copy_over_loopback),
        Trial::test("gga_over_loopback", gga_over_loopback),
        Trial::test("another_key_is_refused", another_key_is_refused),
        Trial::test(
            "without_an_address_the_error_says_what_to_set",
            without_an_address,
        ),
    ];
    let denied = Network::new(1).err();
    if let Some(reason) = &denied {
        eprintln!("NOT RUN: tests with network namespaces: {reason}");
    }
    let namespaces: [(&str, Test); 5] = [
        ("zero_copy_over_two_machines", zero_copy_over_two_machines),
        ("gga_over_four_machines", gga_over_four_machines),
        ("a_cut_cable_is_noticed", a_cut_cable_is_noticed),
        ("a_stopped_target_is_noticed", a_stopped_target_is_noticed),
        (
            "nothing_listens_at_other_addresses",
            nothing_listens_at_other_addresses,
        ),
    ];
    for (name, test) in namespaces {
        trials.push(Trial::test(name, test).with_ignored_flag(denied.is_some()));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Where programs run: a runtime directory, and what they are started with.
struct Machine {
    runtime: PathBuf,
    /// A command that enters the machine, before the program.
    enter: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl Machine {
    fn on_loopback(directory: &Path, name: &str) -> Machine {
        Machine {
            runtime: directory.join(name),
            enter: Vec::new(),
            environment: vec![("SOFTDOCA_ADDRESS", "127.0.0.1".into())],
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut words = self
            .enter
            .iter()
            .map(String::as_str)
            .chain([env!("CARGO_BIN_EXE_doca-storage")])
            .chain(arguments.iter().copied());
        let mut command = Command::new(words.next().expect("the program at least"));
        command
            .args(words)
            .env("SOFTDOCA_RUNTIME_DIR", &self.runtime);
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        command
    }

    fn spawn(&self, role: &'static str, arguments: &[&str]) -> Process {
        Process::spawn(role, self.command(arguments)).expect("the program starts")
    }

    fn target(&self, arguments: &[&str]) -> (Process, u16) {
        start_target(|words| self.command(words), 0, arguments)
    }

    fn service(&self, role: &str, storage: &[&str], arguments: &[&str]) -> Process {
        let base = [
            role, "-d", "03:00.0", "-r", "3b:00.0", "--cpu", "0", "--output", "json",
        ];
        let patient = patient(arguments);
        let words = [&base[..], storage, arguments, patient].concat();
        waiting(self.spawn("service", &words))
    }

    fn initiator(&self, arguments: &[&str]) -> Process {
        let base = [
            "initiator",
            "-d",
            "3b:00.0",
            "--cpu",
            "0",
            "--output",
            "json",
            "--control-timeout",
            "60",
        ];
        self.spawn("initiator", &[&base[..], arguments].concat())
    }
}

const BLOCKS: &str = "64";
const VALIDATION: [&str; 6] = [
    "--execution-strategy",
    "read_write_data_validity_test",
    "--run-limit-operation-count",
    "640",
    "--transaction-count",
    "16",
];

/// A validation through zero_copy, whose target is reached at `host`.
fn zero_copy(host: &str, near: &Machine, far: &Machine, block_size: &str) -> Result<(), Failed> {
    let (target, port) = far.target(&["--block-count", BLOCKS, "--block-size", block_size]);
    let storage = format!("{host}:{port}");
    let service = near.service("zero-copy", &["--storage-server", &storage], &[]);
    let report = document(near.initiator(&VALIDATION));
    expect(&report["operation_count"], 640)?;
    for role in [service, target] {
        role.finish(soon(), || false)
            .map_err(|failure| Failed::from(format!("{failure:?}")))?;
    }
    Ok(())
}

fn expect(found: &serde_json::Value, expected: u64) -> Result<(), Failed> {
    if found == expected {
        return Ok(());
    }
    Err(format!("expected {expected}, got {found}").into())
}

/// A validation through gga_offload, whose targets are reached at `hosts`.
fn gga(hosts: [&str; 3], near: &Machine, far: [&Machine; 3]) -> Result<(), Failed> {
    let bench = support::Bench::new();
    let content: Vec<u8> = (0..64 * 4096).map(|at: usize| (at / 64) as u8).collect();
    let files = bench.generate(
        "content",
        &content,
        &["--block-size", "4096", "--matrix-type", "vandermonde"],
    );
    let mut targets = Vec::new();
    let mut storage = Vec::new();
    for (((machine, file), host), flag) in far.iter().zip(&files).zip(hosts).zip([
        "--data-1-storage",
        "--data-2-storage",
        "--data-p-storage",
    ]) {
        let (target, port) = machine.target(&["--binary-content", text(file)]);
        targets.push(target);
        storage.extend([flag.to_owned(), format!("{host}:{port}")]);
    }
    let storage: Vec<&str> = storage.iter().map(String::as_str).collect();
    let service = near.service("gga-offload", &storage, &["--matrix-type", "vandermonde"]);
    let report = document(near.initiator(&VALIDATION));
    expect(&report["operation_count"], 640)?;
    for role in targets.into_iter().chain([service]) {
        role.finish(soon(), || false)
            .map_err(|failure| Failed::from(format!("{failure:?}")))?;
    }
    Ok(())
}

fn zero_copy_over_loopback() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let machine = |name| Machine::on_loopback(directory.path(), name);
    for block_size in ["4096", "262144"] {
        zero_copy("127.0.0.1", &machine("near"), &machine("far"), block_size)?;
    }
    Ok(())
}

fn gga_over_loopback() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let machine = |name| Machine::on_loopback(directory.path(), name);
    let far = ["one", "two", "three"].map(machine);
    gga(["127.0.0.1"; 3], &machine("near"), far.each_ref())
}

/// A session that must not come about; what the service says.
fn refused(near: &Machine, far: &Machine) -> Result<String, Failed> {
    let (_target, port) = far.target(&["--block-count", BLOCKS]);
    let storage = format!("127.0.0.1:{port}");
    let mut service = near.service(
        "zero-copy",
        &["--storage-server", &storage],
        &["--control-timeout", "10"],
    );
    let mut initiator = near.initiator(&VALIDATION);
    let code = initiator.wait(soon()).and_then(|status| status.code());
    if code != Some(1) {
        return Err(format!("expected an initiator that fails with 1, got {code:?}").into());
    }
    service.wait(soon());
    // Its last lines may still be on their way through the pipe.
    std::thread::sleep(Duration::from_millis(100));
    Ok(format!("{}{}", service.stderr(), initiator.stderr()))
}

fn another_key_is_refused() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let machine = |name: &str, key: &[u8; 32]| -> std::io::Result<Machine> {
        let path = directory.path().join(format!("{name}.key"));
        std::fs::write(&path, key)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let mut machine = Machine::on_loopback(directory.path(), name);
        let key = ("SOFTDOCA_KEY_FILE", text(&path).to_owned());
        machine.environment.push(key);
        Ok(machine)
    };
    let (near, far) = (machine("near", &[1; 32])?, machine("far", &[2; 32])?);
    refused(&near, &far)?;
    // The same with one key: it was the key.
    zero_copy("127.0.0.1", &near, &machine("other", &[1; 32])?, "4096")
}

fn without_an_address() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let mut near = Machine::on_loopback(directory.path(), "near");
    let far = Machine::on_loopback(directory.path(), "far");
    near.environment.clear();
    refused(&near, &far).map(|_| ())
}

/// Machines that are network namespaces: machine 0 has a cable to each other one.
struct Network {
    directory: TempDir,
    holders: Vec<Child>,
    key: PathBuf,
}

impl Network {
    fn new(machines: usize) -> Result<Network, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let key = directory.path().join("key");
        std::fs::write(&key, "a key of the deployment, 0123456789")
            .map_err(|error| error.to_string())?;
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600))
            .map_err(|error| error.to_string())?;
        let mut network = Network {
            directory,
            holders: Vec::new(),
            key,
        };
        network.hold(Command::new("unshare").args(["-Urnm", "sh", "-c"]), 0)?;
        for index in 1..machines {
            let mut command = network.enter(0);
            command.args(["unshare", "-nm", "sh", "-c"]);
            network.hold(&mut command, index)?;
            let process = network.holders[index].id().to_string();
            let (here, there) = (format!("near{index}"), format!("far{index}"));
            network.run(
                0,
                &[
                    "ip", "link", "add", &here, "type", "veth", "peer", "name", &there, "netns",
                    &process,
                ],
            )?;
            for (machine, name, host) in [(0, &here, 1), (index, &there, 2)] {
                let address = format!("10.91.{index}.{host}/24");
                network.run(machine, &["ip", "address", "add", &address, "dev", name])?;
                network.run(machine, &["ip", "link", "set", name, "up"])?;
            }
        }
        Ok(network)
    }

    /// Keeps a machine there, with a boot id of its own.
    fn hold(&mut self, command: &mut Command, index: usize) -> Result<(), String> {
        let boot = self.directory.path().join(format!("boot{index}"));
        let id = format!("{index:08x}-0000-4000-8000-{:012x}\n", std::process::id());
        std::fs::write(&boot, id).map_err(|error| error.to_string())?;
        let script = format!(
            "mount --bind {} /proc/sys/kernel/random/boot_id && ip link set lo up && echo ready && exec sleep 3600",
            boot.display()
        );
        let mut child = command
            .arg(script)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start unshare: {error}"))?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("a pipe")?;
        BufReader::new(output)
            .read_line(&mut line)
            .map_err(|error| error.to_string())?;
        if line.trim() != "ready" {
            let output = child
                .wait_with_output()
                .map_err(|error| error.to_string())?;
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        self.holders.push(child);
        Ok(())
    }

    fn entering(&self, machine: usize) -> Vec<String> {
        let process = self.holders[machine].id().to_string();
        [
            "nsenter",
            "-t",
            &process,
            "-U",
            "-n",
            "-m",
            "--preserve-credentials",
            "--",
        ]
        .map(str::to_owned)
        .into()
    }

    fn enter(&self, machine: usize) -> Command {
        let words = self.entering(machine);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    fn run(&self, machine: usize, words: &[&str]) -> Result<String, String> {
        let output = self
            .enter(machine)
            .args(words)
            .output()
            .map_err(|error| format!("cannot start nsenter: {error}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let error = String::from_utf8_lossy(&output.stderr);
        Err(format!("{words:?}: {}", error.trim()))
    }

    fn machine(&self, index: usize) -> Machine {
        let addresses = match index {
            0 => (1..self.holders.len())
                .map(|index| format!("10.91.{index}.1"))
                .collect::<Vec<_>>()
                .join(","),
            index => format!("10.91.{index}.2"),
        };
        Machine {
            runtime: self.directory.path().join(format!("run{index}")),
            enter: self.entering(index),
            environment: vec![
                ("SOFTDOCA_ADDRESS", addresses),
                ("SOFTDOCA_KEY_FILE", text(&self.key).to_owned()),
            ],
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            // It sleeps, or has ended.
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

fn zero_copy_over_two_machines() -> Result<(), Failed> {
    let network = Network::new(2)?;
    let (near, far) = (network.machine(0), network.machine(1));
    for block_size in ["4096", "1048576"] {
        zero_copy("10.91.1.2", &near, &far, block_size)?;
    }
    Ok(())
}

fn gga_over_four_machines() -> Result<(), Failed> {
    let network = Network::new(4)?;
    let far = [1, 2, 3].map(|index| network.machine(index));
    gga(
        ["10.91.1.2", "10.91.2.2", "10.91.3.2"],
        &network.machine(0),
        far.each_ref(),
    )
}

/// How long a peer may take to notice that the other is gone.
const NOTICED: Duration = Duration::from_secs(3);
/// Time that a loaded machine may add.
const LOAD: Duration = Duration::from_secs(20);

/// A run without end between two machines; `hurt` ends it, and the initiator must fail.
fn interrupted(hurt: impl FnOnce(&Network, &Process) -> Result<(), Failed>) -> Result<(), Failed> {
    let network = Network::new(2)?;
    let (near, far) = (network.machine(0), network.machine(1));
    let (target, port) = far.target(&["--block-count", BLOCKS]);
    let storage = format!("10.91.1.2:{port}");
    let service = near.service("zero-copy", &["--storage-server", &storage], &[]);
    let mut initiator = near.initiator(&[
        "--execution-strategy",
        "read_throughput_test",
        "--run-limit-operation-count",
        "1000000000",
        "--io-timeout",
        "600",
    ]);
    initiator
        .wait_for("was started", PATIENCE, |line| {
            line.contains("start_storage_request").then_some(())
        })
        .expect("the session begins");
    // Before I/Os run, the time of a control answer counts, which is longer.
    std::thread::sleep(Duration::from_secs(2));
    hurt(&network, &target)?;
    let begin = Instant::now();
    let code = initiator
        .wait(Instant::now() + NOTICED + LOAD)
        .and_then(|status| status.code());
    eprintln!("noticed after {:?}", begin.elapsed());
    target.signal(Signal::CONT);
    if code != Some(1) {
        return Err(format!(
            "expected an initiator that fails with 1 within {:?}, got {code:?}; service: {}",
            NOTICED + LOAD,
            service.stderr()
        )
        .into());
    }
    Ok(())
}

fn a_cut_cable_is_noticed() -> Result<(), Failed> {
    interrupted(|network, _| {
        network.run(1, &["ip", "link", "set", "far1", "down"])?;
        Ok(())
    })
}

fn a_stopped_target_is_noticed() -> Result<(), Failed> {
    interrupted(|_, target| {
        target.signal(Signal::STOP);
        Ok(())
    })
}

fn nothing_listens_at_other_addresses() -> Result<(), Failed> {
    let network = Network::new(2)?;
    let (near, far) = (network.machine(0), network.machine(1));
    let (target, port) = far.target(&["--block-count", BLOCKS]);
    let storage = format!("10.91.1.2:{port}");
    let service = near.service("zero-copy", &["--storage-server", &storage], &[]);
    let initiator = near.initiator(&[
        "--execution-strategy",
        "read_throughput_test",
        "--run-limit-operation-count",
        "1000000000",
    ]);
    std::thread::sleep(Duration::from_secs(1));
    let listening = network.run(0, &["ss", "-Htln"])?;
    let others: Vec<_> = listening
        .lines()
        .filter(|line| !line.contains("10.91.1.1:"))
        .collect();
    if listening.lines().count() == 0 || !others.is_empty() {
        return Err(format!("expected listeners at 10.91.1.1 alone, got {listening}").into());
    }
    drop((initiator, service, target));
    Ok(())
}
