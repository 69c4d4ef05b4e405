//! Versions of chunks on the targets: written versions, retired versions, and settling of a set after an unclean
//! shutdown.

use std::collections::HashMap;

use conformance::target::{Fault, Kept, Recorded, Versions};
use deployment::log::LogEvent;
use doca::ErrorCode;
use wire::control::RecordState;
use wire::io_message::IoMessageType::{
    self, Flush, Read, ReadBefore, Write, WriteFua, WriteVersion,
};
use wire::io_message::{IoMessageType::WriteVersionFua, Repr};

use crate::{
    End, LOGICAL, NAMES, Plan, blank, chunk, chunk_mut, expect_chunks, overwritten, stamped, text,
    written,
};

/// Requests received by the targets, in order.
fn requests(end: &End) -> impl Iterator<Item = Recorded> {
    let messages = end.recorder.messages().into_iter();
    messages.filter(|message| !message.is_result)
}

#[test]
fn every_write_is_a_version_of_one_chunk_on_each_target() {
    let mut deployment = Plan::set(&blank(4), "").start();
    let content = text(4, LOGICAL);
    let initiator = &mut deployment.initiator;
    initiator.memory.write(0, &content).expect("inside");
    for (message_type, block, blocks) in [(Write, 0, 2), (WriteFua, 2, 2), (Write, 0, 1)] {
        let code = initiator.io(message_type, block, blocks);
        assert_eq!(code, ErrorCode::SUCCESS, "{message_type:?}");
    }
    let end = deployment.end();
    let epoch = stamped(&end.kept[0], 0, 0).0.0;
    for (target, name) in NAMES.iter().enumerate() {
        let writes: Vec<_> = requests(&end)
            .filter(|it| it.target == target && it.io.message_type != Flush)
            .collect();
        let expected = [
            (WriteVersion, 0),
            (WriteVersion, 1),
            (WriteVersionFua, 2),
            (WriteVersionFua, 3),
            (WriteVersion, 0),
        ];
        assert!(
            writes
                .iter()
                .map(|it| (it.io.message_type, it.io.storage_offset / 512))
                .eq(expected),
            "{name}: {writes:?}"
        );
        assert!(writes.iter().all(|it| it.version.epoch == epoch));
        assert!(writes.is_sorted_by(|a, b| a.version.number < b.version.number));
        // The stamps in the chunks are those of the messages.
        for (stripe, last) in [(0, 4), (1, 1), (2, 2), (3, 3)] {
            let version = writes[last].version;
            let stamp = stamped(&end.kept[target], target, stripe).0;
            assert_eq!(stamp, (version.epoch, version.number), "{name} {stripe}");
        }
    }
    expect_chunks(&end.kept, &[0, 1, 2], &content);
}

/// Checks that a retired number exceeds no write that some target has not completed, or that has not been flushed on
/// all targets since then.
fn expect_retired_writes_are_durable(messages: &[Recorded]) {
    /// Numbers of rewritten chunks, which replace no version that is needed.
    const REPAIRS: u64 = 1;
    // Writes by number: positions of their last result, and of their first request.
    let mut completed: HashMap<u64, [Option<usize>; 3]> = HashMap::new();
    // Flushes that succeeded on each target: positions of request and result.
    let mut flushes: [Vec<(usize, usize)>; 3] = Default::default();
    let mut begun: [HashMap<u64, usize>; 3] = Default::default();
    for (at, it) in messages.iter().enumerate() {
        let is_success = it.is_result && it.io.result == 0;
        match it.io.message_type {
            WriteVersion | WriteVersionFua if it.version.number > REPAIRS => {
                let results = completed.entry(it.version.number).or_default();
                if is_success {
                    results[it.target] = Some(at);
                }
            }
            Flush if !it.is_result => {
                begun[it.target].insert(it.io.user_data, at);
            }
            Flush if is_success => {
                let begun = begun[it.target][&it.io.user_data];
                flushes[it.target].push((begun, at));
            }
            _ => {}
        }
    }
    let mut is_retired = false;
    for (at, it) in messages.iter().enumerate() {
        let retired = it.version.retired;
        if it.is_result || retired == 0 {
            continue;
        }
        is_retired |= retired > REPAIRS + 1;
        for (&number, results) in completed.iter().filter(|&(&number, _)| number < retired) {
            for (target, result) in results.iter().enumerate() {
                let is_durable = result.is_some_and(|result| {
                    let mut flushes = flushes[target].iter();
                    flushes.any(|&(begun, ended)| result < begun && ended < at)
                });
                assert!(
                    is_durable,
                    "{it:?} retires write {number}, which {} has at {result:?}",
                    NAMES[target]
                );
            }
        }
    }
    assert!(is_retired, "nothing was retired");
}

#[test]
fn retired_writes_are_complete_and_durable_on_all_targets() {
    const ROUNDS: u64 = 100;
    let mut deployment = Plan::set(&blank(16), "").workers(2).start();
    let initiator = &mut deployment.initiator;
    initiator
        .memory
        .write(0, &text(16, LOGICAL))
        .expect("inside");
    for round in 0..ROUNDS {
        let request = |lane: u64| {
            let message_type = match (round + lane) % 11 {
                10 => Flush,
                0..8 => Write,
                _ => Read,
            };
            let block = (round * 5 + lane) % 13;
            let (size, offset) = match message_type {
                Flush => (0, 0),
                _ => (LOGICAL as u32, block * LOGICAL as u64),
            };
            let request = Repr {
                message_type,
                user_data: lane,
                result: 0,
                size,
                requester_offset: offset,
                storage_offset: offset,
            };
            request.to_bytes()
        };
        let requests: Vec<_> = (0..8).map(request).collect();
        for answer in initiator.exchange(&requests) {
            assert_eq!(answer.result, 0);
        }
    }
    let end = deployment.end();
    assert_eq!(end.statistics["failed_count"], 0);
    assert_eq!(end.statistics["redundancy"]["state"], "healthy");
    expect_retired_writes_are_durable(&end.recorder.messages());
}

#[test]
fn target_that_fails_to_flush_is_detached_and_the_flush_succeeds() {
    let content = text(4, LOGICAL);
    for (target, name) in NAMES.iter().enumerate() {
        let fault = Fault::FailFlush {
            result: ErrorCode::IO_FAILED.0,
        };
        let mut deployment = Plan::set(&blank(4), "").fault(target, fault).start();
        deployment.write_content(&content);
        assert_eq!(deployment.initiator.flush(), ErrorCode::SUCCESS, "{name}");
        deployment.wait_for_log(LogEvent::TargetDetached(name));
        deployment.expect_content(&content);
        let end = deployment.end();
        assert_eq!(end.statistics["redundancy"]["state"], "degraded", "{name}");
        assert_eq!(end.statistics["failed_count"], 0, "{name}");
        expect_chunks(&end.kept, &[(target + 1) % 3, (target + 2) % 3], &content);
    }
}

#[test]
fn flush_reaches_all_targets_after_the_writes_before_it() {
    let mut deployment = Plan::set(&blank(4), "").start();
    deployment.write_content(&text(4, LOGICAL));
    assert_eq!(deployment.initiator.flush(), ErrorCode::SUCCESS);
    let messages = deployment.recorder.messages();
    for (target, name) in NAMES.iter().enumerate() {
        let of_target = messages.iter().filter(|it| it.target == target);
        let last: Vec<_> = of_target.rev().take(2).collect();
        let found = [last[1], last[0]].map(|it| (it.io.message_type, it.is_result, it.io.result));
        assert_eq!(found, [(Flush, false, 0), (Flush, true, 0)], "{name}");
        assert_eq!(last[0].version.number, 0, "{name}");
    }
    deployment.end();
}

// A set after an unclean shutdown.

/// Block whose writes were interrupted.
const BLOCK: usize = 2;

/// Three generations of a set: its storages after the first, the second and the third write of every block.
struct Generations {
    contents: [Vec<u8>; 3],
    sets: [[Kept; 3]; 3],
}

impl Generations {
    fn new() -> Self {
        let all = text(12, LOGICAL);
        let contents =
            [0, 1, 2].map(|generation| all[generation * 4 * LOGICAL..][..4 * LOGICAL].to_vec());
        let first = written(&contents[0]);
        let second = overwritten(&first, &contents[1]);
        let third = overwritten(&second, &contents[2]);
        Self {
            contents,
            sets: [first, second, third],
        }
    }

    fn block(&self, generation: usize) -> &[u8] {
        &self.contents[generation][BLOCK * LOGICAL..][..LOGICAL]
    }

    fn stamp(&self, generation: usize) -> (u64, u64) {
        stamped(&self.sets[generation][0], 0, BLOCK).0
    }

    /// The set after an unclean shutdown in which each target has the versions of the block up to the given generation.
    /// All other blocks are of the third generation.
    fn interrupted(&self, generations: [usize; 3]) -> [Kept; 3] {
        let mut kept = self.sets[2].clone();
        for (target, kept) in kept.iter_mut().enumerate() {
            kept.superblock.state = RecordState::InUse;
            kept.versions = Versions::default();
            let chunk_of = |generation: usize| chunk(&self.sets[generation][target], BLOCK);
            for generation in 1..=generations[target] {
                let replaced = chunk_of(generation - 1).to_vec();
                let stamp = self.stamp(generation);
                assert!(kept.versions.write(BLOCK as u64, stamp, replaced));
            }
            chunk_mut(kept, BLOCK).copy_from_slice(chunk_of(generations[target]));
        }
        kept
    }

    /// Starts the set, and requires that the block is that of this generation, stored again with a new stamp on all targets.
    fn expect(&self, kept: &[Kept; 3], generation: usize) -> End {
        let mut deployment = Plan::set(kept, "").start();
        let expected = self.block(generation);
        for pass in 0..2 {
            let initiator = &mut deployment.initiator;
            assert_eq!(initiator.io(Read, BLOCK as u64, 1), ErrorCode::SUCCESS);
            assert_eq!(initiator.block(BLOCK as u64), expected, "pass {pass}");
        }
        let end = deployment.end();
        let mut content = self.contents[2].clone();
        content[BLOCK * LOGICAL..][..LOGICAL].copy_from_slice(expected);
        expect_chunks(&end.kept, &[0, 1, 2], &content);
        let stamp = stamped(&end.kept[0], 0, BLOCK).0;
        assert!(stamp > self.stamp(2), "a new stamp");
        assert_eq!(end.statistics["uncorrectable"], 0);
        assert_eq!(end.statistics["redundancy"]["state"], "healthy");
        end
    }
}

fn count(end: &End, message_type: IoMessageType) -> usize {
    requests(end)
        .filter(|it| it.io.message_type == message_type)
        .count()
}

#[test]
fn write_that_reached_two_targets_is_completed_after_an_unclean_shutdown() {
    let generations = Generations::new();
    for target in 0..3 {
        let mut has = [1; 3];
        has[target] = 0;
        let end = generations.expect(&generations.interrupted(has), 1);
        assert_eq!(count(&end, ReadBefore), 0, "{has:?}");
        let stored = requests(&end).filter(|it| it.io.message_type == WriteVersion);
        assert_eq!(stored.count(), 3, "stored again on all targets: {has:?}");
        let settled = &end.statistics["redundancy"]["settled_stripes"];
        assert_eq!(settled["rewritten"], 1, "{has:?}");
        assert_eq!(end.statistics["corrected"], serde_json::json!([0, 0, 0]));
    }
}

#[test]
fn write_that_reached_one_target_is_undone_after_an_unclean_shutdown() {
    let generations = Generations::new();
    for target in 0..3 {
        let mut has = [0; 3];
        has[target] = 1;
        let end = generations.expect(&generations.interrupted(has), 0);
        assert_eq!(count(&end, ReadBefore), 0, "{has:?}");
        let stored = requests(&end).filter(|it| it.io.message_type == WriteVersion);
        assert_eq!(stored.count(), 3, "stored again on all targets: {has:?}");
    }
}

#[test]
fn earlier_versions_are_read_where_no_two_chunks_are_of_the_same_write() {
    let generations = Generations::new();
    for has in [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let end = generations.expect(&generations.interrupted(has), 1);
        let asked: Vec<_> = requests(&end)
            .filter(|it| it.io.message_type == ReadBefore)
            .collect();
        // The version before the newest one is on two targets.
        let newest = has.iter().position(|&generation| generation == 2);
        assert_eq!(asked.len(), 1, "{has:?}: {asked:?}");
        assert_eq!(Some(asked[0].target), newest, "{has:?}");
        let version = asked[0].version;
        assert_eq!((version.epoch, version.number), generations.stamp(2));
    }
}

#[test]
fn corrupt_chunk_and_an_interrupted_write_are_settled_to_the_version_that_two_targets_have() {
    let generations = Generations::new();
    for target in 0..3 {
        let mut has = [0; 3];
        has[target] = 1;
        let mut kept = generations.interrupted(has);
        let corrupt = (target + 1) % 3;
        chunk_mut(&mut kept[corrupt], BLOCK)[100] ^= 1;
        let end = generations.expect(&kept, 0);
        assert_eq!(count(&end, ReadBefore), 1, "{target}");
    }
}

#[test]
fn interrupted_write_is_settled_without_being_read() {
    let generations = Generations::new();
    let deployment = Plan::set(&generations.interrupted([0, 1, 0]), "").start();
    deployment.wait_for_log(LogEvent::ResyncStarted { stripes: 1 });
    deployment.wait_for_log(LogEvent::ResyncCompleted);
    let end = deployment.end();
    let stamps = [0, 1, 2].map(|target| stamped(&end.kept[target], target, BLOCK).0);
    assert_eq!(stamps, [stamps[0]; 3]);
    // The next session has no stripes to settle.
    let end = Plan::set(&end.kept, "").start().end();
    assert_eq!(
        end.statistics["redundancy"]["settled_stripes"],
        serde_json::json!({"consistent": 0, "rewritten": 0, "lost": 0})
    );
}

#[test]
fn nothing_is_retired_while_a_stripe_is_unsettled() {
    let generations = Generations::new();
    let end = generations.expect(&generations.interrupted([2, 1, 0]), 1);
    let messages = end.recorder.messages();
    let stored = messages.iter().position(|it| {
        matches!(it.io.message_type, WriteVersion | WriteVersionFua) && it.is_result
    });
    let retired = messages.iter().position(|it| it.version.retired != 0);
    assert!(retired.is_none_or(|retired| stored.is_some_and(|stored| stored < retired)));
}
