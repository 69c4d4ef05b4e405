//! `doca_storage_comch_to_rdma_gga_offload`: a storage service that compresses and adds parity.
//!
//! It serves one initiator over Comch and keeps its blocks on three storage targets: the two halves of
//! a compressed block on data_1 and data_2, their parity on data_p. `session` says what the initiator
//! sees of the targets, `data_path` is what each worker thread does, `stripe_order` keeps I/Os on one
//! block apart, `redundancy` is what goes on without one of the targets, and `app` has [`role_common::service`] drive them. What judges bytes from outside is public, so that it can be
//! tested with any.
#![forbid(unsafe_code)]

mod app;
pub mod cli;
mod data_path;
mod local_memory;
mod redundancy;
pub mod session;
mod statistics;
mod stripe_order;
mod target;

pub use data_path::{Volume, request};
pub use target::Target;

use std::ffi::OsString;
use std::process::ExitCode;

/// Name of the program, whatever its file is called.
pub const NAME: &str = "doca_storage_comch_to_rdma_gga_offload";

/// Runs the program with these arguments, the first of which is ignored.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(NAME, args, app::run)
}
