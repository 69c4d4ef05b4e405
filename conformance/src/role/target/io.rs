//! Reads and writes that must succeed.

use std::collections::BTreeSet;

use wire::control::FEATURE_FLUSH;
use wire::io_message::{IoMessage, IoMessageType, Repr};

use super::content::{BLOCK, BLOCKS, CAPACITY, Store};
use super::service::Service;
use super::{Plan, Step, parse};
use crate::role::{Check, During as _, Fixture, Running, Violation};

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
        play: |fixture| {
            queue(
                fixture,
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
        play: |fixture| {
            queue(
                fixture,
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
        meaning: "Two workers serve their queues concurrently, each with its own results",
        play: |fixture| {
            queue(
                fixture,
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

/// A read, from storage to memory.
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

/// A write, from memory to storage.
pub(super) fn write(requester_offset: u64, storage_offset: u64, size: usize) -> Repr {
    Repr {
        message_type: IoMessageType::Write,
        ..read(requester_offset, storage_offset, size)
    }
}

/// Offset of a block in bytes.
pub(super) fn at(block: usize) -> u64 {
    (block % BLOCKS * BLOCK) as u64
}

fn read_every_block(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut store = Store::open(fixture, Plan::SMALL)?;
    for block in (0..BLOCKS).rev() {
        // Every block of the memory, too, in another order.
        store.good(0, &read(at(block * 5 + 3), at(block), BLOCK))?;
    }
    store.close()
}

fn write_every_block(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut store = Store::open(fixture, Plan::SMALL)?;
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

fn many_sizes(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut store = Store::open(fixture, Plan::SMALL)?;
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

fn fields(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut store = Store::open(fixture, Plan::SMALL)?;
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
            // All reserved bits are set.
            let mut message = IoMessage::new_unchecked_len([0xff; wire::io_message::SIZE]);
            request.emit(&mut message);
            let mut bytes = message.into_inner();
            bytes[4..8].fill(0xff);
            bytes[40..].fill(0xff);
            store.note(&request);
            store.service.workers[0].send(&bytes)?;
            let result = store.service.result(0)?;
            Violation::unless(
                result == request.answer(0),
                format!("{:?}", request.answer(0)),
                format!("{result:?}"),
            )?;
            store.memory_is_right().during(format!("{request:?}"))?;
        }
    }
    store.close()
}

/// Rounds of requests to all workers, with as many in flight as the plan says.
fn queue(fixture: &Fixture<'_>, plan: Plan) -> Result<(), Violation> {
    const ROUNDS: usize = 8;
    let mut store = Store::open(fixture, plan)?;
    let workers = plan.cores as usize;
    // Each I/O of a round has its own range, so their order does not matter.
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
                let bytes = store.service.workers[worker].receive(fixture.timeout())?;
                // Reserved bytes may have any value.
                let result = parse(&bytes)?;
                let expected = waiting.remove(&result.to_bytes());
                Violation::unless(
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
            return Err(Violation::expected(
                "no further result",
                format!("{result:?}"),
            ));
        }
    }
    store.close()
}

// I/O requests that must fail without side effects.

pub(super) const REFUSAL_CHECKS: &[Check] = &[
    Check {
        name: "io-beyond-storage",
        meaning: "I/O outside the storage gets an error result, moves nothing, and the next I/O works (the reference does not check: it moves the bytes of the transaction before)",
        play: |fixture| {
            refused(fixture, |offset, size, base| Repr {
                storage_offset: offset,
                size,
                ..base
            })
        },
    },
    Check {
        name: "io-beyond-memory",
        meaning: "I/O outside the client's memory gets an error result, moves nothing, and the next I/O works (the reference does not check: it moves the bytes of the transaction before)",
        play: |fixture| {
            refused(fixture, |offset, size, base| Repr {
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
        meaning: "A message of less than 64 bytes gets an error result (the reference takes the rest from the message before, and answers with as many bytes as it received)",
        play: cut_off,
    },
];

/// Ranges that exceed the storage or the memory, which have the same size.
fn refused(fixture: &Fixture<'_>, aim: fn(u64, u32, Repr) -> Repr) -> Result<(), Violation> {
    let mut store = Store::open(fixture, Plan::SMALL)?;
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
        // A valid I/O before, so that effects of the invalid one on its range are detected.
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

fn of_nothing(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut store = Store::open(fixture, Plan::SMALL)?;
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

/// Sends a request of this type that is otherwise valid.
fn of_type(store: &mut Store, number: u32) -> Result<(), Violation> {
    let base = read(at(4), at(5), BLOCK);
    let mut bytes = base.to_bytes();
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    store.service.workers[0].send(&bytes)?;
    let result = store.service.result(0)?;
    Violation::unless(
        result.result != 0 && result == base.answer(result.result),
        "an error result with the request's other fields",
        format!("{result:?}"),
    )
    .and_then(|()| store.memory_is_right())
    .during(format!("type {number:#x}"))
}

fn unknown_type(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut store = Store::open(fixture, Plan::SMALL)?;
    let result = IoMessageType::Result.number();
    for number in [result, 3, 0x0100_0000, 0x0200_0000, u32::MAX] {
        of_type(&mut store, number)?;
        store.good(0, &write(at(4), at(6), BLOCK))?;
    }
    store.close()
}

fn unknown_type_is_answered(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut store = Store::open(fixture, Plan::SMALL)?;
    for number in [IoMessageType::Result.number(), 3] {
        of_type(&mut store, number)?;
    }
    Ok(())
}

fn cut_off(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut store = Store::open(fixture, Plan::SMALL)?;
    for length in [63, 40, 24, 1] {
        // The rest would be valid if a target took it from the previous message.
        for nth in 0..Plan::SMALL.transactions as usize {
            store.good(0, &write(at(nth), at(nth + 1), BLOCK))?;
        }
        store.service.memory.fill(0, CAPACITY, 0x5a)?;
        store.memory.fill(0x5a);
        store.service.workers[0].send(&write(at(9), at(10), BLOCK).to_bytes()[..length])?;
        let result = parse(&store.service.workers[0].receive(fixture.timeout())?)?;
        Violation::unless(result.result != 0, "an error result", format!("{result:?}"))
            .during(format!("{length} bytes"))?;
        store.memory_is_right()?;
    }
    store.close()
}

// Flushes and durable writes, an extension of the data path that both sides announce.

/// Size of a block in bytes.
const FLUSH_BLOCK: usize = 4096;

pub(super) const FLUSH_CHECKS: &[Check] = &[
    Check {
        name: "flush-unannounced",
        meaning: "To a service that has announced nothing, flushes and durable writes are unknown, whatever the target has",
        play: |fixture| {
            let (mut running, mut service) = open(fixture)?;
            service.go_to(Step::Stop)?;
            flush_refused(&mut service)?;
            service.finish(&mut running)
        },
    },
    Check {
        name: "flush-announced",
        meaning: "An announcement is answered as a query, and with flush only by a target that has it: then flushes and durable writes succeed, else they are unknown",
        play: announced,
    },
    Check {
        name: "flush-other-features",
        meaning: "Unknown extensions are not announced back, and do not enable flush",
        play: |fixture| {
            let (mut running, mut service) = open(fixture)?;
            let features = service.announce(!FEATURE_FLUSH)?;
            Violation::unless(features == 0, "no extensions", format!("{features:#x}"))?;
            service.go_to(Step::Stop)?;
            flush_refused(&mut service)?;
            service.finish(&mut running)
        },
    },
];

/// A target with its blocks in a file, if it supports that: otherwise a flush has no effect.
fn open(fixture: &Fixture<'_>) -> Result<(Running, Service), Violation> {
    let file = fixture.sandbox().path("blocks").display().to_string();
    Service::at(
        fixture,
        &["--backing-file", &file],
        Plan::SMALL,
        Step::Query,
    )
    .or_else(|_| Service::at(fixture, &[], Plan::SMALL, Step::Query))
}

fn request_of_type(message_type: IoMessageType, block: usize) -> Repr {
    let size = if message_type == IoMessageType::Flush {
        0
    } else {
        FLUSH_BLOCK
    };
    let offset = if size == 0 { 0 } else { block * FLUSH_BLOCK } as u64;
    Repr {
        message_type,
        ..write(0, offset, size)
    }
}

fn flush_refused(service: &mut Service) -> Result<(), Violation> {
    for message_type in [IoMessageType::Flush, IoMessageType::WriteFua] {
        let code = service.io(0, &request_of_type(message_type, 1))?;
        Violation::unless(code != 0, "a result other than 0", code)
            .during(format!("{message_type:?}"))?;
        service.works()?;
    }
    Ok(())
}

fn announced(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = open(fixture)?;
    let features = service.announce(FEATURE_FLUSH)?;
    service.go_to(Step::Stop)?;
    if features == 0 {
        flush_refused(&mut service)?;
        return service.finish(&mut running);
    }
    let good = |service: &mut Service, request: Repr| {
        let code = service.io(0, &request)?;
        Violation::unless(code == 0, "a result of 0", code).during(format!("{request:?}"))
    };
    for round in 1..=3_u8 {
        service.memory.fill(0, FLUSH_BLOCK, round)?;
        good(&mut service, request_of_type(IoMessageType::Write, 1))?;
        good(&mut service, request_of_type(IoMessageType::Flush, 0))?;
        service.memory.fill(0, FLUSH_BLOCK, round | 0x80)?;
        good(&mut service, request_of_type(IoMessageType::WriteFua, 2))?;
        good(&mut service, request_of_type(IoMessageType::Flush, 0))?;
        for (block, byte) in [(1, round), (2, round | 0x80)] {
            good(
                &mut service,
                read(0, (block * FLUSH_BLOCK) as u64, FLUSH_BLOCK),
            )?;
            let mut bytes = [0; FLUSH_BLOCK];
            service.memory.read(0, &mut bytes)?;
            Violation::unless(
                bytes == [byte; FLUSH_BLOCK],
                format!("block {block} full of {byte:#04x}"),
                format!("{:#04x}", bytes[0]),
            )?;
        }
    }
    let outside = Repr {
        storage_offset: 1 << 40,
        ..request_of_type(IoMessageType::WriteFua, 0)
    };
    let code = service.io(0, &outside)?;
    Violation::unless(code != 0, "an error result beyond the end", code)?;
    service.finish(&mut running)
}
