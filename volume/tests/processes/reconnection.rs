//! Services and targets that are killed and restarted.

use std::io::Read as _;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use deployment::process::Signal;
use volume::{Io, IoError, Operation, Volume};

use crate::{BLOCK, Deployment, Plan, pattern, read, reap, run, sleep, write};

pub const TESTS: &[(&str, fn())] = &[
    ("ios_wait_for_a_service_that_was_killed", service),
    ("ios_wait_for_a_target_that_was_killed", target),
    ("ios_are_sent_again_after_a_service_was_stopped", stopped),
    ("load_survives_restarts_of_the_service", load),
    ("ios_fail_while_the_service_is_offline", away),
    ("smaller_storage_is_refused", smaller),
    ("volume_opens_when_a_service_is_ready", unready),
];

const WRITE: Operation = Operation::Write { fua: false };

fn service() {
    let mut deployment = Deployment::new(Plan::default());
    let (volume, mut queues) = deployment.open();
    let queue = &mut queues[0];
    let bytes = pattern(1, 3 * BLOCK);
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
    let bytes = pattern(1, 3 * BLOCK);
    write(queue, 100, &bytes);
    deployment.kill_target();
    deployment.start_target();
    // Submitted to a session that is about to be lost.
    assert!(read(queue, 100, bytes.len()) == bytes);
    drop(queues);
    volume.close().expect("a clean shutdown");
}

/// The service stays connected without answering.
fn stopped() {
    let deployment = Deployment::new(Plan::default());
    let mut config = deployment.config();
    config.io_timeout = Duration::from_millis(500);
    let (volume, mut queues) = deployment.open_with(config);
    let queue = &mut queues[0];
    write(queue, 0, &[1; 10]);
    let service = deployment.service.as_ref().expect("it runs");
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
                    let bytes = pattern(thread << 32 | rounds, len);
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
    deployment.kill_service();
    let start = Instant::now();
    let buffer = queue.buffer(BLOCK);
    let (result, buffer) = run(queue, WRITE, 5, BLOCK, buffer);
    assert_eq!(result, Err(IoError::Disconnected));
    assert!(buffer.is_some());
    assert!(start.elapsed() >= Duration::from_millis(500));
    let again = run(queue, Operation::Flush, 0, 0, None).0;
    assert_eq!(again, Err(IoError::Disconnected), "at once");
    deployment.start_service();
    // I/O continues once there is a session.
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
