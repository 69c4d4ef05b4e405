//! One round: a session of the load, what is done to whom meanwhile, and what has to become of everybody.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::deployment::{Deployment, Redundancy, TICK, end_of, has_ended};
use super::ledger::Counts;
use super::load;
use super::load::{Load, Mischief, Stage, Stranger, Task, malformed_control};
use super::plan::{Expectation, Fault, Phase, Round, Victim};
use super::run::{Actors, Settings};
use super::witness::{Testimony, Witness};
use crate::faults::relay::{End, Side};
use crate::matrix::Layout;
use crate::process::{Process, Signal};
use crate::role::{During as _, Wrong};
use crate::scene::{HOST_DEVICE, Scene};

/// What became of a round in which nothing was wrong.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Played {
    /// The load's session came to its good end.
    pub(super) went_on: bool,
    pub(super) counts: Counts,
}

/// Plays a round. Afterwards everybody serves again, and every block was read back.
pub(super) fn play(
    deployment: &mut Deployment<'_>,
    sessions: &mut Sessions<'_>,
    round: &Round,
) -> Result<Played, Wrong> {
    let mut scene = Act {
        deployment,
        sessions,
        round,
        must_break: false,
        is_over: false,
    };
    scene.play()
}

struct Act<'a, 'b, 'c> {
    deployment: &'a mut Deployment<'b>,
    sessions: &'a mut Sessions<'c>,
    round: &'a Round,
    /// The load's session cannot go on.
    must_break: bool,
    /// Who was stopped is not any more.
    is_over: bool,
}

impl Act<'_, '_, '_> {
    fn play(&mut self) -> Result<Played, Wrong> {
        let blow = self.round.blow;
        self.deployment.start()?;
        let mischief = match blow.fault {
            Fault::GarbageIo => Mischief::Io,
            Fault::GarbageControl => Mischief::Control,
            _ => Mischief::None,
        };
        let load = self.sessions.start(self.deployment, Task::Run, mischief)?;
        self.reach(&load).during("before the fault")?;
        let spoken = self
            .deployment
            .service()
            .map_or(0, |service| service.line_count());
        std::thread::sleep(self.round.delay);
        self.strike(&load)?;
        let (is_good, mut counts) = match blow.expectation(self.deployment.layout) {
            Expectation::Survives => (true, self.expect_to_go_on(load)?),
            Expectation::MayBreak | Expectation::MayFail => self.expect_an_end(load, spoken)?,
        };
        self.recover()?;
        self.settle()?;
        counts += self.sessions.repair(self.deployment)?;
        self.deployment.inspect()?;
        Ok(Played {
            went_on: is_good,
            counts,
        })
    }

    /// What was done to a connection may come late, and be for the session after this one: another one is played before the next round.
    fn settle(&mut self) -> Result<(), Wrong> {
        if !self.round.blow.fault.is_of_connection() {
            return Ok(());
        }
        let is_settled = self.deployment.line.settle(self.deployment.settings.limit);
        self.sessions.read_back_again();
        Wrong::unless(is_settled, "a connection to be hurt", "nothing in time")
    }

    /// Waits for the beginning of the phase.
    fn reach(&mut self, load: &Running) -> Result<(), Wrong> {
        let phase = self.round.blow.phase;
        let limit = self.deployment.settings.limit;
        if phase == Phase::SetUp {
            return load.wait_for(Stage::Known, limit);
        }
        load.wait_for(Stage::Running, limit)?;
        self.deployment
            .wait_for("all targets are whole", |state| state == Redundancy::Whole)?;
        match phase {
            Phase::SetUp | Phase::Io => {}
            Phase::End => {
                std::thread::sleep(self.round.linger / 2);
                load.process.signal(Signal::TERM);
            }
            Phase::Degraded => self.lose()?,
            Phase::Rebuilding => {
                self.lose()?;
                // It misses something meanwhile.
                std::thread::sleep(self.round.linger / 2);
                let lost = self.round.lost_before;
                self.deployment.start_target(lost)?;
                self.deployment.wait_for("a target is back", |state| {
                    state != Redundancy::Without(lost)
                })?;
            }
        }
        Ok(())
    }

    /// The service loses the target that it is to be without. What is cut off from now on has only two halves.
    fn lose(&mut self) -> Result<(), Wrong> {
        self.sessions.cut_off = true;
        let lost = self.round.lost_before;
        self.kill_target(lost)?;
        self.deployment.wait_for("a target is lost", |state| {
            state == Redundancy::Without(lost)
        })
    }

    fn kill_target(&mut self, target: usize) -> Result<(), Wrong> {
        // Of three halves, two are of one time.
        self.sessions.cut_off |= self.deployment.layout == Layout::ZeroCopy;
        self.deployment.signal(Victim::Target, target, Signal::KILL);
        self.deployment.expect_end(Victim::Target, target)
    }

    /// The target that is hit: not one that is not there.
    fn target(&self) -> usize {
        let Round {
            target,
            lost_before,
            blow,
            ..
        } = *self.round;
        if blow.phase == Phase::Degraded && target == lost_before {
            (target + 1) % self.deployment.targets.len()
        } else {
            target
        }
    }

    fn strike(&mut self, load: &Running) -> Result<(), Wrong> {
        let (victim, target) = (self.round.blow.victim, self.target());
        // What a service or a target that is gone must end, at once or after its timeouts.
        let is_needed = match victim {
            Victim::Load => false,
            Victim::Service => true,
            Victim::Target => self.deployment.layout == Layout::ZeroCopy,
        };
        self.must_break = is_needed
            && self.round.blow.phase == Phase::Io
            && matches!(
                self.round.blow.fault,
                Fault::Kill
                    | Fault::Stop
                    | Fault::StopAndKill
                    | Fault::Terminate
                    | Fault::Interrupt
                    | Fault::Close
                    | Fault::Reset
            );
        let layout = self.deployment.layout;
        if (layout, victim) == (Layout::Gga, Victim::Target)
            && self.round.blow.expectation(layout) == Expectation::MayFail
        {
            self.sessions.cut_off = true;
        }
        let line = &self.deployment.line;
        let channel = target as u32;
        match self.round.blow.fault {
            Fault::None | Fault::GarbageControl | Fault::GarbageIo => {}
            Fault::Kill if victim == Victim::Target => self.kill_target(target)?,
            Fault::Kill => {
                self.signal(load, Signal::KILL);
                self.deployment.expect_end(victim, target)?;
            }
            Fault::Stop | Fault::StopAndKill => self.signal(load, Signal::STOP),
            Fault::Delay => {
                self.signal(load, Signal::STOP);
                std::thread::sleep(self.round.pause);
                self.signal(load, Signal::CONT);
            }
            Fault::Terminate | Fault::Interrupt => {
                let signal = match self.round.blow.fault {
                    Fault::Terminate => Signal::TERM,
                    _ => Signal::INT,
                };
                self.signal(load, signal);
                self.deployment.expect_end(victim, target)?;
            }
            Fault::Close => line.cut(channel, End::Close),
            Fault::Reset => line.cut(channel, End::Reset),
            Fault::GarbageFrame => {
                let from = match victim {
                    Victim::Target => Side::Client,
                    Victim::Load | Victim::Service => Side::Server,
                };
                let bytes = malformed_control(&mut Rng::with_seed(self.round.noise));
                line.send(channel, from, bytes);
            }
            Fault::Stranger if victim == Victim::Target => {
                load::disturb_target(self.deployment.targets[target].port, self.round.noise);
            }
            Fault::Stranger => self.sessions.intrude(self.deployment, self.round.noise)?,
        }
        Ok(())
    }

    fn signal(&self, load: &Running, signal: Signal) {
        let victim = self.round.blow.victim;
        match victim {
            Victim::Load => load.process.signal(signal),
            Victim::Service | Victim::Target => {
                self.deployment.signal(victim, self.target(), signal);
            }
        }
    }

    /// The load goes on, whoever was lost comes back, and the load ends well when it is asked to.
    fn expect_to_go_on(&mut self, load: Running) -> Result<Counts, Wrong> {
        let is_stopped = matches!(self.round.blow.fault, Fault::Stop | Fault::StopAndKill);
        if is_stopped {
            let target = self.target();
            self.deployment.wait_for("a target is lost", |state| {
                state == Redundancy::Without(target)
            })?;
        }
        std::thread::sleep(self.round.linger);
        self.recover()?;
        let is_asked = self.round.blow.phase == Phase::End
            || (self.round.blow.fault, self.round.blow.victim) == (Fault::Terminate, Victim::Load);
        if !is_asked {
            let whole = |state| state == Redundancy::Whole;
            if has_ended(&load.process) {
                return Err(load.process.failed("was to go on").into());
            }
            if self.deployment.layout == Layout::Gga {
                self.deployment.wait_for("all targets are whole", whole)?;
            }
            load.process.signal(Signal::TERM);
        }
        let limit = self.deployment.settings.limit;
        let (session, log) = (load.session, load.process.stderr());
        let is_good = end_of(load.process, limit).during("load")?;
        let testimony = self.sessions.testimony(session)?;
        Wrong::unless(
            is_good && testimony.ended_well && testimony.counts.failed == 0,
            "the load to go on, and none of its I/Os to fail",
            format!("{testimony:?}, and it said{log}"),
        )?;
        Ok(testimony.counts)
    }

    /// The load's session ends, because it cannot go on or because it is asked to.
    fn expect_an_end(&mut self, load: Running, spoken: usize) -> Result<(bool, Counts), Wrong> {
        let limit = self.deployment.settings.limit;
        let blow = self.round.blow;
        if blow.victim == Victim::Load && blow.fault == Fault::StopAndKill {
            self.expect_to_be_given_up(spoken)?;
            load.process.signal(Signal::KILL);
        }
        if !self.must_break {
            std::thread::sleep(self.round.linger);
            load.process.signal(Signal::TERM);
        }
        let (session, log) = (load.session, load.process.stderr());
        let is_good = end_of(load.process, limit).during("load")?;
        let testimony = self.sessions.testimony(session)?;
        Wrong::unless(
            !(self.must_break && is_good),
            "the load's session to break",
            "its good end",
        )?;
        let may_fail = blow.expectation(self.deployment.layout) == Expectation::MayFail;
        Wrong::unless(
            may_fail || testimony.counts.failed == 0,
            "no I/O to fail as long as the session lasts",
            format!("{testimony:?}, and the load said{log}"),
        )?;
        Ok((is_good && testimony.ended_well, testimony.counts))
    }

    /// The service ends the session of a load that is stopped.
    fn expect_to_be_given_up(&self, spoken: usize) -> Result<(), Wrong> {
        let deadline = Instant::now() + self.deployment.settings.limit;
        loop {
            let Some(service) = self.deployment.service() else {
                return Ok(());
            };
            let ended = service.find_line(spoken, Duration::ZERO, |line| {
                line.contains("ended badly").then_some(())
            });
            if ended.is_some() || has_ended(service) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Wrong::expected(
                    "the service to give up a load that is stopped",
                    "nothing in time",
                ));
            }
            std::thread::sleep(TICK);
        }
    }

    /// Whoever was stopped goes on or is killed, and whoever has ended is started again.
    fn recover(&mut self) -> Result<(), Wrong> {
        let (victim, target) = (self.round.blow.victim, self.target());
        let is_over = std::mem::replace(&mut self.is_over, true);
        match self.round.blow.fault {
            _ if is_over => {}
            Fault::Stop => self.deployment.signal(victim, target, Signal::CONT),
            Fault::StopAndKill if victim == Victim::Target => self.kill_target(target)?,
            Fault::StopAndKill => {
                self.deployment.signal(victim, target, Signal::KILL);
                self.deployment.expect_end(victim, target)?;
            }
            _ => {}
        }
        self.deployment.start_targets()
    }
}

// Sessions of the load, one after the other, and what the witness says of each.

/// Time in which a witness tells what it has seen.
const MOMENT: Duration = Duration::from_millis(500);

/// Loads, and their witness.
pub(super) struct Sessions<'a> {
    settings: &'a Settings,
    actors: &'a Actors,
    witness: Process,
    socket: PathBuf,
    /// Of the load that was started last.
    number: u64,
    /// Of the last one whose testimony was heard.
    told: u64,
    /// Writes may have been cut off, since all blocks were read back, so that blocks are neither old nor new.
    pub(super) cut_off: bool,
    /// What became of all blocks so far.
    pub(super) counts: Counts,
    /// The last session ended well, with all blocks read, and no write in doubt.
    is_read_back: bool,
}

/// A load at work.
pub(super) struct Running {
    pub(super) process: Process,
    pub(super) session: u64,
}

impl Running {
    /// Whether it has come so far.
    fn is(&self, stage: Stage) -> bool {
        self.wait_for(stage, Duration::ZERO).is_ok()
    }

    /// Waits until it has come so far.
    pub(super) fn wait_for(&self, stage: Stage, limit: Duration) -> Result<(), Wrong> {
        let is = |line: &str| (Stage::parse(line) == Some(stage)).then_some(());
        self.process.find_line(0, limit, is).ok_or_else(|| {
            let said = self.process.stderr();
            Wrong::expected(format!("the load to be {stage:?}"), format!("this:{said}"))
        })
    }
}

impl<'a> Sessions<'a> {
    /// Starts the witness.
    pub(super) fn new(
        settings: &'a Settings,
        actors: &'a Actors,
        scene: &Scene,
    ) -> Result<Self, Wrong> {
        let witness = Witness {
            socket: scene.path("witness.sock"),
            blocks: settings.blocks,
            evidence: scene.path("violation.json"),
        };
        let mut process = Process::spawn("witness", (actors.witness)(&witness))?;
        process.wait_for("listened", settings.limit, |line| {
            line.contains("listening").then_some(())
        })?;
        Ok(Self {
            settings,
            actors,
            witness: process,
            socket: witness.socket,
            number: 0,
            told: 0,
            cut_off: false,
            counts: Counts::default(),
            is_read_back: false,
        })
    }

    /// Starts the next load.
    pub(super) fn start(
        &mut self,
        deployment: &Deployment<'_>,
        task: Task,
        mischief: Mischief,
    ) -> Result<Running, Wrong> {
        self.number += 1;
        self.is_read_back = false;
        let load = Load {
            channel: deployment.scene.channel().to_owned(),
            device: HOST_DEVICE.to_owned(),
            witness: self.socket.clone(),
            seed: self.settings.seed,
            session: self.number,
            layout: deployment.layout,
            task,
            cut_off: self.cut_off,
            mischief,
            patience: self.settings.patience,
        };
        let mut command = (self.actors.load)(&load);
        deployment.scene.place(&mut command);
        let log = deployment.log("load")?;
        Ok(Running {
            process: Process::spawn_logged("load", command, log)?,
            session: self.number,
        })
    }

    /// What the witness says of a session that is over.
    pub(super) fn testimony(&mut self, session: u64) -> Result<Testimony, Wrong> {
        let found = self.witness.find_line(0, self.settings.limit, |line| {
            Testimony::parse(line).filter(|testimony| testimony.session == session)
        });
        // A load that was killed before it could say anything is none to the witness.
        let testimony = found.ok_or_else(|| {
            let said = self.witness.stderr();
            Wrong::expected(
                format!("the witness to tell of session {session}"),
                format!("this:{said}"),
            )
        })?;
        self.counts += testimony.counts;
        self.told = session;
        self.is_read_back = testimony.ended_well && testimony.counts.failed == 0;
        match &testimony.violation {
            Some(violation) => Err(Wrong::new(violation.clone())),
            None => Ok(testimony),
        }
    }

    /// What was wrong: what the witness has seen, if it has, because a load that it hangs up on fails too.
    pub(super) fn explain(&mut self, wrong: Wrong) -> Wrong {
        let seen = self.witness.find_line(0, MOMENT, |line| {
            Testimony::parse(line).filter(|testimony| testimony.violation.is_some())
        });
        match seen {
            Some(testimony) if self.told < testimony.session => {
                self.counts += testimony.counts;
                Wrong::new(testimony.violation.unwrap_or_default())
            }
            _ => wrong,
        }
    }

    /// Whatever the last session has read does not count.
    pub(super) fn read_back_again(&mut self) {
        self.is_read_back = false;
    }

    /// Reads all blocks back, unless the last session has ended so; tries until somebody serves it, within the limit.
    pub(super) fn repair(&mut self, deployment: &mut Deployment<'_>) -> Result<Counts, Wrong> {
        let mut counts = Counts::default();
        let deadline = Instant::now() + self.settings.limit;
        while !self.is_read_back {
            deployment.start()?;
            let load = self.start(deployment, Task::ReadBack, Mischief::None)?;
            let (session, limit) = (load.session, self.settings.limit);
            while !has_ended(&load.process) && !load.is(Stage::Ending) && Instant::now() < deadline
            {
                std::thread::sleep(TICK);
            }
            if load.is(Stage::Ending) {
                // The next fault finds everybody as they should be.
                deployment.wait_for("all targets are whole", |state| state == Redundancy::Whole)?;
            }
            load.process.signal(Signal::TERM);
            let said = load.process.stderr();
            end_of(load.process, limit).during("read-back")?;
            counts += self.testimony(session)?.counts;
            deployment.inspect()?;
            if !self.is_read_back && Instant::now() > deadline {
                return Err(Wrong::expected(
                    format!("all blocks to be read back within {limit:?}"),
                    format!("this:{said}"),
                ));
            }
        }
        self.cut_off = false;
        Ok(counts)
    }

    /// Writes all blocks once.
    pub(super) fn fill(&mut self, deployment: &mut Deployment<'_>) -> Result<(), Wrong> {
        deployment.start()?;
        let load = self.start(deployment, Task::Fill, Mischief::None)?;
        let (session, said) = (load.session, load.process.stderr());
        end_of(load.process, self.settings.limit).during("first writes")?;
        let testimony = self.testimony(session)?;
        Wrong::unless(
            testimony.ended_well && testimony.counts.failed == 0,
            "all blocks to be written",
            format!("{testimony:?}, and it said{said}"),
        )
    }

    /// Sends a stranger to the service.
    pub(super) fn intrude(&self, deployment: &Deployment<'_>, seed: u64) -> Result<(), Wrong> {
        let stranger = Stranger {
            channel: deployment.scene.channel().to_owned(),
            device: HOST_DEVICE.to_owned(),
            seed,
        };
        let mut command = (self.actors.stranger)(&stranger);
        deployment.scene.place(&mut command);
        let process = Process::spawn_logged("stranger", command, deployment.log("stranger")?)?;
        end_of(process, self.settings.limit).during("stranger")?;
        Ok(())
    }
}
