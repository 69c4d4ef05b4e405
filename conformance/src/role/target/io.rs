//! Reads and writes that must work.

use std::collections::BTreeSet;

use wire::io_message::{IoMessage, IoMessageType, Repr};

use super::messages::parse;
use super::plan::Plan;
use super::store::{BLOCK, BLOCKS, CAPACITY, Store};
use crate::role::{Bench, Check, During as _, Wrong};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "read-every-block",
        meaning: "A read of any block puts exactly its content where it is asked for",
        play: read_every_block,
    },
    Check {
        name: "write-every-block",
        meaning: "A write of any block changes exactly this block, and reads see it",
        play: write_every_block,
    },
    Check {
        name: "io-of-many-sizes",
        meaning: "I/Os of one byte to all of the storage, across blocks and up to both ends, move exactly what they say",
        play: many_sizes,
    },
    Check {
        name: "io-fields",
        meaning: "A result keeps user data, size and offsets; the reserved bytes and the result of a request mean nothing",
        play: fields,
    },
    Check {
        name: "io-queue",
        meaning: "As many requests at once as there are transactions get one result each, again and again",
        play: |bench| {
            queue(
                bench,
                Plan {
                    transactions: 16,
                    depth: 16,
                    ..Plan::SMALL
                },
            )
        },
    },
    Check {
        name: "io-queue-overfull",
        meaning: "More requests than there are transactions wait, and get one result each",
        play: |bench| {
            queue(
                bench,
                Plan {
                    transactions: 2,
                    depth: 32,
                    ..Plan::SMALL
                },
            )
        },
    },
    Check {
        name: "io-queues-of-two-workers",
        meaning: "Two workers serve their queues at the same time, each with its own results",
        play: |bench| {
            queue(
                bench,
                Plan {
                    cores: 2,
                    transactions: 8,
                    depth: 8,
                    ..Plan::SMALL
                },
            )
        },
    },
];

/// From the storage to the memory.
pub(super) fn read(requester_offset: u64, storage_offset: u64, size: usize) -> Repr {
    Repr {
        message_type: IoMessageType::Read,
        user_data: 0xabcd_ef01_2345_6789,
        result: 0,
        size: u32::try_from(size).unwrap_or(u32::MAX),
        requester_offset,
        storage_offset,
    }
}

/// From the memory to the storage.
pub(super) fn write(requester_offset: u64, storage_offset: u64, size: usize) -> Repr {
    Repr {
        message_type: IoMessageType::Write,
        ..read(requester_offset, storage_offset, size)
    }
}

/// The offset of a block.
pub(super) fn at(block: usize) -> u64 {
    (block % BLOCKS * BLOCK) as u64
}

fn read_every_block(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut store = Store::open(bench, Plan::SMALL)?;
    for block in (0..BLOCKS).rev() {
        // Every block of the memory, too, and in another order.
        store.good(0, &read(at(block * 5 + 3), at(block), BLOCK))?;
    }
    store.close()
}

fn write_every_block(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut store = Store::open(bench, Plan::SMALL)?;
    for block in 0..BLOCKS {
        store.good(0, &write(at(block * 7 + 2), at(block), BLOCK))?;
        if block == BLOCKS / 2 {
            let memory = store.memory.clone();
            store
                .storage_is_right()
                .during("after half of the blocks")?;
            store.service.memory.write(0, &memory)?;
            store.memory = memory;
        }
    }
    store.close()
}

fn many_sizes(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut store = Store::open(bench, Plan::SMALL)?;
    let end = CAPACITY as u64;
    for (requester, storage, size) in [
        (0, 0, 1),
        (end - 1, end - 1, 1),
        (0, end - 1, 1),
        (end - 1, 0, 1),
        (100, 1, 2 * BLOCK + 1),
        (3, BLOCK as u64 - 1, 2),
        (end - 77, 13, 77),
        (13, end - 77, 77),
        (1, 0, CAPACITY - 1),
        (0, 0, CAPACITY),
    ] {
        store.good(0, &write(requester, storage, size))?;
        store.good(0, &read(storage, requester, size))?;
    }
    store.close()
}

fn fields(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut store = Store::open(bench, Plan::SMALL)?;
    for (nth, user_data) in [0, u64::MAX, 1 << 63, 0x0102_0304_0506_0708]
        .into_iter()
        .enumerate()
    {
        for base in [
            read(at(nth), at(nth + 1), BLOCK),
            write(at(nth), at(nth + 2), BLOCK),
        ] {
            let request = Repr {
                user_data,
                result: u32::MAX,
                ..base
            };
            // What has no meaning is all ones.
            let mut message = IoMessage::new_unchecked_len([0xff; wire::io_message::SIZE]);
            request.emit(&mut message);
            let mut bytes = message.into_inner();
            bytes[4..8].fill(0xff);
            bytes[40..].fill(0xff);
            store.note(&request);
            store.service.workers[0].send(&bytes)?;
            let result = store.service.result(0)?;
            Wrong::unless(
                result == request.answer(0),
                format!("{:?}", request.answer(0)),
                format!("{result:?}"),
            )?;
            store.memory_is_right().during(format!("{request:?}"))?;
        }
    }
    store.close()
}

/// Rounds of requests to all workers, as many at once as the plan says.
fn queue(bench: &Bench<'_>, plan: Plan) -> Result<(), Wrong> {
    const ROUNDS: usize = 8;
    let mut store = Store::open(bench, plan)?;
    let workers = plan.cores as usize;
    // Each I/O of a round has a place of its own, so that their order does not matter.
    let piece = CAPACITY / (workers * plan.depth);
    for round in 0..ROUNDS {
        let mut waiting = vec![BTreeSet::new(); workers];
        for slot in 0..plan.depth {
            for (worker, waiting) in waiting.iter_mut().enumerate() {
                let place = (slot * workers + worker) * piece;
                let other = (place + piece * round) % CAPACITY;
                let base = if round % 2 == 0 {
                    write(place as u64, other as u64, piece)
                } else {
                    read(place as u64, other as u64, piece)
                };
                let request = Repr {
                    user_data: (round * 1000 + slot * 10 + worker) as u64,
                    ..base
                };
                store.note(&request);
                store.service.workers[worker].send(&request.to_bytes())?;
                waiting.insert(request.answer(0).to_bytes());
            }
        }
        for (worker, waiting) in waiting.iter_mut().enumerate() {
            while !waiting.is_empty() {
                let bytes = store.service.workers[worker].receive(bench.patience())?;
                // What has no meaning may be anything.
                let result = parse(&bytes)?;
                let expected = waiting.remove(&result.to_bytes());
                Wrong::unless(
                    expected,
                    "one result for each request, of 0",
                    format!("{result:?}"),
                )
                .during(format!("worker {worker}, round {round}"))?;
            }
        }
        store.memory_is_right().during(format!("round {round}"))?;
    }
    for worker in 0..workers {
        if let Some(bytes) = store.service.workers[worker].poll()? {
            let result = parse(&bytes)?;
            return Err(Wrong::expected("no further result", format!("{result:?}")));
        }
    }
    store.close()
}
