//! What the storage and the client's memory must contain, beside what they do.

use doca::MemoryRegion;
use wire::io_message::{IoMessageType, Repr};

use super::plan::{Plan, Step};
use super::service::Service;
use crate::role::{Bench, During as _, Running, Wrong};

/// Bytes of a block, and their number.
pub(super) const BLOCK: usize = 512;
pub(super) const BLOCKS: usize = 16;
/// Bytes of the storage, and of the memory: all of it fits into one I/O.
pub(super) const CAPACITY: usize = BLOCK * BLOCKS;

/// Bytes of which no two blocks, and no two halves of blocks, are the same.
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

/// A running session with a storage of known content, and what the two memories must contain.
pub(super) struct Store {
    pub(super) running: Running,
    pub(super) service: Service,
    pub(super) memory: Vec<u8>,
    pub(super) storage: Vec<u8>,
}

impl Store {
    /// One with a worker for each core of the plan. Its memory is as large as the storage.
    pub(super) fn open(bench: &Bench<'_>, plan: Plan) -> Result<Self, Wrong> {
        let storage = pattern(CAPACITY, 1);
        let file = bench.scene().file("content", &storage)?;
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
        let (running, service) = Service::at(bench, &flags, plan, Step::Stop)?;
        let memory = pattern(CAPACITY, 2);
        service.memory.write(0, &memory)?;
        Ok(Self {
            running,
            service,
            memory,
            storage,
        })
    }

    /// An I/O that must succeed, and leave exactly the right bytes in the memory.
    pub(super) fn good(&mut self, worker: usize, request: &Repr) -> Result<(), Wrong> {
        self.note(request);
        let code = self.service.io(worker, request)?;
        Wrong::unless(code == 0, "a result of 0", code)
            .and_then(|()| self.memory_is_right())
            .during(format!("{request:?}"))
    }

    /// An I/O that must fail, and change nothing in the memory.
    pub(super) fn bad(&mut self, worker: usize, request: &Repr) -> Result<(), Wrong> {
        let code = self.service.io(worker, request)?;
        Wrong::unless(code != 0, "a result other than 0", code)
            .and_then(|()| self.memory_is_right())
            .during(format!("{request:?}"))
    }

    /// What the two will contain when this was done.
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

    /// Compares the memory.
    pub(super) fn memory_is_right(&self) -> Result<(), Wrong> {
        compare("memory", &self.service.memory, &self.memory)
    }

    /// Reads the whole storage and compares it. The memory contains it afterwards.
    pub(super) fn storage_is_right(&mut self) -> Result<(), Wrong> {
        // So that a read which does nothing is seen.
        self.memory.fill(0xee);
        self.service.memory.fill(0, CAPACITY, 0xee)?;
        let everything = super::io::read(0, 0, CAPACITY);
        self.good(0, &everything)
            .during("the whole storage at the end")
    }

    /// Compares the storage, and ends the session well.
    pub(super) fn close(mut self) -> Result<(), Wrong> {
        self.storage_is_right()?;
        self.service.finish(&mut self.running)
    }
}

fn compare(what: &str, region: &MemoryRegion, expected: &[u8]) -> Result<(), Wrong> {
    let mut came = vec![0; expected.len()];
    region.read(0, &mut came)?;
    let Some(at) = came.iter().zip(expected).position(|(a, b)| a != b) else {
        return Ok(());
    };
    Err(Wrong::expected(
        format!("byte {:#04x} at {at} of the {what}", expected[at]),
        format!("{:#04x}", came[at]),
    ))
}
