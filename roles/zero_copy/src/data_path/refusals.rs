//! Turns of the service's own answers, to messages that are no requests.

use std::collections::VecDeque;

/// Slots of messages that wait for their refusal, and slots that are free for one. Allocates only when it is created.
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
    /// Uses the slots `free` to refuse messages in up to `requests` other slots.
    pub(super) fn new(free: Vec<S>, requests: usize) -> Self {
        Self {
            free,
            waiting: VecDeque::with_capacity(requests),
            count: 0,
        }
    }

    /// Messages that were refused so far, or wait for it.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The message in this slot is to be refused.
    pub(super) fn wait(&mut self, request: S) {
        self.count += 1;
        self.waiting.push_back(request);
    }

    /// The slot of a message to refuse, and the slot to refuse it with.
    pub(super) fn next(&mut self) -> Option<(S, S)> {
        if self.free.is_empty() {
            return None;
        }
        let request = self.waiting.pop_front()?;
        Some((request, self.free.pop()?))
    }

    /// A refusal was sent.
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
