//! Shared parts of the storage roles: flags, worker threads, sessions of services.
//!
//! A role is [`application::run`] with its flags and a body. The body connects its control channels ([`control`]),
//! runs the data path on [`worker`] threads, and sleeps in [`control::Waiter`] until a message, a worker or a signal
//! ([`signals`]) needs it.
#![forbid(unsafe_code)]
// These macros panic if the stream is closed or full: see `console`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod application;
pub mod background;
pub mod console;
pub mod control_socket;
pub mod data_path;
pub mod flags;
pub mod init_limits;
pub mod jobs;
pub mod matrix;
pub mod protocol;
pub mod service;
pub mod signals;
pub mod superblock;
pub mod worker;
