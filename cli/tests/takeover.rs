//! A service takes targets over from another one.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::gga::{BLOCKS, Set};
use crate::support::{
    Sandbox, default_deadline, document, ended, expect_error, killed, lossy, text,
};
use deployment::process::Process;
use doca::ErrorCode;
use rustix::process::Signal;
use serde_json::{Value, json};

const FOREVER: [&str; 2] = ["--sessions", "forever"];
/// Name of the second service's Comch server.
const SECOND: [&str; 2] = ["--command-channel-name", "second"];

/// Flags of a service that takes over, and that is ended by the test.
fn flags<'a>(socket: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let own = ["--takeover", "--control-socket", text(socket)];
    [&own[..], &FOREVER, more].concat()
}

/// Runs `set COMMAND`, and returns its document; `None` if the service refuses.
fn set(sandbox: &Sandbox, command: &str, socket: &Path) -> Option<Value> {
    let arguments = ["set", command, "--json", "--socket", text(socket)];
    let output = sandbox.command(&arguments).output().expect("it runs");
    match output.status.code() {
        Some(0) => Some(serde_json::from_slice(&output.stdout).expect("a document")),
        Some(1) => None,
        other => panic!("{other:?}: {}", lossy(&output.stderr)),
    }
}

/// The reservation of a service's targets: its generation, and `true` if another service has taken over.
fn reservation(sandbox: &Sandbox, socket: &Path) -> (u64, bool) {
    let status = set(sandbox, "status", socket).expect("a status");
    let reservation = &status["reservation"];
    let generation = reservation["generation"].as_u64().expect("a generation");
    (generation, reservation["fenced"].is_string())
}

fn wait_until(what: &str, mut is_reached: impl FnMut() -> bool) {
    let deadline = default_deadline();
    while !is_reached() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// State of the first service while the second one takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Running,
    Stopped,
    Killed,
}

impl First {
    fn apply(self, service: &Process) {
        match self {
            Self::Running => {}
            Self::Stopped => service.signal(Signal::STOP),
            Self::Killed => service.signal(Signal::KILL),
        }
    }
}

#[test]
fn zero_copy_is_taken_over_from_a_service_in_any_state() {
    for state in [First::Running, First::Stopped, First::Killed] {
        let sandbox = Sandbox::new();
        let (_target, port) = sandbox.target(&FOREVER);
        let sockets = ["a", "b"].map(|name| sandbox.path(name));
        let first = sandbox.service(port, &flags(&sockets[0], &[]));
        let busy = sandbox.busy_initiator(&[]);
        assert_eq!(reservation(&sandbox, &sockets[0]), (1, false));
        state.apply(&first);

        let begun = Instant::now();
        let second = sandbox.service(port, &flags(&sockets[1], &SECOND));
        println!("{state:?}: taken over after {:?}", begun.elapsed());
        assert_eq!(reservation(&sandbox, &sockets[1]), (2, false));
        sandbox.short_run("read_write_data_validity_test", &SECOND);
        first.signal(Signal::CONT);
        crate::support::expect_failure(busy);
        if state == First::Killed {
            killed(first);
            continue;
        }
        wait_until("the first one is fenced", || {
            reservation(&sandbox, &sockets[0]).1
        });
        let refused = sandbox.initiator("read_write_data_validity_test", &[]);
        expect_error(refused, ErrorCode::NOT_PERMITTED);
        sandbox.short_run("read_write_data_validity_test", &SECOND);

        // The operator lets the first one take over again.
        assert_eq!(set(&sandbox, "takeover", &sockets[1]), None, "in charge");
        assert_eq!(set(&sandbox, "takeover", &sockets[0]), Some(json!({})));
        wait_until("the first one has taken over", || {
            reservation(&sandbox, &sockets[0]) == (3, false)
        });
        sandbox.short_run("read_write_data_validity_test", &[]);
        wait_until("the second one is fenced", || {
            reservation(&sandbox, &sockets[1]).1
        });
        for service in [first, second] {
            service.signal(Signal::TERM);
            ended(service, 0);
        }
    }
}

#[test]
fn service_without_takeover_is_refused_by_reserved_targets() {
    let sandbox = Sandbox::new();
    let (_target, port) = sandbox.target(&FOREVER);
    let socket = sandbox.path("a");
    let first = sandbox.service(port, &flags(&socket, &[]));
    killed(first);
    let _plain = sandbox.service(port, &[]);
    let refused = sandbox.initiator("read_write_data_validity_test", &[]);
    expect_error(refused, ErrorCode::NOT_PERMITTED);
}

#[test]
fn set_is_taken_over_with_all_acknowledged_writes() {
    for state in [First::Running, First::Stopped, First::Killed] {
        let set_ = Set::new();
        let sandbox = &set_.sandbox;
        let sockets = ["a", "b"].map(|name| sandbox.path(name));
        let first = set_.service(&flags(&sockets[0], &[]));
        let content = set_.content(0);
        let writer = set_.writer(&content);
        state.apply(&first);

        let begun = Instant::now();
        let second = set_.service(&flags(&sockets[1], &SECOND));
        println!("{state:?}: taken over after {:?}", begun.elapsed());
        let read = |content: &Path| {
            let strategy = "read_only_data_validity_test";
            document(sandbox.gga_initiator(strategy, content, BLOCKS, 2, &SECOND));
        };
        read(&content);
        let next = set_.content(1);
        let strategy = "read_write_data_validity_test";
        document(sandbox.gga_initiator(strategy, &next, BLOCKS, 2, &SECOND));
        first.signal(Signal::CONT);
        crate::support::expect_failure(writer);
        read(&next);
        if state == First::Killed {
            killed(first);
        } else {
            wait_until("the first one is fenced", || {
                reservation(sandbox, &sockets[0]).1
            });
            first.signal(Signal::TERM);
            ended(first, 0);
        }
        second.signal(Signal::TERM);
        ended(second, 0);
    }
}
