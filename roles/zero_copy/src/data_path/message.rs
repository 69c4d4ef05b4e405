//! What a message is, as far as a service that forwards it has to know.

use doca::ErrorCode;
use wire::io_message::{self, IoMessage, IoMessageType, Repr};

/// Returns `true` for a message, of which `length` bytes came, that is a request. Bytes that did not come are zeros. `flush`: flushes and durable
/// writes were announced on both sides, and are requests too.
///
/// Its offsets are the target's to check, which knows both memories.
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

/// Whether a message, of which `length` bytes came, is a result.
#[inline]
#[must_use]
pub fn is_result(bytes: &[u8; io_message::SIZE], length: usize) -> bool {
    let kind = IoMessage::new_unchecked_len(bytes).message_type();
    length == bytes.len() && kind == Ok(IoMessageType::Result)
}

/// The answer to a message that is no request: a result that repeats what there is to repeat.
#[must_use]
pub fn refusal(message: &[u8; io_message::SIZE]) -> [u8; io_message::SIZE] {
    let message = IoMessage::new_unchecked_len(message);
    Repr {
        message_type: IoMessageType::Result,
        user_data: message.user_data(),
        result: ErrorCode::INVALID_VALUE.0,
        size: message.size(),
        requester_offset: message.requester_offset(),
        storage_offset: message.storage_offset(),
    }
    .to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_its_type_says_and_has_all_its_bytes() {
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
