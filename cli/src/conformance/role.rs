//! Checks of one role between scripted peers.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use ::conformance::role::{Check, Subject, checks, run};
use ::deployment::implementation::Usage;
use ::deployment::implementation::{self, Implementation};
use ::deployment::sandbox::entries;
use clap::{Args, ValueEnum, value_parser};
use indicatif::ProgressBar;
use role_common::shutdown::Shutdown;
use rustix::process::{Pid, Signal, kill_process};
use wire::release::Release;

use crate::table;

use super::faulty_target::release;
use super::report::{ReportOptions, progress};
use super::{Result, seconds, usage};

/// Number of retries of a check after a crash of the reference: 8 are too few.
const CRASH_RETRIES: u32 = 60;

const HELP: &str = "\
The exit status is 0 if all checks passed, 1 if one failed, and 2 for wrong usage.

Examples:
  doca-storage conformance role target              this program's own target
  doca-storage conformance role target --list
  doca-storage conformance role zero-copy --bin build/doca_storage_comch_to_rdma_zero_copy --library-path ~/softdoca/lib
  doca-storage conformance role initiator --bin build-3.1/doca_storage_initiator_comch --protocol 3.1
  doca-storage conformance role initiator --bin build/doca_storage_initiator_comch --crash-retries 8 --junit initiator.xml";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
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
        let shutdown = Shutdown::on_signals()?;
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
// The peers run in this process, and softdoca uses the process's `SOFTDOCA_RUNTIME_DIR`: so the command restarts
// itself with another one.

/// Environment variable that is set in the restarted process.
const INSIDE: &str = "DOCA_STORAGE_CONFORMANCE_ROOM";
/// Polling interval.
const TICK: Duration = Duration::from_millis(20);

pub(super) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs the checks in a child process, and checks that no files are left.
pub(super) fn enter(shutdown: &Shutdown) -> Result<ExitCode> {
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
    // A role that hangs is killed and cannot clean up, which is reported already.
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
        // It may have exited in the meantime.
        let _ = kill_process(pid, Signal::TERM);
    }
}
