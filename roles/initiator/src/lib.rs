//! `doca_storage_initiator_comch`: reads, writes, measures and validates a storage through its service.
//!
//! * [`layout`]: assignment of blocks to workers, the order of access, and local memory
//! * [`data_path`]: the work of a worker thread
//! * [`statistics`]: output, and the result of a test
//! * [`workers`]: the workers of a session, and the display of their progress
//! * [`app`]: the flags; runs the control session ([`volume::session`]) over the real channel and the workers
#![forbid(unsafe_code)]

pub mod app;
pub mod data_path;
pub mod layout;
pub mod statistics;
pub mod workers;

pub use app::Flags;

use std::ffi::OsString;
use std::process::ExitCode;

/// Name of the program, as in the reference.
pub const NAME: &str = "doca_storage_initiator_comch";

/// Runs the program; `args` starts with its name. The exit code is the reference's: 0 if the test passed, 1 otherwise.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(NAME, args, app::run)
}
