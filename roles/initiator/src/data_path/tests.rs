//! Transactions against a storage that is a vector, correct or faulty in a chosen way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::{ErrorCode, MemoryRegion};
use wire::control::StorageDetails;
use wire::io_message::{IoMessageType, Repr};

use super::content::{Content, Validator};
use super::failure::{Failure, Mismatch};
use super::transactions::{Task, Transactions};
use crate::cli::Strategy;
use crate::layout::{Layout, Request};
use crate::pattern::Pattern;

const BLOCK: u32 = 512;
const IO_TIMEOUT: Duration = Duration::from_secs(5);

/// What is wrong with a storage.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Writes succeed and change nothing.
    IgnoreWrites,
    /// Writes to these two blocks land in each other's place.
    SwapWrites(u64, u64),
    /// A block holds the data of the pass before the last.
    Replay,
    /// Reads succeed and transfer nothing.
    IgnoreReads,
    /// Reads transfer all but the last byte.
    ShortReads,
}

struct Storage {
    bytes: Vec<u8>,
    previous: Vec<u8>,
    region: Arc<MemoryRegion>,
    fault: Fault,
    /// Offset and direction of every request, in order.
    log: Vec<(u64, IoMessageType)>,
}

impl Storage {
    fn serve(&mut self, request: Repr) -> Repr {
        self.log
            .push((request.storage_offset, request.message_type));
        let (size, local) = (request.size as usize, request.requester_offset as usize);
        let mut at = request.storage_offset as usize;
        match (request.message_type, self.fault) {
            (IoMessageType::Write, Fault::IgnoreWrites)
            | (IoMessageType::Read, Fault::IgnoreReads) => {}
            (IoMessageType::Write, fault) => {
                if let Fault::SwapWrites(a, b) = fault {
                    let (a, b) = (
                        (a * u64::from(BLOCK)) as usize,
                        (b * u64::from(BLOCK)) as usize,
                    );
                    at = if at == a {
                        b
                    } else if at == b {
                        a
                    } else {
                        at
                    };
                }
                let mut data = vec![0; size];
                self.region
                    .read(local, &mut data)
                    .expect("inside of the region");
                self.previous[at..at + size].copy_from_slice(&self.bytes[at..at + size]);
                self.bytes[at..at + size].copy_from_slice(&data);
            }
            (IoMessageType::Read, fault) => {
                let source = if fault == Fault::Replay
                    && self.previous[at..at + size].iter().any(|byte| *byte != 0)
                {
                    &self.previous
                } else {
                    &self.bytes
                };
                let size = if fault == Fault::ShortReads {
                    size - 1
                } else {
                    size
                };
                self.region
                    .write(local, &source[at..at + size])
                    .expect("inside of the region");
            }
            (IoMessageType::Result, _) => panic!("the initiator sent a result"),
        }
        request.answer(ErrorCode::SUCCESS.0)
    }
}

/// Transactions of all workers on one storage.
struct Bench {
    workers: Vec<Transactions>,
    storage: Storage,
}

#[derive(Clone)]
struct Setup {
    strategy: Strategy,
    blocks: u64,
    local_blocks: u64,
    workers: u32,
    blocks_per_io: u16,
    transactions: u32,
    operations: u32,
    plain: bool,
    fault: Fault,
}

const SETUP: Setup = Setup {
    strategy: Strategy::ReadWriteDataValidityTest,
    blocks: 32,
    local_blocks: 0,
    workers: 1,
    blocks_per_io: 1,
    transactions: 4,
    operations: 100,
    plain: false,
    fault: Fault::None,
};

impl Setup {
    fn build(&self) -> Bench {
        let details = StorageDetails {
            total_size: self.blocks * u64::from(BLOCK),
            block_size: BLOCK,
        };
        let request = Request {
            workers: self.workers,
            blocks_per_io: self.blocks_per_io,
            local_region_size: self.local_blocks * u64::from(BLOCK),
            transactions: self.transactions,
            operations: self.operations,
        };
        let layout = Layout::new(&details, request).expect("a layout");
        let region = MemoryRegion::new(layout.region_size as usize).expect("memory");
        let plain: Arc<[u8]> = (0..layout.capacity)
            .map(|at| (at / 7 % 253) as u8)
            .collect();
        let content = if self.plain {
            Content::Plain(plain.clone())
        } else {
            Content::Pattern(Pattern::new(3))
        };
        let task = |share| Task {
            share,
            io_size: layout.io_size,
            strategy: self.strategy,
            validator: self
                .strategy
                .validates()
                .then(|| Validator::new(content.clone(), region.clone(), BLOCK)),
            operations: self.operations,
            io_timeout: IO_TIMEOUT,
        };
        Bench {
            workers: layout
                .shares
                .iter()
                .map(|share| Transactions::new(task(*share)))
                .collect(),
            storage: Storage {
                bytes: plain.to_vec(),
                previous: vec![0; plain.len()],
                region: region.clone(),
                fault: self.fault,
                log: Vec::new(),
            },
        }
    }

    fn run(&self) -> (Result<(), Failure>, Bench) {
        let mut bench = self.build();
        (bench.run(), bench)
    }
}

impl Bench {
    fn run(&mut self) -> Result<(), Failure> {
        for worker in 0..self.workers.len() {
            self.run_worker(worker)?;
        }
        Ok(())
    }

    /// Serves the newest request first, and lets sends complete now before, now after the answer.
    fn run_worker(&mut self, worker: usize) -> Result<(), Failure> {
        let transactions = &mut self.workers[worker];
        let mut pending = Vec::new();
        for index in 0..transactions.count() {
            pending.extend(transactions.begin(index, Instant::now())?);
        }
        let mut turn = 0;
        while let Some(request) = pending.pop() {
            turn += 1;
            let index = request.user_data as u32;
            let answer = self.storage.serve(request).to_bytes();
            let next = if turn % 3 == 0 {
                assert_eq!(
                    transactions.sent(index)?,
                    None,
                    "the answer is still to come"
                );
                transactions.answered(&answer)?.1
            } else {
                assert_eq!(
                    transactions.answered(&answer)?,
                    (index, None),
                    "the send is still to complete"
                );
                transactions.sent(index)?
            };
            // Oldest first for a while, so that every slot gets its turn.
            if let Some(next) = next {
                pending.insert(0, next);
            }
        }
        assert!(transactions.at_rest());
        assert_eq!(transactions.completed(), transactions.operations());
        Ok(())
    }

    fn mismatch(result: Result<(), Failure>) -> Mismatch {
        match result {
            Err(Failure::Mismatch(mismatch)) => mismatch,
            other => panic!("expected a mismatch, got {other:?}"),
        }
    }
}

#[test]
fn a_correct_storage_passes_every_strategy() {
    for strategy in [
        Strategy::ReadThroughputTest,
        Strategy::WriteThroughputTest,
        Strategy::ReadWriteDataValidityTest,
        Strategy::ReadOnlyDataValidityTest,
    ] {
        for plain in [true, strategy == Strategy::ReadOnlyDataValidityTest] {
            let (result, bench) = Setup {
                strategy,
                plain,
                ..SETUP
            }
            .run();
            assert_eq!(result, Ok(()), "{strategy:?}");
            let io_count = bench.storage.log.len();
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
                    // Enough operations that each worker goes around its share twice.
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
                    let (result, bench) = setup.run();
                    assert_eq!(result, Ok(()), "{what}");
                    let io = u64::from(BLOCK) * u64::from(blocks_per_io);
                    let ios = (blocks * u64::from(BLOCK)).div_ceil(io);
                    let mut visits = vec![0; ios as usize];
                    for (offset, _) in &bench.storage.log {
                        visits[(offset / io) as usize] += 1;
                    }
                    assert!(visits.iter().all(|count| *count >= 2), "{what}: {visits:?}");
                    // One worker after the other here, so the first visits of all are in the order of the storage.
                    let mut seen = std::collections::HashSet::new();
                    let first: Vec<_> = bench
                        .storage
                        .log
                        .iter()
                        .map(|(at, _)| at)
                        .filter(|at| seen.insert(**at))
                        .collect();
                    // Two requests are in flight at once and the newest is served first.
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
fn the_last_io_is_short_where_blocks_per_io_does_not_divide() {
    let setup = Setup {
        blocks: 10,
        blocks_per_io: 4,
        operations: 9,
        plain: true,
        ..SETUP
    };
    let mut bench = setup.build();
    assert_eq!(bench.run(), Ok(()));
    let (bytes, ..) = bench.workers.remove(0).into_measurements();
    assert_eq!(bytes, 3 * 10 * u64::from(BLOCK));
}

#[test]
fn ignored_writes_are_caught_at_the_first_block() {
    for seed_of_faulty_content in [0, 1] {
        let setup = Setup {
            fault: Fault::IgnoreWrites,
            ..SETUP
        };
        let mut bench = setup.build();
        bench.storage.bytes.fill(seed_of_faulty_content);
        let mismatch = Bench::mismatch(bench.run());
        assert_eq!(
            (mismatch.actual, mismatch.pass),
            (seed_of_faulty_content, Some(1))
        );
        assert!(mismatch.offset < 2, "{mismatch}");
    }
}

#[test]
fn swapped_blocks_are_caught() {
    let (result, _) = Setup {
        fault: Fault::SwapWrites(5, 9),
        ..SETUP
    }
    .run();
    let mismatch = Bench::mismatch(result);
    assert!([5, 9].contains(&mismatch.block), "{mismatch}");
}

#[test]
fn a_replayed_pass_is_caught_in_the_second_round() {
    let mut bench = Setup {
        fault: Fault::Replay,
        ..SETUP
    }
    .build();
    bench.storage.bytes.fill(0);
    let mismatch = Bench::mismatch(bench.run());
    assert_eq!(mismatch.pass, Some(2), "{mismatch}");

    let mut bench = Setup {
        fault: Fault::Replay,
        operations: 32,
        ..SETUP
    }
    .build();
    bench.storage.bytes.fill(0);
    assert_eq!(
        bench.run(),
        Ok(()),
        "one pass cannot tell, which is why several are run"
    );
}

#[test]
fn reads_that_transfer_nothing_or_too_little_are_caught() {
    for plain in [true, false] {
        let (result, _) = Setup {
            fault: Fault::IgnoreReads,
            plain,
            ..SETUP
        }
        .run();
        assert_eq!(Bench::mismatch(result).offset, 0);
        let (result, _) = Setup {
            fault: Fault::ShortReads,
            plain,
            ..SETUP
        }
        .run();
        assert_eq!(Bench::mismatch(result).offset, u64::from(BLOCK) - 1);
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
    let mut bench = setup.build();
    let spot = 21 * BLOCK as usize + 77;
    let good = bench.storage.bytes[spot];
    bench.storage.bytes[spot] ^= 0x80;
    let mismatch = Bench::mismatch(bench.run());
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

/// One transaction in flight, and its request.
fn one_read() -> (Transactions, Repr) {
    let setup = Setup {
        strategy: Strategy::ReadThroughputTest,
        transactions: 2,
        operations: 5,
        ..SETUP
    };
    let mut transactions = setup.build().workers.remove(0);
    let request = transactions
        .begin(1, Instant::now())
        .expect("begun")
        .expect("a request");
    (transactions, request)
}

fn refused(result: Result<(u32, Option<Repr>), Failure>) -> String {
    match result {
        Err(Failure::Answer(text)) => text,
        other => panic!("expected a refused answer, got {other:?}"),
    }
}

#[test]
fn answers_that_fit_no_request_are_errors() {
    let (mut transactions, request) = one_read();
    let good = request.answer(0);

    assert!(refused(transactions.answered(&good.to_bytes()[..63])).contains("64"));
    let mut unknown_type = good.to_bytes();
    unknown_type[3] = 9;
    assert!(refused(transactions.answered(&unknown_type)).contains('9'));
    assert!(refused(transactions.answered(&request.to_bytes())).contains("expected a result"));
    for user_data in [2, u64::from(u32::MAX) + 2, u64::MAX] {
        let unknown = Repr { user_data, ..good };
        assert!(
            refused(transactions.answered(&unknown.to_bytes())).contains("0 to 1"),
            "{user_data}"
        );
    }
    let idle = Repr {
        user_data: 0,
        ..good
    };
    assert!(refused(transactions.answered(&idle.to_bytes())).contains("transaction 0"));
    for wrong in [
        Repr {
            storage_offset: good.storage_offset + 512,
            ..good
        },
        Repr {
            requester_offset: good.requester_offset + 1,
            ..good
        },
        Repr { size: 511, ..good },
    ] {
        assert!(refused(transactions.answered(&wrong.to_bytes())).contains("transaction 1"));
    }

    assert_eq!(transactions.answered(&good.to_bytes()), Ok((1, None)));
    assert!(refused(transactions.answered(&good.to_bytes())).contains("twice"));
    assert!(
        transactions.sent(1).expect("completed").is_some(),
        "the good answer counted once"
    );
    assert_eq!(transactions.completed(), 1);
}

#[test]
fn an_error_result_names_the_io_and_the_code() {
    let (mut transactions, request) = one_read();
    let failure = transactions
        .answered(&request.answer(ErrorCode::IO_FAILED.0).to_bytes())
        .expect_err("an I/O error");
    assert!(matches!(failure, Failure::Io { code, .. } if code == ErrorCode::IO_FAILED.0));
    let text = failure.to_string();
    for part in ["read of 512 bytes", "offset 0", "DOCA_ERROR_IO_FAILED"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(transactions.at_rest());
    assert_eq!(transactions.completed(), 0);
}

#[test]
fn an_io_is_overdue_after_its_own_timeout() {
    let (mut transactions, request) = one_read();
    let now = Instant::now();
    assert_eq!(transactions.overdue(now), None);
    assert_eq!(
        transactions.overdue(now + IO_TIMEOUT - Duration::from_secs(1)),
        None
    );
    let late = now + IO_TIMEOUT + Duration::from_secs(1);
    let failure = transactions.overdue(late).expect("overdue");
    assert!(
        failure.to_string().contains("--io-timeout 5 s"),
        "{failure}"
    );
    transactions.abandon_overdue(late);
    assert!(transactions.at_rest());
    assert!(
        refused(transactions.answered(&request.answer(0).to_bytes())).contains("transaction 1")
    );
}

#[test]
fn a_send_that_does_not_complete_is_overdue_too() {
    let (mut transactions, request) = one_read();
    assert_eq!(
        transactions.answered(&request.answer(0).to_bytes()),
        Ok((1, None))
    );
    assert!(
        transactions
            .overdue(Instant::now() + IO_TIMEOUT * 2)
            .is_some()
    );
}

#[test]
fn halted_transactions_finish_what_is_in_flight_and_no_more() {
    let mut bench = SETUP.build();
    let transactions = &mut bench.workers[0];
    let now = Instant::now();
    let first = transactions.begin(0, now).expect("begun").expect("a write");
    let second = transactions.begin(1, now).expect("begun").expect("a write");
    // The first is at its read when the halt comes, the second at its write.
    assert_eq!(transactions.sent(0), Ok(None));
    let (_, read) = transactions
        .answered(&bench.storage.serve(first).to_bytes())
        .expect("written");
    transactions.halt();
    assert!(!transactions.at_rest());
    assert_eq!(transactions.begin(2, now), Ok(None));
    assert_eq!(transactions.sent(1), Ok(None));
    assert_eq!(
        transactions.answered(&bench.storage.serve(second).to_bytes()),
        Ok((1, None)),
        "no read follows"
    );
    assert_eq!(transactions.sent(0), Ok(None));
    let answer = bench
        .storage
        .serve(read.expect("a read follows the write"))
        .to_bytes();
    assert_eq!(transactions.answered(&answer), Ok((0, None)));
    assert!(transactions.at_rest());
    assert_eq!(transactions.completed(), 1);
}
