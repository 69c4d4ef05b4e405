//! softdoca as it is installed, used from C and C++: one test binary, because each has to be linked.

#[path = "../support/mod.rs"]
mod support;

mod doca_sdk;
mod functions;
mod headers;
mod packages;
