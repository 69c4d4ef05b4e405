//! Hexadecimal test data, and a message of every kind.
#![allow(dead_code, reason = "every test uses another part of this")]

use bytes::Bytes;
use wire::{
    DecodeError,
    control::{
        BatchedInitStorage, ErrorResponse, FrameDecoder, InitStorage, Message, Payload,
        RdmaConnectionDetails, RdmaConnectionRole, StorageDetails,
    },
};

/// Parses hexadecimal digits; white space is ignored.
pub fn hex(text: &str) -> Vec<u8> {
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
pub fn decode(bytes: &[u8]) -> Result<Vec<Message>, DecodeError> {
    let mut decoder = FrameDecoder::new();
    decoder.push(bytes);
    let mut messages = Vec::new();
    while let Some(message) = decoder.next()? {
        messages.push(message);
    }
    Ok(messages)
}

/// A message of each type with its frame, written by hand from the documented layout.
pub fn vectors() -> Vec<(Message, Vec<u8>)> {
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
