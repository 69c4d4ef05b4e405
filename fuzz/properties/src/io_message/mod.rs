//! I/O messages: the bytes, what targets and services make of a request, and what an initiator makes of answers.

mod answers;
mod place;
mod requests;

use arbitrary::{Arbitrary, Result, Unstructured};
use wire::io_message::{IoMessage, IoMessageType, Repr, SIZE};

use crate::control_frames::rest;
use crate::memory;
use crate::tally::Judging;

pub use answers::Answers;
pub use place::{Amount, Place};
pub use requests::{AnyRequest, World};

/// Messages, and who gets them.
#[derive(Debug, Clone)]
pub enum Input {
    /// Any bytes, for everybody.
    Raw {
        /// Where they come to.
        world: World,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A request, or almost one, for a target or a service.
    Request {
        /// Where it comes to.
        world: World,
        /// The request.
        request: AnyRequest,
    },
    /// Answers, right and wrong ones, for an initiator.
    Answers(Answers),
}

/// A number for the kind, and the bytes, so that a message is easily made an input.
impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match u.int_in_range(0..=2)? {
            0 => Self::Raw {
                world: World::default(),
                bytes: rest(u)?,
            },
            1 => Self::Request {
                world: u.arbitrary()?,
                request: u.arbitrary()?,
            },
            _ => Self::Answers(u.arbitrary()?),
        })
    }
}

/// Nothing that leaves one of the memories is carried out, everything that does not is, and every answer tells its request.
///
/// # Panics
///
/// If that does not hold.
pub fn property(input: &Input) {
    match input {
        Input::Raw { world, bytes } => {
            view(bytes);
            requests::property(world, bytes);
        }
        Input::Request { world, request } => {
            let bytes = request.bytes(world);
            view(&bytes);
            requests::property(world, &bytes);
        }
        Input::Answers(answers) => answers::property(answers),
    }
}

/// The view says what lies where the layout says, and writes nothing else.
fn view(bytes: &[u8]) {
    let judging = Judging::by("io_message: the bytes");
    let accepted = memory::within(0, "a view", || {
        let Ok(message) = IoMessage::new_checked(bytes) else {
            assert_ne!(bytes.len(), SIZE);
            return false;
        };
        let bytes: &[u8; SIZE] = bytes.try_into().expect("only that is a message");
        let number = word(bytes, 0);
        assert_eq!(message.user_data(), double_word(bytes, 8));
        assert_eq!(message.result(), word(bytes, 16));
        assert_eq!(message.size(), word(bytes, 20));
        assert_eq!(message.requester_offset(), double_word(bytes, 24));
        assert_eq!(message.storage_offset(), double_word(bytes, 32));

        let Ok(repr) = Repr::parse(&message) else {
            assert!(number > 2);
            return false;
        };
        assert_eq!(repr.message_type.number(), number);
        let mut clean = *bytes;
        clean[4..8].fill(0);
        clean[40..].fill(0);
        assert_eq!(repr.to_bytes(), clean, "zeros where no field is");

        let answer = repr.answer(7);
        let expected = Repr {
            message_type: IoMessageType::Result,
            result: 7,
            ..repr
        };
        assert_eq!(answer, expected);
        let mut in_place = IoMessage::new_unchecked_len(*bytes);
        in_place.answer(7);
        assert_eq!(Repr::parse(&in_place), Ok(expected));
        let in_place = in_place.into_inner();
        assert_eq!(
            (&in_place[4..8], &in_place[40..]),
            (&bytes[4..8], &bytes[40..])
        );
        true
    });
    judging.done(accepted);
}

fn word(bytes: &[u8; SIZE], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().expect("inside of the message"))
}

fn double_word(bytes: &[u8; SIZE], at: usize) -> u64 {
    u64::from_be_bytes(*bytes[at..].first_chunk().expect("inside of the message"))
}
