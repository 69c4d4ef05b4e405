//! One request to all targets, and their answers.

use wire::control::{Message, MessageType, Payload};

use crate::failure::Failure;
use crate::session::expect_response;

/// What was asked of all targets at once.
#[derive(Debug, Default)]
pub(super) struct Inquiry {
    asked: Vec<Asked>,
}

#[derive(Debug)]
struct Asked {
    message_id: u32,
    expected: MessageType,
    answer: Option<Payload>,
}

impl Inquiry {
    /// Nothing was asked yet.
    pub(super) fn clear(&mut self) {
        self.asked.clear();
    }

    /// The next target was asked for an `expected` by the request with this id.
    pub(super) fn ask(&mut self, message_id: u32, expected: MessageType) {
        self.asked.push(Asked {
            message_id,
            expected,
            answer: None,
        });
    }

    /// The next target is not there to be asked, and taken to have given this answer.
    pub(super) fn skip(&mut self, answer: Payload) {
        self.asked.push(Asked {
            message_id: 0,
            expected: answer.message_type(),
            answer: Some(answer),
        });
    }

    /// A target that is gone is taken to have given the answer that it may owe.
    pub(super) fn forgive(
        &mut self,
        target: usize,
        answer: impl Fn(MessageType) -> Option<Payload>,
    ) {
        let asked = self.asked.get_mut(target);
        if let Some(asked) = asked.filter(|asked| asked.answer.is_none()) {
            asked.answer = answer(asked.expected);
        }
    }

    /// Whether this target still owes an answer.
    pub(super) fn is_pending(&self, target: usize) -> bool {
        self.asked
            .get(target)
            .is_some_and(|asked| asked.answer.is_none())
    }

    /// The first target that owes an answer, and which.
    pub(super) fn pending(&self) -> Option<(usize, MessageType)> {
        let mut asked = self.asked.iter().enumerate();
        asked
            .find(|(_, asked)| asked.answer.is_none())
            .map(|(target, asked)| (target, asked.expected))
    }

    /// Takes the answer of a target that owes one.
    pub(super) fn answer(&mut self, target: usize, response: Message) -> Result<(), Failure> {
        let asked = self
            .asked
            .get_mut(target)
            .ok_or_else(|| Failure::unexpected("nothing was asked"))?;
        let payload = expect_response(response, asked.message_id, asked.expected)?;
        asked.answer = Some(payload);
        Ok(())
    }

    /// The answers, in the order of the targets, when all are there.
    pub(super) fn take(&mut self) -> Option<Vec<Payload>> {
        if self.asked.is_empty() || self.pending().is_some() {
            return None;
        }
        self.asked.drain(..).map(|asked| asked.answer).collect()
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
        for id in [7, 8] {
            inquiry.ask(id, MessageType::StopStorageResponse);
        }
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
        assert_eq!(inquiry.take().map(|answers| answers.len()), Some(2));
        assert_eq!(inquiry.take(), None, "taken");
    }
}
