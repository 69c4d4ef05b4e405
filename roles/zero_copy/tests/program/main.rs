//! The service as a process, between an initiator and a target that the test plays. One test binary, to link it once
//! and to run tests that wait for processes in parallel.

#[path = "../support/mod.rs"]
mod support;

mod io;
mod process;
