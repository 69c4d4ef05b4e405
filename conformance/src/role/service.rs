//! Checks of a service: `zero_copy` with one target, or `gga_offload` with three.

mod io;
mod refusals;
mod sessions;

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use deployment::implementation::Role;
use deployment::sandbox::HOST_DEVICE;
use doca::{Access, Device, MemoryRegion, Mmap};
use wire::control::{FeatureQuery, InitStorage, Message, Payload, StorageDetails};
use wire::io_message::{IoMessageType, Repr};
use wire::release::Release;

use super::channels::PAUSE;
use super::{
    Check, ComchPeer, ControlPeer as _, Fixture, IoChannel, Polled, REMOTE, Running, Step, TcpPeer,
};
use crate::target::{Fault, Script, Session};
use crate::violation::{During as _, Violation};

/// All checks of this service.
pub(super) fn checks(role: Role) -> Vec<Check> {
    let mut checks = sessions::CHECKS.to_vec();
    checks.extend(refusals::CHECKS);
    checks.extend(refusals::FRAME_CHECKS);
    checks.extend(sessions::fault_checks());
    checks.extend(io::checks(role));
    checks
}

// Storage of the targets, and as presented to the initiator.

/// Block size in bytes, as presented to the initiator.
const BLOCK: usize = 4096;
/// Number of blocks of the storage.
const BLOCKS: usize = 16;
/// Scripts of a check's targets: one for a zero-copy service, three with half blocks for gga_offload.
fn scripts(fixture: &Fixture<'_>) -> Vec<Script> {
    let (targets, block_size) = match fixture.subject().role {
        Role::GgaOffload => (3, BLOCK / 2),
        _ => (1, BLOCK),
    };
    let script = |_| Script {
        device: fixture.subject().devices.host.clone(),
        block_size: block_size as u32,
        content: vec![0; BLOCKS * block_size],
        fault: Fault::None,
        features: 0,
        records: None,
        release: Release::default(),
    };
    (0..targets).map(script).collect()
}

/// Storage details that the service must report for these targets.
fn presented(scripts: &[Script]) -> StorageDetails {
    let factor = if scripts.len() == 3 { 2 } else { 1 };
    StorageDetails {
        total_size: scripts[0].content.len() as u64 * factor,
        block_size: scripts[0].block_size * factor as u32,
    }
}

// Complete session of a correct initiator, as a second client of a service under test.

const SESSION_TRANSACTIONS: u32 = 4;
/// Number of blocks that are written and read.
const SESSION_BLOCKS: u64 = 8;

/// Connects to the service, writes `rounds` blocks and reads them back, and disconnects cleanly. Sets `begun` when the
/// query has been answered, which gives the session to this client.
///
/// # Errors
///
/// The service refuses the session, in which case `begun` is not set, or does not answer correctly.
pub(crate) fn run_session(
    channel: &str,
    rounds: usize,
    timeout: Duration,
    begun: &mut bool,
) -> Result<(), Violation> {
    let host = Device::open(HOST_DEVICE)?;
    let mut control = ComchPeer::connect(&host, channel, timeout)?;
    let mut id = 0;
    let mut ask = |control: &mut ComchPeer, payload| {
        id += 1;
        let request = Message {
            message_id: id,
            correlation_id: 7,
            payload,
        };
        control.ask(&request, timeout)
    };
    let size = match ask(&mut control, Payload::QueryStorageRequest)? {
        Payload::QueryStorageResponse(details) => details.block_size as usize,
        other => {
            return Err(Violation::expected(
                "query_storage_response",
                other.message_type(),
            ));
        }
    };
    *begun = true;
    let memory = MemoryRegion::new(size)?;
    let map = Mmap::register(
        &host,
        Arc::clone(&memory),
        REMOTE.union(Access::PCI_READ_WRITE),
    )?;
    let init = InitStorage {
        transaction_count: SESSION_TRANSACTIONS,
        core_count: 1,
        mmap_export_blob: map.export_pci(&host)?.into(),
    };
    expect_answer(
        Step::Init,
        &ask(&mut control, Payload::InitStorageRequest(init))?,
    )?;
    control.wait_until("the service's consumer", timeout, |control| {
        !control.consumers().is_empty()
    })?;
    let mut io = IoChannel::start(&host, &control, SESSION_TRANSACTIONS, timeout)?;
    io.send_to(control.consumers()[0])?;
    expect_answer(
        Step::Start,
        &ask(&mut control, Payload::StartStorageRequest)?,
    )?;
    for round in 0..rounds as u64 {
        let content = vec![fastrand::u8(1..); size];
        memory.write(0, &content)?;
        let place = round % SESSION_BLOCKS * size as u64;
        succeeds(&mut io, IoMessageType::Write, place, size, timeout)?;
        memory.fill(0, size, 0)?;
        succeeds(&mut io, IoMessageType::Read, place, size, timeout)?;
        let mut came = vec![0; size];
        memory.read(0, &mut came)?;
        Violation::unless(
            came == content,
            "the block that was written",
            "another content",
        )?;
    }
    expect_answer(Step::Stop, &ask(&mut control, Payload::StopStorageRequest)?)?;
    io.stop()?;
    expect_answer(
        Step::Shutdown,
        &ask(&mut control, Payload::ShutdownRequest)?,
    )
}

fn succeeds(
    io: &mut IoChannel,
    message_type: IoMessageType,
    storage_offset: u64,
    size: usize,
    timeout: Duration,
) -> Result<(), Violation> {
    let request = Repr {
        message_type,
        user_data: storage_offset,
        result: 0,
        size: u32::try_from(size).unwrap_or(u32::MAX),
        requester_offset: 0,
        storage_offset,
    };
    io.send(&request, timeout)?;
    let result = io.receive_message(timeout)?;
    Violation::unless(
        result == request.answer(0),
        format!("{request:?} to succeed"),
        format!("{result:?}"),
    )
}

// The service under test between an initiator and targets, all scripted in one thread.

/// Size of the initiator's memory in blocks.
const MEMORY_BLOCKS: usize = 2 * BLOCKS;
/// Number of I/Os in flight of the initiator per worker.
const TRANSACTIONS: u32 = 8;

/// Access flags of an initiator's memory: a service may export it again for RDMA.
const ACCESS: Access = REMOTE.union(Access::PCI_READ_WRITE);

/// All peers of the service under test. Fields are in drop order: users of a connection before it.
struct Peers<'a> {
    io: Vec<IoChannel>,
    initiator: Option<ComchPeer>,
    targets: Vec<Target>,
    service: Running,
    /// The initiator's memory for I/Os.
    memory: Arc<MemoryRegion>,
    memory_map: Mmap,
    host: Device,
    fixture: &'a Fixture<'a>,
    /// Extensions of the data path that the initiator announces, and the number of workers that it requests.
    features: u32,
    workers: u32,
    /// Message ids and correlation ids of the next requests, the last pair first; generated if empty.
    ids: Vec<(u32, u32)>,
    requests: u32,
    /// Requests to the targets in the order of their arrival.
    asked: Vec<(usize, Message)>,
}

impl<'a> Peers<'a> {
    /// Starts a service with these flags, and connects both sides to it.
    fn start(fixture: &'a Fixture<'a>, flags: &[&str]) -> Result<Self, Violation> {
        Self::with(fixture, flags, &scripts(fixture))
    }

    /// As [`Peers::start`], with these scripts of the targets.
    fn with(
        fixture: &'a Fixture<'a>,
        flags: &[&str],
        scripts: &[Script],
    ) -> Result<Self, Violation> {
        let listeners = scripts
            .iter()
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .collect::<Result<Vec<_>, _>>()?;
        Self::at(fixture, flags, scripts, &listeners)
    }

    /// As [`Peers::with`], with targets that are already listening.
    fn at(
        fixture: &'a Fixture<'a>,
        flags: &[&str],
        scripts: &[Script],
        listeners: &[TcpListener],
    ) -> Result<Self, Violation> {
        let ports = listeners
            .iter()
            .map(|listener| Ok(listener.local_addr()?.port()))
            .collect::<Result<Vec<_>, Violation>>()?;
        let service = fixture.start_service(&ports, flags)?;
        let mut targets = Vec::new();
        for (script, listener) in scripts.iter().zip(listeners) {
            targets.push(Target::accept(script, listener, fixture.timeout())?);
        }
        let host = Device::open(&fixture.subject().devices.host)?;
        let initiator = ComchPeer::connect(&host, fixture.sandbox().channel(), fixture.timeout())?;
        let memory = MemoryRegion::new(MEMORY_BLOCKS * BLOCK)?;
        let memory_map = Mmap::register(&host, Arc::clone(&memory), ACCESS)?;
        Ok(Self {
            io: Vec::new(),
            initiator: Some(initiator),
            targets,
            service,
            memory,
            memory_map,
            host,
            fixture,
            workers: 1,
            features: 0,
            ids: Vec::new(),
            requests: 0,
            asked: Vec::new(),
        })
    }

    fn timeout(&self) -> Duration {
        self.fixture.timeout()
    }

    /// Next request of the initiator.
    fn request(&mut self, payload: Payload) -> Message {
        self.requests += 1;
        let made_up = (0x100 + self.requests, 0xc0de_0000 + self.requests);
        let (message_id, correlation_id) = self.ids.pop().unwrap_or(made_up);
        Message {
            message_id,
            correlation_id,
            payload,
        }
    }

    /// Payload of the initiator's request of this step.
    fn payload(&self, step: Step) -> Result<Payload, Violation> {
        Ok(match step {
            Step::Query if self.features != 0 => Payload::AnnounceStorageRequest(FeatureQuery {
                features: self.features,
            }),
            Step::Query => Payload::QueryStorageRequest,
            Step::Init => Payload::InitStorageRequest(self.init()?),
            Step::Start => Payload::StartStorageRequest,
            Step::Stop => Payload::StopStorageRequest,
            Step::Shutdown => Payload::ShutdownRequest,
        })
    }

    /// Payload of the initiator's init request.
    fn init(&self) -> Result<InitStorage, Violation> {
        Ok(InitStorage {
            transaction_count: TRANSACTIONS,
            core_count: self.workers,
            mmap_export_blob: Bytes::from(self.memory_map.export_pci(&self.host)?),
        })
    }

    /// Sends a message of the initiator.
    fn say(&mut self, message: &Message) -> Result<(), Violation> {
        self.say_bytes(&message.encode_to_vec())
    }

    /// Sends bytes of the initiator, in one Comch message.
    fn say_bytes(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        match &mut self.initiator {
            Some(initiator) => initiator.send_bytes(bytes),
            None => Err(Violation::new("the initiator has left")),
        }
    }

    /// Polls all peers once. This also serves the targets' I/Os.
    fn look(&mut self) -> Result<Heard, Violation> {
        for (index, target) in self.targets.iter_mut().enumerate() {
            match target.poll().during(format_args!("target {index}"))? {
                Polled::Message(message) => {
                    self.asked.push((index, message.clone()));
                    return Ok(Heard::Target(index, message));
                }
                Polled::Closed => {
                    target.peer = None;
                    return Ok(Heard::TargetLeft(index));
                }
                Polled::Nothing => {}
            }
        }
        let Some(initiator) = &mut self.initiator else {
            return Ok(Heard::Nothing);
        };
        Ok(match initiator.poll().during("initiator")? {
            Polled::Message(message) => Heard::Initiator(message),
            Polled::Closed => Heard::InitiatorLeft,
            Polled::Nothing => Heard::Nothing,
        })
    }

    /// Polls all peers until an event occurs; [`Heard::Nothing`] after `time`.
    fn listen(&mut self, time: Duration) -> Result<Heard, Violation> {
        let deadline = Instant::now() + time;
        loop {
            match self.look()? {
                Heard::Nothing if Instant::now() < deadline => std::thread::sleep(PAUSE),
                heard => return Ok(heard),
            }
        }
    }

    /// Fails if an event occurs in this time.
    fn expect_silence(&mut self, time: Duration, why: &str) -> Result<(), Violation> {
        match self.listen(time)? {
            Heard::Nothing => Ok(()),
            heard => Err(Violation::expected(
                format!("nothing, {why}"),
                heard.describe(),
            )),
        }
    }

    /// Sends a request of the initiator, answers the requests to the targets, and returns the response, whose ids must match.
    fn exchange(
        &mut self,
        request: &Message,
        reply: &mut dyn FnMut(usize, &Message) -> Reply,
    ) -> Result<Payload, Violation> {
        self.say(request)?;
        self.answer_to(request, reply)
    }

    /// Waits for the response to a request of the initiator.
    fn answer_to(
        &mut self,
        request: &Message,
        reply: &mut dyn FnMut(usize, &Message) -> Reply,
    ) -> Result<Payload, Violation> {
        let what = request.payload.message_type();
        let deadline = Instant::now() + self.timeout();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.listen(left)? {
                Heard::Target(index, message) => {
                    let reply = reply(index, &message);
                    self.targets[index].reply(&message, reply)?;
                }
                Heard::Initiator(answer) => {
                    let ids = |message: &Message| {
                        let (id, correlation) = (message.message_id, message.correlation_id);
                        format!("message id {id:#x} and correlation id {correlation:#x}")
                    };
                    let (expected, came) = (ids(request), ids(&answer));
                    Violation::unless(expected == came, expected, came)
                        .during(format_args!("answer to {what}"))?;
                    return Ok(answer.payload);
                }
                // The response may follow.
                Heard::TargetLeft(_) => {}
                heard @ Heard::InitiatorLeft => {
                    return Err(Violation::expected(
                        format!("an answer to {what}"),
                        format!(
                            "{}; the service: {}",
                            heard.describe(),
                            self.service.state()
                        ),
                    ));
                }
                Heard::Nothing => {
                    return Err(Violation::expected(
                        format!("an answer to {what}"),
                        format!("nothing in {:?}", self.timeout()),
                    ));
                }
            }
        }
    }

    /// Executes this step with correct targets, and checks the answer.
    fn take(&mut self, step: Step) -> Result<(), Violation> {
        self.take_with(step, &mut |_, _| Reply::Honest)
    }

    /// Executes this step with targets that use these replies; the answer is not checked.
    fn step(
        &mut self,
        step: Step,
        reply: &mut dyn FnMut(usize, &Message) -> Reply,
    ) -> Result<Payload, Violation> {
        self.prepare(step)?;
        let payload = self.payload(step)?;
        let request = self.request(payload);
        self.exchange(&request, reply)
    }

    /// Prepares the initiator for its request of this step.
    fn prepare(&mut self, step: Step) -> Result<(), Violation> {
        match step {
            Step::Start => self.open_io(),
            Step::Shutdown => self.close_io(),
            Step::Query | Step::Init | Step::Stop => Ok(()),
        }
    }

    /// Executes all steps before this one.
    fn take_until(&mut self, end: Step) -> Result<(), Violation> {
        Step::ALL
            .into_iter()
            .take_while(|step| *step != end)
            .try_for_each(|step| self.take(step))
    }

    /// Executes this step and all later ones, until the service exits.
    fn finish_from(&mut self, begin: Step) -> Result<(), Violation> {
        Step::ALL
            .into_iter()
            .skip_while(|step| *step != begin)
            .try_for_each(|step| self.take(step))?;
        self.expect_success()
    }

    /// Opens the initiator's fast paths, unless they are already open.
    fn open_io(&mut self) -> Result<(), Violation> {
        if !self.io.is_empty() {
            return Ok(());
        }
        let timeout = self.timeout();
        let Some(initiator) = &mut self.initiator else {
            return Err(Violation::new("the initiator has left"));
        };
        let workers = self.workers as usize;
        initiator.wait_until("the service's consumers", timeout, |initiator| {
            initiator.consumers().len() >= workers
        })?;
        for index in 0..workers {
            let mut io = IoChannel::start(&self.host, initiator, TRANSACTIONS, timeout)?;
            io.send_to(initiator.consumers()[index])?;
            self.io.push(io);
        }
        Ok(())
    }

    /// Closes the initiator's fast paths.
    fn close_io(&mut self) -> Result<(), Violation> {
        self.io.drain(..).try_for_each(IoChannel::stop)
    }

    /// Executes this step with targets that use these replies, and checks the answer.
    fn take_with(
        &mut self,
        step: Step,
        reply: &mut dyn FnMut(usize, &Message) -> Reply,
    ) -> Result<(), Violation> {
        expect_answer(step, &self.step(step, reply)?)
    }

    /// Waits for the service to exit with success.
    fn expect_success(&mut self) -> Result<(), Violation> {
        self.service.expect_success(self.fixture.timeout())
    }

    /// Waits for the service to exit with any status.
    fn expect_end(&mut self) -> Result<(), Violation> {
        self.service.expect_end(self.fixture.timeout())
    }

    /// Disconnects the initiator without a request.
    fn leave(&mut self) {
        self.io.clear();
        self.initiator = None;
    }

    /// Disconnects the initiator, and connects another one.
    fn replace_initiator(&mut self) -> Result<(), Violation> {
        self.leave();
        let channel = self.fixture.sandbox().channel();
        self.initiator = Some(ComchPeer::connect(&self.host, channel, self.timeout())?);
        Ok(())
    }

    /// Checks that the initiator gets an error, or the service exits with one, and that no target gets a request.
    fn expect_refusal(&mut self, what: &str) -> Result<(), Violation> {
        match self.listen(self.timeout())? {
            Heard::Initiator(message) => {
                Self::expect_error(&message.payload)?;
                Ok(())
            }
            Heard::InitiatorLeft | Heard::TargetLeft(_) => self.expect_failure(),
            heard => Err(Violation::expected(
                format!("an error_response or the end of the service after {what}"),
                heard.describe(),
            )),
        }
    }

    /// Expects an error as the answer, and returns its code.
    fn expect_error(answer: &Payload) -> Result<u32, Violation> {
        match answer {
            Payload::ErrorResponse(error) if error.error_code != 0 => Ok(error.error_code),
            other => Err(Violation::expected("an error_response", describe(other))),
        }
    }

    /// Waits for the service to exit by itself with a failure; messages to its peers are ignored.
    fn expect_failure(&mut self) -> Result<(), Violation> {
        self.service.expect_failure(self.fixture.timeout())
    }
}

// Events of all channels of the service under test.

/// An event and its channel.
#[derive(Debug)]
enum Heard {
    /// A request to this target.
    Target(usize, Message),
    /// The service has closed the connection to this target.
    TargetLeft(usize),
    Initiator(Message),
    /// The service has closed the channel to the initiator.
    InitiatorLeft,
    Nothing,
}

impl Heard {
    fn describe(&self) -> String {
        match self {
            Self::Target(index, message) => {
                format!("{} at target {index}", describe(&message.payload))
            }
            Self::TargetLeft(index) => format!("the end of the connection to target {index}"),
            Self::Initiator(message) => format!("{} at the initiator", describe(&message.payload)),
            Self::InitiatorLeft => "the end of the channel to the initiator".to_owned(),
            Self::Nothing => "nothing".to_owned(),
        }
    }
}

/// Expects the answer to this step, and not an error.
fn expect_answer(step: Step, answer: &Payload) -> Result<(), Violation> {
    Violation::unless(
        answer.message_type() == step.answer(),
        step.answer(),
        describe(answer),
    )
}

/// Description of a payload, without blobs.
fn describe(payload: &Payload) -> String {
    match payload {
        Payload::ErrorResponse(error) => {
            format!("error_response {} ({})", error.error_code, error.message)
        }
        other => other.message_type().to_string(),
    }
}

/// A target's answer to a request.
#[derive(Debug)]
enum Reply {
    /// The correct answer.
    Honest,
    /// The correct answer, after this delay.
    Late(Duration),
    /// The correct answer, with one byte per segment.
    Bytewise,
    /// The correct answer in two segments, the first with this many bytes.
    Split(usize),
    Say(Payload),
    Bytes(Vec<u8>),
    Silence,
    Close,
    Reset,
}

/// Time between two segments, so that each is read separately.
const GAP: Duration = Duration::from_micros(300);

/// Time between the two segments of a frame.
const SPLIT: Duration = Duration::from_millis(1);

/// Maximum time between the events of a service's exit.
const MOMENT: Duration = Duration::from_millis(300);

/// A scripted target: its control connection and its storage.
struct Target {
    /// `None` once the peer has disconnected.
    peer: Option<TcpPeer>,
    session: Session,
    /// `true` while the target does not serve I/Os.
    is_paused: bool,
}

impl Target {
    /// Waits for the service to connect.
    fn accept(
        script: &Script,
        listener: &TcpListener,
        timeout: Duration,
    ) -> Result<Self, Violation> {
        Ok(Self {
            peer: Some(TcpPeer::accept(listener, timeout)?),
            session: Session::new(script)?,
            is_paused: false,
        })
    }

    /// Polls for a request, and serves received I/Os.
    fn poll(&mut self) -> Result<Polled, Violation> {
        if self.session.is_running() && !self.is_paused {
            self.session.progress()?;
        }
        match &mut self.peer {
            Some(peer) => peer.poll(),
            None => Ok(Polled::Nothing),
        }
    }

    fn reply(&mut self, request: &Message, reply: Reply) -> Result<(), Violation> {
        match reply {
            Reply::Honest => {
                let answer = match self.session.answer(&request.payload) {
                    Ok(answer) => answer,
                    // The service has exited because of another target, which unmapped its memory.
                    Err(_) if self.is_left() => return Ok(()),
                    Err(error) => return Err(error.into()),
                };
                self.say(&request.response(answer).encode_to_vec())
            }
            Reply::Late(time) => {
                std::thread::sleep(time);
                self.reply(request, Reply::Honest)
            }
            Reply::Bytewise => {
                let response = request.response(self.session.answer(&request.payload)?);
                for byte in response.encode_to_vec() {
                    self.say(&[byte])?;
                    std::thread::sleep(GAP);
                }
                Ok(())
            }
            Reply::Split(at) => {
                let response = request.response(self.session.answer(&request.payload)?);
                let bytes = response.encode_to_vec();
                let (first, second) = bytes.split_at(at.min(bytes.len() - 1));
                self.say(first)?;
                std::thread::sleep(SPLIT);
                self.say(second)
            }
            Reply::Say(payload) => self.say(&request.response(payload).encode_to_vec()),
            Reply::Bytes(bytes) => self.say(&bytes),
            Reply::Silence => Ok(()),
            Reply::Close => {
                self.peer = None;
                Ok(())
            }
            Reply::Reset => self.peer.take().map_or(Ok(()), TcpPeer::reset),
        }
    }

    /// Returns `true` if the service has disconnected, or is about to.
    fn is_left(&mut self) -> bool {
        match &mut self.peer {
            Some(peer) => peer.wait_closed(MOMENT).is_ok(),
            None => true,
        }
    }

    /// Sends these bytes as one segment.
    fn say(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        match &mut self.peer {
            Some(peer) => peer.send_bytes(bytes),
            None => Err(Violation::new("the target has left")),
        }
    }
}
