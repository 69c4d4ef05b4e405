//! The bytes of the protocol: control frames, compared with handwritten bytes of the documented layout. One test
//! binary, because each has to be linked.

mod formats;
mod properties;
mod refusals;

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use wire::DecodeError;
use wire::control::{
    AnnouncedStorage, BatchedInitStorage, ErrorResponse, FEATURE_FLUSH, FEATURE_VERSIONS,
    FeatureQuery, FrameDecoder, IdentifiedStorage, IdentityQuery, InitStorage, Message,
    MessageType, Payload, RdmaConnectionDetails, RdmaConnectionRole, RecordState, Reservation,
    ReservedStorage, StorageDetails, StorageVerifier,
};

/// Parses hexadecimal digits; white space is ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text
        .chars()
        .filter(|character| !character.is_whitespace())
        .map(|digit| {
            u8::try_from(digit.to_digit(16).expect("a hexadecimal digit")).expect("one nibble")
        })
        .collect();
    let (bytes, rest) = digits.as_chunks::<2>();
    assert!(rest.is_empty(), "two digits per byte");
    bytes.iter().map(|&[high, low]| high << 4 | low).collect()
}

/// Decodes `bytes` as received on one channel.
fn decode(bytes: &[u8]) -> Result<Vec<Message>, DecodeError> {
    let mut decoder = FrameDecoder::new();
    decoder.push(bytes);
    let mut messages = Vec::new();
    while let Some(message) = decoder.next()? {
        messages.push(message);
    }
    Ok(messages)
}

/// A message of each type with its frame, written by hand from the documented layout.
fn vectors() -> Vec<(Message, Vec<u8>)> {
    let message = |message_id, correlation_id, payload| Message {
        message_id,
        correlation_id,
        payload,
    };
    let empty = |number: u8, payload| {
        // Twelve bytes follow the length; the type number fits into one byte.
        let mut frame = hex("0000000c 000000ff 00000102 00000304");
        frame[7] = number;
        (message(0x0102, 0x0304, payload), frame)
    };
    vec![
        (
            message(
                0xA1A2_A3A4,
                0xB1B2_B3B4,
                Payload::ErrorResponse(ErrorResponse {
                    error_code: 6,
                    message: "no such block".into(),
                }),
            ),
            hex("00000021 00000000 a1a2a3a4 b1b2b3b4
                 00000006 0000000d 6e6f2073756368 20 626c6f636b"),
        ),
        (
            message(
                0,
                u32::MAX,
                Payload::ErrorResponse(ErrorResponse {
                    error_code: 18,
                    message: String::new(),
                }),
            ),
            hex("00000014 00000000 00000000 ffffffff
                 00000012 00000000"),
        ),
        empty(1, Payload::QueryStorageRequest),
        (
            message(
                1,
                2,
                Payload::QueryStorageResponse(StorageDetails {
                    total_size: 0x0102_0304_0506_0708,
                    block_size: 4096,
                }),
            ),
            hex("00000018 00000002 00000001 00000002
                 0102030405060708 00001000"),
        ),
        (
            message(
                3,
                4,
                Payload::InitStorageRequest(InitStorage {
                    transaction_count: 64,
                    core_count: 2,
                    mmap_export_blob: Bytes::from_static(&[0xde, 0xad, 0x00, 0xbe, 0xef]),
                }),
            ),
            hex("0000001d 00000003 00000003 00000004
                 00000040 00000002 00000005 dead00beef"),
        ),
        (
            message(
                3,
                4,
                Payload::InitStorageRequest(InitStorage {
                    transaction_count: u32::MAX,
                    core_count: 0,
                    mmap_export_blob: Bytes::new(),
                }),
            ),
            hex("00000018 00000003 00000003 00000004
                 ffffffff 00000000 00000000"),
        ),
        (
            message(
                3,
                4,
                Payload::BatchedInitStorageRequest(BatchedInitStorage {
                    transaction_count: 64,
                    batch_size: 4,
                    core_count: 2,
                    mmap_export_blob: Bytes::from_static(&[0xde, 0xad, 0x00, 0xbe, 0xef]),
                }),
            ),
            hex("00000021 00000003 00000003 00000004
                 00000040 00000004 00000002 00000005 dead00beef"),
        ),
        empty(4, Payload::InitStorageResponse),
        (
            message(
                5,
                6,
                Payload::CreateRdmaConnectionRequest(RdmaConnectionDetails {
                    context_index: 0x0A0B_0C0D,
                    role: RdmaConnectionRole::IoData,
                    connection_details: Bytes::from_static(&[1, 2, 3]),
                }),
            ),
            hex("0000001b 00000005 00000005 00000006
                 0a0b0c0d 00000000 00000003 010203"),
        ),
        (
            message(
                7,
                8,
                Payload::CreateRdmaConnectionResponse(RdmaConnectionDetails {
                    context_index: 1,
                    role: RdmaConnectionRole::IoControl,
                    connection_details: Bytes::from_static(&[0xff]),
                }),
            ),
            hex("00000019 00000006 00000007 00000008
                 00000001 00000001 00000001 ff"),
        ),
        empty(7, Payload::StartStorageRequest),
        empty(8, Payload::StartStorageResponse),
        empty(9, Payload::StopStorageRequest),
        empty(10, Payload::StopStorageResponse),
        empty(11, Payload::ShutdownRequest),
        empty(12, Payload::ShutdownResponse),
    ]
}

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

/// An init_storage_request of 3.0 and one of later releases are distinguished by their length. Bytes that match both
/// are decoded as the later one.
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
        // Matches both: a blob of 5 bytes that starts with its length less 4, or 5 cores with a blob of 1 byte.
        (
            "00000040 00000004 00000005 00000001 ff",
            later(64, 4, "00000001ff"),
        ),
    ];
    for (payload, expected) in cases {
        assert_eq!(body(payload), expected, "{payload}");
    }
    // Matches neither: the error is that of the later release.
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

fn extended(payload: Payload) -> Message {
    Message {
        message_id: 0x0102,
        correlation_id: 0x0304,
        payload,
    }
}

fn identity_query() -> (Message, Vec<u8>) {
    let frame = hex("00000058 00000001 00000102 00000304 57484943484f4e45 \
         0102030405060708 1112131415161718 0000000000000007 2122232425262728 \
         0000000000000008 3132333435363738 00000002 00000002 00000002 00000001 00001000");
    let query = IdentityQuery {
        set_high: 0x0102_0304_0506_0708,
        set_low: 0x1112_1314_1516_1718,
        epoch: 7,
        epoch_id: 0x2122_2324_2526_2728,
        next_epoch: 8,
        next_epoch_id: 0x3132_3334_3536_3738,
        member: 2,
        state: RecordState::InUse,
        format: 2,
        matrix: 1,
        logical_block_size: 4096,
    };
    (extended(Payload::IdentifyStorageRequest(query)), frame)
}

fn identity_answer() -> (Message, Vec<u8>) {
    let frame = hex(
        "0000006c 00000002 00000102 00000304 0000000000100000 00000200 5448495320 4f4e45 \
         0102030405060708 1112131415161718 0000000000000007 2122232425262728 \
         0000000000000008 3132333435363738 00000001 00000004 00000001 00000002 00001000 00000004 deadbeef",
    );
    let storage = IdentifiedStorage {
        total_size: 1 << 20,
        block_size: 512,
        set_high: 0x0102_0304_0506_0708,
        set_low: 0x1112_1314_1516_1718,
        epoch: 7,
        epoch_id: 0x2122_2324_2526_2728,
        next_epoch: 8,
        next_epoch_id: 0x3132_3334_3536_3738,
        member: 1,
        state: RecordState::Closing,
        format: 1,
        matrix: 2,
        logical_block_size: 4096,
        identity: Bytes::from_static(&[0xde, 0xad, 0xbe, 0xef]),
    };
    (extended(Payload::IdentifiedStorageResponse(storage)), frame)
}

fn announcement() -> (Message, Vec<u8>) {
    let frame = hex("00000018 00000001 00000102 00000304 4645415455524553 00000003");
    let query = FeatureQuery {
        features: FEATURE_FLUSH | FEATURE_VERSIONS,
    };
    (extended(Payload::AnnounceStorageRequest(query)), frame)
}

fn announced() -> (Message, Vec<u8>) {
    let frame = hex(
        "0000005c 00000002 00000102 00000304 0000000000100000 00000200 4645415455524553 00000003 \
         00000010 0000000000000007 000000000000001f 0000000000000005 000000000000001e \
         00000010 0000000000000003 0000000000000009",
    );
    let storage = AnnouncedStorage {
        total_size: 1 << 20,
        block_size: 512,
        features: FEATURE_FLUSH | FEATURE_VERSIONS,
        version_slots: 16,
        last_epoch: 7,
        last_number: 31,
        retired_epoch: 5,
        retired_number: 30,
        unretired: Bytes::from([3_u64, 9].map(u64::to_be_bytes).concat()),
    };
    (extended(Payload::AnnouncedStorageResponse(storage)), frame)
}

fn verified() -> (Message, Vec<u8>) {
    let frame = hex(
        "00000040 00000004 00000102 00000304 5645524946494552 0102030405060708 1112131415161718 \
         00000001 00000001 00000010 000102030405060708090a0b0c0d0e0f",
    );
    let verifier = StorageVerifier {
        identity_high: 0x0102_0304_0506_0708,
        identity_low: 0x1112_1314_1516_1718,
        flags: 1,
        quorum: 1,
        incarnations: (0..16).collect::<Vec<u8>>().into(),
    };
    (
        extended(Payload::VerifiedInitStorageResponse(verifier)),
        frame,
    )
}

fn reserve() -> (Message, Vec<u8>) {
    let frame = hex(
        "00000037 00000001 00000102 00000304 5245534552564553 0000000000000007 0102030405060708 \
         1112131415161718 00000007 6470752d622f31",
    );
    let reservation = Reservation {
        generation: 7,
        holder_high: 0x0102_0304_0506_0708,
        holder_low: 0x1112_1314_1516_1718,
        name: "dpu-b/1".to_owned(),
    };
    (extended(Payload::ReserveStorageRequest(reservation)), frame)
}

fn reserved() -> (Message, Vec<u8>) {
    let frame = hex(
        "00000042 00000002 00000102 00000304 0000000000100000 00000200 5245534552564553 \
         0000000000000008 2122232425262728 3132333435363738 00000006 6470752d6120",
    );
    let storage = ReservedStorage {
        total_size: 1 << 20,
        block_size: 512,
        generation: 8,
        holder_high: 0x2122_2324_2526_2728,
        holder_low: 0x3132_3334_3536_3738,
        name: "dpu-a ".to_owned(),
    };
    (extended(Payload::ReservedStorageResponse(storage)), frame)
}

#[test]
fn verifier_is_the_longer_form_of_the_answer_to_the_init_request() {
    let (message, bytes) = verified();
    assert_eq!(
        message.payload.message_type(),
        MessageType::InitStorageResponse
    );
    // In pieces shorter than the whole frame.
    for size in 17..bytes.len() {
        let mut frame = bytes[..size].to_vec();
        frame[3] = (size - 4) as u8;
        assert!(decode(&frame).is_err(), "{size} bytes of it");
    }
    let mut shorter = bytes[..16].to_vec();
    shorter[3] = 12;
    let decoded = decode(&shorter).map(|messages| messages[0].payload.clone());
    assert_eq!(decoded, Ok(Payload::InitStorageResponse));
    // Unknown flags, a quorum of 0, and a quorum larger than the maximum number of members.
    for (at, value) in [(43, 2), (47, 0), (47, 17)] {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        assert!(decode(&wrong).is_err(), "{value} at {at}");
    }
}

#[test]
fn identity_messages_match_their_documented_bytes() {
    for (message, bytes) in [
        identity_query(),
        identity_answer(),
        announcement(),
        announced(),
        verified(),
        reserve(),
        reserved(),
    ] {
        assert_eq!(decode(&bytes), Ok(vec![message.clone()]));
        assert_eq!(message.encode_to_vec(), bytes);
    }
    let (query, _) = identity_query();
    assert_eq!(
        query.payload.message_type(),
        MessageType::QueryStorageRequest
    );
    assert_eq!(query.payload.name(), "identify_storage_request");
    assert_eq!(Payload::QueryStorageRequest.name(), "query_storage_request");
}

#[test]
fn longer_forms_cut_short_decode_as_shorter_forms() {
    let shorter = |bytes: &[u8], size: u8| {
        let mut frame = bytes[..usize::from(size) + 4].to_vec();
        frame[3] = size;
        decode(&frame).map(|messages| messages[0].payload.clone())
    };
    assert_eq!(
        shorter(&identity_query().1, 12),
        Ok(Payload::QueryStorageRequest)
    );
    assert_eq!(
        shorter(&announcement().1, 12),
        Ok(Payload::QueryStorageRequest)
    );
    assert_eq!(shorter(&reserve().1, 12), Ok(Payload::QueryStorageRequest));
    let details = StorageDetails {
        total_size: 1 << 20,
        block_size: 512,
    };
    for bytes in [identity_answer().1, announced().1, reserved().1] {
        assert_eq!(
            shorter(&bytes, 24),
            Ok(Payload::QueryStorageResponse(details.clone()))
        );
    }
}

#[test]
fn incomplete_extensions_are_refused() {
    for (_, bytes) in [identity_query(), identity_answer(), reserve(), reserved()] {
        let base = if bytes[7] == 1 { 16 } else { 28 };
        for size in base + 1..bytes.len() {
            let mut frame = bytes[..size].to_vec();
            frame[3] = (size - 4) as u8;
            let refused = decode(&frame).expect_err("a part of it is none");
            let truncated = matches!(
                refused,
                DecodeError::Truncated { .. } | DecodeError::TrailingBytes { .. }
            );
            assert!(truncated, "{refused}");
        }
        let mut wrong = bytes.clone();
        wrong[base] ^= 1;
        let refused = decode(&wrong).expect_err("another mark");
        assert!(
            // The first of the longer forms is the one that is expected.
            matches!(
                refused,
                DecodeError::WrongConstant { .. } | DecodeError::TrailingBytes { .. }
            ),
            "{refused}"
        );
        let mut longer = bytes.clone();
        longer.push(0);
        longer[3] += 1;
        let refused = decode(&longer).expect_err("too much");
        assert!(
            matches!(refused, DecodeError::TrailingBytes { found: 1, .. }),
            "{refused}"
        );
    }
    let (mut message, _) = identity_answer();
    if let Payload::IdentifiedStorageResponse(storage) = &mut message.payload {
        storage.identity = vec![0; 65].into();
    }
    let refused = decode(&message.encode_to_vec()).expect_err("too long");
    assert!(
        matches!(
            refused,
            DecodeError::OutOfRange {
                max: 64,
                found: 65,
                ..
            }
        ),
        "{refused}"
    );
}

#[test]
fn unknown_states_and_forms_are_refused() {
    for ((_, bytes), state) in [(identity_query(), 16 + 60), (identity_answer(), 16 + 72)] {
        for (at, value) in [
            (state + 3, 5),
            (state, 1),
            (state + 7, 3),
            (state + 4, 1),
            (state + 11, 3),
            (state + 8, 1),
        ] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert!(decode(&wrong).is_err(), "{value} at {at}");
        }
    }
}

#[test]
fn an_announcement_with_more_or_less_than_its_bytes_is_refused() {
    for (_, bytes) in [announcement(), announced()] {
        let base = if bytes[7] == 1 { 16 } else { 28 };
        for size in base + 1..bytes.len() {
            let mut frame = bytes[..size].to_vec();
            frame[3] = (size - 4) as u8;
            let refused = decode(&frame).expect_err("a part of it");
            let truncated = matches!(
                refused,
                DecodeError::Truncated { .. } | DecodeError::TrailingBytes { .. }
            );
            assert!(truncated, "{refused}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        longer[3] += 1;
        let refused = decode(&longer).expect_err("too much");
        assert!(
            matches!(refused, DecodeError::TrailingBytes { found: 1, .. }),
            "{refused}"
        );
    }
}
