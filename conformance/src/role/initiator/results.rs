//! Results that are none, or that say that something went wrong. How the initiator ends the session after that is its own affair,
//! as long as it ends, and with a failure.

use wire::io_message::{IoMessageType, Repr};

use super::data_path::{DataPath, Io};
use super::plan::{BLOCK, BLOCKS, Plan, content};
use super::service::Service;
use crate::role::{Bench, Check, Wrong};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "error-result-of-read",
        meaning: "a read that failed makes read_throughput_test fail (the reference does not look)",
        play: |bench| failing(bench, "read_throughput_test", IO_FAILED, Io::is_read),
    },
    Check {
        name: "error-result-of-write",
        meaning: "a write that failed makes write_throughput_test fail (the reference does not look)",
        play: |bench| failing(bench, "write_throughput_test", IO_FAILED, Io::is_write),
    },
    Check {
        name: "error-result-of-validated-read",
        meaning: "a read that failed makes read_write_data_validity_test fail, whatever its data (the reference does not look)",
        play: |bench| {
            failing(
                bench,
                "read_write_data_validity_test",
                IO_FAILED,
                Io::is_read,
            )
        },
    },
    Check {
        name: "error-result-of-validated-write",
        meaning: "a write that failed makes read_write_data_validity_test fail, whatever is read (the reference does not look)",
        play: |bench| {
            failing(
                bench,
                "read_write_data_validity_test",
                IO_FAILED,
                Io::is_write,
            )
        },
    },
    Check {
        name: "unknown-error-result",
        meaning: "a result with a code that no error has makes the initiator fail (the reference does not look)",
        play: |bench| failing(bench, "read_throughput_test", u32::MAX, Io::is_read),
    },
    Check {
        name: "result-of-nobody",
        meaning: "a result with user data that no request has makes the initiator fail",
        play: |bench| beside_bytes(bench, |io| io.result_of(u32::MAX).to_vec()),
    },
    Check {
        name: "result-of-the-next-transaction",
        meaning: "a result with user data just beyond those of the transactions makes the initiator fail",
        play: |bench| beside_bytes(bench, |io| io.result_of(4).to_vec()),
    },
    Check {
        name: "result-twice",
        meaning: "a second result of one request makes the initiator fail (the reference counts it for the next)",
        play: twice,
    },
    Check {
        name: "request-for-result",
        meaning: "a read where a result should be makes the initiator fail (the reference does not look)",
        play: |bench| {
            beside(bench, |result| Repr {
                message_type: IoMessageType::Read,
                ..result
            })
        },
    },
    Check {
        name: "result-of-unknown-type",
        meaning: "a message of an unknown type makes the initiator fail (the reference does not look)",
        play: |bench| {
            beside_bytes(bench, |io| {
                let mut bytes = io.bytes_of(io.request.answer(0)).to_vec();
                bytes[..4].copy_from_slice(&7_u32.to_be_bytes());
                bytes
            })
        },
    },
    Check {
        name: "result-of-another-size",
        meaning: "a result whose size is not that of its request makes the initiator fail (the reference does not look)",
        play: |bench| {
            beside(bench, |result| Repr {
                size: 512,
                ..result
            })
        },
    },
    Check {
        name: "result-of-another-place",
        meaning: "a result whose storage offset is not that of its request makes the initiator fail (the reference does not look)",
        play: |bench| {
            beside(bench, |result| Repr {
                storage_offset: result.storage_offset ^ u64::from(BLOCK),
                ..result
            })
        },
    },
    Check {
        name: "short-result",
        meaning: "a result of 63 bytes makes the initiator fail (the reference takes it)",
        play: |bench| beside_bytes(bench, |io| io.bytes_of(io.request.answer(0))[..63].to_vec()),
    },
    Check {
        name: "missing-result",
        meaning: "one request without a result ends the run after --io-timeout, with a failure (the reference has no such flag, and waits forever)",
        play: |bench| missing(bench, |number| number == 5),
    },
    Check {
        name: "no-results",
        meaning: "requests without any result end the run after --io-timeout, with a failure (the reference has no such flag, and waits forever)",
        play: |bench| missing(bench, |_| true),
    },
    Check {
        name: "read-only-first-byte",
        meaning: "read_only_data_validity_test fails for a wrong first byte of a block",
        play: |bench| corrupt(bench, READ_ONLY, Corruption::FirstByte),
    },
    Check {
        name: "read-only-last-byte",
        meaning: "read_only_data_validity_test fails for a wrong last byte of a block",
        play: |bench| corrupt(bench, READ_ONLY, Corruption::LastByte),
    },
    Check {
        name: "read-only-not-moved",
        meaning: "read_only_data_validity_test fails for a read that moved nothing",
        play: |bench| corrupt(bench, READ_ONLY, Corruption::Nothing),
    },
    Check {
        name: "read-only-another-block",
        meaning: "read_only_data_validity_test fails for the content of another block",
        play: |bench| corrupt(bench, READ_ONLY, Corruption::AnotherBlock),
    },
    Check {
        name: "read-write-first-byte",
        meaning: "read_write_data_validity_test fails for a wrong first byte of a block",
        play: |bench| corrupt(bench, READ_WRITE, Corruption::FirstByte),
    },
    Check {
        name: "read-write-last-byte",
        meaning: "read_write_data_validity_test fails for a wrong last byte of a block",
        play: |bench| corrupt(bench, READ_WRITE, Corruption::LastByte),
    },
    Check {
        name: "read-write-not-moved",
        meaning: "read_write_data_validity_test fails for a read that moved nothing",
        play: |bench| corrupt(bench, READ_WRITE, Corruption::Nothing),
    },
    Check {
        name: "read-write-another-block",
        meaning: "read_write_data_validity_test fails for the content of another block (the reference's pattern is the same in all blocks)",
        play: |bench| corrupt(bench, READ_WRITE, Corruption::AnotherBlock),
    },
    Check {
        name: "write-ignored",
        meaning: "read_write_data_validity_test fails for a write that was answered and not done",
        play: write_ignored,
    },
];

/// `DOCA_ERROR_IO_FAILED`.
const IO_FAILED: u32 = 17;
const READ_ONLY: &str = "read_only_data_validity_test";
const READ_WRITE: &str = "read_write_data_validity_test";

/// The first `is` request is done, and answered with `result`.
fn failing(
    bench: &Bench<'_>,
    strategy: &'static str,
    result: u32,
    is: fn(&Io) -> bool,
) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, Plan::new(strategy))?;
    let mut is_over = false;
    service.play_on(|data, io| {
        let is_it = is(&io) && !is_over;
        is_over |= is_it;
        data.transfer(&io)?;
        data.answer(&io, if is_it { result } else { 0 })
    });
    service.expect_failure()
}

/// The last request of the run gets its result, and another message before that: who takes that for the result is content.
fn beside_bytes(bench: &Bench<'_>, other: impl Fn(&Io) -> Vec<u8>) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, Plan::new("read_throughput_test"))?;
    service.play_on(|data, io| {
        data.transfer(&io)?;
        if data.seen.len() == BLOCKS as usize {
            data.send_bytes(io.worker, &other(&io))?;
        }
        data.answer(&io, 0)
    });
    service.expect_failure()
}

/// One in the middle of the run gets its result twice.
fn twice(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, Plan::new("read_throughput_test"))?;
    service.play_on(|data, io| {
        data.serve(&io)?;
        if data.seen.len() == BLOCKS as usize / 2 {
            data.answer(&io, 0)?;
        }
        Ok(())
    });
    service.expect_failure()
}

fn beside(bench: &Bench<'_>, other: impl Fn(Repr) -> Repr) -> Result<(), Wrong> {
    beside_bytes(bench, |io| {
        io.bytes_of(other(io.request.answer(0))).to_vec()
    })
}

/// Requests with these numbers get no result.
fn missing(bench: &Bench<'_>, is: impl Fn(usize) -> bool) -> Result<(), Wrong> {
    let plan = Plan::new("read_throughput_test").flags(&["--io-timeout", "1"]);
    let mut service = Service::begin(bench, plan)?;
    service.play_on(|data, io| {
        if is(data.seen.len() - 1) {
            Ok(())
        } else {
            data.serve(&io)
        }
    });
    service.expect_failure()
}

/// What one read gets.
#[derive(Debug, Clone, Copy)]
enum Corruption {
    FirstByte,
    LastByte,
    /// Its memory is left as it is.
    Nothing,
    /// The content of the next block.
    AnotherBlock,
}

/// One read is answered with success, but not with its data: the first one; where it gets nothing, the first of the second
/// round, when its memory holds the right data from the first.
fn corrupt(bench: &Bench<'_>, strategy: &'static str, corruption: Corruption) -> Result<(), Wrong> {
    let bytes = content(BLOCKS * BLOCK, 0x33);
    let rounds = match corruption {
        Corruption::Nothing => 2,
        _ => 1,
    };
    let mut plan = Plan::new(strategy)
        .holding(bytes.clone())
        .operations(rounds * BLOCKS)
        .transactions(BLOCKS);
    if strategy == READ_ONLY {
        let file = bench.scene().file("plain", &bytes)?;
        plan = plan.flags(&["--storage-plain-content", &file.to_string_lossy()]);
    }
    let mut service = Service::begin(bench, plan)?;
    let mut reads = 0;
    service.play_on(|data, io| {
        if io.is_write() {
            return write_all_before_reads(data, &io);
        }
        reads += 1;
        if reads != (rounds - 1) * BLOCKS + 1 {
            return data.serve(&io);
        }
        let mut bytes = data.stored(&io, 0);
        match corruption {
            Corruption::FirstByte => bytes[0] ^= 1,
            Corruption::LastByte => bytes[BLOCK as usize - 1] ^= 0x80,
            Corruption::Nothing => return data.answer(&io, 0),
            Corruption::AnotherBlock => bytes = data.stored(&io, BLOCK),
        }
        data.give(&io, &bytes)?;
        data.answer(&io, 0)
    });
    service.expect_failure()
}

/// Answers the writes when all blocks are written.
fn write_all_before_reads(data: &mut DataPath, io: &Io) -> Result<(), Wrong> {
    data.transfer(io)?;
    let written = data.in_flight().to_vec();
    if written.len() < BLOCKS as usize {
        return Ok(());
    }
    written.iter().try_for_each(|io| data.answer(io, 0))
}

fn write_ignored(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, Plan::new(READ_WRITE))?;
    let mut is_over = false;
    service.play_on(|data, io| {
        if io.is_write() && !is_over {
            is_over = true;
            return data.answer(&io, 0);
        }
        data.serve(&io)
    });
    service.expect_failure()
}
