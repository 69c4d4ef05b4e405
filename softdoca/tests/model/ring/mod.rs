//! The ring modules that define memory orders: softdoca's sources with the model's memory and kernel.

#![allow(dead_code, reason = "the models use a part of the ring")]

#[path = "../../../src/ring/bell.rs"]
mod bell;
#[path = "../../../src/ring/biased_lock.rs"]
mod biased_lock;
#[path = "../../../src/ring/consumer.rs"]
mod consumer;
#[path = "../../../src/ring/layout.rs"]
mod layout;
#[path = "../../../src/ring/producer.rs"]
mod producer;

mod ends;
mod exclusion;
pub(crate) mod kernel;
mod mapping;

pub(crate) use bell::barrier_before_sleep;
pub(crate) use biased_lock::BiasedLock;
pub(crate) use consumer::RingConsumer;
pub(crate) use ends::{End, pair};
pub(crate) use producer::RingProducer;

/// As in softdoca.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Corrupt {
    pub expected: &'static str,
    pub found: u64,
}
