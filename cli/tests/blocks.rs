//! Blocks of a zero-copy deployment: a faulty storage is detected by real initiator and service processes, and the
//! first wrong byte is reported; blocks of a backing file persist after their target has exited.

use std::path::Path;

use deployment::log::LogEvent;
use deployment::process::{Process, Signal};
use doca::ErrorCode;

use crate::support::{
    BLOCK_SIZE, Sandbox, content, document, ended, expect_error, expect_failure, killed, mentions,
    text, wait_for_log,
};

const BLOCKS: usize = 32;

/// Write-read validation of two and a half passes over a target with `fault`. Returns target and initiator.
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

const BACKED_BLOCKS: usize = 96;

/// Flags of a target with its blocks in this file.
fn backed(file: &Path) -> [&str; 4] {
    ["--backing-file", text(file), "--block-count", "96"]
}

/// Writes the content through a service, or reads and compares it.
fn validate(sandbox: &Sandbox, port: u16, strategy: &str, plain: &Path) {
    let service = sandbox.service(port, &[]);
    let operations = BACKED_BLOCKS.to_string();
    document(sandbox.initiator(
        strategy,
        &[
            "--storage-plain-content",
            text(plain),
            "--run-limit-operation-count",
            &operations,
        ],
    ));
    document(service);
}

#[test]
fn acknowledged_writes_survive_kill_9_and_clean_stops() {
    let sandbox = Sandbox::new();
    let (file, plain) = (
        sandbox.path("blocks"),
        sandbox.file("content", &content(BACKED_BLOCKS)),
    );
    let forever = ["--sessions", "forever"];
    let arguments = [&backed(&file)[..], &forever].concat();

    let (target, port) = sandbox.target(&arguments);
    validate(&sandbox, port, "read_write_data_validity_test", &plain);
    killed(target);

    let (target, port) = sandbox.target(&arguments);
    validate(&sandbox, port, "read_only_data_validity_test", &plain);
    target.signal(Signal::TERM);
    wait_for_log(&target, LogEvent::BlocksDurable, 1);
    ended(target, 0);

    // The end of the only session is a clean shutdown, too.
    let (target, port) = sandbox.target(&backed(&file));
    validate(&sandbox, port, "read_only_data_validity_test", &plain);
    wait_for_log(&target, LogEvent::BlocksDurable, 1);
    document(target);
}

/// Stops an idle target, which must exit with success.
#[test]
fn writes_in_flight_at_kill_9_damage_no_other_blocks() {
    let sandbox = Sandbox::new();
    let (file, plain) = (
        sandbox.path("blocks"),
        sandbox.file("content", &content(BACKED_BLOCKS)),
    );
    let (target, port) = sandbox.target(&backed(&file));
    let service = sandbox.service(port, &[]);
    // Writes the same content repeatedly: at any time, each block is stored, or is being written with the same data.
    let initiator = sandbox.busy_initiator(&["--storage-plain-content", text(&plain)]);
    killed(target);
    expect_failure(initiator);
    expect_failure(service);
    let (target, port) = sandbox.target(&backed(&file));
    validate(&sandbox, port, "read_only_data_validity_test", &plain);
    document(target);
}

#[test]
fn initial_content_is_loaded_into_a_new_file_only() {
    let sandbox = Sandbox::new();
    let (file, plain) = (
        sandbox.path("blocks"),
        sandbox.file("content", &content(BACKED_BLOCKS)),
    );
    let arguments = [&backed(&file)[..], &["--binary-content", text(&plain)]].concat();
    let (target, port) = sandbox.target(&arguments);
    validate(&sandbox, port, "read_only_data_validity_test", &plain);
    document(target);
    let other = sandbox.file("other", &content(BACKED_BLOCKS + 1)[BLOCK_SIZE..]);
    let (target, port) = sandbox.target(&arguments);
    validate(&sandbox, port, "read_write_data_validity_test", &other);
    document(target);
    let (target, port) = sandbox.target(&arguments);
    validate(&sandbox, port, "read_only_data_validity_test", &other);
    document(target);
}

#[test]
fn file_of_another_format_is_refused() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("blocks");
    let start = |arguments: &[&str]| {
        let base = [
            "target",
            "-d",
            "3b:00.0",
            "--cpu",
            "0",
            "--listen-port",
            "0",
        ];
        sandbox.spawn("target", &[&base[..], arguments].concat())
    };
    let (first, _) = sandbox.target(&backed(&file));
    expect_error(start(&backed(&file)), ErrorCode::IN_USE);
    killed(first);

    // Without --block-count, 128 blocks are expected.
    let start_default = start(&["--backing-file", text(&file)]);
    let stderr = expect_error(start_default, ErrorCode::INVALID_VALUE);
    mentions(&stderr, &["128", "96", "4096", "--block-count"]);
    let letter = sandbox.file(
        "letter",
        b"a letter that is longer than any header could be, by a word",
    );
    let stderr = expect_failure(start(&["--backing-file", text(&letter)]));
    assert!(stderr.contains("magic"), "{stderr}");
}

#[test]
fn flushes_pass_from_the_initiator_to_the_file() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("blocks");
    let (target, port) = sandbox.target(&backed(&file));
    let service = sandbox.service(port, &[]);
    let arguments = [
        "--run-limit-operation-count",
        "300",
        "--flush-every",
        "7",
        "--transaction-count",
        "8",
    ];
    let report = document(sandbox.initiator("read_write_data_validity_test", &arguments));
    assert_eq!(report["operation_count"], 300);
    assert_eq!(report["flush_count"], 42);
    assert!(report["flush_latency_us"]["p50"].as_f64() > Some(0.0));
    let served = document(service)["operation_count"].clone();
    assert_eq!(served, 642, "writes, reads and flushes");
    assert_eq!(document(target)["operation_count"], 642);
}

#[test]
fn initiator_with_flushes_refuses_a_storage_without_flush() {
    let sandbox = Sandbox::new();
    let (_target, port) = sandbox.target(&["--block-count", "96"]);
    let _service = sandbox.service(port, &[]);
    let arguments = ["--run-limit-operation-count", "10", "--flush-every", "1"];
    let initiator = sandbox.initiator("write_throughput_test", &arguments);
    let stderr = expect_error(initiator, ErrorCode::NOT_SUPPORTED);
    mentions(&stderr, &["--backing-file", "--flush-every"]);
}
