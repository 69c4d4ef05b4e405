//! Blocks that an abandoned worker may still write.
//!
//! A worker blocked by a peer in the middle of a write is abandoned with its session. When the peer unblocks it, it
//! completes this write, which may overwrite newer data of another session. So every worker publishes its writes in
//! flight, and until an abandoned one has returned, overlapping I/Os of other sessions are refused with
//! `DOCA_ERROR_IN_USE`.
//!
//! A write of a part of a file-system block may be a read-modify-write of the whole block, so ranges are rounded to blocks.
//! Locks are per session ([`SectorLocks`](crate::store::SectorLocks)), so an abandoned worker does not block other
//! sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use role_common::jobs::Attachment;

/// Writes in flight of a worker, by transaction. Written by one thread, read by others.
#[derive(Debug)]
pub(crate) struct Writes {
    ranges: Box<[Range]>,
    /// Unit of read-modify-writes in bytes.
    unit: u64,
}

#[derive(Debug, Default)]
struct Range {
    offset: AtomicU64,
    /// 0 if there is no write.
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

    /// Records that a transaction is about to write these bytes of the storage. A check for abandonment after it is ordered behind it.
    #[inline]
    pub(crate) fn begin(&self, transaction: usize, offset: u64, size: u64) {
        let range = &self.ranges[transaction];
        range.offset.store(offset, Ordering::Relaxed);
        range.size.store(size, Ordering::Release);
        // With the fence of [`Quarantine::add`]: either this worker sees that it has been abandoned, or the next session sees this write. No
        // weaker order puts a store before a later load, on any CPU.
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
    /// Adds those workers of a session that were abandoned, and removes those that have returned.
    pub(crate) fn add(&mut self, writers: Vec<Writer>) {
        // Behind the flag of an abandoned worker, and before its writes are looked at: see [`Writes::begin`].
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
    use super::*;

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
