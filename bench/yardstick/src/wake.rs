//! Wake-up latency of a thread that sleeps on another, idle CPU.
//!
//! An idle CPU is halted, and restarting it takes microseconds on bare metal, and some hundred on a
//! virtual machine whose host has scheduled something else on the CPU meanwhile.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

/// Time from a write to an eventfd on the first of these CPUs until a thread that blocks on it runs on the second,
/// after both have been idle for `pause`.
///
/// # Errors
///
/// There is no such CPU, thread or eventfd.
pub fn latency([from, to]: [usize; 2], pause: Duration) -> io::Result<Duration> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| -> io::Result<Instant> {
            // The other thread writes in any case, so the wait ends.
            let pinned = crate::pin(to);
            read(&bell, &mut [0; 8])?;
            let woken = Instant::now();
            pinned.map(|()| woken)
        });
        let ringer = scope.spawn(|| -> io::Result<Instant> {
            let pinned = crate::pin(from);
            thread::sleep(pause);
            let rung = Instant::now();
            write(&bell, &1_u64.to_ne_bytes())?;
            pinned.map(|()| rung)
        });
        let panicked = || io::Error::other("a thread of the yardstick panicked");
        let rung = ringer.join().map_err(|_| panicked())??;
        let woken = sleeper.join().map_err(|_| panicked())??;
        Ok(woken.saturating_duration_since(rung))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_thread_is_woken() {
        let latency = latency([0, 0], Duration::from_millis(20)).expect("a CPU");
        assert!(latency < Duration::from_secs(5), "{latency:?}");
    }

    #[test]
    fn nonexistent_cpu_is_refused() {
        latency([0, usize::MAX], Duration::ZERO).expect_err("no such CPU");
        latency([usize::MAX, 0], Duration::ZERO).expect_err("no such CPU");
    }
}
