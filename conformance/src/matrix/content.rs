//! What is stored.

/// Blocks of the storage, as the initiator sees it.
pub(super) const BLOCKS: usize = 256;
/// Bytes of a block, as the initiator sees it.
pub(super) const BLOCK_SIZE: usize = 4096;
/// Bytes of a block on each target of a gga deployment.
pub(super) const HALF_BLOCK_SIZE: usize = BLOCK_SIZE / 2;
/// The block that is corrupt where one is.
pub(super) const CORRUPT: usize = 13;

/// Bytes that each block begins with which occur nowhere else, so that no LZ4 encoder refers to earlier ones for them.
const UNIQUE: usize = 128;
/// The byte of a block, plain or stored, that is changed in a corrupt one. In a stored block it is behind the header (8 bytes), the
/// size of the LZ4 block (4) and the token with the length of its first literals (2): one of these literals. So it still can
/// be decompressed, into one wrong byte: what a service makes of that which cannot be decompressed would be another test.
const PLACE: usize = 60;

/// Blocks that are all different, and that compress.
pub(super) fn plain() -> Vec<u8> {
    let mut word = 1u64;
    let mut content = Vec::with_capacity(BLOCKS * BLOCK_SIZE);
    for block in 0..BLOCKS {
        for _ in 0..UNIQUE {
            word = word
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            content.push((word >> 56) as u8);
        }
        let line = format!("block {block} of the storage\n");
        content.extend(line.bytes().cycle().take(BLOCK_SIZE - UNIQUE));
    }
    content
}

/// Changes one byte of block [`CORRUPT`] of `stored`, with blocks of this size.
pub(super) fn corrupt(stored: &mut [u8], block_size: usize) {
    stored[CORRUPT * block_size + PLACE] ^= 0x20;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_is_a_literal() {
        let content = plain();
        assert_eq!(content.len(), BLOCKS * BLOCK_SIZE);
        let block = &content[CORRUPT * BLOCK_SIZE..][..BLOCK_SIZE];
        let mut stored = vec![0; 12];
        stored.extend(lz4_flex::block::compress(block));
        assert!(stored.len() < BLOCK_SIZE - 4);
        stored[PLACE] ^= 0x20;
        let read = lz4_flex::block::decompress(&stored[12..], BLOCK_SIZE).expect("still LZ4");
        let wrong = std::iter::zip(block, &read).filter(|(a, b)| a != b).count();
        assert_eq!((read.len(), wrong), (BLOCK_SIZE, 1));
    }

    #[test]
    fn one_byte_of_one_block_is_changed() {
        let content = plain();
        let mut changed = content.clone();
        corrupt(&mut changed, BLOCK_SIZE);
        let wrong: Vec<_> = (0..content.len())
            .filter(|&i| content[i] != changed[i])
            .collect();
        assert_eq!(wrong, [CORRUPT * BLOCK_SIZE + PLACE]);
    }
}
