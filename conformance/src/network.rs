//! Network faults: a deployment on several machines whose cables are cut, slow or lossy, during sessions that validate all reads.
//!
//! The machines are network namespaces, and each target's machine is connected to that of the service by a `Cable`: a process that forwards
//! the frames between two TAP devices and drops or delays them. A [`Run`] injects one [`Fault`] after the other while an initiator runs
//! consecutive sessions of `read_write_data_validity_test`. A session of a gga deployment must survive a fault of any target, unless it is
//! still being set up; a session of a zero-copy deployment may fail, until the target has detected after the fault that the service's former
//! connection is dead. No session may read wrong data, and a session that begins after the fault must succeed.

mod cable;
mod deployment;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::hammer::Redundancy;
use crate::report::{Case, Outcome, Report};
use crate::violation::Violation;
use ::deployment::implementation::{Implementation, Layout};
use ::deployment::process::{Process, Signal};
use deployment::Deployment;

pub(crate) use cable::Cable;
pub use cable::{Condition, relay};

/// Polling interval of all waits.
const TICK: Duration = Duration::from_millis(10);
/// An initiator's log line when its session is set up and I/Os start.
const STARTED: &str = "start_storage_request";
/// Time between the start of a session's I/Os and a fault.
const BEFORE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct Settings {
    pub implementation: Implementation,
    /// The deployments, tested one after the other; the time is divided between them.
    pub layouts: Vec<Layout>,
    /// Time after which no further faults are injected. Each fault is injected at least once.
    pub duration: Duration,
    pub faults: Vec<Fault>,
    pub blocks: u64,
    /// Number of operations per session.
    pub operations: u32,
    /// CPUs for the roles' workers, at least one.
    pub cpus: Vec<usize>,
    /// Time limit for the deployment to have full redundancy again.
    pub limit: Duration,
    /// Program and first arguments of [`relay`] as a process.
    pub cable: Vec<OsString>,
}

impl Settings {
    fn cpu(&self, role: usize) -> String {
        self.cpus[role % self.cpus.len()].to_string()
    }
}

/// Counts of sessions so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    pub faults: u64,
    /// Number of successful sessions.
    pub sessions: u64,
    /// Number of their operations: each is a write and a read.
    pub operations: u64,
    /// Number of sessions that failed and were allowed to.
    pub failed: u64,
    /// Number of blocks with wrong contents.
    pub wrong: u64,
}

/// Injections of one fault in one layout.
struct Row {
    fault: Fault,
    injected: u64,
    /// Number of times that a session continued or started without the target.
    losses: usize,
    took: Duration,
}

#[derive(Debug)]
pub struct Run {
    pub settings: Settings,
}

impl Run {
    /// Runs all layouts. `progress` is called with the next fault and the counts so far. A violation ends the run of a layout; the last value
    /// contains the directories with the files of its processes.
    pub fn run(
        &self,
        progress: &dyn Fn(&str, Summary),
        interrupted: &dyn Fn() -> bool,
    ) -> (Report, Summary, Vec<PathBuf>) {
        let (mut report, mut summary) = (Report::default(), Summary::default());
        let mut kept = Vec::new();
        let share =
            self.settings.duration / u32::try_from(self.settings.layouts.len().max(1)).unwrap_or(1);
        for &layout in &self.settings.layouts {
            let mut rows: Vec<Row> = self
                .settings
                .faults
                .iter()
                .map(|&fault| Row {
                    fault,
                    injected: 0,
                    losses: 0,
                    took: Duration::ZERO,
                })
                .collect();
            let (mut violation, mut addresses) = (None, None);
            match Deployment::start(layout, &self.settings) {
                Err(found) => violation = Some((0, found)),
                Ok(deployment) => {
                    let mut load = Load {
                        deployment,
                        settings: &self.settings,
                        initiator: None,
                        summary: &mut summary,
                        tolerance: Tolerance::None,
                        interrupted,
                    };
                    let end = Instant::now() + share;
                    for index in 0.. {
                        let at = index % rows.len();
                        let is_first_round = index < rows.len();
                        if interrupted() || !is_first_round && Instant::now() >= end {
                            break;
                        }
                        let row = &mut rows[at];
                        let target = index % load.deployment.targets();
                        progress(
                            &format!("{layout}: {} of target {target}", row.fault.name()),
                            *load.summary,
                        );
                        let begin = Instant::now();
                        match load.inject(row.fault, target) {
                            Ok(losses) => row.losses += losses,
                            Err(found) => {
                                violation = Some((at, found));
                                break;
                            }
                        }
                        row.injected += 1;
                        row.took += begin.elapsed();
                    }
                    if violation.is_none() && !interrupted() {
                        addresses = Some(load.deployment.check_addresses());
                        violation = load.end().err().map(|found| (rows.len() - 1, found));
                    }
                    let Load { deployment, .. } = load;
                    if violation.is_some() {
                        let Deployment { sandbox, .. } = deployment;
                        kept.push(sandbox.keep());
                    }
                }
            }
            for (at, row) in rows.into_iter().enumerate() {
                report.cases.push(case(layout, at, row, &mut violation));
            }
            report.cases.push(addresses_case(layout, addresses));
        }
        (report, summary, kept)
    }
}

fn suite(layout: Layout) -> &'static str {
    match layout {
        Layout::ZeroCopy => "network.zero_copy",
        Layout::Gga => "network.gga",
    }
}

/// Result of the check of the used addresses; `None` if the run ended before it.
fn addresses_case(layout: Layout, checked: Option<Result<usize, Violation>>) -> Case {
    let (outcome, note) = match checked {
        None => (Outcome::NotRun("the run ended before".to_owned()), None),
        Some(Err(violation)) => (Outcome::Failed(violation.to_string()), None),
        Some(Ok(seen)) => (Outcome::Passed, Some(format!("{seen} kinds of frames"))),
    };
    Case {
        meaning:
            "Nothing listens, and no frame is sent, at other addresses than those of the machines."
                .to_owned(),
        note,
        ..Case::new(suite(layout), "addresses", outcome)
    }
}

fn case(layout: Layout, at: usize, row: Row, violation: &mut Option<(usize, Violation)>) -> Case {
    let outcome = match violation.take_if(|(of, _)| *of == at) {
        Some((_, violation)) => Outcome::Failed(violation.to_string()),
        None if row.injected > 0 => Outcome::Passed,
        None => Outcome::NotRun("the run ended before".to_owned()),
    };
    let note = match layout {
        Layout::ZeroCopy => format!("{} injected", row.injected),
        Layout::Gga => format!(
            "{} injected, target detached {} times",
            row.injected, row.losses
        ),
    };
    Case {
        meaning: row.fault.meaning().to_owned(),
        note: Some(note),
        took: row.took,
        ..Case::new(suite(layout), row.fault.name(), outcome)
    }
}

/// Sessions that are currently allowed to fail, with any error except wrong data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tolerance {
    None,
    /// Sessions during set-up: once a service has accepted a target, it needs it until I/Os start.
    SetUp,
    /// All sessions: the storage has no redundancy, or its service was killed.
    All,
}

/// Sessions of initiators, one after the other.
struct Load<'a> {
    deployment: Deployment<'a>,
    settings: &'a Settings,
    initiator: Option<Process>,
    summary: &'a mut Summary,
    tolerance: Tolerance,
    interrupted: &'a dyn Fn() -> bool,
}

impl Load<'_> {
    /// Injects a fault, ends it, and waits until the deployment has full redundancy and a session has succeeded. Returns the number of times
    /// that the service has continued without the target meanwhile.
    fn inject(&mut self, fault: Fault, target: usize) -> Result<usize, Violation> {
        self.await_io()?;
        let before = (self.summary.failed, self.deployment.losses(target));
        let cuts_all = fault == Fault::ServiceReplaced;
        self.tolerance = match self.deployment.layout {
            _ if fault.is_endured() => Tolerance::None,
            Layout::Gga if !cuts_all => Tolerance::SetUp,
            Layout::ZeroCopy | Layout::Gga => Tolerance::All,
        };
        self.summary.faults += 1;
        let affected = match cuts_all {
            true => 0..self.deployment.targets(),
            false => target..target + 1,
        };
        for target in affected.clone() {
            self.deployment.set(target, fault.conditions())?;
        }
        match fault {
            Fault::TargetReplaced => {
                self.deployment.kill_target(target)?;
                self.deployment.start_target(target)?;
            }
            Fault::ServiceReplaced => self.deployment.end_service(Signal::KILL)?,
            Fault::AnotherAddress => {
                self.deployment.kill_target(target)?;
                self.deployment.change_address(target)?;
                self.deployment.start_target(target)?;
            }
            _ => {}
        }
        self.keep_on(fault.duration())?;
        if fault.must_be_noticed() {
            self.await_notice(target, before)?;
        }
        let mut losses = self.deployment.losses(target) - before.1;
        for target in affected {
            self.deployment.set(target, [Condition::GOOD; 2])?;
        }
        match fault {
            Fault::ServiceReplaced => {
                self.finish()?;
                self.deployment.start_service()?;
            }
            Fault::AnotherAddress => {
                // The target's address is in the service's flags: restart it with the new one, as an administrator would.
                self.finish()?;
                self.deployment.end_service(Signal::TERM)?;
                self.deployment.start_service()?;
            }
            _ => {}
        }
        let after = self.deployment.losses(target);
        self.recover()?;
        losses += self.deployment.losses(target) - after;
        Ok(losses)
    }

    /// Waits until the service has detected that a target is unreachable: it continues without the target or, if it has no other one, a session
    /// has failed. `before` contains the number of failed sessions and of detachments before the fault.
    fn await_notice(&mut self, target: usize, before: (u64, usize)) -> Result<(), Violation> {
        let deadline = Instant::now() + self.settings.limit;
        loop {
            let is_noticed = match self.deployment.layout {
                Layout::ZeroCopy => self.summary.failed > before.0,
                Layout::Gga => self.deployment.losses(target) > before.1,
            };
            if is_noticed || (self.interrupted)() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Violation::expected(
                    "the service to detect that a target is unreachable",
                    format!("nothing within {:?}", self.settings.limit),
                ));
            }
            self.keep_on(TICK)?;
        }
    }

    /// Waits until the deployment has full redundancy, and a session that was started after the fault has succeeded.
    fn recover(&mut self) -> Result<(), Violation> {
        let deadline = Instant::now() + self.settings.limit;
        // The session that was running during the fault.
        self.finish()?;
        // A target refuses the service until it has detected that its client, the service's connection from before the fault, is gone. A
        // session of a gga deployment begins without it.
        if self.deployment.layout == Layout::Gga {
            self.tolerance = Tolerance::None;
        }
        let before = self.summary.sessions;
        while self.summary.sessions == before || self.deployment.redundancy() != Redundancy::Whole {
            if (self.interrupted)() {
                return Ok(());
            }
            self.pump()?;
            if Instant::now() >= deadline {
                return Err(Violation::expected(
                    format!(
                        "a session to succeed with all targets online within {:?}",
                        self.settings.limit
                    ),
                    format!(
                        "{} sessions, {:?}",
                        self.summary.sessions - before,
                        self.deployment.redundancy()
                    ),
                ));
            }
            std::thread::sleep(TICK);
        }
        self.tolerance = Tolerance::None;
        Ok(())
    }

    /// Waits until the I/Os of a session have started.
    fn await_io(&mut self) -> Result<(), Violation> {
        let deadline = Instant::now() + self.settings.limit;
        let has_started = |initiator: &Process| {
            !initiator.has_ended() && initiator.lines().iter().any(|line| line.contains(STARTED))
        };
        while !self.initiator.as_ref().is_some_and(has_started) {
            if Instant::now() >= deadline {
                return Err(Violation::expected(
                    "a session to begin its I/Os",
                    "none in time",
                ));
            }
            self.keep_on(TICK)?;
            if (self.interrupted)() {
                return Ok(());
            }
        }
        self.keep_on(BEFORE)
    }

    /// Runs sessions for some time.
    fn keep_on(&mut self, time: Duration) -> Result<(), Violation> {
        let end = Instant::now() + time;
        while Instant::now() < end && !(self.interrupted)() {
            self.pump()?;
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Waits for the end of the running session.
    fn finish(&mut self) -> Result<(), Violation> {
        let deadline = Instant::now() + self.settings.limit;
        while let Some(initiator) = &mut self.initiator {
            if initiator.status().is_some() {
                return self.reap();
            }
            if Instant::now() >= deadline {
                let limit = self.settings.limit;
                return Err(Violation::expected(
                    format!("the session to end within {limit:?}"),
                    initiator.stderr(),
                ));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Starts a session if none is running, and counts a session that has ended.
    fn pump(&mut self) -> Result<(), Violation> {
        match &self.initiator {
            None => self.initiator = Some(self.deployment.initiator()?),
            Some(initiator) if initiator.has_ended() => self.reap()?,
            Some(_) => {}
        }
        match self.tolerance {
            Tolerance::All => Ok(()),
            Tolerance::None | Tolerance::SetUp => self.deployment.inspect(),
        }
    }

    fn reap(&mut self) -> Result<(), Violation> {
        let Some(initiator) = self.initiator.take() else {
            return Ok(());
        };
        let exit = initiator.into_exit();
        let report: serde_json::Value =
            serde_json::from_str(&exit.stdout).unwrap_or(serde_json::Value::Null);
        if !report["mismatch"].is_null() {
            self.summary.wrong += 1;
            return Err(Violation::expected(
                "every block to have the written contents",
                &report["mismatch"],
            ));
        }
        if exit.succeeded() {
            let counted = report["operation_count"].as_u64();
            self.summary.sessions += 1;
            self.summary.operations += counted.unwrap_or_default();
            return Violation::unless(
                counted == Some(u64::from(self.settings.operations)),
                format!("{} operations", self.settings.operations),
                format!("{counted:?}"),
            );
        }
        let may_fail = match self.tolerance {
            Tolerance::None => false,
            Tolerance::SetUp => !exit.stderr.contains(STARTED),
            Tolerance::All => true,
        };
        if may_fail {
            self.summary.failed += 1;
            return Ok(());
        }
        Err(Violation::expected(
            "the session to continue",
            format!(
                "{:?}: {}\nthe service: {}",
                exit.status,
                exit.stderr,
                self.deployment.service_log()
            ),
        ))
    }

    /// Ends the last session and all roles.
    fn end(&mut self) -> Result<(), Violation> {
        self.finish()?;
        self.deployment.end()
    }
}

// The faults of a network.

/// A fault of the network of one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The cable is cut for less than the timeout after which a peer is considered dead.
    ShortCut,
    Cut,
    /// Only frames towards the target are lost.
    CutToTarget,
    /// Only frames towards the service are lost.
    CutToService,
    /// Frames take 50 ms in each direction.
    Delay,
    /// One of 100 frames is lost in each direction.
    Loss,
    /// The target is killed and started again behind a cut cable: the service's connections are half open.
    TargetReplaced,
    /// The service is killed and started again behind cut cables: the targets' connections are half open.
    ServiceReplaced,
    /// The target's machine returns with another address.
    AnotherAddress,
}

impl Fault {
    pub const ALL: [Self; 9] = [
        Self::ShortCut,
        Self::Cut,
        Self::Delay,
        Self::CutToTarget,
        Self::Loss,
        Self::CutToService,
        Self::TargetReplaced,
        Self::AnotherAddress,
        Self::ServiceReplaced,
    ];

    /// Name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ShortCut => "short_cut",
            Self::Cut => "cut",
            Self::CutToTarget => "cut_to_target",
            Self::CutToService => "cut_to_service",
            Self::Delay => "delay",
            Self::Loss => "loss",
            Self::TargetReplaced => "target_replaced",
            Self::ServiceReplaced => "service_replaced",
            Self::AnotherAddress => "another_address",
        }
    }

    /// Description of the fault in one sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::ShortCut => "The cable to a target is cut for half a second.",
            Self::Cut => "The cable to a target is cut.",
            Self::CutToTarget => "Frames from the service to a target are lost.",
            Self::CutToService => "Frames from a target to the service are lost.",
            Self::Delay => "Frames between service and target take 50 ms in each direction.",
            Self::Loss => "One of 100 frames between service and target is lost.",
            Self::TargetReplaced => {
                "A target is killed and started again behind a cut cable: the service's connections are half open."
            }
            Self::ServiceReplaced => {
                "The service is killed and started again behind cut cables: the targets' connections are half open."
            }
            Self::AnotherAddress => {
                "A target's machine returns with another address; later the service is started with it."
            }
        }
    }

    /// Conditions towards the target and back during the fault.
    fn conditions(self) -> [Condition; 2] {
        match self {
            Self::CutToTarget => [Condition::CUT, Condition::GOOD],
            Self::CutToService => [Condition::GOOD, Condition::CUT],
            Self::Delay => [Condition::SLOW; 2],
            Self::Loss => [Condition::LOSSY; 2],
            Self::ShortCut
            | Self::Cut
            | Self::TargetReplaced
            | Self::ServiceReplaced
            | Self::AnotherAddress => [Condition::CUT; 2],
        }
    }

    /// Duration of the fault. Peers detect a cut within 3 s, unless it is shorter.
    fn duration(self) -> Duration {
        match self {
            Self::ShortCut => Duration::from_millis(500),
            _ => Duration::from_secs(5),
        }
    }

    /// Returns `true` if the fault lasts until the service has detected that the target is unreachable. A killed service cannot detect
    /// anything.
    fn must_be_noticed(self) -> bool {
        !self.is_endured() && self != Self::ServiceReplaced
    }

    /// Returns `true` if the roles must survive the fault without disconnecting or detaching a peer.
    fn is_endured(self) -> bool {
        matches!(self, Self::ShortCut | Self::Delay | Self::Loss)
    }
}
