//! Targets with corrupt bytes or incorrect answers: the gga service returns the written data or an error, but no wrong byte.

use std::path::PathBuf;

use crate::support::gga::{TARGETS, compressible};
use crate::support::{BLOCK_SIZE, Sandbox, document, expect_failure};
use ::deployment::process::Process;

const BLOCKS: usize = 60;
const HALF: usize = BLOCK_SIZE / 2;
/// Size of the header of a `.sbc` file in bytes.
const SBC_HEADER: usize = 16;

/// Offsets of the bytes of a half block to corrupt: in the header of the stored block, in its LZ4 data, or after them.
const PLACES: [usize; 7] = [1, 5, 9, 60, HALF - 60, HALF - 4, HALF - 1];

/// Flips a bit in each of these half blocks: target, block, byte.
fn damage(files: &[PathBuf; 3], places: &[(usize, usize, usize)]) {
    for &(target, block, byte) in places {
        let mut bytes = std::fs::read(&files[target]).expect("a file");
        bytes[SBC_HEADER + block * HALF + byte] ^= 0x20;
        std::fs::write(&files[target], bytes).expect("written");
    }
}

struct Session {
    initiator: Process,
    service: Process,
    _targets: [Process; 3],
}

/// An initiator that reads all blocks in order, twice, and compares.
fn reader(sandbox: &Sandbox, files: &[PathBuf; 3], arguments: &[&str]) -> Session {
    let (targets, ports) = sandbox.gga_targets(files, 1);
    let service = sandbox.gga_service(ports, 1, arguments);
    let initiator = sandbox.gga_initiator(
        "read_only_data_validity_test",
        &sandbox.path("content"),
        2 * BLOCKS,
        1,
        &["--transaction-count", "1"],
    );
    Session {
        initiator,
        service,
        _targets: targets,
    }
}

/// Checks that all data is read correctly with one corrupt half block in each of many stripes, on every target in turn.
fn one_of_three(matrix: &str) {
    for recover_every in ["0", "1", "3"] {
        let sandbox = Sandbox::new();
        let content = compressible(BLOCKS * BLOCK_SIZE);
        let files = sandbox.generate("content", &content, &["--matrix-type", matrix]);
        let places: Vec<_> = (0..BLOCKS - 4)
            .map(|block| (block % 3, block, PLACES[block % PLACES.len()]))
            .collect();
        damage(&files, &places);
        let session = reader(
            &sandbox,
            &files,
            &[
                "--matrix-type",
                matrix,
                "--trigger-recovery-read-every-n",
                recover_every,
            ],
        );
        assert_eq!(document(session.initiator)["operation_count"], 2 * BLOCKS);
        let counted = document(session.service);
        assert_eq!(counted["uncorrectable"], 0, "{counted}");
        let corrected: Vec<u64> =
            serde_json::from_value(counted["corrected"].clone()).expect("a number for each target");
        let repaired: Vec<u64> =
            serde_json::from_value(counted["redundancy"]["repaired_chunks"].clone())
                .expect("a number for each target");
        let damaged = |target| places.iter().filter(|place| place.0 == target).count() as u64;
        for target in 0..3 {
            let (corrected, repaired) = (corrected[target], repaired[target]);
            if recover_every != "0" {
                // A read does not check chunks that it does not need.
                assert!((1..=2 * damaged(target)).contains(&corrected), "{counted}");
                assert!((1..=damaged(target)).contains(&repaired), "{counted}");
            } else if target == 2 {
                // No read needs the parity.
                assert_eq!((corrected, repaired), (0, 0), "{counted}");
            } else {
                // The first pass reads each corrupt chunk and starts its repair, which may complete during the second pass.
                assert!(
                    (damaged(target)..=2 * damaged(target)).contains(&corrected),
                    "{counted}"
                );
                assert_eq!(repaired, damaged(target), "{counted}");
            }
        }
    }
}

#[test]
fn one_corrupt_chunk_is_recovered_with_vandermonde() {
    one_of_three("vandermonde");
}

#[test]
fn one_corrupt_chunk_is_recovered_with_cauchy() {
    one_of_three("cauchy");
}

/// Checks that unrecoverable corruption is an I/O error, and not wrong data.
fn refused(session: Session) {
    let text = expect_failure(session.initiator);
    assert!(
        text.contains("DOCA_ERROR_IO_FAILED") && !text.contains("mismatch"),
        "{text}"
    );
}

#[test]
fn two_corrupt_chunks_of_one_stripe_are_an_error() {
    for (first, second) in [(0, 1), (0, 2), (1, 2)] {
        for recover_every in ["0", "1"] {
            let sandbox = Sandbox::new();
            let content = compressible(BLOCKS * BLOCK_SIZE);
            let files = sandbox.generate("content", &content, &[]);
            damage(&files, &[(first, 17, 100), (second, 17, 200)]);
            let session = reader(
                &sandbox,
                &files,
                &["--trigger-recovery-read-every-n", recover_every],
            );
            refused(session);
        }
    }
}

#[test]
fn without_checksums_any_corruption_is_an_error() {
    for target in 0..3 {
        let sandbox = Sandbox::new();
        let content = compressible(BLOCKS * BLOCK_SIZE);
        let files = sandbox.generate("content", &content, &["--checksum", "off"]);
        damage(&files, &[(target, 17, 100)]);
        refused(reader(&sandbox, &files, &[]));
    }
}

#[test]
fn block_without_checksum_is_checked_against_its_parity() {
    let sandbox = Sandbox::new();
    let content = compressible(BLOCKS * BLOCK_SIZE);
    let files = sandbox.generate("content", &content, &[]);
    // The trailer is the end of data_2; it is corrupted together with a byte of the LZ4 data.
    let mut bytes = std::fs::read(&files[1]).expect("a file");
    let block = &mut bytes[SBC_HEADER + 17 * HALF..][..HALF];
    block[HALF - 4..].fill(0);
    block[3] ^= 1;
    std::fs::write(&files[1], bytes).expect("written");
    // Parity and data_1 still contain both.
    let session = reader(&sandbox, &files, &[]);
    assert_eq!(document(session.initiator)["operation_count"], 2 * BLOCKS);
    let counted = document(session.service);
    let corrected = counted["corrected"][1].as_u64().expect("a count");
    assert!((1..=2).contains(&corrected), "{counted}");
    assert_eq!(
        counted["redundancy"]["repaired_chunks"],
        serde_json::json!([0, 1, 0])
    );
}

/// Write-read validation with scripted targets, one of which has a fault.
fn writer(sandbox: &Sandbox, liar: usize, fault: &str, passes: usize) -> Session {
    let targets = [0, 1, 2].map(|target| {
        let content = sandbox.file(TARGETS[target], &vec![0; BLOCKS * HALF]);
        let fault = if target == liar { fault } else { "none" };
        sandbox.scripted_target(&content, HALF, fault)
    });
    let ports = targets.each_ref().map(|(_, port)| *port);
    let service = sandbox.gga_service(ports, 1, &["--trigger-recovery-read-every-n", "5"]);
    let operations = (BLOCKS * passes).to_string();
    let initiator = sandbox.initiator(
        "read_write_data_validity_test",
        &[
            "--run-limit-operation-count",
            &operations,
            "--transaction-count",
            "8",
        ],
    );
    Session {
        initiator,
        service,
        _targets: targets.map(|(target, _)| target),
    }
}

#[test]
fn writes_ignored_by_one_target_are_recovered() {
    for fault in ["ignore-writes", "swap-blocks:3:17", "replay-previous-pass"] {
        for (liar, name) in TARGETS.iter().enumerate() {
            let sandbox = Sandbox::new();
            let session = writer(&sandbox, liar, fault, 3);
            assert_eq!(
                document(session.initiator)["operation_count"],
                3 * BLOCKS,
                "{fault} on {name}"
            );
        }
    }
}

#[test]
fn failed_write_of_a_target_is_an_error() {
    for liar in 0..3 {
        let sandbox = Sandbox::new();
        // This I/O is a write of the first pass.
        refused(writer(&sandbox, liar, "fail-io:3:17", 1));
    }
}
