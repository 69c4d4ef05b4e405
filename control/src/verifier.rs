//! Verifier of a storage: its identity, and the incarnations of its members. Each session transfers it, so that a
//! client detects that the storage was replaced by another one, or that acknowledged writes were lost (the write
//! verifier of NFS: RFC 1813, COMMIT).

use std::fmt;

use wire::control::StorageVerifier;

/// Identity of a storage: of a backing file, of the memory of a target's process, or of a set of targets. It never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StorageId(pub u128);

impl StorageId {
    /// The first half of the identity, which corresponds to its first 16 digits.
    #[must_use]
    pub fn half(self) -> u64 {
        (self.0 >> 64) as u64
    }
}

impl fmt::Display for StorageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Incarnation of one member of a storage: changes when the member may have lost writes that were acknowledged, but not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Incarnation(pub u128);

/// A storage as seen by one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verifier {
    pub identity: StorageId,
    /// `true` if the storage is in the memory of a process: another process is another storage.
    pub is_in_memory: bool,
    /// Number of members that must have the same incarnation as before, so that acknowledged writes are not lost.
    pub quorum: u32,
    /// By member; `None` for a member that currently lacks acknowledged writes.
    pub incarnations: Vec<Option<Incarnation>>,
}

impl Verifier {
    /// The verifier of a storage with one member.
    #[must_use]
    pub fn of_one(identity: StorageId, is_in_memory: bool, incarnation: Incarnation) -> Self {
        Self {
            identity,
            is_in_memory,
            quorum: 1,
            incarnations: vec![Some(incarnation)],
        }
    }

    /// Returns `true` if the storage still has all writes that it acknowledged when `before` was its verifier: enough
    /// members had all of them at that time, have not lost any, and have all writes now.
    #[must_use]
    pub fn has_kept_since(&self, before: &Self) -> bool {
        let members = self.incarnations.iter().zip(&before.incarnations);
        let kept = members.filter(|(now, before)| now.is_some() && now == before);
        self.identity == before.identity
            && self.incarnations.len() == before.incarnations.len()
            && kept.count() >= self.quorum.max(before.quorum) as usize
    }

    /// Adds the last known incarnations of members that are missing now. A member that is current again was rebuilt,
    /// and has all acknowledged writes; it has lost no writes since, unless its incarnation differs.
    #[must_use]
    pub fn with_known(mut self, before: &Self) -> Self {
        if self.identity == before.identity {
            for (now, before) in self.incarnations.iter_mut().zip(&before.incarnations) {
                *now = now.or(*before);
            }
        }
        self
    }
}

impl From<&Verifier> for StorageVerifier {
    fn from(verifier: &Verifier) -> Self {
        let StorageId(identity) = verifier.identity;
        let bytes = verifier.incarnations.iter().flat_map(|incarnation| {
            let Incarnation(number) = incarnation.unwrap_or(Incarnation(0));
            number.to_be_bytes()
        });
        Self {
            identity_high: (identity >> 64) as u64,
            identity_low: identity as u64,
            flags: verifier.is_in_memory.into(),
            quorum: verifier.quorum,
            incarnations: bytes.collect::<Vec<u8>>().into(),
        }
    }
}

impl From<&StorageVerifier> for Verifier {
    /// Bytes that are no whole incarnation are ignored: the quorum is then not reached.
    fn from(verifier: &StorageVerifier) -> Self {
        let incarnations = verifier.incarnations.as_chunks().0.iter().map(|bytes| {
            let number = u128::from_be_bytes(*bytes);
            (number != 0).then_some(Incarnation(number))
        });
        Self {
            identity: StorageId(
                u128::from(verifier.identity_high) << 64 | u128::from(verifier.identity_low),
            ),
            is_in_memory: verifier.flags != 0,
            quorum: verifier.quorum,
            incarnations: incarnations.collect(),
        }
    }
}

/// Derives an identifier from other identifiers: FNV-1a with 128 bits. The result is the same in all processes and
/// versions, and is never 0.
#[must_use]
pub fn derived(parts: &[&[u8]]) -> u128 {
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let bytes = parts.iter().copied().flatten();
    let hash = bytes.fold(OFFSET_BASIS, |hash, &byte| {
        (hash ^ u128::from(byte)).wrapping_mul(PRIME)
    });
    hash.max(1)
}

/// Identities of the storages that a service has served, so that it does not mistake another storage for the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KnownStorage {
    known: Option<(StorageId, bool)>,
}

impl KnownStorage {
    /// Accepts the first storage, any later one with the same identity, and any storage in place of one in memory,
    /// which only exists as long as its process.
    ///
    /// # Errors
    ///
    /// The storage is not the same as before; the error contains both identities.
    pub fn accept(&mut self, found: StorageId, is_in_memory: bool) -> Result<(), OtherStorage> {
        self.check(found).map_err(|other| OtherStorage {
            is_in_memory,
            ..other
        })?;
        self.known = Some((found, is_in_memory));
        Ok(())
    }

    /// Checks a storage as [`accept`](Self::accept) does, before it is used.
    ///
    /// # Errors
    ///
    /// The storage is not the same as before; the error contains both identities.
    pub fn check(&self, found: StorageId) -> Result<(), OtherStorage> {
        match self.known {
            Some((expected, false)) if expected != found => Err(OtherStorage {
                expected,
                found,
                is_in_memory: false,
            }),
            _ => Ok(()),
        }
    }
}

/// A known storage was replaced by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error(
    "expected the storage {expected}, found {found}{}", if *is_in_memory { ", which is in the memory of a process" } else { "" }
)]
pub struct OtherStorage {
    pub expected: StorageId,
    pub found: StorageId,
    /// `true` if the storage that was found is in the memory of a process.
    pub is_in_memory: bool,
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn verifier(incarnations: &[u128], quorum: u32) -> Verifier {
        Verifier {
            identity: StorageId(7),
            is_in_memory: false,
            quorum,
            incarnations: incarnations
                .iter()
                .map(|&number| (number != 0).then_some(Incarnation(number)))
                .collect(),
        }
    }

    #[test]
    fn writes_are_kept_by_a_quorum_of_members_that_were_and_are_current() {
        let one = verifier(&[1], 1);
        assert!(one.has_kept_since(&one));
        assert!(!verifier(&[2], 1).has_kept_since(&one));
        let three = verifier(&[1, 2, 3], 2);
        for (now, expected) in [
            ([1, 2, 3], true),
            // One member has lost its writes, is missing, or is stale.
            ([9, 2, 3], true),
            ([1, 0, 3], true),
            ([9, 8, 3], false),
            ([9, 0, 3], false),
            ([9, 8, 7], false),
            ([2, 1, 3], false),
        ] {
            assert_eq!(
                verifier(&now, 2).has_kept_since(&three),
                expected,
                "{now:?}"
            );
        }
        // The second member missed the writes, although it has lost nothing.
        let without = verifier(&[1, 0, 3], 2);
        assert!(verifier(&[1, 2, 3], 2).has_kept_since(&without));
        assert!(!verifier(&[1, 2, 9], 2).has_kept_since(&without));
        assert!(!verifier(&[1, 0, 0], 2).has_kept_since(&without));
        // Without degraded mode, every member must have the same incarnation.
        assert!(!verifier(&[1, 2, 9], 3).has_kept_since(&verifier(&[1, 2, 3], 3)));
        assert!(!verifier(&[1, 2, 9], 2).has_kept_since(&verifier(&[1, 2, 3], 3)));
        assert!(!verifier(&[1, 2], 2).has_kept_since(&three));
        let other = Verifier {
            identity: StorageId(8),
            ..three.clone()
        };
        assert!(!other.has_kept_since(&three));
    }

    #[test]
    fn incarnation_of_a_missing_member_is_kept_until_it_is_current_again() {
        let known = verifier(&[1, 0, 3], 2).with_known(&verifier(&[1, 2, 3], 2));
        assert_eq!(known, verifier(&[1, 2, 3], 2));
        assert!(verifier(&[0, 2, 3], 2).has_kept_since(&known));
        assert!(!verifier(&[0, 9, 3], 2).has_kept_since(&known));
        let other = Verifier {
            identity: StorageId(8),
            ..verifier(&[1, 2, 3], 2)
        };
        let new = verifier(&[1, 0, 3], 2);
        assert_eq!(new.clone().with_known(&other), new);
    }

    #[test]
    fn verifier_survives_the_wire() {
        for verifier in [
            verifier(&[u128::MAX, 0, 3], 2),
            Verifier::of_one(StorageId(u128::MAX - 1), true, Incarnation(1 << 127)),
        ] {
            let sent = StorageVerifier::from(&verifier);
            assert_eq!(Verifier::from(&sent), verifier);
        }
        let sent = StorageVerifier {
            identity_high: 0,
            identity_low: 1,
            flags: 0,
            quorum: 1,
            incarnations: Bytes::from_static(&[1; 15]),
        };
        assert_eq!(Verifier::from(&sent).incarnations, []);
    }

    #[test]
    fn derived_identifiers_are_those_of_fnv_1a() {
        // From the test vectors of draft-eastlake-fnv.
        assert_eq!(derived(&[]), 0x6c62272e07bb014262b821756295c58d);
        assert_eq!(derived(&[b"a"]), 0xd228cb696f1a8caf78912b704e4a8964);
        assert_eq!(
            derived(&[b"foo", b"bar"]),
            0x343e1662793c64bf6f0d3597ba446f18
        );
    }

    #[test]
    fn known_storage_is_replaced_by_another_only_if_it_was_in_memory() {
        let (one, other) = (StorageId(1), StorageId(2));
        let mut known = KnownStorage::default();
        assert_eq!(known.accept(one, true), Ok(()));
        assert_eq!(known.accept(other, false), Ok(()));
        assert_eq!(known.accept(other, false), Ok(()));
        let refused = known.accept(one, true).expect_err("another storage");
        assert_eq!((refused.expected, refused.found), (other, one));
        assert_eq!(known.accept(other, false), Ok(()));
    }
}
