//! The order of I/Os on one stripe, across all workers.
//!
//! A write changes three half blocks on three targets, one after the other as it happens; whoever reads
//! in between, or writes at the same time, would see or leave halves of different blocks. So a stripe is
//! taken by its writer alone, or by any number of readers. Who cannot take it tries again later: nobody
//! waits inside, and where nobody collides it costs one atomic operation to take and one to release.
//!
//! Stripes share a fixed number of slots. I/Os on two stripes of one slot wait for each other, which is
//! slow and seldom, and no I/O ever holds two.

use std::sync::atomic::{AtomicU32, Ordering};

/// Slots of one session: more than I/Os can be in flight at once with common settings, so that
/// collisions stay seldom. A power of two.
const SLOTS: usize = 1 << 14;

/// Somebody writes.
const WRITER: u32 = 1 << 31;
/// Somebody wants to write: readers that come later let it pass, or it would wait for ever.
const WRITER_WAITS: u32 = 1 << 30;

/// How a stripe is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Together with others that read.
    Read,
    /// Alone.
    Write,
}

/// A slot on a cache line of its own: workers on other stripes are not slowed down.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Slot(AtomicU32);

/// Who uses which stripes.
#[derive(Debug)]
pub(crate) struct StripeOrder {
    slots: Box<[Slot]>,
}

impl StripeOrder {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
        }
    }

    /// The slot of a stripe: neighbours have different ones.
    #[inline]
    pub(crate) fn slot(stripe: u64) -> usize {
        // The multiplier spreads stripes that are a power of two apart, as those of workers are.
        (stripe.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SLOTS.trailing_zeros())) as usize
    }

    /// Takes a slot, or says that it is taken.
    #[inline]
    pub(crate) fn try_take(&self, slot: usize, access: Access) -> bool {
        let word = &self.slots[slot].0;
        match access {
            Access::Read => {
                let before = word.load(Ordering::Relaxed);
                before & (WRITER | WRITER_WAITS) == 0
                    && word
                        .compare_exchange(before, before + 1, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
            }
            Access::Write => {
                let before = word.load(Ordering::Relaxed);
                let free = before & !WRITER_WAITS == 0;
                let taken = free
                    && word
                        .compare_exchange(before, WRITER, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok();
                if !taken {
                    word.fetch_or(WRITER_WAITS, Ordering::Relaxed);
                }
                taken
            }
        }
    }

    /// Gives back a slot that was taken.
    #[inline]
    pub(crate) fn release(&self, slot: usize, access: Access) {
        let word = &self.slots[slot].0;
        match access {
            Access::Read => word.fetch_sub(1, Ordering::Release),
            Access::Write => word.fetch_and(!WRITER, Ordering::Release),
        };
    }
}

#[cfg(test)]
mod tests;
