//! The two encodings that are never on the wire: prost's for recordings, and JSON.

use crate::common::vectors;
use prost::Message as _;
use serde_json::json;
use wire::{
    DecodeError, control,
    io_message::{IoMessageType, Repr},
    recording,
};

#[test]
fn control_messages_survive_a_recording() {
    for (message, _) in vectors() {
        let bytes = recording::control::Message::from(&message).encode_to_vec();
        let recorded =
            recording::control::Message::decode(bytes.as_slice()).expect("our own recording");
        assert_eq!(control::Message::try_from(recorded), Ok(message));
    }
}

#[test]
fn io_messages_survive_a_recording() {
    let message = Repr {
        message_type: IoMessageType::Read,
        user_data: u64::MAX,
        result: 3,
        size: 4096,
        requester_offset: 1,
        storage_offset: 2,
    };
    let recorded = recording::io_message::IoMessage::from(&message);
    assert_eq!(Repr::try_from(recorded), Ok(message));
}

#[test]
fn recording_without_a_payload_is_refused() {
    let error = control::Message::try_from(recording::control::Message::default());
    let expected = DecodeError::Missing {
        message: "frame",
        field: "payload",
    };
    assert_eq!(error, Err(expected));
}

#[test]
fn recording_with_an_unknown_value_is_refused() {
    for found in [2, -1] {
        let details = recording::control::RdmaConnectionDetails {
            role: found,
            ..Default::default()
        };
        let error = control::RdmaConnectionDetails::try_from(details).expect_err("no such role");
        assert!(
            matches!(error, DecodeError::UnknownValue { field: "role", .. }),
            "{error}"
        );
    }
}

#[test]
fn json_has_the_names_of_the_schema_and_hexadecimal_blobs() {
    let is_wanted = |message: &control::Message| {
        let kind = message.payload.message_type();
        kind == control::MessageType::CreateRdmaConnectionRequest && message.message_id == 5
    };
    let mut vectors = vectors().into_iter();
    let (message, _) = (vectors.find(|(message, _)| is_wanted(message))).expect("a vector");
    let expected = json!({
        "message_id": 5,
        "correlation_id": 6,
        "payload": {
            "create_rdma_connection_request": {
                "context_index": 0x0A0B_0C0D,
                "role": "io_data",
                "connection_details": "010203"
            }
        }
    });
    assert_eq!(
        serde_json::to_value(&message).expect("no map in it"),
        expected
    );
}

#[test]
fn json_is_read_back() {
    for (message, _) in vectors() {
        let text = serde_json::to_string(&message).expect("no map in it");
        let found: control::Message = serde_json::from_str(&text).expect("our own JSON");
        assert_eq!(found, message);
    }
}

#[test]
fn json_with_odd_digits_is_refused() {
    for blob in ["1", "0g", "é"] {
        let text = json!({ "transaction_count": 1, "core_count": 1, "mmap_export_blob": blob })
            .to_string();
        let error = serde_json::from_str::<control::InitStorage>(&text).expect_err("no bytes");
        assert!(
            error
                .to_string()
                .contains("an even number of hexadecimal digits"),
            "{error}"
        );
    }
}
