//! A vhost-user-blk back end for the storage: disks of virtual machines (QEMU, cloud-hypervisor), and of programs with libblkio.
//!
//! * [`device`]: features and configuration space presented to front ends
//! * [`request`], [`ring`]: requests and virtqueues, state machines whose only I/O is access to guest memory
//! * [`inflight`]: memory that outlives the back end, with the requests that it has not completed
//! * [`storage`]: the interface to the storage, and a storage in memory for tests
//! * [`worker`]: one thread with a virtqueue and a queue of the storage
//! * [`server`]: the socket, and the messages of one front end at a time
//! * [`cli`], [`app`]: the program
#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
pub mod device;
#[cfg(test)]
mod guest;
pub mod inflight;
pub mod request;
pub mod ring;
pub mod server;
pub mod storage;
pub mod worker;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program; `args` begins with its name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(cli::NAME, args, app::run)
}

/// Maximum size of an I/O of the storage in bytes. Longer requests are split.
pub const MAX_TRANSFER: u32 = 256 * 1024;
