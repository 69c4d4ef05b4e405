//! Code shared by the properties: runs on random inputs generated from a seed; counts of inputs per decoder and result;
//! corruption of bytes in transit; limits on the allocations of a decoder; inputs in files.
//!
//! Linking this crate makes `allocation_counter` the global allocator: it counts each thread separately, so tests may
//! run in parallel.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Seek as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use arbitrary::{Arbitrary, Result, Unstructured};
use tempfile::NamedTempFile;

use super::{
    backing, chunk_record, control_frames, io_message, json_flags, nbd, sbc, settings, shared,
    stored_block,
};

/// A property, and the generator of its inputs.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// Name of the property's module in this crate.
    pub name: &'static str,
    /// Maximum number of random bytes of an input.
    size: usize,
    /// Number of inputs of this property per thousand, because some properties take a hundred times as long as others.
    share: u64,
    try_with: fn(&[u8]),
}

/// Runs the property on the input generated from these bytes, if any.
fn input<I: for<'a> Arbitrary<'a>>(bytes: &[u8], property: fn(&I)) {
    if let Ok(input) = I::arbitrary(&mut Unstructured::new(bytes)) {
        property(&input);
    }
}

pub const ALL: [Search; 10] = [
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
        name: "chunk_record",
        size: 256,
        share: 1000,
        try_with: |bytes| input(bytes, chunk_record::property),
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
            // The only state of a property is the counts, which a panic leaves consistent.
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
    // Prefers short inputs: the maximum length is divided by a random power of two.
    let most = most >> (next() % 5);
    let length = next() as usize % (most + 1);
    bytes.clear();
    while bytes.len() < length {
        bytes.extend(next().to_le_bytes());
    }
    bytes.truncate(length);
}

/// Counts of one decoder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub refused: u64,
    /// Accepted, and all checks of the property passed.
    pub accepted: u64,
    /// A panic of the decoder or of a check.
    pub panics: u64,
}

impl Counts {
    #[must_use]
    pub fn inputs(&self) -> u64 {
        self.refused + self.accepted + self.panics
    }
}

static COUNTS: Mutex<BTreeMap<&'static str, Counts>> = Mutex::new(BTreeMap::new());

fn counts() -> MutexGuard<'static, BTreeMap<&'static str, Counts>> {
    // A panic between two additions leaves consistent counts.
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An input of a decoder that is being checked: a property creates one for each decoder that it runs, and calls
/// [`done`](Self::done) after all checks. An input that is dropped by a panic is counted as a panic.
#[derive(Debug)]
#[must_use = "an input without a result is not counted"]
pub struct Counting(&'static str);

impl Counting {
    /// Starts counting an input of the decoder `decoder`.
    pub fn of(decoder: &'static str) -> Self {
        Self(decoder)
    }

    /// Counts the input as accepted or refused.
    pub fn done(self, accepted: bool) {
        count(self.0, accepted);
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        if std::thread::panicking() {
            counts().entry(self.0).or_default().panics += 1;
        }
    }
}

/// Counts an input of a decoder that reads parts of a larger input.
pub fn count(decoder: &'static str, accepted: bool) {
    let mut counts = counts();
    let counts = counts.entry(decoder).or_default();
    if accepted {
        counts.accepted += 1;
    } else {
        counts.refused += 1;
    }
}

#[must_use]
pub fn snapshot() -> BTreeMap<&'static str, Counts> {
    counts().clone()
}

/// A printable table of all decoders.
#[derive(Debug)]
pub struct Table(pub BTreeMap<&'static str, Counts>);

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| decoder | inputs | refused | accepted and as expected | panics |"
        )?;
        writeln!(f, "| --- | ---: | ---: | ---: | ---: |")?;
        for (decoder, counts) in &self.0 {
            let Counts {
                refused,
                accepted,
                panics,
            } = counts;
            let inputs = counts.inputs();
            writeln!(
                f,
                "| {decoder} | {inputs} | {refused} | {accepted} | {panics} |"
            )?;
        }
        let total = |of: fn(&Counts) -> u64| self.0.values().map(of).sum::<u64>();
        write!(
            f,
            "| all | {} | {} | {} | {} |",
            total(Counts::inputs),
            total(|counts| counts.refused),
            total(|counts| counts.accepted),
            total(|counts| counts.panics)
        )
    }
}

/// A single corruption. Offsets are taken modulo the length.
#[derive(Debug, Clone, Arbitrary)]
pub enum Damage {
    Overwrite {
        at: u16,
        byte: u8,
    },
    /// Overwrites a big-endian word: lengths, types and sizes are such words.
    OverwriteWord {
        at: u16,
        word: u32,
    },
    /// Overwrites a big-endian word with a value that is small enough for a length.
    OverwriteLength {
        /// Offset in units of four bytes.
        at: u8,
        length: u16,
    },
    Flip {
        at: u16,
        /// Index of the bit, modulo 8.
        bit: u8,
    },
    Insert {
        /// Index of the byte before which the bytes are inserted.
        at: u16,
        bytes: Vec<u8>,
    },
    Remove {
        /// Index of the first removed byte.
        at: u16,
        count: u16,
    },
    /// Repeats a range of bytes.
    Repeat {
        at: u16,
        count: u16,
    },
    Truncate {
        /// New length in bytes.
        length: u16,
    },
}

impl Damage {
    pub fn apply(&self, bytes: &mut Vec<u8>) {
        let place = |at: u16, length: usize| usize::from(at).checked_rem(length).unwrap_or(0);
        let length = bytes.len();
        match self {
            Self::Overwrite { at, byte } => {
                if let Some(place) = bytes.get_mut(place(*at, length)) {
                    *place = *byte;
                }
            }
            Self::OverwriteWord { at, word } => {
                overwrite(&mut bytes[place(*at, length)..], *word);
            }
            Self::OverwriteLength { at, length: word } => {
                // Without insertions, lengths and sizes are at multiples of four bytes.
                let at = u16::from(*at) * 4;
                overwrite(&mut bytes[place(at, length)..], u32::from(*word));
            }
            Self::Flip { at, bit } => {
                if let Some(place) = bytes.get_mut(place(*at, length)) {
                    *place ^= 1 << (bit % 8);
                }
            }
            Self::Insert { at, bytes: new } => {
                let at = place(*at, length + 1);
                bytes.splice(at..at, new.iter().copied());
            }
            Self::Remove { at, count } => {
                let at = place(*at, length + 1);
                bytes.drain(at..at.saturating_add((*count).into()).min(length));
            }
            Self::Repeat { at, count } => {
                let at = place(*at, length + 1);
                let end = at.saturating_add((*count).into()).min(length);
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            Self::Truncate { length } => bytes.truncate((*length).into()),
        }
    }
}

/// Overwrites as much of the word as is present.
fn overwrite(bytes: &mut [u8], word: u32) {
    let places = bytes.iter_mut().zip(word.to_be_bytes());
    places.for_each(|(place, byte)| *place = byte);
}

/// Applies all of `damages` in order.
pub fn spoil(bytes: &mut Vec<u8>, damages: &[Damage]) {
    damages.iter().for_each(|damage| damage.apply(bytes));
}

// Lists with an even distribution of lengths. Lists of `Vec` are short: each element is the last one with a probability
// of one half.

/// At most `N` elements, with an even distribution of their number.
#[derive(Debug, Clone, Default)]
pub struct Many<T, const N: usize>(pub Vec<T>);

impl<'a, T: Arbitrary<'a>, const N: usize> Arbitrary<'a> for Many<T, N> {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let length = u.int_in_range(0..=N)?;
        let mut all = Vec::new();
        while all.len() < length && !u.is_empty() {
            all.push(u.arbitrary()?);
        }
        Ok(Self(all))
    }
}

// Segmentation of a byte stream.

/// Sizes of pieces, used cyclically; if empty, the input is one piece.
#[derive(Debug, Clone, Default, Arbitrary)]
pub struct Pieces(Vec<u16>);

impl Pieces {
    #[must_use]
    pub fn of(size: u16) -> Self {
        Self(vec![size])
    }

    /// Splits `bytes`. Pieces may be empty, as after an interrupted read.
    pub fn divide<'a>(&'a self, mut bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut sizes = self.0.iter().cycle();
        // A cycle of empty pieces would never end.
        let mut empty = 0;
        std::iter::from_fn(move || {
            if bytes.is_empty() {
                return None;
            }
            let size = sizes.next().map_or(bytes.len(), |&size| size.into());
            empty = if size == 0 { empty + 1 } else { 0 };
            let size = if empty > self.0.len() { 1 } else { size };
            let (piece, rest) = bytes.split_at(size.min(bytes.len()));
            bytes = rest;
            Some(piece)
        })
    }
}

/// Calls `work`, which must never hold more than `limit` bytes of its own allocations at a time.
///
/// A buffer that grows counts twice while it is moved.
///
/// # Panics
///
/// If the limit is exceeded, or if `work` panics.
pub fn within_memory<T>(limit: usize, what: &str, work: impl FnOnce() -> T) -> T {
    let mut result = None;
    // A panic must not leave the counter of this thread nested.
    let counted = allocation_counter::measure(|| {
        result = Some(catch_unwind(AssertUnwindSafe(work)));
    });
    match result.expect("it was called") {
        Ok(value) => {
            assert!(
                counted.bytes_max <= limit as u64,
                "{what}: expected at most {limit} bytes of memory at a time, {} were allocated ({counted:?})",
                counted.bytes_max
            );
            value
        }
        Err(panic) => resume_unwind(panic),
    }
}

thread_local! {
    /// One file per thread for all inputs, because creating a file takes longer than reading it.
    static FILE: RefCell<Option<NamedTempFile>> = const { RefCell::new(None) };
}

/// Calls `work` with the path of a file that contains `bytes`.
///
/// # Panics
///
/// If the file cannot be written, and if `work` calls this function.
pub fn with_file<T>(bytes: &[u8], work: impl FnOnce(&Path) -> T) -> T {
    FILE.with_borrow_mut(|file| {
        let file = file.get_or_insert_with(|| NamedTempFile::new().expect("a directory for files"));
        file.as_file().set_len(0).expect("emptied");
        file.rewind().expect("at its beginning");
        file.write_all(bytes).expect("written");
        work(file.path())
    })
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

    #[test]
    fn results_and_panics_are_counted() {
        const NAME: &str = "decoder_of_this_test";
        Counting::of(NAME).done(true);
        Counting::of(NAME).done(false);
        let panic = std::panic::catch_unwind(|| {
            let _counting = Counting::of(NAME);
            panic!("as a decoder that has met its bytes");
        });
        assert!(panic.is_err());
        let counts = snapshot()[NAME];
        let expected = Counts {
            refused: 1,
            accepted: 1,
            panics: 1,
        };
        assert_eq!((counts, counts.inputs()), (expected, 3));
        let table = Table([(NAME, counts)].into()).to_string();
        let row = format!("{NAME} | 3 | 1 | 1 | 1 |");
        assert!(table.contains(&row), "{table}");
    }

    #[test]
    fn damage_of_empty_and_other_bytes_does_not_panic() {
        let all = [
            Damage::Overwrite { at: 1, byte: 9 },
            Damage::OverwriteWord {
                at: 3,
                word: 0x0102_0304,
            },
            Damage::Flip { at: 0, bit: 9 },
            Damage::Remove { at: 2, count: 1 },
            Damage::Repeat { at: 0, count: 2 },
            Damage::Insert {
                at: 1,
                bytes: vec![7, 7],
            },
            Damage::Truncate { length: 6 },
        ];
        let mut none = Vec::new();
        spoil(&mut none, &all);
        assert_eq!(none, [7, 7]);
        let mut some = vec![0; 5];
        spoil(&mut some, &all);
        assert_eq!(some, [2, 7, 7, 9, 2, 9]);
    }

    #[test]
    fn list_lengths_are_evenly_distributed() {
        let bytes: Vec<u8> = (0..=255).collect();
        let lengths: Vec<usize> = (0..256)
            .map(|first| {
                let mut bytes = bytes.clone();
                bytes[0] = first as u8;
                let mut u = Unstructured::new(&bytes);
                u.arbitrary::<Many<u8, 9>>().expect("enough bytes").0.len()
            })
            .collect();
        assert!((0..=9).all(|length| lengths.iter().filter(|&&l| l == length).count() > 20));
        let few = Unstructured::new(&[7, 1]).arbitrary::<Many<u8, 9>>();
        assert!(few.expect("a list").0.len() <= 2);
    }

    #[test]
    fn pieces_concatenate_to_the_input() {
        let bytes: Vec<u8> = (0..100).collect();
        for sizes in [vec![], vec![0], vec![0, 0, 7], vec![1], vec![200]] {
            let pieces = Pieces(sizes);
            assert_eq!(
                pieces.divide(&bytes).collect::<Vec<_>>().concat(),
                bytes,
                "{pieces:?}"
            );
        }
        assert_eq!(Pieces::of(7).divide(&bytes).count(), 15);
    }

    #[test]
    fn freed_allocations_count_too() {
        assert_eq!(
            within_memory(100, "a vector", || vec![1_u8; 100].len()),
            100
        );
        let more = catch_unwind(|| within_memory(99, "a vector", || drop(vec![1_u8; 100])));
        more.expect_err("100 bytes are more than 99");
    }
}
