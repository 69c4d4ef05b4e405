//! `gga-offload --degraded on`: real processes of which one target is lost in the middle of a validated run.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::gga::{TARGETS, compressible};
use crate::support::set::{Set, redundancy};
use crate::support::{BLOCK_SIZE, Bench, PATIENCE, complaint, document, said, soon, text};
use ::deployment::process::{Process, Signal};
use conformance::faults::relay::{FaultyLine, Side};
use serde_json::Value;
use wire::control::{Message, Payload};

const BLOCKS: usize = 64;
/// Of each worker: seconds, on any machine.
const OPERATIONS: usize = 2_000;

/// A deployment of two workers in the middle of a run.
struct Load {
    bench: Bench,
    initiator: Process,
    service: Process,
    targets: [Process; 3],
    ports: [u16; 3],
    files: [PathBuf; 3],
}

impl Load {
    fn new(operations: usize, arguments: &[&str]) -> Self {
        Self::behind(|ports| ports, operations, arguments)
    }

    /// The initiator has these further flags.
    fn with_initiator(initiator: &[&str], operations: usize, arguments: &[&str]) -> Self {
        Self::start(|ports| ports, initiator, operations, arguments)
    }

    /// The service connects to these ports instead of the targets'.
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
        let bench = Bench::new();
        let (files, started) = start_targets(&bench);
        let ports = started.each_ref().map(|(_, port)| *port);
        let targets = started.map(|(target, _)| target);
        let degraded = ["--degraded", "on", "--trigger-recovery-read-every-n", "4"];
        let service = bench.gga_service(line(ports), 2, &[&degraded, arguments].concat());
        let mut initiator = bench.gga_initiator(
            "read_write_data_validity_test",
            &bench.path("content"),
            operations,
            2,
            &[&["--progress", "always", "--io-timeout", "30"], initiator].concat(),
        );
        initiator
            .wait_for("begun", PATIENCE, |line| {
                line.contains("start_storage_request").then_some(())
            })
            .expect("the run begins");
        std::thread::sleep(Duration::from_millis(300));
        Self {
            bench,
            initiator,
            service,
            targets,
            ports,
            files,
        }
    }

    /// Kills a target, and waits for its end.
    fn kill(&mut self, number: usize) {
        self.targets[number].signal(Signal::KILL);
        let killed = self.targets[number].wait(soon()).expect("it ends");
        assert_eq!(killed.code(), None);
    }

    /// Waits until the service has logged this of a target.
    fn wait_for_service(&mut self, number: usize, text: &str) {
        let expected = format!("storage target {} {text}", TARGETS[number]);
        self.service
            .wait_for("logged it", PATIENCE, |line| {
                line.contains(&expected).then_some(())
            })
            .unwrap_or_else(|failure| panic!("{expected}: {failure}"));
    }

    /// Starts a target that was killed, with the blocks that it had.
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
        let own = arguments_of(&self.bench, &self.files, number);
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        self.targets[number] = self.bench.spawn("target", &[&base[..], &own].concat());
    }

    /// Starts a target in the place of one that has ended, with nothing of what that had.
    fn start_again(&mut self, number: usize) {
        let (port, half) = (self.ports[number].to_string(), (BLOCK_SIZE / 2).to_string());
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
            &half,
        ];
        self.targets[number] = self.bench.spawn("target", &arguments);
    }
}

/// Three targets with their first blocks, and the ports that they listen on; the files that the blocks come from.
fn start_targets(bench: &Bench) -> ([PathBuf; 3], [(Process, u16); 3]) {
    let files = bench.generate("content", &compressible(BLOCKS * BLOCK_SIZE), &[]);
    let started = [0, 1, 2].map(|number| {
        let arguments = arguments_of(bench, &files, number);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        bench.target(&arguments)
    });
    (files, started)
}

/// Flags of a target that begins with these blocks, and keeps them in a file.
fn arguments_of(bench: &Bench, files: &[PathBuf; 3], number: usize) -> Vec<String> {
    let backing = bench.path(TARGETS[number]);
    let words = [
        "--cpu",
        "0",
        "--binary-content",
        text(&files[number]),
        "--backing-file",
        text(&backing),
    ];
    words.map(str::to_owned).to_vec()
}

/// Waits for a line of progress: the run is under way.
fn progress(initiator: &mut Process) {
    initiator
        .wait_for("shown progress", PATIENCE, |line| {
            line.contains("per second").then_some(())
        })
        .expect("the run is under way");
}

/// I/Os that the run had done when it last said so.
fn operations(initiator: &Process) -> Option<u64> {
    let said = initiator.stderr();
    let mut lines = said.lines().rev();
    lines.find_map(|line| {
        let (done, _) = line.split_once(" of ")?;
        done.rsplit(' ').next()?.parse().ok()
    })
}

/// Waits until the run, which has paused, goes on.
fn goes_on(initiator: &Process) {
    let (before, deadline) = (operations(initiator), soon());
    while operations(initiator) <= before {
        assert!(Instant::now() < deadline, "it does not go on");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The run validates to its end without this target; what the service says of it.
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
        // If it was only stopped, it wakes up to a session without it.
        target.signal(Signal::CONT);
        let status = target.wait(soon()).expect("it ends");
        assert!(!status.success(), "{name}");
        if status.code().is_some() {
            // Who is killed leaves sockets, which whoever starts next removes.
            assert_eq!(load.bench.leftovers(), Vec::<PathBuf>::new());
        }
    }
    statistics
}

/// The answer to a flush comes when all targets have flushed, and without the one that is lost.
#[test]
fn flushes_reach_every_target() {
    let bench = Bench::new();
    let (_, started) = start_targets(&bench);
    let ports = started.each_ref().map(|(_, port)| *port);
    let arguments = ["--degraded", "on", "--scrub", "off"];
    let service = bench.gga_service(ports, 1, &arguments);
    let initiator = bench.gga_initiator(
        "read_write_data_validity_test",
        &bench.path("content"),
        BLOCKS,
        1,
        &["--flush-every", "7"],
    );
    let flushes = BLOCKS / 7;
    assert_eq!(document(initiator)["flush_count"], flushes);
    let statistics = document(service);
    assert_eq!(statistics["operation_count"], 2 * BLOCKS + flushes);
    let served = started.map(|(target, _)| document(target)["operation_count"].clone());
    let data = 2 * BLOCKS + flushes;
    assert_eq!(served, [data, data, BLOCKS + flushes]);
}

#[test]
fn flushes_succeed_without_a_lost_target() {
    let mut load = Load::with_initiator(&["--flush-every", "3"], 2_000_000_000, &[]);
    load.kill(2);
    progress(&mut load.initiator);
    load.start_with_its_blocks(2);
    load.wait_for_service(2, "is up to date");
    goes_on(&load.initiator);
    let statistics = ends_well(load);
    assert_eq!(statistics["redundancy"]["state"], "healthy");
}

/// Its file is shorter than it was: I/Os fail, as they do on a disk that fails, and the target goes on to answer.
#[test]
fn target_with_a_failed_medium_is_detached() {
    let mut load = Load::new(2_000_000_000, &[]);
    let path = load.bench.path(TARGETS[1]);
    let file = OpenOptions::new().write(true).open(path).expect("there");
    file.set_len(4096).expect("shorter");
    // Either a chunk or a superblock is the first that cannot be written.
    let expected = "detached storage target data_2";
    load.service
        .wait_for("detached it", PATIENCE, |line| {
            line.contains(expected).then_some(())
        })
        .expect("it is detached");
    goes_on(&load.initiator);
    load.initiator.signal(Signal::INT);
    complaint(load.initiator);
    let statistics = document(load.service);
    assert_eq!(statistics["failed_count"], 0);
    assert_eq!(statistics["redundancy"]["state"], "degraded");
    let [data_1, mut data_2, data_p] = load.targets;
    let status = data_2.wait(soon()).expect("it ends");
    assert!(!status.success());
    assert!(
        data_2.stderr().contains("found 4096"),
        "{}",
        data_2.stderr()
    );
    document(data_1);
    document(data_p);
}

#[test]
fn ios_continue_when_a_target_is_killed() {
    let load = Load::new(OPERATIONS, &[]);
    load.targets[1].signal(Signal::KILL);
    survives(load, 1);
}

/// With a backing file, a target that was killed is the same when it is started again.
#[test]
fn target_with_its_blocks_is_rebuilt_only_where_it_missed_writes() {
    let mut load = Load::new(2_000_000_000, &[]);
    for number in 0..3 {
        load.kill(number);
        load.start_with_its_blocks(number);
        load.wait_for_service(number, "is up to date");
    }
    load.initiator.signal(Signal::INT);
    complaint(load.initiator);
    let said = load.service.stderr();
    assert_eq!(
        said.matches("stripes, those that it has missed").count(),
        3,
        "{said}"
    );
    assert!(!said.contains("stripes, all of them"), "{said}");
    let statistics = document(load.service);
    assert_eq!(statistics["failed_count"], 0);
    assert_eq!(statistics["redundancy"]["state"], "healthy");
    assert_eq!(
        statistics["redundancy"]["lost"],
        serde_json::json!([1, 1, 1])
    );
    for target in load.targets {
        target.finish(soon(), || false).expect("a good end");
    }
}

/// Each target is killed under load, started again without its content, and rebuilt. In the end one is killed again, so that what was
/// rebuilt is needed.
#[test]
fn restarted_targets_are_rebuilt_under_load() {
    let mut load = Load::new(2_000_000_000, &[]);
    for number in 0..3 {
        load.kill(number);
        load.start_again(number);
        load.wait_for_service(number, "is online: rebuilding 64 stripes, all of them");
        load.wait_for_service(number, "is up to date");
        std::thread::sleep(Duration::from_millis(200));
    }
    load.targets[0].signal(Signal::KILL);
    std::thread::sleep(Duration::from_millis(700));
    // It compares all that it reads, and goes on only as long as that is what was written.
    load.initiator.signal(Signal::INT);
    let said = complaint(load.initiator);
    assert!(said.contains("interrupted by the user"), "{said}");
    let statistics = document(load.service);
    assert_eq!(statistics["failed_count"], 0);
    let redundancy = &statistics["redundancy"];
    assert_eq!(redundancy["state"], "degraded");
    assert_eq!(redundancy["lost"], serde_json::json!([2, 1, 1]));
    assert_eq!(redundancy["rebuilt_stripes"], 3 * BLOCKS);
}

/// Neither an answer to nothing, nor one that the target was provoked to, costs the session more than this target.
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
    // Not before I/Os are served: only then is a target lost and not the session.
    progress(&mut load.initiator);
    let message = Message {
        message_id: 1,
        correlation_id: 1,
        payload: Payload::StartStorageResponse,
    };
    for (target, from) in [(1, Side::Server), (2, Side::Client)] {
        line.send(target as u32, from, message.encode_to_vec());
        load.targets[target]
            .wait(soon())
            .expect("its only session is over");
        load.start_with_its_blocks(target);
        load.wait_for_service(target, "is up to date");
    }
    load.initiator.signal(Signal::INT);
    complaint(load.initiator);
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

/// Ends a run that has read and written without an error; the statistics of the service.
fn ends_well(load: Load) -> Value {
    load.initiator.signal(Signal::INT);
    let said = complaint(load.initiator);
    assert!(said.contains("interrupted by the user"), "{said}");
    let statistics = document(load.service);
    assert_eq!(statistics["failed_count"], 0);
    statistics
}

/// A process that was not scheduled cannot tell how long its targets have not answered, and on an overloaded machine they were not
/// scheduled either.
#[test]
fn service_stopped_for_longer_than_its_timeouts_detaches_no_target() {
    // A target is detached after half of it.
    let mut load = Load::new(2_000_000_000, &["--control-timeout", "8"]);
    // It does not run for long; or it gets a little time now and then, and its targets get none.
    for (times, stopped) in [(1, &[][..]), (8, &[1]), (8, &[0, 1, 2])] {
        progress(&mut load.initiator);
        let targets = || stopped.iter().map(|&target| &load.targets[target]);
        targets().for_each(|target| target.signal(Signal::STOP));
        for _ in 0..times {
            load.service.signal(Signal::STOP);
            std::thread::sleep(Duration::from_millis(9600 / times));
            load.service.signal(Signal::CONT);
            std::thread::sleep(Duration::from_millis(50));
        }
        targets().for_each(|target| target.signal(Signal::CONT));
        goes_on(&load.initiator);
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
    let set = Set::new("crc32c");
    let content = set.content(0);
    set.write_and_scrub(&content);
    let service = set.service(&["--scrub", "off", "--control-timeout", "2"]);
    let reader = set.reader(&content);
    // No read asks for the parity.
    let target = set.targets[2].as_ref().expect("it runs");
    target.signal(Signal::STOP);
    reader.signal(Signal::INT);
    said(&reader, "stop_storage_request", 1);
    std::thread::sleep(Duration::from_millis(300));
    service.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(3));
    target.signal(Signal::CONT);
    std::thread::sleep(Duration::from_millis(500));
    service.signal(Signal::CONT);
    complaint(reader);
    let redundancy = redundancy(service);
    assert_eq!(redundancy["lost"], serde_json::json!([0, 0, 0]));
    assert_eq!(redundancy["state"], "healthy");
}

/// Two targets that stop at once are more likely starved than dead, and a service with one target is of no use.
#[test]
fn second_stopped_target_is_not_detached() {
    for (first, second) in [(0, 1), (1, 2), (2, 0)] {
        let mut load = Load::new(2_000_000_000, &["--control-timeout", "2"]);
        progress(&mut load.initiator);
        load.targets[first].signal(Signal::STOP);
        load.targets[second].signal(Signal::STOP);
        load.service
            .wait_for("waited for a target", PATIENCE, |line| {
                line.contains("is unresponsive, and another one is not current: waiting for it")
                    .then_some(())
            })
            .expect("one of the two is waited for");
        std::thread::sleep(Duration::from_secs(3));
        load.targets[first].signal(Signal::CONT);
        load.targets[second].signal(Signal::CONT);
        // Of I/Os that had to wait, none has failed.
        goes_on(&load.initiator);
        let lost = ends_well(load)["redundancy"]["lost"].clone();
        let losses: Vec<u64> = serde_json::from_value(lost).expect("a count for each target");
        assert_eq!(losses.iter().sum::<u64>(), 1, "{losses:?}");
        assert_eq!(losses[3 - first - second], 0, "{losses:?}");
    }
}

#[test]
fn second_loss_fails_the_io_only() {
    let mut load = Load::new(2_000_000_000, &[]);
    load.targets[1].signal(Signal::KILL);
    progress(&mut load.initiator);
    load.targets[0].signal(Signal::KILL);
    let said = complaint(load.initiator);
    assert!(said.contains("IO_FAILED") || said.contains("I/O"), "{said}");
    let mut service = load.service;
    service.wait(soon()).expect("it ends with its initiator");
    std::thread::sleep(Duration::from_millis(50));
    let said = service.stderr();
    assert!(
        said.contains("with which too few are left: writes fail"),
        "{said}"
    );
    let [_, _, mut last] = load.targets;
    last.wait(soon()).expect("it ends with its service");
}
