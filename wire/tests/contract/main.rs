//! The bytes of the protocol: one test binary, because each has to be linked.

#[path = "../common/mod.rs"]
mod common;

mod files;
mod identity;
mod io_message;
mod layout;
mod properties;
mod recordings;
mod refusals;
mod vectors;
