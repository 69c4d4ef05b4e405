//! Engines that share a storage, with events in random order, compared with an array of bytes.

use std::cell::RefCell;
use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const DEPTH: u32 = 3;
/// Size of a buffer in bytes; each I/O has one.
const BUFFER: u64 = 200;

/// Memory of a queue: buffers, edges, zeros.
struct Bytes(RefCell<Vec<u8>>);

impl Memory for Bytes {
    fn copy(&self, from: u64, to: u64, len: usize) -> Result<(), ErrorCode> {
        let from = from as usize;
        self.0
            .borrow_mut()
            .copy_within(from..from + len, to as usize);
        Ok(())
    }

    fn clear(&self, at: u64, len: usize) -> Result<(), ErrorCode> {
        self.0.borrow_mut()[at as usize..at as usize + len].fill(0);
        Ok(())
    }
}

/// An I/O to submit.
#[derive(Clone, Debug)]
struct Plan {
    queue: usize,
    operation: Operation,
    offset: u64,
    len: u32,
}

/// A request that the storage is processing.
struct Work {
    queue: usize,
    number: u32,
    request: Request,
    /// Bytes transferred so far.
    done: u32,
}

struct Queue {
    engine: Engine,
    memory: Bytes,
    /// Offsets of free buffers.
    buffers: Vec<u64>,
    /// Buffers of I/Os, by slot.
    of_slot: HashMap<usize, u64>,
}

/// Expected result of an I/O, known from its first request on.
#[derive(Debug)]
enum Expected {
    Bytes(Vec<u8>),
    Nothing,
}

struct World {
    geometry: Geometry,
    locks: Arc<RangeLocks>,
    queues: Vec<Queue>,
    storage: Vec<u8>,
    /// Contents of the volume after all I/Os with a first request, one after the other.
    model: Vec<u8>,
    work: Vec<Work>,
    plans: Vec<Plan>,
    expected: HashMap<u64, Expected>,
    completed: usize,
    random: fastrand::Rng,
}

fn geometry(blocks: u64, block_size: u32, request_blocks: u32) -> Geometry {
    let edges = u64::from(DEPTH) * BUFFER;
    Geometry {
        size: blocks * u64::from(block_size),
        block_size,
        request_size: request_blocks * block_size,
        flush: true,
        read_only: false,
        edges,
        zeros: edges + u64::from(DEPTH * 2 * block_size),
    }
}

/// Byte that an I/O writes at this position; differs from that of every other I/O.
fn byte(tag: u64, position: u64) -> u8 {
    (tag as u8).wrapping_mul(37).wrapping_add(position as u8) | 1
}

impl World {
    fn new(geometry: Geometry, queues: usize, plans: Vec<Plan>, seed: u64) -> Self {
        let locks = Arc::new(RangeLocks::new(1));
        let memory_len = (geometry.zeros + u64::from(geometry.request_size)) as usize;
        let queue = |_| Queue {
            engine: Engine::new(geometry, Arc::clone(&locks), DEPTH),
            memory: Bytes(RefCell::new(vec![0; memory_len])),
            buffers: (0..u64::from(DEPTH)).map(|index| index * BUFFER).collect(),
            of_slot: HashMap::new(),
        };
        let storage = vec![0xee; geometry.size as usize];
        Self {
            queues: (0..queues).map(queue).collect(),
            model: storage.clone(),
            storage,
            geometry,
            locks,
            work: Vec::new(),
            plans,
            expected: HashMap::new(),
            completed: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Returns `false` if the queue is full.
    fn submit(&mut self, tag: usize) -> bool {
        let plan = &self.plans[tag];
        let queue = &mut self.queues[plan.queue];
        let Some(memory) = queue.buffers.pop() else {
            return false;
        };
        if plan.operation.has_buffer() {
            let mut bytes = queue.memory.0.borrow_mut();
            for position in 0..BUFFER {
                bytes[(memory + position) as usize] = byte(tag as u64, position);
            }
        }
        let submission = Submission {
            tag: tag as u64,
            operation: plan.operation,
            offset: plan.offset,
            len: plan.len,
            memory,
            memory_len: BUFFER as u32,
        };
        let Some(slot) = queue.engine.submit(&submission) else {
            queue.buffers.push(memory);
            return false;
        };
        queue.of_slot.insert(slot, memory);
        true
    }

    /// Submits I/O number `next`, if it exists and its queue is not full. Returns the number of the next one.
    fn submit_next(&mut self, next: usize) -> usize {
        if next == self.plans.len() || !self.submit(next) {
            return next;
        }
        self.reap();
        next + 1
    }

    /// Takes a request from a queue. The model applies an I/O at its first request.
    fn request(&mut self, index: usize) -> bool {
        let queue = &mut self.queues[index];
        let Some((number, request)) = queue.engine.poll_request() else {
            return false;
        };
        let slot = queue.engine.transactions[number as usize].slot as usize;
        let tag = queue.engine.slots[slot].tag;
        let plan = &self.plans[tag as usize];
        let range = plan.offset as usize..plan.offset as usize + plan.len as usize;
        if !self.expected.contains_key(&tag) {
            let expected = match plan.operation {
                Operation::Read => Expected::Bytes(self.model[range].to_vec()),
                Operation::Write { .. } => {
                    for (position, at) in range.enumerate() {
                        self.model[at] = byte(tag, position as u64);
                    }
                    Expected::Nothing
                }
                Operation::WriteZeroes { .. } | Operation::Discard => {
                    self.model[range].fill(0);
                    Expected::Nothing
                }
                Operation::Flush => Expected::Nothing,
            };
            self.expected.insert(tag, expected);
        }
        let is_durable = matches!(
            plan.operation,
            Operation::Write { fua: true } | Operation::WriteZeroes { fua: true }
        );
        match request.message_type {
            IoMessageType::Write => assert!(plan.operation.writes() && !is_durable),
            IoMessageType::WriteFua => assert!(is_durable),
            IoMessageType::Flush => assert_eq!(plan.operation, Operation::Flush),
            _ => assert!(plan.operation != Operation::Flush),
        }
        if request.message_type != IoMessageType::Flush {
            let block = u64::from(self.geometry.block_size);
            assert!(request.storage_offset.is_multiple_of(block), "{request:?}");
            assert!(u64::from(request.size).is_multiple_of(block), "{request:?}");
            assert!(request.size > 0 && request.size <= self.geometry.request_size);
        }
        self.work.push(Work {
            queue: index,
            number,
            request,
            done: 0,
        });
        true
    }

    /// Transfers a few bytes of a request, and answers it after the last ones.
    fn transfer(&mut self, index: usize) {
        let Work {
            queue,
            number,
            request,
            done,
        } = self.work[index];
        let queue = &mut self.queues[queue];
        let count = (request.size - done).min(self.random.u32(1..=request.size.max(1)));
        let at = (request.storage_offset + u64::from(done)) as usize;
        let local = (request.memory_offset + u64::from(done)) as usize;
        let count = count as usize;
        {
            let mut memory = queue.memory.0.borrow_mut();
            match request.message_type {
                IoMessageType::Read => {
                    memory[local..local + count].copy_from_slice(&self.storage[at..at + count]);
                }
                IoMessageType::Write | IoMessageType::WriteFua => {
                    self.storage[at..at + count].copy_from_slice(&memory[local..local + count]);
                }
                _ => {}
            }
        }
        self.work[index].done += count as u32;
        if self.work[index].done < request.size {
            return;
        }
        self.work.swap_remove(index);
        queue.engine.completed(number, 0, &queue.memory);
        self.reap();
    }

    fn reap(&mut self) {
        for queue in &mut self.queues {
            while let Some(done) = queue.engine.poll_done() {
                assert_eq!(done.result, Ok(()));
                let memory = queue.of_slot.remove(&done.slot).expect("submitted");
                let len = self.plans[done.tag as usize].len as usize;
                if let Some(Expected::Bytes(bytes)) = self.expected.get(&done.tag) {
                    let memory = memory as usize;
                    let buffer = &queue.memory.0.borrow()[memory..memory + BUFFER as usize];
                    assert_eq!(&buffer[..len], bytes, "I/O {}", done.tag);
                    for (position, &rest) in buffer.iter().enumerate().skip(len) {
                        assert_eq!(rest, byte(done.tag, position as u64), "behind the I/O");
                    }
                }
                queue.buffers.push(memory);
                self.completed += 1;
            }
        }
    }

    /// Loses the session: requests in progress stay partially done and are never answered.
    fn lose_session(&mut self) {
        self.work.clear();
        for queue in &mut self.queues {
            queue.engine.restart();
        }
    }

    fn run(mut self, losses: bool) {
        let (mut next, mut steps) = (0, 0);
        while self.completed < self.plans.len() {
            steps += 1;
            assert!(steps < 200_000, "{} of {next} I/Os", self.completed);
            let queue = self.random.usize(..self.queues.len());
            match self.random.u32(..if losses { 101 } else { 100 }) {
                0..20 => next = self.submit_next(next),
                20..50 => {
                    self.request(queue);
                }
                50..80 if !self.work.is_empty() => {
                    let index = self.random.usize(..self.work.len());
                    self.transfer(index);
                }
                80..100 => {
                    self.queues[queue].engine.retry_locks();
                    self.reap();
                }
                100 => self.lose_session(),
                _ => {}
            }
        }
        assert_eq!(self.storage, self.model);
        assert!(self.locks.is_free());
        for queue in &mut self.queues {
            assert!(queue.engine.is_idle());
            assert!(!queue.engine.has_requests());
            let zeros = self.geometry.zeros as usize;
            assert!(
                queue.memory.0.borrow()[zeros..]
                    .iter()
                    .all(|&byte| byte == 0)
            );
        }
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => Just(Operation::Read),
        4 => any::<bool>().prop_map(|fua| Operation::Write { fua }),
        1 => Just(Operation::Flush),
        1 => any::<bool>().prop_map(|fua| Operation::WriteZeroes { fua }),
        1 => Just(Operation::Discard),
    ]
}

fn plan(queues: usize, size: u64) -> impl Strategy<Value = Plan> {
    (0..queues, operation(), 0..=size, 0..=BUFFER as u32).prop_map(
        move |(queue, operation, offset, len)| Plan {
            queue,
            operation,
            offset,
            len: u64::from(len).min(size - offset) as u32,
        },
    )
}

fn scenario() -> impl Strategy<Value = (Geometry, usize, Vec<Plan>, u64)> {
    let sizes = (
        2..40_u64,
        prop_oneof![Just(1_u32), Just(3), Just(8), Just(16)],
        1..6_u32,
    );
    (sizes, 1..4_usize).prop_flat_map(|((blocks, block_size, request), queues)| {
        let geometry = geometry(blocks, block_size, request);
        let plans = proptest::collection::vec(plan(queues, geometry.size), 1..30);
        (Just(geometry), Just(queues), plans, any::<u64>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn volume_is_an_array_of_bytes((geometry, queues, plans, seed) in scenario()) {
        World::new(geometry, queues, plans, seed).run(false);
    }

    #[test]
    fn volume_is_an_array_of_bytes_across_sessions((geometry, queues, plans, seed) in scenario()) {
        World::new(geometry, queues, plans, seed).run(true);
    }
}

fn single(read_only: bool, flush: bool) -> Engine {
    let geometry = Geometry {
        read_only,
        flush,
        ..geometry(8, 16, 4)
    };
    Engine::new(geometry, Arc::new(RangeLocks::new(1)), 2)
}

fn submission(operation: Operation, offset: u64, len: u32) -> Submission {
    Submission {
        tag: 7,
        operation,
        offset,
        len,
        memory: 0,
        memory_len: 100,
    }
}

#[test]
fn impossible_ios_complete_with_their_error() {
    let out = |offset, len| IoError::OutOfRange {
        offset,
        len,
        size: 128,
    };
    let write = Operation::Write { fua: false };
    let durable = Operation::Write { fua: true };
    let zeroes = Operation::WriteZeroes { fua: true };
    for (read_only, flush, operation, offset, len, expected) in [
        (false, true, Operation::Read, 128, 1, out(128, 1)),
        (false, true, write, u64::MAX, 1, out(u64::MAX, 1)),
        (
            false,
            true,
            Operation::Discard,
            0,
            u32::MAX,
            out(0, u32::MAX),
        ),
        (
            false,
            true,
            Operation::Read,
            0,
            101,
            IoError::Buffer {
                expected: 101,
                actual: 100,
            },
        ),
        (true, true, write, 0, 1, IoError::ReadOnly),
        (true, true, Operation::Discard, 0, 1, IoError::ReadOnly),
        (false, false, Operation::Flush, 0, 0, IoError::Unsupported),
        (false, false, durable, 0, 1, IoError::Unsupported),
        (false, false, zeroes, 0, 1, IoError::Unsupported),
    ] {
        let mut engine = single(read_only, flush);
        let slot = engine
            .submit(&submission(operation, offset, len))
            .expect("room");
        assert_eq!(engine.poll_request(), None);
        let done = Done {
            slot,
            tag: 7,
            result: Err(expected),
        };
        assert_eq!(engine.poll_done(), Some(done));
        assert!(engine.is_idle());
    }
}

#[test]
fn submissions_beyond_the_depth_are_refused() {
    let mut engine = single(false, true);
    for _ in 0..2 {
        assert!(engine.submit(&submission(Operation::Read, 0, 1)).is_some());
    }
    assert!(engine.submit(&submission(Operation::Read, 0, 1)).is_none());
}

#[test]
fn io_with_a_failed_request_fails_after_its_other_requests() {
    let mut engine = single(false, true);
    let memory = Bytes(RefCell::new(vec![0; 4096]));
    engine
        .submit(&submission(Operation::Write { fua: false }, 3, 80))
        .expect("room");
    let (first, _) = engine.poll_request().expect("the first edge");
    let (second, _) = engine.poll_request().expect("the last edge");
    let mut complete = |number: u32, result: u32| {
        engine.completed(number, result, &memory);
        (engine.poll_request(), engine.poll_done())
    };
    assert_eq!(complete(first, 17), (None, None));
    let (request, done) = complete(second, 0);
    assert_eq!(request, None, "it has failed");
    assert_eq!(
        done.expect("done").result,
        Err(IoError::Failed { code: 17 })
    );
    assert!(engine.locks.is_free());
}

#[test]
fn completions_without_a_request_are_ignored() {
    let mut engine = single(false, true);
    let memory = Bytes(RefCell::new(vec![0; 4096]));
    engine
        .submit(&submission(Operation::Read, 0, 16))
        .expect("room");
    let (number, _) = engine.poll_request().expect("a request");
    for other in [number + 1, 2, u32::MAX] {
        engine.completed(other, 0, &memory);
    }
    assert_eq!(engine.poll_done(), None);
    engine.completed(number, 0, &memory);
    engine.completed(number, 0, &memory);
    assert_eq!(engine.poll_done().expect("done").result, Ok(()));
    assert!(engine.is_idle() && !engine.has_requests());
}

#[test]
fn fail_all_fails_ios_in_every_state() {
    let mut engine = single(false, true);
    for offset in [0, 1] {
        let write = Operation::Write { fua: false };
        engine.submit(&submission(write, offset, 40)).expect("room");
    }
    engine.poll_request().expect("of the first");
    assert!(engine.has_waiting());
    engine.fail_all(IoError::Disconnected);
    for _ in 0..2 {
        let done = engine.poll_done().expect("done");
        assert_eq!(done.result, Err(IoError::Disconnected));
    }
    assert!(engine.is_idle() && !engine.has_requests());
    assert_eq!(engine.poll_request(), None);
    assert!(engine.locks.is_free());
    engine
        .submit(&submission(Operation::Read, 0, 16))
        .expect("room");
    assert!(engine.poll_request().is_some());
}

#[test]
fn large_ios_are_divided_evenly() {
    let mut engine = single(false, true);
    engine
        .submit(&submission(Operation::WriteZeroes { fua: false }, 0, 80))
        .expect("room");
    let (_, first) = engine.poll_request().expect("a request");
    let (_, second) = engine.poll_request().expect("a request");
    assert_eq!((first.size, second.size), (48, 32));
}
