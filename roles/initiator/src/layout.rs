//! How storage and local memory are divided into I/Os, and the I/Os among workers.
//!
//! The division is the reference's (equal shares, the first workers take the remainder), with one difference: the last I/O of the
//! storage may be shorter than the others, where the reference leaves the blocks behind the last whole I/O alone.

use thiserror::Error;
use wire::control::StorageDetails;

/// Why a storage and the flags do not fit together.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LayoutError {
    /// The service reports a geometry that no storage can have.
    #[error(
        "the service reports a capacity of {total_size} bytes in blocks of {block_size} bytes; expected a whole, non-zero number of blocks"
    )]
    Geometry {
        /// Capacity, bytes.
        total_size: u64,
        /// Block size, bytes.
        block_size: u32,
    },
    /// The size of one I/O does not fit the protocol's field.
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
    /// More I/Os than the address pools count.
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
        /// How many I/Os fit.
        slots: u32,
        /// Bytes per I/O.
        io_size: u32,
        /// Number of workers.
        workers: u32,
    },
    /// Expected content and storage differ in size.
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

/// What the flags say about sizes and counts.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Number of worker threads, at least 1.
    pub workers: u32,
    /// Blocks in one I/O, at least 1.
    pub blocks_per_io: u16,
    /// Bytes of local memory; 0 for the size of the storage.
    pub local_region_size: u64,
    /// Transactions that each worker may have in flight, at least 1.
    pub transactions: u32,
    /// Operations of each worker, at least 1.
    pub operations: u32,
}

/// The division of one storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Capacity of the storage, bytes.
    pub capacity: u64,
    /// Block size of the storage, bytes.
    pub block_size: u32,
    /// Bytes of an I/O; the last one of the storage may have less.
    pub io_size: u32,
    /// Bytes of local memory to allocate.
    pub region_size: u64,
    /// Transactions per worker, as the service is told.
    pub transactions: u32,
    /// One share per worker, in order.
    pub shares: Vec<Share>,
}

/// What one worker works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Where its part of the storage begins, bytes.
    pub storage_offset: u64,
    /// Bytes of its part of the storage.
    pub storage_size: u64,
    /// I/Os in its part of the storage, the last of them possibly short.
    pub ios: u32,
    /// Where its part of the local region begins, bytes.
    pub local_offset: u64,
    /// I/Os that fit in its part of the local region.
    pub local_slots: u32,
    /// Transactions in flight: never more than storage I/Os or local slots.
    pub transactions: u32,
}

impl Layout {
    /// Divides the storage that the service reports as the flags request.
    ///
    /// # Errors
    /// [`LayoutError`] when the reported geometry is impossible or does not fit the flags.
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
        // The default is the storage's size, with room for a whole I/O where the last one is short.
        let region_size = match request.local_region_size {
            0 => u64::from(ios) * u64::from(io_size),
            size => size,
        };
        let slots = u32::try_from(region_size / u64::from(io_size)).unwrap_or(u32::MAX);
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
    /// [`LayoutError::ContentSize`] when they do not.
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

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request {
        workers: 1,
        blocks_per_io: 1,
        local_region_size: 0,
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
    fn one_worker_takes_all() {
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
    fn every_worker_needs_a_share() {
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
}
