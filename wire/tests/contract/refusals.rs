//! Invalid control frames are refused, with the expected and the actual value.

use crate::{decode, hex, vectors};
use bytes::Bytes;
use wire::{
    DecodeError,
    control::{ErrorResponse, FrameDecoder, InitStorage, Message, Payload},
};

/// Maximum length of the text of an error response, in bytes.
const MAX_TEXT: usize = 4096;
/// Maximum length of a blob, in bytes.
const MAX_BLOB: usize = 32768;

fn frame(message_type: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(12 + payload.len()).expect("a small payload");
    let mut frame = Vec::new();
    for number in [length, message_type, 1, 2] {
        frame.extend(number.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

#[track_caller]
fn assert_refused(bytes: &[u8], expected: DecodeError, text: &str) {
    let error = decode(bytes).expect_err("no frame of the protocol");
    assert_eq!(error, expected);
    assert_eq!(error.to_string(), text);
}

#[test]
fn unknown_type() {
    for found in [13, u32::MAX] {
        assert_refused(
            &frame(found, &[]),
            DecodeError::UnknownValue {
                message: "frame",
                field: "type",
                expected: "one of 13 values from 0 (error_response) to 12 (shutdown_response)",
                found: u64::from(found),
            },
            &format!(
                "frame.type: expected one of 13 values from 0 (error_response) to 12 (shutdown_response), got {found}"
            ),
        );
    }
}

#[test]
fn unknown_role() {
    assert_refused(
        &frame(5, &hex("00000000 00000002 00000000")),
        DecodeError::UnknownValue {
            message: "create_rdma_connection_request",
            field: "role",
            expected: "0 (io_data) or 1 (io_control)",
            found: 2,
        },
        "create_rdma_connection_request.role: expected 0 (io_data) or 1 (io_control), got 2",
    );
}

#[test]
fn frame_shorter_than_its_header() {
    for found in 0..12 {
        // The length alone suffices to refuse the frame.
        assert_refused(
            &hex(&format!("{found:08x}")),
            DecodeError::OutOfRange {
                message: "frame",
                field: "length",
                min: 12,
                max: 65532,
                found,
            },
            &format!("frame.length: expected 12 to 65532, got {found}"),
        );
    }
}

#[test]
fn frame_over_the_limit_is_refused_by_its_length_alone() {
    for found in [65533, u64::from(u32::MAX)] {
        assert_refused(
            &hex(&format!("{found:08x}")),
            DecodeError::OutOfRange {
                message: "frame",
                field: "length",
                min: 12,
                max: 65532,
                found,
            },
            &format!("frame.length: expected 12 to 65532, got {found}"),
        );
    }
    // The decoder waits for a frame of the largest length.
    assert_eq!(decode(&hex("0000fffc")), Ok(vec![]));
}

#[test]
fn bytes_after_the_last_field() {
    for (message, mut bytes) in vectors() {
        bytes.push(0);
        bytes[3] += 1;
        if let Payload::BatchedInitStorageRequest(_) = message.payload {
            // The error is that of the layout tried first.
            decode(&bytes).expect_err("too long for either layout");
            continue;
        }
        let name = message.payload.message_type().name();
        assert_refused(
            &bytes,
            DecodeError::TrailingBytes {
                message: name,
                found: 1,
            },
            &format!("{name}: expected no bytes after the last field, got 1"),
        );
    }
}

#[test]
fn frame_that_ends_inside_a_field() {
    assert_refused(
        &frame(2, &hex("0000000000001000 0000")),
        DecodeError::Truncated {
            message: "query_storage_response",
            field: "block_size",
            expected: 4,
            found: 2,
        },
        "query_storage_response.block_size: expected 4 bytes, got 2",
    );
    // A truncated payload is refused, and bytes of the next frame are not used in its place.
    for (message, bytes) in vectors() {
        // A truncated frame of 3.0 may be a valid one of 3.2.
        if let Payload::BatchedInitStorageRequest(_) = message.payload {
            continue;
        }
        for size in 16..bytes.len() {
            let mut stream = frame(message.payload.message_type().number(), &bytes[16..size]);
            stream.extend(&bytes);
            let error = decode(&stream).expect_err("a part of a payload is none");
            assert!(matches!(error, DecodeError::Truncated { .. }), "{error}");
        }
    }
}

#[test]
fn blob_that_claims_more_than_the_frame_holds() {
    assert_refused(
        &frame(3, &hex("00000001 00000001 00000004 010203")),
        DecodeError::Truncated {
            message: "init_storage_request",
            field: "mmap_export_blob",
            expected: 4,
            found: 3,
        },
        "init_storage_request.mmap_export_blob: expected 4 bytes, got 3",
    );
}

#[test]
fn text_and_blob_over_their_limits() {
    for (message_type, message, field, head, max) in [
        (0, "error_response", "message", "00000001", MAX_TEXT),
        (
            3,
            "init_storage_request",
            "mmap_export_blob",
            "00000001 00000001",
            MAX_BLOB,
        ),
        (
            5,
            "create_rdma_connection_request",
            "connection_details",
            "00000001 00000001",
            MAX_BLOB,
        ),
        (
            6,
            "create_rdma_connection_response",
            "connection_details",
            "00000001 00000001",
            MAX_BLOB,
        ),
    ] {
        let payload = |length: usize| {
            let mut payload = hex(head);
            payload.extend(u32::try_from(length).expect("a small length").to_be_bytes());
            payload.resize(payload.len() + length, b'x');
            payload
        };
        decode(&frame(message_type, &payload(max))).expect("the limit itself is accepted");
        let (max, found) = (max as u64, max as u64 + 1);
        assert_refused(
            &frame(
                message_type,
                &payload(usize::try_from(found).expect("a small length")),
            ),
            DecodeError::OutOfRange {
                message,
                field,
                min: 0,
                max,
                found,
            },
            &format!("{message}.{field}: expected 0 to {max}, got {found}"),
        );
    }
}

#[test]
fn length_of_four_gigabytes_is_refused_for_its_length() {
    assert_refused(
        &frame(0, &hex("00000001 ffffffff")),
        DecodeError::OutOfRange {
            message: "error_response",
            field: "message",
            min: 0,
            max: MAX_TEXT as u64,
            found: u64::from(u32::MAX),
        },
        "error_response.message: expected 0 to 4096, got 4294967295",
    );
}

#[test]
fn invalid_utf8_is_replaced() {
    let messages =
        decode(&frame(0, &hex("00000011 00000004 61ff62fe"))).expect("an odd text is no error");
    let expected = Payload::ErrorResponse(ErrorResponse {
        error_code: 17,
        message: "a\u{fffd}b\u{fffd}".into(),
    });
    assert_eq!(messages[0].payload, expected);
}

#[test]
fn text_over_its_limit_is_cut_between_characters() {
    let text = format!("a{}", "\u{e9}".repeat(MAX_TEXT / 2));
    let message = Message {
        message_id: 1,
        correlation_id: 1,
        payload: Payload::ErrorResponse(ErrorResponse {
            error_code: 1,
            message: text.clone(),
        }),
    };
    let messages = decode(&message.encode_to_vec()).expect("a peer accepts it");
    let Payload::ErrorResponse(found) = &messages[0].payload else {
        panic!("another payload found: {messages:?}");
    };
    // The last character would start at byte 4095 and exceed the limit.
    assert_eq!(found.message, text[..MAX_TEXT - 1]);
}

#[test]
fn blob_over_its_limit_is_refused_by_the_peer() {
    let message = Message {
        message_id: 1,
        correlation_id: 1,
        payload: Payload::InitStorageRequest(InitStorage {
            transaction_count: 1,
            core_count: 1,
            mmap_export_blob: Bytes::from(vec![0; MAX_BLOB + 1]),
        }),
    };
    let error = decode(&message.encode_to_vec()).expect_err("no part of a blob is of use");
    assert!(matches!(error, DecodeError::OutOfRange { .. }), "{error}");
}

#[test]
fn errors_are_final() {
    let mut decoder = FrameDecoder::new();
    let (sound, bytes) = vectors().swap_remove(0);
    decoder.push(&bytes);
    decoder.push(&frame(99, &[]));
    decoder.push(&bytes);
    assert_eq!(
        decoder.next(),
        Ok(Some(sound)),
        "messages before the error are read"
    );
    let error = decoder.next().expect_err("an unknown type");
    assert_eq!(decoder.buffered(), 0, "what follows it is of no use");
    decoder.push(&bytes);
    assert_eq!(decoder.next(), Err(error.clone()));
    assert_eq!(decoder.next(), Err(error));
    assert_eq!(decoder.buffered(), 0);
}

#[test]
fn blob_outlives_the_decoder() {
    let mut decoder = FrameDecoder::new();
    decoder.push(&frame(3, &hex("00000001 00000001 00000003 aabbcc")));
    let message = decoder
        .next()
        .expect("a sound frame")
        .expect("a whole frame");
    drop(decoder);
    let Payload::InitStorageRequest(init) = message.payload else {
        panic!("another payload found: {message:?}");
    };
    assert_eq!(init.mmap_export_blob.as_ref(), [0xaa, 0xbb, 0xcc]);
}
