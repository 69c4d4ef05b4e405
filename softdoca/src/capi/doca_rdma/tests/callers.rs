//! Whoever comes to a port and does not follow the protocol.

use std::ptr::null_mut;

use super::super::*;
use super::addresses::{Addr, port, start};
use super::memory::device;
use super::side::{ALL, Answer, Side, Told, ok};
use crate::error::Error;
use crate::runtime::{RuntimeDir, Socket, named_socket};

/// A socket to the port of an instance on the tests' device.
fn come(port: u16) -> Socket {
    let directory = RuntimeDir::get().expect("a runtime directory");
    let pci = device().model().pci.to_string();
    let name = named_socket("rdma", &[&pci, &port.to_string()]);
    Socket::connect(&directory, &name).expect("the server listens")
}

/// A message of the handshake without private data: what it is, and connection details.
fn word(kind: u8, details: &[u8]) -> Vec<u8> {
    let from: &[u8] = match kind {
        REQUEST => &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1],
        _ => &[],
    };
    let len = from.len() as u8;
    [b"SDRDCM\0\x02", &[kind, len][..], details, from].concat()
}

const REQUEST: u8 = 1;
const READY: u8 = 4;

/// A server whose program answers later, and its port.
fn server() -> (Side, u16) {
    let (server, port) = (start(1), port());
    ok(server.listen(port));
    server.log.answer.set(Answer::Later);
    (server, port)
}

/// Another client finds the server as if nothing had been.
fn check_still_there(server: &Side, port: u16) {
    let addr = Addr::local(port);
    let client = start(1);
    server.log.answer.set(Answer::Accept);
    ok(client.call(&addr, 1));
    client.wait_until("the connection", |client| {
        server.progress();
        client.told() == [(Told::Established, 1)]
    });
}

#[test]
fn a_request_with_the_details_of_a_peer_that_has_gone_fails_when_it_is_accepted() {
    let (server, port) = server();
    let ghost = Side::start(ALL, 1);
    let (details, _) = ghost.export();
    drop(ghost);
    let socket = come(port);
    socket.send(&word(REQUEST, &details), &[]).expect("room");
    server.wait_until("the request", |server| server.told().len() == 1);
    // SAFETY: a connection of a live instance.
    let accepted = unsafe { doca_rdma_connection_accept(server.last_connection(), null_mut(), 0) };
    assert_eq!(accepted, Error::ConnectionAborted.code());
    server.wait_until("the failure", |server| server.told().len() == 2);
    assert_eq!(server.told()[1], (Told::Failure, 0));
    assert!(socket.is_closed());
    check_still_there(&server, port);
}

#[test]
fn a_client_that_is_ready_before_it_was_accepted_is_sent_away() {
    let (server, port) = server();
    let client = Side::start(ALL, 1);
    let (details, _) = client.export();
    let socket = come(port);
    socket.send(&word(REQUEST, &details), &[]).expect("room");
    server.wait_until("the request", |server| server.told().len() == 1);
    socket.send(&word(READY, &[]), &[]).expect("room");
    server.wait_until("the failure", |server| server.told().len() == 2);
    assert_eq!(server.told()[1], (Told::Failure, 0));
    assert!(socket.is_closed());
    check_still_there(&server, port);
}

#[test]
fn a_client_that_does_not_become_ready_is_missed() {
    let (server, port) = server();
    let client = Side::start(ALL, 1);
    let (details, _) = client.export();
    let socket = come(port);
    socket.send(&word(REQUEST, &details), &[]).expect("room");
    server.wait_until("the request", |server| server.told().len() == 1);
    // SAFETY: a connection of a live instance.
    ok(unsafe { doca_rdma_connection_accept(server.last_connection(), null_mut(), 0) });
    client.rest(&server);
    assert_eq!(server.told().len(), 1, "not established yet");
    drop(socket);
    server.wait_until("the failure", |server| server.told().len() == 2);
    assert_eq!(server.told()[1], (Told::Failure, 0));
    check_still_there(&server, port);
}

#[test]
fn what_is_no_request_is_sent_away_without_a_word_to_the_program() {
    let (server, port) = server();
    let client = Side::start(ALL, 1);
    let (details, _) = client.export();
    let mut other_version = word(REQUEST, &details);
    other_version[7] += 1;
    let messages = [
        b"good day to you".to_vec(),
        word(READY, &[]),
        word(9, &details),
        word(REQUEST, &details[1..]),
        word(REQUEST, &[]),
        other_version,
        word(REQUEST, &[0; 1000]),
    ];
    let sockets = messages.map(|message| {
        let socket = come(port);
        socket.send(&message, &[]).expect("room");
        socket
    });
    let silent = come(port);
    drop(come(port));
    check_still_there(&server, port);
    for (number, socket) in sockets.iter().enumerate() {
        assert!(socket.is_closed(), "message {number}");
    }
    assert!(!silent.is_closed(), "it may yet say something");
    let requests = server
        .told()
        .iter()
        .filter(|told| told.0 == Told::Request)
        .count();
    assert_eq!(requests, 1, "that of the client that followed the protocol");
}
