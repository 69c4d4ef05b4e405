//! Writes that the storage has acknowledged, but that are not covered by a flush. When the incarnation of the storage
//! changes, they are lost, and the next flush of each client fails, because it must not report them as durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// State shared by the queues of a volume and its control thread.
///
/// `word` is the number of the storage's incarnation in its upper half, and in its lower half: 0, all writes are flushed; 1, there were
/// writes since the last flush was sent; otherwise the number of a flush that was sent after all writes.
///
/// All operations are sequentially consistent: a queue that finds the word unchanged, and leaves it, has received the answer to its write
/// before any other queue sends a flush that changes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct UnflushedWrites {
    word: AtomicU64,
    /// Numbers of flushes.
    flushes: AtomicU32,
    /// Number of times that acknowledged writes were lost.
    losses: AtomicU64,
    /// Number of losses that were reported to at least one client.
    reported: AtomicU64,
}

const FLUSHED: u32 = 0;
const WRITTEN: u32 = 1;

fn word(incarnation: u32, state: u32) -> u64 {
    u64::from(incarnation) << 32 | u64::from(state)
}

fn parts(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl UnflushedWrites {
    /// Begins an incarnation of the storage, which has lost all unflushed writes. Returns `true` if it has lost
    /// acknowledged writes. Must be called before a queue gets a session with it.
    pub(crate) fn begin(&self, incarnation: u32) -> bool {
        let before = self.word.swap(word(incarnation, FLUSHED), Ordering::SeqCst);
        let has_lost = parts(before).1 != FLUSHED;
        if has_lost {
            self.lost();
        }
        has_lost
    }

    fn lost(&self) {
        self.losses.fetch_add(1, Ordering::SeqCst);
    }

    /// Number of times that acknowledged writes were lost.
    pub(crate) fn count(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }

    pub(crate) fn losses(&self) -> WriteLosses {
        WriteLosses {
            count: self.count(),
            reported: self.reported.load(Ordering::SeqCst),
        }
    }

    /// Changes the state of an incarnation. Returns `false` if another one has begun.
    fn update(&self, incarnation: u32, next: impl Fn(u32) -> u32) -> bool {
        let change = |current: u64| {
            let (number, state) = parts(current);
            (number == incarnation).then(|| word(number, next(state)))
        };
        self.word
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, change)
            .is_ok()
    }

    /// A number for a flush, different from the numbers of other states.
    fn next_flush(&self) -> u32 {
        loop {
            let number = self.flushes.fetch_add(1, Ordering::SeqCst);
            if number > WRITTEN {
                return number;
            }
        }
    }

    #[cold]
    fn mark(&self, incarnation: u32) {
        if !self.update(incarnation, |_| WRITTEN) {
            tracing::warn!(
                "a write was acknowledged by an earlier incarnation of the storage: it may be lost"
            );
            self.lost();
        }
    }
}

/// Number of losses of acknowledged, unflushed writes of a storage while its volume was open. A program that serves
/// several clients through one queue has to inform each of them: the queue itself fails one flush with
/// [`IoError::LostWrites`](crate::IoError::LostWrites) after a loss.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteLosses {
    /// Number of losses.
    pub count: u64,
    /// Number of losses that were reported to a client. A new client, which may be an earlier one that has reconnected,
    /// need not be informed of these.
    pub reported: u64,
}

/// The state of one queue.
#[derive(Debug)]
pub(crate) struct Tracker {
    shared: Arc<UnflushedWrites>,
    /// Incarnation of the storage in the queue's session.
    incarnation: u32,
    /// Number of losses that were reported to the queue's client.
    told: u64,
}

impl Tracker {
    pub(crate) fn new(shared: Arc<UnflushedWrites>) -> Self {
        Self {
            shared,
            incarnation: 0,
            told: 0,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<UnflushedWrites> {
        &self.shared
    }

    /// Begins a session with this incarnation of the storage. Returns `true` if it differs from that of the last
    /// session.
    pub(crate) fn attach(&mut self, incarnation: u32) -> bool {
        std::mem::replace(&mut self.incarnation, incarnation) != incarnation
    }

    /// Records that the storage has acknowledged a write that need not be durable.
    #[inline]
    pub(crate) fn written(&self) {
        if self.shared.word.load(Ordering::SeqCst) != word(self.incarnation, WRITTEN) {
            self.shared.mark(self.incarnation);
        }
    }

    /// Must be called before a flush is sent. Returns its number.
    pub(crate) fn flush_sent(&self) -> u32 {
        let number = self.shared.next_flush();
        let covers = |state| {
            if state == FLUSHED { state } else { number }
        };
        self.shared.update(self.incarnation, covers);
        number
    }

    /// Records that the storage has completed this flush. Returns `true` if acknowledged writes were lost and this must
    /// be reported to the client.
    pub(crate) fn flush_completed(&mut self, number: u32) -> bool {
        let is_last = |state| if state == number { FLUSHED } else { state };
        self.shared.update(self.incarnation, is_last);
        let losses = self.shared.count();
        let must_tell = losses != self.told;
        if must_tell {
            self.told = losses;
            self.shared.reported.fetch_max(losses, Ordering::SeqCst);
        }
        must_tell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trackers() -> (Arc<UnflushedWrites>, Tracker, Tracker) {
        let shared = Arc::new(UnflushedWrites::default());
        let tracker = || Tracker::new(Arc::clone(&shared));
        let (one, other) = (tracker(), tracker());
        (shared, one, other)
    }

    #[test]
    fn writes_are_lost_unless_a_later_flush_has_completed() {
        let (shared, mut one, mut other) = trackers();
        assert!(!shared.begin(1), "nothing was written");
        let attach = |number, tracker: &mut Tracker| assert!(tracker.attach(number));
        attach(1, &mut one);
        attach(1, &mut other);
        one.written();
        assert!(shared.begin(2));
        attach(2, &mut one);
        attach(2, &mut other);
        assert!(!shared.begin(2), "once");

        one.written();
        let flush = other.flush_sent();
        other.flush_completed(flush);
        assert!(!shared.begin(3), "flushed by another queue");
        attach(3, &mut one);
        attach(3, &mut other);

        // A write after the flush was sent is not covered by it.
        one.written();
        let flush = other.flush_sent();
        one.written();
        other.flush_completed(flush);
        assert!(shared.begin(4));
        attach(4, &mut one);
        attach(4, &mut other);

        // A flush that was not answered.
        one.written();
        one.flush_sent();
        assert!(shared.begin(5));
    }

    #[test]
    fn earlier_flush_does_not_hide_a_write_before_a_later_one() {
        let (shared, mut one, other) = trackers();
        other.written();
        let first = one.flush_sent();
        other.written();
        let second = one.flush_sent();
        one.flush_completed(first);
        assert!(shared.begin(1), "the second flush was not answered");
        one.attach(1);
        one.written();
        let third = one.flush_sent();
        one.flush_completed(second);
        one.flush_completed(third);
        assert!(!shared.begin(2));
    }

    #[test]
    fn each_queue_is_told_of_each_loss_once() {
        let (shared, mut one, mut other) = trackers();
        one.written();
        assert!(shared.begin(1));
        one.attach(1);
        other.attach(1);
        let flush = |tracker: &mut Tracker| {
            let number = tracker.flush_sent();
            tracker.flush_completed(number)
        };
        let (count, reported) = (1, 0);
        assert_eq!(shared.losses(), WriteLosses { count, reported });
        assert!(flush(&mut one));
        assert_eq!(shared.losses().reported, 1);
        assert!(!flush(&mut one));
        assert!(flush(&mut other));
        assert!(!flush(&mut other));
    }

    #[test]
    fn answer_of_an_earlier_incarnation_is_a_loss() {
        let (shared, mut one, mut other) = trackers();
        assert!(!shared.begin(1));
        other.attach(1);
        other.written();
        // Received before the session ended, but handled after the next one has started.
        one.written();
        assert_eq!(shared.count(), 1);
        assert!(other.flush_completed(0));
        one.attach(1);
        assert!(one.flush_completed(0));
        assert!(shared.begin(2), "the other queue's write");
    }
}
