//! CRC-32C (Castagnoli), as in iSCSI, by the faster library on this CPU.

/// CRC-32C of two slices of bytes, as if they were adjacent.
#[inline]
#[must_use]
pub fn crc32c(first: &[u8], second: &[u8]) -> u32 {
    crc32c::crc32c_append(of_one(first), second)
}

#[inline]
fn of_one(bytes: &[u8]) -> u32 {
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
    use super::*;

    #[test]
    fn checksum_is_that_of_adjacent_bytes() {
        // RFC 3720, B.4, and the check value of the algorithm.
        assert_eq!(crc32c(&[0; 32], &[]), 0x8A91_36AA);
        assert_eq!(crc32c(b"12345", b"6789"), 0xE306_9283);
        assert_eq!(crc32c(&[], b"123456789"), 0xE306_9283);
        let bytes: Vec<u8> = (0..4096).map(|byte| byte as u8).collect();
        for at in [0, 1, 63, 64, 2048, 4095, 4096] {
            assert_eq!(crc32c(&bytes[..at], &bytes[at..]), crc32c(&bytes, &[]));
        }
    }
}
