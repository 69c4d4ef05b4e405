//! RDMA messages, reads and writes between two instances of one process; sync events, and RDMA tasks on them and on
//! other 64-bit values of the peer.

use std::net::SocketAddr;
use std::time::Duration;

use doca::{
    Access, BufInventory, CtxState, Device, ErrorCode, Mmap, Pe, Rdma, RdmaAddress, RdmaConnection,
    RdmaEvent, Received, RemoteSyncEvent, SyncEvent,
};

use crate::support;
use crate::support::{completions, devices, isolated, memory, settle};

struct Instance {
    pe: Pe,
    rdma: Rdma,
    connection: RdmaConnection,
    description: Vec<u8>,
}

fn instance(device: &Device, permissions: Access) -> Instance {
    let pe = Pe::new().unwrap();
    let rdma = Rdma::builder(device)
        .permissions(permissions)
        .receive_tasks(8)
        .send_tasks(8)
        .read_tasks(8)
        .write_tasks(8)
        .start(&pe)
        .unwrap();
    assert_eq!(
        rdma.state(),
        CtxState::Running,
        "an instance runs when it was started"
    );
    let (description, connection) = rdma.export().unwrap();
    Instance {
        pe,
        rdma,
        connection,
        description,
    }
}

fn connected(device: &Device, permissions: Access) -> (Instance, Instance) {
    let (a, b) = (instance(device, permissions), instance(device, permissions));
    a.rdma.connect(&a.connection, &b.description).unwrap();
    b.rdma.connect(&b.connection, &a.description).unwrap();
    (a, b)
}

const REMOTE: Access = Access::RDMA_READ
    .union(Access::RDMA_WRITE)
    .union(Access::LOCAL_READ_WRITE);

#[test]
fn messages_arrive_in_order() {
    isolated("messages_arrive_in_order", || {
        let device = devices().dpu;
        let (a, b) = connected(&device, Access::LOCAL_READ_WRITE);
        let (mmap, inventory) = memory(&device, 16 * 1024, Access::LOCAL_READ_WRITE);
        let outgoing: Vec<_> = (0..4)
            .map(|i| inventory.buf(&mmap, i * 1024, 1024).unwrap())
            .collect();
        let incoming: Vec<_> = (4..8)
            .map(|i| inventory.buf(&mmap, i * 1024, 1024).unwrap())
            .collect();
        let sends: Vec<_> = (0..4)
            .map(|i| {
                a.rdma
                    .send_task(&a.connection, &outgoing[i], i as u64)
                    .unwrap()
            })
            .collect();
        let receives: Vec<_> = (0..4)
            .map(|i| b.rdma.receive_task(&incoming[i], 10 + i as u64).unwrap())
            .collect();
        for round in 0..100u64 {
            let message = |i: usize| {
                contents::noise(round * 4 + i as u64, (round as usize * 31 + i) % 1024 + 1)
            };
            receives.iter().for_each(|task| task.submit().unwrap());
            for i in 0..4 {
                outgoing[i].write_data(&message(i)).unwrap();
                sends[i].submit().unwrap();
            }
            let mut done = completions(8, &[&a.pe, &b.pe]);
            assert!(
                done.iter().all(|completion| completion.result == Ok(())),
                "{done:?}"
            );
            done.retain(|completion| completion.token >= 10);
            assert_eq!(
                done.iter()
                    .map(|completion| completion.token)
                    .collect::<Vec<_>>(),
                [10, 11, 12, 13]
            );
            for (i, buf) in incoming.iter().enumerate() {
                let mut bytes = [0; 1024];
                let len = buf.read_data(&mut bytes).unwrap();
                assert_eq!(bytes[..len], message(i));
                buf.reset_data().unwrap();
            }
        }
    });
}

#[test]
fn a_send_waits_for_the_peer_to_connect_and_to_receive() {
    isolated(
        "a_send_waits_for_the_peer_to_connect_and_to_receive",
        || {
            let device = devices().dpu;
            let (a, b) = (
                instance(&device, Access::LOCAL_READ_WRITE),
                instance(&device, Access::LOCAL_READ_WRITE),
            );
            let (mmap, inventory) = memory(&device, 4096, Access::LOCAL_READ_WRITE);
            let (source, destination) = (
                inventory.buf(&mmap, 0, 64).unwrap(),
                inventory.buf(&mmap, 64, 64).unwrap(),
            );
            source.write_data(b"timeouts").unwrap();
            a.rdma.connect(&a.connection, &b.description).unwrap();
            let send = a.rdma.send_task(&a.connection, &source, 1).unwrap();
            send.submit().unwrap();
            settle(&[&a.pe, &b.pe]);
            b.rdma.connect(&b.connection, &a.description).unwrap();
            settle(&[&a.pe, &b.pe]);
            let receive = b.rdma.receive_task(&destination, 2).unwrap();
            receive.submit().unwrap();
            let done = completions(2, &[&a.pe, &b.pe]);
            assert!(
                done.iter().all(|completion| completion.result == Ok(())),
                "{done:?}"
            );
            assert_eq!(destination.data_len().unwrap(), 8);
        },
    );
}

#[test]
fn remote_memory_is_read_and_written() {
    isolated("remote_memory_is_read_and_written", || {
        let device = devices().dpu;
        // Only `a` makes progress: reads and writes do not require progress of the peer.
        let (a, b) = connected(&device, REMOTE);
        let (theirs, _) = memory(&device, 100_000, REMOTE);
        let storage = theirs.region().unwrap();
        let content = contents::noise(1, 100_000);
        storage.write(0, &content).unwrap();
        let imported = Mmap::import(&device, &theirs.export_rdma(&device).unwrap()).unwrap();
        let (mine, inventory) = memory(&device, 100_000, Access::LOCAL_READ_WRITE);

        let remote = inventory.buf_with_data(&imported, 0, 100_000).unwrap();
        let local = inventory.buf(&mine, 0, 100_000).unwrap();
        let read = a.rdma.read_task(&a.connection, &remote, &local, 1).unwrap();
        for (offset, len) in [
            (0u64, 4096usize),
            (4096, 8192),
            (99_999, 1),
            (12_345, 67_890),
            (0, 100_000),
        ] {
            remote.set_data(offset, len).unwrap();
            local.set_range(offset, len).unwrap();
            read.submit().unwrap();
            assert_eq!(completions(1, &[&a.pe])[0].result, Ok(()));
            assert_eq!(local.data_len().unwrap(), len);
            let mut bytes = vec![0; len];
            mine.region()
                .unwrap()
                .read(offset as usize, &mut bytes)
                .unwrap();
            assert!(
                bytes == content[offset as usize..][..len],
                "{len} bytes at {offset}"
            );
        }

        let write = a
            .rdma
            .write_task(&a.connection, &local, &remote, 2)
            .unwrap();
        for (offset, len) in [(4096u64, 4096usize), (99_990, 10), (1, 60_000)] {
            let new = contents::noise(offset, len);
            mine.region().unwrap().write(0, &new).unwrap();
            local.set_data(0, len).unwrap();
            remote.set_range(offset, len).unwrap();
            write.submit().unwrap();
            assert_eq!(completions(1, &[&a.pe])[0].result, Ok(()));
            let mut bytes = vec![0; len];
            storage.read(offset as usize, &mut bytes).unwrap();
            assert!(bytes == new, "{len} bytes at {offset}");
        }
        drop(b);
    });
}

#[test]
fn memory_without_permission_is_left_alone() {
    isolated("memory_without_permission_is_left_alone", || {
        let device = devices().dpu;
        let (a, _b) = connected(&device, REMOTE);
        let read_only = Access::RDMA_READ | Access::LOCAL_READ_WRITE;
        let (theirs, _) = memory(&device, 4096, read_only);
        let imported = Mmap::import(&device, &theirs.export_rdma(&device).unwrap()).unwrap();
        let (mine, inventory) = memory(&device, 4096, Access::LOCAL_READ_WRITE);
        mine.region().unwrap().fill(0, 4096, 0xff).unwrap();
        let source = inventory.buf_with_data(&mine, 0, 4096).unwrap();
        let destination = inventory.buf(&imported, 0, 4096).unwrap();
        let refused = match a.rdma.write_task(&a.connection, &source, &destination, 1) {
            Err(_) => true,
            Ok(task) => task.submit().is_err() || completions(1, &[&a.pe])[0].result.is_err(),
        };
        assert!(refused, "a write into read-only memory");
        let mut bytes = [1; 4096];
        theirs.region().unwrap().read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
    });
}

#[test]
fn a_service_lets_the_target_write_the_hosts_memory() {
    isolated("a_service_lets_the_target_write_the_hosts_memory", || {
        let devices = devices();
        // The host exports across PCIe, the service imports and exports again, the target imports that.
        let (host, _) = memory(&devices.host, 64 * 1024, Access::PCI_READ_WRITE | REMOTE);
        let service = Mmap::import(&devices.dpu, &host.export_pci(&devices.host).unwrap()).unwrap();
        let target =
            Mmap::import(&devices.dpu, &service.export_rdma(&devices.dpu).unwrap()).unwrap();
        assert_eq!(target.len(), 64 * 1024);

        let (a, _b) = connected(&devices.dpu, REMOTE);
        let (storage, inventory) = memory(&devices.dpu, 4096, Access::LOCAL_READ_WRITE);
        let block = contents::noise(7, 4096);
        storage.region().unwrap().write(0, &block).unwrap();
        let source = inventory.buf_with_data(&storage, 0, 4096).unwrap();
        let destination = inventory.buf(&target, 8192, 4096).unwrap();
        let task = a
            .rdma
            .write_task(&a.connection, &source, &destination, 1)
            .unwrap();
        task.submit().unwrap();
        assert_eq!(completions(1, &[&a.pe])[0].result, Ok(()));
        let mut bytes = vec![0; 4096];
        host.region().unwrap().read(8192, &mut bytes).unwrap();
        assert!(bytes == block);
    });
}

#[test]
fn stopping_flushes_and_disables_tasks() {
    isolated("stopping_flushes_and_disables_tasks", || {
        let device = devices().dpu;
        let (a, b) = connected(&device, Access::LOCAL_READ_WRITE);
        let (mmap, inventory) = memory(&device, 4096, Access::LOCAL_READ_WRITE);
        let buf = inventory.buf(&mmap, 0, 64).unwrap();
        let receive = b.rdma.receive_task(&buf, 9).unwrap();
        receive.submit().unwrap();
        assert_eq!(b.rdma.in_flight(), 1);
        b.rdma.stop().unwrap();
        let flushed = completions(1, &[&b.pe]);
        assert_eq!(flushed[0].token, 9);
        assert!(flushed[0].result.is_err());
        assert_eq!(receive.submit(), Err(ErrorCode::BAD_STATE));
        // The buf is no longer in use, and everything can be dropped in any order.
        buf.set_range(0, 1).unwrap();
        drop((inventory, mmap, receive));
        a.rdma.stop().unwrap();
    });
}

#[test]
fn a_connection_that_has_ended_is_not_alive() {
    isolated("a_connection_that_has_ended_is_not_alive", || {
        let device = devices().dpu;
        // One side disconnects, stops its instance, or drops it.
        for how in 0..3 {
            let (a, b) = connected(&device, Access::LOCAL_READ_WRITE);
            assert!(a.connection.is_alive() && b.connection.is_alive());
            let ended = a.connection.clone();
            match how {
                0 => {
                    a.rdma.disconnect(&a.connection).unwrap();
                    assert!(!ended.is_alive(), "at once");
                    let late = a.rdma.disconnect(&a.connection).unwrap_err();
                    assert_eq!(late.code, ErrorCode::NOT_CONNECTED);
                }
                1 => a.rdma.stop().unwrap(),
                _ => drop(a.rdma),
            }
            assert!(!ended.is_alive(), "{how}");
            let other = || !b.connection.is_alive();
            assert!(
                b.pe.progress_until(Duration::from_secs(10), other),
                "{how}: the other side is not told"
            );
            let (mmap, inventory) = memory(&device, 4096, Access::LOCAL_READ_WRITE);
            let buf = inventory.buf_with_data(&mmap, 0, 64).unwrap();
            let late = b.rdma.send_task(&b.connection, &buf, 1).unwrap_err();
            assert_eq!(late.code, ErrorCode::NOT_CONNECTED);
            assert_eq!(b.rdma.connection_event(), None, "nobody asks for it");
        }
    });
}

#[test]
fn objects_of_another_instance_are_refused() {
    isolated("objects_of_another_instance_are_refused", || {
        let device = devices().dpu;
        let (a, b) = connected(&device, Access::LOCAL_READ_WRITE);
        let (mmap, _) = memory(&device, 4096, Access::LOCAL_READ_WRITE);
        let inventory = BufInventory::new(1).unwrap();
        let buf = inventory.buf(&mmap, 0, 64).unwrap();
        let error = a.rdma.send_task(&b.connection, &buf, 1).unwrap_err();
        assert_eq!(error.code, ErrorCode::INVALID_VALUE);
        let error = a.rdma.connect(&b.connection, &b.description).unwrap_err();
        assert_eq!(error.code, ErrorCode::INVALID_VALUE);
        a.rdma
            .export()
            .map(|(description, connection)| {
                a.rdma
                    .connect(&connection, &description[..description.len() / 2])
                    .unwrap_err();
            })
            .ok();
    });
}

const PORT: u16 = 18_515;

struct Node {
    pe: Pe,
    rdma: Rdma,
}

fn node(device: &Device) -> Node {
    let pe = Pe::new().unwrap();
    let rdma = Rdma::builder(device)
        .permissions(Access::RDMA_WRITE | Access::LOCAL_READ_WRITE)
        .receive_tasks(2)
        .send_immediate_tasks(1)
        .write_immediate_tasks(1)
        .by_address()
        .start(&pe)
        .unwrap();
    Node { pe, rdma }
}

fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], PORT))
}

/// The next connection event of `node`, while both make progress.
fn connection_event(node: &Node, other: &Node) -> RdmaEvent {
    let start = std::time::Instant::now();
    while start.elapsed() < support::TIMEOUT {
        for pe in [&node.pe, &other.pe] {
            pe.poll();
        }
        if let Some(event) = node.rdma.connection_event() {
            return event;
        }
    }
    panic!("no connection event");
}

fn established(event: RdmaEvent, expected: u64) -> RdmaConnection {
    match event {
        RdmaEvent::Established { connection, token } if token == expected => connection,
        event => panic!("unexpected {event:?}"),
    }
}

fn connect(server: &Node, client: &Node) -> (RdmaConnection, RdmaConnection) {
    client.rdma.connect_to(address(), 7).unwrap();
    let RdmaEvent::Requested(asked) = connection_event(server, client) else {
        panic!("a request comes first");
    };
    server.rdma.accept(&asked, 8).unwrap();
    let to_server = established(connection_event(client, server), 7);
    let to_client = established(connection_event(server, client), 8);
    assert_eq!(to_client, asked);
    (to_client, to_server)
}

#[test]
fn a_client_finds_a_server_and_both_see_the_end() {
    isolated("a_client_finds_a_server_and_both_see_the_end", || {
        let device = devices().dpu;
        let (server, client) = (node(&device), node(&device));
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
                assert_eq!(connection_event(end, other), expected);
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
        let (server, client) = (node(&device), node(&device));
        client.rdma.connect_to(address(), 1).unwrap();
        assert_eq!(
            connection_event(&client, &server),
            RdmaEvent::Failed { token: 1 }
        );
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
        let RdmaEvent::Requested(asked) = connection_event(&server, &client) else {
            panic!("a request comes first");
        };
        server.rdma.reject(&asked).unwrap();
        assert!(!asked.is_alive());
        assert_eq!(
            connection_event(&client, &server),
            RdmaEvent::Failed { token: 2 }
        );
        server.rdma.stop_listening(PORT).unwrap();
        client.rdma.connect_to(address(), 3).unwrap();
        assert_eq!(
            connection_event(&client, &server),
            RdmaEvent::Failed { token: 3 }
        );
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
        let (server, client) = (node(&device), node(&device));
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
        // A flushed task has not received a message.
        receive.submit().unwrap();
        assert_eq!(receive.received(), None);
        server.rdma.stop().unwrap();
        completions(1, &[&server.pe]);
        assert_eq!(receive.received(), None);
    });
}

#[test]
fn values_are_set_added_to_and_waited_for() {
    isolated("values_are_set_added_to_and_waited_for", || {
        let event = SyncEvent::builder(&devices().dpu).start().unwrap();
        assert_eq!(event.get().unwrap(), 0);
        event.set(40).unwrap();
        assert_eq!(event.add(2).unwrap(), 40);
        assert_eq!(event.get().unwrap(), 42);
        event.wait_equal(0x2a, 0xff).unwrap();
        event.wait_different(41, u64::MAX).unwrap();
        event.wait_greater_than(41, u64::MAX).unwrap();
        for refused in [event.export_to_network(), event.export_to_pci()] {
            assert_eq!(refused.unwrap_err().code, ErrorCode::NOT_PERMITTED);
        }
    });
}

#[test]
fn the_other_side_of_pcie_shares_the_value() {
    isolated("the_other_side_of_pcie_shares_the_value", || {
        let devices = devices();
        let ours = SyncEvent::builder(&devices.host)
            .pci_publisher()
            .pci_subscriber()
            .start()
            .unwrap();
        let description = ours.export_to_pci().unwrap();
        let child = std::thread::spawn(move || {
            let theirs = SyncEvent::import(&devices.dpu, &description).unwrap();
            theirs.wait_equal(1, u64::MAX).unwrap();
            assert_eq!(theirs.add(1).unwrap(), 1);
        });
        std::thread::sleep(Duration::from_millis(20));
        ours.set(1).unwrap();
        ours.wait_equal(2, u64::MAX).unwrap();
        child.join().unwrap();
        let wrong = SyncEvent::import(&support::devices().dpu, b"something else").unwrap_err();
        assert_eq!(wrong.code, ErrorCode::INVALID_VALUE);
    });
}

#[test]
fn tasks_work_on_an_event() {
    isolated("tasks_work_on_an_event", || {
        let pe = Pe::new().unwrap();
        let event = SyncEvent::builder(&devices().dpu).start_on(&pe, 1).unwrap();
        let equal = event.wait_equal_task(5, 0xf, 1).unwrap();
        let different = event.wait_different_task(0, u64::MAX, 2).unwrap();
        equal.submit().unwrap();
        different.submit().unwrap();
        settle(&[&pe]);
        event.set_task(0x14, 3).unwrap().submit().unwrap();
        let mut tokens = [(); 2].map(|()| completions(1, &[&pe])[0].token);
        tokens.sort_unstable();
        assert_eq!(tokens, [2, 3]);
        settle(&[&pe]);
        let add = event.add_task(1, 4).unwrap();
        add.submit().unwrap();
        let done = completions(2, &[&pe]);
        assert!(done.iter().all(|done| done.result == Ok(())), "{done:?}");
        assert_eq!(event.get().unwrap(), 0x15);
        // The pool has one task of each kind.
        let full = event.wait_equal_task(1, 1, 9).unwrap_err();
        assert_eq!(full.code, ErrorCode::NO_MEMORY);
        drop(different);
        let waits = event.wait_different_task(0x15, u64::MAX, 6).unwrap();
        waits.submit().unwrap();
        event.stop().unwrap();
        let flushed = completions(1, &[&pe]);
        assert!(flushed[0].result.is_err() && flushed[0].token == 6);
        assert_eq!(add.submit(), Err(ErrorCode::BAD_STATE));
    });
}

struct End {
    pe: Pe,
    rdma: Rdma,
    connection: RdmaConnection,
}

fn connected_for_atomics(device: &Device, permissions: Access) -> (End, End) {
    let ends = [(); 2].map(|()| {
        let pe = Pe::new().unwrap();
        let rdma = Rdma::builder(device)
            .permissions(permissions)
            .compare_swap_tasks(1)
            .fetch_add_tasks(1)
            .event_get_tasks(1)
            .event_set_tasks(1)
            .event_add_tasks(1)
            .start(&pe)
            .unwrap();
        let (description, connection) = rdma.export().unwrap();
        let end = End {
            pe,
            rdma,
            connection,
        };
        (end, description)
    });
    let [(a, to_a), (b, to_b)] = ends;
    a.rdma.connect(&a.connection, &to_b).unwrap();
    b.rdma.connect(&b.connection, &to_a).unwrap();
    (a, b)
}

const EVERYTHING: Access = Access::LOCAL_READ_WRITE
    .union(Access::RDMA_READ)
    .union(Access::RDMA_WRITE)
    .union(Access::RDMA_ATOMIC);

fn number(mmap: &Mmap, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    mmap.region().unwrap().read(offset, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

#[test]
fn atomics_change_the_peers_memory() {
    isolated("atomics_change_the_peers_memory", || {
        let device = devices().dpu;
        let (a, _b) = connected_for_atomics(&device, EVERYTHING);
        let (theirs, _) = memory(&device, 4096, EVERYTHING);
        let imported = Mmap::import(&device, &theirs.export_rdma(&device).unwrap()).unwrap();
        let (mine, bufs) = memory(&device, 4096, Access::LOCAL_READ_WRITE);
        let (remote, old) = (
            bufs.buf_with_data(&imported, 8, 8).unwrap(),
            bufs.buf(&mine, 0, 16).unwrap(),
        );
        let connection = &a.connection;
        let add = a
            .rdma
            .fetch_add_task(connection, &remote, &old, 5, 1)
            .unwrap();
        add.submit().unwrap();
        assert_eq!(completions(1, &[&a.pe])[0].result, Ok(()));
        let swap = a
            .rdma
            .compare_swap_task(connection, &remote, &old, (5, 70), 2)
            .unwrap();
        swap.submit().unwrap();
        assert_eq!(completions(1, &[&a.pe])[0].result, Ok(()));
        assert_eq!(number(&theirs, 8), 70);
        assert_eq!((number(&mine, 0), number(&mine, 8)), (0, 5));
        // The result buf is full: the task has no effect.
        add.submit().unwrap();
        assert!(completions(1, &[&a.pe])[0].result.is_err());
        assert_eq!(number(&theirs, 8), 70);
    });
}

#[test]
fn rdma_tasks_signal_the_peers_event() {
    isolated("rdma_tasks_signal_the_peers_event", || {
        let device = devices().dpu;
        let (a, _b) = connected_for_atomics(&device, EVERYTHING);
        let event = SyncEvent::builder(&device)
            .network_publisher()
            .start()
            .unwrap();
        let remote = RemoteSyncEvent::import(&device, &event.export_to_network().unwrap()).unwrap();
        let (mine, bufs) = memory(&device, 4096, Access::LOCAL_READ_WRITE);
        let (value, old, got) = (
            bufs.buf(&mine, 0, 8).unwrap(),
            bufs.buf(&mine, 8, 8).unwrap(),
            bufs.buf(&mine, 16, 8).unwrap(),
        );
        value.write_data(&40_u64.to_ne_bytes()).unwrap();
        let connection = &a.connection;
        let tasks = [
            a.rdma
                .event_set_task(connection, &remote, &value, 1)
                .unwrap(),
            a.rdma
                .event_add_task(connection, &remote, &old, 2, 2)
                .unwrap(),
            a.rdma.event_get_task(connection, &remote, &got, 3).unwrap(),
        ];
        // The tasks keep the event alive.
        drop(remote);
        for task in &tasks {
            task.submit().unwrap();
        }
        let done = completions(3, &[&a.pe]);
        assert!(done.iter().all(|done| done.result == Ok(())), "{done:?}");
        assert_eq!(event.get().unwrap(), 42);
        assert_eq!((number(&mine, 8), number(&mine, 16)), (40, 42));
        let wrong = RemoteSyncEvent::import(&device, &[0; 120]).unwrap_err();
        assert_eq!(wrong.code, ErrorCode::INVALID_VALUE);
    });
}
