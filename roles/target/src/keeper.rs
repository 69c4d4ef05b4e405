//! Keeps the record of the set of targets that the blocks are a part of, as long as the blocks: in memory, or in their file.

use role_common::Failure;
use role_common::membership::SetRecord;
use wire::control::RecordState;

use crate::backing::{BackingFile, Boot, Noted};

/// The record of this target.
#[derive(Debug)]
pub(crate) struct Keeper {
    noted: Option<Noted>,
    boot: Boot,
}

impl Keeper {
    /// With what the file has, if any. `boot` is that of now.
    pub(crate) fn new(file: Option<&BackingFile>, boot: Boot) -> Self {
        let noted = file.and_then(BackingFile::record);
        Self { noted, boot }
    }

    /// What a service is told.
    pub(crate) fn record(&self) -> Option<SetRecord> {
        self.noted.map(|noted| SetRecord {
            state: if self.is_in_doubt() {
                RecordState::InDoubt
            } else {
                noted.record.state
            },
            ..noted.record
        })
    }

    /// Whether the machine has been started since blocks were written that may not have been on the disk.
    fn is_in_doubt(&self) -> bool {
        let since = self.noted.and_then(|noted| noted.since);
        since.is_some_and(|since| since != self.boot)
    }

    /// Keeps this, whatever was before. It survives the end of the process when this returns, and a power failure. That the set was shut down
    /// cleanly is not kept of blocks whose medium has failed.
    pub(crate) fn keep(
        &mut self,
        record: SetRecord,
        file: Option<&BackingFile>,
    ) -> Result<(), Failure> {
        if let (RecordState::Clean, Some(file)) = (record.state, file) {
            file.check_health()?;
        }
        let noted = Noted {
            record,
            since: Some(self.boot),
        };
        self.note(noted, file)
    }

    /// Blocks may be written from now on.
    pub(crate) fn begin_use(&mut self, file: Option<&BackingFile>) -> Result<(), Failure> {
        let Some(Noted { record, since }) = self.noted else {
            return Ok(());
        };
        let is_known = record.state == RecordState::InUse && since.is_some();
        if is_known || self.is_in_doubt() {
            return Ok(());
        }
        let record = SetRecord {
            state: RecordState::InUse,
            ..record
        };
        self.keep(record, file)
    }

    /// All blocks are on the disk.
    pub(crate) fn synced(&mut self, file: &BackingFile) -> Result<(), Failure> {
        match self.noted {
            Some(Noted { record, .. }) if !self.is_in_doubt() => {
                let since = None;
                self.note(Noted { record, since }, Some(file))
            }
            _ => Ok(()),
        }
    }

    fn note(&mut self, noted: Noted, file: Option<&BackingFile>) -> Result<(), Failure> {
        if let Some(file) = file {
            file.write_record(&noted)?;
        }
        self.noted = Some(noted);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use role_common::membership::SetId;
    use wire::backing::RECORD_OFFSETS;

    use super::*;
    use crate::backing::Options;
    use crate::content::{Content, Geometry};

    const TODAY: Boot = Boot(1);
    const TOMORROW: Boot = Boot(2);

    fn record(epoch: u64, state: RecordState) -> SetRecord {
        SetRecord {
            set: SetId(77),
            member: 1,
            epoch,
            state,
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
    fn what_is_kept_is_there_after_another_start() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = file(&directory);
        let mut keeper = Keeper::new(Some(&first), TODAY);
        assert_eq!(keeper.record(), None);
        keeper.begin_use(Some(&first)).expect("nothing to do");
        assert_eq!(keeper.record(), None);
        let clean = record(3, RecordState::Clean);
        keeper.keep(clean, Some(&first)).expect("kept");
        assert_eq!(keeper.record(), Some(clean));
        drop((first, keeper));

        let again = file(&directory);
        let mut keeper = Keeper::new(Some(&again), TODAY);
        assert_eq!(keeper.record(), Some(clean));
        // By whoever does not know of records.
        keeper.begin_use(Some(&again)).expect("kept");
        let in_use = Some(record(3, RecordState::InUse));
        assert_eq!(keeper.record(), in_use);
        drop((again, keeper));
        let keeper = Keeper::new(Some(&file(&directory)), TODAY);
        assert_eq!(keeper.record(), in_use);
    }

    #[test]
    fn the_end_of_the_machine_makes_doubt_unless_all_was_on_the_disk() {
        let directory = tempfile::tempdir().expect("a directory");
        let blocks = file(&directory);
        let mut keeper = Keeper::new(Some(&blocks), TODAY);
        let in_use = record(3, RecordState::InUse);
        keeper.keep(in_use, Some(&blocks)).expect("kept");
        let doubtful = Some(record(3, RecordState::InDoubt));
        let mut later = Keeper::new(Some(&blocks), TOMORROW);
        assert_eq!(later.record(), doubtful);
        // Neither use nor a clean stop takes it away.
        later.begin_use(Some(&blocks)).expect("kept");
        later.synced(&blocks).expect("kept");
        assert_eq!(later.record(), doubtful);
        let later = Keeper::new(Some(&blocks), TOMORROW);
        assert_eq!(later.record(), doubtful);

        // Nor that the last use had come to a good end before.
        keeper
            .keep(record(3, RecordState::Clean), Some(&blocks))
            .expect("kept");
        let mut later = Keeper::new(Some(&blocks), TOMORROW);
        assert_eq!(later.record(), doubtful);
        later.begin_use(Some(&blocks)).expect("kept");
        assert_eq!(later.record(), doubtful);

        keeper.keep(in_use, Some(&blocks)).expect("kept");
        keeper.synced(&blocks).expect("kept");
        let mut later = Keeper::new(Some(&blocks), TOMORROW);
        assert_eq!(later.record(), Some(in_use));
        later.begin_use(Some(&blocks)).expect("kept");
        let latest = Keeper::new(Some(&blocks), Boot(3));
        assert_eq!(latest.record(), doubtful, "it was used after the sync");
    }

    #[test]
    fn a_damaged_record_is_none() {
        use std::os::unix::fs::FileExt as _;
        let directory = tempfile::tempdir().expect("a directory");
        let blocks = file(&directory);
        let mut keeper = Keeper::new(Some(&blocks), TODAY);
        let clean = record(3, RecordState::Clean);
        keeper.keep(clean, Some(&blocks)).expect("kept");
        let path = directory.path().join("blocks");
        let raw = std::fs::OpenOptions::new().write(true).open(path);
        let raw = raw.expect("there");
        // Its epoch.
        for offset in RECORD_OFFSETS {
            raw.write_all_at(&[9], offset + 32).expect("written");
        }
        drop(blocks);
        let keeper = Keeper::new(Some(&file(&directory)), TODAY);
        assert_eq!(keeper.record(), None);
    }

    #[test]
    fn blocks_in_memory_have_a_record_as_long_as_they() {
        let mut keeper = Keeper::new(None, TODAY);
        let clean = record(1, RecordState::Clean);
        keeper.keep(clean, None).expect("kept");
        assert_eq!(keeper.record(), Some(clean));
        keeper.begin_use(None).expect("kept");
        assert_eq!(keeper.record(), Some(record(1, RecordState::InUse)));
    }
}
