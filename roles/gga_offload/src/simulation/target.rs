//! A simulated storage target: a disk of 512-byte sectors with a volatile and a durable state, and a superblock.

use std::time::Duration;

use fastrand::Rng;
use role_common::superblock::Superblock;
use wire::control::RecordState;

use crate::engine::assembly::Found;

/// Blocks, and so stripes, of the simulated storage.
pub(super) const BLOCKS: u64 = 10;
/// Bytes of a chunk.
pub(super) const CHUNK: usize = 1024;
const SECTOR: usize = 512;
/// Time in which a target answers, unless it is away.
pub(super) const ANSWER_TIME: Duration = Duration::from_millis(2);
/// Sectors of a chunk.
pub(super) const SECTORS: usize = CHUNK / SECTOR;

/// The bytes of a disk and its superblock: what a copy of it has.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    /// Bytes, as the target reads them.
    pub(super) bytes: Vec<u8>,
    /// By sector: as it is after a power failure. `None` where that is the same.
    durable: Vec<Option<[u8; SECTOR]>>,
    superblock: Option<Superblock>,
    /// The start of the machine since which sectors may not be durable.
    since: Option<u32>,
    /// Tells it from any other.
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

    /// Writes a sector of a chunk, which is not durable before the disk is synced.
    pub(super) fn write_sector(&mut self, stripe: u64, sector: usize, chunk: &[u8]) {
        let number = stripe as usize * SECTORS + sector;
        let at = number * SECTOR;
        let old = &mut self.bytes[at..at + SECTOR];
        self.durable[number].get_or_insert_with(|| (&*old).try_into().unwrap_or([0; SECTOR]));
        old.copy_from_slice(&chunk[sector * SECTOR..(sector + 1) * SECTOR]);
    }

    /// A chunk is durable.
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

/// A target.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) disk: Disk,
    /// A copy of the disk, from some time before.
    pub(super) copy: Option<Disk>,
    pub(super) is_up: bool,
    /// Number of the start of its machine.
    boot: u32,
    /// The connection that it serves. Whatever comes over an earlier one is dropped.
    pub(super) connection: u64,
    /// It is paused until this time.
    pub(super) paused_until: Duration,
    /// Nothing gets from or to it before this time.
    pub(super) cut_until: Duration,
    pub(super) loses_write: bool,
    pub(super) misdirects_write_to: Option<u64>,
    /// So many reads fail.
    pub(super) fails_reads: u8,
    pub(super) fails_write: bool,
    /// `true` if it was killed, has lost its connection or has failed to write a chunk since it joined the set.
    pub(super) has_failed: bool,
    /// `true` if its disk is another one than it was killed with, as its superblock or identity says.
    pub(super) has_other_disk: bool,
    /// When its last silence began: it was paused, or could not be reached.
    silent_since: Duration,
    silent_until: Duration,
    /// The longest silence before that one, since it joined the set.
    longest_silence: Duration,
    /// When it was last away: killed, paused or not reached.
    away_until: Duration,
}

impl Target {
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

    /// Joins the set with a new connection: earlier events are no reason to detach it.
    pub(super) fn join(&mut self, connection: u64) {
        self.connection = connection;
        self.has_failed = false;
        self.has_other_disk = false;
        self.longest_silence = Duration::ZERO;
        self.silent_since = self.silent_until;
    }

    /// It is paused or unreachable until this time.
    pub(super) fn fall_silent(&mut self, now: Duration, until: Duration) {
        // In a shorter gap, it may not have got an answer through.
        if now > self.silent_until + ANSWER_TIME {
            self.longest_silence = self.silence(now);
            self.silent_since = now;
        }
        self.silent_until = self.silent_until.max(until);
        self.away_until = self.away_until.max(until);
    }

    /// The longest time that it has not answered, since it joined the set.
    pub(super) fn silence(&self, now: Duration) -> Duration {
        let last = self.silent_until.min(now).saturating_sub(self.silent_since);
        self.longest_silence.max(last)
    }

    /// Its process ends.
    pub(super) fn kill(&mut self) {
        self.is_up = false;
        self.connection = 0;
        self.has_failed = true;
        // The next process is not paused, and reached no sooner.
        self.paused_until = Duration::ZERO;
        self.silent_until = self.cut_until;
    }

    /// Its process starts.
    pub(super) fn start(&mut self, now: Duration) {
        self.is_up = true;
        self.away_until = self.cut_until.max(now);
    }

    /// Returns `true` if it was killed, paused or not reached at any time since then.
    pub(super) fn was_away(&self, since: Duration) -> bool {
        !self.is_up || self.away_until > since
    }

    /// Its state, as a service sees it.
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

    /// Persists a superblock, and with it all that was written before: they are in one file.
    pub(super) fn persist(&mut self, superblock: Superblock) {
        self.disk.sync();
        self.disk.superblock = Some(superblock);
        self.disk.since = Some(self.boot);
    }

    /// A clean end: everything is durable.
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

    /// Gets another disk.
    pub(super) fn replace_disk(&mut self, disk: Disk) {
        let epoch = |disk: &Disk| disk.superblock.map(|superblock| superblock.epoch);
        if epoch(&disk) != epoch(&self.disk) || disk.identity != self.disk.identity {
            self.has_other_disk = true;
        }
        self.disk = disk;
    }

    /// Its superblock is that of another set or, with `is_of_set`, of an epoch of the same number that the others do not know.
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
