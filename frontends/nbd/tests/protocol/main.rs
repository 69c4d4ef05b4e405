//! The NBD server and its clients. One test binary, to link it once.

#[path = "../support/mod.rs"]
mod support;

mod negotiation;
mod server;
mod transmission;
