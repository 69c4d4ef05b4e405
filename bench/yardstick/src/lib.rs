//! The limits of a machine, measured by minimal programs.
//!
//! They share no code with the product: a yardstick that was tuned together with the product would not be independent of it. They
//! were written before the data path was optimised, and are not changed.
//!
//! * [`ring`] three processes as a pipeline, like initiator, service and target: messages of one cache line through bare rings in
//!   shared memory, and one memcpy per I/O at the end.
//! * [`copy`] memcpy from private memory to memory shared with another process.
//! * [`isal`] Intel's erasure coding, if its library is installed.
//! * [`wake`] wake-up of a thread on an idle CPU.

mod arena;
mod bare_ring;
pub mod copy;
pub mod isal;
pub mod ring;
pub mod wake;

use std::io;

/// Pins this thread to one CPU.
///
/// # Errors
///
/// The process may not run there.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::Error::other(format!(
            "expected a CPU below {}, got {cpu}",
            rustix::thread::CpuSet::MAX_CPU
        )));
    }
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}
