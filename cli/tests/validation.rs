//! A faulty storage is detected by real initiator and service processes, and the first wrong byte is reported.

use crate::support::{BLOCK_SIZE, Sandbox, content, document, expect_failure, text};
use ::deployment::process::Process;

const BLOCKS: usize = 32;

/// Write-read validation of two and a half passes over a target with `fault`; returns target and initiator.
fn validate_against(sandbox: &Sandbox, fault: &str) -> (Process, Process) {
    let content = sandbox.file("content", &content(BLOCKS));
    let (target, port) = sandbox.scripted_target(&content, BLOCK_SIZE, fault);
    let service = sandbox.service(port, &[]);
    let operations = (BLOCKS * 5 / 2).to_string();
    let initiator = sandbox.initiator(
        "read_write_data_validity_test",
        &[
            "--run-limit-operation-count",
            &operations,
            "--transaction-count",
            "8",
            "--io-timeout",
            "2",
        ],
    );
    // The service exits after its session with any status: this test checks the initiator.
    std::thread::spawn(move || service.finish(crate::support::default_deadline(), || false));
    (target, initiator)
}

/// Output of the initiator for a target with `fault`.
fn complaint_about(fault: &str) -> String {
    let sandbox = Sandbox::new();
    let (_target, initiator) = validate_against(&sandbox, fault);
    expect_failure(initiator)
}

#[test]
fn scripted_target_without_faults_passes() {
    let sandbox = Sandbox::new();
    let (target, initiator) = validate_against(&sandbox, "none");
    assert_eq!(document(initiator)["operation_count"], BLOCKS * 5 / 2);
    target
        .finish(crate::support::default_deadline(), || false)
        .expect("the script is played to its end");
}

#[test]
fn scripted_target_records_writes() {
    let sandbox = Sandbox::new();
    let plain = sandbox.file("plain", &content(BLOCKS));
    let empty = sandbox.file("empty", &vec![0; BLOCKS * BLOCK_SIZE]);
    let (target, port) = sandbox.scripted_target(&empty, BLOCK_SIZE, "none");
    let service = sandbox.service(port, &[]);
    let initiator = sandbox.initiator(
        "read_write_data_validity_test",
        &[
            "--storage-plain-content",
            text(&plain),
            "--run-limit-operation-count",
            &BLOCKS.to_string(),
        ],
    );
    document(initiator);
    document(service);
    target
        .finish(crate::support::default_deadline(), || false)
        .expect("the script is played to its end");
    let dump = std::fs::read(sandbox.path("empty.dump")).expect("the dump");
    assert!(dump == content(BLOCKS));
}

#[test]
fn target_that_ignores_writes_fails_validation() {
    let text = complaint_about("ignore-writes");
    assert!(
        text.contains("mismatch") && text.contains("block 0"),
        "{text}"
    );
}

#[test]
fn target_that_swaps_two_blocks_fails_validation() {
    let text = complaint_about("swap-blocks:3:17");
    assert!(
        text.contains("mismatch") && (text.contains("block 3") || text.contains("block 17")),
        "{text}"
    );
}

#[test]
fn target_that_returns_the_previous_pass_fails_validation() {
    let text = complaint_about("replay-previous-pass");
    assert!(text.contains("mismatch"), "{text}");
}

#[test]
fn failed_io_fails_the_run_with_its_error() {
    let text = complaint_about("fail-io:21:17");
    assert!(text.contains("DOCA_ERROR_IO_FAILED"), "{text}");
}

#[test]
fn unanswered_io_ends_the_run() {
    let text = complaint_about("swallow-io:9");
    assert!(text.contains("--io-timeout"), "{text}");
}

#[test]
fn flipped_byte_is_found_and_reported() {
    let sandbox = Sandbox::new();
    let good = content(BLOCKS);
    let mut bad = good.clone();
    let at = 13 * BLOCK_SIZE + 77;
    bad[at] ^= 0x10;
    let (good, bad) = (sandbox.file("good", &good), sandbox.file("bad", &bad));
    let blocks = BLOCKS.to_string();
    for (stored, flipped) in [(&good, false), (&bad, true)] {
        let (target, port) =
            sandbox.target(&["--block-count", &blocks, "--binary-content", text(stored)]);
        let service = sandbox.service(port, &[]);
        let initiator = sandbox.initiator(
            "read_only_data_validity_test",
            &[
                "--storage-plain-content",
                text(&good),
                "--run-limit-operation-count",
                "64",
            ],
        );
        if flipped {
            let text = expect_failure(initiator);
            assert!(
                text.contains("mismatch") && text.contains("block 13") && text.contains("77"),
                "{text}"
            );
        } else {
            assert_eq!(document(initiator)["operation_count"], 64);
            assert_eq!(document(target)["operation_count"], 64);
            assert_eq!(document(service)["operation_count"], 64);
            assert_eq!(sandbox.leftovers(), Vec::<std::path::PathBuf>::new());
        }
    }
}
