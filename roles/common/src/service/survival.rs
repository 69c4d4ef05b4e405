//! Services whose I/Os go on without a target, and take it back.

use std::time::{Duration, Instant};

use super::command::{Errand, Reply};
use super::session::{Layout, Rejoin, RejoinAction, Returned, Session};
use crate::control::{ControlChannel as _, TcpClientChannel};
use crate::failure::Failure;
use crate::superblock::Superblock;

/// Time between two attempts to bring a target back: the first, and the longest of growing ones.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What a service does about lost targets while I/Os are served. Whatever it needs to be told by the main thread.
pub trait Survival {
    /// A target is gone, for this reason.
    fn lose(&mut self, target: usize, why: &Failure);

    /// Whether I/Os go on without this target, which a worker may have found to be gone.
    fn has_lost(&self, target: usize) -> bool;

    /// A lost target that all workers have parted from, and that is to come back.
    fn to_bring_back(&self) -> Option<usize>;

    /// Gives a worker that runs an errand, as a part of the attempt of this number.
    fn ask(&mut self, worker: u32, attempt: u32, errand: Errand);

    /// The next answer of a worker: its number, that of the attempt, and the answer.
    fn next_answer(&mut self) -> Option<(u32, u32, Result<Reply, Failure>)>;

    /// A target is attached to all workers.
    fn came_back(&mut self, target: usize, returned: &Returned);

    /// Whether no target is lost, and none misses anything.
    fn is_whole(&self) -> bool;

    /// What a target is to keep of its set, now; `None` for whatever it keeps.
    fn record_of(&self, target: usize) -> Option<Superblock>;

    /// A target keeps this.
    fn recorded(&mut self, target: usize, record: Superblock);

    /// All I/Os have come to their end.
    fn conclude(&mut self);
}

/// Brings lost targets back, one attempt after the other.
#[derive(Debug)]
pub(super) struct Comeback {
    attempt: Option<Rejoin>,
    /// Of the attempt at hand, or the last one.
    number: u32,
    /// When the next attempt may begin.
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

    /// The target that is being brought back.
    pub(super) fn target(&self) -> Option<usize> {
        self.attempt.as_ref().map(Rejoin::target)
    }

    /// When to look again, whatever happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.attempt.as_ref().map(Rejoin::deadline).or(self.next_at)
    }

    /// Does what there is to do, and returns whether there was anything.
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
        let mut any = self.take_answers(now, survival);
        let Some(rejoin) = &mut self.attempt else {
            return any;
        };
        let target = rejoin.target();
        if session.place(target).is_none() {
            rejoin.fail(Failure::aborted("serving I/Os"));
        }
        let channel = &mut storage[target];
        let mut refused = false;
        match channel.poll() {
            Ok(Some(event)) => {
                any = true;
                rejoin.channel_event(now, event);
            }
            Ok(None) if channel.is_refused() => {
                refused = true;
                rejoin.fail(Failure::unexpected("nobody listens there"));
            }
            Ok(None) => rejoin.timed_out(now),
            Err(failure) => rejoin.fail(failure),
        }
        while let Some(action) = self.attempt.as_mut().and_then(Rejoin::next_action) {
            any = true;
            match action {
                RejoinAction::Send(message) => {
                    // A channel that cannot send says why when it is polled.
                    if let (Err(failure), Some(rejoin)) =
                        (channel.send(&message), &mut self.attempt)
                    {
                        rejoin.fail(failure);
                    }
                }
                RejoinAction::Ask { worker, errand } => survival.ask(worker, self.number, errand),
                RejoinAction::End(Ok(returned)) => {
                    self.attempt = None;
                    survival.came_back(target, &returned);
                    session.regain(target, returned.identity);
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

    /// Takes what workers have answered, for the attempt at hand.
    fn take_answers(&mut self, now: Instant, survival: &mut dyn Survival) -> bool {
        let mut any = false;
        while let Some((worker, number, reply)) = survival.next_answer() {
            any = true;
            if let Some(rejoin) = self.attempt.as_mut().filter(|_| number == self.number) {
                rejoin.errand_done(now, worker, reply);
            }
        }
        any
    }
}
