//! Operations by io_uring.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Arc;

use doca::MemoryRegion;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};
use rustix::io::Errno;

use crate::{Completed, Operation};

/// Maximum number of operations per system call; the ring may have more in flight.
const MOST_ENTRIES: usize = 1024;

/// Maximum number of completions in a ring. Beyond that the kernel allocates memory for each.
const MOST_COMPLETIONS: usize = 65536;

/// `IORING_ENTER_GETEVENTS`.
const ENTER_GETEVENTS: u32 = 1;

/// A ring. Its owner must keep the memory of its operations mapped, and wait for them before dropping it.
pub(crate) struct Ring {
    ring: IoUring,
    file: Arc<File>,
    /// `true` if the file is registered as number 0.
    has_file: bool,
    /// `true` if the memory is registered as buffer 0.
    has_memory: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("file", &self.file)
            .field("has_file", &self.has_file)
            .field("has_memory", &self.has_memory)
            .finish_non_exhaustive()
    }
}

impl Ring {
    pub(crate) fn new(file: Arc<File>, memory: &MemoryRegion, depth: usize) -> io::Result<Self> {
        let entries = depth.clamp(1, MOST_ENTRIES).next_power_of_two() as u32;
        let completions = (depth * 2)
            .clamp(2 * entries as usize, MOST_COMPLETIONS)
            .next_power_of_two() as u32;
        // Completions are posted when the thread enters the kernel, without interrupting it: since Linux 6.0.
        let ring = IoUring::builder()
            .setup_cqsize(completions)
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_single_issuer()
            .build(entries)
            .or_else(|_| IoUring::builder().setup_cqsize(completions).build(entries))?;
        let submitter = ring.submitter();
        let has_file = submitter.register_files(&[file.as_raw_fd()]).is_ok();
        let vector = libc::iovec {
            iov_base: memory.as_ptr().cast(),
            iov_len: memory.len(),
        };
        // SAFETY: the memory stays mapped as long as the ring, by the contract of this type. Registration fails if the
        // process may not pin that much memory (RLIMIT_MEMLOCK); the kernel then translates the addresses of each
        // operation.
        let has_memory = unsafe { submitter.register_buffers(&[vector]) }.is_ok();
        Ok(Self {
            ring,
            file,
            has_file,
            has_memory,
        })
    }

    /// Submits operations from the front of `pending`, and returns their number.
    ///
    /// # Safety
    ///
    /// Their ranges must be inside `memory`, with which the ring was created and which must stay mapped until they
    /// have completed.
    pub(crate) unsafe fn submit(
        &mut self,
        pending: &mut Vec<(u64, Operation)>,
        memory: &MemoryRegion,
    ) -> usize {
        let mut taken = 0;
        while taken < pending.len() {
            let mut queue = self.ring.submission();
            while let Some(&(token, operation)) = pending.get(taken) {
                let entry = entry(
                    operation,
                    memory,
                    self.file.as_raw_fd(),
                    self.has_file,
                    self.has_memory,
                )
                .user_data(token);
                // SAFETY: by the contract of this function.
                if unsafe { queue.push(&entry) }.is_err() {
                    break;
                }
                taken += 1;
            }
            drop(queue);
            // Entries that the kernel does not accept now, because it is out of memory or waits for completions to be
            // collected, stay in the submission queue for the next call.
            if self.ring.submit().is_err() && self.ring.submission().is_full() {
                break;
            }
        }
        pending.drain(..taken);
        taken
    }

    /// Moves completions to `completed`, and returns their number.
    pub(crate) fn reap(&mut self, completed: &mut VecDeque<Completed>) -> usize {
        let submission = self.ring.submission();
        let (is_left, is_due) = (!submission.is_empty(), submission.taskrun());
        drop(submission);
        if is_left {
            let _ = self.ring.submit();
        }
        if is_due {
            // Makes the kernel post completions, without waiting.
            // SAFETY: without an argument, the call touches no memory but the ring's.
            let _ = unsafe {
                self.ring
                    .submitter()
                    .enter::<()>(0, 0, ENTER_GETEVENTS, None)
            };
        }
        let mut count = 0;
        for entry in self.ring.completion() {
            count += 1;
            let result = entry.result();
            completed.push_back(Completed {
                token: entry.user_data(),
                result: usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result)),
            });
        }
        count
    }

    /// Executes a sync on the calling thread.
    pub(crate) fn sync(&self) -> Result<usize, Errno> {
        rustix::fs::fdatasync(&self.file).map(|()| 0)
    }

    /// Waits for a completion or a signal.
    pub(crate) fn wait(&mut self) {
        let _ = self.ring.submit_and_wait(1);
    }

    pub(crate) fn readiness(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns the descriptor, and is borrowed as long as the result.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

fn entry(
    operation: Operation,
    memory: &MemoryRegion,
    fd: i32,
    has_file: bool,
    has_memory: bool,
) -> squeue::Entry {
    let (file, flags) = if has_file {
        (Fd(0), squeue::Flags::FIXED_FILE)
    } else {
        (Fd(fd), squeue::Flags::empty())
    };
    let entry = match operation {
        Operation::Read(range) => {
            let at = memory.as_ptr().wrapping_add(range.memory_offset);
            let (len, offset) = (range.len as u32, range.file_offset);
            if has_memory {
                opcode::ReadFixed::new(file, at, len, 0)
                    .offset(offset)
                    .build()
            } else {
                opcode::Read::new(file, at, len).offset(offset).build()
            }
        }
        Operation::Write { range, durable } => {
            let at = memory.as_ptr().wrapping_add(range.memory_offset);
            let (len, offset) = (range.len as u32, range.file_offset);
            let how = if durable { libc::RWF_DSYNC } else { 0 };
            if has_memory {
                opcode::WriteFixed::new(file, at, len, 0)
                    .offset(offset)
                    .rw_flags(how)
                    .build()
            } else {
                opcode::Write::new(file, at, len)
                    .offset(offset)
                    .rw_flags(how)
                    .build()
            }
        }
        Operation::Sync => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
    };
    entry.flags(flags)
}
