//! What an initiator prints: ours JSON when it is told to, the reference its text.

use serde::Deserialize;

use crate::Error;
use crate::point::Point;
use crate::series::{Distribution, Figures, Latency};

const DURATION: &str = "| Duration (seconds):";
const OPERATIONS: &str = "| Operation count:";

#[derive(Deserialize)]
struct Document {
    duration_seconds: f64,
    operation_count: f64,
    latency_us: Summary,
    #[serde(default)]
    flush_latency_us: Option<Summary>,
}

#[derive(Deserialize)]
struct Summary {
    p50: f64,
    p99: f64,
    p99_9: f64,
    #[serde(default)]
    distribution: Option<Distribution>,
}

impl From<Summary> for Latency {
    fn from(summary: Summary) -> Self {
        let nanos = |micros: f64| micros * 1e3;
        Self {
            p50_ns: nanos(summary.p50),
            p99_ns: nanos(summary.p99),
            p99_9_ns: nanos(summary.p99_9),
            distribution: summary
                .distribution
                .map(|pairs| pairs.map(|(percent, micros)| (percent, nanos(micros)))),
        }
    }
}

/// The figures in what an initiator has printed.
pub(super) fn parse(stdout: &str, point: Point) -> Result<Figures, Error> {
    let (seconds, operations, latency) = if stdout.trim_start().starts_with('{') {
        let document: Document = serde_json::from_str(stdout)
            .map_err(|_| missing("a document with its statistics", stdout))?;
        (
            document.duration_seconds,
            document.operation_count,
            Some(document.latency_us.into()),
        )
    } else {
        let number = |key: &str, expected| {
            stdout
                .lines()
                .find_map(|line| line.trim().strip_prefix(key)?.trim().parse::<f64>().ok())
                .ok_or_else(|| missing(expected, stdout))
        };
        (
            number(DURATION, "a line with the duration in seconds")?,
            number(OPERATIONS, "a line with the operation count")?,
            None,
        )
    };
    Ok(Figures {
        latency,
        ..Figures::of_rate(operations / seconds, point.block_size)
    })
}

/// The same of a run with flushes, whose latencies are those of the figures.
pub(super) fn parse_flushes(stdout: &str, point: Point) -> Result<Figures, Error> {
    let flushes = serde_json::from_str(stdout)
        .ok()
        .and_then(|document: Document| document.flush_latency_us)
        .ok_or_else(|| missing("a document with the latencies of flushes", stdout))?;
    Ok(Figures {
        latency: Some(flushes.into()),
        ..parse(stdout, point)?
    })
}

fn missing(expected: &'static str, got: &str) -> Error {
    Error::Output {
        program: "the initiator",
        expected,
        got: got.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_initiators_are_understood() {
        let text =
            "| Stats\n| Duration (seconds): 2.5\n| Operation count: 1000\n| IO rate: 0.0 MIOP/s\n";
        let figures = parse(text, Point::ZERO_COPY_READ).expect("figures");
        assert_eq!((figures.rate, figures.bandwidth), (400.0, 400.0 * 4096.0));
        assert_eq!(figures.latency, None);
        let json = r#"{"duration_seconds":2.5,"operation_count":1000,"latency_us":{"p50":3.5,"p99":4,"p99_9":5}}"#;
        let figures = parse(json, Point::ZERO_COPY_READ).expect("figures");
        assert_eq!(figures.latency.map(|l| l.p50_ns), Some(3500.0));
        let error = parse("| Operation count: 1", Point::ZERO_COPY_READ).expect_err("no duration");
        assert!(error.to_string().contains("duration"), "{error}");
    }
}
