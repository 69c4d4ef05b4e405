//! A service takes targets over from another one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::gga::{BLOCKS, Set};
use crate::support::{
    Sandbox, default_deadline, document, ended, expect_error, killed, lossy, text,
};
use deployment::process::Process;
use doca::ErrorCode;
use rustix::process::{Pid, Signal, kill_process};
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

/// Runs an action of the resource agent in `packaging/` for a zero-copy service with this name of its Comch server, and
/// returns its exit status.
fn agent(sandbox: &Sandbox, name: &str, port: u16, action: &str) -> i32 {
    let config = format!(
        r#"{{ "doca_program_flags": {{ "device": "03:00.0", "representor": "3b:00.0", "cpu": [0], "command-channel-name": "{name}",
              "storage-server": "127.0.0.1:{port}", "sessions": "forever" }} }}"#
    );
    let config = sandbox.file(&format!("{name}.json"), config.as_bytes());
    let file = |suffix: &str| sandbox.path(&format!("{name}.{suffix}"));
    let agent = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/ocf/doca-storage");
    let status = Command::new(agent)
        .arg(action)
        .env("SOFTDOCA_RUNTIME_DIR", sandbox.runtime())
        .env("OCF_RESKEY_program", crate::support::PROGRAM)
        .env("OCF_RESKEY_role", "zero-copy")
        .env("OCF_RESKEY_config", config)
        .env("OCF_RESKEY_socket", file("control"))
        .env("OCF_RESKEY_log", file("log"))
        .stdout(Stdio::null())
        .status();
    status.expect("it runs").code().expect("it exits")
}

const OCF_SUCCESS: i32 = 0;
const OCF_ERR_GENERIC: i32 = 1;
const OCF_NOT_RUNNING: i32 = 7;

/// A cluster manager with two nodes, of which the first one hangs: it is not stopped before the second one is started.
#[test]
fn resource_agent_takes_over_from_a_node_that_hangs() {
    let sandbox = Sandbox::new();
    let (_target, port) = sandbox.target(&FOREVER);
    let act = |name: &str, action: &str| agent(&sandbox, name, port, action);
    assert_eq!(act("a", "validate-all"), OCF_SUCCESS);
    assert_eq!(act("a", "monitor"), OCF_NOT_RUNNING);
    assert_eq!(act("a", "start"), OCF_SUCCESS);
    assert_eq!(act("a", "start"), OCF_SUCCESS, "it runs already");
    assert_eq!(act("a", "monitor"), OCF_SUCCESS);
    let first = ["--command-channel-name", "a"];
    let busy = sandbox.busy_initiator(&first);

    let pid = std::fs::read_to_string(sandbox.path("a.control.pid")).expect("a pid");
    let pid = Pid::from_raw(pid.trim().parse().expect("a number")).expect("not 0");
    kill_process(pid, Signal::STOP).expect("stopped");
    assert_eq!(act("a", "monitor"), OCF_ERR_GENERIC);
    assert_eq!(act("b", "start"), OCF_SUCCESS);
    sandbox.short_run(
        "read_write_data_validity_test",
        &["--command-channel-name", "b"],
    );

    kill_process(pid, Signal::CONT).expect("resumed");
    crate::support::expect_failure(busy);
    wait_until("the first one is fenced", || {
        reservation(&sandbox, &sandbox.path("a.control")).1
    });
    assert_eq!(act("a", "monitor"), OCF_ERR_GENERIC);
    assert_eq!(act("b", "monitor"), OCF_SUCCESS);
    for name in ["a", "b"] {
        assert_eq!(act(name, "stop"), OCF_SUCCESS);
        assert_eq!(act(name, "stop"), OCF_SUCCESS, "it is stopped already");
        assert_eq!(act(name, "monitor"), OCF_NOT_RUNNING);
    }
}

/// A set without an initiator: a lost target is noticed, rejoins and is rebuilt; then an initiator is served at once.
#[test]
fn set_is_maintained_without_an_initiator() {
    let mut it = Set::new();
    let content = it.content(0);
    it.write(&content);
    let socket = it.sandbox.path("control");
    let flags = [&FOREVER[..], &["--control-socket", text(&socket)]].concat();
    let service = it.service(&flags);
    let reaches = |it: &Set, what: &str, expected: [&str; 2]| {
        wait_until(what, || {
            let status = set(&it.sandbox, "status", &socket).expect("a status");
            let [field, value] = expected;
            status["set"][field] == value && status["targets_in_use"] == true
        });
    };
    reaches(&it, "maintenance", ["state", "healthy"]);
    it.kill(1);
    reaches(&it, "a lost target is noticed", ["state", "degraded"]);
    // With a target offline, an initiator is served without a long wait.
    let begun = Instant::now();
    document(it.initiator("read_only_data_validity_test", &content, BLOCKS));
    println!("served after {:?}", begun.elapsed());
    reaches(&it, "maintenance again", ["state", "degraded"]);
    it.start(1);
    reaches(&it, "the target is rebuilt", ["state", "healthy"]);
    let operations = set(&it.sandbox, "status", &socket).expect("a status");
    assert_eq!(operations["session"], json!(false));
    document(it.initiator("read_only_data_validity_test", &content, BLOCKS));
    service.signal(Signal::TERM);
    ended(service, 0);
}
