use std::sync::atomic::{AtomicU64, Ordering};

use doca_sys as sys;

/// Names a context for as long as the process lives: ids are not used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(u64);

impl ContextId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    #[cfg(test)]
    pub(crate) fn for_tests(number: u64) -> Self {
        Self(number)
    }
}

/// State of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CtxState {
    /// Not started, or stopped.
    Idle,
    /// Becomes [`Running`](Self::Running), or idle again when that fails, while progress is made.
    Starting,
    /// Tasks can be made and submitted.
    Running,
    /// Flushes its tasks. A context whose peer is lost goes here by itself.
    Stopping,
}

impl CtxState {
    /// A value that DOCA does not define counts as idle: nothing can be submitted.
    pub(crate) fn from_raw(state: sys::doca_ctx_states) -> Self {
        match state {
            sys::DOCA_CTX_STATE_STARTING => Self::Starting,
            sys::DOCA_CTX_STATE_RUNNING => Self::Running,
            sys::DOCA_CTX_STATE_STOPPING => Self::Stopping,
            _ => Self::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ() {
        assert_ne!(ContextId::next(), ContextId::next());
    }

    #[test]
    fn states_are_those_of_doca() {
        let states = [0, 1, 2, 3, 4].map(CtxState::from_raw);
        assert_eq!(
            states,
            [
                CtxState::Idle,
                CtxState::Starting,
                CtxState::Running,
                CtxState::Stopping,
                CtxState::Idle
            ]
        );
    }
}
