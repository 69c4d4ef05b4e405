//! Blocks that say what they are: every line of 64 bytes names the block and the version that it was written with, and depends on both
//! and on the seed in half of its bytes. So a read tells which write it sees, and a wrong block, a torn one, an old version and
//! garbage are told apart.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bytes of a line. Blocks are a whole number of lines.
pub const LINE: usize = 64;

/// Bytes of a line that depend on everything: the rest are the block, the version, and blanks, so that blocks compress.
const NOISE: usize = 32;

/// What a block holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// This version of the block, and nothing else.
    Version(u64),
    /// Lines of these versions of the block, in ascending order.
    Torn(Vec<u64>),
    /// A line that was written to another block.
    OtherBlock {
        /// Which.
        block: u64,
        /// Its version there.
        version: u64,
    },
    /// Bytes that nobody has written with this seed.
    Garbage {
        /// Offset in the block of the first such line.
        offset: u64,
    },
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "version {version:#x}"),
            Self::Torn(versions) => write!(f, "lines of the versions {versions:#x?}"),
            Self::OtherBlock { block, version } => {
                write!(f, "block {block} in version {version:#x}")
            }
            Self::Garbage { offset } => write!(f, "what nobody wrote, at byte {offset}"),
        }
    }
}

/// What is written to blocks, from a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// Patterns of different seeds have no line in common.
    pub seed: u64,
}

impl Pattern {
    /// The content of a block in this version.
    pub fn fill(self, block: u64, version: u64, into: &mut [u8]) {
        for (number, line) in into.chunks_mut(LINE).enumerate() {
            let content = self.line(block, version, number);
            line.copy_from_slice(&content[..line.len()]);
        }
    }

    /// What this is, which was read from `block`.
    pub fn look(self, block: u64, bytes: &[u8]) -> Seen {
        let mut versions = Vec::new();
        for (number, line) in bytes.chunks(LINE).enumerate() {
            let (of, version) = (word(line, NOISE), word(line, NOISE + 8));
            if self.line(of, version, number)[..line.len()] != *line {
                let offset = (number * LINE) as u64;
                return Seen::Garbage { offset };
            }
            if of != block {
                return Seen::OtherBlock { block: of, version };
            }
            if versions.last() != Some(&version) {
                versions.push(version);
            }
        }
        versions.sort_unstable();
        versions.dedup();
        match versions[..] {
            [version] => Seen::Version(version),
            _ => Seen::Torn(versions),
        }
    }

    fn line(self, block: u64, version: u64, number: usize) -> [u8; LINE] {
        let mut line = [b' '; LINE];
        let mut state = mix(mix(mix(self.seed) ^ block) ^ version) ^ number as u64;
        for word in line[..NOISE].chunks_exact_mut(8) {
            state = mix(state);
            word.copy_from_slice(&state.to_be_bytes());
        }
        line[NOISE..NOISE + 8].copy_from_slice(&block.to_be_bytes());
        line[NOISE + 8..NOISE + 16].copy_from_slice(&version.to_be_bytes());
        line
    }
}

/// The number at this place, 0 where the line is too short for one.
fn word(line: &[u8], at: usize) -> u64 {
    let bytes = line.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_be_bytes)
}

/// SplitMix64: every bit of the result depends on every bit of the argument.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERN: Pattern = Pattern { seed: 7 };

    fn block(block: u64, version: u64) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        PATTERN.fill(block, version, &mut bytes);
        bytes
    }

    #[test]
    fn a_block_tells_its_version() {
        assert_eq!(PATTERN.look(3, &block(3, 9)), Seen::Version(9));
    }

    #[test]
    fn another_block_a_torn_one_and_garbage_are_told_apart() {
        let other = Seen::OtherBlock {
            block: 4,
            version: 9,
        };
        assert_eq!(PATTERN.look(3, &block(4, 9)), other);
        let torn = [&block(3, 9)[..128], &block(3, 8)[128..]].concat();
        assert_eq!(PATTERN.look(3, &torn), Seen::Torn(vec![8, 9]));
        // Halves of one block in another order are no lines of it.
        let whole = block(3, 9);
        let swapped = [&whole[256..], &whole[..256]].concat();
        assert_eq!(PATTERN.look(3, &swapped), Seen::Garbage { offset: 0 });
        assert_eq!(PATTERN.look(3, &[0; 512]), Seen::Garbage { offset: 0 });
        let foreign = Pattern { seed: 8 };
        assert_eq!(foreign.look(3, &block(3, 9)), Seen::Garbage { offset: 0 });
    }

    #[test]
    fn every_byte_counts() {
        for at in 0..512 {
            let mut bytes = block(3, 9);
            bytes[at] ^= 1;
            let offset = (at / LINE * LINE) as u64;
            assert_eq!(
                PATTERN.look(3, &bytes),
                Seen::Garbage { offset },
                "byte {at}"
            );
        }
    }
}
