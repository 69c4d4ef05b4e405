//! Reference limits of a machine, measured by minimal programs.
//!
//! They share no code with the product, because a baseline that is tuned together with the product would be meaningless. They were
//! written before the data path was optimised, and are not changed.
//!
//! * [`ring`] three processes as a pipeline, like initiator, service and target: messages of one cache line through bare rings in
//!   shared memory, and one memcpy per I/O at the end.
//! * [`copy_bandwidth`] memcpy from private memory into memory shared with another process.
//! * [`IsaL`] Intel's erasure coding, if its library is installed.
//! * [`tcp`] requests and blocks over one TCP connection between two processes.
//! * [`wake_up_latency`] waking up a thread on a CPU without work.

pub mod ring;
pub mod tcp;

use std::ffi::{c_int, c_uchar};
use std::hint::black_box;
use std::time::{Duration, Instant};
use std::{io, ptr, thread};

use libloading::Library;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

use crate::ring::Arena;

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

/// Returns the bytes per second at which blocks of `block_size` bytes are copied from `blocks` private blocks to
/// `slots` shared ones, each in order and repeatedly, for about `time`.
///
/// # Errors
///
/// There is not enough memory.
pub fn copy_bandwidth(
    block_size: usize,
    blocks: usize,
    slots: usize,
    time: Duration,
) -> io::Result<f64> {
    if block_size == 0 || blocks == 0 || slots == 0 {
        return Err(io::Error::other(
            "expected at least one byte, block and slot",
        ));
    }
    let shared = Arena::create(block_size * slots)?;
    let private = vec![0x5a_u8; block_size * blocks];
    let started = Instant::now();
    let mut copied = 0;
    loop {
        // The clock is read once per 64 blocks.
        for _ in 0..64 {
            let from = &black_box(&private)[copied % blocks * block_size..][..block_size];
            // SAFETY: within the arena, which is not accessed otherwise.
            unsafe {
                shared
                    .at(copied % slots * block_size)
                    .copy_from_nonoverlapping(from.as_ptr(), block_size);
            }
            copied += 1;
        }
        let passed = started.elapsed();
        if passed >= time {
            return Ok((copied * block_size) as f64 / passed.as_secs_f64());
        }
    }
}

/// Time from a write to an eventfd on the first of these CPUs until a thread that blocks on it runs on the second,
/// after both have been idle for `pause`.
///
/// An idle CPU is halted, and restarting it takes microseconds on bare metal, and some hundreds on a virtual machine
/// whose host has scheduled another task on the CPU.
///
/// # Errors
///
/// A CPU does not exist, or the thread or the eventfd cannot be created.
pub fn wake_up_latency([from, to]: [usize; 2], pause: Duration) -> io::Result<Duration> {
    let doorbell = eventfd(0, EventfdFlags::CLOEXEC)?;
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| -> io::Result<Instant> {
            // The other thread writes even if pinning fails, so the wait ends.
            let pinned = pin(to);
            read(&doorbell, &mut [0; 8])?;
            let woken = Instant::now();
            pinned.map(|()| woken)
        });
        let ringer = scope.spawn(|| -> io::Result<Instant> {
            let pinned = pin(from);
            thread::sleep(pause);
            let rung = Instant::now();
            write(&doorbell, &1_u64.to_ne_bytes())?;
            pinned.map(|()| rung)
        });
        let panicked = || io::Error::other("a thread of the yardstick panicked");
        let rung = ringer.join().map_err(|_| panicked())??;
        let woken = sleeper.join().map_err(|_| panicked())??;
        Ok(woken.saturating_duration_since(rung))
    })
}

// Erasure coding by Intel's ISA-L, a common baseline, loaded if it is installed.

/// File names of the library, in order of preference.
const NAMES: [&str; 2] = ["libisal.so.2", "libisal.so"];
/// Size of ISA-L's table for one coefficient in bytes.
const TABLE: usize = 32;

type InitTables = unsafe extern "C" fn(c_int, c_int, *mut c_uchar, *mut c_uchar);
type EncodeData =
    unsafe extern "C" fn(c_int, c_int, c_int, *mut c_uchar, *mut *mut c_uchar, *mut *mut c_uchar);

#[derive(Debug, thiserror::Error)]
#[error("ISA-L cannot be used ({0}); Debian's package is libisal2")]
pub struct NotInstalled(#[from] libloading::Error);

pub struct IsaL {
    init_tables: InitTables,
    encode_data: EncodeData,
    // Keeps the library loaded: the functions point into it.
    _library: Library,
}

impl IsaL {
    /// Loads the library.
    ///
    /// # Errors
    ///
    /// The library is not installed.
    pub fn load() -> Result<Self, NotInstalled> {
        // SAFETY: ISA-L's initialisation only inspects the CPU.
        let library = unsafe { Library::new(NAMES[0]).or_else(|_| Library::new(NAMES[1])) }?;
        // SAFETY: the types are those of erasure_code.h; the pointers are used only while the library is loaded.
        let (init_tables, encode_data) = unsafe {
            (
                *library.get::<InitTables>(b"ec_init_tables\0")?,
                *library.get::<EncodeData>(b"ec_encode_data\0")?,
            )
        };
        Ok(Self {
            init_tables,
            encode_data,
            _library: library,
        })
    }

    /// Prepares rows of coefficients, each with one coefficient per source.
    ///
    /// # Panics
    ///
    /// If the number of coefficients is 0, or not a multiple of `sources`.
    pub fn coder(&self, sources: usize, coefficients: &[u8]) -> Coder<'_> {
        assert!(sources > 0 && !coefficients.is_empty());
        assert!(coefficients.len().is_multiple_of(sources) && coefficients.len() < 256);
        let rows = coefficients.len() / sources;
        let mut tables = vec![0; TABLE * coefficients.len()];
        let mut coefficients = coefficients.to_vec();
        // SAFETY: reads `sources * rows` coefficients and writes 32 bytes for each; the buffers have these sizes.
        unsafe {
            (self.init_tables)(
                sources as c_int,
                rows as c_int,
                coefficients.as_mut_ptr(),
                tables.as_mut_ptr(),
            );
        }
        Coder {
            library: self,
            sources,
            rows,
            tables,
        }
    }
}

/// Tables for one set of coefficients.
pub struct Coder<'a> {
    library: &'a IsaL,
    sources: usize,
    rows: usize,
    tables: Vec<u8>,
}

impl Coder<'_> {
    /// Computes one block per row from the source blocks.
    ///
    /// # Panics
    ///
    /// If the numbers of blocks do not match the sources and rows, or the blocks differ in length.
    pub fn code(&mut self, sources: &[&[u8]], results: &mut [&mut [u8]]) {
        assert!(sources.len() == self.sources && results.len() == self.rows);
        let len = sources[0].len();
        assert!(sources.iter().all(|block| block.len() == len));
        assert!(results.iter().all(|block| block.len() == len));
        let mut from = [ptr::null_mut(); 256];
        let mut to = [ptr::null_mut(); 256];
        for (pointer, block) in from.iter_mut().zip(sources) {
            *pointer = block.as_ptr().cast_mut();
        }
        for (pointer, block) in to.iter_mut().zip(results.iter_mut()) {
            *pointer = block.as_mut_ptr();
        }
        // SAFETY: all blocks have `len` bytes, their number matches the tables, and sources are only read.
        unsafe {
            (self.library.encode_data)(
                c_int::try_from(len).expect("blocks below 2 GiB"),
                self.sources as c_int,
                self.rows as c_int,
                self.tables.as_mut_ptr(),
                from.as_mut_ptr(),
                to.as_mut_ptr(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn bandwidth_is_positive() {
        let rate = copy_bandwidth(4096, 4, 3, Duration::from_millis(1)).expect("memory");
        assert!(rate > 1e6, "{rate}");
        assert!(copy_bandwidth(0, 1, 1, Duration::ZERO).is_err());
    }

    #[test]
    fn sleeping_thread_is_woken() {
        let measured = wake_up_latency([0, 0], Duration::from_millis(20)).expect("a CPU");
        assert!(measured < Duration::from_secs(5), "{measured:?}");
    }

    #[test]
    fn nonexistent_cpu_is_refused() {
        wake_up_latency([0, usize::MAX], Duration::ZERO).expect_err("no such CPU");
        wake_up_latency([usize::MAX, 0], Duration::ZERO).expect_err("no such CPU");
    }
}
