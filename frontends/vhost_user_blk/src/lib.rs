//! A vhost-user-blk back end for the storage: disks of virtual machines (QEMU, cloud-hypervisor), and of programs with libblkio.
//!
//! * [`device`]: features and configuration space presented to front ends
//! * [`request`], [`ring`]: requests and virtqueues, state machines whose only I/O is access to guest memory
//! * [`inflight`]: memory that outlives the back end, with its uncompleted requests
//! * [`worker`]: one thread with a virtqueue and a queue of the storage, a [`volume::BlockQueue`]
//! * [`server`]: the socket, and the messages of one front end at a time
//! * [`app`]: the program and its flags
#![forbid(unsafe_code)]

pub mod app;
pub mod device;
#[cfg(test)]
mod guest;
pub mod inflight;
pub mod request;
pub mod ring;
pub mod server;
pub mod worker;

pub use app::Flags;

use std::ffi::OsString;
use std::process::ExitCode;

/// Name of the program in messages.
pub const NAME: &str = "doca_storage_vhost_user_blk";

/// Runs the program; `args` begins with its name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    role_common::application::run(NAME, args, app::run)
}

/// Maximum size of a read or a write of the storage in bytes. Longer requests are split.
pub const MAX_TRANSFER: u32 = 256 * 1024;

/// Maximum size of a discard or of write-zeroes of the storage in bytes.
pub const MAX_PIECE: u32 = 1 << 20;
