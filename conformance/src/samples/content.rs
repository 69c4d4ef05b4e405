//! What is in the files that samples read, and what must be in those that they write. Nothing of it comes from the
//! implementation under test.

use std::io::{self, Read as _, Write as _};

use flate2::Compression;
use flate2::read::{DeflateDecoder, ZlibDecoder};
use flate2::write::{DeflateEncoder, ZlibEncoder};
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

/// Content that is the same at every call.
#[derive(Debug, Clone)]
pub enum Content {
    /// So many bytes that compress well.
    Prose(usize),
    /// So many bytes that do not compress.
    Noise(usize),
    /// Other content, encoded.
    Encoded(Stream, Box<Content>),
}

/// How bytes are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Deflate without anything around it.
    Deflate,
    /// Deflate with zlib's header and Adler-32.
    Zlib,
    /// A whole LZ4 frame.
    Lz4Frame(Lz4),
    /// The data blocks of an LZ4 frame, without its header and without the end mark and what follows.
    Lz4Blocks(Lz4),
}

/// Options of an LZ4 frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lz4 {
    /// Blocks do not refer to earlier ones.
    pub independent: bool,
    /// Each block is followed by a checksum.
    pub block_checksums: bool,
    /// The frame ends with a checksum of the content.
    pub content_checksum: bool,
}

/// Sizes of an LZ4 frame's parts: magic, flags, block descriptor, checksum of the header; and the end mark.
const LZ4_HEADER: usize = 4 + 1 + 1 + 1;
const LZ4_END_MARK: usize = 4;
const LZ4_CONTENT_CHECKSUM: usize = 4;

impl Content {
    /// This content, encoded.
    pub(super) fn encoded(&self, stream: Stream) -> Self {
        Self::Encoded(stream, Box::new(self.clone()))
    }

    /// The bytes.
    ///
    /// # Errors
    ///
    /// An encoder refuses.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Prose(len) => Ok(prose(*len)),
            Self::Noise(len) => Ok(noise(*len)),
            Self::Encoded(stream, content) => stream.encode(&content.bytes()?),
        }
    }
}

impl Stream {
    fn encode(self, plain: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Deflate => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(plain)?;
                encoder.finish()
            }
            Self::Zlib => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(plain)?;
                encoder.finish()
            }
            Self::Lz4Frame(options) => options.frame(plain),
            Self::Lz4Blocks(options) => {
                let frame = options.frame(plain)?;
                let mut end = frame.len() - LZ4_END_MARK;
                if options.content_checksum {
                    end -= LZ4_CONTENT_CHECKSUM;
                }
                Ok(frame[LZ4_HEADER..end].to_vec())
            }
        }
    }

    /// What these bytes stand for.
    ///
    /// # Errors
    ///
    /// They are no such stream, or more than one. LZ4 is not decoded: no sample writes it.
    pub fn decode(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        let used = match self {
            Self::Deflate => {
                let mut decoder = DeflateDecoder::new(bytes);
                decoder.read_to_end(&mut plain)?;
                decoder.total_in()
            }
            Self::Zlib => {
                let mut decoder = ZlibDecoder::new(bytes);
                decoder.read_to_end(&mut plain)?;
                decoder.total_in()
            }
            Self::Lz4Frame(_) | Self::Lz4Blocks(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "LZ4 is not decoded here",
                ));
            }
        };
        if used != bytes.len() as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the stream ends after {used} bytes, but there are {}",
                    bytes.len()
                ),
            ));
        }
        Ok(plain)
    }
}

impl Lz4 {
    fn frame(self, plain: &[u8]) -> io::Result<Vec<u8>> {
        let mode = if self.independent {
            BlockMode::Independent
        } else {
            BlockMode::Linked
        };
        let info = FrameInfo::new()
            .block_mode(mode)
            .block_size(BlockSize::Max64KB)
            .block_checksums(self.block_checksums)
            .content_checksum(self.content_checksum);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(plain)?;
        encoder.finish().map_err(io::Error::other)
    }
}

/// The two checksums of a deflate sample in its one number: Adler-32 above, CRC-32 below.
pub(super) fn deflate_checksum(plain: &[u8]) -> u64 {
    u64::from(simd_adler32::adler32(&plain)) << 32 | u64::from(crc32(plain))
}

/// CRC-32 of zlib.
pub(super) fn crc32(plain: &[u8]) -> u32 {
    crc32fast::hash(plain)
}

/// XXH32 without seed, as LZ4 frames use it.
pub(super) fn xxh32(plain: &[u8]) -> u32 {
    twox_hash::XxHash32::oneshot(0, plain)
}

/// Lines that are alike, but none twice.
fn prose(len: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(len + 64);
    let mut line = 0_u64;
    while text.len() < len {
        let square = line * line;
        text.extend_from_slice(
            format!("line {line}: the square of {line} is {square}\n").as_bytes(),
        );
        line += 1;
    }
    text.truncate(len);
    text
}

/// Bytes of a xorshift generator: every run gets the same.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.flat_map(u64::to_le_bytes).take(len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_read_back() {
        for content in [
            Content::Prose(100_000),
            Content::Noise(1000),
            Content::Prose(0),
        ] {
            let plain = content.bytes().expect("content");
            for stream in [Stream::Deflate, Stream::Zlib] {
                let encoded = content.encoded(stream).bytes().expect("a stream");
                assert_eq!(stream.decode(&encoded).expect("decodes"), plain);
                let longer = [&encoded[..], b"more"].concat();
                assert!(stream.decode(&longer).is_err(), "{stream:?} with a tail");
                assert!(
                    stream.decode(&encoded[..encoded.len() - 1]).is_err(),
                    "{stream:?} without its end"
                );
            }
        }
    }

    /// The blocks alone: sizes that lead from one to the next and to the end.
    #[test]
    fn blocks_are_cut_out_of_the_frame() {
        for content_checksum in [false, true] {
            for block_checksums in [false, true] {
                let options = Lz4 {
                    independent: true,
                    block_checksums,
                    content_checksum,
                };
                let content = Content::Prose(200_000).encoded(Stream::Lz4Blocks(options));
                let blocks = content.bytes().expect("blocks");
                let mut rest = &blocks[..];
                let mut count = 0;
                while let Some((size, after)) = rest.split_first_chunk() {
                    let size = (u32::from_le_bytes(*size) & 0x7FFF_FFFF) as usize;
                    assert!(size > 0, "an end mark was left in");
                    rest = &after[size + 4 * usize::from(block_checksums)..];
                    count += 1;
                }
                assert_eq!((count, rest.len()), (4, 0));
            }
        }
    }

    #[test]
    fn checksums_are_the_published_ones() {
        assert_eq!(deflate_checksum(b"123456789"), 0x091E_01DE_CBF4_3926);
        assert_eq!(xxh32(b"abc"), 0x32D1_53FF);
        assert_eq!(crc32(b""), 0);
    }
}
