//! What a check hears of the service, on any of its channels.

use wire::control::{Message, Payload};

use crate::role::Wrong;
use crate::role::step::Step;

/// Who said something.
#[derive(Debug)]
pub(super) enum Heard {
    /// This target was asked for something.
    Target(usize, Message),
    /// The service has closed the connection to this target.
    TargetLeft(usize),
    /// The initiator was told something.
    Initiator(Message),
    /// The service has closed the channel to the initiator.
    InitiatorLeft,
    /// Nobody, yet.
    Nothing,
}

impl Heard {
    /// In words.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Target(index, message) => {
                format!("{} at target {index}", describe(&message.payload))
            }
            Self::TargetLeft(index) => format!("the end of the connection to target {index}"),
            Self::Initiator(message) => format!("{} at the initiator", describe(&message.payload)),
            Self::InitiatorLeft => "the end of the channel to the initiator".to_owned(),
            Self::Nothing => "nothing".to_owned(),
        }
    }
}

/// Expects the answer to this step, and no error.
pub(super) fn expect_answer(step: Step, answer: &Payload) -> Result<(), Wrong> {
    Wrong::unless(
        answer.message_type() == step.answer(),
        step.answer(),
        describe(answer),
    )
}

/// A payload in words: no blobs.
pub(super) fn describe(payload: &Payload) -> String {
    match payload {
        Payload::ErrorResponse(error) => {
            format!("error_response {} ({})", error.error_code, error.message)
        }
        other => other.message_type().to_string(),
    }
}
