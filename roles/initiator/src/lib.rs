//! `doca_storage_initiator_comch`: reads and writes blocks of a storage through its service, measures that, and validates what comes back.
//!
//! * [`cli`]: the flags
//! * [`layout`], [`address`]: which blocks belong to which worker, and the order in which it visits them
//! * [`pattern`]: the bytes that are written for validation
//! * [`data_path`]: what a worker thread does
//! * [`statistics`], [`progress`]: what is shown
//! * [`storage`], [`crew`]: memory and workers of a session
//! * [`conclusion`]: what a run comes to
//! * [`app`]: drives the control session ([`volume::session`]) over the real channel and the workers
#![forbid(unsafe_code)]

pub mod address;
pub mod app;
pub mod cli;
pub mod conclusion;
pub mod crew;
pub mod data_path;
pub mod layout;
pub mod pattern;
pub mod progress;
pub mod statistics;
pub mod storage;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program; `args` begins with its name. The exit code is the reference's: 0 when the test passed, 1 otherwise.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(cli::NAME, args, app::run)
}
