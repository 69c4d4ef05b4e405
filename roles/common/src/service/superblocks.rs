//! Persists superblocks on the targets when they change, independently of the session's requests.

use std::time::{Duration, Instant};

use wire::control::{Message, Payload};

use crate::failure::Failure;
use crate::session::MessageIds;
use crate::superblock::Superblock;

/// Superblocks sent to the targets and confirmed by them. Without I/O and without a clock.
#[derive(Debug)]
pub(super) struct Superblocks {
    ids: MessageIds,
    timeout: Duration,
    targets: Vec<Persisted>,
    /// Deadline for the state that the session waits for: restarted whenever a superblock was persisted.
    awaited_until: Option<Instant>,
}

#[derive(Debug, Clone, Default)]
struct Persisted {
    asked: Option<Asked>,
    confirmed: Option<Superblock>,
}

#[derive(Debug, Clone)]
struct Asked {
    message_id: u32,
    superblock: Superblock,
    deadline: Instant,
}

impl Superblocks {
    /// Creates the state for `targets` targets, each of which must answer within `timeout`.
    pub(super) fn new(targets: usize, timeout: Duration) -> Self {
        Self {
            ids: MessageIds::for_superblocks(),
            timeout,
            targets: vec![Persisted::default(); targets],
            awaited_until: None,
        }
    }

    /// Returns the request that has this target persist `wanted`, unless it has done so, or a response is outstanding.
    pub(super) fn request(
        &mut self,
        now: Instant,
        target: usize,
        wanted: Option<Superblock>,
    ) -> Option<Message> {
        let superblock = wanted?;
        let persisted = &mut self.targets[target];
        if persisted.asked.is_some() || persisted.confirmed == Some(superblock) {
            return None;
        }
        let message = self
            .ids
            .request(0, Payload::IdentifyStorageRequest(superblock.request()));
        persisted.asked = Some(Asked {
            message_id: message.message_id,
            superblock,
            deadline: now + self.timeout,
        });
        Some(message)
    }

    /// Returns `true` if the target has confirmed this superblock, or none is wanted.
    pub(super) fn is_persisted(&self, target: usize, wanted: Option<Superblock>) -> bool {
        wanted.is_none() || self.targets[target].confirmed == wanted
    }

    /// Handles a target's response if its request was sent here, and returns the superblock that the target has
    /// persisted.
    ///
    /// # Errors
    ///
    /// It has not persisted the requested superblock.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        target: usize,
        message: &Message,
    ) -> Option<Result<Superblock, Failure>> {
        let persisted = &mut self.targets[target];
        let asked = persisted
            .asked
            .take_if(|asked| asked.message_id == message.message_id)?;
        let answered = match &message.payload {
            Payload::IdentifiedStorageResponse(answer) => Superblock::of_answer(answer),
            Payload::ErrorResponse(error) => return Some(Err(error.clone().into())),
            _ => None,
        };
        if answered != Some(asked.superblock) {
            return Some(Err(Failure::unexpected(
                "it does not persist the superblock that it was given",
            )));
        }
        persisted.confirmed = answered;
        if self.awaited_until.is_some() {
            self.await_state(now);
        }
        Some(Ok(asked.superblock))
    }

    /// Forgets a target's state.
    pub(super) fn forget(&mut self, target: usize) {
        self.targets[target] = Persisted::default();
    }

    /// Restarts the timeout of a late response.
    pub(super) fn renew(&mut self, now: Instant, target: usize) {
        if let Some(asked) = &mut self.targets[target].asked {
            asked.deadline = now + self.timeout;
        }
        if self.awaited_until.is_some() {
            self.await_state(now);
        }
    }

    /// Starts to wait for a state of the superblocks.
    pub(super) fn await_state(&mut self, now: Instant) {
        // Longer than for a response, so that a late target is reported first.
        self.awaited_until = Some(now + 2 * self.timeout);
    }

    /// The state was reached.
    pub(super) fn reached(&mut self) {
        self.awaited_until = None;
    }

    /// Time of the next timeout.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let asked = self.targets.iter().filter_map(|it| it.asked.as_ref());
        let answers = asked.map(|asked| asked.deadline);
        answers.chain(self.awaited_until).min()
    }

    /// A target whose response is late, with the failure.
    pub(super) fn late(&self, now: Instant) -> Option<(usize, Failure)> {
        let is_late = |it: &Persisted| it.asked.as_ref().is_some_and(|it| it.deadline <= now);
        let target = self.targets.iter().position(is_late)?;
        let waiting = "its answer that it has persisted its superblock";
        Some((target, Failure::timed_out(waiting, self.timeout)))
    }

    /// Failure when the awaited state has not been reached in time.
    pub(super) fn gives_up(&self, now: Instant) -> Option<Failure> {
        self.awaited_until
            .filter(|&until| until <= now)
            .map(|_| Failure::timed_out("the set's superblocks", 2 * self.timeout))
    }
}

#[cfg(test)]
mod tests;
