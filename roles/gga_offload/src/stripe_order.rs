//! The order of I/Os on one stripe, across all workers.
//!
//! A write changes three half blocks on three targets, one after the other as it happens; whoever reads
//! in between, or writes at the same time, would see or leave halves of different blocks. So I/Os on one
//! stripe queue: each draws a ticket, and its turn comes in the order of the tickets, for neighbouring
//! readers at once. Nobody waits inside: who has drawn a ticket asks whether its turn has come. Where
//! nobody collides, that is two atomic additions on a cache line that other workers seldom use. A worker that
//! is alone adds without: an atomic addition waits until the core's stores have left it, also those to the
//! memory of other processes, and that took a fiftieth of the time of a read (measured).
//!
//! Stripes share a fixed number of slots. I/Os on two stripes of one slot wait for each other, which is
//! slow and seldom, and no I/O ever queues in two.

use std::sync::atomic::{AtomicU32, Ordering};

/// Slots for each transaction: enough for collisions to stay seldom.
const SLOTS_PER_TRANSACTION: u64 = 16;
/// Fewest slots, and most: 16 KiB and 1 MiB of them.
const SLOTS: (u64, u64) = (1 << 10, 1 << 16);

/// How a stripe is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Together with others that read.
    Read,
    /// Alone.
    Write,
}

/// A place in the queue of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

/// The queue of a slot. Four share a cache line, and there are not more than needed: I/Os take slots all over, which a core should have
/// at hand, while two workers seldom meet on one. Tickets wrap, which does no harm: there are never as many at once.
#[repr(align(16))]
#[derive(Debug, Default)]
struct Slot {
    /// The next ticket.
    next: AtomicU32,
    /// The ticket with which a reader's turn has come: all before it are writers that have finished, or
    /// readers.
    readers: AtomicU32,
    /// The ticket with which a writer's turn has come: all before it have finished.
    writers: AtomicU32,
}

/// Who uses which stripes.
#[derive(Debug)]
pub(crate) struct StripeOrder {
    /// A power of two of them.
    slots: Box<[Slot]>,
    /// Whether there is more than one worker.
    is_shared: bool,
}

impl StripeOrder {
    /// For a session with so many workers, which have so many transactions together.
    ///
    /// With one worker, only that one may use it.
    pub(crate) fn new(workers: u32, transactions: u64) -> Self {
        let wanted = transactions.saturating_mul(SLOTS_PER_TRANSACTION);
        let slots = wanted.clamp(SLOTS.0, SLOTS.1).next_power_of_two();
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            is_shared: workers > 1,
        }
    }

    /// The slot of a stripe: neighbours have different ones.
    #[inline]
    pub(crate) fn slot(&self, stripe: u64) -> usize {
        // The multiplier spreads stripes that are a power of two apart, as those of workers are.
        (stripe.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - self.slots.len().trailing_zeros()))
            as usize
    }

    /// Draws a ticket. Its turn has to be taken and finished, or nobody's behind it ever comes.
    #[inline]
    pub(crate) fn queue(&self, slot: usize) -> Ticket {
        Ticket(self.add_one(&self.slots[slot].next, Ordering::Relaxed))
    }

    /// Takes the turn of a ticket, if it has come.
    #[inline]
    pub(crate) fn try_take(&self, slot: usize, ticket: Ticket, access: Access) -> bool {
        let slot = &self.slots[slot];
        match access {
            Access::Read => {
                let turn = slot.readers.load(Ordering::Acquire) == ticket.0;
                if turn {
                    // The next one may read too. Nobody else changes the word while it is this turn.
                    slot.readers
                        .store(ticket.0.wrapping_add(1), Ordering::Release);
                }
                turn
            }
            Access::Write => slot.writers.load(Ordering::Acquire) == ticket.0,
        }
    }

    /// Finishes a turn that was taken.
    #[inline]
    pub(crate) fn finish(&self, slot: usize, ticket: Ticket, access: Access) {
        let slot = &self.slots[slot];
        match access {
            Access::Read => {
                self.add_one(&slot.writers, Ordering::Release);
            }
            Access::Write => {
                // Readers first: with the other word comes the turn of the next writer, which must not be through before
                // this one has changed both. It is added to, because readers may be through by then and have added too.
                slot.readers
                    .store(ticket.0.wrapping_add(1), Ordering::Release);
                self.add_one(&slot.writers, Ordering::Release);
            }
        }
    }

    /// Adds one to a word of a slot, and answers what it was.
    #[inline]
    fn add_one(&self, word: &AtomicU32, order: Ordering) -> u32 {
        if self.is_shared {
            return word.fetch_add(1, order);
        }
        let before = word.load(Ordering::Relaxed);
        word.store(before.wrapping_add(1), order);
        before
    }
}

#[cfg(test)]
mod tests;
