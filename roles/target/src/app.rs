//! Drives the session of the target over a real control channel and real workers.

use std::cell::RefCell;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::{Access, Device, ErrorCode, MemoryRegion, Mmap};
use role_common::Failure;
use role_common::application::Environment;
use role_common::control::{ControlChannel, TcpServerChannel, Waiter};
use role_common::sessions::{self, Broken};
use role_common::statistics::{CoreStatistics, Statistics};
use role_common::superblock::Superblock;
use role_common::worker::Worker;
use signal_hook::consts::SIGXFSZ;
use wire::control::{FEATURE_FLUSH, InitStorage, RdmaConnectionDetails};

use crate::backing::{BackingFile, Options};
use crate::cli::Flags;
use crate::content::{Content, Geometry};
use crate::data_path::{Blocks, Command, Reply, Setup, TargetDataPath};
use crate::identity::{Boot, identity_of};
use crate::keeper::Keeper;
use crate::session::{Action, Event, Job, Outcome, Session};

/// How long a worker may take for a command. Services wait 5 s for an answer, and it should say why.
const WORKER_PATIENCE: Duration = Duration::from_secs(4);

/// How long the last answer may take to leave.
const FAREWELL: Duration = Duration::from_secs(1);

pub(crate) fn run(flags: Flags, environment: Environment) -> Result<(), Failure> {
    let console = environment.console;
    let address = SocketAddrV4::new(flags.listen_address, flags.listen_port);
    let mut channel = TcpServerChannel::listen_at(address)?;
    let limit = flags.sessions.sessions;
    // A write beyond the limit to the size of files is an error of the I/O, and not the end of the process.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(|error| {
        let message = format!("handler of SIGXFSZ: {error}");
        Failure::new(ErrorCode::OPERATING_SYSTEM, message)
    })?;
    let server = Server::new(flags)?;
    console.announce(format_args!("listening on port {}", channel.port()?));
    let served = sessions::serve(limit, &environment, || {
        let statistics = App::new(&server, &environment).run(&mut channel)?;
        console.report(&Statistics::new(crate::NAME, statistics));
        Ok(())
    });
    // However the last session ended, and before the way it did is told: this is worse.
    match server.file() {
        Some(file) => file
            .sync()
            .and_then(|()| server.keeper.borrow_mut().synced(file))
            .and(served),
        None => served,
    }
}

/// What outlives the sessions.
struct Server {
    blocks: Blocks,
    geometry: Geometry,
    /// Which storage it is, for services that ask.
    identity: Bytes,
    /// Its superblock.
    keeper: RefCell<Keeper>,
    device: Device,
    cpus: Vec<u32>,
    /// How long a service may be silent.
    idle_timeout: Option<Duration>,
}

impl Server {
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
        let blocks = match &flags.backing_file {
            Some(path) => {
                let options = Options {
                    io: flags.backing_io,
                    initialise: flags.initialise,
                };
                Blocks::File(Arc::new(BackingFile::open(path, content, options)?))
            }
            // No peer gets access: it is the target that reads and writes the memory of others.
            None => Blocks::Memory(Mmap::register(
                &device,
                load(content)?,
                Access::LOCAL_READ_WRITE,
            )?),
        };
        tracing::info!(
            "{} blocks of {} bytes",
            geometry.block_count,
            geometry.block_size
        );
        let boot = Boot::now()?;
        let file = match &blocks {
            Blocks::File(file) => Some(&**file),
            Blocks::Memory(_) => None,
        };
        Ok(Self {
            identity: identity_of(file.map(BackingFile::identity), boot)?,
            keeper: RefCell::new(Keeper::new(file, boot)),
            blocks,
            geometry,
            device,
            cpus: flags.cpu,
            idle_timeout: flags.idle_timeout.0,
        })
    }

    /// The file that the blocks are in, if any.
    fn file(&self) -> Option<&BackingFile> {
        match &self.blocks {
            Blocks::File(file) => Some(file),
            Blocks::Memory(_) => None,
        }
    }

    /// Extensions of the data path that it has. Blocks in memory survive no power failure, so they cannot be flushed.
    fn features(&self) -> u32 {
        match &self.blocks {
            Blocks::File(_) => FEATURE_FLUSH,
            Blocks::Memory(_) => 0,
        }
    }
}

/// One session.
struct App<'a> {
    session: Session,
    workers: Vec<Worker<TargetDataPath>>,
    server: &'a Server,
    statistics: Vec<CoreStatistics>,
    environment: &'a Environment,
}

impl<'a> App<'a> {
    fn new(server: &'a Server, environment: &'a Environment) -> Self {
        let cpu_count = u32::try_from(server.cpus.len()).unwrap_or(u32::MAX);
        Self {
            session: Session::new(server.geometry, cpu_count)
                .with_identity(server.identity.clone(), server.keeper.borrow().superblock())
                .with_features(server.features())
                .with_idle_timeout(server.idle_timeout),
            workers: Vec::new(),
            server,
            statistics: Vec::new(),
            environment,
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
            (Err(failure), Ok(())) if self.session.has_client() => Err(Broken::During(failure)),
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
        loop {
            while let Some(action) = self.session.poll_action() {
                match action {
                    Action::Send(answer) => channel.send(&answer)?,
                    Action::Do(job) => {
                        let outcome = self.perform(job);
                        self.handle(Event::JobDone(outcome));
                    }
                    Action::End(result) => return result,
                }
            }
            let event = channel.poll()?;
            let is_quiet = event.is_none();
            // First: a service that has left explains what its workers see.
            if let Some(event) = event {
                self.handle(Event::Service(event));
            }
            if let Err(failure) = self.check_workers() {
                self.handle(Event::Failed(failure));
            } else if self.environment.shutdown.is_requested() {
                let waiting = self.session.waiting_for();
                let failure = Failure::aborted(format_args!("waiting for {waiting}"));
                self.handle(Event::Failed(failure));
            } else if is_quiet {
                waiter.wait(&[channel], self.session.poll_timeout());
                self.handle(Event::Timeout);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        self.session.handle(event, Instant::now());
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
            Job::StartWorkers { maintains } => self.start_workers(maintains)?,
            Job::StopWorkers => self.stop_workers()?,
            Job::DestroyWorkers => self.workers.clear(),
            Job::Persist(superblock) => {
                let file = self.server.file();
                self.server.keeper.borrow_mut().keep(superblock, file)?;
                let Superblock {
                    set, epoch, state, ..
                } = superblock;
                tracing::info!("superblock of set {set}: epoch {epoch}, {state}");
            }
        }
        Ok(Outcome::Done)
    }

    fn create_workers(&mut self, init: &InitStorage) -> Result<(), Failure> {
        // What an earlier, failed init left.
        self.workers.clear();
        let requester = Mmap::import(&self.server.device, &init.mmap_export_blob)
            .map_err(|error| Failure::from(error).context("memory map of the init request"))?;
        for (index, &core) in (0..init.core_count).zip(&self.server.cpus) {
            let setup = Setup {
                core,
                device: self.server.device.clone(),
                blocks: self.server.blocks.clone(),
                geometry: self.server.geometry,
                flush: self.session.announced_features() & FEATURE_FLUSH != 0,
                requester: requester.clone(),
                transaction_count: init.transaction_count,
                idle_timeout: self.server.idle_timeout,
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

    fn start_workers(&mut self, maintains: bool) -> Result<(), Failure> {
        let file = self.server.file();
        self.server.keeper.borrow_mut().begin_use(maintains, file)?;
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
