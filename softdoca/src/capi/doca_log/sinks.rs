//! Destinations that belong to the program: its streams, descriptors and buffers.

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

use crate::capi::stdio::Stream;
use crate::log::{Line, Record, Sink};

impl Sink for Stream {
    fn accept(&self, record: &Record<'_>) {
        self.write(&Line(record).to_string());
    }
}

/// A descriptor of the program's.
pub(super) struct Descriptor(pub(super) c_int);

impl Sink for Descriptor {
    fn accept(&self, record: &Record<'_>) {
        let line = Line(record).to_string();
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            // SAFETY: the program keeps it open, as DOCA asks; a closed one makes the write fail.
            let fd = unsafe { BorrowedFd::borrow_raw(self.0) };
            match rustix::io::write(fd, rest) {
                Ok(written) => rest = &rest[written..],
                Err(rustix::io::Errno::INTR) => {}
                // Nowhere to report a failure to.
                Err(_) => return,
            }
        }
    }
}

/// A buffer of the program's, which a handler empties.
pub(super) struct Buffer {
    start: Mutex<Start>,
    capacity: usize,
    handler: unsafe extern "C" fn(*mut c_char),
}

struct Start(*mut c_char);

// SAFETY: only used under the mutex; the program leaves the buffer to the back end, as DOCA asks.
unsafe impl Send for Start {}

thread_local! {
    /// This thread is in a handler: what the handler logs would overwrite the message that it reads.
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

impl Buffer {
    /// A sink over `capacity` bytes at `start`; at least one, for the NUL.
    pub(super) fn new(
        start: *mut c_char,
        capacity: usize,
        handler: unsafe extern "C" fn(*mut c_char),
    ) -> Buffer {
        Buffer {
            start: Mutex::new(Start(start)),
            capacity,
            handler,
        }
    }
}

impl Sink for Buffer {
    fn accept(&self, record: &Record<'_>) {
        if IN_HANDLER.get() {
            return;
        }
        let line = Line(record).to_string();
        let len = line.floor_char_boundary(self.capacity - 1);
        let start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        IN_HANDLER.set(true);
        // SAFETY: the program promised `capacity` bytes, and that the handler takes such a buffer; a line is no part of it.
        unsafe {
            std::ptr::copy_nonoverlapping(line.as_ptr(), start.0.cast::<u8>(), len);
            start.0.add(len).write(0);
            (self.handler)(start.0);
        }
        IN_HANDLER.set(false);
    }
}
