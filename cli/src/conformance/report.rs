//! Output of checks: a table for people, JSON and JUnit XML for programs.

use std::fmt;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use ::conformance::report::{Case, Outcome, Report};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use role_common::outln;
use serde::Serialize;
use tabled::builder::Builder;

use crate::table::{self, Layout};

use super::{Result, exit_code};

/// Maximum number of lines of process output per failure in the table; the documents have all.
const SHOWN_LINES: usize = 25;
/// Maximum length of a reason in the table; the full text follows below.
const SHOWN_REASON: usize = 80;

/// Flags of all commands that report checks.
#[derive(Debug, Args)]
pub(super) struct ReportOptions {
    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Also write the result as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub(super) junit: Option<PathBuf>,
}

impl ReportOptions {
    /// Prints a report; the exit status is 1 if there are failures.
    pub(super) fn finish(&self, name: &str, report: &Report) -> Result<ExitCode> {
        self.show(name, report, report, &table_of(report))
    }

    /// As [`finish`](Self::finish), with a custom table, which is also printed by `--json`.
    pub(super) fn finish_with(
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
    pub(super) fn write_junit(&self, name: &str, report: &Report) -> Result<()> {
        if let Some(path) = &self.junit {
            std::fs::write(path, report.to_junit_xml(name)?)
                .map_err(|error| format!("--junit {}: {error}", path.display()))?;
        }
        Ok(())
    }
}

/// Progress bar, on terminals only.
pub(super) fn progress(checks: usize) -> ProgressBar {
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
    let layout = Layout {
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

/// Shortens a text to one line of limited length.
fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(SHOWN_REASON) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
