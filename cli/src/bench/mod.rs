//! `doca-storage bench`: figures, and the limits of the machine beside them.

pub mod first_ios;
mod plan;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::bench::deployment::cannot_count;
use ::bench::limits::Yardsticks;
use ::bench::linkage::no_twins;
use ::bench::machine::Machine;
use ::bench::suite::{Kernels, Results, Runner, Subject, bars, idle, kernels, measure};
use ::deployment::implementation::Implementation;
use clap::{Args, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use role_common::shutdown::Shutdown;
use role_common::{errln, outln};

const HELP: &str = "\
Everything that is compared runs in turns, round after round; figures are medians, ratios are made within a round. The exit status is
the number of bars that do not hold, and 0 only when the machine was quiet enough for the bare ring.

Examples:
  doca-storage bench                                      the bars
  doca-storage bench --axes --report bench.html           all sizes and depths, as a page with plots
  doca-storage bench --compare nbd --compare cpp=build --impl rust=build-rust --library-path ~/softdoca/lib";

/// Its flags.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Directory of our roles' binaries [default: this program]
    #[arg(long = "impl", value_name = "rust=DIR")]
    ours: Option<String>,

    /// What to compare with: nbd (nbdkit's memory plugin under fio), or cpp=DIR with the reference's binaries; may be repeated
    #[arg(long, value_name = "nbd|cpp=DIR")]
    compare: Vec<String>,

    /// Measure a target with its blocks in this file beside fio's io_uring engine on the same one, and nothing else; 512 MiB, made when it is not
    /// there, and left there
    #[arg(long, value_name = "FILE")]
    backing: Option<PathBuf>,

    /// The release of the protocol that our roles speak, for a reference of that release [default: they detect it; 3.2 among themselves]
    #[arg(long, value_name = "RELEASE", value_parser = ["3.0", "3.1", "3.2"])]
    protocol: Option<String>,

    /// Directory of the DOCA libraries to run the roles' binaries with [default: what LD_LIBRARY_PATH and the programs say]
    #[arg(long, value_name = "DIR")]
    library_path: Option<PathBuf>,

    /// Measure all block sizes (512 B to 1 MiB), depths (1 to 256) and numbers of workers, and not only what the bars need
    #[arg(long)]
    axes: bool,

    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Seconds of a run
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,

    /// Only what has this in its name; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Write a page with the plots, too, readable offline
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Measures.
pub fn run(options: &Options) -> ExitCode {
    options.run().unwrap_or_else(|error| {
        errln!("doca-storage bench: error: {error}");
        ExitCode::FAILURE
    })
}

impl Options {
    fn run(&self) -> Result<ExitCode> {
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return Err(format!(
                "--seconds {}: expected more than 0 and at most 3600",
                self.seconds
            )
            .into());
        }
        let time = Duration::from_secs_f64(self.seconds);
        let shutdown = Shutdown::on_signals()?;
        let mut left_out = Vec::new();
        let runner = self.runner(&mut left_out)?;
        let subjects = self.subjects(&runner, &mut left_out)?;
        let machine = Machine::this();

        let rounds = self.rounds as usize;
        let progress = self.progress(subjects.len() * (rounds + 1));
        let told = |subject: &Subject| {
            progress.set_message(subject.to_string());
            progress.inc(1);
        };
        let interrupted = || shutdown.is_requested();
        let measurements = measure(&runner, &subjects, rounds, time, &told, &interrupted);
        progress.set_message("kernels, idling");
        let (kernels, idle_percent) =
            if self.only.is_empty() && self.backing.is_none() && !interrupted() {
                let kernels = kernels(time, &mut left_out);
                let idle = idle(&runner, time.max(IDLE))
                    .map_err(|error| left_out.push(format!("a deployment without I/O: {error}")));
                (kernels, idle.ok())
            } else {
                (Kernels::default(), None)
            };
        progress.finish_and_clear();
        if interrupted() {
            // What half an hour has brought is not thrown away.
            left_out.push("what came after an interruption".to_owned());
        }
        let mut results = Results {
            machine,
            rounds,
            measurements,
            kernels,
            idle_percent,
            bars: Vec::new(),
            left_out,
        };
        results.bars = bars(&results);
        if !self.only.is_empty() || self.backing.is_some() {
            // Nobody has asked for the others.
            results.bars.retain(|bar| bar.value.is_some());
        }
        if let Some(path) = &self.report {
            std::fs::write(path, ::bench::report::html(&results)?)
                .map_err(|error| format!("--report {}: {error}", path.display()))?;
        }
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&results)?);
        } else {
            table::print(&results);
        }
        let missed = results.bars.iter().filter(|bar| bar.holds() == Some(false));
        let failed = results.measurements.iter().filter(|m| m.failure.is_some());
        let interrupted = usize::from(interrupted());
        let count = (missed.count() + failed.count() + interrupted).min(100);
        Ok(ExitCode::from(u8::try_from(count).unwrap_or(u8::MAX)))
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
            Some(text) => Implementation::parse(text)?,
            None => {
                let directory = program.parent().ok_or("this program is in no directory")?;
                Implementation::in_directory("rust", directory)?
            }
        };
        let ours = ours
            .with_library_path(library_path.clone())
            .with_protocol(self.protocol.clone());
        let mut cpp = None;
        for with in &self.compare {
            if with.as_str() != "nbd" {
                cpp = Some(Implementation::parse(with)?.with_library_path(library_path.clone()));
            }
        }
        let no_twins = match &cpp {
            Some(cpp) => no_twins(&ours, cpp)?,
            None => None,
        };
        let exchanged = no_twins.is_none();
        left_out.extend(no_twins);
        Ok(Runner {
            yardsticks: Yardsticks::of(&program),
            casts: plan::casts(&ours, cpp.as_ref(), exchanged),
            backing: self.backing.clone(),
            cpus: deployment::allowed_cpus()?,
            program,
        })
    }

    fn subjects(&self, runner: &Runner, left_out: &mut Vec<String>) -> Result<Vec<Subject>> {
        if self.backing.is_some() {
            if let Some(missing) = ::bench::file::missing() {
                return Err(missing.into());
            }
            return Ok(plan::files());
        }
        let mut subjects = plan::bars(runner);
        match cannot_count() {
            None => plan::add_system_calls(&mut subjects),
            Some(reason) => left_out.push(reason),
        }
        if self.axes {
            plan::add_axes(&mut subjects);
        }
        if self.compare.iter().any(|with| with == "nbd") {
            match ::bench::nbd::missing() {
                None => plan::add_nbd(&mut subjects),
                Some(missing) => left_out.push(missing),
            }
        }
        if !self.only.is_empty() {
            let is = |subject: &Subject| {
                let name = subject.to_string();
                self.only.iter().any(|only| name.contains(only.as_str()))
            };
            let names: Vec<_> = subjects.iter().map(ToString::to_string).collect();
            // The first I/Os after a pause are nothing without what a pause does to the machine.
            let after_pause = subjects
                .iter()
                .any(|subject| is(subject) && matches!(subject, Subject::FirstIos { .. }));
            subjects.retain(|subject| is(subject) || after_pause && *subject == Subject::WakeUp);
            if subjects.is_empty() {
                return Err(format!(
                    "--only: expected a part of one of\n  {}",
                    names.join("\n  ")
                )
                .into());
            }
        }
        Ok(subjects)
    }

    fn progress(&self, runs: usize) -> ProgressBar {
        if self.json {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template(
            "{spinner} {pos}/{len} {elapsed}, about {eta} left: {msg}",
        )
        .expect("a template of known keys");
        let bar = ProgressBar::new(runs as u64).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        bar
    }
}

/// Minimum duration of the idle measurement: CPU time has a resolution of 10 ms.
const IDLE: Duration = Duration::from_secs(5);
