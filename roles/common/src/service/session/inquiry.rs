//! One request to all targets, and their answers.

use wire::control::{Message, MessageType, Payload};

use crate::failure::Failure;
use crate::session::expect_response;

/// A request to all targets that are present.
#[derive(Debug, Default)]
pub(super) struct Inquiry {
    /// The type of the answers that are due, while any request is at hand.
    expected: Option<MessageType>,
    targets: Vec<Asked>,
}

#[derive(Debug)]
enum Asked {
    /// The answer to the request of this id is due.
    Pending(u32),
    Answered(Payload),
    /// The target is missing or was lost.
    Absent,
}

impl Inquiry {
    /// Begins with a request that is answered by an `expected`.
    pub(super) fn begin(&mut self, expected: MessageType) {
        self.expected = Some(expected);
        self.targets.clear();
    }

    /// The next target was asked by the request with this id.
    pub(super) fn ask(&mut self, message_id: u32) {
        self.targets.push(Asked::Pending(message_id));
    }

    /// The next target is not there to be asked.
    pub(super) fn skip(&mut self) {
        self.targets.push(Asked::Absent);
    }

    /// A target that was lost owes no answer.
    pub(super) fn forgive(&mut self, target: usize) {
        if self.is_pending(target) {
            self.targets[target] = Asked::Absent;
        }
    }

    /// `true` while this target owes an answer.
    pub(super) fn is_pending(&self, target: usize) -> bool {
        matches!(self.targets.get(target), Some(Asked::Pending(_)))
    }

    /// The first target that owes an answer, and which.
    pub(super) fn pending(&self) -> Option<(usize, MessageType)> {
        let target = (0..self.targets.len()).find(|&target| self.is_pending(target))?;
        Some((target, self.expected?))
    }

    /// Takes the answer of a target that owes one.
    pub(super) fn answer(&mut self, target: usize, response: Message) -> Result<(), Failure> {
        let (Some(expected), Some(Asked::Pending(id))) = (self.expected, self.targets.get(target))
        else {
            return Err(Failure::unexpected("nothing was asked"));
        };
        let payload = expect_response(response, *id, expected)?;
        self.targets[target] = Asked::Answered(payload);
        Ok(())
    }

    /// The type of the answers, and the answers in the order of the targets, `None` for those that are absent, once none is due.
    pub(super) fn take(&mut self) -> Option<(MessageType, Vec<Option<Payload>>)> {
        if self.pending().is_some() {
            return None;
        }
        let expected = self.expected.take()?;
        let answers = self.targets.drain(..).map(|asked| match asked {
            Asked::Answered(payload) => Some(payload),
            Asked::Pending(_) | Asked::Absent => None,
        });
        Some((expected, answers.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(message_id: u32, payload: Payload) -> Message {
        Message {
            message_id,
            correlation_id: 0,
            payload,
        }
    }

    #[test]
    fn answers_come_in_any_order_and_leave_in_the_targets_order() {
        let mut inquiry = Inquiry::default();
        inquiry.begin(MessageType::StopStorageResponse);
        inquiry.ask(7);
        inquiry.ask(8);
        inquiry.skip();
        assert_eq!(
            inquiry.pending(),
            Some((0, MessageType::StopStorageResponse))
        );
        inquiry
            .answer(1, message(8, Payload::StopStorageResponse))
            .expect("asked");
        assert!(inquiry.is_pending(0) && !inquiry.is_pending(1) && !inquiry.is_pending(2));
        assert_eq!(inquiry.take(), None);
        assert!(
            inquiry
                .answer(0, message(8, Payload::StopStorageResponse))
                .is_err(),
            "another target's id"
        );
        inquiry
            .answer(0, message(7, Payload::StopStorageResponse))
            .expect("asked");
        let stopped = Some(Payload::StopStorageResponse);
        assert_eq!(
            inquiry.take(),
            Some((
                MessageType::StopStorageResponse,
                vec![stopped.clone(), stopped, None]
            ))
        );
        assert_eq!(inquiry.take(), None, "taken");
    }

    #[test]
    fn lost_target_owes_no_answer() {
        let mut inquiry = Inquiry::default();
        assert_eq!(inquiry.take(), None, "nothing was asked");
        inquiry.begin(MessageType::ShutdownResponse);
        inquiry.ask(7);
        assert_eq!(inquiry.take(), None);
        inquiry.forgive(0);
        assert!(!inquiry.is_pending(0));
        assert_eq!(
            inquiry.take(),
            Some((MessageType::ShutdownResponse, vec![None]))
        );
    }
}
