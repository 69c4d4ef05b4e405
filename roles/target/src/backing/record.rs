//! The record of a set of targets in a backing file, and which of its two places counts.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use role_common::Failure;
use role_common::membership::{SetId, SetRecord};
use wire::backing::{
    OLD_RECORD_SIZE, RECORD_OFFSETS, RECORD_SIZE, SequencedRecord, SetRecord as OldRecord,
};
use wire::control::RecordState;

use super::Boot;

/// A record as a file has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// What was to be kept.
    pub record: SetRecord,
    /// The start of the machine since which blocks were written that may not be on the disk. `None` when all are.
    pub since: Option<Boot>,
}

/// The bytes of the record with this sequence, which is at least 1.
#[must_use]
pub fn emit(sequence: u64, noted: &Noted) -> [u8; RECORD_SIZE] {
    let (set, boot) = (
        noted.record.set.0,
        noted.since.map_or(0, |Boot(number)| number),
    );
    let mut stored = SequencedRecord {
        sequence,
        set_high: (set >> 64) as u64,
        set_low: set as u64,
        epoch: noted.record.epoch,
        member: noted.record.member,
        state: match noted.record.state {
            RecordState::Clean => 1,
            _ => 2,
        },
        boot_high: (boot >> 64) as u64,
        boot_low: boot as u64,
        checksum: 0,
    };
    stored.checksum = checksum(&stored.emit());
    stored.emit()
}

/// The record in these bytes of a file, and its sequence: 0 for one of a version that knew no sequences. `None` for zeros, which are none.
///
/// # Errors
///
/// The bytes are neither a record nor zeros, or a record that is damaged.
pub fn parse(bytes: &[u8; RECORD_SIZE]) -> Result<Option<(u64, Noted)>, Failure> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let is_old = bytes.starts_with(&OldRecord::MAGIC.to_be_bytes());
    let checked = if is_old {
        &bytes[..OLD_RECORD_SIZE]
    } else {
        &bytes[..]
    };
    let (found, expected, stored) = if is_old {
        let OldRecord {
            set_high,
            set_low,
            epoch,
            member,
            state,
            boot_high,
            boot_low,
            checksum: found,
        } = OldRecord::parse(checked).map_err(Failure::from)?;
        let stored = SequencedRecord {
            sequence: 0,
            set_high,
            set_low,
            epoch,
            member,
            state,
            boot_high,
            boot_low,
            checksum: found,
        };
        (found, checksum(checked), stored)
    } else {
        let stored = SequencedRecord::parse(checked).map_err(Failure::from)?;
        (stored.checksum, checksum(checked), stored)
    };
    if found != expected {
        return Err(Failure::invalid(format!(
            "expected the checksum {expected:#010x}, found {found:#010x}"
        )));
    }
    let boot = u128::from(stored.boot_high) << 64 | u128::from(stored.boot_low);
    let noted = Noted {
        record: SetRecord {
            set: SetId(u128::from(stored.set_high) << 64 | u128::from(stored.set_low)),
            member: stored.member,
            epoch: stored.epoch,
            state: match stored.state {
                1 => RecordState::Clean,
                _ => RecordState::InUse,
            },
        },
        since: (boot != 0).then_some(Boot(boot)),
    };
    Ok(Some((stored.sequence, noted)))
}

/// Where records are written.
pub trait Medium {
    /// Writes these bytes at this offset.
    ///
    /// # Errors
    ///
    /// The medium failed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Returns when what was written is durable.
    ///
    /// # Errors
    ///
    /// The medium failed.
    fn sync(&self) -> io::Result<()>;
}

impl Medium for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        // By one call of the system, which no signal ends in the middle.
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// What the two places of a file have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Places {
    /// The sequence of the record that counts, and the record.
    newest: Option<(u64, Noted)>,
}

impl Places {
    /// What counts when the places have these bytes. A place that is damaged counts for nothing: `damaged` is told why.
    pub fn new(places: &[[u8; RECORD_SIZE]; 2], mut damaged: impl FnMut(Failure)) -> Self {
        let mut found = Self::default();
        for bytes in places {
            match parse(bytes) {
                Ok(Some((sequence, noted))) => {
                    if found.newest.is_none_or(|(newest, _)| newest < sequence) {
                        found.newest = Some((sequence, noted));
                    }
                }
                Ok(None) => {}
                Err(why) => damaged(why),
            }
        }
        found
    }

    /// The record that counts.
    #[must_use]
    pub fn record(&self) -> Option<Noted> {
        self.newest.map(|(_, noted)| noted)
    }

    /// Writes the next record, and returns when it is durable. Until then, the one before it stays.
    ///
    /// # Errors
    ///
    /// The medium failed: either record may be found later.
    pub fn write(&mut self, medium: &impl Medium, noted: &Noted) -> io::Result<()> {
        let (sequence, place) = self.next();
        medium.write_at(&emit(sequence, noted), RECORD_OFFSETS[place])?;
        medium.sync()?;
        self.newest = Some((sequence, *noted));
        Ok(())
    }

    /// The sequence and the place of the next record: not the place of the one that counts.
    #[must_use]
    fn next(&self) -> (u64, usize) {
        let sequence = self.newest.map_or(0, |(sequence, _)| sequence) + 1;
        (sequence, (sequence % 2) as usize)
    }
}

/// CRC-32C of what is before the checksum, which comes last.
fn checksum(record: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(&record[..record.len() - size_of::<u32>()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted() -> Noted {
        Noted {
            record: SetRecord {
                set: SetId(u128::MAX / 3),
                member: 1,
                epoch: 9,
                state: RecordState::Clean,
            },
            since: Some(Boot(5)),
        }
    }

    #[test]
    fn what_was_emitted_is_read() {
        for state in [RecordState::Clean, RecordState::InUse] {
            for since in [None, Some(Boot(5))] {
                let mut noted = noted();
                (noted.record.state, noted.since) = (state, since);
                assert_eq!(parse(&emit(7, &noted)), Ok(Some((7, noted))));
            }
        }
        assert_eq!(parse(&[0; RECORD_SIZE]), Ok(None));
    }

    #[test]
    fn every_damaged_bit_is_found() {
        let bytes = emit(1, &noted());
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&wrong).is_err(), "bit {bit}");
        }
    }

    /// As a version that knew one place has written it.
    fn old(noted: &Noted) -> [u8; RECORD_SIZE] {
        let mut old = OldRecord {
            set_high: (noted.record.set.0 >> 64) as u64,
            set_low: noted.record.set.0 as u64,
            epoch: noted.record.epoch,
            member: noted.record.member,
            state: 1,
            boot_high: 0,
            boot_low: 5,
            checksum: 0,
        };
        old.checksum = checksum(&old.emit());
        let mut bytes = [0; RECORD_SIZE];
        bytes[..OLD_RECORD_SIZE].copy_from_slice(&old.emit());
        bytes
    }

    #[test]
    fn a_record_of_one_place_is_read_and_not_overwritten_by_the_next_one() {
        let none = [0; RECORD_SIZE];
        let mut places = Places::new(&[old(&noted()), none], |why| panic!("{why}"));
        assert_eq!(places.record(), Some(noted()));
        assert_eq!(places.next(), (1, 1));
        let file = tempfile::tempfile().expect("a file");
        places.write(&file, &noted()).expect("written");
        assert_eq!(places.next(), (2, 0));
        let mut bytes = none;
        file.read_exact_at(&mut bytes, RECORD_OFFSETS[1])
            .expect("read");
        assert_eq!(parse(&bytes), Ok(Some((1, noted()))));
    }

    #[test]
    fn the_higher_sequence_counts_and_a_damaged_place_does_not() {
        let mut later = noted();
        later.record.epoch += 1;
        let (one, two) = (emit(1, &noted()), emit(2, &later));
        let places = Places::new(&[two, one], |why| panic!("{why}"));
        assert_eq!((places.record(), places.next()), (Some(later), (3, 1)));
        let mut torn = two;
        torn[40] ^= 1;
        let mut damaged = 0;
        let places = Places::new(&[torn, one], |_| damaged += 1);
        assert_eq!((places.record(), damaged), (Some(noted()), 1));
        assert_eq!(places.next(), (2, 0), "the damaged one is overwritten");
        let places = Places::new(&[[0; RECORD_SIZE]; 2], |why| panic!("{why}"));
        assert_eq!((places.record(), places.next()), (None, (1, 1)));
    }
}
