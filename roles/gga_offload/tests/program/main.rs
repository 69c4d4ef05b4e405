//! The service as a process, with peers that the test plays: one test binary, because each has to be linked, and because tests that wait for
//! processes run in parallel.

#[path = "../support/mod.rs"]
mod support;

mod corruption;
mod degraded;
mod io;
mod rejoin;
