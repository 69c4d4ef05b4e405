//! What a target and the services make of a message.

use arbitrary::{Arbitrary, Result, Unstructured};
use role_common::stored_block::Geometry;
use role_gga_offload::Volume;
use role_gga_offload::request::{MAX_BLOCKS, Operation, Request};
use role_target::request::{self, Limits, examine};
use role_zero_copy::message;
use wire::io_message::{IoMessage, IoMessageType, Repr, SIZE};
use wire::release::{Release, Release3_2};

use super::place::{Amount, Place};
use super::{double_word, word};
use crate::memory;
use crate::tally::Judging;

/// `DOCA_ERROR_INVALID_VALUE`.
const INVALID_VALUE: u32 = 6;

/// The memories that a request is about.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// Bytes of the requester's memory.
    pub requester: u64,
    /// Bytes of a block, at least 1.
    pub block_size: u32,
    /// Blocks of the storage; all their bytes are a number of 64 bits.
    pub block_count: u64,
}

impl Default for World {
    fn default() -> Self {
        Self {
            requester: 1 << 20,
            block_size: 4096,
            block_count: 128,
        }
    }
}

impl<'a> Arbitrary<'a> for World {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let block_size = match u.int_in_range(0..=2)? {
            0 => 4096,
            1 => u32::from(u.arbitrary::<u16>()?).max(1),
            _ => u.arbitrary::<u32>()?.max(1),
        };
        let block_count = if u.arbitrary()? {
            u64::from(u.arbitrary::<u16>()?)
        } else {
            u.arbitrary()?
        };
        let requester = if u.arbitrary()? {
            u64::from(u.arbitrary::<u32>()?)
        } else {
            u.arbitrary()?
        };
        Ok(Self {
            requester,
            block_size,
            // A service refuses larger storages when it asks for them.
            block_count: block_count.min(u64::MAX / u64::from(block_size)),
        })
    }
}

impl World {
    fn storage(&self) -> u64 {
        self.block_count * u64::from(self.block_size)
    }
}

/// From here on, of 256. Not from 0 on: that is what inputs that are too short end with.
const SELDOM: u8 = 224;

/// A request, or almost one.
#[derive(Debug, Clone, Arbitrary)]
pub struct AnyRequest {
    /// First block and blocks of a request of whole ones inside of the storage, instead of its size and place there.
    whole: Option<(u16, u8)>,
    is_write: bool,
    /// Mostly it is a read or a write.
    other_type: (u8, u32),
    user_data: u64,
    result: u32,
    size: Amount,
    requester_offset: Place,
    storage_offset: Place,
    /// What lies where no field is.
    reserved: u8,
    /// Bytes that do not come, or too many that do.
    length: (u8, u8),
}

impl AnyRequest {
    /// Its bytes, in this world.
    #[must_use]
    pub fn bytes(&self, world: &World) -> Vec<u8> {
        let mut size = self.size.resolve(world.block_size);
        let place = self.storage_offset;
        let mut storage_offset = place.resolve(size, world.storage(), world.block_size);
        if let Some((first, blocks)) = self.whole
            && world.block_count != 0
        {
            let first = u64::from(first) % world.block_count;
            size = u32::from(blocks % 8 + 1).wrapping_mul(world.block_size);
            storage_offset = first * u64::from(world.block_size);
        }
        let mut bytes = Repr {
            message_type: if self.is_write {
                IoMessageType::Write
            } else {
                IoMessageType::Read
            },
            user_data: self.user_data,
            result: self.result,
            size,
            requester_offset: self.requester_offset.resolve(
                size,
                world.requester,
                world.block_size,
            ),
            storage_offset,
        }
        .to_bytes()
        .to_vec();
        if let (SELDOM.., number) = self.other_type {
            bytes[..4].copy_from_slice(&number.to_be_bytes());
        }
        bytes[4..8].fill(self.reserved);
        bytes[40..].fill(self.reserved);
        if let (SELDOM.., length) = self.length {
            bytes.resize(length.into(), self.reserved);
        }
        bytes
    }
}

/// What the numbers in a message say, without any arithmetic that could overflow.
struct Facts {
    bytes: [u8; SIZE],
    length: usize,
    operation: Option<Operation>,
    size: u128,
    requester_end: u128,
    storage_offset: u128,
    storage_end: u128,
}

impl Facts {
    /// A receiver has 64 bytes of a longer message, and zeros behind a shorter one.
    fn new(came: &[u8]) -> Self {
        let mut bytes = [0; SIZE];
        let kept = came.len().min(SIZE);
        bytes[..kept].copy_from_slice(&came[..kept]);
        let size = u128::from(word(&bytes, 20));
        let storage_offset = u128::from(double_word(&bytes, 32));
        Self {
            length: came.len(),
            operation: match word(&bytes, 0) {
                1 => Some(Operation::Read),
                2 => Some(Operation::Write),
                _ => None,
            }
            .filter(|_| came.len() == SIZE),
            size,
            requester_end: u128::from(double_word(&bytes, 24)) + size,
            storage_offset,
            storage_end: storage_offset + size,
            bytes,
        }
    }

    /// An answer must be a result with this in it, and the rest from the request.
    fn is_answer(&self, answer: &[u8; SIZE], result: u32) {
        assert_eq!(word(answer, 0), 0, "an answer is a result");
        assert_eq!(word(answer, 16), result);
        for same in [8..16, 20..40] {
            assert_eq!(answer[same.clone()], self.bytes[same]);
        }
        for nothing in [4..8, 40..64] {
            assert!(answer[nothing].iter().all(|byte| *byte == 0));
        }
    }
}

pub(super) fn property(world: &World, came: &[u8]) {
    let facts = Facts::new(came);
    let examiners: [(&str, &dyn Fn() -> bool); 3] = [
        ("io_message: a request at a target", &|| {
            target(world, &facts)
        }),
        ("io_message: a request at zero_copy", &|| zero_copy(&facts)),
        ("io_message: a request at gga_offload", &|| {
            gga_offload(world, &facts)
        }),
    ];
    for (name, examine) in examiners {
        let judging = Judging::by(name);
        let accepted = memory::within(0, "the examination of a message", examine);
        judging.done(accepted);
    }
}

/// Whether it is carried out.
fn target(world: &World, facts: &Facts) -> bool {
    let limits = Limits {
        storage: world.storage(),
        requester: world.requester,
        flush: false,
    };
    let examined = examine(Release3_2, &facts.bytes, facts.length, limits);
    let possible = facts.size != 0
        && facts.storage_end <= limits.storage.into()
        && facts.requester_end <= limits.requester.into();
    let expected = match facts.operation.filter(|_| possible) {
        Some(Operation::Read) => Ok(request::Operation::Read),
        Some(Operation::Write) => Ok(request::Operation::Write { durable: false }),
        // Not announced.
        Some(Operation::Flush) | None => Err(INVALID_VALUE),
    };
    assert_eq!(examined.operation.map_err(|code| code.0), expected);
    let answer = examined.repr.answer(77).to_bytes();
    facts.is_answer(&answer, 77);
    expected.is_ok()
}

/// Whether it is passed on.
fn zero_copy(facts: &Facts) -> bool {
    let request = message::is_request(&facts.bytes, facts.length, false);
    assert_eq!(request, facts.operation.is_some());
    let with_flush = message::is_request(&facts.bytes, facts.length, true);
    assert!(with_flush >= request);
    let result = message::is_result(&facts.bytes, facts.length);
    let kind = IoMessage::new_unchecked_len(&facts.bytes).message_type();
    let expected = kind == Ok(IoMessageType::Result) && facts.length == SIZE;
    assert_eq!(result, expected);
    facts.is_answer(
        &message::refusal(&facts.bytes, Release::V3_2),
        INVALID_VALUE,
    );
    request
}

/// Whether it is carried out.
fn gga_offload(world: &World, facts: &Facts) -> bool {
    let &World {
        block_size,
        block_count,
        requester,
    } = world;
    let volume = Volume {
        geometry: Geometry::compatible(block_size),
        block_count,
    };
    let request = Request::read(
        Release3_2,
        &facts.bytes,
        facts.length,
        volume,
        requester,
        false,
    );

    let block = u128::from(block_size);
    let blocks = facts.size / block;
    let possible = facts.size.is_multiple_of(block)
        && (1..=u128::from(MAX_BLOCKS)).contains(&blocks)
        && facts.storage_offset.is_multiple_of(block)
        && facts.storage_end <= world.storage().into()
        && facts.requester_end <= requester.into();
    let expected = facts.operation.filter(|_| possible);
    let request = match (request, expected) {
        (Ok(request), Some(operation)) => {
            assert_eq!(request.operation, operation);
            assert_eq!(u128::from(request.blocks), blocks);
            assert_eq!(
                u128::from(request.first_stripe) * block,
                facts.storage_offset
            );
            assert_eq!(
                u128::from(request.requester_offset) + facts.size,
                facts.requester_end
            );
            request
        }
        (Err((identity, _)), None) => {
            assert_eq!(identity.blocks, 0, "nothing of it is carried out");
            identity
        }
        (came, _) => panic!("expected {expected:?}, {came:?} came, in {world:?}"),
    };
    facts.is_answer(&request.answer(Release3_2, 9), 9);
    expected.is_some()
}
