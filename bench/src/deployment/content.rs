//! What the storage holds: bytes that compress like text, different in every block.

const WORDS: [&str; 16] = [
    "block ", "storage ", "target ", "read ", "write ", "offset ", "length ", "buffer ", "queue ",
    "depth ", "latency ", "parity ", "stripe ", "volume ", "device ", "memory ",
];

/// So many bytes of it.
pub fn content(capacity: usize) -> Vec<u8> {
    let mut content = Vec::with_capacity(capacity + 64);
    let mut state = 1_u64;
    while content.len() < capacity {
        // Numerical Recipes' generator: content that is the same in every run.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        content.extend_from_slice(WORDS[(state >> 60) as usize].as_bytes());
        content.extend_from_slice(format!("{:x} ", state >> 52).as_bytes());
    }
    content.truncate(capacity);
    content
}
