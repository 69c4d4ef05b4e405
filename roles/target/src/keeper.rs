//! Stores the target's superblock with its blocks: in memory, or in the backing file.

use role_common::Failure;
use role_common::superblock::{Epoch, Superblock};
use wire::control::RecordState;

use crate::backing::{BackingFile, Boot, Noted};

/// The target's superblock.
#[derive(Debug)]
pub(crate) struct Keeper {
    noted: Option<Noted>,
    boot: Boot,
}

impl Keeper {
    /// Starts with the file's superblock, if any. `boot` is the current boot.
    pub(crate) fn new(file: Option<&BackingFile>, boot: Boot) -> Self {
        let noted = file.and_then(BackingFile::superblock);
        Self { noted, boot }
    }

    /// The superblock reported to a service.
    pub(crate) fn superblock(&self) -> Option<Superblock> {
        self.noted.map(|noted| Superblock {
            state: if self.is_in_doubt() {
                RecordState::InDoubt
            } else {
                noted.superblock.state
            },
            ..noted.superblock
        })
    }

    /// Returns `true` if the machine was restarted since blocks were written that may not have been durable.
    fn is_in_doubt(&self) -> bool {
        let since = self.noted.and_then(|noted| noted.since);
        since.is_some_and(|since| since != self.boot)
    }

    /// Stores this superblock in place of the previous one. It survives the end of the process when this returns, and
    /// a power failure. A clean shutdown of the set is not recorded if the medium of the blocks has failed.
    pub(crate) fn keep(
        &mut self,
        superblock: Superblock,
        file: Option<&BackingFile>,
    ) -> Result<(), Failure> {
        if let (RecordState::Clean | RecordState::Closing, Some(file)) = (superblock.state, file) {
            file.check_health()?;
        }
        let noted = Noted {
            superblock,
            since: Some(self.boot),
        };
        self.note(noted, file)
    }

    /// Called before blocks are written, by a service that has sent a superblock in this session or, when not
    /// `maintained`, by one that does not maintain superblocks: then the set's members may differ from their
    /// superblocks, so the state becomes `Foreign`.
    pub(crate) fn begin_use(
        &mut self,
        maintained: bool,
        file: Option<&BackingFile>,
    ) -> Result<(), Failure> {
        let Some(noted) = self.noted else {
            return Ok(());
        };
        let mut superblock = noted.superblock;
        if maintained {
            superblock.state = RecordState::InUse;
        } else {
            superblock.state = RecordState::Foreign;
            superblock.next = Epoch::NONE;
            superblock.checksums = false;
        }
        // Use does not resolve doubt.
        let since = if self.is_in_doubt() {
            noted.since
        } else {
            Some(self.boot)
        };
        let begun = Noted { superblock, since };
        if begun == noted {
            return Ok(());
        }
        self.note(begun, file)
    }

    /// Records that all blocks are durable.
    pub(crate) fn synced(&mut self, file: &BackingFile) -> Result<(), Failure> {
        match self.noted {
            Some(Noted { superblock, .. }) if !self.is_in_doubt() => {
                let since = None;
                self.note(Noted { superblock, since }, Some(file))
            }
            _ => Ok(()),
        }
    }

    fn note(&mut self, noted: Noted, file: Option<&BackingFile>) -> Result<(), Failure> {
        if let Some(file) = file {
            file.write_superblock(&noted)?;
        }
        self.noted = Some(noted);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use role_common::superblock::SetId;
    use wire::backing::RECORD_OFFSETS;

    use super::*;
    use crate::backing::Options;
    use crate::content::{Content, Geometry};

    const TODAY: Boot = Boot(1);
    const TOMORROW: Boot = Boot(2);

    fn superblock(number: u64, state: RecordState) -> Superblock {
        Superblock {
            set: SetId(77),
            member: 1,
            epoch: Epoch { number, id: 5 },
            next: Epoch { number: 4, id: 6 },
            state,
            checksums: true,
        }
    }

    /// The state left by a service that does not maintain superblocks.
    fn foreign(number: u64) -> Superblock {
        Superblock {
            next: Epoch::NONE,
            checksums: false,
            ..superblock(number, RecordState::Foreign)
        }
    }

    fn file(directory: &tempfile::TempDir) -> BackingFile {
        let geometry = Geometry {
            block_size: 512,
            block_count: 4,
        };
        let content = Content::open(None, geometry).expect("content");
        let path = directory.path().join("blocks");
        BackingFile::open(&path, content, Options::default()).expect("a file")
    }

    #[test]
    fn superblock_survives_a_restart() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = file(&directory);
        let mut keeper = Keeper::new(Some(&first), TODAY);
        assert_eq!(keeper.superblock(), None);
        keeper.begin_use(true, Some(&first)).expect("nothing to do");
        assert_eq!(keeper.superblock(), None);
        let clean = superblock(3, RecordState::Clean);
        keeper.keep(clean, Some(&first)).expect("kept");
        assert_eq!(keeper.superblock(), Some(clean));
        drop((first, keeper));

        let again = file(&directory);
        let mut keeper = Keeper::new(Some(&again), TODAY);
        assert_eq!(keeper.superblock(), Some(clean));
        keeper.begin_use(true, Some(&again)).expect("kept");
        let in_use = Some(superblock(3, RecordState::InUse));
        assert_eq!(keeper.superblock(), in_use);
        drop((again, keeper));
        let keeper = Keeper::new(Some(&file(&directory)), TODAY);
        assert_eq!(keeper.superblock(), in_use);
    }

    #[test]
    fn use_by_a_service_without_superblocks_is_persisted_as_foreign() {
        let directory = tempfile::tempdir().expect("a directory");
        let blocks = file(&directory);
        for state in [
            RecordState::Clean,
            RecordState::InUse,
            RecordState::Closing,
            RecordState::Foreign,
        ] {
            let mut keeper = Keeper::new(Some(&blocks), TODAY);
            let before = superblock(3, state);
            keeper.keep(before, Some(&blocks)).expect("kept");
            keeper.begin_use(false, Some(&blocks)).expect("kept");
            assert_eq!(keeper.superblock(), Some(foreign(3)), "{state}");
            let keeper = Keeper::new(Some(&blocks), TODAY);
            assert_eq!(keeper.superblock(), Some(foreign(3)), "{state}");
        }
        // After a restart of the machine it stays in doubt, and blocks no longer count as having checksums.
        let mut later = Keeper::new(Some(&blocks), TODAY);
        later
            .keep(superblock(3, RecordState::InUse), Some(&blocks))
            .expect("kept");
        let mut later = Keeper::new(Some(&blocks), TOMORROW);
        later.begin_use(false, Some(&blocks)).expect("kept");
        let doubtful = Superblock {
            state: RecordState::InDoubt,
            ..foreign(3)
        };
        assert_eq!(later.superblock(), Some(doubtful));
        let latest = Keeper::new(Some(&blocks), TOMORROW);
        assert_eq!(latest.superblock(), Some(doubtful));
    }

    #[test]
    fn reboot_leaves_doubt_unless_blocks_were_durable() {
        let directory = tempfile::tempdir().expect("a directory");
        let blocks = file(&directory);
        let mut keeper = Keeper::new(Some(&blocks), TODAY);
        let in_use = superblock(3, RecordState::InUse);
        keeper.keep(in_use, Some(&blocks)).expect("kept");
        let doubtful = Some(superblock(3, RecordState::InDoubt));
        let mut later = Keeper::new(Some(&blocks), TOMORROW);
        assert_eq!(later.superblock(), doubtful);
        // Neither use nor a clean shutdown resolves it.
        later.begin_use(true, Some(&blocks)).expect("kept");
        later.synced(&blocks).expect("kept");
        assert_eq!(later.superblock(), doubtful);
        let later = Keeper::new(Some(&blocks), TOMORROW);
        assert_eq!(later.superblock(), doubtful);

        // Nor does the fact that the last use ended cleanly.
        keeper
            .keep(superblock(3, RecordState::Clean), Some(&blocks))
            .expect("kept");
        let mut later = Keeper::new(Some(&blocks), TOMORROW);
        assert_eq!(later.superblock(), doubtful);
        later.begin_use(true, Some(&blocks)).expect("kept");
        assert_eq!(later.superblock(), doubtful);

        keeper.keep(in_use, Some(&blocks)).expect("kept");
        keeper.synced(&blocks).expect("kept");
        let mut later = Keeper::new(Some(&blocks), TOMORROW);
        assert_eq!(later.superblock(), Some(in_use));
        later.begin_use(true, Some(&blocks)).expect("kept");
        let latest = Keeper::new(Some(&blocks), Boot(3));
        assert_eq!(latest.superblock(), doubtful, "it was used after the sync");
    }

    #[test]
    fn corrupt_superblock_is_ignored() {
        use std::os::unix::fs::FileExt as _;
        let directory = tempfile::tempdir().expect("a directory");
        let blocks = file(&directory);
        let mut keeper = Keeper::new(Some(&blocks), TODAY);
        let clean = superblock(3, RecordState::Clean);
        keeper.keep(clean, Some(&blocks)).expect("kept");
        let path = directory.path().join("blocks");
        let raw = std::fs::OpenOptions::new().write(true).open(path);
        let raw = raw.expect("there");
        // The epoch.
        for offset in RECORD_OFFSETS {
            raw.write_all_at(&[9], offset + 32).expect("written");
        }
        drop(blocks);
        let keeper = Keeper::new(Some(&file(&directory)), TODAY);
        assert_eq!(keeper.superblock(), None);
    }

    #[test]
    fn superblock_of_memory_lives_as_long_as_the_blocks() {
        let mut keeper = Keeper::new(None, TODAY);
        let clean = superblock(1, RecordState::Clean);
        keeper.keep(clean, None).expect("kept");
        assert_eq!(keeper.superblock(), Some(clean));
        keeper.begin_use(true, None).expect("kept");
        assert_eq!(keeper.superblock(), Some(superblock(1, RecordState::InUse)));
    }
}
