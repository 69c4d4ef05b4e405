//! The well-behaved client of a role under attack, in a process of its own: the attacks of this process do not delay it.
//!
//! The client runs a session for each byte on its standard input, and answers with a line: `completed`, `refused` if the role served another
//! session, or `failed` and the reason.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::endurance::SessionLock;
use crate::role::{self, Violation};

/// Limit of each step of a session.
pub(super) const SESSION: Duration = Duration::from_secs(30);
/// Blocks that are written and read back in a session.
const ROUNDS: usize = 4;
/// Pause between sessions, in which an attack can begin a session of its own.
const PAUSE: Duration = Duration::from_millis(5);

/// Endpoint of the role that the client uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEndpoint {
    /// TCP port of a target on this machine.
    Target(u16),
    /// Comch server name of a service, in the runtime directory of the client's process.
    Service(String),
}

impl ClientEndpoint {
    /// Serves as the client's process until standard input is closed.
    ///
    /// # Errors
    ///
    /// Standard input or output cannot be used.
    pub fn run(&self) -> io::Result<()> {
        let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout().lock());
        while stdin.read(&mut [0])? > 0 {
            let mut begun = false;
            let session = match self {
                Self::Target(port) => role::target::run_session(*port, ROUNDS, SESSION, &mut begun),
                Self::Service(name) => {
                    role::service::run_session(name, ROUNDS, SESSION, &mut begun)
                }
            };
            match session {
                Ok(()) => writeln!(stdout, "completed")?,
                Err(violation) if begun => {
                    writeln!(
                        stdout,
                        "failed {}",
                        violation.to_string().replace('\n', "; ")
                    )?;
                }
                Err(_) => writeln!(stdout, "refused")?,
            }
            stdout.flush()?;
        }
        Ok(())
    }
}

/// Result of a session of the client.
enum Session {
    Completed,
    Refused,
    Failed(String),
}

/// The client's process, killed when dropped.
pub(super) struct ClientProcess {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl ClientProcess {
    /// Starts the client. It is in a process group of its own, so that an interrupt from the terminal does not end it before the run.
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::other("the client has no pipes");
        Ok(Self {
            stdin: child.stdin.take().ok_or_else(missing)?,
            stdout: BufReader::new(child.stdout.take().ok_or_else(missing)?),
            child,
        })
    }

    fn session(&mut self) -> io::Result<Session> {
        self.stdin.write_all(b"\n")?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        match line.trim_end().split_once(' ') {
            Some(("failed", reason)) => Ok(Session::Failed(reason.to_owned())),
            None if line == "completed\n" => Ok(Session::Completed),
            None if line == "refused\n" => Ok(Session::Refused),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("expected the result of a session from the client, got {line:?}"),
            )),
        }
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        // Killing fails only for a process that has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Control and results of the client, shared with the thread that runs its sessions.
#[derive(Default)]
pub(super) struct Client {
    pub(super) stop: AtomicBool,
    /// Number of sessions after which the client waits until it is raised. `usize::MAX` for no limit.
    pub(super) allowed: AtomicUsize,
    completed: AtomicUsize,
    failed: Mutex<Vec<String>>,
    /// From the first attempt to the completion of a session.
    longest_wait: Mutex<Duration>,
}

impl Client {
    /// Runs sessions one after the other until it is stopped or the process ends, which is a failure.
    pub(super) fn run(&self, process: &mut ClientProcess, session_lock: &SessionLock) {
        let mut begin = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            if self.completed() >= self.allowed.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                begin = Instant::now();
                continue;
            }
            let entered = session_lock.enter();
            let session = process.session();
            drop(entered);
            match session {
                Ok(Session::Completed) => {
                    let mut longest = lock(&self.longest_wait);
                    *longest = longest.max(begin.elapsed());
                    drop(longest);
                    self.completed.fetch_add(1, Ordering::Relaxed);
                    begin = Instant::now();
                }
                Ok(Session::Failed(reason)) => {
                    lock(&self.failed).push(reason);
                    begin = Instant::now();
                }
                Ok(Session::Refused) => {}
                Err(error) => {
                    lock(&self.failed).push(format!("the client's process has ended: {error}"));
                    return;
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    pub(super) fn completed(&self) -> usize {
        self.completed.load(Ordering::Relaxed)
    }

    /// Failed sessions, oldest first.
    pub(super) fn failed(&self) -> MutexGuard<'_, Vec<String>> {
        lock(&self.failed)
    }

    pub(super) fn longest_wait(&self) -> Duration {
        *lock(&self.longest_wait)
    }

    /// Waits until `wanted` sessions have completed, and returns how long that took.
    pub(super) fn wait_for(&self, wanted: usize, timeout: Duration) -> Result<Duration, Violation> {
        let begin = Instant::now();
        while self.completed() < wanted {
            if begin.elapsed() > timeout {
                return Err(Violation::expected(
                    format!("the client to be served within {timeout:?} after the attack"),
                    "no session",
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(begin.elapsed())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::Ordering;

    use super::{Client, ClientProcess, SessionLock};

    /// A client in whose place `script` runs in a shell.
    fn run(script: &str) -> Client {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut process = ClientProcess::start(command).expect("starts");
        let client = Client::default();
        client.allowed.store(2, Ordering::Relaxed);
        client.run(&mut process, &SessionLock::default());
        client
    }

    #[test]
    fn process_that_ends_is_a_failure() {
        let client = run("read x; echo completed; read x; exit 0");
        assert_eq!(client.completed(), 1);
        assert_eq!(client.failed().len(), 1);
    }

    #[test]
    fn refused_sessions_do_not_count() {
        let client =
            run("read x; echo refused; read x; echo failed I/O; read x; echo completed; read x");
        assert_eq!(client.completed(), 1);
        assert_eq!(client.failed()[0], "I/O");
        assert_eq!(client.failed().len(), 2);
    }

    #[test]
    fn other_output_is_a_failure() {
        assert_eq!(run("read x; echo complete").failed().len(), 1);
    }
}
