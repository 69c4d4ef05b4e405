//! The contexts of one worker of a session: a Comch producer and consumer, the memory of their I/O messages, and the tasks that send and
//! receive them.

use std::sync::Arc;

use doca::{
    Access, Buf, BufInventory, Connection, Consumer, CtxState, Device, ErrorCode, Mmap, Pe,
    Producer, Task,
};
use role_common::Failure;
use role_common::messages::Messages;
use wire::io_message;

/// Bit of the token of a send task; the others are the number of the request. The token of a receive task is its index.
pub const SEND: u64 = 1 << 32;

/// Receive tasks for each request that may be in flight, as in the reference.
const RECEIVES_PER_REQUEST: u32 = 2;

/// Parts that the contexts of a worker are made from.
#[derive(Clone, Debug)]
pub struct Contexts {
    /// The device that the I/O messages are registered with.
    pub device: Device,
    /// The connection to the service.
    pub connection: Connection,
}

/// A buf with the task that sends or receives it.
#[derive(Debug)]
pub struct Message {
    /// The task.
    pub task: Task,
    /// The 64 bytes that it sends or receives.
    pub buf: Buf,
}

/// A worker's producer and consumer, with as many prepared tasks as requests may be in flight.
#[derive(Debug)]
pub struct Endpoint {
    // Dropped in this order: what stops first comes first, and the progress engine that stopping needs comes last.
    /// Receive tasks, two for each request.
    pub receives: Vec<Message>,
    /// Send tasks, one for each request.
    pub sends: Vec<Message>,
    consumer: Consumer,
    producer: Producer,
    inventory: BufInventory,
    mmap: Mmap,
    /// The places of the receives, and then those of the sends.
    pub messages: Messages,
    /// The engine that completes the tasks.
    pub pe: Pe,
    count: u32,
}

impl Endpoint {
    /// Creates and starts the contexts for `count` requests in flight. They run once [`Endpoint::ready`] says so.
    ///
    /// # Errors
    /// A DOCA call failed.
    pub fn new(contexts: &Contexts, count: u32) -> Result<Self, Failure> {
        let tasks = count as usize * (RECEIVES_PER_REQUEST as usize + 1);
        let messages = Messages::new(tasks)?;
        let mmap = Mmap::register(
            &contexts.device,
            Arc::clone(messages.region()),
            Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE,
        )?;
        let inventory = BufInventory::new(tasks)?;
        let pe = Pe::new()?;
        let producer = Producer::start(&pe, &contexts.connection, count)?;
        let receives = count * RECEIVES_PER_REQUEST;
        let consumer = Consumer::start(&pe, &contexts.connection, &mmap, receives)?;
        Ok(Self {
            receives: Vec::with_capacity(receives as usize),
            sends: Vec::with_capacity(count as usize),
            consumer,
            producer,
            inventory,
            mmap,
            messages,
            pe,
            count,
        })
    }

    /// Progresses the contexts; returns `true` when both run.
    pub fn ready(&mut self) -> bool {
        while self.pe.poll().is_some() {}
        self.consumer.state() == CtxState::Running && self.producer.state() == CtxState::Running
    }

    /// Makes the tasks, for the service's consumer with this id.
    ///
    /// # Errors
    /// A DOCA call failed.
    pub fn prepare(&mut self, consumer: u32) -> Result<(), Failure> {
        let size = io_message::SIZE;
        let receives = u64::from(self.count * RECEIVES_PER_REQUEST);
        for index in 0..receives {
            let buf = self.inventory.buf(&self.mmap, index * size as u64, size)?;
            let task = self.consumer.post_recv_task(&buf, index)?;
            self.receives.push(Message { task, buf });
        }
        for index in 0..u64::from(self.count) {
            let buf =
                self.inventory
                    .buf_with_data(&self.mmap, (receives + index) * size as u64, size)?;
            let task = self.producer.send_task(&buf, consumer, SEND | index)?;
            self.sends.push(Message { task, buf });
        }
        Ok(())
    }

    /// Posts all receive tasks.
    ///
    /// # Errors
    /// The submission of one failed.
    pub fn post_receives(&self) -> Result<(), ErrorCode> {
        self.receives
            .iter()
            .try_for_each(|message| message.task.submit())
    }

    /// Copies the message that receive task `index` has received into `bytes`, and returns its length. Bytes that did not come are
    /// zeros. The buffer is empty afterwards, so that the task can be submitted again.
    ///
    /// # Errors
    /// The task is in flight.
    #[inline(always)]
    pub fn received(
        &self,
        index: usize,
        bytes: &mut [u8; io_message::SIZE],
    ) -> doca::Result<usize> {
        let message = &self.receives[index];
        let length = self.messages.received(index, &message.buf, bytes)?;
        message.buf.reset_data()?;
        Ok(length)
    }

    /// Writes a message into the buffer of send task `index`, which is not in flight: all of the buffer is its data.
    ///
    /// # Errors
    /// There is no such task.
    #[inline(always)]
    pub fn put(&self, index: u32, message: &[u8; io_message::SIZE]) -> doca::Result<()> {
        self.messages
            .put(self.receives.len() + index as usize, message)
    }
}
