//! The simulated processes. [`Service`]: the real engines and set of one session, with a simulated driver that executes their actions on
//! bytes. [`SimulatedTarget`]: a disk of 512-byte sectors with a volatile and a durable state, and a superblock.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use role_common::stored_block::{Checksum, Encoder, Geometry, Place, decodes, inspect};
use role_common::superblock::{SetId, Superblock};
use wire::control::RecordState;

use super::Script;
use crate::Target;
use crate::engine::assembly::{Assembly, Found};
use crate::engine::membership::State;
use crate::engine::request::{Operation, Request};
use crate::engine::set::{ScrubPlan, Set};
use crate::engine::stripes::StripeLocks;
use crate::engine::{self, Comparison, Flaw, Quality, StripeEngine};

/// Geometry in which blocks of any content can be stored.
pub(super) const GEOMETRY: Geometry = Geometry {
    stored_block_size: 2 * CHUNK as u32,
    logical_block_size: LOGICAL as u32,
};
/// Size of a block in bytes.
pub(super) const LOGICAL: usize = 2 * CHUNK - 64;
/// Maximum number of requests in flight per worker.
pub(super) const REQUESTS: u32 = 6;
/// Time without an answer after which a target is unresponsive.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_millis(1500);

/// Generates the content of a version of a block. Without checksums, a mixture of two blocks is detected only if it cannot be
/// decompressed, so all contents have to be `compressible`.
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

/// Returns the version that a block's content belongs to. `None` for the content of another block, and for any other bytes.
pub(super) fn version_of(block: u64, compressible: bool, content: &[u8]) -> Option<u64> {
    let version = u64::from_le_bytes(content.get(8..16)?.try_into().ok()?);
    let mut expected = [0; LOGICAL];
    content_of(block, version, compressible, &mut expected);
    (content == expected).then_some(version)
}

/// Adds `other` to `into`. The sum of two data chunks is their parity chunk.
pub(super) fn xor(into: &mut [u8], other: &[u8]) {
    for (byte, other) in into.iter_mut().zip(other) {
        *byte ^= other;
    }
}

pub(super) struct SlotMemory {
    /// The stripe buffer, which targets can access.
    pub(super) buffer: [u8; 3 * CHUNK],
    /// The stored block or the recovered chunk, which targets cannot access.
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

/// A worker: a real engine, and its memory.
pub(super) struct Worker {
    pub(super) engine: StripeEngine,
    pub(super) slots: Vec<SlotMemory>,
    /// Number of the connection to each target; 0 for none.
    pub(super) connections: [u64; 3],
    /// Posted receives without a message.
    pub(super) free_lanes: Vec<u32>,
    /// Number of completions not yet reaped.
    pub(super) unreaped: u32,
    /// Slot of the block in `stored`, which was verified last.
    judged: Option<u32>,
    stored: [u8; 2 * CHUNK],
    content: [u8; LOGICAL],
}

/// Condition that the control thread of a session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The targets persist superblocks that mark the set as in use.
    Opening,
    Serving,
    /// Background work on stripes is being completed, and no more is started.
    Quiescing,
    /// The targets persist superblocks that mark the set as clean.
    Closing,
}

pub(super) struct Service {
    pub(super) session: u64,
    pub(super) set: Arc<Set>,
    pub(super) set_id: SetId,
    pub(super) workers: Vec<Worker>,
    pub(super) phase: Phase,
    pub(super) paused_until: Duration,
    /// Time as the service experiences it: a gap in which it was not scheduled counts for at most two ticks.
    pub(super) own_time: Duration,
    pub(super) last_tick: Duration,
    /// The superblock that each target was requested to persist, and the experienced time of the request.
    pub(super) asked: [Option<(Superblock, Duration)>; 3],
    /// The superblock that each target has confirmed.
    pub(super) confirmed: [Option<Superblock>; 3],
    /// `true` for each target with a control connection.
    pub(super) is_connected: [bool; 3],
    /// The identity that each target reported.
    pub(super) identities: [(u32, u32); 3],
    pub(super) is_rejoining: bool,
    /// The last state of the set in the history.
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

    /// Copies the last recovered chunk to its position in the stripe buffer.
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
    /// The block was not verified, which an engine must do first.
    pub(super) fn reseal(&mut self, worker: u32, slot: u32, stripe: u64) {
        let place = self.place(stripe);
        let it = &mut self.workers[worker as usize];
        assert_eq!(it.judged, Some(slot), "a block is used that was not judged");
        self.encoder.reseal(&mut it.stored, place);
        let memory = &mut it.slots[slot as usize];
        memory.buffer[..2 * CHUNK].copy_from_slice(&it.stored);
        memory.private.copy_from_slice(&it.stored);
    }

    /// Returns `true` if the block could be decompressed.
    ///
    /// # Panics
    ///
    /// The block was not verified, which an engine must do first.
    pub(super) fn decompress(&mut self, worker: u32, slot: u32, block: u8) -> bool {
        let it = &mut self.workers[worker as usize];
        assert_eq!(it.judged, Some(slot), "a block is used that was not judged");
        let to = &mut it.slots[slot as usize].blocks[usize::from(block)];
        decodes(&it.stored, GEOMETRY, to)
    }
}

/// Creates the request of an I/O.
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

/// Number of blocks, and so of stripes, of the simulated storage.
pub(super) const BLOCKS: u64 = 10;
/// Size of a chunk in bytes.
pub(super) const CHUNK: usize = 1024;
const SECTOR: usize = 512;
/// Maximum response time of a target that is running and reachable.
pub(super) const ANSWER_TIME: Duration = Duration::from_millis(2);
/// Number of sectors per chunk.
pub(super) const SECTORS: usize = CHUNK / SECTOR;

/// Contents of a disk, including its superblock.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    /// The bytes that the target reads.
    pub(super) bytes: Vec<u8>,
    /// Content of each sector after a power failure, if it differs.
    durable: Vec<Option<[u8; SECTOR]>>,
    superblock: Option<Superblock>,
    /// Boot of the machine in which the disk was last in use; `None` after a clean shutdown.
    since: Option<u32>,
    /// Identifies the disk.
    pub(super) identity: u32,
}

impl Disk {
    pub(super) fn empty(identity: u32) -> Self {
        Self {
            bytes: vec![0; CHUNK * BLOCKS as usize],
            durable: vec![None; SECTORS * BLOCKS as usize],
            superblock: None,
            since: None,
            identity,
        }
    }

    fn range(stripe: u64) -> std::ops::Range<usize> {
        let begin = stripe as usize * CHUNK;
        begin..begin + CHUNK
    }

    pub(super) fn chunk(&self, stripe: u64) -> &[u8] {
        &self.bytes[Self::range(stripe)]
    }

    pub(super) fn chunk_mut(&mut self, stripe: u64) -> &mut [u8] {
        &mut self.bytes[Self::range(stripe)]
    }

    /// Writes a sector of a chunk. The sector is not durable until the disk is synced.
    pub(super) fn write_sector(&mut self, stripe: u64, sector: usize, chunk: &[u8]) {
        let number = stripe as usize * SECTORS + sector;
        let at = number * SECTOR;
        let old = &mut self.bytes[at..at + SECTOR];
        self.durable[number].get_or_insert_with(|| (&*old).try_into().unwrap_or([0; SECTOR]));
        old.copy_from_slice(&chunk[sector * SECTOR..(sector + 1) * SECTOR]);
    }

    /// Makes the stripe's chunk durable.
    pub(super) fn sync_chunk(&mut self, stripe: u64) {
        let first = stripe as usize * SECTORS;
        self.durable[first..first + SECTORS].fill(None);
    }

    pub(super) fn zero_sector(&mut self, stripe: u64, sector: usize) {
        let at = (stripe as usize * SECTORS + sector) * SECTOR;
        self.bytes[at..at + SECTOR].fill(0);
    }

    pub(super) fn sync(&mut self) {
        self.durable.fill(None);
    }

    /// Loses power: any unsynced sector may be lost.
    pub(super) fn lose_power(&mut self, rng: &mut Rng) {
        for (number, durable) in self.durable.iter_mut().enumerate() {
            if let Some(old) = durable.take()
                && rng.bool()
            {
                self.bytes[number * SECTOR..(number + 1) * SECTOR].copy_from_slice(&old);
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct SimulatedTarget {
    pub(super) disk: Disk,
    /// An earlier copy of the disk.
    pub(super) copy: Option<Disk>,
    pub(super) is_up: bool,
    /// Number of boots of its machine.
    boot: u32,
    /// Number of the connection that it serves. Messages over earlier ones are dropped.
    pub(super) connection: u64,
    /// Time at which a pause of the process ends.
    pub(super) paused_until: Duration,
    /// Time at which a partition of its network ends.
    pub(super) cut_until: Duration,
    pub(super) loses_write: bool,
    pub(super) misdirects_write_to: Option<u64>,
    /// Number of next reads that fail.
    pub(super) fails_reads: u8,
    pub(super) fails_write: bool,
    /// `true` if it was killed, has lost its connection or has failed to write a chunk since it joined the set.
    pub(super) has_failed: bool,
    /// `true` if its disk was replaced by one with another epoch or identity.
    pub(super) has_other_disk: bool,
    /// Time at which it was last paused or became unreachable.
    silent_since: Duration,
    silent_until: Duration,
    /// The longest earlier period of silence since it joined the set.
    longest_silence: Duration,
    /// End of the last period in which it was killed, paused or unreachable.
    away_until: Duration,
}

impl SimulatedTarget {
    pub(super) fn new(number: u32) -> Self {
        Self {
            disk: Disk::empty(number),
            copy: None,
            is_up: true,
            boot: 1,
            connection: 0,
            paused_until: Duration::ZERO,
            cut_until: Duration::ZERO,
            loses_write: false,
            misdirects_write_to: None,
            fails_reads: 0,
            fails_write: false,
            has_failed: false,
            has_other_disk: false,
            silent_since: Duration::ZERO,
            silent_until: Duration::ZERO,
            longest_silence: Duration::ZERO,
            away_until: Duration::ZERO,
        }
    }

    /// Joins the set with a new connection: earlier events do not justify its detachment.
    pub(super) fn join(&mut self, connection: u64) {
        self.connection = connection;
        self.has_failed = false;
        self.has_other_disk = false;
        self.longest_silence = Duration::ZERO;
        self.silent_since = self.silent_until;
    }

    /// Records that it is paused or unreachable until this time.
    pub(super) fn fall_silent(&mut self, now: Duration, until: Duration) {
        // A shorter gap may have been too short for an answer.
        if now > self.silent_until + ANSWER_TIME {
            self.longest_silence = self.silence(now);
            self.silent_since = now;
        }
        self.silent_until = self.silent_until.max(until);
        self.away_until = self.away_until.max(until);
    }

    /// The longest time without an answer since it joined the set.
    pub(super) fn silence(&self, now: Duration) -> Duration {
        let last = self.silent_until.min(now).saturating_sub(self.silent_since);
        self.longest_silence.max(last)
    }

    pub(super) fn kill(&mut self) {
        self.is_up = false;
        self.connection = 0;
        self.has_failed = true;
        // The next process is not paused, and unreachable for as long as this one.
        self.paused_until = Duration::ZERO;
        self.silent_until = self.cut_until;
    }

    pub(super) fn start(&mut self, now: Duration) {
        self.is_up = true;
        self.away_until = self.cut_until.max(now);
    }

    /// Returns `true` if it was killed, paused or unreachable at any time since then.
    pub(super) fn was_away(&self, since: Duration) -> bool {
        !self.is_up || self.away_until > since
    }

    /// The state that it reports to a service.
    pub(super) fn found(&self) -> Found {
        let Some(superblock) = self.disk.superblock else {
            return Found::Blank;
        };
        let is_in_doubt = self.disk.since.is_some_and(|since| since != self.boot);
        Found::Superblock(Superblock {
            state: if is_in_doubt {
                RecordState::InDoubt
            } else {
                superblock.state
            },
            ..superblock
        })
    }

    /// The epoch that it has prepared for.
    pub(super) fn next_epoch(&self) -> Option<role_common::superblock::Epoch> {
        self.disk.superblock.map(|superblock| superblock.next)
    }

    /// The identity that it reports; a new one after each start of its machine.
    pub(super) fn identity(&self) -> (u32, u32) {
        (self.disk.identity, self.boot)
    }

    /// Persists a superblock, and with it all earlier writes: both are in one file.
    pub(super) fn persist(&mut self, superblock: Superblock) {
        self.disk.sync();
        self.disk.superblock = Some(superblock);
        self.disk.since = Some(self.boot);
    }

    /// Makes everything durable at a clean shutdown.
    pub(super) fn sync(&mut self) {
        let is_in_doubt = self.disk.since.is_some_and(|since| since != self.boot);
        if !is_in_doubt {
            self.disk.since = None;
        }
        self.disk.sync();
    }

    pub(super) fn lose_power(&mut self, rng: &mut Rng) {
        self.disk.lose_power(rng);
        self.boot += 1;
        self.has_other_disk = true;
    }

    pub(super) fn replace_disk(&mut self, disk: Disk) {
        let epoch = |disk: &Disk| disk.superblock.map(|superblock| superblock.epoch);
        if epoch(&disk) != epoch(&self.disk) || disk.identity != self.disk.identity {
            self.has_other_disk = true;
        }
        self.disk = disk;
    }

    /// Changes its superblock to that of another set or, with `is_of_set`, of another epoch with the same number.
    pub(super) fn make_foreign(&mut self, is_of_set: bool) {
        if let Some(superblock) = &mut self.disk.superblock {
            if is_of_set {
                superblock.epoch.id ^= 1;
            } else {
                superblock.set.0 ^= 1;
            }
        }
    }
}
