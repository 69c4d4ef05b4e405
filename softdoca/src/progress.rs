//! Progress engines, contexts and tasks: the base of every DOCA library.
//!
//! * [`Pe`] drives the contexts connected to it; callbacks run only inside [`Pe::progress`] and, for state changes,
//!   inside start and stop.
//! * [`Ctx`] is common to all contexts: state, user data, task counts. The specific part of a context is its
//!   [`Driver`].
//! * [`Task`] is the header of every task; [`TaskPool`] allocates them.
//! * [`idle`] makes a thread without work spin, yield or sleep briefly, and then block.
//!
//! # Threads
//!
//! As in DOCA, one thread at a time uses an engine, its contexts and their tasks; they may move between threads. No
//! lock is taken, and no borrow is held while a callback runs: a callback may resubmit, free, start and stop.

mod ctx;
mod idle;
mod pe;
mod task;

pub(crate) use ctx::{Ctx, CtxState, Driver, Event, Started};
#[cfg(test)]
pub(crate) use idle::with_sleeps_of;
pub(crate) use idle::yield_before_retry;
pub(crate) use pe::{Arming, Pe, Urgency};
pub(crate) use task::{Completion, Task, TaskCallback, TaskOf, TaskPool};

#[cfg(test)]
mod tests;
