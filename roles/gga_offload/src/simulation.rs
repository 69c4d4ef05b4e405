//! Deterministic simulation of the redundancy: the real engines, sets, superblocks and assembly, driven in virtual time through crashes,
//! partitions, pauses and corruption, with an oracle for the results of reads.
//!
//! A script of I/Os and faults is generated from a seed; the same script always gives the same run. Invariants:
//!
//! * Every read returns a version of its block that makes the history linearizable: never other bytes, never an overwritten version.
//!   Without checksums, a write with unknown outcome may be read once and not the next time, until a later write is acknowledged.
//! * A read fails only when a fault explains it, a write only when the set has failed.
//! * An I/O is answered within a few stall timeouts while the same two current targets answer.
//! * A set is refused only when fewer than two of its targets are current, and always when two are stale copies. Two current targets are
//!   enough.
//! * A session starts with targets that have every block whose last write was acknowledged. A target whose disk was replaced, or that
//!   lost writes in a power failure, is not trusted to have kept its chunks.
//! * A target is detached only because of an event since it joined. An unresponsive target is detached only while the two others are
//!   current: with a single target left no I/O is served, so detaching it would fail the I/Os in flight, which complete as soon as it
//!   answers.
//! * A block with checksum whose last write was acknowledged can be read from two chunks at the end.
//! * A read uses current chunks: it never has to correct one that was not damaged.
//! * A chunk that a read has found to be corrupt is rewritten, without a scrub.
//! * After the last fault and a scrub, every block that has two valid chunks can be read, and its three chunks are consistent.
//!
//! At most one target at a time is silently corrupted (a flipped bit, a lost or misdirected write, a stale copy of its disk), and until
//! it was scrubbed or rebuilt, no other target fails. There are two exceptions, both on blocks with a checksum that is bound to their
//! location. They may make the block unreadable, but a read never returns wrong data:
//!
//! * A whole block is stored in the location of another one, on all targets or on two of them. Only the location in the checksum reveals
//!   that. Until it is written again, a read of the overwritten block may fail. The block that should have been written keeps its previous
//!   content, which no target can detect.
//! * A chunk is damaged while another target is offline. Until it is written again, a read of the block may fail.
//!
//! Some faults are injected in sequences, spaced so that the second one hits the recovery from the first: the service dies between the
//! detachment of a target and the commit of the epoch without it, or while the set is being opened, and another target is missing at the
//! next start; a target becomes unresponsive while another one is offline; a copy made during a session is restored after its clean end.

mod oracle;
mod processes;
mod world;

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use processes::{BLOCKS, SECTORS};
use serde::Serialize;
use world::World;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub sessions: u64,
    pub ios: u64,
    pub faults: u64,
    /// Number of blocks that could not be read at the end, because too many of their chunks were damaged at once.
    pub lost: u64,
}

impl Totals {
    /// Adds the totals of another run.
    pub fn add(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.ios += other.ios;
        self.faults += other.faults;
        self.lost += other.lost;
    }
}

/// A run that violates an invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The seed of its script.
    pub seed: u64,
    pub what: String,
    /// Minimal subset of the script's steps that reproduces the violation.
    pub steps: Vec<String>,
    /// Number of steps of the whole script.
    pub of_steps: usize,
    /// Last events of the run of these steps.
    pub history: Vec<String>,
}

/// Maximum number of lines in a violation's history.
const HISTORY: usize = 120;

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        writeln!(
            f,
            "{} of {} steps reproduce it:",
            self.steps.len(),
            self.of_steps
        )?;
        for step in &self.steps {
            writeln!(f, "  {step}")?;
        }
        writeln!(f, "last events:")?;
        for line in &self.history {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

/// Runs the script of a seed.
///
/// # Errors
///
/// The run violates an invariant. The steps in the violation are minimised.
pub fn run(seed: u64) -> Result<Totals, Box<Violation>> {
    let script = Script::of_seed(seed);
    let (totals, violation, _) = World::new(&script, false).run();
    match violation {
        None => Ok(totals),
        Some(what) => Err(Box::new(explain(&script, &what))),
    }
}

fn explain(script: &Script, what: &str) -> Violation {
    let minimal = minimise(script);
    let (_, violation, history) = World::new(&minimal, true).run();
    let begin = history.len().saturating_sub(HISTORY);
    Violation {
        seed: script.seed,
        what: violation.unwrap_or_else(|| what.to_owned()),
        steps: minimal.steps.iter().map(ToString::to_string).collect(),
        of_steps: script.steps.len(),
        history: history[begin..].to_vec(),
    }
}

/// Removes ever shorter sequences of steps, as long as the run still violates an invariant.
fn minimise(script: &Script) -> Script {
    let fails = |script: &Script| World::new(script, false).run().1.is_some();
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
            return minimal;
        }
        length = length.div_ceil(2).max(1);
    }
}

/// A step of a run. Steps that are impossible at their time are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The initiator reads blocks.
    Read { block: u64, count: u8 },
    /// The initiator writes blocks.
    Write { block: u64, count: u8 },
    /// The initiator flushes.
    Flush,
    /// All targets and the service lose power and are restarted after this time: any unsynced sector may be lost.
    Outage { restart: Duration },
    /// The service is killed, and a new one is started after this time.
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
    /// A target's network is partitioned for this time.
    Partition { target: usize, time: Duration },
    /// A bit of a chunk is flipped.
    FlipBit { target: usize, block: u64, bit: u16 },
    /// A sector of a chunk is zeroed.
    ZeroSector {
        target: usize,
        block: u64,
        sector: u8,
    },
    /// The next write of a target is acknowledged but not executed.
    LoseWrite { target: usize },
    /// The next write of a target goes to another block.
    MisdirectWrite { target: usize, block: u64 },
    /// The next block that the initiator writes is stored in the location of another one, by all targets or by all `except` one.
    MisdirectBlock { block: u64, except: Option<usize> },
    /// The next `count` reads of chunks of a target fail.
    FailReads { target: usize, count: u8 },
    /// The next write of a chunk of a target fails.
    FailWrite { target: usize },
    /// The disks of all targets are copied.
    Copy,
    /// A target is killed, and restarted with the copy of its disk.
    RestoreCopy { target: usize, restart: Duration },
    /// A target is killed, and restarted with an empty disk.
    ReplaceDisk { target: usize, restart: Duration },
    /// Between two sessions, two targets use the copies of their disks: the set has to be refused. Then their disks are restored.
    RestoreTwoCopies { except: usize },
    /// Between two sessions, one target uses the copy of its disk, whose superblock differs from the disk's: it must not be considered
    /// current. Then its disk is restored.
    RestoreOneCopy { target: usize },
    /// Between two sessions, two targets exchange their disks: the set has to be refused. Then the exchange is undone.
    ExchangeDisks { first: usize },
    /// Between two sessions, a target has the superblock of another set, or of a diverged epoch of this set: the set has to be refused.
    /// Then its superblock is restored.
    ForeignSuperblock { target: usize, is_of_set: bool },
    /// The set is scrubbed at full speed.
    Scrub,
}

impl Step {
    /// Returns `true` if it is an I/O of the initiator.
    fn is_io(self) -> bool {
        matches!(self, Self::Read { .. } | Self::Write { .. } | Self::Flush)
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
    /// `true` if blocks have checksums.
    checksums: bool,
    steps: Vec<Timed>,
}

impl Script {
    /// Returns `true` if stripes that were never written read as zeros, which is so in most runs.
    fn zeroes_unwritten(&self) -> bool {
        !self.seed.is_multiple_of(4)
    }

    /// Generates the script of a seed.
    fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let workers = rng.u32(1..=2);
        let recover_every = rng.choice([0, 0, 1, 2, 5]).unwrap_or(0);
        let count = rng.usize(20..220);
        // Percentage of steps that are faults.
        let faults = rng.choice([1, 4, 8, 15, 30]).unwrap_or(8);
        // In half of the runs, only some kinds of faults, so that their consequences have time to be detected.
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

/// Appends a sequence of faults that is harder to survive than each of them alone, because of their order and spacing.
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
        // the superblocks have to show whether the two reachable ones have all acknowledged writes.
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
        // The service dies again while the set is being opened.
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
        // A copy made during a session is restored after its clean end.
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

#[cfg(test)]
mod tests {
    use processes::BLOCKS;

    use super::*;

    /// The seeds of every test run.
    const SEEDS: std::ops::Range<u64> = 0..400;

    #[test]
    fn fixed_seeds_hold() {
        let mut totals = Totals::default();
        for seed in SEEDS {
            match run(seed) {
                Ok(one) => totals.add(one),
                Err(violation) => panic!("{violation}"),
            }
        }
        assert!(totals.sessions > 400 && totals.faults > 1000, "{totals:?}");
    }

    #[test]
    fn write_that_outlives_the_rebuild_of_one_target_and_the_loss_of_another_succeeds() {
        // The window is only a few microseconds long, and hit by this seed.
        assert_eq!(run(42_067_388).err(), None);
    }

    #[test]
    fn a_seed_gives_the_same_run_again() {
        for seed in [1, 2, 77] {
            assert_eq!(run(seed), run(seed));
        }
    }

    /// Runs steps at these times in microseconds, with the random delays of 64 seeds. Returns the first violation.
    fn violation_of(steps: &[(u64, Step)]) -> Option<String> {
        (0..64).find_map(|seed| World::new(&script_of(seed, steps), false).run().1)
    }

    /// Creates a script of steps at these times in microseconds, with the random delays of this seed.
    fn script_of(seed: u64, steps: &[(u64, Step)]) -> Script {
        let steps = steps.iter().map(|&(at, step)| Timed {
            at: Duration::from_micros(at),
            step,
        });
        Script {
            seed,
            workers: 1 + (seed % 2) as u32,
            recover_every: 0,
            checksums: true,
            steps: steps.collect(),
        }
    }

    #[test]
    fn unresponsive_target_that_is_being_rebuilt_is_detached_again() {
        let steps = [
            (
                100_000,
                Step::KillTarget {
                    target: 2,
                    restart: Duration::from_millis(50),
                },
            ),
            (110_000, Step::Write { block: 0, count: 3 }),
            (110_010, Step::Write { block: 3, count: 3 }),
            (
                165_000,
                Step::PauseTarget {
                    target: 2,
                    time: Duration::from_secs(6),
                },
            ),
            (166_000, Step::Write { block: 0, count: 3 }),
        ];
        assert_eq!(violation_of(&steps), None);
    }

    #[test]
    fn target_that_rejoins_while_a_write_waits_for_another_one_is_not_detached_again() {
        // The target is killed again before its rebuild has completed, so it is not a member: it can rejoin although the superblock of the
        // other target, which is unreachable, cannot be changed.
        let steps = [
            (
                100_000,
                Step::KillTarget {
                    target: 2,
                    restart: Duration::from_millis(50),
                },
            ),
            (
                180_000,
                Step::KillTarget {
                    target: 2,
                    restart: Duration::from_micros(400),
                },
            ),
            (
                180_005,
                Step::Partition {
                    target: 1,
                    time: Duration::from_millis(60),
                },
            ),
            (180_010, Step::Write { block: 8, count: 1 }),
        ];
        assert_eq!(violation_of(&steps), None);
    }

    #[test]
    fn block_whose_conversion_was_interrupted_is_not_mixed_of_two_forms() {
        // The scrub that follows the creation of a set gives blocks a checksum, which is in the chunks of data_2 and data_p. The service dies
        // when only the chunk of data_p is stored; then data_1 is lost before the block was verified.
        for at in (2_440..2_600).step_by(20) {
            let mut steps = vec![
                (2_420, Step::Write { block: 9, count: 1 }),
                (
                    at,
                    Step::KillService {
                        restart: Duration::from_micros(260),
                    },
                ),
                (
                    at + 1_960,
                    Step::KillTarget {
                        target: 0,
                        restart: Duration::from_secs(4),
                    },
                ),
            ];
            let blocks = 0..BLOCKS;
            steps.extend(blocks.map(|block| (at + 2_120, Step::Read { block, count: 1 })));
            assert_eq!(violation_of(&steps), None);
        }
    }
}
