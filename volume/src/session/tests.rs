//! Scripted sessions with a simulated clock.

use bytes::Bytes;
use wire::control::ErrorResponse;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(5);
const HALT: Duration = Duration::from_secs(8);

/// Drives a session with a simulated clock.
struct Script {
    session: Session,
    now: Instant,
}

impl Script {
    fn new(workers: u32) -> Self {
        let now = Instant::now();
        let config = SessionConfig {
            workers,
            control_timeout: TIMEOUT,
            halt_timeout: HALT,
            features: 0,
            release: Release::default(),
        };
        Self {
            session: Session::new(config),
            now,
        }
    }

    fn input(&mut self, event: Event) -> &mut Self {
        self.session.handle(event, self.now);
        self
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.session.poll_action()).collect()
    }

    /// Returns the only action, which must send a message.
    fn sent(&mut self) -> Message {
        match self.actions().as_slice() {
            [Action::Send(message)] => message.clone(),
            other => panic!("expected one message to be sent, got {other:?}"),
        }
    }

    fn expect(&mut self, expected: &[Action]) -> &mut Self {
        assert_eq!(self.actions(), expected);
        self
    }

    fn expect_request(&mut self, kind: MessageType, id: u32) -> &mut Self {
        let message = self.sent();
        assert_eq!(
            (
                message.payload.message_type(),
                message.message_id,
                message.correlation_id
            ),
            (kind, id, id)
        );
        self
    }

    fn answer(&mut self, id: u32, payload: Payload) -> &mut Self {
        self.input(Event::Message(Message {
            message_id: id,
            correlation_id: id,
            payload,
        }))
    }

    fn refuse(&mut self, id: u32) -> &mut Self {
        self.answer(
            id,
            Payload::ErrorResponse(ErrorResponse {
                error_code: 6,
                message: "not today".into(),
            }),
        )
    }

    fn time_out(&mut self) -> &mut Self {
        self.now = self.session.poll_timeout().expect("a step that is bounded");
        self.session.handle(Event::Timeout, self.now);
        self
    }

    fn error(&self) -> SessionError {
        self.session.result().expect_err("a failed session")
    }

    fn to_querying(workers: u32) -> Self {
        let mut script = Self::new(workers);
        script
            .input(Event::Connected)
            .expect_request(MessageType::QueryStorageRequest, 0);
        script
    }

    fn to_opening(workers: u32) -> Self {
        let mut script = Self::to_querying(workers);
        script.answer(0, Payload::QueryStorageResponse(details()));
        script.expect(&[Action::OpenStorage(details())]);
        script
    }

    fn to_initialising(workers: u32) -> Self {
        let mut script = Self::to_opening(workers);
        script
            .input(Event::Opened(init(workers)))
            .expect_request(MessageType::InitStorageRequest, 1);
        script
    }

    fn to_gathering(workers: u32) -> Self {
        let mut script = Self::to_initialising(workers);
        script
            .answer(1, Payload::InitStorageResponse)
            .expect(&[Action::CreateWorkers]);
        script
    }

    fn to_preparing(workers: u32) -> Self {
        let mut script = Self::to_gathering(workers);
        for id in 0..workers {
            script.input(Event::ConsumerAdded(10 + id));
        }
        script.input(Event::WorkersReady);
        script.expect(&[Action::PrepareWorkers((10..10 + workers).collect())]);
        script
    }

    fn to_starting(workers: u32) -> Self {
        let mut script = Self::to_preparing(workers);
        script
            .input(Event::WorkersPrepared)
            .expect_request(MessageType::StartStorageRequest, 2);
        script
    }

    fn to_running(workers: u32) -> Self {
        let mut script = Self::to_starting(workers);
        script
            .answer(2, Payload::StartStorageResponse)
            .expect(&[Action::StartDataPath]);
        assert_eq!(
            script.session.poll_timeout(),
            None,
            "the length of a run is the user's affair"
        );
        script
    }

    fn to_stopping(workers: u32) -> Self {
        let mut script = Self::to_running(workers);
        script
            .input(Event::WorkersFinished)
            .expect_request(MessageType::StopStorageRequest, 3);
        script
    }

    fn to_destroying(workers: u32) -> Self {
        let mut script = Self::to_stopping(workers);
        for id in 0..workers {
            script.input(Event::ConsumerExpired(10 + id));
        }
        script
            .answer(3, Payload::StopStorageResponse)
            .expect(&[Action::DestroyWorkers]);
        script
    }

    fn to_shutting_down(workers: u32) -> Self {
        let mut script = Self::to_destroying(workers);
        script
            .input(Event::WorkersDestroyed)
            .expect_request(MessageType::ShutdownRequest, 4);
        script
    }
}

fn details() -> StorageDetails {
    StorageDetails {
        total_size: 1 << 20,
        block_size: 4096,
    }
}

fn init(workers: u32) -> InitStorage {
    InitStorage {
        transaction_count: 64,
        core_count: workers,
        mmap_export_blob: Bytes::from_static(b"blob"),
    }
}

// Regular sessions, and invalid or refusing answers.

#[test]
fn complete_session() {
    for workers in 1..=3 {
        let mut script = Script::to_shutting_down(workers);
        script
            .answer(4, Payload::ShutdownResponse)
            .expect(&[Action::Finish]);
        assert_eq!(script.session.result(), Ok(()));
        assert_eq!(script.session.poll_timeout(), None);
    }
}

#[test]
fn init_request_is_that_of_the_opened_storage() {
    let mut script = Script::to_opening(2);
    script.input(Event::Opened(init(2)));
    assert_eq!(script.sent().payload, Payload::InitStorageRequest(init(2)));
}

#[test]
fn consumers_may_come_before_the_init_response_and_after_the_contexts() {
    let mut early = Script::to_initialising(2);
    early
        .input(Event::ConsumerAdded(7))
        .input(Event::ConsumerAdded(5))
        .expect(&[]);
    early
        .answer(1, Payload::InitStorageResponse)
        .expect(&[Action::CreateWorkers]);
    early
        .input(Event::WorkersReady)
        .expect(&[Action::PrepareWorkers(vec![7, 5])]);

    let mut late = Script::to_gathering(2);
    late.input(Event::WorkersReady)
        .input(Event::ConsumerAdded(7))
        .expect(&[]);
    late.input(Event::ConsumerAdded(7)).expect(&[]);
    late.input(Event::ConsumerAdded(5))
        .expect(&[Action::PrepareWorkers(vec![7, 5])]);
}

#[test]
fn own_contexts_are_destroyed_before_shutdown() {
    let mut script = Script::to_stopping(1);
    script
        .answer(3, Payload::StopStorageResponse)
        .expect(&[Action::DestroyWorkers]);
    script
        .input(Event::WorkersDestroyed)
        .expect_request(MessageType::ShutdownRequest, 4);
}

#[test]
fn shutdown_waits_for_consumers_of_the_service_with_a_timeout() {
    let slow = || {
        let mut script = Script::to_stopping(2);
        script
            .answer(3, Payload::StopStorageResponse)
            .expect(&[Action::DestroyWorkers]);
        script
            .input(Event::WorkersDestroyed)
            .expect_request(MessageType::ShutdownRequest, 4);
        script.answer(4, Payload::ShutdownResponse).expect(&[]);
        script
    };
    let mut script = slow();
    script.input(Event::ConsumerExpired(11)).expect(&[]);
    script
        .input(Event::ConsumerExpired(10))
        .expect(&[Action::Finish]);
    assert_eq!(script.session.result(), Ok(()));

    let mut script = slow();
    script.time_out().expect(&[Action::Finish]);
    assert_eq!(
        script.error(),
        SessionError::Timeout {
            waiting_for: "the service's consumers to expire",
            after: TIMEOUT
        }
    );

    let mut script = slow();
    script.input(Event::Disconnected).expect(&[Action::Finish]);
    assert_eq!(
        script.session.result(),
        Ok(()),
        "consumers go with their connection"
    );
}

#[test]
fn a_refusal_names_the_request_and_the_text() {
    let refusal = |request, id| SessionError::Refused {
        request,
        id,
        code: 6,
        text: "not today".into(),
    };

    let mut script = Script::to_querying(1);
    script.refuse(0).expect(&[Action::Finish]);
    assert_eq!(script.error(), refusal(MessageType::QueryStorageRequest, 0));

    let mut script = Script::to_initialising(1);
    script.refuse(1).expect(&[Action::Finish]);
    assert_eq!(script.error(), refusal(MessageType::InitStorageRequest, 1));

    // From here on, the remaining requests of the session follow.
    let mut script = Script::to_starting(1);
    script
        .refuse(2)
        .expect_request(MessageType::StopStorageRequest, 3);
    script.refuse(3).expect(&[Action::DestroyWorkers]);
    script
        .input(Event::WorkersDestroyed)
        .expect_request(MessageType::ShutdownRequest, 4);
    script.refuse(4).expect(&[Action::Finish]);
    assert_eq!(script.error(), refusal(MessageType::StartStorageRequest, 2));

    let text = script.error().to_string();
    for part in [
        "start_storage_request",
        "DOCA_ERROR_INVALID_VALUE",
        "not today",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn unsolicited_error_ends_the_run() {
    let mut script = Script::to_running(1);
    script
        .refuse(9)
        .expect(&[Action::HaltDataPath { drain: true }]);
    script
        .input(Event::WorkersFinished)
        .expect_request(MessageType::StopStorageRequest, 3);
    assert_eq!(
        script.error(),
        SessionError::Unsolicited {
            code: 6,
            text: "not today".into()
        }
    );
}

#[test]
fn wrong_answers_are_errors() {
    let mut script = Script::to_querying(1);
    script
        .answer(0, Payload::InitStorageResponse)
        .expect(&[Action::Finish]);
    assert!(matches!(
        script.error(),
        SessionError::Unexpected {
            came: MessageType::InitStorageResponse,
            id: 0,
            ..
        }
    ));

    let mut script = Script::to_querying(1);
    script
        .answer(1, Payload::QueryStorageResponse(details()))
        .expect(&[Action::Finish]);
    assert!(matches!(
        script.error(),
        SessionError::Unexpected { id: 1, .. }
    ));

    let mut script = Script::to_querying(1);
    let foreign = Message {
        message_id: 0,
        correlation_id: 3,
        payload: Payload::QueryStorageResponse(details()),
    };
    script
        .input(Event::Message(foreign))
        .expect(&[Action::Finish]);
    assert!(matches!(script.error(), SessionError::Unexpected { .. }));

    let mut script = Script::to_gathering(1);
    script
        .answer(1, Payload::InitStorageResponse)
        .expect(&[Action::DestroyWorkers]);
    assert!(matches!(script.error(), SessionError::Unexpected { .. }));
}

#[test]
fn late_answers_to_earlier_requests_are_ignored() {
    let mut script = Script::to_initialising(1);
    script
        .answer(0, Payload::QueryStorageResponse(details()))
        .expect(&[]);
    script
        .answer(1, Payload::InitStorageResponse)
        .expect(&[Action::CreateWorkers]);
    assert_eq!(script.session.result(), Ok(()));
}

#[test]
fn storage_is_initialised_in_the_release_that_was_chosen() {
    for (release, batch_size) in [
        (Release::V3_0, Some(1)),
        (Release::V3_1, None),
        (Release::V3_2, None),
    ] {
        let mut script = Script::to_opening(1);
        script.session.config.release = release;
        script.input(Event::Opened(init(1)));
        let request = script.sent().payload;
        assert_eq!(request.as_init_storage(), Some((init(1), batch_size)));
    }
}

// Ends of sessions other than the regular one: timeouts, interruptions, disconnections, local failures.

#[test]
fn every_step_is_bounded() {
    // Script, and the action that follows the timeout; `None` if the session ends.
    let steps: [(Script, Option<Action>); 9] = [
        (Script::to_querying(1), None),
        (Script::to_opening(1), None),
        (Script::to_initialising(1), None),
        (Script::to_gathering(1), Some(Action::DestroyWorkers)),
        (Script::to_preparing(1), Some(Action::DestroyWorkers)),
        (Script::to_starting(1), Some(Action::DestroyWorkers)),
        (Script::to_stopping(1), Some(Action::DestroyWorkers)),
        (Script::to_destroying(1), None),
        (Script::to_shutting_down(1), None),
    ];
    for (mut script, next) in steps {
        let waiting_for = script.session.waits_for();
        let before = script.now;
        script.session.handle(Event::Timeout, before);
        assert_eq!(script.actions(), [], "too early: {waiting_for}");
        script.time_out();
        assert_eq!(script.now - before, TIMEOUT);
        match next {
            Some(action) => {
                script.expect(&[action]);
                script.time_out().expect(&[Action::Finish]);
            }
            None => {
                script.expect(&[Action::Finish]);
            }
        }
        assert_eq!(
            script.error(),
            SessionError::Timeout {
                waiting_for,
                after: TIMEOUT
            }
        );
    }
}

#[test]
fn interruption_before_init_ends_the_session() {
    for mut script in [Script::new(1), Script::to_opening(1)] {
        script.input(Event::Interrupted).expect(&[Action::Finish]);
        assert_eq!(script.error(), SessionError::Interrupted);
    }
    let mut script = Script::to_querying(1);
    script.input(Event::Interrupted).expect(&[]);
    script
        .answer(0, Payload::QueryStorageResponse(details()))
        .expect(&[Action::Finish]);
    assert_eq!(script.error(), SessionError::Interrupted);
}

#[test]
fn interruption_after_init_shuts_down_without_io() {
    let mut script = Script::to_initialising(1);
    script.input(Event::Interrupted).expect(&[]);
    script
        .answer(1, Payload::InitStorageResponse)
        .expect(&[Action::CreateWorkers]);
    script
        .input(Event::ConsumerAdded(1))
        .input(Event::WorkersReady)
        .expect(&[Action::PrepareWorkers(vec![1])]);
    script
        .input(Event::WorkersPrepared)
        .expect_request(MessageType::StartStorageRequest, 2);
    script
        .answer(2, Payload::StartStorageResponse)
        .expect_request(MessageType::StopStorageRequest, 3);
    script.input(Event::ConsumerExpired(1));
    script
        .answer(3, Payload::StopStorageResponse)
        .expect(&[Action::DestroyWorkers]);
    script
        .input(Event::WorkersDestroyed)
        .expect_request(MessageType::ShutdownRequest, 4);
    script
        .answer(4, Payload::ShutdownResponse)
        .expect(&[Action::Finish]);
    assert_eq!(script.error(), SessionError::Interrupted);
}

#[test]
fn an_interrupted_run_is_halted_and_stopped() {
    let mut script = Script::to_running(1);
    script
        .input(Event::Interrupted)
        .expect(&[Action::HaltDataPath { drain: true }]);
    script
        .input(Event::WorkersFinished)
        .expect_request(MessageType::StopStorageRequest, 3);
    assert_eq!(script.error(), SessionError::Interrupted);

    let mut stuck = Script::to_running(1);
    let before = stuck.now;
    stuck
        .input(Event::Interrupted)
        .expect(&[Action::HaltDataPath { drain: true }]);
    stuck.time_out().expect(&[Action::DestroyWorkers]);
    assert_eq!(stuck.now - before, HALT);
}

#[test]
fn disconnection_of_the_service_ends_the_session() {
    let mut script = Script::to_running(1);
    script
        .input(Event::Disconnected)
        .expect(&[Action::HaltDataPath { drain: false }]);
    script
        .input(Event::WorkersFinished)
        .expect(&[Action::DestroyWorkers]);
    script
        .input(Event::WorkersDestroyed)
        .expect(&[Action::Finish]);
    assert_eq!(
        script.error(),
        SessionError::Disconnected {
            waiting_for: "the operations to complete"
        }
    );

    for mut script in [
        Script::to_gathering(1),
        Script::to_preparing(1),
        Script::to_starting(1),
        Script::to_stopping(1),
    ] {
        script
            .input(Event::Disconnected)
            .expect(&[Action::DestroyWorkers]);
        script
            .input(Event::WorkersDestroyed)
            .expect(&[Action::Finish]);
    }
    for mut script in [
        Script::to_querying(1),
        Script::to_initialising(1),
        Script::to_shutting_down(1),
    ] {
        script.input(Event::Disconnected).expect(&[Action::Finish]);
        assert!(matches!(script.error(), SessionError::Disconnected { .. }));
    }
    let mut script = Script::to_destroying(1);
    script.input(Event::Disconnected).expect(&[]);
    script
        .input(Event::WorkersDestroyed)
        .expect(&[Action::Finish]);
}

#[test]
fn consumer_lost_during_the_run_is_an_error() {
    let mut script = Script::to_running(1);
    script
        .input(Event::ConsumerExpired(10))
        .expect(&[Action::HaltDataPath { drain: true }]);
    assert_eq!(script.error(), SessionError::ConsumerLost { id: 10 });

    script
        .input(Event::Disconnected)
        .expect(&[Action::HaltDataPath { drain: false }]);
    let expected = SessionError::Disconnected {
        waiting_for: "the operations in flight",
    };
    assert_eq!(
        script.error(),
        expected,
        "the consumer went with the service"
    );

    let mut script = Script::to_stopping(1);
    script
        .input(Event::ConsumerExpired(10))
        .input(Event::ConsumerExpired(99))
        .expect(&[]);
    assert_eq!(script.session.result(), Ok(()));
}

#[test]
fn expiry_of_an_unknown_consumer_is_ignored() {
    let mut script = Script::to_running(1);
    script.input(Event::ConsumerExpired(99)).expect(&[]);
    assert_eq!(script.session.result(), Ok(()));
}

#[test]
fn more_consumers_than_workers_are_refused() {
    let mut script = Script::to_gathering(1);
    script
        .input(Event::ConsumerAdded(1))
        .input(Event::ConsumerAdded(2))
        .expect(&[Action::DestroyWorkers]);
    assert_eq!(
        script.error(),
        SessionError::TooManyConsumers { expected: 1 }
    );
}

#[test]
fn local_failure_is_reported_and_shuts_down() {
    let mut script = Script::to_opening(1);
    let failure = Failure::invalid("--local-io-region-size");
    script
        .input(Event::Failed(failure.clone()))
        .expect(&[Action::Finish]);
    assert_eq!(Failure::from(script.error()), failure);

    let mut script = Script::new(1);
    script
        .input(Event::Failed(failure.clone()))
        .expect(&[Action::Finish]);
    assert_eq!(script.error(), SessionError::Local(failure.clone()));

    let mut script = Script::to_gathering(1);
    script
        .input(Event::Failed(failure.clone()))
        .expect(&[Action::DestroyWorkers]);
    script
        .input(Event::WorkersDestroyed)
        .expect(&[Action::Finish]);
    assert_eq!(script.error(), SessionError::Local(failure));
}

#[test]
fn failures_carry_the_code_of_the_service() {
    let mut script = Script::to_querying(1);
    script.refuse(0);
    assert_eq!(
        Failure::from(script.error()).code,
        doca::ErrorCode::INVALID_VALUE
    );
}

#[test]
fn ended_session_ignores_events() {
    let mut script = Script::to_querying(1);
    script.refuse(0).expect(&[Action::Finish]);
    let error = script.error();
    script
        .input(Event::Interrupted)
        .input(Event::Connected)
        .input(Event::WorkersReady)
        .expect(&[]);
    assert_eq!(script.error(), error);
}
