//! The superblocks of a set's targets during a session: sent to each target when its superblock has to change, independently of the session's
//! requests, and confirmed by it.

use std::time::{Duration, Instant};

use wire::control::{ErrorResponse, Message, MessageIds, Payload};

use crate::superblock::{FormError, Superblock};

/// Superblocks sent to the targets and confirmed by them. Without I/O and without a clock.
#[derive(Debug)]
pub struct Superblocks {
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

/// A target has not persisted the superblock that was sent to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotPersisted {
    /// The response is malformed.
    #[error("superblock: {0}")]
    Form(#[from] FormError),
    /// The target has answered with an error.
    #[error("{}", .0.message)]
    Refused(ErrorResponse),
    /// The target has answered with another superblock, or with none.
    #[error("it does not persist the superblock that it was given")]
    Other,
}

impl Superblocks {
    /// Creates the state for `targets` targets, each of which must answer within `timeout`.
    pub fn new(targets: usize, timeout: Duration) -> Self {
        Self {
            ids: MessageIds::for_superblocks(),
            timeout,
            targets: vec![Persisted::default(); targets],
            awaited_until: None,
        }
    }

    /// Returns the request with which this target persists `wanted`; `None` if the target has already done so, or a
    /// response is outstanding.
    pub fn request(
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

    /// Returns `true` if the target has confirmed `wanted`, or if `wanted` is `None`.
    pub fn is_persisted(&self, target: usize, wanted: Option<Superblock>) -> bool {
        wanted.is_none() || self.targets[target].confirmed == wanted
    }

    /// Handles a target's response if its request was sent here, and returns the superblock that the target has
    /// persisted.
    ///
    /// # Errors
    ///
    /// The target has not persisted the requested superblock.
    pub fn answer(
        &mut self,
        now: Instant,
        target: usize,
        message: &Message,
    ) -> Option<Result<Superblock, NotPersisted>> {
        let persisted = &mut self.targets[target];
        let asked = persisted
            .asked
            .take_if(|asked| asked.message_id == message.message_id)?;
        let answered = match &message.payload {
            Payload::IdentifiedStorageResponse(answer) => match Superblock::of_answer(answer) {
                Ok(superblock) => superblock,
                Err(error) => return Some(Err(error.into())),
            },
            Payload::ErrorResponse(error) => {
                return Some(Err(NotPersisted::Refused(error.clone())));
            }
            _ => None,
        };
        if answered != Some(asked.superblock) {
            return Some(Err(NotPersisted::Other));
        }
        persisted.confirmed = answered;
        if self.awaited_until.is_some() {
            self.await_state(now);
        }
        Some(Ok(asked.superblock))
    }

    pub fn forget(&mut self, target: usize) {
        self.targets[target] = Persisted::default();
    }

    /// Restarts the timeout of a late response.
    pub fn renew(&mut self, now: Instant, target: usize) {
        if let Some(asked) = &mut self.targets[target].asked {
            asked.deadline = now + self.timeout;
        }
        if self.awaited_until.is_some() {
            self.await_state(now);
        }
    }

    /// Starts to wait for a state of the superblocks.
    pub fn await_state(&mut self, now: Instant) {
        // Longer than for a response, so that a late target is reported first.
        self.awaited_until = Some(now + 2 * self.timeout);
    }

    /// Ends the wait for a state.
    pub fn reached(&mut self) {
        self.awaited_until = None;
    }

    /// Time of the next timeout.
    pub fn deadline(&self) -> Option<Instant> {
        let asked = self.targets.iter().filter_map(|it| it.asked.as_ref());
        let answers = asked.map(|asked| asked.deadline);
        answers.chain(self.awaited_until).min()
    }

    /// A target whose response is late.
    #[must_use]
    pub fn late(&self, now: Instant) -> Option<usize> {
        let is_late = |it: &Persisted| it.asked.as_ref().is_some_and(|it| it.deadline <= now);
        self.targets.iter().position(is_late)
    }

    /// Time limit for reaching the awaited state, unless it has been reached.
    #[must_use]
    pub fn gives_up(&self, now: Instant) -> Option<Duration> {
        self.awaited_until
            .filter(|&until| until <= now)
            .map(|_| 2 * self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::control::{RecordState, StorageDetails};

    use super::*;
    use crate::stored_block::MatrixType;
    use crate::superblock::{Epoch, Form, Format, SetId};

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn superblock(number: u64) -> Option<Superblock> {
        Some(Superblock {
            set: SetId(1),
            member: 0,
            epoch: Epoch { number, id: 3 },
            next: Epoch::NONE,
            state: RecordState::InUse,
            form: Form {
                format: Format::StoredChunks,
                matrix: MatrixType::Vandermonde,
                logical_block_size: 512,
            },
        })
    }

    /// The response of a target that persists the superblock in the request.
    fn persists(request: &Message) -> Message {
        let Payload::IdentifyStorageRequest(query) = &request.payload else {
            panic!("{request:?}")
        };
        let storage = StorageDetails {
            total_size: 1,
            block_size: 1,
        };
        request.response(Payload::IdentifiedStorageResponse(
            query.answer(&storage, Bytes::from_static(b"it")),
        ))
    }

    #[test]
    fn superblock_is_sent_once_per_change() {
        let now = Instant::now();
        let mut superblocks = Superblocks::new(2, TIMEOUT);
        assert_eq!(superblocks.request(now, 0, None), None);
        assert!(superblocks.is_persisted(0, None) && !superblocks.is_persisted(0, superblock(1)));
        let first = superblocks
            .request(now, 0, superblock(1))
            .expect("a request");
        assert_eq!(superblocks.request(now, 0, superblock(1)), None);
        assert_eq!(
            superblocks.request(now, 0, superblock(2)),
            None,
            "one at a time"
        );
        assert!(
            superblocks.answer(now, 1, &persists(&first)).is_none(),
            "another target"
        );
        assert_eq!(
            superblocks.answer(now, 0, &persists(&first)),
            superblock(1).map(Ok)
        );
        assert!(
            superblocks.answer(now, 0, &persists(&first)).is_none(),
            "twice"
        );
        assert!(
            superblocks.is_persisted(0, superblock(1))
                && !superblocks.is_persisted(0, superblock(2))
        );
        let second = superblocks
            .request(now, 0, superblock(2))
            .expect("a request");
        assert_ne!(first.message_id, second.message_id);
        superblocks.answer(now, 0, &persists(&second));
        assert_eq!(superblocks.request(now, 0, superblock(2)), None);
        superblocks.forget(0);
        assert!(superblocks.request(now, 0, superblock(2)).is_some());
    }

    #[test]
    fn answers_to_the_session_are_not_consumed() {
        let now = Instant::now();
        let mut superblocks = Superblocks::new(1, TIMEOUT);
        let mut ids = MessageIds::default();
        let request = superblocks.request(now, 0, superblock(1));
        let of_session = ids.request(0, Payload::StopStorageRequest);
        let response = of_session.response(Payload::StopStorageResponse);
        assert!(superblocks.answer(now, 0, &response).is_none());
        assert_ne!(
            request.expect("a request").message_id,
            of_session.message_id
        );
    }

    #[test]
    fn wrong_and_late_answers_are_reported() {
        let now = Instant::now();
        let mut superblocks = Superblocks::new(1, TIMEOUT);
        let request = superblocks
            .request(now, 0, superblock(1))
            .expect("a request");
        let mut answer = persists(&request);
        if let Payload::IdentifiedStorageResponse(storage) = &mut answer.payload {
            storage.epoch += 1;
        }
        let answered = superblocks.answer(now, 0, &answer).expect("an answer");
        assert_eq!(answered, Err(NotPersisted::Other));
        assert!(!superblocks.is_persisted(0, superblock(1)));
        superblocks
            .request(now, 0, superblock(1))
            .expect("a request");
        assert_eq!(superblocks.deadline(), Some(now + TIMEOUT));
        assert_eq!(superblocks.late(now), None);
        assert_eq!(superblocks.late(now + TIMEOUT), Some(0));
    }

    #[test]
    fn wait_for_a_state_times_out_after_the_last_progress() {
        let now = Instant::now();
        let mut superblocks = Superblocks::new(1, TIMEOUT);
        assert_eq!(superblocks.deadline(), None);
        superblocks.await_state(now);
        let request = superblocks
            .request(now, 0, superblock(1))
            .expect("a request");
        let later = now + TIMEOUT;
        assert_eq!(superblocks.deadline(), Some(later));
        // The response is accepted although it is late.
        superblocks.renew(later, 0);
        assert_eq!(superblocks.late(later), None);
        superblocks.answer(later, 0, &persists(&request));
        assert_eq!(superblocks.deadline(), Some(later + 2 * TIMEOUT));
        assert_eq!(superblocks.gives_up(later + TIMEOUT), None);
        assert_eq!(superblocks.gives_up(later + 2 * TIMEOUT), Some(2 * TIMEOUT));
        superblocks.reached();
        assert_eq!(superblocks.deadline(), None);
    }
}
