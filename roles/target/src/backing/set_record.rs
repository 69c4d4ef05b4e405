//! The superblock of a target in its backing file.

use role_common::Failure;
use role_common::superblock::{Epoch, SetId, Superblock};
use wire::backing::{RECORD_SIZE, SetRecord as FirstLayout, Superblock as Stored};
use wire::control::RecordState;

use super::Boot;

/// A superblock as a file has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// The superblock, in a state that is stored: neither `None` nor `InDoubt`.
    pub superblock: Superblock,
    /// The start of the machine since which blocks were written that may not be on the disk. `None` when all are.
    pub since: Option<Boot>,
}

/// The bytes of a superblock.
#[must_use]
pub fn emit(noted: &Noted) -> [u8; RECORD_SIZE] {
    let Superblock {
        set,
        member,
        epoch,
        next,
        state,
        ..
    } = noted.superblock;
    let boot = noted.since.map_or(0, |Boot(number)| number);
    let mut stored = Stored {
        set_high: (set.0 >> 64) as u64,
        set_low: set.0 as u64,
        epoch: epoch.number,
        epoch_id: epoch.id,
        next_epoch: next.number,
        next_epoch_id: next.id,
        member,
        state: match state {
            // Not stored: whatever else is said, blocks were written.
            RecordState::None | RecordState::InDoubt => RecordState::InUse.number(),
            state => state.number(),
        },
        flags: noted.superblock.flags(),
        boot_high: (boot >> 64) as u64,
        boot_low: boot as u64,
        checksum: 0,
    };
    stored.checksum = checksum(&stored.emit());
    stored.emit()
}

/// The superblock in these bytes of a file, of this layout or the first one; `None` for zeros, which are none.
///
/// # Errors
///
/// They are neither a superblock nor zeros, or a superblock that is damaged.
pub fn parse(bytes: &[u8; RECORD_SIZE]) -> Result<Option<Noted>, Failure> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let (stored, said, is) = if bytes.starts_with(&FirstLayout::MAGIC.to_be_bytes()) {
        let first = &bytes[..FirstLayout::SIZE];
        let old = FirstLayout::parse(first).map_err(Failure::from)?;
        let stored = Stored {
            set_high: old.set_high,
            set_low: old.set_low,
            epoch: old.epoch,
            epoch_id: 0,
            next_epoch: 0,
            next_epoch_id: 0,
            member: old.member,
            state: old.state,
            flags: 0,
            boot_high: old.boot_high,
            boot_low: old.boot_low,
            checksum: old.checksum,
        };
        (stored, old.checksum, checksum(first))
    } else {
        let stored = Stored::parse(bytes).map_err(Failure::from)?;
        let said = stored.checksum;
        (stored, said, checksum(bytes))
    };
    if said != is {
        return Err(Failure::invalid(format!(
            "expected the checksum {is:#010x}, found {said:#010x}"
        )));
    }
    let state = match RecordState::ALL
        .iter()
        .find(|it| it.number() == stored.state)
    {
        Some(
            &state @ (RecordState::Clean
            | RecordState::InUse
            | RecordState::Closing
            | RecordState::Foreign),
        ) => state,
        _ => {
            return Err(Failure::invalid(format!(
                "expected the state 1, 2, 4 or 5, found {}",
                stored.state
            )));
        }
    };
    let boot = u128::from(stored.boot_high) << 64 | u128::from(stored.boot_low);
    Ok(Some(Noted {
        superblock: Superblock {
            set: SetId(u128::from(stored.set_high) << 64 | u128::from(stored.set_low)),
            member: stored.member,
            epoch: Epoch {
                number: stored.epoch,
                id: stored.epoch_id,
            },
            next: Epoch {
                number: stored.next_epoch,
                id: stored.next_epoch_id,
            },
            state,
            checksums: Superblock::has_checksums(stored.flags),
        },
        since: (boot != 0).then_some(Boot(boot)),
    }))
}

/// CRC-32C of all bytes before the last four.
fn checksum(superblock: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(&superblock[..superblock.len() - size_of::<u32>()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [RecordState; 4] = [
        RecordState::Clean,
        RecordState::InUse,
        RecordState::Closing,
        RecordState::Foreign,
    ];

    fn noted() -> Noted {
        Noted {
            superblock: Superblock {
                set: SetId(u128::MAX / 3),
                member: 1,
                epoch: Epoch { number: 9, id: 77 },
                next: Epoch { number: 10, id: 78 },
                state: RecordState::Clean,
                checksums: true,
            },
            since: Some(Boot(5)),
        }
    }

    #[test]
    fn parse_reads_what_emit_wrote() {
        for state in STATES {
            for (since, checksums) in [(None, true), (Some(Boot(5)), false)] {
                let mut noted = noted();
                (noted.superblock.state, noted.since) = (state, since);
                noted.superblock.checksums = checksums;
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

    /// A superblock of the first layout, and what follows it in its sector.
    fn first_layout(state: u32) -> [u8; RECORD_SIZE] {
        let mut old = FirstLayout {
            set_high: 1,
            set_low: 2,
            epoch: 9,
            member: 1,
            state,
            boot_high: 0,
            boot_low: 5,
            checksum: 0,
        };
        old.checksum = checksum(&old.emit());
        let mut bytes = [0; RECORD_SIZE];
        bytes[..FirstLayout::SIZE].copy_from_slice(&old.emit());
        bytes
    }

    #[test]
    fn first_layout_is_read_without_epoch_id_next_epoch_and_checksums() {
        for (number, state) in [(1, RecordState::Clean), (2, RecordState::InUse)] {
            let expected = Noted {
                superblock: Superblock {
                    set: SetId(1 << 64 | 2),
                    member: 1,
                    epoch: Epoch { number: 9, id: 0 },
                    next: Epoch::NONE,
                    state,
                    checksums: false,
                },
                since: Some(Boot(5)),
            };
            assert_eq!(parse(&first_layout(number)), Ok(Some(expected)));
        }
        let bytes = first_layout(2);
        for bit in 0..FirstLayout::SIZE * 8 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&wrong).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn state_that_is_never_stored_is_refused() {
        let mut bytes = emit(&noted());
        let mut stored = Stored::parse(&bytes).expect("a superblock");
        stored.state = RecordState::InDoubt.number();
        stored.checksum = checksum(&stored.emit());
        bytes.copy_from_slice(&stored.emit());
        let refused = parse(&bytes).expect_err("in doubt").to_string();
        assert!(refused.contains("found 3"), "{refused}");
    }
}
