//! Queue of messages to refuse and of slots for the refusals.

use std::collections::VecDeque;

/// Slots with messages to refuse, and free slots for refusals. Allocates only on creation.
#[derive(Debug)]
pub(super) struct Refusals<S> {
    free: Vec<S>,
    waiting: VecDeque<S>,
    count: u64,
}

impl<S> Default for Refusals<S> {
    fn default() -> Self {
        Self::new(Vec::new(), 0)
    }
}

impl<S> Refusals<S> {
    /// Creates a queue for messages in up to `requests` slots, refused with the slots `free`.
    pub(super) fn new(free: Vec<S>, requests: usize) -> Self {
        Self {
            free,
            waiting: VecDeque::with_capacity(requests),
            count: 0,
        }
    }

    /// Number of messages refused or waiting for a refusal.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Queues the message in this slot for a refusal.
    pub(super) fn wait(&mut self, request: S) {
        self.count += 1;
        self.waiting.push_back(request);
    }

    /// Next message to refuse and a free slot for the refusal; `None` if either is missing.
    pub(super) fn next(&mut self) -> Option<(S, S)> {
        if self.free.is_empty() {
            return None;
        }
        let request = self.waiting.pop_front()?;
        Some((request, self.free.pop()?))
    }

    /// Returns a slot after its refusal was sent.
    pub(super) fn sent(&mut self, refusal: S) {
        self.free.push(refusal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_wait_for_a_slot_in_order() {
        let mut refusals = Refusals::new(vec![0], 3);
        assert_eq!(refusals.next(), None);
        for request in [7, 8, 9] {
            refusals.wait(request);
        }
        assert_eq!(refusals.next(), Some((7, 0)));
        assert_eq!(refusals.next(), None, "the only slot is in use");
        refusals.sent(0);
        assert_eq!(refusals.next(), Some((8, 0)));
        refusals.sent(0);
        assert_eq!(refusals.next(), Some((9, 0)));
        assert_eq!(refusals.count(), 3);
    }
}
