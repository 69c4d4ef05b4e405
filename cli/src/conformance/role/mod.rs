//! One role between scripted peers, check by check.

pub(super) mod room;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::conformance::implementation::{self, Implementation};
use ::conformance::role::{Check, Subject, checks, run};
use ::conformance::usage::Usage;
use clap::{Args, ValueEnum, value_parser};
use indicatif::ProgressBar;
use role_common::outln;
use role_common::shutdown::Shutdown;
use wire::release::Release;

use crate::table;

use super::faulty_target::release;
use super::report::{ReportOptions, progress};
use super::{Result, seconds, usage};

/// How often a check of the reference is repeated after a crash: 8 times are too few.
const CRASH_RETRIES: u32 = 60;

const HELP: &str = "\
The exit status is the number of checks that failed, up to 100.

Examples:
  doca-storage conformance role target                                  this program's own target
  doca-storage conformance role target --list
  doca-storage conformance role zero-copy --bin build/doca_storage_comch_to_rdma_zero_copy --library-path ~/softdoca/lib
  doca-storage conformance role initiator --bin build-3.1/doca_storage_initiator_comch --protocol 3.1
  doca-storage conformance role initiator --bin build/doca_storage_initiator_comch --crash-retries 8 --junit initiator.xml";

/// Its flags.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct RoleOptions {
    /// What the binary is
    #[arg(value_enum)]
    role: Role,

    /// The binary under test [default: this program]
    #[arg(long = "bin", value_name = "FILE")]
    binary: Option<PathBuf>,

    /// Directory of the DOCA libraries to run it with [default: what LD_LIBRARY_PATH and the program say]
    #[arg(long, value_name = "DIR")]
    library_path: Option<PathBuf>,

    /// Another argument for every start of the binary; may be repeated
    #[arg(long = "flag", value_name = "ARG", allow_hyphen_values = true)]
    flags: Vec<String>,

    /// The release of the protocol that an initiator under test speaks, and its scripted service; passed to an initiator that knows the flag. The
    /// peers of the other roles speak 3.2
    #[arg(long, value_name = "RELEASE", default_value_t, value_parser = release)]
    protocol: Release,

    /// Only the checks whose names contain this; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// List the checks and run none
    #[arg(long)]
    list: bool,

    /// Checks that run at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u32).range(1..=64))]
    jobs: u32,

    /// Seconds that anything may take that should come at once
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = seconds(1, 600))]
    patience: u64,

    /// Repeat a check this often when the binary was killed by SIGSEGV. The reference's workers race with their own start [default: 60 for
    /// a binary that prints a usage without --output, which is taken for the reference's; 0 for others]
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
    /// Runs the checks; the exit status counts those that failed.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let role = self.role.into();
        let checks = self.chosen(role)?;
        if self.list {
            for check in &checks {
                let line = format!("{}: {}", check.name, check.meaning);
                outln!("{}", table::prose(&line));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let shutdown = Shutdown::on_signals()?;
        if !room::is_inside() {
            return room::enter(&shutdown);
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
            patience: Duration::from_secs(self.patience),
            crash_retries: self.crash_retries.unwrap_or(default),
            usage: known,
            ..Subject::new(implementation, role)
        })
    }
}
