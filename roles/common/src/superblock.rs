//! Superblock of a target: metadata beside its blocks that records its set of targets, its number in the set, the
//! set's epochs known to it, and the state of the last session. A service assembles a set from its members'
//! superblocks alone.

use std::fmt;

use doca::ErrorCode;
use wire::control::{IdentifiedStorage, IdentityQuery, RecordState};

use crate::protocol::Failure;

/// Identifier of a set of targets: random, generated when the set is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetId(pub u128);

impl SetId {
    /// No set: for blocks stored without superblocks.
    pub const NONE: Self = Self(0);

    /// Generates a random identifier.
    ///
    /// # Errors
    ///
    /// The operating system provides no random numbers.
    pub fn random() -> Result<Self, Failure> {
        random().map(u128::from_be_bytes).map(Self)
    }
}

impl fmt::Display for SetId {
    /// The first 8 of its 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", (self.0 >> 96) as u32)
    }
}

/// An epoch of a set: its number, and a random identifier that distinguishes epochs of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Epoch {
    /// Sequence number: increases with every epoch of the set.
    pub number: u64,
    /// Random identifier. 0 for an epoch recorded by a superblock of the first layout.
    pub id: u64,
}

impl Epoch {
    /// No epoch: before a set's first one.
    pub const NONE: Self = Self { number: 0, id: 0 };
}

impl fmt::Display for Epoch {
    /// The number, and the first 4 of the identifier's 16 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:04x}", self.number, self.id >> 48)
    }
}

/// Returns 16 random bytes.
///
/// # Errors
///
/// The operating system provides no random numbers.
pub fn random() -> Result<[u8; 16], Failure> {
    let mut bytes = [0; 16];
    let mut rest = &mut bytes[..];
    while !rest.is_empty() {
        let count = rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| {
                let message = format!("no random number for an identity: {error}");
                Failure::new(ErrorCode::OPERATING_SYSTEM, message)
            })?;
        rest = &mut rest[count..];
    }
    Ok(bytes)
}

/// Metadata of a set's member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    pub set: SetId,
    /// Its number in the set.
    pub member: u32,
    /// The committed epoch.
    pub epoch: Epoch,
    /// The prepared epoch; [`Epoch::NONE`] if none.
    pub next: Epoch,
    /// State of the set's last session. Not `None`.
    pub state: RecordState,
    /// `true` if every block of the set was written or scrubbed with a checksum, so that a trailer of 0 is corruption.
    pub checksums: bool,
}

/// Flag bit of [`Superblock::checksums`] on the wire and in backing files. Decoders refuse all other bits.
const CHECKSUMS: u32 = 1 << 0;

impl Superblock {
    /// The flags as stored on the wire and in backing files.
    #[must_use]
    pub fn flags(&self) -> u32 {
        if self.checksums { CHECKSUMS } else { 0 }
    }

    /// Returns `true` if [`flags`](Self::flags) say that all blocks [have checksums](Self::checksums).
    #[must_use]
    pub fn has_checksums(flags: u32) -> bool {
        flags & CHECKSUMS != 0
    }

    /// Builds the request to persist this superblock.
    #[must_use]
    pub fn request(&self) -> IdentityQuery {
        IdentityQuery {
            set_high: (self.set.0 >> 64) as u64,
            set_low: self.set.0 as u64,
            epoch: self.epoch.number,
            epoch_id: self.epoch.id,
            next_epoch: self.next.number,
            next_epoch_id: self.next.id,
            member: self.member,
            state: self.state,
            flags: self.flags(),
        }
    }

    /// Returns the superblock that a request asks to persist; `None` for a plain query.
    #[must_use]
    pub fn of_request(query: &IdentityQuery) -> Option<Self> {
        (query.state != RecordState::None).then(|| Self {
            set: SetId(u128::from(query.set_high) << 64 | u128::from(query.set_low)),
            member: query.member,
            epoch: Epoch {
                number: query.epoch,
                id: query.epoch_id,
            },
            next: Epoch {
                number: query.next_epoch,
                id: query.next_epoch_id,
            },
            state: query.state,
            checksums: Self::has_checksums(query.flags),
        })
    }

    /// Returns the superblock in a target's response; `None` if the target has none.
    #[must_use]
    pub fn of_answer(answer: &IdentifiedStorage) -> Option<Self> {
        Self::of_request(&IdentityQuery {
            set_high: answer.set_high,
            set_low: answer.set_low,
            epoch: answer.epoch,
            epoch_id: answer.epoch_id,
            next_epoch: answer.next_epoch,
            next_epoch_id: answer.next_epoch_id,
            member: answer.member,
            state: answer.state,
            flags: answer.flags,
        })
    }
}

/// Query for a target's identity and superblock.
pub const QUESTION: IdentityQuery = IdentityQuery {
    set_high: 0,
    set_low: 0,
    epoch: 0,
    epoch_id: 0,
    next_epoch: 0,
    next_epoch_id: 0,
    member: 0,
    state: RecordState::None,
    flags: 0,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_carries_every_field() {
        let superblock = Superblock {
            set: SetId(0x0123_4567_89ab_cdef_1020_3040_5060_7080),
            member: 2,
            epoch: Epoch { number: 7, id: 8 },
            next: Epoch { number: 9, id: 10 },
            state: RecordState::InUse,
            checksums: true,
        };
        assert_eq!(
            Superblock::of_request(&superblock.request()),
            Some(superblock)
        );
        let without = Superblock {
            checksums: false,
            ..superblock
        };
        assert_eq!(Superblock::of_request(&without.request()), Some(without));
        assert_eq!(Superblock::of_request(&QUESTION), None);
        assert_eq!(superblock.set.to_string(), "01234567");
        assert_ne!(SetId::random(), SetId::random());
    }
}
