//! Header of a backing file: identifies the file's format and storage.

use std::fmt;

use role_common::{Failure, superblock};
use wire::backing::{CONTENT_OFFSET, HEADER_SIZE, Header};

use crate::content::Geometry;

/// Identity of a backing file's blocks: random, generated with the file, and never changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(pub [u8; 16]);

impl Identity {
    /// Generates a random identity.
    ///
    /// # Errors
    ///
    /// The operating system has no random numbers.
    pub fn random() -> Result<Self, Failure> {
        superblock::random().map(Self)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Encodes the header of a file with this geometry and identity.
#[must_use]
pub fn emit(geometry: Geometry, identity: Identity) -> [u8; HEADER_SIZE] {
    let number = u128::from_be_bytes(identity.0);
    let mut header = Header {
        block_size: geometry.block_size,
        block_count: geometry.block_count,
        identity_high: (number >> 64) as u64,
        identity_low: number as u64,
        checksum: 0,
    };
    header.checksum = checksum(&header.emit());
    header.emit()
}

/// Returns `true` if a file starts with a complete header, of any geometry: it contains or contained blocks.
#[must_use]
pub fn is_header(start: &[u8]) -> bool {
    Header::parse(start).is_ok_and(|header| header.checksum == checksum(start))
}

/// Checks the start of a file of `length` bytes, at most [`HEADER_SIZE`] bytes of it, and returns its identity.
///
/// # Errors
///
/// The file has another format or version, a corrupt header, another geometry, is too short, or its creation was
/// interrupted. The text says what was expected and what was found.
pub fn check(start: &[u8], length: u64, expected: Geometry) -> Result<Identity, Failure> {
    if start.iter().all(|&byte| byte == 0) {
        return Err(Failure::invalid(
            "expected the header of a backing file, found zeros: its creation was cut short, or it is no backing file",
        ));
    }
    let header = Header::parse(start).map_err(|error| {
        Failure::from(error).context("expected the header of a backing file of this version")
    })?;
    let (said, is) = (header.checksum, checksum(start));
    if said != is {
        return Err(Failure::invalid(format!(
            "the header is damaged: expected the checksum {is:#010x}, found {said:#010x}"
        )));
    }
    let found = Geometry {
        block_size: header.block_size,
        block_count: header.block_count,
    };
    if found != expected {
        return Err(Failure::invalid(format!(
            "expected {} blocks of {} bytes, as --block-count and --block-size or the .sbc file say, found {} blocks of {} bytes",
            expected.block_count, expected.block_size, found.block_count, found.block_size
        )));
    }
    let needed = CONTENT_OFFSET.saturating_add(found.capacity());
    if length < needed {
        return Err(Failure::invalid(format!(
            "expected {needed} bytes, found {length}: the file was cut off"
        )));
    }
    let number = u128::from(header.identity_high) << 64 | u128::from(header.identity_low);
    Ok(Identity(number.to_be_bytes()))
}

/// Checksum of the bytes before it.
fn checksum(header: &[u8]) -> u32 {
    let end = HEADER_SIZE - size_of::<u32>();
    crc_fast::crc32_iscsi(&header[..end.min(header.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry {
        block_size: 512,
        block_count: 3,
    };
    const LENGTH: u64 = CONTENT_OFFSET + 3 * 512;

    fn identity() -> Identity {
        Identity(*b"0123456789abcdef")
    }

    #[test]
    fn emitted_header_is_accepted() {
        let bytes = emit(GEOMETRY, identity());
        assert_eq!(check(&bytes, LENGTH, GEOMETRY), Ok(identity()));
        assert_eq!(identity().to_string(), "30313233343536373839616263646566");
        assert_ne!(Identity::random(), Identity::random());
    }

    #[test]
    fn every_flipped_bit_of_the_header_is_found() {
        let bytes = emit(GEOMETRY, identity());
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&wrong, LENGTH, GEOMETRY).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(check(&bytes[..length], length as u64, GEOMETRY).is_err());
        }
    }

    #[test]
    fn geometry_error_has_expected_and_found_geometry() {
        let bytes = emit(GEOMETRY, identity());
        let expected = Geometry {
            block_size: 4096,
            block_count: 128,
        };
        let failure = check(&bytes, LENGTH, expected).expect_err("another");
        for part in ["expected 128 blocks of 4096", "found 3 blocks of 512"] {
            assert!(failure.message.contains(part), "{failure}");
        }
        let failure = check(&bytes, LENGTH - 1, GEOMETRY).expect_err("cut off");
        assert!(
            failure
                .message
                .contains("expected 67072 bytes, found 67071"),
            "{failure}"
        );
        let failure = check(&[0; HEADER_SIZE], LENGTH, GEOMETRY).expect_err("zeros");
        assert!(failure.message.contains("cut short"), "{failure}");
    }
}
