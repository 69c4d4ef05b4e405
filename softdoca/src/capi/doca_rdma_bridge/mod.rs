//! `doca_rdma_bridge.h`: the bridge to rdma-core, which leads to real devices only.

mod unsupported;

pub use unsupported::*;

doca_abi::check_definitions!(doca_rdma_bridge_functions, crate::capi::doca_rdma_bridge);
