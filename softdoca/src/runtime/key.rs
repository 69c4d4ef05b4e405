//! Unguessable names.

use std::fmt;

use crate::error::{Error, Result};

/// A random 128-bit number: whoever knows it was told by its owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; Key::SIZE]);

impl Key {
    /// Encoded size in bytes.
    pub const SIZE: usize = 16;

    /// A new key from the kernel's random generator.
    ///
    /// # Errors
    /// [`Error::OperatingSystem`] when there is no generator.
    pub fn random() -> Result<Key> {
        let mut bytes = [0; Key::SIZE];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::OperatingSystem
                .because(format_args!("no random numbers from the kernel: {error}"))
        })?;
        Ok(Key(bytes))
    }

    /// The key with these bytes.
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

/// Only the beginning: logs are no place for secrets.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}…", self.0[0], self.0[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_print_in_full_only_as_names() {
        let (a, b) = (Key::random().unwrap(), Key::random().unwrap());
        assert_ne!(a, b);
        assert_eq!(a.to_string().len(), 32);
        assert_eq!(Key::from_bytes(a.to_bytes()), a);
        assert!(format!("{a:?}").len() < 10);
    }
}
