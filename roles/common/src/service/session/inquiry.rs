//! A request to all targets, and their responses.

use wire::control::{Message, MessageType, Payload};

use crate::failure::Failure;
use crate::session::expect_response;

/// A request sent to all targets that are present.
#[derive(Debug, Default)]
pub(super) struct Inquiry {
    /// Expected type of the responses while a request is outstanding.
    expected: Option<MessageType>,
    targets: Vec<Asked>,
}

#[derive(Debug)]
enum Asked {
    /// The response to the request with this id is outstanding.
    Pending(u32),
    Answered(Payload),
    /// The target is missing or lost.
    Absent,
}

impl Inquiry {
    /// Starts a request whose responses have type `expected`.
    pub(super) fn begin(&mut self, expected: MessageType) {
        self.expected = Some(expected);
        self.targets.clear();
    }

    /// Records that the request with this id was sent to the next target.
    pub(super) fn ask(&mut self, message_id: u32) {
        self.targets.push(Asked::Pending(message_id));
    }

    /// Records that the next target is absent.
    pub(super) fn skip(&mut self) {
        self.targets.push(Asked::Absent);
    }

    /// Expects no response from a target that was lost.
    pub(super) fn forgive(&mut self, target: usize) {
        if self.is_pending(target) {
            self.targets[target] = Asked::Absent;
        }
    }

    /// Returns `true` while this target's response is outstanding.
    pub(super) fn is_pending(&self, target: usize) -> bool {
        matches!(self.targets.get(target), Some(Asked::Pending(_)))
    }

    /// First target with an outstanding response, and its type.
    pub(super) fn pending(&self) -> Option<(usize, MessageType)> {
        let target = (0..self.targets.len()).find(|&target| self.is_pending(target))?;
        Some((target, self.expected?))
    }

    /// Accepts the response of a target with an outstanding one.
    pub(super) fn answer(&mut self, target: usize, response: Message) -> Result<(), Failure> {
        let (Some(expected), Some(Asked::Pending(id))) = (self.expected, self.targets.get(target))
        else {
            return Err(Failure::unexpected("nothing was asked"));
        };
        let payload = expect_response(response, *id, expected)?;
        self.targets[target] = Asked::Answered(payload);
        Ok(())
    }

    /// Returns the type of the responses and the responses in the order of the targets, `None` for absent ones, once
    /// none is outstanding.
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
    fn answers_are_returned_in_the_order_of_the_targets() {
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
    fn no_answer_is_expected_from_a_lost_target() {
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
