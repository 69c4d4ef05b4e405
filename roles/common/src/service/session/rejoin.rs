//! A lost target rejoins a running session: the steps of a session, for this target alone.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use control::ChannelEvent;
use control::Failure;
use doca::ErrorCode;
use wire::control::{
    Message, MessageIds, MessageType, Payload, RdmaConnectionDetails, StorageDetails,
};

use super::Connections;
use super::storage::{Described, KeptVersions, feature_query};
use crate::protocol::expect_response;
use crate::service::{Reply, WorkerCommand};

/// Requirements for a target that rejoins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub target: usize,
    /// Name of the target in error messages.
    pub name: &'static str,
    /// The target's storage at the start of the session.
    pub storage: StorageDetails,
    pub query: Payload,
    /// Extensions of the data path used by the session (`FeatureQuery::features`).
    pub features: u32,
    /// The session's init request.
    pub init: Payload,
    /// Number of workers.
    pub core_count: u32,
}

/// Input of an attempt.
#[derive(Debug)]
pub enum RejoinEvent {
    /// An event of the channel to the target.
    Channel(ChannelEvent),
    /// Result of [`RejoinAction::Admit`]: `true` if the target has all the data that it had when it was lost, `false`
    /// if it must be rebuilt completely; an error if it is not a member of the set.
    Admitted(Result<bool, Failure>),
    /// A worker has replied to its command.
    CommandDone {
        worker: u32,
        reply: Result<Reply, Failure>,
    },
    /// The time of [`Rejoin::poll_timeout`] may have passed.
    Timeout,
    Failed(Failure),
}

/// Output of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub enum RejoinAction {
    /// Send this message to the target.
    Send(Message),
    /// Decide whether the target may rejoin, and report [`RejoinEvent::Admitted`].
    Admit(Described),
    /// Send this command to a worker, and report [`RejoinEvent::CommandDone`].
    Command { worker: u32, command: WorkerCommand },
    /// The target is attached to all workers, or the attempt has failed.
    End(Result<Returned, Failure>),
}

/// A target that has rejoined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    /// Identity of the target's storage, if it has one.
    pub identity: Option<Bytes>,
    /// `true` if the target has all the data that it had when it was lost, as [admitted](RejoinEvent::Admitted).
    pub has_kept: bool,
}

/// An attempt of a target to rejoin, without I/O and without a clock.
#[derive(Debug)]
pub struct Rejoin {
    place: Place,
    timeout: Duration,
    deadline: Instant,
    step: Step,
    /// Identity of the target's storage, if it has one.
    identity: Option<Bytes>,
    /// Extensions of the data path that the target has announced.
    features: u32,
    /// Present until the admission.
    described: Option<Described>,
    /// From the admission, for [`Returned::has_kept`].
    has_kept: bool,
    ids: MessageIds,
    connections: Connections,
    actions: VecDeque<RejoinAction>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Connection,
    /// The response of this type, to the request with this id, is outstanding.
    Answer(MessageType, u32),
    /// The admission decision is outstanding.
    Admission,
    /// The target's extensions, in the response to the request with this id, are outstanding.
    Features(u32),
    /// A worker's export of a connection is outstanding.
    Export,
    /// A worker is connecting.
    Connect,
    /// Number of workers that are attaching the target.
    Attach(u32),
    Ended,
}

impl Rejoin {
    /// Creates an attempt that starts with the connection to the target, and waits at most `timeout` for every step.
    #[must_use]
    pub fn new(now: Instant, place: Place, timeout: Duration) -> Self {
        Self {
            connections: Connections::of_workers(place.core_count),
            place,
            timeout,
            deadline: now + timeout,
            step: Step::Connection,
            identity: None,
            features: 0,
            described: None,
            has_kept: false,
            ids: MessageIds::default(),
            actions: VecDeque::new(),
        }
    }

    #[must_use]
    pub fn target(&self) -> usize {
        self.place.target
    }

    pub fn handle(&mut self, event: RejoinEvent, now: Instant) {
        match event {
            RejoinEvent::Channel(event) => self.channel_event(now, event),
            RejoinEvent::Admitted(judgement) => self.admitted(now, judgement),
            RejoinEvent::CommandDone { worker, reply } => self.command_done(now, worker, reply),
            RejoinEvent::Timeout => self.timed_out(now),
            RejoinEvent::Failed(failure) => self.fail(failure),
        }
    }

    /// Returns the next action. Call until it returns `None`.
    pub fn poll_action(&mut self) -> Option<RejoinAction> {
        self.actions.pop_front()
    }

    /// Time at which to report [`RejoinEvent::Timeout`], unless another event comes first.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        (self.step != Step::Ended).then_some(self.deadline)
    }

    fn timed_out(&mut self, now: Instant) {
        if self.deadline <= now {
            let waiting = match self.step {
                Step::Connection => "its connection".to_owned(),
                Step::Answer(expected, _) => format!("its {expected}"),
                Step::Admission => "the judgement of its superblock".to_owned(),
                Step::Features(_) => "its extensions of the data path".to_owned(),
                Step::Export | Step::Connect | Step::Attach(_) => "the workers".to_owned(),
                Step::Ended => return,
            };
            self.fail(Failure::timed_out(waiting, self.timeout));
        }
    }

    fn fail(&mut self, failure: Failure) {
        if self.step != Step::Ended {
            self.end(Err(failure.context(self.place.name)));
        }
    }

    fn channel_event(&mut self, now: Instant, event: ChannelEvent) {
        match (event, self.step) {
            (ChannelEvent::Connected, Step::Connection) => {
                self.ask(
                    now,
                    self.place.query.clone(),
                    MessageType::QueryStorageResponse,
                );
            }
            (ChannelEvent::Message(message), Step::Answer(expected, id)) => {
                match expect_response(message, id, expected) {
                    Ok(payload) => self.answered(now, payload),
                    Err(failure) => self.fail(failure),
                }
            }
            (ChannelEvent::Message(message), Step::Features(id)) => {
                match expect_response(message, id, MessageType::QueryStorageResponse) {
                    Ok(Payload::AnnouncedStorageResponse(answer)) => {
                        if let Some(described) = &mut self.described {
                            described.features = answer.features;
                            described.versions = KeptVersions::of_answer(&answer);
                        }
                        self.await_admission();
                    }
                    // A target without extensions.
                    Ok(_) => self.await_admission(),
                    Err(failure) => self.fail(failure),
                }
            }
            (ChannelEvent::Message(message), _) => {
                let came = message.payload.message_type();
                self.fail(Failure::unexpected(format!(
                    "unexpected {came}: no request is outstanding"
                )));
            }
            (ChannelEvent::Closed, _) => {
                let message = "it disconnected before it had rejoined";
                self.fail(Failure::new(ErrorCode::CONNECTION_RESET, message));
            }
            _ => {}
        }
    }

    fn answered(&mut self, now: Instant, payload: Payload) {
        match payload {
            answer @ (Payload::QueryStorageResponse(_)
            | Payload::IdentifiedStorageResponse(_)
            | Payload::AnnouncedStorageResponse(_)) => {
                let described = match Described::of_answer(answer) {
                    Ok(Some(described)) => described,
                    Ok(None) => return,
                    Err(failure) => return self.fail(failure),
                };
                let (expected, storage) = (&self.place.storage, &described.storage);
                if storage != expected {
                    let message = format!(
                        "expected {} bytes in blocks of {}, as before, got {} in blocks of {}",
                        expected.total_size,
                        expected.block_size,
                        storage.total_size,
                        storage.block_size
                    );
                    return self.fail(Failure::new(ErrorCode::BAD_STATE, message));
                }
                let wanted = self.place.features;
                // A target with an identity is queried for its extensions separately.
                let is_to_ask = wanted & !described.features != 0 && described.identity.is_some();
                self.described = Some(described);
                if is_to_ask {
                    let id = self.send(now, feature_query(wanted));
                    self.step = Step::Features(id);
                } else {
                    self.await_admission();
                }
            }
            Payload::InitStorageResponse | Payload::VerifiedInitStorageResponse(_) => {
                self.export(now);
            }
            Payload::CreateRdmaConnectionResponse(details) => {
                let expected = self.connections.current();
                if (details.context_index, details.role) != expected {
                    let (index, role) = expected;
                    return self.fail(Failure::unexpected(format!(
                        "expected the {role} connection of context {index}, got the {} connection of context {}",
                        details.role, details.context_index
                    )));
                }
                let command = WorkerCommand::Connect {
                    target: self.place.target,
                    role: details.role,
                    details: details.connection_details,
                };
                self.command(now, Step::Connect, details.context_index, command);
            }
            Payload::StartStorageResponse => {
                let workers = self.place.core_count;
                for worker in 0..workers {
                    let target = self.place.target;
                    self.command(
                        now,
                        Step::Attach(workers),
                        worker,
                        WorkerCommand::Attach { target },
                    );
                }
            }
            other => {
                let came = other.message_type();
                self.fail(Failure::unexpected(format!("unexpected {came}")));
            }
        }
    }

    fn await_admission(&mut self) {
        if let Some(described) = self.described.take() {
            self.identity.clone_from(&described.identity);
            self.features = described.features;
            self.step = Step::Admission;
            self.actions.push_back(RejoinAction::Admit(described));
        }
    }

    fn admitted(&mut self, now: Instant, judgement: Result<bool, Failure>) {
        match (self.step, judgement) {
            (Step::Admission, Ok(has_kept)) => {
                self.has_kept = has_kept;
                self.check_features(now);
            }
            (Step::Admission, Err(failure)) => self.fail(failure),
            _ => {}
        }
    }

    /// Checks the extensions announced by the target, and begins the target's part of the session.
    fn check_features(&mut self, now: Instant) {
        let missing = self.place.features & !self.features;
        if missing != 0 {
            let message = format!(
                "it lacks extensions of the data path that this session uses ({missing:#x}; 0x1 is flush, which targets with their blocks in \
                 memory do not have); it can take part in a new session"
            );
            return self.fail(Failure::new(ErrorCode::NOT_SUPPORTED, message));
        }
        let init = self.place.init.clone();
        self.ask(now, init, MessageType::InitStorageResponse);
    }

    fn command_done(&mut self, now: Instant, worker: u32, reply: Result<Reply, Failure>) {
        let reply = match reply {
            Ok(reply) => reply,
            Err(failure) => return self.fail(failure.context(format_args!("worker {worker}"))),
        };
        match (self.step, reply) {
            (Step::Export, Reply::Exported(export)) => {
                let (context_index, role) = self.connections.current();
                let request = Payload::CreateRdmaConnectionRequest(RdmaConnectionDetails {
                    context_index,
                    role,
                    connection_details: export.into(),
                });
                self.ask(now, request, MessageType::CreateRdmaConnectionResponse);
            }
            (Step::Connect, Reply::Done) => match self.connections.advance() {
                Some(_) => self.export(now),
                None => {
                    self.ask(
                        now,
                        Payload::StartStorageRequest,
                        MessageType::StartStorageResponse,
                    );
                }
            },
            (Step::Attach(1), Reply::Done) => {
                let (identity, has_kept) = (self.identity.take(), self.has_kept);
                self.end(Ok(Returned { identity, has_kept }));
            }
            (Step::Attach(left), Reply::Done) => self.step = Step::Attach(left - 1),
            (Step::Ended, _) => {}
            (_, reply) => {
                self.fail(Failure::unexpected(format!(
                    "worker {worker} gave another reply: {reply:?}"
                )));
            }
        }
    }

    fn export(&mut self, now: Instant) {
        let (worker, role) = self.connections.current();
        let target = self.place.target;
        self.command(
            now,
            Step::Export,
            worker,
            WorkerCommand::Export { target, role },
        );
    }

    fn command(&mut self, now: Instant, step: Step, worker: u32, command: WorkerCommand) {
        self.step = step;
        self.deadline = now + self.timeout;
        self.actions
            .push_back(RejoinAction::Command { worker, command });
    }

    fn ask(&mut self, now: Instant, payload: Payload, expected: MessageType) {
        let id = self.send(now, payload);
        self.step = Step::Answer(expected, id);
    }

    /// Sends a request, and returns its id.
    fn send(&mut self, now: Instant, payload: Payload) -> u32 {
        let message = self.ids.request(0, payload);
        let id = message.message_id;
        self.deadline = now + self.timeout;
        self.actions.push_back(RejoinAction::Send(message));
        id
    }

    fn end(&mut self, result: Result<Returned, Failure>) {
        self.step = Step::Ended;
        self.actions.push_back(RejoinAction::End(result));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::control::{
        AnnouncedStorage, ErrorResponse, FEATURE_FLUSH, IdentityQuery, InitStorage,
        RdmaConnectionRole,
    };

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);
    const STORAGE: StorageDetails = StorageDetails {
        total_size: 1 << 20,
        block_size: 512,
    };

    /// Harness: an attempt with a cooperative target and cooperative workers.
    struct World {
        now: Instant,
        rejoin: Rejoin,
        storage: StorageDetails,
        /// The identity of the target's storage, if it has one.
        identity: Option<Bytes>,
        /// Result of the admission.
        judgement: Result<bool, Failure>,
        /// Description passed to the admission.
        described: Option<Described>,
        /// Request that the target does not answer.
        silent_at: Option<MessageType>,
        /// Extensions that the target has.
        features: u32,
        /// Requests to the target and commands to workers, in order.
        asked: Vec<String>,
        end: Option<Result<Returned, Failure>>,
    }

    impl World {
        fn new() -> Self {
            Self::with_features(0)
        }

        /// Creates a session that uses these extensions.
        fn with_features(features: u32) -> Self {
            let now = Instant::now();
            let init = InitStorage {
                transaction_count: 128,
                core_count: 2,
                mmap_export_blob: Bytes::from_static(b"service memory"),
            };
            let place = Place {
                target: 1,
                name: "storage target data_2",
                storage: STORAGE,
                query: Payload::IdentifyStorageRequest(IdentityQuery::WITHOUT_SUPERBLOCK),
                features,
                core_count: init.core_count,
                init: Payload::InitStorageRequest(init),
            };
            Self {
                now,
                rejoin: Rejoin::new(now, place, TIMEOUT),
                storage: STORAGE,
                identity: None,
                judgement: Ok(false),
                described: None,
                silent_at: None,
                features: 0,
                asked: Vec::new(),
                end: None,
            }
        }

        fn event(&mut self, event: ChannelEvent) {
            self.rejoin.handle(RejoinEvent::Channel(event), self.now);
            self.run();
        }

        fn run(&mut self) {
            while let Some(action) = self.rejoin.poll_action() {
                match action {
                    RejoinAction::Send(request) => self.target(&request),
                    RejoinAction::Admit(described) => {
                        self.asked.push("admit".to_owned());
                        self.described = Some(described);
                        let judgement = self.judgement.clone();
                        self.rejoin
                            .handle(RejoinEvent::Admitted(judgement), self.now);
                    }
                    RejoinAction::Command { worker, command } => {
                        let name = format!("{command:?}");
                        let name = name.split([' ', '{']).next().expect("a name");
                        self.asked.push(format!("{name} {worker}"));
                        let reply = match command {
                            WorkerCommand::Export { .. } => Reply::Exported(b"ours".to_vec()),
                            WorkerCommand::Connect { .. } | WorkerCommand::Attach { .. } => {
                                Reply::Done
                            }
                        };
                        let reply = Ok(reply);
                        self.rejoin
                            .handle(RejoinEvent::CommandDone { worker, reply }, self.now);
                    }
                    RejoinAction::End(result) => self.end = Some(result),
                }
            }
        }

        fn target(&mut self, request: &Message) {
            let asked = request.payload.message_type();
            self.asked.push(asked.to_string());
            if self.silent_at == Some(asked) {
                return;
            }
            let answer = match &request.payload {
                Payload::IdentifyStorageRequest(_) => match self.identity.clone() {
                    None => Payload::QueryStorageResponse(self.storage.clone()),
                    Some(identity) => Payload::IdentifiedStorageResponse(
                        IdentityQuery::WITHOUT_SUPERBLOCK.answer(&self.storage, identity),
                    ),
                },
                Payload::AnnounceStorageRequest(_) => {
                    Payload::AnnouncedStorageResponse(AnnouncedStorage {
                        total_size: self.storage.total_size,
                        block_size: self.storage.block_size,
                        features: self.features,
                        version_slots: 0,
                        last_epoch: 0,
                        last_number: 0,
                        retired_epoch: 0,
                        retired_number: 0,
                        unretired: Bytes::new(),
                    })
                }
                Payload::InitStorageRequest(_) => Payload::InitStorageResponse,
                Payload::CreateRdmaConnectionRequest(details) => {
                    assert_eq!(details.connection_details, &b"ours"[..]);
                    Payload::CreateRdmaConnectionResponse(details.clone())
                }
                Payload::StartStorageRequest => Payload::StartStorageResponse,
                other => panic!("{other:?}"),
            };
            let answer = request.response(answer);
            self.rejoin.handle(
                RejoinEvent::Channel(ChannelEvent::Message(answer)),
                self.now,
            );
        }

        fn failure(&self) -> Failure {
            let end = self.end.clone().expect("it has ended");
            end.expect_err("it has failed")
        }

        /// Requires this error, with these values in its message.
        fn failed_with(&self, code: ErrorCode, values: &[&str]) {
            let failure = self.failure();
            assert_eq!(failure.code, code, "{failure}");
            for value in values {
                assert!(failure.message.contains(value), "{value}: {failure}");
            }
        }
    }

    #[test]
    fn rejoin_repeats_the_steps_of_a_session_in_order() {
        let mut world = World::new();
        world.event(ChannelEvent::Connected);
        let unknown = Returned {
            identity: None,
            has_kept: false,
        };
        assert_eq!(world.end, Some(Ok(unknown)));
        let connection = |worker| {
            [
                format!("Export {worker}"),
                "create_rdma_connection_request".to_owned(),
                format!("Connect {worker}"),
            ]
        };
        let mut expected = vec![
            "query_storage_request".to_owned(),
            "admit".to_owned(),
            "init_storage_request".to_owned(),
        ];
        for worker in [0, 0, 1, 1] {
            expected.extend(connection(worker));
        }
        expected.extend(["start_storage_request", "Attach 0", "Attach 1"].map(str::to_owned));
        assert_eq!(world.asked, expected);
    }

    #[test]
    fn rejoined_target_has_the_admitted_state() {
        for has_kept in [true, false] {
            for identity in [Some(Bytes::from_static(b"same")), None] {
                let mut world = World::new();
                world.judgement = Ok(has_kept);
                world.identity = identity.clone();
                world.event(ChannelEvent::Connected);
                let described = world.described.clone().expect("it was judged");
                assert_eq!(
                    (&described.identity, &described.storage),
                    (&identity, &STORAGE)
                );
                assert_eq!(world.end, Some(Ok(Returned { identity, has_kept })));
            }
        }
    }

    #[test]
    fn target_of_another_set_gets_no_further_requests() {
        let mut world = World::new();
        world.judgement = Err(Failure::new(ErrorCode::BAD_STATE, "foreign"));
        world.event(ChannelEvent::Connected);
        world.failed_with(ErrorCode::BAD_STATE, &["data_2", "foreign"]);
        assert_eq!(world.asked, ["query_storage_request", "admit"]);
        // A repeated admission has no effect.
        world.end = None;
        world
            .rejoin
            .handle(RejoinEvent::Admitted(Ok(true)), world.now);
        world.run();
        assert_eq!((world.end.clone(), world.asked.len()), (None, 2));
    }

    #[test]
    fn target_of_another_size_does_not_rejoin() {
        let mut world = World::new();
        world.storage.total_size *= 2;
        world.event(ChannelEvent::Connected);
        world.failed_with(ErrorCode::BAD_STATE, &["data_2", "1048576", "2097152"]);
        assert_eq!(world.asked.len(), 1);
    }

    #[test]
    fn target_without_the_sessions_extensions_does_not_rejoin() {
        for (identity, features, comes_back) in [
            (Some(Bytes::from_static(b"it")), FEATURE_FLUSH, true),
            (Some(Bytes::from_static(b"it")), 0, false),
            // A target of the reference, without extensions.
            (None, FEATURE_FLUSH, false),
        ] {
            let mut world = World::with_features(FEATURE_FLUSH);
            (world.identity, world.features) = (identity, features);
            world.event(ChannelEvent::Connected);
            let end = world.end.expect("it has ended");
            assert_eq!(end.is_ok(), comes_back, "{end:?}");
            if let Err(failure) = end {
                assert_eq!(failure.code, ErrorCode::NOT_SUPPORTED);
                assert!(!world.asked.iter().any(|asked| asked.contains("init")));
            }
        }
    }

    #[test]
    fn rejoin_of_an_unresponsive_target_times_out() {
        for step in [
            MessageType::QueryStorageRequest,
            MessageType::InitStorageRequest,
            MessageType::CreateRdmaConnectionRequest,
            MessageType::StartStorageRequest,
        ] {
            let mut world = World::new();
            world.silent_at = Some(step);
            world.event(ChannelEvent::Connected);
            let deadline = world.now + TIMEOUT;
            assert_eq!(world.rejoin.poll_timeout(), Some(deadline));
            let before = deadline - Duration::from_millis(1);
            world.rejoin.handle(RejoinEvent::Timeout, before);
            world.run();
            assert_eq!(world.end, None);
            world.rejoin.handle(RejoinEvent::Timeout, deadline);
            world.run();
            assert_eq!(world.failure().code, ErrorCode::TIME_OUT, "{step}");
            assert_eq!(world.rejoin.poll_timeout(), None);
            // A late response has no effect.
            world.end = None;
            world.event(ChannelEvent::Closed);
            assert_eq!(world.end, None);
        }
    }

    #[test]
    fn target_that_disconnects_refuses_or_sends_wrong_messages_does_not_rejoin() {
        let error = Payload::ErrorResponse(ErrorResponse {
            error_code: ErrorCode::IN_USE.0,
            message: "busy".to_owned(),
        });
        let other = Payload::CreateRdmaConnectionResponse(RdmaConnectionDetails {
            context_index: 1,
            role: RdmaConnectionRole::IoData,
            connection_details: Bytes::new(),
        });
        for (silent_at, answer, code, value) in [
            (
                MessageType::QueryStorageRequest,
                None,
                ErrorCode::CONNECTION_RESET,
                "data_2",
            ),
            (
                MessageType::InitStorageRequest,
                Some((1, error)),
                ErrorCode::IN_USE,
                "busy",
            ),
            (
                MessageType::InitStorageRequest,
                Some((0, Payload::InitStorageResponse)),
                ErrorCode::UNEXPECTED,
                "init_storage_response",
            ),
            (
                MessageType::CreateRdmaConnectionRequest,
                Some((2, other)),
                ErrorCode::UNEXPECTED,
                "context 0",
            ),
        ] {
            let mut world = World::new();
            world.silent_at = Some(silent_at);
            world.event(ChannelEvent::Connected);
            world.event(match answer {
                None => ChannelEvent::Closed,
                Some((message_id, payload)) => ChannelEvent::Message(Message {
                    message_id,
                    correlation_id: 0,
                    payload,
                }),
            });
            world.failed_with(code, &[value]);
        }
    }

    #[test]
    fn error_of_a_worker_names_it() {
        let mut world = World::new();
        world.silent_at = Some(MessageType::QueryStorageRequest);
        world.event(ChannelEvent::Connected);
        let failure = Failure::new(ErrorCode::NO_MEMORY, "oversized");
        let done = RejoinEvent::CommandDone {
            worker: 1,
            reply: Err(failure),
        };
        world.rejoin.handle(done, world.now);
        world.run();
        world.failed_with(ErrorCode::NO_MEMORY, &["worker 1", "oversized"]);
    }
}
