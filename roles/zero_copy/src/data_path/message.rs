//! Classification of messages, as far as a forwarding service needs it.

use doca::ErrorCode;
use wire::io_message::{self, IoMessage, IoMessageType};
use wire::release::{CorrelationId as _, IoLayout, Release, Release3_0, Release3_1, Release3_2};

/// Returns `true` if a message is a valid request. `length` is the received length; bytes beyond it are zero. With
/// `flush`, flushes and durable writes are valid requests, too, because all parties have announced them.
///
/// Offsets are checked by the target, which knows both memories.
#[inline]
#[must_use]
pub fn is_request(bytes: &[u8; io_message::SIZE], length: usize, flush: bool) -> bool {
    let is_known = match IoMessage::new_unchecked_len(bytes).message_type() {
        Ok(IoMessageType::Read | IoMessageType::Write) => true,
        Ok(IoMessageType::Flush | IoMessageType::WriteFua) => flush,
        Ok(IoMessageType::Result) | Err(_) => false,
    };
    is_known && length == bytes.len()
}

/// Returns `true` if a message of which `length` bytes were received is a result.
#[inline]
#[must_use]
pub fn is_result(bytes: &[u8; io_message::SIZE], length: usize) -> bool {
    let kind = IoMessage::new_unchecked_len(bytes).message_type();
    length == bytes.len() && kind == Ok(IoMessageType::Result)
}

/// Builds the result for a message that is not a valid request, with the fields of the message that identify it.
#[must_use]
pub fn refusal(message: &[u8; io_message::SIZE], release: Release) -> [u8; io_message::SIZE] {
    match release {
        // The base of addresses is the same in the message and in its result.
        Release::V3_0 => refusal_of(Release3_0::default(), message),
        Release::V3_1 => refusal_of(Release3_1, message),
        Release::V3_2 => refusal_of(Release3_2, message),
    }
}

fn refusal_of<L: IoLayout>(layout: L, message: &[u8; io_message::SIZE]) -> [u8; io_message::SIZE] {
    let answer = layout.answer_to(message).answer(ErrorCode::INVALID_VALUE.0);
    layout.to_bytes(&answer, L::CorrelationId::read(message))
}

#[cfg(test)]
mod tests {
    use wire::io_message::Repr;

    use super::*;

    #[test]
    fn refusal_has_the_identifying_fields_of_its_message() {
        let mut message = [0; io_message::SIZE];
        for (byte, value) in message.iter_mut().zip(1..) {
            *byte = value;
        }
        let mut expected = message;
        expected[..4].fill(0);
        expected[16..20].copy_from_slice(&ErrorCode::INVALID_VALUE.0.to_be_bytes());
        expected[40..].fill(0);
        assert_eq!(refusal(&message, Release::V3_1), expected);
        expected[36..].fill(0);
        assert_eq!(refusal(&message, Release::V3_0), expected);
        expected[4..8].fill(0);
        expected[36..40].copy_from_slice(&message[36..40]);
        assert_eq!(refusal(&message, Release::V3_2), expected);
    }

    #[test]
    fn messages_are_classified_by_type_and_length() {
        for (message_type, requests, announced, results) in [
            (IoMessageType::Read, true, true, false),
            (IoMessageType::Write, true, true, false),
            (IoMessageType::Flush, false, true, false),
            (IoMessageType::WriteFua, false, true, false),
            (IoMessageType::Result, false, false, true),
        ] {
            let bytes = Repr {
                message_type,
                user_data: 7,
                result: 0,
                size: 512,
                requester_offset: 0,
                storage_offset: 0,
            }
            .to_bytes();
            for length in [0, 1, 63, 64, 65] {
                let is_whole = length == bytes.len();
                for (flush, expected) in [(false, requests), (true, announced)] {
                    let came = is_request(&bytes, length, flush);
                    assert_eq!(came, expected && is_whole, "{length}");
                }
                assert_eq!(is_result(&bytes, length), results && is_whole, "{length}");
            }
        }
        let mut unknown = [0; io_message::SIZE];
        unknown[3] = 9;
        assert!(!is_request(&unknown, 64, true) && !is_result(&unknown, 64));
    }
}
