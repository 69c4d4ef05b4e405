//! Comch control path: connecting, messages, disconnecting.

use crate::support;
use std::time::Duration;

use crate::support::{connected_pair, devices, isolated, memory, pattern, settle, wait_on};
use doca::{
    Access, ComchClient, ComchEvent, ComchServer, Consumer, CtxState, ErrorCode, Event, Pe,
    Producer,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn message(event: &Event) -> Option<Vec<u8>> {
    match event {
        Event::Comch(ComchEvent::Message { bytes, .. }) => Some(bytes.clone()),
        _ => None,
    }
}

#[test]
fn messages_arrive_whole_and_in_order() {
    isolated("messages_arrive_whole_and_in_order", || {
        let pair = connected_pair(&devices(), "order");
        let engines = [&pair.server_pe, &pair.client_pe];
        for round in 0..50u64 {
            // Several in a row, so that they are queued.
            let sent: Vec<Vec<u8>> = (0..4)
                .map(|i| pattern(round * 4 + i, (round * 17 + i) as usize % 1000 + 1))
                .collect();
            sent.iter()
                .for_each(|bytes| pair.client.send(bytes).unwrap());
            for expected in &sent {
                let bytes = wait_on("the request", &engines, |index, event| {
                    message(event).filter(|_| index == 0)
                });
                assert_eq!(&bytes, expected);
                pair.server.send(&pair.server_end, &bytes).unwrap();
            }
            for expected in &sent {
                assert_eq!(
                    &wait_on("the response", &engines, |index, event| message(event)
                        .filter(|_| index == 1)),
                    expected
                );
            }
        }
    });
}

#[test]
fn a_client_that_stops_is_noticed() {
    isolated("a_client_that_stops_is_noticed", || {
        let pair = connected_pair(&devices(), "stop");
        pair.client.send(b"last words").unwrap();
        pair.client.stop().unwrap();
        assert!(!pair.client_end.is_connected());
        // Messages sent before are delivered first.
        let mut words = None;
        let gone = wait_on(
            "the disconnect",
            &[&pair.server_pe],
            |_, event| match event {
                Event::Comch(ComchEvent::Disconnected(connection)) => Some(connection.clone()),
                event => {
                    words = words.take().or(message(event));
                    None
                }
            },
        );
        assert_eq!(words.as_deref(), Some(&b"last words"[..]));
        assert_eq!(gone, pair.server_end);
        assert!(!gone.is_connected());
        assert_eq!(
            pair.server.send(&gone, b"hello?").unwrap_err().code,
            ErrorCode::NOT_CONNECTED
        );
        assert_eq!(
            pair.server.state(),
            CtxState::Running,
            "a server survives its clients"
        );
        pair.server.stop().unwrap();
    });
}

#[test]
fn a_server_that_stops_is_noticed() {
    isolated("a_server_that_stops_is_noticed", || {
        let pair = connected_pair(&devices(), "stop");
        pair.server.stop().unwrap();
        assert!(!pair.server_end.is_connected());
        wait_on("the disconnect", &[&pair.client_pe], |_, event| {
            matches!(event, Event::Comch(ComchEvent::Disconnected(connection)) if *connection == pair.client_end).then_some(())
        });
        assert_eq!(pair.client.connection(), None);
        assert_eq!(
            pair.client.send(b"hello?").unwrap_err().code,
            ErrorCode::NOT_CONNECTED
        );
        assert_ne!(pair.client.state(), CtxState::Running);
        pair.client.stop().unwrap();
    });
}

#[test]
fn several_clients_have_their_own_connections() {
    isolated("several_clients_have_their_own_connections", || {
        let devices = devices();
        let pair = connected_pair(&devices, "several");
        let second_pe = Pe::new().unwrap();
        let second = ComchClient::start(&second_pe, &devices.host, "several").unwrap();
        let engines = [&pair.server_pe, &pair.client_pe, &second_pe];
        let second_end = wait_on(
            "the second connection",
            &engines,
            |index, event| match event {
                Event::Comch(ComchEvent::Connected(connection)) if index == 0 => {
                    Some(connection.clone())
                }
                _ => None,
            },
        );
        assert_ne!(second_end, pair.server_end);
        assert_eq!(second_end.context(), pair.server.id());
        assert!(pair.client.connection().is_some());
        pair.server_pe
            .progress_until(Duration::from_millis(1), || false);
        wait_on_running(&second_pe, &second);
        second.send(b"from the second").unwrap();
        let from = wait_on("the message", &engines, |_, event| match event {
            Event::Comch(ComchEvent::Message { connection, .. }) => Some(connection.clone()),
            _ => None,
        });
        assert_eq!(from, second_end);
        pair.server.send(&pair.server_end, b"to the first").unwrap();
        let bytes = wait_on("the answer", &engines, |index, event| {
            message(event).filter(|_| index == 1)
        });
        assert_eq!(bytes, b"to the first");
    });
}

/// Each client takes descriptors of the server's process, which needs some for other purposes.
#[test]
fn clients_of_a_server_are_limited_to_an_eighth_of_the_descriptors() {
    isolated(
        "clients_of_a_server_are_limited_to_an_eighth_of_the_descriptors",
        || {
            const CLIENTS: usize = 16;
            let devices = devices();
            let limits = getrlimit(Resource::Nofile);
            let few = Rlimit {
                current: Some(8 * CLIENTS as u64),
                ..limits
            };
            setrlimit(Resource::Nofile, few).unwrap();
            let capabilities = devices.dpu.info().unwrap().capabilities.comch.unwrap();
            assert_eq!(capabilities.max_clients, CLIENTS as u32);
            // The clients are in this process as well, and need descriptors of their own.
            setrlimit(Resource::Nofile, limits).unwrap();
            let (server_pe, pe) = (Pe::new().unwrap(), Pe::new().unwrap());
            let start =
                |name| ComchServer::start(&server_pe, &devices.dpu, &devices.representor, name);
            let _server = start("crowded").unwrap();
            let connect = || {
                let client = ComchClient::start(&pe, &devices.host, "crowded").unwrap();
                let start = std::time::Instant::now();
                while client.connection().is_none() && client.state() != CtxState::Idle {
                    assert!(start.elapsed() < support::TIMEOUT);
                    server_pe.poll();
                    pe.poll();
                }
                client
            };
            let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect()).collect();
            assert!(clients.iter().all(|client| client.connection().is_some()));
            assert_eq!(connect().state(), CtxState::Idle, "one too many");
            assert!(clients.iter().all(|client| client.connection().is_some()));
            clients.pop().unwrap().stop().unwrap();
            settle(&[&server_pe, &pe]);
            assert!(connect().connection().is_some(), "one has left");
        },
    );
}

fn wait_on_running(pe: &Pe, client: &ComchClient) {
    assert!(pe.progress_until(support::TIMEOUT, || client.connection().is_some()));
}

#[test]
fn invalid_messages_are_refused() {
    isolated("invalid_messages_are_refused", || {
        let devices = devices();
        let pair = connected_pair(&devices, "one");
        let other = connected_pair(&devices, "two");
        let error = pair
            .server
            .send(&other.server_end, b"wrong server")
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::INVALID_VALUE);
        assert!(
            pair.client.send(&vec![0; 1 << 24]).is_err(),
            "no device takes messages of 16 MiB"
        );
        settle(&[
            &pair.server_pe,
            &pair.client_pe,
            &other.server_pe,
            &other.client_pe,
        ]);
    });
}

#[test]
fn a_name_is_taken_once() {
    isolated("a_name_is_taken_once", || {
        let devices = devices();
        let pe = Pe::new().unwrap();
        let first = ComchServer::start(&pe, &devices.dpu, &devices.representor, "taken").unwrap();
        ComchServer::start(&pe, &devices.dpu, &devices.representor, "taken").unwrap_err();
        first.stop().unwrap();
        ComchServer::start(&pe, &devices.dpu, &devices.representor, "taken").unwrap();
    });
}

#[test]
fn a_client_without_a_server_becomes_idle_or_waits() {
    isolated("a_client_without_a_server_becomes_idle_or_waits", || {
        let pe = Pe::new().unwrap();
        // DOCA may fail immediately or later; it must not report a connection, and it can be stopped.
        if let Ok(client) = ComchClient::start(&pe, &devices().host, "nobody") {
            assert!(
                !pe.progress_until(Duration::from_millis(200), || client.connection().is_some())
            );
            assert_eq!(
                client.send(b"x").unwrap_err().code,
                ErrorCode::NOT_CONNECTED
            );
            client.stop().unwrap();
        }
    });
}

#[test]
fn a_server_outlives_the_consumers_on_its_connections() {
    isolated("a_server_outlives_the_consumers_on_its_connections", || {
        let devices = devices();
        let pair = connected_pair(&devices, "in use");
        let (mmap, _inventory) = memory(&devices.dpu, 4096, Access::PCI_READ_WRITE);
        let consumer = Consumer::start(&pair.server_pe, &pair.server_end, &mmap, 4).unwrap();
        let stopped = pair.server.stop().unwrap_err();
        assert_eq!(stopped.error().code, ErrorCode::IN_USE);
        let server = stopped.into_object().expect("it comes back");
        assert_eq!(server.state(), CtxState::Running);
        let error = Consumer::start(&pair.server_pe, &pair.server_end, &mmap, 4).unwrap_err();
        assert_eq!(
            error.code,
            ErrorCode::NOT_CONNECTED,
            "nothing new is made on it"
        );
        consumer.stop().unwrap();
        server.stop().unwrap();
    });
}

#[test]
fn stop_returns_the_client_while_another_thread_uses_its_connection() {
    isolated(
        "stop_returns_the_client_while_another_thread_uses_its_connection",
        || {
            let devices = devices();
            let pair = connected_pair(&devices, "in use elsewhere");
            let connection = pair.client_end.clone();
            let (started, is_started) = std::sync::mpsc::channel();
            let (stop, is_to_stop) = std::sync::mpsc::channel();
            let host = devices.host.clone();
            let worker = std::thread::spawn(move || {
                let pe = Pe::new().unwrap();
                let producer = Producer::start(&pe, &connection, 1).unwrap();
                drop(host);
                started.send(()).unwrap();
                is_to_stop.recv().unwrap();
                producer.stop().unwrap();
            });
            is_started.recv().unwrap();
            let stopped = pair.client.stop().unwrap_err();
            assert_eq!(stopped.error().code, ErrorCode::IN_USE);
            let client = stopped.into_object().expect("it comes back");
            stop.send(()).unwrap();
            worker.join().unwrap();
            client.stop().unwrap();
        },
    );
}
