//! Executes a script: sends the messages of one side, and expects the events of the other.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use doca::{Buf, BufInventory, Device, MemoryRegion, Mmap, Pe, Rdma, RdmaConnection, Task};
use wire::control::{
    InitStorage, Message, Payload, RdmaConnectionDetails, RdmaConnectionRole, StorageDetails,
};
use wire::io_message::{IoMessage, IoMessageType, Repr, SIZE};
use wire::release::Release;

use super::{Journal, Script, Settings, Side, Step, compare};
use crate::role::REMOTE;
use crate::target::{Fault, Session};
use crate::transcript::{Event, Piece, Splitter};
use crate::violation::{During as _, Violation};

/// Live resources of the replayed side.
pub(super) trait Part {
    /// Message to send instead of a recorded message; `is_refused` is `true` if the latter was answered with an error.
    ///
    /// # Errors
    ///
    /// A description of the resource that cannot be created.
    fn send(&mut self, recorded: &Message, is_refused: bool) -> Result<Message, Violation>;

    /// Uses the contents of a received message instead of the recorded one.
    ///
    /// # Errors
    ///
    /// The contents cannot be used.
    fn receive(
        &mut self,
        recorded: &Message,
        came: &Message,
        is_refused: bool,
    ) -> Result<(), Violation>;

    /// Makes progress; returns `true` if there was any.
    ///
    /// # Errors
    ///
    /// Its data path has failed.
    fn progress(&mut self) -> Result<bool, Violation>;

    /// Returns `true` if the time of the next event depends on an initiator, in which case there is no timeout.
    fn is_patient(&self) -> bool;

    /// Returns `true` if received ids must be those of requests that this side has sent.
    fn ids_are_ours(&self) -> bool;
}

/// A script and the resources to replay it.
pub(super) struct Player<'a> {
    script: &'a Script,
    us: Side,
    peer: Peer,
    part: &'a mut dyn Part,
    settings: &'a Settings,
    stop: &'a dyn Fn() -> bool,
    /// Deadline of events that depend on an initiator.
    deadline: Option<Instant>,
}

impl<'a> Player<'a> {
    pub(super) fn new(
        script: &'a Script,
        us: Side,
        peer: Peer,
        part: &'a mut dyn Part,
        settings: &'a Settings,
        stop: &'a dyn Fn() -> bool,
    ) -> Self {
        Self {
            script,
            us,
            peer,
            part,
            settings,
            stop,
            deadline: None,
        }
    }

    /// Sets a deadline for events that depend on an initiator.
    pub(super) fn until(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// Replays the script, until a failure makes it impossible to continue.
    pub(super) fn play(mut self, journal: &mut Journal) {
        for (index, step) in self.script.steps.iter().enumerate() {
            let done = if step.side == self.us {
                self.send(step)
            } else {
                // The order in which both sides close the connection is not specified.
                let only_closing = |step: &Step| step.event == Event::Closed;
                if self.script.steps[index..].iter().all(only_closing) {
                    self.peer.close();
                }
                self.expect(step, journal)
            };
            if let Err(why) = done {
                journal.stop(step.entry, why);
                return;
            }
        }
    }

    fn send(&mut self, step: &Step) -> Result<(), Violation> {
        let bytes = match &step.event {
            Event::Frame(frame) => {
                let live = self.part.send(&frame.message, step.is_refused)?;
                match live == frame.message {
                    true => frame.to_bytes(),
                    false => live.encode_to_vec().into(),
                }
            }
            Event::Raw(bytes) => bytes.clone(),
            Event::Closed | Event::Failed(_) => {
                self.peer.close();
                return Ok(());
            }
            Event::Opened | Event::Ended => return Ok(()),
        };
        self.peer
            .send(&bytes, Instant::now() + self.settings.timeout)
            .during("cannot be sent")
    }

    fn expect(&mut self, step: &Step, journal: &mut Journal) -> Result<(), Violation> {
        let started = Instant::now();
        let mut notes = Vec::new();
        let mut differences = Vec::new();
        let mut fatal = None;
        match &step.event {
            Event::Frame(frame) => {
                let came = self.frame(started)?;
                let recorded = &frame.message;
                let ids = self.part.ids_are_ours() || self.settings.compare_ids;
                let compared = compare(recorded, &came, ids);
                (differences, notes) = (compared.differences, compared.notes);
                if compared.is_other {
                    fatal = Some(Violation::new(differences.join("; ")));
                } else if let Err(why) = self.part.receive(recorded, &came, step.is_refused) {
                    differences.push(why.to_string());
                }
            }
            Event::Raw(expected) => {
                let came = self.raw(expected.len(), started)?;
                if came != expected {
                    differences.push(format!("expected the bytes {expected:x}, got {came:x}"));
                }
            }
            Event::Closed => match self.wait(started)? {
                Came::Piece(piece) => {
                    return Err(Violation::new(format!(
                        "expected its end, got {}",
                        describe(&piece)
                    )));
                }
                Came::Failed(error) => notes.push(format!("it failed instead: {error}")),
                Came::Closed | Came::Nothing => {}
            },
            Event::Failed(_) => match self.wait(started)? {
                Came::Piece(piece) => {
                    return Err(Violation::new(format!(
                        "expected no more, got {}",
                        describe(&piece)
                    )));
                }
                Came::Closed | Came::Failed(_) | Came::Nothing => {}
            },
            Event::Opened | Event::Ended => return Ok(()),
        }
        match fatal {
            // The journal creates the case for the failure.
            Some(why) => Err(why),
            None => {
                journal.add(step, &differences, &notes, started.elapsed());
                Ok(())
            }
        }
    }

    fn frame(&mut self, started: Instant) -> Result<Message, Violation> {
        match self.wait(started)? {
            Came::Piece(Piece::Frame(frame)) => Ok(frame.message),
            Came::Piece(raw) => Err(Violation::new(format!(
                "expected it, got {}",
                describe(&raw)
            ))),
            Came::Closed => Err(Violation::new("expected it, the connection was closed")),
            Came::Failed(error) => Err(Violation::new(format!(
                "expected it, the connection failed: {error}"
            ))),
            Came::Nothing => Err(Violation::new("expected it, got nothing")),
        }
    }

    fn raw(&mut self, expected: usize, started: Instant) -> Result<Bytes, Violation> {
        let mut bytes = BytesMut::new();
        while bytes.len() < expected {
            match self.wait(started)? {
                Came::Piece(piece) => bytes.extend_from_slice(&piece.to_bytes()),
                Came::Closed | Came::Failed(_) | Came::Nothing => break,
            }
        }
        if bytes.len() > expected {
            let rest = bytes.split_off(expected).freeze();
            self.peer.put_back(Piece::Raw(rest));
        }
        Ok(bytes.freeze())
    }

    /// Waits for the next event.
    fn wait(&mut self, started: Instant) -> Result<Came, Violation> {
        loop {
            match self.peer.receive() {
                Came::Nothing => {}
                came => return Ok(came),
            }
            if (self.stop)() {
                return Err(Violation::new("interrupted"));
            }
            if !self.part.is_patient() && started.elapsed() >= self.settings.timeout {
                return Err(Violation::new(format!(
                    "expected it within {:?}, got nothing",
                    self.settings.timeout
                )));
            }
            if self.deadline.is_some_and(|end| Instant::now() >= end) {
                return Err(Violation::new(
                    "expected it within the session timeout, got nothing",
                ));
            }
            if !self.part.progress()? {
                Peer::pause();
            }
        }
    }
}

fn describe(piece: &Piece) -> String {
    match piece {
        Piece::Frame(frame) => frame.message.payload.message_type().to_string(),
        Piece::Raw(bytes) => format!("{} bytes that are no frame", bytes.len()),
    }
}

// Control connection with the program under test.

/// Sleep between two idle polls.
const PAUSE: Duration = Duration::from_millis(1);
const CHUNK: usize = 4096;

/// An event of the program under test.
#[derive(Debug)]
pub(super) enum Came {
    Piece(Piece),
    /// The program has closed its sending direction.
    Closed,
    Failed(io::Error),
    Nothing,
}

/// A non-blocking connection.
pub(super) struct Peer {
    stream: TcpStream,
    splitter: Splitter,
    pieces: VecDeque<Piece>,
    closed: bool,
}

impl Peer {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            splitter: Splitter::new(),
            pieces: VecDeque::new(),
            closed: false,
        })
    }

    pub(super) fn receive(&mut self) -> Came {
        if let Some(piece) = self.pieces.pop_front() {
            return Came::Piece(piece);
        }
        if self.closed {
            return Came::Closed;
        }
        let mut bytes = [0; CHUNK];
        match self.stream.read(&mut bytes) {
            Ok(0) => {
                self.closed = true;
                self.pieces.extend(self.splitter.rest().map(Piece::Raw));
            }
            Ok(count) => {
                self.splitter.push(&bytes[..count]);
                self.pieces
                    .extend(std::iter::from_fn(|| self.splitter.next()));
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Came::Nothing;
            }
            Err(error) => return Came::Failed(error),
        }
        match self.pieces.pop_front() {
            Some(piece) => Came::Piece(piece),
            None if self.closed => Came::Closed,
            None => Came::Nothing,
        }
    }

    /// Returns a piece that was received too early to the queue.
    pub(super) fn put_back(&mut self, piece: Piece) {
        self.pieces.push_front(piece);
    }

    /// Sends bytes.
    ///
    /// # Errors
    ///
    /// The connection has failed, or the program has not received them by `deadline`.
    pub(super) fn send(&mut self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if Instant::now() >= deadline {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Closes the sending direction. Has no effect if the program has disconnected.
    pub(super) fn close(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    pub(super) fn pause() {
        std::thread::sleep(PAUSE);
    }
}

/// Connects to a program that listens at `HOST:PORT`.
pub(super) fn connect(address: &str, timeout: Duration) -> io::Result<Peer> {
    let mut result = Err(io::Error::other("the name has no address"));
    for address in address.to_socket_addrs()? {
        result = TcpStream::connect_timeout(&address, timeout).and_then(Peer::new);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Waits for the next program to connect; after `deadline`, the error is of kind `TimedOut`.
pub(super) fn accept(
    listener: &TcpListener,
    deadline: Option<Instant>,
    stop: &dyn Fn() -> bool,
) -> io::Result<Peer> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Peer::new(stream),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                if stop() {
                    return Err(io::Error::other("interrupted"));
                }
                if deadline.is_some_and(|end| Instant::now() >= end) {
                    return Err(io::Error::new(
                        ErrorKind::TimedOut,
                        "no service has connected within the session timeout",
                    ));
                }
                std::thread::sleep(20 * PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

// Service side: requests with live memory and connections.

/// Maximum size in bytes of the memory for a target's transfers.
const MOST_MEMORY: usize = 64 << 20;
/// Maximum number of workers; each has two RDMA contexts.
const MOST_WORKERS: u32 = 256;
/// Block size in bytes, until a target has reported its own.
const BLOCK_SIZE: u32 = 4096;
/// Tokens of the probe's tasks.
const ANSWER: u64 = 1;
const QUESTION: u64 = 2;
/// User data of the probe, which its answer must repeat.
const USER_DATA: u64 = 0x5245_504c_4159;

/// Replayed service with its live resources.
pub(super) struct Service {
    device: String,
    timeout: Duration,
    probe: bool,
    block_size: u32,
    session: Option<LiveSession>,
}

/// Resources from init to shutdown. Fields are in drop order.
struct LiveSession {
    workers: Vec<Worker>,
    _memory: Mmap,
}

impl Service {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            device: settings.device.clone(),
            timeout: settings.timeout,
            probe: settings.probe,
            block_size: BLOCK_SIZE,
            session: None,
        }
    }

    /// Creates memory and workers for a session, and returns the blob of the memory.
    fn init(&mut self, init: &InitStorage) -> Result<Bytes, Violation> {
        if init.core_count > MOST_WORKERS {
            return Err(Violation::new(format!(
                "expected at most {MOST_WORKERS} workers to replay, the recording has {}",
                init.core_count
            )));
        }
        let blocks = init.transaction_count as usize * init.core_count as usize;
        let size = (self.block_size as usize)
            .saturating_mul(blocks)
            .clamp(BLOCK_SIZE as usize, MOST_MEMORY);
        let device = Device::open(&self.device)?;
        let region = MemoryRegion::new(size)?;
        let memory = Mmap::register(&device, region, REMOTE)?;
        let blob = memory.export_rdma(&device)?;
        let workers = (0..init.core_count)
            .map(|_| Worker::new(&device))
            .collect::<doca::Result<_>>()?;
        self.session = Some(LiveSession {
            workers,
            _memory: memory,
        });
        Ok(blob.into())
    }

    fn worker(&mut self, details: &RdmaConnectionDetails) -> Result<&mut Worker, Violation> {
        self.session
            .as_mut()
            .and_then(|session| session.workers.get_mut(details.context_index as usize))
            .ok_or_else(|| {
                let index = details.context_index;
                Violation::new(format!("the recording has no worker {index} before it"))
            })
    }
}

impl Part for Service {
    fn send(&mut self, recorded: &Message, is_refused: bool) -> Result<Message, Violation> {
        let payload = match &recorded.payload {
            // A malformed request is replayed unchanged.
            payload if is_refused => payload.clone(),
            Payload::InitStorageRequest(init) => Payload::InitStorageRequest(InitStorage {
                mmap_export_blob: self.init(init)?,
                ..init.clone()
            }),
            Payload::CreateRdmaConnectionRequest(details) => {
                let blob = self.worker(details)?.export(details.role)?;
                Payload::CreateRdmaConnectionRequest(RdmaConnectionDetails {
                    connection_details: blob.into(),
                    ..details.clone()
                })
            }
            payload => payload.clone(),
        };
        Ok(Message {
            payload,
            ..recorded.clone()
        })
    }

    fn receive(&mut self, _: &Message, came: &Message, _: bool) -> Result<(), Violation> {
        match &came.payload {
            Payload::QueryStorageResponse(StorageDetails { block_size, .. }) => {
                self.block_size = *block_size;
            }
            Payload::CreateRdmaConnectionResponse(details) => self
                .worker(details)?
                .connect(details.role, &details.connection_details)
                .during("connection_details: expected some that connect")?,
            Payload::StartStorageResponse if self.probe => {
                let (block_size, timeout) = (self.block_size, self.timeout);
                let workers = self
                    .session
                    .iter_mut()
                    .flat_map(|session| &mut session.workers);
                for (index, worker) in workers.enumerate() {
                    worker.probe(block_size, timeout).during(format_args!(
                        "worker {index}: expected a block through the live connections"
                    ))?;
                }
            }
            Payload::ShutdownResponse => self.session = None,
            _ => {}
        }
        Ok(())
    }

    fn progress(&mut self) -> Result<bool, Violation> {
        Ok(false)
    }

    fn is_patient(&self) -> bool {
        false
    }

    fn ids_are_ours(&self) -> bool {
        true
    }
}

/// A worker's ends of two connections. Fields are in drop order: tasks before contexts, and contexts before the engine.
struct Worker {
    probe: Option<Probe>,
    control: Rdma,
    data: Rdma,
    connections: [Option<RdmaConnection>; 2],
    pe: Pe,
    messages: Mmap,
}

struct Probe {
    _question: Task,
    _answer: Task,
}

impl Worker {
    fn new(device: &Device) -> doca::Result<Self> {
        let pe = Pe::new()?;
        let builder = || Rdma::builder(device).permissions(REMOTE);
        let control = builder().receive_tasks(1).send_tasks(1).start(&pe)?;
        let data = builder().start(&pe)?;
        Ok(Self {
            probe: None,
            control,
            data,
            connections: [None, None],
            pe,
            messages: Mmap::register(device, MemoryRegion::new(2 * SIZE)?, REMOTE)?,
        })
    }

    fn rdma(&self, role: RdmaConnectionRole) -> &Rdma {
        match role {
            RdmaConnectionRole::IoData => &self.data,
            RdmaConnectionRole::IoControl => &self.control,
        }
    }

    fn export(&mut self, role: RdmaConnectionRole) -> doca::Result<Vec<u8>> {
        let (blob, connection) = self.rdma(role).export()?;
        self.connections[role as usize] = Some(connection);
        Ok(blob)
    }

    fn connect(&mut self, role: RdmaConnectionRole, blob: &[u8]) -> Result<(), Violation> {
        let connection = self.connections[role as usize]
            .as_ref()
            .ok_or_else(|| Violation::new("there was no request for it"))?;
        Ok(self.rdma(role).connect(connection, blob)?)
    }

    /// Reads the first block of the storage: request and response use one connection, the block uses the other
    /// connection and the memory.
    fn probe(&mut self, block_size: u32, timeout: Duration) -> Result<(), Violation> {
        let connection = self.connections[RdmaConnectionRole::IoControl as usize]
            .as_ref()
            .ok_or_else(|| Violation::new("there is none for I/O messages"))?;
        let request = Repr {
            message_type: IoMessageType::Read,
            user_data: USER_DATA,
            result: 0,
            size: block_size.min(MOST_MEMORY as u32),
            requester_offset: 0,
            storage_offset: 0,
        };
        let inventory = BufInventory::new(2)?;
        let place = |index: usize| inventory.buf(&self.messages, (index * SIZE) as u64, SIZE);
        let (question, answer) = (place(0)?, place(1)?);
        question.write_data(&request.to_bytes())?;
        let receive = self.control.receive_task(&answer, ANSWER)?;
        let send = self.control.send_task(connection, &question, QUESTION)?;
        receive.submit()?;
        send.submit()?;
        self.probe = Some(Probe {
            _question: send,
            _answer: receive,
        });
        let deadline = Instant::now() + timeout;
        loop {
            match self.pe.poll() {
                Some(doca::Event::Task(done)) => {
                    done.result.during("a task failed")?;
                    if done.token == ANSWER {
                        return check(&answer, &request);
                    }
                }
                Some(_) => {}
                None if Instant::now() >= deadline => {
                    return Err(Violation::new(format!(
                        "nothing was received within {timeout:?}"
                    )));
                }
                None => {}
            }
        }
    }
}

fn check(answer: &Buf, request: &Repr) -> Result<(), Violation> {
    let mut bytes = [0; SIZE];
    let len = answer.read_data(&mut bytes)?;
    let view = IoMessage::new_checked(&bytes[..len])?;
    let came = Repr::parse(&view)?;
    let expected = Repr {
        message_type: IoMessageType::Result,
        ..*request
    };
    if came == expected {
        Ok(())
    } else {
        Err(Violation::new(format!(
            "expected {expected:?}, got {came:?}"
        )))
    }
}

// Target side: recorded responses with live connections, and a storage.

/// Maximum size of a replayed storage in bytes.
const MOST_CAPACITY: u64 = 1 << 30;

/// Replayed target with its live resources.
pub(super) struct Target {
    device: String,
    content: Vec<u8>,
    session: Option<Session>,
    /// Live counterparts of recorded requests, by their recorded id: the received request, and its answer.
    pending: HashMap<u32, (Message, Option<Payload>)>,
    /// `true` once the service has connected.
    has_begun: bool,
}

impl Target {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            device: settings.device.clone(),
            content: settings.content.clone(),
            session: None,
            pending: HashMap::new(),
            has_begun: false,
        }
    }

    /// Creates the storage that the recorded target reported.
    fn open(&mut self, total_size: u64, block_size: u32) -> Result<(), Violation> {
        if total_size > MOST_CAPACITY {
            return Err(Violation::new(format!(
                "expected a storage of at most {MOST_CAPACITY} bytes to replay, the recording has {total_size}"
            )));
        }
        let mut content = std::mem::take(&mut self.content);
        content.resize(total_size as usize, 0);
        let script = crate::target::Script {
            device: self.device.clone(),
            block_size,
            content,
            fault: Fault::None,
            features: 0,
            records: None,
            release: Release::default(),
        };
        self.session = Some(Session::new(&script)?);
        Ok(())
    }
}

impl Part for Target {
    fn send(&mut self, recorded: &Message, _: bool) -> Result<Message, Violation> {
        if let Payload::QueryStorageResponse(details) = &recorded.payload {
            self.open(details.total_size, details.block_size)?;
        }
        let Some((request, live)) = self.pending.remove(&recorded.message_id) else {
            return Ok(recorded.clone());
        };
        let payload = match (&recorded.payload, live) {
            (
                Payload::CreateRdmaConnectionResponse(recorded),
                Some(Payload::CreateRdmaConnectionResponse(live)),
            ) => Payload::CreateRdmaConnectionResponse(RdmaConnectionDetails {
                connection_details: live.connection_details,
                ..recorded.clone()
            }),
            (payload, _) => payload.clone(),
        };
        Ok(request.response(payload))
    }

    fn receive(
        &mut self,
        recorded: &Message,
        came: &Message,
        is_refused: bool,
    ) -> Result<(), Violation> {
        self.has_begun = true;
        let mut live = Ok(None);
        if let (Some(session), false) = (&mut self.session, is_refused) {
            live = session.answer(&came.payload).map(Some);
        }
        let (live, wrong) = match live {
            Ok(live) => (live, Ok(())),
            Err(error) => (None, Err(error.into())),
        };
        self.pending
            .insert(recorded.message_id, (came.clone(), live));
        wrong
    }

    fn progress(&mut self) -> Result<bool, Violation> {
        match &mut self.session {
            Some(session) if session.is_running() => {
                session.progress()?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn is_patient(&self) -> bool {
        // The service sends requests when an initiator causes them, and stops when the initiator has finished.
        !self.has_begun || self.session.as_ref().is_some_and(Session::is_running)
    }

    fn ids_are_ours(&self) -> bool {
        false
    }
}
