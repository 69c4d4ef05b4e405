//! The role under attack and its targets, and the measurements: service to another client, and resources as the operating system reports
//! them.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deployment::implementation::{Implementation, Layout, Role};
use deployment::port::listeners_of;
use deployment::process::Process;
use deployment::sandbox::{HOST_DEVICE, Sandbox};
use deployment::{Deployment, Part, Resources};
use doca::Device;
use wire::control::Payload;

use super::endurance::SessionLock;
use super::network::KEY;
use super::raw::ControlEndpoint;
use crate::faults::relay::FaultyLine;
use crate::role;
use crate::role::{ComchPeer, ControlPeer as _, TcpPeer};
use crate::violation::Violation;

/// Timeout flags in seconds: the role disconnects a peer that is late with an answer or an I/O, or that sends nothing.
const TIMEOUT: &str = "2";
/// Time limit for programs to start.
const START: Duration = Duration::from_secs(20);
/// Time after which another client stops waiting for service.
const SERVICE: Duration = Duration::from_secs(30);

/// The role under attack.
pub(super) struct Server {
    role: Role,
    /// If the role under attack is a target, it is the first target.
    roles: Deployment,
    device: Device,
    /// Control connections between a service and its targets.
    line: Option<FaultyLine>,
    session_lock: SessionLock,
}

impl Server {
    /// Starts the role in the runtime directory of this process.
    pub(super) fn start(role: Role, implementation: &Implementation) -> Result<Self, Violation> {
        let sandbox = Sandbox::shared()?;
        let key = sandbox.file("key", KEY)?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
        let layout = match role {
            Role::GgaOffload => Layout::Gga,
            _ => Layout::ZeroCopy,
        };
        let mut roles = Deployment::new(sandbox, layout, START)?;
        let command = |role, flags: &[&str]| -> Result<Command, Violation> {
            let mut command = implementation.command(role)?;
            command
                .args(["--cpu", "0", "--idle-timeout", TIMEOUT])
                .args(["--sessions", "forever"])
                .args(flags)
                // The role also listens on the network; peers on this machine still use shared memory.
                .env("SOFTDOCA_ADDRESS", "127.0.0.1")
                .env("SOFTDOCA_KEY_FILE", &key);
            Ok(command)
        };
        for target in 0..roles.targets() {
            let address = ["--listen-address", "127.0.0.1"];
            let sizes = ["--block-count", "64", "--block-size", "4096"];
            let command = command(Role::Target, &[&address[..], &sizes].concat())?;
            roles.set_command(Part::Target(target), command);
        }
        let mut line = None;
        if role != Role::Target {
            let timeouts = ["--control-timeout", TIMEOUT, "--io-timeout", TIMEOUT];
            let flags = [&timeouts[..], &["--output", "json"]].concat();
            roles.set_command(Part::Service, command(role, &flags)?);
            let relay = FaultyLine::start(roles.ports())?;
            roles.reach_targets_at(layout, relay.ports().to_vec());
            line = Some(relay);
        }
        roles.start_all()?;
        Ok(Self {
            role,
            device: Device::open(HOST_DEVICE)?,
            roles,
            line,
            session_lock: SessionLock::default(),
        })
    }

    pub(super) fn runtime(&self) -> &Path {
        self.roles.sandbox.runtime()
    }

    /// Control connections between a service and its targets.
    pub(super) fn line(&self) -> io::Result<&FaultyLine> {
        let none = || io::Error::other("only a service has targets");
        self.line.as_ref().ok_or_else(none)
    }

    pub(super) fn session_lock(&self) -> &SessionLock {
        &self.session_lock
    }

    /// Endpoint on which the role accepts clients.
    pub(super) fn endpoint(&self) -> ControlEndpoint {
        match self.role {
            Role::Target => ControlEndpoint::Tcp(self.roles.ports()[0]),
            _ => ControlEndpoint::Comch {
                runtime: self.roles.sandbox.runtime().to_owned(),
                channel: self.roles.sandbox.channel().to_owned(),
            },
        }
    }

    pub(super) fn is_service(&self) -> bool {
        self.role != Role::Target
    }

    fn process(&self) -> &Process {
        let part = match self.role {
            Role::Target => Part::Target(0),
            _ => Part::Service,
        };
        self.roles.process(part).expect("started with the server")
    }

    /// Address on which the role listens for peers on other machines, if it does.
    pub(super) fn listens(&self) -> io::Result<Option<SocketAddr>> {
        let mut listeners = listeners_of(self.process().id())?;
        listeners.retain(|address| !self.roles.ports().contains(&address.port()));
        Ok(listeners.first().copied())
    }

    pub(super) fn resources(&self) -> Result<Resources, Violation> {
        Ok(Resources::of(self.process().id())?)
    }

    pub(super) fn lines(&self) -> usize {
        self.process().line_count()
    }

    /// Name of the first program that has exited, which is an error.
    pub(super) fn ended(&self) -> Option<&'static str> {
        let mut started = self.roles.started().into_iter();
        let ended = started.find_map(|part| self.roles.process(part).filter(|it| it.has_ended()));
        ended.map(Process::role)
    }

    /// Last lines of the attacked program's log.
    pub(super) fn log(&self) -> String {
        self.process().stderr()
    }

    /// Measures the time until the query of another client is answered.
    pub(super) fn serve_another(&self) -> Result<Duration, Violation> {
        let begin = Instant::now();
        loop {
            match self.query() {
                Ok(()) => return Ok(begin.elapsed()),
                Err(violation) if begin.elapsed() > SERVICE || self.ended().is_some() => {
                    return Err(Violation::new(format!(
                        "another client is not served within {:.1} s: {violation}",
                        begin.elapsed().as_secs_f64()
                    )));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn query(&self) -> Result<(), Violation> {
        const ANSWER: Duration = Duration::from_secs(5);
        let query = wire::control::Message {
            message_id: 3,
            correlation_id: 3,
            payload: Payload::QueryStorageRequest,
        };
        let answer = match self.endpoint() {
            ControlEndpoint::Tcp(port) => TcpPeer::connect(port)?.ask(&query, ANSWER)?,
            ControlEndpoint::Comch { channel, .. } => {
                ComchPeer::connect(&self.device, &channel, ANSWER)?.ask(&query, ANSWER)?
            }
        };
        match answer {
            Payload::QueryStorageResponse(_) => Ok(()),
            other => Err(Violation::expected(
                "query_storage_response",
                other.message_type(),
            )),
        }
    }
}

// The well-behaved client of a role under attack, in a separate process so that attacks do not delay it.
//
// The client runs a session for each byte on its standard input, and answers with a line: `completed`, `refused` if the role served another
// session, or `failed` and the reason.

/// Limit of each step of a session.
pub(super) const SESSION: Duration = Duration::from_secs(30);
/// Number of blocks written and read back in a session.
const ROUNDS: usize = 4;
/// Pause between sessions, in which an attack can start a session.
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
    /// Starts the client in a separate process group, so that an interrupt from the terminal does not end it before the
    /// run.
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
    /// Number of sessions that the client may complete before it waits for a higher number. `usize::MAX`: no limit.
    pub(super) allowed: AtomicUsize,
    completed: AtomicUsize,
    failed: Mutex<Vec<String>>,
    /// Longest time from the first attempt to the completion of a session.
    longest_wait: Mutex<Duration>,
}

impl Client {
    /// Runs sessions one after the other until stopped, or until the process exits, which is a failure.
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

    /// Waits until `wanted` sessions have completed, and returns the time that this took.
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

    /// A client whose program is a shell script.
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
