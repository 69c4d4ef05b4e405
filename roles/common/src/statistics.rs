//! Counters of workers, and their text format, which is the reference's.

use std::fmt;

use serde::Serialize;

/// The counters of one worker thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CoreStatistics {
    /// CPU that the worker is pinned to.
    pub core: u32,
    /// I/O operations that the worker completed.
    pub operation_count: u64,
    /// Calls of the progress engine that found work.
    pub pe_hit_count: u64,
    /// Calls of the progress engine that found no work.
    pub pe_miss_count: u64,
    /// I/O operations that failed because of a media error. Omitted from documents if zero.
    #[serde(skip_serializing_if = "is_zero")]
    pub media_errors: u64,
}

/// serde passes a reference.
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl CoreStatistics {
    /// Percentage of progress calls that found work; 0 without calls.
    #[must_use]
    pub fn pe_hit_rate(&self) -> f64 {
        let calls = self.pe_hit_count + self.pe_miss_count;
        if calls == 0 {
            0.0
        } else {
            self.pe_hit_count as f64 / calls as f64 * 100.0
        }
    }
}

/// The statistics of a service or a target: one block per worker, in the reference's words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Name of the program.
    pub application: &'static str,
    /// Sum of the workers' operations.
    pub operation_count: u64,
    /// One entry per worker.
    pub cores: Vec<CoreStatistics>,
}

impl Statistics {
    /// Creates the statistics of all workers of the program called `application`.
    #[must_use]
    pub fn new(application: &'static str, cores: Vec<CoreStatistics>) -> Self {
        let operation_count = cores.iter().map(|core| core.operation_count).sum();
        Self {
            application,
            operation_count,
            cores,
        }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for core in &self.cores {
            writeln!(f, "+================================================+")?;
            writeln!(f, "| Core: {}", core.core)?;
            writeln!(f, "| Operation count: {}", core.operation_count)?;
            let (rate, hit, miss) = (core.pe_hit_rate(), core.pe_hit_count, core.pe_miss_count);
            writeln!(f, "| PE hit rate: {rate:.3}% ({hit}:{miss})")?;
            if core.media_errors != 0 {
                writeln!(f, "| Media errors: {}", core.media_errors)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics() -> Statistics {
        let core = |core, operation_count| CoreStatistics {
            core,
            operation_count,
            pe_hit_count: 1,
            pe_miss_count: 3,
            media_errors: 0,
        };
        Statistics::new("app", vec![core(0, 5), core(3, 7)])
    }

    #[test]
    fn text_has_the_keys_of_the_reference() {
        let text = statistics().to_string();
        let expected = "+================================================+\n\
                        | Core: 0\n| Operation count: 5\n| PE hit rate: 25.000% (1:3)\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("| Core: 3\n"));
    }

    #[test]
    fn json_has_the_sum() {
        let json = serde_json::to_value(statistics()).expect("serializable");
        assert_eq!(json["operation_count"], 12);
        assert_eq!(json["cores"][1]["core"], 3);
    }

    #[test]
    fn hit_rate_without_calls_is_zero() {
        assert_eq!(CoreStatistics::default().pe_hit_rate().to_string(), "0");
    }
}
