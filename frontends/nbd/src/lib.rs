//! An NBD server for the storage.
//!
//! * [`protocol`]: messages of the protocol
//! * [`negotiation`], [`transmission`]: the two phases of a connection, state machines without I/O
//! * [`sockets`], [`connection`]: one client
//! * [`server`]: all clients, and the threads that serve them, each with a [`volume::BlockQueue`]
//! * [`app`]: the program and its flags
#![forbid(unsafe_code)]

pub mod app;
pub mod connection;
pub mod negotiation;
pub mod protocol;
pub mod server;
pub mod sockets;
pub mod transmission;

pub use app::Flags;

use std::ffi::OsString;
use std::process::ExitCode;

/// Name of the program in messages.
pub const NAME: &str = "doca_storage_nbd";

/// Runs the program; `args` begins with its name. The exit code is 0 after a clean shutdown by a signal, and 1 otherwise.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(NAME, args, app::run)
}

/// Maximum size of an I/O of the device in bytes. Longer requests are split.
pub const MAX_SEGMENT: u32 = 256 * 1024;
