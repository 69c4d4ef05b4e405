//! Blocks of the gga service: what it stores, accepts and refuses; corrupt and misdirected chunks, and their handling
//! by reads and scrubs. With corrupt bytes or incorrect answers of targets, it returns the written data or an error,
//! but no wrong byte.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::log::{LogEvent, scrub_time};
use deployment::process::Process;
use doca::ErrorCode;
use serde_json::{Value, json};

use crate::support::gga::{
    BLOCKS, Set, Sizes, TARGETS, compressible, interrupted, noise, read_targets, redundancy,
};
use crate::support::{
    BLOCK_SIZE, PROGRAM, Sandbox, default_deadline, document, expect_error, mentions, wait_for_log,
};

/// Size of a sector in bytes.
const SECTOR: usize = 512;

/// The last block; a test corrupts it, so that the others are compared before the run ends at it.
const LAST: usize = BLOCKS - 1;

/// Checks that the run ends at an unreadable block, and that the blocks before it had the expected content.
fn is_unreadable(initiator: Process) {
    let said = expect_error(initiator, ErrorCode::IO_FAILED);
    assert!(!said.contains("mismatch"), "{said}");
}

/// Reads the first `blocks` blocks in consecutive sessions, until a service has logged this event. Returns that
/// service's statistics of the redundancy.
fn read_until(
    set: &Set,
    content: &Path,
    blocks: usize,
    arguments: &[&str],
    event: LogEvent<'_>,
) -> Value {
    let deadline = default_deadline();
    loop {
        let service = set.service(arguments);
        document(set.read_in_order(content, blocks));
        let has_logged = service.has_logged(event);
        let redundancy = redundancy(service);
        if has_logged {
            return redundancy;
        }
        assert!(Instant::now() < deadline, "{event:?} was never logged");
    }
}

/// Waits until a target has stored these chunks.
fn has_stored(set: &Set, number: usize, expected: &[u8]) {
    let deadline = default_deadline();
    while set.stored(number) != expected {
        let name = TARGETS[number];
        assert!(Instant::now() < deadline, "{name} is still damaged");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Flips a bit in all chunks of a target that is not running.
fn flip(set: &Set, number: usize) {
    for block in 0..BLOCKS {
        let at = 9 + block;
        let byte = set.chunk(number, block)[at];
        set.put(number, block, at, &[byte ^ 0x20]);
    }
}

/// Restarts all targets, and applies `change` to their files in between.
fn between_restarts(set: &mut Set, change: impl FnOnce(&Set)) {
    (0..3).for_each(|number| set.kill(number));
    change(set);
    (0..3).for_each(|number| set.start(number));
}

/// The checksum of a block is in the last sector of its data_2 chunk. Without that sector and without the parity, the
/// block is lost, although the rest looks like a block that was written without a checksum.
#[test]
fn block_without_valid_checksum_and_parity_is_an_error() {
    const SOUND: usize = BLOCKS - 4;
    let mut set = Set::logical();
    let content = set.content(0);
    set.write_and_scrub(&content);
    between_restarts(&mut set, |set| {
        for block in SOUND..BLOCKS {
            set.put(1, block, set.chunk_size() - SECTOR, &[0; SECTOR]);
        }
        std::fs::remove_file(set.path(2)).expect("it was there");
    });
    let off = ["--scrub", "off"];
    read_until(
        &set,
        &content,
        SOUND,
        &off,
        LogEvent::TargetUpToDate("data_p"),
    );
    // The new parity matches the remaining bytes of the blocks.
    let service = set.service(&off);
    is_unreadable(set.read_in_order(&content, BLOCKS));
    drop(service);
    let once = ["--scrub", "once"];
    let redundancy = read_until(&set, &content, SOUND, &once, LogEvent::ScrubCompleted);
    assert_eq!(redundancy["scrubbed"]["unreadable"], BLOCKS - SOUND);
    assert_eq!(redundancy["repaired_chunks"], json!([0, 0, 0]));
    let service = set.service(&once);
    is_unreadable(set.read_in_order(&content, BLOCKS));
    drop(service);
    // Rewritten blocks can be read.
    set.write(&content);
    let service = set.service(&off);
    document(set.read_in_order(&content, BLOCKS));
    document(service);
}

#[test]
fn read_repair_is_written_back_to_the_file() {
    let mut set = Set::new("crc32c");
    let content = set.content(0);
    set.write_and_scrub(&content);
    for number in [0, 1] {
        let expected = set.stored(number);
        between_restarts(&mut set, |set| flip(set, number));
        assert!(set.stored(number) != expected);
        let service = set.service(&["--scrub", "off"]);
        let reader = set.reader(&content);
        has_stored(&set, number, &expected);
        wait_for_log(&service, LogEvent::TargetFailing(TARGETS[number]), 1);
        interrupted(reader);
        let redundancy = redundancy(service);
        let mut repaired = [0; 3];
        repaired[number] = BLOCKS;
        assert_eq!(redundancy["repaired_chunks"], json!(repaired));
        assert_eq!(redundancy["scrubbed"]["completed"], 0);
        assert_eq!(redundancy["lost"], json!([0, 0, 0]));
    }
}

#[test]
fn scrub_repairs_blocks_that_are_not_read() {
    let mut set = Set::new("crc32c");
    let content = set.content(0);
    set.write_and_scrub(&content);
    let expected = set.stored(2);
    // A service repairs with or without superblocks.
    for degraded in [true, false] {
        between_restarts(&mut set, |set| flip(set, 2));
        let service = if degraded {
            set.service(&["--scrub", "once"])
        } else {
            set.sandbox.gga_service(set.ports, 2, &["--scrub", "once"])
        };
        let reader = set.reader(&content);
        wait_for_log(&service, LogEvent::ScrubCompleted, 1);
        interrupted(reader);
        let redundancy = redundancy(service);
        assert_eq!(redundancy["repaired_chunks"], json!([0, 0, BLOCKS]));
        assert_eq!(
            redundancy["scrubbed"],
            json!({"completed": 1, "stripes": BLOCKS, "converted": 0, "unreadable": 0})
        );
        assert!(set.stored(2) == expected);
    }
}

/// Copies these targets' chunks of a block over those of the last block, like a misdirected write.
fn misdirect(set: &Set, numbers: &[usize]) {
    for &number in numbers {
        set.put(number, LAST, 0, &set.chunk(number, 5));
    }
}

#[test]
fn misdirected_write_of_one_target_is_recovered_from_the_others() {
    let mut set = Set::new("crc32c");
    let content = set.content(0);
    set.write_and_scrub(&content);
    for (number, scrub) in [(0, "off"), (1, "off"), (2, "once")] {
        let expected = set.stored(number);
        between_restarts(&mut set, |set| misdirect(set, &[number]));
        assert!(set.stored(number) != expected);
        let service = set.service(&["--scrub", scrub]);
        let reader = set.reader(&content);
        has_stored(&set, number, &expected);
        interrupted(reader);
        let mut repaired = [0; 3];
        repaired[number] = 1;
        assert_eq!(redundancy(service)["repaired_chunks"], json!(repaired));
    }
}

#[test]
fn misdirected_writes_of_several_targets_are_an_error() {
    for numbers in [&[0, 1][..], &[0, 2], &[1, 2], &[0, 1, 2]] {
        let mut set = Set::new("crc32c");
        let content = set.content(0);
        set.write_and_scrub(&content);
        between_restarts(&mut set, |set| misdirect(set, numbers));
        for every in ["0", "1"] {
            let flags = ["--scrub", "off", "--trigger-recovery-read-every-n", every];
            let service = set.service(&flags);
            is_unreadable(set.read_in_order(&content, BLOCKS));
            drop(service);
        }
        let once = ["--scrub", "once"];
        let redundancy = read_until(&set, &content, LAST, &once, LogEvent::ScrubCompleted);
        assert_eq!(redundancy["scrubbed"]["unreadable"], 1, "{numbers:?}");
        let service = set.service(&once);
        is_unreadable(set.read_in_order(&content, BLOCKS));
        drop(service);
    }
}

/// Runs a session until the service has logged this number of completed scrubs. Returns its statistics of the redundancy.
fn scrubbed(set: &Set, content: &Path, arguments: &[&str], times: usize) -> (Value, String) {
    let service = set.service(arguments);
    let reader = set.reader(content);
    wait_for_log(&service, LogEvent::ScrubCompleted, times);
    let logged = service.stderr();
    interrupted(reader);
    (redundancy(service), logged)
}

#[test]
fn scrub_adds_checksums_which_are_required_afterwards() {
    let mut set = Set::new("off");
    let content = set.content(0);
    set.write(&content);
    let trailers = |set: &Set| -> Vec<[u8; 4]> {
        let stored = set.stored(1);
        let chunks = stored.chunks(set.chunk_size());
        chunks
            .map(|chunk| *chunk.last_chunk().expect("a trailer"))
            .collect()
    };
    assert!(trailers(&set).iter().all(|trailer| *trailer == [0; 4]));
    set.write_checksums("crc32c");
    let (first, _) = scrubbed(&set, &content, &[], 1);
    assert_eq!(first["scrubbed"]["converted"], BLOCKS);
    assert_eq!(first["repaired_chunks"], json!([0, 0, 0]));
    assert!(trailers(&set).iter().all(|trailer| *trailer != [0; 4]));
    // The superblocks record it, so it happens once.
    let (second, _) = scrubbed(&set, &content, &["--scrub", "once"], 1);
    assert_eq!(second["scrubbed"]["converted"], 0);
    // All chunks are consistent, but the block is not the written one: a missing checksum is not accepted.
    between_restarts(&mut set, |set| {
        let at = set.chunk_size() - 4;
        let (data_2, data_p) = (set.chunk(1, LAST), set.chunk(2, LAST));
        let parity: Vec<u8> = std::iter::zip(&data_2[at..], &data_p[at..])
            .map(|(trailer, parity)| trailer ^ parity)
            .collect();
        set.put(1, LAST, at, &[0; 4]);
        set.put(2, LAST, at, &parity);
    });
    let service = set.service(&["--scrub", "off"]);
    is_unreadable(set.read_in_order(&content, BLOCKS));
    drop(service);
}

#[test]
fn scrubs_run_as_set_by_the_flags() {
    let set = Set::new("crc32c");
    let content = set.content(0);
    let service = set.service(&["--scrub", "off"]);
    let writer = set.writer(&content);
    interrupted(writer);
    assert_eq!(
        redundancy(service)["scrubbed"],
        json!({"completed": 0, "stripes": 0, "converted": 0, "unreadable": 0}),
        "not even of a new set"
    );
    let (redundancy, _) = scrubbed(&set, &content, &["--scrub", "once"], 1);
    assert_eq!(redundancy["scrubbed"]["completed"], 1);
    assert_eq!(redundancy["scrubbed"]["stripes"], BLOCKS);
    let (redundancy, _) = scrubbed(&set, &content, &["--scrub", "1s"], 3);
    assert!(redundancy["scrubbed"]["completed"].as_u64() >= Some(3));
}

#[test]
fn scrub_rate_is_limited() {
    // 64 blocks of 4 KiB at 1 MiB per second.
    const LEAST: Duration = Duration::from_millis(200);
    let set = Set::new("crc32c");
    let content = set.content(0);
    set.write_and_scrub(&content);
    let flags = ["--scrub", "once", "--scrub-rate", "1"];
    let (_, logged) = scrubbed(&set, &content, &flags, 1);
    let (stripes, took) = logged
        .lines()
        .find_map(scrub_time)
        .unwrap_or_else(|| panic!("expected a time: {logged}"));
    assert_eq!(stripes, BLOCKS as u64);
    assert!(took >= LEAST, "{took:?}");
}

#[test]
fn wrong_values_of_the_scrub_flags_are_usage_errors() {
    const VALUES: &[&str] = &["off", "once"];
    // The flag, a wrong value, and the values or the minimum that the error names.
    for (flag, value, expected) in [
        ("--scrub", "never", VALUES),
        ("--scrub", "500ms", &["1s"]),
        ("--scrub", "", VALUES),
        ("--scrub-rate", "0", &["MiB", "1"]),
        ("--scrub-rate", "-1", &["MiB", "1"]),
        ("--scrub-rate", "64 apples", &["MiB", "1"]),
        ("--scrub-rate", "18446744073709551615", &["MiB", "1"]),
    ] {
        let value = format!("{flag}={value}");
        let addresses = "--data-1-storage 127.0.0.1:1 --data-2-storage 127.0.0.1:2 --data-p-storage 127.0.0.1:3";
        let output = Command::new(PROGRAM)
            .args("gga-offload -d 03:00.0 -r 3b:00.0 --cpu 0".split(' '))
            .args(addresses.split(' '))
            .arg(&value)
            .output()
            .expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{value}: {said}");
        assert!(said.contains(flag), "{value}: {said}");
        mentions(&said, expected);
    }
}

const CORRUPTED_BLOCKS: usize = 60;
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
        2 * CORRUPTED_BLOCKS,
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
        let content = compressible(CORRUPTED_BLOCKS * BLOCK_SIZE);
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
        assert_eq!(
            document(session.initiator)["operation_count"],
            2 * CORRUPTED_BLOCKS
        );
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

#[test]
fn two_corrupt_chunks_of_one_stripe_are_an_error() {
    for (first, second) in [(0, 1), (0, 2), (1, 2)] {
        for recover_every in ["0", "1"] {
            let sandbox = Sandbox::new();
            let content = compressible(CORRUPTED_BLOCKS * BLOCK_SIZE);
            let files = sandbox.generate("content", &content, &[]);
            damage(&files, &[(first, 17, 100), (second, 17, 200)]);
            let session = reader(
                &sandbox,
                &files,
                &["--trigger-recovery-read-every-n", recover_every],
            );
            is_unreadable(session.initiator);
        }
    }
}

#[test]
fn without_checksums_any_corruption_is_an_error() {
    for target in 0..3 {
        let sandbox = Sandbox::new();
        let content = compressible(CORRUPTED_BLOCKS * BLOCK_SIZE);
        let files = sandbox.generate("content", &content, &["--checksum", "off"]);
        damage(&files, &[(target, 17, 100)]);
        is_unreadable(reader(&sandbox, &files, &[]).initiator);
    }
}

#[test]
fn block_without_checksum_is_checked_against_its_parity() {
    let sandbox = Sandbox::new();
    let content = compressible(CORRUPTED_BLOCKS * BLOCK_SIZE);
    let files = sandbox.generate("content", &content, &[]);
    // The trailer is the end of data_2; it is corrupted together with a byte of the LZ4 data.
    let mut bytes = std::fs::read(&files[1]).expect("a file");
    let block = &mut bytes[SBC_HEADER + 17 * HALF..][..HALF];
    block[HALF - 4..].fill(0);
    block[3] ^= 1;
    std::fs::write(&files[1], bytes).expect("written");
    // Parity and data_1 still contain both.
    let session = reader(&sandbox, &files, &[]);
    assert_eq!(
        document(session.initiator)["operation_count"],
        2 * CORRUPTED_BLOCKS
    );
    let counted = document(session.service);
    let corrected = counted["corrected"][1].as_u64().expect("a count");
    assert!((1..=2).contains(&corrected), "{counted}");
    assert_eq!(
        counted["redundancy"]["repaired_chunks"],
        serde_json::json!([0, 1, 0])
    );
}

/// Write-read validation with scripted targets, one of which has a fault.
fn writer(sandbox: &Sandbox, faulty: usize, fault: &str, passes: usize) -> Session {
    let targets = [0, 1, 2].map(|target| {
        let content = sandbox.file(TARGETS[target], &vec![0; CORRUPTED_BLOCKS * HALF]);
        let fault = if target == faulty { fault } else { "none" };
        sandbox.scripted_target(&content, HALF, fault)
    });
    let ports = targets.each_ref().map(|(_, port)| *port);
    let service = sandbox.gga_service(ports, 1, &["--trigger-recovery-read-every-n", "5"]);
    let operations = (CORRUPTED_BLOCKS * passes).to_string();
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
        for (faulty, name) in TARGETS.iter().enumerate() {
            let sandbox = Sandbox::new();
            let session = writer(&sandbox, faulty, fault, 3);
            assert_eq!(
                document(session.initiator)["operation_count"],
                3 * CORRUPTED_BLOCKS,
                "{fault} on {name}"
            );
        }
    }
}

#[test]
fn failed_write_of_a_target_is_an_error() {
    for faulty in 0..3 {
        let sandbox = Sandbox::new();
        // This I/O is a write of the first pass.
        is_unreadable(writer(&sandbox, faulty, "fail-io:3:17", 1).initiator);
    }
}

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
    is_unreadable(initiator);
    mentions(&service.stderr(), &["--checksum", "require"]);
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
    is_unreadable(initiator);
    // The excess, the room for compressed data, and the flag that makes room.
    let values = ["16", "4084", "--logical-block-size", "4096"];
    mentions(&service.stderr(), &values);
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
    let text = expect_error(initiator, ErrorCode::INVALID_VALUE);
    mentions(&text, &["2112", "2048"]);
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
    let text = expect_error(initiator, ErrorCode::BAD_STATE);
    let sizes = [BLOCKS, BLOCKS - 1].map(|blocks| (blocks * 2048).to_string());
    mentions(&text, &sizes);
}
