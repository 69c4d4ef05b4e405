//! Consecutive sessions, and second clients during one. SIGINT and SIGTERM at any time end every role, and leave
//! nothing behind.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use deployment::log::{LogEvent, events};
use deployment::process::{Process, Signal};
use doca::ErrorCode;

use crate::support::gga::{TARGETS, interrupted, was_interrupted};
use crate::support::{
    BLOCK_SIZE, Sandbox, ZERO_COPY, content, default_deadline, document, ended, expect_error,
    expect_failure, killed, resources, text, wait_for_io, wait_for_log, wait_until_flat,
};

/// The sessions in a server's log that have completed or failed.
fn sessions_in(stderr: &str) -> impl Iterator<Item = LogEvent<'_>> {
    events(stderr).filter(|event| {
        matches!(
            event,
            LogEvent::SessionCompleted(_) | LogEvent::SessionFailed(_)
        )
    })
}

/// Checks that a server has ended after this many sessions, and that this many have failed.
fn have_failed(server: Process, failed: u64, ended: u64) -> String {
    let stderr = expect_failure(server);
    let expected = LogEvent::SessionsFailed { failed, ended };
    assert!(events(&stderr).any(|event| event == expected), "{stderr}");
    stderr
}

#[test]
fn many_sessions_leak_no_resources() {
    const SESSIONS: usize = 30;
    let sandbox = Sandbox::new();
    let plain = sandbox.file("content", &content(64));
    let count = SESSIONS.to_string();
    let sessions = ["--sessions", count.as_str()];
    let blocks = ["--block-count", "64"];
    let (target, port) = sandbox.target(&[sessions, blocks].concat());
    let service = sandbox.service(port, &sessions);
    let mut early = None;
    for number in 1..=SESSIONS {
        wait_for_log(&service, LogEvent::WaitingForInitiator, number);
        if number == 6 {
            early = Some([resources(&target), resources(&service)]);
        }
        if number == SESSIONS {
            let [target_before, service_before] = early.expect("there was a sixth session");
            wait_until_flat(&target, target_before);
            wait_until_flat(&service, service_before);
        }
        match number {
            // The first session writes all blocks, whose contents must still be present in the last session.
            1 => sandbox.short_run(
                "read_write_data_validity_test",
                &["--storage-plain-content", text(&plain)],
            ),
            SESSIONS => sandbox.short_run(
                "read_only_data_validity_test",
                &["--storage-plain-content", text(&plain)],
            ),
            _ => sandbox.short_run("read_throughput_test", &[]),
        }
    }
    for (role, process) in [("target", target), ("service", service)] {
        let stderr = ended(process, 0);
        let completed = (1..=SESSIONS as u64).map(LogEvent::SessionCompleted);
        assert!(sessions_in(&stderr).eq(completed), "{role}: {stderr}");
    }
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn initiator_is_served_after_others_died_under_load() {
    const DEATHS: u64 = 4;
    let sandbox = Sandbox::new();
    let sessions = ["--sessions", "5"];
    let (target, port) = sandbox.target(&sessions);
    let service = sandbox.service(port, &sessions);
    let mut early = None;
    for number in 1..=DEATHS {
        wait_for_log(&service, LogEvent::WaitingForInitiator, number as usize);
        if number > 1 {
            // The target ends its session independently, possibly after the service.
            wait_for_log(&target, LogEvent::SessionFailed(number - 1), 1);
        }
        if number == 2 {
            early = Some([resources(&target), resources(&service)]);
        }
        killed(sandbox.busy_initiator(&[]));
    }
    wait_for_log(&service, LogEvent::WaitingForInitiator, DEATHS as usize + 1);
    wait_for_log(&target, LogEvent::SessionFailed(DEATHS), 1);
    let [target_before, service_before] = early.expect("there was a second session");
    wait_until_flat(&target, target_before);
    wait_until_flat(&service, service_before);
    sandbox.short_run("read_write_data_validity_test", &[]);
    for process in [service, target] {
        let stderr = have_failed(process, DEATHS, DEATHS + 1);
        let sessions = (1..=DEATHS).map(LogEvent::SessionFailed);
        let sessions = sessions.chain([LogEvent::SessionCompleted(DEATHS + 1)]);
        assert!(sessions_in(&stderr).eq(sessions), "{stderr}");
    }
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

/// A new connection is independent of the previous session: the service does not close it with that session, and the
/// targets do not refuse it.
#[test]
fn initiator_is_served_right_after_another_was_killed() {
    const ROUNDS: u64 = 10;
    let sandbox = Sandbox::new();
    let sessions = ["--sessions", "forever"];
    let (target, port) = sandbox.target(&sessions);
    let service = sandbox.service(port, &sessions);
    for _ in 0..ROUNDS {
        killed(sandbox.busy_initiator(&[]));
        sandbox.short_run("read_write_data_validity_test", &[]);
    }
    service.signal(Signal::TERM);
    target.signal(Signal::TERM);
    for process in [service, target] {
        let stderr = ended(process, 0);
        let failed = |event: &LogEvent<'_>| matches!(event, LogEvent::SessionFailed(_));
        assert_eq!(sessions_in(&stderr).filter(failed).count() as u64, ROUNDS);
        assert_eq!(sessions_in(&stderr).count() as u64, 2 * ROUNDS);
    }
}

#[test]
fn service_continues_with_a_restarted_target() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &["--sessions", "2"]);
    let initiator = sandbox.busy_initiator(&[]);
    killed(target);
    expect_failure(initiator);
    let target = sandbox.target_again(port, &[]);
    wait_for_log(&service, LogEvent::WaitingForInitiator, 2);
    sandbox.short_run("read_write_data_validity_test", &[]);
    ended(target, 0);
    let stderr = ended(service, 1);
    let sessions = [LogEvent::SessionFailed(1), LogEvent::SessionCompleted(2)];
    assert!(sessions_in(&stderr).eq(sessions), "{stderr}");
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn target_restart_between_sessions_fails_no_session() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &["--sessions", "forever"]);
    killed(target);
    let target = sandbox.target_again(port, &[]);
    wait_for_log(&service, LogEvent::WaitingForInitiator, 2);
    sandbox.short_run("read_write_data_validity_test", &[]);
    ended(target, 0);
    wait_for_log(&service, LogEvent::SessionCompleted(1), 1);
    service.signal(Signal::TERM);
    let stderr = ended(service, 0);
    let failed = |event| matches!(event, LogEvent::SessionFailed(_));
    assert!(!events(&stderr).any(failed), "{stderr}");
}

#[test]
fn target_survives_dying_services_and_malformed_messages() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&["--sessions", "forever"]);
    let service = sandbox.service(port, &[]);
    let initiator = sandbox.busy_initiator(&[]);
    killed(service);
    expect_failure(initiator);
    wait_for_log(&target, LogEvent::SessionFailed(1), 1);

    // A frame of an unknown type, which does not start a session.
    let mut nonsense = TcpStream::connect(("127.0.0.1", port)).expect("the target listens");
    nonsense
        .write_all(&[0, 0, 0, 12, 0, 0, 0, 99, 0, 0, 0, 1, 0, 0, 0, 1])
        .expect("sent");
    let mut answer = Vec::new();
    // The client may get an error, or only be disconnected.
    let _ = nonsense.read_to_end(&mut answer);

    let service = sandbox.service(port, &[]);
    sandbox.short_run("read_write_data_validity_test", &[]);
    ended(service, 0);
    wait_for_log(&target, LogEvent::SessionCompleted(2), 1);
    target.signal(Signal::INT);
    let sessions = [LogEvent::SessionFailed(1), LogEvent::SessionCompleted(2)];
    let stderr = ended(target, 0);
    assert!(sessions_in(&stderr).eq(sessions), "{stderr}");
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn targets_keep_their_content_for_the_next_gga_session() {
    let sandbox = Sandbox::new();
    let files = sandbox.generate("content", &contents::text(1, 64 * BLOCK_SIZE), &[]);
    let plain = sandbox.path("content");
    let sessions = ["--sessions", "3"];
    let targets = files
        .each_ref()
        .map(|file| sandbox.target(&["--binary-content", text(file), sessions[0], sessions[1]]));
    let ports = targets.each_ref().map(|(_, port)| *port);
    let service = sandbox.gga_service(ports, 1, &sessions);
    let other = sandbox.file("other", &contents::text(1, 65 * BLOCK_SIZE)[BLOCK_SIZE..]);
    let runs = [
        ("read_only_data_validity_test", &plain),
        ("read_write_data_validity_test", &other),
        ("read_only_data_validity_test", &other),
    ];
    for (number, (strategy, expected)) in runs.into_iter().enumerate() {
        wait_for_log(&service, LogEvent::WaitingForInitiator, number + 1);
        document(sandbox.gga_initiator(strategy, expected, 64, 1, &[]));
    }
    ended(service, 0);
    for (target, _) in targets {
        ended(target, 0);
    }
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn target_listens_on_the_given_address() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&["--listen-address", "127.0.0.2"]);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    drop(TcpStream::connect(("127.0.0.2", port)).expect("the target listens"));
    target.signal(Signal::TERM);
    ended(target, 1);
}

#[test]
fn unexpected_results_are_logged_and_not_forwarded() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("content", &content(16));
    let (target, port) = sandbox.scripted_target(&file, BLOCK_SIZE, "answer-twice");
    let service = sandbox.service(port, &[]);
    // With one I/O in flight, the second answer arrives when no I/O is outstanding, or with the next one.
    let initiator = sandbox.initiator(
        "read_throughput_test",
        &[
            "--run-limit-operation-count",
            "1",
            "--transaction-count",
            "1",
        ],
    );
    let report = document(initiator);
    assert_eq!(report["operation_count"], 1, "{report}");
    let stderr = ended(service, 0);
    let unexpected = |event| matches!(event, LogEvent::UnexpectedResult { .. });
    assert!(events(&stderr).any(unexpected), "{stderr}");
    drop(target);
}

#[test]
fn invalid_result_ends_only_its_session() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("content", &content(16));
    let (target, port) = sandbox.scripted_target(&file, BLOCK_SIZE, "nonsense:5");
    let service = sandbox.service(port, &["--sessions", "2"]);
    let arguments = ["--run-limit-operation-count", "64"];
    expect_failure(sandbox.initiator("read_throughput_test", &arguments));
    wait_for_log(&service, LogEvent::SessionFailed(1), 1);
    drop(target);
    let target = sandbox.target_again(port, &["--block-count", "16"]);
    wait_for_log(&service, LogEvent::WaitingForInitiator, 2);
    sandbox.short_run("read_write_data_validity_test", &[]);
    ended(target, 0);
    let stderr = expect_error(service, ErrorCode::UNEXPECTED);
    // The rejected message's user data.
    assert!(stderr.contains("0x"), "{stderr}");
}

// A second client is refused with a reason, and does not disturb the one being served.

/// Maximum time for a refusal: less than the timeout (5 s) of a client without an answer.
const QUICKLY: Duration = Duration::from_secs(4);

/// Checks that the run makes progress without an error, and interrupts it.
fn continues(first: Process) {
    wait_for_io(&first);
    interrupted(first);
}

#[test]
fn second_initiator_is_refused_and_the_first_continues() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &[]);
    let first = sandbox.busy_initiator(&[]);
    for _ in 0..2 {
        let start = Instant::now();
        let second = sandbox.initiator("read_throughput_test", &[]);
        expect_error(second, ErrorCode::IN_USE);
        assert!(start.elapsed() < QUICKLY, "after {:?}", start.elapsed());
    }
    wait_for_log(&service, LogEvent::ClientRefused, 2);
    continues(first);
    document(service);
    document(target);
}

#[test]
fn second_service_is_refused_and_the_first_continues() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &[]);
    let first = sandbox.busy_initiator(&[]);
    let start = Instant::now();
    let storage = format!("127.0.0.1:{port}");
    let other = [
        "--command-channel-name",
        "another",
        "--storage-server",
        &storage,
    ];
    let second = sandbox.spawn("service", &[&ZERO_COPY[..], &other].concat());
    expect_error(second, ErrorCode::IN_USE);
    assert!(start.elapsed() < QUICKLY, "after {:?}", start.elapsed());
    continues(first);
    document(service);
    document(target);
}

#[test]
fn refused_client_is_served_after_the_first_disconnects() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&["--sessions", "2"]);
    let service = sandbox.service(port, &["--sessions", "2"]);
    let first = sandbox.busy_initiator(&[]);
    expect_failure(sandbox.initiator("read_throughput_test", &[]));
    first.signal(Signal::INT);
    expect_failure(first);
    wait_for_log(&service, LogEvent::WaitingForInitiator, 2);
    sandbox.short_run("read_write_data_validity_test", &[]);
    for mut process in [service, target] {
        let status = process.wait(default_deadline());
        assert!(status.is_some(), "it has not ended: {}", process.stderr());
    }
}

/// Exit code of a role; `None` if it was killed by a signal.
fn exit_code(mut process: Process) -> Option<i32> {
    let status = process.wait(default_deadline()).unwrap_or_else(|| {
        panic!(
            "the {} has not exited: {}",
            process.role(),
            process.stderr()
        )
    });
    status.code()
}

#[test]
fn signal_stops_a_target_that_waits_for_its_service() {
    let sandbox = Sandbox::new();
    let (target, _) = sandbox.target(&[]);
    target.signal(Signal::INT);
    assert_eq!(exit_code(target), Some(1));
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
    assert_eq!(exit_code(service), Some(1));
    assert!(sandbox.leftovers().is_empty(), "{:?}", sandbox.leftovers());
}

#[test]
fn signal_stops_a_service_that_waits_for_its_initiator() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &[]);
    service.signal(Signal::TERM);
    assert_eq!(exit_code(service), Some(1));
    // A connection without a request is not a session: the target is still waiting for one.
    target.signal(Signal::TERM);
    assert_eq!(exit_code(target), Some(1));
    assert!(sandbox.leftovers().is_empty(), "{:?}", sandbox.leftovers());
}

/// A run that would take minutes; `role` receives the signal during it.
fn under_load(role: &str, signal: Signal) {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &[]);
    let initiator = sandbox.busy_initiator(&[]);
    match role {
        "target" => target.signal(signal),
        "service" => service.signal(signal),
        _ => initiator.signal(signal),
    }
    assert_eq!(exit_code(initiator), Some(1));
    assert!(exit_code(service).is_some());
    assert!(exit_code(target).is_some());
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
    wait_for_io(&initiator);
    initiator.signal(signal);
    let status = initiator
        .wait(default_deadline())
        .expect("the initiator ends");
    let (stdout, stderr) = initiator.into_output();
    assert_eq!(status.code(), Some(1), "{stderr}");
    was_interrupted(&stderr);
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
    // The number also occurs in the messages about the interruption and the validation.
    let is_number = |word: &&str| word.parse() == Ok(count);
    let words = text.split(|letter: char| !letter.is_ascii_digit());
    assert!(words.filter(is_number).count() >= 3, "{text}");
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
    assert_eq!(exit_code(initiator), Some(1));
    assert!(exit_code(service).is_some());
    assert!(exit_code(target).is_some());
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
        let files = sandbox.generate("content", &contents::text(1, 64 * BLOCK_SIZE), &[]);
        let (targets, ports) = sandbox.gga_targets(&files, 2);
        let recover = ["--trigger-recovery-read-every-n", "4"];
        let service = sandbox.gga_service(ports, 2, &recover);
        let initiator = sandbox.busy_gga_initiator("content", 2, &[]);
        Self {
            sandbox,
            initiator,
            service,
            targets,
        }
    }

    /// Checks that all roles exit by themselves, the initiator with a failure, and leave nothing behind.
    fn ends(self) {
        let role = |process| exit_code(process).expect("not by a signal");
        assert_eq!(role(self.initiator), 1, "the initiator");
        role(self.service);
        for target in self.targets {
            role(target);
        }
        assert_eq!(self.sandbox.leftovers(), Vec::<PathBuf>::new());
    }
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
        assert_eq!(exit_code(load.initiator), Some(1), "without {name}");
        let mut service = load.service;
        let status = service.wait(default_deadline()).expect("the service ends");
        assert_eq!(status.code(), Some(1), "without {name}");
        let said = service.stderr();
        assert!(said.contains(name), "{name}: {said}");
        for (target, process) in load.targets.into_iter().enumerate() {
            assert_eq!(exit_code(process).is_none(), target == killed, "{name}");
        }
    }
}
