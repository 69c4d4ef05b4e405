//! The table of offsets is consistent, and agrees with the encoded bytes.

use std::collections::BTreeSet;

use crate::common::vectors;
use wire::{
    backing,
    control::MessageType,
    io_message, io_message_3_0, io_message_3_1,
    layout::{ByteOrder, Field, Kind, Message, TABLE},
    sbc, stored_block,
};

fn entry(name: &str) -> &'static Message {
    TABLE
        .iter()
        .find(|message| message.name == name)
        .unwrap_or_else(|| panic!("{name} is in the table"))
}

fn number(field: &Field, bytes: &[u8]) -> u64 {
    let begin = field.offset as usize;
    let bytes = &bytes[begin..begin + field.width as usize];
    let shift = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    match field.byte_order {
        ByteOrder::Big => bytes.iter().fold(0, shift),
        ByteOrder::Little => bytes.iter().rev().fold(0, shift),
    }
}

#[test]
fn each_message_is_in_the_table_once() {
    let names: Vec<_> = TABLE.iter().map(|message| message.name).collect();
    let distinct: BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    let mut expected: Vec<_> = MessageType::ALL.map(MessageType::name).to_vec();
    expected.extend([
        // Longer forms of other payloads.
        "identify_storage_request",
        "identified_storage_response",
        "announce_storage_request",
        "announced_storage_response",
        // Form of another release.
        "batched_init_storage_request",
        "io_message",
        "io_message_3_1",
        "io_message_3_0",
        "sbc_header",
        "stored_block_header",
        "lz4_data_block",
        "stored_block_trailer",
        "backing_header",
        "backing_superblock",
        "backing_set_record",
    ]);
    assert_eq!(names, expected);
}

#[test]
fn fields_cover_every_byte_once() {
    for message in TABLE {
        let mut end = 0;
        for field in message.fields {
            assert_eq!(field.offset, end, "{}.{}", message.name, field.name);
            assert!(!field.meaning.is_empty());
            end += field.width;
        }
        assert_eq!(message.size, end, "{}", message.name);
        let variable: u32 = message
            .fields
            .iter()
            .map(|field| match field.kind {
                Kind::Text { max } | Kind::Blob { max } => max,
                _ => 0,
            })
            .sum();
        assert_eq!(
            message.max_size,
            message.size + variable,
            "{}",
            message.name
        );
    }
}

#[test]
fn sizes_are_those_of_the_codecs() {
    for (name, size) in [
        ("io_message", io_message::SIZE),
        ("io_message_3_1", io_message_3_1::SIZE),
        ("io_message_3_0", io_message_3_0::SIZE),
        ("sbc_header", sbc::HEADER_SIZE),
        ("stored_block_header", stored_block::Header::SIZE),
        ("lz4_data_block", stored_block::DataBlock::SIZE),
        ("stored_block_trailer", stored_block::Trailer::SIZE),
        ("backing_header", backing::HEADER_SIZE),
        ("backing_superblock", backing::RECORD_SIZE),
        ("backing_set_record", backing::SetRecord::SIZE),
    ] {
        assert_eq!(entry(name).size as usize, size);
    }
    assert!(entry("stored_block_trailer").at_end);
    assert_eq!(TABLE.iter().filter(|message| message.at_end).count(), 1);
}

#[test]
fn table_agrees_with_the_vectors() {
    for (message, bytes) in vectors() {
        let message_type = message.payload.message_type();
        let entry = entry(message.payload.name());
        assert_eq!(entry.message_type, Some(message_type.number()));
        let mut size = entry.size as usize;
        for field in entry.fields {
            let found = number(field, &bytes);
            let expected = match (field.name, field.kind) {
                ("length", Kind::Length) => Some(bytes.len() as u64 - 4),
                ("type", Kind::Constant(number)) => Some(number),
                ("message_id", Kind::Number) => Some(u64::from(message.message_id)),
                ("correlation_id", Kind::Number) => Some(u64::from(message.correlation_id)),
                (_, Kind::Text { .. } | Kind::Blob { .. }) => {
                    size += usize::try_from(found).expect("a short vector");
                    None
                }
                (_, Kind::Enumeration(values)) => {
                    assert!(values.iter().any(|&(number, _)| u64::from(number) == found));
                    None
                }
                _ => None,
            };
            if let Some(expected) = expected {
                assert_eq!(found, expected, "{}.{}", entry.name, field.name);
            }
        }
        assert_eq!(size, bytes.len(), "{}", entry.name);
    }
}

#[test]
fn io_message_is_as_documented() {
    let rows: Vec<_> = entry("io_message")
        .fields
        .iter()
        .map(|field| (field.name, field.offset, field.width))
        .collect();
    let expected = [
        ("message_type", 0, 4),
        ("reserved", 4, 4),
        ("user_data", 8, 8),
        ("result", 16, 4),
        ("size", 20, 4),
        ("requester_offset", 24, 8),
        ("storage_offset", 32, 8),
        ("reserved", 40, 24),
    ];
    assert_eq!(rows, expected);
}
