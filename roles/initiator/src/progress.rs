//! Progress display of a run.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use role_common::errln;
use role_common::metrics::WorkerMetrics;

use crate::cli::ProgressMode;

/// Interval between reads of the workers' counters.
pub const REFRESH: Duration = Duration::from_millis(100);

/// Interval between lines if lines cannot be overwritten.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// State shared by a worker and the main thread during a run. On cache lines of its own, to avoid false sharing with
/// other workers.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counter {
    completed: AtomicU32,
    abandoned: AtomicBool,
    /// With `--metrics`.
    metrics: Option<Arc<WorkerMetrics>>,
}

impl Counter {
    /// Creates a counter, with the worker's metrics if it has any.
    #[must_use]
    pub fn new(metrics: Option<Arc<WorkerMetrics>>) -> Self {
        Self {
            metrics,
            ..Self::default()
        }
    }

    /// Metrics to publish to, with `--metrics`.
    #[inline]
    #[must_use]
    pub fn metrics(&self) -> Option<&Arc<WorkerMetrics>> {
        self.metrics.as_ref()
    }

    /// Publishes the number of completed operations; not called per operation.
    pub fn publish(&self, completed: u32) {
        self.completed.store(completed, Ordering::Relaxed);
    }

    /// Last published number.
    #[must_use]
    pub fn completed(&self) -> u32 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Marks the service as unresponsive: a halted run then does not wait for I/Os in flight.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if [`Counter::abandon`] was called.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }
}

/// The progress line.
#[derive(Debug)]
pub struct Progress {
    counters: Vec<Arc<Counter>>,
    total: u64,
    display: Display,
}

#[derive(Debug)]
enum Display {
    None,
    Bar(ProgressBar),
    Lines { begin: Instant, next: Instant },
}

impl Progress {
    /// Creates a display of progress towards `total` operations of all workers, on standard error: one overwritten
    /// line on a terminal, otherwise, if requested, a line per second.
    #[must_use]
    pub fn new(mode: ProgressMode, total: u64, counters: Vec<Arc<Counter>>) -> Self {
        let display = match (mode, std::io::stderr().is_terminal()) {
            (ProgressMode::Never, _) | (ProgressMode::Auto, false) => Display::None,
            (ProgressMode::Always | ProgressMode::Auto, true) => {
                Display::Bar(role_common::console::progress_bar(total, "operations"))
            }
            (ProgressMode::Always, false) => {
                let begin = Instant::now();
                Display::Lines {
                    begin,
                    next: begin + LINE_INTERVAL,
                }
            }
        };
        Self {
            counters,
            total,
            display,
        }
    }

    /// Time of the next [`Progress::refresh`]; `None` if progress is hidden.
    #[must_use]
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        match self.display {
            Display::None => None,
            Display::Bar(_) => Some(now + REFRESH),
            Display::Lines { next, .. } => Some(next),
        }
    }

    /// Updates the display.
    pub fn refresh(&mut self, now: Instant) {
        let completed = self.completed();
        match &mut self.display {
            Display::None => {}
            Display::Bar(bar) => bar.set_position(completed),
            Display::Lines { begin, next } => {
                if now >= *next {
                    *next = now + LINE_INTERVAL;
                    errln!(
                        "{}",
                        line(completed, self.total, now.saturating_duration_since(*begin))
                    );
                }
            }
        }
    }

    fn completed(&self) -> u64 {
        self.counters
            .iter()
            .map(|counter| u64::from(counter.completed()))
            .sum()
    }
}

impl Drop for Progress {
    /// Removes the line before the statistics are printed.
    fn drop(&mut self) {
        if let Display::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }
}

fn line(completed: u64, total: u64, elapsed: Duration) -> String {
    let percent = completed as f64 * 100.0 / total.max(1) as f64;
    let rate = completed as f64 / elapsed.as_secs_f64().max(f64::EPSILON);
    format!("{completed} of {total} operations ({percent:.0} %), {rate:.0} per second")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_has_percentage_and_rate() {
        assert_eq!(
            line(250, 1000, Duration::from_secs(2)),
            "250 of 1000 operations (25 %), 125 per second"
        );
        assert_eq!(
            line(0, 0, Duration::ZERO),
            "0 of 0 operations (0 %), 0 per second"
        );
    }

    #[test]
    fn workers_are_summed() {
        let counters = vec![Arc::new(Counter::default()), Arc::new(Counter::default())];
        counters[0].publish(3);
        counters[1].publish(4);
        assert_eq!(
            Progress::new(ProgressMode::Never, 10, counters).completed(),
            7
        );
    }

    #[test]
    fn no_updates_are_scheduled_if_progress_is_hidden() {
        assert_eq!(
            Progress::new(ProgressMode::Never, 10, Vec::new()).deadline(Instant::now()),
            None
        );
    }

    #[test]
    fn counters_do_not_share_cache_lines() {
        assert_eq!(align_of::<Counter>(), 128);
    }
}
