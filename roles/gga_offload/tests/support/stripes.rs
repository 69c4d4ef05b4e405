//! Content as three targets hold it, and ways to damage it.

use role_common::stored_block::{Checksum, Encoder, Geometry, Place};
use role_common::superblock::SetId;

/// Size of a half block.
pub const HALF: usize = 512;

/// Bytes that compress well, and differ from block to block.
pub fn text(blocks: u64, block_size: usize) -> Vec<u8> {
    let mut content = Vec::new();
    for block in 0..blocks {
        let mut bytes = format!("block {block} ")
            .into_bytes()
            .repeat(block_size / 8);
        bytes.resize(block_size, 0);
        content.extend(bytes);
    }
    content
}

/// Bytes that do not compress.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Chunks on data_1, data_2 and data_p. The parity is the XOR of the data chunks, as for a Vandermonde matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stripes(pub [Vec<u8>; 3]);

impl Stripes {
    /// Encodes content of blocks of twice [`HALF`] bytes.
    pub fn of(content: &[u8], checksum: Checksum) -> Self {
        let stored = 2 * HALF;
        let mut encoder = Encoder::new(Geometry::compatible(stored as u32), checksum);
        let blocks = content.chunks(stored).zip(0..).map(|(block, stripe)| {
            let place = Place {
                set: SetId::NONE,
                stripe,
            };
            let stored = encoder.encode(block, place).expect("it compresses");
            stored.to_vec()
        });
        Self::of_stored(&blocks.collect::<Vec<_>>())
    }

    /// Stripes of stored blocks as they are.
    pub fn of_stored(blocks: &[Vec<u8>]) -> Self {
        let mut halves: [Vec<u8>; 3] = Default::default();
        for block in blocks {
            let (first, second) = block.split_at(HALF);
            halves[0].extend(first);
            halves[1].extend(second);
            halves[2].extend(first.iter().zip(second).map(|(a, b)| a ^ b));
        }
        Self(halves)
    }

    /// The stored block of a stripe.
    pub fn stored(&self, stripe: usize) -> Vec<u8> {
        let range = stripe * HALF..(stripe + 1) * HALF;
        [&self.0[0][range.clone()], &self.0[1][range]].concat()
    }

    /// With zeros for the checksums, which depend on the random identifier of a set, and for their parity.
    pub fn without_checksums(mut self) -> Self {
        for half in self.0[1..].iter_mut().flat_map(|it| it.chunks_mut(HALF)) {
            half[HALF - 4..].fill(0);
        }
        self
    }

    /// Contents of targets with whole blocks, as releases 3.0 and 3.1 place them: each chunk where the stored block has it, parity at
    /// both places, and other bytes in the rest.
    pub fn whole_blocks(&self) -> [Vec<u8>; 3] {
        let whole = |target: usize| {
            let chunks = self.0[target].chunks(HALF);
            let blocks = chunks.map(|chunk| match target {
                0 => [chunk, &[0xaa; HALF]].concat(),
                1 => [&[0x55; HALF], chunk].concat(),
                _ => [chunk, chunk].concat(),
            });
            blocks.collect::<Vec<_>>().concat()
        };
        [0, 1, 2].map(whole)
    }

    /// Flips a bit of a chunk.
    pub fn flip(mut self, target: usize, stripe: usize, byte: usize) -> Self {
        self.0[target][stripe * HALF + byte] ^= 0x10;
        self
    }
}
