//! Formats of fixed size, compared with handwritten bytes of the documented layout, and the table of all offsets.

use std::collections::BTreeSet;

use wire::control::{MAX_HOLDER_NAME, MessageType};
use wire::io_message::{IoMessage, IoMessageType, Repr, SIZE, VERSION_OFFSET, Version};
use wire::layout::{ByteOrder, Field, Kind, Message, TABLE};
use wire::{DecodeError, backing, io_message, io_message_3_0, io_message_3_1, sbc, stored_block};

use crate::{hex, vectors};

const WRITE: &str = "00000002 00000000 0102030405060708 00000000 00001000
     1112131415161718 2122232425262728
     0000000000000000 0000000000000000 0000000000000000";

const WRITE_VALUES: Repr = Repr {
    message_type: IoMessageType::Write,
    user_data: 0x0102_0304_0506_0708,
    result: 0,
    size: 4096,
    requester_offset: 0x1112_1314_1516_1718,
    storage_offset: 0x2122_2324_2526_2728,
};

fn view(bytes: &[u8]) -> IoMessage<&[u8]> {
    IoMessage::new_checked(bytes).expect("64 bytes")
}

#[test]
fn values_are_written_as_documented() {
    assert_eq!(WRITE_VALUES.to_bytes().as_slice(), hex(WRITE));
    for (number, message_type) in [
        (0, IoMessageType::Result),
        (1, IoMessageType::Read),
        (2, IoMessageType::Write),
    ] {
        let bytes = Repr {
            message_type,
            ..WRITE_VALUES
        }
        .to_bytes();
        assert_eq!(bytes[..4], [0, 0, 0, number]);
    }
}

#[test]
fn bytes_are_read_as_documented() {
    let bytes = hex(WRITE);
    assert_eq!(Repr::parse(&view(&bytes)), Ok(WRITE_VALUES));
    let view = view(&bytes);
    assert_eq!(view.message_type(), Ok(IoMessageType::Write));
    assert_eq!(view.user_data(), WRITE_VALUES.user_data);
    assert_eq!(view.result(), 0);
    assert_eq!(view.size(), 4096);
    assert_eq!(view.requester_offset(), WRITE_VALUES.requester_offset);
    assert_eq!(view.storage_offset(), WRITE_VALUES.storage_offset);
}

#[test]
fn every_setter_writes_its_field_alone() {
    type Set = fn(&mut IoMessage<[u8; SIZE]>);
    let cases: [(Set, std::ops::Range<usize>); 6] = [
        (|view| view.set_message_type(IoMessageType::Read), 0..4),
        (|view| view.set_user_data(1), 8..16),
        (|view| view.set_result(1), 16..20),
        (|view| view.set_size(1), 20..24),
        (|view| view.set_requester_offset(1), 24..32),
        (|view| view.set_storage_offset(1), 32..40),
    ];
    for (set, range) in cases {
        let mut view = IoMessage::new_unchecked_len([0xff; SIZE]);
        set(&mut view);
        // Each writer writes the number one, big endian.
        let mut expected = [0xff; SIZE];
        expected[range.clone()].fill(0);
        expected[range.end - 1] = 1;
        assert_eq!(view.into_inner(), expected);
    }
}

#[test]
fn reserved_bytes_are_ignored_and_written_as_zeros() {
    let mut bytes = hex(WRITE);
    bytes[4..8].fill(0xaa);
    bytes[40..].fill(0xbb);
    assert_eq!(Repr::parse(&view(&bytes)), Ok(WRITE_VALUES));

    let mut message = IoMessage::new_checked(&mut bytes).expect("64 bytes");
    WRITE_VALUES.emit(&mut message);
    assert_eq!(bytes, hex(WRITE));
}

#[test]
fn other_sizes_are_refused() {
    for found in [0, 1, 63, 65, 128] {
        assert_eq!(
            IoMessage::new_checked(vec![0; found]).map(|_| ()),
            Err(DecodeError::WrongSize {
                message: "io_message",
                expected: 64,
                found,
            })
        );
    }
}

#[test]
fn unknown_types_are_refused() {
    for found in [3_u32, 63, 69, 256, u32::MAX] {
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&found.to_be_bytes());
        let view = IoMessage::new_unchecked_len(&bytes);
        let expected = DecodeError::UnknownValue {
            message: "io_message",
            field: "message_type",
            expected: "one of 8 values from 0 (result) to 68 (read_before)",
            found: u64::from(found),
        };
        assert_eq!(view.message_type(), Err(expected.clone()));
        assert_eq!(Repr::parse(&view), Err(expected));
    }
}

#[test]
fn result_keeps_the_other_fields_of_its_request() {
    let answer = WRITE_VALUES.answer(17);
    assert_eq!(
        answer,
        Repr {
            message_type: IoMessageType::Result,
            result: 17,
            ..WRITE_VALUES
        }
    );

    let mut bytes = hex(WRITE);
    bytes[40..].fill(0xbb);
    let mut expected = bytes.clone();
    IoMessage::new_checked(&mut bytes)
        .expect("64 bytes")
        .answer(17);
    expected[3] = 0;
    expected[19] = 17;
    assert_eq!(
        bytes, expected,
        "in place, what belongs to no field stays as well"
    );
}

#[test]
fn extensions_are_numbered_apart_from_the_reference_s_types() {
    for (message_type, number) in [
        (IoMessageType::Flush, 64),
        (IoMessageType::WriteFua, 65),
        (IoMessageType::WriteVersion, 66),
        (IoMessageType::WriteVersionFua, 67),
        (IoMessageType::ReadBefore, 68),
    ] {
        let bytes = Repr {
            message_type,
            ..WRITE_VALUES
        }
        .to_bytes();
        assert_eq!(bytes[..8], [0, 0, 0, number, 0, 0, 0, 0]);
        let view = IoMessage::new_unchecked_len(&bytes);
        assert_eq!(view.message_type(), Ok(message_type));
    }
}

#[test]
fn version_of_a_message_is_in_its_last_bytes() {
    let version = Version {
        epoch: 0x0102_0304_0506_0708,
        number: 0x1112_1314_1516_1718,
        retired: 0x2122_2324_2526_2728,
    };
    let mut message = Repr {
        message_type: IoMessageType::WriteVersion,
        ..WRITE_VALUES
    }
    .to_bytes();
    assert_eq!(Version::of(&message).emit(), [0; Version::SIZE]);
    version.write(&mut message);
    let expected = hex("00000042 00000000 0102030405060708 00000000 00001000
         1112131415161718 2122232425262728
         0102030405060708 1112131415161718 2122232425262728");
    assert_eq!(message.as_slice(), expected);
    assert_eq!(Version::of(&message), version);
    assert_eq!(message[VERSION_OFFSET..], version.emit());
}

const SBC: &str = "deadf00d1337fade 00001000 00000100";

const SBC_VALUES: sbc::Header = sbc::Header {
    block_size: 4096,
    block_count: 256,
};

#[test]
fn sbc_header_is_as_documented() {
    assert_eq!(SBC_VALUES.emit().as_slice(), hex(SBC));
    assert_eq!(sbc::Header::parse(&hex(SBC)), Ok(SBC_VALUES));
    assert_eq!(SBC_VALUES.content_size(), 1 << 20);
    assert_eq!(
        (sbc::MAGIC, sbc::HEADER_SIZE, sbc::MAX_CONTENT),
        (0xDEAD_F00D_1337_FADE, 16, 2 << 30)
    );
}

#[test]
fn sbc_content_after_the_header_is_left_alone() {
    let mut file = hex(SBC);
    file.extend([1, 2, 3]);
    assert_eq!(sbc::Header::parse(&file), Ok(SBC_VALUES));
}

#[test]
fn truncated_sbc_header_is_refused() {
    let bytes = hex(SBC);
    for (size, field, expected, found) in [
        (0, "magic", 8, 0),
        (7, "magic", 8, 7),
        (8, "block_size", 4, 0),
        (15, "block_count", 4, 3),
    ] {
        assert_eq!(
            sbc::Header::parse(&bytes[..size]),
            Err(DecodeError::Truncated {
                message: "sbc_header",
                field,
                expected,
                found,
            })
        );
    }
}

#[test]
fn sbc_header_of_another_file_is_refused() {
    let error =
        sbc::Header::parse(&hex("cafef00d1337fade 00001000 00000100")).expect_err("not its magic");
    assert_eq!(
        error,
        DecodeError::WrongConstant {
            message: "sbc_header",
            field: "magic",
            expected: 0xdead_f00d_1337_fade,
            found: 0xcafe_f00d_1337_fade,
        }
    );
}

#[test]
fn sbc_content_has_a_limit() {
    let largest = sbc::Header {
        block_size: 1 << 20,
        block_count: 2048,
    };
    assert_eq!(sbc::Header::parse(&largest.emit()), Ok(largest));
    for (block_size, block_count, found) in [
        (1 << 20, 2049, 2_148_532_224),
        (1, (2 << 30) + 1, (2 << 30) + 1),
        (u32::MAX, u32::MAX, 18_446_744_065_119_617_025),
    ] {
        let header = sbc::Header {
            block_size,
            block_count,
        };
        assert_eq!(
            sbc::Header::parse(&header.emit()),
            Err(DecodeError::OutOfRange {
                message: "sbc_header",
                field: "content_size",
                min: 0,
                max: 2 << 30,
                found,
            })
        );
    }
}

#[test]
fn sbc_blocks_have_a_size() {
    let header = sbc::Header {
        block_size: 0,
        block_count: 1,
    };
    let error = sbc::Header::parse(&header.emit()).expect_err("blocks of nothing");
    assert_eq!(
        error,
        DecodeError::OutOfRange {
            message: "sbc_header",
            field: "block_size",
            min: 1,
            max: u64::from(u32::MAX),
            found: 0,
        }
    );
    let empty = sbc::Header {
        block_size: 512,
        block_count: 0,
    };
    assert_eq!(
        sbc::Header::parse(&empty.emit()),
        Ok(empty),
        "no blocks are as good as many"
    );
}

#[test]
fn backing_header_is_as_documented() {
    let header = backing::Header {
        block_size: 512,
        block_count: 3,
        identity_high: 0x0102_0304_0506_0708,
        identity_low: 0xf1f2_f3f4_f5f6_f7f8,
        version_slots: 256,
        slot_size: 4096,
        slots_offset: 0x11000,
        checksum: 0x1601_7b73,
    };
    let bytes = hex(
        "444f434154475400 00000003 00000200 00000003 00010000 00001000 0102030405060708 f1f2f3f4f5f6f7f8 \
         00000100 00001000 0000000000011000 16017b73",
    );
    assert_eq!(header.emit().to_vec(), bytes);
    assert_eq!(backing::Header::parse(&bytes), Ok(header));
    for (at, field) in [
        (0, "magic"),
        (8, "version"),
        (15, "block_size"),
        (20, "content_offset"),
        (24, "record_offset"),
    ] {
        let mut wrong = bytes.clone();
        wrong[at] ^= 1;
        if field == "block_size" {
            wrong[12..16].fill(0);
        }
        let error = backing::Header::parse(&wrong).expect_err(field).to_string();
        assert!(
            error.contains(&format!("backing_header.{field}")),
            "{error}"
        );
    }
}

#[test]
fn slot_of_a_version_is_as_documented() {
    let record = backing::VersionSlot {
        sequence: 7,
        block: 0x102,
        epoch: 3,
        number: 0x405,
        retired_epoch: 3,
        retired: 0x400,
        // Checksum of 512 bytes of 0x5a before the record.
        checksum: 0x0314_5ecb,
    };
    let bytes = hex(
        "444f434156455201 0000000000000007 0000000000000102 0000000000000003 0000000000000405 0000000000000003 \
         0000000000000400 00000000 03145ecb",
    );
    assert_eq!(record.emit().to_vec(), bytes);
    assert_eq!(backing::VersionSlot::parse(&bytes), Ok(record));
    for (at, value, field) in [(7, 0, "magic"), (15, 0, "sequence"), (59, 1, "reserved")] {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        let error = backing::VersionSlot::parse(&wrong)
            .expect_err(field)
            .to_string();
        assert!(
            error.contains(&format!("backing_version_slot.{field}")),
            "{error}"
        );
    }
}

#[test]
fn tail_of_versions_is_as_documented() {
    let record = backing::VersionTail {
        sequence: 31,
        tail: 0x807,
        last_epoch: 3,
        last_number: 0x405,
        retired_epoch: 3,
        retired: 0x400,
        checksum: 0x3c16_c6bc,
    };
    let bytes = hex(
        "444f434154414901 000000000000001f 0000000000000807 0000000000000003 0000000000000405 0000000000000003 \
         0000000000000400 00000000 3c16c6bc",
    );
    assert_eq!(record.emit().to_vec(), bytes);
    assert_eq!(backing::VersionTail::parse(&bytes), Ok(record));
    for (at, value, field) in [(7, 0, "magic"), (15, 0, "sequence"), (59, 1, "reserved")] {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        let error = backing::VersionTail::parse(&wrong)
            .expect_err(field)
            .to_string();
        assert!(
            error.contains(&format!("backing_version_tail.{field}")),
            "{error}"
        );
    }
}

#[test]
fn superblock_is_as_documented() {
    let superblock = backing::Superblock {
        sequence: 31,
        set_high: 0x0102_0304_0506_0708,
        set_low: 0xf1f2_f3f4_f5f6_f7f8,
        epoch: 7,
        epoch_id: 0x4142_4344_4546_4748,
        next_epoch: 8,
        next_epoch_id: 0x5152_5354_5556_5758,
        member: 2,
        state: 4,
        format: 2,
        matrix: 1,
        logical_block_size: 4096,
        boot_high: 0x2122_2324_2526_2728,
        boot_low: 0x3132_3334_3536_3738,
        checksum: 0x2990_6827,
    };
    let bytes = hex(
        "444f434153455403 000000000000001f 0102030405060708 f1f2f3f4f5f6f7f8 0000000000000007 4142434445464748 \
         0000000000000008 5152535455565758 00000002 00000004 00000002 00000001 00001000 \
         2122232425262728 3132333435363738 29906827",
    );
    assert_eq!(superblock.emit().to_vec(), bytes);
    assert_eq!(backing::Superblock::parse(&bytes), Ok(superblock));
    for (at, value, field) in [
        (7, 0, "magic"),
        (15, 0, "sequence"),
        (71, 0, "state"),
        (71, 5, "state"),
        (75, 0, "format"),
        (75, 3, "format"),
        (79, 0, "matrix"),
        (79, 3, "matrix"),
    ] {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        let error = backing::Superblock::parse(&wrong)
            .expect_err(field)
            .to_string();
        assert!(
            error.contains(&format!("backing_superblock.{field}")),
            "{error}"
        );
    }
}

#[test]
fn stored_block_is_as_documented() {
    let header = stored_block::Header {
        original_size: 4096,
        compressed_size: 0x0102_0304,
    };
    assert_eq!(header.emit().as_slice(), hex("00001000 01020304"));
    assert_eq!(
        stored_block::Header::parse(&hex("00001000 01020304 ff")),
        Ok(header)
    );

    // The lengths of LZ4 data blocks are little endian, as in LZ4.
    let data_block = stored_block::DataBlock {
        size_and_raw: 0x8000_0102,
    };
    assert_eq!(data_block.emit().as_slice(), hex("02010080"));
    assert_eq!(
        stored_block::DataBlock::parse(&hex("02010080")),
        Ok(data_block)
    );

    let trailer = stored_block::Trailer {
        unused: 0x0102_0304,
    };
    assert_eq!(trailer.emit().as_slice(), hex("01020304"));
    assert_eq!(stored_block::Trailer::parse(&hex("01020304")), Ok(trailer));
}

#[test]
fn chunk_record_is_as_documented() {
    let record = stored_block::ChunkRecord {
        member: 2,
        set_high: 0x0102_0304_0506_0708,
        set_low: 0xf1f2_f3f4_f5f6_f7f8,
        stripe: 9,
        epoch: 7,
        number: 31,
        compressed_size: 0x0abc,
        checksum: 0x8810_e588,
    };
    let bytes = hex(
        "43484b32 00000002 0102030405060708 f1f2f3f4f5f6f7f8 0000000000000009 0000000000000007 000000000000001f \
         00000abc 0000000000000000 8810e588",
    );
    assert_eq!(record.emit().to_vec(), bytes);
    assert_eq!(stored_block::ChunkRecord::parse(&bytes), Ok(record));
    for (at, value, field) in [(3, 0x31, "magic"), (7, 3, "member"), (59, 1, "reserved")] {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        let error = stored_block::ChunkRecord::parse(&wrong)
            .expect_err(field)
            .to_string();
        assert!(error.contains(&format!("chunk_record.{field}")), "{error}");
    }
}

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
        // Longer form of an answer.
        "verified_init_storage_response",
        // Longer forms of the query and its answer.
        "reserve_storage_request",
        "reserved_storage_response",
        "io_message",
        "io_message_version",
        "io_message_3_1",
        "io_message_3_0",
        "sbc_header",
        "stored_block_header",
        "lz4_data_block",
        "stored_block_trailer",
        "chunk_record",
        "backing_header",
        "backing_version_slot",
        "backing_version_tail",
        "backing_superblock",
        "backing_loss",
        "backing_reservation",
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
        ("io_message_version", Version::SIZE),
        ("chunk_record", stored_block::ChunkRecord::SIZE),
        ("backing_loss", backing::Loss::SIZE),
        ("backing_reservation", backing::Reservation::SIZE),
    ] {
        assert_eq!(entry(name).size as usize, size);
    }
    for name in ["reserve_storage_request", "reserved_storage_response"] {
        let max = entry(name).fields.last().map(|field| field.kind);
        let max = max.expect("fields");
        let expected = u32::try_from(MAX_HOLDER_NAME).expect("64");
        assert!(matches!(max, Kind::Text { max } if max == expected));
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
