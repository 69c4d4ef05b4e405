//! Contexts whose tasks this process computes by itself, when it progresses them: DMA, compress, erasure coding.
//!
//! * [`Accelerator`] is what one kind of context can do; [`Offload`] makes a context's driver of it.
//! * [`memory`] turns the bufs of a task into what [`engines`](crate::engines) take.

mod driver;
mod memory;

pub(crate) use driver::{Accelerator, Offload};
pub(crate) use memory::{
    Appender, Gathered, check_bufs, check_list, check_reach, read_source, source_len,
};

use std::cell::Cell;

use crate::buffer::BufHandle;

/// A buf of the program, which is looked at only while the task is in flight.
pub(crate) type BufSlot = Cell<Option<BufHandle>>;

/// Bytes that a task takes or makes at most, and that a block of an erasure code can have.
pub(crate) const MAX_BUF_SIZE: usize = 128 << 20;
/// Bufs in a list at most.
pub(crate) const MAX_BUF_LIST_LEN: usize = 64;
/// Tasks that an instance can have at most, of all kinds together.
pub(crate) const MAX_TASKS: u32 = 65_536;
