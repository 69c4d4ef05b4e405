//! Attacks as data, executed by a small driver.

use std::time::Duration;

use bytes::Bytes as Blob;
use deployment::implementation::Role;
use wire::control::{
    ErrorResponse, InitStorage, Message, Payload, RdmaConnectionDetails, RdmaConnectionRole,
};

use super::network::NetworkAttack;

#[derive(Debug, Clone)]
pub struct Attack {
    /// Name of the attack: a few words with dashes.
    pub name: &'static str,
    /// Description of the attack, one sentence.
    pub meaning: &'static str,
    /// The actions of an attack.
    pub(super) play: Play,
    /// Maximum cost to the role.
    pub cost: Cost,
}

impl Attack {
    /// Returns `true` if the attack applies to a role.
    pub fn is_for(&self, role: Role) -> bool {
        let service = matches!(role, Role::ZeroCopy | Role::GgaOffload);
        match self.play {
            Play::Service(_) => role == Role::Initiator,
            Play::Control(_) | Play::Silent(_) | Play::Session(_) | Play::Agent(_) => {
                service || role == Role::Target
            }
            Play::Frames(_) => service,
            // A service sends connection details only to its targets.
            Play::Network(NetworkAttack::Authenticated(_)) => role == Role::Target,
            // A target exports no memory.
            Play::Network(NetworkAttack::Exported(_)) => service,
            Play::Network(_) => service || role == Role::Target,
        }
    }
}

/// Maximum cost of an attack. Resources are counted in addition to those that the role used before the attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Time after the attack until another client is served.
    pub service: Duration,
    /// Time that the role takes to respond to another client during a session, or to serve a client while silent
    /// connections are open.
    pub held_up: Duration,
    /// Resident memory, MiB.
    pub memory: u64,
    pub descriptors: usize,
    /// Number of lines that the role logs during the attack.
    pub lines: usize,
}

impl Cost {
    /// Maximum cost of an ordinary attack: the idle timeout of the role under test, and the resources that the role
    /// holds for its last few connections.
    pub(super) const USUAL: Self = Self {
        service: Duration::from_secs(4),
        held_up: Duration::from_secs(1),
        memory: 16,
        descriptors: 40,
        lines: 80,
    };

    /// Returns the cost with its times multiplied by `scale`, for a loaded machine.
    #[must_use]
    pub fn with_times(self, scale: u32) -> Self {
        Self {
            service: self.service * scale,
            held_up: self.held_up * scale,
            ..self
        }
    }
}

/// The actions of an attack.
#[derive(Debug, Clone)]
pub(super) enum Play {
    /// Bytes over control channels: TCP of a target, Comch messages of a service.
    Control(Control),
    /// Connections that send nothing while other clients are served.
    Silent(Silent),
    /// Frames of a Comch connection, the layer below its messages.
    Frames(Frames),
    /// Connections to the role's agent.
    Agent(AgentCalls),
    /// A session that is correct up to some step, with the attacker's memory and rings.
    Session(Session),
    /// A service that an initiator connects to.
    Service(ServiceAttack),
    /// Connections over the network to softdoca in the role.
    Network(NetworkAttack),
}

/// A service that follows the protocol up to a point.
#[derive(Debug, Clone)]
pub(super) struct ServiceAttack {
    pub point: Point,
    /// Behaviour at that point. Afterwards the service sends nothing, and stays connected until the initiator has exited.
    pub action: Action,
}

/// The step at which a service stops following the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    /// The initiator has connected: the action replaces its acceptance.
    Hello,
    /// The action replaces the answer to this request.
    Query,
    Init,
    Start,
    /// The first I/O has been received, and its result was not sent.
    Io,
    Stop,
    Shutdown,
}

/// Behaviour of a hostile service.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Silence,
    Close,
    /// Closes only the socket whose closing signals that its process has exited.
    CutLifeline,
    /// Sends bytes as control messages, this many times or for 2 s.
    Bytes(Bytes, usize),
    /// Sends Comch frames, this many times or for 2 s.
    Frames(Vec<Frame>, usize),
    /// Answers with this payload and the correct ids.
    Answer(Payload),
    /// Sends the correct answer with another message id.
    WrongIds,
    /// Writes into the ring of the initiator's consumer.
    Ring(Vec<RingWrite>),
    /// Sends results with this code for the first transaction, this many times or for 2 s.
    Results(u32, usize),
    /// Opens connections to the initiator's agent, and sends these bytes on each.
    Agent {
        bytes: Bytes,
        connections: usize,
    },
}

/// The ways in which a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Close,
    /// With a reset, if the transport has one.
    Reset,
    /// Only the sending direction is closed; the connection stays open for the attack's hold time.
    HalfClose,
}

/// Bytes sent over control channels.
#[derive(Debug, Clone)]
pub(super) struct Control {
    /// Number of connections, one after the other or all at once.
    pub connections: usize,
    pub at_once: bool,
    /// The bytes that each connection sends.
    pub bytes: Bytes,
    /// Number of repetitions; fewer if the role receives nothing for 300 ms.
    pub times: usize,
    /// Size of each write in bytes; 0 for a single write.
    pub piece: usize,
    /// Time between writes.
    pub pace: Duration,
    /// `true` if answers are read.
    pub reads: bool,
    /// Time for which the connection stays open after the last byte.
    pub hold: Duration,
    pub end: End,
}

impl Control {
    /// One connection that sends these bytes once and closes.
    pub(super) const fn once(bytes: Bytes) -> Self {
        Self {
            connections: 1,
            at_once: false,
            bytes,
            times: 1,
            piece: 0,
            pace: Duration::ZERO,
            reads: true,
            hold: Duration::from_millis(50),
            end: End::Close,
        }
    }
}

/// Connections that send nothing. Meanwhile, every attempt of another client must be served.
#[derive(Debug, Clone)]
pub(super) struct Silent {
    /// Number of open connections: a connection that the role closes is replaced.
    pub connections: usize,
    /// Interval between new connections.
    pub pace: Duration,
    pub hold: Duration,
}

/// A raw frame, with file descriptors of these kinds.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub bytes: Vec<u8>,
    pub descriptors: Vec<Descriptor>,
}

/// A file descriptor that an attacker sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Descriptor {
    /// A valid ring.
    Ring,
    /// A ring that is not sealed.
    UnsealedRing,
    /// A ring whose header states more slots than the ring has.
    LyingRing,
    EventFd,
    /// A blocking eventfd whose counter is at its maximum.
    FullEventFd,
    Pipe,
    File,
    Socket,
}

/// Frames of Comch connections.
#[derive(Debug, Clone)]
pub(super) struct Frames {
    /// `true` to send a hello first, and to wait for the answer.
    pub hello: bool,
    pub frames: Vec<Frame>,
    pub times: usize,
    pub connections: usize,
    /// `true` to close the lifeline before the connection.
    pub cut_lifeline: bool,
    pub hold: Duration,
}

/// Connections to the role's agent. The role has an agent only while it exports something, so a session is started first.
#[derive(Debug, Clone)]
pub(super) struct AgentCalls {
    pub connections: usize,
    pub bytes: Bytes,
    pub times: usize,
    pub hold: Duration,
}

/// The steps of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Init,
    Connect,
    Start,
}

/// Behaviour of the attacker's agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Correct behaviour: memory in one memfd.
    Sound,
    Absent,
    /// Accepts connections and answers nothing.
    Silent,
    /// Closes the connection after each request.
    HangsUp,
    /// Sends one segment per reply, each after this delay.
    Slow(Duration),
    /// Announces this many segments.
    Segments(u64),
    /// The memory is at another offset in its page.
    Misaligned,
    /// The memfd is not sealed.
    Unsealed,
    /// The memfd is shorter than the memory.
    Short,
    /// Sends a pipe, a file or a socket instead of a memfd.
    Instead(Descriptor),
    /// Replies are 40 bytes of 0xA5.
    Garbage,
    /// Memory is accessible only through the agent, which takes this long for each copy.
    SlowCopies(Duration),
    /// Answers descriptions of exports, but no calls (RDMA connects).
    NoCalls,
    /// Answers calls with file descriptors of this kind.
    CallsWith(Descriptor),
}

/// Content that the attacker writes into the role's rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RingWrite {
    /// A fragment: `more` if others follow, `inline` if its data is in the slot.
    Fragment {
        len: u32,
        immediate: Option<u32>,
        more: bool,
        inline: bool,
    },
    /// This many fragments of one byte, each with the flag for further fragments, as fast as the role receives them.
    Endless(usize),
    /// This many random words at random offsets of the ring.
    Noise(usize),
    /// An I/O message of this type, size, requester offset and storage offset.
    Io(u32, u32, u64, u64),
    /// The attacker's end of the ring is marked as closed.
    Close,
}

/// A session with an attacker.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub until: Step,
    pub manner: Manner,
    pub transactions: u32,
    pub cores: u32,
    /// `true` to claim the role's rings.
    pub claims: bool,
    pub ring: Vec<RingWrite>,
    pub hold: Duration,
}

impl Session {
    /// A session up to `until`, with an agent that behaves like this.
    pub(super) const fn with(until: Step, manner: Manner) -> Self {
        Self {
            until,
            manner,
            transactions: 16,
            cores: 1,
            claims: true,
            ring: Vec::new(),
            hold: Duration::from_millis(200),
        }
    }

    /// A session that is started, then writes this into the role's rings.
    pub(super) fn ring(ring: Vec<RingWrite>) -> Self {
        Self {
            ring,
            ..Self::with(Step::Start, Manner::Sound)
        }
    }
}

// Bytes that attackers send.

/// Bytes that an attacker sends, as a specification; [`Self::make`] generates them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bytes {
    Nothing,
    Raw(&'static [u8]),
    /// A value, and the number of its repetitions.
    Repeated(u8, usize),
    /// This many pseudo-random bytes, the same in every run.
    Random(usize),
    /// A frame header with any length and type, without a payload.
    Header {
        len: u32,
        kind: u32,
    },
    /// A frame of this type with a payload of this many bytes.
    Frame {
        kind: u32,
        payload: usize,
    },
    Query,
    /// An init request with these counts and a blob of this many zeros.
    Init {
        transactions: u32,
        cores: u32,
        blob: usize,
    },
    /// A request to create an RDMA connection for this worker, with a blob of this many zeros.
    Create {
        index: u32,
        blob: usize,
    },
    Start,
    Stop,
    Shutdown,
    /// An error response without a request.
    Error,
    /// Concatenation.
    All(&'static [Bytes]),
}

impl Bytes {
    pub(super) fn make(&self) -> Vec<u8> {
        let message = |payload| {
            let (message_id, correlation_id) = (1, 1);
            Message {
                message_id,
                correlation_id,
                payload,
            }
            .encode_to_vec()
        };
        let zeros = |len: usize| Blob::from(vec![0; len]);
        match self {
            Self::Nothing => Vec::new(),
            Self::Raw(bytes) => bytes.to_vec(),
            Self::Repeated(value, count) => vec![*value; *count],
            Self::Random(count) => {
                let mut rng = fastrand::Rng::with_seed(*count as u64);
                std::iter::repeat_with(|| rng.u8(..)).take(*count).collect()
            }
            Self::Header { len, kind } => header(*len, *kind),
            Self::Frame { kind, payload } => {
                let mut bytes = header(*payload as u32 + 12, *kind);
                bytes.extend([1_u32.to_be_bytes(); 2].concat());
                bytes.resize(bytes.len() + payload, 0);
                bytes
            }
            Self::Query => message(Payload::QueryStorageRequest),
            Self::Init {
                transactions,
                cores,
                blob,
            } => message(Payload::InitStorageRequest(InitStorage {
                transaction_count: *transactions,
                core_count: *cores,
                mmap_export_blob: zeros(*blob),
            })),
            Self::Create { index, blob } => {
                let details = RdmaConnectionDetails {
                    context_index: *index,
                    role: RdmaConnectionRole::IoData,
                    connection_details: zeros(*blob),
                };
                message(Payload::CreateRdmaConnectionRequest(details))
            }
            Self::Start => message(Payload::StartStorageRequest),
            Self::Stop => message(Payload::StopStorageRequest),
            Self::Shutdown => message(Payload::ShutdownRequest),
            Self::Error => message(Payload::ErrorResponse(ErrorResponse {
                error_code: 17,
                message: "no reason".to_owned(),
            })),
            Self::All(parts) => parts.iter().flat_map(Self::make).collect(),
        }
    }
}

/// Length and type of a control frame.
fn header(len: u32, kind: u32) -> Vec<u8> {
    [len.to_be_bytes(), kind.to_be_bytes()].concat()
}
