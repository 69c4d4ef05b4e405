//! The order in which a worker visits its blocks: pools of places that are free. Blocks of the storage come first in first out; memory
//! of the worker's own comes last in first out, because it is faster where it was used just now.
//!
//! A place that is in flight is in no pool, so two I/Os never touch the same block or the same memory at once, however long one of
//! them takes. The first visit of every place is in order; afterwards they come around in the order of their completion.

use std::collections::VecDeque;

/// Places that there is room for from the beginning, if there are so many: visits of these allocate nothing.
const PREPARED: usize = 1 << 20;

/// A fixed set of places numbered from 0, handed out oldest first. It takes memory for the places that were visited: how many there
/// are is what a service claims.
#[derive(Debug)]
pub struct Pool {
    count: u32,
    /// The first place that was never taken; so are all after it.
    fresh: u32,
    /// Places that were given back, in that order.
    returned: VecDeque<u32>,
}

impl Pool {
    /// All places `0..count`, free, in order.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self {
            count,
            fresh: 0,
            returned: VecDeque::with_capacity(PREPARED.min(count as usize)),
        }
    }

    /// Takes the place that has been free for longest; `None` when all are taken.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        if self.fresh < self.count {
            self.fresh += 1;
            return Some(self.fresh - 1);
        }
        self.returned.pop_front()
    }

    /// Takes the place that was given back last: what lies there is still in the caches. `None` when all are taken.
    #[inline]
    pub fn take_warm(&mut self) -> Option<u32> {
        match self.returned.pop_back() {
            None => self.take(),
            place => place,
        }
    }

    /// Gives back a place that was taken.
    #[inline]
    pub fn give(&mut self, place: u32) {
        debug_assert!(
            self.returned.len() < self.fresh as usize,
            "more places given back than taken"
        );
        self.returned.push_back(place);
    }
}

/// A way to number places: neighbours in the one numbering are apart in the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride {
    /// Without a common divisor with the count; 1 for the numbering as it is.
    step: u64,
    count: u64,
}

impl Stride {
    /// The numbering as it is.
    pub const ONE: Self = Self { step: 1, count: 0 };

    /// Scatters `count` places, in steps of about their golden section: no two of any number of places in a row are close to each other.
    #[must_use]
    pub fn scattered(count: u32) -> Self {
        let count = u64::from(count);
        let golden = (count as f64 * 0.618_033_988_749_895) as u64;
        let step = (golden.max(1)..=count)
            .find(|&step| divisor(step, count) == 1)
            .unwrap_or(1);
        Self { step, count }
    }

    /// The place with this number.
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

/// The greatest common divisor.
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
