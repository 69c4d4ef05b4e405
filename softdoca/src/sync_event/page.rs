//! A page for one value.

use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use crate::error::{Error, Result};

/// A page of zeros, whole, so that it can be shared with other processes in place.
#[derive(Debug)]
pub(super) struct Page {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that is accessed only through atomics and raw copies, for as long as the value lives.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    pub(super) fn new() -> Result<Page> {
        let len = rustix::param::page_size();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(Error::NoMemory)?;
        Ok(Page { base, len })
    }

    pub(super) fn addr(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    pub(super) fn len(&self) -> u64 {
        self.len as u64
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this length; whoever used it has gone. A failure would leave the page, which harms nobody.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
