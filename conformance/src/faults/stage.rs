//! The deployment of one case, from its start to the moment of the fault.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use wire::backing::CONTENT_OFFSET;

use super::actor::{Actor, Ended};
use super::case::{Case, Fault, Mode, Part, Phase};
use super::command_lines::Work;
use super::content::{self, BLOCK_SIZE, BLOCKS};
use super::relay::{FaultyLine, Held, Moment};
use super::settings::{Interrupted, Settings};
use crate::matrix::Layout;
use crate::scene::Scene;

/// The file with what the storage should hold.
pub(super) const CONTENT: &str = "content";
/// What a target says when it can be connected to.
const LISTENING: &str = "listening on port ";
/// What a service says when it can serve.
pub(super) const WAITING: &str = "waiting for the initiator";
/// Time that a role gets to be ready for its peers, and a session to come to a place.
pub(super) const READY: Duration = Duration::from_secs(60);
/// How often waiting looks around.
const TICK: Duration = Duration::from_millis(2);

/// A deployment. Its roles are in the order in which they are started: targets, service, initiator.
pub(super) struct Stage<'a> {
    pub(super) settings: &'a Settings,
    pub(super) case: Case,
    /// Which case of the run it is: neighbours use other CPUs first.
    pub(super) number: usize,
    pub(super) interrupted: Interrupted<'a>,
    pub(super) scene: Scene,
    pub(super) line: FaultyLine,
    /// The targets' own ports.
    pub(super) ports: Vec<u16>,
    pub(super) actors: Vec<Actor>,
    /// The fault is done: who is started from now on comes in somebody's place.
    pub(super) is_struck: bool,
    /// Nobody is hit any more: nobody needs to be impatient.
    pub(super) is_calm: bool,
    /// Roles of sessions that are over.
    pub(super) ended: Vec<Ended>,
}

impl<'a> Stage<'a> {
    /// Targets that listen, a line to them, and a service that has found them.
    pub(super) fn set(
        settings: &'a Settings,
        case: Case,
        number: usize,
        interrupted: Interrupted<'a>,
    ) -> Result<Self, String> {
        let scene = Scene::new().map_err(|error| format!("a directory: {error}"))?;
        scene
            .file(CONTENT, &content::plain())
            .map_err(|error| format!("{CONTENT}: {error}"))?;
        let mut stage = Self {
            settings,
            case,
            number,
            interrupted,
            scene,
            line: FaultyLine::start(&[]).map_err(|error| format!("a relay: {error}"))?,
            ports: Vec::new(),
            actors: Vec::new(),
            is_struck: false,
            is_calm: false,
            ended: Vec::new(),
        };
        for index in 0..case.layout.targets().len() {
            let port = stage.port()?;
            stage.start_target(index, port, 0)?;
            stage.ports.push(port);
        }
        stage.line =
            FaultyLine::start(&stage.ports).map_err(|error| format!("a relay: {error}"))?;
        stage.start_service(stage.scene.channel().to_owned())?;
        stage.actor(Part::Service)?.says(WAITING, 1, soon())?;
        Ok(stage)
    }

    /// A port for a target.
    fn port(&self) -> Result<u16, String> {
        self.scene
            .port()
            .map_err(|error| format!("a port: {error}"))
    }

    fn start(&mut self, part: Part, command: std::process::Command) -> Result<&mut Actor, String> {
        let actor = Actor::start(part, part.label(self.case.layout), command)?;
        self.actors.push(actor);
        self.actor(part)
    }

    /// Starts a target and waits until it listens.
    pub(super) fn start_target(
        &mut self,
        index: usize,
        port: u16,
        generation: u32,
    ) -> Result<(), String> {
        let command = self.target(index, port, generation)?;
        let target = self.start(Part::Target(index), command)?;
        target.says(LISTENING, 1, soon())
    }

    /// Starts a service, which may find nobody.
    pub(super) fn start_service(&mut self, channel: String) -> Result<(), String> {
        let command = self.service(self.line.ports(), &channel)?;
        self.start(Part::Service, command).map(drop)
    }

    pub(super) fn start_initiator(&mut self, work: Work, channel: &str) -> Result<(), String> {
        let command = self.initiator(work, channel)?;
        self.start(Part::Initiator, command).map(drop)
    }

    /// The one that plays this part now: the last that was started.
    pub(super) fn actor(&mut self, part: Part) -> Result<&mut Actor, String> {
        self.actors
            .iter_mut()
            .rev()
            .find(|actor| actor.part == part)
            .ok_or_else(|| format!("there is no {}", part.label(self.case.layout)))
    }

    /// Goes to the place of the fault; the frame that stands still there, if it is one.
    pub(super) fn reach(&mut self) -> Result<Option<Held>, String> {
        let trap = match self.case.phase {
            Phase::Waiting => return Ok(None),
            Phase::Io => None,
            Phase::Frame(message, after) => Some(self.line.hold(Moment {
                channel: self.case.channel(),
                message,
                after,
            })),
        };
        let work = match self.case.phase {
            Phase::Io => Work::Endless,
            _ => Work::WriteAndRead,
        };
        let channel = self.scene.channel().to_owned();
        self.start_initiator(work, &channel)?;
        let Some(trap) = trap else {
            return self.wait_until_written().map(|()| None);
        };
        let interrupted = self.interrupted;
        let initiator = self.actor(Part::Initiator)?;
        let held = trap.wait(soon(), || interrupted() || initiator.has_ended());
        held.map(Some)
            .ok_or_else(|| format!("the session did not come to {}", self.case.phase))
    }

    /// Waits until every block has been written by an initiator that goes on writing and reading them.
    fn wait_until_written(&mut self) -> Result<(), String> {
        let deadline = soon();
        while !self.is_written()? {
            if self.actor(Part::Initiator)?.has_ended() {
                return Err("the initiator ended before it had written all blocks".to_owned());
            }
            if Instant::now() >= deadline || (self.interrupted)() {
                return Err("the blocks were not written in time".to_owned());
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Whether each target has something in each block. A new file has zeros.
    fn is_written(&self) -> Result<bool, String> {
        let size = match self.case.layout {
            Layout::ZeroCopy => BLOCK_SIZE,
            Layout::Gga => BLOCK_SIZE / 2,
        };
        for index in 0..self.ports.len() {
            let path = self.backing_file(index, 0);
            let failed = |error| format!("{}: {error}", path.display());
            let mut blocks = vec![0; BLOCKS * size];
            let file = fs::File::open(&path).map_err(failed)?;
            file.read_exact_at(&mut blocks, CONTENT_OFFSET)
                .map_err(failed)?;
            let is_empty = |block: &[u8]| block.iter().all(|&byte| byte == 0);
            if blocks.chunks(size).any(is_empty) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Does it. A frame that was held goes on afterwards: behind a death that is certain, and without waiting for another end.
    pub(super) fn strike(&mut self, held: Option<Held>) -> Result<(), String> {
        let Case {
            victim,
            fault,
            mode,
            ..
        } = self.case;
        self.is_struck = true;
        let actor = self.actor(victim)?;
        actor.signal(fault.signal());
        match fault {
            Fault::Kill if !actor.ends(soon()) => return Err("SIGKILL does not end it".to_owned()),
            // It has ended just before, where it had nothing left to do.
            Fault::Stop if !actor.stops(soon()) && !actor.has_ended() => {
                return Err("SIGSTOP does not stop it".to_owned());
            }
            _ => {}
        }
        if let (Mode::Serving, Part::Target(index), Fault::Stop) = (mode, victim, fault) {
            // It has its port and its file as long as it may wake up. The service may look for it as soon as the frame goes on.
            let port = self.port()?;
            self.start_target(index, port, 1)?;
            self.line.redirect(self.case.channel(), port);
        }
        drop(held);
        Ok(())
    }
}

/// When nobody waits any longer for what should come at once.
pub(super) fn soon() -> Instant {
    Instant::now() + READY
}
