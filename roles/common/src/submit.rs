//! Submitting tasks that may have to wait for their turn.

use std::collections::VecDeque;

use doca::{ErrorCode, Task};

/// Tasks whose submission was answered with `AGAIN`, by their tokens, in order. It allocates only
/// when it is made.
#[derive(Debug)]
pub struct DeferredTasks {
    tokens: VecDeque<u64>,
}

impl DeferredTasks {
    /// Room for `count` tasks, which is enough when there are no more.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        Self {
            tokens: VecDeque::with_capacity(count),
        }
    }

    /// Submits the task with this token, now or when [`retry`](Self::retry) succeeds with it.
    ///
    /// # Errors
    ///
    /// What the submission failed with, other than `AGAIN`.
    #[inline]
    pub fn submit(&mut self, token: u64, task: &Task) -> Result<(), ErrorCode> {
        task.submit().or_else(|code| self.refused(token, code))
    }

    /// The task with this token was submitted, and refused with `code`: it waits if that is `AGAIN`.
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

    /// Forgets the waiting tasks with other tokens than these.
    pub fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.tokens.retain(|&token| keep(token));
    }

    /// Returns `true` if no task waits.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The token of the task that waits for longest.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.tokens.front().copied()
    }

    /// Submits waiting tasks, until one has to wait again.
    ///
    /// # Errors
    ///
    /// The token of the task that failed, and with what. It waits no longer.
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
