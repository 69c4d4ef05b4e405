//! Turns of the service's own answers, to messages that are no requests.

use std::collections::VecDeque;

/// Which messages wait for their refusal, and which lanes are free for one. It allocates only when
/// it is made.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    free: Vec<usize>,
    waiting: VecDeque<usize>,
    count: u64,
}

impl Refusals {
    /// For as many refusal lanes and request lanes.
    pub(super) fn new(refusals: usize, requests: usize) -> Self {
        Self {
            free: (0..refusals).collect(),
            waiting: VecDeque::with_capacity(requests),
            count: 0,
        }
    }

    /// Messages that were refused so far, or wait for it.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The message in this request lane is to be refused.
    pub(super) fn wait(&mut self, request: usize) {
        self.count += 1;
        self.waiting.push_back(request);
    }

    /// A message to refuse and the lane to do it with.
    pub(super) fn next(&mut self) -> Option<(usize, usize)> {
        let request = *self.waiting.front()?;
        let refusal = self.free.pop()?;
        self.waiting.pop_front();
        Some((request, refusal))
    }

    /// A refusal was sent.
    pub(super) fn sent(&mut self, refusal: usize) {
        self.free.push(refusal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_wait_for_a_lane_in_order() {
        let mut refusals = Refusals::new(1, 3);
        assert_eq!(refusals.next(), None);
        for request in [7, 8, 9] {
            refusals.wait(request);
        }
        assert_eq!(refusals.next(), Some((7, 0)));
        assert_eq!(refusals.next(), None, "the only lane is taken");
        refusals.sent(0);
        assert_eq!(refusals.next(), Some((8, 0)));
        refusals.sent(0);
        assert_eq!(refusals.next(), Some((9, 0)));
        assert_eq!(refusals.count(), 3);
    }
}
