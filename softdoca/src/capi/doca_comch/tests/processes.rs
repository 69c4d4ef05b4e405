//! Two processes, one of which is killed.

use std::time::{Duration, Instant};

use super::endpoints::*;
use super::*;
use process::{Peer, hear, say};

#[path = "../../../../tests/process/mod.rs"]
mod process;

/// The name of a test in the test harness.
macro_rules! name {
    ($test:literal) => {
        concat!("capi::doca_comch::tests::processes::", $test)
    };
}

/// Time within which the death of a peer must be detected.
const NOTICED: Duration = Duration::from_secs(1);

/// Serves one client with a consumer and a producer of its own; prints events; exits on request.
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
    // The main process must not rely on anything after this point: one of the two is killed.
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
        // First the worker alone, as in a program whose main thread does something else.
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
        // The name can be used again, although the dead server's socket still exists.
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
