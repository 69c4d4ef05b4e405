//! The control state machine of the target, without I/O and without a clock.
//!
//! A request is answered either immediately or after a job, whose outcome determines the response. A request that is
//! not allowed in the current state, or is invalid, is answered with an error response and leaves the state unchanged.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::ErrorCode;
use role_common::Failure;
use role_common::budget::InitLimits;
use role_common::control::ChannelEvent;
pub use role_common::jobs::Outcome;
use role_common::protocol::{Protocol, unexpected};
use role_common::superblock::{QUESTION, Superblock};
use wire::control::{
    AnnouncedStorage, BatchedInitStorage, IdentifiedStorage, IdentityQuery, InitStorage, Message,
    MessageType, Payload, RdmaConnectionDetails, RdmaConnectionRole, RecordState, StorageDetails,
};
use wire::release::Release;

pub use crate::content::Geometry;

/// Returns `true` for requests that begin a session: the query in all its forms.
#[must_use]
pub fn opens(request: &Payload) -> bool {
    match request {
        Payload::QueryStorageRequest | Payload::AnnounceStorageRequest(_) => true,
        Payload::IdentifyStorageRequest(query) => Superblock::of_request(query).is_none(),
        _ => false,
    }
}

/// Input of a session.
#[derive(Debug)]
pub enum Event {
    /// An event of the channel to the service.
    Service(ChannelEvent),
    /// The current job has succeeded or failed.
    JobDone(Result<Outcome, Failure>),
    /// The time of [`Session::poll_timeout`] may have passed.
    Timeout,
    /// The session cannot continue: a worker or the channel failed, or shutdown was requested.
    Failed(Failure),
}

/// Output of a session.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this response.
    Send(Message),
    /// Start this job, and report [`Event::JobDone`].
    Do(Job),
    /// The session has ended.
    End(Result<(), Failure>),
}

/// Work that the state machine cannot do itself.
#[derive(Debug, PartialEq, Eq)]
pub enum Job {
    /// Import the memory map and create a worker per core.
    CreateWorkers(InitStorage),
    /// Export an RDMA connection of a worker, and connect it to the given one. The outcome is [`Outcome::Exported`].
    Connect(RdmaConnectionDetails),
    /// Wait for the connections to be established, and start the data paths.
    StartWorkers {
        /// `true` if the service has had a superblock persisted in this session; otherwise it does not maintain
        /// superblocks.
        maintains: bool,
    },
    /// Stop the data paths.
    StopWorkers,
    /// Destroy the workers.
    DestroyWorkers,
    /// Persist this superblock.
    Persist(Superblock),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Query,
    Init,
    Connect,
    Start,
    Stop,
    Shutdown,
    Finished,
}

/// A session with one service.
#[derive(Debug)]
pub struct Session {
    geometry: Geometry,
    /// Identity of the storage; `None` if it has none.
    identity: Option<Bytes>,
    /// Its superblock, if it is a member of a set.
    superblock: Option<Superblock>,
    /// `true` once the service has had a superblock persisted in this session.
    maintains: bool,
    /// Extensions of the data path that are supported.
    features: u32,
    /// Extensions announced by both sides.
    announced: u32,
    /// Maximum number of workers.
    cpu_count: u32,
    /// Releases that may be selected.
    protocol: Protocol,
    /// Release of the service, from the init request on.
    release: Release,
    /// Maximum time without a request of the service.
    idle_timeout: Option<Duration>,
    /// `true` once a service has connected.
    has_client: bool,
    /// Time of the last event.
    active_at: Option<Instant>,
    limits: InitLimits,
    phase: Phase,
    /// Request being processed by a job.
    pending: Option<Message>,
    /// Per worker: `true` for io_data and io_control if connected.
    connected: Vec<[bool; 2]>,
    actions: VecDeque<Action>,
}

impl Session {
    /// Creates a session for a storage with these blocks and at most `cpu_count` workers.
    #[must_use]
    pub fn new(geometry: Geometry, cpu_count: u32) -> Self {
        Self {
            geometry,
            identity: None,
            superblock: None,
            maintains: false,
            features: 0,
            announced: 0,
            cpu_count,
            protocol: Protocol::default(),
            release: Release::default(),
            idle_timeout: None,
            has_client: false,
            active_at: None,
            limits: InitLimits::default(),
            phase: Phase::Query,
            pending: None,
            connected: Vec::new(),
            actions: VecDeque::new(),
        }
    }

    /// Sets the identity of the storage: unique bytes that stay the same as long as the storage keeps all that was
    /// written; and the superblock, if it is a member of a set.
    #[must_use]
    pub fn with_identity(mut self, identity: Bytes, superblock: Option<Superblock>) -> Self {
        (self.identity, self.superblock) = (Some(identity), superblock);
        self
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

    /// Release of the service, from the init request on.
    #[must_use]
    pub fn release(&self) -> Release {
        self.release
    }

    /// Sets the supported extensions of the data path (`FeatureQuery::features`).
    #[must_use]
    pub fn with_features(mut self, features: u32) -> Self {
        self.features = features;
        self
    }

    /// Extensions of the data path announced by both sides.
    #[must_use]
    pub fn announced_features(&self) -> u32 {
        self.announced
    }

    /// Sets the maximum time without a request, after which the session ends. While I/Os are served, the workers
    /// detect idleness instead.
    #[must_use]
    pub fn with_idle_timeout(mut self, limit: Option<Duration>) -> Self {
        self.idle_timeout = limit;
        self
    }

    /// Handles an event.
    pub fn handle(&mut self, event: Event, now: Instant) {
        if self.is_finished() && !matches!(event, Event::Service(ChannelEvent::Message(_))) {
            return;
        }
        match event {
            Event::Timeout => return self.timed_out(now),
            Event::Failed(failure) => self.end(Err(failure)),
            Event::JobDone(outcome) => self.job_done(outcome),
            Event::Service(ChannelEvent::Message(request)) => self.receive(request),
            Event::Service(ChannelEvent::Connected) => self.has_client = true,
            Event::Service(ChannelEvent::Closed) => self.end(Err(Failure::new(
                ErrorCode::CONNECTION_RESET,
                format!(
                    "the service disconnected while it was expected to send {}",
                    self.waiting_for()
                ),
            ))),
            Event::Service(ChannelEvent::ConsumerAdded(_) | ChannelEvent::ConsumerExpired(_)) => {}
        }
        self.active_at = Some(now);
    }

    /// Returns the next action. Call until it returns `None`.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Time at which to report [`Event::Timeout`], unless another event comes first.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let limit = self.idle_timeout?;
        let waits = self.has_client
            && self.pending.is_none()
            && self.phase != Phase::Stop
            && !self.is_finished();
        self.active_at.filter(|_| waits).map(|since| since + limit)
    }

    /// Returns `true` once a service has connected: before that, there is no session.
    #[must_use]
    pub fn has_client(&self) -> bool {
        self.has_client
    }

    /// Returns `true` once shutdown was answered.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    fn timed_out(&mut self, now: Instant) {
        if let (Some(deadline), Some(limit)) = (self.poll_timeout(), self.idle_timeout)
            && deadline <= now
        {
            self.end(Err(Failure::timed_out(self.waiting_for(), limit)));
        }
    }

    fn end(&mut self, result: Result<(), Failure>) {
        self.phase = Phase::Finished;
        self.actions.push_back(Action::End(result));
    }

    /// Description of the awaited event.
    #[must_use]
    pub fn waiting_for(&self) -> String {
        if self.is_finished() {
            "nothing".to_owned()
        } else {
            format!("the {}", self.due())
        }
    }

    fn receive(&mut self, request: Message) {
        match self.examine(&request) {
            Ok(Step::Announce(features)) => {
                (self.announced, self.phase) = (features, Phase::Init);
                let answer = request.response(self.announcement());
                self.actions.push_back(Action::Send(answer));
            }
            Ok(Step::Answer(payload, next)) => {
                self.phase = next;
                self.actions
                    .push_back(Action::Send(request.response(payload)));
            }
            Ok(Step::Create(init, release)) => {
                self.release = release;
                self.pending = Some(request);
                let job = Job::CreateWorkers(init);
                self.actions.push_back(Action::Do(job));
            }
            Ok(Step::Do(job)) => {
                self.pending = Some(request);
                self.actions.push_back(Action::Do(job));
            }
            Err(failure) => {
                tracing::warn!("refused: {failure}");
                self.actions
                    .push_back(Action::Send(failure.response_to(&request)));
            }
        }
    }

    fn job_done(&mut self, outcome: Result<Outcome, Failure>) {
        let Some(request) = self.pending.take() else {
            return;
        };
        let answer = match outcome {
            Ok(outcome) => self.advance(&request, outcome),
            Err(failure) => {
                tracing::warn!("{} failed: {failure}", request.payload.message_type());
                failure.response_to(&request)
            }
        };
        self.actions.push_back(Action::Send(answer));
        if self.is_finished() {
            self.end(Ok(()));
        }
    }

    fn due(&self) -> MessageType {
        match self.phase {
            Phase::Query => MessageType::QueryStorageRequest,
            Phase::Init => MessageType::InitStorageRequest,
            Phase::Connect => MessageType::CreateRdmaConnectionRequest,
            Phase::Start => MessageType::StartStorageRequest,
            Phase::Stop => MessageType::StopStorageRequest,
            Phase::Shutdown | Phase::Finished => MessageType::ShutdownRequest,
        }
    }

    fn examine(&self, request: &Message) -> Result<Step, Failure> {
        if let Some(pending) = &self.pending {
            let (came, busy) = (
                request.payload.message_type(),
                pending.payload.message_type(),
            );
            return Err(Failure::unexpected(format!(
                "unexpected {came} while the {busy} is processed"
            )));
        }
        if self.is_finished() {
            let came = request.payload.message_type();
            return Err(Failure::unexpected(format!(
                "unexpected {came} after the end of the session"
            )));
        }
        if let Payload::IdentifyStorageRequest(query) = &request.payload
            && let Some(superblock) = Superblock::of_request(query)
        {
            return self.to_persist(superblock);
        }
        // Separate, or after the query for the identity.
        if let (Payload::AnnounceStorageRequest(query), Phase::Query | Phase::Init) =
            (&request.payload, self.phase)
        {
            return Ok(Step::Announce(query.features & self.features));
        }
        if request.payload.message_type() != self.due() {
            return Err(unexpected(&request.payload, self.due()));
        }
        if let Some((init, batch_size)) = request.payload.as_init_storage() {
            let release = self.protocol.of_client(batch_size.is_some())?;
            self.check_init(&init)?;
            return Ok(Step::Create(init, release));
        }
        match &request.payload {
            Payload::QueryStorageRequest => {
                let details = Payload::QueryStorageResponse(self.details());
                Ok(Step::Answer(details, Phase::Init))
            }
            Payload::IdentifyStorageRequest(_) => Ok(Step::Answer(self.described(), Phase::Init)),
            Payload::CreateRdmaConnectionRequest(details) => {
                self.check_connection(details)?;
                Ok(Step::Do(Job::Connect(details.clone())))
            }
            Payload::StartStorageRequest => Ok(Step::Do(Job::StartWorkers {
                maintains: self.maintains,
            })),
            Payload::StopStorageRequest => Ok(Step::Do(Job::StopWorkers)),
            Payload::ShutdownRequest => Ok(Step::Do(Job::DestroyWorkers)),
            other => Err(unexpected(other, self.due())),
        }
    }

    fn details(&self) -> StorageDetails {
        StorageDetails {
            total_size: self.geometry.capacity(),
            block_size: self.geometry.block_size,
        }
    }

    /// Response to an announcement of extensions of the data path.
    fn announcement(&self) -> Payload {
        let StorageDetails {
            total_size,
            block_size,
        } = self.details();
        Payload::AnnouncedStorageResponse(AnnouncedStorage {
            total_size,
            block_size,
            features: self.announced,
        })
    }

    /// Response to a query for the identity.
    fn described(&self) -> Payload {
        let StorageDetails {
            total_size,
            block_size,
        } = self.details();
        let Some(identity) = &self.identity else {
            // As a target without support for identities.
            return Payload::QueryStorageResponse(self.details());
        };
        let superblock = self.superblock.as_ref();
        let IdentityQuery {
            set_high,
            set_low,
            epoch,
            epoch_id,
            next_epoch,
            next_epoch_id,
            member,
            state,
            flags,
        } = superblock.map_or(QUESTION, Superblock::request);
        Payload::IdentifiedStorageResponse(IdentifiedStorage {
            total_size,
            block_size,
            set_high,
            set_low,
            epoch,
            epoch_id,
            next_epoch,
            next_epoch_id,
            member,
            state,
            flags,
            identity: identity.clone(),
        })
    }

    /// A service may have a superblock persisted at any time after the query.
    fn to_persist(&self, superblock: Superblock) -> Result<Step, Failure> {
        match (self.phase, superblock.state) {
            (Phase::Query, _) => Err(Failure::unexpected(
                "expected a query for the superblock before a superblock to persist",
            )),
            // A service that prepares a new epoch repeats the last one's state, which may be foreign.
            (
                _,
                RecordState::Clean
                | RecordState::InUse
                | RecordState::Closing
                | RecordState::Foreign,
            ) if self.identity.is_some() => Ok(Step::Do(Job::Persist(superblock))),
            (_, state) => Err(Failure::invalid(format!(
                "state of a superblock to persist: expected clean, in_use, closing or foreign, got {state}"
            ))),
        }
    }

    fn check_init(&self, init: &InitStorage) -> Result<(), Failure> {
        let core_count = init.core_count;
        if !(1..=self.cpu_count).contains(&core_count) {
            return Err(Failure::invalid(format!(
                "core count: expected 1 to {}, as many --cpu as this target has, got {core_count}",
                self.cpu_count
            )));
        }
        self.limits.check(init)
    }

    fn check_connection(&self, details: &RdmaConnectionDetails) -> Result<(), Failure> {
        let RdmaConnectionDetails {
            context_index,
            role,
            ..
        } = *details;
        match self.worker(context_index) {
            None => Err(Failure::invalid(format!(
                "context index: expected 0 to {}, got {context_index}",
                self.connected.len().saturating_sub(1)
            ))),
            Some(connected) if connected[slot(role)] => Err(Failure::unexpected(format!(
                "context {context_index} has its {role} connection already"
            ))),
            Some(_) => Ok(()),
        }
    }

    fn worker(&self, context_index: u32) -> Option<&[bool; 2]> {
        usize::try_from(context_index)
            .ok()
            .and_then(|index| self.connected.get(index))
    }

    fn advance(&mut self, request: &Message, outcome: Outcome) -> Message {
        let (payload, next) = match (&request.payload, outcome) {
            (
                Payload::InitStorageRequest(InitStorage { core_count, .. })
                | Payload::BatchedInitStorageRequest(BatchedInitStorage { core_count, .. }),
                Outcome::Done,
            ) => {
                self.connected = vec![[false; 2]; *core_count as usize];
                (Payload::InitStorageResponse, Phase::Connect)
            }
            (
                Payload::CreateRdmaConnectionRequest(details),
                Outcome::Exported(connection_details),
            ) => {
                self.connected[details.context_index as usize][slot(details.role)] = true;
                let all = self.connected.iter().flatten().all(|&connected| connected);
                let details = RdmaConnectionDetails {
                    connection_details,
                    ..details.clone()
                };
                let next = if all { Phase::Start } else { Phase::Connect };
                (Payload::CreateRdmaConnectionResponse(details), next)
            }
            (Payload::StartStorageRequest, Outcome::Done) => {
                (Payload::StartStorageResponse, Phase::Stop)
            }
            (Payload::StopStorageRequest, Outcome::Done) => {
                (Payload::StopStorageResponse, Phase::Shutdown)
            }
            (Payload::ShutdownRequest, Outcome::Done) => {
                (Payload::ShutdownResponse, Phase::Finished)
            }
            (Payload::IdentifyStorageRequest(query), Outcome::Done) => {
                self.superblock = Superblock::of_request(query);
                self.maintains = true;
                return request.response(self.described());
            }
            (_, outcome) => {
                let came = request.payload.message_type();
                return Failure::unexpected(format!("{outcome:?} is no outcome of a {came}"))
                    .response_to(request);
            }
        };
        self.phase = next;
        request.response(payload)
    }
}

enum Step {
    /// Answer an announcement: these extensions are supported by both sides.
    Announce(u32),
    Answer(Payload, Phase),
    /// Create workers for a session of this release.
    Create(InitStorage, Release),
    Do(Job),
}

fn slot(role: RdmaConnectionRole) -> usize {
    match role {
        RdmaConnectionRole::IoData => 0,
        RdmaConnectionRole::IoControl => 1,
    }
}

#[cfg(test)]
mod tests;
