//! Slots of one worker's requests, allocated before the first request.
//!
//! A request has a message slot, which receives it and sends its answer, and a transfer slot, which moves its blocks.
//! While one of the two is in flight, its state owns the other.

use doca::{
    BufInventory, ErrorCode, Mmap, Rdma, RdmaConnection, Refused, Slot, Slots, TwoBuffers, WorkerPe,
};
use role_common::Failure;
use role_common::messages::Messages;
use wire::io_message;
use wire::release::IoLayout;

use super::execution::{AnswerSent, BlocksTransferred, Executor, RequestReceived};
use crate::store::{Extent, Operation, Store};

/// The buffer of a request and its answer.
pub(super) type MessageSlot = Slot<Message>;

/// The buffers of a request's blocks: in the memory of the store and in that of the requester.
pub(super) type TransferSlot = Slot<Request, TwoBuffers>;

/// Number of a message slot's task that receives a request.
pub(super) const RECEIVE: usize = 0;
/// Number of a message slot's task that sends an answer.
pub(super) const SEND: usize = 1;
/// Number of a transfer slot's task that reads the requester's memory.
const READ: usize = 0;
/// Number of a transfer slot's task that writes the requester's memory.
const WRITE: usize = 1;

/// State of a message slot.
#[derive(Debug)]
pub(super) struct Message {
    /// `None` while the transfer slot owns the message slot.
    transfer: Option<TransferSlot>,
}

/// State of a transfer slot.
#[derive(Debug)]
pub(super) struct Request {
    /// `None` while the message slot owns the transfer slot.
    message: Option<MessageSlot>,
    /// Number of bytes.
    pub(super) size: u32,
    /// `None` if the request was refused.
    pub(super) operation: Option<Operation>,
}

/// The slots of a request that was received: its transfer slot, which owns the message slot.
#[inline(always)]
pub(super) fn received(
    mut message: MessageSlot,
    size: u32,
    operation: Option<Operation>,
) -> Result<TransferSlot, Failure> {
    let Some(mut transfer) = message.state_mut().transfer.take() else {
        return Err(not_owned());
    };
    *transfer.state_mut() = Request {
        message: Some(message),
        size,
        operation,
    };
    Ok(transfer)
}

/// The slots of a request that is to be answered: its message slot, which owns the transfer slot.
#[inline(always)]
pub(super) fn executed(mut transfer: TransferSlot) -> Result<MessageSlot, Failure> {
    let Some(mut message) = transfer.state_mut().message.take() else {
        return Err(not_owned());
    };
    message.state_mut().transfer = Some(transfer);
    Ok(message)
}

#[cold]
fn not_owned() -> Failure {
    Failure::unexpected("a slot has lost its counterpart")
}

/// The message slot of a request that is being executed.
pub(super) fn message_of(transfer: &TransferSlot) -> Option<&MessageSlot> {
    transfer.state().message.as_ref()
}

/// Direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// RDMA read: blocks from the requester to the store.
    FromRequester,
    /// RDMA write: blocks from the store to the requester.
    ToRequester,
}

impl Direction {
    #[inline(always)]
    pub(super) fn submit(self, transfer: TransferSlot) -> Result<(), Refused<Request, TwoBuffers>> {
        match self {
            Self::FromRequester => transfer.submit::<READ>(),
            Self::ToRequester => transfer.submit::<WRITE>(),
        }
    }
}

/// Sets the ranges of the buffers, which must be inside the memory maps, and returns the direction of the transfer.
#[inline(always)]
pub(super) fn prepare(transfer: &mut TransferSlot, extent: Extent) -> Result<Direction, ErrorCode> {
    const LOCAL: usize = TwoBuffers::LOCAL;
    const REMOTE: usize = TwoBuffers::REMOTE;
    let Extent {
        to_requester,
        local_offset,
        requester_offset,
        len,
    } = extent;
    if to_requester {
        transfer.set_data::<LOCAL>(local_offset, len)?;
        transfer.set_range::<REMOTE>(requester_offset, len)?;
        Ok(Direction::ToRequester)
    } else {
        transfer.set_data::<REMOTE>(requester_offset, len)?;
        transfer.set_range::<LOCAL>(local_offset, len)?;
        Ok(Direction::FromRequester)
    }
}

/// Memory maps of a worker.
pub(super) struct Maps<'m> {
    pub(super) messages: &'m Mmap,
    /// The memory of the store.
    pub(super) storage: &'m Mmap,
    pub(super) requester: &'m Mmap,
}

/// Allocates the slots of `count` requests: their message slots, which own the transfer slots.
pub(super) fn allocate<S: Store + 'static, L: IoLayout>(
    count: u32,
    pe: &WorkerPe<Executor<S, L>>,
    inventory: &BufInventory,
    maps: &Maps<'_>,
    (control, control_connection): (&Rdma, &RdmaConnection),
    (data, data_connection): (&Rdma, &RdmaConnection),
) -> doca::Result<Vec<MessageSlot>> {
    let slots = count as usize;
    let idle = |_| Request {
        message: None,
        size: 0,
        operation: None,
    };
    let transfers =
        Slots::with_two_buffers(pe, inventory, maps.storage, maps.requester, slots, idle)?;
    data.read_into::<READ, BlocksTransferred<S, L>>(&transfers, data_connection)?;
    data.write_from::<WRITE, BlocksTransferred<S, L>>(&transfers, data_connection)?;
    let place = (Messages::offset(0), io_message::SIZE as u32, slots);
    let unpaired = |_| Message { transfer: None };
    let messages = Slots::new(pe, inventory, maps.messages, place, unpaired)?;
    control.receive_into::<RECEIVE, RequestReceived<S, L>>(&messages)?;
    control.send_from::<SEND, AnswerSent<S, L>>(&messages, control_connection)?;
    let pairs = messages.into_iter().zip(transfers);
    Ok(pairs
        .map(|(mut message, transfer)| {
            message.state_mut().transfer = Some(transfer);
            message
        })
        .collect())
}
