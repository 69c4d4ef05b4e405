//! The fields of a message, by name: what is shown and compared.

use std::fmt;

use bytes::Bytes;
use wire::control::{IdentityQuery, Payload, RdmaConnectionDetails};

/// Most bytes of a blob that are shown.
const SHOWN_BYTES: usize = 12;

/// A field of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name in the schema.
    pub name: &'static str,
    /// What it holds.
    pub value: Value,
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// One of a few names.
    Name(&'static str),
    /// A text for people.
    Text(String),
    /// Bytes that only DOCA understands, and only while what they describe lives.
    Blob(Bytes),
}

/// The fields of a payload, in the order of the wire.
pub fn fields(payload: &Payload) -> Vec<Field> {
    let number = |name, value: u64| Field {
        name,
        value: Value::Number(value),
    };
    let blob = |name, value: &Bytes| Field {
        name,
        value: Value::Blob(value.clone()),
    };
    // Of a request and of an answer, which have the same fields for it.
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
            number("flags", query.flags.into()),
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
            superblock(&IdentityQuery {
                set_high: storage.set_high,
                set_low: storage.set_low,
                epoch: storage.epoch,
                epoch_id: storage.epoch_id,
                next_epoch: storage.next_epoch,
                next_epoch_id: storage.next_epoch_id,
                member: storage.member,
                state: storage.state,
                flags: storage.flags,
            }),
            vec![blob("identity", &storage.identity)],
        ]
        .concat(),
        Payload::AnnounceStorageRequest(query) => vec![number("features", query.features.into())],
        Payload::AnnouncedStorageResponse(storage) => vec![
            number("total_size", storage.total_size),
            number("block_size", storage.block_size.into()),
            number("features", storage.features.into()),
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
