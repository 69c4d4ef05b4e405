//! Receives shared by several senders: softdoca's sources with the model's memory.

#![allow(dead_code, reason = "the models use a part of it")]

use std::sync::Arc;

#[path = "../../../src/rdma/transport/credits/posting.rs"]
mod posting;
#[path = "../../../src/rdma/transport/credits/taking.rs"]
mod taking;

mod memory;

pub(crate) use posting::{ReceivePool, Slot};
pub(crate) use taking::SharedReceives;

/// A pool for `slots` senders.
pub(crate) fn pool(slots: u16) -> Arc<ReceivePool> {
    Arc::new(ReceivePool::over(memory::Mapping::create(slots)))
}

/// The sender of a slot.
pub(crate) fn sender(slot: &Slot) -> SharedReceives {
    SharedReceives::over(
        slot.pool().mapping().duplicate(),
        slot.number(),
        slot.generation(),
    )
}
