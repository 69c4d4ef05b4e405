//! Faults of real roles.
//!
//! * `doca-storage conformance faults`: one role is killed, stopped or asked to exit in a phase of a session. All faults take
//!   minutes. Here, each role in each phase gets one fault, alternating, so that each role and each phase gets every kind;
//!   servers of several sessions and degraded services get all faults during I/O.
//! * Stopped peers (SIGSTOP), whose connections stay open without answers: all other roles time out, and continue.
//! * `gga-offload --logical-block-size`: killed services and targets, and the next session with the remaining data.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use deployment::log::{LogEvent, error_name, events};
use deployment::process::{Process, Signal};
use doca::ErrorCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::gga::{
    BLOCKS, ENDLESS, OF_SETS, Set, TARGETS, interrupted, read_chunks, redundancy,
};
use crate::support::{
    self, BLOCK_SIZE, PROGRAM, Sandbox, TIMEOUT, default_deadline, document, ended, expect_error,
    expect_failure, killed, mentions, script, wait_for_io, wait_for_log,
};

fn faults(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["conformance", "faults", "--json", "--jobs", "8"])
        .args(arguments)
        .output()
        .expect("the program runs")
}

/// Checks that all selected faults are survived, and that there are `count` of them.
fn survives(count: usize, arguments: &[&str]) {
    let output = faults(arguments);
    let document = support::json(&output);
    let failed: Vec<&Value> = (document["cases"].as_array().into_iter().flatten())
        .filter(|case| case["result"] != "passed")
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(document["injected"], count);
    assert_eq!(document["survived"], count);
    assert_eq!(document["lost_or_wrong"], 0);
    assert!(output.status.success());
}

#[test]
fn zero_copy_handles_a_fault_of_each_role_in_each_phase() {
    survives(47, &["--some", "--only", "faults.zero_copy: "]);
}

#[test]
fn gga_handles_a_fault_of_each_role_in_each_phase() {
    survives(79, &["--some", "--only", "faults.gga: "]);
}

/// A stopped role resumes during the next session.
#[test]
fn servers_with_several_sessions_continue_after_any_peer_dies_or_stops() {
    let only = |layout| format!("faults.{layout}.serving: ");
    let (zero_copy, gga) = (only("zero_copy"), only("gga"));
    let all = list(&["--only", &zero_copy, "--only", &gga]);
    let is_tested = |name: &&str| name.contains(", io, ") || name.contains("service, waiting, ");
    let arguments = all.lines().filter(is_tested);
    let arguments: Vec<&str> = arguments.flat_map(|name| ["--only", name]).collect();
    survives(20, &arguments);
}

#[test]
fn degraded_service_continues_without_a_target_until_it_rejoins() {
    let all = list(&["--only", "faults.gga.degraded: "]);
    let io: Vec<&str> = all.lines().filter(|name| name.contains(", io, ")).collect();
    let arguments: Vec<&str> = io.iter().flat_map(|name| ["--only", name]).collect();
    survives(12, &arguments);
}

fn list(arguments: &[&str]) -> String {
    let output = faults(&[&["--list"][..], arguments].concat());
    String::from_utf8(output.stdout).expect("names")
}

/// Our programs, except for one role, which is a script.
fn with_script(role: &str, script: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    symlink(PROGRAM, directory.path().join("doca-storage")).expect("a link");
    self::script(directory.path(), role, script);
    directory
}

/// Returns the reason why this fault was not survived, and the number of lost or wrong I/Os.
fn fails(programs: &TempDir, name: &str) -> (String, Value) {
    let directory = programs.path().to_str().expect("a plain path");
    let output = faults(&["--bin", directory, "--only", name, "--notice", "5"]);
    assert_eq!(output.status.code(), Some(1));
    let document = support::json(&output);
    let case = &document["cases"][0];
    assert_eq!(case["result"], "failed", "{document:#}");
    let reason = case["reason"].as_str().expect("a reason").to_owned();
    (reason, document["lost_or_wrong"].clone())
}

#[test]
fn target_that_loses_acknowledged_writes_is_detected() {
    let script = format!(
        r#"for word in "$@"; do case $word in */blocks-*) rm -f "$word";; esac; done
exec {PROGRAM} target "$@""#
    );
    let programs = with_script("doca_storage_target_rdma", &script);
    let (reason, lost) = fails(&programs, "faults.zero_copy: service, io, SIGKILL");
    assert_eq!(lost, 1, "{reason}");
}

#[test]
fn service_that_reports_success_after_its_target_died_is_detected() {
    let script = format!("{PROGRAM} zero-copy \"$@\"\nexit 0");
    let programs = with_script("doca_storage_comch_to_rdma_zero_copy", &script);
    let (reason, _) = fails(&programs, "faults.zero_copy: target, io, SIGKILL");
    assert!(
        reason.contains("service exited with success, without noticing the fault"),
        "{reason}"
    );
}

/// A killed shell leaves its initiator running.
#[test]
fn leftover_process_is_detected() {
    let script = format!("{PROGRAM} initiator \"$@\"");
    let programs = with_script("doca_storage_initiator_comch", &script);
    let (reason, _) = fails(&programs, "faults.zero_copy: initiator, io, SIGKILL");
    // The service is also still running until the target is killed after the timeout.
    mentions(&reason, &["target", "5"]);
}

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

/// Flags of an initiator whose own timeout for an answer exceeds all others.
const LONG_IO_TIMEOUT: [&str; 2] = ["--io-timeout", "60"];

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

/// Forwards connections to one target, and later to another target, like an address that moves to another machine.
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
    let initiator = sandbox.busy_initiator(&LONG_IO_TIMEOUT);
    target.signal(Signal::STOP);
    let start = Instant::now();
    expect_failure(initiator);
    wait_for_log(&service, LogEvent::SessionFailed(1), 1);
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    killed(target);
    let target = sandbox.target_again(port, &[]);
    // Possibly one connection to the kernel, which still accepts for the stopped target, and one to the new target.
    std::thread::sleep(Duration::from_millis(1500));
    sandbox.short_run("read_write_data_validity_test", &[]);
    document(target);
    expect_error(service, ErrorCode::TIME_OUT);
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
    let stopped = sandbox.busy_initiator(&LONG_IO_TIMEOUT);
    assert_ne!(shared(&service, &stopped), BTreeSet::new());
    stopped.signal(Signal::STOP);
    let start = Instant::now();
    wait_for_log(&service, LogEvent::SessionFailed(1), 1);
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    wait_for_log(&service, LogEvent::WaitingForInitiator, 2);
    // The new session's memory is separate: it does not include memory that the stopped initiator can access.
    unshared(&service, &stopped);
    sandbox.short_run("read_write_data_validity_test", &[]);
    let stderr = expect_error(service, ErrorCode::TIME_OUT);
    mentions(&stderr, &["initiator"]);
    ended(target, 1);
    stopped.signal(Signal::CONT);
    expect_failure(stopped);
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

/// Returns `true` for the end of this session, completed or failed.
fn is_end(event: LogEvent<'_>, session: u64) -> bool {
    [
        LogEvent::SessionCompleted(session),
        LogEvent::SessionFailed(session),
    ]
    .contains(&event)
}

/// Returns `true` if a server has reported the end of a session.
fn has_ended(server: &Process, session: u64) -> bool {
    server.count_events(|event| is_end(event, session)) != 0
}

/// Waits until a server has reported the end of a session.
fn wait_for_end(server: &Process, session: u64) {
    let end = server.find_line(0, TIMEOUT, |line| {
        LogEvent::parse(line)
            .filter(|&event| is_end(event, session))
            .map(drop)
    });
    assert!(end.is_some(), "{}", server.stderr());
}

#[test]
fn busy_initiator_is_not_dropped() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&["--sessions", "forever"]);
    let service = sandbox.service(
        port,
        &[&SHORT_TIMEOUTS[..], &["--idle-timeout", "1"]].concat(),
    );
    // The initiator's control requests are far apart, but its I/Os are not.
    let initiator = sandbox.busy_initiator(&LONG_IO_TIMEOUT);
    std::thread::sleep(Duration::from_millis(2500));
    assert!(!has_ended(&service, 1), "{}", service.stderr());
    initiator.signal(Signal::INT);
    expect_failure(initiator);
    wait_for_end(&service, 1);
    wait_for_log(&service, LogEvent::WaitingForInitiator, 2);
    sandbox.short_run("read_write_data_validity_test", &[]);
    ended(service, 0);
    target.signal(Signal::INT);
    ended(target, 0);
}

#[test]
fn session_of_a_stopped_service_times_out() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &[]);
    let initiator = sandbox.busy_initiator(&["--io-timeout", "1", "--control-timeout", "1"]);
    service.signal(Signal::STOP);
    let start = Instant::now();
    expect_failure(initiator);
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    // The initiator remains the target's client as long as it may resume.
    killed(service);
    // By its control channel or its RDMA connection.
    let stderr = ended(target, 1);
    let lost = [ErrorCode::CONNECTION_RESET, ErrorCode::CONNECTION_ABORTED].map(ErrorCode::name);
    let is_lost = lost.iter().any(|name| error_name(&stderr) == Some(name));
    assert!(is_lost, "{stderr}");
}

#[test]
fn target_with_an_idle_timeout_drops_a_stopped_service() {
    let sandbox = Sandbox::new();
    let flags = ["--sessions", "2", "--idle-timeout", "1"];
    let (target, port) = sandbox.target(&flags);
    // During I/O, and before the first request, when there is no session yet.
    let service = sandbox.service(port, &[]);
    let initiator = sandbox.busy_initiator(&LONG_IO_TIMEOUT);
    service.signal(Signal::STOP);
    let start = Instant::now();
    wait_for_log(&target, LogEvent::SessionFailed(1), 1);
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    killed(service);
    expect_failure(initiator);
    let service = sandbox.service(port, &[]);
    service.signal(Signal::STOP);
    wait_for_log(&target, LogEvent::FirstRequestTimedOut, 1);
    killed(service);
    // An active service is not disconnected, however far apart its control requests are.
    let service = sandbox.service(port, &[]);
    let initiator = sandbox.busy_initiator(&LONG_IO_TIMEOUT);
    std::thread::sleep(Duration::from_millis(2500));
    assert!(!has_ended(&target, 2), "{}", target.stderr());
    initiator.signal(Signal::INT);
    expect_failure(initiator);
    drop(service);
    expect_error(target, ErrorCode::TIME_OUT);
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

/// gga targets access the service's own memory: the memory of an abandoned session is not reused by the next session.
#[test]
fn gga_target_that_resumes_during_the_next_session_changes_nothing() {
    let sandbox = Sandbox::new();
    let files = sandbox.generate("content", &contents::text(1, 64 * BLOCK_SIZE), &[]);
    let (first, ports) = sandbox.gga_targets(&files, 1);
    let relays = ports.map(Relay::to);
    let service = sandbox.gga_service(
        relays.each_ref().map(|relay| relay.port),
        1,
        &SHORT_TIMEOUTS,
    );
    let busy = || sandbox.busy_gga_initiator("content", 1, &LONG_IO_TIMEOUT);
    let initiator = busy();
    let reached = shared(&service, &first[1]);
    assert_ne!(reached, BTreeSet::new());
    let (second, ports) = sandbox.gga_targets(&files, 1);
    for (relay, port) in relays.iter().zip(ports) {
        relay.to.store(port, Ordering::Relaxed);
    }
    first[1].signal(Signal::STOP);
    expect_failure(initiator);
    wait_for_log(&service, LogEvent::SessionFailed(1), 1);

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
    let files = sandbox.generate("content", &contents::text(1, 64 * BLOCK_SIZE), &[]);
    let (targets, ports) = sandbox.gga_targets(&files, 1);
    let service = sandbox.gga_service(ports, 1, &SHORT_TIMEOUTS[..4]);
    let initiator = sandbox.busy_gga_initiator("content", 1, &LONG_IO_TIMEOUT);
    targets[1].signal(Signal::STOP);
    let start = Instant::now();
    expect_failure(initiator);
    expect_error(service, ErrorCode::TIME_OUT);
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    for (index, target) in targets.into_iter().enumerate() {
        match index {
            1 => killed(target),
            _ => drop(ended(target, 1)),
        }
    }
}

/// Offsets of the two copies of the superblock in a backing file, and the offsets in it of its sequence number and of
/// the boot id of the machine while written blocks may not be durable; zeros when all are.
const RECORDS: [usize; 2] = [4096, 8192];

const SEQUENCE: std::ops::Range<usize> = 8..16;
const SINCE: std::ops::Range<usize> = 84..100;

#[test]
fn clean_shutdown_is_trusted() {
    let set = Set::new();
    let content = set.content(0);
    set.write(&content);
    let service = set.service(&[]);
    document(set.initiator("read_only_data_validity_test", &content, BLOCKS));
    let is_distrusted = |event: LogEvent<'_>| {
        matches!(
            event,
            LogEvent::ResyncStarted { .. } | LogEvent::RebuildStarted { .. }
        )
    };
    assert_eq!(
        service.count_events(is_distrusted),
        0,
        "{}",
        service.stderr()
    );
    let redundancy = redundancy(service);
    assert_eq!(
        redundancy["settled_stripes"],
        json!({"consistent": 0, "rewritten": 0, "lost": 0})
    );
    assert_eq!(redundancy["rebuilt_stripes"], 0);
}

#[test]
fn blocks_are_recorded_as_durable_while_the_set_is_closed() {
    let mut set = Set::new();
    let content = set.content(0);
    let since = |set: &Set, number: usize| -> Vec<u8> {
        let bytes = std::fs::read(set.sandbox.path(TARGETS[number])).expect("there");
        let superblocks = RECORDS.map(|place| &bytes[place..place + 104]);
        let newest = superblocks
            .into_iter()
            .max_by_key(|superblock| superblock[SEQUENCE].to_vec());
        newest.expect("two places")[SINCE].to_vec()
    };
    // The set's session has ended cleanly, and the targets are still running.
    set.write(&content);
    for number in 0..3 {
        assert_eq!(since(&set, number), [0; 16]);
    }
    // A killed service leaves the set marked as open, until the targets are stopped.
    let (service, writer) = (set.service(&[]), set.writer(&content));
    let now = since(&set, 0);
    assert_ne!(now, [0; 16]);
    killed(service);
    drop(writer);
    for target in set.targets.iter().flatten() {
        wait_for_log(target, LogEvent::SessionFailed(2), 1);
        target.signal(Signal::INT);
    }
    for number in 0..3 {
        document(set.targets[number].take().expect("it runs"));
        assert_eq!(since(&set, number), [0; 16]);
        set.start(number);
    }
    let used = (set.service(&[]), set.writer(&content));
    for number in 0..3 {
        set.kill(number);
        assert_eq!(since(&set, number), now, "it was used again");
    }
    drop(used);
}

/// With targets that were stopped or killed before the service, so that its last writes are complete only on some
/// targets.
#[test]
fn killed_service_loses_no_acknowledged_write() {
    let stopped: [&[usize]; 5] = [&[], &[0], &[1], &[2], &[0, 2]];
    for (stopped, is_killed) in stopped.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        if stopped.is_empty() && is_killed {
            continue;
        }
        let mut set = Set::new();
        let (old, new) = (set.content(0), set.content(1));
        set.write(&old);
        let service = set.service(&[]);
        // All blocks have this content, and are written again and again.
        let writer = set.writer(&new);
        let signal = |set: &Set, signal| {
            for &number in stopped {
                set.targets[number]
                    .as_ref()
                    .expect("it runs")
                    .signal(signal);
            }
        };
        signal(&set, Signal::STOP);
        std::thread::sleep(Duration::from_millis(100));
        killed(service);
        expect_failure(writer);
        if is_killed {
            for &number in stopped {
                set.kill(number);
                set.start(number);
            }
        } else {
            signal(&set, Signal::CONT);
        }
        let service = set.service(&[]);
        // Contents are right from the first I/O on. Two chunks of every block agree only once the resync is complete.
        let reader = set.reader(&new);
        wait_for_log(&service, LogEvent::ResyncCompleted, 1);
        set.reads_with_any_two(&service, reader);
        let settled = redundancy(service)["settled_stripes"].clone();
        assert_eq!(settled["lost"], 0, "{stopped:?} {is_killed}");
        (0..3).for_each(|number| set.stop(number));
        let chunks = [0, 1, 2].map(|number| set.stored(number));
        let read = read_chunks(
            chunks.each_ref().map(Vec::as_slice),
            BLOCK_SIZE,
            "vandermonde",
        );
        assert!(read == std::fs::read(&new).expect("there"));
    }
}

/// A run that loses a target and continues without it after the other targets have committed an epoch of this number.
fn lose_under_load(
    set: &mut Set,
    service: &Process,
    content: &Path,
    lost: usize,
    epoch: u64,
) -> Process {
    let writer = set.writer(content);
    set.kill(lost);
    wait_for_log(service, LogEvent::TargetDetached(TARGETS[lost]), 1);
    for target in set.targets.iter().flatten() {
        wait_for_log(target, LogEvent::SuperblockPersisted { epoch }, 1);
    }
    wait_for_io(&writer);
    writer
}

#[test]
fn target_lost_before_the_kill_is_rebuilt_by_the_next_service() {
    for (lost, name) in TARGETS.into_iter().enumerate() {
        let mut set = Set::new();
        let (old, new) = (set.content(0), set.content(1));
        set.write(&old);
        let service = set.service(&[]);
        let writer = lose_under_load(&mut set, &service, &new, lost, 3);
        killed(service);
        expect_failure(writer);

        set.start(lost);
        let service = set.service(&[]);
        // The target has old data, which would be a mismatch.
        let reader = set.reader(&new);
        let rebuild = LogEvent::RebuildStarted {
            target: name,
            stripes: BLOCKS as u64,
            all: true,
        };
        wait_for_log(&service, rebuild, 1);
        wait_for_log(&service, LogEvent::TargetUpToDate(name), 1);
        set.reads_with_any_two(&service, reader);
        assert_eq!(redundancy(service)["state"], "healthy");
    }
}

#[test]
fn next_session_excludes_the_lost_target() {
    let mut set = Set::new();
    let (old, new) = (set.content(0), set.content(1));
    set.write(&old);
    let service = set.service(&["--sessions", "forever"]);
    let writer = lose_under_load(&mut set, &service, &new, 1, 3);
    interrupted(writer);
    for number in [0, 2] {
        let target = set.targets[number].as_ref().expect("it runs");
        wait_for_end(target, 2);
    }
    set.start(1);
    // A target may refuse the service while its last session is ending; this attempt then fails, and the next one
    // succeeds.
    let deadline = default_deadline();
    let reader = loop {
        let reader = set.initiator("read_only_data_validity_test", &new, ENDLESS);
        match reader.wait_for_io(deadline) {
            Ok(()) => break reader,
            Err(failure) => assert!(Instant::now() < deadline, "{failure}: {}", service.stderr()),
        }
    };
    wait_for_log(&service, LogEvent::TargetUpToDate(TARGETS[1]), 1);
    set.reads_with_any_two(&service, reader);
}

#[test]
fn without_two_current_targets_no_session_starts() {
    let mut set = Set::new();
    let content = set.content(0);
    let service = set.service(&[]);
    let writer = lose_under_load(&mut set, &service, &content, 0, 2);
    set.kill(1);
    expect_failure(writer);
    drop(service);
    // One target has missed writes, and the other has lost its data.
    std::fs::remove_file(set.sandbox.path(TARGETS[1])).expect("it was there");
    (0..2).for_each(|number| set.start(number));
    let service = set.service(&[]);
    let initiator = set.initiator("read_throughput_test", &content, BLOCKS);
    let refused = expect_error(initiator, ErrorCode::INVALID_VALUE);
    let too_few = LogEvent::TooFewCurrent { epoch: 2 };
    assert!(events(&refused).any(|event| event == too_few), "{refused}");
    // The targets are listed with their epochs.
    mentions(
        &refused,
        &["data_1", "1", "data_2", "empty", "data_p", "2", "--rebuild"],
    );
    expect_failure(service);
}

#[test]
fn targets_of_different_sets_are_refused() {
    let (set, other) = (Set::new(), Set::new());
    let content = set.content(0);
    set.write(&content);
    other.write(&content);
    let refused = |ports: [u16; 3], reason: LogEvent<'_>| {
        let service = set.sandbox.gga_service(ports, 2, &OF_SETS);
        let initiator = set.initiator("read_throughput_test", &content, BLOCKS);
        let refused = expect_error(initiator, ErrorCode::INVALID_VALUE);
        assert!(events(&refused).any(|event| event == reason), "{refused}");
        expect_failure(service);
    };
    let [data_1, data_2, data_p] = set.ports;
    let exchanged = LogEvent::TargetExchanged {
        target: "data_1",
        got: "data_2",
    };
    refused([data_2, data_1, data_p], exchanged);
    refused([data_1, other.ports[1], data_p], LogEvent::SeveralSets);
}
