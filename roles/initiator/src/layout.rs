//! Division of storage and local memory into I/Os, and of the I/Os among workers.
//!
//! The division is the reference's (equal shares, the first workers take the remainder) with one difference: the last
//! I/O of the storage may be shorter, where the reference ignores the blocks after the last whole I/O.

use std::collections::VecDeque;

use role_common::Failure;
use thiserror::Error;
use wire::control::StorageDetails;

/// Mismatch between a storage and the flags.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LayoutError {
    /// The service reports an impossible geometry.
    #[error(
        "the service reports a capacity of {total_size} bytes in blocks of {block_size} bytes; expected a whole, non-zero number of blocks"
    )]
    Geometry {
        /// Capacity, bytes.
        total_size: u64,
        /// Block size, bytes.
        block_size: u32,
    },
    /// The size of an I/O does not fit the protocol's field.
    #[error(
        "--blocks-per-io {blocks_per_io} makes I/Os of {blocks_per_io} * {block_size} bytes; expected at most {} bytes",
        u32::MAX
    )]
    IoSize {
        /// Value of the flag.
        blocks_per_io: u16,
        /// Block size, bytes.
        block_size: u32,
    },
    /// More I/Os than the address pools support.
    #[error(
        "the storage holds {count} I/Os of {io_size} bytes; expected at most {}; raise --blocks-per-io",
        u32::MAX
    )]
    TooManyIos {
        /// Number of I/Os.
        count: u64,
        /// Bytes per I/O.
        io_size: u32,
    },
    /// A worker would have no storage.
    #[error(
        "the storage holds {count} I/Os of {io_size} bytes; expected at least one for each of the {workers} --cpu; give fewer"
    )]
    StorageTooSmall {
        /// Number of I/Os.
        count: u32,
        /// Bytes per I/O.
        io_size: u32,
        /// Number of workers.
        workers: u32,
    },
    /// A worker would have no local memory.
    #[error(
        "--local-io-region-size {size} holds {slots} I/Os of {io_size} bytes; expected at least one for each of the {workers} --cpu, \
         {} bytes", u64::from(*.io_size) * u64::from(*.workers)
    )]
    RegionTooSmall {
        /// Value of the flag, bytes.
        size: u64,
        /// Number of I/Os that fit.
        slots: u32,
        /// Bytes per I/O.
        io_size: u32,
        /// Number of workers.
        workers: u32,
    },
    /// Expected data and storage differ in size.
    #[error(
        "--storage-plain-content has {content} bytes and the storage {capacity}; a validity test expects the same size"
    )]
    ContentSize {
        /// Size of the file, bytes.
        content: u64,
        /// Capacity of the storage, bytes.
        capacity: u64,
    },
}

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// Maximum size of local memory chosen by default, in bytes; larger sizes must be requested.
pub const LARGEST_DEFAULT_REGION: u64 = 1 << 30;

/// Sizes and counts selected by the flags.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Number of worker threads, at least 1.
    pub workers: u32,
    /// Blocks in one I/O, at least 1.
    pub blocks_per_io: u16,
    /// Size of local memory in bytes; 0 for the size of the storage, at most [`LARGEST_DEFAULT_REGION`].
    pub local_region_size: u64,
    /// `true` if each I/O has the same offset in local memory as in the storage, so that both have the same size.
    pub is_mirrored: bool,
    /// Transactions that each worker may have in flight, at least 1.
    pub transactions: u32,
    /// Operations of each worker, at least 1.
    pub operations: u32,
}

/// Division of a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Capacity of the storage, bytes.
    pub capacity: u64,
    /// Block size of the storage, bytes.
    pub block_size: u32,
    /// Size of an I/O in bytes; the last one of the storage may be smaller.
    pub io_size: u32,
    /// Size of local memory in bytes.
    pub region_size: u64,
    /// Transactions per worker, as sent to the service.
    pub transactions: u32,
    /// One share per worker, in order.
    pub shares: Vec<Share>,
}

/// A worker's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Offset of its part of the storage in bytes.
    pub storage_offset: u64,
    /// Size of its part of the storage in bytes.
    pub storage_size: u64,
    /// I/Os in its part of the storage, the last of them possibly short.
    pub ios: u32,
    /// Offset of its part of the local region in bytes.
    pub local_offset: u64,
    /// I/Os that fit in its part of the local region.
    pub local_slots: u32,
    /// Transactions in flight: never more than storage I/Os or local slots.
    pub transactions: u32,
}

impl Layout {
    /// Divides the storage reported by the service as requested by the flags.
    ///
    /// # Errors
    /// [`LayoutError`] if the reported geometry is impossible or does not match the flags.
    pub fn new(storage: &StorageDetails, request: Request) -> Result<Self, LayoutError> {
        let &StorageDetails {
            total_size: capacity,
            block_size,
        } = storage;
        if capacity == 0 || block_size == 0 || !capacity.is_multiple_of(u64::from(block_size)) {
            return Err(LayoutError::Geometry {
                total_size: capacity,
                block_size,
            });
        }
        let io_size = block_size
            .checked_mul(u32::from(request.blocks_per_io))
            .ok_or(LayoutError::IoSize {
                blocks_per_io: request.blocks_per_io,
                block_size,
            })?;
        let count = capacity.div_ceil(u64::from(io_size));
        let ios = u32::try_from(count).map_err(|_| LayoutError::TooManyIos { count, io_size })?;
        if ios < request.workers {
            return Err(LayoutError::StorageTooSmall {
                count: ios,
                io_size,
                workers: request.workers,
            });
        }
        // The default is the size of the storage, rounded up to a whole I/O. The size is the service's claim, which is
        // not trusted for allocation.
        let most = LARGEST_DEFAULT_REGION / u64::from(io_size);
        let region_size = match request.local_region_size {
            0 => u64::from(ios).min(most) * u64::from(io_size),
            size => size,
        };
        let (region_size, slots) = if request.is_mirrored {
            (capacity, ios)
        } else {
            let slots = u32::try_from(region_size / u64::from(io_size)).unwrap_or(u32::MAX);
            (region_size, slots)
        };
        if slots < request.workers {
            return Err(LayoutError::RegionTooSmall {
                size: region_size,
                slots,
                io_size,
                workers: request.workers,
            });
        }
        let transactions = request.transactions.min(request.operations);
        Ok(Self {
            capacity,
            block_size,
            io_size,
            region_size,
            transactions,
            shares: shares(capacity, io_size, ios, slots, transactions, request.workers),
        })
    }

    /// Checks that `content` bytes of expected content cover exactly the storage.
    ///
    /// # Errors
    /// [`LayoutError::ContentSize`] if they do not.
    pub fn check_content(&self, content: u64) -> Result<(), LayoutError> {
        if content == self.capacity {
            Ok(())
        } else {
            Err(LayoutError::ContentSize {
                content,
                capacity: self.capacity,
            })
        }
    }
}

fn shares(
    capacity: u64,
    io_size: u32,
    ios: u32,
    slots: u32,
    transactions: u32,
    workers: u32,
) -> Vec<Share> {
    let (mut first_io, mut first_slot) = (0, 0);
    (0..workers)
        .map(|worker| {
            let ios = share_of(ios, workers, worker);
            let local_slots = share_of(slots, workers, worker);
            let storage_offset = u64::from(first_io) * u64::from(io_size);
            let share = Share {
                storage_offset,
                storage_size: (u64::from(ios) * u64::from(io_size)).min(capacity - storage_offset),
                ios,
                local_offset: u64::from(first_slot) * u64::from(io_size),
                local_slots,
                transactions: transactions.min(ios).min(local_slots),
            };
            first_io += ios;
            first_slot += local_slots;
            share
        })
        .collect()
}

/// Equal shares; the first workers take one more each until the remainder is used up.
const fn share_of(total: u32, workers: u32, worker: u32) -> u32 {
    total / workers + (worker < total % workers) as u32
}

/// Initial capacity of a pool: visits of up to this many slots do not allocate.
const PREPARED: usize = 1 << 20;

/// A fixed set of slots numbered from 0, allocated oldest first. It uses memory for visited slots only, because their
/// number is reported by a service and is not trusted.
#[derive(Debug)]
pub struct Pool {
    count: u32,
    /// First slot that was never allocated.
    fresh: u32,
    /// Freed slots, in order.
    returned: VecDeque<u32>,
}

impl Pool {
    /// Creates a pool with slots `0..count`, all free.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self {
            count,
            fresh: 0,
            returned: VecDeque::with_capacity(PREPARED.min(count as usize)),
        }
    }

    /// Allocates the slot that has been free longest; `None` if all are in use.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        if self.fresh < self.count {
            self.fresh += 1;
            return Some(self.fresh - 1);
        }
        self.returned.pop_front()
    }

    /// Allocates the slot freed last, whose memory is likely still cached; `None` if all are in use.
    #[inline]
    pub fn take_warm(&mut self) -> Option<u32> {
        match self.returned.pop_back() {
            None => self.take(),
            place => place,
        }
    }

    /// Frees a slot.
    #[inline]
    pub fn give(&mut self, place: u32) {
        debug_assert!(
            self.returned.len() < self.fresh as usize,
            "more places given back than taken"
        );
        self.returned.push_back(place);
    }
}

/// A permutation of slots in which neighbours are apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride {
    /// Coprime to the count; 1 for the identity.
    step: u64,
    count: u64,
}

impl Stride {
    /// The identity.
    pub const ONE: Self = Self { step: 1, count: 0 };

    /// Scatters `count` slots by steps of about their golden section: no two within a run of consecutive numbers are
    /// close.
    #[must_use]
    pub fn scattered(count: u32) -> Self {
        let count = u64::from(count);
        let golden = (count as f64 * 0.618_033_988_749_895) as u64;
        let step = (golden.max(1)..=count)
            .find(|&step| divisor(step, count) == 1)
            .unwrap_or(1);
        Self { step, count }
    }

    /// Slot with this number.
    #[inline(always)]
    #[must_use]
    pub const fn place(self, number: u32) -> u64 {
        if self.step == 1 {
            number as u64
        } else {
            number as u64 * self.step % self.count
        }
    }
}

/// Greatest common divisor.
fn divisor(one: u64, other: u64) -> u64 {
    if other == 0 {
        one
    } else {
        divisor(other, one % other)
    }
}

#[cfg(test)]
mod tests;
