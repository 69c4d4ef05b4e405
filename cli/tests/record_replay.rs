//! A live session is recorded from between service and target, shown, and played again against others.

mod support;

use std::path::Path;
use std::process::Output;
use std::sync::OnceLock;

use conformance::process::{Process, Signal};
use conformance::transcript::{Entry, Event, Transcript, Writer};
use serde_json::Value;
use support::{Bench, PATIENCE, document, listening_port, soon, text};
use wire::control::Payload;

/// What the target and the initiator of all sessions here are started with.
const TARGET: [&str; 2] = ["--block-count", "16"];
const INITIATOR: [&str; 4] = [
    "--run-limit-operation-count",
    "32",
    "--transaction-count",
    "4",
];

fn conformance(bench: &Bench, arguments: &[&str]) -> Output {
    bench
        .command(&[&["conformance"], arguments].concat())
        .output()
        .expect("the program runs")
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A recorder that listens, and its port.
fn recorder(bench: &Bench, to: &str, output: &Path, arguments: &[&str]) -> (Process, u16) {
    let base = [
        "conformance",
        "record",
        "--listen",
        "0",
        "--to",
        to,
        "--output",
        text(output),
    ];
    let mut recorder = bench.spawn("recorder", &[&base[..], arguments].concat());
    let port = recorder
        .wait_for("was listening", PATIENCE, listening_port)
        .expect("the recorder listens");
    (recorder, port)
}

/// The transcript of a whole session, as a file's bytes; the session is run once for all tests.
fn recorded() -> &'static [u8] {
    static RECORDED: OnceLock<Vec<u8>> = OnceLock::new();
    RECORDED.get_or_init(|| {
        let bench = Bench::new();
        let file = bench.path("session.transcript");
        let (target, port) = bench.target(&TARGET);
        let to = format!("127.0.0.1:{port}");
        let (recorder, port) = recorder(&bench, &to, &file, &["--sessions", "1"]);
        let service = bench.service(port, &[]);
        let initiator = bench.initiator("read_write_data_validity_test", &INITIATOR);
        assert_eq!(document(initiator)["operation_count"], 32);
        document(service);
        document(target);
        recorder
            .finish(soon(), || false)
            .expect("the recorder ends with the session");
        std::fs::read(&file).expect("the transcript")
    })
}

/// The same transcript with some entries changed.
fn altered(bench: &Bench, name: &str, change: impl Fn(&mut Entry)) -> std::path::PathBuf {
    let mut transcript = Transcript::from_reader(recorded()).expect("a transcript");
    transcript.entries.iter_mut().for_each(change);
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, &transcript.header).expect("memory");
    for entry in &transcript.entries {
        writer.write(entry).expect("memory");
    }
    bench.file(name, &file)
}

/// Plays a transcript against a fresh target; the report.
fn replayed(bench: &Bench, transcript: &Path) -> (Option<i32>, Value) {
    let output = conformance(
        bench,
        &[
            &[
                "replay",
                text(transcript),
                "--json",
                "--timeout",
                "20",
                "--bin",
                env!("CARGO_BIN_EXE_doca-storage"),
                "--",
                "-d",
                "3b:00.0",
                "--cpu",
                "0",
            ],
            &TARGET[..],
        ]
        .concat(),
    );
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("a report: {}", utf8(&output.stderr)));
    (output.status.code(), report)
}

fn failures(report: &Value) -> Vec<String> {
    let cases = report["cases"].as_array().expect("cases");
    let failed = cases.iter().filter(|case| case["result"] == "failed");
    failed
        .map(|case| format!("{}: {}", case["name"], case["reason"]))
        .collect()
}

#[test]
fn a_session_is_shown_message_by_message() {
    let bench = Bench::new();
    let file = bench.file("session.transcript", recorded());
    let shown = utf8(&conformance(&bench, &["show", text(&file), "--hex"]).stdout);
    for expected in [
        "query_storage_request",
        "service → target",
        "service ← target",
        "total_size 65536",
        "transaction_count 8",
        "role io_control",
        "shutdown_response",
        "end of the recording",
        // The first frame: its length, type 1, ids.
        "00000000  00 00 00 0c 00 00 00 01",
    ] {
        assert!(shown.contains(expected), "{expected} in {shown}");
    }
    let json = conformance(&bench, &["show", text(&file), "--json"]).stdout;
    let json: Value = serde_json::from_slice(&json).expect("a document");
    assert_eq!(json["whole"], true);
    let first = &json["entries"][1];
    assert_eq!(first["from"], "client");
    assert_eq!(
        first["content"]["message"]["payload"],
        "query_storage_request"
    );
}

#[test]
fn a_fresh_target_answers_as_the_recorded_one_did() {
    let bench = Bench::new();
    let file = bench.file("session.transcript", recorded());
    let (status, report) = replayed(&bench, &file);
    assert_eq!(failures(&report), Vec::<String>::new());
    assert_eq!(status, Some(0));
    // Seven answers, the end of the connection, and that of the process.
    assert_eq!(report["cases"].as_array().expect("cases").len(), 9);
}

#[test]
fn an_answer_that_differs_fails_and_is_named() {
    let bench = Bench::new();
    let file = altered(&bench, "altered.transcript", |entry| {
        if let Event::Frame(frame) = &mut entry.event
            && let Payload::QueryStorageResponse(details) = &mut frame.message.payload
        {
            details.total_size += 1;
        }
    });
    let (status, report) = replayed(&bench, &file);
    let failures = failures(&report);
    let expected = "total_size: expected 65537, 65536 came";
    assert!(
        matches!(&failures[..], [only] if only.contains(expected) && only.contains("entry 2")),
        "{failures:?}"
    );
    assert_eq!(status, Some(1));
}

#[test]
fn a_fresh_service_asks_as_the_recorded_one_did() {
    let bench = Bench::new();
    let file = bench.file("session.transcript", recorded());
    let mut replay = bench.spawn(
        "replay",
        &[
            "conformance",
            "replay",
            text(&file),
            "--against",
            "service",
            "--timeout",
            "20",
            "--json",
        ],
    );
    let port = replay
        .wait_for("was listening", PATIENCE, listening_port)
        .expect("the replay listens");
    let service = bench.service(port, &[]);
    let initiator = bench.initiator("read_write_data_validity_test", &INITIATOR);
    let report = document(replay);
    assert_eq!(failures(&report), Vec::<String>::new());
    assert_eq!(document(initiator)["operation_count"], 32);
    document(service);
}

#[test]
fn a_cut_file_is_told_and_not_replayed() {
    let bench = Bench::new();
    let cut = &recorded()[..recorded().len() * 2 / 3];
    let file = bench.file("cut.transcript", cut);
    let shown = conformance(&bench, &["show", text(&file)]);
    assert!(shown.status.success());
    assert!(utf8(&shown.stdout).contains("query_storage_request"));
    let note = utf8(&shown.stderr);
    assert!(note.contains("truncated: entry"), "{note}");
    let replayed = conformance(&bench, &["replay", text(&file), "--to", "127.0.0.1:1"]);
    let error = utf8(&replayed.stderr);
    assert_eq!(replayed.status.code(), Some(1));
    assert!(
        error.contains("expected a whole transcript") && error.contains("truncated: entry"),
        "{error}"
    );
}

#[test]
fn an_interrupted_recorder_leaves_a_whole_file() {
    let bench = Bench::new();
    let file = bench.path("nothing.transcript");
    let (recorder, _) = recorder(&bench, "127.0.0.1:1", &file, &[]);
    recorder.signal(Signal::INT);
    recorder
        .finish(soon(), || false)
        .expect("Ctrl-C is how a recording ends");
    assert!(Transcript::read(&file).expect("a transcript").is_whole());
}
