//! What transactions have to do, and the state of one.

use std::time::{Duration, Instant};

use super::super::content::{Extent, Validator};
use super::super::failure::{Direction, Io};
use crate::cli::{AccessOrder, Strategy};
use crate::layout::Share;

/// What the transactions of a worker are to do.
#[derive(Debug)]
pub struct Task {
    /// Their part of storage and local region.
    pub share: Share,
    /// Bytes of an I/O, but for the last one of the share.
    pub io_size: u32,
    /// Reads, writes, or both; with validation or without.
    pub strategy: Strategy,
    /// What validates, where the strategy does.
    pub validator: Option<Validator>,
    /// Transactions to complete.
    pub operations: u32,
    /// Order in which the blocks are visited.
    pub order: AccessOrder,
    /// Writes after which there is a flush; 0 for none.
    pub flush_every: u32,
    /// How long an I/O may take.
    pub io_timeout: Duration,
}

/// One transaction slot.
#[derive(Debug)]
pub(super) struct Slot {
    /// `None` while nothing is in flight.
    pub(super) direction: Option<Direction>,
    pub(super) sent: bool,
    pub(super) answered: bool,
    pub(super) storage_place: u32,
    pub(super) local_place: u32,
    pub(super) extent: Extent,
    /// Begin of the transaction.
    pub(super) begin: Instant,
    /// Begin of the I/O that is in flight.
    pub(super) issued: Instant,
}

impl Slot {
    pub(super) fn io(&self, direction: Direction) -> Io {
        let (storage_offset, _, size) = self.place(direction);
        Io {
            direction,
            storage_offset,
            size,
        }
    }

    /// Storage offset, local offset and size of an I/O. A flush is of no blocks.
    #[inline(always)]
    pub(super) fn place(&self, direction: Direction) -> (u64, u64, u32) {
        match direction {
            Direction::Flush => (0, 0, 0),
            _ => (
                self.extent.storage_offset,
                self.extent.local_offset,
                self.extent.size,
            ),
        }
    }
}
