//! Data side of the scripted target: one worker, progressed by the control thread; I/O messages of the session's release.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use doca::{
    Buf, BufInventory, Completion, Device, ErrorCode, Event, MemoryRegion, Mmap, Pe, Rdma,
    RdmaConnection, Task,
};
use wire::io_message::{IoMessage, IoMessageType, Repr, SIZE, Version};
use wire::release::{CorrelationId as _, IoLayout, Release, Release3_0, Release3_1, Release3_2};

use super::{Error, Faults, Verdict, Versions};
use crate::role::REMOTE;

/// `DOCA_ERROR_INVALID_VALUE`, the result of an I/O outside the memories.
const INVALID_VALUE: u32 = 6;
/// `DOCA_ERROR_IO_FAILED`, the result of an I/O whose transfer failed.
pub(super) const IO_FAILED: u32 = 17;

/// The two memories between which a target transfers data.
#[derive(Debug)]
pub(super) struct Storage {
    pub local: Mmap,
    /// The memory of `local`.
    pub region: Arc<MemoryRegion>,
    pub block_size: u32,
    /// `true` if earlier versions of blocks are kept.
    pub has_versions: bool,
    pub remote: Mmap,
    pub messages: Messages,
}

/// Number of times that the memory of a read is overwritten.
const SCRIBBLES: usize = 200;

/// Kind of operation, in the upper half of a token; the lower half is the transaction.
#[derive(Clone, Copy)]
enum Step {
    Request,
    Transfer,
    Response,
}

fn token(step: Step, transaction: usize) -> u64 {
    ((step as u64) << 32) | transaction as u64
}

struct Transaction {
    message: Buf,
    storage: Buf,
    host: Buf,
    request: Task,
    response: Task,
    to_host: Task,
    to_storage: Task,
    /// Memory from which an earlier version of a block is sent.
    earlier: Option<Earlier>,
    /// Version in the request.
    version: Cell<Version>,
    /// `true` if the response being sent is the second response to the same request.
    answered_twice: Cell<bool>,
    /// Request to execute once the preceding message has been sent.
    postponed: Cell<Option<Io>>,
}

/// Memory for an earlier version of a block, and the task that sends it.
struct Earlier {
    bytes: Buf,
    to_host: Task,
}

/// Progress engine, contexts and transactions of one worker. Fields are in drop order: tasks before contexts, and
/// contexts before the engine.
pub(super) struct Worker {
    transactions: Vec<Transaction>,
    control: Rdma,
    control_connection: Option<RdmaConnection>,
    data: Rdma,
    data_connection: Option<RdmaConnection>,
    pe: Pe,
    messages: Mmap,
    /// A block for each transaction.
    earlier: Option<Mmap>,
    storage: Arc<Storage>,
    count: usize,
    /// Completions received while memory was being overwritten.
    postponed: VecDeque<Completion>,
    /// Transactions whose results are held until the group is complete.
    held: Vec<usize>,
    /// Transaction whose response is sent a second time when the next request has arrived.
    late: Option<usize>,
}

impl Worker {
    pub(super) fn new(
        device: &Device,
        storage: &Arc<Storage>,
        transactions: u32,
    ) -> Result<Self, Error> {
        let count = transactions as usize;
        let pe = Pe::new()?;
        let messages = Mmap::register(device, MemoryRegion::new(count * SIZE)?, REMOTE)?;
        let earlier = if storage.has_versions {
            let region = MemoryRegion::new(count * storage.block_size as usize)?;
            Some(Mmap::register(device, region, REMOTE)?)
        } else {
            None
        };
        let control = Rdma::builder(device)
            .permissions(REMOTE)
            .receive_tasks(transactions)
            .send_tasks(transactions)
            .start(&pe)?;
        let data = Rdma::builder(device)
            .permissions(REMOTE)
            .read_tasks(transactions)
            .write_tasks(2 * transactions)
            .start(&pe)?;
        Ok(Self {
            transactions: Vec::new(),
            control,
            control_connection: None,
            data,
            data_connection: None,
            pe,
            messages,
            earlier,
            storage: Arc::clone(storage),
            count,
            postponed: VecDeque::new(),
            held: Vec::new(),
            late: None,
        })
    }

    /// Creates one of the two connections; returns this side's blob.
    pub(super) fn connect(&mut self, is_data: bool, peer: &[u8]) -> Result<Vec<u8>, Error> {
        let (rdma, slot) = if is_data {
            (&self.data, &mut self.data_connection)
        } else {
            (&self.control, &mut self.control_connection)
        };
        let (blob, connection) = rdma.export()?;
        rdma.connect(&connection, peer)?;
        *slot = Some(connection);
        Ok(blob)
    }

    /// Allocates the transactions and submits their receives.
    pub(super) fn start(&mut self) -> Result<(), Error> {
        let (Some(control), Some(data)) = (&self.control_connection, &self.data_connection) else {
            return Err(Error::Unexpected {
                expected: "both connections of every worker",
                got: "a start".to_owned(),
            });
        };
        let inventory = BufInventory::new(self.count * 4)?;
        for index in 0..self.count {
            let message = inventory.buf(&self.messages, (index * SIZE) as u64, SIZE)?;
            // Each I/O sets the ranges of these two buffers.
            let storage = inventory.buf(&self.storage.local, 0, 1)?;
            let host = inventory.buf(&self.storage.remote, 0, 1)?;
            let transfer = token(Step::Transfer, index);
            let earlier = match &self.earlier {
                Some(earlier) => {
                    let size = self.storage.block_size as usize;
                    let bytes = inventory.buf(earlier, (index * size) as u64, size)?;
                    let to_host = self.data.write_task(data, &bytes, &host, transfer)?;
                    Some(Earlier { bytes, to_host })
                }
                None => None,
            };
            let transaction = Transaction {
                request: self
                    .control
                    .receive_task(&message, token(Step::Request, index))?,
                response: self.control.send_task(
                    control,
                    &message,
                    token(Step::Response, index),
                )?,
                to_host: self.data.write_task(data, &storage, &host, transfer)?,
                to_storage: self.data.read_task(data, &host, &storage, transfer)?,
                message,
                storage,
                host,
                earlier,
                version: Cell::new(NO_VERSION),
                answered_twice: Cell::new(false),
                postponed: Cell::new(None),
            };
            submit(&transaction.request)?;
            self.transactions.push(transaction);
        }
        Ok(())
    }

    pub(super) fn progress(
        &mut self,
        faults: &mut Faults,
        versions: &mut Versions,
    ) -> Result<(), Error> {
        let messages = self.storage.messages;
        while let Some(Completion { token, result }) = self.next_completion() {
            let index = (token & 0xffff_ffff) as usize;
            let transaction = &self.transactions[index];
            match (token >> 32, result) {
                (step, Ok(())) if step == Step::Request as u64 => {
                    if let Some(last) = self.late.take() {
                        submit(&self.transactions[last].response)?;
                    }
                    let bytes = read_bytes(&transaction.message)?;
                    let io = parse_message(messages, &bytes)?;
                    transaction.version.set(match io.values.message_type {
                        IoMessageType::Read | IoMessageType::Write => NO_VERSION,
                        _ => Version::of(&bytes),
                    });
                    if let Some(premature) = faults.premature(messages, &io) {
                        transaction.postponed.set(Some(io));
                        transaction.message.write_data(&premature)?;
                        submit(&transaction.response)?;
                        continue;
                    }
                    begin(&self.storage, transaction, faults, versions)?;
                }
                (step, result) if step == Step::Transfer as u64 => {
                    let code = if result.is_ok() { 0 } else { IO_FAILED };
                    let io = read_message(messages, &transaction.message)?.values;
                    if faults.together() > 1 {
                        prepare(messages, transaction, faults, code)?;
                        self.hold(index, faults.together())?;
                        continue;
                    }
                    respond(messages, transaction, faults, code)?;
                    if faults.scribbles() && io.message_type == IoMessageType::Read {
                        self.scribble(index, &io)?;
                    }
                }
                (step, Ok(())) if step == Step::Response as u64 => {
                    if let Some(io) = transaction.postponed.take() {
                        transaction.message.write_data(&messages.to_bytes(&io))?;
                        begin(&self.storage, transaction, faults, versions)?;
                        continue;
                    }
                    if faults.answers_twice() && !transaction.answered_twice.replace(true) {
                        submit(&transaction.response)?;
                        continue;
                    }
                    if faults.answers_late() && !transaction.answered_twice.replace(true) {
                        self.late = Some(index);
                        continue;
                    }
                    transaction.answered_twice.set(false);
                    transaction.message.reset_data()?;
                    submit(&transaction.request)?;
                }
                // Flushed: the peer has disconnected, or the session stops.
                _ => {}
            }
        }
        Ok(())
    }

    /// Holds a result until the group is complete.
    fn hold(&mut self, index: usize, together: usize) -> Result<(), Error> {
        self.held.push(index);
        if self.held.len() >= together {
            while let Some(index) = self.held.pop() {
                submit(&self.transactions[index].response)?;
            }
        }
        Ok(())
    }

    fn next_completion(&mut self) -> Option<Completion> {
        if let Some(completion) = self.postponed.pop_front() {
            return Some(completion);
        }
        loop {
            if let Event::Task(completion) = self.pe.poll()? {
                return Some(completion);
            }
        }
    }

    /// Overwrites the data of an answered read alternately with the data of the next block and with its own data.
    fn scribble(&mut self, index: usize, io: &Repr) -> Result<(), Error> {
        let transaction = &self.transactions[index];
        let size = io.size as usize;
        let other = io.storage_offset + u64::from(io.size);
        let other = if other + u64::from(io.size) <= self.storage.local.len() {
            other
        } else {
            0
        };
        for offset in [other, io.storage_offset]
            .into_iter()
            .cycle()
            .take(SCRIBBLES)
        {
            transaction.storage.set_data(offset, size)?;
            transaction.host.set_range(io.requester_offset, size)?;
            submit(&transaction.to_host)?;
            while transaction.to_host.is_in_flight() {
                match self.pe.poll() {
                    Some(Event::Task(done)) if done.token == token(Step::Transfer, index) => {}
                    Some(Event::Task(done)) => self.postponed.push_back(done),
                    Some(_) | None => {}
                }
            }
        }
        Ok(())
    }
}

const NO_VERSION: Version = Version {
    epoch: 0,
    number: 0,
    retired: 0,
};

fn begin(
    target: &Storage,
    transaction: &Transaction,
    faults: &mut Faults,
    versions: &mut Versions,
) -> Result<(), Error> {
    let messages = target.messages;
    let io = read_message(messages, &transaction.message)?.values;
    let version = transaction.version.get();
    faults.record(&io, version);
    if target.has_versions {
        versions.retire(version.epoch, version.retired);
    }
    if io.message_type == IoMessageType::Flush {
        // A flush has no effect, because the storage is in memory.
        let result = faults.flush();
        return respond(messages, transaction, faults, result);
    }
    if let Err(result) = examine(target, &io, version) {
        return respond(messages, transaction, faults, result);
    }
    let is_write = !matches!(
        io.message_type,
        IoMessageType::Read | IoMessageType::ReadBefore
    );
    let offset = match faults.judge(is_write, io.storage_offset) {
        Verdict::Do(offset) => offset,
        Verdict::Answer(result) => return respond(messages, transaction, faults, result),
        Verdict::Nonsense => {
            transaction.message.write_data(&[0xee; SIZE])?;
            return submit(&transaction.response);
        }
        Verdict::Swallow => return Ok(()),
    };
    let size = io.size as usize;
    let Transaction { storage, host, .. } = transaction;
    let block = offset / u64::from(target.block_size).max(1);
    if let (IoMessageType::ReadBefore, Some(earlier)) = (io.message_type, &transaction.earlier)
        && let Some(bytes) = versions.before(block, (version.epoch, version.number))
    {
        earlier.bytes.write_data(bytes)?;
        if host.set_range(io.requester_offset, size).is_err() {
            return respond(messages, transaction, faults, INVALID_VALUE);
        }
        return submit(&earlier.to_host);
    }
    if target.has_versions && is_write {
        let mut replaced = vec![0; size];
        target.region.read(offset as usize, &mut replaced)?;
        if !versions.write(block, (version.epoch, version.number), replaced) {
            return respond(messages, transaction, faults, ErrorCode::NO_MEMORY.0);
        }
    }
    let (from, to, task) = if is_write {
        (
            (host, io.requester_offset),
            (storage, offset),
            &transaction.to_storage,
        )
    } else {
        (
            (storage, offset),
            (host, io.requester_offset),
            &transaction.to_host,
        )
    };
    let aimed = from
        .0
        .set_data(from.1, size)
        .and_then(|()| to.0.set_range(to.1, size));
    if size == 0 || aimed.is_err() {
        return respond(messages, transaction, faults, INVALID_VALUE);
    }
    submit(task)
}

/// Checks the type of a request, and the block and the version of a versioned one. Returns the result of an invalid request.
fn examine(target: &Storage, io: &Repr, version: Version) -> Result<(), u32> {
    let block_size = target.block_size;
    let is_block = io.size == block_size
        && io.storage_offset.is_multiple_of(block_size.into())
        && io.storage_offset < target.local.len();
    match io.message_type {
        IoMessageType::Write | IoMessageType::WriteFua if target.has_versions => {
            Err(ErrorCode::NOT_PERMITTED.0)
        }
        IoMessageType::Read | IoMessageType::Write | IoMessageType::WriteFua => Ok(()),
        IoMessageType::ReadBefore if target.has_versions && is_block => Ok(()),
        IoMessageType::WriteVersion | IoMessageType::WriteVersionFua
            if target.has_versions && is_block && version.number != 0 =>
        {
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    }
}

fn respond(
    messages: Messages,
    transaction: &Transaction,
    faults: &mut Faults,
    result: u32,
) -> Result<(), Error> {
    prepare(messages, transaction, faults, result)?;
    submit(&transaction.response)
}

/// Converts the request in the message buffer to its result.
fn prepare(
    messages: Messages,
    transaction: &Transaction,
    faults: &mut Faults,
    result: u32,
) -> Result<(), Error> {
    let request = read_message(messages, &transaction.message)?;
    faults.record_result(&request.values, transaction.version.get(), result);
    let answer = messages.to_bytes(&request.answer(result));
    transaction.message.write_data(&answer)?;
    Ok(())
}

fn unexpected_message(got: String) -> Error {
    Error::Unexpected {
        expected: "an I/O message of 64 bytes",
        got,
    }
}

fn read_bytes(buf: &Buf) -> Result<[u8; SIZE], Error> {
    let mut bytes = [0; SIZE];
    match buf.read_data(&mut bytes)? {
        SIZE => Ok(bytes),
        len => Err(unexpected_message(format!("{len} bytes"))),
    }
}

fn parse_message(messages: Messages, bytes: &[u8; SIZE]) -> Result<Io, Error> {
    let parsed = messages.parse(bytes);
    parsed.map_err(|error| unexpected_message(error.to_string()))
}

fn read_message(messages: Messages, buf: &Buf) -> Result<Io, Error> {
    parse_message(messages, &read_bytes(buf)?)
}

fn submit(task: &Task) -> Result<(), Error> {
    match task.submit() {
        // The context stops, because the peer has disconnected: tasks in flight are flushed, and this task is not
        // needed.
        Ok(()) | Err(ErrorCode::BAD_STATE) => Ok(()),
        Err(code) => Err(Error::Unexpected {
            expected: "the task to be submitted",
            got: code.to_string(),
        }),
    }
}

// I/O messages of the session's release.

/// Parses and encodes I/O messages of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Messages {
    pub(crate) release: Release,
    /// Start address of the requester's memory, to which addresses in messages of 3.0 are relative.
    pub(crate) requester_address: u64,
}

/// Values of a message, including the correlation id of 3.0 and 3.1, which is 0 in other releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Io {
    pub(crate) values: Repr,
    pub(crate) correlation_id: u32,
}

impl Messages {
    /// Parses a message.
    ///
    /// # Errors
    ///
    /// Its type is unknown.
    pub(crate) fn parse(self, bytes: &[u8; SIZE]) -> Result<Io, wire::DecodeError> {
        match self.release {
            Release::V3_0 => parse(self.layout_3_0(), bytes),
            Release::V3_1 => parse(Release3_1, bytes),
            Release::V3_2 => parse(Release3_2, bytes),
        }
    }

    pub(crate) fn to_bytes(self, io: &Io) -> [u8; SIZE] {
        match self.release {
            Release::V3_0 => to_bytes(self.layout_3_0(), io),
            Release::V3_1 => to_bytes(Release3_1, io),
            Release::V3_2 => to_bytes(Release3_2, io),
        }
    }

    fn layout_3_0(self) -> Release3_0 {
        Release3_0 {
            requester_address: self.requester_address,
        }
    }
}

impl Io {
    /// Response to this request, with this result.
    pub(crate) fn answer(&self, result: u32) -> Self {
        Self {
            values: self.values.answer(result),
            ..*self
        }
    }
}

fn parse<L: IoLayout>(layout: L, bytes: &[u8; SIZE]) -> Result<Io, wire::DecodeError> {
    // The type has the same offset in all releases.
    let Repr { message_type, .. } = Repr::parse(&IoMessage::new_unchecked_len(bytes))?;
    Ok(Io {
        values: Repr {
            message_type,
            ..layout.answer_to(bytes)
        },
        correlation_id: L::CorrelationId::read(bytes).number(),
    })
}

fn to_bytes<L: IoLayout>(layout: L, io: &Io) -> [u8; SIZE] {
    let id = L::CorrelationId::from_number(io.correlation_id);
    layout.to_bytes(&io.values, id)
}

#[cfg(test)]
mod tests {
    use wire::io_message::IoMessageType;

    use super::*;

    #[test]
    fn messages_of_every_release_round_trip() {
        let io = Io {
            values: Repr {
                message_type: IoMessageType::Write,
                user_data: 7,
                result: 0,
                size: 4096,
                requester_offset: 12288,
                storage_offset: 8192,
            },
            correlation_id: 3,
        };
        for release in Release::ALL {
            let messages = Messages {
                release,
                requester_address: 0x7000_0000_0000,
            };
            let correlation_id = if release == Release::V3_2 { 0 } else { 3 };
            let expected = Io {
                correlation_id,
                ..io
            };
            assert_eq!(
                messages.parse(&messages.to_bytes(&io)),
                Ok(expected),
                "{release}"
            );
            let answer = expected.answer(17);
            assert_eq!(
                messages.parse(&messages.to_bytes(&answer)),
                Ok(answer),
                "{release}"
            );
        }
    }
}
