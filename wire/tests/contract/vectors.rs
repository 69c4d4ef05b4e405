//! Control frames, compared with handwritten bytes of the documented layout.

use std::collections::BTreeSet;

use crate::common::{decode, hex, vectors};
use bytes::BytesMut;
use wire::control::{
    BatchedInitStorage, FrameDecoder, InitStorage, Message, MessageType, Payload,
    RdmaConnectionRole,
};

#[test]
fn every_type_has_a_vector() {
    let covered: BTreeSet<_> = vectors()
        .iter()
        .map(|(message, _)| message.payload.message_type())
        .collect();
    assert_eq!(covered, MessageType::ALL.into_iter().collect());
}

#[test]
fn messages_are_written_as_documented() {
    for (message, frame) in vectors() {
        assert_eq!(message.encode_to_vec(), frame, "{message:?}");
    }
}

#[test]
fn frames_are_read_as_documented() {
    for (message, frame) in vectors() {
        assert_eq!(decode(&frame), Ok(vec![message]));
    }
}

#[test]
fn frames_are_appended() {
    let mut stream = BytesMut::from(&b"before"[..]);
    let mut expected = b"before".to_vec();
    for (message, frame) in vectors() {
        message.encode(&mut stream);
        expected.extend(frame);
    }
    assert_eq!(stream, expected);
}

#[test]
fn frames_come_in_two_pieces_split_anywhere() {
    for (message, frame) in vectors() {
        for at in 0..frame.len() {
            let (first, second) = frame.split_at(at);
            let mut decoder = FrameDecoder::new();
            decoder.push(first);
            assert_eq!(decoder.next(), Ok(None), "{message:?} after {at} bytes");
            assert_eq!(decoder.buffered(), at);
            decoder.push(second);
            assert_eq!(
                decoder.next(),
                Ok(Some(message.clone())),
                "{message:?} split at {at}"
            );
            assert_eq!(decoder.next(), Ok(None));
            assert_eq!(decoder.buffered(), 0);
        }
    }
}

#[test]
fn frames_come_byte_by_byte_and_all_at_once() {
    let (messages, frames): (Vec<_>, Vec<_>) = vectors().into_iter().unzip();
    let stream = frames.concat();
    assert_eq!(decode(&stream).as_ref(), Ok(&messages));

    let mut decoder = FrameDecoder::new();
    let mut found = Vec::new();
    for byte in stream {
        decoder.push(&[byte]);
        found.extend(decoder.next().expect("sound frames"));
    }
    assert_eq!(found, messages);
}

#[test]
fn segments_end_in_the_middle_of_later_frames() {
    let (messages, frames): (Vec<_>, Vec<_>) = vectors().into_iter().unzip();
    let stream = frames.concat();
    for size in 1..100 {
        let mut decoder = FrameDecoder::new();
        let mut found = Vec::new();
        for segment in stream.chunks(size) {
            decoder.push(segment);
            while let Some(message) = decoder.next().expect("sound frames") {
                found.push(message);
            }
        }
        assert_eq!(found, messages, "segments of {size} bytes");
    }
}

#[test]
fn types_have_the_names_and_numbers_of_the_protocol() {
    let expected = [
        "error_response",
        "query_storage_request",
        "query_storage_response",
        "init_storage_request",
        "init_storage_response",
        "create_rdma_connection_request",
        "create_rdma_connection_response",
        "start_storage_request",
        "start_storage_response",
        "stop_storage_request",
        "stop_storage_response",
        "shutdown_request",
        "shutdown_response",
    ];
    let names = MessageType::ALL.map(|message_type| message_type.to_string());
    assert_eq!(names, expected);
    for (number, message_type) in (0..).zip(MessageType::ALL) {
        assert_eq!(message_type.number(), number);
        assert_eq!(MessageType::try_from(number), Ok(message_type));
    }
    assert!(MessageType::try_from(13).is_err());
    assert_eq!(RdmaConnectionRole::IoControl.to_string(), "io_control");
    assert_eq!(
        format!("{:>12}|", RdmaConnectionRole::IoData),
        "     io_data|"
    );
}

#[test]
fn response_repeats_the_ids_of_its_request() {
    let request = Message {
        message_id: 7,
        correlation_id: 9,
        payload: Payload::StopStorageRequest,
    };
    let expected = Message {
        payload: Payload::StopStorageResponse,
        ..request.clone()
    };
    assert_eq!(request.response(Payload::StopStorageResponse), expected);
}

/// An init_storage_request of 3.0 and one of later releases are distinguished by their length. Bytes that fit both are
/// of the later one.
#[test]
fn init_storage_requests_of_two_releases_are_distinguished_by_length() {
    let body = |payload: &str| {
        let payload = hex(payload);
        let mut frame = hex("00000000 00000003 00000003 00000004");
        frame[3] = u8::try_from(12 + payload.len()).expect("a short frame");
        frame.extend(payload);
        decode(&frame).map(|messages| messages[0].payload.clone())
    };
    let later = |transaction_count, core_count, blob: &str| {
        Ok(Payload::InitStorageRequest(InitStorage {
            transaction_count,
            core_count,
            mmap_export_blob: hex(blob).into(),
        }))
    };
    let batched = |core_count, blob: &str| {
        Ok(Payload::BatchedInitStorageRequest(BatchedInitStorage {
            transaction_count: 64,
            batch_size: 4,
            core_count,
            mmap_export_blob: hex(blob).into(),
        }))
    };
    let cases = [
        ("00000040 00000004 00000002 0102", later(64, 4, "0102")),
        ("00000040 00000004 00000002 00000000", batched(2, "")),
        ("00000040 00000004 00000000 00000001 ff", batched(0, "ff")),
        // Both: a blob of 5 bytes that starts with its length less 4, or 5 cores with a blob of 1 byte.
        (
            "00000040 00000004 00000005 00000001 ff",
            later(64, 4, "00000001ff"),
        ),
    ];
    for (payload, expected) in cases {
        assert_eq!(body(payload), expected, "{payload}");
    }
    // Neither: the error is that of the later one.
    for payload in [
        "00000040 00000004 00000002 00000005 dead00be",
        "00000040 00000004 00000002 00000005 dead00beef00",
        "00000040 00000004 00000003 0102",
    ] {
        let error = body(payload).expect_err("no request").to_string();
        assert!(error.contains("init_storage_request"), "{error}");
        assert!(!error.contains("batched"), "{error}");
    }
}
