//! The deployments that the demo runs: which service, over which targets.

use role_common::stored_block::Geometry;

/// A deployment of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// The zero-copy service, and a target with the content.
    ZeroCopy,
    /// The gga_offload service, and three targets.
    Gga(Gga),
}

/// What is particular to a gga deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gga {
    /// Sizes of the blocks on the targets.
    pub geometry: Geometry,
    /// What the targets begin with.
    pub storage: Storage,
    /// Every which read of a worker has to do without data_1 or data_2; 0 for none.
    pub recover_every: u32,
}

/// What gga targets begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// The content, in the generator's files.
    Content,
    /// Zeros, which are no stored blocks: each block must be written before it is read.
    Empty,
}

impl Layout {
    /// The value of `--layout` that asks for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ZeroCopy => "zero-copy",
            Self::Gga(_) => "gga",
        }
    }

    /// The subcommand that is its service.
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

    /// The flags that tell the service where these targets are.
    pub fn storage_flags(&self) -> &'static [&'static str] {
        match self {
            Self::ZeroCopy => &["--storage-server"],
            Self::Gga(_) => &["--data-1-storage", "--data-2-storage", "--data-p-storage"],
        }
    }

    /// Numbers of the service and of the first target in the order in which roles get CPUs, after the initiator. Those
    /// that come last share when there are few: zero-copy services touch no data, and gga services more than anybody.
    pub fn cpu_order(&self) -> (usize, usize) {
        match self {
            Self::ZeroCopy => (2, 1),
            Self::Gga(_) => (1, 2),
        }
    }

    /// What all targets together see of one I/O of the initiator, of so many blocks.
    pub fn target_ios(&self, blocks_per_io: u64) -> TargetIos {
        match self {
            // The service passes on what the initiator asks for.
            Self::ZeroCopy => TargetIos { read: 1, write: 1 },
            // Block by block: any two halves, or all three.
            Self::Gga(_) => TargetIos {
                read: 2 * blocks_per_io,
                write: 3 * blocks_per_io,
            },
        }
    }
}

/// I/Os that all targets together see for one of the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetIos {
    /// For a read.
    pub read: u64,
    /// For a write.
    pub write: u64,
}
