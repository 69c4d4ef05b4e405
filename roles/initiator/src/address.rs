//! The order in which a worker visits its blocks: pools of places that are free, first in first out.
//!
//! A place that is in flight is in no pool, so two I/Os never touch the same block or the same memory at once, however long one of
//! them takes. The first visit of every place is in order; afterwards they come around in the order of their completion.

/// A fixed set of places numbered from 0, handed out oldest first.
#[derive(Debug)]
pub struct Pool {
    ring: Box<[u32]>,
    head: usize,
    free: usize,
}

impl Pool {
    /// All places `0..count`, free, in order.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self {
            ring: (0..count).collect(),
            head: 0,
            free: count as usize,
        }
    }

    /// Takes the place that has been free for longest; `None` when all are taken.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        let place = self.ring[self.head];
        self.head = self.wrap(self.head + 1);
        self.free -= 1;
        Some(place)
    }

    /// Gives back a place that was taken.
    #[inline]
    pub fn give(&mut self, place: u32) {
        debug_assert!(
            self.free < self.ring.len(),
            "more places given back than taken"
        );
        let tail = self.wrap(self.head + self.free);
        self.ring[tail] = place;
        self.free += 1;
    }

    /// `at` is below twice the length, so a subtraction replaces the division.
    #[inline]
    const fn wrap(&self, at: usize) -> usize {
        if at >= self.ring.len() {
            at - self.ring.len()
        } else {
            at
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_all_places_in_order_then_again() {
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
    fn never_hands_out_what_is_taken() {
        let mut pool = Pool::new(3);
        let taken = [pool.take(), pool.take(), pool.take()];
        assert_eq!(taken, [Some(0), Some(1), Some(2)]);
        assert_eq!(pool.take(), None);
        pool.give(1);
        assert_eq!(pool.take(), Some(1));
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn returns_in_the_order_of_completion() {
        let mut pool = Pool::new(4);
        let (a, b) = (pool.take().expect("free"), pool.take().expect("free"));
        pool.give(b);
        pool.give(a);
        assert_eq!(
            [pool.take(), pool.take(), pool.take(), pool.take()],
            [Some(2), Some(3), Some(1), Some(0)]
        );
    }
}
