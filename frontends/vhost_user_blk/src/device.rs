//! The device presented to front ends (features, configuration space, and allowed requests), and the storage behind its virtqueues:
//! queues of asynchronous I/Os.

use std::collections::VecDeque;
use std::ops::DerefMut;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
    VIRTIO_BLK_ID_BYTES,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use volume::{Io, IoError, Operation};

use crate::ring::Part;

/// Size of a sector in bytes: the unit of offsets and lengths in virtio-blk, whatever the block size.
pub const SECTOR: u64 = 512;

/// Maximum number of entries of a virtqueue.
pub const MAX_QUEUE_SIZE: u16 = 1024;

/// Maximum number of data segments of a request, as announced to drivers. Longer chains are accepted, up to
/// [`MAX_QUEUE_SIZE`] descriptors.
pub const SEG_MAX: u32 = 126;

/// Maximum size of one segment of a discard or write-zeroes request, in bytes.
pub const MAX_ZEROES: u32 = 16 << 20;

/// Maximum number of segments of a discard or write-zeroes request.
pub const MAX_ZEROES_SEGMENTS: u32 = 16;

/// Size of the device identifier in bytes.
pub const ID_BYTES: usize = VIRTIO_BLK_ID_BYTES as usize;

/// Properties of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Size of the storage in bytes. A partial sector at the end is not accessible.
    pub size: u64,
    /// Block size of the storage in bytes, announced to drivers as the preferred alignment.
    pub block_size: u32,
    /// `true` if the storage supports flush.
    pub flush: bool,
    /// `true` if writes are refused.
    pub read_only: bool,
    pub queues: u16,
    /// Identifier of the device for drivers, padded with zeros.
    pub id: [u8; ID_BYTES],
}

impl Device {
    #[must_use]
    pub const fn sectors(&self) -> u64 {
        self.size / SECTOR
    }

    /// Offered virtio feature bits, without those of vhost-user.
    ///
    /// CONFIG_WCE is not offered: drivers that accept FLUSH have a write-back cache, and for others each write is
    /// durable when it completes.
    #[must_use]
    pub fn features(&self) -> u64 {
        let mut bits = vec![
            VIRTIO_F_VERSION_1,
            VIRTIO_RING_F_EVENT_IDX,
            VIRTIO_RING_F_INDIRECT_DESC,
            VIRTIO_BLK_F_SEG_MAX,
            VIRTIO_BLK_F_BLK_SIZE,
            VIRTIO_BLK_F_TOPOLOGY,
            VIRTIO_BLK_F_MQ,
        ];
        if self.flush {
            bits.push(VIRTIO_BLK_F_FLUSH);
        }
        if self.read_only {
            bits.push(VIRTIO_BLK_F_RO);
        } else {
            bits.extend([VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES]);
        }
        bits.into_iter()
            .fold(0, |features, bit| features | 1 << bit)
    }

    /// The configuration space, `virtio_blk_config` in little-endian bytes.
    ///
    /// The logical block size is a sector, so that images with any partition table work; the block size of the storage is the physical one.
    #[must_use]
    pub fn config(&self) -> Vec<u8> {
        // Only if the field can express it: a power of two of sectors.
        let blocks_exponent = (u64::from(self.block_size) / SECTOR)
            .checked_ilog2()
            .filter(|exponent| SECTOR << exponent == u64::from(self.block_size))
            .unwrap_or(0);
        let sectors_per_block = 1_u32 << blocks_exponent;
        let writable = u32::from(!self.read_only);
        let max_zeroes_sectors = writable * (MAX_ZEROES / SECTOR as u32);
        let max_zeroes_segments = writable * MAX_ZEROES_SEGMENTS;
        let mut config = Vec::with_capacity(96);
        config.extend(self.sectors().to_le_bytes());
        // Segments of any size (no SIZE_MAX).
        config.extend(0_u32.to_le_bytes());
        config.extend(SEG_MAX.to_le_bytes());
        // No geometry of cylinders, heads and sectors.
        config.extend([0; 4]);
        config.extend((SECTOR as u32).to_le_bytes());
        config.extend([blocks_exponent as u8, 0]);
        let min_io = u16::try_from(sectors_per_block).unwrap_or(0);
        config.extend(min_io.to_le_bytes());
        // No optimal I/O size.
        config.extend(0_u32.to_le_bytes());
        // The cache mode is not configurable, and a byte is unused.
        config.extend([0, 0]);
        config.extend(self.queues.to_le_bytes());
        config.extend(max_zeroes_sectors.to_le_bytes());
        config.extend(max_zeroes_segments.to_le_bytes());
        // Alignment of discards: a block.
        config.extend(sectors_per_block.to_le_bytes());
        config.extend(max_zeroes_sectors.to_le_bytes());
        config.extend(max_zeroes_segments.to_le_bytes());
        config.extend([writable as u8, 0, 0, 0]);
        // Secure erase and zones.
        config.resize(96, 0);
        config
    }
}

/// Reason why an I/O was not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDone {
    /// It failed; the storage has logged the reason.
    Failed,
    /// The storage was closed: another process may execute the I/O.
    Closed,
}

/// A submission queue with its completions, for one thread.
pub trait Queue: Send + 'static {
    /// Buffer for the data of an I/O. Dropping it frees it.
    type Buffer: DerefMut<Target = [u8]> + Send;

    /// Returns a buffer of `len` bytes, at most the largest transfer. `None` if all are in use; retry after completions.
    fn buffer(&mut self, len: usize) -> Option<Self::Buffer>;

    /// Submits an I/O; reads and writes with a buffer of their length.
    ///
    /// # Errors
    /// The queue is full: returns the buffer. The I/O can be submitted again after a completion.
    fn submit(
        &mut self,
        part: Part,
        buffer: Option<Self::Buffer>,
    ) -> Result<(), Option<Self::Buffer>>;

    /// Makes progress, and passes completions (tag, result and buffer) to `done`. Never blocks. Returns the number of completions.
    fn poll(
        &mut self,
        done: &mut dyn FnMut(u64, Result<(), NotDone>, Option<Self::Buffer>),
    ) -> usize;

    /// Descriptor that is readable when an armed queue must be polled.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Arms the descriptor before a sleep. Returns `false` if the queue must be polled instead.
    fn arm(&mut self) -> bool;

    /// Reverts [`arm`](Self::arm).
    fn disarm(&mut self);
}

#[derive(Debug)]
pub struct VolumeQueue(pub volume::Queue);

impl Queue for VolumeQueue {
    type Buffer = volume::Buffer;

    #[inline]
    fn buffer(&mut self, len: usize) -> Option<volume::Buffer> {
        self.0.buffer(len)
    }

    #[inline]
    fn submit(
        &mut self,
        part: Part,
        buffer: Option<volume::Buffer>,
    ) -> Result<(), Option<volume::Buffer>> {
        let Part {
            tag,
            operation,
            offset,
            len,
        } = part;
        self.0
            .submit(Io {
                tag,
                operation,
                offset,
                len,
                buffer,
            })
            .map_err(|io| io.buffer)
    }

    #[inline]
    fn poll(
        &mut self,
        done: &mut dyn FnMut(u64, Result<(), NotDone>, Option<volume::Buffer>),
    ) -> usize {
        self.0.poll(&mut |completion| {
            let result = completion.result.map_err(|error| match error {
                IoError::Closed => NotDone::Closed,
                error @ IoError::LostWrites => {
                    tracing::error!("a flush fails: {error}");
                    NotDone::Failed
                }
                error => {
                    tracing::debug!("an I/O has failed: {error}");
                    NotDone::Failed
                }
            });
            done(completion.tag, result, completion.buffer);
        })
    }

    #[inline]
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }

    #[inline]
    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    #[inline]
    fn disarm(&mut self) {
        self.0.disarm();
    }
}

/// Maximum number of I/Os in flight per queue.
const DEPTH: usize = 16;
/// Number of buffers per queue. Operations without data can use the whole depth.
const BUFFERS: usize = 12;

/// A disk whose contents all queues share.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    flushes: Arc<AtomicU64>,
    fails: Arc<AtomicBool>,
    is_held: Arc<AtomicBool>,
    is_closed: Arc<AtomicBool>,
}

impl Disk {
    /// Creates a disk with these contents.
    #[must_use]
    pub fn new(content: Vec<u8>) -> Self {
        Self {
            bytes: Arc::new(Mutex::new(content)),
            ..Self::default()
        }
    }

    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.lock().clone()
    }

    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// Makes later I/Os fail or succeed.
    pub fn set_failing(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    /// Keeps I/Os in flight, or lets them complete.
    pub fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::Relaxed);
    }

    /// Completes I/Os with [`NotDone::Closed`] from now on.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Creates a queue.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn queue(&self) -> std::io::Result<DiskQueue> {
        Ok(DiskQueue {
            disk: self.clone(),
            ios: VecDeque::with_capacity(DEPTH),
            never: eventfd(0, EventfdFlags::CLOEXEC)?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub struct DiskQueue {
    disk: Disk,
    ios: VecDeque<(Part, Option<Vec<u8>>)>,
    never: OwnedFd,
}

impl Queue for DiskQueue {
    type Buffer = Vec<u8>;

    fn buffer(&mut self, len: usize) -> Option<Vec<u8>> {
        (self.ios.len() < BUFFERS).then(|| vec![0; len])
    }

    fn submit(&mut self, part: Part, buffer: Option<Vec<u8>>) -> Result<(), Option<Vec<u8>>> {
        if self.ios.len() == DEPTH {
            return Err(buffer);
        }
        self.ios.push_back((part, buffer));
        Ok(())
    }

    fn poll(&mut self, done: &mut dyn FnMut(u64, Result<(), NotDone>, Option<Vec<u8>>)) -> usize {
        let is_closed = self.disk.is_closed.load(Ordering::Relaxed);
        if self.disk.is_held.load(Ordering::Relaxed) && !is_closed {
            return 0;
        }
        let mut count = 0;
        // Newest first: completions may be in any order.
        while let Some((part, mut buffer)) = self.ios.pop_back() {
            count += 1;
            let range = part.offset as usize..part.offset as usize + part.len as usize;
            let mut result = Ok(());
            if is_closed {
                result = Err(NotDone::Closed);
            } else if self.disk.fails.load(Ordering::Relaxed) {
                result = Err(NotDone::Failed);
            } else {
                let mut bytes = self
                    .disk
                    .bytes
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                match (part.operation, &mut buffer) {
                    (Operation::Read, Some(buffer)) => buffer.copy_from_slice(&bytes[range]),
                    (Operation::Write { .. }, Some(buffer)) => bytes[range].copy_from_slice(buffer),
                    (Operation::WriteZeroes { .. } | Operation::Discard, _) => bytes[range].fill(0),
                    (Operation::Flush, _) => {
                        self.disk.flushes.fetch_add(1, Ordering::Relaxed);
                    }
                    _ => result = Err(NotDone::Failed),
                }
            }
            done(part.tag, result, buffer);
        }
        count
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.never.as_fd()
    }

    fn arm(&mut self) -> bool {
        self.ios.is_empty()
    }

    fn disarm(&mut self) {}
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use virtio_bindings::virtio_blk::virtio_blk_config;

    use super::*;

    const DEVICE: Device = Device {
        size: (10 << 20) + 700,
        block_size: 4096,
        flush: true,
        read_only: false,
        queues: 3,
        id: [0; ID_BYTES],
    };

    fn field<const N: usize>(config: &[u8], offset: usize) -> [u8; N] {
        config[offset..offset + N].try_into().expect("within")
    }

    #[test]
    fn config_has_the_layout_of_virtio_blk_config() {
        let config = DEVICE.config();
        assert_eq!(config.len(), size_of::<virtio_blk_config>());
        let u16_at = |offset| u16::from_le_bytes(field(&config, offset));
        let u32_at = |offset| u32::from_le_bytes(field(&config, offset));
        let u64_at = |offset| u64::from_le_bytes(field(&config, offset));
        type C = virtio_blk_config;
        assert_eq!(u64_at(offset_of!(C, capacity)), (10 << 11) + 1);
        assert_eq!(u32_at(offset_of!(C, size_max)), 0);
        assert_eq!(u32_at(offset_of!(C, seg_max)), SEG_MAX);
        assert_eq!(u32_at(offset_of!(C, blk_size)), 512);
        assert_eq!(config[offset_of!(C, physical_block_exp)], 3);
        assert_eq!(config[offset_of!(C, alignment_offset)], 0);
        assert_eq!(u16_at(offset_of!(C, min_io_size)), 8);
        assert_eq!(u32_at(offset_of!(C, opt_io_size)), 0);
        assert_eq!(u16_at(offset_of!(C, num_queues)), 3);
        assert_eq!(u32_at(offset_of!(C, max_discard_sectors)), 32768);
        assert_eq!(u32_at(offset_of!(C, max_discard_seg)), MAX_ZEROES_SEGMENTS);
        assert_eq!(u32_at(offset_of!(C, discard_sector_alignment)), 8);
        assert_eq!(u32_at(offset_of!(C, max_write_zeroes_sectors)), 32768);
        assert_eq!(
            u32_at(offset_of!(C, max_write_zeroes_seg)),
            MAX_ZEROES_SEGMENTS
        );
        assert_eq!(config[offset_of!(C, write_zeroes_may_unmap)], 1);
    }

    #[test]
    fn block_sizes_without_a_topology_are_omitted() {
        for (block_size, exponent, min_io) in [
            (512, 0, 1),
            (4000, 0, 1),
            (100, 0, 1),
            (1 << 20, 11, 2048),
            (1 << 30, 21, 0),
        ] {
            let config = Device {
                block_size,
                ..DEVICE
            }
            .config();
            assert_eq!(config[24], exponent, "{block_size}");
            assert_eq!(
                u16::from_le_bytes(field(&config, 26)),
                min_io,
                "{block_size}"
            );
        }
    }

    #[test]
    fn flush_is_offered_only_by_a_storage_that_has_it() {
        let flush = 1 << VIRTIO_BLK_F_FLUSH;
        assert_eq!(DEVICE.features() & flush, flush);
        assert_eq!(
            Device {
                flush: false,
                ..DEVICE
            }
            .features()
                & flush,
            0
        );
    }

    #[test]
    fn read_only_offers_no_operation_that_writes() {
        let device = Device {
            read_only: true,
            ..DEVICE
        };
        let writes = 1 << VIRTIO_BLK_F_DISCARD | 1 << VIRTIO_BLK_F_WRITE_ZEROES;
        assert_eq!(DEVICE.features() & writes, writes);
        assert_eq!(DEVICE.features() & 1 << VIRTIO_BLK_F_RO, 0);
        assert_eq!(device.features() & writes, 0);
        assert_ne!(device.features() & 1 << VIRTIO_BLK_F_RO, 0);
        assert_eq!(u32::from_le_bytes(field(&device.config(), 36)), 0);
    }
}
