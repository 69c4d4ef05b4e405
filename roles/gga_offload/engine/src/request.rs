//! Requests of the initiator, validated before use.

use role_formats::stored_block::Geometry;
use role_formats::superblock::Format;
use wire::io_message::{self, IoMessage, IoMessageType, Repr};
use wire::release::{CorrelationId as _, IoLayout};

use crate::Placement;

/// The storage as presented to the initiator, and its placement on the targets.
#[derive(Debug, Clone, Copy)]
pub struct Volume {
    /// Sizes of stored blocks and of their content.
    pub geometry: Geometry,
    /// Format of the blocks on the targets.
    pub format: Format,
    /// Number of blocks; the size of their content in bytes fits in 64 bits.
    pub block_count: u64,
    /// Placement of stored blocks on the targets.
    pub placement: Placement,
}

/// Maximum number of blocks of one I/O, as in the reference.
pub const MAX_BLOCKS: u64 = 255;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Operation {
    /// Transfers blocks to the initiator.
    #[default]
    Read,
    /// Transfers blocks from the initiator.
    Write,
    /// Makes acknowledged writes durable.
    Flush,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Request {
    pub operation: Operation,
    /// `true` if a write has to be durable before its answer.
    pub is_durable: bool,
    /// First stripe of the request; each block is a stripe.
    pub first_stripe: u64,
    /// Number of blocks: 1 to [`MAX_BLOCKS`], or 0 for a flush and for a request that was refused.
    pub blocks: u8,
    /// Offset of the first block in the initiator's memory.
    pub requester_offset: u64,
    /// The initiator's user data, which the answer repeats.
    pub user_data: u64,
    /// Correlation id of the request, which the response repeats; 0 if the session's release has none.
    pub correlation_id: u32,
    /// Size in bytes, which the answer repeats.
    pub size: u32,
    /// Offset of the first block in the storage, which the answer repeats.
    pub storage_offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The message is not a request that the session supports.
    #[error(
        "expected a request of {} bytes, got {length} bytes that are not one",
        io_message::SIZE
    )]
    NoRequest {
        /// Number of bytes received.
        length: usize,
    },
    /// A write to a storage that cannot be written.
    #[error("expected a read: stored blocks of --placement whole-blocks are not written")]
    ReadOnly,
    /// The size is not a multiple of the block size, or too large.
    #[error("size: expected 1 to {MAX_BLOCKS} blocks of {block_size} bytes, got {size} bytes")]
    Size {
        /// Block size in bytes.
        block_size: u32,
        /// Requested size in bytes.
        size: u32,
    },
    /// The range is not entirely inside the storage.
    #[error(
        "storage offset: expected a multiple of {block_size} and the end within {capacity} bytes, got {size} bytes at {offset}"
    )]
    Storage {
        /// Block size in bytes.
        block_size: u32,
        /// Size of the storage in bytes.
        capacity: u64,
        /// Requested size in bytes.
        size: u32,
        offset: u64,
    },
    /// The range is not entirely inside the initiator's memory.
    #[error(
        "requester offset: expected the end within {length} bytes, got {size} bytes at {offset}"
    )]
    Requester {
        /// Size of the initiator's memory in bytes.
        length: u64,
        /// Requested size in bytes.
        size: u32,
        offset: u64,
    },
}

impl Request {
    /// Reads the fields of any message that its answer repeats.
    fn identity<L: IoLayout>(layout: L, message: &[u8; io_message::SIZE]) -> Self {
        let values = layout.answer_to(message);
        Self {
            user_data: values.user_data,
            correlation_id: L::CorrelationId::read(message).number(),
            size: values.size,
            requester_offset: values.requester_offset,
            storage_offset: values.storage_offset,
            ..Self::default()
        }
    }

    /// Parses a request: a message of `length` bytes from an initiator with `requester_length` bytes of memory. With
    /// `flush`, flushes and durable writes are also valid. A refused request has no blocks, but contains all fields
    /// that its response needs.
    ///
    /// # Errors
    ///
    /// The message is not a valid request, or its range exceeds one of the memories.
    pub fn read<L: IoLayout>(
        layout: L,
        bytes: &[u8; io_message::SIZE],
        length: usize,
        volume: Volume,
        requester_length: u64,
        flush: bool,
    ) -> Result<Self, (Self, Refusal)> {
        let message = IoMessage::new_unchecked_len(bytes);
        let identity = Self::identity(layout, bytes);
        let refused = |refusal| Err((identity, refusal));
        let (operation, is_durable) = match message.message_type() {
            _ if length != io_message::SIZE => return refused(Refusal::NoRequest { length }),
            Ok(IoMessageType::Read) => (Operation::Read, false),
            Ok(IoMessageType::Write) => (Operation::Write, false),
            Ok(IoMessageType::WriteFua) if flush => (Operation::Write, true),
            Ok(IoMessageType::Flush) if flush => {
                return Ok(Self {
                    operation: Operation::Flush,
                    ..identity
                });
            }
            Ok(_) | Err(_) => {
                return refused(Refusal::NoRequest { length });
            }
        };
        if operation == Operation::Write && !volume.placement.is_writable() {
            return refused(Refusal::ReadOnly);
        }
        let block_size = volume.geometry.logical_block_size;
        let size = identity.size;
        let blocks = u64::from(size / block_size);
        if !size.is_multiple_of(block_size) || !(1..=MAX_BLOCKS).contains(&blocks) {
            return refused(Refusal::Size { block_size, size });
        }
        let offset = identity.storage_offset;
        let first_stripe = offset / u64::from(block_size);
        let fits = offset.is_multiple_of(block_size.into())
            && volume
                .block_count
                .checked_sub(first_stripe)
                .is_some_and(|left| blocks <= left);
        if !fits {
            return refused(Refusal::Storage {
                block_size,
                capacity: volume.block_count * u64::from(block_size),
                size,
                offset,
            });
        }
        let offset = identity.requester_offset;
        let end = offset.checked_add(size.into());
        if end.is_none_or(|end| end > requester_length) {
            return refused(Refusal::Requester {
                length: requester_length,
                size,
                offset,
            });
        }
        Ok(Self {
            operation,
            is_durable,
            first_stripe,
            // At most 255.
            blocks: blocks as u8,
            ..identity
        })
    }

    /// Builds the answer with the result of the request.
    #[must_use]
    pub fn answer<L: IoLayout>(&self, layout: L, result: u32) -> [u8; io_message::SIZE] {
        let values = Repr {
            message_type: IoMessageType::Result,
            user_data: self.user_data,
            result,
            size: self.size,
            requester_offset: self.requester_offset,
            storage_offset: self.storage_offset,
        };
        layout.to_bytes(&values, L::CorrelationId::from_number(self.correlation_id))
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::Status;
    use role_formats::stored_block::Geometry;
    use role_formats::superblock::Format;
    use wire::release::{CorrelationId as _, IoLayout, Release3_0, Release3_1, Release3_2};

    use super::*;

    const MEMORY: u64 = 1 << 20;

    fn volume() -> Volume {
        Volume {
            format: Format::StoredBlocks,
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
        let answer = request.answer(Release3_2, Status::IO_FAILED.0);
        let answer = IoMessage::new_unchecked_len(&answer);
        assert_eq!(answer.message_type(), Ok(IoMessageType::Result));
        assert_eq!(
            (answer.result(), answer.user_data()),
            (Status::IO_FAILED.0, 77)
        );
        assert_eq!(answer.requester_offset(), MEMORY - 8192);
        assert_eq!((answer.size(), answer.storage_offset()), (8192, 98 * 4096));
    }

    #[test]
    fn requests_beyond_a_memory_or_of_partial_blocks_are_refused() {
        let size = |size| Refusal::Size {
            block_size: 4096,
            size,
        };
        let storage = |size, offset| Refusal::Storage {
            block_size: 4096,
            capacity: 409_600,
            size,
            offset,
        };
        let requester = |offset| Refusal::Requester {
            length: MEMORY,
            size: 8192,
            offset,
        };
        for (change, expected) in [
            (
                Repr {
                    size: 0,
                    ..message()
                },
                size(0),
            ),
            (
                Repr {
                    size: 4097,
                    ..message()
                },
                size(4097),
            ),
            (
                Repr {
                    size: 256 * 4096,
                    ..message()
                },
                size(256 * 4096),
            ),
            (
                Repr {
                    size: u32::MAX,
                    ..message()
                },
                size(u32::MAX),
            ),
            (
                Repr {
                    storage_offset: 99 * 4096,
                    ..message()
                },
                storage(8192, 99 * 4096),
            ),
            (
                Repr {
                    storage_offset: 98 * 4096 + 1,
                    ..message()
                },
                storage(8192, 98 * 4096 + 1),
            ),
            (
                Repr {
                    storage_offset: u64::MAX - 4095,
                    ..message()
                },
                storage(8192, u64::MAX - 4095),
            ),
            (
                Repr {
                    storage_offset: 100 * 4096,
                    ..message()
                },
                storage(8192, 100 * 4096),
            ),
            (
                Repr {
                    requester_offset: MEMORY - 8191,
                    ..message()
                },
                requester(MEMORY - 8191),
            ),
            (
                Repr {
                    requester_offset: u64::MAX,
                    ..message()
                },
                requester(u64::MAX),
            ),
            (
                Repr {
                    message_type: IoMessageType::Result,
                    ..message()
                },
                Refusal::NoRequest { length: 64 },
            ),
        ] {
            assert_eq!(read(change), Err(expected), "{change:?}");
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
            let answer = request.answer(layout, Status::IO_FAILED.0);
            let expected = layout.to_bytes(&values.answer(Status::IO_FAILED.0), id);
            assert_eq!(answer, expected);
        }
        answered(Release3_2);
        answered(Release3_1);
        answered(Release3_0 {
            requester_address: 0x7000_0000,
        });
    }
}
