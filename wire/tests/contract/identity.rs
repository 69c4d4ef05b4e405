//! Longer forms of two messages, which a peer that ignores the additional fields can read as the shorter ones.

use crate::common::{decode, hex};
use bytes::Bytes;
use wire::DecodeError;
use wire::control::{
    AnnouncedStorage, FEATURE_FLUSH, FeatureQuery, IdentifiedStorage, IdentityQuery, Message,
    MessageType, Payload, RecordState, StorageDetails,
};

fn message(payload: Payload) -> Message {
    Message {
        message_id: 0x0102,
        correlation_id: 0x0304,
        payload,
    }
}

fn query() -> (Message, Vec<u8>) {
    let frame = hex("00000050 00000001 00000102 00000304 57484943484f4e45 \
         0102030405060708 1112131415161718 0000000000000007 2122232425262728 \
         0000000000000008 3132333435363738 00000002 00000002 00000001");
    let query = IdentityQuery {
        set_high: 0x0102_0304_0506_0708,
        set_low: 0x1112_1314_1516_1718,
        epoch: 7,
        epoch_id: 0x2122_2324_2526_2728,
        next_epoch: 8,
        next_epoch_id: 0x3132_3334_3536_3738,
        member: 2,
        state: RecordState::InUse,
        flags: 1,
    };
    (message(Payload::IdentifyStorageRequest(query)), frame)
}

fn answer() -> (Message, Vec<u8>) {
    let frame = hex(
        "00000064 00000002 00000102 00000304 0000000000100000 00000200 5448495320 4f4e45 \
         0102030405060708 1112131415161718 0000000000000007 2122232425262728 \
         0000000000000008 3132333435363738 00000001 00000004 00000001 00000004 deadbeef",
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
        flags: 1,
        identity: Bytes::from_static(&[0xde, 0xad, 0xbe, 0xef]),
    };
    (message(Payload::IdentifiedStorageResponse(storage)), frame)
}

fn announcement() -> (Message, Vec<u8>) {
    let frame = hex("00000018 00000001 00000102 00000304 4645415455524553 00000001");
    let query = FeatureQuery {
        features: FEATURE_FLUSH,
    };
    (message(Payload::AnnounceStorageRequest(query)), frame)
}

fn announced() -> (Message, Vec<u8>) {
    let frame = hex(
        "00000024 00000002 00000102 00000304 0000000000100000 00000200 4645415455524553 00000001",
    );
    let storage = AnnouncedStorage {
        total_size: 1 << 20,
        block_size: 512,
        features: FEATURE_FLUSH,
    };
    (message(Payload::AnnouncedStorageResponse(storage)), frame)
}

#[test]
fn identity_messages_match_their_documented_bytes() {
    for (message, bytes) in [query(), answer(), announcement(), announced()] {
        assert_eq!(decode(&bytes), Ok(vec![message.clone()]));
        assert_eq!(message.encode_to_vec(), bytes);
    }
    let (query, _) = query();
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
    assert_eq!(shorter(&query().1, 12), Ok(Payload::QueryStorageRequest));
    assert_eq!(
        shorter(&announcement().1, 12),
        Ok(Payload::QueryStorageRequest)
    );
    let details = StorageDetails {
        total_size: 1 << 20,
        block_size: 512,
    };
    for bytes in [answer().1, announced().1] {
        assert_eq!(
            shorter(&bytes, 24),
            Ok(Payload::QueryStorageResponse(details.clone()))
        );
    }
}

#[test]
fn incomplete_extensions_are_refused() {
    for (_, bytes) in [query(), answer()] {
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
            matches!(refused, DecodeError::WrongConstant { .. }),
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
    let (mut message, _) = answer();
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
fn unknown_states_and_flags_are_refused() {
    for ((_, bytes), state) in [(query(), 16 + 60), (answer(), 16 + 72)] {
        for (at, value) in [(state + 3, 6), (state, 1), (state + 7, 2), (state + 4, 1)] {
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
            assert!(
                matches!(refused, DecodeError::TrailingBytes { .. }),
                "{refused}"
            );
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
