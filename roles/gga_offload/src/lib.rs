//! `doca_storage_comch_to_rdma_gga_offload`: a storage service that compresses and adds parity.
//!
//! It serves one initiator over Comch and stores its blocks on three storage targets: the data chunks of a compressed
//! block on data_1 and data_2, their parity chunk on data_p. `layout` presents the targets to the initiator as one
//! storage, `gga_engine` makes the decisions for requests and failures of targets, `data_path` executes them on each
//! worker thread, and `app` runs these parts with [`role_common::service`].
#![forbid(unsafe_code)]

mod app;
mod data_path;
pub mod layout;
pub mod offline;
mod operator;
mod statistics;

use std::ffi::OsString;
use std::process::ExitCode;

pub use app::Flags;

/// Name of the program in messages, independent of the name of its file.
pub const NAME: &str = "doca_storage_comch_to_rdma_gga_offload";

/// Runs the program with these arguments, the first of which is ignored.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(NAME, args, app::run)
}
