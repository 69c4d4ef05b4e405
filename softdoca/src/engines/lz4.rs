//! LZ4 decompression: the block stream inside an LZ4 frame, and single blocks.
//!
//! A stream is a frame without its header, end mark and content checksum: blocks, each a little-endian u32 (bit 31: the
//! block is stored uncompressed; the rest: its length in bytes), the bytes, and, if enabled in the frame header, the
//! little-endian xxHash-32 of these bytes. A block decompresses to at most 4 MiB.

use lz4_flex::block::{DecompressError, decompress_into, decompress_into_with_dict};

use crate::error::{Error, Result};
use std::hash::Hasher as _;
use twox_hash::XxHash32;

/// Block format declared by a frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFormat {
    /// A checksum follows each block.
    pub block_checksums: bool,
    /// `true` if no block refers to data of earlier blocks.
    pub independent_blocks: bool,
}

/// Largest decompressed size of a block of a frame, in bytes.
const LARGEST_BLOCK: usize = 4 << 20;
/// Decompressed block size that most encoders use, in bytes.
const USUAL_BLOCK: usize = 64 << 10;
/// Distance up to which a block may refer to earlier ones, in bytes.
const WINDOW: usize = 64 << 10;
const STORED: u32 = 1 << 31;

/// Decompresses; working memory is kept for reuse.
#[derive(Debug, Default)]
pub struct Decompressor {
    block: Vec<u8>,
    /// The last decompressed bytes, if blocks depend on each other.
    window: Vec<u8>,
}

impl Decompressor {
    /// Decompresses a stream and passes the data to `sink` in pieces, at most `room` bytes. Returns their number.
    ///
    /// # Errors
    /// [`Error::IoFailed`] if the stream is malformed, a block's checksum is wrong, or the data exceeds `room`; the
    /// sink's errors. The sink may have received data by then.
    pub fn stream(
        &mut self,
        source: &[u8],
        format: StreamFormat,
        room: usize,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<usize> {
        self.window.clear();
        let mut done = 0;
        let mut rest = source;
        while !rest.is_empty() {
            let at = source.len() - rest.len();
            let failed = |reason: &str| {
                Error::IoFailed.because(format_args!(
                    "LZ4 block at byte {at} of {}: {reason}",
                    source.len()
                ))
            };
            let header = take_u32(&mut rest).ok_or_else(|| failed("its header is truncated"))?;
            let len = (header & !STORED) as usize;
            if len == 0 {
                return Err(failed(
                    "it is empty; a stream is given without its end mark",
                ));
            }
            let (block, after) = rest
                .split_at_checked(len)
                .ok_or_else(|| failed("it is longer than the stream"))?;
            rest = after;
            if format.block_checksums {
                let checksum =
                    take_u32(&mut rest).ok_or_else(|| failed("its checksum is truncated"))?;
                if checksum != xxh32(block) {
                    return Err(failed("its checksum is wrong"));
                }
            }
            let left = room - done;
            let data = if header & STORED != 0 {
                if len > left.min(LARGEST_BLOCK) {
                    return Err(failed(TOO_LONG));
                }
                block
            } else {
                let len = self.block(block, left.min(LARGEST_BLOCK), !format.independent_blocks);
                &self.block[..len.map_err(failed)?]
            };
            sink(data)?;
            done += data.len();
            if !format.independent_blocks {
                remember(&mut self.window, data);
            }
        }
        Ok(done)
    }

    /// Decompresses one block, given without its header, and passes the data to `sink`, at most `room` bytes. Returns
    /// their number.
    ///
    /// # Errors
    /// As [`stream`](Self::stream).
    pub fn single_block(
        &mut self,
        source: &[u8],
        room: usize,
        sink: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<usize> {
        self.window.clear();
        let len = self
            .block(source, room, false)
            .map_err(|reason| Error::IoFailed.because(format_args!("LZ4 block: {reason}")))?;
        sink(&self.block[..len])?;
        Ok(len)
    }

    /// Decompresses a block of at most `limit` bytes of data to the start of `self.block`.
    fn block(
        &mut self,
        source: &[u8],
        limit: usize,
        with_window: bool,
    ) -> std::result::Result<usize, &'static str> {
        let mut room = limit.min(self.block.len().max(USUAL_BLOCK));
        loop {
            if self.block.len() < room {
                self.block.resize(room, 0);
            }
            // The buffer may exceed the limit, because of an earlier block.
            let output = &mut self.block[..room];
            let result = if with_window {
                decompress_into_with_dict(source, output, &self.window)
            } else {
                decompress_into(source, output)
            };
            match result {
                Ok(len) => return Ok(len),
                Err(DecompressError::OutputTooSmall { .. }) if room < limit => {
                    room = limit.min(room.saturating_mul(4));
                }
                Err(DecompressError::OutputTooSmall { .. }) => return Err(TOO_LONG),
                Err(DecompressError::LiteralOutOfBounds | DecompressError::ExpectedAnotherByte) => {
                    return Err("it is truncated");
                }
                Err(DecompressError::OffsetZero | DecompressError::OffsetOutOfBounds) => {
                    return Err("it refers to bytes that do not exist");
                }
                Err(_) => return Err("it is malformed"),
            }
        }
    }
}

const TOO_LONG: &str = "its data is longer than the destination, or than a block can be";

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*word))
}

fn remember(window: &mut Vec<u8>, data: &[u8]) {
    let data = &data[data.len().saturating_sub(WINDOW)..];
    let keep = window.len().min(WINDOW - data.len());
    window.drain(..window.len() - keep);
    window.extend_from_slice(data);
}

/// Running checksums of LZ4-decompressed data.
#[derive(Clone, Debug)]
pub struct Lz4Checksums {
    crc32: crc32fast::Hasher,
    xxh32: XxHash32,
}

impl Default for Lz4Checksums {
    fn default() -> Self {
        Self {
            crc32: crc32fast::Hasher::new(),
            xxh32: XxHash32::with_seed(0),
        }
    }
}

impl Lz4Checksums {
    pub fn update(&mut self, data: &[u8]) {
        self.crc32.update(data);
        self.xxh32.write(data);
    }

    /// CRC-32 as in zlib and gzip (reflected polynomial 0xedb88320).
    pub fn crc32(&self) -> u32 {
        self.crc32.clone().finalize()
    }

    /// xxHash-32 with seed 0, as the content checksum of LZ4 frames.
    pub fn xxh32(&self) -> u32 {
        self.xxh32.finish_32()
    }
}

/// xxHash-32 of a compressed block, as the block checksum of LZ4 frames.
pub fn xxh32(data: &[u8]) -> u32 {
    XxHash32::oneshot(0, data)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    use proptest::prelude::*;

    use super::*;

    const PLAIN: StreamFormat = StreamFormat {
        block_checksums: false,
        independent_blocks: true,
    };

    /// Compressible text without repeated lines.
    fn text(len: usize) -> Vec<u8> {
        (0u32..)
            .flat_map(|line| format!("line {} of {}\n", line, line % 97).into_bytes())
            .take(len)
            .collect()
    }

    /// The blocks of a frame written by an independent encoder, which uses the shortest header of 7 bytes.
    fn stream(data: &[u8], format: StreamFormat, size: BlockSize) -> Vec<u8> {
        let mode = if format.independent_blocks {
            BlockMode::Independent
        } else {
            BlockMode::Linked
        };
        let info = FrameInfo::new()
            .block_mode(mode)
            .block_size(size)
            .block_checksums(format.block_checksums)
            .content_checksum(false);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(data).unwrap();
        let frame = encoder.finish().unwrap();
        frame[7..frame.len() - 4].to_vec()
    }

    fn decode(source: &[u8], format: StreamFormat, room: usize) -> Result<Vec<u8>> {
        let mut output = Vec::new();
        let done = Decompressor::default().stream(source, format, room, |data| {
            output.extend_from_slice(data);
            Ok(())
        })?;
        assert_eq!(done, output.len());
        Ok(output)
    }

    #[test]
    fn streams_of_every_format_are_decompressed() {
        let mixed = [text(100_000), contents::noise(1, 150_000), text(70_000)].concat();
        for (block_checksums, independent_blocks) in
            [(false, true), (true, true), (false, false), (true, false)]
        {
            let format = StreamFormat {
                block_checksums,
                independent_blocks,
            };
            for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max4MB] {
                for data in [&mixed[..], &mixed[..1], &mixed[..65_536], &mixed[..65_537]] {
                    let source = stream(data, format, size);
                    assert!(
                        decode(&source, format, data.len()).unwrap() == data,
                        "{format:?}"
                    );
                }
            }
        }
        assert_eq!(decode(&[], PLAIN, 0), Ok(Vec::new()));
    }

    #[test]
    fn a_decompressor_can_be_used_again() {
        let mut decompressor = Decompressor::default();
        let large = text(3 << 20);
        for data in [&large[..], &large[..10], &contents::noise(1, 100_000)] {
            let source = stream(data, PLAIN, BlockSize::Max4MB);
            let mut output = Vec::new();
            let mut sink = |piece: &[u8]| {
                output.extend_from_slice(piece);
                Ok(())
            };
            decompressor
                .stream(&source, PLAIN, data.len(), &mut sink)
                .unwrap();
            assert!(output == data);
        }
    }

    #[test]
    fn data_that_does_not_fit_is_refused() {
        for data in [text(200_000), contents::noise(1, 200_000), text(100)] {
            let source = stream(&data, PLAIN, BlockSize::Max64KB);
            for room in [0, 1, 63, data.len() / 2, data.len() - 1] {
                let mut got = 0;
                let result = Decompressor::default().stream(&source, PLAIN, room, |data| {
                    got += data.len();
                    Ok(())
                });
                assert_eq!(result, Err(Error::IoFailed));
                assert!(got <= room);
            }
        }
    }

    #[test]
    fn malformed_streams_are_refused() {
        let source = stream(&text(1000), PLAIN, BlockSize::Max64KB);
        for len in 1..source.len() {
            assert_eq!(
                decode(&source[..len], PLAIN, 2000),
                Err(Error::IoFailed),
                "{len}"
            );
        }
        let with_end_mark = [&source[..], &[0; 4]].concat();
        assert_eq!(decode(&with_end_mark, PLAIN, 2000), Err(Error::IoFailed));
        let checked = StreamFormat {
            block_checksums: true,
            ..PLAIN
        };
        let mut source = stream(&text(1000), checked, BlockSize::Max64KB);
        *source.last_mut().unwrap() ^= 1;
        assert_eq!(decode(&source, checked, 2000), Err(Error::IoFailed));
        // A match at the very start has no earlier data to refer to.
        let source = [&[5u8, 0, 0, 0][..], &[0x00, 1, 0, 0x10, 7]].concat();
        assert_eq!(decode(&source, PLAIN, 2000), Err(Error::IoFailed));
    }

    #[test]
    fn the_sink_can_refuse() {
        let source = stream(&text(10), PLAIN, BlockSize::Max64KB);
        let result =
            Decompressor::default().stream(&source, PLAIN, 10, |_| Err(Error::ConnectionReset));
        assert_eq!(result, Err(Error::ConnectionReset));
    }

    #[test]
    fn single_blocks() {
        let data = text(5 << 20);
        let source = lz4_flex::block::compress(&data);
        let mut output = Vec::new();
        let mut decompressor = Decompressor::default();
        let done = decompressor
            .single_block(&source, data.len(), |block| {
                output.extend_from_slice(block);
                Ok(())
            })
            .unwrap();
        assert!(output == data && done == data.len());
        let short = decompressor.single_block(&source, data.len() - 1, |_| Ok(()));
        assert_eq!(short, Err(Error::IoFailed));
        let cut = decompressor.single_block(&source[..9], data.len(), |_| Ok(()));
        assert_eq!(cut, Err(Error::IoFailed));
    }

    proptest! {
        #[test]
        fn arbitrary_sources_stay_within_the_limit(
            source in proptest::collection::vec(any::<u8>(), 0..300),
            first in 0u32..300,
            room in 0usize..500,
            block_checksums: bool,
            independent_blocks: bool,
        ) {
            let format = StreamFormat { block_checksums, independent_blocks };
            let source = [&first.to_le_bytes()[..], &source].concat();
            if let Ok(data) = decode(&source, format, room) {
                prop_assert!(data.len() <= room);
            }
        }
    }

    /// Check values from the specifications of the algorithms and from the tests of zlib and xxHash.
    #[test]
    fn known_values() {
        let digits = b"123456789";
        let mut lz4 = Lz4Checksums::default();
        assert_eq!((lz4.crc32(), lz4.xxh32()), (0, 0x02cc_5d05));
        digits.chunks(2).for_each(|part| lz4.update(part));
        assert_eq!((lz4.crc32(), lz4.xxh32()), (0xcbf4_3926, 0x937b_ad67));
        assert_eq!(xxh32(digits), 0x937b_ad67);
    }
}
