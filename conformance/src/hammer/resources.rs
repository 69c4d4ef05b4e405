//! What a process takes of the machine, and whether that grows.

use std::fs;
use std::io;

use crate::process::Process;

/// Memory that an allocator may keep from the largest session so far, KiB.
const MEMORY_SLACK: u64 = 8 * 1024;
/// Descriptors that softdoca keeps of the last few connections.
const DESCRIPTOR_SLACK: usize = 4 * 8;

/// Memory, descriptors and threads of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// Resident memory, KiB.
    pub memory: u64,
    /// Open files, sockets and shared memory.
    pub descriptors: usize,
    /// Pieces of shared memory that are mapped.
    pub shared: usize,
    /// Threads.
    pub threads: usize,
}

impl Resources {
    /// Of a running process.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn of(process: &Process) -> io::Result<Self> {
        Self::of_id(process.id())
    }

    /// The same, by the process id.
    pub(crate) fn of_id(id: u32) -> io::Result<Self> {
        let proc = format!("/proc/{id}");
        let entries =
            |name: &str| Ok::<_, io::Error>(fs::read_dir(format!("{proc}/{name}"))?.count());
        let status = fs::read_to_string(format!("{proc}/status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = resident.and_then(|text| text.trim().strip_suffix(" kB"));
        let maps = fs::read_to_string(format!("{proc}/maps"))?;
        Ok(Self {
            memory: memory
                .and_then(|text| text.trim().parse().ok())
                .ok_or_else(|| io::Error::other("a process without memory"))?,
            descriptors: entries("fd")?,
            shared: maps.matches("/memfd:").count(),
            threads: entries("task")?,
        })
    }

    /// The most of each.
    #[must_use]
    pub fn most(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            descriptors: self.descriptors.max(other.descriptors),
            shared: self.shared.max(other.shared),
            threads: self.threads.max(other.threads),
        }
    }

    /// Whether nothing has grown since `before`, but for what is kept for the next session.
    pub fn is_flat_since(self, before: Self) -> bool {
        self.memory <= before.memory + MEMORY_SLACK
            && self.descriptors <= before.descriptors + DESCRIPTOR_SLACK
            && self.shared <= before.shared + DESCRIPTOR_SLACK
            && self.threads <= before.threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_of_each_kind_is_seen() {
        let before = Resources {
            memory: 10_000,
            descriptors: 20,
            shared: 5,
            threads: 3,
        };
        assert!(before.is_flat_since(before));
        let grown = [
            Resources {
                memory: 20_000,
                ..before
            },
            Resources {
                descriptors: 60,
                ..before
            },
            Resources {
                shared: 50,
                ..before
            },
            Resources {
                threads: 4,
                ..before
            },
        ];
        for after in grown {
            assert!(!after.is_flat_since(before), "{after:?}");
        }
    }
}
