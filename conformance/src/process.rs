//! One role as a process of its own, with its output captured.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process, waitid};

pub use rustix::process::Signal;

/// Lines of a role's standard error that are kept to explain a failure.
const KEPT_LINES: usize = 200;
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

#[derive(Default)]
struct Lines {
    state: Mutex<LinesState>,
    changed: Condvar,
}

#[derive(Default)]
struct LinesState {
    lines: VecDeque<String>,
    /// Matches of what [`Process::wait_for`] looks for must not be missed because a line was dropped.
    dropped: usize,
    ended: bool,
}

impl Process {
    /// Starts `command` as `role`, with its output captured.
    ///
    /// # Errors
    ///
    /// The program could not be started.
    pub fn spawn(role: &'static str, mut command: Command) -> Result<Self, Failure> {
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

    /// CPU time of all its threads so far, in user and in kernel mode, in steps of a clock tick (10 ms). `None` once its end has
    /// been taken.
    pub fn cpu_time(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        cpu_time_of(&stat, rustix::param::clock_ticks_per_second())
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
        match self.lines.find(timeout, parse) {
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

/// User and system time from a line of `/proc/PID/stat`: fields 14 and 15, of which the second may hold anything in parentheses.
fn cpu_time_of(stat: &str, ticks_per_second: u64) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let ticks = next()? + next()?;
    Some(Duration::from_secs(ticks) / u32::try_from(ticks_per_second).ok()?)
}

enum Wait {
    Ended,
    TimedOut,
}

impl Lines {
    fn push(&self, line: String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.lines.push_back(line);
        if state.lines.len() > KEPT_LINES {
            state.lines.pop_front();
            state.dropped += 1;
        }
        self.changed.notify_all();
    }

    fn end(&self) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ended = true;
        self.changed.notify_all();
    }

    fn find<T>(&self, timeout: Duration, parse: impl Fn(&str) -> Option<T>) -> Result<T, Wait> {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut looked_at = 0;
        loop {
            let skip = looked_at.max(state.dropped) - state.dropped;
            if let Some(found) = state.lines.iter().skip(skip).find_map(|line| parse(line)) {
                return Ok(found);
            }
            looked_at = state.dropped + state.lines.len();
            if state.ended {
                return Err(Wait::Ended);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Wait::TimedOut);
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn text(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    fn indented(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state
            .lines
            .iter()
            .map(|line| format!("\n    {line}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Process::spawn("target", command).expect("a shell")
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn output_and_lines_are_captured() {
        let mut process = shell("echo ready on 17 >&2; echo result");
        let port = process.wait_for("said its port", Duration::from_secs(10), |line| {
            line.strip_prefix("ready on ").map(str::to_owned)
        });
        assert_eq!(port.expect("the line"), "17");
        assert_eq!(
            process.finish(soon(), || false).expect("success"),
            "result\n"
        );
    }

    #[test]
    fn a_failure_carries_what_the_role_said() {
        let failure = shell("echo the reason >&2; exit 3")
            .finish(soon(), || false)
            .expect_err("fails");
        let text = failure.to_string();
        assert!(
            text.contains("target: failed") && text.contains("the reason"),
            "{text}"
        );
        let mut process = shell("exit 0");
        let failure = process
            .wait_for("was ready", Duration::from_secs(10), |_| None::<()>)
            .expect_err("ends");
        assert!(
            failure.to_string().contains("before it was ready"),
            "{failure}"
        );
    }

    #[test]
    fn all_output_is_there_after_the_end() {
        let mut process = shell("echo result; echo reason >&2; exit 3");
        assert_eq!(
            process.wait(soon()).and_then(|status| status.code()),
            Some(3)
        );
        let output = process.into_output();
        assert_eq!(output, ("result\n".to_owned(), "reason\n".to_owned()));
    }

    #[test]
    fn cpu_time_is_there_until_the_end_is_taken() {
        let stat = "17 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0";
        assert_eq!(cpu_time_of(stat, 100), Some(Duration::from_secs(2)));
        let mut process = shell("i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done");
        process.wait_for_end(soon());
        assert!(process.cpu_time() > Some(Duration::ZERO));
        assert!(process.has_ended());
        assert_eq!(process.cpu_time(), None);
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let process = shell("exec sleep 1000");
        let pid = process.pid().expect("a pid");
        drop(process);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
