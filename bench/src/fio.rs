//! Parser of fio's JSON output.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Error;
use super::point::{Operation, Point};
use super::series::{Figures, Latency};

/// Times reported as latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// From the submission of an I/O to its completion.
    Completion,
    /// From one sync between writes to the next.
    Sync,
}

#[derive(Deserialize)]
struct Document {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    read: Direction,
    write: Direction,
    #[serde(default)]
    sync: Option<Sync>,
}

#[derive(Deserialize)]
struct Direction {
    iops: f64,
    bw_bytes: f64,
    clat_ns: Quantiles,
}

#[derive(Deserialize)]
struct Sync {
    lat_ns: Quantiles,
}

#[derive(Deserialize)]
struct Quantiles {
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
}

/// Figures of the only job in fio's JSON document.
///
/// # Errors
///
/// There is no such document.
pub(crate) fn figures(stdout: &str, point: Point, times: Times) -> Result<Figures, Error> {
    let wrong = || Error::Output {
        program: "fio",
        expected: "its figures as JSON",
        got: stdout.to_owned(),
    };
    // Messages may precede the document.
    let begin = stdout.find('{').ok_or_else(wrong)?;
    let document: Document = serde_json::from_str(&stdout[begin..]).map_err(|_| wrong())?;
    let job = document.jobs.into_iter().next().ok_or_else(wrong)?;
    let direction = match point.operation {
        Operation::Read | Operation::RecoveryRead => job.read,
        Operation::Write => job.write,
    };
    let quantiles = match times {
        Times::Completion => Some(direction.clat_ns),
        Times::Sync => job.sync.map(|sync| sync.lat_ns),
    };
    let quantile = |name: &str| quantiles.as_ref()?.percentile.get(name).copied();
    let latency = || {
        Some(Latency {
            p50_ns: quantile("50.000000")?,
            p99_ns: quantile("99.000000")?,
            p99_9_ns: quantile("99.900000")?,
            distribution: None,
        })
    };
    Ok(Figures {
        bandwidth: direction.bw_bytes,
        latency: latency(),
        ..Figures::of_rate(direction.iops, point.block_size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_taken_from_the_requested_direction_and_times() {
        let times = |p50: u32| {
            format!(
                r#"{{"percentile":{{"50.000000":{p50},"99.000000":{},"99.900000":{}}}}}"#,
                p50 + 1,
                p50 + 2
            )
        };
        let direction = |iops: u32| {
            let clat = times(iops * 10);
            format!(
                r#"{{"iops":{iops},"bw_bytes":{},"clat_ns":{clat}}}"#,
                iops * 4096
            )
        };
        let text = format!(
            r#"a note
            {{"jobs":[{{"read":{},"write":{},"sync":{{"lat_ns":{}}}}}]}}"#,
            direction(5),
            direction(7),
            times(900)
        );
        let read = Point::ZERO_COPY_READ;
        let write = Point {
            operation: Operation::Write,
            ..read
        };
        for (point, of, rate, p50) in [
            (read, Times::Completion, 5.0, 50.0),
            (write, Times::Completion, 7.0, 70.0),
            (write, Times::Sync, 7.0, 900.0),
        ] {
            let figures = figures(&text, point, of).expect("figures");
            assert_eq!((figures.rate, figures.bandwidth), (rate, rate * 4096.0));
            assert_eq!(figures.latency.map(|it| it.p50_ns), Some(p50));
        }
        assert!(figures("nothing", read, Times::Completion).is_err());
    }
}
