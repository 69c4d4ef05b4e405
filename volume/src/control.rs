//! The control thread of a volume: runs consecutive sessions with the service, and provides the queues with contexts in
//! each.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use bytes::Bytes;
use control::Failure;
use control::shutdown::Shutdown;
use control::verifier::Verifier;
use control::{ComchClientChannel, Waiter};
use doca::{Access, Device, ErrorCode, MemoryRegion, Mmap};
use wire::control::{FEATURE_FLUSH, FEATURE_VERIFIER, InitStorage, StorageDetails};

use crate::buffer::Pool;
use crate::endpoint::Endpoint;
use crate::engine::{Engine, Geometry, IoError};
use crate::failover::{Failover, Outcome};
use crate::link::{Command, Link, Progress, Requester, Shared};
use crate::queue::{Parts, Queue};
use crate::session::{Action, BATCH_SIZE, Driver, Event, SessionConfig, SessionError};
use crate::{CloseError, Config, OpenError};

/// Polling interval of contexts that are starting.
const CREATION_POLL: Duration = Duration::from_millis(1);

/// Maximum number of blocks in a request: the limit of the gga_offload service.
const REQUEST_BLOCKS: u32 = 255;
/// Maximum size of a request in bytes, unless a block is larger.
const REQUEST_SIZE: u32 = 1 << 20;

/// Parameters of a volume's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Storage {
    pub(crate) size: u64,
    pub(crate) block_size: u32,
    pub(crate) flush: bool,
}

/// State of a volume whose first session is running.
pub(crate) struct Opened {
    pub(crate) storage: Storage,
    pub(crate) queues: Vec<Queue>,
}

/// Memory of a volume: of one session, and of the attempts before it.
struct Memory {
    storage: Storage,
    region: Arc<MemoryRegion>,
    layout: Layout,
}

impl Memory {
    /// Buffers of the queue with this index.
    fn pool(&self, config: &Config, index: u64) -> Result<Arc<Pool>, Failure> {
        let start = (index * self.layout.queue_size) as usize;
        let (region, count) = (Arc::clone(&self.region), config.buffers as usize);
        Pool::new(region, start, self.layout.buffer_size, count).ok_or_else(|| {
            Failure::new(
                ErrorCode::NO_MEMORY,
                "the buffers exceed the volume's memory",
            )
        })
    }
}

/// Access of the service and its targets to the memory.
fn peer_access() -> Access {
    Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE | Access::RDMA_READ | Access::RDMA_WRITE
}

/// Layout of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    request_size: u32,
    /// Size of a buffer in bytes.
    buffer_size: u32,
    /// Size of a queue's buffers and edges in bytes.
    queue_size: u64,
    /// Size of a queue's buffers in bytes.
    buffers_size: u64,
    zeros: u64,
    size: usize,
}

/// Alignment of each part in bytes: a page, because memory is shared in pages.
const ALIGNMENT: u64 = 4096;

impl Layout {
    fn new(config: &Config, block_size: u32) -> Option<Self> {
        let blocks = (REQUEST_SIZE / block_size).clamp(1, REQUEST_BLOCKS);
        let request_size = blocks.checked_mul(block_size)?;
        let buffer_size = config.largest_transfer.next_multiple_of(ALIGNMENT as u32);
        let buffers_size = u64::from(buffer_size) * u64::from(config.buffers);
        let edges = (u64::from(config.depth) * 2 * u64::from(block_size))
            .checked_next_multiple_of(ALIGNMENT)?;
        let queue_size = buffers_size + edges;
        let zeros = queue_size.checked_mul(config.queues.into())?;
        let size = zeros
            .checked_add(request_size.into())?
            .checked_next_multiple_of(ALIGNMENT)?;
        Some(Self {
            request_size,
            buffer_size,
            queue_size,
            buffers_size,
            zeros,
            size: usize::try_from(size).ok()?,
        })
    }
}

/// The control thread.
pub(crate) struct Control {
    pub(crate) config: Config,
    /// Device of the only service; `None` with several, whose devices are opened for each attempt, because a failed one
    /// may be missing.
    device: Option<Device>,
    failover: Failover,
    /// Error of the last attempt with each service, since the last session.
    errors: Vec<Option<SessionError>>,
    shared: Arc<Shared>,
    waiter: Waiter,
    /// Receiver of the result of opening, until it was sent.
    opened: Option<SyncSender<Result<Opened, OpenError>>>,
    memory: Option<Memory>,
    /// `true` if an earlier session may still write to the memory.
    is_memory_used: bool,
    /// Channels of earlier sessions, with the number of their contexts that queues have not returned.
    remains: Vec<Remains>,
    sessions: u64,
    /// Start of the outage; `None` during a session.
    lost: Option<Instant>,
    /// `true` if the I/Os of this outage have failed.
    has_failed: bool,
    /// The reason if the last attempt failed because the storage has changed.
    has_changed: Option<IoError>,
    /// Verifier of the storage in the last session, if it has one.
    verifier: Option<Verifier>,
    /// Number of the storage's incarnation: incremented when it has lost unflushed writes.
    incarnation: u32,
}

/// Channel of a session that has ended, kept until all queues have returned their contexts.
struct Remains {
    session: u64,
    contexts: usize,
    _channel: ComchClientChannel,
}

/// A session, or an attempt to start one.
struct Attempt {
    // Drop order: contexts before the connection that they use.
    /// Contexts that queues do not have: newly created, or returned.
    endpoints: Vec<Endpoint<Requester>>,
    mmap: Option<Mmap>,
    device: Device,
    driver: Driver,
    number: u64,
    is_creating: bool,
    is_ready: bool,
    /// `true` once contexts of this session have been passed to the queues.
    is_started: bool,
    /// Number of contexts that queues have.
    lent: usize,
    is_halting: bool,
    has_finished: bool,
    interrupted: bool,
    /// One watchdog per queue; empty without a timeout.
    watchdogs: Vec<Watchdog>,
    next_check: Option<Instant>,
}

impl Control {
    pub(crate) fn new(
        config: Config,
        device: Option<Device>,
        shared: Arc<Shared>,
        shutdown: Shutdown,
        opened: SyncSender<Result<Opened, OpenError>>,
    ) -> Self {
        let services = config.services.len();
        Self {
            config,
            device,
            failover: Failover::new(services),
            errors: vec![None; services],
            shared,
            waiter: Waiter::new(shutdown),
            opened: Some(opened),
            memory: None,
            is_memory_used: false,
            remains: Vec::new(),
            sessions: 0,
            lost: None,
            has_failed: false,
            has_changed: None,
            verifier: None,
            incarnation: 0,
        }
    }

    /// Runs until the volume is closed, or could not be opened.
    pub(crate) fn run(mut self) -> Result<(), CloseError> {
        let mut last = None;
        let opens_until = Instant::now() + self.config.control_timeout;
        loop {
            let (started, service) = (self.sessions, self.failover.current());
            let (result, lent) = self.attempt();
            if self.opened.is_none() && self.is_closing() {
                self.tell_all(|| Command::Fail(IoError::Closed));
                self.farewell();
                if lent != 0 {
                    return Err(CloseError::Queues { count: lent });
                }
                return match (result, last) {
                    // Closed during an outage.
                    (Err(SessionError::Interrupted), Some(error)) if self.sessions == started => {
                        Err(CloseError::Session(error))
                    }
                    (Err(SessionError::Interrupted) | Ok(()), _) => Ok(()),
                    (Err(error), _) => Err(error.into()),
                };
            }
            let outcome = if self.sessions > started {
                Outcome::Ended
            } else if self.has_changed.is_some() {
                Outcome::OtherStorage
            } else {
                Outcome::Failed
            };
            let interval = self.failover.next(outcome);
            let error = result.err().unwrap_or(SessionError::Interrupted);
            self.report(service, &error);
            if self.opened.is_none() {
                self.lost.get_or_insert_with(Instant::now);
                last = Some(error);
            } else if !self.may_open_later(&error, opens_until)
                && let Some(opened) = self.opened.take()
            {
                // The opener is waiting for this message.
                let _ = opened.send(Err(self.open_error(error).into()));
                return Ok(());
            }
            self.pause(interval);
        }
    }

    /// Logs the error of an attempt with a service. With several services, an error that repeats is logged once.
    fn report(&mut self, service: usize, error: &SessionError) {
        if !self.failover.has_alternatives() {
            if self.opened.is_none() {
                tracing::warn!("no session with the storage service: {error}");
            }
            return;
        }
        let failed = &self.config.services[service];
        let next = &self.config.services[self.failover.current()];
        if self.errors[service].as_ref() == Some(error) {
            tracing::debug!("no session with storage service {failed}, next is {next}: {error}");
        } else {
            tracing::warn!("no session with storage service {failed}, next is {next}: {error}");
        }
        self.errors[service] = Some(error.clone());
    }

    /// Returns `true` if the volume may be opened by another attempt: with one service, while it may still close the
    /// session of an earlier client; with several, until each was tried and the time has passed.
    fn may_open_later(&self, error: &SessionError, until: Instant) -> bool {
        let has_time = Instant::now() < until;
        if self.failover.has_alternatives() {
            has_time || self.errors.contains(&None)
        } else {
            has_time && error.is_temporary()
        }
    }

    /// Error of opening a volume, after the attempt that has failed with `last`.
    fn open_error(&self, last: SessionError) -> SessionError {
        if !self.failover.has_alternatives() {
            return last;
        }
        let services = self.config.services.iter().zip(&self.errors);
        let errors = services.filter_map(|(service, error)| error.as_ref().map(|it| (service, it)));
        let texts: Vec<_> = errors
            .map(|(service, error)| format!("{service}: {error}"))
            .collect();
        SessionError::Local(Failure::new(
            Failure::from(last).code,
            format!("no session with any storage service: {}", texts.join("; ")),
        ))
    }

    fn is_closing(&self) -> bool {
        self.shared.is_closing.load(Ordering::Acquire)
    }

    /// Waits before the next attempt, or until the thread is woken.
    fn pause(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.is_closing() {
            self.fail_overdue();
            self.take_returned(None);
            let deadline = self.outage_end().map_or(until, |end| end.min(until));
            self.waiter.wait(&[], Some(deadline));
        }
    }

    /// Waits, for a limited time, for queues to return the contexts of sessions that have ended.
    fn farewell(&mut self) {
        let until = Instant::now() + self.config.control_timeout.min(Duration::from_secs(1));
        loop {
            self.take_returned(None);
            if self.remains.is_empty() || Instant::now() >= until {
                return;
            }
            self.waiter.wait(&[], Some(until));
        }
    }

    fn tell_all(&self, command: impl Fn() -> Command) {
        for state in &self.shared.queues {
            state.send(command());
        }
    }

    /// Time at which the I/Os of an outage fail.
    fn outage_end(&self) -> Option<Instant> {
        let lost = self.lost.filter(|_| !self.has_failed)?;
        lost.checked_add(self.config.reconnect_timeout)
    }

    /// Fails the I/Os if the outage has lasted too long. Their memory is not exported at that time.
    fn fail_overdue(&mut self) {
        if self.outage_end().is_some_and(|end| Instant::now() >= end) {
            self.has_failed = true;
            let error = self.has_changed.unwrap_or(IoError::Disconnected);
            tracing::error!("I/Os fail: {error}");
            self.tell_all(|| Command::Fail(error));
        }
    }

    /// Runs one session until it has ended. Returns its result, and the number of contexts that queues have not returned.
    fn attempt(&mut self) -> (Result<(), SessionError>, usize) {
        let config = SessionConfig {
            workers: self.config.queues,
            control_timeout: self.config.control_timeout,
            halt_timeout: self.config.control_timeout,
            features: FEATURE_FLUSH | FEATURE_VERIFIER,
            release: self.config.release,
            batch_size: BATCH_SIZE,
        };
        let (device, driver) = match self.connect(config) {
            Ok(connecting) => connecting,
            Err(failure) => return (Err(SessionError::Local(failure)), 0),
        };
        let mut attempt = Attempt {
            endpoints: Vec::new(),
            mmap: None,
            device,
            driver,
            number: self.sessions + 1,
            is_creating: false,
            is_ready: false,
            is_started: false,
            lent: 0,
            is_halting: false,
            has_finished: false,
            interrupted: false,
            watchdogs: Vec::new(),
            next_check: None,
        };
        self.drive(&mut attempt);
        if attempt.is_started {
            self.lost = Some(Instant::now());
            self.has_failed = false;
            // Before the I/Os can fail: a program uses their buffers again.
            if !self.is_closing()
                && let Err(failure) = self.renew_memory(&attempt.device)
            {
                tracing::warn!("no memory for the next session: {failure}");
            }
        }
        let (result, lent) = (attempt.driver.session.result(), attempt.lent);
        if lent != 0 {
            attempt.endpoints.clear();
            self.remains.push(Remains {
                session: attempt.number,
                contexts: lent,
                _channel: attempt.driver.into_channel(),
            });
        }
        (result, lent)
    }

    /// Starts to connect to the current service.
    fn connect(&self, config: SessionConfig) -> Result<(Device, Driver), Failure> {
        let service = &self.config.services[self.failover.current()];
        if let Some(device) = &self.device {
            let driver = Driver::connect(device, &service.name, config)?;
            return Ok((device.clone(), driver));
        }
        let device = Device::open(&service.device).map_err(|error| {
            Failure::from(error).context(format_args!("device {}", service.device))
        })?;
        let within = self.failover.connect_timeout(config.control_timeout);
        let driver = Driver::try_connect(&device, &service.name, config, within)?;
        Ok((device, driver))
    }

    /// Moves the queues to new memory after a session: a process of that session that was stopped while it accessed the
    /// memory accesses it when it resumes.
    fn renew_memory(&mut self, device: &Device) -> Result<(), Failure> {
        let Some(memory) = &mut self.memory else {
            return Ok(());
        };
        self.is_memory_used = true;
        let region = MemoryRegion::new(memory.layout.size)?;
        // The first registration replaces the pages by shared ones, so it must precede the first write.
        drop(Mmap::register(device, Arc::clone(&region), peer_access())?);
        memory.region = region;
        for (index, state) in (0..).zip(&self.shared.queues) {
            state.send(Command::Move(memory.pool(&self.config, index)?));
        }
        self.is_memory_used = false;
        Ok(())
    }

    fn drive(&mut self, attempt: &mut Attempt) {
        loop {
            while let Some(action) = attempt.driver.session.poll_action() {
                if action == Action::Finish {
                    return;
                }
                if let Err(failure) = self.perform(attempt, action) {
                    attempt.driver.handle(Event::Failed(failure));
                }
            }
            if self.collect(attempt) {
                self.waiter.active();
            } else {
                self.wait(attempt);
            }
            if !attempt.is_started {
                self.fail_overdue();
            }
            attempt.driver.handle(Event::Timeout);
        }
    }

    fn perform(&mut self, attempt: &mut Attempt, action: Action) -> Result<(), Failure> {
        match action {
            Action::Send(message) => attempt.driver.send(&message)?,
            Action::OpenStorage(details) => {
                let init = self.open(attempt, &details)?;
                attempt.driver.handle(Event::Opened(init));
            }
            Action::CreateWorkers => {
                self.check_identity(attempt.driver.session.verifier().as_ref())?;
                self.create_next(attempt)?;
            }
            Action::PrepareWorkers(consumers) => {
                for (endpoint, &consumer) in attempt.endpoints.iter_mut().zip(&consumers) {
                    endpoint.prepare(consumer)?;
                }
                attempt.driver.handle(Event::WorkersPrepared);
            }
            Action::StartDataPath => self.start(attempt)?,
            Action::HaltDataPath { drain } => {
                attempt.is_halting = true;
                for state in &self.shared.queues {
                    state.send(Command::Return { drain });
                }
                if !drain {
                    // The peer has disconnected, so the memory can be withdrawn without waiting for queues that are not
                    // being polled.
                    attempt.mmap = None;
                    attempt.has_finished = true;
                    attempt.driver.handle(Event::WorkersFinished);
                }
            }
            Action::DestroyWorkers => {
                if attempt.lent != 0 {
                    // Requests in flight will not be answered.
                    self.tell_all(|| Command::Return { drain: false });
                }
                attempt.endpoints.clear();
                attempt.driver.handle(Event::WorkersDestroyed);
            }
            Action::Finish => {}
        }
        Ok(())
    }

    /// Exports the memory, and allocates it before the first session.
    fn open(
        &mut self,
        attempt: &mut Attempt,
        details: &StorageDetails,
    ) -> Result<InitStorage, Failure> {
        let storage = Storage {
            size: details.total_size,
            block_size: details.block_size,
            flush: attempt.driver.session.features() & FEATURE_FLUSH != 0,
        };
        if self.opened.is_some() {
            // An earlier attempt to open the volume may have been with another service.
            self.memory = None;
        } else if self.is_memory_used {
            self.renew_memory(&attempt.device)?;
        }
        let region = match &self.memory {
            Some(memory) => {
                let was = memory.storage;
                let has_changed = storage.size < was.size
                    || storage.block_size != was.block_size
                    || was.flush && !storage.flush;
                self.has_changed = has_changed.then_some(IoError::Changed);
                if has_changed {
                    return Err(Failure::unexpected(format!(
                        "the service has returned with another storage: expected {was:?}, got {storage:?}"
                    )));
                }
                Arc::clone(&memory.region)
            }
            None => {
                let memory = allocate(&self.config, storage)?;
                let region = Arc::clone(&memory.region);
                self.memory = Some(memory);
                region
            }
        };
        let mmap = Mmap::register(&attempt.device, region, peer_access())?;
        let blob = mmap.export_pci(&attempt.device)?;
        attempt.mmap = Some(mmap);
        Ok(InitStorage {
            transaction_count: self.config.depth,
            core_count: self.config.queues,
            mmap_export_blob: Bytes::from(blob),
        })
    }

    /// Creates contexts one at a time, each after the previous ones are running: the service assigns the consumers to
    /// its workers in the order in which they appear.
    fn create_next(&self, attempt: &mut Attempt) -> Result<(), Failure> {
        let contexts = attempt.driver.contexts(&attempt.device)?;
        attempt
            .endpoints
            .push(Endpoint::new(&contexts, self.config.depth)?);
        attempt.is_creating = true;
        Ok(())
    }

    /// Passes the contexts to the queues.
    fn start(&mut self, attempt: &mut Attempt) -> Result<(), Failure> {
        let Some(memory) = &self.memory else {
            return Err(Failure::new(
                ErrorCode::BAD_STATE,
                "a session without memory",
            ));
        };
        let queues = match &self.opened {
            Some(_) => Some(self.queues(memory)?),
            None => None,
        };
        let storage = memory.storage;
        self.begin_incarnation(attempt.driver.session.verifier());
        self.sessions = attempt.number;
        attempt.is_started = true;
        (self.lost, self.has_failed, self.has_changed) = (None, false, None);
        self.errors.fill(None);
        let endpoints = std::mem::take(&mut attempt.endpoints);
        for (state, endpoint) in self.shared.queues.iter().zip(endpoints) {
            if state.exchange().is_gone {
                // The service needs all consumers, used or not, until it is stopped.
                attempt.endpoints.push(endpoint);
            } else {
                attempt.lent += 1;
                let link = Link::new(endpoint, attempt.number, self.incarnation);
                state.send(Command::Start(Box::new(link)));
            }
        }
        let timeout = self.config.io_timeout;
        if !timeout.is_zero() {
            let now = Instant::now();
            attempt.watchdogs = vec![Watchdog::new(timeout, now); self.shared.queues.len()];
            attempt.next_check = Some(now + Watchdog::interval(timeout));
        }
        if let (Some(opened), Some(queues)) = (self.opened.take(), queues) {
            // Fails only if the opener has panicked; the queues are then dropped.
            let _ = opened.send(Ok(Opened { storage, queues }));
        }
        Ok(())
    }

    /// Checks that the session is with the same storage as the earlier ones.
    fn check_identity(&mut self, found: Option<&Verifier>) -> Result<(), Failure> {
        let Some(expected) = &self.verifier else {
            return Ok(());
        };
        let error = match found {
            Some(found) if found.identity == expected.identity => return Ok(()),
            Some(found) => IoError::Replaced {
                expected: expected.identity.half(),
                found: found.identity.half(),
            },
            None => IoError::Changed,
        };
        self.has_changed = Some(error);
        let found = match found {
            Some(found) if found.is_in_memory => {
                format!(
                    "{}, in the memory of a process that has no other one's blocks",
                    found.identity
                )
            }
            Some(found) => found.identity.to_string(),
            None => "one without an identity".to_owned(),
        };
        Err(Failure::new(
            ErrorCode::BAD_STATE,
            format!(
                "expected the storage {}, found {found}; I/Os fail until the former is back: start its targets with the backing files that \
                 they had, or restart this program to use the latter",
                expected.identity
            ),
        ))
    }

    /// Begins a session with this verifier of the storage, if it has one: determines whether the storage has lost
    /// acknowledged writes.
    fn begin_incarnation(&mut self, verifier: Option<Verifier>) {
        // A storage without a verifier is not known to have lost any.
        let Some(verifier) = verifier else {
            return;
        };
        if let Some(before) = &self.verifier
            && !verifier.has_kept_since(before)
        {
            self.incarnation += 1;
            if self.shared.unflushed.begin(self.incarnation) {
                tracing::error!(
                    "the storage {} has lost what was not flushed, and acknowledged writes with it: the next flush of each client fails",
                    verifier.identity
                );
            } else {
                tracing::info!(
                    "the storage {} has lost what was not flushed; all acknowledged writes were",
                    verifier.identity
                );
            }
        }
        self.verifier = Some(match &self.verifier {
            Some(before) => verifier.with_known(before),
            None => verifier,
        });
    }

    fn queues(&self, memory: &Memory) -> Result<Vec<Queue>, Failure> {
        let Memory {
            storage, layout, ..
        } = memory;
        let make = |(index, state): (u64, &Arc<_>)| {
            let geometry = Geometry {
                size: storage.size,
                block_size: storage.block_size,
                request_size: layout.request_size,
                flush: storage.flush,
                read_only: self.config.read_only,
                edges: index * layout.queue_size + layout.buffers_size,
                zeros: layout.zeros,
            };
            let depth = self.config.depth;
            Queue::new(Parts {
                engine: Engine::new(
                    geometry,
                    Arc::clone(&self.shared.locks),
                    Arc::clone(&self.shared.unflushed),
                    depth,
                ),
                depth,
                pool: memory.pool(&self.config, index)?,
                release: self.config.release,
                state: Arc::clone(state),
                shared: Arc::clone(&self.shared),
            })
            .map_err(|error| Failure::new(ErrorCode::OPERATING_SYSTEM, error.to_string()))
        };
        (0..).zip(&self.shared.queues).map(make).collect()
    }

    /// Passes events to the session; returns `true` if there were any.
    fn collect(&mut self, attempt: &mut Attempt) -> bool {
        let mut happened = false;
        if self.is_closing() && !attempt.interrupted {
            attempt.interrupted = true;
            happened = true;
            attempt.driver.handle(Event::Interrupted);
        }
        happened |= attempt.driver.poll();
        if attempt.is_creating {
            happened |= self.poll_creation(attempt);
        }
        happened |= self.take_returned(Some(attempt));
        happened | self.check_answers(attempt)
    }

    /// Abandons a session if a queue receives no responses; returns `true` in this case.
    fn check_answers(&self, attempt: &mut Attempt) -> bool {
        let now = Instant::now();
        if attempt.is_halting || attempt.next_check.is_none_or(|at| now < at) {
            return false;
        }
        let timeout = self.config.io_timeout;
        attempt.next_check = Some(now + Watchdog::interval(timeout));
        let mut is_stalled = false;
        for (state, watchdog) in self.shared.queues.iter().zip(&mut attempt.watchdogs) {
            is_stalled |= watchdog.check(state.progress(), now);
        }
        if is_stalled {
            let waited = Failure::timed_out("answers to I/Os", timeout);
            attempt.driver.handle(Event::Failed(waited));
            // An unresponsive service would not answer control messages either.
            attempt.driver.disconnect();
        }
        is_stalled
    }

    fn poll_creation(&self, attempt: &mut Attempt) -> bool {
        let is_ready = attempt.endpoints.last_mut().is_some_and(Endpoint::ready);
        if !is_ready {
            return false;
        }
        if attempt.endpoints.len() < self.config.queues as usize {
            if let Err(failure) = self.create_next(attempt) {
                attempt.is_creating = false;
                attempt.driver.handle(Event::Failed(failure));
            }
        } else if !std::mem::replace(&mut attempt.is_ready, true) {
            attempt.is_creating = false;
            attempt.driver.handle(Event::WorkersReady);
        }
        true
    }

    /// Collects contexts that queues have returned, and their failures; returns `true` if there were any.
    fn take_returned(&mut self, mut attempt: Option<&mut Attempt>) -> bool {
        let mut happened = false;
        for state in &self.shared.queues {
            let (returned, failure) = {
                let mut exchange = state.exchange();
                // Commands that a dropped queue has not executed.
                let unseen = if exchange.is_gone {
                    std::mem::take(&mut exchange.commands)
                } else {
                    Vec::new()
                };
                let mut returned = std::mem::take(&mut exchange.returned);
                returned.extend(unseen.into_iter().filter_map(|command| match command {
                    Command::Start(link) => Some(*link),
                    Command::Return { .. } | Command::Move(_) | Command::Fail(_) => None,
                }));
                (returned, exchange.failure.take())
            };
            for link in returned {
                happened = true;
                match &mut attempt {
                    Some(attempt) if attempt.number == link.session => {
                        attempt.lent -= 1;
                        attempt.endpoints.push(link.into_endpoint());
                    }
                    _ => {
                        for remains in &mut self.remains {
                            remains.contexts -= usize::from(remains.session == link.session);
                        }
                        // Contexts are dropped before the channel that they use.
                        drop(link);
                        self.remains.retain(|remains| remains.contexts != 0);
                    }
                }
            }
            if let (Some(attempt), Some((session, failure))) = (&mut attempt, failure)
                && session == attempt.number
            {
                happened = true;
                attempt.driver.handle(Event::Failed(failure));
            }
        }
        if let Some(attempt) = attempt
            && attempt.is_halting
            && attempt.lent == 0
            && !std::mem::replace(&mut attempt.has_finished, true)
        {
            happened = true;
            attempt.driver.handle(Event::WorkersFinished);
        }
        happened
    }

    fn wait(&mut self, attempt: &Attempt) {
        let creation = attempt.is_creating.then(|| Instant::now() + CREATION_POLL);
        let outage = self.outage_end().filter(|_| !attempt.is_started);
        let check = attempt.next_check.filter(|_| !attempt.is_halting);
        attempt
            .driver
            .wait(&mut self.waiter, &[creation, outage, check]);
    }
}

/// Allocates the memory for I/Os on a storage.
fn allocate(config: &Config, storage: Storage) -> Result<Memory, Failure> {
    let Storage {
        size, block_size, ..
    } = storage;
    if size == 0 || block_size == 0 || !size.is_multiple_of(u64::from(block_size)) {
        return Err(Failure::invalid(format!(
            "the service reports a storage of {size} bytes in blocks of {block_size} bytes; expected at least one whole block"
        )));
    }
    let Some(layout) = Layout::new(config, block_size) else {
        return Err(Failure::invalid(format!(
            "{} queues with {} buffers of {} bytes each, and blocks of {block_size} bytes, are no size of memory",
            config.queues, config.buffers, config.largest_transfer
        )));
    };
    let region = MemoryRegion::new(layout.size)?;
    Ok(Memory {
        storage,
        region,
        layout,
    })
}

/// Watches one queue in one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watchdog {
    timeout: Duration,
    /// Start of the time without responses for which the service is responsible.
    since: Instant,
    last: Progress,
}

impl Watchdog {
    pub(crate) fn new(timeout: Duration, now: Instant) -> Self {
        Self {
            timeout,
            since: now,
            last: Progress::default(),
        }
    }

    /// Interval between checks.
    pub(crate) fn interval(timeout: Duration) -> Duration {
        (timeout / 4).clamp(Duration::from_millis(1), Duration::from_secs(1))
    }

    /// Returns `true` if requests have been outstanding for the timeout without a response, while the queue was polled
    /// or its thread slept on it. A queue that is not polled receives no responses, either, for which the service is
    /// not responsible.
    pub(crate) fn check(&mut self, progress: Progress, now: Instant) -> bool {
        let is_waiting = progress.has_requests
            && progress.answers == self.last.answers
            && (progress.is_asleep || progress.polls != self.last.polls);
        self.last = progress;
        if !is_waiting {
            self.since = now;
        }
        now.saturating_duration_since(self.since) >= self.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(8);

    /// Calls the watchdog once per second, with `progress` of the number of seconds; returns the second in which it
    /// reports a stall.
    fn barks(progress: impl Fn(u32) -> Progress) -> Option<u32> {
        let begin = Instant::now();
        let mut watchdog = Watchdog::new(TIMEOUT, begin);
        (1..100).find(|&second| {
            watchdog.check(progress(second), begin + Duration::from_secs(second.into()))
        })
    }

    const BUSY: Progress = Progress {
        polls: 0,
        answers: 0,
        has_requests: true,
        is_asleep: false,
    };

    #[test]
    fn requests_without_an_answer_time_out_while_they_are_polled_or_slept_for() {
        let polled = |second| Progress {
            polls: second,
            ..BUSY
        };
        assert_eq!(barks(polled), Some(8));
        let slept = |_| Progress {
            is_asleep: true,
            ..BUSY
        };
        assert_eq!(barks(slept), Some(8));
        let answered_until_20 = |second: u32| Progress {
            answers: second.min(20),
            ..polled(second)
        };
        assert_eq!(barks(answered_until_20), Some(28));
    }

    #[test]
    fn queues_that_are_idle_or_left_alone_do_not_time_out() {
        assert_eq!(barks(|_| BUSY), None);
        let idle = |second| Progress {
            polls: second,
            has_requests: false,
            ..BUSY
        };
        assert_eq!(barks(idle), None);
        let left_alone_in_between = |second: u32| Progress {
            polls: second - second % 6 / 5,
            ..BUSY
        };
        assert_eq!(barks(left_alone_in_between), None);
    }
}
