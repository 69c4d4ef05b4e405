//! A ring of one-cache-line messages with one sender, one receiver and no credits.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::arena::Arena;

/// Number of slots. Fewer messages are in flight, so the sender need not check for space.
pub(crate) const SLOTS: usize = 512;
/// Size of a ring in bytes.
pub(crate) const SIZE: usize = SLOTS * size_of::<Slot>();
/// Words of a message; the eighth of the cache line marks it as present.
pub(crate) const WORDS: usize = 7;

#[repr(C, align(64))]
struct Slot {
    words: [AtomicU64; WORDS],
    /// Number of the pass over the ring in which the message was written, from 1 on.
    round: AtomicU64,
}

/// One end of a ring.
pub(crate) struct End<'a> {
    slots: &'a [Slot; SLOTS],
    next: u64,
}

impl<'a> End<'a> {
    /// Creates an end of the ring at `offset`.
    pub(crate) fn new(arena: &'a Arena, offset: usize) -> Self {
        assert!(offset.is_multiple_of(64) && offset + SIZE <= arena.len());
        // SAFETY: within the arena and aligned; other processes access it as atomics only.
        let slots = unsafe { &*arena.at(offset).cast::<[Slot; SLOTS]>() };
        Self { slots, next: 0 }
    }

    /// Sends a message. At most `SLOTS - 1` messages may be in the ring.
    pub(crate) fn push(&mut self, message: [u64; WORDS]) {
        let slot = &self.slots[self.next as usize % SLOTS];
        for (word, value) in slot.words.iter().zip(message) {
            word.store(value, Ordering::Relaxed);
        }
        slot.round
            .store(self.next / SLOTS as u64 + 1, Ordering::Release);
        self.next += 1;
    }

    /// Receives the next message, if there is one.
    pub(crate) fn pop(&mut self) -> Option<[u64; WORDS]> {
        let slot = &self.slots[self.next as usize % SLOTS];
        if slot.round.load(Ordering::Acquire) != self.next / SLOTS as u64 + 1 {
            return None;
        }
        self.next += 1;
        Some(std::array::from_fn(|word| {
            slot.words[word].load(Ordering::Relaxed)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_order_across_wraps() {
        let arena = Arena::create(SIZE).expect("memory");
        let (mut sender, mut receiver) = (End::new(&arena, 0), End::new(&arena, 0));
        for round in 0..SLOTS as u64 * 3 {
            assert_eq!(receiver.pop(), None);
            sender.push([round, 1, 2, 3, 4, 5, 6]);
            sender.push([round, 6, 5, 4, 3, 2, 1]);
            assert_eq!(receiver.pop(), Some([round, 1, 2, 3, 4, 5, 6]));
            assert_eq!(receiver.pop(), Some([round, 6, 5, 4, 3, 2, 1]));
        }
    }
}
