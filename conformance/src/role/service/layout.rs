//! What the targets hold, and how the initiator sees it.

use wire::control::StorageDetails;
use wire::release::Release;

use crate::implementation::Role;
use crate::role::Bench;
use crate::target::{Fault, Script};

/// Bytes of a block, as the initiator sees it.
pub(super) const BLOCK: usize = 4096;
/// Blocks of the storage.
pub(super) const BLOCKS: usize = 16;
/// What the targets of a check hold: of a zero copy service one, of gga_offload three with half blocks.
pub(super) fn scripts(bench: &Bench<'_>) -> Vec<Script> {
    let (targets, block_size) = match bench.subject().role {
        Role::GgaOffload => (3, BLOCK / 2),
        _ => (1, BLOCK),
    };
    let script = |_| Script {
        device: bench.subject().host_device.clone(),
        block_size: block_size as u32,
        content: vec![0; BLOCKS * block_size],
        fault: Fault::None,
        features: 0,
        records: None,
        release: Release::default(),
    };
    (0..targets).map(script).collect()
}

/// What the initiator is to be told of these targets.
pub(super) fn presented(scripts: &[Script]) -> StorageDetails {
    let factor = if scripts.len() == 3 { 2 } else { 1 };
    StorageDetails {
        total_size: scripts[0].content.len() as u64 * factor,
        block_size: scripts[0].block_size * factor as u32,
    }
}
