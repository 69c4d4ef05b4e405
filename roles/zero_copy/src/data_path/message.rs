//! What a message is, as far as a service that forwards it has to know.

use doca::ErrorCode;
use wire::io_message::{self, IoMessage, IoMessageType, Repr};

/// Whether a message, of which `length` bytes came, is a request. Bytes that did not come are zeros.
///
/// Its offsets are the target's to check, which knows both memories.
#[inline]
#[must_use]
pub fn is_request(bytes: &[u8; io_message::SIZE], length: usize) -> bool {
    let kind = IoMessage::new_unchecked_len(bytes).message_type();
    length == bytes.len() && matches!(kind, Ok(IoMessageType::Read | IoMessageType::Write))
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
