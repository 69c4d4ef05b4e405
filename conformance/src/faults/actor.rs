//! A role that takes part.

use std::fmt;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use super::case::Part;
use crate::process::{Process, Signal};

/// How often waiting looks around.
const TICK: Duration = Duration::from_millis(2);
/// Time that the system gets to take a process away.
const REAPED: Duration = Duration::from_secs(10);
/// What all roles say the reason of their end behind.
const ERROR: &str = "error: ";

/// A role's process.
pub(super) struct Actor {
    pub(super) part: Part,
    pub(super) label: &'static str,
    process: Process,
    status: Option<ExitStatus>,
}

impl Actor {
    pub(super) fn start(part: Part, label: &'static str, command: Command) -> Result<Self, String> {
        Ok(Self {
            part,
            label,
            process: Process::spawn(label, command).map_err(|failure| failure.to_string())?,
            status: None,
        })
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits for the end; `false` when it has not come at `deadline`.
    pub(super) fn ends(&mut self, deadline: Instant) -> bool {
        if self.status.is_none() {
            self.status = self.process.wait(deadline);
        }
        self.status.is_some()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.ends(Instant::now())
    }

    /// Whether it has ended by itself, with exit status 0.
    pub(super) fn is_well(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Waits until a SIGSTOP has come to it; `false` when it has not at `deadline`.
    pub(super) fn stops(&mut self, deadline: Instant) -> bool {
        let path = format!("/proc/{}/stat", self.process.id());
        while !fs::read_to_string(&path).is_ok_and(|stat| is_stopped(&stat)) {
            if self.has_ended() || Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(TICK);
        }
        true
    }

    /// Waits until it has said this so many times.
    pub(super) fn says(
        &mut self,
        what: &str,
        times: usize,
        deadline: Instant,
    ) -> Result<(), String> {
        self.says_what(&format!("{what:?}"), deadline, |text| {
            (text.matches(what).count() >= times).then_some(())
        })
    }

    /// Waits until it has said something of which `find` makes an answer.
    pub(super) fn says_what<T>(
        &mut self,
        what: &str,
        deadline: Instant,
        find: impl Fn(&str) -> Option<T>,
    ) -> Result<T, String> {
        loop {
            let has_ended = self.has_ended();
            if let Some(found) = find(&self.process.stderr()) {
                return Ok(found);
            }
            if let Some(status) = self.status.filter(|_| has_ended) {
                return Err(format!(
                    "{} ended ({status}) before it said {what}",
                    self.label
                ));
            }
            if Instant::now() >= deadline {
                return Err(format!("{} has not said {what} in time", self.label));
            }
            std::thread::sleep(TICK);
        }
    }

    /// Its end, with all that it has written. One that has not ended is killed.
    pub(super) fn into_ended(mut self) -> Ended {
        if !self.has_ended() {
            // One that is stopped takes no other signal.
            self.process.signal(Signal::KILL);
            self.process.wait(Instant::now() + REAPED);
        }
        let (stdout, stderr) = self.process.into_output();
        Ended {
            part: self.part,
            label: self.label,
            status: self.status,
            stdout,
            stderr,
        }
    }
}

/// Whether a line of `/proc/PID/stat` is that of a stopped process: field 3, behind the name, which may hold anything in parentheses.
fn is_stopped(stat: &str) -> bool {
    stat.rsplit_once(')')
        .is_some_and(|(_, fields)| fields.trim_start().starts_with('T'))
}

/// A role that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) part: Part,
    pub(super) label: &'static str,
    /// `None` when it had to be killed.
    pub(super) status: Option<ExitStatus>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Ended {
    /// It ended by itself, with exit status 0.
    pub(super) fn is_well(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// What is wrong with its end, whoever it is: it has not come, it was a crash, or a failure without a word. `killed` says that
    /// somebody has sent it a SIGKILL.
    pub(super) fn complaint(&self, killed: bool) -> Option<String> {
        let label = self.label;
        let Some(status) = self.status else {
            return Some(format!("{label} has not ended"));
        };
        match status.code() {
            None if killed && status.signal() == Some(Signal::KILL.as_raw()) => None,
            None => Some(format!("{label} was killed ({status})")),
            Some(_) if self.stderr.contains("panicked") => Some(format!("{label} has panicked")),
            Some(0) => None,
            Some(1) if self.stderr.contains(ERROR) => None,
            Some(1) => Some(format!("{label} failed and did not say why")),
            Some(code) => Some(format!("{label} ended with {code}, expected was 0 or 1")),
        }
    }
}

/// What somebody reads who wants to know why.
impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => writeln!(f, "{}: {status}", self.label)?,
            None => writeln!(f, "{}: had to be killed", self.label)?,
        }
        for line in self.stderr.lines().chain(self.stdout.lines()) {
            writeln!(f, "    {line}")?;
        }
        Ok(())
    }
}
