//! Lists of some length. `Vec`'s own inputs are short: after each element, half of them end.

use arbitrary::{Arbitrary, Result, Unstructured};

/// At most `N` elements, each number of which is as likely as any other.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_as_likely_as_short_ones_and_end_with_the_bytes() {
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
