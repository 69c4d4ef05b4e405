//! Threads abandoned because a peer blocks them, and their number.
//!
//! A thread that waits in a call for a peer's answer cannot be cancelled. When its deadline has passed, its session ends and the thread is
//! abandoned: it keeps its stack, its descriptors, and the memory and DOCA objects that it uses, none of which is used for another session,
//! until the call returns and it exits by itself. At most [`ABANDONED_THREADS`] may be abandoned at a time; until one returns, further
//! sessions are refused by [`check`]. What one costs is what its session was allowed: see
//! [`InitLimits`](crate::budget::InitLimits).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use doca::ErrorCode;

use crate::budget::ABANDONED_THREADS;
use crate::failure::Failure;

static ABANDONED: AtomicUsize = AtomicUsize::new(0);

const RUNNING: u8 = 0;
const ABANDONED_STATE: u8 = 1;
const RETURNED: u8 = 2;

/// State of a thread: running, abandoned or returned. Clones refer to the same thread.
#[derive(Debug, Clone, Default)]
pub struct Attachment(Arc<AtomicU8>);

impl Attachment {
    /// Returns the guard that the thread holds while it runs.
    pub(crate) fn guard(&self) -> Guard {
        Guard(Arc::clone(&self.0))
    }

    /// Abandons the thread, unless it has returned.
    pub(crate) fn abandon(&self) {
        let exchanged = self.0.compare_exchange(
            RUNNING,
            ABANDONED_STATE,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if exchanged.is_ok() {
            ABANDONED.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns `true` if the thread was abandoned and has not returned.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.0.load(Ordering::Acquire) == ABANDONED_STATE
    }
}

/// Held by a thread: dropped when it returns or panics.
pub(crate) struct Guard(Arc<AtomicU8>);

impl Drop for Guard {
    fn drop(&mut self) {
        if self.0.swap(RETURNED, Ordering::AcqRel) == ABANDONED_STATE {
            ABANDONED.fetch_sub(1, Ordering::AcqRel);
            tracing::info!("an abandoned thread has returned");
        }
    }
}

/// Checks that another session may be served.
///
/// # Errors
///
/// `AGAIN`: the maximum number of threads is blocked by peers of earlier sessions.
pub fn check() -> Result<(), Failure> {
    let count = ABANDONED.load(Ordering::Acquire);
    if count < ABANDONED_THREADS {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::AGAIN,
        format!(
            "{count} threads are held by peers of earlier sessions, expected fewer than {ABANDONED_THREADS}; try again later"
        ),
    ))
}
