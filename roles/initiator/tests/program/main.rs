//! The whole program against a scripted service. One binary, to link it once.

mod failures;
mod runs;
mod support;
