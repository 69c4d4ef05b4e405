//! One role: checks between scripted peers, attacks and their cost; a faulty target for tests of an initiator.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use ::conformance::hostile::{self, Attack, ClientEndpoint, Limit, Settings, attacks};
use ::conformance::role::{Check, Subject, checks, run};
use ::conformance::target::{Fault, Script, ScriptedTarget};
use ::deployment::implementation::{self, Implementation, Usage};
use ::deployment::sandbox::entries;
use clap::{Args, ValueEnum, value_parser};
use control::shutdown::Shutdown;
use indicatif::ProgressBar;
use role_common::flags::{self, duration};
use role_common::{errln, signals};
use rustix::process::{Pid, Signal, kill_process};
use wire::release::Release;

use super::{ReportOptions, Result, progress, role, seconds, usage};

/// Number of retries of a check after a crash of the reference: 8 are too few.
const CRASH_RETRIES: u32 = 60;

const ROLE_HELP: &str = "\
The exit status is 0 if all checks passed, 1 if one failed, and 2 for wrong usage.

Examples:
  doca-storage conformance role target              this program's own target
  doca-storage conformance role target --list
  doca-storage conformance role zero-copy --bin build/doca_storage_comch_to_rdma_zero_copy --library-path ~/softdoca/lib
  doca-storage conformance role initiator --bin build-3.1/doca_storage_initiator_comch --protocol 3.1
  doca-storage conformance role initiator --bin build/doca_storage_initiator_comch --crash-retries 8 --junit initiator.xml";

#[derive(Debug, Args)]
#[command(after_help = ROLE_HELP)]
pub(super) struct RoleOptions {
    /// Role of the binary
    #[arg(value_enum)]
    role: Role,

    /// The binary under test [default: this program]
    #[arg(long = "bin", value_name = "FILE")]
    binary: Option<PathBuf>,

    /// Directory of the DOCA libraries for the binary [default: from LD_LIBRARY_PATH and the program]
    #[arg(long, value_name = "DIR")]
    library_path: Option<PathBuf>,

    /// Additional argument of the binary; may be repeated
    #[arg(long = "flag", value_name = "ARG", allow_hyphen_values = true)]
    flags: Vec<String>,

    /// Release of the protocol for an initiator under test and its scripted service; passed to an initiator that knows
    /// the flag. The peers of other roles use 3.2
    #[arg(long, value_name = "RELEASE", default_value_t, value_parser = release)]
    protocol: Release,

    /// Only checks whose names contain this text; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// List the checks without running them
    #[arg(long)]
    list: bool,

    /// Number of concurrent checks
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u32).range(1..=64))]
    jobs: u32,

    /// Timeout of each message and event that the role should send at once, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = seconds(1, 600))]
    timeout: u64,

    /// Number of retries of a check if the binary was killed by SIGSEGV, because the reference's workers have a race
    /// at their start [default: 60 for a binary whose usage lacks --output, which is taken for the reference's; 0 for
    /// others]
    #[arg(long, value_name = "N")]
    crash_retries: Option<u32>,

    #[command(flatten)]
    report: ReportOptions,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    Target,
    ZeroCopy,
    GgaOffload,
    Initiator,
}

impl From<Role> for implementation::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Target => Self::Target,
            Role::ZeroCopy => Self::ZeroCopy,
            Role::GgaOffload => Self::GgaOffload,
            Role::Initiator => Self::Initiator,
        }
    }
}

impl RoleOptions {
    /// Runs the checks, and fails if one failed.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let role = self.role.into();
        let checks = self.chosen(role)?;
        if self.list {
            for check in &checks {
                let line = format!("{}: {}", check.name, check.meaning);
                table::say!("{line}");
            }
            return Ok(ExitCode::SUCCESS);
        }
        let shutdown = signals::shutdown()?;
        if !is_inside() {
            return enter(&shutdown);
        }
        let subject = self.subject(role)?;
        let progress = if self.report.json {
            ProgressBar::hidden()
        } else {
            progress(checks.len())
        };
        let done = |name: &str| {
            progress.set_message(name.to_owned());
            progress.inc(1);
        };
        let interrupted = || shutdown.is_requested();
        let report = run(&subject, &checks, self.jobs as usize, &done, &interrupted);
        progress.finish_and_clear();
        if shutdown.is_requested() {
            return Err("interrupted".into());
        }
        self.report.finish("conformance role", &report)
    }

    fn chosen(&self, role: implementation::Role) -> Result<Vec<Check>> {
        let mut all = checks(role);
        all.retain(|check| check.is_of(self.protocol));
        let is = |check: &Check, name: &String| check.name.contains(name.as_str());
        for name in &self.only {
            if !all.iter().any(|check| is(check, name)) {
                let names: Vec<_> = all.iter().map(|check| check.name).collect();
                return Err(usage(format!(
                    "--only {name}: expected a part of one of {}",
                    names.join(", ")
                )));
            }
        }
        let chosen =
            |check: &Check| self.only.is_empty() || self.only.iter().any(|name| is(check, name));
        Ok(all.into_iter().filter(chosen).collect())
    }

    fn subject(&self, role: implementation::Role) -> Result<Subject> {
        let binary = match &self.binary {
            Some(path) => std::fs::canonicalize(path)
                .map_err(|error| format!("--bin {}: {error}", path.display()))?,
            None => std::env::current_exe()?,
        };
        let libraries = match &self.library_path {
            Some(path) => Some(
                std::fs::canonicalize(path)
                    .map_err(|error| format!("--library-path {}: {error}", path.display()))?,
            ),
            None => None,
        };
        let implementation =
            Implementation::of_binary("subject", role, &binary).with_library_path(libraries);
        let known = Usage::of(&implementation, role)?;
        let mut flags = self.flags.clone();
        if self.protocol != Release::default() {
            if !matches!(self.role, Role::Initiator) {
                return Err(usage(format!(
                    "--protocol {}: expected {} for a role other than initiator, whose scripted peers speak no other release",
                    self.protocol,
                    Release::default()
                )));
            }
            if known.has("--protocol") {
                flags.extend(["--protocol".to_owned(), self.protocol.to_string()]);
            }
        }
        let default = if known.is_ours() { 0 } else { CRASH_RETRIES };
        Ok(Subject {
            flags,
            release: self.protocol,
            timeout: Duration::from_secs(self.timeout),
            crash_retries: self.crash_retries.unwrap_or(default),
            usage: known,
            ..Subject::new(implementation, role)
        })
    }
}

// A private runtime directory for the checks.
//
// The peers run in this process, and softdoca uses the process's `SOFTDOCA_RUNTIME_DIR`, so the command restarts itself
// with another directory.

/// Environment variable that is set in the restarted process.
const INSIDE: &str = "DOCA_STORAGE_CONFORMANCE_ROOM";
/// Polling interval.
const TICK: Duration = Duration::from_millis(20);

fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs the checks in a child process, and checks that no files are left.
fn enter(shutdown: &Shutdown) -> Result<ExitCode> {
    let directory = tempfile::Builder::new().prefix("doca-storage-").tempdir()?;
    let runtime = directory.path().join("run");
    fs::DirBuilder::new().mode(0o700).create(&runtime)?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env("SOFTDOCA_RUNTIME_DIR", &runtime)
        .env(INSIDE, "1")
        .spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if shutdown.is_requested() {
            interrupt(&child);
        }
        std::thread::sleep(TICK);
    };
    let left = entries(&runtime)?;
    // A role that hangs is killed and cannot clean up; the hang is reported already.
    if status.success() && !left.is_empty() {
        return Err(format!(
            "expected the runtime directory to be empty at the end, found {left:?}"
        )
        .into());
    }
    match status.code() {
        Some(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))),
        None => Err(format!("expected the checks to exit with a code, got {status}").into()),
    }
}

fn interrupt(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The process may have exited in the meantime.
        let _ = kill_process(pid, Signal::TERM);
    }
}

// A target with faults, for one session.

#[derive(Debug, Args)]
#[command(
    override_usage = "doca-storage conformance faulty-target [OPTIONS]\n           --content <FILE> --fault <FAULT>"
)]
pub(super) struct FaultyTarget {
    /// DOCA device
    #[arg(short, long, default_value = "3b:00.0")]
    device: String,

    /// TCP port to listen on; 0 picks a free one and prints it
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    listen_port: u16,

    /// IPv4 address of this machine to listen at
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::LOCALHOST)]
    listen_address: Ipv4Addr,

    /// File with the content of the storage
    #[arg(long, value_name = "FILE")]
    content: PathBuf,

    /// Size of a storage block in bytes, or with a unit such as 4k
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = block_size)]
    block_size: u32,

    /// none, ignore-writes, swap-blocks:A:B, replay-previous-pass, fail-io:N:RESULT, scribble-after-read,
    /// answer-twice, answer-late, echo, truncate, nonsense:N, reverse:N or swallow-io:N
    #[arg(long)]
    fault: Fault,

    /// Release of the service's protocol: 3.0, 3.1 or 3.2
    #[arg(long, value_name = "RELEASE", default_value_t, value_parser = release)]
    protocol: Release,

    /// File for the storage's data after the session
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
}

fn block_size(text: &str) -> std::result::Result<u32, String> {
    match flags::size_u32(text) {
        Ok(size @ 1..) => Ok(size),
        _ => Err("expected bytes, at least 1, or a size such as 4k".to_owned()),
    }
}

impl FaultyTarget {
    pub(super) fn serve(&self) -> Result<()> {
        let content = std::fs::read(&self.content)
            .map_err(|error| format!("--content {}: {error}", self.content.display()))?;
        let block_size = self.block_size as usize;
        if content.is_empty() || !content.len().is_multiple_of(block_size) {
            return Err(format!(
                "--content {}: expected a whole number of blocks of {block_size} bytes, the file has {}",
                self.content.display(),
                content.len()
            )
            .into());
        }
        let script = Script {
            device: self.device.clone(),
            block_size: self.block_size,
            content,
            fault: self.fault,
            features: 0,
            records: None,
            release: self.protocol,
        };
        let target = ScriptedTarget::listen_at(
            script,
            SocketAddrV4::new(self.listen_address, self.listen_port),
        )?;
        errln!("listening on port {}", target.port()?);
        let content = target.serve()?;
        if let Some(path) = &self.dump {
            std::fs::write(path, content)
                .map_err(|error| format!("--dump {}: {error}", path.display()))?;
        }
        Ok(())
    }
}

/// Parses the name of a release.
pub(super) fn release(text: &str) -> Result<Release, String> {
    let all = Release::ALL;
    let named = all.into_iter().find(|release| release.name() == text);
    named.ok_or_else(|| format!("expected one of {}", all.map(Release::name).join(", ")))
}

// Attacks on one role.

const HOSTILE_HELP: &str = "\
Each attack has cost limits: seconds until another client is served after it, seconds by which another client is delayed during it, MiB,
descriptors, and log lines. The note of an attack has its measured cost and, if the role stopped the attack, the error that ended
it. The exit status is 0 if all attacks stayed within their limits, and 1 if not.

With --duration or --sessions, attacks run in random order beside a well-behaved client: its started sessions may not fail,
it must be served within the limit after each attack, and the role's memory, descriptors and threads may not grow.

Examples:
  doca-storage conformance hostile --role target
  doca-storage conformance hostile --role zero-copy --list
  doca-storage conformance hostile --role gga-offload --only ring- --only import-
  doca-storage conformance hostile --role initiator
  doca-storage conformance hostile --role target --duration 10m --junit hostile.xml
  doca-storage conformance hostile --role zero-copy --sessions 5000";

#[derive(Debug, Args)]
#[command(after_help = HOSTILE_HELP)]
pub(super) struct Hostile {
    /// Role under attack; a service gets targets of the same implementation, an initiator is started for each attack
    #[arg(long, value_enum)]
    role: AttackedRole,

    /// Directory of the programs [default: this program]
    #[arg(long = "bin", value_name = "DIR")]
    binaries: Option<PathBuf>,

    /// Only attacks whose names contain this text; may be repeated, which selects more
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// List the attacks without running them
    #[arg(long)]
    list: bool,

    /// Run attacks in random order for this time, while a well-behaved client is served; not for an initiator [default:
    /// each once]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "sessions")]
    duration: Option<Duration>,

    /// Run attacks in random order until there were this many sessions, half of them of a well-behaved client; not for
    /// an initiator
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(2..))]
    sessions: Option<u32>,

    /// Seed of the random order [default: any]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Factor for the allowed times, for a loaded machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=100))]
    time_scale: u32,

    #[command(flatten)]
    report: ReportOptions,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AttackedRole {
    Initiator,
    Target,
    ZeroCopy,
    GgaOffload,
}

impl From<AttackedRole> for implementation::Role {
    fn from(role: AttackedRole) -> Self {
        match role {
            AttackedRole::Initiator => Self::Initiator,
            AttackedRole::Target => Self::Target,
            AttackedRole::ZeroCopy => Self::ZeroCopy,
            AttackedRole::GgaOffload => Self::GgaOffload,
        }
    }
}

impl Hostile {
    /// Runs the attacks, and fails if one exceeded its cost limits.
    pub(super) fn run(&self) -> Result<ExitCode> {
        if matches!(self.role, AttackedRole::Initiator)
            && (self.duration.is_some() || self.sessions.is_some())
        {
            return Err(usage(
                "--duration and --sessions are for roles that serve one session after the other, \
                 beside attacks: expected --role target, zero-copy or gga-offload, got initiator, which is started for each attack. Leave them \
                 out to play each attack once",
            ));
        }
        let attacks = self.chosen()?;
        if self.list {
            for Attack {
                name,
                meaning,
                cost,
                ..
            } in &attacks
            {
                let line = format!(
                    "{name}: {meaning} (at most {} s, held up {} s, {} MiB, {} descriptors, {} lines)",
                    cost.service.as_secs(),
                    cost.held_up.as_secs(),
                    cost.memory,
                    cost.descriptors,
                    cost.lines
                );
                table::say!("{line}");
            }
            return Ok(ExitCode::SUCCESS);
        }
        let shutdown = signals::shutdown()?;
        if !role::is_inside() {
            return role::enter(&shutdown);
        }
        let role = self.role.into();
        let implementation = match &self.binaries {
            Some(directory) => Implementation::in_directory("given", directory)?,
            // Not the directory of this program: it may contain binaries of other builds.
            None => Implementation::of_binary("own", role, &std::env::current_exe()?),
        };
        let limit = match (self.duration, self.sessions) {
            (Some(time), _) => Some(Limit::Time(time)),
            (None, Some(count)) => Some(Limit::Sessions(count as usize)),
            (None, None) => None,
        };
        let progress = match limit {
            _ if self.report.json => ProgressBar::hidden(),
            Some(Limit::Sessions(count)) => progress(count / 2),
            Some(Limit::Time(_)) => progress(0),
            None => progress(attacks.len()),
        };
        let own = std::env::current_exe()?;
        let settings = Settings {
            client: Box::new(move |endpoint| ClientOptions::command(endpoint, &own)),
            implementation,
            role,
            attacks,
            limit,
            seed: self.seed,
        };
        let done = |name: &str| {
            progress.set_message(name.to_owned());
            progress.inc(1);
        };
        let report = hostile::run(&settings, &done, &|| shutdown.is_requested());
        progress.finish_and_clear();
        self.report.finish("conformance hostile", &report)
    }

    fn chosen(&self) -> Result<Vec<Attack>> {
        let role = self.role.into();
        let mut all = attacks();
        all.retain(|attack| attack.is_for(role));
        for attack in &mut all {
            attack.cost = attack.cost.with_times(self.time_scale);
        }
        for name in &self.only {
            if !all.iter().any(|attack| attack.name.contains(name.as_str())) {
                return Err(usage(format!(
                    "--only {name}: expected a part of the name of an attack; --list shows them"
                )));
            }
        }
        all.retain(|attack| {
            self.only.is_empty() || self.only.iter().any(|name| attack.name.contains(name))
        });
        Ok(all)
    }
}

/// Flags of the well-behaved client.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct ClientOptions {
    /// TCP port of a target
    #[arg(long)]
    target: Option<u16>,

    /// Comch server name of a service
    #[arg(long)]
    service: Option<String>,
}

impl ClientOptions {
    fn command(endpoint: &ClientEndpoint, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(["conformance", "hostile-client"]);
        match endpoint {
            ClientEndpoint::Target(port) => command.args(["--target", &port.to_string()]),
            ClientEndpoint::Service(name) => command.args(["--service", name]),
        };
        command
    }

    /// Runs sessions on request until standard input is closed.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let endpoint = match (self.target, &self.service) {
            (Some(port), _) => ClientEndpoint::Target(port),
            (None, Some(name)) => ClientEndpoint::Service(name.clone()),
            (None, None) => return Err(usage("expected --target PORT or --service NAME")),
        };
        endpoint.run()?;
        Ok(ExitCode::SUCCESS)
    }
}
