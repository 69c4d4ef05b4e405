//! Attacks on the sockets on which softdoca listens for peers on other machines: by unauthenticated peers, which do not
//! have the deployment's key, and by peers that have the key but violate the protocol.
//!
//! The handshake, requests and frames are built from their documented layouts, without softdoca's code.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::attack::Bytes;
use crate::violation::Violation;

/// The key of the roles under attack.
pub(super) const KEY: &[u8] = b"the key of the roles under attack";
const ANOTHER_KEY: &[u8] = b"a key that the roles do not have.";

/// A server's first bytes: magic, version, nonce.
const HELLO: usize = 40;
/// A client's proof: nonce, purpose, process, key, tag.
const PROOF: usize = 104;
const TAG: usize = 32;
/// A server's answer: result, zero, tag.
const ANSWER: usize = 40;
const REPLY: usize = 16;
/// `DOCA_ERROR_INVALID_VALUE`, `DOCA_ERROR_ALREADY_EXIST`.
const INVALID_VALUE: u32 = 6;
const ALREADY_EXIST: u32 = 23;
/// `DOCA_ERROR_NOT_FOUND`.
const NOT_FOUND: u32 = 16;
/// Operations on memory.
const READ: u16 = 2;
const WRITE: u16 = 3;
const FETCH_ADD: u16 = 4;
const COMPARE_SWAP: u16 = 5;
/// Purposes of connections.
const LIVENESS: u64 = 1;
const MEMORY: u64 = 2;
const SERVICE: u64 = 3;

/// Time limit for a reaction; generous, because a loaded machine must not cause failures.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time for which the attacker waits for replies that must not arrive.
const QUIET: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub(super) enum NetworkAttack {
    Unauthenticated(Unauthenticated),
    /// Silent connections while a peer with the key connects.
    Flood {
        /// Number of open connections.
        connections: usize,
        hold: Duration,
    },
    /// A peer with the key.
    Authenticated(Authenticated),
    /// A peer with the key and with an export of a service.
    Exported(Exported),
}

/// A peer without the key. It must receive at most the server's hello before the connection is closed.
#[derive(Debug, Clone)]
pub(super) struct Unauthenticated {
    pub connections: usize,
    pub input: Input,
    /// Size of each write in bytes; 0 for a single write.
    pub piece: usize,
    /// Time between writes.
    pub pace: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Nothing,
    Zeros(usize),
    Random(usize),
    Http,
    /// A proof with another key.
    AnotherKey,
    /// A proof with an empty key.
    NoKey,
    /// A valid proof without its last byte.
    Unfinished,
    /// The valid proof of another connection.
    Replayed,
    /// A valid proof whose purpose was changed after it was computed.
    Altered,
    /// A valid proof, sent at the peer's slow pace.
    Good,
}

/// Behaviour of a peer with the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Authenticated {
    /// Names a process that does not exist.
    AnotherProcess,
    /// Requests an RDMA connection that does not exist.
    UnknownConnection,
    /// Requests the same RDMA connection twice.
    SecondClaim,
    /// Names an unknown purpose.
    UnknownPurpose,
    /// Requests memory that was not exported, with each operation.
    UnknownMemory,
    /// Uses the key of an RDMA connection as the key of memory.
    ConnectionAsMemory,
    /// Sends bytes that are not a request.
    Request(&'static [u8]),
    /// Announces a write of more than 2 GiB.
    OversizedWrite,
    /// Announces a write of 1 GiB but sends only a part of it.
    UnfinishedWrite,
    /// Sends requests without reading the replies.
    UnreadReplies,
    /// Sends heartbeats without reading the replies.
    UnreadHeartbeats,
    /// Opens this many connections without sending a request.
    Connections(usize),
    /// Establishes an RDMA connection, and sends these bytes over it, this many times.
    Frames(&'static [u8], usize),
}

/// Behaviour of a peer that has the key and the descriptor of memory that a service exports to its targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exported {
    /// Accesses addresses outside the memory, and unaligned words, with all operations.
    OutOfRange,
    /// Uses the memory after the session that it was exported for.
    Withdrawn,
    /// Reads the whole memory repeatedly without receiving the replies.
    UnreadMemory,
}

/// Memory that a role exports; addresses are the role's.
#[derive(Debug, Clone)]
pub(super) struct Export {
    pub endpoint: Endpoint,
    addr: u64,
    len: u64,
}

impl Export {
    /// Parses an export descriptor with a network offer.
    pub(super) fn of(descriptor: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            let bytes = descriptor.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        Some(Self {
            endpoint: Endpoint::of_offer(descriptor.get(96..)?)?,
            addr: word(16)?,
            len: word(24)?,
        })
    }
}

/// Network address of a role, and the identity of its process and connection.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub address: SocketAddr,
    pub process: [u8; 16],
    /// Key of the RDMA connection.
    pub key: [u8; 16],
}

impl Endpoint {
    /// Parses RDMA connection details of a role on the network.
    pub(super) fn of(details: &[u8]) -> Option<Self> {
        Self::of_offer(details.get(64..)?)
    }

    fn of_offer(offer: &[u8]) -> Option<Self> {
        let chunk = |at: usize| offer.get(at..at + 16)?.try_into().ok();
        let (process, key, ip): ([u8; 16], [u8; 16], [u8; 16]) =
            (chunk(16)?, chunk(32)?, chunk(49)?);
        let port = u16::from_be_bytes(offer.get(65..67)?.try_into().ok()?);
        let ip = IpAddr::V6(Ipv6Addr::from(ip)).to_canonical();
        Some(Self {
            address: SocketAddr::new(ip, port),
            process,
            key,
        })
    }
}

/// A connection to a role.
struct Connection {
    stream: TcpStream,
    hello: [u8; HELLO],
    /// Bytes of the handshake, in both directions.
    said: Vec<u8>,
}

fn random<const N: usize>() -> [u8; N] {
    std::array::from_fn(|_| fastrand::u8(..))
}

fn tag(key: &[u8], label: &[u8], said: &[u8]) -> io::Result<[u8; TAG]> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(io::Error::other)?;
    mac.update(label);
    mac.update(said);
    Ok(mac.finalize().into_bytes().into())
}

impl Connection {
    fn open(address: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut hello = [0; HELLO];
        stream.read_exact(&mut hello)?;
        Ok(Self {
            stream,
            hello,
            said: hello.to_vec(),
        })
    }

    /// Builds a proof for this connection.
    fn proof(
        &mut self,
        key: &[u8],
        purpose: u64,
        process: &[u8; 16],
        object: &[u8; 16],
    ) -> io::Result<[u8; PROOF]> {
        let text = [&random::<32>()[..], &purpose.to_le_bytes(), process, object].concat();
        self.said.extend_from_slice(&text);
        let tag = tag(key, b"softdoca client", &self.said)?;
        let bytes = [&text[..], &tag].concat();
        bytes
            .try_into()
            .map_err(|_| io::Error::other("a proof of another size"))
    }

    /// Authenticates with the key; returns the result in the answer.
    fn prove(&mut self, purpose: u64, process: &[u8; 16], object: &[u8; 16]) -> io::Result<u32> {
        let proof = self.proof(KEY, purpose, process, object)?;
        self.stream.write_all(&proof)?;
        let mut answer = [0; ANSWER];
        self.stream.read_exact(&mut answer)?;
        let (text, theirs) = answer.split_at(8);
        self.said.extend_from_slice(text);
        if tag(KEY, b"softdoca server", &self.said)? != theirs {
            return Err(io::Error::other(
                "the role does not prove that it has the key",
            ));
        }
        Ok(u32::from_le_bytes([text[0], text[1], text[2], text[3]]))
    }

    /// Opens an authenticated connection for a purpose.
    fn served(endpoint: &Endpoint, purpose: u64, object: &[u8; 16]) -> io::Result<Self> {
        let mut connection = Self::open(endpoint.address)?;
        match connection.prove(purpose, &endpoint.process, object)? {
            0 => Ok(connection),
            code => Err(io::Error::other(format!(
                "expected to be served, got error {code}"
            ))),
        }
    }

    /// Receives until the connection is closed, which must happen.
    fn rest(&mut self) -> Result<Vec<u8>, Violation> {
        rest_of(&mut self.stream)
    }
}

/// Receives until the connection is closed, which must happen.
fn rest_of(stream: &mut TcpStream) -> Result<Vec<u8>, Violation> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Violation::expected(
            "the end of the connection",
            format!("none within {TIMEOUT:?} after {} bytes", bytes.len()),
        )),
        // A reset is equivalent to a regular close.
        _ => Ok(bytes),
    }
}

/// Encodes a memory request.
fn request(operation: u16, key: &[u8; 16], addr: u64, len: u64) -> Vec<u8> {
    let mut bytes = b"SDrq\x02\0".to_vec();
    bytes.extend(operation.to_le_bytes());
    bytes.extend_from_slice(key);
    for word in [addr, len, 1, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

/// Executes an attack; returns the longest time until a peer with the key was served during it.
pub(super) fn play(attack: &NetworkAttack, endpoint: &Endpoint) -> Result<Duration, Violation> {
    match attack {
        NetworkAttack::Unauthenticated(attack) => play_unauthenticated(attack, endpoint),
        NetworkAttack::Flood { connections, hold } => play_flood(endpoint, *connections, *hold),
        NetworkAttack::Authenticated(authenticated) => {
            play_authenticated(*authenticated, endpoint).map(|()| Duration::ZERO)
        }
        // Executed by the caller, which owns the session.
        NetworkAttack::Exported(_) => Ok(Duration::ZERO),
    }
}

fn play_unauthenticated(
    attack: &Unauthenticated,
    endpoint: &Endpoint,
) -> Result<Duration, Violation> {
    let mut open = Vec::new();
    for _ in 0..attack.connections {
        let mut stream = TcpStream::connect(endpoint.address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        let bytes = input_of(attack.input, endpoint, &mut stream)?;
        let size = if attack.piece == 0 {
            bytes.len().max(1)
        } else {
            attack.piece
        };
        for piece in bytes.chunks(size) {
            // The role may close the connection before the last byte.
            if stream.write_all(piece).is_err() {
                break;
            }
            std::thread::sleep(attack.pace);
        }
        open.push(stream);
    }
    for mut stream in open {
        let got = rest_of(&mut stream)?;
        let is_greeting = got.is_empty()
            || got.len() <= HELLO && b"SDTCP\0\x01\0".starts_with(&got[..got.len().min(8)]);
        // If the proof depends on the hello, the latter has already been read.
        let is_greeting = match attack.input {
            Input::Nothing | Input::Zeros(_) | Input::Random(_) | Input::Http => is_greeting,
            _ => got.is_empty(),
        };
        Violation::unless(
            is_greeting,
            "random bytes and the end of the connection",
            format!("{got:02x?}"),
        )?;
    }
    probe(endpoint)
}

/// Bytes that an unauthenticated peer sends over a connection.
fn input_of(
    input: Input,
    endpoint: &Endpoint,
    stream: &mut TcpStream,
) -> Result<Vec<u8>, Violation> {
    let simple = match input {
        Input::Nothing => Some(Bytes::Nothing),
        Input::Zeros(count) => Some(Bytes::Repeated(0, count)),
        Input::Random(count) => Some(Bytes::Random(count)),
        Input::Http => Some(Bytes::Raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")),
        _ => None,
    };
    if let Some(bytes) = simple {
        return Ok(bytes.make());
    }
    let mut hello = [0; HELLO];
    stream.read_exact(&mut hello)?;
    let stream = stream.try_clone()?;
    let mut connection = Connection {
        stream,
        hello,
        said: hello.to_vec(),
    };
    let mut proof = |key: &[u8]| connection.proof(key, MEMORY, &endpoint.process, &endpoint.key);
    let mut bytes = match input {
        Input::AnotherKey => proof(ANOTHER_KEY)?.to_vec(),
        Input::NoKey => proof(&[])?.to_vec(),
        Input::Replayed => {
            let mut recorded = Connection::open(endpoint.address)?;
            Violation::unless(
                recorded.hello != hello,
                "greetings that differ",
                "the same twice",
            )?;
            recorded
                .proof(KEY, MEMORY, &endpoint.process, &endpoint.key)?
                .to_vec()
        }
        _ => proof(KEY)?.to_vec(),
    };
    match input {
        Input::Altered => bytes[32] = LIVENESS as u8,
        Input::Unfinished => {
            bytes.pop();
        }
        _ => {}
    }
    Ok(bytes)
}

/// Checks that the role still answers a peer that has the key, and returns the response time.
fn probe(endpoint: &Endpoint) -> Result<Duration, Violation> {
    let begin = Instant::now();
    let mut connection = Connection::open(endpoint.address)
        .map_err(|error| Violation::expected("a peer with the key to be greeted", error))?;
    // The process does not exist: the response is the same for every role.
    let code = connection.prove(LIVENESS, &random(), &random());
    match code {
        Ok(NOT_FOUND) => Ok(begin.elapsed()),
        other => Err(Violation::expected(
            format!("a peer with the key to be answered with error {NOT_FOUND}"),
            format!("{other:?}"),
        )),
    }
}

fn play_flood(
    endpoint: &Endpoint,
    connections: usize,
    hold: Duration,
) -> Result<Duration, Violation> {
    let begin = Instant::now();
    let mut open: std::collections::VecDeque<TcpStream> = std::collections::VecDeque::new();
    let mut longest = Duration::ZERO;
    while begin.elapsed() < hold {
        // The role closes the oldest connections; they are replaced by new ones.
        for _ in 0..connections {
            let stream = TcpStream::connect_timeout(&endpoint.address, TIMEOUT)?;
            open.push_back(stream);
            if open.len() > connections {
                open.pop_front();
            }
        }
        longest = longest.max(probe(endpoint)?);
    }
    Ok(longest)
}

fn play_authenticated(attack: Authenticated, endpoint: &Endpoint) -> Result<(), Violation> {
    let served = |purpose| Connection::served(endpoint, purpose, &endpoint.key);
    match attack {
        Authenticated::AnotherProcess => {
            for purpose in [LIVENESS, MEMORY, SERVICE] {
                let mut connection = Connection::open(endpoint.address)?;
                let code = connection.prove(purpose, &random(), &endpoint.key)?;
                Violation::unless(code == NOT_FOUND, format!("error {NOT_FOUND}"), code)?;
                end_of(&mut connection)?;
            }
            Ok(())
        }
        Authenticated::UnknownConnection => {
            let mut connection = Connection::open(endpoint.address)?;
            let code = connection.prove(SERVICE, &endpoint.process, &random())?;
            Violation::unless(code == NOT_FOUND, format!("error {NOT_FOUND}"), code)?;
            end_of(&mut connection)
        }
        Authenticated::SecondClaim => {
            let mut first = served(SERVICE)?;
            let mut second = Connection::open(endpoint.address)?;
            let code = second.prove(SERVICE, &endpoint.process, &endpoint.key)?;
            Violation::unless(
                code == ALREADY_EXIST,
                format!("error {ALREADY_EXIST}"),
                code,
            )?;
            end_of(&mut second)?;
            // The first connection may have been granted receives, and is still open.
            first.stream.set_read_timeout(Some(QUIET))?;
            let granted = first.stream.read(&mut [0; 64]);
            Violation::unless(
                !matches!(granted, Ok(0)),
                "the first connection to stay open",
                format!("{granted:?}"),
            )
        }
        Authenticated::UnreadHeartbeats => {
            let mut connection = served(LIVENESS)?;
            flood(&mut connection, &[1; 4096])?;
            Ok(())
        }
        Authenticated::Connections(count) => {
            let open: io::Result<Vec<_>> = (0..count).map(|_| served(MEMORY)).collect();
            // The role may have a limit.
            drop(open);
            probe(endpoint).map(drop)
        }
        Authenticated::UnknownPurpose => {
            let mut connection = Connection::open(endpoint.address)?;
            let proof = connection.proof(KEY, 77, &endpoint.process, &endpoint.key)?;
            connection.stream.write_all(&proof)?;
            end_of(&mut connection)
        }
        Authenticated::UnknownMemory => refused(&mut served(MEMORY)?, &random()),
        Authenticated::ConnectionAsMemory => refused(&mut served(MEMORY)?, &endpoint.key),
        Authenticated::Request(bytes) => {
            let mut connection = served(MEMORY)?;
            connection.stream.write_all(bytes)?;
            end_of(&mut connection)
        }
        Authenticated::OversizedWrite => {
            let mut connection = served(MEMORY)?;
            let bytes = request(3, &random(), 0x1000, (2 << 30) + 1);
            connection.stream.write_all(&bytes)?;
            end_of(&mut connection)
        }
        Authenticated::UnfinishedWrite => {
            let mut connection = served(MEMORY)?;
            let bytes = request(3, &random(), 0x1000, 1 << 30);
            connection.stream.write_all(&bytes)?;
            connection.stream.write_all(&vec![0x5a; 1 << 20])?;
            std::thread::sleep(QUIET);
            Ok(())
        }
        Authenticated::UnreadReplies => {
            let mut connection = served(MEMORY)?;
            flood(&mut connection, &request(4, &random(), 0x1000, 8))?;
            Ok(())
        }
        Authenticated::Frames(bytes, times) => {
            let mut connection = served(SERVICE)?;
            connection.stream.set_write_timeout(Some(QUIET))?;
            for _ in 0..times {
                // The role may close the connection before the last byte.
                if connection.stream.write_all(bytes).is_err() {
                    break;
                }
            }
            std::thread::sleep(QUIET);
            Ok(())
        }
    }
}

/// Checks that the connection is closed without further bytes.
fn end_of(connection: &mut Connection) -> Result<(), Violation> {
    let rest = connection.rest()?;
    Violation::unless(
        rest.is_empty(),
        "the end of the connection",
        format!("{rest:02x?}"),
    )
}

/// Sends these bytes repeatedly for 2 s, or until the role closes the connection.
fn flood(connection: &mut Connection, bytes: &[u8]) -> io::Result<()> {
    connection.stream.set_nonblocking(true)?;
    let many = bytes.repeat(1000);
    let begin = Instant::now();
    let mut sent = 0;
    while sent < 100_000_000 && begin.elapsed() < Duration::from_secs(2) {
        match connection.stream.write(&many[sent % bytes.len()..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(_) => break,
        }
    }
    Ok(())
}

/// Checks that each operation on memory of this key is answered with an error, without data, and that the connection stays open.
fn refused(connection: &mut Connection, key: &[u8; 16]) -> Result<(), Violation> {
    for _ in 0..2 {
        for operation in 1..=5 {
            for (addr, len) in [
                (0, 8),
                (0x1000, 8),
                (u64::MAX - 7, 8),
                (0x7fff_0000_0000, 4096),
            ] {
                fails(connection, NOT_FOUND, operation, key, (addr, len))?;
            }
        }
    }
    says_nothing(connection)
}

/// Checks that an operation is answered with this error.
fn fails(
    connection: &mut Connection,
    expected: u32,
    operation: u16,
    key: &[u8; 16],
    (addr, len): (u64, u64),
) -> Result<(), Violation> {
    let code = ask(connection, operation, key, (addr, len))?;
    Violation::unless(
        code == expected,
        format!("error {expected} for operation {operation} on {len} bytes at {addr:#x}"),
        format!("error {code}"),
    )
}

/// Sends a request and returns the error code in its reply; the data of a read is not received.
fn ask(
    connection: &mut Connection,
    operation: u16,
    key: &[u8; 16],
    (addr, len): (u64, u64),
) -> Result<u32, Violation> {
    let mut bytes = request(operation, key, addr, len);
    if operation == WRITE {
        bytes.resize(bytes.len() + len as usize, 0x5a);
    }
    connection.stream.write_all(&bytes)?;
    let mut reply = [0; REPLY];
    connection.stream.read_exact(&mut reply)?;
    Violation::unless(
        reply.starts_with(b"SDrp"),
        "a reply",
        format!("{reply:02x?}"),
    )?;
    Ok(u32::from_le_bytes([reply[4], reply[5], reply[6], reply[7]]))
}

fn says_nothing(connection: &mut Connection) -> Result<(), Violation> {
    connection.stream.set_read_timeout(Some(QUIET))?;
    let more = connection.stream.read(&mut [0; 64]);
    connection.stream.set_read_timeout(Some(TIMEOUT))?;
    Violation::unless(
        more.as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock),
        "no further bytes after the replies, and an open connection",
        format!("{more:?}"),
    )
}

/// Attacks memory that a role exports. `end_session` ends the session that it was exported for.
pub(super) fn play_exported(
    attack: Exported,
    export: &Export,
    end_session: impl FnOnce(),
) -> Result<(), Violation> {
    let Export {
        endpoint,
        addr,
        len,
    } = export;
    let (key, addr, len) = (&endpoint.key, *addr, *len);
    let mut connection = Connection::served(endpoint, MEMORY, key)?;
    // The peer may use the memory exported to it.
    for (at, size) in [(addr, 8), (addr + len - 8, 8)] {
        fails(&mut connection, 0, READ, key, (at, size))?;
        connection.stream.read_exact(&mut [0; 8])?;
    }
    match attack {
        Exported::OutOfRange => {
            let beside = [
                (addr - 8, 8),
                (addr - 1, 2),
                (addr + len - 4, 8),
                (addr + len, 8),
                (addr, len + 1),
                (0, 8),
                (u64::MAX - 7, 8),
                (u64::MAX, 1),
            ];
            for operation in [READ, WRITE, FETCH_ADD, COMPARE_SWAP] {
                for place in beside {
                    let code = ask(&mut connection, operation, key, place)?;
                    Violation::unless(
                        code != 0,
                        format!("an error for operation {operation} at {place:x?}"),
                        "success",
                    )?;
                }
            }
            fails(&mut connection, INVALID_VALUE, READ, key, (addr, 2 << 30))?;
            for operation in [FETCH_ADD, COMPARE_SWAP] {
                let code = ask(&mut connection, operation, key, (addr + 1, 8))?;
                Violation::unless(
                    code != 0,
                    "an error for a word at an odd address",
                    "success",
                )?;
            }
            says_nothing(&mut connection)
        }
        Exported::Withdrawn => {
            end_session();
            let begin = Instant::now();
            loop {
                match ask(&mut connection, READ, key, (addr, 8))? {
                    0 => connection.stream.read_exact(&mut [0; 8])?,
                    NOT_FOUND => break,
                    code => return Err(Violation::expected(NOT_FOUND, code)),
                }
                Violation::unless(
                    begin.elapsed() < TIMEOUT,
                    "the memory to be withdrawn with the session",
                    "that it is still served",
                )?;
                std::thread::sleep(Duration::from_millis(20));
            }
            for operation in [READ, WRITE, FETCH_ADD, COMPARE_SWAP] {
                let code = ask(&mut connection, operation, key, (addr, 8))?;
                Violation::unless(code != 0, "an error for withdrawn memory", "success")?;
            }
            says_nothing(&mut connection)?;
            refused(&mut Connection::served(endpoint, MEMORY, key)?, key)
        }
        Exported::UnreadMemory => {
            flood(&mut connection, &request(READ, key, addr, len))?;
            Ok(())
        }
    }
}
