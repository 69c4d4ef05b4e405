//! The processes of one session, and their command lines.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use conformance::process::{Failure, Process};
use role_common::shutdown::Shutdown;
use serde_json::Value;

use super::Error;
use super::content::Content;
use super::plan::{Plan, Run};

/// Time that a role gets to be ready for its peer.
const READY: Duration = Duration::from_secs(20);
/// Time that a whole session may take.
const SESSION: Duration = Duration::from_secs(300);
/// Time that service and target get to end once the initiator has.
const FAREWELL: Duration = Duration::from_secs(15);

/// Devices of the built-in topology: the DPU's, and the host's as both sides see it.
const DPU_DEVICE: &str = "03:00.0";
const HOST_DEVICE: &str = "3b:00.0";

/// What the roles of one session reported.
#[derive(Debug)]
pub struct Session {
    pub initiator: Value,
    pub service: Value,
    pub target: Value,
}

/// Starts sessions in a private runtime directory.
pub struct Deployment<'a> {
    program: PathBuf,
    plan: &'a Plan,
    content: &'a Content,
    runtime: PathBuf,
    cpus: Cpus,
    shutdown: Shutdown,
}

impl<'a> Deployment<'a> {
    pub fn new(
        plan: &'a Plan,
        content: &'a Content,
        directory: &Path,
        shutdown: Shutdown,
    ) -> Result<Self, Error> {
        Ok(Self {
            program: std::env::current_exe().map_err(Error::io("find this program"))?,
            plan,
            content,
            runtime: directory.join("run"),
            cpus: Cpus::allowed()?,
            shutdown,
        })
    }

    /// The user has asked to end.
    pub fn interrupted(&self) -> bool {
        self.shutdown.is_requested()
    }

    /// Runs one session to its end. The reference's roles serve one session, so each run has its own processes.
    pub fn run(&self, run: &Run) -> Result<Session, Failure> {
        let lines = self.lines();
        let deadline = Instant::now() + SESSION;

        let mut target = Process::spawn("target", self.command(&lines.target(0, true)))?;
        let port: u16 = target.wait_for("was listening", READY, listening_port)?;
        let mut service = Process::spawn("service", self.command(&lines.service(port, true)))?;
        service.wait_for("was waiting for an initiator", READY, waits_for_initiator)?;
        let initiator = Process::spawn("initiator", self.command(&lines.initiator(run, true)))?;

        let initiator = initiator.finish(deadline, || self.interrupted());
        let farewell = Instant::now() + FAREWELL;
        let service = service.finish(farewell, || self.interrupted());
        let target = target.finish(farewell, || self.interrupted());
        match (initiator, service, target) {
            (Ok(initiator), Ok(service), Ok(target)) => Ok(Session {
                initiator: document("initiator", &initiator)?,
                service: document("service", &service)?,
                target: document("target", &target)?,
            }),
            (initiator, service, target) => {
                let failures: Vec<Failure> = [initiator, service, target]
                    .into_iter()
                    .filter_map(Result::err)
                    .collect();
                Err(Failure::all(failures))
            }
        }
    }

    /// Everything that the sessions left in the runtime directory.
    pub fn leftovers(&self) -> Result<Vec<PathBuf>, Error> {
        let entries = match std::fs::read_dir(&self.runtime) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(Error::Io {
                    what: self.runtime.display().to_string(),
                    error,
                });
            }
        };
        entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(Error::io(self.runtime.display().to_string()))
    }

    /// Starts a target and a service once more and leaves them running. Their logs go to `directory`, which has to stay.
    pub fn keep(&self, directory: &Path) -> Result<Kept, Error> {
        // The port is chosen here, so that the printed command line is the one that runs.
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))
            .and_then(|listener| listener.local_addr())
            .map_err(Error::io("a free port"))?
            .port();
        let lines = self.lines();
        let (target, service) = (lines.target(port, false), lines.service(port, false));
        let first = self.spawn_detached("target", &target, directory)?;
        let second = self.spawn_detached("service", &service, directory)?;
        Ok(Kept(format!(
            "\nRunning (for one session, logs in {directory}):\n{target}\n{service}\n\
             Start the initiator with:\n{initiator}\n\
             End without one: kill {second} {first}; afterwards: rm -r {quoted_directory}",
            directory = directory.display(),
            quoted_directory = quoted(&directory.to_string_lossy()),
            target = self.shell_line(&target),
            service = self.shell_line(&service),
            initiator = self.shell_line(&lines.initiator(&self.plan.runs().remove(0), false)),
        )))
    }

    /// Starts a role that outlives this program; answers its process id.
    fn spawn_detached(
        &self,
        name: &str,
        arguments: &[OsString],
        directory: &Path,
    ) -> Result<u32, Error> {
        let log = std::fs::File::create(directory.join(format!("{name}.log")))
            .map_err(Error::io("a log file"))?;
        let errors = log.try_clone().map_err(Error::io("a log file"))?;
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        // A group of its own: Ctrl-C in this terminal is not for it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let process = command
            .spawn()
            .map_err(Error::io(format!("start the {name}")))?;
        Ok(process.id())
    }

    /// What a person types to start a role of this deployment.
    fn shell_line(&self, arguments: &[OsString]) -> String {
        let words = std::iter::once(self.program.as_os_str())
            .chain(arguments.iter().map(OsString::as_os_str));
        let words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
        format!(
            "  SOFTDOCA_RUNTIME_DIR={} {}",
            quoted(&self.runtime.to_string_lossy()),
            words.join(" ")
        )
    }

    fn lines(&self) -> CommandLines<'_> {
        CommandLines {
            plan: self.plan,
            content: self.content,
            cpus: &self.cpus,
        }
    }

    fn command(&self, arguments: &[OsString]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("SOFTDOCA_RUNTIME_DIR", &self.runtime);
        command
    }
}

/// A deployment that goes on after the demo has ended: what to tell the user.
pub struct Kept(String);

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The arguments of `doca-storage` for each role.
struct CommandLines<'a> {
    plan: &'a Plan,
    content: &'a Content,
    cpus: &'a Cpus,
}

impl CommandLines<'_> {
    fn target(&self, port: u16, json: bool) -> Vec<OsString> {
        let mut line = Line::new("target", json)
            .with("--device", HOST_DEVICE)
            .with("--listen-port", port);
        line = line
            .with("--block-count", self.plan.block_count)
            .with("--block-size", self.plan.block_size);
        line.with("--binary-content", self.content.path.as_os_str())
            .cpus(self.cpus.of_target(self.plan.workers))
            .0
    }

    fn service(&self, port: u16, json: bool) -> Vec<OsString> {
        Line::new("zero-copy", json)
            .with("--device", DPU_DEVICE)
            .with("--representor", HOST_DEVICE)
            .with("--storage-server", format!("127.0.0.1:{port}"))
            .cpus(self.cpus.of_service(self.plan.workers))
            .0
    }

    fn initiator(&self, run: &Run, json: bool) -> Vec<OsString> {
        let plan = self.plan;
        let mut line = Line::new("initiator", json)
            .with("--device", HOST_DEVICE)
            .with("--execution-strategy", run.strategy)
            .with("--run-limit-operation-count", run.operations)
            .with("--transaction-count", plan.transactions)
            .with("--blocks-per-io", plan.blocks_per_io)
            .with("--local-io-region-size", plan.local_io_region_size);
        if run.plain_content {
            line = line.with("--storage-plain-content", self.content.path.as_os_str());
        }
        line.cpus(self.cpus.of_initiator(plan.workers)).0
    }
}

/// A command line under construction.
struct Line(Vec<OsString>);

impl Line {
    fn new(role: &str, json: bool) -> Self {
        let line = Self(vec![role.into()]);
        // Errors and what the role announces reach the demo; the rest would only be noise.
        if json {
            line.with("--output", "json").with("--log-level", 40)
        } else {
            line
        }
    }

    fn with(mut self, flag: &str, value: impl IntoArgument) -> Self {
        self.0.extend([flag.into(), value.into_argument()]);
        self
    }

    fn cpus(self, cpus: impl Iterator<Item = usize>) -> Self {
        cpus.fold(self, |line, cpu| line.with("--cpu", cpu as u64))
    }
}

trait IntoArgument {
    fn into_argument(self) -> OsString;
}

impl IntoArgument for &std::ffi::OsStr {
    fn into_argument(self) -> OsString {
        self.to_owned()
    }
}

macro_rules! arguments {
    ($($ty:ty)*) => { $(impl IntoArgument for $ty {
        fn into_argument(self) -> OsString {
            self.to_string().into()
        }
    })* };
}
arguments!(&str String u16 u32 u64 i32);

/// The CPUs that this process may use, shared out among the roles.
struct Cpus(Vec<usize>);

impl Cpus {
    fn allowed() -> Result<Self, Error> {
        let set = rustix::thread::sched_getaffinity(None).map_err(|error| Error::Io {
            what: "ask for the allowed CPUs".to_owned(),
            error: error.into(),
        })?;
        Ok(Self(
            (0..rustix::thread::CpuSet::MAX_CPU)
                .filter(|cpu| set.is_set(*cpu))
                .collect(),
        ))
    }

    fn nth(&self, n: u32) -> usize {
        self.0[n as usize % self.0.len()]
    }

    // One pipeline of three workers takes three CPUs. On fewer, the service (which touches no data) shares.
    fn of_initiator(&self, workers: u32) -> impl Iterator<Item = usize> {
        (0..workers).map(|worker| self.nth(worker * 3))
    }

    fn of_target(&self, workers: u32) -> impl Iterator<Item = usize> {
        (0..workers).map(|worker| self.nth(worker * 3 + 1))
    }

    fn of_service(&self, workers: u32) -> impl Iterator<Item = usize> {
        (0..workers).map(|worker| self.nth(worker * 3 + 2))
    }
}

fn listening_port(line: &str) -> Option<u16> {
    line.rsplit_once("listening on port ")?
        .1
        .trim()
        .parse()
        .ok()
}

fn waits_for_initiator(line: &str) -> Option<()> {
    line.contains("waiting for the initiator").then_some(())
}

fn document(role: &'static str, stdout: &str) -> Result<Value, Failure> {
    serde_json::from_str(stdout).map_err(|error| Failure {
        role,
        what: format!("printed no JSON document ({error}) but {stdout:?}"),
        stderr: String::new(),
    })
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_lines_are_recognised() {
        assert_eq!(listening_port("listening on port 40123"), Some(40123));
        assert_eq!(listening_port("listening on port x"), None);
        assert_eq!(
            waits_for_initiator("waiting for the initiator on \"doca_storage_comch\""),
            Some(())
        );
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("--cpu"), "--cpu");
        assert_eq!(quoted("it's here"), r"'it'\''s here'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn workers_are_spread_over_the_cpus() {
        let cpus = Cpus(vec![4, 6]);
        assert_eq!(cpus.of_initiator(2).collect::<Vec<_>>(), [4, 6]);
        assert_eq!(cpus.of_target(2).collect::<Vec<_>>(), [6, 4]);
        assert_eq!(cpus.of_service(1).collect::<Vec<_>>(), [4]);
    }
}
