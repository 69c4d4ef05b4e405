//! A simulated service: the real engines and set of one session, and what a driver does for them with bytes.

use std::sync::Arc;
use std::time::Duration;

use role_common::stored_block::{Checksum, Encoder, Geometry, Place, decodes, inspect};
use role_common::superblock::{SetId, Superblock};

use super::script::Script;
use super::target::{BLOCKS, CHUNK};
use crate::engine::assembly::Assembly;
use crate::engine::redundancy::State;
use crate::engine::request::{Operation, Request};
use crate::engine::set::{ScrubPlan, Set};
use crate::engine::stripe_lock::StripeLocks;
use crate::engine::{self, Comparison, Flaw, Quality, StripeEngine};
use crate::target::Target;

/// Blocks of any content.
pub(super) const GEOMETRY: Geometry = Geometry {
    stored_block_size: 2 * CHUNK as u32,
    logical_block_size: LOGICAL as u32,
};
/// Bytes of a block.
pub(super) const LOGICAL: usize = 2 * CHUNK - 64;
/// Requests that each worker takes at once.
pub(super) const REQUESTS: u32 = 6;
/// Time without an answer after which a target is unresponsive.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_millis(1500);

/// The content of a version of a block. Without checksums, a mixture of two blocks is told from a block only where it cannot be
/// decompressed, so that all of them have to be `compressible`.
pub(super) fn content_of(block: u64, version: u64, compressible: bool, into: &mut [u8]) {
    into[..8].copy_from_slice(&block.to_le_bytes());
    into[8..16].copy_from_slice(&version.to_le_bytes());
    let mut state = (block << 32 | version).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    // Some versions compress, and some do not.
    let is_random = state >> 60 & 1 == 0 && !compressible;
    for bytes in into[16..].chunks_mut(8) {
        if is_random {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        bytes.copy_from_slice(&state.to_le_bytes()[..bytes.len()]);
    }
}

/// The version that a block's content is of. `None` where it is of none, or of another block.
pub(super) fn version_of(block: u64, compressible: bool, content: &[u8]) -> Option<u64> {
    let version = u64::from_le_bytes(content.get(8..16)?.try_into().ok()?);
    let mut expected = [0; LOGICAL];
    content_of(block, version, compressible, &mut expected);
    (content == expected).then_some(version)
}

/// The parity chunk of two data chunks.
pub(super) fn xor(into: &mut [u8], other: &[u8]) {
    for (byte, other) in into.iter_mut().zip(other) {
        *byte ^= other;
    }
}

/// The memory of a slot.
pub(super) struct SlotMemory {
    /// The stripe buffer, which targets reach.
    pub(super) buffer: [u8; 3 * CHUNK],
    /// The stored block or the recovered chunk, which they do not reach.
    private: [u8; 2 * CHUNK],
    content: [u8; LOGICAL],
    /// The initiator's memory.
    pub(super) blocks: Vec<[u8; LOGICAL]>,
}

impl SlotMemory {
    fn new() -> Self {
        Self {
            buffer: [0; 3 * CHUNK],
            private: [0; 2 * CHUNK],
            content: [0; LOGICAL],
            blocks: vec![[0; LOGICAL]; 3],
        }
    }

    pub(super) fn chunk(&mut self, target: usize) -> &mut [u8] {
        &mut self.buffer[target * CHUNK..(target + 1) * CHUNK]
    }
}

/// A worker: a real engine, and memory.
pub(super) struct Worker {
    pub(super) engine: StripeEngine,
    pub(super) slots: Vec<SlotMemory>,
    /// By target: the connection; 0 for none.
    pub(super) connections: [u64; 3],
    /// Receives that are posted.
    pub(super) free_lanes: Vec<u32>,
    /// Completions that have come and were not reaped yet.
    pub(super) unreaped: u32,
    /// The slot whose block is in `stored`.
    judged: Option<u32>,
    stored: [u8; 2 * CHUNK],
    content: [u8; LOGICAL],
}

/// Condition that the control thread of a session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The superblocks are to say that the set is in use.
    Opening,
    /// I/Os are served.
    Serving,
    /// No further work on stripes is handed out.
    Quiescing,
    /// The superblocks are to say that the set is clean.
    Closing,
}

/// A session.
pub(super) struct Service {
    pub(super) session: u64,
    pub(super) set: Arc<Set>,
    pub(super) set_id: SetId,
    pub(super) workers: Vec<Worker>,
    pub(super) phase: Phase,
    pub(super) paused_until: Duration,
    /// Time as the service experiences it: gaps in which it was not scheduled hardly count.
    pub(super) own_time: Duration,
    pub(super) last_tick: Duration,
    /// By target: the superblock that it was asked to persist, and when, in experienced time.
    pub(super) asked: [Option<(Superblock, Duration)>; 3],
    /// By target: the superblock that it has confirmed.
    pub(super) confirmed: [Option<Superblock>; 3],
    /// By target: whether there is a control connection to it.
    pub(super) is_connected: [bool; 3],
    /// By target: which storage it was.
    pub(super) identities: [(u32, u32); 3],
    pub(super) is_rejoining: bool,
    /// The state of the set that was shown last.
    pub(super) state: State,
    encoder: Encoder,
    zeroes_unwritten: bool,
}

impl Service {
    pub(super) fn new(
        session: u64,
        script: &Script,
        assembly: Assembly,
        plan: ScrubPlan,
        connections: [u64; 3],
    ) -> Self {
        let (workers, zeroes_unwritten) = (script.workers, script.zeroes_unwritten());
        let set_id = assembly
            .membership
            .as_ref()
            .map_or(SetId::NONE, |it| it.set());
        let set = Arc::new(Set::new(BLOCKS, workers, assembly, plan, || ()));
        let locks = Arc::new(StripeLocks::new(workers, 1));
        let offline = set.view().offline;
        let worker = |number| {
            let engine = StripeEngine::new(engine::Setup {
                worker: number,
                requests: REQUESTS,
                recover_every: script.recover_every,
                requires_checksums: false,
                is_writable: true,
                zeroes_unwritten,
                is_degradable: true,
                stall_timeout: STALL_TIMEOUT,
                set: Arc::clone(&set),
                locks: Arc::clone(&locks),
            });
            Worker {
                slots: (0..engine.slots()).map(|_| SlotMemory::new()).collect(),
                engine,
                connections,
                free_lanes: (0..REQUESTS).collect(),
                unreaped: 0,
                judged: None,
                stored: [0; 2 * CHUNK],
                content: [0; LOGICAL],
            }
        };
        let checksum = if script.checksums {
            Checksum::Crc32c
        } else {
            Checksum::Off
        };
        Self {
            session,
            set_id,
            workers: (0..workers).map(worker).collect(),
            phase: Phase::Opening,
            paused_until: Duration::ZERO,
            own_time: Duration::ZERO,
            last_tick: Duration::MAX,
            asked: [None; 3],
            confirmed: [None; 3],
            is_connected: std::array::from_fn(|target| !offline.contains(Target::ALL[target])),
            identities: [(0, 0); 3],
            is_rejoining: false,
            state: set.state(),
            encoder: Encoder::new(GEOMETRY, checksum),
            zeroes_unwritten,
            set,
        }
    }

    fn place(&self, stripe: u64) -> Place {
        Place {
            set: self.set_id,
            stripe,
        }
    }

    pub(super) fn fetch(&mut self, worker: u32, slot: u32, block: u8) {
        let memory = &mut self.workers[worker as usize].slots[slot as usize];
        memory.content = memory.blocks[usize::from(block)];
    }

    pub(super) fn encode(&mut self, worker: u32, slot: u32, stripe: u64) -> bool {
        let place = self.place(stripe);
        let memory = &mut self.workers[worker as usize].slots[slot as usize];
        let Ok(stored) = self.encoder.encode(&memory.content, place) else {
            return false;
        };
        memory.buffer[..2 * CHUNK].copy_from_slice(stored);
        memory.private.copy_from_slice(stored);
        true
    }

    pub(super) fn encode_zeros(&mut self, worker: u32, slot: u32, stripe: u64) -> bool {
        let memory = &mut self.workers[worker as usize].slots[slot as usize];
        memory.content = [0; LOGICAL];
        self.encode(worker, slot, stripe)
    }

    pub(super) fn create_parity(&mut self, worker: u32, slot: u32, were_read: bool) {
        let memory = &mut self.workers[worker as usize].slots[slot as usize];
        if were_read {
            memory.private.copy_from_slice(&memory.buffer[..2 * CHUNK]);
        }
        let (first, second) = memory.private.split_at(CHUNK);
        let parity = &mut memory.buffer[2 * CHUNK..];
        parity.copy_from_slice(first);
        xor(parity, second);
    }

    pub(super) fn recover(&mut self, worker: u32, slot: u32, target: Target) {
        let memory = &mut self.workers[worker as usize].slots[slot as usize];
        let other = 1 - target.number();
        let mut chunk = [0; CHUNK];
        chunk.copy_from_slice(memory.chunk(other));
        xor(&mut chunk, memory.chunk(2));
        memory.private[..CHUNK].copy_from_slice(&chunk);
    }

    /// Puts the chunk that was recovered last into its place.
    pub(super) fn place_recovered(&mut self, worker: u32, slot: u32, target: usize) {
        let memory = &mut self.workers[worker as usize].slots[slot as usize];
        let mut chunk = [0; CHUNK];
        chunk.copy_from_slice(&memory.private[..CHUNK]);
        memory.chunk(target).copy_from_slice(&chunk);
    }

    pub(super) fn verify(
        &mut self,
        worker: u32,
        slot: u32,
        stripe: u64,
        recovered: Option<Target>,
    ) -> Quality {
        let it = &mut self.workers[worker as usize];
        let memory = &mut it.slots[slot as usize];
        it.stored.copy_from_slice(&memory.buffer[..2 * CHUNK]);
        if let Some(target) = recovered {
            let at = target.number() * CHUNK;
            it.stored[at..at + CHUNK].copy_from_slice(&memory.private[..CHUNK]);
        }
        self.judge(worker, slot, stripe)
    }

    fn judge(&mut self, worker: u32, slot: u32, stripe: u64) -> Quality {
        let place = self.place(stripe);
        let it = &mut self.workers[worker as usize];
        it.judged = None;
        match inspect(&it.stored, GEOMETRY, place) {
            Ok((_, verdict)) => {
                it.judged = Some(slot);
                Quality::of(verdict)
            }
            Err(defect) => Quality::Flawed(Flaw::of_defect(defect, &it.stored)),
        }
    }

    fn judge_closely(&mut self, worker: u32, slot: u32, stripe: u64) -> Quality {
        let quality = self.judge(worker, slot, stripe);
        let it = &mut self.workers[worker as usize];
        if quality != Quality::Bare {
            return quality;
        }
        if !decodes(&it.stored, GEOMETRY, &mut it.content) {
            return Quality::Flawed(Flaw::Undecodable);
        }
        if self.zeroes_unwritten && it.content == [0; LOGICAL] {
            return Quality::Flawed(Flaw::Unwritten);
        }
        quality
    }

    pub(super) fn compare(
        &mut self,
        worker: u32,
        slot: u32,
        stripe: u64,
        recovered: Target,
    ) -> Comparison {
        self.verify(worker, slot, stripe, None);
        let as_read = self.judge_closely(worker, slot, stripe);
        let it = &mut self.workers[worker as usize];
        let at = recovered.number() * CHUNK;
        let chunk = &it.slots[slot as usize].private[..CHUNK];
        let is_equal = it.stored[at..at + CHUNK] == *chunk;
        it.stored[at..at + CHUNK].copy_from_slice(chunk);
        Comparison {
            is_equal,
            as_read,
            with_recovered: self.judge_closely(worker, slot, stripe),
        }
    }

    /// # Panics
    ///
    /// The block was not judged: an engine must not ask for that.
    pub(super) fn reseal(&mut self, worker: u32, slot: u32, stripe: u64) {
        let place = self.place(stripe);
        let it = &mut self.workers[worker as usize];
        assert_eq!(it.judged, Some(slot), "a block is used that was not judged");
        self.encoder.reseal(&mut it.stored, place);
        let memory = &mut it.slots[slot as usize];
        memory.buffer[..2 * CHUNK].copy_from_slice(&it.stored);
        memory.private.copy_from_slice(&it.stored);
    }

    /// Returns whether the block could be decompressed.
    ///
    /// # Panics
    ///
    /// The block was not judged: an engine must not ask for that.
    pub(super) fn decompress(&mut self, worker: u32, slot: u32, block: u8) -> bool {
        let it = &mut self.workers[worker as usize];
        assert_eq!(it.judged, Some(slot), "a block is used that was not judged");
        let to = &mut it.slots[slot as usize].blocks[usize::from(block)];
        decodes(&it.stored, GEOMETRY, to)
    }
}

/// The request of an I/O.
pub(super) fn request(
    operation: Operation,
    is_durable: bool,
    block: u64,
    count: u8,
    io: u64,
) -> Request {
    Request {
        correlation_id: 0,
        is_durable,
        operation,
        first_stripe: block,
        blocks: count,
        requester_offset: 0,
        user_data: io,
        size: u32::from(count) * GEOMETRY.logical_block_size,
        storage_offset: block * LOGICAL as u64,
    }
}
