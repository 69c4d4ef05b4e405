//! Statistics of the workers, in the reference's format, with additional counts.

use std::fmt;

use gga_engine::Target;
use gga_engine::set::{PassProgress, Snapshot, Summary};
use gga_engine::statistics::{
    BlockTraffic, Corruption, DegradedCounts, EngineStatistics, Occurrences,
};
use metrics::{CoreStatistics, Count, Counts, Page};
use serde::Serialize;

/// Counters of one worker thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct GgaCoreStatistics {
    #[serde(flatten)]
    pub(crate) core: CoreStatistics,
    #[serde(flatten)]
    pub(crate) engine: EngineStatistics,
}

/// Counts that this service declares for metrics in addition to those of all roles.
pub(crate) const COUNTS: [Count; 10] = [
    Count::Failed,
    Count::Refused,
    Count::Incompressible,
    Count::Uncorrectable,
    Count::Unexpected,
    Count::FailedChunkReads,
    Count::RecoveryReads,
    Count::DegradedReads,
    Count::DegradedWrites,
    Count::CorrectedChunks,
];

/// Converts counters to metrics, with blocks of `block_size` bytes.
pub(crate) fn counts(of: &EngineStatistics, block_size: u32) -> Counts {
    let BlockTraffic {
        reads,
        writes,
        flushes,
        read_blocks,
        written_blocks,
    } = of.traffic;
    let degraded = of.degraded.unwrap_or_default();
    let sum = |counts: [Occurrences; 3]| counts.iter().map(|count| count.0).sum();
    let block_size = u64::from(block_size);
    Counts::default()
        .with(Count::Reads, reads)
        .with(Count::Writes, writes)
        .with(Count::Flushes, flushes)
        .with(Count::ReadBytes, read_blocks * block_size)
        .with(Count::WrittenBytes, written_blocks * block_size)
        .with(Count::Failed, of.failed_count)
        .with(Count::Refused, of.refused.0)
        .with(Count::Incompressible, of.incompressible.0)
        .with(Count::Uncorrectable, of.corruption.uncorrectable.0)
        .with(Count::Unexpected, of.unasked.0)
        .with(Count::FailedChunkReads, sum(degraded.failed_reads))
        .with(Count::RecoveryReads, of.recovery_count)
        .with(Count::DegradedReads, degraded.reads)
        .with(Count::DegradedWrites, degraded.writes)
        .with(Count::CorrectedChunks, sum(of.corruption.corrected))
}

/// The statistics of the service: one block per worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct GgaStatistics {
    pub(crate) application: &'static str,
    pub(crate) operation_count: u64,
    pub(crate) recovery_count: u64,
    pub(crate) failed_count: u64,
    #[serde(flatten)]
    pub(crate) corruption: Corruption,
    /// With `--degraded on` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) degraded: Option<DegradedCounts>,
    /// With `--degraded on`, or if chunks were repaired or stripes scrubbed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) redundancy: Option<Summary>,
    pub(crate) cores: Vec<GgaCoreStatistics>,
}

impl GgaStatistics {
    pub(crate) fn new(
        application: &'static str,
        cores: Vec<GgaCoreStatistics>,
        redundancy: Option<Summary>,
    ) -> Self {
        let mut sum = Self {
            application,
            redundancy,
            ..Self::default()
        };
        for core in &cores {
            sum.operation_count += core.core.operation_count;
            sum.recovery_count += core.engine.recovery_count;
            sum.failed_count += core.engine.failed_count;
            for (sum, count) in sum
                .corruption
                .corrected
                .iter_mut()
                .zip(core.engine.corruption.corrected)
            {
                sum.0 += count.0;
            }
            sum.corruption.uncorrectable.0 += core.engine.corruption.uncorrectable.0;
            if let Some(counts) = &core.engine.degraded {
                sum.degraded.get_or_insert_default().add(counts);
            }
        }
        sum.cores = cores;
        sum
    }
}

impl fmt::Display for GgaStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for GgaCoreStatistics { core, engine } in &self.cores {
            let EngineStatistics {
                recovery_count,
                failed_count,
                corruption,
                ..
            } = engine;
            writeln!(f, "+================================================+")?;
            writeln!(f, "| Core: {}", core.core)?;
            writeln!(f, "| Operation count: {}", core.operation_count)?;
            writeln!(f, "| Recovery count: {recovery_count}")?;
            let (rate, hit, miss) = (core.pe_hit_rate(), core.pe_hit_count, core.pe_miss_count);
            writeln!(f, "| PE hit rate: {rate:.3}% ({hit}:{miss})")?;
            // Lines that the reference does not have are printed last, and only for nonzero counts.
            if *failed_count != 0 {
                writeln!(f, "| Failed operation count: {failed_count}")?;
            }
            if !corruption.is_none() {
                for target in Target::ALL {
                    let count = corruption.corrected[target.number()];
                    writeln!(f, "| Corrected half blocks of {}: {count}", target.name())?;
                }
                writeln!(f, "| Uncorrectable blocks: {}", corruption.uncorrectable)?;
            }
        }
        if let Some(counts) = &self.degraded {
            writeln!(f, "+================================================+")?;
            writeln!(f, "| Reads through parity: {}", counts.reads)?;
            writeln!(f, "| Writes without a target: {}", counts.writes)?;
            for target in Target::ALL {
                let count = counts.failed_reads[target.number()];
                writeln!(f, "| Failed reads of {}: {count}", target.name())?;
            }
            writeln!(f, "| Impossible blocks: {}", counts.impossible)?;
        }
        self.redundancy
            .as_ref()
            .map_or(Ok(()), |summary| summary.fmt(f))
    }
}

/// Names of the states in a [`Summary`](gga_engine::set::Summary).
const STATES: [&str; 4] = ["healthy", "degraded", "rebuilding", "failed"];

/// Writes the metrics of the set of the current or last session. The set's counters are reset at the start of each session.
pub(crate) fn write(page: &mut Page<'_>, set: &Snapshot) -> fmt::Result {
    let summary = &set.summary;
    page.gauges(
        "doca_storage_redundancy_state",
        "1 for the state of the set, 0 for the others",
        STATES.map(|state| {
            let labels = [("state", state.to_owned())];
            (labels, f64::from(u8::from(state == summary.state)))
        }),
    )?;
    let target = |target: Target| [("target", target.name().to_owned())];
    page.gauges(
        "doca_storage_target_online",
        "Whether I/Os are sent to the target",
        Target::ALL.map(|it| {
            let is_online = set.online[it.number()];
            (target(it), f64::from(u8::from(is_online)))
        }),
    )?;
    page.counters(
        "doca_storage_target_detachments",
        "How often the target was detached",
        Target::ALL.map(|it| (target(it), summary.lost[it.number()])),
    )?;
    page.counters(
        "doca_storage_repaired_chunks",
        "Corrupt chunks that were rewritten",
        Target::ALL.map(|it| (target(it), summary.repaired_chunks[it.number()])),
    )?;
    let gauges = [
        ("stripes", "Stripes of the set", set.stripes),
        (
            "missed_stripes",
            "Stripes that a target has missed (dirty), and that were not rebuilt",
            summary.missed_stripes,
        ),
        (
            "unsettled_stripes",
            "Stripes whose last write was interrupted, and that were not settled",
            set.unsettled_stripes,
        ),
    ];
    for (name, help, value) in gauges {
        page.gauge(&format!("doca_storage_{name}"), help, value as f64)?;
    }
    let work = |kind: &str| [("work", kind.to_owned())];
    let share = |done: u64, total: u64| {
        if total == 0 {
            1.0
        } else {
            done as f64 / total as f64
        }
    };
    let pass = |is_rebuild| match set.pass {
        Some(PassProgress {
            is_rebuild: it,
            done,
            total,
        }) if it == is_rebuild => share(done, total),
        _ => 1.0,
    };
    page.gauges(
        "doca_storage_work_progress_ratio",
        "How far rebuild, resync and scrub are; 1 while there is none",
        [
            (work("rebuild"), pass(true)),
            (work("resync"), pass(false)),
            (
                work("scrub"),
                set.scrub.map_or(1.0, |cursor| share(cursor, set.stripes)),
            ),
        ],
    )?;
    let result = |result: &str| [("result", result.to_owned())];
    let settled = summary.settled_stripes;
    page.counters(
        "doca_storage_resynced_stripes",
        "Stripes that were settled after an interrupted write, by result",
        [
            (result("consistent"), settled.consistent),
            (result("rewritten"), settled.rewritten),
            (result("lost"), settled.lost),
        ],
    )?;
    let scrubbed = summary.scrubbed;
    let counters = [
        (
            "rebuilt_stripes",
            "Stripes that were rebuilt",
            summary.rebuilt_stripes,
        ),
        ("scrubs", "Scrubs that were completed", scrubbed.completed),
        (
            "scrubbed_stripes",
            "Stripes that scrubs have read and compared",
            scrubbed.stripes,
        ),
        (
            "lost_stripes",
            "Stripes of which scrubs found no two chunks of the same write",
            scrubbed.lost,
        ),
        (
            "stalls",
            "How often an unresponsive target was waited for because another one was not current",
            set.stalled,
        ),
    ];
    for (name, help, value) in counters {
        page.counter(&format!("doca_storage_{name}"), help, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gga_engine::set::{Scrubbed, Settled};

    fn core() -> GgaCoreStatistics {
        GgaCoreStatistics {
            core: CoreStatistics {
                core: 3,
                operation_count: 7,
                pe_hit_count: 1,
                pe_miss_count: 3,
                media_errors: 0,
            },
            engine: EngineStatistics {
                recovery_count: 2,
                ..EngineStatistics::default()
            },
        }
    }

    #[test]
    fn text_has_the_keys_of_the_reference() {
        let text = GgaStatistics::new("app", vec![core()], None).to_string();
        let expected = "+================================================+\n| Core: 3\n| Operation count: 7\n\
                        | Recovery count: 2\n| PE hit rate: 25.000% (1:3)\n";
        assert_eq!(text, expected, "and no more when nothing went wrong");
    }

    #[test]
    fn corruption_is_printed_per_target() {
        let mut wrong = core();
        wrong.engine.corruption.corrected[Target::Data2.number()].count();
        wrong.engine.corruption.uncorrectable.0 = 4;
        let statistics = GgaStatistics::new("app", vec![core(), wrong, wrong], None);
        let text = statistics.to_string();
        for (name, count) in [("data_1", 0), ("data_2", 1), ("data_p", 0), ("blocks", 4)] {
            let cell = format!(" {name}: {count}\n");
            assert_eq!(text.matches(&cell).count(), 2, "{cell}: {text}");
        }
        let json = serde_json::to_value(&statistics).expect("serializable");
        assert_eq!(json["operation_count"], 21);
        assert_eq!(json["corrected"], serde_json::json!([0, 2, 0]));
        assert_eq!(json["uncorrectable"], 8);
        assert_eq!(json["cores"][1]["core"], 3);
        assert_eq!((json.get("degraded"), json.get("redundancy")), (None, None));
    }

    #[test]
    fn degraded_operation_is_printed() {
        let mut survivor = core();
        let counts = survivor.engine.degraded.get_or_insert_default();
        counts.reads = 5;
        counts.failed_reads[1].count();
        let summary = Summary {
            state: "degraded",
            lost: [0, 1, 0],
            missed_stripes: 9,
            rebuilt_stripes: 0,
            settled_stripes: Settled {
                consistent: 4,
                ..Settled::default()
            },
            repaired_chunks: [0, 3, 0],
            scrubbed: Scrubbed::default(),
        };
        let statistics = GgaStatistics::new("app", vec![survivor, survivor], Some(summary));
        let json = serde_json::to_value(&statistics).expect("serializable");
        assert_eq!(json["degraded"]["reads"], 10);
        assert_eq!(
            json["degraded"]["failed_reads"],
            serde_json::json!([0, 2, 0])
        );
        assert_eq!(json["redundancy"]["missed_stripes"], 9);
        let text = statistics.to_string();
        for cell in [
            " parity: 10\n",
            " degraded\n",
            " data_2: 1\n",
            " 4 consistent",
            " 0 rewritten",
            " 0 lost",
            " data_2: 3\n",
        ] {
            assert!(text.contains(cell), "{cell}: {text}");
        }
    }
}
