//! The checksum in the trailer.

use clap::ValueEnum;
use serde::Serialize;
use wire::stored_block::Trailer;

use crate::superblock::SetId;

/// Contents of a stored block's trailer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Checksum {
    /// CRC-32C of the bytes before the trailer, bound to the block's place
    #[default]
    Crc32c,
    /// 0, as in the reference
    Off,
}

/// Place of a stored block. Its checksum is bound to it, so that a misdirected write is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The set of targets that the block is stored on; [`SetId::NONE`] where the targets have no superblocks.
    pub set: SetId,
    /// Number of the block in its storage.
    pub stripe: u64,
}

impl Place {
    /// The same stripe without a set: used by a service without superblocks and by the generator.
    const fn of_no_set(self) -> Self {
        Self {
            set: SetId::NONE,
            ..self
        }
    }

    /// XOR difference between the checksum of a block at this place and the block's CRC-32C.
    ///
    /// With all arithmetic on 32 bits, `^` the exclusive or, and `s3 s2 s1 s0` the 32-bit words of the set's identifier:
    ///
    /// ```text
    /// x    = (stripe mod 2^32) ^ ((stripe >> 32) * 0x9E3779B9) ^ s3 ^ s2 ^ s1 ^ s0
    /// x    = not x
    /// x    = (x ^ (x >> 16)) * 0x85EBCA6B
    /// x    = (x ^ (x >> 13)) * 0xC2B2AE35
    /// mask = x ^ (x >> 16)
    /// ```
    ///
    /// Each step is a bijection, so no two of 2^32 consecutive stripes of a set have the same mask. The mask is 0 for
    /// one of them; without a set, for stripe 2^32 - 1.
    #[must_use]
    #[inline]
    pub const fn mask(self) -> u32 {
        let set = self.set.0;
        let words = (set >> 96) as u32 ^ (set >> 64) as u32 ^ (set >> 32) as u32 ^ set as u32;
        let high = ((self.stripe >> 32) as u32).wrapping_mul(0x9E37_79B9);
        let mut x = !(self.stripe as u32 ^ high ^ words);
        x = (x ^ (x >> 16)).wrapping_mul(0x85EB_CA6B);
        x = (x ^ (x >> 13)).wrapping_mul(0xC2B2_AE35);
        x ^ (x >> 16)
    }
}

/// Trailer in the format of earlier versions for a stored block whose other bytes are `bytes_before`: their CRC-32C
/// (Castagnoli), or 1 if that is 0, because 0 means no checksum.
#[must_use]
pub fn checksum_of(bytes_before: &[u8]) -> u32 {
    crc32c_of(bytes_before).max(1)
}

/// Trailer for a stored block at `place` whose other bytes are `bytes_before`: their CRC-32C (Castagnoli) XOR
/// [`Place::mask`], or 1 if the result is 0.
#[must_use]
pub fn bound_checksum_of(bytes_before: &[u8], place: Place) -> u32 {
    bind(crc32c_of(bytes_before), place)
}

/// Builds the trailer from a CRC-32C.
#[inline]
fn bind(crc: u32, place: Place) -> u32 {
    (crc ^ place.mask()).max(1)
}

/// Result of comparing a stored block's trailer with the bytes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// CRC-32C bound to this place: the bytes are unchanged and in the right place.
    Bound,
    /// CRC-32C in an earlier format: not bound to a place, or bound to a place without a set. The bytes are unchanged.
    Unbound,
    /// No checksum: the block was written without one, or the checksum was lost.
    Absent,
    /// The bytes or the trailer are corrupt, or belong to another place.
    Differs {
        /// The checksum in the trailer.
        stored: u32,
        /// The checksum of the bytes at this place.
        calculated: u32,
    },
}

impl Verdict {
    /// Compares the trailer of a block at `place` with the bytes before it. Computes at most one CRC-32C.
    #[must_use]
    #[inline]
    pub fn of(trailer: Trailer, bytes_before: &[u8], place: Place) -> Self {
        let stored = trailer.checksum;
        if stored == 0 {
            return Self::Absent;
        }
        // Loaded before the CRC, so that the CPU overlaps them.
        let expected = stored ^ place.mask();
        let crc = crc32c_of(bytes_before);
        if crc == expected {
            return Self::Bound;
        }
        Self::of_other_crc(stored, crc, place)
    }

    #[cold]
    fn of_other_crc(stored: u32, crc: u32, place: Place) -> Self {
        let calculated = bind(crc, place);
        if stored == calculated {
            // 1, because 0 means no checksum.
            Self::Bound
        } else if stored == bind(crc, place.of_no_set()) || stored == crc.max(1) {
            Self::Unbound
        } else {
            Self::Differs { stored, calculated }
        }
    }
}

/// Uses the faster library on this CPU.
#[inline]
fn crc32c_of(bytes: &[u8]) -> u32 {
    // Without VPCLMULQDQ on 512-bit vectors, three streams of the CPU's CRC instruction are faster.
    #[cfg(target_arch = "x86_64")]
    if !(std::arch::is_x86_feature_detected!("avx512vl")
        && std::arch::is_x86_feature_detected!("vpclmulqdq"))
    {
        return crc32c::crc32c(bytes);
    }
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_crc_libraries_agree() {
        let bytes: Vec<u8> = (0..4200_u32)
            .map(|byte| ((byte * byte) >> 3) as u8)
            .collect();
        for length in (0..600).chain([4092, 4200]) {
            let bytes = &bytes[..length];
            assert_eq!(crc_fast::crc32_iscsi(bytes), crc32c::crc32c(bytes));
            assert_eq!(super::crc32c_of(bytes), crc32c::crc32c(bytes));
        }
    }
}
