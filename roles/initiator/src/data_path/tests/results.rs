//! Results, timeouts and stopping.

use super::*;
use crate::data_path::{Direction, Io};

/// Slot 1 of two with its request in flight.
fn one_read() -> (Transactions, IoRequest) {
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

const READ: Io = Io {
    direction: Direction::Read,
    storage_offset: 0,
    size: BLOCK,
};

#[test]
fn an_error_result_names_the_io_and_the_code() {
    let (mut transactions, _) = one_read();
    let failure = transactions
        .advance(1, ErrorCode::IO_FAILED.0)
        .expect_err("an I/O error");
    let expected = Failure::Io {
        io: READ,
        code: ErrorCode::IO_FAILED.0,
    };
    assert_eq!(failure, expected);
    let text = failure.to_string();
    for part in ["read of 512 bytes", "offset 0", "DOCA_ERROR_IO_FAILED"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(transactions.at_rest());
    assert_eq!(transactions.completed(), 0);
}

#[test]
fn an_io_is_overdue_after_its_own_timeout() {
    let (mut transactions, _) = one_read();
    let now = Instant::now();
    assert_eq!(transactions.overdue(now), None);
    assert_eq!(
        transactions.overdue(now + IO_TIMEOUT - Duration::from_secs(1)),
        None
    );
    let late = now + IO_TIMEOUT + Duration::from_secs(1);
    let expected = Failure::Timeout {
        io: READ,
        after: IO_TIMEOUT,
    };
    assert_eq!(transactions.overdue(late), Some(expected));
    transactions.abandon_overdue(late);
    assert!(transactions.at_rest());
}

#[test]
fn late_completion_of_an_abandoned_io_is_not_counted() {
    for result in [ErrorCode::SUCCESS, ErrorCode::IO_FAILED] {
        let (mut transactions, _) = one_read();
        transactions.abandon_overdue(Instant::now() + IO_TIMEOUT * 2);
        assert!(transactions.at_rest());
        assert_eq!(transactions.advance(1, result.0), Ok(None));
        assert!(transactions.at_rest());
        assert_eq!(transactions.completed(), 0);
    }
}

#[test]
fn halted_transactions_complete_requests_in_flight_only() {
    let mut bench = SETUP.build();
    let transactions = &mut bench.workers[0];
    let now = Instant::now();
    let first = transactions.begin(0, now).expect("begun").expect("a write");
    let second = transactions.begin(1, now).expect("begun").expect("a write");
    // The first transaction's read is in flight when the run is stopped, and the second one's write.
    let result = bench.storage.serve(first);
    let read = transactions.advance(0, result).expect("written");
    transactions.halt();
    assert!(!transactions.at_rest());
    assert_eq!(transactions.begin(2, now), Ok(None));
    let result = bench.storage.serve(second);
    assert_eq!(transactions.advance(1, result), Ok(None), "no read follows");
    let read = read.expect("a read follows the write");
    let result = bench.storage.serve(read);
    assert_eq!(transactions.advance(0, result), Ok(None));
    assert!(transactions.at_rest());
    assert_eq!(transactions.completed(), 1);
}

#[test]
fn memory_of_mirrored_blocks_is_at_their_offset_in_the_storage() {
    for is_mirrored in [false, true] {
        let setup = Setup {
            strategy: Strategy::ReadThroughputTest,
            operations: 20,
            is_mirrored,
            ..SETUP
        };
        let mut transactions = setup.build().workers.remove(0);
        let mut offsets = Vec::new();
        let mut next = transactions.begin(0, Instant::now()).expect("begun");
        while let Some(request) = next {
            let expected = if is_mirrored {
                request.storage_offset
            } else {
                0
            };
            assert_eq!(request.memory_offset, expected);
            offsets.push(request.storage_offset);
            next = transactions.advance(0, 0).expect("read");
        }
        offsets.dedup();
        assert_eq!(offsets.len(), 20);
    }
}
