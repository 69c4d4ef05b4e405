//! One block of content as the gga_offload service stores it.

use std::fmt;

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use wire::stored_block::{DataBlock, Header, Trailer};

/// Content of an LZ4 data block at most, as the reference configures its compressor.
const PIECE: usize = 64 << 10;

/// Marks a data block that is stored as it is.
const RAW: u32 = 1 << 31;

/// Bytes of a stored block that are not LZ4 data.
const OVERHEAD: usize = Header::SIZE + Trailer::SIZE;

/// Makes stored blocks; keeps its working memory from one to the next.
pub(crate) struct Encoder {
    block_size: u32,
    stored: Vec<u8>,
    piece: Vec<u8>,
    table: CompressTable,
}

/// The content of a block has no room in a stored block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Incompressible {
    /// Bytes that its LZ4 data blocks have.
    pub(crate) needed: usize,
    /// Bytes that a stored block has for them.
    pub(crate) room: usize,
}

impl fmt::Display for Incompressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, room } = self;
        write!(
            f,
            "compresses to {needed} bytes, {} more than the {room} that a stored block has room for",
            needed - room
        )
    }
}

impl Encoder {
    /// An encoder for blocks of `block_size` bytes, at least 12.
    pub(crate) fn new(block_size: u32) -> Self {
        let piece = PIECE.min(block_size as usize);
        Self {
            block_size,
            stored: Vec::new(),
            piece: vec![0; get_maximum_output_size(piece)],
            table: CompressTable::default(),
        }
    }

    /// The stored block for `content`, of block size too: header, LZ4 data blocks, zeros, and a trailer of zeros.
    pub(crate) fn encode(&mut self, content: &[u8]) -> Result<&[u8], Incompressible> {
        debug_assert_eq!(content.len(), self.block_size as usize);
        let size = self.block_size as usize;
        self.stored.clear();
        self.stored.resize(Header::SIZE, 0);
        for piece in content.chunks(PIECE) {
            self.append(piece);
        }
        let needed = self.stored.len() - Header::SIZE;
        let room = size - OVERHEAD;
        if needed > room {
            return Err(Incompressible { needed, room });
        }
        self.stored.resize(size - Trailer::SIZE, 0);
        let trailer = Trailer { checksum: 0 };
        self.stored.extend_from_slice(&trailer.emit());
        let header = Header {
            original_size: self.block_size,
            compressed_size: u32::try_from(needed).expect("less than the block size"),
        };
        self.stored[..Header::SIZE].copy_from_slice(&header.emit());
        Ok(&self.stored)
    }

    /// Appends an LZ4 data block: compressed, or raw when that is no longer.
    fn append(&mut self, content: &[u8]) {
        let compressed = compress_into_with_table(content, &mut self.piece, &mut self.table)
            .expect("room for the worst case");
        let (bytes, flag) = if compressed < content.len() {
            (&self.piece[..compressed], 0)
        } else {
            (content, RAW)
        };
        let length = u32::try_from(bytes.len()).expect("at most 64 KiB");
        let prefix = DataBlock {
            size_and_raw: length | flag,
        };
        self.stored.extend_from_slice(&prefix.emit());
        self.stored.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that do not compress: a linear congruential generator's high bytes.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u64;
        std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(len)
        .collect()
    }

    #[test]
    fn zeros_make_a_block_of_mostly_padding() {
        let mut encoder = Encoder::new(256);
        let stored = encoder.encode(&[0; 256]).expect("compresses").to_vec();
        assert_eq!(stored.len(), 256);
        assert_eq!(stored[..4], [0, 0, 1, 0]);
        let compressed = u32::from_be_bytes(stored[4..8].try_into().expect("4")) as usize;
        let length = u32::from_le_bytes(stored[8..12].try_into().expect("4")) as usize;
        assert_eq!(compressed, 4 + length);
        assert!(compressed < 32, "{compressed}");
        assert!(stored[8 + compressed..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn noise_is_refused_with_the_bytes_that_were_missing() {
        let refused = Encoder::new(4096).encode(&noise(4096)).expect_err("noise");
        // Raw: its length and itself; 12 bytes are not for it.
        assert_eq!((refused.needed, refused.room), (4100, 4084));
        assert_eq!(
            refused.to_string(),
            "compresses to 4100 bytes, 16 more than the 4084 that a stored block has room for"
        );
    }

    #[test]
    fn noise_between_zeros_is_stored_raw() {
        let mut content = vec![0; 3 * PIECE];
        content[PIECE..2 * PIECE].copy_from_slice(&noise(PIECE));
        let mut encoder = Encoder::new(3 * PIECE as u32);
        let stored = encoder.encode(&content).expect("two thirds are zeros");
        let first = u32::from_le_bytes(stored[8..12].try_into().expect("4")) as usize;
        let second = 12 + first;
        assert_eq!(stored[second..second + 4], 0x8001_0000_u32.to_le_bytes());
        assert_eq!(
            stored[second + 4..second + 4 + PIECE],
            content[PIECE..2 * PIECE]
        );
    }

    #[test]
    fn the_last_byte_of_room_is_used() {
        // Noise in front, zeros behind: each byte of noise more is about a byte of LZ4 data more.
        let size = 1024;
        let noise = noise(size);
        let outcome = |random: usize| {
            let mut content = vec![0; size];
            content[..random].copy_from_slice(&noise[..random]);
            let mut encoder = Encoder::new(1024);
            encoder
                .encode(&content)
                .map(|stored| u32::from_be_bytes(stored[4..8].try_into().expect("4")) as usize)
        };
        let last = (0..size)
            .take_while(|&random| outcome(random).is_ok())
            .last()
            .expect("zeros compress");
        assert!(outcome(last).expect("fits") >= size - OVERHEAD - 1);
        let refused = outcome(last + 1).expect_err("one more byte of noise");
        assert!(refused.needed > size - OVERHEAD && refused.room == size - OVERHEAD);
    }

    #[test]
    fn nothing_of_a_block_is_left_in_the_next() {
        let text: Vec<u8> = b"a stored block "
            .iter()
            .copied()
            .cycle()
            .take(512)
            .collect();
        let mut used = Encoder::new(512);
        assert!(used.encode(&noise(512)).is_err());
        used.encode(&text).expect("compresses");
        let stored = used.encode(&[7; 512]).expect("compresses").to_vec();
        assert_eq!(stored, Encoder::new(512).encode(&[7; 512]).expect("same"));
    }
}
