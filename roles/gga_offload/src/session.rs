//! The control session of the gga_offload service: three targets with chunks of stored blocks, presented to the initiator as one storage.

use doca::ErrorCode;
use role_common::Failure;
use role_common::service::session::{self, Layout};
use role_common::stored_block::{Geometry, HALF_ALIGNMENT, STORED_ALIGNMENT};
use wire::control::{FEATURE_FLUSH, StorageDetails};

use crate::target::Placement;

/// The session of a service with three targets.
pub type Session = session::Session<Striped>;

/// Layout of stored blocks: two data chunks on two targets, their parity chunk on the third.
#[derive(Debug, Clone, Copy, Default)]
pub struct Striped {
    /// Bytes of the initiator's blocks; `None` for as many as are stored of them.
    pub logical_block_size: Option<u32>,
    /// Placement of stored blocks on the targets.
    pub placement: Placement,
}

impl Striped {
    /// Sizes of stored blocks and content on a target with this storage.
    ///
    /// # Errors
    ///
    /// Half blocks of this size cannot be encoded, or have no room for the content.
    pub fn geometry(&self, target: &StorageDetails) -> Result<Geometry, Failure> {
        let held = target.block_size;
        let stored = self.placement.stored_block_size(held);
        let stored = stored.filter(|size| *size != 0 && size.is_multiple_of(STORED_ALIGNMENT));
        let Some(stored_block_size) = stored else {
            let alignment = match self.placement {
                Placement::HalfBlocks => HALF_ALIGNMENT,
                Placement::WholeBlocks => STORED_ALIGNMENT,
            };
            return Err(Failure::new(
                ErrorCode::NOT_SUPPORTED,
                format!(
                    "block size of the targets: expected a multiple of {alignment} below 2 GiB, as erasure coding \
                     needs, got {held}"
                ),
            ));
        };
        let Some(logical_block_size) = self.logical_block_size else {
            return Ok(Geometry::compatible(stored_block_size));
        };
        let geometry = Geometry {
            stored_block_size,
            logical_block_size,
        };
        if geometry.holds_any_content() {
            return Ok(geometry);
        }
        let needed = Geometry::for_logical(logical_block_size).map_or(u32::MAX, |geometry| {
            match self.placement {
                Placement::HalfBlocks => geometry.half_block_size(),
                Placement::WholeBlocks => geometry.stored_block_size,
            }
        });
        Err(Failure::invalid(format!(
            "block size of the targets: --logical-block-size {logical_block_size} needs targets with blocks of at least \
             {needed} bytes, got {held}"
        )))
    }
}

impl Layout for Striped {
    const TARGETS: &'static [&'static str] = &[
        "storage target data_1",
        "storage target data_2",
        "storage target data_p",
    ];

    fn present(&self, targets: &[StorageDetails]) -> Result<StorageDetails, Failure> {
        let [first, others @ ..] = targets else {
            return Err(Failure::unexpected("no target answered"));
        };
        for (name, other) in Self::TARGETS[1..].iter().zip(others) {
            for (what, expected, came) in [
                ("capacity", first.total_size, other.total_size),
                (
                    "block_size",
                    first.block_size.into(),
                    other.block_size.into(),
                ),
            ] {
                if expected != came {
                    let message = format!(
                        "Mismatch in {what}: {expected} vs {came} ({} vs {name})",
                        Self::TARGETS[0]
                    );
                    return Err(Failure::new(ErrorCode::BAD_STATE, message));
                }
            }
        }
        let geometry = self.geometry(first)?;
        let block_count = first.total_size / u64::from(first.block_size);
        let total_size = block_count
            .checked_mul(geometry.logical_block_size.into())
            .ok_or_else(|| {
                Failure::invalid(format!(
                    "capacity of the targets: {} bytes are too many to be doubled",
                    first.total_size
                ))
            })?;
        tracing::info!(
            "{block_count} stored blocks of {} bytes for blocks of {} bytes",
            geometry.stored_block_size,
            geometry.logical_block_size
        );
        Ok(StorageDetails {
            total_size,
            block_size: geometry.logical_block_size,
        })
    }

    const FEATURES: u32 = FEATURE_FLUSH;

    /// A flush goes to all targets, so all have to have it.
    fn features(&self, targets: &[u32]) -> u32 {
        targets.iter().fold(u32::MAX, |all, target| all & target)
    }
}

#[cfg(test)]
mod tests;
