//! The field GF(2^8) in which erasure codes are computed.
//!
//! Addition is exclusive or, multiplication that of polynomials modulo [`POLYNOMIAL`]. All tables are computed by the
//! compiler.

/// x^8 + x^4 + x^3 + x^2 + 1, with its eighth power: the polynomial that storage systems use for erasure codes.
///
/// DOCA does not publish its polynomial; matrices made for this field by other libraries are known to work with it.
pub const POLYNOMIAL: u16 = 0x11d;

/// Number of elements.
pub const ORDER: usize = 256;

/// Product of two elements.
///
/// ```
/// use softdoca::engines::galois;
/// assert_eq!(galois::multiply(2, 0x80), 0x1d);
/// ```
pub const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let power = LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize;
    POWERS[power]
}

/// The element by which `a` has to be multiplied to make 1; `None` for 0.
pub const fn inverse(a: u8) -> Option<u8> {
    if a == 0 {
        return None;
    }
    Some(POWERS[ORDER - 1 - LOGARITHMS[a as usize] as usize])
}

/// The `exponent`-th power of `a`; the 0th is 1, also that of 0.
pub const fn power(a: u8, exponent: usize) -> u8 {
    if exponent == 0 {
        return 1;
    }
    if a == 0 {
        return 0;
    }
    POWERS[LOGARITHMS[a as usize] as usize * (exponent % (ORDER - 1)) % (ORDER - 1)]
}

/// Powers of 2, twice over: the sum of two logarithms is an index without a modulus.
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

/// Logarithms to the base 2; that of 0 does not exist, and its place holds 0.
const LOGARITHMS: [u8; ORDER] = {
    let mut logarithms = [0; ORDER];
    let mut power = 0;
    while power < ORDER - 1 {
        logarithms[POWERS[power] as usize] = power as u8;
        power += 1;
    }
    logarithms
};

/// A factor in the forms in which kernels multiply whole vectors by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Multiplier {
    /// Products of the factor and 0, 1, … 15: what a byte's low half contributes.
    pub low: [u8; 16],
    /// Products of the factor and 0x00, 0x10, … 0xf0: what a byte's high half contributes.
    pub high: [u8; 16],
    /// Multiplication as an 8 by 8 matrix of bits, as `gf2p8affineqb` takes it: byte 7 - i holds the input bits of which
    /// the sum is output bit i.
    pub bits: u64,
}

impl Multiplier {
    /// The factor `value`.
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

    /// Multiplication by the definition: shift, add, reduce.
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

    /// What `gf2p8affineqb` does to one byte, by its documentation.
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
