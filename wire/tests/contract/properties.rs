//! Properties of all messages, and of arbitrary bytes; the two encodings that are not used on the wire: prost's for
//! recordings, and JSON.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;
use serde_json::json;
use wire::control::{
    ErrorResponse, FrameDecoder, InitStorage, Message, Payload, RdmaConnectionDetails,
    RdmaConnectionRole, StorageDetails,
};
use wire::io_message::{IoMessage, IoMessageType, Repr, SIZE};
use wire::{DecodeError, control, recording, sbc, stored_block};

use crate::{decode, vectors};

fn blob() -> impl Strategy<Value = Bytes> {
    // Usually short, up to the limit.
    prop_oneof![
        8 => vec(any::<u8>(), 0..64),
        1 => vec(any::<u8>(), 0..=32768),
    ]
    .prop_map(Bytes::from)
}

fn rdma_connection() -> impl Strategy<Value = RdmaConnectionDetails> {
    let role = prop::sample::select(RdmaConnectionRole::ALL.as_slice());
    (any::<u32>(), role, blob()).prop_map(|(context_index, role, connection_details)| {
        RdmaConnectionDetails {
            context_index,
            role,
            connection_details,
        }
    })
}

fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        (any::<u32>(), any::<String>()).prop_map(|(error_code, message)| {
            Payload::ErrorResponse(ErrorResponse {
                error_code,
                message,
            })
        }),
        (any::<u64>(), any::<u32>()).prop_map(|(total_size, block_size)| {
            Payload::QueryStorageResponse(StorageDetails {
                total_size,
                block_size,
            })
        }),
        (any::<u32>(), any::<u32>(), blob()).prop_map(
            |(transaction_count, core_count, mmap_export_blob)| {
                Payload::InitStorageRequest(InitStorage {
                    transaction_count,
                    core_count,
                    mmap_export_blob,
                })
            }
        ),
        rdma_connection().prop_map(Payload::CreateRdmaConnectionRequest),
        rdma_connection().prop_map(Payload::CreateRdmaConnectionResponse),
        prop::sample::select(vec![
            Payload::QueryStorageRequest,
            Payload::InitStorageResponse,
            Payload::StartStorageRequest,
            Payload::StartStorageResponse,
            Payload::StopStorageRequest,
            Payload::StopStorageResponse,
            Payload::ShutdownRequest,
            Payload::ShutdownResponse,
        ]),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    (any::<u32>(), any::<u32>(), payload()).prop_map(|(message_id, correlation_id, payload)| {
        Message {
            message_id,
            correlation_id,
            payload,
        }
    })
}

fn io_message() -> impl Strategy<Value = Repr> {
    let message_type = prop::sample::select(IoMessageType::ALL.as_slice());
    let values = any::<(u64, u32, u32, u64, u64)>();
    (message_type, values).prop_map(
        |(message_type, (user_data, result, size, requester_offset, storage_offset))| Repr {
            message_type,
            user_data,
            result,
            size,
            requester_offset,
            storage_offset,
        },
    )
}

/// Valid frames with a few bytes overwritten.
fn damaged_stream() -> impl Strategy<Value = Vec<u8>> {
    let damage = vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (vec(message(), 1..4), damage).prop_map(|(messages, damage)| {
        let mut stream: Vec<_> = messages.iter().flat_map(Message::encode_to_vec).collect();
        for (at, value) in damage {
            let at = at.index(stream.len());
            stream[at] = value;
        }
        stream
    })
}

proptest! {
    #[test]
    fn messages_round_trip(messages in vec(message(), 1..4), sizes in vec(1_usize..5000, 1..8)) {
        let stream: Vec<_> = messages.iter().flat_map(Message::encode_to_vec).collect();
        let mut decoder = FrameDecoder::new();
        let mut found = Vec::new();
        let mut rest = stream.as_slice();
        for size in sizes.into_iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (segment, after) = rest.split_at(size.min(rest.len()));
            decoder.push(segment);
            while let Some(message) = decoder.next().expect("sound frames") {
                found.push(message);
            }
            rest = after;
        }
        prop_assert_eq!(found, messages);
        prop_assert_eq!(decoder.buffered(), 0);
    }

    #[test]
    fn accepted_frames_reencode_identically(stream in damaged_stream()) {
        let mut decoder = FrameDecoder::new();
        decoder.push(&stream);
        let mut rest = stream.as_slice();
        while let Ok(Some(message)) = decoder.next() {
            let frame = message.encode_to_vec();
            let (length, _) = rest.split_first_chunk().expect("the length of a frame");
            let (found, after) = rest.split_at(4 + u32::from_be_bytes(*length) as usize);
            if matches!(message.payload, Payload::ErrorResponse(_)) {
                // Invalid UTF-8 takes up to three bytes for each invalid byte.
                prop_assert!(frame.len() <= 3 * found.len());
            } else {
                prop_assert_eq!(found, frame);
            }
            rest = after;
        }
    }

    #[test]
    fn any_bytes_are_frames_or_refused(bytes in vec(any::<u8>(), 0..256), length in 12_u32..256) {
        // Unchanged, and with a valid length so that the decoder continues.
        let _ = decode(&bytes);
        let mut stream = length.to_be_bytes().to_vec();
        stream.extend([0, 0, 0]);
        stream.extend(bytes);
        let _ = decode(&stream);
    }

    #[test]
    fn io_messages_round_trip(values in io_message()) {
        let bytes = values.to_bytes();
        let view = IoMessage::new_checked(bytes.as_slice()).expect("64 bytes");
        prop_assert_eq!(Repr::parse(&view), Ok(values));
    }

    #[test]
    fn any_64_bytes_are_an_io_message_or_refused(bytes in any::<[[u8; 32]; 2]>(), number in 0_u8..4) {
        let mut bytes: [u8; SIZE] = bytes.concat().try_into().expect("64 bytes");
        bytes[..4].copy_from_slice(&[0, 0, 0, number]);
        let view = IoMessage::new_unchecked_len(&bytes);
        match Repr::parse(&view) {
            Ok(values) => {
                // The fields are the same; reserved bytes are zeros.
                bytes[4..8].fill(0);
                bytes[40..].fill(0);
                prop_assert_eq!(values.to_bytes(), bytes);
            }
            Err(_) => prop_assert_eq!(number, 3),
        }
    }

    #[test]
    fn any_bytes_are_a_record_or_refused(bytes in vec(any::<u8>(), 0..32)) {
        if let Ok(header) = stored_block::Header::parse(&bytes) {
            prop_assert!(bytes.starts_with(&header.emit()));
        }
        if let Ok(data_block) = stored_block::DataBlock::parse(&bytes) {
            prop_assert!(bytes.starts_with(&data_block.emit()));
        }
        let mut file = sbc::MAGIC.to_be_bytes().to_vec();
        file.extend(&bytes);
        if let Ok(header) = sbc::Header::parse(&file) {
            prop_assert!(file.starts_with(&header.emit()));
            prop_assert!(header.content_size() <= sbc::MAX_CONTENT);
        }
    }
}

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
            error.is_data() && error.to_string().contains(&format!("{blob:?}")),
            "{error}"
        );
    }
}
