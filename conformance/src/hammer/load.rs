//! The load: an initiator that checks the contents of every block. It is a separate process, because faults are also
//! injected into it.

mod traffic;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use doca::{Access, Device, MemoryRegion, Mmap};
use fastrand::Rng;
use wire::control::{InitStorage, Message, Payload, StorageDetails};
use wire::io_message::{IoMessageType, Repr, SIZE};

use super::verifier::{Account, Entry};
use crate::matrix::Layout;
use crate::role::{ComchPeer, ControlPeer as _, IoChannel, Polled, REMOTE};
use crate::violation::{During as _, Violation};
use traffic::{MOST_BLOCKS, Source, Traffic};

/// Prefix of the lines on standard error that report the load's state.
const SAYS: &str = "load: ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadState {
    /// Connected to the verifier.
    Known,
    /// Connected to a service.
    Connected,
    /// Ready for I/O.
    Started,
    /// Executing its task.
    Running,
    /// Has sent its malformed messages.
    Acting,
    /// Doing no more I/O except reading all blocks.
    Ending,
}

impl LoadState {
    const ALL: [(Self, &str); 6] = [
        (Self::Known, "known"),
        (Self::Connected, "connected"),
        (Self::Started, "started"),
        (Self::Running, "running"),
        (Self::Acting, "acting"),
        (Self::Ending, "ending"),
    ];

    /// Parses a line of the load's standard error; `None` for other lines.
    pub fn parse(line: &str) -> Option<Self> {
        let said = line.strip_prefix(SAYS)?;
        let found = Self::ALL.iter().find(|(_, name)| said == *name);
        found.map(|(state, _)| *state)
    }

    fn say(self) {
        if let Some((_, name)) = Self::ALL.iter().find(|(state, _)| *state == self) {
            eprintln!("{SAYS}{name}");
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Write every block once.
    Fill,
    /// Read and write at random until it is terminated.
    Run,
    /// Read every block once, wait until terminated, and write the blocks that could not be read.
    ReadBack,
}

#[derive(Debug, Clone)]
pub struct Load {
    /// The service's Comch channel.
    pub channel: String,
    /// The host's device.
    pub device: String,
    /// Path of the verifier's socket.
    pub verifier: PathBuf,
    /// Seed of the I/Os and of the contents of blocks.
    pub seed: u64,
    /// Number of the session; later sessions use higher versions.
    pub session: u64,
    pub layout: Layout,
    pub task: Task,
    /// `true` if a target was killed or missing when the previous load ended.
    pub cut_off: bool,
    /// Malformed requests to send in addition to its I/Os.
    pub malformed: Malformed,
    /// Timeout of answers.
    pub timeout: Duration,
}

impl Load {
    /// Runs one session, until its task is complete or `stop` returns `true`.
    ///
    /// # Errors
    ///
    /// The session has failed, or the verifier has disconnected.
    pub fn play(&self, stop: &dyn Fn() -> bool) -> Result<(), Violation> {
        let mut account = Account::open(&self.verifier)?;
        account.note(&Entry::Hello {
            session: self.session,
            cut_off: self.cut_off,
        });
        account.hand_over()?;
        LoadState::Known.say();
        let mut link = Link::connect(self)?;
        LoadState::Connected.say();
        link.start()?;
        LoadState::Started.say();
        let blocks = link.blocks();
        let mut traffic = Traffic::new(self, &link.storage, account);
        LoadState::Running.say();
        let read_all = || Source::read_all(blocks);
        match self.task {
            Task::Fill => traffic.run(&mut link, Source::write_these((0..blocks).collect()))?,
            Task::ReadBack => {
                traffic.run(&mut link, read_all())?;
                LoadState::Ending.say();
                traffic.run(&mut link, Source::idle(stop))?;
                let unreadable = traffic.unreadable();
                traffic.run(&mut link, Source::write_these(unreadable))?;
            }
            Task::Run => {
                traffic.run(&mut link, Source::random(self, blocks, stop))?;
                LoadState::Ending.say();
                traffic.run(&mut link, read_all())?;
            }
        }
        link.end()?;
        traffic.farewell()
    }
}

// Session of a load: control channel, fast path, memory.

/// Number of I/Os in flight.
const DEPTH: usize = 16;

/// Access flags of an initiator's memory: a service may export it again for RDMA.
const ACCESS: Access = REMOTE.union(Access::PCI_READ_WRITE);

/// A session with a service. Fields are in drop order: users of a connection before it.
struct Link {
    io: Option<IoChannel>,
    control: ComchPeer,
    /// Memory for [`MOST_BLOCKS`] blocks per I/O in flight.
    memory: Arc<MemoryRegion>,
    storage: StorageDetails,
    _memory_map: Mmap,
    device: Device,
    timeout: Duration,
    requests: u32,
}

impl Link {
    /// Connects, and exports the memory to the service.
    fn connect(load: &Load) -> Result<Self, Violation> {
        let device = Device::open(&load.device)?;
        let mut control = ComchPeer::connect(&device, &load.channel, load.timeout)?;
        let mut requests = 0;
        let storage = match ask(
            &mut control,
            &mut requests,
            Payload::QueryStorageRequest,
            load.timeout,
        )? {
            Payload::QueryStorageResponse(storage) if storage.block_size > 0 => storage,
            other => return Err(Violation::expected("a storage", format!("{other:?}"))),
        };
        let memory = MemoryRegion::new(DEPTH * MOST_BLOCKS * storage.block_size as usize)?;
        let memory_map = Mmap::register(&device, Arc::clone(&memory), ACCESS)?;
        let init = InitStorage {
            transaction_count: DEPTH as u32,
            core_count: 1,
            mmap_export_blob: Bytes::from(memory_map.export_pci(&device)?),
        };
        let init = Payload::InitStorageRequest(init);
        let answer = ask(&mut control, &mut requests, init, load.timeout)?;
        expect(Payload::InitStorageResponse, answer)?;
        Ok(Self {
            io: None,
            control,
            memory,
            storage,
            _memory_map: memory_map,
            device,
            timeout: load.timeout,
            requests,
        })
    }

    /// Number of blocks of the storage.
    fn blocks(&self) -> u64 {
        self.storage.total_size / u64::from(self.storage.block_size)
    }

    /// Starts the storage, so that I/O is possible.
    fn start(&mut self) -> Result<(), Violation> {
        self.control
            .wait_until("the service's consumer", self.timeout, |control| {
                !control.consumers().is_empty()
            })?;
        let mut io = IoChannel::start(&self.device, &self.control, DEPTH as u32, self.timeout)?;
        io.send_to(self.control.consumers()[0])?;
        self.io = Some(io);
        let answer = self.ask(Payload::StartStorageRequest)?;
        expect(Payload::StartStorageResponse, answer)
    }

    /// Ends the session; no I/O may be in flight.
    fn end(&mut self) -> Result<(), Violation> {
        let answer = self.ask(Payload::StopStorageRequest)?;
        expect(Payload::StopStorageResponse, answer)?;
        if let Some(io) = self.io.take() {
            io.stop()?;
        }
        let answer = self.ask(Payload::ShutdownRequest)?;
        expect(Payload::ShutdownResponse, answer)
    }

    /// Next message of the control channel; none is expected during I/O.
    fn heard(&mut self) -> Result<Option<Message>, Violation> {
        match self.control.poll()? {
            Polled::Nothing => Ok(None),
            Polled::Message(message) => Ok(Some(message)),
            Polled::Closed => Err(Violation::expected(
                "I/O to continue",
                "the end of the service",
            )),
        }
    }

    /// Returns the fast path, or a violation if I/O has not been started.
    fn io(&mut self) -> Result<&mut IoChannel, Violation> {
        self.io
            .as_mut()
            .ok_or_else(|| Violation::new("no I/O has been started"))
    }

    fn ask(&mut self, payload: Payload) -> Result<Payload, Violation> {
        ask(&mut self.control, &mut self.requests, payload, self.timeout)
    }
}

fn ask(
    control: &mut ComchPeer,
    requests: &mut u32,
    payload: Payload,
    timeout: Duration,
) -> Result<Payload, Violation> {
    *requests += 1;
    let request = Message {
        message_id: *requests,
        correlation_id: *requests,
        payload,
    };
    let what = request.payload.message_type();
    control.ask(&request, timeout).during(what)
}

fn expect(expected: Payload, came: Payload) -> Result<(), Violation> {
    Violation::unless(
        came == expected,
        format!("{expected:?}"),
        format!("{came:?}"),
    )
}

// Malformed I/O messages and control messages.

/// Malformed requests that a load sends in addition to its I/Os.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    None,
    /// One message in eight is an invalid I/O.
    Io,
    /// One malformed message on the control channel.
    Control,
}

/// A message on the fast path that must be refused, for any type.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Improper {
    /// Fields of the message, except for its type and its user data, which identifies it to the load.
    request: Repr,
    /// Type on the wire.
    message_type: u32,
    /// Length in bytes to which the message is truncated.
    length: usize,
}

impl Improper {
    /// Creates a random malformed message for a storage and a memory of these sizes in bytes.
    fn new(rng: &mut Rng, block_size: u32, storage: u64, memory: u64) -> Self {
        let block = u64::from(block_size);
        let kind = [IoMessageType::Read, IoMessageType::Write][rng.usize(..2)];
        let mut improper = Self {
            request: Repr {
                message_type: kind,
                user_data: 0,
                result: 0,
                size: block_size,
                requester_offset: 0,
                storage_offset: 0,
            },
            message_type: kind as u32,
            length: SIZE,
        };
        let request = &mut improper.request;
        match rng.u8(..9) {
            0 => improper.message_type = [0, 3, 0x0100_0000, u32::MAX][rng.usize(..4)],
            1 => request.storage_offset = storage + block * rng.u64(..8),
            2 => request.requester_offset = memory + rng.u64(..4096),
            // Offset plus size overflows to a small number.
            3 => request.storage_offset = u64::MAX - (block - 1) * rng.u64(..=1),
            4 => request.requester_offset = u64::MAX - (block - 1) * rng.u64(..=1),
            5 => {
                request.storage_offset = storage - block;
                request.size = 2 * block_size;
            }
            6 => request.size = 0,
            7 => request.size = u32::MAX - rng.u32(..block_size),
            _ => improper.length = [0, 1, 8, 16, SIZE - 1][rng.usize(..5)],
        }
        improper
    }

    /// Encodes the message with this user data.
    fn to_bytes(&self, user_data: u64) -> Vec<u8> {
        let mut bytes = Repr {
            user_data,
            ..self.request
        }
        .to_bytes()
        .to_vec();
        let type_len = size_of_val(&self.message_type);
        bytes[..type_len].copy_from_slice(&self.message_type.to_be_bytes());
        bytes.truncate(self.length);
        bytes
    }

    /// Returns `true` if the result must contain the user data: a truncated message may lack it.
    fn is_whole(&self) -> bool {
        self.length == SIZE
    }
}

/// Creates a random malformed message for a control channel.
pub(super) fn malformed_control(rng: &mut Rng) -> Vec<u8> {
    let message = |payload| {
        Message {
            message_id: 0xbad,
            correlation_id: 0xbad,
            payload,
        }
        .encode_to_vec()
    };
    let mut request = message(Payload::QueryStorageRequest);
    match rng.u8(..6) {
        // A request in the wrong state, or a response without a request.
        0 => request,
        1 => message(Payload::StartStorageResponse),
        2 => message(Payload::ShutdownResponse),
        // An unknown type.
        3 => {
            let of_type = size_of::<u32>()..2 * size_of::<u32>();
            request[of_type].copy_from_slice(&rng.u32(1000..).to_be_bytes());
            request
        }
        // An invalid length.
        4 => {
            request[..size_of::<u32>()].copy_from_slice(&rng.u32(..).to_be_bytes());
            request
        }
        _ => std::iter::repeat_with(|| rng.u8(..)).take(64).collect(),
    }
}

// A second client of a service or a target.

/// Timeout for its connection, and for an answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A second client of a service during a session. It is a separate process, because a softdoca process can have only
/// one client.
#[derive(Debug, Clone)]
pub struct Intruder {
    /// The service's Comch channel.
    pub channel: String,
    /// The host's device.
    pub device: String,
    /// Seed of the bytes to send.
    pub seed: u64,
}

impl Intruder {
    /// Connects, sends malformed messages, and disconnects.
    ///
    /// # Errors
    ///
    /// A local failure before the connection.
    pub fn intrude(&self) -> Result<(), Violation> {
        let device = Device::open(&self.device)?;
        // A rejected client sends nothing.
        let Ok(mut peer) = ComchPeer::connect(&device, &self.channel, TIMEOUT) else {
            return Ok(());
        };
        let mut rng = Rng::with_seed(self.seed);
        for _ in 0..3 {
            if peer.send_bytes(&malformed_control(&mut rng)).is_err()
                || matches!(peer.next(TIMEOUT), Ok(Polled::Closed) | Err(_))
            {
                break;
            }
        }
        Ok(())
    }
}

/// Acts as a second client of a target during a session: sends malformed bytes, and reads until the connection is
/// closed or a second has passed.
pub(super) fn disturb_target(port: u16, noise: u64) {
    let mut rng = Rng::with_seed(noise);
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
        return;
    };
    // Failures are ignored: only the session of the first client is checked.
    let _ = stream.set_read_timeout(Some(TIMEOUT));
    let _ = stream.write_all(&malformed_control(&mut rng));
    let _ = stream.read(&mut [0; 1024]);
}

#[cfg(test)]
mod tests {
    use wire::io_message::IoMessage;

    use super::*;

    /// Returns `true` if a service may execute the request.
    fn is_possible(bytes: &[u8], storage: u64, memory: u64) -> bool {
        let Ok(bytes) = <[u8; SIZE]>::try_from(bytes) else {
            return false;
        };
        let Ok(request) = Repr::parse(&IoMessage::new_unchecked_len(&bytes)) else {
            return false;
        };
        let fits = |offset: u64, all: u64| {
            let end = offset.checked_add(u64::from(request.size));
            end.is_some_and(|end| end <= all)
        };
        request.message_type != IoMessageType::Result
            && request.size > 0
            && request.size.is_multiple_of(4096)
            && fits(request.storage_offset, storage)
            && fits(request.requester_offset, memory)
    }

    #[test]
    fn malformed_messages_cannot_succeed() {
        let mut rng = Rng::with_seed(1);
        let mut kinds = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let improper = Improper::new(&mut rng, 4096, 1 << 20, 1 << 18);
            let bytes = improper.to_bytes(77);
            assert!(!is_possible(&bytes, 1 << 20, 1 << 18), "{improper:?}");
            kinds.insert(bytes);
        }
        assert!(kinds.len() > 30, "{}", kinds.len());
    }
}
