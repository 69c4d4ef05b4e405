//! Starts and observes the role under test.

use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use wire::release::Release;

use super::Violation;
use deployment::implementation::{Implementation, Layout, Role, Usage};
use deployment::process::{Process, Signal, is_orderly};
use deployment::sandbox::{Devices, Sandbox};

/// Time for the exit of a role that is not needed any more: a crashed one closes its channels shortly before its
/// status is available.
const GRACE: Duration = Duration::from_millis(100);

/// The role under test.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Implementation under test.
    pub implementation: Implementation,
    /// Role under test.
    pub role: Role,
    /// Flags for every start, after those of the check.
    pub flags: Vec<String>,
    /// Devices of the roles.
    pub devices: Devices,
    /// Timeout of events that should occur at once.
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
pub(super) struct Watch {
    /// Output so far.
    pub(super) output: String,
    /// Signal that killed one of them, unless the check has sent it.
    pub(super) crash: Option<i32>,
}

impl<'a> Fixture<'a> {
    pub(super) fn new(subject: &'a Subject) -> Result<Self, Violation> {
        Ok(Self {
            subject,
            sandbox: Sandbox::shared()?.with_devices(subject.devices.clone()),
            watch: Rc::default(),
        })
    }

    pub(super) fn watch(&self) -> std::cell::Ref<'_, Watch> {
        self.watch.borrow()
    }

    /// Role under test.
    pub fn subject(&self) -> &Subject {
        self.subject
    }

    /// Files and channel of this check.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Timeout of events that should occur at once.
    pub fn timeout(&self) -> Duration {
        self.subject.timeout
    }

    /// Starts a target on a free port, with these flags in addition to device, CPU and port, and waits until it listens.
    ///
    /// # Errors
    ///
    /// It does not start, or does not listen in time.
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
    /// It does not in time.
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
    /// Returns `true` if it has not exited.
    pub fn is_running(&mut self) -> bool {
        self.process.wait(Instant::now()).is_none()
    }

    /// Last lines of its standard error so far.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Returns `true` if it exits within this time, with any status.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        self.process.wait(Instant::now() + time).is_some()
    }

    /// Sends a signal. A death by any signal is no crash afterwards.
    pub fn signal(&mut self, signal: Signal) {
        self.signalled = true;
        self.process.signal(signal);
    }

    /// Waits for it to exit with status 0.
    ///
    /// # Errors
    ///
    /// It exits otherwise, or not within `timeout`.
    pub fn expect_success(&mut self, timeout: Duration) -> Result<(), Violation> {
        match self.process.wait(Instant::now() + timeout) {
            Some(status) if status.success() => Ok(()),
            _ => Err(Violation::expected("it to end with success", self.state())),
        }
    }

    /// Waits for it to exit with a status other than 0, and not by a signal or a panic.
    ///
    /// # Errors
    ///
    /// It exits otherwise, or not within `timeout`.
    pub fn expect_failure(&mut self, timeout: Duration) -> Result<(), Violation> {
        match self.process.wait(Instant::now() + timeout) {
            Some(status) if is_orderly(status) && !status.success() => Ok(()),
            _ => Err(Violation::expected(
                "it to end with an exit status other than 0",
                self.state(),
            )),
        }
    }

    /// Waits for it to exit with any status, but not by a signal or a panic.
    ///
    /// # Errors
    ///
    /// It was killed by a signal, has panicked, or is still running after `timeout`.
    pub fn expect_end(&mut self, timeout: Duration) -> Result<(), Violation> {
        match self.process.wait(Instant::now() + timeout) {
            Some(status) if is_orderly(status) => Ok(()),
            _ => Err(Violation::expected("it to end", self.state())),
        }
    }

    /// Description of its state, for error messages.
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
