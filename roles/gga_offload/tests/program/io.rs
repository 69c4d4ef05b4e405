//! Reads and writes of a running service, message by message.

use std::collections::HashSet;

use conformance::target::Fault;
use deployment::log::LogEvent;
use doca::ErrorCode;
use wire::io_message::IoMessageType::{self, Read, Write};
use wire::io_message::Repr;

use crate::{
    Deployment, HALF, LOGICAL, Plan, Stripes, TAIL, blank, command, expect_chunks, noise, stamped,
    text,
};

const STORED: usize = 2 * HALF;

/// Targets of this many blocks that were never written.
fn empty(blocks: usize) -> [Vec<u8>; 3] {
    [0; 3].map(|_| vec![0; blocks * HALF])
}

#[test]
fn writes_are_striped_over_three_targets_and_read_back() {
    let content = text(8, STORED);
    let mut deployment = Plan::reference(&empty(8), "").start();
    let initiator = &mut deployment.initiator;
    assert_eq!(
        (initiator.details.block_size, initiator.details.total_size),
        (1024, 8192)
    );
    initiator.memory.write(0, &content).expect("inside");
    assert_eq!(initiator.io(Write, 0, 1), ErrorCode::SUCCESS);
    assert_eq!(
        initiator.io(Write, 1, 7),
        ErrorCode::SUCCESS,
        "several blocks"
    );
    initiator
        .memory
        .fill(0, content.len(), 0xee)
        .expect("inside");
    assert_eq!(initiator.io(Read, 0, 8), ErrorCode::SUCCESS);
    assert_eq!(initiator.bytes(0, content.len()), content);
    let end = deployment.end();
    assert_eq!(
        Stripes(end.contents()),
        Stripes::of(&content),
        "byte by byte"
    );
    assert_eq!(end.statistics["operation_count"], 3);
    assert_eq!(end.statistics["failed_count"], 0);
    let messages = end.recorder.messages();
    assert!(
        messages
            .iter()
            .all(|it| matches!(it.io.message_type, Read | Write)),
        "a session of the reference"
    );
}

/// Every second read does without a data chunk, data_2 and data_1 in turn.
#[test]
fn whole_blocks_of_releases_3_0_and_3_1_are_read_and_not_written() {
    let content = text(8, STORED);
    let whole = Stripes::of(&content).whole_blocks();
    let flags = "--placement whole-blocks --trigger-recovery-read-every-n 2";
    let mut deployment = Plan::reference(&whole, flags).start();
    let initiator = &mut deployment.initiator;
    assert_eq!(
        (initiator.details.block_size, initiator.details.total_size),
        (1024, 8192)
    );
    for _ in 0..4 {
        initiator.memory.fill(0, content.len(), 0).expect("inside");
        assert_eq!(initiator.io(Read, 0, 8), ErrorCode::SUCCESS);
        assert_eq!(initiator.bytes(0, content.len()), content);
        assert_eq!(initiator.io(Read, 3, 1), ErrorCode::SUCCESS);
    }
    assert_eq!(initiator.io(Write, 0, 1), ErrorCode::INVALID_VALUE);
    let end = deployment.end();
    assert_eq!(end.contents(), whole, "as it was");
    assert_eq!(end.statistics["failed_count"], 1);
}

#[test]
fn flags_that_need_the_other_form_of_blocks_are_refused() {
    for (flags, values) in [
        // Such targets are not written.
        (
            "--placement whole-blocks --logical-block-size 896",
            ["--placement whole-blocks", "--logical-block-size"],
        ),
        ("--degraded on", ["--degraded on", "--logical-block-size"]),
        (
            "--degraded off --logical-block-size 896",
            ["--degraded off", "--logical-block-size"],
        ),
        ("--rebuild data_1", ["--rebuild", "--logical-block-size"]),
    ] {
        let args = format!(
            "-d 03:00.0 -r 3b:00.0 --cpu 0 --data-1-storage 127.0.0.1:1 --data-2-storage 127.0.0.1:2 \
             --data-p-storage 127.0.0.1:3 {flags}"
        );
        let output = command(&args).output().expect("a process");
        assert_eq!(output.status.code(), Some(2), "{flags}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        for value in values {
            assert!(text.contains(value), "{flags}: {text}");
        }
    }
}

#[test]
fn up_to_255_blocks_are_one_io_and_256_an_error() {
    let content = text(255, STORED);
    let mut deployment = Plan::reference(&empty(300), "").start();
    let initiator = &mut deployment.initiator;
    initiator.memory.write(0, &content).expect("inside");
    assert_eq!(initiator.io(Write, 0, 256), ErrorCode::INVALID_VALUE);
    assert_eq!(initiator.io(Write, 0, 255), ErrorCode::SUCCESS);
    initiator.memory.fill(0, content.len(), 0).expect("inside");
    assert_eq!(initiator.io(Read, 0, 256), ErrorCode::INVALID_VALUE);
    assert_eq!(initiator.io(Read, 0, 255), ErrorCode::SUCCESS);
    assert_eq!(initiator.bytes(0, content.len()), content);
    let end = deployment.end();
    assert_eq!(end.statistics["failed_count"], 2);
    let size = 256 * STORED;
    end.expect_line(&["255", &size.to_string()]);
}

#[test]
fn requests_outside_of_the_memories_are_errors_and_the_worker_goes_on() {
    let content = text(8, STORED);
    let stripes = Stripes::of(&content);
    let mut deployment = Plan::reference(&stripes.0, "").start();
    let initiator = &mut deployment.initiator;
    let memory = initiator.memory.len() as u64;
    for (size, requester, storage) in [
        (1024, 0, 8 * 1024),
        (2048, 0, 7 * 1024),
        (1024, 0, u64::MAX - 1023),
        (1024, memory - 1023, 0),
        (1024, u64::MAX, 0),
        (1023, 0, 0),
        (0, 0, 0),
        (1024, 0, 512),
    ] {
        for kind in [Read, Write] {
            let code = initiator.io_at(kind, size, requester, storage);
            assert_eq!(
                code,
                ErrorCode::INVALID_VALUE,
                "{kind:?} {size} {requester} {storage}"
            );
        }
    }
    for (kind, length) in [(7, 64), (0, 64), (1, 63), (1, 0)] {
        let mut request = Repr {
            message_type: Read,
            user_data: 9,
            result: 0,
            size: 1024,
            requester_offset: 0,
            storage_offset: 0,
        }
        .to_bytes();
        request[3] = kind;
        let answers = initiator.exchange_lengths(&[(&request, length)]);
        assert_eq!(
            answers[0].result,
            ErrorCode::INVALID_VALUE.0,
            "{kind} {length}"
        );
    }
    assert_eq!(
        initiator.io_at(Read, 1024, memory - 1024, 7 * 1024),
        ErrorCode::SUCCESS
    );
    assert_eq!(
        initiator.bytes(memory as usize - 1024, 1024),
        content[7 * 1024..]
    );
    let end = deployment.end();
    assert_eq!(end.statistics["failed_count"], 20);
    assert_eq!(Stripes(end.contents()), stripes, "nothing was written");
}

#[test]
fn an_error_of_any_target_is_the_error_of_its_io_only() {
    let content = text(4, STORED);
    let stripes = Stripes::of(&content);
    for target in 0..3 {
        let fault = Fault::FailIo {
            nth: 0,
            result: ErrorCode::NOT_PERMITTED.0,
        };
        let plan = Plan::reference(&stripes.0, "").fault(target, fault);
        let mut deployment = plan.start();
        let initiator = &mut deployment.initiator;
        initiator.memory.write(0, &content).expect("inside");
        assert_eq!(
            initiator.io(Write, 0, 4),
            ErrorCode::NOT_PERMITTED,
            "the first of its blocks"
        );
        assert_eq!(initiator.io(Write, 0, 4), ErrorCode::SUCCESS);
        assert_eq!(initiator.io(Read, 0, 4), ErrorCode::SUCCESS);
        assert_eq!(deployment.end().statistics["failed_count"], 1);
    }
}

#[test]
fn content_that_does_not_compress_names_the_flag_that_helps() {
    let mut deployment = Plan::reference(&empty(4), "").start();
    let initiator = &mut deployment.initiator;
    initiator
        .memory
        .write(0, &noise(1, STORED))
        .expect("inside");
    initiator
        .memory
        .write(STORED, &text(1, STORED))
        .expect("inside");
    assert_eq!(initiator.io(Write, 0, 1), ErrorCode::IO_FAILED);
    assert_eq!(
        initiator.io(Write, 1, 1),
        ErrorCode::SUCCESS,
        "the worker continues"
    );
    let end = deployment.end();
    end.expect_line(&["1028", "1012", "--logical-block-size 1024"]);
}

#[test]
fn a_logical_block_size_holds_noise() {
    let content = noise(2, LOGICAL * 8);
    let mut deployment = Plan::set(&blank(8), "").start();
    let initiator = &mut deployment.initiator;
    assert_eq!(
        (initiator.details.block_size, initiator.details.total_size),
        (LOGICAL as u32, 8 * LOGICAL as u64)
    );
    initiator.memory.write(0, &content).expect("inside");
    assert_eq!(initiator.io(Write, 0, 8), ErrorCode::SUCCESS);
    initiator
        .memory
        .fill(0, content.len() + 100, 0xee)
        .expect("inside");
    for block in 0..8 {
        assert_eq!(initiator.io(Read, block, 1), ErrorCode::SUCCESS);
    }
    assert_eq!(initiator.bytes(0, content.len()), content);
    assert_eq!(
        initiator.bytes(content.len(), 100),
        [0xee; 100],
        "not a byte more"
    );
    let end = deployment.end();
    expect_chunks(&end.kept, &[0, 1, 2], &content);
}

#[test]
fn reads_of_blocks_that_were_never_written_are_errors() {
    let mut deployment = Plan::reference(&empty(4), "").start();
    assert_eq!(deployment.initiator.io(Read, 2, 1), ErrorCode::IO_FAILED);
    let end = deployment.end();
    end.expect_line(&["block 2", "never"]);
}

/// Reads a block of a set into memory with other contents. Returns the block's content.
fn read_logical(deployment: &mut Deployment, block: u64) -> Result<Vec<u8>, ErrorCode> {
    let initiator = &mut deployment.initiator;
    let offset = block as usize * LOGICAL;
    initiator
        .memory
        .fill(offset, LOGICAL, 0xee)
        .expect("inside");
    match initiator.io(Read, block, 1) {
        ErrorCode::SUCCESS => Ok(initiator.bytes(offset, LOGICAL)),
        code => Err(code),
    }
}

#[test]
fn blocks_of_a_set_are_zeros_until_they_are_written_with_any_target_lost() {
    let content = noise(3, LOGICAL);
    for lost in 0..3 {
        let fault = Fault::FailIo {
            nth: 0,
            result: ErrorCode::IO_FAILED.0,
        };
        let plan = Plan::set(&blank(4), "").fault(lost, fault);
        let mut deployment = plan.start();
        let initiator = &mut deployment.initiator;
        initiator.memory.write(LOGICAL, &content).expect("inside");
        assert_eq!(initiator.io(Write, 1, 1), ErrorCode::SUCCESS);
        assert_eq!(read_logical(&mut deployment, 2), Ok(vec![0; LOGICAL]));
        assert_eq!(read_logical(&mut deployment, 1), Ok(content.clone()));
        assert_eq!(read_logical(&mut deployment, 3), Ok(vec![0; LOGICAL]));
        let end = deployment.end();
        assert_eq!(end.statistics["redundancy"]["state"], "degraded");
        assert_eq!(end.statistics["uncorrectable"], 0);
        for target in (0..3).filter(|&target| target != lost) {
            let unwritten = [0, 2, 3].map(|stripe| stamped(&end.kept[target], target, stripe).0);
            assert_eq!(unwritten, [(0, 0); 3]);
        }
    }
}

#[test]
fn new_set_is_scrubbed_once_and_stays_unwritten() {
    let mut plan = Plan::set(&blank(4), "");
    plan.args = format!("--logical-block-size {LOGICAL}");
    let mut deployment = plan.start();
    deployment.wait_for_log(LogEvent::ScrubCompleted);
    assert_eq!(read_logical(&mut deployment, 3), Ok(vec![0; LOGICAL]));
    let end = deployment.end();
    let scrubbed = &end.statistics["redundancy"]["scrubbed"];
    assert_eq!(
        (&scrubbed["stripes"], &scrubbed["lost"]),
        (&4.into(), &0.into())
    );
    for kept in &end.kept {
        assert!(kept.content.iter().all(|&byte| byte == 0));
    }
    let mut again = Plan::set(&end.kept, "");
    again.args = format!("--logical-block-size {LOGICAL}");
    let end = again.start().end();
    assert_eq!(end.statistics["redundancy"]["scrubbed"]["stripes"], 0);
}

#[test]
fn ios_on_one_block_at_a_time_do_not_tear_it() {
    // Requests of one worker reach all targets in the same order; requests of two workers interleave.
    let args = "--trigger-recovery-read-every-n 2";
    for plan in [Plan::reference(&empty(4), args), Plan::set(&blank(4), args)] {
        ios_on_one_block(plan.workers(2).start());
    }
}

fn ios_on_one_block(mut deployment: Deployment) {
    const ROUNDS: u64 = 300;
    let initiator = &mut deployment.initiator;
    let size = initiator.details.block_size as usize;
    // Each writer has its own block in memory, and each reader its own range.
    let versions: Vec<Vec<u8>> = (0..4u8).map(|version| vec![version + 1; size]).collect();
    for (version, bytes) in versions.iter().enumerate() {
        initiator
            .memory
            .write(version * size, bytes)
            .expect("inside");
    }
    let request = |kind: IoMessageType, place: u64| {
        let repr = Repr {
            message_type: kind,
            user_data: place,
            result: 0,
            size: size as u32,
            requester_offset: place * size as u64,
            storage_offset: size as u64,
        };
        repr.to_bytes()
    };
    let first = initiator.exchange(&[request(Write, 0)]);
    assert_eq!(first[0].result, 0);
    let mut seen = HashSet::new();
    for _ in 0..ROUNDS {
        let mut requests = Vec::new();
        for place in 0..4 {
            requests.push(request(Write, place));
            requests.push(request(Read, 4 + place));
        }
        for answer in initiator.exchange(&requests) {
            assert_eq!(answer.result, ErrorCode::SUCCESS.0);
        }
        for place in 4..8 {
            let read = initiator.bytes(place * size, size);
            assert!(versions.contains(&read), "a torn block: {:?}", &read[..8]);
            seen.insert(read[0]);
        }
    }
    assert!(seen.len() > 1, "reads see different writes: {seen:?}");
    let end = deployment.end();
    assert_eq!(end.statistics["corrected"], serde_json::json!([0, 0, 0]));
    assert_eq!(end.statistics["uncorrectable"], 0);
    assert_eq!(end.statistics["operation_count"], 8 * ROUNDS + 1);
}

#[test]
fn content_that_cannot_be_fetched_fails_its_write_and_no_other() {
    for workers in [1, 2] {
        let mut deployment = Plan::reference(&empty(8), "").workers(workers).start();
        let initiator = &mut deployment.initiator;
        initiator.memory.write(0, &text(8, STORED)).expect("inside");
        assert_eq!(initiator.io(Write, 0, 8), ErrorCode::SUCCESS);
        initiator.withdraw_memory();
        assert_ne!(initiator.io_at(Write, 1024, TAIL, 1024), ErrorCode::SUCCESS);
        assert_eq!(initiator.io_at(Write, 1024, 0, 2048), ErrorCode::SUCCESS);
        // Valid and invalid writes and some reads concurrently: a DMA task that fails also causes others to be flushed.
        for round in 0..60 {
            let fails = |lane: u64| (lane * 7 + round * 3) % 5 < 2;
            let requests: Vec<_> = (0..8)
                .map(|lane| {
                    let repr = Repr {
                        message_type: if (lane + round) % 7 == 0 && !fails(lane) {
                            Read
                        } else {
                            Write
                        },
                        user_data: lane,
                        result: 0,
                        size: 1024,
                        requester_offset: if fails(lane) { TAIL } else { 0 },
                        storage_offset: 1024 * (lane % 3),
                    };
                    repr.to_bytes()
                })
                .collect();
            for answer in initiator.exchange(&requests) {
                let failed = answer.result != ErrorCode::SUCCESS.0;
                assert_eq!(failed, fails(answer.user_data), "round {round}: {answer:?}");
            }
        }
        let end = deployment.end();
        assert_eq!(end.statistics["uncorrectable"], 0, "no target is to blame");
    }
}

/// Reads all blocks repeatedly while data_2 sends unexpected messages, which the service has to log, with
/// this value, without other effect.
fn logged_without_effect(fault: Fault, value: &str) {
    let content = text(4, STORED);
    let stripes = Stripes::of(&content);
    let mut deployment = Plan::reference(&stripes.0, "").fault(1, fault).start();
    let initiator = &mut deployment.initiator;
    for _ in 0..20 {
        assert_eq!(initiator.io(Read, 0, 4), ErrorCode::SUCCESS);
        assert_eq!(initiator.bytes(0, 4 * STORED), content);
    }
    let end = deployment.end();
    end.expect_line(&["data_2", value]);
    // If it was mistaken for the result of a read, it would be counted as a corrected chunk.
    assert_eq!(end.statistics["corrected"], serde_json::json!([0, 0, 0]));
}

#[test]
fn second_result_is_ignored() {
    logged_without_effect(Fault::AnswerTwice, "transaction");
}

#[test]
fn late_second_result_is_not_taken_for_the_next_block() {
    logged_without_effect(Fault::AnswerLate, "transaction");
}

#[test]
fn echoed_request_is_not_taken_for_a_result() {
    logged_without_effect(Fault::Echo, "64 bytes");
}

#[test]
fn truncated_result_is_ignored() {
    logged_without_effect(Fault::Truncate, "63 bytes");
}
