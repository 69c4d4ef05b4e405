//! Expected contents of the storage, and comparison of local memory with them.

use std::sync::Arc;

use doca::MemoryRegion;

use super::Mismatch;

/// Bytes that are generated, copied and compared at a time: three buffers of this size stay in the first-level cache.
const PIECE: usize = 4096;

/// Source of expected bytes.
#[derive(Clone, Debug)]
pub enum Content {
    /// The validation pattern.
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
/// Local memory is shared with the storage, which may write at any time. So it is copied in pieces, and the copy is compared.
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

/// Distance between the position words of neighbouring pairs: odd, and with no long runs of equal bits.
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
    /// The pattern.
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
mod tests;
