//! `doca-storage set`: commands to running services.

use std::path::Path;
use std::time::Duration;

use deployment::process::Process;
use serde_json::{Value, json};

use crate::support::gga::{BLOCKS, Set, interrupted, redundancy};
use crate::support::{Sandbox, default_deadline, ended, killed, lossy, text};

/// Runs `set COMMAND --socket SOCKET --json`, and returns the document and the exit status.
fn run(sandbox: &Sandbox, socket: &Path, command: &[&str]) -> (Value, i32) {
    let arguments = [&["set"], command, &["--json", "--socket", text(socket)]].concat();
    let output = sandbox.command(&arguments).output().expect("it runs");
    let code = output.status.code().expect("it exits");
    assert_ne!(code, 2, "{}", lossy(&output.stderr));
    (
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
        code,
    )
}

struct Operated {
    set: Set,
    socket: std::path::PathBuf,
    service: Process,
}

impl Operated {
    fn new(sessions: &str) -> Self {
        let set = Set::new();
        set.write(&set.content(0));
        let socket = set.sandbox.path("control");
        let flags = ["--scrub", "off", "--sessions", sessions, "--control-socket"];
        let service = set.service(&[&flags[..], &[text(&socket)]].concat());
        Self {
            set,
            socket,
            service,
        }
    }

    fn status(&self) -> Value {
        let (status, code) = run(&self.set.sandbox, &self.socket, &["status"]);
        assert_eq!(code, 0);
        status
    }

    fn does(&self, command: &[&str]) {
        let (answer, code) = run(&self.set.sandbox, &self.socket, command);
        assert_eq!((code, answer), (0, json!({})), "{command:?}");
    }

    fn refuses(&self, command: &[&str]) {
        let (_, code) = run(&self.set.sandbox, &self.socket, command);
        assert_eq!(code, 1, "{command:?}");
    }

    /// Waits until the status has this value.
    fn reaches(&self, what: &str, is_reached: impl Fn(&Value) -> bool) -> Value {
        let deadline = default_deadline();
        loop {
            let status = self.status();
            if is_reached(&status) {
                return status;
            }
            assert!(std::time::Instant::now() < deadline, "{what}: {status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A target is kept offline under I/O, rejoins, and is rebuilt whole; blocks are scrubbed; the service ends cleanly.
#[test]
fn operator_maintains_a_set_in_use() {
    let it = Operated::new("1");
    assert_eq!(it.status()["session"], json!(false));
    it.refuses(&["detach", "data_2"]);
    it.refuses(&["scrub", "start"]);
    it.does(&["scrub", "rate", "1024"]);
    assert_eq!(it.status()["scrub_rate"], json!(1_u64 << 30));

    let content = it.set.content(0);
    let writer = it.set.writer(&content);
    let status = it.status();
    assert_eq!(status["session"], json!(true));
    assert_eq!(status["set"]["state"], "healthy");
    assert_eq!(status["set"]["stripes"], json!(BLOCKS));
    let epoch = status["set"]["epoch"].as_u64().expect("a number");

    it.does(&["detach", "data_2"]);
    it.refuses(&["detach", "data_1"]);
    let status = it.reaches("an epoch without data_2", |status| {
        status["set"]["epoch"].as_u64() > Some(epoch)
    });
    // Longer than the pause between two attempts to rejoin.
    std::thread::sleep(Duration::from_secs(2));
    let target = &it.status()["set"]["targets"][1];
    assert_eq!(status["set"]["state"], "degraded");
    assert_eq!(
        (
            &target["target"],
            &target["is_online"],
            &target["is_kept_offline"]
        ),
        (&json!("data_2"), &json!(false), &json!(true))
    );
    it.does(&["attach", "data_2"]);
    it.refuses(&["attach", "data_2"]);
    it.reaches("healthy", |status| status["set"]["state"] == "healthy");

    it.does(&["rebuild", "data_p"]);
    it.reaches("rebuilt", |status| {
        status["set"]["state"] == "healthy" && status["set"]["targets"][2]["detachments"] == 1
    });
    it.does(&["scrub", "start"]);
    it.reaches("scrubbed", |status| {
        status["set"]["scrubbed"]["completed"] == 1
    });
    it.refuses(&["scrub", "stop"]);
    interrupted(writer);
    let redundancy = redundancy(it.service);
    assert_eq!(redundancy["state"], "healthy");
    assert_eq!(redundancy["lost"], json!([0, 1, 1]));
    let rebuilt = redundancy["rebuilt_stripes"].as_u64().expect("a number");
    assert!(rebuilt >= BLOCKS as u64, "all of data_p: {rebuilt}");
    assert!(!it.socket.exists());
}

#[test]
fn operator_ends_a_service_cleanly() {
    let it = Operated::new("forever");
    let client = it.set.idle_client();
    it.reaches("a session", |status| status["session"] == true);
    it.does(&["log-level", "60"]);
    it.refuses(&["log-level", "65"]);
    it.does(&["drain"]);
    ended(it.service, 0);
    killed(client);
    // Nothing is to be rebuilt or settled.
    let service = it.set.service(&[]);
    let reader = it.set.reader(&it.set.content(0));
    interrupted(reader);
    let redundancy = redundancy(service);
    let settled = &redundancy["settled_stripes"];
    assert_eq!(
        settled,
        &json!({"consistent": 0, "rewritten": 0, "lost": 0})
    );
    assert_eq!(redundancy["lost"], json!([0, 0, 0]));
}

#[test]
fn command_without_a_service_is_an_error() {
    let sandbox = Sandbox::new();
    let socket = sandbox.path("nothing");
    let (_, code) = run(&sandbox, &socket, &["status"]);
    assert_eq!(code, 1);
}
