//! Targets that hold something else than what they were given.

use conformance::target::Fault;
use doca::ErrorCode;
use role_common::stored_block::{Checksum, checksum_of};
use wire::io_message::IoMessageType::{Read, Write};

use crate::{Deployment, HALF, Stripes, noise, text};

const BLOCKS: u64 = 8;
const STORED: usize = 2 * HALF;

fn content() -> Vec<u8> {
    text(BLOCKS, STORED)
}

fn block(content: &[u8], block: u64) -> &[u8] {
    &content[block as usize * STORED..][..STORED]
}

/// Recovery reads never, by data_2, and by data_1 and data_2 in turn.
const RECOVERIES: [&str; 3] = [
    "--trigger-recovery-read-every-n 0",
    "--trigger-recovery-read-every-n 1",
    "--trigger-recovery-read-every-n 2",
];

#[test]
fn wrong_chunk_of_any_target_is_corrected_and_reported() {
    let content = content();
    for args in RECOVERIES {
        for target in 0..3 {
            // In the header, in the LZ4 data, and at the end, which on data_2 is the checksum.
            for byte in [2, 20, HALF - 1] {
                let stripes = Stripes::of(&content, Checksum::Crc32c).flip(target, 3, byte);
                let mut deployment = Deployment::start(&stripes.0, args);
                for pass in 0..4 {
                    let initiator = &mut deployment.initiator;
                    initiator
                        .memory
                        .fill(0, crate::HALF * 16, 0xee)
                        .expect("inside");
                    assert_eq!(
                        initiator.io(Read, 3, 1),
                        ErrorCode::SUCCESS,
                        "{args} {target} {byte} {pass}"
                    );
                    assert_eq!(
                        initiator.block(3),
                        block(&content, 3),
                        "{args} {target} {byte} {pass}"
                    );
                }
                let end = deployment.end();
                let corrected = end.statistics["corrected"]
                    .as_array()
                    .expect("counts")
                    .clone();
                let others: u64 = (0..3)
                    .filter(|&other| other != target)
                    .map(|other| corrected[other].as_u64().expect("count"))
                    .sum();
                assert_eq!(others, 0, "{args} {target} {byte}: {corrected:?}");
                let count = corrected[target].as_u64().expect("count");
                // A read that bypasses the wrong chunk does not notice it.
                let seen = match (target, args) {
                    (0 | 1, "--trigger-recovery-read-every-n 0") => 4,
                    (2, "--trigger-recovery-read-every-n 0") => 0,
                    (0 | 1, "--trigger-recovery-read-every-n 1") => 2,
                    (2, "--trigger-recovery-read-every-n 1") => 4,
                    // Two reads are regular; of the others, one does without data_2, one without data_1.
                    (0 | 1, _) => 3,
                    _ => 2,
                };
                // The first read has it repaired, which may take until the next ones have begun.
                assert!(count <= seen, "{args} {target} {byte}: {count}");
                let mut repaired = [0; 3];
                if seen != 0 {
                    assert_ne!(count, 0, "{args} {target} {byte}");
                    repaired[target] = 1;
                    assert_eq!(
                        end.statistics["redundancy"]["repaired_chunks"],
                        serde_json::json!(repaired),
                        "{args} {target} {byte}"
                    );
                }
            }
        }
    }
}

#[test]
fn two_wrong_chunks_are_an_error_and_no_wrong_data() {
    let content = content();
    for args in RECOVERIES {
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            let stripes = Stripes::of(&content, Checksum::Crc32c)
                .flip(one, 3, 30)
                .flip(other, 3, 40);
            let mut deployment = Deployment::start(&stripes.0, args);
            let initiator = &mut deployment.initiator;
            for _ in 0..4 {
                initiator.memory.fill(0, STORED * 8, 0xee).expect("inside");
                match initiator.io(Read, 3, 1) {
                    // Where the parity is one of them, a regular read is right.
                    ErrorCode::SUCCESS => assert_eq!(initiator.block(3), block(&content, 3)),
                    code => {
                        assert_eq!(code, ErrorCode::IO_FAILED);
                        assert_eq!(initiator.block(3), [0xee; STORED], "nothing was written");
                    }
                }
            }
            assert_eq!(
                initiator.io(Read, 4, 1),
                ErrorCode::SUCCESS,
                "the worker continues"
            );
            let end = deployment.end();
            assert_ne!(end.statistics["uncorrectable"], 0, "{args} {one} {other}");
        }
    }
}

#[test]
fn blocks_without_checksum_are_compared_with_their_parity() {
    let content = content();
    let stripes = Stripes::of(&content, Checksum::Off);
    for args in RECOVERIES {
        let mut deployment = Deployment::start(&stripes.0, args);
        for block in 0..BLOCKS {
            assert_eq!(deployment.initiator.io(Read, block, 1), ErrorCode::SUCCESS);
            assert_eq!(
                deployment.initiator.block(block),
                self::block(&content, block)
            );
        }
        assert_eq!(deployment.end().statistics["uncorrectable"], 0);

        for target in 0..3 {
            // In the LZ4 data, and in the padding; both decompress.
            for byte in [20, HALF - 5] {
                let wrong = stripes.clone().flip(target, 5, byte);
                let mut deployment = Deployment::start(&wrong.0, args);
                for _ in 0..2 {
                    assert_eq!(
                        deployment.initiator.io(Read, 5, 1),
                        ErrorCode::IO_FAILED,
                        "{args} {target} {byte}"
                    );
                }
                assert_eq!(deployment.initiator.io(Read, 6, 1), ErrorCode::SUCCESS);
                assert_eq!(deployment.end().statistics["uncorrectable"], 2);
            }
        }
    }
}

#[test]
fn lost_checksum_is_restored_from_the_parity() {
    let content = content();
    let mut stripes = Stripes::of(&content, Checksum::Crc32c);
    // The trailer is at the end of data_2's chunk.
    stripes.0[1][2 * HALF - 4..2 * HALF].fill(0);
    for args in ["", "--checksum=require", "--checksum=off"] {
        let mut deployment = Deployment::start(&stripes.0, args);
        assert_eq!(deployment.initiator.io(Read, 1, 1), ErrorCode::SUCCESS);
        assert_eq!(deployment.initiator.block(1), block(&content, 1));
        assert_eq!(
            deployment.end().statistics["corrected"],
            serde_json::json!([0, 1, 0])
        );
    }
}

#[test]
fn checksums_can_be_required() {
    let stripes = Stripes::of(&content(), Checksum::Off);
    let mut deployment = Deployment::start(&stripes.0, "--checksum require");
    assert_eq!(deployment.initiator.io(Read, 0, 1), ErrorCode::IO_FAILED);
    let end = deployment.end();
    end.expect_line(&["--checksum", "require"]);
}

#[test]
fn headers_with_too_large_sizes_are_refused() {
    let content = content();
    let stripes = Stripes::of(&content, Checksum::Crc32c);
    // Original and compressed size, with a checksum and a parity that are right.
    let claims: [(u32, u32); 6] = [
        (0, 0),
        (1025, 100),
        (1023, 100),
        (u32::MAX, u32::MAX),
        (1024, 1013),
        (1024, 3),
    ];
    for (original, compressed) in claims {
        let mut stored = stripes.stored(0);
        stored[..4].copy_from_slice(&original.to_be_bytes());
        stored[4..8].copy_from_slice(&compressed.to_be_bytes());
        let checksum = checksum_of(&stored[..STORED - 4]);
        stored[STORED - 4..].copy_from_slice(&checksum.to_be_bytes());
        refused_without_a_byte(&stored, &format!("{original} {compressed}"));
    }
}

#[test]
fn lz4_data_that_is_shorter_or_longer_than_the_block_is_an_error() {
    for (what, data) in [
        ("short", raw(999)),
        ("compressed-short", run(STORED - 1)),
        ("long", run(STORED + 1)),
        ("huge", run(60_000)),
        // A second data block.
        ("surplus", [run(STORED), raw(1)].concat()),
        ("truncated", raw(1000)[..500].to_vec()),
        // No data block.
        ("empty", vec![0; 4]),
    ] {
        refused_without_a_byte(&stored_block(&data), what);
    }
    // The same block without the defect.
    let stripes = Stripes::of_stored(&[stored_block(&run(STORED))]);
    let mut deployment = Deployment::start(&stripes.0, "");
    assert_eq!(deployment.initiator.io(Read, 0, 1), ErrorCode::SUCCESS);
    assert_eq!(deployment.initiator.block(0), [7; STORED]);
    deployment.end();
}

/// A stored block with these LZ4 data blocks, and a checksum that is right.
fn stored_block(data: &[u8]) -> Vec<u8> {
    let mut stored = vec![0; STORED];
    stored[..4].copy_from_slice(&(STORED as u32).to_be_bytes());
    stored[4..8].copy_from_slice(&(data.len() as u32).to_be_bytes());
    stored[8..8 + data.len()].copy_from_slice(data);
    let checksum = checksum_of(&stored[..STORED - 4]);
    stored[STORED - 4..].copy_from_slice(&checksum.to_be_bytes());
    stored
}

/// A data block with bytes as they are.
fn raw(length: u32) -> Vec<u8> {
    let mut data = (length | 1 << 31).to_le_bytes().to_vec();
    data.resize(4 + length as usize, 7);
    data
}

/// A data block that decompresses to `length` equal bytes: one literal, a match on it, five literals.
fn run(length: usize) -> Vec<u8> {
    let rest = length - 6 - 19;
    let mut sequence = vec![0x1f, 7, 1, 0];
    sequence.extend(std::iter::repeat_n(255, rest / 255));
    sequence.push((rest % 255) as u8);
    sequence.extend([0x50, 7, 7, 7, 7, 7]);
    [&(sequence.len() as u32).to_le_bytes()[..], &sequence].concat()
}

#[test]
fn late_writes_of_a_target_are_never_returned() {
    // Data blocks as they are: what is written over them would decompress all the same.
    let content = noise(960 * 8, 2);
    let halves = [0; 3].map(|_| vec![0; 8 * HALF]);
    let mut faults = [Fault::None; 3];
    faults[0] = Fault::ScribbleAfterRead;
    let mut deployment = Deployment::with(&halves, "--logical-block-size 960", faults, 1);
    let initiator = &mut deployment.initiator;
    initiator.memory.write(0, &content).expect("inside");
    assert_eq!(initiator.io(Write, 0, 8), ErrorCode::SUCCESS);
    let mut read = 0;
    for _ in 0..500 {
        initiator.memory.fill(0, 960, 0xee).expect("inside");
        match initiator.io(Read, 0, 1) {
            ErrorCode::SUCCESS => {
                assert_eq!(
                    initiator.bytes(0, 960),
                    content[..960],
                    "after {read} reads"
                );
                read += 1;
            }
            code => assert_eq!(code, ErrorCode::IO_FAILED),
        }
    }
    assert_ne!(read, 0, "some reads are faster than the target");
    deployment.end();
}

/// Reading this stored block is an I/O error, and no byte after the initiator's block is written.
fn refused_without_a_byte(stored: &[u8], what: &str) {
    let stripes = Stripes::of_stored(&[stored.to_vec(), stored.to_vec()]);
    let mut deployment = Deployment::start(&stripes.0, "");
    let initiator = &mut deployment.initiator;
    initiator.memory.fill(0, STORED * 4, 0xee).expect("inside");
    assert_eq!(initiator.io(Read, 1, 1), ErrorCode::IO_FAILED, "{what}");
    assert_eq!(initiator.block(0), [0xee; STORED], "{what}");
    assert_eq!(initiator.block(2), [0xee; STORED], "{what}");
    let end = deployment.end();
    assert_eq!(end.statistics["uncorrectable"], 1, "{what}");
}
