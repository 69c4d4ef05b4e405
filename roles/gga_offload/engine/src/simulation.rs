//! Deterministic simulation of the redundancy: the real engines, sets, superblocks and assembly, driven in virtual time
//! through crashes, partitions, pauses, power failures and damage, with an oracle that knows only the promises of
//! SECURITY.md.
//!
//! A script of I/Os and faults is generated from a seed; the same script always results in the same run. Chunks go
//! through the real codec, over small blocks with real bytes. The `oracle` has its own decoder, and does not access the
//! engine: it knows which data the client wrote, which was acknowledged, flushed and returned, which faults were
//! injected, and the state of the set as shown to an operator.
//!
//! # Promises
//!
//! The ids in violations are those of SECURITY.md:
//!
//! | ids | checked |
//! | --- | --- |
//! | R2, R4, R5 | A read returns nothing but what was written as a whole. |
//! | S1, R1, R3 | A read returns nothing that an acknowledged write has replaced, or that an earlier read was newer than. |
//! | S2, R3 | The same for what was flushed, also after a power failure of all machines. |
//! | R1, R5 | With at most one member of each stripe damaged, stale or unreachable at a time, there is no I/O error, |
//! | R1, R8 | and every I/O is answered in time. |
//! | R4, R7 | Flags and targets that do not fit the set are refused, a target without its data is not taken to have it, and a copy from before a clean end is rebuilt. |
//! | R1, R8, R9 | Two current members suffice to start, a set comes back when its members do, and ends when it is told to. A target that is well is not detached. |
//! | R1, R5, R6 | A set that is shown as healthy is redundant: any two members have each block, except for silent damage that no read or scrub has met. |
//!
//! In addition, the engines never receive an event that their state does not allow, and no target runs out of slots for
//! versions.
//!
//! # Faults
//!
//! Limits belong to a stripe. In most runs at most one member of each stripe is damaged, stale or unreachable at a
//! time, except for power failures of all machines; these runs permit no I/O errors. In the other runs, several targets
//! are killed, paused or unreachable at once: I/Os may fail, but no data may be lost. Every permitted failure is
//! counted under the sentence that permits it.

mod oracle;
mod service;
mod target;
mod world;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use fastrand::Rng;
use oracle::{Excuse, Promise};
use serde::Serialize;
use world::World;

use crate::set::Summary;
use crate::statistics::EngineStatistics;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub sessions: u64,
    pub ios: u64,
    pub faults: u64,
    /// Number of uses of each excuse, by the sentence that allows it.
    pub excuses: BTreeMap<&'static str, u64>,
    /// Number of times that each state or decision was reached.
    pub reached: BTreeMap<&'static str, u64>,
}

impl Totals {
    /// Adds the totals of another run.
    pub fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.ios += other.ios;
        self.faults += other.faults;
        for (id, count) in &other.excuses {
            *self.excuses.entry(id).or_default() += count;
        }
        for (what, count) in &other.reached {
            *self.reached.entry(what).or_default() += count;
        }
    }

    /// States and decisions that no run has reached. If there are any, a campaign is too short, or its faults cannot
    /// reach them.
    #[must_use]
    pub fn unreached(&self) -> Vec<&'static str> {
        let is_missing = |what: &&&str| self.reached.get(**what).is_none_or(|&count| count == 0);
        EXPECTED.iter().filter(is_missing).copied().collect()
    }

    fn excuse(&mut self, excuse: Excuse) {
        *self.excuses.entry(excuse.id()).or_default() += 1;
    }

    fn reach(&mut self, what: &'static str) {
        self.reach_times(what, 1);
    }

    fn reach_times(&mut self, what: &'static str, times: u64) {
        *self.reached.entry(what).or_default() += times;
    }

    fn count_step(&mut self, step: Step) {
        self.reach(step.name());
    }

    fn reached_of_statistics(&mut self, statistics: &EngineStatistics) {
        let degraded = statistics.degraded.unwrap_or_default();
        self.reach_times("degraded reads", degraded.reads);
        self.reach_times("degraded writes", degraded.writes);
        self.reach_times(
            "failed chunk reads",
            degraded.failed_reads.iter().map(|it| it.0).sum(),
        );
        self.reach_times("requests that were parked in vain", degraded.impossible.0);
        self.reach_times("recovery reads", statistics.recovery_count);
        let corrected = statistics.corruption.corrected.iter().map(|it| it.0).sum();
        self.reach_times("chunks found corrupt", corrected);
        self.reach_times("lost blocks", statistics.corruption.uncorrectable.0);
    }

    fn reached_of_summary(&mut self, summary: &Summary) {
        self.reach_times("rebuilt stripes", summary.rebuilt_stripes);
        self.reach_times(
            "settled stripes, consistent",
            summary.settled_stripes.consistent,
        );
        self.reach_times(
            "settled stripes, rewritten",
            summary.settled_stripes.rewritten,
        );
        self.reach_times("repaired chunks", summary.repaired_chunks.iter().sum());
        self.reach_times("scrubs", summary.scrubbed.completed);
    }
}

/// States and decisions that every campaign of sufficient length reaches.
const EXPECTED: &[&str] = &[
    "chunks found corrupt",
    "clean end of a session",
    "copy from before a clean end",
    "degraded",
    "degraded reads",
    "degraded writes",
    "device error",
    "diverged set refused",
    "end with I/Os in flight",
    "exchanged targets refused",
    "failed",
    "failed chunk reads",
    "foreign target refused",
    "healthy",
    "lost write",
    "misdirected write",
    "older version read",
    "other block size refused",
    "other matrix refused",
    "read error",
    "rebuild flag",
    "rebuilding",
    "rebuilt stripes",
    "recovery reads",
    "redundancy verified",
    "rejoined with its data",
    "rejoined without its data",
    "repaired chunks",
    "requests that were parked in vain",
    "scrubs",
    "second service",
    "second service refused",
    "session without a target whose missed stripes are known",
    "session that rebuilds only missed stripes",
    "session that cannot continue",
    "session with a stale target",
    "session with three current targets",
    "session with unsettled blocks",
    "session without a target",
    "settled stripes, consistent",
    "settled stripes, rewritten",
    "target lost while it rejoins",
    "target lost while another one rejoins",
    "target not admitted",
    "target waits for a slot",
    "two members lose power",
    "versions copied to their places",
    "write error",
];

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Broken {
    promise: Promise,
    what: String,
}

/// A run that violates a promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The seed of its script.
    pub seed: u64,
    /// Id of the promise.
    pub promise: &'static str,
    pub what: String,
    /// Parameters of the deployment.
    pub deployment: String,
    /// Minimal subset of the script's steps that reproduces the violation.
    pub steps: Vec<String>,
    /// Number of steps of the whole script.
    pub of_steps: usize,
    /// First and last events of the run of these steps.
    pub history: Vec<String>,
}

/// Numbers of first and last lines that are displayed of a violation's history.
const HISTORY: (usize, usize) = (40, 80);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}: {}", self.seed, self.promise, self.what)?;
        writeln!(f, "{}", self.deployment)?;
        writeln!(
            f,
            "{} of {} steps reproduce it:",
            self.steps.len(),
            self.of_steps
        )?;
        for step in &self.steps {
            writeln!(f, "  {step}")?;
        }
        writeln!(f, "events:")?;
        let (first, last) = HISTORY;
        let omitted = self.history.len().saturating_sub(first + last);
        for (number, line) in self.history.iter().enumerate() {
            match number.checked_sub(first) {
                Some(0) if omitted != 0 => writeln!(f, "  ... {omitted} more, see --json ...")?,
                Some(after) if after < omitted => {}
                _ => writeln!(f, "  {line}")?,
            }
        }
        Ok(())
    }
}

/// Runs the script of a seed.
///
/// # Errors
///
/// The run violates a promise. The steps in the violation are minimised.
pub fn run(seed: u64) -> Result<Totals, Box<Violation>> {
    let script = Script::of_seed(seed);
    let (totals, broken, _) = run_script(&script, false);
    match broken {
        None => Ok(totals),
        Some(broken) => Err(Box::new(explain(&script, &broken))),
    }
}

/// Runs the script of a seed, and returns the id and the description of a violated promise, without minimising the
/// script.
#[must_use]
pub fn outcome(seed: u64) -> (Totals, Option<(&'static str, String)>) {
    let (totals, broken, _) = run_script(&Script::of_seed(seed), false);
    (totals, broken.map(|it| (it.promise.id(), it.what)))
}

fn run_script(script: &Script, traces: bool) -> (Totals, Option<Broken>, Vec<String>) {
    // The absolute time does not matter, only differences.
    World::new(script, traces, Instant::now()).run()
}

fn explain(script: &Script, broken: &Broken) -> Violation {
    let minimal = minimise(script, broken.promise);
    let (_, again, history) = run_script(&minimal, true);
    Violation {
        seed: script.seed,
        promise: broken.promise.id(),
        what: again.map_or_else(|| broken.what.clone(), |it| it.what),
        deployment: minimal.to_string(),
        steps: minimal.steps.iter().map(ToString::to_string).collect(),
        of_steps: script.steps.len(),
        history,
    }
}

/// Maximum number of runs to minimise a script.
const MINIMISING: u32 = 4_000;

/// Removes ever shorter sequences of steps, and shrinks their parameters and those of the deployment, as long as the run still violates the same promise.
fn minimise(script: &Script, promise: Promise) -> Script {
    let mut left = MINIMISING;
    let mut fails = |script: &Script| {
        if left == 0 {
            return false;
        }
        left -= 1;
        run_script(script, false)
            .1
            .is_some_and(|it| it.promise == promise)
    };
    let mut minimal = script.clone();
    let mut length = minimal.steps.len().div_ceil(2).max(1);
    loop {
        let mut begin = 0;
        let mut any = false;
        while begin < minimal.steps.len() {
            let mut shorter = minimal.clone();
            let end = (begin + length).min(shorter.steps.len());
            shorter.steps.drain(begin..end);
            if fails(&shorter) {
                minimal = shorter;
                any = true;
            } else {
                begin = end;
            }
        }
        if length == 1 && !any {
            break;
        }
        length = length.div_ceil(2).max(1);
    }
    for simpler in minimal.simpler() {
        if fails(&simpler) {
            minimal = simpler;
        }
    }
    for place in 0..minimal.steps.len() {
        for step in minimal.steps[place].step.simpler() {
            let mut simpler = minimal.clone();
            simpler.steps[place].step = step;
            if fails(&simpler) {
                minimal = simpler;
            }
        }
    }
    minimal
}

/// Change of a target's disk before it is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    /// The copy that was made of the disk.
    Copy,
    /// An empty disk.
    Empty,
    /// A disk of another set.
    Foreign,
}

/// A step of a run. Steps that are impossible at their time are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The client reads blocks.
    Read { block: u64, count: u8 },
    /// The client writes blocks, with this kind of content.
    Write {
        block: u64,
        count: u8,
        kind: u8,
        is_durable: bool,
    },
    /// The client flushes.
    Flush,
    /// The service is killed, and a new one is started after this time.
    KillService { restart: Duration },
    /// The session ends cleanly, and the next one starts after this time.
    EndSession { restart: Duration },
    /// The client exits with its I/Os in flight: the session ends, cleanly or not.
    EndClient { restart: Duration, is_clean: bool },
    /// Another service is started in addition to the first one.
    SecondService,
    /// The service is not scheduled for this time.
    PauseService { time: Duration },
    /// The service reaches no target for this time.
    IsolateService { time: Duration },
    /// The session ends cleanly, and the next service is told to rebuild this target, whose contents are invalid.
    RebuildTarget { target: usize, restart: Duration },
    /// A target is killed, and started again after this time.
    KillTarget { target: usize, restart: Duration },
    /// Several targets are killed at the same time.
    KillTargets { restart: Duration },
    /// A machine loses power: any unsynced sector of its targets may be lost.
    PowerFailure { machine: u8, restart: Duration },
    /// A target is not scheduled for this time.
    PauseTarget { target: usize, time: Duration },
    /// A target's network is partitioned for this time.
    Partition { target: usize, time: Duration },
    /// A bit of a chunk is flipped, or a sector zeroed.
    Corrupt {
        target: usize,
        block: u64,
        at: u16,
        is_zeros: bool,
    },
    /// A chunk is replaced by that of another block.
    Swap {
        target: usize,
        block: u64,
        other: u64,
    },
    /// The next write of a target is acknowledged but not executed.
    LoseWrite { target: usize },
    /// The next write of a target goes to another block.
    MisdirectWrite { target: usize, block: u64 },
    /// The next `count` reads of chunks of a target fail.
    FailReads { target: usize, count: u8 },
    /// A chunk cannot be read until it is written.
    Unreadable { target: usize, block: u64 },
    /// The next write of a chunk, or flush, of a target fails.
    FailWrite { target: usize },
    /// A disk is full for this time.
    FillDisk { target: usize, time: Duration },
    /// The disks of all targets are copied.
    Copy,
    /// A target is killed, and restarted with the copy of its disk.
    RestoreCopy { target: usize, restart: Duration },
    /// A target is killed, and restarted with an empty disk.
    ReplaceDisk { target: usize, restart: Duration },
    /// A target is killed, restarted with a disk of another set, and later with its own again.
    ForeignDisk { target: usize, restart: Duration },
    /// The set is scrubbed at full speed.
    Scrub,
    /// The operator keeps a target offline for this time.
    Hold { target: usize, time: Duration },
    /// The operator has a target rebuilt during the session.
    Rebuild { target: usize },
}

impl Step {
    /// Returns `true` if the step is an I/O of the client.
    fn is_io(self) -> bool {
        matches!(self, Self::Read { .. } | Self::Write { .. } | Self::Flush)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Read { .. } => "step: read",
            Self::Write { .. } => "step: write",
            Self::Flush => "step: flush",
            Self::KillService { .. } => "step: kill service",
            Self::EndSession { .. } => "step: end session",
            Self::EndClient { .. } => "step: end client",
            Self::SecondService => "step: second service",
            Self::PauseService { .. } => "step: pause service",
            Self::IsolateService { .. } => "step: isolate service",
            Self::RebuildTarget { .. } => "step: rebuild target",
            Self::KillTarget { .. } => "step: kill target",
            Self::KillTargets { .. } => "step: kill targets",
            Self::PowerFailure { .. } => "step: power failure",
            Self::PauseTarget { .. } => "step: pause target",
            Self::Partition { .. } => "step: partition",
            Self::Corrupt { .. } => "step: corrupt",
            Self::Swap { .. } => "step: swap",
            Self::LoseWrite { .. } => "step: lose write",
            Self::MisdirectWrite { .. } => "step: misdirect write",
            Self::FailReads { .. } => "step: fail reads",
            Self::Unreadable { .. } => "step: unreadable",
            Self::FailWrite { .. } => "step: fail write",
            Self::FillDisk { .. } => "step: fill disk",
            Self::Copy => "step: copy",
            Self::RestoreCopy { .. } => "step: restore copy",
            Self::ReplaceDisk { .. } => "step: replace disk",
            Self::ForeignDisk { .. } => "step: foreign disk",
            Self::Scrub => "step: scrub",
            Self::Hold { .. } => "step: hold",
            Self::Rebuild { .. } => "step: rebuild",
        }
    }

    /// The same step with simpler parameters.
    fn simpler(self) -> Vec<Self> {
        let short = Duration::from_millis(1);
        let is_longer = |time: Duration| time > short;
        match self {
            Self::Write {
                block,
                count,
                kind,
                is_durable,
            } => {
                let write = |count, kind, is_durable| Self::Write {
                    block,
                    count,
                    kind,
                    is_durable,
                };
                let mut simpler = Vec::new();
                if count > 1 {
                    simpler.push(write(1, kind, is_durable));
                }
                if kind != 0 {
                    simpler.push(write(1, 0, is_durable));
                }
                if is_durable {
                    simpler.push(write(1, 0, false));
                }
                simpler
            }
            Self::Read { block, count } if count > 1 => vec![Self::Read { block, count: 1 }],
            Self::KillService { restart } if is_longer(restart) => {
                vec![Self::KillService { restart: short }]
            }
            Self::KillTarget { target, restart } if is_longer(restart) => {
                vec![Self::KillTarget {
                    target,
                    restart: short,
                }]
            }
            Self::EndSession { restart } if is_longer(restart) => {
                vec![Self::EndSession { restart: short }]
            }
            Self::Hold { target, time } if is_longer(time) => {
                vec![Self::Hold {
                    target,
                    time: short,
                }]
            }
            Self::PauseTarget { target, time } if is_longer(time) => {
                vec![Self::PauseTarget {
                    target,
                    time: short,
                }]
            }
            Self::Partition { target, time } if is_longer(time) => {
                vec![Self::Partition {
                    target,
                    time: short,
                }]
            }
            _ => Vec::new(),
        }
    }
}

/// A step and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timed {
    at: Duration,
    step: Step,
}

impl fmt::Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12.6} s  {:?}", self.at.as_secs_f64(), self.step)
    }
}

fn micros(rng: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_micros(rng.u64(range))
}

/// Random duration of a pause, partition or restart: mostly short, sometimes longer than all timeouts.
fn absence(rng: &mut Rng) -> Duration {
    match rng.u8(0..10) {
        0..4 => micros(rng, 10..2_000),
        4..8 => micros(rng, 2_000..500_000),
        _ => micros(rng, 500_000..8_000_000),
    }
}

/// The steps of a run, and the parameters of its deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Script {
    seed: u64,
    workers: u32,
    /// Number of reads between two recovery reads.
    recover_every: u32,
    blocks: u64,
    /// Number of versions that a target can keep in addition to the blocks.
    slots: u32,
    /// Targets copy retired versions to their places after every N-th write or flush, in addition to when they have to.
    apply_every: u32,
    /// Machines of the three targets and of the service.
    machines: [u8; 4],
    /// `true` if several targets may be unreachable at the same time.
    is_wild: bool,
    is_cauchy: bool,
    /// Time between two stripes of a scrub, or none.
    scrub_interval: Option<Duration>,
    /// One of this number of accelerator tasks fails; 0 for none.
    device_errors: u32,
    steps: Vec<Timed>,
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} workers, {} blocks, {} slots for versions, machines {:?}, recovery of every {}th read, {}, {}, scrub {:?}, device errors {}",
            self.workers,
            self.blocks,
            self.slots,
            self.machines,
            self.recover_every,
            if self.is_wild {
                "several targets at once"
            } else {
                "one target at a time"
            },
            if self.is_cauchy {
                "Cauchy"
            } else {
                "Vandermonde"
            },
            self.scrub_interval,
            self.device_errors,
        )
    }
}

impl Script {
    /// Number of stripe locks: few for most seeds, so that stripes share locks as in a large set.
    fn locks(&self) -> u64 {
        [2, 4, 1024][(self.seed % 3) as usize]
    }

    /// Maximum number of bits for missed stripes of a target: few for some seeds, so that a bit represents several
    /// stripes as in a large set.
    fn bits(&self) -> u64 {
        [4, 1 << 24][(self.seed / 3 % 2) as usize]
    }

    /// Time in microseconds that a target takes to persist a superblock: for some seeds much longer than storing
    /// chunks, so that failures occur while epochs are not committed.
    fn persist_time(&self) -> Range<u64> {
        [5..200, 5..200, 500..60_000][(self.seed / 6 % 3) as usize].clone()
    }

    /// The same steps in simpler deployments.
    fn simpler(&self) -> Vec<Self> {
        let mut simpler = Vec::new();
        let mut change = |change: fn(&mut Self)| {
            let mut other = self.clone();
            change(&mut other);
            if other != *self {
                simpler.push(other);
            }
        };
        change(|it| it.device_errors = 0);
        change(|it| it.scrub_interval = None);
        change(|it| it.recover_every = 0);
        change(|it| it.is_cauchy = false);
        change(|it| it.workers = 1);
        change(|it| {
            it.workers = 1;
            it.device_errors = 0;
            it.scrub_interval = None;
            it.recover_every = 0;
            it.is_cauchy = false;
        });
        simpler
    }

    /// Generates the script of a seed.
    fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let workers = rng.u32(1..=3);
        let recover_every = rng.choice([0, 0, 1, 2, 5]).unwrap_or(0);
        let blocks = rng.choice([4, 12, 24, 70]).unwrap_or(12);
        let slots = if rng.bool() { rng.u32(32..97) } else { 256 };
        let apply_every = rng.choice([2, 10, 40]).unwrap_or(40);
        let machines = rng
            .choice([
                [0, 0, 0, 0],
                [0, 0, 0, 1],
                [0, 1, 2, 3],
                [0, 1, 2, 0],
                [0, 0, 1, 2],
            ])
            .unwrap_or([0; 4]);
        let is_wild = rng.u8(0..3) == 0;
        let is_cauchy = rng.bool();
        let scrub_interval = rng
            .choice([None, None, Some(0), Some(1_000), Some(50_000)])
            .flatten()
            .map(Duration::from_micros);
        let device_errors = if rng.u8(0..6) == 0 { 200 } else { 0 };
        let count = rng.usize(20..220);
        // Percentage of steps that are faults.
        let faults = rng.choice([2, 4, 8, 15, 30]).unwrap_or(8);
        // In half of the runs, only some kinds of faults are injected, so that their consequences have time to be
        // detected.
        let kinds: u64 = if rng.bool() { u64::MAX } else { rng.u64(..) };
        let hot = rng.u64(1..=blocks);
        let writes = rng.choice([30, 45, 80]).unwrap_or(45);
        let mut at = Duration::from_micros(rng.u64(0..4_000));
        let mut steps = Vec::with_capacity(count);
        let context = Context {
            blocks,
            hot,
            machines,
            is_wild,
        };
        while steps.len() < count {
            at += match rng.u8(0..20) {
                0..14 => micros(&mut rng, 0..60),
                14..19 => micros(&mut rng, 60..3_000),
                _ => micros(&mut rng, 3_000..400_000),
            };
            if rng.u32(0..100) < faults {
                if rng.u8(0..4) == 0 {
                    sequence(&mut rng, kinds, at, &context, &mut steps);
                } else if let Some(step) = fault(&mut rng, kinds, &context) {
                    steps.push(Timed { at, step });
                }
                continue;
            }
            let step = io(&mut rng, writes, &context);
            steps.push(Timed { at, step });
        }
        steps.sort_by_key(|timed| timed.at);
        Self {
            seed,
            workers,
            recover_every,
            blocks,
            slots,
            apply_every,
            machines,
            is_wild,
            is_cauchy,
            scrub_interval,
            device_errors,
            steps,
        }
    }
}

struct Context {
    blocks: u64,
    /// Number of blocks that most I/Os are for.
    hot: u64,
    machines: [u8; 4],
    is_wild: bool,
}

fn io(rng: &mut Rng, writes: u8, context: &Context) -> Step {
    let block = rng.u64(0..context.hot);
    let count = if rng.bool() { 1 } else { rng.u8(1..=3) };
    let count = count.min((context.blocks - block).min(3) as u8);
    match rng.u8(0..100) {
        kind if kind < writes => Step::Write {
            block,
            count,
            kind: rng.u8(0..16),
            is_durable: rng.u8(0..8) == 0,
        },
        92.. => Step::Flush,
        _ => Step::Read { block, count },
    }
}

fn write(rng: &mut Rng, context: &Context) -> Step {
    Step::Write {
        block: rng.u64(0..context.hot),
        count: 1,
        kind: rng.u8(0..16),
        is_durable: false,
    }
}

/// A number of writes within some microseconds.
fn burst(
    rng: &mut Rng,
    context: &Context,
    count: std::ops::Range<u8>,
    begin: Duration,
    within: u64,
    at: &mut impl FnMut(Duration, Step),
) {
    for _ in 0..rng.u8(count) {
        let step = write(rng, context);
        at(begin + micros(rng, 0..within), step);
    }
}

/// Appends a sequence of faults whose order and spacing make it harder to survive than the individual faults.
fn sequence(rng: &mut Rng, kinds: u64, begin: Duration, context: &Context, steps: &mut Vec<Timed>) {
    // Some sequences need two targets that are offline at the same time.
    let kind = if context.is_wild {
        rng.choice([0, 0, 0, 0, 1, 2, 4, 5, 6, 7, 8, 9, 9, 10, 12])
    } else {
        rng.choice([0, 1, 3, 3, 4, 4, 5, 5, 7, 11])
    };
    let kind = kind.unwrap_or(0);
    if kinds >> (40 + kind) & 1 == 0 {
        return;
    }
    let target = rng.usize(0..3);
    let other = (target + rng.usize(1..3)) % 3;
    let mut at = |at: Duration, step| steps.push(Timed { at, step });
    match kind {
        // The service crashes while it detaches or rebuilds a target. At the next start, that target is reachable and
        // another one is not: the superblocks must show whether the two reachable targets have all acknowledged writes.
        0 => {
            let restart = micros(rng, 50..1_500);
            at(begin, Step::KillTarget { target, restart });
            let crash = begin
                + if rng.bool() {
                    micros(rng, 50..2_000)
                } else {
                    micros(rng, 2_000..80_000)
                };
            for _ in 0..rng.u8(0..12) {
                let time = begin + micros(rng, 0..2_000);
                let step = write(rng, context);
                at(time.min(crash), step);
            }
            let restart = micros(rng, 1_500..5_000);
            at(crash, Step::KillService { restart });
            if rng.bool() {
                let restart = micros(rng, 2_200_000..6_000_000);
                let step = Step::KillTarget {
                    target: other,
                    restart,
                };
                at(crash + Duration::from_micros(1), step);
            }
        }
        // The service crashes again while the set is being opened.
        1 => {
            let restart = micros(rng, 10..500);
            at(begin, Step::KillService { restart });
            let crash = begin + restart + micros(rng, 20..2_000);
            let restart = micros(rng, 10..500);
            at(crash, Step::KillService { restart });
        }
        // A target is unresponsive while another one is offline or being rebuilt.
        2 => {
            let restart = micros(rng, 500_000..6_000_000);
            at(begin, Step::KillTarget { target, restart });
            let time = micros(rng, 1_600_000..2_900_000);
            let step = if rng.bool() {
                let target = other;
                Step::PauseTarget { target, time }
            } else {
                let target = other;
                Step::Partition { target, time }
            };
            at(begin + micros(rng, 0..restart.as_micros() as u64), step);
        }
        // A copy that was made during a session is restored in the same session.
        3 => {
            for _ in 0..rng.u8(0..6) {
                let time = begin + micros(rng, 0..400);
                let step = write(rng, context);
                at(time, step);
            }
            at(begin + micros(rng, 0..400), Step::Copy);
            let restart = micros(rng, 50..5_000);
            let restored = begin + micros(rng, 100..1_000);
            at(restored, Step::RestoreCopy { target, restart });
        }
        // The service crashes during a burst of writes, and a read determines the contents; then it crashes again, or a
        // target is lost.
        4 => {
            let crash = begin + micros(rng, 20..400);
            burst(rng, context, 1..10, begin, 300, &mut at);
            let restart = micros(rng, 10..300);
            at(crash, Step::KillService { restart });
            // Most often while blocks are settled.
            let again = crash
                + restart
                + if rng.bool() {
                    micros(rng, 550..1_100)
                } else {
                    micros(rng, 300..3_000)
                };
            for _ in 0..rng.u8(1..6) {
                let block = rng.u64(0..context.hot);
                let step = if rng.bool() {
                    Step::Read { block, count: 1 }
                } else {
                    write(rng, context)
                };
                at(again - micros(rng, 0..300), step);
            }
            match rng.u8(0..4) {
                0 => at(again, Step::KillService { restart }),
                1 => at(again, Step::KillTarget { target, restart }),
                2 => at(again, Step::KillTargets { restart }),
                _ => {
                    let machine = context.machines[target];
                    at(again, Step::PowerFailure { machine, restart });
                }
            }
        }
        // All machines lose power during a burst of writes and flushes.
        5 => {
            burst(rng, context, 1..16, begin, 1_000, &mut at);
            at(begin + micros(rng, 0..1_000), Step::Flush);
            let restart = micros(rng, 10..2_000);
            let machine = context.machines[target];
            at(
                begin + micros(rng, 100..1_200),
                Step::PowerFailure { machine, restart },
            );
        }
        // Two targets are restarted at the same time.
        6 => {
            let restart = micros(rng, 50..3_000_000);
            burst(rng, context, 0..6, begin, 100, &mut at);
            at(begin + micros(rng, 0..200), Step::KillTargets { restart });
        }
        // A flush waits for a target that has lost its connection only, then all machines lose power.
        8 => {
            let restart = micros(rng, 500_000..6_000_000);
            at(begin, Step::KillTarget { target, restart });
            let mut time = begin + micros(rng, 500..80_000);
            burst(rng, context, 1..8, time, 200, &mut at);
            time += micros(rng, 200..1_000);
            let restart = micros(rng, 50..2_000);
            let target = other;
            at(time, Step::KillTarget { target, restart });
            at(time + micros(rng, 0..1_000), Step::Flush);
            let restart = micros(rng, 10..2_000);
            let machine = context.machines[target];
            time += micros(rng, 1_000..120_000);
            at(time, Step::PowerFailure { machine, restart });
        }
        // A target is lost, and another one while writes continue without the first. The client abandons some of these
        // writes before the second target has rejoined.
        9 => {
            let restart = if rng.bool() {
                micros(rng, 50..100_000)
            } else {
                micros(rng, 500_000..8_000_000)
            };
            at(begin, Step::KillTarget { target, restart });
            let mut time = begin + micros(rng, 300..60_000);
            burst(rng, context, 1..8, time, 200, &mut at);
            time += micros(rng, 0..250);
            let restart = if rng.bool() {
                micros(rng, 50..100_000)
            } else {
                micros(rng, 4_000_000..8_000_000)
            };
            if rng.bool() {
                // The third target responds only when the second one has rejoined.
                let target = 3 - target - other;
                let pause = micros(rng, 1_000..700_000);
                let step = Step::PauseTarget {
                    target,
                    time: pause,
                };
                at(time.saturating_sub(micros(rng, 0..150)), step);
            }
            let target = other;
            at(time, Step::KillTarget { target, restart });
            match rng.u8(0..3) {
                0 => {
                    time += micros(rng, 20..5_000);
                    let restart = micros(rng, 10..5_000_000);
                    at(time, Step::KillService { restart });
                }
                1 => {
                    time += micros(rng, 20..5_000);
                    let restart = micros(rng, 10..5_000_000);
                    let is_clean = rng.bool();
                    at(time, Step::EndClient { restart, is_clean });
                }
                _ => {}
            }
        }
        // The service crashes during a burst of writes, and chunks of two targets are temporarily unreadable.
        10 => {
            let crash = begin + micros(rng, 20..400);
            burst(rng, context, 1..10, begin, 300, &mut at);
            let restart = micros(rng, 10..300);
            at(crash, Step::KillService { restart });
            for target in [target, other] {
                let count = rng.u8(1..12);
                at(crash, Step::FailReads { target, count });
            }
        }
        // Between two sessions, a target's disk is replaced by a copy from the first session.
        11 => {
            at(begin, Step::Copy);
            burst(rng, context, 1..8, begin, 2_000, &mut at);
            let end = begin + micros(rng, 1_000..4_000);
            let restart = Duration::from_millis(400);
            at(
                end,
                if rng.bool() {
                    Step::EndSession { restart }
                } else {
                    Step::KillService { restart }
                },
            );
            let restart = micros(rng, 50..1_000);
            let time = end + micros(rng, 1_000..398_000);
            at(time, Step::RestoreCopy { target, restart });
        }
        // Targets return to two services in turn, which both open the set.
        12 => {
            let restart = micros(rng, 1_000..400_000);
            at(begin, Step::KillTargets { restart });
            if rng.bool() {
                let machine = context.machines[rng.usize(..3)];
                let restart = micros(rng, 50..2_000);
                at(
                    begin + micros(rng, 0..1_000),
                    Step::PowerFailure { machine, restart },
                );
            }
            let second = begin + micros(rng, 0..restart.as_micros() as u64 + 5_000);
            at(second, Step::SecondService);
            let mut time = begin + restart;
            for _ in 0..rng.u8(1..6) {
                let target = rng.usize(..3);
                time += micros(rng, 100..60_000);
                let restart = micros(rng, 50..60_000);
                at(time, Step::KillTarget { target, restart });
            }
        }
        // The first service is isolated, and another one is started.
        _ => {
            let time = micros(rng, 3_100_000..9_000_000);
            let step = if rng.bool() {
                Step::IsolateService { time }
            } else {
                Step::PauseService { time }
            };
            at(begin, step);
            at(begin + micros(rng, 0..6_000_000), Step::SecondService);
        }
    }
}

fn fault(rng: &mut Rng, kinds: u64, context: &Context) -> Option<Step> {
    let target = rng.usize(0..3);
    let block = rng.u64(0..context.hot);
    let kind = rng.u32(0..36);
    if kinds >> kind & 1 == 0 {
        return None;
    }
    let time = absence(rng);
    Some(match kind {
        0..3 => Step::KillService { restart: time },
        3 => Step::EndSession { restart: time },
        4 => Step::EndClient {
            restart: time,
            is_clean: rng.bool(),
        },
        5 => Step::PauseService { time },
        6 => Step::IsolateService { time },
        7 => Step::SecondService,
        8..11 => Step::KillTarget {
            target,
            restart: time,
        },
        11 => Step::KillTargets { restart: time },
        12..15 => Step::PowerFailure {
            machine: context.machines[target],
            restart: time,
        },
        15 => Step::PauseTarget { target, time },
        16 => Step::Partition { target, time },
        17..20 => Step::Corrupt {
            target,
            block,
            at: rng.u16(..),
            is_zeros: rng.bool(),
        },
        20 => Step::Swap {
            target,
            block,
            other: rng.u64(0..context.blocks),
        },
        21 | 22 => Step::LoseWrite { target },
        23 | 24 => Step::MisdirectWrite { target, block },
        25 => Step::FailReads {
            target,
            count: rng.u8(1..6),
        },
        26 => Step::Unreadable { target, block },
        27 => Step::FailWrite { target },
        28 => Step::FillDisk { target, time },
        29 => Step::Copy,
        30 => Step::RestoreCopy {
            target,
            restart: time,
        },
        31 => Step::ReplaceDisk {
            target,
            restart: time,
        },
        32 => Step::ForeignDisk {
            target,
            restart: time,
        },
        33 => Step::RebuildTarget {
            target,
            restart: time,
        },
        34 => Step::Scrub,
        _ if rng.bool() => Step::Hold { target, time },
        _ => Step::Rebuild { target },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seeds of every test run.
    const SEEDS: std::ops::Range<u64> = 0..400;

    #[test]
    fn fixed_seeds_hold() {
        let mut totals = Totals::default();
        for seed in SEEDS {
            match run(seed) {
                Ok(one) => totals.add(&one),
                Err(violation) => panic!("{violation}"),
            }
        }
        assert!(totals.sessions > 400 && totals.faults > 1000, "{totals:?}");
    }

    #[test]
    fn a_seed_gives_the_same_run_again() {
        for seed in [1, 2, 77] {
            assert_eq!(run(seed), run(seed));
        }
    }
}
