//! Backing files while their target is stopped: damage, old copies, and the state after a power failure.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;

use fastrand::Rng;

/// Offset of the first block in a backing file; superblocks are before it.
pub(super) const CONTENT: usize = 65536;
/// Unit that a disk writes atomically.
const SECTOR: usize = 512;
/// Places of the superblock in a backing file.
const SUPERBLOCKS: [usize; 2] = [4096, 8192];

/// Reads a whole backing file.
pub(super) fn copy_of(disk: &Path) -> io::Result<Vec<u8>> {
    fs::read(disk)
}

/// Replaces a backing file by a copy, as a new file.
pub(super) fn put(disk: &Path, content: &[u8]) -> io::Result<()> {
    let new = disk.with_extension("new");
    fs::write(&new, content)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
    fs::rename(new, disk)
}

/// A chunk of a backing file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    pub(super) size: usize,
    pub(super) number: u64,
}

impl Chunk {
    pub(super) fn offset(self) -> usize {
        CONTENT + self.number as usize * self.size
    }

    pub(super) fn read(self, disk: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.size];
        File::open(disk)?.read_exact_at(&mut bytes, self.offset() as u64)?;
        Ok(bytes)
    }

    pub(super) fn write(self, disk: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = File::options().write(true).open(disk)?;
        file.write_all_at(bytes, self.offset() as u64)
    }
}

/// Replaces the content of a backing file by a possible content after a power failure, given the durable content
/// before: each sector that has changed since then is old or new. Superblocks are new, because they are written
/// synchronously. Returns the number of sectors that were lost.
pub(super) fn lose_power(disk: &Path, durable: &[u8], rng: &mut Rng) -> io::Result<usize> {
    let now = fs::read(disk)?;
    if has_committed(durable, &now) {
        // The new superblock asserts that all blocks written before it are durable.
        return Ok(0);
    }
    let share = [0.5, 0.1, 0.9, 1.0, 0.0][rng.usize(..5)];
    let mut left = now.clone();
    let mut lost = 0;
    let mut at = CONTENT;
    while at < now.len().min(durable.len()) {
        let end = (at + SECTOR).min(now.len()).min(durable.len());
        if now[at..end] != durable[at..end] && rng.f64() < share {
            left[at..end].copy_from_slice(&durable[at..end]);
            lost += 1;
        }
        at = end;
    }
    put(disk, &left)?;
    Ok(lost)
}

/// Overwrites a share of the sectors of a backing file with random bytes, but not its superblocks.
pub(super) fn garble(disk: &Path, share: f64, rng: &mut Rng) -> io::Result<()> {
    let mut file = copy_of(disk)?;
    for sector in file[CONTENT..].chunks_mut(SECTOR) {
        if rng.f64() < share {
            rng.fill(sector);
        }
    }
    put(disk, &file)
}

/// Returns `true` if the superblocks differ in the set, its epoch or its state.
fn has_committed(before: &[u8], now: &[u8]) -> bool {
    superblock(before).map(statement) != superblock(now).map(statement)
}

/// The superblock with the higher sequence.
fn superblock(file: &[u8]) -> Option<&[u8]> {
    let slots = SUPERBLOCKS.iter().filter_map(|&at| file.get(at..at + 104));
    let valid = slots.filter(|slot| slot.starts_with(b"DOCASET"));
    valid.max_by_key(|slot| slot[8..16].to_vec())
}

/// The bytes of a superblock between its sequence and the boot identifier.
fn statement(superblock: &[u8]) -> Vec<u8> {
    superblock[16..84].to_vec()
}

/// Kinds of damage to one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    /// One bit has flipped.
    Bit,
    /// Random bytes in a sector's place.
    Sector,
    /// The chunk contains only zeros, as if it had never been written.
    Zeros,
    /// The chunk of an earlier write of the block: a lost write.
    Old,
    /// The chunk of another block of this target: a misdirected write.
    Misdirected,
    /// The chunk of this block of another target.
    OfOther,
}

impl Damage {
    pub(super) const ALL: [Self; 6] = [
        Self::Bit,
        Self::Sector,
        Self::Zeros,
        Self::Old,
        Self::Misdirected,
        Self::OfOther,
    ];

    /// Damages a chunk of `disk`; `old` is an earlier copy of the file, `other` the file of another target.
    pub(super) fn inflict(
        self,
        chunk: Chunk,
        disk: &Path,
        old: &[u8],
        other: &Path,
        rng: &mut Rng,
        blocks: u64,
    ) -> io::Result<()> {
        let mut bytes = chunk.read(disk)?;
        match self {
            Self::Bit => {
                let bit = rng.usize(..bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            Self::Sector => {
                let at = rng.usize(..bytes.len() / SECTOR) * SECTOR;
                rng.fill(&mut bytes[at..at + SECTOR]);
            }
            Self::Zeros => bytes.fill(0),
            Self::Old => {
                let at = chunk.offset();
                bytes.copy_from_slice(&old[at..at + chunk.size]);
            }
            Self::Misdirected => {
                let number = (chunk.number + rng.u64(1..blocks)) % blocks;
                bytes = Chunk { number, ..chunk }.read(disk)?;
            }
            Self::OfOther => bytes = chunk.read(other)?,
        }
        chunk.write(disk, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_failure_loses_changed_sectors_and_no_superblock() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = directory.path().join("disk");
        let durable = vec![1; CONTENT + 64 * SECTOR];
        let mut now = durable.clone();
        now[4096] = 2;
        now[CONTENT + SECTOR..].fill(2);
        let mut lost = 0;
        for seed in 0..20 {
            put(&disk, &now).expect("written");
            lost += lose_power(&disk, &durable, &mut Rng::with_seed(seed)).expect("mixed");
            let left = fs::read(&disk).expect("a file");
            assert_eq!((left[4096], left[CONTENT]), (2, 1));
            for sector in left[CONTENT..].chunks(SECTOR) {
                assert!(sector.iter().all(|byte| *byte == sector[0]));
            }
        }
        assert!(lost > 0 && lost < 20 * 63, "{lost}");
    }

    #[test]
    fn nothing_is_lost_after_another_epoch_was_committed() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = directory.path().join("disk");
        let mut durable = vec![0; CONTENT + SECTOR];
        durable[4096..4104].copy_from_slice(b"DOCASET\x03");
        let mut now = durable.clone();
        now[CONTENT..].fill(2);
        // A change of only the boot identifier has no effect on blocks.
        now[4096 + 84] = 1;
        assert!(!has_committed(&durable, &now));
        now[4096 + 32] = 1;
        put(&disk, &now).expect("written");
        for seed in 0..20 {
            let lost = lose_power(&disk, &durable, &mut Rng::with_seed(seed)).expect("mixed");
            assert_eq!(lost, 0);
        }
    }
}
