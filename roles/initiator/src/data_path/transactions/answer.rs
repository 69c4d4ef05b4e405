//! Answers, which come from outside: each is checked before anything is done with it.

use doca::ErrorCode;
use wire::DecodeError;
use wire::io_message::{IoMessage, IoMessageType, Repr};
use wire::release::{CorrelationId as _, IoLayout};

use super::Transactions;
use crate::data_path::Failure;

impl<L: IoLayout> Transactions<L> {
    /// Takes an answer: the slot that it belongs to, and the next request of that slot, if there is one.
    ///
    /// # Errors
    /// The answer says that the I/O failed, or fits no I/O in flight; or as [`Transactions::sent`].
    #[inline]
    pub fn answered(&mut self, bytes: &[u8]) -> Result<(u32, Option<Repr>), Failure> {
        let index = self.accept(bytes)?;
        let slot = &mut self.slots[index as usize];
        slot.answered = true;
        let next = if slot.sent {
            self.advance(index)?
        } else {
            None
        };
        Ok((index, next))
    }

    /// Checks an answer against the I/O that it names.
    fn accept(&mut self, bytes: &[u8]) -> Result<u32, Failure> {
        let refuse = |what: String| Err(Failure::Answer(what));
        let malformed = |error: DecodeError| Failure::Answer(error.to_string());
        let message = IoMessage::new_checked(bytes).map_err(malformed)?;
        let message_type = message.message_type().map_err(malformed)?;
        if message_type != IoMessageType::Result {
            return refuse(format!("its type is {message_type:?}; expected a result"));
        }
        // As many as the check has found.
        let Some(bytes) = bytes.first_chunk() else {
            return refuse("it is too short".to_owned());
        };
        let answer = self.layout.answer_to(bytes);
        let transaction = L::CorrelationId::transaction(bytes);
        let count = self.count();
        let Some((index, slot)) = usize::try_from(transaction)
            .ok()
            .and_then(|index| Some((index, self.slots.get(index)?)))
        else {
            return refuse(format!(
                "its transaction is {transaction}; expected 0 to {}",
                count - 1
            ));
        };
        let Some(direction) = slot.direction.filter(|_| !slot.answered) else {
            return refuse(format!(
                "transaction {index} has no request that waits for an answer (answered twice?)"
            ));
        };
        let asked = slot.place(direction);
        // Services of 3.0 do not repeat where the local memory is.
        let requester_offset = if L::IS_MIRRORED {
            asked.1
        } else {
            answer.requester_offset
        };
        let came = (answer.storage_offset, requester_offset, answer.size);
        if came != asked {
            return refuse(format!(
                "transaction {index}: storage offset, requester offset and size are {came:?}; expected those of the request, {asked:?}"
            ));
        }
        if answer.result != ErrorCode::SUCCESS.0 {
            let failure = Failure::Io {
                io: slot.io(direction),
                code: answer.result,
            };
            // It is over nevertheless: nobody has to wait for it.
            self.abandon(index);
            return Err(failure);
        }
        Ok(index as u32)
    }
}
