//! The target: its flags, and the program, which runs the session over a real control channel and real workers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use control::Failure;
use control::budget::Quota;
use control::counts::REFUSED_REQUESTS;
use control::network::Host;
use control::verifier::Verifier;
use control::{ChannelEvent, ControlChannel, TcpServerChannel, Waiter};
use doca::{Access, Device, ErrorCode, MemoryRegion, Mmap};
use metrics::{CoreStatistics, Count, Statistics};
use role_common::application::{self, Broken, Environment, SessionFlags};
use role_common::console::counted;
use role_common::flags::{
    GeneralFlags, OutputFlags, RoleFlags, ServerTlsFlags, Timeout, cpu, listen_port, number_u32,
    size_u32, timeout,
};
use role_common::init_limits::InitLimits;
use role_common::jobs::{Completed, JobRunner, Outcome};
use role_common::protocol::{Protocol, ProtocolFlags};
use role_common::worker::{Answer, Worker};
use role_formats::superblock::Superblock;
use signal_hook::consts::SIGXFSZ;
use wire::backing::CONTENT_OFFSET;
use wire::control::{
    FEATURE_FLUSH, FEATURE_VERIFIER, FEATURE_VERSIONS, InitStorage, Message, Payload,
    RdmaConnectionDetails, RecordState,
};
use wire::release::Release;

use crate::applier::Applier;
use crate::backing::{BackingFile, BackingIo, Options};
use crate::content::{Content, Geometry};
use crate::data_path::{self, Blocks, Command, Reply, Setup, TargetDataPath};
use crate::metadata::{Boot, MetadataStore, verifier_of};
use crate::request::{Quarantine, Writer, Writes};
use crate::session::{Action, AnnouncedVersions, Event, Job, Session, opens};
use crate::store::{FileApplier, FileDisk, FileLayout, MemoryApplier, SectorLocks};
use crate::versions::{Log, Versions, WorkerVersions, slot_count};

const EXAMPLES: &str = "\
Examples:
  128 blocks of 4 KiB, and one worker thread:
    doca_storage_target_rdma -d 3b:00.0 --listen-port 12345 --cpu 0
  Blocks from a file, two worker threads, any free port:
    doca_storage_target_rdma -d 3b:00.0 --listen-port 0 --binary-content blocks.sbc --cpu 0 --cpu 1";

/// A storage target, with its blocks in memory or in a file, for a DOCA storage service
#[derive(Debug, Clone, Parser)]
#[command(after_help = EXAMPLES)]
pub struct Flags {
    /// DOCA's general flags.
    #[command(flatten)]
    pub general: GeneralFlags,

    /// DOCA device: PCI address, RDMA device name or network interface name
    #[arg(short, long, value_name = "DEVICE")]
    pub device: String,

    /// CPU for a worker thread, which is pinned to it; repeat the flag for more workers
    #[arg(long, value_name = "CPU", required = true, value_parser = cpu)]
    pub cpu: Vec<u32>,

    /// TCP port for services; 0 picks a free one and prints it
    #[arg(long, value_name = "PORT", value_parser = listen_port)]
    pub listen_port: u16,

    /// Address or name of this machine to listen on; by default any IPv4 address, and with :: any IPv6 address, too
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    pub listen_address: Host,

    /// TLS of the control channel.
    #[command(flatten)]
    pub tls: ServerTlsFlags,

    /// File with the initial data: a .sbc file, or a plain file of exactly block count * block size bytes
    #[arg(long, value_name = "FILE")]
    pub binary_content: Option<PathBuf>,

    /// Regular file or block device for persistent blocks. A missing file is created with the initial data, which is
    /// not used again later
    #[arg(long, value_name = "FILE")]
    pub backing_file: Option<PathBuf>,

    /// I/O mode of the backing file
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub backing_io: BackingIo,

    /// Turn an existing file that is not a backing file (an empty or other file, or a block device) into one. Its data
    /// is lost. An existing backing file is kept as it is
    #[arg(long)]
    pub initialise: bool,

    /// Number of blocks, unless a .sbc file sets it
    #[arg(long, value_name = "COUNT", default_value = "128", value_parser = number_u32)]
    pub block_count: u32,

    /// Block size used by the storage, in bytes or with a unit such as 4k. (Ignored when using a .sbc file)
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = size_u32)]
    pub block_size: u32,

    /// Time without a request or a received result, in seconds or with a unit such as 2m, before the service's session
    /// is abandoned; 0 is unlimited. A stopped service is indistinguishable from an idle one
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = timeout)]
    pub idle_timeout: Timeout,

    /// Limits of a session.
    #[command(flatten)]
    pub init_limits: InitLimits,

    /// Wire format.
    #[command(flatten)]
    pub protocol: ProtocolFlags,

    /// Number of sessions.
    #[command(flatten)]
    pub sessions: SessionFlags,

    /// Flags for output, log and metrics.
    #[command(flatten)]
    pub output: OutputFlags,
}

impl RoleFlags for Flags {
    fn general(&self) -> &GeneralFlags {
        &self.general
    }

    fn output(&self) -> &OutputFlags {
        &self.output
    }

    fn cpu(&self) -> &[u32] {
        &self.cpu
    }

    fn check(&self) -> Result<(), Failure> {
        Ok(self.tls.check()?)
    }
}

/// Timeout of a step that may wait for a peer. It is shorter than the 5 s that services wait for a response by default,
/// so that the response can contain the cause.
const WORKER_PATIENCE: Duration = Duration::from_secs(4);

/// Timeout of a worker's step that waits only for this machine, which may be overloaded. The service's timeout, which its
/// user may have set to be longer than the default, decides how long a session may take to begin.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Time limit for sending the last response.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) fn run(flags: Flags, environment: Environment) -> Result<(), Failure> {
    let console = environment.console;
    let mut channel = TcpServerChannel::listen_at(&flags.listen_address, flags.listen_port, opens)?
        .first_request_within(flags.idle_timeout.0)
        .with_tls(flags.tls.config()?);
    let limit = flags.sessions.sessions;
    // A write beyond the file size limit must fail the I/O instead of terminating the process.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(|error| {
        let message = format!("handler of SIGXFSZ: {error}");
        Failure::new(ErrorCode::OPERATING_SYSTEM, message)
    })?;
    let server = Server::new(flags)?;
    let file = server.file();
    channel = channel.with_reservations(
        server.geometry.details(),
        file.and_then(BackingFile::reservation),
    );
    environment
        .metrics
        .declare(&[Count::Refused, Count::Failed, Count::MediaErrors], false);
    if let Some(file) = server.file() {
        let health = Arc::clone(file.health());
        environment.metrics.add_section(move |page| {
            let help = "1 if the medium has failed and all I/Os fail, otherwise 0";
            let has_failed = f64::from(u8::from(health.has_failed()));
            page.gauge("doca_storage_medium_failed", help, has_failed)
        });
    }
    environment.announce_ready(format_args!("listening on port {}", channel.port()?));
    let served = application::serve(limit, &environment, || {
        let statistics = App::new(&server, &environment).run(&mut channel)?;
        console.report(&Statistics::new(crate::NAME, statistics));
        Ok(())
    });
    // Reported before the last session's result, and independently of it, because it is more severe.
    let applied = server.apply_versions(false);
    match server.file() {
        Some(file) => file
            .sync()
            .and_then(|()| server.metadata.borrow_mut().synced(file))
            .and(applied)
            .and(served),
        None => served,
    }
}

/// State shared by all sessions.
struct Server {
    /// Versions of blocks; `None` for blocks that are too large.
    versions: Option<ServerVersions>,
    blocks: Blocks,
    geometry: Geometry,
    /// Identity and incarnation of the storage, for services that query them.
    verifier: Verifier,
    metadata: RefCell<MetadataStore>,
    device: Device,
    cpus: Vec<u32>,
    /// Maximum time without a message or I/O of the service.
    idle_timeout: Option<Duration>,
    /// Wire formats that sessions may use.
    protocol: Protocol,
    init_limits: InitLimits,
    /// Abandoned workers of earlier sessions, blocked by their peers.
    quarantine: RefCell<Quarantine>,
}

/// Versions of the blocks, and the thread that applies them.
struct ServerVersions {
    applier: Applier,
    versions: Arc<Versions>,
}

impl ServerVersions {
    fn new(blocks: &Blocks, geometry: Geometry) -> Result<Option<Self>, Failure> {
        let (applier, versions) = match blocks {
            Blocks::File(file) => {
                let slots = file.slots();
                if slots.count == 0 {
                    return Ok(None);
                }
                let (log, tail) = file.read_versions(geometry.block_size)?;
                let versions = Versions::new(log);
                let layout = FileLayout {
                    content_offset: CONTENT_OFFSET,
                    block_size: geometry.block_size,
                    sector: file.sector(),
                    fs_block: file.fs_block(),
                    slots,
                };
                let (file, shared) = (Arc::clone(file), Arc::clone(&versions));
                let create = move || {
                    let size = FileApplier::<FileDisk, Arc<BackingFile>>::memory_size(layout);
                    let memory = MemoryRegion::new(size)
                        .map_err(|error| Failure::from(error).context("memory for versions"))?;
                    let disk = FileDisk::new(Arc::clone(&file), &memory, FILE_DEPTH);
                    let health = Arc::clone(file.health());
                    Ok(FileApplier::new(
                        shared,
                        layout,
                        (disk, memory),
                        (file, tail),
                        health,
                    ))
                };
                (Applier::start(&versions, create)?, versions)
            }
            Blocks::Memory(mmap) => {
                let layout = data_path::memory_layout(geometry);
                let slots = memory_slots(geometry);
                let Some(region) = mmap.region().filter(|_| slots != 0).map(Arc::clone) else {
                    return Ok(None);
                };
                let versions = Versions::new(Log::new(slots));
                let shared = Arc::clone(&versions);
                let create = move || Ok(MemoryApplier::new(shared, region, layout));
                (Applier::start(&versions, create)?, versions)
            }
        };
        Ok(Some(Self { applier, versions }))
    }
}

/// Operations in flight of the thread that applies versions.
const FILE_DEPTH: usize = 32;

/// Number of slots for versions of blocks in memory.
fn memory_slots(geometry: Geometry) -> u32 {
    slot_count(
        geometry.block_size,
        geometry.block_count,
        geometry.block_size.into(),
    )
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
            // Peers have no access, because the target reads and writes their memory.
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
            versions: ServerVersions::new(&blocks, geometry)?,
            verifier: verifier_of(file, boot)?,
            metadata: RefCell::new(MetadataStore::new(
                file,
                file.map_or(boot, |file| file.boot_since_loss(boot)),
            )),
            blocks,
            geometry,
            device,
            cpus: flags.cpu,
            idle_timeout: flags.idle_timeout.0,
            protocol: flags.protocol.protocol,
            init_limits: flags.init_limits,
            quarantine: RefCell::default(),
        })
    }

    /// The file with the blocks, if any.
    fn file(&self) -> Option<&BackingFile> {
        match &self.blocks {
            Blocks::File(file) => Some(file),
            Blocks::Memory(_) => None,
        }
    }

    /// Puts a requested reservation in force, if there is one.
    fn reserve(&self, channel: &mut TcpServerChannel) {
        channel.reserve(|reservation| match self.file() {
            Some(file) => file.write_reservation(reservation),
            None => Ok(()),
        });
    }

    /// Supported extensions. Blocks in memory do not survive a power failure, so they cannot be flushed.
    fn features(&self) -> u32 {
        let flush = match &self.blocks {
            Blocks::File(_) => FEATURE_FLUSH,
            Blocks::Memory(_) => 0,
        };
        let versions = match (&self.versions, self.protocol.chosen()) {
            (Some(_), None | Some(Release::V3_2)) => FEATURE_VERSIONS,
            _ => 0,
        };
        flush | versions | FEATURE_VERIFIER
    }

    /// State of the log of versions, for a service that uses them.
    fn announced_versions(&self) -> AnnouncedVersions {
        let Some(ServerVersions { versions, .. }) = &self.versions else {
            return AnnouncedVersions::default();
        };
        versions.with(|log| AnnouncedVersions {
            slots: log.capacity(),
            last: log.last(),
            retired: log.retired(),
            unretired: log.unretired(),
        })
    }

    /// Waits for a request to the thread that applies versions that was not answered in time.
    fn await_versions(&self) -> Result<(), Failure> {
        match &self.versions {
            Some(versions) => versions.applier.await_late(),
            None => Ok(()),
        }
    }

    /// Copies all retired versions, or `all` versions, to the places of their blocks.
    fn apply_versions(&self, all: bool) -> Result<(), Failure> {
        match &self.versions {
            Some(versions) => versions.applier.apply(all),
            None => Ok(()),
        }
    }

    /// Prepares the versions for a session of a set. Without a superblock, versions of earlier sessions do not belong
    /// to a set, and could be newer than the versions that this session writes.
    fn begin_versions(&self) -> Result<(), Failure> {
        match &self.versions {
            Some(versions) if self.metadata.borrow().superblock().is_none() => {
                versions.applier.forget()
            }
            _ => Ok(()),
        }
    }

    /// Stores a superblock. Versions of blocks of another set are discarded; those of a set that was closed cleanly are
    /// copied to their places, because all of them are complete and durable on all members. Before the first
    /// superblock, only the current session has written versions.
    fn persist(&self, superblock: Superblock) -> Result<(), Failure> {
        let mut metadata = self.metadata.borrow_mut();
        let before = metadata.superblock();
        let is_same = before.is_some_and(|before| before.set == superblock.set);
        if is_same && superblock.state == RecordState::Clean {
            self.apply_versions(true)?;
        }
        metadata.persist(superblock, self.file())?;
        match &self.versions {
            // After the versions were processed, because a superblock that is reported to services must have its
            // versions.
            Some(versions) if before.is_some() && !is_same => versions.applier.forget(),
            _ => Ok(()),
        }
    }
}

/// One session.
struct App<'a> {
    session: Session,
    workers: Vec<Worker<TargetDataPath>>,
    /// Writes in flight of the workers, in the order of the workers.
    writes: Vec<Arc<Writes>>,
    /// Numbers of the workers as users of versions, in the order of the workers; empty without versions.
    owners: Vec<u32>,
    server: &'a Server,
    /// By worker.
    statistics: BTreeMap<usize, CoreStatistics>,
    environment: &'a Environment,
    refused: Quota,
    job: JobRunner<InitStorage>,
}

impl<'a> App<'a> {
    fn new(server: &'a Server, environment: &'a Environment) -> Self {
        let cpu_count = u32::try_from(server.cpus.len()).unwrap_or(u32::MAX);
        Self {
            session: Session::new(server.geometry, cpu_count)
                .with_limits(server.init_limits)
                .with_identity(
                    server.verifier.clone(),
                    server.metadata.borrow().superblock(),
                )
                .with_features(server.features())
                .with_versions(server.announced_versions())
                .with_protocol(server.protocol)
                .with_idle_timeout(server.idle_timeout),
            workers: Vec::new(),
            writes: Vec::new(),
            owners: Vec::new(),
            server,
            statistics: BTreeMap::new(),
            environment,
            refused: Quota::refused_requests(),
            job: JobRunner::default(),
        }
    }

    /// Serves one session and releases its resources, except written blocks and abandoned workers.
    fn run(mut self, channel: &mut TcpServerChannel) -> Result<Vec<CoreStatistics>, Broken> {
        let result = self.serve(channel);
        let begun = self.session.has_client();
        self.job.cancel();
        let ended = self.end_workers();
        if let (true, Some(newer)) = (begun, channel.requested_reservation()) {
            let failure = newer.preemption();
            channel.reject_client(&failure);
        }
        // After the workers have ended, so that the next session starts without workers of this one, and the next holder of
        // the reservation is told only then that it is in force.
        channel.next_client(EXIT_TIMEOUT);
        self.server.reserve(channel);
        if let Err(stuck) = &ended {
            tracing::error!("{stuck}");
        }
        match result.and(ended) {
            Ok(()) => Ok(self.statistics.into_values().collect()),
            Err(failure) if begun => Err(Broken::During(failure)),
            Err(failure) => Err(Broken::Before(failure)),
        }
    }

    fn serve(&mut self, channel: &mut TcpServerChannel) -> Result<(), Failure> {
        let mut waiter = Waiter::new(self.environment.shutdown.clone());
        loop {
            if let Some(outcome) = self.finish_job() {
                self.handle(Event::JobDone(outcome));
            }
            while let Some(action) = self.session.poll_action() {
                match action {
                    Action::Send(answer) => self.answer(channel, &answer)?,
                    Action::Do(job) => {
                        let outcome = match self.start_job(job) {
                            Ok(()) => self.finish_job(),
                            Err(failure) => Some(Err(failure)),
                        };
                        if let Some(outcome) = outcome {
                            self.handle(Event::JobDone(outcome));
                        }
                    }
                    Action::End(result) => return result,
                }
            }
            // Further requests of the client wait until the current one is answered; requests of other clients do not.
            channel.pause(self.job.is_busy());
            let now = Instant::now();
            let event = channel.poll()?;
            let is_quiet = event.is_none();
            // Processed first, because a disconnected service explains failures of its workers.
            if let Some(event) = event {
                match self.refusal(&event) {
                    Some(refusal) => self.answer(channel, &refusal)?,
                    None => self.handle(Event::Service(event)),
                }
            }
            let newer = channel.requested_reservation();
            if let (true, Some(newer)) = (self.session.has_client(), newer) {
                self.handle(Event::Failed(newer.preemption()));
                continue;
            }
            self.server.reserve(channel);
            if let Err(failure) = self.check_workers() {
                self.handle(Event::Failed(failure));
            } else if self.environment.shutdown.is_requested() {
                let waiting = self.session.waiting_for();
                let failure = Failure::aborted(format_args!("waiting for {waiting}"));
                self.handle(Event::Failed(failure));
            } else if is_quiet {
                let timeout = self.session.poll_timeout();
                if timeout.is_some_and(|at| at <= now) {
                    // Only after all available input has been read.
                    self.session.handle(Event::Timeout, now);
                } else {
                    waiter.wait(
                        &[channel],
                        timeout.into_iter().chain(self.job_deadline()).min(),
                    );
                }
            }
        }
    }

    fn handle(&mut self, event: Event) {
        self.session.handle(event, Instant::now());
    }

    /// The error for a service of a set whose target's medium has failed, so that the set continues without this
    /// target.
    fn refusal(&self, event: &ChannelEvent) -> Option<Message> {
        let ChannelEvent::Message(request) = event else {
            return None;
        };
        let is_of_set = matches!(request.payload, Payload::IdentifyStorageRequest(_));
        let failed = self.server.file()?.check_medium().err()?;
        (is_of_set && opens(&request.payload)).then(|| failed.response_to(request))
    }

    /// Stops all workers. Writes in flight of workers that are blocked by the peer are quarantined.
    fn end_workers(&mut self) -> Result<(), Failure> {
        let writers = self.workers.iter().zip(self.writes.drain(..));
        let writers: Vec<_> = writers
            .map(|(worker, writes)| Writer {
                attachment: worker.attachment(),
                writes,
            })
            .collect();
        let ended = Worker::end_all(&mut self.workers);
        if let Some(ServerVersions { versions, .. }) = &self.server.versions {
            let owners = writers.iter().zip(self.owners.drain(..));
            for (_, owner) in owners.filter(|(writer, _)| writer.attachment.is_abandoned()) {
                versions.abandon(owner);
            }
        }
        self.server.quarantine.borrow_mut().add(writers);
        ended
    }

    /// Sends a response. The number of refused requests per session is limited.
    fn answer(&mut self, channel: &mut TcpServerChannel, answer: &Message) -> Result<(), Failure> {
        channel.send(answer)?;
        match answer.payload {
            Payload::ErrorResponse(_) => {
                REFUSED_REQUESTS.increment();
                self.refused.charge(1)
            }
            _ => Ok(()),
        }
    }

    /// A data path ends by itself only if it fails.
    fn check_workers(&mut self) -> Result<(), Failure> {
        if self.job.is_busy() {
            return Ok(());
        }
        for worker in self.workers.iter_mut().filter(|worker| worker.is_running()) {
            worker.poll()?;
        }
        Ok(())
    }

    /// Starts a job. Jobs do not wait for a peer on this thread: [`finish_job`](Self::finish_job) returns the outcome.
    fn start_job(&mut self, job: Job) -> Result<(), Failure> {
        match job {
            Job::CreateWorkers(init) => {
                // Workers that remain from an earlier, failed init.
                self.end_workers()?;
                // Requests of an earlier session must not be applied to versions of this session.
                self.server.await_versions()?;
                let waker = self.environment.shutdown.waker().clone();
                let (device, export) = (self.server.device.clone(), init.mmap_export_blob.clone());
                return self
                    .job
                    .import(init, device, export, WORKER_PATIENCE, waker);
            }
            Job::Connect(details) => self.connect(&details)?,
            Job::StartWorkers => {
                if !self.has_versions() {
                    // The session's reads and writes access the blocks at their places.
                    self.server.apply_versions(true)?;
                } else if self.session.knows_superblock() {
                    self.server.begin_versions()?;
                }
                let file = self.server.file();
                self.server.metadata.borrow_mut().begin_use(file)?;
                for worker in &mut self.workers {
                    // The worker waits for the service's connections.
                    worker.begin(Command::Prepare(WORKER_PATIENCE), START_PATIENCE)?;
                }
                self.job.await_start();
                return Ok(());
            }
            Job::StopWorkers => {
                self.statistics.clear();
                for worker in &mut self.workers {
                    worker.begin_stop(WORKER_PATIENCE)?;
                }
            }
            Job::DestroyWorkers => self.end_workers()?,
            Job::Persist(superblock) => {
                self.server.persist(superblock)?;
                self.session.set_versions(self.server.announced_versions());
                let Superblock {
                    set, epoch, state, ..
                } = superblock;
                tracing::info!("superblock of set {set}: epoch {epoch}, {state}");
            }
        }
        self.job.await_replies();
        Ok(())
    }

    /// Time at which the current job fails.
    fn job_deadline(&self) -> Option<Instant> {
        self.job.deadline(&self.workers)
    }

    /// Advances the current job, and returns its outcome when it has ended.
    fn finish_job(&mut self) -> Option<Result<Outcome, Failure>> {
        let statistics = &mut self.statistics;
        let polled = self.job.poll(
            &mut self.workers,
            Instant::now(),
            |worker, answer| match answer {
                Answer::Replied(Reply::Exported(export)) => Some(Bytes::from(export)),
                Answer::Stopped(report) => {
                    statistics.insert(worker, report);
                    None
                }
                Answer::Replied(Reply::Prepared) | Answer::Created => None,
            },
        );
        let outcome = polled.and_then(|completed| match completed {
            None => Ok(None),
            Some(Completed::Job(outcome)) => Ok(Some(outcome)),
            Some(Completed::Imported(init, requester)) => {
                self.create_workers(&init, &requester).map(|()| None)
            }
            Some(Completed::Stopped) => Ok(Some(Outcome::Done)),
        });
        outcome.transpose()
    }

    /// `true` if versions were announced, and the session's messages can contain them.
    fn has_versions(&self) -> bool {
        self.session.announced_features() & FEATURE_VERSIONS != 0
            && self.session.release() == Release::V3_2
    }

    fn create_workers(&mut self, init: &InitStorage, requester: &Mmap) -> Result<(), Failure> {
        let locks = Arc::new(SectorLocks::default());
        let unit = self.server.blocks.write_unit();
        for (index, &core) in (0..init.core_count).zip(&self.server.cpus) {
            let writes = Arc::new(Writes::new(init.transaction_count as usize, unit));
            let versions = self.server.versions.as_ref();
            let versions = versions.filter(|_| self.has_versions());
            let versions = versions
                .map(|versions| versions.versions.worker())
                .transpose()
                .map_err(|error| {
                    Failure::new(ErrorCode::OPERATING_SYSTEM, format!("versions: {error}"))
                })?;
            self.owners
                .extend(versions.as_ref().map(WorkerVersions::owner));
            let setup = Setup {
                core,
                device: self.server.device.clone(),
                blocks: self.server.blocks.clone(),
                geometry: self.server.geometry,
                release: self.session.release(),
                flush: self.session.announced_features() & FEATURE_FLUSH != 0,
                versions,
                requester: requester.clone(),
                transaction_count: init.transaction_count,
                metrics: self.environment.metrics.worker(core),
                idle_timeout: self.server.idle_timeout,
                writes: Arc::clone(&writes),
                quarantine: self.server.quarantine.borrow().clone(),
                locks: Arc::clone(&locks),
            };
            let waker = self.environment.shutdown.waker().clone();
            let create = || data_path::create(setup);
            let worker = Worker::begin_spawn(index, core, waker, START_PATIENCE, create)?;
            self.workers.push(worker);
            self.writes.push(writes);
        }
        tracing::info!(
            "{} with {} each",
            counted(init.core_count.into(), "worker"),
            counted(init.transaction_count.into(), "transaction")
        );
        self.job.await_replies();
        Ok(())
    }

    fn connect(&mut self, details: &RdmaConnectionDetails) -> Result<(), Failure> {
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
        worker.begin(command, WORKER_PATIENCE)
    }
}

/// Allocates memory for the storage, followed by the slots for versions, and fills it with its initial data.
fn load(content: Content) -> Result<Arc<MemoryRegion>, Failure> {
    let geometry = content.geometry;
    let slots = u64::from(memory_slots(geometry)) * u64::from(geometry.block_size);
    let capacity = geometry.capacity().saturating_add(slots);
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
        // The offset is below the capacity, which fits in `usize`.
        let result = region.write(usize::try_from(offset).unwrap_or(usize::MAX), piece);
        if written.is_ok() {
            written = result;
        }
    })?;
    written?;
    Ok(region)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use role_common::flags::{self, FlagsError};

    use super::*;

    fn parse(args: &str) -> Result<Flags, FlagsError> {
        flags::read(
            crate::NAME,
            std::iter::once("x")
                .chain(args.split_whitespace())
                .map(OsString::from),
        )
    }

    #[test]
    fn command_line_of_the_guide_is_accepted() {
        let flags =
            parse("-d 3b:00.0 --listen-port 12345 --block-size 4096 --block-count 64 --cpu 0")
                .expect("flags");
        assert_eq!(
            (flags.device.as_str(), flags.listen_port, flags.block_count),
            ("3b:00.0", 12345, 64)
        );
        let flags = parse("--device 3b:00.0 --listen-port 0 --cpu 0 --cpu 0").expect("flags");
        assert_eq!(
            (flags.block_count, flags.block_size, flags.cpu.len()),
            (128, 4096, 2)
        );
    }

    #[test]
    fn errors_name_mandatory_flags_and_ranges() {
        let cases = [
            ("--listen-port 1 --cpu 0", "--device"),
            ("-d x --cpu 0", "--listen-port"),
            ("-d x --listen-port 1", "--cpu"),
            ("-d x --cpu 0 --listen-port 65536", "65535"),
            ("-d x --cpu 0 --listen-port http", "65535"),
            (
                "-d x --cpu 0 --listen-port 1 --block-count all",
                "4294967295",
            ),
            (
                "-d x --cpu 0 --listen-port 1 --block-size -4096",
                "4294967295",
            ),
            ("-d x --cpu 0 --listen-port 1 --blocks 5", "--blocks"),
            ("-d x --cpu 0 --listen-port 1 --sessions 0", "or forever"),
            (
                "-d x --cpu 0 --listen-port 1 --listen-address 1.2.3",
                "--listen-address",
            ),
        ];
        for (args, part) in cases {
            match parse(args) {
                Err(FlagsError::Usage(text)) => assert!(text.contains(part), "{args}: {text}"),
                other => panic!("{args}: {other:?}"),
            }
        }
    }
}
