//! Order of the visited blocks, and detection of a storage's faults.

use super::*;

#[test]
fn a_correct_storage_passes_every_strategy() {
    for strategy in [
        Strategy::ReadThroughputTest,
        Strategy::WriteThroughputTest,
        Strategy::ReadWriteDataValidityTest,
        Strategy::ReadOnlyDataValidityTest,
    ] {
        for plain in [true, strategy == Strategy::ReadOnlyDataValidityTest] {
            let (result, sandbox) = Setup {
                strategy,
                plain,
                ..SETUP
            }
            .run();
            assert_eq!(result, Ok(()), "{strategy:?}");
            let io_count = sandbox.storage.log.len();
            assert_eq!(
                io_count,
                if strategy.reads() && strategy.writes() {
                    200
                } else {
                    100
                },
                "{strategy:?}"
            );
        }
    }
}

#[test]
fn every_block_is_visited_in_order_by_exactly_one_worker() {
    for workers in 1..=3 {
        for blocks in [7, 8, 31, 32] {
            for blocks_per_io in [1, 2, 3] {
                for local_blocks in [0, 3 * u64::from(blocks_per_io), 10] {
                    // Enough operations that each worker visits its share twice.
                    let setup = Setup {
                        strategy: Strategy::ReadThroughputTest,
                        workers,
                        blocks,
                        blocks_per_io,
                        local_blocks,
                        operations: blocks as u32 * 2,
                        transactions: 2,
                        ..SETUP
                    };
                    let what = format!(
                        "{workers} workers, {blocks} blocks, {blocks_per_io} per I/O, {local_blocks} local"
                    );
                    let request = Request {
                        workers,
                        blocks_per_io,
                        local_region_size: local_blocks * u64::from(BLOCK),
                        is_mirrored: false,
                        transactions: 2,
                        operations: 1,
                    };
                    let details = StorageDetails {
                        total_size: blocks * u64::from(BLOCK),
                        block_size: BLOCK,
                    };
                    if Layout::new(&details, request).is_err() {
                        continue;
                    }
                    let (result, sandbox) = setup.run();
                    assert_eq!(result, Ok(()), "{what}");
                    let io = u64::from(BLOCK) * u64::from(blocks_per_io);
                    let ios = (blocks * u64::from(BLOCK)).div_ceil(io);
                    let mut visits = vec![0; ios as usize];
                    for (offset, _) in &sandbox.storage.log {
                        visits[(offset / io) as usize] += 1;
                    }
                    assert!(visits.iter().all(|count| *count >= 2), "{what}: {visits:?}");
                    // The workers run one after the other here, so the first visits are in the order of the storage.
                    let mut seen = std::collections::HashSet::new();
                    let first: Vec<_> = sandbox
                        .storage
                        .log
                        .iter()
                        .map(|(at, _)| at)
                        .filter(|at| seen.insert(**at))
                        .collect();
                    // Two requests are in flight at a time, and the newest is completed first.
                    assert!(
                        first
                            .iter()
                            .enumerate()
                            .all(|(at, offset)| (**offset / io).abs_diff(at as u64) <= 2),
                        "{what}"
                    );
                }
            }
        }
    }
}

#[test]
fn last_io_is_short_if_blocks_per_io_does_not_divide() {
    let setup = Setup {
        blocks: 10,
        blocks_per_io: 4,
        operations: 9,
        plain: true,
        ..SETUP
    };
    let mut sandbox = setup.build();
    assert_eq!(sandbox.run(), Ok(()));
    let bytes = sandbox.workers.remove(0).into_measurements().bytes;
    assert_eq!(bytes, 3 * 10 * u64::from(BLOCK));
}

#[test]
fn ignored_writes_are_detected_at_the_first_block() {
    for seed_of_faulty_content in [0, 1] {
        let setup = Setup {
            fault: Fault::IgnoreWrites,
            ..SETUP
        };
        let mut sandbox = setup.build();
        sandbox.storage.bytes.fill(seed_of_faulty_content);
        let mismatch = Sandbox::mismatch(sandbox.run());
        assert_eq!(
            (mismatch.actual, mismatch.pass),
            (seed_of_faulty_content, Some(1))
        );
        assert!(mismatch.offset < 2, "{mismatch}");
    }
}

#[test]
fn swapped_blocks_are_detected() {
    let (result, _) = Setup {
        fault: Fault::SwapWrites(5, 9),
        ..SETUP
    }
    .run();
    let mismatch = Sandbox::mismatch(result);
    assert!([5, 9].contains(&mismatch.block), "{mismatch}");
}

#[test]
fn replayed_pass_is_detected_in_the_second_pass() {
    let mut sandbox = Setup {
        fault: Fault::Replay,
        ..SETUP
    }
    .build();
    sandbox.storage.bytes.fill(0);
    let mismatch = Sandbox::mismatch(sandbox.run());
    assert_eq!(mismatch.pass, Some(2), "{mismatch}");

    let mut sandbox = Setup {
        fault: Fault::Replay,
        operations: 32,
        ..SETUP
    }
    .build();
    sandbox.storage.bytes.fill(0);
    assert_eq!(
        sandbox.run(),
        Ok(()),
        "one pass cannot tell, which is why several are run"
    );
}

#[test]
fn reads_that_transfer_too_little_are_detected() {
    for plain in [true, false] {
        let (result, _) = Setup {
            fault: Fault::IgnoreReads,
            plain,
            ..SETUP
        }
        .run();
        assert_eq!(Sandbox::mismatch(result).offset, 0);
        let (result, _) = Setup {
            fault: Fault::ShortReads,
            plain,
            ..SETUP
        }
        .run();
        assert_eq!(Sandbox::mismatch(result).offset, u64::from(BLOCK) - 1);
    }
}

#[test]
fn read_only_validation_finds_one_flipped_byte() {
    let setup = Setup {
        strategy: Strategy::ReadOnlyDataValidityTest,
        plain: true,
        blocks_per_io: 4,
        ..SETUP
    };
    let mut sandbox = setup.build();
    let spot = 21 * BLOCK as usize + 77;
    let good = sandbox.storage.bytes[spot];
    sandbox.storage.bytes[spot] ^= 0x80;
    let mismatch = Sandbox::mismatch(sandbox.run());
    let expected = Mismatch {
        block: 21,
        offset: 77,
        storage_offset: spot as u64,
        expected: good,
        actual: good ^ 0x80,
        pass: None,
    };
    assert_eq!(mismatch, expected);
}
