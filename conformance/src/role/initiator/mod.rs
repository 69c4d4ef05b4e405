//! Checks of an initiator: its peer is a scripted service, which holds the storage itself.

mod control_faults;
mod data_path;
mod departures;
mod geometry;
mod host_memory;
mod plan;
mod results;
mod service;
mod sessions;
mod strategies;

use super::Check;

/// Names of the checks that give the initiator a local region smaller than the storage.
pub(super) const NEED_SMALL_REGIONS: [&str; 2] = ["small-local-region", "storage-beyond-4-gib"];

/// All of them, the plain ones first.
pub(super) fn checks() -> Vec<Check> {
    [
        strategies::CHECKS,
        sessions::CHECKS,
        geometry::CHECKS,
        results::CHECKS,
        control_faults::CHECKS,
        departures::CHECKS,
    ]
    .concat()
}
