//! Checks of a service: `zero_copy` with one target, or `gga_offload` with three.

mod answers;
mod cast;
mod course;
mod ends;
mod frames;
mod point;
mod refusals;
mod step;
mod target;

use super::Check;

/// All of them.
pub(super) fn checks() -> Vec<Check> {
    let mut checks = course::CHECKS.to_vec();
    checks.extend(refusals::CHECKS);
    checks.extend(frames::CHECKS);
    checks.extend(answers::checks());
    checks.extend(ends::checks());
    checks
}
