//! Memory of the receive counters, under loom.

use std::sync::Arc;

use crate::words::Word;

#[derive(Debug)]
pub(super) struct Mapping(Arc<Words>);

#[derive(Debug)]
struct Words {
    posted: Word,
    taken: Word,
    slots: Vec<Word>,
}

impl Mapping {
    pub(super) fn create(slots: u16) -> Self {
        Self(Arc::new(Words {
            posted: Word::exchanged("receives posted to all"),
            taken: Word::exchanged("receives taken"),
            slots: (0..slots).map(|_| Word::exchanged("slot")).collect(),
        }))
    }

    pub(super) fn duplicate(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    pub(super) fn slots(&self) -> u64 {
        self.0.slots.len() as u64
    }

    pub(super) fn posted(&self) -> &Word {
        &self.0.posted
    }

    pub(super) fn taken(&self) -> &Word {
        &self.0.taken
    }

    pub(super) fn slot(&self, slot: u32) -> &Word {
        &self.0.slots[slot as usize]
    }
}
