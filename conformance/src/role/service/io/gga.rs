//! Checks for the gga_offload service only: chunks, parity, recovery.

use wire::control::{Payload, StorageDetails};
use wire::io_message::IoMessageType::{self, Read, Write};

use super::{HALF, Volume, content, contents, holding};
use crate::role::service::{BLOCK, BLOCKS, Peers, Reply};
use crate::role::{Check, Fixture, Step};
use crate::violation::Violation;

/// Flag for recovering one half in every read.
const RECOVER: [&str; 2] = ["--trigger-recovery-read-every-n", "1"];

pub(super) const CHECKS: [Check; 8] = [
    Check {
        name: "halves-are-where-they-belong",
        meaning: "a write stores a half on each target, a read asks data_1 and data_2, at (storage offset / block size) * half block size \
                  for the first block of an I/O and one half further for each other",
        play: places,
    },
    Check {
        name: "recovery-reads",
        meaning: "with --trigger-recovery-read-every-n 1, reads do without data_2 and data_1 in turn, and give the same content",
        play: recovery,
    },
    Check {
        name: "recovery-reads-cauchy",
        meaning: "the same with --matrix-type cauchy, of blocks that it wrote itself; the reference recovers with the wrong matrix",
        play: recovery_cauchy,
    },
    Check {
        name: "never-written",
        meaning: "a read of a block that was never written is an error result, and others continue; the reference stops its worker",
        play: never_written,
    },
    Check {
        name: "incompressible",
        meaning: "a write of content that does not fit is an error result, and others continue; the reference stops its worker",
        play: incompressible,
    },
    Check {
        name: "size-of-an-io",
        meaning: "an I/O of 256 blocks, of a part of a block or between two blocks is an error result; the reference stops its worker, or \
                  takes it for another",
        play: sizes,
    },
    Check {
        name: "targets-of-different-capacity",
        meaning: "targets with different capacities are an error_response to query_storage_request",
        play: capacities,
    },
    Check {
        name: "targets-of-different-block-size",
        meaning: "targets with different block sizes are an error_response to query_storage_request",
        play: block_sizes,
    },
];

/// Requests to each target since the last call: type, size and storage offset.
fn asked(volume: &mut Volume<'_>) -> Vec<Vec<(IoMessageType, u32, u64)>> {
    volume
        .targets
        .iter_mut()
        .map(|target| {
            let ios = target.session.take_ios();
            ios.iter()
                .map(|io| (io.message_type, io.size, io.storage_offset))
                .collect()
        })
        .collect()
}

fn places(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &[])?;
    for (first, count) in [(0, 1), (5, 1), (BLOCKS - 1, 1), (2, 4)] {
        for kind in [Write, Read] {
            for block in first..first + count {
                volume.memory.write(block * BLOCK, &content(block, 3))?;
            }
            volume.done(kind, first, count)?;
            let of_each: Vec<_> = (first..first + count)
                .map(|block| (kind, HALF as u32, (block * HALF) as u64))
                .collect();
            let of_parity = if kind == Write {
                of_each.clone()
            } else {
                Vec::new()
            };
            let expected = [of_each.clone(), of_each, of_parity];
            let came = asked(&mut volume);
            Violation::unless(
                came == expected,
                format!("targets to be asked for {expected:?}"),
                format!("{came:?}"),
            )?;
        }
    }
    volume.finish()
}

/// Targets that were not used by consecutive reads of all blocks. The reads must succeed.
fn lost(volume: &mut Volume<'_>, version: u8) -> Result<Vec<usize>, Violation> {
    asked(volume);
    let mut lost = Vec::new();
    for (block, content) in contents(version).iter().enumerate() {
        volume.expect_block(block, content)?;
        let unasked = asked(volume).iter().position(Vec::is_empty);
        lost.extend(unasked);
    }
    Ok(lost)
}

fn recovery(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &RECOVER)?;
    let lost = lost(&mut volume, 1)?;
    let expected: Vec<_> = [1, 0].into_iter().cycle().take(BLOCKS).collect();
    Violation::unless(
        lost == expected,
        format!("reads without targets {expected:?}"),
        format!("without {lost:?}"),
    )?;
    volume.finish()
}

fn recovery_cauchy(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let flags = [&RECOVER[..], &["--matrix-type", "cauchy"]].concat();
    let mut volume = Volume::open(fixture, &flags)?;
    for (block, content) in contents(2).iter().enumerate() {
        volume.write(block, content)?;
    }
    lost(&mut volume, 2)?;
    volume.finish()
}

fn never_written(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut scripts = holding(fixture, &contents(1));
    for script in &mut scripts {
        script.content[2 * HALF..3 * HALF].fill(0);
    }
    let mut volume = Volume::with(fixture, &[], &scripts, 1)?;
    let code = volume.io(Read, 2, 1)?;
    Violation::unless(code != 0, "an error", "success")?;
    volume.expect_block(3, &content(3, 1))?;
    volume.finish()
}

fn incompressible(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &[])?;
    volume.memory.write(BLOCK, &contents::noise(1, BLOCK))?;
    let code = volume.io(Write, 1, 1)?;
    Violation::unless(code != 0, "an error", "success")?;
    volume.expect_block(1, &content(1, 1))?;
    volume.write(2, &content(2, 9))?;
    volume.expect_block(2, &content(2, 9))?;
    volume.finish()
}

fn sizes(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &[])?;
    let block = BLOCK as u32;
    for (size, storage_offset) in [
        (256 * block, 0),
        (block - 1, 0),
        (block + 1, 0),
        (1, 0),
        (block, 1),
        (block, u64::from(block) / 2),
        (u32::MAX, 0),
    ] {
        for kind in [Read, Write] {
            let code = volume.io_at(kind, size, 0, storage_offset)?;
            Violation::unless(
                code != 0,
                format!("an error for {kind:?} of {size} bytes at {storage_offset}"),
                "success",
            )?;
        }
    }
    Violation::unless(
        volume.held()? == contents(1),
        "the blocks as they were",
        "something else",
    )?;
    volume.finish()
}

/// Answer to query if the last target reports this storage.
fn presented(fixture: &Fixture<'_>, odd: StorageDetails) -> Result<(), Violation> {
    for different in 0..3 {
        let mut peers = Peers::start(fixture, &[])?;
        let answer = peers.step(Step::Query, &mut |target, _| {
            if target == different {
                Reply::Say(Payload::QueryStorageResponse(odd.clone()))
            } else {
                Reply::Honest
            }
        })?;
        Peers::expect_error(&answer)?;
    }
    Ok(())
}

fn capacities(fixture: &Fixture<'_>) -> Result<(), Violation> {
    presented(
        fixture,
        StorageDetails {
            total_size: (BLOCKS * HALF * 2) as u64,
            block_size: HALF as u32,
        },
    )
}

fn block_sizes(fixture: &Fixture<'_>) -> Result<(), Violation> {
    presented(
        fixture,
        StorageDetails {
            total_size: (BLOCKS * HALF) as u64,
            block_size: HALF as u32 * 2,
        },
    )
}
