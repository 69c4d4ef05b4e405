//! Golden vectors: bytes on the wire, field by field, checked with the `wire` crate and its table of offsets.
//!
//! The vectors are data files, written from the documented layout. The crate must encode the values of each to its
//! bytes and decode these to the values, and the fields must have the offsets of the table. An implementation in any
//! language can be checked with the same files.

use serde::{Deserialize, Serialize};
use wire::control::{
    AnnouncedStorage, FeatureQuery, FrameDecoder, IdentifiedStorage, IdentityQuery, Message,
    Payload, RdmaConnectionDetails, Reservation, ReservedStorage, StorageVerifier,
};
use wire::io_message::{self, IoMessage, Repr, VERSION_OFFSET, Version};
use wire::layout::{ByteOrder, Kind, Message as MessageLayout, TABLE};
use wire::release::{CorrelationId as _, IoLayout, Release3_0, Release3_1};
use wire::{backing, io_message_3_0, io_message_3_1, sbc, stored_block};

use crate::violation::{During as _, Violation};

// Vector files.

/// A message as bytes with a description of each field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Vector {
    pub name: String,
    /// Name of the message in the table of offsets; or `stored_block` or `stored_chunk` for the whole block or chunk,
    /// or `io_message_with_version`.
    pub message: String,
    /// Description of the message in one sentence.
    pub meaning: String,
    /// Fields in the order of their offsets, without gaps.
    pub fields: Vec<Field>,
}

/// A field of a vector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Field {
    pub name: String,
    /// Offset in the message in bytes.
    pub offset: usize,
    #[serde(serialize_with = "as_hex")]
    pub bytes: Vec<u8>,
    /// Expected value: a number, the name of an enumerator, a text, or hexadecimal bytes; empty for bytes without a meaning.
    pub value: String,
    /// Description of the field in one sentence.
    pub meaning: String,
}

/// Error in a vector file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Invalid TOML, or unknown or missing keys.
    #[error(transparent)]
    Toml(#[from] Box<toml::de::Error>),
    /// The bytes do not match the description of the field.
    #[error("field {field}: {problem}")]
    Field { field: String, problem: Problem },
}

/// Contradiction between the description of a field and its bytes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("expected offset {expected}, found {found}")]
    Offset { expected: usize, found: usize },
    #[error("expected bytes in hexadecimal, e.g. \"00 1f\", found {0:?}")]
    Hexadecimal(String),
    /// In bytes: expected and found.
    #[error("expected {expected} bytes, found {found}")]
    Width { expected: usize, found: usize },
}

impl Vector {
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let parts = self.fields.iter().map(|field| &field.bytes[..]);
        parts.collect::<Vec<_>>().concat()
    }

    /// First field with this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// Vectors embedded in this crate.
///
/// # Errors
///
/// Name of an invalid file, and its error.
pub fn embedded() -> Result<Vec<Vector>, (&'static str, FileError)> {
    let files = include!(concat!(env!("OUT_DIR"), "/vectors.rs"));
    files
        .into_iter()
        .map(|(name, text)| parse(text).map_err(|error| (name, error)))
        .collect()
}

/// Parses a vector file.
///
/// # Errors
///
/// Unknown keys, invalid hexadecimal, or fields with gaps.
pub fn parse(text: &str) -> Result<Vector, FileError> {
    let file: VectorFile = toml::from_str(text).map_err(Box::new)?;
    let mut end = 0;
    let fields = file.fields.into_iter().map(|field| {
        let wrong = |problem| FileError::Field {
            field: field.name.clone(),
            problem,
        };
        if field.offset != end {
            return Err(wrong(Problem::Offset {
                expected: end,
                found: field.offset,
            }));
        }
        let unit = from_hex(&field.bytes)
            .ok_or_else(|| wrong(Problem::Hexadecimal(field.bytes.clone())))?;
        let bytes = unit.repeat(field.repeat);
        if bytes.len() != field.width {
            return Err(wrong(Problem::Width {
                expected: field.width,
                found: bytes.len(),
            }));
        }
        end += bytes.len();
        Ok(Field {
            name: field.name,
            offset: field.offset,
            bytes,
            value: field.value,
            meaning: field.meaning,
        })
    });
    Ok(Vector {
        fields: fields.collect::<Result<_, _>>()?,
        name: file.name,
        message: file.message,
        meaning: file.meaning,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VectorFile {
    name: String,
    message: String,
    meaning: String,
    fields: Vec<FieldOfFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldOfFile {
    name: String,
    offset: usize,
    width: usize,
    bytes: String,
    #[serde(default = "once")]
    repeat: usize,
    value: String,
    meaning: String,
}

fn once() -> usize {
    1
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    text.split_whitespace()
        .map(|byte| {
            let digits = byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit());
            digits.then(|| u8::from_str_radix(byte, 16).ok()).flatten()
        })
        .collect()
}

/// Formats bytes as in vector files.
#[must_use]
fn to_hex(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(" ")
}

fn as_hex<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&to_hex(bytes))
}

// Check of a vector with the `wire` crate and its table of offsets.

/// Names of the parts of a stored block in the table: its header, the header of each LZ4 data block, and its trailer.
const STORED_BLOCK: [&str; 3] = [
    "stored_block_header",
    "lz4_data_block",
    "stored_block_trailer",
];

/// Names of the record of a stored chunk and of the version of an I/O message in the table.
const CHUNK_RECORD: &str = "chunk_record";
const VERSION: &str = "io_message_version";

/// Checks a vector by decoding and encoding, and the offsets of its fields by the table.
///
/// # Errors
///
/// Description of the first difference.
pub fn check(vector: &Vector) -> Result<(), Violation> {
    let bytes = vector.bytes();
    let decoded = decode(&vector.message, &bytes).during("decoding")?;
    for (name, value) in &decoded.values {
        let field = vector.field(name);
        let field = field
            .ok_or_else(|| Violation::new(format!("decoding: the vector has no field {name}")))?;
        if field.value != *value {
            return Err(Violation::new(format!(
                "decoding: {name}: expected {:?}, found {value:?}",
                field.value
            )));
        }
    }
    if decoded.encoded != bytes {
        let at = decoded
            .encoded
            .iter()
            .zip(&bytes)
            .take_while(|(a, b)| a == b)
            .count();
        return Err(Violation::new(format!(
            "encoding: expected {} bytes, found {}; the first difference is at offset {at}",
            bytes.len(),
            decoded.encoded.len()
        )));
    }
    against_table(vector, bytes.len())
}

fn against_table(vector: &Vector, size: usize) -> Result<(), Violation> {
    if vector.message == "stored_block" {
        let mut base = 0;
        for name in STORED_BLOCK {
            let message = entry(name)?;
            if message.at_end {
                base = size - message.size as usize;
            }
            fields_of(vector, message, base)?;
            base += message.size as usize;
        }
        return Ok(());
    }
    if vector.message == "stored_chunk" {
        let record = vector.fields.iter().find(|field| field.name == "magic");
        let base = record.map_or(0, |magic| magic.offset);
        return fields_of(vector, entry(CHUNK_RECORD)?, base);
    }
    if vector.message == "io_message_with_version" {
        let message = entry("io_message")?;
        let is_before = |field: &&wire::layout::Field| (field.offset as usize) < VERSION_OFFSET;
        let count = message.fields.iter().take_while(is_before).count();
        let before = MessageLayout {
            fields: &message.fields[..count],
            ..*message
        };
        fields_of(vector, &before, 0)?;
        return fields_of(vector, entry(VERSION)?, VERSION_OFFSET);
    }
    fields_of(vector, entry(&vector.message)?, 0)
}

fn entry(name: &str) -> Result<&'static MessageLayout, Violation> {
    TABLE
        .iter()
        .find(|message| message.name == name)
        .ok_or_else(|| Violation::new(format!("the table of offsets has no {name}")))
}

/// Checks every field of the table; the message begins at offset `base`.
fn fields_of(vector: &Vector, message: &MessageLayout, base: usize) -> Result<(), Violation> {
    // Texts and blobs lie between the fields of the table.
    let mut shift = base;
    for expected in message.fields {
        let at = expected.offset as usize + shift;
        let field = vector.fields.iter().find(|field| field.offset == at);
        let wrong = |what: String| {
            Violation::new(format!("table: {}.{}: {what}", message.name, expected.name))
        };
        let field = field.ok_or_else(|| wrong(format!("the vector has no field at {at}")))?;
        if field.bytes.len() != expected.width as usize {
            let (width, came) = (expected.width, field.bytes.len());
            return Err(wrong(format!("expected {width} bytes, found {came}")));
        }
        let named = field.name == expected.name;
        if !named {
            return Err(wrong(format!("the vector calls it {}", field.name)));
        }
        let number = number(field, expected.byte_order);
        match expected.kind {
            Kind::Constant(constant) if number != Some(constant) => {
                return Err(wrong(format!("expected {constant}, found {number:?}")));
            }
            Kind::Enumeration(values) => {
                let known = values
                    .iter()
                    .find(|(value, _)| Some(u64::from(*value)) == number);
                let known = known.ok_or_else(|| wrong(format!("{number:?} is unknown")))?;
                if known.1 != field.value {
                    return Err(wrong(format!("{number:?} is {}", known.1)));
                }
            }
            Kind::Text { max } | Kind::Blob { max } => {
                let length = number.unwrap_or(u64::MAX);
                if length > u64::from(max) {
                    return Err(wrong(format!(
                        "expected at most {max} bytes, found {length}"
                    )));
                }
                shift += length as usize;
            }
            Kind::Reserved if field.bytes.iter().any(|&byte| byte != 0) => {
                return Err(wrong(format!(
                    "expected zeros, found {}",
                    to_hex(&field.bytes)
                )));
            }
            Kind::Number if number.is_some_and(|number| field.value != number.to_string()) => {
                return Err(wrong(format!("{:?} is not {number:?}", field.value)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Number encoded in a field; `None` if it has too many bytes.
fn number(field: &Field, order: ByteOrder) -> Option<u64> {
    let shift = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    (field.bytes.len() <= 8).then(|| match order {
        ByteOrder::Big => field.bytes.iter().fold(0, shift),
        ByteOrder::Little => field.bytes.iter().rev().fold(0, shift),
    })
}

// Conversion between messages of the `wire` crate and the values in vector files.

/// Fields by name, with values formatted as in vector files, and the bytes that the crate encodes for them.
#[derive(Debug, PartialEq, Eq)]
struct Decoded {
    values: Vec<(&'static str, String)>,
    encoded: Vec<u8>,
}

/// Decodes a complete message of this name.
///
/// # Errors
///
/// The `wire` crate cannot decode it, or it is of another type.
fn decode(message: &str, bytes: &[u8]) -> Result<Decoded, Violation> {
    match message {
        "io_message" => io_message(bytes),
        "io_message_3_1" => io_message_3_1(bytes),
        "io_message_3_0" => io_message_3_0(bytes),
        "sbc_header" => sbc_header(bytes),
        "backing_header" => backing_header(bytes),
        "backing_superblock" => backing_superblock(bytes),
        "backing_loss" => backing_loss(bytes),
        "backing_reservation" => backing_reservation(bytes),
        "backing_version_slot" => backing_version_slot(bytes),
        "backing_version_tail" => backing_version_tail(bytes),
        "stored_block" => whole_stored_block(bytes),
        "stored_chunk" => stored_chunk(bytes),
        "io_message_with_version" => io_message_with_version(bytes),
        _ => control(message, bytes),
    }
}

fn control(name: &str, bytes: &[u8]) -> Result<Decoded, Violation> {
    let mut decoder = FrameDecoder::new();
    decoder.push(bytes);
    let message = decoder.next()?;
    let message = message.ok_or_else(|| Violation::new("the frame is not complete"))?;
    if decoder.buffered() != 0 {
        return Err(Violation::new(format!(
            "{} bytes follow the frame",
            decoder.buffered()
        )));
    }
    let came = message.payload.message_type();
    if message.payload.name() != name {
        return Err(Violation::new(format!(
            "it is a {}",
            message.payload.name()
        )));
    }
    let mut values = vec![
        ("length", (bytes.len() - 4).to_string()),
        ("type", came.number().to_string()),
        ("message_id", message.message_id.to_string()),
        ("correlation_id", message.correlation_id.to_string()),
    ];
    values.extend(payload(&message.payload));
    Ok(Decoded {
        values,
        encoded: Message::encode_to_vec(&message),
    })
}

fn payload(payload: &Payload) -> Vec<(&'static str, String)> {
    let connection = |details: &RdmaConnectionDetails| {
        vec![
            ("context_index", details.context_index.to_string()),
            ("role", details.role.to_string()),
            (
                "connection_details",
                details.connection_details.len().to_string(),
            ),
        ]
    };
    match payload {
        Payload::ErrorResponse(error) => vec![
            ("error_code", error.error_code.to_string()),
            ("message", error.message.len().to_string()),
        ],
        Payload::QueryStorageResponse(details) => vec![
            ("total_size", details.total_size.to_string()),
            ("block_size", details.block_size.to_string()),
        ],
        Payload::IdentifyStorageRequest(query) => vec![
            ("mark", IdentityQuery::MARK.to_string()),
            ("set_high", query.set_high.to_string()),
            ("set_low", query.set_low.to_string()),
            ("epoch", query.epoch.to_string()),
            ("epoch_id", query.epoch_id.to_string()),
            ("next_epoch", query.next_epoch.to_string()),
            ("next_epoch_id", query.next_epoch_id.to_string()),
            ("member", query.member.to_string()),
            ("state", query.state.name().to_owned()),
            ("format", query.format.to_string()),
            ("matrix", query.matrix.to_string()),
            ("logical_block_size", query.logical_block_size.to_string()),
        ],
        Payload::IdentifiedStorageResponse(storage) => vec![
            ("total_size", storage.total_size.to_string()),
            ("block_size", storage.block_size.to_string()),
            ("mark", IdentifiedStorage::MARK.to_string()),
            ("set_high", storage.set_high.to_string()),
            ("set_low", storage.set_low.to_string()),
            ("epoch", storage.epoch.to_string()),
            ("epoch_id", storage.epoch_id.to_string()),
            ("next_epoch", storage.next_epoch.to_string()),
            ("next_epoch_id", storage.next_epoch_id.to_string()),
            ("member", storage.member.to_string()),
            ("state", storage.state.name().to_owned()),
            ("format", storage.format.to_string()),
            ("matrix", storage.matrix.to_string()),
            ("logical_block_size", storage.logical_block_size.to_string()),
            ("identity", storage.identity.len().to_string()),
        ],
        Payload::AnnounceStorageRequest(query) => vec![
            ("mark", FeatureQuery::MARK.to_string()),
            ("features", query.features.to_string()),
        ],
        Payload::AnnouncedStorageResponse(storage) => vec![
            ("total_size", storage.total_size.to_string()),
            ("block_size", storage.block_size.to_string()),
            ("mark", AnnouncedStorage::MARK.to_string()),
            ("features", storage.features.to_string()),
            ("version_slots", storage.version_slots.to_string()),
            ("last_epoch", storage.last_epoch.to_string()),
            ("last_number", storage.last_number.to_string()),
            ("retired_epoch", storage.retired_epoch.to_string()),
            ("retired_number", storage.retired_number.to_string()),
            ("unretired", storage.unretired.len().to_string()),
        ],
        Payload::ReserveStorageRequest(reservation) => vec![
            ("mark", Reservation::MARK.to_string()),
            ("generation", reservation.generation.to_string()),
            ("holder_high", reservation.holder_high.to_string()),
            ("holder_low", reservation.holder_low.to_string()),
            ("name", reservation.name.len().to_string()),
        ],
        Payload::ReservedStorageResponse(storage) => vec![
            ("total_size", storage.total_size.to_string()),
            ("block_size", storage.block_size.to_string()),
            ("mark", ReservedStorage::MARK.to_string()),
            ("generation", storage.generation.to_string()),
            ("holder_high", storage.holder_high.to_string()),
            ("holder_low", storage.holder_low.to_string()),
            ("name", storage.name.len().to_string()),
        ],
        Payload::InitStorageRequest(init) => vec![
            ("transaction_count", init.transaction_count.to_string()),
            ("core_count", init.core_count.to_string()),
            ("mmap_export_blob", init.mmap_export_blob.len().to_string()),
        ],
        Payload::BatchedInitStorageRequest(init) => vec![
            ("transaction_count", init.transaction_count.to_string()),
            ("batch_size", init.batch_size.to_string()),
            ("core_count", init.core_count.to_string()),
            ("mmap_export_blob", init.mmap_export_blob.len().to_string()),
        ],
        Payload::VerifiedInitStorageResponse(verifier) => vec![
            ("mark", StorageVerifier::MARK.to_string()),
            ("identity_high", verifier.identity_high.to_string()),
            ("identity_low", verifier.identity_low.to_string()),
            ("flags", verifier.flags.to_string()),
            ("quorum", verifier.quorum.to_string()),
            ("incarnations", verifier.incarnations.len().to_string()),
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

fn io_message(bytes: &[u8]) -> Result<Decoded, Violation> {
    let view = IoMessage::new_checked(bytes)?;
    let repr = Repr::parse(&view)?;
    Ok(Decoded {
        values: vec![
            ("message_type", repr.message_type.name().to_owned()),
            ("user_data", repr.user_data.to_string()),
            ("result", repr.result.to_string()),
            ("size", repr.size.to_string()),
            ("requester_offset", repr.requester_offset.to_string()),
            ("storage_offset", repr.storage_offset.to_string()),
        ],
        encoded: repr.to_bytes().to_vec(),
    })
}

fn io_message_with_version(bytes: &[u8]) -> Result<Decoded, Violation> {
    let mut decoded = io_message(bytes)?;
    let bytes: &[u8; io_message::SIZE] = bytes
        .try_into()
        .map_err(|_| Violation::expected("64 bytes", bytes.len()))?;
    let version = Version::of(bytes);
    decoded.values.extend([
        ("epoch", version.epoch.to_string()),
        ("number", version.number.to_string()),
        ("retired", version.retired.to_string()),
    ]);
    decoded.encoded[VERSION_OFFSET..].copy_from_slice(&version.emit());
    Ok(decoded)
}

/// Also verifies the generated view, by encoding the values that it has decoded.
fn io_message_3_1(bytes: &[u8]) -> Result<Decoded, Violation> {
    let view = io_message_3_1::IoMessage::new_checked(bytes)?;
    let repr = io_message_3_1::Repr::parse(&view)?;
    Ok(Decoded {
        values: vec![
            ("message_type", repr.message_type.name().to_owned()),
            ("correlation_id", repr.correlation_id.to_string()),
            ("user_data", repr.user_data.to_string()),
            ("result", repr.result.to_string()),
            ("size", repr.size.to_string()),
            ("requester_offset", repr.requester_offset.to_string()),
            ("storage_offset", repr.storage_offset.to_string()),
        ],
        encoded: written_by(Release3_1, bytes)?,
    })
}

fn io_message_3_0(bytes: &[u8]) -> Result<Decoded, Violation> {
    let view = io_message_3_0::IoMessage::new_checked(bytes)?;
    let repr = io_message_3_0::Repr::parse(&view)?;
    let layout = Release3_0 {
        requester_address: 0x7f00_0000_0000,
    };
    Ok(Decoded {
        values: vec![
            ("message_type", repr.message_type.name().to_owned()),
            ("correlation_id", repr.correlation_id.to_string()),
            ("user_data", repr.user_data.to_string()),
            ("result", repr.result.to_string()),
            ("size", repr.size.to_string()),
            ("io_address", repr.io_address.to_string()),
            ("remote_offset", repr.remote_offset.to_string()),
        ],
        encoded: written_by(layout, bytes)?,
    })
}

/// Bytes that the interface over the releases encodes for a decoded message.
fn written_by<L: IoLayout>(layout: L, bytes: &[u8]) -> Result<Vec<u8>, Violation> {
    let bytes = bytes
        .try_into()
        .map_err(|_| Violation::expected("64 bytes", bytes.len()))?;
    let message_type = IoMessage::new_unchecked_len(bytes).message_type()?;
    let values = Repr {
        message_type,
        ..layout.answer_to(bytes)
    };
    Ok(layout
        .to_bytes(&values, L::CorrelationId::read(bytes))
        .to_vec())
}

fn sbc_header(bytes: &[u8]) -> Result<Decoded, Violation> {
    let header = sbc::Header::parse(bytes)?;
    Ok(Decoded {
        values: vec![
            ("magic", format!("{:#x}", sbc::MAGIC)),
            ("block_size", header.block_size.to_string()),
            ("block_count", header.block_count.to_string()),
        ],
        encoded: header.emit().to_vec(),
    })
}

/// Checks the checksum at the end of a record.
fn check_checksum(record: &[u8], stored: u32) -> Result<(), Violation> {
    let checksum = crc32c::crc32c(&record[..record.len() - size_of_val(&stored)]);
    if checksum == stored {
        Ok(())
    } else {
        Err(Violation::new(format!(
            "the checksum is {stored:#x}, that of the bytes is {checksum:#x}"
        )))
    }
}

fn backing_superblock(bytes: &[u8]) -> Result<Decoded, Violation> {
    let superblock = backing::Superblock::parse(bytes)?;
    check_checksum(&bytes[..backing::RECORD_SIZE], superblock.checksum)?;
    Ok(Decoded {
        values: vec![
            ("magic", format!("{:#x}", backing::Superblock::MAGIC)),
            ("sequence", superblock.sequence.to_string()),
            ("set_high", superblock.set_high.to_string()),
            ("set_low", superblock.set_low.to_string()),
            ("epoch", superblock.epoch.to_string()),
            ("epoch_id", superblock.epoch_id.to_string()),
            ("next_epoch", superblock.next_epoch.to_string()),
            ("next_epoch_id", superblock.next_epoch_id.to_string()),
            ("member", superblock.member.to_string()),
            ("state", superblock.state.to_string()),
            ("format", superblock.format.to_string()),
            ("matrix", superblock.matrix.to_string()),
            (
                "logical_block_size",
                superblock.logical_block_size.to_string(),
            ),
            ("boot_high", superblock.boot_high.to_string()),
            ("boot_low", superblock.boot_low.to_string()),
            ("checksum", superblock.checksum.to_string()),
        ],
        encoded: superblock.emit().to_vec(),
    })
}

fn backing_version_slot(bytes: &[u8]) -> Result<Decoded, Violation> {
    let slot = backing::VersionSlot::parse(bytes)?;
    Ok(Decoded {
        values: vec![
            ("magic", format!("{:#x}", backing::VersionSlot::MAGIC)),
            ("sequence", slot.sequence.to_string()),
            ("block", slot.block.to_string()),
            ("epoch", slot.epoch.to_string()),
            ("number", slot.number.to_string()),
            ("retired_epoch", slot.retired_epoch.to_string()),
            ("retired", slot.retired.to_string()),
            ("checksum", slot.checksum.to_string()),
        ],
        encoded: slot.emit().to_vec(),
    })
}

fn backing_version_tail(bytes: &[u8]) -> Result<Decoded, Violation> {
    let tail = backing::VersionTail::parse(bytes)?;
    check_checksum(bytes, tail.checksum)?;
    Ok(Decoded {
        values: vec![
            ("magic", format!("{:#x}", backing::VersionTail::MAGIC)),
            ("sequence", tail.sequence.to_string()),
            ("tail", tail.tail.to_string()),
            ("last_epoch", tail.last_epoch.to_string()),
            ("last_number", tail.last_number.to_string()),
            ("retired_epoch", tail.retired_epoch.to_string()),
            ("retired", tail.retired.to_string()),
            ("checksum", tail.checksum.to_string()),
        ],
        encoded: tail.emit().to_vec(),
    })
}

fn backing_reservation(bytes: &[u8]) -> Result<Decoded, Violation> {
    let reservation = backing::Reservation::parse(bytes)?;
    Ok(Decoded {
        values: vec![
            ("magic", format!("{:#x}", backing::Reservation::MAGIC)),
            ("sequence", reservation.sequence.to_string()),
            ("generation", reservation.generation.to_string()),
            ("holder_high", reservation.holder_high.to_string()),
            ("holder_low", reservation.holder_low.to_string()),
            ("name_length", reservation.name_length.to_string()),
            ("checksum", reservation.checksum.to_string()),
        ],
        encoded: reservation.emit().to_vec(),
    })
}

fn backing_loss(bytes: &[u8]) -> Result<Decoded, Violation> {
    let loss = backing::Loss::parse(bytes)?;
    Ok(Decoded {
        values: vec![
            ("number_high", loss.number_high.to_string()),
            ("number_low", loss.number_low.to_string()),
        ],
        encoded: loss.emit().to_vec(),
    })
}

fn backing_header(bytes: &[u8]) -> Result<Decoded, Violation> {
    let header = backing::Header::parse(bytes)?;
    check_checksum(&bytes[..backing::HEADER_SIZE], header.checksum)?;
    Ok(Decoded {
        values: vec![
            ("magic", format!("{:#x}", backing::Header::MAGIC)),
            ("version", backing::Header::VERSION.to_string()),
            ("block_size", header.block_size.to_string()),
            ("block_count", header.block_count.to_string()),
            ("content_offset", backing::CONTENT_OFFSET.to_string()),
            ("record_offset", backing::RECORD_OFFSETS[0].to_string()),
            ("identity_high", header.identity_high.to_string()),
            ("identity_low", header.identity_low.to_string()),
            ("version_slots", header.version_slots.to_string()),
            ("slot_size", header.slot_size.to_string()),
            ("slots_offset", header.slots_offset.to_string()),
            ("checksum", header.checksum.to_string()),
        ],
        encoded: header.emit().to_vec(),
    })
}

fn whole_stored_block(bytes: &[u8]) -> Result<Decoded, Violation> {
    let (header_size, trailer_size) = (stored_block::Header::SIZE, stored_block::Trailer::SIZE);
    let end = bytes
        .len()
        .checked_sub(trailer_size)
        .filter(|&end| end >= header_size + stored_block::DataBlock::SIZE)
        .ok_or_else(|| Violation::new(format!("{} bytes are too few", bytes.len())))?;
    let header = stored_block::Header::parse(&bytes[..header_size])?;
    let data = &bytes[header_size..end];
    let data_block = stored_block::DataBlock::parse(&data[..stored_block::DataBlock::SIZE])?;
    let trailer = stored_block::Trailer::parse(&bytes[end..])?;
    let content = stored_block::DataBlock::SIZE..header.compressed_size as usize;
    let lz4 = data
        .get(content)
        .ok_or_else(|| Violation::new("its LZ4 data is cut off"))?;
    let original = lz4_flex::block::decompress(lz4, header.original_size as usize)
        .map_err(|error| Violation::new(error.to_string()))?;
    if original.len() != header.original_size as usize {
        let length = original.len();
        return Err(Violation::new(format!("its content has {length} bytes")));
    }
    let mut encoded = header.emit().to_vec();
    encoded.extend(data_block.emit());
    encoded.extend(lz4);
    encoded.resize(end, 0);
    encoded.extend(trailer.emit());
    Ok(Decoded {
        values: vec![
            ("original_size", header.original_size.to_string()),
            ("compressed_size", header.compressed_size.to_string()),
            ("size_and_raw", data_block.size_and_raw.to_string()),
            ("lz4 data", to_hex(lz4)),
            ("unused", trailer.unused.to_string()),
        ],
        encoded,
    })
}

/// The record of data_1 is at the start of the chunk; those of data_2 and data_p are at the end.
fn stored_chunk(bytes: &[u8]) -> Result<Decoded, Violation> {
    let size = stored_block::ChunkRecord::SIZE;
    let is_first = bytes.starts_with(&stored_block::ChunkRecord::MAGIC.to_be_bytes());
    let payload_size = bytes
        .len()
        .checked_sub(size)
        .ok_or_else(|| Violation::expected(format_args!("at least {size} bytes"), bytes.len()))?;
    let (record, payload) = if is_first {
        bytes.split_at(size)
    } else {
        let (payload, record) = bytes.split_at(payload_size);
        (record, payload)
    };
    let values = stored_block::ChunkRecord::parse(record)?;
    if is_first != (values.member == 0) {
        return Err(Violation::new(format!(
            "the record of member {} is misplaced",
            values.member
        )));
    }
    check_checksum(&[payload, record].concat(), values.checksum)?;
    let emitted = values.emit();
    let encoded = if is_first {
        [&emitted, payload].concat()
    } else {
        [payload, &emitted].concat()
    };
    Ok(Decoded {
        values: vec![
            ("payload", to_hex(payload)),
            ("magic", format!("{:#x}", stored_block::ChunkRecord::MAGIC)),
            ("member", values.member.to_string()),
            ("set_high", values.set_high.to_string()),
            ("set_low", values.set_low.to_string()),
            ("stripe", values.stripe.to_string()),
            ("epoch", values.epoch.to_string()),
            ("number", values.number.to_string()),
            ("compressed_size", values.compressed_size.to_string()),
            ("checksum", values.checksum.to_string()),
        ],
        encoded,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const FILE: &str = r#"
        name = "a"
        message = "sbc_header"
        meaning = "b"
        [[fields]]
        name = "x"
        offset = 0
        width = 2
        bytes = "01 fF"
        value = "511"
        meaning = "c"
        [[fields]]
        name = "y"
        offset = 2
        width = 4
        bytes = "0a 0b"
        repeat = 2
        value = ""
        meaning = "d"
    "#;

    #[test]
    fn fields_are_read_and_joined() {
        let vector = parse(FILE).expect("a vector");
        assert_eq!(vector.bytes(), [1, 255, 10, 11, 10, 11]);
        assert_eq!(vector.field("y").map(|field| field.offset), Some(2));
    }

    #[test]
    fn gaps_widths_and_invalid_hexadecimal_are_reported() {
        let hexadecimal = |found: &str| Problem::Hexadecimal(found.to_owned());
        for (from, to, name, expected) in [
            (
                "offset = 2",
                "offset = 3",
                "y",
                Problem::Offset {
                    expected: 2,
                    found: 3,
                },
            ),
            (
                "width = 4",
                "width = 5",
                "y",
                Problem::Width {
                    expected: 5,
                    found: 4,
                },
            ),
            ("01 fF", "01 fG", "x", hexadecimal("01 fG")),
            ("01 fF", "1 ff", "x", hexadecimal("1 ff")),
        ] {
            match parse(&FILE.replace(from, to)).expect_err(to) {
                FileError::Field { field, problem } => {
                    assert_eq!((&*field, problem), (name, expected), "{to}");
                }
                other @ FileError::Toml(_) => panic!("{to}: {other}"),
            }
        }
        let unknown = FILE.replace("meaning = \"d\"", "mean = \"d\"");
        match parse(&unknown).expect_err("no such key") {
            FileError::Toml(error) => assert!(error.message().contains("`mean`"), "{error}"),
            other @ FileError::Field { .. } => panic!("{other}"),
        }
    }

    fn vectors() -> Vec<Vector> {
        embedded().expect("the files are vectors")
    }

    #[test]
    fn every_vector_matches() {
        for vector in vectors() {
            assert_eq!(check(&vector), Ok(()), "{}", vector.name);
        }
    }

    #[test]
    fn every_message_has_a_vector() {
        let covered: BTreeSet<String> =
            vectors().into_iter().map(|vector| vector.message).collect();
        for message in TABLE {
            let name = match message.name {
                part if STORED_BLOCK.contains(&part) => "stored_block",
                CHUNK_RECORD => "stored_chunk",
                VERSION => "io_message_with_version",
                name => name,
            };
            assert!(covered.contains(name), "{name}");
        }
    }

    #[test]
    fn edges_are_covered() {
        let names: BTreeSet<String> = vectors().into_iter().map(|vector| vector.name).collect();
        for name in [
            "error_response_empty_string",
            "error_response_longest_string",
            "init_storage_request_empty_blob",
            "init_storage_request_longest_blob",
            "create_rdma_connection_request_io_data",
            "create_rdma_connection_request_io_control",
            "create_rdma_connection_response_io_data",
            "io_message_read",
            "io_message_write",
            "io_message_result",
            "stored_block",
            "stored_chunk_data_1",
            "stored_chunk_data_2",
            "stored_chunk_data_p",
            "io_message_write_version",
            "io_message_read_before",
            "io_message_flush_with_version",
        ] {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn changed_bytes_and_values_are_detected() {
        for vector in vectors() {
            for at in 0..vector.fields.len() {
                let mut changed = vector.clone();
                changed.fields[at].bytes[0] ^= 0x40;
                // Contents of a text or a blob are arbitrary, and so are numbers that the value does not repeat.
                let content = changed.fields[at].name.ends_with("(content)");
                assert_eq!(check(&changed).is_ok(), content, "{} {at}", vector.name);
                let mut changed = vector.clone();
                changed.fields[at].value.push('1');
                let free =
                    content || matches!(&changed.fields[at].name[..], "reserved" | "padding");
                assert_eq!(check(&changed).is_ok(), free, "{} {at}", vector.name);
            }
        }
    }

    #[test]
    fn moved_field_is_detected() {
        let mut vector = vectors()
            .into_iter()
            .find(|vector| vector.name == "query_storage_response")
            .expect("there");
        let block_size = vector.fields.pop().expect("a field");
        let total_size = vector.fields.pop().expect("a field");
        vector.fields.extend([
            Field {
                offset: 16,
                ..block_size
            },
            Field {
                offset: 20,
                ..total_size
            },
        ]);
        assert!(check(&vector).is_err());
    }
}
