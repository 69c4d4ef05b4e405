//! The data path of one worker thread: submits requests, handles their completions, and keeps all transactions in flight.
//!
//! * [`Failure`], [`Mismatch`]: failures of a run
//! * [`Content`], [`Validator`]: expected contents of blocks, and the comparison of memory with them
//! * [`Transactions`]: the state of the transactions, without contexts
//! * [`Worker`]: the loop over the completions of its requests ([`volume::endpoint`])
//!
//! Per I/O there is no allocation, no lock, no log and no system call of this crate's; the clock is read once.

mod content;
mod failure;
mod transactions;
mod worker;

#[cfg(test)]
mod tests;

pub use content::{Content, Extent, Validator};
pub use failure::{Direction, Failure, Io, Mismatch};
pub use transactions::{Measurements, Task, Transactions};
pub use worker::{AnyWorker, Command, Messaging, Outcome, Worker, create};
