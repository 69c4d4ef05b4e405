//! The load through a front end: clients of the NBD server, which reconnect and resend unanswered requests.
//!
//! Sessions are not visible to a client of a block device: the front end waits for a service that is offline, and a
//! client waits for a front end that is offline. So no I/O may fail, and an acknowledged write must be stored,
//! regardless of restarts in between. Requests that were in flight when a front end was killed are resent with the same
//! contents, which must not overwrite later writes.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deployment::process::Signal;
use deployment::{Deployment, Part};
use fastrand::Rng;

use super::plan::{Fault, FaultyRole, Phase, Plan, Round};
use super::verifier::{Counts, Entry, Ledger, Pattern, Reading, Version};
use super::{Hammer, ResourceWatch, Totals};
use crate::nbd::{Command, Connection, Request, is_timeout};
use crate::processes::{self, BLOCK_SIZE as BLOCK, FrontEndTimeouts, TICK, all_joined};
use crate::violation::{During as _, Violation};

/// Number of requests in flight per client.
const DEPTH: usize = 12;
/// Maximum number of blocks of a request.
const MOST_BLOCKS: u64 = 4;
/// Number of clients, each with one connection.
const CLIENTS: u64 = 2;

#[derive(Debug, Clone)]
struct Pending {
    command: Command,
    fua: bool,
    first: u64,
    count: u64,
    /// Versions of the blocks of a write.
    versions: Vec<u64>,
    since: Instant,
}

impl Pending {
    fn request(&self, cookie: u64) -> Request {
        Request {
            command: self.command,
            fua: self.fua,
            cookie,
            offset: self.first * BLOCK as u64,
            length: self.count as u32 * BLOCK as u32,
        }
    }
}

/// State shared by the clients and the run.
struct Shared {
    socket: PathBuf,
    blocks: u64,
    pattern: Pattern,
    limit: Duration,
    ledger: Mutex<Ledger>,
    next_version: AtomicU64,
    stops: AtomicBool,
    /// Number of completed requests, by client.
    completed: Vec<AtomicU64>,
    reconnects: AtomicU64,
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, entry: &Entry) -> Result<(), Violation> {
        let entered = self.ledger().enter(entry);
        entered.map_err(|violation| {
            let history = violation.history.join("\n  ");
            Violation::new(format!("{violation}; its history:\n  {history}"))
        })
    }
}

/// A client: a thread with one connection at a time.
struct Client {
    shared: Arc<Shared>,
    index: u64,
    rng: Rng,
    next_cookie: u64,
    pending: BTreeMap<u64, Pending>,
    can_flush: bool,
    buffer: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Write each of its blocks once.
    Fill,
    /// Read and write at random until stopped.
    Random,
    /// Read each of its blocks once.
    ReadBack,
}

impl Client {
    fn new(shared: &Arc<Shared>, index: u64, seed: u64) -> Self {
        Self {
            shared: Arc::clone(shared),
            index,
            rng: Rng::with_seed(seed ^ index << 32),
            next_cookie: 0,
            pending: BTreeMap::new(),
            can_flush: false,
            buffer: vec![0; MOST_BLOCKS as usize * BLOCK],
        }
    }

    fn run(mut self, work: Work) -> Result<(), Violation> {
        let mut connection: Option<Connection> = None;
        let own = (0..self.shared.blocks).filter(|block| block % CLIENTS == self.index);
        let mut own: Vec<u64> = own.collect();
        loop {
            let is_over = match work {
                Work::Random => self.shared.stops.load(Ordering::Acquire),
                Work::Fill | Work::ReadBack => own.is_empty(),
            };
            if is_over && self.pending.is_empty() {
                return Ok(());
            }
            let mut it = match connection.take() {
                Some(connection) => connection,
                None => self.connect()?,
            };
            let mut sent = Ok(());
            while sent.is_ok() && self.pending.len() < DEPTH {
                let request = match work {
                    Work::Random if is_over => None,
                    Work::Random => self.random(),
                    Work::Fill => own.pop().map(|block| (Command::Write, block, 1)),
                    Work::ReadBack => own.pop().map(|block| (Command::Read, block, 1)),
                };
                let Some((command, first, count)) = request else {
                    break;
                };
                let cookie = self.begin(command, first, count)?;
                sent = self.send(&mut it, cookie);
            }
            if sent.is_ok() && self.pending.is_empty() {
                connection = Some(it);
                continue;
            }
            // A lost connection is replaced, and its requests are resent.
            if sent.is_ok() && self.take_reply(&mut it)? {
                connection = Some(it);
            } else {
                self.shared.reconnects.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Connects to the front end, with retries, and resends unanswered requests.
    fn connect(&mut self) -> Result<Connection, Violation> {
        let deadline = Instant::now() + self.shared.limit;
        loop {
            let opened = Connection::open(&self.shared.socket, self.shared.limit);
            match opened {
                Ok(mut connection) => {
                    let expected = self.shared.blocks * BLOCK as u64;
                    Violation::unless(
                        connection.size == expected,
                        format!("an export of {expected} bytes"),
                        connection.size,
                    )?;
                    self.can_flush = connection.can_flush;
                    let cookies: Vec<u64> = self.pending.keys().copied().collect();
                    let sent =
                        (cookies.into_iter()).try_for_each(|it| self.send(&mut connection, it));
                    if sent.is_ok() {
                        return Ok(connection);
                    }
                }
                Err(error) if Instant::now() > deadline => {
                    return Err(Violation::expected(
                        format!("a front end within {:?}", self.shared.limit),
                        error,
                    ));
                }
                Err(_) => {}
            }
            std::thread::sleep(TICK);
        }
    }

    /// Chooses a random request for blocks to which this client has no write in flight. Each block is written by only
    /// one client.
    fn random(&mut self) -> Option<(Command, u64, u64)> {
        let count = self.rng.u64(1..=MOST_BLOCKS).min(self.shared.blocks);
        let first = self.rng.u64(..=self.shared.blocks - count);
        match self.rng.u8(..16) {
            0 if self.can_flush => Some((Command::Flush, 0, 0)),
            0..8 => Some((Command::Read, first, count)),
            _ => {
                let block = first / CLIENTS * CLIENTS + self.index;
                let is_busy = self
                    .pending
                    .values()
                    .any(|it| it.command == Command::Write && it.first == block);
                (block < self.shared.blocks && !is_busy).then_some((Command::Write, block, 1))
            }
        }
    }

    /// Records a request before it is sent.
    fn begin(&mut self, command: Command, first: u64, count: u64) -> Result<u64, Violation> {
        self.next_cookie += 1;
        let cookie = self.index << 56 | self.next_cookie;
        let mut versions = Vec::new();
        for block in first..first + count {
            match command {
                Command::Read => {
                    let reading = Reading { block, io: cookie };
                    self.shared.enter(&Entry::Read(reading))?;
                }
                Command::Write => {
                    let version = self.shared.next_version.fetch_add(1, Ordering::Relaxed);
                    self.shared
                        .enter(&Entry::Write(Version { block, version }))?;
                    versions.push(version);
                }
                Command::Flush => {}
            }
        }
        let pending = Pending {
            command,
            fua: command == Command::Write && self.can_flush && self.rng.u8(..8) == 0,
            first,
            count,
            versions,
            since: Instant::now(),
        };
        self.pending.insert(cookie, pending);
        Ok(cookie)
    }

    fn send(&mut self, connection: &mut Connection, cookie: u64) -> io::Result<()> {
        let pending = &self.pending[&cookie];
        let blocks = pending.first..;
        for (index, (block, version)) in blocks.zip(&pending.versions).enumerate() {
            let into = &mut self.buffer[index * BLOCK..(index + 1) * BLOCK];
            self.shared.pattern.fill(block, *version, into);
        }
        let data = &self.buffer[..pending.versions.len() * BLOCK];
        connection.send(pending.request(cookie), data)
    }

    /// Receives and checks a reply. Returns `false` if the connection is lost.
    fn take_reply(&mut self, connection: &mut Connection) -> Result<bool, Violation> {
        let (cookie, error) = match connection.reply() {
            Ok(reply) => reply,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error.into()),
            Err(error) if is_timeout(&error) => {
                let oldest = self.pending.values().min_by_key(|pending| pending.since);
                return Err(Violation::expected(
                    format!("a reply within {:?}", self.shared.limit),
                    format!("none; the oldest request is {oldest:?}"),
                ));
            }
            Err(_) => return Ok(false),
        };
        let Some(pending) = self.pending.get(&cookie) else {
            let what = format!("a reply to {cookie:#x}, which is not in flight");
            return Err(Violation::new(what));
        };
        if error != 0 {
            return Err(Violation::expected(
                "no I/O to fail",
                format!("error {error} for {pending:?}"),
            ));
        }
        let length = match pending.command {
            Command::Read => pending.count as usize * BLOCK,
            Command::Write | Command::Flush => 0,
        };
        if connection.payload(&mut self.buffer[..length]).is_err() {
            return Ok(false);
        }
        let Some(pending) = self.pending.remove(&cookie) else {
            return Ok(true);
        };
        for index in 0..pending.count {
            let block = pending.first + index;
            match pending.command {
                Command::Read => {
                    let at = index as usize * BLOCK;
                    let bytes = &self.buffer[at..at + BLOCK];
                    let content = self.shared.pattern.look(block, bytes);
                    let reading = Reading { block, io: cookie };
                    self.shared.enter(&Entry::Found { reading, content })?;
                }
                Command::Write => {
                    let version = pending.versions[index as usize];
                    self.shared
                        .enter(&Entry::Written(Version { block, version }))?;
                }
                Command::Flush => {}
            }
        }
        self.shared.completed[self.index as usize].fetch_add(1, Ordering::Release);
        Ok(true)
    }
}

/// Clients of a front end, and the verifier of their reads.
struct Clients {
    shared: Arc<Shared>,
    seed: u64,
    threads: Vec<JoinHandle<Result<(), Violation>>>,
}

impl Clients {
    /// Creates the clients without starting them.
    fn new(socket: PathBuf, blocks: u64, seed: u64, limit: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                socket,
                blocks,
                pattern: Pattern { seed },
                limit,
                ledger: Mutex::new(Ledger::new(blocks)),
                next_version: AtomicU64::new(1),
                stops: AtomicBool::new(false),
                completed: (0..CLIENTS).map(|_| AtomicU64::new(0)).collect(),
                reconnects: AtomicU64::new(0),
            }),
            seed,
            threads: Vec::new(),
        }
    }

    /// Counts of the I/Os so far.
    fn counts(&self) -> Counts {
        self.shared.ledger().counts()
    }

    fn reconnects(&self) -> u64 {
        self.shared.reconnects.load(Ordering::Relaxed)
    }

    fn spawn(&mut self, work: Work) {
        self.threads = (0..CLIENTS)
            .map(|index| {
                let seed = self.seed.wrapping_add(self.counts().acknowledged);
                let mut client = Client::new(&self.shared, index, seed);
                // Cookies of earlier clients are not reused.
                client.next_cookie = self.shared.next_version.load(Ordering::Relaxed) << 20;
                std::thread::spawn(move || client.run(work))
            })
            .collect();
    }

    fn join(&mut self) -> Result<(), Violation> {
        all_joined(self.threads.drain(..))
    }

    /// Checks that all blocks of a new storage read as zeros.
    fn expect_zeros(&self) -> Result<(), Violation> {
        let mut connection = Connection::open(&self.shared.socket, self.shared.limit)?;
        let mut bytes = vec![0; BLOCK];
        for first in 0..connection.size / BLOCK as u64 {
            let request = Pending {
                command: Command::Read,
                fua: false,
                first,
                count: 1,
                versions: Vec::new(),
                since: Instant::now(),
            };
            connection.send(request.request(first), &[])?;
            let (_, error) = connection.reply()?;
            Violation::unless(
                error == 0,
                format!("block {first}, never written, to be read"),
                format!("error {error}"),
            )?;
            connection.payload(&mut bytes)?;
            Violation::unless(
                bytes.iter().all(|&byte| byte == 0),
                format!("zeros in block {first}, never written"),
                "other bytes",
            )?;
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<(), Violation> {
        self.spawn(Work::Fill);
        self.join().during("first writes")
    }

    /// Starts random reads and writes.
    fn start(&mut self) {
        self.shared.stops.store(false, Ordering::Release);
        self.spawn(Work::Random);
    }

    /// Waits until every client has completed requests sent after this call.
    fn expect_progress(&mut self) -> Result<(), Violation> {
        let of = |it: &AtomicU64| it.load(Ordering::Acquire);
        let before: Vec<u64> = self.shared.completed.iter().map(of).collect();
        let deadline = Instant::now() + self.shared.limit;
        loop {
            if self.threads.iter().any(JoinHandle::is_finished) {
                self.shared.stops.store(true, Ordering::Release);
                self.join()?;
                return Err(Violation::new("a client has ended before it was stopped"));
            }
            let now = self.shared.completed.iter().map(of);
            if std::iter::zip(now, &before).all(|(now, before)| now > before + 2 * DEPTH as u64) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Violation::expected("I/Os to complete", "nothing in time"));
            }
            std::thread::sleep(TICK);
        }
    }

    /// Completes requests in flight, and reads all blocks.
    fn finish(&mut self) -> Result<(), Violation> {
        self.shared.stops.store(true, Ordering::Release);
        self.join()?;
        self.spawn(Work::ReadBack);
        self.join().during("read-back")
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // After a violation, the other clients stop and close their connections.
        self.shared.stops.store(true, Ordering::Release);
    }
}

// A run: the front end, its clients, and a fault in each round.

/// I/Os wait for an offline service for longer than every injected fault.
const TIMEOUTS: FrontEndTimeouts = FrontEndTimeouts {
    control: "60",
    reconnect: "300",
};

/// A deployment with a front end, and its clients.
struct Run<'a> {
    deployment: &'a mut Deployment,
    clients: Clients,
}

/// Injects the faults of a plan while clients are running. All counts are those of the clients, for which sessions are
/// invisible.
pub(super) fn play(
    hammer: &Hammer,
    deployment: &mut Deployment,
    plan: Plan,
    totals: &mut Totals,
    going_on: &dyn Fn(u64) -> bool,
    progress: &mut dyn FnMut(&str, &Totals),
) -> Result<(), Violation> {
    let settings = &hammer.settings;
    let layout = deployment.layout();
    let socket = deployment.sandbox.path("nbd.socket");
    let mut command = (hammer.actors.front_end)();
    let cpu = processes::cpu(&settings.cpus, 0);
    processes::complete_front_end(&mut command, &cpu, TIMEOUTS, &socket);
    deployment.set_command(Part::FrontEnd, command);
    let mut run = Run {
        clients: Clients::new(socket, settings.blocks, settings.seed, settings.limit),
        deployment,
    };
    let before = totals.blocks;
    progress("the first reads and writes", totals);
    run.deployment.start_all()?;
    run.clients.expect_zeros().during("an unused storage")?;
    run.clients.fill()?;
    run.clients.start();
    run.clients.expect_progress()?;
    let mut watch = ResourceWatch::default();
    // At least one round, because a run without a fault would verify nothing.
    for round in plan {
        if !going_on(round.number) {
            break;
        }
        progress(&round.to_string(), totals);
        if let Some(row) = totals.row(layout, round.injection) {
            row.injected += 1;
        }
        let (counts, reconnects) = (run.clients.counts(), run.clients.reconnects());
        run.round(&round)?;
        totals.blocks = before + run.clients.counts();
        if let Some(row) = totals.row(layout, round.injection) {
            let now = run.clients.counts();
            row.survived += 1;
            row.went_on += u64::from(run.clients.reconnects() == reconnects);
            row.blocks.acknowledged += now.acknowledged - counts.acknowledged;
            row.blocks.read_back += now.read_back - counts.read_back;
        }
        watch.look(run.deployment)?;
    }
    progress("the end", totals);
    run.clients.finish()?;
    totals.blocks = before + run.clients.counts();
    run.stop(Part::FrontEnd, Signal::TERM)
}

impl Run<'_> {
    /// Stops a part, if it is running. The front end must exit with success unless it is killed.
    fn stop(&mut self, part: Part, signal: Signal) -> Result<(), Violation> {
        if self.deployment.process(part).is_none() {
            return Ok(());
        }
        let exit = self.deployment.end(part, signal)?;
        let may_fail = part != Part::FrontEnd || signal == Signal::KILL;
        Violation::unless(
            exit.succeeded() || may_fail,
            "a clean end of the front end",
            "an error",
        )
    }

    fn round(&mut self, round: &Round) -> Result<(), Violation> {
        self.deployment.wait_until_complete()?;
        if matches!(round.injection.phase, Phase::Degraded | Phase::Rebuilding) {
            let lost = round.lost_before;
            self.deployment.kill(&[Part::Target(lost)])?;
            self.deployment.wait_until_offline(lost)?;
            self.clients.expect_progress().during("degraded")?;
            if round.injection.phase == Phase::Rebuilding {
                self.deployment.start(Part::Target(lost))?;
                self.deployment.wait_until_online(lost)?;
            }
        }
        std::thread::sleep(round.delay);
        self.strike(round)?;
        std::thread::sleep(round.linger);
        // Targets are started first: a starting service waits briefly for all of them, and then continues without an
        // offline one.
        if round.injection.faulty == FaultyRole::Service {
            self.deployment.start(Part::Service)?;
        }
        self.deployment.start(Part::FrontEnd)?;
        self.clients.expect_progress().during("after the fault")?;
        self.deployment.start_all()?;
        self.deployment.wait_until_complete()?;
        self.clients
            .expect_progress()
            .during("when all targets are online")?;
        Ok(self.deployment.expect_servers_to_run()?)
    }

    fn strike(&mut self, round: &Round) -> Result<(), Violation> {
        let Some(part) = round.injection.faulty.part(round.target) else {
            return Ok(());
        };
        match round.injection.fault {
            Fault::Kill => self.stop(part, Signal::KILL),
            Fault::Terminate => self.stop(part, Signal::TERM),
            Fault::Delay => {
                self.deployment.signal(part, Signal::STOP);
                std::thread::sleep(round.pause);
                self.deployment.signal(part, Signal::CONT);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
