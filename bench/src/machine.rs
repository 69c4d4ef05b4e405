//! Description of the machine that was measured.

use std::fs;

use serde::{Deserialize, Serialize};

/// Summary of a machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the CPU model.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// Load average over one minute before the measurements: other load makes figures useless, and comparisons less accurate.
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
