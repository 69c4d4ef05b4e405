//! `gga-offload --degraded on`: corrupt and misdirected chunks, and their handling by reads and scrubs.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::gga::TARGETS;
use crate::support::set::{BLOCKS, Set, interrupted, redundancy};
use crate::support::{default_deadline, document, expect_failure, wait_for_log};
use ::deployment::process::Process;
use serde_json::{Value, json};

/// Size of a sector in bytes.
const SECTOR: usize = 512;
/// The last block; a test corrupts it, so that the others are compared before the run ends at it.
const LAST: usize = BLOCKS - 1;
/// Log text at the end of a scrub.
const SCRUBBED: &str = "scrub completed";

/// Checks that the run ends at an unreadable block, and that the blocks before it had the expected content.
fn is_unreadable(initiator: Process) {
    let said = expect_failure(initiator);
    assert!(
        said.contains("DOCA_ERROR_IO_FAILED") && !said.contains("mismatch"),
        "{said}"
    );
}

/// Reads the first `blocks` blocks in consecutive sessions, until a service has logged this text. Returns that
/// service's statistics of the redundancy.
fn read_until(set: &Set, content: &Path, blocks: usize, arguments: &[&str], logged: &str) -> Value {
    let deadline = default_deadline();
    loop {
        let service = set.service(arguments);
        document(set.read_in_order(content, blocks));
        let has_logged = service.stderr().contains(logged);
        let redundancy = redundancy(service);
        if has_logged {
            return redundancy;
        }
        assert!(Instant::now() < deadline, "{logged:?} was never logged");
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
    read_until(&set, &content, SOUND, &off, "data_p is up to date");
    // The new parity matches the remaining bytes of the blocks.
    let service = set.service(&off);
    is_unreadable(set.read_in_order(&content, BLOCKS));
    drop(service);
    let once = ["--scrub", "once"];
    let redundancy = read_until(&set, &content, SOUND, &once, SCRUBBED);
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
        let failing = format!("storage target {} may be failing", TARGETS[number]);
        wait_for_log(&service, &failing, 1);
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
        wait_for_log(&service, SCRUBBED, 1);
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
        let redundancy = read_until(&set, &content, LAST, &once, SCRUBBED);
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
    wait_for_log(&service, SCRUBBED, times);
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
    let took = logged
        .split_once("scrub completed: 64 stripes in ")
        .and_then(|(_, rest)| rest.split_once(','))
        .map(|(took, _)| took);
    let seconds = took.and_then(|took| {
        let (number, factor) = match took.strip_suffix("ms") {
            Some(number) => (number, 1000.0),
            None => (took.strip_suffix('s')?, 1.0),
        };
        Some(number.parse::<f64>().ok()? / factor)
    });
    let seconds = seconds.unwrap_or_else(|| panic!("expected a time: {logged}"));
    assert!(seconds >= LEAST.as_secs_f64(), "{seconds} s");
}

#[test]
fn wrong_values_of_the_scrub_flags_are_usage_errors() {
    for (flag, value, part) in [
        ("--scrub", "never", "off, once, or a period such as"),
        ("--scrub", "500ms", "at least 1s"),
        ("--scrub", "", "off, once, or a period such as"),
        ("--scrub-rate", "0", "a number of MiB, at least 1"),
        ("--scrub-rate", "-1", "a number of MiB, at least 1"),
        ("--scrub-rate", "64 apples", "a number of MiB, at least 1"),
        (
            "--scrub-rate",
            "18446744073709551615",
            "a number of MiB, at least 1",
        ),
    ] {
        let value = format!("{flag}={value}");
        let addresses = "--data-1-storage 127.0.0.1:1 --data-2-storage 127.0.0.1:2 --data-p-storage 127.0.0.1:3";
        let output = Command::new(env!("CARGO_BIN_EXE_doca-storage"))
            .args("gga-offload -d 03:00.0 -r 3b:00.0 --cpu 0".split(' '))
            .args(addresses.split(' '))
            .arg(&value)
            .output()
            .expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{value}: {said}");
        assert!(
            said.contains(flag) && said.contains(part),
            "{value}: {said}"
        );
    }
}
