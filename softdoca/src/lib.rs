//! The DOCA C API in software: a safe engine under a thin C layer ([`capi`]).
//!
//! Each module uses only those before it in this list: `log`, `check`, `error`; `runtime`; `topology`, `device`;
//! `argp`; `verbs`; `agent`; `prefetch`; `memory`; `buffer`; `ring`; `progress`; `graph`; `engines`; `sync_event`; `comch`,
//! `rdma`; `accelerator`; `dma`, `compress`, `erasure_coding`, `sha`, `aes_gcm`, `mmap_advise`; `untrusted`; `capi`.

mod accelerator;
mod aes_gcm;
pub mod agent;
pub mod api;
pub mod argp;
pub mod buffer;
pub mod capi;
mod check;
mod clock;
mod comch;
mod compress;
pub mod device;
mod dma;
pub mod engines;
mod erasure_coding;
pub mod error;
mod graph;
pub mod log;
pub mod memory;
mod mmap_advise;
mod prefetch;
mod progress;
mod rdma;
mod ring;
pub mod runtime;
mod sha;
mod sync_event;
pub mod topology;
pub mod untrusted;
mod verbs;
