//! Regular sessions, and invalid or refusing answers.

use super::*;

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
