//! Messages of every kind, for checks that do not care what they carry.

use bytes::Bytes;
use wire::control::{
    ErrorResponse, InitStorage, Message, Payload, RdmaConnectionDetails, RdmaConnectionRole,
    StorageDetails,
};
use wire::io_message::{IoMessage, IoMessageType, Repr, SIZE};

use crate::role::Wrong;

/// A result, from its bytes.
pub(super) fn parse(bytes: &[u8; SIZE]) -> Result<Repr, Wrong> {
    let result = Repr::parse(&IoMessage::new_unchecked_len(bytes))?;
    Wrong::unless(
        result.message_type == IoMessageType::Result,
        "a message of type result",
        result.message_type,
    )?;
    Ok(result)
}

/// A message of every type, in the order of their numbers. What they carry makes no sense.
pub(super) fn one_of_each() -> Vec<Payload> {
    let connection = RdmaConnectionDetails {
        context_index: 0,
        role: RdmaConnectionRole::IoData,
        connection_details: Bytes::from_static(b"none"),
    };
    vec![
        Payload::ErrorResponse(ErrorResponse {
            error_code: 18,
            message: "the service has a problem".to_owned(),
        }),
        Payload::QueryStorageRequest,
        Payload::QueryStorageResponse(StorageDetails {
            total_size: 1 << 20,
            block_size: 4096,
        }),
        Payload::InitStorageRequest(InitStorage {
            transaction_count: 1,
            core_count: 1,
            mmap_export_blob: Bytes::from_static(b"none"),
        }),
        Payload::InitStorageResponse,
        Payload::CreateRdmaConnectionRequest(connection.clone()),
        Payload::CreateRdmaConnectionResponse(connection),
        Payload::StartStorageRequest,
        Payload::StartStorageResponse,
        Payload::StopStorageRequest,
        Payload::StopStorageResponse,
        Payload::ShutdownRequest,
        Payload::ShutdownResponse,
    ]
}

/// Whether it says that something is wrong, and has a code for it.
pub(super) fn is_error(payload: &Payload) -> bool {
    matches!(payload, Payload::ErrorResponse(error) if error.error_code != 0)
}

/// Whether it refuses this request.
pub(super) fn is_refusal(answer: &Message, request: &Message) -> bool {
    let ids = |message: &Message| (message.message_id, message.correlation_id);
    is_error(&answer.payload) && ids(answer) == ids(request)
}

/// A payload in a few words.
pub(super) fn describe(payload: &Payload) -> String {
    match payload {
        Payload::ErrorResponse(ErrorResponse {
            error_code,
            message,
        }) => format!("error_response {error_code} ({message})"),
        Payload::CreateRdmaConnectionResponse(RdmaConnectionDetails {
            context_index,
            role,
            ..
        }) => format!("create_rdma_connection_response of context {context_index}, {role}"),
        other => other.message_type().to_string(),
    }
}
