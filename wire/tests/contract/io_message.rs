//! I/O messages, compared with handwritten bytes of the documented layout.

use crate::common::hex;
use wire::{
    DecodeError,
    io_message::{IoMessage, IoMessageType, Repr, SIZE},
};

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
        // Each writes the number one, big endian.
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
    for found in [3_u32, 63, 66, 256, u32::MAX] {
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&found.to_be_bytes());
        let view = IoMessage::new_unchecked_len(&bytes);
        let expected = DecodeError::UnknownValue {
            message: "io_message",
            field: "message_type",
            expected: "one of 5 values from 0 (result) to 65 (write_fua)",
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
    for (message_type, number) in [(IoMessageType::Flush, 64), (IoMessageType::WriteFua, 65)] {
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
