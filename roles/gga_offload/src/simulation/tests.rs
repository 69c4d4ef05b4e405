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
