//! Checksums that compression tasks report with their results.

use std::fmt;
use std::hash::Hasher as _;

use twox_hash::XxHash32;

/// Running checksums of LZ4-decompressed data.
#[derive(Clone, Debug)]
pub struct Lz4Checksums {
    crc32: crc32fast::Hasher,
    xxh32: XxHash32,
}

impl Default for Lz4Checksums {
    fn default() -> Self {
        Self {
            crc32: crc32fast::Hasher::new(),
            xxh32: XxHash32::with_seed(0),
        }
    }
}

impl Lz4Checksums {
    /// Adds data.
    pub fn update(&mut self, data: &[u8]) {
        self.crc32.update(data);
        self.xxh32.write(data);
    }

    /// CRC-32 as in zlib and gzip (reflected polynomial 0xedb88320).
    pub fn crc32(&self) -> u32 {
        self.crc32.clone().finalize()
    }

    /// xxHash-32 with seed 0, as the content checksum of LZ4 frames.
    pub fn xxh32(&self) -> u32 {
        self.xxh32.finish_32()
    }
}

/// xxHash-32 of a compressed block, as the block checksum of LZ4 frames.
pub fn xxh32(data: &[u8]) -> u32 {
    XxHash32::oneshot(0, data)
}

/// Running checksums of the uncompressed side of a deflate task.
#[derive(Clone)]
pub struct DeflateChecksums {
    crc32: crc32fast::Hasher,
    adler32: simd_adler32::Adler32,
}

impl Default for DeflateChecksums {
    fn default() -> Self {
        Self {
            crc32: crc32fast::Hasher::new(),
            adler32: simd_adler32::Adler32::new(),
        }
    }
}

impl fmt::Debug for DeflateChecksums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeflateChecksums")
            .field("crc32", &self.crc32())
            .field("adler32", &self.adler32())
            .finish()
    }
}

impl DeflateChecksums {
    /// Adds data.
    pub fn update(&mut self, data: &[u8]) {
        self.crc32.update(data);
        self.adler32.write(data);
    }

    /// CRC-32 as in gzip (reflected polynomial 0xedb88320).
    pub fn crc32(&self) -> u32 {
        self.crc32.clone().finalize()
    }

    /// Adler-32 as in zlib.
    pub fn adler32(&self) -> u32 {
        self.adler32.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values from the specifications of the algorithms and from the tests of zlib and xxHash.
    #[test]
    fn known_values() {
        let digits = b"123456789";
        let mut lz4 = Lz4Checksums::default();
        assert_eq!((lz4.crc32(), lz4.xxh32()), (0, 0x02cc_5d05));
        digits.chunks(2).for_each(|part| lz4.update(part));
        assert_eq!((lz4.crc32(), lz4.xxh32()), (0xcbf4_3926, 0x937b_ad67));
        assert_eq!(xxh32(digits), 0x937b_ad67);
        let mut deflate = DeflateChecksums::default();
        assert_eq!((deflate.crc32(), deflate.adler32()), (0, 1));
        digits.chunks(4).for_each(|part| deflate.update(part));
        assert_eq!(
            (deflate.crc32(), deflate.adler32()),
            (0xcbf4_3926, 0x091e_01de)
        );
    }
}
