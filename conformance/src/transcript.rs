//! Control transcripts: the messages on control connections between services and targets, with their times.
//!
//! * [`Relay`] forwards connections under a [`Recorder`] or another [`Interceptor`]; [`Splitter`] finds the frames in a stream.
//! * [`Writer`], [`Reader`] and [`Transcript`] are the file format; `proto/transcript.proto` is its schema.
//! * [`replay`] replays one of the two sides against a live program.

mod file;
mod relay;
pub mod replay;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Serialize, Serializer};
use wire::control::{IdentityQuery, Message, Payload, RdmaConnectionDetails};
use wire::recording::transcript as recorded;

pub use file::{
    Damage, Error, MAGIC, MAX_ENTRY, Part, Piece, Reader, Splitter, Transcript, VERSION, Writer,
};
pub use relay::{Action, End, Interceptor, Place, Recorder, Relay, Summary};
pub use wire::recording::transcript::Role;

// Entries of a transcript, and their conversion to and from prost's types.

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Header {
    #[serde(serialize_with = "role")]
    pub client: Role,
    #[serde(serialize_with = "role")]
    pub server: Role,
    /// Start of the recording in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Address of the server of each channel, `HOST:PORT`.
    pub channels: Vec<String>,
    pub recorder: String,
}

impl Header {
    /// Name of the role on this side; `client` or `server` if the transcript does not contain it.
    pub fn name(&self, side: Side) -> &'static str {
        match side {
            Side::Client => role_name(self.client).unwrap_or("client"),
            Side::Server => role_name(self.server).unwrap_or("server"),
        }
    }
}

fn role_name(role: Role) -> Option<&'static str> {
    match role {
        Role::Unspecified => None,
        Role::Service => Some("service"),
        Role::Target => Some("target"),
    }
}

/// A side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Client,
    Server,
}

impl Side {
    #[must_use]
    pub fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// An event with its time and connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Time since the start of the recording, with nanosecond resolution.
    #[serde(rename = "time_ns", serialize_with = "nanoseconds")]
    pub time: Duration,
    /// Index of the recorded server.
    pub channel: u32,
    /// Index of the channel's connection.
    pub session: u32,
    /// Sender; `None` for actions of the recorder itself.
    pub from: Option<Side>,
    #[serde(flatten)]
    pub event: Event,
}

/// An event on a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", content = "content", rename_all = "snake_case")]
pub enum Event {
    Opened,
    Frame(Frame),
    /// Bytes were received that are not a frame.
    Raw(#[serde(serialize_with = "hex")] Bytes),
    /// The side has closed its sending direction.
    Closed,
    /// The connection has failed, for this reason.
    Failed(String),
    /// The recorder has finished cleanly.
    Ended,
}

/// A control frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Frame {
    pub message: Message,
    /// Bytes as received, if they are not the canonical encoding of the message.
    #[serde(serialize_with = "optional_hex")]
    pub bytes: Option<Bytes>,
}

impl Frame {
    /// Creates a frame in the canonical encoding.
    pub fn of(message: Message) -> Self {
        Self {
            message,
            bytes: None,
        }
    }

    /// Bytes as received.
    pub fn to_bytes(&self) -> Bytes {
        self.bytes
            .clone()
            .unwrap_or_else(|| self.message.encode_to_vec().into())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened => f.write_str("connected"),
            Self::Frame(frame) => write!(f, "{}", frame.message.payload.message_type()),
            Self::Raw(bytes) => write!(f, "{} bytes that are no frame", bytes.len()),
            Self::Closed => f.write_str("closes"),
            Self::Failed(why) => write!(f, "fails: {why}"),
            Self::Ended => f.write_str("end of the recording"),
        }
    }
}

impl From<&Entry> for recorded::Entry {
    fn from(entry: &Entry) -> Self {
        use recorded::entry::Event as Recorded;
        let from = match entry.from {
            None => recorded::Side::Unspecified,
            Some(Side::Client) => recorded::Side::Client,
            Some(Side::Server) => recorded::Side::Server,
        };
        let event = match &entry.event {
            Event::Opened => Recorded::Opened(()),
            Event::Frame(frame) => Recorded::Frame(recorded::Frame {
                message: Some((&frame.message).into()),
                bytes: frame.bytes.clone().unwrap_or_default(),
            }),
            Event::Raw(bytes) => Recorded::Raw(bytes.clone()),
            Event::Closed => Recorded::Closed(()),
            Event::Failed(why) => Recorded::Failed(why.clone()),
            Event::Ended => Recorded::Ended(()),
        };
        Self {
            // Saturates after 584 years.
            time_ns: u64::try_from(entry.time.as_nanos()).unwrap_or(u64::MAX),
            channel: entry.channel,
            session: entry.session,
            side: from.into(),
            event: Some(event),
        }
    }
}

/// Reason why a recorded entry is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntry {
    #[error("expected a side of 0 to 2, got {0}")]
    Side(i32),
    #[error("expected an event, it has none")]
    NoEvent,
    #[error("expected a message in the frame")]
    NoMessage,
    #[error(transparent)]
    Message(#[from] wire::DecodeError),
}

impl TryFrom<recorded::Entry> for Entry {
    type Error = InvalidEntry;

    fn try_from(entry: recorded::Entry) -> Result<Self, InvalidEntry> {
        use recorded::entry::Event as Recorded;
        let from = match recorded::Side::try_from(entry.side) {
            Ok(recorded::Side::Unspecified) => None,
            Ok(recorded::Side::Client) => Some(Side::Client),
            Ok(recorded::Side::Server) => Some(Side::Server),
            Err(_) => return Err(InvalidEntry::Side(entry.side)),
        };
        let event = match entry.event.ok_or(InvalidEntry::NoEvent)? {
            Recorded::Opened(()) => Event::Opened,
            Recorded::Frame(frame) => {
                let message = frame.message.ok_or(InvalidEntry::NoMessage)?;
                let message = Message::try_from(message)?;
                let bytes = Some(frame.bytes).filter(|bytes| !bytes.is_empty());
                Event::Frame(Frame { message, bytes })
            }
            Recorded::Raw(bytes) => Event::Raw(bytes),
            Recorded::Closed(()) => Event::Closed,
            Recorded::Failed(why) => Event::Failed(why),
            Recorded::Ended(()) => Event::Ended,
        };
        Ok(Self {
            time: Duration::from_nanos(entry.time_ns),
            channel: entry.channel,
            session: entry.session,
            from,
            event,
        })
    }
}

fn role<S: Serializer>(role: &Role, serializer: S) -> Result<S::Ok, S::Error> {
    role_name(*role).serialize(serializer)
}

fn nanoseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    u64::try_from(time.as_nanos())
        .unwrap_or(u64::MAX)
        .serialize(serializer)
}

fn hex<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{bytes:x}"))
}

fn optional_hex<S: Serializer>(bytes: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => hex(bytes, serializer),
        None => serializer.serialize_none(),
    }
}

// Fields of a message by name, for display and comparison.

/// Maximum number of bytes of a blob to display.
const SHOWN_BYTES: usize = 12;

/// A field of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name of the field in the schema.
    pub name: &'static str,
    pub value: Value,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Number(u64),
    /// The name of an enumerator.
    Name(&'static str),
    Text(String),
    /// Opaque bytes of DOCA, valid as long as the object that they describe.
    Blob(Bytes),
}

/// Fields of a payload, in the order of the wire format.
pub fn fields(payload: &Payload) -> Vec<Field> {
    let number = |name, value: u64| Field {
        name,
        value: Value::Number(value),
    };
    let blob = |name, value: &Bytes| Field {
        name,
        value: Value::Blob(value.clone()),
    };
    // Fields of a request and of a response are the same.
    let superblock = |query: &IdentityQuery| {
        vec![
            number("set_high", query.set_high),
            number("set_low", query.set_low),
            number("epoch", query.epoch),
            number("epoch_id", query.epoch_id),
            number("next_epoch", query.next_epoch),
            number("next_epoch_id", query.next_epoch_id),
            number("member", query.member.into()),
            Field {
                name: "state",
                value: Value::Name(query.state.name()),
            },
            number("format", query.format.into()),
            number("matrix", query.matrix.into()),
            number("logical_block_size", query.logical_block_size.into()),
        ]
    };
    let connection = |details: &RdmaConnectionDetails| {
        vec![
            number("context_index", details.context_index.into()),
            Field {
                name: "role",
                value: Value::Name(details.role.name()),
            },
            blob("connection_details", &details.connection_details),
        ]
    };
    match payload {
        Payload::ErrorResponse(error) => vec![
            number("error_code", error.error_code.into()),
            Field {
                name: "message",
                value: Value::Text(error.message.clone()),
            },
        ],
        Payload::QueryStorageResponse(details) => vec![
            number("total_size", details.total_size),
            number("block_size", details.block_size.into()),
        ],
        Payload::IdentifyStorageRequest(query) => superblock(query),
        Payload::IdentifiedStorageResponse(storage) => [
            vec![
                number("total_size", storage.total_size),
                number("block_size", storage.block_size.into()),
            ],
            superblock(&storage.superblock()),
            vec![blob("identity", &storage.identity)],
        ]
        .concat(),
        Payload::AnnounceStorageRequest(query) => vec![number("features", query.features.into())],
        Payload::AnnouncedStorageResponse(storage) => vec![
            number("total_size", storage.total_size),
            number("block_size", storage.block_size.into()),
            number("features", storage.features.into()),
            number("version_slots", storage.version_slots.into()),
            number("last_epoch", storage.last_epoch),
            number("last_number", storage.last_number),
            number("retired_epoch", storage.retired_epoch),
            number("retired_number", storage.retired_number),
            blob("unretired", &storage.unretired),
        ],
        Payload::ReserveStorageRequest(reservation) => vec![
            number("generation", reservation.generation),
            number("holder_high", reservation.holder_high),
            number("holder_low", reservation.holder_low),
            Field {
                name: "name",
                value: Value::Text(reservation.name.clone()),
            },
        ],
        Payload::ReservedStorageResponse(storage) => vec![
            number("total_size", storage.total_size),
            number("block_size", storage.block_size.into()),
            number("generation", storage.generation),
            number("holder_high", storage.holder_high),
            number("holder_low", storage.holder_low),
            Field {
                name: "name",
                value: Value::Text(storage.name.clone()),
            },
        ],
        Payload::InitStorageRequest(init) => vec![
            number("transaction_count", init.transaction_count.into()),
            number("core_count", init.core_count.into()),
            blob("mmap_export_blob", &init.mmap_export_blob),
        ],
        Payload::BatchedInitStorageRequest(init) => vec![
            number("transaction_count", init.transaction_count.into()),
            number("batch_size", init.batch_size.into()),
            number("core_count", init.core_count.into()),
            blob("mmap_export_blob", &init.mmap_export_blob),
        ],
        Payload::VerifiedInitStorageResponse(verifier) => vec![
            number("identity_high", verifier.identity_high),
            number("identity_low", verifier.identity_low),
            number("flags", verifier.flags.into()),
            number("quorum", verifier.quorum.into()),
            blob("incarnations", &verifier.incarnations),
        ],
        Payload::CreateRdmaConnectionRequest(details)
        | Payload::CreateRdmaConnectionResponse(details) => connection(details),
        Payload::QueryStorageRequest
        | Payload::InitStorageResponse
        | Payload::StartStorageRequest
        | Payload::StartStorageResponse
        | Payload::StopStorageRequest
        | Payload::StopStorageResponse
        | Payload::ShutdownRequest
        | Payload::ShutdownResponse => Vec::new(),
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.value)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Blob(bytes) => {
                write!(f, "{} bytes", bytes.len())?;
                let shown = bytes.slice(..bytes.len().min(SHOWN_BYTES));
                let dots = if shown.len() < bytes.len() { "…" } else { "" };
                match shown.is_empty() {
                    true => Ok(()),
                    false => write!(f, " {shown:x}{dots}"),
                }
            }
        }
    }
}
