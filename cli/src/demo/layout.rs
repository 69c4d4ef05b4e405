//! Deployments of the demo: a service and its targets.

use role_common::stored_block::Geometry;

/// A deployment of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// The zero-copy service, and a target with the content.
    ZeroCopy,
    /// The gga_offload service, and three targets.
    Gga(Gga),
}

/// Parameters of a gga deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gga {
    /// Sizes of the blocks on the targets.
    pub geometry: Geometry,
    /// Initial data of the targets.
    pub storage: Storage,
    /// Interval of recovery reads, `--trigger-recovery-read-every-n`; 0 for none.
    pub recover_every: u32,
}

/// Initial data of gga targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// The data, in the generator's files.
    Content,
    /// Zeros, which are not stored blocks: each block must be written before it is read.
    Empty,
}

impl Layout {
    /// Name as a value of `--layout`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ZeroCopy => "zero-copy",
            Self::Gga(_) => "gga",
        }
    }

    /// Subcommand of its service.
    pub fn service(&self) -> &'static str {
        match self {
            Self::ZeroCopy => "zero-copy",
            Self::Gga(_) => "gga-offload",
        }
    }

    /// Names of its targets.
    pub fn targets(&self) -> &'static [&'static str] {
        match self {
            Self::ZeroCopy => &["target"],
            Self::Gga(_) => &["data_1", "data_2", "data_p"],
        }
    }

    /// Flags of the service for the addresses of its targets.
    pub fn storage_flags(&self) -> &'static [&'static str] {
        match self {
            Self::ZeroCopy => &["--storage-server"],
            Self::Gga(_) => &["--data-1-storage", "--data-2-storage", "--data-p-storage"],
        }
    }

    /// Positions of the service and of the first target in the order of CPU allocation, after the initiator. The last
    /// ones share CPUs if there are few: zero-copy services handle no data, gga services the most.
    pub fn cpu_order(&self) -> (usize, usize) {
        match self {
            Self::ZeroCopy => (2, 1),
            Self::Gga(_) => (1, 2),
        }
    }

    /// I/Os of all targets for one I/O of the initiator with this number of blocks.
    pub fn target_ios(&self, blocks_per_io: u64) -> TargetIos {
        match self {
            // The service forwards the initiator's I/O.
            Self::ZeroCopy => TargetIos { read: 1, write: 1 },
            // Per block: two chunks, or all three.
            Self::Gga(_) => TargetIos {
                read: 2 * blocks_per_io,
                write: 3 * blocks_per_io,
            },
        }
    }
}

/// I/Os of all targets for one I/O of the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetIos {
    /// For a read.
    pub read: u64,
    /// For a write.
    pub write: u64,
}
