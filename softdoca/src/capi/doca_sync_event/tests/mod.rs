//! Sync events through their C functions.

mod contexts;
mod fixture;
mod setup;
mod sharing;
mod values;
