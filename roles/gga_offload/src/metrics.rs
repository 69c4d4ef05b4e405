//! The redundancy of the set as metrics.

use std::fmt;

use role_common::metrics::Page;

use crate::engine::set::{PassProgress, Snapshot};
use crate::target::Target;

/// The states that [`Summary`](crate::engine::set::Summary) names.
const STATES: [&str; 4] = ["healthy", "degraded", "rebuilding", "failed"];

/// Writes the state of the set of the session, or of the last one. Its counters are reset at the beginning of each session.
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
        "Chunks that were not what was written, and were rewritten",
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
            "unverified_stripes",
            "Stripes that are to be verified after an unclean shutdown",
            set.unverified_stripes,
        ),
        (
            "pending_repairs",
            "Stripes that wait for a repair",
            set.repairs,
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
    let verified = summary.verified_stripes;
    page.counters(
        "doca_storage_resynced_stripes",
        "Stripes that a resync has verified, by result",
        [
            (result("fitting"), verified.fitting),
            (result("repaired"), verified.repaired),
            (result("unreadable"), verified.unreadable),
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
            "unreadable_stripes",
            "Stripes that scrubs could not read from any two chunks",
            scrubbed.unreadable,
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
