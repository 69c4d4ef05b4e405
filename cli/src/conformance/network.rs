//! Network faults between machines, which are network namespaces.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::conformance::network::{Fault, Run, Settings, Summary, relay};
use ::deployment::implementation::{Implementation, Role};
use clap::{Args, value_parser};
use deployment::network::Network;
use indicatif::{ProgressBar, ProgressStyle};
use role_common::shutdown::Shutdown;
use role_common::{errln, flags};

use super::LayoutChoice;
use super::Result;
use super::report::ReportOptions;

const HELP: &str = "\
The service and each target run on machines of their own, which are network namespaces, with RDMA over TCP between them. An initiator runs
read_write_data_validity_test in consecutive sessions while links are cut, slow or lossy. With gga, every session that has started
its I/O must succeed, whichever target is affected, and the target must rejoin. With zero-copy, a session may fail while its only
target is unreachable. No session may read wrong data, and the session after the fault must succeed. Each fault is injected at least
once, then again in turn until the time is up. The exit status is 0 if all faults were survived, and 1 if not.

Examples:
  doca-storage conformance network
  doca-storage conformance network --layout gga --duration 10m
  doca-storage conformance network --layout zero-copy --only cut --only loss --json";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct NetworkOptions {
    /// Deployments to test; each gets an equal share of the time
    #[arg(long, value_enum, default_value_t = LayoutChoice::All)]
    layout: LayoutChoice,

    /// Time after which no further fault is injected: a number with s, m or h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = flags::duration)]
    duration: Duration,

    /// Only this fault; may be repeated
    #[arg(long, value_name = "NAME", value_parser = Fault::ALL.map(Fault::name))]
    only: Vec<String>,

    /// Directory of the roles' programs, or of a doca-storage [default: this program]
    #[arg(long = "bin", value_name = "DIR")]
    binaries: Option<PathBuf>,

    /// Directory of the DOCA libraries for the roles [default: from LD_LIBRARY_PATH and the programs]
    #[arg(long, value_name = "DIR")]
    library_path: Option<PathBuf>,

    /// Number of blocks of the storage
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = value_parser!(u64).range(64..=65536))]
    blocks: u64,

    /// Number of operations per session, each a write and a read
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = value_parser!(u32).range(64..))]
    operations: u32,

    /// Time in seconds after a fault within which a session must succeed with all targets online
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(10..=3600))]
    limit: u64,

    #[command(flatten)]
    report: ReportOptions,
}

impl NetworkOptions {
    /// Runs the test, and fails if a fault was not survived.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let shutdown = Shutdown::on_signals()?;
        // Fails here, so that it is not reported as a fault that was not survived.
        drop(Network::new(2)?);
        let run = Run {
            settings: self.settings()?,
        };
        let progress = self.progress();
        let show = |now: &str, summary: Summary| {
            progress.set_message(format!("{} sessions, {now}", summary.sessions));
        };
        let (report, summary, kept) = run.run(&show, &|| shutdown.is_requested());
        progress.finish_and_clear();
        let status = self.report.finish("conformance network", &report)?;
        errln!(
            "{} faults, {} sessions with {} operations succeeded, {} sessions failed as they may, {} wrong blocks",
            summary.faults,
            summary.sessions,
            summary.operations,
            summary.failed,
            summary.wrong
        );
        for directory in kept {
            errln!("logs and blocks: {}", directory.display());
        }
        Ok(status)
    }

    fn settings(&self) -> Result<Settings> {
        let own = std::env::current_exe()?;
        let implementation = match &self.binaries {
            Some(directory) => Implementation::in_directory("given", directory)?,
            None => Implementation::of_binary("own", Role::Target, &own),
        };
        let libraries = self.library_path.as_ref().map(std::path::absolute);
        let is_chosen = |fault: &Fault| {
            self.only.is_empty() || self.only.iter().any(|name| name == fault.name())
        };
        Ok(Settings {
            implementation: implementation.with_library_path(libraries.transpose()?),
            layouts: self.layout.layouts().to_vec(),
            duration: self.duration,
            faults: Fault::ALL.into_iter().filter(is_chosen).collect(),
            blocks: self.blocks,
            operations: self.operations,
            cpus: deployment::allowed_cpus()?,
            limit: Duration::from_secs(self.limit),
            cable: vec![own.into_os_string(), "conformance".into(), "cable".into()],
        })
    }

    fn progress(&self) -> ProgressBar {
        if self.report.json || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}")
            .expect("a template of known keys");
        let bar = ProgressBar::new_spinner().with_style(style);
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }
}

#[derive(Debug, Args)]
pub(super) struct CableOptions {
    /// Names of the devices at its ends
    near: String,
    far: String,
}

impl CableOptions {
    /// Carries frames until the end of the input.
    pub(super) fn carry(&self) -> Result<ExitCode> {
        relay(&self.near, &self.far)?;
        Ok(ExitCode::SUCCESS)
    }
}
