//! Peer's end of a Comch connection's fast path: a consumer and a producer, like those of one worker of the other role.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use doca::{
    Access, Buf, BufInventory, Consumer, CtxState, Device, ErrorCode, Event, MemoryRegion, Mmap,
    Pe, Producer, Task,
};
use wire::io_message::{IoMessage, Repr, SIZE};

use super::{ComchPeer, Violation};

/// Size of a receive buffer in bytes: larger than a valid message, to detect longer ones.
const ROOM: usize = 2 * SIZE;

/// Bit in the token of a send task; the other bits are its index.
const SEND: u64 = 1 << 32;

/// A buffer with the task that sends or receives it.
#[derive(Debug)]
struct Message {
    task: Task,
    buf: Buf,
}

/// One worker's end of the fast path, of an initiator or a service. It has a progress engine of its own: events of
/// the control channel are not handled meanwhile.
#[derive(Debug)]
pub struct IoChannel {
    // Dropped in this order: tasks before contexts, and those before the engine.
    receives: Vec<Message>,
    sends: Vec<Message>,
    consumer: Consumer,
    producer: Producer,
    inventory: BufInventory,
    messages: Mmap,
    received: VecDeque<Vec<u8>>,
    pe: Pe,
}

impl IoChannel {
    /// Starts consumer and producer on the connection of `control`, with `depth` credits in each direction. The role
    /// is informed of the consumer at once, and may send.
    ///
    /// # Errors
    ///
    /// They are not running within `timeout`.
    pub fn start(
        device: &Device,
        control: &ComchPeer,
        depth: u32,
        timeout: Duration,
    ) -> Result<Self, Violation> {
        let count = depth as usize;
        let pe = Pe::new()?;
        let access = Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE;
        let messages = Mmap::register(device, MemoryRegion::new(2 * count * ROOM)?, access)?;
        let producer = Producer::start(&pe, control.connection(), depth)?;
        let consumer = Consumer::start(&pe, control.connection(), &messages, depth)?;
        let running =
            || consumer.state() == CtxState::Running && producer.state() == CtxState::Running;
        Violation::unless(
            pe.progress_until(timeout, running),
            "a consumer and a producer to run",
            format!("{:?} and {:?}", consumer.state(), producer.state()),
        )?;
        let mut channel = Self {
            receives: Vec::with_capacity(count),
            sends: Vec::new(),
            consumer,
            producer,
            inventory: BufInventory::new(2 * count)?,
            messages,
            received: VecDeque::new(),
            pe,
        };
        for index in 0..count {
            let buf = channel.buf(index)?;
            let task = channel.consumer.post_recv_task(&buf, index as u64)?;
            task.submit()?;
            channel.receives.push(Message { task, buf });
        }
        Ok(channel)
    }

    /// Selects the role's consumer to send to: one of [`ComchPeer::consumers`], the n-th for the n-th worker.
    ///
    /// # Errors
    ///
    /// There is no such consumer.
    pub fn send_to(&mut self, consumer: u32) -> Result<(), Violation> {
        self.sends.clear();
        let count = self.receives.len();
        for index in 0..count {
            let buf = self.buf(count + index)?;
            let token = SEND | index as u64;
            let task = self.producer.send_task(&buf, consumer, token)?;
            self.sends.push(Message { task, buf });
        }
        Ok(())
    }

    /// Sends bytes as one message, valid or not. Waits for a credit of the role.
    ///
    /// # Errors
    ///
    /// There is none within `timeout`.
    pub fn send_bytes(&mut self, bytes: &[u8], timeout: Duration) -> Result<(), Violation> {
        let deadline = Instant::now() + timeout;
        let mut written = None;
        loop {
            let idle = written.or_else(|| {
                let is_idle = |message: &Message| !message.task.is_in_flight();
                self.sends.iter().position(is_idle)
            });
            if let Some(index) = idle {
                let message = &self.sends[index];
                if written.is_none() {
                    message.buf.write_data(bytes)?;
                    written = Some(index);
                }
                match message.task.submit() {
                    Ok(()) => return Ok(()),
                    Err(ErrorCode::AGAIN) => {}
                    Err(code) => return Err(code.into()),
                }
            }
            if Instant::now() > deadline {
                return Err(Violation::expected(
                    "the role's consumer to have room for a message",
                    format!("none in {timeout:?}"),
                ));
            }
            self.progress()?;
        }
    }

    /// Sends an I/O message; reserved bytes are zero.
    ///
    /// # Errors
    ///
    /// As [`IoChannel::send_bytes`].
    pub fn send(&mut self, message: &Repr, timeout: Duration) -> Result<(), Violation> {
        self.send_bytes(&message.to_bytes(), timeout)
    }

    /// Waits until the role has received everything that was sent.
    ///
    /// # Errors
    ///
    /// It has not within `timeout`.
    pub fn flush(&mut self, timeout: Duration) -> Result<(), Violation> {
        let deadline = Instant::now() + timeout;
        while self.sends.iter().any(|sent| sent.task.is_in_flight()) {
            if Instant::now() > deadline {
                return Err(Violation::expected(
                    "the role to take what was sent",
                    format!("nothing in {timeout:?}"),
                ));
            }
            self.progress()?;
        }
        Ok(())
    }

    /// Next received message, of any length; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The fast path has failed.
    pub fn poll(&mut self) -> Result<Option<Vec<u8>>, Violation> {
        if self.received.is_empty() {
            self.progress()?;
        }
        Ok(self.received.pop_front())
    }

    /// Waits for a message of the right length.
    ///
    /// # Errors
    ///
    /// There is none within `timeout`, or it has another length.
    pub fn receive(&mut self, timeout: Duration) -> Result<[u8; SIZE], Violation> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(bytes) = self.poll()? {
                return <[u8; SIZE]>::try_from(bytes.as_slice()).map_err(|_| {
                    Violation::expected(
                        format!("an I/O message of {SIZE} bytes"),
                        format!("{} bytes", bytes.len()),
                    )
                });
            }
            if Instant::now() > deadline {
                return Err(Violation::expected(
                    "an I/O message",
                    format!("nothing in {timeout:?}"),
                ));
            }
        }
    }

    /// Waits for an I/O message.
    ///
    /// # Errors
    ///
    /// As [`IoChannel::receive`], and if it is not an I/O message.
    pub fn receive_message(&mut self, timeout: Duration) -> Result<Repr, Violation> {
        let bytes = self.receive(timeout)?;
        Ok(Repr::parse(&IoMessage::new_unchecked_len(&bytes))?)
    }

    /// Id of this side's consumer.
    ///
    /// # Errors
    ///
    /// The fast path has failed.
    pub fn consumer_id(&self) -> Result<u32, Violation> {
        Ok(self.consumer.consumer_id()?)
    }

    /// Destroys consumer and producer; the role is informed of the consumer's expiry.
    ///
    /// # Errors
    ///
    /// They do not stop.
    pub fn stop(self) -> Result<(), Violation> {
        let Self {
            receives,
            sends,
            consumer,
            producer,
            ..
        } = self;
        drop((receives, sends));
        consumer.stop()?;
        Ok(producer.stop()?)
    }

    fn buf(&self, index: usize) -> Result<Buf, Violation> {
        let offset = (index * ROOM) as u64;
        Ok(self.inventory.buf(&self.messages, offset, ROOM)?)
    }

    /// Handles one event, if there is one.
    fn progress(&mut self) -> Result<(), Violation> {
        let Some(Event::Task(completion)) = self.pe.poll() else {
            return Ok(());
        };
        if completion.token & SEND != 0 {
            return completion
                .result
                .map_err(|code| Violation::expected("a message to be sent", code));
        }
        completion
            .result
            .map_err(|code| Violation::expected("a message to be received", code))?;
        let message = &self.receives[completion.token as usize];
        let mut bytes = vec![0; message.buf.data_len()?];
        message.buf.read_data(&mut bytes)?;
        message.buf.reset_data()?;
        message.task.submit()?;
        self.received.push_back(bytes);
        Ok(())
    }
}
