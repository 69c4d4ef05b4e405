//! Is a request one that can be carried out?

use doca::ErrorCode;
use wire::io_message::{self, IoMessage, IoMessageType, Repr};

/// Lengths of the two memory maps, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The blocks.
    pub storage: u64,
    /// The memory of the service's client.
    pub requester: u64,
}

/// Where the blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The request is a read.
    ToRequester,
    /// The request is a write.
    ToStorage,
}

/// What there is to know about a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Examined {
    /// The values of the request, which its answer repeats. Its type is right only where there is a
    /// direction, which is no matter: an answer has another.
    pub repr: Repr,
    /// Where the blocks go, or the error to answer with.
    pub direction: Result<Direction, ErrorCode>,
}

/// Examines a request of which `length` bytes came. Bytes that did not come are zeros.
#[inline]
#[must_use]
pub fn examine(bytes: &[u8; io_message::SIZE], length: usize, limits: Limits) -> Examined {
    let message = IoMessage::new_unchecked_len(bytes);
    let message_type = message.message_type();
    let repr = Repr {
        message_type: IoMessageType::Result,
        user_data: message.user_data(),
        result: message.result(),
        size: message.size(),
        requester_offset: message.requester_offset(),
        storage_offset: message.storage_offset(),
    };
    let direction = match message_type {
        Ok(IoMessageType::Read) => Ok(Direction::ToRequester),
        Ok(IoMessageType::Write) => Ok(Direction::ToStorage),
        Ok(IoMessageType::Result) | Err(_) => Err(ErrorCode::INVALID_VALUE),
    };
    let possible = length == bytes.len()
        && repr.size != 0
        && is_inside(repr.storage_offset, repr.size, limits.storage)
        && is_inside(repr.requester_offset, repr.size, limits.requester);
    Examined {
        repr,
        direction: if possible {
            direction
        } else {
            Err(ErrorCode::INVALID_VALUE)
        },
    }
}

#[inline]
fn is_inside(offset: u64, size: u32, length: u64) -> bool {
    offset
        .checked_add(u64::from(size))
        .is_some_and(|end| end <= length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        storage: 1 << 20,
        requester: 4096,
    };

    const READ: Repr = Repr {
        message_type: IoMessageType::Read,
        user_data: 0x1122_3344_5566_7788,
        result: 99,
        size: 4096,
        requester_offset: 0,
        storage_offset: (1 << 20) - 4096,
    };

    fn direction(repr: Repr) -> Result<Direction, ErrorCode> {
        let bytes = repr.to_bytes();
        let examined = examine(&bytes, bytes.len(), LIMITS);
        assert_eq!(
            examined.repr,
            Repr {
                message_type: IoMessageType::Result,
                ..repr
            },
            "values are kept for the answer"
        );
        examined.direction
    }

    const REFUSED: Result<Direction, ErrorCode> = Err(ErrorCode::INVALID_VALUE);

    #[test]
    fn reads_and_writes_up_to_the_last_byte() {
        assert_eq!(direction(READ), Ok(Direction::ToRequester));
        assert_eq!(
            direction(Repr {
                message_type: IoMessageType::Write,
                ..READ
            }),
            Ok(Direction::ToStorage)
        );
        assert_eq!(
            direction(Repr {
                size: 1,
                requester_offset: 4095,
                ..READ
            }),
            Ok(Direction::ToRequester)
        );
    }

    #[test]
    fn one_byte_further_is_refused() {
        assert_eq!(
            direction(Repr {
                storage_offset: READ.storage_offset + 1,
                ..READ
            }),
            REFUSED
        );
        assert_eq!(
            direction(Repr {
                requester_offset: 1,
                ..READ
            }),
            REFUSED
        );
        assert_eq!(
            direction(Repr {
                size: 4097,
                storage_offset: 0,
                ..READ
            }),
            REFUSED
        );
    }

    #[test]
    fn sums_that_overflow_are_refused() {
        for offset in [u64::MAX, u64::MAX - 4095, u64::MAX - 4096, 1 << 63] {
            assert_eq!(
                direction(Repr {
                    storage_offset: offset,
                    ..READ
                }),
                REFUSED,
                "{offset}"
            );
            assert_eq!(
                direction(Repr {
                    requester_offset: offset,
                    ..READ
                }),
                REFUSED,
                "{offset}"
            );
        }
        assert_eq!(
            direction(Repr {
                size: u32::MAX,
                ..READ
            }),
            REFUSED
        );
    }

    #[test]
    fn nothing_to_transfer_and_other_types_are_refused() {
        assert_eq!(direction(Repr { size: 0, ..READ }), REFUSED);
        assert_eq!(
            direction(Repr {
                message_type: IoMessageType::Result,
                ..READ
            }),
            REFUSED
        );
        let mut bytes = READ.to_bytes();
        bytes[3] = 7;
        let examined = examine(&bytes, bytes.len(), LIMITS);
        assert_eq!(
            (examined.direction, examined.repr.user_data),
            (REFUSED, READ.user_data)
        );
    }

    #[test]
    fn a_short_message_is_refused_whatever_it_says() {
        let bytes = READ.to_bytes();
        for length in [0, 1, 63, 65] {
            assert_eq!(
                examine(&bytes, length, LIMITS).direction,
                REFUSED,
                "{length}"
            );
        }
    }
}
