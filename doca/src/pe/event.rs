use crate::{ComchEvent, ContextId, CtxState, ErrorCode};

/// What [`Pe::poll`](crate::Pe::poll) found.
#[derive(Debug)]
pub enum Event {
    /// A task is done; it can be submitted again.
    Task(Completion),
    /// A context changed its state. Events of contexts that were stopped since are still delivered.
    State {
        /// The context, to compare with its handle's `id()`.
        context: ContextId,
        /// State before.
        previous: CtxState,
        /// State after.
        next: CtxState,
    },
    /// Something happened on a Comch control path.
    Comch(ComchEvent),
}

/// What [`Pe::poll_completion`](crate::Pe::poll_completion) found. Small enough for registers, which an [`Event`] is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled {
    /// A task is done; it can be submitted again.
    Completion(Completion),
    /// Something else has happened: [`Pe::poll`](crate::Pe::poll) gives it, and has to before anything that came after it.
    Other,
    /// Nothing.
    Nothing,
}

/// The end of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The token that the task was made with.
    pub token: u64,
    /// How it went. When the context was stopped meanwhile, the code that DOCA flushes tasks with.
    pub result: Result<(), ErrorCode>,
}

impl Completion {
    #[inline(always)]
    pub(crate) fn new(token: u64, code: ErrorCode) -> Self {
        Self {
            token,
            result: code.ok(),
        }
    }
}
