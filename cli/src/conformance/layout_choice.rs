//! The deployments that a command is about.

use ::conformance::matrix::Layout;
use clap::ValueEnum;

/// Which deployments.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum LayoutChoice {
    /// The zero-copy service and one target
    ZeroCopy,
    /// The gga_offload service and three targets
    Gga,
    /// Both
    All,
}

impl LayoutChoice {
    /// The same as deployments.
    pub(super) fn layouts(self) -> &'static [Layout] {
        match self {
            Self::ZeroCopy => &[Layout::ZeroCopy],
            Self::Gga => &[Layout::Gga],
            Self::All => &Layout::ALL,
        }
    }
}
