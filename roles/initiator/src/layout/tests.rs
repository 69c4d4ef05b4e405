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
    // Not even one fits.
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
