//! Limits on the time that a thread waits for agents of other processes.
//!
//! Memory that is not mapped in this process is copied by its exporter's agent while the thread that executes the task
//! waits. An agent may be slow, and that thread has other work: a [`WaitScope`] around a call of progress, or around a
//! submission outside of one, bounds the total wait in it, for any number of tasks, segments and agents.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::limits::{COPY_RATE, Limits};
use crate::error::Result;

/// Deadline of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::agent) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(time: Duration) -> Deadline {
        Deadline(Instant::now() + time)
    }

    /// Time left; 0 after the deadline.
    pub(super) fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// Total wait in a scope after which no further task is started in it.
const ENOUGH: Duration = Duration::from_millis(50);
/// Minimum time for a copy, even if another agent has used up the scope's.
const LEAST: Duration = Duration::from_millis(100);

/// Time that the copies of a scope have waited.
#[derive(Clone, Copy)]
struct Waited {
    deadline: Deadline,
    time: Duration,
}

/// A scope is open.
const OPEN: u8 = 1;
/// The waits in it have taken at least [`ENOUGH`].
const HELD_UP: u8 = 2;
/// The scope belongs to a submission outside of a progress call.
const LONE: u8 = 4;

thread_local! {
    /// Checked for every event and submission: a byte, separate from the state that only copies need.
    static FLAGS: Cell<u8> = const { Cell::new(0) };
    /// State of the open scope, once one of its copies has used an agent.
    static WAITED: Cell<Option<Waited>> = const { Cell::new(None) };
    /// `true` if [`WAITED`] is set; checked by scopes, as it is small.
    static HAS_WAITED: Cell<bool> = const { Cell::new(false) };
}

/// Bounds the waits of this thread for agents until it is dropped.
#[must_use = "it ends when it is dropped"]
pub(crate) struct WaitScope {
    /// State to restore; `None` for a scope that shares the outer one.
    outer: Option<(u8, Option<Waited>)>,
}

impl WaitScope {
    /// Opens a scope for a call of progress. One inside a callback has its own limit.
    #[inline]
    pub(crate) fn of_progress() -> WaitScope {
        WaitScope {
            outer: Some((FLAGS.replace(OPEN), take_waited())),
        }
    }

    /// Opens a scope for a submission: inside a call of progress it shares that call's limit.
    #[inline]
    pub(crate) fn of_submission() -> WaitScope {
        if FLAGS.get() & OPEN != 0 {
            return WaitScope { outer: None };
        }
        WaitScope {
            outer: Some((FLAGS.replace(OPEN | LONE), take_waited())),
        }
    }
}

impl Drop for WaitScope {
    #[inline]
    fn drop(&mut self) {
        if let Some((flags, waited)) = self.outer {
            FLAGS.set(flags);
            if waited.is_some() || HAS_WAITED.get() {
                set_waited(waited);
            }
        }
    }
}

#[inline]
fn take_waited() -> Option<Waited> {
    if !HAS_WAITED.get() {
        return None;
    }
    HAS_WAITED.set(false);
    WAITED.take()
}

#[cold]
fn set_waited(waited: Option<Waited>) {
    HAS_WAITED.set(waited.is_some());
    WAITED.set(waited);
}

/// Returns `true` if waits for agents have taken so long that the rest of the work is left to the next call of
/// progress.
#[inline(always)]
pub(crate) fn is_held_up() -> bool {
    FLAGS.get() & HELD_UP != 0
}

/// Returns `true` if this thread is in a call of progress, which continues after the current operation.
#[inline]
pub(crate) fn is_in_progress() -> bool {
    FLAGS.get() & (OPEN | LONE) == OPEN
}

/// Waits for an agent until a copy of `len` bytes is done or times out: `action` gets the deadline.
pub(super) fn within_scope<T>(len: usize, action: impl FnOnce(Deadline) -> Result<T>) -> Result<T> {
    let limits = Limits::get()?;
    let (begin, before) = (Instant::now(), WAITED.get());
    let Deadline(from) = before.map_or(Deadline(begin + limits.copy), |waited| waited.deadline);
    let by_size = Duration::from_micros(len as u64 * 1_000_000 / COPY_RATE);
    let deadline = Deadline((from + by_size).max(begin + LEAST));
    let result = action(deadline);
    if FLAGS.get() & OPEN != 0 {
        let time = before.map_or(Duration::ZERO, |waited| waited.time) + begin.elapsed();
        set_waited(Some(Waited { deadline, time }));
        if time >= ENOUGH {
            FLAGS.set(FLAGS.get() | HELD_UP);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline() -> Deadline {
        within_scope(0, Ok).unwrap()
    }

    #[test]
    fn copies_in_a_scope_share_a_deadline() {
        let progress = WaitScope::of_progress();
        let first = deadline();
        assert_eq!(deadline(), first);
        {
            let _submission = WaitScope::of_submission();
            assert_eq!(deadline(), first, "inside of progress");
            let _callback = WaitScope::of_progress();
            assert!(deadline() > first, "progress of a callback");
        }
        assert_eq!(deadline(), first);
        drop(progress);
        assert_ne!(deadline(), deadline(), "each by itself");
    }

    #[test]
    fn slow_copy_fails_only_its_own_call() {
        let progress = WaitScope::of_progress();
        let slow = |_: Deadline| {
            std::thread::sleep(ENOUGH);
            Ok(())
        };
        assert!(!is_held_up());
        within_scope(0, slow).unwrap();
        assert!(is_held_up());
        {
            let _callback = WaitScope::of_progress();
            assert!(!is_held_up());
        }
        assert!(is_held_up());
        drop(progress);
        assert!(!is_held_up());
        within_scope(0, slow).unwrap();
        assert!(!is_held_up(), "no scope");
    }

    #[test]
    fn deadline_grows_with_the_size_of_a_copy() {
        let _progress = WaitScope::of_progress();
        let first = deadline();
        let large = within_scope(COPY_RATE as usize, Ok).unwrap();
        assert_eq!(large.0 - first.0, Duration::from_secs(1));
    }
}
