//! Tasks of this side: messages into the peer's ring, copies from and to its memory.

use doca_abi::{
    DOCA_ACCESS_FLAG_RDMA_ATOMIC, DOCA_ACCESS_FLAG_RDMA_READ, DOCA_ACCESS_FLAG_RDMA_WRITE,
};

use super::buffers::{self, RemoteAccess, RemoteChange};
use super::config::limits;
use super::receiving::{SEND_IMMEDIATE, WRITE_IMMEDIATE};
use super::task::{Operation, Stage, Work};
use super::transport::{Outbox, SMALL};
use crate::error::{Error, Result};
use crate::verbs::Opcode;

/// Runs a task as far as possible. `Again`: it must wait for the peer; call again.
#[inline(always)]
pub(super) fn run(work: &Work, outbox: &mut impl Outbox, peer_permissions: u32) -> Result<()> {
    match work.operation {
        Operation::Send => send(work, None, outbox),
        Operation::SendImmediate => send(work, Some(work.immediate.get()), outbox),
        Operation::Read => read(work, peer_permissions),
        Operation::Write => write(work, peer_permissions).map(|_| ()),
        Operation::WriteImmediate => write_immediate(work, outbox, peer_permissions),
        Operation::CompareSwap | Operation::FetchAdd => atomic(work, peer_permissions),
        Operation::EventGet | Operation::EventSet | Operation::EventAdd => {
            on_event(work, peer_permissions)
        }
    }
}

#[inline(always)]
fn send(work: &Work, immediate: Option<u32>, outbox: &mut impl Outbox) -> Result<()> {
    let source = work.source.get();
    let list = source.as_deref();
    if let (Some(buf), None, Stage::Waiting) = (list, immediate, work.stage.get())
        && let Some(run) = buffers::small_run(buf, SMALL)?
    {
        // SAFETY: `small_run` returns memory of the task's buf.
        return unsafe { outbox.send_small(run, buf.data_len()) };
    }
    send_in_fragments(work, immediate, outbox)
}

/// As [`send`], for every kind of message.
#[inline(never)]
fn send_in_fragments(work: &Work, immediate: Option<u32>, outbox: &mut impl Outbox) -> Result<()> {
    let source = work.source.get();
    let list = source.as_deref();
    let total = check_len(buffers::data_len(list))?;
    if work.stage.get() == Stage::Waiting {
        buffers::check_source(list)?;
        if !outbox.reserve_receive() {
            return Err(Error::Again);
        }
        work.set_progress(0);
    }
    let immediate = immediate.map(u32::to_ne_bytes);
    loop {
        let first = work.stage.get() == Stage::Waiting;
        let immediate = immediate.as_ref().filter(|_| first);
        let room = outbox.max_fragment() - immediate.map_or(0, |_| SEND_IMMEDIATE);
        let from = work.progress();
        let len = room.min(total.saturating_sub(from));
        let more = from + len < total;
        // SAFETY: `with_data` passes memory of the task's bufs.
        unsafe {
            outbox.push(
                immediate.map(<[u8; SEND_IMMEDIATE]>::as_slice),
                len,
                first,
                more,
                &mut |write| buffers::with_data(list, from, len, write),
            )
        }?;
        work.set_progress(from + len);
        work.stage.set(Stage::Sending);
        if !more {
            return Ok(());
        }
    }
}

fn read(work: &Work, peer_permissions: u32) -> Result<()> {
    let Some(source) = work.source.get() else {
        return Ok(());
    };
    let destination = work.destination.get().ok_or(Error::InvalidValue)?;
    expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_READ)?;
    check_len(source.data_len())?;
    let len = buffers::read_remote(&source, &destination)?;
    work.set_progress(len);
    Ok(())
}

/// Writes, and returns the number of bytes.
fn write(work: &Work, peer_permissions: u32) -> Result<usize> {
    let Some(source) = work.source.get() else {
        return Ok(0);
    };
    let destination = work.destination.get().ok_or(Error::InvalidValue)?;
    expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_WRITE)?;
    check_len(source.list_data_len())?;
    buffers::write_remote(&source, &destination)
}

#[inline(never)]
fn write_immediate(work: &Work, outbox: &mut impl Outbox, peer_permissions: u32) -> Result<()> {
    if work.stage.get() == Stage::Waiting {
        // As in hardware, nothing is written before the peer can receive the immediate.
        if !outbox.reserve_receive() {
            return Err(Error::Again);
        }
        work.set_progress(write(work, peer_permissions)?);
        work.stage.set(Stage::Written);
    }
    let written = u32::try_from(work.progress()).unwrap_or(u32::MAX);
    let mut immediate = [0; WRITE_IMMEDIATE];
    immediate[..4].copy_from_slice(&work.immediate.get().to_ne_bytes());
    immediate[4..].copy_from_slice(&written.to_ne_bytes());
    // SAFETY: there is no data.
    unsafe { outbox.push(Some(&immediate), 0, true, false, &mut |_| Ok(())) }
}

#[inline(never)]
fn atomic(work: &Work, peer_permissions: u32) -> Result<()> {
    let destination = work.destination.get().ok_or(Error::InvalidValue)?;
    let result = work.result.get().ok_or(Error::InvalidValue)?;
    expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_ATOMIC)?;
    let (compare, operand) = (work.compare.get(), work.operand.get());
    buffers::atomic(&destination, &result, |remote, addr| match work.operation {
        Operation::CompareSwap => remote.compare_swap(addr, compare, operand),
        _ => remote.fetch_add(addr, operand),
    })
}

#[inline(never)]
fn on_event(work: &Work, peer_permissions: u32) -> Result<()> {
    let event = work.event.borrow().clone().ok_or(Error::InvalidValue)?;
    match work.operation {
        Operation::EventGet => {
            let destination = work.destination.get().ok_or(Error::InvalidValue)?;
            expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_READ)?;
            buffers::check_room(&destination)?;
            let value = event.get()?;
            work.set_progress(buffers::append_value(&destination, value)?);
            Ok(())
        }
        Operation::EventSet => {
            let source = work.source.get().ok_or(Error::InvalidValue)?;
            expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_WRITE)?;
            event.set(buffers::value(&source)?)
        }
        _ => {
            let result = work.result.get().ok_or(Error::InvalidValue)?;
            expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_ATOMIC)?;
            let room = buffers::result_room(&result)?;
            let old = event.add(work.operand.get())?;
            buffers::put_result(&result, room, old)
        }
    }
}

/// Builds the request for a read or write of memory on another machine; `None` for other tasks, and if local memory is
/// not mapped here.
pub(super) fn remote_access(work: &Work, peer_permissions: u32) -> Result<Option<RemoteAccess>> {
    let Some(source) = work.source.get() else {
        return Ok(None);
    };
    let is_read = match work.operation {
        Operation::Read => true,
        Operation::Write | Operation::WriteImmediate => false,
        _ => return Ok(None),
    };
    let destination = work.destination.get().ok_or(Error::InvalidValue)?;
    if is_read {
        expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_READ)?;
        check_len(source.data_len())?;
        buffers::remote_read(source, destination)
    } else {
        expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_WRITE)?;
        check_len(source.list_data_len())?;
        buffers::remote_write(source, destination)
    }
}

/// Builds the request for an atomic on memory on another machine that its RDMA device knows; `None` for other tasks and other memory.
pub(super) fn remote_change(work: &Work, peer_permissions: u32) -> Result<Option<RemoteChange>> {
    let (opcode, operands) = match work.operation {
        Operation::CompareSwap => (
            Opcode::CompareSwap,
            [work.compare.get(), work.operand.get()],
        ),
        Operation::FetchAdd => (Opcode::FetchAdd, [work.operand.get(), 0]),
        _ => return Ok(None),
    };
    let destination = work.destination.get().ok_or(Error::InvalidValue)?;
    let result = work.result.get().ok_or(Error::InvalidValue)?;
    expect(peer_permissions, DOCA_ACCESS_FLAG_RDMA_ATOMIC)?;
    buffers::remote_change(&destination, &result, opcode, operands)
}

/// Handles the reply: sets the bufs' data length to `len` bytes, or stores the old value of a word.
pub(super) fn finish_access(work: &Work, len: usize, value: u64) -> Result<()> {
    if matches!(work.operation, Operation::CompareSwap | Operation::FetchAdd) {
        let result = work.result.get().ok_or(Error::Unexpected)?;
        return buffers::put_result(&result, buffers::result_room(&result)?, value);
    }
    let destination = work.destination.get().ok_or(Error::Unexpected)?;
    work.set_progress(len);
    match work.operation {
        Operation::Read => destination.append(len),
        _ => destination.set_data_len(destination.data_len() + len),
    }
}

/// Checks the length of a message, read or write against the device's limit.
fn check_len(len: usize) -> Result<usize> {
    if len > limits::MESSAGE_SIZE as usize {
        return Err(Error::TooBig);
    }
    Ok(len)
}

fn expect(granted: u32, wanted: u32) -> Result<()> {
    if granted & wanted == wanted {
        Ok(())
    } else {
        Err(Error::NotPermitted)
    }
}
