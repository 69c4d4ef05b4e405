//! The peers' ends of control channels and of Comch fast paths: messages and raw bytes, with arbitrary timing.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use doca::{
    Access, Buf, BufInventory, ComchClient, ComchEvent, ComchServer, Connection, Consumer,
    CtxState, Device, ErrorCode, Event, MemoryRegion, Mmap, Pe, Producer, Representor, Task,
};
use wire::control::{FrameDecoder, Message, Payload};
use wire::io_message::{IoMessage, Repr, SIZE};

use crate::violation::Violation;

/// Sleep of a peer between two idle polls.
pub(crate) const PAUSE: Duration = Duration::from_micros(500);
/// Time limit for the role to receive a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Result of polling a channel.
#[derive(Debug, Clone, PartialEq)]
pub enum Polled {
    /// The role has sent this message.
    Message(Message),
    Nothing,
    /// The role has closed the channel, or has exited.
    Closed,
}

/// The peer's end of a control channel with the role under test.
pub trait ControlPeer {
    /// Sends bytes, which need not be a frame, as one segment or Comch message.
    ///
    /// # Errors
    ///
    /// The channel is closed.
    fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Violation>;

    /// Polls for a message without waiting.
    ///
    /// # Errors
    ///
    /// The bytes received are not a frame, or the channel has failed.
    fn poll(&mut self) -> Result<Polled, Violation>;

    /// Sends a message as one segment or Comch message.
    ///
    /// # Errors
    ///
    /// The channel is closed.
    fn send(&mut self, message: &Message) -> Result<(), Violation> {
        self.send_bytes(&message.encode_to_vec())
    }

    /// Waits for an event; [`Polled::Nothing`] after `timeout`.
    ///
    /// # Errors
    ///
    /// As [`ControlPeer::poll`].
    fn next(&mut self, timeout: Duration) -> Result<Polled, Violation> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.poll()? {
                Polled::Nothing if Instant::now() < deadline => std::thread::sleep(PAUSE),
                polled => return Ok(polled),
            }
        }
    }

    /// Waits for a message; `what` describes it in errors.
    ///
    /// # Errors
    ///
    /// No message arrives within `timeout`, or the channel is closed.
    fn receive(&mut self, what: &str, timeout: Duration) -> Result<Message, Violation> {
        match self.next(timeout)? {
            Polled::Message(message) => Ok(message),
            Polled::Nothing => Err(Violation::expected(what, format!("nothing in {timeout:?}"))),
            Polled::Closed => Err(Violation::expected(what, "the end of the channel")),
        }
    }

    /// Sends a request and waits for its answer, which must repeat both of its ids.
    ///
    /// # Errors
    ///
    /// No answer arrives within `timeout`, or it has other ids.
    fn ask(&mut self, request: &Message, timeout: Duration) -> Result<Payload, Violation> {
        self.send(request)?;
        self.answer_to(request, timeout)
    }

    /// Waits for the answer to a request that was sent, which must repeat both of its ids.
    ///
    /// # Errors
    ///
    /// No answer arrives within `timeout`, or it has other ids.
    fn answer_to(&mut self, request: &Message, timeout: Duration) -> Result<Payload, Violation> {
        let what = format!("an answer to {}", request.payload.message_type());
        let answer = self.receive(&what, timeout)?;
        let ids = |message: &Message| {
            format!(
                "message id {:#x} and correlation id {:#x}",
                message.message_id, message.correlation_id
            )
        };
        Violation::unless(ids(&answer) == ids(request), ids(request), ids(&answer))?;
        Ok(answer.payload)
    }

    /// Waits until the role has closed the channel; messages received before are dropped.
    ///
    /// # Errors
    ///
    /// The channel was not closed within `timeout`.
    fn wait_closed(&mut self, timeout: Duration) -> Result<(), Violation> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.next(deadline.saturating_duration_since(Instant::now()))? {
                Polled::Closed => return Ok(()),
                Polled::Message(_) => {}
                Polled::Nothing => {
                    return Err(Violation::expected(
                        "the role to close the channel",
                        format!("nothing in {timeout:?}"),
                    ));
                }
            }
        }
    }
}

// Comch control channel between an initiator and a service.

/// End of a Comch connection of an initiator or a service.
#[derive(Debug)]
pub struct ComchPeer {
    end: End,
    connection: Connection,
    decoder: FrameDecoder,
    messages: VecDeque<Message>,
    /// Ids of the role's consumers, in the order of their creation.
    consumers: Vec<u32>,
    expired: usize,
    closed: bool,
    // Last: contexts are stopped before their engine is destroyed.
    pe: Pe,
}

#[derive(Debug)]
enum End {
    Client(ComchClient),
    Server(ComchServer),
}

impl ComchPeer {
    /// Connects to a service, as an initiator does, and retries until the service accepts.
    ///
    /// # Errors
    ///
    /// No service has accepted within `timeout`.
    pub fn connect(device: &Device, channel: &str, timeout: Duration) -> Result<Self, Violation> {
        let deadline = Instant::now() + timeout;
        loop {
            let pe = Pe::new()?;
            let client = ComchClient::start(&pe, device, channel)?;
            while client.state() != CtxState::Idle {
                if let Some(Event::Comch(ComchEvent::Connected(connection))) = pe.poll() {
                    return Ok(Self::new(End::Client(client), connection, pe));
                }
                if Instant::now() > deadline {
                    break;
                }
            }
            if Instant::now() > deadline {
                return Err(Violation::expected(
                    format!("a service on Comch {channel:?}"),
                    format!("none in {timeout:?}"),
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a server for an initiator, as a service does.
    ///
    /// # Errors
    ///
    /// The server does not start.
    pub fn serve(
        device: &Device,
        representor: &Representor,
        channel: &str,
    ) -> Result<Listening, Violation> {
        let pe = Pe::new()?;
        let server = ComchServer::start(&pe, device, representor, channel)?;
        Ok(Listening { server, pe })
    }

    fn new(end: End, connection: Connection, pe: Pe) -> Self {
        Self {
            end,
            connection,
            decoder: FrameDecoder::new(),
            messages: VecDeque::new(),
            consumers: Vec::new(),
            expired: 0,
            closed: false,
            pe,
        }
    }

    /// The connection, on which consumers and producers can be created.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Ids of the role's consumers.
    pub fn consumers(&self) -> &[u32] {
        &self.consumers
    }

    /// Number of the role's consumers that have expired.
    pub fn expired(&self) -> usize {
        self.expired
    }

    /// Polls until `done` returns `true`; messages received in the meantime are kept for [`ControlPeer::poll`].
    /// `what` completes "expected" in the error.
    ///
    /// # Errors
    ///
    /// `done` does not return `true` within `timeout`, or the channel was closed before.
    pub fn wait_until(
        &mut self,
        what: &str,
        timeout: Duration,
        done: impl Fn(&Self) -> bool,
    ) -> Result<(), Violation> {
        let deadline = Instant::now() + timeout;
        loop {
            let is_idle = !self.take_event()?;
            if done(self) {
                return Ok(());
            }
            if self.closed {
                return Err(Violation::expected(what, "the end of the channel"));
            }
            if Instant::now() > deadline {
                return Err(Violation::expected(what, format!("nothing in {timeout:?}")));
            }
            if is_idle {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Handles one event, if there is one.
    fn take_event(&mut self) -> Result<bool, Violation> {
        let Some(event) = self.pe.poll() else {
            return Ok(false);
        };
        match event {
            Event::Comch(ComchEvent::Message { bytes, connection })
                if connection == self.connection =>
            {
                self.decoder.push(&bytes);
                while let Some(message) = self.decoder.next()? {
                    self.messages.push_back(message);
                }
            }
            Event::Comch(ComchEvent::ConsumerAdded { id, .. }) => self.consumers.push(id),
            Event::Comch(ComchEvent::ConsumerExpired { id, .. }) => {
                self.consumers.retain(|other| *other != id);
                self.expired += 1;
            }
            Event::Comch(ComchEvent::Disconnected(connection)) if connection == self.connection => {
                self.closed = true;
            }
            _ => {}
        }
        Ok(true)
    }
}

impl ControlPeer for ComchPeer {
    fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let deadline = Instant::now() + SEND_TIMEOUT;
        loop {
            let sent = match &self.end {
                End::Client(client) => client.send(bytes),
                End::Server(server) => server.send(&self.connection, bytes),
            };
            match sent {
                // Further messages are in flight.
                Err(error)
                    if matches!(error.code, ErrorCode::AGAIN | ErrorCode::NO_MEMORY)
                        && Instant::now() < deadline =>
                {
                    self.take_event()?;
                }
                sent => return Ok(sent?),
            }
        }
    }

    fn poll(&mut self) -> Result<Polled, Violation> {
        while self.messages.is_empty() && self.take_event()? {}
        Ok(match self.messages.pop_front() {
            Some(message) => Polled::Message(message),
            None if self.closed => Polled::Closed,
            None => Polled::Nothing,
        })
    }
}

/// A server without a client.
#[derive(Debug)]
pub struct Listening {
    server: ComchServer,
    pe: Pe,
}

impl Listening {
    /// Waits for the first client, as long as `alive` returns `true`.
    ///
    /// # Errors
    ///
    /// No client connects within `timeout`, or the role has exited.
    pub fn accept(
        self,
        timeout: Duration,
        mut alive: impl FnMut() -> bool,
    ) -> Result<ComchPeer, Violation> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.pe.poll() {
                Some(Event::Comch(ComchEvent::Connected(connection))) => {
                    return Ok(ComchPeer::new(
                        End::Server(self.server),
                        connection,
                        self.pe,
                    ));
                }
                Some(_) => {}
                None if !alive() => {
                    return Err(Violation::expected("an initiator to connect", "its end"));
                }
                None if Instant::now() < deadline => std::thread::sleep(PAUSE),
                None => {
                    return Err(Violation::expected(
                        "an initiator to connect",
                        format!("none in {timeout:?}"),
                    ));
                }
            }
        }
    }
}

// TCP control channel between a service and a target.

/// End of a TCP connection of a service or a target.
#[derive(Debug)]
pub struct TcpPeer {
    stream: TcpStream,
    decoder: FrameDecoder,
    closed: bool,
}

impl TcpPeer {
    /// Connects to a target, as a service does.
    ///
    /// # Errors
    ///
    /// The connection is refused.
    pub fn connect(port: u16) -> Result<Self, Violation> {
        Self::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?)
    }

    /// Waits for a service to connect, as a target does.
    ///
    /// # Errors
    ///
    /// No service has connected within `timeout`.
    pub fn accept(listener: &TcpListener, timeout: Duration) -> Result<Self, Violation> {
        listener.set_nonblocking(true)?;
        let deadline = Instant::now() + timeout;
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Self::new(stream),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error.into()),
                Err(_) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Err(_) => {
                    return Err(Violation::expected(
                        "a service to connect",
                        format!("none in {timeout:?}"),
                    ));
                }
            }
        }
    }

    fn new(stream: TcpStream) -> Result<Self, Violation> {
        stream.set_nonblocking(true)?;
        // Each write is sent as a separate segment.
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            decoder: FrameDecoder::new(),
            closed: false,
        })
    }

    /// Closes the sending direction, and continues to receive.
    ///
    /// # Errors
    ///
    /// The connection is closed.
    pub fn close_sending(&self) -> Result<(), Violation> {
        Ok(self.stream.shutdown(Shutdown::Write)?)
    }

    /// Closes the connection with a reset, as a machine that has lost its state.
    ///
    /// # Errors
    ///
    /// The operating system refuses it.
    pub fn reset(self) -> Result<(), Violation> {
        Ok(
            rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO))
                .map_err(io::Error::from)?,
        )
    }
}

impl ControlPeer for TcpPeer {
    fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let deadline = Instant::now() + SEND_TIMEOUT;
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error.into()),
                Err(_) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Err(_) => {
                    return Err(Violation::expected(
                        format!("the role to read {} bytes", bytes.len()),
                        format!("{} unread after {SEND_TIMEOUT:?}", rest.len()),
                    ));
                }
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Polled, Violation> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(message) = self.decoder.next()? {
                return Ok(Polled::Message(message));
            }
            if self.closed {
                return Ok(Polled::Closed);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => self.closed = true,
                Ok(count) => self.decoder.push(&bytes[..count]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(Polled::Nothing),
                    io::ErrorKind::ConnectionReset => self.closed = true,
                    _ => return Err(error.into()),
                },
            }
        }
    }
}

// Peer's end of a Comch connection's fast path: a consumer and a producer, like those of one worker of the other role.

/// Size of a receive buffer in bytes: larger than a valid message, to detect longer ones.
const ROOM: usize = 2 * SIZE;

/// Bit in the token of a send task; the other bits are its index.
const SEND_TOKEN: u64 = 1 << 32;

/// A buffer with the task that sends or receives it.
#[derive(Debug)]
struct MessageTask {
    task: Task,
    buf: Buf,
}

/// One worker's end of the fast path, of an initiator or a service. It has its own progress engine, so polling it does
/// not handle events of the control channel.
#[derive(Debug)]
pub struct IoChannel {
    // Drop order: tasks before contexts, and contexts before the engine.
    receives: Vec<MessageTask>,
    sends: Vec<MessageTask>,
    consumer: Consumer,
    producer: Producer,
    inventory: BufInventory,
    messages: Mmap,
    received: VecDeque<Vec<u8>>,
    pe: Pe,
}

impl IoChannel {
    /// Starts consumer and producer on the connection of `control`, with `depth` credits in each direction. The role is
    /// informed of the consumer immediately, and may then send.
    ///
    /// # Errors
    ///
    /// The contexts are not running within `timeout`.
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
            channel.receives.push(MessageTask { task, buf });
        }
        Ok(channel)
    }

    /// Selects the role's consumer to send to: one of [`ComchPeer::consumers`], the n-th for the n-th worker.
    ///
    /// # Errors
    ///
    /// The role does not have this consumer.
    pub fn send_to(&mut self, consumer: u32) -> Result<(), Violation> {
        self.sends.clear();
        let count = self.receives.len();
        for index in 0..count {
            let buf = self.buf(count + index)?;
            let token = SEND_TOKEN | index as u64;
            let task = self.producer.send_task(&buf, consumer, token)?;
            self.sends.push(MessageTask { task, buf });
        }
        Ok(())
    }

    /// Sends bytes as one message, valid or not. Waits for a credit of the role.
    ///
    /// # Errors
    ///
    /// No credit is available within `timeout`.
    pub fn send_bytes(&mut self, bytes: &[u8], timeout: Duration) -> Result<(), Violation> {
        let deadline = Instant::now() + timeout;
        let mut written = None;
        loop {
            let idle = written.or_else(|| {
                let is_idle = |message: &MessageTask| !message.task.is_in_flight();
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

    /// Waits until the role has received all sent messages.
    ///
    /// # Errors
    ///
    /// The role has not received them within `timeout`.
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

    /// Next received message, of any length; `None` if none has arrived.
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

    /// Waits for a message of the correct length.
    ///
    /// # Errors
    ///
    /// No message arrives within `timeout`, or its length is wrong.
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
    /// The contexts do not stop.
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
        if completion.token & SEND_TOKEN != 0 {
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
