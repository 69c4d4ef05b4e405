//! `doca_storage_comch_to_rdma_zero_copy`: a storage service that forwards I/Os.
//!
//! It serves one initiator over Comch and uses one storage target over TCP and RDMA. I/O messages pass through it; data
//! is transferred directly between the target and the initiator's memory. `app` presents the target's storage to the
//! initiator and runs the session with [`role_common::service`]; `data_path` is the work of each worker thread.
//! Functions that validate external bytes are public for tests with arbitrary input.
#![forbid(unsafe_code)]

mod app;
mod data_path;

pub use app::Flags;
pub use data_path::{is_result, refusal, request_type};

use std::ffi::OsString;
use std::process::ExitCode;

/// Name of the program, independent of its file's name.
pub const NAME: &str = "doca_storage_comch_to_rdma_zero_copy";

/// Runs the program with these arguments, the first of which is ignored.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(NAME, args, app::run)
}
