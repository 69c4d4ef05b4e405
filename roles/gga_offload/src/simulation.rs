//! Deterministic simulation of the redundancy: the real engines, sets, superblocks and assembly, driven in virtual time through crashes,
//! partitions, pauses and damage, with an oracle that knows what may be read.
//!
//! A seed makes a script of I/Os and faults; the same script always gives the same run. What is checked:
//!
//! * Every read returns a version of its block that is linearizable: never other bytes, never a version that another one has replaced.
//!   Without checksums, a write without known outcome may be seen and then not, until a later write is acknowledged.
//! * A read fails only when a fault explains it, a write only when the set has failed.
//! * An I/O is answered within a few stall timeouts while the same two current targets answer.
//! * A set is refused only when fewer than two of its targets are current, and always when two are copies from before. Two current ones
//!   are enough.
//! * A session begins with targets that have every block whose last write was acknowledged. A target whose disk was replaced, or that
//!   lost writes in a power failure, is not taken to have kept its chunks.
//! * A target is detached only for what has happened to it since it joined. For being unresponsive alone, a target is detached only
//!   while the two others are current: with a single target left no I/O is served, so that detaching it would fail the I/Os in flight,
//!   which complete as soon as it answers.
//! * A block with checksum whose last write was acknowledged can be read from two chunks at the end.
//! * A read takes chunks that are current: it never has to correct one that nothing has damaged.
//! * A chunk that a read has found to be wrong is rewritten, without a scrub.
//! * After the last fault and a scrub, every block that two chunks make up is read, and its three chunks fit each other.
//!
//! At most one target at a time is damaged in silence (a flipped bit, a lost or misdirected write, an old copy of its disk), and until
//! it was scrubbed or rebuilt, no other target fails. There are two exceptions, both on blocks with a checksum that is bound to their
//! place, which may cost the block but never make a read return anything else:
//!
//! * A whole block is stored in the place of another one, on all targets or on two of them. Only the place in the checksum tells that.
//!   Until it is written again, a read of the block that was overwritten may fail. The block that was to be written is as it was before
//!   that write, which no target can know.
//! * A chunk is damaged while another target is offline. Until it is written again, a read of the block may fail.
//!
//! Some faults come in sequences, at distances in which the one meets what the other leads to: the service dies between the loss of a
//! target and the commit of the epoch without it, or while the set is being put to use, and another target is missing at the next
//! start; a target becomes unresponsive while another one is offline; a copy made within a session comes back after its clean end.

mod oracle;
mod script;
mod service;
mod target;
mod world;

use std::fmt;

use serde::Serialize;

use script::Script;
use world::World;

/// Counts of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Sessions of the service.
    pub sessions: u64,
    /// I/Os of the initiator.
    pub ios: u64,
    /// Faults.
    pub faults: u64,
    /// Blocks that could not be read at the end, because too much was damaged at once.
    pub lost: u64,
}

impl Totals {
    /// Adds those of another run.
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
    /// Description of the violation.
    pub what: String,
    /// The steps that are needed for that, of those that the script has.
    pub steps: Vec<String>,
    /// Number of steps of the whole script.
    pub of_steps: usize,
    /// The end of what happened in the run of these steps.
    pub history: Vec<String>,
}

/// Lines of the history that are shown.
const HISTORY: usize = 120;

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        writeln!(
            f,
            "{} of {} steps are needed for that:",
            self.steps.len(),
            self.of_steps
        )?;
        for step in &self.steps {
            writeln!(f, "  {step}")?;
        }
        writeln!(f, "what happened last:")?;
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
/// It has gone wrong: the violation, with as few steps as are needed for it.
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

/// Leaves steps out, in ever smaller runs of neighbours, as long as something still goes wrong.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use script::{Step, Timed};
    use target::BLOCKS;

    use super::*;

    /// The seeds that every test run goes through.
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
        // The window is a few microseconds: found by its seed only.
        assert_eq!(run(42_067_388).err(), None);
    }

    #[test]
    fn a_seed_gives_the_same_run_again() {
        for seed in [1, 2, 77] {
            assert_eq!(run(seed), run(seed));
        }
    }

    /// Runs steps at these microseconds with delays of 64 seeds. Returns the first violation.
    fn violation_of(steps: &[(u64, Step)]) -> Option<String> {
        (0..64).find_map(|seed| World::new(&script_of(seed, steps), false).run().1)
    }

    /// Steps at these microseconds, with the delays of this seed.
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
        // Killed again before its rebuild is complete, the target is no member: it can rejoin though the superblock of the other one, which is
        // not reached, cannot be changed.
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
        // The scrub that follows the creation of a set gives blocks a checksum, which is in the chunks of data_2 and data_p. With only the one
        // of data_p stored, the service dies; then data_1 is lost before the block was verified.
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
