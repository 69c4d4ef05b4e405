//! Reads and writes that must succeed.

use std::collections::HashSet;

use wire::io_message::IoMessageType::{Read, Write};
use wire::io_message::{IoMessage, IoMessageType, Repr};

use super::super::cast::{MEMORY_BLOCKS, TRANSACTIONS};
use super::super::layout::{BLOCK, BLOCKS};
use super::volume::{Volume, answered, content, contents, holding};
use crate::role::{Bench, Check, Wrong};
use crate::target::Fault;

pub(super) const CHECKS: [Check; 9] = [
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
        meaning: "what is in the reserved bytes of a request, and in its result, does not matter",
        play: reserved_bytes,
    },
    Check {
        name: "as-many-as-agreed",
        meaning: "the initiator may have as many I/Os under way as it said, again and again; each is answered once",
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

fn reads(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut volume = Volume::open(bench, &[])?;
    for (block, content) in contents(1).iter().enumerate() {
        volume.expect_block(block, content)?;
    }
    volume.finish()
}

fn expect_held(volume: &Volume<'_>, expected: &[Vec<u8>]) -> Result<(), Wrong> {
    let held = volume.held()?;
    match held.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(block) => Err(Wrong::expected(
            format!("block {block} to be on the targets as it was written last"),
            "something else",
        )),
    }
}

fn writes(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut volume = Volume::open(bench, &[])?;
    let mut expected = contents(1);
    // Down: a service that adds up offsets goes the other way.
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

fn several_blocks(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut volume = Volume::open(bench, &[])?;
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
        Wrong::unless(
            read == expected[first..first + count].concat(),
            format!("{count} blocks from {first} as they were written"),
            "something else",
        )?;
    }
    volume.finish()
}

fn own_offsets(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut volume = Volume::open(bench, &[])?;
    let last = MEMORY_BLOCKS * BLOCK - BLOCK;
    for (block, place) in [(0, last), (BLOCKS - 1, 0), (3, 1), (4, 4097), (5, last - 7)] {
        let at = |block: usize| (block * BLOCK) as u64;
        volume.memory.fill(0, volume.memory.len(), 0xa5)?;
        let code = volume.io_at(Read, BLOCK as u32, place as u64, at(block))?;
        let mut memory = vec![0; volume.memory.len()];
        volume.memory.read(0, &mut memory)?;
        let mut expected = vec![0xa5; memory.len()];
        expected[place..place + BLOCK].copy_from_slice(&content(block, 1));
        Wrong::unless(
            code == 0 && memory == expected,
            format!("block {block} at {place} of the memory"),
            format!("result {code} and other bytes"),
        )?;
        volume.memory.write(place, &content(block, 2))?;
        let code = volume.io_at(Write, BLOCK as u32, place as u64, at(block))?;
        let held = volume.held()?;
        Wrong::unless(
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

fn results_repeat(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut volume = Volume::open(bench, &[])?;
    for user_data in [0, 1, u64::MAX, 1 << 63, 0xffff_ffff] {
        for kind in [Read, Write] {
            let request = request(kind, 3, user_data);
            volume.memory.write(3 * BLOCK, &content(3, 1))?;
            let answers = volume.exchange(0, &[request.to_bytes().to_vec()])?;
            let code = answered(request, &answers[0])?;
            Wrong::unless(code == 0, "success", format!("result {code}"))?;
        }
    }
    volume.finish()
}

fn reserved_bytes(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut volume = Volume::open(bench, &[])?;
    for kind in [Read, Write] {
        let request = request(kind, 5, 77);
        volume.memory.write(5 * BLOCK, &content(5, 1))?;
        let mut bytes = request.to_bytes().to_vec();
        for reserved in [4..8, 16..20, 40..64] {
            bytes[reserved].fill(0xff);
        }
        let answers = volume.exchange(0, &[bytes])?;
        let code = answered(request, &answers[0])?;
        Wrong::unless(code == 0, "success", format!("result {code}"))?;
        let held = volume.held()?;
        Wrong::unless(
            held == contents(1),
            "the blocks as they were",
            "something else",
        )?;
    }
    volume.finish()
}

/// Sends a request for each of these blocks at once; each is answered once, with success.
fn at_once(volume: &mut Volume<'_>, kind: IoMessageType, blocks: &[usize]) -> Result<(), Wrong> {
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
            .ok_or_else(|| Wrong::expected("the result of a request", number))?;
        let code = answered(*request, &answer)?;
        Wrong::unless(code == 0, "success", format!("result {code}"))?;
        Wrong::unless(
            seen.insert(number),
            "one result for each request",
            format!("two for {number}"),
        )?;
    }
    Ok(())
}

fn window(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut volume = Volume::open(bench, &[])?;
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

fn any_order(bench: &Bench<'_>) -> Result<(), Wrong> {
    let count = TRANSACTIONS as usize;
    for together in [2, count] {
        let mut volume = Volume::faulty(bench, &[], 1, Fault::Reverse { together })?;
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

fn workers(bench: &Bench<'_>) -> Result<(), Wrong> {
    let scripts = holding(bench, &contents(1), true);
    let mut volume = Volume::with(bench, &["--cpu", "0"], &scripts, 2)?;
    for round in 0..4 {
        let patience = volume.patience();
        let requests = [request(Read, round, 10), request(Read, round + 8, 20)];
        for (worker, request) in requests.iter().enumerate() {
            volume.io[worker].send(request, patience)?;
        }
        for (worker, request) in requests.into_iter().enumerate() {
            let answer = volume.result(worker)?;
            let code = answered(request, &answer)?;
            Wrong::unless(code == 0, "success", format!("result {code}"))?;
        }
        for block in [round, round + 8] {
            volume.expect_read(block, &content(block, 1))?;
        }
    }
    volume.finish()
}
