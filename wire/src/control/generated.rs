//! First version, to be replaced by the generator's output.
use bytes::{BufMut, Bytes, BytesMut};

use crate::DecodeError;
use crate::codec::{self, Place};

/// One control message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Number of the request; its response repeats it.
    pub message_id: u32,
    /// Number of the client's exchange, kept by everybody who takes part in it.
    pub correlation_id: u32,
    /// What the message says.
    pub payload: Payload,
}

/// What a control message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// The request failed.
    ErrorResponse(ErrorResponse),
    /// Asks what the storage holds.
    QueryStorageRequest,
    /// What the storage holds.
    QueryStorageResponse(StorageDetails),
    /// Prepares a session.
    InitStorageRequest(InitStorage),
    /// The session is prepared.
    InitStorageResponse,
    /// Offers one end of an RDMA connection.
    CreateRdmaConnectionRequest(RdmaConnectionDetails),
    /// The other end of the RDMA connection.
    CreateRdmaConnectionResponse(RdmaConnectionDetails),
    /// Starts the data path.
    StartStorageRequest,
    /// The data path runs.
    StartStorageResponse,
    /// Stops the data path.
    StopStorageRequest,
    /// The data path stands.
    StopStorageResponse,
    /// Ends the session.
    ShutdownRequest,
    /// The session is over.
    ShutdownResponse,
}

/// The type of a control message, as its frame states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum MessageType {
    /// See [`Payload::ErrorResponse`].
    ErrorResponse = 0,
    /// See [`Payload::QueryStorageRequest`].
    QueryStorageRequest = 1,
    /// See [`Payload::QueryStorageResponse`].
    QueryStorageResponse = 2,
    /// See [`Payload::InitStorageRequest`].
    InitStorageRequest = 3,
    /// See [`Payload::InitStorageResponse`].
    InitStorageResponse = 4,
    /// See [`Payload::CreateRdmaConnectionRequest`].
    CreateRdmaConnectionRequest = 5,
    /// See [`Payload::CreateRdmaConnectionResponse`].
    CreateRdmaConnectionResponse = 6,
    /// See [`Payload::StartStorageRequest`].
    StartStorageRequest = 7,
    /// See [`Payload::StartStorageResponse`].
    StartStorageResponse = 8,
    /// See [`Payload::StopStorageRequest`].
    StopStorageRequest = 9,
    /// See [`Payload::StopStorageResponse`].
    StopStorageResponse = 10,
    /// See [`Payload::ShutdownRequest`].
    ShutdownRequest = 11,
    /// See [`Payload::ShutdownResponse`].
    ShutdownResponse = 12,
}

impl MessageType {
    /// Every type, in the order of their numbers.
    pub const ALL: [MessageType; 13] = [
        Self::ErrorResponse,
        Self::QueryStorageRequest,
        Self::QueryStorageResponse,
        Self::InitStorageRequest,
        Self::InitStorageResponse,
        Self::CreateRdmaConnectionRequest,
        Self::CreateRdmaConnectionResponse,
        Self::StartStorageRequest,
        Self::StartStorageResponse,
        Self::StopStorageRequest,
        Self::StopStorageResponse,
        Self::ShutdownRequest,
        Self::ShutdownResponse,
    ];

    /// The name in the schema.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ErrorResponse => "error_response",
            Self::QueryStorageRequest => "query_storage_request",
            Self::QueryStorageResponse => "query_storage_response",
            Self::InitStorageRequest => "init_storage_request",
            Self::InitStorageResponse => "init_storage_response",
            Self::CreateRdmaConnectionRequest => "create_rdma_connection_request",
            Self::CreateRdmaConnectionResponse => "create_rdma_connection_response",
            Self::StartStorageRequest => "start_storage_request",
            Self::StartStorageResponse => "start_storage_response",
            Self::StopStorageRequest => "stop_storage_request",
            Self::StopStorageResponse => "stop_storage_response",
            Self::ShutdownRequest => "shutdown_request",
            Self::ShutdownResponse => "shutdown_response",
        }
    }

    /// The number in the frame.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }
}

impl std::fmt::Display for MessageType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl TryFrom<u32> for MessageType {
    type Error = DecodeError;

    fn try_from(number: u32) -> Result<Self, DecodeError> {
        usize::try_from(number)
            .ok()
            .and_then(|index| Self::ALL.get(index).copied())
            .ok_or(DecodeError::UnknownValue {
                message: "frame",
                field: "type",
                expected: "a message type of 0 to 12",
                came: u64::from(number),
            })
    }
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorResponse {
    /// `doca_error_t` of the failure.
    pub error_code: u32,
    /// Explanation for people.
    pub message: String,
}

/// What a storage holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageDetails {
    /// Capacity in bytes.
    pub total_size: u64,
    /// Bytes per block.
    pub block_size: u32,
}

/// What a session needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitStorage {
    /// Transactions per core.
    pub transaction_count: u32,
    /// Number of cores, which is the number of worker threads.
    pub core_count: u32,
    /// Export of the requester's memory map.
    pub mmap_export_blob: Bytes,
}

/// One end of an RDMA connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaConnectionDetails {
    /// Index of the worker.
    pub context_index: u32,
    /// What the connection carries.
    pub role: RdmaConnectionRole,
    /// Export of the RDMA context.
    pub connection_details: Bytes,
}

/// What an RDMA connection carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum RdmaConnectionRole {
    /// Blocks.
    IoData = 0,
    /// I/O messages.
    IoControl = 1,
}

impl std::fmt::Display for RdmaConnectionRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::IoData => "io_data",
            Self::IoControl => "io_control",
        })
    }
}

impl Payload {
    /// The type that the frame states.
    #[must_use]
    pub const fn message_type(&self) -> MessageType {
        match self {
            Self::ErrorResponse(_) => MessageType::ErrorResponse,
            Self::QueryStorageRequest => MessageType::QueryStorageRequest,
            Self::QueryStorageResponse(_) => MessageType::QueryStorageResponse,
            Self::InitStorageRequest(_) => MessageType::InitStorageRequest,
            Self::InitStorageResponse => MessageType::InitStorageResponse,
            Self::CreateRdmaConnectionRequest(_) => MessageType::CreateRdmaConnectionRequest,
            Self::CreateRdmaConnectionResponse(_) => MessageType::CreateRdmaConnectionResponse,
            Self::StartStorageRequest => MessageType::StartStorageRequest,
            Self::StartStorageResponse => MessageType::StartStorageResponse,
            Self::StopStorageRequest => MessageType::StopStorageRequest,
            Self::StopStorageResponse => MessageType::StopStorageResponse,
            Self::ShutdownRequest => MessageType::ShutdownRequest,
            Self::ShutdownResponse => MessageType::ShutdownResponse,
        }
    }
}

impl Message {
    /// Appends the frame of this message.
    ///
    /// A text over its limit is cut between two characters. A blob over its limit is written as it is; the peer
    /// refuses it.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut payload = BytesMut::new();
        match &self.payload {
            Payload::ErrorResponse(p) => {
                payload.put_u32(p.error_code);
                let text = codec::cut(&p.message, 4096);
                payload.put_u32(text.len() as u32);
                payload.put_slice(text);
            }
            Payload::QueryStorageResponse(p) => {
                payload.put_u64(p.total_size);
                payload.put_u32(p.block_size);
            }
            Payload::InitStorageRequest(p) => {
                payload.put_u32(p.transaction_count);
                payload.put_u32(p.core_count);
                payload.put_u32(p.mmap_export_blob.len() as u32);
                payload.put_slice(&p.mmap_export_blob);
            }
            Payload::CreateRdmaConnectionRequest(p) | Payload::CreateRdmaConnectionResponse(p) => {
                payload.put_u32(p.context_index);
                payload.put_u32(p.role as u32);
                payload.put_u32(p.connection_details.len() as u32);
                payload.put_slice(&p.connection_details);
            }
            _ => {}
        }
        out.put_u32(12 + payload.len() as u32);
        out.put_u32(self.payload.message_type().number());
        out.put_u32(self.message_id);
        out.put_u32(self.correlation_id);
        out.put_slice(&payload);
    }
}

pub(super) mod frame {
    use nom::number::complete::{be_u32, be_u64};

    use super::*;

    pub(crate) const MAX_SIZE: u32 = 65536;

    /// Size of the frame at the beginning of `input`, `None` while its length has not arrived.
    pub(crate) fn size(input: &[u8]) -> Result<Option<usize>, DecodeError> {
        let place = Place {
            message: "frame",
            field: "length",
        };
        let Ok((_, length)) = codec::number(input, place, 4, be_u32) else {
            return Ok(None);
        };
        codec::in_range(place, u64::from(length), 12, u64::from(MAX_SIZE - 4))?;
        Ok(Some(4 + length as usize))
    }

    /// Decodes one complete frame.
    pub(crate) fn decode(frame: &Bytes) -> Result<Message, DecodeError> {
        let at = |field| Place {
            message: "frame",
            field,
        };
        let (rest, _length) = codec::number(frame, at("length"), 4, be_u32)?;
        let (rest, number) = codec::number(rest, at("type"), 4, be_u32)?;
        let (rest, message_id) = codec::number(rest, at("message_id"), 4, be_u32)?;
        let (rest, correlation_id) = codec::number(rest, at("correlation_id"), 4, be_u32)?;
        let kind = MessageType::try_from(number)?;
        let at = |field| Place {
            message: kind.name(),
            field,
        };
        let (rest, payload) = match kind {
            MessageType::ErrorResponse => {
                let (rest, error_code) = codec::number(rest, at("error_code"), 4, be_u32)?;
                let (rest, length) = codec::number(rest, at("message"), 4, be_u32)?;
                let (rest, text) = codec::run(rest, at("message"), length, 4096)?;
                let message = codec::text(text);
                (
                    rest,
                    Payload::ErrorResponse(ErrorResponse {
                        error_code,
                        message,
                    }),
                )
            }
            MessageType::QueryStorageRequest => (rest, Payload::QueryStorageRequest),
            MessageType::QueryStorageResponse => {
                let (rest, total_size) = codec::number(rest, at("total_size"), 8, be_u64)?;
                let (rest, block_size) = codec::number(rest, at("block_size"), 4, be_u32)?;
                (
                    rest,
                    Payload::QueryStorageResponse(StorageDetails {
                        total_size,
                        block_size,
                    }),
                )
            }
            MessageType::InitStorageRequest => {
                let (rest, transaction_count) =
                    codec::number(rest, at("transaction_count"), 4, be_u32)?;
                let (rest, core_count) = codec::number(rest, at("core_count"), 4, be_u32)?;
                let (rest, length) = codec::number(rest, at("mmap_export_blob"), 4, be_u32)?;
                let (rest, blob) = codec::run(rest, at("mmap_export_blob"), length, 32768)?;
                let mmap_export_blob = codec::share(frame, blob);
                (
                    rest,
                    Payload::InitStorageRequest(InitStorage {
                        transaction_count,
                        core_count,
                        mmap_export_blob,
                    }),
                )
            }
            MessageType::InitStorageResponse => (rest, Payload::InitStorageResponse),
            MessageType::CreateRdmaConnectionRequest
            | MessageType::CreateRdmaConnectionResponse => {
                let (rest, context_index) = codec::number(rest, at("context_index"), 4, be_u32)?;
                let (rest, role) = codec::number(rest, at("role"), 4, be_u32)?;
                let role = match role {
                    0 => RdmaConnectionRole::IoData,
                    1 => RdmaConnectionRole::IoControl,
                    other => {
                        return Err(DecodeError::UnknownValue {
                            message: kind.name(),
                            field: "role",
                            expected: "0 (io_data) or 1 (io_control)",
                            came: u64::from(other),
                        });
                    }
                };
                let (rest, length) = codec::number(rest, at("connection_details"), 4, be_u32)?;
                let (rest, blob) = codec::run(rest, at("connection_details"), length, 32768)?;
                let details = RdmaConnectionDetails {
                    context_index,
                    role,
                    connection_details: codec::share(frame, blob),
                };
                let payload = if kind == MessageType::CreateRdmaConnectionRequest {
                    Payload::CreateRdmaConnectionRequest(details)
                } else {
                    Payload::CreateRdmaConnectionResponse(details)
                };
                (rest, payload)
            }
            MessageType::StartStorageRequest => (rest, Payload::StartStorageRequest),
            MessageType::StartStorageResponse => (rest, Payload::StartStorageResponse),
            MessageType::StopStorageRequest => (rest, Payload::StopStorageRequest),
            MessageType::StopStorageResponse => (rest, Payload::StopStorageResponse),
            MessageType::ShutdownRequest => (rest, Payload::ShutdownRequest),
            MessageType::ShutdownResponse => (rest, Payload::ShutdownResponse),
        };
        codec::end(rest, kind.name())?;
        Ok(Message {
            message_id,
            correlation_id,
            payload,
        })
    }
}
