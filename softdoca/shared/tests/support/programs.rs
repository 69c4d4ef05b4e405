//! The tests in C, each a program of a few.

use std::path::PathBuf;

use super::{Language, Sdk, repository_source};

/// The programs, by the names of their sources.
pub const PROGRAMS: &[&str] = &[
    "aes_gcm",
    "argp",
    "buf_pool",
    "core",
    "log",
    "memory",
    "progress",
    "dma",
    "comch",
    "comch_dpa",
    "comch_properties",
    "compress",
    "erasure_coding",
    "graph",
    "lists",
    "mmap_advise",
    "properties",
    "rdma",
    "rdma_connections",
    "rdma_properties",
    "rdma_remote_events",
    "reference",
    "sha",
    "sync_event",
    "sync_event_tasks",
];

/// Makes one of them.
pub fn compile(sdk: &Sdk, name: &str) -> PathBuf {
    let main = repository_source("tests/c/main.c");
    let source = repository_source(&format!("tests/c/{name}.c"));
    sdk.program_of(Language::C, &[&source, &main], &["softdoca"])
}
