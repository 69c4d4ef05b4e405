//! Comch: connecting, messages, disconnecting; a peer process that is killed during communication.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use doca::{
    Access, Buf, ComchClient, ComchEvent, ComchServer, Connection, Consumer, CtxState, Device,
    ErrorCode, Event, Pe, Producer, Rdma, RdmaConnection, Task,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support;
use crate::support::{
    Devices, TIMEOUT, completions, connected_pair, devices, isolated, memory, names, settle,
    wait_on,
};

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
            // Several messages in succession, so that they are queued.
            let sent: Vec<Vec<u8>> = (0..4)
                .map(|i| contents::noise(round * 4 + i, (round * 17 + i) as usize % 1000 + 1))
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

/// Each client uses descriptors of the server's process, which also needs some for other purposes.
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
            // The clients are in this process, too, and need additional descriptors.
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
        // DOCA may fail immediately or later; the client must not report a connection, and can be stopped.
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

/// A running consumer and its id.
fn consumer(
    pe: &Pe,
    device: &Device,
    connection: &Connection,
    len: usize,
    tasks: u32,
) -> (Consumer, doca::Mmap, doca::BufInventory) {
    let (mmap, inventory) = memory(device, len, Access::PCI_READ_WRITE);
    let consumer = Consumer::start(pe, connection, &mmap, tasks).unwrap();
    (consumer, mmap, inventory)
}

fn submit_when_possible(pe: &Pe, task: &Task) {
    let start = Instant::now();
    while let Err(code) = task.submit() {
        assert_eq!(code, ErrorCode::AGAIN);
        assert!(start.elapsed() < TIMEOUT, "the consumer has no buffer");
        pe.progress_until(Duration::ZERO, || false);
    }
}

/// A consumer on the DPU and a producer on the host. Fields are in drop order: a server or client with consumers and
/// producers would be leaked.
struct Path {
    consumer: Consumer,
    received: Vec<Buf>,
    producer: Producer,
    outgoing: Vec<Buf>,
    consumer_id: u32,
    pair: support::Pair,
}

const MESSAGE: usize = 64;

fn path(devices: &Devices, count: usize) -> Path {
    let pair = connected_pair(devices, "fast");
    let (consumer, incoming, inventory) = consumer(
        &pair.server_pe,
        &devices.dpu,
        &pair.server_end,
        count * MESSAGE,
        count as u32,
    );
    let received = (0..count)
        .map(|i| {
            inventory
                .buf(&incoming, (i * MESSAGE) as u64, MESSAGE)
                .unwrap()
        })
        .collect();
    let producer = Producer::start(&pair.client_pe, &pair.client_end, count as u32).unwrap();
    let (mmap, inventory) = memory(&devices.host, count * MESSAGE, Access::PCI_READ_WRITE);
    let outgoing = (0..count)
        .map(|i| inventory.buf(&mmap, (i * MESSAGE) as u64, MESSAGE).unwrap())
        .collect();
    let engines = [&pair.server_pe, &pair.client_pe];
    let consumer_id = wait_on(
        "the consumer's announcement",
        &engines,
        |_, event| match event {
            Event::Comch(ComchEvent::ConsumerAdded { connection, id })
                if *connection == pair.client_end =>
            {
                Some(*id)
            }
            _ => None,
        },
    );
    assert!(
        pair.server_pe
            .progress_until(TIMEOUT, || consumer.state() == CtxState::Running)
    );
    assert!(
        pair.client_pe
            .progress_until(TIMEOUT, || producer.state() == CtxState::Running)
    );
    assert!(consumer_id != 0 && consumer_id != 0xffff);
    assert_eq!(consumer.consumer_id().unwrap(), consumer_id);
    Path {
        pair,
        consumer,
        received,
        producer,
        outgoing,
        consumer_id,
    }
}

#[test]
fn messages_arrive_in_order_with_their_tokens() {
    isolated("messages_arrive_in_order_with_their_tokens", || {
        const COUNT: usize = 8;
        let path = path(&devices(), COUNT);
        let receives: Vec<Task> = (0..COUNT)
            .map(|i| {
                path.consumer
                    .post_recv_task(&path.received[i], i as u64)
                    .unwrap()
            })
            .collect();
        let sends: Vec<Task> = (0..COUNT)
            .map(|i| {
                path.producer
                    .send_task(&path.outgoing[i], path.consumer_id, 100 + i as u64)
                    .unwrap()
            })
            .collect();
        for round in 0..200u64 {
            receives.iter().for_each(|task| task.submit().unwrap());
            for (i, task) in sends.iter().enumerate() {
                let len = (round as usize * 7 + i) % MESSAGE + 1;
                path.outgoing[i]
                    .write_data(&contents::noise(round * 8 + i as u64, len))
                    .unwrap();
                submit_when_possible(&path.pair.client_pe, task);
                assert_eq!(
                    task.submit(),
                    Err(ErrorCode::IN_USE),
                    "one submission at a time"
                );
                assert_eq!(
                    path.outgoing[i].write_data(b"x").unwrap_err().code,
                    ErrorCode::IN_USE
                );
            }
            let sent = completions(COUNT, &[&path.pair.client_pe]);
            assert!(
                sent.iter().all(|completion| completion.result == Ok(())),
                "{sent:?}"
            );
            let mut tokens: Vec<u64> = sent.iter().map(|completion| completion.token).collect();
            tokens.sort_unstable();
            assert_eq!(tokens, (100..100 + COUNT as u64).collect::<Vec<_>>());

            let arrived = completions(COUNT, &[&path.pair.server_pe]);
            for (i, completion) in arrived.iter().enumerate() {
                assert_eq!((completion.token, completion.result), (i as u64, Ok(())));
                let mut bytes = [0; MESSAGE];
                let len = path.received[i].read_data(&mut bytes).unwrap();
                assert_eq!(
                    bytes[..len],
                    contents::noise(round * 8 + i as u64, (round as usize * 7 + i) % MESSAGE + 1)
                );
                path.received[i].reset_data().unwrap();
            }
        }
    });
}

#[test]
fn a_producer_waits_for_a_buffer() {
    isolated("a_producer_waits_for_a_buffer", || {
        let path = path(&devices(), 1);
        let send = path
            .producer
            .send_task(&path.outgoing[0], path.consumer_id, 1)
            .unwrap();
        path.outgoing[0].write_data(b"ready?").unwrap();
        assert_eq!(send.submit(), Err(ErrorCode::AGAIN));
        assert!(!send.is_in_flight());
        path.outgoing[0].write_data(b"ready!").unwrap();
        let receive = path.consumer.post_recv_task(&path.received[0], 2).unwrap();
        receive.submit().unwrap();
        submit_when_possible(&path.pair.client_pe, &send);
        completions(1, &[&path.pair.client_pe]);
        let arrived = completions(1, &[&path.pair.server_pe]);
        assert_eq!(arrived[0].token, 2);
        assert_eq!(path.received[0].data_len().unwrap(), 6);
    });
}

#[test]
fn stopping_a_consumer_flushes_its_tasks_and_notifies_the_peer() {
    isolated(
        "stopping_a_consumer_flushes_its_tasks_and_notifies_the_peer",
        || {
            let Path {
                pair,
                consumer,
                received,
                producer,
                outgoing,
                consumer_id,
            } = path(&devices(), 3);
            let tasks: Vec<Task> = (0..3)
                .map(|i| consumer.post_recv_task(&received[i], i as u64).unwrap())
                .collect();
            tasks[0].submit().unwrap();
            tasks[1].submit().unwrap();
            assert_eq!(consumer.in_flight(), 2);
            consumer.stop().unwrap();
            let flushed = completions(2, &[&pair.server_pe]);
            assert!(
                flushed.iter().all(|completion| completion.result.is_err()),
                "{flushed:?}"
            );
            assert_eq!(
                flushed
                    .iter()
                    .map(|completion| completion.token)
                    .collect::<Vec<_>>(),
                [0, 1]
            );
            for task in &tasks {
                assert_eq!(task.submit(), Err(ErrorCode::BAD_STATE));
            }
            // The expiry is reported in order: it precedes messages that were sent after it.
            pair.server.send(&pair.server_end, b"bye").unwrap();
            let mut expired = None;
            wait_on(
                "the message",
                &[&pair.client_pe, &pair.server_pe],
                |_, event| match event {
                    Event::Comch(ComchEvent::ConsumerExpired { id, .. }) => {
                        expired = Some(*id);
                        None
                    }
                    Event::Comch(ComchEvent::Message { .. }) => Some(()),
                    _ => None,
                },
            );
            assert_eq!(expired, Some(consumer_id));
            drop(outgoing);
            producer.stop().unwrap();
            pair.client.stop().unwrap();
            pair.server.stop().unwrap();
        },
    );
}

#[test]
fn a_consumer_takes_bufs_of_its_map_only() {
    isolated("a_consumer_takes_bufs_of_its_map_only", || {
        let devices = devices();
        let path = path(&devices, 1);
        let (other, inventory) = memory(&devices.dpu, MESSAGE, Access::PCI_READ_WRITE);
        let foreign = inventory.buf(&other, 0, MESSAGE).unwrap();
        let error = path.consumer.post_recv_task(&foreign, 1).unwrap_err();
        assert_eq!(error.code, ErrorCode::INVALID_VALUE);
        path.consumer.post_recv_task(&path.received[0], 1).unwrap();
    });
}

#[test]
fn a_task_dropped_in_flight_completes_and_frees_its_place() {
    isolated(
        "a_task_dropped_in_flight_completes_and_frees_its_place",
        || {
            let path = path(&devices(), 1);
            let receive = path.consumer.post_recv_task(&path.received[0], 1).unwrap();
            receive.submit().unwrap();
            drop(receive);
            assert_eq!(
                path.consumer
                    .post_recv_task(&path.received[0], 2)
                    .unwrap_err()
                    .code,
                ErrorCode::NO_MEMORY
            );
            let send = path
                .producer
                .send_task(&path.outgoing[0], path.consumer_id, 3)
                .unwrap();
            path.outgoing[0].write_data(b"x").unwrap();
            submit_when_possible(&path.pair.client_pe, &send);
            assert_eq!(completions(1, &[&path.pair.server_pe])[0].token, 1);
            let again = path.consumer.post_recv_task(&path.received[0], 2).unwrap();
            drop(again);
            path.consumer.post_recv_task(&path.received[0], 4).unwrap();
            completions(1, &[&path.pair.client_pe]);
            settle(&[&path.pair.client_pe, &path.pair.server_pe]);
        },
    );
}

#[test]
fn workers_in_other_threads_share_a_connection() {
    isolated("workers_in_other_threads_share_a_connection", || {
        const MESSAGES: u64 = 1000;
        let devices = devices();
        let pair = connected_pair(&devices, "threads");
        let (ids, announced) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel();
        let (server_end, client_end) = (&pair.server_end, &pair.client_end);
        let (host, dpu) = (&devices.host, &devices.dpu);
        thread::scope(|scope| {
            let receiver = scope.spawn(move || {
                let pe = Pe::new().unwrap();
                let (consumer, mmap, inventory) = consumer(&pe, dpu, server_end, 16 * MESSAGE, 16);
                assert!(pe.progress_until(TIMEOUT, || consumer.state() == CtxState::Running));
                let bufs: Vec<Buf> = (0..16)
                    .map(|i| inventory.buf(&mmap, i * MESSAGE as u64, MESSAGE).unwrap())
                    .collect();
                let tasks: Vec<Task> = (0..16)
                    .map(|i| consumer.post_recv_task(&bufs[i], i as u64).unwrap())
                    .collect();
                tasks.iter().for_each(|task| task.submit().unwrap());
                for expected in 0..MESSAGES {
                    let completion = completions(1, &[&pe])[0];
                    assert_eq!(completion.result, Ok(()));
                    let slot = completion.token as usize;
                    let mut bytes = [0; 8];
                    assert_eq!(bufs[slot].read_data(&mut bytes).unwrap(), 8);
                    assert_eq!(u64::from_le_bytes(bytes), expected);
                    bufs[slot].reset_data().unwrap();
                    tasks[slot].submit().unwrap();
                }
                consumer.stop().unwrap();
                stop.send(()).unwrap();
            });
            let sender = scope.spawn(move || {
                let pe = Pe::new().unwrap();
                let producer = Producer::start(&pe, client_end, 1).unwrap();
                let (mmap, inventory) = memory(host, MESSAGE, Access::PCI_READ_WRITE);
                let buf = inventory.buf(&mmap, 0, MESSAGE).unwrap();
                let id = announced.recv_timeout(TIMEOUT).unwrap();
                assert!(pe.progress_until(TIMEOUT, || producer.state() == CtxState::Running));
                let task = producer.send_task(&buf, id, 0).unwrap();
                for number in 0..MESSAGES {
                    buf.write_data(&number.to_le_bytes()).unwrap();
                    submit_when_possible(&pe, &task);
                    assert_eq!(completions(1, &[&pe])[0].result, Ok(()));
                }
                drop(task);
                producer.stop().unwrap();
            });
            // The connection is progressed here in the meantime.
            let start = Instant::now();
            while stopped.try_recv().is_err() {
                assert!(
                    start.elapsed() < 2 * TIMEOUT
                        && !(receiver.is_finished() && sender.is_finished())
                );
                pair.server_pe.poll();
                if let Some(Event::Comch(ComchEvent::ConsumerAdded { id, .. })) =
                    pair.client_pe.poll()
                {
                    ids.send(id).unwrap();
                }
            }
        });
        pair.client.stop().unwrap();
        pair.server.stop().unwrap();
    });
}

const PEER: &str = "DOCA_TEST_PEER";
const NAME: &str = "peer-death";

/// Kills the peer when dropped.
struct Peer(Child);

impl Peer {
    fn spawn(test: &str) -> Self {
        let child = Command::new(env::current_exe().unwrap())
            .args(names(test))
            .args(["--exact", "--nocapture"])
            .env(PEER, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn rdma(pe: &Pe, device: &Device) -> (Rdma, Vec<u8>, RdmaConnection) {
    let rdma = Rdma::builder(device)
        .permissions(Access::RDMA_READ | Access::RDMA_WRITE)
        .receive_tasks(1)
        .send_tasks(1)
        .start(pe)
        .unwrap();
    let (description, connection) = rdma.export().unwrap();
    (rdma, description, connection)
}

/// The peer: connects, offers a consumer with one buffer, connects RDMA, and runs until it is killed.
fn live() -> ! {
    let device = devices().host;
    let pe = Pe::new().unwrap();
    let client = ComchClient::start(&pe, &device, NAME).unwrap();
    let connection = wait_on("the connection", &[&pe], |_, event| match event {
        Event::Comch(ComchEvent::Connected(connection)) => Some(connection.clone()),
        _ => None,
    });
    let (mmap, inventory) = memory(&device, 4096, Access::PCI_READ_WRITE);
    let consumer = Consumer::start(&pe, &connection, &mmap, 1).unwrap();
    assert!(pe.progress_until(TIMEOUT, || consumer.state() == CtxState::Running));
    let buf = inventory.buf(&mmap, 0, 64).unwrap();
    let receive = consumer.post_recv_task(&buf, 1).unwrap();
    receive.submit().unwrap();

    let (rdma, description, end) = rdma(&pe, &device);
    client.send(&description).unwrap();
    let theirs = wait_on("the peer's description", &[&pe], |_, event| match event {
        Event::Comch(ComchEvent::Message { bytes, .. }) => Some(bytes.clone()),
        _ => None,
    });
    rdma.connect(&end, &theirs).unwrap();
    client.send(b"connected").unwrap();
    loop {
        pe.poll();
    }
}

fn next_message(pe: &Pe, id: &mut Option<u32>) -> (Connection, Vec<u8>) {
    wait_on("a message", &[pe], |_, event| match event {
        Event::Comch(ComchEvent::Message { connection, bytes }) => {
            Some((connection.clone(), bytes.clone()))
        }
        Event::Comch(ComchEvent::ConsumerAdded { id: added, .. }) => {
            *id = Some(*added);
            None
        }
        _ => None,
    })
}

#[test]
fn a_peer_that_is_killed_is_noticed_everywhere() {
    const TEST: &str = "a_peer_that_is_killed_is_noticed_everywhere";
    if env::var_os(PEER).is_some() {
        live();
    }
    isolated(TEST, || {
        let devices = devices();
        let pe = Pe::new().unwrap();
        let server = ComchServer::start(&pe, &devices.dpu, &devices.representor, NAME).unwrap();
        let mut peer = Peer::spawn(TEST);

        let mut consumer_id = None;
        let (connection, theirs) = next_message(&pe, &mut consumer_id);
        let (rdma, description, end) = rdma(&pe, &devices.dpu);
        rdma.connect(&end, &theirs).unwrap();
        server.send(&connection, &description).unwrap();
        assert_eq!(next_message(&pe, &mut consumer_id).1, b"connected");

        let (mmap, inventory) = memory(&devices.dpu, 4096, Access::PCI_READ_WRITE);
        let consumer = Consumer::start(&pe, &connection, &mmap, 1).unwrap();
        assert!(pe.progress_until(TIMEOUT, || consumer.state() == CtxState::Running));
        let producer = Producer::start(&pe, &connection, 1).unwrap();
        let bufs: Vec<_> = (0..3)
            .map(|i| inventory.buf(&mmap, i * 64, 64).unwrap())
            .collect();
        let receive = consumer.post_recv_task(&bufs[0], 10).unwrap();
        receive.submit().unwrap();
        bufs[1].write_data(b"not received").unwrap();
        // The peer has not posted an RDMA receive, so the send waits.
        let send = rdma.send_task(&end, &bufs[1], 11).unwrap();
        send.submit().unwrap();
        assert!(
            !pe.progress_until(std::time::Duration::from_millis(50), || !receive
                .is_in_flight())
        );

        peer.kill();
        let (mut disconnected, mut expired, mut failed) = (false, false, Vec::new());
        wait_on("the end of everything", &[&pe], |_, event| {
            match event {
                Event::Comch(ComchEvent::Disconnected(gone)) => {
                    assert_eq!(gone, &connection);
                    disconnected = true;
                }
                Event::Comch(ComchEvent::ConsumerExpired { id, .. }) => {
                    assert_eq!(Some(*id), consumer_id);
                    expired = true;
                }
                Event::Task(completion) => {
                    assert!(completion.result.is_err(), "{completion:?}");
                    failed.push(completion.token);
                }
                _ => {}
            }
            (disconnected && failed.len() == 2).then_some(())
        });
        failed.sort_unstable();
        assert_eq!(failed, [10, 11]);
        assert!(
            expired,
            "the peer's consumer expires before its connection ends"
        );
        assert!(!connection.is_connected());
        let error = Consumer::start(&pe, &connection, &mmap, 1).unwrap_err();
        assert_eq!(error.code, ErrorCode::NOT_CONNECTED);
        let again = receive.submit().unwrap_err();
        assert_ne!(again, ErrorCode::IN_USE, "its completion was taken");

        // Everything can be dropped, and the server continues.
        drop((receive, send));
        consumer.stop().unwrap();
        producer.stop().unwrap();
        rdma.stop().unwrap();
        assert_eq!(server.state(), CtxState::Running);
        let client_pe = Pe::new().unwrap();
        let client = ComchClient::start(&client_pe, &devices.host, NAME).unwrap();
        wait_on("a new client", &[&pe, &client_pe], |index, event| {
            matches!(event, Event::Comch(ComchEvent::Connected(_)) if index == 0).then_some(())
        });
        client.stop().unwrap();
        server.stop().unwrap();
    });
}
