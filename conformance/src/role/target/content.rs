//! Initial contents of a target: a file, or zeros.

use doca::MemoryRegion;
use wire::io_message::{IoMessageType, Repr};
use wire::sbc::Header;

use super::io::read;
use super::service::Service;
use super::{Plan, Step};
use crate::role::{Check, During as _, Fixture, Running, Violation};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "content-none",
        meaning: "Without a file all blocks are zeros",
        play: |fixture| {
            begins_with(
                fixture,
                None,
                &["--block-count", "5", "--block-size", "512"],
                &[0; 5 * 512],
                512,
            )
        },
    },
    Check {
        name: "content-plain",
        meaning: "A plain file of exactly the storage's size is its content",
        play: |fixture| {
            let content = pattern(7 * 512, 3);
            begins_with(
                fixture,
                Some(&content),
                &["--block-count", "7", "--block-size", "512"],
                &content,
                512,
            )
        },
    },
    Check {
        name: "content-sbc",
        meaning: "A .sbc file says how many blocks there are, of which size, whatever the flags say, and is their content",
        play: |fixture| {
            let content = pattern(6 * 1024, 4);
            begins_with(
                fixture,
                Some(&sbc(1024, 6, &content)),
                &["--block-count", "99"],
                &content,
                1024,
            )
        },
    },
    Check {
        name: "content-sbc-halves",
        meaning: "A .sbc file of a gga set, of half blocks, is served in half blocks",
        play: |fixture| {
            let content = pattern(16 * 2048, 5);
            begins_with(fixture, Some(&sbc(2048, 16, &content)), &[], &content, 2048)
        },
    },
    Check {
        name: "content-sbc-too-long",
        meaning: "Bytes behind the last block of a .sbc file are not served",
        play: |fixture| {
            let content = pattern(9 * 512, 6);
            begins_with(
                fixture,
                Some(&sbc(512, 8, &content)),
                &[],
                &content[..8 * 512],
                512,
            )
        },
    },
    Check {
        name: "content-sbc-too-short",
        meaning: "A .sbc file with less content than it says ends the target",
        play: |fixture| {
            let content = pattern(8 * 512, 7);
            refused(fixture, &sbc(512, 8, &content[..8 * 512 - 1]))?;
            refused(fixture, &sbc(512, 8, &[]))
        },
    },
    Check {
        name: "content-sbc-header-cut-off",
        meaning: "A .sbc file that ends within its header ends the target",
        play: |fixture| {
            (1..4).try_for_each(|quarter| refused(fixture, &sbc(512, 1, &[])[..quarter * 4]))
        },
    },
    Check {
        name: "content-sbc-wrong-magic",
        meaning: "A file with another magic is a plain one, and ends the target when its size is not the storage's",
        play: |fixture| {
            let mut file = sbc(512, 2, &pattern(1024, 8));
            file[7] ^= 1;
            refused(fixture, &file)
        },
    },
    Check {
        name: "content-sbc-of-nothing",
        meaning: "A .sbc file of no blocks, or of blocks without bytes, ends the target (the reference serves it)",
        play: |fixture| {
            refused(fixture, &sbc(0, 8, &[]))?;
            refused(fixture, &sbc(512, 0, &[]))
        },
    },
    Check {
        name: "content-sbc-too-large",
        meaning: "A .sbc file that says more than 2 GiB ends the target",
        play: |fixture| {
            refused(fixture, &sbc(u32::MAX, u32::MAX, &[]))?;
            refused(fixture, &sbc(4096, 1 << 20, &[]))
        },
    },
    Check {
        name: "content-plain-wrong-size",
        meaning: "A plain file that is shorter or longer than the storage, or empty, ends the target",
        play: |fixture| {
            let content = pattern(128 * 4096 + 1, 9);
            refused(fixture, &content)?;
            refused(fixture, &content[..128 * 4096 - 1])?;
            refused(fixture, &[])
        },
    },
    Check {
        name: "content-missing",
        meaning: "A missing file ends the target",
        play: |fixture| {
            ends(
                &mut spawn(fixture, &["--binary-content", "/no/such/file"])?,
                fixture,
            )
        },
    },
    Check {
        name: "storage-of-nothing",
        meaning: "--block-count 0 and --block-size 0 end the target",
        play: |fixture| {
            ends(&mut spawn(fixture, &["--block-count", "0"])?, fixture)?;
            ends(&mut spawn(fixture, &["--block-size", "0"])?, fixture)
        },
    },
    Check {
        name: "port-in-use",
        meaning: "A port that another target listens on ends the target, and not the other",
        play: port_in_use,
    },
];

fn sbc(block_size: u32, block_count: u32, content: &[u8]) -> Vec<u8> {
    let header = Header {
        block_size,
        block_count,
    };
    [&header.emit()[..], content].concat()
}

/// Starts a target with this file, which must report and serve a storage with `content`.
fn begins_with(
    fixture: &Fixture<'_>,
    file: Option<&[u8]>,
    flags: &[&str],
    content: &[u8],
    block_size: u32,
) -> Result<(), Violation> {
    let path = file
        .map(|bytes| fixture.sandbox().file("content", bytes))
        .transpose()?;
    let path = path.map(|path| path.display().to_string());
    let mut all = flags.to_vec();
    if let Some(path) = &path {
        all.extend(["--binary-content", path]);
    }
    let plan = Plan {
        memory: content.len(),
        ..Plan::SMALL
    };
    let (mut running, mut service) = Service::at(fixture, &all, plan, Step::Query)?;
    let details = service.query()?;
    Violation::unless(
        (details.total_size, details.block_size) == (content.len() as u64, block_size),
        format!("{} bytes in blocks of {block_size}", content.len()),
        format!("{details:?}"),
    )?;
    service.taken(Step::Query);
    service.go_to(Step::Stop)?;
    // So that a read without effect is detected.
    service.memory.fill(0, content.len(), 0xee)?;
    let code = service.io(0, &read(0, 0, content.len()))?;
    Violation::unless(code == 0, "a result of 0", code)?;
    let mut came = vec![0; content.len()];
    service.memory.read(0, &mut came)?;
    Violation::unless(came == content, "the content of the file", "other bytes")?;
    service.finish(&mut running)
}

/// Checks that a target with this file exits with a failure.
fn refused(fixture: &Fixture<'_>, file: &[u8]) -> Result<(), Violation> {
    let path = fixture
        .sandbox()
        .file("content", file)?
        .display()
        .to_string();
    ends(&mut spawn(fixture, &["--binary-content", &path])?, fixture)
}

fn spawn(fixture: &Fixture<'_>, flags: &[&str]) -> Result<Running, Violation> {
    fixture.spawn_target(fixture.sandbox().port()?, flags)
}

fn ends(running: &mut Running, fixture: &Fixture<'_>) -> Result<(), Violation> {
    running.expect_failure(fixture.timeout() / 4)
}

fn port_in_use(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, port) = fixture.start_target(&[])?;
    ends(&mut fixture.spawn_target(port, &[])?, fixture)?;
    let mut service = Service::connect(fixture, port, Plan::SMALL)?;
    service.go_to(Step::Stop)?;
    service.works()?;
    service.finish(&mut running)
}

// Expected contents of the storage and of the client's memory.

/// Size of a block in bytes, and number of blocks.
pub(super) const BLOCK: usize = 512;
pub(super) const BLOCKS: usize = 16;
/// Size of the storage and of the memory in bytes: the whole storage fits in one I/O.
pub(super) const CAPACITY: usize = BLOCK * BLOCKS;

/// Bytes of which no two blocks, and no two halves of blocks, are equal.
pub(super) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    (0..length.div_ceil(8) as u64)
        .flat_map(|index| {
            let mixed = (index ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ mixed >> 29)
                .wrapping_mul(0xbf58_476d_1ce4_e5b9)
                .to_le_bytes()
        })
        .take(length)
        .collect()
}

/// A running session with a storage of known contents, and the expected contents of storage and memory.
pub(super) struct Store {
    pub(super) running: Running,
    pub(super) service: Service,
    pub(super) memory: Vec<u8>,
    pub(super) storage: Vec<u8>,
}

impl Store {
    /// Opens a session with one worker per core of the plan, and a memory as large as the storage.
    pub(super) fn open(fixture: &Fixture<'_>, plan: Plan) -> Result<Self, Violation> {
        let storage = pattern(CAPACITY, 1);
        let file = fixture.sandbox().file("content", &storage)?;
        let file = file.display().to_string();
        let (count, size) = (BLOCKS.to_string(), BLOCK.to_string());
        let mut flags = vec!["--binary-content", &file, "--block-count", &count];
        flags.extend(["--block-size", &size]);
        for _ in 1..plan.cores {
            flags.extend(["--cpu", "0"]);
        }
        let plan = Plan {
            memory: CAPACITY,
            ..plan
        };
        let (running, service) = Service::at(fixture, &flags, plan, Step::Stop)?;
        let memory = pattern(CAPACITY, 2);
        service.memory.write(0, &memory)?;
        Ok(Self {
            running,
            service,
            memory,
            storage,
        })
    }

    /// Performs an I/O that must succeed, and leave exactly the expected bytes in the memory.
    pub(super) fn good(&mut self, worker: usize, request: &Repr) -> Result<(), Violation> {
        self.note(request);
        let code = self.service.io(worker, request)?;
        Violation::unless(code == 0, "a result of 0", code)
            .and_then(|()| self.memory_is_right())
            .during(format!("{request:?}"))
    }

    /// Performs an I/O that must fail without changing the memory.
    pub(super) fn bad(&mut self, worker: usize, request: &Repr) -> Result<(), Violation> {
        let code = self.service.io(worker, request)?;
        Violation::unless(code != 0, "a result other than 0", code)
            .and_then(|()| self.memory_is_right())
            .during(format!("{request:?}"))
    }

    /// Updates the expected contents for a successful request.
    pub(super) fn note(&mut self, request: &Repr) {
        if request.message_type == IoMessageType::Flush {
            return;
        }
        let (memory, storage) = (
            request.requester_offset as usize,
            request.storage_offset as usize,
        );
        let size = request.size as usize;
        let memory = &mut self.memory[memory..memory + size];
        let storage = &mut self.storage[storage..storage + size];
        match request.message_type {
            IoMessageType::Read => memory.copy_from_slice(storage),
            IoMessageType::Write | IoMessageType::WriteFua => storage.copy_from_slice(memory),
            IoMessageType::Result | IoMessageType::Flush => {}
        }
    }

    /// Compares the memory with its expected contents.
    pub(super) fn memory_is_right(&self) -> Result<(), Violation> {
        compare("memory", &self.service.memory, &self.memory)
    }

    /// Reads the whole storage and compares it. Changes the memory accordingly.
    pub(super) fn storage_is_right(&mut self) -> Result<(), Violation> {
        // So that a read without effect is detected.
        self.memory.fill(0xee);
        self.service.memory.fill(0, CAPACITY, 0xee)?;
        let everything = super::io::read(0, 0, CAPACITY);
        self.good(0, &everything)
            .during("the whole storage at the end")
    }

    /// Compares the storage, and ends the session cleanly.
    pub(super) fn close(mut self) -> Result<(), Violation> {
        self.storage_is_right()?;
        self.service.finish(&mut self.running)
    }
}

fn compare(what: &str, region: &MemoryRegion, expected: &[u8]) -> Result<(), Violation> {
    let mut came = vec![0; expected.len()];
    region.read(0, &mut came)?;
    let Some(at) = came.iter().zip(expected).position(|(a, b)| a != b) else {
        return Ok(());
    };
    Err(Violation::expected(
        format!("byte {:#04x} at {at} of the {what}", expected[at]),
        format!("{:#04x}", came[at]),
    ))
}
