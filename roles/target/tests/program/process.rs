//! The target as a process: flags, exit codes, control channel, signals.

use bytes::Bytes;
use rustix::process::Signal;
use wire::control::{InitStorage, Payload, StorageDetails};

use crate::{Exit, command, cpu, start};

fn run(args: &str) -> Exit {
    crate::run_to_exit(command(args))
}

#[test]
fn help_and_version_succeed_after_the_banner() {
    for flag in ["-h", "--help"] {
        let exit = run(flag);
        assert_eq!(exit.status.code(), Some(0), "{exit:?}");
        assert!(
            exit.stdout.starts_with("doca_storage_target_rdma: v"),
            "{exit:?}"
        );
        assert!(
            exit.stdout.contains("DOCA Flags:") && exit.stdout.contains("--binary-content"),
            "{exit:?}"
        );
    }
    let exit = run("-v");
    assert_eq!(exit.status.code(), Some(0), "{exit:?}");
    assert_eq!(exit.stdout.lines().count(), 1, "{exit:?}");
}

#[test]
fn usage_error_exits_with_failure_and_names_the_flag() {
    let cpu = cpu();
    for (args, code, part) in [
        (String::new(), 2, "--device"),
        (
            format!("-d 03:00.0 --listen-port 0 --cpu {cpu} --nonsense"),
            2,
            "--nonsense",
        ),
        (
            format!("-d 09:00.0 --listen-port 0 --cpu {cpu}"),
            1,
            "09:00.0",
        ),
        (
            format!("-d 03:00.0 --listen-port 0 --cpu {cpu} --block-size 0"),
            1,
            "--block-size",
        ),
        (
            format!("-d 03:00.0 --listen-port 0 --cpu {cpu} --binary-content /no/such/file"),
            1,
            "/no/such/file",
        ),
        (
            format!("-d 03:00.0 --listen-port 0 --cpu {cpu} --json /no/such/flags"),
            2,
            "/no/such/flags",
        ),
    ] {
        let exit = run(&args);
        assert_eq!(exit.status.code(), Some(code), "{args}: {exit:?}");
        assert!(exit.stderr.contains(part), "{args}: {exit:?}");
    }
}

#[test]
fn query_returns_the_geometry() {
    let target = start("--block-size 512 --block-count 9");
    let details = StorageDetails {
        total_size: 9 * 512,
        block_size: 512,
    };
    let answer = target.connect().request(Payload::QueryStorageRequest);
    assert_eq!(answer, Payload::QueryStorageResponse(details));
}

#[test]
fn refused_requests_leave_the_session_state_unchanged() {
    let target = start("");
    let mut service = target.connect();
    let (code, text) = service.refused(Payload::StartStorageRequest);
    assert_eq!(code, doca::ErrorCode::UNEXPECTED.0);
    assert!(
        text.contains("start_storage_request") && text.contains("query_storage_request"),
        "{text}"
    );
    assert!(matches!(
        service.request(Payload::QueryStorageRequest),
        Payload::QueryStorageResponse(_)
    ));

    let init = |core_count, blob: &'static [u8]| {
        let mmap_export_blob = Bytes::from_static(blob);
        Payload::InitStorageRequest(InitStorage {
            transaction_count: 4,
            core_count,
            mmap_export_blob,
        })
    };
    assert!(service.refused(init(2, b"")).1.contains("as many --cpu"));
    for blob in [
        &b""[..],
        b"\0",
        b"certainly not an export of a memory map",
        &[0xff; 512],
        &[0; 4000],
    ] {
        let (_, text) = service.refused(init(1, blob));
        assert!(text.contains("memory map of the init request"), "{text}");
    }
}

#[test]
fn disconnection_or_malformed_frame_ends_the_session() {
    let target = start("");
    let mut service = target.connect();
    service.request(Payload::QueryStorageRequest);
    drop(service);
    let exit = target.wait();
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(
        exit.stderr.contains("init_storage_request"),
        "it says what was due: {exit:?}"
    );

    let target = start("");
    let mut service = target.connect();
    service.request(Payload::QueryStorageRequest);
    service.send_bytes(&[0xff; 100]);
    assert_eq!(service.receive(), None);
    let exit = target.wait();
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(exit.stderr.contains("127.0.0.1"), "it says who: {exit:?}");
}

/// A port probe, a client that sends anything but a query, one that sends nothing: none of them ends a target or locks
/// out other clients.
#[test]
fn connections_without_a_valid_first_request_do_not_count_as_sessions() {
    let target = start("");
    drop(target.connect());
    let mut malformed = target.connect();
    malformed.send_bytes(&[0xff; 100]);
    let Some(Payload::ErrorResponse(_)) = malformed.receive().map(|message| message.payload) else {
        panic!("expected to be told");
    };
    assert_eq!(malformed.receive(), None);
    let mut early = target.connect();
    let (code, text) = early.refused(Payload::ShutdownRequest);
    assert_eq!(code, doca::ErrorCode::UNEXPECTED.0);
    assert!(text.contains("query_storage_request"), "{text}");
    drop(early);
    let mut idle = target.connect();
    let mut service = target.connect();
    assert!(matches!(
        service.request(Payload::QueryStorageRequest),
        Payload::QueryStorageResponse(_)
    ));
    // Another one was first.
    let Some(Payload::ErrorResponse(error)) = idle.receive().map(|message| message.payload) else {
        panic!("expected to be told");
    };
    assert_eq!(error.error_code, doca::ErrorCode::IN_USE.0);
    drop(service);
    let exit = target.wait();
    assert!(exit.stderr.contains("init_storage_request"), "{exit:?}");
}

/// With `--sessions forever`, a port probe does not make a clean stop a failure.
#[test]
fn target_stops_cleanly_after_port_probes() {
    let target = start("--sessions forever");
    for _ in 0..20 {
        drop(target.connect());
    }
    // Served behind the probes.
    let mut early = target.connect();
    early.refused(Payload::StopStorageRequest);
    target.signal(Signal::TERM);
    let exit = target.wait();
    assert_eq!(exit.status.code(), Some(0), "{exit:?}");
}

/// A client that sends requests and does not read the answers must not cost unlimited memory or log.
#[test]
fn client_that_does_not_read_answers_is_disconnected() {
    use std::io::Write as _;
    let target = start("--sessions forever");
    let stream = std::net::TcpStream::connect(("127.0.0.1", target.port)).expect("connected");
    stream
        .set_write_timeout(Some(crate::TIMEOUT))
        .expect("a timeout");
    let request = |payload| {
        wire::control::Message {
            message_id: 1,
            correlation_id: 1,
            payload,
        }
        .encode_to_vec()
    };
    (&stream)
        .write_all(&request(Payload::QueryStorageRequest))
        .expect("written");
    let refused = request(Payload::StopStorageRequest).repeat(1000);
    let mut written = 0;
    // The target closes the connection long before 64 MiB were sent.
    while written < 64 << 20 {
        match (&stream).write(&refused) {
            Ok(count) => written += count,
            Err(error) => {
                let kind = error.kind();
                let closed = [
                    std::io::ErrorKind::ConnectionReset,
                    std::io::ErrorKind::BrokenPipe,
                ];
                assert!(closed.contains(&kind), "{error}");
                break;
            }
        }
    }
    assert!(written < 64 << 20, "it takes {written} bytes of requests");
    let mut next = target.connect();
    assert!(matches!(
        next.request(Payload::QueryStorageRequest),
        Payload::QueryStorageResponse(_)
    ));
    drop(next);
    target.signal(Signal::TERM);
    let exit = target.wait();
    assert!(
        exit.stderr.len() < 64 << 10,
        "{} bytes of log",
        exit.stderr.len()
    );
}

/// The memory of an init request is checked before it is allocated.
#[test]
fn init_request_over_the_limits_is_refused() {
    let target = start("--max-transactions 100000 --max-session-memory 64");
    let mut service = target.connect();
    service.request(Payload::QueryStorageRequest);
    for (transaction_count, code) in [
        (65_536, doca::ErrorCode::NO_MEMORY),
        (100_001, doca::ErrorCode::INVALID_VALUE),
    ] {
        let init = InitStorage {
            transaction_count,
            core_count: 1,
            mmap_export_blob: Bytes::new(),
        };
        let (refused, text) = service.refused(Payload::InitStorageRequest(init));
        assert_eq!(refused, code.0, "{text}");
    }
    drop(target);
    let target = start("");
    let mut service = target.connect();
    service.request(Payload::QueryStorageRequest);
    let init = InitStorage {
        transaction_count: 65_536,
        core_count: 1,
        mmap_export_blob: Bytes::new(),
    };
    let (_, text) = service.refused(Payload::InitStorageRequest(init));
    assert!(text.contains("--max-transactions"), "{text}");
}

#[test]
fn signal_stops_the_target_in_any_state() {
    for (signal, connect) in [
        (Signal::INT, false),
        (Signal::TERM, false),
        (Signal::HUP, false),
        (Signal::INT, true),
    ] {
        let target = start("");
        let service = connect.then(|| {
            let mut service = target.connect();
            service.request(Payload::QueryStorageRequest);
            service
        });
        target.signal(signal);
        let exit = target.wait();
        assert_eq!(exit.status.code(), Some(1), "{exit:?}");
        assert!(exit.stderr.contains("aborted by a signal"), "{exit:?}");
        drop(service);
    }
}
