//! Simulated targets: blocks with versions, in a page cache over sectors, and a superblock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use role_formats::superblock::{SetId, Superblock};
use wire::control::RecordState;

use super::oracle::CHUNK;
use crate::assembly::{Found, Log};
use crate::chunk::Stamp;

/// Size in bytes that a disk writes atomically.
pub(super) const SECTOR: usize = 64;
/// Number of sectors per chunk.
pub(super) const SECTORS: usize = CHUNK / SECTOR;

pub(super) type Bytes = [u8; CHUNK];

/// A version of a chunk that is kept in addition to the blocks.
#[derive(Debug, Clone)]
struct VersionSlot {
    sequence: u64,
    block: u64,
    stamp: Stamp,
    chunk: Bytes,
    /// Versions below this one were known to be retired when this version was written.
    retired: Option<Stamp>,
    is_durable: bool,
}

/// Contents of a disk, including its superblock.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    /// Chunks at their places, as returned by reads.
    places: Vec<u8>,
    /// Durable content of the sectors of places that were written since.
    unsynced: BTreeMap<usize, [u8; SECTOR]>,
    /// Versions that have not been copied to their places, in the order of their sequence numbers.
    versions: Vec<VersionSlot>,
    next_sequence: u64,
    /// Versions that the service has reported as complete and durable: all of earlier epochs, and those of this epoch
    /// with lower numbers.
    retired: Option<Stamp>,
    /// The value of `retired` when the end of the versions was last recorded.
    recorded_retired: Option<Stamp>,
    /// The last version that was written, and the last durable version.
    last: Stamp,
    durable_last: Stamp,
    /// Blocks that cannot be read until they are rewritten.
    pub(super) unreadable: BTreeSet<u64>,
    pub(super) superblock: Option<Superblock>,
    /// Boot of the machine in which the disk was last used; `None` after a clean shutdown.
    since: Option<u32>,
    /// Identifies the disk.
    pub(super) identity: u32,
}

impl Disk {
    pub(super) fn empty(identity: u32, blocks: u64) -> Self {
        Self {
            places: vec![0; CHUNK * blocks as usize],
            unsynced: BTreeMap::new(),
            versions: Vec::new(),
            next_sequence: 1,
            retired: None,
            recorded_retired: None,
            last: Stamp::UNWRITTEN,
            durable_last: Stamp::UNWRITTEN,
            unreadable: BTreeSet::new(),
            superblock: None,
            since: None,
            identity,
        }
    }

    fn place(&self, block: u64) -> &[u8] {
        let begin = block as usize * CHUNK;
        &self.places[begin..begin + CHUNK]
    }

    /// The newest version of a block.
    pub(super) fn newest(&self, block: u64) -> &[u8] {
        let mut versions = self.versions.iter().rev();
        match versions.find(|it| it.block == block) {
            Some(version) => &version.chunk,
            None => self.place(block),
        }
    }

    pub(super) fn newest_before(&self, block: u64, stamp: Stamp) -> &[u8] {
        let mut versions = self.versions.iter().rev();
        match versions.find(|it| it.block == block && it.stamp < stamp) {
            Some(version) => &version.chunk,
            None => self.place(block),
        }
    }

    /// Returns `true` if all versions of a block are durable.
    pub(super) fn is_durable(&self, block: u64) -> bool {
        let mut versions = self.versions.iter();
        versions.all(|it| it.block != block || it.is_durable)
    }

    pub(super) fn used_slots(&self) -> usize {
        self.versions.len()
    }

    /// State of the target's log of versions, as announced to a service.
    pub(super) fn log(&self) -> Log {
        let unretired = self.versions.iter().filter(|it| !self.is_retired(it));
        let blocks: BTreeSet<u64> = unretired.map(|it| it.block).collect();
        Log {
            last: Some(self.last).filter(|&last| last != Stamp::UNWRITTEN),
            retired: self.retired,
            unretired: blocks.into_iter().collect(),
        }
    }

    pub(super) fn last(&self) -> Stamp {
        self.last
    }

    fn is_retired(&self, version: &VersionSlot) -> bool {
        self.retired.is_some_and(|retired| version.stamp < retired)
    }

    /// Reads the versions, as a process that starts does.
    fn open(&mut self) {
        let retired = self.versions.iter().map(|it| it.retired);
        self.retired = retired.max().flatten().max(self.recorded_retired);
    }

    pub(super) fn write_version(&mut self, block: u64, stamp: Stamp, chunk: &Bytes) {
        self.versions.push(VersionSlot {
            sequence: self.next_sequence,
            block,
            stamp,
            chunk: *chunk,
            retired: self.retired,
            is_durable: false,
        });
        self.next_sequence += 1;
        self.last = stamp.max(self.last);
        self.unreadable.remove(&block);
    }

    /// Writes a sector in place. It is not durable until the disk is synced.
    fn write_sector(&mut self, number: usize, bytes: &[u8]) {
        let old = &mut self.places[number * SECTOR..(number + 1) * SECTOR];
        let before: [u8; SECTOR] = std::array::from_fn(|at| old[at]);
        self.unsynced.entry(number).or_insert(before);
        old.copy_from_slice(bytes);
    }

    pub(super) fn sync(&mut self) {
        self.unsynced.clear();
        for version in &mut self.versions {
            version.is_durable = true;
        }
        self.durable_last = self.last;
    }

    /// Loses power: any unsynced sector may be lost, and a version with a lost sector is none.
    fn lose_power(&mut self, rng: &mut Rng) {
        for (number, old) in std::mem::take(&mut self.unsynced) {
            if rng.bool() {
                self.places[number * SECTOR..(number + 1) * SECTOR].copy_from_slice(&old);
            }
        }
        // All, none or some.
        let kept = rng.choice([0, 128, 255]).unwrap_or(128);
        self.versions
            .retain(|it| it.is_durable || rng.u8(..) < kept);
        let newest = self.versions.iter().map(|it| it.stamp).max();
        self.last = newest.map_or(self.durable_last, |it| it.max(self.durable_last));
        self.sync();
    }

    /// Changes bytes of a block's newest version, unnoticed by the disk.
    pub(super) fn corrupt(&mut self, block: u64, change: impl FnOnce(&mut [u8])) {
        let mut versions = self.versions.iter_mut().rev();
        match versions.find(|it| it.block == block) {
            Some(version) => change(&mut version.chunk),
            None => {
                let begin = block as usize * CHUNK;
                change(&mut self.places[begin..begin + CHUNK]);
                for sector in 0..SECTORS {
                    self.unsynced.remove(&(block as usize * SECTORS + sector));
                }
            }
        }
    }

    pub(super) fn is_unreadable(&self, block: u64) -> bool {
        self.unreadable.contains(&block)
    }
}

/// Versions being copied to their places, in small steps.
#[derive(Debug)]
pub(super) struct Applying {
    /// Versions with lower sequence numbers.
    until: u64,
    /// Sectors to write; `None` for a sync.
    steps: Vec<Option<(usize, [u8; SECTOR])>>,
    next: usize,
}

/// A copy of a disk.
#[derive(Debug, Clone)]
pub(super) struct Copied {
    /// Logical time at which the copy was made.
    pub(super) at: u64,
    /// Blocks that were damaged on the disk.
    pub(super) damaged: BTreeSet<u64>,
    pub(super) disk: Disk,
}

impl Copied {
    /// Logical time of the copy's content of a block.
    pub(super) fn since(&self, block: u64) -> u64 {
        if self.damaged.contains(&block) {
            0
        } else {
            self.at
        }
    }
}

#[derive(Debug)]
pub(super) struct SimulatedTarget {
    pub(super) disk: Disk,
    /// An earlier copy of the disk.
    pub(super) copy: Option<Copied>,
    /// The target's own disk, while it has a foreign one.
    pub(super) own: Option<Disk>,
    pub(super) is_up: bool,
    /// Number of starts of its process.
    pub(super) process: u64,
    /// Number of boots of its machine.
    boot: u32,
    /// Number of the connection that the target serves; 0 for none. Messages over earlier connections are dropped.
    pub(super) connection: u64,
    /// The session of that connection.
    pub(super) session: u64,
    /// Time at which a pause of the process ends.
    pub(super) paused_until: Duration,
    /// Time at which a partition of its network ends.
    pub(super) cut_until: Duration,
    pub(super) loses_write: bool,
    /// The version that the target has lost, until it stores a later one: a target without the last writes of a session
    /// is stale in the next session.
    pub(super) lost_write: Option<Stamp>,
    pub(super) misdirects_write_to: Option<u64>,
    /// Number of next reads that fail.
    pub(super) fails_reads: u8,
    pub(super) fails_write: bool,
    /// Time until which the disk is full.
    pub(super) full_until: Duration,
    /// `true` if it was killed, has lost its connection or has failed to write a chunk since it joined the set.
    pub(super) has_failed: bool,
    applying: Option<Applying>,
    /// `false` after any event that may have made the target unreachable or stale, until the set is shown as healthy
    /// again.
    pub(super) is_well: bool,
    /// `true` if the target's machine has lost power since `is_well` was last `true`.
    pub(super) has_lost_power: bool,
    /// The copy that has replaced the target's disk since `is_well` was last `true`.
    pub(super) in_use: Option<Copied>,
    /// Time at which the target is reachable again.
    pub(super) trouble_until: Duration,
}

impl SimulatedTarget {
    pub(super) fn new(number: u32, blocks: u64) -> Self {
        Self {
            disk: Disk::empty(number, blocks),
            copy: None,
            own: None,
            is_up: true,
            process: 1,
            boot: 1,
            connection: 0,
            session: 0,
            paused_until: Duration::ZERO,
            cut_until: Duration::ZERO,
            loses_write: false,
            lost_write: None,
            misdirects_write_to: None,
            fails_reads: 0,
            fails_write: false,
            full_until: Duration::ZERO,
            has_failed: false,
            applying: None,
            is_well: true,
            has_lost_power: false,
            in_use: None,
            trouble_until: Duration::ZERO,
        }
    }

    pub(super) fn is_reachable(&self, now: Duration) -> bool {
        self.is_up && self.cut_until <= now && self.paused_until <= now
    }

    /// Returns `true` if the target's next write causes damage.
    pub(super) fn is_damaging(&self) -> bool {
        self.loses_write || self.misdirects_write_to.is_some()
    }

    /// Accepts a connection of this session.
    pub(super) fn join(&mut self, connection: u64, session: u64) {
        self.connection = connection;
        self.session = session;
        self.has_failed = false;
    }

    pub(super) fn kill(&mut self) {
        self.is_up = false;
        self.connection = 0;
        self.has_failed = true;
        self.applying = None;
        // The next process is not paused.
        self.paused_until = Duration::ZERO;
        self.full_until = Duration::ZERO;
        (self.loses_write, self.misdirects_write_to) = (false, None);
        (self.fails_reads, self.fails_write) = (0, false);
    }

    pub(super) fn start(&mut self) {
        self.is_up = true;
        self.process += 1;
        self.disk.open();
    }

    fn is_in_doubt(&self) -> bool {
        self.disk.since.is_some_and(|since| since != self.boot)
    }

    /// The state that the target reports to a service.
    pub(super) fn found(&self) -> Found {
        let Some(superblock) = self.disk.superblock else {
            return Found::Blank;
        };
        Found::Superblock(Superblock {
            state: if self.is_in_doubt() {
                RecordState::InDoubt
            } else {
                superblock.state
            },
            ..superblock
        })
    }

    /// Returns `true` if its superblock is that of this place in the set.
    pub(super) fn is_member(&self, set: Option<SetId>, number: usize) -> bool {
        let superblock = self.disk.superblock;
        superblock.is_some_and(|it| Some(it.set) == set && it.member as usize == number)
    }

    /// The identity that the target reports; it changes with each start of its machine.
    pub(super) fn identity(&self) -> (u32, u32) {
        (self.disk.identity, self.boot)
    }

    /// Persists a superblock, and thereby all earlier writes: both are in one file.
    pub(super) fn persist(&mut self, superblock: Superblock) {
        self.disk.sync();
        self.disk.superblock = Some(superblock);
        self.disk.since = (!superblock.is_unused()).then_some(self.boot);
    }

    /// Makes all data durable at a clean shutdown.
    pub(super) fn sync(&mut self) {
        if !self.is_in_doubt() {
            self.disk.since = None;
        }
        self.disk.sync();
    }

    pub(super) fn lose_power(&mut self, rng: &mut Rng) {
        self.kill();
        self.has_lost_power = true;
        self.disk.lose_power(rng);
        self.boot += 1;
    }

    /// Records which versions the service has retired.
    pub(super) fn retire(&mut self, retired: Stamp) {
        if retired.number != 0 {
            self.disk.retired = self.disk.retired.max(Some(retired));
        }
    }

    /// Number of versions, starting with the oldest, that may be copied to their places.
    fn retirable(&self) -> usize {
        let versions = self.disk.versions.iter();
        versions.take_while(|it| self.disk.is_retired(it)).count()
    }

    pub(super) fn may_apply(&self) -> bool {
        self.applying.is_none() && self.retirable() != 0
    }

    pub(super) fn is_applying(&self) -> bool {
        self.applying.is_some()
    }

    /// Starts to copy retired versions to their places.
    pub(super) fn begin_applying(&mut self) {
        let count = self.retirable();
        let Some(last) = self.disk.versions[..count].last() else {
            return;
        };
        let until = last.sequence + 1;
        let mut newest = BTreeMap::new();
        for version in &self.disk.versions[..count] {
            newest.insert(version.block, version.chunk);
        }
        let mut steps = vec![None];
        for (block, chunk) in newest {
            for (sector, bytes) in chunk.chunks(SECTOR).enumerate() {
                let bytes: [u8; SECTOR] = std::array::from_fn(|at| bytes[at]);
                steps.push(Some((block as usize * SECTORS + sector, bytes)));
            }
        }
        steps.push(None);
        self.applying = Some(Applying {
            until,
            steps,
            next: 0,
        });
    }

    /// Performs the next step. Returns `true` if further steps follow.
    pub(super) fn go_on_applying(&mut self) -> bool {
        let Some(applying) = &mut self.applying else {
            return false;
        };
        match applying.steps.get(applying.next) {
            Some(None) => self.disk.sync(),
            Some(Some((number, bytes))) => self.disk.write_sector(*number, bytes),
            None => {
                // The end of the versions is durable when their slots are used again.
                let until = applying.until;
                self.disk.versions.retain(|it| it.sequence >= until);
                self.disk.recorded_retired = self.disk.retired;
                self.applying = None;
                return false;
            }
        }
        applying.next += 1;
        true
    }
}
