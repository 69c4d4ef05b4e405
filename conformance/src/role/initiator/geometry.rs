//! Storages of odd size.

use super::plan::{BLOCK, BLOCKS, Plan, content};
use super::service::Service;
use crate::role::step::Step;
use crate::role::{Bench, Check, Wrong};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "storage-of-no-blocks",
        meaning: "a storage of 0 bytes makes the initiator fail",
        play: |bench| refused(bench, Plan::new("read_throughput_test").claiming(0, BLOCK)),
    },
    Check {
        name: "blocks-of-no-bytes",
        meaning: "a block size of 0 makes the initiator fail (the reference divides by it)",
        play: |bench| {
            refused(
                bench,
                Plan::new("read_throughput_test").claiming(1 << 20, 0),
            )
        },
    },
    Check {
        name: "block-larger-than-storage",
        meaning: "a storage smaller than its block makes the initiator fail",
        play: |bench| {
            refused(
                bench,
                Plan::new("read_throughput_test").claiming(512, BLOCK),
            )
        },
    },
    Check {
        name: "io-size-overflow",
        meaning: "blocks so large that --blocks-per-io of them do not fit the size field make the initiator fail (the reference divides by what is left)",
        play: |bench| {
            let plan = Plan::new("read_throughput_test").blocks_per_io(2);
            refused(bench, plan.claiming(1 << 33, 1 << 31))
        },
    },
    Check {
        name: "storage-beyond-memory",
        meaning: "a storage larger than any memory makes an initiator fail that needs as much of its own",
        play: |bench| {
            refused(
                bench,
                Plan::new("read_throughput_test").claiming(1 << 60, BLOCK),
            )
        },
    },
    Check {
        name: "storage-of-the-largest-size",
        meaning: "a storage of the largest number of bytes that the field holds makes the initiator fail",
        play: |bench| {
            let plan = Plan::new("read_write_data_validity_test");
            refused(bench, plan.claiming(u64::MAX, u32::MAX))
        },
    },
    Check {
        name: "storage-of-broken-blocks",
        meaning: "a storage that is no multiple of its block size: the initiator fails, or keeps to whole blocks inside of it",
        play: broken_blocks,
    },
    Check {
        name: "storage-of-broken-ios",
        meaning: "a storage that is no multiple of --blocks-per-io blocks: every request keeps inside of it",
        play: broken_ios,
    },
    Check {
        name: "storage-beyond-4-gib",
        meaning: "two workers on a storage of 16 GiB through a small local region: neither gets a block of the other's (the reference's sums have 32 bits)",
        play: beyond_4_gib,
    },
    Check {
        name: "odd-block-size",
        meaning: "blocks of 1536 bytes are read and written like any",
        play: |bench| {
            let size = 1536;
            let plan = Plan::new("read_write_data_validity_test").holding(content(24 * size, 1));
            Service::begin(bench, plan.block_size(size))?.succeed()
        },
    },
    Check {
        name: "plain-content-too-short",
        meaning: "--storage-plain-content of fewer bytes than the storage makes a validity test fail",
        play: |bench| wrong_content(bench, "read_only_data_validity_test", (BLOCKS - 1) * BLOCK),
    },
    Check {
        name: "plain-content-too-long",
        meaning: "--storage-plain-content of more bytes than the storage makes a validity test fail",
        play: |bench| wrong_content(bench, "read_write_data_validity_test", BLOCKS * BLOCK + 1),
    },
];

/// The initiator fails sooner or later: at once, or when it looks at the sizes.
fn refused(bench: &Bench<'_>, plan: Plan) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan.impatient())?;
    // One that goes on is played with until it notices.
    service.play_on(|data, io| data.answer(&io, 0));
    service.expect_failure()
}

fn broken_blocks(bench: &Bench<'_>) -> Result<(), Wrong> {
    let size = u64::from(BLOCKS * BLOCK) + 100;
    let plan = Plan::new("read_throughput_test")
        .operations(2 * BLOCKS)
        .claiming(size, BLOCK);
    let mut service = Service::begin(bench, plan)?;
    let request = service.until(Step::Query)?;
    service.answer(&request)?;
    let Ok(request) = service.until(Step::Init) else {
        return service.expect_failure();
    };
    service.answer(&request)?;
    service.finish_with(|data, io| data.answer(&io, 0))?;
    service.expect_end()
}

fn broken_ios(bench: &Bench<'_>) -> Result<(), Wrong> {
    let plan = Plan::new("read_write_data_validity_test")
        .blocks_per_io(5)
        .operations(6)
        .transactions(3);
    Service::begin(bench, plan)?.succeed()
}

fn beyond_4_gib(bench: &Bench<'_>) -> Result<(), Wrong> {
    let block_size: u32 = 1 << 20;
    let plan = Plan::new("read_throughput_test")
        .workers(2)
        .operations(8)
        .flags(&["--local-io-region-size", &(16 * block_size).to_string()])
        .claiming(16 << 30, block_size);
    let mut service = Service::begin(bench, plan)?;
    service.finish_with(|data, io| data.answer(&io, 0))?;
    service.expect_success()?;
    let places_of = |worker| {
        let own = service.seen().iter().filter(move |io| io.worker == worker);
        own.map(|io| io.request.storage_offset)
    };
    let shared = places_of(0).find(|place| places_of(1).any(|other| other == *place));
    Wrong::unless(
        shared.is_none(),
        "each worker to keep to its own blocks",
        format!("both at storage offset {}", shared.unwrap_or_default()),
    )
}

fn wrong_content(bench: &Bench<'_>, strategy: &'static str, len: u32) -> Result<(), Wrong> {
    let file = bench.scene().file("plain", &content(len, 0x5a))?;
    let plan = Plan::new(strategy).flags(&["--storage-plain-content", &file.to_string_lossy()]);
    let mut service = Service::begin(bench, plan)?;
    let request = service.until(Step::Query)?;
    service.answer(&request)?;
    service.expect_failure()
}
