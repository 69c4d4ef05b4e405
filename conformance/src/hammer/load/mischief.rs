//! What a load sends that is no proper I/O, nor a proper request.

use fastrand::Rng;
use wire::control::{Message, Payload};
use wire::io_message::{IoMessageType, Repr, SIZE};

/// What a load does beside proper I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mischief {
    /// Nothing.
    None,
    /// One message in eight is no proper I/O.
    Io,
    /// Once it says something wrong on the control channel.
    Control,
}

/// A message on the fast path that must be refused, whatever is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Improper {
    /// As a request, but for its type and its user data, which is the load's.
    request: Repr,
    /// The type that it has on the wire.
    message_type: u32,
    /// The length that it is cut to.
    length: usize,
}

impl Improper {
    /// One of many, for a storage and a memory of these sizes in bytes.
    pub(super) fn new(rng: &mut Rng, block_size: u32, storage: u64, memory: u64) -> Self {
        let block = u64::from(block_size);
        let kind = [IoMessageType::Read, IoMessageType::Write][rng.usize(..2)];
        let mut improper = Self {
            request: Repr {
                message_type: kind,
                user_data: 0,
                result: 0,
                size: block_size,
                requester_offset: 0,
                storage_offset: 0,
            },
            message_type: kind as u32,
            length: SIZE,
        };
        let request = &mut improper.request;
        match rng.u8(..9) {
            0 => improper.message_type = [0, 3, 0x0100_0000, u32::MAX][rng.usize(..4)],
            1 => request.storage_offset = storage + block * rng.u64(..8),
            2 => request.requester_offset = memory + rng.u64(..4096),
            // The sum of offset and size is small again.
            3 => request.storage_offset = u64::MAX - (block - 1) * rng.u64(..=1),
            4 => request.requester_offset = u64::MAX - (block - 1) * rng.u64(..=1),
            5 => {
                request.storage_offset = storage - block;
                request.size = 2 * block_size;
            }
            6 => request.size = 0,
            7 => request.size = u32::MAX - rng.u32(..block_size),
            _ => improper.length = [0, 1, 8, 16, SIZE - 1][rng.usize(..5)],
        }
        improper
    }

    /// Its bytes, with this user data.
    pub(super) fn to_bytes(&self, user_data: u64) -> Vec<u8> {
        let mut bytes = Repr {
            user_data,
            ..self.request
        }
        .to_bytes()
        .to_vec();
        let type_len = size_of_val(&self.message_type);
        bytes[..type_len].copy_from_slice(&self.message_type.to_be_bytes());
        bytes.truncate(self.length);
        bytes
    }

    /// Whether its answer can name it: whoever gets only a part of it need not know.
    pub(super) fn is_whole(&self) -> bool {
        self.length == SIZE
    }
}

/// Bytes on a control channel that are wrong there.
pub(in crate::hammer) fn control(rng: &mut Rng) -> Vec<u8> {
    let message = |payload| {
        Message {
            message_id: 0xbad,
            correlation_id: 0xbad,
            payload,
        }
        .encode_to_vec()
    };
    let mut request = message(Payload::QueryStorageRequest);
    match rng.u8(..6) {
        // A request at the wrong time, a response to nothing.
        0 => request,
        1 => message(Payload::StartStorageResponse),
        2 => message(Payload::ShutdownResponse),
        // A type that there is not.
        3 => {
            let of_type = size_of::<u32>()..2 * size_of::<u32>();
            request[of_type].copy_from_slice(&rng.u32(1000..).to_be_bytes());
            request
        }
        // A length that is none.
        4 => {
            request[..size_of::<u32>()].copy_from_slice(&rng.u32(..).to_be_bytes());
            request
        }
        _ => std::iter::repeat_with(|| rng.u8(..)).take(64).collect(),
    }
}

#[cfg(test)]
mod tests {
    use wire::io_message::IoMessage;

    use super::*;

    /// Whether a careful service could do it.
    fn is_possible(bytes: &[u8], storage: u64, memory: u64) -> bool {
        let Ok(bytes) = <[u8; SIZE]>::try_from(bytes) else {
            return false;
        };
        let Ok(request) = Repr::parse(&IoMessage::new_unchecked_len(&bytes)) else {
            return false;
        };
        let fits = |offset: u64, all: u64| {
            let end = offset.checked_add(u64::from(request.size));
            end.is_some_and(|end| end <= all)
        };
        request.message_type != IoMessageType::Result
            && request.size > 0
            && request.size.is_multiple_of(4096)
            && fits(request.storage_offset, storage)
            && fits(request.requester_offset, memory)
    }

    #[test]
    fn no_improper_message_can_be_done() {
        let mut rng = Rng::with_seed(1);
        let mut kinds = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let improper = Improper::new(&mut rng, 4096, 1 << 20, 1 << 18);
            let bytes = improper.to_bytes(77);
            assert!(!is_possible(&bytes, 1 << 20, 1 << 18), "{improper:?}");
            kinds.insert(bytes);
        }
        assert!(kinds.len() > 30, "{}", kinds.len());
    }
}
