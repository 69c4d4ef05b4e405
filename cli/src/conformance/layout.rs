//! Table of golden vectors.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::conformance::layout::{Vector, check, embedded, parse};
use ::conformance::report::{Case, Outcome, Report};
use clap::Args;
use role_common::outln;
use serde::Serialize;
use tabled::builder::Builder;

use super::{ReportOptions, Result, exit_code, usage};

#[derive(Debug, Args)]
pub(super) struct Layout {
    /// Directory with vector files, instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    vectors: Option<PathBuf>,

    /// Only vectors of this name, or of messages of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Show every byte, for comparison with a hex dump
    #[arg(long)]
    print: bool,

    #[command(flatten)]
    report: ReportOptions,
}

/// Maximum number of bytes shown per field.
const SHOWN_BYTES: usize = 16;

#[derive(Serialize)]
struct Row<'a> {
    passed: bool,
    reason: Option<String>,
    #[serde(flatten)]
    vector: &'a Vector,
}

impl Layout {
    /// Checks the vectors; the exit status is 1 if a vector did not pass.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let vectors = self.chosen()?;
        let rows: Vec<Row<'_>> = vectors
            .iter()
            .map(|vector| {
                let reason = check(vector).err().map(|it| it.to_string());
                Row {
                    passed: reason.is_none(),
                    reason,
                    vector,
                }
            })
            .collect();
        let report = report(&rows);
        self.report.write_junit("conformance layout", &report)?;
        if self.report.json {
            outln!("{}", serde_json::to_string_pretty(&rows)?);
        } else {
            if self.print {
                vectors.iter().for_each(print);
            }
            table::say!("{}", summary(&rows));
        }
        Ok(exit_code(report.is_success()))
    }

    fn chosen(&self) -> Result<Vec<Vector>> {
        let all = match &self.vectors {
            Some(directory) => read(directory)?,
            None => embedded().map_err(|(name, error)| format!("vector {name}: {error}"))?,
        };
        let is = |vector: &Vector, name: &String| vector.name == *name || vector.message == *name;
        for name in &self.only {
            if !all.iter().any(|vector| is(vector, name)) {
                let names: Vec<_> = all.iter().map(|vector| vector.name.as_str()).collect();
                return Err(usage(format!(
                    "--only {name}: expected one of {}",
                    names.join(", ")
                )));
            }
        }
        let chosen =
            |vector: &Vector| self.only.is_empty() || self.only.iter().any(|name| is(vector, name));
        Ok(all.into_iter().filter(chosen).collect())
    }
}

/// Reads the vector files of a directory.
fn read(directory: &Path) -> Result<Vec<Vector>> {
    let failed =
        |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let entries = std::fs::read_dir(directory).map_err(|error| failed(directory, &error))?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(|error| failed(directory, &error))?;
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
    });
    paths.sort();
    if paths.is_empty() {
        return Err(failed(directory, &"expected vector files (*.toml), found none").into());
    }
    paths
        .iter()
        .map(|path| {
            let text = std::fs::read_to_string(path).map_err(|error| failed(path, &error))?;
            Ok(parse(&text).map_err(|error| failed(path, &error))?)
        })
        .collect()
}

fn report(rows: &[Row<'_>]) -> Report {
    let case = |row: &Row<'_>| {
        let outcome = match &row.reason {
            None => Outcome::Passed,
            Some(reason) => Outcome::Failed(reason.clone()),
        };
        Case {
            meaning: row.vector.meaning.clone(),
            ..Case::new("layout", &row.vector.name, outcome)
        }
    };
    Report {
        cases: rows.iter().map(case).collect(),
    }
}

fn print(vector: &Vector) {
    table::say!("{}: {}", vector.name, vector.meaning);
    let mut table = Builder::new();
    table.push_record(["offset", "width", "bytes", "field", "value", "meaning"]);
    for field in &vector.fields {
        let shown = &field.bytes[..field.bytes.len().min(SHOWN_BYTES)];
        let mut bytes: Vec<String> = shown.iter().map(|byte| format!("{byte:02x}")).collect();
        if shown.len() < field.bytes.len() {
            bytes.push("…".to_owned());
        }
        table.push_record([
            format!("{:#06x}", field.offset),
            field.bytes.len().to_string(),
            bytes.join(" "),
            field.name.clone(),
            // The bytes column shows the contents of a blob already.
            if field.value.contains(' ') && field.value == bytes.join(" ") {
                String::new()
            } else {
                field.value.clone()
            },
            field.meaning.clone(),
        ]);
    }
    let layout = table::Layout {
        right: &[],
        optional: &[5],
        flexible: Some(5),
    };
    outln!("{}\n", table::render(table, layout));
}

fn summary(rows: &[Row<'_>]) -> String {
    let mut table = Builder::new();
    table.push_record(["vector", "message", "bytes", "result"]);
    for row in rows {
        table.push_record([
            row.vector.name.clone(),
            row.vector.message.clone(),
            row.vector.bytes().len().to_string(),
            row.reason
                .as_ref()
                .map_or_else(|| "pass".to_owned(), |reason| format!("FAIL: {reason}")),
        ]);
    }
    let failed = rows.iter().filter(|row| !row.passed).count();
    let end = match failed {
        0 => format!("PASS: {} vectors", rows.len()),
        _ => format!("FAIL: {failed} of {} vectors", rows.len()),
    };
    format!("{}\n{end}", table::render(table, table::Layout::default()))
}
