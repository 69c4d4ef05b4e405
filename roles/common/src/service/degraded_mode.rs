//! The main thread's part of degraded mode: a service continues without a target, and lets the target rejoin. Reads and
//! writes without that target are executed by its data path (`engine` of the gga_offload service).

use std::time::{Duration, Instant};

use control::Failure;
use control::{ControlChannel as _, TcpClientChannel};
use doca::ErrorCode;
use role_formats::superblock::Superblock;

use super::session::{
    Described, Event, Layout, Rejoin, RejoinAction, RejoinEvent, Returned, Session,
};
use super::{Reply, WorkerCommand};

/// First and longest interval between attempts to let a target rejoin: short in comparison with the time for which I/Os wait for targets.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A service that continues without a lost target: the main thread's part.
pub trait DegradedMode {
    /// Handles the loss of a target for this reason.
    fn target_lost(&mut self, target: usize, why: &Failure);

    /// Handles a target that has not answered in time. Returns `false` if the target is not detached because another
    /// one is already offline: a second target is never detached only because of a missing response. The session then
    /// continues to wait.
    fn stalled(&mut self, target: usize, why: &Failure) -> bool;

    /// Returns `true` if I/Os continue without this target, which was missing at the start of the session, or was lost
    /// later.
    fn is_lost(&self, target: usize) -> bool;

    /// Returns the next step for lost targets.
    fn next_rejoin(&mut self, now: Instant) -> NextRejoin;

    /// Decides whether a target may rejoin, from its description and before any further request: returns `true` if it
    /// has all the data that it had when it was lost, `false` if it must be rebuilt completely.
    ///
    /// # Errors
    ///
    /// The target is not a member of the set.
    fn admit(&mut self, target: usize, described: &Described) -> Result<bool, Failure>;

    /// Returns `false` if a target without which the session cannot continue has rejoined without its data: another
    /// session has to determine the remaining data.
    fn may_continue(&self) -> bool;

    /// Sends a command to a worker that serves I/Os, as a part of this attempt.
    fn send_command(&mut self, worker: u32, attempt: u32, command: WorkerCommand);

    /// Next reply of a worker: number of the worker, number of the attempt, and reply.
    fn next_reply(&mut self) -> Option<(u32, u32, Result<Reply, Failure>)>;

    /// Handles a target that is attached to all workers, with the state it was [admitted](Self::admit) with. Returns
    /// `false` if another target was lost after the admission, in which case the target has to be attached again.
    fn rejoined(&mut self, target: usize, returned: &Returned, now: Instant) -> bool;

    /// Superblock that a target must have now; `None` for any.
    fn superblock_of(&self, target: usize) -> Option<Superblock>;

    /// Handles a superblock that a target has persisted, which may change the result of [`superblock_of`](Self::superblock_of).
    fn persisted(&mut self, target: usize, superblock: Superblock);

    /// Called when all I/Os have completed: starts to persist the clean state in the superblocks.
    fn conclude(&mut self);

    /// Returns `true` once the superblocks have persisted the state requested by [`conclude`](Self::conclude); called
    /// repeatedly until then.
    fn is_concluded(&self) -> bool;

    /// Returns `true` once the superblocks record that the set is in use, so that I/Os may be served; called repeatedly
    /// until then.
    fn is_open(&self) -> bool;
}

/// The next step for lost targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextRejoin {
    /// Full redundancy: all targets are online and up to date.
    Whole,
    /// Wait, until this time at most.
    Wait(Option<Instant>),
    /// Let this target rejoin, which all workers have detached.
    Target(usize),
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
    /// The last logged failure, which is not repeated for each attempt.
    reported: Option<Failure>,
}

impl RejoinAttempts {
    pub(super) fn new() -> Self {
        Self {
            attempt: None,
            number: 0,
            next_at: None,
            pause: FIRST_PAUSE,
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

    /// Advances the attempt, and returns `true` if any progress was made.
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
                        let has_rejoined = degraded_mode.rejoined(target, &returned, now);
                        has_rejoined
                            .then_some(returned)
                            .ok_or_else(|| other_lost(L::TARGETS[target]))
                    });
                    match result {
                        Ok(Returned { identity, .. }) => {
                            self.reported = None;
                            session.handle(Event::Rejoined { target, identity }, now);
                        }
                        // Reserved for another service, which needs as many targets: they do not come back.
                        Err(failure)
                            if failure.code == ErrorCode::NOT_PERMITTED
                                && is_short_of_targets(degraded_mode, session) =>
                        {
                            session.handle(Event::Failed(failure), now);
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
        degraded_mode: &mut dyn DegradedMode,
        session: &Session<L>,
        storage: &mut [TcpClientChannel],
        timeout: Duration,
    ) -> bool {
        let target = match degraded_mode.next_rejoin(now) {
            NextRejoin::Whole => {
                self.next_at = None;
                self.pause = FIRST_PAUSE;
                return false;
            }
            _ if self.next_at.is_some_and(|next| now < next) => return false,
            NextRejoin::Wait(until) => {
                self.next_at = until;
                return false;
            }
            NextRejoin::Target(target) => target,
        };
        self.next_at = None;
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

/// Returns `true` if fewer targets are left than a session needs.
fn is_short_of_targets<L: Layout>(
    degraded_mode: &mut dyn DegradedMode,
    session: &Session<L>,
) -> bool {
    let targets = 0..L::TARGETS.len();
    let left = targets.filter(|&target| !degraded_mode.is_lost(target));
    left.count() < session.quorum()
}

fn other_lost(name: &str) -> Failure {
    let message = format!("{name}: another target was lost while this one rejoined");
    Failure::new(ErrorCode::CONNECTION_ABORTED, message)
}
