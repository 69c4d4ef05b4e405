//! Rendezvous of processes on one machine: a private directory with sockets, the boot id, random keys.

mod directory;
mod socket;

use std::fmt;
use std::sync::OnceLock;

pub use directory::{Listener, RuntimeDir, named_socket};
pub use socket::{MAX_FDS, MAX_MESSAGE, Socket};
pub(crate) use socket::{is_eventfd, is_unix_socket, sealed_memory_len};

use crate::error::{Error, Result};

/// The kernel's boot id: two processes can share memory only if theirs are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootId([u8; BootId::SIZE]);

impl BootId {
    /// Encoded size in bytes.
    pub const SIZE: usize = 16;

    const PATH: &'static str = "/proc/sys/kernel/random/boot_id";

    /// The boot id of this machine.
    ///
    /// # Errors
    /// [`Error::OperatingSystem`] if `/proc` does not provide it.
    pub fn current() -> Result<BootId> {
        static CURRENT: OnceLock<BootId> = OnceLock::new();
        if let Some(id) = CURRENT.get() {
            return Ok(*id);
        }
        let text = std::fs::read_to_string(BootId::PATH).map_err(|error| {
            Error::OperatingSystem.because(format_args!(
                "cannot read {}: {error}; is /proc mounted?",
                BootId::PATH
            ))
        })?;
        let id = BootId::parse(text.trim()).ok_or_else(|| {
            Error::OperatingSystem.because(format_args!(
                "{} holds {text:?}, expected a UUID",
                BootId::PATH
            ))
        })?;
        Ok(*CURRENT.get_or_init(|| id))
    }

    fn parse(text: &str) -> Option<BootId> {
        let digits: Vec<u8> = text
            .chars()
            .filter(|c| *c != '-')
            .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect::<Option<_>>()?;
        let bytes: Vec<u8> = digits
            .chunks_exact(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect();
        (digits.len() == 2 * BootId::SIZE).then(|| bytes.try_into().ok().map(BootId))?
    }

    /// Inverse of [`to_bytes`](Self::to_bytes).
    pub const fn from_bytes(bytes: [u8; BootId::SIZE]) -> BootId {
        BootId(bytes)
    }

    /// The bytes, for embedding in a descriptor.
    pub const fn to_bytes(self) -> [u8; BootId::SIZE] {
        self.0
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A random 128-bit capability: knowing it proves that its owner disclosed it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; Key::SIZE]);

impl Key {
    /// Encoded size in bytes.
    pub const SIZE: usize = 16;

    /// Generates a key with the kernel's random generator.
    ///
    /// # Errors
    /// [`Error::OperatingSystem`] if it is not available.
    pub fn random() -> Result<Key> {
        let mut bytes = [0; Key::SIZE];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::OperatingSystem
                .because(format_args!("no random numbers from the kernel: {error}"))
        })?;
        Ok(Key(bytes))
    }

    /// Inverse of [`to_bytes`](Self::to_bytes).
    pub const fn from_bytes(bytes: [u8; Key::SIZE]) -> Key {
        Key(bytes)
    }

    /// The bytes, for embedding in a descriptor.
    pub const fn to_bytes(self) -> [u8; Key::SIZE] {
        self.0
    }
}

/// 32 hexadecimal digits, as used in file names.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Prints only the first digits: logs must not contain secrets.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}…", self.0[0], self.0[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_uuids_only() {
        let id = BootId::parse("00112233-4455-6677-8899-aabbccddeeff").unwrap();
        assert_eq!(id.to_bytes()[..3], [0x00, 0x11, 0x22]);
        assert_eq!(id.to_bytes()[15], 0xff);
        assert_eq!(BootId::parse(""), None);
        assert_eq!(BootId::parse("00112233-4455-6677-8899-aabbccddeef"), None);
        assert_eq!(BootId::parse("00112233-4455-6677-8899-aabbccddeeffa"), None);
        assert_eq!(BootId::parse("g0112233-4455-6677-8899-aabbccddeeff"), None);
    }

    #[test]
    fn is_stable() {
        assert_eq!(BootId::current(), BootId::current());
    }

    #[test]
    fn keys_differ_and_print_in_full_only_as_names() {
        let (a, b) = (Key::random().unwrap(), Key::random().unwrap());
        assert_ne!(a, b);
        assert_eq!(a.to_string().len(), 32);
        assert_eq!(Key::from_bytes(a.to_bytes()), a);
        assert!(format!("{a:?}").len() < 10);
    }
}
