//! Exporting, connecting and disconnecting; dynamic connections, where only one side connects; connections by address,
//! and clients that violate their protocol.

use std::ffi::CStr;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use doca_abi::{
    DOCA_CTX_STATE_IDLE, DOCA_CTX_STATE_RUNNING, DOCA_CTX_STATE_STOPPING, DOCA_RDMA_ADDR_TYPE_GID,
    DOCA_RDMA_ADDR_TYPE_IPv4, DOCA_RDMA_ADDR_TYPE_IPv6, DOCA_RDMA_TRANSPORT_TYPE_DC, doca_data,
    doca_rdma_addr, doca_rdma_connection,
};

use super::super::*;
use super::{ALL, Answer, Bufs, ConnectionEvent, Log, Memory, Side, c, device, ok, pair, submit};
use crate::capi::doca_pe::{doca_ctx_start, doca_ctx_stop};
use crate::device::Device;
use crate::error::Error;
use crate::runtime::{RuntimeDir, Socket, named_socket};

/// A port that is unique to this test and process: all tests of a user share the runtime directory, so it includes the
/// process id.
pub(super) fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = NEXT.fetch_add(1, Ordering::Relaxed) % 64;
    1 + (std::process::id() % 1000) as u16 * 64 + own
}

unsafe fn log<'a>(ctx_data: doca_data) -> &'a Log {
    // SAFETY: the context data of a test points to the log of its side.
    unsafe { &*ctx_data.ptr.cast::<Log>() }
}

unsafe extern "C" fn request(connection: *mut doca_rdma_connection, ctx_data: doca_data) {
    // SAFETY: called with a live connection and the data that the test set.
    unsafe {
        let log = log(ctx_data);
        log.by_address
            .borrow_mut()
            .push((ConnectionEvent::Request, connection, 0));
        match log.answer.get() {
            Answer::Accept => {
                let mut data = *b"welcome";
                let len = data.len() as u8;
                ok(doca_rdma_connection_accept(
                    connection,
                    data.as_mut_ptr().cast(),
                    len,
                ));
                ok(doca_rdma_connection_set_user_data(
                    connection,
                    doca_data { u64: 77 },
                ));
            }
            Answer::Reject => ok(doca_rdma_connection_reject(connection)),
            Answer::Later => {}
        }
    }
}

macro_rules! callbacks {
    ($($name:ident: $event:ident;)+) => { $(
        unsafe extern "C" fn $name(connection: *mut doca_rdma_connection, data: doca_data, ctx_data: doca_data) {
            // SAFETY: as in `request`.
            unsafe {
                log(ctx_data).by_address.borrow_mut().push((ConnectionEvent::$event, connection, data.u64));
                if ConnectionEvent::$event == ConnectionEvent::Disconnection {
                    // Same as in the reference programs.
                    ok(doca_rdma_connection_disconnect(connection));
                }
            }
        }
    )+ };
}
callbacks! {
    established: Established;
    failure: Failure;
    disconnection: Disconnection;
}

/// A running instance with callbacks for connections by address.
pub(super) fn start(connections: u16) -> Side {
    start_on(device(), connections)
}

fn start_on(device: Arc<Device>, connections: u16) -> Side {
    let side = Side::on(device, ALL, connections);
    // SAFETY: live handles.
    unsafe {
        ok(doca_rdma_set_connection_state_callbacks(
            side.rdma,
            Some(request),
            Some(established),
            Some(failure),
            Some(disconnection),
        ));
        ok(doca_ctx_start(side.ctx()));
    }
    side
}

pub(super) struct Addr(pub(super) *mut doca_rdma_addr);

impl Addr {
    fn new(kind: u32, text: &CStr, port: u16) -> Addr {
        let mut addr = null_mut();
        // SAFETY: a string and a valid out-parameter.
        ok(unsafe { doca_rdma_addr_create(kind, text.as_ptr(), port, &mut addr) });
        Addr(addr)
    }

    pub(super) fn local(port: u16) -> Addr {
        Addr::new(DOCA_RDMA_ADDR_TYPE_IPv4, c"127.0.0.1", port)
    }
}

impl Drop for Addr {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: a live address.
            ok(unsafe { doca_rdma_addr_destroy(self.0) });
        }
    }
}

impl Side {
    pub(super) fn listen(&self, port: u16) -> u32 {
        // SAFETY: a live handle.
        unsafe { doca_rdma_start_listen_to_port(self.rdma, port) }
    }

    pub(super) fn call(&self, addr: &Addr, user: u64) -> u32 {
        // SAFETY: live handles.
        unsafe { doca_rdma_connect_to_addr(self.rdma, addr.0, doca_data { u64: user }) }
    }

    /// The callbacks so far, each with the connection's user data.
    pub(super) fn events(&self) -> Vec<(ConnectionEvent, u64)> {
        let events = self.log.by_address.borrow();
        events
            .iter()
            .map(|(event, _, data)| (*event, *data))
            .collect()
    }

    pub(super) fn last_connection(&self) -> *mut doca_rdma_connection {
        self.log.by_address.borrow().last().expect("a callback").1
    }

    /// Progresses both until this side has had `count` callbacks.
    #[track_caller]
    fn events_with(&self, other: &Side, count: usize) -> Vec<(ConnectionEvent, u64)> {
        self.wait_until("callbacks", |side| {
            other.progress();
            side.events().len() >= count
        });
        self.events()
    }
}

#[test]
fn a_client_requests_and_the_server_accepts() {
    let (server, client, port) = (start(2), start(1), port());
    ok(server.listen(port));
    // Also the address of the client's device, as seen by the server.
    let (v4, v6) = (c"127.0.0.1", c"::ffff:127.0.0.1");
    let gid = c"0000:0000:0000:0000:0000:ffff:7f00:0001";
    let kinds = [
        (DOCA_RDMA_ADDR_TYPE_IPv4, v4, v4),
        (DOCA_RDMA_ADDR_TYPE_IPv6, v6, v6),
        (DOCA_RDMA_ADDR_TYPE_GID, gid, gid),
        // Any address leads to this machine.
        (DOCA_RDMA_ADDR_TYPE_IPv4, c"192.168.100.2", v4),
    ];
    for (round, (kind, text, clients)) in kinds.into_iter().enumerate() {
        for side in [&server, &client] {
            side.log.by_address.take();
        }
        let addr = Addr::new(kind, text, port);
        ok(client.call(&addr, 5));
        assert_eq!(client.events(), [], "callbacks come from progress");
        assert_eq!(
            client.events_with(&server, 1),
            [(ConnectionEvent::Established, 5)],
            "{text:?}"
        );
        let events = server.events_with(&client, 2);
        assert_eq!(
            events,
            [
                (ConnectionEvent::Request, 0),
                (ConnectionEvent::Established, 77)
            ]
        );
        let (to_client, to_server) = (server.last_connection(), client.last_connection());

        let (memory, bufs) = (Memory::local(64), Bufs::new());
        memory.write(0, b"question");
        let (before, room) = (client.completed().len(), bufs.room(&memory.mmap, 32, 8));
        submit(server.receive(c(room), round as u64));
        submit(client.send(to_server, c(bufs.data(&memory.mmap, 0, 8)), 2));
        client.wait(before + 1);
        server.wait(2 * round + 1);
        assert_eq!(memory.read(32, 8), b"question");
        submit(client.receive(c(bufs.room(&memory.mmap, 48, 8)), 3));
        submit(server.send(to_client, c(bufs.data(&memory.mmap, 0, 8)), 4));
        assert_eq!(server.wait(2 * round + 2)[2 * round + 1], (4, 0));
        client.wait(before + 2);

        let (mut used, mut refused) = (null_mut(), 0);
        // SAFETY: live handles and valid out-parameters.
        unsafe {
            ok(doca_rdma_connection_get_addr(to_server, &mut used));
            assert_eq!(used, addr.0);
            ok(doca_rdma_connection_get_addr(to_client, &mut used));
            let (mut of_kind, mut host, mut at) = (0, null(), 0);
            ok(doca_rdma_addr_get_params(
                used,
                &mut of_kind,
                &mut host,
                &mut at,
            ));
            assert_eq!((of_kind, at), (kind, port), "the port that it came to");
            assert_eq!(CStr::from_ptr(host), clients);
            let not_permitted = Error::NotPermitted.code();
            assert_eq!(doca_rdma_addr_destroy(used), not_permitted);
            refused += doca_rdma_addr_destroy(addr.0);
        }
        assert_eq!(refused, Error::BadState.code(), "in use");

        // Either side may disconnect; both get a callback, and respond by disconnecting.
        let ender = if round % 2 == 0 { to_server } else { to_client };
        // SAFETY: a live connection.
        ok(unsafe { doca_rdma_connection_disconnect(ender) });
        let events = client.events_with(&server, 2);
        assert_eq!(events[1..], [(ConnectionEvent::Disconnection, 5)]);
        assert_eq!(
            server.events_with(&client, 3)[2..],
            [(ConnectionEvent::Disconnection, 77)]
        );
        assert_eq!(client.state(), DOCA_CTX_STATE_RUNNING);
        // Programs also read it in the disconnection callback.
        let mut used = null_mut();
        // SAFETY: connections whose instances have not been started again.
        unsafe {
            ok(doca_rdma_connection_get_addr(to_client, &mut used));
            assert!(!used.is_null());
            ok(doca_rdma_connection_get_addr(to_server, &mut used));
            assert!(used.is_null(), "the program may destroy it");
        }
    }
}

#[test]
fn each_device_has_ports_of_its_own() {
    let port = port();
    let other = Device::open_by_name("mlx5_1").expect("the built-in topology has it");
    // The first GID is the device's own; the addresses of the built-in devices are the same.
    let gids = [device(), Arc::clone(&other)].map(|device| crate::rdma::gids(device.model())[0]);
    let addrs = gids.map(|gid| {
        let text = std::net::Ipv6Addr::from(gid).to_string();
        let text = std::ffi::CString::new(text).expect("no zero");
        Addr::new(DOCA_RDMA_ADDR_TYPE_GID, &text, port)
    });
    let servers = [start(1), start_on(other, 1)];
    for server in &servers {
        ok(server.listen(port));
    }
    let client = start(2);
    for (number, addr) in addrs.iter().enumerate() {
        ok(client.call(addr, number as u64));
        client.events_with(&servers[number], number + 1);
        servers[number].events_with(&client, 2);
        let others = servers[1 - number].events().len();
        assert_eq!(others, 2 * number, "the other server was not asked");
    }
}

#[test]
fn several_clients_connect_to_one_port() {
    let port = port();
    let addr = Addr::local(port);
    let server = start(3);
    ok(server.listen(port));
    let clients: Vec<Side> = (0..4).map(|_| start(1)).collect();
    for (number, client) in clients.iter().take(3).enumerate() {
        ok(client.call(&addr, number as u64));
        client.events_with(&server, 1);
        server.events_with(client, 2 * (number + 1));
    }
    // The fourth exceeds the limit; the server's request callback is not called.
    ok(clients[3].call(&addr, 9));
    assert_eq!(
        clients[3].events_with(&server, 1),
        [(ConnectionEvent::Failure, 9)]
    );
    assert_eq!(server.events().len(), 6);
    for user in 0..3 {
        submit(server.receive(null_mut(), user));
    }
    for client in &clients[..3] {
        submit(client.send(client.last_connection(), null_mut(), 1));
        assert_eq!(client.wait(1), [(1, 0)]);
    }
    assert_eq!(server.wait(3).len(), 3);
}

#[test]
fn a_rejected_client_is_notified_and_may_retry() {
    let port = port();
    let addr = Addr::local(port);
    let (server, client) = (start(1), start(1));
    ok(server.listen(port));
    server.log.answer.set(Answer::Reject);
    ok(client.call(&addr, 1));
    assert_eq!(
        client.events_with(&server, 1),
        [(ConnectionEvent::Failure, 1)]
    );
    assert_eq!(
        server.events(),
        [(ConnectionEvent::Request, 0)],
        "it has rejected itself"
    );
    server.log.answer.set(Answer::Accept);
    ok(client.call(&addr, 2));
    assert_eq!(
        client.events_with(&server, 2)[1..],
        [(ConnectionEvent::Established, 2)]
    );
    assert_eq!(client.state(), DOCA_CTX_STATE_RUNNING);
}

#[test]
fn a_program_may_answer_a_request_later_and_only_once() {
    let port = port();
    let addr = Addr::local(port);
    let (server, client) = (start(1), start(1));
    ok(server.listen(port));
    server.log.answer.set(Answer::Later);
    ok(client.call(&addr, 1));
    server.events_with(&client, 1);
    client.rest(&server);
    assert_eq!(client.events(), []);
    let asked = server.last_connection();
    // SAFETY: live connections, or NULL.
    unsafe {
        let invalid = Error::InvalidValue.code();
        assert_eq!(doca_rdma_connection_accept(asked, null_mut(), 3), invalid);
        ok(doca_rdma_connection_accept(asked, null_mut(), 0));
        let state = Error::BadState.code();
        assert_eq!(doca_rdma_connection_accept(asked, null_mut(), 0), state);
        assert_eq!(doca_rdma_connection_reject(asked), state);
        assert_eq!(
            doca_rdma_connection_accept(null_mut(), null_mut(), 0),
            invalid
        );
        assert_eq!(doca_rdma_connection_reject(null_mut()), invalid);
    }
    client.events_with(&server, 1);
    server.events_with(&client, 2);
    // SAFETY: a live connection.
    let established = unsafe { doca_rdma_connection_reject(asked) };
    assert_eq!(established, Error::BadState.code());
}

#[test]
fn a_client_that_disconnects_before_the_answer_is_detected() {
    let port = port();
    let addr = Addr::local(port);
    let server = start(1);
    ok(server.listen(port));
    server.log.answer.set(Answer::Later);
    let client = start(1);
    ok(client.call(&addr, 1));
    server.events_with(&client, 1);
    let asked = server.last_connection();
    drop(client);
    assert_eq!(
        server.events_with(&server, 2)[1..],
        [(ConnectionEvent::Failure, 0)]
    );
    // SAFETY: a connection that has ended, of a live instance.
    let late = unsafe { doca_rdma_connection_accept(asked, null_mut(), 0) };
    assert_eq!(late, Error::ConnectionAborted.code());
    // The slot of the rejected connection is free.
    server.log.answer.set(Answer::Accept);
    let client = start(1);
    ok(client.call(&addr, 2));
    assert_eq!(
        client.events_with(&server, 1),
        [(ConnectionEvent::Established, 2)]
    );
}

/// The client gets the established callback first, and may use the connection immediately.
#[test]
fn no_message_arrives_before_its_connection_is_established() {
    let port = port();
    let addr = Addr::local(port);
    let (server, client) = (start(1), start(1));
    ok(server.listen(port));
    submit(server.receive(null_mut(), 1));
    ok(client.call(&addr, 2));
    server.wait_until("the request", |server| server.events().len() == 1);
    client.wait_until("the acceptance", |client| client.events().len() == 1);
    submit(client.send(client.last_connection(), null_mut(), 3));
    assert_eq!(client.wait(1), [(3, 0)], "it needs nothing of the server");
    while server.events().len() < 2 {
        assert_eq!(server.completed(), []);
        server.progress();
        if server.events().len() < 2 {
            assert_eq!(server.completed(), [], "before it was established");
        }
    }
    assert_eq!(server.wait(1), [(1, 0)]);
}

#[test]
fn a_stopping_server_rejects_unanswered_requests() {
    let port = port();
    let addr = Addr::local(port);
    let (server, client, late) = (start(1), start(1), start(1));
    ok(server.listen(port));
    server.log.answer.set(Answer::Later);
    ok(client.call(&addr, 1));
    server.events_with(&client, 1);
    // This request is queued at the port, because the server has not polled.
    ok(late.call(&addr, 2));
    server.stop();
    assert_eq!(
        client.events_with(&client, 1),
        [(ConnectionEvent::Failure, 1)]
    );
    assert_eq!(late.events_with(&late, 1), [(ConnectionEvent::Failure, 2)]);
    assert_eq!(
        server.events().len(),
        1,
        "a stopped instance reports nothing"
    );
}

#[test]
fn connecting_to_a_port_without_a_listener_fails() {
    let port = port();
    let addr = Addr::local(port);
    let (server, client) = (start(1), start(1));
    ok(client.call(&addr, 1));
    assert_eq!(client.events(), []);
    assert_eq!(
        client.events_with(&server, 1),
        [(ConnectionEvent::Failure, 1)]
    );
    ok(server.listen(port));
    ok(client.call(&addr, 2));
    assert_eq!(
        client.events_with(&server, 2)[1..],
        [(ConnectionEvent::Established, 2)]
    );
    // SAFETY: a live handle.
    ok(unsafe { doca_rdma_stop_listen_to_port(server.rdma, port) });
    // The connection remains open, although the port is closed.
    submit(server.receive(null_mut(), 8));
    submit(client.send(client.last_connection(), null_mut(), 9));
    // The server may not have processed that the connection is established.
    client.wait_until("completions", |side| {
        server.progress();
        side.completed().len() == 1
    });
    assert_eq!(client.completed(), [(9, 0)]);
    assert_eq!(server.wait(1), [(8, 0)]);
    let late = start(1);
    ok(late.call(&addr, 3));
    assert_eq!(
        late.events_with(&server, 1),
        [(ConnectionEvent::Failure, 3)]
    );
    // Another instance can use it.
    ok(late.listen(port));
}

#[test]
fn ports_belong_to_one_instance() {
    let (a, b, port) = (start(1), start(1), port());
    let invalid = Error::InvalidValue.code();
    ok(a.listen(port));
    assert_eq!(b.listen(port), Error::AlreadyExist.code());
    assert_eq!(a.listen(0), invalid);
    // SAFETY: live handles, or NULL.
    unsafe {
        assert_eq!(doca_rdma_stop_listen_to_port(b.rdma, port), invalid);
        assert_eq!(doca_rdma_start_listen_to_port(null_mut(), port), invalid);
        assert_eq!(doca_rdma_stop_listen_to_port(null_mut(), port), invalid);
    }
    // An instance that stops releases its ports.
    a.stop();
    ok(b.listen(port));
    assert_eq!(a.listen(port), Error::BadState.code());
    let addr = Addr::local(port);
    assert_eq!(a.call(&addr, 1), Error::BadState.code());
    // SAFETY: a live handle, and NULL.
    let none = unsafe { doca_rdma_connect_to_addr(b.rdma, null_mut(), doca_data { u64: 0 }) };
    assert_eq!(none, invalid);
}

#[test]
fn a_server_without_a_callback_for_requests_rejects_them() {
    let port = port();
    let addr = Addr::local(port);
    let (server, client) = (Side::start(ALL, 1), start(1));
    ok(server.listen(port));
    ok(client.call(&addr, 1));
    assert_eq!(
        client.events_with(&server, 1),
        [(ConnectionEvent::Failure, 1)]
    );
}

#[test]
fn address_parameters_can_be_read_back() {
    let addr = Addr::new(DOCA_RDMA_ADDR_TYPE_IPv6, c"::1", 4791);
    let (mut kind, mut text, mut port) = (9, null(), 0);
    // SAFETY: a live address and valid out-parameters, or NULL; strings.
    unsafe {
        ok(doca_rdma_addr_get_params(
            addr.0, &mut kind, &mut text, &mut port,
        ));
        assert_eq!((kind, port), (DOCA_RDMA_ADDR_TYPE_IPv6, 4791));
        assert_eq!(CStr::from_ptr(text), c"::1");
        let invalid = Error::InvalidValue.code();
        let get = doca_rdma_addr_get_params;
        assert_eq!(get(null_mut(), &mut kind, &mut text, &mut port), invalid);
        assert_eq!(get(addr.0, null_mut(), &mut text, &mut port), invalid);
        assert_eq!(get(addr.0, &mut kind, null_mut(), &mut port), invalid);
        assert_eq!(get(addr.0, &mut kind, &mut text, null_mut()), invalid);
        let mut other = null_mut();
        let create = doca_rdma_addr_create;
        assert_eq!(create(0, c"::1".as_ptr(), 1, &mut other), invalid);
        assert_eq!(create(1, null(), 1, &mut other), invalid);
        assert_eq!(create(1, c"::1".as_ptr(), 1, null_mut()), invalid);
        assert_eq!(doca_rdma_addr_destroy(null_mut()), invalid);
        let none = doca_rdma_connection_get_addr(null(), &mut other);
        assert_eq!(none, invalid);
    }
}

/// Programs stop the instance in the callback of their last completion, and expect it to be stopping then.
#[test]
fn an_instance_that_is_stopped_in_its_callback_becomes_idle_afterwards() {
    static STOPPED: AtomicU16 = AtomicU16::new(u16::MAX);
    unsafe extern "C" fn stop(_: *mut doca_rdma_connection, _: doca_data, ctx_data: doca_data) {
        // SAFETY: the context data of this test is the context.
        let code = unsafe { doca_ctx_stop(ctx_data.ptr.cast()) };
        STOPPED.store(code as u16, Ordering::Relaxed);
    }
    let side = Side::new(ALL, 1);
    // SAFETY: live handles.
    unsafe {
        let none = doca_rdma_set_connection_state_callbacks(
            side.rdma,
            None,
            Some(stop),
            Some(stop),
            Some(stop),
        );
        ok(none);
        let ctx = side.ctx();
        ok(crate::capi::doca_pe::doca_ctx_set_state_changed_cb(
            ctx, None,
        ));
        let data = doca_data { ptr: ctx.cast() };
        ok(crate::capi::doca_pe::doca_ctx_set_user_data(ctx, data));
        ok(doca_ctx_start(ctx));
    }
    let addr = Addr::local(port());
    ok(side.call(&addr, 0));
    side.wait_until("the stop", |side| side.state() == DOCA_CTX_STATE_IDLE);
    assert_eq!(
        u32::from(STOPPED.load(Ordering::Relaxed)),
        Error::InProgress.code()
    );
}

fn come(port: u16) -> Socket {
    let directory = RuntimeDir::get().expect("a runtime directory");
    let pci = device().model().pci.to_string();
    let name = named_socket("rdma", &[&pci, &port.to_string()]);
    Socket::connect(&directory, &name).expect("the server listens")
}

/// A handshake message without private data: kind and connection details.
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

/// A server whose program responds later, and its port.
fn server() -> (Side, u16) {
    let (server, port) = (start(1), port());
    ok(server.listen(port));
    server.log.answer.set(Answer::Later);
    (server, port)
}

/// Checks that the server still accepts another client.
fn check_still_there(server: &Side, port: u16) {
    let addr = Addr::local(port);
    let client = start(1);
    server.log.answer.set(Answer::Accept);
    ok(client.call(&addr, 1));
    client.wait_until("the connection", |client| {
        server.progress();
        client.events() == [(ConnectionEvent::Established, 1)]
    });
}

#[test]
fn accepting_a_request_of_a_dead_peer_fails() {
    let (server, port) = server();
    let ghost = Side::start(ALL, 1);
    let (details, _) = ghost.export();
    drop(ghost);
    let socket = come(port);
    socket.send(&word(REQUEST, &details), &[]).expect("room");
    server.wait_until("the request", |server| server.events().len() == 1);
    // SAFETY: a connection of a live instance.
    let accepted = unsafe { doca_rdma_connection_accept(server.last_connection(), null_mut(), 0) };
    assert_eq!(accepted, Error::ConnectionAborted.code());
    server.wait_until("the failure", |server| server.events().len() == 2);
    assert_eq!(server.events()[1], (ConnectionEvent::Failure, 0));
    assert!(socket.is_closed());
    check_still_there(&server, port);
}

#[test]
fn a_client_that_is_ready_before_it_was_accepted_is_disconnected() {
    let (server, port) = server();
    let client = Side::start(ALL, 1);
    let (details, _) = client.export();
    let socket = come(port);
    socket.send(&word(REQUEST, &details), &[]).expect("room");
    server.wait_until("the request", |server| server.events().len() == 1);
    socket.send(&word(READY, &[]), &[]).expect("room");
    server.wait_until("the failure", |server| server.events().len() == 2);
    assert_eq!(server.events()[1], (ConnectionEvent::Failure, 0));
    assert!(socket.is_closed());
    check_still_there(&server, port);
}

#[test]
fn a_client_that_leaves_before_it_is_ready_fails_its_connection() {
    let (server, port) = server();
    let client = Side::start(ALL, 1);
    let (details, _) = client.export();
    let socket = come(port);
    socket.send(&word(REQUEST, &details), &[]).expect("room");
    server.wait_until("the request", |server| server.events().len() == 1);
    // SAFETY: a connection of a live instance.
    ok(unsafe { doca_rdma_connection_accept(server.last_connection(), null_mut(), 0) });
    client.rest(&server);
    assert_eq!(server.events().len(), 1, "not established yet");
    drop(socket);
    server.wait_until("the failure", |server| server.events().len() == 2);
    assert_eq!(server.events()[1], (ConnectionEvent::Failure, 0));
    check_still_there(&server, port);
}

#[test]
fn invalid_requests_are_closed_without_a_callback() {
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
        .events()
        .iter()
        .filter(|event| event.0 == ConnectionEvent::Request)
        .count();
    assert_eq!(requests, 1, "that of the client that followed the protocol");
}

#[test]
fn an_instance_runs_when_it_is_started_and_is_idle_when_stopped() {
    let side = Side::new(ALL, 1);
    assert_eq!(
        side.try_export().unwrap_err(),
        Error::BadState.code(),
        "not started"
    );
    // SAFETY: a live handle.
    ok(unsafe { crate::capi::doca_pe::doca_ctx_start(side.ctx()) });
    assert_eq!(side.state(), DOCA_CTX_STATE_RUNNING);
    // SAFETY: a live handle.
    unsafe {
        assert_eq!(
            doca_rdma_set_permissions(side.rdma, 1),
            Error::BadState.code()
        );
        assert_eq!(doca_rdma_destroy(side.rdma), Error::BadState.code());
    }
    let (details, _) = side.export();
    assert!(details.len() <= 512);
    assert_eq!(side.try_export().unwrap_err(), Error::Full.code());
    side.stop();
    assert_eq!(
        *side.log.states.borrow(),
        [
            (DOCA_CTX_STATE_IDLE, DOCA_CTX_STATE_RUNNING),
            (DOCA_CTX_STATE_RUNNING, DOCA_CTX_STATE_IDLE)
        ]
    );
    // SAFETY: a live handle.
    ok(unsafe { crate::capi::doca_pe::doca_ctx_start(side.ctx()) });
    side.export();
}

#[test]
fn details_are_valid_for_one_peer_while_the_connection_exists() {
    let (a, b, late) = (
        Side::start(ALL, 1),
        Side::start(ALL, 1),
        Side::start(ALL, 1),
    );
    let ((details, _), (b_details, b_connection), (_, late_connection)) =
        (a.export(), b.export(), late.export());
    assert_eq!(
        b.connect(late_connection, &details),
        Error::InvalidValue.code(),
        "another's"
    );
    assert_eq!(
        b.connect(b_connection, &details[1..]),
        Error::ConnectionAborted.code()
    );
    assert_eq!(
        b.connect(b_connection, &[]),
        Error::ConnectionAborted.code()
    );
    ok(b.connect(b_connection, &details));
    assert_eq!(b.connect(b_connection, &details), Error::BadState.code());
    assert_eq!(
        late.connect(late_connection, &details),
        Error::AlreadyExist.code(),
        "a replay"
    );
    b.stop();
    assert_eq!(
        late.connect(late_connection, &b_details),
        Error::ConnectionAborted.code()
    );
    late.wait_until("nothing", |_| true);
    assert_eq!(a.log.established.get() + late.log.established.get(), 0);
    assert_eq!(
        b.log.established.get(),
        0,
        "it stopped before the callback was called"
    );
}

#[test]
fn stopping_flushes_tasks_and_closes_the_connection_for_the_peer() {
    let ((a, to_b), (b, to_a)) = pair();
    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    submit(b.receive(c(bufs.room(&memory.mmap, 0, 10)), 1));
    submit(b.receive(c(bufs.room(&memory.mmap, 10, 10)), 2));
    submit(b.send(to_a, c(bufs.data(&memory.mmap, 20, 10)), 3));
    // Messages sent before the disconnection arrive before its event.
    memory.write(30, b"last words");
    submit(a.send(to_b, c(bufs.data(&memory.mmap, 30, 10)), 4));
    a.wait(1);
    a.stop();
    let reset = Error::ConnectionReset.code();
    b.free_failed_tasks();
    assert_eq!(b.wait(2)[..2], [(1, 0), (3, reset)]);
    assert_eq!(memory.read(0, 10), b"last words");
    assert_eq!(b.log.established.get(), 1);
    // The failed send was the last possible use of the connection, which breaks the context.
    b.wait_until("the stop", |b| b.state() == DOCA_CTX_STATE_STOPPING);
    b.wait_until("the flush", |b| b.completed().len() == 3);
    assert_eq!(b.completed()[2], (2, Error::ConnectionAborted.code()));
    b.wait_until("the disconnection", |b| b.log.disconnected.get() == 1);
}

#[test]
fn an_orderly_disconnect_leaves_receives_posted() {
    let ((a, to_b), (b, _)) = pair();
    submit(b.receive(std::ptr::null_mut(), 1));
    a.stop();
    b.wait_until("the disconnection", |b| b.log.disconnected.get() == 1);
    assert_eq!(b.state(), DOCA_CTX_STATE_RUNNING);
    assert_eq!(b.completed(), []);
    let _ = to_b;
    // The slot of the closed connection is free again.
    let c = Side::start(ALL, 1);
    let ((b_details, b_connection), (c_details, c_connection)) = (b.export(), c.export());
    ok(b.connect(b_connection, &c_details));
    ok(c.connect(c_connection, &b_details));
    submit(c.send(c_connection, std::ptr::null_mut(), 5));
    assert_eq!(c.wait(1), [(5, 0)]);
    assert_eq!(b.wait(1), [(1, 0)]);
}

#[test]
fn a_disconnected_connection_fails_its_tasks() {
    let ((a, to_b), (b, _)) = pair();
    let queued = a.send(to_b, std::ptr::null_mut(), 1);
    submit(queued);
    // SAFETY: a live connection.
    unsafe {
        ok(doca_rdma_connection_disconnect(to_b));
        // As programs do in response to the notification.
        ok(doca_rdma_connection_disconnect(to_b));
    }
    a.free_failed_tasks();
    assert_eq!(a.wait(1), [(1, Error::ConnectionReset.code())]);
    b.wait_until("the disconnection", |b| b.log.disconnected.get() == 1);
    a.rest(&b);
    assert_eq!(a.log.disconnected.get(), 1, "reported once");
}

#[test]
fn a_send_on_an_ended_connection_fails_through_its_callback() {
    let ((a, to_b), (b, _)) = pair();
    b.stop();
    a.wait_until("the disconnection", |a| a.log.disconnected.get() == 1);
    submit(a.send(to_b, std::ptr::null_mut(), 1));
    assert_eq!(a.wait(1), [(1, Error::ConnectionReset.code())]);
}

#[test]
fn pointers_that_are_no_connection_are_refused() {
    let ((a, _), (_, to_a)) = pair();
    let mut task = std::ptr::null_mut();
    let none = doca_abi::doca_data { u64: 0 };
    // SAFETY: the connection pointer is not dereferenced; the others are valid.
    unsafe {
        assert_eq!(
            doca_rdma_task_send_allocate_init(a.rdma, to_a, std::ptr::null(), none, &mut task),
            Error::InvalidValue.code()
        );
        assert_eq!(
            doca_rdma_task_send_allocate_init(
                a.rdma,
                std::ptr::null_mut(),
                std::ptr::null(),
                none,
                &mut task
            ),
            Error::InvalidValue.code()
        );
        assert_eq!(
            doca_rdma_connection_disconnect(std::ptr::null_mut()),
            Error::InvalidValue.code()
        );
        assert_eq!(
            doca_rdma_create(std::ptr::null_mut(), &mut std::ptr::null_mut()),
            Error::InvalidValue.code()
        );
    }
}

fn start_dynamic() -> Side {
    let side = Side::new(ALL, 2);
    // SAFETY: live handles.
    unsafe {
        ok(doca_rdma_set_transport_type(
            side.rdma,
            DOCA_RDMA_TRANSPORT_TYPE_DC,
        ));
        ok(doca_ctx_start(side.ctx()));
    }
    side
}

#[test]
fn a_send_reaches_a_target_that_has_not_connected() {
    let (initiator, target) = (start_dynamic(), start_dynamic());
    let ((_, to_target), (details, _)) = (initiator.export(), target.export());
    ok(initiator.connect(to_target, &details));

    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    memory.write(0, b"dynamic");
    submit(target.receive(c(bufs.room(&memory.mmap, 100, 50)), 1));
    submit(initiator.send(to_target, c(bufs.data(&memory.mmap, 0, 7)), 2));
    assert_eq!(initiator.wait(1), [(2, 0)]);
    assert_eq!(target.wait(1), [(1, 0)]);
    assert_eq!(memory.read(100, 8), b"dynamic\0");

    // The target is not notified of a departing initiator, and accepts the next.
    initiator.stop();
    for _ in 0..1000 {
        target.progress();
    }
    assert_eq!(target.log.disconnected.get(), 0);
    assert_eq!(target.log.established.get(), 0);
    target.export();
    target.export();
}

#[test]
fn both_sides_need_the_same_transport_and_dynamic_ones_cannot_listen() {
    let (dynamic, reliable) = (start_dynamic(), Side::start(ALL, 1));
    let ((details, connection), (others, other)) = (dynamic.export(), reliable.export());
    let invalid = Error::InvalidValue.code();
    assert_eq!(reliable.connect(other, &details), invalid);
    assert_eq!(dynamic.connect(connection, &others), invalid);
    // SAFETY: a live handle.
    let listens = unsafe { doca_rdma_start_listen_to_port(dynamic.rdma, 4791) };
    assert_eq!(listens, Error::NotSupported.code());
}
