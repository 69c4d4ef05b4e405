//! I/O messages: their bytes, their handling as requests by targets and services, and as results by an initiator.

use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Result, Unstructured};
use gga_engine::Placement;
use gga_engine::request::{MAX_BLOCKS, Operation, Request, Volume};
use role_formats::stored_block::Geometry;
use role_initiator::app::{AccessOrder, Strategy};
use role_initiator::data_path::{Failure, Task, Transactions};
use role_initiator::layout::{self, Layout, Share};
use role_target::request::{self, Limits, examine};
use volume::endpoint::{Completed, Request as Asked, Requests};
use wire::control::StorageDetails;
use wire::io_message::{IoMessage, IoMessageType, Repr, SIZE, Version};
use wire::release::{Release, Release3_2};

use super::control_frames::rest;
use super::harness::{self, Counting, Damage, Many, spoil};

/// Messages, and their receiver.
#[derive(Debug, Clone)]
pub enum Input {
    /// Any bytes, for all receivers.
    Raw {
        /// The receiver's memory and storage.
        world: World,
        bytes: Vec<u8>,
    },
    /// A valid or slightly invalid request to a target or a service.
    Request {
        /// The receiver's memory and storage.
        world: World,
        request: AnyRequest,
    },
    /// Results for an initiator, valid and invalid.
    Answers(Answers),
}

/// One byte selects the kind and the remaining bytes are the content, so that a message can be used as an input.
impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match u.int_in_range(0..=2)? {
            0 => Self::Raw {
                world: World::default(),
                bytes: rest(u)?,
            },
            1 => Self::Request {
                world: u.arbitrary()?,
                request: u.arbitrary()?,
            },
            _ => Self::Answers(u.arbitrary()?),
        })
    }
}

/// A request is executed if and only if it is within both memories, and every result repeats the values of its request.
///
/// # Panics
///
/// If the property does not hold.
pub fn property(input: &Input) {
    match input {
        Input::Raw { world, bytes } => {
            view(bytes);
            requests_property(world, bytes);
        }
        Input::Request { world, request } => {
            let bytes = request.bytes(world);
            view(&bytes);
            requests_property(world, &bytes);
        }
        Input::Answers(answers) => answers_property(answers),
    }
}

/// The view reads and writes exactly the fields of the layout.
fn view(bytes: &[u8]) {
    let counting = Counting::of("io_message: the bytes");
    let accepted = harness::within_memory(0, "a view", || {
        let Ok(message) = IoMessage::new_checked(bytes) else {
            assert_ne!(bytes.len(), SIZE);
            return false;
        };
        let bytes: &[u8; SIZE] = bytes.try_into().expect("only that is a message");
        let number = word(bytes, 0);
        assert_eq!(message.user_data(), double_word(bytes, 8));
        assert_eq!(message.result(), word(bytes, 16));
        assert_eq!(message.size(), word(bytes, 20));
        assert_eq!(message.requester_offset(), double_word(bytes, 24));
        assert_eq!(message.storage_offset(), double_word(bytes, 32));

        let Ok(repr) = Repr::parse(&message) else {
            assert!(number > 2);
            return false;
        };
        assert_eq!(repr.message_type.number(), number);
        let mut clean = *bytes;
        clean[4..8].fill(0);
        clean[40..].fill(0);
        assert_eq!(repr.to_bytes(), clean, "zeros where no field is");

        let answer = repr.answer(7);
        let expected = Repr {
            message_type: IoMessageType::Result,
            result: 7,
            ..repr
        };
        assert_eq!(answer, expected);
        let mut in_place = IoMessage::new_unchecked_len(*bytes);
        in_place.answer(7);
        assert_eq!(Repr::parse(&in_place), Ok(expected));
        let version = Version::of(bytes);
        assert_eq!(version.epoch, double_word(bytes, 40));
        assert_eq!(version.number, double_word(bytes, 48));
        assert_eq!(version.retired, double_word(bytes, 56));
        version.write(&mut clean);
        assert_eq!(clean[40..], bytes[40..], "every version round-trips");
        assert_eq!(clean[..40], repr.to_bytes()[..40], "no other byte changes");
        let in_place = in_place.into_inner();
        assert_eq!(
            (&in_place[4..8], &in_place[40..]),
            (&bytes[4..8], &bytes[40..])
        );
        true
    });
    counting.done(accepted);
}

fn word(bytes: &[u8; SIZE], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().expect("inside of the message"))
}

fn double_word(bytes: &[u8; SIZE], at: usize) -> u64 {
    u64::from_be_bytes(*bytes[at..].first_chunk().expect("inside of the message"))
}

// Results for an initiator, valid and invalid, in any order.

/// A run of an initiator, and the events in it.
#[derive(Debug, Clone, Arbitrary)]
pub struct Answers {
    /// Usually a value with which the run is valid.
    odd: u8,
    storage: AnyStorage,
    workers: u8,
    worker: u8,
    blocks_per_io: u16,
    local_region_size: Option<u32>,
    transactions: u8,
    operations: u8,
    strategy: u8,
    steps: Many<Step, 64>,
}

/// A storage as reported by its service.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum AnyStorage {
    Any { total_size: u64, block_size: u32 },
    Blocks { count: u16, block_size: u16 },
}

/// An event. Slots are taken modulo their number.
#[derive(Debug, Clone, Arbitrary)]
enum Step {
    /// The request of this slot has been sent.
    Sent(u8),
    /// A valid result.
    Answer(u8),
    /// A result with an error code.
    Failure(u8, u32),
    Damaged(u8, Vec<Damage>),
    Bytes(Vec<u8>),
    Halt,
}

/// Expected state of a slot.
#[derive(Debug, Clone, Copy)]
struct Known {
    request: Repr,
    sent: bool,
    /// Result code received.
    answered: Option<u32>,
}

const STRATEGIES: [Strategy; 4] = [
    Strategy::ReadThroughputTest,
    Strategy::WriteThroughputTest,
    Strategy::ReadWriteDataValidityTest,
    Strategy::ReadOnlyDataValidityTest,
];

/// Maximum share of a worker in bytes, because a run allocates memory for its share.
const LARGEST_SHARE: u32 = 1 << 12;

fn answers_property(input: &Answers) {
    let is_odd = input.odd < 64;
    let details = match input.storage {
        AnyStorage::Any {
            total_size,
            block_size,
        } if is_odd => StorageDetails {
            total_size,
            block_size,
        },
        AnyStorage::Any {
            total_size,
            block_size,
        } => blocks(total_size % 128 + 8, block_size % 8192 + 1),
        AnyStorage::Blocks { count, block_size } => blocks(count.into(), block_size.into()),
    };
    let request = layout::Request {
        workers: u32::from(input.workers % 8) + 1,
        blocks_per_io: if is_odd {
            input.blocks_per_io.max(1)
        } else {
            input.blocks_per_io % 4 + 1
        },
        is_mirrored: false,
        local_region_size: input
            .local_region_size
            .filter(|_| is_odd)
            .map_or(0, u64::from),
        transactions: u32::from(input.transactions) + 1,
        operations: u32::from(input.operations) + 1,
    };
    let Ok(layout) = Layout::new(&details, request) else {
        return;
    };
    division(&details, &layout);
    let share = layout.shares[usize::from(input.worker) % layout.shares.len()];
    if share.ios.max(share.local_slots) > LARGEST_SHARE {
        return;
    }
    let task = Task {
        flush_every: 0,
        order: AccessOrder::Sequential,
        share,
        io_size: layout.io_size,
        strategy: STRATEGIES[usize::from(input.strategy) % STRATEGIES.len()],
        validator: None,
        operations: request.operations,
        io_timeout: Duration::from_secs(3600),
        is_mirrored: false,
    };
    Run::new(share, task).steps(&input.steps.0);
}

fn blocks(count: u64, block_size: u32) -> StorageDetails {
    StorageDetails {
        total_size: count * u64::from(block_size),
        block_size,
    }
}

/// Checks that the shares cover each byte of the storage exactly once, and the memory is sufficient.
fn division(details: &StorageDetails, layout: &Layout) {
    let (mut storage, mut local) = (0, 0);
    for share in &layout.shares {
        assert_eq!((share.storage_offset, share.local_offset), (storage, local));
        assert!(share.transactions >= 1);
        assert!(share.transactions <= share.ios.min(share.local_slots));
        let size = u64::from(layout.io_size);
        assert_eq!(share.storage_size.div_ceil(size), u64::from(share.ios));
        storage += share.storage_size;
        local += u64::from(share.local_slots) * size;
    }
    assert_eq!(storage, details.total_size);
    assert!(local <= layout.region_size);
}

/// A run, and its expected state.
struct Run {
    transactions: Transactions,
    requests: Requests,
    share: Share,
    slots: Vec<Option<Known>>,
    /// No further I/O is started.
    ending: bool,
}

impl Run {
    fn new(share: Share, task: Task) -> Self {
        let mut run = Self {
            transactions: Transactions::new(task),
            requests: Requests::new(share.transactions),
            share,
            slots: vec![None; share.transactions as usize],
            ending: false,
        };
        for slot in 0..share.transactions {
            let request = run.transactions.begin(slot, Instant::now());
            let request = request.expect("nothing has failed");
            run.issued(slot as usize, request);
        }
        run
    }

    /// Replaces a slot's request.
    fn issued(&mut self, slot: usize, request: Option<Asked>) {
        self.slots[slot] = None;
        let Some(asked) = request else { return };
        let request = Repr {
            message_type: asked.message_type,
            user_data: slot as u64,
            result: 0,
            size: asked.size,
            requester_offset: asked.memory_offset,
            storage_offset: asked.storage_offset,
        };
        let message = self.requests.begin(Release3_2, slot as u32, &asked);
        assert_eq!(message, request.to_bytes());
        self.slots[slot] = Some(Known {
            request,
            sent: false,
            answered: None,
        });
        assert_ne!(request.size, 0);
        let end = self.share.storage_offset + self.share.storage_size;
        assert!(request.storage_offset >= self.share.storage_offset);
        assert!(request.storage_offset + u64::from(request.size) <= end);
        for (other, known) in self.slots.iter().enumerate() {
            let Some(Known { request: known, .. }) = known else {
                continue;
            };
            assert!(
                other == slot
                    || are_apart(
                        (request.storage_offset, request.size),
                        (known.storage_offset, known.size)
                    ) && are_apart(
                        (request.requester_offset, request.size),
                        (known.requester_offset, known.size)
                    ),
                "two transactions in one place: {request:?} and {known:?}"
            );
        }
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Sent(slot) => self.sent(*slot),
                Step::Answer(slot) => self.answered(self.answer(*slot, 0)),
                Step::Failure(slot, code) => self.answered(self.answer(*slot, *code)),
                Step::Damaged(slot, damage) => {
                    let mut answer = self.answer(*slot, 0);
                    spoil(&mut answer, damage);
                    self.answered(answer);
                }
                Step::Bytes(bytes) => self.answered(bytes.clone()),
                Step::Halt => {
                    self.transactions.halt();
                    self.ending = true;
                }
            }
            assert!(self.transactions.completed() <= self.transactions.operations());
            // Requests without a result are still in flight.
            let in_flight = self.slots.iter().flatten().count();
            if in_flight != 0 {
                assert!(!self.transactions.at_rest(), "{in_flight} in flight");
            } else {
                assert!(self.transactions.at_rest());
            }
        }
    }

    fn slot(&self, slot: u8) -> usize {
        usize::from(slot) % self.slots.len()
    }

    /// A result for the request in a slot, or a result without a request.
    fn answer(&self, slot: u8, code: u32) -> Vec<u8> {
        let slot = self.slot(slot);
        let nothing = Repr {
            message_type: IoMessageType::Result,
            user_data: slot as u64,
            result: 0,
            size: 0,
            requester_offset: 0,
            storage_offset: 0,
        };
        let request = self.slots[slot].map_or(nothing, |known| known.request);
        request.answer(code).to_bytes().to_vec()
    }

    fn sent(&mut self, slot: u8) {
        let slot = self.slot(slot);
        // A request is sent once.
        let Some(known) = self.slots[slot].as_mut().filter(|known| !known.sent) else {
            return;
        };
        known.sent = true;
        let known = *known;
        let completed = self.requests.sent(slot as u32);
        self.check(slot, known, completed);
    }

    /// Checks that a request completes once it was sent and answered, and continues the run.
    fn check(&mut self, slot: usize, known: Known, completed: Option<Completed>) {
        let code = known.answered.filter(|_| known.sent);
        let expected = code.map(|result| Completed {
            number: slot as u32,
            result,
        });
        assert_eq!(completed, expected);
        let Some(Completed { number, result }) = completed else {
            return;
        };
        let next = self.transactions.advance(number, result);
        if result == 0 {
            let next = next.expect("nothing is validated here");
            assert!(
                next.is_none() || !self.ending,
                "no further request after a failure"
            );
            self.issued(slot, next);
        } else {
            assert!(matches!(next, Err(Failure::Io { code, .. }) if code == result));
            self.slots[slot] = None;
            self.ending = true;
        }
    }

    fn answered(&mut self, bytes: Vec<u8>) {
        let counting = Counting::of("io_message: a result at an initiator");
        let accepted = self.check_result(&bytes);
        counting.done(accepted);
    }

    /// Returns `true` if these bytes are the result of a request.
    fn check_result(&mut self, bytes: &[u8]) -> bool {
        // The receive buffer holds one message, zero-filled after the received bytes.
        let bytes = &bytes[..bytes.len().min(SIZE)];
        let mut buffer = [0; SIZE];
        buffer[..bytes.len()].copy_from_slice(bytes);
        // The request that these bytes answer, if any.
        let slot = self.slots.iter().position(|known| {
            known.is_some_and(|known| {
                let right = known.request.answer(0).to_bytes();
                // Differences outside of the result field.
                let differs = |(at, (came, right)): (usize, (&u8, &u8))| {
                    came != right && !matches!(at, 4..8 | 16..20 | 40..64)
                };
                known.answered.is_none()
                    && bytes.len() == right.len()
                    && !bytes.iter().zip(&right).enumerate().any(differs)
            })
        });
        let result = self.requests.answered(Release3_2, &buffer, bytes.len());
        let Some(slot) = slot else {
            result.expect_err("it answers no request");
            return false;
        };
        let completed = result.expect("it answers a request");
        let known = self.slots[slot].as_mut().expect("it is in flight");
        known.answered = Some(IoMessage::new_unchecked_len(&buffer).result());
        let known = *known;
        self.check(slot, known, completed);
        true
    }
}

fn are_apart((a, a_size): (u64, u32), (b, b_size): (u64, u32)) -> bool {
    a + u64::from(a_size) <= b || b + u64::from(b_size) <= a
}

// Requests to a target and to the services.

/// `DOCA_ERROR_INVALID_VALUE`.
const INVALID_VALUE: u32 = 6;

/// The requester's memory and the storage that a request refers to.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// Size of the requester's memory in bytes.
    pub requester: u64,
    /// Block size in bytes, at least 1.
    pub block_size: u32,
    /// Number of blocks; the storage's size in bytes fits into 64 bits.
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
            // A service refuses larger storages when it queries them.
            block_count: block_count.min(u64::MAX / u64::from(block_size)),
        })
    }
}

impl World {
    fn storage(&self) -> u64 {
        self.block_count * u64::from(self.block_size)
    }
}

/// Threshold of a rare choice, out of 256. Not near 0, because short inputs end with zeros.
const SELDOM: u8 = 224;

/// A valid or slightly invalid request.
#[derive(Debug, Clone, Arbitrary)]
pub struct AnyRequest {
    /// First block and number of blocks of a valid request for whole blocks; replaces size and offset.
    whole: Option<(u16, u8)>,
    is_write: bool,
    /// Usually a read or a write.
    other_type: (u8, u32),
    user_data: u64,
    result: u32,
    size: Amount,
    requester_offset: Place,
    storage_offset: Place,
    /// Value of the reserved bytes.
    reserved: u8,
    /// Number of missing or additional bytes.
    length: (u8, u8),
}

impl AnyRequest {
    /// The message's bytes, with offsets and sizes for this world.
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

/// The values of a message, evaluated without arithmetic overflow.
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
    /// Truncates a message to 64 bytes, or pads it with zeros, as a receiver does.
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

    /// Checks that an answer is a result with these values, and otherwise equals the request.
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

fn requests_property(world: &World, came: &[u8]) {
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
        let counting = Counting::of(name);
        let accepted = harness::within_memory(0, "the examination of a message", examine);
        counting.done(accepted);
    }
}

/// Returns `true` if the target executes the request.
fn target(world: &World, facts: &Facts) -> bool {
    let limits = Limits {
        storage: world.storage(),
        requester: world.requester,
        flush: false,
        versions: None,
    };
    let examined = examine(Release3_2, &facts.bytes, facts.length, limits);
    let possible = facts.size != 0
        && facts.storage_end <= limits.storage.into()
        && facts.requester_end <= limits.requester.into();
    let expected = match facts.operation.filter(|_| possible) {
        Some(Operation::Read) => Ok(request::Operation::Read),
        Some(Operation::Write) => Ok(request::Operation::Write { durable: false }),
        // Flush was not announced.
        Some(Operation::Flush) | None => Err(INVALID_VALUE),
    };
    assert_eq!(examined.operation.map_err(|code| code.0), expected);
    let answer = examined.repr.answer(77).to_bytes();
    facts.is_answer(&answer, 77);
    expected.is_ok()
}

/// Returns `true` if the request is forwarded.
fn zero_copy(facts: &Facts) -> bool {
    let request = role_zero_copy::request_type(&facts.bytes, facts.length, false).is_some();
    assert_eq!(request, facts.operation.is_some());
    let with_flush = role_zero_copy::request_type(&facts.bytes, facts.length, true).is_some();
    assert!(with_flush >= request);
    let result = role_zero_copy::is_result(&facts.bytes, facts.length);
    let kind = IoMessage::new_unchecked_len(&facts.bytes).message_type();
    let expected = kind == Ok(IoMessageType::Result) && facts.length == SIZE;
    assert_eq!(result, expected);
    facts.is_answer(
        &role_zero_copy::refusal(&facts.bytes, Release::V3_2),
        INVALID_VALUE,
    );
    request
}

/// Returns `true` if the service executes the request.
fn gga_offload(world: &World, facts: &Facts) -> bool {
    let &World {
        block_size,
        block_count,
        requester,
    } = world;
    let volume = Volume {
        geometry: Geometry::compatible(block_size),
        block_count,
        placement: Placement::default(),
        format: role_formats::superblock::Format::StoredBlocks,
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
        (came, _) => panic!("expected {expected:?}, got {came:?}, in {world:?}"),
    };
    facts.is_answer(&request.answer(Release3_2, 9), 9);
    expected.is_some()
}

// Numbers near the limits.

#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Place {
    Any(u64),
    /// Near the start.
    At(u16),
    /// A multiple of the block size.
    Block(u16),
    /// Up to 15 bytes before the last offset at which the request fits.
    BeforeEnd(u8),
    /// Up to 3 blocks before that offset.
    BlocksBeforeEnd(u8),
    /// 1 to 16 bytes after that offset.
    BehindEnd(u8),
    /// Just before the sum of offset and size overflows.
    BeforeOverflow(u16),
}

impl Place {
    /// The offset for `size` bytes in a memory of `length` bytes with blocks of `block` bytes.
    #[must_use]
    pub fn resolve(self, size: u32, length: u64, block: u32) -> u64 {
        let last = length.wrapping_sub(size.into());
        match self {
            Self::Any(offset) => offset,
            Self::At(offset) => offset.into(),
            Self::Block(number) => u64::from(number).wrapping_mul(block.into()),
            Self::BeforeEnd(less) => last.wrapping_sub((less / 16).into()),
            Self::BlocksBeforeEnd(less) => {
                last.wrapping_sub(u64::from(less / 64).wrapping_mul(block.into()))
            }
            Self::BehindEnd(more) => last.wrapping_add(u64::from(more / 16) + 1),
            Self::BeforeOverflow(less) => u64::MAX - u64::from(less),
        }
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Amount {
    Any(u32),
    Few(u8),
    Blocks(u8),
    /// Whole blocks plus a few bytes.
    BlocksAndMore(u8, u8),
    /// About the maximum number of blocks of one I/O.
    ManyBlocks(u8),
}

impl Amount {
    /// The number of bytes, for blocks of `block` bytes.
    #[must_use]
    pub fn resolve(self, block: u32) -> u32 {
        match self {
            Self::Any(size) => size,
            Self::Few(size) => size.into(),
            Self::Blocks(number) => u32::from(number).wrapping_mul(block),
            Self::BlocksAndMore(number, more) => u32::from(number)
                .wrapping_mul(block)
                .wrapping_add(more.into()),
            Self::ManyBlocks(more) => (200 + u32::from(more)).wrapping_mul(block),
        }
    }
}
