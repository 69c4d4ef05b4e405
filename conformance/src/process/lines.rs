//! What a process has written to standard error: the last lines of it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines that are kept to explain a failure.
const KEPT: usize = 200;

/// Lines that one thread writes and others look for.
#[derive(Default)]
pub(super) struct Lines {
    state: Mutex<LinesState>,
    changed: Condvar,
}

#[derive(Default)]
struct LinesState {
    lines: VecDeque<String>,
    /// Matches of what [`Lines::find`] looks for must not be missed because a line was dropped.
    dropped: usize,
    ended: bool,
}

/// Why no line was found.
pub(super) enum Wait {
    Ended,
    TimedOut,
}

impl Lines {
    pub(super) fn push(&self, line: String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.lines.push_back(line);
        if state.lines.len() > KEPT {
            state.lines.pop_front();
            state.dropped += 1;
        }
        self.changed.notify_all();
    }

    pub(super) fn end(&self) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ended = true;
        self.changed.notify_all();
    }

    pub(super) fn count(&self) -> usize {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.dropped + state.lines.len()
    }

    pub(super) fn find<T>(
        &self,
        from: usize,
        timeout: Duration,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Wait> {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut looked_at = from;
        loop {
            let skip = looked_at.max(state.dropped) - state.dropped;
            if let Some(found) = state.lines.iter().skip(skip).find_map(|line| parse(line)) {
                return Ok(found);
            }
            looked_at = looked_at.max(state.dropped + state.lines.len());
            if state.ended {
                return Err(Wait::Ended);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Wait::TimedOut);
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    pub(super) fn text(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    pub(super) fn indented(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state
            .lines
            .iter()
            .map(|line| format!("\n    {line}"))
            .collect()
    }
}
