//! Bufs: descriptors of a range of a memory map, kept in inventories and chained to lists.
//!
//! A buf covers `len` bytes starting at `head`; its data is the `data_len` bytes starting at `data` within that range.
//! Results of a task are appended to the data of its destination.
//!
//! As in DOCA, a buf is used by one thread at a time: there are no locks.

mod buf;
mod inventory;
mod list;
#[cfg(test)]
mod tests;

pub use buf::{Buf, BufHandle};
pub use inventory::{BufInventory, BufPool};
pub use list::{Bufs, Segment, Segments, copy_list};
