//! Peers that are killed, and peers that violate the protocol: only their own connection is closed.

#[path = "../../../../tests/process/mod.rs"]
mod process;

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::capi::testing::{HAS_MORE, IS_INLINE, RawRing, RingStep, ring_step};
use crate::error::Error;
use crate::ring::{EventFd, Geometry, RingConsumer};
use crate::runtime::{RuntimeDir, Socket, named_socket};
use process::{Peer, hear, say};

/// The name of a test in the test harness.
macro_rules! name {
    ($test:literal) => {
        concat!("capi::doca_comch::tests::processes::", $test)
    };
}

/// Time limit for detecting that a peer has exited.
const NOTICED: Duration = Duration::from_secs(1);

/// Serves one client with its own consumer and producer; prints events; exits on request.
fn serve() {
    let engine = Engine::new();
    let server = TestServer::create("processes", &engine);
    assert_ok(server.context.start());
    say("ready");
    progress_until(&[&engine], || server.context.log.has(&Seen::Connected(1)));
    let memory = Memory::new(4096);
    let consumer = TestConsumer::run(server.connection(), &memory, &engine);
    let producer = TestProducer::run(server.connection(), &engine);
    for slot in 0..4 {
        consumer.post(memory.room(slot * 64, 64), slot as u64);
    }
    progress_until(&[&engine], || consumer.received() > 0);
    say("received");
    // The main process must not depend on any event after this point, because one of the two is killed.
    let log = &server.context.log;
    progress_until(&[&engine], || log.has(&Seen::Disconnected(1)));
    let expired = log.count(|seen| matches!(seen, Seen::Expired(_)));
    say(&format!("disconnected {expired}"));
    consumer.finish(&[&engine]);
    producer.finish(&[&engine]);
    drop((consumer, producer));
    server.context.stop_fully(&[&engine]);
}

/// A client with a consumer and a producer, in a thread that progresses all of them; ready when a message has arrived.
struct Caller {
    client: TestClient,
    consumer: TestConsumer,
    producer: TestProducer,
    memory: Memory,
    engine: Engine,
    /// Engine of consumer and producer.
    worker: Engine,
    remote: u32,
}

impl Caller {
    fn call() -> Self {
        let (engine, worker) = (Engine::new(), Engine::new());
        let client = TestClient::create("processes", &engine);
        assert_eq!(client.context.start(), IN_PROGRESS);
        progress_until(&[&engine], || client.context.state() == RUNNING);
        let memory = Memory::new(4096);
        let consumer = TestConsumer::run(client.connection(), &memory, &worker);
        let producer = TestProducer::run(client.connection(), &worker);
        for slot in 0..4 {
            consumer.post(memory.room(slot * 64, 64), slot as u64);
        }
        let log = &client.context.log;
        progress_until(&[&engine], || {
            log.count(|seen| matches!(seen, Seen::Added(_))) == 1
        });
        let added = log.seen.borrow().iter().find_map(|seen| match seen {
            Seen::Added(id) => Some(*id),
            _ => None,
        });
        let remote = added.expect("counted");
        let task = producer.task(memory.data(1024, 64), &[], remote, 1);
        progress_until(&[&worker], || submit(task) == 0);
        progress_until(&[&worker], || {
            producer.context.log.has(&Seen::Produced(1, 0))
        });
        Self {
            client,
            consumer,
            producer,
            memory,
            engine,
            worker,
            remote,
        }
    }
}

#[test]
fn the_death_of_a_server_is_detected() {
    fn main() {
        const NAME: &str = name!("the_death_of_a_server_is_detected");
        let mut peer = Peer::start(NAME, "server");
        assert_eq!(peer.answer(), "ready");
        let caller = Caller::call();
        assert_eq!(peer.answer(), "received");
        // All threads sleep when the peer is killed.
        progress_for(
            &[&caller.engine, &caller.worker],
            Duration::from_millis(100),
        );
        peer.kill();
        let begin = Instant::now();
        // First only the worker, as in a program whose main thread is busy with other work.
        let (consumer, producer) = (&caller.consumer.context, &caller.producer.context);
        progress_until(&[&caller.worker], || {
            consumer.state() == STOPPING && producer.state() == STOPPING
        });
        assert!(begin.elapsed() < NOTICED, "{:?}", begin.elapsed());
        progress_until(&[&caller.worker], || caller.consumer.received() == 4);
        let aborted = crate::error::Error::ConnectionAborted.code();
        assert!((0..4).all(|slot| consumer.log.has(&Seen::Received(slot, aborted, vec![], 0))));
        let client = &caller.client.context;
        progress_until(&[&caller.engine], || client.state() == IDLE);
        assert!(begin.elapsed() < NOTICED, "{:?}", begin.elapsed());
        assert!(client.log.has(&Seen::Expired(caller.remote)));
        caller.consumer.free_tasks();
        caller.producer.free_tasks();
        progress_until(&[&caller.worker], || {
            consumer.state() == IDLE && producer.state() == IDLE
        });
        // The name can be reused, although the socket of the exited server still exists.
        let server = TestServer::create("processes", &caller.engine);
        assert_ok(server.context.start());
        assert_ok(server.context.stop());
        drop(caller.memory);
    }
    process::run(
        name!("the_death_of_a_server_is_detected"),
        main,
        &[("server", serve)],
    );
}

#[test]
fn the_death_of_a_client_is_detected() {
    fn client() {
        let caller = Caller::call();
        say("running");
        hear();
        drop(caller);
    }
    fn main() {
        const NAME: &str = name!("the_death_of_a_client_is_detected");
        let mut server = Peer::start(NAME, "server");
        assert_eq!(server.answer(), "ready");
        let mut client = Peer::start(NAME, "client");
        assert_eq!(client.answer(), "running");
        assert_eq!(server.answer(), "received");
        std::thread::sleep(Duration::from_millis(100));
        client.kill();
        let begin = Instant::now();
        assert_eq!(
            server.answer(),
            "disconnected 1",
            "its consumer has expired"
        );
        assert!(begin.elapsed() < NOTICED, "{:?}", begin.elapsed());
        server.finish();
    }
    process::run(
        name!("the_death_of_a_client_is_detected"),
        main,
        &[("server", serve), ("client", client)],
    );
}

#[test]
fn a_program_that_exits_without_stopping_leaves_no_files() {
    fn exit() {
        let engine = Engine::new();
        let server = TestServer::create("processes", &engine);
        assert_ok(server.context.start());
        std::process::exit(0);
    }
    fn main() {
        const NAME: &str = name!("a_program_that_exits_without_stopping_leaves_no_files");
        Peer::start(NAME, "exit").finish();
    }
    let name = name!("a_program_that_exits_without_stopping_leaves_no_files");
    process::run(name, main, &[("exit", exit)]);
}

#[test]
fn sessions_leak_no_descriptors_or_memory() {
    fn session(server: &TestServer, engine: &Engine, client_engine: &Engine) {
        let log = &server.context.log;
        let engines = [engine, client_engine];
        let client = TestClient::create("processes", client_engine);
        assert_eq!(client.context.start(), IN_PROGRESS);
        progress_until(&engines, || {
            client.context.state() == RUNNING && log.has(&Seen::Connected(1))
        });
        let memory = Memory::new(64);
        let consumer = TestConsumer::run(server.connection(), &memory, engine);
        let producer = TestProducer::run(client.connection(), client_engine);
        let (room, data) = (memory.room(0, 64), memory.data(0, 64));
        consumer.post(room, 0);
        let added = Seen::Added(consumer.id());
        progress_until(&engines, || client.context.log.has(&added));
        let task = producer.task(data, b"x", consumer.id(), 0);
        assert_ok(submit(task));
        progress_until(&engines, || consumer.received() == 1);
        producer.finish(&engines);
        consumer.finish(&engines);
        // An inventory with bufs in use is not freed.
        for handle in [room, data] {
            assert_eq!(buf(handle).dec_refcount(), Ok(1));
        }
        client.context.stop_fully(&engines);
        progress_until(&engines, || log.has(&Seen::Disconnected(1)));
        log.take();
        log.connections.take();
    }
    fn count(what: &str) -> usize {
        match what {
            "fd" => std::fs::read_dir("/proc/self/fd").unwrap().count(),
            _ => std::fs::read_to_string("/proc/self/maps")
                .unwrap()
                .lines()
                .count(),
        }
    }
    fn main() {
        let (engine, client_engine) = (Engine::new(), Engine::new());
        let server = TestServer::create("processes", &engine);
        assert_ok(server.context.start());
        // Includes the closed connections that are remembered.
        (0..70).for_each(|_| session(&server, &engine, &client_engine));
        let before = (count("fd"), count("maps"));
        (0..200).for_each(|_| session(&server, &engine, &client_engine));
        let after = (count("fd"), count("maps"));
        assert!(
            after.0 <= before.0 && after.1 <= before.1 + 8,
            "{before:?} became {after:?}"
        );
        server.context.stop_fully(&[&engine]);
    }
    process::run(name!("sessions_leak_no_descriptors_or_memory"), main, &[]);
}

/// Connects to the server's socket, as any process could.
fn raw_socket(name: &str) -> Socket {
    let socket = named_socket("comch", &["0000:3b:00.0", name]);
    Socket::connect(&RuntimeDir::get().unwrap(), &socket).unwrap()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A valid hello message except for the version.
fn hello(name: &str, version: u32) -> Vec<u8> {
    let mut bytes = words(&[1, u32::from_be_bytes(*b"SDCC"), version, 4080]);
    for text in ["0000:3b:00.0", name] {
        bytes.push(text.len() as u8);
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// A handwritten client, accepted by the server. The caller must keep the lifeline open.
fn intruder(pair: &Pair) -> (Socket, Socket) {
    let socket = raw_socket(&pair.name);
    let (lifeline, theirs) = Socket::pair().unwrap();
    socket
        .send(&hello(&pair.name, 1), &[theirs.as_fd()])
        .unwrap();
    let accepted = words(&[2, 4080]);
    let mut buffer = [0; 64];
    progress_until(&[&pair.server_engine], || {
        match socket.receive(&mut buffer, &mut Vec::new()) {
            Ok(Some(len)) => {
                assert_eq!(buffer[..len], accepted);
                true
            }
            Err(Error::Again) => false,
            other => panic!("{other:?}"),
        }
    });
    (socket, lifeline)
}

/// Checks that the well-behaved client of the pair is still served.
#[track_caller]
fn assert_served(pair: &Pair) {
    let log = &pair.server.context.log;
    let before = log.count(|seen| matches!(seen, Seen::Message(_)));
    assert_ok(pair.client.send(b"still there?"));
    progress_until(&pair.engines(), || {
        log.count(|seen| matches!(seen, Seen::Message(_))) == before + 1
    });
}

#[test]
fn garbage_instead_of_a_hello() {
    let pair = Pair::connect();
    let mut short = hello(&pair.name, 1);
    short.pop();
    for garbage in [
        b"x".to_vec(),
        vec![0xff; 4000],
        words(&[4, 5, 6]),
        short,
        hello(&pair.name, 1),
    ] {
        let socket = raw_socket(&pair.name);
        // The last message lacks its descriptor.
        socket.send(&garbage, &[]).unwrap();
        progress_until(&[&pair.server_engine], || socket.is_closed());
        assert_served(&pair);
    }
    assert_eq!(
        pair.server
            .context
            .log
            .count(|seen| matches!(seen, Seen::Connected(_))),
        1
    );
    pair.finish();
}

#[test]
fn refusals_contain_the_reason() {
    let pair = Pair::connect();
    for (bytes, error) in [
        (hello(&pair.name, 2), Error::UnsupportedVersion),
        (hello("another", 1), Error::NotFound),
    ] {
        let socket = raw_socket(&pair.name);
        let (_lifeline, theirs) = Socket::pair().unwrap();
        socket.send(&bytes, &[theirs.as_fd()]).unwrap();
        progress_until(&[&pair.server_engine], || socket.is_closed());
        let mut answer = [0; 512];
        let len = socket
            .receive(&mut answer, &mut Vec::new())
            .unwrap()
            .unwrap();
        assert_eq!(answer[..8], words(&[3, error.code()]));
        assert!(!std::str::from_utf8(&answer[8..len]).unwrap().is_empty());
    }
    assert_served(&pair);
    pair.finish();
}

#[test]
fn silent_connections_do_not_block_clients() {
    let pair = Pair::connect();
    let silent: Vec<Socket> = (0..max_clients() + 36)
        .map(|_| {
            let socket = raw_socket(&pair.name);
            pair.server_engine.progress();
            socket
        })
        .collect();
    let (socket, lifeline) = intruder(&pair);
    assert_served(&pair);
    drop((silent, socket, lifeline));
    pair.finish();
}

/// A server that is not scheduled for a while accepts all clients that have connected in the meantime.
#[test]
fn clients_wait_for_a_server_that_makes_no_progress() {
    const CLIENTS: usize = 100;
    let (server_engine, engine) = (Engine::new(), Engine::new());
    let server = TestServer::create("busy", &server_engine);
    assert_ok(server.context.start());
    let clients: Vec<TestClient> = (0..CLIENTS.min(max_clients()))
        .map(|_| {
            let client = TestClient::create("busy", &engine);
            assert_eq!(client.context.start(), IN_PROGRESS);
            client
        })
        .collect();
    for _ in 0..100 {
        engine.progress();
    }
    let states = || clients.iter().map(|client| client.context.state());
    assert!(states().all(|state| state == DOCA_CTX_STATE_STARTING));
    progress_until(&[&server_engine, &engine], || {
        states().all(|state| state != DOCA_CTX_STATE_STARTING)
    });
    assert!(states().all(|state| state == RUNNING));
    for client in &clients {
        client.context.stop_fully(&[&server_engine, &engine]);
    }
    server.context.stop_fully(&[&server_engine]);
}

fn ring() -> (OwnedFd, OwnedFd) {
    let ring = RingConsumer::create(Geometry::for_messages(64, 64)).unwrap();
    let wake = EventFd::new().unwrap();
    (
        ring.memfd().try_clone_to_owned().unwrap(),
        wake.as_fd().try_clone_to_owned().unwrap(),
    )
}

#[test]
fn invalid_frames_close_only_their_connection() {
    let pair = Pair::connect();
    let (ring, wake) = ring();
    let both = vec![ring.as_fd(), wake.as_fd()];
    let plain = tempfile::tempfile().unwrap();
    let faults = [
        ("an unknown frame", words(&[99]), vec![]),
        ("a second hello", hello(&pair.name, 1), vec![]),
        ("an accept", words(&[2, 4080]), vec![]),
        ("an empty message", words(&[4]), vec![]),
        (
            "a long message",
            vec![4, 0, 0, 0].into_iter().chain(vec![0; 4081]).collect(),
            vec![],
        ),
        ("a frame that fits no buffer", vec![0; 60_000], vec![]),
        ("id 0", words(&[5, 0, 64]), both.clone()),
        ("id 0xffff", words(&[5, 0xffff, 64]), both.clone()),
        ("a server's id", words(&[5, 3, 64]), both.clone()),
        ("no descriptors", words(&[5, 2, 64]), vec![]),
        (
            "no ring",
            words(&[5, 2, 64]),
            vec![plain.as_fd(), wake.as_fd()],
        ),
        (
            "a message larger than the ring",
            words(&[5, 2, 1 << 20]),
            both.clone(),
        ),
        ("an expiry of an unknown consumer", words(&[6, 2]), vec![]),
        ("a producer without a bell", words(&[7, 1]), vec![]),
        ("trailing bytes", words(&[6, 2, 2]), vec![]),
    ];
    let log = &pair.server.context.log;
    for (ended, (what, bytes, descriptors)) in faults.into_iter().enumerate() {
        let (socket, _lifeline) = intruder(&pair);
        assert_eq!(
            log.count(|seen| *seen == Seen::Disconnected(1)),
            ended,
            "{what}"
        );
        socket.send(&bytes, &descriptors).unwrap();
        progress_until(&[&pair.server_engine], || socket.is_closed());
        progress_until(&[&pair.server_engine], || {
            log.count(|seen| *seen == Seen::Disconnected(1)) == ended + 1
        });
        assert_served(&pair);
    }
    assert_eq!(log.count(|seen| matches!(seen, Seen::Added(_))), 0);
    pair.finish();
}

#[test]
fn a_consumer_announced_twice_expires_with_its_connection() {
    let pair = Pair::connect();
    let (socket, _lifeline) = intruder(&pair);
    for _ in 0..2 {
        let (ring, wake) = ring();
        socket
            .send(&words(&[5, 2, 64]), &[ring.as_fd(), wake.as_fd()])
            .unwrap();
    }
    let log = &pair.server.context.log;
    progress_until(&[&pair.server_engine], || log.has(&Seen::Disconnected(1)));
    let seen = log.take();
    let expected = [Seen::Added(2), Seen::Expired(2), Seen::Disconnected(1)];
    assert_eq!(seen[seen.len() - 3..], expected);
    assert_served(&pair);
    pair.finish();
}

#[test]
fn a_corrupt_ring_closes_the_connection() {
    let pair = Pair::connect();
    let (socket, lifeline) = intruder(&pair);
    let connection = pair.server.connection();
    let memory = Memory::new(4096);
    let consumer = TestConsumer::run(connection, &memory, &pair.server_engine);
    consumer.post(memory.room(0, 64), 1);
    let mut descriptors = Vec::new();
    let mut buffer = [0; 64];
    assert_eq!(socket.receive(&mut buffer, &mut descriptors), Ok(Some(12)));
    assert_eq!(buffer[..8], words(&[5, consumer.id()]));
    // The first descriptor word: lap 1, and more bytes than the ring has.
    let word = (1u64 << 32) | 0xff_ffff;
    rustix::io::pwrite(&descriptors[0], &word.to_ne_bytes(), 512).unwrap();
    let (state, log) = (&consumer.context, &pair.server.context.log);
    progress_until(&[&pair.server_engine], || {
        state.state() == STOPPING && log.has(&Seen::Disconnected(1))
    });
    assert!(consumer.context.log.has(&Seen::Received(
        1,
        Error::ConnectionAborted.code(),
        vec![],
        0
    )));
    assert!(socket.is_closed() && lifeline.is_closed());
    assert_served(&pair);
    consumer.finish(&[&pair.server_engine]);
    drop(consumer);
    pair.finish();
}

#[test]
fn an_invalid_server_fails_the_start_of_a_client() {
    let (name, engine) = (unique_name(), Engine::new());
    let socket = named_socket("comch", &["0000:3b:00.0", &name]);
    let listener = crate::runtime::Listener::bind(&RuntimeDir::get().unwrap(), &socket).unwrap();
    for answer in [
        words(&[2, 4081]),
        words(&[3, 1]),
        b"?".to_vec(),
        words(&[4, 1]),
    ] {
        let client = TestClient::create(&name, &engine);
        assert_eq!(client.context.start(), IN_PROGRESS);
        let peer = loop {
            // Other processes may probe the listener.
            match listener.accept().unwrap() {
                Some(peer) if !peer.is_closed() => break peer,
                _ => {}
            }
        };
        engine.progress();
        assert_eq!(client.context.state(), STARTING);
        peer.send(&answer, &[]).unwrap();
        progress_until(&[&engine], || client.context.state() == IDLE);
        assert!(peer.is_closed());
    }
}

/// Next action of a malicious client.
#[derive(Debug, Clone)]
enum Step {
    /// Writes to the ring of the server's consumer.
    Ring(RingStep),
    /// Sends a frame with this number of descriptors of a ring and an eventfd.
    Frame(Vec<u8>, usize),
    /// Calls progress on the server.
    Progress,
    /// The server's program sends a control message.
    Message,
    /// Closes one end of the lifeline.
    HangUp,
}

/// Frames of every kind with arbitrary content, and arbitrary bytes.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let kinds = (0..=8_u32, proptest::collection::vec(0..8_u32, 0..4));
    let typed = kinds.prop_map(|(kind, rest)| [words(&[kind]), words(&rest)].concat());
    let bytes = proptest::collection::vec(any::<u8>(), 1..200);
    prop_oneof![8 => typed, 1 => bytes]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => ring_step().prop_map(Step::Ring),
        4 => (frames(), 0..4_usize).prop_map(|(frame, fds)| Step::Frame(frame, fds)),
        4 => Just(Step::Progress),
        2 => Just(Step::Message),
        1 => Just(Step::HangUp),
    ];
    proptest::collection::vec(step, 1..24)
}

/// Runs the steps of a client against a consumer of the server with posted buffers, through the ring that the client
/// received for it.
fn attack(pair: &Pair, steps: &[Step]) {
    let (socket, lifeline) = intruder(pair);
    let mut lifeline = Some(lifeline);
    let connection = pair.server.connection();
    let memory = Memory::new(65_536);
    let consumer = TestConsumer::run(connection, &memory, &pair.server_engine);
    let mut descriptors = Vec::new();
    assert_eq!(socket.receive(&mut [0; 64], &mut descriptors), Ok(Some(12)));
    let mut attacked = RawRing::new(descriptors.swap_remove(0));
    let posted = 8;
    for (index, len) in [1, 16, 64, 4096, 8000, 64, 64, 64].into_iter().enumerate() {
        consumer.post(memory.room(index * 8192, len), index as u64);
    }
    let log = &pair.server.context.log;
    let is_sent = |seen: &Seen| matches!(seen, Seen::Sent(_));
    let (before, mut messages) = (log.count(is_sent), 0);
    let (offer, wake) = ring();
    let offers = [offer.as_fd(), wake.as_fd(), offer.as_fd()];
    for step in steps {
        match step {
            Step::Ring(step) => attacked.perform(step),
            // The server may have closed the connection by now.
            Step::Frame(bytes, fds) => drop(socket.send(bytes, &offers[..*fds])),
            Step::Progress => drop(pair.server_engine.progress()),
            Step::Message => {
                assert_ok(pair.server.send(connection, b"a message"));
                messages += 1;
            }
            Step::HangUp => lifeline = None,
        }
    }
    let engines = [&pair.server_engine];
    progress_for(&engines, std::time::Duration::from_millis(1));
    socket.shut_down();
    drop(lifeline);
    consumer.finish(&engines);
    let received = consumer.context.log.take().into_iter();
    let mut tasks: Vec<_> = received
        .filter_map(|seen| match seen {
            Seen::Received(task, ..) => Some(task),
            _ => None,
        })
        .collect();
    tasks.sort_unstable();
    assert_eq!(tasks, (0..posted).collect::<Vec<_>>());
    progress_until(&engines, || log.count(is_sent) == before + messages);
    drop(consumer);
    assert_served(pair);
    assert_eq!(log.count(is_sent), before + messages);
    log.take();
}

#[test]
fn each_task_completes_once_whatever_a_client_sends() {
    let pair = Pair::connect();
    let config = ProptestConfig {
        cases: 150,
        max_shrink_iters: 20,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(steps in steps())| attack(&pair, &steps));
    pair.finish();
}

#[test]
fn an_endless_fast_path_message_closes_the_connection() {
    let pair = Pair::connect();
    for (descriptor, count) in [
        // A quarter of the ring's payload at a time; in total, more than the largest message.
        (16_384 | HAS_MORE, 65),
        (IS_INLINE | HAS_MORE, 1),
    ] {
        let (socket, _lifeline) = intruder(&pair);
        let memory = Memory::new(65_536);
        let connection = pair.server.connection();
        let consumer = TestConsumer::run(connection, &memory, &pair.server_engine);
        let mut descriptors = Vec::new();
        assert_eq!(socket.receive(&mut [0; 64], &mut descriptors), Ok(Some(12)));
        let mut attacked = RawRing::new(descriptors.swap_remove(0));
        consumer.post(memory.room(0, 64), 1);
        for _ in 0..count {
            attacked.fragment(descriptor, 0);
            pair.server_engine.progress();
        }
        let aborted = Error::ConnectionAborted.code();
        let failed = Seen::Received(1, aborted, vec![], 0);
        progress_until(&[&pair.server_engine], || consumer.context.log.has(&failed));
        assert_served(&pair);
        consumer.finish(&[&pair.server_engine]);
    }
    pair.finish();
}

/// One progress call reads a bounded number of frames; otherwise a client that sends them fast enough would stall the
/// engine.
#[test]
fn progress_reads_a_bounded_number_of_frames() {
    // Progress reads a socket up to twice: when descriptors are due, and before it sleeps.
    const MOST: usize = 2 * 64;
    let pair = Pair::connect();
    let (socket, _lifeline) = intruder(&pair);
    rustix::net::sockopt::set_socket_send_buffer_size(&socket, 1 << 20).unwrap();
    let (_, wake) = ring();
    // Frames that are not reported to the program.
    let fill = || {
        let send = || socket.send(&words(&[7, 1]), &[wake.as_fd()]).ok();
        std::iter::from_fn(send).count()
    };
    assert!(fill() > MOST, "the socket takes more than are read at once");
    pair.server_engine.progress();
    let read = fill();
    assert!(read <= MOST, "{read} frames in one call of progress");
    drop(socket);
    assert_served(&pair);
    pair.finish();
}

/// The server keeps a limited number of closed connections. Even if more are closed between two progress calls, the
/// server is found in each callback, and the program drops its handle before the connection is freed.
#[test]
fn all_simultaneously_closed_connections_are_reported() {
    const MANY: usize = 40;
    let pair = Pair::connect();
    let log = &pair.server.context.log;
    let gone = || log.count(|seen| matches!(seen, Seen::Disconnected(1)));
    for round in 1..=2 {
        let intruders: Vec<_> = (0..MANY).map(|_| intruder(&pair)).collect();
        drop(intruders);
        progress_until(&[&pair.server_engine], || gone() == round * MANY);
        assert_served(&pair);
    }
    pair.finish();
}
