//! How the service goes on when it loses a target: what `--degraded on` adds.
//!
//! A stripe is three halves of which any two make up the third. Without one target, reads recover its half, and writes go to
//! the two others; the stripes that are written so are [remembered](MissedStripes), because what the lost target has of them
//! is old. [`Redundancy`] is the state machine, without threads and without I/O; [`Shared`] is the one of a session, that the
//! main thread and all workers use.
//!
//! A target that comes back takes writes from that moment on, and is read where it has missed nothing. Workers
//! [rebuild](rebuild::Rebuild) the stripes that it has missed, each in its turn among the I/Os on it.
//!
//! What a target has missed is forgotten with the session. So the targets themselves keep which of them have all that was written
//! ([`Membership`]), and a write that a lost target misses is acknowledged only when the others keep that it is lost. The next
//! session begins with what they keep ([`assemble`]).
//!
//! Whoever loses a target says so before a stripe is remembered as missed, and a stripe is remembered before its turn ends.

mod assembly;
mod errands;
mod membership;
mod missed;
mod rebuild;
mod shared;
mod state;
mod summary;
mod view;

pub(crate) use assembly::{Assembly, Found, assemble};
pub(crate) use errands::Answer;
pub(crate) use missed::MissedStripes;
pub(crate) use shared::{Made, Shared, ToRebuild};
pub(crate) use state::{Redundancy, State};
pub(crate) use summary::Summary;
#[cfg(test)]
pub(crate) use summary::Verified;
pub(crate) use view::View;

#[cfg(test)]
mod tests;
