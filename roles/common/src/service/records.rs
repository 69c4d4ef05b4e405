//! Has the targets keep what they are to keep of the set that they are members of, whenever that changes, beside whatever the session
//! asks of them.

use std::time::{Duration, Instant};

use wire::control::{Message, Payload};

use crate::failure::Failure;
use crate::session::MessageIds;
use crate::superblock::Superblock;

/// What each target is to keep, and what it keeps. Without I/O and without a clock.
#[derive(Debug)]
pub(super) struct Records {
    ids: MessageIds,
    timeout: Duration,
    targets: Vec<Kept>,
}

#[derive(Debug, Clone, Default)]
struct Kept {
    asked: Option<Asked>,
    confirmed: Option<Superblock>,
}

#[derive(Debug, Clone)]
struct Asked {
    message_id: u32,
    record: Superblock,
    deadline: Instant,
}

impl Records {
    /// Of so many targets, each of which may take so long for an answer.
    pub(super) fn new(targets: usize, timeout: Duration) -> Self {
        Self {
            ids: MessageIds::for_records(),
            timeout,
            targets: vec![Kept::default(); targets],
        }
    }

    /// The request that has this target keep `wanted`, unless it does, or owes an answer.
    pub(super) fn request(
        &mut self,
        now: Instant,
        target: usize,
        wanted: Option<Superblock>,
    ) -> Option<Message> {
        let record = wanted?;
        let kept = &mut self.targets[target];
        if kept.asked.is_some() || kept.confirmed == Some(record) {
            return None;
        }
        let message = self
            .ids
            .request(0, Payload::IdentifyStorageRequest(record.request()));
        kept.asked = Some(Asked {
            message_id: message.message_id,
            record,
            deadline: now + self.timeout,
        });
        Some(message)
    }

    /// Whether a target has confirmed this.
    pub(super) fn is_kept(&self, target: usize, wanted: Option<Superblock>) -> bool {
        wanted.is_none() || self.targets[target].confirmed == wanted
    }

    /// Takes a target's answer, if it is one to a request from here: what it keeps now.
    ///
    /// # Errors
    ///
    /// It does not keep what it was asked to.
    pub(super) fn answer(
        &mut self,
        target: usize,
        message: &Message,
    ) -> Option<Result<Superblock, Failure>> {
        let kept = &mut self.targets[target];
        let asked = kept
            .asked
            .take_if(|asked| asked.message_id == message.message_id)?;
        let came = match &message.payload {
            Payload::IdentifiedStorageResponse(answer) => Superblock::of_answer(answer),
            Payload::ErrorResponse(error) => return Some(Err(error.clone().into())),
            _ => None,
        };
        if came != Some(asked.record) {
            return Some(Err(Failure::unexpected(
                "it does not keep the record of its set that it was given",
            )));
        }
        kept.confirmed = came;
        Some(Ok(asked.record))
    }

    /// Nothing is known any more of a target.
    pub(super) fn forget(&mut self, target: usize) {
        self.targets[target] = Kept::default();
    }

    /// When an answer is late.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let asked = self.targets.iter().filter_map(|kept| kept.asked.as_ref());
        asked.map(|asked| asked.deadline).min()
    }

    /// A target whose answer is late, and that it is.
    pub(super) fn late(&self, now: Instant) -> Option<(usize, Failure)> {
        let is_late = |kept: &Kept| kept.asked.as_ref().is_some_and(|it| it.deadline <= now);
        let target = self.targets.iter().position(is_late)?;
        let waiting = "its answer that it keeps the record of its set";
        Some((target, Failure::timed_out(waiting, self.timeout)))
    }
}

#[cfg(test)]
mod tests;
