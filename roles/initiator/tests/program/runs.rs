//! Complete runs of the program against a scripted service.

use std::collections::HashSet;

use crate::support::{Initiator, Io, Script, Service, usable_cpu};
use wire::control::{MessageType, Payload, StorageDetails};
use wire::io_message::IoMessageType;
use wire::release::Release;

#[test]
fn a_read_test_passes_and_prints_the_statistics_of_the_reference() {
    let service = Service::start(Script::default());
    let ended = Initiator::start(&service.channel, &["--run-limit-operation-count", "1000"])
        .end()
        .passed();
    for key in [
        "| Duration (seconds): ",
        "| Operation count: 1000\n",
        "| Data rate: ",
        " GiB/s\n",
        "| IO rate: ",
        " MIOP/s\n",
        "| PE hit rate: ",
        "| \tMin: ",
        "| \tMax: ",
        "| \tMean: ",
        "| \tp50: ",
        "| \tp99: ",
        "| \tp99.9: ",
    ] {
        assert!(
            ended.stdout.contains(key),
            "{key} is missing in\n{}",
            ended.stdout
        );
    }
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
    // Both on one CPU, for machines with a single one.
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
    assert!(
        ended.stdout.contains("| Operation count: 128\n"),
        "{}",
        ended.stdout
    );
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
        ended.stderr.contains("50 of 100 operations (50 %)")
    };
    assert!(shown("always"));
    assert!(!shown("auto"), "standard error is no terminal here");
}

/// The bytes of the messages are read at their documented offsets.
#[test]
fn messages_are_those_of_the_chosen_release() {
    for (release, batch_size) in [(Release::V3_0, Some(1)), (Release::V3_1, None)] {
        let service = Service::start(Script {
            release,
            ..Script::default()
        });
        let args = ["--protocol", release.name(), "--transaction-count", "4"];
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
