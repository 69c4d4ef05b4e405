//! Checks of a service: `zero_copy` with one target, or `gga_offload` with three.

mod answers;
mod cast;
mod course;
mod ends;
mod frames;
mod heard;
mod io;
mod layout;
mod point;
mod refusals;
mod stored;
mod target;
mod visit;

pub(crate) use visit::visit;

use super::Check;
use crate::implementation::Role;

/// All checks of this service.
pub(super) fn checks(role: Role) -> Vec<Check> {
    let mut checks = course::CHECKS.to_vec();
    checks.extend(refusals::CHECKS);
    checks.extend(frames::CHECKS);
    checks.extend(answers::checks());
    checks.extend(ends::checks());
    checks.extend(io::checks(role));
    checks
}
