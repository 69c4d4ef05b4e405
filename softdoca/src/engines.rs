//! Algorithms of the accelerators, independent of contexts, tasks and bufs: erasure coding, LZ4, deflate, checksums.
//!
//! Another process may write to the source and destination of a task at any time, so no Rust reference to them is
//! created:
//!
//! * [`stripe`] and [`region`] access them through raw pointers and read each source byte of a product once, so that a
//!   concurrent change can only produce a wrong product.
//! * [`lz4`] and [`deflate`] branch on their input. Their parameters are slices, which the caller has copied to private
//!   memory.
//!
//! This file defines the field GF(2^8) of the erasure codes. Addition is exclusive or, multiplication is that of
//! polynomials modulo [`POLYNOMIAL`]. All tables are computed at compile time. Each module uses only this file and
//! the modules before it in this list: [`region`]; [`matrix`]; [`stripe`]. [`lz4`] and [`deflate`], with their checksums, use
//! none of them.

pub mod deflate;
pub mod lz4;
pub mod matrix;
pub mod region;
pub mod stripe;

/// x^8 + x^4 + x^3 + x^2 + 1, including the leading term: the usual polynomial for erasure codes in storage.
///
/// DOCA does not publish its polynomial; matrices that other libraries compute in this field are known to be compatible
/// with it.
pub const POLYNOMIAL: u16 = 0x11d;

/// Number of elements.
pub const ORDER: usize = 256;

/// Product of two elements.
///
/// ```
/// use softdoca::engines;
/// assert_eq!(engines::multiply(2, 0x80), 0x1d);
/// ```
pub const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let power = LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize;
    POWERS[power]
}

/// Multiplicative inverse of `a`; `None` for 0.
pub const fn inverse(a: u8) -> Option<u8> {
    if a == 0 {
        return None;
    }
    Some(POWERS[ORDER - 1 - LOGARITHMS[a as usize] as usize])
}

/// The `exponent`-th power of `a`; the 0th is 1, even for 0.
pub const fn power(a: u8, exponent: usize) -> u8 {
    if exponent == 0 {
        return 1;
    }
    if a == 0 {
        return 0;
    }
    POWERS[LOGARITHMS[a as usize] as usize * (exponent % (ORDER - 1)) % (ORDER - 1)]
}

/// Powers of 2, stored twice in a row, so that the sum of two logarithms needs no modulus.
const POWERS: [u8; 2 * ORDER] = {
    let mut powers = [0; 2 * ORDER];
    let (mut index, mut value) = (0, 1u16);
    while index < 2 * ORDER {
        powers[index] = value as u8;
        value <<= 1;
        if value >= 0x100 {
            value ^= POLYNOMIAL;
        }
        index += 1;
    }
    powers
};

/// Logarithms to base 2; the entry of 0 is unused.
const LOGARITHMS: [u8; ORDER] = {
    let mut logarithms = [0; ORDER];
    let mut power = 0;
    while power < ORDER - 1 {
        logarithms[POWERS[power] as usize] = power as u8;
        power += 1;
    }
    logarithms
};

/// A factor, precomputed in the forms that kernels use to multiply whole vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Multiplier {
    /// Products of the factor and 0, 1, … 15: the contribution of a byte's low nibble.
    pub low: [u8; 16],
    /// Products of the factor and 0x00, 0x10, … 0xf0: the contribution of a byte's high nibble.
    pub high: [u8; 16],
    /// Multiplication as an 8 by 8 bit matrix in the format of `gf2p8affineqb`: byte 7 - i selects the input bits whose
    /// sum is output bit i.
    pub bits: u64,
}

impl Multiplier {
    /// Precomputes the factor `value`.
    pub const fn new(value: u8) -> Multiplier {
        Multiplier::ALL[value as usize]
    }

    const ALL: [Multiplier; ORDER] = {
        let mut all = [Multiplier::compute(0); ORDER];
        let mut value = 1;
        while value < ORDER {
            all[value] = Multiplier::compute(value as u8);
            value += 1;
        }
        all
    };

    const fn compute(value: u8) -> Multiplier {
        let (mut low, mut high, mut half) = ([0; 16], [0; 16], 0);
        while half < 16 {
            low[half] = multiply(value, half as u8);
            high[half] = multiply(value, (half as u8) << 4);
            half += 1;
        }
        let (mut bits, mut input) = (0u64, 0);
        while input < 8 {
            let product = multiply(value, 1 << input);
            let mut output = 0;
            while output < 8 {
                if product >> output & 1 == 1 {
                    bits |= 1 << (8 * (7 - output) + input);
                }
                output += 1;
            }
            input += 1;
        }
        Multiplier { low, high, bits }
    }

    /// Product of the factor and one byte.
    #[inline]
    pub const fn apply(&self, byte: u8) -> u8 {
        self.low[(byte & 0xf) as usize] ^ self.high[(byte >> 4) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication by definition: shift, add, reduce.
    fn by_definition(a: u8, b: u8) -> u8 {
        let mut product = 0u16;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                product ^= u16::from(a) << bit;
            }
        }
        for bit in (8..16).rev() {
            if product >> bit & 1 == 1 {
                product ^= POLYNOMIAL << (bit - 8);
            }
        }
        product as u8
    }

    /// Effect of `gf2p8affineqb` on one byte, from its documentation.
    fn affine(bits: u64, byte: u8) -> u8 {
        let rows = bits.to_le_bytes();
        (0..8).fold(0, |result, bit| {
            result | ((rows[7 - bit] & byte).count_ones() as u8 & 1) << bit
        })
    }

    #[test]
    fn products_are_those_of_the_definition() {
        for a in 0..=255 {
            let multiplier = Multiplier::new(a);
            for b in 0..=255 {
                let expected = by_definition(a, b);
                assert_eq!(multiply(a, b), expected, "{a} * {b}");
                assert_eq!(multiplier.apply(b), expected, "{a} * {b} by halves");
                assert_eq!(affine(multiplier.bits, b), expected, "{a} * {b} by bits");
            }
        }
    }

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        assert_eq!(inverse(0), None);
        for a in 1..=255 {
            assert_eq!(inverse(a).map(|inverse| multiply(a, inverse)), Some(1));
        }
    }

    #[test]
    fn powers_are_repeated_products() {
        for a in 0..=255u8 {
            let mut expected = 1;
            for exponent in 0..600 {
                assert_eq!(power(a, exponent), expected, "{a} ^ {exponent}");
                expected = multiply(expected, a);
            }
        }
    }

    #[test]
    fn two_generates_the_field() {
        let mut seen = [false; ORDER];
        (0..ORDER - 1).for_each(|exponent| seen[usize::from(power(2, exponent))] = true);
        assert_eq!(seen.iter().filter(|seen| **seen).count(), ORDER - 1);
    }
}
