//! Messages of the NBD protocol: constants, decoders for messages of clients, encoders for those of the server.
//!
//! All integers are big endian. Decoders accept untrusted bytes, never panic, and borrow from their input. The fixed newstyle
//! handshake and simple and structured replies are supported; oldstyle negotiation and extended headers are not.

use bitflags::bitflags;

/// First word of the server's greeting: `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of a newstyle greeting, and first word of each option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of each request of the transmission phase.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Size of an option's header in bytes: magic, option, length.
pub const OPTION_HEADER_SIZE: usize = 16;
/// Size of a request without its payload, in bytes.
pub const REQUEST_SIZE: usize = 28;
/// Maximum size of a string (a name, a query, a message) in bytes.
pub const MAX_STRING: usize = 4096;
/// The only metadata context that the server supports.
pub const BASE_ALLOCATION: &str = "base:allocation";

bitflags! {
    /// Flags of the server's greeting, and of the client's reply, which uses the same values.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct HandshakeFlags: u16 {
        /// Options other than `NBD_OPT_EXPORT_NAME`, and replies to them, are supported.
        const FIXED_NEWSTYLE = 1;
        /// The 124 zero bytes after a reply to `NBD_OPT_EXPORT_NAME` are omitted.
        const NO_ZEROES = 1 << 1;
    }

    /// Transmission flags: properties of an export announced to clients.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TransmissionFlags: u16 {
        /// Always set.
        const HAS_FLAGS = 1;
        /// Requests that modify the export fail with `NBD_EPERM`.
        const READ_ONLY = 1 << 1;
        /// `NBD_CMD_FLUSH` is supported.
        const SEND_FLUSH = 1 << 2;
        /// [`CommandFlags::FUA`] is supported.
        const SEND_FUA = 1 << 3;
        /// `NBD_CMD_TRIM` is supported.
        const SEND_TRIM = 1 << 5;
        /// `NBD_CMD_WRITE_ZEROES` is supported.
        const SEND_WRITE_ZEROES = 1 << 6;
        /// [`CommandFlags::DF`] is supported.
        const SEND_DF = 1 << 7;
        /// A flush on one connection covers the completed writes of all.
        const CAN_MULTI_CONN = 1 << 8;
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CommandFlags: u16 {
        /// Reply once the data is durable.
        const FUA = 1;
        /// Write zeroes without making a hole.
        const NO_HOLE = 1 << 1;
        /// Do not fragment the reply to a read.
        const DF = 1 << 2;
        /// Report one extent only.
        const REQ_ONE = 1 << 3;
        /// Fail if zeroing is not faster than writing.
        const FAST_ZERO = 1 << 4;
        // Unknown bits are preserved, so that a request that sets one can be refused.
        const _ = !0;
    }
}

/// Errors of the transmission phase, with the values of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// The export is read-only.
    Permission = 1,
    /// The storage completed the request with an error.
    Io = 5,
    /// The request is malformed, or a read, trim or query exceeds the export.
    Invalid = 22,
    /// A write exceeds the export.
    NoSpace = 28,
    /// The reply would be too long.
    Overflow = 75,
    /// The server is shutting down.
    Shutdown = 108,
}

impl Errno {
    /// Error text for structured replies.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Permission => "the export is read-only",
            Self::Io => "the storage failed",
            Self::Invalid => "invalid request",
            Self::NoSpace => "beyond the end of the export",
            Self::Overflow => "the reply would be too long",
            Self::Shutdown => "the server shuts down",
        }
    }
}

/// An error reply to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind:?}: {message}")]
pub struct Refusal {
    pub kind: RefusalKind,
    /// Text for the client's user.
    pub message: &'static str,
}

/// Types of error replies to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RefusalKind {
    /// The option is unknown.
    Unsupported = (1 << 31) + 1,
    /// The configuration of the server forbids the option.
    Policy = (1 << 31) + 2,
    /// The option is malformed, or not allowed in this state.
    Invalid = (1 << 31) + 3,
    TlsRequired = (1 << 31) + 5,
    /// The export does not exist.
    Unknown = (1 << 31) + 6,
    /// The option is too long.
    TooBig = (1 << 31) + 9,
}

impl Refusal {
    const fn invalid(message: &'static str) -> Self {
        Self {
            kind: RefusalKind::Invalid,
            message,
        }
    }
}

/// Types of other replies to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum OptionReply {
    Ack = 1,
    Server = 2,
    Info = 3,
    MetaContext = 4,
}

/// Information about an export that a client may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
enum InfoType {
    Export = 0,
    Name = 1,
    Description = 2,
    BlockSize = 3,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHeader {
    pub option: u32,
    /// Size of the data that follows, in bytes.
    pub len: u32,
}

impl OptionHeader {
    /// Decodes a header.
    ///
    /// # Errors
    ///
    /// The magic number found, if it is not [`OPTION_MAGIC`].
    pub fn parse(bytes: &[u8; OPTION_HEADER_SIZE]) -> Result<Self, u64> {
        let mut reader = Reader(bytes);
        let (Some(magic), Some(option), Some(len)) = (reader.u64(), reader.u32(), reader.u32())
        else {
            return Err(0);
        };
        if magic == OPTION_MAGIC {
            Ok(Self { option, len })
        } else {
            Err(magic)
        }
    }
}

/// An option with its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientOption<'a> {
    /// Begin transmission; has no error reply.
    ExportName(&'a str),
    Abort,
    /// List the exports.
    List,
    StartTls,
    /// Describe an export.
    Info(InfoRequest<'a>),
    /// Describe an export, and begin transmission.
    Go(InfoRequest<'a>),
    StructuredReply,
    ListMetaContext(MetaRequest<'a>),
    SetMetaContext(MetaRequest<'a>),
}

/// Data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// Name of the export; empty for the default one.
    pub name: &'a str,
    wanted: &'a [u8],
}

impl InfoRequest<'_> {
    fn wants(&self, info: InfoType) -> bool {
        self.wanted
            .chunks_exact(2)
            .any(|wanted| wanted == (info as u16).to_be_bytes())
    }
}

/// Data of the options for metadata contexts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaRequest<'a> {
    /// Name of the export; empty for the default one.
    pub name: &'a str,
    count: u32,
    queries: &'a [u8],
}

impl<'a> MetaRequest<'a> {
    /// Returns the queries, which were validated by decoding.
    pub fn queries(&self) -> impl Iterator<Item = &'a str> {
        let mut reader = Reader(self.queries);
        (0..self.count).map_while(move |_| reader.string().ok())
    }

    /// Returns `true` if the list of queries is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<'a> ClientOption<'a> {
    /// Decodes an option.
    ///
    /// # Errors
    ///
    /// The error reply, if the option is unknown or its data is malformed.
    pub fn parse(option: u32, data: &'a [u8]) -> Result<Self, Refusal> {
        match option {
            1 => {
                if data.len() > MAX_STRING {
                    return Err(Refusal::invalid(TOO_LONG));
                }
                text(data).map(Self::ExportName)
            }
            // Data of this option is ignored.
            2 => Ok(Self::Abort),
            3 => without_data(data, Self::List),
            5 => without_data(data, Self::StartTls),
            6 => info_request(data).map(Self::Info),
            7 => info_request(data).map(Self::Go),
            8 => without_data(data, Self::StructuredReply),
            9 => meta_request(data).map(Self::ListMetaContext),
            10 => meta_request(data).map(Self::SetMetaContext),
            _ => Err(Refusal {
                kind: RefusalKind::Unsupported,
                message: "unknown option",
            }),
        }
    }
}

const TOO_LONG: &str = "expected a string of at most 4096 bytes";

fn without_data<'a>(data: &[u8], option: ClientOption<'a>) -> Result<ClientOption<'a>, Refusal> {
    if data.is_empty() {
        Ok(option)
    } else {
        Err(Refusal::invalid("expected an option without data"))
    }
}

fn info_request(data: &[u8]) -> Result<InfoRequest<'_>, Refusal> {
    let mut reader = Reader(data);
    let name = reader.string()?;
    let count = reader.u16().ok_or(Refusal::invalid(
        "expected a number of information requests",
    ))?;
    if reader.0.len() != usize::from(count) * 2 {
        return Err(Refusal::invalid(
            "expected as many information requests as announced",
        ));
    }
    Ok(InfoRequest {
        name,
        wanted: reader.0,
    })
}

fn meta_request(data: &[u8]) -> Result<MetaRequest<'_>, Refusal> {
    let mut reader = Reader(data);
    let name = reader.string()?;
    let count = reader
        .u32()
        .ok_or(Refusal::invalid("expected a number of queries"))?;
    let queries = reader.0;
    for _ in 0..count {
        // A query takes at least 4 bytes, so the loop is bounded by the size of the data, regardless of the count.
        if !reader.string()?.contains(':') {
            return Err(Refusal::invalid("expected a query with a namespace"));
        }
    }
    if !reader.0.is_empty() {
        return Err(Refusal::invalid("expected no data after the last query"));
    }
    Ok(MetaRequest {
        name,
        count,
        queries,
    })
}

fn text(bytes: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(bytes).map_err(|_| Refusal::invalid("expected a string in UTF-8"))
}

/// Remaining input.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a length-prefixed UTF-8 string.
    fn string(&mut self) -> Result<&'a str, Refusal> {
        let len = self
            .u32()
            .and_then(|len| usize::try_from(len).ok())
            .ok_or(Refusal::invalid("expected the length of a string"))?;
        if len > MAX_STRING {
            return Err(Refusal::invalid(TOO_LONG));
        }
        let (string, rest) = self.0.split_at_checked(len).ok_or(Refusal::invalid(
            "expected a string within the option's data",
        ))?;
        self.0 = rest;
        text(string)
    }
}

/// A request of the transmission phase, without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Flags, including unknown ones.
    pub flags: CommandFlags,
    pub command: Command,
    /// Chosen by the client, and returned in replies.
    pub cookie: u64,
    /// Offset in the export in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Read,
    /// Write; the payload follows the request.
    Write,
    /// Disconnect after replying to all requests; has no reply.
    Disconnect,
    /// Make all completed writes durable.
    Flush,
    /// The data is no longer needed.
    Trim,
    /// The data will soon be read.
    Cache,
    WriteZeroes,
    /// Report allocation.
    BlockStatus,
    Unknown(u16),
}

impl Command {
    const fn from_number(number: u16) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            unknown => Self::Unknown(unknown),
        }
    }
}

impl Request {
    /// Decodes a request.
    ///
    /// # Errors
    ///
    /// The magic number found, if it is not [`REQUEST_MAGIC`]: the stream is out of sync.
    pub fn parse(bytes: &[u8; REQUEST_SIZE]) -> Result<Self, u32> {
        let mut reader = Reader(bytes);
        let (Some(magic), Some(flags), Some(command), Some(cookie), Some(offset), Some(len)) = (
            reader.u32(),
            reader.u16(),
            reader.u16(),
            reader.u64(),
            reader.u64(),
            reader.u32(),
        ) else {
            return Err(0);
        };
        if magic != REQUEST_MAGIC {
            return Err(magic);
        }
        Ok(Self {
            flags: CommandFlags::from_bits_retain(flags),
            command: Command::from_number(command),
            cookie,
            offset,
            len,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// Name of the export; an empty name in a request also selects it.
    pub name: String,
    pub description: String,
    /// Size in bytes.
    pub size: u64,
    /// Length and alignment of requests that need no read-modify-write, in bytes: a power of two, at least 512.
    pub preferred_block: u32,
    /// Maximum size of a read or write in bytes.
    pub max_payload: u32,
    pub read_only: bool,
    /// `true` if completed writes can be made durable.
    pub flush: bool,
}

impl Export {
    /// Returns `true` if `name` selects this export.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        name.is_empty() || name == self.name
    }

    /// Transmission flags, for a client with or without structured replies.
    #[must_use]
    pub fn flags(&self, structured: bool) -> TransmissionFlags {
        let mut flags = TransmissionFlags::HAS_FLAGS | TransmissionFlags::CAN_MULTI_CONN;
        flags.set(TransmissionFlags::SEND_DF, structured);
        flags.set(TransmissionFlags::SEND_FLUSH, self.flush);
        flags.set(TransmissionFlags::READ_ONLY, self.read_only);
        let writable = TransmissionFlags::SEND_TRIM | TransmissionFlags::SEND_WRITE_ZEROES;
        flags.set(writable, !self.read_only);
        flags.set(TransmissionFlags::SEND_FUA, self.flush && !self.read_only);
        flags
    }
}

pub fn emit_greeting(out: &mut Vec<u8>) {
    out.extend(GREETING_MAGIC.to_be_bytes());
    out.extend(OPTION_MAGIC.to_be_bytes());
    out.extend(HandshakeFlags::all().bits().to_be_bytes());
}

/// Appends the reply to `NBD_OPT_EXPORT_NAME`.
pub fn emit_export(export: &Export, structured: bool, zeroes: bool, out: &mut Vec<u8>) {
    out.extend(export.size.to_be_bytes());
    out.extend(export.flags(structured).bits().to_be_bytes());
    if zeroes {
        out.extend([0; 124]);
    }
}

/// Appends a reply to an option, with the concatenation of `parts` as its data.
fn emit_option_reply(option: u32, kind: u32, parts: &[&[u8]], out: &mut Vec<u8>) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
    parts.iter().for_each(|part| out.extend(*part));
}

/// Appends the reply that acknowledges an option.
pub fn emit_ack(option: u32, out: &mut Vec<u8>) {
    emit_option_reply(option, OptionReply::Ack as u32, &[], out);
}

/// Appends an error reply to an option.
pub fn emit_refusal(option: u32, refusal: Refusal, out: &mut Vec<u8>) {
    emit_option_reply(
        option,
        refusal.kind as u32,
        &[refusal.message.as_bytes()],
        out,
    );
}

/// Appends an entry of the list of exports.
pub fn emit_server(option: u32, export: &Export, out: &mut Vec<u8>) {
    let len = u32::try_from(export.name.len()).unwrap_or(u32::MAX);
    let parts: [&[u8]; 3] = [
        &len.to_be_bytes(),
        export.name.as_bytes(),
        export.description.as_bytes(),
    ];
    emit_option_reply(option, OptionReply::Server as u32, &parts, out);
}

/// Appends the requested information about the export; its size and flags are always included.
pub fn emit_info(
    option: u32,
    request: &InfoRequest<'_>,
    export: &Export,
    structured: bool,
    out: &mut Vec<u8>,
) {
    let mut info = |kind: InfoType, parts: [&[u8]; 3]| {
        let [first, second, third] = parts;
        let parts = [&(kind as u16).to_be_bytes(), first, second, third];
        emit_option_reply(option, OptionReply::Info as u32, &parts, out);
    };
    let flags = export.flags(structured).bits().to_be_bytes();
    info(InfoType::Export, [&export.size.to_be_bytes(), &flags, &[]]);
    if request.wants(InfoType::Name) {
        info(InfoType::Name, [export.name.as_bytes(), &[], &[]]);
    }
    if request.wants(InfoType::Description) {
        info(
            InfoType::Description,
            [export.description.as_bytes(), &[], &[]],
        );
    }
    if request.wants(InfoType::BlockSize) {
        info(
            InfoType::BlockSize,
            [
                &1_u32.to_be_bytes(),
                &export.preferred_block.to_be_bytes(),
                &export.max_payload.to_be_bytes(),
            ],
        );
    }
}

pub fn emit_meta_context(option: u32, id: u32, out: &mut Vec<u8>) {
    let parts: [&[u8]; 2] = [&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()];
    emit_option_reply(option, OptionReply::MetaContext as u32, &parts, out);
}

/// Appends a simple reply. The data of a successful read follows.
pub fn emit_simple(cookie: u64, error: Option<Errno>, out: &mut Vec<u8>) {
    out.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    out.extend(error.map_or(0, |error| error as u32).to_be_bytes());
    out.extend(cookie.to_be_bytes());
}

/// A chunk of a structured reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk {
    /// Success, without data.
    None,
    /// `len` bytes at `offset`; the data follows.
    Data {
        /// Offset in the export in bytes.
        offset: u64,
        /// Length in bytes.
        len: u32,
    },
    /// One extent of `len` bytes in the metadata context `id`: allocated, with unspecified contents.
    Allocated {
        id: u32,
        /// Length in bytes, not 0.
        len: u32,
    },
    Error(Errno),
    /// The part of the request at `offset` failed.
    ErrorAt {
        error: Errno,
        /// Offset of the part in bytes.
        offset: u64,
    },
}

/// Appends a chunk of a structured reply; `done` marks the last one.
pub fn emit_chunk(cookie: u64, chunk: Chunk, done: bool, out: &mut Vec<u8>) {
    const ERROR: u16 = 1 << 15;
    let message = |error: Errno| error.message().len() as u32;
    let (kind, len) = match chunk {
        Chunk::None => (0, 0),
        Chunk::Data { len, .. } => (1, 8 + len),
        Chunk::Allocated { .. } => (5, 12),
        Chunk::Error(error) => (ERROR + 1, 6 + message(error)),
        Chunk::ErrorAt { error, .. } => (ERROR + 2, 14 + message(error)),
    };
    out.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
    out.extend(u16::from(done).to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(cookie.to_be_bytes());
    out.extend(len.to_be_bytes());
    let mut emit_error = |error: Errno| {
        let message = error.message();
        out.extend((error as u32).to_be_bytes());
        out.extend((message.len() as u16).to_be_bytes());
        out.extend(message.as_bytes());
    };
    match chunk {
        Chunk::None => {}
        Chunk::Data { offset, .. } => out.extend(offset.to_be_bytes()),
        Chunk::Allocated { id, len } => {
            out.extend(id.to_be_bytes());
            out.extend(len.to_be_bytes());
            out.extend([0; 4]);
        }
        Chunk::Error(error) => emit_error(error),
        Chunk::ErrorAt { error, offset } => {
            emit_error(error);
            out.extend(offset.to_be_bytes());
        }
    }
}
