//! The NBD server and its clients: one test binary, because each has to be linked.

#[path = "../support/mod.rs"]
mod support;

mod negotiation;
mod server;
mod tls;
mod transmission;
