//! The limits of a machine, measured by programs that are as small as they can be.
//!
//! They share no code with the product: a yardstick that was tuned together with what it measures would measure nothing. They
//! were written before the data path was made fast, and stay as they are.
//!
//! * [`ring`] three processes as a pipeline, like initiator, service and target: messages of one cache line through bare rings in
//!   shared memory, and one memcpy per I/O at the end.
//! * [`copy`] memcpy from private memory into memory shared with another process.
//! * [`isal`] Intel's erasure coding, if its library is installed.
//! * [`tcp`] requests and blocks over one TCP connection between two processes.
//! * [`wake`] waking up a thread on a CPU without work.

mod arena;
mod bare_ring;
pub mod copy;
pub mod isal;
pub mod ring;
pub mod tcp;
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
