//! Sets: failing targets, I/O that continues without them, targets that rejoin, and their rebuild.

use std::time::Duration;

use conformance::target::{Fault, Kept};
use deployment::log::{LogEvent, events};
use doca::ErrorCode;
use wire::control::RecordState;
use wire::io_message::IoMessageType::{Read, Write};
use wire::io_message::Repr;

use crate::{
    Deployment, End, HALF, LOGICAL, NAMES, Plan, Stripes, blank, chunk_mut, expect_chunks,
    overwritten, text, written,
};

const BLOCKS: u64 = 8;

/// `IO_FAILED`, as encoded in a target's result.
const FAILED: u32 = ErrorCode::IO_FAILED.0;

/// The n-th I/O of a target fails.
fn fails(nth: u64) -> Fault {
    Fault::FailIo {
        nth,
        result: FAILED,
    }
}

/// Two different contents of this many blocks.
fn two_contents(blocks: u64) -> (Vec<u8>, Vec<u8>) {
    let mut old = text(2 * blocks, LOGICAL);
    let new = old.split_off(blocks as usize * LOGICAL);
    (old, new)
}

/// Reads of these blocks, all in flight at the same time.
fn reads(blocks: u64) -> Vec<[u8; 64]> {
    let read = |block: u64| Repr {
        message_type: Read,
        user_data: block,
        result: 0,
        size: LOGICAL as u32,
        requester_offset: block * LOGICAL as u64,
        storage_offset: block * LOGICAL as u64,
    };
    (0..blocks).map(|block| read(block).to_bytes()).collect()
}

/// Reads blocks, which must be errors without data.
fn expect_errors(deployment: &mut Deployment, blocks: u64) {
    let initiator = &mut deployment.initiator;
    let length = blocks as usize * LOGICAL;
    initiator.memory.fill(0, length, 0xee).expect("inside");
    for answer in initiator.exchange(&reads(blocks)) {
        assert_eq!(answer.result, FAILED, "block {}", answer.user_data);
    }
    assert_eq!(initiator.bytes(0, length), vec![0xee; length]);
}

/// The final state, the number of detachments of this target, and the number of missed stripes.
fn redundancy(end: &End, target: usize) -> (&str, u64, u64) {
    let redundancy = &end.statistics["redundancy"];
    (
        redundancy["state"].as_str().expect("a state"),
        redundancy["lost"][target].as_u64().expect("a count"),
        redundancy["missed_stripes"].as_u64().expect("a count"),
    )
}

fn others(target: usize) -> [usize; 2] {
    [(target + 1) % 3, (target + 2) % 3]
}

const PAIRS: [(usize, usize); 6] = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];

#[test]
fn target_that_fails_to_write_is_detached_and_io_continues() {
    let (old, new) = two_contents(BLOCKS);
    for (target, name) in NAMES.iter().enumerate() {
        let plan = Plan::set(&blank(BLOCKS), "").fault(target, fails(5));
        let mut deployment = plan.start();
        deployment.write_content(&old);
        deployment.expect_content(&old);
        deployment.write_content(&new[..2 * LOGICAL]);
        let now = [&new[..2 * LOGICAL], &old[2 * LOGICAL..]].concat();
        deployment.expect_content(&now);
        let end = deployment.end();
        // Blocks 5, 6 and 7 of the first pass, 0 and 1 of the second; the others were not flushed before.
        assert_eq!(redundancy(&end, target), ("degraded", 1, BLOCKS), "{name}");
        assert_eq!(end.statistics["failed_count"], 0);
        assert_eq!(end.statistics["degraded"]["writes"], 5);
        let reads = if target == 2 { 0 } else { 2 * BLOCKS };
        assert_eq!(end.statistics["degraded"]["reads"], reads, "{name}");
        expect_chunks(&end.kept, &others(target), &now);
        end.expect_event(LogEvent::TargetDetached(name));
        // The next session starts without the target, whose superblock is of an earlier epoch.
        let mut again = Plan::set(&end.kept, "").start();
        again.wait_for_log(LogEvent::TargetUpToDate(name));
        again.expect_content(&now);
        let end = again.end();
        assert_eq!(redundancy(&end, target), ("healthy", 0, 0), "{name}");
        expect_chunks(&end.kept, &[0, 1, 2], &now);
    }
}

#[test]
fn failed_chunk_read_is_recovered_and_its_target_stays() {
    let content = text(BLOCKS, LOGICAL);
    let set = written(&content);
    for (target, name) in NAMES.iter().enumerate() {
        // Every read bypasses data_2 or data_1, so all three targets get requests.
        let plan = Plan::set(&set, "--trigger-recovery-read-every-n 1");
        let mut deployment = plan.fault(target, fails(1)).start();
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

#[test]
fn unreadable_chunk_is_repaired() {
    let content = text(BLOCKS, LOGICAL);
    let set = written(&content);
    for (target, name) in NAMES.iter().enumerate() {
        // Every read bypasses data_2 or data_1: an odd number of reads, so that the chunk is read in one of the passes.
        let plan = Plan::set(&set, "--trigger-recovery-read-every-n 1");
        let mut deployment = plan.fault(target, Fault::UnreadableBlock(3)).start();
        deployment.expect_content(&content[..7 * LOGICAL]);
        deployment.expect_content(&content);
        let end = deployment.end();
        assert_eq!(redundancy(&end, target), ("healthy", 0, 0), "{name}");
        let counts = &end.statistics["redundancy"];
        assert_eq!(counts["repaired_chunks"][target], 1, "{name}");
        assert_eq!(end.statistics["failed_count"], 0, "{name}");
        expect_chunks(&end.kept, &[0, 1, 2], &content);
    }
}

#[test]
fn two_unreadable_chunks_are_an_error_of_that_block_until_it_is_written() {
    let content = text(BLOCKS, LOGICAL);
    let set = written(&content);
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let unreadable = Fault::UnreadableBlock(0);
        let plan = Plan::set(&set, "").faults(&[(one, unreadable), (other, unreadable)]);
        let mut deployment = plan.start();
        expect_errors(&mut deployment, 1);
        deployment.write_content(&content[..LOGICAL]);
        deployment.expect_content(&content);
        let end = deployment.end();
        assert_eq!(redundancy(&end, one), ("healthy", 0, 0));
        assert_eq!(end.statistics["failed_count"], 1);
        expect_chunks(&end.kept, &[0, 1, 2], &content);
    }
}

/// Tests all targets in parallel: a deployment spends most of its time waiting for timeouts, which are long enough for
/// a busy machine.
#[test]
fn unresponsive_target_is_detached() {
    let content = text(BLOCKS, LOGICAL);
    let set = written(&content);
    let silent = Fault::SwallowIo { nth: 2 };
    let writes = |target: usize| {
        let plan = Plan::set(&blank(BLOCKS), "--control-timeout 3");
        let mut writing = plan.fault(target, silent).start();
        writing.write_content(&content);
        writing.expect_content(&content);
        let end = writing.end();
        let name = NAMES[target];
        let found = redundancy(&end, target);
        // Two blocks were stored, and not flushed.
        assert_eq!(found, ("degraded", 1, BLOCKS), "{name}");
        expect_chunks(&end.kept, &others(target), &content);
        end.expect_event(LogEvent::TargetDetached(name));
    };
    let reads = |target: usize| {
        let args = "--control-timeout 3 --trigger-recovery-read-every-n 1";
        let mut reading = Plan::set(&set, args).fault(target, silent).start();
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

/// One target fails to store the first block, and another one the second, whose write waits.
fn without_two_targets(
    set: &[Kept; 3],
    args: &str,
    (one, other): (usize, usize),
    new: &[u8],
) -> Deployment {
    let faults = [(one, fails(0)), (other, fails(1))];
    let mut deployment = Plan::set(set, args).faults(&faults).start();
    deployment.write_content(&new[..LOGICAL]);
    let initiator = &mut deployment.initiator;
    initiator.memory.write(0, new).expect("inside");
    initiator.begin(Write, 1);
    deployment.wait_for_log(LogEvent::SetFailed(NAMES[other]));
    deployment
}

/// Tests all pairs in parallel: a deployment mostly waits.
#[test]
fn ios_fail_without_data_if_two_targets_stay_away() {
    let (old, new) = two_contents(BLOCKS);
    let set = written(&old);
    let check = |pair: (usize, usize)| {
        let mut deployment = without_two_targets(&set, "--io-timeout 10", pair, &new);
        assert_eq!(deployment.initiator.answer(), ErrorCode::IO_FAILED);
        expect_errors(&mut deployment, BLOCKS);
        let end = deployment.end();
        assert_eq!(redundancy(&end, pair.1).0, "failed", "{pair:?}");
        assert_eq!(end.statistics["failed_count"], 1 + BLOCKS);
        assert_eq!(end.statistics["degraded"]["impossible"], 1 + BLOCKS);
        // The set is unchanged, and the next session reads all acknowledged writes.
        let mut again = Plan::set(&end.kept, "").start();
        again.wait_for_log(LogEvent::TargetUpToDate(NAMES[pair.0]));
        let initiator = &mut again.initiator;
        assert_eq!(initiator.io(Read, 0, 1), ErrorCode::SUCCESS);
        assert_eq!(initiator.block(0), new[..LOGICAL]);
        assert_eq!(initiator.io(Read, 1, 1), ErrorCode::SUCCESS);
        let either = [&old, &new].map(|content| content[LOGICAL..2 * LOGICAL].to_vec());
        assert!(either.contains(&initiator.block(1)), "{pair:?}");
        assert_eq!(again.end().statistics["redundancy"]["state"], "healthy");
    };
    std::thread::scope(|scope| {
        for pair in PAIRS {
            let check = &check;
            scope.spawn(move || check(pair));
        }
    });
}

#[test]
fn waiting_ios_continue_when_a_target_is_back_with_its_data() {
    let (old, new) = two_contents(BLOCKS);
    let set = written(&old);
    for pair in PAIRS {
        let (one, other) = pair;
        let mut deployment = without_two_targets(&set, "", pair, &new);
        let initiator = &mut deployment.initiator;
        assert!(!initiator.is_answered(Duration::from_millis(200)));
        let kept = deployment.detached(other);
        deployment.replace(other, kept, Fault::None);
        assert_eq!(
            deployment.initiator.answer(),
            ErrorCode::SUCCESS,
            "{pair:?}"
        );
        let now = [&new[..2 * LOGICAL], &old[2 * LOGICAL..]].concat();
        deployment.expect_content(&now);
        let kept = deployment.detached(one);
        deployment.replace(one, kept, Fault::None);
        deployment.wait_for_log(LogEvent::TargetUpToDate(NAMES[one]));
        deployment.expect_content(&now);
        let end = deployment.end();
        assert_eq!(redundancy(&end, other), ("healthy", 1, 0), "{pair:?}");
        assert_eq!(end.statistics["failed_count"], 0, "{pair:?}");
        expect_chunks(&end.kept, &[0, 1, 2], &now);
    }
}

#[test]
fn wrong_chunk_without_a_third_one_is_an_error() {
    let content = text(BLOCKS, LOGICAL);
    let set = written(&content);
    for (lost, wrong) in PAIRS {
        let mut kept = set.clone();
        chunk_mut(&mut kept[wrong], 3)[30] ^= 0x10;
        let mut deployment = Plan::set(&kept, "").fault(lost, fails(0)).start();
        deployment.write_content(&content[..LOGICAL]);
        let initiator = &mut deployment.initiator;
        initiator.memory.fill(0, 8 * LOGICAL, 0xee).expect("inside");
        assert_eq!(
            initiator.io(Read, 3, 1),
            ErrorCode::IO_FAILED,
            "{lost} {wrong}"
        );
        assert_eq!(initiator.block(3), [0xee; LOGICAL]);
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
fn reference_form_has_no_redundancy_output_and_a_failed_read_is_an_error() {
    let stripes = Stripes::of(&text(BLOCKS, 2 * HALF));
    let plan = Plan::reference(&stripes.0, "").fault(0, fails(0));
    let mut deployment = plan.start();
    assert_eq!(deployment.initiator.io(Read, 0, 1), ErrorCode::IO_FAILED);
    assert_eq!(deployment.initiator.io(Read, 0, 1), ErrorCode::SUCCESS);
    let end = deployment.end();
    assert!(end.statistics.get("degraded").is_none() && end.statistics.get("redundancy").is_none());
    assert!(end.statistics["cores"][0].get("degraded").is_none());
}

// Superblocks.

/// One target fails to write, and another one persists only this many superblocks.
fn with_superblocks(failing: usize, persists: (usize, u32)) -> Deployment {
    let plan = Plan::set(&blank(BLOCKS), "--control-timeout 1");
    let mut plan = plan.fault(failing, fails(0));
    plan.superblocks[persists.0] = Some(persists.1);
    plan.start()
}

/// Number of superblocks that a target has persisted when the set is opened, when it has detached a member, and when it is closed.
const OPEN: u32 = 2;
const DEGRADED: u32 = OPEN + 2;
const CLOSED: u32 = DEGRADED + 2;

#[test]
fn degraded_write_is_acknowledged_only_after_the_epoch_is_persisted() {
    for (failing, withholding) in PAIRS {
        for persists in OPEN..DEGRADED {
            let mut deployment = with_superblocks(failing, (withholding, persists));
            let initiator = &mut deployment.initiator;
            initiator
                .memory
                .write(0, &text(1, LOGICAL))
                .expect("inside");
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
        deployment.write_content(&text(1, LOGICAL));
        let end = deployment.end();
        assert_eq!(redundancy(&end, failing), ("degraded", 1, 1));
        for target in others(failing) {
            let superblock = &end.kept[target].superblock;
            assert_eq!(superblock.state, RecordState::Clean, "{target}");
            assert!(superblock.epoch > end.kept[failing].superblock.epoch);
        }
    }
}

/// Starts a session in which data_2 persists only this many superblocks, which is refused: I/Os start only after all targets have
/// persisted that the set is in use.
fn start_session_with_superblocks_of_data_2(superblocks: u32) {
    let mut plan = Plan::set(&blank(BLOCKS), "--control-timeout 1");
    plan.superblocks[1] = Some(superblocks);
    let (error, ports) = Deployment::start(plan).err().expect("an error");
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

// Rebuilds.

const REJOIN_BLOCKS: u64 = 40;

fn replacement() -> Kept {
    Kept::new(vec![0; REJOIN_BLOCKS as usize * HALF])
}

#[test]
fn empty_replacement_target_is_rebuilt_during_io() {
    let (old, new) = two_contents(REJOIN_BLOCKS);
    for matrix in ["vandermonde", "cauchy"] {
        for (target, name) in NAMES.iter().enumerate() {
            let args = format!("--matrix-type {matrix}");
            let plan = Plan::set(&blank(REJOIN_BLOCKS), &args).fault(target, fails(0));
            let mut deployment = plan.start();
            deployment.write_content(&old);
            deployment.detached(target);
            deployment.expect_content(&old);
            deployment.replace(target, replacement(), Fault::None);
            deployment.wait_for_log(LogEvent::RebuildStarted {
                target: name,
                stripes: REJOIN_BLOCKS,
                all: true,
            });
            deployment.write_content(&new[..new.len() / 2]);
            deployment.wait_for_log(LogEvent::TargetUpToDate(name));
            let now = [&new[..new.len() / 2], &old[old.len() / 2..]].concat();
            deployment.expect_content(&now);
            let end = deployment.end();
            assert_eq!(redundancy(&end, target), ("healthy", 1, 0), "{name}");
            assert_eq!(
                end.statistics["redundancy"]["rebuilt_stripes"],
                REJOIN_BLOCKS
            );
            assert_eq!(end.statistics["failed_count"], 0);
            if matrix == "vandermonde" {
                expect_chunks(&end.kept, &[0, 1, 2], &now);
            }
        }
    }
}

#[test]
fn target_that_is_back_with_its_data_gets_only_what_it_has_missed() {
    let (old, new) = two_contents(REJOIN_BLOCKS);
    let set = written(&old);
    for (target, name) in NAMES.iter().enumerate() {
        let mut deployment = Plan::set(&set, "").fault(target, fails(2)).start();
        deployment.write_content(&new[..5 * LOGICAL]);
        let kept = deployment.detached(target);
        deployment.replace(target, kept, Fault::None);
        // The target missed three writes, and two were not flushed when it was lost.
        deployment.wait_for_log(LogEvent::RebuildStarted {
            target: name,
            stripes: 5,
            all: false,
        });
        deployment.wait_for_log(LogEvent::TargetUpToDate(name));
        let end = deployment.end();
        assert_eq!(redundancy(&end, target), ("healthy", 1, 0), "{name}");
        assert_eq!(end.statistics["redundancy"]["rebuilt_stripes"], 5, "{name}");
        let now = [&new[..5 * LOGICAL], &old[5 * LOGICAL..]].concat();
        expect_chunks(&end.kept, &[0, 1, 2], &now);
    }
}

#[test]
fn older_copy_of_a_target_is_rebuilt_completely() {
    let (old, new) = two_contents(REJOIN_BLOCKS);
    let before = written(&old);
    let set = overwritten(&before, &new);
    for (target, name) in NAMES.iter().enumerate() {
        let mut kept = set.clone();
        kept[target].clone_from(&before[target]);
        let mut deployment = Plan::set(&kept, "").start();
        deployment.expect_content(&new);
        deployment.wait_for_log(LogEvent::TargetUpToDate(name));
        let end = deployment.end();
        let counts = &end.statistics["redundancy"];
        assert_eq!(counts["rebuilt_stripes"], REJOIN_BLOCKS, "{name}");
        assert_eq!(end.statistics["corrected"], serde_json::json!([0, 0, 0]));
        expect_chunks(&end.kept, &[0, 1, 2], &new);
    }
}

#[test]
fn rebuilt_target_covers_another_failure() {
    let content = text(REJOIN_BLOCKS, LOGICAL);
    for (first, second) in PAIRS {
        // The second target stores all blocks, and reads them for the rebuild of the first one; then it fails.
        let faults = [(first, fails(0)), (second, fails(2 * REJOIN_BLOCKS))];
        let plan = Plan::set(&blank(REJOIN_BLOCKS), "").faults(&faults);
        let mut deployment = plan.start();
        deployment.write_content(&content);
        deployment.detached(first);
        deployment.replace(first, replacement(), Fault::None);
        deployment.wait_for_log(LogEvent::TargetUpToDate(NAMES[first]));
        deployment.write_content(&content[..LOGICAL]);
        deployment.expect_content(&content);
        deployment.detached(second);
        deployment.replace(second, replacement(), Fault::None);
        deployment.wait_for_log(LogEvent::TargetUpToDate(NAMES[second]));
        deployment.expect_content(&content);
        let end = deployment.end();
        assert_eq!(redundancy(&end, second), ("healthy", 1, 0));
        expect_chunks(&end.kept, &[0, 1, 2], &content);
    }
}

#[test]
fn every_replacement_target_persists_its_own_superblock() {
    let content = text(REJOIN_BLOCKS, LOGICAL);
    for (target, name) in NAMES.iter().enumerate() {
        let plan = Plan::set(&blank(REJOIN_BLOCKS), "").fault(target, fails(0));
        let mut deployment = plan.start();
        deployment.write_content(&content);
        deployment.detached(target);
        // The target persists an empty superblock, and disconnects before it stores a chunk.
        deployment.replace(target, replacement(), fails(10));
        deployment.detached(target);
        deployment.replace(target, replacement(), Fault::None);
        deployment.wait_for_log(LogEvent::TargetUpToDate(name));
        deployment.expect_content(&content);
        let end = deployment.end();
        assert_eq!(redundancy(&end, target), ("healthy", 2, 0), "{name}");
        expect_chunks(&end.kept, &[0, 1, 2], &content);
        for (member, kept) in end.kept.iter().enumerate() {
            let superblock = &kept.superblock;
            assert_eq!(superblock.member as usize, member);
            assert_eq!(superblock.state, RecordState::Clean);
            assert_eq!(superblock.epoch_id, end.kept[0].superblock.epoch_id);
        }
    }
}

#[test]
fn unreadable_chunk_does_not_keep_a_rebuild_from_completing() {
    let content = text(REJOIN_BLOCKS, LOGICAL);
    let set = written(&content);
    for (target, unreadable) in [(0, 1), (1, 2), (2, 0)] {
        let faults = [(target, fails(0)), (unreadable, Fault::UnreadableBlock(7))];
        let mut deployment = Plan::set(&set, "").faults(&faults).start();
        deployment.write_content(&content[..LOGICAL]);
        deployment.detached(target);
        deployment.replace(target, replacement(), Fault::None);
        deployment.wait_for_log(LogEvent::TargetUpToDate(NAMES[target]));
        let initiator = &mut deployment.initiator;
        initiator
            .memory
            .fill(0, content.len(), 0xee)
            .expect("inside");
        for (block, expected) in content.chunks(LOGICAL).enumerate() {
            let code = initiator.io(Read, block as u64, 1);
            if block == 7 {
                assert_eq!(code, ErrorCode::IO_FAILED, "{target} {unreadable}");
                assert_eq!(initiator.block(7), [0xee; LOGICAL]);
            } else {
                assert_eq!(code, ErrorCode::SUCCESS, "block {block}");
                assert_eq!(initiator.block(block as u64), expected);
            }
        }
        deployment.write_content(&content);
        deployment.expect_content(&content);
        let end = deployment.end();
        assert_eq!(redundancy(&end, target), ("healthy", 1, 0));
        expect_chunks(&end.kept, &[0, 1, 2], &content);
    }
}

#[test]
fn discarded_target_is_rebuilt_completely() {
    let (older, content) = two_contents(REJOIN_BLOCKS);
    let before = written(&older);
    let set = overwritten(&before, &content);
    for (target, name) in NAMES.iter().enumerate() {
        // The target has older versions of the blocks, each of them complete.
        let mut kept = set.clone();
        kept[target].content.clone_from(&before[target].content);
        let mut deployment = Plan::set(&kept, &format!("--rebuild {name}")).start();
        deployment.expect_content(&content);
        deployment.wait_for_log(LogEvent::TargetUpToDate(name));
        deployment.expect_content(&content);
        let end = deployment.end();
        expect_chunks(&end.kept, &[0, 1, 2], &content);
        assert_eq!(
            end.statistics["redundancy"]["rebuilt_stripes"],
            REJOIN_BLOCKS
        );
        assert_eq!(
            end.statistics["corrected"],
            serde_json::json!([0, 0, 0]),
            "it was not even looked at"
        );
    }
}
