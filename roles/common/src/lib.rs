//! Shared parts of the storage roles: control channels, worker threads, flags, statistics.
//!
//! A role is [`application::run`] with its flags and a body. The body connects its control channels ([`control`]),
//! runs the data path on [`worker`] threads, and sleeps in [`control::Waiter`] until a message, a worker or a signal
//! ([`shutdown`]) needs it.
#![forbid(unsafe_code)]
// They panic if the stream is closed or full: see `console`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod application;
pub mod budget;
pub mod console;
pub mod control;
pub mod data_path;
pub mod flags;
pub mod jobs;
pub mod matrix;
pub mod metrics;
pub mod network;
pub mod protocol;
pub mod service;
pub mod shutdown;
pub mod verifier;
pub mod worker;

pub use protocol::{Failure, FirstFailure, text_of_peer};
