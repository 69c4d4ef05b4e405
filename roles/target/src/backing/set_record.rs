//! The record of a set of targets in a backing file.

use role_common::Failure;
use role_common::membership::{SetId, SetRecord};
use wire::backing::{RECORD_SIZE, SetRecord as Stored};
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

/// The bytes of a record.
#[must_use]
pub fn emit(noted: &Noted) -> [u8; RECORD_SIZE] {
    let (set, boot) = (
        noted.record.set.0,
        noted.since.map_or(0, |Boot(number)| number),
    );
    let mut stored = Stored {
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

/// The record in these bytes of a file; `None` for zeros, which are none.
///
/// # Errors
///
/// They are neither a record nor zeros, or a record that is damaged.
pub fn parse(bytes: &[u8; RECORD_SIZE]) -> Result<Option<Noted>, Failure> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let stored = Stored::parse(bytes).map_err(Failure::from)?;
    let (said, is) = (stored.checksum, checksum(bytes));
    if said != is {
        return Err(Failure::invalid(format!(
            "expected the checksum {is:#010x}, found {said:#010x}"
        )));
    }
    let boot = u128::from(stored.boot_high) << 64 | u128::from(stored.boot_low);
    Ok(Some(Noted {
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
    }))
}

/// Of what is before it.
fn checksum(record: &[u8; RECORD_SIZE]) -> u32 {
    crc_fast::crc32_iscsi(&record[..RECORD_SIZE - size_of::<u32>()])
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
                assert_eq!(parse(&emit(&noted)), Ok(Some(noted)));
            }
        }
        assert_eq!(parse(&[0; RECORD_SIZE]), Ok(None));
    }

    #[test]
    fn every_damaged_bit_is_found() {
        let bytes = emit(&noted());
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&wrong).is_err(), "bit {bit}");
        }
    }
}
