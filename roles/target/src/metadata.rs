//! Metadata of the target: its superblock, in memory with its blocks or in one of two slots of the backing file, and the identity of its
//! storage, by which a service recognises a target that rejoins.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use control::Failure;
use control::verifier::{Incarnation, StorageId, Verifier};
use role_common::superblock::{malformed, no_random_number};
use role_formats::superblock::{Epoch, Form, SetId, Superblock};
use wire::backing::{RECORD_OFFSETS, RECORD_SIZE, Superblock as Stored};
use wire::control::RecordState;

use crate::backing::{BackingFile, Identity};

/// The target's superblock.
#[derive(Debug)]
pub(crate) struct MetadataStore {
    stored: Option<StoredSuperblock>,
    boot: Boot,
}

impl MetadataStore {
    /// Starts with the file's superblock, if it has one. `boot` is the current boot.
    pub(crate) fn new(file: Option<&BackingFile>, boot: Boot) -> Self {
        let stored = file.and_then(BackingFile::superblock);
        Self { stored, boot }
    }

    /// The superblock reported to a service.
    pub(crate) fn superblock(&self) -> Option<Superblock> {
        self.stored.map(|stored| stored.reported(self.boot))
    }

    fn is_in_doubt(&self) -> bool {
        self.stored.is_some_and(|it| it.is_in_doubt(self.boot))
    }

    /// Stores this superblock in place of the previous one. It survives the end of the process when this returns, and a
    /// power failure. A clean shutdown of the set is not recorded if the medium of the blocks has failed as a whole;
    /// failures of individual I/Os were reported to the service.
    ///
    /// All blocks of a set that no session uses are durable: after a restart of the machine, the set is reported as
    /// closed, and not as in doubt.
    pub(crate) fn persist(
        &mut self,
        superblock: Superblock,
        file: Option<&BackingFile>,
    ) -> Result<(), Failure> {
        if let (true, Some(file)) = (superblock.is_closed(), file) {
            file.check_medium()?;
        }
        let is_unused = superblock.is_unused();
        if let (true, Some(file)) = (is_unused, file) {
            // Otherwise, the superblock could become durable before blocks that were written earlier.
            file.make_durable()?;
        }
        let stored = StoredSuperblock {
            superblock,
            since: (!is_unused).then_some(self.boot),
        };
        self.write(stored, file)
    }

    /// Called before blocks are written, by a service that has sent a superblock in this session, or to a target that
    /// is not a member of a set.
    pub(crate) fn begin_use(&mut self, file: Option<&BackingFile>) -> Result<(), Failure> {
        let Some(stored) = self.stored else {
            return Ok(());
        };
        let superblock = Superblock {
            state: RecordState::InUse,
            ..stored.superblock
        };
        // Using the set does not resolve doubt.
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

/// Verifier of blocks in this file, or in memory, which are lost with the process.
///
/// # Errors
///
/// The operating system provides no random numbers.
pub(crate) fn verifier_of(file: Option<&BackingFile>, boot: Boot) -> Result<Verifier, Failure> {
    let identity = match file {
        Some(file) => file.identity(),
        None => Identity::random()?,
    };
    let identity = StorageId::from(identity);
    let incarnation = file.map_or(Incarnation(identity.0), |file| file.incarnation(boot));
    Ok(Verifier::of_one(identity, file.is_none(), incarnation))
}

/// The kernel's random identifier of the current boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A boot of the machine. Not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boot(pub u128);

impl Boot {
    /// The current boot. If it cannot be determined, each call returns a different value.
    ///
    /// # Errors
    ///
    /// The operating system provides no random numbers.
    pub fn now() -> Result<Self, Failure> {
        let known = std::fs::read_to_string(BOOT_ID).ok();
        match known.as_deref().and_then(Self::of_text) {
            Some(boot) => Ok(boot),
            None => Ok(Self(
                u128::from_be_bytes(role_formats::superblock::random().map_err(no_random_number)?)
                    | 1,
            )),
        }
    }

    /// Parses the kernel's format: 32 hexadecimal digits with dashes.
    fn of_text(text: &str) -> Option<Self> {
        let digits: String = text.trim().chars().filter(|&sign| sign != '-').collect();
        let number = u128::from_str_radix(&digits, 16).ok()?;
        (number != 0 && digits.len() == 32).then_some(Self(number))
    }
}

/// A superblock as stored in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredSuperblock {
    /// The superblock, in a state that is stored: neither `None` nor `InDoubt`.
    pub superblock: Superblock,
    /// Boot in which blocks were written that may not be durable. `None` if all blocks are durable.
    pub since: Option<Boot>,
}

impl StoredSuperblock {
    /// Returns `true` if the machine was restarted since blocks were written that may not have been durable.
    fn is_in_doubt(&self, boot: Boot) -> bool {
        self.since.is_some_and(|since| since != boot)
    }

    /// The superblock that a target reports in this boot of its machine.
    #[must_use]
    pub fn reported(&self, boot: Boot) -> Superblock {
        let state = if self.is_in_doubt(boot) {
            RecordState::InDoubt
        } else {
            self.superblock.state
        };
        Superblock {
            state,
            ..self.superblock
        }
    }
}

/// Encodes a superblock with this sequence number, which is at least 1.
#[must_use]
pub fn emit(sequence: u64, stored: &StoredSuperblock) -> [u8; RECORD_SIZE] {
    let Superblock {
        set,
        member,
        epoch,
        next,
        state,
        form,
    } = stored.superblock;
    let boot = stored.since.map_or(0, |Boot(number)| number);
    let mut record = Stored {
        sequence,
        set_high: (set.0 >> 64) as u64,
        set_low: set.0 as u64,
        epoch: epoch.number,
        epoch_id: epoch.id,
        next_epoch: next.number,
        next_epoch_id: next.id,
        member,
        state: match state {
            // These states are never stored: they imply that blocks were written.
            RecordState::None | RecordState::InDoubt => RecordState::InUse.number(),
            state => state.number(),
        },
        format: form.format_number(),
        matrix: form.matrix_number(),
        logical_block_size: form.logical_block_size,
        boot_high: (boot >> 64) as u64,
        boot_low: boot as u64,
        checksum: 0,
    };
    record.checksum = checksum(&record.emit());
    record.emit()
}

/// Decodes a superblock and its sequence number. Returns `None` for zeros: no superblock.
///
/// # Errors
///
/// The bytes are neither a valid superblock nor zeros.
pub fn parse(bytes: &[u8; RECORD_SIZE]) -> Result<Option<(u64, StoredSuperblock)>, Failure> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let record = Stored::parse(bytes)?;
    let expected = checksum(bytes);
    if record.checksum != expected {
        let found = record.checksum;
        return Err(Failure::invalid(format!(
            "expected the checksum {expected:#010x}, found {found:#010x}"
        )));
    }
    let state = match RecordState::ALL
        .iter()
        .find(|it| it.number() == record.state)
    {
        Some(&state @ (RecordState::Clean | RecordState::InUse | RecordState::Closing)) => state,
        _ => {
            return Err(Failure::invalid(format!(
                "expected the state 1, 2 or 4, found {}",
                record.state
            )));
        }
    };
    let boot = u128::from(record.boot_high) << 64 | u128::from(record.boot_low);
    let stored = StoredSuperblock {
        superblock: Superblock {
            set: SetId(u128::from(record.set_high) << 64 | u128::from(record.set_low)),
            member: record.member,
            epoch: Epoch {
                number: record.epoch,
                id: record.epoch_id,
            },
            next: Epoch {
                number: record.next_epoch,
                id: record.next_epoch_id,
            },
            state,
            form: Form::of_numbers(record.format, record.matrix, record.logical_block_size)
                .map_err(malformed)?,
        },
        since: (boot != 0).then_some(Boot(boot)),
    };
    Ok(Some((record.sequence, stored)))
}

/// Medium to which records are written.
pub trait Medium {
    /// Writes bytes at this offset.
    ///
    /// # Errors
    ///
    /// The medium failed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes written bytes durable.
    ///
    /// # Errors
    ///
    /// The medium failed.
    fn sync(&self) -> io::Result<()>;
}

impl Medium for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        // A single system call, which is not interrupted by signals.
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// A record with two places in a file, each in a separate sector. They are written alternately, so that the previous
/// record remains valid until the new one is durable.
pub trait Record: Copy {
    /// Offsets of the places, indexed by the record's sequence modulo 2.
    const OFFSETS: [u64; 2];

    /// Bytes of a record.
    type Bytes: AsRef<[u8]> + AsMut<[u8]>;

    /// Bytes of a place without a record: zeros.
    const BLANK: Self::Bytes;

    /// Encodes the record with this sequence number, which is at least 1.
    fn emit(&self, sequence: u64) -> Self::Bytes;

    /// Decodes a record and its sequence number. Returns `None` for zeros: no record.
    ///
    /// # Errors
    ///
    /// The bytes are neither a valid record nor zeros.
    fn parse(bytes: &Self::Bytes) -> Result<Option<(u64, Self)>, Failure>;
}

impl Record for StoredSuperblock {
    const OFFSETS: [u64; 2] = RECORD_OFFSETS;

    type Bytes = [u8; RECORD_SIZE];

    const BLANK: Self::Bytes = [0; RECORD_SIZE];

    fn emit(&self, sequence: u64) -> Self::Bytes {
        emit(sequence, self)
    }

    fn parse(bytes: &Self::Bytes) -> Result<Option<(u64, Self)>, Failure> {
        parse(bytes)
    }
}

/// The two places of a record in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places<R> {
    /// The valid record with the highest sequence number.
    newest: Option<(u64, R)>,
}

impl<R> Default for Places<R> {
    fn default() -> Self {
        Self { newest: None }
    }
}

impl<R: Record> Places<R> {
    /// Selects the valid record from the contents of both places. A corrupt place is ignored, and the failure passed to
    /// `damaged`.
    pub fn new(places: &[R::Bytes; 2], mut damaged: impl FnMut(Failure)) -> Self {
        let mut found = Self::default();
        for bytes in places {
            match R::parse(bytes) {
                Ok(Some((sequence, record))) => {
                    if found.newest.is_none_or(|(newest, _)| newest < sequence) {
                        found.newest = Some((sequence, record));
                    }
                }
                Ok(None) => {}
                Err(why) => damaged(why),
            }
        }
        found
    }

    /// As [`new`](Self::new), from a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(crate) fn read(file: &File, damaged: impl FnMut(Failure)) -> io::Result<Self> {
        let mut places = [R::BLANK, R::BLANK];
        for (bytes, offset) in places.iter_mut().zip(R::OFFSETS) {
            file.read_exact_at(bytes.as_mut(), offset)?;
        }
        Ok(Self::new(&places, damaged))
    }

    /// The newest valid record, if there is one.
    #[must_use]
    pub fn newest(&self) -> Option<R> {
        self.newest.map(|(_, record)| record)
    }

    /// Writes the next record durably. The previous record remains valid until then.
    ///
    /// # Errors
    ///
    /// The medium failed: either record may be found later.
    pub fn write(&mut self, medium: &impl Medium, record: &R) -> io::Result<()> {
        let (sequence, place) = self.next();
        medium.write_at(record.emit(sequence).as_ref(), R::OFFSETS[place])?;
        medium.sync()?;
        self.newest = Some((sequence, *record));
        Ok(())
    }

    /// Sequence number and place of the next record; the place is not that of the valid record.
    #[must_use]
    fn next(&self) -> (u64, usize) {
        let sequence = self.newest.map_or(0, |(sequence, _)| sequence) + 1;
        (sequence, (sequence % 2) as usize)
    }
}

/// CRC-32C of the bytes of a record before its checksum, which is its last field.
pub(crate) fn checksum(record: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(&record[..record.len() - size_of::<u32>()])
}

#[cfg(test)]
mod tests {
    use role_formats::stored_block::MatrixType;
    use role_formats::superblock::Format;

    use super::*;
    use crate::backing::Options;
    use crate::content::{Content, Geometry};

    const TODAY: Boot = Boot(1);
    const TOMORROW: Boot = Boot(2);

    const FORM: Form = Form {
        format: Format::StoredChunks,
        matrix: MatrixType::Cauchy,
        logical_block_size: 4096,
    };

    fn superblock(number: u64, state: RecordState) -> Superblock {
        Superblock {
            set: SetId(77),
            member: 1,
            epoch: Epoch { number, id: 5 },
            next: Epoch { number: 4, id: 6 },
            state,
            form: FORM,
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
        metadata.begin_use(Some(&first)).expect("nothing to do");
        assert_eq!(metadata.superblock(), None);
        let clean = superblock(3, RecordState::Clean);
        metadata.persist(clean, Some(&first)).expect("kept");
        assert_eq!(metadata.superblock(), Some(clean));
        drop((first, metadata));

        let again = file(&directory);
        let mut metadata = MetadataStore::new(Some(&again), TODAY);
        assert_eq!(metadata.superblock(), Some(clean));
        metadata.begin_use(Some(&again)).expect("kept");
        let in_use = Some(superblock(3, RecordState::InUse));
        assert_eq!(metadata.superblock(), in_use);
        drop((again, metadata));
        let metadata = MetadataStore::new(Some(&file(&directory)), TODAY);
        assert_eq!(metadata.superblock(), in_use);
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
        // Neither use nor a clean shutdown resolves the doubt.
        later.begin_use(Some(&blocks)).expect("kept");
        later.synced(&blocks).expect("kept");
        assert_eq!(later.superblock(), doubtful);
        let later = MetadataStore::new(Some(&blocks), TOMORROW);
        assert_eq!(later.superblock(), doubtful);

        // The blocks of a set that no session uses are durable. A set that prepares for its next session is in use.
        for state in [RecordState::Clean, RecordState::Closing] {
            let preparing = superblock(3, state);
            let closed = Superblock {
                next: Epoch::NONE,
                ..preparing
            };
            for (persisted, reported) in [
                (closed, closed),
                (
                    preparing,
                    Superblock {
                        state: RecordState::InDoubt,
                        ..preparing
                    },
                ),
            ] {
                metadata.persist(persisted, Some(&blocks)).expect("kept");
                let mut later = MetadataStore::new(Some(&blocks), TOMORROW);
                assert_eq!(later.superblock(), Some(reported));
                later.begin_use(Some(&blocks)).expect("kept");
                let latest = MetadataStore::new(Some(&blocks), Boot(3));
                let state = latest.superblock().map(|it| it.state);
                assert_eq!(state, Some(RecordState::InDoubt), "it was used since");
            }
        }

        metadata.persist(in_use, Some(&blocks)).expect("kept");
        metadata.synced(&blocks).expect("kept");
        let mut later = MetadataStore::new(Some(&blocks), TOMORROW);
        assert_eq!(later.superblock(), Some(in_use));
        later.begin_use(Some(&blocks)).expect("kept");
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
        // The epoch of the only superblock.
        raw.write_all_at(&[9], RECORD_OFFSETS[1] + 32)
            .expect("written");
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
        metadata.begin_use(None).expect("kept");
        assert_eq!(
            metadata.superblock(),
            Some(superblock(1, RecordState::InUse))
        );
    }

    #[test]
    fn incarnation_of_a_file_changes_with_the_boot_and_its_identity_does_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = file(&directory);
        let of = |boot| verifier_of(Some(&file), boot).expect("a verifier");
        assert_eq!(of(TODAY), of(TODAY));
        assert!(!of(TODAY).is_in_memory);
        assert_eq!(of(TODAY).identity, of(TOMORROW).identity);
        assert!(of(TODAY).has_kept_since(&of(TODAY)));
        assert!(!of(TOMORROW).has_kept_since(&of(TODAY)));
    }

    #[test]
    fn memory_is_another_storage_in_every_process() {
        let of = || verifier_of(None, TODAY).expect("a verifier");
        let (one, other) = (of(), of());
        assert!(one.is_in_memory);
        assert_ne!(one.identity, other.identity);
    }

    #[test]
    fn superblock_is_in_doubt_after_a_failed_sync() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = file(&directory);
        let mut metadata = MetadataStore::new(Some(&first), first.boot_since_loss(TODAY));
        let in_use = superblock(3, RecordState::InUse);
        metadata.persist(in_use, Some(&first)).expect("kept");
        first.health().fail("a sync");
        drop((first, metadata));
        let again = file(&directory);
        let mut metadata = MetadataStore::new(Some(&again), again.boot_since_loss(TODAY));
        let state = |metadata: &MetadataStore| metadata.superblock().expect("it").state;
        assert_eq!(state(&metadata), RecordState::InDoubt);
        metadata.persist(in_use, Some(&again)).expect("kept");
        assert_eq!(state(&metadata), RecordState::InUse);
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

    const STATES: [RecordState; 3] = [RecordState::Clean, RecordState::InUse, RecordState::Closing];

    fn stored() -> StoredSuperblock {
        StoredSuperblock {
            superblock: Superblock {
                set: SetId(u128::MAX / 3),
                member: 1,
                epoch: Epoch { number: 9, id: 77 },
                next: Epoch { number: 10, id: 78 },
                state: RecordState::Clean,
                form: FORM,
            },
            since: Some(Boot(5)),
        }
    }

    #[test]
    fn superblock_round_trips() {
        for state in STATES {
            for (since, format, matrix) in [
                (None, Format::StoredChunks, MatrixType::Vandermonde),
                (Some(Boot(5)), Format::StoredBlocks, MatrixType::Cauchy),
            ] {
                let mut stored = stored();
                (stored.superblock.state, stored.since) = (state, since);
                stored.superblock.form = Form {
                    format,
                    matrix,
                    logical_block_size: 512,
                };
                assert_eq!(parse(&emit(7, &stored)), Ok(Some((7, stored))));
            }
        }
        assert_eq!(parse(&[0; RECORD_SIZE]), Ok(None));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = emit(1, &stored());
        assert!(parse(&bytes).is_ok());
        for bit in 0..RECORD_SIZE * 8 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&wrong).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn superblocks_of_unreleased_layouts_are_refused() {
        for magic in [*b"DOCASET\0", *b"DOCASET\x02"] {
            let mut bytes = emit(1, &stored());
            bytes[..magic.len()].copy_from_slice(&magic);
            let refused = parse(&bytes).expect_err("another layout").to_string();
            assert!(refused.contains("magic"), "{refused}");
        }
    }

    #[test]
    fn higher_sequence_wins_and_corrupt_slot_is_ignored() {
        let mut later = stored();
        later.superblock.epoch.number += 1;
        let (one, two) = (emit(1, &stored()), emit(2, &later));
        let places = Places::<StoredSuperblock>::new(&[two, one], |why| panic!("{why}"));
        assert_eq!((places.newest(), places.next()), (Some(later), (3, 1)));
        let mut torn = two;
        torn[40] ^= 1;
        let mut damaged = 0;
        let places = Places::<StoredSuperblock>::new(&[torn, one], |_| damaged += 1);
        assert_eq!((places.newest(), damaged), (Some(stored()), 1));
        assert_eq!(places.next(), (2, 0), "the damaged one is overwritten");
        let places = Places::<StoredSuperblock>::new(&[[0; RECORD_SIZE]; 2], |why| panic!("{why}"));
        assert_eq!((places.newest(), places.next()), (None, (1, 1)));
    }

    #[test]
    fn state_that_is_never_stored_is_refused() {
        let mut bytes = emit(1, &stored());
        let mut stored = Stored::parse(&bytes).expect("a superblock");
        stored.state = RecordState::InDoubt.number();
        stored.checksum = checksum(&stored.emit());
        bytes.copy_from_slice(&stored.emit());
        let refused = parse(&bytes).expect_err("in doubt").to_string();
        assert!(refused.contains("found 3"), "{refused}");
    }
}
