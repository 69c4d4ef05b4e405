//! Contents of storage for tests and measurements, determined by a seed.
#![forbid(unsafe_code)]

use fastrand::Rng;

/// Bytes that do not compress. They are different for each seed, and in each block.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Distinct lines, which LZ4 compresses to about half.
pub fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let mut lines = Vec::with_capacity(len + 64);
    while lines.len() < len {
        let (at, word) = (lines.len(), rng.u64(..));
        lines.extend(format!("line {at} says {word:x} twice: {word:x}\n").into_bytes());
    }
    lines.truncate(len);
    lines
}

/// Content of a write similar to that of file systems, to a range that contains `old` and begins `offset` bytes after
/// the start of a block: zeros, compressible or random bytes. Half of each block, or all of it, may be unchanged.
pub fn overwrite(rng: &mut Rng, old: &[u8], offset: usize, block_size: usize) -> Vec<u8> {
    let mut data = vec![0; old.len()];
    match rng.u8(..8) {
        0 => return data,
        1 | 2 => {
            let word: [u8; 16] = std::array::from_fn(|_| rng.u8(..));
            for (at, byte) in data.iter_mut().enumerate() {
                *byte = word[at % word.len()] ^ if at % 64 == 0 { (at / 64) as u8 } else { 0 };
            }
        }
        _ => rng.fill(&mut data),
    }
    let is_kept: fn(bool) -> bool = match rng.u8(..8) {
        0 => |_| true,
        1 | 2 => |is_first_half| is_first_half,
        3 | 4 => |is_first_half| !is_first_half,
        _ => |_| false,
    };
    for (at, (byte, old)) in data.iter_mut().zip(old).enumerate() {
        if is_kept((offset + at) % block_size < block_size / 2) {
            *byte = *old;
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const BLOCK: usize = 4096;

    #[test]
    fn contents_depend_on_the_seed_only() {
        for generate in [noise, text] {
            assert_eq!(generate(3, 5000), generate(3, 5000));
            assert_eq!(generate(3, 5000)[..4999], generate(3, 4999));
            assert_ne!(generate(3, 5000), generate(4, 5000));
        }
    }

    #[test]
    fn no_two_blocks_are_equal() {
        for generate in [noise, text] {
            let content = generate(1, 256 * 512);
            let blocks: BTreeSet<&[u8]> = content.chunks(512).collect();
            assert_eq!(blocks.len(), 256);
        }
    }

    #[test]
    fn overwritten_halves_are_kept_in_every_combination() {
        let mut rng = Rng::with_seed(1);
        let old = noise(2, 2 * BLOCK);
        let mut seen = BTreeSet::new();
        for _ in 0..200 {
            // The range begins with the second half of a block.
            let new = overwrite(&mut rng, &old, BLOCK / 2, BLOCK);
            let halves = old.chunks(BLOCK / 2).zip(new.chunks(BLOCK / 2));
            let kept: Vec<bool> = halves.map(|(old, new)| old == new).collect();
            assert_eq!(kept[..2], kept[2..]);
            seen.insert((kept[0], kept[1], new.iter().all(|&byte| byte == 0)));
        }
        let expected = [
            (false, false, false),
            (false, false, true),
            (false, true, false),
            (true, false, false),
            (true, true, false),
        ];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
    }
}
