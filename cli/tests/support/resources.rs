//! Resources used by a process.

use std::fs;
use std::time::{Duration, Instant};

use ::deployment::process::Process;

use super::default_deadline;

/// Memory, descriptors and threads of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// Resident memory in KiB.
    pub memory: u64,
    pub descriptors: usize,
    pub threads: usize,
}

impl Resources {
    /// Reads the resources of a running process.
    pub fn of(process: &Process) -> Self {
        let proc = format!("/proc/{}", process.id());
        let entries = |name: &str| {
            fs::read_dir(format!("{proc}/{name}"))
                .expect("a process")
                .count()
        };
        let status = fs::read_to_string(format!("{proc}/status")).expect("a process");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = resident.and_then(|text| text.trim().strip_suffix(" kB"));
        Self {
            memory: memory
                .and_then(|text| text.trim().parse().ok())
                .expect("a size"),
            descriptors: entries("fd"),
            threads: entries("task"),
        }
    }

    /// Waits until a process uses no more than `before`, except for `slack` KiB of memory, and the descriptors that softdoca
    /// keeps for the last few connections. softdoca's agent, a thread with three descriptors, exits some time after the last
    /// export was destroyed, which may be after the session was reported as ended: this waits for it.
    pub fn wait_until_flat(self, process: &Process, slack: u64, who: &str) {
        const OF_LAST_CONNECTIONS: usize = 2 * 8;
        let before = self;
        let deadline = default_deadline();
        loop {
            let now = Self::of(process);
            if now.memory <= before.memory + slack
                && now.descriptors <= before.descriptors + OF_LAST_CONNECTIONS
                && now.threads <= before.threads
            {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "the {who} grew from {before:?} to {now:?}"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
