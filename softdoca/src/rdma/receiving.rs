//! Messages that arrive, and the receive tasks that they take.

use std::collections::VecDeque;
use std::ptr::NonNull;

use super::buffers;
use super::connection::{Connection, Done, Parts};
use super::task::{Opcode, Receive, Received};
use super::transport::{Fragment, Inbox};
use crate::error::{Error, Result};
use crate::progress::Task;

/// A message that is arriving, in the receive task that it took.
pub(super) struct Assembly {
    pub(super) task: NonNull<Task>,
    received: Received,
    /// The first thing that went wrong. The rest of the message is thrown away.
    result: Result<()>,
}

/// Immediate data as it travels: a message's is the value as the sender gave it (4 bytes), a remote write's is
/// followed by the number of bytes written (u32, in the machine's order: both ends are on one machine).
pub(super) const SEND_IMMEDIATE: usize = 4;
pub(super) const WRITE_IMMEDIATE: usize = 8;

/// Takes what has arrived, until a message is complete. An error is the connection's end.
pub(super) fn receive(
    connection: &Connection,
    parts: &mut Parts,
    receives: &mut VecDeque<NonNull<Task>>,
) -> Result<Option<Done>> {
    let Some(inbox) = &mut parts.inbox else {
        return Ok(None);
    };
    loop {
        // A message waits in the transport for its receive.
        if parts.assembly.is_none() && receives.is_empty() {
            return Ok(None);
        }
        let Some(fragment) = inbox.peek()? else {
            return Ok(None);
        };
        if parts.assembly.is_none()
            && !fragment.more
            && fragment.immediate_len.is_none()
            && let Some(task) = receives.pop_front()
        {
            let result = take_whole(task, connection, fragment.len, &**inbox);
            inbox.advance();
            return Ok(Some((task, result)));
        }
        let mut assembly = match parts.assembly.take() {
            Some(assembly) => assembly,
            None => {
                let task = receives.pop_front().ok_or(Error::Unexpected)?;
                begin(task, connection, &fragment, &**inbox)?
            }
        };
        if assembly.result.is_ok() {
            assembly.result = append(&mut assembly, &fragment, &**inbox);
        }
        inbox.advance();
        if !fragment.more {
            return Ok(Some(finish(assembly)));
        }
        parts.assembly = Some(assembly);
    }
}

/// A message in one fragment and without immediate data, which is the most frequent kind.
#[inline]
fn take_whole(
    task: NonNull<Task>,
    connection: &Connection,
    len: usize,
    inbox: &impl Inbox,
) -> Result<()> {
    // SAFETY: a receive that waits is in flight, and such are not freed.
    let task = unsafe { task.as_ref() };
    let receive = &task.downcast::<Receive>().ok_or(Error::Unexpected)?.body;
    let result = match receive.destination.get() {
        _ if len == 0 => Ok(()),
        // A task without a buf has no room for data.
        None => Err(Error::TooBig),
        Some(destination) => buffers::fill_tail(&destination, len, |from, to, len| {
            // SAFETY: `to` is writable for `len` bytes.
            unsafe { inbox.read(from, to, len) };
        }),
    };
    receive.received.set(Received {
        opcode: Opcode::Send,
        len: if result.is_ok() { len as u32 } else { 0 },
        immediate: 0,
        connection: std::ptr::from_ref(connection),
    });
    result
}

fn begin(
    task: NonNull<Task>,
    connection: &Connection,
    fragment: &Fragment,
    inbox: &impl Inbox,
) -> Result<Assembly> {
    let (opcode, immediate, len) = match fragment.immediate_len {
        None => (Opcode::Send, 0, 0),
        Some(len) => read_immediate(len, inbox)?,
    };
    Ok(Assembly {
        task,
        received: Received {
            opcode,
            len,
            immediate,
            connection: std::ptr::from_ref(connection),
        },
        result: Ok(()),
    })
}

/// Immediate data of `len` bytes: what the message is, the value, and the number of bytes that were written.
fn read_immediate(len: usize, inbox: &impl Inbox) -> Result<(Opcode, u32, u32)> {
    let mut bytes = [0; WRITE_IMMEDIATE];
    inbox.read_immediate(&mut bytes);
    let [a, b, c, d, e, f, g, h] = bytes;
    let value = u32::from_ne_bytes([a, b, c, d]);
    let written = u32::from_ne_bytes([e, f, g, h]);
    match len {
        SEND_IMMEDIATE => Ok((Opcode::SendWithImmediate, value, 0)),
        WRITE_IMMEDIATE => Ok((Opcode::WriteWithImmediate, value, written)),
        other => Err(Error::ConnectionAborted.because(format_args!(
            "expected {SEND_IMMEDIATE} or {WRITE_IMMEDIATE} bytes of immediate data from an RDMA peer, got {other}"
        ))),
    }
}

#[inline]
fn append(assembly: &mut Assembly, fragment: &Fragment, inbox: &impl Inbox) -> Result<()> {
    if fragment.len == 0 {
        return Ok(());
    }
    // SAFETY: a receive that waits is in flight, and such are not freed.
    let task = unsafe { assembly.task.as_ref() };
    let receive = &task.downcast::<Receive>().ok_or(Error::Unexpected)?.body;
    // A task without a buf has no room for data.
    let destination = receive.destination.get().ok_or(Error::TooBig)?;
    buffers::fill_tail(&destination, fragment.len, |from, to, len| {
        // SAFETY: `to` is writable for `len` bytes.
        unsafe { inbox.read(from, to, len) };
    })?;
    assembly.received.len = assembly.received.len.saturating_add(fragment.len as u32);
    Ok(())
}

fn finish(assembly: Assembly) -> Done {
    // SAFETY: as in `append`.
    if let Some(receive) = unsafe { assembly.task.as_ref() }.downcast::<Receive>() {
        receive.body.received.set(assembly.received);
    }
    (assembly.task, assembly.result)
}
