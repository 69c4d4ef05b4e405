//! Comch through its C functions.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the C functions are what is tested, called as their documentation says"
)]

mod control_path;
mod endpoints;
mod fast_path;
mod fixture;
mod hostile;
mod processes;
mod threads;
mod waking;
