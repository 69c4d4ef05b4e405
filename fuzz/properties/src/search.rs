//! Runs every property on random inputs, generated from a seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arbitrary::{Arbitrary, Unstructured};

use super::{
    backing, control_frames, io_message, json_flags, nbd, sbc, settings, shared, stored_block,
};

/// A property, and the generator of its inputs.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// Name of the property's module in this crate.
    pub name: &'static str,
    /// Maximum number of random bytes of an input.
    size: usize,
    /// Number of inputs of this property per thousand: some take a hundred times as long as others.
    share: u64,
    try_with: fn(&[u8]),
}

/// Runs the property on the input generated from these bytes, if any.
fn input<I: for<'a> Arbitrary<'a>>(bytes: &[u8], property: fn(&I)) {
    if let Ok(input) = I::arbitrary(&mut Unstructured::new(bytes)) {
        property(&input);
    }
}

/// All properties.
pub const ALL: [Search; 9] = [
    Search {
        name: "control_frames",
        size: 2048,
        share: 3000,
        try_with: |bytes| input(bytes, control_frames::property),
    },
    Search {
        name: "io_message",
        size: 512,
        share: 2000,
        try_with: |bytes| input(bytes, io_message::property),
    },
    Search {
        name: "sbc",
        size: 512,
        share: 500,
        try_with: |bytes| input(bytes, sbc::property),
    },
    Search {
        name: "nbd",
        size: 1024,
        share: 1000,
        try_with: |bytes| input(bytes, nbd::property),
    },
    Search {
        name: "backing",
        size: 256,
        share: 1000,
        try_with: |bytes| input(bytes, backing::property),
    },
    Search {
        name: "stored_block",
        size: 2048,
        share: 500,
        try_with: |bytes| input(bytes, stored_block::property),
    },
    Search {
        name: "json_flags",
        size: 512,
        share: 50,
        try_with: |bytes| input(bytes, json_flags::property),
    },
    Search {
        name: "shared",
        size: 256,
        share: 2000,
        try_with: |bytes| input(bytes, shared::property),
    },
    Search {
        name: "settings",
        size: 256,
        share: 600,
        try_with: |bytes| input(bytes, settings::property),
    },
];

impl Search {
    /// Runs all properties on `inputs` inputs each, scaled by the property's share, starting with this seed. `failed`
    /// is called with the number of each input that violates its property.
    pub fn run(&self, seed: u64, inputs: u64, mut failed: impl FnMut(u64)) {
        let mut bytes = Vec::with_capacity(self.size);
        for number in 0..(inputs * self.share).div_ceil(1000) {
            chance(seed, number, self.size, &mut bytes);
            // The only state of a property is the tally, which a panic leaves consistent.
            if catch_unwind(AssertUnwindSafe(|| (self.try_with)(&bytes))).is_err() {
                failed(number);
            }
        }
    }
}

/// Fills `bytes` with the random bytes of one input.
fn chance(seed: u64, number: u64, most: usize, bytes: &mut Vec<u8>) {
    let mut state = seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        // SplitMix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = state;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    };
    // Prefers short inputs: each length class is as likely as the next longer one.
    let most = most >> (next() % 5);
    let length = next() as usize % (most + 1);
    bytes.clear();
    while bytes.len() < length {
        bytes.extend(next().to_le_bytes());
    }
    bytes.truncate(length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_determined_by_the_seed() {
        let make = |seed, number| {
            let mut bytes = Vec::new();
            chance(seed, number, 512, &mut bytes);
            bytes
        };
        assert_eq!(make(1, 2), make(1, 2));
        let different: std::collections::HashSet<_> =
            (0..100).map(|number| make(1, number)).collect();
        assert!(different.len() > 90);
        assert!(different.iter().all(|bytes| bytes.len() <= 512));
    }

    #[test]
    fn panic_is_counted_and_the_search_continues() {
        let search = Search {
            name: "a property that does not hold",
            size: 8,
            share: 1000,
            try_with: |bytes| assert!(bytes.len() != 3, "three bytes"),
        };
        let mut numbers = Vec::new();
        search.run(7, 200, |number| numbers.push(number));
        assert!(!numbers.is_empty() && numbers.len() < 200, "{numbers:?}");
    }
}
