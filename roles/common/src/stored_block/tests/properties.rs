//! Properties of any data and any bytes.

use proptest::prelude::*;
use wire::stored_block::{Header, Trailer};

use super::{PLACE, logical, noise};
use crate::stored_block::{Checksum, Encoder, Geometry, PIECE, Verdict, inspect};

/// Decodes the data of a stored block with an LZ4 block decoder.
fn decode(stored: &[u8], header: Header) -> Vec<u8> {
    let mut data = &stored[data_range(header)];
    let mut content = Vec::new();
    while let Some((prefix, rest)) = data.split_first_chunk() {
        let prefix = u32::from_le_bytes(*prefix);
        let (block, rest) = rest.split_at((prefix & 0x7FFF_FFFF) as usize);
        let expected = (header.original_size as usize - content.len()).min(PIECE);
        match prefix >> 31 {
            0 => content.extend(lz4_flex::block::decompress(block, expected).expect("LZ4")),
            _ => content.extend(block),
        }
        data = rest;
    }
    content
}

/// Runs of one byte, and noise, in any order.
fn any_content() -> impl Strategy<Value = Vec<u8>> {
    let run = (any::<u8>(), 1..40_000usize).prop_map(|(byte, len)| vec![byte; len]);
    let noisy =
        (0..100usize, 1..40_000usize).prop_map(|(skip, len)| noise(skip + len)[skip..].to_vec());
    proptest::collection::vec(prop_oneof![run, noisy], 1..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_content_round_trips(content in any_content()) {
        let geometry = logical(u32::try_from(content.len()).expect("small"));
        let mut encoder = Encoder::new(geometry, Checksum::Crc32c);
        let stored = encoder.encode(&content, PLACE).expect("any content");
        let (header, verdict) = inspect(stored, geometry, PLACE).expect("whole");
        prop_assert_eq!(verdict, Verdict::Bound);
        prop_assert!(decode(stored, header) == content);
    }

    #[test]
    fn inspection_of_any_bytes_does_not_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
        plausible in any::<Option<u16>>(),
    ) {
        let size = u32::try_from(bytes.len()).expect("small");
        if let (Some(compressed), Some(header)) = (plausible, bytes.first_chunk_mut()) {
            *header = Header {
                original_size: size,
                compressed_size: u32::from(compressed) % 400,
            }
            .emit();
        }
        // No panic, and no size out of bounds.
        if let Ok((header, _)) = inspect(&bytes, Geometry::compatible(size), PLACE) {
            prop_assert_eq!(header.original_size, size);
            prop_assert!(data_range(header).end <= bytes.len() - Trailer::SIZE);
        }
    }
}

fn data_range(header: Header) -> std::ops::Range<usize> {
    Header::SIZE..Header::SIZE + header.compressed_size as usize
}
