//! The redundancy of a session, as the main thread and the workers share it.

mod work;

pub(crate) use work::{Made, ToRebuild};

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::assembly::Assembly;
use super::errands::Errands;
use super::membership::Membership;
use super::summary::Verified;
use super::{MissedStripes, Redundancy, State, View};
use crate::target::Target;
use role_common::shutdown::Waker;
use role_common::superblock::Superblock;

/// What all threads of a session know of its targets.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Stripes that a target has missed.
    pub(crate) missed: MissedStripes,
    /// Stripes whose halves may not fit each other: they were being written when a service died.
    pub(crate) unverified: MissedStripes,
    /// Whether there are any that are to be looked at.
    verifies: AtomicBool,
    /// Whether the targets keep who is lost: a write that it misses may be acknowledged.
    is_sealed: AtomicBool,
    /// [`View`] as a word: what workers look at in every turn.
    view: AtomicU32,
    inner: Mutex<Inner>,
    /// By worker: the generation of the view that it has acted on.
    acted_on: Box<[AtomicU32]>,
    /// What the main thread asks of workers.
    pub(crate) errands: Errands,
    /// Wakes the main thread, which has to see what a worker has lost.
    waker: Waker,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) redundancy: Redundancy,
    /// How often each target was lost.
    pub(super) losses: [u64; 3],
    /// What the targets are to keep, if they can.
    pub(super) membership: Option<Membership>,
    /// The target that misses what was acknowledged, from its loss to the end of its rebuild.
    stale: Option<Target>,
    /// The rebuild that is under way, of a target or of what does not fit.
    rebuild: Option<work::Running>,
    /// Stripes that were rebuilt.
    pub(super) rebuilt: u64,
    pub(super) verified: Verified,
}

impl Shared {
    /// Three targets with so many stripes, and so many workers.
    pub(crate) fn new(stripes: u64, workers: u32, waker: Waker, assembly: Assembly) -> Self {
        let shared = Self {
            missed: MissedStripes::new(stripes),
            unverified: MissedStripes::new(stripes),
            verifies: AtomicBool::new(false),
            is_sealed: AtomicBool::new(assembly.membership.is_none()),
            view: AtomicU32::new(View::WHOLE.to_word()),
            inner: Mutex::new(Inner {
                redundancy: Redundancy::new(),
                losses: [0; 3],
                membership: assembly.membership,
                stale: assembly.stale,
                rebuild: None,
                rebuilt: 0,
                verified: Verified::default(),
            }),
            acted_on: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            errands: Errands::of_workers(workers),
            waker,
        };
        if assembly.is_unclean {
            shared.unverified.insert_all();
        }
        match assembly.stale {
            Some(target) => shared.distrust(target),
            None => shared.verify(&mut shared.inner()),
        }
        shared
    }

    /// Three whole targets that keep nothing.
    #[cfg(test)]
    pub(super) fn of_whole(stripes: u64, workers: u32, waker: Waker) -> Self {
        let assembly = Assembly {
            membership: None,
            stale: None,
            is_unclean: false,
        };
        Self::new(stripes, workers, waker, assembly)
    }

    /// Whether a write may be acknowledged that a lost target misses.
    #[inline]
    pub(crate) fn is_sealed(&self) -> bool {
        self.is_sealed.load(Ordering::Acquire)
    }

    /// What a target is to keep; `None` for whatever it keeps, as long as it is lost.
    pub(crate) fn record_of(&self, target: Target) -> Option<Superblock> {
        let inner = self.inner();
        let is_there = !inner.redundancy.view().lost.contains(target);
        let membership = inner.membership.as_ref().filter(|_| is_there)?;
        membership.record_of(target)
    }

    /// A target keeps this.
    pub(crate) fn recorded(&self, target: Target, record: Superblock) {
        if let Some(membership) = &mut self.inner().membership {
            membership.confirm(target, record);
            let is_sealed = membership.is_sealed();
            self.is_sealed.store(is_sealed, Ordering::Release);
        }
    }

    /// All I/Os have come to their end.
    pub(crate) fn conclude(&self) {
        let mut inner = self.inner();
        let is_whole = inner.redundancy.state() == State::Healthy;
        if let Some(membership) = &mut inner.membership
            && is_whole
            && self.unverified.len() == 0
        {
            membership.conclude();
        }
    }

    /// The target that misses what was acknowledged.
    pub(crate) fn stale(&self) -> Option<Target> {
        self.inner().stale
    }

    pub(super) fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        // Nothing under the lock leaves it half done.
        self.inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The view as it is now.
    #[inline]
    pub(crate) fn view(&self) -> View {
        View::from_word(self.view.load(Ordering::Acquire))
    }

    /// Whether the view is another one than `seen`.
    #[inline]
    pub(crate) fn has_changed(&self, seen: View) -> bool {
        self.view.load(Ordering::Acquire) != seen.to_word()
    }

    /// A target is gone, for this reason. Says so, unless it was known.
    #[cold]
    pub(crate) fn lose(&self, target: Target, why: impl fmt::Display) {
        let mut inner = self.inner();
        if !inner.redundancy.lose(target) {
            return;
        }
        inner.losses[target.number()] += 1;
        inner.rebuild = None;
        self.verifies.store(false, Ordering::Release);
        if let State::Degraded(_) = inner.redundancy.state() {
            inner.stale = Some(target);
            if let Some(membership) = &mut inner.membership {
                membership.exclude(target);
                // Before anybody sees that it is lost.
                let is_sealed = membership.is_sealed();
                self.is_sealed.store(is_sealed, Ordering::Release);
            }
        }
        let name = target.name();
        match inner.redundancy.state() {
            State::Degraded(_) => {
                tracing::warn!("lost storage target {name}, going on without it: {why}");
            }
            _ => tracing::error!(
                "lost storage target {name}, with which too few are left: writes end with errors: {why}"
            ),
        }
        self.publish(&inner);
    }

    /// A worker has done all that follows from this view. Nothing of what it did before comes any more.
    pub(crate) fn acknowledge(&self, worker: u32, view: View) {
        if let Some(acted_on) = self.acted_on.get(worker as usize) {
            acted_on.store(view.generation, Ordering::Release);
            self.waker.wake();
        }
    }

    fn all_have_acted(&self, inner: &Inner) -> bool {
        let generation = inner.redundancy.view().generation;
        let mut workers = self.acted_on.iter();
        workers.all(|acted_on| acted_on.load(Ordering::Acquire) == generation)
    }

    /// The main thread has something to see.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// A lost target that all workers have parted from, and that may come back: not before the others keep that it was lost. If
    /// they did not, and another target came to its place, nobody would know which of the three had been left behind.
    pub(crate) fn to_bring_back(&self) -> Option<Target> {
        let inner = self.inner();
        match inner.redundancy.state() {
            State::Degraded(target) if self.is_sealed() && self.all_have_acted(&inner) => {
                Some(target)
            }
            _ => None,
        }
    }

    #[cfg(test)]
    pub(super) fn state(&self) -> State {
        self.inner().redundancy.state()
    }

    /// Whether all targets hold all that was written.
    pub(crate) fn is_whole(&self) -> bool {
        self.inner().redundancy.state() == State::Healthy
    }

    /// What this target holds is worth nothing: the session begins with rebuilding it.
    fn distrust(&self, target: Target) {
        let mut inner = self.inner();
        inner.redundancy.lose(target);
        self.begin_rebuild(&mut inner, target, false);
    }

    /// A lost target is attached to all workers. Nobody knows what it holds unless `has_kept` what it had; `keeps` says whether it
    /// keeps a record.
    pub(crate) fn come_back(&self, target: Target, has_kept: bool, keeps: bool) {
        let mut inner = self.inner();
        if let Some(membership) = &mut inner.membership {
            membership.replace(target, keeps);
        }
        self.begin_rebuild(&mut inner, target, has_kept);
    }

    fn publish(&self, inner: &Inner) {
        self.view
            .store(inner.redundancy.view().to_word(), Ordering::Release);
        self.waker.wake();
    }
}
