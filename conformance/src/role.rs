//! Checks of **one** running role of any implementation, all of whose peers are scripted.
//!
//! A [`Check`] starts the role in a [`Fixture`], scripts its peers over real TCP, Comch and RDMA, and reports
//! violations. The peers run in this process, which must share a runtime directory with the role: the command creates a
//! private one for both.

mod channels;
mod initiator;
pub(crate) mod service;
pub(crate) mod target;

use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use deployment::implementation::{Implementation, Layout, Role, Usage};
use deployment::process::{Process, Signal, is_orderly};
use deployment::sandbox::{Devices, Sandbox};
use doca::Access;
use wire::control::MessageType;
use wire::release::Release;

use super::report::{Case, Outcome, Report};
use super::violation::Violation;

pub use channels::{ComchPeer, ControlPeer, IoChannel, Listening, Polled, TcpPeer};

/// A required behaviour of a role, and its test.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Name: a few words with dashes.
    pub name: &'static str,
    /// Required behaviour in one sentence.
    pub meaning: &'static str,
    pub play: fn(&Fixture<'_>) -> Result<(), Violation>,
}

impl Check {
    /// Returns `true` if the check applies to a role of this release. The local region of an initiator of 3.0 is as large as the storage.
    pub fn is_of(&self, release: Release) -> bool {
        release != Release::V3_0 || !initiator::NEED_SMALL_REGIONS.contains(&self.name)
    }
}

/// All checks of a role; empty for the generator, which has no peers.
pub fn checks(role: Role) -> Vec<Check> {
    match role {
        Role::Target => target::checks(),
        Role::Initiator => initiator::checks(),
        Role::ZeroCopy | Role::GgaOffload => service::checks(role),
        Role::SbcGenerator => Vec::new(),
    }
}

// Steps of a session between initiator and service.

/// A request of the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Query,
    Init,
    Start,
    Stop,
    Shutdown,
}

impl Step {
    /// All steps in order.
    const ALL: [Self; 5] = [
        Self::Query,
        Self::Init,
        Self::Start,
        Self::Stop,
        Self::Shutdown,
    ];

    /// Type of the initiator's request.
    fn request(self) -> MessageType {
        match self {
            Self::Query => MessageType::QueryStorageRequest,
            Self::Init => MessageType::InitStorageRequest,
            Self::Start => MessageType::StartStorageRequest,
            Self::Stop => MessageType::StopStorageRequest,
            Self::Shutdown => MessageType::ShutdownRequest,
        }
    }

    fn answer(self) -> MessageType {
        match self {
            Self::Query => MessageType::QueryStorageResponse,
            Self::Init => MessageType::InitStorageResponse,
            Self::Start => MessageType::StartStorageResponse,
            Self::Stop => MessageType::StopStorageResponse,
            Self::Shutdown => MessageType::ShutdownResponse,
        }
    }
}

// Runs several checks concurrently, because they spend most of the time waiting.

/// Runs the checks on `jobs` threads. `done` is called with the name of each completed check; once `interrupted`
/// returns `true`, the remaining checks are skipped. Cases are in the order of the checks.
pub fn run(
    subject: &Subject,
    checks: &[Check],
    jobs: usize,
    done: &(dyn Fn(&str) + Sync),
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Report {
    let next = AtomicUsize::new(0);
    let cases = Mutex::new(Vec::with_capacity(checks.len()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, checks.len().max(1)) {
            scope.spawn(|| {
                while let Some((index, check)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    checks.get(index).map(|check| (index, check))
                } {
                    let case = if interrupted() {
                        Case::new(
                            &suite(subject),
                            check.name,
                            Outcome::NotRun("interrupted".to_owned()),
                        )
                    } else {
                        play(subject, check)
                    };
                    done(check.name);
                    cases
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .push((index, case));
                }
            });
        }
    });
    let mut cases = cases
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    cases.sort_by_key(|(index, _)| *index);
    Report {
        cases: cases.into_iter().map(|(_, case)| case).collect(),
    }
}

fn suite(subject: &Subject) -> String {
    format!("role.{}", subject.role)
}

fn play(subject: &Subject, check: &Check) -> Case {
    let started = Instant::now();
    let mut repeated = 0;
    let (result, output) = loop {
        let (result, output, crash) = play_once(subject, check);
        let raced = crash == Some(Signal::SEGV.as_raw());
        if result.is_ok() || !raced || repeated == subject.crash_retries {
            break (result, output);
        }
        repeated += 1;
    };
    Case {
        meaning: check.meaning.to_owned(),
        note: (repeated > 0).then(|| format!("repeated after {repeated} crashes (SIGSEGV)")),
        took: started.elapsed(),
        output: Some(output).filter(|output| !output.is_empty()),
        ..Case::new(
            &suite(subject),
            check.name,
            result.map_or_else(
                |violation| Outcome::Failed(violation.to_string()),
                |()| Outcome::Passed,
            ),
        )
    }
}

/// Runs a check once. A role that was killed by a signal that the check did not send has failed, regardless of what its
/// peers observed.
fn play_once(subject: &Subject, check: &Check) -> (Result<(), Violation>, String, Option<i32>) {
    let fixture = match Fixture::new(subject) {
        Ok(fixture) => fixture,
        Err(violation) => return (Err(violation), String::new(), None),
    };
    let result = (check.play)(&fixture);
    let watch = fixture.watch();
    let result = result.and_then(|()| match watch.crash {
        None => Ok(()),
        Some(signal) => Err(Violation::new(format!("it was killed by signal {signal}"))),
    });
    (result, watch.output.clone(), watch.crash)
}

// Memory access that the scripted peers grant.

/// Read and write access, local and for RDMA peers.
pub(crate) const REMOTE: Access = Access::LOCAL_READ_WRITE
    .union(Access::RDMA_READ)
    .union(Access::RDMA_WRITE);

// Start and observation of the role under test.

/// Time limit for the exit of a role that is no longer needed: a crashed role closes its channels shortly before its
/// status is available.
const GRACE: Duration = Duration::from_millis(100);

/// The role under test.
#[derive(Debug, Clone)]
pub struct Subject {
    pub implementation: Implementation,
    pub role: Role,
    /// Flags for every start, after those of the check.
    pub flags: Vec<String>,
    pub devices: Devices,
    /// Timeout of events that should occur immediately.
    pub timeout: Duration,
    /// Maximum number of repetitions of a check after a SIGSEGV: the reference's workers have a race at their start.
    pub crash_retries: u32,
    /// Usage text of its program.
    pub usage: Usage,
    /// Release of the protocol of a scripted service for an initiator. All other peers use 3.2.
    pub release: Release,
}

impl Subject {
    /// Creates a subject with softdoca's built-in devices and timeouts of 10 s.
    pub fn new(implementation: Implementation, role: Role) -> Self {
        Self {
            implementation,
            role,
            flags: Vec::new(),
            devices: Devices::default(),
            timeout: Duration::from_secs(10),
            crash_retries: 0,
            usage: Usage::default(),
            release: Release::default(),
        }
    }
}

/// Fixture of one check: the role's files, channel and processes.
#[derive(Debug)]
pub struct Fixture<'a> {
    subject: &'a Subject,
    sandbox: Sandbox,
    watch: Rc<RefCell<Watch>>,
}

/// Output and crashes of a check's processes.
#[derive(Debug, Default)]
struct Watch {
    output: String,
    /// Signal that killed a role, unless the check has sent it.
    crash: Option<i32>,
}

impl<'a> Fixture<'a> {
    fn new(subject: &'a Subject) -> Result<Self, Violation> {
        Ok(Self {
            subject,
            sandbox: Sandbox::shared()?.with_devices(subject.devices.clone()),
            watch: Rc::default(),
        })
    }

    fn watch(&self) -> std::cell::Ref<'_, Watch> {
        self.watch.borrow()
    }

    pub fn subject(&self) -> &Subject {
        self.subject
    }

    /// Files and channel of this check.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Timeout of events that should occur immediately.
    pub fn timeout(&self) -> Duration {
        self.subject.timeout
    }

    /// Starts a target on a free port, with these flags in addition to device, CPU and port, and waits until it listens.
    ///
    /// # Errors
    ///
    /// The target does not start, or does not listen in time.
    pub fn start_target(&self, flags: &[&str]) -> Result<(Running, u16), Violation> {
        let port = self.sandbox.port()?;
        let running = self.spawn_target(port, flags)?;
        self.wait_for_target(&running, port)?;
        Ok((running, port))
    }

    /// Starts a target on this port, without waiting until it listens.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn spawn_target(&self, port: u16, flags: &[&str]) -> Result<Running, Violation> {
        let command = self.subject.implementation.command(Role::Target)?;
        self.start(Role::Target, self.sandbox.target(command, port), flags)
    }

    /// Waits until a target listens on its port.
    ///
    /// # Errors
    ///
    /// The target does not listen in time.
    pub fn wait_for_target(&self, running: &Running, port: u16) -> Result<(), Violation> {
        let process = &running.process;
        process
            .wait_until_listening(port, self.timeout(), || false)
            .map_err(|why| Violation::expected(format!("the target to listen on port {port}"), why))
    }

    /// Starts a service for targets on these local ports, with these flags in addition to devices, CPU, channel and targets. Does
    /// not wait for its connections.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn start_service(&self, ports: &[u16], flags: &[&str]) -> Result<Running, Violation> {
        let role = self.subject.role;
        let layout = match role {
            Role::GgaOffload => Layout::Gga,
            _ => Layout::ZeroCopy,
        };
        let command = self.subject.implementation.command(role)?;
        let channel = self.sandbox.channel();
        let command = self.sandbox.service(command, layout, ports, channel);
        self.start(role, command, flags)
    }

    /// Starts an initiator with these flags in addition to device, CPU, channel and strategy. Does not wait for its connection.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn start_initiator(&self, strategy: &str, flags: &[&str]) -> Result<Running, Violation> {
        let command = self.subject.implementation.command(Role::Initiator)?;
        let mut command = self.sandbox.initiator(command, self.sandbox.channel());
        command.args(["--execution-strategy", strategy]);
        self.start(Role::Initiator, command, flags)
    }

    /// Starts a role on CPU 0 with these flags and the subject's.
    fn start(
        &self,
        role: Role,
        mut command: Command,
        flags: &[&str],
    ) -> Result<Running, Violation> {
        command
            .args(["--cpu", "0"])
            .args(flags)
            .args(&self.subject.flags);
        Ok(Running {
            process: Process::spawn(role.name(), command)?,
            signalled: false,
            watch: Rc::clone(&self.watch),
        })
    }
}

/// The running role under test. Dropping it terminates it.
pub struct Running {
    process: Process,
    signalled: bool,
    watch: Rc<RefCell<Watch>>,
}

impl Running {
    /// Returns `true` if the process has not exited.
    pub fn is_running(&mut self) -> bool {
        self.process.wait(Instant::now()).is_none()
    }

    /// Last lines of the process's standard error so far.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Returns `true` if the process exits within this time, with any status.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        self.process.wait(Instant::now() + time).is_some()
    }

    /// Sends a signal. From now on, exit by any signal is not treated as a crash.
    pub fn signal(&mut self, signal: Signal) {
        self.signalled = true;
        self.process.signal(signal);
    }

    /// Waits for the role to exit with status 0.
    ///
    /// # Errors
    ///
    /// The role exits otherwise, or is still running after `timeout`.
    pub fn expect_success(&mut self, timeout: Duration) -> Result<(), Violation> {
        match self.process.wait(Instant::now() + timeout) {
            Some(status) if status.success() => Ok(()),
            _ => Err(Violation::expected("it to end with success", self.state())),
        }
    }

    /// Waits for the role to exit with a status other than 0, and not by a signal or a panic.
    ///
    /// # Errors
    ///
    /// The role exits otherwise, or is still running after `timeout`.
    pub fn expect_failure(&mut self, timeout: Duration) -> Result<(), Violation> {
        match self.process.wait(Instant::now() + timeout) {
            Some(status) if is_orderly(status) && !status.success() => Ok(()),
            _ => Err(Violation::expected(
                "it to end with an exit status other than 0",
                self.state(),
            )),
        }
    }

    /// Waits for the role to exit with any status, but not by a signal or a panic.
    ///
    /// # Errors
    ///
    /// The role was killed by a signal, has panicked, or is still running after `timeout`.
    pub fn expect_end(&mut self, timeout: Duration) -> Result<(), Violation> {
        match self.process.wait(Instant::now() + timeout) {
            Some(status) if is_orderly(status) => Ok(()),
            _ => Err(Violation::expected("it to end", self.state())),
        }
    }

    /// Description of the process's state, for error messages.
    pub fn state(&mut self) -> String {
        match self.process.wait(Instant::now()) {
            None => "it running".to_owned(),
            Some(status) => format!("its end ({status})"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let status = self.process.wait(Instant::now() + GRACE);
        let mut watch = self.watch.borrow_mut();
        if let Some(signal) = status.and_then(|status| status.signal())
            && !self.signalled
        {
            watch.crash = Some(signal);
        }
        watch.output.push_str(&self.process.stderr());
        let end = status.map_or_else(|| "still running".to_owned(), |status| status.to_string());
        watch.output.push_str(&format!("\n    ({end})"));
    }
}
