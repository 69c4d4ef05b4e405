//! Bytes as a channel delivers them: in pieces.

use arbitrary::Arbitrary;

/// Sizes of pieces, over and over. Without any, all bytes come at once.
#[derive(Debug, Clone, Default, Arbitrary)]
pub struct Pieces(Vec<u16>);

impl Pieces {
    /// Pieces of one size.
    #[must_use]
    pub fn of(size: u16) -> Self {
        Self(vec![size])
    }

    /// Divides `bytes`. Pieces may be empty, as reads that were interrupted are.
    pub fn divide<'a>(&'a self, mut bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut sizes = self.0.iter().cycle();
        // A round in which no byte comes would be the last, otherwise.
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
    fn pieces_are_the_bytes() {
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
