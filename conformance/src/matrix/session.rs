//! The processes of one session, from the first that starts to the last that ends.

mod command_lines;

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use super::check::Strategy;
use super::files::Files;
use super::member::{Member, Traits};
use super::mix::Mix;
use super::overstate::overstate;
use super::settings::{Interrupted, Settings};
use crate::implementation::Role;
use crate::port::wait_for_listener;
use crate::process::{Process, Signal};
use crate::scene::Scene;

/// Time that a role gets to be ready for its peers.
const READY: Duration = Duration::from_secs(20);
/// Time that an initiator gets to notice that another role has failed.
const NOTICE: Duration = Duration::from_secs(3);
/// Time that the others get to end after an initiator that has ended well, and after one that has failed.
const FAREWELL: Duration = Duration::from_secs(15);
const FAREWELL_TO_FAILED: Duration = Duration::from_secs(1);
/// How often waiting looks around.
const TICK: Duration = Duration::from_millis(2);

/// What happens in a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) strategy: Strategy,
    /// Operations of the initiator.
    pub(super) operations: u32,
    /// `--trigger-recovery-read-every-n` of a gga service.
    pub(super) recover_every: u32,
    /// The first target is a scripted one that fails an I/O.
    pub(super) failing_io: bool,
    /// The service is told of one block more than the targets have.
    pub(super) overstated: bool,
}

/// A role that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// `initiator`, `service`, `data_1`, ...
    pub(super) label: &'static str,
    /// Whose program, or `scripted`.
    pub(super) name: String,
    /// What is known of it.
    traits: Traits,
    /// How it ended; `None` when it had to be killed.
    pub(super) status: Option<ExitStatus>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Ended {
    /// It ended by itself, with exit status 0.
    pub(super) fn well(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Whether it crashed when its worker thread began: before the thread's first line, which is before any I/O.
    fn is_start_race(&self) -> bool {
        let worker_began = |text: &str| {
            text.lines()
                .any(|line| line.contains("(core: ") && line.contains("starting"))
        };
        self.traits.start_race
            && self.status.and_then(|status| status.signal()) == Some(Signal::SEGV.as_raw())
            && !worker_began(&self.stdout)
            && !worker_began(&self.stderr)
    }
}

/// A session that is over.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// What kept it from going its way.
    pub(super) trouble: Option<String>,
    pub(super) initiator: Option<Ended>,
    pub(super) service: Option<Ended>,
    pub(super) targets: Vec<Ended>,
    /// What was left in the runtime directory.
    pub(super) leftovers: Vec<PathBuf>,
}

impl Session {
    /// All that were started.
    pub(super) fn all(&self) -> impl Iterator<Item = &Ended> {
        let main = self.initiator.iter().chain(&self.service);
        main.chain(&self.targets)
    }

    /// Whether a crash of a kind that has nothing to do with the mix ended it.
    pub(super) fn is_start_race(&self) -> bool {
        self.all().any(Ended::is_start_race)
    }
}

/// A role that runs, or ran.
struct Running {
    label: &'static str,
    name: String,
    traits: Traits,
    process: Process,
    status: Option<ExitStatus>,
}

impl Running {
    fn start(
        label: &'static str,
        member: &Member,
        role: Role,
        command: Command,
    ) -> Result<Self, String> {
        Ok(Self {
            label,
            name: member.name().to_owned(),
            traits: member.traits(role),
            process: Process::spawn(label, command).map_err(|failure| failure.to_string())?,
            status: None,
        })
    }

    fn ended_before(&mut self, deadline: Instant) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.process.wait(deadline);
        }
        self.status
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.ended_before(Instant::now())
    }

    fn failed(&mut self) -> Option<ExitStatus> {
        self.ended().filter(|status| !status.success())
    }

    fn into_ended(mut self) -> Ended {
        let status = self.ended();
        let (stdout, stderr) = self.process.into_output();
        Ended {
            label: self.label,
            name: self.name,
            traits: self.traits,
            status,
            stdout,
            stderr,
        }
    }
}

/// Starts and watches the processes of one session.
pub(super) struct Stage<'a> {
    pub(super) settings: &'a Settings,
    pub(super) mix: &'a Mix<'a>,
    pub(super) plan: Plan,
    pub(super) files: &'a Files,
    pub(super) interrupted: Interrupted<'a>,
    pub(super) scene: Scene,
}

impl Stage<'_> {
    /// Plays the session.
    pub(super) fn play(&self) -> Session {
        let mut cast = Vec::new();
        let mut service_at = None;
        let mut trouble = self.start(&mut cast, &mut service_at).err();
        let mut initiator = None;
        if trouble.is_none() {
            match self.start_initiator() {
                Ok(mut running) => {
                    trouble = self.watch(&mut running, &mut cast).err();
                    initiator = Some(running);
                }
                Err(error) => trouble = Some(error),
            }
        }
        let well = trouble.is_none()
            && initiator
                .as_mut()
                .and_then(Running::ended)
                .is_some_and(|status| status.success());
        let time = match (&trouble, well) {
            (Some(_), _) => Duration::ZERO,
            (None, true) => FAREWELL,
            (None, false) => FAREWELL_TO_FAILED,
        };
        let deadline = Instant::now() + time;
        for running in &mut cast {
            running.ended_before(deadline);
        }
        let mut session = Session {
            trouble,
            initiator: initiator.map(Running::into_ended),
            ..Session::default()
        };
        for (index, running) in cast.into_iter().enumerate() {
            let ended = running.into_ended();
            if service_at == Some(index) {
                session.service = Some(ended);
            } else {
                session.targets.push(ended);
            }
        }
        session.leftovers = self.scene.leftovers().unwrap_or_default();
        session
    }

    /// Targets, then the service, each until it is ready.
    fn start(&self, cast: &mut Vec<Running>, service_at: &mut Option<usize>) -> Result<(), String> {
        let io = |error: io::Error| error.to_string();
        let mut ports = Vec::new();
        for (index, (label, member)) in
            std::iter::zip(self.mix.layout.targets(), &self.mix.targets).enumerate()
        {
            let port = self.scene.port().map_err(io)?;
            let mut target = if self.plan.failing_io && index == 0 {
                self.start_scripted(label, port)?
            } else {
                let command = self.target(member, index, port)?;
                Running::start(label, member, Role::Target, command)?
            };
            let deadline = Instant::now() + READY;
            let listens = wait_for_listener(port, deadline, || {
                target.ended().is_some() || (self.interrupted)()
            })
            .map_err(io)?;
            let status = target.ended();
            cast.push(target);
            if !listens {
                return Err(not_ready(label, "listened on its port", status));
            }
            ports.push(if self.plan.overstated {
                overstate(port).map_err(io)?
            } else {
                port
            });
        }
        let before = self.scene.leftovers().map_err(io)?;
        let role = self.mix.layout.service();
        let command = self.service(&ports)?;
        let mut service = Running::start("service", self.mix.service, role, command)?;
        // Where initiators find it: a server of softdoca is a socket.
        let deadline = Instant::now() + READY;
        let served = loop {
            let servers = self.scene.servers().map_err(io)?;
            if servers.iter().any(|path| !before.contains(path)) {
                break true;
            }
            if Instant::now() >= deadline || service.ended().is_some() || (self.interrupted)() {
                break false;
            }
            std::thread::sleep(TICK);
        };
        let status = service.ended();
        *service_at = Some(cast.len());
        cast.push(service);
        if served {
            Ok(())
        } else {
            Err(not_ready("service", "waited for an initiator", status))
        }
    }

    /// Waits for the initiator to end.
    fn watch(&self, initiator: &mut Running, others: &mut [Running]) -> Result<(), String> {
        let deadline = Instant::now() + self.settings.timeout;
        let mut notice = None;
        while initiator.ended().is_none() {
            if (self.interrupted)() {
                return Err("interrupted".to_owned());
            }
            let failed = others
                .iter_mut()
                .find_map(|other| Some((other.label, other.failed()?)));
            if let Some((label, status)) = failed {
                let time = if status.signal().is_some() {
                    Duration::ZERO
                } else {
                    NOTICE
                };
                if Instant::now() >= *notice.get_or_insert_with(|| Instant::now() + time) {
                    return Err(format!("{label} failed ({status}) in the session"));
                }
            }
            if Instant::now() >= deadline {
                let seconds = self.settings.timeout.as_secs();
                return Err(format!("the initiator has not ended in {seconds} s"));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn start_initiator(&self) -> Result<Running, String> {
        let member = self.mix.initiator;
        let command = self.initiator()?;
        Running::start("initiator", member, Role::Initiator, command)
    }
}

fn not_ready(label: &str, what: &str, status: Option<ExitStatus>) -> String {
    match status {
        Some(status) => format!("{label} ended ({status}) before it {what}"),
        None => format!("{label} has not {what} in {} s", READY.as_secs()),
    }
}
