//! The initiator, message by message.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::{
    Access, Buf, BufInventory, Completion, Connection, Consumer, CtxState, Device, ErrorCode,
    Event, MemoryRegion, Mmap, Pe, Producer, Task,
};
use role_common::control::{ChannelEvent, ComchClientChannel, ControlChannel as _, Waiter};
use role_common::shutdown::Shutdown;
use rustix::mm::{MprotectFlags, mprotect};
use wire::control::{InitStorage, Message, Payload, StorageDetails};
use wire::io_message::{self, IoMessage, IoMessageType, Repr};

use super::TIMEOUT;

/// I/Os that can be under way at once.
pub const TRANSACTIONS: u32 = 8;

const RECEIVED: u64 = 1 << 32;

/// One message in each direction, over one of the fast paths.
struct Lane {
    receive: Task,
    send: Task,
    incoming: Buf,
    outgoing: Buf,
}

/// Fields are in the order in which they are dropped.
pub struct Initiator {
    lanes: Vec<Lane>,
    fast_paths: Vec<(Consumer, Producer)>,
    pe: Pe,
    /// Its export gives the service access to the memory.
    _mmap: Mmap,
    messages: Mmap,
    /// The memory that the service reads and writes.
    pub memory: Arc<MemoryRegion>,
    pub details: StorageDetails,
    channel: ComchClientChannel,
    waiter: Waiter,
    service_consumers: Vec<u32>,
    next_id: u32,
}

/// Bytes of memory. The last are no whole page, which softdoca copies on request as long as it can be read.
pub const MEMORY: usize = TAIL as usize + 1024;

/// Offset of the last page.
pub const TAIL: u64 = 300 * 1024;
const PAGE: usize = 4096;

impl Initiator {
    /// Starts a session of this many workers.
    pub(super) fn connect(channel_name: &str, workers: u32) -> Self {
        let host = Device::open("3b:00.0").expect("host");
        let memory = MemoryRegion::new(MEMORY).expect("memory");
        let mmap = Mmap::register(&host, memory.clone(), Access::PCI_READ_WRITE).expect("map");
        let mut initiator = Self {
            lanes: Vec::new(),
            fast_paths: Vec::new(),
            pe: Pe::new().expect("progress engine"),
            memory,
            details: StorageDetails {
                total_size: 0,
                block_size: 0,
            },
            channel: ComchClientChannel::connect(&host, channel_name, TIMEOUT).expect("channel"),
            waiter: Waiter::new(Shutdown::new().expect("pipe")),
            service_consumers: Vec::new(),
            next_id: 0,
            _mmap: mmap.clone(),
            messages: messages(&host),
        };
        while initiator.channel.poll().expect("channel") != Some(ChannelEvent::Connected) {
            initiator.waiter.wait(&[&initiator.channel], None);
        }
        let answer = initiator.request(Payload::QueryStorageRequest);
        let Payload::QueryStorageResponse(details) = answer else {
            panic!("got {answer:?}")
        };
        initiator.details = details;
        let init = InitStorage {
            transaction_count: TRANSACTIONS,
            core_count: workers,
            mmap_export_blob: Bytes::from(mmap.export_pci(&host).expect("export")),
        };
        let answer = initiator.request(Payload::InitStorageRequest(init));
        assert_eq!(answer, Payload::InitStorageResponse);
        (0..workers).for_each(|_| initiator.open_fast_path());
        let answer = initiator.request(Payload::StartStorageRequest);
        assert_eq!(answer, Payload::StartStorageResponse);
        initiator.make_lanes();
        initiator
    }

    fn connection(&self) -> Connection {
        self.channel.connection().expect("connected")
    }

    fn open_fast_path(&mut self) {
        let connection = self.connection();
        let consumer = Consumer::start(&self.pe, &connection, &self.messages, TRANSACTIONS);
        let producer = Producer::start(&self.pe, &connection, TRANSACTIONS);
        let (consumer, producer) = (consumer.expect("consumer"), producer.expect("producer"));
        // The connection moves on while the channel is polled, which start does.
        self.fast_paths.push((consumer, producer));
    }

    /// Neighbouring lanes are of different workers.
    fn make_lanes(&mut self) {
        let running = || {
            let mut paths = self.fast_paths.iter();
            paths.all(|(consumer, producer)| {
                [consumer.state(), producer.state()] == [CtxState::Running; 2]
            })
        };
        assert!(self.pe.progress_until(TIMEOUT, running), "no fast path");
        let inventory = BufInventory::new(2 * TRANSACTIONS as usize).expect("inventory");
        let buf = |lane: usize, half: usize| {
            let offset = (2 * lane + half) * io_message::SIZE;
            inventory
                .buf(&self.messages, offset as u64, io_message::SIZE)
                .expect("buf")
        };
        for lane in 0..TRANSACTIONS as usize {
            let path = lane % self.fast_paths.len();
            let (consumer, producer) = &self.fast_paths[path];
            let (incoming, outgoing) = (buf(lane, 0), buf(lane, 1));
            let receive = consumer.post_recv_task(&incoming, RECEIVED | lane as u64);
            let send = producer.send_task(&outgoing, self.service_consumers[path], lane as u64);
            let lane = Lane {
                receive: receive.expect("task"),
                send: send.expect("task"),
                incoming,
                outgoing,
            };
            lane.receive.submit().expect("posted");
            self.lanes.push(lane);
        }
    }

    fn request(&mut self, payload: Payload) -> Payload {
        self.next_id += 1;
        let request = Message {
            message_id: self.next_id,
            correlation_id: 66,
            payload,
        };
        self.channel.send(&request).expect("sent");
        let deadline = Instant::now() + TIMEOUT;
        loop {
            // The fast path starts with the help of this.
            while self.pe.poll().is_some() {}
            match self.channel.poll().expect("a working channel") {
                Some(ChannelEvent::Message(answer)) => {
                    assert_eq!(answer.message_id, self.next_id);
                    return answer.payload;
                }
                Some(ChannelEvent::ConsumerAdded(id)) => self.service_consumers.push(id),
                Some(ChannelEvent::Closed) => panic!("the service is gone"),
                Some(_) => {}
                None => {
                    assert!(Instant::now() < deadline, "no answer");
                    let deadline = Instant::now() + Duration::from_millis(5);
                    self.waiter.wait(&[&self.channel], Some(deadline));
                }
            }
        }
    }

    /// Sends these messages at once, at most as many as there are lanes, and returns the answers by the
    /// order of their user data.
    pub fn exchange(&mut self, messages: &[[u8; io_message::SIZE]]) -> Vec<Repr> {
        let whole: Vec<_> = messages
            .iter()
            .map(|message| (message, io_message::SIZE))
            .collect();
        self.exchange_lengths(&whole)
    }

    /// As [`exchange`](Self::exchange), with this many bytes of each message.
    pub fn exchange_lengths(&mut self, messages: &[(&[u8; io_message::SIZE], usize)]) -> Vec<Repr> {
        let count = messages.len();
        for (lane, &(message, length)) in self.lanes.iter().zip(messages) {
            lane.outgoing
                .write_data(&message[..length])
                .expect("written");
        }
        let deadline = Instant::now() + TIMEOUT;
        let mut unsent: Vec<usize> = (0..count).rev().collect();
        let (mut sent, mut answers) = (0, Vec::new());
        while sent < count || answers.len() < count {
            assert!(
                Instant::now() < deadline,
                "{} of {count} answers",
                answers.len()
            );
            while let Some(&lane) = unsent.last() {
                match self.lanes[lane].send.submit() {
                    Ok(()) => unsent.pop(),
                    Err(ErrorCode::AGAIN) => break,
                    Err(code) => panic!("{code:?}"),
                };
            }
            let Some(Event::Task(Completion { token, result })) = self.pe.poll() else {
                continue;
            };
            assert_eq!(result, Ok(()));
            if token & RECEIVED == 0 {
                sent += 1;
                continue;
            }
            let lane = &self.lanes[(token & !RECEIVED) as usize];
            let mut bytes = [0; io_message::SIZE];
            let length = lane.incoming.read_data(&mut bytes).expect("readable");
            assert_eq!(length, io_message::SIZE);
            let message = IoMessage::new_unchecked_len(&bytes);
            answers.push(Repr::parse(&message).expect("a result"));
            lane.incoming.reset_data().expect("reset");
            lane.receive.submit().expect("posted");
        }
        answers.sort_by_key(|answer| answer.user_data);
        for answer in &answers {
            assert_eq!(answer.message_type, IoMessageType::Result);
        }
        answers
    }

    /// Submits an I/O of one block without waiting for its answer. No other I/O is possible after it.
    pub fn begin(&mut self, message_type: IoMessageType, block: u64) {
        let size = self.details.block_size;
        let offset = block * u64::from(size);
        let request = Repr {
            message_type,
            user_data: 0,
            result: 0,
            size,
            requester_offset: offset,
            storage_offset: offset,
        };
        let lane = &self.lanes[0];
        lane.outgoing
            .write_data(&request.to_bytes())
            .expect("written");
        lane.send.submit().expect("room for a message");
    }

    /// Returns `true` if an answer arrives within this time.
    pub fn is_answered(&mut self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            match self.pe.poll() {
                Some(Event::Task(Completion { token, .. })) if token & RECEIVED != 0 => {
                    return true;
                }
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        false
    }

    /// One I/O, with equal offsets in memory and storage.
    pub fn io(&mut self, message_type: IoMessageType, block: u64, blocks: u32) -> ErrorCode {
        let size = self.details.block_size * blocks;
        let offset = block * u64::from(self.details.block_size);
        self.io_at(message_type, size, offset, offset)
    }

    pub fn io_at(
        &mut self,
        message_type: IoMessageType,
        size: u32,
        requester_offset: u64,
        storage_offset: u64,
    ) -> ErrorCode {
        let request = Repr {
            message_type,
            user_data: 0x0102_0304_0506_0708,
            result: 0,
            size,
            requester_offset,
            storage_offset,
        };
        let answers = self.exchange(&[request.to_bytes()]);
        let expected = Repr {
            message_type: IoMessageType::Result,
            result: answers[0].result,
            ..request
        };
        assert_eq!(answers[0], expected, "an answer repeats its request");
        ErrorCode(answers[0].result)
    }

    /// Takes the access to the last page away: what is behind [`TAIL`] cannot be copied any more.
    pub fn withdraw_memory(&mut self) {
        let tail = self.memory.as_ptr().wrapping_add(TAIL as usize);
        // SAFETY: a page of the region, of which this test has no reference, and which it does not use any more.
        unsafe { mprotect(tail.cast(), PAGE, MprotectFlags::empty()) }.expect("a page");
    }

    /// The memory of this block.
    pub fn block(&self, block: u64) -> Vec<u8> {
        let size = self.details.block_size as usize;
        self.bytes(block as usize * size, size)
    }

    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read(offset, &mut bytes).expect("inside");
        bytes
    }

    /// Stops and shuts down.
    pub(super) fn leave(mut self) {
        let answer = self.request(Payload::StopStorageRequest);
        assert_eq!(answer, Payload::StopStorageResponse);
        self.lanes.clear();
        for (consumer, producer) in self.fast_paths.drain(..) {
            consumer.stop().expect("stopped");
            producer.stop().expect("stopped");
        }
        let answer = self.request(Payload::ShutdownRequest);
        assert_eq!(answer, Payload::ShutdownResponse);
    }
}

fn messages(host: &Device) -> Mmap {
    let length = 2 * TRANSACTIONS as usize * io_message::SIZE;
    let region = MemoryRegion::new(length).expect("memory");
    let access = Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE;
    Mmap::register(host, region, access).expect("map")
}
