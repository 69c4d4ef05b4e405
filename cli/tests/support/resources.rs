//! What a process takes of the machine.

use std::fs;

use conformance::process::Process;

/// Memory, descriptors and threads of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// Resident memory, KiB.
    pub memory: u64,
    pub descriptors: usize,
    pub threads: usize,
}

impl Resources {
    /// Of a running process.
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

    /// Checks that nothing has grown since `before`, but for memory by at most `slack` KiB, and descriptors by those that
    /// softdoca keeps of the last few connections.
    pub fn assert_flat_since(self, before: Self, slack: u64, who: &str) {
        const OF_LAST_CONNECTIONS: usize = 2 * 8;
        assert!(
            self.memory <= before.memory + slack
                && self.descriptors <= before.descriptors + OF_LAST_CONNECTIONS
                && self.threads <= before.threads,
            "the {who} grew from {before:?} to {self:?}"
        );
    }
}
