//! Corruption of bytes in transit.

use arbitrary::{Arbitrary, Result, Unstructured};

/// A single corruption. Offsets are taken modulo the length.
#[derive(Debug, Clone, Arbitrary)]
pub enum Damage {
    /// Overwrites a byte.
    Overwrite {
        /// Index of the byte.
        at: u16,
        /// New value.
        byte: u8,
    },
    /// Overwrites a big-endian word: lengths, types and sizes are such words.
    OverwriteWord {
        /// Offset of the word.
        at: u16,
        /// New value.
        word: u32,
    },
    /// Overwrites a big-endian word with a value that is small enough for a length.
    OverwriteLength {
        /// Offset of the length.
        at: u8,
        /// New value.
        length: u16,
    },
    /// Flips a bit.
    Flip {
        /// Index of the byte.
        at: u16,
        /// Index of the bit.
        bit: u8,
    },
    /// Inserts bytes.
    Insert {
        /// Index of the byte before which they are inserted.
        at: u16,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Removes bytes.
    Remove {
        /// Index of the first removed byte.
        at: u16,
        /// Number of removed bytes.
        count: u16,
    },
    /// Repeats a range of bytes.
    Repeat {
        /// Offset of the range.
        at: u16,
        /// Length of the range.
        count: u16,
    },
    /// Truncates the input.
    Truncate {
        /// New length in bytes.
        length: u16,
    },
}

impl Damage {
    /// Applies it to `bytes`.
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

// Lists with an even distribution of lengths. Those of `Vec` are short: each element is the last one with a probability of one half.

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

/// Sizes of pieces, used cyclically; without any, there is one piece.
#[derive(Debug, Clone, Default, Arbitrary)]
pub struct Pieces(Vec<u16>);

impl Pieces {
    /// Pieces of one size.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}

#[cfg(test)]
mod many_tests {
    use super::*;

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
}

#[cfg(test)]
mod pieces_tests {
    use super::*;

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
}
