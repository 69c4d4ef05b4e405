//! Faults in every role and every phase of a session, and in the network between machines.

use std::fmt;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::conformance::faults::{Case, Part, Phase, Settings, Tried, run};
use ::conformance::network::{Fault, Run, Summary, relay};
use ::conformance::report::{self, Outcome, Report};
use ::deployment::implementation::{Implementation, Role};
use clap::{Args, value_parser};
use deployment::network::Network;
use indicatif::{ProgressBar, ProgressStyle};
use role_common::{errln, flags, outln, signals};
use serde::Serialize;
use tabled::builder::Builder;

use super::{LayoutChoice, ReportOptions, Result, seconds, try_all, usage};

const FAULTS_HELP: &str = "\
A fault is named by its deployment, role, phase and signal: faults.gga: data_p, init_storage_request, SIGKILL. The phases are: waiting
for an initiator; each control message between service and target, held between its sender and its receiver; io, under a validating
load. In faults.*.serving, the other roles have --sessions forever and serve the next session; in faults.gga.degraded, the service
has --logical-block-size. The exit status is 0 if all faults were survived, 1 if one was not, and 2 for wrong usage.

Examples:
  doca-storage conformance faults
  doca-storage conformance faults --some --jobs 4
  doca-storage conformance faults --bin target/release --only 'gga.serving: service' --only io,";

#[derive(Debug, Args)]
#[command(after_help = FAULTS_HELP)]
pub(super) struct Faults {
    /// Directory of the programs [default: this program]
    #[arg(long = "bin", value_name = "DIR")]
    binaries: Option<PathBuf>,

    /// Only faults whose names contain this text; may be repeated, which selects more
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Try one fault for each role in each phase, alternating between kinds
    #[arg(long)]
    some: bool,

    /// List the faults without trying them
    #[arg(long)]
    list: bool,

    /// Number of faults tried concurrently
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u16).range(1..=64))]
    jobs: u16,

    /// Timeouts of the roles if one of them is stopped (SIGSTOP): --control-timeout and --io-timeout, and half of --idle-timeout
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = seconds(1, 60))]
    control_timeout: u64,

    /// Time in seconds within which all other roles must have noticed the fault, and exited
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = seconds(1, 600))]
    notice: u64,

    #[command(flatten)]
    report: ReportOptions,
}

impl Faults {
    /// Injects the faults, and fails if one was not survived.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let cases = self.chosen()?;
        if self.list {
            for case in &cases {
                outln!("{}", name(case));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let shutdown = signals::shutdown()?;
        let settings = self.settings()?;
        let before = shared_memory();
        let tried = try_all(
            &cases,
            self.jobs,
            &shutdown,
            name,
            |number, &case, interrupted| run(&settings, case, number, interrupted),
        )?;
        self.show(&tried, left(&before))
    }

    fn show(&self, tried: &[Tried], left: report::Case) -> Result<ExitCode> {
        let cases = tried.iter().map(|tried| tried.report.clone());
        let report = Report {
            cases: cases.chain([left]).collect(),
        };
        let table = Table::new(tried);
        self.report
            .finish_with("conformance faults", &report, &table)
    }

    fn chosen(&self) -> Result<Vec<Case>> {
        let mut cases = if self.some { Case::some() } else { Case::all() };
        for part in &self.only {
            if !cases.iter().any(|case| name(case).contains(part)) {
                return Err(usage(format!(
                    "--only {part}: no fault has this in its name; --list has them"
                )));
            }
        }
        cases.retain(|case| {
            self.only.is_empty() || self.only.iter().any(|part| name(case).contains(part))
        });
        Ok(cases)
    }

    fn settings(&self) -> Result<Settings> {
        let implementation = match &self.binaries {
            Some(directory) => Implementation::in_directory("own", directory)?,
            // Not the directory of this program: it may contain binaries of other builds.
            None => Implementation::of_binary("own", Role::Target, &std::env::current_exe()?),
        };
        Ok(Settings {
            implementation,
            timeout: Duration::from_secs(self.control_timeout),
            notice: Duration::from_secs(self.notice),
            cpus: deployment::allowed_cpus()?,
        })
    }
}

fn name(case: &Case) -> String {
    format!("{}: {case}", case.suite())
}

/// Files in `/dev/shm`. Directories belong to other programs, because `shm_open` creates none.
fn shared_memory() -> Vec<PathBuf> {
    let mut entries = ::deployment::sandbox::entries("/dev/shm".as_ref()).unwrap_or_default();
    entries.retain(|path| !path.is_dir());
    entries
}

/// Checks for files left behind by the faults.
fn left(before: &[PathBuf]) -> report::Case {
    let mut left = shared_memory();
    left.retain(|path| !before.contains(path));
    let outcome = if left.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed(format!("there is {left:?}"))
    };
    report::Case {
        meaning: "no named shared memory is left behind".to_owned(),
        ..report::Case::new("faults", "/dev/shm", outcome)
    }
}

// Table with a row per phase and a column per role.

#[derive(Serialize)]
struct Table<'a> {
    injected: usize,
    survived: usize,
    lost_or_wrong: usize,
    cases: &'a [Tried],
}

/// Faults of one kind.
#[derive(Default)]
struct Count {
    injected: usize,
    survived: usize,
    lost_or_wrong: usize,
    /// Longest time in seconds until all other roles had detected the fault.
    noticed: f64,
}

impl Count {
    fn of<'a>(tried: impl Iterator<Item = &'a Tried>) -> Self {
        let mut count = Self::default();
        for one in tried {
            count.injected += 1;
            count.survived += usize::from(one.report.outcome == Outcome::Passed);
            count.lost_or_wrong += one.lost_or_wrong;
            let noticed = one.noticed.unwrap_or_default().as_secs_f64();
            count.noticed = count.noticed.max(noticed);
        }
        count
    }

    fn cell(&self) -> String {
        match self.injected {
            0 => String::new(),
            injected => format!("{}/{injected}", self.survived),
        }
    }
}

impl<'a> Table<'a> {
    fn new(cases: &'a [Tried]) -> Self {
        let count = Count::of(cases.iter());
        Self {
            injected: count.injected,
            survived: count.survived,
            lost_or_wrong: count.lost_or_wrong,
            cases,
        }
    }

    /// Writes the table rows of one deployment, whose cases are contiguous.
    fn write_suite(f: &mut fmt::Formatter<'_>, cases: &[Tried]) -> fmt::Result {
        let Case { layout, .. } = cases[0].case;
        let parts: Vec<Part> = Part::roles(layout)
            .filter(|part| cases.iter().any(|tried| tried.case.faulty == *part))
            .collect();
        let mut table = Builder::new();
        let labels = parts.iter().map(|part| part.name(layout));
        table.push_record(
            [cases[0].case.suite()]
                .into_iter()
                .chain(labels)
                .chain(["I/Os lost or wrong", "noticed within (s)"]),
        );
        for phase in Phase::ALL {
            let row = || cases.iter().filter(|tried| tried.case.phase == phase);
            let total = Count::of(row());
            if total.injected == 0 {
                continue;
            }
            let cells = parts
                .iter()
                .map(|part| Count::of(row().filter(|tried| tried.case.faulty == *part)).cell());
            table.push_record([phase.to_string()].into_iter().chain(cells).chain([
                total.lost_or_wrong.to_string(),
                format!("{:.1}", total.noticed),
            ]));
        }
        writeln!(f, "{}", table::render(table, table::Layout::default()))
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_beside = |a: &Tried, b: &Tried| a.case.suite() == b.case.suite();
        for cases in self.cases.chunk_by(is_beside) {
            Self::write_suite(f, cases)?;
        }
        write!(
            f,
            "Faults survived / injected: {} / {}. I/Os lost or wrong: {}",
            self.survived, self.injected, self.lost_or_wrong
        )
    }
}

// Network faults between machines, which are network namespaces.

const NETWORK_HELP: &str = "\
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
#[command(after_help = NETWORK_HELP)]
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
        let shutdown = signals::shutdown()?;
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

    fn settings(&self) -> Result<::conformance::network::Settings> {
        let own = std::env::current_exe()?;
        let implementation = match &self.binaries {
            Some(directory) => Implementation::in_directory("given", directory)?,
            None => Implementation::of_binary("own", Role::Target, &own),
        };
        let libraries = self.library_path.as_ref().map(std::path::absolute);
        let is_chosen = |fault: &Fault| {
            self.only.is_empty() || self.only.iter().any(|name| name == fault.name())
        };
        Ok(::conformance::network::Settings {
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
