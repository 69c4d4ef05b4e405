//! Versions of blocks kept by a scripted target.

use std::collections::BTreeMap;

/// Epoch and number of a version.
type Stamp = (u64, u64);

/// Number of versions that the target keeps in addition to one version of each block.
pub(super) const SLOTS: u32 = 64;

/// Versions of a block, the newest of which is in the contents of the storage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Block {
    newest: Stamp,
    /// Earlier versions, in the order in which they were written.
    earlier: Vec<(Stamp, Vec<u8>)>,
}

impl Block {
    fn has_unretired(&self, retired: Stamp) -> bool {
        let earlier = self.earlier.iter().map(|&(stamp, _)| stamp);
        earlier
            .chain([self.newest])
            .any(|stamp| stamp != (0, 0) && stamp >= retired)
    }
}

/// Versions of blocks that are not retired, and the versions that they replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Versions {
    blocks: BTreeMap<u64, Block>,
    last: Stamp,
    /// Versions below this one are retired.
    retired: Stamp,
}

impl Versions {
    /// The highest version that was written.
    #[must_use]
    pub fn last(&self) -> (u64, u64) {
        self.last
    }

    /// Blocks with a version that is not retired, in ascending order.
    pub fn unretired(&self) -> impl Iterator<Item = u64> {
        self.blocks.keys().copied()
    }

    /// Records a write of this version, which replaces these bytes. Returns `false` if no slot is free.
    pub fn write(&mut self, block: u64, version: (u64, u64), replaced: Vec<u8>) -> bool {
        let used: usize = self.blocks.values().map(|it| it.earlier.len()).sum();
        if used >= SLOTS as usize {
            return false;
        }
        let it = self.blocks.entry(block).or_default();
        it.earlier.push((it.newest, replaced));
        it.newest = version;
        self.last = self.last.max(version);
        true
    }

    /// The newest version of a block that is older than this one; `None` if this is the block in the storage.
    #[must_use]
    pub fn before(&self, block: u64, version: (u64, u64)) -> Option<&[u8]> {
        let it = self.blocks.get(&block)?;
        if it.newest < version {
            return None;
        }
        let older = it.earlier.iter().rfind(|&&(stamp, _)| stamp < version);
        let oldest = it.earlier.first();
        older.or(oldest).map(|(_, bytes)| &bytes[..])
    }

    /// Versions of this epoch with lower numbers, and all of earlier epochs, are retired, and the versions that they
    /// replaced are dropped. A number of 0 has no effect.
    pub fn retire(&mut self, epoch: u64, number: u64) {
        if number == 0 || (epoch, number) <= self.retired {
            return;
        }
        self.retired = (epoch, number);
        let retired = self.retired;
        self.blocks.retain(|_, it| it.has_unretired(retired));
        for it in self.blocks.values_mut() {
            while it.earlier.get(1).is_some_and(|&(next, _)| next < retired) {
                it.earlier.remove(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_kept_until_they_are_retired() {
        let mut versions = Versions::default();
        for (number, replaced) in [(2, 0), (3, 2), (5, 3)] {
            assert!(versions.write(7, (1, number), vec![replaced]));
        }
        assert!(versions.write(8, (1, 4), vec![0]));
        let before = |versions: &Versions, number| versions.before(7, (1, number)).map(|it| it[0]);
        assert_eq!(before(&versions, 6), None);
        assert_eq!(before(&versions, 5), Some(3));
        assert_eq!(before(&versions, 3), Some(2));
        assert_eq!(before(&versions, 2), Some(0));
        assert_eq!(versions.before(9, (1, 2)), None);
        assert_eq!(versions.last(), (1, 5));
        versions.retire(1, 5);
        assert!(versions.unretired().eq([7]));
        assert_eq!(before(&versions, 5), Some(3));
        assert_eq!(before(&versions, 2), Some(3));
        versions.retire(1, 0);
        versions.retire(1, 4);
        assert!(versions.unretired().eq([7]));
        versions.retire(2, 2);
        assert_eq!(versions.unretired().count(), 0);
        assert_eq!(before(&versions, 2), None);
    }

    #[test]
    fn slots_are_limited() {
        let mut versions = Versions::default();
        for number in 0..u64::from(SLOTS) {
            assert!(versions.write(number, (1, number + 2), Vec::new()));
        }
        assert!(!versions.write(0, (1, 100), Vec::new()));
        versions.retire(1, 4);
        assert!(versions.write(0, (1, 100), Vec::new()));
    }
}
