//! Successful runs of the program, and runs that must fail in bounded time, with exit code 1 and the reason.

use std::collections::HashSet;
use std::io::Write as _;
use std::time::Duration;

use doca::ErrorCode;
use wire::control::{MessageType, Payload, StorageDetails};
use wire::io_message::IoMessageType;
use wire::release::Release;

use crate::{Initiator, Io, REFUSAL, Script, Service, usable_cpu};

#[test]
fn a_read_test_passes_and_prints_the_statistics_of_the_reference() {
    let service = Service::start(Script::default());
    let ended = Initiator::start(&service.channel, &["--run-limit-operation-count", "1000"])
        .end()
        .passed();
    let keys: Vec<_> = ended.statistics().map(|(key, _)| key).collect();
    let expected = [
        "Duration (seconds)",
        "Operation count",
        "Data rate",
        "IO rate",
        "PE hit rate",
        "\tMin",
        "\tMax",
        "\tMean",
        "\tp50",
        "\tp99",
        "\tp99.9",
    ];
    assert_eq!(keys, expected, "{}", ended.stdout);
    assert_eq!(ended.statistic("Operation count"), Some("1000"));
    let has_unit = |key, unit| {
        let value = ended.statistic(key);
        value.is_some_and(|value| value.ends_with(unit))
    };
    assert!(has_unit("Data rate", " GiB/s"), "{}", ended.stdout);
    assert!(has_unit("IO rate", " MIOP/s"), "{}", ended.stdout);
    let record = service.record();
    assert_eq!(record.ios.len(), 1000);
    assert!(
        record
            .ios
            .iter()
            .all(|(_, io)| io.message_type == IoMessageType::Read
                && io.size == 4096
                && io.result == 0)
    );
    assert!(record.left);
}

#[test]
fn session_messages_are_those_of_the_reference() {
    let service = Service::start(Script::default());
    Initiator::start(&service.channel, &["--transaction-count", "8"])
        .end()
        .passed();
    let record = service.record();
    let kinds: Vec<_> = record
        .requests
        .iter()
        .map(|request| request.payload.message_type())
        .collect();
    let expected = [
        MessageType::QueryStorageRequest,
        MessageType::InitStorageRequest,
        MessageType::StartStorageRequest,
        MessageType::StopStorageRequest,
        MessageType::ShutdownRequest,
    ];
    assert_eq!(kinds, expected);
    for (at, request) in (0u32..).zip(&record.requests) {
        assert_eq!((request.message_id, request.correlation_id), (at, at));
    }
    let Payload::InitStorageRequest(init) = &record.requests[1].payload else {
        panic!("{kinds:?}")
    };
    assert_eq!((init.transaction_count, init.core_count), (8, 1));
    assert!(!init.mmap_export_blob.is_empty());
    assert_eq!(
        record.consumers,
        [0, 0, 1, 1, 0],
        "the initiator's consumers are gone before it sends shutdown"
    );
}

#[test]
fn json_is_one_document_on_standard_output() {
    let service = Service::start(Script::default());
    let args = [
        "--output",
        "json",
        "--execution-strategy",
        "write_throughput_test",
    ];
    let ended = Initiator::start(&service.channel, &args).end().passed();
    let json: serde_json::Value =
        serde_json::from_str(&ended.stdout).expect("JSON and nothing else");
    assert_eq!(json["result"], "passed");
    assert_eq!(json["execution_strategy"], "write_throughput_test");
    assert_eq!(json["operation_count"], 100);
    assert_eq!(json["bytes"], 100 * 4096);
    let record = service.record();
    assert!(
        record
            .ios
            .iter()
            .all(|(_, io)| io.message_type == IoMessageType::Write)
    );
}

#[test]
fn two_workers_share_the_storage() {
    let details = StorageDetails {
        total_size: 63 * 512,
        block_size: 512,
    };
    let service = Service::start(Script {
        details,
        ..Script::default()
    });
    // Both roles run on one CPU, for machines with a single CPU.
    let cpu = usable_cpu();
    let args = [
        "--cpu",
        &cpu,
        "--cpu",
        &cpu,
        "--run-limit-operation-count",
        "64",
        "--transaction-count",
        "4",
    ];
    let ended = Initiator::start(&service.channel, &args).end().passed();
    assert_eq!(ended.statistic("Operation count"), Some("128"));
    let record = service.record();
    for (worker, range) in [(0, 0..32 * 512), (1, 32 * 512..63 * 512)] {
        let offsets: HashSet<u64> = record
            .ios
            .iter()
            .filter(|(index, _)| *index == worker)
            .map(|(_, io)| io.storage_offset)
            .collect();
        let expected: HashSet<u64> = range.step_by(512).collect();
        assert_eq!(offsets, expected, "worker {worker}");
    }
}

#[test]
fn small_local_region_and_several_blocks_per_io_visit_every_block() {
    let details = StorageDetails {
        total_size: 50 * 512,
        block_size: 512,
    };
    let service = Service::start(Script {
        details,
        ..Script::default()
    });
    let args = [
        "--blocks-per-io",
        "4",
        "--local-io-region-size",
        "8192",
        "--run-limit-operation-count",
        "26",
    ];
    Initiator::start(&service.channel, &args).end().passed();
    let record = service.record();
    let mut visited = vec![0; 50];
    for (_, io) in &record.ios {
        assert!(io.requester_offset + u64::from(io.size) <= 8192);
        for block in io.storage_offset / 512..(io.storage_offset + u64::from(io.size)) / 512 {
            visited[block as usize] += 1;
        }
    }
    assert!(visited.iter().all(|count| *count == 2), "{visited:?}");
}

#[test]
fn progress_is_shown_if_requested() {
    let slow = || {
        Service::start(Script {
            io: (50, Io::Ignore),
            ..Script::default()
        })
    };
    let shown = |mode| {
        let service = slow();
        let args = ["--io-timeout", "3", "--progress", mode];
        let ended = Initiator::start(&service.channel, &args)
            .end()
            .failed_with(&["--io-timeout 3 s"]);
        ended.stderr.contains("50 %")
    };
    assert!(shown("always"));
    assert!(!shown("auto"), "standard error is no terminal here");
}

/// The bytes of the messages are read at their documented offsets.
#[test]
fn messages_are_those_of_the_chosen_release() {
    let cases = [
        (Release::V3_0, &["--transaction-count", "4"][..], Some(1)),
        (
            Release::V3_0,
            &["--task-count", "4", "--batch-size", "3"],
            Some(3),
        ),
        (
            Release::V3_0,
            &["--task-count", "4", "--batch-size", "9"],
            Some(4),
        ),
        (Release::V3_1, &["--task-count", "4"], None),
    ];
    for (release, flags, batch_size) in cases {
        let service = Service::start(Script {
            release,
            ..Script::default()
        });
        let args = [&["--protocol", release.name()], flags].concat();
        Initiator::start(&service.channel, &args).end().passed();
        let record = service.record();
        let (init, batch) = record.requests[1]
            .payload
            .as_init_storage()
            .expect("an init request");
        assert_eq!((init.transaction_count, batch), (4, batch_size));
        assert_eq!(record.ios.len(), 100);
        let mut ids = HashSet::new();
        for ((_, io), bytes) in record.ios.iter().zip(&record.messages) {
            let number = |at: usize| u32::from_be_bytes(*bytes[at..].first_chunk().expect("4"));
            let long = |at: usize| u64::from_be_bytes(*bytes[at..].first_chunk().expect("8"));
            ids.insert(number(4));
            if release == Release::V3_0 {
                assert_eq!(long(24), record.memory_address + io.storage_offset);
                assert_eq!((number(32), number(36)), (0, 0));
            } else {
                assert_eq!(
                    (long(24), long(32)),
                    (io.requester_offset, io.storage_offset)
                );
            }
        }
        assert_eq!(ids, HashSet::from([0, 1, 2, 3]), "{release}");
    }
}

#[test]
fn local_region_of_3_0_must_have_the_size_of_the_storage() {
    let args = ["--protocol", "3.0", "--local-io-region-size", "8192"];
    Initiator::start("nobody listens here", &args)
        .end()
        .refused_with(&["--local-io-region-size"]);
}

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
        "read",
        "4096",
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
        .failed_with(&["DOCA_ERROR_IO_FAILED"]);
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
        .failed_with(&["--io-timeout 1 s"]);
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
        .failed_with(&["DOCA_ERROR_UNEXPECTED"]);
    service.record();
}

#[test]
fn an_answer_to_another_io_is_an_error() {
    let service = Service::start(io(10, Io::WrongOffset));
    Initiator::start(&service.channel, &[])
        .end()
        .failed_with(&["DOCA_ERROR_UNEXPECTED", "offset"]);
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
            .failed_with(&[&refused.to_string(), REFUSAL, "DOCA_ERROR_NOT_PERMITTED"]);
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
    let ended = Initiator::start("initiator-test-no-service", &["--control-timeout", "1"])
        .end()
        .failed_with(&["\"initiator-test-no-service\"", "DOCA_ERROR_TIME_OUT"]);
    // The retries are announced once, and not logged individually.
    let named = ended
        .stderr
        .lines()
        .filter(|line| line.contains("initiator-test-no-service"));
    let (errors, announced): (Vec<_>, Vec<_>) = named.partition(|line| line.contains("error: "));
    assert_eq!((errors.len(), announced.len()), (1, 1), "{ended:?}");
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
            .failed_with(&["block ", "offset 0:", "0x"]);
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
    // Before the handlers are installed, the default action applies, whose duration is also bounded.
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
