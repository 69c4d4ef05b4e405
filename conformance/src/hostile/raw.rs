//! The attacker's ends of sockets, rings, memory, control channels and agents, built from their documented layouts without softdoca's code.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use wire::control::{FrameDecoder, Message, Payload};

use super::attack::{Bytes, Descriptor, End, Manner};
use super::server::ClientEndpoint;

/// Maximum number of file descriptors in one message.
const MAX_FDS: usize = 16;
/// Maximum size of a message in bytes.
const MAX_MESSAGE: usize = 65_536;
/// Time for which the role may leave bytes unread before the attacker continues.
pub(super) const STALL: Duration = Duration::from_millis(300);

/// A `SOCK_SEQPACKET` socket of the runtime directory.
pub(super) struct Packets(OwnedFd);

impl Packets {
    fn socket() -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            flags,
            None,
        )?)
    }

    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let socket = Self::socket()?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    pub(super) fn listen(path: &Path) -> io::Result<Self> {
        let socket = Self::socket()?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, 128)?;
        Ok(Self(socket))
    }

    /// Accepts a connection, if one is pending.
    pub(super) fn accept(&self) -> Option<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::accept_with(&self.0, flags).ok().map(Self)
    }

    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(a), Self(b)))
    }

    /// Sends one message, without waiting.
    pub(super) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let parts = [IoSlice::new(bytes)];
        rustix::net::sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends one message, and waits up to [`STALL`] until the role reads.
    pub(super) fn send_or_stall(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let deadline = Instant::now() + STALL;
        loop {
            match self.send(bytes, descriptors) {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_micros(200));
                }
                sent => return sent,
            }
        }
    }

    /// Receives one message with its descriptors within `timeout`; `None` at the end of the connection.
    pub(super) fn receive(&self, timeout: Duration) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let deadline = Instant::now() + timeout;
        let mut bytes = vec![0; MAX_MESSAGE];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            match rustix::net::recvmsg(&self.0, &mut parts, &mut control, flags) {
                Ok(message) => {
                    let rights = control.drain().filter_map(|part| match part {
                        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
                        _ => None,
                    });
                    let descriptors = rights.flatten().collect();
                    bytes.truncate(message.bytes);
                    return Ok((message.bytes != 0).then_some((bytes, descriptors)));
                }
                Err(rustix::io::Errno::AGAIN) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_micros(500));
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Name of the socket on which a Comch server listens: 128-bit FNV-1a over both names, each preceded by its length.
pub(super) fn comch_socket(function: &str, server: &str) -> String {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = [function, server].iter().fold(BASIS, |hash, part| {
        let length = (part.len() as u64).to_le_bytes();
        length
            .iter()
            .chain(part.as_bytes())
            .fold(hash, |hash, byte| {
                (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
            })
    });
    format!("comch-{hash:032x}.sock")
}

/// The first frame of a Comch client.
pub(super) fn hello(function: &str, server: &str) -> Vec<u8> {
    let mut bytes = words(&[1, u32::from_be_bytes(*b"SDCC"), 1, 4080]);
    for text in [function, server] {
        bytes.push(text.len() as u8);
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// Encodes the words of a Comch frame.
pub(super) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Creates a memfd of `len` bytes.
pub(super) fn memfd(len: u64, sealed: bool) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = rustix::fs::memfd_create("hostile", flags)?;
    rustix::fs::ftruncate(&memfd, len)?;
    if sealed {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memfd, seals)?;
    }
    Ok(memfd)
}

/// A ring of 64 slots and 1024 units whose consumer has posted receives; its header states `slots`.
fn ring(slots: u64, sealed: bool) -> io::Result<OwnedFd> {
    const UNITS: u64 = 1024;
    let len = (512 + 64 * 64 + UNITS * 64_u64).next_multiple_of(4096);
    let memfd = memfd(len, sealed)?;
    for (at, word) in [
        (0, u64::from_be_bytes(*b"SDRING\0\x02")),
        (8, slots),
        (16, UNITS),
        (144, 32),
    ] {
        rustix::io::pwrite(&memfd, &word.to_ne_bytes(), at)?;
    }
    Ok(memfd)
}

pub(super) fn descriptor(kind: Descriptor) -> io::Result<OwnedFd> {
    Ok(match kind {
        Descriptor::Ring => ring(64, true)?,
        Descriptor::UnsealedRing => ring(64, false)?,
        Descriptor::LyingRing => ring(1 << 17, true)?,
        Descriptor::EventFd => rustix::event::eventfd(0, EventfdFlags::NONBLOCK)?,
        Descriptor::FullEventFd => {
            let event = rustix::event::eventfd(0, EventfdFlags::empty())?;
            rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes())?;
            event
        }
        Descriptor::Pipe => rustix::pipe::pipe()?.0,
        Descriptor::File => tempfile::tempfile()?.into(),
        Descriptor::Socket => Packets::pair()?.0.0,
    })
}

/// Returns the inline part of the message in slot `position` of one of the attacker's rings, if it has been sent.
pub(super) fn message(ring: &OwnedFd, position: u64) -> io::Result<Option<[u8; 56]>> {
    let mut slots = [0; 8];
    rustix::io::pread(ring, &mut slots, 8)?;
    let slots = u64::from_ne_bytes(slots).max(1);
    let (mut descriptor, mut bytes) = ([0; 8], [0; 56]);
    let at = 512 + position % slots * 64;
    rustix::io::pread(ring, &mut descriptor, at)?;
    let lap = (position / slots) << 1 | 1;
    if u64::from_ne_bytes(descriptor) >> 32 != lap {
        return Ok(None);
    }
    rustix::io::pread(ring, &mut bytes, at + 8)?;
    Ok(Some(bytes))
}

/// Marks `count` messages of one of the attacker's rings as consumed, and posts the same number of receives.
pub(super) fn consumed(ring: &OwnedFd, count: u64) -> io::Result<()> {
    rustix::io::pwrite(ring, &count.to_ne_bytes(), 128)?;
    rustix::io::pwrite(ring, &(32 + count).to_ne_bytes(), 144)?;
    Ok(())
}

/// The sending end of one of the role's rings.
pub(super) struct RawRing {
    memfd: OwnedFd,
    slots: u64,
    position: u64,
}

impl RawRing {
    pub(super) fn new(memfd: OwnedFd) -> io::Result<Self> {
        let mut slots = [0; 8];
        rustix::io::pread(&memfd, &mut slots, 8)?;
        let slots = u64::from_ne_bytes(slots).max(1);
        Ok(Self {
            memfd,
            slots,
            position: 0,
        })
    }

    fn put(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        rustix::io::pwrite(&self.memfd, bytes, at)?;
        Ok(())
    }

    fn consumed(&self) -> io::Result<u64> {
        let mut word = [0; 8];
        rustix::io::pread(&self.memfd, &mut word, 128)?;
        Ok(u64::from_ne_bytes(word))
    }

    /// Puts a fragment into the next slot; `low` is the low half of its descriptor.
    pub(super) fn fragment(&mut self, low: u32, bytes: &[u8; 56]) -> io::Result<()> {
        let at = 512 + self.position % self.slots * 64;
        let lap = (self.position / self.slots) << 1 | 1;
        self.put(at + 8, bytes)?;
        self.put(at, &(u64::from(low) | lap << 32).to_ne_bytes())?;
        self.position += 1;
        Ok(())
    }

    /// As [`fragment`](Self::fragment), but waits up to `timeout` for a free slot; `false` if there is none.
    pub(super) fn fragment_when_free(&mut self, low: u32, timeout: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + timeout;
        while self.position.wrapping_sub(self.consumed()?) >= self.slots {
            if Instant::now() > deadline {
                return Ok(false);
            }
            std::thread::yield_now();
        }
        self.fragment(low, &[0; 56])?;
        Ok(true)
    }

    /// Writes random words at random offsets after the header.
    pub(super) fn noise(&self, words: usize) -> io::Result<()> {
        let mut rng = fastrand::Rng::with_seed(words as u64);
        for _ in 0..words {
            let at = 64 + 8 * rng.u64(..(448 + self.slots * 64) / 8);
            self.put(at, &rng.u64(..).to_ne_bytes())?;
        }
        Ok(())
    }

    pub(super) fn close(&self) -> io::Result<()> {
        self.put(64, &1_u64.to_ne_bytes())
    }
}

// Control channels: TCP of a target, Comch messages of a service.

/// The function of the host in softdoca's built-in topology.
pub(super) const FUNCTION: &str = "0000:3b:00.0";
/// Kinds of Comch frames.
const MESSAGE: u32 = 4;
const CONSUMER_ADDED: u32 = 5;
/// Maximum size of a Comch message in bytes.
const LONGEST: usize = 4080;

/// The endpoint on which a role accepts clients.
#[derive(Debug, Clone)]
pub(super) enum ControlEndpoint {
    Tcp(u16),
    Comch { runtime: PathBuf, channel: String },
}

impl From<ControlEndpoint> for ClientEndpoint {
    fn from(endpoint: ControlEndpoint) -> Self {
        match endpoint {
            ControlEndpoint::Tcp(port) => Self::Target(port),
            ControlEndpoint::Comch { channel, .. } => Self::Service(channel),
        }
    }
}

pub(super) struct Comch {
    pub(super) socket: Packets,
    pub(super) lifeline: Option<Packets>,
    /// Rings of the role's consumers.
    pub(super) rings: Vec<OwnedFd>,
}

impl Comch {
    /// Connects without sending a hello.
    pub(super) fn bare(runtime: &Path, channel: &str) -> io::Result<Self> {
        Ok(Self {
            socket: Packets::connect(&runtime.join(comch_socket(FUNCTION, channel)))?,
            lifeline: None,
            rings: Vec::new(),
        })
    }

    /// Connects, and waits until the role has accepted the connection.
    pub(super) fn open(runtime: &Path, channel: &str, timeout: Duration) -> io::Result<Self> {
        let mut comch = Self::bare(runtime, channel)?;
        let (ours, theirs) = Packets::pair()?;
        let hello = hello(FUNCTION, channel);
        comch.socket.send(&hello, &[theirs.as_fd()])?;
        comch.lifeline = Some(ours);
        match comch.socket.receive(timeout)? {
            Some((answer, _)) if answer.starts_with(&words(&[2])) => Ok(comch),
            other => Err(io::Error::other(format!(
                "expected to be accepted, got {other:?}"
            ))),
        }
    }
}

/// An attacker's end of a control channel.
pub(super) enum Channel {
    Tcp(TcpStream),
    Comch(Comch),
}

impl Channel {
    pub(super) fn open(endpoint: &ControlEndpoint) -> io::Result<Self> {
        Self::open_within(endpoint, Duration::from_secs(2))
    }

    /// As [`open`](Self::open), with a time limit for a service to accept or refuse the connection.
    fn open_within(endpoint: &ControlEndpoint, timeout: Duration) -> io::Result<Self> {
        match endpoint {
            ControlEndpoint::Tcp(port) => {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port))?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Tcp(stream))
            }
            ControlEndpoint::Comch { runtime, channel } => {
                Comch::open(runtime, channel, timeout).map(Self::Comch)
            }
        }
    }

    /// Sends these bytes; stops if the role does not read them.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                let (mut rest, mut deadline) = (bytes, Instant::now() + STALL);
                while !rest.is_empty() {
                    match stream.write(rest) {
                        Ok(count) => {
                            rest = &rest[count..];
                            deadline = Instant::now() + STALL;
                        }
                        Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                            return Err(error);
                        }
                        Err(error) if Instant::now() > deadline => return Err(error),
                        Err(_) => std::thread::sleep(Duration::from_millis(1)),
                    }
                }
                Ok(())
            }
            Self::Comch(comch) => bytes.chunks(LONGEST).try_for_each(|chunk| {
                let frame = [&words(&[MESSAGE]), chunk].concat();
                comch.socket.send_or_stall(&frame, &[])
            }),
        }
    }

    /// Receives bytes of control messages within `timeout`; `None` at the end of the channel.
    pub(super) fn read(&mut self, timeout: Duration) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Tcp(stream) => {
                let (mut bytes, deadline) = (vec![0; 65_536], Instant::now() + timeout);
                loop {
                    match stream.read(&mut bytes) {
                        Ok(0) => return Ok(None),
                        Ok(count) => {
                            bytes.truncate(count);
                            return Ok(Some(bytes));
                        }
                        Err(error)
                            if error.kind() == io::ErrorKind::WouldBlock
                                && Instant::now() < deadline =>
                        {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            Self::Comch(comch) => {
                let Some((frame, mut descriptors)) = comch.socket.receive(timeout)? else {
                    return Ok(None);
                };
                let kind = frame.get(..4).unwrap_or_default().to_vec();
                if kind == words(&[CONSUMER_ADDED]) && !descriptors.is_empty() {
                    comch.rings.push(descriptors.swap_remove(0));
                }
                let is_message = kind == words(&[MESSAGE]);
                Ok(Some(frame[4..].to_vec())
                    .filter(|_| is_message)
                    .or(Some(Vec::new())))
            }
        }
    }

    /// Sends a request and waits for the answer.
    pub(super) fn ask(&mut self, payload: Payload, timeout: Duration) -> io::Result<Payload> {
        let (message_id, correlation_id) = (7, 7);
        let request = Message {
            message_id,
            correlation_id,
            payload,
        };
        self.send(&request.encode_to_vec())?;
        let (mut decoder, deadline) = (FrameDecoder::new(), Instant::now() + timeout);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.read(left)? {
                Some(bytes) => decoder.push(&bytes),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
            if let Some(message) = decoder.next().map_err(io::Error::other)? {
                return Ok(message.payload);
            }
        }
    }

    pub(super) fn end(self, end: End, hold: Duration) {
        if let Self::Tcp(stream) = &self {
            // The role may have closed it already.
            let _ = match end {
                End::Close => Ok(()),
                End::HalfClose => stream.shutdown(Shutdown::Write),
                End::Reset => rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))
                    .map_err(io::Error::from),
            };
        }
        std::thread::sleep(hold);
    }
}

// A client that connects repeatedly during an attack. It may be refused, but without delay.

/// Pause between connections.
const PROBE_PAUSE: Duration = Duration::from_millis(300);
/// Time limit for a reaction.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// Connects repeatedly until stopped.
pub(super) struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Probe {
    pub(super) fn start(endpoint: ControlEndpoint) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let begin = Instant::now();
                // Any answer counts as a reaction, and so does a closed connection.
                let _ = probe(&endpoint);
                longest = longest.max(begin.elapsed());
                std::thread::sleep(PROBE_PAUSE);
            }
            longest
        });
        Self { stop, thread }
    }

    /// Stops connecting, and returns the longest time that the role took to react.
    pub(super) fn stop(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(PROBE_TIMEOUT)
    }
}

fn probe(endpoint: &ControlEndpoint) -> io::Result<()> {
    match Channel::open_within(endpoint, PROBE_TIMEOUT)? {
        // A service has answered the hello already.
        Channel::Comch(_) => Ok(()),
        mut channel => {
            channel.send(&Bytes::Query.make())?;
            channel.read(PROBE_TIMEOUT).map(drop)
        }
    }
}

// The attacker's own agent, and requests to the role's.

/// Address of the memory that the attacker claims to export; its length in bytes is [`LENGTH`].
const ADDRESS: u64 = 0x4000_0000;
const LENGTH: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Keys of the memory, of its export by an importer, and of RDMA connections. They are the same for all attacks,
/// because each attack has its own agent.
const MEMORY: [u8; 16] = [0x11; 16];
const ONWARD: [u8; 16] = [0x22; 16];
const CONNECTION: [u8; 16] = [0x33; 16];

const DESCRIBE: u16 = 1;
const READ: u16 = 2;
const CALL: u16 = 6;
/// Operation that requests the word with the validity of an export.
const VALIDITY: u16 = 7;

/// Size of a request to an agent in bytes.
const REQUEST: usize = 56;

/// Address of an agent: boot id and key.
pub(super) type Address = [u8; 32];

fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16)
        .map(u128::to_be_bytes)
        .map_err(io::Error::other)
}

fn path(runtime: &Path, address: &Address) -> PathBuf {
    let key: String = address[16..]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    runtime.join(format!("a-{key}.sock"))
}

/// An agent, on a thread.
pub(super) struct Agent {
    address: Address,
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts an agent with this behaviour in the runtime directory.
    pub(super) fn start(runtime: &Path, manner: Manner) -> io::Result<Self> {
        let mut address = [0; 32];
        address[..16].copy_from_slice(&boot_id()?);
        address[16..].copy_from_slice(&fastrand::u128(..).to_be_bytes());
        let (path, stop) = (path(runtime, &address), Arc::new(AtomicBool::new(false)));
        let thread = if manner == Manner::Absent {
            None
        } else {
            let (listener, stop) = (Packets::listen(&path)?, Arc::clone(&stop));
            Some(std::thread::spawn(move || {
                run(&listener, manner, &stop);
            }))
        };
        Ok(Self {
            address,
            path,
            stop,
            thread,
        })
    }

    /// Export descriptor of the attacker's memory: for RDMA peers, or across PCIe for services that export it again.
    pub(super) fn memory(&self, across_pcie: bool) -> Vec<u8> {
        let (kind, permissions, onward) = match across_pcie {
            true => (1_u8, 0x2e_u32, ONWARD),
            false => (2, 0x0e, [0; 16]),
        };
        let mut bytes = b"SOFTDOCA\x01\x00".to_vec();
        bytes.extend([kind, 0]);
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(ADDRESS.to_le_bytes());
        bytes.extend(LENGTH.to_le_bytes());
        bytes.extend(self.address);
        bytes.extend(MEMORY);
        bytes.extend(onward);
        bytes
    }

    /// Connection details of an RDMA connection of the attacker.
    pub(super) fn connection(&self) -> Vec<u8> {
        let mut bytes = b"SDRDMA".to_vec();
        for word in [1_u16, 1, 0] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(0x0f_u32.to_be_bytes());
        bytes.extend(self.address);
        bytes.extend(CONNECTION);
        bytes
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread has no result.
            let _ = thread.join();
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn run(listener: &Packets, manner: Manner, stop: &AtomicBool) {
    std::thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            match listener.accept() {
                Some(socket) => drop(scope.spawn(move || {
                    // The peer may have disconnected before the answer.
                    let _ = serve(&socket, manner, stop);
                })),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    });
}

/// Sleeps, but returns early when the attack ends.
fn pause(time: Duration, stop: &AtomicBool) {
    let begin = std::time::Instant::now();
    while begin.elapsed() < time && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5).min(time));
    }
}

fn serve(socket: &Packets, manner: Manner, stop: &AtomicBool) -> io::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let request = match socket.receive(Duration::from_millis(20)) {
            Ok(Some((request, _))) if request.len() >= REQUEST => request,
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let operation = u16::from_le_bytes([request[6], request[7]]);
        let word = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap_or([0; 8]));
        let (from, len) = (word(24), word(32));
        match (manner, operation) {
            (Manner::Silent, _) | (Manner::NoCalls, CALL) => continue,
            (Manner::HangsUp, _) => return Ok(()),
            (Manner::Garbage, _) => socket.send(&[0xa5; 40], &[])?,
            (Manner::CallsWith(kind), CALL) => {
                let (a, b) = (descriptor(kind)?, descriptor(kind)?);
                answer(socket, 0, &[], &[a.as_fd(), b.as_fd()])?;
            }
            (_, CALL) => {
                let ring = descriptor(Descriptor::Ring)?;
                let doorbell = descriptor(Descriptor::EventFd)?;
                answer(socket, 0, &[], &[ring.as_fd(), doorbell.as_fd()])?;
            }
            (Manner::Slow(time), DESCRIBE) => {
                pause(time, stop);
                let entry = segment(ADDRESS + from * PAGE, PAGE, 0, None);
                answer(socket, LENGTH / PAGE, &entry, &[])?;
            }
            (Manner::Segments(count), DESCRIBE) => {
                let entries = (from..from + 16)
                    .flat_map(|index| segment(ADDRESS + index * PAGE, PAGE, 0, None));
                answer(socket, count, &entries.collect::<Vec<_>>(), &[])?;
            }
            (Manner::SlowCopies(_), DESCRIBE) => {
                answer(socket, 1, &segment(ADDRESS, LENGTH, 0, None), &[])?;
            }
            (_, DESCRIBE) => describe(socket, manner)?,
            // The word with the validity of an export is always 0 (valid).
            (_, VALIDITY) => answer(socket, 0, &[], &[memfd(PAGE, true)?.as_fd()])?,
            (Manner::SlowCopies(time), operation) => {
                pause(time, stop);
                let read = match operation {
                    READ => vec![0x5a; usize::try_from(len).unwrap_or(0).min(65_472)],
                    _ => Vec::new(),
                };
                answer(socket, 0, &read, &[])?;
            }
            _ => answer(socket, 0, &[], &[])?,
        }
    }
    Ok(())
}

/// Describes the memory as a single memfd.
fn describe(socket: &Packets, manner: Manner) -> io::Result<()> {
    let (offset, len) = match manner {
        Manner::Misaligned => (4, LENGTH + PAGE),
        Manner::Short => (0, LENGTH / 2),
        _ => (0, LENGTH),
    };
    let memory: OwnedFd = match manner {
        Manner::Instead(kind) => descriptor(kind)?,
        _ => memfd(len, manner != Manner::Unsealed)?,
    };
    let entry = segment(ADDRESS, LENGTH, offset, Some(0));
    answer(socket, 1, &entry, &[memory.as_fd()])
}

fn segment(addr: u64, len: u64, offset: u64, memfd: Option<u32>) -> Vec<u8> {
    let last = u64::from(memfd.unwrap_or(u32::MAX));
    [addr, len, offset, last]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect()
}

fn answer(
    socket: &Packets,
    value: u64,
    payload: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut reply = b"SDrp\0\0\0\0".to_vec();
    reply.extend(value.to_le_bytes());
    reply.extend_from_slice(payload);
    socket.send(&reply, descriptors)
}

/// Address of the role's agent, from the role's RDMA connection details.
pub(super) fn agent_of(details: &[u8]) -> Option<(Address, [u8; 16])> {
    let address = details.get(16..48)?.try_into().ok()?;
    let key = details.get(48..64)?.try_into().ok()?;
    Some((address, key))
}

/// Address of the agent of a memory map, from its export descriptor.
pub(super) fn agent_of_export(descriptor: &[u8]) -> Option<Address> {
    descriptor.get(32..64)?.try_into().ok()
}

/// A connection to an agent.
pub(super) fn connect(runtime: &Path, address: &Address) -> io::Result<Packets> {
    Packets::connect(&path(runtime, address))
}

/// Claims the ring behind RDMA connection details. The connection to the agent must remain open.
pub(super) fn claim(runtime: &Path, details: &[u8]) -> io::Result<(Packets, OwnedFd)> {
    let invalid = || io::Error::other("expected RDMA connection details of softdoca");
    let (address, key) = agent_of(details).ok_or_else(invalid)?;
    let socket = connect(runtime, &address)?;
    let claim = b"SDRDMA\0\x01";
    let mut request = b"SDrq\x02\0\x06\0".to_vec();
    request.extend(key);
    for word in [0, claim.len() as u64, 0, 0] {
        request.extend(word.to_le_bytes());
    }
    request.extend_from_slice(claim);
    let doorbell = descriptor(Descriptor::EventFd)?;
    socket.send(&request, &[doorbell.as_fd()])?;
    let (_, mut descriptors) = socket
        .receive(Duration::from_secs(2))?
        .ok_or_else(invalid)?;
    if descriptors.is_empty() {
        return Err(invalid());
    }
    Ok((socket, descriptors.swap_remove(0)))
}
