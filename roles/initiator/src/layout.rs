//! Division of storage and local memory into I/Os, and of the I/Os among workers.
//!
//! The division is that of the reference (equal shares, the first workers take the remainder) with one difference: the
//! last I/O of the storage may be shorter, where the reference ignores the blocks after the last whole I/O.
//!
//! [`Storage`] is the session's view of the storage: its division, local memory, and expected data.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use control::Failure;
use doca::{Access, Device, MemoryRegion, Mmap};
use thiserror::Error;
use wire::control::{InitStorage, StorageDetails};
use wire::release::Release;

use crate::app::{Flags, Strategy};
use crate::data_path::{Content, Extent, Pattern, Task, Validator};

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
        count: u64,
        /// Bytes per I/O.
        io_size: u32,
    },
    /// A worker would have no storage.
    #[error(
        "the storage holds {count} I/Os of {io_size} bytes; expected at least one for each of the {workers} --cpu; use fewer"
    )]
    StorageTooSmall {
        /// Number of I/Os.
        count: u32,
        /// Bytes per I/O.
        io_size: u32,
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
    /// I/Os in the worker's part of the storage, the last of which may be short.
    pub ios: u32,
    /// Offset of its part of the local region in bytes.
    pub local_offset: u64,
    /// I/Os that fit in its part of the local region.
    pub local_slots: u32,
    /// Transactions in flight: at most the number of storage I/Os or local slots.
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
        // The default is the size of the storage, rounded up to a whole I/O, with a limit because the size is reported
        // by the service and not trusted.
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

/// Equal shares; the first workers each take one more until the remainder is used up.
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
    /// First slot that has never been allocated.
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

    /// Allocates the slot that has been free for the longest time; `None` if all are in use.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        if self.fresh < self.count {
            self.fresh += 1;
            return Some(self.fresh - 1);
        }
        self.returned.pop_front()
    }

    /// Allocates the slot that was freed last, whose memory is likely still cached; `None` if all are in use.
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

/// A permutation of slots in which adjacent slots are far apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride {
    /// Coprime to the count; 1 for the identity.
    step: u64,
    count: u64,
}

impl Stride {
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

/// Reads the expected data, if the strategy compares with a file.
///
/// # Errors
/// The file cannot be read.
pub fn load_content(flags: &Flags) -> Result<Option<Arc<[u8]>>, Failure> {
    let wanted = flags.execution_strategy.validates();
    flags
        .storage_plain_content
        .as_deref()
        .filter(|_| wanted)
        .map(read)
        .transpose()
}

fn read(path: &Path) -> Result<Arc<[u8]>, Failure> {
    let bytes = std::fs::read(path).map_err(|error| {
        Failure::invalid(format!(
            "--storage-plain-content {}: {error}",
            path.display()
        ))
    })?;
    Ok(bytes.into())
}

/// Seed of the pattern; `None` if no pattern is validated.
#[must_use]
pub fn reported_seed(flags: &Flags, plain: Option<&Arc<[u8]>>, seed: u64) -> Option<u64> {
    (flags.execution_strategy == Strategy::ReadWriteDataValidityTest && plain.is_none())
        .then_some(seed)
}

/// Division of the storage, and the local memory for it.
#[derive(Debug)]
pub struct Storage {
    layout: Layout,
    content: Content,
    region: Arc<MemoryRegion>,
    /// Keeps the region registered while the value exists.
    mmap: Mmap,
}

impl Storage {
    /// Divides the storage, allocates the local region and registers it.
    ///
    /// # Errors
    /// The storage does not match the flags or the expected data, or there is not enough memory.
    pub fn open(
        device: &Device,
        details: &StorageDetails,
        flags: &Flags,
        plain: Option<Arc<[u8]>>,
        seed: u64,
    ) -> Result<Self, Failure> {
        let layout = Layout::new(
            details,
            Request {
                workers: flags.cpu.len() as u32,
                blocks_per_io: flags.blocks_per_io,
                local_region_size: flags.local_io_region_size,
                is_mirrored: flags.release() == Release::V3_0,
                transactions: flags.transactions(),
                operations: flags.run_limit_operation_count,
            },
        )?;
        let content = match plain {
            Some(bytes) => {
                layout.check_content(bytes.len() as u64)?;
                Content::Plain(bytes)
            }
            None => Content::Pattern(Pattern::new(seed)),
        };
        let size = layout.region_size;
        let memory = |error: doca::Error| {
            Failure::from(error).context(format_args!(
                "{size} bytes of local memory (--local-io-region-size makes it less)"
            ))
        };
        let length = usize::try_from(size).map_err(|_| {
            Failure::invalid(format!(
                "{size} bytes of local memory are no size of memory"
            ))
        })?;
        let region = MemoryRegion::new(length).map_err(memory)?;
        if flags.execution_strategy == Strategy::WriteThroughputTest {
            fill(&layout, &region, seed).map_err(memory)?;
        }
        let access = Access::LOCAL_READ_WRITE
            | Access::PCI_READ_WRITE
            | Access::RDMA_READ
            | Access::RDMA_WRITE;
        let mmap = Mmap::register(device, Arc::clone(&region), access).map_err(memory)?;
        Ok(Self {
            layout,
            content,
            region,
            mmap,
        })
    }

    /// Builds the init request.
    ///
    /// # Errors
    /// The region could not be exported.
    pub fn init(&self, device: &Device) -> Result<InitStorage, Failure> {
        Ok(InitStorage {
            transaction_count: self.layout.transactions,
            core_count: self.layout.shares.len() as u32,
            mmap_export_blob: Bytes::from(self.mmap.export_pci(device)?),
        })
    }

    /// Address of the local region.
    #[must_use]
    pub fn local_address(&self) -> u64 {
        self.mmap.base_address()
    }

    /// One task per worker, in order.
    #[must_use]
    pub fn tasks(&self, flags: &Flags) -> Vec<Task> {
        let strategy = flags.execution_strategy;
        let validator = || {
            Validator::new(
                self.content.clone(),
                Arc::clone(&self.region),
                self.layout.block_size,
            )
        };
        let task = |&share| Task {
            share,
            io_size: self.layout.io_size,
            strategy,
            validator: strategy.validates().then(validator),
            operations: flags.run_limit_operation_count,
            flush_every: flags.flush_every,
            order: flags.access_order,
            io_timeout: flags.io_timeout,
            is_mirrored: flags.release() == Release::V3_0,
        };
        self.layout.shares.iter().map(task).collect()
    }
}

/// Fills the region with the pattern, so that a write test does not write zero pages only.
fn fill(layout: &Layout, region: &Arc<MemoryRegion>, seed: u64) -> doca::Result<()> {
    let mut validator = Validator::new(
        Content::Pattern(Pattern::new(seed)),
        Arc::clone(region),
        layout.block_size,
    );
    let slots = layout.region_size / u64::from(layout.io_size);
    (0..slots).try_for_each(|slot| {
        let offset = slot * u64::from(layout.io_size);
        validator.fill(Extent {
            local_offset: offset,
            storage_offset: offset,
            size: layout.io_size,
            pass: 0,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request {
        workers: 1,
        blocks_per_io: 1,
        local_region_size: 0,
        is_mirrored: false,
        transactions: 64,
        operations: 1_000_000,
    };

    fn storage(blocks: u64, block_size: u32) -> StorageDetails {
        StorageDetails {
            total_size: blocks * u64::from(block_size),
            block_size,
        }
    }

    #[test]
    fn single_worker_gets_the_whole_storage() {
        let layout = Layout::new(&storage(100, 4096), REQUEST).expect("fits");
        assert_eq!(layout.io_size, 4096);
        assert_eq!(layout.region_size, 409_600);
        assert_eq!(
            layout.shares,
            [Share {
                storage_offset: 0,
                storage_size: 409_600,
                ios: 100,
                local_offset: 0,
                local_slots: 100,
                transactions: 64
            }]
        );
    }

    #[test]
    fn remainders_go_to_the_first_workers() {
        let layout = Layout::new(
            &storage(11, 512),
            Request {
                workers: 3,
                local_region_size: 512 * 8,
                ..REQUEST
            },
        )
        .expect("fits");
        let ios: Vec<_> = layout
            .shares
            .iter()
            .map(|share| (share.storage_offset / 512, share.ios))
            .collect();
        let slots: Vec<_> = layout
            .shares
            .iter()
            .map(|share| (share.local_offset / 512, share.local_slots))
            .collect();
        assert_eq!(ios, [(0, 4), (4, 4), (8, 3)]);
        assert_eq!(slots, [(0, 3), (3, 3), (6, 2)]);
        assert_eq!(
            layout
                .shares
                .iter()
                .map(|share| share.transactions)
                .collect::<Vec<_>>(),
            [3, 3, 2]
        );
    }

    #[test]
    fn shares_cover_the_storage_without_overlap() {
        for workers in 1..=5 {
            for blocks in [5u64, 6, 7, 64, 101] {
                for blocks_per_io in [1u16, 2, 3, 4] {
                    let Ok(layout) = Layout::new(
                        &storage(blocks, 512),
                        Request {
                            workers,
                            blocks_per_io,
                            ..REQUEST
                        },
                    ) else {
                        assert!(blocks.div_ceil(u64::from(blocks_per_io)) < u64::from(workers));
                        continue;
                    };
                    let mut next = 0;
                    for share in &layout.shares {
                        assert_eq!(share.storage_offset, next);
                        assert!(share.transactions >= 1);
                        next += share.storage_size;
                    }
                    assert_eq!(
                        next, layout.capacity,
                        "{workers} workers, {blocks} blocks, {blocks_per_io} per I/O"
                    );
                }
            }
        }
    }

    #[test]
    fn the_last_io_may_be_short() {
        let layout = Layout::new(
            &storage(10, 4096),
            Request {
                blocks_per_io: 4,
                ..REQUEST
            },
        )
        .expect("fits");
        assert_eq!(layout.shares[0].ios, 3);
        assert_eq!(layout.shares[0].storage_size, 40_960);
        assert_eq!(layout.region_size, 3 * 16_384);
    }

    #[test]
    fn few_operations_need_few_transactions() {
        let layout = Layout::new(
            &storage(100, 4096),
            Request {
                operations: 3,
                ..REQUEST
            },
        )
        .expect("fits");
        assert_eq!((layout.transactions, layout.shares[0].transactions), (3, 3));
    }

    #[test]
    fn impossible_geometries_are_refused() {
        for (total_size, block_size) in [(0, 512), (512, 0), (1000, 512), (511, 512)] {
            assert_eq!(
                Layout::new(
                    &StorageDetails {
                        total_size,
                        block_size
                    },
                    REQUEST
                ),
                Err(LayoutError::Geometry {
                    total_size,
                    block_size
                })
            );
        }
        assert!(matches!(
            Layout::new(
                &storage(4, 1 << 30),
                Request {
                    blocks_per_io: 4,
                    ..REQUEST
                }
            ),
            Err(LayoutError::IoSize {
                blocks_per_io: 4,
                ..
            })
        ));
        assert!(matches!(
            Layout::new(&storage(1 << 33, 512), REQUEST),
            Err(LayoutError::TooManyIos { .. })
        ));
    }

    #[test]
    fn storage_smaller_than_one_io_per_worker_is_refused() {
        let error = Layout::new(
            &storage(2, 512),
            Request {
                workers: 3,
                ..REQUEST
            },
        )
        .expect_err("too small");
        assert!(error.to_string().contains("--cpu"), "{error}");
        let error = Layout::new(
            &storage(8, 512),
            Request {
                workers: 2,
                local_region_size: 1000,
                ..REQUEST
            },
        )
        .expect_err("too small");
        assert!(
            error.to_string().contains("--local-io-region-size 1000")
                && error.to_string().contains("1024"),
            "{error}"
        );
    }

    #[test]
    fn content_must_have_the_size_of_the_storage() {
        let layout = Layout::new(&storage(8, 512), REQUEST).expect("fits");
        assert_eq!(layout.check_content(4096), Ok(()));
        assert_eq!(
            layout.check_content(4095),
            Err(LayoutError::ContentSize {
                content: 4095,
                capacity: 4096
            })
        );
    }

    #[test]
    fn huge_reported_capacity_does_not_cause_a_huge_allocation() {
        // Petabytes.
        let layout = Layout::new(&storage(1 << 31, 1 << 20), REQUEST).expect("fits");
        assert_eq!(layout.region_size, LARGEST_DEFAULT_REGION);
        assert_eq!(layout.shares[0].local_slots, 1024);
        let asked = Request {
            local_region_size: 4 << 30,
            ..REQUEST
        };
        let layout = Layout::new(&storage(1 << 31, 1 << 20), asked).expect("fits");
        assert_eq!(layout.region_size, 4 << 30, "who asks for it gets it");
        // Not even one I/O fits.
        let error = Layout::new(&storage(1 << 10, 1 << 31), REQUEST).expect_err("too large");
        assert!(
            matches!(error, LayoutError::RegionTooSmall { .. }),
            "{error}"
        );
    }

    #[test]
    fn mirrored_local_region_has_the_size_of_the_storage() {
        let blocks = 2 * LARGEST_DEFAULT_REGION / 4096 + 1;
        let layout = Layout::new(
            &storage(blocks, 4096),
            Request {
                workers: 3,
                blocks_per_io: 2,
                is_mirrored: true,
                ..REQUEST
            },
        )
        .expect("fits");
        assert_eq!(layout.region_size, layout.capacity);
        for share in &layout.shares {
            assert_eq!(share.local_offset, share.storage_offset);
            assert_eq!(share.local_slots, share.ios);
        }
    }

    #[test]
    fn scattered_order_visits_all_slots_without_neighbours() {
        for count in [1, 2, 3, 4, 12, 97, 1000, 4096] {
            let stride = Stride::scattered(count);
            let places: Vec<u64> = (0..count).map(|number| stride.place(number)).collect();
            let mut sorted = places.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..u64::from(count)), "{count}");
            if count > 12 {
                let close = |pair: &[u64]| pair[0].abs_diff(pair[1]) < 4;
                assert!(!places.windows(2).any(close), "{count}");
            }
        }
        assert_eq!(Stride::ONE.place(7), 7);
        assert!(Stride::scattered(u32::MAX).place(u32::MAX - 1) < u64::from(u32::MAX));
    }

    #[test]
    fn warm_slot_is_the_last_freed_and_never_one_in_use() {
        let mut pool = Pool::new(4);
        let taken: Vec<_> = (0..3).map_while(|_| pool.take_warm()).collect();
        assert_eq!(taken, [0, 1, 2]);
        pool.give(0);
        pool.give(2);
        assert_eq!(pool.take_warm(), Some(2));
        assert_eq!(pool.take_warm(), Some(0));
        assert_eq!(pool.take_warm(), Some(3), "the fresh one comes last");
        assert_eq!(pool.take_warm(), None);
    }

    #[test]
    fn slots_are_allocated_in_order_and_repeatedly() {
        let mut pool = Pool::new(5);
        for _ in 0..3 {
            for expected in 0..5 {
                let place = pool.take().expect("free");
                assert_eq!(place, expected);
                pool.give(place);
            }
        }
    }

    #[test]
    fn slot_in_use_is_never_allocated() {
        let mut pool = Pool::new(3);
        let taken = [pool.take(), pool.take(), pool.take()];
        assert_eq!(taken, [Some(0), Some(1), Some(2)]);
        assert_eq!(pool.take(), None);
        pool.give(1);
        assert_eq!(pool.take(), Some(1));
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn slots_are_reused_in_order_of_completion() {
        let mut pool = Pool::new(4);
        let (a, b) = (pool.take().expect("free"), pool.take().expect("free"));
        pool.give(b);
        pool.give(a);
        assert_eq!(
            [pool.take(), pool.take(), pool.take(), pool.take()],
            [Some(2), Some(3), Some(1), Some(0)]
        );
    }

    #[test]
    fn allocating_does_not_depend_on_the_number_of_slots() {
        let mut pool = Pool::new(u32::MAX);
        assert_eq!([pool.take(), pool.take()], [Some(0), Some(1)]);
        pool.give(0);
        assert_eq!(pool.take(), Some(2));
        assert!(
            pool.returned.capacity() <= 2 * PREPARED,
            "{}",
            pool.returned.capacity()
        );
    }
}
