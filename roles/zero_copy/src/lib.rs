//! `doca_storage_comch_to_rdma_zero_copy`: a storage service that forwards.
//!
//! It serves one initiator over Comch and uses one storage target over TCP and RDMA. I/O messages
//! pass through it; the blocks do not, they move between the target and the initiator's memory.
//! `session` says what the initiator sees of the target, `data_path` is what each worker thread
//! does, and `app` has [`role_common::service`] drive them. What judges bytes from outside is public, so that it can
//! be tested with any.
#![forbid(unsafe_code)]

mod app;
pub mod cli;
mod data_path;
pub mod session;

pub use data_path::message;

use std::ffi::OsString;
use std::process::ExitCode;

/// Name of the program, whatever its file is called.
pub const NAME: &str = "doca_storage_comch_to_rdma_zero_copy";

/// Runs the program with these arguments, the first of which is ignored.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(NAME, args, app::run)
}
