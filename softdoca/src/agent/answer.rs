//! Processing of one request by the agent.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::export::{self, Export};
use super::protocol::{MAX_PAYLOAD, Operation, ReplyHeader, RequestHeader, SegmentEntry};
use super::server::{ConnectionId, Reply, Request, Server, lock, shielded};
use crate::error::{Error, Result};
use crate::runtime::{Key, MAX_FDS, Socket};

impl Server {
    /// Receives a request and replies. Returns `false` if the peer has closed the connection. An error closes the
    /// connection; invalid requests are answered instead.
    pub(super) fn answer(
        &self,
        id: ConnectionId,
        socket: &Socket,
        buffer: &mut [u8],
    ) -> Result<bool> {
        let mut head = [0; RequestHeader::SIZE];
        let Some(len) = socket.peek(&mut head)? else {
            return Ok(false);
        };
        let header = RequestHeader::decode(&head[..len])?;
        // A write's payload is received directly into its destination; other messages are received into a buffer
        // first.
        if header.operation == Operation::Write {
            let value = self.write(socket, &header);
            return reply(socket, value, &[], &[]).map(|()| true);
        }
        let mut fds = Vec::new();
        let Some(len) = socket.receive(buffer, &mut fds)? else {
            return Ok(false);
        };
        let payload = buffer.get(RequestHeader::SIZE..len).unwrap_or_default();
        match header.operation {
            Operation::Write => unreachable!("answered above"),
            Operation::Read => self.read(socket, &header)?,
            Operation::FetchAdd => {
                let value = self.atomic(&header, export::fetch_add(header.operands[0]));
                reply(socket, value, &[], &[])?;
            }
            Operation::CompareSwap => {
                let [expected, new] = header.operands;
                let value = self.atomic(&header, export::compare_swap(expected, new));
                reply(socket, value, &[], &[])?;
            }
            Operation::Describe => match self.describe(&header) {
                Ok((count, payload, fds)) => {
                    self.grant(id, header.key)?;
                    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
                    reply(socket, Ok(count), &payload, &fds)?;
                }
                Err(error) => reply(socket, Err(error), &[], &[])?,
            },
            Operation::Validity => {
                let word = self.with_export(header.key, |export| {
                    export.validity.clone().ok_or(Error::NotSupported)
                });
                match word {
                    Ok(word) => reply(socket, Ok(word.place()), &[], &[word.memfd.as_fd()])?,
                    Err(error) => reply(socket, Err(error), &[], &[])?,
                }
            }
            Operation::Call => {
                let answer = self.call(
                    &header,
                    Request {
                        connection: id,
                        payload,
                        fds,
                    },
                );
                match answer {
                    Ok(answer) => self.reply_to_call(id, socket, header.key, answer)?,
                    Err(error) => reply(socket, Err(error), &[], &[])?,
                }
            }
        }
        Ok(true)
    }

    fn with_export<T>(&self, key: Key, action: impl FnOnce(&Export) -> Result<T>) -> Result<T> {
        lock(&self.exports)
            .get(&key)
            .ok_or(Error::NotFound)
            .and_then(action)
    }

    fn read(&self, socket: &Socket, header: &RequestHeader) -> Result<()> {
        let sent = self.with_export(header.key, |export| {
            if !export.rights.read {
                return Err(Error::NotPermitted);
            }
            let len = usize::try_from(header.len)
                .ok()
                .filter(|len| *len <= MAX_PAYLOAD)
                .ok_or(Error::TooBig)?;
            let pointer = export.pointer(header.addr, header.len)?;
            socket.send_memory(
                &ReplyHeader {
                    result: Ok(()),
                    value: 0,
                }
                .encode(),
                pointer,
                len,
            )
        });
        match sent {
            Ok(()) => Ok(()),
            Err(error) => reply(socket, Err(error), &[], &[]),
        }
    }

    fn write(&self, socket: &Socket, header: &RequestHeader) -> Result<u64> {
        let mut head = [0; RequestHeader::SIZE];
        let mut taken = false;
        let written = self.with_export(header.key, |export| {
            if !export.rights.write {
                return Err(Error::NotPermitted);
            }
            let len = usize::try_from(header.len).map_err(|_| Error::TooBig)?;
            let pointer = export.pointer(header.addr, header.len)?;
            taken = true;
            // SAFETY: inside a range that the program registered as writable by its peers and keeps valid while it is
            // exported; withdrawing waits for the lock that is held here.
            let received = unsafe { socket.receive_memory(&mut head, pointer, len) }?;
            if received != Some(RequestHeader::SIZE + len) {
                return Err(Error::InvalidValue);
            }
            Ok(0)
        });
        if !taken {
            // The refused message is still in the socket; the result reports truncation, as intended.
            // SAFETY: no memory is given.
            let _ = unsafe { socket.receive_memory(&mut head, std::ptr::null_mut(), 0) };
        }
        written
    }

    fn atomic(
        &self,
        header: &RequestHeader,
        operation: impl FnOnce(&std::sync::atomic::AtomicU64) -> u64,
    ) -> Result<u64> {
        self.with_export(header.key, |export| export.atomic(header.addr, operation))
    }

    fn describe(&self, header: &RequestHeader) -> Result<(u64, Vec<u8>, Vec<Arc<OwnedFd>>)> {
        self.with_export(header.key, |export| {
            // The peer may have altered the descriptor's permissions.
            if !export.rights.include(header.operands[0]) {
                return Err(Error::NotPermitted);
            }
            let (entries, fds) = export.describe(header.addr);
            let payload = entries.iter().flat_map(SegmentEntry::encode).collect();
            Ok((export.segments.len() as u64, payload, fds))
        })
    }

    fn call(&self, header: &RequestHeader, request: Request<'_>) -> Result<Reply> {
        let handler = lock(&self.services)
            .get(&header.key)
            .cloned()
            .ok_or(Error::NotFound)?;
        let answer = shielded(|| handler(request)).unwrap_or(Err(Error::Unexpected))?;
        if answer.payload.len() > MAX_PAYLOAD || answer.fds.len() > MAX_FDS {
            return Err(Error::TooBig.because("a service's reply does not fit into one message"));
        }
        Ok(answer)
    }

    /// Records the call before the peer learns of its success, because it may disconnect at once.
    fn reply_to_call(
        &self,
        id: ConnectionId,
        socket: &Socket,
        service: Key,
        answer: Reply,
    ) -> Result<()> {
        self.grant(id, service)?;
        if let Some(connection) = lock(&self.connections).get_mut(&id) {
            connection.calls.push((service, answer.on_close));
        }
        if !lock(&self.services).contains_key(&service) {
            // Withdrawn while its handler was running.
            self.withdraw_service(service);
            return Err(Error::Shutdown);
        }
        let fds: Vec<_> = answer.fds.iter().map(AsFd::as_fd).collect();
        reply(socket, Ok(0), &answer.payload, &fds)
    }
}

fn reply(
    socket: &Socket,
    value: Result<u64>,
    payload: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<()> {
    let header = ReplyHeader {
        result: value.map(|_| ()),
        value: value.unwrap_or(0),
    };
    let mut message = header.encode().to_vec();
    message.extend_from_slice(payload);
    socket.send(&message, fds)
}
