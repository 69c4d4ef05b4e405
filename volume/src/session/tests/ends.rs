//! Ends of sessions other than the regular one: timeouts, interruptions, disconnections, local failures.

use super::*;

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
