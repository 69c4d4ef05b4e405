//! Table of sessions, and the verdict.

use std::fmt;
use std::path::PathBuf;

use ::deployment::process::Failure;
use serde::Serialize;
use serde_json::Value;
use tabled::builder::Builder;

use super::plan::{Expected, Plan, Run};
use super::sessions::Session;
use super::volume::Image;
use table::Layout;

/// A session in the table.
#[derive(Debug, Serialize)]
pub struct Row {
    layout: &'static str,
    title: &'static str,
    strategy: &'static str,
    passed: bool,
    failure: Option<String>,
    measured: Option<Measured>,
}

#[derive(Debug, Serialize)]
struct Measured {
    /// Operations of the initiator: a write that is read back is one operation.
    operations: u64,
    /// I/Os counted by the service and the targets.
    service_ios: u64,
    /// I/Os of all targets.
    target_ios: u64,
    /// Blocks that the service read without one of its targets, if it supports that.
    recoveries: Option<u64>,
    seconds: f64,
    operations_per_second: f64,
    gib_per_second: f64,
    p50_us: f64,
    p99_us: f64,
    p99_9_us: f64,
}

impl Row {
    /// A successful session; it is reported as failed if the roles' counts disagree.
    pub fn of(run: &Run, plan: &Plan, session: Session) -> Self {
        let measured = match Measured::from_session(&session) {
            Ok(measured) => measured,
            Err(missing) => {
                return Self::failed(run, format!("a role's document has no number {missing}"));
            }
        };
        let expected = plan.expected(run);
        let (target_ios, least) = (measured.target_ios, expected.target_ios);
        let agree = measured.operations == expected.operations
            && measured.service_ios == expected.service_ios
            && (target_ios == least || expected.has_further_target_ios && target_ios > least)
            && measured.recoveries.unwrap_or(0) == expected.recoveries;
        let failure = (!agree).then(|| {
            let Expected {
                operations,
                service_ios,
                target_ios,
                has_further_target_ios,
                recoveries,
            } = expected;
            let at_least = if has_further_target_ios { "at least " } else { "" };
            format!(
                "the roles disagree: expected {operations} operations of the initiator, {service_ios} I/Os of the service with \
                 {recoveries} recoveries, and {at_least}{target_ios} I/Os of the targets; they counted {}, {}, {} and {}",
                measured.operations,
                measured.service_ios,
                measured.recoveries.unwrap_or(0),
                measured.target_ios
            )
        });
        Self {
            passed: agree,
            measured: Some(measured),
            ..Self::failed(run, failure)
        }
    }

    pub fn failed(run: &Run, failure: impl Into<Option<String>>) -> Self {
        Self {
            layout: run.layout.name(),
            title: run.title,
            strategy: run.strategy.name(),
            passed: false,
            failure: failure.into(),
            measured: None,
        }
    }
}

impl Row {
    /// The session of the volume layout, which has no measurements.
    pub fn volume(image: Image, failure: Option<Failure>) -> Self {
        Self {
            layout: "volume",
            title: image.title(),
            strategy: "nbd",
            passed: failure.is_none(),
            failure: failure.map(|failure| failure.to_string()),
            measured: None,
        }
    }
}

impl Measured {
    fn from_session(session: &Session) -> Result<Self, &'static str> {
        let float = |path: &'static str| {
            session
                .initiator
                .pointer(path)
                .and_then(Value::as_f64)
                .ok_or(path)
        };
        let count = |document: &Value| {
            document
                .get("operation_count")
                .and_then(Value::as_u64)
                .ok_or("/operation_count")
        };
        let seconds = float("/duration_seconds")?;
        let operations = count(&session.initiator)?;
        Ok(Self {
            operations,
            service_ios: count(&session.service)?,
            target_ios: session.targets.iter().map(count).sum::<Result<_, _>>()?,
            recoveries: session
                .service
                .get("recovery_count")
                .and_then(Value::as_u64),
            seconds,
            operations_per_second: operations as f64 / seconds,
            gib_per_second: float("/data_rate_gib_per_second")?,
            p50_us: float("/latency_us/p50")?,
            p99_us: float("/latency_us/p99")?,
            p99_9_us: float("/latency_us/p99_9")?,
        })
    }
}

/// All sessions of a demo.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    sessions: Vec<Row>,
    /// Files left in the runtime directory.
    leftovers: Vec<PathBuf>,
}

impl Report {
    pub fn add(&mut self, row: Row) {
        self.sessions.push(row);
    }

    pub fn add_leftovers(&mut self, leftovers: Vec<PathBuf>) {
        self.leftovers = leftovers;
    }

    /// `true` if every session passed and no files were left behind.
    pub fn passed(&self) -> bool {
        !self.sessions.is_empty()
            && self.sessions.iter().all(|row| row.passed)
            && self.leftovers.is_empty()
    }

    pub fn to_json(&self) -> String {
        let verdict = if self.passed() { "PASS" } else { "FAIL" };
        serde_json::json!({ "verdict": verdict, "sessions": self.sessions, "leftovers": self.leftovers }).to_string()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Builder::new();
        table.push_record([
            "layout",
            "session",
            "operations",
            "k op/s",
            "GiB/s",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "I/Os of all roles",
            "result",
        ]);
        for row in &self.sessions {
            let result = if row.passed { "pass" } else { "FAIL" };
            let cells = match &row.measured {
                Some(m) => [
                    m.operations.to_string(),
                    format!("{:.0}", m.operations_per_second / 1000.0),
                    format!("{:.2}", m.gib_per_second),
                    format!("{:.1}", m.p50_us),
                    format!("{:.1}", m.p99_us),
                    format!("{:.1}", m.p99_9_us),
                    if row.passed {
                        "agree".to_owned()
                    } else {
                        format!("{} / {}", m.service_ios, m.target_ios)
                    },
                ],
                None => [const { String::new() }; 7],
            };
            table.push_record(
                [row.layout.to_owned(), row.title.to_owned()]
                    .into_iter()
                    .chain(cells)
                    .chain([result.to_owned()]),
            );
        }
        let layout = Layout {
            right: &[2, 3, 4, 5, 6, 7],
            optional: &[7, 6, 8, 4, 2],
            flexible: None,
        };
        writeln!(f, "{}", table::render(table, layout))?;
        for row in &self.sessions {
            if let Some(failure) = &row.failure {
                writeln!(f, "{}: {}: {failure}", row.layout, row.title)?;
            }
        }
        for path in &self.leftovers {
            writeln!(f, "left behind: {}", path.display())?;
        }
        write!(f, "{}", if self.passed() { "PASS" } else { "FAIL" })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Options;
    use crate::plan::Content;

    fn row(service_ios: u64) -> Row {
        let content = Content {
            source: "s".into(),
            source_len: 1,
            path: "p".into(),
            capacity: 1 << 20,
            compresses: true,
        };
        let plan = Plan::new(&Options::default(), &content).expect("a plan");
        let run = plan.runs().remove(3);
        let operations = u64::from(run.operations);
        let latency = json!({ "p50": 1.0, "p99": 2.0, "p99_9": 3.0 });
        let initiator = json!({
            "operation_count": operations, "duration_seconds": 0.5, "data_rate_gib_per_second": 1.5,
            "latency_us": latency,
        });
        let target = json!({ "operation_count": operations * 2 });
        let service = json!({ "operation_count": service_ios.min(operations * 2) });
        Row::of(
            &run,
            &plan,
            Session {
                initiator,
                service,
                targets: vec![target],
            },
        )
    }

    #[test]
    fn disagreeing_operation_counts_fail_the_demo() {
        let mut report = Report::default();
        assert!(!report.passed(), "nothing was run");
        report.add(row(u64::MAX));
        assert!(
            report.passed() && report.to_string().ends_with("PASS"),
            "{report}"
        );
        report.add(row(3));
        let failures = report.sessions.iter().map(|row| row.failure.is_some());
        assert!(!report.passed() && failures.eq([false, true]), "{report}");
        assert!(report.to_json().contains("\"verdict\":\"FAIL\""));
    }

    #[test]
    fn leftover_resources_fail_the_demo() {
        let mut report = Report::default();
        report.add(row(u64::MAX));
        report.add_leftovers(vec!["run/a-socket".into()]);
        assert!(!report.passed() && report.to_string().contains("run/a-socket"));
    }
}
