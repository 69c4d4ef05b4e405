//! Transactions on a storage that is a vector, correct or with a selected fault.

mod results;
mod validation;

use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::{ErrorCode, MemoryRegion};
use volume::endpoint::Request as IoRequest;
use wire::control::StorageDetails;
use wire::io_message::IoMessageType;

use super::content::{Content, Pattern, Validator};
use super::transactions::{Task, Transactions};
use super::{Failure, Mismatch};
use crate::cli::{AccessOrder, Strategy};
use crate::layout::{Layout, Request};

const BLOCK: u32 = 512;
const IO_TIMEOUT: Duration = Duration::from_secs(5);

/// Fault of a storage.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Writes succeed without effect.
    IgnoreWrites,
    /// Writes to each of these two blocks are stored in the other.
    SwapWrites(u64, u64),
    /// A block keeps the data of an earlier pass.
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
    fn serve(&mut self, request: IoRequest) -> u32 {
        self.log
            .push((request.storage_offset, request.message_type));
        let (size, local) = (request.size as usize, request.memory_offset as usize);
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
            (IoMessageType::Flush, _) => {
                assert_eq!((at, local, size), (0, 0, 0), "a flush is of no blocks");
            }
            (other, _) => panic!("the initiator sent a {other:?}"),
        }
        ErrorCode::SUCCESS.0
    }
}

/// Transactions of all workers on one storage.
struct Sandbox {
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
    flush_every: u32,
    order: AccessOrder,
    plain: bool,
    is_mirrored: bool,
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
    flush_every: 0,
    order: AccessOrder::Sequential,
    plain: false,
    is_mirrored: false,
    fault: Fault::None,
};

impl Setup {
    fn build(&self) -> Sandbox {
        let details = StorageDetails {
            total_size: self.blocks * u64::from(BLOCK),
            block_size: BLOCK,
        };
        let request = Request {
            workers: self.workers,
            blocks_per_io: self.blocks_per_io,
            local_region_size: self.local_blocks * u64::from(BLOCK),
            is_mirrored: self.is_mirrored,
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
            flush_every: self.flush_every,
            order: self.order,
            io_timeout: IO_TIMEOUT,
            is_mirrored: self.is_mirrored,
        };
        Sandbox {
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

    fn run(&self) -> (Result<(), Failure>, Sandbox) {
        let mut sandbox = self.build();
        (sandbox.run(), sandbox)
    }
}

impl Sandbox {
    fn run(&mut self) -> Result<(), Failure> {
        for worker in 0..self.workers.len() {
            self.run_worker(worker)?;
        }
        Ok(())
    }

    /// Completes the newest request first.
    fn run_worker(&mut self, worker: usize) -> Result<(), Failure> {
        let transactions = &mut self.workers[worker];
        let mut pending = Vec::new();
        for index in 0..transactions.count() {
            let request = transactions.begin(index, Instant::now())?;
            pending.extend(request.map(|request| (index, request)));
        }
        while let Some((index, request)) = pending.pop() {
            let result = self.storage.serve(request);
            // Oldest first for a while, so that every slot is used.
            if let Some(next) = transactions.advance(index, result)? {
                pending.insert(0, (index, next));
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
fn every_nth_write_counts_after_its_flush() {
    for (strategy, reads) in [
        (Strategy::WriteThroughputTest, 0),
        (Strategy::ReadWriteDataValidityTest, 100),
    ] {
        for (flush_every, flushes) in [(0, 0), (1, 100), (7, 14), (101, 0)] {
            let setup = Setup {
                strategy,
                flush_every,
                order: AccessOrder::Scattered,
                ..SETUP
            };
            let (result, sandbox) = setup.run();
            assert_eq!(result, Ok(()));
            let count = |kind| {
                let log = sandbox.storage.log.iter();
                log.filter(|(_, came)| *came == kind).count()
            };
            assert_eq!(count(IoMessageType::Flush), flushes, "{flush_every}");
            assert_eq!(count(IoMessageType::Write), 100);
            assert_eq!(count(IoMessageType::Read), reads);
            // A flush is submitted after N completed writes, so at least as many are in the log.
            let mut writes = 0;
            let mut seen = 0;
            for (_, kind) in &sandbox.storage.log {
                match kind {
                    IoMessageType::Write => writes += 1,
                    IoMessageType::Flush => {
                        seen += 1;
                        assert!(writes >= seen * flush_every, "{writes} {seen}");
                    }
                    _ => {}
                }
            }
            let transactions = sandbox.workers.into_iter().next().expect("a worker");
            assert_eq!(
                transactions.into_measurements().flushes.count(),
                flushes as u64
            );
        }
    }
}
