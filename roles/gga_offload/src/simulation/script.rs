//! The script of a simulated run: I/Os of the initiator and faults, with their times, generated from a seed.

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
    /// The initiator flushes.
    Flush,
    /// All targets and the service lose power and are restarted after this time: any unsynced sector may be lost.
    Outage { restart: Duration },
    /// The service is killed, and another one started after this time.
    KillService { restart: Duration },
    /// The session ends cleanly, and the next one starts after this time.
    EndSession { restart: Duration },
    /// The service is not scheduled for this time.
    PauseService { time: Duration },
    /// A target is killed, and started again after this time.
    KillTarget { target: usize, restart: Duration },
    /// A target's machine loses power: any unsynced sector may be lost.
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
    /// The next block that the initiator writes is stored in the place of another one, by all targets or by all `except` one.
    MisdirectBlock { block: u64, except: Option<usize> },
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
    /// Between two sessions, one target gets its copy back, which the superblocks tell from its disk: it must not count as current.
    /// Then it gets its disk back.
    RestoreOneCopy { target: usize },
    /// Between two sessions, two targets exchange their disks: the set has to be refused. Then they get their disks back.
    ExchangeDisks { first: usize },
    /// Between two sessions, a target is one of another set, or of another use of this set from the same epoch on: the set has to be
    /// refused. Then it gets its superblock back.
    ForeignSuperblock { target: usize, is_of_set: bool },
    /// The set is scrubbed, as fast as it can be.
    Scrub,
}

impl Step {
    /// Returns `true` if it is an I/O of the initiator.
    pub(super) fn is_io(self) -> bool {
        matches!(self, Self::Read { .. } | Self::Write { .. } | Self::Flush)
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
    /// Interval of recovery reads, in reads.
    pub(super) recover_every: u32,
    /// `true` if blocks have checksums.
    pub(super) checksums: bool,
    pub(super) steps: Vec<Timed>,
}

impl Script {
    /// Returns `true` if stripes that were never written read as zeros: in most runs.
    pub(super) fn zeroes_unwritten(&self) -> bool {
        !self.seed.is_multiple_of(4)
    }

    /// The script of a seed.
    pub(super) fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let workers = rng.u32(1..=2);
        let recover_every = rng.choice([0, 0, 1, 2, 5]).unwrap_or(0);
        let count = rng.usize(20..220);
        // Percentage of steps that are faults.
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
                if rng.u8(0..4) == 0 {
                    sequence(&mut rng, kinds, at, &mut steps);
                    continue;
                }
                match fault(&mut rng, kinds) {
                    Some(step) => step,
                    None => continue,
                }
            } else {
                let block = rng.u64(0..hot);
                let count = rng.u8(1..=3).min((BLOCKS - block) as u8);
                match rng.u8(0..20) {
                    0..9 => Step::Read { block, count },
                    9..18 => Step::Write { block, count },
                    _ => Step::Flush,
                }
            };
            steps.push(Timed { at, step });
        }
        steps.sort_by_key(|timed| timed.at);
        Self {
            seed,
            workers,
            recover_every,
            checksums: rng.u8(0..4) != 0,
            steps,
        }
    }
}

/// Faults whose order and distance make them worse than each of them alone.
fn sequence(rng: &mut Rng, kinds: u32, begin: Duration, steps: &mut Vec<Timed>) {
    let kind = rng.choice([0, 0, 0, 1, 2, 3]).unwrap_or(0);
    if kinds >> (28 + kind) & 1 == 0 {
        return;
    }
    let target = rng.usize(0..3);
    let other = (target + rng.usize(1..3)) % 3;
    let mut at = |at: Duration, step| steps.push(Timed { at, step });
    match kind {
        // The service crashes while it detaches or rebuilds a target. At the next start, that target is reachable and another one is not:
        // the superblocks have to tell whether the two reachable ones have all acknowledged writes.
        0 => {
            let restart = micros(rng, 50..1_500);
            let step = if rng.u8(0..8) == 0 {
                Step::PowerFailure { target, restart }
            } else {
                Step::KillTarget { target, restart }
            };
            at(begin, step);
            let crash = begin
                + if rng.bool() {
                    micros(rng, 50..2_000)
                } else {
                    micros(rng, 2_000..80_000)
                };
            for _ in 0..rng.u8(0..12) {
                let block = rng.u64(0..BLOCKS);
                let time = begin + micros(rng, 0..2_000);
                at(time.min(crash), Step::Write { block, count: 1 });
            }
            let restart = micros(rng, 1_500..5_000);
            at(crash, Step::KillService { restart });
            if rng.u8(0..4) != 0 {
                let restart = micros(rng, 2_200_000..6_000_000);
                let step = Step::KillTarget {
                    target: other,
                    restart,
                };
                at(crash + Duration::from_micros(1), step);
            }
        }
        // The service dies again while the set is being put to use.
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
        // A copy from within a session comes back after its clean end.
        _ => {
            at(begin, Step::Copy);
            let end = begin + micros(rng, 0..20_000);
            let restart = micros(rng, 60_000..100_000);
            at(end, Step::EndSession { restart });
            let restored = end + micros(rng, 5_000..60_000);
            at(restored, Step::RestoreOneCopy { target });
        }
    }
}

fn fault(rng: &mut Rng, kinds: u32) -> Option<Step> {
    let target = rng.usize(0..3);
    let block = rng.u64(0..BLOCKS);
    let kind = rng.u32(0..28);
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
        7 if rng.bool() => Step::Outage { restart: time },
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
        23 => Step::ForeignSuperblock {
            target,
            is_of_set: rng.bool(),
        },
        24 => Step::RestoreOneCopy { target },
        25 | 26 => Step::MisdirectBlock {
            block,
            except: rng.bool().then_some(target),
        },
        _ => Step::Scrub,
    })
}
