//! Bufs: descriptors of a piece of a memory map, kept in inventories and chained to lists.
//!
//! A buf covers `len` bytes from `head` on; its data is `data_len` bytes from `data` on inside of that. Results of a task are
//! appended after the data of its destination.
//!
//! Bufs belong to one thread at a time, as DOCA says: they take no locks.

mod buf;
mod inventory;
mod list;
#[cfg(test)]
mod tests;

pub use buf::{Buf, BufHandle};
pub use inventory::{BufInventory, BufPool};
pub use list::{Bufs, Segment, Segments, copy_list};
