//! I/O through a running service, and its blocks on the targets.

mod faults;
mod gga;

use std::collections::HashSet;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use deployment::implementation::Role;
use lz4_flex::block::{compress, decompress};
use wire::control::FEATURE_FLUSH;
use wire::io_message::IoMessageType::{self, Flush, Read, Write, WriteFua};
use wire::io_message::{IoMessage, Repr, SIZE};

use super::{BLOCK, BLOCKS, Heard, MEMORY_BLOCKS, Peers, TRANSACTIONS, scripts};
use crate::role::{Check, Fixture, Step};
use crate::target::{Fault, Script};
use crate::violation::{During as _, Violation};

/// Checks of I/O through this service.
pub(super) fn checks(role: Role) -> Vec<Check> {
    let mut checks = BLOCK_CHECKS.to_vec();
    checks.extend(faults::REFUSAL_CHECKS);
    checks.extend(faults::CHECKS);
    match role {
        Role::GgaOffload => checks.extend(gga::CHECKS),
        _ => checks.extend(ZERO_COPY_CHECKS),
    }
    checks
}

// A running session, its blocks, and I/Os on them.

/// Contents of a block: different for each block and each `version`. They compress to three quarters, so that both halves of a
/// stored block contain data.
fn content(block: usize, version: u8) -> Vec<u8> {
    let mut bytes = contents::noise((block as u64) << 8 | u64::from(version), BLOCK);
    for line in bytes.chunks_mut(64) {
        line[0] = block as u8;
        line[1] = version;
        line[44..].fill(0x20);
    }
    bytes
}

/// All blocks of a version.
fn contents(version: u8) -> Vec<Vec<u8>> {
    (0..BLOCKS).map(|block| content(block, version)).collect()
}

/// Scripts of targets that hold these blocks in the service's format.
fn holding(fixture: &Fixture<'_>, blocks: &[Vec<u8>]) -> Vec<Script> {
    let mut scripts = scripts(fixture);
    if scripts.len() == 3 {
        let stored: Vec<_> = blocks
            .iter()
            .map(|content| encode_stored(content))
            .collect();
        for (script, half) in scripts.iter_mut().zip(halves(&stored)) {
            script.content = half;
        }
    } else {
        scripts[0].content = blocks.concat();
    }
    scripts
}

/// A session that is ready for I/O. Derefs to its [`Peers`].
struct Volume<'a> {
    peers: Peers<'a>,
}

impl<'a> Deref for Volume<'a> {
    type Target = Peers<'a>;

    fn deref(&self) -> &Peers<'a> {
        &self.peers
    }
}

impl DerefMut for Volume<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.peers
    }
}

impl<'a> Volume<'a> {
    /// Opens a volume with one worker and targets that hold version 1 of every block.
    fn open(fixture: &'a Fixture<'a>, flags: &[&str]) -> Result<Self, Violation> {
        Self::with(fixture, flags, &holding(fixture, &contents(1)), 1)
    }

    /// As [`open`](Self::open), with a fault of the given target, or of the only target.
    fn faulty(
        fixture: &'a Fixture<'a>,
        flags: &[&str],
        target: usize,
        fault: Fault,
    ) -> Result<Self, Violation> {
        let mut scripts = holding(fixture, &contents(1));
        let count = scripts.len();
        scripts[target % count].fault = fault;
        Self::with(fixture, flags, &scripts, 1)
    }

    /// Opens a volume with these targets and this many workers; each but the first has a further CPU.
    fn with(
        fixture: &'a Fixture<'a>,
        flags: &[&str],
        scripts: &[Script],
        workers: u32,
    ) -> Result<Self, Violation> {
        Self::announcing(fixture, flags, scripts, workers, 0)
    }

    /// As [`with`](Self::with), with an initiator that announces these extensions of the data path.
    fn announcing(
        fixture: &'a Fixture<'a>,
        flags: &[&str],
        scripts: &[Script],
        workers: u32,
        features: u32,
    ) -> Result<Self, Violation> {
        let mut peers = Peers::with(fixture, flags, scripts)?;
        (peers.workers, peers.features) = (workers, features);
        peers
            .take_until(Step::Stop)
            .during("start of the session")?;
        peers
            .targets
            .iter_mut()
            .for_each(|target| target.session.watch_ios());
        Ok(Self { peers })
    }

    /// Sends messages on a worker's fast path, at most one per transaction, and returns the same number of responses,
    /// in the order of their arrival.
    fn exchange(
        &mut self,
        worker: usize,
        messages: &[Vec<u8>],
    ) -> Result<Vec<[u8; SIZE]>, Violation> {
        let timeout = self.timeout();
        for message in messages {
            self.io[worker].send_bytes(message, timeout)?;
        }
        (0..messages.len()).map(|_| self.result(worker)).collect()
    }

    /// Waits for an answer on a worker's fast path.
    fn result(&mut self, worker: usize) -> Result<[u8; SIZE], Violation> {
        self.poll_result(worker, self.timeout())?
            .ok_or_else(|| Violation::expected("the result of an I/O", "none in time"))
    }

    /// Polls for an answer for this time.
    fn poll_result(
        &mut self,
        worker: usize,
        time: Duration,
    ) -> Result<Option<[u8; SIZE]>, Violation> {
        let deadline = Instant::now() + time;
        loop {
            if let Some(bytes) = self.io[worker].poll()? {
                let length = bytes.len();
                return <[u8; SIZE]>::try_from(bytes).map(Some).map_err(|_| {
                    Violation::expected(
                        format!("a result of {SIZE} bytes"),
                        format!("{length} bytes"),
                    )
                });
            }
            match self.look()? {
                Heard::Nothing => {}
                heard => {
                    return Err(Violation::expected(
                        "the result of an I/O",
                        format!(
                            "{}; the service: {}",
                            heard.describe(),
                            self.service.state()
                        ),
                    ));
                }
            }
            if Instant::now() > deadline {
                return Ok(None);
            }
        }
    }

    /// Performs one I/O, and returns the code of its result. The other fields must equal those of the request.
    fn io_at(
        &mut self,
        message_type: IoMessageType,
        size: u32,
        requester_offset: u64,
        storage_offset: u64,
    ) -> Result<u32, Violation> {
        let request = Repr {
            message_type,
            user_data: 0x0123_4567_89ab_cdef ^ storage_offset,
            result: 0,
            size,
            requester_offset,
            storage_offset,
        };
        let answers = self.exchange(0, &[request.to_bytes().to_vec()])?;
        answered(request, &answers[0])
    }

    /// Performs one I/O of one or more blocks; block `n` is at block `n` of the memory.
    fn io(
        &mut self,
        message_type: IoMessageType,
        block: usize,
        count: usize,
    ) -> Result<u32, Violation> {
        let offset = (block * BLOCK) as u64;
        self.io_at(message_type, (count * BLOCK) as u32, offset, offset)
    }

    /// As [`Volume::io`], which must succeed.
    fn done(
        &mut self,
        message_type: IoMessageType,
        block: usize,
        count: usize,
    ) -> Result<(), Violation> {
        let what = format!("{message_type:?} of block {block}");
        let code = self.io(message_type, block, count).during(&what)?;
        Violation::unless(
            code == 0,
            format!("{what} to succeed"),
            format!("result {code}"),
        )
    }

    /// Reads this block and checks its contents, and that the memory around it is unchanged.
    fn expect_block(&mut self, block: usize, content: &[u8]) -> Result<(), Violation> {
        self.memory.fill(0, self.memory.len(), 0xa5)?;
        self.done(IoMessageType::Read, block, 1)?;
        let mut memory = vec![0; self.memory.len()];
        self.memory.read(0, &mut memory)?;
        let place = block * BLOCK..(block + 1) * BLOCK;
        let wrong = memory[place.clone()]
            .iter()
            .zip(content)
            .position(|(a, b)| a != b);
        if let Some(at) = wrong {
            return Err(Violation::expected(
                format!("block {block} as it was written"),
                format!("another byte at {at}"),
            ));
        }
        memory[place].fill(0xa5);
        Violation::unless(
            memory.iter().all(|byte| *byte == 0xa5),
            "the read of a block to change its memory only",
            "other bytes changed",
        )
    }

    /// Checks the contents that were read into the memory of this block.
    fn expect_read(&self, block: usize, content: &[u8]) -> Result<(), Violation> {
        let mut read = vec![0; BLOCK];
        self.memory.read(block * BLOCK, &mut read)?;
        Violation::unless(
            read == content,
            format!("block {block} as it was written"),
            "something else",
        )
    }

    /// Writes these contents to a block.
    fn write(&mut self, block: usize, content: &[u8]) -> Result<(), Violation> {
        self.memory.write(block * BLOCK, content)?;
        self.done(IoMessageType::Write, block, 1)
    }

    /// Contents of all blocks on the targets, decoded as the initiator wrote them.
    fn held(&self) -> Result<Vec<Vec<u8>>, Violation> {
        let held = self
            .targets
            .iter()
            .map(|target| target.session.content())
            .collect::<Result<Vec<_>, _>>()?;
        if let [one] = &held[..] {
            return Ok(one.chunks(BLOCK).map(<[u8]>::to_vec).collect());
        }
        stored_blocks(&held)?
            .iter()
            .enumerate()
            .map(|(block, stored)| {
                decode_stored(stored).during(format_args!("stored block {block}"))
            })
            .collect()
    }

    /// Stops, shuts down, and waits for the service to exit with success.
    fn finish(mut self) -> Result<(), Violation> {
        self.finish_from(Step::Stop)
    }
}

/// Code of a response, which must match its request.
fn answered(request: Repr, answer: &[u8; SIZE]) -> Result<u32, Violation> {
    let answer = Repr::parse(&IoMessage::new_unchecked_len(answer))?;
    let code = answer.result;
    let expected = request.answer(code);
    Violation::unless(
        answer == expected,
        format!("{expected:?}"),
        format!("{answer:?}"),
    )?;
    Ok(code)
}

// Checks for the zero_copy service only.

const ZERO_COPY_CHECKS: [Check; 2] = [
    Check {
        name: "requests-are-forwarded",
        meaning: "the target gets the initiator's requests as they are: type, user data, size and offsets, good or bad",
        play: forwarded,
    },
    Check {
        name: "flush-is-forwarded",
        meaning: "flushes and durable writes reach the target when both sides have announced them, and are refused when one has not; the reference does not",
        play: flush_forwarded,
    },
];

fn flush_forwarded(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for (initiator, target) in [
        (FEATURE_FLUSH, FEATURE_FLUSH),
        (FEATURE_FLUSH, 0),
        (0, FEATURE_FLUSH),
    ] {
        let mut scripts = holding(fixture, &contents(1));
        scripts[0].features = target;
        let mut volume = Volume::announcing(fixture, &[], &scripts, 1, initiator)?;
        for (message_type, size) in [(Flush, 0), (WriteFua, BLOCK as u32), (Read, BLOCK as u32)] {
            let code = volume.io_at(message_type, size, 0, 0)?;
            let is_known = message_type == Read || initiator & target != 0;
            let seen = volume.targets[0].session.take_ios();
            let what = format!("{message_type:?}, announced {initiator} and {target}");
            Violation::unless(
                (code == 0) == is_known,
                format!("{what}: success is {is_known}"),
                format!("result {code}"),
            )?;
            let types: Vec<_> = seen.iter().map(|io| io.message_type).collect();
            let expected = if is_known {
                vec![message_type]
            } else {
                Vec::new()
            };
            Violation::unless(
                types == expected,
                format!("{what}: {expected:?} at the target"),
                format!("{types:?}"),
            )?;
        }
        volume.finish()?;
    }
    Ok(())
}

fn forwarded(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &[])?;
    for message_type in [Read, Write] {
        for (user_data, size, requester_offset, storage_offset) in [
            (0, BLOCK as u32, 0, 0),
            (u64::MAX, 512, 3, 5),
            (7, u32::MAX, u64::MAX, 1 << 40),
            (8, 0, 1, 2),
        ] {
            let request = Repr {
                message_type,
                user_data,
                result: 0,
                size,
                requester_offset,
                storage_offset,
            };
            volume.exchange(0, &[request.to_bytes().to_vec()])?;
            let seen = volume.targets[0].session.take_ios();
            Violation::unless(
                seen == [request],
                format!("{request:?} at the target"),
                format!("{seen:?}"),
            )?;
        }
    }
    volume.finish()
}

// Reads and writes that must succeed.

const BLOCK_CHECKS: [Check; 9] = [
    Check {
        name: "reads",
        meaning: "every block is read into the memory that the request names, and nothing beside it is touched",
        play: reads,
    },
    Check {
        name: "writes",
        meaning: "every block is written, and nothing but it",
        play: writes,
    },
    Check {
        name: "several-blocks-in-one-io",
        meaning: "an I/O may be of several blocks",
        play: several_blocks,
    },
    Check {
        name: "memory-has-its-own-offsets",
        meaning: "the place in the initiator's memory has nothing to do with the place in the storage, and need not be aligned",
        play: own_offsets,
    },
    Check {
        name: "results-repeat-their-requests",
        meaning: "a result has user data, size and both offsets of its request, whatever they are",
        play: results_repeat,
    },
    Check {
        name: "reserved-bytes",
        meaning: "the reserved bytes of a request, and its result field, are ignored",
        play: reserved_bytes,
    },
    Check {
        name: "as-many-as-agreed",
        meaning: "the initiator may have as many I/Os in flight as it said, again and again; each is answered once",
        play: window,
    },
    Check {
        name: "targets-answer-in-any-order",
        meaning: "results that leave a target in another order than the requests came belong to their requests",
        play: any_order,
    },
    Check {
        name: "workers",
        meaning: "each of two workers answers on its own fast path",
        play: workers,
    },
];

fn reads(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &[])?;
    for (block, content) in contents(1).iter().enumerate() {
        volume.expect_block(block, content)?;
    }
    volume.finish()
}

fn expect_held(volume: &Volume<'_>, expected: &[Vec<u8>]) -> Result<(), Violation> {
    let held = volume.held()?;
    match held.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(block) => Err(Violation::expected(
            format!("block {block} to be on the targets as it was written last"),
            "something else",
        )),
    }
}

fn writes(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &[])?;
    let mut expected = contents(1);
    // Blocks in descending order, to detect services that accumulate offsets.
    for block in (0..BLOCKS).rev() {
        expected[block] = content(block, 2);
        volume.write(block, &expected[block])?;
        expect_held(&volume, &expected)?;
    }
    for (block, content) in expected.iter().enumerate() {
        volume.expect_block(block, content)?;
    }
    volume.finish()
}

fn several_blocks(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &[])?;
    let mut expected = contents(1);
    for (first, count) in [(0, 2), (3, 5), (0, BLOCKS), (BLOCKS - 3, 3)] {
        let version = 2 + first as u8;
        for (block, expected) in expected.iter_mut().enumerate().skip(first).take(count) {
            *expected = content(block, version);
            volume.memory.write(block * BLOCK, expected)?;
        }
        volume.done(Write, first, count)?;
        expect_held(&volume, &expected)?;
        volume.memory.fill(0, volume.memory.len(), 0)?;
        volume.done(Read, first, count)?;
        let mut read = vec![0; count * BLOCK];
        volume.memory.read(first * BLOCK, &mut read)?;
        Violation::unless(
            read == expected[first..first + count].concat(),
            format!("{count} blocks from {first} as they were written"),
            "something else",
        )?;
    }
    volume.finish()
}

fn own_offsets(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &[])?;
    let last = MEMORY_BLOCKS * BLOCK - BLOCK;
    for (block, place) in [(0, last), (BLOCKS - 1, 0), (3, 1), (4, 4097), (5, last - 7)] {
        let at = |block: usize| (block * BLOCK) as u64;
        volume.memory.fill(0, volume.memory.len(), 0xa5)?;
        let code = volume.io_at(Read, BLOCK as u32, place as u64, at(block))?;
        let mut memory = vec![0; volume.memory.len()];
        volume.memory.read(0, &mut memory)?;
        let mut expected = vec![0xa5; memory.len()];
        expected[place..place + BLOCK].copy_from_slice(&content(block, 1));
        Violation::unless(
            code == 0 && memory == expected,
            format!("block {block} at {place} of the memory"),
            format!("result {code} and other bytes"),
        )?;
        volume.memory.write(place, &content(block, 2))?;
        let code = volume.io_at(Write, BLOCK as u32, place as u64, at(block))?;
        let held = volume.held()?;
        Violation::unless(
            code == 0 && held[block] == content(block, 2),
            format!("block {block} to be written from {place} of the memory"),
            format!("result {code} and other bytes"),
        )?;
    }
    volume.finish()
}

/// A request for one block, with its number as user data.
fn request(message_type: IoMessageType, block: usize, user_data: u64) -> Repr {
    let offset = (block * BLOCK) as u64;
    Repr {
        message_type,
        user_data,
        result: 0,
        size: BLOCK as u32,
        requester_offset: offset,
        storage_offset: offset,
    }
}

fn results_repeat(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &[])?;
    for user_data in [0, 1, u64::MAX, 1 << 63, 0xffff_ffff] {
        for kind in [Read, Write] {
            let request = request(kind, 3, user_data);
            volume.memory.write(3 * BLOCK, &content(3, 1))?;
            let answers = volume.exchange(0, &[request.to_bytes().to_vec()])?;
            let code = answered(request, &answers[0])?;
            Violation::unless(code == 0, "success", format!("result {code}"))?;
        }
    }
    volume.finish()
}

fn reserved_bytes(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &[])?;
    for kind in [Read, Write] {
        let request = request(kind, 5, 77);
        volume.memory.write(5 * BLOCK, &content(5, 1))?;
        let mut bytes = request.to_bytes().to_vec();
        for reserved in [4..8, 16..20, 40..64] {
            bytes[reserved].fill(0xff);
        }
        let answers = volume.exchange(0, &[bytes])?;
        let code = answered(request, &answers[0])?;
        Violation::unless(code == 0, "success", format!("result {code}"))?;
        let held = volume.held()?;
        Violation::unless(
            held == contents(1),
            "the blocks as they were",
            "something else",
        )?;
    }
    volume.finish()
}

/// Sends a request for each of these blocks at the same time; each must be answered exactly once, with success.
fn at_once(
    volume: &mut Volume<'_>,
    kind: IoMessageType,
    blocks: &[usize],
) -> Result<(), Violation> {
    let requests: Vec<_> = blocks
        .iter()
        .enumerate()
        .map(|(number, block)| request(kind, *block, number as u64))
        .collect();
    let messages: Vec<_> = requests
        .iter()
        .map(|request| request.to_bytes().to_vec())
        .collect();
    let mut seen = HashSet::new();
    for answer in volume.exchange(0, &messages)? {
        let number = IoMessage::new_unchecked_len(&answer).user_data();
        let request = usize::try_from(number)
            .ok()
            .and_then(|number| requests.get(number))
            .ok_or_else(|| Violation::expected("the result of a request", number))?;
        let code = answered(*request, &answer)?;
        Violation::unless(code == 0, "success", format!("result {code}"))?;
        Violation::unless(
            seen.insert(number),
            "one result for each request",
            format!("two for {number}"),
        )?;
    }
    Ok(())
}

fn window(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &[])?;
    let mut expected = contents(1);
    let count = TRANSACTIONS as usize;
    for round in 0..20 {
        let blocks: Vec<_> = (0..count).map(|n| (round + n * 3) % BLOCKS).collect();
        for block in &blocks {
            expected[*block] = content(*block, 2 + round as u8);
            volume.memory.write(*block * BLOCK, &expected[*block])?;
        }
        at_once(&mut volume, Write, &blocks)?;
        volume.memory.fill(0, volume.memory.len(), 0)?;
        at_once(&mut volume, Read, &blocks)?;
        for block in blocks {
            volume.expect_read(block, &expected[block])?;
        }
    }
    expect_held(&volume, &expected)?;
    volume.finish()
}

fn any_order(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let count = TRANSACTIONS as usize;
    for together in [2, count] {
        let mut volume = Volume::faulty(fixture, &[], 1, Fault::Reverse { together })?;
        volume.memory.fill(0, volume.memory.len(), 0)?;
        let blocks: Vec<_> = (0..count).collect();
        at_once(&mut volume, Read, &blocks)?;
        for block in blocks {
            volume.expect_read(block, &content(block, 1))?;
        }
        volume.finish()?;
    }
    Ok(())
}

fn workers(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let scripts = holding(fixture, &contents(1));
    let mut volume = Volume::with(fixture, &["--cpu", "0"], &scripts, 2)?;
    for round in 0..4 {
        let timeout = volume.timeout();
        let requests = [request(Read, round, 10), request(Read, round + 8, 20)];
        for (worker, request) in requests.iter().enumerate() {
            volume.io[worker].send(request, timeout)?;
        }
        for (worker, request) in requests.into_iter().enumerate() {
            let answer = volume.result(worker)?;
            let code = answered(request, &answer)?;
            Violation::unless(code == 0, "success", format!("result {code}"))?;
        }
        for block in [round, round + 8] {
            volume.expect_read(block, &content(block, 1))?;
        }
    }
    volume.finish()
}

// Stored blocks of gga_offload: parsed and generated from the documented layout, without the service's code.

/// Size of a half block in bytes.
pub(super) const HALF: usize = BLOCK / 2;

/// Bytes before and after the LZ4 data blocks.
const STORED_HEADER: usize = 8;
const STORED_TRAILER: usize = 4;
/// Highest bit of a data block's length: its data is stored uncompressed.
const RAW: u32 = 1 << 31;
/// Maximum size of a data block's content in bytes.
const PIECE: usize = 64 * 1024;

fn word(bytes: &[u8], at: usize) -> Result<[u8; 4], Violation> {
    bytes
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| Violation::expected(format!("four bytes at {at}"), "the end"))
}

/// Encodes a stored block. The content must compress to one data block.
fn encode_stored(content: &[u8]) -> Vec<u8> {
    let data = compress(content);
    let mut stored = Vec::with_capacity(BLOCK);
    stored.extend((content.len() as u32).to_be_bytes());
    stored.extend((data.len() as u32 + 4).to_be_bytes());
    stored.extend((data.len() as u32).to_le_bytes());
    stored.extend(data);
    stored.resize(BLOCK, 0);
    stored
}

/// Decodes a stored block, and checks every byte of it.
fn decode_stored(stored: &[u8]) -> Result<Vec<u8>, Violation> {
    let original = u32::from_be_bytes(word(stored, 0)?) as usize;
    Violation::unless(
        original == BLOCK,
        format!("an original size of {BLOCK}"),
        original,
    )?;
    let length = u32::from_be_bytes(word(stored, 4)?) as usize;
    let room = stored.len() - STORED_HEADER - STORED_TRAILER;
    Violation::unless(
        (4..=room).contains(&length),
        format!("4 to {room} bytes of LZ4 data"),
        length,
    )?;
    let end = STORED_HEADER + length;
    let mut content = Vec::new();
    let mut at = STORED_HEADER;
    while at < end {
        let size = u32::from_le_bytes(word(stored, at)?);
        at += 4;
        let bytes = (size & !RAW) as usize;
        Violation::unless(
            at + bytes <= end,
            format!("a data block of at most {} bytes", end - at),
            bytes,
        )?;
        let data = &stored[at..at + bytes];
        at += bytes;
        if size & RAW != 0 {
            content.extend(data);
        } else {
            let left = BLOCK.saturating_sub(content.len()).min(PIECE);
            let piece = decompress(data, left)
                .map_err(|error| Violation::expected("an LZ4 data block", error))?;
            content.extend(piece);
        }
    }
    Violation::unless(
        content.len() == BLOCK,
        format!("{BLOCK} bytes of content"),
        content.len(),
    )?;
    Violation::unless(
        stored[end..].iter().all(|byte| *byte == 0),
        "zeros after the data blocks, and a trailer of 0",
        "others",
    )?;
    Ok(content)
}

/// Chunks of these stored blocks on data_1, data_2 and data_p; the parity is their XOR, as for a Vandermonde matrix.
pub(super) fn halves(blocks: &[Vec<u8>]) -> [Vec<u8>; 3] {
    let mut halves: [Vec<u8>; 3] = Default::default();
    for block in blocks {
        let (first, second) = block.split_at(HALF);
        halves[0].extend(first);
        halves[1].extend(second);
        halves[2].extend(first.iter().zip(second).map(|(a, b)| a ^ b));
    }
    halves
}

/// Joins the chunks of three targets to stored blocks, and checks their parity.
fn stored_blocks(held: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Violation> {
    let [data_1, data_2, data_p] = held else {
        return Err(Violation::expected("three targets", held.len()));
    };
    let blocks: Vec<_> = data_1
        .chunks(HALF)
        .zip(data_2.chunks(HALF))
        .map(|(first, second)| [first, second].concat())
        .collect();
    let parity = halves(&blocks)[2].clone();
    let wrong = parity.iter().zip(data_p).position(|(a, b)| a != b);
    match wrong {
        None => Ok(blocks),
        Some(at) => Err(Violation::expected(
            "the exclusive or of both halves on data_p",
            format!("another byte at {at}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_block_ends_in_zeros() {
        let content = vec![7; BLOCK];
        let mut stored = encode_stored(&content);
        assert_eq!(decode_stored(&stored).ok(), Some(content));
        stored[BLOCK - 1] = 1;
        assert!(decode_stored(&stored).is_err());
    }
}
