//! Order in which a worker visits its blocks: pools of free slots. Storage blocks are allocated first in, first out;
//! local memory last in, first out, because recently used memory is cached.
//!
//! A slot in use is in no pool, so two I/Os never use the same block or memory at once, whatever their latencies. The
//! first visits of all slots are in order; later ones follow the order of completion.

use std::collections::VecDeque;

/// Initial capacity of a pool: visits of up to this many slots do not allocate.
const PREPARED: usize = 1 << 20;

/// A fixed set of slots numbered from 0, allocated oldest first. It uses memory for visited slots only, because their
/// number is reported by a service and is not trusted.
#[derive(Debug)]
pub struct Pool {
    count: u32,
    /// First slot that was never allocated.
    fresh: u32,
    /// Freed slots, in order.
    returned: VecDeque<u32>,
}

impl Pool {
    /// Creates a pool with slots `0..count`, all free.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self {
            count,
            fresh: 0,
            returned: VecDeque::with_capacity(PREPARED.min(count as usize)),
        }
    }

    /// Allocates the slot that has been free longest; `None` if all are in use.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        if self.fresh < self.count {
            self.fresh += 1;
            return Some(self.fresh - 1);
        }
        self.returned.pop_front()
    }

    /// Allocates the slot freed last, whose memory is likely still cached; `None` if all are in use.
    #[inline]
    pub fn take_warm(&mut self) -> Option<u32> {
        match self.returned.pop_back() {
            None => self.take(),
            place => place,
        }
    }

    /// Frees a slot.
    #[inline]
    pub fn give(&mut self, place: u32) {
        debug_assert!(
            self.returned.len() < self.fresh as usize,
            "more places given back than taken"
        );
        self.returned.push_back(place);
    }
}

/// A permutation of slots in which neighbours are apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride {
    /// Coprime to the count; 1 for the identity.
    step: u64,
    count: u64,
}

impl Stride {
    /// The identity.
    pub const ONE: Self = Self { step: 1, count: 0 };

    /// Scatters `count` slots by steps of about their golden section: no two within a run of consecutive numbers are
    /// close.
    #[must_use]
    pub fn scattered(count: u32) -> Self {
        let count = u64::from(count);
        let golden = (count as f64 * 0.618_033_988_749_895) as u64;
        let step = (golden.max(1)..=count)
            .find(|&step| divisor(step, count) == 1)
            .unwrap_or(1);
        Self { step, count }
    }

    /// Slot with this number.
    #[inline(always)]
    #[must_use]
    pub const fn place(self, number: u32) -> u64 {
        if self.step == 1 {
            number as u64
        } else {
            number as u64 * self.step % self.count
        }
    }
}

/// Greatest common divisor.
fn divisor(one: u64, other: u64) -> u64 {
    if other == 0 {
        one
    } else {
        divisor(other, one % other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_order_visits_all_slots_without_neighbours() {
        for count in [1, 2, 3, 4, 12, 97, 1000, 4096] {
            let stride = Stride::scattered(count);
            let places: Vec<u64> = (0..count).map(|number| stride.place(number)).collect();
            let mut sorted = places.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..u64::from(count)), "{count}");
            if count > 12 {
                let close = |pair: &[u64]| pair[0].abs_diff(pair[1]) < 4;
                assert!(!places.windows(2).any(close), "{count}");
            }
        }
        assert_eq!(Stride::ONE.place(7), 7);
        assert!(Stride::scattered(u32::MAX).place(u32::MAX - 1) < u64::from(u32::MAX));
    }

    #[test]
    fn warm_slot_is_the_last_freed_and_never_one_in_use() {
        let mut pool = Pool::new(4);
        let taken: Vec<_> = (0..3).map_while(|_| pool.take_warm()).collect();
        assert_eq!(taken, [0, 1, 2]);
        pool.give(0);
        pool.give(2);
        assert_eq!(pool.take_warm(), Some(2));
        assert_eq!(pool.take_warm(), Some(0));
        assert_eq!(pool.take_warm(), Some(3), "the fresh one comes last");
        assert_eq!(pool.take_warm(), None);
    }

    #[test]
    fn slots_are_allocated_in_order_and_repeatedly() {
        let mut pool = Pool::new(5);
        for _ in 0..3 {
            for expected in 0..5 {
                let place = pool.take().expect("free");
                assert_eq!(place, expected);
                pool.give(place);
            }
        }
    }

    #[test]
    fn slot_in_use_is_never_allocated() {
        let mut pool = Pool::new(3);
        let taken = [pool.take(), pool.take(), pool.take()];
        assert_eq!(taken, [Some(0), Some(1), Some(2)]);
        assert_eq!(pool.take(), None);
        pool.give(1);
        assert_eq!(pool.take(), Some(1));
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn slots_are_reused_in_order_of_completion() {
        let mut pool = Pool::new(4);
        let (a, b) = (pool.take().expect("free"), pool.take().expect("free"));
        pool.give(b);
        pool.give(a);
        assert_eq!(
            [pool.take(), pool.take(), pool.take(), pool.take()],
            [Some(2), Some(3), Some(1), Some(0)]
        );
    }

    #[test]
    fn allocating_does_not_depend_on_the_number_of_slots() {
        let mut pool = Pool::new(u32::MAX);
        assert_eq!([pool.take(), pool.take()], [Some(0), Some(1)]);
        pool.give(0);
        assert_eq!(pool.take(), Some(2));
        assert!(
            pool.returned.capacity() <= 2 * PREPARED,
            "{}",
            pool.returned.capacity()
        );
    }
}
