//! `doca_storage_gga_offload_sbc_generator`: converts a file into the initial data of the three targets of the
//! gga_offload service.
//!
//! Each block of the input becomes a [stored block](role_formats::stored_block); its data chunks are written to two
//! files, their parity chunk to a third, and the output files are moved to their final names together, once they are
//! complete (`files`). `app` is the program.
#![forbid(unsafe_code)]

mod app;
mod files;

pub use app::Flags;

use std::ffi::OsString;
use std::process::ExitCode;

/// Name of the program, independent of its file's name.
pub const NAME: &str = "doca_storage_gga_offload_sbc_generator";

/// Runs the program with these arguments, the first of which is ignored.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(NAME, args, app::run)
}

/// Failure to read or write a file, with the nearest DOCA code.
fn io_failure(name: impl std::fmt::Display, error: &std::io::Error) -> control::Failure {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => doca::ErrorCode::NOT_FOUND,
        std::io::ErrorKind::PermissionDenied => doca::ErrorCode::NOT_PERMITTED,
        _ => doca::ErrorCode::IO_FAILED,
    };
    control::Failure::new(code, format!("{name}: {error}"))
}
