//! Which storage this is, for services that want to know whether one that comes back is the one that they have lost.

use bytes::Bytes;
use role_common::{Failure, superblock};

use crate::backing::Identity;

/// The kernel's random name of the time since the machine was started.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The time since the machine was started. Not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boot(pub u128);

impl Boot {
    /// That of now. Where nobody knows whether the machine was started since, no two starts of the target are of the same time.
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

    /// The kernel writes 32 hexadecimal digits with dashes between.
    fn of_text(text: &str) -> Option<Self> {
        let digits: String = text.trim().chars().filter(|&sign| sign != '-').collect();
        let number = u128::from_str_radix(&digits, 16).ok()?;
        (number != 0 && digits.len() == 32).then_some(Self(number))
    }
}

/// The identity of blocks in memory, which end with the process, or of those in a file with this identity.
///
/// A file keeps what was acknowledged when the process dies, and may lose it when the machine does. So the identity of its blocks
/// is another one after each start of the machine.
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
    fn a_file_is_the_same_storage_until_the_machine_starts_again() {
        let (one, other) = (Some(Identity([1; 16])), Some(Identity([2; 16])));
        let of = |file, boot| identity_of(file, Boot(boot)).expect("an identity");
        assert_eq!(of(one, 1), of(one, 1));
        assert_ne!(of(one, 1), of(one, 2));
        assert_ne!(of(one, 1), of(other, 1));
        assert!(of(one, 1).len() <= 64);
    }

    #[test]
    fn memory_is_another_storage_with_every_start() {
        assert_ne!(identity_of(None, Boot(1)), identity_of(None, Boot(1)));
    }

    #[test]
    fn the_kernel_s_name_is_a_number() {
        let text = "01234567-89ab-cdef-0123-456789abcdef\n";
        let boot = Boot::of_text(text).expect("a name");
        assert_eq!(boot.0, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        for wrong in ["", "0", "00000000-0000-0000-0000-000000000000", "x", "1"] {
            assert_eq!(Boot::of_text(wrong), None, "{wrong}");
        }
        assert_ne!(Boot::now().expect("a number").0, 0);
    }
}
