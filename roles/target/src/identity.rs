//! Which storage this is, for services that want to know whether one that comes back is the one that they have lost.

use bytes::Bytes;
use role_common::Failure;

use crate::backing::Identity;

/// The kernel's random name of the time since the machine was started.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The identity of blocks in memory, which end with the process, or of those in a file with this identity.
///
/// A file keeps what was acknowledged when the process dies, and may lose it when the machine does. So the identity of its blocks
/// is another one after each start of the machine.
///
/// # Errors
///
/// The operating system has no random numbers.
pub(crate) fn identity_of(file: Option<Identity>) -> Result<Bytes, Failure> {
    let boot = std::fs::read_to_string(BOOT_ID).ok();
    of(file, boot.as_deref().map(str::trim))
}

fn of(file: Option<Identity>, boot: Option<&str>) -> Result<Bytes, Failure> {
    match (file, boot) {
        (Some(Identity(bytes)), Some(boot)) => {
            // At most as much as a message has room for.
            let boot = boot.as_bytes();
            Ok([&bytes[..], &boot[..boot.len().min(48)]].concat().into())
        }
        // Nobody knows whether the machine was started since: no two starts of the target are the same.
        _ => Ok(Bytes::copy_from_slice(&Identity::random()?.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_same_storage_until_the_machine_starts_again() {
        let (one, other) = (Some(Identity([1; 16])), Some(Identity([2; 16])));
        let of = |file, boot| of(file, boot).expect("an identity");
        assert_eq!(of(one, Some("today")), of(one, Some("today")));
        assert_ne!(of(one, Some("today")), of(one, Some("tomorrow")));
        assert_ne!(of(one, Some("today")), of(other, Some("today")));
        assert_ne!(of(one, None), of(one, None), "who knows");
        assert!(of(one, Some(&"x".repeat(100))).len() <= 64);
    }

    #[test]
    fn memory_is_another_storage_with_every_start() {
        assert_ne!(identity_of(None), identity_of(None));
        let file = Some(Identity([3; 16]));
        assert_eq!(identity_of(file), identity_of(file));
    }
}
