//! The line between a service and its targets, with somebody on it.
//!
//! A [`FaultyLine`] is a relay before each target: the service is told its ports instead of theirs. Until it is told otherwise it passes
//! everything on. Since all that happens in a session passes as a frame here, a frame that is held is a place in the session that
//! every run comes to: [`FaultyLine::hold`]. What is not bound to a frame is done at once: cutting, sending, delaying.

mod line;
#[cfg(test)]
mod tests;
mod trap;

pub use line::FaultyLine;
pub use trap::{Held, Moment, Trap};

pub use crate::transcript::{End, Side};
