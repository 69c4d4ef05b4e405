//! The validation pattern: data that identifies its run, pass and block.
//!
//! A block is written as pairs of little-endian 64-bit words. The first word of a pair is `key + position * STEP`,
//! the second is a tag of the whole block; key and tag are mixed from seed, pass and block number. So
//!
//! * a block that was not written, or that holds the previous pass, differs in **every** word: for one seed, key and tag
//!   are injective in (pass, block) for blocks and passes below 2^32;
//! * a block that belongs elsewhere differs in every word, for the same reason;
//! * data moved inside a block differs in the first word of each pair, because that one counts positions;
//! * half of the words repeat, so that a service which must compress what it stores (LZ4) can store it. A pattern of random bytes
//!   would be refused by the reference's compressing service.

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
    /// `out` may have any length; `offset` must be a multiple of [`PAIR`], which keeps the inner loop simple.
    ///
    /// # Panics
    /// If `offset` is not a multiple of [`PAIR`].
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
