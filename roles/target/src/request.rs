//! Checks of requests: their operation and range ([`examine`]), and whether an abandoned worker may still write their blocks
//! (`Quarantine`).
//!
//! A worker that is blocked by a peer during a write is abandoned with its session. When the peer unblocks it, it
//! completes this write, which may overwrite newer data of another session. Therefore every worker publishes its writes
//! in flight, and until an abandoned worker has returned, overlapping I/Os of other sessions are refused with
//! `DOCA_ERROR_IN_USE`.
//!
//! A write of a part of a file-system block may be a read-modify-write of the whole block, so ranges are rounded to blocks.
//! Locks are per session ([`SectorLocks`](crate::store::SectorLocks)), so an abandoned worker does not block other
//! sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use doca::ErrorCode;
use role_common::background::Attachment;
use wire::io_message::Version as WireVersion;
use wire::io_message::{self, IoMessage, IoMessageType, Repr};
use wire::release::IoLayout;

pub use crate::store::Operation;

/// Limits against which a session's requests are checked.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Size of the storage in bytes.
    pub storage: u64,
    /// Size in bytes of the memory of the service's client.
    pub requester: u64,
    /// `true` if flushes and durable writes were announced in the session; otherwise they are unknown requests.
    pub flush: bool,
    /// Size of a block if versions were announced in the session, which has the messages of 3.2. In this case, blocks
    /// are written only as versions.
    pub versions: Option<u32>,
}

/// An examined request.
#[derive(Debug, PartialEq, Eq)]
pub struct Examined {
    /// The answer's fields: copies of the request's, except for the type.
    pub repr: Repr,
    /// The requested operation, or the error for the response.
    pub operation: Result<Operation, ErrorCode>,
    /// Version in the message; zeros if versions were not announced.
    pub version: WireVersion,
}

/// Examines a request of `length` received bytes; the remaining bytes are zeros.
#[inline]
#[must_use]
pub fn examine<L: IoLayout>(
    layout: L,
    bytes: &[u8; io_message::SIZE],
    length: usize,
    limits: Limits,
) -> Examined {
    let message_type = IoMessage::new_unchecked_len(bytes).message_type();
    let repr = layout.answer_to(bytes);
    let mut version = NO_VERSION;
    let operation = match (message_type, limits.versions) {
        (Ok(IoMessageType::Read), _) => Ok(Operation::Read),
        (Ok(message_type), Some(block_size)) => {
            version = WireVersion::of(bytes);
            versioned(message_type, version, &repr, block_size)
        }
        (Ok(IoMessageType::Write), _) => Ok(Operation::Write { durable: false }),
        (Ok(IoMessageType::WriteFua), _) if limits.flush => Ok(Operation::Write { durable: true }),
        (Ok(IoMessageType::Flush), _) if limits.flush => Ok(Operation::Flush),
        (Ok(_) | Err(_), _) => Err(ErrorCode::INVALID_VALUE),
    };
    let possible = length == bytes.len()
        && (operation == Ok(Operation::Flush)
            || repr.size != 0
                && is_inside(repr.storage_offset, repr.size, limits.storage)
                && is_inside(repr.requester_offset, repr.size, limits.requester));
    Examined {
        repr,
        operation: if possible {
            operation
        } else {
            Err(ErrorCode::INVALID_VALUE)
        },
        version,
    }
}

const NO_VERSION: WireVersion = WireVersion {
    epoch: 0,
    number: 0,
    retired: 0,
};

/// The operation of a request other than a read, if versions were announced.
#[inline]
fn versioned(
    message_type: IoMessageType,
    version: WireVersion,
    repr: &Repr,
    block_size: u32,
) -> Result<Operation, ErrorCode> {
    let is_block = repr.size == block_size && repr.storage_offset.is_multiple_of(block_size.into());
    let durable = message_type == IoMessageType::WriteVersionFua;
    match message_type {
        IoMessageType::WriteVersion | IoMessageType::WriteVersionFua
            if is_block && version.number != 0 =>
        {
            Ok(Operation::WriteVersion { durable })
        }
        IoMessageType::ReadBefore if is_block => Ok(Operation::ReadBefore),
        IoMessageType::Flush => Ok(Operation::Flush),
        // A write to the block's place would be older than the block's versions.
        IoMessageType::Write | IoMessageType::WriteFua => Err(ErrorCode::NOT_PERMITTED),
        _ => Err(ErrorCode::INVALID_VALUE),
    }
}

#[inline]
fn is_inside(offset: u64, size: u32, length: u64) -> bool {
    offset
        .checked_add(u64::from(size))
        .is_some_and(|end| end <= length)
}

/// Writes in flight of a worker, by transaction. Written by the worker's thread, and read by others.
#[derive(Debug)]
pub(crate) struct Writes {
    ranges: Box<[Range]>,
    /// Unit of read-modify-writes in bytes.
    unit: u64,
}

#[derive(Debug, Default)]
struct Range {
    offset: AtomicU64,
    /// 0 without a write.
    size: AtomicU64,
}

impl Writes {
    /// Creates the table for `transactions` transactions. Read-modify-writes have units of `unit` bytes, not 0.
    pub(crate) fn new(transactions: usize, unit: u64) -> Self {
        Self {
            ranges: (0..transactions).map(|_| Range::default()).collect(),
            unit,
        }
    }

    /// Records that a transaction is about to write these bytes of the storage. A later check for abandonment is ordered after it.
    #[inline]
    pub(crate) fn begin(&self, transaction: usize, offset: u64, size: u64) {
        let range = &self.ranges[transaction];
        range.offset.store(offset, Ordering::Relaxed);
        range.size.store(size, Ordering::Release);
        // With the fence of [`Quarantine::add`]: either this worker observes that it has been abandoned, or the next
        // session observes this write. Weaker orders do not order a store before a later load, on any CPU.
        fence(Ordering::SeqCst);
    }

    /// Records that the transaction's write has completed.
    #[inline]
    pub(crate) fn end(&self, transaction: usize) {
        self.ranges[transaction].size.store(0, Ordering::Release);
    }

    fn overlap(&self, offset: u64, size: u64) -> bool {
        self.ranges.iter().any(|range| {
            let length = range.size.load(Ordering::Acquire);
            let offset_of_write = range.offset.load(Ordering::Relaxed);
            let begin = offset_of_write - offset_of_write % self.unit;
            let end = (offset_of_write + length).next_multiple_of(self.unit);
            length != 0 && begin < offset.saturating_add(size) && offset < end
        })
    }
}

/// A worker, possibly abandoned.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    pub(crate) attachment: Attachment,
    pub(crate) writes: Arc<Writes>,
}

/// The abandoned workers of earlier sessions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Quarantine(Vec<Writer>);

impl Quarantine {
    /// Adds the workers of a session that were abandoned, and removes those that have returned.
    pub(crate) fn add(&mut self, writers: Vec<Writer>) {
        // After the flag of an abandoned worker was set, and before its writes are read: see [`Writes::begin`].
        fence(Ordering::SeqCst);
        self.0.extend(writers);
        self.0.retain(|writer| writer.attachment.is_abandoned());
    }

    /// Returns `true` if there are no abandoned workers, which is the normal case.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if an abandoned worker may still write any of these bytes.
    #[cold]
    pub(crate) fn holds(&self, offset: u64, size: u64) -> bool {
        self.0
            .iter()
            .any(|writer| writer.attachment.is_abandoned() && writer.writes.overlap(offset, size))
    }
}

#[cfg(test)]
mod tests {
    use wire::release::{Release3_0, Release3_2};

    use super::*;

    const LIMITS: Limits = Limits {
        storage: 1 << 20,
        requester: 4096,
        flush: false,
        versions: None,
    };

    const READ: Repr = Repr {
        message_type: IoMessageType::Read,
        user_data: 0x1122_3344_5566_7788,
        result: 99,
        size: 4096,
        requester_offset: 0,
        storage_offset: (1 << 20) - 4096,
    };

    fn operation(repr: Repr) -> Result<Operation, ErrorCode> {
        let bytes = repr.to_bytes();
        let examined = examine(Release3_2, &bytes, bytes.len(), LIMITS);
        assert_eq!(
            examined.repr,
            Repr {
                message_type: IoMessageType::Result,
                ..repr
            },
            "values are kept for the answer"
        );
        examined.operation
    }

    const REFUSED: Result<Operation, ErrorCode> = Err(ErrorCode::INVALID_VALUE);

    #[test]
    fn reads_and_writes_up_to_the_last_byte() {
        assert_eq!(operation(READ), Ok(Operation::Read));
        assert_eq!(
            operation(Repr {
                message_type: IoMessageType::Write,
                ..READ
            }),
            Ok(Operation::Write { durable: false })
        );
        assert_eq!(
            operation(Repr {
                size: 1,
                requester_offset: 4095,
                ..READ
            }),
            Ok(Operation::Read)
        );
    }

    #[test]
    fn one_byte_further_is_refused() {
        assert_eq!(
            operation(Repr {
                storage_offset: READ.storage_offset + 1,
                ..READ
            }),
            REFUSED
        );
        assert_eq!(
            operation(Repr {
                requester_offset: 1,
                ..READ
            }),
            REFUSED
        );
        assert_eq!(
            operation(Repr {
                size: 4097,
                storage_offset: 0,
                ..READ
            }),
            REFUSED
        );
    }

    #[test]
    fn sums_that_overflow_are_refused() {
        for offset in [u64::MAX, u64::MAX - 4095, u64::MAX - 4096, 1 << 63] {
            assert_eq!(
                operation(Repr {
                    storage_offset: offset,
                    ..READ
                }),
                REFUSED,
                "{offset}"
            );
            assert_eq!(
                operation(Repr {
                    requester_offset: offset,
                    ..READ
                }),
                REFUSED,
                "{offset}"
            );
        }
        assert_eq!(
            operation(Repr {
                size: u32::MAX,
                ..READ
            }),
            REFUSED
        );
    }

    #[test]
    fn nothing_to_transfer_and_other_types_are_refused() {
        assert_eq!(operation(Repr { size: 0, ..READ }), REFUSED);
        assert_eq!(
            operation(Repr {
                message_type: IoMessageType::Result,
                ..READ
            }),
            REFUSED
        );
        let mut bytes = READ.to_bytes();
        bytes[3] = 7;
        let examined = examine(Release3_2, &bytes, bytes.len(), LIMITS);
        assert_eq!(
            (examined.operation, examined.repr.user_data),
            (REFUSED, READ.user_data)
        );
    }

    #[test]
    fn flushes_and_durable_writes_are_known_only_where_they_were_announced() {
        let announced = Limits {
            flush: true,
            ..LIMITS
        };
        let flush = Repr {
            message_type: IoMessageType::Flush,
            size: 0,
            storage_offset: u64::MAX,
            ..READ
        };
        let durable = Repr {
            message_type: IoMessageType::WriteFua,
            ..READ
        };
        let outside = Repr {
            storage_offset: 1 << 20,
            ..durable
        };
        for (repr, expected) in [
            (flush, Ok(Operation::Flush)),
            (durable, Ok(Operation::Write { durable: true })),
            (outside, REFUSED),
            (READ, Ok(Operation::Read)),
        ] {
            let bytes = repr.to_bytes();
            assert_eq!(
                examine(Release3_2, &bytes, 64, announced).operation,
                expected
            );
            assert_eq!(
                examine(Release3_2, &bytes, 63, announced).operation,
                REFUSED
            );
            if repr != READ {
                assert_eq!(examine(Release3_2, &bytes, 64, LIMITS).operation, REFUSED);
            }
        }
    }

    #[test]
    fn versioned_requests_are_of_one_block_and_only_where_they_were_announced() {
        let announced = Limits {
            versions: Some(4096),
            ..LIMITS
        };
        let version = WireVersion {
            epoch: 3,
            number: 4,
            retired: 2,
        };
        let none = WireVersion {
            number: 0,
            ..version
        };
        let request = |message_type| Repr {
            message_type,
            ..READ
        };
        let write = request(IoMessageType::WriteVersion);
        let before = request(IoMessageType::ReadBefore);
        let half = |repr| Repr { size: 2048, ..repr };
        let shifted = |repr| Repr {
            storage_offset: 2048,
            ..repr
        };
        let flush = Repr {
            size: 0,
            ..request(IoMessageType::Flush)
        };
        const NOT_PERMITTED: Result<Operation, ErrorCode> = Err(ErrorCode::NOT_PERMITTED);
        for (repr, version, expected) in [
            (
                write,
                version,
                Ok(Operation::WriteVersion { durable: false }),
            ),
            (
                request(IoMessageType::WriteVersionFua),
                version,
                Ok(Operation::WriteVersion { durable: true }),
            ),
            (write, none, REFUSED),
            (half(write), version, REFUSED),
            (shifted(write), version, REFUSED),
            (before, version, Ok(Operation::ReadBefore)),
            (before, none, Ok(Operation::ReadBefore)),
            (half(before), version, REFUSED),
            (shifted(before), version, REFUSED),
            (half(READ), none, Ok(Operation::Read)),
            (flush, version, Ok(Operation::Flush)),
            (request(IoMessageType::Write), version, NOT_PERMITTED),
            (request(IoMessageType::WriteFua), version, NOT_PERMITTED),
        ] {
            let mut bytes = repr.to_bytes();
            version.write(&mut bytes);
            let examined = examine(Release3_2, &bytes, 64, announced);
            assert_eq!(examined.operation, expected, "{repr:?}");
            if repr.message_type != IoMessageType::Read {
                assert_eq!(examined.version, version);
            }
            let unannounced = examine(Release3_2, &bytes, 64, LIMITS).operation;
            match repr.message_type {
                IoMessageType::Read => assert_eq!(unannounced, expected),
                IoMessageType::Write => assert!(unannounced.is_ok()),
                _ => assert_eq!(unannounced, REFUSED, "{repr:?}"),
            }
        }
    }

    #[test]
    fn a_short_message_is_refused_whatever_it_says() {
        let bytes = READ.to_bytes();
        for length in [0, 1, 63, 65] {
            assert_eq!(
                examine(Release3_2, &bytes, length, LIMITS).operation,
                REFUSED,
                "{length}"
            );
        }
    }

    #[test]
    fn places_of_3_0_are_checked_as_those_of_later_releases() {
        let layout = Release3_0 {
            requester_address: 0x7000_0000,
        };
        let request = |storage_offset, requester_offset| Repr {
            message_type: IoMessageType::Read,
            user_data: 7,
            result: 0,
            size: 512,
            requester_offset,
            storage_offset,
        };
        for (storage_offset, requester_offset, expected) in [
            (0, 0, Ok(Operation::Read)),
            (512, 4096 - 512, Ok(Operation::Read)),
            (512, 4096 - 511, Err(ErrorCode::INVALID_VALUE)),
            // Ranges before the memory map.
            (u64::MAX, 0, Err(ErrorCode::INVALID_VALUE)),
        ] {
            let bytes = layout.to_bytes(&request(storage_offset, requester_offset), 9);
            let examined = examine(layout, &bytes, bytes.len(), LIMITS);
            assert_eq!(examined.operation, expected, "{storage_offset}");
            assert_eq!(examined.repr.storage_offset, storage_offset);
            assert_eq!(examined.repr.requester_offset, requester_offset);
        }
    }

    #[test]
    fn overlap_is_exact_to_the_byte() {
        let writes = Writes::new(2, 1);
        assert!(!writes.overlap(0, u64::MAX));
        writes.begin(1, 4096, 512);
        for (offset, size, overlaps) in [
            (0, 4096, false),
            (0, 4097, true),
            (4096, 1, true),
            (4607, 1, true),
            (4608, 512, false),
            (0, u64::MAX, true),
        ] {
            assert_eq!(writes.overlap(offset, size), overlaps, "{offset} {size}");
        }
        writes.end(1);
        assert!(!writes.overlap(0, u64::MAX));
    }

    #[test]
    fn partial_write_covers_its_whole_unit() {
        let writes = Writes::new(1, 512);
        writes.begin(0, 1000, 100);
        for (offset, overlaps) in [(511, false), (512, true), (1535, true), (1536, false)] {
            assert_eq!(writes.overlap(offset, 1), overlaps, "{offset}");
        }
    }
}
