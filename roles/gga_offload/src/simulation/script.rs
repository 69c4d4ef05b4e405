//! What happens in a simulated run: the initiator's I/Os and the faults, with their times, made from a seed.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use super::target::{BLOCKS, SECTORS};

/// A step of a run. Steps that are impossible when their time comes are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The initiator reads blocks.
    Read { block: u64, count: u8 },
    /// The initiator writes blocks.
    Write { block: u64, count: u8 },
    /// The service is killed, and another one started after this time.
    KillService { restart: Duration },
    /// The session ends cleanly, and the next one starts after this time.
    EndSession { restart: Duration },
    /// The service is not scheduled for this time.
    PauseService { time: Duration },
    /// A target is killed, and started again after this time.
    KillTarget { target: usize, restart: Duration },
    /// A target's machine loses power: of the sectors that were not synced, any may be lost.
    PowerFailure { target: usize, restart: Duration },
    /// A target is not scheduled for this time.
    PauseTarget { target: usize, time: Duration },
    /// Nothing gets from or to a target for this time.
    Partition { target: usize, time: Duration },
    /// A bit of a chunk is flipped.
    FlipBit { target: usize, block: u64, bit: u16 },
    /// A sector of a chunk is zeroed.
    ZeroSector {
        target: usize,
        block: u64,
        sector: u8,
    },
    /// The next write of a target is acknowledged and not carried out.
    LoseWrite { target: usize },
    /// The next write of a target goes to another block.
    MisdirectWrite { target: usize, block: u64 },
    /// So many of the next reads of chunks of a target fail.
    FailReads { target: usize, count: u8 },
    /// The next write of a chunk of a target fails.
    FailWrite { target: usize },
    /// The disks of all targets are copied.
    Copy,
    /// A target is killed, gets its copy back, and is started again.
    RestoreCopy { target: usize, restart: Duration },
    /// A target is killed, gets an empty disk, and is started again.
    ReplaceDisk { target: usize, restart: Duration },
    /// Between two sessions, two targets get their copies back: the set has to be refused. Then they get their disks back.
    RestoreTwoCopies { except: usize },
    /// Between two sessions, two targets exchange their disks: the set has to be refused. Then they get their disks back.
    ExchangeDisks { first: usize },
    /// The set is scrubbed, as fast as it can be.
    Scrub,
}

impl Step {
    /// Whether it is an I/O of the initiator.
    pub(super) fn is_io(self) -> bool {
        matches!(self, Self::Read { .. } | Self::Write { .. })
    }
}

/// A step and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timed {
    pub(super) at: Duration,
    pub(super) step: Step,
}

impl fmt::Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12.6} s  {:?}", self.at.as_secs_f64(), self.step)
    }
}

fn micros(rng: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_micros(rng.u64(range))
}

/// A time that a process may be away: mostly short, sometimes beyond every timeout.
fn absence(rng: &mut Rng) -> Duration {
    match rng.u8(0..10) {
        0..4 => micros(rng, 10..2_000),
        4..8 => micros(rng, 2_000..500_000),
        _ => micros(rng, 500_000..8_000_000),
    }
}

/// The steps of a run, and the parameters of its deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) seed: u64,
    pub(super) workers: u32,
    /// Every so many reads, one is recovered.
    pub(super) recover_every: u32,
    /// Whether blocks have checksums.
    pub(super) checksums: bool,
    pub(super) steps: Vec<Timed>,
}

impl Script {
    /// The script of a seed.
    pub(super) fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let workers = rng.u32(1..=2);
        let recover_every = rng.choice([0, 0, 1, 2, 5]).unwrap_or(0);
        let count = rng.usize(20..220);
        // How many of a hundred steps are faults.
        let faults = rng.choice([1, 4, 8, 15, 30]).unwrap_or(8);
        // Some faults only, so that what they lead to has time to be noticed.
        let kinds: u32 = if rng.bool() { u32::MAX } else { rng.u32(..) };
        let hot = rng.u64(1..=BLOCKS);
        let mut at = Duration::ZERO;
        let mut steps = Vec::with_capacity(count);
        while steps.len() < count {
            at += match rng.u8(0..20) {
                0..14 => micros(&mut rng, 0..60),
                14..19 => micros(&mut rng, 60..3_000),
                _ => micros(&mut rng, 3_000..400_000),
            };
            let step = if rng.u32(0..100) < faults {
                match fault(&mut rng, kinds) {
                    Some(step) => step,
                    None => continue,
                }
            } else {
                let block = rng.u64(0..hot);
                let count = rng.u8(1..=3).min((BLOCKS - block) as u8);
                if rng.bool() {
                    Step::Read { block, count }
                } else {
                    Step::Write { block, count }
                }
            };
            steps.push(Timed { at, step });
        }
        Self {
            seed,
            workers,
            recover_every,
            checksums: rng.u8(0..4) != 0,
            steps,
        }
    }
}

fn fault(rng: &mut Rng, kinds: u32) -> Option<Step> {
    let target = rng.usize(0..3);
    let block = rng.u64(0..BLOCKS);
    let kind = rng.u32(0..24);
    if kinds >> kind & 1 == 0 {
        return None;
    }
    let time = absence(rng);
    Some(match kind {
        0 | 1 => Step::KillService { restart: time },
        2 => Step::EndSession { restart: time },
        3 => Step::PauseService { time },
        4..7 => Step::KillTarget {
            target,
            restart: time,
        },
        7 => Step::PowerFailure {
            target,
            restart: time,
        },
        8 | 9 => Step::PauseTarget { target, time },
        10 | 11 => Step::Partition { target, time },
        12 => Step::FlipBit {
            target,
            block,
            bit: rng.u16(..),
        },
        13 => Step::ZeroSector {
            target,
            block,
            sector: rng.u8(0..SECTORS as u8),
        },
        14 => Step::LoseWrite { target },
        15 => Step::MisdirectWrite { target, block },
        16 => Step::FailReads {
            target,
            count: rng.u8(1..6),
        },
        17 => Step::FailWrite { target },
        18 => Step::Copy,
        19 => Step::RestoreCopy {
            target,
            restart: time,
        },
        20 => Step::ReplaceDisk {
            target,
            restart: time,
        },
        21 => Step::RestoreTwoCopies { except: target },
        22 => Step::ExchangeDisks { first: target },
        _ => Step::Scrub,
    })
}
