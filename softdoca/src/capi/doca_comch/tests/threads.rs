//! The fast path in separate threads: consumers and producers are created, used and stopped by threads that do not
//! progress the connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::endpoints::*;
use super::*;
use crate::progress::with_sleeps_of;

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

/// Maximum sleep of a thread that misses its wake-up; much longer than a woken thread needs, even on a busy machine.
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
    use super::super::super::doca_comch::doca_comch_consumer_task_post_recv_get_buf;
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
