//! Targets whose contents differ from what was written: in a set, and with blocks in the reference's form.

use conformance::target::{Fault, Kept};
use doca::ErrorCode;
use wire::io_message::IoMessageType::{Read, Write};

use crate::{
    Deployment, HALF, LOGICAL, NAMES, Plan, Stripes, blank, chunk, chunk_mut, expect_chunks, noise,
    overwritten, text, written,
};

const STORED: usize = 2 * HALF;

/// No recovery reads, recovery of data_2, and recovery of data_1 and data_2 alternately.
const RECOVERIES: [&str; 3] = [
    "--trigger-recovery-read-every-n 0",
    "--trigger-recovery-read-every-n 1",
    "--trigger-recovery-read-every-n 2",
];

// Stored chunks.

/// Damage to a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    /// One bit of this byte is wrong.
    Bit(usize),
    /// The chunk was lost.
    Zeroed,
    /// The chunk is that of another block.
    OfAnotherBlock,
    /// The chunk is that of another member.
    OfAnotherMember,
    /// The chunk is that of the same place in another set.
    OfAnotherSet,
    /// The last write of the chunk was lost.
    Stale,
}

/// For each block one kind: records and payloads at both ends of a chunk.
const DAMAGES: [Damage; 8] = [
    Damage::Bit(2),
    Damage::Bit(200),
    Damage::Bit(HALF - 1),
    Damage::Zeroed,
    Damage::OfAnotherBlock,
    Damage::OfAnotherMember,
    Damage::OfAnotherSet,
    Damage::Stale,
];
const BLOCKS: u64 = DAMAGES.len() as u64;

/// A set, with the further storages that the damages need.
struct Samples {
    content: Vec<u8>,
    /// Storages that hold the content.
    set: [Kept; 3],
    /// The set's storages before the last writes.
    before: [Kept; 3],
    /// Storages of another set with the same content.
    other: [Kept; 3],
}

impl Samples {
    fn new() -> Self {
        let both = text(2 * BLOCKS, LOGICAL);
        let (old, content) = both.split_at(both.len() / 2);
        let before = written(old);
        Self {
            content: content.to_vec(),
            set: overwritten(&before, content),
            before,
            other: written(content),
        }
    }

    /// Damages a chunk.
    fn damage(&self, kept: &mut [Kept; 3], target: usize, stripe: usize, damage: Damage) {
        let source = match damage {
            Damage::Bit(byte) => {
                chunk_mut(&mut kept[target], stripe)[byte] ^= 0x10;
                return;
            }
            Damage::Zeroed => return chunk_mut(&mut kept[target], stripe).fill(0),
            Damage::OfAnotherBlock => chunk(&self.set[target], (stripe + 1) % BLOCKS as usize),
            Damage::OfAnotherMember => chunk(&self.set[(target + 1) % 3], stripe),
            Damage::OfAnotherSet => chunk(&self.other[target], stripe),
            Damage::Stale => chunk(&self.before[target], stripe),
        };
        chunk_mut(&mut kept[target], stripe).copy_from_slice(source);
    }

    fn block(&self, block: usize) -> &[u8] {
        &self.content[block * LOGICAL..][..LOGICAL]
    }
}

/// Reads a block into memory with other contents, and checks that they are unchanged if the read fails.
fn read(deployment: &mut Deployment, block: usize) -> Result<Vec<u8>, ErrorCode> {
    let initiator = &mut deployment.initiator;
    let length = BLOCKS as usize * LOGICAL;
    initiator.memory.fill(0, length, 0xee).expect("inside");
    let code = initiator.io(Read, block as u64, 1);
    let read = initiator.block(block as u64);
    if code == ErrorCode::SUCCESS {
        return Ok(read);
    }
    assert_eq!(read, [0xee; LOGICAL], "nothing was written");
    Err(code)
}

#[test]
fn wrong_chunk_of_any_target_is_never_returned_and_is_repaired() {
    let samples = Samples::new();
    for args in RECOVERIES {
        for (target, name) in NAMES.iter().enumerate() {
            let mut kept = samples.set.clone();
            for (stripe, damage) in DAMAGES.into_iter().enumerate() {
                samples.damage(&mut kept, target, stripe, damage);
            }
            let mut deployment = Plan::set(&kept, args).start();
            for (stripe, damage) in DAMAGES.iter().enumerate() {
                for pass in 0..4 {
                    let found = read(&mut deployment, stripe);
                    let is_right = found.as_deref() == Ok(samples.block(stripe));
                    assert!(is_right, "{args} {name} {damage:?} {pass}: {found:?}");
                }
            }
            let end = deployment.end();
            // A read of the data chunks does not detect a wrong parity chunk.
            let is_seen = (args, target) != (RECOVERIES[0], 2);
            let mut repaired = [0; 3];
            if is_seen {
                repaired[target] = BLOCKS;
                expect_chunks(&end.kept, &[0, 1, 2], &samples.content);
            }
            let counts = &end.statistics;
            assert_eq!(
                counts["redundancy"]["repaired_chunks"],
                serde_json::json!(repaired),
                "{args} {name}"
            );
            assert_eq!(counts["corrected"], serde_json::json!(repaired));
            assert_eq!(counts["uncorrectable"], 0);
            assert_eq!(counts["redundancy"]["state"], "healthy");
        }
    }
}

#[test]
fn two_wrong_chunks_are_an_error_until_the_block_is_written() {
    let samples = Samples::new();
    for args in RECOVERIES {
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            let mut kept = samples.set.clone();
            for (stripe, damage) in DAMAGES.into_iter().enumerate() {
                samples.damage(&mut kept, one, stripe, damage);
                samples.damage(&mut kept, other, stripe, Damage::Bit(100));
            }
            let mut deployment = Plan::set(&kept, args).start();
            for (stripe, damage) in DAMAGES.iter().enumerate() {
                for pass in 0..2 {
                    assert_eq!(
                        read(&mut deployment, stripe),
                        Err(ErrorCode::IO_FAILED),
                        "{args} {one} {other} {damage:?} {pass}"
                    );
                }
            }
            deployment.write_content(&samples.content);
            deployment.expect_content(&samples.content);
            let end = deployment.end();
            assert_eq!(end.statistics["uncorrectable"], 2 * BLOCKS);
            assert_eq!(end.statistics["failed_count"], 2 * BLOCKS);
            expect_chunks(&end.kept, &[0, 1, 2], &samples.content);
        }
    }
}

#[test]
fn scrub_repairs_wrong_chunks_of_blocks_that_are_not_read() {
    let samples = Samples::new();
    for (target, name) in NAMES.iter().enumerate() {
        let mut kept = samples.set.clone();
        for (stripe, damage) in DAMAGES.into_iter().enumerate() {
            samples.damage(&mut kept, target, stripe, damage);
        }
        let mut plan = Plan::set(&kept, "");
        plan.args = format!("--scrub once --logical-block-size {LOGICAL}");
        let deployment = plan.start();
        deployment.wait_for_log(deployment::log::LogEvent::ScrubCompleted);
        let end = deployment.end();
        let counts = &end.statistics["redundancy"];
        assert_eq!(counts["repaired_chunks"][target], BLOCKS, "{name}");
        assert_eq!(counts["scrubbed"]["stripes"], BLOCKS, "{name}");
        assert_eq!(counts["scrubbed"]["lost"], 0, "{name}");
        expect_chunks(&end.kept, &[0, 1, 2], &samples.content);
    }
}

#[test]
fn late_writes_of_a_target_are_never_returned() {
    let content = noise(2, LOGICAL * 8);
    let plan = Plan::set(&blank(8), "").fault(0, Fault::ScribbleAfterRead);
    let mut deployment = plan.start();
    let initiator = &mut deployment.initiator;
    initiator.memory.write(0, &content).expect("inside");
    assert_eq!(initiator.io(Write, 0, 8), ErrorCode::SUCCESS);
    let mut successes = 0;
    for _ in 0..500 {
        match read(&mut deployment, 0) {
            Ok(found) => {
                assert_eq!(found, content[..LOGICAL], "after {successes} reads");
                successes += 1;
            }
            Err(code) => assert_eq!(code, ErrorCode::IO_FAILED),
        }
    }
    assert_ne!(successes, 0, "some reads are faster than the target");
    deployment.end();
}

// Stored blocks of the reference's form: only invalid sizes can be detected.

#[test]
fn headers_with_too_large_sizes_are_refused() {
    let stripes = Stripes::of(&text(BLOCKS, STORED));
    // Original and compressed size, with correct parity.
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
    // The same block without the corruption.
    let stripes = Stripes::of_stored(&[stored_block(&run(STORED))]);
    let mut deployment = Plan::reference(&stripes.0, "").start();
    assert_eq!(deployment.initiator.io(Read, 0, 1), ErrorCode::SUCCESS);
    assert_eq!(deployment.initiator.block(0), [7; STORED]);
    deployment.end();
}

/// A stored block with these LZ4 data blocks.
fn stored_block(data: &[u8]) -> Vec<u8> {
    let mut stored = vec![0; STORED];
    stored[..4].copy_from_slice(&(STORED as u32).to_be_bytes());
    stored[4..8].copy_from_slice(&(data.len() as u32).to_be_bytes());
    stored[8..8 + data.len()].copy_from_slice(data);
    stored
}

/// A data block with uncompressed bytes.
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

/// Reading this stored block is an I/O error, and no byte after the initiator's block is written.
fn refused_without_a_byte(stored: &[u8], what: &str) {
    let stripes = Stripes::of_stored(&[stored.to_vec(), stored.to_vec()]);
    let mut deployment = Plan::reference(&stripes.0, "").start();
    let initiator = &mut deployment.initiator;
    initiator.memory.fill(0, STORED * 4, 0xee).expect("inside");
    assert_eq!(initiator.io(Read, 1, 1), ErrorCode::IO_FAILED, "{what}");
    assert_eq!(initiator.block(0), [0xee; STORED], "{what}");
    assert_eq!(initiator.block(2), [0xee; STORED], "{what}");
    let end = deployment.end();
    assert_eq!(end.statistics["uncorrectable"], 1, "{what}");
}
