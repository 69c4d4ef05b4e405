//! Sessions of the load, one after the other, and what the witness says of each.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::deployment::{Deployment, TICK, end_of, has_ended};
use super::ledger::Counts;
use super::load::{Load, Mischief, Stage, Task};
use super::redundancy::Redundancy;
use super::run::{Actors, Settings};
use super::stranger::Stranger;
use super::witness::{Testimony, Witness};
use crate::process::{Process, Signal};
use crate::role::{During as _, Wrong};
use crate::scene::{HOST_DEVICE, Scene};

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
