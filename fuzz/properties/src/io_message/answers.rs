//! What an initiator makes of answers, right and wrong ones, in any order.

use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use role_initiator::cli::{AccessOrder, Strategy};
use role_initiator::data_path::{Task, Transactions};
use role_initiator::layout::{Layout, Request, Share};
use wire::control::StorageDetails;
use wire::io_message::{IoMessageType, Repr};
use wire::release::Release3_2;

use crate::damage::{Damage, spoil};
use crate::many::Many;
use crate::tally::Judging;

/// A run of an initiator, and what happens in it.
#[derive(Debug, Clone, Arbitrary)]
pub struct Answers {
    /// Mostly the numbers are such that there is a run.
    odd: u8,
    storage: AnyStorage,
    workers: u8,
    worker: u8,
    blocks_per_io: u16,
    local_region_size: Option<u32>,
    transactions: u8,
    operations: u8,
    strategy: u8,
    steps: Many<Step, 64>,
}

/// A storage as its service reports it.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum AnyStorage {
    Any { total_size: u64, block_size: u32 },
    Blocks { count: u16, block_size: u16 },
}

/// Something happens. Slots are taken modulo their number.
#[derive(Debug, Clone, Arbitrary)]
enum Step {
    /// A request has left.
    Sent(u8),
    /// A right answer.
    Answer(u8),
    /// The answer says that the I/O failed.
    Failure(u8, u32),
    /// An answer that something happened to.
    Damaged(u8, Vec<Damage>),
    /// Something else.
    Bytes(Vec<u8>),
    /// The run is to end.
    Halt,
}

/// What is known of a slot from outside.
#[derive(Debug, Clone, Copy)]
struct Known {
    request: Repr,
    sent: bool,
    answered: bool,
}

const STRATEGIES: [Strategy; 4] = [
    Strategy::ReadThroughputTest,
    Strategy::WriteThroughputTest,
    Strategy::ReadWriteDataValidityTest,
    Strategy::ReadOnlyDataValidityTest,
];

/// Memory for the run of a worker is as its share is large; here it is not to be.
const LARGEST_SHARE: u32 = 1 << 12;

pub(super) fn property(input: &Answers) {
    let is_odd = input.odd < 64;
    let details = match input.storage {
        AnyStorage::Any {
            total_size,
            block_size,
        } if is_odd => StorageDetails {
            total_size,
            block_size,
        },
        AnyStorage::Any {
            total_size,
            block_size,
        } => blocks(total_size % 128 + 8, block_size % 8192 + 1),
        AnyStorage::Blocks { count, block_size } => blocks(count.into(), block_size.into()),
    };
    let request = Request {
        workers: u32::from(input.workers % 8) + 1,
        blocks_per_io: if is_odd {
            input.blocks_per_io.max(1)
        } else {
            input.blocks_per_io % 4 + 1
        },
        is_mirrored: false,
        local_region_size: input
            .local_region_size
            .filter(|_| is_odd)
            .map_or(0, u64::from),
        transactions: u32::from(input.transactions) + 1,
        operations: u32::from(input.operations) + 1,
    };
    let Ok(layout) = Layout::new(&details, request) else {
        return;
    };
    division(&details, &layout);
    let share = layout.shares[usize::from(input.worker) % layout.shares.len()];
    if share.ios.max(share.local_slots) > LARGEST_SHARE {
        return;
    }
    let task = Task {
        flush_every: 0,
        order: AccessOrder::Sequential,
        share,
        io_size: layout.io_size,
        strategy: STRATEGIES[usize::from(input.strategy) % STRATEGIES.len()],
        validator: None,
        operations: request.operations,
        io_timeout: Duration::from_secs(3600),
    };
    Run::new(share, task).steps(&input.steps.0);
}

fn blocks(count: u64, block_size: u32) -> StorageDetails {
    StorageDetails {
        total_size: count * u64::from(block_size),
        block_size,
    }
}

/// The shares are the storage, each byte of it once, and as much memory as there is.
fn division(details: &StorageDetails, layout: &Layout) {
    let (mut storage, mut local) = (0, 0);
    for share in &layout.shares {
        assert_eq!((share.storage_offset, share.local_offset), (storage, local));
        assert!(share.transactions >= 1);
        assert!(share.transactions <= share.ios.min(share.local_slots));
        let size = u64::from(layout.io_size);
        assert_eq!(share.storage_size.div_ceil(size), u64::from(share.ios));
        storage += share.storage_size;
        local += u64::from(share.local_slots) * size;
    }
    assert_eq!(storage, details.total_size);
    assert!(local <= layout.region_size);
}

/// A run, and what is known of it from outside.
struct Run {
    transactions: Transactions,
    share: Share,
    slots: Vec<Option<Known>>,
    /// Nothing more is to begin.
    ending: bool,
}

impl Run {
    fn new(share: Share, task: Task) -> Self {
        let mut run = Self {
            transactions: Transactions::new(task, Release3_2),
            share,
            slots: vec![None; share.transactions as usize],
            ending: false,
        };
        for slot in 0..share.transactions {
            let request = run.transactions.begin(slot, Instant::now());
            let request = request.expect("nothing has failed");
            run.issued(slot as usize, request);
        }
        run
    }

    /// A slot has another request, or none.
    fn issued(&mut self, slot: usize, request: Option<Repr>) {
        self.slots[slot] = request.map(|request| Known {
            request,
            sent: false,
            answered: false,
        });
        let Some(request) = request else { return };
        assert_eq!(request.user_data, slot as u64);
        assert_ne!(request.size, 0);
        let end = self.share.storage_offset + self.share.storage_size;
        assert!(request.storage_offset >= self.share.storage_offset);
        assert!(request.storage_offset + u64::from(request.size) <= end);
        for (other, known) in self.slots.iter().enumerate() {
            let Some(Known { request: known, .. }) = known else {
                continue;
            };
            assert!(
                other == slot
                    || are_apart(
                        (request.storage_offset, request.size),
                        (known.storage_offset, known.size)
                    ) && are_apart(
                        (request.requester_offset, request.size),
                        (known.requester_offset, known.size)
                    ),
                "two transactions in one place: {request:?} and {known:?}"
            );
        }
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Sent(slot) => self.sent(*slot),
                Step::Answer(slot) => self.answered(self.answer(*slot, 0)),
                Step::Failure(slot, code) => self.answered(self.answer(*slot, *code)),
                Step::Damaged(slot, damage) => {
                    let mut answer = self.answer(*slot, 0);
                    spoil(&mut answer, damage);
                    self.answered(answer);
                }
                Step::Bytes(bytes) => self.answered(bytes.clone()),
                Step::Halt => {
                    self.transactions.halt();
                    self.ending = true;
                }
            }
            assert!(self.transactions.completed() <= self.transactions.operations());
            // What was answered and not sent is still under way.
            let in_flight = self.slots.iter().flatten().count();
            if in_flight != 0 {
                assert!(!self.transactions.at_rest(), "{in_flight} in flight");
            } else {
                assert!(self.transactions.at_rest());
            }
        }
    }

    fn slot(&self, slot: u8) -> usize {
        usize::from(slot) % self.slots.len()
    }

    /// The answer to the request in a slot, or to none.
    fn answer(&self, slot: u8, code: u32) -> Vec<u8> {
        let slot = self.slot(slot);
        let nothing = Repr {
            message_type: IoMessageType::Result,
            user_data: slot as u64,
            result: 0,
            size: 0,
            requester_offset: 0,
            storage_offset: 0,
        };
        let request = self.slots[slot].map_or(nothing, |known| known.request);
        request.answer(code).to_bytes().to_vec()
    }

    fn sent(&mut self, slot: u8) {
        let slot = self.slot(slot);
        // A request is sent once.
        let Some(known) = self.slots[slot].as_mut().filter(|known| !known.sent) else {
            return;
        };
        known.sent = true;
        let over = known.answered;
        let next = self.transactions.sent(slot as u32);
        let next = next.expect("nothing is validated here");
        if over {
            self.issued(slot, next);
        } else {
            assert_eq!(next, None);
        }
    }

    fn answered(&mut self, bytes: Vec<u8>) {
        let judging = Judging::by("io_message: a result at an initiator");
        let accepted = self.judge(&bytes);
        judging.done(accepted);
    }

    /// Whether these bytes answered a request.
    fn judge(&mut self, bytes: &[u8]) -> bool {
        // The one request that these bytes answer, if they do.
        let slot = self.slots.iter().position(|known| {
            known.is_some_and(|known| {
                let right = known.request.answer(0).to_bytes();
                // A result of its own, and nothing where no field is.
                let differs = |(at, (came, right)): (usize, (&u8, &u8))| {
                    came != right && !matches!(at, 4..8 | 16..20 | 40..64)
                };
                !known.answered
                    && bytes.len() == right.len()
                    && !bytes.iter().zip(&right).enumerate().any(differs)
            })
        });
        let result = self.transactions.answered(bytes);
        let Some(slot) = slot else {
            result.expect_err("it answers no request");
            return false;
        };
        if bytes[16..20] != [0; 4] {
            result.expect_err("the I/O failed");
            self.slots[slot] = None;
            self.ending = true;
            return false;
        }
        let (came, next) = result.expect("it answers a request");
        assert_eq!(came as usize, slot);
        let known = self.slots[slot].as_mut().expect("it is in flight");
        known.answered = true;
        if known.sent {
            self.issued(slot, next);
            assert!(
                next.is_none() || !self.ending,
                "no further request after a failure"
            );
        } else {
            assert_eq!(next, None);
        }
        true
    }
}

fn are_apart((a, a_size): (u64, u32), (b, b_size): (u64, u32)) -> bool {
    a + u64::from(a_size) <= b || b + u64::from(b_size) <= a
}
