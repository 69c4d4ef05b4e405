//! Buffers and tasks of the transfers of one worker, allocated before the first request.

use std::ops::{Index, IndexMut};

use doca::{Buf, BufInventory, ErrorCode, Mmap, Rdma, RdmaConnection, Task};
use role_common::Failure;
use wire::io_message::{self, Repr};

use super::NO_REQUEST;
use crate::store::{Extent, Operation};

/// The four tasks of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Receive of a request.
    Receive,
    /// Send of its answer.
    Send,
    /// RDMA read: blocks from the requester to the storage.
    Read,
    /// RDMA write: blocks from the storage to the requester.
    Write,
}

/// Names a task in its completion: the transfer and the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(pub(super) u64);

impl Token {
    #[inline]
    pub(super) fn new(slot: usize, kind: Kind) -> Self {
        Self((slot as u64) << 2 | kind as u64)
    }

    #[inline]
    pub(super) fn parts(self) -> (usize, Kind) {
        let kind = match self.0 & 3 {
            0 => Kind::Receive,
            1 => Kind::Send,
            2 => Kind::Read,
            _ => Kind::Write,
        };
        ((self.0 >> 2) as usize, kind)
    }
}

/// One request at a time, from its arrival to its answer.
pub(super) struct Transfer<C> {
    tasks: [Task; 4],
    /// Where the request arrives and from where the answer leaves.
    pub(super) message: Buf,
    storage: Buf,
    requester: Buf,
    /// The request at hand.
    pub(super) request: Repr,
    /// Operation of the request; `None` if it was refused.
    pub(super) operation: Option<Operation>,
    /// Its correlation id, where the session's release has one.
    pub(super) correlation_id: C,
}

impl<C> Transfer<C> {
    #[inline]
    pub(super) fn task(&self, kind: Kind) -> &Task {
        &self.tasks[kind as usize]
    }

    /// Sets the ranges of the buffers, which lie inside the maps, and returns the task that moves the bytes.
    #[inline]
    pub(super) fn prepare(&self, extent: Extent) -> Result<Kind, ErrorCode> {
        let Extent {
            to_requester,
            local_offset,
            requester_offset,
            len,
        } = extent;
        let (set, kind) = if to_requester {
            let set = self
                .storage
                .set_data(local_offset, len)
                .and_then(|()| self.requester.set_range(requester_offset, len));
            (set, Kind::Write)
        } else {
            let set = self
                .requester
                .set_data(requester_offset, len)
                .and_then(|()| self.storage.set_range(local_offset, len));
            (set, Kind::Read)
        };
        set.map(|()| kind).map_err(|error| error.code)
    }
}

/// All transfers of a worker.
pub(super) struct Transfers<C>(Vec<Transfer<C>>);

impl<C> Default for Transfers<C> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<C: Default> Transfers<C> {
    /// Allocates `count` transfers. Message `n` lies at `n` times the size of a message.
    pub(super) fn allocate(
        count: u32,
        inventory: &BufInventory,
        [messages, storage, requester]: [&Mmap; 3],
        (control, control_connection): (&Rdma, &RdmaConnection),
        (data, data_connection): (&Rdma, &RdmaConnection),
    ) -> Result<Self, Failure> {
        let whole = |mmap: &Mmap| usize::try_from(mmap.len()).unwrap_or(usize::MAX);
        let transfer = |slot: usize| -> Result<Transfer<C>, Failure> {
            let token = |kind| Token::new(slot, kind).0;
            let message =
                inventory.buf(messages, (slot * io_message::SIZE) as u64, io_message::SIZE)?;
            let storage = inventory.buf(storage, 0, whole(storage))?;
            let requester = inventory.buf(requester, 0, whole(requester))?;
            // In the order of `Kind`.
            let tasks = [
                control.receive_task(&message, token(Kind::Receive))?,
                control.send_task(control_connection, &message, token(Kind::Send))?,
                data.read_task(data_connection, &requester, &storage, token(Kind::Read))?,
                data.write_task(data_connection, &storage, &requester, token(Kind::Write))?,
            ];
            Ok(Transfer {
                tasks,
                message,
                storage,
                requester,
                request: NO_REQUEST,
                operation: None,
                correlation_id: C::default(),
            })
        };
        let transfers = (0..count as usize).map(transfer).collect::<Result<_, _>>();
        transfers
            .map(Self)
            .map_err(|failure| failure.context(format_args!("{count} transactions")))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<C> Index<usize> for Transfers<C> {
    type Output = Transfer<C>;

    #[inline]
    fn index(&self, slot: usize) -> &Transfer<C> {
        &self.0[slot]
    }
}

impl<C> IndexMut<usize> for Transfers<C> {
    #[inline]
    fn index_mut(&mut self, slot: usize) -> &mut Transfer<C> {
        &mut self.0[slot]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_slot_and_kind() {
        for slot in [0, 1, 65535] {
            for (index, kind) in [Kind::Receive, Kind::Send, Kind::Read, Kind::Write]
                .into_iter()
                .enumerate()
            {
                assert_eq!(kind as usize, index, "the order of the tasks of a transfer");
                assert_eq!(Token::new(slot, kind).parts(), (slot, kind));
            }
        }
    }
}
