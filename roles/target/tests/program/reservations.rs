//! Reservations: a service takes a target over from another one.

use std::time::Instant;

use bytes::Bytes;
use doca::ErrorCode;
use wire::control::{Payload, Reservation, ReservedStorage};
use wire::io_message::IoMessageType::{Read, Write};

use crate::{BLOCK, Client, Service, TIMEOUT, init, memory, request, start};

const FOREVER: &str = "--sessions forever";

fn reserve(service: &mut Service, generation: u64, holder: u64) -> ReservedStorage {
    let reservation = Reservation {
        generation,
        holder_high: 0,
        holder_low: holder,
        name: format!("service {holder}"),
    };
    match service.request(Payload::ReserveStorageRequest(reservation)) {
        Payload::ReservedStorageResponse(reserved) => reserved,
        other => panic!("expected the reservation in force, got {other:?}"),
    }
}

/// Generation and holder of the reservation in force.
fn in_force(reserved: &ReservedStorage) -> (u64, u64) {
    assert_eq!(
        reserved.name.is_empty(),
        reserved.generation == 0,
        "{reserved:?}"
    );
    (reserved.generation, reserved.holder_low)
}

fn code(answer: &Payload) -> ErrorCode {
    match answer {
        Payload::ErrorResponse(error) => ErrorCode(error.error_code),
        other => panic!("expected an error, got {other:?}"),
    }
}

/// Asserts that the target has ended this service's session, or its wait for one, because of a reservation.
fn assert_preempted(service: &mut Service) {
    let last = service.receive().expect("a reason");
    assert_eq!((last.message_id, last.correlation_id), (0, 0));
    assert_eq!(code(&last.payload), ErrorCode::NOT_PERMITTED);
    assert_eq!(service.receive(), None);
}

#[test]
fn session_of_another_service_ends_before_a_reservation_is_answered() {
    let target = start(FOREVER);
    let mut first = Client::new(target.connect());
    first.memory.write(0, &[1; BLOCK]).expect("written");
    assert_eq!(first.io(request(Write, 0, 0, BLOCK)), ErrorCode::SUCCESS);

    let mut second = target.connect();
    assert_eq!(in_force(&reserve(&mut second, 1, 20)), (1, 20));
    assert_preempted(&mut first.service);
    // The data path of the first one has ended: this is never executed.
    first.memory.write(0, &[2; BLOCK]).expect("written");
    let write = request(Write, 0, 0, BLOCK).to_bytes();
    first.request.write_data(&write).expect("request");
    let _ = first.send.submit();

    let mut second = Client::new(second);
    assert_eq!(second.io(request(Read, 0, 0, BLOCK)), ErrorCode::SUCCESS);
    let mut block = [0; BLOCK];
    second.memory.read(0, &mut block).expect("read");
    assert_eq!(block, [1; BLOCK]);
}

#[test]
fn only_the_holder_of_the_reservation_begins_sessions() {
    let target = start(FOREVER);
    let mut first = target.connect();
    let mut plain = target.connect();
    assert_eq!(in_force(&reserve(&mut first, 0, 20)), (0, 0), "an inquiry");
    assert_eq!(in_force(&reserve(&mut first, 5, 20)), (5, 20));
    // Refused with the reservation in force: an older generation, and the same one of another service.
    let mut other = target.connect();
    for generation in [0, 4, 5] {
        assert_eq!(in_force(&reserve(&mut other, generation, 21)), (5, 20));
    }
    for service in [&mut plain, &mut other] {
        let answer = service.request(Payload::QueryStorageRequest);
        assert_eq!(code(&answer), ErrorCode::NOT_PERMITTED);
    }
    // The holder may connect again.
    for generation in [5, 5, 6] {
        let mut again = target.connect();
        assert_eq!(
            in_force(&reserve(&mut again, generation, 20)),
            (generation, 20)
        );
        let mut client = Client::new(again);
        assert_eq!(client.io(request(Read, 0, 0, BLOCK)), ErrorCode::SUCCESS);
        assert_eq!(
            client.service.request(Payload::StopStorageRequest),
            Payload::StopStorageResponse
        );
        let shutdown = client.service.request(Payload::ShutdownRequest);
        assert_eq!(shutdown, Payload::ShutdownResponse);
    }
}

#[test]
fn holder_takes_its_target_from_its_own_earlier_session() {
    let target = start(FOREVER);
    let mut service = target.connect();
    reserve(&mut service, 1, 20);
    let mut first = Client::new(service);
    let mut service = target.connect();
    assert_eq!(in_force(&reserve(&mut service, 1, 20)), (1, 20));
    assert_preempted(&mut first.service);
    let mut second = Client::new(service);
    assert_eq!(second.io(request(Read, 0, 0, BLOCK)), ErrorCode::SUCCESS);
}

#[test]
fn earlier_holder_that_waits_is_disconnected() {
    let target = start(FOREVER);
    let (mut first, mut second) = (target.connect(), target.connect());
    reserve(&mut first, 1, 20);
    reserve(&mut second, 2, 21);
    assert_preempted(&mut first);
    let mut first = target.connect();
    assert_eq!(in_force(&reserve(&mut first, 1, 20)), (2, 21));
}

#[test]
fn reservation_survives_a_restart_with_the_backing_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("blocks");
    let flags = format!("{FOREVER} --backing-file {}", path.display());
    for generation in [3, 4, 5] {
        let target = start(&flags);
        let mut service = target.connect();
        let before = if generation == 3 {
            (0, 0)
        } else {
            (generation - 1, 20)
        };
        assert_eq!(in_force(&reserve(&mut service, 0, 20)), before);
        assert_eq!(
            in_force(&reserve(&mut service, generation, 20)),
            (generation, 20)
        );
        // Killed: what was answered is durable.
    }
    let target = start(&flags);
    let answer = target.connect().request(Payload::QueryStorageRequest);
    assert_eq!(code(&answer), ErrorCode::NOT_PERMITTED);
}

#[test]
fn connection_during_a_session_is_refused_unless_it_reserves() {
    let target = start(FOREVER);
    let mut first = Client::new(target.connect());
    let begun = Instant::now();
    let mut silent = target.connect();
    let mut asking = target.connect();
    asking.send_bytes(&crate::frame(Payload::QueryStorageRequest));
    for service in [&mut asking, &mut silent] {
        let last = service.receive().expect("a reason");
        assert_eq!(code(&last.payload), ErrorCode::IN_USE);
        assert_eq!(service.receive(), None);
    }
    assert!(begun.elapsed() < TIMEOUT);
    // A refused reservation, and one of generation 0, do not end the session either.
    let mut other = target.connect();
    assert_eq!(in_force(&reserve(&mut other, 0, 21)), (0, 0));
    assert_eq!(first.io(request(Read, 0, 0, BLOCK)), ErrorCode::SUCCESS);
    // In a session, a reservation is an error.
    let late = Payload::ReserveStorageRequest(Reservation {
        generation: 9,
        holder_high: 0,
        holder_low: 20,
        name: String::new(),
    });
    assert_eq!(code(&first.service.request(late)), ErrorCode::UNEXPECTED);
    assert_eq!(first.io(request(Read, 0, 0, BLOCK)), ErrorCode::SUCCESS);
}

#[test]
fn reservation_ends_a_session_that_is_being_set_up() {
    let target = start(FOREVER);
    let mut first = target.connect();
    first.request(Payload::QueryStorageRequest);
    let (device, _memory, memory_map) = memory(BLOCK);
    let export = Bytes::from(memory_map.export_rdma(&device).expect("export"));
    let init = Payload::InitStorageRequest(init(export, 2));
    assert_eq!(first.request(init), Payload::InitStorageResponse);
    let mut second = target.connect();
    assert_eq!(in_force(&reserve(&mut second, 1, 20)), (1, 20));
    assert_preempted(&mut first);
    let mut second = Client::new(second);
    assert_eq!(second.io(request(Read, 0, 0, BLOCK)), ErrorCode::SUCCESS);
}
