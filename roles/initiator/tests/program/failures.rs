//! Failures and their reports: bounded in time, with exit code 1 and the reason.

use std::io::Write as _;
use std::time::Duration;

use doca::ErrorCode;
use wire::control::{MessageType, StorageDetails};

use crate::support::{Initiator, Io, Script, Service};

fn io(at: u32, io: Io) -> Script {
    Script {
        io: (at, io),
        ..Script::default()
    }
}

#[test]
fn an_io_error_fails_the_test() {
    let service = Service::start(io(37, Io::Fail(ErrorCode::IO_FAILED)));
    let ended = Initiator::start(&service.channel, &[]).end().failed_with(&[
        "Test failed!!",
        "read of 4096 bytes",
        "DOCA_ERROR_IO_FAILED",
    ]);
    assert!(!ended.stdout.contains("| Stats"), "{}", ended.stdout);
    let record = service.record();
    assert_eq!(
        record
            .requests
            .last()
            .map(|request| request.payload.message_type()),
        Some(MessageType::ShutdownRequest)
    );
}

#[test]
fn failures_are_json_too() {
    let service = Service::start(io(5, Io::Fail(ErrorCode::IO_FAILED)));
    let ended = Initiator::start(&service.channel, &["--output", "json"])
        .end()
        .failed_with(&["Test failed!!"]);
    let json: serde_json::Value =
        serde_json::from_str(&ended.stdout).expect("JSON and nothing else");
    assert_eq!(json["result"], "failed");
    assert!(
        json["error"]
            .as_str()
            .is_some_and(|error| error.contains("DOCA_ERROR_IO_FAILED")),
        "{json}"
    );
}

#[test]
fn unanswered_io_times_out() {
    let service = Service::start(io(50, Io::Ignore));
    let ended = Initiator::start(&service.channel, &["--io-timeout", "1"])
        .end()
        .failed_with(&["Test failed!!", "--io-timeout 1 s"]);
    assert!(
        ended.after >= Duration::from_secs(1) && ended.after < Duration::from_secs(20),
        "{:?}",
        ended.after
    );
    service.record();
}

#[test]
fn duplicate_answer_is_an_error() {
    let service = Service::start(io(10, Io::Twice));
    Initiator::start(&service.channel, &["--transaction-count", "4"])
        .end()
        .failed_with(&["fits no request"]);
    service.record();
}

#[test]
fn an_answer_to_another_io_is_an_error() {
    let service = Service::start(io(10, Io::WrongOffset));
    Initiator::start(&service.channel, &[])
        .end()
        .failed_with(&["fits no request", "storage offset"]);
    service.record();
}

#[test]
fn service_that_disconnects_during_the_run_is_an_error() {
    let service = Service::start(io(50, Io::Leave));
    let ended = Initiator::start(
        &service.channel,
        &["--run-limit-operation-count", "100000000"],
    )
    .end()
    .failed_with(&[]);
    assert!(
        ended.after < Duration::from_secs(15),
        "{:?}\n{}",
        ended.after,
        ended.stderr
    );
    service.record();
}

#[test]
fn refusals_name_the_request_and_the_reason() {
    for refused in [
        MessageType::QueryStorageRequest,
        MessageType::InitStorageRequest,
        MessageType::StartStorageRequest,
        MessageType::StopStorageRequest,
        MessageType::ShutdownRequest,
    ] {
        let service = Service::start(Script {
            refuse: Some(refused),
            ..Script::default()
        });
        Initiator::start(&service.channel, &["--control-timeout", "2"])
            .end()
            .failed_with(&[
                &refused.to_string(),
                "the script says no",
                "DOCA_ERROR_NOT_PERMITTED",
            ]);
        assert!(service.record().left, "{refused}");
    }
}

#[test]
fn unanswered_requests_time_out() {
    for (ignored, waits_for) in [
        (MessageType::QueryStorageRequest, "query_storage_response"),
        (MessageType::StartStorageRequest, "start_storage_response"),
        (MessageType::ShutdownRequest, "shutdown_response"),
    ] {
        let service = Service::start(Script {
            ignore: Some(ignored),
            ..Script::default()
        });
        let ended = Initiator::start(&service.channel, &["--control-timeout", "1"])
            .end()
            .failed_with(&[waits_for, "1 s"]);
        assert!(
            ended.after < Duration::from_secs(20),
            "{ignored}: {:?}",
            ended.after
        );
        assert!(service.record().left, "{ignored}");
    }
}

#[test]
fn no_service_is_an_error_after_the_control_timeout() {
    let ended = Initiator::start("initiator-test-nobody", &["--control-timeout", "1"])
        .end()
        .failed_with(&["storage service on Comch \"initiator-test-nobody\""]);
    // The attempts, of which there are several, are announced once and not logged individually.
    assert_eq!(ended.stderr.matches("trying again").count(), 1, "{ended:?}");
    assert!(
        ended.stderr.matches("no server called").count() <= 1,
        "{ended:?}"
    );
    assert!(ended.after < Duration::from_secs(15), "{:?}", ended.after);
}

#[test]
fn mismatched_storage_is_refused_with_the_flag() {
    let details = StorageDetails {
        total_size: 8192,
        block_size: 4096,
    };
    let service = Service::start(Script {
        details,
        ..Script::default()
    });
    Initiator::start(&service.channel, &["--local-io-region-size", "4095"])
        .end()
        .failed_with(&["--local-io-region-size 4095", "4096"]);
    service.record();

    let mut content = tempfile::NamedTempFile::new().expect("a file");
    content.write_all(&[1; 5000]).expect("written");
    let path = content.path().to_str().expect("UTF-8");
    let service = Service::start(Script {
        details: StorageDetails {
            total_size: 8192,
            block_size: 4096,
        },
        ..Script::default()
    });
    let args = [
        "--storage-plain-content",
        path,
        "--execution-strategy",
        "read_only_data_validity_test",
    ];
    Initiator::start(&service.channel, &args)
        .end()
        .failed_with(&["--storage-plain-content", "5000", "8192"]);
    service.record();
}

#[test]
fn storage_that_transfers_nothing_fails_every_validation() {
    let mut content = tempfile::NamedTempFile::new().expect("a file");
    content.write_all(&[0; 64 * 4096]).expect("written");
    let path = content.path().to_str().expect("UTF-8");
    let runs: [&[&str]; 2] = [
        &[
            "--storage-plain-content",
            path,
            "--execution-strategy",
            "read_only_data_validity_test",
        ],
        &[
            "--execution-strategy",
            "read_write_data_validity_test",
            "--seed",
            "5",
        ],
    ];
    for args in runs {
        let service = Service::start(Script::default());
        let ended = Initiator::start(&service.channel, args)
            .end()
            .failed_with(&["First mismatch: block ", "byte offset 0:", "expected 0x"]);
        assert_eq!(
            ended.stderr.contains("| Seed: 5"),
            args.contains(&"--seed"),
            "{}",
            ended.stderr
        );
        service.record();
    }
}

#[test]
fn errors_name_missing_files_and_devices() {
    let args = [
        "--storage-plain-content",
        "/nonexistent/file",
        "--execution-strategy",
        "read_only_data_validity_test",
    ];
    Initiator::start("unused", &args)
        .end()
        .failed_with(&["--storage-plain-content /nonexistent/file"]);
    Initiator::start(
        "unused",
        &["--execution-strategy", "read_only_data_validity_test"],
    )
    .end()
    .refused_with(&["--storage-plain-content"]);
}

#[test]
fn interrupted_run_is_stopped_and_shut_down() {
    let service = Service::start(Script::default());
    let initiator = Initiator::start(
        &service.channel,
        &["--run-limit-operation-count", "4000000000"],
    );
    service.wait_for_ios(1000);
    initiator.interrupt();
    let ended = initiator.end().failed_with(&["interrupted"]);
    assert!(ended.after < Duration::from_secs(20), "{:?}", ended.after);
    let record = service.record();
    let kinds: Vec<_> = record
        .requests
        .iter()
        .map(|request| request.payload.message_type())
        .collect();
    assert_eq!(
        kinds[3..],
        [
            MessageType::StopStorageRequest,
            MessageType::ShutdownRequest
        ]
    );
    assert_eq!(record.consumers[4], 0, "consumers are gone before shutdown");
}

#[test]
fn interrupted_run_with_an_unresponsive_service_ends() {
    let service = Service::start(Script {
        io: (1000, Io::Ignore),
        ..Script::default()
    });
    let args = [
        "--run-limit-operation-count",
        "4000000000",
        "--io-timeout",
        "3",
    ];
    let initiator = Initiator::start(&service.channel, &args);
    service.wait_for_ios(1001);
    initiator.interrupt();
    let ended = initiator.end().failed_with(&["interrupted"]);
    assert!(ended.after < Duration::from_secs(20), "{:?}", ended.after);
    service.record();
}

#[test]
fn interruption_without_a_service_ends_at_once() {
    let initiator = Initiator::start("initiator-test-never", &["--control-timeout", "50"]);
    // Before the handlers are installed, the default action applies, which is bounded, too.
    std::thread::sleep(Duration::from_millis(700));
    initiator.interrupt();
    let ended = initiator.end();
    assert_ne!(ended.code, Some(0));
    assert!(ended.after < Duration::from_secs(15), "{:?}", ended.after);
}

#[test]
fn interruption_during_a_request_ends_within_its_timeout() {
    let service = Service::start(Script {
        ignore: Some(MessageType::InitStorageRequest),
        ..Script::default()
    });
    let initiator = Initiator::start(&service.channel, &["--control-timeout", "4"]);
    std::thread::sleep(Duration::from_millis(1500));
    initiator.interrupt();
    let ended = initiator.end();
    assert_ne!(ended.code, Some(0));
    assert!(ended.after < Duration::from_secs(20), "{:?}", ended.after);
    service.record();
}
