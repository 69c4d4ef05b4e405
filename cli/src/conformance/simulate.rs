//! Simulated deployments of the gga_offload service's redundancy, in virtual time.

use std::io::IsTerminal as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use role_common::flags::duration;
use role_common::outln;
use role_common::shutdown::Shutdown;
use role_gga_offload::simulation::{self, Totals, Violation};
use serde::Serialize;

use crate::table;

use super::Result;

const HELP: &str = "\
The real engine, superblocks and assembly of the gga_offload service run in virtual time, with simulated targets, links and initiator.
Processes crash and restart, links are cut, targets are unresponsive, disks lose and misdirect writes, flip bits, and are replaced by
old copies or empty disks, and whole blocks are stored in the place of others. Every read must be linearizable, or an I/O error
explained by a fault; two current targets must suffice to answer every I/O; every session must start with all acknowledged writes;
after the last fault and a scrub, the chunks of every block must be consistent. A seed always gives the same run. The exit status is 0
if no run violated this; otherwise the first violation is printed with the fewest steps that reproduce it.

Examples:
  doca-storage conformance simulate                   a minute, on all CPUs
  doca-storage conformance simulate --duration 10m --jobs 2
  doca-storage conformance simulate --seed 1234       one run";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
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

    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,
}

/// Results of all runs.
#[derive(Debug, Serialize)]
struct Report {
    first_seed: u64,
    runs: u64,
    seconds: f64,
    #[serde(flatten)]
    totals: Totals,
    #[serde(skip_serializing_if = "Option::is_none")]
    violation: Option<Box<Violation>>,
}

impl Simulate {
    /// Runs the simulations, and prints the result.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let first_seed = match self.seed.or(self.from) {
            Some(seed) => seed,
            None => super::hammer::random_seed()? << 16,
        };
        let report = self.simulate(first_seed)?;
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print(&report);
        }
        Ok(if report.violation.is_none() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn simulate(&self, first_seed: u64) -> Result<Report> {
        let shutdown = Shutdown::on_signals()?;
        let progress = self.progress();
        let began = Instant::now();
        let (next, runs) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_over = AtomicBool::new(false);
        let result = Mutex::new((Totals::default(), None::<Box<Violation>>));
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
                    Ok(totals) => result.0.add(totals),
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
        Ok(Report {
            first_seed,
            runs: runs.into_inner(),
            seconds: began.elapsed().as_secs_f64(),
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

fn print(report: &Report) {
    if let Some(violation) = &report.violation {
        table::say!("{violation}");
    }
    let Totals {
        sessions,
        ios,
        faults,
        lost,
    } = report.totals;
    table::say!(
        "{} runs from seed {} on, in {:.1} s",
        report.runs,
        report.first_seed,
        report.seconds
    );
    outln!("  sessions of the service  {sessions:>10}");
    outln!("  I/Os                     {ios:>10}");
    outln!("  faults                   {faults:>10}");
    outln!("  blocks that two faults at once have cost, as I/O errors  {lost}");
    match &report.violation {
        None => outln!("no violation"),
        Some(violation) => table::say!("1 violation; run it again with --seed {}", violation.seed),
    }
}
