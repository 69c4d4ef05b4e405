//! Clients of the front end, whose I/Os the oracle verifies: one at a time, or several as a load.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::oracle::Oracle;
use crate::nbd::{Command, Connection, Request, is_timeout};
use crate::processes::{TICK, all_joined};
use crate::violation::Violation;

/// Size of the parts of blocks that are written: the sector of disks.
const SECTOR: usize = 512;

/// The oracle of a storage, and the socket of its front end.
#[derive(Debug, Clone)]
pub(super) struct Storage {
    pub(super) socket: PathBuf,
    /// Number of the front end, if there are several.
    front_end: usize,
    oracle: Arc<Mutex<Oracle>>,
    /// The first wrong content.
    wrong: Arc<Mutex<Option<Violation>>>,
    /// Time for an answer.
    limit: Duration,
    failures: Arc<Failures>,
}

/// Failures that clients have encountered under load, whether expected by the attack or not.
#[derive(Debug, Default)]
struct Failures {
    errors: AtomicU64,
    closed: AtomicU64,
}

/// Result of an I/O.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Done,
    /// The front end has answered with this error number.
    Failed(u32),
    /// The connection has ended.
    Lost,
}

impl Storage {
    pub(super) fn new(socket: PathBuf, oracle: Oracle, limit: Duration) -> Self {
        let oracle = Arc::new(Mutex::new(oracle));
        Self {
            socket,
            front_end: 0,
            oracle,
            wrong: Arc::default(),
            failures: Arc::default(),
            limit,
        }
    }

    /// The same storage, with the same oracle, at the socket of another front end.
    pub(super) fn at(&self, socket: PathBuf) -> Self {
        Self {
            socket,
            front_end: self.front_end + 1,
            ..self.clone()
        }
    }

    /// The first wrong content that a client has read.
    pub(super) fn wrong(&self) -> Option<Violation> {
        let wrong = self.wrong.lock();
        wrong.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn check(&self, result: Result<(), Violation>) -> Result<(), Violation> {
        if let Err(violation) = &result {
            let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
            wrong.get_or_insert_with(|| violation.clone());
        }
        result
    }

    /// Number of I/Os that failed, and of connections that ended, under load.
    pub(super) fn failures(&self) -> (u64, u64) {
        let Failures { errors, closed } = &*self.failures;
        (
            errors.load(Ordering::Relaxed),
            closed.load(Ordering::Relaxed),
        )
    }

    /// Number of the front end, if there are several.
    pub(super) fn front_end(&self) -> usize {
        self.front_end
    }

    pub(super) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects once. The outer error is a violation.
    fn connect_once(&self) -> Result<io::Result<Client>, Violation> {
        let connection = match Connection::open(&self.socket, self.limit) {
            Ok(connection) => connection,
            Err(error) => return Ok(Err(error)),
        };
        let size = self.oracle().size();
        Violation::unless(
            connection.size == size,
            format!("an export of {size} bytes"),
            connection.size,
        )?;
        Ok(Ok(Client {
            storage: self.clone(),
            connection,
            cookie: 0,
        }))
    }

    /// Connects, with retries.
    pub(super) fn connect(&self) -> Result<Client, Violation> {
        let client = self.connect_within(self.limit)?;
        client.ok_or_else(|| {
            Violation::expected(format!("a front end within {:?}", self.limit), "none")
        })
    }

    /// Connects, with retries; `None` if no front end accepts in time.
    pub(super) fn connect_within(&self, limit: Duration) -> Result<Option<Client>, Violation> {
        let deadline = Instant::now() + limit;
        loop {
            match self.connect_once()? {
                Ok(client) => return Ok(Some(client)),
                Err(_) if Instant::now() > deadline => return Ok(None),
                Err(_) => std::thread::sleep(TICK),
            }
        }
    }

    /// Random content for a range of bytes, similar to that of clients: new, compressible, zeros, unchanged, or half
    /// unchanged.
    pub(super) fn content(&self, rng: &mut Rng, offset: u64, length: usize) -> Vec<u8> {
        let oracle = self.oracle();
        let size = oracle.block_size();
        let mut old = vec![0; length];
        for (at, sector) in (0..).step_by(SECTOR).zip(old.chunks_mut(SECTOR)) {
            let position = offset + at;
            let (block, within) = (position / size as u64, (position % size as u64) as usize);
            let content = oracle.content(block, rng.usize(..4));
            sector.copy_from_slice(&content[within..within + sector.len()]);
        }
        contents::overwrite(rng, &old, (offset % size as u64) as usize, size)
    }
}

/// One connection, with one I/O at a time.
pub(super) struct Client {
    storage: Storage,
    connection: Connection,
    cookie: u64,
}

impl Client {
    fn exchange(
        &mut self,
        command: Command,
        (offset, length): (u64, usize),
        fua: bool,
        payload: &[u8],
        into: &mut [u8],
    ) -> Result<Reply, Violation> {
        self.cookie += 1;
        let request = Request {
            command,
            fua,
            cookie: self.cookie,
            offset,
            length: u32::try_from(length).unwrap_or(u32::MAX),
        };
        let mut exchange = || -> io::Result<u32> {
            self.connection.send(request, payload)?;
            let (cookie, error) = self.connection.reply()?;
            if cookie != request.cookie {
                let what = "expected a reply to the only request in flight";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            if error == 0 && !into.is_empty() {
                self.connection.payload(into)?;
            }
            Ok(error)
        };
        match exchange() {
            Ok(0) => Ok(Reply::Done),
            Ok(error) => Ok(Reply::Failed(error)),
            Err(error) if is_timeout(&error) => Err(Violation::expected(
                format!("a reply within {:?}", self.storage.limit),
                format!("none to {request:?}"),
            )),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error.into()),
            Err(_) => Ok(Reply::Lost),
        }
    }

    /// Reads, and verifies the content.
    pub(super) fn read(&mut self, offset: u64, length: usize) -> Result<Reply, Violation> {
        let front_end = self.storage.front_end;
        let id = self.storage.oracle().begin_read(front_end, offset, length);
        let mut data = vec![0; length];
        let reply = self.exchange(Command::Read, (offset, length), false, &[], &mut data);
        match reply {
            Ok(Reply::Done) => {
                let result = self.storage.oracle().read(id, offset, &data);
                self.storage.check(result)?;
            }
            _ => self.storage.oracle().read_failed(id),
        }
        reply
    }

    /// Writes. `None` if the oracle could not determine the outcome.
    pub(super) fn try_write(
        &mut self,
        offset: u64,
        data: &[u8],
        fua: bool,
    ) -> Result<Option<Reply>, Violation> {
        let front_end = self.storage.front_end;
        let mut oracle = self.storage.oracle();
        let begun = oracle.begin_write(front_end, offset, data, fua);
        drop(oracle);
        let Some(id) = begun else {
            return Ok(None);
        };
        let reply = self.exchange(Command::Write, (offset, data.len()), fua, data, &mut []);
        let mut oracle = self.storage.oracle();
        if let Ok(Reply::Done) = reply {
            let result = oracle.written(id, offset, data, fua);
            drop(oracle);
            self.storage.check(result)?;
        } else {
            oracle.write_failed(id);
        }
        reply.map(Some)
    }

    /// Writes while no other write is in flight.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<Reply, Violation> {
        let reply = self.try_write(offset, data, false)?;
        reply.ok_or_else(|| Violation::new("the attack writes a part of a block in doubt"))
    }

    pub(super) fn flush(&mut self) -> Result<Reply, Violation> {
        let front_end = self.storage.front_end;
        let id = self.storage.oracle().begin_flush(front_end);
        let reply = self.exchange(Command::Flush, (0, 0), false, &[], &mut []);
        let mut oracle = self.storage.oracle();
        if let Ok(Reply::Done) = reply {
            let result = oracle.flushed(id);
            drop(oracle);
            self.storage.check(result)?;
        } else {
            oracle.flush_failed(id);
        }
        reply
    }

    pub(super) fn can_flush(&self) -> bool {
        self.connection.can_flush
    }
}

/// I/Os of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mix {
    pub(super) clients: u64,
    /// Percentage of writes among the I/Os; all others are reads.
    pub(super) writes: u8,
    /// `true` for flushes and writes with FUA in addition.
    pub(super) flushes: bool,
    /// Probability in percent that a write covers parts of blocks.
    pub(super) parts: u8,
}

impl Mix {
    pub(super) const USUAL: Self = Self {
        clients: 3,
        writes: 60,
        flushes: true,
        parts: 50,
    };
    /// As [`Self::USUAL`], for power failures, after which the surviving content must be known.
    pub(super) const UNFLUSHED: Self = Self {
        flushes: false,
        ..Self::USUAL
    };
}

/// State shared by the clients of a load.
struct Shared {
    storage: Storage,
    mix: Mix,
    /// Held by each client while an I/O is in flight.
    gate: RwLock<()>,
    stops: AtomicBool,
    done: AtomicU64,
    failed: Mutex<Vec<String>>,
}

/// Clients that read and write at random until they are stopped, and reconnect.
pub(super) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<(), Violation>>>,
}

impl Load {
    pub(super) fn start(storage: &Storage, mix: Mix, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            storage: storage.clone(),
            mix,
            gate: RwLock::new(()),
            stops: AtomicBool::new(false),
            done: AtomicU64::new(0),
            failed: Mutex::default(),
        });
        let threads = (0..mix.clients).map(|index| {
            let shared = Arc::clone(&shared);
            let rng = Rng::with_seed(seed ^ (index + 1) << 40);
            std::thread::spawn(move || shared.run(rng))
        });
        let threads = threads.collect();
        Self { shared, threads }
    }

    /// Number of completed I/Os.
    pub(super) fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Acquire)
    }

    /// Errors of I/Os so far.
    pub(super) fn errors(&self) -> Vec<String> {
        let failed = self.shared.failed.lock();
        failed.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fails if an I/O has failed.
    pub(super) fn expect_no_error(&self, when: &str) -> Result<(), Violation> {
        let errors = self.errors();
        Violation::unless(
            errors.is_empty(),
            format!("no I/O error {when}"),
            format!(
                "{} errors: {}",
                errors.len(),
                errors.first().map_or("", |it| it)
            ),
        )
    }

    /// Waits until this number of further I/Os have completed.
    pub(super) fn wait_for(&self, more: u64, when: &str) -> Result<(), Violation> {
        let until = self.done() + more;
        let deadline = Instant::now() + self.shared.storage.limit;
        while self.done() < until {
            if self.threads.iter().any(JoinHandle::is_finished) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Violation::expected(
                    format!("I/Os to complete {when}"),
                    format!(
                        "{} of {until} within {:?}",
                        self.done(),
                        self.shared.storage.limit
                    ),
                ));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Calls `act` while no I/O is in flight.
    pub(super) fn while_idle<T>(&self, act: impl FnOnce() -> T) -> T {
        let _gate = self
            .shared
            .gate
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        act()
    }

    /// Stops the clients after their I/Os in flight, and returns the first violation.
    pub(super) fn stop(mut self) -> Result<(), Violation> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Violation> {
        self.shared.stops.store(true, Ordering::Release);
        all_joined(self.threads.drain(..))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
    }
}

impl Shared {
    fn run(&self, mut rng: Rng) -> Result<(), Violation> {
        let mut client = None;
        while !self.stops.load(Ordering::Acquire) {
            let Some(connected) = &mut client else {
                client = self.storage.connect_once()?.ok();
                if client.is_none() {
                    std::thread::sleep(TICK);
                }
                continue;
            };
            let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
            let (what, reply) = self.step(connected, &mut rng)?;
            drop(gate);
            match reply {
                Some(Reply::Done) => {
                    self.done.fetch_add(1, Ordering::Release);
                }
                Some(Reply::Failed(error)) => {
                    self.storage.failures.errors.fetch_add(1, Ordering::Relaxed);
                    let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.push(format!("{what}: error {error}"));
                    drop(failed);
                    std::thread::sleep(TICK);
                }
                Some(Reply::Lost) => {
                    self.storage.failures.closed.fetch_add(1, Ordering::Relaxed);
                    client = None;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn step(
        &self,
        client: &mut Client,
        rng: &mut Rng,
    ) -> Result<(String, Option<Reply>), Violation> {
        let (size, total) = {
            let oracle = self.storage.oracle();
            (oracle.block_size(), oracle.size())
        };
        let blocks = total / size as u64;
        let can_flush = self.mix.flushes && client.can_flush();
        if can_flush && rng.u8(..100) < 6 {
            return Ok(("flush".to_owned(), Some(client.flush()?)));
        }
        let is_write = rng.u8(..100) < self.mix.writes;
        let (offset, length) = if rng.u8(..100) < self.mix.parts {
            let sectors = total / SECTOR as u64;
            let count = rng.u64(1..=10).min(sectors);
            let first = rng.u64(..=sectors - count);
            (first * SECTOR as u64, count as usize * SECTOR)
        } else {
            let count = rng.u64(1..=3).min(blocks);
            let first = rng.u64(..=blocks - count);
            (first * size as u64, count as usize * size)
        };
        if !is_write {
            let reply = client.read(offset, length)?;
            return Ok((format!("read of {length} bytes at {offset}"), Some(reply)));
        }
        let data = self.storage.content(rng, offset, length);
        let fua = can_flush && rng.u8(..100) < 6;
        let reply = client.try_write(offset, &data, fua)?;
        Ok((format!("write of {length} bytes at {offset}"), reply))
    }
}
