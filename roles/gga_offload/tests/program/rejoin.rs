//! `--degraded on`: targets that rejoin, and their rebuild.

use crate::support::{Deployment, HALF, Stripes, text};
use conformance::target::Fault;
use doca::ErrorCode;
use role_common::stored_block::Checksum;
use wire::io_message::IoMessageType::{Read, Write};

const BLOCKS: u64 = 40;
const STORED: usize = 2 * HALF;
const NAMES: [&str; 3] = ["data_1", "data_2", "data_p"];

fn empty() -> Vec<u8> {
    vec![0; BLOCKS as usize * HALF]
}

/// The n-th I/O of a target fails.
fn fails(nth: u64) -> Fault {
    let result = ErrorCode::IO_FAILED.0;
    Fault::FailIo { nth, result }
}

fn write(deployment: &mut Deployment, content: &[u8], from: u64, blocks: u64) {
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
    let old = text(BLOCKS, STORED);
    let new = text(2 * BLOCKS, STORED)[BLOCKS as usize * STORED..].to_vec();
    let stripes = Stripes::of(&old, Checksum::Crc32c);
    for matrix in ["vandermonde", "cauchy"] {
        for (target, name) in NAMES.iter().enumerate() {
            let mut faults = [Fault::None; 3];
            faults[target] = fails(0);
            // The chunks have no parity of the other matrix: all blocks are written first.
            let args = format!("--degraded on --matrix-type {matrix}");
            let mut deployment = Deployment::with(&stripes.0, &args, faults, 1);
            write(&mut deployment, &old, 0, BLOCKS);
            deployment.last_content_of(target);
            deployment.expect_content(&old);
            deployment.replace(target, empty(), Fault::None);
            deployment.wait_for_log(&format!("storage target {name} is online"));
            write(&mut deployment, &new, 0, BLOCKS / 2);
            deployment.wait_for_log(&format!("storage target {name} is up to date"));
            let now = [&new[..new.len() / 2], &old[old.len() / 2..]].concat();
            deployment.expect_content(&now);
            let end = deployment.end();
            assert_eq!(end.statistics["redundancy"]["state"], "healthy", "{name}");
            assert_eq!(end.statistics["redundancy"]["missed_stripes"], 0);
            assert_eq!(end.statistics["redundancy"]["rebuilt_stripes"], BLOCKS);
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
    let content = text(BLOCKS, STORED);
    for (first, second) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let mut faults = [Fault::None; 3];
        faults[first] = fails(0);
        // It stores all blocks, and reads them for the rebuild of the first one; then it fails.
        faults[second] = fails(2 * BLOCKS);
        let halves = [empty(), empty(), empty()];
        let mut deployment = Deployment::with(&halves, "--degraded on", faults, 1);
        write(&mut deployment, &content, 0, BLOCKS);
        deployment.last_content_of(first);
        deployment.replace(first, empty(), Fault::None);
        deployment.wait_for_log(&format!("{} is up to date", NAMES[first]));
        write(&mut deployment, &content, 0, 1);
        deployment.expect_content(&content);
        deployment.last_content_of(second);
        deployment.replace(second, empty(), Fault::None);
        deployment.wait_for_log(&format!("{} is up to date", NAMES[second]));
        deployment.expect_content(&content);
        let end = deployment.end();
        assert_eq!(end.statistics["redundancy"]["state"], "healthy");
        assert!(Stripes(end.halves) == Stripes::of(&content, Checksum::Crc32c));
    }
}

#[test]
fn every_replacement_target_persists_its_own_superblock() {
    let content = text(BLOCKS, STORED);
    for (target, name) in NAMES.iter().enumerate() {
        let mut faults = [Fault::None; 3];
        faults[target] = fails(0);
        let (halves, keeps) = ([empty(), empty(), empty()], Some(u32::MAX));
        // The scrub of a new set would read from its targets.
        let args = "--degraded on --scrub off";
        let mut deployment = Deployment::keeping(&halves, args, faults, [keeps; 3], 1);
        write(&mut deployment, &content, 0, BLOCKS);
        deployment.last_content_of(target);
        // It persists that it has nothing, and disconnects before it has anything.
        deployment.replace_keeping(target, empty(), fails(10), keeps);
        deployment.last_content_of(target);
        deployment.replace_keeping(target, empty(), Fault::None, keeps);
        deployment.wait_for_log(&format!("storage target {name} is up to date"));
        deployment.expect_content(&content);
        let end = deployment.end();
        assert_eq!(end.statistics["redundancy"]["state"], "healthy", "{name}");
        let expected = Stripes::of(&content, Checksum::Crc32c);
        assert!(Stripes(end.halves).without_checksums() == expected.without_checksums());
    }
}

#[test]
fn failure_during_a_rebuild_loses_only_blocks_not_yet_rebuilt() {
    let content = text(BLOCKS, STORED);
    let stripes = Stripes::of(&content, Checksum::Crc32c);
    for (first, second, third) in [(0, 1, 2), (1, 2, 0), (2, 0, 1)] {
        let mut faults = [Fault::None; 3];
        faults[first] = fails(0);
        // It fails to read one of the chunks for the rebuild, which leaves that block for later.
        faults[second] = fails(20);
        // It stores one block and reads all for the rebuild; then it fails.
        faults[third] = fails(1 + BLOCKS);
        let mut deployment = Deployment::with(&stripes.0, "--degraded on", faults, 1);
        write(&mut deployment, &content, 0, 1);
        deployment.last_content_of(first);
        deployment.replace(first, empty(), Fault::None);
        deployment.wait_for_log("could not be rebuilt, trying again");
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
    let content = text(BLOCKS, STORED);
    let stripes = Stripes::of(&content, Checksum::Crc32c);
    for (target, name) in NAMES.iter().enumerate() {
        // It has older versions of the blocks, each of them whole.
        let mut halves = stripes.0.clone();
        let older = text(2 * BLOCKS, STORED)[BLOCKS as usize * STORED..].to_vec();
        halves[target] = Stripes::of(&older, Checksum::Crc32c).0[target].clone();
        let args = format!("--degraded on --rebuild {name}");
        let mut deployment = Deployment::start(&halves, &args);
        deployment.expect_content(&content);
        deployment.wait_for_log(&format!("{name} is up to date"));
        deployment.expect_content(&content);
        let end = deployment.end();
        assert!(Stripes(end.halves) == stripes, "what {name} holds");
        assert_eq!(end.statistics["redundancy"]["rebuilt_stripes"], BLOCKS);
        let corrected = &end.statistics["corrected"];
        assert_eq!(
            corrected,
            &serde_json::json!([0, 0, 0]),
            "it was not even looked at"
        );
    }
}
