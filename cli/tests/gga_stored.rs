//! Blocks that the gga service stores, accepts and refuses.

use std::path::{Path, PathBuf};

use crate::support::gga::{TARGETS, compressible, noise};
use crate::support::stored_block::{Sizes, read_targets};
use crate::support::{BLOCK_SIZE, Sandbox, document, expect_failure};
use ::deployment::process::Process;
use serde_json::Value;

/// Size of the header of a `.sbc` file in bytes.
const SBC_HEADER: usize = 16;

/// Writes content through a service to empty scripted targets, reads it back, and decodes their contents.
fn check(sizes: Sizes, matrix: &str, workers: usize, blocks_per_io: usize) {
    let sandbox = Sandbox::new();
    // One I/O per worker, and one more that is short.
    let blocks = workers * blocks_per_io + blocks_per_io.div_ceil(2);
    let logical = sizes == Sizes::logical(sizes.logical);
    let mut content = compressible(blocks * sizes.logical);
    if logical {
        // Text blocks, incompressible blocks, and one of both.
        for block in content.chunks_mut(sizes.logical).step_by(2) {
            block.copy_from_slice(&noise(sizes.logical));
        }
        content[..sizes.logical / 3].fill(b'=');
    }
    let plain = sandbox.file("plain", &content);
    let empty = vec![0; blocks * sizes.half];
    let targets = TARGETS.map(|name| {
        let file = sandbox.file(name, &empty);
        sandbox.scripted_target(&file, sizes.half, "none")
    });
    let block_size = sizes.logical.to_string();
    let mut arguments = vec!["--matrix-type", matrix];
    if logical {
        arguments.extend(["--logical-block-size", &block_size]);
    }
    let ports = targets.each_ref().map(|(_, port)| *port);
    let service = sandbox.gga_service(ports, workers, &arguments);
    let ios = blocks.div_ceil(blocks_per_io);
    let initiator = sandbox.gga_initiator(
        "read_write_data_validity_test",
        &plain,
        ios.div_ceil(workers),
        workers,
        &[
            "--transaction-count",
            "4",
            "--blocks-per-io",
            &blocks_per_io.to_string(),
            "--io-timeout",
            "60",
        ],
    );
    document(initiator);
    document(service);
    for (target, _) in targets {
        target
            .finish(crate::support::default_deadline(), || false)
            .expect("the script is played to its end");
    }
    let dumps = TARGETS.map(|name| {
        std::fs::read(sandbox.path(&format!("{name}.dump"))).expect("what the target held")
    });
    let decoded = read_targets(dumps.each_ref().map(Vec::as_slice), sizes, matrix, true);
    assert!(decoded == content, "the content");
}

/// All numbers of workers and blocks per I/O, alternating between both geometries.
fn check_all(block_size: usize, matrix: &str) {
    let (compatible, logical) = (Sizes::compatible(block_size), Sizes::logical(block_size));
    check(compatible, matrix, 1, 1);
    check(logical, matrix, 1, 8);
    check(logical, matrix, 2, 1);
    check(compatible, matrix, 2, 8);
}

#[test]
fn blocks_of_4_kib_with_vandermonde() {
    check_all(4096, "vandermonde");
}

#[test]
fn blocks_of_4_kib_with_cauchy() {
    check_all(4096, "cauchy");
}

#[test]
fn blocks_of_64_kib_with_vandermonde() {
    check_all(65536, "vandermonde");
}

#[test]
fn blocks_of_64_kib_with_cauchy() {
    check_all(65536, "cauchy");
}

#[test]
fn blocks_of_1_mib_with_vandermonde() {
    check_all(1 << 20, "vandermonde");
}

#[test]
fn blocks_of_1_mib_with_cauchy() {
    check_all(1 << 20, "cauchy");
}

#[test]
fn generator_and_service_store_the_same_bytes() {
    let sandbox = Sandbox::new();
    let content = compressible(5 * 65536);
    let noise = noise(5 * 65536);
    let read = |name, content: &[u8], arguments: &[&str], sizes, matrix, checksum| {
        let files = sandbox.generate(name, content, arguments);
        let files = files.map(|file| std::fs::read(file).expect("a file"));
        let halves = files.each_ref().map(|file| &file[SBC_HEADER..]);
        assert!(
            read_targets(halves, sizes, matrix, checksum) == content,
            "{name}"
        );
    };
    let compatible = Sizes::compatible(65536);
    read(
        "a",
        &content,
        &["--block-size", "65536"],
        compatible,
        "vandermonde",
        true,
    );
    read(
        "b",
        &content,
        &[
            "--block-size",
            "65536",
            "--checksum",
            "off",
            "--matrix-type",
            "cauchy",
        ],
        compatible,
        "cauchy",
        false,
    );
    read(
        "c",
        &noise,
        &["--logical-block-size", "65536"],
        Sizes::logical(65536),
        "vandermonde",
        true,
    );
}

// Blocks that the gga service accepts, and those that it refuses.

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
