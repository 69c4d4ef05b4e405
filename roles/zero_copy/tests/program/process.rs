//! The service as a process: flags, exit codes, control channels, signals.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::support::{World, command, connect, cpu, error, message, next, start};
use bytes::Bytes;
use doca::ErrorCode;
use role_common::control::{ChannelEvent, ControlChannel as _};
use rustix::process::Signal;
use wire::control::{ErrorResponse, InitStorage, Payload, StorageDetails};

fn details() -> StorageDetails {
    StorageDetails {
        total_size: 1 << 20,
        block_size: 4096,
    }
}

/// A port on which nothing listens: tcpmux, which is below the ports used by tests.
const UNUSED_PORT: u16 = 1;

#[test]
fn exit_code_reflects_usage_errors() {
    let cpu = cpu();
    let valid = format!("-d 03:00.0 -r 3b:00.0 --storage-server 127.0.0.1:1 --cpu {cpu}");
    for (args, code, part) in [
        ("--help".to_owned(), 0, "--storage-server"),
        (
            "-v".to_owned(),
            0,
            "doca_storage_comch_to_rdma_zero_copy: v",
        ),
        (format!("-d 03:00.0 --cpu {cpu}"), 2, "--representor"),
        (
            format!("{valid} --control-timeout 0"),
            2,
            "--control-timeout",
        ),
        (valid.replace("03:00.0", "07:00.0"), 1, "07:00.0"),
        (valid.replace("3b:00.0", "07:00.1"), 1, "07:00.1"),
    ] {
        let output = command(&args).output().expect("ran");
        assert_eq!(output.status.code(), Some(code), "{args}: {output:?}");
        let text = if code == 0 {
            output.stdout
        } else {
            output.stderr
        };
        assert!(
            String::from_utf8_lossy(&text).contains(part),
            "{args}: expected {part}"
        );
    }
}

#[test]
fn signal_stops_a_service_that_waits_for_its_peers() {
    let service = start(UNUSED_PORT, "");
    std::thread::sleep(Duration::from_millis(300));
    service.signal(Signal::INT);
    service.fails_saying("a connection to the storage target");

    let target = TcpListener::bind("127.0.0.1:0").expect("bound");
    let service = start(target.local_addr().expect("address").port(), "");
    let (mut target, _) = target.accept().expect("connected");
    // Connected to its target, it starts to wait for an initiator.
    drop(connect(&service));
    service.signal(Signal::TERM);
    service.fails_saying("query_storage_request of the initiator");
    let end = target.read(&mut [0]);
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

/// A target that refuses connections is reported once, and given up after the control timeout.
#[test]
fn refused_connection_is_retried_until_the_control_timeout() {
    let begin = Instant::now();
    let service = start(UNUSED_PORT, "--control-timeout 1");
    let exit = service.wait();
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert_eq!(exit.stderr.matches("retrying until").count(), 1, "{exit:?}");
    assert_eq!(exit.stderr.matches("error: ").count(), 1, "{exit:?}");
    assert!(exit.stderr.contains("timed out after 1s"), "{exit:?}");
}

#[test]
fn requests_are_forwarded_and_answered() {
    let mut world = World::new("");
    world.send(Payload::QueryStorageRequest);
    let asked = world.target_answers(|_| Payload::QueryStorageResponse(details()));
    assert_eq!(asked, Payload::QueryStorageRequest);
    assert_eq!(world.answer(), Payload::QueryStorageResponse(details()));

    // Refused by the service, without a request to the target.
    world.send(Payload::StartStorageRequest);
    assert!(
        error(world.answer())
            .message
            .contains("init_storage_request")
    );
    for blob in [&b""[..], b"no export", &[0xff; 512]] {
        let mmap_export_blob = Bytes::from_static(blob);
        let init = InitStorage {
            transaction_count: 4,
            core_count: 1,
            mmap_export_blob,
        };
        world.send(Payload::InitStorageRequest(init));
        let refusal = error(world.answer());
        assert!(
            refusal.message.contains("memory map of the init request"),
            "{refusal:?}"
        );
    }
    assert_eq!(world.target.poll(), Ok(None));
}

#[test]
fn error_text_of_the_target_reaches_the_initiator() {
    let mut world = World::new("");
    world.send(Payload::QueryStorageRequest);
    let refusal = ErrorResponse {
        error_code: ErrorCode::NO_MEMORY.0,
        message: "out of blocks".to_owned(),
    };
    world.target_answers(|_| Payload::ErrorResponse(refusal));
    let error_response = error(world.answer());
    assert_eq!(error_response.error_code, ErrorCode::NO_MEMORY.0);
    assert!(
        error_response.message.contains("out of blocks"),
        "{error_response:?}"
    );
    world.service.fails_saying("out of blocks");
}

#[test]
fn unresponsive_target_times_out() {
    let mut world = World::new("--control-timeout 1");
    let start = Instant::now();
    world.send(Payload::QueryStorageRequest);
    assert_eq!(
        message(&mut world.target).payload,
        Payload::QueryStorageRequest
    );
    let error_response = error(world.answer());
    assert_eq!(error_response.error_code, ErrorCode::TIME_OUT.0);
    assert!(
        error_response.message.contains("query_storage_response"),
        "{error_response:?}"
    );
    assert!(start.elapsed() >= Duration::from_secs(1));
    world.service.fails_saying("query_storage_response");
}

/// Messages that arrive while the service itself is stopped are read before timeouts are handled.
#[test]
fn service_that_was_stopped_reads_pending_answers_before_timing_out() {
    let mut world = World::new("--control-timeout 1");
    world.send(Payload::QueryStorageRequest);
    let request = message(&mut world.target);
    world.service.signal(Signal::STOP);
    let answer = request.response(Payload::QueryStorageResponse(details()));
    world.target.send(&answer).expect("sent");
    std::thread::sleep(Duration::from_millis(1500));
    world.service.signal(Signal::CONT);
    assert_eq!(world.answer(), Payload::QueryStorageResponse(details()));
}

#[test]
fn disconnection_of_a_peer_ends_the_service() {
    // A client that disconnects before it was polled is ignored.
    let mut world = World::new("");
    world.send(Payload::QueryStorageRequest);
    assert_eq!(
        message(&mut world.target).payload,
        Payload::QueryStorageRequest
    );
    let World {
        initiator,
        mut target,
        service,
        ..
    } = world;
    drop(initiator);
    service.fails_saying("the initiator disconnected");
    assert_eq!(next(&mut target), ChannelEvent::Closed);

    let World {
        mut initiator,
        target,
        service,
        ..
    } = World::new("");
    drop(target);
    service.fails_saying("the storage target disconnected");
    assert_eq!(next(&mut initiator), ChannelEvent::Closed);

    // In the middle of a request.
    let mut world = World::new("");
    world.send(Payload::QueryStorageRequest);
    assert_eq!(
        message(&mut world.target).payload,
        Payload::QueryStorageRequest
    );
    let World {
        mut initiator,
        target,
        service,
        ..
    } = world;
    drop(target);
    let error_response = error(message(&mut initiator).payload);
    assert!(
        error_response
            .message
            .contains("the storage target disconnected"),
        "{error_response:?}"
    );
    service.fails_saying("the storage target disconnected");
}

#[test]
fn malformed_message_of_the_target_ends_the_service_and_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let service = start(listener.local_addr().expect("address").port(), "");
    let (mut target, _): (TcpStream, _) = listener.accept().expect("connected");
    let mut initiator = connect(&service);
    let request = wire::control::Message {
        message_id: 1,
        correlation_id: 1,
        payload: Payload::QueryStorageRequest,
    };
    initiator.send(&request).expect("sent");
    // Once the request has arrived, the initiator waits for a response.
    target.read_exact(&mut [0; 16]).expect("a request");
    target.write_all(&[0xff; 64]).expect("written");
    let error_response = error(message(&mut initiator).payload);
    assert!(
        error_response.message.contains("storage target"),
        "{error_response:?}"
    );
    service.fails_saying("message from storage target");
}

#[test]
fn second_initiator_is_refused_while_the_first_is_served() {
    let mut world = World::new("");
    world.send(Payload::QueryStorageRequest);
    let request = message(&mut world.target);
    let mut second = connect(&world.service);
    let error_response = error(message(&mut second).payload);
    assert_eq!(error_response.error_code, ErrorCode::IN_USE.0);
    drop(second);
    let details_of = Payload::QueryStorageResponse(details());
    world
        .target
        .send(&request.response(details_of.clone()))
        .expect("sent");
    assert_eq!(world.answer(), details_of);
    world.send(Payload::StopStorageRequest);
    error(world.answer());
}
