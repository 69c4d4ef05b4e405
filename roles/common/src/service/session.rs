//! The control state machine of a storage service, without I/O and without a clock.
//!
//! Requests of the initiator ("client") are forwarded to the storage targets with the service's own message ids; in
//! between, the service performs its own part of each operation. [`Event`]s go into [`Session::handle`], each with the
//! time; [`Action`]s come out of [`Session::poll_action`].

mod rejoin;
mod storage;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use control::ChannelEvent;
use control::verifier::Verifier;
use control::{Failure, unexpected};
use doca::ErrorCode;
use storage::Inquiry;
use wire::control::{
    FeatureQuery, InitStorage, Message, MessageIds, MessageType, Payload, RdmaConnectionDetails,
    RdmaConnectionRole, StorageDetails,
};
use wire::release::Release;

use crate::init_limits::InitLimits;
use crate::protocol::Protocol;

pub use crate::jobs::Outcome;
pub use rejoin::{Place, Rejoin, RejoinAction, RejoinEvent, Returned};
pub use storage::{Described, KeptVersions};

/// Maximum number of transactions per core: a Comch consumer or producer has at most 8192 tasks, which must suffice for
/// twice the number of transactions plus a few responses of the service itself. The service and its targets use twice
/// as many transactions as the initiator, so that one is free even if the initiator reuses a transaction before the
/// service has processed its completion.
pub const MAX_TRANSACTIONS: u32 = 4000;

/// Number of control timeouts within which a session that the service ends must have ended. Each step has a timeout,
/// which is repeated for an unresponsive target without which the session may not continue; therefore the whole
/// shutdown also has a limit.
const CLOSE_TIMEOUTS: u32 = 4;

/// Workers of a session without an initiator.
const MAINTENANCE_WORKERS: u32 = 1;

/// Combination of targets into one storage.
pub trait Layout {
    /// Names of the targets in error messages, in the order of their numbers.
    const TARGETS: &'static [&'static str];

    /// Returns the storage presented to the initiator, given the targets' storage.
    ///
    /// # Errors
    ///
    /// The targets do not match each other or the service.
    fn present(&self, targets: &[StorageDetails]) -> Result<StorageDetails, Failure>;

    /// Extensions of the data path that the service supports if its targets do (`FeatureQuery::features`). Targets are
    /// queried for no others.
    const FEATURES: u32 = 0;

    /// Extensions of the data path that the service uses with its targets, even if the client has not announced them.
    fn own_features(&self) -> u32 {
        0
    }

    /// Number of targets without which no session begins.
    fn quorum(&self) -> usize {
        Self::TARGETS.len()
    }

    /// Extensions of the data path that the service supports with targets that support these.
    fn features(&self, targets: &[u32]) -> u32 {
        let _ = targets;
        0
    }
}

/// One session between one initiator and the targets of a [`Layout`].
#[derive(Debug)]
pub struct Session<L> {
    layout: L,
    cpu_count: u32,
    limits: InitLimits,
    timeout: Duration,
    /// Releases that may be selected.
    protocol: Protocol,
    /// Release used by initiator and targets, from the init request on.
    release: Release,
    /// Batch size of the initiator, if its release has one.
    batch_size: u32,
    /// `true` once an initiator has connected.
    has_client: bool,
    /// `true` if the session has no initiator.
    is_maintenance: bool,
    phase: Phase,
    step: Step,
    deadline: Option<Instant>,
    /// The initiator's request being processed, which is to be answered; `None` in maintenance.
    request: Option<Message>,
    ids: MessageIds,
    /// Outstanding requests to the targets.
    inquiry: Inquiry,
    /// By target: `true` once its channel is connected.
    connected: Vec<bool>,
    /// By target: `true` if the previous session ended without it.
    were_offline: Vec<bool>,
    /// By target: reason why it is not connected, if known.
    troubles: Vec<Option<String>>,
    /// Descriptions of the targets; `None` for a missing one.
    targets: Vec<Option<Described>>,
    /// `true` if the service queries the targets for identities and superblocks.
    identifies: bool,
    /// `true` if it maintains the superblocks, and survives the loss of targets.
    maintains: bool,
    /// Extensions of the data path that are announced by the client and supported by the service.
    client_features: u32,
    /// Extensions of the data path that are requested from the targets.
    wanted_features: u32,
    /// `true` if targets that were asked for their identity have also been asked for extensions.
    has_asked_features: bool,
    /// Extensions announced by all.
    features: u32,
    /// Verifiers of the targets, if they were requested.
    verifiers: Vec<Option<Verifier>>,
    connections: Connections,
    /// The service's exports of the connections being created, by target; `None` for a missing one.
    exports: Vec<Option<Bytes>>,
    /// The targets' exports that are still to be connected, with their target's number.
    imports: VecDeque<(usize, RdmaConnectionDetails)>,
    core_count: u32,
    transaction_count: u32,
    /// The initiator's consumers, in the order of their creation.
    consumers: Vec<u32>,
    /// Time by which the session must have ended, once the service ends it; the initiator is not awaited beyond it.
    closes_by: Option<Instant>,
    /// By target: `true` if the session continues without the target.
    without: Vec<bool>,
    /// The init request sent to the targets.
    init: Option<Payload>,
    actions: VecDeque<Action>,
}

impl<L: Layout> Session<L> {
    /// Creates a session with at most `cpu_count` workers that waits at most `timeout` for each message of the
    /// initiator or a target.
    #[must_use]
    pub fn new(layout: L, cpu_count: u32, timeout: Duration) -> Self {
        Self {
            layout,
            cpu_count,
            limits: InitLimits::default(),
            timeout,
            protocol: Protocol::default(),
            release: Release::default(),
            batch_size: 0,
            has_client: false,
            is_maintenance: false,
            phase: Phase::Query,
            step: Step::Connection,
            deadline: None,
            request: None,
            ids: MessageIds::default(),
            inquiry: Inquiry::default(),
            connected: vec![false; L::TARGETS.len()],
            were_offline: vec![false; L::TARGETS.len()],
            troubles: vec![None; L::TARGETS.len()],
            targets: Vec::new(),
            identifies: false,
            maintains: false,
            client_features: 0,
            wanted_features: 0,
            has_asked_features: false,
            features: 0,
            verifiers: Vec::new(),
            connections: Connections::default(),
            exports: Vec::new(),
            imports: VecDeque::new(),
            core_count: 0,
            transaction_count: 0,
            consumers: Vec::new(),
            closes_by: None,
            without: vec![false; L::TARGETS.len()],
            init: None,
            actions: VecDeque::new(),
        }
    }

    /// Sets limits other than the defaults.
    #[must_use]
    pub fn with_limits(mut self, limits: InitLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the release to use.
    #[must_use]
    pub fn with_protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Number of targets without which no session begins.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.layout.quorum()
    }

    /// Release used by initiator and targets, from the init request on.
    #[must_use]
    pub fn release(&self) -> Release {
        self.release
    }

    /// Queries the targets for their identities and superblocks, which targets of the reference do not have. Must be
    /// called before the first event.
    pub fn identify_targets(&mut self) {
        self.identifies = true;
    }

    /// Makes the session survive the loss of targets. Must be called before the first event. Targets are
    /// [identified](Self::identify_targets); superblocks are opened before I/Os are served, and closed afterwards; and
    /// a target that is not connected within `timeout` (at most 5 s) after all other targets counts as missing.
    pub fn maintain_superblocks(&mut self) {
        self.identify_targets();
        self.maintains = true;
    }

    /// Sets which targets the previous session ended without: less time is spent on waiting for them. Must be called before
    /// the first event.
    #[must_use]
    pub fn with_offline(mut self, were_offline: Vec<bool>) -> Self {
        self.were_offline = were_offline;
        self
    }

    /// Starts to wait for the connections to the targets: all targets that the session needs must be connected within
    /// the timeout. Must be called before the first event; otherwise the wait is unlimited.
    pub fn begin_connecting(&mut self, now: Instant) {
        self.deadline = Some(now + self.timeout);
    }

    /// Handles an event.
    ///
    /// # Panics
    ///
    /// If it concerns a target that does not exist.
    pub fn handle(&mut self, event: Event, now: Instant) {
        match event {
            Event::Client(event) => self.client_event(now, event),
            Event::Storage { target, event } => self.storage_event(now, target, event),
            Event::Unreachable { target, why } => self.troubles[target] = Some(why),
            Event::JobDone(outcome) => self.job_done(now, outcome),
            Event::Lost { target } => self.lost(now, target),
            Event::Rejoined { target, identity } => self.rejoined(target, identity),
            Event::Timeout => self.timed_out(now),
            Event::Maintain => self.maintain(),
            Event::Shutdown => self.close(now),
            Event::Failed(failure) => self.fail(failure),
        }
        if self.is_maintenance && self.step == Step::Request {
            self.request_for_maintenance(now);
        }
    }

    /// Turns the session into one without an initiator, unless one has connected. The service takes the initiator's
    /// steps by itself, up to the start; then the data path serves rejoining targets, rebuilds, resyncs and scrubs.
    fn maintain(&mut self) {
        if !self.has_client && self.phase == Phase::Query && self.step == Step::Request {
            tracing::info!("no initiator is connected: maintaining the set");
            self.is_maintenance = true;
            self.consumers = vec![0; MAINTENANCE_WORKERS as usize];
        }
    }

    /// Returns `true` for a session without an initiator.
    #[must_use]
    pub fn is_maintenance(&self) -> bool {
        self.is_maintenance
    }

    /// The step that an initiator would take now.
    fn request_for_maintenance(&mut self, now: Instant) {
        let payload = match self.phase {
            Phase::Query => Payload::AnnounceStorageRequest(FeatureQuery {
                features: L::FEATURES,
            }),
            Phase::Init => Payload::InitStorageRequest(InitStorage {
                transaction_count: 1,
                core_count: MAINTENANCE_WORKERS,
                mmap_export_blob: Bytes::new(),
            }),
            Phase::Start => Payload::StartStorageRequest,
            // Until it is closed.
            Phase::Stop | Phase::Shutdown => return,
        };
        let request = Message {
            message_id: 0,
            correlation_id: 0,
            payload,
        };
        match self.examine(&request) {
            Ok(()) => self.process(now, request),
            Err(failure) => self.fail(failure),
        }
    }

    /// Ends the session without the initiator: while I/Os are served, with the same steps as when the initiator
    /// requests it, so that all I/Os in flight complete and the set is closed cleanly. Before I/Os are served, a clean
    /// shutdown is not possible.
    fn close(&mut self, now: Instant) {
        match (self.phase, self.step) {
            _ if self.is_closing() => return,
            (Phase::Stop, Step::Request) => self.begin(Doing::Quiesce, Job::Quiesce),
            (Phase::Shutdown, Step::Request | Step::Expiry) => self.leave_targets(now),
            _ => {
                let waiting = self.waiting_for();
                return self.fail(Failure::aborted(format_args!("waiting for {waiting}")));
            }
        }
        self.closes_by = Some(now + self.timeout * CLOSE_TIMEOUTS);
    }

    /// Returns `true` once the service ends the session by itself.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closes_by.is_some()
    }

    /// Returns `true` while a stop or shutdown requested by the initiator or the service is in progress: it completes
    /// in bounded time, and a shutdown of the service has to wait for that.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        let is_at_work = matches!(self.step, Step::Job(_) | Step::Storage);
        self.is_closing() || matches!(self.phase, Phase::Stop | Phase::Shutdown) && is_at_work
    }

    /// Extensions of the data path announced by the targets, and by the initiator or used by the service on its own.
    #[must_use]
    pub fn features(&self) -> u32 {
        self.features
    }

    /// Returns the next action. Call until it returns `None`.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Time at which to report [`Event::Timeout`], unless another event comes first.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.step == Step::Ended {
            return None;
        }
        self.deadline.into_iter().chain(self.closes_by).min()
    }

    /// Returns `true` while events of the initiator are handled: from [`Action::Announce`] to [`Action::End`].
    #[must_use]
    pub fn serves_client(&self) -> bool {
        !matches!(self.step, Step::Connection | Step::Ended)
    }

    /// Returns `true` once the target has connected.
    ///
    /// # Panics
    ///
    /// If the target does not exist.
    #[must_use]
    pub fn is_connected(&self, target: usize) -> bool {
        self.connected[target]
    }

    /// Returns `true` once an initiator has connected: before that, there is no session.
    #[must_use]
    pub fn has_client(&self) -> bool {
        self.has_client
    }

    /// Returns `true` while I/Os are served, and a shutdown closes the set cleanly.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        (self.phase, self.step) == (Phase::Stop, Step::Request)
    }

    /// Returns `true` once I/Os are or were served.
    #[must_use]
    pub fn has_served(&self) -> bool {
        matches!(self.phase, Phase::Stop | Phase::Shutdown)
    }

    /// Returns `true` if a request of the initiator is expected next, and not I/Os.
    #[must_use]
    pub fn waits_for_request(&self) -> bool {
        self.has_client && self.step == Step::Request && self.phase != Phase::Stop
    }

    /// Description of the awaited event.
    #[must_use]
    pub fn waiting_for(&self) -> String {
        match self.step {
            Step::Connection => {
                let missing = self.connected.iter().position(|&connected| !connected);
                let missing = missing.unwrap_or(0);
                let why = self.troubles[missing].as_deref();
                let why = why.unwrap_or("its address does not answer");
                format!("a connection to the {}: {why}", L::TARGETS[missing])
            }
            Step::Request => format!("the {} of the initiator", self.phase.request()),
            Step::Storage => match self.inquiry.pending() {
                Some((target, expected)) => format!("the {expected} of the {}", L::TARGETS[target]),
                None => "nothing".to_owned(),
            },
            Step::Consumers => {
                format!(
                    "{} consumers of the initiator, {} are there",
                    self.core_count,
                    self.consumers.len()
                )
            }
            Step::Expiry => format!(
                "{} consumers of the initiator to expire",
                self.consumers.len()
            ),
            Step::Job(Doing::OpenSuperblocks | Doing::CloseSuperblocks) => {
                "the targets to persist their superblocks".to_owned()
            }
            Step::Job(_) => "its workers".to_owned(),
            Step::Ended => "nothing".to_owned(),
        }
    }

    fn job_done(&mut self, now: Instant, outcome: Result<Outcome, Failure>) {
        let Step::Job(doing) = self.step else { return };
        match (doing, outcome) {
            (Doing::PrepareMemory, Ok(Outcome::Exported(mmap_export_blob))) => {
                let init = InitStorage {
                    transaction_count: self.transaction_count,
                    core_count: self.core_count,
                    mmap_export_blob,
                };
                let init = Payload::init_storage_of(self.release, init, self.batch_size);
                self.init = Some(init.clone());
                self.ask_all(now, &init, MessageType::InitStorageResponse);
            }
            // No request has been sent to the targets yet, and the initiator may retry with another memory map.
            (Doing::PrepareMemory, Err(failure)) => self.refuse(failure),
            (Doing::Export, Ok(Outcome::Exported(export))) => {
                self.exports.push(Some(export));
                self.export(now);
            }
            (Doing::CreateWorker, Ok(Outcome::Done)) => self.begin_connection(now),
            (Doing::Connect, Ok(Outcome::Done)) => self.connect(now),
            (Doing::Verify, Ok(Outcome::Verified(verifier))) => {
                let answer = match &verifier {
                    Some(verifier) => Payload::VerifiedInitStorageResponse(verifier.into()),
                    None => Payload::InitStorageResponse,
                };
                self.answer(answer, Phase::Start);
            }
            (Doing::OpenSuperblocks, Ok(Outcome::Done)) => self.start_targets(now),
            (Doing::CloseSuperblocks, Ok(Outcome::Done)) => self.shut_targets_down(now),
            (Doing::StartWorkers, Ok(Outcome::Done)) => {
                self.answer(Payload::StartStorageResponse, Phase::Stop)
            }
            // The initiator has completed its I/Os only if it has requested the stop.
            (Doing::Quiesce, Ok(Outcome::Done)) if self.is_closing() => {
                self.begin(Doing::StopWorkers, Job::StopWorkers);
            }
            (Doing::Quiesce, Ok(Outcome::Done)) => self.stop_targets(now),
            (Doing::StopWorkers, Ok(Outcome::Done)) if self.is_closing() => self.stop_targets(now),
            (Doing::StopWorkers, Ok(Outcome::Done)) => {
                self.answer(Payload::StopStorageResponse, Phase::Shutdown)
            }
            (Doing::DestroyWorkers, Ok(Outcome::Done)) => {
                self.answer(Payload::ShutdownResponse, Phase::Shutdown);
                self.end(Ok(()));
            }
            (_, Err(failure)) => self.fail(failure),
            (doing, Ok(outcome)) => {
                self.fail(Failure::unexpected(format!(
                    "{outcome:?} is no outcome of {doing:?}"
                )));
            }
        }
    }

    fn timed_out(&mut self, now: Instant) {
        if self.closes_by.is_some_and(|by| by <= now) {
            let timeout = self.timeout * CLOSE_TIMEOUTS;
            return self.fail(Failure::timed_out(self.waiting_for(), timeout));
        }
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        if self.step == Step::Connection && self.maintains && self.missing() == 1 {
            return self.announce();
        }
        if let Some(target) = self.silent_target() {
            return self.begin_without(now, target, &"it does not answer");
        }
        let why = Failure::timed_out(self.waiting_for(), self.timeout);
        match self.inquiry.pending() {
            Some((target, _)) if self.maintains && self.may_lose(target) => {
                self.deadline = Some(now + self.timeout);
                self.actions.push_back(Action::Stalled { target, why });
            }
            _ => self.fail(why),
        }
    }

    fn fail(&mut self, failure: Failure) {
        if self.step == Step::Ended {
            return;
        }
        if let Some(request) = self.request.take() {
            self.actions
                .push_back(Action::SendToClient(failure.response_to(&request)));
        }
        self.end(Err(failure));
    }

    fn start_targets(&mut self, now: Instant) {
        let expected = MessageType::StartStorageResponse;
        self.ask_all(now, &Payload::StartStorageRequest, expected);
    }

    fn stop_targets(&mut self, now: Instant) {
        let expected = MessageType::StopStorageResponse;
        self.ask_all(now, &Payload::StopStorageRequest, expected);
    }

    /// Ends the use of the targets after the last I/O.
    fn leave_targets(&mut self, now: Instant) {
        if self.maintains {
            self.begin(Doing::CloseSuperblocks, Job::CloseSuperblocks);
        } else {
            self.shut_targets_down(now);
        }
    }

    fn shut_targets_down(&mut self, now: Instant) {
        let expected = MessageType::ShutdownResponse;
        self.ask_all(now, &Payload::ShutdownRequest, expected);
    }

    fn create_worker(&mut self) {
        let (index, _) = self.connections.current();
        let job = Job::CreateWorker {
            index,
            transaction_count: self.transaction_count,
        };
        self.begin(Doing::CreateWorker, job);
    }

    fn begin(&mut self, doing: Doing, job: Job) {
        self.step = Step::Job(doing);
        // The job has its own deadline.
        self.deadline = None;
        self.actions.push_back(Action::Do(job));
    }

    fn wait(&mut self, now: Instant, step: Step) {
        self.step = step;
        self.deadline = Some(now + self.timeout);
    }

    /// Responds to the current request, and waits for the next phase's.
    fn answer(&mut self, payload: Payload, next: Phase) {
        if let Some(request) = self.request.take() {
            self.actions
                .push_back(Action::SendToClient(request.response(payload)));
        }
        self.phase = next;
        self.step = Step::Request;
        self.deadline = None;
    }

    /// Responds to the current request with an error; the initiator may repeat the request.
    fn refuse(&mut self, failure: Failure) {
        if self.is_maintenance {
            return self.fail(failure);
        }
        tracing::warn!("refused: {failure}");
        if let Some(request) = self.request.take() {
            self.actions
                .push_back(Action::SendToClient(failure.response_to(&request)));
        }
        self.step = Step::Request;
        self.deadline = None;
    }

    fn end(&mut self, result: Result<(), Failure>) {
        self.step = Step::Ended;
        self.deadline = None;
        self.actions.push_back(Action::End(result));
    }
}

// Events and actions of a session.

/// Input of a session.
#[derive(Debug)]
pub enum Event {
    /// An event of the channel to the initiator.
    Client(ChannelEvent),
    /// An event of the channel to a target.
    Storage { target: usize, event: ChannelEvent },
    /// An attempt to connect to a target has failed, for this reason. Connecting is retried.
    Unreachable { target: usize, why: String },
    /// The current job has succeeded or failed.
    JobDone(Result<Outcome, Failure>),
    /// The service continues without a target. Ignored unless the session [may lose](Session::may_lose) it.
    Lost { target: usize },
    /// A lost target has rejoined in its [place](Session::place): from now on, it receives all requests.
    Rejoined {
        target: usize,
        /// Identity of the target's storage, if it has one.
        identity: Option<Bytes>,
    },
    /// The time of [`poll_timeout`](Session::poll_timeout) may have passed.
    Timeout,
    /// No initiator is expected soon: the service maintains the set until one connects. Ignored once one has connected.
    Maintain,
    /// Shutdown of the service was requested, or an initiator waits for the end of [maintenance](Self::Maintain).
    Shutdown,
    /// The session cannot continue: a worker or a channel failed. The failure is sent to an initiator that waits for a
    /// response.
    Failed(Failure),
}

/// Output of a session.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Start serving the initiator, and announce that: all targets, or enough of them, are connected.
    Announce,
    /// Send this message to the initiator.
    SendToClient(Message),
    /// Send this message to a target.
    SendToStorage {
        target: usize,
        message: Message,
    },
    /// Disconnect from a target that the session continues without.
    Leave {
        target: usize,
    },
    /// A target that the session may lose has not answered in time. The session continues to wait unless the target is
    /// reported [lost](Event::Lost).
    Stalled {
        target: usize,
        /// The missing answer and the time waited.
        why: Failure,
    },
    /// Start this job, and report [`Event::JobDone`].
    Do(Job),
    End(Result<(), Failure>),
}

/// Work that the state machine cannot do itself.
#[derive(Debug, PartialEq, Eq)]
pub enum Job {
    /// Prepare the memory of the I/Os: [`Outcome::Exported`] is the memory for the targets.
    PrepareMemory(Memory),
    CreateWorker {
        index: u32,
        /// Maximum number of transactions.
        transaction_count: u32,
    },
    /// Export an RDMA connection of a worker: [`Outcome::Exported`].
    Export {
        /// Number of the worker.
        index: u32,
        /// Number of the target that will use the connection.
        target: usize,
        role: RdmaConnectionRole,
    },
    /// Connect an RDMA connection of a worker to a target's export.
    Connect {
        target: usize,
        /// Worker, role and export.
        details: RdmaConnectionDetails,
    },
    /// Combine the verifiers of the targets (`None` for a target without a verifier): [`Outcome::Verified`].
    Verify(Vec<Option<Verifier>>),
    /// Wait until the targets' superblocks record that the set is in use.
    OpenSuperblocks,
    /// Wait for all contexts to be ready, and start the data paths; worker `n` sends results to the initiator's
    /// consumer `n`.
    StartWorkers {
        /// Ids of the initiator's consumers.
        consumers: Vec<u32>,
    },
    /// Start no more background work, and wait until none is in flight: the targets are going to stop.
    Quiesce,
    /// Stop the data paths, and destroy their consumers and producers.
    StopWorkers,
    /// Wait until the targets' superblocks record the final state.
    CloseSuperblocks,
    DestroyWorkers,
}

/// Inputs for preparing the memory of the I/Os.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// The initiator's memory map.
    pub mmap_export_blob: Bytes,
    /// Number of workers.
    pub core_count: u32,
    /// Transactions of each worker.
    pub transaction_count: u32,
    pub release: Release,
    /// `true` if there is no initiator, and therefore no memory of one.
    pub is_maintenance: bool,
    /// Description of each target, in order; `None` for a missing one.
    pub targets: Vec<Option<Described>>,
    pub limits: InitLimits,
}

// Progress of a session: the expected request, and the event that the current one waits for.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Query,
    Init,
    Start,
    Stop,
    Shutdown,
}

impl Phase {
    /// The expected request.
    fn request(self) -> MessageType {
        match self {
            Self::Query => MessageType::QueryStorageRequest,
            Self::Init => MessageType::InitStorageRequest,
            Self::Start => MessageType::StartStorageRequest,
            Self::Stop => MessageType::StopStorageRequest,
            Self::Shutdown => MessageType::ShutdownRequest,
        }
    }
}

/// Event that the session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The connections to the targets.
    Connection,
    /// The initiator's next request.
    Request,
    /// The targets' responses to the service's requests.
    Storage,
    /// One consumer of the initiator per worker.
    Consumers,
    /// The expiry of the initiator's consumers.
    Expiry,
    /// The outcome of a job.
    Job(Doing),
    /// None, because the session has ended.
    Ended,
}

/// A job in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    PrepareMemory,
    CreateWorker,
    Export,
    Connect,
    Verify,
    OpenSuperblocks,
    StartWorkers,
    Quiesce,
    StopWorkers,
    CloseSuperblocks,
    DestroyWorkers,
}

// Order in which RDMA connections are created: for each worker io_data, then io_control.

/// The connection being created.
#[derive(Debug)]
struct Connections {
    workers: u32,
    index: u32,
    role: RdmaConnectionRole,
}

impl Default for Connections {
    fn default() -> Self {
        Self::of_workers(0)
    }
}

impl Connections {
    fn of_workers(workers: u32) -> Self {
        Self {
            workers,
            index: 0,
            role: RdmaConnectionRole::IoData,
        }
    }

    fn current(&self) -> (u32, RdmaConnectionRole) {
        (self.index, self.role)
    }

    /// Advances to the next connection; `None` after the last.
    fn advance(&mut self) -> Option<(u32, RdmaConnectionRole)> {
        match self.role {
            RdmaConnectionRole::IoData => self.role = RdmaConnectionRole::IoControl,
            RdmaConnectionRole::IoControl if self.index + 1 < self.workers => {
                self.index += 1;
                self.role = RdmaConnectionRole::IoData;
            }
            RdmaConnectionRole::IoControl => return None,
        }
        Some(self.current())
    }
}

// The initiator's side of a session: its requests and its consumers.

impl<L: Layout> Session<L> {
    fn client_event(&mut self, now: Instant, event: ChannelEvent) {
        match event {
            ChannelEvent::Message(request) if self.is_closing() => {
                let failure = Failure::new(
                    ErrorCode::CONNECTION_ABORTED,
                    "the service is shutting down",
                );
                self.actions
                    .push_back(Action::SendToClient(failure.response_to(&request)));
            }
            // The initiator's I/Os still complete.
            ChannelEvent::Closed if self.is_closing() => {}
            ChannelEvent::Message(request) => self.client_request(now, request),
            ChannelEvent::ConsumerAdded(id) => {
                self.consumers.push(id);
                self.check_consumers(now);
            }
            ChannelEvent::ConsumerExpired(id) => {
                self.consumers.retain(|&consumer| consumer != id);
                self.check_consumers(now);
            }
            ChannelEvent::Closed => {
                // The initiator has disconnected, so the request needs no response.
                self.request = None;
                let waiting = self.waiting_for();
                let message =
                    format!("the initiator disconnected while the service waited for {waiting}");
                self.fail(Failure::new(ErrorCode::CONNECTION_RESET, message));
            }
            ChannelEvent::Connected => self.has_client = true,
        }
    }

    fn client_request(&mut self, now: Instant, request: Message) {
        let examined = match self.step {
            Step::Ended => return,
            Step::Request => self.examine(&request),
            _ => {
                let came = request.payload.message_type();
                let busy = self.phase.request();
                Err(Failure::unexpected(format!(
                    "unexpected {came} while the {busy} is processed"
                )))
            }
        };
        if let Err(failure) = examined {
            tracing::warn!("refused: {failure}");
            self.actions
                .push_back(Action::SendToClient(failure.response_to(&request)));
            return;
        }
        self.process(now, request);
    }

    /// Processes a valid request.
    fn process(&mut self, now: Instant, request: Message) {
        let memory = match request.payload.as_init_storage() {
            Some((init, _)) => init.mmap_export_blob,
            None => Bytes::new(),
        };
        let features = match &request.payload {
            Payload::AnnounceStorageRequest(query) => query.features & L::FEATURES,
            _ => 0,
        };
        self.request = (!self.is_maintenance).then_some(request);
        match self.phase {
            Phase::Query => {
                self.begin_without_missing();
                self.client_features = features;
                self.wanted_features = self.client_features | self.layout.own_features();
                let expected = MessageType::QueryStorageResponse;
                let query = self.query();
                self.ask_all(now, &query, expected);
            }
            Phase::Init => {
                let job = Job::PrepareMemory(Memory {
                    mmap_export_blob: memory,
                    core_count: self.core_count,
                    transaction_count: self.transaction_count,
                    release: self.release,
                    is_maintenance: self.is_maintenance,
                    targets: self.targets.clone(),
                    limits: self.limits,
                });
                self.begin(Doing::PrepareMemory, job);
            }
            Phase::Start if self.maintains => {
                self.begin(Doing::OpenSuperblocks, Job::OpenSuperblocks);
            }
            Phase::Start => self.start_targets(now),
            Phase::Stop => self.begin(Doing::Quiesce, Job::Quiesce),
            Phase::Shutdown => {
                // A consumer that is still in use after the targets have disconnected could not be served.
                self.wait(now, Step::Expiry);
                self.check_consumers(now);
            }
        }
    }

    fn examine(&mut self, request: &Message) -> Result<(), Failure> {
        if request.payload.message_type() != self.phase.request() {
            return Err(unexpected(&request.payload, self.phase.request()));
        }
        let Some((init, batch_size)) = request.payload.as_init_storage() else {
            return Ok(());
        };
        let release = self.protocol.of_client(batch_size.is_some())?;
        let InitStorage {
            transaction_count,
            core_count,
            ..
        } = init;
        if !(1..=self.cpu_count).contains(&core_count) {
            return Err(Failure::invalid(format!(
                "core count: expected 1 to {}, as many --cpu as this service has, got {core_count}",
                self.cpu_count
            )));
        }
        if !(1..=MAX_TRANSACTIONS).contains(&transaction_count) {
            return Err(Failure::invalid(format!(
                "transactions per core: expected 1 to {MAX_TRANSACTIONS}, the limit of Comch, got {transaction_count}"
            )));
        }
        let doubled = InitStorage {
            transaction_count: transaction_count * 2,
            ..init
        };
        self.limits.check(&doubled)?;
        self.release = release;
        self.batch_size = batch_size.unwrap_or(0);
        self.core_count = core_count;
        self.transaction_count = doubled.transaction_count;
        Ok(())
    }

    /// Continues if the session waits for the initiator's consumers.
    fn check_consumers(&mut self, now: Instant) {
        let count = self.core_count as usize;
        match self.step {
            Step::Consumers if self.consumers.len() >= count => {
                if self.consumers.len() > count {
                    tracing::warn!(
                        "the initiator has {} consumers for {count} workers",
                        self.consumers.len()
                    );
                }
                let consumers = self.consumers[..count].to_vec();
                self.begin(Doing::StartWorkers, Job::StartWorkers { consumers });
            }
            Step::Expiry if self.consumers.is_empty() => self.leave_targets(now),
            _ => {}
        }
    }
}

#[cfg(test)]
mod connections_tests {
    use super::*;

    #[test]
    fn order_is_data_then_control_for_each_worker() {
        use RdmaConnectionRole::{IoControl, IoData};
        let mut connections = Connections::of_workers(2);
        assert_eq!(connections.current(), (0, IoData));
        let rest: Vec<_> = std::iter::from_fn(|| connections.advance()).collect();
        assert_eq!(rest, [(0, IoControl), (1, IoData), (1, IoControl)]);
    }
}

#[cfg(test)]
mod tests {
    //! Sessions that start or continue without a target; the remaining targets answer all requests.

    use std::collections::BTreeMap;

    use control::ChannelEvent;

    use super::*;
    use role_formats::stored_block::MatrixType;
    use role_formats::superblock::{Epoch, Form, Format, SetId, Superblock};

    const TIMEOUT: Duration = Duration::from_secs(8);
    const GRACE: Duration = Duration::from_secs(5);

    /// Three targets of the same size.
    struct Three;

    impl Layout for Three {
        const TARGETS: &'static [&'static str] = &["data_1", "data_2", "data_p"];

        fn present(&self, targets: &[StorageDetails]) -> Result<StorageDetails, Failure> {
            assert_eq!(targets.len(), 3, "one for each target");
            assert!(targets.iter().all(|target| *target == targets[0]));
            Ok(targets[0].clone())
        }
    }

    fn storage() -> StorageDetails {
        StorageDetails {
            total_size: 4096,
            block_size: 512,
        }
    }

    fn superblock(target: usize) -> Superblock {
        Superblock {
            set: SetId(7),
            member: target as u32,
            epoch: Epoch { number: 1, id: 2 },
            next: Epoch::NONE,
            state: wire::control::RecordState::Clean,
            form: Form {
                format: Format::StoredChunks,
                matrix: MatrixType::Cauchy,
                logical_block_size: 4096,
            },
        }
    }

    struct World {
        now: Instant,
        session: Session<Three>,
        is_announced: bool,
        /// Ids of the last request to each target.
        ids: BTreeMap<usize, (u32, u32)>,
        /// Targets that do not answer.
        silent: Vec<usize>,
        /// Requests to targets, with the targets' numbers.
        asked: Vec<(usize, MessageType)>,
        left: Vec<usize>,
        stalled: Vec<usize>,
        jobs: Vec<Job>,
        answers: Vec<Payload>,
        end: Option<Result<(), Failure>>,
    }

    impl World {
        fn new(survives: bool) -> Self {
            let mut session = Session::new(Three, 1, TIMEOUT);
            if survives {
                session.maintain_superblocks();
            }
            Self {
                now: Instant::now(),
                session,
                is_announced: false,
                ids: BTreeMap::new(),
                silent: Vec::new(),
                asked: Vec::new(),
                left: Vec::new(),
                stalled: Vec::new(),
                jobs: Vec::new(),
                answers: Vec::new(),
                end: None,
            }
        }

        fn handle(&mut self, event: Event) {
            self.session.handle(event, self.now);
            while let Some(action) = self.session.poll_action() {
                match action {
                    Action::Announce => self.is_announced = true,
                    Action::SendToClient(message) => self.answers.push(message.payload),
                    Action::SendToStorage { target, message } => self.target(target, &message),
                    Action::Leave { target } => self.left.push(target),
                    Action::Stalled { target, .. } => self.stalled.push(target),
                    Action::Do(job) => {
                        let outcome = match job {
                            Job::PrepareMemory(_) | Job::Export { .. } => {
                                Outcome::Exported(Bytes::from_static(b"export"))
                            }
                            _ => Outcome::Done,
                        };
                        self.jobs.push(job);
                        self.session.handle(Event::JobDone(Ok(outcome)), self.now);
                    }
                    Action::End(result) => self.end = Some(result),
                }
            }
        }

        fn target(&mut self, target: usize, request: &Message) {
            self.asked.push((target, request.payload.message_type()));
            let ids = (request.message_id, request.correlation_id);
            self.ids.insert(target, ids);
            if self.silent.contains(&target) {
                return;
            }
            let answer = match &request.payload {
                Payload::QueryStorageRequest => Payload::QueryStorageResponse(storage()),
                Payload::IdentifyStorageRequest(_) => {
                    let query = superblock(target).request();
                    let identity = Bytes::from(vec![target as u8]);
                    Payload::IdentifiedStorageResponse(query.answer(&storage(), identity))
                }
                Payload::InitStorageRequest(_) => Payload::InitStorageResponse,
                Payload::CreateRdmaConnectionRequest(details) => {
                    Payload::CreateRdmaConnectionResponse(details.clone())
                }
                Payload::StartStorageRequest => Payload::StartStorageResponse,
                Payload::StopStorageRequest => Payload::StopStorageResponse,
                Payload::ShutdownRequest => Payload::ShutdownResponse,
                other => panic!("{other:?}"),
            };
            let event = ChannelEvent::Message(request.response(answer));
            self.session
                .handle(Event::Storage { target, event }, self.now);
        }

        fn connect(&mut self, target: usize) {
            let event = ChannelEvent::Connected;
            self.handle(Event::Storage { target, event });
        }

        fn client(&mut self, event: ChannelEvent) {
            self.handle(Event::Client(event));
        }

        fn request(&mut self, payload: Payload) -> Option<Payload> {
            self.client(ChannelEvent::Message(Message {
                message_id: 1,
                correlation_id: 2,
                payload,
            }));
            self.answers.pop()
        }

        fn pass(&mut self, time: Duration) {
            self.now += time;
            self.handle(Event::Timeout);
        }

        fn init(&mut self) {
            let init = self.request(Payload::InitStorageRequest(InitStorage {
                transaction_count: 4,
                core_count: 1,
                mmap_export_blob: Bytes::from_static(b"memory"),
            }));
            assert_eq!(init, Some(Payload::InitStorageResponse));
        }

        /// Performs the session from the query to I/Os.
        fn begin(&mut self) {
            assert!(self.is_announced && self.session.serves_client());
            self.client(ChannelEvent::Connected);
            let details = self.request(Payload::QueryStorageRequest);
            assert_eq!(details, Some(Payload::QueryStorageResponse(storage())));
            self.init();
            self.client(ChannelEvent::ConsumerAdded(11));
            let started = self.request(Payload::StartStorageRequest);
            assert_eq!(started, Some(Payload::StartStorageResponse));
        }

        /// Performs the session from I/Os to its end.
        fn finish(&mut self) {
            let stopped = self.request(Payload::StopStorageRequest);
            assert_eq!(stopped, Some(Payload::StopStorageResponse));
            self.client(ChannelEvent::ConsumerExpired(11));
            let ended = self.request(Payload::ShutdownRequest);
            assert_eq!(ended, Some(Payload::ShutdownResponse));
            assert_eq!(self.end, Some(Ok(())));
        }
    }

    /// Creates a session that starts without this target.
    fn without(missing: usize) -> World {
        let mut world = World::new(true);
        (0..3)
            .filter(|&target| target != missing)
            .for_each(|target| world.connect(target));
        world.pass(GRACE);
        world
    }

    #[test]
    fn service_without_redundancy_waits_for_all_targets() {
        let mut world = World::new(false);
        world.connect(0);
        world.connect(2);
        assert_eq!(world.session.poll_timeout(), None);
        world.pass(100 * GRACE);
        assert!(!world.is_announced && !world.session.serves_client());
        assert!(world.session.waiting_for().contains("data_2"));
        world.connect(1);
        world.begin();
        world.finish();
    }

    #[test]
    fn grace_period_starts_when_one_target_is_missing_and_is_5_s_at_most() {
        let mut world = World::new(true);
        world.connect(2);
        assert_eq!(world.session.poll_timeout(), None, "two are missing");
        world.pass(GRACE);
        world.connect(0);
        assert_eq!(world.session.poll_timeout(), Some(world.now + GRACE));
        world.pass(GRACE - Duration::from_millis(1));
        assert!(!world.is_announced);
        world.pass(Duration::from_millis(1));
        assert!(world.is_announced);
        assert_eq!(world.session.poll_timeout(), None);

        let mut hasty = Session::new(Three, 1, Duration::from_secs(2));
        hasty.maintain_superblocks();
        let now = Instant::now();
        for target in [0, 1] {
            let event = ChannelEvent::Connected;
            hasty.handle(Event::Storage { target, event }, now);
        }
        assert_eq!(hasty.poll_timeout(), Some(now + Duration::from_secs(2)));
    }

    #[test]
    fn targets_must_connect_within_the_control_timeout() {
        for survives in [false, true] {
            let mut world = World::new(survives);
            world.session.begin_connecting(world.now);
            world.connect(0);
            let why = "the certificate has expired".to_owned();
            world.handle(Event::Unreachable { target: 1, why });
            assert_eq!(world.session.poll_timeout(), Some(world.now + TIMEOUT));
            world.pass(TIMEOUT - Duration::from_millis(1));
            assert_eq!(world.end, None);
            world.pass(Duration::from_millis(1));
            let Some(Err(failure)) = world.end else {
                panic!("{:?}", world.end);
            };
            assert_eq!(failure.code, doca::ErrorCode::TIME_OUT);
            assert!(failure.message.contains("data_2"), "{failure}");
            assert!(failure.message.contains("certificate"), "{failure}");
            assert!(!world.is_announced);
        }
    }

    #[test]
    fn grace_period_ends_with_the_control_timeout() {
        let mut world = World::new(true);
        let begin = world.now;
        world.session.begin_connecting(begin);
        world.connect(0);
        world.pass(TIMEOUT - GRACE / 2);
        world.connect(1);
        assert_eq!(world.session.poll_timeout(), Some(begin + TIMEOUT));
        world.pass(GRACE / 2);
        assert!(world.is_announced && world.end.is_none());
    }

    #[test]
    fn service_announces_itself_when_all_targets_are_connected() {
        let mut world = World::new(true);
        (0..3).for_each(|target| world.connect(target));
        assert!(world.is_announced && world.left.is_empty());
        world.begin();
        assert!(world.session.place(1).is_none(), "it is there");
        world.finish();
    }

    #[test]
    fn target_that_connects_before_the_query_is_not_missing() {
        let mut world = without(1);
        assert!(!world.session.is_without(1), "it is waited for");
        world.connect(1);
        world.begin();
        assert!(world.left.is_empty() && world.asked.iter().any(|&(target, _)| target == 1));
        world.finish();
    }

    #[test]
    fn target_that_accepts_the_connection_but_does_not_answer_is_missing() {
        let silence = Duration::from_secs(4);
        for silent in 0..3 {
            let mut world = World::new(true);
            (0..3).for_each(|target| world.connect(target));
            world.client(ChannelEvent::Connected);
            world.silent = vec![silent];
            assert_eq!(world.request(Payload::QueryStorageRequest), None);
            world.pass(silence - Duration::from_millis(1));
            assert!(world.left.is_empty() && world.answers.is_empty());
            world.pass(Duration::from_millis(1));
            assert_eq!(world.left, [silent]);
            let answer = world.answers.pop();
            assert_eq!(answer, Some(Payload::QueryStorageResponse(storage())));
            world.init();
            assert!(world.session.is_without(silent));
            let asked = |&&(target, _): &&(usize, MessageType)| target == silent;
            assert_eq!(world.asked.iter().filter(asked).count(), 1, "the query");
            world.client(ChannelEvent::ConsumerAdded(11));
            let started = world.request(Payload::StartStorageRequest);
            assert_eq!(started, Some(Payload::StartStorageResponse));
            assert!(world.session.place(silent).is_some(), "it may rejoin");
            world.finish();
        }
    }

    #[test]
    fn target_whose_disk_has_failed_is_missing_but_no_second_one_and_no_busy_one() {
        let fail = |world: &mut World, target: usize, code: ErrorCode| {
            let &(message_id, correlation_id) = world.ids.get(&target).expect("asked");
            let request = Message {
                message_id,
                correlation_id,
                payload: Payload::QueryStorageRequest,
            };
            let answer = Failure::new(code, "test").response_to(&request);
            let event = ChannelEvent::Message(answer);
            world.handle(Event::Storage { target, event });
        };
        let asked = |silent: &[usize]| {
            let mut world = World::new(true);
            (0..3).for_each(|target| world.connect(target));
            world.client(ChannelEvent::Connected);
            world.silent = silent.to_vec();
            assert_eq!(world.request(Payload::QueryStorageRequest), None);
            world
        };
        for failing in 0..3 {
            let mut world = asked(&[failing]);
            fail(&mut world, failing, ErrorCode::IO_FAILED);
            assert_eq!(world.left, [failing]);
            let answer = world.answers.pop();
            assert_eq!(answer, Some(Payload::QueryStorageResponse(storage())));
            world.init();
            assert!(world.session.is_without(failing));
            let mut world = asked(&[failing]);
            fail(&mut world, failing, ErrorCode::IN_USE);
            assert!(world.left.is_empty() && world.end.is_some_and(|end| end.is_err()));
            let other = (failing + 1) % 3;
            let mut world = asked(&[failing, other]);
            fail(&mut world, failing, ErrorCode::IO_FAILED);
            fail(&mut world, other, ErrorCode::IO_FAILED);
            assert!(world.end.is_some_and(|end| end.is_err()));
        }
    }

    #[test]
    fn two_targets_that_do_not_answer_end_the_session_and_so_does_one_without_redundancy() {
        for (survives, silent) in [(true, vec![0, 2]), (false, vec![1])] {
            let mut world = World::new(survives);
            (0..3).for_each(|target| world.connect(target));
            world.client(ChannelEvent::Connected);
            world.silent = silent;
            assert_eq!(world.request(Payload::QueryStorageRequest), None);
            world.pass(TIMEOUT - Duration::from_millis(1));
            assert!(world.end.is_none() && world.left.is_empty());
            world.pass(Duration::from_millis(1));
            let failure = world.end.expect("ended").expect_err("no answer");
            assert_eq!(failure.code, ErrorCode::TIME_OUT);
        }
    }

    #[test]
    fn missing_target_gets_no_requests_and_may_rejoin() {
        for missing in 0..3 {
            let mut world = without(missing);
            world.begin();
            assert_eq!(world.left, [missing]);
            assert!(world.session.is_without(missing) && !world.session.may_lose(missing));
            // Events of its channel do not concern this session.
            world.connect(missing);
            let [Job::PrepareMemory(memory), ..] = &world.jobs[..] else {
                panic!("{:?}", world.jobs)
            };
            for (target, described) in memory.targets.iter().enumerate() {
                let found = described.as_ref().and_then(|it| it.superblock);
                let expected = (target != missing).then(|| superblock(target));
                assert_eq!(found, expected);
            }
            let of_missing = |job: &&Job| match job {
                Job::Export { target, .. } | Job::Connect { target, .. } => *target == missing,
                _ => false,
            };
            assert_eq!(world.jobs.iter().find(of_missing), None);
            let connections = world
                .jobs
                .iter()
                .filter(|job| matches!(job, Job::Connect { .. }));
            assert_eq!(connections.count(), 4, "two roles, two targets");
            let place = world.session.place(missing).expect("it may come");
            assert_eq!((place.target, &place.storage), (missing, &storage()));
            let (init, _) = place.init.as_init_storage().expect("an init request");
            assert_eq!(init.transaction_count, 8);
            world.handle(Event::Rejoined {
                target: missing,
                identity: None,
            });
            assert!(!world.session.is_without(missing));
            world.finish();
            assert!(
                world
                    .asked
                    .contains(&(missing, MessageType::ShutdownRequest))
            );
        }
    }

    #[test]
    fn session_without_a_target_ends_normally() {
        let mut world = without(0);
        world.begin();
        world.finish();
        assert!(world.asked.iter().all(|&(target, _)| target != 0));
        // I/Os do not start with only one target.
        let mut world = without(0);
        world.client(ChannelEvent::Connected);
        world.request(Payload::QueryStorageRequest);
        assert!(!world.session.may_lose(1));
    }

    #[test]
    fn targets_that_do_not_answer_at_the_end_of_a_session_are_reported_one_after_the_other() {
        let mut world = World::new(true);
        (0..3).for_each(|target| world.connect(target));
        world.begin();
        world.silent = vec![0, 2];
        world.handle(Event::Shutdown);
        let mut expected = Vec::new();
        for target in [0, 2] {
            world.pass(TIMEOUT);
            expected.push(target);
            assert_eq!(world.stalled, expected);
            world.handle(Event::Lost { target });
        }
        assert_eq!(world.end, Some(Ok(())));
    }

    #[test]
    fn shutdown_while_ios_are_served_ends_the_session_in_order() {
        for missing in [None, Some(1)] {
            let mut world = match missing {
                Some(missing) => without(missing),
                None => {
                    let mut world = World::new(true);
                    (0..3).for_each(|target| world.connect(target));
                    world
                }
            };
            world.begin();
            let (asked, jobs) = (world.asked.len(), world.jobs.len());
            world.handle(Event::Shutdown);
            assert_eq!(world.end, Some(Ok(())));
            assert!(world.session.is_closing() && world.answers.is_empty());
            // The workers complete their I/Os while the targets still serve them.
            let expected = [
                Job::Quiesce,
                Job::StopWorkers,
                Job::CloseSuperblocks,
                Job::DestroyWorkers,
            ];
            assert_eq!(world.jobs[jobs..], expected);
            let targets = (0..3).filter(|&target| Some(target) != missing);
            let expected: Vec<_> = [
                MessageType::StopStorageRequest,
                MessageType::ShutdownRequest,
            ]
            .into_iter()
            .flat_map(|message| targets.clone().map(move |target| (target, message)))
            .collect();
            assert_eq!(world.asked[asked..], expected);
        }
    }

    #[test]
    fn initiator_is_not_waited_for_by_a_service_that_shuts_down() {
        let mut world = World::new(true);
        (0..3).for_each(|target| world.connect(target));
        world.begin();
        world.silent = vec![2];
        world.handle(Event::Shutdown);
        assert_eq!(world.end, None, "a target has not stopped yet");
        let Some(Payload::ErrorResponse(error)) = world.request(Payload::StopStorageRequest) else {
            panic!("it is too late");
        };
        assert_eq!(error.error_code, ErrorCode::CONNECTION_ABORTED.0);
        world.client(ChannelEvent::ConsumerExpired(11));
        world.client(ChannelEvent::Closed);
        world.handle(Event::Shutdown);
        assert_eq!(world.end, None);
        world.handle(Event::Lost { target: 2 });
        assert_eq!(world.end, Some(Ok(())));
    }

    /// The first target is detached; the service waits for the second one, but for a limited time.
    #[test]
    fn shutdown_with_two_unresponsive_targets_fails_after_four_timeouts() {
        let mut world = World::new(true);
        (0..3).for_each(|target| world.connect(target));
        world.begin();
        world.silent = vec![0, 2];
        world.handle(Event::Shutdown);
        world.client(ChannelEvent::Closed);
        let begun = world.now;
        world.pass(TIMEOUT);
        world.handle(Event::Lost { target: 0 });
        for passed in [2, 3] {
            world.pass(TIMEOUT);
            assert_eq!((world.now - begun, &world.end), (TIMEOUT * passed, &None));
        }
        assert_eq!(world.stalled, [0, 2, 2]);
        assert_eq!(world.session.poll_timeout(), Some(begun + TIMEOUT * 4));
        world.pass(TIMEOUT);
        let failure = world.end.take().expect("the end").expect_err("unclean");
        assert_eq!(failure.code, ErrorCode::TIME_OUT);
        assert_eq!(world.session.poll_timeout(), None);
    }

    #[test]
    fn shutdown_waits_for_the_stop_that_the_initiator_has_requested() {
        let mut world = World::new(true);
        (0..3).for_each(|target| world.connect(target));
        world.begin();
        assert!(!world.session.is_ending());
        world.silent = vec![2];
        assert_eq!(world.request(Payload::StopStorageRequest), None);
        assert!(world.session.is_ending());
        world.handle(Event::Lost { target: 2 });
        assert_eq!(world.answers.pop(), Some(Payload::StopStorageResponse));
        assert!(!world.session.is_ending());
        world.handle(Event::Shutdown);
        assert_eq!(world.end, Some(Ok(())));
    }

    #[test]
    fn shutdown_after_the_stop_closes_the_set_and_before_the_start_is_a_failure() {
        let mut world = World::new(true);
        (0..3).for_each(|target| world.connect(target));
        world.begin();
        world.request(Payload::StopStorageRequest);
        world.handle(Event::Shutdown);
        assert_eq!(world.end, Some(Ok(())));
        assert_eq!(
            world.jobs[world.jobs.len() - 2..],
            [Job::CloseSuperblocks, Job::DestroyWorkers]
        );

        let mut world = World::new(true);
        (0..3).for_each(|target| world.connect(target));
        world.client(ChannelEvent::Connected);
        world.request(Payload::QueryStorageRequest);
        world.init();
        world.handle(Event::Shutdown);
        let failure = world.end.expect("the end").expect_err("not started");
        assert_eq!(failure.code, ErrorCode::CONNECTION_ABORTED);
    }

    #[test]
    fn target_that_disconnects_before_all_are_connected_ends_the_session() {
        let mut world = World::new(true);
        world.connect(0);
        world.handle(Event::Storage {
            target: 0,
            event: ChannelEvent::Closed,
        });
        let failure = world.end.expect("the end").expect_err("a failure");
        assert_eq!(failure.code, doca::ErrorCode::CONNECTION_RESET);
        assert!(!world.session.has_client());
    }

    #[test]
    fn unresponsive_target_is_reported_until_it_is_lost() {
        let mut world = World::new(true);
        (0..3).for_each(|target| world.connect(target));
        world.begin();
        world.silent = vec![2];
        assert_eq!(world.request(Payload::StopStorageRequest), None);
        world.pass(TIMEOUT - Duration::from_millis(1));
        assert!(world.stalled.is_empty());
        world.pass(Duration::from_millis(1));
        assert_eq!(world.stalled, [2]);
        assert_eq!(world.session.poll_timeout(), Some(world.now + TIMEOUT));
        world.pass(TIMEOUT);
        assert_eq!((&world.stalled[..], &world.end), (&[2, 2][..], &None));
        world.handle(Event::Lost { target: 2 });
        assert_eq!(world.answers.pop(), Some(Payload::StopStorageResponse));
        assert_eq!(world.left, [2]);

        let mut plain = World::new(false);
        (0..3).for_each(|target| plain.connect(target));
        plain.begin();
        plain.silent = vec![2];
        plain.request(Payload::StopStorageRequest);
        plain.pass(TIMEOUT);
        assert!(matches!(plain.end, Some(Err(_))) && plain.stalled.is_empty());
    }
}
