//! The service under test between an initiator and targets, all scripted in one thread.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::{Access, Device, MemoryRegion, Mmap};
use wire::control::{FeatureQuery, InitStorage, Message, Payload};

use super::{BLOCK, BLOCKS, scripts};
use crate::role::control::PAUSE;
use crate::role::{
    ComchPeer, ControlPeer as _, During as _, Fixture, IoChannel, Polled, REMOTE, Running, Step,
    TcpPeer, Violation,
};
use crate::target::{Script, Session};

/// Size of the initiator's memory in blocks.
pub(super) const MEMORY_BLOCKS: usize = 2 * BLOCKS;
/// Number of I/Os in flight of the initiator per worker.
pub(super) const TRANSACTIONS: u32 = 8;

/// Access flags of an initiator's memory: a service may export it again for RDMA.
const ACCESS: Access = REMOTE.union(Access::PCI_READ_WRITE);

/// All peers of the service under test. Fields are in drop order: users of a connection before it.
pub(super) struct Peers<'a> {
    pub(super) io: Vec<IoChannel>,
    pub(super) initiator: Option<ComchPeer>,
    pub(super) targets: Vec<Target>,
    pub(super) service: Running,
    /// The initiator's memory for I/Os.
    pub(super) memory: Arc<MemoryRegion>,
    memory_map: Mmap,
    host: Device,
    pub(super) fixture: &'a Fixture<'a>,
    /// Extensions of the data path that the initiator announces, and the number of workers that it requests.
    pub(super) features: u32,
    pub(super) workers: u32,
    /// Message ids and correlation ids of the next requests, the last pair first; generated if empty.
    pub(super) ids: Vec<(u32, u32)>,
    requests: u32,
    /// Requests to the targets in the order of their arrival.
    pub(super) asked: Vec<(usize, Message)>,
}

impl<'a> Peers<'a> {
    /// Starts a service with these flags, and connects both sides to it.
    pub(super) fn start(fixture: &'a Fixture<'a>, flags: &[&str]) -> Result<Self, Violation> {
        Self::with(fixture, flags, &scripts(fixture))
    }

    /// As [`Peers::start`], with these scripts of the targets.
    pub(super) fn with(
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
    pub(super) fn at(
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

    pub(super) fn timeout(&self) -> Duration {
        self.fixture.timeout()
    }

    /// Next request of the initiator.
    pub(super) fn request(&mut self, payload: Payload) -> Message {
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
    pub(super) fn payload(&self, step: Step) -> Result<Payload, Violation> {
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
    pub(super) fn init(&self) -> Result<InitStorage, Violation> {
        Ok(InitStorage {
            transaction_count: TRANSACTIONS,
            core_count: self.workers,
            mmap_export_blob: Bytes::from(self.memory_map.export_pci(&self.host)?),
        })
    }

    /// Sends a message of the initiator.
    pub(super) fn say(&mut self, message: &Message) -> Result<(), Violation> {
        self.say_bytes(&message.encode_to_vec())
    }

    /// Sends bytes of the initiator, in one Comch message.
    pub(super) fn say_bytes(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        match &mut self.initiator {
            Some(initiator) => initiator.send_bytes(bytes),
            None => Err(Violation::new("the initiator has left")),
        }
    }

    /// Polls all peers once. The targets serve their I/Os meanwhile.
    pub(super) fn look(&mut self) -> Result<Heard, Violation> {
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
    pub(super) fn listen(&mut self, time: Duration) -> Result<Heard, Violation> {
        let deadline = Instant::now() + time;
        loop {
            match self.look()? {
                Heard::Nothing if Instant::now() < deadline => std::thread::sleep(PAUSE),
                heard => return Ok(heard),
            }
        }
    }

    /// Fails if an event occurs in this time.
    pub(super) fn expect_silence(&mut self, time: Duration, why: &str) -> Result<(), Violation> {
        match self.listen(time)? {
            Heard::Nothing => Ok(()),
            heard => Err(Violation::expected(
                format!("nothing, {why}"),
                heard.describe(),
            )),
        }
    }

    /// Sends a request of the initiator, answers the requests to the targets, and returns the response, whose ids must match.
    pub(super) fn exchange(
        &mut self,
        request: &Message,
        reply: &mut dyn FnMut(usize, &Message) -> Reply,
    ) -> Result<Payload, Violation> {
        self.say(request)?;
        self.answer_to(request, reply)
    }

    /// Waits for the response to a request of the initiator.
    pub(super) fn answer_to(
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
    pub(super) fn take(&mut self, step: Step) -> Result<(), Violation> {
        self.take_with(step, &mut |_, _| Reply::Honest)
    }

    /// Executes this step with targets that use these replies; the answer is not checked.
    pub(super) fn step(
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
    pub(super) fn prepare(&mut self, step: Step) -> Result<(), Violation> {
        match step {
            Step::Start => self.open_io(),
            Step::Shutdown => self.close_io(),
            Step::Query | Step::Init | Step::Stop => Ok(()),
        }
    }

    /// Executes all steps before this one.
    pub(super) fn take_until(&mut self, end: Step) -> Result<(), Violation> {
        Step::ALL
            .into_iter()
            .take_while(|step| *step != end)
            .try_for_each(|step| self.take(step))
    }

    /// Executes this step and all later ones, until the service exits.
    pub(super) fn finish_from(&mut self, begin: Step) -> Result<(), Violation> {
        Step::ALL
            .into_iter()
            .skip_while(|step| *step != begin)
            .try_for_each(|step| self.take(step))?;
        self.expect_success()
    }

    /// Opens the initiator's fast paths, unless they are open.
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
    pub(super) fn close_io(&mut self) -> Result<(), Violation> {
        self.io.drain(..).try_for_each(IoChannel::stop)
    }

    /// Executes this step with targets that use these replies, and checks the answer.
    pub(super) fn take_with(
        &mut self,
        step: Step,
        reply: &mut dyn FnMut(usize, &Message) -> Reply,
    ) -> Result<(), Violation> {
        expect_answer(step, &self.step(step, reply)?)
    }

    /// Waits for the service to exit with success.
    pub(super) fn expect_success(&mut self) -> Result<(), Violation> {
        self.service.expect_success(self.fixture.timeout())
    }

    /// Waits for the service to exit with any status.
    pub(super) fn expect_end(&mut self) -> Result<(), Violation> {
        self.service.expect_end(self.fixture.timeout())
    }

    /// Disconnects the initiator without a request.
    pub(super) fn leave(&mut self) {
        self.io.clear();
        self.initiator = None;
    }

    /// Disconnects the initiator, and connects another one.
    pub(super) fn replace_initiator(&mut self) -> Result<(), Violation> {
        self.leave();
        let channel = self.fixture.sandbox().channel();
        self.initiator = Some(ComchPeer::connect(&self.host, channel, self.timeout())?);
        Ok(())
    }

    /// Checks that the initiator gets an error, or the service exits with one, and that no target gets a request.
    pub(super) fn expect_refusal(&mut self, what: &str) -> Result<(), Violation> {
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
    pub(super) fn expect_error(answer: &Payload) -> Result<u32, Violation> {
        match answer {
            Payload::ErrorResponse(error) if error.error_code != 0 => Ok(error.error_code),
            other => Err(Violation::expected("an error_response", describe(other))),
        }
    }

    /// Waits for the service to exit by itself with a failure; messages to its peers are ignored.
    pub(super) fn expect_failure(&mut self) -> Result<(), Violation> {
        self.service.expect_failure(self.fixture.timeout())
    }
}

// Events of all channels of the service under test.

/// An event and its channel.
#[derive(Debug)]
pub(super) enum Heard {
    /// A request to this target.
    Target(usize, Message),
    /// The service has closed the connection to this target.
    TargetLeft(usize),
    /// A message to the initiator.
    Initiator(Message),
    /// The service has closed the channel to the initiator.
    InitiatorLeft,
    /// No event.
    Nothing,
}

impl Heard {
    /// Description for error messages.
    pub(super) fn describe(&self) -> String {
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
pub(super) fn expect_answer(step: Step, answer: &Payload) -> Result<(), Violation> {
    Violation::unless(
        answer.message_type() == step.answer(),
        step.answer(),
        describe(answer),
    )
}

/// Description of a payload, without blobs.
pub(super) fn describe(payload: &Payload) -> String {
    match payload {
        Payload::ErrorResponse(error) => {
            format!("error_response {} ({})", error.error_code, error.message)
        }
        other => other.message_type().to_string(),
    }
}

/// A target's answer to a request.
#[derive(Debug)]
pub(super) enum Reply {
    /// The correct answer.
    Honest,
    /// The correct answer, after this delay.
    Late(Duration),
    /// The correct answer, with one byte per segment.
    Bytewise,
    /// The correct answer in two segments, the first with this many bytes.
    Split(usize),
    /// This response.
    Say(Payload),
    /// These bytes.
    Bytes(Vec<u8>),
    /// No response.
    Silence,
    /// Close the connection.
    Close,
    /// Reset the connection.
    Reset,
}

/// Time between two segments, so that each is read separately.
const GAP: Duration = Duration::from_micros(300);

/// Time between the two segments of a frame.
pub(super) const SPLIT: Duration = Duration::from_millis(1);

/// Maximum time between the events of a service's exit.
const MOMENT: Duration = Duration::from_millis(300);

/// A scripted target: its control connection and its storage.
pub(super) struct Target {
    /// `None` once it has disconnected.
    pub(super) peer: Option<TcpPeer>,
    pub(super) session: Session,
    /// `true` while it does not serve I/Os.
    pub(super) is_paused: bool,
}

impl Target {
    /// Waits for the service to connect.
    pub(super) fn accept(
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
    pub(super) fn poll(&mut self) -> Result<Polled, Violation> {
        if self.session.is_running() && !self.is_paused {
            self.session.progress()?;
        }
        match &mut self.peer {
            Some(peer) => peer.poll(),
            None => Ok(Polled::Nothing),
        }
    }

    /// Replies to a request.
    pub(super) fn reply(&mut self, request: &Message, reply: Reply) -> Result<(), Violation> {
        match reply {
            Reply::Honest => {
                let answer = match self.session.answer(&request.payload) {
                    Ok(answer) => answer,
                    // Another target has made the service exit, which unmapped its memory.
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
    pub(super) fn say(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        match &mut self.peer {
            Some(peer) => peer.send_bytes(bytes),
            None => Err(Violation::new("the target has left")),
        }
    }
}
