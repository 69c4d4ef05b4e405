//! Answers, which come from outside: each is checked before anything is done with it.

use doca::ErrorCode;
use wire::io_message::{IoMessage, IoMessageType, Repr};

use super::Transactions;
use crate::data_path::Failure;

impl Transactions {
    /// Takes an answer: the slot that it belongs to, and the next request of that slot, if there is one.
    ///
    /// # Errors
    /// The answer says that the I/O failed, or fits no I/O in flight; or as [`Transactions::sent`].
    #[inline]
    pub fn answered(&mut self, bytes: &[u8]) -> Result<(u32, Option<Repr>), Failure> {
        let answer = IoMessage::new_checked(bytes)
            .and_then(|message| Repr::parse(&message))
            .map_err(|error| Failure::Answer(error.to_string()))?;
        let index = self.accept(&answer)?;
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
    fn accept(&mut self, answer: &Repr) -> Result<u32, Failure> {
        let refuse = |what: String| Err(Failure::Answer(what));
        if answer.message_type != IoMessageType::Result {
            return refuse(format!(
                "its type is {:?}; expected a result",
                answer.message_type
            ));
        }
        let count = self.count();
        let Some((index, slot)) = usize::try_from(answer.user_data)
            .ok()
            .and_then(|index| Some((index, self.slots.get(index)?)))
        else {
            return refuse(format!(
                "its user data is {}; expected a transaction, 0 to {}",
                answer.user_data,
                count - 1
            ));
        };
        let Some(direction) = slot.direction.filter(|_| !slot.answered) else {
            return refuse(format!(
                "transaction {index} has no request that waits for an answer (answered twice?)"
            ));
        };
        let came = (answer.storage_offset, answer.requester_offset, answer.size);
        let asked = slot.place(direction);
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
