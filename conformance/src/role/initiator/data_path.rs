//! The data side of the scripted service: it holds the storage itself, and looks at every request.

use std::time::Duration;

use wire::control::StorageDetails;
use wire::io_message::{IoMessageType, Repr, SIZE};
use wire::release::Release;

use super::host_memory::HostMemory;
use crate::role::{IoChannel, Wrong};
use crate::target::{IoOfRelease, Messages};

/// A request, and the worker of the initiator that it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Io {
    pub(super) worker: usize,
    pub(super) request: Repr,
    /// The number that it has beside its user data, in releases before 3.2.
    correlation_id: u32,
    messages: Messages,
    /// Whether bytes that belong to no field were not zero.
    pub(super) has_rubbish: bool,
}

impl Io {
    pub(super) fn is_write(&self) -> bool {
        self.request.message_type == IoMessageType::Write
    }

    pub(super) fn is_read(&self) -> bool {
        !self.is_write()
    }

    /// Where the bytes of an I/O message are that belong to no field.
    pub(super) fn reserved(&self) -> impl Iterator<Item = usize> + use<> {
        reserved(self.messages.release)
    }

    /// The bytes of a message with these values, and otherwise of the result of this request.
    pub(super) fn bytes_of(&self, values: Repr) -> [u8; SIZE] {
        self.messages.to_bytes(&IoOfRelease {
            values,
            correlation_id: self.correlation_id,
        })
    }

    /// The bytes of the result of this request, but of another transaction.
    pub(super) fn result_of(&self, transaction: u32) -> [u8; SIZE] {
        let mut values = self.request.answer(0);
        let mut correlation_id = self.correlation_id;
        if self.messages.release == Release::V3_2 {
            values.user_data = transaction.into();
        } else {
            correlation_id = transaction;
        }
        self.messages.to_bytes(&IoOfRelease {
            values,
            correlation_id,
        })
    }

    /// What the initiator knows the transaction by.
    fn transaction(&self) -> u64 {
        match self.messages.release {
            Release::V3_2 => self.request.user_data,
            Release::V3_0 | Release::V3_1 => self.correlation_id.into(),
        }
    }

    /// Where the request is in the storage.
    fn range(&self) -> std::ops::Range<usize> {
        let begin = self.request.storage_offset as usize;
        begin..begin + self.request.size as usize
    }
}

/// Where the bytes of an I/O message are that belong to no field. 3.0 and 3.1 have a correlation id behind the type.
fn reserved(release: Release) -> impl Iterator<Item = usize> {
    let first = match release {
        Release::V3_2 => 4..8,
        Release::V3_0 | Release::V3_1 => 8..8,
    };
    first.chain(40..SIZE)
}

/// What the requests have to keep to.
#[derive(Debug)]
pub(super) struct Bounds {
    /// What the initiator was told.
    pub(super) storage: StorageDetails,
    /// What it has asked for in a worker.
    pub(super) transactions: u32,
    /// The largest size that its flags allow.
    pub(super) io_size: u32,
}

/// The workers' channels, the initiator's memory, and the storage.
#[derive(Debug)]
pub(super) struct DataPath {
    channels: Vec<IoChannel>,
    in_flight: Vec<Io>,
    host: HostMemory,
    bounds: Bounds,
    messages: Messages,
    patience: Duration,
    /// The content. May be shorter than the storage where nothing is moved.
    pub(super) storage: Vec<u8>,
    /// All requests, in the order in which they came.
    pub(super) seen: Vec<Io>,
}

impl DataPath {
    pub(super) fn new(
        channels: Vec<IoChannel>,
        host: HostMemory,
        bounds: Bounds,
        release: Release,
        storage: Vec<u8>,
        patience: Duration,
    ) -> Self {
        let messages = Messages {
            release,
            requester_address: host.base_address(),
        };
        Self {
            channels,
            in_flight: Vec::new(),
            host,
            bounds,
            messages,
            patience,
            storage,
            seen: Vec::new(),
        }
    }

    /// The next request, if there is one: it keeps to what is in flight, to the storage and to the initiator's memory.
    ///
    /// # Errors
    ///
    /// It does not.
    pub(super) fn next(&mut self) -> Result<Option<Io>, Wrong> {
        for (worker, channel) in self.channels.iter_mut().enumerate() {
            let Some(bytes) = channel.poll()? else {
                continue;
            };
            let Ok(bytes) = <[u8; SIZE]>::try_from(bytes.as_slice()) else {
                return Err(Wrong::expected(
                    format!("a request of {SIZE} bytes"),
                    format!("{} bytes", bytes.len()),
                ));
            };
            let IoOfRelease {
                values: request,
                correlation_id,
            } = self.messages.parse(&bytes)?;
            let io = Io {
                worker,
                request,
                correlation_id,
                messages: self.messages,
                has_rubbish: reserved(self.messages.release).any(|at| bytes[at] != 0),
            };
            self.judge(&io)?;
            self.in_flight.push(io);
            self.seen.push(io);
            return Ok(Some(io));
        }
        Ok(None)
    }

    fn judge(&self, io: &Io) -> Result<(), Wrong> {
        let Repr {
            message_type,
            size,
            requester_offset,
            storage_offset,
            ..
        } = io.request;
        let Bounds {
            storage,
            transactions,
            io_size,
        } = &self.bounds;
        let unless = |holds: bool, expected: String| {
            Wrong::unless(holds, expected, format!("{:?}", io.request))
        };
        let fits = |offset: u64, len: u64| {
            offset
                .checked_add(u64::from(size))
                .is_some_and(|end| end <= len)
        };
        unless(
            message_type != IoMessageType::Result,
            "a read or a write".to_owned(),
        )?;
        unless(
            size != 0 && size.is_multiple_of(storage.block_size) && size <= *io_size,
            format!(
                "whole blocks of {} bytes, {io_size} bytes at most",
                storage.block_size
            ),
        )?;
        unless(
            fits(storage_offset, storage.total_size)
                && storage_offset.is_multiple_of(u64::from(storage.block_size)),
            format!("blocks of a storage of {} bytes", storage.total_size),
        )?;
        unless(
            fits(requester_offset, self.host.len()),
            format!(
                "a place in the initiator's memory of {} bytes",
                self.host.len()
            ),
        )?;
        let own = || {
            self.in_flight
                .iter()
                .filter(|other| other.worker == io.worker)
        };
        unless(
            own().all(|other| other.transaction() != io.transaction()),
            "a transaction that no request in flight is of: another user data, or correlation id before 3.2".to_owned(),
        )?;
        unless(
            own().count() < *transactions as usize,
            format!("at most {transactions} requests of a worker in flight"),
        )?;
        let overlaps = |other: &Io| {
            let (begin, other_begin) = (requester_offset, other.request.requester_offset);
            begin < other_begin + u64::from(other.request.size)
                && other_begin < begin + u64::from(size)
        };
        unless(
            !self.in_flight.iter().any(overlaps),
            "a place in the initiator's memory that no other request in flight uses".to_owned(),
        )
    }

    /// Requests that have no answer yet.
    pub(super) fn in_flight(&self) -> &[Io] {
        &self.in_flight
    }

    /// Moves the data of a request.
    ///
    /// # Errors
    ///
    /// The initiator's memory is out of reach.
    pub(super) fn transfer(&mut self, io: &Io) -> Result<(), Wrong> {
        let bytes = &mut self.storage[io.range()];
        if io.is_write() {
            self.host.read(io.request.requester_offset, bytes)
        } else {
            self.host.write(io.request.requester_offset, bytes)
        }
    }

    /// Gives these bytes to a read, whatever the storage holds.
    ///
    /// # Errors
    ///
    /// As [`DataPath::transfer`].
    pub(super) fn give(&mut self, io: &Io, bytes: &[u8]) -> Result<(), Wrong> {
        self.host.write(io.request.requester_offset, bytes)
    }

    /// What the storage holds `further` bytes behind where the request is; it begins again behind its end.
    pub(super) fn stored(&self, io: &Io, further: u32) -> Vec<u8> {
        let len = self.storage.len();
        let begin = io.range().start + further as usize;
        (begin..begin + io.request.size as usize)
            .map(|at| self.storage[at % len])
            .collect()
    }

    /// Answers a request with this result.
    ///
    /// # Errors
    ///
    /// The initiator does not take it.
    pub(super) fn answer(&mut self, io: &Io, result: u32) -> Result<(), Wrong> {
        self.forget(io);
        self.send_bytes(io.worker, &io.bytes_of(io.request.answer(result)))
    }

    /// Does what a request asks for, and says so.
    ///
    /// # Errors
    ///
    /// As [`DataPath::transfer`] and [`DataPath::answer`].
    pub(super) fn serve(&mut self, io: &Io) -> Result<(), Wrong> {
        self.transfer(io)?;
        self.answer(io, 0)
    }

    /// The request is as good as answered.
    pub(super) fn forget(&mut self, io: &Io) {
        self.in_flight.retain(|other| other != io);
    }

    /// Sends any bytes to a worker.
    ///
    /// # Errors
    ///
    /// The initiator does not take them.
    pub(super) fn send_bytes(&mut self, worker: usize, bytes: &[u8]) -> Result<(), Wrong> {
        self.channels[worker].send_bytes(bytes, self.patience)
    }

    /// Sends to these consumers of the initiator, the n-th for the n-th worker.
    ///
    /// # Errors
    ///
    /// There is no such consumer.
    pub(super) fn send_to(&mut self, consumers: &[u32]) -> Result<(), Wrong> {
        let mut pairs = self.channels.iter_mut().zip(consumers);
        pairs.try_for_each(|(channel, consumer)| channel.send_to(*consumer))
    }

    /// Destroys consumers and producers, as services do before they answer stop_storage_request.
    ///
    /// # Errors
    ///
    /// They do not stop.
    pub(super) fn close_channels(&mut self) -> Result<(), Wrong> {
        self.channels.drain(..).try_for_each(IoChannel::stop)
    }
}
