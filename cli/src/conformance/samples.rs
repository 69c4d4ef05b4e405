//! DOCA's samples, one after the other, as a table.

mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::conformance::samples::{Binaries, Runner, Scenario, catalogue};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use role_common::outln;
use role_common::shutdown::Shutdown;

use super::report::ReportOptions;
use super::{Result, WEEK, exit_code, seconds, usage};
use report::{Report, Row};

const HELP: &str = "\
The exit status is the number of runs that did not pass, up to 100; one whose program is not there has not passed.

Examples:
  doca-storage sdk install --prefix ~/softdoca    build the samples against it, then
  doca-storage conformance samples --bin /tmp/build --library-path ~/softdoca/lib
  doca-storage conformance samples --bin build-host --bin build-dpu --only doca_rdma --json";

/// Its flags.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Samples {
    /// Directory below which the samples' programs are; may be repeated. Programs for a DPU are told by dpu in the name of a
    /// directory, or dpu_ before their own
    #[arg(long = "bin", value_name = "DIR", required = true)]
    binaries: Vec<PathBuf>,

    /// Directory of the DOCA libraries to run them with [default: what LD_LIBRARY_PATH and the programs say]
    #[arg(long, value_name = "DIR")]
    library_path: Option<PathBuf>,

    /// Only the runs of this sample (rdma_send), folder (doca_rdma) or name (rdma_send:descriptors); may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Seconds that one run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = seconds(1, WEEK))]
    timeout: u64,

    #[command(flatten)]
    report: ReportOptions,
}

impl Samples {
    /// Runs them: a failure where one of them did not pass.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let shutdown = Shutdown::on_signals()?;
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
            outln!("{report}");
        }
        Ok(exit_code(report.not_passed() == 0))
    }

    /// The scenarios to run.
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

    /// Absolute: the samples run in other directories.
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
        let style = ProgressStyle::with_template("{spinner} {pos}/{len} {msg} {elapsed}")
            .expect("the template is valid");
        let bar = ProgressBar::new(count as u64).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }
}
