//! Stored blocks, read by code that is independent of the roles: LZ4 by the C library, CRC by another crate, parity by
//! tables of logarithms.

use std::sync::LazyLock;

/// Reads and checks the contents of three targets: parity, layout, checksum (or its absence). Returns the decoded
/// contents.
pub fn read_targets(
    targets: [&[u8]; 3],
    sizes: Sizes,
    matrix: &str,
    has_checksum: bool,
) -> Vec<u8> {
    let [d1, d2, dp] = targets.map(|target| target.chunks(sizes.half));
    let mut content = Vec::new();
    for (block, ((d1, d2), dp)) in d1.zip(d2).zip(dp).enumerate() {
        assert!(parity(matrix, d1, d2) == dp, "parity of block {block}");
        let stored = [d1, d2].concat();
        let expected = if has_checksum {
            checksum(&stored, block)
        } else {
            0
        };
        assert_eq!(
            number(&stored, stored.len() - 4),
            expected,
            "checksum of block {block}"
        );
        content.extend(decode(&stored, sizes.logical));
    }
    content
}

/// Sizes of a half block and of a logical block in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub half: usize,
    pub logical: usize,
}

impl Sizes {
    /// Sizes for the reference's geometry.
    pub fn compatible(block_size: usize) -> Self {
        Self {
            half: block_size / 2,
            logical: block_size,
        }
    }

    /// Sizes for incompressible content: a header of 8 bytes, a length of 4 for each piece of 64 KiB, a
    /// checksum of 4; each half is a multiple of 64.
    pub fn logical(block_size: usize) -> Self {
        let stored = 12 + block_size + 4 * block_size.div_ceil(65536);
        Self {
            half: stored.div_ceil(128) * 64,
            logical: block_size,
        }
    }
}

/// Decodes a stored block.
pub fn decode(stored: &[u8], logical: usize) -> Vec<u8> {
    assert_eq!(number(stored, 0) as usize, logical, "original size");
    let compressed = number(stored, 4) as usize;
    let (mut data, padding) = stored[8..stored.len() - 4].split_at(compressed);
    assert!(padding.iter().all(|&byte| byte == 0), "padding");
    let mut content = Vec::new();
    while let Some((prefix, rest)) = data.split_first_chunk() {
        let prefix = u32::from_le_bytes(*prefix);
        let (block, rest) = rest.split_at((prefix & 0x7FFF_FFFF) as usize);
        let expected = (logical - content.len()).min(65536);
        if prefix >> 31 == 1 {
            assert_eq!(block.len(), expected, "a raw data block");
            content.extend(block);
        } else {
            let size = i32::try_from(expected).expect("64 KiB");
            let block = lz4::block::decompress(block, Some(size)).expect("LZ4");
            assert_eq!(block.len(), expected, "an LZ4 data block");
            content.extend(block);
        }
        data = rest;
    }
    assert!(data.is_empty() && content.len() == logical);
    content
}

/// Expected trailer of a stored block with this number: its CRC-32C bound to the number, and never 0.
pub fn checksum(stored: &[u8], block: usize) -> u32 {
    let crc = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(&stored[..stored.len() - 4]);
    let mut mask = !u32::try_from(block).expect("few blocks");
    mask = (mask ^ mask >> 16).wrapping_mul(0x85EB_CA6B);
    mask = (mask ^ mask >> 13).wrapping_mul(0xC2B2_AE35);
    mask ^= mask >> 16;
    if crc == mask { 1 } else { crc ^ mask }
}

/// Parity of two halves.
pub fn parity(matrix: &str, d1: &[u8], d2: &[u8]) -> Vec<u8> {
    let [first, second] = match matrix {
        // 1 / (i + (j + k)) for two data blocks and redundancy block 0.
        "cauchy" => [FIELD.inverse(2), FIELD.inverse(3)],
        // (i + 1)^0
        "vandermonde" => [1, 1],
        other => panic!("matrix {other}"),
    };
    std::iter::zip(d1, d2)
        .map(|(&a, &b)| FIELD.multiply(first, a) ^ FIELD.multiply(second, b))
        .collect()
}

fn number(stored: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(stored[at..at + 4].try_into().expect("4 bytes"))
}

static FIELD: LazyLock<Field> = LazyLock::new(Field::new);

/// Arithmetic in GF(2^8) with the polynomial 0x11D.
struct Field {
    exponentials: [u8; 255],
    logarithms: [usize; 256],
}

impl Field {
    fn new() -> Self {
        let mut field = Self {
            exponentials: [0; 255],
            logarithms: [0; 256],
        };
        let mut power = 1u16;
        for exponent in 0..255 {
            field.exponentials[exponent] = power as u8;
            field.logarithms[power as usize] = exponent;
            power <<= 1;
            if power >= 256 {
                power ^= 0x11D;
            }
        }
        field
    }

    fn multiply(&self, a: u8, b: u8) -> u8 {
        if a == 0 || b == 0 {
            return 0;
        }
        self.exponentials[(self.logarithms[a as usize] + self.logarithms[b as usize]) % 255]
    }

    fn inverse(&self, a: u8) -> u8 {
        self.exponentials[(255 - self.logarithms[a as usize]) % 255]
    }
}
