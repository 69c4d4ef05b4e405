//! Metadata of the target: its superblock, stored with its blocks in memory or in the backing file, and the identity of its storage, by which a
//! service recognises a target that rejoins.

use bytes::Bytes;
use role_common::Failure;
use role_common::superblock::{Epoch, Superblock};
use wire::control::RecordState;

use crate::backing::{BackingFile, Boot, Identity, StoredSuperblock};

/// The target's superblock.
#[derive(Debug)]
pub(crate) struct MetadataStore {
    stored: Option<StoredSuperblock>,
    boot: Boot,
}

impl MetadataStore {
    /// Starts with the file's superblock, if any. `boot` is the current boot.
    pub(crate) fn new(file: Option<&BackingFile>, boot: Boot) -> Self {
        let stored = file.and_then(BackingFile::superblock);
        Self { stored, boot }
    }

    /// The superblock reported to a service.
    pub(crate) fn superblock(&self) -> Option<Superblock> {
        self.stored.map(|stored| Superblock {
            state: if self.is_in_doubt() {
                RecordState::InDoubt
            } else {
                stored.superblock.state
            },
            ..stored.superblock
        })
    }

    /// Returns `true` if the machine was restarted since blocks were written that may not have been durable.
    fn is_in_doubt(&self) -> bool {
        let since = self.stored.and_then(|stored| stored.since);
        since.is_some_and(|since| since != self.boot)
    }

    /// Stores this superblock in place of the previous one. It survives the end of the process when this returns, and
    /// a power failure. A clean shutdown of the set is not recorded if the medium of the blocks has failed.
    pub(crate) fn persist(
        &mut self,
        superblock: Superblock,
        file: Option<&BackingFile>,
    ) -> Result<(), Failure> {
        if let (RecordState::Clean | RecordState::Closing, Some(file)) = (superblock.state, file) {
            file.check_health()?;
        }
        let stored = StoredSuperblock {
            superblock,
            since: Some(self.boot),
        };
        self.write(stored, file)
    }

    /// Called before blocks are written, by a service that has sent a superblock in this session or, when not
    /// `maintained`, by one that does not maintain superblocks: then the set's members may differ from their
    /// superblocks, so the state becomes `Foreign`.
    pub(crate) fn begin_use(
        &mut self,
        maintained: bool,
        file: Option<&BackingFile>,
    ) -> Result<(), Failure> {
        let Some(stored) = self.stored else {
            return Ok(());
        };
        let mut superblock = stored.superblock;
        if maintained {
            superblock.state = RecordState::InUse;
        } else {
            superblock.state = RecordState::Foreign;
            superblock.next = Epoch::NONE;
            superblock.checksums = false;
        }
        // Use does not resolve doubt.
        let since = if self.is_in_doubt() {
            stored.since
        } else {
            Some(self.boot)
        };
        let begun = StoredSuperblock { superblock, since };
        if begun == stored {
            return Ok(());
        }
        self.write(begun, file)
    }

    /// Records that all blocks are durable.
    pub(crate) fn synced(&mut self, file: &BackingFile) -> Result<(), Failure> {
        match self.stored {
            Some(StoredSuperblock { superblock, .. }) if !self.is_in_doubt() => {
                let since = None;
                self.write(StoredSuperblock { superblock, since }, Some(file))
            }
            _ => Ok(()),
        }
    }

    fn write(
        &mut self,
        stored: StoredSuperblock,
        file: Option<&BackingFile>,
    ) -> Result<(), Failure> {
        if let Some(file) = file {
            file.write_superblock(&stored)?;
        }
        self.stored = Some(stored);
        Ok(())
    }
}

/// Identity of blocks in memory, which are lost with the process, or in a file with this identity.
///
/// A file keeps acknowledged writes when the process dies, but may lose them when the machine does. So the identity of
/// its blocks changes with each boot.
///
/// # Errors
///
/// The operating system has no random numbers.
pub(crate) fn identity_of(file: Option<Identity>, boot: Boot) -> Result<Bytes, Failure> {
    match file {
        Some(Identity(bytes)) => Ok([bytes, boot.0.to_be_bytes()].concat().into()),
        None => Ok(Bytes::copy_from_slice(&Identity::random()?.0)),
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
        let mut metadata = MetadataStore::new(Some(&first), TODAY);
        assert_eq!(metadata.superblock(), None);
        metadata
            .begin_use(true, Some(&first))
            .expect("nothing to do");
        assert_eq!(metadata.superblock(), None);
        let clean = superblock(3, RecordState::Clean);
        metadata.persist(clean, Some(&first)).expect("kept");
        assert_eq!(metadata.superblock(), Some(clean));
        drop((first, metadata));

        let again = file(&directory);
        let mut metadata = MetadataStore::new(Some(&again), TODAY);
        assert_eq!(metadata.superblock(), Some(clean));
        metadata.begin_use(true, Some(&again)).expect("kept");
        let in_use = Some(superblock(3, RecordState::InUse));
        assert_eq!(metadata.superblock(), in_use);
        drop((again, metadata));
        let metadata = MetadataStore::new(Some(&file(&directory)), TODAY);
        assert_eq!(metadata.superblock(), in_use);
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
            let mut metadata = MetadataStore::new(Some(&blocks), TODAY);
            let before = superblock(3, state);
            metadata.persist(before, Some(&blocks)).expect("kept");
            metadata.begin_use(false, Some(&blocks)).expect("kept");
            assert_eq!(metadata.superblock(), Some(foreign(3)), "{state}");
            let metadata = MetadataStore::new(Some(&blocks), TODAY);
            assert_eq!(metadata.superblock(), Some(foreign(3)), "{state}");
        }
        // After a restart of the machine it stays in doubt, and blocks no longer count as having checksums.
        let mut later = MetadataStore::new(Some(&blocks), TODAY);
        later
            .persist(superblock(3, RecordState::InUse), Some(&blocks))
            .expect("kept");
        let mut later = MetadataStore::new(Some(&blocks), TOMORROW);
        later.begin_use(false, Some(&blocks)).expect("kept");
        let doubtful = Superblock {
            state: RecordState::InDoubt,
            ..foreign(3)
        };
        assert_eq!(later.superblock(), Some(doubtful));
        let latest = MetadataStore::new(Some(&blocks), TOMORROW);
        assert_eq!(latest.superblock(), Some(doubtful));
    }

    #[test]
    fn reboot_leaves_doubt_unless_blocks_were_durable() {
        let directory = tempfile::tempdir().expect("a directory");
        let blocks = file(&directory);
        let mut metadata = MetadataStore::new(Some(&blocks), TODAY);
        let in_use = superblock(3, RecordState::InUse);
        metadata.persist(in_use, Some(&blocks)).expect("kept");
        let doubtful = Some(superblock(3, RecordState::InDoubt));
        let mut later = MetadataStore::new(Some(&blocks), TOMORROW);
        assert_eq!(later.superblock(), doubtful);
        // Neither use nor a clean shutdown resolves it.
        later.begin_use(true, Some(&blocks)).expect("kept");
        later.synced(&blocks).expect("kept");
        assert_eq!(later.superblock(), doubtful);
        let later = MetadataStore::new(Some(&blocks), TOMORROW);
        assert_eq!(later.superblock(), doubtful);

        // Nor does the fact that the last use ended cleanly.
        metadata
            .persist(superblock(3, RecordState::Clean), Some(&blocks))
            .expect("kept");
        let mut later = MetadataStore::new(Some(&blocks), TOMORROW);
        assert_eq!(later.superblock(), doubtful);
        later.begin_use(true, Some(&blocks)).expect("kept");
        assert_eq!(later.superblock(), doubtful);

        metadata.persist(in_use, Some(&blocks)).expect("kept");
        metadata.synced(&blocks).expect("kept");
        let mut later = MetadataStore::new(Some(&blocks), TOMORROW);
        assert_eq!(later.superblock(), Some(in_use));
        later.begin_use(true, Some(&blocks)).expect("kept");
        let latest = MetadataStore::new(Some(&blocks), Boot(3));
        assert_eq!(latest.superblock(), doubtful, "it was used after the sync");
    }

    #[test]
    fn corrupt_superblock_is_ignored() {
        use std::os::unix::fs::FileExt as _;
        let directory = tempfile::tempdir().expect("a directory");
        let blocks = file(&directory);
        let mut metadata = MetadataStore::new(Some(&blocks), TODAY);
        let clean = superblock(3, RecordState::Clean);
        metadata.persist(clean, Some(&blocks)).expect("kept");
        let path = directory.path().join("blocks");
        let raw = std::fs::OpenOptions::new().write(true).open(path);
        let raw = raw.expect("there");
        // The epoch.
        for offset in RECORD_OFFSETS {
            raw.write_all_at(&[9], offset + 32).expect("written");
        }
        drop(blocks);
        let metadata = MetadataStore::new(Some(&file(&directory)), TODAY);
        assert_eq!(metadata.superblock(), None);
    }

    #[test]
    fn superblock_of_memory_lives_as_long_as_the_blocks() {
        let mut metadata = MetadataStore::new(None, TODAY);
        let clean = superblock(1, RecordState::Clean);
        metadata.persist(clean, None).expect("kept");
        assert_eq!(metadata.superblock(), Some(clean));
        metadata.begin_use(true, None).expect("kept");
        assert_eq!(
            metadata.superblock(),
            Some(superblock(1, RecordState::InUse))
        );
    }
}

#[cfg(test)]
mod identity_tests {
    use super::*;

    #[test]
    fn identity_of_a_file_changes_with_the_boot() {
        let (one, other) = (Some(Identity([1; 16])), Some(Identity([2; 16])));
        let of = |file, boot| identity_of(file, Boot(boot)).expect("an identity");
        assert_eq!(of(one, 1), of(one, 1));
        assert_ne!(of(one, 1), of(one, 2));
        assert_ne!(of(one, 1), of(other, 1));
        assert!(of(one, 1).len() <= 64);
    }

    #[test]
    fn identity_of_memory_changes_with_every_start() {
        assert_ne!(identity_of(None, Boot(1)), identity_of(None, Boot(1)));
    }

    #[test]
    fn boot_id_is_parsed() {
        let text = "01234567-89ab-cdef-0123-456789abcdef\n";
        let boot = Boot::of_text(text).expect("a name");
        assert_eq!(boot.0, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        for wrong in ["", "0", "00000000-0000-0000-0000-000000000000", "x", "1"] {
            assert_eq!(Boot::of_text(wrong), None, "{wrong}");
        }
        assert_ne!(Boot::now().expect("a number").0, 0);
    }
}
