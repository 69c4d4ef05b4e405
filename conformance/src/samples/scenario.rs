//! Description of a run of one sample, or of several that communicate, as data.
//!
//! Paths and arguments may contain `{dir}`, the party's own directory, `{shared}`, the parent of all parties'
//! directories (`{shared}/sender` is the sender's), and `{port}`, a free TCP port.

use std::io;
use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::{DeflateDecoder, ZlibDecoder};
use flate2::write::{DeflateEncoder, ZlibEncoder};
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

/// A set of cooperating processes.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Unique name: the sample, or the main one of a pair, followed by a colon and the variant.
    pub name: String,
    /// Directory of the samples, such as `doca_rdma`.
    pub library: &'static str,
    /// Initial files.
    pub inputs: Vec<Input>,
    /// Processes in polling order; each starts when its conditions hold.
    pub parties: Vec<Party>,
    /// Conditions after all parties have exited.
    pub checks: Vec<Check>,
}

/// An input file of a sample.
#[derive(Debug, Clone)]
pub struct Input {
    /// Path of the file. `{dir}` is replaced by the directory of the first party, `{shared}` by the common one.
    pub path: String,
    pub content: Content,
}

/// One process.
#[derive(Debug, Clone)]
pub struct Party {
    /// Name of the party and of its directory.
    pub name: String,
    /// Sample to run, without a prefix: `rdma_send`.
    pub sample: &'static str,
    /// The build of the sample.
    pub side: Side,
    /// Command line.
    pub arguments: Vec<String>,
    /// Events that must have occurred before the party starts.
    pub starts: Vec<Event>,
    /// Steps executed directly before the party starts.
    pub before: Vec<Step>,
    /// Prompts and answers, in order.
    pub replies: Vec<Reply>,
    /// Texts that its output must contain.
    pub says: Vec<Said>,
    /// `true` if the sample logs errors on purpose.
    pub shows_errors: bool,
}

/// Build of a sample: a few differ between host and DPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Any,
    Host,
    Dpu,
}

/// A fragment of a line, and its minimum number of occurrences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Fragment of a line.
    pub text: String,
    /// Minimum number of lines that contain the text.
    pub times: usize,
}

/// An event of a party.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The party has written this text.
    Says(String, Said),
    /// The party has written output, and then no more for a while: for prompts without a text.
    Rests(String),
    /// The party has exited with success.
    Ends(String),
}

/// A prompt and the answer, which is Enter for all samples.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Fragment of the prompt line.
    pub prompt: String,
    /// Events that must have occurred before the answer.
    pub when: Vec<Event>,
    /// Steps of the user before pressing Enter.
    pub steps: Vec<Step>,
}

/// A user's file operation.
#[derive(Debug, Clone)]
pub enum Step {
    /// Copies a file. `{dir}` and `{shared}` are replaced in both paths.
    Copy { from: String, to: String },
    /// Deletes a file, which must exist.
    Remove(String),
}

/// A check of the results.
#[derive(Debug, Clone)]
pub enum Check {
    /// A file has exactly these contents.
    File { path: String, content: Content },
    /// An independent decoder decodes the file to these contents.
    Decodes {
        path: String,
        stream: Stream,
        /// Expected content of the decoded stream.
        content: Content,
    },
}

impl Scenario {
    pub(super) fn new(library: &'static str, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            library,
            inputs: Vec::new(),
            parties: Vec::new(),
            checks: Vec::new(),
        }
    }

    pub(super) fn input(mut self, path: impl Into<String>, content: Content) -> Self {
        let path = path.into();
        self.inputs.push(Input { path, content });
        self
    }

    pub(super) fn party(mut self, party: Party) -> Self {
        self.parties.push(party);
        self
    }

    pub(super) fn check(mut self, check: Check) -> Self {
        self.checks.push(check);
        self
    }

    /// Samples of the scenario, each once.
    pub fn samples(&self) -> Vec<&'static str> {
        let mut samples = Vec::new();
        for party in &self.parties {
            if !samples.contains(&party.sample) {
                samples.push(party.sample);
            }
        }
        samples
    }

    /// Returns `true` if `--only` selects this scenario: by its name, one of its samples, or their directory.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.library == name || self.samples().contains(&name)
    }
}

/// Last line of every sample's output.
const FAREWELL: &str = "Sample finished successfully";

impl Party {
    pub(super) fn new(name: impl Into<String>, sample: &'static str) -> Self {
        Self {
            name: name.into(),
            sample,
            side: Side::Any,
            arguments: Vec::new(),
            starts: Vec::new(),
            before: Vec::new(),
            replies: Vec::new(),
            says: vec![Said::once(FAREWELL)],
            shows_errors: false,
        }
    }

    pub(super) fn on(mut self, side: Side) -> Self {
        self.side = side;
        self
    }

    pub(super) fn arguments<A: Into<String>>(
        mut self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub(super) fn starts_when(mut self, event: Event) -> Self {
        self.starts.push(event);
        self
    }

    pub(super) fn before(mut self, step: Step) -> Self {
        self.before.push(step);
        self
    }

    pub(super) fn reply(mut self, reply: Reply) -> Self {
        self.replies.push(reply);
        self
    }

    pub(super) fn says(self, text: impl Into<String>) -> Self {
        self.says_times(text, 1)
    }

    pub(super) fn says_times(mut self, text: impl Into<String>, times: usize) -> Self {
        let text = text.into();
        self.says.push(Said { text, times });
        self
    }

    pub(super) fn shows_errors(mut self) -> Self {
        self.shows_errors = true;
        self
    }
}

impl Said {
    pub(super) fn once(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { text, times: 1 }
    }

    /// Returns `true` if enough of these lines contain the text.
    pub fn is_in<'l>(&self, lines: impl IntoIterator<Item = &'l str>) -> bool {
        let lines = lines.into_iter();
        lines.filter(|line| line.contains(&self.text)).count() >= self.times
    }
}

impl Event {
    pub(super) fn says(party: impl Into<String>, text: impl Into<String>) -> Self {
        Self::says_times(party, text, 1)
    }

    pub(super) fn says_times(
        party: impl Into<String>,
        text: impl Into<String>,
        times: usize,
    ) -> Self {
        let text = text.into();
        Self::Says(party.into(), Said { text, times })
    }

    pub(super) fn rests(party: impl Into<String>) -> Self {
        Self::Rests(party.into())
    }

    pub(super) fn ends(party: impl Into<String>) -> Self {
        Self::Ends(party.into())
    }

    pub fn party(&self) -> &str {
        match self {
            Self::Says(party, _) | Self::Rests(party) | Self::Ends(party) => party,
        }
    }
}

impl Reply {
    /// Creates an answer to a prompt with this fragment.
    pub(super) fn to(prompt: impl Into<String>) -> Self {
        Self {
            prompt: prompt.into(),
            when: Vec::new(),
            steps: Vec::new(),
        }
    }

    pub(super) fn when(mut self, event: Event) -> Self {
        self.when.push(event);
        self
    }

    pub(super) fn copy(mut self, from: impl Into<String>, to: impl Into<String>) -> Self {
        self.steps.push(Step::copy(from, to));
        self
    }
}

impl Step {
    pub(super) fn copy(from: impl Into<String>, to: impl Into<String>) -> Self {
        Self::Copy {
            from: from.into(),
            to: to.into(),
        }
    }
}

// Contents of the files that samples read and write, generated independently of the implementation under test.

/// Generated contents, the same at every call.
#[derive(Debug, Clone)]
pub enum Content {
    /// This many compressible bytes.
    Prose(usize),
    /// This many incompressible bytes.
    Noise(usize),
    Encoded(Stream, Box<Content>),
}

/// Format of compressed data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Raw deflate.
    Deflate,
    /// Deflate with zlib's header and Adler-32.
    Zlib,
    /// A complete LZ4 frame.
    Lz4Frame(Lz4),
    /// The data blocks of an LZ4 frame, without its header, end mark and checksum.
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

/// Size of an LZ4 frame's header (magic, flags, block descriptor, checksum), and of its end mark, in bytes.
const LZ4_HEADER: usize = 4 + 1 + 1 + 1;
const LZ4_END_MARK: usize = 4;
const LZ4_CONTENT_CHECKSUM: usize = 4;

impl Content {
    pub(super) fn encoded(&self, stream: Stream) -> Self {
        Self::Encoded(stream, Box::new(self.clone()))
    }

    /// Generates the bytes.
    ///
    /// # Errors
    ///
    /// An encoder has failed.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Prose(len) => Ok(prose(*len)),
            Self::Noise(len) => Ok(contents::noise(1, *len)),
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

    /// Decodes a stream.
    ///
    /// # Errors
    ///
    /// The bytes are not exactly one stream of this format. LZ4 is not decoded, because no sample writes it.
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

/// Adler-32 in the upper half and CRC-32 in the lower, as deflate samples combine them.
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

/// Similar but unique lines.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_round_trip() {
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

    /// The blocks alone: the size of each gives the position of the next one.
    #[test]
    fn raw_blocks_are_extracted_from_the_frame() {
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
    fn checksums_match_published_values() {
        assert_eq!(deflate_checksum(b"123456789"), 0x091E_01DE_CBF4_3926);
        assert_eq!(xxh32(b"abc"), 0x32D1_53FF);
        assert_eq!(crc32(b""), 0);
    }
}
