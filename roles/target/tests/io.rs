//! The target as a process, with I/O: this test is the service and the service's client.

mod support;

use std::io::Write as _;
use std::time::{Duration, Instant};

use doca::ErrorCode;
use support::client::{BLOCK, Client, request};
use support::{Service, Target, start};
use wire::control::Payload;
use wire::io_message::{IoMessageType, Repr};

const BLOCKS: usize = 4;

fn content() -> Vec<u8> {
    (0..BLOCK * BLOCKS)
        .map(|index| (index / 7 % 253) as u8)
        .collect()
}

fn target_with_content() -> (Target, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::new().expect("temporary file");
    file.write_all(&content()).expect("written");
    let flags = format!(
        "--block-count {BLOCKS} --output text --binary-content {}",
        file.path().display()
    );
    (start(&flags), file)
}

#[test]
fn reads_and_writes_move_the_right_bytes() {
    let (target, _file) = target_with_content();
    let mut client = Client::new(target.connect());
    let content = content();

    // Block 2 to the second half of our memory.
    assert_eq!(
        client.io(request(IoMessageType::Read, BLOCK, 2 * BLOCK, BLOCK)),
        ErrorCode::SUCCESS
    );
    let mut bytes = vec![0; BLOCK * 2];
    client.memory.read(0, &mut bytes).expect("read");
    assert_eq!(bytes[..BLOCK], [0; BLOCK]);
    assert_eq!(bytes[BLOCK..], content[2 * BLOCK..3 * BLOCK]);

    // Some bytes in the middle of block 1, and the blocks around them.
    client.memory.fill(0, BLOCK * 2, 0x5a).expect("filled");
    assert_eq!(
        client.io(request(IoMessageType::Write, 100, BLOCK + 10, 50)),
        ErrorCode::SUCCESS
    );
    assert_eq!(
        client.io(request(IoMessageType::Read, 0, 0, BLOCK * 2)),
        ErrorCode::SUCCESS
    );
    client.memory.read(0, &mut bytes).expect("read");
    let mut expected = content[..BLOCK * 2].to_vec();
    expected[BLOCK + 10..BLOCK + 60].fill(0x5a);
    assert_eq!(bytes, expected);

    let exit = client.stop(target);
    assert_eq!(exit.status.code(), Some(0), "{exit:?}");
    assert!(exit.stdout.contains("| Operation count: 3\n"), "{exit:?}");
    assert!(exit.stdout.contains("| PE hit rate: "), "{exit:?}");
}

#[test]
fn bad_requests_get_errors_and_good_ones_still_work() {
    let (target, _file) = target_with_content();
    let mut client = Client::new(target.connect());
    let good = request(IoMessageType::Read, 0, 0, BLOCK);
    let storage = (BLOCK * BLOCKS) as u64;
    let bad = [
        Repr {
            storage_offset: storage - BLOCK as u64 + 1,
            ..good
        },
        Repr {
            storage_offset: u64::MAX - 100,
            ..good
        },
        Repr {
            requester_offset: BLOCK as u64 + 1,
            ..good
        },
        Repr {
            requester_offset: u64::MAX,
            message_type: IoMessageType::Write,
            ..good
        },
        Repr {
            size: u32::MAX,
            ..good
        },
        Repr { size: 0, ..good },
        Repr {
            message_type: IoMessageType::Result,
            ..good
        },
    ];
    for request in bad {
        assert_eq!(client.io(request), ErrorCode::INVALID_VALUE, "{request:?}");
        assert_eq!(client.io(good), ErrorCode::SUCCESS, "after {request:?}");
    }
    let mut unknown = good.to_bytes();
    unknown[3] = 9;
    assert_eq!(client.exchange(&unknown).result, ErrorCode::INVALID_VALUE.0);
    let short = client.exchange(&good.to_bytes()[..16]);
    assert_eq!(
        (short.result, short.user_data),
        (ErrorCode::INVALID_VALUE.0, good.user_data)
    );
    assert_eq!(client.io(good), ErrorCode::SUCCESS);

    let exit = client.stop(target);
    assert_eq!(exit.status.code(), Some(0), "{exit:?}");
    assert_eq!(
        exit.stderr.matches("refused an I/O").count(),
        1,
        "not a line per bad I/O: {exit:?}"
    );
}

#[test]
fn a_service_that_dies_during_io_ends_the_target() {
    let (target, _file) = target_with_content();
    let client = Client::new(target.connect());
    let start = Instant::now();
    drop(client);
    let exit = target.wait();
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn a_signal_during_io_ends_the_target() {
    let (target, _file) = target_with_content();
    let client = Client::new(target.connect());
    target.signal(rustix::process::Signal::INT);
    let exit = target.wait();
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(exit.stderr.contains("stop_storage_request"), "{exit:?}");
    drop(client);
}

#[test]
fn statistics_are_json_on_request() {
    let target = {
        use std::io::{BufRead as _, BufReader};
        // With JSON, everything but the document goes to standard error.
        let args = format!(
            "-d 03:00.0 --listen-port 0 --cpu {} --output json",
            support::cpu()
        );
        let mut child = support::command(&args).spawn().expect("started");
        let mut lines = BufReader::new(child.stderr.take().expect("piped"))
            .lines()
            .map_while(Result::ok);
        let port =
            lines.find_map(|line| line.strip_prefix("listening on port ").map(str::to_owned));
        let port: u16 = port.expect("a port").parse().expect("a number");
        // Keep reading, or the target blocks on its logs.
        std::thread::spawn(move || lines.for_each(drop));
        (child, port)
    };
    let (child, port) = target;
    let mut client = Client::new(Service::connect(port));
    assert_eq!(
        client.io(request(IoMessageType::Read, 0, 0, BLOCK)),
        ErrorCode::SUCCESS
    );
    assert_eq!(
        client.service.request(Payload::StopStorageRequest),
        Payload::StopStorageResponse
    );
    assert_eq!(
        client.service.request(Payload::ShutdownRequest),
        Payload::ShutdownResponse
    );
    let output = child.wait_with_output().expect("ended");
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(document["application"], "doca_storage_target_rdma");
    assert_eq!(document["operation_count"], 1);
    assert_eq!(document["cores"][0]["operation_count"], 1);
}
