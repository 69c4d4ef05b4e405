//! The DOCA C API in software: a safe engine under a thin C layer ([`capi`]).
//!
//! Each module uses only those before it in this list: `log`, `error`; `runtime`; `topology`, `device`; `agent`; `memory`; `buffer`;
//! `ring`; `progress`; `engines`; `comch`, `rdma`; `capi`.

pub mod agent;
pub mod buffer;
pub mod capi;
mod comch;
pub mod device;
pub mod engines;
pub mod error;
pub mod log;
pub mod memory;
pub mod runtime;
pub mod topology;
mod progress;
mod rdma;
mod ring;
