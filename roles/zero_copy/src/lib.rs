//! `doca_storage_comch_to_rdma_zero_copy`: a storage service that forwards.
//!
//! It serves one initiator over Comch and uses one storage target over TCP and RDMA. I/O messages pass through it;
//! data is transferred directly between the target and the initiator's memory. `session` presents the target's storage
//! to the initiator, `data_path` is the work of each worker thread, and `app` runs both with [`role_common::service`].
//! Modules that validate bytes from outside are public for tests with arbitrary input.
#![forbid(unsafe_code)]

mod app;
pub mod cli;
mod data_path;
pub mod session;

pub use data_path::message;

use std::ffi::OsString;
use std::process::ExitCode;

/// Name of the program, independent of its file's name.
pub const NAME: &str = "doca_storage_comch_to_rdma_zero_copy";

/// Runs the program with these arguments, the first of which is ignored.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(NAME, args, app::run)
}
