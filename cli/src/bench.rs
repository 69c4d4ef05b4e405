//! `doca-storage bench`: measurements, compared with limits of the machine.

mod plan;

use std::cell::RefCell;
use std::fs::{File, OpenOptions, Permissions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ::bench::baseline::{Baseline, Comparison, Machine, Metric, Provenance, Trend};
use ::bench::deployment::{cannot_count, no_twins};
use ::bench::first_ios;
use ::bench::limits::Yardsticks;
use ::bench::report::rounds;
use ::bench::suite::{
    Kernels, Measurement, Observer, Results, Runner, Sense, Subject, Threshold, Verdict, idle,
    kernels, measure, thresholds,
};
use ::deployment::implementation::{Implementation, Role, Usage};
use ::yardstick::ring::{self, Load};
use ::yardstick::tcp;
use clap::{Args, ValueEnum, value_parser};
use control::shutdown::Shutdown;
use indicatif::{ProgressBar, ProgressStyle};
use role_common::{errln, outln, signals};
use table::Layout;
use tabled::builder::Builder;
use tempfile::NamedTempFile;

use crate::{Result, implementation, usage};

const HELP: &str = "\
Everything that is compared runs in turns, round after round; figures are medians, ratios are made within a round. The exit status is 1 if a
target value is not met, a measurement fails, the machine was too busy for the bare ring or connection (VOID), or the run is interrupted. SIGINT and SIGTERM end the run
after the current measurement; the page is written after every round, and has what was measured until then.

Examples:
  doca-storage bench                               the target values
  doca-storage bench --axes --report bench.html    all sizes and depths, plotted
  doca-storage bench --json > before.json          a baseline
  doca-storage bench --baseline before.json        changes since then
  doca-storage bench --hosts 2                     over two network namespaces
  doca-storage bench --compare nbd --compare cpp=build --impl rust=build-rust --library-path ~/softdoca/lib";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Directory of our roles' binaries [default: this program]
    #[arg(long = "impl", value_name = "rust=DIR")]
    ours: Option<String>,

    /// Reference to compare with: nbd (nbdkit's memory plugin under fio, and a null disk of qemu-storage-daemon under
    /// libblkio), or cpp=DIR with the reference's binaries; may be repeated
    #[arg(long, value_name = "nbd|cpp=DIR")]
    compare: Vec<String>,

    /// Measure only a target with its blocks in this file, and fio's io_uring engine on the same file; 512 MiB, created if the file is not
    /// there, and left there
    #[arg(long, value_name = "FILE")]
    backing: Option<PathBuf>,

    /// Measure only zero-copy reads between two machines, which are network namespaces of this one, and for comparison a bare TCP connection and
    /// nbdkit over TCP under fio
    #[arg(long, value_name = "2", value_parser = value_parser!(u8).range(2..=2), conflicts_with_all = ["backing", "compare", "axes"])]
    hosts: Option<u8>,

    /// Release of the protocol that our roles speak [default: that of the reference, detected by its initiator's flags; otherwise 3.2]
    #[arg(long, value_name = "RELEASE", value_parser = ["3.0", "3.1", "3.2"])]
    protocol: Option<String>,

    /// Directory of the DOCA libraries to run the roles' binaries with [default: from LD_LIBRARY_PATH and the programs]
    #[arg(long, value_name = "DIR")]
    library_path: Option<PathBuf>,

    /// Measure all block sizes (512 B to 1 MiB), depths (1 to 256) and numbers of workers, not only those with target values
    #[arg(long)]
    axes: bool,

    /// Number of rounds; 3 or more for a spread
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Duration of a run, in seconds or with a unit such as 200ms
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    seconds: f64,

    /// Only measurements whose names contain this text; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Also write an HTML page with plots and the latency histogram, readable offline
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Compare with an earlier run: a file with its --json output
    #[arg(long, value_name = "FILE.json")]
    baseline: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> ExitCode {
    options
        .run()
        .unwrap_or_else(|error| crate::conclude("bench", &*error))
}

/// Parses a duration in seconds, whole or not, or with a unit.
fn seconds(text: &str) -> std::result::Result<f64, String> {
    let unit = || Some(humantime::parse_duration(text).ok()?.as_secs_f64());
    text.parse()
        .ok()
        .or_else(unit)
        .ok_or_else(|| "expected seconds, such as 0.5, or a time such as 200ms".to_owned())
}

impl Options {
    fn run(&self) -> Result<ExitCode> {
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return Err(usage(format!(
                "--seconds {}: expected more than 0 and at most 3600",
                self.seconds
            )));
        }
        // Errors of files are reported before an hour of measurements, and not after it.
        let report = self.report.as_deref().map(PageFile::at).transpose()?;
        let baseline = self.baseline.as_deref().map(read_baseline).transpose()?;
        let shutdown = signals::shutdown()?;
        let mut left_out = Vec::new();
        let runner = self.runner(&mut left_out)?;
        let subjects = self.subjects(&runner, &mut left_out)?;
        let rounds = self.rounds as usize;
        let empty = Results {
            verdict: Verdict::Incomplete,
            provenance: Provenance::now(std::env::args()),
            machine: Machine::this(),
            rounds,
            rounds_completed: 0,
            interrupted: false,
            measurements: Vec::new(),
            kernels: Kernels::default(),
            idle_percent: None,
            thresholds: Vec::new(),
            left_out,
            comparison: None,
        };
        let conclude = |mut results: Results| {
            results.thresholds = thresholds(&results);
            if !self.only.is_empty() || self.is_comparison() {
                // The other thresholds were not selected.
                results
                    .thresholds
                    .retain(|threshold| threshold.value.is_some());
            }
            results.verdict = results.judge();
            results.comparison = baseline.as_ref().map(|baseline| baseline.compare(&results));
            results
        };
        let watch = Watch {
            progress: self.progress(subjects.len() * rounds),
            rounds,
            shutdown: &shutdown,
            failure: RefCell::new(None),
            write: &|completed, measurements| {
                let Some(report) = &report else { return Ok(()) };
                let results = conclude(Results {
                    rounds_completed: completed,
                    // The page is marked as interrupted until the run has completed, in case the process is killed.
                    interrupted: true,
                    measurements: measurements.to_vec(),
                    ..empty.clone()
                });
                report.write(&::bench::report::html(&results)?)
            },
        };
        let time = Duration::from_secs_f64(self.seconds);
        let (measurements, rounds_completed) = measure(&runner, &subjects, rounds, time, &watch);
        if let Some(failure) = watch.failure.take() {
            errln!("doca-storage bench: the page could not be written meanwhile: {failure}");
        }
        let mut results = Results {
            measurements,
            rounds_completed,
            ..empty.clone()
        };
        if self.only.is_empty() && !self.is_comparison() && !shutdown.is_requested() {
            watch.progress.set_message("kernels, idling");
            results.kernels = kernels(time, &mut results.left_out);
            match idle(&runner, time.max(IDLE)) {
                Ok(percent) => results.idle_percent = Some(percent),
                Err(error) => {
                    let reason = format!("a deployment without I/O: {error}");
                    results.left_out.push(reason);
                }
            }
        }
        watch.progress.finish_and_clear();
        results.interrupted = shutdown.is_requested();
        let results = conclude(results);
        if let Some(report) = &report {
            report.write(&::bench::report::html(&results)?)?;
        }
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&results)?);
        } else {
            print(&results);
        }
        Ok(match results.verdict {
            Verdict::Pass | Verdict::Incomplete if !results.interrupted => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }

    /// Returns `true` if a comparison is measured instead of the limits of the machine.
    fn is_comparison(&self) -> bool {
        self.backing.is_some() || self.hosts.is_some()
    }

    fn runner(&self, left_out: &mut Vec<String>) -> Result<Runner> {
        let program = std::env::current_exe()?;
        let library_path = match &self.library_path {
            Some(path) => Some(
                std::fs::canonicalize(path)
                    .map_err(|error| format!("--library-path {}: {error}", path.display()))?,
            ),
            None => None,
        };
        let ours = match &self.ours {
            Some(text) => implementation(text)?,
            None => {
                let directory = program.parent().ok_or("this program is in no directory")?;
                Implementation::in_directory("rust", directory)?
            }
        };
        let mut cpp = None;
        for with in &self.compare {
            if with.as_str() != "nbd" {
                cpp = Some(implementation(with)?.with_library_path(library_path.clone()));
            }
        }
        let ours = ours
            .with_library_path(library_path)
            .with_protocol(self.release(cpp.as_ref())?);
        let no_twins = match &cpp {
            Some(cpp) => no_twins(&ours, cpp)?,
            None => None,
        };
        let exchanged = no_twins.is_none();
        left_out.extend(no_twins.map(|reason| reason.to_string()));
        let mixes = plan::mixes(&ours, cpp.as_ref(), exchanged);
        if mixes.values().any(|mix| !mix.writes_gga) {
            left_out.push(
                "gga writes with the reference's service: in releases 3.0 and 3.1 it only reads"
                    .to_owned(),
            );
        }
        Ok(Runner {
            yardsticks: Yardsticks::of(&program),
            mixes,
            backing: self.backing.clone(),
            cpus: deployment::allowed_cpus()?,
            program,
        })
    }

    /// Release of the protocol for our roles; `None` for the current one.
    fn release(&self, cpp: Option<&Implementation>) -> Result<Option<String>> {
        let Some(cpp) = cpp else {
            return Ok(self.protocol.clone());
        };
        let theirs = Usage::of(cpp, Role::Initiator)?.release();
        match &self.protocol {
            Some(ours) if ours != theirs => Err(usage(format!(
                "--protocol {ours}: expected {theirs}, the release of the reference in --compare"
            ))),
            None if theirs == "3.2" => Ok(None),
            _ => Ok(Some(theirs.to_owned())),
        }
    }

    fn subjects(&self, runner: &Runner, left_out: &mut Vec<String>) -> Result<Vec<Subject>> {
        if self.backing.is_some() {
            if let Some(missing) = ::bench::file::missing() {
                return Err(missing.into());
            }
            return self.chosen(plan::files());
        }
        if self.hosts.is_some() {
            // Reports all missing programs in one error, instead of failing each measurement.
            drop(::bench::series::two_machines()?);
            let missing =
                ::bench::front_ends::nbdkit_missing().map(|missing| format!("NOT RUN: {missing}"));
            let subjects = plan::hosts(missing.is_none());
            left_out.extend(missing);
            left_out.push(NO_NVME_TCP.to_owned());
            return self.chosen(subjects);
        }
        let mut subjects = plan::thresholds(runner);
        match cannot_count() {
            None => plan::add_system_calls(&mut subjects),
            Some(reason) => left_out.push(reason),
        }
        if self.axes {
            plan::add_axes(&mut subjects);
        }
        if self.compare.iter().any(|with| with == "nbd") {
            match ::bench::front_ends::nbdkit_missing() {
                None => plan::add_nbd(&mut subjects),
                Some(missing) => left_out.push(missing),
            }
            match ::bench::front_ends::storage_daemon_missing() {
                None => plan::add_vhost_user_blk(&mut subjects),
                Some(missing) => left_out.push(missing),
            }
        }
        self.chosen(subjects)
    }

    /// Subjects selected by `--only`; all without it.
    fn chosen(&self, mut subjects: Vec<Subject>) -> Result<Vec<Subject>> {
        if !self.only.is_empty() {
            let is = |subject: &Subject| {
                let name = subject.to_string();
                self.only.iter().any(|only| name.contains(only.as_str()))
            };
            let names: Vec<_> = subjects.iter().map(ToString::to_string).collect();
            // The first I/Os after a pause can only be interpreted with the machine's wake-up time.
            let after_pause = subjects
                .iter()
                .any(|subject| is(subject) && matches!(subject, Subject::FirstIos { .. }));
            subjects.retain(|subject| is(subject) || after_pause && *subject == Subject::WakeUp);
            if subjects.is_empty() {
                return Err(usage(format!(
                    "--only: expected a part of one of\n  {}",
                    names.join("\n  ")
                )));
            }
        }
        Ok(subjects)
    }

    fn progress(&self, runs: usize) -> ProgressBar {
        if self.json {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template(
            "{spinner} {pos}/{len} {elapsed}, about {eta} left: {wide_msg}",
        )
        .expect("a template of known keys");
        let bar = ProgressBar::new(runs as u64).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        bar
    }
}

/// Reads the results of an earlier run.
fn read_baseline(path: &Path) -> Result<Baseline> {
    let wrong = |error: &dyn std::fmt::Display| {
        format!(
            "--baseline {}: expected what `doca-storage bench --json` has printed, got: {error}",
            path.display()
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    Ok(Baseline::parse(&text).map_err(|error| wrong(&error))?)
}

/// Shows the progress of a measurement, and writes its page after each round.
struct Watch<'a> {
    progress: ProgressBar,
    rounds: usize,
    shutdown: &'a Shutdown,
    write: &'a dyn Fn(usize, &[Measurement]) -> Result<()>,
    /// Last error of writing the page.
    failure: RefCell<Option<String>>,
}

impl Observer for Watch<'_> {
    fn run_begins(&self, subject: &Subject, round: usize) {
        let message = format!("round {round} of {}, {subject}", self.rounds);
        self.progress.set_message(message);
        self.progress.inc(1);
    }

    fn round_completed(&self, rounds: usize, measurements: &[Measurement]) {
        let written = (self.write)(rounds, measurements);
        *self.failure.borrow_mut() = written.err().map(|error| error.to_string());
    }

    fn is_interrupted(&self) -> bool {
        self.shutdown.is_requested()
    }
}

/// Reason, printed with the comparison of two machines, for not measuring NVMe/TCP.
const NO_NVME_TCP: &str = "NVMe/TCP: not compared: the kernel's target and host (nvmet_tcp, nvme_tcp) are root's, and belong to the machine and not to a \
     network namespace; SPDK is in no Debian package";

/// Minimum duration of the idle measurement: a tick of CPU time is 10 ms.
const IDLE: Duration = Duration::from_secs(5);

/// Destination of a page. An existing file is kept until a page is complete, and is then replaced atomically.
#[derive(Debug)]
struct PageFile {
    path: PathBuf,
    /// The destination if it is a device or a pipe, which cannot be replaced.
    device: Option<File>,
}

impl PageFile {
    /// Checks that a page can be written to `path`.
    fn at(path: &Path) -> Result<Self> {
        Self::check(path).map_err(|error| format!("--report {}: {error}", path.display()).into())
    }

    fn check(path: &Path) -> Result<Self> {
        let mut page = Self {
            // A link's target is replaced, and not the link.
            path: path.canonicalize().unwrap_or_else(|_| path.to_owned()),
            device: None,
        };
        match page.path.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                return Err("expected a file, got a directory".into());
            }
            Ok(metadata) if !metadata.is_file() => {
                page.device = Some(OpenOptions::new().write(true).open(&page.path)?);
            }
            Ok(_) => {
                OpenOptions::new().write(true).open(&page.path)?;
                page.temporary()?;
            }
            Err(_) => drop(page.temporary()?),
        }
        Ok(page)
    }

    /// Replaces the page.
    fn write(&self, page: &str) -> Result<()> {
        let wrong = |error| format!("--report {}: {error}", self.path.display());
        match &self.device {
            Some(device) => {
                let mut device: &File = device;
                device.write_all(page.as_bytes()).map_err(wrong)?;
            }
            None => {
                let mut file = self.temporary().map_err(wrong)?;
                file.write_all(page.as_bytes()).map_err(wrong)?;
                file.persist(&self.path)
                    .map_err(|error| wrong(error.error))?;
            }
        }
        Ok(())
    }

    /// Creates a temporary file in the same directory.
    fn temporary(&self) -> std::io::Result<NamedTempFile> {
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        tempfile::Builder::new()
            .prefix(".bench")
            .suffix(".html")
            // Permissions of a new file: the umask applies.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory)
    }
}

// Table of results.

fn print(results: &Results) {
    let machine = &results.machine;
    table::say!(
        "{}, {} CPUs, Linux {}, load {:.1} before; medians of {}; software DOCA, no BlueField involved",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.load,
        rounds(results.rounds_completed)
    );
    if results
        .measurements
        .iter()
        .any(|one| one.subject.has_rate())
    {
        print_measurements(&results.measurements);
    }
    if !results.thresholds.is_empty() {
        print_thresholds(&results.thresholds);
    }
    for reason in &results.left_out {
        table::say!("left out: {reason}");
    }
    for measurement in results.measurements.iter().filter(|one| one.crashes > 0) {
        table::say!(
            "{}: {} sessions began again, because a C++ program crashed",
            measurement.series.name,
            measurement.crashes
        );
    }
    for measurement in &results.measurements {
        if let Some(failure) = &measurement.failure {
            table::say!("FAIL {}: {failure}", measurement.series.name);
        }
    }
    if let Some(comparison) = &results.comparison {
        print_changes(comparison);
    }
    if results.interrupted {
        table::say!(
            "INTERRUPTED after {} of {} rounds",
            results.rounds_completed,
            results.rounds
        );
    }
    if results.verdict == Verdict::Void {
        table::say!(
            "VOID: the bare ring or connection was too slow, so the machine did something else: run it again when nothing else runs"
        );
    }
    let [holding, missed, unknown] = results.counts();
    table::say!("{holding} target values met, {missed} missed, {unknown} not measured");
}

fn print_changes(comparison: &Comparison) {
    let mut table = Builder::new();
    table.push_record([
        "since the baseline",
        "figure",
        "then",
        "now",
        "change",
        "spread",
        "",
    ]);
    for change in &comparison.changes {
        let spread = change.spread.map_or_else(
            || "-".to_owned(),
            |[low, high]| format!("{:+.1} to {:+.1} %", low * 1e2, high * 1e2),
        );
        table.push_record([
            change.name.clone(),
            match change.metric {
                Metric::Rate => "k I/O/s",
                Metric::MedianLatency => "p50 us",
            }
            .to_owned(),
            format!("{:.1}", change.then / 1e3),
            format!("{:.1}", change.now / 1e3),
            format!("{:+.1} %", change.change * 1e2),
            spread,
            match change.trend {
                Trend::Better => "better",
                Trend::Worse => "WORSE",
                Trend::WithinSpread => "within spread",
                Trend::Unknown => "too few runs",
            }
            .to_owned(),
        ]);
    }
    let layout = Layout {
        right: &[2, 3, 4, 5],
        optional: &[2, 3],
        flexible: Some(0),
    };
    outln!("{}", table::render(table, layout));
    for difference in &comparison.differences {
        table::say!("the baseline is of another machine: {difference}");
    }
}

fn print_measurements(measurements: &[Measurement]) {
    let mut table = Builder::new();
    table.push_record([
        "measured",
        "k I/O/s",
        "min",
        "max",
        "GiB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "CPU us/I/O: initiator",
        "service",
        "targets",
    ]);
    // Measurements without a rate are shown with their thresholds.
    for measurement in measurements.iter().filter(|one| one.subject.has_rate()) {
        let series = &measurement.series;
        let text = |value: Option<f64>, unit: f64, digits: usize| {
            value.map_or_else(
                || "-".to_owned(),
                |value| format!("{:.digits$}", value / unit),
            )
        };
        let rates = || series.runs.iter().map(|run| run.rate);
        table.push_record([
            series.name.clone(),
            text(series.median(|run| Some(run.rate)), 1e3, 1),
            text(rates().reduce(f64::min), 1e3, 1),
            text(rates().reduce(f64::max), 1e3, 1),
            text(
                series.median(|run| Some(run.bandwidth)),
                f64::from(1 << 30),
                2,
            ),
            text(series.median(|run| Some(run.latency?.p50_ns)), 1e3, 1),
            text(series.median(|run| Some(run.latency?.p99_ns)), 1e3, 1),
            text(series.median(|run| Some(run.latency?.p99_9_ns)), 1e3, 1),
            text(series.median(|run| Some(run.cpu_ns?.initiator)), 1e3, 2),
            text(series.median(|run| Some(run.cpu_ns?.service)), 1e3, 2),
            text(series.median(|run| Some(run.cpu_ns?.targets)), 1e3, 2),
        ]);
    }
    let layout = Layout {
        right: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        optional: &[10, 9, 8, 7, 2, 3, 6],
        flexible: Some(0),
    };
    outln!("{}", table::render(table, layout));
}

fn print_thresholds(thresholds: &[Threshold]) {
    let mut table = Builder::new();
    table.push_record(["threshold", "value", "wanted", "holds", "from"]);
    for threshold in thresholds {
        let sense = match threshold.sense {
            Sense::AtLeast => ">=",
            Sense::AtMost => "<=",
        };
        let holds = match threshold.holds() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "not measured",
        };
        table.push_record([
            threshold.name.clone(),
            threshold
                .value
                .map_or_else(|| "-".to_owned(), |value| format!("{value:.3}")),
            format!("{sense} {:.2}", threshold.limit),
            holds.to_owned(),
            threshold.detail.clone(),
        ]);
    }
    let layout = Layout {
        right: &[1, 2],
        optional: &[4],
        flexible: Some(0),
    };
    outln!("{}", table::render(table, layout));
}

// Processes that only `bench` starts: the initiator that pauses, and the baselines.

#[derive(Debug, Args)]
pub struct FirstIosOptions {
    /// Name of the service's channel
    #[arg(long)]
    channel: String,

    /// CPU that it runs on
    #[arg(long)]
    cpu: usize,

    /// I/Os on their way
    #[arg(long)]
    transactions: u32,
}

/// Runs the load, and prints its measurements as JSON.
pub fn run_first_ios(options: &FirstIosOptions) -> ExitCode {
    play_first_ios(options).map_or_else(
        |error| crate::conclude("first-ios", &*error),
        |()| ExitCode::SUCCESS,
    )
}

fn play_first_ios(options: &FirstIosOptions) -> Result<()> {
    ::yardstick::pin(options.cpu)?;
    let load = first_ios::Load {
        channel: options.channel.clone(),
        transactions: options.transactions,
    };
    outln!("{}", serde_json::to_string(&first_ios::run(&load)?)?);
    Ok(())
}

#[derive(Debug, Args)]
pub struct YardstickOptions {
    /// Process of the pipeline, or of the connection
    #[arg(value_enum)]
    stage: Stage,

    /// Memory shared by the three processes of the pipeline
    #[arg(long, value_name = "FILE", required_unless_present = "address")]
    memory: Option<PathBuf>,

    /// Address of the connection's server
    #[arg(long, value_name = "ADDRESS:PORT", required_if_eq_any = [("stage", "client"), ("stage", "server")])]
    address: Option<SocketAddr>,

    /// CPU to run on
    #[arg(long)]
    cpu: usize,

    /// Number of I/Os in flight
    #[arg(long)]
    transactions: usize,

    /// Size of an I/O in bytes
    #[arg(long)]
    block_size: usize,

    /// Number of blocks of the target
    #[arg(long)]
    blocks: usize,

    /// Total number of I/Os
    #[arg(long)]
    operations: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Stage {
    Initiator,
    Service,
    Target,
    Client,
    Server,
}

/// Runs the process; the initiator or client prints its measurement as JSON.
pub fn run_yardstick(options: &YardstickOptions) -> ExitCode {
    play_yardstick(options).map_or_else(
        |error| crate::conclude("yardstick", &*error),
        |()| ExitCode::SUCCESS,
    )
}

fn play_yardstick(options: &YardstickOptions) -> Result<()> {
    ::yardstick::pin(options.cpu)?;
    let load = Load {
        transactions: options.transactions,
        block_size: options.block_size,
        blocks: options.blocks,
        operations: options.operations,
    };
    let memory = || options.memory.as_deref().ok_or("expected --memory");
    let address = || options.address.ok_or("expected --address");
    let measured = match options.stage {
        Stage::Initiator => ring::run(ring::Stage::Initiator, memory()?, load)?,
        Stage::Service => ring::run(ring::Stage::Service, memory()?, load)?,
        Stage::Target => ring::run(ring::Stage::Target, memory()?, load)?,
        Stage::Client => Some(tcp::run(address()?, load)?),
        Stage::Server => {
            tcp::serve(address()?, load)?;
            None
        }
    };
    if let Some(measured) = measured {
        outln!("{}", serde_json::to_string(&measured)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_replaces_the_earlier_one_only_when_it_is_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("page.html");
        std::fs::write(&path, "earlier").expect("written");
        let page = PageFile::at(&path).expect("a place");
        assert_eq!(std::fs::read_to_string(&path).expect("a page"), "earlier");
        page.write("new").expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("a page"), "new");
        let files = directory.path().read_dir().expect("a directory").count();
        assert_eq!(files, 1, "nothing else is left there");
    }

    #[test]
    fn unusable_places_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(PageFile::at(directory.path()).is_err());
        assert!(PageFile::at(&directory.path().join("missing/page.html")).is_err());
        let device = PageFile::at(Path::new("/dev/null")).expect("a device");
        device.write("page").expect("written");
        assert!(!Path::new("/dev/null").metadata().expect("there").is_file());
    }
}
