//! Requests for I/O that must fail, and harm nothing.

use wire::io_message::{IoMessageType, Repr};

use super::io::{at, read, write};
use super::messages::parse;
use super::plan::Plan;
use super::store::{BLOCK, BLOCKS, CAPACITY, Store};
use crate::role::{Bench, Check, During as _, Wrong};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "io-beyond-storage",
        meaning: "I/O outside the storage gets an error result, moves nothing, and the next I/O works (the reference does not look: it moves the bytes of the transaction before)",
        play: |bench| {
            refused(bench, |offset, size, base| Repr {
                storage_offset: offset,
                size,
                ..base
            })
        },
    },
    Check {
        name: "io-beyond-memory",
        meaning: "I/O outside the client's memory gets an error result, moves nothing, and the next I/O works (the reference does not look: it moves the bytes of the transaction before)",
        play: |bench| {
            refused(bench, |offset, size, base| Repr {
                requester_offset: offset,
                size,
                ..base
            })
        },
    },
    Check {
        name: "io-of-nothing",
        meaning: "I/O of 0 bytes gets an error result (the reference: success)",
        play: of_nothing,
    },
    Check {
        name: "io-of-unknown-type",
        meaning: "A message that is neither read nor write gets an error result, the next I/O works, and the session ends well (the reference counts wrong, and does not stop)",
        play: unknown_type,
    },
    Check {
        name: "io-of-unknown-type-is-answered",
        meaning: "A message that is neither read nor write gets an error result",
        play: unknown_type_is_answered,
    },
    Check {
        name: "io-message-cut-off",
        meaning: "A message of less than 64 bytes gets an error result (the reference takes the rest from the message before, and answers with as many bytes as came)",
        play: cut_off,
    },
];

/// Places and sizes that are not in the storage, nor in the memory, which is as large.
fn refused(bench: &Bench<'_>, aim: fn(u64, u32, Repr) -> Repr) -> Result<(), Wrong> {
    let mut store = Store::open(bench, Plan::SMALL)?;
    let (end, block) = (CAPACITY as u64, BLOCK as u32);
    for (nth, (offset, size)) in [
        (end - u64::from(block) + 1, block),
        (end, 1),
        (end, block),
        (0, CAPACITY as u32 + 1),
        (0, u32::MAX),
        (1 << 32, block),
        (1 << 63, block),
        (u64::MAX, 1),
        (u64::MAX - u64::from(block) + 1, block),
        (u64::MAX - 63, block),
    ]
    .into_iter()
    .enumerate()
    {
        // The good one before is where a bad one must not go.
        store.good(0, &write(at(nth), at(nth + 3), BLOCK))?;
        for base in [
            read(at(nth + 5), at(nth + 6), BLOCK),
            write(at(nth + 7), at(nth + 8), BLOCK),
        ] {
            store.bad(0, &aim(offset, size, base))?;
        }
        store.good(0, &read(at(nth + 9), at(nth), BLOCK))?;
    }
    store.close()
}

fn of_nothing(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut store = Store::open(bench, Plan::SMALL)?;
    for base in [
        read(0, 0, 0),
        write(0, 0, 0),
        read(at(3), at(BLOCKS - 1), 0),
    ] {
        store.bad(0, &base)?;
        store.good(0, &read(at(1), at(2), BLOCK))?;
    }
    store.close()
}

/// Sends a request of this type. Everything else about it is right.
fn of_type(store: &mut Store, number: u32) -> Result<(), Wrong> {
    let base = read(at(4), at(5), BLOCK);
    let mut bytes = base.to_bytes();
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    store.service.workers[0].send(&bytes)?;
    let result = store.service.result(0)?;
    Wrong::unless(
        result.result != 0 && result == base.answer(result.result),
        "an error result with the request's other fields",
        format!("{result:?}"),
    )
    .and_then(|()| store.memory_is_right())
    .during(format!("type {number:#x}"))
}

fn unknown_type(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut store = Store::open(bench, Plan::SMALL)?;
    let result = IoMessageType::Result.number();
    for number in [result, 3, 0x0100_0000, 0x0200_0000, u32::MAX] {
        of_type(&mut store, number)?;
        store.good(0, &write(at(4), at(6), BLOCK))?;
    }
    store.close()
}

fn unknown_type_is_answered(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut store = Store::open(bench, Plan::SMALL)?;
    for number in [IoMessageType::Result.number(), 3] {
        of_type(&mut store, number)?;
    }
    Ok(())
}

fn cut_off(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut store = Store::open(bench, Plan::SMALL)?;
    for length in [63, 40, 24, 1] {
        // The rest would be right, if a target took it from what was there before.
        for nth in 0..Plan::SMALL.transactions as usize {
            store.good(0, &write(at(nth), at(nth + 1), BLOCK))?;
        }
        store.service.memory.fill(0, CAPACITY, 0x5a)?;
        store.memory.fill(0x5a);
        store.service.workers[0].send(&write(at(9), at(10), BLOCK).to_bytes()[..length])?;
        let result = parse(&store.service.workers[0].receive(bench.patience())?)?;
        Wrong::unless(result.result != 0, "an error result", format!("{result:?}"))
            .during(format!("{length} bytes"))?;
        store.memory_is_right()?;
    }
    store.close()
}
