//! `doca_common`: progress engines, graphs, the cache, and sync events between host and DPU.

use super::{DPU, HOST};
use crate::samples::scenario::{Event, Party, Scenario, Side};

const LIBRARY: &str = "doca_common";

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut scenarios = vec![
        alone("pe_polling", |party| party.says("All tasks are completed")),
        alone("pe_event", |party| party.says("All tasks completed")),
        alone("pe_single_task_comp_cb", |party| {
            party.says("All tasks are completed")
        }),
        alone("pe_multi_context", |party| {
            // Once for all, and for each of four contexts.
            party
                .says_times("Allocating tasks", 5)
                .says("All tasks are completed")
        }),
        alone("pe_reactive", |party| {
            party
                .says("All tasks have completed")
                .says("DMA context has been stopped")
        }),
        alone("pe_task_resubmit", |party| {
            // Sixteen pairs of buffers for four tasks.
            party
                .says_times("resubmitting", 12)
                .says("All tasks are completed")
        }),
        alone("pe_task_try_submit", |party| {
            party.says("All tasks are completed")
        }),
        // Stops with tasks in flight: some end well, the others are flushed.
        alone("pe_async_stop", |party| {
            party
                .says("completed successfully")
                .says("Stopping DMA in the middle")
                .says("Task flushed")
                .says("from stopping to idle")
        }),
        // Its second task is wrong on purpose: the context stops by itself.
        alone("pe_task_error", |party| {
            party
                .says("Task failed with status")
                .says("moved to stopping state unexpectedly")
                .says("from stopping to idle")
                .shows_errors()
        }),
        alone("clock_cross_timestamp", |party| {
            party
                .arguments(["-p", DPU, "-c", "host_rt", "-n", "nic_rt"])
                .says("Cross-timestamp - ")
        }),
        alone("graph", |party| {
            party
                .says_times("user callback", 10)
                .says("All instances completed")
        }),
        alone("cache_invalidate", |party| {
            party
                .says("DMA completed")
                .says("Cache invalidate completed")
        }),
    ];
    for (mode, flags) in [
        ("set", &[][..]),
        ("add", &["--atomic"]),
        ("async_set", &["--async", "--async-num-tasks", "4"]),
        (
            "async_add",
            &["--async", "--async-num-tasks", "4", "--atomic"],
        ),
    ] {
        scenarios.push(sync_event(mode, flags, Side::Dpu));
        scenarios.push(sync_event(mode, flags, Side::Host));
    }
    scenarios
}

fn alone(sample: &'static str, party: impl Fn(Party) -> Party) -> Scenario {
    Scenario::new(LIBRARY, sample).party(party(Party::new("sample", sample)))
}

/// An event that lives on one side of PCIe and is changed and awaited by both. The DPU has the server.
fn sync_event(mode: &str, flags: &[&str], home: Side) -> Scenario {
    let local = "sync_event_local_pci";
    let remote = "sync_event_remote_pci";
    let (on_dpu, on_host, place) = match home {
        Side::Host => (remote, local, "host"),
        Side::Dpu | Side::Any => (local, remote, "dpu"),
    };
    let waits = "to be signaled from remote side";
    let dpu = Party::new("dpu", on_dpu)
        .on(Side::Dpu)
        .arguments(["-d", DPU, "-r", HOST])
        .arguments(flags.to_vec())
        .says(waits);
    let host = Party::new("host", on_host)
        .on(Side::Host)
        .arguments(["-d", HOST])
        .arguments(flags.to_vec())
        .starts_when(Event::rests("dpu"))
        .says(waits);
    Scenario::new(LIBRARY, format!("{local}:{place}_{mode}"))
        .party(dpu)
        .party(host)
}
