//! Blocks of the gga service: what it stores, accepts and refuses; corrupt, lost, old and misdirected chunks of a set, and their handling
//! by reads and scrubs. With such chunks, or incorrect answers of targets, it returns the written data or an error, but no wrong byte.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use deployment::log::{LogEvent, events, scrub_time};
use deployment::process::{Process, Signal};
use doca::ErrorCode;
use serde_json::{Value, json};

use crate::support::gga::{
    BLOCKS, CHUNK, Chunk, OF_SETS, Set, TARGETS, chunk_size, interrupted, read_blocks, read_chunks,
    redundancy,
};
use crate::support::{
    BLOCK_SIZE, PROGRAM, Sandbox, document, ended, expect_error, expect_failure, mentions, text,
    wait_for_log, waiting,
};

/// Size of a sector in bytes.
const SECTOR: usize = 512;

/// The last block: a test corrupts it, so that all blocks before it are compared before the run ends.
const LAST: usize = BLOCKS - 1;

/// Flags of a service that does not scrub, not even a new set.
const NO_SCRUB: [&str; 2] = ["--scrub", "off"];
const ONE_SCRUB: [&str; 2] = ["--scrub", "once"];

/// Checks that the run ends at an unreadable block, and that the blocks before it had the expected content.
fn is_unreadable(initiator: Process) {
    let said = expect_error(initiator, ErrorCode::IO_FAILED);
    assert!(!said.contains("mismatch"), "{said}");
}

/// Runs a session without I/O until the service has logged this event. Returns the service's statistics of the redundancy.
fn idle_until(set: &Set, arguments: &[&str], event: LogEvent<'_>) -> Value {
    let service = set.service(arguments);
    let client = set.idle_client();
    wait_for_log(&service, event, 1);
    client.signal(Signal::TERM);
    ended(client, 0);
    redundancy(service)
}

/// Reads all blocks in a session and compares. Returns the service's statistics of the redundancy.
fn read_all(set: &Set, content: &Path, arguments: &[&str]) -> Value {
    let service = set.service(arguments);
    document(set.read_in_order(content, BLOCKS));
    redundancy(service)
}

/// Stops all targets, applies `change` to their files, and restarts them.
fn between_restarts<T>(set: &mut Set, change: impl FnOnce(&Set) -> T) -> T {
    (0..3).for_each(|number| set.stop(number));
    let result = change(set);
    (0..3).for_each(|number| set.start(number));
    result
}

/// All chunks of the three targets, which are restarted.
fn stored(set: &mut Set) -> [Vec<u8>; 3] {
    between_restarts(set, |set| [0, 1, 2].map(|number| set.stored(number)))
}

/// Flips a bit in each chunk of a target that is not running: in the payload, and in the record.
fn flip(set: &Set, number: usize) {
    for block in 0..BLOCKS {
        let at = 33 * block;
        let byte = set.chunk(number, block)[at];
        set.put(number, block, at, &[byte ^ 0x20]);
    }
}

fn count_of(number: usize, count: usize) -> Value {
    let mut counts = [0; 3];
    counts[number] = count;
    json!(counts)
}

/// With a sector of one chunk lost, and another target replaced, a block has one valid chunk: it is an I/O error, and the rebuild of the other
/// target completes.
#[test]
fn block_without_two_valid_chunks_is_an_error() {
    const SOUND: usize = BLOCKS - 4;
    let mut set = Set::new();
    let content = set.content(0);
    set.write(&content);
    between_restarts(&mut set, |set| {
        for block in SOUND..BLOCKS {
            set.put(1, block, CHUNK - SECTOR, &[0; SECTOR]);
        }
        std::fs::remove_file(set.path(2)).expect("it was there");
    });
    let up_to_date = LogEvent::TargetUpToDate("data_p");
    let redundancy = idle_until(&set, &NO_SCRUB, up_to_date);
    assert_eq!(redundancy["state"], "healthy");
    assert_eq!(redundancy["rebuilt_stripes"], SOUND);
    let service = set.service(&NO_SCRUB);
    is_unreadable(set.read_in_order(&content, BLOCKS));
    drop(service);
    let redundancy = idle_until(&set, &ONE_SCRUB, LogEvent::ScrubCompleted);
    assert_eq!(redundancy["scrubbed"]["lost"], BLOCKS - SOUND);
    assert_eq!(redundancy["repaired_chunks"], json!([0, 0, 0]));
    let service = set.service(&ONE_SCRUB);
    is_unreadable(set.read_in_order(&content, BLOCKS));
    drop(service);
    // Blocks that are written again can be read.
    set.write(&content);
    read_all(&set, &content, &NO_SCRUB);
}

#[test]
fn read_repairs_corrupt_chunks_on_the_disk() {
    let mut set = Set::new();
    let content = set.content(0);
    set.write(&content);
    let expected = stored(&mut set);
    // A read that recovers every chunk of data_1 or data_2 uses the parity.
    for (number, every) in [(0, "0"), (1, "0"), (2, "1")] {
        between_restarts(&mut set, |set| flip(set, number));
        let flags = [&NO_SCRUB[..], &["--trigger-recovery-read-every-n", every]].concat();
        let service = set.service(&flags);
        document(set.read_in_order(&content, BLOCKS));
        let name = TARGETS[number];
        let is_failing = LogEvent::TargetFailing(name);
        assert!(service.has_logged(is_failing), "{}", service.stderr());
        let redundancy = redundancy(service);
        assert_eq!(redundancy["repaired_chunks"], count_of(number, BLOCKS));
        assert_eq!(redundancy["scrubbed"]["completed"], 0);
        assert_eq!(redundancy["lost"], json!([0, 0, 0]));
        assert!(stored(&mut set) == expected, "{name} is not repaired");
    }
}

#[test]
fn scrub_repairs_blocks_that_are_not_read() {
    let mut set = Set::new();
    let content = set.content(0);
    set.write(&content);
    let expected = stored(&mut set);
    between_restarts(&mut set, |set| flip(set, 2));
    let (redundancy, _) = scrubbed(&set, &content, &ONE_SCRUB, 1);
    assert_eq!(redundancy["repaired_chunks"], count_of(2, BLOCKS));
    assert_eq!(
        redundancy["scrubbed"],
        json!({"completed": 1, "stripes": BLOCKS, "lost": 0})
    );
    assert!(stored(&mut set) == expected);
}

/// A valid chunk that belongs to another block or to an earlier write, or that was lost.
#[test]
fn wrong_chunk_of_one_target_is_repaired_from_the_others() {
    let mut set = Set::new();
    let (old, new) = (set.content(0), set.content(1));
    set.write(&old);
    let before = stored(&mut set);
    set.write(&new);
    let expected = stored(&mut set);
    let of = |chunks: &[Vec<u8>; 3], number: usize, block: usize| {
        chunks[number][block * CHUNK..][..CHUNK].to_vec()
    };
    for (number, scrub) in [(0, &NO_SCRUB), (1, &NO_SCRUB), (2, &ONE_SCRUB)] {
        let other = (number + 1) % 3;
        let mut of_another_set =
            Chunk::parse(&of(&expected, number, LAST), number).expect("written");
        of_another_set.set += 1;
        for (what, chunk) in [
            ("another block", of(&expected, number, 5)),
            ("another target", of(&expected, other, LAST)),
            ("another set", of_another_set.emit()),
            ("an earlier write", of(&before, number, LAST)),
            ("a lost write", vec![0; CHUNK]),
            ("no chunk", contents::noise(1, CHUNK)),
        ] {
            between_restarts(&mut set, |set| set.put(number, LAST, 0, &chunk));
            let redundancy = if *scrub == ONE_SCRUB {
                scrubbed(&set, &new, scrub, 1).0
            } else {
                read_all(&set, &new, scrub)
            };
            let name = TARGETS[number];
            let repaired = &redundancy["repaired_chunks"];
            assert_eq!(*repaired, count_of(number, 1), "{what}: {name}");
            assert!(stored(&mut set) == expected, "{what}: {name}");
        }
    }
}

#[test]
fn wrong_chunks_of_several_targets_are_an_error() {
    let mut set = Set::new();
    let (old, new) = (set.content(0), set.content(1));
    set.write(&old);
    let before = stored(&mut set);
    set.write(&new);
    let expected = stored(&mut set);
    let (any, usual, none) = (&["0", "1"][..], &["0"][..], &[][..]);
    // The chunk belongs to another block; or to an earlier write, which the third chunk shows. Reads that use only the
    // other two chunks cannot detect it.
    for (numbers, block, chunks, intervals) in [
        (&[0, 1][..], 5, &expected, any),
        (&[0, 2], 5, &expected, any),
        (&[1, 2], 5, &expected, any),
        (&[0, 1, 2], 5, &expected, any),
        (&[0, 2], LAST, &before, usual),
        (&[1, 2], LAST, &before, usual),
        (&[0, 1], LAST, &before, none),
    ] {
        let put = |set: &Set, chunks: &[Vec<u8>; 3], block: usize| {
            for &number in numbers {
                set.put(number, LAST, 0, &chunks[number][block * CHUNK..][..CHUNK]);
            }
        };
        between_restarts(&mut set, |set| put(set, chunks, block));
        for every in intervals {
            let flags = ["--trigger-recovery-read-every-n", every];
            let service = set.service(&[NO_SCRUB, flags].concat());
            is_unreadable(set.read_in_order(&new, BLOCKS));
            drop(service);
        }
        let redundancy = idle_until(&set, &ONE_SCRUB, LogEvent::ScrubCompleted);
        assert_eq!(redundancy["scrubbed"]["lost"], 1, "{numbers:?}");
        assert_eq!(redundancy["repaired_chunks"], json!([0, 0, 0]));
        between_restarts(&mut set, |set| put(set, &expected, LAST));
    }
    read_all(&set, &new, &NO_SCRUB);
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
fn scrubs_run_as_set_by_the_flags() {
    let set = Set::new();
    let content = set.content(0);
    let service = set.service(&NO_SCRUB);
    let writer = set.writer(&content);
    interrupted(writer);
    assert_eq!(
        redundancy(service)["scrubbed"],
        json!({"completed": 0, "stripes": 0, "lost": 0}),
        "not even of a new set"
    );
    let (redundancy, _) = scrubbed(&set, &content, &ONE_SCRUB, 1);
    assert_eq!(redundancy["scrubbed"]["completed"], 1);
    assert_eq!(redundancy["scrubbed"]["stripes"], BLOCKS);
    let (redundancy, _) = scrubbed(&set, &content, &["--scrub", "1s"], 3);
    assert!(redundancy["scrubbed"]["completed"].as_u64() >= Some(3));
}

/// The targets may have any contents: the check finds chunks that are neither zeros nor chunks of the set.
#[test]
fn new_set_is_scrubbed_once() {
    let set = Set::new();
    let content = set.content(0);
    let service = set.service(&[]);
    let writer = set.writer(&content);
    wait_for_log(&service, LogEvent::ScrubCompleted, 1);
    interrupted(writer);
    let scrubbed = redundancy(service)["scrubbed"].clone();
    assert_eq!(
        scrubbed,
        json!({"completed": 1, "stripes": BLOCKS, "lost": 0})
    );
    let service = set.service(&[]);
    document(set.read_in_order(&content, BLOCKS));
    assert_eq!(redundancy(service)["scrubbed"]["stripes"], 0);
}

#[test]
fn scrub_rate_is_limited() {
    // 64 blocks of 4 KiB at 1 MiB per second.
    const LEAST: Duration = Duration::from_millis(200);
    let set = Set::new();
    let content = set.content(0);
    set.write(&content);
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
    // The flag, an invalid value, and the values or the minimum that the error names.
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

/// Number of blocks of targets that a script plays, or that have the generator's content.
const PLAYED: usize = 60;
const HALF: usize = BLOCK_SIZE / 2;

/// Size of the header of a `.sbc` file in bytes.
const SBC_HEADER: usize = 16;

/// Other corruption cannot be detected in the reference's form.
#[test]
fn block_of_the_reference_with_wrong_sizes_is_an_error() {
    // Bytes in the original size, and in the compressed size.
    for byte in [1, 4] {
        let sandbox = Sandbox::new();
        let content = contents::text(1, PLAYED * BLOCK_SIZE);
        let files = sandbox.generate("content", &content, &[]);
        let mut bytes = std::fs::read(&files[0]).expect("a file");
        bytes[SBC_HEADER + 17 * HALF + byte] ^= 0x20;
        std::fs::write(&files[0], bytes).expect("written");
        let (_targets, ports) = sandbox.gga_targets(&files, 1);
        let service = sandbox.gga_service(ports, 1, &[]);
        let initiator = sandbox.gga_initiator(
            "read_only_data_validity_test",
            &sandbox.path("content"),
            PLAYED,
            1,
            &["--transaction-count", "1"],
        );
        is_unreadable(initiator);
        drop(service);
    }
}

#[test]
fn failed_write_of_a_target_is_an_error() {
    for faulty in 0..3 {
        let sandbox = Sandbox::new();
        let targets = [0, 1, 2].map(|target| {
            let content = sandbox.file(TARGETS[target], &vec![0; PLAYED * HALF]);
            // This I/O is a write of the first pass.
            let fault = if target == faulty {
                "fail-io:3:17"
            } else {
                "none"
            };
            sandbox.scripted_target(&content, HALF, fault)
        });
        let ports = targets.each_ref().map(|(_, port)| *port);
        let _service = sandbox.gga_service(ports, 1, &["--trigger-recovery-read-every-n", "5"]);
        let operations = PLAYED.to_string();
        let initiator = sandbox.initiator(
            "read_write_data_validity_test",
            &[
                "--run-limit-operation-count",
                &operations,
                "--transaction-count",
                "8",
            ],
        );
        is_unreadable(initiator);
    }
}

/// Form of the blocks on the targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The reference's stored blocks.
    Blocks,
    /// Chunks of a set.
    Chunks,
}

/// Writes content through a service to empty targets, reads it back, and decodes what they have stored.
fn check(form: Form, block_size: usize, matrix: &str, workers: usize, blocks_per_io: usize) {
    let sandbox = Sandbox::new();
    // One I/O per worker, and a shorter one.
    let blocks = workers * blocks_per_io + blocks_per_io.div_ceil(2);
    let mut content = contents::text(1, blocks * block_size);
    if form == Form::Chunks {
        // Text blocks, incompressible blocks, and one of both.
        for block in content.chunks_mut(block_size).step_by(2) {
            block.copy_from_slice(&contents::noise(1, block_size));
        }
        content[..block_size / 3].fill(b'=');
    }
    let plain = sandbox.file("plain", &content);
    let size = block_size.to_string();
    let mut arguments = vec!["--matrix-type", matrix];
    let targets = match form {
        Form::Blocks => {
            let empty = vec![0; blocks * block_size / 2];
            TARGETS.map(|name| {
                let file = sandbox.file(name, &empty);
                sandbox.scripted_target(&file, block_size / 2, "none")
            })
        }
        Form::Chunks => {
            arguments.extend(["--logical-block-size", &size]);
            TARGETS.map(|name| {
                sandbox.target(&[
                    "--cpu",
                    "0",
                    "--block-count",
                    &blocks.to_string(),
                    "--block-size",
                    &chunk_size(block_size).to_string(),
                    "--backing-file",
                    text(&sandbox.path(name)),
                ])
            })
        }
    };
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
            .expect("its only session is over");
    }
    let decoded = match form {
        Form::Blocks => {
            let dumps = TARGETS.map(|name| {
                std::fs::read(sandbox.path(&format!("{name}.dump"))).expect("what the target held")
            });
            read_blocks(dumps.each_ref().map(Vec::as_slice), block_size, matrix)
        }
        Form::Chunks => {
            let files = TARGETS.map(|name| std::fs::read(sandbox.path(name)).expect("a file"));
            let length = blocks * chunk_size(block_size);
            let chunks = files.each_ref().map(|file| &file[65536..][..length]);
            read_chunks(chunks, block_size, matrix)
        }
    };
    assert!(decoded == content, "the content");
}

/// All numbers of workers and blocks per I/O, alternating between both forms.
fn check_all(block_size: usize, matrix: &str) {
    check(Form::Blocks, block_size, matrix, 1, 1);
    check(Form::Chunks, block_size, matrix, 1, 8);
    check(Form::Chunks, block_size, matrix, 2, 1);
    check(Form::Blocks, block_size, matrix, 2, 8);
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
fn generator_stores_the_reference_form() {
    let sandbox = Sandbox::new();
    let content = contents::text(1, 5 * 65536);
    for matrix in ["vandermonde", "cauchy"] {
        let arguments = ["--block-size", "65536", "--matrix-type", matrix];
        let files = sandbox.generate(matrix, &content, &arguments);
        let files = files.map(|file| std::fs::read(file).expect("a file"));
        let halves = files.each_ref().map(|file| &file[SBC_HEADER..]);
        assert!(read_blocks(halves, 65536, matrix) == content, "{matrix}");
    }
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

/// Every n-th read recovers a block.
#[test]
fn files_of_the_generator_are_served() {
    for (matrix, every, recoveries) in [
        ("vandermonde", "0", 0),
        ("cauchy", "1", 2 * BLOCKS),
        ("cauchy", "2", BLOCKS),
    ] {
        let sandbox = Sandbox::new();
        let content = contents::text(1, BLOCKS * BLOCK_SIZE);
        let of_matrix = ["--matrix-type", matrix];
        let files = sandbox.generate("content", &content, &of_matrix);
        let (initiator, service, targets) = session(
            &sandbox,
            &files,
            &[&of_matrix[..], &["--trigger-recovery-read-every-n", every]].concat(),
            "read_only_data_validity_test",
            &sandbox.path("content"),
        );
        assert_eq!(document(initiator)["operation_count"], 2 * BLOCKS);
        let counted = document(service);
        assert_eq!(counted["operation_count"], 2 * BLOCKS);
        assert_eq!(counted["failed_count"], 0);
        assert_eq!(counted["recovery_count"], recoveries);
        assert_eq!(counted["corrected"], json!([0, 0, 0]));
        for target in targets {
            document(target);
        }
        assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
    }
}

#[test]
fn recovery_reads_of_a_set_are_counted() {
    let set = Set::new();
    let content = set.content(0);
    set.write(&content);
    for (every, recoveries) in [("0", 0), ("1", 2 * BLOCKS), ("2", BLOCKS)] {
        let service = set.service(&["--trigger-recovery-read-every-n", every]);
        document(set.read_in_order(&content, 2 * BLOCKS));
        let counted = document(service);
        assert_eq!(counted["recovery_count"], recoveries);
        assert_eq!(counted["corrected"], json!([0, 0, 0]));
    }
}

/// Checks that a service with these flags refuses a session with the set's targets, for the reason that these values describe.
fn is_refused(set: &Set, arguments: &[&str], reason: LogEvent<'_>, values: &[&str]) {
    let service = set.sandbox.gga_service(set.ports, 2, arguments);
    let content = set.content(0);
    let initiator = set.initiator("read_throughput_test", &content, BLOCKS);
    let stderr = expect_error(initiator, ErrorCode::INVALID_VALUE);
    assert!(events(&stderr).any(|event| event == reason), "{stderr}");
    mentions(&stderr, values);
    expect_failure(service);
}

#[test]
fn set_is_used_only_as_it_was_created() {
    let mut set = Set::new();
    let content = set.content(0);
    set.write(&content);
    let expected = stored(&mut set);
    let cauchy = [&OF_SETS[..], &["--matrix-type", "cauchy"]].concat();
    is_refused(
        &set,
        &cauchy,
        LogEvent::OtherForm,
        &["vandermonde", "cauchy"],
    );
    let smaller = ["--logical-block-size", "2048"];
    is_refused(&set, &smaller, LogEvent::OtherForm, &["4096", "2048"]);
    let member = LogEvent::MemberOfSet("data_1");
    is_refused(&set, &[], member, &["--logical-block-size", "4096"]);
    for port in set.ports {
        let service = waiting(set.sandbox.starting_service(port, &["--cpu", "0"]));
        let initiator = set.initiator("read_throughput_test", &content, BLOCKS);
        let stderr = expect_error(initiator, ErrorCode::NOT_PERMITTED);
        mentions(&stderr, &["--logical-block-size", "4096"]);
        expect_failure(service);
    }
    assert!(stored(&mut set) == expected);
    let service = set.service(&NO_SCRUB);
    document(set.read_in_order(&content, BLOCKS));
    let is_current = service.has_logged(LogEvent::AllUpToDate);
    assert!(is_current, "{}", service.stderr());
    document(service);
}

#[test]
fn error_for_incompressible_data_names_the_flag() {
    let sandbox = Sandbox::new();
    let files = sandbox.generate("content", &contents::text(1, BLOCKS * BLOCK_SIZE), &[]);
    let random = sandbox.file("random", &contents::noise(1, BLOCKS * BLOCK_SIZE));
    let (initiator, service, _targets) = session(
        &sandbox,
        &files,
        &[],
        "read_write_data_validity_test",
        &random,
    );
    is_unreadable(initiator);
    // The excess, the space for compressed data, and the flag that adds space.
    let values = ["16", "4084", "--logical-block-size", "4096"];
    mentions(&service.stderr(), &values);
}

#[test]
fn targets_too_small_for_the_logical_block_size_are_refused() {
    let sandbox = Sandbox::new();
    let files = sandbox.generate("content", &contents::text(1, BLOCKS * BLOCK_SIZE), &[]);
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
    let content = contents::text(1, BLOCKS * BLOCK_SIZE);
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
