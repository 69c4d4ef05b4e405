//! The control session of the gga_offload service: three targets with chunks of stored blocks, presented to the initiator as one storage.

use control::Failure;
use doca::ErrorCode;
use gga_engine::Placement;
use gga_engine::chunk;
use role_common::service::session::{self, Layout};
use role_formats::stored_block::{Geometry, HALF_ALIGNMENT, STORED_ALIGNMENT};
use role_formats::superblock::Format;
use wire::control::{FEATURE_FLUSH, FEATURE_VERIFIER, FEATURE_VERSIONS, StorageDetails};

/// The session of a service with three targets.
pub type Session = session::Session<Striped>;

/// Layout of stored blocks: two data chunks on two targets, their parity chunk on the third.
#[derive(Debug, Clone, Copy, Default)]
pub struct Striped {
    /// Size of the initiator's blocks in bytes; `None` for the size of stored blocks.
    pub logical_block_size: Option<u32>,
    /// Placement of stored blocks on the targets.
    pub placement: Placement,
}

impl Striped {
    /// Format of the blocks on the targets.
    #[must_use]
    pub fn format(&self) -> Format {
        if self.logical_block_size.is_some() {
            Format::StoredChunks
        } else {
            Format::StoredBlocks
        }
    }

    /// Sizes of stored blocks and content on a target with this storage.
    ///
    /// # Errors
    ///
    /// Half blocks of this size cannot be encoded, or have no room for the content.
    pub fn geometry(&self, target: &StorageDetails) -> Result<Geometry, Failure> {
        let held = target.block_size;
        let stored = self.placement.stored_block_size(held);
        let stored = stored.filter(|size| *size != 0 && size.is_multiple_of(STORED_ALIGNMENT));
        let Some(stored_block_size) = stored else {
            let alignment = match self.placement {
                Placement::HalfBlocks => HALF_ALIGNMENT,
                Placement::WholeBlocks => STORED_ALIGNMENT,
            };
            return Err(Failure::new(
                ErrorCode::NOT_SUPPORTED,
                format!(
                    "block size of the targets: expected a multiple of {alignment} below 2 GiB, as erasure coding \
                     needs, got {held}"
                ),
            ));
        };
        let Some(logical_block_size) = self.logical_block_size else {
            return Ok(Geometry::compatible(stored_block_size));
        };
        if chunk::has_room(held, logical_block_size) {
            return Ok(Geometry {
                stored_block_size,
                logical_block_size,
            });
        }
        let needed = chunk::size_for(logical_block_size).unwrap_or(u32::MAX);
        Err(Failure::invalid(format!(
            "block size of the targets: --logical-block-size {logical_block_size} needs targets with blocks of at least \
             {needed} bytes, got {held}"
        )))
    }
}

impl Layout for Striped {
    const TARGETS: &'static [&'static str] = &[
        "storage target data_1",
        "storage target data_2",
        "storage target data_p",
    ];

    fn quorum(&self) -> usize {
        match self.format() {
            Format::StoredChunks => 2,
            Format::StoredBlocks => Self::TARGETS.len(),
        }
    }

    fn present(&self, targets: &[StorageDetails]) -> Result<StorageDetails, Failure> {
        let [first, others @ ..] = targets else {
            return Err(Failure::unexpected("no target answered"));
        };
        for (name, other) in Self::TARGETS[1..].iter().zip(others) {
            for (what, expected, came) in [
                ("capacity", first.total_size, other.total_size),
                (
                    "block_size",
                    first.block_size.into(),
                    other.block_size.into(),
                ),
            ] {
                if expected != came {
                    let message = format!(
                        "Mismatch in {what}: {expected} vs {came} ({} vs {name})",
                        Self::TARGETS[0]
                    );
                    return Err(Failure::new(ErrorCode::BAD_STATE, message));
                }
            }
        }
        let geometry = self.geometry(first)?;
        let block_count = first.total_size / u64::from(first.block_size);
        let total_size = block_count
            .checked_mul(geometry.logical_block_size.into())
            .ok_or_else(|| {
                Failure::invalid(format!(
                    "capacity of the targets: {} bytes are too many to be doubled",
                    first.total_size
                ))
            })?;
        tracing::info!(
            "{block_count} stored blocks of {} bytes for blocks of {} bytes",
            geometry.stored_block_size,
            geometry.logical_block_size
        );
        Ok(StorageDetails {
            total_size,
            block_size: geometry.logical_block_size,
        })
    }

    const FEATURES: u32 = FEATURE_FLUSH | FEATURE_VERIFIER;

    /// Chunks are written in versions.
    fn own_features(&self) -> u32 {
        match self.format() {
            Format::StoredChunks => FEATURE_VERSIONS,
            Format::StoredBlocks => 0,
        }
    }

    /// Supported only if all targets support them: a flush is sent to all of them, and the verifier is derived from
    /// theirs.
    fn features(&self, targets: &[u32]) -> u32 {
        targets.iter().fold(u32::MAX, |all, target| all & target)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use bytes::Bytes;
    use control::ChannelEvent;
    use control::Failure;
    use doca::ErrorCode;
    use role_common::service::session::{Action, Event, Job, Outcome};
    use role_target::session::{
        Action as TargetAction, Event as TargetEvent, Geometry, Job as TargetJob,
        Outcome as TargetOutcome, Session as TargetSession,
    };
    use wire::control::{
        ErrorResponse, InitStorage, Message, MessageType, Payload, StorageDetails,
    };

    use super::*;

    fn init(core_count: u32, transaction_count: u32) -> Payload {
        let mmap_export_blob = Bytes::from_static(b"host memory");
        Payload::InitStorageRequest(InitStorage {
            transaction_count,
            core_count,
            mmap_export_blob,
        })
    }

    #[test]
    fn a_session_with_three_targets_from_query_to_shutdown() {
        let mut world = World::new();
        let doubled = StorageDetails {
            total_size: 8192,
            block_size: 1024,
        };
        assert_eq!(
            world.request(Payload::QueryStorageRequest),
            Some(Payload::QueryStorageResponse(doubled))
        );
        assert_eq!(
            world.request(init(1, 64)),
            Some(Payload::InitStorageResponse)
        );
        // Each target is given memory of the service, not the initiator's, and has both connections.
        for target in 0..3 {
            let jobs = world.target_jobs(target);
            assert!(jobs[0].contains("transaction_count: 128"), "{jobs:?}");
            assert!(jobs[0].contains("b\"service-memory\""), "{jobs:?}");
            assert!(
                jobs[1].contains("IoData") && jobs[2].contains("IoControl"),
                "{jobs:?}"
            );
            assert!(
                jobs[1].contains(&format!("b\"service-end-{target}\"")),
                "{jobs:?}"
            );
        }
        let own: Vec<&str> = world
            .jobs
            .iter()
            .map(|job| job.split([' ', '(']).next().expect("name"))
            .collect();
        let connection = [
            "Export", "Export", "Export", "Connect", "Connect", "Connect",
        ];
        let expected = [
            &["PrepareMemory", "CreateWorker"][..],
            &connection,
            &connection,
        ]
        .concat();
        assert_eq!(own, expected, "all exports before the first connect");

        world.client(ChannelEvent::ConsumerAdded(11));
        assert_eq!(
            world.request(Payload::StartStorageRequest),
            Some(Payload::StartStorageResponse)
        );
        assert_eq!(
            world.request(Payload::StopStorageRequest),
            Some(Payload::StopStorageResponse)
        );
        world.client(ChannelEvent::ConsumerExpired(11));
        assert_eq!(
            world.request(Payload::ShutdownRequest),
            Some(Payload::ShutdownResponse)
        );
        assert_eq!(world.end, Some(Ok(())));
        assert!(
            world
                .sent
                .iter()
                .all(|(_, message)| message.correlation_id == 77)
        );
        let mut ids: Vec<u32> = world
            .sent
            .iter()
            .map(|(_, message)| message.message_id)
            .collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(
            ids.len(),
            3 * 7,
            "own message ids for all requests to all targets"
        );
    }

    #[test]
    fn incompatible_targets_are_named_in_the_response() {
        let mut world = World::new();
        world.storage[2].total_size = 2048;
        let error = world.error(Payload::QueryStorageRequest);
        assert_eq!(error.error_code, ErrorCode::BAD_STATE.0);
        let expected = "Mismatch in capacity: 4096 vs 2048";
        assert!(error.message.starts_with(expected), "{}", error.message);
        assert!(error.message.contains("data_p"), "{}", error.message);

        let mut world = World::new();
        world.storage[1].block_size = 256;
        let error = world.error(Payload::QueryStorageRequest);
        let expected = "Mismatch in block_size: 512 vs 256";
        assert!(error.message.starts_with(expected), "{}", error.message);
        assert!(error.message.contains("data_2"), "{}", error.message);
        assert_eq!(world.ended_with().code, ErrorCode::BAD_STATE);
    }

    #[test]
    fn timeout_names_the_unresponsive_target() {
        let mut world = World::new();
        world.script = Script::Silent(1);
        assert_eq!(world.request(Payload::QueryStorageRequest), None);
        assert_eq!(
            world.service.waiting_for(),
            "the query_storage_response of the storage target data_2"
        );
        world
            .service
            .handle(Event::Timeout, world.now + Duration::from_secs(5));
        world.run();
        let Some(Payload::ErrorResponse(error)) = world.answer() else {
            panic!("expected an error")
        };
        assert_eq!(error.error_code, ErrorCode::TIME_OUT.0);
        assert!(error.message.contains("data_2"), "{}", error.message);
    }

    #[test]
    fn refusal_of_a_target_is_reported_with_its_name() {
        for (target, name) in Striped::TARGETS.iter().enumerate() {
            let mut world = World::new();
            world.request(Payload::QueryStorageRequest);
            world.script = Script::Refuses(target);
            let error = world.error(init(1, 1));
            assert_eq!(error.error_code, ErrorCode::NOT_PERMITTED.0);
            assert!(error.message.contains("declined"), "{}", error.message);
            world.failed_with(ErrorCode::NOT_PERMITTED, name);
        }
    }

    #[test]
    fn a_target_may_leave_after_its_shutdown_and_not_before() {
        let mut world = World::new();
        world.run_to_stop();
        world.script = Script::Silent(0);
        assert_eq!(world.request(Payload::ShutdownRequest), None);
        world.storage_event(2, ChannelEvent::Closed);
        assert_eq!(world.end, None, "data_p had answered");
        world.storage_event(0, ChannelEvent::Closed);
        world.failed_with(ErrorCode::CONNECTION_RESET, "data_1");

        // The last response makes the service destroy its workers; simultaneous events are handled before that.
        let mut world = World::new();
        world.run_to_stop();
        world.script = Script::LeavesAtOnce(2);
        assert_eq!(
            world.request(Payload::ShutdownRequest),
            Some(Payload::ShutdownResponse)
        );
        assert_eq!(world.end, Some(Ok(())));

        let mut world = World::new();
        world.request(Payload::QueryStorageRequest);
        world.storage_event(1, ChannelEvent::Closed);
        world.failed_with(ErrorCode::CONNECTION_RESET, "data_2");
    }

    #[test]
    fn an_answer_with_another_targets_id_is_refused() {
        let mut world = World::new();
        world.script = Script::Silent(0);
        world.request(Payload::QueryStorageRequest);
        let (_, asked) = &world.sent[2];
        let answer = asked.response(Payload::QueryStorageResponse(world.storage[2].clone()));
        world.storage_event(0, ChannelEvent::Message(answer));
        let failure = world.ended_with();
        assert_eq!(failure.code, ErrorCode::UNEXPECTED);
        assert!(failure.message.contains("data_1"), "{failure}");
        assert!(
            failure
                .message
                .contains(&MessageType::QueryStorageResponse.to_string())
        );
    }

    // Storage details, as seen by the initiator.

    fn targets(total_size: u64, block_size: u32) -> [StorageDetails; 3] {
        [0; 3].map(|_| StorageDetails {
            total_size,
            block_size,
        })
    }

    #[test]
    fn flushes_are_announced_when_all_targets_have_them() {
        use wire::control::FEATURE_FLUSH;
        for (targets, expected) in [
            (&[FEATURE_FLUSH; 3][..], FEATURE_FLUSH),
            (&[FEATURE_FLUSH; 2], FEATURE_FLUSH),
            (&[FEATURE_FLUSH, 0, FEATURE_FLUSH], 0),
            (&[0; 3], 0),
        ] {
            let features = Striped::default().features(targets) & Striped::FEATURES;
            assert_eq!(features, expected, "{targets:?}");
        }
    }

    #[test]
    fn blocks_are_twice_as_large_and_as_many() {
        let seen = Striped::default().present(&targets(1 << 20, 2048));
        let expected = StorageDetails {
            total_size: 2 << 20,
            block_size: 4096,
        };
        assert_eq!(seen, Ok(expected));
    }

    #[test]
    fn whole_blocks_on_the_targets_are_as_large_and_as_many_as_the_initiators() {
        let layout = Striped {
            placement: Placement::WholeBlocks,
            ..Striped::default()
        };
        let expected = StorageDetails {
            total_size: 1 << 20,
            block_size: 4096,
        };
        assert_eq!(layout.present(&targets(1 << 20, 4096)), Ok(expected));
        // Half of the block size has to be a multiple of 64.
        let failure = layout.present(&targets(64 << 10, 64)).expect_err("refused");
        assert_eq!(failure.code, ErrorCode::NOT_SUPPORTED);
    }

    #[test]
    fn logical_block_size_hides_the_stored_size() {
        let layout = Striped {
            logical_block_size: Some(4096),
            ..Striped::default()
        };
        let seen = layout.present(&targets(2112 * 100, 2112));
        let expected = StorageDetails {
            total_size: 4096 * 100,
            block_size: 4096,
        };
        assert_eq!(seen, Ok(expected));
        let failure = layout
            .present(&targets(2048 * 100, 2048))
            .expect_err("too small");
        assert_eq!(failure.code, ErrorCode::INVALID_VALUE);
        for value in ["--logical-block-size", "2112", "2048"] {
            assert!(failure.message.contains(value), "{failure}");
        }
    }

    #[test]
    fn half_blocks_that_cannot_be_encoded_are_refused() {
        for wrong in [0, 100, 1 << 31] {
            let failure = Striped::default()
                .present(&targets(1 << 40, wrong))
                .expect_err("refused");
            assert_eq!(failure.code, ErrorCode::NOT_SUPPORTED);
            for value in [HALF_ALIGNMENT, wrong] {
                assert!(failure.message.contains(&value.to_string()), "{failure}");
            }
        }
    }

    #[test]
    fn a_capacity_that_cannot_be_doubled_is_refused() {
        let failure = Striped::default()
            .present(&targets(!2047, 2048))
            .expect_err("too much");
        assert_eq!(failure.code, ErrorCode::INVALID_VALUE);
        assert!(
            failure.message.contains(&(!2047_u64).to_string()),
            "{failure}"
        );
    }

    // Sessions that continue without a target.

    /// A session that is serving I/Os.
    fn serving() -> World {
        let mut world = World::new();
        world.request(Payload::QueryStorageRequest);
        world.request(init(1, 1));
        world.client(ChannelEvent::ConsumerAdded(11));
        world.request(Payload::StartStorageRequest);
        world
    }

    fn lose(world: &mut World, target: usize) {
        assert!(world.service.may_lose(target));
        world.service.handle(Event::Lost { target }, world.now);
        world.run();
        assert!(world.service.is_without(target) && !world.service.may_lose(target));
    }

    #[test]
    fn detached_target_gets_no_requests_and_owes_no_response() {
        for lost in 0..3 {
            let mut world = serving();
            lose(&mut world, lost);
            let before = world.sent.len();
            world.storage_event(lost, ChannelEvent::Closed);
            let stopped = world.request(Payload::StopStorageRequest);
            assert_eq!(stopped, Some(Payload::StopStorageResponse));
            world.client(ChannelEvent::ConsumerExpired(11));
            let shut_down = world.request(Payload::ShutdownRequest);
            assert_eq!(shut_down, Some(Payload::ShutdownResponse));
            assert_eq!(world.end, Some(Ok(())));
            let asked: Vec<usize> = world.sent[before..]
                .iter()
                .map(|(target, _)| *target)
                .collect();
            let others: Vec<usize> = (0..3).filter(|&target| target != lost).collect();
            assert_eq!(asked, [&others[..], &others].concat());
        }
    }

    #[test]
    fn session_ends_in_order_without_any_target() {
        let mut world = serving();
        (0..3).for_each(|target| lose(&mut world, target));
        let stopped = world.request(Payload::StopStorageRequest);
        assert_eq!(stopped, Some(Payload::StopStorageResponse));
    }

    #[test]
    fn response_of_a_detached_target_is_not_waited_for() {
        for stage in [Payload::StopStorageRequest, Payload::ShutdownRequest] {
            let mut world = serving();
            if stage == Payload::ShutdownRequest {
                world.request(Payload::StopStorageRequest);
                world.client(ChannelEvent::ConsumerExpired(11));
            }
            world.script = Script::Silent(1);
            assert_eq!(world.request(stage), None);
            lose(&mut world, 1);
            assert!(world.answer().is_some());
        }
    }

    #[test]
    fn targets_cannot_be_detached_before_or_after_io() {
        let mut world = World::new();
        assert!(!world.service.may_lose(0));
        world.request(Payload::QueryStorageRequest);
        world.request(init(1, 1));
        assert!(!world.service.may_lose(0));
        world.service.handle(Event::Lost { target: 0 }, world.now);
        assert!(!world.service.is_without(0));

        let mut world = World::new();
        world.run_to_stop();
        world.request(Payload::ShutdownRequest);
        assert!(!world.service.may_lose(0));
    }

    #[test]
    fn target_that_disconnects_after_shutdown_is_not_detached() {
        let mut world = World::new();
        world.run_to_stop();
        world.script = Script::Silent(0);
        world.request(Payload::ShutdownRequest);
        assert!(world.service.may_lose(0) && !world.service.may_lose(1));
    }

    #[test]
    fn targets_are_queried_for_identities_on_request() {
        let mut plain = World::new();
        plain.request(Payload::QueryStorageRequest);
        assert!(
            plain
                .sent
                .iter()
                .all(|(_, message)| message.payload == Payload::QueryStorageRequest)
        );

        // Targets without support for identities.
        let mut world = World::new();
        world.service.maintain_superblocks();
        let answer = world.request(Payload::QueryStorageRequest);
        assert!(matches!(answer, Some(Payload::QueryStorageResponse(_))));
        let asked = |message: &wire::control::Message| {
            matches!(message.payload, Payload::IdentifyStorageRequest(_))
        };
        assert!(world.sent.len() == 3 && world.sent.iter().all(|(_, message)| asked(message)));
        world.request(init(1, 1));
        world.client(ChannelEvent::ConsumerAdded(11));
        world.request(Payload::StartStorageRequest);
        assert_eq!(world.service.place(1), None, "it is there");
        lose(&mut world, 1);
        let place = world.service.place(1).expect("it may come back");
        assert_eq!(place.target, 1);
        let (init, _) = place.init.as_init_storage().expect("an init request");
        assert_eq!(init.transaction_count, 2);
        let identity = None;
        world.service.handle(
            Event::Rejoined {
                target: 1,
                identity,
            },
            world.now,
        );
        assert!(world.service.may_lose(1));
        lose(&mut world, 1);
        world.request(Payload::StopStorageRequest);
        assert_eq!(world.service.place(1), None, "not while all is stopped");
    }

    // A session of the service between a test that plays the initiator and the sessions of three targets.

    /// Deviation of one target.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Script {
        Honest,
        Silent(usize),
        Refuses(usize),
        /// Answers, and closes its connection immediately after the answer.
        LeavesAtOnce(usize),
    }

    struct World {
        now: Instant,
        service: Session,
        targets: Vec<TargetSession>,
        /// Storage details that the targets report.
        storage: [StorageDetails; 3],
        script: Script,
        jobs: Vec<String>,
        target_jobs: [Vec<String>; 3],
        sent: Vec<(usize, Message)>,
        answers: Vec<Message>,
        end: Option<Result<(), Failure>>,
        next_id: u32,
    }

    impl World {
        fn new() -> Self {
            let geometry = Geometry {
                block_size: 512,
                block_count: 8,
            };
            let details = StorageDetails {
                total_size: 4096,
                block_size: 512,
            };
            let mut world = Self {
                now: Instant::now(),
                service: Session::new(Striped::default(), 1, Duration::from_secs(5)),
                targets: (0..3).map(|_| TargetSession::new(geometry, 1)).collect(),
                storage: [details.clone(), details.clone(), details],
                script: Script::Honest,
                jobs: Vec::new(),
                target_jobs: Default::default(),
                sent: Vec::new(),
                answers: Vec::new(),
                end: None,
                next_id: 1000,
            };
            for target in 0..3 {
                let event = ChannelEvent::Connected;
                world
                    .service
                    .handle(Event::Storage { target, event }, world.now);
            }
            world.run();
            world
        }

        fn run(&mut self) {
            while let Some(action) = self.service.poll_action() {
                assert!(self.end.is_none(), "{action:?} after the end");
                match action {
                    Action::Announce | Action::Leave { .. } | Action::Stalled { .. } => {}
                    Action::SendToClient(message) => self.answers.push(message),
                    Action::SendToStorage { target, message } => {
                        self.sent.push((target, message.clone()));
                        self.target_receives(target, message);
                    }
                    Action::Do(job) => {
                        self.jobs.push(format!("{job:?}"));
                        let outcome = match job {
                            Job::PrepareMemory(_) => {
                                Outcome::Exported(Bytes::from_static(b"service-memory"))
                            }
                            Job::Verify(targets) => Outcome::Verified(targets[2].clone()),
                            Job::Export { target, .. } => {
                                Outcome::Exported(Bytes::from(format!("service-end-{target}")))
                            }
                            _ => Outcome::Done,
                        };
                        self.service.handle(Event::JobDone(Ok(outcome)), self.now);
                    }
                    Action::End(result) => self.end = Some(result),
                }
            }
        }

        fn target_receives(&mut self, target: usize, message: Message) {
            if self.script == Script::Silent(target) {
                return;
            }
            if self.script == Script::Refuses(target) {
                let refusal = Payload::ErrorResponse(ErrorResponse {
                    error_code: doca::ErrorCode::NOT_PERMITTED.0,
                    message: "declined".to_owned(),
                });
                let answer = message.response(refusal);
                let event = ChannelEvent::Message(answer);
                self.service
                    .handle(Event::Storage { target, event }, self.now);
                return;
            }
            let session = &mut self.targets[target];
            session.handle(
                TargetEvent::Service(ChannelEvent::Message(message)),
                self.now,
            );
            let mut answer = loop {
                match session.poll_action().expect("an answer") {
                    TargetAction::Send(answer) => break answer,
                    TargetAction::Do(job) => {
                        let outcome = match &job {
                            TargetJob::Connect(_) => {
                                TargetOutcome::Exported(Bytes::from_static(b"target end"))
                            }
                            _ => TargetOutcome::Done,
                        };
                        self.target_jobs[target].push(format!("{job:?}"));
                        session.handle(TargetEvent::JobDone(Ok(outcome)), self.now);
                    }
                    TargetAction::End(result) => panic!("{result:?}"),
                }
            };
            if let Payload::QueryStorageResponse(details) = &mut answer.payload {
                *details = self.storage[target].clone();
            }
            let event = ChannelEvent::Message(answer);
            self.service
                .handle(Event::Storage { target, event }, self.now);
            if self.script == Script::LeavesAtOnce(target) {
                let event = ChannelEvent::Closed;
                self.service
                    .handle(Event::Storage { target, event }, self.now);
            }
        }

        fn target_jobs(&self, target: usize) -> &[String] {
            &self.target_jobs[target]
        }

        fn client(&mut self, event: ChannelEvent) {
            self.service.handle(Event::Client(event), self.now);
            self.run();
        }

        fn storage_event(&mut self, target: usize, event: ChannelEvent) {
            self.service
                .handle(Event::Storage { target, event }, self.now);
            self.run();
        }

        /// Sends a request and returns the immediate response, if any.
        fn request(&mut self, payload: Payload) -> Option<Payload> {
            self.next_id += 1;
            let request = Message {
                message_id: self.next_id,
                correlation_id: 77,
                payload,
            };
            self.client(ChannelEvent::Message(request));
            self.answer()
        }

        fn answer(&mut self) -> Option<Payload> {
            let answer = self.answers.pop()?;
            assert!(self.answers.is_empty(), "one answer per request");
            let ids = (answer.message_id, answer.correlation_id);
            assert_eq!(ids, (self.next_id, 77), "the request's ids come back");
            Some(answer.payload)
        }

        fn error(&mut self, payload: Payload) -> ErrorResponse {
            match self.request(payload) {
                Some(Payload::ErrorResponse(error)) => error,
                other => panic!("expected an error, got {other:?}"),
            }
        }

        fn ended_with(&self) -> &Failure {
            let end = self.end.as_ref().expect("the end");
            end.as_ref().expect_err("a failure")
        }

        /// Requires that the session has ended with this error, which names the target.
        fn failed_with(&self, code: ErrorCode, target: &str) {
            let failure = self.ended_with();
            assert_eq!(failure.code, code, "{failure}");
            assert!(failure.message.contains(target), "{failure}");
        }

        /// A complete session, except for the shutdown.
        fn run_to_stop(&mut self) {
            self.request(Payload::QueryStorageRequest);
            self.request(init(1, 1));
            self.client(ChannelEvent::ConsumerAdded(11));
            self.request(Payload::StartStorageRequest);
            self.request(Payload::StopStorageRequest);
            self.client(ChannelEvent::ConsumerExpired(11));
        }
    }
}
