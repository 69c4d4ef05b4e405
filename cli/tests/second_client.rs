//! A second client is refused with a reason, and does not disturb the one being served.

use std::time::{Duration, Instant};

use crate::support::{Sandbox, TIMEOUT, document, expect_failure, wait_for_log};
use ::deployment::process::{Process, Signal};

/// Maximum time for a refusal: less than the timeout (5 s) of a client without an answer.
const QUICKLY: Duration = Duration::from_secs(4);

/// An initiator during a validated run that would take minutes.
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
    let first = busy(&sandbox);
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
    let first = busy(&sandbox);
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
    let first = busy(&sandbox);
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
