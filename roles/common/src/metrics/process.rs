//! Process metrics from the kernel, under the names that Prometheus' own clients use.

use std::fmt;
use std::fs;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Page;

/// Writes resident memory, CPU time, open descriptors and start time of the process. Values that the kernel does not
/// report are left out.
pub(super) fn write(page: &mut Page<'_>) -> fmt::Result {
    if let Some(bytes) = resident_bytes() {
        let help = "Resident memory in bytes";
        page.gauge("process_resident_memory_bytes", help, bytes as f64)?;
    }
    if let Some(seconds) = cpu_seconds() {
        page.counter_of_seconds("process_cpu_seconds", "CPU time in seconds", seconds)?;
    }
    if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
        let help = "Open file descriptors";
        page.gauge("process_open_fds", help, descriptors.count() as f64)?;
    }
    let help = "Start of the metrics in seconds since 1970";
    page.gauge("process_start_time_seconds", help, started())
}

/// Time of the first call, in seconds since 1970.
pub(super) fn started() -> f64 {
    static STARTED: OnceLock<f64> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap_or_default().as_secs_f64()
    })
}

fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name, in parentheses, may contain spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks =
        |field: usize| -> Option<u64> { fields.split_whitespace().nth(field)?.parse().ok() };
    let (user, system) = (ticks(11)?, ticks(12)?);
    Some((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_time_of_this_process_are_plausible() {
        let resident = resident_bytes().expect("/proc");
        assert!((1 << 20..1 << 40).contains(&resident), "{resident}");
        let seconds = cpu_seconds().expect("/proc");
        assert!((0.0..1e6).contains(&seconds), "{seconds}");
    }
}
