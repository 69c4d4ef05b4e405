//! `doca_storage_initiator_comch`: reads, writes, measures and validates a storage through its service.
//!
//! * [`cli`]: the flags
//! * [`layout`]: assignment of blocks to workers, and the order of access
//! * [`data_path`]: the work of a worker thread
//! * [`statistics`], [`progress`]: output
//! * [`storage`], [`workers`]: memory and workers of a session
//! * [`conclusion`]: result of a test
//! * [`app`]: runs the control session ([`volume::session`]) over the real channel and the workers
#![forbid(unsafe_code)]
pub mod app;
pub mod cli;
pub mod conclusion;
pub mod data_path;
pub mod layout;
pub mod progress;
pub mod statistics;
pub mod storage;
pub mod workers;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program; `args` starts with its name. The exit code is the reference's: 0 if the test passed, 1 otherwise.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(cli::NAME, args, app::run)
}
