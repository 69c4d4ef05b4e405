//! One role as a process of its own, with its output captured.

mod lines;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::time::{clock_getcpuclockid, clock_gettime};
use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process, waitid};

use lines::{Lines, Wait};

pub use rustix::process::Signal;

/// Time that a role gets to end after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// How often waiting looks around.
const TICK: Duration = Duration::from_millis(5);

/// Why a role did not do its part.
#[derive(Debug, thiserror::Error)]
#[error("{role}: {what}{stderr}")]
pub struct Failure {
    /// Which role.
    pub role: &'static str,
    /// What it did, or did not do.
    pub what: String,
    /// What it wrote to standard error, indented, or nothing.
    pub stderr: String,
}

impl Failure {
    /// The failures of several roles of one session as one; there is at least one.
    pub fn all(failures: Vec<Self>) -> Self {
        let role = failures
            .first()
            .map_or("deployment", |failure| failure.role);
        let mut texts = failures
            .into_iter()
            .map(|failure| (failure.role, failure.what, failure.stderr));
        let (_, what, mut stderr) = texts.next().unwrap_or_default();
        for (role, what, own) in texts {
            stderr.push_str(&format!("\n  {role}: {what}{own}"));
        }
        Self { role, what, stderr }
    }
}

/// A running role. Dropping it ends it.
pub struct Process {
    role: &'static str,
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<()>>,
    lines: Arc<Lines>,
}

impl Process {
    /// Starts `command` as `role`, with its output captured.
    ///
    /// # Errors
    ///
    /// The program could not be started.
    pub fn spawn(role: &'static str, command: Command) -> Result<Self, Failure> {
        Self::spawn_with(role, command, None)
    }

    /// The same; all that it writes to standard error goes to `log`, too.
    ///
    /// # Errors
    ///
    /// The program could not be started.
    pub fn spawn_logged(role: &'static str, command: Command, log: File) -> Result<Self, Failure> {
        Self::spawn_with(role, command, Some(log))
    }

    fn spawn_with(
        role: &'static str,
        mut command: Command,
        mut log: Option<File>,
    ) -> Result<Self, Failure> {
        let failure = |what: String| Failure {
            role,
            what,
            stderr: String::new(),
        };
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failure(format!("could not be started: {error}")))?;
        let mut stdout = child.stdout.take().expect("piped above");
        let stderr = BufReader::new(child.stderr.take().expect("piped above"));
        let lines = Arc::<Lines>::default();
        let stdout = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was read before an error is what there is.
            let _ = stdout.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let sink = Arc::clone(&lines);
        let stderr = std::thread::spawn(move || {
            for line in stderr.split(b'\n').map_while(Result::ok) {
                if let Some(log) = &mut log {
                    // A log that cannot be written is missed by whoever looks for it.
                    let _ = log.write_all(&[&line[..], b"\n"].concat());
                }
                sink.push(String::from_utf8_lossy(&line).into_owned());
            }
            sink.end();
        });
        Ok(Self {
            role,
            child,
            stdout: Some(stdout),
            stderr: Some(stderr),
            lines,
        })
    }

    /// Its number, by which the operating system tells about it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            // It may have ended in this moment.
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for the role to end in whatever way; `None` when it has not at `deadline`.
    pub fn wait(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(TICK),
                _ => return None,
            }
        }
    }

    /// What the role has written to standard error so far; the last lines when it was much.
    pub fn stderr(&self) -> String {
        self.lines.indented()
    }

    /// How many lines it has written to standard error so far.
    pub fn line_count(&self) -> usize {
        self.lines.count()
    }

    /// Waits until the role writes a line to standard error from which `parse` gets something, beginning with line number `from`.
    /// `None` when there is none in this time, or the role has ended without; nothing is done to it.
    pub fn find_line<T>(
        &self,
        from: usize,
        timeout: Duration,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        self.lines.find(from, timeout, parse).ok()
    }

    /// What the role has written to standard output, and to standard error (the last lines when it was much). Ends it when it
    /// has not ended.
    pub fn into_output(mut self) -> (String, String) {
        self.end();
        let stdout = self.take_stdout();
        self.join_stderr();
        (stdout, self.lines.text())
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.wait(Instant::now()).is_some()
    }

    /// The same, without taking the end from the operating system.
    pub fn is_over(&self) -> bool {
        let looks = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let look = |pid| waitid(WaitId::Pid(pid), looks);
        // Whoever is not a child any more has ended, too.
        self.pid().is_none_or(|pid| !matches!(look(pid), Ok(None)))
    }

    /// Waits for the end without taking it from the operating system, which forgets the CPU time with it. What kept it from
    /// waiting is seen by whoever takes the end.
    pub fn wait_for_end(&self, deadline: Instant) {
        let Some(pid) = self.pid() else { return };
        let looks = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while let Ok(None) = waitid(WaitId::Pid(pid), looks)
            && Instant::now() < deadline
        {
            std::thread::sleep(TICK);
        }
    }

    /// CPU time of all its threads so far, those that have ended too, in user and in kernel mode. `None` once its end has been taken.
    pub fn cpu_time(&self) -> Option<Duration> {
        let pid = nix::unistd::Pid::from_raw(self.pid()?.as_raw_nonzero().get());
        let time = clock_getcpuclockid(pid).and_then(clock_gettime).ok()?;
        Some(time.into())
    }

    /// Ends it, and says why, with what it wrote.
    pub fn failed(mut self, what: &str) -> Failure {
        self.failure(what.to_owned())
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Waits until the role writes a line to standard error from which `parse` gets something. `what` completes "it
    /// has not ..." in the error.
    ///
    /// # Errors
    ///
    /// The time has passed, or the role has ended.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        timeout: Duration,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Failure> {
        match self.lines.find(0, timeout, parse) {
            Ok(found) => Ok(found),
            Err(Wait::Ended) => {
                let status = self
                    .child
                    .wait()
                    .map_or_else(|error| error.to_string(), |status| status.to_string());
                Err(self.failure(format!("ended ({status}) before it {what}")))
            }
            Err(Wait::TimedOut) => Err(self.failure(format!("has not {what} within {timeout:?}"))),
        }
    }

    /// Waits for the role to end well; answers what it wrote to standard output.
    ///
    /// # Errors
    ///
    /// It failed, has not ended at `deadline`, or `interrupted` says that nobody wants to wait any longer; in the last
    /// two cases it is ended.
    pub fn finish(
        mut self,
        deadline: Instant,
        interrupted: impl Fn() -> bool,
    ) -> Result<String, Failure> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(self.take_stdout()),
                Ok(Some(status)) => return Err(self.failure(format!("failed ({status})"))),
                Ok(None) if interrupted() => {
                    return Err(self.failure("interrupted".to_owned()));
                }
                Ok(None) if Instant::now() >= deadline => {
                    return Err(self.failure("has not ended in time".to_owned()));
                }
                Ok(None) => std::thread::sleep(TICK),
                Err(error) => return Err(self.failure(format!("cannot be waited for: {error}"))),
            }
        }
    }

    fn take_stdout(&mut self) -> String {
        self.stdout
            .take()
            .and_then(|reader| reader.join().ok())
            .unwrap_or_default()
    }

    fn failure(&mut self, what: String) -> Failure {
        self.end();
        self.join_stderr();
        Failure {
            role: self.role,
            what,
            stderr: self.lines.indented(),
        }
    }

    fn join_stderr(&mut self) {
        if let Some(reader) = self.stderr.take() {
            // The reader ends when the process has; what it got before a panic is kept all the same.
            let _ = reader.join();
        }
    }

    /// SIGTERM, some time, SIGKILL; nothing when it has ended.
    fn end(&mut self) {
        let running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if !running(&mut self.child) {
            return;
        }
        self.signal(Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while running(&mut self.child) && Instant::now() < deadline {
            std::thread::sleep(TICK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
