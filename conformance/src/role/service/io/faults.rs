//! Targets and initiators that fail during I/O.

use std::time::Duration;

use wire::io_message::IoMessageType::{self, Read, Write};
use wire::io_message::{IoMessage, Repr, SIZE};

use super::{Volume, answered, content, contents};
use crate::role::service::{BLOCK, BLOCKS, Peers, Reply};
use crate::role::{Check, Fixture, Step};
use crate::target::Fault;
use crate::violation::Violation;

/// An error code that services do not generate themselves.
const CODE: u32 = doca::ErrorCode::NOT_PERMITTED.0;

pub(super) const CHECKS: [Check; 7] = [
    Check {
        name: "error-of-a-target",
        meaning: "the error result of a target is that of its I/O and of no other; the zero_copy reference \
                  overwrites it with success, that of gga_offload stops its worker when a read fails",
        play: error,
    },
    Check {
        name: "slow-target",
        meaning: "an I/O waits for a target that takes 300 ms, and others are not mixed up meanwhile",
        play: slow,
    },
    Check {
        name: "target-answers-twice",
        meaning: "a second result for one request does not end the service, or ends it with an exit status other than 0",
        play: twice,
    },
    Check {
        name: "target-sends-nonsense",
        meaning: "a message that is no result is not taken for one: the service exits with a status other than 0, or ignores it; the \
                  zero_copy reference makes it a success, that of gga_offload reaches beyond its transactions",
        play: nonsense,
    },
    Check {
        name: "target-leaves-during-io",
        meaning: "a target that disconnects with I/Os in flight ends the service; the reference waits forever",
        play: target_leaves,
    },
    Check {
        name: "initiator-leaves-during-io",
        meaning: "an initiator that disconnects with I/Os in flight ends the service; the reference waits forever",
        play: initiator_leaves,
    },
    Check {
        name: "stop-with-io-that-never-ends",
        meaning: "stop is answered although a target never answers an I/O, with an error or without; the gga_offload \
                  reference waits forever",
        play: stop,
    },
];

fn error(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for (target, kind) in [(0, Read), (0, Write), (1, Read), (2, Write)] {
        let fault = Fault::FailIo {
            nth: 1,
            result: CODE,
        };
        let mut volume = Volume::faulty(fixture, &[], target, fault)?;
        let mut codes = Vec::new();
        for block in 0..3 {
            volume.memory.write(block * BLOCK, &content(block, 1))?;
            codes.push(volume.io(kind, block, 1)?);
        }
        Violation::unless(
            codes == [0, CODE, 0],
            format!("success, {CODE} and success for {kind:?} with target {target} failing once"),
            format!("{codes:?}"),
        )?;
        volume.finish()?;
    }
    Ok(())
}

/// A read of this block, with its number as user data.
fn read(block: usize) -> Repr {
    Repr {
        message_type: Read,
        user_data: block as u64,
        result: 0,
        size: BLOCK as u32,
        requester_offset: (block * BLOCK) as u64,
        storage_offset: (block * BLOCK) as u64,
    }
}

fn slow(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &[])?;
    let timeout = volume.timeout();
    volume.memory.fill(0, volume.memory.len(), 0)?;
    // The last one of the targets that a read uses.
    let slow = volume.targets.len().div_ceil(2) - 1;
    volume.targets[slow].is_paused = true;
    for block in 0..3 {
        volume.io[0].send(&read(block), timeout)?;
    }
    let early = volume.poll_result(0, Duration::from_millis(300))?;
    Violation::unless(
        early.is_none(),
        "no result before the target's",
        format!("{early:?}"),
    )?;
    volume.targets[slow].is_paused = false;
    for _ in 0..3 {
        volume.result(0)?;
    }
    for block in 0..3 {
        volume.expect_read(block, &content(block, 1))?;
    }
    volume.finish()
}

fn twice(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::faulty(fixture, &[], 0, Fault::AnswerTwice)?;
    for block in 0..4 {
        volume.io[0].send(&read(block), fixture.timeout())?;
        // Ignores the result, and a second one if it arrives.
        volume.poll_result(0, Duration::from_millis(50)).ok();
    }
    if volume.service.is_running() {
        let answer = volume.step(Step::Stop, &mut |_, _| Reply::Honest);
        if answer.is_err() && volume.service.is_running() {
            answer?;
        }
        if volume.service.is_running() {
            return Ok(());
        }
    }
    volume.expect_failure()
}

fn nonsense(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::faulty(fixture, &[], 0, Fault::Nonsense { nth: 0 })?;
    volume.io[0].send(&read(0), fixture.timeout())?;
    match volume.poll_result(0, Duration::from_millis(200)) {
        Ok(Some(bytes)) => {
            let answer = wire::io_message::IoMessage::new_unchecked_len(&bytes);
            let is_error = answer.message_type() == Ok(wire::io_message::IoMessageType::Result)
                && answer.result() != 0;
            Violation::unless(
                is_error,
                "no result, or an error",
                format!("{:?} {}", answer.message_type(), answer.result()),
            )
        }
        Ok(None) if volume.service.is_running() => Ok(()),
        Ok(None) | Err(_) => volume.expect_failure(),
    }
}

/// A session with an I/O that no target answers.
fn stuck<'a>(fixture: &'a Fixture<'a>, flags: &[&str]) -> Result<Volume<'a>, Violation> {
    let mut volume = Volume::faulty(fixture, flags, 0, Fault::SwallowIo { nth: 0 })?;
    volume.io[0].send(&read(0), fixture.timeout())?;
    volume.poll_result(0, Duration::from_millis(30))?;
    Ok(volume)
}

fn target_leaves(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = stuck(fixture, &[])?;
    volume.targets.remove(0);
    volume.expect_failure()
}

fn initiator_leaves(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = stuck(fixture, &[])?;
    volume.leave();
    volume.expect_end()
}

fn stop(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = stuck(fixture, &["--control-timeout", "3"])?;
    let answer = volume.step(Step::Stop, &mut |_, _| Reply::Honest)?;
    if answer.message_type() != Step::Stop.answer() {
        Peers::expect_error(&answer)?;
    }
    Ok(())
}

// I/O that must not succeed.

pub(super) const REFUSAL_CHECKS: [Check; 3] = [
    Check {
        name: "io-outside-of-the-storage",
        meaning: "an I/O outside of the storage is an error result, and others continue; the zero_copy reference overwrites the target's \
                  result with success, that of gga_offload stops its worker",
        play: outside_storage,
    },
    Check {
        name: "io-outside-of-the-memory",
        meaning: "an I/O outside of the initiator's memory is an error result, and others continue; the references as above",
        play: outside_memory,
    },
    Check {
        name: "what-is-no-io",
        meaning: "a message that is no read or write is an error result and reaches no target; the zero_copy reference forwards it, that \
                  of gga_offload stops its worker",
        play: no_io,
    },
];

/// Checks that reads and writes of these sizes, memory offsets and storage offsets are refused.
fn all_refused(fixture: &Fixture<'_>, ios: &[(usize, u64, u64)]) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &[])?;
    for (size, requester_offset, storage_offset) in ios {
        for kind in [Read, Write] {
            let size = *size as u32;
            let code = volume.io_at(kind, size, *requester_offset, *storage_offset)?;
            Violation::unless(
                code != 0,
                format!(
                    "an error for {kind:?} of {size} bytes, memory {requester_offset:#x}, storage {storage_offset:#x}"
                ),
                "success",
            )?;
        }
    }
    let held = volume.held()?;
    Violation::unless(
        held == contents(1),
        "the blocks as they were",
        "something else",
    )?;
    volume.expect_block(1, &contents(1)[1])?;
    volume.finish()
}

fn outside_storage(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let end = (BLOCKS * BLOCK) as u64;
    all_refused(
        fixture,
        &[
            (BLOCK, 0, end),
            (2 * BLOCK, 0, end - BLOCK as u64),
            (BLOCK, 0, u64::MAX - (BLOCK as u64 - 1)),
            (BLOCK, 0, 1 << 63),
            (0, 0, 0),
        ],
    )
}

fn outside_memory(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let end = 2 * (BLOCKS * BLOCK) as u64;
    all_refused(
        fixture,
        &[
            (BLOCK, end, 0),
            (BLOCK, end - BLOCK as u64 + 1, 0),
            (BLOCK, u64::MAX - (BLOCK as u64 - 1), 0),
            (BLOCK, 1 << 63, 0),
        ],
    )
}

fn no_io(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut volume = Volume::open(fixture, &[])?;
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
        // Operations that were not announced.
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
            Violation::unless(code != 0, format!("an error for {what}"), "success")?;
        } else {
            let answer = IoMessage::new_unchecked_len(&answer);
            Violation::unless(
                answer.message_type() == Ok(IoMessageType::Result) && answer.result() != 0,
                format!("an error for {what}"),
                format!("{:?} {}", answer.message_type(), answer.result()),
            )?;
        }
        for target in &mut volume.targets {
            let seen = target.session.take_ios();
            Violation::unless(
                seen.is_empty(),
                format!("no target to receive {what}"),
                format!("{seen:?}"),
            )?;
        }
    }
    volume.finish()
}
