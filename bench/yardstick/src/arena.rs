//! Shared memory for yardsticks.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Zeroed, page-aligned memory that processes share.
pub(crate) struct Arena {
    start: NonNull<u8>,
    len: usize,
    file: OwnedFd,
}

// SAFETY: plain memory; all access goes through raw pointers, whose users justify it.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Creates an arena of `len` bytes.
    pub(crate) fn create(len: usize) -> io::Result<Self> {
        let file = memfd_create("yardstick", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, len as u64)?;
        Self::map(file, len)
    }

    /// Opens another process's arena at its [`path`](Arena::path).
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Self::map(file.into(), len)
    }

    /// Path at which other processes of the same user can open the memory, as long as this value exists.
    pub(crate) fn path(&self) -> PathBuf {
        let (pid, file) = (std::process::id(), self.file.as_fd().as_raw_fd());
        format!("/proc/{pid}/fd/{file}").into()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Pointer to the byte at `offset`.
    ///
    /// # Panics
    ///
    /// If `offset` is out of range.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len, "expected an offset below {}", self.len);
        // SAFETY: within the mapping, as checked above.
        unsafe { self.start.as_ptr().add(offset) }
    }

    fn map(file: OwnedFd, len: usize) -> io::Result<Self> {
        // Populates all pages, so that there are no page faults during a measurement.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address chosen by the kernel.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                &file,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { start, len, file })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: unmaps the whole mapping, which is not used any more: pointers into it do not outlive the arena.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_are_one_memory() {
        let one = Arena::create(8192).expect("memory");
        let other = Arena::open(&one.path()).expect("the same");
        assert_eq!(other.len(), 8192);
        // SAFETY: both mappings exist and are not accessed otherwise.
        unsafe {
            one.at(5000).write_volatile(17);
            assert_eq!(other.at(5000).read_volatile(), 17);
        }
    }
}
