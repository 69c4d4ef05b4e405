//! Transcripts as files: magic bytes, then prost messages with length prefixes.

use std::fs::File;
use std::io;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use bytes::{Bytes, BytesMut};
use prost::Message as _;
use wire::control::Message;
use wire::recording::transcript as recorded;

use super::{Entry, Event, Frame, Header, InvalidEntry, Role};

/// First bytes of a transcript file.
pub const MAGIC: [u8; 8] = *b"DOCA-TRN";
/// Version of the schema.
pub const VERSION: u32 = 1;
/// Maximum size of an entry in bytes: twice that of a frame, with a margin.
pub const MAX_ENTRY: u64 = 1 << 20;

/// Error of reading a transcript.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not a transcript.
    #[error("expected a transcript, which begins with \"DOCA-TRN\"; the file begins with \"{0}\"")]
    Magic(String),
    /// The file has another version.
    #[error(
        "expected a transcript of version {VERSION}, got {0}; read it with the program that wrote it"
    )]
    Version(u32),
    /// The file ends within an entry.
    #[error(
        "truncated: {what} ends after {came} of {expected} bytes; its recorder was killed, or the file was cut"
    )]
    Truncated {
        what: Part,
        /// Size in bytes according to its length prefix.
        expected: u64,
        /// Remaining size in bytes.
        came: u64,
    },
    /// An entry, or the header, is malformed.
    #[error("{what}: {reason}")]
    Damaged { what: Part, reason: Damage },
}

/// A part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Part {
    #[error("the header")]
    Header,
    #[error("the length of the header")]
    HeaderLength,
    /// An entry, by its number from 0.
    #[error("entry {0}")]
    Entry(usize),
    #[error("the length of entry {0}")]
    EntryLength(usize),
}

impl Part {
    /// The length prefix of a header or an entry.
    fn length(self) -> Self {
        match self {
            Self::Header | Self::HeaderLength => Self::HeaderLength,
            Self::Entry(number) | Self::EntryLength(number) => Self::EntryLength(number),
        }
    }
}

/// Reason why an entry, or the header, is malformed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The length prefix of an entry, in bytes, exceeds the limit.
    #[error("expected at most {MAX_ENTRY} bytes, its length says {0}")]
    TooLong(u64),
    #[error(transparent)]
    Encoding(prost::DecodeError),
    #[error(transparent)]
    Entry(#[from] InvalidEntry),
}

/// Writes a transcript. Each entry is passed to `W` immediately in one write, so that a killed recorder loses none.
#[derive(Debug)]
pub struct Writer<W> {
    sink: W,
}

impl<W: Write> Writer<W> {
    /// Starts a transcript, and writes its header.
    ///
    /// # Errors
    ///
    /// The errors of the sink.
    pub fn new(mut sink: W, header: &Header) -> io::Result<Self> {
        let header = recorded::Header {
            version: VERSION,
            client: header.client.into(),
            server: header.server.into(),
            start_unix_ns: header.start_unix_ns,
            channels: header.channels.clone(),
            recorder: header.recorder.clone(),
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(header.encode_length_delimited_to_vec());
        sink.write_all(&bytes)?;
        Ok(Self { sink })
    }

    /// Adds an entry.
    ///
    /// # Errors
    ///
    /// The errors of the sink.
    pub fn write(&mut self, entry: &Entry) -> io::Result<()> {
        let entry = recorded::Entry::from(entry);
        self.sink.write_all(&entry.encode_length_delimited_to_vec())
    }
}

/// Reads a transcript entry by entry. Only one entry is in memory at a time, and allocations do not exceed the size of
/// the file.
#[derive(Debug)]
pub struct Reader<R> {
    source: BufReader<R>,
    header: Header,
    /// Number of entries read.
    count: usize,
    /// `true` if no further entry can be read.
    over: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// The header is missing or malformed.
    pub fn new(source: R) -> Result<Self, Error> {
        let mut source = BufReader::new(source);
        let mut magic = Vec::new();
        (&mut source)
            .take(MAGIC.len() as u64)
            .read_to_end(&mut magic)?;
        if magic != MAGIC {
            return Err(Error::Magic(magic.escape_ascii().to_string()));
        }
        let header: recorded::Header =
            message(&mut source, Part::Header)?.ok_or(Error::Truncated {
                what: Part::Header,
                expected: 1,
                came: 0,
            })?;
        if header.version != VERSION {
            return Err(Error::Version(header.version));
        }
        let role = |number| Role::try_from(number).unwrap_or(Role::Unspecified);
        Ok(Self {
            source,
            header: Header {
                client: role(header.client),
                server: role(header.server),
                start_unix_ns: header.start_unix_ns,
                channels: header.channels,
                recorder: header.recorder,
            },
            count: 0,
            over: false,
        })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    fn read(&mut self) -> Result<Option<Entry>, Error> {
        let what = Part::Entry(self.count);
        let Some(entry) = message::<_, recorded::Entry>(&mut self.source, what)? else {
            return Ok(None);
        };
        let entry = Entry::try_from(entry).map_err(|reason| Error::Damaged {
            what,
            reason: reason.into(),
        })?;
        self.count += 1;
        Ok(Some(entry))
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.read().transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Reads a message with its length prefix; `None` at the end of the file.
fn message<R: Read, M: prost::Message + Default>(
    source: &mut R,
    what: Part,
) -> Result<Option<M>, Error> {
    let Some(length) = length(source, what)? else {
        return Ok(None);
    };
    if length > MAX_ENTRY {
        return Err(Error::Damaged {
            what,
            reason: Damage::TooLong(length),
        });
    }
    let mut bytes = Vec::new();
    source.take(length).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < length {
        return Err(Error::Truncated {
            what,
            expected: length,
            came: bytes.len() as u64,
        });
    }
    M::decode(bytes::Bytes::from(bytes))
        .map(Some)
        .map_err(|error| Error::Damaged {
            what,
            reason: Damage::Encoding(error),
        })
}

/// Reads a varint; `None` at the end of the file.
fn length(source: &mut impl Read, what: Part) -> Result<Option<u64>, Error> {
    let mut length = 0;
    // A longer varint would exceed the limit.
    for index in 0..5 {
        let mut byte = Vec::with_capacity(1);
        if source.take(1).read_to_end(&mut byte)? == 0 {
            return match index {
                0 => Ok(None),
                came => Err(Error::Truncated {
                    what: what.length(),
                    expected: came + 1,
                    came,
                }),
            };
        }
        length |= u64::from(byte[0] & 0x7f) << (7 * index);
        if byte[0] & 0x80 == 0 {
            return Ok(Some(length));
        }
    }
    Ok(Some(u64::MAX))
}

/// A complete transcript in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    pub header: Header,
    pub entries: Vec<Entry>,
    /// Text of [`Error::Truncated`] if the file is truncated within an entry. `entries` contains the entries before it.
    pub truncated: Option<String>,
}

impl Transcript {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The file is not a transcript, or is malformed; a truncated last entry is not an error.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::from_reader(File::open(path)?)
    }

    /// Reads from any source.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Self::read).
    pub fn from_reader(source: impl Read) -> Result<Self, Error> {
        let mut reader = Reader::new(source)?;
        let mut entries = Vec::new();
        let mut truncated = None;
        for entry in &mut reader {
            match entry {
                Ok(entry) => entries.push(entry),
                Err(error @ Error::Truncated { .. }) => truncated = Some(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            header: reader.header,
            entries,
            truncated,
        })
    }

    /// Returns `true` if its recorder has finished cleanly. Otherwise the end of sessions may be missing.
    pub fn is_whole(&self) -> bool {
        self.entries
            .last()
            .is_some_and(|entry| entry.event == Event::Ended)
    }
}

// Splits a stream of bytes into frames and invalid bytes.

/// A part of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Frame(Frame),
    /// Bytes that are not a frame.
    Raw(Bytes),
}

impl Piece {
    /// Bytes as received.
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Self::Frame(frame) => frame.to_bytes(),
            Self::Raw(bytes) => bytes.clone(),
        }
    }
}

/// Splits the bytes of one direction. The concatenated pieces equal the pushed bytes.
///
/// Unlike [`wire::control::FrameDecoder`] it continues after an undecodable frame, if the length of the frame
/// is valid; otherwise all further bytes are raw, because the start of the next frame is unknown.
#[derive(Debug, Default)]
pub struct Splitter {
    buffer: BytesMut,
    lost: bool,
}

impl Splitter {
    /// Creates a splitter at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds received bytes. Call [`next`](Self::next) until it returns `None`: less than one frame remains then.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete piece.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator is over when it returns None; this one continues after the next push"
    )]
    pub fn next(&mut self) -> Option<Piece> {
        if !self.lost {
            match Message::frame_size(&self.buffer) {
                Ok(Some(size)) if size <= self.buffer.len() => {
                    return Some(piece(self.buffer.split_to(size).freeze()));
                }
                Ok(_) => return None,
                Err(_) => self.lost = true,
            }
        }
        self.rest().map(Piece::Raw)
    }

    /// Returns the bytes of an incomplete frame at the end of the stream.
    pub fn rest(&mut self) -> Option<Bytes> {
        (!self.buffer.is_empty()).then(|| self.buffer.split().freeze())
    }
}

fn piece(bytes: Bytes) -> Piece {
    match Message::decode_frame(&bytes) {
        Ok(message) => {
            let bytes = (message.encode_to_vec() != bytes).then_some(bytes);
            Piece::Frame(Frame { message, bytes })
        }
        Err(_) => Piece::Raw(bytes),
    }
}

#[cfg(test)]
mod splitter_tests {
    use wire::control::{ErrorResponse, Payload};

    use super::*;

    fn query(id: u32) -> Message {
        Message {
            message_id: id,
            correlation_id: 7,
            payload: Payload::QueryStorageRequest,
        }
    }

    fn pieces(stream: &[u8], step: usize) -> Vec<Piece> {
        let mut splitter = Splitter::new();
        let mut pieces = Vec::new();
        for part in stream.chunks(step) {
            splitter.push(part);
            pieces.extend(std::iter::from_fn(|| splitter.next()));
        }
        pieces.extend(splitter.rest().map(Piece::Raw));
        pieces
    }

    #[test]
    fn frames_are_found_in_any_segmentation() {
        let mut stream = query(1).encode_to_vec();
        // An unknown type in a frame with a valid length.
        let mut unknown = query(2).encode_to_vec();
        unknown[7] = 99;
        stream.extend(&unknown);
        stream.extend(query(3).encode_to_vec());
        stream.extend(&query(4).encode_to_vec()[..9]);
        let expected = [
            Piece::Frame(Frame::of(query(1))),
            Piece::Raw(unknown.into()),
            Piece::Frame(Frame::of(query(3))),
            Piece::Raw(query(4).encode_to_vec()[..9].to_vec().into()),
        ];
        for step in 1..=stream.len() {
            assert_eq!(pieces(&stream, step), expected, "{step} bytes at a time");
        }
    }

    #[test]
    fn bytes_after_an_invalid_length_are_raw() {
        let mut stream = query(1).encode_to_vec();
        stream.extend(b"\0\0\0\0");
        stream.extend(query(2).encode_to_vec());
        let found = pieces(&stream, 5);
        assert_eq!(found[0], Piece::Frame(Frame::of(query(1))));
        let raw = |piece: &Piece| matches!(piece, Piece::Raw(_));
        assert!(found.len() > 1 && found[1..].iter().all(raw), "{found:?}");
        let joined: Vec<u8> = found.iter().flat_map(Piece::to_bytes).collect();
        assert_eq!(joined, stream);
    }

    #[test]
    fn frame_in_another_encoding_keeps_its_bytes() {
        let response = query(1).response(Payload::ErrorResponse(ErrorResponse {
            error_code: 6,
            message: "?".to_owned(),
        }));
        let mut odd = response.encode_to_vec();
        // Invalid UTF-8 is decoded as U+FFFD, which is encoded as three bytes.
        *odd.last_mut().expect("a text") = 0xff;
        let [Piece::Frame(frame)] = &pieces(&odd, 4)[..] else {
            panic!("a frame");
        };
        assert_eq!(frame.bytes.as_deref(), Some(&odd[..]));
        assert_eq!(frame.to_bytes(), odd);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use wire::control::{Message, Payload, RdmaConnectionDetails, RdmaConnectionRole};

    use super::*;
    use crate::transcript::{Frame, Side};

    fn transcript() -> Transcript {
        let message = Message {
            message_id: 3,
            correlation_id: 5,
            payload: Payload::CreateRdmaConnectionRequest(RdmaConnectionDetails {
                context_index: 1,
                role: RdmaConnectionRole::IoControl,
                connection_details: Bytes::from_static(b"blob"),
            }),
        };
        let odd = Frame {
            message: message.clone(),
            bytes: Some(Bytes::from_static(b"other bytes")),
        };
        let events = [
            (Some(Side::Client), Event::Opened),
            (Some(Side::Client), Event::Frame(Frame::of(message))),
            (Some(Side::Server), Event::Frame(odd)),
            (
                Some(Side::Server),
                Event::Raw(Bytes::from_static(b"\0garbage")),
            ),
            (Some(Side::Client), Event::Closed),
            (Some(Side::Server), Event::Failed("reset".to_owned())),
            (None, Event::Ended),
        ];
        let entry = |(number, (from, event))| Entry {
            time: Duration::from_nanos(u64::from(number) * 1_000_000_007),
            channel: number,
            session: 2,
            from,
            event,
        };
        Transcript {
            header: Header {
                client: Role::Service,
                server: Role::Target,
                start_unix_ns: 1_700_000_000_000_000_000,
                channels: vec!["localhost:1".to_owned(), "localhost:2".to_owned()],
                recorder: "test".to_owned(),
            },
            entries: std::iter::zip(0u32.., events).map(entry).collect(),
            truncated: None,
        }
    }

    fn file(transcript: &Transcript) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &transcript.header).expect("memory");
        for entry in &transcript.entries {
            writer.write(entry).expect("memory");
        }
        bytes
    }

    #[test]
    fn transcript_round_trips() {
        let written = transcript();
        let read = Transcript::from_reader(&file(&written)[..]).expect("a transcript");
        assert_eq!(read, written);
        assert!(read.is_whole());
    }

    #[test]
    fn truncated_file_yields_whole_entries_and_reports_the_rest() {
        let written = transcript();
        let file = file(&written);
        let ends: Vec<usize> = (0..=written.entries.len())
            .map(|count| {
                let entries = written.entries[..count].to_vec();
                self::file(&Transcript {
                    entries,
                    ..transcript()
                })
                .len()
            })
            .collect();
        for cut in 0..file.len() {
            match Transcript::from_reader(&file[..cut]) {
                Ok(read) => {
                    let whole = ends.iter().filter(|&&end| end <= cut).count() - 1;
                    assert_eq!(read.entries, written.entries[..whole], "{cut} bytes");
                    assert_eq!(read.truncated.is_none(), ends[whole] == cut, "{cut} bytes");
                    assert!(!read.is_whole());
                }
                Err(Error::Magic(_)) => assert!(cut < MAGIC.len()),
                Err(Error::Truncated { .. }) => assert!(cut < ends[0]),
                Err(other) => panic!("{cut} bytes: {other}"),
            }
        }
    }

    #[test]
    fn other_files_are_refused() {
        let refused = |bytes: &[u8]| Transcript::from_reader(bytes).expect_err("no transcript");
        let other = refused(b"\x7fELF and more");
        assert!(
            matches!(&other, Error::Magic(found) if found == r"\x7fELF and"),
            "{other}"
        );
        let header = recorded::Header {
            version: 2,
            ..Default::default()
        };
        let mut bytes = [&MAGIC[..], &header.encode_length_delimited_to_vec()].concat();
        assert!(matches!(refused(&bytes), Error::Version(2)));
        // A length that exceeds the file is refused before any data is read.
        bytes.truncate(MAGIC.len());
        bytes.extend([0xff; 9]);
        let too_long = refused(&bytes);
        assert!(
            matches!(
                &too_long,
                Error::Damaged { what: Part::Header, reason: Damage::TooLong(length) } if *length > MAX_ENTRY
            ),
            "{too_long}"
        );

        let mut damaged = file(&Transcript {
            entries: Vec::new(),
            ..transcript()
        });
        let nothing = recorded::Entry::default();
        damaged.extend(nothing.encode_length_delimited_to_vec());
        let without_event = refused(&damaged);
        assert!(
            matches!(
                &without_event,
                Error::Damaged {
                    what: Part::Entry(0),
                    reason: Damage::Entry(InvalidEntry::NoEvent)
                }
            ),
            "{without_event}"
        );
    }

    #[test]
    fn changed_bytes_cause_errors_at_most() {
        let file = file(&transcript());
        let mut refused = 0;
        for index in 0..file.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut changed = file.clone();
                changed[index] ^= change;
                match Transcript::from_reader(&changed[..]) {
                    // Every entry takes at least two bytes.
                    Ok(read) => assert!(read.entries.len() <= file.len() / 2),
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(
            refused > file.len() / 2,
            "{refused} of {} bytes",
            file.len()
        );
    }

    /// The recordings of this crate are replayed by tests of the command: an incompatible change of the schema fails here.
    #[test]
    fn recordings_of_this_crate_are_complete() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
        let mut count = 0;
        for entry in std::fs::read_dir(directory).expect("the recordings") {
            let path = entry.expect("an entry").path();
            let transcript = Transcript::read(&path).expect("a transcript");
            assert!(transcript.is_whole(), "{}", path.display());
            let odd = |entry: &&Entry| match &entry.event {
                Event::Frame(frame) => frame.bytes.is_some(),
                Event::Raw(_) | Event::Failed(_) => true,
                Event::Opened | Event::Closed | Event::Ended => false,
            };
            // All roles encode the same message to the same bytes.
            assert_eq!(
                transcript.entries.iter().find(odd),
                None,
                "{}",
                path.display()
            );
            count += 1;
        }
        assert!(count >= 3, "{count} recordings");
    }
}
