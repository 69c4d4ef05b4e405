//! Messages that arrive, and the receive tasks that they take.

use std::collections::VecDeque;
use std::ptr::NonNull;

use super::buffers;
use super::config::limits;
use super::connection::{Connection, Done, Parts};
use super::task::{Opcode, Receive, Received};
use super::transport::{Fragment, Inbox};
use crate::error::{Error, Result};
use crate::progress::Task;

/// A message that is arriving, in the receive task that it took.
pub(super) struct Assembly {
    pub(super) task: NonNull<Task>,
    received: Received,
    /// Bytes of data that have come, those that were thrown away included.
    arrived: u64,
    /// The first thing that went wrong. The rest of the message is thrown away.
    result: Result<()>,
}

/// Immediate data as it travels: a message's is the value as the sender gave it (4 bytes), a remote write's is
/// followed by the number of bytes written (u32, in the order of the machines: both ends have the same).
pub(super) const SEND_IMMEDIATE: usize = 4;
pub(super) const WRITE_IMMEDIATE: usize = 8;

/// Fragments that one call of [`receive`] takes. A peer can add some as fast as they are taken: the engine's other contexts have
/// their turn in between.
const MOST_FRAGMENTS: usize = 64;

/// Takes what has arrived, until a message is complete. An error is the connection's end: whatever receive the message has taken by
/// then is in `parts.assembly`, and fails with the connection.
pub(super) fn receive(
    connection: &Connection,
    parts: &mut Parts,
    receives: &mut VecDeque<NonNull<Task>>,
) -> Result<Option<Done>> {
    let Some(inbox) = &mut parts.inbox else {
        return Ok(None);
    };
    for _ in 0..MOST_FRAGMENTS {
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
                // Checked before a receive is taken: one that is in no list any more would never complete.
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

/// The peer does not follow the protocol.
fn broken(what: std::fmt::Arguments<'_>) -> Error {
    Error::ConnectionAborted.because(format_args!("an RDMA peer broke the protocol: {what}"))
}

impl Assembly {
    /// Bounds what belongs to one message: each fragment but the last brings data, and all of them at most the longest message.
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

/// The head of a message that begins.
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
