//! `doca-storage conformance`: black-box tests of an implementation.

mod faults;
mod hammer;
mod layout;
mod matrix;
mod role;
mod samples;
mod torture;
mod transcripts;

use std::fmt;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::conformance::report::{Case, Outcome, Report};
use clap::{Args, Subcommand, ValueEnum};
use control::shutdown::Shutdown;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use role_common::{flags, outln};
use serde::Serialize;
use tabled::builder::Builder;

use crate::{Result, exit_code, usage};
use faults::{CableOptions, Faults, NetworkOptions};
use hammer::{Hammer, IntruderOptions, LoadOptions, Simulate, VerifierOptions};
use layout::Layout;
use matrix::Matrix;
use role::{ClientOptions, FaultyTarget, Hostile, RoleOptions};
use samples::Samples;
use torture::Torture;
use transcripts::{Record, Replay, Show};

const EXAMPLES: &str = "\
Examples:
  doca-storage conformance layout
  doca-storage conformance layout --print --only io_message
  doca-storage conformance role target --bin build/doca_storage_target_rdma
  doca-storage conformance faulty-target --content disk.img --fault ignore-writes
  doca-storage conformance faulty-target --content disk.img --fault swap-blocks:3:17 --listen-port 12345
  doca-storage conformance faulty-target --content disk.img --fault none --dump afterwards.img
  doca-storage conformance matrix --impl rust=target/release --impl cpp=build --library-path ~/softdoca/lib
  doca-storage conformance hammer --layout gga --duration 5m
  doca-storage conformance network --layout gga --duration 10m
  doca-storage conformance simulate --duration 10m
  doca-storage conformance torture --only R4
  doca-storage conformance hostile --role target
  doca-storage conformance samples --bin /tmp/build --library-path ~/softdoca/lib
  doca-storage conformance faults --jobs 8
  doca-storage conformance record --listen 12346 --to 127.0.0.1:12345 --output session.transcript
  doca-storage conformance show session.transcript
  doca-storage conformance replay session.transcript --to 127.0.0.1:12345";

/// Test to run.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the golden vectors of all wire formats, and show the offset of every byte
    Layout(Layout),
    /// Test one role's binary between scripted peers
    Role(RoleOptions),
    /// Serve one session as a faulty target, to test an initiator's validation
    FaultyTarget(FaultyTarget),
    /// Test every mix of implementations of the roles in both deployments
    Matrix(Matrix),
    /// Inject random faults into a deployment under a validating load, and check for lost data
    Hammer(Hammer),
    /// Inject faults into the network between service and targets under a validating load
    Network(NetworkOptions),
    /// Cable between two machines of `network`
    #[command(hide = true)]
    Cable(CableOptions),
    /// Simulate the redundancy of the gga_offload service with crashes, partitions and corruption, and check every
    /// read
    Simulate(Simulate),
    /// Attack each promise to users of the storage with crashes, power failures, damaged and exchanged disks
    Torture(Torture),
    /// Attack one role with malformed and excessive requests, and check their cost
    Hostile(Hostile),
    /// Well-behaved client of `hostile`
    #[command(hide = true)]
    HostileClient(ClientOptions),
    /// Load of `hammer`
    #[command(hide = true)]
    HammerLoad(LoadOptions),
    /// Verifier of the reads of `hammer`
    #[command(hide = true)]
    HammerVerifier(VerifierOptions),
    /// Client with which `hammer` disrupts services
    #[command(hide = true)]
    HammerIntruder(IntruderOptions),
    /// Kill, stop and terminate every role in every phase of a session, and check the other roles
    Faults(Faults),
    /// Run DOCA's samples, built by you, and check their results
    Samples(Samples),
    /// Record the messages between a service and its targets, as a relay
    Record(Record),
    /// Replay one side of a recording, and compare the role's messages
    Replay(Replay),
    /// Show a recording: every message with time, sender, fields and position
    Show(Show),
}

/// Runs the test. Exit code: 0 if everything passed, 1 if not, 2 for wrong usage.
pub fn run(options: &Options) -> ExitCode {
    let result = match &options.command {
        Command::Layout(layout) => layout.run(),
        Command::Role(role) => role.run(),
        Command::FaultyTarget(target) => target.serve().map(|()| ExitCode::SUCCESS),
        Command::Matrix(matrix) => matrix.run(),
        Command::Hammer(hammer) => hammer.run(),
        Command::Network(network) => network.run(),
        Command::Cable(cable) => cable.carry(),
        Command::Simulate(simulate) => simulate.run(),
        Command::Torture(torture) => torture.run(),
        Command::Hostile(hostile) => hostile.run(),
        Command::HostileClient(client) => client.run(),
        Command::HammerLoad(load) => load.play(),
        Command::HammerVerifier(verifier) => verifier.watch(),
        Command::HammerIntruder(intruder) => intruder.intrude(),
        Command::Faults(faults) => faults.run(),
        Command::Samples(samples) => samples.run(),
        Command::Record(record) => record.run(),
        Command::Replay(replay) => replay.run(),
        Command::Show(show) => show.run(),
    };
    result.unwrap_or_else(|error| crate::conclude("conformance", &*error))
}

/// Parses a time in the roles' format; within these limits, with fractions rounded up to whole seconds.
fn seconds(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> std::result::Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let time =
            flags::duration(text).map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0));
        match time {
            Ok(seconds) if (least..=most).contains(&seconds) => Ok(seconds),
            _ => Err(format!(
                "expected seconds, {least} to {most}, or a time such as 90s or 2m"
            )),
        }
    }
}

/// Maximum number of seconds without another limit: a week.
const WEEK: u64 = 7 * 24 * 3600;

/// Runs all cases, `jobs` at a time, with a progress bar, and returns the results in the order of the cases. `run` gets the index of a
/// case, the case, and a function that returns `true` once a shutdown was requested.
///
/// # Errors
///
/// A shutdown was requested.
fn try_all<C: Sync, T: Send + Sync>(
    cases: &[C],
    jobs: u16,
    shutdown: &Shutdown,
    name: impl Fn(&C) -> String + Sync,
    run: impl Fn(usize, &C, &(dyn Fn() -> bool + Sync)) -> T + Sync,
) -> Result<Vec<T>> {
    let progress = progress(cases.len());
    let next = AtomicUsize::new(0);
    let tried: Vec<OnceLock<T>> = cases.iter().map(|_| OnceLock::new()).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while !shutdown.is_requested() {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(index) else { break };
                    progress.set_message(name(case));
                    // Each index occurs once.
                    let _ = tried[index].set(run(index, case, &|| shutdown.is_requested()));
                    progress.inc(1);
                }
            });
        }
    });
    progress.finish_and_clear();
    if shutdown.is_requested() {
        return Err("interrupted".into());
    }
    Ok(tried.into_iter().filter_map(OnceLock::into_inner).collect())
}

/// Deployments selected by a command's `--layout`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum LayoutChoice {
    /// The zero-copy service and one target
    ZeroCopy,
    /// The gga_offload service and three targets
    Gga,
    /// Both
    All,
}

impl LayoutChoice {
    fn layouts(self) -> &'static [::conformance::matrix::Layout] {
        match self {
            Self::ZeroCopy => &[::conformance::matrix::Layout::ZeroCopy],
            Self::Gga => &[::conformance::matrix::Layout::Gga],
            Self::All => &::conformance::matrix::Layout::ALL,
        }
    }
}

// Output of checks: a table for people, JSON and JUnit XML for programs.

/// Maximum number of lines of process output per failure in the table; the documents have all.
const SHOWN_LINES: usize = 25;
/// Maximum length of a reason in the table; the full text follows below.
const SHOWN_REASON: usize = 80;

/// Flags of all commands that report checks.
#[derive(Debug, Args)]
struct ReportOptions {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Also write the result as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

impl ReportOptions {
    /// Prints a report; the exit status is 1 if there are failures.
    fn finish(&self, name: &str, report: &Report) -> Result<ExitCode> {
        self.show(name, report, report, &table_of(report))
    }

    /// As [`finish`](Self::finish), with a custom table, which is also printed by `--json`.
    fn finish_with(
        &self,
        name: &str,
        report: &Report,
        table: &(impl Serialize + fmt::Display),
    ) -> Result<ExitCode> {
        self.show(name, report, table, table)
    }

    fn show(
        &self,
        name: &str,
        report: &Report,
        document: &impl Serialize,
        table: &impl fmt::Display,
    ) -> Result<ExitCode> {
        self.write_junit(name, report)?;
        if self.json {
            outln!("{}", serde_json::to_string_pretty(document)?);
        } else {
            table::say!("{table}");
            print_failures(report);
            table::say!("{report}");
        }
        Ok(exit_code(report.is_success()))
    }

    /// Writes the document requested by `--junit`.
    fn write_junit(&self, name: &str, report: &Report) -> Result<()> {
        if let Some(path) = &self.junit {
            std::fs::write(path, report.to_junit_xml(name)?)
                .map_err(|error| format!("--junit {}: {error}", path.display()))?;
        }
        Ok(())
    }
}

/// Progress bar, on terminals only.
fn progress(checks: usize) -> ProgressBar {
    let progress = ProgressBar::new(checks as u64);
    if !std::io::stderr().is_terminal() {
        progress.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{pos}/{len} {elapsed} {wide_msg}")
        .expect("a template of known keys");
    progress.set_style(style);
    progress
}

fn table_of(report: &Report) -> String {
    let mut table = Builder::new();
    table.push_record(["suite", "check", "result", "seconds", "note"]);
    for case in &report.cases {
        table.push_record([
            case.suite.clone(),
            case.name.clone(),
            shortened(&case.outcome.to_string()),
            format!("{:.2}", case.took.as_secs_f64()),
            shortened(case.note.as_deref().unwrap_or_default()),
        ]);
    }
    let layout = table::Layout {
        right: &[],
        optional: &[4, 0],
        flexible: None,
    };
    table::render(table, layout)
}

/// Prints the failures with the output of the processes.
fn print_failures(report: &Report) {
    let failed = |case: &&Case| matches!(case.outcome, Outcome::Failed(_));
    for case in report.cases.iter().filter(failed) {
        table::say!("\n{}: {}\n  {}", case.suite, case.name, case.outcome);
        if !case.meaning.is_empty() {
            table::say!("  checks: {}", case.meaning);
        }
        let lines: Vec<&str> = case.output.iter().flat_map(|text| text.lines()).collect();
        let hidden = lines.len().saturating_sub(SHOWN_LINES);
        if hidden > 0 {
            outln!("  ({hidden} lines before these)");
        }
        lines[hidden..]
            .iter()
            .for_each(|line| table::say!("  {line}"));
    }
}

/// Shortens a text to one line of at most [`SHOWN_REASON`] characters.
fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(SHOWN_REASON) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
