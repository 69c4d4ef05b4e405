//! Services that survive the loss of a target, and the rejoin of targets.

use std::time::{Duration, Instant};

use super::command::{Reply, WorkerCommand};
use super::session::{
    Described, Event, Layout, Rejoin, RejoinAction, RejoinEvent, Returned, Session,
};
use crate::control::{ControlChannel as _, TcpClientChannel};
use crate::failure::Failure;
use crate::superblock::Superblock;

/// First and longest interval between attempts to let a target rejoin.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Redundancy of a service that survives the loss of targets: the main thread's part.
pub trait Survival {
    /// A target is lost for this reason.
    fn lose(&mut self, target: usize, why: &Failure);

    /// A target has not answered in time. Returns `false` if it is kept because another one is offline already: a
    /// second target is never detached only because of a missing answer. The session then waits again.
    fn stalled(&mut self, target: usize, why: &Failure) -> bool;

    /// Returns `true` if I/Os continue without this target, which was missing at the start of the session, or was lost
    /// later.
    fn has_lost(&self, target: usize) -> bool;

    /// Returns a lost target that all workers have detached and that is to rejoin.
    fn to_bring_back(&self) -> Option<usize>;

    /// Decides whether a target may rejoin, from its description and before any further request: `true` if it has all
    /// that it had when it was lost, `false` if it must be rebuilt completely.
    ///
    /// # Errors
    ///
    /// It is not a member of the set.
    fn admit(&mut self, target: usize, described: &Described) -> Result<bool, Failure>;

    /// Sends a command to a worker that serves I/Os, as a part of this attempt.
    fn send_command(&mut self, worker: u32, attempt: u32, command: WorkerCommand);

    /// Next reply of a worker: number of the worker, number of the attempt, and reply.
    fn next_reply(&mut self) -> Option<(u32, u32, Result<Reply, Failure>)>;

    /// A target is attached to all workers, with the state it was [admitted](Self::admit) with.
    fn came_back(&mut self, target: usize, returned: &Returned);

    /// Returns `true` if no target is lost and all are up to date.
    fn is_whole(&self) -> bool;

    /// Superblock that a target must have now; `None` for any.
    fn superblock_of(&self, target: usize) -> Option<Superblock>;

    /// A target has persisted this superblock, which may change the result of [`superblock_of`](Self::superblock_of).
    fn persisted(&mut self, target: usize, superblock: Superblock);

    /// All I/Os have completed: the superblocks are to record that.
    fn conclude(&mut self);

    /// Returns `true` once the superblocks record what [`conclude`](Self::conclude) asked for; called until then.
    fn is_concluded(&self) -> bool;

    /// Returns `true` once the superblocks record that the set is in use, so that I/Os may be served; called until
    /// then.
    fn is_open(&self) -> bool;
}

/// Lets lost targets rejoin, one attempt after the other.
#[derive(Debug)]
pub(super) struct Comeback {
    attempt: Option<Rejoin>,
    /// Number of the current or last attempt.
    number: u32,
    /// Earliest start of the next attempt.
    next_at: Option<Instant>,
    pause: Duration,
}

impl Comeback {
    pub(super) fn new() -> Self {
        Self {
            attempt: None,
            number: 0,
            next_at: None,
            pause: FIRST_PAUSE,
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
    pub(super) fn go_on<L: Layout>(
        &mut self,
        survival: &mut dyn Survival,
        session: &mut Session<L>,
        storage: &mut [TcpClientChannel],
        timeout: Duration,
    ) -> bool {
        let now = Instant::now();
        if self.attempt.is_none() {
            return self.begin(now, survival, session, storage, timeout);
        }
        let mut any = self.take_replies(now, survival);
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
                let failure = Failure::unexpected("nobody listens there");
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
                    let judgement = survival.admit(target, &described);
                    if let Some(rejoin) = &mut self.attempt {
                        rejoin.handle(RejoinEvent::Admitted(judgement), now);
                    }
                }
                RejoinAction::Command { worker, command } => {
                    survival.send_command(worker, self.number, command);
                }
                RejoinAction::End(Ok(returned)) => {
                    self.attempt = None;
                    survival.came_back(target, &returned);
                    let identity = returned.identity;
                    session.handle(Event::Rejoined { target, identity }, now);
                }
                RejoinAction::End(Err(failure)) => {
                    if refused {
                        tracing::debug!("{failure}");
                    } else {
                        tracing::warn!("{failure}; trying again");
                    }
                    channel.disconnect();
                    self.attempt = None;
                    self.next_at = Some(now + self.pause);
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        any
    }

    fn begin<L: Layout>(
        &mut self,
        now: Instant,
        survival: &dyn Survival,
        session: &Session<L>,
        storage: &mut [TcpClientChannel],
        timeout: Duration,
    ) -> bool {
        if survival.is_whole() {
            self.next_at = None;
            self.pause = FIRST_PAUSE;
            return false;
        }
        let place = survival
            .to_bring_back()
            .filter(|_| self.next_at.is_none_or(|next| next <= now))
            .and_then(|target| session.place(target));
        let Some(place) = place else {
            if self.next_at.is_some_and(|next| next <= now) {
                self.next_at = None;
            }
            return false;
        };
        storage[place.target].disconnect();
        self.next_at = None;
        self.number += 1;
        self.attempt = Some(Rejoin::new(now, place, timeout));
        true
    }

    /// Handles the replies of workers to the current attempt.
    fn take_replies(&mut self, now: Instant, survival: &mut dyn Survival) -> bool {
        let mut any = false;
        while let Some((worker, number, reply)) = survival.next_reply() {
            any = true;
            if let Some(rejoin) = self.attempt.as_mut().filter(|_| number == self.number) {
                rejoin.handle(RejoinEvent::CommandDone { worker, reply }, now);
            }
        }
        any
    }
}
