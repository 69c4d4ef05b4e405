//! Consecutive sessions, and second clients during one.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::gga::compressible;
use crate::support::resources::Resources;
use crate::support::{
    BLOCK_SIZE, Sandbox, TIMEOUT, content, default_deadline, document, expect_failure, text,
    wait_for_log,
};
use ::deployment::process::{Process, Signal};

/// Log line of a service that is ready.
const WAITING: &str = "waiting for the initiator";

/// Growth in KiB that is not a leak: memory retained by the allocator.
const SLACK: u64 = 2048;

/// Runs an initiator, which must succeed.
fn good(sandbox: &Sandbox, strategy: &str, arguments: &[&str]) {
    let operations = ["--run-limit-operation-count", "64"];
    document(sandbox.initiator(strategy, &[&operations[..], arguments].concat()));
}

/// An initiator during a run that would take minutes.
fn busy(sandbox: &Sandbox) -> Process {
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
        .wait_for("shown progress", TIMEOUT, |line| {
            line.contains("per second").then_some(())
        })
        .expect("the run is under way");
    initiator
}

/// Kills a process.
fn kill(mut process: Process) {
    process.signal(Signal::KILL);
    assert!(process.wait(default_deadline()).is_some(), "killed");
}

/// Waits for a process to exit with this code; returns its standard error.
fn ended(mut process: Process, code: i32) -> String {
    let status = process.wait(default_deadline());
    let (_, stderr) = process.into_output();
    let status = status.unwrap_or_else(|| panic!("it has not ended: {stderr}"));
    assert_eq!(status.code(), Some(code), "{stderr}");
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
        wait_for_log(&service, WAITING, number);
        if number == 6 {
            early = Some([Resources::of(&target), Resources::of(&service)]);
        }
        if number == SESSIONS {
            let [target_before, service_before] = early.expect("there was a sixth session");
            target_before.wait_until_flat(&target, SLACK, "target");
            service_before.wait_until_flat(&service, SLACK, "service");
        }
        match number {
            // The first session writes all blocks, which must still be there in the last one.
            1 => good(
                &sandbox,
                "read_write_data_validity_test",
                &["--storage-plain-content", text(&plain)],
            ),
            SESSIONS => good(
                &sandbox,
                "read_only_data_validity_test",
                &["--storage-plain-content", text(&plain)],
            ),
            _ => good(&sandbox, "read_throughput_test", &[]),
        }
    }
    for (role, process) in [("target", target), ("service", service)] {
        let stderr = ended(process, 0);
        assert_eq!(
            stderr.matches("has completed").count(),
            SESSIONS,
            "{role}: {stderr}"
        );
    }
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn initiator_is_served_after_others_died_under_load() {
    const DEATHS: usize = 4;
    let sandbox = Sandbox::new();
    let sessions = ["--sessions", "5"];
    let (target, port) = sandbox.target(&sessions);
    let service = sandbox.service(port, &sessions);
    let mut early = None;
    for number in 1..=DEATHS {
        wait_for_log(&service, WAITING, number);
        // The target ends its session independently, possibly after the service.
        wait_for_log(&target, "has failed: ", number - 1);
        if number == 2 {
            early = Some([Resources::of(&target), Resources::of(&service)]);
        }
        kill(busy(&sandbox));
    }
    wait_for_log(&service, WAITING, DEATHS + 1);
    wait_for_log(&target, "has failed: ", DEATHS);
    let [target_before, service_before] = early.expect("there was a second session");
    target_before.wait_until_flat(&target, SLACK, "target");
    service_before.wait_until_flat(&service, SLACK, "service");
    good(&sandbox, "read_write_data_validity_test", &[]);
    for process in [service, target] {
        let stderr = ended(process, 1);
        assert!(stderr.contains("4 of 5 sessions have failed"), "{stderr}");
        assert_eq!(stderr.matches("has failed: ").count(), DEATHS, "{stderr}");
    }
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

/// A new connection is independent of the previous session: the service does not close it with that session, and the
/// targets do not refuse it.
#[test]
fn initiator_is_served_right_after_another_was_killed() {
    const ROUNDS: usize = 10;
    let sandbox = Sandbox::new();
    let sessions = ["--sessions", "forever"];
    let (target, port) = sandbox.target(&sessions);
    let service = sandbox.service(port, &sessions);
    for _ in 0..ROUNDS {
        kill(busy(&sandbox));
        good(&sandbox, "read_write_data_validity_test", &[]);
    }
    for process in [service, target] {
        process.signal(Signal::TERM);
        let stderr = ended(process, 1);
        let count = format!("{ROUNDS} of {} sessions have failed", 2 * ROUNDS);
        assert!(stderr.contains(&count), "{stderr}");
    }
}

#[test]
fn service_continues_with_a_restarted_target() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &["--sessions", "2"]);
    let initiator = busy(&sandbox);
    kill(target);
    expect_failure(initiator);
    let target = sandbox.target_again(port, &[]);
    wait_for_log(&service, WAITING, 2);
    good(&sandbox, "read_write_data_validity_test", &[]);
    ended(target, 0);
    let stderr = ended(service, 1);
    assert!(stderr.contains("session 1 has failed"), "{stderr}");
    assert!(stderr.contains("session 2 has completed"), "{stderr}");
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn target_restart_between_sessions_fails_no_session() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &["--sessions", "forever"]);
    kill(target);
    let target = sandbox.target_again(port, &[]);
    wait_for_log(&service, WAITING, 2);
    good(&sandbox, "read_write_data_validity_test", &[]);
    ended(target, 0);
    wait_for_log(&service, "session 1 has completed", 1);
    service.signal(Signal::TERM);
    let stderr = ended(service, 0);
    assert!(!stderr.contains("has failed: "), "{stderr}");
}

#[test]
fn target_survives_dying_services_and_malformed_messages() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&["--sessions", "forever"]);
    let service = sandbox.service(port, &[]);
    let initiator = busy(&sandbox);
    kill(service);
    expect_failure(initiator);
    wait_for_log(&target, "session 1 has failed", 1);

    // A frame of an unknown type, which does not begin a session.
    let mut nonsense = TcpStream::connect(("127.0.0.1", port)).expect("the target listens");
    nonsense
        .write_all(&[0, 0, 0, 12, 0, 0, 0, 99, 0, 0, 0, 1, 0, 0, 0, 1])
        .expect("sent");
    let mut answer = Vec::new();
    // It may get an error, or only be disconnected.
    let _ = nonsense.read_to_end(&mut answer);

    let service = sandbox.service(port, &[]);
    good(&sandbox, "read_write_data_validity_test", &[]);
    ended(service, 0);
    wait_for_log(&target, "session 2 has completed", 1);
    target.signal(Signal::INT);
    let stderr = ended(target, 1);
    assert!(stderr.contains("1 of 2 sessions have failed"), "{stderr}");
    assert_eq!(sandbox.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn targets_keep_their_content_for_the_next_gga_session() {
    let sandbox = Sandbox::new();
    let files = sandbox.generate("content", &compressible(64 * BLOCK_SIZE), &[]);
    let plain = sandbox.path("content");
    let sessions = ["--sessions", "3"];
    let targets = files
        .each_ref()
        .map(|file| sandbox.target(&["--binary-content", text(file), sessions[0], sessions[1]]));
    let ports = targets.each_ref().map(|(_, port)| *port);
    let service = sandbox.gga_service(ports, 1, &sessions);
    let other = sandbox.file("other", &compressible(65 * BLOCK_SIZE)[BLOCK_SIZE..]);
    let runs = [
        ("read_only_data_validity_test", &plain),
        ("read_write_data_validity_test", &other),
        ("read_only_data_validity_test", &other),
    ];
    for (number, (strategy, expected)) in runs.into_iter().enumerate() {
        wait_for_log(&service, WAITING, number + 1);
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
    assert!(
        stderr.contains("a result that nobody waits for, user data 0x"),
        "{stderr}"
    );
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
    wait_for_log(&service, "session 1 has failed", 1);
    drop(target);
    let target = sandbox.target_again(port, &["--block-count", "16"]);
    wait_for_log(&service, WAITING, 2);
    good(&sandbox, "read_write_data_validity_test", &[]);
    ended(target, 0);
    let stderr = ended(service, 1);
    assert!(stderr.contains("that is no result"), "{stderr}");
    assert!(stderr.contains("user data 0x"), "{stderr}");
}

// A second client is refused with a reason, and does not disturb the one being served.

/// Maximum time for a refusal: less than the timeout (5 s) of a client without an answer.
const QUICKLY: Duration = Duration::from_secs(4);

/// An initiator during a validated run that would take minutes.
fn first_session(sandbox: &Sandbox) -> Process {
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
        .wait_for("shown progress", TIMEOUT, |line| {
            line.contains("per second").then_some(())
        })
        .expect("the run is under way");
    initiator
}

/// Checks that the run makes progress without an error, and interrupts it.
fn goes_on(first: Process) {
    let so_far = first.stderr().matches("per second").count();
    wait_for_log(&first, "per second", so_far + 1);
    first.signal(Signal::INT);
    let stderr = expect_failure(first);
    assert!(stderr.contains("interrupted by the user"), "{stderr}");
}

#[test]
fn second_initiator_is_refused_and_the_first_continues() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &[]);
    let first = first_session(&sandbox);
    for _ in 0..2 {
        let start = Instant::now();
        let stderr = expect_failure(sandbox.initiator("read_throughput_test", &[]));
        assert!(stderr.contains("serves another initiator"), "{stderr}");
        assert!(start.elapsed() < QUICKLY, "after {:?}", start.elapsed());
    }
    wait_for_log(&service, "refused a further client", 2);
    goes_on(first);
    document(service);
    document(target);
}

#[test]
fn second_service_is_refused_and_the_first_continues() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &[]);
    let first = first_session(&sandbox);
    let start = Instant::now();
    let other = [
        "zero-copy",
        "-d",
        "03:00.0",
        "-r",
        "3b:00.0",
        "--cpu",
        "0",
        "--command-channel-name",
        "another",
        "--storage-server",
    ];
    let storage = format!("127.0.0.1:{port}");
    let stderr = expect_failure(sandbox.spawn("service", &[&other[..], &[&storage]].concat()));
    assert!(stderr.contains("serves another client"), "{stderr}");
    assert!(start.elapsed() < QUICKLY, "after {:?}", start.elapsed());
    goes_on(first);
    document(service);
    document(target);
}

#[test]
fn refused_client_is_served_after_the_first_disconnects() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&["--sessions", "2"]);
    let service = sandbox.service(port, &["--sessions", "2"]);
    let first = first_session(&sandbox);
    expect_failure(sandbox.initiator("read_throughput_test", &[]));
    first.signal(Signal::INT);
    expect_failure(first);
    wait_for_log(&service, "waiting for the initiator", 2);
    document(sandbox.initiator(
        "read_write_data_validity_test",
        &["--run-limit-operation-count", "64"],
    ));
    for mut process in [service, target] {
        let status = process.wait(crate::support::default_deadline());
        assert!(status.is_some(), "it has not ended: {}", process.stderr());
    }
}
