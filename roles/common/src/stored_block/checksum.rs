//! The checksum in the trailer.

use clap::ValueEnum;
use serde::Serialize;

/// What is written into the trailer of a stored block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Checksum {
    /// CRC-32C of the bytes before the trailer
    #[default]
    Crc32c,
    /// 0, as the reference writes it
    Off,
}

/// The trailer for a stored block whose other bytes are `bytes_before`: their CRC-32C (Castagnoli), or 1 where that is
/// 0, because 0 says that there is none.
#[must_use]
pub fn checksum_of(bytes_before: &[u8]) -> u32 {
    crc32c_of(bytes_before).max(1)
}

/// With whichever library is faster on this CPU.
#[inline]
fn crc32c_of(bytes: &[u8]) -> u32 {
    // Where polynomials of 512 bits cannot be multiplied, three streams of the CPU's own instruction are ahead.
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
    fn both_libraries_agree_whichever_this_cpu_is_given() {
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
