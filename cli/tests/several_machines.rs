//! Deployments over the network, with real roles: on loopback, and on machines that are network namespaces.
//!
//! A machine has its own network, boot id and runtime directory. If the kernel or a container does not permit
//! network namespaces, these tests are reported as ignored, and not as passed.

#[allow(dead_code, reason = "the other test binary uses the rest")]
mod support;

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use deployment::log::LogEvent;
use deployment::network::Network;
use deployment::port::Port;
use deployment::process::{Process, Signal};
use libtest_mimic::{Arguments, Failed, Trial};
use support::gga;
use support::{
    Certificates, TIMEOUT, default_deadline, document, killed, long_timeouts, start_target, text,
    wait_for_io, wait_for_log, wait_for_value, waiting,
};

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
        Trial::test(
            "wrong_network_settings_are_an_error_before_a_role_is_ready",
            wrong_settings,
        ),
        Trial::test("zero_copy_over_tls", zero_copy_over_tls),
        Trial::test("gga_over_tls", gga_over_tls),
        Trial::test("wrong_certificates_are_refused", wrong_certificates),
        Trial::test("tls_on_one_side_is_refused", tls_on_one_side),
        Trial::test("lost_target_rejoins_over_tls", lost_target_rejoins_over_tls),
    ];
    let capture = Capture::new();
    if let Err(reason) = &capture {
        eprintln!("NOT RUN: the test that captures packets: {reason}");
    }
    trials.push(
        Trial::test(
            "blocks_are_unencrypted_only_without_tls",
            blocks_in_the_clear,
        )
        .with_ignored_flag(capture.is_err()),
    );
    let missing = missing_for_verbs();
    if let Some(reason) = &missing {
        eprintln!("NOT RUN: the test with an RDMA device: {reason}");
    }
    trials.push(
        Trial::test("zero_copy_by_verbs_in_a_guest", zero_copy_by_verbs)
            .with_ignored_flag(missing.is_some()),
    );
    let denied = Network::new(1).err();
    if let Some(reason) = &denied {
        eprintln!("NOT RUN: tests with network namespaces: {reason}");
    }
    let namespaces: [(&str, Test); 11] = [
        ("zero_copy_over_two_machines", zero_copy_over_two_machines),
        ("gga_over_four_machines", gga_over_four_machines),
        ("demo_over_two_machines", demo_over_two_machines),
        ("bench_over_two_machines", bench_over_two_machines),
        ("matrix_over_two_machines", matrix_over_two_machines),
        ("hammer_over_two_machines", hammer_over_two_machines),
        (
            "network_faults_and_addresses_over_two_machines",
            network_faults_and_addresses,
        ),
        ("cut_link_is_detected", cut_link_is_detected),
        ("stopped_target_is_detected", stopped_target_is_detected),
        (
            "nothing_listens_at_other_addresses",
            nothing_listens_at_other_addresses,
        ),
        ("resolver_failure_is_retried", resolver_failure_is_retried),
    ];
    for (name, test) in namespaces {
        trials.push(Trial::test(name, test).with_ignored_flag(denied.is_some()));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn repository() -> &'static Path {
    let cli = Path::new(env!("CARGO_MANIFEST_DIR"));
    cli.parent().unwrap_or(cli)
}

/// Reason why a guest with a soft-RoCE device cannot run. Its packages are downloaded only when the script is run
/// manually, and not by a test.
fn missing_for_verbs() -> Option<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|it| it.join("qemu-system-x86_64").is_file()) {
        return Some("no qemu-system-x86_64");
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let is_there = target.is_some_and(|target| target.join("verbs/root/boot").is_dir());
    (!is_there).then_some("no packages for the guest: run .ci/verbs once")
}

fn zero_copy_by_verbs() -> Result<(), Failed> {
    let output = Command::new(repository().join(".ci/verbs"))
        .arg("zero-copy")
        .env("PROGRAM", env!("CARGO_BIN_EXE_doca-storage"))
        .env(
            "PACKAGES",
            Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("verbs"),
        )
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !text.contains("guest: PASS zero-copy") {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}\n{text}\n{errors}", output.status).into());
    }
    Ok(())
}

/// Environments in which programs run.
enum Machine<'a> {
    /// This machine, with its own runtime directory and these environment variables.
    Loopback {
        runtime: PathBuf,
        environment: Vec<(&'static str, String)>,
    },
    /// A machine of a network.
    Namespace(&'a Network, usize),
}

impl Machine<'_> {
    fn on_loopback(directory: &Path, name: &str) -> Machine<'static> {
        Machine::Loopback {
            runtime: directory.join(name),
            environment: vec![("SOFTDOCA_ADDRESS", "127.0.0.1".into())],
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_doca-storage"));
        command.args(arguments);
        match self {
            Machine::Loopback {
                runtime,
                environment,
            } => {
                command.env("SOFTDOCA_RUNTIME_DIR", runtime);
                command.envs(environment.iter().map(|(name, value)| (name, value)));
                command
            }
            Machine::Namespace(network, index) => network.place(*index, command),
        }
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
        let timeouts = long_timeouts(arguments);
        let words = [&base[..], storage, arguments, timeouts].concat();
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

/// A validation through zero_copy, whose target has the address `host`.
fn zero_copy(
    host: &str,
    near: &Machine<'_>,
    far: &Machine<'_>,
    block_size: &str,
) -> Result<(), Failed> {
    let (target, port) = far.target(&["--block-count", BLOCKS, "--block-size", block_size]);
    let storage = format!("{host}:{port}");
    let service = near.service("zero-copy", &["--storage-server", &storage], &[]);
    let report = document(near.initiator(&VALIDATION));
    expect(&report["operation_count"], 640)?;
    for role in [service, target] {
        role.finish(default_deadline(), || false)
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

/// A validation through gga_offload, whose targets have the addresses `hosts`.
fn gga(hosts: [&str; 3], near: &Machine<'_>, far: [&Machine<'_>; 3]) -> Result<(), Failed> {
    let sandbox = support::Sandbox::new();
    let content: Vec<u8> = (0..64 * 4096).map(|at: usize| (at / 64) as u8).collect();
    let files = sandbox.generate(
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
        role.finish(default_deadline(), || false)
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

/// A session that must fail; returns the service's standard error.
fn refused(near: &Machine<'_>, far: &Machine<'_>) -> Result<String, Failed> {
    let (_target, port) = far.target(&["--block-count", BLOCKS]);
    let storage = format!("127.0.0.1:{port}");
    let mut service = near.service(
        "zero-copy",
        &["--storage-server", &storage],
        &["--control-timeout", "10"],
    );
    let mut initiator = near.initiator(&VALIDATION);
    let code = initiator
        .wait(default_deadline())
        .and_then(|status| status.code());
    if code != Some(1) {
        return Err(format!("expected an initiator that fails with 1, got {code:?}").into());
    }
    service.wait(default_deadline());
    // The last lines may still be in the pipe.
    std::thread::sleep(Duration::from_millis(100));
    Ok(format!("{}{}", service.stderr(), initiator.stderr()))
}

/// Checks that a session fails with these texts on standard error of service and target. Both keep running after the
/// session until the texts have been printed.
fn refused_with(
    near: &Machine<'_>,
    far: &Machine<'_>,
    of_service: &[&str],
    of_target: &[&str],
) -> Result<(), Failed> {
    let forever = ["--sessions", "forever"];
    let (target, port) = far.target(&[&["--block-count", BLOCKS], &forever[..]].concat());
    let storage = format!("127.0.0.1:{port}");
    let service = near.service("zero-copy", &["--storage-server", &storage], &forever);
    let mut initiator = near.initiator(&VALIDATION);
    let code = initiator
        .wait(default_deadline())
        .and_then(|status| status.code());
    if code != Some(1) {
        return Err(format!("expected an initiator that fails with 1, got {code:?}").into());
    }
    for (role, texts) in [(&service, of_service), (&target, of_target)] {
        for text in texts {
            wait_for_value(role, text, 1);
        }
    }
    Ok(())
}

impl Machine<'_> {
    fn with_tls(directory: &Path, name: &str, certificate: &str) -> Machine<'static> {
        let files = Certificates::at(directory).environment(certificate);
        let address = ("SOFTDOCA_ADDRESS", "127.0.0.1".to_owned());
        Machine::Loopback {
            runtime: directory.join(name),
            environment: files.into_iter().chain([address]).collect(),
        }
    }
}

fn zero_copy_over_tls() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    Certificates::new(directory.path());
    let machine = |name| Machine::with_tls(directory.path(), name, "ca-127.0.0.1");
    for block_size in ["4096", "262144"] {
        zero_copy("127.0.0.1", &machine("near"), &machine("far"), block_size)?;
    }
    Ok(())
}

fn gga_over_tls() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    Certificates::new(directory.path());
    let machine = |name| Machine::with_tls(directory.path(), name, "ca-127.0.0.1");
    let far = ["one", "two", "three"].map(machine);
    gga(["127.0.0.1"; 3], &machine("near"), far.each_ref())
}

/// Certificates of the service side that have expired, name another host, or are signed by another authority are refused.
fn wrong_certificates() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    Certificates::new(directory.path());
    let machine = |name, certificate| Machine::with_tls(directory.path(), name, certificate);
    let far = machine("far", "ca-127.0.0.1");
    for certificate in ["other-127.0.0.1", "expired-127.0.0.1", "ca-storage.example"] {
        let near = machine(certificate, certificate);
        // The target connects first to the service, whose memory it imports.
        let of_service = ["TLS", "DOCA_ERROR_AUTHENTICATION"];
        refused_with(&near, &far, &of_service, &["TLS", "certificate"])?;
    }
    zero_copy("127.0.0.1", &machine("near", "ca-127.0.0.1"), &far, "4096")
}

fn tls_on_one_side() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    Certificates::new(directory.path());
    let encrypted = |name| Machine::with_tls(directory.path(), name, "ca-127.0.0.1");
    let plain = |name| Machine::on_loopback(directory.path(), name);
    for (near, far) in [
        (encrypted("one"), plain("two")),
        (plain("three"), encrypted("four")),
    ] {
        let name = ["SOFTDOCA_TLS_CERTIFICATE"];
        refused_with(&near, &far, &name, &name)?;
    }
    Ok(())
}

/// A gga session with TLS on all connections that loses a target. A target whose certificate was signed by another
/// authority is not attached in its place; a target with a valid certificate is.
fn lost_target_rejoins_over_tls() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let certificates = Certificates::new(directory.path());
    let machine = |name, certificate| Machine::with_tls(directory.path(), name, certificate);
    let good = "ca-127.0.0.1";
    let mut flags = certificates.flags(good);
    flags.extend(["--tls-client-ca".to_owned(), certificates.path("ca")]);
    let ports = [(); 3].map(|()| Port::reserve().expect("a free port"));
    let start = |index: usize, certificate| {
        let file = directory.path().join(format!("{index}.disk"));
        let own = [
            "--block-count",
            BLOCKS,
            "--block-size",
            "2112",
            "--sessions",
            "forever",
            "--backing-file",
            text(&file),
        ];
        let flags = flags.iter().map(String::as_str);
        let arguments: Vec<&str> = own.into_iter().chain(flags).collect();
        let machine = machine(["one", "two", "three"][index], certificate);
        start_target(
            |words| machine.command(words),
            ports[index].number(),
            &arguments,
        )
        .0
    };
    let mut targets = [0, 1, 2].map(|index| Some(start(index, good)));
    let storage = ["--data-1-storage", "--data-2-storage", "--data-p-storage"]
        .into_iter()
        .zip(&ports)
        .flat_map(|(flag, port)| [flag.to_owned(), format!("127.0.0.1:{}", port.number())]);
    let tls = certificates.flags(good).into_iter();
    let authority = ["--tls-ca".to_owned(), certificates.path("ca")];
    let arguments: Vec<String> = storage.chain(tls).chain(authority).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let flags = [&gga::OF_SETS[..], &["--control-timeout", "20"]].concat();
    let near = machine("near", good);
    let service = near.service("gga-offload", &arguments, &flags);
    let content = directory.path().join("content");
    std::fs::write(&content, contents::noise(1, 64 * 4096))?;
    let initiator = near.initiator(&[
        "--execution-strategy",
        "read_write_data_validity_test",
        "--storage-plain-content",
        text(&content),
        "--run-limit-operation-count",
        "2000000000",
        "--io-timeout",
        "30",
        "--progress",
        "always",
    ]);
    wait_for_io(&initiator);
    killed(targets[1].take().ok_or("it runs")?);
    wait_for_log(&service, LogEvent::TargetDetached("data_2"), 1);
    // The control channel is accepted, but the memory cannot be accessed.
    let other = start(1, "other-127.0.0.1");
    wait_for_value(&other, "TLS", 1);
    let error = "DOCA_ERROR_AUTHENTICATION";
    wait_for_log(&service, LogEvent::ConnectRetried { error }, 1);
    wait_for_io(&initiator);
    if service.has_logged(LogEvent::TargetUpToDate("data_2")) {
        return Err(service.stderr().into());
    }
    killed(other);
    targets[1] = Some(start(1, good));
    wait_for_log(&service, LogEvent::TargetUpToDate("data_2"), 1);
    wait_for_io(&initiator);
    gga::interrupted(initiator);
    Ok(())
}

/// Packets of all interfaces, up to the size of the kernel's buffer.
struct Capture(OwnedFd);

impl Capture {
    fn new() -> Result<Self, rustix::io::Errno> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with, sockopt};
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            flags,
            Some(eth::ALL),
        )?;
        // The maximum that the kernel allows.
        sockopt::set_socket_recv_buffer_size(&socket, 64 << 20)?;
        Ok(Self(socket))
    }

    /// Counts packets that contain these bytes, until `is_done`.
    fn count(&self, bytes: &[u8], is_done: &AtomicBool) -> usize {
        let mut packet = vec![0; 1 << 17];
        let mut count = 0;
        loop {
            let was_done = is_done.load(Ordering::Acquire);
            let flags = rustix::net::RecvFlags::empty();
            match rustix::net::recv(&self.0, &mut packet, flags) {
                Ok((_, len)) => {
                    let mut windows = packet[..len].windows(bytes.len());
                    count += usize::from(windows.any(|window| window == bytes));
                }
                Err(_) if was_done => return count,
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// Ends [`Capture::count`] when it is dropped, also by a panic.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Searches all packets of this machine during a validation for the contents of its blocks.
fn blocks_in_the_clear() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let certificates = Certificates::new(directory.path());
    let far = |name: &str| -> Machine<'static> {
        match name.strip_prefix("tls") {
            Some(_) => Machine::with_tls(directory.path(), name, "ca-127.0.0.1"),
            None => Machine::on_loopback(directory.path(), name),
        }
    };
    let tls = certificates.flags("ca-127.0.0.1");
    let target_tls: Vec<&str> = tls.iter().map(String::as_str).collect();
    let ca = certificates.path("ca");
    for (near_name, far_name, is_clear) in [("a", "b", true), ("tls-a", "tls-b", false)] {
        // Unique to this run.
        let mut word = [0; 32];
        rustix::rand::getrandom(&mut word, rustix::rand::GetRandomFlags::empty())?;
        let content = directory.path().join(format!("{near_name}.content"));
        std::fs::write(&content, word.repeat(64 * 4096 / word.len()))?;
        let capture = Capture::new()?;
        let (near, far) = (far(near_name), far(far_name));
        let flags: &[&str] = if is_clear { &[] } else { &target_tls };
        let blocks = ["--block-count", BLOCKS, "--block-size", "4096"];
        let (target, port) = far.target(&[&blocks[..], flags].concat());
        let storage = format!("127.0.0.1:{port}");
        let client = ["--tls", "--tls-ca", &ca];
        let client: &[&str] = if is_clear { &[] } else { &client };
        let service = near.service("zero-copy", &["--storage-server", &storage], client);
        let content = ["--storage-plain-content", text(&content)];
        let is_done = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            let capturing = scope.spawn(|| capture.count(&word, &is_done));
            let done = Done(&is_done);
            let report = document(near.initiator(&[&VALIDATION[..], &content].concat()));
            drop(done);
            expect(&report["operation_count"], 640)?;
            capturing.join().map_err(|_| Failed::from("a panic"))
        })?;
        drop((service, target));
        if (found > 0) != is_clear {
            return Err(format!("{found} packets with blocks, TLS: {}", !is_clear).into());
        }
    }
    Ok(())
}

/// In the first session, the name of the other machine cannot be resolved.
fn resolver_failure_is_retried() -> Result<(), Failed> {
    let network = Network::new(2)?;
    let (near, far) = (machine(&network, 0), machine(&network, 1));
    let named = |words: &[&str]| {
        let mut command = far.command(words);
        command.env("SOFTDOCA_ADDRESS", "far.example");
        command
    };
    let blocks = ["--block-count", BLOCKS, "--sessions", "forever"];
    let (target, port) = start_target(named, 0, &blocks);
    let storage = format!("10.91.1.2:{port}");
    let session = || {
        let service = near.service("zero-copy", &["--storage-server", &storage], &[]);
        (service, near.initiator(&VALIDATION))
    };
    let (mut service, mut initiator) = session();
    let code = initiator
        .wait(default_deadline())
        .and_then(|status| status.code());
    if code != Some(1) {
        return Err(format!("expected an initiator that fails with 1, got {code:?}").into());
    }
    service.wait(default_deadline());
    wait_for_value(&target, "far.example", 1);
    network.name(1, &[("far.example", "10.91.1.2")])?;
    let (service, initiator) = session();
    expect(&document(initiator)["operation_count"], 640)?;
    document(service);
    Ok(())
}

fn another_key_is_refused() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let machine = |name: &str, key: &[u8; 32]| -> std::io::Result<Machine<'static>> {
        let path = directory.path().join(format!("{name}.key"));
        std::fs::write(&path, key)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Machine::Loopback {
            runtime: directory.path().join(name),
            environment: vec![
                ("SOFTDOCA_ADDRESS", "127.0.0.1".into()),
                ("SOFTDOCA_KEY_FILE", text(&path).to_owned()),
            ],
        })
    };
    let (near, far) = (machine("near", &[1; 32])?, machine("far", &[2; 32])?);
    refused(&near, &far)?;
    // The same session with equal keys succeeds, so the key was the reason.
    zero_copy("127.0.0.1", &near, &machine("other", &[1; 32])?, "4096")
}

fn without_an_address() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let near = Machine::Loopback {
        runtime: directory.path().join("near"),
        environment: Vec::new(),
    };
    let far = Machine::on_loopback(directory.path(), "far");
    refused(&near, &far).map(|_| ())
}

fn wrong_settings() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let readable = directory.path().join("readable.key");
    std::fs::write(&readable, [1; 32])?;
    std::fs::set_permissions(&readable, std::fs::Permissions::from_mode(0o644))?;
    let service = [
        "zero-copy",
        "-r",
        "3b:00.0",
        "--storage-server",
        "127.0.0.1:1",
        "-d",
        "03:00.0",
    ];
    let target = ["target", "--listen-port", "0", "-d", "3b:00.0"];
    let initiator = [
        "initiator",
        "--execution-strategy",
        "read_throughput_test",
        "-d",
        "3b:00.0",
    ];
    for (variable, value) in [
        ("SOFTDOCA_KEY_FILE", "/nonexistent/key"),
        ("SOFTDOCA_KEY_FILE", text(&readable)),
        // Reserved for documentation.
        ("SOFTDOCA_ADDRESS", "192.0.2.1"),
        ("SOFTDOCA_TRANSPORT", "pigeon"),
        ("SOFTDOCA_TLS_CA", "/nonexistent/ca.pem"),
    ] {
        for role in [&target[..], &service, &initiator] {
            let output = Command::new(env!("CARGO_BIN_EXE_doca-storage"))
                .args(role)
                .args(["--cpu", "0"])
                .env("SOFTDOCA_RUNTIME_DIR", directory.path().join("runtime"))
                .env("SOFTDOCA_ADDRESS", "127.0.0.1")
                .env(variable, value)
                .output()?;
            let stdout = String::from_utf8_lossy(&output.stdout);
            let stderr = String::from_utf8_lossy(&output.stderr);
            let last = stderr.lines().last().unwrap_or_default();
            let is_ready = stdout.contains("listening") || stdout.contains("waiting");
            if output.status.code() != Some(1) || is_ready || !last.contains("--device") {
                return Err(format!("{variable}={value} {}: {output:?}", role[0]).into());
            }
        }
    }
    Ok(())
}

fn machine(network: &Network, index: usize) -> Machine<'_> {
    Machine::Namespace(network, index)
}

fn zero_copy_over_two_machines() -> Result<(), Failed> {
    let network = Network::new(2)?;
    let (near, far) = (machine(&network, 0), machine(&network, 1));
    for block_size in ["4096", "1048576"] {
        zero_copy("10.91.1.2", &near, &far, block_size)?;
    }
    Ok(())
}

fn gga_over_four_machines() -> Result<(), Failed> {
    let network = Network::new(4)?;
    let far = [1, 2, 3].map(|index| machine(&network, index));
    gga(
        ["10.91.1.2", "10.91.2.2", "10.91.3.2"],
        &machine(&network, 0),
        far.each_ref(),
    )
}

/// Runs a command that creates its own machines; returns its JSON document.
fn command_on_machines(arguments: &[&str]) -> Result<serde_json::Value, Failed> {
    let output = Command::new(env!("CARGO_BIN_EXE_doca-storage"))
        .args(arguments)
        .args(["--hosts", "2", "--json"])
        .output()?;
    if !output.status.success() {
        return Err(format!("{output:?}").into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn demo_over_two_machines() -> Result<(), Failed> {
    let demo = ["demo", "--layout", "volume"];
    let report = command_on_machines(&demo)?;
    if report["verdict"] != "PASS" {
        return Err(report.to_string().into());
    }
    // The namespaces are removed when the command exits, so it cannot leave roles running in them.
    let kept = command_on_machines(&["demo", "--keep"]);
    if kept.is_ok() {
        return Err("expected --keep to be refused".into());
    }
    Ok(())
}

/// A run that is too short for results: each subject has figures, and the page is written.
fn bench_over_two_machines() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let page = directory.path().join("bench.html");
    let output = Command::new(env!("CARGO_BIN_EXE_doca-storage"))
        .args([
            "bench",
            "--hosts",
            "2",
            "--rounds",
            "1",
            "--seconds",
            "0.02",
        ])
        .args(["--only", "4 KiB x1", "--json", "--report", text(&page)])
        .output()?;
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("expected JSON: {error}: {output:?}"))?;
    let measurements = document["measurements"].as_array().map(Vec::as_slice);
    let mut kinds = Vec::new();
    for measurement in measurements.unwrap_or_default() {
        let run = &measurement["series"]["runs"][0];
        if run["rate"].as_f64() <= Some(0.0) || run["latency"]["p50_ns"].as_f64() <= Some(0.0) {
            return Err(format!("expected figures, got {measurement}").into());
        }
        kinds.push(measurement["subject"]["kind"].as_str().unwrap_or_default());
    }
    let named = |kind| {
        let mut all = measurements.unwrap_or_default().iter();
        let measurement = all.find(|one| one["subject"]["kind"] == kind);
        measurement.and_then(|one| one["series"]["name"].as_str())
    };
    let hosts = named("hosts").ok_or("the deployment is not measured")?;
    let left_out = document["left_out"].to_string();
    // Missing programs are named.
    let expected: &[&str] = if ["fio", "nbdkit"].iter().any(|name| left_out.contains(name)) {
        &["bare_tcp", "hosts"]
    } else {
        &["bare_tcp", "hosts", "nbd_tcp"]
    };
    if kinds != expected || !left_out.contains("NVMe/TCP") {
        return Err(format!("expected {expected:?}, got {document}").into());
    }
    let page = std::fs::read_to_string(page)?;
    if !page.contains(hosts) {
        return Err("expected the deployment in the page".into());
    }
    Ok(())
}

fn matrix_over_two_machines() -> Result<(), Failed> {
    let matrix = ["conformance", "matrix", "--layout", "zero-copy"];
    let checks = ["--only", "failing_io", "--only", "corrupt_block"];
    let report = command_on_machines(&[&matrix[..], &checks].concat())?;
    let cases = report["cases"].as_array().map(Vec::as_slice);
    let results = cases.unwrap_or_default().iter();
    expect(
        &results
            .filter(|case| case["result"] == "passed")
            .count()
            .into(),
        2,
    )
}

/// Faults are injected into links and processes, and no acknowledged write is lost.
fn hammer_over_two_machines() -> Result<(), Failed> {
    let hammer = ["conformance", "hammer", "--layout", "zero-copy"];
    let time = ["--duration", "10s", "--limit", "120", "--seed", "3"];
    let faults = ["--only", "cut link", "--only", "lossy link"];
    let totals = command_on_machines(&[&hammer[..], &time, &faults].concat())?;
    expect(&totals["blocks"]["lost"], 0)?;
    expect(&totals["blocks"]["wrong"], 0)?;
    let rows = totals["rows"].as_array().map(Vec::as_slice);
    for row in rows.unwrap_or_default() {
        if row["injected"] == 0 || row["injected"] != row["survived"] {
            return Err(format!("expected each fault to be survived, got {row}").into());
        }
    }
    expect(&rows.unwrap_or_default().len().into(), 2)
}

fn network_faults_and_addresses() -> Result<(), Failed> {
    let output = Command::new(env!("CARGO_BIN_EXE_doca-storage"))
        .args(["conformance", "network", "--layout", "zero-copy", "--json"])
        .args(["--duration", "1s", "--only", "short_cut", "--only", "cut"])
        .output()?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let cases = report["cases"].as_array().map(Vec::as_slice);
    let results = cases.unwrap_or_default().iter();
    let results: Vec<_> = results
        .map(|case| (case["name"].as_str(), case["result"].as_str()))
        .collect();
    let expected = ["short_cut", "cut", "addresses"].map(|name| (Some(name), Some("passed")));
    if results == expected {
        return Ok(());
    }
    Err(format!("expected {expected:?}, got {report}").into())
}

/// Maximum time for a peer to detect a lost connection.
const NOTICED: Duration = Duration::from_secs(3);
/// Additional time on a loaded machine.
const LOAD: Duration = Duration::from_secs(20);

/// An endless run on two machines; `inject` injects a fault, and the initiator must fail.
fn interrupted(
    inject: impl FnOnce(&Network, &Process) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let network = Network::new(2)?;
    let (near, far) = (machine(&network, 0), machine(&network, 1));
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
        .wait_for("was started", TIMEOUT, |line| {
            line.contains("start_storage_request").then_some(())
        })
        .expect("the session begins");
    // Before the first I/O, the timeout of control responses applies, which is longer.
    std::thread::sleep(Duration::from_secs(2));
    inject(&network, &target)?;
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

fn cut_link_is_detected() -> Result<(), Failed> {
    interrupted(|network, _| {
        network.run(1, &["ip", "link", "set", "far1", "down"])?;
        Ok(())
    })
}

fn stopped_target_is_detected() -> Result<(), Failed> {
    interrupted(|_, target| {
        target.signal(Signal::STOP);
        Ok(())
    })
}

fn nothing_listens_at_other_addresses() -> Result<(), Failed> {
    let network = Network::new(2)?;
    let (near, far) = (machine(&network, 0), machine(&network, 1));
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
    let listening = network.listeners(0)?;
    let is_offered = |listener: &String| listener.starts_with("10.91.1.1:");
    if listening.is_empty() || !listening.iter().all(is_offered) {
        return Err(format!("expected listeners at 10.91.1.1 alone, got {listening:?}").into());
    }
    // The target's control channel listens on the address of its flag, or on all addresses without the flag.
    let listening = network.listeners(1)?;
    let others: Vec<_> = listening
        .iter()
        .filter(|listener| {
            !listener.starts_with("10.91.1.2:") && !listener.ends_with(&format!(":{port}"))
        })
        .collect();
    if listening.is_empty() || !others.is_empty() {
        return Err(format!("expected listeners at 10.91.1.2 alone, got {listening:?}").into());
    }
    drop((initiator, service, target));
    Ok(())
}
