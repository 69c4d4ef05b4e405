//! The target as a process: flags, exit codes, control channel, signals.

mod support;

use std::io::Read as _;

use bytes::Bytes;
use rustix::process::Signal;
use support::{Exit, command, cpu, start};
use wire::control::{InitStorage, Payload, StorageDetails};

fn run(args: &str) -> Exit {
    let mut child = command(args).spawn().expect("started");
    let status = child.wait().expect("waited");
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut stdout)
        .expect("readable");
    child
        .stderr
        .take()
        .expect("piped")
        .read_to_string(&mut stderr)
        .expect("readable");
    Exit {
        status,
        stdout,
        stderr,
    }
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
fn wrong_usage_fails_and_says_what_is_wrong() {
    let cpu = cpu();
    for (args, part) in [
        (String::new(), "--device"),
        (
            format!("-d 03:00.0 --listen-port 0 --cpu {cpu} --nonsense"),
            "--nonsense",
        ),
        (format!("-d 09:00.0 --listen-port 0 --cpu {cpu}"), "09:00.0"),
        (
            format!("-d 03:00.0 --listen-port 0 --cpu {cpu} --block-size 0"),
            "--block-size",
        ),
        (
            format!("-d 03:00.0 --listen-port 0 --cpu {cpu} --binary-content /no/such/file"),
            "/no/such/file",
        ),
        (
            format!("-d 03:00.0 --listen-port 0 --cpu {cpu} --json /no/such/flags"),
            "/no/such/flags",
        ),
    ] {
        let exit = run(&args);
        assert_eq!(exit.status.code(), Some(1), "{args}: {exit:?}");
        assert!(exit.stderr.contains(part), "{args}: {exit:?}");
    }
}

#[test]
fn what_it_stores_is_told() {
    let target = start("--block-size 512 --block-count 9");
    let details = StorageDetails {
        total_size: 9 * 512,
        block_size: 512,
    };
    let answer = target.connect().request(Payload::QueryStorageRequest);
    assert_eq!(answer, Payload::QueryStorageResponse(details));
}

#[test]
fn refused_requests_leave_the_session_where_it_was() {
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
fn a_service_that_leaves_or_talks_nonsense_ends_it() {
    let target = start("");
    drop(target.connect());
    let exit = target.wait();
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(
        exit.stderr.contains("query_storage_request"),
        "it says what was due: {exit:?}"
    );

    let target = start("");
    let mut service = target.connect();
    service.send_bytes(&[0xff; 100]);
    assert_eq!(service.receive(), None);
    let exit = target.wait();
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(exit.stderr.contains("127.0.0.1"), "it says who: {exit:?}");
}

#[test]
fn signals_end_it_at_any_moment() {
    for (signal, connect) in [
        (Signal::INT, false),
        (Signal::TERM, false),
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
