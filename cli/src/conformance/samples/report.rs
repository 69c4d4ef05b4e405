//! The table, and what those wrote that failed.

use std::fmt;
use std::time::Duration;

use ::conformance::report::{self, Case};
use ::conformance::samples::{Scenario, Transcript, Verdict};
use serde::Serialize;
use tabled::builder::Builder;

use crate::table::{self, Layout};

/// Lines of each party that the text shows of a failure; the JSON document has all.
const SHOWN_LINES: usize = 12;

/// All runs.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    passed: usize,
    failed: usize,
    not_found: usize,
    runs: Vec<Row>,
}

/// One run.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    name: String,
    library: &'static str,
    samples: Vec<&'static str>,
    result: Outcome,
    seconds: f64,
    /// Why it did not pass.
    reason: Option<String>,
    /// What its parties wrote.
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
    pub(super) fn new(
        scenario: &Scenario,
        verdict: Verdict,
        transcripts: Vec<Transcript>,
        time: Duration,
    ) -> Self {
        let (result, reason) = match verdict {
            Verdict::Pass => (Outcome::Pass, None),
            Verdict::Fail(reason) => (Outcome::Fail, Some(reason)),
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
    pub(super) fn add(&mut self, row: Row) {
        match row.result {
            Outcome::Pass => self.passed += 1,
            Outcome::Fail => self.failed += 1,
            Outcome::NotFound => self.not_found += 1,
        }
        self.runs.push(row);
    }

    /// Runs that did not pass, for whatever reason.
    pub(super) fn not_passed(&self) -> usize {
        self.failed + self.not_found
    }

    /// The runs as checks of one suite per library.
    pub(super) fn checks(&self) -> report::Report {
        report::Report {
            cases: self.runs.iter().map(Row::check).collect(),
        }
    }

    pub(super) fn to_json(&self) -> serde_json::Result<String> {
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

/// A reason that fits a table: one line, not too long.
fn shortened(reason: &str) -> String {
    const LONGEST: usize = 80;
    let line = reason.lines().next().unwrap_or_default();
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
