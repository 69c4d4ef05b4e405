//! What is to be rebuilt, and what becomes of it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Inner, Shared};
use crate::redundancy::rebuild::{Rebuild, Work};
use crate::redundancy::summary::Verified;
use crate::redundancy::{MissedStripes, State};
use crate::target::Target;

/// Time before stripes that could not be rebuilt are tried again.
const PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Running {
    rebuild: Rebuild,
    /// Whether the target misses all stripes.
    is_of_all: bool,
    began: Instant,
    /// When the next pass may begin.
    pause: Option<Instant>,
    /// Tenths that were reported.
    reported: u64,
}

/// A stripe that is to be rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ToRebuild {
    /// The target that is to store its half anew: the one that misses it, until another one is found to be wrong.
    pub(crate) target: Target,
    /// The target that misses it, if one does.
    pub(crate) stale: Option<Target>,
    /// Whether the halves of the others may not fit each other.
    pub(crate) is_doubtful: bool,
    /// The stripe.
    pub(crate) stripe: u64,
    /// The view that it belongs to: a result that comes in another one says nothing.
    generation: u32,
}

/// What became of a stripe that was to be rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// It is to be tried again.
    Nothing,
    /// Its halves fit each other already.
    Fits,
    /// A half was made and stored.
    Half,
    /// No two of its halves make up a block.
    Unreadable,
}

impl Running {
    fn new(stripes: &MissedStripes, is_of_all: bool) -> Self {
        Self {
            rebuild: Rebuild::new(stripes),
            is_of_all,
            began: Instant::now(),
            pause: None,
            reported: 0,
        }
    }
}

impl Shared {
    /// Has the stripes looked at whose halves may not fit each other, if there are any.
    pub(super) fn verify(&self, inner: &mut Inner) {
        let count = self.unverified.len();
        if count != 0 {
            tracing::info!(
                "the last use of the storage targets has come to no good end: looking whether the halves of {count} stripes fit \
                 each other"
            );
            inner.rebuild = Some(Running::new(&self.unverified, false));
            self.verifies.store(true, Ordering::Release);
        }
    }

    /// Whether there may be stripes to look at, though no target misses any.
    #[inline]
    pub(crate) fn verifies(&self) -> bool {
        self.verifies.load(Ordering::Acquire)
    }

    pub(super) fn begin_rebuild(&self, inner: &mut Inner, target: Target, has_kept: bool) {
        if !inner.redundancy.come_back(target) {
            return;
        }
        if !has_kept {
            self.missed.insert_all();
        }
        let running = Running::new(&self.missed, !has_kept);
        let (count, name) = (running.rebuild.progress().1, target.name());
        let which = if has_kept {
            "which it has missed"
        } else {
            "which is all it has"
        };
        tracing::info!("storage target {name} is back: rebuilding {count} stripes, {which}");
        inner.rebuild = Some(running);
        self.publish(inner);
    }

    /// A stripe to rebuild, if there is one now.
    pub(crate) fn next_to_rebuild(&self, now: Instant) -> Option<ToRebuild> {
        let mut inner = self.inner();
        let (stripes, stale) = match inner.redundancy.state() {
            State::Rebuilding(target) => (&self.missed, Some(target)),
            State::Healthy => (&self.unverified, None),
            State::Degraded(_) | State::Failed { .. } => return None,
        };
        // Before, a worker might still write a stripe without the target behind the rebuild's back.
        if !self.all_have_acted(&inner) {
            return None;
        }
        let generation = inner.redundancy.view().generation;
        let running = inner.rebuild.as_mut()?;
        if running.pause.is_some_and(|until| now < until) {
            return None;
        }
        running.pause = None;
        match running.rebuild.next(stripes) {
            Work::Stripe(stripe) => Some(ToRebuild {
                target: stale.unwrap_or(Target::DataP),
                stale,
                is_doubtful: self.unverified.contains(stripe),
                stripe,
                generation,
            }),
            Work::Wait => None,
            Work::EndOfPass { failed } => {
                if failed != 0 {
                    let of = stale.map_or("", |_| " of storage target ");
                    let name = stale.map_or("", Target::name);
                    tracing::warn!("{failed} stripes{of}{name} could not be rebuilt, trying again");
                    running.pause = Some(now + PAUSE);
                }
                None
            }
            Work::Complete => {
                self.complete(&mut inner, stale);
                None
            }
        }
    }

    /// All stripes are done that were to be rebuilt.
    fn complete(&self, inner: &mut Inner, stale: Option<Target>) {
        if let (Some(target), Some(membership)) = (stale, &mut inner.membership) {
            if membership.include(target) {
                self.waker.wake();
            }
            if !membership.has(target) || !membership.is_sealed() {
                // It counts when it keeps that it does: otherwise, the next service might take another one for whole.
                return;
            }
        }
        let Some(running) = inner.rebuild.take() else {
            return;
        };
        let (done, _) = running.rebuild.progress();
        let took = running.began.elapsed();
        let Some(target) = stale else {
            let Verified {
                repaired,
                unreadable,
                ..
            } = inner.verified;
            tracing::info!(
                "the halves of all stripes fit each other: {done} looked at in {took:.1?}, {repaired} repaired, {unreadable} \
                 that are no blocks"
            );
            self.verifies.store(false, Ordering::Release);
            return;
        };
        tracing::info!(
            "storage target {} is whole again: {done} stripes rebuilt in {took:.1?}",
            target.name()
        );
        if running.is_of_all {
            // Of each stripe, one half was made of the others.
            self.unverified.clear();
        }
        inner.redundancy.rebuilt();
        inner.stale = None;
        self.verify(inner);
        self.publish(inner);
    }

    /// What became of a stripe that was to be rebuilt. Its turn has not ended yet.
    pub(crate) fn finish_rebuild(&self, work: ToRebuild, made: Made) {
        let mut inner = self.inner();
        if inner.redundancy.view().generation != work.generation {
            return;
        }
        let is_done = made != Made::Nothing;
        let stripes = if work.stale.is_some() {
            inner.rebuilt += u64::from(is_done);
            &self.missed
        } else {
            match made {
                Made::Nothing => {}
                Made::Fits => inner.verified.fitting += 1,
                Made::Half => inner.verified.repaired += 1,
                Made::Unreadable => inner.verified.unreadable += 1,
            }
            &self.unverified
        };
        let Some(running) = inner.rebuild.as_mut() else {
            return;
        };
        running.rebuild.finish(stripes, work.stripe, is_done);
        let (done, total) = running.rebuild.progress();
        let tenths = (done * 10).checked_div(total).unwrap_or(10);
        if tenths > running.reported {
            running.reported = tenths;
            match work.stale {
                Some(target) => {
                    let name = target.name();
                    tracing::info!("rebuilding storage target {name}: {done} of {total} stripes");
                }
                None => tracing::info!("looked at {done} of {total} stripes"),
            }
        }
    }
}
