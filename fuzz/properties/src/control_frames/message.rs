//! Any message, described in few bytes.

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use wire::control::{
    AnnouncedStorage, ErrorResponse, FeatureQuery, IdentifiedStorage, IdentityQuery, InitStorage,
    Message, Payload, RdmaConnectionDetails, RdmaConnectionRole, RecordState, StorageDetails,
};
use wire::layout::{Kind, TABLE};

/// A message.
#[derive(Debug, Clone, Arbitrary)]
pub struct AnyMessage {
    message_id: u32,
    correlation_id: u32,
    payload: AnyPayload,
}

/// A payload.
#[derive(Debug, Clone, Arbitrary)]
#[expect(missing_docs, reason = "the names are those of the protocol")]
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
    AnnounceStorageRequest {
        features: u32,
    },
    AnnouncedStorageResponse {
        total_size: u64,
        block_size: u32,
        features: u32,
    },
    InitStorageRequest {
        transaction_count: u32,
        core_count: u32,
        blob: Blob,
    },
    InitStorageResponse,
    CreateRdmaConnectionRequest(RdmaConnection),
    CreateRdmaConnectionResponse(RdmaConnection),
    StartStorageRequest,
    StartStorageResponse,
    StopStorageRequest,
    StopStorageResponse,
    ShutdownRequest,
    ShutdownResponse,
}

/// A storage's superblock.
#[derive(Debug, Clone, Arbitrary)]
pub struct Superblock {
    set: (u64, u64),
    epoch: (u64, u64),
    next: (u64, u64),
    member: u32,
    state: u8,
    checksums: bool,
}

impl Superblock {
    fn state(&self) -> RecordState {
        RecordState::ALL[usize::from(self.state) % RecordState::ALL.len()]
    }
}

/// One end of a connection.
#[derive(Debug, Clone, Arbitrary)]
pub struct RdmaConnection {
    context_index: u32,
    is_control: bool,
    blob: Blob,
}

/// Bytes, repeated so that few of them make a long blob.
#[derive(Debug, Clone, Arbitrary)]
pub struct Blob {
    bytes: Vec<u8>,
    repeat: u16,
}

/// Text, repeated likewise.
#[derive(Debug, Clone, Arbitrary)]
pub struct Text {
    text: String,
    repeat: u16,
}

/// Bytes that a repeated text or blob reaches at most: more than the largest frame.
const LONGEST: usize = Message::MAX_FRAME_SIZE + 100;

fn times(repeat: u16, length: usize) -> usize {
    let most = LONGEST.checked_div(length).unwrap_or(0);
    // Mostly not repeated: the two low bits say whether.
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

/// Longest text and longest blob of the protocol.
static LIMITS: LazyLock<(usize, usize)> = LazyLock::new(|| {
    let (mut text, mut blob) = (0, 0);
    for field in TABLE.iter().flat_map(|message| message.fields) {
        match field.kind {
            Kind::Text { max } => text = text.max(max as usize),
            Kind::Blob { max } => blob = blob.max(max as usize),
            _ => {}
        }
    }
    (text, blob)
});

impl AnyMessage {
    /// The shortest message.
    pub(super) fn default_request() -> Message {
        Message {
            message_id: 1,
            correlation_id: 1,
            payload: Payload::QueryStorageRequest,
        }
    }

    /// Whether it is accepted. A text over its limit is: it is cut when it is written.
    #[must_use]
    pub fn is_within_limits(&self) -> bool {
        match &self.payload {
            AnyPayload::InitStorageRequest { blob, .. }
            | AnyPayload::CreateRdmaConnectionRequest(RdmaConnection { blob, .. })
            | AnyPayload::CreateRdmaConnectionResponse(RdmaConnection { blob, .. }) => {
                blob.bytes().len() <= LIMITS.1
            }
            _ => true,
        }
    }

    /// As the other end gets it.
    #[must_use]
    pub fn as_received(&self) -> Message {
        let mut message = Message::from(self);
        if let Payload::ErrorResponse(ErrorResponse { message: text, .. }) = &mut message.payload {
            let mut end = text.len().min(LIMITS.0);
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
                Payload::IdentifyStorageRequest(IdentityQuery {
                    set_high: superblock.set.0,
                    set_low: superblock.set.1,
                    epoch: superblock.epoch.0,
                    epoch_id: superblock.epoch.1,
                    next_epoch: superblock.next.0,
                    next_epoch_id: superblock.next.1,
                    member: superblock.member,
                    state: superblock.state(),
                    flags: superblock.checksums.into(),
                })
            }
            AnyPayload::IdentifiedStorageResponse {
                total_size,
                block_size,
                superblock,
                identity,
            } => Payload::IdentifiedStorageResponse(IdentifiedStorage {
                total_size: *total_size,
                block_size: *block_size,
                set_high: superblock.set.0,
                set_low: superblock.set.1,
                epoch: superblock.epoch.0,
                epoch_id: superblock.epoch.1,
                next_epoch: superblock.next.0,
                next_epoch_id: superblock.next.1,
                member: superblock.member,
                state: superblock.state(),
                flags: superblock.checksums.into(),
                identity: identity.to_vec().into(),
            }),
            &AnyPayload::AnnounceStorageRequest { features } => {
                Payload::AnnounceStorageRequest(FeatureQuery { features })
            }
            &AnyPayload::AnnouncedStorageResponse {
                total_size,
                block_size,
                features,
            } => Payload::AnnouncedStorageResponse(AnnouncedStorage {
                total_size,
                block_size,
                features,
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
