//! Random faults in a live deployment under a validating load, and in a simulation of it in virtual time.

use std::io::IsTerminal as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::conformance::hammer::{
    self, Commands, Counts, Intruder, Load, LoadKind, Malformed, Row, Settings, Task, Totals,
    Verifier,
};
use ::conformance::matrix::Layout;
use ::deployment::implementation::{Implementation, Role};
use ::deployment::network::Network;
use clap::{Args, ValueEnum, value_parser};
use gga_engine::simulation::{self, Violation};
use indicatif::{ProgressBar, ProgressStyle};
use role_common::flags::duration;
use role_common::{errln, outln, signals};
use serde::Serialize;
use tabled::builder::Builder;

use super::{LayoutChoice, ReportOptions, Result, exit_code, seconds, usage};

const HAMMER_HELP: &str = "\
Starts real processes: a service, its targets with backing files, a load in place of the initiator, and a verifier that receives no faults.
Each round is a session of the load. In one phase of it, the service, a target or the load is killed, stopped, delayed, cut off, or sent
malformed messages; then all blocks are read back. A block must hold the last acknowledged write, or one issued after it.
The same seed gives the same rounds and the same I/Os, but the I/O that a fault interrupts depends on timing.
With --hosts, service and targets run on machines of their own, with RDMA over TCP, and links are cut, delayed or lossy, too.
With --load nbd, clients of an NBD server in front of the service read and write; the server is killed and restarted, too, and no I/O may fail.
The exit status is 0 if all processes behaved as expected. Otherwise the run stops, and leaves logs, blocks and evidence.

Examples:
  doca-storage conformance hammer              a minute, both deployments
  doca-storage conformance hammer --layout gga --duration 1h
  doca-storage conformance hammer --seed 7 --only 'kill, target' --json
  doca-storage conformance hammer --layout gga --hosts 4 --duration 10m
  doca-storage conformance hammer --bin build --junit hammer.xml";

#[derive(Debug, Args)]
#[command(after_help = HAMMER_HELP)]
pub(in crate::conformance) struct Hammer {
    /// Source of the I/O: an initiator, or clients of an NBD server (doca-storage nbd) that reconnect
    #[arg(long, value_enum, default_value_t = LoadChoice::Initiator)]
    load: LoadChoice,

    /// Deployments to test; each gets an equal share of the time
    #[arg(long, value_enum, default_value_t = LayoutChoice::All)]
    layout: LayoutChoice,

    /// Time after which no further round starts: a number with s, m or h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    duration: Duration,

    /// Seed of rounds and I/Os [default: random, and printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Only faults whose description (as in the table: fault, role, phase) contains this text; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,

    /// Directory of the roles' programs, or of a doca-storage [default: this program]
    #[arg(long = "bin", value_name = "DIR")]
    binaries: Option<PathBuf>,

    /// Directory of the DOCA libraries for the roles [default: from LD_LIBRARY_PATH and the programs]
    #[arg(long, value_name = "DIR")]
    library_path: Option<PathBuf>,

    /// Number of blocks of the storage
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u64).range(8..=65536))]
    blocks: u64,

    /// Time limit in seconds for all roles to detect a fault and then to serve again or exit
    #[arg(long, value_name = "SECONDS", default_value_t = 40, value_parser = seconds(10, 600))]
    limit: u64,

    /// Run on this many machines, which are network namespaces, and also cut, delay and impair their links: the service runs on machine 0, each
    /// target on a machine of its own. Must be 4, or 2 with --layout zero-copy
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(2..=4))]
    hosts: Option<u8>,

    #[command(flatten)]
    report: ReportOptions,
}

/// Source of the I/O.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum LoadChoice {
    Initiator,
    Nbd,
}

/// Timeout of the load for a response: longer than the services' timeouts.
const TIMEOUT: Duration = Duration::from_secs(8);

impl Hammer {
    /// Checks the number of machines.
    fn check(&self) -> Result<()> {
        let Some(hosts) = self.hosts else {
            return Ok(());
        };
        if matches!(self.load, LoadChoice::Nbd) {
            return Err(usage(
                "expected --load initiator with --hosts, got --load nbd",
            ));
        }
        let layouts = self.layout.layouts().iter();
        let needed = layouts.map(|layout| 1 + layout.targets().len()).max();
        if needed.is_some_and(|needed| needed > usize::from(hosts)) {
            return Err(usage(format!(
                "expected a machine for each target and one for the service, got --hosts {hosts}: use --hosts 4, or --hosts 2 --layout zero-copy"
            )));
        }
        // Fails here, so that it is not reported as a fault that was not survived.
        drop(Network::new(2)?);
        Ok(())
    }

    /// Runs the test and prints the result.
    pub(in crate::conformance) fn run(&self) -> Result<ExitCode> {
        self.check()?;
        let shutdown = signals::shutdown()?;
        let seed = match self.seed {
            Some(seed) => seed,
            None => random_seed()?,
        };
        let hammer = hammer::Hammer {
            settings: self.settings(seed)?,
            actors: actors()?,
        };
        errln!("seed {seed}");
        let progress = self.progress();
        let show = |now: &str, totals: &Totals| {
            progress.set_message(format!("{} faults, {now}", totals.injected()));
        };
        let totals = hammer.run(&show, &|| shutdown.is_requested());
        progress.finish_and_clear();
        let report = totals.report();
        self.report.write_junit("conformance hammer", &report)?;
        if self.report.json {
            outln!("{}", serde_json::to_string_pretty(&totals)?);
        } else {
            print_totals(&totals, &self.command_line(seed));
        }
        Ok(exit_code(report.is_success()))
    }

    fn settings(&self, seed: u64) -> Result<Settings> {
        let libraries = match &self.library_path {
            Some(path) => Some(
                std::fs::canonicalize(path)
                    .map_err(|error| format!("--library-path {}: {error}", path.display()))?,
            ),
            None => None,
        };
        let own = std::env::current_exe()?;
        let implementation = match &self.binaries {
            Some(directory) => Implementation::in_directory("given", directory)?,
            None => Implementation::of_binary("own", Role::Target, &own),
        };
        Ok(Settings {
            implementation: implementation.with_library_path(libraries),
            load: match self.load {
                LoadChoice::Initiator => LoadKind::Initiator,
                LoadChoice::Nbd => LoadKind::Nbd,
            },
            layouts: self.layout.layouts().to_vec(),
            seed,
            duration: self.duration,
            only: self.only.clone(),
            blocks: self.blocks,
            cpus: deployment::allowed_cpus()?,
            timeout: TIMEOUT,
            limit: Duration::from_secs(self.limit),
            cable: match self.hosts {
                None => None,
                Some(_) => Some(vec![
                    std::env::current_exe()?.into_os_string(),
                    "conformance".into(),
                    "cable".into(),
                ]),
            },
        })
    }

    fn progress(&self) -> ProgressBar {
        if self.report.json || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}")
            .expect("a template of known keys");
        let progress = ProgressBar::new_spinner().with_style(style);
        progress.enable_steady_tick(Duration::from_millis(200));
        progress
    }

    /// Command line that repeats the run.
    fn command_line(&self, seed: u64) -> String {
        let own = std::env::args().next().unwrap_or_default();
        let mut words = vec![format!("{own} conformance hammer --seed {seed}")];
        let mut skip = false;
        for word in std::env::args().skip(3) {
            if skip || word == "--seed" || word.starts_with("--seed=") {
                skip = word == "--seed";
                continue;
            }
            words.push(if word.contains([' ', ',']) {
                format!("'{word}'")
            } else {
                word
            });
        }
        words.join(" ")
    }
}

pub(super) fn random_seed() -> Result<u64> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_be_bytes(bytes).into())
}

// Table of results.

/// Prints faults, roles, results, and how to repeat the run.
fn print_totals(totals: &Totals, again: &str) {
    let mut table = Builder::new();
    table.push_record([
        "layout",
        "role",
        "fault",
        "phase",
        "injected",
        "survived",
        "session went on",
        "acknowledged",
        "read back",
        "failed",
        "in doubt",
        "lost",
        "wrong",
    ]);
    for (layout, rows) in totals.by_layout() {
        for row in rows.into_iter().filter(|row| row.injected > 0) {
            table.push_record(record(layout, row));
        }
    }
    table.push_record(totals_row(totals));
    let layout = table::Layout {
        right: &[],
        optional: &[7, 8, 9, 10, 6],
        flexible: None,
    };
    outln!("{}", table::render(table, layout));
    let torn = totals.blocks.torn;
    if torn > 0 {
        let note = "blocks were neither old nor new: a target was killed, or missing, when a write was cut off that was never acknowledged";
        table::say!("{torn} {note}");
    }
    table::say!(
        "columns from \"acknowledged\" on count blocks; \"failed\" ended in an error, \"in doubt\" never ended"
    );
    let stalled: u64 = totals.rows.iter().map(|row| row.stalled).sum();
    if stalled > 0 {
        table::say!(
            "{stalled} sessions ended although they should have gone on, while the machine did not complete a write of this program's for 2 s either"
        );
    }
    if let Some(failed) = &totals.failed {
        table::say!("\n{}\n  {}", failed.round, failed.what);
        table::say!(
            "  logs, blocks and evidence: {}",
            failed.directory.display()
        );
    }
    table::say!("{}", verdict(totals));
    outln!("again:\n{}", table::command(again));
}

fn record(layout: &str, row: &Row) -> Vec<String> {
    let texts = [
        layout.to_owned(),
        row.injection.faulty.name().to_owned(),
        row.injection.fault.name().to_owned(),
        row.injection.phase.name().to_owned(),
    ];
    let numbers = [row.injected, row.survived, row.went_on];
    line(texts, numbers, row.blocks)
}

fn totals_row(totals: &Totals) -> Vec<String> {
    let texts = ["all", "", "", "with read-backs"].map(str::to_owned);
    let sum = |of: fn(&Row) -> u64| totals.rows.iter().map(of).sum();
    let numbers = [
        totals.injected(),
        sum(|row| row.survived),
        sum(|row| row.went_on),
    ];
    line(texts, numbers, totals.blocks)
}

fn line(texts: [String; 4], numbers: [u64; 3], blocks: Counts) -> Vec<String> {
    let blocks = [
        blocks.acknowledged,
        blocks.read_back,
        blocks.failed,
        blocks.in_doubt,
        blocks.lost,
        blocks.wrong,
    ];
    let numbers = numbers.into_iter().chain(blocks);
    texts
        .into_iter()
        .chain(numbers.map(|number| number.to_string()))
        .collect()
}

fn verdict(totals: &Totals) -> String {
    let kinds = totals.rows.iter().filter(|row| row.injected > 0).count();
    let word = match (&totals.failed, totals.injected()) {
        (Some(_), _) => "FAIL",
        (None, 0) => "NOT RUN",
        (None, _) => "PASS",
    };
    let cut = if totals.interrupted {
        ", interrupted before its time was over"
    } else {
        ""
    };
    format!(
        "{word}: {} faults of {kinds} kinds ({} were not tried) in {:.0} s{cut}",
        totals.injected(),
        totals.rows.len() - kinds,
        totals.took.as_secs_f64()
    )
}

// Child processes of the hammer: this program with a subcommand.

/// Command lines of the child processes, without their own flags.
fn actors() -> Result<Commands> {
    let own = std::env::current_exe()?;
    let program = move |name: &str| {
        let mut command = Command::new(&own);
        command.args(["conformance", name]);
        command
    };
    let (load, verifier, intruder) = (program.clone(), program.clone(), program);
    let own = std::env::current_exe()?;
    Ok(Commands {
        load: Box::new(move |options| LoadOptions::from(options).command(load("hammer-load"))),
        verifier: Box::new(move |options| {
            VerifierOptions::command(options, verifier("hammer-verifier"))
        }),
        intruder: Box::new(move |options| {
            IntruderOptions::command(options, intruder("hammer-intruder"))
        }),
        front_end: Box::new(move || {
            let mut command = Command::new(&own);
            command.arg("nbd");
            command
        }),
    })
}

/// Flags of the load.
#[derive(Debug, Args)]
pub(in crate::conformance) struct LoadOptions {
    #[arg(long)]
    channel: String,
    #[arg(long)]
    device: String,
    #[arg(long)]
    verifier: PathBuf,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    session: u64,
    #[arg(long, value_enum)]
    service: ServiceChoice,
    #[arg(long, value_enum)]
    task: TaskChoice,
    #[arg(long)]
    cut_off: bool,
    #[arg(long, value_enum)]
    malformed: MischiefChoice,
    #[arg(long)]
    timeout: u64,
}

/// Implements a flag for an enumeration.
macro_rules! choice {
    ($name:ident, $of:ty, $($value:ident),*) => {
        #[derive(Debug, Clone, Copy, ValueEnum)]
        enum $name {
            $($value),*
        }

        impl From<$of> for $name {
            fn from(value: $of) -> Self {
                match value {
                    $(<$of>::$value => Self::$value),*
                }
            }
        }

        impl From<$name> for $of {
            fn from(choice: $name) -> Self {
                match choice {
                    $($name::$value => Self::$value),*
                }
            }
        }

        impl $name {
            fn text(self) -> String {
                let value = self.to_possible_value();
                value.map(|value| value.get_name().to_owned()).unwrap_or_default()
            }
        }
    };
}

choice!(ServiceChoice, Layout, ZeroCopy, Gga);
choice!(TaskChoice, Task, Fill, Run, ReadBack);
choice!(MischiefChoice, Malformed, None, Io, Control);

impl From<&Load> for LoadOptions {
    fn from(load: &Load) -> Self {
        Self {
            channel: load.channel.clone(),
            device: load.device.clone(),
            verifier: load.verifier.clone(),
            seed: load.seed,
            session: load.session,
            service: load.layout.into(),
            task: load.task.into(),
            cut_off: load.cut_off,
            malformed: load.malformed.into(),
            timeout: load.timeout.as_secs(),
        }
    }
}

impl LoadOptions {
    fn command(&self, mut command: Command) -> Command {
        command
            .args(["--channel", &self.channel])
            .args(["--device", &self.device])
            .arg("--verifier")
            .arg(&self.verifier)
            .args(["--seed", &self.seed.to_string()])
            .args(["--session", &self.session.to_string()])
            .args(["--service", &self.service.text()])
            .args(["--task", &self.task.text()])
            .args(["--malformed", &self.malformed.text()])
            .args(["--timeout", &self.timeout.to_string()]);
        if self.cut_off {
            command.arg("--cut-off");
        }
        command
    }

    pub(in crate::conformance) fn play(&self) -> Result<ExitCode> {
        let shutdown = signals::shutdown()?;
        let load = Load {
            channel: self.channel.clone(),
            device: self.device.clone(),
            verifier: self.verifier.clone(),
            seed: self.seed,
            session: self.session,
            layout: self.service.into(),
            task: self.task.into(),
            cut_off: self.cut_off,
            malformed: self.malformed.into(),
            timeout: Duration::from_secs(self.timeout),
        };
        load.play(&|| shutdown.is_requested())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Flags of the verifier.
#[derive(Debug, Args)]
pub(in crate::conformance) struct VerifierOptions {
    #[arg(long)]
    socket: PathBuf,
    #[arg(long)]
    blocks: u64,
    #[arg(long)]
    evidence: PathBuf,
}

impl VerifierOptions {
    fn command(verifier: &Verifier, mut command: Command) -> Command {
        let path = |command: &mut Command, flag: &str, path: &Path| {
            command.arg(flag).arg(path);
        };
        path(&mut command, "--socket", &verifier.socket);
        path(&mut command, "--evidence", &verifier.evidence);
        command.args(["--blocks", &verifier.blocks.to_string()]);
        command
    }

    /// Runs until the parent process has exited.
    pub(in crate::conformance) fn watch(&self) -> Result<ExitCode> {
        let verifier = Verifier {
            socket: self.socket.clone(),
            blocks: self.blocks,
            evidence: self.evidence.clone(),
        };
        verifier.watch()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Flags of the intruder.
#[derive(Debug, Args)]
pub(in crate::conformance) struct IntruderOptions {
    #[arg(long)]
    channel: String,
    #[arg(long)]
    device: String,
    #[arg(long)]
    seed: u64,
}

impl IntruderOptions {
    fn command(intruder: &Intruder, mut command: Command) -> Command {
        command
            .args(["--channel", &intruder.channel])
            .args(["--device", &intruder.device])
            .args(["--seed", &intruder.seed.to_string()]);
        command
    }

    /// Disrupts a service.
    pub(in crate::conformance) fn intrude(&self) -> Result<ExitCode> {
        let intruder = Intruder {
            channel: self.channel.clone(),
            device: self.device.clone(),
            seed: self.seed,
        };
        intruder.intrude()?;
        Ok(ExitCode::SUCCESS)
    }
}

// Simulated deployments of the gga_offload service's redundancy, in virtual time.

const SIMULATE_HELP: &str = "\
The real engine, superblocks, chunks and assembly of the gga_offload service run in virtual time, with simulated targets that keep
versions, links and client. Processes and machines crash and restart, links are cut, processes stall, disks are full, lose and misdirect
writes, flip bits, cannot be read, and are replaced by old copies, empty disks, or disks of another set; a second service is started, and
flags do not fit. An oracle that knows only what SECURITY.md promises checks every answer; at the end, everything is repaired, every block
must be readable from any two targets, and the state must be healthy. A seed always gives the same run. The first violation is printed
with the fewest steps that reproduce it.

Uses of the limits that SECURITY.md states are counted by sentence. With --all-states, as for a nightly run of 10 minutes or more, states
and decisions that no run has reached are a failure, too.

Exit status: 0 if no run violated a promise (and, with --all-states, all states were reached), otherwise 1.

Examples:
  doca-storage conformance simulate                   a minute, on all CPUs
  doca-storage conformance simulate --duration 10m --all-states
  doca-storage conformance simulate --seed 1234       one run";

#[derive(Debug, Args)]
#[command(after_help = SIMULATE_HELP)]
pub(super) struct Simulate {
    /// Only the run with this seed
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    seed: Option<u64>,

    /// First seed [default: random, and printed]
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    from: Option<u64>,

    /// Time after which no further run begins, for example 90s or 10m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    duration: Duration,

    /// Number of concurrent runs [default: number of CPUs]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Fail if a state or decision was not reached
    #[arg(long, conflicts_with = "seed")]
    all_states: bool,

    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct SimulationReport {
    first_seed: u64,
    runs: u64,
    seconds: f64,
    #[serde(flatten)]
    totals: simulation::Totals,
    /// States and decisions that no run has reached.
    unreached: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    violation: Option<Box<Violation>>,
}

impl Simulate {
    /// Runs the simulations, and prints the result.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let first_seed = match self.seed.or(self.from) {
            Some(seed) => seed,
            None => random_seed()? << 16,
        };
        let report = self.simulate(first_seed)?;
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print_simulation(&report);
        }
        let is_blind = self.all_states && !report.unreached.is_empty();
        Ok(if report.violation.is_none() && !is_blind {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn simulate(&self, first_seed: u64) -> Result<SimulationReport> {
        let shutdown = signals::shutdown()?;
        let progress = self.progress();
        let began = Instant::now();
        let (next, runs) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_over = AtomicBool::new(false);
        let result = Mutex::new((simulation::Totals::default(), None::<Box<Violation>>));
        let jobs = match (self.seed, self.jobs) {
            (Some(_), _) => 1,
            (None, Some(jobs)) => jobs.get(),
            (None, None) => thread::available_parallelism().map_or(1, NonZeroUsize::get),
        };
        let work = || {
            while !is_over.load(Ordering::Acquire) {
                let run = next.fetch_add(1, Ordering::AcqRel);
                if run > 0 && (self.seed.is_some() || began.elapsed() >= self.duration) {
                    break;
                }
                let outcome = simulation::run(first_seed.wrapping_add(run));
                let mut result = result.lock().expect("no run panics under the lock");
                runs.fetch_add(1, Ordering::AcqRel);
                match outcome {
                    Ok(totals) => result.0.add(&totals),
                    Err(violation) => {
                        result.1.get_or_insert(violation);
                        is_over.store(true, Ordering::Release);
                    }
                }
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
            while workers.iter().any(|worker| !worker.is_finished()) {
                thread::sleep(Duration::from_millis(20));
                if shutdown.is_requested() {
                    is_over.store(true, Ordering::Release);
                }
                progress.set_message(format!(
                    "{} runs from seed {first_seed} on",
                    runs.load(Ordering::Acquire)
                ));
                progress.tick();
            }
        });
        progress.finish_and_clear();
        let (totals, violation) = result.into_inner().expect("no run panics under the lock");
        Ok(SimulationReport {
            first_seed,
            runs: runs.into_inner(),
            seconds: began.elapsed().as_secs_f64(),
            unreached: totals.unreached(),
            totals,
            violation,
        })
    }

    fn progress(&self) -> ProgressBar {
        if self.json || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}")
            .expect("a template of known keys");
        ProgressBar::new_spinner().with_style(style)
    }
}

fn print_simulation(report: &SimulationReport) {
    if let Some(violation) = &report.violation {
        table::say!("{violation}");
    }
    let simulation::Totals {
        sessions,
        ios,
        faults,
        excuses,
        reached: _,
    } = &report.totals;
    table::say!(
        "{} runs from seed {} on, in {:.1} s",
        report.runs,
        report.first_seed,
        report.seconds
    );
    outln!("  sessions of the service  {sessions:>10}");
    outln!("  I/Os                     {ios:>10}");
    outln!("  faults                   {faults:>10}");
    if !excuses.is_empty() {
        outln!("  uses of the limits that SECURITY.md states:");
        for (id, count) in excuses {
            table::say!("  {count:>10}  {id}");
        }
    }
    if report.runs > 1 && !report.unreached.is_empty() {
        table::say!("  not reached: {}", report.unreached.join(", "));
    }
    match &report.violation {
        None => outln!("no violation"),
        Some(violation) => table::say!("1 violation; run it again with --seed {}", violation.seed),
    }
}
