//! R3: two services, each with its own front end, that contend for the targets of one set.

use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::Part;
use deployment::process::{Process, Signal};

use super::Attack;
use super::client::{Load, Mix, Storage};
use super::run::Run;
use crate::faults::relay::{End, FaultyLine};
use crate::processes::end_of;
use crate::violation::{During as _, Violation};

pub(super) const ATTACKS: &[Attack] = &[Attack::new(
    "R3",
    "two-services",
    "Two services with clients contend for a set while they are stopped, killed or cut off, and targets restart: nothing goes back, and one service alone gets the set back.",
    two_services,
)];

/// Time in which the set must come back to the only service left: longer than its timeouts.
const RETURN: Duration = Duration::from_secs(60);
/// Time after which a process that has exited is started again.
const RESTART: Duration = Duration::from_millis(200);
/// Time in which a process must exit.
const EXIT: Duration = Duration::from_secs(30);

/// A service and its front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// That of the deployment.
    First,
    Second,
}

/// A fault of the contention. Processes that have exited are started again after it.
#[derive(Debug, Clone, Copy)]
enum Fault {
    StopService,
    KillService,
    TerminateService,
    KillFrontEnd,
    /// The front end is terminated, killed if it does not exit, and started later: the other service may use the set
    /// meanwhile.
    HandOver,
    /// Connections to one or two targets.
    Cut,
    RestartTargets,
    /// The service is stopped while targets are restarted, and finds them in use by the other one.
    RestartWhileStopped,
    /// The connections of a service to some targets are cut for as long as these are restarted.
    RestartWhileCut,
}

const FAULTS: [Fault; 9] = [
    Fault::StopService,
    Fault::KillService,
    Fault::TerminateService,
    Fault::KillFrontEnd,
    Fault::HandOver,
    Fault::Cut,
    Fault::RestartTargets,
    Fault::RestartWhileStopped,
    Fault::RestartWhileCut,
];

/// The second service.
struct Second {
    socket: PathBuf,
    storage: Storage,
    service: Option<Process>,
    front_end: Option<Process>,
    starts: u32,
}

impl Second {
    fn new(run: &Run<'_>) -> Self {
        let socket = run.deployment.sandbox.path("second.socket");
        Self {
            storage: run.storage.at(socket.clone()),
            socket,
            service: None,
            front_end: None,
            starts: 0,
        }
    }

    fn process(&mut self, part: Part) -> &mut Option<Process> {
        match part {
            Part::FrontEnd => &mut self.front_end,
            _ => &mut self.service,
        }
    }

    /// Starts the processes that are not running, without waiting until they are ready.
    fn spawn(&mut self, run: &Run<'_>, line: &FaultyLine) -> Result<(), Violation> {
        let (service, front_end) =
            run.setup
                .second_service(&run.deployment, line.ports(), &self.socket)?;
        self.spawn_part(run, Part::Service, service)?;
        self.spawn_part(run, Part::FrontEnd, front_end)
    }

    fn spawn_part(&mut self, run: &Run<'_>, part: Part, command: Command) -> Result<(), Violation> {
        if let Some(ended) = self.process(part).take_if(|it| it.has_ended()) {
            end_of(ended, EXIT).during("second service")?;
        }
        if self.process(part).is_some() {
            return Ok(());
        }
        self.starts += 1;
        let (name, file) = match part {
            Part::FrontEnd => ("second front end", "second_front_end"),
            _ => ("second service", "second_service"),
        };
        let log = run
            .deployment
            .sandbox
            .log(&format!("{file}-{}", self.starts))?;
        let process = Process::spawn_logged(name, command, log)?;
        *self.process(part) = Some(process);
        Ok(())
    }

    fn signal(&mut self, part: Part, signal: Signal) {
        if let Some(process) = self.process(part) {
            process.signal(signal);
        }
    }

    fn end(&mut self, part: Part, signal: Signal) -> Result<(), Violation> {
        self.signal(part, signal);
        match self.process(part).take() {
            Some(process) => end_of(process, EXIT).map(drop),
            None => Ok(()),
        }
    }
}

/// Both services, and a relay between each and the targets.
struct Contest<'r, 'a> {
    run: &'r mut Run<'a>,
    second: Second,
    lines: [FaultyLine; 2],
    /// A port without a listener.
    nowhere: u16,
}

impl Contest<'_, '_> {
    fn line(&self, side: Side) -> &FaultyLine {
        &self.lines[usize::from(side == Side::Second)]
    }

    fn any_side(&mut self) -> Side {
        [Side::First, Side::Second][self.run.rng.usize(..2)]
    }

    fn any_targets(&mut self, most: usize) -> Vec<usize> {
        let mut targets: Vec<usize> = (0..self.run.form().targets()).collect();
        self.run.rng.shuffle(&mut targets);
        targets.truncate(self.run.rng.usize(1..=most));
        targets
    }

    /// Starts all processes that are not running, without waiting until those of the services are ready.
    fn spawn_all(&mut self) -> Result<(), Violation> {
        self.spawn_first()?;
        self.second.spawn(self.run, &self.lines[1])
    }

    /// As [`Self::spawn_all`], without the second service.
    fn spawn_first(&mut self) -> Result<(), Violation> {
        for target in 0..self.run.form().targets() {
            self.run.start_part(Part::Target(target))?;
        }
        for part in [Part::Service, Part::FrontEnd] {
            let process = self.run.deployment.process(part);
            if process.is_some_and(Process::has_ended) {
                self.run.deployment.wait(part)?;
            }
            if self.run.deployment.process(part).is_none() {
                self.run.spawn(part)?;
            }
        }
        Ok(())
    }

    /// Starts processes that have exited, for a time, as an operator's supervisor does.
    fn supervise(&mut self, milliseconds: Range<u64>) -> Result<(), Violation> {
        let time = Duration::from_millis(self.run.rng.u64(milliseconds));
        let began = Instant::now();
        loop {
            self.spawn_all()?;
            if began.elapsed() >= time {
                return Ok(());
            }
            std::thread::sleep(RESTART);
        }
    }

    fn signal(&mut self, side: Side, part: Part, signal: Signal) {
        match side {
            Side::First => self.run.deployment.signal(part, signal),
            Side::Second => self.second.signal(part, signal),
        }
    }

    /// Sends a signal, and waits for the exit.
    fn end(&mut self, side: Side, part: Part, signal: Signal) -> Result<(), Violation> {
        match side {
            Side::First => Ok(self.run.deployment.end(part, signal).map(drop)?),
            Side::Second => self.second.end(part, signal),
        }
    }

    fn restart(&mut self, targets: &[usize]) -> Result<(), Violation> {
        let parts: Vec<Part> = targets.iter().map(|&it| Part::Target(it)).collect();
        self.run.deployment.kill(&parts)?;
        for part in parts {
            self.run.sleep(0..400);
            self.run.start_part(part)?;
        }
        Ok(())
    }

    fn cut(&self, side: Side, targets: &[usize]) {
        let line = self.line(side);
        for &target in targets {
            line.redirect(target as u32, self.nowhere);
            line.cut(target as u32, End::Reset);
        }
    }

    fn reconnect(&self, side: Side, targets: &[usize]) {
        for &target in targets {
            let port = self.run.deployment.ports()[target];
            self.line(side).redirect(target as u32, port);
        }
    }

    fn inject(&mut self, fault: Fault, side: Side) -> Result<(), Violation> {
        match fault {
            Fault::StopService => {
                self.signal(side, Part::Service, Signal::STOP);
                self.run.sleep(0..3000);
                self.signal(side, Part::Service, Signal::CONT);
            }
            Fault::KillService => self.end(side, Part::Service, Signal::KILL)?,
            Fault::TerminateService => self.end(side, Part::Service, Signal::TERM)?,
            Fault::KillFrontEnd => self.end(side, Part::FrontEnd, Signal::KILL)?,
            Fault::HandOver => {
                // It completes its I/Os first, which may wait for as long as the other service uses the set.
                self.signal(side, Part::FrontEnd, Signal::TERM);
                self.run.sleep(500..4000);
                self.end(side, Part::FrontEnd, Signal::KILL)?;
            }
            Fault::Cut => {
                let targets = self.any_targets(2);
                self.cut(side, &targets);
                self.run.sleep(0..3000);
                self.reconnect(side, &targets);
            }
            Fault::RestartTargets => {
                let targets = self.any_targets(3);
                self.restart(&targets)?;
            }
            Fault::RestartWhileStopped => {
                self.signal(side, Part::Service, Signal::STOP);
                let targets = self.any_targets(3);
                self.restart(&targets)?;
                self.run.sleep(0..4000);
                self.signal(side, Part::Service, Signal::CONT);
            }
            Fault::RestartWhileCut => {
                let targets = self.any_targets(2);
                self.cut(side, &targets);
                self.restart(&targets)?;
                self.run.sleep(0..3000);
                self.reconnect(side, &targets);
            }
        }
        Ok(())
    }
}

fn two_services(run: &mut Run<'_>) -> Result<(), Violation> {
    let lines = [
        FaultyLine::start(run.deployment.ports())?,
        FaultyLine::start(run.deployment.ports())?,
    ];
    run.setup.reached = Some(lines[0].ports().to_vec());
    run.start()?;
    run.fill()?;
    let second = Second::new(run);
    let nowhere = run.deployment.sandbox.port()?;
    let loads = [
        run.load(Mix::USUAL),
        Load::start(&second.storage, Mix::USUAL, run.rng.u64(..)),
    ];
    let mut contest = Contest {
        run,
        second,
        lines,
        nowhere,
    };
    loads[0].wait_for(10, "before the second service")?;
    contest.spawn_all()?;
    contest.supervise(500..2000)?;
    expect_refused(&loads[0], &loads[1])?;
    // A front end that has had a session waits for the next one; one that was refused exits.
    contest.end(Side::First, Part::Service, Signal::TERM)?;
    contest.second.spawn(contest.run, &contest.lines[1])?;
    let began = Instant::now();
    while loads[1].done() == 0 {
        Violation::unless(
            began.elapsed() < RETURN,
            "the second service to use the set after the first one was terminated",
            "no I/O of its clients",
        )?;
        contest.run.sleep(50..200);
        contest.second.spawn(contest.run, &contest.lines[1])?;
    }
    contest.spawn_all()?;
    contest.supervise(500..2000)?;
    expect_refused(&loads[1], &loads[0])?;
    let mut story = Vec::new();
    for _ in 0..contest.run.rng.usize(3..9) {
        let fault = FAULTS[contest.run.rng.usize(..FAULTS.len())];
        let side = contest.any_side();
        let done = [&loads[0], &loads[1]].map(Load::done);
        story.push(format!("{fault:?} of {side:?} after {done:?} I/Os"));
        contest.inject(fault, side).during(format!("{story:?}"))?;
        contest.supervise(0..2500).during(format!("{story:?}"))?;
        let wrong = contest.run.storage.wrong();
        wrong.map_or(Ok(()), Err).during(format!("{story:?}"))?;
    }
    alone(contest, loads).during(format!("{story:?}"))
}

/// Fails if clients of another service are served, or those of the set's user are not.
fn expect_refused(user: &Load, other: &Load) -> Result<(), Violation> {
    let before = other.done();
    let when = "beside another service";
    user.wait_for(10, when)?;
    user.expect_no_error(when)?;
    let further = other.done() - before;
    Violation::unless(
        further == 0,
        "a service to be refused while another one uses the set",
        format!("{further} I/Os of its clients"),
    )
}

/// Ends the second service: the set must come back to the first one.
fn alone(mut contest: Contest<'_, '_>, loads: [Load; 2]) -> Result<(), Violation> {
    let signal = [Signal::KILL, Signal::TERM][contest.run.rng.usize(..2)];
    // The front end of a service that is gone would wait for it.
    contest.end(Side::Second, Part::FrontEnd, Signal::KILL)?;
    contest.end(Side::Second, Part::Service, signal)?;
    let [first, second] = loads;
    second.stop()?;
    let is_restarted = contest.run.rng.bool();
    if is_restarted {
        contest.end(Side::First, Part::Service, signal)?;
    }
    let when = format!("with one service left, restarted: {is_restarted}");
    let began = Instant::now();
    let expect_in_time = |got: &str| {
        let expected = format!("the set to come back within {RETURN:?} {when}");
        Violation::unless(began.elapsed() < RETURN, expected, got)
    };
    // A front end that was refused before may have exited.
    contest.spawn_first()?;
    while contest.run.storage.connect_within(RESTART)?.is_none() {
        expect_in_time("no front end that accepts connections")?;
        contest.spawn_first()?;
    }
    let run = contest.run;
    loop {
        let failed = run.failed_reads().during(&when)?;
        if failed.is_empty() {
            break;
        }
        expect_in_time(&format!("I/O errors of the blocks {failed:?}"))?;
    }
    first.stop()?;
    run.wait_until_whole().during(&when)?;
    let load = run.load(Mix::USUAL);
    load.wait_for(30, &when)?;
    load.expect_no_error(&when)?;
    load.stop()?;
    run.read_all(&when)?;
    run.read_without_each(&when)
}
