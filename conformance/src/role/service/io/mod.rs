//! I/O through a running service.

mod blocks;
mod faults;
mod gga;
mod refusals;
mod volume;
mod zero_copy;

use crate::implementation::Role;
use crate::role::Check;

/// Checks of I/O through this service.
pub(super) fn checks(role: Role) -> Vec<Check> {
    let mut checks = blocks::CHECKS.to_vec();
    checks.extend(refusals::CHECKS);
    checks.extend(faults::CHECKS);
    match role {
        Role::GgaOffload => checks.extend(gga::CHECKS),
        _ => checks.extend(zero_copy::CHECKS),
    }
    checks
}
