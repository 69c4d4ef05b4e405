//! LZ4 decompression: streams of blocks as they are inside an LZ4 frame, and single blocks.
//!
//! A stream is what is left of a frame without its header, end mark and content checksum: blocks, each a little-endian u32
//! (bit 31: the block is stored as it is; the rest: its length in bytes), the bytes, and, if the frame says so, the
//! little-endian xxHash-32 of these bytes. A block decompresses to at most 4 MiB.

use lz4_flex::block::{DecompressError, decompress_into, decompress_into_with_dict};

use super::checksum::xxh32;
use crate::error::{Error, Result};

/// What a frame's header says about its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFormat {
    /// A checksum follows each block.
    pub block_checksums: bool,
    /// No block refers to bytes of the blocks before it.
    pub independent_blocks: bool,
}

/// The most that one block of a frame decompresses to.
const LARGEST_BLOCK: usize = 4 << 20;
/// The most that most writers put into a block.
const USUAL_BLOCK: usize = 64 << 10;
/// How far back a block refers to earlier ones.
const WINDOW: usize = 64 << 10;
const STORED: u32 = 1 << 31;

/// Decompresses; keeps its working memory for the next time.
#[derive(Debug, Default)]
pub struct Decompressor {
    block: Vec<u8>,
    /// The last bytes that were decompressed, when blocks depend on each other.
    window: Vec<u8>,
}

impl Decompressor {
    /// Decompresses a stream and hands the data to `sink`, piece by piece and `room` bytes at most; says how many they are.
    ///
    /// # Errors
    /// [`Error::IoFailed`] when the stream is malformed, a block's checksum is wrong, or the data is longer than `room`; the
    /// sink's errors. The sink may have got data by then.
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
            let header = take_u32(&mut rest).ok_or_else(|| failed("its header is cut off"))?;
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
                    take_u32(&mut rest).ok_or_else(|| failed("its checksum is cut off"))?;
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

    /// Decompresses one block, given without its header, and hands the data to `sink`, `room` bytes at most; says how many
    /// they are.
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

    /// Decompresses a block of at most `limit` bytes of data into the beginning of `self.block`.
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
            // Not more than the limit, even when an earlier block needed more.
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
                    return Err("it is cut off");
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

#[cfg(test)]
mod tests;
