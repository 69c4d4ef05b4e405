//! The role under test, where it is started and watched.

use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::{Duration, Instant};

use wire::release::Release;

use super::Wrong;
use crate::implementation::{Implementation, Role};
use crate::port::wait_for_listener;
use crate::process::{Process, Signal};
use crate::scene::{DPU_DEVICE, HOST_DEVICE, Scene};
use crate::usage::Usage;

/// The exit status of a Rust program whose main thread has panicked.
const PANICKED: i32 = 101;

/// Time that a role which nobody needs any more gets to end: one that has crashed is gone from its channels a moment before
/// its end is known.
const GRACE: Duration = Duration::from_millis(100);

/// What is tested.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Whose binaries.
    pub implementation: Implementation,
    /// Which role of them.
    pub role: Role,
    /// Flags that every start of it gets, behind those of the check.
    pub flags: Vec<String>,
    /// The device of a host, and of a target: identifier as for `-d`.
    pub host_device: String,
    /// The device of the DPU.
    pub dpu_device: String,
    /// The representor of the host on the DPU, as for `-r`.
    pub representor: String,
    /// Time that anything may take that should come at once.
    pub patience: Duration,
    /// How often a check is repeated because the role was killed by SIGSEGV: the reference's workers race with their own start.
    pub crash_retries: u32,
    /// Its usage text.
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
            host_device: HOST_DEVICE.to_owned(),
            dpu_device: DPU_DEVICE.to_owned(),
            representor: HOST_DEVICE.to_owned(),
            patience: Duration::from_secs(10),
            crash_retries: 0,
            usage: Usage::default(),
            release: Release::default(),
        }
    }
}

/// One check's room: the role's files, channel and processes.
#[derive(Debug)]
pub struct Bench<'a> {
    subject: &'a Subject,
    scene: Scene,
    watch: Rc<RefCell<Watch>>,
}

/// What the check's processes left behind.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// What they wrote.
    pub(super) output: String,
    /// One of them was killed by this signal, which nobody has sent.
    pub(super) crash: Option<i32>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(subject: &'a Subject) -> Result<Self, Wrong> {
        Ok(Self {
            subject,
            scene: Scene::shared()?,
            watch: Rc::default(),
        })
    }

    pub(super) fn watch(&self) -> std::cell::Ref<'_, Watch> {
        self.watch.borrow()
    }

    /// What is tested.
    pub fn subject(&self) -> &Subject {
        self.subject
    }

    /// Files and the channel of this check.
    pub fn scene(&self) -> &Scene {
        &self.scene
    }

    /// Time that anything may take that should come at once.
    pub fn patience(&self) -> Duration {
        self.subject.patience
    }

    /// Starts a target on a free port, with these flags beside device, CPU and port, and waits until it listens.
    ///
    /// # Errors
    ///
    /// It does not.
    pub fn start_target(&self, flags: &[&str]) -> Result<(Running, u16), Wrong> {
        let port = self.scene.port()?;
        let mut running = self.spawn_target(port, flags)?;
        self.wait_for_target(&mut running, port)?;
        Ok((running, port))
    }

    /// Starts a target on this port. It may still have to listen.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn spawn_target(&self, port: u16, flags: &[&str]) -> Result<Running, Wrong> {
        let port = port.to_string();
        let device = self.subject.host_device.as_str();
        let base = ["-d", device, "--cpu", "0", "--listen-port", &port];
        self.start(Role::Target, &[&base, flags].concat())
    }

    /// Waits until a target listens on its port.
    ///
    /// # Errors
    ///
    /// It does not.
    pub fn wait_for_target(&self, running: &mut Running, port: u16) -> Result<(), Wrong> {
        let deadline = Instant::now() + self.patience();
        if wait_for_listener(port, deadline, || !running.is_running())? {
            return Ok(());
        }
        Err(Wrong::expected(
            format!("the target to listen on port {port}"),
            running.state(),
        ))
    }

    /// Starts a service whose targets are on these ports of this machine, with these flags beside devices, CPU, channel and
    /// targets. It may still have to connect.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn start_service(&self, ports: &[u16], flags: &[&str]) -> Result<Running, Wrong> {
        let names: &[&str] = match self.subject.role {
            Role::GgaOffload => &["--data-1-storage", "--data-2-storage", "--data-p-storage"],
            _ => &["--storage-server"],
        };
        let addresses: Vec<String> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        let mut base = vec![
            "-d",
            &self.subject.dpu_device,
            "-r",
            &self.subject.representor,
            "--cpu",
            "0",
            "--command-channel-name",
            self.scene.channel(),
        ];
        for (name, address) in names.iter().zip(&addresses) {
            base.extend([name, address.as_str()]);
        }
        self.start(self.subject.role, &[&base, flags].concat())
    }

    /// Starts an initiator with these flags beside device, CPU, channel and strategy. It may still have to connect.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn start_initiator(&self, strategy: &str, flags: &[&str]) -> Result<Running, Wrong> {
        let base = [
            "-d",
            self.subject.host_device.as_str(),
            "--cpu",
            "0",
            "--command-channel-name",
            self.scene.channel(),
            "--execution-strategy",
            strategy,
        ];
        self.start(Role::Initiator, &[&base, flags].concat())
    }

    /// Starts the role with these flags and the subject's.
    fn start(&self, role: Role, flags: &[&str]) -> Result<Running, Wrong> {
        let mut command = self.subject.implementation.command(role)?;
        self.scene
            .place(&mut command)
            .args(flags)
            .args(&self.subject.flags);
        Ok(Running {
            process: Process::spawn(role.name(), command)?,
            status: None,
            signalled: false,
            watch: Rc::clone(&self.watch),
        })
    }
}

/// The role under test, running. Dropping it ends it.
pub struct Running {
    process: Process,
    status: Option<ExitStatus>,
    signalled: bool,
    watch: Rc<RefCell<Watch>>,
}

impl Running {
    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.look(Instant::now()).is_none()
    }

    /// What it has written to standard error so far; the last lines when it was much.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Whether it ends within this time, in whatever way.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        self.look(Instant::now() + time).is_some()
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
        match self.look(Instant::now() + patience) {
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
        match self.look(Instant::now() + patience) {
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
        match self.look(Instant::now() + patience) {
            Some(status) if is_orderly(status) => Ok(()),
            _ => Err(Wrong::expected("it to end", self.state())),
        }
    }

    /// In words.
    pub fn state(&mut self) -> String {
        match self.look(Instant::now()) {
            None => "it running".to_owned(),
            Some(status) => format!("its end ({status})"),
        }
    }

    fn look(&mut self, deadline: Instant) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.process.wait(deadline);
        }
        self.status
    }
}

/// Whether a program came to an end that it had foreseen.
fn is_orderly(status: ExitStatus) -> bool {
    status.code().is_some_and(|code| code != PANICKED)
}

impl Drop for Running {
    fn drop(&mut self) {
        let status = self.look(Instant::now() + GRACE);
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
