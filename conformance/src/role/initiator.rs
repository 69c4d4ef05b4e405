//! Checks of an initiator against a scripted service with its own storage. This file contains the checks of the
//! strategies.

mod data_path;
mod service;
mod sessions;

use deployment::implementation::Usage;
use wire::control::StorageDetails;

use super::{Check, Fixture, Step};
use crate::violation::Violation;
use data_path::{DataPath, Io};
use service::Service;

/// Names of the checks with a local region that is smaller than the storage.
pub(super) const NEED_SMALL_REGIONS: [&str; 2] = ["small-local-region", "storage-beyond-4-gib"];

/// All checks, regular sessions first.
pub(super) fn checks() -> Vec<Check> {
    [
        CHECKS,
        sessions::CHECKS,
        GEOMETRY_CHECKS,
        data_path::RESULT_CHECKS,
        sessions::CONTROL_FAULT_CHECKS,
        sessions::DEPARTURE_CHECKS,
    ]
    .concat()
}

// Parameters of an initiator under test.

/// Flags of the initiator, and the storage that is presented to it.
#[derive(Debug, Clone)]
struct Plan {
    strategy: &'static str,
    flags: Vec<String>,
    workers: u32,
    operations: u32,
    transactions: u32,
    blocks_per_io: u32,
    details: StorageDetails,
    storage: Vec<u8>,
}

/// Default block size in bytes.
const BLOCK: u32 = 4096;

/// Default number of blocks.
const BLOCKS: u32 = 16;

impl Plan {
    /// One worker that submits one I/O for each block of the storage, with four in flight.
    fn new(strategy: &'static str) -> Self {
        Self {
            strategy,
            flags: Vec::new(),
            workers: 1,
            operations: BLOCKS,
            transactions: 4,
            blocks_per_io: 1,
            details: StorageDetails {
                total_size: u64::from(BLOCKS * BLOCK),
                block_size: BLOCK,
            },
            storage: content(BLOCKS * BLOCK, 0x5a),
        }
    }

    /// Adds flags.
    fn flags(mut self, flags: &[&str]) -> Self {
        self.flags
            .extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// Flags in addition to those of the fixture, as spelled by a program with this usage.
    fn arguments(&self, usage: &Usage) -> Vec<String> {
        let mut counts = vec![
            ("--run-limit-operation-count", self.operations),
            (usage.transactions_flag(), self.transactions),
        ];
        // Up to version 3.1 of the reference, an I/O is one block.
        if self.blocks_per_io != 1 || usage.has("--blocks-per-io") {
            counts.push(("--blocks-per-io", self.blocks_per_io));
        }
        let counts = counts
            .into_iter()
            .map(|(flag, count)| [flag.to_owned(), count.to_string()]);
        let mut arguments: Vec<_> = counts.flatten().collect();
        // The fixture adds the first.
        for _ in 1..self.workers {
            arguments.extend(["--cpu".to_owned(), "0".to_owned()]);
        }
        arguments.extend_from_slice(&self.flags);
        arguments
    }

    /// Sets a control timeout of 1 s.
    fn impatient(self) -> Self {
        self.flags(&["--control-timeout", "1"])
    }

    fn workers(mut self, count: u32) -> Self {
        self.workers = count;
        self
    }

    fn operations(mut self, count: u32) -> Self {
        self.operations = count;
        self
    }

    fn transactions(mut self, count: u32) -> Self {
        self.transactions = count;
        self
    }

    fn blocks_per_io(mut self, count: u32) -> Self {
        self.blocks_per_io = count;
        self
    }

    /// Reports a storage of this size, without contents: no data may be transferred.
    fn claiming(mut self, total_size: u64, block_size: u32) -> Self {
        self.details = StorageDetails {
            total_size,
            block_size,
        };
        self.storage = Vec::new();
        self
    }

    fn block_size(mut self, size: u32) -> Self {
        self.details.block_size = size;
        self
    }

    /// Sets the contents of the storage.
    fn holding(mut self, storage: Vec<u8>) -> Self {
        self.details.total_size = storage.len() as u64;
        self.storage = storage;
        self
    }
}

/// Bytes that differ between blocks, within a block, and from those with another `salt`.
fn content(len: u32, salt: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i / BLOCK * 31 + i * 7 + i / 251) as u8 ^ salt)
        .collect()
}

// Requests of the strategies, and their handling of data.

const CHECKS: &[Check] = &[
    Check {
        name: "read-throughput",
        meaning: "read_throughput_test sends as many reads as operations were asked for, inside of storage and memory, and ends with success",
        play: |fixture| play(fixture, Plan::new("read_throughput_test"), (BLOCKS, 0)),
    },
    Check {
        name: "write-throughput",
        meaning: "write_throughput_test sends as many writes as operations were asked for, and ends with success",
        play: |fixture| play(fixture, Plan::new("write_throughput_test"), (0, BLOCKS)),
    },
    Check {
        name: "read-only-validity",
        meaning: "read_only_data_validity_test reads every block and succeeds if it equals --storage-plain-content",
        play: read_only_validity,
    },
    Check {
        name: "read-write-validity",
        meaning: "read_write_data_validity_test writes every block, reads it after the write was answered, and ends with success",
        play: |fixture| {
            let plan = Plan::new("read_write_data_validity_test");
            play(fixture, plan, (BLOCKS, BLOCKS))
        },
    },
    Check {
        name: "read-write-validity-plain-content",
        meaning: "read_write_data_validity_test with --storage-plain-content writes that content",
        play: writes_plain_content,
    },
    Check {
        name: "more-operations-than-blocks",
        meaning: "an initiator with more operations than the storage has blocks begins again with those that are done",
        play: |fixture| {
            let plan = Plan::new("read_write_data_validity_test").operations(50);
            session(fixture, plan, (50, 50)).map(drop)
        },
    },
    Check {
        name: "fewer-operations-than-transactions",
        meaning: "an initiator with fewer operations than transactions sends no more requests than operations",
        play: |fixture| {
            let plan = Plan::new("read_throughput_test");
            session(fixture, plan.operations(3).transactions(8), (3, 0)).map(drop)
        },
    },
    Check {
        name: "several-blocks-per-io",
        meaning: "--blocks-per-io 4 makes each request as large as four blocks, at a multiple of that",
        play: several_blocks_per_io,
    },
    Check {
        name: "transactions-in-flight",
        meaning: "--transaction-count 8 puts eight requests in flight before the first is answered, and never more",
        play: transactions_in_flight,
    },
    Check {
        name: "two-workers",
        meaning: "two --cpu make two consumers; each worker works on its own half of the blocks, through the service's consumer of its number",
        play: two_workers,
    },
    Check {
        name: "small-local-region",
        meaning: "--local-io-region-size keeps the initiator's memory to that many bytes",
        play: small_local_region,
    },
    Check {
        name: "reserved-bytes-are-zero",
        meaning: "bytes of a request that belong to no field are zero (the reference leaves what was there)",
        play: reserved_bytes,
    },
];

/// Runs a successful session, and checks the numbers of reads and writes. Each write of a block precedes its read.
fn session(fixture: &Fixture<'_>, plan: Plan, counts: (u32, u32)) -> Result<Service, Violation> {
    let mut service = Service::begin(fixture, plan)?;
    service.succeed()?;
    let writes = service.received().iter().filter(|io| io.is_write()).count();
    let came = (service.received().len() - writes, writes);
    Violation::unless(
        (counts.0 as usize, counts.1 as usize) == came,
        format!("{} reads and {} writes", counts.0, counts.1),
        format!("{} and {}", came.0, came.1),
    )?;
    Ok(service)
}

/// As [`session`], with one request per block and direction.
fn play(fixture: &Fixture<'_>, plan: Plan, counts: (u32, u32)) -> Result<(), Violation> {
    let service = session(fixture, plan, counts)?;
    each_once(&service, Io::is_read, counts.0)?;
    each_once(&service, Io::is_write, counts.1)
}

fn each_once(service: &Service, is: impl Fn(&Io) -> bool, count: u32) -> Result<(), Violation> {
    let chosen = service.received().iter().filter(|io| is(io));
    let mut offsets: Vec<u64> = chosen.map(|io| io.request.storage_offset).collect();
    offsets.sort_unstable();
    let expected: Vec<u64> = (0..count)
        .map(|block| u64::from(block) * u64::from(BLOCK))
        .collect();
    Violation::unless(
        offsets == expected,
        "each block once in each direction",
        format!("storage offsets {offsets:?}"),
    )
}

fn read_only_validity(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let bytes = content(BLOCKS * BLOCK, 0x33);
    let file = fixture.sandbox().file("plain", &bytes)?;
    let plan = Plan::new("read_only_data_validity_test")
        .flags(&["--storage-plain-content", &file.to_string_lossy()])
        .holding(bytes);
    play(fixture, plan, (BLOCKS, 0))
}

fn writes_plain_content(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let bytes = content(BLOCKS * BLOCK, 0x33);
    let file = fixture.sandbox().file("plain", &bytes)?;
    let plan = Plan::new("read_write_data_validity_test")
        .flags(&["--storage-plain-content", &file.to_string_lossy()]);
    let mut service = session(fixture, plan, (BLOCKS, BLOCKS))?;
    let stored = &service.data()?.storage;
    let differs = stored
        .iter()
        .zip(&bytes)
        .position(|(stored, byte)| stored != byte);
    Violation::unless(
        differs.is_none(),
        "the storage to hold the plain content at the end",
        format!("another byte at offset {}", differs.unwrap_or_default()),
    )
}

fn several_blocks_per_io(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let plan = Plan::new("read_write_data_validity_test");
    let service = session(fixture, plan.operations(4).blocks_per_io(4), (4, 4))?;
    let size = 4 * BLOCK;
    let is_wrong = |io: &&Io| {
        io.request.size != size || !io.request.storage_offset.is_multiple_of(u64::from(size))
    };
    match service.received().iter().find(is_wrong) {
        None => Ok(()),
        Some(io) => Err(Violation::expected(
            format!("{size} bytes at a multiple of that"),
            format!("{:?}", io.request),
        )),
    }
}

fn transactions_in_flight(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let count = 8;
    let plan = Plan::new("read_throughput_test").transactions(count);
    let mut service = Service::begin(fixture, plan)?;
    // Answers once all requests have arrived. The data path itself checks that their number is not exceeded.
    service.finish_with(|data, _| {
        if data.in_flight().len() == count as usize {
            answer_all(data)?;
        }
        Ok(())
    })?;
    service.expect_success()
}

fn answer_all(data: &mut DataPath) -> Result<(), Violation> {
    let waiting = data.in_flight().to_vec();
    waiting.iter().try_for_each(|io| data.serve(io))
}

fn two_workers(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let half = BLOCKS / 2;
    let plan = Plan::new("read_throughput_test")
        .workers(2)
        .operations(half);
    let service = session(fixture, plan, (BLOCKS, 0))?;
    each_once(&service, |_| true, BLOCKS)?;
    let middle = u64::from(half * BLOCK);
    let is_wrong = |io: &&Io| (io.request.storage_offset >= middle) != (io.worker == 1);
    match service.received().iter().find(is_wrong) {
        None => Ok(()),
        Some(io) => Err(Violation::expected(
            "the first worker in the first half of the storage, the second in the second",
            format!("{io:?}"),
        )),
    }
}

fn small_local_region(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let blocks = 4;
    let size = blocks * BLOCK;
    let plan = Plan::new("read_write_data_validity_test")
        .transactions(8)
        .flags(&["--local-io-region-size", &size.to_string()]);
    let service = session(fixture, plan, (BLOCKS, BLOCKS))?;
    let fits = |io: &Io| io.request.requester_offset + u64::from(io.request.size) <= size.into();
    match service.received().iter().find(|io| !fits(io)) {
        None => Ok(()),
        Some(io) => Err(Violation::expected(
            format!("a place in {size} bytes of the initiator's memory"),
            format!("{:?}", io.request),
        )),
    }
}

fn reserved_bytes(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let plan = Plan::new("read_write_data_validity_test");
    let service = session(fixture, plan, (BLOCKS, BLOCKS))?;
    match service.received().iter().find(|io| io.has_rubbish) {
        None => Ok(()),
        Some(io) => Err(Violation::expected(
            "zeros in the reserved bytes",
            format!("others in {:?}", io.request),
        )),
    }
}

// Storages of unusual sizes.

const GEOMETRY_CHECKS: &[Check] = &[
    Check {
        name: "storage-of-no-blocks",
        meaning: "a storage of 0 bytes makes the initiator fail",
        play: |fixture| {
            refused(
                fixture,
                Plan::new("read_throughput_test").claiming(0, BLOCK),
            )
        },
    },
    Check {
        name: "blocks-of-no-bytes",
        meaning: "a block size of 0 makes the initiator fail (the reference divides by it)",
        play: |fixture| {
            refused(
                fixture,
                Plan::new("read_throughput_test").claiming(1 << 20, 0),
            )
        },
    },
    Check {
        name: "block-larger-than-storage",
        meaning: "a storage smaller than its block makes the initiator fail",
        play: |fixture| {
            refused(
                fixture,
                Plan::new("read_throughput_test").claiming(512, BLOCK),
            )
        },
    },
    Check {
        name: "io-size-overflow",
        meaning: "blocks so large that --blocks-per-io of them do not fit the size field make the initiator fail (the reference divides by what is left)",
        play: |fixture| {
            let plan = Plan::new("read_throughput_test").blocks_per_io(2);
            refused(fixture, plan.claiming(1 << 33, 1 << 31))
        },
    },
    Check {
        name: "storage-beyond-memory",
        meaning: "a storage larger than any memory makes an initiator fail that needs as much of its own",
        play: |fixture| {
            refused(
                fixture,
                Plan::new("read_throughput_test").claiming(1 << 60, BLOCK),
            )
        },
    },
    Check {
        name: "storage-of-the-largest-size",
        meaning: "a storage of the largest number of bytes that the field holds makes the initiator fail",
        play: |fixture| {
            let plan = Plan::new("read_write_data_validity_test");
            refused(fixture, plan.claiming(u64::MAX, u32::MAX))
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
        meaning: "blocks of 1536 bytes are read and written like any other",
        play: |fixture| {
            let size = 1536;
            let plan = Plan::new("read_write_data_validity_test").holding(content(24 * size, 1));
            Service::begin(fixture, plan.block_size(size))?.succeed()
        },
    },
    Check {
        name: "plain-content-too-short",
        meaning: "--storage-plain-content of fewer bytes than the storage makes a validity test fail",
        play: |fixture| {
            wrong_content(
                fixture,
                "read_only_data_validity_test",
                (BLOCKS - 1) * BLOCK,
            )
        },
    },
    Check {
        name: "plain-content-too-long",
        meaning: "--storage-plain-content of more bytes than the storage makes a validity test fail",
        play: |fixture| wrong_content(fixture, "read_write_data_validity_test", BLOCKS * BLOCK + 1),
    },
];

/// Checks that the initiator fails, immediately or during the run.
fn refused(fixture: &Fixture<'_>, plan: Plan) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, plan.impatient())?;
    // An initiator that continues is served until it fails.
    service.play_on(|data, io| data.answer(&io, 0));
    service.expect_failure()
}

fn broken_blocks(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let size = u64::from(BLOCKS * BLOCK) + 100;
    let plan = Plan::new("read_throughput_test")
        .operations(2 * BLOCKS)
        .claiming(size, BLOCK);
    let mut service = Service::begin(fixture, plan)?;
    let request = service.until(Step::Query)?;
    service.answer(&request)?;
    let Ok(request) = service.until(Step::Init) else {
        return service.expect_failure();
    };
    service.answer(&request)?;
    service.finish_with(|data, io| data.answer(&io, 0))?;
    service.expect_end()
}

fn broken_ios(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let plan = Plan::new("read_write_data_validity_test")
        .blocks_per_io(5)
        .operations(6)
        .transactions(3);
    Service::begin(fixture, plan)?.succeed()
}

fn beyond_4_gib(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let block_size: u32 = 1 << 20;
    let plan = Plan::new("read_throughput_test")
        .workers(2)
        .operations(8)
        .flags(&["--local-io-region-size", &(16 * block_size).to_string()])
        .claiming(16 << 30, block_size);
    let mut service = Service::begin(fixture, plan)?;
    service.finish_with(|data, io| data.answer(&io, 0))?;
    service.expect_success()?;
    let places_of = |worker| {
        let own = service
            .received()
            .iter()
            .filter(move |io| io.worker == worker);
        own.map(|io| io.request.storage_offset)
    };
    let shared = places_of(0).find(|place| places_of(1).any(|other| other == *place));
    Violation::unless(
        shared.is_none(),
        "each worker to keep to its own blocks",
        format!("both at storage offset {}", shared.unwrap_or_default()),
    )
}

fn wrong_content(fixture: &Fixture<'_>, strategy: &'static str, len: u32) -> Result<(), Violation> {
    let file = fixture.sandbox().file("plain", &content(len, 0x5a))?;
    let plan = Plan::new(strategy).flags(&["--storage-plain-content", &file.to_string_lossy()]);
    let mut service = Service::begin(fixture, plan)?;
    let request = service.until(Step::Query)?;
    service.answer(&request)?;
    service.expect_failure()
}
