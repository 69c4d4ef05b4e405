//! One round: a session of the load, the fault, and the checks after it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use deployment::log::LogEvent;
use deployment::process::{Process, Signal};
use deployment::sandbox::{HOST_DEVICE, Sandbox};
use deployment::{Deployment, Part};
use fastrand::Rng;

use super::load::{Intruder, Load, LoadState, Malformed, Task, malformed_control};
use super::plan::{Expectation, Fault, FaultyRole, Phase, Round};
use super::verifier::{Counts, Findings, Verifier};
use super::{Commands, Connections, Settings, load};
use crate::faults::relay::{End, Side};
use crate::matrix::Layout;
use crate::network::Condition;
use crate::processes::{TICK, end_of};
use crate::stall::StallWatch;
use crate::violation::{During as _, Violation};

/// Result of a round without a violation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Played {
    /// `true` if the load's session continued, and ended cleanly.
    pub(super) went_on: bool,
    /// `true` if the session should have continued, but the machine stalled.
    pub(super) is_stalled: bool,
    pub(super) counts: Counts,
}

/// Runs a round. Afterwards all roles serve again, and every block has been read back.
pub(super) fn play(
    deployment: &mut Deployment,
    connections: &mut Connections,
    sessions: &mut Sessions<'_>,
    round: &Round,
) -> Result<Played, Violation> {
    let mut run = RoundRun {
        deployment,
        connections,
        sessions,
        round,
        must_break: false,
        is_over: false,
        began: Instant::now(),
    };
    run.play()
}

/// Number of sessions that are started in a round, if the machine stalls while they begin.
const MOST_ATTEMPTS: usize = 5;

struct RoundRun<'a, 'b> {
    deployment: &'a mut Deployment,
    connections: &'a mut Connections,
    sessions: &'a mut Sessions<'b>,
    round: &'a Round,
    /// `true` if the load's session cannot continue.
    must_break: bool,
    /// `true` once the faulty role has been continued or replaced.
    is_over: bool,
    began: Instant,
}

impl RoundRun<'_, '_> {
    fn play(&mut self) -> Result<Played, Violation> {
        let injection = self.round.injection;
        self.deployment.start_all()?;
        let malformed = match injection.fault {
            Fault::GarbageIo => Malformed::Io,
            Fault::GarbageControl => Malformed::Control,
            _ => Malformed::None,
        };
        let load = self.begin(malformed).during("before the fault")?;
        self.reach(&load).during("before the fault")?;
        let service = self.deployment.process(Part::Service);
        let spoken = service.map_or(0, Process::line_count);
        std::thread::sleep(self.round.delay);
        self.strike(&load)?;
        let expectation = injection.expectation(self.deployment.layout());
        let (is_good, mut counts) = match expectation {
            Expectation::Survives => self.expect_to_go_on(load)?,
            Expectation::MayBreak | Expectation::MayFail => self.expect_an_end(load, spoken)?,
        };
        self.recover()?;
        self.settle()?;
        counts += self.sessions.repair(self.deployment)?;
        self.deployment.expect_servers_to_run()?;
        Ok(Played {
            went_on: is_good,
            is_stalled: expectation == Expectation::Survives && !is_good,
            counts,
        })
    }

    /// Starts a session. One that could not begin because the machine stalled is followed by another one.
    fn begin(&mut self, malformed: Malformed) -> Result<Running, Violation> {
        let limit = self.sessions.settings.limit;
        let first = match self.round.injection.phase {
            Phase::SetUp => LoadState::Known,
            _ => LoadState::Running,
        };
        let mut attempt = 0;
        loop {
            attempt += 1;
            let load = self.sessions.start(self.deployment, Task::Run, malformed)?;
            match load.wait_for(first, limit) {
                Ok(()) => return Ok(load),
                Err(violation) if attempt == MOST_ATTEMPTS || !self.has_stalled() => {
                    return Err(violation);
                }
                Err(_) => {}
            }
            // It has failed by itself.
            let _ = end_of(load.process, limit);
            self.sessions.findings(load.session)?;
            self.deployment.expect_servers_to_run()?;
        }
    }

    /// Runs another session, because a late action on a connection may affect the next session.
    fn settle(&mut self) -> Result<(), Violation> {
        if !self.round.injection.fault.is_of_connection() {
            return Ok(());
        }
        let is_settled = self.connections.line.settle(self.sessions.settings.limit);
        self.sessions.read_back_again();
        Violation::unless(
            is_settled,
            "a connection to inject the fault into",
            "nothing in time",
        )
    }

    /// Waits until the phase begins.
    fn reach(&mut self, load: &Running) -> Result<(), Violation> {
        let phase = self.round.injection.phase;
        if phase == Phase::SetUp {
            return Ok(());
        }
        self.deployment.wait_until_complete()?;
        match phase {
            Phase::SetUp | Phase::Io => {}
            Phase::End => {
                std::thread::sleep(self.round.linger / 2);
                load.process.signal(Signal::TERM);
            }
            Phase::Degraded => self.lose()?,
            Phase::Rebuilding => {
                self.lose()?;
                // So that the target misses some writes before the fault.
                std::thread::sleep(self.round.linger / 2);
                let lost = self.round.lost_before;
                self.deployment.start(Part::Target(lost))?;
                self.deployment.wait_until_online(lost)?;
            }
        }
        Ok(())
    }

    /// Makes the service detach a target before the fault, so that interrupted writes have only two chunks.
    fn lose(&mut self) -> Result<(), Violation> {
        self.sessions.cut_off = true;
        let lost = self.round.lost_before;
        self.kill_target(lost)?;
        Ok(self.deployment.wait_until_offline(lost)?)
    }

    fn kill_target(&mut self, target: usize) -> Result<(), Violation> {
        // With three chunks, two belong to the same write.
        self.sessions.cut_off |= self.deployment.layout() == Layout::ZeroCopy;
        Ok(self.deployment.kill(&[Part::Target(target)])?)
    }

    /// Index of the faulty target, which must be running.
    fn target(&self) -> usize {
        let Round {
            target,
            lost_before,
            injection,
            ..
        } = *self.round;
        if injection.phase == Phase::Degraded && target == lost_before {
            (target + 1) % self.deployment.targets()
        } else {
            target
        }
    }

    fn strike(&mut self, load: &Running) -> Result<(), Violation> {
        let (faulty, target) = (self.round.injection.faulty, self.target());
        // Roles whose failure must end the session, immediately or after a timeout.
        let is_needed = match faulty {
            FaultyRole::Load | FaultyRole::FrontEnd => false,
            FaultyRole::Service => true,
            FaultyRole::Target => self.deployment.layout() == Layout::ZeroCopy,
        };
        self.must_break = is_needed
            && self.round.injection.phase == Phase::Io
            && matches!(
                self.round.injection.fault,
                Fault::Kill
                    | Fault::Stop
                    | Fault::StopAndKill
                    | Fault::Terminate
                    | Fault::Interrupt
                    | Fault::Close
                    | Fault::Reset
                    | Fault::Cut
                    | Fault::CutToTarget
                    | Fault::CutToService
            );
        let layout = self.deployment.layout();
        if (layout, faulty) == (Layout::Gga, FaultyRole::Target)
            && self.round.injection.expectation(layout) == Expectation::MayFail
        {
            self.sessions.cut_off = true;
        }
        if let Some(conditions) = self.round.injection.fault.conditions() {
            self.connections.links.set(target, conditions)?;
        }
        let line = &self.connections.line;
        let channel = target as u32;
        match self.round.injection.fault {
            Fault::Cut | Fault::CutToTarget | Fault::CutToService => {}
            Fault::ShortCut => {
                std::thread::sleep(self.round.pause);
                self.connections.links.set(target, [Condition::GOOD; 2])?;
            }
            Fault::SlowLink | Fault::LossyLink => std::thread::sleep(self.round.pause * 4),
            Fault::None | Fault::GarbageControl | Fault::GarbageIo => {}
            Fault::Kill if faulty == FaultyRole::Target => self.kill_target(target)?,
            Fault::Kill => {
                self.signal(load, Signal::KILL);
                self.expect_end()?;
            }
            Fault::Stop | Fault::StopAndKill => self.signal(load, Signal::STOP),
            Fault::Delay => {
                self.signal(load, Signal::STOP);
                std::thread::sleep(self.round.pause);
                self.signal(load, Signal::CONT);
            }
            Fault::Terminate | Fault::Interrupt => {
                let signal = match self.round.injection.fault {
                    Fault::Terminate => Signal::TERM,
                    _ => Signal::INT,
                };
                self.signal(load, signal);
                self.expect_end()?;
            }
            Fault::Close => line.cut(channel, End::Close),
            Fault::Reset => line.cut(channel, End::Reset),
            Fault::GarbageFrame => {
                let from = match faulty {
                    FaultyRole::Target => Side::Client,
                    FaultyRole::Load | FaultyRole::Service | FaultyRole::FrontEnd => Side::Server,
                };
                let bytes = malformed_control(&mut Rng::with_seed(self.round.noise));
                line.send(channel, from, bytes);
            }
            Fault::Intruder if faulty == FaultyRole::Target => {
                load::disturb_target(self.deployment.ports()[target], self.round.noise);
            }
            Fault::Intruder => self.sessions.intrude(self.deployment, self.round.noise)?,
        }
        Ok(())
    }

    fn signal(&self, load: &Running, signal: Signal) {
        match self.part() {
            Some(part) => self.deployment.signal(part, signal),
            None => load.process.signal(signal),
        }
    }

    /// The faulty part of the deployment, unless it is the load.
    fn part(&self) -> Option<Part> {
        self.round.injection.faulty.part(self.target())
    }

    /// Waits for the exit of the faulty part.
    fn expect_end(&mut self) -> Result<(), Violation> {
        if let Some(part) = self.part() {
            self.deployment.wait(part)?;
        }
        Ok(())
    }

    /// Checks that the load continues, a detached target rejoins, and the load exits cleanly when terminated. Returns
    /// `false` if one of these fails while the machine stalled.
    fn expect_to_go_on(&mut self, load: Running) -> Result<(bool, Counts), Violation> {
        let fault = self.round.injection.fault;
        if matches!(fault, Fault::Stop | Fault::StopAndKill) || fault.is_long_cut() {
            let target = self.target();
            self.deployment.wait_until_offline(target)?;
        }
        std::thread::sleep(self.round.linger);
        self.recover()?;
        let is_asked = self.round.injection.phase == Phase::End
            || (self.round.injection.fault, self.round.injection.faulty)
                == (Fault::Terminate, FaultyRole::Load);
        if !is_asked {
            wait_until_complete(self.deployment, &load, self.sessions.settings.limit)?;
            if !load.process.has_ended() {
                load.process.signal(Signal::TERM);
            } else if !self.has_stalled() {
                return Err(load
                    .process
                    .failed("has exited, but has to continue")
                    .into());
            }
        }
        let limit = self.sessions.settings.limit;
        let (session, log) = (load.session, load.process.stderr());
        let is_good = end_of(load.process, limit).during("load")?;
        let findings = self.sessions.findings(session)?;
        let went_on = is_good && findings.ended_cleanly && findings.counts.failed == 0;
        Violation::unless(
            went_on || self.has_stalled(),
            "the load to continue without failed I/Os",
            format!("{findings:?}; its log:{log}"),
        )?;
        Ok((went_on, findings.counts))
    }

    fn has_stalled(&self) -> bool {
        self.sessions.stalls.stall_since(self.began).is_some()
    }

    /// Checks that the load's session ends, because it cannot continue or because the load is terminated.
    fn expect_an_end(&mut self, load: Running, spoken: usize) -> Result<(bool, Counts), Violation> {
        let limit = self.sessions.settings.limit;
        let injection = self.round.injection;
        if injection.faulty == FaultyRole::Load && injection.fault == Fault::StopAndKill {
            self.expect_to_be_given_up(spoken)?;
            load.process.signal(Signal::KILL);
        }
        if !self.must_break {
            std::thread::sleep(self.round.linger);
            load.process.signal(Signal::TERM);
        }
        let (session, log) = (load.session, load.process.stderr());
        let is_good = end_of(load.process, limit).during("load")?;
        let findings = self.sessions.findings(session)?;
        Violation::unless(
            !(self.must_break && is_good),
            "the load's session to break",
            "its good end",
        )?;
        let may_fail = injection.expectation(self.deployment.layout()) == Expectation::MayFail;
        Violation::unless(
            may_fail || findings.counts.failed == 0,
            "no I/O to fail as long as the session lasts",
            format!("{findings:?}, and the load said{log}"),
        )?;
        Ok((is_good && findings.ended_cleanly, findings.counts))
    }

    /// Checks that the service ends the session of a stopped load.
    fn expect_to_be_given_up(&self, spoken: usize) -> Result<(), Violation> {
        let deadline = Instant::now() + self.sessions.settings.limit;
        loop {
            let Some(service) = self.deployment.process(Part::Service) else {
                return Ok(());
            };
            let ended = service.find_line(spoken, Duration::ZERO, |line| {
                matches!(
                    LogEvent::parse(line),
                    Some(
                        LogEvent::SessionFailed(_)
                            | LogEvent::MoreSessionsFailed(_)
                            | LogEvent::SessionsFailed { .. }
                    )
                )
                .then_some(())
            });
            if ended.is_some() || service.has_ended() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Violation::expected(
                    "the service to abandon the session of a stopped load",
                    "nothing in time",
                ));
            }
            std::thread::sleep(TICK);
        }
    }

    /// Continues or kills the stopped role, and restarts roles that have exited.
    fn recover(&mut self) -> Result<(), Violation> {
        let (faulty, target) = (self.round.injection.faulty, self.target());
        let is_over = std::mem::replace(&mut self.is_over, true);
        match self.round.injection.fault {
            _ if is_over => {}
            fault if fault.conditions().is_some() => {
                self.connections.links.set(target, [Condition::GOOD; 2])?;
            }
            Fault::Stop => {
                if let Some(part) = self.part() {
                    self.deployment.signal(part, Signal::CONT);
                }
            }
            Fault::StopAndKill if faulty == FaultyRole::Target => self.kill_target(target)?,
            Fault::StopAndKill => {
                if let Some(part) = self.part() {
                    self.deployment.kill(&[part])?;
                }
            }
            _ => {}
        }
        Ok(self.deployment.start_targets()?)
    }
}

/// Waits until all targets are up to date, or the load has ended.
fn wait_until_complete(
    deployment: &Deployment,
    load: &Running,
    limit: Duration,
) -> Result<(), Violation> {
    let is_over = |it: &Deployment| it.redundancy().is_complete() || load.process.has_ended();
    Ok(deployment.wait_for_log("all targets are up to date", limit, is_over)?)
}

// Sequential sessions of the load, and the verifier's report of each.

/// Time limit for a verifier's report.
const MOMENT: Duration = Duration::from_millis(500);

/// Loads and their verifier.
pub(super) struct Sessions<'a> {
    settings: &'a Settings,
    actors: &'a Commands,
    verifier: Process,
    stalls: StallWatch,
    socket: PathBuf,
    /// Number of the last session that was started.
    number: u64,
    /// Number of the last session that was reported.
    reported: u64,
    /// `true` if writes may have been torn since the last read-back.
    pub(super) cut_off: bool,
    /// Counts of all sessions so far.
    pub(super) counts: Counts,
    /// `true` if the last session ended cleanly with all blocks read, and no write is in doubt.
    is_read_back: bool,
}

pub(super) struct Running {
    pub(super) process: Process,
    pub(super) session: u64,
}

impl Running {
    /// Returns `true` if the load has reached this state.
    fn is(&self, state: LoadState) -> bool {
        self.wait_for(state, Duration::ZERO).is_ok()
    }

    /// Waits until the load has reached this state.
    pub(super) fn wait_for(&self, state: LoadState, limit: Duration) -> Result<(), Violation> {
        let is = |line: &str| (LoadState::parse(line) == Some(state)).then_some(());
        self.process.find_line(0, limit, is).ok_or_else(|| {
            let said = self.process.stderr();
            Violation::expected(format!("the load to be {state:?}"), format!("this:{said}"))
        })
    }
}

impl<'a> Sessions<'a> {
    /// Starts the verifier.
    pub(super) fn new(
        settings: &'a Settings,
        actors: &'a Commands,
        sandbox: &Sandbox,
    ) -> Result<Self, Violation> {
        let verifier = Verifier {
            socket: sandbox.path("verifier.sock"),
            blocks: settings.blocks,
            evidence: sandbox.path("violation.json"),
        };
        let mut process = Process::spawn("verifier", (actors.verifier)(&verifier))?;
        process.wait_for("listened", settings.limit, |line| {
            line.contains("listening").then_some(())
        })?;
        Ok(Self {
            settings,
            actors,
            verifier: process,
            stalls: StallWatch::start(sandbox, &settings.cpus)?,
            socket: verifier.socket,
            number: 0,
            reported: 0,
            cut_off: false,
            counts: Counts::default(),
            is_read_back: false,
        })
    }

    /// Starts the next load.
    pub(super) fn start(
        &mut self,
        deployment: &Deployment,
        task: Task,
        malformed: Malformed,
    ) -> Result<Running, Violation> {
        self.number += 1;
        self.is_read_back = false;
        let load = Load {
            channel: deployment.sandbox.channel().to_owned(),
            device: HOST_DEVICE.to_owned(),
            verifier: self.socket.clone(),
            seed: self.settings.seed,
            session: self.number,
            layout: deployment.layout(),
            task,
            cut_off: self.cut_off,
            malformed,
            timeout: self.settings.timeout,
        };
        let mut command = (self.actors.load)(&load);
        deployment.sandbox.place(&mut command);
        let command = deployment.sandbox.on_machine_of_service(command);
        let log = deployment.sandbox.log("load")?;
        Ok(Running {
            process: Process::spawn_logged("load", command, log)?,
            session: self.number,
        })
    }

    /// Returns the verifier's report of a session that has ended.
    pub(super) fn findings(&mut self, session: u64) -> Result<Findings, Violation> {
        let found = self.verifier.find_line(0, self.settings.limit, |line| {
            Findings::parse(line).filter(|findings| findings.session == session)
        });
        // The verifier has no report of a load that was killed before its first message.
        let findings = found.ok_or_else(|| {
            let said = self.verifier.stderr();
            Violation::expected(
                format!("the verifier to report session {session}"),
                format!("this:{said}"),
            )
        })?;
        self.counts += findings.counts;
        self.reported = session;
        self.is_read_back = findings.ended_cleanly && findings.counts.failed == 0;
        match &findings.violation {
            Some(violation) => Err(Violation::new(violation.clone())),
            None => Ok(findings),
        }
    }

    /// Replaces an error by the violation that the verifier has reported, if any: a load also fails when the verifier disconnects.
    pub(super) fn explain(&mut self, violation: Violation) -> Violation {
        let seen = self.verifier.find_line(0, MOMENT, |line| {
            Findings::parse(line).filter(|findings| findings.violation.is_some())
        });
        match seen {
            Some(findings) if self.reported < findings.session => {
                self.counts += findings.counts;
                Violation::new(findings.violation.unwrap_or_default())
            }
            _ => violation,
        }
    }

    /// Discards the result of the last read-back.
    fn read_back_again(&mut self) {
        self.is_read_back = false;
    }

    /// Reads all blocks back, unless the last session has read them, and retries until that succeeds or the limit has
    /// passed.
    pub(super) fn repair(&mut self, deployment: &mut Deployment) -> Result<Counts, Violation> {
        let mut counts = Counts::default();
        let (mut began, limit) = (Instant::now(), self.settings.limit);
        while !self.is_read_back {
            let deadline = began + limit;
            deployment.start_all()?;
            let load = self.start(deployment, Task::ReadBack, Malformed::None)?;
            let session = load.session;
            while !load.process.has_ended()
                && !load.is(LoadState::Ending)
                && Instant::now() < deadline
            {
                std::thread::sleep(TICK);
            }
            if load.is(LoadState::Ending) {
                // The next fault is injected into a deployment with full redundancy. If the session ends before, because a target was slow, there is another one.
                wait_until_complete(deployment, &load, limit)?;
            }
            load.process.signal(Signal::TERM);
            let said = load.process.stderr();
            end_of(load.process, limit).during("read-back")?;
            counts += self.findings(session)?.counts;
            deployment.expect_servers_to_run()?;
            if self.is_read_back || Instant::now() <= deadline {
                continue;
            }
            if self.stalls.stall_since(began).is_none() {
                return Err(Violation::expected(
                    format!("all blocks to be read back within {limit:?}"),
                    format!("this:{said}"),
                ));
            }
            began = Instant::now();
        }
        self.cut_off = false;
        Ok(counts)
    }

    pub(super) fn fill(&mut self, deployment: &mut Deployment) -> Result<(), Violation> {
        deployment.start_all()?;
        let load = self.start(deployment, Task::Fill, Malformed::None)?;
        let (session, said) = (load.session, load.process.stderr());
        end_of(load.process, self.settings.limit).during("first writes")?;
        let findings = self.findings(session)?;
        Violation::unless(
            findings.ended_cleanly && findings.counts.failed == 0,
            "all blocks to be written",
            format!("{findings:?}, and it said{said}"),
        )
    }

    /// Connects a second client to the service.
    pub(super) fn intrude(&self, deployment: &Deployment, seed: u64) -> Result<(), Violation> {
        let intruder = Intruder {
            channel: deployment.sandbox.channel().to_owned(),
            device: HOST_DEVICE.to_owned(),
            seed,
        };
        let mut command = (self.actors.intruder)(&intruder);
        deployment.sandbox.place(&mut command);
        let command = deployment.sandbox.on_machine_of_service(command);
        let process =
            Process::spawn_logged("intruder", command, deployment.sandbox.log("intruder")?)?;
        end_of(process, self.settings.limit).during("intruder")?;
        Ok(())
    }
}
