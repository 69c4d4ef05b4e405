//! Inflight region (`VHOST_USER_GET_INFLIGHT_FD`): memory kept by the front end, with the requests that the back end
//! has taken but not completed.
//!
//! A back end that replaces a killed one reads from it which descriptor chains it must execute again. The layout of a
//! virtqueue's part is that of the vhost-user specification for split virtqueues, in native byte order:
//!
//! | offset | field |
//! | --- | --- |
//! | 0 | u64 features, not used |
//! | 8 | u16 version, 0 before the first use, then 1 |
//! | 10 | u16 number of descriptors |
//! | 12 | u16 head of the chain that was completed last |
//! | 14 | u16 index of the used ring |
//! | 16 + 16 n | descriptor n: u8 in flight, 5 unused bytes, u16 head of the chain that was completed before, u64 order |

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory as _};

use crate::device::MAX_QUEUE_SIZE;

const VERSION: u16 = 1;
const VERSION_AT: usize = 8;
const COUNT_AT: usize = 10;
const LAST_HEAD_AT: usize = 12;
const USED_AT: usize = 14;
const DESCRIPTORS_AT: usize = 16;
const DESCRIPTOR: usize = 16;
const NEXT_AT: usize = 6;
const ORDER_AT: usize = 8;

/// Alignment of a virtqueue's part in bytes: a cache line.
const ALIGNMENT: usize = 64;

/// Size of a virtqueue's part in bytes.
#[must_use]
pub const fn queue_bytes(size: u16) -> usize {
    (DESCRIPTORS_AT + DESCRIPTOR * size as usize).next_multiple_of(ALIGNMENT)
}

/// Creates memory for virtqueues of the same size. Returns the file and its size in bytes.
///
/// # Errors
/// The system is out of memory or file descriptors.
pub fn create(queues: u16, size: u16) -> std::io::Result<(File, usize)> {
    let bytes = queue_bytes(size) * usize::from(queues);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("vhost-user-blk-inflight", flags)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    // The front end must not truncate memory that this process has mapped.
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok((File::from(file), bytes))
}

/// Mapped memory of all virtqueues.
#[derive(Debug, Clone)]
pub struct Inflight {
    region: Arc<MmapRegion<()>>,
    queues: u16,
    size: u16,
}

impl Inflight {
    /// Maps the file that the front end has sent back.
    ///
    /// # Errors
    /// The file is too small for this number and size of queues, or cannot be mapped.
    pub fn map(
        file: File,
        offset: u64,
        bytes: u64,
        queues: u16,
        size: u16,
    ) -> std::io::Result<Self> {
        let needed = queue_bytes(size) * usize::from(queues);
        if size > MAX_QUEUE_SIZE || bytes < needed as u64 {
            return Err(std::io::Error::other(format!(
                "in-flight memory: expected at least {needed} bytes for {queues} queues of {size}, at most {MAX_QUEUE_SIZE}, got {bytes}"
            )));
        }
        let available = rustix::fs::fstat(file.as_fd())?.st_size as u64;
        if offset
            .checked_add(needed as u64)
            .is_none_or(|end| end > available)
        {
            return Err(std::io::Error::other(format!(
                "in-flight memory: expected a file with {needed} bytes at offset {offset}, got {available} bytes"
            )));
        }
        let region = MmapRegion::from_file(FileOffset::new(file, offset), needed)
            .map_err(std::io::Error::other)?;
        Ok(Self {
            region: Arc::new(region),
            queues,
            size,
        })
    }

    /// Returns the part of a virtqueue, if the region has one of this size.
    #[must_use]
    pub fn queue(&self, index: u16, size: u16) -> Option<InflightQueue> {
        (index < self.queues && size <= self.size).then(|| InflightQueue {
            region: Arc::clone(&self.region),
            base: queue_bytes(self.size) * usize::from(index),
            size,
            order: 0,
        })
    }
}

/// A virtqueue's part of the inflight region.
#[derive(Debug)]
pub struct InflightQueue {
    region: Arc<MmapRegion<()>>,
    base: usize,
    size: u16,
    order: u64,
}

impl InflightQueue {
    /// Returns the heads of the chains that the previous back end has not completed, in the order in which they were
    /// taken. `used` is the index of the used ring.
    pub fn recover(&mut self, used: u16) -> Vec<u16> {
        if self.u16_at(VERSION_AT) != VERSION || self.u16_at(COUNT_AT) != self.size {
            for index in 0..self.size {
                self.set_inflight(index, 0);
            }
            self.store_u16(COUNT_AT, self.size);
            self.store_u16(USED_AT, used);
            self.store_u16(VERSION_AT, VERSION);
            return Vec::new();
        }
        // The back end was killed after it had updated the used ring and before it had updated this region.
        if self.u16_at(USED_AT) != used {
            let last = self.u16_at(LAST_HEAD_AT);
            if last < self.size {
                self.set_inflight(last, 0);
            }
            self.store_u16(USED_AT, used);
        }
        let mut left: Vec<(u64, u16)> = (0..self.size)
            .filter(|&index| self.inflight(index) != 0)
            .map(|index| (self.order_of(index), index))
            .collect();
        left.sort_unstable();
        self.order = left.last().map_or(0, |(order, _)| order.wrapping_add(1));
        left.into_iter().map(|(_, index)| index).collect()
    }

    /// Records that a chain was taken from the available ring.
    pub fn take(&mut self, head: u16) {
        if let Ok(order) = self
            .region
            .get_atomic_ref::<AtomicU64>(self.descriptor(head) + ORDER_AT)
        {
            order.store(self.order, Ordering::Relaxed);
        }
        self.order = self.order.wrapping_add(1);
        self.set_inflight(head, 1);
    }

    /// Records that a chain is about to be added to the used ring.
    pub fn completing(&self, head: u16) {
        let last = self.u16_at(LAST_HEAD_AT);
        if let Ok(next) = self
            .region
            .get_atomic_ref::<AtomicU16>(self.descriptor(head) + NEXT_AT)
        {
            next.store(last, Ordering::Relaxed);
        }
        self.store_u16(LAST_HEAD_AT, head);
    }

    /// Records that the chain was added to the used ring, whose index is now `used`.
    pub fn completed(&self, head: u16, used: u16) {
        self.set_inflight(head, 0);
        self.store_u16(USED_AT, used);
    }

    fn descriptor(&self, index: u16) -> usize {
        self.base + DESCRIPTORS_AT + DESCRIPTOR * usize::from(index)
    }

    fn u16_at(&self, offset: usize) -> u16 {
        let field = self.region.get_atomic_ref::<AtomicU16>(self.base + offset);
        field.map_or(0, |field| field.load(Ordering::Acquire))
    }

    fn store_u16(&self, offset: usize, value: u16) {
        if let Ok(field) = self.region.get_atomic_ref::<AtomicU16>(self.base + offset) {
            field.store(value, Ordering::Release);
        }
    }

    fn inflight(&self, index: u16) -> u8 {
        let field = self
            .region
            .get_atomic_ref::<AtomicU8>(self.descriptor(index));
        field.map_or(0, |field| field.load(Ordering::Acquire))
    }

    fn set_inflight(&self, index: u16, value: u8) {
        if let Ok(field) = self
            .region
            .get_atomic_ref::<AtomicU8>(self.descriptor(index))
        {
            field.store(value, Ordering::Release);
        }
    }

    fn order_of(&self, index: u16) -> u64 {
        let field = self
            .region
            .get_atomic_ref::<AtomicU64>(self.descriptor(index) + ORDER_AT);
        field.map_or(0, |field| field.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> (File, Inflight) {
        let (file, bytes) = create(2, 8).expect("memory");
        let inflight = Inflight::map(
            file.try_clone().expect("a descriptor"),
            0,
            bytes as u64,
            2,
            8,
        )
        .expect("mapped");
        (file, inflight)
    }

    #[test]
    fn new_back_end_finds_incomplete_chains_in_order() {
        let (_file, inflight) = memory();
        let mut queue = inflight.queue(1, 8).expect("a queue");
        assert!(queue.recover(40).is_empty());
        for head in [5, 2, 7, 0] {
            queue.take(head);
        }
        queue.completing(2);
        queue.completed(2, 41);
        queue.take(2);
        let mut next = inflight.queue(1, 8).expect("a queue");
        assert_eq!(next.recover(41), [5, 7, 0, 2]);
        // Chains taken from now on are after these in order.
        next.take(1);
        assert_eq!(
            inflight.queue(1, 8).expect("a queue").recover(41),
            [5, 7, 0, 2, 1]
        );
        assert!(inflight.queue(0, 8).expect("a queue").recover(0).is_empty());
    }

    #[test]
    fn chain_in_the_used_ring_is_complete() {
        let (_file, inflight) = memory();
        let mut queue = inflight.queue(0, 8).expect("a queue");
        queue.recover(0);
        queue.take(3);
        queue.take(4);
        queue.completing(4);
        // Killed here: the used ring contains the chain, its index is 1.
        assert_eq!(inflight.queue(0, 8).expect("a queue").recover(1), [3]);
    }

    #[test]
    fn chain_missing_from_the_used_ring_is_in_flight() {
        let (_file, inflight) = memory();
        let mut queue = inflight.queue(0, 8).expect("a queue");
        queue.recover(0);
        queue.take(3);
        queue.completing(3);
        assert_eq!(inflight.queue(0, 8).expect("a queue").recover(0), [3]);
    }

    #[test]
    fn memory_that_is_too_small_is_refused() {
        let (file, inflight) = memory();
        let bytes = 2 * queue_bytes(8) as u64;
        let map = |offset, bytes, queues, size| {
            Inflight::map(
                file.try_clone().expect("a descriptor"),
                offset,
                bytes,
                queues,
                size,
            )
        };
        assert!(map(0, bytes, 2, 8).is_ok());
        assert!(map(0, bytes - 1, 2, 8).is_err());
        assert!(map(0, bytes, 3, 8).is_err());
        assert!(map(0, u64::MAX, 3, 8).is_err());
        assert!(map(u64::MAX - 1, bytes, 2, 8).is_err());
        assert!(map(0, u64::MAX, 1, u16::MAX).is_err());
        assert!(inflight.queue(2, 8).is_none());
        assert!(inflight.queue(0, 16).is_none());
    }
}
