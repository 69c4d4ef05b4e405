//! The main thread's part of degraded mode: a service continues without a target, and lets the target rejoin. Reads and
//! writes without that target are the work of its data path (`engine` of the gga_offload service).

use std::time::{Duration, Instant};

use doca::ErrorCode;
use wire::control::{Message, Payload};

use super::session::{
    Described, Event, Layout, Rejoin, RejoinAction, RejoinEvent, Returned, Session,
};
use super::{Reply, WorkerCommand};
use crate::control::{ControlChannel as _, TcpClientChannel};
use crate::protocol::{Failure, MessageIds};
use crate::superblock::Superblock;

/// First and longest interval between attempts to let a target rejoin: short in comparison with the time for which I/Os wait for targets.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A service that continues without a lost target: the main thread's part.
pub trait DegradedMode {
    /// Handles the loss of a target for this reason.
    fn target_lost(&mut self, target: usize, why: &Failure);

    /// Handles a target that has not answered in time. Returns `false` if it is kept because another one is offline already: a
    /// second target is never detached only because of a missing answer. The session then waits again.
    fn stalled(&mut self, target: usize, why: &Failure) -> bool;

    /// Returns `true` if I/Os continue without this target, which was missing at the start of the session, or was lost
    /// later.
    fn is_lost(&self, target: usize) -> bool;

    /// Returns a lost target that all workers have detached and that is to rejoin.
    fn rejoin_candidate(&self) -> Option<usize>;

    /// Decides whether a target may rejoin, from its description and before any further request: `true` if it has all
    /// that it had when it was lost, `false` if it must be rebuilt completely.
    ///
    /// # Errors
    ///
    /// It is not a member of the set.
    fn admit(&mut self, target: usize, described: &Described) -> Result<bool, Failure>;

    /// Returns `false` if a target without which the session cannot continue is back without its data: another session has to decide what is left.
    fn may_continue(&self) -> bool;

    /// Sends a command to a worker that serves I/Os, as a part of this attempt.
    fn send_command(&mut self, worker: u32, attempt: u32, command: WorkerCommand);

    /// Next reply of a worker: number of the worker, number of the attempt, and reply.
    fn next_reply(&mut self) -> Option<(u32, u32, Result<Reply, Failure>)>;

    /// Handles a target that is attached to all workers, with the state it was [admitted](Self::admit) with. Returns `false` if another target was lost since it was
    /// admitted: it has to be attached again.
    fn rejoined(&mut self, target: usize, returned: &Returned) -> bool;

    /// Returns `true` if no target is lost and all are up to date.
    fn is_whole(&self) -> bool;

    /// Superblock that a target must have now; `None` for any.
    fn superblock_of(&self, target: usize) -> Option<Superblock>;

    /// Handles a superblock that a target has persisted, which may change the result of [`superblock_of`](Self::superblock_of).
    fn persisted(&mut self, target: usize, superblock: Superblock);

    /// Called when all I/Os have completed: starts to record that in the superblocks.
    fn conclude(&mut self);

    /// Returns `true` once the superblocks record what [`conclude`](Self::conclude) asked for; called until then.
    fn is_concluded(&self) -> bool;

    /// Returns `true` once the superblocks record that the set is in use, so that I/Os may be served; called until
    /// then.
    fn is_open(&self) -> bool;
}

/// Longest time before a target that was lost after it had rejoined rejoins again: one with a full disk can be connected to, and is lost with the next write.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// Times before targets that had rejoined and were lost again may rejoin, each twice as long as the one before. Without a clock.
#[derive(Debug, Clone)]
pub struct RejoinRests {
    next: Duration,
    /// The last target that has rejoined, and the time from which it may do so again.
    last: Option<(usize, Instant)>,
}

impl Default for RejoinRests {
    fn default() -> Self {
        Self {
            next: FIRST_PAUSE,
            last: None,
        }
    }
}

impl RejoinRests {
    /// Records that a target has rejoined.
    pub fn rejoined(&mut self, target: usize, now: Instant) {
        self.last = Some((target, now + self.next));
        self.next = (self.next * 2).min(LONGEST_REST);
    }

    /// The time from which this target may rejoin; `None` for now.
    #[must_use]
    pub fn until(&self, target: usize, now: Instant) -> Option<Instant> {
        let last = self.last.filter(|&(it, until)| it == target && now < until);
        last.map(|(_, until)| until)
    }

    /// Records that no target is lost.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Lets lost targets rejoin, one attempt after the other.
#[derive(Debug)]
pub(super) struct RejoinAttempts {
    attempt: Option<Rejoin>,
    /// Number of the current or last attempt.
    number: u32,
    /// Earliest start of the next attempt.
    next_at: Option<Instant>,
    pause: Duration,
    rests: RejoinRests,
    /// The failure that was logged last, which is not repeated at each attempt.
    reported: Option<Failure>,
}

impl RejoinAttempts {
    pub(super) fn new() -> Self {
        Self {
            attempt: None,
            number: 0,
            next_at: None,
            pause: FIRST_PAUSE,
            rests: RejoinRests::default(),
            reported: None,
        }
    }

    /// The target that is rejoining.
    pub(super) fn target(&self) -> Option<usize> {
        self.attempt.as_ref().map(Rejoin::target)
    }

    /// Time of the next poll.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.attempt {
            Some(rejoin) => rejoin.poll_timeout(),
            None => self.next_at,
        }
    }

    /// Advances the attempt, and returns `true` if there was anything to do.
    pub(super) fn advance<L: Layout>(
        &mut self,
        degraded_mode: &mut dyn DegradedMode,
        session: &mut Session<L>,
        storage: &mut [TcpClientChannel],
        timeout: Duration,
    ) -> bool {
        let now = Instant::now();
        if self.attempt.is_none() {
            return self.begin(now, degraded_mode, session, storage, timeout);
        }
        let mut any = self.take_replies(now, degraded_mode);
        let Some(rejoin) = &mut self.attempt else {
            return any;
        };
        let target = rejoin.target();
        if session.place(target).is_none() {
            rejoin.handle(RejoinEvent::Failed(Failure::aborted("serving I/Os")), now);
        }
        let channel = &mut storage[target];
        let mut refused = false;
        match channel.poll() {
            Ok(Some(event)) => {
                any = true;
                rejoin.handle(RejoinEvent::Channel(event), now);
            }
            Ok(None) if channel.is_refused() => {
                refused = true;
                let failure = Failure::unexpected("connection refused");
                rejoin.handle(RejoinEvent::Failed(failure), now);
            }
            Ok(None) => rejoin.handle(RejoinEvent::Timeout, now),
            Err(failure) => rejoin.handle(RejoinEvent::Failed(failure), now),
        }
        while let Some(action) = self.attempt.as_mut().and_then(Rejoin::poll_action) {
            any = true;
            match action {
                RejoinAction::Send(message) => {
                    // A channel that cannot send reports the reason when it is polled.
                    if let (Err(failure), Some(rejoin)) =
                        (channel.send(&message), &mut self.attempt)
                    {
                        rejoin.handle(RejoinEvent::Failed(failure), now);
                    }
                }
                RejoinAction::Admit(described) => {
                    let judgement = degraded_mode.admit(target, &described);
                    if let (Err(failure), false) = (&judgement, degraded_mode.may_continue()) {
                        session.handle(Event::Failed(failure.clone()), now);
                    }
                    if let Some(rejoin) = &mut self.attempt {
                        rejoin.handle(RejoinEvent::Admitted(judgement), now);
                    }
                }
                RejoinAction::Command { worker, command } => {
                    degraded_mode.send_command(worker, self.number, command);
                }
                RejoinAction::End(result) => {
                    self.attempt = None;
                    let result = result.and_then(|returned| {
                        let has_rejoined = degraded_mode.rejoined(target, &returned);
                        has_rejoined
                            .then_some(returned)
                            .ok_or_else(|| other_lost(L::TARGETS[target]))
                    });
                    match result {
                        Ok(Returned { identity, .. }) => {
                            self.reported = None;
                            self.rests.rejoined(target, now);
                            session.handle(Event::Rejoined { target, identity }, now);
                        }
                        Err(failure) => {
                            if refused || self.reported.as_ref() == Some(&failure) {
                                tracing::debug!("{failure}");
                            } else {
                                tracing::warn!("{failure}; trying again");
                                self.reported = Some(failure);
                            }
                            channel.disconnect();
                            self.next_at = Some(now + self.pause);
                            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                        }
                    }
                }
            }
        }
        any
    }

    fn begin<L: Layout>(
        &mut self,
        now: Instant,
        degraded_mode: &dyn DegradedMode,
        session: &Session<L>,
        storage: &mut [TcpClientChannel],
        timeout: Duration,
    ) -> bool {
        if degraded_mode.is_whole() {
            self.next_at = None;
            self.pause = FIRST_PAUSE;
            self.rests.reset();
            return false;
        }
        if self.next_at.is_some_and(|next| now < next) {
            return false;
        }
        self.next_at = None;
        let Some(target) = degraded_mode.rejoin_candidate() else {
            return false;
        };
        if let Some(until) = self.rests.until(target, now) {
            self.next_at = Some(until);
            return false;
        }
        let Some(place) = session.place(target) else {
            return false;
        };
        storage[place.target].disconnect();
        self.number += 1;
        self.attempt = Some(Rejoin::new(now, place, timeout));
        true
    }

    /// Handles the replies of workers to the current attempt.
    fn take_replies(&mut self, now: Instant, degraded_mode: &mut dyn DegradedMode) -> bool {
        let mut any = false;
        while let Some((worker, number, reply)) = degraded_mode.next_reply() {
            any = true;
            if let Some(rejoin) = self.attempt.as_mut().filter(|_| number == self.number) {
                rejoin.handle(RejoinEvent::CommandDone { worker, reply }, now);
            }
        }
        any
    }
}

fn other_lost(name: &str) -> Failure {
    let message = format!("{name}: another target was lost while this one rejoined");
    Failure::new(ErrorCode::CONNECTION_ABORTED, message)
}

// Persists superblocks on the targets when they change, independently of the session's requests.

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

    /// Returns the request that has this target persist `wanted`, unless it has done so, or a response is outstanding.
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

    /// Returns `true` if the target has confirmed `wanted`, or if that is `None`.
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
    ) -> Option<Result<Superblock, Failure>> {
        let persisted = &mut self.targets[target];
        let asked = persisted
            .asked
            .take_if(|asked| asked.message_id == message.message_id)?;
        let answered = match &message.payload {
            Payload::IdentifiedStorageResponse(answer) => match Superblock::of_answer(answer) {
                Ok(superblock) => superblock,
                Err(error) => return Some(Err(error.into())),
            },
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

    /// A target whose response is late, with the failure.
    pub fn late(&self, now: Instant) -> Option<(usize, Failure)> {
        let is_late = |it: &Persisted| it.asked.as_ref().is_some_and(|it| it.deadline <= now);
        let target = self.targets.iter().position(is_late)?;
        let waiting = "its answer that it has persisted its superblock";
        Some((target, Failure::timed_out(waiting, self.timeout)))
    }

    /// Failure if the awaited state has not been reached in time.
    pub fn gives_up(&self, now: Instant) -> Option<Failure> {
        self.awaited_until
            .filter(|&until| until <= now)
            .map(|_| Failure::timed_out("the set's superblocks", 2 * self.timeout))
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

    #[test]
    fn target_that_is_lost_again_rests_longer_and_longer() {
        let now = Instant::now();
        let mut rests = RejoinRests::default();
        assert_eq!(rests.until(1, now), None);
        for rest in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
            rests.rejoined(1, now);
            let until = now + Duration::from_millis(rest);
            assert_eq!(rests.until(1, now), Some(until));
            assert_eq!(rests.until(1, until), None);
            assert_eq!(rests.until(2, now), None, "another one does not wait");
        }
        rests.reset();
        rests.rejoined(1, now);
        assert_eq!(rests.until(1, now), Some(now + FIRST_PAUSE));
    }

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
        assert!(answered.is_err() && !superblocks.is_persisted(0, superblock(1)));
        superblocks
            .request(now, 0, superblock(1))
            .expect("a request");
        assert_eq!(superblocks.deadline(), Some(now + TIMEOUT));
        assert_eq!(superblocks.late(now), None);
        let (target, failure) = superblocks.late(now + TIMEOUT).expect("it is late");
        assert!(
            target == 0 && failure.message.contains("superblock"),
            "{failure}"
        );
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
        // Kept although it is late.
        superblocks.renew(later, 0);
        assert_eq!(superblocks.late(later), None);
        superblocks.answer(later, 0, &persists(&request));
        assert_eq!(superblocks.deadline(), Some(later + 2 * TIMEOUT));
        assert_eq!(superblocks.gives_up(later + TIMEOUT), None);
        assert!(superblocks.gives_up(later + 2 * TIMEOUT).is_some());
        superblocks.reached();
        assert_eq!(superblocks.deadline(), None);
    }
}
