//! A vhost-user-blk back end in front of the storage: disks of virtual machines (QEMU, cloud-hypervisor), and of programs with libblkio.
//!
//! * [`device`]: what front ends see: features and configuration space
//! * [`request`], [`ring`]: requests and virtqueues, state machines without I/O besides guest memory
//! * [`inflight`]: memory that survives the back end, with the requests that it has not completed
//! * [`storage`]: the interface to the storage; [`memory`] is a storage for tests
//! * [`worker`]: one thread with a virtqueue and a queue of the storage
//! * [`session`]: one front end's messages
//! * [`server`]: the socket, and one front end after the other
//! * [`cli`], [`app`]: the program
#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
pub mod device;
#[cfg(test)]
mod guest;
pub mod inflight;
pub mod memory;
pub mod request;
pub mod ring;
pub mod server;
pub mod session;
pub mod storage;
pub mod worker;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program; `args` begins with its name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(cli::NAME, args, app::run)
}

/// Most bytes of one I/O of the storage. Longer requests are divided.
pub const MAX_TRANSFER: u32 = 256 * 1024;
