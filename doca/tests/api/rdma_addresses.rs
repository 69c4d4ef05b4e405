//! RDMA connections by address, and messages with immediate values.

use crate::support;
use std::net::SocketAddr;

use crate::support::{completions, devices, isolated, memory};
use doca::{
    Access, Device, ErrorCode, Mmap, Pe, Rdma, RdmaAddress, RdmaConnection, RdmaEvent, Received,
};

const PORT: u16 = 18_515;

struct End {
    pe: Pe,
    rdma: Rdma,
}

fn end(device: &Device) -> End {
    let pe = Pe::new().unwrap();
    let rdma = Rdma::builder(device)
        .permissions(Access::RDMA_WRITE | Access::LOCAL_READ_WRITE)
        .receive_tasks(2)
        .send_immediate_tasks(1)
        .write_immediate_tasks(1)
        .by_address()
        .start(&pe)
        .unwrap();
    End { pe, rdma }
}

fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], PORT))
}

/// The next connection event of `end`, while both make progress.
fn told(end: &End, other: &End) -> RdmaEvent {
    let start = std::time::Instant::now();
    while start.elapsed() < support::TIMEOUT {
        for pe in [&end.pe, &other.pe] {
            pe.poll();
        }
        if let Some(event) = end.rdma.connection_event() {
            return event;
        }
    }
    panic!("nothing was told");
}

fn established(event: RdmaEvent, expected: u64) -> RdmaConnection {
    match event {
        RdmaEvent::Established { connection, token } if token == expected => connection,
        event => panic!("unexpected {event:?}"),
    }
}

fn connect(server: &End, client: &End) -> (RdmaConnection, RdmaConnection) {
    client.rdma.connect_to(address(), 7).unwrap();
    let RdmaEvent::Requested(asked) = told(server, client) else {
        panic!("a request comes first");
    };
    server.rdma.accept(&asked, 8).unwrap();
    let to_server = established(told(client, server), 7);
    let to_client = established(told(server, client), 8);
    assert_eq!(to_client, asked);
    (to_client, to_server)
}

#[test]
fn a_client_finds_a_server_and_both_see_the_end() {
    isolated("a_client_finds_a_server_and_both_see_the_end", || {
        let device = devices().dpu;
        let (server, client) = (end(&device), end(&device));
        server.rdma.listen(PORT).unwrap();
        for round in 0..2 {
            let (to_client, to_server) = connect(&server, &client);
            assert!(to_client.is_alive() && to_server.is_alive());
            let (by, of) = match round {
                0 => (&client, &to_server),
                _ => (&server, &to_client),
            };
            by.rdma.disconnect(of).unwrap();
            for (end, other, connection, token) in [
                (&client, &server, &to_server, 7),
                (&server, &client, &to_client, 8),
            ] {
                let expected = RdmaEvent::Disconnected {
                    connection: connection.clone(),
                    token,
                };
                assert_eq!(told(end, other), expected);
                assert!(!connection.is_alive());
                let late = end.rdma.disconnect(connection).unwrap_err();
                assert_eq!(late.code, ErrorCode::NOT_CONNECTED);
            }
        }
    });
}

#[test]
fn rejected_and_unanswered_requests_are_reported() {
    isolated("rejected_and_unanswered_requests_are_reported", || {
        let device = devices().dpu;
        let (server, client) = (end(&device), end(&device));
        client.rdma.connect_to(address(), 1).unwrap();
        assert_eq!(told(&client, &server), RdmaEvent::Failed { token: 1 });
        server.rdma.listen(PORT).unwrap();
        let taken = client.rdma.listen(PORT).unwrap_err();
        assert_eq!(taken.code, ErrorCode::ALREADY_EXIST);
        // The device's address as a GID.
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
        client
            .rdma
            .connect_to(RdmaAddress::Gid(gid, PORT), 2)
            .unwrap();
        let RdmaEvent::Requested(asked) = told(&server, &client) else {
            panic!("a request comes first");
        };
        server.rdma.reject(&asked).unwrap();
        assert!(!asked.is_alive());
        assert_eq!(told(&client, &server), RdmaEvent::Failed { token: 2 });
        server.rdma.stop_listening(PORT).unwrap();
        client.rdma.connect_to(address(), 3).unwrap();
        assert_eq!(told(&client, &server), RdmaEvent::Failed { token: 3 });
        let port_0 = SocketAddr::from(([127, 0, 0, 1], 0));
        let invalid = client.rdma.connect_to(port_0, 4).unwrap_err();
        assert_eq!(invalid.code, ErrorCode::INVALID_VALUE);
    });
}

#[test]
fn an_instance_that_was_not_set_up_for_addresses_says_so() {
    isolated(
        "an_instance_that_was_not_set_up_for_addresses_says_so",
        || {
            let pe = Pe::new().unwrap();
            let rdma = Rdma::builder(&devices().dpu)
                .receive_tasks(1)
                .start(&pe)
                .unwrap();
            for refused in [rdma.listen(PORT), rdma.connect_to(address(), 1)] {
                let error = refused.unwrap_err();
                assert_eq!(error.code, ErrorCode::NOT_SUPPORTED);
                assert!(error.to_string().contains("by_address"), "{error}");
            }
        },
    );
}

#[test]
fn receives_report_the_kind_of_message() {
    isolated("receives_report_the_kind_of_message", || {
        let device = devices().dpu;
        let (server, client) = (end(&device), end(&device));
        server.rdma.listen(PORT).unwrap();
        let (_, to_server) = connect(&server, &client);
        let remote = Access::RDMA_WRITE | Access::LOCAL_READ_WRITE;
        let (theirs, their_bufs) = memory(&device, 4096, remote);
        let imported = Mmap::import(&device, &theirs.export_rdma(&device).unwrap()).unwrap();
        let (mine, bufs) = memory(&device, 4096, Access::LOCAL_READ_WRITE);

        let room = their_bufs.buf(&theirs, 0, 64).unwrap();
        let receive = server.rdma.receive_any_task(Some(&room), 1).unwrap();
        assert_eq!(receive.received(), None, "nothing yet");
        let source = bufs.buf(&mine, 0, 64).unwrap();
        source.write_data(b"message").unwrap();
        let send = client
            .rdma
            .send_immediate_task(&to_server, Some(&source), 0x0102_0304, 2)
            .unwrap();
        receive.submit().unwrap();
        send.submit().unwrap();
        let done = completions(2, &[&server.pe, &client.pe]);
        assert!(done.iter().all(|done| done.result == Ok(())), "{done:?}");
        let message = Received::Message {
            len: 7,
            immediate: Some(0x0102_0304),
        };
        assert_eq!(receive.received(), Some(message));

        let anything = server.rdma.receive_any_task(None, 3).unwrap();
        let there = bufs.buf(&imported, 1000, 64).unwrap();
        let write = client
            .rdma
            .write_immediate_task(&to_server, &source, &there, 5, 4)
            .unwrap();
        anything.submit().unwrap();
        write.submit().unwrap();
        completions(2, &[&server.pe, &client.pe]);
        let written = Received::Written {
            len: 7,
            immediate: 5,
        };
        assert_eq!(anything.received(), Some(written));
        let mut bytes = [0; 7];
        theirs.region().unwrap().read(1000, &mut bytes).unwrap();
        assert_eq!(&bytes, b"message");
        // A flushed task has received nothing.
        receive.submit().unwrap();
        assert_eq!(receive.received(), None);
        server.rdma.stop().unwrap();
        completions(1, &[&server.pe]);
        assert_eq!(receive.received(), None);
    });
}
