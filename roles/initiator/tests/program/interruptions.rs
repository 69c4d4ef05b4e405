//! Ctrl-C in several states: a bounded exit, a shutdown of the service, and a non-zero exit code.

use std::time::Duration;

use crate::support::{Initiator, Io, Script, Service};
use wire::control::MessageType;

#[test]
fn interrupted_run_is_stopped_and_shut_down() {
    let service = Service::start(Script::default());
    let initiator = Initiator::start(
        &service.channel,
        &["--run-limit-operation-count", "4000000000"],
    );
    service.wait_for_ios(1000);
    initiator.interrupt();
    let ended = initiator.end().failed_with(&["interrupted"]);
    assert!(ended.after < Duration::from_secs(20), "{:?}", ended.after);
    let record = service.record();
    let kinds: Vec<_> = record
        .requests
        .iter()
        .map(|request| request.payload.message_type())
        .collect();
    assert_eq!(
        kinds[3..],
        [
            MessageType::StopStorageRequest,
            MessageType::ShutdownRequest
        ]
    );
    assert_eq!(record.consumers[4], 0, "consumers are gone before shutdown");
}

#[test]
fn interrupted_run_with_an_unresponsive_service_ends() {
    let service = Service::start(Script {
        io: (1000, Io::Ignore),
        ..Script::default()
    });
    let args = [
        "--run-limit-operation-count",
        "4000000000",
        "--io-timeout",
        "3",
    ];
    let initiator = Initiator::start(&service.channel, &args);
    service.wait_for_ios(1001);
    initiator.interrupt();
    let ended = initiator.end().failed_with(&["interrupted"]);
    assert!(ended.after < Duration::from_secs(20), "{:?}", ended.after);
    service.record();
}

#[test]
fn interruption_without_a_service_ends_at_once() {
    let initiator = Initiator::start("initiator-test-never", &["--control-timeout", "50"]);
    // Before the handlers are installed, the default action applies, which is bounded, too.
    std::thread::sleep(Duration::from_millis(700));
    initiator.interrupt();
    let ended = initiator.end();
    assert_ne!(ended.code, Some(0));
    assert!(ended.after < Duration::from_secs(15), "{:?}", ended.after);
}

#[test]
fn interruption_during_a_request_ends_within_its_timeout() {
    let service = Service::start(Script {
        ignore: Some(MessageType::InitStorageRequest),
        ..Script::default()
    });
    let initiator = Initiator::start(&service.channel, &["--control-timeout", "4"]);
    std::thread::sleep(Duration::from_millis(1500));
    initiator.interrupt();
    let ended = initiator.end();
    assert_ne!(ended.code, Some(0));
    assert!(ended.after < Duration::from_secs(20), "{:?}", ended.after);
    service.record();
}
