//! `doca_storage_comch_to_rdma_gga_offload`: a storage service that compresses and adds parity.
//!
//! It serves one initiator over Comch and keeps its blocks on three storage targets: the data chunks of a compressed block on data_1 and
//! data_2, their parity chunk on data_p. `session` presents the targets to the initiator as one storage, `engine` decides what is done
//! for a request and when a target fails, `data_path` does it on each worker thread, and `app` has [`role_common::service`] drive them.
//! [`request`] judges bytes from outside and is public, so that it can be tested with any.
#![forbid(unsafe_code)]

mod app;
pub mod cli;
mod data_path;
mod engine;
pub mod session;
pub mod simulation;
mod statistics;
mod target;

pub use engine::request::{self, Volume};
pub use target::{Placement, Target};

use std::ffi::OsString;
use std::process::ExitCode;

/// Name of the program, whatever its file is called.
pub const NAME: &str = "doca_storage_comch_to_rdma_gga_offload";

/// Runs the program with these arguments, the first of which is ignored.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(NAME, args, app::run)
}
