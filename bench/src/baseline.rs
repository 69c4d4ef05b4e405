//! Origin of results, and comparison with an earlier run.
//!
//! The two runs were not made alternately: a change may be one of the machine, or of its other load. Each change has
//! a spread, from the quartiles of the runs of both sides, and counts only if the spread does not contain "no
//! change".

use std::fs;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::series::{Figures, Series, quantile};
use crate::suite::Results;

/// Minimum number of runs of each side for a spread.
const FEWEST_RUNS: usize = 3;

/// The compared part of an earlier run's JSON document.
#[derive(Debug, Clone, Deserialize)]
pub struct Baseline {
    provenance: Provenance,
    machine: Machine,
    measurements: Vec<Earlier>,
    thresholds: Vec<EarlierThreshold>,
}

#[derive(Debug, Clone, Deserialize)]
struct Earlier {
    series: EarlierSeries,
}

#[derive(Debug, Clone, Deserialize)]
struct EarlierSeries {
    name: String,
    runs: Vec<EarlierRun>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct EarlierRun {
    rate: f64,
    latency: Option<EarlierLatency>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct EarlierLatency {
    p50_ns: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct EarlierThreshold {
    name: String,
    value: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// I/Os per second.
    Rate,
    /// Median latency in nanoseconds.
    MedianLatency,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trend {
    /// More I/Os per second, or a shorter latency.
    Better,
    Worse,
    /// The spread contains "no change".
    WithinSpread,
    /// Too few runs for a spread.
    Unknown,
}

/// Change of one figure of a subject, as a fraction of the earlier median: 0.1 is ten percent more.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    pub name: String,
    pub metric: Metric,
    /// Earlier median.
    pub then: f64,
    /// Median of this run.
    pub now: f64,
    /// New median divided by the earlier one, minus 1: 0.1 is 10 % more.
    pub change: f64,
    /// Smallest and largest change between the quartiles of both sides; `None` if a side has fewer than three runs.
    pub spread: Option<[f64; 2]>,
    pub trend: Trend,
}

/// This run compared with an earlier one.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// Origin of the earlier results.
    pub baseline: Provenance,
    /// Differences between the machines of the two runs; if there are any, the changes are not meaningful.
    pub differences: Vec<String>,
    /// Figures present in both runs.
    pub changes: Vec<Change>,
    /// Names and values of the earlier run's thresholds that both runs have.
    pub thresholds: Vec<(String, f64)>,
}

impl Baseline {
    /// Parses a document printed by `bench --json`.
    ///
    /// # Errors
    ///
    /// The text is not a document of `bench --json`.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Compares this run with the baseline.
    pub fn compare(&self, results: &Results) -> Comparison {
        let mut changes = Vec::new();
        for measurement in &results.measurements {
            let series = &measurement.series;
            let Some(earlier) = self
                .measurements
                .iter()
                .find(|earlier| earlier.series.name == series.name)
            else {
                continue;
            };
            let runs = &earlier.series.runs;
            let rates = runs.iter().map(|run| run.rate).collect();
            let latencies = runs
                .iter()
                .filter_map(|run| Some(run.latency?.p50_ns))
                .collect();
            changes.extend(change(series, Metric::Rate, rates));
            changes.extend(change(series, Metric::MedianLatency, latencies));
        }
        let earlier_value = |name: &str| {
            let threshold = self
                .thresholds
                .iter()
                .find(|threshold| threshold.name == name)?;
            threshold.value
        };
        let thresholds = results.thresholds.iter();
        Comparison {
            baseline: self.provenance.clone(),
            differences: differences(&self.machine, &results.machine),
            changes,
            thresholds: thresholds
                .filter_map(|threshold| {
                    Some((threshold.name.clone(), earlier_value(&threshold.name)?))
                })
                .collect(),
        }
    }
}

impl Comparison {
    /// The earlier value of a threshold.
    pub fn threshold(&self, name: &str) -> Option<f64> {
        let mut thresholds = self.thresholds.iter();
        thresholds
            .find(|(other, _)| other == name)
            .map(|(_, value)| *value)
    }
}

fn change(series: &Series, metric: Metric, then: Vec<f64>) -> Option<Change> {
    let figure = |run: &Figures| match metric {
        Metric::Rate => Some(run.rate),
        Metric::MedianLatency => Some(run.latency?.p50_ns),
    };
    // Subjects without a rate have one of 0.
    let positive = |values: Vec<f64>| -> Vec<f64> {
        values.into_iter().filter(|value| *value > 0.0).collect()
    };
    let then = positive(then);
    let now = positive(series.runs.iter().filter_map(figure).collect());
    let at = |values: &[f64], share| quantile(values.to_vec(), share);
    let (then_median, now_median) = (at(&then, 0.5)?, at(&now, 0.5)?);
    let spread = if then.len().min(now.len()) >= FEWEST_RUNS {
        Some([
            at(&now, 0.25)? / at(&then, 0.75)? - 1.0,
            at(&now, 0.75)? / at(&then, 0.25)? - 1.0,
        ])
    } else {
        None
    };
    let trend = match (spread, metric) {
        (None, _) => Trend::Unknown,
        (Some([low, _]), Metric::Rate) if low > 0.0 => Trend::Better,
        (Some([_, high]), Metric::Rate) if high < 0.0 => Trend::Worse,
        (Some([_, high]), Metric::MedianLatency) if high < 0.0 => Trend::Better,
        (Some([low, _]), Metric::MedianLatency) if low > 0.0 => Trend::Worse,
        (Some(_), _) => Trend::WithinSpread,
    };
    Some(Change {
        name: series.name.clone(),
        metric,
        then: then_median,
        now: now_median,
        change: now_median / then_median - 1.0,
        spread,
        trend,
    })
}

fn differences(then: &Machine, now: &Machine) -> Vec<String> {
    let differs = |what: &str, then: &dyn ToString, now: &dyn ToString| {
        let (then, now) = (then.to_string(), now.to_string());
        (then != now).then(|| format!("{what}: {then} then, {now} now"))
    };
    [
        differs("CPU", &then.cpu, &now.cpu),
        differs("number of CPUs", &then.cpus, &now.cpus),
        differs("kernel", &then.kernel, &now.kernel),
    ]
    .into_iter()
    .flatten()
    .collect()
}

// Origin of results: program, time, command line and machine.

/// Program, start time and command line of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    pub version: String,
    /// Commit that the program was built from; `None` if it was not built from a checkout.
    pub commit: Option<String>,
    /// Start of the measurement, UTC, as in RFC 3339.
    pub started: String,
    /// Command line, quoted for a shell.
    pub command: String,
}

impl Provenance {
    /// Provenance of a run of this program that starts now, with these arguments (including the program's name).
    pub fn now(arguments: impl IntoIterator<Item = String>) -> Self {
        let arguments: Vec<_> = arguments.into_iter().collect();
        let quoted = shlex::try_join(arguments.iter().map(String::as_str));
        let commit = env!("BENCH_COMMIT");
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: (!commit.is_empty()).then(|| commit.to_owned()),
            started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            // Arguments with NUL bytes cannot be passed to a program.
            command: quoted.unwrap_or_else(|_| arguments.join(" ")),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the CPU model.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// Load average over one minute before the measurements: other load makes the figures unreliable.
    pub load: f64,
}

impl Machine {
    /// Describes this machine; unknown values are empty or 0.
    pub fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| {
                Some(
                    line.strip_prefix("model name")?
                        .split_once(':')?
                        .1
                        .trim()
                        .to_owned(),
                )
            })
            .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        let load = read("/proc/loadavg");
        Self {
            cpu,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: load
                .split_ascii_whitespace()
                .next()
                .and_then(|word| word.parse().ok())
                .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{Latency, Point};
    use crate::suite::{Measurement, Subject};

    fn results(rates: &[f64]) -> Results {
        let subject = Subject::Ring {
            point: Point::ZERO_COPY_READ,
        };
        let run = |rate: &f64| Figures {
            latency: Some(Latency {
                p50_ns: 1e9 / rate,
                p99_ns: 0.0,
                p99_9_ns: 0.0,
                distribution: None,
            }),
            ..Figures::of_rate(*rate, 4096)
        };
        Results::of_measurements(vec![Measurement {
            series: Series {
                runs: rates.iter().map(run).collect(),
                ..Series::new(subject.to_string())
            },
            subject,
            operations: 1,
            crashes: 0,
            failure: None,
        }])
    }

    fn compared(then: &[f64], now: &[f64]) -> Vec<Change> {
        let document = serde_json::to_string(&results(then)).expect("JSON");
        let baseline = Baseline::parse(&document).expect("a document");
        baseline.compare(&results(now)).changes
    }

    #[test]
    fn change_counts_only_outside_of_its_spread() {
        let then = [100.0, 101.0, 99.0];
        for (now, trend) in [
            ([120.0, 121.0, 119.0], Trend::Better),
            ([80.0, 81.0, 79.0], Trend::Worse),
            ([100.0, 120.0, 90.0], Trend::WithinSpread),
        ] {
            let changes = compared(&then, &now);
            let trends: Vec<_> = changes.iter().map(|change| change.trend).collect();
            assert_eq!(trends, [trend, trend], "{changes:?}");
        }
        let rate = &compared(&then, &[120.0, 121.0, 119.0])[0];
        assert_eq!((rate.then, rate.now), (100.0, 120.0));
        assert!((rate.change - 0.2).abs() < 1e-9, "{rate:?}");
        let [low, high] = rate.spread.expect("a spread");
        assert!(low < 0.2 && 0.2 < high, "{rate:?}");
    }

    #[test]
    fn single_runs_have_no_spread() {
        let changes = compared(&[100.0], &[300.0]);
        assert_eq!(changes[0].spread, None);
        assert_eq!(changes[0].trend, Trend::Unknown);
    }

    #[test]
    fn other_machines_are_named() {
        let mut results = results(&[1.0]);
        let document = serde_json::to_string(&results).expect("JSON");
        let baseline = Baseline::parse(&document).expect("a document");
        assert!(baseline.compare(&results).differences.is_empty());
        results.machine.cpus += 1;
        let differences = baseline.compare(&results).differences;
        assert_eq!(differences.len(), 1, "{differences:?}");
        assert!(Baseline::parse("{}").is_err());
    }
}
