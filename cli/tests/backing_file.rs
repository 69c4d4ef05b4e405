//! Blocks that persist after their target has exited.

use std::path::Path;

use crate::support::{BLOCK_SIZE, Bench, complaint, content, document, said, soon, text};
use ::deployment::process::{Process, Signal};

const BLOCKS: usize = 96;

/// Flags of a target with its blocks in this file.
fn backed(file: &Path) -> [&str; 4] {
    ["--backing-file", text(file), "--block-count", "96"]
}

/// Writes the content through a service, or reads and compares it.
fn validate(bench: &Bench, port: u16, strategy: &str, plain: &Path) {
    let service = bench.service(port, &[]);
    let operations = BLOCKS.to_string();
    document(bench.initiator(
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
    assert!(target.wait(soon()).is_some(), "killed");
}

#[test]
fn acknowledged_writes_survive_kill_9_and_clean_stops() {
    let bench = Bench::new();
    let (file, plain) = (
        bench.path("blocks"),
        bench.file("content", &content(BLOCKS)),
    );
    let forever = ["--sessions", "forever"];
    let arguments = [&backed(&file)[..], &forever].concat();

    let (target, port) = bench.target(&arguments);
    validate(&bench, port, "read_write_data_validity_test", &plain);
    killed(target);

    let (target, port) = bench.target(&arguments);
    validate(&bench, port, "read_only_data_validity_test", &plain);
    target.signal(Signal::TERM);
    said(&target, "all blocks are on the disk", 1);
    document_of_nothing(target);

    // The end of the only session is a clean shutdown, too.
    let (target, port) = bench.target(&backed(&file));
    validate(&bench, port, "read_only_data_validity_test", &plain);
    said(&target, "all blocks are on the disk", 1);
    document(target);
}

/// Stops an idle target, which must exit with success.
fn document_of_nothing(mut target: Process) {
    let status = target.wait(soon()).expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", target.stderr());
}

#[test]
fn writes_in_flight_at_kill_9_damage_no_other_blocks() {
    let bench = Bench::new();
    let (file, plain) = (
        bench.path("blocks"),
        bench.file("content", &content(BLOCKS)),
    );
    let (target, port) = bench.target(&backed(&file));
    let service = bench.service(port, &[]);
    // Writes the same content repeatedly: at any time, each block is stored, or is being written with the same data.
    let arguments = [
        "--storage-plain-content",
        text(&plain),
        "--run-limit-operation-count",
        "2000000000",
        "--progress",
        "always",
    ];
    let mut initiator = bench.initiator("read_write_data_validity_test", &arguments);
    initiator
        .wait_for("shown progress", crate::support::PATIENCE, |line| {
            line.contains("per second").then_some(())
        })
        .expect("the run is under way");
    killed(target);
    complaint(initiator);
    complaint(service);
    let (target, port) = bench.target(&backed(&file));
    validate(&bench, port, "read_only_data_validity_test", &plain);
    document(target);
}

#[test]
fn initial_content_is_loaded_into_a_new_file_only() {
    let bench = Bench::new();
    let (file, plain) = (
        bench.path("blocks"),
        bench.file("content", &content(BLOCKS)),
    );
    let arguments = [&backed(&file)[..], &["--binary-content", text(&plain)]].concat();
    let (target, port) = bench.target(&arguments);
    validate(&bench, port, "read_only_data_validity_test", &plain);
    document(target);
    let other = bench.file("other", &content(BLOCKS + 1)[BLOCK_SIZE..]);
    let (target, port) = bench.target(&arguments);
    validate(&bench, port, "read_write_data_validity_test", &other);
    document(target);
    let (target, port) = bench.target(&arguments);
    validate(&bench, port, "read_only_data_validity_test", &other);
    document(target);
}

#[test]
fn file_of_another_format_is_refused() {
    let bench = Bench::new();
    let file = bench.path("blocks");
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
        bench.spawn("target", &[&base[..], arguments].concat())
    };
    let (first, _) = bench.target(&backed(&file));
    let stderr = complaint(start(&backed(&file)));
    assert!(stderr.contains("another target uses it"), "{stderr}");
    killed(first);

    let stderr = complaint(start(&["--backing-file", text(&file)]));
    for part in [
        "expected 128 blocks of 4096 bytes",
        "found 96 blocks of 4096 bytes",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
    let letter = bench.file(
        "letter",
        b"a letter that is longer than any header could be, by a word",
    );
    let stderr = complaint(start(&["--backing-file", text(&letter)]));
    assert!(stderr.contains("magic"), "{stderr}");
}

#[test]
fn flushes_pass_from_the_initiator_to_the_file() {
    let bench = Bench::new();
    let file = bench.path("blocks");
    let (target, port) = bench.target(&backed(&file));
    let service = bench.service(port, &[]);
    let arguments = [
        "--run-limit-operation-count",
        "300",
        "--flush-every",
        "7",
        "--transaction-count",
        "8",
    ];
    let report = document(bench.initiator("read_write_data_validity_test", &arguments));
    assert_eq!(report["operation_count"], 300);
    assert_eq!(report["flush_count"], 42);
    assert!(report["flush_latency_us"]["p50"].as_f64() > Some(0.0));
    let served = document(service)["operation_count"].clone();
    assert_eq!(served, 642, "writes, reads and flushes");
    assert_eq!(document(target)["operation_count"], 642);
}

#[test]
fn initiator_with_flushes_refuses_a_storage_without_flush() {
    let bench = Bench::new();
    let (_target, port) = bench.target(&["--block-count", "96"]);
    let _service = bench.service(port, &[]);
    let arguments = ["--run-limit-operation-count", "10", "--flush-every", "1"];
    let stderr = complaint(bench.initiator("write_throughput_test", &arguments));
    assert!(stderr.contains("does not announce flush"), "{stderr}");
    assert!(stderr.contains("--backing-file"), "{stderr}");
}
