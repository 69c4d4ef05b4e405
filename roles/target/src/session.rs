//! The control state machine of the target, without I/O and without a clock.
//!
//! A request is answered either immediately or after a job, whose outcome determines the response. A request that is
//! not permitted in the current state, or is invalid, is answered with an error response and leaves the state
//! unchanged.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use control::ChannelEvent;
use control::Failure;
use control::unexpected;
use control::verifier::Verifier;
use doca::ErrorCode;
use role_common::init_limits::InitLimits;
pub use role_common::jobs::Outcome;
use role_common::protocol::Protocol;
use role_common::superblock;
use role_formats::superblock::Superblock;
use wire::control::{
    AnnouncedStorage, BatchedInitStorage, FEATURE_VERIFIER, FEATURE_VERSIONS, IdentityQuery,
    InitStorage, Message, MessageType, Payload, RdmaConnectionDetails, RdmaConnectionRole,
    RecordState, StorageDetails,
};
use wire::release::Release;

pub use crate::content::Geometry;
use crate::versions::Version;

/// Returns `true` for requests that begin a session: the query in all its forms.
#[must_use]
pub fn opens(request: &Payload) -> bool {
    match request {
        Payload::QueryStorageRequest | Payload::AnnounceStorageRequest(_) => true,
        Payload::IdentifyStorageRequest(query) => query.state == RecordState::None,
        _ => false,
    }
}

/// State of a storage's versions of blocks, as announced in a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnnouncedVersions {
    /// Number of versions that the storage can keep in addition to one version of each block.
    pub slots: u32,
    /// The newest version that was written.
    pub last: Version,
    /// Versions below this one are retired.
    pub retired: Version,
    /// Numbers of the blocks with a version that is not retired, in ascending order.
    pub unretired: Vec<u64>,
}

/// Input of a session.
#[derive(Debug)]
pub enum Event {
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
    Send(Message),
    /// Start this job, and report [`Event::JobDone`].
    Do(Job),
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
    StartWorkers,
    StopWorkers,
    DestroyWorkers,
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
    /// Identity and incarnation of the storage; `None` without an identity.
    verifier: Option<Verifier>,
    /// The target's superblock, if it is a member of a set.
    superblock: Option<Superblock>,
    /// `true` once the service has requested the superblock in this session.
    knows_superblock: bool,
    /// Extensions of the data path that are supported.
    features: u32,
    /// Extensions announced by both sides.
    announced: u32,
    /// Versions, announced to a service that supports them.
    versions: AnnouncedVersions,
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
            verifier: None,
            superblock: None,
            knows_superblock: false,
            features: 0,
            announced: 0,
            versions: AnnouncedVersions::default(),
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

    /// Sets identity and incarnation of the storage, and its superblock if it is a member of a set.
    #[must_use]
    pub fn with_identity(mut self, verifier: Verifier, superblock: Option<Superblock>) -> Self {
        (self.verifier, self.superblock) = (Some(verifier), superblock);
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

    /// Sets the announced state of the versions of blocks.
    #[must_use]
    pub fn with_versions(mut self, versions: AnnouncedVersions) -> Self {
        self.set_versions(versions);
        self
    }

    /// As [`with_versions`](Self::with_versions), after a superblock has changed the state.
    pub fn set_versions(&mut self, versions: AnnouncedVersions) {
        self.versions = versions;
    }

    /// Returns `true` if the service has requested the superblock, which means that it uses the storage as a member of
    /// a set.
    #[must_use]
    pub fn knows_superblock(&self) -> bool {
        self.knows_superblock
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
        self.knows_superblock |= matches!(request.payload, Payload::IdentifyStorageRequest(_));
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
            && let Some(superblock) =
                Superblock::of_request(query).map_err(superblock::malformed)?
        {
            return self.to_persist(superblock);
        }
        // In a separate query, or after the query for the identity.
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
            Payload::StartStorageRequest => Ok(Step::Do(Job::StartWorkers)),
            Payload::StopStorageRequest => Ok(Step::Do(Job::StopWorkers)),
            Payload::ShutdownRequest => Ok(Step::Do(Job::DestroyWorkers)),
            other => Err(unexpected(other, self.due())),
        }
    }

    fn details(&self) -> StorageDetails {
        self.geometry.details()
    }

    /// Response to an announcement of extensions of the data path.
    fn announcement(&self) -> Payload {
        let StorageDetails {
            total_size,
            block_size,
        } = self.details();
        let nothing = AnnouncedVersions::default();
        let AnnouncedVersions {
            slots,
            last,
            retired,
            unretired,
        } = if self.announced & FEATURE_VERSIONS == 0 {
            &nothing
        } else {
            &self.versions
        };
        let unretired: Vec<u8> = unretired.iter().flat_map(|it| it.to_be_bytes()).collect();
        Payload::AnnouncedStorageResponse(AnnouncedStorage {
            total_size,
            block_size,
            features: self.announced,
            version_slots: *slots,
            last_epoch: last.epoch,
            last_number: last.number,
            retired_epoch: retired.epoch,
            retired_number: retired.number,
            unretired: unretired.into(),
        })
    }

    /// Response to a query for the identity.
    fn described(&self) -> Payload {
        let Some(verifier) = &self.verifier else {
            // Same response as that of a target without support for identities.
            return Payload::QueryStorageResponse(self.details());
        };
        let superblock = self.superblock.as_ref();
        let superblock = superblock.map_or(IdentityQuery::WITHOUT_SUPERBLOCK, Superblock::request);
        Payload::IdentifiedStorageResponse(
            superblock.answer(&self.details(), identity_bytes(verifier)),
        )
    }

    /// Handles a request to persist a superblock, which a service may send at any time after the query.
    fn to_persist(&self, superblock: Superblock) -> Result<Step, Failure> {
        match (self.phase, superblock.state) {
            (Phase::Query, _) => Err(Failure::unexpected(
                "expected a query for the superblock before a superblock to persist",
            )),
            (_, RecordState::Clean | RecordState::InUse | RecordState::Closing)
                if self.verifier.is_some() =>
            {
                Ok(Step::Do(Job::Persist(superblock)))
            }
            (_, state) => Err(Failure::invalid(format!(
                "state of a superblock to persist: expected clean, in_use or closing, got {state}"
            ))),
        }
    }

    fn check_init(&self, init: &InitStorage) -> Result<(), Failure> {
        self.check_membership()?;
        let core_count = init.core_count;
        if !(1..=self.cpu_count).contains(&core_count) {
            return Err(Failure::invalid(format!(
                "core count: expected 1 to {}, as many --cpu as this target has, got {core_count}",
                self.cpu_count
            )));
        }
        self.limits.check(init)
    }

    /// Refuses a service that does not support superblocks: it would modify blocks of a set without the other members,
    /// or read them in another form.
    fn check_membership(&self) -> Result<(), Failure> {
        match &self.superblock {
            Some(superblock) if !self.knows_superblock => Err(Failure::new(
                ErrorCode::NOT_PERMITTED,
                format!(
                    "expected a storage that belongs to no set, because this service does not use superblocks; found member {} of set {}: \
                     use gga_offload with --logical-block-size {}, or give the target a new backing file (--initialise)",
                    superblock.member, superblock.set, superblock.form.logical_block_size
                ),
            )),
            _ => Ok(()),
        }
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
                let verifier = self.verifier.as_ref();
                let verifier = verifier.filter(|_| self.announced & FEATURE_VERIFIER != 0);
                let answer = match verifier {
                    Some(verifier) => Payload::VerifiedInitStorageResponse(verifier.into()),
                    None => Payload::InitStorageResponse,
                };
                (answer, Phase::Connect)
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
                // The superblock was valid when the job was started.
                self.superblock = Superblock::of_request(query).unwrap_or_default();
                return request.response(self.described());
            }
            (_, outcome) => {
                let came = request.payload.message_type();
                return Failure::unexpected(format!("{outcome:?} is not an outcome of a {came}"))
                    .response_to(request);
            }
        };
        self.phase = next;
        request.response(payload)
    }
}

enum Step {
    /// Respond to an announcement: these extensions are supported by both sides.
    Announce(u32),
    Answer(Payload, Phase),
    /// Create workers for a session of this release.
    Create(InitStorage, Release),
    Do(Job),
}

/// `IdentifiedStorage::identity` of a storage: its identity and its incarnation.
fn identity_bytes(verifier: &Verifier) -> Bytes {
    let incarnations = verifier.incarnations.iter().flatten();
    let numbers = std::iter::once(verifier.identity.0).chain(incarnations.map(|it| it.0));
    numbers.flat_map(u128::to_be_bytes).collect()
}

fn slot(role: RdmaConnectionRole) -> usize {
    match role {
        RdmaConnectionRole::IoData => 0,
        RdmaConnectionRole::IoControl => 1,
    }
}

#[cfg(test)]
mod tests {
    use doca::ErrorCode;

    use super::*;

    const GEOMETRY: Geometry = Geometry {
        block_size: 512,
        block_count: 10,
    };

    const MAX_TRANSACTIONS: u32 = 8192;

    fn the_one() -> Verifier {
        use control::verifier::{Incarnation, StorageId};
        let identity = StorageId(u128::from_be_bytes([1; 16]));
        let incarnation = Incarnation(u128::from_be_bytes([2; 16]));
        Verifier::of_one(identity, false, incarnation)
    }

    struct Driver {
        now: Instant,
        session: Session,
        next_id: u32,
    }

    impl Driver {
        fn new() -> Self {
            Self {
                now: Instant::now(),
                session: Session::new(GEOMETRY, 2),
                next_id: 100,
            }
        }

        /// Sends a request; jobs succeed.
        fn request(&mut self, payload: Payload) -> Payload {
            self.request_with(payload, |job| match job {
                Job::Connect(details) => Ok(Outcome::Exported(Bytes::from(vec![
                    details.context_index as u8,
                ]))),
                _ => Ok(Outcome::Done),
            })
        }

        fn request_with(
            &mut self,
            payload: Payload,
            job: impl FnOnce(&Job) -> Result<Outcome, Failure>,
        ) -> Payload {
            self.next_id += 1;
            let request = Message {
                message_id: self.next_id,
                correlation_id: 5,
                payload,
            };
            self.handle(Event::Service(ChannelEvent::Message(request)));
            let mut action = self.session.poll_action();
            if let Some(Action::Do(work)) = &action {
                let outcome = job(work);
                self.handle(Event::JobDone(outcome));
                action = self.session.poll_action();
            }
            let Some(Action::Send(answer)) = action else {
                panic!("expected an answer, got {action:?}")
            };
            assert_eq!(
                (answer.message_id, answer.correlation_id),
                (self.next_id, 5),
                "the request's ids come back"
            );
            answer.payload
        }

        fn handle(&mut self, event: Event) {
            self.session.handle(event, self.now);
        }

        fn error(&mut self, payload: Payload) -> (ErrorCode, String) {
            match self.request(payload) {
                Payload::ErrorResponse(error) => (ErrorCode(error.error_code), error.message),
                other => panic!("expected an error, got {other:?}"),
            }
        }

        fn at_connect() -> Self {
            let mut driver = Self::new();
            driver.request(Payload::QueryStorageRequest);
            assert_eq!(driver.request(init(2, 4)), Payload::InitStorageResponse);
            driver
        }
    }

    fn plain_init(core_count: u32, transaction_count: u32) -> InitStorage {
        InitStorage {
            transaction_count,
            core_count,
            mmap_export_blob: Bytes::from_static(b"map"),
        }
    }

    fn init(core_count: u32, transaction_count: u32) -> Payload {
        Payload::InitStorageRequest(plain_init(core_count, transaction_count))
    }

    fn connection(context_index: u32, role: RdmaConnectionRole) -> RdmaConnectionDetails {
        RdmaConnectionDetails {
            context_index,
            role,
            connection_details: Bytes::from_static(b"far"),
        }
    }

    fn connect(context_index: u32, role: RdmaConnectionRole) -> Payload {
        Payload::CreateRdmaConnectionRequest(connection(context_index, role))
    }

    use RdmaConnectionRole::{IoControl, IoData};

    #[test]
    fn a_session_in_order() {
        let mut driver = Driver::new();
        let details = StorageDetails {
            total_size: 5120,
            block_size: 512,
        };
        assert_eq!(
            driver.request(Payload::QueryStorageRequest),
            Payload::QueryStorageResponse(details)
        );
        assert_eq!(driver.request(init(2, 4)), Payload::InitStorageResponse);
        // Connections may be created in any order.
        for (index, role) in [(1, IoControl), (0, IoData), (0, IoControl), (1, IoData)] {
            let Payload::CreateRdmaConnectionResponse(details) =
                driver.request(connect(index, role))
            else {
                panic!("expected a connection");
            };
            assert_eq!((details.context_index, details.role), (index, role));
            assert_eq!(details.connection_details, [index as u8][..]);
        }
        assert_eq!(
            driver.request(Payload::StartStorageRequest),
            Payload::StartStorageResponse
        );
        assert_eq!(
            driver.request(Payload::StopStorageRequest),
            Payload::StopStorageResponse
        );
        assert!(!driver.session.is_finished());
        assert_eq!(
            driver.request(Payload::ShutdownRequest),
            Payload::ShutdownResponse
        );
        assert!(driver.session.is_finished());
        assert_eq!(driver.session.poll_action(), Some(Action::End(Ok(()))));
        assert_eq!(
            driver.error(Payload::ShutdownRequest).0,
            ErrorCode::UNEXPECTED
        );
    }

    #[test]
    fn unexpected_request_is_refused_and_leaves_the_state_unchanged() {
        let any = || {
            [
                Payload::QueryStorageRequest,
                init(1, 1),
                connect(0, IoData),
                Payload::StartStorageRequest,
                Payload::StopStorageRequest,
                Payload::ShutdownRequest,
                Payload::StartStorageResponse,
            ]
        };
        let session = [
            Payload::QueryStorageRequest,
            init(1, 1),
            connect(0, IoData),
            connect(0, IoControl),
            Payload::StartStorageRequest,
            Payload::StopStorageRequest,
            Payload::ShutdownRequest,
        ];
        let mut driver = Driver::new();
        for due in session {
            for other in any()
                .into_iter()
                .filter(|other| other.message_type() != due.message_type())
            {
                let came = other.message_type();
                let (code, message) = driver.error(other);
                assert_eq!(code, ErrorCode::UNEXPECTED);
                assert!(
                    message.contains(came.name()) && message.contains(due.message_type().name()),
                    "{message}"
                );
            }
            let answer = driver.request(due);
            assert!(!matches!(answer, Payload::ErrorResponse(_)), "{answer:?}");
        }
    }

    #[test]
    fn counts_out_of_range_are_refused() {
        let mut driver = Driver::new();
        driver.request(Payload::QueryStorageRequest);
        for (cores, transactions, flag, found) in [
            (0, 4, "--cpu", "0"),
            (3, 4, "--cpu", "3"),
            (u32::MAX, 4, "--cpu", "4294967295"),
            (1, 0, "--max-transactions", "0"),
            (1, MAX_TRANSACTIONS + 1, "--max-transactions", "8193"),
        ] {
            let (code, message) = driver.error(init(cores, transactions));
            assert_eq!(code, ErrorCode::INVALID_VALUE);
            for value in [flag, found] {
                assert!(message.contains(value), "{message}");
            }
        }
        assert_eq!(
            driver.request(init(2, MAX_TRANSACTIONS)),
            Payload::InitStorageResponse
        );
    }

    #[test]
    fn memory_map_may_be_sent_again_after_a_refusal() {
        let mut driver = Driver::new();
        driver.request(Payload::QueryStorageRequest);
        let answer = driver.request_with(init(1, 1), |_| Err(Failure::invalid("not a blob")));
        let Payload::ErrorResponse(error) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(
            (error.error_code, error.message.as_str()),
            (ErrorCode::INVALID_VALUE.0, "not a blob")
        );
        assert_eq!(driver.request(init(1, 1)), Payload::InitStorageResponse);
    }

    #[test]
    fn contexts_and_roles_are_checked() {
        let mut driver = Driver::at_connect();
        for index in [2, u32::MAX] {
            let (code, message) = driver.error(connect(index, IoData));
            assert_eq!(code, ErrorCode::INVALID_VALUE);
            assert!(message.contains(&index.to_string()), "{message}");
        }
        driver.request(connect(1, IoData));
        let (_, message) = driver.error(connect(1, IoData));
        assert!(
            message.contains("context 1") && message.contains("io_data"),
            "{message}"
        );
        let answer = driver.request_with(connect(0, IoData), |_| {
            Err(Failure::invalid("cannot connect"))
        });
        assert!(matches!(answer, Payload::ErrorResponse(_)));
        assert!(
            matches!(
                driver.request(connect(0, IoData)),
                Payload::CreateRdmaConnectionResponse(_)
            ),
            "failed before"
        );
    }

    #[test]
    fn request_during_a_job_is_refused() {
        let mut driver = Driver::new();
        driver.request(Payload::QueryStorageRequest);
        let request = |payload| Message {
            message_id: 1,
            correlation_id: 1,
            payload,
        };
        let message = |payload| Event::Service(ChannelEvent::Message(request(payload)));
        driver.handle(message(init(1, 1)));
        assert!(matches!(
            driver.session.poll_action(),
            Some(Action::Do(Job::CreateWorkers(_)))
        ));
        driver.handle(message(Payload::StartStorageRequest));
        let Some(Action::Send(answer)) = driver.session.poll_action() else {
            panic!("expected an answer");
        };
        let Payload::ErrorResponse(error) = answer.payload else {
            panic!("expected an error")
        };
        assert_eq!(error.error_code, ErrorCode::UNEXPECTED.0);
        for request in ["start_storage_request", "init_storage_request"] {
            assert!(error.message.contains(request), "{}", error.message);
        }
        driver.handle(Event::JobDone(Ok(Outcome::Done)));
        let Some(Action::Send(answer)) = driver.session.poll_action() else {
            panic!("expected an answer");
        };
        assert_eq!(answer.payload, Payload::InitStorageResponse);
    }

    #[test]
    fn identity_is_sent_only_when_queried() {
        use wire::control::{IdentifiedStorage, RecordState};

        let plain = Driver::new().request(Payload::QueryStorageRequest);
        let Payload::QueryStorageResponse(details) = plain.clone() else {
            panic!("{plain:?}")
        };
        let known = || {
            let mut driver = Driver::new();
            driver.session = driver.session.with_identity(the_one(), None);
            driver
        };
        assert_eq!(known().request(Payload::QueryStorageRequest), plain);
        let question = || Payload::IdentifyStorageRequest(IdentityQuery::WITHOUT_SUPERBLOCK);
        let expected = IdentifiedStorage {
            total_size: details.total_size,
            block_size: details.block_size,
            set_high: 0,
            set_low: 0,
            epoch: 0,
            epoch_id: 0,
            next_epoch: 0,
            next_epoch_id: 0,
            member: 0,
            state: RecordState::None,
            format: 0,
            matrix: 0,
            logical_block_size: 0,
            identity: [[1; 16], [2; 16]].concat().into(),
        };
        let identified = known().request(question());
        assert_eq!(identified, Payload::IdentifiedStorageResponse(expected));
        assert_eq!(
            Driver::new().request(question()),
            plain,
            "as the reference's targets"
        );
    }

    fn superblock(state: RecordState) -> Superblock {
        use role_formats::stored_block::MatrixType;
        use role_formats::superblock::{Epoch, Form, Format, SetId};
        Superblock {
            set: SetId(9),
            member: 1,
            epoch: Epoch { number: 3, id: 4 },
            next: Epoch { number: 4, id: 5 },
            state,
            form: Form {
                format: Format::StoredChunks,
                matrix: MatrixType::Vandermonde,
                logical_block_size: 4096,
            },
        }
    }

    /// Creates a driver of a target with an identity, whose service has queried it.
    fn identified() -> Driver {
        let mut driver = Driver::new();
        driver.session = driver.session.with_identity(the_one(), None);
        driver.request(Payload::IdentifyStorageRequest(
            IdentityQuery::WITHOUT_SUPERBLOCK,
        ));
        driver
    }

    #[test]
    fn superblock_in_doubt_is_not_accepted_from_a_service() {
        use RecordState::{Clean, Closing, InDoubt, InUse};
        for state in [Clean, InUse, Closing] {
            let request = superblock(state).request();
            let answer =
                identified().request_with(Payload::IdentifyStorageRequest(request), |job| {
                    assert_eq!(*job, Job::Persist(superblock(state)));
                    Ok(Outcome::Done)
                });
            let Payload::IdentifiedStorageResponse(answer) = answer else {
                panic!("{answer:?}")
            };
            assert_eq!(Superblock::of_answer(&answer), Ok(Some(superblock(state))));
        }
        // The doubt is detected by the target itself.
        let request = Payload::IdentifyStorageRequest(superblock(InDoubt).request());
        let (code, message) = identified().error(request);
        assert_eq!(code, ErrorCode::INVALID_VALUE);
        assert!(message.contains("in_doubt"), "{message}");
        let early = Payload::IdentifyStorageRequest(superblock(InUse).request());
        assert_eq!(Driver::new().error(early).0, ErrorCode::UNEXPECTED);
    }

    #[test]
    fn superblock_without_a_form_is_not_accepted_from_a_service() {
        let request = IdentityQuery {
            format: 0,
            ..superblock(RecordState::InUse).request()
        };
        let (code, message) = identified().error(Payload::IdentifyStorageRequest(request));
        assert_eq!(code, ErrorCode::INVALID_VALUE);
        assert!(message.contains("format"), "{message}");
    }

    /// Creates a driver of a target that is a member of a set.
    fn member() -> Driver {
        let mut driver = Driver::new();
        driver.session = driver
            .session
            .with_identity(the_one(), Some(superblock(RecordState::Clean)));
        driver
    }

    #[test]
    fn member_of_a_set_refuses_a_service_that_does_not_know_superblocks() {
        let mut driver = member();
        driver.request(Payload::QueryStorageRequest);
        let (code, message) = driver.error(init(1, 1));
        assert_eq!(code, ErrorCode::NOT_PERMITTED);
        for value in ["set 00000000", "--logical-block-size 4096", "--initialise"] {
            assert!(message.contains(value), "{value}: {message}");
        }
    }

    #[test]
    fn member_of_a_set_serves_a_service_that_has_asked_for_its_superblock() {
        let mut driver = member();
        driver.request(Payload::IdentifyStorageRequest(
            IdentityQuery::WITHOUT_SUPERBLOCK,
        ));
        assert_eq!(driver.request(init(1, 1)), Payload::InitStorageResponse);
    }

    #[test]
    fn target_without_a_superblock_serves_any_service() {
        let mut driver = identified();
        assert_eq!(driver.request(init(1, 1)), Payload::InitStorageResponse);
    }

    const IDLE: Duration = Duration::from_secs(3);

    /// The failure that has ended the session, if any.
    fn end(driver: &mut Driver) -> Option<ErrorCode> {
        match driver.session.poll_action()? {
            Action::End(result) => Some(result.expect_err("a failure").code),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn idle_service_times_out_unless_ios_are_served() {
        let mut driver = Driver::new();
        driver.session = driver.session.with_idle_timeout(Some(IDLE));
        assert_eq!(driver.session.poll_timeout(), None, "there is no service");
        driver.handle(Event::Service(ChannelEvent::Connected));
        for payload in [
            Payload::QueryStorageRequest,
            init(1, 1),
            connect(0, IoData),
            connect(0, IoControl),
            Payload::StartStorageRequest,
            Payload::StopStorageRequest,
        ] {
            let serves_io = payload == Payload::StartStorageRequest;
            driver.now += IDLE - Duration::from_millis(1);
            driver.handle(Event::Timeout);
            driver.request(payload);
            let deadline = (!serves_io).then(|| driver.now + IDLE);
            assert_eq!(driver.session.poll_timeout(), deadline);
        }
        driver.now += IDLE;
        driver.handle(Event::Timeout);
        assert_eq!(end(&mut driver), Some(ErrorCode::TIME_OUT));
        // The session ends only once.
        driver.handle(Event::Service(ChannelEvent::Closed));
        driver.handle(Event::Timeout);
        assert_eq!(end(&mut driver), None);
    }

    #[test]
    fn closed_channel_and_failures_end_the_session() {
        let mut driver = Driver::at_connect();
        driver.handle(Event::Service(ChannelEvent::Closed));
        assert_eq!(end(&mut driver), Some(ErrorCode::CONNECTION_RESET));
        let mut driver = Driver::at_connect();
        driver.handle(Event::Failed(Failure::aborted("serving")));
        assert_eq!(end(&mut driver), Some(ErrorCode::CONNECTION_ABORTED));
    }

    #[test]
    fn extensions_are_announced_by_both_sides_before_the_session_is_prepared() {
        use wire::control::{AnnouncedStorage, FEATURE_FLUSH, FeatureQuery};
        let new = || {
            let mut driver = Driver::new();
            driver.session = driver
                .session
                .with_identity(the_one(), None)
                .with_features(FEATURE_FLUSH);
            driver
        };
        let announce = || Payload::AnnounceStorageRequest(FeatureQuery { features: 7 });
        let announced = Payload::AnnouncedStorageResponse(AnnouncedStorage {
            total_size: 5120,
            block_size: 512,
            features: FEATURE_FLUSH,
            version_slots: 0,
            last_epoch: 0,
            last_number: 0,
            retired_epoch: 0,
            retired_number: 0,
            unretired: Bytes::new(),
        });
        let mut driver = new();
        assert_eq!(driver.session.announced_features(), 0);
        assert_eq!(driver.request(announce()), announced);
        assert_eq!(driver.session.announced_features(), FEATURE_FLUSH);

        // After the query for identity and superblock.
        let mut driver = new();
        let answer = driver.request(Payload::IdentifyStorageRequest(
            IdentityQuery::WITHOUT_SUPERBLOCK,
        ));
        assert!(matches!(answer, Payload::IdentifiedStorageResponse(_)));
        assert_eq!(driver.session.announced_features(), 0);
        assert_eq!(driver.request(announce()), announced);
        assert_eq!(driver.session.announced_features(), FEATURE_FLUSH);

        // The query is not accepted later.
        let mut driver = new();
        driver.request(Payload::QueryStorageRequest);
        assert_eq!(driver.request(init(1, 1)), Payload::InitStorageResponse);
        assert_eq!(driver.error(announce()).0, ErrorCode::UNEXPECTED);
        assert_eq!(driver.session.announced_features(), 0);
    }

    #[test]
    fn verifier_is_sent_with_the_answer_to_init_if_both_sides_have_announced_it() {
        use wire::control::FeatureQuery;
        let verified = Payload::VerifiedInitStorageResponse((&the_one()).into());
        for (has, asked, expected) in [
            (FEATURE_VERIFIER, Some(u32::MAX), &verified),
            (FEATURE_VERIFIER, Some(1), &Payload::InitStorageResponse),
            (FEATURE_VERIFIER, None, &Payload::InitStorageResponse),
            (1, Some(u32::MAX), &Payload::InitStorageResponse),
        ] {
            let mut driver = Driver::new();
            let session = driver.session.with_identity(the_one(), None);
            driver.session = session.with_features(has);
            driver.request(match asked {
                Some(features) => Payload::AnnounceStorageRequest(FeatureQuery { features }),
                None => Payload::QueryStorageRequest,
            });
            assert_eq!(&driver.request(init(1, 1)), expected, "{has} {asked:?}");
        }
    }

    #[test]
    fn service_of_3_0_is_detected_by_its_init_request() {
        let batched = || Payload::init_storage_of(Release::V3_0, plain_init(2, 4), 4);
        let mut driver = Driver::new();
        driver.request(Payload::QueryStorageRequest);
        let answer = driver.request_with(batched(), |job| {
            assert_eq!(*job, Job::CreateWorkers(plain_init(2, 4)));
            Ok(Outcome::Done)
        });
        assert_eq!(answer, Payload::InitStorageResponse);
        assert_eq!(driver.session.release(), Release::V3_0);
        // Both workers need both of their connections.
        assert!(matches!(
            driver.request(connect(1, IoControl)),
            Payload::CreateRdmaConnectionResponse(_)
        ));
        assert_eq!(Driver::at_connect().session.release(), Release::V3_2);
    }

    #[test]
    fn request_of_another_release_than_the_chosen_one_is_refused() {
        for (protocol, refused, accepted, release) in [
            (
                Protocol::V3_0,
                init(1, 4),
                Payload::init_storage_of(Release::V3_0, plain_init(1, 4), 1),
                Release::V3_0,
            ),
            (
                Protocol::V3_1,
                Payload::init_storage_of(Release::V3_0, plain_init(1, 4), 1),
                init(1, 4),
                Release::V3_1,
            ),
        ] {
            let mut driver = Driver::new();
            driver.session = Session::new(GEOMETRY, 2).with_protocol(protocol);
            driver.request(Payload::QueryStorageRequest);
            let (code, _) = driver.error(refused);
            assert_eq!(code, ErrorCode::INVALID_VALUE, "{protocol:?}");
            assert_eq!(driver.request(accepted), Payload::InitStorageResponse);
            assert_eq!(driver.session.release(), release);
        }
    }
}
