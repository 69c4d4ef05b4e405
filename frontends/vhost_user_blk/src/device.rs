//! The device presented to front ends: features, configuration space, and limits of requests.

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
    VIRTIO_BLK_ID_BYTES,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// Size of a sector in bytes: the unit of offsets and lengths in virtio-blk, regardless of the block size.
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
        // Only if the field can represent it: the number of sectors must be a power of two.
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
        // Cylinders, heads and sectors are not specified.
        config.extend([0; 4]);
        config.extend((SECTOR as u32).to_le_bytes());
        config.extend([blocks_exponent as u8, 0]);
        let min_io = u16::try_from(sectors_per_block).unwrap_or(0);
        config.extend(min_io.to_le_bytes());
        // The optimal I/O size is not specified.
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
