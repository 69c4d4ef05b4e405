//! Streams of the C library: what softdoca prints comes between what the program prints, in order.

use doca_abi::FILE;

/// A C stream that stays open.
pub(super) struct Stream(*mut libc::FILE);

// SAFETY: stdio locks its streams, and it stays open.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

unsafe extern "C" {
    // The C library's own names.
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

impl Stream {
    /// # Safety
    /// `stream` is open, and stays so.
    pub(super) unsafe fn new(stream: *mut FILE) -> Stream {
        Stream(stream.cast())
    }

    pub(super) fn output() -> Stream {
        // SAFETY: set before `main`, and no program assigns to it.
        Stream(unsafe { stdout })
    }

    pub(super) fn errors() -> Stream {
        // SAFETY: as above.
        Stream(unsafe { stderr })
    }

    /// Writes a text at once. There is nowhere to report a failure to.
    pub(super) fn write(&self, text: &str) {
        // SAFETY: an open stream, and a buffer of the stated size.
        unsafe {
            libc::fwrite(text.as_ptr().cast(), 1, text.len(), self.0);
            libc::fflush(self.0);
        }
    }
}
