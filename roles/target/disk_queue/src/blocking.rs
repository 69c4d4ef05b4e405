//! Operations by blocking system calls.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use doca::MemoryRegion;
use rustix::io::Errno;

use crate::{Operation, Range};

/// Executes operations one after the other.
#[derive(Debug)]
pub(crate) struct Blocking {
    file: Arc<File>,
}

impl Blocking {
    pub(crate) fn new(file: Arc<File>) -> Self {
        Self { file }
    }

    /// Executes an operation whose range is inside the memory.
    pub(crate) fn execute(
        &self,
        operation: Operation,
        memory: &MemoryRegion,
    ) -> Result<usize, Errno> {
        let vector = |range: Range| libc::iovec {
            iov_base: memory.as_ptr().wrapping_add(range.memory_offset).cast(),
            iov_len: range.len,
        };
        let fd = self.file.as_raw_fd();
        let offset = |range: Range| i64::try_from(range.file_offset).unwrap_or(i64::MAX);
        let count = match operation {
            // SAFETY: the vector is of bytes inside the memory, which is mapped, and of which there are no references.
            Operation::Read(range) => unsafe {
                libc::preadv2(fd, &vector(range), 1, offset(range), 0)
            },
            Operation::Write { range, durable } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                // SAFETY: as above.
                unsafe { libc::pwritev2(fd, &vector(range), 1, offset(range), flags) }
            }
            Operation::Sync => return rustix::fs::fdatasync(&self.file).map(|()| 0),
        };
        usize::try_from(count).map_err(|_| {
            let error = std::io::Error::last_os_error();
            Errno::from_io_error(&error).unwrap_or(Errno::IO)
        })
    }
}
