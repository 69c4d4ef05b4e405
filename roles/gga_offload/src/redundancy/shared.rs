//! The redundancy of a session, as the main thread and the workers share it.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use role_common::shutdown::Waker;
use serde::Serialize;

use super::errands::Errands;
use super::rebuild::{Rebuild, Work};
use super::{MissedStripes, Redundancy, State, View};
use crate::target::Target;

/// Time before stripes that could not be rebuilt are tried again.
const PAUSE: Duration = Duration::from_secs(5);

/// What all threads of a session know of its targets.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Stripes that a target has missed.
    pub(crate) missed: MissedStripes,
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
struct Inner {
    redundancy: Redundancy,
    /// How often each target was lost.
    losses: [u64; 3],
    /// The rebuild that is under way.
    rebuild: Option<Running>,
    /// Stripes that were rebuilt.
    rebuilt: u64,
}

#[derive(Debug)]
struct Running {
    rebuild: Rebuild,
    began: Instant,
    /// When the next pass may begin.
    pause: Option<Instant>,
    /// Tenths that were reported.
    reported: u64,
}

/// A stripe that is to be rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ToRebuild {
    /// The target that misses it.
    pub(crate) target: Target,
    /// The stripe.
    pub(crate) stripe: u64,
    /// The view that it belongs to: a result that comes in another one says nothing.
    generation: u32,
}

impl Shared {
    /// Three whole targets with so many stripes, and so many workers.
    pub(crate) fn new(stripes: u64, workers: u32, waker: Waker) -> Self {
        Self {
            missed: MissedStripes::new(stripes),
            view: AtomicU32::new(View::WHOLE.to_word()),
            inner: Mutex::new(Inner {
                redundancy: Redundancy::new(),
                losses: [0; 3],
                rebuild: None,
                rebuilt: 0,
            }),
            acted_on: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            errands: Errands::of_workers(workers),
            waker,
        }
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
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

    /// A lost target that all workers have parted from, and that may come back.
    pub(crate) fn to_bring_back(&self) -> Option<Target> {
        let inner = self.inner();
        match inner.redundancy.state() {
            State::Degraded(target) if self.all_have_acted(&inner) => Some(target),
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
    pub(crate) fn distrust(&self, target: Target) {
        self.inner().redundancy.lose(target);
        self.come_back(target, false);
    }

    /// A lost target is attached to all workers. Nobody knows what it holds unless `has_kept` what it had.
    pub(crate) fn come_back(&self, target: Target, has_kept: bool) {
        let mut inner = self.inner();
        if !inner.redundancy.come_back(target) {
            return;
        }
        if !has_kept {
            self.missed.insert_all();
        }
        let running = Running {
            rebuild: Rebuild::new(&self.missed),
            began: Instant::now(),
            pause: None,
            reported: 0,
        };
        let (count, name) = (running.rebuild.progress().1, target.name());
        let which = if has_kept {
            "which it has missed"
        } else {
            "which is all it has"
        };
        tracing::info!("storage target {name} is back: rebuilding {count} stripes, {which}");
        inner.rebuild = Some(running);
        self.publish(&inner);
    }

    /// A stripe to rebuild, if there is one now.
    pub(crate) fn next_to_rebuild(&self, now: Instant) -> Option<ToRebuild> {
        let mut inner = self.inner();
        let State::Rebuilding(target) = inner.redundancy.state() else {
            return None;
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
        match running.rebuild.next(&self.missed) {
            Work::Stripe(stripe) => Some(ToRebuild {
                target,
                stripe,
                generation,
            }),
            Work::Wait => None,
            Work::EndOfPass { failed } => {
                if failed != 0 {
                    tracing::warn!(
                        "{failed} stripes of storage target {} could not be rebuilt, trying again",
                        target.name()
                    );
                    running.pause = Some(now + PAUSE);
                }
                None
            }
            Work::Complete => {
                let (done, _) = running.rebuild.progress();
                let took = running.began.elapsed();
                tracing::info!(
                    "storage target {} is whole again: {done} stripes rebuilt in {took:.1?}",
                    target.name()
                );
                inner.rebuild = None;
                inner.redundancy.rebuilt();
                self.publish(&inner);
                None
            }
        }
    }

    /// What became of a stripe that was to be rebuilt. Its turn has not ended yet.
    pub(crate) fn finish_rebuild(&self, work: ToRebuild, is_rebuilt: bool) {
        let mut inner = self.inner();
        if inner.redundancy.view().generation != work.generation {
            return;
        }
        inner.rebuilt += u64::from(is_rebuilt);
        let Some(running) = inner.rebuild.as_mut() else {
            return;
        };
        running
            .rebuild
            .finish(&self.missed, work.stripe, is_rebuilt);
        let (done, total) = running.rebuild.progress();
        let tenths = (done * 10).checked_div(total).unwrap_or(10);
        if tenths > running.reported {
            running.reported = tenths;
            let name = work.target.name();
            tracing::info!("rebuilding storage target {name}: {done} of {total} stripes");
        }
    }

    fn publish(&self, inner: &Inner) {
        self.view
            .store(inner.redundancy.view().to_word(), Ordering::Release);
        self.waker.wake();
    }

    /// What is to be reported at the end.
    pub(crate) fn summary(&self) -> Summary {
        let inner = self.inner();
        Summary {
            state: match inner.redundancy.state() {
                State::Healthy => "healthy",
                State::Degraded(_) => "degraded",
                State::Rebuilding(_) => "rebuilding",
                State::Failed { .. } => "failed",
            },
            lost: inner.losses,
            missed_stripes: self.missed.len(),
            rebuilt_stripes: inner.rebuilt,
        }
    }
}

impl Drop for Shared {
    /// The session is over, and with it all that is known of what a target has missed.
    fn drop(&mut self) {
        let target = match self.inner().redundancy.state() {
            State::Degraded(target) | State::Rebuilding(target) => target,
            State::Healthy | State::Failed { .. } => return,
        };
        tracing::warn!(
            "the session is over, and storage target {} has missed {} stripes that were not rebuilt: what it holds must not be used again",
            target.name(),
            self.missed.len()
        );
    }
}

/// What became of the redundancy of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    /// The state at the end.
    pub(crate) state: &'static str,
    /// How often data_1, data_2 and data_p were lost.
    pub(crate) lost: [u64; 3],
    /// Stripes that a target has missed, and that were not rebuilt.
    pub(crate) missed_stripes: u64,
    /// Stripes that were rebuilt.
    pub(crate) rebuilt_stripes: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| Redundancy: {}", self.state)?;
        for target in Target::ALL {
            let count = self.lost[target.number()];
            writeln!(f, "| Losses of {}: {count}", target.name())?;
        }
        writeln!(f, "| Missed stripes: {}", self.missed_stripes)?;
        writeln!(f, "| Rebuilt stripes: {}", self.rebuilt_stripes)
    }
}
