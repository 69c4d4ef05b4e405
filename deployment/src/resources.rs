//! Memory, descriptors and threads of a process, and the detection of leaks.

use std::{fs, io};

/// Memory in KiB that an allocator may retain from the largest session so far.
const MEMORY_SLACK: u64 = 8 * 1024;
/// Descriptors that softdoca keeps for the last few connections.
const DESCRIPTOR_SLACK: usize = 4 * 8;

/// Memory, descriptors and threads of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resources {
    /// Resident memory in KiB.
    pub memory: u64,
    /// Number of open files, sockets and shared memory objects.
    pub descriptors: usize,
    /// Number of mapped shared memory objects.
    pub shared: usize,
    pub threads: usize,
}

impl Resources {
    /// Reads the resources of the process with this id.
    ///
    /// # Errors
    ///
    /// The process has exited, or is of another user.
    pub fn of(id: u32) -> io::Result<Self> {
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

    /// Maximum of each field.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            descriptors: self.descriptors.max(other.descriptors),
            shared: self.shared.max(other.shared),
            threads: self.threads.max(other.threads),
        }
    }

    /// Returns `true` if nothing has grown since `before`, except for resources that are kept for the next session.
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
    fn growth_of_each_resource_is_detected() {
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
