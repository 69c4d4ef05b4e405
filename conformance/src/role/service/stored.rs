//! Stored blocks of gga_offload: parsed and generated from the documented layout, without the service's code.

use lz4_flex::block::{compress, decompress};

use super::BLOCK;
use crate::role::Violation;

/// Size of a half block in bytes.
pub(super) const HALF: usize = BLOCK / 2;

/// Bytes before and after the LZ4 data blocks.
const HEADER: usize = 8;
const TRAILER: usize = 4;
/// Highest bit of a data block's length: its data is stored uncompressed.
const RAW: u32 = 1 << 31;
/// Maximum size of a data block's content in bytes.
const PIECE: usize = 64 * 1024;

fn word(bytes: &[u8], at: usize) -> Result<[u8; 4], Violation> {
    bytes
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| Violation::expected(format!("four bytes at {at}"), "the end"))
}

/// XOR difference between the trailer of a block with this number and the block's CRC-32C, on targets without superblocks.
fn mask(block: usize) -> u32 {
    let mut mask = !(block as u32);
    for (shift, factor) in [(16, 0x85EB_CA6B), (13, 0xC2B2_AE35)] {
        mask ^= mask >> shift;
        mask = mask.wrapping_mul(factor);
    }
    mask ^ mask >> 16
}

/// Encodes a stored block with this number. The content must compress to one data block.
pub(super) fn encode(content: &[u8], block: usize, checksum: bool) -> Vec<u8> {
    let data = compress(content);
    let mut stored = Vec::with_capacity(BLOCK);
    stored.extend((content.len() as u32).to_be_bytes());
    stored.extend((data.len() as u32 + 4).to_be_bytes());
    stored.extend((data.len() as u32).to_le_bytes());
    stored.extend(data);
    stored.resize(BLOCK - TRAILER, 0);
    let trailer = if checksum {
        (crc32c::crc32c(&stored) ^ mask(block)).max(1)
    } else {
        0
    };
    stored.extend(trailer.to_be_bytes());
    stored
}

/// Decodes the stored block with this number, and checks every byte of it.
pub(super) fn decode(stored: &[u8], block: usize) -> Result<Vec<u8>, Violation> {
    let original = u32::from_be_bytes(word(stored, 0)?) as usize;
    Violation::unless(
        original == BLOCK,
        format!("an original size of {BLOCK}"),
        original,
    )?;
    let length = u32::from_be_bytes(word(stored, 4)?) as usize;
    let room = stored.len() - HEADER - TRAILER;
    Violation::unless(
        (4..=room).contains(&length),
        format!("4 to {room} bytes of LZ4 data"),
        length,
    )?;
    let end = HEADER + length;
    let mut content = Vec::new();
    let mut at = HEADER;
    while at < end {
        let size = u32::from_le_bytes(word(stored, at)?);
        at += 4;
        let bytes = (size & !RAW) as usize;
        Violation::unless(
            at + bytes <= end,
            format!("a data block of at most {} bytes", end - at),
            bytes,
        )?;
        let data = &stored[at..at + bytes];
        at += bytes;
        if size & RAW != 0 {
            content.extend(data);
        } else {
            let left = BLOCK.saturating_sub(content.len()).min(PIECE);
            let piece = decompress(data, left)
                .map_err(|error| Violation::expected("an LZ4 data block", error))?;
            content.extend(piece);
        }
    }
    Violation::unless(
        content.len() == BLOCK,
        format!("{BLOCK} bytes of content"),
        content.len(),
    )?;
    let padding = &stored[end..stored.len() - TRAILER];
    Violation::unless(
        padding.iter().all(|byte| *byte == 0),
        "zeros between the data blocks and the trailer",
        "others",
    )?;
    let trailer = u32::from_be_bytes(word(stored, stored.len() - TRAILER)?);
    let crc = crc32c::crc32c(&stored[..stored.len() - TRAILER]);
    let checksum = (crc ^ mask(block)).max(1);
    Violation::unless(
        [0, checksum, crc.max(1)].contains(&trailer),
        format!("a trailer of 0, {checksum:#010x} or, of an earlier version, {crc:#010x}"),
        format!("{trailer:#010x}"),
    )?;
    Ok(content)
}

/// Chunks of these stored blocks on data_1, data_2 and data_p; the parity is their XOR, as for a Vandermonde matrix.
pub(super) fn halves(blocks: &[Vec<u8>]) -> [Vec<u8>; 3] {
    let mut halves: [Vec<u8>; 3] = Default::default();
    for block in blocks {
        let (first, second) = block.split_at(HALF);
        halves[0].extend(first);
        halves[1].extend(second);
        halves[2].extend(first.iter().zip(second).map(|(a, b)| a ^ b));
    }
    halves
}

/// Joins the chunks of three targets to stored blocks, and checks their parity.
pub(super) fn stored_blocks(held: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Violation> {
    let [data_1, data_2, data_p] = held else {
        return Err(Violation::expected("three targets", held.len()));
    };
    let blocks: Vec<_> = data_1
        .chunks(HALF)
        .zip(data_2.chunks(HALF))
        .map(|(first, second)| [first, second].concat())
        .collect();
    let parity = halves(&blocks)[2].clone();
    let wrong = parity.iter().zip(data_p).position(|(a, b)| a != b);
    match wrong {
        None => Ok(blocks),
        Some(at) => Err(Violation::expected(
            "the exclusive or of both halves on data_p",
            format!("another byte at {at}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailer_is_bound_to_the_number_of_the_block() {
        assert_eq!((mask(0), mask(5)), (0x81f16f39, 0xc24094c8));
        let content = vec![7; BLOCK];
        let stored = encode(&content, 5, true);
        assert_eq!(decode(&stored, 5).ok(), Some(content));
        assert!(decode(&stored, 6).is_err());
        assert!(decode(&encode(&vec![7; BLOCK], 5, false), 6).is_ok());
    }
}
