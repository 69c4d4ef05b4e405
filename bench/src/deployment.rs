//! One measured session of real roles, and the DOCA library that they load.

mod session;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::Part;
use deployment::implementation::{Implementation, Role, Usage};
use deployment::network::Network;
use deployment::process::{Process, Signal};
use deployment::sandbox::Sandbox;
use serde::Deserialize;

use crate::Error;
use crate::series::{AfterPause, Bucket, CpuTime, Distribution, Figures, Latency, Point};
use session::Session;

pub use session::{cannot_count, cpu_of, system_calls};

/// Implementations of the roles of a measured deployment.
#[derive(Debug, Clone)]
pub struct Mix {
    pub initiator: Implementation,
    pub service: Implementation,
    pub target: Implementation,
    /// Implementation of the generator of the gga targets' contents.
    pub generator: Implementation,
    /// `true` if the initiator is ours, which prints JSON on request.
    pub prints_json: bool,
    /// The initiator's flag for the number of I/Os in flight.
    pub transactions_flag: &'static str,
    /// `true` if all roles are ours.
    pub is_ours: bool,
    /// `true` if the gga service supports writes. That of the reference's releases 3.0 and 3.1 does not.
    pub writes_gga: bool,
}

impl Mix {
    /// One implementation for all roles. The flags of an initiator of another implementation are taken from its usage;
    /// without a usage, it is assumed to be of 3.2.
    pub fn of(implementation: &Implementation, is_ours: bool) -> Self {
        let usage = if is_ours {
            Usage::default()
        } else {
            Usage::of(implementation, Role::Initiator).unwrap_or_default()
        };
        Self {
            transactions_flag: usage.transactions_flag(),
            prints_json: is_ours,
            is_ours,
            writes_gga: is_ours || usage.release() == "3.2",
            initiator: implementation.clone(),
            service: implementation.clone(),
            target: implementation.clone(),
            generator: implementation.clone(),
        }
    }
}

/// As [`measure`], with the blocks of the only target in a file. With `flush`, every write is flushed, and the
/// reported latency is that of the flushes.
///
/// # Errors
///
/// As [`measure`].
pub fn measure_file(
    mix: &Mix,
    point: Point,
    operations: u64,
    cpus: &[usize],
    (file, flush): (&Path, bool),
) -> Result<Figures, Error> {
    let mut session = Session {
        backing: Some((file, flush)),
        ..Session::new(Sandbox::new()?, mix, point, operations, cpus)?
    };
    let ended = session.run()?;
    if flush {
        parse_flushes(&ended.stdout, point)
    } else {
        parse(&ended.stdout, point)
    }
}

/// Runs one session with this number of operations on these CPUs.
///
/// # Errors
///
/// A role cannot be started, has failed, or has printed no figures.
pub fn measure(mix: &Mix, point: Point, operations: u64, cpus: &[usize]) -> Result<Figures, Error> {
    figures(Session::new(Sandbox::new()?, mix, point, operations, cpus)?)
}

/// As [`measure`], with the targets on other machines than the service.
///
/// # Errors
///
/// As [`measure`].
pub fn measure_over(
    network: Network,
    mix: &Mix,
    point: Point,
    operations: u64,
    cpus: &[usize],
) -> Result<Figures, Error> {
    let sandbox = Sandbox::over(network)?;
    figures(Session::new(sandbox, mix, point, operations, cpus)?)
}

fn figures(mut session: Session<'_>) -> Result<Figures, Error> {
    let ended = session.run()?;
    let mut figures = parse(&ended.stdout, session.point)?;
    let [initiator, service, targets] = ended
        .cpu
        .map(|time| time.as_nanos() as f64 / session.all_operations() as f64);
    figures.cpu_ns = Some(CpuTime {
        initiator,
        service,
        targets,
    });
    Ok(figures)
}

// Contents of the storage: compressible like text, and different in every block.

const WORDS: [&str; 16] = [
    "block ", "storage ", "target ", "read ", "write ", "offset ", "length ", "buffer ", "queue ",
    "depth ", "latency ", "parity ", "stripe ", "volume ", "device ", "memory ",
];

/// Generates `capacity` bytes of content.
pub fn content(capacity: usize) -> Vec<u8> {
    let mut content = Vec::with_capacity(capacity + 64);
    let mut rng = fastrand::Rng::with_seed(1);
    while content.len() < capacity {
        let state = rng.u64(..);
        content.extend_from_slice(WORDS[(state >> 60) as usize].as_bytes());
        content.extend_from_slice(format!("{:x} ", state >> 52).as_bytes());
    }
    content.truncate(capacity);
    content
}

// Parser of an initiator's output: JSON of ours, text of the reference's.

const DURATION: &str = "| Duration (seconds):";
const OPERATIONS: &str = "| Operation count:";

#[derive(Deserialize)]
struct Document {
    duration_seconds: f64,
    operation_count: f64,
    latency_us: Summary,
    #[serde(default)]
    flush_latency_us: Option<Summary>,
}

#[derive(Deserialize)]
struct Summary {
    p50: f64,
    p99: f64,
    p99_9: f64,
    #[serde(default)]
    distribution: Option<Distribution>,
    #[serde(default)]
    histogram: Vec<Bucket>,
}

impl From<&Summary> for Latency {
    fn from(summary: &Summary) -> Self {
        let nanos = |micros: f64| micros * 1e3;
        Self {
            p50_ns: nanos(summary.p50),
            p99_ns: nanos(summary.p99),
            p99_9_ns: nanos(summary.p99_9),
            distribution: summary
                .distribution
                .map(|pairs| pairs.map(|(percent, micros)| (percent, nanos(micros)))),
        }
    }
}

/// Parses the output of an initiator.
fn parse(stdout: &str, point: Point) -> Result<Figures, Error> {
    let (seconds, operations, latency, histogram) = if stdout.trim_start().starts_with('{') {
        let document: Document = serde_json::from_str(stdout)
            .map_err(|_| missing("a document with its statistics", stdout))?;
        (
            document.duration_seconds,
            document.operation_count,
            Some((&document.latency_us).into()),
            document.latency_us.histogram,
        )
    } else {
        let number = |key: &str, expected| {
            stdout
                .lines()
                .find_map(|line| line.trim().strip_prefix(key)?.trim().parse::<f64>().ok())
                .ok_or_else(|| missing(expected, stdout))
        };
        (
            number(DURATION, "a line with the duration in seconds")?,
            number(OPERATIONS, "a line with the operation count")?,
            None,
            Vec::new(),
        )
    };
    Ok(Figures {
        latency,
        histogram,
        ..Figures::of_rate(operations / seconds, point.block_size)
    })
}

/// As [`parse`], for a run with flushes, whose latencies are reported.
fn parse_flushes(stdout: &str, point: Point) -> Result<Figures, Error> {
    let flushes = serde_json::from_str(stdout)
        .ok()
        .and_then(|document: Document| document.flush_latency_us)
        .ok_or_else(|| missing("a document with the latencies of flushes", stdout))?;
    Ok(Figures {
        latency: Some((&flushes).into()),
        histogram: flushes.histogram,
        ..parse(stdout, point)?
    })
}

fn missing(expected: &'static str, got: &str) -> Error {
    Error::Output {
        program: "the initiator",
        expected,
        got: got.to_owned(),
    }
}

/// Time limit for a server's socket.
const LISTENS: Duration = Duration::from_secs(30);

/// Runs a deployment whose initiator is the front end `name` of `program`. The front end runs on the second CPU, because the client uses the first
/// one. `load` is called with the front end's socket; afterwards the front end is stopped, which ends the session.
///
/// # Errors
///
/// A role cannot be started or has failed, or `load` has failed.
pub(crate) fn with_front_end(
    program: &Path,
    name: &str,
    mix: &Mix,
    point: Point,
    cpus: &[usize],
    load: impl FnOnce(&Path) -> Result<Figures, Error>,
) -> Result<Figures, Error> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("socket");
    let mut front_end = Command::new(program);
    front_end
        .args([name, "--socket"])
        .arg(&socket)
        .args(["--cpu", &cpus[1 % cpus.len()].to_string()]);
    let mut session = Session::new(Sandbox::new()?, mix, point, 0, cpus)?;
    session.start()?;
    session.roles.set_command(Part::FrontEnd, front_end);
    session.roles.spawn(Part::FrontEnd)?;
    let front_end = wait_for_socket(session.roles.take(Part::FrontEnd)?, &socket)?;
    let figures = load(&socket)?;
    front_end.signal(Signal::TERM);
    session.finish(front_end)?;
    Ok(figures)
}

/// Waits for a server's socket.
pub(crate) fn wait_for_socket(server: Process, socket: &Path) -> Result<Process, Error> {
    let deadline = Instant::now() + LISTENS;
    while !socket.exists() {
        if Instant::now() > deadline || server.has_ended() {
            return Err(server.failed("has not made its socket").into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(server)
}

/// Returns `true` if a program is in one of the directories of `PATH`.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

// CPU time of an idle service and its target.

/// Time after which a session is in steady state, and an idle process has settled.
const SETTLED: Duration = Duration::from_millis(500);

/// CPU time of service and target in an idle session, in percent of one CPU, measured over `time`. The initiator is stopped (SIGSTOP) in
/// the middle of its work.
///
/// # Errors
///
/// A role cannot be started, or has exited early.
pub fn idle(mix: &Mix, cpus: &[usize], time: Duration) -> Result<f64, Error> {
    let (point, endless) = (Point::ZERO_COPY_READ, u32::MAX.into());
    let mut session = Session::new(Sandbox::new()?, mix, point, endless, cpus)?;
    session.start()?;
    let initiator = session.start_initiator()?;
    std::thread::sleep(SETTLED);
    initiator.signal(Signal::STOP);
    std::thread::sleep(SETTLED);
    let all = || -> Duration { session.cpu_times().iter().sum() };
    let (before, started) = (all(), Instant::now());
    std::thread::sleep(time);
    let used = all().saturating_sub(before);
    let percent = used.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0;
    initiator.signal(Signal::KILL);
    session.roles.expect_servers_to_run()?;
    Ok(percent)
}

// The first I/Os after a pause. The initiator is a separate process of this program, because no role's initiator can
// pause.

/// Runs a session with pauses. `program` is this program, which acts as the initiator with `first-ios`.
///
/// # Errors
///
/// A role cannot be started, or has failed.
pub fn after_pause(
    program: &Path,
    mix: &Mix,
    point: Point,
    cpus: &[usize],
) -> Result<Figures, Error> {
    let mut session = Session::new(Sandbox::new()?, mix, point, 0, cpus)?;
    session.start()?;
    let sandbox = &session.roles.sandbox;
    let mut command = Command::new(program);
    sandbox
        .place(&mut command)
        .args(["first-ios", "--channel", sandbox.channel()])
        .args(["--cpu", &cpus[0].to_string()])
        .args(["--transactions", &point.transactions.to_string()]);
    let initiator = Process::spawn("initiator", command)?;
    let ended = session.finish(initiator)?;
    let measured: AfterPause = serde_json::from_str(&ended.stdout).map_err(|_| Error::Output {
        program: "the initiator that pauses",
        expected: "its figures as JSON",
        got: ended.stdout,
    })?;
    Ok(Figures {
        after_pause: Some(measured),
        ..Figures::of_rate(measured.steady_rate, point.block_size)
    })
}

// The DOCA library that a program loads: roles are compared only if they load the same one.

/// Roles with a counterpart in the reference.
const COMPARED_ROLES: [Role; 4] = [
    Role::Initiator,
    Role::ZeroCopy,
    Role::GgaOffload,
    Role::Target,
];
/// Prefixes of the file names of the DOCA library that every program loads: softdoca's single library, and NVIDIA's
/// core library.
const LIBRARIES: [&str; 2] = ["libsoftdoca.so", "libdoca_common.so"];

/// Two implementations of a role that do not load the same shared DOCA library, so that they are not comparable.
#[derive(Debug, PartialEq, Eq)]
pub struct NoTwins {
    pub role: Role,
    /// Library of our role; `None` if DOCA is linked into it.
    pub ours: Option<PathBuf>,
    /// Library of the C++ role; `None` if DOCA is linked into it.
    pub theirs: Option<PathBuf>,
}

impl fmt::Display for NoTwins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |library: &Option<PathBuf>| {
            library.as_ref().map_or_else(
                || "a DOCA that is linked into it".to_owned(),
                |path| path.display().to_string(),
            )
        };
        write!(
            f,
            "each of our roles in place of its C++ twin: expected both to run on the same shared DOCA library, but our {} has {}, and \
             the C++ one {}; build ours with RUSTFLAGS=\"--cfg doca_sdk\" and name them with --impl, and the library with --library-path",
            self.role,
            text(&self.ours),
            text(&self.theirs)
        )
    }
}

/// The first role whose implementations are not comparable; `None` if each pair loads the same shared library.
///
/// # Errors
///
/// A program does not exist, or cannot be started.
pub fn no_twins(ours: &Implementation, theirs: &Implementation) -> Result<Option<NoTwins>, Error> {
    for role in COMPARED_ROLES {
        let (own, their) = (library(ours, role)?, library(theirs, role)?);
        if own.is_some() && own == their {
            continue;
        }
        return Ok(Some(NoTwins {
            role,
            ours: own,
            theirs: their,
        }));
    }
    Ok(None)
}

/// Shared library that the dynamic loader resolves for this role; `None` if it needs none.
fn library(implementation: &Implementation, role: Role) -> Result<Option<PathBuf>, Error> {
    // The loader prints the resolved libraries instead of starting the program; a static program prints its help.
    let mut command = implementation.command(role)?;
    let program = Path::new(command.get_program()).to_owned();
    let output = command
        .arg("--help")
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .output()?;
    match loaded(&String::from_utf8_lossy(&output.stdout)) {
        Some((_, Some(path))) => Ok(Some(std::fs::canonicalize(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?)),
        Some((name, None)) => Err(Error::Io(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "{}: it needs {name}, which the loader does not find; name its directory with --library-path",
                program.display()
            ),
        ))),
        None => Ok(None),
    }
}

/// Parses lines of the form `name => path (address)` or `name => not found`: the name of DOCA's library, and its path if it was
/// found.
fn loaded(text: &str) -> Option<(String, Option<PathBuf>)> {
    LIBRARIES.iter().find_map(|name| {
        text.lines().find_map(|line| {
            let (library, path) = line.trim().split_once(" => ")?;
            let path = path.rsplit_once(" (").map(|(path, _)| path.into());
            library
                .starts_with(name)
                .then(|| (library.to_owned(), path))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_both_initiators_is_parsed() {
        let text =
            "| Stats\n| Duration (seconds): 2.5\n| Operation count: 1000\n| IO rate: 0.0 MIOP/s\n";
        let figures = parse(text, Point::ZERO_COPY_READ).expect("figures");
        assert_eq!((figures.rate, figures.bandwidth), (400.0, 400.0 * 4096.0));
        assert_eq!(figures.latency, None);
        let json = r#"{"duration_seconds":2.5,"operation_count":1000,"latency_us":{"p50":3.5,"p99":4,"p99_9":5,"histogram":[[2.0,2.4,9]]}}"#;
        let figures = parse(json, Point::ZERO_COPY_READ).expect("figures");
        assert_eq!(figures.latency.map(|l| l.p50_ns), Some(3500.0));
        assert_eq!(figures.histogram, [(2.0, 2.4, 9)]);
        let incomplete = "| Operation count: 1";
        let error = parse(incomplete, Point::ZERO_COPY_READ).expect_err("no duration");
        assert!(
            matches!(&error, Error::Output { expected, got, .. } if expected.contains("duration") && got == incomplete),
            "{error}"
        );
    }

    #[test]
    fn loader_output_is_parsed() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibdoca_common.so.2 => /opt/a b/libdoca_common.so.2 (0x2)\n\tlibc.so.6 => /lib/libc.so.6 (0x3)\n";
        let path = Some("/opt/a b/libdoca_common.so.2".into());
        assert_eq!(loaded(text), Some(("libdoca_common.so.2".to_owned(), path)));
        let missing = "\tlibsoftdoca.so.3 => not found\n";
        assert_eq!(loaded(missing), Some(("libsoftdoca.so.3".to_owned(), None)));
        assert_eq!(loaded("\tlibc.so.6 => /lib/libc.so.6 (0x3)\n"), None);
        assert_eq!(loaded("Usage: doca_storage_target_rdma"), None);
    }

    #[test]
    fn programs_with_a_linked_doca_are_not_comparable() {
        // Programs without a DOCA library, as ours are by default.
        let directory = tempfile::tempdir().expect("a directory");
        for role in COMPARED_ROLES {
            let path = directory.path().join(role.program());
            std::os::unix::fs::symlink("/bin/true", path).expect("a link");
        }
        let ours = Implementation::in_directory("rust", directory.path()).expect("programs");
        let expected = NoTwins {
            role: COMPARED_ROLES[0],
            ours: None,
            theirs: None,
        };
        assert_eq!(no_twins(&ours, &ours).expect("started"), Some(expected));
    }
}
