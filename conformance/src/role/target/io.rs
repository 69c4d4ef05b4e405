//! Reads, writes and flushes that must succeed or fail; the initial and the expected contents.

use std::collections::BTreeSet;

use doca::MemoryRegion;
use wire::control::{FEATURE_FLUSH, FEATURE_VERIFIER, FEATURE_VERSIONS, Payload};
use wire::io_message::{IoMessage, IoMessageType, Repr};
use wire::sbc::Header;

use super::{Plan, Service, Step, parse};
use crate::role::{Check, Fixture, Running};
use crate::violation::{During as _, Violation};

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
        // Every block of the memory is also used, in another order.
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

/// Rounds of requests to all workers, with the plan's number of requests in flight.
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
        meaning: "A message that is neither read nor write gets an error result, the next I/O works, and the session ends cleanly (the reference counts wrong, and does not stop)",
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
        // The missing bytes would be valid if a target took them from the previous message.
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
            let features =
                service.announce(!(FEATURE_FLUSH | FEATURE_VERIFIER | FEATURE_VERSIONS))?;
            Violation::unless(features == 0, "no extensions", format!("{features:#x}"))?;
            service.go_to(Step::Stop)?;
            flush_refused(&mut service)?;
            service.finish(&mut running)
        },
    },
    Check {
        name: "verifier-announced",
        meaning: "A target that announces a verifier sends it with the answer to the init request, with an identity and one incarnation; any other sends the plain answer",
        play: verified,
    },
];

fn verified(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = open(fixture)?;
    let features = service.announce(FEATURE_VERIFIER)?;
    let init = service.init_request()?;
    let answer = service.ask(Payload::InitStorageRequest(init))?;
    service.taken(Step::Init);
    let is_expected = match &answer {
        Payload::VerifiedInitStorageResponse(verifier) => {
            features == FEATURE_VERIFIER
                && (verifier.identity_high, verifier.identity_low) != (0, 0)
                && verifier.quorum == 1
                && verifier.incarnations.len() == 16
                && verifier.incarnations.iter().any(|&byte| byte != 0)
        }
        answer => features == 0 && *answer == Payload::InitStorageResponse,
    };
    Violation::unless(
        is_expected,
        format!("an answer with a verifier if it was announced ({features:#x})"),
        format!("{answer:?}"),
    )?;
    service.go_to(Step::Stop)?;
    service.works()?;
    service.finish(&mut running)
}

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

// Initial contents of a target: a file, or zeros.

pub(super) const CONTENT_CHECKS: &[Check] = &[
    Check {
        name: "content-none",
        meaning: "Without a file all blocks are zeros",
        play: |fixture| {
            begins_with(
                fixture,
                None,
                &["--block-count", "5", "--block-size", "512"],
                &[0; 5 * 512],
                512,
            )
        },
    },
    Check {
        name: "content-plain",
        meaning: "A plain file of exactly the storage's size is its content",
        play: |fixture| {
            let content = pattern(7 * 512, 3);
            begins_with(
                fixture,
                Some(&content),
                &["--block-count", "7", "--block-size", "512"],
                &content,
                512,
            )
        },
    },
    Check {
        name: "content-sbc",
        meaning: "A .sbc file says how many blocks there are, of which size, whatever the flags say, and is their content",
        play: |fixture| {
            let content = pattern(6 * 1024, 4);
            begins_with(
                fixture,
                Some(&sbc(1024, 6, &content)),
                &["--block-count", "99"],
                &content,
                1024,
            )
        },
    },
    Check {
        name: "content-sbc-halves",
        meaning: "A .sbc file of a gga set, of half blocks, is served in half blocks",
        play: |fixture| {
            let content = pattern(16 * 2048, 5);
            begins_with(fixture, Some(&sbc(2048, 16, &content)), &[], &content, 2048)
        },
    },
    Check {
        name: "content-sbc-too-long",
        meaning: "Bytes after the last block of a .sbc file are not served",
        play: |fixture| {
            let content = pattern(9 * 512, 6);
            begins_with(
                fixture,
                Some(&sbc(512, 8, &content)),
                &[],
                &content[..8 * 512],
                512,
            )
        },
    },
    Check {
        name: "content-sbc-too-short",
        meaning: "A .sbc file with less content than it says ends the target",
        play: |fixture| {
            let content = pattern(8 * 512, 7);
            file_refused(fixture, &sbc(512, 8, &content[..8 * 512 - 1]))?;
            file_refused(fixture, &sbc(512, 8, &[]))
        },
    },
    Check {
        name: "content-sbc-header-cut-off",
        meaning: "A .sbc file that ends within its header ends the target",
        play: |fixture| {
            (1..4).try_for_each(|quarter| file_refused(fixture, &sbc(512, 1, &[])[..quarter * 4]))
        },
    },
    Check {
        name: "content-sbc-wrong-magic",
        meaning: "A file with another magic is a plain one, and ends the target when its size is not the storage's",
        play: |fixture| {
            let mut file = sbc(512, 2, &pattern(1024, 8));
            file[7] ^= 1;
            file_refused(fixture, &file)
        },
    },
    Check {
        name: "content-sbc-of-nothing",
        meaning: "A .sbc file of no blocks, or of blocks without bytes, ends the target (the reference serves it)",
        play: |fixture| {
            file_refused(fixture, &sbc(0, 8, &[]))?;
            file_refused(fixture, &sbc(512, 0, &[]))
        },
    },
    Check {
        name: "content-sbc-too-large",
        meaning: "A .sbc file that says more than 2 GiB ends the target",
        play: |fixture| {
            file_refused(fixture, &sbc(u32::MAX, u32::MAX, &[]))?;
            file_refused(fixture, &sbc(4096, 1 << 20, &[]))
        },
    },
    Check {
        name: "content-plain-wrong-size",
        meaning: "A plain file that is shorter or longer than the storage, or empty, ends the target",
        play: |fixture| {
            let content = pattern(128 * 4096 + 1, 9);
            file_refused(fixture, &content)?;
            file_refused(fixture, &content[..128 * 4096 - 1])?;
            file_refused(fixture, &[])
        },
    },
    Check {
        name: "content-missing",
        meaning: "A missing file ends the target",
        play: |fixture| {
            ends(
                &mut spawn(fixture, &["--binary-content", "/no/such/file"])?,
                fixture,
            )
        },
    },
    Check {
        name: "storage-of-nothing",
        meaning: "--block-count 0 and --block-size 0 end the target",
        play: |fixture| {
            ends(&mut spawn(fixture, &["--block-count", "0"])?, fixture)?;
            ends(&mut spawn(fixture, &["--block-size", "0"])?, fixture)
        },
    },
    Check {
        name: "port-in-use",
        meaning: "A port that another target listens on ends the target, and not the other",
        play: port_in_use,
    },
];

fn sbc(block_size: u32, block_count: u32, content: &[u8]) -> Vec<u8> {
    let header = Header {
        block_size,
        block_count,
    };
    [&header.emit()[..], content].concat()
}

/// Starts a target with this file; it must report and serve a storage with `content`.
fn begins_with(
    fixture: &Fixture<'_>,
    file: Option<&[u8]>,
    flags: &[&str],
    content: &[u8],
    block_size: u32,
) -> Result<(), Violation> {
    let path = file
        .map(|bytes| fixture.sandbox().file("content", bytes))
        .transpose()?;
    let path = path.map(|path| path.display().to_string());
    let mut all = flags.to_vec();
    if let Some(path) = &path {
        all.extend(["--binary-content", path]);
    }
    let plan = Plan {
        memory: content.len(),
        ..Plan::SMALL
    };
    let (mut running, mut service) = Service::at(fixture, &all, plan, Step::Query)?;
    let details = service.query()?;
    Violation::unless(
        (details.total_size, details.block_size) == (content.len() as u64, block_size),
        format!("{} bytes in blocks of {block_size}", content.len()),
        format!("{details:?}"),
    )?;
    service.taken(Step::Query);
    service.go_to(Step::Stop)?;
    // Detects a read without effect.
    service.memory.fill(0, content.len(), 0xee)?;
    let code = service.io(0, &read(0, 0, content.len()))?;
    Violation::unless(code == 0, "a result of 0", code)?;
    let mut came = vec![0; content.len()];
    service.memory.read(0, &mut came)?;
    Violation::unless(came == content, "the content of the file", "other bytes")?;
    service.finish(&mut running)
}

/// Checks that a target with this file exits with a failure.
fn file_refused(fixture: &Fixture<'_>, file: &[u8]) -> Result<(), Violation> {
    let path = fixture
        .sandbox()
        .file("content", file)?
        .display()
        .to_string();
    ends(&mut spawn(fixture, &["--binary-content", &path])?, fixture)
}

fn spawn(fixture: &Fixture<'_>, flags: &[&str]) -> Result<Running, Violation> {
    fixture.spawn_target(fixture.sandbox().port()?, flags)
}

fn ends(running: &mut Running, fixture: &Fixture<'_>) -> Result<(), Violation> {
    running.expect_failure(fixture.timeout() / 4)
}

fn port_in_use(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, port) = fixture.start_target(&[])?;
    ends(&mut fixture.spawn_target(port, &[])?, fixture)?;
    let mut service = Service::connect(fixture, port, Plan::SMALL)?;
    service.go_to(Step::Stop)?;
    service.works()?;
    service.finish(&mut running)
}

// Expected contents of the storage and of the client's memory.

/// Size of a block in bytes, and number of blocks.
pub(super) const BLOCK: usize = 512;
pub(super) const BLOCKS: usize = 16;
/// Size of the storage and of the memory in bytes: the whole storage fits in one I/O.
const CAPACITY: usize = BLOCK * BLOCKS;

/// Bytes with no two equal blocks or halves of blocks.
pub(super) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    contents::noise(seed, length)
}

/// A running session with a storage of known contents, and the expected contents of storage and memory.
pub(super) struct Store {
    pub(super) running: Running,
    pub(super) service: Service,
    pub(super) memory: Vec<u8>,
    pub(super) storage: Vec<u8>,
}

impl Store {
    /// Opens a session with one worker per core of the plan, and a memory as large as the storage.
    pub(super) fn open(fixture: &Fixture<'_>, plan: Plan) -> Result<Self, Violation> {
        let storage = pattern(CAPACITY, 1);
        let file = fixture.sandbox().file("content", &storage)?;
        let file = file.display().to_string();
        let (count, size) = (BLOCKS.to_string(), BLOCK.to_string());
        let mut flags = vec!["--binary-content", &file, "--block-count", &count];
        flags.extend(["--block-size", &size]);
        for _ in 1..plan.cores {
            flags.extend(["--cpu", "0"]);
        }
        let plan = Plan {
            memory: CAPACITY,
            ..plan
        };
        let (running, service) = Service::at(fixture, &flags, plan, Step::Stop)?;
        let memory = pattern(CAPACITY, 2);
        service.memory.write(0, &memory)?;
        Ok(Self {
            running,
            service,
            memory,
            storage,
        })
    }

    /// Performs an I/O that must succeed, and leave exactly the expected bytes in the memory.
    pub(super) fn good(&mut self, worker: usize, request: &Repr) -> Result<(), Violation> {
        self.note(request);
        let code = self.service.io(worker, request)?;
        Violation::unless(code == 0, "a result of 0", code)
            .and_then(|()| self.memory_is_right())
            .during(format!("{request:?}"))
    }

    /// Performs an I/O that must fail without changing the memory.
    pub(super) fn bad(&mut self, worker: usize, request: &Repr) -> Result<(), Violation> {
        let code = self.service.io(worker, request)?;
        Violation::unless(code != 0, "a result other than 0", code)
            .and_then(|()| self.memory_is_right())
            .during(format!("{request:?}"))
    }

    /// Updates the expected contents for a successful request.
    pub(super) fn note(&mut self, request: &Repr) {
        if request.message_type == IoMessageType::Flush {
            return;
        }
        let (memory, storage) = (
            request.requester_offset as usize,
            request.storage_offset as usize,
        );
        let size = request.size as usize;
        let memory = &mut self.memory[memory..memory + size];
        let storage = &mut self.storage[storage..storage + size];
        match request.message_type {
            IoMessageType::Read => memory.copy_from_slice(storage),
            IoMessageType::Write | IoMessageType::WriteFua => storage.copy_from_slice(memory),
            _ => {}
        }
    }

    /// Compares the memory with its expected contents.
    fn memory_is_right(&self) -> Result<(), Violation> {
        compare("memory", &self.service.memory, &self.memory)
    }

    /// Reads the whole storage and compares it. Changes the memory accordingly.
    fn storage_is_right(&mut self) -> Result<(), Violation> {
        // Detects a read without effect.
        self.memory.fill(0xee);
        self.service.memory.fill(0, CAPACITY, 0xee)?;
        let everything = read(0, 0, CAPACITY);
        self.good(0, &everything)
            .during("the whole storage at the end")
    }

    /// Compares the storage, and ends the session cleanly.
    pub(super) fn close(mut self) -> Result<(), Violation> {
        self.storage_is_right()?;
        self.service.finish(&mut self.running)
    }
}

fn compare(what: &str, region: &MemoryRegion, expected: &[u8]) -> Result<(), Violation> {
    let mut came = vec![0; expected.len()];
    region.read(0, &mut came)?;
    let Some(at) = came.iter().zip(expected).position(|(a, b)| a != b) else {
        return Ok(());
    };
    Err(Violation::expected(
        format!("byte {:#04x} at {at} of the {what}", expected[at]),
        format!("{:#04x}", came[at]),
    ))
}
