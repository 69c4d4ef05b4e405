//! Blocks that the gga service accepts, and those that it refuses.

use std::path::{Path, PathBuf};

use crate::support::gga::{compressible, noise};
use crate::support::{BLOCK_SIZE, Sandbox, document, expect_failure};
use ::deployment::process::Process;
use serde_json::Value;

const BLOCKS: usize = 64;

/// A service for targets with these files, and an initiator for two passes over them.
fn session(
    sandbox: &Sandbox,
    files: &[PathBuf; 3],
    arguments: &[&str],
    strategy: &str,
    plain: &Path,
) -> (Process, Process, [Process; 3]) {
    let (targets, ports) = sandbox.gga_targets(files, 1);
    let service = sandbox.gga_service(ports, 1, arguments);
    let initiator = sandbox.gga_initiator(
        strategy,
        plain,
        2 * BLOCKS,
        1,
        &["--transaction-count", "8"],
    );
    (initiator, service, targets)
}

/// Reads the generator's blocks twice and compares. Returns the service's statistics.
fn read(content: &[u8], generator: &[&str], service: &[&str]) -> Value {
    let sandbox = Sandbox::new();
    let files = sandbox.generate("content", content, generator);
    let (initiator, service, targets) = session(
        &sandbox,
        &files,
        service,
        "read_only_data_validity_test",
        &sandbox.path("content"),
    );
    assert_eq!(document(initiator)["operation_count"], 2 * BLOCKS);
    let counted = document(service);
    assert_eq!(counted["operation_count"], 2 * BLOCKS);
    assert_eq!(counted["failed_count"], 0);
    assert_eq!(counted["corrected"], serde_json::json!([0, 0, 0]));
    for target in targets {
        document(target);
    }
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
    counted
}

#[test]
fn files_without_checksums_are_served() {
    let content = compressible(BLOCKS * BLOCK_SIZE);
    for checksum in ["crc32c", "off"] {
        read(
            &content,
            &["--checksum", "off"],
            &[
                "--checksum",
                checksum,
                "--trigger-recovery-read-every-n",
                "3",
            ],
        );
    }
}

#[test]
fn files_with_checksums_are_served_for_any_checksum_mode() {
    let content = compressible(BLOCKS * BLOCK_SIZE);
    for checksum in ["crc32c", "off", "require"] {
        read(
            &content,
            &["--matrix-type", "cauchy"],
            &["--matrix-type", "cauchy", "--checksum", checksum],
        );
    }
}

#[test]
fn files_of_a_logical_block_size_are_served() {
    let content = noise(BLOCKS * BLOCK_SIZE);
    for (every, recoveries) in [("0", 0), ("1", 2 * BLOCKS), ("2", BLOCKS)] {
        let counted = read(
            &content,
            &["--logical-block-size", "4096"],
            &[
                "--logical-block-size",
                "4096",
                "--trigger-recovery-read-every-n",
                every,
            ],
        );
        assert_eq!(counted["recovery_count"], recoveries);
    }
}

#[test]
fn files_without_checksums_are_refused_if_required() {
    let sandbox = Sandbox::new();
    let content = compressible(BLOCKS * BLOCK_SIZE);
    let files = sandbox.generate("content", &content, &["--checksum", "off"]);
    let (initiator, service, _targets) = session(
        &sandbox,
        &files,
        &["--checksum", "require"],
        "read_only_data_validity_test",
        &sandbox.path("content"),
    );
    let text = expect_failure(initiator);
    assert!(
        text.contains("DOCA_ERROR_IO_FAILED") && !text.contains("mismatch"),
        "{text}"
    );
    let text = service.stderr();
    assert!(text.contains("--checksum require"), "{text}");
}

#[test]
fn error_for_incompressible_data_names_the_flag() {
    let sandbox = Sandbox::new();
    let files = sandbox.generate("content", &compressible(BLOCKS * BLOCK_SIZE), &[]);
    let random = sandbox.file("random", &noise(BLOCKS * BLOCK_SIZE));
    let (initiator, service, _targets) = session(
        &sandbox,
        &files,
        &[],
        "read_write_data_validity_test",
        &random,
    );
    let text = expect_failure(initiator);
    assert!(
        text.contains("DOCA_ERROR_IO_FAILED") && !text.contains("mismatch"),
        "{text}"
    );
    let text = service.stderr();
    assert!(
        text.contains("16 more than the 4084") && text.contains("--logical-block-size 4096"),
        "{text}"
    );
}

#[test]
fn targets_too_small_for_the_logical_block_size_are_refused() {
    let sandbox = Sandbox::new();
    let files = sandbox.generate("content", &compressible(BLOCKS * BLOCK_SIZE), &[]);
    let (initiator, _service, _targets) = session(
        &sandbox,
        &files,
        &["--logical-block-size", "4096"],
        "read_only_data_validity_test",
        &sandbox.path("content"),
    );
    let text = expect_failure(initiator);
    assert!(text.contains("2112") && text.contains("2048"), "{text}");
}

#[test]
fn mismatched_targets_are_refused_with_the_difference() {
    let sandbox = Sandbox::new();
    let content = compressible(BLOCKS * BLOCK_SIZE);
    let mut files = sandbox.generate("content", &content, &[]);
    files[1] = sandbox.generate("shorter", &content[BLOCK_SIZE..], &[])[1].clone();
    let (initiator, _service, _targets) = session(
        &sandbox,
        &files,
        &[],
        "read_only_data_validity_test",
        &sandbox.path("content"),
    );
    let text = expect_failure(initiator);
    let (whole, shorter) = (BLOCKS * 2048, (BLOCKS - 1) * 2048);
    assert!(
        text.contains(&whole.to_string()) && text.contains(&shorter.to_string()),
        "{text}"
    );
}
