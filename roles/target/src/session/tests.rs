use doca::ErrorCode;

use super::*;

const GEOMETRY: Geometry = Geometry {
    block_size: 512,
    block_count: 10,
};

const MAX_TRANSACTIONS: u32 = 8192;

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
    // Connections may come in any order.
    for (index, role) in [(1, IoControl), (0, IoData), (0, IoControl), (1, IoData)] {
        let Payload::CreateRdmaConnectionResponse(details) = driver.request(connect(index, role))
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
    for (cores, transactions, part) in [
        (0, 4, "core count: expected 1 to 2"),
        (3, 4, "got 3"),
        (u32::MAX, 4, "--cpu"),
        (1, 0, "transactions per core"),
        (1, MAX_TRANSACTIONS + 1, "got 8193"),
    ] {
        let (code, message) = driver.error(init(cores, transactions));
        assert_eq!(code, ErrorCode::INVALID_VALUE);
        assert!(message.contains(part), "{message}");
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
        assert!(message.contains("expected 0 to 1"), "{message}");
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
    assert!(
        error
            .message
            .contains("while the init_storage_request is processed"),
        "{}",
        error.message
    );
    driver.handle(Event::JobDone(Ok(Outcome::Done)));
    let Some(Action::Send(answer)) = driver.session.poll_action() else {
        panic!("expected an answer");
    };
    assert_eq!(answer.payload, Payload::InitStorageResponse);
}

#[test]
fn identity_is_sent_only_when_queried() {
    use role_common::superblock::QUESTION;
    use wire::control::{IdentifiedStorage, RecordState};

    let plain = Driver::new().request(Payload::QueryStorageRequest);
    let Payload::QueryStorageResponse(details) = plain.clone() else {
        panic!("{plain:?}")
    };
    let known = || {
        let mut driver = Driver::new();
        driver.session = driver
            .session
            .with_identity(Bytes::from_static(b"the one"), None);
        driver
    };
    assert_eq!(known().request(Payload::QueryStorageRequest), plain);
    let question = || Payload::IdentifyStorageRequest(QUESTION);
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
        flags: 0,
        identity: Bytes::from_static(b"the one"),
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
    use role_common::superblock::{Epoch, SetId};
    Superblock {
        set: SetId(9),
        member: 1,
        epoch: Epoch { number: 3, id: 4 },
        next: Epoch { number: 4, id: 5 },
        state,
        checksums: true,
    }
}

/// Creates a driver of a target with an identity, whose service has queried it.
fn identified() -> Driver {
    let mut driver = Driver::new();
    driver.session = driver
        .session
        .with_identity(Bytes::from_static(b"the one"), None);
    driver.request(Payload::IdentifyStorageRequest(QUESTION));
    driver
}

#[test]
fn superblock_in_doubt_is_not_accepted_from_a_service() {
    use RecordState::{Clean, Closing, Foreign, InDoubt, InUse};
    for state in [Clean, InUse, Closing, Foreign] {
        let request = superblock(state).request();
        let answer = identified().request_with(Payload::IdentifyStorageRequest(request), |job| {
            assert_eq!(*job, Job::Persist(superblock(state)));
            Ok(Outcome::Done)
        });
        let Payload::IdentifiedStorageResponse(answer) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(Superblock::of_answer(&answer), Some(superblock(state)));
    }
    // Detected by the target itself.
    let request = Payload::IdentifyStorageRequest(superblock(InDoubt).request());
    let (code, message) = identified().error(request);
    assert_eq!(code, ErrorCode::INVALID_VALUE);
    assert!(message.contains("in_doubt"), "{message}");
    let early = Payload::IdentifyStorageRequest(superblock(InUse).request());
    assert_eq!(Driver::new().error(early).0, ErrorCode::UNEXPECTED);
}

#[test]
fn start_job_tells_if_the_service_maintains_superblocks() {
    for maintains in [false, true] {
        let mut driver = identified();
        driver.request(init(1, 1));
        if maintains {
            let request = superblock(RecordState::InUse).request();
            driver.request(Payload::IdentifyStorageRequest(request));
        }
        driver.request(connect(0, IoData));
        driver.request(connect(0, IoControl));
        let answer = driver.request_with(Payload::StartStorageRequest, |job| {
            assert_eq!(*job, Job::StartWorkers { maintains });
            Ok(Outcome::Done)
        });
        assert_eq!(answer, Payload::StartStorageResponse);
    }
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
            .with_identity(Bytes::from_static(b"the one"), None)
            .with_features(FEATURE_FLUSH);
        driver
    };
    let announce = || Payload::AnnounceStorageRequest(FeatureQuery { features: 7 });
    let announced = Payload::AnnouncedStorageResponse(AnnouncedStorage {
        total_size: 5120,
        block_size: 512,
        features: FEATURE_FLUSH,
    });
    let mut driver = new();
    assert_eq!(driver.session.announced_features(), 0);
    assert_eq!(driver.request(announce()), announced);
    assert_eq!(driver.session.announced_features(), FEATURE_FLUSH);

    // After the query for identity and superblock.
    let mut driver = new();
    let answer = driver.request(Payload::IdentifyStorageRequest(QUESTION));
    assert!(matches!(answer, Payload::IdentifiedStorageResponse(_)));
    assert_eq!(driver.session.announced_features(), 0);
    assert_eq!(driver.request(announce()), announced);
    assert_eq!(driver.session.announced_features(), FEATURE_FLUSH);

    // Not accepted later.
    let mut driver = new();
    driver.request(Payload::QueryStorageRequest);
    assert_eq!(driver.request(init(1, 1)), Payload::InitStorageResponse);
    assert_eq!(driver.error(announce()).0, ErrorCode::UNEXPECTED);
    assert_eq!(driver.session.announced_features(), 0);
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
    // Both workers need their connections.
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
