//! Attacks on the promises to users of the storage.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::conformance::torture::{self, Pause, Row, Settings, Totals};
use ::deployment::implementation::{Implementation, Role};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use role_common::{errln, outln, signals};
use tabled::builder::Builder;

use super::hammer::random_seed;
use super::{ReportOptions, Result, exit_code, seconds, usage};

const HELP: &str = "\
Starts deployments of real processes, and attacks each promise of SECURITY.md to users of the storage: processes are killed, stopped and
restarted, machines lose power and restart, disks are damaged, exchanged, truncated, full, or replaced by old copies, and services are started
with other flags. Clients of the NBD server write, read and flush; an oracle knows the contents that each block may have.
A seed gives the same attacks; which I/O a fault interrupts depends on timing. The exit status is 0 if no promise was violated. Otherwise, logs
and backing files are kept.

Examples:
  doca-storage conformance torture                    each attack once
  doca-storage conformance torture --list
  doca-storage conformance torture --minutes 60       again and again, with other seeds
  doca-storage conformance torture --only R4 --seed 7
  doca-storage conformance torture --only power-failure --minutes 5";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Torture {
    /// List promises and attacks, and exit
    #[arg(long)]
    list: bool,

    /// Only the attacks on this promise, or with this text in their name; may be repeated
    #[arg(long, value_name = "ID|TEXT")]
    only: Vec<String>,

    /// Only the short selection that runs with the tests
    #[arg(long)]
    short: bool,

    /// Seed of the first round [default: random, and printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Repeat all attacks with further seeds until this number of minutes has passed
    #[arg(long, value_name = "N", default_value_t = 0)]
    minutes: u64,

    /// Number of concurrent attacks
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,

    /// Directory of a doca-storage to test [default: this program]
    #[arg(long = "bin", value_name = "DIR")]
    binaries: Option<PathBuf>,

    /// Time limit in seconds for a process to start, detect a fault, recover, or exit
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = seconds(10, 600))]
    limit: u64,

    #[command(flatten)]
    report: ReportOptions,
}

impl Torture {
    /// Runs the attacks and prints the results.
    pub(super) fn run(&self) -> Result<ExitCode> {
        if self.list {
            list();
            return Ok(ExitCode::SUCCESS);
        }
        let shutdown = signals::shutdown()?;
        let settings = self.settings()?;
        errln!("seed {}", settings.seed);
        let progress = self.progress();
        let show = |now: &str, totals: &Totals| {
            let text = format!(
                "{} runs, {} violations, {now}",
                totals.runs(),
                totals.violations()
            );
            if progress.is_hidden() && !self.report.json {
                errln!("{text}");
            }
            progress.set_message(text);
        };
        let totals = torture::run(&settings, &show, &|| shutdown.is_requested())?;
        progress.finish_and_clear();
        let report = totals.report();
        self.report.write_junit("conformance torture", &report)?;
        if self.report.json {
            outln!("{}", serde_json::to_string_pretty(&totals)?);
        } else {
            print_totals(&totals);
            table::say!("{report}");
        }
        Ok(exit_code(report.is_success()))
    }

    fn settings(&self) -> Result<Settings> {
        let own = std::env::current_exe()?;
        let program = match &self.binaries {
            Some(directory) => std::path::absolute(directory.join("doca-storage"))?,
            None => own,
        };
        let is_known = |word: &String| {
            torture::attacks()
                .iter()
                .any(|attack| attack.promise == word || attack.name.contains(word.as_str()))
        };
        if let Some(unknown) = self.only.iter().find(|word| !is_known(word)) {
            return Err(usage(format!(
                "expected the id of a promise or a part of an attack's name, got --only {unknown}; --list shows them"
            )));
        }
        Ok(Settings {
            implementation: Implementation::of_binary("own", Role::Target, &program),
            front_end: program,
            seed: match self.seed {
                Some(seed) => seed,
                None => random_seed()?,
            },
            duration: Duration::from_secs(self.minutes * 60),
            only: self.only.clone(),
            is_short: self.short,
            jobs: self.jobs,
            cpus: deployment::allowed_cpus()?,
            limit: Duration::from_secs(self.limit),
            has_machines: torture::has_machines(),
            degraded: true,
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
}

/// Prints promises and attacks, and the promises without an attack.
fn list() {
    let mut table = Builder::new();
    table.push_record(["promise", "attack", "short", "faults and checks"]);
    for attack in torture::attacks() {
        table.push_record([
            attack.promise,
            attack.name,
            if attack.is_quick { "yes" } else { "" },
            attack.summary,
        ]);
    }
    let layout = table::Layout {
        right: &[],
        optional: &[2],
        flexible: Some(3),
    };
    outln!("{}", table::render(table, layout));
    print_unattacked(&torture::promises_without_attack());
}

fn print_unattacked(ids: &[&str]) {
    let text = if ids.is_empty() {
        "none".to_owned()
    } else {
        ids.join(", ")
    };
    outln!("promises without an attack: {text}");
}

fn print_totals(totals: &Totals) {
    let mut table = Builder::new();
    table.push_record([
        "promise",
        "attack",
        "runs",
        "violations",
        "blocks verified",
        "I/O errors",
        "closed",
        "allowed",
        "seconds",
    ]);
    for row in &totals.rows {
        table.push_record(record(row));
    }
    let layout = table::Layout {
        right: &[2, 3, 4, 5, 6, 8],
        optional: &[8, 6, 4],
        flexible: None,
    };
    outln!("{}", table::render(table, layout));
    print_unattacked(&totals.promises_without_attack);
    let stalled: u64 = totals.rows.iter().map(|row| row.stalled).sum();
    if stalled > 0 {
        table::say!(
            "{stalled} runs ended with an error or a timeout while the machine did not complete a write of this program's for 2 s either"
        );
    }
    print_takeovers(totals);
    for row in &totals.rows {
        for broken in &row.violations {
            table::say!(
                "\n{} {}, seed {}\n  {}",
                row.promise,
                row.attack,
                broken.seed,
                broken.what
            );
            table::say!("  logs and backing files: {}", broken.directory.display());
        }
    }
    table::say!("again: --seed {}", totals.seed);
}

/// Prints how long takeovers took, if there were any.
fn print_takeovers(totals: &Totals) {
    let takeovers = || totals.rows.iter().flat_map(|row| &row.takeovers);
    let times = |of: fn(&Pause) -> Duration| {
        let mut times: Vec<Duration> = takeovers().map(of).collect();
        times.sort_unstable();
        let at = |index: usize| times.get(index).map_or(0.0, Duration::as_secs_f64);
        let last = times.len().saturating_sub(1);
        format!(
            "{:.2}, {:.2} and {:.2} s",
            at(0),
            at(times.len() / 2),
            at(last)
        )
    };
    let count = takeovers().count();
    if count > 0 {
        table::say!(
            "{count} takeovers, ready after {}, first read after {} (minimum, median, maximum)",
            times(|it| it.ready),
            times(|it| it.read)
        );
    }
}

fn record(row: &Row) -> Vec<String> {
    let excuses: Vec<String> = (row.excuses.iter())
        .map(|(id, count)| format!("{id}: {count}"))
        .collect();
    vec![
        row.promise.to_owned(),
        row.attack.to_owned(),
        row.not_run
            .as_ref()
            .map_or_else(|| row.runs.to_string(), |_| "NOT RUN".to_owned()),
        row.violations.len().to_string(),
        row.verified.to_string(),
        row.failed_ios.to_string(),
        row.closed_connections.to_string(),
        excuses.join(", "),
        format!("{:.0}", row.took.as_secs_f64()),
    ]
}
