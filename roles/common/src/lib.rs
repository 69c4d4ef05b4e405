//! Shared parts of the storage roles: control channels, worker threads, flags, statistics.
//!
//! A role is [`application::run`] with its flags and a body. The body connects its control channels ([`control`]),
//! runs the data path on [`worker`] threads, and sleeps in [`control::Waiter`] until a message, a worker or a signal
//! ([`shutdown`]) needs it. [`stored_block`] is shared by the gga_offload service and the generator.
#![forbid(unsafe_code)]
// They panic if the stream is closed or full: see `console`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod abandoned;
pub mod address;
pub mod application;
pub mod budget;
pub mod console;
pub mod contexts;
pub mod control;
mod failure;
pub mod flags;
pub mod jobs;
mod logging;
pub mod metrics;
pub mod protocol;
pub mod run_loop;
pub mod service;
pub mod sessions;
pub mod shutdown;
pub mod statistics;
pub mod stored_block;
pub mod superblock;
pub mod tls;
pub mod unix_server;
pub mod worker;

pub use failure::{Failure, FirstFailure, text_of_peer};
