//! Received messages, and the receive tasks that they consume.

use std::collections::VecDeque;
use std::ptr::NonNull;

use super::buffers;
use super::config::limits;
use super::connection::{Connection, Done, Parts};
use super::task::{Opcode, Receive, Received};
use super::transport::{Fragment, Inbox};
use crate::error::{Error, Result};
use crate::progress::Task;

/// A message being received, with its receive task.
pub(super) struct Assembly {
    pub(super) task: NonNull<Task>,
    received: Received,
    /// Bytes of data received, including discarded ones.
    arrived: u64,
    /// First error. The rest of the message is discarded.
    result: Result<()>,
}

/// Immediate data as transmitted: for a message, the value as the sender gave it (4 bytes); for a remote write,
/// followed by the number of bytes written (u32, in the machines' common byte order).
pub(super) const SEND_IMMEDIATE: usize = 4;
pub(super) const WRITE_IMMEDIATE: usize = 8;

/// Maximum number of fragments per call of [`receive`]. A peer can send as fast as they are received: the limit gives
/// other contexts of the engine their turn.
const MOST_FRAGMENTS: usize = 64;

/// Handles received fragments until a message is complete. An error ends the connection: a receive that the message
/// has consumed by then is in `parts.assembly`, and fails with the connection.
pub(super) fn receive(
    connection: &Connection,
    parts: &mut Parts,
    receives: &mut VecDeque<NonNull<Task>>,
) -> Result<Option<Done>> {
    let Some(inbox) = &mut parts.inbox else {
        return Ok(None);
    };
    for _ in 0..MOST_FRAGMENTS {
        // A message waits in the transport until a receive is posted.
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
        let assembly = match &mut parts.assembly {
            Some(assembly) => {
                if fragment.immediate_len.is_some() {
                    return Err(broken(format_args!(
                        "immediate data in the middle of a message"
                    )));
                }
                assembly
            }
            None => {
                // Checked before a receive is dequeued: one that is in no list would never complete.
                let received = begin(connection, &fragment, &**inbox)?;
                let task = receives.pop_front().ok_or(Error::Unexpected)?;
                parts.assembly.insert(Assembly {
                    task,
                    received,
                    arrived: 0,
                    result: Ok(()),
                })
            }
        };
        assembly.count(&fragment)?;
        if assembly.result.is_ok() {
            assembly.result = append(assembly, &fragment, &**inbox);
        }
        inbox.advance();
        if !fragment.more
            && let Some(assembly) = parts.assembly.take()
        {
            return Ok(Some(finish(assembly)));
        }
    }
    Ok(None)
}

/// The peer violates the protocol.
fn broken(what: std::fmt::Arguments<'_>) -> Error {
    Error::ConnectionAborted.because(format_args!("an RDMA peer broke the protocol: {what}"))
}

impl Assembly {
    /// Limits a message: each fragment but the last has data, and the total is at most the maximum message size.
    fn count(&mut self, fragment: &Fragment) -> Result<()> {
        if fragment.more && fragment.len == 0 {
            return Err(broken(format_args!(
                "expected data in a fragment that others follow, got none"
            )));
        }
        self.arrived = self.arrived.saturating_add(fragment.len as u64);
        if self.arrived > u64::from(limits::MESSAGE_SIZE) {
            return Err(broken(format_args!(
                "expected a message of at most {} bytes, got more",
                limits::MESSAGE_SIZE
            )));
        }
        Ok(())
    }
}

/// Handles a message with one fragment and no immediate data, the most frequent kind.
#[inline]
fn take_whole(
    task: NonNull<Task>,
    connection: &Connection,
    len: usize,
    inbox: &impl Inbox,
) -> Result<()> {
    // SAFETY: a posted receive is in flight, and tasks in flight are not freed.
    let task = unsafe { task.as_ref() };
    let receive = &task.downcast::<Receive>().ok_or(Error::Unexpected)?.body;
    let result = match receive.destination.get() {
        _ if len == 0 => Ok(()),
        // A task without a buf has no room for data.
        None => Err(Error::TooBig),
        Some(destination) => buffers::fill_tail(&destination, len, |from, to, len| {
            // SAFETY: `to` is valid for writing `len` bytes.
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

/// Handles the first fragment of a message.
fn begin(connection: &Connection, fragment: &Fragment, inbox: &impl Inbox) -> Result<Received> {
    let (opcode, immediate, len) = match fragment.immediate_len {
        None => (Opcode::Send, 0, 0),
        Some(len) => read_immediate(len, inbox)?,
    };
    Ok(Received {
        opcode,
        len,
        immediate,
        connection: std::ptr::from_ref(connection),
    })
}

/// Parses immediate data of `len` bytes: kind of the message, value, and number of bytes written.
fn read_immediate(len: usize, inbox: &impl Inbox) -> Result<(Opcode, u32, u32)> {
    let mut bytes = [0; WRITE_IMMEDIATE];
    inbox.read_immediate(&mut bytes);
    let [a, b, c, d, e, f, g, h] = bytes;
    let value = u32::from_ne_bytes([a, b, c, d]);
    let written = u32::from_ne_bytes([e, f, g, h]);
    match len {
        SEND_IMMEDIATE => Ok((Opcode::SendWithImmediate, value, 0)),
        WRITE_IMMEDIATE => Ok((Opcode::WriteWithImmediate, value, written)),
        other => Err(broken(format_args!(
            "expected {SEND_IMMEDIATE} or {WRITE_IMMEDIATE} bytes of immediate data, got {other}"
        ))),
    }
}

#[inline]
fn append(assembly: &mut Assembly, fragment: &Fragment, inbox: &impl Inbox) -> Result<()> {
    if fragment.len == 0 {
        return Ok(());
    }
    // SAFETY: a posted receive is in flight, and tasks in flight are not freed.
    let task = unsafe { assembly.task.as_ref() };
    let receive = &task.downcast::<Receive>().ok_or(Error::Unexpected)?.body;
    // A task without a buf has no room for data.
    let destination = receive.destination.get().ok_or(Error::TooBig)?;
    buffers::fill_tail(&destination, fragment.len, |from, to, len| {
        // SAFETY: `to` is valid for writing `len` bytes.
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
