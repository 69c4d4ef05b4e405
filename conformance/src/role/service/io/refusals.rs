//! I/O that must not succeed.

use wire::io_message::IoMessageType::{self, Read, Write};
use wire::io_message::{IoMessage, Repr, SIZE};

use super::super::layout::{BLOCK, BLOCKS};
use super::volume::{Volume, answered, contents};
use crate::role::{Bench, Check, Wrong};

pub(super) const CHECKS: [Check; 3] = [
    Check {
        name: "io-outside-of-the-storage",
        meaning: "an I/O outside of the storage is an error result, and others go on; the zero_copy reference overwrites the target's \
                  result with success, that of gga_offload stops its worker",
        play: outside_storage,
    },
    Check {
        name: "io-outside-of-the-memory",
        meaning: "an I/O outside of the initiator's memory is an error result, and others go on; the references as above",
        play: outside_memory,
    },
    Check {
        name: "what-is-no-io",
        meaning: "a message that is no read or write is an error result and reaches no target; the zero_copy reference forwards it, that \
                  of gga_offload stops its worker",
        play: no_io,
    },
];

/// Reads and writes of these sizes, places in memory and places in storage.
fn all_refused(bench: &Bench<'_>, ios: &[(usize, u64, u64)]) -> Result<(), Wrong> {
    let mut volume = Volume::open(bench, &[])?;
    for (size, requester_offset, storage_offset) in ios {
        for kind in [Read, Write] {
            let size = *size as u32;
            let code = volume.io_at(kind, size, *requester_offset, *storage_offset)?;
            Wrong::unless(
                code != 0,
                format!(
                    "an error for {kind:?} of {size} bytes, memory {requester_offset:#x}, storage {storage_offset:#x}"
                ),
                "success",
            )?;
        }
    }
    let held = volume.held()?;
    Wrong::unless(
        held == contents(1),
        "the blocks as they were",
        "something else",
    )?;
    volume.expect_block(1, &contents(1)[1])?;
    volume.finish()
}

fn outside_storage(bench: &Bench<'_>) -> Result<(), Wrong> {
    let end = (BLOCKS * BLOCK) as u64;
    all_refused(
        bench,
        &[
            (BLOCK, 0, end),
            (2 * BLOCK, 0, end - BLOCK as u64),
            (BLOCK, 0, u64::MAX - (BLOCK as u64 - 1)),
            (BLOCK, 0, 1 << 63),
            (0, 0, 0),
        ],
    )
}

fn outside_memory(bench: &Bench<'_>) -> Result<(), Wrong> {
    let end = 2 * (BLOCKS * BLOCK) as u64;
    all_refused(
        bench,
        &[
            (BLOCK, end, 0),
            (BLOCK, end - BLOCK as u64 + 1, 0),
            (BLOCK, u64::MAX - (BLOCK as u64 - 1), 0),
            (BLOCK, 1 << 63, 0),
        ],
    )
}

fn no_io(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut volume = Volume::open(bench, &[])?;
    let request = Repr {
        message_type: Read,
        user_data: 5,
        result: 0,
        size: BLOCK as u32,
        requester_offset: 0,
        storage_offset: 0,
    };
    for (kind, length) in [
        (IoMessageType::Result as u32, SIZE),
        (3, SIZE),
        // Nobody has announced them.
        (IoMessageType::Flush as u32, SIZE),
        (IoMessageType::WriteFua as u32, SIZE),
        (0x0100_0000, SIZE),
        (u32::MAX, SIZE),
        (1, SIZE - 1),
        (1, 8),
    ] {
        let mut bytes = request.to_bytes().to_vec();
        bytes[..4].copy_from_slice(&kind.to_be_bytes());
        bytes.truncate(length);
        let answer = volume.exchange(0, &[bytes])?[0];
        let what = format!("a message of type {kind:#x} and {length} bytes");
        if length == SIZE {
            let code = answered(request, &answer)?;
            Wrong::unless(code != 0, format!("an error for {what}"), "success")?;
        } else {
            let answer = IoMessage::new_unchecked_len(&answer);
            Wrong::unless(
                answer.message_type() == Ok(IoMessageType::Result) && answer.result() != 0,
                format!("an error for {what}"),
                format!("{:?} {}", answer.message_type(), answer.result()),
            )?;
        }
        for target in &mut volume.targets {
            let seen = target.session.take_ios();
            Wrong::unless(
                seen.is_empty(),
                format!("no target to hear of {what}"),
                format!("{seen:?}"),
            )?;
        }
    }
    volume.finish()
}
