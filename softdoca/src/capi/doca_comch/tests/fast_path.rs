//! Consumers and producers in one thread, and in threads that do not progress the connection.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use doca_abi::DOCA_SUCCESS;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::super::*;
use super::*;
use crate::capi::doca_pe::*;
use crate::progress::with_sleeps_of;

/// A connected pair with a consumer on the server's side and a producer on the client's, all on the engines of the pair.
struct FastPath {
    producer: TestProducer,
    consumer: TestConsumer,
    source: Memory,
    target: Memory,
    pair: Pair,
}

impl FastPath {
    fn new(target: usize, source: usize) -> Self {
        let pair = Pair::connect();
        let (target, source) = (Memory::new(target), Memory::new(source));
        let consumer = TestConsumer::run(pair.server.connection(), &target, &pair.server_engine);
        let producer = TestProducer::run(pair.client.connection(), &pair.client_engine);
        let path = Self {
            producer,
            consumer,
            source,
            target,
            pair,
        };
        path.wait(|path| path.announced() == [path.consumer.id()]);
        path
    }

    /// Ids of the consumers reported to the client.
    fn announced(&self) -> Vec<u32> {
        let seen = self.pair.client.context.log.seen.borrow();
        seen.iter()
            .filter_map(|seen| match seen {
                Seen::Added(id) => Some(*id),
                _ => None,
            })
            .collect()
    }

    #[track_caller]
    fn wait(&self, done: impl Fn(&Self) -> bool) {
        progress_until(&self.pair.engines(), || done(self));
    }

    /// A task that sends the `len` bytes at `offset` of the source.
    fn task(&self, offset: usize, len: usize, immediate: &[u8], data: u64) -> *mut doca_task {
        let buf = self.source.data(offset, len);
        self.producer.task(buf, immediate, self.consumer.id(), data)
    }

    fn finish(self) {
        self.producer.finish(&self.pair.engines());
        self.consumer.finish(&self.pair.engines());
        drop((self.producer, self.consumer));
        self.pair.finish();
    }
}

#[test]
fn a_message_is_appended_to_the_posted_buffer() {
    let mut path = FastPath::new(4096, 4096);
    path.source.write(100, b"hello");
    let room = path.target.room(0, 64);
    buf(room).set_data_len(3).unwrap();
    path.consumer.post(room, 11);
    let task = path.task(100, 5, &[], 22);
    assert_ok(submit(task));
    path.wait(|path| path.consumer.received() == 1 && path.producer.produced() == 1);
    assert!(path.producer.context.log.has(&Seen::Produced(22, 0)));
    let sender = path.producer.id();
    assert!(
        path.consumer
            .context
            .log
            .has(&Seen::Received(11, 0, vec![], sender))
    );
    assert_eq!(buf(room).data_len(), 8);
    assert_eq!(path.target.read(0, 9), b"\0\0\0hello\0");
    path.finish();
}

#[test]
fn submission_without_a_posted_buffer_returns_again() {
    let path = FastPath::new(4096, 4096);
    let task = path.task(0, 64, &[], 1);
    for _ in 0..3 {
        assert_eq!(submit(task), AGAIN);
    }
    path.consumer.post(path.target.room(0, 64), 2);
    assert_ok(submit(task));
    assert_eq!(submit(task), Error::BadState.code(), "it is in flight");
    path.wait(|path| path.producer.produced() == 1);
    assert_eq!(submit(task), AGAIN, "the buffer is taken");
    path.wait(|path| path.consumer.received() == 1);
    path.finish();
}

#[test]
fn tasks_are_resubmitted_many_times() {
    let mut path = FastPath::new(64 * 8, 64 * 8);
    let buffers: Vec<_> = (0..8).map(|slot| path.target.room(slot * 64, 64)).collect();
    let receives: Vec<_> = buffers
        .iter()
        .enumerate()
        .map(|(slot, buf)| path.consumer.post(*buf, slot as u64))
        .collect();
    let sends: Vec<_> = (0..8)
        .map(|slot| path.task(slot * 64, 64, &[], slot as u64))
        .collect();
    path.consumer.context.log.take();
    for round in 0..500u64 {
        let slot = (round % 8) as usize;
        path.source.write(slot * 64, &round.to_le_bytes());
        assert_ok(submit(sends[slot]));
        path.wait(|path| path.consumer.received() == 1 && path.producer.produced() == 1);
        assert_eq!(
            path.consumer.context.log.take()[0],
            Seen::Received(slot as u64, 0, vec![], path.producer.id())
        );
        path.producer.context.log.take();
        assert_eq!(path.target.read(slot * 64, 8), round.to_le_bytes());
        buf(buffers[slot]).reset_data_len();
        assert_ok(submit(receives[slot]));
    }
    path.finish();
}

#[test]
fn one_megabyte_is_sent_and_more_is_refused() {
    const LARGEST: usize = 1 << 20;
    let mut path = FastPath::new(LARGEST + 4096, LARGEST + 4096);
    let bytes: Vec<u8> = (0..LARGEST).map(|at| (at * 7 + at / 251) as u8).collect();
    path.source.write(8, &bytes);
    let room = path.target.room(16, LARGEST);
    path.consumer.post(room, 1);
    assert_ok(submit(path.task(8, LARGEST, b"imm", 1)));
    path.wait(|path| path.consumer.received() == 1);
    assert!(path.consumer.context.log.has(&Seen::Received(
        1,
        0,
        b"imm".to_vec(),
        path.producer.id()
    )));
    assert_eq!(buf(room).data_len(), LARGEST);
    assert!(path.target.read(16, LARGEST) == bytes);
    assert_eq!(
        submit(path.task(8, LARGEST + 1, &[], 1)),
        Error::InvalidValue.code()
    );
    path.finish();
}

#[test]
fn a_message_larger_than_the_buffer_fails_the_receiver_only() {
    const LARGE: usize = 100_000;
    let mut path = FastPath::new(LARGE, LARGE);
    path.source.write(0, &[5; LARGE]);
    for (len, room) in [(65, 64), (LARGE, 64), (LARGE, LARGE - 1)] {
        let room = path.target.room(0, room);
        buf(room).set_data_len(1).unwrap();
        path.consumer.post(room, 1);
        path.consumer.post(path.target.room(1000, 70), 2);
        assert_ok(submit(path.task(0, len, &[], 3)));
        assert_ok(submit(path.task(0, 64, &[], 4)));
        path.wait(|path| path.consumer.received() == 2 && path.producer.produced() == 2);
        let sender = path.producer.id();
        let received: Vec<_> = path.consumer.context.log.take();
        let received = &received[received.len() - 2..];
        assert_eq!(
            received,
            [
                Seen::Received(1, Error::TooBig.code(), vec![], sender),
                Seen::Received(2, 0, vec![], sender)
            ]
        );
        assert_eq!(buf(room).data_len(), 1, "the buffer is as it was");
        assert!(path.producer.context.log.has(&Seen::Produced(3, 0)));
        path.producer.context.log.take();
    }
    path.finish();
}

#[test]
fn immediate_data_and_empty_messages() {
    let path = FastPath::new(4096, 4096);
    let mut task = std::ptr::null_mut();
    let mut long = [1u8; 33];
    let buf = path.source.data(0, 10);
    let code = unsafe {
        doca_comch_producer_task_send_alloc_init(
            path.producer.handle,
            buf,
            long.as_mut_ptr(),
            33,
            1,
            &raw mut task,
        )
    };
    assert_eq!(code, Error::InvalidValue.code());
    path.consumer.post(path.target.room(0, 64), 1);
    path.consumer.post(std::ptr::null_mut(), 2);
    path.consumer.post(std::ptr::null_mut(), 3);
    path.consumer.post(path.target.room(64, 64), 4);
    let none = std::ptr::null_mut();
    let id = path.consumer.id();
    assert_ok(submit(path.task(0, 10, &[7; 32], 0)));
    assert_ok(submit(path.producer.task(none, &[8], id, 0)));
    assert_ok(submit(path.producer.task(none, &[], id, 0)));
    assert_ok(submit(path.task(0, 10, &[], 0)));
    path.wait(|path| path.consumer.received() == 4);
    let sender = path.producer.id();
    for seen in [
        Seen::Received(1, 0, vec![7; 32], sender),
        Seen::Received(2, 0, vec![8], sender),
        Seen::Received(3, 0, vec![], sender),
        Seen::Received(4, 0, vec![], sender),
    ] {
        assert!(path.consumer.context.log.has(&seen), "{seen:?}");
    }
    path.finish();
}

#[test]
fn a_producer_refuses_chained_buffers() {
    let path = FastPath::new(4096, 4096);
    let list = path.source.data(0, 64);
    let tail = path.source.data(64, 64);
    buf(list).chain(buf(tail)).unwrap();
    path.consumer.post(path.target.room(0, 4096), 1);
    for refused in [list, tail] {
        let task = path.producer.task(refused, &[], path.consumer.id(), 1);
        assert_eq!(submit(task), Error::InvalidValue.code());
    }
    assert_ok(submit(path.producer.task(
        path.source.data(128, 8),
        &[],
        path.consumer.id(),
        2,
    )));
    path.wait(|path| path.consumer.received() == 1);
    path.finish();
}

#[test]
fn unsuitable_buffers_are_refused_by_a_consumer() {
    let path = FastPath::new(4096, 4096);
    let invalid = Error::InvalidValue.code();
    let foreign = path.consumer.allocate(path.source.room(0, 64), 0);
    assert_eq!(submit(foreign), invalid, "of another mmap");
    let list = path.target.room(0, 64);
    buf(list).chain(buf(path.target.room(64, 64))).unwrap();
    assert_eq!(submit(path.consumer.allocate(list, 0)), invalid);
    assert_eq!(
        submit(path.task(0, 64, &[], 1)),
        AGAIN,
        "none of them was posted"
    );
    path.finish();
}

#[test]
fn stopping_a_consumer_flushes_its_tasks_and_then_it_expires() {
    let path = FastPath::new(4096, 4096);
    for slot in 0..5 {
        path.consumer
            .post(path.target.room(slot * 64, 64), slot as u64);
    }
    assert_ok(submit(path.task(0, 64, &[], 7)));
    assert_eq!(path.consumer.context.stop(), IN_PROGRESS);
    let flushed = |slot| Seen::Received(slot, Error::ConnectionAborted.code(), vec![], 0);
    path.wait(|path| path.consumer.received() == 5);
    let log = &path.consumer.context.log;
    assert!(
        log.has(&Seen::Received(0, 0, vec![], path.producer.id())),
        "it had arrived"
    );
    assert!((1..5).all(|slot| log.has(&flushed(slot))));
    assert_eq!(
        path.consumer.context.state(),
        STOPPING,
        "until the tasks are freed"
    );
    let client = &path.pair.client.context.log;
    let expired = Seen::Expired(path.consumer.id());
    assert!(!client.has(&expired));
    let late = path.task(0, 64, &[], 8);
    assert_ok(submit(late));
    path.consumer.free_tasks();
    path.wait(|path| path.consumer.context.state() == IDLE);
    path.wait(|_| client.has(&expired));
    path.wait(|path| path.producer.produced() == 2);
    let failed = |data| Seen::Produced(data, Error::NotFound.code());
    assert!(path.producer.context.log.has(&failed(8)));
    assert_ok(submit(late));
    path.wait(|path| path.producer.produced() == 3);
    assert!(path.producer.context.log.count(|seen| *seen == failed(8)) == 2);
    // The same consumer can start again, with the same id.
    assert_eq!(path.consumer.context.start(), IN_PROGRESS);
    path.wait(|path| path.announced().len() == 2);
    path.consumer.post(path.target.room(0, 64), 9);
    assert_ok(submit(late));
    path.wait(|path| {
        path.consumer
            .context
            .log
            .has(&Seen::Received(9, 0, vec![], path.producer.id()))
    });
    path.finish();
}

#[test]
fn unknown_consumers_fail_the_task() {
    let path = FastPath::new(64, 64);
    for id in [0, 0xffff, 77, u32::MAX] {
        let task = path
            .producer
            .task(path.source.data(0, 64), &[], id, u64::from(id));
        assert_ok(submit(task));
        path.wait(|path| {
            path.producer
                .context
                .log
                .has(&Seen::Produced(u64::from(id), Error::NotFound.code()))
        });
    }
    // A task can be set to another consumer.
    let task = path.producer.task(path.source.data(0, 64), &[], 77, 5);
    path.consumer.post(path.target.room(0, 64), 6);
    unsafe { doca_comch_producer_task_send_set_consumer_id(task.cast(), path.consumer.id()) };
    assert_ok(submit(task));
    path.wait(|path| path.producer.context.log.has(&Seen::Produced(5, 0)));
    path.finish();
}

#[test]
fn consumers_are_announced_in_order_and_have_ids_of_their_own() {
    let path = FastPath::new(64, 64);
    let (connection, engine) = (path.pair.server.connection(), &path.pair.server_engine);
    let others: Vec<_> = (0..5)
        .map(|_| TestConsumer::run(connection, &path.target, engine))
        .collect();
    let own = TestConsumer::run(
        path.pair.client.connection(),
        &path.source,
        &path.pair.client_engine,
    );
    path.wait(|path| path.announced().len() == 6);
    let mut ids = vec![path.consumer.id()];
    ids.extend(others.iter().map(TestConsumer::id));
    assert_eq!(path.announced(), ids);
    ids.extend([own.id(), path.producer.id()]);
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), 8);
    assert!(ids.iter().all(|id| *id != 0 && *id < 0xffff));
    for consumer in others.iter().chain([&own]) {
        consumer.finish(&path.pair.engines());
    }
    drop((others, own));
    path.finish();
}

#[test]
fn an_expiry_precedes_later_messages() {
    let path = FastPath::new(64, 64);
    let id = path.consumer.id();
    let server = &path.pair.server;
    assert_ok(server.send(server.connection(), b"before"));
    path.consumer.finish(&[&path.pair.server_engine]);
    assert_ok(server.send(server.connection(), b"after"));
    path.wait(|path| {
        path.pair
            .client
            .context
            .log
            .has(&Seen::Message(b"after".to_vec()))
    });
    let seen = path.pair.client.context.log.take();
    let expected = [
        Seen::Message(b"before".to_vec()),
        Seen::Expired(id),
        Seen::Message(b"after".to_vec()),
    ];
    assert_eq!(seen[seen.len() - 3..], expected);
    path.finish();
}

#[test]
fn several_producers_share_a_consumer() {
    let mut path = FastPath::new(64 * 64, 64);
    path.source.write(0, &[3; 64]);
    let other = TestProducer::run(path.pair.client.connection(), &path.pair.client_engine);
    for slot in 0..9 {
        path.consumer
            .post(path.target.room(slot * 64, 64), slot as u64);
    }
    let id = path.consumer.id();
    for round in 0..9 {
        let producer = if round % 3 == 0 {
            &path.producer
        } else {
            &other
        };
        assert_ok(submit(producer.task(path.source.data(0, 64), &[], id, 0)));
    }
    path.wait(|path| path.consumer.received() == 9);
    for slot in 0..9u64 {
        let sender = if slot % 3 == 0 {
            &path.producer
        } else {
            &other
        };
        assert!(
            path.consumer
                .context
                .log
                .has(&Seen::Received(slot, 0, vec![], sender.id()))
        );
        assert_eq!(path.target.read(slot as usize * 64, 64), [3; 64]);
    }
    other.finish(&path.pair.engines());
    drop(other);
    path.finish();
}

#[test]
fn a_consumer_needs_writable_memory_and_a_live_connection() {
    let pair = Pair::connect();
    let memory = Memory::new(64);
    let connection = pair.client.connection();
    let engine = Engine::new();
    let plain = std::sync::Arc::new(crate::memory::Mmap::new());
    let mmap = super::super::super::give::<doca_abi::doca_mmap>(plain);
    let mut consumer = std::ptr::null_mut();
    let code = unsafe { doca_comch_consumer_create(connection, mmap, &raw mut consumer) };
    assert_eq!(code, Error::NotPermitted.code());
    let code = unsafe { doca_comch_consumer_create(std::ptr::null_mut(), mmap, &raw mut consumer) };
    assert_eq!(code, Error::InvalidValue.code());
    drop(unsafe { super::super::super::reclaim(mmap) });
    // The handle remains valid for a while after the connection was closed.
    let theirs = pair.server.connection();
    let running = TestConsumer::run(theirs, &memory, &engine);
    pair.client.context.stop_fully(&[&pair.client_engine]);
    progress_until(&[&pair.server_engine, &engine], || {
        pair.server.context.log.has(&Seen::Disconnected(1)) && running.context.state() == IDLE
    });
    let mut producer = std::ptr::null_mut();
    let code = unsafe { doca_comch_producer_create(theirs, &raw mut producer) };
    assert_eq!(code, Error::BadState.code());
    assert_eq!(running.context.start(), Error::NotConnected.code());
    drop(running);
    pair.finish();
}

#[test]
fn getters_take_null() {
    let (task, null) = (
        std::ptr::null_mut(),
        std::ptr::null_mut::<doca_abi::doca_comch_producer_task_send>(),
    );
    unsafe {
        assert!(doca_comch_consumer_task_post_recv_get_buf(task).is_null());
        assert!(doca_comch_consumer_task_post_recv_get_imm_data(task).is_null());
        assert_eq!(doca_comch_consumer_task_post_recv_get_imm_data_len(task), 0);
        assert_eq!(doca_comch_consumer_task_post_recv_get_producer_id(task), 0);
        assert!(doca_comch_producer_task_send_get_buf(null).is_null());
        assert_eq!(doca_comch_producer_task_send_get_consumer_id(null), 0);
        assert!(doca_comch_producer_task_send_as_task(null).is_null());
        doca_task_free(std::ptr::null_mut());
    }
}

fn arm(engine: &Engine) {
    unsafe {
        while doca_pe_request_notification(engine.0) != DOCA_SUCCESS {
            doca_pe_progress(engine.0);
        }
    }
}

/// `true` if an armed engine becomes readable within this time.
fn wakes(engine: &Engine, seconds: i64) -> bool {
    let mut handle = std::io::stdin().as_raw_fd();
    let woken = unsafe {
        assert_ok(doca_pe_get_notification_handle(engine.0, &raw mut handle));
        let fd = BorrowedFd::borrow_raw(handle);
        let timeout = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let woken = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout));
        assert_ok(doca_pe_clear_notification(engine.0, handle));
        woken
    };
    woken == Ok(1)
}

#[test]
fn space_in_a_full_socket_wakes_the_sender() {
    const COUNT: usize = 250;
    let pair = Pair::connect();
    let bytes = vec![7; 4080];
    for _ in 0..COUNT {
        assert_ok(pair.client.send(&bytes));
    }
    let log = &pair.client.context.log;
    let sent = || log.count(|seen| *seen == Seen::Sent(0));
    while pair.client_engine.progress() {}
    assert!(
        sent() < COUNT,
        "the socket took everything, which proves nothing"
    );
    arm(&pair.client_engine);
    assert!(!wakes(&pair.client_engine, 0), "there is no room yet");
    while sent() < COUNT {
        // The server reads after the client has started to wait on its descriptor.
        arm(&pair.client_engine);
        while pair.server_engine.progress() {}
        assert!(wakes(&pair.client_engine, 5), "{} of {COUNT}", sent());
        while pair.client_engine.progress() {}
    }
    pair.finish();
}

/// A connection's handle that is sent to another thread.
#[derive(Clone, Copy)]
struct Handle(*mut doca_comch_connection);

// SAFETY: connections may be used by several threads, which these tests check.
unsafe impl Send for Handle {}

impl Handle {
    fn get(self) -> *mut doca_comch_connection {
        self.0
    }
}

/// Runs `work` in two threads, one per end of the connection, while this thread progresses the control path.
fn in_threads(pair: &Pair, server: impl FnOnce(Handle) + Send, client: impl FnOnce(Handle) + Send) {
    let (theirs, ours) = (
        Handle(pair.server.connection()),
        Handle(pair.client.connection()),
    );
    std::thread::scope(|scope| {
        let threads = [
            scope.spawn(move || server(theirs)),
            scope.spawn(move || client(ours)),
        ];
        while !threads.iter().all(|thread| thread.is_finished()) {
            pair.engines().iter().for_each(|engine| {
                engine.progress();
            });
        }
        for thread in threads {
            thread.join().expect("the thread has not panicked");
        }
    });
}

/// Waits until the consumer `id` was reported to the client, then submits.
fn submit_when_known(engine: &Engine, producer: &TestProducer, task: *mut doca_task) {
    let begin = Instant::now();
    loop {
        let before = producer.produced();
        match submit(task) {
            AGAIN => {
                engine.progress();
            }
            code => {
                assert_ok(code);
                progress_until(&[engine], || producer.produced() > before);
                if producer
                    .context
                    .log
                    .take()
                    .iter()
                    .all(|seen| !matches!(seen, Seen::Produced(_, status) if *status != 0))
                {
                    return;
                }
            }
        }
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "the consumer does not appear"
        );
    }
}

#[test]
fn every_message_arrives_once_and_in_order() {
    const MESSAGES: u64 = 20_000;
    const SLOTS: usize = 32;
    let pair = Pair::connect();
    in_threads(
        &pair,
        |connection| {
            let (memory, engine) = (Memory::new(64 * SLOTS), Engine::new());
            let consumer = TestConsumer::run(connection.get(), &memory, &engine);
            let buffers: Vec<_> = (0..SLOTS).map(|slot| memory.room(slot * 64, 64)).collect();
            let tasks: Vec<_> = (0..SLOTS)
                .map(|slot| consumer.post(buffers[slot], slot as u64))
                .collect();
            let mut next = 0u64;
            let begin = Instant::now();
            consumer.context.log.take();
            while next < MESSAGES {
                engine.progress();
                for seen in consumer.context.log.take() {
                    let Seen::Received(slot, 0, _, _) = seen else {
                        panic!("{seen:?}");
                    };
                    let slot = slot as usize;
                    assert_eq!(memory.read(slot * 64, 8), next.to_le_bytes());
                    assert_eq!(buf(buffers[slot]).data_len(), 8 + next as usize % 57);
                    next += 1;
                    buf(buffers[slot]).reset_data_len();
                    assert_ok(submit(tasks[slot]));
                }
                assert!(
                    begin.elapsed() < Duration::from_secs(60),
                    "only {next} have come"
                );
            }
            consumer.finish(&[&engine]);
        },
        |connection| {
            let (mut memory, engine) = (Memory::new(64 * SLOTS), Engine::new());
            let producer = TestProducer::run(connection.get(), &engine);
            let buffers: Vec<_> = (0..SLOTS).map(|slot| memory.data(slot * 64, 64)).collect();
            // The first consumer of a server has the id 1.
            let tasks: Vec<_> = (0..SLOTS)
                .map(|slot| producer.task(buffers[slot], &[], 1, slot as u64))
                .collect();
            let mut free: Vec<usize> = (0..SLOTS).collect();
            let begin = Instant::now();
            let mut next = 0u64;
            while next < MESSAGES || free.len() < SLOTS {
                assert!(
                    begin.elapsed() < Duration::from_secs(60),
                    "only {next} have gone"
                );
                while next < MESSAGES
                    && let Some(slot) = free.pop()
                {
                    memory.write(slot * 64, &next.to_le_bytes());
                    let addr = buf(buffers[slot]).head();
                    buf(buffers[slot])
                        .set_data(addr, 8 + next as usize % 57)
                        .unwrap();
                    if next == 0 {
                        submit_when_known(&engine, &producer, tasks[slot]);
                        free.push(slot);
                    } else if submit(tasks[slot]) == AGAIN {
                        free.push(slot);
                        break;
                    }
                    next += 1;
                }
                engine.progress();
                for seen in producer.context.log.take() {
                    if let Seen::Produced(slot, status) = seen {
                        assert_eq!(status, 0);
                        free.push(slot as usize);
                    }
                }
            }
            producer.finish(&[&engine]);
        },
    );
    pair.finish();
}

/// Maximum sleep of a thread that misses its wake-up; much longer than a woken thread takes, even on a busy machine.
const UNWOKEN: Duration = Duration::from_secs(60);
const WOKEN: Duration = Duration::from_secs(20);
/// Number of messages. Before each, a pause lets the receiving thread fall asleep: it spins and yields for less than a
/// millisecond, but may wait for a CPU.
const WAKE_UPS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(40);

/// As [`progress_until`], with an engine whose sleeps end only by a wake-up. Panics if none arrives.
fn sleep_until(engine: &Engine, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    with_sleeps_of(UNWOKEN, || {
        while !done() {
            engine.progress();
            let slept = begin.elapsed();
            assert!(slept < WOKEN, "no wake-up in {slept:?}");
        }
    });
}

fn memory_buf(_: &Memory, task: *mut doca_task) -> *mut doca_abi::doca_buf {
    use super::super::doca_comch_consumer_task_post_recv_get_buf;
    unsafe { doca_comch_consumer_task_post_recv_get_buf(task.cast()) }
}

#[test]
fn a_sleeping_consumer_is_woken() {
    let pair = Pair::connect();
    let done = AtomicBool::new(false);
    in_threads(
        &pair,
        |connection| {
            let (memory, engine) = (Memory::new(64), Engine::new());
            let consumer = TestConsumer::run(connection.get(), &memory, &engine);
            let task = consumer.post(memory.room(0, 64), 0);
            for _ in 0..=WAKE_UPS {
                sleep_until(&engine, || consumer.received() > 0);
                consumer.context.log.take();
                buf(memory_buf(&memory, task)).reset_data_len();
                assert_ok(submit(task));
            }
            done.store(true, Ordering::Release);
            consumer.finish(&[&engine]);
        },
        |connection| {
            let (memory, engine) = (Memory::new(64), Engine::new());
            let producer = TestProducer::run(connection.get(), &engine);
            let task = producer.task(memory.data(0, 64), &[], 1, 0);
            submit_when_known(&engine, &producer, task);
            for _ in 0..WAKE_UPS {
                progress_for(&[&engine], PAUSE);
                assert_ok(submit(task));
                progress_until(&[&engine], || producer.produced() > 0);
                producer.context.log.take();
            }
            progress_until(&[&engine], || done.load(Ordering::Acquire));
            producer.finish(&[&engine]);
        },
    );
    pair.finish();
}

#[test]
fn a_producer_that_waits_for_a_buffer_is_woken() {
    let pair = Pair::connect();
    let done = AtomicBool::new(false);
    in_threads(
        &pair,
        |connection| {
            let (memory, engine) = (Memory::new(64), Engine::new());
            let consumer = TestConsumer::run(connection.get(), &memory, &engine);
            let task = consumer.post(memory.room(0, 64), 0);
            for _ in 0..WAKE_UPS {
                progress_until(&[&engine], || consumer.received() > 0);
                consumer.context.log.take();
                buf(memory_buf(&memory, task)).reset_data_len();
                std::thread::sleep(PAUSE);
                assert_ok(submit(task));
            }
            progress_until(&[&engine], || done.load(Ordering::Acquire));
            consumer.finish(&[&engine]);
        },
        |connection| {
            let (memory, engine) = (Memory::new(64), Engine::new());
            let producer = TestProducer::run(connection.get(), &engine);
            let task = producer.task(memory.data(0, 64), &[], 1, 0);
            submit_when_known(&engine, &producer, task);
            for _ in 0..WAKE_UPS {
                sleep_until(&engine, || match submit(task) {
                    AGAIN => false,
                    code => {
                        assert_ok(code);
                        true
                    }
                });
                progress_until(&[&engine], || producer.produced() > 0);
                producer.context.log.take();
            }
            done.store(true, Ordering::Release);
            producer.finish(&[&engine]);
        },
    );
    pair.finish();
}

#[test]
fn producers_in_several_threads_share_a_consumer() {
    const PRODUCERS: u64 = 3;
    const EACH: u64 = 3_000;
    let pair = Pair::connect();
    in_threads(
        &pair,
        |connection| {
            let (memory, engine) = (Memory::new(64 * 16), Engine::new());
            let consumer = TestConsumer::run(connection.get(), &memory, &engine);
            let buffers: Vec<_> = (0..16).map(|slot| memory.room(slot * 64, 64)).collect();
            let tasks: Vec<_> = (0..16)
                .map(|slot| consumer.post(buffers[slot], slot as u64))
                .collect();
            let mut expected = std::collections::BTreeMap::new();
            let mut count = 0;
            let begin = Instant::now();
            consumer.context.log.take();
            while count < PRODUCERS * EACH {
                engine.progress();
                for seen in consumer.context.log.take() {
                    let Seen::Received(slot, 0, immediate, producer) = seen else {
                        panic!("{seen:?}");
                    };
                    let slot = slot as usize;
                    let next = expected.entry(producer).or_insert(0u64);
                    assert_eq!(
                        immediate,
                        producer.to_le_bytes(),
                        "the sender is the one that it says"
                    );
                    assert_eq!(memory.read(slot * 64, 8), next.to_le_bytes());
                    *next += 1;
                    count += 1;
                    buf(buffers[slot]).reset_data_len();
                    assert_ok(submit(tasks[slot]));
                }
                assert!(
                    begin.elapsed() < Duration::from_secs(60),
                    "only {count} have come"
                );
            }
            assert_eq!(expected.len() as u64, PRODUCERS);
            consumer.finish(&[&engine]);
        },
        |connection| {
            std::thread::scope(|scope| {
                for _ in 0..PRODUCERS {
                    scope.spawn(move || {
                        let (mut memory, engine) = (Memory::new(64), Engine::new());
                        let producer = TestProducer::run(connection.get(), &engine);
                        let task =
                            producer.task(memory.data(0, 64), &producer.id().to_le_bytes(), 1, 0);
                        for index in 0..EACH {
                            memory.write(0, &index.to_le_bytes());
                            submit_when_known(&engine, &producer, task);
                        }
                        producer.finish(&[&engine]);
                    });
                }
            });
        },
    );
    pair.finish();
}
