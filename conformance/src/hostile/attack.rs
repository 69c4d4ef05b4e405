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
    /// Its name: a few words with dashes.
    pub name: &'static str,
    /// Description of the attack, one sentence.
    pub meaning: &'static str,
    /// The actions of an attack.
    pub(super) play: Play,
    /// Maximum cost to the role.
    pub cost: Cost,
}

impl Attack {
    /// Returns `true` if it can be played against a role.
    pub fn is_for(&self, role: Role) -> bool {
        let service = matches!(role, Role::ZeroCopy | Role::GgaOffload);
        match self.play {
            Play::Service(_) => role == Role::Initiator,
            Play::Control(_) | Play::Silent(_) | Play::Session(_) | Play::Agent(_) => {
                service || role == Role::Target
            }
            Play::Frames(_) => service,
            // Of services, only their targets get connection details.
            Play::Network(NetworkAttack::Authenticated(_)) => role == Role::Target,
            // A target exports no memory.
            Play::Network(NetworkAttack::Exported(_)) => service,
            Play::Network(_) => service || role == Role::Target,
        }
    }
}

/// Maximum cost of an attack, above what the role used before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Time after the attack until another client is served.
    pub service: Duration,
    /// Time that the role takes to react to another client during a session, or to serve one beside silent connections.
    pub held_up: Duration,
    /// Resident memory, MiB.
    pub memory: u64,
    pub descriptors: usize,
    /// Lines that the role logs while it lasts.
    pub lines: usize,
}

impl Cost {
    /// Maximum cost of an ordinary attack: the idle timeout of the roles under test, and what they keep of their last few connections.
    pub(super) const USUAL: Self = Self {
        service: Duration::from_secs(4),
        held_up: Duration::from_secs(1),
        memory: 16,
        descriptors: 40,
        lines: 80,
    };

    /// The same with its times multiplied, for a machine that has other things to do.
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
    /// Connections that send nothing, while another client is served.
    Silent(Silent),
    /// Frames of a Comch connection, below its messages.
    Frames(Frames),
    /// Connections to the role's agent.
    Agent(AgentCalls),
    /// A session as it should be up to some step, with memory and rings of the attacker's.
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
    /// Its behaviour at that point. After that it is silent, and stays until the initiator has ended.
    pub action: Action,
}

/// The step at which a service stops following the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    /// When the initiator has connected, instead of accepting it.
    Hello,
    /// Instead of the answer to this request.
    Query,
    Init,
    Start,
    /// When the first I/O has come, and before its result.
    Io,
    Stop,
    Shutdown,
}

/// Behaviour of a hostile service.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Silence,
    Close,
    /// Closes the socket that says that its process is there, and nothing else.
    CutLifeline,
    /// Sends bytes as control messages, so often or for 2 s.
    Bytes(Bytes, usize),
    /// Sends frames of Comch, so often or for 2 s.
    Frames(Vec<Frame>, usize),
    /// Answers with this, and the right ids.
    Answer(Payload),
    /// Gives the right answer, with another message id.
    WrongIds,
    /// Writes into the ring of the initiator's consumer.
    Ring(Vec<RingWrite>),
    /// Sends results with this code for the first transaction, so often or for 2 s.
    Results(u32, usize),
    /// Connects to the initiator's agent so often, and sends this on each connection.
    Agent {
        bytes: Bytes,
        connections: usize,
    },
}

/// The ways in which a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Close,
    /// With a reset, where there is one.
    Reset,
    /// Nothing is sent any more, but the connection stays for the time that the attack holds it.
    HalfClose,
}

/// Bytes over control channels.
#[derive(Debug, Clone)]
pub(super) struct Control {
    /// Connections, one after the other or all at once.
    pub connections: usize,
    pub at_once: bool,
    /// The bytes that each connection sends.
    pub bytes: Bytes,
    /// Number of repetitions; they end early when the role takes nothing for 300 ms.
    pub times: usize,
    /// Bytes of each write; 0 for all.
    pub piece: usize,
    /// Time between writes.
    pub pace: Duration,
    /// `true` if answers are read.
    pub reads: bool,
    /// Time that the connection stays after the last byte.
    pub hold: Duration,
    pub end: End,
}

impl Control {
    /// One connection that sends this once and closes.
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

/// Connections that send nothing. Another client must be served beside them, as often as it comes.
#[derive(Debug, Clone)]
pub(super) struct Silent {
    /// Connections at a time: one that the role closes is replaced.
    pub connections: usize,
    /// Time between two connections.
    pub pace: Duration,
    pub hold: Duration,
}

/// A raw frame, with so many descriptors of each kind.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub bytes: Vec<u8>,
    pub descriptors: Vec<Descriptor>,
}

/// A descriptor that an attacker hands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Descriptor {
    /// A ring as it should be.
    Ring,
    /// A ring that is not sealed.
    UnsealedRing,
    /// A ring whose header says more slots than it has.
    LyingRing,
    EventFd,
    /// One that blocks, with a full counter.
    FullEventFd,
    Pipe,
    File,
    Socket,
}

/// Frames of Comch connections.
#[derive(Debug, Clone)]
pub(super) struct Frames {
    /// `true` if a hello comes first, and is answered.
    pub hello: bool,
    pub frames: Vec<Frame>,
    pub times: usize,
    pub connections: usize,
    /// `true` if the lifeline is closed before the connection.
    pub cut_lifeline: bool,
    pub hold: Duration,
}

/// Connections to the role's agent. It has one only while something is exported: a session is brought to its start first.
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
    /// As it should be: memory in one memfd.
    Sound,
    Absent,
    /// It accepts and answers nothing.
    Silent,
    /// It hangs up after each request.
    HangsUp,
    /// One segment in each reply, each after this time.
    Slow(Duration),
    /// So many segments are said to come.
    Segments(u64),
    /// The memory is at another place of its page.
    Misaligned,
    /// The memfd is not sealed.
    Unsealed,
    /// The memfd is shorter than the memory.
    Short,
    /// A pipe, a file or a socket instead of a memfd.
    Instead(Descriptor),
    /// Replies are 40 bytes of 0xA5.
    Garbage,
    /// Memory that only the agent reaches, which takes this time for each copy.
    SlowCopies(Duration),
    /// Calls (connects of RDMA) are never answered, describes are.
    NoCalls,
    /// Calls are answered with descriptors of another kind.
    CallsWith(Descriptor),
}

/// Content that the attacker writes into the role's rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RingWrite {
    /// A fragment: length, immediate data, others follow, in the slot.
    Fragment {
        len: u32,
        immediate: Option<u32>,
        more: bool,
        inline: bool,
    },
    /// So many fragments of one byte that others follow, as fast as the role takes them.
    Endless(usize),
    /// Any words all over the ring, so often.
    Noise(usize),
    /// An I/O message of this type, size, requester offset and storage offset.
    Io(u32, u32, u64, u64),
    /// The end of the ring is marked as closed.
    Close,
}

/// A session with an attacker.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub until: Step,
    pub manner: Manner,
    pub transactions: u32,
    pub cores: u32,
    /// `true` if the role's rings are claimed.
    pub claims: bool,
    pub ring: Vec<RingWrite>,
    pub hold: Duration,
}

impl Session {
    /// Up to `until`, with an agent of this manner.
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

    /// Up to the start, and then this in the role's rings.
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
    /// So many of this value.
    Repeated(u8, usize),
    /// So many, which are the same in every run.
    Random(usize),
    /// A frame header with any length and type, and nothing behind it.
    Header {
        len: u32,
        kind: u32,
    },
    /// A frame of this type with so many bytes of payload.
    Frame {
        kind: u32,
        payload: usize,
    },
    Query,
    /// An init with these counts and a blob of so many zeros.
    Init {
        transactions: u32,
        cores: u32,
        blob: usize,
    },
    /// A create of an RDMA connection for this worker, with a blob of so many zeros.
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
