//! Transactions that wait for a request.

use std::collections::VecDeque;
use std::ops::Range;

/// Transactions that rest while others can be taken. One that ended just now is not taken at once: with 16 transactions, reads are a
/// twentieth slower then (measured).
const RESTING: usize = 12;

/// Hands out transactions, as few different ones as will do: what they use is in the core's caches then. The initiator is given twice
/// as many as it says that it uses, as in the reference, and in turns all of them would be used. It allocates only when it is made.
#[derive(Debug)]
pub(super) struct IdleTransactions {
    /// In the order in which they ended.
    ended: VecDeque<usize>,
    /// Those that were never taken.
    unused: Range<usize>,
}

impl IdleTransactions {
    /// The first so many transactions.
    pub(super) fn new(count: usize) -> Self {
        Self {
            ended: VecDeque::with_capacity(count),
            unused: 0..count,
        }
    }

    /// Takes a transaction, if one is idle.
    #[inline]
    pub(super) fn take(&mut self) -> Option<usize> {
        if self.ended.len() > RESTING {
            return self.ended.pop_front();
        }
        self.unused.next().or_else(|| self.ended.pop_front())
    }

    /// A transaction that was taken has ended.
    #[inline]
    pub(super) fn give_back(&mut self, transaction: usize) {
        self.ended.push_back(transaction);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn all_are_handed_out_once() {
        for count in [0, 1, RESTING, 100] {
            let mut idle = IdleTransactions::new(count);
            for _ in 0..3 {
                let taken: HashSet<_> = std::iter::from_fn(|| idle.take()).collect();
                assert_eq!(taken, (0..count).collect());
                taken.into_iter().for_each(|index| idle.give_back(index));
            }
        }
    }

    #[test]
    fn few_are_used_and_those_that_rested_longest_come_first() {
        let mut idle = IdleTransactions::new(128);
        let mut in_flight: VecDeque<_> = (0..16).filter_map(|_| idle.take()).collect();
        let mut used: HashSet<_> = in_flight.iter().copied().collect();
        for _ in 0..1000 {
            let ended = in_flight.pop_front().expect("16 are in flight");
            idle.give_back(ended);
            let next = idle.take().expect("one has just ended");
            assert_ne!(next, ended, "it is to rest");
            used.insert(next);
            in_flight.push_back(next);
        }
        assert_eq!(used.len(), 16 + RESTING);
    }
}
