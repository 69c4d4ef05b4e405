//! Data path of the scripted service, which stores the blocks itself and checks every request.

use std::time::Duration;

use wire::control::StorageDetails;
use wire::io_message::{IoMessageType, Repr, SIZE};
use wire::release::Release;

use super::service::{HostMemory, Service};
use super::{BLOCK, BLOCKS, Plan, content};
use crate::role::{Check, Fixture, IoChannel};
use crate::target::{IoOfRelease, Messages};
use crate::violation::Violation;

/// A request, and the worker of the initiator that sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Io {
    pub(super) worker: usize,
    pub(super) request: Repr,
    /// Correlation id in addition to the user data, in releases before 3.2.
    correlation_id: u32,
    messages: Messages,
    /// `true` if bytes outside of fields were not zero.
    pub(super) has_rubbish: bool,
}

impl Io {
    pub(super) fn is_write(&self) -> bool {
        self.request.message_type == IoMessageType::Write
    }

    pub(super) fn is_read(&self) -> bool {
        !self.is_write()
    }

    /// Offsets of the bytes of an I/O message that are outside of fields.
    pub(super) fn reserved(&self) -> impl Iterator<Item = usize> + use<> {
        reserved(self.messages.release)
    }

    /// Encodes a message with these values; other bytes are those of the result of this request.
    pub(super) fn bytes_of(&self, values: Repr) -> [u8; SIZE] {
        self.messages.to_bytes(&IoOfRelease {
            values,
            correlation_id: self.correlation_id,
        })
    }

    /// Encodes the result of this request, with the number of another transaction.
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

    /// Value by which the initiator identifies the transaction.
    fn transaction(&self) -> u64 {
        match self.messages.release {
            Release::V3_2 => self.request.user_data,
            Release::V3_0 | Release::V3_1 => self.correlation_id.into(),
        }
    }

    /// Byte range of the request in the storage.
    fn range(&self) -> std::ops::Range<usize> {
        let begin = self.request.storage_offset as usize;
        begin..begin + self.request.size as usize
    }
}

/// Offsets of the bytes of an I/O message that are outside of fields. 3.0 and 3.1 have a correlation id after the type.
fn reserved(release: Release) -> impl Iterator<Item = usize> {
    let first = match release {
        Release::V3_2 => 4..8,
        Release::V3_0 | Release::V3_1 => 8..8,
    };
    first.chain(40..SIZE)
}

/// Constraints on the requests.
#[derive(Debug)]
pub(super) struct Bounds {
    /// Storage details, as reported to the initiator.
    pub(super) storage: StorageDetails,
    /// Transactions of a worker, as requested by the initiator.
    pub(super) transactions: u32,
    /// Maximum size of an I/O according to the flags, in bytes.
    pub(super) io_size: u32,
}

/// Channels of the workers, the initiator's memory, and the storage.
#[derive(Debug)]
pub(super) struct DataPath {
    channels: Vec<IoChannel>,
    in_flight: Vec<Io>,
    host: HostMemory,
    bounds: Bounds,
    messages: Messages,
    timeout: Duration,
    /// Contents of the storage. May be shorter than the storage if no data is transferred.
    pub(super) storage: Vec<u8>,
    /// All requests in the order of their arrival.
    pub(super) received: Vec<Io>,
}

impl DataPath {
    pub(super) fn new(
        channels: Vec<IoChannel>,
        host: HostMemory,
        bounds: Bounds,
        release: Release,
        storage: Vec<u8>,
        timeout: Duration,
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
            timeout,
            storage,
            received: Vec::new(),
        }
    }

    /// Returns the next request, if there is one, after checking it against the requests in flight, the storage and
    /// the initiator's memory.
    ///
    /// # Errors
    ///
    /// The request is invalid.
    pub(super) fn next(&mut self) -> Result<Option<Io>, Violation> {
        for (worker, channel) in self.channels.iter_mut().enumerate() {
            let Some(bytes) = channel.poll()? else {
                continue;
            };
            let Ok(bytes) = <[u8; SIZE]>::try_from(bytes.as_slice()) else {
                return Err(Violation::expected(
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
            self.received.push(io);
            return Ok(Some(io));
        }
        Ok(None)
    }

    fn judge(&self, io: &Io) -> Result<(), Violation> {
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
            Violation::unless(holds, expected, format!("{:?}", io.request))
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

    pub(super) fn in_flight(&self) -> &[Io] {
        &self.in_flight
    }

    /// Transfers the data of a request.
    ///
    /// # Errors
    ///
    /// The initiator's memory cannot be accessed.
    pub(super) fn transfer(&mut self, io: &Io) -> Result<(), Violation> {
        let bytes = &mut self.storage[io.range()];
        if io.is_write() {
            self.host.read(io.request.requester_offset, bytes)
        } else {
            self.host.write(io.request.requester_offset, bytes)
        }
    }

    /// Transfers these bytes for a read, regardless of the storage's contents.
    ///
    /// # Errors
    ///
    /// As [`DataPath::transfer`].
    pub(super) fn give(&mut self, io: &Io, bytes: &[u8]) -> Result<(), Violation> {
        self.host.write(io.request.requester_offset, bytes)
    }

    /// Contents of the storage at the request's offset plus `further` bytes, modulo the size of the storage.
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
    /// The initiator does not receive it.
    pub(super) fn answer(&mut self, io: &Io, result: u32) -> Result<(), Violation> {
        self.forget(io);
        self.send_bytes(io.worker, &io.bytes_of(io.request.answer(result)))
    }

    /// Executes a request and sends its result.
    ///
    /// # Errors
    ///
    /// As [`DataPath::transfer`] and [`DataPath::answer`].
    pub(super) fn serve(&mut self, io: &Io) -> Result<(), Violation> {
        self.transfer(io)?;
        self.answer(io, 0)
    }

    /// Removes a request from the requests in flight, without a response.
    pub(super) fn forget(&mut self, io: &Io) {
        self.in_flight.retain(|other| other != io);
    }

    /// Sends arbitrary bytes to a worker.
    ///
    /// # Errors
    ///
    /// The initiator does not receive them.
    pub(super) fn send_bytes(&mut self, worker: usize, bytes: &[u8]) -> Result<(), Violation> {
        self.channels[worker].send_bytes(bytes, self.timeout)
    }

    /// Selects these consumers of the initiator, the n-th for the n-th worker.
    ///
    /// # Errors
    ///
    /// The initiator does not have this consumer.
    pub(super) fn send_to(&mut self, consumers: &[u32]) -> Result<(), Violation> {
        let mut pairs = self.channels.iter_mut().zip(consumers);
        pairs.try_for_each(|(channel, consumer)| channel.send_to(*consumer))
    }

    /// Destroys consumers and producers, as services do before they answer stop_storage_request.
    ///
    /// # Errors
    ///
    /// The contexts do not stop.
    pub(super) fn close_channels(&mut self) -> Result<(), Violation> {
        self.channels.drain(..).try_for_each(IoChannel::stop)
    }
}

// Malformed results and error results. After such a result, the initiator must exit with a failure; how it ends the
// session is not checked.

pub(super) const RESULT_CHECKS: &[Check] = &[
    Check {
        name: "error-result-of-read",
        meaning: "a read that failed makes read_throughput_test fail (the reference does not check)",
        play: |fixture| failing(fixture, "read_throughput_test", IO_FAILED, Io::is_read),
    },
    Check {
        name: "error-result-of-write",
        meaning: "a write that failed makes write_throughput_test fail (the reference does not check)",
        play: |fixture| failing(fixture, "write_throughput_test", IO_FAILED, Io::is_write),
    },
    Check {
        name: "error-result-of-validated-read",
        meaning: "a read that failed makes read_write_data_validity_test fail, whatever its data (the reference does not check)",
        play: |fixture| {
            failing(
                fixture,
                "read_write_data_validity_test",
                IO_FAILED,
                Io::is_read,
            )
        },
    },
    Check {
        name: "error-result-of-validated-write",
        meaning: "a write that failed makes read_write_data_validity_test fail, whatever is read (the reference does not check)",
        play: |fixture| {
            failing(
                fixture,
                "read_write_data_validity_test",
                IO_FAILED,
                Io::is_write,
            )
        },
    },
    Check {
        name: "unknown-error-result",
        meaning: "a result with a code that no error has makes the initiator fail (the reference does not check)",
        play: |fixture| failing(fixture, "read_throughput_test", u32::MAX, Io::is_read),
    },
    Check {
        name: "result-without-request",
        meaning: "a result with user data that no request has makes the initiator fail",
        play: |fixture| beside_bytes(fixture, |io| io.result_of(u32::MAX).to_vec()),
    },
    Check {
        name: "result-of-the-next-transaction",
        meaning: "a result with user data just beyond those of the transactions makes the initiator fail",
        play: |fixture| beside_bytes(fixture, |io| io.result_of(4).to_vec()),
    },
    Check {
        name: "result-twice",
        meaning: "a second result of one request makes the initiator fail (the reference counts it for the next)",
        play: twice,
    },
    Check {
        name: "request-for-result",
        meaning: "a read where a result should be makes the initiator fail (the reference does not check)",
        play: |fixture| {
            beside(fixture, |result| Repr {
                message_type: IoMessageType::Read,
                ..result
            })
        },
    },
    Check {
        name: "result-of-unknown-type",
        meaning: "a message of an unknown type makes the initiator fail (the reference does not check)",
        play: |fixture| {
            beside_bytes(fixture, |io| {
                let mut bytes = io.bytes_of(io.request.answer(0)).to_vec();
                bytes[..4].copy_from_slice(&7_u32.to_be_bytes());
                bytes
            })
        },
    },
    Check {
        name: "result-of-another-size",
        meaning: "a result whose size is not that of its request makes the initiator fail (the reference does not check)",
        play: |fixture| {
            beside(fixture, |result| Repr {
                size: 512,
                ..result
            })
        },
    },
    Check {
        name: "result-of-another-place",
        meaning: "a result whose storage offset is not that of its request makes the initiator fail (the reference does not check)",
        play: |fixture| {
            beside(fixture, |result| Repr {
                storage_offset: result.storage_offset ^ u64::from(BLOCK),
                ..result
            })
        },
    },
    Check {
        name: "short-result",
        meaning: "a result of 63 bytes makes the initiator fail (the reference takes it)",
        play: |fixture| {
            beside_bytes(fixture, |io| {
                io.bytes_of(io.request.answer(0))[..63].to_vec()
            })
        },
    },
    Check {
        name: "missing-result",
        meaning: "one request without a result ends the run after --io-timeout, with a failure (the reference has no such flag, and waits forever)",
        play: |fixture| missing(fixture, |number| number == 5),
    },
    Check {
        name: "no-results",
        meaning: "requests without any result end the run after --io-timeout, with a failure (the reference has no such flag, and waits forever)",
        play: |fixture| missing(fixture, |_| true),
    },
    Check {
        name: "read-only-first-byte",
        meaning: "read_only_data_validity_test fails for a wrong first byte of a block",
        play: |fixture| corrupt(fixture, READ_ONLY, Corruption::FirstByte),
    },
    Check {
        name: "read-only-last-byte",
        meaning: "read_only_data_validity_test fails for a wrong last byte of a block",
        play: |fixture| corrupt(fixture, READ_ONLY, Corruption::LastByte),
    },
    Check {
        name: "read-only-not-moved",
        meaning: "read_only_data_validity_test fails for a read that moved nothing",
        play: |fixture| corrupt(fixture, READ_ONLY, Corruption::Nothing),
    },
    Check {
        name: "read-only-another-block",
        meaning: "read_only_data_validity_test fails for the content of another block",
        play: |fixture| corrupt(fixture, READ_ONLY, Corruption::AnotherBlock),
    },
    Check {
        name: "read-write-first-byte",
        meaning: "read_write_data_validity_test fails for a wrong first byte of a block",
        play: |fixture| corrupt(fixture, READ_WRITE, Corruption::FirstByte),
    },
    Check {
        name: "read-write-last-byte",
        meaning: "read_write_data_validity_test fails for a wrong last byte of a block",
        play: |fixture| corrupt(fixture, READ_WRITE, Corruption::LastByte),
    },
    Check {
        name: "read-write-not-moved",
        meaning: "read_write_data_validity_test fails for a read that moved nothing",
        play: |fixture| corrupt(fixture, READ_WRITE, Corruption::Nothing),
    },
    Check {
        name: "read-write-another-block",
        meaning: "read_write_data_validity_test fails for the content of another block (the reference's pattern is the same in all blocks)",
        play: |fixture| corrupt(fixture, READ_WRITE, Corruption::AnotherBlock),
    },
    Check {
        name: "write-ignored",
        meaning: "read_write_data_validity_test fails for a write that was answered and not done",
        play: write_ignored,
    },
];

/// `DOCA_ERROR_IO_FAILED`.
const IO_FAILED: u32 = 17;
const READ_ONLY: &str = "read_only_data_validity_test";
const READ_WRITE: &str = "read_write_data_validity_test";

/// Answers the first request for which `is` returns `true` with `result`, after executing it.
fn failing(
    fixture: &Fixture<'_>,
    strategy: &'static str,
    result: u32,
    is: fn(&Io) -> bool,
) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, Plan::new(strategy))?;
    let mut is_over = false;
    service.play_on(|data, io| {
        let is_it = is(&io) && !is_over;
        is_over |= is_it;
        data.transfer(&io)?;
        data.answer(&io, if is_it { result } else { 0 })
    });
    service.expect_failure()
}

/// Sends another message before the result of the last request: an initiator that accepts it as the result would
/// succeed.
fn beside_bytes(fixture: &Fixture<'_>, other: impl Fn(&Io) -> Vec<u8>) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, Plan::new("read_throughput_test"))?;
    service.play_on(|data, io| {
        data.transfer(&io)?;
        if data.received.len() == BLOCKS as usize {
            data.send_bytes(io.worker, &other(&io))?;
        }
        data.answer(&io, 0)
    });
    service.expect_failure()
}

/// Sends one result during the run twice.
fn twice(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, Plan::new("read_throughput_test"))?;
    service.play_on(|data, io| {
        data.serve(&io)?;
        if data.received.len() == BLOCKS as usize / 2 {
            data.answer(&io, 0)?;
        }
        Ok(())
    });
    service.expect_failure()
}

fn beside(fixture: &Fixture<'_>, other: impl Fn(Repr) -> Repr) -> Result<(), Violation> {
    beside_bytes(fixture, |io| {
        io.bytes_of(other(io.request.answer(0))).to_vec()
    })
}

/// Sends no results for the requests selected by `is`, by their numbers.
fn missing(fixture: &Fixture<'_>, is: impl Fn(usize) -> bool) -> Result<(), Violation> {
    let plan = Plan::new("read_throughput_test").flags(&["--io-timeout", "1"]);
    let mut service = Service::begin(fixture, plan)?;
    service.play_on(|data, io| {
        if is(data.received.len() - 1) {
            Ok(())
        } else {
            data.serve(&io)
        }
    });
    service.expect_failure()
}

/// Corruption of one read's data.
#[derive(Debug, Clone, Copy)]
enum Corruption {
    FirstByte,
    LastByte,
    /// The initiator's memory is left unchanged.
    Nothing,
    /// The contents of the next block.
    AnotherBlock,
}

/// Answers one read with success, but with wrong data: the first read or, for missing data, the first read of the
/// second round, when the memory contains the correct data from the first round.
fn corrupt(
    fixture: &Fixture<'_>,
    strategy: &'static str,
    corruption: Corruption,
) -> Result<(), Violation> {
    let bytes = content(BLOCKS * BLOCK, 0x33);
    let rounds = match corruption {
        Corruption::Nothing => 2,
        _ => 1,
    };
    let mut plan = Plan::new(strategy)
        .holding(bytes.clone())
        .operations(rounds * BLOCKS)
        .transactions(BLOCKS);
    if strategy == READ_ONLY {
        let file = fixture.sandbox().file("plain", &bytes)?;
        plan = plan.flags(&["--storage-plain-content", &file.to_string_lossy()]);
    }
    let mut service = Service::begin(fixture, plan)?;
    let mut reads = 0;
    service.play_on(|data, io| {
        if io.is_write() {
            return write_all_before_reads(data, &io);
        }
        reads += 1;
        if reads != (rounds - 1) * BLOCKS + 1 {
            return data.serve(&io);
        }
        let mut bytes = data.stored(&io, 0);
        match corruption {
            Corruption::FirstByte => bytes[0] ^= 1,
            Corruption::LastByte => bytes[BLOCK as usize - 1] ^= 0x80,
            Corruption::Nothing => return data.answer(&io, 0),
            Corruption::AnotherBlock => bytes = data.stored(&io, BLOCK),
        }
        data.give(&io, &bytes)?;
        data.answer(&io, 0)
    });
    service.expect_failure()
}

/// Answers the writes once all blocks are written.
fn write_all_before_reads(data: &mut DataPath, io: &Io) -> Result<(), Violation> {
    data.transfer(io)?;
    let written = data.in_flight().to_vec();
    if written.len() < BLOCKS as usize {
        return Ok(());
    }
    written.iter().try_for_each(|io| data.answer(io, 0))
}

fn write_ignored(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, Plan::new(READ_WRITE))?;
    let mut is_over = false;
    service.play_on(|data, io| {
        if io.is_write() && !is_over {
            is_over = true;
            return data.answer(&io, 0);
        }
        data.serve(&io)
    });
    service.expect_failure()
}
