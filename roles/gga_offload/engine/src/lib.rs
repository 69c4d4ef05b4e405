//! The decisions of the gga_offload service about the redundancy of its blocks, without I/O, threads, clocks or DOCA, and their simulation.
//!
//! * [`engine`]: [`StripeEngine`], the state machine of one worker's requests
//! * [`set`]: the state of a set that all workers share: current targets, stripes to process, superblocks to persist
//! * [`assembly`], [`membership`]: which targets are current when a session begins, and while it continues
//! * [`stripes`], [`versions`]: locks and bitmaps of stripes; numbers of writes, and earlier versions that targets may
//!   discard
//! * [`chunk`], [`request`]: bytes of stored chunks, and of the initiator's requests
//! * [`rests`]: pauses before a target may rejoin repeatedly
//! * [`simulation`]: another driver of these state machines, with simulated targets, in virtual time
#![forbid(unsafe_code)]

pub mod assembly;
pub mod chunk;
pub mod engine;
pub mod membership;
mod placement;
pub mod request;
pub mod rests;
pub mod set;
pub mod simulation;
pub mod statistics;
pub mod stripes;
mod targets;
pub mod versions;

pub use engine::StripeEngine;
pub use placement::Placement;
pub use targets::{Target, Targets};
