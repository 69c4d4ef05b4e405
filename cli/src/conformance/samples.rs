//! DOCA's samples, as a table.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::conformance::report::{self, Case};
use ::conformance::samples::{Binaries, Runner, Scenario, Transcript, Verdict, catalogue};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use role_common::{outln, signals};
use serde::Serialize;
use tabled::builder::Builder;

use super::{ReportOptions, Result, WEEK, exit_code, seconds, shortened, usage};
use table::Layout;

const HELP: &str = "\
The exit status is 0 if all runs passed, 1 if one did not, and 2 for wrong usage. A run whose program is missing has not passed.

Examples:
  doca-storage sdk install --prefix ~/softdoca      and build the samples
  doca-storage conformance samples --bin /tmp/build --library-path ~/softdoca/lib
  doca-storage conformance samples --bin build-host --bin build-dpu --only doca_rdma --json";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Samples {
    /// Directory with the samples' programs; may be repeated. Programs for a DPU have dpu in the name of a directory,
    /// or the prefix dpu_
    #[arg(long = "bin", value_name = "DIR", required = true)]
    binaries: Vec<PathBuf>,

    /// Directory of the DOCA libraries for the samples [default: from LD_LIBRARY_PATH and the programs]
    #[arg(long, value_name = "DIR")]
    library_path: Option<PathBuf>,

    /// Only runs of this sample (rdma_send), folder (doca_rdma) or name (rdma_send:descriptors); may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Seconds that one run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = seconds(1, WEEK))]
    timeout: u64,

    #[command(flatten)]
    report: ReportOptions,
}

impl Samples {
    /// Runs the samples, and fails if one did not pass.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let shutdown = signals::shutdown()?;
        let scenarios = self.chosen()?;
        let runner = Runner {
            binaries: Binaries::below(&self.binaries)?,
            library_path: self.library_path()?,
            timeout: Duration::from_secs(self.timeout),
        };
        let progress = self.progress(scenarios.len());
        let mut report = Report::default();
        for scenario in &scenarios {
            progress.set_message(scenario.name.clone());
            let directory = tempfile::Builder::new().prefix("doca-samples-").tempdir()?;
            let started = Instant::now();
            let (verdict, transcripts) =
                runner.run(scenario, directory.path(), &|| shutdown.is_requested())?;
            if shutdown.is_requested() {
                progress.finish_and_clear();
                return Err("interrupted".into());
            }
            report.add(Row::new(scenario, verdict, transcripts, started.elapsed()));
            progress.inc(1);
        }
        progress.finish_and_clear();
        self.report
            .write_junit("conformance samples", &report.checks())?;
        if self.report.json {
            outln!("{}", report.to_json()?);
        } else {
            table::say!("{report}");
        }
        Ok(exit_code(report.not_passed() == 0))
    }

    fn chosen(&self) -> Result<Vec<Scenario>> {
        let all = catalogue();
        if self.only.is_empty() {
            return Ok(all);
        }
        for name in &self.only {
            if !all.iter().any(|scenario| scenario.is_called(name)) {
                let names: Vec<_> = all.iter().map(|scenario| scenario.name.as_str()).collect();
                return Err(usage(format!(
                    "--only {name}: expected a sample, its folder, or one of {}",
                    names.join(", ")
                )));
            }
        }
        let is_chosen = |scenario: &Scenario| self.only.iter().any(|name| scenario.is_called(name));
        Ok(all.into_iter().filter(is_chosen).collect())
    }

    /// Absolute path: the samples run in other directories.
    fn library_path(&self) -> Result<Option<PathBuf>> {
        let Some(path) = &self.library_path else {
            return Ok(None);
        };
        let path = std::fs::canonicalize(path)
            .map_err(|error| format!("--library-path {}: {error}", path.display()))?;
        Ok(Some(path))
    }

    fn progress(&self, count: usize) -> ProgressBar {
        if self.report.json {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{spinner} {pos}/{len} {elapsed} {wide_msg}")
            .expect("the template is valid");
        let bar = ProgressBar::new(count as u64).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }
}

// Table of results, with the output of failed runs.

/// Maximum number of lines of output per process in the table; the JSON document has all.
const SHOWN_LINES: usize = 12;

#[derive(Debug, Default, Serialize)]
struct Report {
    passed: usize,
    failed: usize,
    not_found: usize,
    runs: Vec<Row>,
}

/// Result of one run.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    library: &'static str,
    samples: Vec<&'static str>,
    result: Outcome,
    seconds: f64,
    /// Reason of a failure, or the samples without a program; `None` if the scenario passed.
    reason: Option<String>,
    output: Vec<Output>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Pass,
    Fail,
    NotFound,
}

#[derive(Debug, Serialize)]
struct Output {
    party: String,
    lines: Vec<String>,
}

impl Row {
    fn new(
        scenario: &Scenario,
        verdict: Verdict,
        transcripts: Vec<Transcript>,
        time: Duration,
    ) -> Self {
        let (result, reason) = match verdict {
            Verdict::Pass => (Outcome::Pass, None),
            Verdict::Fail(reason) => (Outcome::Fail, Some(reason.to_string())),
            Verdict::NotFound(missing) => {
                let reason = format!("no program of {}", missing.join(", "));
                (Outcome::NotFound, Some(reason))
            }
        };
        let output = transcripts.into_iter().map(|transcript| Output {
            party: transcript.party,
            lines: transcript.lines,
        });
        Self {
            name: scenario.name.clone(),
            library: scenario.library,
            samples: scenario.samples(),
            result,
            seconds: time.as_secs_f64(),
            reason,
            output: output.collect(),
        }
    }

    fn check(&self) -> Case {
        let reason = self.reason.clone().unwrap_or_default();
        let outcome = match self.result {
            Outcome::Pass => report::Outcome::Passed,
            Outcome::Fail => report::Outcome::Failed(reason),
            Outcome::NotFound => report::Outcome::NotRun(reason),
        };
        let party = |output: &Output| format!("{}:\n{}\n", output.party, output.lines.join("\n"));
        Case {
            took: Duration::from_secs_f64(self.seconds),
            output: Some(self.output.iter().map(party).collect()),
            ..Case::new(&format!("samples.{}", self.library), &self.name, outcome)
        }
    }
}

impl Report {
    fn add(&mut self, row: Row) {
        match row.result {
            Outcome::Pass => self.passed += 1,
            Outcome::Fail => self.failed += 1,
            Outcome::NotFound => self.not_found += 1,
        }
        self.runs.push(row);
    }

    /// Number of runs that did not pass.
    fn not_passed(&self) -> usize {
        self.failed + self.not_found
    }

    /// The runs as checks, with one suite per library.
    fn checks(&self) -> report::Report {
        report::Report {
            cases: self.runs.iter().map(Row::check).collect(),
        }
    }

    fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::NotFound => "NOT FOUND",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Builder::default();
        table.push_record(["sample", "result", "seconds", "reason"]);
        for row in &self.runs {
            table.push_record([
                row.name.clone(),
                row.result.to_string(),
                format!("{:.2}", row.seconds),
                shortened(row.reason.as_deref().unwrap_or_default()),
            ]);
        }
        let layout = Layout {
            right: &[2],
            optional: &[],
            flexible: Some(3),
        };
        writeln!(f, "{}", table::render(table, layout))?;
        for row in self.runs.iter().filter(|row| row.result == Outcome::Fail) {
            let reason = row.reason.as_deref().unwrap_or_default();
            writeln!(f, "\n{}: {reason}", row.name)?;
            for output in &row.output {
                let hidden = output.lines.len().saturating_sub(SHOWN_LINES);
                writeln!(f, "  {} (after {hidden} other lines)", output.party)?;
                for line in &output.lines[hidden..] {
                    writeln!(f, "    {line}")?;
                }
            }
        }
        write!(
            f,
            "{} passed, {} failed, {} not found",
            self.passed, self.failed, self.not_found
        )
    }
}
