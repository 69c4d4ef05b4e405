//! Network faults: a deployment on several machines whose cables are cut, slow or lossy, during sessions that validate all reads.
//!
//! The machines are network namespaces, and each target's machine is connected to that of the service by a `Cable`: a process that forwards
//! the frames between two TAP devices and drops or delays them. A [`Run`] injects one [`Fault`] after the other while an initiator runs
//! consecutive sessions of `read_write_data_validity_test`. A session of a gga deployment must survive a fault of any target, unless it is
//! still being set up; a session of a zero-copy deployment may fail, until the target has detected after the fault that the service's former
//! connection is dead. No session may read wrong data, and a session that begins after the fault must succeed.

mod cable;
mod links;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::implementation::{Implementation, Layout, Role};
use deployment::log::LogEvent;
use deployment::process::{Exit, Process, Signal};
use deployment::{Deployment, Part};

use crate::processes;
use crate::report::{Case, Outcome, Report};
use crate::violation::Violation;

use cable::Cable;
pub use cable::{Condition, relay};
pub(crate) use links::Links;

/// Polling interval of all waits.
const TICK: Duration = Duration::from_millis(10);
/// An initiator's log line when its session is set up and I/Os start.
const STARTED: &str = "start_storage_request";
/// Timeout of the initiator in seconds, longer than a service needs to detach a target.
const INITIATOR_TIMEOUT: &str = "30";
/// Number of lines of the service's log in a violation.
const LOG_LINES: usize = 20;
/// Time between the start of a session's I/Os and a fault.
const BEFORE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct Settings {
    pub implementation: Implementation,
    /// The deployments, which are tested one after the other; the time is divided equally between them.
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
    /// Creates the machines of a deployment, and starts its targets and its service.
    fn start(&self, layout: Layout) -> Result<(Deployment, Links), Violation> {
        let (sandbox, links) = Links::connect(layout.targets().len(), &self.cable)?;
        let size = (layout, self.blocks);
        let mut deployment =
            processes::faulty(sandbox, &self.implementation, size, &self.cpus, self.limit)?;
        deployment.set_command(Part::Initiator, self.initiator()?);
        deployment.start_targets()?;
        deployment.start(Part::Service)?;
        Ok((deployment, links))
    }

    /// Command of an initiator that validates all reads.
    fn initiator(&self) -> Result<Command, Violation> {
        let mut command = self.implementation.command(Role::Initiator)?;
        command
            .args(["--cpu", &processes::cpu(&self.cpus, 1)])
            .args(["--execution-strategy", "read_write_data_validity_test"])
            .args(["--access-order", "scattered"])
            .args(["--run-limit-operation-count", &self.operations.to_string()])
            .args(["--transaction-count", "32"])
            .args(["--control-timeout", INITIATOR_TIMEOUT])
            .args(["--io-timeout", INITIATOR_TIMEOUT])
            .args(["--output", "json"]);
        Ok(command)
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
            match self.settings.start(layout) {
                Err(found) => violation = Some((0, found)),
                Ok((deployment, links)) => {
                    let mut load = Load {
                        deployment,
                        links,
                        settings: &self.settings,
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
                        let Load {
                            links, deployment, ..
                        } = &mut load;
                        addresses = Some(links.check_addresses(&deployment.sandbox));
                        violation = load.end().err().map(|found| (rows.len() - 1, found));
                    }
                    let Load { deployment, .. } = load;
                    if violation.is_some() {
                        kept.push(deployment.keep());
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

/// Result of the check of the addresses used; `None` if the run ended before it.
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
    deployment: Deployment,
    links: Links,
    settings: &'a Settings,
    summary: &'a mut Summary,
    tolerance: Tolerance,
    interrupted: &'a dyn Fn() -> bool,
}

impl Load<'_> {
    /// Injects a fault, removes it, and waits until the deployment has full redundancy and a session has succeeded.
    /// Returns the number of times that the service has continued without the target in that time.
    fn inject(&mut self, fault: Fault, target: usize) -> Result<usize, Violation> {
        self.await_io()?;
        let before = (self.summary.failed, self.losses(target));
        let cuts_all = fault == Fault::ServiceReplaced;
        self.tolerance = match self.deployment.layout() {
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
            self.links.set(target, fault.conditions())?;
        }
        match fault {
            Fault::TargetReplaced => {
                self.deployment.kill(&[Part::Target(target)])?;
                self.deployment.start(Part::Target(target))?;
            }
            Fault::ServiceReplaced => self.deployment.kill(&[Part::Service])?,
            Fault::AnotherAddress => {
                self.deployment.kill(&[Part::Target(target)])?;
                self.links
                    .change_address(target, &mut self.deployment.sandbox)?;
                self.deployment.start(Part::Target(target))?;
            }
            _ => {}
        }
        self.keep_on(fault.duration())?;
        if fault.must_be_noticed() {
            self.await_notice(target, before)?;
        }
        let mut losses = self.losses(target) - before.1;
        for target in affected {
            self.links.set(target, [Condition::GOOD; 2])?;
        }
        match fault {
            Fault::ServiceReplaced => {
                self.finish()?;
                self.deployment.start(Part::Service)?;
            }
            Fault::AnotherAddress => {
                // The target's address is in the service's flags: the service is restarted with the new address, as an
                // administrator would do.
                self.finish()?;
                let exit = self.deployment.end(Part::Service, Signal::TERM)?;
                self.check(Part::Service, &exit)?;
                self.deployment.start(Part::Service)?;
            }
            _ => {}
        }
        let after = self.losses(target);
        self.recover()?;
        losses += self.losses(target) - after;
        Ok(losses)
    }

    /// Number of times that the service has detached a target or started a session without it.
    fn losses(&self, target: usize) -> usize {
        let target = Part::Target(target).name(self.deployment.layout());
        self.deployment.count_events(Part::Service, |event| {
            matches!(event, LogEvent::TargetDetached(name) | LogEvent::TargetMissing(name) if name == target)
        })
    }

    /// Waits until the service has detected that a target is unreachable: it continues without the target or, with a
    /// single target, a session has failed. `before` contains the number of failed sessions and of detachments before
    /// the fault.
    fn await_notice(&mut self, target: usize, before: (u64, usize)) -> Result<(), Violation> {
        let deadline = Instant::now() + self.settings.limit;
        loop {
            let is_noticed = match self.deployment.layout() {
                Layout::ZeroCopy => self.summary.failed > before.0,
                Layout::Gga => self.losses(target) > before.1,
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
        // A target refuses the service until it has detected that its client, the service's connection from before the
        // fault, has disconnected. A session of a gga deployment starts without the target.
        if self.deployment.layout() == Layout::Gga {
            self.tolerance = Tolerance::None;
        }
        let before = self.summary.sessions;
        while self.summary.sessions == before || !self.deployment.redundancy().is_complete() {
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
        let initiator = |load: &Self| {
            load.deployment
                .process(Part::Initiator)
                .is_some_and(has_started)
        };
        while !initiator(self) {
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
        match self.deployment.process(Part::Initiator) {
            Some(_) => self.reap(),
            None => Ok(()),
        }
    }

    /// Starts a session if none is running, and counts a session that has ended.
    fn pump(&mut self) -> Result<(), Violation> {
        match self.deployment.process(Part::Initiator) {
            Some(initiator) if initiator.has_ended() => self.reap()?,
            Some(_) => {}
            None => self.deployment.start(Part::Initiator)?,
        }
        match self.tolerance {
            Tolerance::All => Ok(()),
            Tolerance::None | Tolerance::SetUp => Ok(self.deployment.expect_servers_to_run()?),
        }
    }

    /// Waits for the end of the session, and counts it.
    fn reap(&mut self) -> Result<(), Violation> {
        let exit = self.deployment.wait(Part::Initiator)?;
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
        let log = self.deployment.log(Part::Service);
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        Err(Violation::expected(
            "the session to continue",
            format!("{:?}: {}\nthe service: {last}", exit.status, exit.stderr),
        ))
    }

    /// Ends the last session and all roles.
    fn end(&mut self) -> Result<(), Violation> {
        self.finish()?;
        for (part, exit) in self.deployment.stop()? {
            self.check(part, &exit)?;
        }
        self.links.expect_no_processes(&self.deployment.sandbox)
    }

    /// Fails if the service of a gga deployment has failed. Otherwise, exit status 1 is correct after a failed session, which is allowed in a
    /// zero-copy deployment, and for a target that was cut off.
    fn check(&self, part: Part, exit: &Exit) -> Result<(), Violation> {
        let may_fail = part != Part::Service || self.deployment.layout() == Layout::ZeroCopy;
        Violation::unless(
            may_fail || exit.succeeded(),
            "the service to end cleanly",
            format!(
                "{:?}: {}",
                exit.status,
                exit.stderr.lines().last().unwrap_or_default()
            ),
        )
    }
}

// The faults of a network.

/// A fault of the network of one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The cable is cut for less time than the timeout after which a peer is considered unreachable.
    ShortCut,
    Cut,
    /// Only frames towards the target are lost.
    CutToTarget,
    /// Only frames towards the service are lost.
    CutToService,
    /// Frames take 50 ms in each direction.
    Delay,
    /// Frames are lost in each direction, 1 in 100.
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
