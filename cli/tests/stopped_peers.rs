//! Stopped peers (SIGSTOP), whose connections stay open without answers: all other roles time out,
//! none hangs, and they continue.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::support::gga::compressible;
use crate::support::{
    BLOCK_SIZE, Sandbox, TIMEOUT, default_deadline, document, expect_failure, wait_for_log,
};
use ::deployment::process::{Process, Signal};

/// Flags of a service with short timeouts.
const SHORT_TIMEOUTS: [&str; 6] = [
    "--io-timeout",
    "1",
    "--control-timeout",
    "1",
    "--sessions",
    "2",
];

/// Maximum time until a session ends: twice the timeouts, with a margin for a loaded machine.
const IN_TIME: Duration = Duration::from_secs(20);

/// An initiator during a run that would take hours; its own timeout for an answer is a minute.
fn busy(sandbox: &Sandbox, arguments: &[&str]) -> Process {
    let base = [
        "--run-limit-operation-count",
        "2000000000",
        "--progress",
        "always",
        "--io-timeout",
        "60",
    ];
    let mut initiator = sandbox.initiator(
        "read_write_data_validity_test",
        &[&base[..], arguments].concat(),
    );
    initiator
        .wait_for("shown progress", TIMEOUT, |line| {
            line.contains("per second").then_some(())
        })
        .expect("the run is under way");
    initiator
}

/// Resumes and kills the stopped process of an abandoned session.
fn woken_and_killed(mut process: Process) {
    process.signal(Signal::KILL);
    assert!(process.wait(default_deadline()).is_some());
}

fn good(sandbox: &Sandbox) {
    document(sandbox.initiator(
        "read_write_data_validity_test",
        &["--run-limit-operation-count", "64"],
    ));
}

fn ended(mut process: Process, code: i32) -> String {
    let status = process.wait(default_deadline());
    let (_, stderr) = process.into_output();
    let status = status.unwrap_or_else(|| panic!("it has not ended: {stderr}"));
    assert_eq!(status.code(), Some(code), "{stderr}");
    stderr
}

/// Inodes of the memory that two processes share writably: one of them could still write there after it resumes.
fn shared(one: &Process, other: &Process) -> BTreeSet<u64> {
    let of = |process: &Process| -> BTreeSet<u64> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.id()));
        let maps = maps.expect("a living process of this user");
        // Validity words of exports are shared read-only.
        let is_writable = |line: &&str| line.split_whitespace().nth(1) == Some("rw-s");
        let memfds = maps.lines().filter(|line| line.contains("/memfd:"));
        let memfds = memfds.filter(is_writable);
        let inode = |line: &str| line.split_whitespace().nth(4)?.parse().ok();
        memfds.filter_map(inode).collect()
    };
    of(one).intersection(&of(other)).copied().collect()
}

/// Waits until two processes share no memory: softdoca unmaps a ring at the next poll of its progress engine.
fn unshared(one: &Process, other: &Process) {
    let deadline = default_deadline();
    while shared(one, other) != BTreeSet::new() {
        assert!(Instant::now() < deadline, "{:?}", shared(one, other));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Forwards connections to one target, and later to another one, like an address that moves to another machine.
struct Relay {
    port: u16,
    to: Arc<AtomicU16>,
}

impl Relay {
    fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let relay = Self {
            port: listener.local_addr().expect("an address").port(),
            to: Arc::new(AtomicU16::new(port)),
        };
        let to = Arc::clone(&relay.to);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // If the target is not running, the client is disconnected, too.
                if let Ok(target) = TcpStream::connect(("127.0.0.1", to.load(Ordering::Relaxed))) {
                    pass(&client, &target);
                    pass(&target, &client);
                }
            }
        });
        relay
    }
}

/// Forwards bytes, and the end of the stream.
fn pass(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (
        from.try_clone().expect("a descriptor"),
        to.try_clone().expect("a descriptor"),
    );
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}

#[test]
fn service_continues_after_its_target_was_stopped() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &SHORT_TIMEOUTS);
    let initiator = busy(&sandbox, &[]);
    target.signal(Signal::STOP);
    let start = Instant::now();
    expect_failure(initiator);
    wait_for_log(&service, "session 1 has failed", 1);
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    woken_and_killed(target);
    let target = sandbox.target_again(port, &[]);
    // Possibly once for the kernel, which still accepts for the stopped target, and once for the new one.
    std::thread::sleep(Duration::from_millis(1500));
    good(&sandbox);
    document(target);
    let stderr = ended(service, 1);
    for part in ["timed out after 1s", "the storage target"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn stopped_initiator_is_dropped_and_the_next_one_served() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&["--sessions", "2"]);
    let service = sandbox.service(
        port,
        &[&SHORT_TIMEOUTS[..], &["--idle-timeout", "1"]].concat(),
    );
    let stopped = busy(&sandbox, &[]);
    assert_ne!(shared(&service, &stopped), BTreeSet::new());
    stopped.signal(Signal::STOP);
    let start = Instant::now();
    wait_for_log(&service, "session 1 has failed", 1);
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    wait_for_log(&service, "waiting for the initiator", 2);
    // Its memory is separate: the next session does not share what the stopped initiator may access.
    unshared(&service, &stopped);
    good(&sandbox);
    let stderr = ended(service, 1);
    // Depending on whether all results fit in its queue.
    let expected = ["an I/O of the initiator", "the initiator takes no results"];
    assert!(
        expected.iter().any(|part| stderr.contains(part)),
        "{stderr}"
    );
    ended(target, 1);
    stopped.signal(Signal::CONT);
    expect_failure(stopped);
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn busy_initiator_is_not_dropped() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&["--sessions", "forever"]);
    let service = sandbox.service(
        port,
        &[&SHORT_TIMEOUTS[..], &["--idle-timeout", "1"]].concat(),
    );
    // Its control requests are far apart, but its I/Os are not.
    let initiator = busy(&sandbox, &[]);
    std::thread::sleep(Duration::from_millis(2500));
    assert!(!service.stderr().contains("ended"), "{}", service.stderr());
    initiator.signal(Signal::INT);
    expect_failure(initiator);
    wait_for_log(&service, "session 1 has ", 1);
    wait_for_log(&service, "waiting for the initiator", 2);
    good(&sandbox);
    ended(service, 0);
    target.signal(Signal::INT);
    ended(target, 0);
}

#[test]
fn session_of_a_stopped_service_times_out() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &[]);
    let mut initiator = sandbox.initiator(
        "read_write_data_validity_test",
        &[
            "--run-limit-operation-count",
            "2000000000",
            "--progress",
            "always",
            "--io-timeout",
            "1",
            "--control-timeout",
            "1",
        ],
    );
    initiator
        .wait_for("shown progress", TIMEOUT, |line| {
            line.contains("per second").then_some(())
        })
        .expect("the run is under way");
    service.signal(Signal::STOP);
    let start = Instant::now();
    expect_failure(initiator);
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    // As long as it may resume, it is the target's client.
    woken_and_killed(service);
    let stderr = ended(target, 1);
    assert!(
        stderr.contains("disconnected while it was expected")
            || stderr.contains("connection was lost"),
        "{stderr}"
    );
}

#[test]
fn target_with_an_idle_timeout_drops_a_stopped_service() {
    let sandbox = Sandbox::new();
    let flags = ["--sessions", "2", "--idle-timeout", "1"];
    let (target, port) = sandbox.target(&flags);
    // During I/O, and before the first request, which is not a session.
    let service = sandbox.service(port, &[]);
    let initiator = busy(&sandbox, &[]);
    service.signal(Signal::STOP);
    let start = Instant::now();
    wait_for_log(&target, "session 1 has failed", 1);
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    woken_and_killed(service);
    expect_failure(initiator);
    let service = sandbox.service(port, &[]);
    service.signal(Signal::STOP);
    wait_for_log(&target, "its first request", 1);
    woken_and_killed(service);
    // An active service is not disconnected, however far apart its control requests are.
    let service = sandbox.service(port, &[]);
    let initiator = busy(&sandbox, &[]);
    std::thread::sleep(Duration::from_millis(2500));
    assert!(
        !target.stderr().contains("session 2 has "),
        "{}",
        target.stderr()
    );
    initiator.signal(Signal::INT);
    expect_failure(initiator);
    drop(service);
    let stderr = ended(target, 1);
    assert!(stderr.contains("an I/O of the service"), "{stderr}");
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

/// gga targets access the service's own memory: that of an abandoned session is not used by the next one.
#[test]
fn gga_target_that_resumes_during_the_next_session_changes_nothing() {
    let sandbox = Sandbox::new();
    let files = sandbox.generate("content", &compressible(64 * BLOCK_SIZE), &[]);
    let (first, ports) = sandbox.gga_targets(&files, 1);
    let relays = ports.map(Relay::to);
    let service = sandbox.gga_service(
        relays.each_ref().map(|relay| relay.port),
        1,
        &SHORT_TIMEOUTS,
    );
    let busy = || {
        let mut initiator = sandbox.gga_initiator(
            "read_write_data_validity_test",
            &sandbox.path("content"),
            2_000_000_000,
            1,
            &["--progress", "always", "--io-timeout", "60"],
        );
        let progress = |line: &str| line.contains("per second").then_some(());
        let shown = initiator.wait_for("shown progress", TIMEOUT, progress);
        shown.expect("the run is under way");
        initiator
    };
    let initiator = busy();
    let reached = shared(&service, &first[1]);
    assert_ne!(reached, BTreeSet::new());
    let (second, ports) = sandbox.gga_targets(&files, 1);
    for (relay, port) in relays.iter().zip(ports) {
        relay.to.store(port, Ordering::Relaxed);
    }
    first[1].signal(Signal::STOP);
    expect_failure(initiator);
    wait_for_log(&service, "session 1 has failed", 1);

    let initiator = busy();
    unshared(&first[1], &service);
    assert_ne!(shared(&second[1], &service), BTreeSet::new());
    first[1].signal(Signal::CONT);
    for target in first {
        ended(target, 1);
    }
    initiator.signal(Signal::INT);
    expect_failure(initiator);
    ended(service, 1);
    for target in second {
        ended(target, 0);
    }
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn stopped_gga_target_ends_the_session() {
    let sandbox = Sandbox::new();
    let files = sandbox.generate("content", &compressible(64 * BLOCK_SIZE), &[]);
    let (targets, ports) = sandbox.gga_targets(&files, 1);
    let service = sandbox.gga_service(ports, 1, &SHORT_TIMEOUTS[..4]);
    let mut initiator = sandbox.gga_initiator(
        "read_write_data_validity_test",
        &sandbox.path("content"),
        2_000_000_000,
        1,
        &["--progress", "always", "--io-timeout", "60"],
    );
    initiator
        .wait_for("shown progress", TIMEOUT, |line| {
            line.contains("per second").then_some(())
        })
        .expect("the run is under way");
    targets[1].signal(Signal::STOP);
    let start = Instant::now();
    expect_failure(initiator);
    let stderr = ended(service, 1);
    assert!(stderr.contains("timed out after 1s"), "{stderr}");
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    for (index, target) in targets.into_iter().enumerate() {
        match index {
            1 => woken_and_killed(target),
            _ => drop(ended(target, 1)),
        }
    }
}
