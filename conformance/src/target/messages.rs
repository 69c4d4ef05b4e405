//! I/O messages of the session's release.

use wire::io_message::{IoMessage, Repr, SIZE};
use wire::release::{CorrelationId as _, IoLayout, Release, Release3_0, Release3_1, Release3_2};

/// Parses and encodes I/O messages of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Messages {
    pub(crate) release: Release,
    /// Start address of the requester's memory: addresses in messages of 3.0 are relative to it.
    pub(crate) requester_address: u64,
}

/// Values of a message, with the additional correlation id of 3.0 and 3.1, otherwise 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Io {
    pub(crate) values: Repr,
    pub(crate) correlation_id: u32,
}

impl Messages {
    /// Parses a message.
    ///
    /// # Errors
    ///
    /// Its type is unknown.
    pub(crate) fn parse(self, bytes: &[u8; SIZE]) -> Result<Io, wire::DecodeError> {
        match self.release {
            Release::V3_0 => parse(self.layout_3_0(), bytes),
            Release::V3_1 => parse(Release3_1, bytes),
            Release::V3_2 => parse(Release3_2, bytes),
        }
    }

    /// Encodes a message.
    pub(crate) fn to_bytes(self, io: &Io) -> [u8; SIZE] {
        match self.release {
            Release::V3_0 => to_bytes(self.layout_3_0(), io),
            Release::V3_1 => to_bytes(Release3_1, io),
            Release::V3_2 => to_bytes(Release3_2, io),
        }
    }

    fn layout_3_0(self) -> Release3_0 {
        Release3_0 {
            requester_address: self.requester_address,
        }
    }
}

impl Io {
    /// Answer to this request with this result.
    pub(crate) fn answer(&self, result: u32) -> Self {
        Self {
            values: self.values.answer(result),
            ..*self
        }
    }
}

fn parse<L: IoLayout>(layout: L, bytes: &[u8; SIZE]) -> Result<Io, wire::DecodeError> {
    // The type has the same offset in all releases.
    let Repr { message_type, .. } = Repr::parse(&IoMessage::new_unchecked_len(bytes))?;
    Ok(Io {
        values: Repr {
            message_type,
            ..layout.answer_to(bytes)
        },
        correlation_id: L::CorrelationId::read(bytes).number(),
    })
}

fn to_bytes<L: IoLayout>(layout: L, io: &Io) -> [u8; SIZE] {
    let id = L::CorrelationId::from_number(io.correlation_id);
    layout.to_bytes(&io.values, id)
}

#[cfg(test)]
mod tests {
    use wire::io_message::IoMessageType;

    use super::*;

    #[test]
    fn messages_of_every_release_round_trip() {
        let io = Io {
            values: Repr {
                message_type: IoMessageType::Write,
                user_data: 7,
                result: 0,
                size: 4096,
                requester_offset: 12288,
                storage_offset: 8192,
            },
            correlation_id: 3,
        };
        for release in Release::ALL {
            let messages = Messages {
                release,
                requester_address: 0x7000_0000_0000,
            };
            let correlation_id = if release == Release::V3_2 { 0 } else { 3 };
            let expected = Io {
                correlation_id,
                ..io
            };
            assert_eq!(
                messages.parse(&messages.to_bytes(&io)),
                Ok(expected),
                "{release}"
            );
            let answer = expected.answer(17);
            assert_eq!(
                messages.parse(&messages.to_bytes(&answer)),
                Ok(answer),
                "{release}"
            );
        }
    }
}
