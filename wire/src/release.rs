//! Releases of the protocol with different wire formats, and one interface for the layouts of their I/O messages.
//!
//! A session uses one release. Programs that process I/O messages are generic over [`IoLayout`] and choose the layout
//! when the session starts, so that other releases add no overhead to sessions of 3.2.
//!
//! | | 3.0 | 3.1 | 3.2, 3.3 |
//! | --- | --- | --- | --- |
//! | init_storage_request | has a batch size | as in 3.2 | |
//! | key of a requester's transaction | correlation id | correlation id | user data |
//! | position in the storage | address of the exported memory map + offset | offset | offset |
//! | position in the requester's memory | bytes from that position, less than 4 GiB | offset | offset |

use std::fmt::{self, Debug};

use crate::io_message::{self, IoMessage, Repr, SIZE};
use crate::{io_message_3_0, io_message_3_1};

/// A release with a distinct wire format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// DOCA 3.0.
    V3_0,
    /// DOCA 3.1.
    V3_1,
    /// DOCA 3.2 and 3.3.
    #[default]
    V3_2,
}

impl Release {
    /// All releases.
    pub const ALL: [Self; 3] = [Self::V3_0, Self::V3_1, Self::V3_2];

    /// The first release with this format, as written by users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V3_0 => "3.0",
            Self::V3_1 => "3.1",
            Self::V3_2 => "3.2",
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The correlation id of I/O messages: a `u32` in 3.0 and 3.1, where requesters look up the transaction of a result by
/// it. `()` in 3.2, where they use the user data instead.
pub trait CorrelationId:
    Debug + Clone + Copy + Default + PartialEq + Eq + Send + Sync + 'static
{
    /// Reads the correlation id of a message.
    fn read(message: &[u8; SIZE]) -> Self;

    /// Writes the id into a message.
    fn write(self, message: &mut [u8; SIZE]);

    /// The correlation id of a requester's transaction.
    fn from_number(number: u32) -> Self;

    /// The id as an untyped number; 0 in 3.2.
    fn number(self) -> u32;

    /// The requester's transaction of a result.
    fn transaction(result: &[u8; SIZE]) -> u64;
}

impl CorrelationId for () {
    #[inline(always)]
    fn read(_message: &[u8; SIZE]) {}

    #[inline(always)]
    fn write(self, _message: &mut [u8; SIZE]) {}

    #[inline(always)]
    fn from_number(_number: u32) {}

    #[inline(always)]
    fn number(self) -> u32 {
        0
    }

    #[inline(always)]
    fn transaction(result: &[u8; SIZE]) -> u64 {
        IoMessage::new_unchecked_len(result).user_data()
    }
}

/// At the same offset in 3.0 and in 3.1.
impl CorrelationId for u32 {
    #[inline]
    fn read(message: &[u8; SIZE]) -> Self {
        io_message_3_1::IoMessage::new_unchecked_len(message).correlation_id()
    }

    #[inline]
    fn write(self, message: &mut [u8; SIZE]) {
        io_message_3_1::IoMessage::new_unchecked_len(message).set_correlation_id(self);
    }

    #[inline]
    fn from_number(number: u32) -> Self {
        number
    }

    #[inline]
    fn number(self) -> u32 {
        self
    }

    #[inline]
    fn transaction(result: &[u8; SIZE]) -> u64 {
        Self::read(result).into()
    }
}

/// The layout of a release's I/O messages.
///
/// The values of a message are those of [`io_message::Repr`] in every release: offsets are relative to the two memory
/// maps, and a layout with addresses stores the start of the requester's map. The [`CorrelationId`] is not part of
/// `Repr`.
///
/// Type, user data, result and size have the same offsets in all releases: [`IoMessage`] can access them in any
/// release.
pub trait IoLayout: Debug + Clone + Copy + Send + Sync + 'static {
    /// Type of the correlation id.
    type CorrelationId: CorrelationId;

    /// `true` if the position in the requester's memory depends on the position in the storage: it is at most 4 GiB
    /// after that position, and never before it.
    const IS_MIRRORED: bool = false;

    /// The values of the response to a request: those of the request, with the type of a result.
    #[inline(always)]
    fn answer_to(self, message: &[u8; SIZE]) -> Repr {
        let message = IoMessage::new_unchecked_len(message);
        Repr {
            message_type: io_message::IoMessageType::Result,
            user_data: message.user_data(),
            result: message.result(),
            size: message.size(),
            requester_offset: message.requester_offset(),
            storage_offset: message.storage_offset(),
        }
    }

    /// The bytes of a message, with zeros for reserved bytes.
    #[inline(always)]
    fn to_bytes(self, values: &Repr, id: Self::CorrelationId) -> [u8; SIZE] {
        let mut bytes = values.to_bytes();
        id.write(&mut bytes);
        bytes
    }
}

/// I/O messages of DOCA 3.2 and 3.3.
#[derive(Debug, Clone, Copy, Default)]
pub struct Release3_2;

impl IoLayout for Release3_2 {
    type CorrelationId = ();
}

/// I/O messages of DOCA 3.1: those of 3.2 with a correlation id.
#[derive(Debug, Clone, Copy, Default)]
pub struct Release3_1;

impl IoLayout for Release3_1 {
    type CorrelationId = u32;
}

/// I/O messages of DOCA 3.0.
#[derive(Debug, Clone, Copy, Default)]
pub struct Release3_0 {
    /// Start of the requester's memory map in the requester's address space: addresses in messages are relative to it.
    pub requester_address: u64,
}

impl IoLayout for Release3_0 {
    type CorrelationId = u32;

    const IS_MIRRORED: bool = true;

    /// An address before the memory map becomes an offset beyond any storage.
    #[inline]
    fn answer_to(self, message: &[u8; SIZE]) -> Repr {
        let shared = Release3_2.answer_to(message);
        let message = io_message_3_0::IoMessage::new_unchecked_len(message);
        let storage_offset = message.io_address().wrapping_sub(self.requester_address);
        Repr {
            requester_offset: storage_offset.wrapping_add(message.remote_offset().into()),
            storage_offset,
            ..shared
        }
    }

    #[inline]
    fn to_bytes(self, values: &Repr, id: u32) -> [u8; SIZE] {
        let distance = values.requester_offset.wrapping_sub(values.storage_offset);
        debug_assert!(
            u32::try_from(distance).is_ok(),
            "3.0 has no message for {values:?}"
        );
        let shared = Repr {
            requester_offset: 0,
            storage_offset: 0,
            ..*values
        };
        let mut bytes = shared.to_bytes();
        id.write(&mut bytes);
        let mut message = io_message_3_0::IoMessage::new_unchecked_len(&mut bytes);
        message.set_io_address(self.requester_address.wrapping_add(values.storage_offset));
        message.set_remote_offset(distance as u32);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io_message::IoMessageType;
    use crate::layout::TABLE;

    const REQUEST: Repr = Repr {
        message_type: IoMessageType::Read,
        user_data: 0x1112_1314_1516_1718,
        result: 0,
        size: 0x2122_2324,
        requester_offset: 0x3_0000_1000,
        storage_offset: 0x3_0000_0000,
    };

    fn round_trip<L: IoLayout>(layout: L, transaction: u32) -> [u8; SIZE] {
        let id = L::CorrelationId::from_number(transaction);
        let bytes = layout.to_bytes(&REQUEST, id);
        let answer = Repr {
            message_type: IoMessageType::Result,
            ..REQUEST
        };
        assert_eq!(layout.answer_to(&bytes), answer);
        assert_eq!(L::CorrelationId::read(&bytes), id);
        assert_eq!(L::CorrelationId::from_number(id.number()), id);
        bytes
    }

    #[test]
    fn values_are_those_that_were_written() {
        let bytes = round_trip(Release3_2, 7);
        assert_eq!(bytes, REQUEST.to_bytes());
        assert_eq!(<()>::transaction(&bytes), REQUEST.user_data);
        let bytes = round_trip(Release3_1, 7);
        assert_eq!(u32::transaction(&bytes), 7);
        assert_eq!(bytes[..4], REQUEST.to_bytes()[..4]);
        assert_eq!(bytes[8..], REQUEST.to_bytes()[8..]);
        for requester_address in [0, 0x7f00_0000_0000, u64::MAX] {
            let bytes = round_trip(Release3_0 { requester_address }, 7);
            assert_eq!(u32::transaction(&bytes), 7);
            assert_eq!(bytes[36..], [0; 28]);
        }
    }

    #[test]
    fn address_before_the_memory_map_is_an_offset_beyond_any_storage() {
        let layout = Release3_0 {
            requester_address: 0x10_0000,
        };
        let mut bytes = layout.to_bytes(&REQUEST, 0);
        io_message_3_0::IoMessage::new_unchecked_len(&mut bytes).set_io_address(0xf_ffff);
        assert_eq!(layout.answer_to(&bytes).storage_offset, u64::MAX);
    }

    #[test]
    fn fields_that_all_releases_have_are_at_the_same_places() {
        let place = |message: &str, field: &str| {
            let message = TABLE.iter().find(|entry| entry.name == message);
            let mut fields = message.expect("in the table").fields.iter();
            let field = fields.find(|entry| entry.name == field).expect("a field");
            (field.offset, field.width, field.byte_order, field.kind)
        };
        for field in ["message_type", "user_data", "result", "size"] {
            let expected = place("io_message", field);
            assert_eq!(place("io_message_3_1", field), expected, "{field}");
            assert_eq!(place("io_message_3_0", field), expected, "{field}");
        }
        let expected = place("io_message_3_1", "correlation_id");
        assert_eq!(place("io_message_3_0", "correlation_id"), expected);
        for field in ["requester_offset", "storage_offset"] {
            let expected = place("io_message", field);
            assert_eq!(place("io_message_3_1", field), expected, "{field}");
        }
    }
}
