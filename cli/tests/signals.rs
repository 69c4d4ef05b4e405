//! SIGINT and SIGTERM at any time end every role, and leave nothing behind.

use std::path::PathBuf;
use std::time::Duration;

use crate::support::gga::{TARGETS, compressible};
use crate::support::{BLOCK_SIZE, Sandbox, TIMEOUT, default_deadline};
use ::deployment::process::{Process, Signal};

fn ended(mut process: Process, role: &str) -> Option<i32> {
    let status = process
        .wait(default_deadline())
        .unwrap_or_else(|| panic!("the {role} has not ended: {}", process.stderr()));
    assert!(
        status.code().is_some(),
        "the {role} was killed: {status}: {}",
        process.stderr()
    );
    status.code()
}

#[test]
fn signal_stops_a_target_that_waits_for_its_service() {
    let sandbox = Sandbox::new();
    let (target, _) = sandbox.target(&[]);
    target.signal(Signal::INT);
    assert_eq!(ended(target, "target"), Some(1));
    assert!(sandbox.leftovers().is_empty(), "{:?}", sandbox.leftovers());
}

#[test]
fn signal_stops_a_service_that_waits_for_its_target() {
    let sandbox = Sandbox::new();
    // A port that refuses connections: bound, and closed again.
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))
        .and_then(|l| l.local_addr())
        .expect("a port")
        .port();
    let service = sandbox.starting_service(port, &[]);
    std::thread::sleep(Duration::from_millis(300));
    service.signal(Signal::INT);
    assert_eq!(ended(service, "service"), Some(1));
    assert!(sandbox.leftovers().is_empty(), "{:?}", sandbox.leftovers());
}

#[test]
fn signal_stops_a_service_that_waits_for_its_initiator() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &[]);
    service.signal(Signal::TERM);
    assert_eq!(ended(service, "service"), Some(1));
    // A connection without a request is not a session: the target is still waiting for one.
    target.signal(Signal::TERM);
    assert_eq!(ended(target, "target"), Some(1));
    assert!(sandbox.leftovers().is_empty(), "{:?}", sandbox.leftovers());
}

/// A run that would take minutes; `role` gets the signal during it.
fn under_load(role: &str, signal: Signal) {
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
        ],
    );
    initiator
        .wait_for("shown progress", crate::support::TIMEOUT, |line| {
            line.contains("per second").then_some(())
        })
        .expect("the run is under way");
    match role {
        "target" => target.signal(signal),
        "service" => service.signal(signal),
        _ => initiator.signal(signal),
    }
    assert_eq!(ended(initiator, "initiator"), Some(1));
    ended(service, "service");
    ended(target, "target");
    assert!(sandbox.leftovers().is_empty(), "{:?}", sandbox.leftovers());
}

#[test]
fn signal_stops_an_initiator_under_load() {
    under_load("initiator", Signal::INT);
}

/// Statistics, in this format, of an initiator that is interrupted during its run.
fn statistics(signal: Signal, format: &[&'static str]) -> String {
    let sandbox = Sandbox::new();
    let (_target, port) = sandbox.target(&[]);
    let _service = sandbox.service(port, &[]);
    let line = "initiator -d 3b:00.0 --cpu 0 --execution-strategy read_write_data_validity_test --run-limit-operation-count 2000000000 \
                --progress always --control-timeout 60 --io-timeout 60";
    let arguments: Vec<&str> = line
        .split_whitespace()
        .chain(format.iter().copied())
        .collect();
    let mut initiator = sandbox.spawn("initiator", &arguments);
    for _ in 0..2 {
        initiator
            .wait_for("shown progress", crate::support::TIMEOUT, |line| {
                line.contains("per second").then_some(())
            })
            .expect("the run is under way");
    }
    initiator.signal(signal);
    let status = initiator
        .wait(default_deadline())
        .expect("the initiator ends");
    let (stdout, stderr) = initiator.into_output();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("interrupted by the user"), "{stderr}");
    stdout
}

#[test]
fn interrupted_initiator_prints_its_statistics() {
    let text = statistics(Signal::INT, &[]);
    let number = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.split_once(name));
        let (_, number) = line.unwrap_or_else(|| panic!("no {name}: {text}"));
        number
            .split(' ')
            .next()
            .expect("a word")
            .parse()
            .expect(&text)
    };
    let count = number("Operation count: ");
    assert!(count > 0, "{text}");
    assert_eq!(number("interrupted after "), count, "{text}");
    assert!(text.contains(&format!("{count} I/Os, ")), "{text}");
    assert!(text.contains("all equal"), "{text}");
}

#[test]
fn terminated_initiator_prints_its_statistics_as_json() {
    let text = statistics(Signal::TERM, &["--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&text).expect("one JSON document");
    assert_eq!(json["result"], "interrupted");
    assert_eq!(json["error"], "interrupted by the user");
    let count = json["operation_count"].as_u64().expect("a number");
    let buckets = json["latency_us"]["histogram"].as_array().expect("a list");
    let counts = buckets.iter().filter_map(|bucket| bucket[2].as_u64());
    assert!(count > 0);
    assert_eq!(counts.sum::<u64>(), count);
}

#[test]
fn signal_stops_a_service_under_load() {
    under_load("service", Signal::INT);
}

#[test]
fn signal_stops_a_target_under_load() {
    under_load("target", Signal::TERM);
}

#[test]
fn signal_to_the_process_group_stops_all_roles() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &[]);
    let initiator = sandbox.initiator(
        "read_throughput_test",
        &["--run-limit-operation-count", "2000000000"],
    );
    std::thread::sleep(Duration::from_millis(400));
    for process in [&initiator, &service, &target] {
        process.signal(Signal::INT);
    }
    assert_eq!(ended(initiator, "initiator"), Some(1));
    ended(service, "service");
    ended(target, "target");
    assert!(sandbox.leftovers().is_empty(), "{:?}", sandbox.leftovers());
}

// The exit of any role of a gga deployment during I/O ends all roles.

/// A deployment with two workers during a run that would take hours.
struct Load {
    sandbox: Sandbox,
    initiator: Process,
    service: Process,
    targets: [Process; 3],
}

impl Load {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let files = sandbox.generate("content", &compressible(64 * BLOCK_SIZE), &[]);
        let (targets, ports) = sandbox.gga_targets(&files, 2);
        let recover = ["--trigger-recovery-read-every-n", "4"];
        let service = sandbox.gga_service(ports, 2, &recover);
        let mut initiator = sandbox.gga_initiator(
            "read_write_data_validity_test",
            &sandbox.path("content"),
            2_000_000_000,
            2,
            &["--progress", "always"],
        );
        initiator
            .wait_for("shown progress", TIMEOUT, |line| {
                line.contains("per second").then_some(())
            })
            .expect("the run is under way");
        Self {
            sandbox,
            initiator,
            service,
            targets,
        }
    }

    /// Checks that all roles exit by themselves, the initiator with a failure, and leave nothing behind.
    fn ends(self) {
        let role = |process| code(process).expect("not by a signal");
        assert_eq!(role(self.initiator), 1, "the initiator");
        role(self.service);
        for target in self.targets {
            role(target);
        }
        assert_eq!(self.sandbox.leftovers(), Vec::<PathBuf>::new());
    }
}

/// Exit code of a role; `None` if it was killed by a signal.
fn code(mut process: Process) -> Option<i32> {
    let status = process
        .wait(default_deadline())
        .unwrap_or_else(|| panic!("a role has not ended: {}", process.stderr()));
    status.code()
}

#[test]
fn interrupted_initiator_ends_the_deployment() {
    let load = Load::new();
    load.initiator.signal(Signal::INT);
    load.ends();
}

#[test]
fn interrupted_service_ends_the_deployment() {
    let load = Load::new();
    load.service.signal(Signal::TERM);
    load.ends();
}

#[test]
fn interrupted_target_ends_the_deployment() {
    for target in 0..3 {
        let load = Load::new();
        load.targets[target].signal(Signal::INT);
        load.ends();
    }
}

#[test]
fn killed_target_ends_the_deployment() {
    for (killed, name) in TARGETS.iter().enumerate() {
        let load = Load::new();
        load.targets[killed].signal(Signal::KILL);
        assert_eq!(code(load.initiator), Some(1), "without {name}");
        let mut service = load.service;
        let status = service.wait(default_deadline()).expect("the service ends");
        assert_eq!(status.code(), Some(1), "without {name}");
        let said = service.stderr();
        assert!(said.contains(name), "{name}: {said}");
        for (target, process) in load.targets.into_iter().enumerate() {
            assert_eq!(code(process).is_none(), target == killed, "{name}");
        }
    }
}
