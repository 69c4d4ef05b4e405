//! Memory, descriptors and threads of a process, and the detection of leaks.

use std::{fs, io};

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
    /// Growth that is not a leak: memory that an allocator retains from the largest session so far, and the resources
    /// that softdoca keeps for the last few connections to four peers.
    pub const RETAINED: Self = Self {
        memory: 8 * 1024,
        descriptors: 4 * 8,
        shared: 4 * 8,
        threads: 0,
    };

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

    /// Returns `true` if no resource has grown by more than `retained` since `before`.
    pub fn is_flat_since(self, before: Self, retained: Self) -> bool {
        self.memory <= before.memory + retained.memory
            && self.descriptors <= before.descriptors + retained.descriptors
            && self.shared <= before.shared + retained.shared
            && self.threads <= before.threads + retained.threads
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
        assert!(before.is_flat_since(before, Resources::RETAINED));
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
            assert!(
                !after.is_flat_since(before, Resources::RETAINED),
                "{after:?}"
            );
        }
    }
}
