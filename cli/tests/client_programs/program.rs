//! Programs of the system: found, started, and waited for.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::process::{Process, Signal};
use libtest_mimic::Failed;

/// Time limit of every wait. mkfs.ext4 of the README's lines discards 1 GiB, which takes minutes without optimization on a loaded machine.
pub const TIMEOUT: Duration = Duration::from_secs(1800);
/// Time for the last output of a program that has exited: a daemon that it has started may keep its pipes open.
const DRAIN: Duration = Duration::from_secs(2);

/// Directories of programs: those of `PATH`, and those that only root has in it.
fn directories() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found: Vec<_> = env::split_paths(&path).collect();
    found
        .into_iter()
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
}

pub fn is_installed(program: &str) -> bool {
    directories().any(|directory| directory.join(program).is_file())
}

/// Value of `PATH` with which all programs are found.
pub fn path() -> OsString {
    env::join_paths(directories()).expect("from a path")
}

/// Runs a program to completion, which must succeed, and returns its output, both streams in one.
pub fn run(line: &str) -> Result<String, Failed> {
    Program::start(line)?.succeed()
}

/// A running program.
pub struct Program {
    line: String,
    pub process: Process,
}

impl Program {
    /// Starts a program with arguments, quoted as for a shell.
    pub fn start(line: &str) -> Result<Self, Failed> {
        let words = shlex::split(line).ok_or_else(|| format!("unbalanced quotes: {line}"))?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("PATH", path());
        Self::spawn(line, command)
    }

    /// Starts a command, which is called `line` in errors.
    pub fn spawn(line: &str, command: Command) -> Result<Self, Failed> {
        Ok(Self {
            line: line.to_owned(),
            process: Process::spawn_interactive("client", command)?,
        })
    }

    /// Waits for the exit with status 0; returns the output.
    pub fn succeed(mut self) -> Result<String, Failed> {
        let status = self.process.wait(Instant::now() + TIMEOUT);
        self.process.drain(DRAIN);
        let output = self.process.lines().join("\n");
        match status {
            Some(status) if status.success() => Ok(output),
            Some(status) => {
                Err(format!("{}: expected success, got {status}\n{output}", self.line).into())
            }
            None => Err(format!(
                "{}: expected an exit within {TIMEOUT:?}, got none\n{output}",
                self.line
            )
            .into()),
        }
    }

    /// Sends a signal and waits for the exit, with any status.
    pub fn end(mut self, signal: Signal) -> Result<(), Failed> {
        self.process.signal(signal);
        match self.process.wait(Instant::now() + TIMEOUT) {
            Some(_) => Ok(()),
            None => Err(format!("{}: expected an exit after {signal:?}", self.line).into()),
        }
    }
}

/// Waits until a condition holds. `what` completes "expected" in the error.
pub fn wait_until(
    what: &str,
    mut holds: impl FnMut() -> Result<bool, Failed>,
) -> Result<(), Failed> {
    let deadline = Instant::now() + TIMEOUT;
    while !holds()? {
        if Instant::now() >= deadline {
            return Err(format!("expected {what} within {TIMEOUT:?}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Fails unless the values are equal.
pub fn expect_equal<T: PartialEq + std::fmt::Debug>(
    what: &str,
    expected: T,
    got: T,
) -> Result<(), Failed> {
    if expected == got {
        return Ok(());
    }
    Err(format!("{what}: expected {expected:?}, got {got:?}").into())
}
