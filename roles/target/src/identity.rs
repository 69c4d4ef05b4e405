//! Identity of the storage, by which a service recognises a target that rejoins.

use bytes::Bytes;
use role_common::{Failure, superblock};

use crate::backing::Identity;

/// The kernel's random identifier of the current boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A boot of the machine. Not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boot(pub u128);

impl Boot {
    /// The current boot. If it cannot be determined, each call returns another one.
    ///
    /// # Errors
    ///
    /// The operating system has no random numbers.
    pub fn now() -> Result<Self, Failure> {
        let known = std::fs::read_to_string(BOOT_ID).ok();
        match known.as_deref().and_then(Self::of_text) {
            Some(boot) => Ok(boot),
            None => superblock::random().map(|bytes| Self(u128::from_be_bytes(bytes) | 1)),
        }
    }

    /// Parses the kernel's format: 32 hexadecimal digits with dashes.
    fn of_text(text: &str) -> Option<Self> {
        let digits: String = text.trim().chars().filter(|&sign| sign != '-').collect();
        let number = u128::from_str_radix(&digits, 16).ok()?;
        (number != 0 && digits.len() == 32).then_some(Self(number))
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
