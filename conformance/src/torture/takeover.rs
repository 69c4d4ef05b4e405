//! S5: a service takes the targets of another one over, whatever state that one is in.
//!
//! Two services, each with a front end and clients that never stop trying, take over from each other. From the moment
//! at which the new one says that it is ready, the oracle [fences](super::oracle::Oracle::fence) the front end of the
//! earlier one: what its clients do must have no effect, and no I/O that they start may complete.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::log::{self, LogEvent, waits_for_initiator};
use deployment::process::{Process, Signal};
use deployment::{Part, Redundancy};
use fastrand::Rng;
use serde_json::Value;

use super::client::{Client, Load, Mix, Storage};
use super::run::{Run, expect_done};
use super::{Attack, Pause};
use crate::faults::relay::{End, FaultyLine};
use crate::matrix::Layout;
use crate::processes::{TICK, end_of, joined};
use crate::violation::{During as _, Violation};

const ZERO_COPY: &[Layout] = &[Layout::ZeroCopy];
const BOTH: &[Layout] = &Layout::ALL;

pub(super) const ATTACKS: &[Attack] = &[
    Attack::new(
        "S5",
        "takeover-of-one-target",
        "A second service takes the only target over from one that is serving, stopped, killed, terminated or cut off, and resumed later: nothing that its clients do has an effect.",
        |run| take_over(run, 2, false),
    )
    .on(ZERO_COPY)
    .quick(),
    Attack::new(
        "S5",
        "takeover-of-a-set",
        "The same with the three targets of a set.",
        |run| take_over(run, 2, false),
    )
    .quick(),
    Attack::new(
        "S5",
        "takeover-from-one-without-the-flag",
        "The earlier service was started without --takeover, and has reserved nothing.",
        |run| take_over_from(run, 2, false, false),
    )
    .on(BOTH),
    Attack::new(
        "S5",
        "takeover-back-and-forth",
        "Two services take over from each other several times, by new starts and by commands to those that run.",
        |run| take_over(run, 6, false),
    )
    .on(BOTH),
    Attack::new(
        "S5",
        "takeover-while-a-target-fails",
        "A target is killed, restarted or stopped before, during or after each of several takeovers: it stays reserved, and acknowledged writes are there.",
        |run| take_over(run, 4, true),
    )
    .on(BOTH),
    Attack::new(
        "S5",
        "takeover-by-both",
        "Two services take over at the same instant, with clients of both, several times: in the end, one of them is in charge, and the other one says so.",
        take_over_at_once,
    )
    .on(BOTH),
    Attack::new(
        "S5",
        "refused-without-takeover",
        "Starts services without --takeover at reserved targets, running or restarted: refused with the name of the service in charge, and no byte changes.",
        refused_without_takeover,
    )
    .on(BOTH),
    Attack::new(
        "S5",
        "takeover-and-power-failure",
        "Fails the power of all targets during or after a takeover, while the earlier service waits: its clients are refused afterwards, too, and flushed writes are there.",
        take_over_and_fail_power,
    )
    .on(BOTH)
    .with_machines(),
];

/// Time in which a service must be ready, refuse an initiator, or report that another one has taken over.
const LIMIT: Duration = Duration::from_secs(60);
/// Time in which a process must exit.
const EXIT: Duration = Duration::from_secs(30);
/// Time in which one of two services that took over at the same instant must be in charge.
const SETTLED: Duration = Duration::from_secs(20);
/// Time for which exactly one service must stay in charge.
const STABLE: Duration = Duration::from_millis(1500);
/// Clients whose writes may be repeated by their front end after another one has written the same blocks: whole blocks
/// only, because parts are written by reading, changing and writing a block.
const WHOLE: Mix = Mix { parts: 0, ..BUSY };
/// Clients with more I/Os in flight than usual.
const BUSY: Mix = Mix {
    clients: 8,
    ..Mix::USUAL
};

/// A service with its front end, and the clients of these.
struct Head {
    channel: String,
    socket: PathBuf,
    control: PathBuf,
    storage: Storage,
    line: FaultyLine,
    service: Option<Process>,
    front_end: Option<Process>,
    load: Option<Load>,
    /// `true` if the service was started with `--takeover`, or was told to take over.
    reserves: bool,
    /// Log of the service since its last start.
    log: PathBuf,
    /// Number of lines that the service had logged before its last takeover.
    lines: usize,
    starts: u32,
}

impl Head {
    fn new(run: &Run<'_>, index: usize) -> Result<Self, Violation> {
        let sandbox = &run.deployment.sandbox;
        let storage = if index == 0 {
            run.storage.clone()
        } else {
            run.storage.at(sandbox.path("second.socket"))
        };
        let name = ["first", "second"][index];
        Ok(Self {
            channel: format!("{}-{name}", sandbox.channel()),
            socket: storage.socket.clone(),
            control: sandbox.path(&format!("{name}.control")),
            storage,
            line: FaultyLine::start(run.deployment.ports())?,
            service: None,
            front_end: None,
            load: None,
            reserves: false,
            log: PathBuf::new(),
            lines: 0,
            starts: 0,
        })
    }

    fn spawn(
        &mut self,
        run: &Run<'_>,
        name: &'static str,
        command: Command,
    ) -> Result<(Process, PathBuf), Violation> {
        self.starts += 1;
        let file = format!(
            "{}-{}-{}",
            self.channel,
            name.replace(' ', "_"),
            self.starts
        );
        let sandbox = &run.deployment.sandbox;
        let process = Process::spawn_logged(name, command, sandbox.log(&file)?)?;
        Ok((process, sandbox.path(&format!("{file}.log"))))
    }

    fn spawn_service(&mut self, run: &Run<'_>, takes_over: bool) -> Result<(), Violation> {
        let ports = self.line.ports();
        let mut command = run
            .setup
            .service_at(&run.deployment, ports, &self.channel)?;
        command.arg("--control-socket").arg(&self.control);
        if takes_over {
            command.arg("--takeover");
        }
        let (process, log) = self.spawn(run, "service", command)?;
        self.lines = 0;
        self.reserves = takes_over;
        self.log = log;
        self.service = Some(process);
        Ok(())
    }

    fn front_end_command(&self, run: &Run<'_>, socket: &Path) -> Command {
        let deployment = &run.deployment;
        run.setup.front_end_at(deployment, socket, &self.channel)
    }

    /// Starts the front end, unless it is running.
    fn spawn_front_end(&mut self, run: &Run<'_>) -> Result<(), Violation> {
        if let Some(ended) = self.front_end.take_if(|it| it.has_ended()) {
            end_of(ended, EXIT).during("front end")?;
        }
        if self.front_end.is_none() {
            let command = self.front_end_command(run, &self.socket);
            let (process, _) = self.spawn(run, "front end", command)?;
            self.front_end = Some(process);
        }
        Ok(())
    }

    /// Starts the front end until it serves: it exits if the service refuses it or has lost its targets.
    fn serve(&mut self, run: &Run<'_>) -> Result<Client, Violation> {
        let began = Instant::now();
        loop {
            self.spawn_front_end(run)?;
            if let Some(client) = self.storage.connect_within(Duration::from_millis(200))? {
                return Ok(client);
            }
            let expected = format!("a front end of {} to serve within {LIMIT:?}", self.channel);
            Violation::unless(began.elapsed() < LIMIT, expected, "none")?;
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(service) = &self.service {
            service.signal(signal);
        }
    }

    fn is_running(&self) -> bool {
        self.service.as_ref().is_some_and(|it| !it.has_ended())
    }

    fn end_service(&mut self, signal: Signal) -> Result<(), Violation> {
        self.signal(signal);
        match self.service.take() {
            Some(service) => end_of(service, EXIT).map(drop).during("service"),
            None => Ok(()),
        }
    }

    /// Kills the front end, and waits until its clients have noticed.
    fn kill_front_end(&mut self) -> Result<(), Violation> {
        if let Some(front_end) = self.front_end.take() {
            front_end.signal(Signal::KILL);
            end_of(front_end, EXIT).during("front end")?;
        }
        let began = Instant::now();
        while self.pending_writes() > 0 {
            Violation::unless(
                began.elapsed() < LIMIT,
                "connections to end with their front end",
                "writes in flight",
            )?;
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn pending_writes(&self) -> usize {
        let front_end = self.storage.front_end();
        self.storage.oracle().pending_writes(front_end)
    }

    fn cut(&self, targets: &[usize], nowhere: u16) {
        for &target in targets {
            self.line.redirect(target as u32, nowhere);
            self.line.cut(target as u32, End::Reset);
        }
    }

    fn reconnect(&self, run: &Run<'_>) {
        for (target, port) in (0..).zip(run.deployment.ports()) {
            self.line.redirect(target, *port);
        }
    }

    /// Waits until the service says that it is ready, after its last start or command.
    fn wait_until_ready(&self) -> Result<(), Violation> {
        let ready = self
            .service
            .as_ref()
            .and_then(|it| it.find_line(self.lines, LIMIT, waits_for_initiator));
        let log = || self.service.as_ref().map(Process::stderr);
        ready.ok_or_else(|| {
            Violation::expected(
                format!(
                    "{} to be ready within {LIMIT:?} after its takeover",
                    self.channel
                ),
                log().unwrap_or_default(),
            )
        })
    }

    /// Executes a command of `doca-storage set`; `None` if the service does not answer it.
    fn command(&self, run: &Run<'_>, words: &[&str]) -> Result<Option<Value>, Violation> {
        let mut command = run.setup.control(words, &self.control);
        let output = command.arg("--json").output()?;
        if !output.status.success() {
            return Ok(None);
        }
        let answer = serde_json::from_slice(&output.stdout);
        answer
            .map(Some)
            .map_err(|error| Violation::new(format!("set {words:?}: {error}")))
    }

    /// Text with which the service reports that another one has taken over; empty if it is in charge. `None` if it
    /// does not answer.
    fn fenced_by(&self, run: &Run<'_>) -> Result<Option<String>, Violation> {
        let Some(status) = self.command(run, &["status"])? else {
            return Ok(None);
        };
        let reservation = &status["reservation"];
        Violation::unless(
            reservation.is_object() || !self.reserves,
            "a status with a reservation",
            &status,
        )?;
        let text = reservation["fenced"].as_str().unwrap_or("");
        Ok(Some(text.to_owned()))
    }

    /// The service has to report that the one with this channel has taken over.
    fn expect_fenced_by(&self, run: &Run<'_>, channel: &str) -> Result<(), Violation> {
        let began = Instant::now();
        loop {
            let text = self.fenced_by(run)?.unwrap_or_default();
            if text.contains(&format!("{channel} ")) {
                return Ok(());
            }
            Violation::unless(
                began.elapsed() < LIMIT,
                format!("{} to report that {channel} has taken over", self.channel),
                format!("{text:?}"),
            )?;
            std::thread::sleep(TICK * 10);
        }
    }

    /// A further front end of the service must be refused, with the name of the service in charge.
    fn expect_refusal(&mut self, run: &Run<'_>, channel: &str) -> Result<(), Violation> {
        let began = Instant::now();
        let socket = run.deployment.sandbox.path("refused.socket");
        let _ = std::fs::remove_file(&socket);
        loop {
            let command = self.front_end_command(run, &socket);
            let (mut front_end, log) = self.spawn(run, "refused front end", command)?;
            let mut is_serving = false;
            while !front_end.has_ended() && !is_serving && began.elapsed() < LIMIT {
                let log = std::fs::read_to_string(&log).unwrap_or_default();
                is_serving = log.contains("Serving ");
                std::thread::sleep(TICK);
            }
            front_end.signal(Signal::KILL);
            front_end.wait(Instant::now() + EXIT);
            front_end.drain(Duration::from_secs(2));
            let text = front_end.stderr();
            Violation::unless(
                !is_serving,
                format!("{} to refuse initiators", self.channel),
                "a front end that serves",
            )?;
            if text.contains(&format!("{channel} ")) {
                return Ok(());
            }
            // Its own front end may be connected at that moment, and a further one is refused for that reason.
            Violation::unless(
                began.elapsed() < LIMIT,
                format!(
                    "{} to refuse initiators with the name {channel}",
                    self.channel
                ),
                text,
            )?;
            std::thread::sleep(TICK * 40);
        }
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        for process in [&self.service, &self.front_end].into_iter().flatten() {
            // One that is stopped would not react to SIGTERM.
            process.signal(Signal::KILL);
        }
    }
}

/// State of the earlier service during a takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Serving,
    /// Stopped before the takeover, and resumed after it.
    Stopped,
    /// Stopped and resumed at any moment before, during or after the takeover.
    StoppedMeanwhile,
    Killed,
    /// Terminated: I/Os in flight complete.
    Terminated,
    /// Cut off from some targets, which it reaches again after the takeover.
    CutOff,
}

const STATES: [State; 7] = [
    State::Serving,
    State::Stopped,
    State::StoppedMeanwhile,
    // Listed twice, so that it is twice as likely as the others.
    State::StoppedMeanwhile,
    State::Killed,
    State::Terminated,
    State::CutOff,
];

/// A step of the schedule of a takeover, or after it.
#[derive(Debug, Clone)]
enum Step {
    /// A signal to the earlier service.
    Signal(Signal),
    /// A signal to its front end.
    SignalFrontEnd(Signal),
    Cut(Vec<usize>),
    Reconnect,
    SignalTarget(usize, Signal),
    StartTarget(usize),
}

/// Milliseconds of each step after the start of the new service; negative before it.
type Schedule = Vec<(i64, Step)>;

struct Heads<'r, 'a> {
    run: &'r mut Run<'a>,
    heads: [Head; 2],
    /// Index of the service in charge.
    charge: usize,
    mix: Mix,
    /// `true` if front ends are not restarted: they repeat their I/Os in flight when their service takes over again.
    keeps_front_ends: bool,
    nowhere: u16,
    /// Target that may be stale.
    stale: Option<usize>,
    story: Vec<String>,
}

impl<'r, 'a> Heads<'r, 'a> {
    /// Starts the targets, the first service and its clients.
    fn start(
        run: &'r mut Run<'a>,
        mix: Mix,
        keeps_front_ends: bool,
        has_loss: bool,
        is_reserved: bool,
    ) -> Result<Self, Violation> {
        if !keeps_front_ends && !has_loss {
            // I/Os of clients of the earlier service fail soon, and the clients try again.
            run.setup.reconnect_timeout = "3";
        }
        for target in 0..run.form().targets() {
            run.start_part(Part::Target(target))?;
        }
        let nowhere = run.deployment.sandbox.port()?;
        let heads = [Head::new(run, 0)?, Head::new(run, 1)?];
        let mut heads = Self {
            run,
            heads,
            charge: 0,
            mix,
            keeps_front_ends,
            nowhere,
            stale: None,
            story: Vec::new(),
        };
        let first = &mut heads.heads[0];
        first.spawn_service(heads.run, is_reserved)?;
        first.wait_until_ready()?;
        let mut client = first.serve(heads.run)?;
        for block in 0..heads.run.form().blocks {
            heads.run.write_block(&mut client, block)?;
        }
        expect_done(&client.flush()?, "flush").during("first writes")?;
        heads.wait_until_whole().during("first writes")?;
        heads.start_load(0);
        heads.wait_for_load("before the first takeover")?;
        Ok(heads)
    }

    fn start_load(&mut self, index: usize) {
        let head = &mut self.heads[index];
        if head.load.is_none() {
            head.load = Some(Load::start(&head.storage, self.mix, self.run.rng.u64(..)));
        }
    }

    /// Waits until clients of the service in charge have completed some I/Os.
    fn wait_for_load(&mut self, when: &str) -> Result<(), Violation> {
        let count = self.run.rng.u64(5..40);
        match &self.heads[self.charge].load {
            Some(load) => load.wait_for(count, when),
            None => Ok(()),
        }
    }

    fn channel(&self, index: usize) -> String {
        self.heads[index].channel.clone()
    }

    /// Fails if a client has got a wrong result, or a process has crashed.
    fn expect_no_wrong(&self) -> Result<(), Violation> {
        self.run.storage.wrong().map_or(Ok(()), Err)
    }

    fn wait_until_whole(&self) -> Result<(), Violation> {
        let names = self.run.form().layout.targets();
        let head = &self.heads[self.charge];
        let began = Instant::now();
        loop {
            let log = std::fs::read_to_string(&head.log).unwrap_or_default();
            if Redundancy::of_log(&log, names).is_complete() {
                return Ok(());
            }
            Violation::unless(
                began.elapsed() < LIMIT && head.is_running(),
                format!("{} to report that all targets are up to date", head.channel),
                format!("{:?}", Redundancy::of_log(&log, names)),
            )?;
            std::thread::sleep(TICK);
        }
    }

    /// Steps for the state of the earlier service, and those that follow after the takeover.
    fn schedule_of_state(&mut self, state: State) -> (Schedule, Vec<Step>) {
        let rng = &mut self.run.rng;
        let at = rng.i64(-200..600);
        match state {
            State::Serving => (vec![], vec![]),
            State::Stopped => {
                let mut steps = vec![(rng.i64(-200..0), Step::Signal(Signal::STOP))];
                let mut later = vec![Step::Signal(Signal::CONT)];
                if rng.bool() {
                    let at = rng.i64(-200..200);
                    steps.push((at, Step::SignalFrontEnd(Signal::STOP)));
                    later.push(Step::SignalFrontEnd(Signal::CONT));
                }
                (steps, later)
            }
            State::StoppedMeanwhile => {
                let until = at + rng.i64(0..1200);
                let steps = [(at, Signal::STOP), (until, Signal::CONT)];
                let steps = steps.map(|(at, signal)| (at, Step::Signal(signal)));
                (steps.to_vec(), vec![])
            }
            State::Killed => (vec![(at, Step::Signal(Signal::KILL))], vec![]),
            State::Terminated => (vec![(at, Step::Signal(Signal::TERM))], vec![]),
            State::CutOff => {
                let targets = some_targets(rng, self.run.setup.form.targets());
                (vec![(at, Step::Cut(targets))], vec![Step::Reconnect])
            }
        }
    }

    /// Steps for a target that fails around a takeover.
    fn schedule_of_target(&mut self) -> (Schedule, Vec<Step>) {
        let is_set = self.run.is_set();
        // Of a set, no second target may be lost before the first one is rebuilt.
        let target = match self.stale {
            Some(target) => target,
            None => self.run.any_target(),
        };
        self.stale = Some(target);
        let rng = &mut self.run.rng;
        let at = rng.i64(-600..1000);
        let kill = (at, Step::SignalTarget(target, Signal::KILL));
        let (from, to) = if rng.bool() { (0, 400) } else { (0, 5000) };
        let until = at + rng.i64(from..to);
        match rng.u8(..3) {
            0 => (
                vec![
                    (at, Step::SignalTarget(target, Signal::STOP)),
                    (until, Step::SignalTarget(target, Signal::CONT)),
                ],
                vec![],
            ),
            // The new service is ready without it, and the target still reserved for the earlier one.
            1 if is_set => (vec![kill], vec![Step::StartTarget(target)]),
            _ => (vec![kill, (until, Step::StartTarget(target))], vec![]),
        }
    }

    fn execute(&mut self, old: usize, step: Step) -> Result<(), Violation> {
        match step {
            Step::Signal(signal) => self.heads[old].signal(signal),
            Step::SignalFrontEnd(signal) => {
                if let Some(front_end) = &self.heads[old].front_end {
                    front_end.signal(signal);
                }
            }
            Step::Cut(targets) => self.heads[old].cut(&targets, self.nowhere),
            Step::Reconnect => self.heads[old].reconnect(self.run),
            Step::SignalTarget(target, Signal::KILL) => {
                self.run.deployment.kill(&[Part::Target(target)])?;
            }
            Step::SignalTarget(target, signal) => {
                self.run.deployment.signal(Part::Target(target), signal);
            }
            Step::StartTarget(target) => self.run.start_part(Part::Target(target))?,
        }
        Ok(())
    }

    /// One takeover by the service that is not in charge.
    fn round(&mut self, has_loss: bool) -> Result<(), Violation> {
        let (old, new) = (self.charge, 1 - self.charge);
        let state = STATES[self.run.rng.usize(..STATES.len())];
        let (mut schedule, mut later) = self.schedule_of_state(state);
        if has_loss {
            let (steps, more) = self.schedule_of_target();
            schedule.extend(steps);
            later.extend(more);
        }
        let (by_command, is_slow) = self.prepare(new, has_loss)?;
        let way = if by_command { "command" } else { "start" };
        self.story.push(format!(
            "{} takes over by {way}, slow: {is_slow}, from one that is {state:?}, {schedule:?}, later {later:?}",
            self.channel(new)
        ));
        schedule.sort_by_key(|(at, _)| *at);
        self.take_over(old, new, by_command, schedule)?;
        self.charge = new;
        self.run.rng.shuffle(&mut later);
        let is_resumed_first = self.run.rng.bool();
        if is_resumed_first {
            self.execute_later(old, &mut later)?;
        }
        let when = format!("through {}", self.channel(new));
        self.read_all(&when)?;
        self.start_load(new);
        self.wait_for_load(&when)?;
        self.execute_later(old, &mut later)?;
        // Clients of the earlier service go on trying.
        self.run.sleep(100..1000);
        self.wait_for_load(&when)?;
        self.read_all(&when)?;
        self.expect_out(old, new, state)?;
        let is_patient = self.keeps_front_ends || has_loss;
        if is_patient && self.run.rng.u8(..3) == 0 {
            self.restart_in_charge()?;
        }
        if has_loss && self.run.rng.bool() {
            self.wait_until_whole()?;
            self.stale = None;
            self.read_all(&format!("{when}, with all targets"))?;
        }
        self.expect_no_wrong()
    }

    /// Kills the service in charge, and starts it again later: the earlier one must not serve meanwhile.
    fn restart_in_charge(&mut self) -> Result<(), Violation> {
        self.story.push("that one is killed".to_owned());
        let head = &mut self.heads[self.charge];
        head.end_service(Signal::KILL)?;
        self.run.sleep(0..2000);
        let head = &mut self.heads[self.charge];
        head.spawn_service(self.run, true)?;
        head.wait_until_ready()?;
        drop(head.serve(self.run)?);
        self.read_all("after the service in charge was killed and started again")?;
        self.wait_for_load("after the service in charge was killed and started again")
    }

    fn execute_later(&mut self, old: usize, later: &mut Vec<Step>) -> Result<(), Violation> {
        for step in later.drain(..) {
            self.execute(old, step)?;
            self.run.sleep(0..300);
        }
        Ok(())
    }

    /// Prepares a service and its front end for a takeover. Returns whether it is to take over by a command, and whether
    /// it reaches its targets slowly.
    fn prepare(&mut self, new: usize, has_loss: bool) -> Result<(bool, bool), Violation> {
        let head = &mut self.heads[new];
        if let Some(ended) = head.service.take_if(|it| it.has_ended()) {
            end_of(ended, EXIT).during("service")?;
        }
        let by_command = match self.run.rng.u8(..4) {
            0 | 1 if head.is_running() && head.reserves => true,
            2 => {
                head.end_service(Signal::TERM)?;
                false
            }
            _ => {
                head.end_service(Signal::KILL)?;
                false
            }
        };
        if !self.keeps_front_ends {
            head.kill_front_end()?;
        }
        // Of a set, some targets may be reserved later than others.
        let is_slow = has_loss && self.run.rng.bool();
        for target in 0..self.run.form().targets() as u32 {
            let time = match self.run.rng.u64(0..400) {
                time if is_slow => time,
                _ => 0,
            };
            head.line.delay(target, Duration::from_millis(time));
        }
        self.unfence();
        Ok((by_command, is_slow))
    }

    /// I/Os of the fenced front end may be executed from now on.
    fn unfence(&self) {
        let storage = &self.run.storage;
        match &self.heads[self.charge].load {
            Some(load) => load.while_idle(|| storage.oracle().unfence()),
            None => storage.oracle().unfence(),
        }
    }

    /// Takes over while the steps of the schedule are executed.
    fn take_over(
        &mut self,
        old: usize,
        new: usize,
        by_command: bool,
        schedule: Schedule,
    ) -> Result<(), Violation> {
        let mut steps = schedule.into_iter().peekable();
        let first = steps.peek().map_or(0, |(at, _)| *at).min(0);
        let start = Instant::now() + Duration::from_millis(first.unsigned_abs());
        while let Some((at, step)) = steps.next_if(|(at, _)| *at < 0) {
            sleep_until(start, at);
            self.execute(old, step)?;
        }
        sleep_until(start, 0);
        let began = Instant::now();
        let head = &mut self.heads[new];
        if by_command {
            head.lines = head.service.as_ref().map_or(0, Process::line_count);
            head.reserves = true;
            let answer = head.command(self.run, &["takeover"])?;
            Violation::unless(
                answer.is_some(),
                format!("{} to accept the command to take over", head.channel),
                "an error",
            )?;
        } else {
            head.spawn_service(self.run, true)?;
        }
        // The moment at which it says that it is ready must not be missed because of the schedule.
        let Some(service) = head.service.take() else {
            return Err(Violation::new("the service is not running"));
        };
        let (lines, storage) = (head.lines, self.run.storage.clone());
        let fenced = self.heads[old].storage.front_end();
        let watch = std::thread::spawn(move || {
            let ready = service.find_line(lines, LIMIT, waits_for_initiator);
            if ready.is_some() {
                storage.oracle().fence(fenced);
            }
            Ok((service, ready.map(|()| began.elapsed())))
        });
        let mut result = Ok(());
        for (at, step) in steps {
            if watch.is_finished() && at > 2000 {
                // Steps long after the takeover need not wait for their time.
                self.run.sleep(0..300);
            } else {
                sleep_until(start, at);
            }
            result = self.execute(old, step);
            if result.is_err() {
                break;
            }
        }
        let (service, ready) = joined(watch)?;
        let log = service.stderr();
        let head = &mut self.heads[new];
        head.service = Some(service);
        result?;
        let Some(ready) = ready else {
            return Err(Violation::expected(
                format!("{} to be ready within {LIMIT:?}", head.channel),
                log,
            ));
        };
        let mut client = head.serve(self.run)?;
        expect_done(&client.read(0, 512)?, "first read after a takeover")?;
        let read = began.elapsed();
        self.run.takeovers.push(Pause { ready, read });
        for target in 0..self.run.form().targets() as u32 {
            head.line.delay(target, Duration::ZERO);
        }
        Ok(())
    }

    fn read_all(&self, when: &str) -> Result<(), Violation> {
        self.run.read_all_of(&self.heads[self.charge].storage, when)
    }

    /// The earlier service must be out: its session has ended, and it refuses initiators.
    fn expect_out(&mut self, old: usize, new: usize, state: State) -> Result<(), Violation> {
        let channel = self.channel(new);
        let text = self.heads[new].fenced_by(self.run)?;
        Violation::unless(
            text.as_deref() == Some(""),
            format!("{channel} to report that it is in charge"),
            format!("{text:?}"),
        )?;
        let head = &mut self.heads[old];
        if matches!(state, State::Killed | State::Terminated) {
            if let Some(ended) = head.service.take() {
                end_of(ended, EXIT).during("earlier service")?;
            }
            if self.run.rng.bool() {
                // Targets refuse a service without --takeover, that is reserved for another one.
                head.spawn_service(self.run, false)?;
                head.wait_until_ready()?;
                head.expect_refusal(self.run, &channel)?;
                head.end_service(Signal::KILL)?;
            }
            return Ok(());
        }
        Violation::unless(
            head.is_running(),
            format!("{} to run on after a takeover", head.channel),
            "its exit",
        )?;
        // The status of a service without --takeover has no reservation.
        if head.reserves {
            head.expect_fenced_by(self.run, &channel)?;
        }
        if !head.reserves || self.run.rng.bool() {
            head.expect_refusal(self.run, &channel)?;
        }
        Ok(())
    }

    /// Stops the clients, and verifies all blocks.
    fn finish(&mut self) -> Result<(), Violation> {
        let (old, new) = (1 - self.charge, self.charge);
        if let Some(load) = self.heads[new].load.take() {
            load.stop()?;
        }
        self.heads[old].kill_front_end()?;
        if let Some(load) = self.heads[old].load.take() {
            load.stop()?;
        }
        self.expect_no_wrong()?;
        self.wait_until_whole()?;
        self.stale = None;
        self.read_all("in the end")?;
        if !self.run.is_set() {
            return Ok(());
        }
        let mut targets: Vec<usize> = (0..self.run.form().targets()).collect();
        self.run.rng.shuffle(&mut targets);
        for target in targets {
            self.restart_target(target, Signal::KILL)
                .during(format!("in the end, without target {target}"))?;
        }
        self.read_all("in the end")
    }

    /// Restarts a target below the service in charge; a set is used without it meanwhile.
    fn restart_target(&mut self, target: usize, signal: Signal) -> Result<(), Violation> {
        let (part, is_set) = (Part::Target(target), self.run.is_set());
        let losses = self.losses_of(target);
        self.run.deployment.end(part, signal)?;
        if is_set {
            self.read_all("without it")?;
            let storage = &self.heads[self.charge].storage;
            self.run.write_some(&mut storage.connect()?, 2)?;
            let began = Instant::now();
            while self.losses_of(target) == losses && began.elapsed() < LIMIT {
                std::thread::sleep(TICK);
            }
        }
        self.run.start_part(part)?;
        self.wait_until_whole()?;
        self.read_all("with it again")
    }

    /// Number of times that the service in charge has lost a target.
    fn losses_of(&self, target: usize) -> usize {
        let name = self.run.form().layout.targets()[target];
        let log = std::fs::read_to_string(&self.heads[self.charge].log).unwrap_or_default();
        let is_loss = |it: &LogEvent<'_>| *it == LogEvent::TargetDetached(name);
        log::events(&log).filter(is_loss).count()
    }
}

fn sleep_until(start: Instant, milliseconds: i64) {
    let offset = Duration::from_millis(milliseconds.unsigned_abs());
    let time = if milliseconds < 0 {
        start - offset
    } else {
        start + offset
    };
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}

fn some_targets(rng: &mut Rng, count: usize) -> Vec<usize> {
    let mut targets: Vec<usize> = (0..count).collect();
    rng.shuffle(&mut targets);
    targets.truncate(rng.usize(1..=count));
    targets
}

fn take_over(run: &mut Run<'_>, rounds: usize, has_loss: bool) -> Result<(), Violation> {
    take_over_from(run, rounds, has_loss, true)
}

/// `is_reserved`: whether the first service is started with `--takeover`.
fn take_over_from(
    run: &mut Run<'_>,
    rounds: usize,
    has_loss: bool,
    is_reserved: bool,
) -> Result<(), Violation> {
    let keeps_front_ends = run.rng.bool();
    let mix = if keeps_front_ends { WHOLE } else { BUSY };
    let mut heads = Heads::start(run, mix, keeps_front_ends, has_loss, is_reserved)?;
    for _ in 0..rounds {
        heads.expect(|it| it.round(has_loss))?;
    }
    heads.expect(Heads::finish)
}

impl Heads<'_, '_> {
    /// Adds the steps so far to an error.
    fn expect(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let result = step(self);
        let kept = if self.keeps_front_ends {
            "front ends stay"
        } else {
            "front ends restart"
        };
        result.during(format!("{kept}; {}", self.story.join("; then ")))
    }

    /// Both services take over at the same instant, and then one of them is in charge.
    fn round_of_both(&mut self) -> Result<(), Violation> {
        let mut ways = [false; 2];
        self.unfence();
        for (index, by_command) in ways.iter_mut().enumerate() {
            let head = &mut self.heads[index];
            *by_command = head.is_running() && self.run.rng.bool();
            if !*by_command {
                let signal = [Signal::KILL, Signal::TERM][self.run.rng.usize(..2)];
                head.end_service(signal)?;
            }
        }
        self.story
            .push(format!("both take over, by command: {ways:?}"));
        // They reach the targets in any order, so that each may reserve some of them.
        self.delay_targets(50);
        let between = self.run.rng.u64(0..3) * self.run.rng.u64(0..30);
        let order = if self.run.rng.bool() { [0, 1] } else { [1, 0] };
        let began = Instant::now();
        for (number, index) in order.into_iter().enumerate() {
            if number == 1 {
                std::thread::sleep(Duration::from_millis(between));
            }
            let head = &mut self.heads[index];
            if ways[index] {
                head.reserves = true;
                head.command(self.run, &["takeover"])?;
            } else {
                head.spawn_service(self.run, true)?;
            }
        }
        self.charge = self.settle()?;
        self.delay_targets(1);
        let ready = began.elapsed();
        let (new, old) = (self.charge, 1 - self.charge);
        self.run
            .storage
            .oracle()
            .fence(self.heads[old].storage.front_end());
        let mut client = self.heads[new].serve(self.run)?;
        expect_done(&client.read(0, 512)?, "first read after a takeover")?;
        let read = began.elapsed();
        self.run.takeovers.push(Pause { ready, read });
        let when = format!(
            "through {}, which is in charge in the end",
            self.channel(new)
        );
        self.read_all(&when)?;
        self.start_load(new);
        self.wait_for_load(&when)?;
        self.read_all(&when)?;
        let channel = self.channel(new);
        if self.run.rng.bool() {
            self.heads[old].expect_refusal(self.run, &channel)?;
        }
        self.expect_no_wrong()
    }

    /// Delays the frames between services and targets by less than this number of milliseconds each.
    fn delay_targets(&mut self, limit: u64) {
        for head in &self.heads {
            for target in 0..self.run.form().targets() as u32 {
                let time = self.run.rng.u64(..limit);
                head.line.delay(target, Duration::from_millis(time));
            }
        }
    }

    /// Waits until exactly one service is in charge, and the other one says so, for [`STABLE`]. Returns its index.
    fn settle(&mut self) -> Result<usize, Violation> {
        let began = Instant::now();
        let mut since: Option<(usize, Instant)> = None;
        loop {
            let states = [
                self.heads[0].fenced_by(self.run)?,
                self.heads[1].fenced_by(self.run)?,
            ];
            let is_in_charge = |index: usize| {
                let other = states[1 - index].as_deref().unwrap_or_default();
                states[index].as_deref() == Some("")
                    && other.contains(&format!("{} ", self.heads[index].channel))
            };
            since = match (0..2).find(|&index| is_in_charge(index)) {
                None => None,
                Some(index) => match since {
                    Some((before, time)) if before == index => Some((before, time)),
                    _ => Some((index, Instant::now())),
                },
            };
            if let Some((index, time)) = since
                && time.elapsed() >= STABLE
            {
                return Ok(index);
            }
            Violation::unless(
                began.elapsed() < SETTLED,
                format!("exactly one service to be in charge within {SETTLED:?}"),
                format!("the states {states:?}"),
            )?;
            std::thread::sleep(TICK * 10);
        }
    }
}

fn take_over_at_once(run: &mut Run<'_>) -> Result<(), Violation> {
    let rounds = run.rng.usize(2..5);
    let mut heads = Heads::start(run, WHOLE, true, false, true)?;
    heads.start_load(1);
    for _ in 0..rounds {
        heads.expect(Heads::round_of_both)?;
    }
    heads.expect(Heads::finish)
}

/// State of the service in charge while another one is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InCharge {
    Idle,
    Killed,
    Terminated,
}

fn refused_without_takeover(run: &mut Run<'_>) -> Result<(), Violation> {
    let mut heads = Heads::start(run, Mix::USUAL, false, true, true)?;
    if heads.run.rng.bool() {
        heads.expect(|it| it.round(false))?;
    }
    let (old, new) = (1 - heads.charge, heads.charge);
    heads.heads[old].kill_front_end()?;
    for index in [old, new] {
        if let Some(load) = heads.heads[index].load.take() {
            load.stop()?;
        }
    }
    for _ in 0..3 {
        let states = [InCharge::Idle, InCharge::Killed, InCharge::Terminated];
        let state = states[heads.run.rng.usize(..states.len())];
        let restarts = heads.run.rng.bool();
        heads.story.push(format!(
            "service in charge {state:?}, targets restarted: {restarts}"
        ));
        heads.expect(|it| it.refuse(state, restarts))?;
    }
    heads.expect(Heads::finish)
}

impl Heads<'_, '_> {
    /// Services without `--takeover` must be refused.
    fn refuse(&mut self, state: InCharge, restarts: bool) -> Result<(), Violation> {
        let (old, new) = (1 - self.charge, self.charge);
        self.heads[old].kill_front_end()?;
        self.heads[old].end_service(Signal::KILL)?;
        self.wait_until_whole()?;
        if state != InCharge::Idle {
            self.heads[new].kill_front_end()?;
            let signal = match state {
                InCharge::Terminated => Signal::TERM,
                _ => Signal::KILL,
            };
            self.heads[new].end_service(signal)?;
        }
        if restarts {
            for target in 0..self.run.form().targets() {
                let signal = [Signal::KILL, Signal::TERM][self.run.rng.usize(..2)];
                if state == InCharge::Idle {
                    self.restart_target(target, signal)?;
                } else {
                    let part = Part::Target(target);
                    self.run.deployment.end(part, signal)?;
                    self.run.start_part(part)?;
                }
            }
        }
        // Time for the last session to end.
        self.run.sleep(300..600);
        let before = self.run.copies()?;
        let channel = self.channel(new);
        // The service that has reserved the targets is refused as well, if it is started without the flag.
        let tried = if state != InCharge::Idle && self.run.rng.bool() {
            new
        } else {
            old
        };
        self.heads[tried].spawn_service(self.run, false)?;
        let refused = self.heads[tried].expect_refusal(self.run, &channel);
        self.heads[tried].end_service(Signal::KILL)?;
        refused?;
        self.run.sleep(0..300);
        for (target, (before, now)) in before.iter().zip(&self.run.copies()?).enumerate() {
            let differing = before.iter().zip(now).filter(|(a, b)| a != b).count();
            Violation::unless(
                before == now,
                format!("no byte of target {target} to change"),
                format!("{differing} that differ"),
            )?;
        }
        if state != InCharge::Idle {
            self.heads[new].spawn_service(self.run, true)?;
            self.heads[new].wait_until_ready()?;
            drop(self.heads[new].serve(self.run)?);
        }
        self.read_all("after a service without --takeover was refused")?;
        let mut client = self.heads[new].storage.connect()?;
        self.run.write_some(&mut client, 4).map(drop)
    }

    /// Kills all targets and the service in charge or about to take over, and loses what was not flushed.
    fn fail_power(&mut self, also: usize) -> Result<(), Violation> {
        self.heads[also].signal(Signal::KILL);
        let targets: Vec<usize> = (0..self.run.form().targets()).collect();
        let parts: Vec<Part> = targets.iter().map(|&it| Part::Target(it)).collect();
        self.run.deployment.kill(&parts)?;
        self.heads[also].end_service(Signal::KILL)?;
        self.heads[also].kill_front_end()?;
        self.run.lose_unflushed_of(&targets)?;
        for part in parts {
            self.run.sleep(0..200);
            self.run.start_part(part)?;
        }
        Ok(())
    }
}

fn take_over_and_fail_power(run: &mut Run<'_>) -> Result<(), Violation> {
    let mut heads = Heads::start(run, Mix::UNFLUSHED, false, true, true)?;
    for _ in 0..2 {
        let when: Range<u64> = [0..400, 400..3000][heads.run.rng.usize(..2)].clone();
        heads.expect(|it| it.round_with_power_failure(when))?;
    }
    heads.expect(Heads::finish)
}

impl Heads<'_, '_> {
    /// The power fails this number of milliseconds after the start of the new service.
    fn round_with_power_failure(&mut self, when: Range<u64>) -> Result<(), Violation> {
        let (old, new) = (self.charge, 1 - self.charge);
        let mut client = self.heads[old].storage.connect()?;
        let run = &mut *self.run;
        match &self.heads[old].load {
            Some(load) => load.while_idle(|| run.flush_and_remember(&mut client))?,
            None => run.flush_and_remember(&mut client)?,
        }
        drop(client);
        self.wait_for_load("after a flush")?;
        self.prepare(new, false)?;
        self.heads[new].end_service(Signal::KILL)?;
        let is_stopped = self.run.rng.bool();
        self.story.push(format!(
            "power failure {when:?} ms after {} takes over, the other one stopped: {is_stopped}",
            self.channel(new)
        ));
        if is_stopped {
            self.heads[old].signal(Signal::STOP);
        }
        self.heads[new].spawn_service(self.run, true)?;
        if when.start > 0 {
            self.heads[new].wait_until_ready()?;
            let fenced = self.heads[old].storage.front_end();
            self.run.storage.oracle().fence(fenced);
            drop(self.heads[new].serve(self.run)?);
            self.start_load(new);
        }
        self.run.sleep(when);
        self.fail_power(new)?;
        if is_stopped && self.run.rng.bool() {
            self.heads[old].signal(Signal::CONT);
            self.run.sleep(0..2000);
        }
        self.take_over(old, new, false, Vec::new())?;
        self.charge = new;
        let when = format!("through {} after a power failure", self.channel(new));
        self.read_all(&when)?;
        self.heads[old].signal(Signal::CONT);
        self.start_load(new);
        self.wait_for_load(&when)?;
        self.run.sleep(100..1500);
        self.read_all(&when)?;
        self.expect_out(old, new, State::Stopped)?;
        self.wait_until_whole()?;
        self.read_all(&when)?;
        self.expect_no_wrong()
    }
}
