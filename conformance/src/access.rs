//! What the scripted peers allow others to do with their memory.

use doca::Access;

/// Reading and writing, by themselves and by RDMA peers.
pub(crate) const REMOTE: Access = Access::LOCAL_READ_WRITE
    .union(Access::RDMA_READ)
    .union(Access::RDMA_WRITE);
