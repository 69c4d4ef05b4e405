//! Submission of tasks with retries.

use std::collections::VecDeque;

use doca::{ErrorCode, Task};

/// Tasks whose submission returned `AGAIN`, by their tokens, in order. Allocates only when it is created.
#[derive(Debug)]
pub struct DeferredTasks {
    tokens: VecDeque<u64>,
}

impl DeferredTasks {
    /// Creates a queue with capacity for `count` tasks.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        Self {
            tokens: VecDeque::with_capacity(count),
        }
    }

    /// Submits the task with this token, now or in a later [`retry`](Self::retry).
    ///
    /// # Errors
    ///
    /// The submission's error, other than `AGAIN`.
    #[inline]
    pub fn submit(&mut self, token: u64, task: &Task) -> Result<(), ErrorCode> {
        task.submit().or_else(|code| self.refused(token, code))
    }

    /// Queues the task with this token, whose submission failed with `code`, if that is `AGAIN`.
    ///
    /// # Errors
    ///
    /// Any other code.
    #[cold]
    pub fn refused(&mut self, token: u64, code: ErrorCode) -> Result<(), ErrorCode> {
        match code {
            ErrorCode::AGAIN => {
                self.tokens.push_back(token);
                Ok(())
            }
            other => Err(other),
        }
    }

    /// Removes queued tasks whose tokens do not satisfy `keep`.
    pub fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.tokens.retain(|&token| keep(token));
    }

    /// Returns `true` if no task is queued.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Token of the task queued first.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.tokens.front().copied()
    }

    /// Submits queued tasks, until one returns `AGAIN` again.
    ///
    /// # Errors
    ///
    /// Token and error of the task that failed. It is removed from the queue.
    #[inline]
    pub fn retry<'t>(&mut self, task: impl Fn(u64) -> &'t Task) -> Result<(), (u64, ErrorCode)> {
        while let Some(&token) = self.tokens.front() {
            match task(token).submit() {
                Err(ErrorCode::AGAIN) => return Ok(()),
                result => {
                    self.tokens.pop_front();
                    result.map_err(|code| (token, code))?;
                }
            }
        }
        Ok(())
    }
}
