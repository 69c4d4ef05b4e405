//! The target as a process, with a service that the test plays: one test binary, because each has to be linked, and because tests that wait
//! for processes run in parallel.

#[path = "../support/mod.rs"]
mod support;

mod backing;
mod io;
mod process;
