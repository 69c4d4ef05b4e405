//! Blocks that persist after their target has exited.

use std::path::Path;

use crate::support::{
    BLOCK_SIZE, Sandbox, content, default_deadline, document, expect_failure, text, wait_for_log,
};
use ::deployment::process::{Process, Signal};

const BLOCKS: usize = 96;

/// Flags of a target with its blocks in this file.
fn backed(file: &Path) -> [&str; 4] {
    ["--backing-file", text(file), "--block-count", "96"]
}

/// Writes the content through a service, or reads and compares it.
fn validate(sandbox: &Sandbox, port: u16, strategy: &str, plain: &Path) {
    let service = sandbox.service(port, &[]);
    let operations = BLOCKS.to_string();
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

fn killed(mut target: Process) {
    target.signal(Signal::KILL);
    assert!(target.wait(default_deadline()).is_some(), "killed");
}

#[test]
fn acknowledged_writes_survive_kill_9_and_clean_stops() {
    let sandbox = Sandbox::new();
    let (file, plain) = (
        sandbox.path("blocks"),
        sandbox.file("content", &content(BLOCKS)),
    );
    let forever = ["--sessions", "forever"];
    let arguments = [&backed(&file)[..], &forever].concat();

    let (target, port) = sandbox.target(&arguments);
    validate(&sandbox, port, "read_write_data_validity_test", &plain);
    killed(target);

    let (target, port) = sandbox.target(&arguments);
    validate(&sandbox, port, "read_only_data_validity_test", &plain);
    target.signal(Signal::TERM);
    wait_for_log(&target, "all blocks are on the disk", 1);
    document_of_nothing(target);

    // The end of the only session is a clean shutdown, too.
    let (target, port) = sandbox.target(&backed(&file));
    validate(&sandbox, port, "read_only_data_validity_test", &plain);
    wait_for_log(&target, "all blocks are on the disk", 1);
    document(target);
}

/// Stops an idle target, which must exit with success.
fn document_of_nothing(mut target: Process) {
    let status = target.wait(default_deadline()).expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", target.stderr());
}

#[test]
fn writes_in_flight_at_kill_9_damage_no_other_blocks() {
    let sandbox = Sandbox::new();
    let (file, plain) = (
        sandbox.path("blocks"),
        sandbox.file("content", &content(BLOCKS)),
    );
    let (target, port) = sandbox.target(&backed(&file));
    let service = sandbox.service(port, &[]);
    // Writes the same content repeatedly: at any time, each block is stored, or is being written with the same data.
    let arguments = [
        "--storage-plain-content",
        text(&plain),
        "--run-limit-operation-count",
        "2000000000",
        "--progress",
        "always",
    ];
    let mut initiator = sandbox.initiator("read_write_data_validity_test", &arguments);
    initiator
        .wait_for("shown progress", crate::support::TIMEOUT, |line| {
            line.contains("per second").then_some(())
        })
        .expect("the run is under way");
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
        sandbox.file("content", &content(BLOCKS)),
    );
    let arguments = [&backed(&file)[..], &["--binary-content", text(&plain)]].concat();
    let (target, port) = sandbox.target(&arguments);
    validate(&sandbox, port, "read_only_data_validity_test", &plain);
    document(target);
    let other = sandbox.file("other", &content(BLOCKS + 1)[BLOCK_SIZE..]);
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
    let stderr = expect_failure(start(&backed(&file)));
    assert!(stderr.contains("another target uses it"), "{stderr}");
    killed(first);

    let stderr = expect_failure(start(&["--backing-file", text(&file)]));
    for part in [
        "expected 128 blocks of 4096 bytes",
        "found 96 blocks of 4096 bytes",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
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
    let stderr = expect_failure(sandbox.initiator("write_throughput_test", &arguments));
    assert!(stderr.contains("does not announce flush"), "{stderr}");
    assert!(stderr.contains("--backing-file"), "{stderr}");
}
