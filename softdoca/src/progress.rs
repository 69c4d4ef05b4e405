//! Progress engines, contexts and tasks: what every DOCA library is built on.
//!
//! * [`Pe`] drives the contexts that are connected to it; callbacks run only inside [`Pe::progress`] and, for changes
//!   of state, inside start and stop.
//! * [`Ctx`] is the part that all contexts share: state, user data, counts of tasks. What one kind of context does is
//!   its [`Driver`].
//! * [`Task`] is the head of every task; [`TaskPool`] hands them out.
//! * [`idle`] lets a thread that finds nothing to do spin, yield or take a [nap](mod@nap), and then sleep; [`crowd`] says which.
//!
//! # Threads
//!
//! As in DOCA, one thread at a time uses an engine, its contexts and their tasks; they may move between threads. No
//! lock is taken here, and no borrow is held while a callback runs: a callback may resubmit, free, start and stop.

mod ctx;
mod idle;
mod pe;
mod task;

pub(crate) use ctx::{Ctx, CtxState, Driver, Event, Started};
pub(crate) use idle::yield_before_retry;
pub(crate) use pe::{Arming, Pe, Urgency};
pub(crate) use task::{Completion, Task, TaskCallback, TaskOf, TaskPool};

#[cfg(test)]
mod tests;
