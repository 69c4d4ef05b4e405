//! `--degraded on`: targets that fail, I/O that continues without them, targets that rejoin, and their rebuild.

use std::time::Duration;

use conformance::target::Fault;
use deployment::log::{LogEvent, events};
use doca::ErrorCode;
use role_common::stored_block::Checksum;
use wire::io_message::IoMessageType::{Read, Write};

use crate::{Deployment, End, HALF, Stripes, text};

const BLOCKS: u64 = 8;
const STORED: usize = 2 * HALF;
const NAMES: [&str; 3] = ["data_1", "data_2", "data_p"];

/// `IO_FAILED`, as a target says it.
const FAILED: u32 = ErrorCode::IO_FAILED.0;

fn empty() -> [Vec<u8>; 3] {
    [0; 3].map(|_| vec![0; BLOCKS as usize * HALF])
}

/// Three targets, of which these have faults.
fn deployment(halves: &[Vec<u8>; 3], args: &str, faults: &[(usize, Fault)]) -> Deployment {
    let mut all = [Fault::None; 3];
    for &(target, fault) in faults {
        all[target] = fault;
    }
    Deployment::with(halves, &format!("--degraded on {args}"), all, 1)
}

/// Writes `content` block by block, and expects these results.
fn write(deployment: &mut Deployment, content: &[u8], expected: ErrorCode) {
    let initiator = &mut deployment.initiator;
    initiator.memory.write(0, content).expect("inside");
    for block in 0..content.len() / STORED {
        assert_eq!(
            initiator.io(Write, block as u64, 1),
            expected,
            "block {block}"
        );
    }
}

/// Reads blocks one by one: each is an error without data.
fn expect_errors(deployment: &mut Deployment, blocks: u64) {
    let initiator = &mut deployment.initiator;
    initiator
        .memory
        .fill(0, blocks as usize * STORED, 0xee)
        .expect("inside");
    for block in 0..blocks {
        assert_eq!(
            initiator.io(Read, block, 1),
            ErrorCode::IO_FAILED,
            "block {block}"
        );
        assert_eq!(initiator.block(block), [0xee; STORED], "block {block}");
    }
}

/// The state at the end, the number of detachments of this target, and the number of missed stripes.
fn redundancy(end: &End, target: usize) -> (&str, u64, u64) {
    let redundancy = &end.statistics["redundancy"];
    (
        redundancy["state"].as_str().expect("a state"),
        redundancy["lost"][target].as_u64().expect("a count"),
        redundancy["missed_stripes"].as_u64().expect("a count"),
    )
}

#[test]
fn target_that_fails_to_write_is_detached_and_io_continues() {
    let (old, new) = (
        text(BLOCKS, STORED),
        text(2 * BLOCKS, STORED)[BLOCKS as usize * STORED..].to_vec(),
    );
    for (target, name) in NAMES.iter().enumerate() {
        let fault = Fault::FailIo {
            nth: 5,
            result: FAILED,
        };
        let mut deployment = deployment(&empty(), "", &[(target, fault)]);
        write(&mut deployment, &old, ErrorCode::SUCCESS);
        deployment.expect_content(&old);
        write(&mut deployment, &new[..2 * STORED], ErrorCode::SUCCESS);
        let now = [&new[..2 * STORED], &old[2 * STORED..]].concat();
        deployment.expect_content(&now);
        let end = deployment.end();
        // Blocks 5, 6 and 7 of the first pass, 0 and 1 of the second.
        assert_eq!(redundancy(&end, target), ("degraded", 1, 5), "{name}");
        assert_eq!(end.statistics["failed_count"], 0);
        assert_eq!(end.statistics["degraded"]["writes"], 5);
        let reads = if target == 2 { 0 } else { 2 * BLOCKS };
        assert_eq!(end.statistics["degraded"]["reads"], reads, "{name}");
        let expected = Stripes::of(&now, Checksum::Crc32c);
        for other in (0..3).filter(|&other| other != target) {
            assert!(
                end.halves[other] == expected.0[other],
                "what {} holds",
                NAMES[other]
            );
        }
        end.expect_event(LogEvent::TargetDetached(name));
    }
}

#[test]
fn failed_chunk_read_is_recovered_and_its_target_stays() {
    let content = text(BLOCKS, STORED);
    let stripes = Stripes::of(&content, Checksum::Crc32c);
    for (target, name) in NAMES.iter().enumerate() {
        let fault = Fault::FailIo {
            nth: 1,
            result: FAILED,
        };
        // Every read bypasses data_2 or data_1, so all three targets get requests.
        let mut deployment = deployment(
            &stripes.0,
            "--trigger-recovery-read-every-n 1",
            &[(target, fault)],
        );
        deployment.expect_content(&content);
        deployment.expect_content(&content);
        let end = deployment.end();
        assert_eq!(redundancy(&end, target), ("healthy", 0, 0), "{name}");
        assert_eq!(
            end.statistics["degraded"]["failed_reads"][target], 1,
            "{name}"
        );
        end.expect_line(&[name, "IO_FAILED"]);
    }
}

/// Tests all targets in parallel: a deployment mostly waits for timeouts, which are long enough for a busy machine.
#[test]
fn unresponsive_target_is_detached() {
    let content = text(BLOCKS, STORED);
    let stripes = Stripes::of(&content, Checksum::Crc32c);
    let silent = Fault::SwallowIo { nth: 2 };
    let writes = |target: usize| {
        let mut writing = deployment(&empty(), "--control-timeout 3", &[(target, silent)]);
        write(&mut writing, &content, ErrorCode::SUCCESS);
        writing.expect_content(&content);
        let end = writing.end();
        assert_eq!(
            redundancy(&end, target),
            ("degraded", 1, BLOCKS - 2),
            "{}",
            NAMES[target]
        );
        end.expect_event(LogEvent::TargetDetached(NAMES[target]));
    };
    let reads = |target: usize| {
        let args = "--control-timeout 3 --trigger-recovery-read-every-n 1";
        let mut reading = deployment(&stripes.0, args, &[(target, silent)]);
        reading.expect_content(&content);
        let end = reading.end();
        let name = NAMES[target];
        assert_eq!(redundancy(&end, target), ("degraded", 1, 0), "{name}");
    };
    std::thread::scope(|scope| {
        for target in 0..NAMES.len() {
            let (writes, reads) = (&writes, &reads);
            scope.spawn(move || writes(target));
            scope.spawn(move || reads(target));
        }
    });
}

#[test]
fn second_failure_causes_errors_and_no_wrong_data() {
    let content = text(BLOCKS, STORED);
    let stripes = Stripes::of(&content, Checksum::Crc32c);
    for (one, other) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let fail = |nth| Fault::FailIo {
            nth,
            result: FAILED,
        };
        let mut deployment = deployment(&stripes.0, "", &[(one, fail(0)), (other, fail(1))]);
        write(&mut deployment, &content[..STORED], ErrorCode::SUCCESS);
        write(&mut deployment, &content[..STORED], ErrorCode::IO_FAILED);
        write(
            &mut deployment,
            &content[..3 * STORED],
            ErrorCode::IO_FAILED,
        );
        expect_errors(&mut deployment, BLOCKS);
        let end = deployment.end();
        assert_eq!(redundancy(&end, other).0, "failed", "{one} {other}");
        assert_eq!(end.statistics["failed_count"], 4 + BLOCKS);
        let third = 3 - one - other;
        // It stored one write, and perhaps the second one, which has the same content.
        assert!(end.halves[third] == stripes.0[third]);
    }
}

#[test]
fn two_failed_chunk_reads_are_an_error_of_that_block() {
    let content = text(BLOCKS, STORED);
    let stripes = Stripes::of(&content, Checksum::Crc32c);
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let fail = Fault::FailIo {
            nth: 0,
            result: FAILED,
        };
        let mut deployment = deployment(&stripes.0, "", &[(one, fail), (other, fail)]);
        expect_errors(&mut deployment, 1);
        deployment.expect_content(&content);
        let end = deployment.end();
        assert_eq!(redundancy(&end, one), ("healthy", 0, 0));
        assert_eq!(end.statistics["failed_count"], 1);
    }
}

#[test]
fn blocks_without_checksum_are_read_from_two_chunks_unless_checksums_are_required() {
    let content = text(BLOCKS, STORED);
    let stripes = Stripes::of(&content, Checksum::Off);
    for target in 0..3 {
        let fail = Fault::FailIo {
            nth: 1,
            result: FAILED,
        };
        for policy in ["crc32c", "require"] {
            let args = format!("--checksum {policy}");
            let mut deployment = deployment(&stripes.0, &args, &[(target, fail)]);
            // All three chunks of block 0 are read, and the last block is written.
            deployment.initiator.io(Read, 0, 1);
            let initiator = &mut deployment.initiator;
            initiator.memory.write(0, &content).expect("inside");
            assert_eq!(initiator.io(Write, BLOCKS - 1, 1), ErrorCode::SUCCESS);
            if policy == "require" {
                expect_errors(&mut deployment, BLOCKS - 1);
            } else {
                deployment.expect_content(&content);
            }
            let end = deployment.end();
            assert_eq!(redundancy(&end, target), ("degraded", 1, 1));
        }
    }
}

#[test]
fn wrong_chunk_without_a_third_one_is_an_error() {
    let content = text(BLOCKS, STORED);
    for (lost, wrong) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let stripes = Stripes::of(&content, Checksum::Crc32c).flip(wrong, 3, 30);
        let fail = Fault::FailIo {
            nth: 0,
            result: FAILED,
        };
        let mut deployment = deployment(&stripes.0, "", &[(lost, fail)]);
        write(&mut deployment, &content[..STORED], ErrorCode::SUCCESS);
        let initiator = &mut deployment.initiator;
        initiator.memory.fill(0, 8 * STORED, 0xee).expect("inside");
        assert_eq!(
            initiator.io(Read, 3, 1),
            ErrorCode::IO_FAILED,
            "{lost} {wrong}"
        );
        assert_eq!(initiator.block(3), [0xee; STORED]);
        assert_eq!(
            initiator.io(Read, 4, 1),
            ErrorCode::SUCCESS,
            "the worker continues"
        );
        let end = deployment.end();
        assert_eq!(end.statistics["uncorrectable"], 1);
    }
}

#[test]
fn without_degraded_mode_the_session_ends_without_redundancy_output() {
    let content = text(BLOCKS, STORED);
    let stripes = Stripes::of(&content, Checksum::Crc32c);
    let fail = Fault::FailIo {
        nth: 0,
        result: FAILED,
    };
    let mut faults = [Fault::None; 3];
    faults[0] = fail;
    let mut deployment = Deployment::with(&stripes.0, "", faults, 1);
    assert_eq!(deployment.initiator.io(Read, 0, 1), ErrorCode::IO_FAILED);
    let end = deployment.end();
    assert!(end.statistics.get("degraded").is_none() && end.statistics.get("redundancy").is_none());
    assert!(end.statistics["cores"][0].get("degraded").is_none());
}

/// Three targets with superblocks: one fails to write, and another one persists only this many superblocks.
fn with_superblocks(failing: usize, persists: (usize, u32)) -> Deployment {
    let mut faults = [Fault::None; 3];
    faults[failing] = Fault::FailIo {
        nth: 0,
        result: FAILED,
    };
    let mut superblocks = [Some(u32::MAX); 3];
    superblocks[persists.0] = Some(persists.1);
    // The scrub of a new set would read from its targets.
    let args = "--degraded on --control-timeout 1 --scrub off";
    Deployment::keeping(&empty(), args, faults, superblocks, 1)
}

/// Number of superblocks that a target has persisted when the set is opened, when it has detached a member, and when it is closed.
const OPEN: u32 = 2;
const DEGRADED: u32 = OPEN + 2;
const CLOSED: u32 = DEGRADED + 2;

const PAIRS: [(usize, usize); 6] = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];

#[test]
fn degraded_write_is_acknowledged_only_after_the_epoch_is_persisted() {
    for (failing, withholding) in PAIRS {
        for persists in OPEN..DEGRADED {
            let mut deployment = with_superblocks(failing, (withholding, persists));
            let initiator = &mut deployment.initiator;
            initiator.memory.write(0, &text(1, STORED)).expect("inside");
            initiator.begin(Write, 0);
            // A second unresponsive target is not detached.
            deployment.wait_for_log(LogEvent::TargetAwaited(NAMES[withholding]));
            let initiator = &mut deployment.initiator;
            assert!(
                !initiator.is_answered(Duration::from_millis(200)),
                "acknowledged with {persists} superblocks of {}",
                NAMES[withholding]
            );
            let logged = deployment.abandon();
            let is_detached =
                |event: &_| matches!(event, LogEvent::TargetDetached(_) | LogEvent::SetFailed(_));
            let detached: Vec<_> = events(&logged).filter(is_detached).collect();
            let expected = [LogEvent::TargetDetached(NAMES[failing])];
            assert_eq!(detached, expected, "{logged}");
        }
        let mut deployment = with_superblocks(failing, (withholding, CLOSED));
        write(&mut deployment, &text(1, STORED), ErrorCode::SUCCESS);
        let end = deployment.end();
        assert_eq!(redundancy(&end, failing), ("degraded", 1, 1));
    }
}

/// Starts a session in which data_2 persists only this many superblocks, which is refused: I/Os start only after all targets have
/// persisted that the set is in use.
fn start_session_with_superblocks_of_data_2(superblocks: u32) {
    let superblocks = [Some(u32::MAX), Some(superblocks), Some(u32::MAX)];
    let args = "--degraded on --control-timeout 1";
    let started = Deployment::try_keeping(&empty(), args, [Fault::None; 3], superblocks, 1);
    let (error, ports) = started.err().expect("an error");
    assert_eq!(ErrorCode(error.error_code), ErrorCode::TIME_OUT);
    for value in [&format!(":{}: ", ports[1].number()), " 1s "] {
        assert!(error.message.contains(value), "{}", error.message);
    }
}

#[test]
fn no_io_begins_before_all_targets_have_prepared_for_it() {
    start_session_with_superblocks_of_data_2(0);
}

#[test]
fn no_io_begins_before_all_targets_have_committed_that_they_are_in_use() {
    start_session_with_superblocks_of_data_2(1);
}

const REJOIN_BLOCKS: u64 = 40;

fn empty_chunk() -> Vec<u8> {
    vec![0; REJOIN_BLOCKS as usize * HALF]
}

/// The n-th I/O of a target fails.
fn fails(nth: u64) -> Fault {
    let result = ErrorCode::IO_FAILED.0;
    Fault::FailIo { nth, result }
}

fn write_from(deployment: &mut Deployment, content: &[u8], from: u64, blocks: u64) {
    let initiator = &mut deployment.initiator;
    initiator.memory.write(0, content).expect("inside");
    for block in from..from + blocks {
        assert_eq!(
            initiator.io(Write, block, 1),
            ErrorCode::SUCCESS,
            "block {block}"
        );
    }
}

#[test]
fn empty_replacement_target_is_rebuilt_during_io() {
    let old = text(REJOIN_BLOCKS, STORED);
    let new = text(2 * REJOIN_BLOCKS, STORED)[REJOIN_BLOCKS as usize * STORED..].to_vec();
    let stripes = Stripes::of(&old, Checksum::Crc32c);
    for matrix in ["vandermonde", "cauchy"] {
        for (target, name) in NAMES.iter().enumerate() {
            let mut faults = [Fault::None; 3];
            faults[target] = fails(0);
            // The chunks have no parity of the other matrix: all blocks are written first.
            let args = format!("--degraded on --matrix-type {matrix}");
            let mut deployment = Deployment::with(&stripes.0, &args, faults, 1);
            write_from(&mut deployment, &old, 0, REJOIN_BLOCKS);
            deployment.last_content_of(target);
            deployment.expect_content(&old);
            deployment.replace(target, empty_chunk(), Fault::None);
            deployment.wait_for_log(LogEvent::RebuildStarted {
                target: name,
                stripes: REJOIN_BLOCKS,
                all: true,
            });
            write_from(&mut deployment, &new, 0, REJOIN_BLOCKS / 2);
            deployment.wait_for_log(LogEvent::TargetUpToDate(name));
            let now = [&new[..new.len() / 2], &old[old.len() / 2..]].concat();
            deployment.expect_content(&now);
            let end = deployment.end();
            assert_eq!(end.statistics["redundancy"]["state"], "healthy", "{name}");
            assert_eq!(end.statistics["redundancy"]["missed_stripes"], 0);
            assert_eq!(
                end.statistics["redundancy"]["rebuilt_stripes"],
                REJOIN_BLOCKS
            );
            assert_eq!(end.statistics["failed_count"], 0);
            if matrix == "vandermonde" {
                let expected = Stripes::of(&now, Checksum::Crc32c);
                assert!(
                    end.halves[target] == expected.0[target],
                    "what {name} holds"
                );
            }
        }
    }
}

#[test]
fn rebuilt_target_covers_another_failure() {
    let content = text(REJOIN_BLOCKS, STORED);
    for (first, second) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let mut faults = [Fault::None; 3];
        faults[first] = fails(0);
        // It stores all blocks, and reads them for the rebuild of the first one; then it fails.
        faults[second] = fails(2 * REJOIN_BLOCKS);
        let halves = [empty_chunk(), empty_chunk(), empty_chunk()];
        let mut deployment = Deployment::with(&halves, "--degraded on", faults, 1);
        write_from(&mut deployment, &content, 0, REJOIN_BLOCKS);
        deployment.last_content_of(first);
        deployment.replace(first, empty_chunk(), Fault::None);
        deployment.wait_for_log(LogEvent::TargetUpToDate(NAMES[first]));
        write_from(&mut deployment, &content, 0, 1);
        deployment.expect_content(&content);
        deployment.last_content_of(second);
        deployment.replace(second, empty_chunk(), Fault::None);
        deployment.wait_for_log(LogEvent::TargetUpToDate(NAMES[second]));
        deployment.expect_content(&content);
        let end = deployment.end();
        assert_eq!(end.statistics["redundancy"]["state"], "healthy");
        assert!(Stripes(end.halves) == Stripes::of(&content, Checksum::Crc32c));
    }
}

#[test]
fn every_replacement_target_persists_its_own_superblock() {
    let content = text(REJOIN_BLOCKS, STORED);
    for (target, name) in NAMES.iter().enumerate() {
        let mut faults = [Fault::None; 3];
        faults[target] = fails(0);
        let (halves, keeps) = (
            [empty_chunk(), empty_chunk(), empty_chunk()],
            Some(u32::MAX),
        );
        // The scrub of a new set would read from its targets.
        let args = "--degraded on --scrub off";
        let mut deployment = Deployment::keeping(&halves, args, faults, [keeps; 3], 1);
        write_from(&mut deployment, &content, 0, REJOIN_BLOCKS);
        deployment.last_content_of(target);
        // It persists that it has nothing, and disconnects before it has anything.
        deployment.replace_keeping(target, empty_chunk(), fails(10), keeps);
        deployment.last_content_of(target);
        deployment.replace_keeping(target, empty_chunk(), Fault::None, keeps);
        deployment.wait_for_log(LogEvent::TargetUpToDate(name));
        deployment.expect_content(&content);
        let end = deployment.end();
        assert_eq!(end.statistics["redundancy"]["state"], "healthy", "{name}");
        let expected = Stripes::of(&content, Checksum::Crc32c);
        assert!(Stripes(end.halves).without_checksums() == expected.without_checksums());
    }
}

#[test]
fn failure_during_a_rebuild_loses_only_blocks_not_yet_rebuilt() {
    let content = text(REJOIN_BLOCKS, STORED);
    let stripes = Stripes::of(&content, Checksum::Crc32c);
    for (first, second, third) in [(0, 1, 2), (1, 2, 0), (2, 0, 1)] {
        let mut faults = [Fault::None; 3];
        faults[first] = fails(0);
        // It fails to read one of the chunks for the rebuild, which leaves that block for later.
        faults[second] = fails(20);
        // It stores one block and reads all for the rebuild; then it fails.
        faults[third] = fails(1 + REJOIN_BLOCKS);
        let mut deployment = Deployment::with(&stripes.0, "--degraded on", faults, 1);
        write_from(&mut deployment, &content, 0, 1);
        deployment.last_content_of(first);
        deployment.replace(first, empty_chunk(), Fault::None);
        deployment.wait_for_log(LogEvent::RebuildRetried { stripes: 1 });
        let initiator = &mut deployment.initiator;
        assert_eq!(initiator.io(Write, 0, 1), ErrorCode::IO_FAILED);
        assert_eq!(
            initiator.io(Write, 1, 1),
            ErrorCode::IO_FAILED,
            "nothing is written any more"
        );
        initiator
            .memory
            .fill(0, content.len(), 0xee)
            .expect("inside");
        let mut failed = Vec::new();
        for (block, expected) in content.chunks(STORED).enumerate() {
            match initiator.io(Read, block as u64, 1) {
                ErrorCode::SUCCESS => assert_eq!(initiator.block(block as u64), expected),
                code => {
                    assert_eq!(code, ErrorCode::IO_FAILED);
                    assert_eq!(initiator.block(block as u64), [0xee; STORED]);
                    failed.push(block);
                }
            }
        }
        // The one that was being written, and the one that was not rebuilt.
        assert!(failed.len() == 2 && failed[0] == 0, "{failed:?}");
        let end = deployment.end();
        assert_eq!(end.statistics["redundancy"]["state"], "failed");
        assert_eq!(end.statistics["redundancy"]["missed_stripes"], 2);
    }
}

#[test]
fn discarded_target_is_rebuilt_completely() {
    let content = text(REJOIN_BLOCKS, STORED);
    let stripes = Stripes::of(&content, Checksum::Crc32c);
    for (target, name) in NAMES.iter().enumerate() {
        // It has older versions of the blocks, each of them whole.
        let mut halves = stripes.0.clone();
        let older = text(2 * REJOIN_BLOCKS, STORED)[REJOIN_BLOCKS as usize * STORED..].to_vec();
        halves[target] = Stripes::of(&older, Checksum::Crc32c).0[target].clone();
        let args = format!("--degraded on --rebuild {name}");
        let mut deployment = Deployment::start(&halves, &args);
        deployment.expect_content(&content);
        deployment.wait_for_log(LogEvent::TargetUpToDate(name));
        deployment.expect_content(&content);
        let end = deployment.end();
        assert!(Stripes(end.halves) == stripes, "what {name} holds");
        assert_eq!(
            end.statistics["redundancy"]["rebuilt_stripes"],
            REJOIN_BLOCKS
        );
        let corrected = &end.statistics["corrected"];
        assert_eq!(
            corrected,
            &serde_json::json!([0, 0, 0]),
            "it was not even looked at"
        );
    }
}
