//! Schemas, well-formed and not: one test binary, because each has to be linked.

#[path = "../common/mod.rs"]
mod common;

mod geometry;
mod model;
mod options;
