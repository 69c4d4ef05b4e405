//! Requests in flight of one worker: their messages, and the check of answers. No contexts, no tasks, no I/O.
//!
//! A request has a number, which is that of its send task and of its slot here, and which the service repeats in the answer. It is
//! complete when, in any order, its message was sent, so that the task may be used again, and its answer was received.

use thiserror::Error;
use wire::DecodeError;
use wire::io_message::{IoMessage, IoMessageType, Repr, SIZE};
use wire::release::{CorrelationId as _, IoLayout};

/// A read, a write or a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub message_type: IoMessageType,
    /// Offset in the storage in bytes.
    pub storage_offset: u64,
    /// Offset in the exported memory in bytes.
    pub memory_offset: u64,
    /// Length in bytes.
    pub size: u32,
}

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Number, free for another request.
    pub number: u32,
    /// `doca_error_t` of the result.
    pub result: u32,
}

/// An answer that matches no request: the service violates the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadAnswer {
    /// It is not an I/O message.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// It is not a result.
    #[error("its type is {0:?}; expected a result")]
    Type(IoMessageType),
    /// There is no request with its number.
    #[error("its transaction is {number}; expected 0 to {last}")]
    Number {
        /// Number in the answer.
        number: u64,
        /// Largest number of a request.
        last: u32,
    },
    /// The request with its number is not in flight, or already has an answer.
    #[error("transaction {0} has no request that waits for an answer (answered twice?)")]
    NotAwaited(u32),
    /// It does not repeat the range of its request. A range is storage offset, memory offset and size, in bytes.
    #[error(
        "transaction {number}: storage offset, requester offset and size are {got:?}; expected those of the request, {expected:?}"
    )]
    Range {
        /// Number of the request.
        number: u32,
        /// Range in the answer.
        got: (u64, u64, u32),
        /// Range of the request.
        expected: (u64, u64, u32),
    },
}

/// Bits of [`InFlight::awaits`].
const SENT: u8 = 1;
const ANSWER: u8 = 2;

/// State of a request.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    storage_offset: u64,
    memory_offset: u64,
    size: u32,
    /// Result of the answer, while the send is not complete.
    result: u32,
    /// Events that the request awaits, as bits; 0 if it is not in flight.
    awaits: u8,
}

/// Requests, numbered from 0. See the [module](self).
#[derive(Debug, Default)]
pub struct Requests {
    table: Box<[InFlight]>,
}

impl Requests {
    /// Creates the state of `count` requests. All memory is allocated here.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self {
            table: vec![InFlight::default(); count as usize].into(),
        }
    }

    /// Begins request `number`, which must not be in flight, and returns its message.
    ///
    /// # Panics
    /// If the number is out of range.
    #[inline(always)]
    pub fn begin<L: IoLayout>(&mut self, layout: L, number: u32, request: &Request) -> [u8; SIZE] {
        let place = &mut self.table[number as usize];
        debug_assert_eq!(place.awaits, 0, "request {number} is in flight");
        *place = InFlight {
            storage_offset: request.storage_offset,
            memory_offset: request.memory_offset,
            size: request.size,
            result: 0,
            awaits: SENT | ANSWER,
        };
        let values = Repr {
            message_type: request.message_type,
            user_data: u64::from(number),
            result: 0,
            size: request.size,
            requester_offset: request.memory_offset,
            storage_offset: request.storage_offset,
        };
        layout.to_bytes(&values, L::CorrelationId::from_number(number))
    }

    /// Handles the completed send of request `number`. Returns the request if it is complete.
    #[inline(always)]
    pub fn sent(&mut self, number: u32) -> Option<Completed> {
        let place = self.table.get_mut(number as usize)?;
        let is_complete = place.awaits == SENT;
        place.awaits &= !SENT;
        let result = place.result;
        is_complete.then_some(Completed { number, result })
    }

    /// Checks an answer, of which `length` bytes were received, against the request that it names. Returns the
    /// request if it is complete.
    ///
    /// # Errors
    /// The answer matches no request. The state is unchanged.
    #[inline(always)]
    pub fn answered<L: IoLayout>(
        &mut self,
        layout: L,
        bytes: &[u8; SIZE],
        length: usize,
    ) -> Result<Option<Completed>, BadAnswer> {
        let is_result = length == SIZE
            && IoMessage::new_unchecked_len(bytes).message_type() == Ok(IoMessageType::Result);
        let number = L::CorrelationId::transaction(bytes);
        let answer = layout.answer_to(bytes);
        let place = usize::try_from(number)
            .ok()
            .and_then(|index| self.table.get_mut(index));
        if let Some(place) = place
            && is_result
            && place.awaits & ANSWER != 0
            && place.storage_offset == answer.storage_offset
            // Services of 3.0 do not repeat the memory offset.
            && (L::IS_MIRRORED || place.memory_offset == answer.requester_offset)
            && place.size == answer.size
        {
            place.awaits &= !ANSWER;
            place.result = answer.result;
            let completed = Completed {
                number: number as u32,
                result: answer.result,
            };
            return Ok((place.awaits == 0).then_some(completed));
        }
        Err(self.refuse(number, &answer, L::IS_MIRRORED, bytes, length))
    }

    /// Determines the error of an answer that matches no request.
    #[cold]
    fn refuse(
        &self,
        number: u64,
        answer: &Repr,
        is_mirrored: bool,
        bytes: &[u8; SIZE],
        length: usize,
    ) -> BadAnswer {
        let message = IoMessage::new_checked(&bytes[..length.min(SIZE)]);
        match message.and_then(|message| message.message_type()) {
            Ok(IoMessageType::Result) => {}
            Ok(other) => return BadAnswer::Type(other),
            Err(error) => return error.into(),
        }
        let place = usize::try_from(number)
            .ok()
            .and_then(|index| self.table.get(index));
        let Some(place) = place else {
            let last = (self.table.len() as u32).saturating_sub(1);
            return BadAnswer::Number { number, last };
        };
        let number = number as u32;
        if place.awaits & ANSWER == 0 {
            return BadAnswer::NotAwaited(number);
        }
        let memory_offset = if is_mirrored {
            place.memory_offset
        } else {
            answer.requester_offset
        };
        BadAnswer::Range {
            number,
            got: (answer.storage_offset, memory_offset, answer.size),
            expected: (place.storage_offset, place.memory_offset, place.size),
        }
    }
}

#[cfg(test)]
mod tests;
