//! `doca_storage_target_rdma`: a storage target with its blocks in memory, or in a file (`backing`, `store`).
//!
//! It serves one service over TCP (control) and RDMA (data). `session` is the control state machine, `data_path` the
//! work of each worker thread, `content` the initial data, and `app` runs them. Modules that validate external bytes
//! are public for tests with arbitrary input.
#![forbid(unsafe_code)]

mod app;
mod applier;
pub mod backing;
pub mod content;
mod data_path;
mod metadata;
pub mod offline;
pub mod request;
mod reservation;
pub mod session;
pub mod store;
pub mod versions;

pub use app::Flags;

use std::ffi::OsString;
use std::process::ExitCode;

/// Name of the program, independent of its file's name.
pub const NAME: &str = "doca_storage_target_rdma";

/// Runs the program with these arguments, the first of which is ignored.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(NAME, args, app::run)
}
