//! Receives shared by several senders: softdoca's sources with the model's memory.

#![allow(dead_code, reason = "the models use a part of it")]

#[path = "../../src/rdma/transport/credits/pool.rs"]
mod pool;

use pool::{ReceivePool, SharedReceives, Slot};

use std::sync::Arc;

use crate::machine::Word;

/// A pool for `slots` senders.
pub(crate) fn pool(slots: u16) -> Arc<ReceivePool> {
    Arc::new(ReceivePool::over(Mapping::create(slots)))
}

pub(crate) fn sender(slot: &Slot) -> SharedReceives {
    SharedReceives::over(
        slot.pool().mapping().duplicate(),
        slot.number(),
        slot.generation(),
    )
}

#[derive(Debug)]
struct Mapping(Arc<Words>);

#[derive(Debug)]
struct Words {
    posted: Word,
    taken: Word,
    slots: Vec<Word>,
}

impl Mapping {
    fn create(slots: u16) -> Self {
        Self(Arc::new(Words {
            posted: Word::exchanged("receives posted to all"),
            taken: Word::exchanged("receives taken"),
            slots: (0..slots).map(|_| Word::exchanged("slot")).collect(),
        }))
    }

    fn duplicate(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    fn slots(&self) -> u64 {
        self.0.slots.len() as u64
    }

    fn posted(&self) -> &Word {
        &self.0.posted
    }

    fn taken(&self) -> &Word {
        &self.0.taken
    }

    fn slot(&self, slot: u32) -> &Word {
        &self.0.slots[slot as usize]
    }
}
