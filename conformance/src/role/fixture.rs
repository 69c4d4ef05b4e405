//! The role under test, where it is started and watched.

use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use wire::release::Release;

use super::Wrong;
use deployment::implementation::{Implementation, Layout, Role, Usage};
use deployment::process::{Process, Signal, is_orderly};
use deployment::sandbox::{Devices, Sandbox};

/// Time for the exit of a role that is not needed any more: a crashed one closes its channels a moment before its status is available.
const GRACE: Duration = Duration::from_millis(100);

/// The role under test.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Its implementation.
    pub implementation: Implementation,
    /// The role.
    pub role: Role,
    /// Flags for every start of it, behind those of the check.
    pub flags: Vec<String>,
    /// Devices of its roles.
    pub devices: Devices,
    /// Timeout of events that should occur at once.
    pub patience: Duration,
    /// Repetitions of a check after a SIGSEGV: the reference's workers have a race at their start.
    pub crash_retries: u32,
    /// The usage text of its program.
    pub usage: Usage,
    /// The release of the protocol that a scripted service of an initiator speaks. All other peers speak 3.2.
    pub release: Release,
}

impl Subject {
    /// With softdoca's built-in devices, and 10 s of patience.
    pub fn new(implementation: Implementation, role: Role) -> Self {
        Self {
            implementation,
            role,
            flags: Vec::new(),
            devices: Devices::default(),
            patience: Duration::from_secs(10),
            crash_retries: 0,
            usage: Usage::default(),
            release: Release::default(),
        }
    }
}

/// The fixture of one check: the role's files, channel and processes.
#[derive(Debug)]
pub struct Fixture<'a> {
    subject: &'a Subject,
    sandbox: Sandbox,
    watch: Rc<RefCell<Watch>>,
}

/// Output and crash of a check's processes.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Their output.
    pub(super) output: String,
    /// Signal that killed one of them, unless the check has sent it.
    pub(super) crash: Option<i32>,
}

impl<'a> Fixture<'a> {
    pub(super) fn new(subject: &'a Subject) -> Result<Self, Wrong> {
        Ok(Self {
            subject,
            sandbox: Sandbox::shared()?.with_devices(subject.devices.clone()),
            watch: Rc::default(),
        })
    }

    pub(super) fn watch(&self) -> std::cell::Ref<'_, Watch> {
        self.watch.borrow()
    }

    /// The role under test.
    pub fn subject(&self) -> &Subject {
        self.subject
    }

    /// Files and the channel of this check.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Timeout of events that should occur at once.
    pub fn patience(&self) -> Duration {
        self.subject.patience
    }

    /// Starts a target on a free port, with these flags beside device, CPU and port, and waits until it listens.
    ///
    /// # Errors
    ///
    /// It does not.
    pub fn start_target(&self, flags: &[&str]) -> Result<(Running, u16), Wrong> {
        let port = self.sandbox.port()?;
        let running = self.spawn_target(port, flags)?;
        self.wait_for_target(&running, port)?;
        Ok((running, port))
    }

    /// Starts a target on this port. It may still have to listen.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn spawn_target(&self, port: u16, flags: &[&str]) -> Result<Running, Wrong> {
        let command = self.subject.implementation.command(Role::Target)?;
        self.start(Role::Target, self.sandbox.target(command, port), flags)
    }

    /// Waits until a target listens on its port.
    ///
    /// # Errors
    ///
    /// It does not.
    pub fn wait_for_target(&self, running: &Running, port: u16) -> Result<(), Wrong> {
        let process = &running.process;
        process
            .wait_until_listening(port, self.patience(), || false)
            .map_err(|why| Wrong::expected(format!("the target to listen on port {port}"), why))
    }

    /// Starts a service with targets on these ports of this machine, and with these flags beside devices, CPU, channel and targets. It may
    /// not be connected yet.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn start_service(&self, ports: &[u16], flags: &[&str]) -> Result<Running, Wrong> {
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

    /// Starts an initiator with these flags beside device, CPU, channel and strategy. It may still have to connect.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn start_initiator(&self, strategy: &str, flags: &[&str]) -> Result<Running, Wrong> {
        let command = self.subject.implementation.command(Role::Initiator)?;
        let mut command = self.sandbox.initiator(command, self.sandbox.channel());
        command.args(["--execution-strategy", strategy]);
        self.start(Role::Initiator, command, flags)
    }

    /// Starts a role on CPU 0 with these flags and the subject's.
    fn start(&self, role: Role, mut command: Command, flags: &[&str]) -> Result<Running, Wrong> {
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

/// The role under test, running. Dropping it ends it.
pub struct Running {
    process: Process,
    signalled: bool,
    watch: Rc<RefCell<Watch>>,
}

impl Running {
    /// Returns `true` if it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.process.wait(Instant::now()).is_none()
    }

    /// The last lines of its standard error so far.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Returns `true` if it ends within this time, in whatever way.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        self.process.wait(Instant::now() + time).is_some()
    }

    /// Sends a signal: whatever it dies of from now on is no crash.
    pub fn signal(&mut self, signal: Signal) {
        self.signalled = true;
        self.process.signal(signal);
    }

    /// Waits for it to end with exit status 0.
    ///
    /// # Errors
    ///
    /// It ends otherwise, or not within `patience`.
    pub fn expect_success(&mut self, patience: Duration) -> Result<(), Wrong> {
        match self.process.wait(Instant::now() + patience) {
            Some(status) if status.success() => Ok(()),
            _ => Err(Wrong::expected("it to end with success", self.state())),
        }
    }

    /// Waits for it to end with an exit status other than 0, and not by a signal or a panic.
    ///
    /// # Errors
    ///
    /// It ends otherwise, or not within `patience`.
    pub fn expect_failure(&mut self, patience: Duration) -> Result<(), Wrong> {
        match self.process.wait(Instant::now() + patience) {
            Some(status) if is_orderly(status) && !status.success() => Ok(()),
            _ => Err(Wrong::expected(
                "it to end with an exit status other than 0",
                self.state(),
            )),
        }
    }

    /// Waits for it to end, well or not, but not by a signal or a panic.
    ///
    /// # Errors
    ///
    /// It is killed by a signal, has panicked, or runs on after `patience`.
    pub fn expect_end(&mut self, patience: Duration) -> Result<(), Wrong> {
        match self.process.wait(Instant::now() + patience) {
            Some(status) if is_orderly(status) => Ok(()),
            _ => Err(Wrong::expected("it to end", self.state())),
        }
    }

    /// In words.
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
