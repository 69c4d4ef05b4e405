//! The redundancy of a session, as the main thread and the workers share it.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use role_common::shutdown::Waker;
use serde::Serialize;

use super::{MissedStripes, Redundancy, State, View};
use crate::target::Target;

/// What all threads of a session know of its targets.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Stripes that a target has missed.
    pub(crate) missed: MissedStripes,
    /// [`View`] as a word: what workers look at in every turn.
    view: AtomicU32,
    inner: Mutex<Inner>,
    /// Wakes the main thread, which has to see what a worker has lost.
    waker: Waker,
}

#[derive(Debug)]
struct Inner {
    redundancy: Redundancy,
    /// How often each target was lost.
    losses: [u64; 3],
}

impl Shared {
    /// Three whole targets with so many stripes.
    pub(crate) fn new(stripes: u64, waker: Waker) -> Self {
        Self {
            missed: MissedStripes::new(stripes),
            view: AtomicU32::new(View::WHOLE.to_word()),
            inner: Mutex::new(Inner {
                redundancy: Redundancy::new(),
                losses: [0; 3],
            }),
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
        }
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
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| Redundancy: {}", self.state)?;
        for target in Target::ALL {
            let count = self.lost[target.number()];
            writeln!(f, "| Losses of {}: {count}", target.name())?;
        }
        writeln!(f, "| Missed stripes: {}", self.missed_stripes)
    }
}
