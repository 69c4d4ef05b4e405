//! A hostile service, its attacks, and their cost for an initiator that connects to it.
//!
//! The service is built from the documented layouts, without softdoca's code, and follows the protocol up to the
//! [`Point`] of its attack. Whatever the service does there, the initiator must exit by itself within bounded time,
//! with an error and not with a panic or a signal.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use deployment::Resources;
use deployment::implementation::Role;
use deployment::process::Process;
use deployment::sandbox::{HOST_DEVICE, Sandbox};
use wire::control::{ErrorResponse, FrameDecoder, Message, MessageType, Payload, StorageDetails};
use wire::io_message::SIZE;

use super::attack::{
    Action, Attack, Bytes, Cost, Descriptor, Frame, Play, Point, RingWrite, ServiceAttack,
};
use super::raw::{FUNCTION, Packets, RawRing, STALL, comch_socket, descriptor, words};
use super::{Settings, put, raw, suite};
use crate::report::{Case, Outcome};
use crate::violation::Violation;

/// Seconds after which the initiator stops waiting for an answer or an I/O.
const TIMEOUT: &str = "2";
/// Time limit for the initiator's connection and its first request.
const START: Duration = Duration::from_secs(20);
/// Time after which a running initiator is considered hung.
const LONGEST: Duration = Duration::from_secs(60);
/// Exit status of a Rust program whose main thread has panicked.
const PANICKED: i32 = 101;
/// Types of Comch frames.
const ACCEPT: u32 = 2;
const MESSAGE: u32 = 4;
const CONSUMER_ADDED: u32 = 5;
/// Id of the service's consumer.
const CONSUMER: u32 = 1;
/// Number of blocks that the service reports, and their size.
const BLOCKS: u64 = 64;
const BLOCK: u32 = 4096;

/// Runs an attack, and compares its cost with the limits.
pub(super) fn try_one(settings: &Settings, attack: &Attack) -> Case {
    let begin = Instant::now();
    let suite = suite(Role::Initiator);
    let (outcome, note, output) = match measure(settings, attack) {
        Ok((note, _)) => (Outcome::Passed, Some(note), None),
        Err((violation, output)) => (Outcome::Failed(violation.to_string()), None, output),
    };
    Case {
        meaning: attack.meaning.to_owned(),
        took: begin.elapsed(),
        note,
        output,
        ..Case::new(&suite, attack.name, outcome)
    }
}

type Failed = (Violation, Option<String>);

fn measure(settings: &Settings, attack: &Attack) -> Result<(String, Duration), Failed> {
    let early = |violation: Violation| (violation, None);
    let Play::Service(play) = &attack.play else {
        return Err(early(Violation::new("no attack of a service")));
    };
    let sandbox = Sandbox::shared().map_err(|error| early(error.into()))?;
    let path = sandbox
        .runtime()
        .join(comch_socket(FUNCTION, sandbox.channel()));
    let listener = Packets::listen(&path).map_err(|error| early(error.into()))?;
    let mut initiator = start(settings, &sandbox).map_err(early)?;
    let mut watch = Watch::default();
    let mut service = Service::new(&sandbox, &initiator);
    // The initiator may exit at any time: only its exit status and its cost matter.
    let stopped = service.play(&listener, play, &mut watch).err();
    let attacked = Instant::now();
    while !initiator.has_ended() && attacked.elapsed() < LONGEST {
        watch.look(service.initiator);
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = attacked.elapsed();
    drop(service);
    drop(listener);
    // The socket was bound without softdoca, which would have removed it.
    let _ = std::fs::remove_file(&path);
    let status = initiator.wait(Instant::now());
    if status.is_some() {
        // The last lines may still be in the pipe, so the end of the output is awaited.
        let _ = initiator.find_line(0, LONGEST, |_| None::<()>);
    }
    let lines = initiator.line_count();
    let output = initiator.stderr();
    let result = judge(attack.cost, status, ended, &watch, lines);
    let stopped = stopped.map_or(String::new(), |error| format!("; stopped by: {error}"));
    match result {
        Ok(()) => Ok((
            format!(
                "ended after {:.2} s, {} KiB, {} descriptors, {lines} lines{stopped}",
                ended.as_secs_f64(),
                watch.most.memory,
                watch.most.descriptors
            ),
            ended,
        )),
        Err(violation) => Err((violation, Some(format!("{output}{stopped}")))),
    }
}

fn start(settings: &Settings, sandbox: &Sandbox) -> Result<Process, Violation> {
    let mut command = settings.implementation.command(Role::Initiator)?;
    sandbox
        .place(&mut command)
        .args(["-d", HOST_DEVICE, "--cpu", "0"])
        .args(["--command-channel-name", sandbox.channel()])
        .args(["--control-timeout", TIMEOUT, "--io-timeout", TIMEOUT])
        .args(["--execution-strategy", "read_throughput_test"])
        .args(["--run-limit-operation-count", "64"])
        .args(["--transaction-count", "4"]);
    Ok(Process::spawn("initiator", command)?)
}

fn judge(
    cost: Cost,
    status: Option<std::process::ExitStatus>,
    ended: Duration,
    watch: &Watch,
    lines: usize,
) -> Result<(), Violation> {
    let Some(status) = status else {
        return Err(Violation::expected(
            format!("the initiator to end within {:?}", cost.service),
            format!("an initiator that runs after {LONGEST:?}"),
        ));
    };
    Violation::unless(
        status.signal().is_none() && status.code() != Some(PANICKED) && !status.success(),
        "an exit status that says that it has failed",
        status,
    )?;
    Violation::unless(
        ended <= cost.service,
        format!("the initiator to end within {:?}", cost.service),
        format!("{:.1} s", ended.as_secs_f64()),
    )?;
    Violation::unless(
        (1..=cost.lines).contains(&lines),
        format!("1 to {} lines in the log", cost.lines),
        lines,
    )?;
    let Resources {
        memory,
        descriptors,
        ..
    } = watch.most;
    Violation::unless(
        memory <= cost.memory * 1024 && descriptors <= cost.descriptors,
        format!(
            "at most {} MiB and {} descriptors",
            cost.memory, cost.descriptors
        ),
        format!("{} MiB and {descriptors}", memory / 1024),
    )
}

/// Highest resource usage of the initiator so far.
struct Watch {
    most: Resources,
    looked: Instant,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            most: Resources::default(),
            looked: Instant::now(),
        }
    }
}

impl Watch {
    fn look(&mut self, process: u32) {
        if self.looked.elapsed() < Duration::from_millis(5) {
            return;
        }
        self.looked = Instant::now();
        // The process may have exited.
        if let Ok(now) = Resources::of(process) {
            self.most = self.most.max(now);
        }
    }
}

/// The service's end of the connection.
struct Service<'a> {
    sandbox: &'a Sandbox,
    /// Process id of the initiator.
    initiator: u32,
    socket: Option<Packets>,
    lifeline: Option<OwnedFd>,
    decoder: FrameDecoder,
    /// The ring that the service receives from.
    own_ring: Option<OwnedFd>,
    read: u64,
    /// The initiator's ring; `None` until its descriptor has been received.
    ring: Option<RawRing>,
    /// Address of the initiator's agent.
    agent: Option<raw::Address>,
    answered: usize,
}

impl<'a> Service<'a> {
    fn new(sandbox: &'a Sandbox, initiator: &Process) -> Self {
        Self {
            sandbox,
            initiator: initiator.id(),
            socket: None,
            lifeline: None,
            decoder: FrameDecoder::new(),
            own_ring: None,
            read: 0,
            ring: None,
            agent: None,
            answered: 0,
        }
    }

    fn socket(&self) -> io::Result<&Packets> {
        self.socket
            .as_ref()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Follows the protocol up to the attack's point, then executes its action.
    fn play(
        &mut self,
        listener: &Packets,
        attack: &ServiceAttack,
        watch: &mut Watch,
    ) -> io::Result<()> {
        let ServiceAttack { point, action } = attack;
        let deadline = Instant::now() + START;
        let socket = loop {
            watch.look(self.initiator);
            if let Some(socket) = listener.accept() {
                break socket;
            }
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let hello = socket.receive(START)?;
        self.socket = Some(socket);
        if let Some((_, mut descriptors)) = hello {
            self.lifeline = descriptors.pop();
        }
        if *point == Point::Hello {
            return self.act(None, action, watch);
        }
        self.frame(&words(&[ACCEPT, 4080]), &[])?;
        loop {
            let request = self.request(point, watch)?;
            match request {
                Some(request) if Some(request.payload.message_type()) == point.request() => {
                    return self.act(Some(&request), action, watch);
                }
                Some(request) => self.answer(&request)?,
                None => return self.act(None, action, watch),
            }
        }
    }

    /// Receives the next request; `None` if the attack's point is the data path.
    fn request(&mut self, point: &Point, watch: &mut Watch) -> io::Result<Option<Message>> {
        let deadline = Instant::now() + START;
        loop {
            watch.look(self.initiator);
            if let Some(message) = self.decoder.next().map_err(io::Error::other)? {
                if let Payload::InitStorageRequest(init) = &message.payload {
                    self.agent = raw::agent_of_export(&init.mmap_export_blob);
                }
                return Ok(Some(message));
            }
            if let Some(user_data) = self.io()? {
                if *point == Point::Io {
                    return Ok(None);
                }
                self.result(0, user_data)?;
            }
            match self.socket()?.receive(Duration::from_millis(1)) {
                Ok(Some((frame, mut descriptors))) => {
                    if frame.starts_with(&words(&[MESSAGE])) {
                        self.decoder.push(&frame[4..]);
                    } else if frame.starts_with(&words(&[CONSUMER_ADDED]))
                        && !descriptors.is_empty()
                    {
                        self.ring = Some(RawRing::new(descriptors.swap_remove(0))?);
                    }
                }
                Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// User data of a received I/O request, if there is one.
    fn io(&mut self) -> io::Result<Option<u64>> {
        let Some(ring) = &self.own_ring else {
            return Ok(None);
        };
        let Some(message) = raw::message(ring, self.read)? else {
            return Ok(None);
        };
        self.read += 1;
        raw::consumed(ring, self.read)?;
        Ok(message[8..16].try_into().ok().map(u64::from_be_bytes))
    }

    /// Sends the result of an I/O.
    fn result(&mut self, code: u32, user_data: u64) -> io::Result<()> {
        let ring = self
            .ring
            .as_mut()
            .ok_or_else(|| io::Error::other("the initiator has no consumer"))?;
        let mut bytes = [0; 56];
        bytes[8..16].copy_from_slice(&user_data.to_be_bytes());
        bytes[16..20].copy_from_slice(&code.to_be_bytes());
        self.answered += 1;
        ring.fragment(SIZE as u32 | 1 << 23, &bytes)
    }

    /// Sends the correct answer.
    fn answer(&mut self, request: &Message) -> io::Result<()> {
        let payload = match request.payload.message_type() {
            MessageType::QueryStorageRequest => Payload::QueryStorageResponse(StorageDetails {
                total_size: BLOCKS * u64::from(BLOCK),
                block_size: BLOCK,
            }),
            MessageType::InitStorageRequest => {
                let ring = descriptor(Descriptor::Ring)?;
                let doorbell = descriptor(Descriptor::EventFd)?;
                let frame = words(&[CONSUMER_ADDED, CONSUMER, SIZE as u32]);
                self.frame(&frame, &[ring.as_fd(), doorbell.as_fd()])?;
                self.own_ring = Some(ring);
                Payload::InitStorageResponse
            }
            MessageType::StartStorageRequest => Payload::StartStorageResponse,
            MessageType::StopStorageRequest => Payload::StopStorageResponse,
            _ => Payload::ShutdownResponse,
        };
        self.message(&request.response(payload).encode_to_vec())
    }

    fn message(&self, bytes: &[u8]) -> io::Result<()> {
        bytes
            .chunks(4080)
            .try_for_each(|chunk| self.frame(&[&words(&[MESSAGE]), chunk].concat(), &[]))
    }

    fn frame(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.socket()?.send_or_stall(bytes, descriptors)
    }

    /// Executes the attack. `request` is the request in response to which the attack starts.
    fn act(
        &mut self,
        request: Option<&Message>,
        action: &Action,
        watch: &mut Watch,
    ) -> io::Result<()> {
        match action {
            Action::Silence => Ok(()),
            Action::Close => {
                self.socket = None;
                self.lifeline = None;
                Ok(())
            }
            Action::CutLifeline => {
                self.lifeline = None;
                Ok(())
            }
            Action::Bytes(bytes, times) => {
                let bytes = bytes.make();
                self.repeat(*times, watch, |service| service.message(&bytes))
            }
            Action::Frames(frames, times) => self.repeat(*times, watch, |service| {
                for frame in frames {
                    let descriptors: Vec<_> = frame
                        .descriptors
                        .iter()
                        .map(|kind| descriptor(*kind))
                        .collect::<io::Result<_>>()?;
                    let borrowed: Vec<_> = descriptors.iter().map(OwnedFd::as_fd).collect();
                    service.frame(&frame.bytes, &borrowed)?;
                }
                Ok(())
            }),
            Action::Answer(payload) => {
                let request =
                    request.ok_or_else(|| io::Error::other("there is no request to answer"))?;
                self.message(&request.response(payload.clone()).encode_to_vec())
            }
            Action::WrongIds => {
                let request =
                    request.ok_or_else(|| io::Error::other("there is no request to answer"))?;
                let other = Message {
                    message_id: request.message_id.wrapping_add(77),
                    ..request.clone()
                };
                self.answer(&other)
            }
            Action::Ring(writes) => {
                let ring = self
                    .ring
                    .as_mut()
                    .ok_or_else(|| io::Error::other("the initiator has no consumer"))?;
                writes.iter().try_for_each(|write| put(ring, *write))
            }
            Action::Results(code, times) => {
                let code = *code;
                self.repeat(*times, watch, |service| service.result(code, 0))
            }
            Action::Agent { bytes, connections } => {
                let address = self
                    .agent
                    .ok_or_else(|| io::Error::other("the initiator has exported nothing"))?;
                let bytes = bytes.make();
                let mut open = Vec::new();
                for _ in 0..*connections {
                    watch.look(self.initiator);
                    if let Ok(socket) = raw::connect(self.sandbox.runtime(), &address) {
                        // The agent may close the connection immediately.
                        let _ = socket.send(&bytes, &[]);
                        open.push(socket);
                    }
                }
                std::thread::sleep(STALL);
                watch.look(self.initiator);
                Ok(())
            }
        }
    }

    /// Repeats an action this many times, for at most 2 s.
    fn repeat(
        &mut self,
        times: usize,
        watch: &mut Watch,
        mut each: impl FnMut(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let begin = Instant::now();
        for _ in 0..times {
            each(self)?;
            watch.look(self.initiator);
            if begin.elapsed() > super::LONGEST {
                break;
            }
        }
        Ok(())
    }
}

impl Point {
    /// Type of the request that the attack answers.
    fn request(&self) -> Option<MessageType> {
        Some(match self {
            Self::Hello | Self::Io => return None,
            Self::Query => MessageType::QueryStorageRequest,
            Self::Init => MessageType::InitStorageRequest,
            Self::Start => MessageType::StartStorageRequest,
            Self::Stop => MessageType::StopStorageRequest,
            Self::Shutdown => MessageType::ShutdownRequest,
        })
    }
}

// The attacks.

/// Maximum cost that a hostile service may cause an initiator: the timeouts of control operations and of I/Os, 2 s each, and the regular
/// resources of an initiator with four transactions.
const COST: Cost = Cost {
    service: Duration::from_secs(8),
    held_up: Duration::ZERO,
    memory: 96,
    descriptors: 160,
    lines: 40,
};

fn attack(name: &'static str, meaning: &'static str, point: Point, action: Action) -> Attack {
    Attack {
        name,
        meaning,
        play: Play::Service(ServiceAttack { point, action }),
        cost: COST,
    }
}

/// An attack that may cause up to 20 log lines of the same kind per second.
fn flood(name: &'static str, meaning: &'static str, point: Point, action: Action) -> Attack {
    let cost = Cost { lines: 120, ..COST };
    Attack {
        cost,
        ..attack(name, meaning, point, action)
    }
}

/// Attacks that a service can make in place of any response.
macro_rules! instead_of {
    ($($point:ident $name:literal $request:literal,)*) => {
        [$(
            attack(
                concat!("service-closes-at-", $name),
                concat!("Closes the connection when ", $request, " has come"),
                Point::$point,
                Action::Close,
            ),
            attack(
                concat!("service-silent-at-", $name),
                concat!("Does not answer ", $request),
                Point::$point,
                Action::Silence,
            ),
            attack(
                concat!("service-garbage-at-", $name),
                concat!("Answers ", $request, " with garbage"),
                Point::$point,
                Action::Bytes(Bytes::Random(3000), 1),
            ),
            attack(
                concat!("service-long-frame-at-", $name),
                concat!("Answers ", $request, " with the header of a frame of 4 GiB"),
                Point::$point,
                Action::Bytes(Bytes::Header { len: u32::MAX, kind: 2 }, 1),
            ),
            attack(
                concat!("service-half-a-frame-at-", $name),
                concat!("Answers ", $request, " with half of a frame"),
                Point::$point,
                Action::Bytes(Bytes::Raw(&[0, 0, 0, 24, 0, 0, 0, 2, 0]), 1),
            ),
            attack(
                concat!("service-error-at-", $name),
                concat!("Answers ", $request, " with an error of 3000 bytes"),
                Point::$point,
                Action::Answer(Payload::ErrorResponse(ErrorResponse {
                    error_code: u32::MAX,
                    message: "\u{1b}[2J\r\n".repeat(500),
                })),
            ),
            attack(
                concat!("service-other-answer-at-", $name),
                concat!("Answers ", $request, " with the answer to another request"),
                Point::$point,
                // The response to a request that an initiator never sends.
                Action::Bytes(Bytes::Frame { kind: 6, payload: 64 }, 1),
            ),
            attack(
                concat!("service-wrong-ids-at-", $name),
                concat!("Answers ", $request, " with another message id"),
                Point::$point,
                Action::WrongIds,
            ),
            flood(
                concat!("service-flood-at-", $name),
                concat!("Answers ", $request, " with query responses, for 2 s"),
                Point::$point,
                Action::Bytes(Bytes::Frame { kind: 2, payload: 12 }, usize::MAX),
            ),
        )*]
    };
}

pub(super) fn service_attacks() -> Vec<Attack> {
    let mut all = instead_of![
        Query "query" "query_storage_request",
        Init "init" "init_storage_request",
        Start "start" "start_storage_request",
        Stop "stop" "stop_storage_request",
        Shutdown "shutdown" "shutdown_request",
    ]
    .to_vec();
    all.extend(hello());
    all.extend(answers());
    all.extend(frames());
    all.extend(rings());
    all.extend(agents());
    all
}

/// Attacks of services that do not accept the connection.
fn hello() -> Vec<Attack> {
    let frame = |bytes: Vec<u8>| {
        let descriptors = Vec::new();
        Action::Frames(vec![Frame { bytes, descriptors }], 1)
    };
    let at = |name, meaning, action| attack(name, meaning, Point::Hello, action);
    vec![
        at(
            "service-never-accepts",
            "Says nothing to an initiator that connects",
            Action::Silence,
        ),
        at(
            "service-hangs-up",
            "Closes the connection of an initiator that connects",
            Action::Close,
        ),
        at(
            "service-refuses",
            "Refuses an initiator, with a reason that is no text",
            frame([words(&[3, 9]), vec![0xff; 200]].concat()),
        ),
        at(
            "service-refuses-unknown",
            "Refuses an initiator with an error that does not exist",
            frame(words(&[3, u32::MAX])),
        ),
        at(
            "service-accepts-garbage",
            "Sends garbage instead of accepting an initiator",
            frame(vec![0xa5; 4000]),
        ),
        at(
            "service-accepts-other-size",
            "Accepts an initiator with messages of 4 GiB",
            frame(words(&[2, u32::MAX])),
        ),
        at(
            "service-message-first",
            "Sends a message instead of accepting an initiator",
            frame([words(&[4]), vec![0; 16]].concat()),
        ),
    ]
}

/// Attacks with invalid sizes of storage or blocks.
fn answers() -> Vec<Attack> {
    let storage = |name, meaning, total_size, block_size| {
        let details = StorageDetails {
            total_size,
            block_size,
        };
        let answer = Payload::QueryStorageResponse(details);
        attack(name, meaning, Point::Query, Action::Answer(answer))
    };
    vec![
        storage("storage-empty", "Has a storage of no bytes", 0, 4096),
        storage("storage-no-blocks", "Has blocks of no bytes", 1 << 20, 0),
        storage(
            "storage-max",
            "Has a storage of 2^64-1 bytes in blocks of 4 GiB",
            u64::MAX,
            u32::MAX,
        ),
        storage(
            "storage-block-larger",
            "Has a block that is larger than the storage",
            4096,
            1 << 30,
        ),
        storage(
            "storage-odd",
            "Has a storage of 33 bytes in blocks of 7",
            33,
            7,
        ),
    ]
}

/// Attacks with Comch frames, sent in place of the answer to the start request.
fn frames() -> Vec<Attack> {
    use Descriptor as D;
    let frame = |bytes: Vec<u8>, descriptors: &[D]| Frame {
        bytes,
        descriptors: descriptors.to_vec(),
    };
    let one = |name, meaning, bytes, descriptors: &[D]| {
        let frames = vec![frame(bytes, descriptors)];
        attack(name, meaning, Point::Init, Action::Frames(frames, 1))
    };
    let consumer = |id: u32, size: u32| words(&[5, id, size]);
    vec![
        one("frame-unknown", "Sends an unknown frame", words(&[99]), &[]),
        one("frame-empty", "Sends a frame of no kind", vec![0], &[]),
        one(
            "frame-accept-twice",
            "Accepts the initiator again",
            words(&[2, 4080]),
            &[],
        ),
        one(
            "frame-long-message",
            "Sends a message that is too long",
            [words(&[4]), vec![0; 5000]].concat(),
            &[],
        ),
        one(
            "frame-descriptors",
            "Sends a message with 16 descriptors",
            [words(&[4]), vec![0; 8]].concat(),
            &[D::File; 16],
        ),
        one(
            "frame-consumer-pipes",
            "Announces a consumer with pipes",
            consumer(1, 64),
            &[D::Pipe, D::Pipe],
        ),
        one(
            "frame-consumer-unsealed",
            "Announces a consumer with a ring that is not sealed",
            consumer(1, 64),
            &[D::UnsealedRing, D::EventFd],
        ),
        one(
            "frame-consumer-lying",
            "Announces a consumer whose ring is shorter than it says",
            consumer(1, 64),
            &[D::LyingRing, D::EventFd],
        ),
        one(
            "frame-consumer-wrong-id",
            "Announces a consumer with an id of the other side",
            consumer(2, 64),
            &[D::Ring, D::EventFd],
        ),
        one(
            "frame-expiry",
            "Expires a consumer that it does not have",
            words(&[6, 1]),
            &[],
        ),
        Attack {
            // 512 consumers of a peer are allowed where the limit of descriptors is high, with two descriptors each.
            cost: Cost {
                descriptors: 1100,
                ..COST
            },
            ..attack(
                "frame-many-consumers",
                "Announces 600 consumers",
                Point::Init,
                Action::Frames(
                    (0..600)
                        .map(|id| frame(consumer(2 * id + 1, 64), &[D::Ring, D::EventFd]))
                        .collect(),
                    1,
                ),
            )
        },
        attack(
            "frame-consumers-come-and-go",
            "Announces consumers that expire at once, for 2 s",
            Point::Init,
            Action::Frames(
                vec![
                    frame(consumer(1, 64), &[D::Ring, D::EventFd]),
                    frame(words(&[6, 1]), &[]),
                ],
                usize::MAX,
            ),
        ),
        attack(
            "frame-lifeline-cut",
            "Closes its lifeline, and nothing else",
            Point::Start,
            Action::CutLifeline,
        ),
    ]
}

/// Attacks with missing, wrong or malformed results of I/Os.
fn rings() -> Vec<Attack> {
    use RingWrite as R;
    let at = |name, meaning, action| attack(name, meaning, Point::Io, action);
    let ring = |name, meaning, writes: Vec<R>| at(name, meaning, Action::Ring(writes));
    let fragment = |len, immediate, more, inline| R::Fragment {
        len,
        immediate,
        more,
        inline,
    };
    vec![
        at("io-silent", "Does not answer I/Os", Action::Silence),
        at(
            "io-closes",
            "Closes the connection when I/Os have come",
            Action::Close,
        ),
        at(
            "io-fails",
            "Says that the first I/O has failed",
            Action::Results(17, 1),
        ),
        at(
            "io-results-twice",
            "Says 30 times that the first I/O has succeeded",
            Action::Results(0, 30),
        ),
        ring(
            "io-result-unknown",
            "Sends a result that belongs to no I/O",
            vec![R::Io(0, 4096, 0, 0)],
        ),
        ring(
            "io-request",
            "Sends a request instead of a result",
            vec![R::Io(1, 4096, 0, 0)],
        ),
        ring(
            "io-unknown-message",
            "Sends an I/O message of an unknown type",
            vec![R::Io(77, 4096, 0, 0)],
        ),
        ring(
            "ring-empty-results",
            "Sends results of no bytes",
            vec![fragment(0, None, false, true); 4],
        ),
        ring(
            "ring-immediate-result",
            "Sends a result with immediate data of 35 bytes",
            vec![fragment(0, Some(35), false, true)],
        ),
        ring(
            "ring-result-16-kib",
            "Sends a result of 16 KiB",
            vec![fragment(16_384, None, false, false)],
        ),
        ring(
            "ring-result-too-long",
            "Sends a result that is longer than the ring",
            vec![fragment(0x7f_ffff, None, false, false)],
        ),
        ring(
            "ring-result-unfinished",
            "Begins a result, and stays",
            vec![fragment(64, None, true, true)],
        ),
        ring(
            "ring-result-endless",
            "Sends a result of 200000 fragments",
            vec![R::Endless(200_000)],
        ),
        ring(
            "ring-result-noise",
            "Writes any words all over the ring, 20000 times",
            vec![R::Noise(20_000)],
        ),
        ring(
            "ring-result-closed",
            "Closes the ring in the middle of a result",
            vec![fragment(64, None, true, true), R::Close],
        ),
        at(
            "io-messages-flood",
            "Sends control messages during I/O, for 2 s",
            Action::Bytes(
                Bytes::Frame {
                    kind: 8,
                    payload: 0,
                },
                usize::MAX,
            ),
        ),
    ]
}

/// Attacks on the initiator's agent.
fn agents() -> Vec<Attack> {
    let at = |name, meaning, bytes, connections| {
        let action = Action::Agent { bytes, connections };
        attack(name, meaning, Point::Io, action)
    };
    vec![
        at(
            "initiator-agent-garbage",
            "Sends garbage to the initiator's agent",
            Bytes::Random(300),
            1,
        ),
        at(
            "initiator-agent-400-connections",
            "Has 400 connections to the initiator's agent",
            Bytes::Raw(b"S"),
            400,
        ),
        at(
            "initiator-agent-unknown-key",
            "Asks the initiator's agent for what does not exist",
            Bytes::Raw(b"SDrq\x02\0\x02\0kkkkkkkkkkkkkkkk00000000111111112222222233333333"),
            20,
        ),
    ]
}
