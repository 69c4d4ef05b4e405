//! Volumes over a real target and a real zero_copy service in separate processes.
//!
//! The program starts itself as the tests, in a private runtime directory, and as the roles.

mod io;

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use deployment::Part;
use deployment::implementation::Layout;
use deployment::sandbox::Sandbox;
use libtest_mimic::{Arguments, Trial};
use tempfile::TempDir;
use volume::{Buffer, Completion, Config, Io, IoError, Operation, Queue, Service, Volume};

/// Environment variable with the name of the role to run.
const ROLE: &str = "VOLUME_TEST_ROLE";
/// Environment variable that is set in the private runtime directory.
const INSIDE: &str = "VOLUME_TEST_INSIDE";

fn main() -> ExitCode {
    if let Some(role) = std::env::var_os(ROLE) {
        let run: fn(Vec<OsString>) -> ExitCode = match role.to_str() {
            Some("target") => role_target::run,
            Some("zero_copy") => role_zero_copy::run,
            _ => panic!("expected a role, got {role:?}"),
        };
        return run(std::env::args_os().collect());
    }
    if std::env::var_os(INSIDE).is_none() {
        return in_directory();
    }
    let arguments = Arguments::from_args();
    let trials = io::TESTS
        .iter()
        .map(|&(name, test)| {
            Trial::test(name, move || {
                test();
                Ok(())
            })
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Starts the program again, in a private runtime directory.
fn in_directory() -> ExitCode {
    let directory = tempfile::Builder::new()
        .prefix("volume")
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir()
        .expect("a directory");
    let status = Command::new(std::env::current_exe().expect("this program"))
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .env("SOFTDOCA_RUNTIME_DIR", directory.path())
        .status()
        .expect("the program starts");
    if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Timeout of every operation, for loaded machines.
const TIMEOUT: Duration = Duration::from_secs(60);

const BLOCK: usize = 4096;

/// Parameters of a deployment.
#[derive(Clone, Copy)]
struct Plan {
    blocks: usize,
    block_size: usize,
    /// `true` if the target stores blocks in a file, and supports flush.
    is_durable: bool,
    workers: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            blocks: 64,
            block_size: BLOCK,
            is_durable: true,
            workers: 1,
        }
    }
}

/// A target and a service.
struct Deployment {
    plan: Plan,
    roles: deployment::Deployment,
    directory: TempDir,
}

/// Creates a directory in memory if there is a tmpfs, because a sync to the disk of a busy machine may take minutes.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a directory")
}

/// Address of the service with this channel.
fn address(name: &str) -> Service {
    Service {
        name: name.to_owned(),
        ..Service::default()
    }
}

impl Deployment {
    fn new(plan: Plan) -> Self {
        let sandbox = Sandbox::shared().expect("a private runtime directory");
        let roles = deployment::Deployment::new(sandbox, Layout::ZeroCopy, TIMEOUT);
        let mut deployment = Self {
            plan,
            roles: roles.expect("a free port"),
            directory: directory(),
        };
        deployment.start_target();
        deployment.start_service();
        deployment
    }

    /// Command of a role that serves consecutive sessions.
    fn role(&self, name: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .env(ROLE, name)
            .args(["--sessions", "forever", "--output", "json"])
            .args(["--cpu", "0"].repeat(self.plan.workers));
        command
    }

    fn start_target(&mut self) {
        let mut target = self.role("target");
        target
            .args(["--block-count", &self.plan.blocks.to_string()])
            .args(["--block-size", &self.plan.block_size.to_string()]);
        if self.plan.is_durable {
            let file = self.directory.path().join("blocks");
            target.arg("--backing-file").arg(file);
        }
        self.roles.set_command(Part::Target(0), target);
        self.roles.start(Part::Target(0)).expect("it listens");
    }

    fn start_service(&mut self) {
        let mut service = self.role("zero_copy");
        service.args(["--control-timeout", "60"]);
        self.roles.set_command(Part::Service, service);
        self.roles.start(Part::Service).expect("it waits");
    }

    fn port(&self) -> u16 {
        self.roles.ports()[0]
    }

    fn kill_service(&mut self) {
        self.roles.kill(&[Part::Service]).expect("it runs");
    }

    fn kill_target(&mut self) {
        self.roles.kill(&[Part::Target(0)]).expect("it runs");
    }

    /// Halves the storage of the next target.
    fn shrink(&mut self) {
        self.plan.blocks /= 2;
    }

    fn config(&self) -> Config {
        Config {
            services: vec![address(self.roles.sandbox.channel())],
            queues: self.plan.workers as u32,
            control_timeout: Duration::from_secs(60),
            reconnect_timeout: TIMEOUT,
            ..Config::default()
        }
    }

    fn open(&self) -> (Volume, Vec<Queue>) {
        self.open_with(self.config())
    }

    fn open_with(&self, config: Config) -> (Volume, Vec<Queue>) {
        let mut volume = Volume::open(config).expect("the volume opens");
        let queues = volume.take_queues();
        assert_eq!(queues.len(), self.plan.workers);
        (volume, queues)
    }
}

/// Sleeps until the queue has an event, as front ends do, or for `time`.
fn sleep(queue: &mut Queue, time: Duration) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    if queue.arm() {
        let timeout = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        };
        let mut fds = [PollFd::from_borrowed_fd(queue.descriptor(), PollFlags::IN)];
        let _ = poll(&mut fds, Some(&timeout));
        queue.disarm();
    }
}

/// Polls until `count` I/Os have completed.
fn reap(queue: &mut Queue, count: usize) -> Vec<Completion> {
    let start = Instant::now();
    let mut completions = Vec::new();
    while completions.len() < count {
        if queue.poll(&mut |completion| completions.push(completion)) == 0 {
            sleep(queue, Duration::from_secs(10));
        }
        assert!(start.elapsed() < TIMEOUT, "{completions:?} of {count}");
    }
    completions
}

/// Performs one I/O.
fn run(
    queue: &mut Queue,
    operation: Operation,
    offset: u64,
    len: usize,
    buffer: Option<Buffer>,
) -> (Result<(), IoError>, Option<Buffer>) {
    queue
        .submit(Io {
            tag: 42,
            operation,
            offset,
            len: len as u32,
            buffer,
        })
        .expect("room");
    let completion = reap(queue, 1).remove(0);
    assert_eq!(completion.tag, 42);
    (completion.result, completion.buffer)
}

fn read(queue: &mut Queue, offset: u64, len: usize) -> Vec<u8> {
    let mut buffer = queue.buffer(len).expect("a buffer");
    buffer.fill(0xa5);
    let (result, buffer) = run(queue, Operation::Read, offset, len, Some(buffer));
    assert_eq!(result, Ok(()));
    buffer.expect("it comes back").to_vec()
}

fn write(queue: &mut Queue, offset: u64, bytes: &[u8]) {
    let mut buffer = queue.buffer(bytes.len()).expect("a buffer");
    buffer.copy_from_slice(bytes);
    let operation = Operation::Write { fua: false };
    let (result, buffer) = run(queue, operation, offset, bytes.len(), Some(buffer));
    assert_eq!(result, Ok(()));
    assert_eq!(buffer.as_deref(), Some(bytes));
}
