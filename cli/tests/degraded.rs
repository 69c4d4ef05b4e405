//! `gga-offload --logical-block-size`: real processes, with one target lost during a validated run, and targets with an old
//! disk, or missing, at the start of a session or during it.

use std::fs;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use conformance::faults::relay::{FaultyLine, Side};
use deployment::log::{LogEvent, events};
use deployment::process::{Process, Signal};
use doca::ErrorCode;
use serde_json::{Value, json};
use wire::control::{Message, Payload};

use crate::support::gga::{
    BLOCKS, CHUNK, Chunk, ENDLESS, OF_SETS, Set, TARGETS, interrupted, redundancy,
};
use crate::support::{
    BLOCK_SIZE, Sandbox, TIMEOUT, default_deadline, document, expect_error, expect_failure, killed,
    mentions, text, wait_for_io, wait_for_log, wait_for_value, waiting,
};

/// Operations per worker: enough for some seconds on any machine.
const OPERATIONS: usize = 10_000;

/// A deployment with two workers during a run.
struct Load {
    sandbox: Sandbox,
    initiator: Process,
    service: Process,
    targets: [Process; 3],
    ports: [u16; 3],
}

impl Load {
    fn new(operations: usize, arguments: &[&str]) -> Self {
        Self::behind(|ports| ports, operations, arguments)
    }

    /// Adds these flags to the initiator.
    fn with_initiator(initiator: &[&str], operations: usize, arguments: &[&str]) -> Self {
        Self::start(|ports| ports, initiator, operations, arguments)
    }

    /// Connects the service to these ports instead of those of the targets.
    fn behind(
        line: impl FnOnce([u16; 3]) -> [u16; 3],
        operations: usize,
        arguments: &[&str],
    ) -> Self {
        Self::start(line, &[], operations, arguments)
    }

    fn start(
        line: impl FnOnce([u16; 3]) -> [u16; 3],
        initiator: &[&str],
        operations: usize,
        arguments: &[&str],
    ) -> Self {
        let sandbox = Sandbox::new();
        let started = start_targets(&sandbox);
        let ports = started.each_ref().map(|(_, port)| *port);
        let targets = started.map(|(target, _)| target);
        let recover = ["--trigger-recovery-read-every-n", "4"];
        let arguments = [&OF_SETS, &recover, arguments].concat();
        let service = sandbox.gga_service(line(ports), 2, &arguments);
        let timeout = match initiator.contains(&"--io-timeout") {
            true => &[][..],
            false => &["--io-timeout", "30"],
        };
        let initiator = sandbox.gga_initiator(
            "read_write_data_validity_test",
            &sandbox.path("content"),
            operations,
            2,
            &[&["--progress", "always"], timeout, initiator].concat(),
        );
        // A target that is lost before I/Os are served ends the session.
        wait_for_io(&initiator);
        Self {
            sandbox,
            initiator,
            service,
            targets,
            ports,
        }
    }

    /// Kills a target, and waits for its exit.
    fn kill(&mut self, number: usize) {
        self.targets[number].signal(Signal::KILL);
        let killed = self.targets[number]
            .wait(default_deadline())
            .expect("it ends");
        assert_eq!(killed.code(), None);
    }

    /// Waits until the service has rebuilt a target.
    fn wait_for_rebuild(&self, number: usize) {
        wait_for_log(&self.service, LogEvent::TargetUpToDate(TARGETS[number]), 1);
    }

    /// Restarts a killed target with its blocks.
    fn start_with_its_blocks(&mut self, number: usize) {
        let port = self.ports[number].to_string();
        let base = [
            "target",
            "-d",
            "3b:00.0",
            "--cpu",
            "0",
            "--listen-port",
            &port,
        ];
        let own = arguments_of(&self.sandbox, number);
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        self.targets[number] = self.sandbox.spawn("target", &[&base[..], &own].concat());
    }

    /// Replaces a target that has exited by a new target without its data.
    fn start_again(&mut self, number: usize) {
        let (port, size) = (self.ports[number].to_string(), CHUNK.to_string());
        let arguments = [
            "target",
            "-d",
            "3b:00.0",
            "--cpu",
            "0",
            "--cpu",
            "0",
            "--listen-port",
            &port,
            "--block-count",
            &BLOCKS.to_string(),
            "--block-size",
            &size,
        ];
        self.targets[number] = self.sandbox.spawn("target", &arguments);
    }
}

/// Starts three empty targets for a session, and creates the contents to write. Returns the targets with their ports.
fn start_targets(sandbox: &Sandbox) -> [(Process, u16); 3] {
    sandbox.file("content", &contents::noise(1, BLOCKS * BLOCK_SIZE));
    [0, 1, 2].map(|number| {
        let arguments = arguments_of(sandbox, number);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        sandbox.target(&arguments)
    })
}

/// Flags of a target with a backing file.
fn arguments_of(sandbox: &Sandbox, number: usize) -> Vec<String> {
    let backing = sandbox.path(TARGETS[number]);
    let words = [
        "--cpu",
        "0",
        "--block-count",
        &BLOCKS.to_string(),
        "--block-size",
        &CHUNK.to_string(),
        "--backing-file",
        text(&backing),
    ];
    words.map(str::to_owned).to_vec()
}

/// Checks that the run completes its validation without this target. Returns the service's statistics of the redundancy.
fn survives(load: Load, lost: usize) -> Value {
    document(load.initiator);
    let name = TARGETS[lost];
    let statistics = document(load.service);
    assert_eq!(statistics["failed_count"], 0, "{name}");
    let mut losses = [0; 3];
    losses[lost] = 1;
    assert_eq!(statistics["redundancy"]["lost"], serde_json::json!(losses));
    assert_eq!(statistics["redundancy"]["state"], "degraded", "{name}");
    assert_eq!(statistics["redundancy"]["missed_stripes"], BLOCKS, "{name}");
    for (number, mut target) in load.targets.into_iter().enumerate() {
        if number != lost {
            document(target);
            continue;
        }
        // A target that was only stopped resumes after its session has continued without it.
        target.signal(Signal::CONT);
        let status = target.wait(default_deadline()).expect("it ends");
        assert!(!status.success(), "{name}");
        if status.code().is_some() {
            // Killed processes leave sockets, which the next process that starts removes.
            assert_eq!(load.sandbox.leftovers(), Vec::<PathBuf>::new());
        }
    }
    statistics
}

/// A flush is answered when all targets have flushed, except for a lost one.
#[test]
fn flushes_reach_every_target() {
    let sandbox = Sandbox::new();
    let started = start_targets(&sandbox);
    let ports = started.each_ref().map(|(_, port)| *port);
    let arguments = [&OF_SETS[..], &["--scrub", "off"]].concat();
    let service = sandbox.gga_service(ports, 1, &arguments);
    let initiator = sandbox.gga_initiator(
        "read_write_data_validity_test",
        &sandbox.path("content"),
        BLOCKS,
        1,
        &["--flush-every", "7"],
    );
    let flushes = BLOCKS / 7;
    assert_eq!(document(initiator)["flush_count"], flushes);
    let statistics = document(service);
    assert_eq!(statistics["operation_count"], 2 * BLOCKS + flushes);
    let served = started.map(|(target, _)| {
        let count = document(target)["operation_count"].as_u64();
        count.expect("a count") as usize
    });
    // The service flushes, too, so that the targets can discard earlier versions. Reads do not need the parity.
    let further = served[2].checked_sub(BLOCKS + flushes);
    let further = further.unwrap_or_else(|| panic!("expected all flushes: {served:?}"));
    let data = 2 * BLOCKS + flushes + further;
    assert_eq!(served, [data, data, BLOCKS + flushes + further]);
}

#[test]
fn flushes_succeed_without_a_lost_target() {
    let mut load = Load::with_initiator(&["--flush-every", "3"], 2_000_000_000, &[]);
    load.kill(2);
    wait_for_io(&load.initiator);
    load.start_with_its_blocks(2);
    load.wait_for_rebuild(2);
    wait_for_io(&load.initiator);
    let statistics = ends_well(load);
    assert_eq!(statistics["redundancy"]["state"], "healthy");
}

/// The target's backing file is truncated: I/Os fail, as on a failing disk, and the target still responds.
#[test]
fn target_with_a_failed_medium_is_detached() {
    let load = Load::new(2_000_000_000, &[]);
    let path = load.sandbox.path(TARGETS[1]);
    let file = OpenOptions::new().write(true).open(path).expect("there");
    file.set_len(4096).expect("shorter");
    // The first write that fails may be that of a chunk or that of a superblock.
    wait_for_log(&load.service, LogEvent::TargetDetached(TARGETS[1]), 1);
    wait_for_io(&load.initiator);
    load.initiator.signal(Signal::INT);
    expect_failure(load.initiator);
    let statistics = document(load.service);
    assert_eq!(statistics["failed_count"], 0);
    assert_eq!(statistics["redundancy"]["state"], "degraded");
    let [data_1, mut data_2, data_p] = load.targets;
    let status = data_2.wait(default_deadline()).expect("it ends");
    assert!(!status.success());
    // The message also contains the length found, which is not compared: a write in flight may have extended the file
    // again.
    let expected = "the file was truncated: expected";
    assert!(data_2.stderr().contains(expected), "{}", data_2.stderr());
    document(data_1);
    document(data_p);
}

#[test]
fn ios_continue_when_a_target_is_killed() {
    let load = Load::new(OPERATIONS, &[]);
    load.targets[1].signal(Signal::KILL);
    survives(load, 1);
}

/// A killed target with a backing file has its blocks when it is restarted.
#[test]
fn target_with_its_blocks_is_rebuilt_only_where_it_missed_writes() {
    let mut load = Load::new(2_000_000_000, &[]);
    for number in 0..3 {
        load.kill(number);
        load.start_with_its_blocks(number);
        load.wait_for_rebuild(number);
    }
    load.initiator.signal(Signal::INT);
    expect_failure(load.initiator);
    let rebuilds = |of_all| {
        let is_counted = |event: LogEvent<'_>| matches!(event, LogEvent::RebuildStarted { all, .. } if all == of_all);
        load.service.count_events(is_counted)
    };
    let said = load.service.stderr();
    assert_eq!((rebuilds(false), rebuilds(true)), (3, 0), "{said}");
    let statistics = document(load.service);
    assert_eq!(statistics["failed_count"], 0);
    assert_eq!(statistics["redundancy"]["state"], "healthy");
    assert_eq!(
        statistics["redundancy"]["lost"],
        serde_json::json!([1, 1, 1])
    );
    for target in load.targets {
        target
            .finish(default_deadline(), || false)
            .expect("a clean shutdown");
    }
}

/// Each target is killed under load, restarted without its data, and rebuilt. Finally a target is killed again, so that
/// reads need the rebuilt chunks.
#[test]
fn restarted_targets_are_rebuilt_under_load() {
    let mut load = Load::new(2_000_000_000, &[]);
    for (number, name) in TARGETS.iter().enumerate() {
        load.kill(number);
        load.start_again(number);
        wait_for_log(&load.service, complete_rebuild(name), 1);
        load.wait_for_rebuild(number);
        std::thread::sleep(Duration::from_millis(200));
    }
    load.targets[0].signal(Signal::KILL);
    std::thread::sleep(Duration::from_millis(700));
    // The initiator compares all reads, and would have exited after a mismatch.
    interrupted(load.initiator);
    let statistics = document(load.service);
    assert_eq!(statistics["failed_count"], 0);
    let redundancy = &statistics["redundancy"];
    assert_eq!(redundancy["state"], "degraded");
    assert_eq!(redundancy["lost"], serde_json::json!([2, 1, 1]));
    assert_eq!(redundancy["rebuilt_stripes"], 3 * BLOCKS);
}

/// Unsolicited responses, including those provoked by another client, cost the session only this target.
#[test]
fn target_that_sends_unsolicited_messages_is_lost_and_rejoins() {
    let mut line = None;
    let ports = |ports: [u16; 3]| {
        let started = FaultyLine::start(&ports).expect("ports");
        let own = [0, 1, 2].map(|target| started.ports()[target]);
        line = Some(started);
        own
    };
    let mut load = Load::behind(ports, 2_000_000_000, &[]);
    let line = line.expect("it was started");
    let message = Message {
        message_id: 1,
        correlation_id: 1,
        payload: Payload::StartStorageResponse,
    };
    for (target, from) in [(1, Side::Server), (2, Side::Client)] {
        line.send(target as u32, from, message.encode_to_vec());
        load.targets[target]
            .wait(default_deadline())
            .expect("its only session is over");
        load.start_with_its_blocks(target);
        load.wait_for_rebuild(target);
    }
    load.initiator.signal(Signal::INT);
    expect_failure(load.initiator);
    let statistics = document(load.service);
    assert_eq!(statistics["failed_count"], 0);
    assert_eq!(
        statistics["redundancy"]["lost"],
        serde_json::json!([0, 1, 1])
    );
    drop(load.targets);
}

#[test]
fn stopped_target_is_detached_after_a_timeout() {
    let load = Load::new(OPERATIONS, &["--control-timeout", "2"]);
    load.targets[0].signal(Signal::STOP);
    survives(load, 0);
}

/// Ends a run that has read and written without an error. Returns the service's statistics.
fn ends_well(load: Load) -> Value {
    interrupted(load.initiator);
    let statistics = document(load.service);
    assert_eq!(statistics["failed_count"], 0);
    statistics
}

/// A process that was not scheduled cannot determine for how long its targets have not answered, and on an overloaded
/// machine the targets were not scheduled either.
#[test]
fn service_stopped_for_longer_than_its_timeouts_detaches_no_target() {
    // A target is detached after half of this timeout.
    let load = Load::new(2_000_000_000, &["--control-timeout", "8"]);
    // The service is stopped once for a short time, or it runs only briefly from time to time, while its targets do not
    // run.
    for (times, stopped) in [(1, &[][..]), (8, &[1]), (8, &[0, 1, 2])] {
        wait_for_io(&load.initiator);
        let targets = || stopped.iter().map(|&target| &load.targets[target]);
        targets().for_each(|target| target.signal(Signal::STOP));
        for _ in 0..times {
            load.service.signal(Signal::STOP);
            std::thread::sleep(Duration::from_millis(9600 / times));
            load.service.signal(Signal::CONT);
            std::thread::sleep(Duration::from_millis(50));
        }
        targets().for_each(|target| target.signal(Signal::CONT));
        wait_for_io(&load.initiator);
    }
    let logged = load.service.stderr();
    assert!(!logged.contains("detached"), "{logged}");
    let redundancy = ends_well(load)["redundancy"].clone();
    assert_eq!(redundancy["lost"], serde_json::json!([0, 0, 0]));
    assert_eq!(redundancy["state"], "healthy");
}

/// Messages received in the meantime are handled before a target times out.
#[test]
fn answer_received_while_the_service_was_stopped_is_in_time() {
    let set = Set::new();
    let content = set.content(0);
    set.write(&content);
    let service = set.service(&["--scrub", "off", "--control-timeout", "2"]);
    let reader = set.reader(&content);
    // Reads do not need the parity.
    let target = set.targets[2].as_ref().expect("it runs");
    target.signal(Signal::STOP);
    reader.signal(Signal::INT);
    wait_for_value(&reader, "stop_storage_request", 1);
    std::thread::sleep(Duration::from_millis(300));
    service.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(3));
    target.signal(Signal::CONT);
    std::thread::sleep(Duration::from_millis(500));
    service.signal(Signal::CONT);
    expect_failure(reader);
    let redundancy = redundancy(service);
    assert_eq!(redundancy["lost"], serde_json::json!([0, 0, 0]));
    assert_eq!(redundancy["state"], "healthy");
}

/// Two targets that stop at the same time are probably starved, and a service with one target cannot continue.
#[test]
fn second_stopped_target_is_not_detached() {
    for (first, second) in [(0, 1), (1, 2), (2, 0)] {
        // It also limits the set-up of the session, which takes seconds on a busy machine.
        let mut load = Load::new(2_000_000_000, &["--control-timeout", "15"]);
        wait_for_io(&load.initiator);
        load.targets[first].signal(Signal::STOP);
        load.targets[second].signal(Signal::STOP);
        let is_awaited = |event: LogEvent<'_>| {
            let awaited = [first, second].map(|target| LogEvent::TargetAwaited(TARGETS[target]));
            awaited.contains(&event)
        };
        load.service
            .wait_for("waited for one of the two", TIMEOUT, |line| {
                LogEvent::parse(line)
                    .filter(|event| is_awaited(*event))
                    .map(drop)
            })
            .unwrap_or_else(|failure| panic!("{failure}"));
        std::thread::sleep(Duration::from_secs(3));
        load.targets[first].signal(Signal::CONT);
        load.targets[second].signal(Signal::CONT);
        // The delayed I/Os have not failed.
        wait_for_io(&load.initiator);
        let lost = ends_well(load)["redundancy"]["lost"].clone();
        let losses: Vec<u64> = serde_json::from_value(lost).expect("a count for each target");
        assert_eq!(losses.iter().sum::<u64>(), 1, "{losses:?}");
        assert_eq!(losses[3 - first - second], 0, "{losses:?}");
    }
}

/// I/Os wait for four fifths of this timeout.
#[test]
fn ios_fail_if_two_targets_do_not_come_back_in_time() {
    let mut load = Load::new(2_000_000_000, &["--io-timeout", "5"]);
    load.kill(1);
    wait_for_log(&load.service, LogEvent::TargetDetached(TARGETS[1]), 1);
    wait_for_io(&load.initiator);
    load.kill(0);
    expect_error(load.initiator, ErrorCode::IO_FAILED);
    let mut service = load.service;
    let status = service.wait(default_deadline());
    assert!(status.is_some(), "it ends with its initiator");
    let is_logged = service.has_logged(LogEvent::SetFailed(TARGETS[0]));
    assert!(is_logged, "{}", service.stderr());
    let [_, _, mut last] = load.targets;
    last.wait(default_deadline())
        .expect("it ends with its service");
}

/// The targets restart with their blocks, in any order: the target that was detached first has missed writes.
#[test]
fn ios_continue_when_two_lost_targets_are_back() {
    for (first, second) in [(0, 1), (1, 2), (2, 0)] {
        for back in [[first, second], [second, first]] {
            let timeout = ["--io-timeout", "120"];
            let mut load = Load::with_initiator(&timeout, ENDLESS, &timeout);
            load.kill(first);
            wait_for_log(&load.service, LogEvent::TargetDetached(TARGETS[first]), 1);
            wait_for_io(&load.initiator);
            load.kill(second);
            wait_for_log(&load.service, LogEvent::SetFailed(TARGETS[second]), 1);
            back.into_iter()
                .for_each(|number| load.start_with_its_blocks(number));
            wait_for_log(&load.service, LogEvent::TargetRestored(TARGETS[second]), 1);
            load.wait_for_rebuild(first);
            wait_for_io(&load.initiator);
            let redundancy = ends_well(load)["redundancy"].clone();
            assert_eq!(redundancy["state"], "healthy");
            let mut losses = [1; 3];
            losses[3 - first - second] = 0;
            assert_eq!(redundancy["lost"], json!(losses));
        }
    }
}

#[test]
fn two_targets_that_are_restarted_together_serve_again() {
    let mut set = Set::new();
    let content = set.content(0);
    let service = set.service(&["--io-timeout", "120"]);
    let writer = set.initiator_with(WRITE, &content, ENDLESS, "120");
    wait_for_io(&writer);
    let is_lost =
        |event: LogEvent<'_>| matches!(event, LogEvent::TargetDetached(_) | LogEvent::SetFailed(_));
    let wait_until = |reached: &dyn Fn() -> bool| {
        let deadline = default_deadline();
        while !reached() {
            assert!(Instant::now() < deadline, "{}", service.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    for (times, (one, other)) in [(0, 1), (1, 2), (2, 0)].into_iter().enumerate() {
        set.kill(one);
        set.kill(other);
        wait_until(&|| service.count_events(is_lost) == 2 * (times + 1));
        set.start(one);
        set.start(other);
        // Until all targets are current, the loss of another target would fail the session.
        wait_until(&|| is_whole(&service));
        wait_for_io(&writer);
    }
    interrupted(writer);
    let redundancy = redundancy(service);
    assert_eq!(redundancy["state"], "healthy");
    assert_eq!(redundancy["lost"], json!([2, 2, 2]));
}

/// Returns `true` if the last report of the redundancy in a service's log is that all targets are current.
fn is_whole(service: &Process) -> bool {
    let mut rebuilding = false;
    for event in events(&service.stderr()) {
        match event {
            LogEvent::TargetDetached(_) | LogEvent::SetFailed(_) => rebuilding = true,
            LogEvent::TargetUpToDate(_) => rebuilding = false,
            _ => {}
        }
    }
    !rebuilding
}

const WRITE: &str = "read_write_data_validity_test";
const READ: &str = "read_only_data_validity_test";

/// Checks that the run fails because fewer than two targets are current, and that the error names the remedy. Returns the
/// last epoch.
fn too_few_are_current(initiator: Process) -> u64 {
    let stderr = expect_error(initiator, ErrorCode::INVALID_VALUE);
    mentions(&stderr, &["--rebuild"]);
    let epoch = events(&stderr).find_map(|event| match event {
        LogEvent::TooFewCurrent { epoch } => Some(epoch),
        _ => None,
    });
    epoch.unwrap_or_else(|| panic!("no epoch: {stderr}"))
}

/// Log event of a completed rebuild of all stripes of this target.
fn complete_rebuild(target: &str) -> LogEvent<'_> {
    LogEvent::RebuildStarted {
        target,
        stripes: BLOCKS as u64,
        all: true,
    }
}

/// Copies the backing files of the targets, which must not be running.
fn snapshot(set: &Set) -> [PathBuf; 3] {
    [0, 1, 2].map(|number| {
        let copy = set.sandbox.path(&format!("copy of {}", TARGETS[number]));
        fs::copy(set.path(number), &copy).expect("copied");
        copy
    })
}

fn restore(set: &Set, copies: &[PathBuf; 3], numbers: &[usize]) {
    for &number in numbers {
        fs::copy(&copies[number], set.path(number)).expect("copied");
    }
}

/// A set that was written twice, and copies of its files after the first write. No target is running.
fn written_twice() -> (Set, PathBuf, PathBuf, [PathBuf; 3]) {
    let mut set = Set::new();
    let (old, new) = (set.content(0), set.content(1));
    set.write(&old);
    (0..3).for_each(|number| set.kill(number));
    let copies = snapshot(&set);
    (0..3).for_each(|number| set.start(number));
    set.write(&new);
    (0..3).for_each(|number| set.kill(number));
    (set, old, new, copies)
}

#[test]
fn two_stale_disks_are_refused_unless_the_third_is_discarded() {
    for (restored, latest) in [([1, 2], 0), ([0, 2], 1), ([0, 1], 2)] {
        let (mut set, old, _, copies) = written_twice();
        restore(&set, &copies, &restored);
        (0..3).for_each(|number| set.start(number));
        let service = set.service(&[]);
        let too_few = too_few_are_current(set.initiator(READ, &old, BLOCKS));
        expect_failure(service);
        // Discarding one of the other two targets does not help.
        let service = set.service(&["--rebuild", TARGETS[restored[0]]]);
        assert_eq!(
            too_few_are_current(set.initiator(READ, &old, BLOCKS)),
            too_few
        );
        expect_failure(service);

        let name = TARGETS[latest];
        let service = set.service(&["--rebuild", name]);
        let reader = set.reader(&old);
        wait_for_log(&service, LogEvent::TargetUpToDate(name), 1);
        set.reads_with_any_two(&service, reader);
        document(service);
        // The superblocks record the decision.
        let service = set.service(&[]);
        document(set.initiator(READ, &old, BLOCKS));
        assert_eq!(redundancy(service)["rebuilt_stripes"], 0);
    }
}

#[test]
fn stale_disk_is_rebuilt() {
    for (number, name) in TARGETS.iter().enumerate() {
        let (mut set, _, new, copies) = written_twice();
        restore(&set, &copies, &[number]);
        (0..3).for_each(|number| set.start(number));
        let service = set.service(&[]);
        let reader = set.reader(&new);
        wait_for_log(&service, complete_rebuild(name), 1);
        wait_for_log(&service, LogEvent::TargetUpToDate(name), 1);
        set.reads_with_any_two(&service, reader);
        assert_eq!(redundancy(service)["state"], "healthy");
    }
}

#[test]
fn disk_replaced_by_an_older_one_within_a_session_is_rebuilt() {
    for (number, name) in TARGETS.iter().enumerate() {
        let (mut set, _, new, copies) = written_twice();
        (0..3).for_each(|number| set.start(number));
        let service = set.service(&["--scrub", "off"]);
        let reader = set.reader(&new);
        set.kill(number);
        wait_for_log(&service, LogEvent::TargetDetached(name), 1);
        wait_for_io(&reader);
        restore(&set, &copies, &[number]);
        set.start(number);
        wait_for_log(&service, complete_rebuild(name), 1);
        wait_for_log(&service, LogEvent::TargetUpToDate(name), 1);
        set.reads_with_any_two(&service, reader);
        assert_eq!(redundancy(service)["state"], "healthy");
    }
}

/// The copy is made while the target is stopped, so that its superblock is that of the session.
#[test]
fn disk_replaced_by_a_copy_from_within_the_session_is_rebuilt() {
    for (number, name) in TARGETS.iter().enumerate() {
        let mut set = Set::new();
        let (old, new) = (set.content(0), set.content(1));
        let service = set.service(&["--scrub", "off", "--sessions", "2"]);
        let writer = set.writer(&old);
        let target = set.targets[number].as_ref().expect("it runs");
        target.signal(Signal::STOP);
        let copy = set.sandbox.path("copy");
        fs::copy(set.path(number), &copy).expect("copied");
        target.signal(Signal::CONT);
        wait_for_io(&writer);
        wait_for_io(&writer);
        set.kill(number);
        wait_for_log(&service, LogEvent::TargetDetached(name), 1);
        fs::copy(&copy, set.path(number)).expect("copied");
        set.start(number);
        wait_for_log(&service, complete_rebuild(name), 1);
        wait_for_log(&service, LogEvent::TargetUpToDate(name), 1);
        interrupted(writer);
        // The contents written now differ from those of the copy.
        let writer = set.writer(&new);
        set.reads_with_any_two(&service, writer);
        service
            .finish(default_deadline(), || false)
            .expect("a clean shutdown");
    }
}

/// The target's superblock and its last versions do not show that it is stale, but its chunks do.
#[test]
fn blocks_that_a_disk_lost_within_a_session_are_repaired_by_reads() {
    for (number, name) in TARGETS[..2].iter().enumerate() {
        let mut set = Set::new();
        let (old, new) = (set.content(0), set.content(1));
        set.write(&old);
        (0..3).for_each(|number| set.stop(number));
        let before = set.stored(number);
        (0..3).for_each(|number| set.start(number));
        set.write(&new);
        (0..3).for_each(|number| set.stop(number));
        let current = set.stored(number);
        assert!(current != before);
        (0..3).for_each(|number| set.start(number));
        let service = set.service(&["--scrub", "off"]);
        let reader = set.reader(&new);
        set.stop(number);
        wait_for_log(&service, LogEvent::TargetDetached(name), 1);
        wait_for_io(&reader);
        for (block, chunk) in before.chunks(CHUNK).enumerate() {
            set.put(number, block, 0, chunk);
        }
        set.start(number);
        wait_for_log(&service, LogEvent::TargetUpToDate(name), 1);
        interrupted(reader);
        let first = redundancy(service);
        let service = set.service(&["--scrub", "off"]);
        document(set.read_in_order(&new, BLOCKS));
        let repaired: u64 = [first, redundancy(service)]
            .iter()
            .filter_map(|redundancy| redundancy["repaired_chunks"][number].as_u64())
            .sum();
        assert_eq!(repaired, BLOCKS as u64);
        set.stop(number);
        assert!(set.stored(number) == current, "{name} has old chunks");
    }
}

/// Reads all blocks with each of the targets missing.
fn read_by_any_two(set: &mut Set, content: &Path) {
    let service = set.service(&["--scrub", "off"]);
    let reader = set.reader(content);
    set.reads_with_any_two(&service, reader);
    document(service);
}

/// The target's chunks are valid and of the same writes as those of the others, but with other content, which a rebuild
/// that reads them would return.
#[test]
fn target_to_rebuild_is_never_read() {
    for (number, name) in TARGETS.iter().enumerate() {
        let mut set = Set::new();
        let content = set.content(0);
        set.write(&content);
        set.stop(number);
        for (block, stored) in set.stored(number).chunks(CHUNK).enumerate() {
            let mut chunk = Chunk::parse(stored, number).expect("written");
            chunk.payload.iter_mut().for_each(|byte| *byte ^= 0x55);
            set.put(number, block, 0, &chunk.emit());
        }
        set.start(number);
        let service = set.service(&["--scrub", "off", "--rebuild", name]);
        let reader = set.reader(&content);
        wait_for_log(&service, complete_rebuild(name), 1);
        wait_for_log(&service, LogEvent::TargetUpToDate(name), 1);
        interrupted(reader);
        let statistics = document(service);
        assert_eq!(statistics["corrected"], json!([0, 0, 0]));
        assert_eq!(statistics["redundancy"]["rebuilt_stripes"], BLOCKS);
        read_by_any_two(&mut set, &content);
    }
}

#[test]
fn unwritten_blocks_are_zeros_without_any_target_and_without_a_scrub() {
    for number in 0..3 {
        let mut set = Set::new();
        let zeros = set.sandbox.file("zeros", &vec![0; BLOCKS * BLOCK_SIZE]);
        // The set is created, and no block is written.
        let service = set.service(&["--scrub", "off"]);
        document(set.initiator(READ, &zeros, 1));
        document(service);
        set.kill(number);
        let service = set.service(&["--scrub", "off", "--control-timeout", "2"]);
        document(set.initiator(READ, &zeros, 2 * BLOCKS));
        let redundancy = redundancy(service);
        assert_eq!(redundancy["state"], "degraded");
        assert_eq!(redundancy["scrubbed"]["stripes"], 0);
    }
}

/// A target of another set on the port of a lost one is not overwritten.
#[test]
fn target_of_another_set_does_not_replace_a_lost_one() {
    let (mut set, mut other) = (Set::new(), Set::new());
    let (content, foreign) = (set.content(0), other.content(1));
    set.write(&content);
    other.write(&foreign);
    let service = set.service(&[]);
    let reader = set.reader(&content);
    set.kill(1);
    wait_for_log(&service, LogEvent::TargetDetached(TARGETS[1]), 1);
    other.stop(1);
    fs::copy(other.path(1), set.path(1)).expect("copied");
    set.start(1);
    wait_for_log(&service, LogEvent::ForeignTarget, 1);
    wait_for_io(&reader);
    set.stop(1);
    assert!(set.stored(1) == other.stored(1), "it was overwritten");
    interrupted(reader);
    assert_eq!(redundancy(service)["state"], "degraded");
}

/// Starts a session without a target, reads and writes, and checks that the target is rebuilt when it starts.
fn begins_without(set: &mut Set, number: usize, old: &Path, new: &Path) {
    let name = TARGETS[number];
    let service = set.service(&["--control-timeout", "2", "--sessions", "2"]);
    document(set.initiator(READ, old, 4 * BLOCKS));
    wait_for_log(&service, LogEvent::TargetMissing(name), 1);
    // The target is still missing in the next session.
    let writer = set.writer(new);
    set.start(number);
    wait_for_log(&service, complete_rebuild(name), 1);
    wait_for_log(&service, LogEvent::TargetUpToDate(name), 1);
    wait_for_io(&writer);
    set.reads_with_any_two(&service, writer);
    service
        .finish(default_deadline(), || false)
        .expect("a clean shutdown");
}

#[test]
fn session_starts_without_a_target_after_a_clean_shutdown() {
    for number in 0..3 {
        let mut set = Set::new();
        let (old, new) = (set.content(0), set.content(1));
        set.write(&old);
        set.kill(number);
        begins_without(&mut set, number, &old, &new);
    }
}

#[test]
fn session_starts_without_a_target_after_an_unclean_shutdown() {
    for number in 0..3 {
        let mut set = Set::new();
        let (old, new) = (set.content(0), set.content(1));
        let service = set.service(&[]);
        // All blocks have this content, so interrupted writes do not matter.
        let writer = set.writer(&old);
        killed(service);
        expect_failure(writer);
        set.kill(number);
        begins_without(&mut set, number, &old, &new);
    }
}

#[test]
fn service_with_one_target_waits_for_a_second_one() {
    let mut set = Set::new();
    let content = set.content(0);
    set.write(&content);
    set.kill(0);
    set.kill(1);
    let service = set.start_service(&["--control-timeout", "30"]);
    std::thread::sleep(Duration::from_secs(3));
    assert!(!service.has_logged(LogEvent::WaitingForInitiator));
    set.start(1);
    let service = waiting(service);
    document(set.initiator(READ, &content, BLOCKS));
    assert_eq!(redundancy(service)["state"], "degraded");
}

/// Without superblocks, two targets are not known to be up to date.
#[test]
fn new_set_does_not_start_without_a_target() {
    let mut set = Set::new();
    let content = set.content(0);
    set.kill(2);
    let service = set.service(&["--control-timeout", "1"]);
    let refused = expect_error(
        set.initiator(READ, &content, BLOCKS),
        ErrorCode::INVALID_VALUE,
    );
    let required = LogEvent::TargetRequired("data_p");
    assert!(events(&refused).any(|event| event == required), "{refused}");
    expect_failure(service);
}
