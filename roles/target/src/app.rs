//! Drives the session of the target over a real control channel and real workers.

use std::cell::RefCell;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::{Access, Device, ErrorCode, MemoryRegion, Mmap};
use role_common::Failure;
use role_common::application::Environment;
use role_common::budget::{InitLimits, Quota};
use role_common::control::{ChannelEvent, ControlChannel, TcpServerChannel, Waiter};
use role_common::membership::SetRecord;
use role_common::sessions::{self, Broken};
use role_common::statistics::{CoreStatistics, Statistics};
use role_common::worker::Worker;
use wire::control::{InitStorage, Payload, RdmaConnectionDetails};

use crate::backing::BackingFile;
use crate::cli::Flags;
use crate::content::{Content, Geometry};
use crate::data_path::{Command, Reply, Setup, TargetDataPath};
use crate::identity::{Boot, identity_of};
use crate::keeper::Keeper;
use crate::session::{Action, Job, Outcome, Session, opens};

/// How long a worker may take for a command. Services wait 5 s for an answer, and it should say why.
const WORKER_PATIENCE: Duration = Duration::from_secs(4);

/// How long the last answer may take to leave.
const FAREWELL: Duration = Duration::from_secs(1);

pub(crate) fn run(flags: Flags, environment: Environment) -> Result<(), Failure> {
    let console = environment.console;
    let address = SocketAddrV4::new(flags.listen_address, flags.listen_port);
    let mut channel =
        TcpServerChannel::listen_at(address, opens)?.first_request_within(flags.idle_timeout.0);
    let limit = flags.sessions.sessions;
    let store = Store::new(flags)?;
    console.announce(format_args!("listening on port {}", channel.port()?));
    let served = sessions::serve(limit, &environment, || {
        let statistics = App::new(&store, &environment).run(&mut channel)?;
        console.report(&Statistics::new(crate::NAME, statistics));
        Ok(())
    });
    // However the last session ended, and before the way it did is told: this is worse.
    match &store.backing {
        Some(file) => file
            .sync()
            .and_then(|()| store.keeper.borrow_mut().synced(file))
            .and(served),
        None => served,
    }
}

/// What outlives the sessions.
struct Store {
    storage: Mmap,
    /// Where the storage is kept, if anywhere.
    backing: Option<BackingFile>,
    geometry: Geometry,
    /// Which storage it is, for services that ask.
    identity: Bytes,
    /// What it keeps of the set that it is a part of.
    keeper: RefCell<Keeper>,
    device: Device,
    cpus: Vec<u32>,
    /// How long a service may be silent.
    idle_timeout: Option<Duration>,
    /// What a session may ask for.
    init_limits: InitLimits,
}

impl Store {
    fn new(flags: Flags) -> Result<Self, Failure> {
        let device = Device::open(&flags.device).map_err(|error| {
            Failure::from(error).context(format_args!("--device {}", flags.device))
        })?;
        let geometry = Geometry {
            block_size: flags.block_size,
            block_count: flags.block_count,
        };
        let content = Content::open(flags.binary_content.as_deref(), geometry)?;
        let geometry = content.geometry;
        let (backing, region) = match &flags.backing_file {
            Some(path) => {
                let file = BackingFile::open(path, content)?;
                let region = Arc::clone(file.region());
                (Some(file), region)
            }
            None => (None, load(content)?),
        };
        // The blocks are given to nobody: it is the target that reads and writes the memory of others.
        let storage = Mmap::register(&device, region, Access::LOCAL_READ_WRITE)?;
        tracing::info!(
            "{} blocks of {} bytes",
            geometry.block_count,
            geometry.block_size
        );
        let boot = Boot::now()?;
        Ok(Self {
            storage,
            identity: identity_of(backing.as_ref().map(BackingFile::identity), boot)?,
            keeper: RefCell::new(Keeper::new(backing.as_ref(), boot)?),
            backing,
            geometry,
            device,
            cpus: flags.cpu,
            idle_timeout: flags.idle_timeout.0,
            init_limits: flags.init_limits,
        })
    }
}

/// One session.
struct App<'a> {
    session: Session,
    workers: Vec<Worker<TargetDataPath>>,
    store: &'a Store,
    statistics: Vec<CoreStatistics>,
    environment: &'a Environment,
    /// Whether a service has begun the session.
    has_client: bool,
    refused: Quota,
}

impl<'a> App<'a> {
    fn new(store: &'a Store, environment: &'a Environment) -> Self {
        let cpu_count = u32::try_from(store.cpus.len()).unwrap_or(u32::MAX);
        Self {
            session: Session::new(store.geometry, cpu_count)
                .with_limits(store.init_limits)
                .with_identity(store.identity.clone(), store.keeper.borrow().record()),
            workers: Vec::new(),
            store,
            statistics: Vec::new(),
            environment,
            has_client: false,
            refused: Quota::refused_requests(),
        }
    }

    /// Serves a session from its beginning to its end, and leaves nothing of it but what was written.
    fn run(mut self, channel: &mut TcpServerChannel) -> Result<Vec<CoreStatistics>, Broken> {
        let result = self.serve(channel);
        let ended = Worker::end_all(&mut self.workers);
        // After the workers: whoever is served next finds nothing of this session.
        channel.next_client(FAREWELL);
        match (result, ended) {
            (Ok(()), Ok(())) => Ok(self.statistics),
            (Err(failure), Ok(())) if self.has_client => Err(Broken::During(failure)),
            (Err(failure), Ok(())) => Err(Broken::Before(failure)),
            (Ok(()), Err(stuck)) => Err(Broken::ForGood(stuck)),
            (Err(failure), Err(stuck)) => {
                tracing::error!("{stuck}");
                Err(Broken::ForGood(failure))
            }
        }
    }

    fn serve(&mut self, channel: &mut TcpServerChannel) -> Result<(), Failure> {
        let mut waiter = Waiter::new(self.environment.shutdown.clone());
        let mut silent_since = Instant::now();
        loop {
            let event = channel.poll()?;
            let is_silent = event.is_none();
            match event {
                Some(ChannelEvent::Message(request)) => {
                    let answer = match self.session.receive(request) {
                        Action::Answer(answer) => answer,
                        Action::Do(job) => {
                            let outcome = self.perform(job);
                            self.session.complete(outcome)
                        }
                    };
                    channel.send(&answer)?;
                    if let Payload::ErrorResponse(_) = answer.payload {
                        self.refused.charge(1)?;
                    }
                    if self.session.is_finished() {
                        return Ok(());
                    }
                }
                Some(ChannelEvent::Closed) => {
                    let waiting = self.session.waiting_for();
                    return Err(Failure::new(
                        ErrorCode::CONNECTION_RESET,
                        format!(
                            "the {} left while it was expected to send {waiting}",
                            channel.peer()
                        ),
                    ));
                }
                Some(ChannelEvent::Connected) => self.has_client = true,
                Some(_) => {}
                None => {
                    let limit = self.silence_limit();
                    if let Some(limit) = limit.filter(|&limit| silent_since.elapsed() >= limit) {
                        return Err(Failure::timed_out(self.session.waiting_for(), limit));
                    }
                    waiter.wait(&[channel], limit.map(|limit| silent_since + limit));
                }
            }
            if !is_silent || self.silence_limit().is_none() {
                // Whatever took so long, it was no silence of the service.
                silent_since = Instant::now();
            }
            self.check_workers()?;
            if self.environment.shutdown.is_requested() {
                return Err(Failure::aborted(format_args!(
                    "waiting for {}",
                    self.session.waiting_for()
                )));
            }
        }
    }

    /// How long the service may say nothing. While I/Os can come, it is the workers that notice when none do.
    fn silence_limit(&self) -> Option<Duration> {
        let limit = self.store.idle_timeout;
        limit.filter(|_| self.has_client && self.session.waits_for_request())
    }

    /// A data path ends by itself only when it fails.
    fn check_workers(&mut self) -> Result<(), Failure> {
        for worker in self.workers.iter_mut().filter(|worker| worker.is_running()) {
            worker.poll()?;
        }
        Ok(())
    }

    fn perform(&mut self, job: Job) -> Result<Outcome, Failure> {
        match job {
            Job::CreateWorkers(init) => self.create_workers(&init)?,
            Job::Connect(details) => return self.connect(&details).map(Outcome::Exported),
            Job::StartWorkers => self.start_workers()?,
            Job::StopWorkers => self.stop_workers()?,
            Job::DestroyWorkers => self.workers.clear(),
            Job::Keep(record) => {
                let file = self.store.backing.as_ref();
                self.store.keeper.borrow_mut().keep(record, file)?;
                let SetRecord {
                    set, epoch, state, ..
                } = record;
                tracing::info!("of set {set}: epoch {epoch}, {state}");
            }
        }
        Ok(Outcome::Done)
    }

    fn create_workers(&mut self, init: &InitStorage) -> Result<(), Failure> {
        // What an earlier, failed init left.
        self.workers.clear();
        let requester = Mmap::import(&self.store.device, &init.mmap_export_blob)
            .map_err(|error| Failure::from(error).context("memory map of the init request"))?;
        for (index, &core) in (0..init.core_count).zip(&self.store.cpus) {
            let setup = Setup {
                core,
                device: self.store.device.clone(),
                storage: self.store.storage.clone(),
                requester: requester.clone(),
                transaction_count: init.transaction_count,
                idle_timeout: self.store.idle_timeout,
            };
            let waker = self.environment.shutdown.waker().clone();
            let create = || TargetDataPath::create(setup);
            self.workers
                .push(Worker::spawn(index, core, waker, WORKER_PATIENCE, create)?);
        }
        tracing::info!(
            "{} workers with {} transactions each",
            init.core_count,
            init.transaction_count
        );
        Ok(())
    }

    fn connect(&mut self, details: &RdmaConnectionDetails) -> Result<Bytes, Failure> {
        let worker = usize::try_from(details.context_index)
            .ok()
            .and_then(|index| self.workers.get_mut(index));
        let worker = worker.ok_or_else(|| {
            Failure::invalid(format!("there is no context {}", details.context_index))
        })?;
        let command = Command::Connect {
            role: details.role,
            details: details.connection_details.to_vec(),
        };
        match worker.execute(command, WORKER_PATIENCE)? {
            Reply::Exported(export) => Ok(Bytes::from(export)),
            Reply::Prepared => Err(Failure::unexpected(
                "a worker gave another reply than to the command",
            )),
        }
    }

    fn start_workers(&mut self) -> Result<(), Failure> {
        let file = self.store.backing.as_ref();
        self.store.keeper.borrow_mut().begin_use(file)?;
        for worker in &mut self.workers {
            // Less than the patience, so that it is the worker that says what it waited for.
            worker.execute(Command::Prepare(WORKER_PATIENCE / 2), WORKER_PATIENCE)?;
        }
        self.workers.iter_mut().try_for_each(Worker::start)
    }

    fn stop_workers(&mut self) -> Result<(), Failure> {
        self.workers.iter().for_each(Worker::request_stop);
        self.statistics.clear();
        for worker in &mut self.workers {
            self.statistics.push(worker.stop(WORKER_PATIENCE)?);
        }
        Ok(())
    }
}

/// New memory for the storage, with its first content.
fn load(content: Content) -> Result<Arc<MemoryRegion>, Failure> {
    let capacity = content.geometry.capacity();
    let too_large = || {
        Failure::invalid(format!(
            "{capacity} bytes of storage do not fit in this machine's memory"
        ))
    };
    let length = usize::try_from(capacity).map_err(|_| too_large())?;
    let region = MemoryRegion::with_huge_pages(length).map_err(|error| {
        Failure::from(error).context(format_args!("{capacity} bytes of storage"))
    })?;
    let mut written = Ok(());
    content.copy_to(|offset, piece| {
        // The offset is below the capacity, which fits.
        let result = region.write(usize::try_from(offset).unwrap_or(usize::MAX), piece);
        if written.is_ok() {
            written = result;
        }
    })?;
    written?;
    Ok(region)
}
