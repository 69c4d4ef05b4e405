//! Expected contents of the storage, and comparison of local memory with them.

use std::sync::Arc;

use doca::MemoryRegion;

use super::Mismatch;

/// Bytes that are generated, copied and compared at a time: three buffers of this size stay in the first-level cache.
const PIECE: usize = 4096;

/// Source of expected bytes.
#[derive(Clone, Debug)]
pub enum Content {
    Pattern(Pattern),
    /// The contents of the whole storage.
    Plain(Arc<[u8]>),
}

impl Content {
    /// Expected bytes of the block at `place`, from its byte `offset` on: generated into `piece`, or a slice of the
    /// contents of the same length.
    fn piece<'a>(&'a self, place: Place, offset: usize, piece: &'a mut [u8]) -> &'a [u8] {
        match self {
            Self::Pattern(pattern) => {
                pattern.fill(place.pass, place.block, offset, Polarity::Plain, piece);
                piece
            }
            Self::Plain(bytes) => {
                let begin = place.storage_offset as usize + offset;
                &bytes[begin..begin + piece.len()]
            }
        }
    }

    /// Fills `piece` with the complement of the bytes that [`Content::piece`] returns.
    fn complement(&self, place: Place, offset: usize, piece: &mut [u8]) {
        match self {
            Self::Pattern(pattern) => {
                pattern.fill(place.pass, place.block, offset, Polarity::Inverted, piece)
            }
            Self::Plain(bytes) => {
                let begin = place.storage_offset as usize + offset;
                let expected = &bytes[begin..begin + piece.len()];
                for (out, byte) in piece.iter_mut().zip(expected) {
                    *out = !byte;
                }
            }
        }
    }
}

/// A block of the storage.
#[derive(Clone, Copy)]
struct Place {
    block: u64,
    storage_offset: u64,
    pass: u32,
}

/// The blocks of one I/O, in local memory and in the storage.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Offset in the local region in bytes.
    pub local_offset: u64,
    /// Offset in the storage in bytes, a multiple of the block size.
    pub storage_offset: u64,
    /// Size in bytes, a multiple of the block size.
    pub size: u32,
    /// Number of times that this run has written these blocks, including this write; 0 in a run that only reads.
    pub pass: u32,
}

/// Fills local memory with expected content, and compares local memory with it.
///
/// Local memory is shared with the storage, which may write at any time. Therefore it is copied in pieces, and the copy
/// is compared.
#[derive(Debug)]
pub struct Validator {
    content: Content,
    region: Arc<MemoryRegion>,
    block_size: u32,
    expected: Box<[u8; PIECE]>,
    actual: Box<[u8; PIECE]>,
}

impl Validator {
    /// Creates a validator of `content`, in blocks of `block_size` bytes, for I/Os with memory in `region`.
    #[must_use]
    pub fn new(content: Content, region: Arc<MemoryRegion>, block_size: u32) -> Self {
        Self {
            content,
            region,
            block_size,
            expected: Box::new([0; PIECE]),
            actual: Box::new([0; PIECE]),
        }
    }

    /// Returns `true` if the expected data depends on the pass, so that passes must be counted.
    #[must_use]
    pub const fn counts_passes(&self) -> bool {
        matches!(self.content, Content::Pattern(_))
    }

    /// Fills the local memory of `extent` with the data to write.
    ///
    /// # Errors
    /// The extent is not within the region.
    pub fn fill(&mut self, extent: Extent) -> Result<(), doca::Error> {
        for (place, offset, length) in pieces(extent, self.block_size) {
            let bytes = self
                .content
                .piece(place, offset, &mut self.expected[..length]);
            self.region.write(local(extent, place, offset), bytes)?;
        }
        Ok(())
    }

    /// Fills the local memory of `extent` with the complement of the expected data, so that bytes which a read does
    /// not transfer are detected.
    ///
    /// # Errors
    /// The extent is not within the region.
    pub fn poison(&mut self, extent: Extent) -> Result<(), doca::Error> {
        for (place, offset, length) in pieces(extent, self.block_size) {
            let piece = &mut self.actual[..length];
            self.content.complement(place, offset, piece);
            self.region.write(local(extent, place, offset), piece)?;
        }
        Ok(())
    }

    /// Compares the local memory of `extent` with the expected data, and returns the first difference.
    ///
    /// # Errors
    /// The extent is not within the region.
    pub fn verify(&mut self, extent: Extent) -> Result<Option<Mismatch>, doca::Error> {
        for (place, offset, length) in pieces(extent, self.block_size) {
            let actual = &mut self.actual[..length];
            self.region.read(local(extent, place, offset), actual)?;
            let expected = self
                .content
                .piece(place, offset, &mut self.expected[..length]);
            if expected == actual {
                continue;
            }
            let differs = expected
                .iter()
                .zip(actual.iter())
                .position(|(expected, actual)| expected != actual);
            let at = differs.expect("unequal slices of one length differ somewhere");
            return Ok(Some(Mismatch {
                block: place.block,
                offset: (offset + at) as u64,
                storage_offset: place.storage_offset + (offset + at) as u64,
                expected: expected[at],
                actual: actual[at],
                pass: (place.pass != 0).then_some(place.pass),
            }));
        }
        Ok(None)
    }
}

/// Splits an extent into pieces, none of which crosses a block boundary: block, offset in the block, length.
fn pieces(extent: Extent, block_size: u32) -> impl Iterator<Item = (Place, usize, usize)> {
    let blocks = extent.size / block_size;
    let first = extent.storage_offset / u64::from(block_size);
    (0..blocks).flat_map(move |index| {
        let place = Place {
            block: first + u64::from(index),
            storage_offset: extent.storage_offset + u64::from(index) * u64::from(block_size),
            pass: extent.pass,
        };
        let block_size = block_size as usize;
        (0..block_size)
            .step_by(PIECE)
            .map(move |offset| (place, offset, PIECE.min(block_size - offset)))
    })
}

/// Offset in the local region of a byte of a block.
fn local(extent: Extent, place: Place, offset: usize) -> usize {
    (extent.local_offset + (place.storage_offset - extent.storage_offset)) as usize + offset
}

/// Distance between the position words of adjacent pairs: odd, and without long runs of equal bits.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Bytes of a pair of words, the unit in which the pattern repeats its structure.
pub const PAIR: usize = 16;

/// The generator of pattern bytes for one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    seed: u64,
}

/// Variant of the data: as expected, or its complement, which differs in every byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polarity {
    Plain,
    /// The inverted pattern: contents of a read buffer before the read.
    Inverted,
}

impl Pattern {
    /// Creates the pattern of `seed`. Patterns of different seeds are unrelated.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The seed, as given to [`Pattern::new`].
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Fills `out` with the data of block `block` in pass `pass`, from byte `offset` of the block on.
    ///
    /// `out` may have any length; `offset` must be a multiple of `PAIR`, which keeps the inner loop simple.
    ///
    /// # Panics
    /// If `offset` is not a multiple of `PAIR`.
    pub fn fill(&self, pass: u32, block: u64, offset: usize, polarity: Polarity, out: &mut [u8]) {
        assert!(
            offset.is_multiple_of(PAIR),
            "pattern offset {offset} is not a multiple of {PAIR}"
        );
        let flip = match polarity {
            Polarity::Plain => 0,
            Polarity::Inverted => u64::MAX,
        };
        let (key, tag) = self.words(pass, block);
        // A pair as a single number, which is fast without loop unrolling.
        let tag = u128::from(tag ^ flip) << 64;
        let mut word = key.wrapping_add(((offset / PAIR) as u64).wrapping_mul(STEP));
        let (pairs, rest) = out.as_chunks_mut::<PAIR>();
        for pair in pairs {
            *pair = (tag | u128::from(word ^ flip)).to_le_bytes();
            word = word.wrapping_add(STEP);
        }
        let last = (tag | u128::from(word ^ flip)).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    fn words(&self, pass: u32, block: u64) -> (u64, u64) {
        // Injective for blocks below 2^32; the rotation distinguishes larger ones with overwhelming probability.
        let place =
            (u64::from(pass) << 32) ^ block.rotate_left(if block >> 32 == 0 { 0 } else { 17 });
        let key = mix(place ^ mix(self.seed));
        (key, mix(key))
    }
}

/// The finaliser of splitmix64: a bijection in which every input bit reaches every output bit.
const fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(STEP);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK_SIZES: [u32; 6] = [512, 513, 1000, 4096, 4100, 10_000];

    fn validator(content: Content, block_size: u32, blocks: usize) -> Validator {
        let region = MemoryRegion::new(block_size as usize * blocks).expect("memory");
        Validator::new(content, region, block_size)
    }

    fn extent(block_size: u32, local: u64, first: u64, blocks: u32, pass: u32) -> Extent {
        let size = u64::from(block_size);
        Extent {
            local_offset: local * size,
            storage_offset: first * size,
            size: blocks * block_size,
            pass,
        }
    }

    fn pattern() -> Content {
        Content::Pattern(Pattern::new(77))
    }

    #[test]
    fn filled_memory_verifies() {
        for size in BLOCK_SIZES {
            let mut validator = validator(pattern(), size, 8);
            let place = extent(size, 3, 100, 4, 1);
            validator.fill(place).expect("inside");
            assert_eq!(
                validator.verify(place).expect("inside"),
                None,
                "block size {size}"
            );
        }
    }

    #[test]
    fn flipped_byte_is_reported_with_its_position() {
        for size in BLOCK_SIZES {
            let mut validator = validator(pattern(), size, 4);
            let place = extent(size, 0, 50, 4, 2);
            validator.fill(place).expect("inside");
            let total = u64::from(size) * 4;
            let spots = [
                0,
                1,
                7,
                u64::from(size) - 1,
                u64::from(size),
                u64::from(size) * 3 + 5,
                total - 1,
            ];
            for spot in spots {
                let mut byte = [0];
                validator
                    .region
                    .read(spot as usize, &mut byte)
                    .expect("inside");
                validator
                    .region
                    .write(spot as usize, &[byte[0] ^ 0x10])
                    .expect("inside");
                let found = validator
                    .verify(place)
                    .expect("inside")
                    .expect("a mismatch");
                let expected = Mismatch {
                    block: 50 + spot / u64::from(size),
                    offset: spot % u64::from(size),
                    storage_offset: 50 * u64::from(size) + spot,
                    expected: byte[0],
                    actual: byte[0] ^ 0x10,
                    pass: Some(2),
                };
                assert_eq!(found, expected, "block size {size}");
                validator
                    .region
                    .write(spot as usize, &byte)
                    .expect("inside");
            }
        }
    }

    #[test]
    fn poison_differs_in_every_byte() {
        let plain: Arc<[u8]> = (0..40_000u32).map(|at| (at / 3) as u8).collect();
        for content in [pattern(), Content::Plain(plain)] {
            for size in [512, 1000, 4100] {
                let mut validator = validator(content.clone(), size, 2);
                let place = extent(size, 0, 6, 2, 1);
                validator.fill(place).expect("inside");
                let mut expected = vec![0; size as usize * 2];
                validator.region.read(0, &mut expected).expect("inside");
                validator.poison(place).expect("inside");
                let mut poison = vec![0; size as usize * 2];
                validator.region.read(0, &mut poison).expect("inside");
                assert!(
                    poison
                        .iter()
                        .zip(&expected)
                        .all(|(poison, expected)| poison != expected)
                );
            }
        }
    }

    #[test]
    fn data_of_previous_pass_or_other_block_is_detected() {
        let mut validator = validator(pattern(), 4096, 2);
        validator.fill(extent(4096, 0, 5, 1, 1)).expect("inside");
        let replayed = validator
            .verify(extent(4096, 0, 5, 1, 2))
            .expect("inside")
            .expect("a replayed pass");
        assert_eq!((replayed.block, replayed.pass), (5, Some(2)));
        let swapped = validator
            .verify(extent(4096, 0, 6, 1, 1))
            .expect("inside")
            .expect("a swapped block");
        assert_eq!(swapped.block, 6);
    }

    #[test]
    fn plain_content_is_compared_at_its_storage_offset() {
        let plain: Arc<[u8]> = (0..4096u32).map(|at| (at % 251) as u8).collect();
        let mut validator = validator(Content::Plain(plain.clone()), 512, 2);
        let place = extent(512, 1, 3, 1, 0);
        validator
            .region
            .write(512, &plain[3 * 512..4 * 512])
            .expect("inside");
        assert_eq!(validator.verify(place).expect("inside"), None);
        let elsewhere = validator
            .verify(extent(512, 1, 4, 1, 0))
            .expect("inside")
            .expect("another block");
        assert_eq!(
            (elsewhere.block, elsewhere.pass, elsewhere.expected),
            (4, None, plain[4 * 512])
        );
    }

    const SIZES: [usize; 7] = [512, 513, 520, 1000, 2112, 4096, 65_537];

    fn block(pattern: Pattern, pass: u32, block: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        pattern.fill(pass, block, 0, Polarity::Plain, &mut bytes);
        bytes
    }

    /// Returns `true` if every whole 8-byte word differs, so that torn mixtures are also detected.
    fn differ_in_every_word(a: &[u8], b: &[u8]) -> bool {
        a.as_chunks::<8>()
            .0
            .iter()
            .zip(b.as_chunks::<8>().0)
            .all(|(a, b)| a != b)
    }

    #[test]
    fn pattern_bytes_are_stable() {
        let mut bytes = [0; 33];
        Pattern::new(0).fill(1, 2, 0, Polarity::Plain, &mut bytes);
        let key = mix(((1 << 32) | 2) ^ mix(0));
        assert_eq!(bytes[..8], key.to_le_bytes());
        assert_eq!(bytes[8..16], mix(key).to_le_bytes());
        assert_eq!(bytes[16..24], key.wrapping_add(STEP).to_le_bytes());
        assert_eq!(bytes[24..32], mix(key).to_le_bytes());
        assert_eq!(
            bytes[32],
            key.wrapping_add(STEP.wrapping_mul(2)).to_le_bytes()[0]
        );
    }

    #[test]
    fn ignored_writes_differ_in_every_word() {
        let pattern = Pattern::new(7);
        for size in SIZES {
            for number in [0, 1, 255, 256, 1 << 20] {
                let first = block(pattern, 1, number, size);
                assert!(
                    differ_in_every_word(&first, &vec![0; size]),
                    "zeros pass for block {number} of {size} bytes"
                );
                let foreign: Vec<u8> = (0..size).map(|at| at as u8).collect();
                assert!(differ_in_every_word(&first, &foreign));
            }
        }
    }

    #[test]
    fn swapped_blocks_differ_in_every_word() {
        let pattern = Pattern::new(99);
        for size in SIZES {
            for distance in [1u64, 2, 16, 255, 256, 4096, 1 << 31, 1 << 32, 1 << 40] {
                let here = block(pattern, 3, 5, size);
                let there = block(pattern, 3, 5 + distance, size);
                assert!(
                    differ_in_every_word(&here, &there),
                    "distance {distance}, size {size}"
                );
            }
        }
    }

    #[test]
    fn replayed_passes_differ_in_every_word() {
        let pattern = Pattern::new(1);
        for size in SIZES {
            for pass in [1u32, 2, 254, 255, 256, 65_535, u32::MAX - 1] {
                let old = block(pattern, pass, 42, size);
                let new = block(pattern, pass + 1, 42, size);
                assert!(differ_in_every_word(&old, &new), "pass {pass}, size {size}");
            }
        }
    }

    #[test]
    fn another_seed_differs_in_every_word() {
        assert!(differ_in_every_word(
            &block(Pattern::new(1), 1, 1, 4096),
            &block(Pattern::new(2), 1, 1, 4096)
        ));
    }

    #[test]
    fn data_moved_inside_a_block_is_visible() {
        let bytes = block(Pattern::new(5), 1, 9, 4096);
        for shift in [1, 8, 16, 64, 512, 2048] {
            let mut moved = bytes.clone();
            moved.rotate_left(shift);
            assert_ne!(bytes, moved, "shift {shift}");
        }
        let mut sectors = bytes.clone();
        let (first, second) = sectors.split_at_mut(512);
        first.swap_with_slice(&mut second[..512]);
        assert_ne!(bytes, sectors);
    }

    #[test]
    fn pattern_of_pieces_equals_the_whole() {
        let pattern = Pattern::new(11);
        let whole = block(pattern, 2, 3, 10_001);
        let mut pieces = vec![0; 10_001];
        for (index, piece) in pieces.chunks_mut(4096).enumerate() {
            pattern.fill(2, 3, index * 4096, Polarity::Plain, piece);
        }
        assert_eq!(whole, pieces);
    }

    #[test]
    fn inverted_differs_in_every_byte() {
        let pattern = Pattern::new(12);
        let plain = block(pattern, 2, 3, 999);
        let mut inverted = vec![0; 999];
        pattern.fill(2, 3, 0, Polarity::Inverted, &mut inverted);
        assert!(plain.iter().zip(&inverted).all(|(a, b)| *a == !*b));
    }

    #[test]
    fn every_block_compresses_enough_for_a_compressing_service() {
        for size in [512, 1000, 4096, 65_536] {
            for number in 0..50 {
                let bytes = block(Pattern::new(13), 1, number, size);
                let compressed = lz4_flex::block::compress(&bytes).len();
                // Two sizes, the size of the LZ4 block, and a reserved word.
                assert!(
                    compressed + 16 <= size,
                    "block {number} of {size} bytes takes {compressed}"
                );
            }
        }
    }

    #[test]
    fn key_and_tag_are_injective_over_many_places() {
        let pattern = Pattern::new(0xFEED);
        let mut seen = std::collections::HashSet::new();
        for pass in 0..64 {
            for number in 0..256 {
                let (key, tag) = pattern.words(pass, number);
                assert!(
                    seen.insert((key, 0)) && seen.insert((tag, 1)),
                    "pass {pass}, block {number}"
                );
            }
        }
    }
}
