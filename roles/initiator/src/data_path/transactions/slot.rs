//! Parameters of a worker's transactions, and the state of one transaction.

use std::time::{Duration, Instant};

use volume::requests::Request;
use wire::io_message::IoMessageType;

use super::super::content::{Extent, Validator};
use super::super::failure::{Direction, Io};
use crate::cli::{AccessOrder, Strategy};
use crate::layout::Share;

/// Parameters of a worker's transactions.
#[derive(Debug)]
pub struct Task {
    /// The worker's share of storage and local region.
    pub share: Share,
    /// Size of an I/O in bytes; the last one of the share may be smaller.
    pub io_size: u32,
    /// Selects reads, writes or both, with or without validation.
    pub strategy: Strategy,
    /// `Some` if the strategy validates.
    pub validator: Option<Validator>,
    /// Number of transactions to complete.
    pub operations: u32,
    /// Order in which the blocks are visited.
    pub order: AccessOrder,
    /// Number of writes per flush; 0 disables flushes.
    pub flush_every: u32,
    /// Timeout of an I/O.
    pub io_timeout: Duration,
    /// `true` if blocks have the same offset in the local region as in the storage, as in 3.0.
    pub is_mirrored: bool,
}

/// One transaction slot.
#[derive(Debug)]
pub(super) struct Slot {
    /// `None` if no request is in flight.
    pub(super) direction: Option<Direction>,
    pub(super) storage_place: u32,
    pub(super) local_place: u32,
    pub(super) extent: Extent,
    /// Start of the transaction.
    pub(super) begin: Instant,
    /// Submission time of the request in flight.
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

    /// Builds a request for the slot's blocks; a flush has no blocks.
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
