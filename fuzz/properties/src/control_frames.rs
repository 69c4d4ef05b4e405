//! Frames of control messages, received in pieces.

use arbitrary::{Arbitrary, Result, Unstructured};
use prost::Message as _;
use wire::DecodeError;
use wire::control::{
    AnnouncedStorage, ErrorResponse, FeatureQuery, FrameDecoder, IdentityQuery, InitStorage,
    Message, MessageType, Payload, RdmaConnectionDetails, RdmaConnectionRole, RecordState,
    Reservation, ReservedStorage, StorageDetails, StorageVerifier,
};
use wire::layout::{Kind, TABLE};
use wire::recording::control::Message as Recorded;

use super::harness::{self, Counting, Damage, Many, Pieces, spoil};

/// Bytes received on a channel.
#[derive(Debug, Clone)]
pub enum Input {
    Raw {
        pieces: Pieces,
        bytes: Vec<u8>,
    },
    /// Valid messages.
    Sound {
        pieces: Pieces,
        messages: Vec<AnyMessage>,
    },
    Damaged {
        pieces: Pieces,
        messages: Vec<AnyMessage>,
        /// Number of repetitions minus 1.
        repeat: u8,
        /// Corruption of the concatenated frames.
        damage: Vec<Damage>,
    },
    /// Frames with valid headers and arbitrary payloads.
    Payloads {
        pieces: Pieces,
        /// Type and payload of each frame.
        frames: Many<(u8, Many<u8, 80>), 4>,
        /// Damage to the frames.
        damage: Vec<Damage>,
    },
    /// Any bytes, as a recorded message in a file.
    Recording {
        /// If set, this recorded message, after damage, replaces the bytes.
        message: Option<(AnyMessage, Vec<Damage>)>,
        bytes: Vec<u8>,
    },
}

/// One byte selects the kind, one the size of the pieces, and the remaining bytes are the content, so that a frame can
/// be used as an input.
impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match u.int_in_range(0..=4)? {
            0 => Self::Raw {
                pieces: Pieces::of(u.arbitrary::<u8>()?.into()),
                bytes: rest(u)?,
            },
            1 => Self::Sound {
                pieces: u.arbitrary()?,
                messages: u.arbitrary()?,
            },
            2 => Self::Damaged {
                pieces: u.arbitrary()?,
                messages: u.arbitrary()?,
                repeat: u.arbitrary::<u8>()? % 16,
                damage: u.arbitrary()?,
            },
            3 => Self::Payloads {
                pieces: u.arbitrary()?,
                frames: u.arbitrary()?,
                damage: u.arbitrary()?,
            },
            _ => Self::Recording {
                message: u.arbitrary()?,
                bytes: rest(u)?,
            },
        })
    }
}

pub(crate) fn rest(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let length = u.len();
    u.bytes(length).map(<[u8]>::to_vec)
}

/// The result of decoding does not depend on the pieces, memory use is bounded by the input, an error is final, and an
/// accepted message encodes to the same bytes.
///
/// # Panics
///
/// If the property does not hold.
pub fn property(input: &Input) {
    match input {
        Input::Raw { pieces, bytes } => any_bytes(bytes, pieces),
        Input::Sound { pieces, messages } => sound(messages, pieces),
        Input::Damaged {
            pieces,
            messages,
            repeat,
            damage,
        } => {
            let mut bytes = stream(messages).repeat(usize::from(*repeat) + 1);
            spoil(&mut bytes, damage);
            any_bytes(&bytes, pieces);
        }
        Input::Payloads {
            pieces,
            frames,
            damage,
        } => {
            let mut bytes = framed(&frames.0);
            spoil(&mut bytes, damage);
            any_bytes(&bytes, pieces);
        }
        Input::Recording { message, bytes } => match message {
            Some((message, damage)) => {
                let mut bytes = Recorded::from(&Message::from(message)).encode_to_vec();
                spoil(&mut bytes, damage);
                recording(&bytes);
            }
            None => recording(bytes),
        },
    }
}

/// Frames of these payloads with valid headers; types may be unknown.
fn framed(frames: &[(u8, Many<u8, 80>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (message_type, Many(payload)) in frames {
        let length = Message::HEADER_SIZE - 4 + payload.len();
        let length = u32::try_from(length).expect("inputs are small");
        for word in [length, u32::from(message_type % 14), 1, 2] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(payload);
    }
    bytes
}

fn stream(messages: &[AnyMessage]) -> Vec<u8> {
    messages
        .iter()
        .flat_map(|message| Message::from(message).encode_to_vec())
        .collect()
}

/// Decoded messages, and the end of decoding: the number of bytes of an incomplete frame, or an error.
type Found = (Vec<Message>, std::result::Result<usize, DecodeError>);

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Found {
    let mut decoder = FrameDecoder::new();
    let mut messages = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => {
                    is_final(&mut decoder, &error);
                    return (messages, Err(error));
                }
            }
        }
        assert!(
            decoder.buffered() < Message::MAX_FRAME_SIZE,
            "{} bytes are kept though no frame has as many",
            decoder.buffered()
        );
    }
    (messages, Ok(decoder.buffered()))
}

fn is_final(decoder: &mut FrameDecoder, error: &DecodeError) {
    let sound = AnyMessage::default_request().encode_to_vec();
    for _ in 0..2 {
        decoder.push(&sound);
        assert_eq!(decoder.next().as_ref(), Err(error), "an error is final");
        assert_eq!(
            decoder.buffered(),
            0,
            "what comes after an error is dropped"
        );
    }
}

/// Messages round-trip, up to the first message that exceeds a limit.
fn sound(messages: &[AnyMessage], pieces: &Pieces) {
    let bytes = stream(messages);
    let expected: Vec<_> = messages
        .iter()
        .take_while(|message| message.is_within_limits())
        .map(AnyMessage::as_received)
        .collect();
    let (came, end) = decode(pieces.divide(&bytes));
    assert_eq!(came, expected);
    if expected.len() == messages.len() {
        assert_eq!(end, Ok(0), "nothing is left of sound frames");
    } else {
        end.expect_err("a blob over its limit is refused");
    }
    for message in &expected {
        let recorded = Recorded::from(message).encode_to_vec();
        let recorded = Recorded::decode(recorded.as_slice()).expect("as it was recorded");
        assert_eq!(Message::try_from(recorded).as_ref(), Ok(message));
    }
    any_bytes(&bytes, pieces);
}

fn any_bytes(bytes: &[u8], pieces: &Pieces) {
    let counting = Counting::of("control frames: a stream of them");
    let (messages, end) = decode([bytes]);
    assert_eq!(
        decode(pieces.divide(bytes)),
        (messages.clone(), end.clone()),
        "the same, in pieces"
    );

    let mut rest = bytes;
    for message in &messages {
        let frame = message.encode_to_vec();
        let (length, _) = rest.split_first_chunk().expect("the length of a frame");
        let (came, after) = rest.split_at(4 + u32::from_be_bytes(*length) as usize);
        // A text with invalid UTF-8 has been replaced by another text, of at most three times the length.
        if message.has_replaced_text(came) {
            assert!(frame.len() <= 3 * came.len());
        } else {
            assert!(frame == came, "{message:?} is written as it came");
        }
        rest = after;
    }
    if let Ok(buffered) = end {
        assert_eq!(buffered, rest.len(), "what is no whole frame is kept");
    }
    for message in &messages {
        harness::count(HEADER, true);
        harness::count(decoder_of(message.payload.message_type()), true);
    }
    if let Err(error) = &end {
        harness::count(refused_by(rest, error), false);
    }

    // For a receiver that drops each message before the next, the decoder holds one piece and one frame.
    let largest = pieces.divide(bytes).map(<[u8]>::len).max().unwrap_or(0);
    let justified = bytes.len().min(Message::MAX_FRAME_SIZE + largest);
    harness::within_memory(256 + 6 * justified, "decoding frames", || {
        let mut decoder = FrameDecoder::new();
        for piece in pieces.divide(bytes) {
            decoder.push(piece);
            while let Ok(Some(message)) = decoder.next() {
                drop(message);
            }
        }
    });
    counting.done(end.is_ok());
}

const HEADER: &str = "control frames: header";

/// Name of the decoder that refused this frame, for the counts.
fn refused_by(frame: &[u8], error: &DecodeError) -> &'static str {
    let number = frame
        .get(4..)
        .and_then(<[u8]>::first_chunk)
        .copied()
        .map(u32::from_be_bytes);
    // Errors before the type is known are attributed to the frame.
    let in_header = error.to_string().starts_with("frame");
    match number.map(MessageType::try_from) {
        Some(Ok(message_type)) if !in_header => decoder_of(message_type),
        _ => HEADER,
    }
}

/// The decoder of a type's payload, for the counts.
fn decoder_of(message_type: MessageType) -> &'static str {
    match message_type {
        MessageType::ErrorResponse => "control payload: error_response",
        MessageType::QueryStorageRequest => "control payload: query_storage_request",
        MessageType::QueryStorageResponse => "control payload: query_storage_response",
        MessageType::InitStorageRequest => "control payload: init_storage_request",
        MessageType::InitStorageResponse => "control payload: init_storage_response",
        MessageType::CreateRdmaConnectionRequest => {
            "control payload: create_rdma_connection_request"
        }
        MessageType::CreateRdmaConnectionResponse => {
            "control payload: create_rdma_connection_response"
        }
        MessageType::StartStorageRequest => "control payload: start_storage_request",
        MessageType::StartStorageResponse => "control payload: start_storage_response",
        MessageType::StopStorageRequest => "control payload: stop_storage_request",
        MessageType::StopStorageResponse => "control payload: stop_storage_response",
        MessageType::ShutdownRequest => "control payload: shutdown_request",
        MessageType::ShutdownResponse => "control payload: shutdown_response",
    }
}

/// Returns `true` for an error message whose text, at the end of its frame, was not valid UTF-8.
fn recording(bytes: &[u8]) {
    let counting = Counting::of("recorded control message");
    let limit = 1024 + 64 * bytes.len();
    let recorded = harness::within_memory(limit, "reading a recording", || {
        Recorded::decode(bytes).ok()
    });
    let message = recorded.and_then(|recorded| Message::try_from(recorded).ok());
    if let Some(message) = &message {
        let again = Recorded::decode(Recorded::from(message).encode_to_vec().as_slice());
        let again = again.expect("as it was recorded");
        assert_eq!(Message::try_from(again).as_ref(), Ok(message));
    }
    counting.done(message.is_some());
}

trait ReplacedText {
    fn has_replaced_text(&self, frame: &[u8]) -> bool;
}

impl ReplacedText for Message {
    /// Returns `true` for a message whose text, at the end of its frame, was not UTF-8.
    fn has_replaced_text(&self, frame: &[u8]) -> bool {
        let text = match self.payload {
            Payload::ErrorResponse(_) => 8,
            Payload::ReserveStorageRequest(_) => 36,
            Payload::ReservedStorageResponse(_) => 48,
            _ => return false,
        };
        std::str::from_utf8(&frame[Message::HEADER_SIZE + text..]).is_err()
    }
}

// Any message, generated from few bytes.

#[derive(Debug, Clone, Arbitrary)]
pub struct AnyMessage {
    message_id: u32,
    correlation_id: u32,
    payload: AnyPayload,
}

#[derive(Debug, Clone, Arbitrary)]
pub enum AnyPayload {
    ErrorResponse {
        error_code: u32,
        message: Text,
    },
    QueryStorageRequest,
    QueryStorageResponse {
        total_size: u64,
        block_size: u32,
    },
    IdentifyStorageRequest(Superblock),
    IdentifiedStorageResponse {
        total_size: u64,
        block_size: u32,
        superblock: Superblock,
        identity: [u8; 16],
    },
    ReserveStorageRequest {
        generation: u64,
        holder: [u64; 2],
        name: [u8; 3],
    },
    ReservedStorageResponse {
        total_size: u64,
        block_size: u32,
        generation: u64,
        holder: [u64; 2],
        name: [u8; 3],
    },
    AnnounceStorageRequest {
        features: u32,
    },
    AnnouncedStorageResponse {
        total_size: u64,
        block_size: u32,
        features: u32,
        version_slots: u32,
        last: (u64, u64),
        retired: (u64, u64),
        unretired: Blob,
    },
    InitStorageRequest {
        transaction_count: u32,
        core_count: u32,
        blob: Blob,
    },
    InitStorageResponse,
    VerifiedInitStorageResponse {
        identity: [u64; 2],
        in_memory: bool,
        quorum: u8,
        incarnations: [u8; 48],
    },
    CreateRdmaConnectionRequest(RdmaConnection),
    CreateRdmaConnectionResponse(RdmaConnection),
    StartStorageRequest,
    StartStorageResponse,
    StopStorageRequest,
    StopStorageResponse,
    ShutdownRequest,
    ShutdownResponse,
}

#[derive(Debug, Clone, Arbitrary)]
pub struct Superblock {
    set: (u64, u64),
    epoch: (u64, u64),
    next: (u64, u64),
    member: u32,
    state: u8,
    format: u32,
    matrix: u32,
    logical_block_size: u32,
}

impl Superblock {
    fn query(&self) -> IdentityQuery {
        IdentityQuery {
            set_high: self.set.0,
            set_low: self.set.1,
            epoch: self.epoch.0,
            epoch_id: self.epoch.1,
            next_epoch: self.next.0,
            next_epoch_id: self.next.1,
            member: self.member,
            state: self.state(),
            format: self.format % 3,
            matrix: self.matrix % 3,
            logical_block_size: self.logical_block_size,
        }
    }

    fn state(&self) -> RecordState {
        RecordState::ALL[usize::from(self.state) % RecordState::ALL.len()]
    }
}

#[derive(Debug, Clone, Arbitrary)]
pub struct RdmaConnection {
    context_index: u32,
    is_control: bool,
    blob: Blob,
}

/// A blob: bytes with a repeat count, so that a short input can yield a long blob.
#[derive(Debug, Clone, Arbitrary)]
pub struct Blob {
    bytes: Vec<u8>,
    repeat: u16,
}

/// A text, repeated in the same way.
#[derive(Debug, Clone, Arbitrary)]
pub struct Text {
    text: String,
    repeat: u16,
}

/// Maximum length in bytes of a repeated text or blob: more than the largest frame.
const LONGEST: usize = Message::MAX_FRAME_SIZE + 100;

fn times(repeat: u16, length: usize) -> usize {
    let most = LONGEST.checked_div(length).unwrap_or(0);
    // Usually not repeated: the two low bits decide.
    if repeat & 3 == 3 {
        (usize::from(repeat >> 2)).min(most)
    } else {
        1
    }
}

impl Blob {
    fn bytes(&self) -> Vec<u8> {
        self.bytes.repeat(times(self.repeat, self.bytes.len()))
    }
}

impl Text {
    fn text(&self) -> String {
        self.text.repeat(times(self.repeat, self.text.len()))
    }
}

/// Maximum length in bytes of the texts or blobs in fields with this name.
fn limit_of(name: &str) -> usize {
    let fields = TABLE.iter().flat_map(|message| message.fields);
    let limits = fields
        .filter(|field| field.name == name)
        .filter_map(|field| match field.kind {
            Kind::Text { max } | Kind::Blob { max } => Some(max as usize),
            _ => None,
        });
    limits.max().expect("there is such a field")
}

impl AnyMessage {
    /// The shortest message.
    fn default_request() -> Message {
        Message {
            message_id: 1,
            correlation_id: 1,
            payload: Payload::QueryStorageRequest,
        }
    }

    /// Returns `true` if the message encodes within all limits. Texts that exceed their limit count as valid, because
    /// they are truncated.
    #[must_use]
    pub fn is_within_limits(&self) -> bool {
        let (blob, field) = match &self.payload {
            AnyPayload::InitStorageRequest { blob, .. } => (blob, "mmap_export_blob"),
            AnyPayload::CreateRdmaConnectionRequest(RdmaConnection { blob, .. })
            | AnyPayload::CreateRdmaConnectionResponse(RdmaConnection { blob, .. }) => {
                (blob, "connection_details")
            }
            AnyPayload::AnnouncedStorageResponse { unretired, .. } => (unretired, "unretired"),
            _ => return true,
        };
        blob.bytes().len() <= limit_of(field)
    }

    /// The message as its receiver decodes it.
    #[must_use]
    pub fn as_received(&self) -> Message {
        let mut message = Message::from(self);
        if let Payload::ErrorResponse(ErrorResponse { message: text, .. }) = &mut message.payload {
            let mut end = text.len().min(limit_of("message"));
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
        }
        message
    }
}

impl From<&RdmaConnection> for RdmaConnectionDetails {
    fn from(connection: &RdmaConnection) -> Self {
        Self {
            context_index: connection.context_index,
            role: if connection.is_control {
                RdmaConnectionRole::IoControl
            } else {
                RdmaConnectionRole::IoData
            },
            connection_details: connection.blob.bytes().into(),
        }
    }
}

impl From<&AnyMessage> for Message {
    fn from(message: &AnyMessage) -> Self {
        let payload = match &message.payload {
            AnyPayload::ErrorResponse {
                error_code,
                message,
            } => Payload::ErrorResponse(ErrorResponse {
                error_code: *error_code,
                message: message.text(),
            }),
            AnyPayload::QueryStorageRequest => Payload::QueryStorageRequest,
            &AnyPayload::QueryStorageResponse {
                total_size,
                block_size,
            } => Payload::QueryStorageResponse(StorageDetails {
                total_size,
                block_size,
            }),
            AnyPayload::IdentifyStorageRequest(superblock) => {
                Payload::IdentifyStorageRequest(superblock.query())
            }
            AnyPayload::IdentifiedStorageResponse {
                total_size,
                block_size,
                superblock,
                identity,
            } => {
                let storage = StorageDetails {
                    total_size: *total_size,
                    block_size: *block_size,
                };
                Payload::IdentifiedStorageResponse(
                    superblock
                        .query()
                        .answer(&storage, identity.to_vec().into()),
                )
            }
            &AnyPayload::ReserveStorageRequest {
                generation,
                holder: [holder_high, holder_low],
                ref name,
            } => Payload::ReserveStorageRequest(Reservation {
                generation,
                holder_high,
                holder_low,
                name: String::from_utf8_lossy(name).into_owned(),
            }),
            &AnyPayload::ReservedStorageResponse {
                total_size,
                block_size,
                generation,
                holder: [holder_high, holder_low],
                ref name,
            } => Payload::ReservedStorageResponse(ReservedStorage {
                total_size,
                block_size,
                generation,
                holder_high,
                holder_low,
                name: String::from_utf8_lossy(name).into_owned(),
            }),
            &AnyPayload::AnnounceStorageRequest { features } => {
                Payload::AnnounceStorageRequest(FeatureQuery { features })
            }
            AnyPayload::AnnouncedStorageResponse {
                total_size,
                block_size,
                features,
                version_slots,
                last: (last_epoch, last_number),
                retired: (retired_epoch, retired_number),
                unretired,
            } => Payload::AnnouncedStorageResponse(AnnouncedStorage {
                total_size: *total_size,
                block_size: *block_size,
                features: *features,
                version_slots: *version_slots,
                last_epoch: *last_epoch,
                last_number: *last_number,
                retired_epoch: *retired_epoch,
                retired_number: *retired_number,
                unretired: unretired.bytes().into(),
            }),
            AnyPayload::InitStorageRequest {
                transaction_count,
                core_count,
                blob,
            } => Payload::InitStorageRequest(InitStorage {
                transaction_count: *transaction_count,
                core_count: *core_count,
                mmap_export_blob: blob.bytes().into(),
            }),
            AnyPayload::InitStorageResponse => Payload::InitStorageResponse,
            AnyPayload::VerifiedInitStorageResponse {
                identity,
                in_memory,
                quorum,
                incarnations,
            } => Payload::VerifiedInitStorageResponse(StorageVerifier {
                identity_high: identity[0],
                identity_low: identity[1],
                flags: (*in_memory).into(),
                quorum: u32::from(*quorum % 16) + 1,
                incarnations: incarnations.to_vec().into(),
            }),
            AnyPayload::CreateRdmaConnectionRequest(connection) => {
                Payload::CreateRdmaConnectionRequest(connection.into())
            }
            AnyPayload::CreateRdmaConnectionResponse(connection) => {
                Payload::CreateRdmaConnectionResponse(connection.into())
            }
            AnyPayload::StartStorageRequest => Payload::StartStorageRequest,
            AnyPayload::StartStorageResponse => Payload::StartStorageResponse,
            AnyPayload::StopStorageRequest => Payload::StopStorageRequest,
            AnyPayload::StopStorageResponse => Payload::StopStorageResponse,
            AnyPayload::ShutdownRequest => Payload::ShutdownRequest,
            AnyPayload::ShutdownResponse => Payload::ShutdownResponse,
        };
        Self {
            message_id: message.message_id,
            correlation_id: message.correlation_id,
            payload,
        }
    }
}
