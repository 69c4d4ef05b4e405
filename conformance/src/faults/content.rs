//! What is stored.

/// Blocks of the storage, as the initiator sees it.
pub(super) const BLOCKS: usize = 64;
/// Bytes of a block, as the initiator sees it.
pub(super) const BLOCK_SIZE: usize = 4096;

/// Blocks that are all different, that compress, and that no new file holds.
pub(super) fn plain() -> Vec<u8> {
    let mut content = Vec::with_capacity(BLOCKS * BLOCK_SIZE);
    let mut word = 1u64;
    for block in 0..BLOCKS {
        let end = (block + 1) * BLOCK_SIZE;
        while content.len() < end {
            word = word
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            content.extend(format!("block {block} says {word:x}, {word:x} and {word:x}\n").bytes());
        }
        content.truncate(end);
    }
    content
}
