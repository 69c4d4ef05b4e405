//! The initiator as a process.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Maximum time for the initiator to exit.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running initiator.
pub struct Initiator {
    child: Child,
    start: Instant,
}

/// Exit status and output of an initiator.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub after: Duration,
}

/// A CPU that this process may use, as a flag's value.
pub fn usable_cpu() -> String {
    let usable = |index: &String| role_common::flags::cpu(index).is_ok();
    (0..4096_u32)
        .map(|index| index.to_string())
        .find(usable)
        .expect("a CPU")
}

impl Initiator {
    /// Starts it on the channel, with one worker and a read test of 100 operations unless `args` override that.
    pub fn start(channel: &str, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_doca_storage_initiator_comch"));
        command.args(["-d", "3b:00.0", "--command-channel-name", channel]);
        let cpu = usable_cpu();
        for default in [
            ["--cpu", &cpu],
            ["--execution-strategy", "read_throughput_test"],
            ["--run-limit-operation-count", "100"],
        ] {
            if !args.contains(&default[0]) {
                command.args(default);
            }
        }
        let command = command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self {
            child: command.spawn().expect("the initiator starts"),
            start: Instant::now(),
        }
    }

    pub fn interrupt(&self) {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process id");
        kill_process(pid, Signal::INT).expect("the process is there");
    }

    /// Waits for the process to exit.
    pub fn end(mut self) -> Ended {
        while self.child.try_wait().expect("a child").is_none() {
            if self.start.elapsed() > PATIENCE {
                self.child.kill().expect("a child");
                let output = self.child.wait_with_output().expect("a child");
                panic!(
                    "the initiator hangs:\n{}",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let after = self.start.elapsed();
        let output = self.child.wait_with_output().expect("a child");
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            after,
        }
    }
}

impl Ended {
    /// Fails the test, with the initiator's output, unless it succeeded.
    pub fn passed(self) -> Self {
        assert_eq!(
            self.code,
            Some(0),
            "stdout:\n{}\nstderr:\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Fails the test unless the initiator exited with 1 and printed all of `parts` on standard error.
    pub fn failed_with(self, parts: &[&str]) -> Self {
        assert_eq!(
            self.code,
            Some(1),
            "stdout:\n{}\nstderr:\n{}",
            self.stdout,
            self.stderr
        );
        for part in parts {
            assert!(
                self.stderr.contains(part),
                "{part} is missing in\n{}",
                self.stderr
            );
        }
        self
    }
}
