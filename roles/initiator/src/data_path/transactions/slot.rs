//! What transactions have to do, and the state of one.

use std::time::{Duration, Instant};

use volume::requests::Request;
use wire::io_message::IoMessageType;

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
    /// `true` if blocks have the same offset in the local region as in the storage, as in 3.0.
    pub is_mirrored: bool,
}

/// One transaction slot.
#[derive(Debug)]
pub(super) struct Slot {
    /// `None` while nothing is in flight.
    pub(super) direction: Option<Direction>,
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
        let Request {
            storage_offset,
            size,
            ..
        } = self.request(direction);
        Io {
            direction,
            storage_offset,
            size,
        }
    }

    /// The request of an I/O. A flush is of no blocks.
    #[inline(always)]
    pub(super) fn request(&self, direction: Direction) -> Request {
        let message_type = match direction {
            Direction::Read => IoMessageType::Read,
            Direction::Write => IoMessageType::Write,
            Direction::Flush => IoMessageType::Flush,
        };
        let is_flush = direction == Direction::Flush;
        let of_blocks = |value: u64| if is_flush { 0 } else { value };
        Request {
            message_type,
            storage_offset: of_blocks(self.extent.storage_offset),
            memory_offset: of_blocks(self.extent.local_offset),
            size: if is_flush { 0 } else { self.extent.size },
        }
    }
}
