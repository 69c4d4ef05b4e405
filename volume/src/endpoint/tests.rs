//! Messages, and valid and invalid answers.

use wire::release::{Release3_0, Release3_1, Release3_2};

use super::*;

const READ: Request = Request {
    message_type: IoMessageType::Read,
    storage_offset: 4096,
    memory_offset: 512,
    size: 1024,
};

/// Request 1 of 2, in flight, and its answer.
fn one_read() -> (Requests, Repr) {
    let mut requests = Requests::new(2);
    let message = requests.begin(Release3_2, 1, &READ);
    let answer = Release3_2.answer_to(&message);
    (requests, answer)
}

fn answered(requests: &mut Requests, answer: &Repr) -> Result<Option<Completed>, BadAnswer> {
    requests.answered(Release3_2, &answer.to_bytes(), SIZE)
}

#[test]
fn request_completes_once_sent_and_answered_in_any_order() {
    let done = |result| Some(Completed { number: 1, result });
    let (mut requests, answer) = one_read();
    assert_eq!(requests.sent(1), None);
    assert_eq!(answered(&mut requests, &answer.answer(7)), Ok(done(7)));
    // The number is free again.
    requests.begin(Release3_2, 1, &READ);
    assert_eq!(answered(&mut requests, &answer.answer(5)), Ok(None));
    assert_eq!(requests.sent(1), done(5));
    assert_eq!(requests.sent(1), None, "sent once");
    assert_eq!(requests.sent(2), None, "there is no such request");
}

#[test]
fn a_message_has_the_values_of_its_request_and_zeros() {
    let mut requests = Requests::new(2);
    let expected = Repr {
        message_type: IoMessageType::Read,
        user_data: 1,
        result: 0,
        size: 1024,
        requester_offset: 512,
        storage_offset: 4096,
    };
    assert_eq!(requests.begin(Release3_2, 1, &READ), expected.to_bytes());
}

#[test]
fn answers_without_a_matching_request_are_refused() {
    let (mut requests, good) = one_read();
    let bytes = good.to_bytes();
    let malformed = |refused: Result<Option<Completed>, BadAnswer>| {
        assert!(
            matches!(refused, Err(BadAnswer::Malformed(_))),
            "{refused:?}"
        );
    };
    malformed(requests.answered(Release3_2, &bytes, SIZE - 1));
    malformed(requests.answered(Release3_2, &bytes, 0));
    let mut unknown = bytes;
    unknown[3] = 9;
    malformed(requests.answered(Release3_2, &unknown, SIZE));
    let request = Repr {
        message_type: IoMessageType::Write,
        ..good
    };
    assert_eq!(
        answered(&mut requests, &request),
        Err(BadAnswer::Type(IoMessageType::Write))
    );
    for number in [2, u64::from(u32::MAX) + 2, u64::MAX] {
        let answer = Repr {
            user_data: number,
            ..good
        };
        assert_eq!(
            answered(&mut requests, &answer),
            Err(BadAnswer::Number { number, last: 1 })
        );
    }
    let idle = Repr {
        user_data: 0,
        ..good
    };
    assert_eq!(
        answered(&mut requests, &idle),
        Err(BadAnswer::NotAwaited(0))
    );
    for (storage, memory, size) in [(4608, 512, 1024), (4096, 513, 1024), (4096, 512, 1023)] {
        let wrong = Repr {
            storage_offset: storage,
            requester_offset: memory,
            size,
            ..good
        };
        let range = BadAnswer::Range {
            number: 1,
            got: (storage, memory, size),
            expected: (4096, 512, 1024),
        };
        assert_eq!(answered(&mut requests, &wrong), Err(range));
    }
    assert_eq!(answered(&mut requests, &good), Ok(None));
    assert_eq!(
        answered(&mut requests, &good),
        Err(BadAnswer::NotAwaited(1)),
        "answered twice"
    );
    assert_eq!(
        requests.sent(1),
        Some(Completed {
            number: 1,
            result: 0
        })
    );
    assert_eq!(
        answered(&mut requests, &good),
        Err(BadAnswer::NotAwaited(1))
    );
}

/// Services of 3.0 and 3.1 need not repeat the user data, and those of 3.0 need not repeat the memory offset.
#[test]
fn answers_of_earlier_releases_are_matched_by_correlation_id() {
    fn check<L: IoLayout>(layout: L, request: Request) {
        let mut requests = Requests::new(2);
        let message = requests.begin(layout, 1, &request);
        assert_eq!(message[4..8], [0, 0, 0, 1]);
        let answer = Repr {
            user_data: u64::MAX,
            requester_offset: request.memory_offset + 512 * u64::from(L::IS_MIRRORED),
            ..layout.answer_to(&message)
        };
        let unknown = layout.to_bytes(&answer, L::CorrelationId::from_number(2));
        assert_eq!(
            requests.answered(layout, &unknown, SIZE),
            Err(BadAnswer::Number { number: 2, last: 1 })
        );
        let bytes = layout.to_bytes(&answer, L::CorrelationId::read(&message));
        assert_eq!(requests.answered(layout, &bytes, SIZE), Ok(None));
        let completed = Completed {
            number: 1,
            result: 0,
        };
        assert_eq!(requests.sent(1), Some(completed));
    }
    check(Release3_1, READ);
    let mirrored = Request {
        memory_offset: READ.storage_offset,
        ..READ
    };
    let layout = Release3_0 {
        requester_address: 0x7000_0000,
    };
    check(layout, mirrored);
}
