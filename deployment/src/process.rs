//! A child process with its output captured.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::time::{clock_getcpuclockid, clock_gettime};
use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process, waitid};

use crate::implementation;
use crate::log::LogEvent;
use crate::port::wait_for_listener_in;

pub use rustix::process::Signal;

/// Time between SIGTERM and SIGKILL when a process is dropped.
const GRACE: Duration = Duration::from_secs(2);
/// Time for the kernel to end a killed process, and to drain the pipes of a process that has exited.
const REAPED: Duration = Duration::from_secs(10);
/// Polling interval of all waits.
const TICK: Duration = Duration::from_millis(2);
/// Maximum number of lines of standard error that are kept for failure messages.
const KEPT_LINES: usize = 200;
/// Maximum number of lines of an interactive program that are kept, to bound the memory for endless output.
const KEPT_INTERACTIVE_LINES: usize = 20_000;
/// Exit status of a Rust program whose main thread has panicked.
const PANICKED: i32 = 101;

#[derive(Debug, thiserror::Error)]
#[error("{role}: {what}{stderr}")]
pub struct Failure {
    pub role: &'static str,
    /// Description of the event, or of the missing event.
    pub what: String,
    /// Last lines of standard error, indented; may be empty.
    pub stderr: String,
}

impl Failure {
    /// A failure without output.
    pub fn new(role: &'static str, what: impl Into<String>) -> Self {
        Self {
            role,
            what: what.into(),
            stderr: String::new(),
        }
    }

    /// Combines the failures of several processes of one session; the list must not be empty.
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

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new("deployment", error.to_string())
    }
}

impl From<implementation::Error> for Failure {
    fn from(error: implementation::Error) -> Self {
        Self::new("deployment", error.to_string())
    }
}

/// Reason why a process is not ready for its peers.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// The process has exited.
    #[error("exited ({0}) before it was ready")]
    Exited(ExitStatus),
    /// The process was not ready in time.
    #[error("was not ready within {0:?}")]
    TimedOut(Duration),
    /// The caller has cancelled the wait.
    #[error("interrupted")]
    Interrupted,
    /// The kernel's tables of sockets cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Result of a process that has exited or was killed.
#[derive(Debug)]
pub struct Exit {
    pub role: &'static str,
    /// Exit status; `None` if the process was still running when its output was taken.
    pub status: Option<ExitStatus>,
    pub stdout: String,
    /// The last lines of standard error.
    pub stderr: String,
}

impl Exit {
    /// Code of a process that exited by itself.
    pub fn code(&self) -> Option<i32> {
        self.status?.code()
    }

    /// Returns `true` if the process exited by itself with status 0.
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Description of a crash, if the process has crashed: exit by a signal other than SIGKILL, or a panic in any
    /// thread.
    pub fn crash(&self) -> Option<String> {
        let status = self.status?;
        let is_killed = status.signal() == Some(Signal::KILL.as_raw());
        let is_crash = !is_killed && !is_orderly(status) || self.stderr.contains("panicked at");
        is_crash.then(|| format!("has crashed ({status})"))
    }
}

/// Returns `true` for an exit code of the program's choice: not for a signal or a panic.
pub fn is_orderly(status: ExitStatus) -> bool {
    status.code().is_some_and(|code| code != PANICKED)
}

/// A running child process. Dropping it sends SIGTERM, and SIGKILL after 2 s.
pub struct Process {
    role: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<JoinHandle<String>>,
    readers: Vec<JoinHandle<()>>,
    lines: Arc<Lines>,
}

impl Process {
    /// Starts `command` as `role`, with both outputs captured and no standard input.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn spawn(role: &'static str, command: Command) -> Result<Self, Failure> {
        Self::spawn_with(role, command, None)
    }

    /// As [`Process::spawn`]; standard error is also written to `log`, line by line.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn spawn_logged(role: &'static str, command: Command, log: File) -> Result<Self, Failure> {
        Self::spawn_with(role, command, Some(log))
    }

    fn spawn_with(
        role: &'static str,
        mut command: Command,
        log: Option<File>,
    ) -> Result<Self, Failure> {
        command.stdin(Stdio::null());
        let mut child = start(role, &mut command)?;
        let mut stdout = child.stdout.take().expect("piped by start");
        let stderr = child.stderr.take().expect("piped by start");
        let lines = Arc::new(Lines::keeping(KEPT_LINES, 1));
        let stdout = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // After a read error, the output is the part read so far.
            let _ = stdout.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Ok(Self {
            role,
            child,
            stdin: None,
            stdout: Some(stdout),
            readers: vec![collect(stderr, &lines, log)],
            lines,
        })
    }

    /// Starts a program that reads from standard input, which is a pipe for [`Process::press_enter`], and both outputs
    /// are captured as one sequence of lines ([`Process::lines`]) in the order of their arrival.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn spawn_interactive(role: &'static str, mut command: Command) -> Result<Self, Failure> {
        command.stdin(Stdio::piped());
        let mut child = start(role, &mut command)?;
        let lines = Arc::new(Lines::keeping(KEPT_INTERACTIVE_LINES, 2));
        let stdout = child.stdout.take().expect("piped by start");
        let stderr = child.stderr.take().expect("piped by start");
        Ok(Self {
            role,
            // Kept open: programs read until Enter is pressed and do not check for the end of the input.
            stdin: child.stdin.take(),
            child,
            stdout: None,
            readers: vec![collect(stdout, &lines, None), collect(stderr, &lines, None)],
            lines,
        })
    }

    /// Role as which the process was started.
    pub fn role(&self) -> &'static str {
        self.role
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Sends a signal. Has no effect if the process has exited.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, signal);
        }
    }

    /// Writes a newline to an interactive program. Has no effect if it has exited.
    pub fn press_enter(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(b"\n");
        }
    }

    /// Waits for the process to exit with any status; `None` if it is still running at `deadline`.
    pub fn wait(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(TICK),
                _ => return None,
            }
        }
    }

    /// The exit status; `None` while the process runs.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.wait(Instant::now())
    }

    /// Returns `true` once it has exited. Does not reap it, so [`Process::cpu_time`] remains available.
    pub fn has_ended(&self) -> bool {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        // If the process is no longer a child, it has been reaped.
        self.pid()
            .is_none_or(|pid| !matches!(waitid(WaitId::Pid(pid), peek), Ok(None)))
    }

    /// Exit status, if the process has exited. Like [`Process::has_ended`], does not reap the process.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let exit = waitid(WaitId::Pid(self.pid()?), peek).ok().flatten()?;
        let signal = || exit.terminating_signal().unwrap_or_default();
        let status = exit.exit_status().map_or_else(signal, |code| code << 8);
        Some(ExitStatus::from_raw(status))
    }

    /// Waits until it has exited, or until `deadline`, without reaping it.
    pub fn wait_for_end(&self, deadline: Instant) {
        while !self.has_ended() && Instant::now() < deadline {
            std::thread::sleep(TICK);
        }
    }

    /// Waits until a SIGSTOP has taken effect; `false` if the process has not stopped by `deadline`, or has exited.
    pub fn wait_until_stopped(&self, deadline: Instant) -> bool {
        let path = format!("/proc/{}/stat", self.id());
        while !fs::read_to_string(&path).is_ok_and(|stat| is_stopped(&stat)) {
            if self.has_ended() || Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(TICK);
        }
        true
    }

    /// Waits until the process listens on a TCP port of its network namespace, without connecting: a target serves only one client.
    /// `interrupted` cancels the wait.
    ///
    /// # Errors
    ///
    /// The process has exited, has not listened within `limit`, or the wait was interrupted.
    pub fn wait_until_listening(
        &self,
        port: u16,
        limit: Duration,
        interrupted: impl Fn() -> bool,
    ) -> Result<(), NotReady> {
        let given_up = || self.has_ended() || interrupted();
        let net = format!("/proc/{}/net", self.id());
        if wait_for_listener_in(net.as_ref(), port, Instant::now() + limit, given_up)? {
            return Ok(());
        }
        Err(self.not_ready(limit, interrupted))
    }

    /// Reason why a process has not become ready.
    pub(crate) fn not_ready(&self, limit: Duration, interrupted: impl Fn() -> bool) -> NotReady {
        match self.exit_status() {
            Some(status) => NotReady::Exited(status),
            None if interrupted() => NotReady::Interrupted,
            None => NotReady::TimedOut(limit),
        }
    }

    /// User and system CPU time of all threads so far, including exited ones. `None` once the process has been reaped.
    pub fn cpu_time(&self) -> Option<Duration> {
        let pid = nix::unistd::Pid::from_raw(self.pid()?.as_raw_nonzero().get());
        let time = clock_getcpuclockid(pid).and_then(clock_gettime).ok()?;
        Some(time.into())
    }

    /// Last lines of standard error so far, each preceded by a newline and four spaces.
    pub fn stderr(&self) -> String {
        self.lines.indented()
    }

    /// Last captured lines: of standard error, or of both outputs of an interactive program.
    pub fn lines(&self) -> Vec<String> {
        self.lines.all()
    }

    /// Number of captured lines so far, including dropped ones.
    pub fn line_count(&self) -> usize {
        self.lines.count()
    }

    /// Time since the last captured line; `None` before the first.
    pub fn quiet_for(&self) -> Option<Duration> {
        self.lines.quiet_for()
    }

    /// Waits for a captured line for which `parse` returns a value, starting with line number `from`. `None` after
    /// `timeout`, or if the output has ended.
    pub fn find_line<T>(
        &self,
        from: usize,
        timeout: Duration,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        self.lines.find(from, timeout, parse).ok()
    }

    /// Number of captured lines that report an event for which `is_counted` returns `true`.
    pub fn count_events(&self, is_counted: impl Fn(LogEvent<'_>) -> bool) -> usize {
        let lines = self.lines.all();
        let events = lines.iter().filter_map(|line| LogEvent::parse(line));
        events.filter(|event| is_counted(*event)).count()
    }

    pub fn has_logged(&self, event: LogEvent<'_>) -> bool {
        self.count_events(|logged| logged == event) != 0
    }

    /// Waits until this number of captured lines report the event.
    ///
    /// # Errors
    ///
    /// The output has ended, or `deadline` has passed. The process is not terminated.
    pub fn wait_for_event(
        &self,
        event: LogEvent<'_>,
        times: usize,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let mut count = 0;
        let is_last = |line: &str| {
            count += usize::from(LogEvent::parse(line) == Some(event));
            (count >= times).then_some(())
        };
        self.wait_for_line(deadline, is_last, || {
            format!("has not logged {event:?} {times} times")
        })
    }

    /// Waits until a run shows that it has completed more operations than it had shown before the call.
    ///
    /// # Errors
    ///
    /// As [`wait_for_event`](Self::wait_for_event).
    pub fn wait_for_io(&self, deadline: Instant) -> Result<(), Failure> {
        let operations = |line: &str| match LogEvent::parse(line) {
            Some(LogEvent::Progress { operations }) => operations,
            _ => 0,
        };
        let lines = self.lines.all();
        let before = lines.iter().map(|line| operations(line)).max();
        let before = before.unwrap_or(0);
        let is_later = |line: &str| (operations(line) > before).then_some(());
        self.wait_for_line(deadline, is_later, || {
            format!("has not completed more than {before} operations")
        })
    }

    /// Waits for a captured line for which `find` returns a value. `what` describes the missing one.
    fn wait_for_line<T>(
        &self,
        deadline: Instant,
        find: impl FnMut(&str) -> Option<T>,
        what: impl Fn() -> String,
    ) -> Result<T, Failure> {
        let timeout = deadline.saturating_duration_since(Instant::now());
        self.lines.find(0, timeout, find).map_err(|_| Failure {
            role: self.role,
            what: what(),
            stderr: self.stderr(),
        })
    }

    /// Waits until `find` returns a value for the last lines of standard error. `what` describes it in the error.
    ///
    /// # Errors
    ///
    /// The process has exited, or `deadline` has passed. The process is not terminated.
    pub fn wait_for_output<T>(
        &self,
        what: &str,
        deadline: Instant,
        find: impl Fn(&str) -> Option<T>,
    ) -> Result<T, String> {
        loop {
            let status = self.exit_status();
            if let Some(found) = find(&self.stderr()) {
                return Ok(found);
            }
            if let Some(status) = status {
                return Err(format!("{} exited ({status}) before {what}", self.role));
            }
            if Instant::now() >= deadline {
                return Err(format!("timed out waiting for {}: {what}", self.role));
            }
            std::thread::sleep(TICK);
        }
    }

    /// Waits for a line of standard error for which `parse` returns a value. `what` completes "it has not ..." in the error.
    ///
    /// # Errors
    ///
    /// `timeout` has passed, or the process has exited; it is terminated.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        timeout: Duration,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Failure> {
        match self.lines.find(0, timeout, parse) {
            Ok(found) => Ok(found),
            Err(NoLine::Ended) => {
                let status = self
                    .child
                    .wait()
                    .map_or_else(|error| error.to_string(), |status| status.to_string());
                Err(self.failure(format!("exited ({status}) before it {what}")))
            }
            Err(NoLine::TimedOut) => {
                Err(self.failure(format!("has not {what} within {timeout:?}")))
            }
        }
    }

    /// Waits for the process to exit with status 0 and returns its standard output.
    ///
    /// # Errors
    ///
    /// The process failed, is still running at `deadline`, or `interrupted` returned `true`; in the last two cases it is terminated.
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
                    return Err(self.failure("has not exited in time".to_owned()));
                }
                Ok(None) => std::thread::sleep(TICK),
                Err(error) => return Err(self.failure(format!("cannot be waited for: {error}"))),
            }
        }
    }

    /// Waits until all output of a process that has exited is captured, for at most `limit`: its children may keep the
    /// pipes open longer.
    pub fn drain(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let is_drained = || {
            self.readers.iter().all(JoinHandle::is_finished)
                && self.stdout.as_ref().is_none_or(JoinHandle::is_finished)
        };
        while !is_drained() && Instant::now() < deadline {
            std::thread::sleep(TICK);
        }
    }

    /// Standard output, and the last lines of standard error. Terminates a process that is still running.
    pub fn into_output(mut self) -> (String, String) {
        self.end();
        let stdout = self.take_stdout();
        self.join_readers();
        (stdout, self.lines.text())
    }

    /// Exit status and output. Terminates a process that is still running.
    pub fn into_exit(mut self) -> Exit {
        let (role, status) = (self.role, self.status());
        let (stdout, stderr) = self.into_output();
        Exit {
            role,
            status,
            stdout,
            stderr,
        }
    }

    /// As [`Process::into_exit`], with SIGKILL, the only signal that also terminates a stopped process.
    pub fn kill_into_exit(mut self) -> Exit {
        let status = self.status();
        if status.is_none() {
            self.signal(Signal::KILL);
            self.wait(Instant::now() + REAPED);
        }
        Exit {
            status,
            ..self.into_exit()
        }
    }

    /// Waits for the exit, and then until the output is captured, for at most `drain`.
    ///
    /// # Errors
    ///
    /// The process is still running after `limit`, and is terminated; or it has [crashed](Exit::crash).
    pub fn expect_exit(mut self, limit: Duration, drain: Duration) -> Result<Exit, Failure> {
        if self.wait(Instant::now() + limit).is_none() {
            return Err(self.failure("has not exited in time".to_owned()));
        }
        self.drain(drain);
        // Children that hold the pipes are not waited for any longer.
        self.readers.retain(JoinHandle::is_finished);
        self.stdout.take_if(|reader| !reader.is_finished());
        let exit = self.into_exit();
        match exit.crash() {
            None => Ok(exit),
            Some(what) => Err(Failure {
                role: exit.role,
                what,
                stderr: indented(exit.stderr.lines()),
            }),
        }
    }

    /// Terminates it, and returns a failure with its standard error.
    pub fn failed(mut self, what: &str) -> Failure {
        self.failure(what.to_owned())
    }

    fn take_stdout(&mut self) -> String {
        self.stdout
            .take()
            .and_then(|reader| reader.join().ok())
            .unwrap_or_default()
    }

    fn failure(&mut self, what: String) -> Failure {
        self.end();
        self.join_readers();
        Failure {
            role: self.role,
            what,
            stderr: self.lines.indented(),
        }
    }

    fn join_readers(&mut self) {
        for reader in self.readers.drain(..) {
            // Lines captured before a panic of the reader are kept.
            let _ = reader.join();
        }
    }

    fn end(&mut self) {
        if self.status().is_some() {
            return;
        }
        self.signal(Signal::TERM);
        if self.wait(Instant::now() + GRACE).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.role, self.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn start(role: &'static str, command: &mut Command) -> Result<Child, Failure> {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Failure {
            role,
            what: format!(
                "{} could not be started: {error}",
                command.get_program().display()
            ),
            stderr: String::new(),
        })
}

/// Returns `true` if the state, field 3 of `/proc/PID/stat`, is "stopped". It follows the name in parentheses, which
/// may contain any character.
fn is_stopped(stat: &str) -> bool {
    stat.rsplit_once(')')
        .is_some_and(|(_, fields)| fields.trim_start().starts_with('T'))
}

/// Reads lines until the end of `source`.
fn collect(
    source: impl Read + Send + 'static,
    lines: &Arc<Lines>,
    mut log: Option<File>,
) -> JoinHandle<()> {
    let lines = Arc::clone(lines);
    std::thread::spawn(move || {
        for line in BufReader::new(source).split(b'\n').map_while(Result::ok) {
            if let Some(log) = &mut log {
                // An incomplete log is not an error here.
                let _ = log.write_all(&[&line[..], b"\n"].concat());
            }
            lines.push(String::from_utf8_lossy(&line).into_owned());
        }
        lines.end();
    })
}

/// Last lines captured by reader threads.
struct Lines {
    limit: usize,
    state: Mutex<LinesState>,
    changed: Condvar,
}

struct LinesState {
    lines: VecDeque<String>,
    /// Number of dropped lines before `lines`; line numbers include them.
    dropped: usize,
    last: Option<Instant>,
    /// Number of readers that may still add lines.
    readers: usize,
}

/// Reason why [`Lines::find`] found no line.
enum NoLine {
    Ended,
    TimedOut,
}

impl Lines {
    fn keeping(limit: usize, readers: usize) -> Self {
        Self {
            limit,
            state: Mutex::new(LinesState {
                lines: VecDeque::new(),
                dropped: 0,
                last: None,
                readers,
            }),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, LinesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: String) {
        let mut state = self.state();
        state.last = Some(Instant::now());
        state.lines.push_back(line);
        if state.lines.len() > self.limit {
            state.lines.pop_front();
            state.dropped += 1;
        }
        self.changed.notify_all();
    }

    fn end(&self) {
        self.state().readers -= 1;
        self.changed.notify_all();
    }

    fn count(&self) -> usize {
        let state = self.state();
        state.dropped + state.lines.len()
    }

    fn quiet_for(&self) -> Option<Duration> {
        self.state().last.map(|last| last.elapsed())
    }

    fn find<T>(
        &self,
        from: usize,
        timeout: Duration,
        mut parse: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, NoLine> {
        let deadline = Instant::now() + timeout;
        let mut state = self.state();
        let mut next = from;
        loop {
            let skip = next.max(state.dropped) - state.dropped;
            if let Some(found) = state.lines.iter().skip(skip).find_map(|line| parse(line)) {
                return Ok(found);
            }
            next = next.max(state.dropped + state.lines.len());
            if state.readers == 0 {
                return Err(NoLine::Ended);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NoLine::TimedOut);
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn all(&self) -> Vec<String> {
        self.state().lines.iter().cloned().collect()
    }

    fn text(&self) -> String {
        let state = self.state();
        state.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    fn indented(&self) -> String {
        indented(self.state().lines.iter().map(String::as_str))
    }
}

/// Each line preceded by a newline and four spaces.
fn indented<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.map(|line| format!("\n    {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Process::spawn("target", command).expect("a shell")
    }

    fn default_deadline() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn output_and_lines_are_captured() {
        let mut process = shell("echo port=17 >&2; echo result");
        let port = process.wait_for("said its port", Duration::from_secs(10), |line| {
            line.strip_prefix("port=").map(str::to_owned)
        });
        assert_eq!(port.expect("the line"), "17");
        assert_eq!(
            process
                .finish(default_deadline(), || false)
                .expect("success"),
            "result\n"
        );
    }

    #[test]
    fn lines_are_found_from_a_position_and_logged() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo one >&2; echo two >&2; echo one >&2; read line"]);
        let log = File::create(&path).expect("a file");
        let process = Process::spawn_logged("target", command, log).expect("a shell");
        let one = |line: &str| (line == "one").then_some(());
        let long = Duration::from_secs(10);
        assert_eq!(process.find_line(1, long, one), Some(()));
        assert_eq!(process.line_count(), 3);
        process.wait_for_end(default_deadline());
        assert!(process.has_ended());
        assert_eq!(process.find_line(3, long, one), None);
        let log = std::fs::read_to_string(&path).expect("a log");
        assert_eq!(log, "one\ntwo\none\n");
    }

    #[test]
    fn events_are_counted_and_waited_for() {
        let process = shell("for n in 1 2 2; do echo session $n has completed >&2; done");
        let second = LogEvent::SessionCompleted(2);
        process
            .wait_for_event(second, 2, default_deadline())
            .expect("two lines");
        assert!(process.has_logged(LogEvent::SessionCompleted(1)));
        assert_eq!(process.count_events(|event| event == second), 2);
        assert!(!process.has_logged(LogEvent::SessionFailed(1)));
        // The output has ended, so it does not wait until the deadline.
        let missing = process.wait_for_event(second, 3, default_deadline());
        assert_eq!(missing.expect_err("two lines only").role, "target");
    }

    #[test]
    fn failure_contains_the_output_of_the_role() {
        let status = |code: i32| ExitStatus::from_raw(code << 8).to_string();
        let failure = shell("echo reason >&2; exit 3")
            .finish(default_deadline(), || false)
            .expect_err("fails");
        assert_eq!(failure.role, "target");
        assert!(failure.what.contains(&status(3)), "{failure}");
        assert_eq!(failure.stderr.trim(), "reason");
        let mut process = shell("exit 0");
        let failure = process
            .wait_for("event", Duration::from_secs(10), |_| None::<()>)
            .expect_err("ends");
        let what = [&*status(0), "event"];
        assert!(what.iter().all(|it| failure.what.contains(it)), "{failure}");
    }

    #[test]
    fn all_output_is_captured_after_exit() {
        let mut process = shell("echo result; echo reason >&2; exit 3");
        assert_eq!(
            process
                .wait(default_deadline())
                .and_then(|status| status.code()),
            Some(3)
        );
        let output = process.into_output();
        assert_eq!(output, ("result\n".to_owned(), "reason\n".to_owned()));
    }

    #[test]
    fn cpu_time_is_available_until_the_exit_status_is_taken() {
        let process = shell("i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done");
        process.wait_for_end(default_deadline());
        assert!(process.cpu_time() > Some(Duration::ZERO));
        assert!(process.exit_status().is_some_and(|it| it.success()));
        assert!(process.cpu_time() > Some(Duration::ZERO), "not reaped yet");
        let mut process = process;
        assert!(process.status().is_some());
        assert_eq!(process.cpu_time(), None);
    }

    #[test]
    fn dropped_process_is_killed() {
        let process = shell("exec sleep 1000");
        let pid = process.pid().expect("a pid");
        assert_eq!(process.exit_status(), None);
        drop(process);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
