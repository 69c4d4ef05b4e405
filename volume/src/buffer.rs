//! Memory of a volume that the service and its targets access, and the buffers in it.
//!
//! This module has the crate's only references into memory that is registered with a device.

#![allow(
    unsafe_code,
    reason = "references to memory that is registered with a device"
)]

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use doca::{ErrorCode, MemoryRegion};

use crate::engine::Memory;

/// The buffers of one queue.
#[derive(Debug)]
pub(crate) struct Pool {
    region: Arc<MemoryRegion>,
    /// Offset of the first buffer in the region in bytes.
    start: usize,
    /// Size of a buffer in bytes.
    size: u32,
    count: usize,
    /// One bit per buffer, set if it is free. Buffers are allocated by the queue's thread, and freed by any thread.
    free: Box<[AtomicU64]>,
    /// Futures that wait for a free buffer.
    waiting: Mutex<Vec<Waker>>,
    has_waiting: AtomicBool,
}

impl Pool {
    /// Creates a pool of `count` consecutive buffers of `size` bytes at offset `start`; `None` if the buffers are not
    /// within the region.
    pub(crate) fn new(
        region: Arc<MemoryRegion>,
        start: usize,
        size: u32,
        count: usize,
    ) -> Option<Arc<Self>> {
        let end = count.checked_mul(size as usize)?.checked_add(start)?;
        if end > region.len() {
            return None;
        }
        let word = |index: usize| {
            let bits = (count - index * 64).min(64);
            AtomicU64::new(u64::MAX >> (64 - bits))
        };
        Some(Arc::new(Self {
            free: (0..count.div_ceil(64)).map(word).collect(),
            waiting: Mutex::default(),
            has_waiting: AtomicBool::new(false),
            region,
            start,
            size,
            count,
        }))
    }

    /// Memory of the buffers.
    #[inline]
    pub(crate) fn region(&self) -> &MemoryRegion {
        &self.region
    }

    /// Number of free buffers. Other threads may free further ones at any time.
    pub(crate) fn free(&self) -> usize {
        let free = |word: &AtomicU64| word.load(Ordering::SeqCst).count_ones() as usize;
        self.free.iter().map(free).sum()
    }

    /// Number of buffers that are in use.
    pub(crate) fn taken(&self) -> usize {
        self.count - self.free()
    }

    /// Allocates a buffer with the contents of a buffer of another pool. `None` as [`take`](Self::take).
    pub(crate) fn copy_of(self: &Arc<Self>, buffer: &Buffer) -> Option<Buffer> {
        let (len, from) = (buffer.len as usize, &buffer.pool.region);
        let copy = self.take(len)?;
        // Without references: if the buffer is that of an I/O in progress, the storage may still access it.
        let copied = self
            .region
            .copy_from(copy.start(), from, buffer.start(), len);
        copied.is_ok().then_some(copy)
    }

    /// Size of a buffer in bytes.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Allocates the first free buffer, which is likely cached. `None` if none is free, or if `len` exceeds the size of a buffer.
    #[inline]
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Option<Buffer> {
        let len = u32::try_from(len).ok().filter(|&len| len <= self.size)?;
        for (index, word) in self.free.iter().enumerate() {
            let mut bits = word.load(Ordering::SeqCst);
            while bits != 0 {
                let bit = bits.trailing_zeros();
                let before = word.fetch_and(!(1 << bit), Ordering::SeqCst);
                if before & 1 << bit != 0 {
                    return Some(Buffer {
                        pool: Arc::clone(self),
                        index: index * 64 + bit as usize,
                        len,
                    });
                }
                bits = before & !(1 << bit);
            }
        }
        None
    }

    #[inline]
    fn give(&self, index: usize) {
        debug_assert!(index < self.count);
        self.free[index / 64].fetch_or(1 << (index % 64), Ordering::SeqCst);
        // Sequentially consistent, as is a waiting future's registration: either this thread sees the waker, or the
        // future the free buffer.
        if self.has_waiting.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Registers a waker for the next freed buffer. Call [`take`](Self::take) again afterwards: a buffer may have
    /// been freed before.
    pub(crate) fn wait(&self, waker: &Waker) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(waker.clone());
        self.has_waiting.store(true, Ordering::SeqCst);
    }

    /// Wakes the futures that wait for a free buffer.
    #[cold]
    pub(crate) fn wake(&self) {
        let waiting = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            self.has_waiting.store(false, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Data buffer of an I/O, which the storage reads and writes in place.
///
/// It derefs to a slice of the [requested](crate::Queue::buffer) length, whose initial contents are those of an
/// earlier use. While an I/O is in flight it owns the buffer, so the program cannot access its bytes. Dropping a
/// buffer, on any thread, frees it for the next I/O.
///
/// The memory is exported to the service and its targets for the whole session. As with any device that has access to
/// memory, they are trusted to access it only for I/Os in flight: a peer that writes into a buffer at another time
/// changes bytes that the program is using. The next session uses other memory: I/Os in progress are moved to it with
/// their data, so the buffer of a [completion](crate::Completion) may be at another address than that of the
/// submission. A buffer that the program had at that time is still valid; its data is copied when it is submitted.
#[derive(Debug)]
pub struct Buffer {
    pool: Arc<Pool>,
    index: usize,
    len: u32,
}

impl Buffer {
    /// Offset in the volume's memory in bytes.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.start() as u64
    }

    #[inline]
    pub(crate) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    #[inline]
    fn start(&self) -> usize {
        self.pool.start + self.index * self.pool.size as usize
    }

    /// Changes the length, up to the [largest transfer](crate::Config::largest_transfer). Returns `false`, without
    /// effect, if `len` is larger.
    pub fn set_len(&mut self, len: usize) -> bool {
        match u32::try_from(len) {
            Ok(len) if len <= self.pool.size => {
                self.len = len;
                true
            }
            _ => false,
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `Pool::new` checked that all buffers lie within the region, which exists as long as the pool; they do
        // not overlap, and `take` returns each to only one owner. Its bytes are initialised, because the region is
        // zeroed. This process accesses them only through this value: I/Os own their buffers until they have completed.
        // The other processes with access are those of the storage; they access the memory only for I/Os in flight, as
        // the type's documentation states.
        unsafe {
            std::slice::from_raw_parts(
                self.pool.region.as_ptr().add(self.start()),
                self.len as usize,
            )
        }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow of `self` excludes other references.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.pool.region.as_ptr().add(self.start()),
                self.len as usize,
            )
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give(self.index);
    }
}

impl Memory for MemoryRegion {
    fn copy(&self, from: u64, to: u64, len: usize) -> Result<(), ErrorCode> {
        self.copy_from(to as usize, self, from as usize, len)
            .map_err(|error| error.code)
    }

    fn clear(&self, at: u64, len: usize) -> Result<(), ErrorCode> {
        self.fill(at as usize, len, 0).map_err(|error| error.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_has_one_owner_and_is_returned() {
        let region = MemoryRegion::new(100 * 64 + 7).expect("memory");
        assert!(Pool::new(Arc::clone(&region), 7, 64, 101).is_none());
        let pool = Pool::new(region, 7, 64, 100).expect("inside");
        for _ in 0..2 {
            let mut buffers: Vec<_> = std::iter::from_fn(|| pool.take(64)).collect();
            assert_eq!(buffers.len(), 100);
            for (value, buffer) in (0..).zip(&mut buffers) {
                buffer.fill(value);
            }
            for (value, buffer) in (0..).zip(&buffers) {
                assert!(buffer.iter().all(|&byte| byte == value));
                assert_eq!(buffer.offset(), 7 + 64 * u64::from(value));
            }
        }
        assert!(pool.take(65).is_none());
        let mut short = pool.take(3).expect("free");
        assert_eq!(short.len(), 3);
        assert!(short.set_len(64) && !short.set_len(65));
        assert_eq!(short.len(), 64);
    }

    #[test]
    fn buffers_are_returned_by_other_threads() {
        let region = MemoryRegion::new(2 * 64).expect("memory");
        let pool = Pool::new(region, 0, 64, 2).expect("inside");
        std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel::<Buffer>();
            scope.spawn(move || {
                for buffer in receiver {
                    assert!(buffer.iter().all(|byte| *byte == buffer[0]));
                }
            });
            let mut sent = 0_u32;
            while sent < 1000 {
                match pool.take(64) {
                    Some(mut buffer) => {
                        buffer.fill(sent as u8);
                        sender.send(buffer).expect("a receiver");
                        sent += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
    }
}
