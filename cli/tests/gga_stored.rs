//! Data stored by the generator and the gga service, read directly from files and from the targets' memory by independent
//! code.

use crate::support::gga::{TARGETS, compressible, noise};
use crate::support::stored_block::{Sizes, read_targets};
use crate::support::{Sandbox, document};

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
