//! What a target keeps beside its blocks, so that a service can tell whether it has all that was written: of which set of targets it is a
//! member, and of which time.

use std::fmt;

use doca::ErrorCode;
use wire::control::{IdentifiedStorage, IdentityQuery, RecordState};

use crate::failure::Failure;

/// The number of a set of targets: random, and made with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetId(pub u128);

impl SetId {
    /// A new one.
    ///
    /// # Errors
    ///
    /// The operating system has no random numbers.
    pub fn random() -> Result<Self, Failure> {
        random().map(u128::from_be_bytes).map(Self)
    }
}

impl fmt::Display for SetId {
    /// Enough of it for people to tell two apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", (self.0 >> 96) as u32)
    }
}

/// Random bytes.
///
/// # Errors
///
/// The operating system has none.
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

/// What a target keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetRecord {
    /// The set that it is a member of.
    pub set: SetId,
    /// Its number in the set.
    pub member: u32,
    /// How often the set has gone on without one of its members. A member whose epoch is lower than that of the others has missed writes.
    pub epoch: u64,
    /// How the set's last use has ended. Not `None`.
    pub state: RecordState,
}

impl SetRecord {
    /// What asks a target to keep this.
    #[must_use]
    pub fn request(&self) -> IdentityQuery {
        IdentityQuery {
            set_high: (self.set.0 >> 64) as u64,
            set_low: self.set.0 as u64,
            epoch: self.epoch,
            member: self.member,
            state: self.state,
        }
    }

    /// What a request asks to keep; `None` where it asks for nothing of the kind.
    #[must_use]
    pub fn of_request(query: &IdentityQuery) -> Option<Self> {
        (query.state != RecordState::None).then(|| Self {
            set: SetId(u128::from(query.set_high) << 64 | u128::from(query.set_low)),
            member: query.member,
            epoch: query.epoch,
            state: query.state,
        })
    }

    /// What a target says that it keeps, if anything.
    #[must_use]
    pub fn of_answer(answer: &IdentifiedStorage) -> Option<Self> {
        Self::of_request(&IdentityQuery {
            set_high: answer.set_high,
            set_low: answer.set_low,
            epoch: answer.epoch,
            member: answer.member,
            state: answer.state,
        })
    }
}

/// What asks a target who it is, and what it keeps.
pub const QUESTION: IdentityQuery = IdentityQuery {
    set_high: 0,
    set_low: 0,
    epoch: 0,
    member: 0,
    state: RecordState::None,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_what_its_request_says() {
        let record = SetRecord {
            set: SetId(0x0123_4567_89ab_cdef_1020_3040_5060_7080),
            member: 2,
            epoch: 7,
            state: RecordState::InUse,
        };
        assert_eq!(SetRecord::of_request(&record.request()), Some(record));
        assert_eq!(SetRecord::of_request(&QUESTION), None);
        assert_eq!(record.set.to_string(), "01234567");
        assert_ne!(SetId::random(), SetId::random());
    }
}
