//! Answers, timeouts and the end.

use wire::release::{CorrelationId as _, IoLayout, Release3_0, Release3_1};

use super::*;

/// One transaction in flight, and its request.
fn one_read() -> (Transactions, Repr) {
    let setup = Setup {
        strategy: Strategy::ReadThroughputTest,
        transactions: 2,
        operations: 5,
        ..SETUP
    };
    let mut transactions = setup.build().workers.remove(0);
    let request = transactions
        .begin(1, Instant::now())
        .expect("begun")
        .expect("a request");
    (transactions, request)
}

fn refused(result: Result<(u32, Option<Repr>), Failure>) -> String {
    match result {
        Err(Failure::Answer(text)) => text,
        other => panic!("expected a refused answer, got {other:?}"),
    }
}

#[test]
fn answers_that_fit_no_request_are_errors() {
    let (mut transactions, request) = one_read();
    let good = request.answer(0);

    assert!(refused(transactions.answered(&good.to_bytes()[..63])).contains("64"));
    let mut unknown_type = good.to_bytes();
    unknown_type[3] = 9;
    assert!(refused(transactions.answered(&unknown_type)).contains('9'));
    assert!(refused(transactions.answered(&request.to_bytes())).contains("expected a result"));
    for user_data in [2, u64::from(u32::MAX) + 2, u64::MAX] {
        let unknown = Repr { user_data, ..good };
        assert!(
            refused(transactions.answered(&unknown.to_bytes())).contains("0 to 1"),
            "{user_data}"
        );
    }
    let idle = Repr {
        user_data: 0,
        ..good
    };
    assert!(refused(transactions.answered(&idle.to_bytes())).contains("transaction 0"));
    for wrong in [
        Repr {
            storage_offset: good.storage_offset + 512,
            ..good
        },
        Repr {
            requester_offset: good.requester_offset + 1,
            ..good
        },
        Repr { size: 511, ..good },
    ] {
        assert!(refused(transactions.answered(&wrong.to_bytes())).contains("transaction 1"));
    }

    assert_eq!(transactions.answered(&good.to_bytes()), Ok((1, None)));
    assert!(refused(transactions.answered(&good.to_bytes())).contains("twice"));
    assert!(
        transactions.sent(1).expect("completed").is_some(),
        "the good answer counted once"
    );
    assert_eq!(transactions.completed(), 1);
}

#[test]
fn an_error_result_names_the_io_and_the_code() {
    let (mut transactions, request) = one_read();
    let failure = transactions
        .answered(&request.answer(ErrorCode::IO_FAILED.0).to_bytes())
        .expect_err("an I/O error");
    assert!(matches!(failure, Failure::Io { code, .. } if code == ErrorCode::IO_FAILED.0));
    let text = failure.to_string();
    for part in ["read of 512 bytes", "offset 0", "DOCA_ERROR_IO_FAILED"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(transactions.at_rest());
    assert_eq!(transactions.completed(), 0);
}

#[test]
fn an_io_is_overdue_after_its_own_timeout() {
    let (mut transactions, request) = one_read();
    let now = Instant::now();
    assert_eq!(transactions.overdue(now), None);
    assert_eq!(
        transactions.overdue(now + IO_TIMEOUT - Duration::from_secs(1)),
        None
    );
    let late = now + IO_TIMEOUT + Duration::from_secs(1);
    let failure = transactions.overdue(late).expect("overdue");
    assert!(
        failure.to_string().contains("--io-timeout 5 s"),
        "{failure}"
    );
    transactions.abandon_overdue(late);
    assert!(transactions.at_rest());
    assert!(
        refused(transactions.answered(&request.answer(0).to_bytes())).contains("transaction 1")
    );
}

#[test]
fn a_send_that_does_not_complete_is_overdue_too() {
    let (mut transactions, request) = one_read();
    assert_eq!(
        transactions.answered(&request.answer(0).to_bytes()),
        Ok((1, None))
    );
    assert!(
        transactions
            .overdue(Instant::now() + IO_TIMEOUT * 2)
            .is_some()
    );
}

#[test]
fn what_completes_after_it_was_given_up_counts_no_more() {
    let (mut transactions, request) = one_read();
    let answered = transactions.answered(&request.answer(0).to_bytes());
    assert_eq!(answered, Ok((1, None)));
    transactions.abandon_overdue(Instant::now() + IO_TIMEOUT * 2);
    assert!(transactions.at_rest());
    assert_eq!(transactions.sent(1), Ok(None));
    assert!(transactions.at_rest());
    assert_eq!(transactions.completed(), 0);
}

#[test]
fn halted_transactions_finish_what_is_in_flight_and_no_more() {
    let mut bench = SETUP.build();
    let transactions = &mut bench.workers[0];
    let now = Instant::now();
    let first = transactions.begin(0, now).expect("begun").expect("a write");
    let second = transactions.begin(1, now).expect("begun").expect("a write");
    // The first is at its read when the halt comes, the second at its write.
    assert_eq!(transactions.sent(0), Ok(None));
    let (_, read) = transactions
        .answered(&bench.storage.serve(first).to_bytes())
        .expect("written");
    transactions.halt();
    assert!(!transactions.at_rest());
    assert_eq!(transactions.begin(2, now), Ok(None));
    assert_eq!(transactions.sent(1), Ok(None));
    assert_eq!(
        transactions.answered(&bench.storage.serve(second).to_bytes()),
        Ok((1, None)),
        "no read follows"
    );
    assert_eq!(transactions.sent(0), Ok(None));
    let answer = bench
        .storage
        .serve(read.expect("a read follows the write"))
        .to_bytes();
    assert_eq!(transactions.answered(&answer), Ok((0, None)));
    assert!(transactions.at_rest());
    assert_eq!(transactions.completed(), 1);
}

/// Services of 3.0 and 3.1 need not repeat the user data, and those of 3.0 not where the local memory is.
#[test]
fn answers_of_earlier_releases_are_known_by_their_correlation_ids() {
    fn answered<L: IoLayout>(layout: L, is_mirrored: bool) {
        let setup = Setup {
            strategy: Strategy::ReadThroughputTest,
            transactions: 2,
            operations: 5,
            local_blocks: if is_mirrored { 0 } else { 2 },
            ..SETUP
        };
        let mut transactions = Transactions::new(setup.task(), layout);
        let mut request = None;
        for index in [0, 1] {
            request = transactions.begin(index, Instant::now()).expect("begun");
        }
        let request = request.expect("a request");
        if is_mirrored {
            assert_eq!(request.requester_offset, request.storage_offset);
        }
        let message = transactions.message(1, &request);
        assert_eq!(message[4..8], [0, 0, 0, 1]);
        let answer = Repr {
            user_data: u64::MAX,
            requester_offset: request.requester_offset + 512 * u64::from(is_mirrored),
            ..request.answer(0)
        };
        let bytes = layout.to_bytes(&answer, L::CorrelationId::read(&message));
        assert_eq!(transactions.answered(&bytes), Ok((1, None)));
        let unknown = layout.to_bytes(&answer, L::CorrelationId::from_number(2));
        assert!(refused(transactions.answered(&unknown)).contains("0 to 1"));
    }
    answered(Release3_1, false);
    answered(
        Release3_0 {
            requester_address: 0x7000_0000,
        },
        true,
    );
}
