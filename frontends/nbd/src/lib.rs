//! An NBD server in front of the storage.
//!
//! * [`protocol`]: messages of the protocol
//! * [`negotiation`], [`transmission`]: the two phases of a connection, state machines without I/O
//! * [`device`]: the interface to the block device; [`memory`] is a device for tests
//! * [`connection`], [`output`], [`stream`], [`tls`]: one client
//! * [`worker`], [`listener`], [`server`]: all clients
//! * [`cli`], [`storage`], [`app`]: the program, over a [`volume::Volume`]
#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
pub mod connection;
pub mod device;
pub mod listener;
pub mod memory;
pub mod negotiation;
pub mod output;
pub mod protocol;
pub mod server;
pub mod storage;
pub mod stream;
pub use role_common::tls;
pub mod transmission;
pub mod worker;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program; `args` begins with its name. Exits with 0 after a signal that ended it in order, with 1 otherwise.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(cli::NAME, args, app::run)
}

/// Largest I/O that the device is given memory for, in bytes. Longer requests are divided.
pub const MAX_SEGMENT: u32 = 256 * 1024;
