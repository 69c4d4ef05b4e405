use bytes::Bytes;
use wire::control::{
    AnnouncedStorage, ErrorResponse, FEATURE_FLUSH, IdentifiedStorage, InitStorage,
    RdmaConnectionRole, RecordState,
};

use super::*;
use crate::superblock::QUESTION;

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
            query: Payload::IdentifyStorageRequest(QUESTION),
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
                        WorkerCommand::Connect { .. } | WorkerCommand::Attach { .. } => Reply::Done,
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
                Some(identity) => Payload::IdentifiedStorageResponse(IdentifiedStorage {
                    total_size: self.storage.total_size,
                    block_size: self.storage.block_size,
                    set_high: 0,
                    set_low: 0,
                    epoch: 0,
                    epoch_id: 0,
                    next_epoch: 0,
                    next_epoch_id: 0,
                    member: 0,
                    state: RecordState::None,
                    flags: 0,
                    identity,
                }),
            },
            Payload::AnnounceStorageRequest(_) => {
                Payload::AnnouncedStorageResponse(AnnouncedStorage {
                    total_size: self.storage.total_size,
                    block_size: self.storage.block_size,
                    features: self.features,
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

    fn failure(&self) -> String {
        let end = self.end.clone().expect("it has ended");
        end.expect_err("it has failed").to_string()
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
        for identity in [Some(Bytes::from_static(b"the one")), None] {
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
    world.judgement = Err(Failure::invalid("it is of another set"));
    world.event(ChannelEvent::Connected);
    let failure = world.failure();
    assert!(
        failure.contains("data_2") && failure.contains("of another set"),
        "{failure}"
    );
    assert_eq!(world.asked, ["query_storage_request", "admit"]);
    // A repeated admission changes nothing.
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
    let failure = world.failure();
    assert!(
        failure.contains("data_2") && failure.contains("expected 1048576 bytes"),
        "{failure}"
    );
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
        assert!(world.failure().contains("timed out"), "{step}");
        assert_eq!(world.rejoin.poll_timeout(), None);
        // A late response changes nothing.
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
    for (silent_at, answer, part) in [
        (MessageType::QueryStorageRequest, None, "it disconnected"),
        (MessageType::InitStorageRequest, Some((1, error)), "busy"),
        (
            MessageType::InitStorageRequest,
            Some((0, Payload::InitStorageResponse)),
            "message id",
        ),
        (
            MessageType::CreateRdmaConnectionRequest,
            Some((2, other)),
            "of context 0",
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
        let failure = world.failure();
        assert!(failure.contains(part), "{part}: {failure}");
    }
}

#[test]
fn error_of_a_worker_names_it() {
    let mut world = World::new();
    world.silent_at = Some(MessageType::QueryStorageRequest);
    world.event(ChannelEvent::Connected);
    let failure = Failure::new(ErrorCode::NO_MEMORY, "no room");
    let done = RejoinEvent::CommandDone {
        worker: 1,
        reply: Err(failure),
    };
    world.rejoin.handle(done, world.now);
    world.run();
    assert!(
        world.failure().contains("worker 1: no room"),
        "{}",
        world.failure()
    );
}
