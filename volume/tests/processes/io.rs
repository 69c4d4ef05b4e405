//! I/O of any range, sequential and concurrent, by futures and by blocking calls, and across restarts of services and targets.

use std::cell::Cell;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use async_io::Async;
use deployment::Part;
use deployment::process::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use volume::{AsyncQueue, CloseError, Io, IoError, OpenError, Operation, Volume};

use crate::{BLOCK, Deployment, Plan, address, read, reap, run, sleep, write};

pub const TESTS: &[(&str, fn())] = &[
    ("blocks_are_written_and_read_back", blocks),
    ("any_range_is_read_and_written", ranges),
    ("zeroes_discards_and_flushes", operations),
    ("storage_in_memory_has_no_flush", no_flush),
    ("depth_is_a_limit_and_all_ios_complete", depth),
    ("queues_share_a_volume", queues),
    ("ios_of_whole_blocks_do_not_allocate", allocations),
    ("other_queues_continue_when_one_is_dropped", dropped_queue),
    ("idle_queue_sleeps_after_a_late_wake_up", late_wake_up),
    ("no_service_is_an_error", no_service),
    ("second_volume_opens_after_the_first_is_closed", reopen),
    ("futures_read_and_write_at_the_same_time", concurrent),
    ("dropped_future_does_not_affect_others", dropped),
    ("blocking_calls_cover_large_ranges", blocking),
    (
        "buffers_are_valid_across_sessions_whose_memory_differs",
        buffers,
    ),
    ("ios_wait_for_a_service_that_was_killed", service),
    ("ios_wait_for_a_target_that_was_killed", target),
    ("ios_are_sent_again_after_a_service_was_stopped", stopped),
    ("load_survives_restarts_of_the_service", load),
    ("ios_fail_while_the_service_is_offline", away),
    ("smaller_storage_is_refused", smaller),
    ("volume_opens_when_a_service_is_ready", unready),
];

const WRITE: Operation = Operation::Write { fua: false };

fn blocks() {
    let deployment = Deployment::new(Plan::default());
    let (volume, mut queues) = deployment.open();
    assert_eq!(volume.size(), 64 * BLOCK as u64);
    assert_eq!(volume.block_size() as usize, BLOCK);
    let queue = &mut queues[0];
    for block in [0, 1, 63] {
        let bytes = contents::noise(block, BLOCK);
        write(queue, block * BLOCK as u64, &bytes);
        assert!(read(queue, block * BLOCK as u64, BLOCK) == bytes);
    }
    let bytes = contents::noise(99, 60 * BLOCK);
    write(queue, 2 * BLOCK as u64, &bytes);
    assert!(read(queue, 2 * BLOCK as u64, 60 * BLOCK) == bytes);
    drop(queues);
    volume.close().expect("a clean shutdown");
}

fn ranges() {
    let deployment = Deployment::new(Plan::default());
    let (volume, mut queues) = deployment.open();
    let queue = &mut queues[0];
    let mut expected = contents::noise(1, volume.size() as usize);
    write(queue, 0, &expected);
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..200 {
        let offset = random.usize(..expected.len());
        let len = random.usize(..(5 * BLOCK).min(expected.len() - offset));
        let bytes = contents::noise(100 + round, len);
        write(queue, offset as u64, &bytes);
        expected[offset..offset + len].copy_from_slice(&bytes);
        let offset = random.usize(..expected.len());
        let len = random.usize(..(5 * BLOCK).min(expected.len() - offset));
        assert!(read(queue, offset as u64, len) == expected[offset..offset + len]);
    }
    assert!(read(queue, 0, expected.len()) == expected);
    let out = run(queue, Operation::Discard, volume.size(), 1, None).0;
    let size = volume.size();
    let expected = IoError::OutOfRange {
        offset: size,
        len: 1,
        size,
    };
    assert_eq!(out, Err(expected));
    drop(queues);
    volume.close().expect("a clean shutdown");
}

fn operations() {
    let deployment = Deployment::new(Plan::default());
    let (volume, mut queues) = deployment.open();
    let capabilities = volume.capabilities();
    assert!(capabilities.flush && capabilities.fua && !capabilities.read_only);
    let queue = &mut queues[0];
    let mut expected = contents::noise(1, volume.size() as usize);
    write(queue, 0, &expected);
    let zeroes = Operation::WriteZeroes { fua: false };
    let durable = Operation::WriteZeroes { fua: true };
    for (operation, offset, len) in [
        (zeroes, 100, 50_usize),
        (durable, 4000, 3 * BLOCK),
        (Operation::Discard, 100_000, 100_000),
        (durable, 0, 1),
    ] {
        assert_eq!(run(queue, operation, offset, len, None).0, Ok(()));
        expected[offset as usize..offset as usize + len].fill(0);
        assert!(read(queue, 0, expected.len()) == expected, "{operation:?}");
    }
    let mut buffer = queue.buffer(500).expect("a buffer");
    buffer.fill(7);
    let operation = Operation::Write { fua: true };
    assert_eq!(run(queue, operation, 5000, 500, Some(buffer)).0, Ok(()));
    expected[5000..5500].fill(7);
    assert!(read(queue, 0, expected.len()) == expected);
    assert_eq!(run(queue, Operation::Flush, 0, 0, None).0, Ok(()));
    drop(queues);
    volume.close().expect("a clean shutdown");
}

fn no_flush() {
    let deployment = Deployment::new(Plan {
        is_durable: false,
        ..Plan::default()
    });
    let (volume, mut queues) = deployment.open();
    assert!(!volume.capabilities().flush && !volume.capabilities().fua);
    let flushed = run(&mut queues[0], Operation::Flush, 0, 0, None).0;
    assert_eq!(flushed, Err(IoError::Unsupported));
    drop(queues);
    volume.close().expect("a clean shutdown");
    let mut config = deployment.config();
    config.read_only = true;
    let (volume, mut queues) = deployment.open_with(config);
    assert!(volume.capabilities().read_only);
    let written = run(&mut queues[0], Operation::Discard, 0, 1, None).0;
    assert_eq!(written, Err(IoError::ReadOnly));
    drop(queues);
    volume.close().expect("a clean shutdown");
}

fn depth() {
    let deployment = Deployment::new(Plan::default());
    let mut config = deployment.config();
    (config.depth, config.buffers) = (8, 12);
    let (volume, mut queues) = deployment.open_with(config);
    let queue = &mut queues[0];
    let mut outstanding = 0;
    let mut completed = vec![0; 1000];
    let mut refused = 0;
    for tag in 0..1000_u64 {
        let mut buffer = loop {
            match queue.buffer(BLOCK) {
                Some(buffer) => break buffer,
                None => {
                    for done in reap(queue, 1) {
                        completed[done.tag as usize] += 1;
                        outstanding -= 1;
                    }
                }
            }
        };
        buffer.fill(tag as u8);
        let mut io = Io {
            tag,
            operation: WRITE,
            offset: (tag % 60) * BLOCK as u64 + (tag % 3) * 512,
            len: BLOCK as u32,
            buffer: Some(buffer),
        };
        while let Err(same) = queue.submit(io) {
            assert_eq!(same.tag, tag);
            io = same;
            refused += 1;
            for done in reap(queue, 1) {
                assert_eq!(done.result, Ok(()));
                completed[done.tag as usize] += 1;
                outstanding -= 1;
            }
        }
        outstanding += 1;
        assert!(outstanding <= 8);
    }
    for done in reap(queue, outstanding) {
        assert_eq!(done.result, Ok(()));
        completed[done.tag as usize] += 1;
    }
    assert!(refused > 0);
    assert!(completed.iter().all(|&count| count == 1));
    drop(queues);
    volume.close().expect("a clean shutdown");
}

/// Threads with a queue each increment counters that cross block boundaries: partial or concurrent writes would lose increments.
fn queues() {
    const THREADS: usize = 3;
    let deployment = Deployment::new(Plan {
        blocks: 8,
        block_size: 512,
        workers: THREADS,
        ..Plan::default()
    });
    let (volume, queues) = deployment.open();
    let size = volume.size() as usize;
    std::thread::scope(|scope| {
        for (thread, mut queue) in queues.into_iter().enumerate() {
            scope.spawn(move || {
                // Writes of one value to ranges that all threads share, and reads that must return a single value.
                let mut random = fastrand::Rng::with_seed(thread as u64);
                for round in 0..300_u32 {
                    let value = (round * THREADS as u32 + thread as u32) as u8;
                    if random.bool() {
                        write(&mut queue, 300, &vec![value; 2000]);
                    } else {
                        let bytes = read(&mut queue, 300, 2000);
                        let first = bytes[0];
                        assert!(bytes.iter().all(|&byte| byte == first), "half of a write");
                    }
                }
                if thread == 0 {
                    let flushed = run(&mut queue, Operation::Flush, 0, 0, None).0;
                    assert_eq!(flushed, Ok(()));
                }
                let bytes = read(&mut queue, 0, size);
                assert!(bytes[..300].iter().all(|&byte| byte == 0));
                assert!(bytes[2300..].iter().all(|&byte| byte == 0));
            });
        }
    });
    volume.close().expect("a clean shutdown");
}

fn allocations() {
    let deployment = Deployment::new(Plan::default());
    let (volume, mut queues) = deployment.open();
    let queue = &mut queues[0];
    let mut round = |count: u64| {
        let (mut submitted, mut completed) = (0, 0);
        while completed < count {
            while submitted < count
                && let Some(buffer) = queue.buffer(2 * BLOCK)
            {
                let io = Io {
                    tag: submitted,
                    operation: if submitted % 2 == 0 {
                        WRITE
                    } else {
                        Operation::Read
                    },
                    offset: submitted % 31 * 2 * BLOCK as u64,
                    len: 2 * BLOCK as u32,
                    buffer: Some(buffer),
                };
                if queue.submit(io).is_err() {
                    break;
                }
                submitted += 1;
            }
            completed += queue.poll(&mut |completion| assert_eq!(completion.result, Ok(()))) as u64;
        }
    };
    round(1000);
    let measured = allocation_counter::measure(|| round(5000));
    // On a busy machine the progress engine may sleep, which allocates; I/Os do not.
    assert!(measured.count_total < 500, "{measured:?} in 5000 I/Os");
    drop(queues);
    volume.close().expect("a clean shutdown");
}

/// Before and after the loss of the service.
fn dropped_queue() {
    let mut deployment = Deployment::new(Plan {
        workers: 2,
        ..Plan::default()
    });
    let (volume, mut queues) = deployment.open();
    let bytes = contents::noise(1, 3 * BLOCK);
    write(&mut queues[0], 50, &bytes);
    queues.remove(0);
    assert!(read(&mut queues[0], 50, bytes.len()) == bytes);
    deployment.kill_service();
    deployment.start_service();
    assert!(read(&mut queues[0], 50, bytes.len()) == bytes);
    drop(queues);
    volume.close().expect("a clean shutdown");
}

/// Event descriptors registered with the epoll descriptors in an epoll descriptor.
fn nested_events(epoll: RawFd) -> Vec<RawFd> {
    let watched = |fd: RawFd| -> Vec<RawFd> {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).expect("its state");
        let watched = info.lines().filter_map(|line| line.strip_prefix("tfd:"));
        let numbers = watched.filter_map(|line| line.split_whitespace().next());
        numbers.map(|fd| fd.parse().expect("a number")).collect()
    };
    let kind = |fd: RawFd| std::fs::read_link(format!("/proc/self/fd/{fd}")).expect("a descriptor");
    let is = |fd: &RawFd, name: &str| kind(*fd).to_string_lossy().contains(name);
    let engines = watched(epoll).into_iter().filter(|fd| is(fd, "eventpoll"));
    let events = engines.flat_map(watched).filter(|fd| is(fd, "eventfd"));
    events.collect()
}

/// A peer that has seen the progress engine armed wakes it after it was disarmed.
fn late_wake_up() {
    let deployment = Deployment::new(Plan::default());
    let (volume, mut queues) = deployment.open();
    let queue = &mut queues[0];
    let bytes = contents::noise(1, BLOCK);
    for _ in 0..3 {
        write(queue, 0, &bytes);
        let events = nested_events(queue.descriptor().as_raw_fd());
        assert!(!events.is_empty(), "a progress engine with a wake-up");
        for event in events {
            // SAFETY: the engine's descriptor stays open while its queue exists.
            let event = unsafe { BorrowedFd::borrow_raw(event) };
            rustix::io::write(event, &1_u64.to_ne_bytes()).expect("woken");
        }
        let mut is_readable = true;
        for _ in 0..100 {
            queue.poll(&mut |_| panic!("no I/O is in flight"));
            if queue.arm() {
                let mut fds = [PollFd::from_borrowed_fd(queue.descriptor(), PollFlags::IN)];
                is_readable = poll(&mut fds, Some(&Timespec::default())) != Ok(0);
                queue.disarm();
                if !is_readable {
                    break;
                }
            }
        }
        assert!(!is_readable, "a thread that sleeps on it would spin");
        assert!(read(queue, 0, BLOCK) == bytes);
    }
    drop(queues);
    volume.close().expect("a clean shutdown");
}

fn no_service() {
    let config = volume::Config {
        services: vec![address("volume-test-nothing")],
        control_timeout: std::time::Duration::from_millis(300),
        ..volume::Config::default()
    };
    let error = Volume::open(config.clone()).expect_err("nothing is there");
    assert!(matches!(error, OpenError::Session(_)), "{error:?}");
    let no_device = volume::Config {
        services: vec![volume::Service {
            device: "no such device".to_owned(),
            ..volume::Service::default()
        }],
        ..config.clone()
    };
    let error = Volume::open(no_device).expect_err("no device");
    assert!(matches!(error, OpenError::Device { .. }), "{error:?}");
    let no_queue = volume::Config {
        queues: 0,
        ..config
    };
    let error = Volume::open(no_queue).expect_err("no queue");
    assert!(matches!(error, OpenError::Config(_)), "{error:?}");
}

fn reopen() {
    let deployment = Deployment::new(Plan::default());
    let bytes = contents::noise(3, BLOCK);
    for round in 0..3 {
        let (volume, mut queues) = deployment.open();
        if round == 0 {
            write(&mut queues[0], 0, &bytes);
        }
        assert!(read(&mut queues[0], 0, BLOCK) == bytes);
        if round == 1 {
            // The queue still exists, and is polled in the meantime.
            let thread = std::thread::spawn(move || volume.close());
            while !thread.is_finished() {
                queues[0].poll(&mut |_| {});
            }
            thread.join().expect("no panic").expect("a clean shutdown");
            let late = run(&mut queues[0], Operation::Flush, 0, 0, None).0;
            assert_eq!(late, Err(IoError::Closed));
        } else if round == 2 {
            let mut config = deployment.config();
            config.control_timeout = std::time::Duration::from_secs(8);
            drop(queues);
            volume.close().expect("a clean shutdown");
            let (volume, queues) = deployment.open_with(config);
            let error = volume.close().expect_err("a queue that is not polled");
            assert!(
                matches!(error, CloseError::Queues { count: 1 }),
                "{error:?}"
            );
            drop(queues);
        } else {
            drop(queues);
            volume.close().expect("a clean shutdown");
        }
    }
}

/// Runs `work` together with the queue's driver.
fn block_on<T>(queue: &AsyncQueue, work: impl Future<Output = T>) -> T {
    async_io::block_on(async {
        let fd = Async::new_nonblocking(queue.descriptor()).expect("a descriptor");
        let mut driver = pin!(queue.drive(async |_| fd.readable().await));
        let mut work = pin!(work);
        std::future::poll_fn(|context| {
            assert!(driver.as_mut().poll(context).is_pending(), "it cannot wait");
            work.as_mut().poll(context)
        })
        .await
    })
}

async fn all(mut futures: Vec<std::pin::Pin<Box<dyn Future<Output = ()> + '_>>>) {
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

fn concurrent() {
    let deployment = Deployment::new(Plan::default());
    let mut config = deployment.config();
    // Fewer than the number of futures, so that some of them wait for buffers or for the queue.
    (config.depth, config.buffers) = (4, 6);
    let (volume, mut queues) = deployment.open_with(config);
    let queue = queues.remove(0).into_async().expect("descriptors");
    let done = Cell::new(0);
    let one = async |number: u64| {
        let offset = number * 3 * BLOCK as u64 + 100;
        let bytes = contents::noise(number, 2 * BLOCK);
        queue.write_at(&bytes, offset).await.expect("written");
        let mut read = vec![0; bytes.len()];
        queue.read_at(&mut read, offset).await.expect("read");
        assert!(read == bytes);
        done.set(done.get() + 1);
    };
    block_on(&queue, async {
        let futures = (0..20).map(|number| Box::pin(one(number)) as _).collect();
        all(futures).await;
        queue.flush().await.expect("flushed");
        let size = volume.size();
        let error = queue.write_at(&[1], size).await.expect_err("outside");
        assert_eq!(
            error,
            IoError::OutOfRange {
                offset: size,
                len: 1,
                size
            }
        );
    });
    assert_eq!(done.get(), 20);
    drop(queue);
    volume.close().expect("a clean shutdown");
}

fn dropped() {
    let deployment = Deployment::new(Plan::default());
    let mut config = deployment.config();
    (config.depth, config.buffers) = (2, 2);
    let (volume, mut queues) = deployment.open_with(config);
    let queue = queues.remove(0).into_async().expect("descriptors");
    block_on(&queue, async {
        for round in 0..50_u8 {
            let mut buffer = queue.buffer(BLOCK).await.expect("not too large");
            buffer.fill(round);
            let write = Operation::Write { fua: false };
            let mut write = Box::pin(queue.run(write, 0, BLOCK as u32, Some(buffer)));
            // Polled once, which submits the I/O, and then dropped.
            std::future::poll_fn(|context| {
                let _ = write.as_mut().poll(context);
                Poll::Ready(())
            })
            .await;
            drop(write);
        }
        let mut bytes = [0; 8];
        queue.read_at(&mut bytes, 0).await.expect("read");
        assert!(bytes.iter().all(|&byte| byte == bytes[0]));
    });
    drop(queue);
    volume.close().expect("a clean shutdown");
}

fn blocking() {
    let deployment = Deployment::new(Plan::default());
    let mut config = deployment.config();
    (config.depth, config.buffers, config.largest_transfer) = (4, 3, 8192);
    let (volume, mut queues) = deployment.open_with(config);
    let mut queue = queues.remove(0).into_blocking();
    let mut expected = contents::noise(5, volume.size() as usize);
    queue.write_at(&expected, 0).expect("written");
    queue.write_at(&[1, 2, 3], 50_000).expect("written");
    expected[50_000..50_003].copy_from_slice(&[1, 2, 3]);
    queue.write_zeroes_at(60_001, 100_000).expect("written");
    expected[60_001..160_001].fill(0);
    queue.flush().expect("flushed");
    let mut bytes = vec![0; expected.len()];
    queue.read_at(&mut bytes, 0).expect("read");
    assert!(bytes == expected);
    let mut beyond = [0; 20_000];
    let error = queue
        .read_at(&mut beyond, volume.size() - 10_000)
        .expect_err("half of it is outside");
    assert!(matches!(error, IoError::OutOfRange { .. }), "{error:?}");
    // The failed call leaves no I/O behind.
    queue.read_at(&mut bytes, 0).expect("read");
    assert!(bytes == expected);
    drop(queue);
    volume.close().expect("a clean shutdown");
}

fn service() {
    let mut deployment = Deployment::new(Plan::default());
    let (volume, mut queues) = deployment.open();
    let queue = &mut queues[0];
    let bytes = contents::noise(1, 3 * BLOCK);
    write(queue, 100, &bytes);
    deployment.kill_service();
    for (tag, operation) in [(0, WRITE), (1, Operation::Read)] {
        let mut buffer = queue.buffer(BLOCK).expect("a buffer");
        buffer.fill(9);
        let io = Io {
            tag,
            operation,
            offset: 20 * BLOCK as u64 + 7 * tag,
            len: BLOCK as u32,
            buffer: Some(buffer),
        };
        queue.submit(io).expect("room");
    }
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        let count = queue.poll(&mut |completion| panic!("{completion:?}"));
        assert_eq!(count, 0);
    }
    deployment.start_service();
    for completion in reap(queue, 2) {
        assert_eq!(completion.result, Ok(()));
    }
    assert!(read(queue, 100, bytes.len()) == bytes);
    assert!(read(queue, 20 * BLOCK as u64, BLOCK) == vec![9; BLOCK]);
    assert_eq!(run(queue, Operation::Flush, 0, 0, None).0, Ok(()));
    drop(queues);
    volume.close().expect("a clean shutdown");
}

fn target() {
    let mut deployment = Deployment::new(Plan::default());
    let (volume, mut queues) = deployment.open();
    let queue = &mut queues[0];
    let bytes = contents::noise(1, 3 * BLOCK);
    write(queue, 100, &bytes);
    deployment.kill_target();
    deployment.start_target();
    // Submitted to a session that is about to be lost.
    assert!(read(queue, 100, bytes.len()) == bytes);
    drop(queues);
    volume.close().expect("a clean shutdown");
}

/// Test of buffers that are in flight, held by the program and newly allocated when a session follows another one.
fn buffers() {
    let mut deployment = Deployment::new(Plan::default());
    let config = volume::Config {
        buffers: 4,
        depth: 4,
        ..deployment.config()
    };
    let (volume, mut queues) = deployment.open_with(config);
    let queue = &mut queues[0];
    let bytes = contents::noise(1, BLOCK);
    write(queue, 0, &bytes);
    for session in 1..4 {
        let held: Vec<_> = (0..2_u8)
            .map(|number| {
                let mut buffer = queue.buffer(BLOCK).expect("a buffer");
                buffer.fill(16 * session + number);
                buffer
            })
            .collect();
        let buffer = queue.buffer(BLOCK).expect("a buffer");
        let former = buffer.as_ptr();
        deployment.kill_service();
        let io = Io {
            tag: 1,
            operation: Operation::Read,
            offset: 0,
            len: BLOCK as u32,
            buffer: Some(buffer),
        };
        queue.submit(io).expect("room");
        deployment.start_service();
        let completion = reap(queue, 1).remove(0);
        assert_eq!(completion.result, Ok(()));
        let buffer = completion.buffer.expect("it comes back");
        assert!(*buffer == *bytes);
        assert!(buffer.as_ptr() != former, "the former memory is in use");
        // One of four is in use, and two are reserved for those of the former memory.
        let free: Vec<_> = std::iter::from_fn(|| queue.buffer(BLOCK)).collect();
        assert_eq!(free.len(), 1);
        for (number, held) in (0..).zip(held) {
            let offset = (1 + number) * BLOCK as u64;
            let (result, back) = run(queue, WRITE, offset, BLOCK, Some(held));
            assert_eq!(result, Ok(()));
            drop(back);
        }
        drop((free, buffer));
        let free: Vec<_> = std::iter::from_fn(|| queue.buffer(BLOCK)).collect();
        assert_eq!(free.len(), 4);
        drop(free);
        for number in 0..2 {
            let expected = [16 * session + number as u8; BLOCK];
            assert!(read(queue, (1 + number) * BLOCK as u64, BLOCK) == expected);
        }
    }
    drop(queues);
    volume.close().expect("a clean shutdown");
}

/// Test of a service that stays connected without answering.
fn stopped() {
    let deployment = Deployment::new(Plan::default());
    let mut config = deployment.config();
    config.io_timeout = Duration::from_millis(500);
    let (volume, mut queues) = deployment.open_with(config);
    let queue = &mut queues[0];
    write(queue, 0, &[1; 10]);
    let service = deployment.roles.process(Part::Service).expect("it runs");
    service.signal(Signal::STOP);
    let mut buffer = queue.buffer(BLOCK).expect("a buffer");
    buffer.fill(2);
    let io = Io {
        tag: 1,
        operation: WRITE,
        offset: 5,
        len: BLOCK as u32,
        buffer: Some(buffer),
    };
    queue.submit(io).expect("room");
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        let count = queue.poll(&mut |completion| panic!("{completion:?}"));
        assert_eq!(count, 0);
        sleep(queue, Duration::from_millis(100));
    }
    service.signal(Signal::CONT);
    assert_eq!(reap(queue, 1)[0].result, Ok(()));
    let mut expected = vec![2; BLOCK + 5];
    expected[..5].fill(1);
    assert!(read(queue, 0, BLOCK + 5) == expected);
    drop(queues);
    volume.close().expect("a clean shutdown");
}

/// Two threads write and compare while the service is killed repeatedly.
fn load() {
    const RESTARTS: usize = 4;
    let mut deployment = Deployment::new(Plan {
        workers: 2,
        ..Plan::default()
    });
    let (volume, queues) = deployment.open();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let half = volume.size() / 2;
    std::thread::scope(|scope| {
        for (thread, mut queue) in (0..).zip(queues) {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                let base = thread * half;
                let mut expected = vec![0; half as usize];
                let mut rounds = 0;
                while rounds < 20 || !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    rounds += 1;
                    let offset = random.usize(..expected.len());
                    let len = random.usize(..(3 * BLOCK).min(expected.len() - offset));
                    let bytes = contents::noise(thread << 32 | rounds, len);
                    write(&mut queue, base + offset as u64, &bytes);
                    expected[offset..offset + len].copy_from_slice(&bytes);
                    if rounds % 8 == 0 {
                        let found = read(&mut queue, base, expected.len());
                        assert!(found == expected, "round {rounds}");
                    }
                }
                assert!(read(&mut queue, base, expected.len()) == expected);
            });
        }
        for _ in 0..RESTARTS {
            std::thread::sleep(Duration::from_millis(200));
            deployment.kill_service();
            std::thread::sleep(Duration::from_millis(50));
            deployment.start_service();
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    volume.close().expect("a clean shutdown");
}

fn away() {
    let mut deployment = Deployment::new(Plan::default());
    let mut config = deployment.config();
    config.reconnect_timeout = Duration::from_millis(700);
    let (volume, mut queues) = deployment.open_with(config);
    let queue = &mut queues[0];
    write(queue, 0, &[1; 10]);
    let start = Instant::now();
    deployment.kill_service();
    let buffer = queue.buffer(BLOCK);
    let (result, buffer) = run(queue, WRITE, 5, BLOCK, buffer);
    assert_eq!(result, Err(IoError::Disconnected));
    assert!(buffer.is_some());
    assert!(start.elapsed() >= Duration::from_millis(500));
    let again = run(queue, Operation::Flush, 0, 0, None).0;
    assert_eq!(again, Err(IoError::Disconnected), "at once");
    deployment.start_service();
    // I/O continues once a session has started.
    let deadline = Instant::now() + crate::TIMEOUT;
    loop {
        let buffer = queue.buffer(10);
        match run(queue, WRITE, 0, 10, buffer).0 {
            Ok(()) => break,
            Err(error) => assert_eq!(error, IoError::Disconnected),
        }
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(queues);
    volume.close().expect("a clean shutdown");
}

fn smaller() {
    let mut deployment = Deployment::new(Plan {
        is_durable: false,
        ..Plan::default()
    });
    let mut config = deployment.config();
    config.reconnect_timeout = Duration::from_secs(2);
    let (volume, mut queues) = deployment.open_with(config);
    let queue = &mut queues[0];
    write(queue, 0, &[1; 10]);
    deployment.kill_target();
    deployment.shrink();
    deployment.start_target();
    let buffer = queue.buffer(BLOCK);
    let result = run(queue, WRITE, 0, BLOCK, buffer).0;
    assert_eq!(result, Err(IoError::Changed));
    drop(queues);
    assert!(volume.close().is_err());
}

/// A service that closes the connection because it has lost its target can be connected to, and is retried.
fn unready() {
    let mut deployment = Deployment::new(Plan::default());
    deployment.kill_target();
    // Acts as the service's target: accepts, answers no request, and disconnects.
    let no_target = TcpListener::bind(("127.0.0.1", deployment.port())).expect("the port is free");
    let config = deployment.config();
    let opening = std::thread::spawn(move || Volume::open(config));
    let (mut stream, _) = no_target.accept().expect("the service connects");
    stream.read_exact(&mut [0]).expect("a request");
    drop((stream, no_target));
    deployment.start_target();
    let opened = opening.join().expect("no panic");
    let mut volume = opened.expect("the volume opens");
    drop(volume.take_queues());
    volume.close().expect("a clean shutdown");
}
