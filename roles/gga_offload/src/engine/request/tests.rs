use doca::ErrorCode;
use role_common::stored_block::Geometry;
use wire::release::{CorrelationId as _, IoLayout, Release3_0, Release3_1, Release3_2};

use super::*;

const MEMORY: u64 = 1 << 20;

fn volume() -> Volume {
    Volume {
        geometry: Geometry::compatible(4096),
        block_count: 100,
        placement: Placement::HalfBlocks,
    }
}

fn message() -> Repr {
    Repr {
        message_type: IoMessageType::Write,
        user_data: 77,
        result: 5,
        size: 8192,
        requester_offset: MEMORY - 8192,
        storage_offset: 98 * 4096,
    }
}

fn read(repr: Repr) -> Result<Request, Refusal> {
    Request::read(
        Release3_2,
        &repr.to_bytes(),
        io_message::SIZE,
        volume(),
        MEMORY,
        true,
    )
    .map_err(|(identity, refusal)| {
        assert_eq!(
            (identity.blocks, identity.user_data),
            (0, 77),
            "it can be answered"
        );
        refusal
    })
}

#[test]
fn request_may_reach_the_last_byte_of_both_memories() {
    let request = read(message()).expect("a request");
    assert_eq!(request.operation, Operation::Write);
    assert_eq!((request.first_stripe, request.blocks), (98, 2));
    let answer = request.answer(Release3_2, ErrorCode::IO_FAILED.0);
    let answer = IoMessage::new_unchecked_len(&answer);
    assert_eq!(answer.message_type(), Ok(IoMessageType::Result));
    assert_eq!(
        (answer.result(), answer.user_data()),
        (ErrorCode::IO_FAILED.0, 77)
    );
    assert_eq!(answer.requester_offset(), MEMORY - 8192);
    assert_eq!((answer.size(), answer.storage_offset()), (8192, 98 * 4096));
}

#[test]
fn requests_beyond_a_memory_or_of_partial_blocks_are_refused() {
    for (change, part) in [
        (
            Repr {
                size: 0,
                ..message()
            },
            "size: expected 1 to 255 blocks of 4096",
        ),
        (
            Repr {
                size: 4097,
                ..message()
            },
            "got 4097 bytes",
        ),
        (
            Repr {
                size: 256 * 4096,
                ..message()
            },
            "got 1048576 bytes",
        ),
        (
            Repr {
                size: u32::MAX,
                ..message()
            },
            "size",
        ),
        (
            Repr {
                storage_offset: 99 * 4096,
                ..message()
            },
            "within 409600 bytes",
        ),
        (
            Repr {
                storage_offset: 98 * 4096 + 1,
                ..message()
            },
            "a multiple of 4096",
        ),
        (
            Repr {
                storage_offset: u64::MAX - 4095,
                ..message()
            },
            "storage offset",
        ),
        (
            Repr {
                storage_offset: 100 * 4096,
                ..message()
            },
            "storage offset",
        ),
        (
            Repr {
                requester_offset: MEMORY - 8191,
                ..message()
            },
            "within 1048576 bytes",
        ),
        (
            Repr {
                requester_offset: u64::MAX,
                ..message()
            },
            "requester offset",
        ),
        (
            Repr {
                message_type: IoMessageType::Result,
                ..message()
            },
            "expected a request of 64 bytes",
        ),
    ] {
        let refusal = read(change).expect_err("refused").to_string();
        assert!(refusal.contains(part), "expected {part:?} in {refusal:?}");
    }
}

#[test]
fn whole_blocks_on_the_targets_are_read_only() {
    let of = |message_type| {
        let message = Repr {
            message_type,
            ..message()
        };
        let whole = Volume {
            placement: Placement::WholeBlocks,
            ..volume()
        };
        Request::read(
            Release3_2,
            &message.to_bytes(),
            io_message::SIZE,
            whole,
            MEMORY,
            true,
        )
        .map_err(|(_, refusal)| refusal)
    };
    for write in [IoMessageType::Write, IoMessageType::WriteFua] {
        assert_eq!(of(write), Err(Refusal::ReadOnly));
    }
    let request = of(IoMessageType::Read).expect("a read");
    assert_eq!((request.first_stripe, request.blocks), (98, 2));
}

#[test]
fn request_size_is_limited_in_blocks() {
    let large = Repr {
        size: 255 * 4096,
        requester_offset: 0,
        storage_offset: 0,
        ..message()
    };
    let many = Volume {
        block_count: 255,
        ..volume()
    };
    let request = Request::read(
        Release3_2,
        &large.to_bytes(),
        io_message::SIZE,
        many,
        MEMORY,
        true,
    );
    assert_eq!(request.map(|request| request.blocks), Ok(255));
}

#[test]
fn flushes_and_durable_writes_are_valid_only_where_announced() {
    let flush = Repr {
        message_type: IoMessageType::Flush,
        size: 0,
        requester_offset: 0,
        storage_offset: 0,
        ..message()
    };
    let durable = Repr {
        message_type: IoMessageType::WriteFua,
        ..message()
    };
    let request = read(flush).expect("a flush");
    assert_eq!((request.operation, request.blocks), (Operation::Flush, 0));
    let request = read(durable).expect("a durable write");
    assert_eq!(
        (request.operation, request.is_durable),
        (Operation::Write, true)
    );
    assert!(!read(message()).expect("a write").is_durable);
    for repr in [flush, durable] {
        let refused = Request::read(
            Release3_2,
            &repr.to_bytes(),
            io_message::SIZE,
            volume(),
            MEMORY,
            false,
        );
        assert!(matches!(
            refused,
            Err((_, Refusal::NoRequest { length: 64 }))
        ));
    }
}

#[test]
fn short_messages_and_unknown_types_are_refused() {
    let bytes = message().to_bytes();
    let (_, refusal) =
        Request::read(Release3_2, &bytes, 63, volume(), MEMORY, true).expect_err("short");
    assert_eq!(refusal, Refusal::NoRequest { length: 63 });
    let mut unknown = bytes;
    unknown[3] = 9;
    let refused = Request::read(
        Release3_2,
        &unknown,
        io_message::SIZE,
        volume(),
        MEMORY,
        true,
    );
    assert!(matches!(
        refused,
        Err((_, Refusal::NoRequest { length: 64 }))
    ));
}

#[test]
fn answer_of_another_release_repeats_the_correlation_id_and_the_place() {
    fn answered<L: IoLayout>(layout: L) {
        let values = Repr {
            message_type: IoMessageType::Read,
            user_data: 3,
            result: 0,
            size: 4096,
            requester_offset: 4096,
            storage_offset: 4096,
        };
        let id = L::CorrelationId::from_number(0x0102_0304);
        let bytes = layout.to_bytes(&values, id);
        let request = Request::read(layout, &bytes, io_message::SIZE, volume(), MEMORY, true)
            .expect("a request");
        assert_eq!(request.first_stripe, 1);
        let answer = request.answer(layout, ErrorCode::IO_FAILED.0);
        let expected = layout.to_bytes(&values.answer(ErrorCode::IO_FAILED.0), id);
        assert_eq!(answer, expected);
    }
    answered(Release3_2);
    answered(Release3_1);
    answered(Release3_0 {
        requester_address: 0x7000_0000,
    });
}
