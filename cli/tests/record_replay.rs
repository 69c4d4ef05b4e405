//! A live session between service and target is recorded, shown, and replayed against other programs.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::sync::OnceLock;

use crate::support::{PROGRAM, Sandbox, TIMEOUT, default_deadline, document, mentions, text};
use conformance::transcript::{Entry, Event, Side, Transcript, Writer};
use deployment::log::listening_port;
use deployment::process::{Process, Signal};
use serde_json::Value;
use wire::control::{InitStorage, Message, Payload};

/// Common flags of the target and the initiator.
const TARGET: [&str; 2] = ["--block-count", "16"];
const INITIATOR: [&str; 4] = [
    "--run-limit-operation-count",
    "32",
    "--transaction-count",
    "4",
];

fn conformance(sandbox: &Sandbox, arguments: &[&str]) -> Output {
    sandbox
        .command(&[&["conformance"], arguments].concat())
        .output()
        .expect("the program runs")
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Starts a recorder, and returns it with its port.
fn recorder(sandbox: &Sandbox, to: &str, output: &Path, arguments: &[&str]) -> (Process, u16) {
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
    let mut recorder = sandbox.spawn("recorder", &[&base[..], arguments].concat());
    let port = recorder
        .wait_for("was listening", TIMEOUT, listening_port)
        .expect("the recorder listens");
    (recorder, port)
}

/// Transcript of a complete session as bytes; the session is run once for all tests.
fn recorded() -> &'static [u8] {
    static RECORDED: OnceLock<Vec<u8>> = OnceLock::new();
    RECORDED.get_or_init(|| {
        let sandbox = Sandbox::new();
        let file = sandbox.path("session.transcript");
        let (target, port) = sandbox.target(&TARGET);
        let to = format!("127.0.0.1:{port}");
        let (recorder, port) = recorder(&sandbox, &to, &file, &["--sessions", "1"]);
        let service = sandbox.service(port, &[]);
        let initiator = sandbox.initiator("read_write_data_validity_test", &INITIATOR);
        assert_eq!(document(initiator)["operation_count"], 32);
        document(service);
        document(target);
        recorder
            .finish(default_deadline(), || false)
            .expect("the recorder ends with the session");
        std::fs::read(&file).expect("the transcript")
    })
}

/// The transcript with changed entries.
fn altered(sandbox: &Sandbox, name: &str, change: impl Fn(&mut Entry)) -> std::path::PathBuf {
    let mut transcript = Transcript::from_reader(recorded()).expect("a transcript");
    transcript.entries.iter_mut().for_each(change);
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, &transcript.header).expect("memory");
    for entry in &transcript.entries {
        writer.write(entry).expect("memory");
    }
    sandbox.file(name, &file)
}

/// Replays a transcript against a new target; returns exit code and report.
fn replayed(sandbox: &Sandbox, transcript: &Path) -> (Option<i32>, Value) {
    replayed_with(sandbox, &[text(transcript)], &TARGET)
}

fn replayed_with(sandbox: &Sandbox, arguments: &[&str], target: &[&str]) -> (Option<i32>, Value) {
    let output = conformance(
        sandbox,
        &[
            &["replay", "--json", "--timeout", "20"],
            arguments,
            &["--bin", PROGRAM, "--"],
            &["-d", "3b:00.0", "--cpu", "0"],
            target,
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
    let sandbox = Sandbox::new();
    let file = sandbox.file("session.transcript", recorded());
    let shown = utf8(&conformance(&sandbox, &["show", text(&file), "--hex"]).stdout);
    for expected in [
        "query_storage_request",
        "service → target",
        "service ← target",
        "total_size 65536",
        "transaction_count 8",
        "io_control",
        "shutdown_response",
        // The first frame: length, type 1, ids.
        "00000000  00 00 00 0c 00 00 00 01",
    ] {
        assert!(shown.contains(expected), "{expected} in {shown}");
    }
    let json = conformance(&sandbox, &["show", text(&file), "--json"]).stdout;
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
fn fresh_target_answers_as_recorded() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("session.transcript", recorded());
    let (status, report) = replayed(&sandbox, &file);
    assert_eq!(failures(&report), Vec::<String>::new());
    assert_eq!(status, Some(0));
    // Seven answers, the end of the connection, and the exit of the process.
    assert_eq!(report["cases"].as_array().expect("cases").len(), 9);
}

#[test]
fn differing_answer_fails_and_is_reported() {
    let sandbox = Sandbox::new();
    let file = altered(&sandbox, "altered.transcript", |entry| {
        if let Event::Frame(frame) = &mut entry.event
            && let Payload::QueryStorageResponse(details) = &mut frame.message.payload
        {
            details.total_size += 1;
        }
    });
    let (status, report) = replayed(&sandbox, &file);
    let failures = failures(&report);
    let expected = "total_size: expected 65537, got 65536";
    assert!(
        matches!(&failures[..], [only] if only.contains(expected) && only.contains("entry 2")),
        "{failures:?}"
    );
    assert_eq!(status, Some(1));
}

#[test]
fn fresh_service_asks_as_recorded() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("session.transcript", recorded());
    let mut replay = sandbox.spawn(
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
        .wait_for("was listening", TIMEOUT, listening_port)
        .expect("the replay listens");
    let service = sandbox.service(port, &[]);
    let initiator = sandbox.initiator("read_write_data_validity_test", &INITIATOR);
    let report = document(replay);
    assert_eq!(failures(&report), Vec::<String>::new());
    assert_eq!(document(initiator)["operation_count"], 32);
    document(service);
}

/// Path of a recording that is committed to the repository.
fn kept(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../conformance/transcripts/{name}.transcript"))
}

#[test]
fn own_target_answers_as_the_reference() {
    let sandbox = Sandbox::new();
    let gga = ["--block-count", "16", "--block-size", "2048"];
    for (name, channel, target) in [
        ("zero_copy", "0", &TARGET[..]),
        ("zero_copy_reference", "0", &TARGET[..]),
        ("gga_offload_reference", "0", &gga[..]),
        ("gga_offload_reference", "2", &gga[..]),
    ] {
        let path = kept(name);
        let (status, report) =
            replayed_with(&sandbox, &[text(&path), "--channel", channel], target);
        assert_eq!(failures(&report), Vec::<String>::new(), "{name}");
        assert_eq!(status, Some(0), "{name}");
    }
}

#[test]
fn own_gga_service_asks_as_the_reference() {
    let sandbox = Sandbox::new();
    let content = contents::text(1, 65536);
    let files = sandbox.generate("plain", &content, &[]);
    let [data_1, data_2, data_p] = files.each_ref().map(|path| text(path));
    let transcript = kept("gga_offload_reference");
    let arguments = [
        "conformance",
        "replay",
        text(&transcript),
        "--against",
        "service",
        "--timeout",
        "20",
        "--json",
        "--content",
        data_1,
        "--content",
        data_2,
        "--content",
        data_p,
    ];
    let mut replay = sandbox.spawn("replay", &arguments);
    let ports = ["0", "1", "2"].map(|channel| {
        let own = |line: &str| {
            line.starts_with(&format!("channel {channel}:"))
                .then(|| listening_port(line))?
        };
        replay
            .wait_for("was listening", TIMEOUT, own)
            .expect("the replay listens")
    });
    let service = sandbox.gga_service(ports, 1, &[]);
    let arguments = ["--transaction-count", "4"];
    let initiator = sandbox.gga_initiator(
        "read_only_data_validity_test",
        &sandbox.path("plain"),
        16,
        1,
        &arguments,
    );
    let report = document(replay);
    assert_eq!(failures(&report), Vec::<String>::new());
    assert_eq!(report["cases"].as_array().expect("cases").len(), 3 * 8);
    // The initiator has read the contents of the replayed targets.
    assert_eq!(document(initiator)["operation_count"], 16);
    document(service);
}

/// A message that no service sends: the target refuses it, and disconnects a client that sends malformed bytes.
#[test]
fn refusals_and_garbage_are_recorded_and_replayed_unchanged() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("wrong.transcript");
    let (target, port) = sandbox.target(&TARGET);
    let to = format!("127.0.0.1:{port}");
    let (recorder, port) = recorder(&sandbox, &to, &file, &["--sessions", "1"]);
    let message = |message_id, payload| {
        let message = Message {
            message_id,
            correlation_id: 40,
            payload,
        };
        message.encode_to_vec()
    };
    let bad_init = Payload::InitStorageRequest(InitStorage {
        transaction_count: 4,
        core_count: 1,
        mmap_export_blob: b"not an export".as_slice().into(),
    });
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("the recorder");
    let mut answer = [0; 4096];
    for request in [
        message(6, Payload::StartStorageRequest),
        message(7, Payload::QueryStorageRequest),
        message(8, bad_init),
        // A length that no frame has.
        b"\xff\xff\xff\xffgarbage".to_vec(),
    ] {
        client.write_all(&request).expect("the target listens");
        // Reads an answer, at the end that of the connection's close.
        let _ = client.read(&mut answer).expect("an answer");
    }
    drop(client);
    recorder
        .finish(default_deadline(), || false)
        .expect("the recorder ends with the session");
    drop(target);

    let transcript = Transcript::read(&file).expect("a transcript");
    let came: Vec<_> = transcript
        .entries
        .iter()
        .map(|entry| (entry.from, entry.event.clone()))
        .collect();
    let garbage = Event::Raw(b"\xff\xff\xff\xffgarbage".as_slice().into());
    assert!(came.contains(&(Some(Side::Client), garbage)), "{came:?}");
    let refused = came.iter().filter(|(_, event)| match event {
        Event::Frame(frame) => matches!(frame.message.payload, Payload::ErrorResponse(_)),
        _ => false,
    });
    assert!(refused.count() >= 2, "{came:?}");

    let (status, report) = replayed(&sandbox, &file);
    assert_eq!(failures(&report), Vec::<String>::new());
    assert_eq!(status, Some(0));
}

#[test]
fn truncated_recording_is_reported_and_not_replayed() {
    let sandbox = Sandbox::new();
    let cut = &recorded()[..recorded().len() * 2 / 3];
    let file = sandbox.file("cut.transcript", cut);
    let shown = conformance(&sandbox, &["show", text(&file)]);
    assert!(shown.status.success());
    assert!(utf8(&shown.stdout).contains("query_storage_request"));
    let note = utf8(&shown.stderr);
    assert!(note.contains("truncated: entry"), "{note}");
    let replayed = conformance(&sandbox, &["replay", text(&file), "--to", "127.0.0.1:1"]);
    let error = utf8(&replayed.stderr);
    assert_eq!(replayed.status.code(), Some(1));
    // As in `show`: the file, and the entry at which it is cut off.
    let cut = note.split_once("truncated: ").expect("a position").1;
    assert!(error.contains(cut.trim_end()), "{error}");
}

#[test]
fn interrupted_recorder_ends_the_session_and_completes_the_file() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("cut_short.transcript");
    let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let to = server.local_addr().expect("an address").to_string();
    let (recorder, port) = recorder(&sandbox, &to, &file, &[]);
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("the recorder");
    client.write_all(b"he").expect("the recorder listens");
    let (mut served, _) = server.accept().expect("the recorder connects");
    served.read_exact(&mut [0; 2]).expect("passed on");
    recorder.signal(Signal::INT);
    recorder
        .finish(default_deadline(), || false)
        .expect("Ctrl-C is how a recording ends");
    for mut side in [client, served] {
        assert_eq!(side.read(&mut [0]).expect("an orderly end"), 0);
    }
    let transcript = Transcript::read(&file).expect("a transcript");
    assert!(transcript.is_whole());
    let raw = Event::Raw(b"he".as_slice().into());
    assert!(transcript.entries.iter().any(|entry| entry.event == raw));
}

#[test]
fn missing_target_is_a_failure() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("session.transcript", recorded());
    let replayed = conformance(
        &sandbox,
        &["replay", text(&file), "--to", "127.0.0.1:1", "--json"],
    );
    assert_eq!(replayed.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&replayed.stdout).expect("a report");
    let cases = report["cases"].as_array().expect("cases");
    assert_eq!(cases[0]["name"], "connect");
    mentions(&failures(&report)[0], &["127.0.0.1:1"]);
    assert!(cases[1..].iter().all(|case| case["result"] == "not_run"));
}

#[test]
fn session_timeout_limits_the_wait_for_a_service_and_its_initiator() {
    let sandbox = Sandbox::new();
    let transcript = kept("zero_copy");
    let replay = |limit: &str| {
        sandbox.spawn(
            "replay",
            &[
                "conformance",
                "replay",
                text(&transcript),
                "--against",
                "service",
                "--session-timeout",
                limit,
                "--json",
            ],
        )
    };
    let report = |mut process: Process| -> Value {
        process.wait(default_deadline());
        let exit = process.into_exit();
        let code = exit.status.and_then(|status| status.code());
        assert_eq!(code, Some(1), "{exit:?}");
        serde_json::from_str(&exit.stdout).expect("a report")
    };
    // No service is running.
    let first = &failures(&report(replay("1s")))[0];
    assert!(first.starts_with("\"connect\""), "{first}");
    // A service without an initiator.
    let mut waiting = replay("3s");
    let port = waiting
        .wait_for("was listening", TIMEOUT, listening_port)
        .expect("the replay listens");
    let service = sandbox.starting_service(port, &[]);
    let first = &failures(&report(waiting))[0];
    assert!(first.contains("query_storage_request"), "{first}");
    drop(service);
}
