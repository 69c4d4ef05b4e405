//! Shared parts of the storage services between one initiator and one or more storage targets.
//!
//! [`session`] is the control state machine, [`run`] runs it over real channels and workers, and
//! [`DegradedMode`] is the part of services that continue without a target. The handling of I/Os, and the combination of the targets into
//! one storage, differ between services: a [`Service`].

mod degraded_mode;
pub mod session;
mod trouble;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use control::Failure;
use control::budget::Quota;
use control::counts::REFUSED_REQUESTS;
use control::network::HostPort;
use control::reservation::Holder;
use control::shutdown::Shutdown;
use control::verifier::Verifier;
use control::{ChannelEvent, ComchServerChannel, ControlChannel, TcpClientChannel, Waiter};
use degraded_mode::RejoinAttempts;
use doca::{Access, Connection, Device, ErrorCode, MemoryRegion, Mmap};
use metrics::{Metrics, WorkerMetrics};
use role_formats::superblocks::Superblocks;
use session::{Action, Event, Job, Layout, Memory, Session};
use trouble::Trouble;
use wire::control::{Payload, RdmaConnectionDetails, RdmaConnectionRole};
use wire::release::Release;

use crate::application::{self, Broken, Environment, SessionFlags, SessionLimit};
use crate::control_socket::{ControlSocket, Operator};
use crate::data_path::Limits;
use crate::flags::{
    ClientTlsFlags, DEFAULT_CHANNEL, Timeout, channel_name, cpu, duration, timeout,
};
use crate::init_limits::InitLimits;
use crate::jobs::{Completed, JobRunner, Outcome};
use crate::protocol::ProtocolFlags;
use crate::superblock;
use crate::worker::{Answer, DataPath, Worker};

pub use degraded_mode::{DegradedMode, NextRejoin};

// Commands from the main thread of a service to its workers.

#[derive(Debug)]
pub struct WorkerSetup {
    pub index: u32,
    /// CPU on which the worker runs.
    pub core: u32,
    /// The DPU's device.
    pub device: Device,
    /// The connection to the initiator; `None` in a session without one.
    pub client: Option<Connection>,
    /// Maximum number of transactions.
    pub transaction_count: u32,
    /// Extensions of the data path announced by initiator and targets (`FeatureQuery::features`).
    pub features: u32,
    /// Release of the session's I/O messages.
    pub release: Release,
    /// Timeouts for lack of progress.
    pub limits: Limits,
    /// Metrics to publish to, with `--metrics`.
    pub metrics: Option<Arc<WorkerMetrics>>,
}

/// Command to a worker whose data path is not running.
#[derive(Debug)]
pub enum Command {
    /// Create an RDMA connection for this target, and export it.
    Export {
        target: usize,
        role: RdmaConnectionRole,
    },
    /// Connect to the target's export.
    Connect {
        target: usize,
        role: RdmaConnectionRole,
        /// The target's export.
        details: Bytes,
    },
    /// Wait for all contexts to be ready for requests.
    Prepare {
        /// The initiator's consumer that results are sent to.
        consumer: u32,
        /// Timeout for the contexts.
        within: Duration,
    },
    /// Destroy the consumer and the producer.
    LeaveComch,
}

/// Command to a worker that serves I/Os, for a target that rejoins.
#[derive(Debug, PartialEq, Eq)]
pub enum WorkerCommand {
    /// Create an RDMA connection for this target, and export it: io_data first, which starts over.
    Export {
        target: usize,
        role: RdmaConnectionRole,
    },
    /// Connect to the target's export.
    Connect {
        target: usize,
        role: RdmaConnectionRole,
        /// The target's export.
        details: Bytes,
    },
    /// Prepare to exchange messages with the target.
    Attach { target: usize },
}

/// Answer to a [`Command`] or an [`WorkerCommand`].
#[derive(Debug)]
pub enum Reply {
    /// The export of a connection.
    Exported(Vec<u8>),
    Done,
}

// Flags common to all services.

/// Devices, CPUs and timeouts of a service.
#[derive(Debug, Clone, Args)]
pub struct ServiceFlags {
    /// DOCA device: PCI address, RDMA device name or network interface name
    #[arg(short, long, value_name = "DEVICE")]
    pub device: String,

    /// PCI address of the host's representor
    #[arg(short, long, value_name = "PCI")]
    pub representor: String,

    /// CPU for a worker thread, which is pinned to it; repeat the flag for more workers
    #[arg(long, value_name = "CPU", required = true, value_parser = cpu)]
    pub cpu: Vec<u32>,

    /// Name of the Comch server that this service opens; initiators connect with the same name
    #[arg(long, value_name = "NAME", default_value = DEFAULT_CHANNEL, value_parser = channel_name)]
    pub command_channel_name: String,

    /// Timeout of a control operation, in seconds or with a unit such as 2m [default: 5]. If given, it also limits the
    /// wait for connections to the targets, which has no limit otherwise
    #[arg(long, value_name = "SECONDS", value_parser = duration)]
    pub control_timeout: Option<Duration>,

    /// Time without a completion while I/Os are in flight, in seconds or with a unit such as 2m, before the session is
    /// abandoned; 0 is unlimited
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = timeout)]
    pub io_timeout: Timeout,

    /// Time without a request of the initiator, in seconds or with a unit such as 2m, before its session is abandoned; 0 is
    /// unlimited. A stopped initiator is indistinguishable from an idle one
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = timeout)]
    pub idle_timeout: Timeout,

    /// Take the targets over from any other service, and keep it away: reserve them, which ends its sessions. Two services
    /// for the same targets are both started with it; the one that was started last is in charge
    #[arg(long)]
    pub takeover: bool,

    /// Unix socket for the commands of an operator (doca-storage set status, drain and so on), with mode 0600
    #[arg(long, value_name = "PATH")]
    pub control_socket: Option<PathBuf>,

    /// Limits of a session.
    #[command(flatten)]
    pub init_limits: InitLimits,

    /// TLS towards targets.
    #[command(flatten)]
    pub tls: ClientTlsFlags,

    /// Wire format.
    #[command(flatten)]
    pub protocol: ProtocolFlags,

    /// Number of sessions.
    #[command(flatten)]
    pub sessions: SessionFlags,
}

/// Timeout of a control operation without `--control-timeout`.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);

impl ServiceFlags {
    /// Starts the control socket, if there is one.
    ///
    /// # Errors
    ///
    /// As [`ControlSocket::start`].
    pub fn start_control_socket(
        &self,
        role: &'static str,
        environment: &Environment,
        holder: Option<&Arc<Holder>>,
        operator: impl Operator + 'static,
    ) -> Result<Option<ControlSocket>, Failure> {
        let start = |path| {
            let holder = holder.map(Arc::clone);
            ControlSocket::start(path, role, environment, holder, Box::new(operator))
        };
        self.control_socket.as_deref().map(start).transpose()
    }

    /// The holder of the targets' reservations, with `--takeover`.
    ///
    /// # Errors
    ///
    /// The operating system provides no random numbers.
    pub fn holder<L: Layout>(&self, layout: &L) -> Result<Option<Arc<Holder>>, Failure> {
        if !self.takeover {
            return Ok(None);
        }
        let id = role_formats::superblock::random().map_err(superblock::no_random_number)?;
        let system = rustix::system::uname();
        let name = format!(
            "{} on {}",
            self.command_channel_name,
            system.nodename().to_string_lossy()
        );
        let targets = L::TARGETS.len();
        let holder = Holder::new(u128::from_be_bytes(id), name, targets, layout.quorum());
        Ok(Some(holder))
    }

    /// Timeout of a control operation.
    #[must_use]
    pub fn control_timeout(&self) -> Duration {
        self.control_timeout.unwrap_or(CONTROL_TIMEOUT)
    }

    /// Timeouts for lack of progress while I/Os are served.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            io: self.io_timeout.0,
            idle: self.idle_timeout.0,
        }
    }
}

/// Time for the last messages to be sent.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The parts of a service that differ between services.
pub trait Service {
    /// Combination of the targets into one storage.
    type Layout: Layout + Clone;
    /// Data path of a worker thread.
    type DataPath: DataPath<Command = Command, Reply = Reply>;

    /// Takes the initiator's imported memory, prepares further resources for I/Os, and returns the export of the memory
    /// for the targets.
    ///
    /// # Errors
    ///
    /// The memory cannot be exported or allocated. The initiator is informed and may retry.
    fn prepare_memory(
        &mut self,
        device: &Device,
        memory: &Memory,
        initiator: Mmap,
    ) -> Result<Bytes, Failure>;

    /// Returns a function that creates a worker's data path on the worker's thread.
    ///
    /// # Errors
    ///
    /// The memory was not prepared.
    fn worker(
        &self,
        setup: WorkerSetup,
    ) -> Result<impl FnOnce() -> Result<Self::DataPath, Failure> + Send + 'static, Failure>;

    /// Combines the verifiers of the targets (`None` for a target without a verifier) into the verifier of the
    /// service's storage.
    ///
    /// # Errors
    ///
    /// The storage is not that of earlier sessions. The session ends.
    fn verifier(&mut self, targets: &[Option<Verifier>]) -> Result<Option<Verifier>, Failure>;

    /// Returns `true` if the targets are queried for identities and superblocks: required if the service
    /// [survives](Self::degraded_mode) their loss.
    fn identifies_targets(&self) -> bool {
        false
    }

    /// Returns `true` if the service maintains its storage while no initiator is connected, in sessions of its own.
    fn maintains(&self) -> bool {
        false
    }

    /// Called before the session ends: from now on, background work must not be started.
    fn quiesce(&mut self) {}

    /// Returns `true` if no background work is in flight. Its completion wakes the main thread.
    fn is_quiet(&self) -> bool {
        true
    }

    /// Redundancy of a service that continues when a target is lost. With `None`, the session ends instead.
    fn degraded_mode(&mut self) -> Option<&mut dyn DegradedMode> {
        None
    }
}

/// Serves sessions with the targets at `addresses`, one for each target of the layout, which are reserved for `holder`, if
/// there is one. The flags limit the number of sessions; `service` creates a service for each session. `report` receives
/// the workers' reports of a successful
/// session.
///
/// # Errors
///
/// A device is missing, a peer or worker has failed, or shutdown was requested.
///
/// # Panics
///
/// If the number of addresses is not the number of targets.
pub fn run<S: Service>(
    mut service: impl FnMut() -> S,
    layout: &S::Layout,
    flags: &ServiceFlags,
    addresses: &[HostPort],
    holder: Option<&Arc<Holder>>,
    environment: &Environment,
    mut report: impl FnMut(Vec<<S::DataPath as DataPath>::Report>),
) -> Result<(), Failure> {
    assert_eq!(addresses.len(), S::Layout::TARGETS.len(), "one per target");
    let device = Device::open(&flags.device)
        .map_err(|error| Failure::from(error).context(format_args!("--device {}", flags.device)))?;
    let representor = device
        .open_representor(&flags.representor)
        .map_err(|error| {
            Failure::from(error).context(format_args!("--representor {}", flags.representor))
        })?;
    let opens = |request: &Payload| {
        matches!(
            request,
            Payload::QueryStorageRequest | Payload::AnnounceStorageRequest(_)
        )
    };
    let tls = flags.tls.config()?;
    let name = &flags.command_channel_name;
    let mut client = ComchServerChannel::start(&device, &representor, name, opens)?;
    let cpu_count = u32::try_from(flags.cpu.len()).unwrap_or(u32::MAX);
    let limit = flags.sessions.sessions;
    let channel = |(target, address): (usize, &HostPort)| {
        let channel = TcpClientChannel::connect(address.clone()).with_tls(tls.clone());
        match holder {
            Some(holder) => channel.reserving(Arc::clone(holder), target),
            None => channel,
        }
    };
    let mut previous = Previous {
        were_offline: vec![false; addresses.len()],
        maintains_after: MAINTAINS_AFTER,
    };
    application::serve(limit, environment, || {
        loop {
            if let Some(holder) = holder {
                refuse_while_fenced(holder, &mut client, environment)?;
            }
            let app = App {
                workers: Vec::new(),
                service: service(),
                client: &mut client,
                storage: addresses.iter().enumerate().map(channel).collect(),
                holder: holder.map(|holder| &**holder),
                session: Session::new(layout.clone(), cpu_count, flags.control_timeout())
                    .with_limits(flags.init_limits)
                    .with_protocol(flags.protocol.protocol)
                    .with_offline(previous.were_offline.clone()),
                refused: Quota::refused_requests(),
                troubles: vec![Trouble::default(); addresses.len()],
                job: JobRunner::default(),
                waiter: Waiter::new(environment.shutdown.clone()),
                shutdown: environment.shutdown.clone(),
                metrics: environment.metrics.clone(),
                device: device.clone(),
                flags,
                reports: BTreeMap::new(),
                rejoin_attempts: RejoinAttempts::new(),
                superblocks: Superblocks::new(addresses.len(), flags.control_timeout()),
                awaited: None,
                quiet_until: None,
                has_client_left: false,
                previous: &mut previous,
                maintains_at: None,
                has_client_waiting: false,
            };
            match app.run(environment)? {
                Ended::Served(reports) => {
                    report(reports);
                    return Ok(());
                }
                Ended::Maintained if environment.shutdown.is_requested() => {
                    return Err(Broken::Before(Failure::aborted("maintaining the set")));
                }
                Ended::Maintained => {}
            }
        }
    })
}

/// State that a session passes to the next one.
struct Previous {
    /// By target: `true` if the session ended without it.
    were_offline: Vec<bool>,
    /// Time without an initiator after which maintenance begins.
    maintains_after: Duration,
}

/// End of a successful session.
enum Ended<R> {
    /// With the workers' reports.
    Served(Vec<R>),
    /// A session without an initiator.
    Maintained,
}

/// Time without an initiator after which the service maintains its storage: longer than a front end needs to connect
/// again.
const MAINTAINS_AFTER: Duration = Duration::from_secs(2);

/// As [`MAINTAINS_AFTER`], at most, after maintenance that was not possible: it doubles.
const LONGEST_MAINTAINS_AFTER: Duration = Duration::from_secs(60);

/// Interval between polls of the reservations of a service that another one has taken over from.
const FENCED_POLL: Duration = Duration::from_millis(100);

/// While another service has taken over, refuses initiators with that reason.
///
/// # Errors
///
/// Shutdown was requested meanwhile, or the channel has failed.
fn refuse_while_fenced(
    holder: &Holder,
    client: &mut ComchServerChannel,
    environment: &Environment,
) -> Result<(), Broken> {
    let mut waiter = Waiter::new(environment.shutdown.clone());
    let mut is_known = false;
    while let Some(fenced) = holder.fenced() {
        if !is_known {
            tracing::error!("{fenced}");
            is_known = true;
        }
        if environment.shutdown.is_requested() {
            return Err(Broken::Before(fenced));
        }
        match client.poll().map_err(Broken::Before)? {
            Some(ChannelEvent::Message(request)) => {
                REFUSED_REQUESTS.increment();
                let sent = client.send(&fenced.response_to(&request));
                sent.map_err(Broken::Before)?;
                client.next_client(true);
            }
            Some(ChannelEvent::Closed) => client.next_client(false),
            Some(_) => {}
            None => waiter.wait(&[&*client], Some(Instant::now() + FENCED_POLL)),
        }
    }
    Ok(())
}

/// Fields are declared in drop order.
struct App<'a, S: Service> {
    workers: Vec<Worker<S::DataPath>>,
    /// Dropped after the workers and targets, which may use its memory.
    service: S,
    client: &'a mut ComchServerChannel,
    storage: Vec<TcpClientChannel>,
    /// The holder of the targets' reservations, if they are reserved.
    holder: Option<&'a Holder>,
    session: Session<S::Layout>,
    refused: Quota,
    /// By target: the last reported failure to connect.
    troubles: Vec<Trouble>,
    job: JobRunner<Memory>,
    waiter: Waiter,
    shutdown: Shutdown,
    metrics: Metrics,
    device: Device,
    flags: &'a ServiceFlags,
    /// By worker.
    reports: BTreeMap<usize, <S::DataPath as DataPath>::Report>,
    rejoin_attempts: RejoinAttempts,
    superblocks: Superblocks,
    /// State of the superblocks that the session waits for, if any.
    awaited: Option<Awaited>,
    /// Deadline for the service to become quiet, while the session waits for that.
    quiet_until: Option<Instant>,
    /// From the previous session, and for the next one.
    previous: &'a mut Previous,
    /// Time at which maintenance begins, unless an initiator connects before.
    maintains_at: Option<Instant>,
    /// `true` if an initiator waits for the end of maintenance.
    has_client_waiting: bool,
    /// `true` if the initiator has disconnected from a session that the service is ending: its channel would report
    /// that repeatedly.
    has_client_left: bool,
}

/// State of the set's superblocks.
#[derive(Debug, Clone, Copy)]
enum Awaited {
    Open,
    Concluded,
}

impl<S: Service> App<'_, S> {
    /// Serves one session and releases all its resources.
    fn run(
        mut self,
        environment: &Environment,
    ) -> Result<Ended<<S::DataPath as DataPath>::Report>, Broken> {
        let result = self.serve(environment);
        let ended_well = result.is_ok() && !self.session.is_closing();
        // A session that a signal has ended before any I/O does not count.
        let is_interrupted = self.shutdown.is_requested() && !self.session.has_served();
        let begun = self.session.has_client() && !is_interrupted;
        let is_maintenance = self.session.is_maintenance();
        for (target, was_offline) in self.previous.were_offline.iter_mut().enumerate() {
            *was_offline = self.session.is_without(target);
        }
        self.previous.maintains_after = if is_maintenance && result.is_err() {
            (self.previous.maintains_after * 2).min(LONGEST_MAINTAINS_AFTER)
        } else {
            MAINTAINS_AFTER
        };
        for storage in &mut self.storage {
            storage.flush(EXIT_TIMEOUT);
        }
        self.client.flush(EXIT_TIMEOUT);
        // Cancels an unfinished job.
        self.job.cancel();
        let Self {
            mut workers,
            service,
            client,
            storage,
            reports,
            flags,
            ..
        } = self;
        let ended = Worker::end_all(&mut workers);
        // Drop order: the service before the storage that it uses.
        drop((service, storage));
        if let Err(stuck) = &ended {
            tracing::error!("{stuck}");
        }
        // An initiator that has waited for the end of maintenance is served next.
        if !flags.sessions.sessions.is_single() && !is_maintenance {
            client.next_client(ended_well);
        }
        match result.and(ended) {
            Ok(()) if is_maintenance => Ok(Ended::Maintained),
            Ok(()) => Ok(Ended::Served(reports.into_values().collect())),
            Err(failure) if begun => Err(Broken::During(failure)),
            Err(failure) => Err(Broken::Before(failure)),
        }
    }

    fn serve(&mut self, environment: &Environment) -> Result<(), Failure> {
        let mut silent_since = Instant::now();
        if self.service.degraded_mode().is_some() {
            self.session.maintain_superblocks();
        } else if self.service.identifies_targets() {
            self.session.identify_targets();
        }
        if self.client.has_client() {
            self.handle(Event::Client(ChannelEvent::Connected));
        }
        for storage in &self.storage {
            tracing::info!("connecting to the {}", storage.peer());
        }
        if self.flags.control_timeout.is_some() {
            self.session.begin_connecting(silent_since);
        }
        loop {
            self.detach_lost();
            while let Some(action) = self.session.poll_action() {
                if let Some(result) = self.execute(action, environment)? {
                    return result;
                }
            }
            if self.keep_superblocks()? || self.has_quiesced() {
                continue;
            }
            if let Some(outcome) = self.finish_job() {
                self.handle(Event::JobDone(outcome));
                silent_since = Instant::now();
                continue;
            }
            if let Some(fenced) = self.holder.and_then(Holder::fenced) {
                self.handle(Event::Failed(fenced));
                continue;
            }
            let now = Instant::now();
            let silence = self
                .flags
                .idle_timeout
                .0
                .filter(|_| self.session.waits_for_request());
            let is_to_yield = self.has_client_waiting && self.session.is_serving();
            if (self.shutdown.is_requested() || is_to_yield) && !self.session.is_ending() {
                self.handle(Event::Shutdown);
            } else if self.maintains_at.is_some_and(|at| at <= now) {
                self.maintains_at = None;
                self.handle(Event::Maintain);
            } else if self.take_events() {
                self.waiter.active();
                silent_since = Instant::now();
            } else if !self.judge_late(now, silence.map(|limit| (silent_since, limit))) {
                let deadline = self.next_deadline(silence.map(|limit| silent_since + limit));
                let mut channels: Vec<&dyn ControlChannel> = Vec::new();
                if self.polls_client() {
                    channels.push(&*self.client);
                }
                channels.extend(
                    (self.storage.iter().enumerate())
                        .filter(|&(target, _)| {
                            !self.session.is_without(target)
                                || self.rejoin_attempts.target() == Some(target)
                        })
                        .map(|(_, channel)| channel as &dyn ControlChannel),
                );
                if self.shutdown.is_requested() {
                    self.waiter.wait_during_shutdown(&channels, deadline);
                } else {
                    self.waiter.wait(&channels, deadline);
                }
            }
        }
    }

    /// Executes an action of the session, and returns the session's result if the action ends it.
    ///
    /// # Errors
    ///
    /// A channel cannot send, or an initiator has sent too many invalid requests.
    fn execute(
        &mut self,
        action: Action,
        environment: &Environment,
    ) -> Result<Option<Result<(), Failure>>, Failure> {
        match action {
            // A script may wait for this line before it starts an initiator.
            Action::Announce => {
                environment.announce_ready(format_args!("waiting for the {}", self.client.peer()));
                let is_persistent = self.flags.sessions.sessions == SessionLimit::Forever;
                if is_persistent && self.service.maintains() && !self.session.has_client() {
                    self.maintains_at = Some(Instant::now() + self.previous.maintains_after);
                }
            }
            // The client may have disconnected already, and is no longer needed.
            Action::SendToClient(message) if self.session.is_closing() => {
                if let Err(failure) = self.client.send(&message) {
                    tracing::debug!("{failure}");
                }
            }
            Action::SendToClient(message) => {
                self.client.send(&message)?;
                if let Payload::ErrorResponse(_) = message.payload {
                    REFUSED_REQUESTS.increment();
                    self.refused.charge(1)?;
                }
            }
            Action::SendToStorage { target, .. } if self.session.is_without(target) => {}
            Action::SendToStorage { target, message } => {
                self.storage[target].send(&message)?;
            }
            Action::Leave { target } => {
                self.superblocks.forget(target);
                self.storage[target].disconnect();
            }
            Action::Stalled { target, why } => {
                if let Some(degraded_mode) = self.service.degraded_mode() {
                    degraded_mode.stalled(target, &why);
                }
            }
            Action::Do(Job::OpenSuperblocks) => self.await_superblocks(Awaited::Open),
            Action::Do(Job::CloseSuperblocks) => {
                if let Some(degraded_mode) = self.service.degraded_mode() {
                    degraded_mode.conclude();
                }
                self.await_superblocks(Awaited::Concluded);
            }
            Action::Do(Job::Quiesce) => {
                self.service.quiesce();
                self.quiet_until = Some(Instant::now() + self.flags.control_timeout());
            }
            Action::Do(Job::Verify(targets)) => {
                let outcome = self.service.verifier(&targets).map(Outcome::Verified);
                self.handle(Event::JobDone(outcome));
            }
            Action::Do(job) => {
                if let Err(failure) = self.start_job(job) {
                    self.handle(Event::JobDone(Err(failure)));
                }
            }
            Action::End(result) => return Ok(Some(result)),
        }
        Ok(None)
    }

    /// Time of the next timeout of the session or one of its parts; `silent_until` is the timeout of the initiator.
    fn next_deadline(&self, silent_until: Option<Instant>) -> Option<Instant> {
        self.session
            .poll_timeout()
            .into_iter()
            .chain(silent_until)
            .chain(self.job_deadline())
            .chain(self.rejoin_attempts.deadline())
            .chain(self.superblocks.deadline())
            .chain(self.quiet_until)
            .chain(self.maintains_at)
            .min()
    }

    /// Handles timeouts at `now`, after all available input has been read: a service that was stopped itself must first
    /// read the messages that its peers have sent in the meantime. Returns `true` if there was a timeout.
    fn judge_late(&mut self, now: Instant, silence: Option<(Instant, Duration)>) -> bool {
        let is_late = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_late(self.session.poll_timeout()) {
            self.session.handle(Event::Timeout, now);
            return true;
        }
        if let Some((since, limit)) = silence
            && since + limit <= now
        {
            let failure = Failure::timed_out(self.session.waiting_for(), limit);
            self.session.handle(Event::Failed(failure), now);
            return true;
        }
        let Some(degraded_mode) = self.service.degraded_mode() else {
            return false;
        };
        if let Some(target) = self.superblocks.late(now) {
            let waiting = "its answer that it has persisted its superblock";
            let late = Failure::timed_out(waiting, self.flags.control_timeout());
            if !self.session.may_lose(target) {
                let failure = late.context(self.storage[target].peer());
                self.superblocks.forget(target);
                self.session.handle(Event::Failed(failure), now);
            } else if degraded_mode.stalled(target, &late) {
                self.superblocks.forget(target);
            } else {
                self.superblocks.renew(now, target);
            }
            return true;
        }
        if let Some(limit) = self.superblocks.gives_up(now) {
            let failure = Failure::timed_out("the set's superblocks", limit);
            self.awaited = None;
            self.superblocks.reached();
            self.session.handle(Event::Failed(failure), now);
            return true;
        }
        false
    }

    fn handle(&mut self, event: Event) {
        self.session.handle(event, Instant::now());
    }

    /// Returns `true` if the session continues: the service is quiet, or has not become quiet in time.
    fn has_quiesced(&mut self) -> bool {
        let now = Instant::now();
        let is_late = self.quiet_until.is_some_and(|until| until <= now);
        if self.quiet_until.is_none() || !self.service.is_quiet() && !is_late {
            return false;
        }
        if is_late {
            tracing::warn!("the targets are stopped while stripes are still being worked on");
        }
        self.quiet_until = None;
        self.session.handle(Event::JobDone(Ok(Outcome::Done)), now);
        true
    }

    fn await_superblocks(&mut self, state: Awaited) {
        self.awaited = Some(state);
        self.superblocks.await_state(Instant::now());
    }

    /// Passes events to the session, and returns `true` if there were any.
    fn take_events(&mut self) -> bool {
        let now = Instant::now();
        let mut quiet = true;
        // Targets are polled first: their last messages explain later failures, and a client that connects while a
        // target is lost waits for the next session.
        for (target, storage) in self.storage.iter_mut().enumerate() {
            if self.session.is_without(target) {
                continue;
            }
            let mut event = storage.poll();
            if let Err(failure) = &event
                && !self.session.is_connected(target)
                && self.service.degraded_mode().is_some()
            {
                storage.retry_after(failure.clone());
                event = Ok(None);
            }
            // Further attempts usually fail in the same way.
            if !self.session.is_connected(target)
                && let Some(trouble) = storage.trouble()
                && self.troubles[target].is_news(trouble, now)
            {
                let why = trouble.message.clone();
                match self.flags.control_timeout {
                    Some(limit) => tracing::warn!(
                        "{why}; trying again until {limit:?} after the start (--control-timeout)"
                    ),
                    None => tracing::warn!("{why}; trying again until it succeeds"),
                }
                self.session.handle(Event::Unreachable { target, why }, now);
            }
            quiet &= matches!(event, Ok(None));
            if let Ok(Some(ChannelEvent::Message(message))) = &event
                && let Some(answer) = self.superblocks.answer(now, target, message)
            {
                match (answer, self.service.degraded_mode()) {
                    (Ok(superblock), Some(degraded_mode)) => {
                        degraded_mode.persisted(target, superblock);
                        continue;
                    }
                    (Ok(_), None) => continue,
                    (Err(failure), _) => event = Err(superblock::not_persisted(failure)),
                }
            }
            let gone = match &event {
                Ok(Some(ChannelEvent::Closed)) => Some(left()),
                // A target that violates the protocol is treated as disconnected.
                Ok(Some(ChannelEvent::Message(message))) => self.session.unasked(target, message),
                Err(failure) => Some(failure.clone()),
                Ok(_) => None,
            };
            if let Some(why) = gone
                && self.session.may_lose(target)
                && let Some(degraded_mode) = self.service.degraded_mode()
            {
                degraded_mode.target_lost(target, &why);
                continue;
            }
            let event = match event {
                Ok(Some(event)) => Event::Storage { target, event },
                Ok(None) => continue,
                Err(failure) => Event::Failed(failure),
            };
            self.session.handle(event, now);
        }
        if let Some(degraded_mode) = self.service.degraded_mode() {
            let timeout = self.flags.control_timeout();
            let (session, storage) = (&mut self.session, &mut self.storage);
            quiet &= !self
                .rejoin_attempts
                .advance(degraded_mode, session, storage, timeout);
        }
        if self.polls_client() && self.session.is_maintenance() {
            match self.client.poll() {
                Ok(Some(ChannelEvent::Connected)) => {
                    tracing::info!("an initiator has connected: maintenance ends");
                    self.has_client_waiting = true;
                    quiet = false;
                }
                Ok(_) => {}
                Err(failure) => self.session.handle(Event::Failed(failure), now),
            }
        } else if self.polls_client() {
            let client = self.client.poll();
            quiet &= matches!(client, Ok(None));
            self.has_client_left = self.session.is_closing()
                && matches!(client, Ok(Some(ChannelEvent::Closed)) | Err(_));
            match client {
                Ok(Some(event)) => self.session.handle(Event::Client(event), now),
                Ok(None) => {}
                Err(failure) if self.session.is_closing() => tracing::debug!("{failure}"),
                Err(failure) => self.session.handle(Event::Failed(failure), now),
            }
        }
        // A data path ends by itself only if it fails.
        let running = |worker: &&mut Worker<_>| worker.is_running() && !worker.is_pending();
        for worker in self.workers.iter_mut().filter(running) {
            if let Err(failure) = worker.poll() {
                self.session.handle(Event::Failed(failure), now);
                quiet = false;
            }
        }
        !quiet
    }

    fn polls_client(&self) -> bool {
        self.session.serves_client() && !self.has_client_left && !self.has_client_waiting
    }

    /// Detaches the targets that the service continues without.
    fn detach_lost(&mut self) {
        let Some(degraded_mode) = self.service.degraded_mode() else {
            return;
        };
        for target in 0..self.storage.len() {
            if degraded_mode.is_lost(target) && self.session.may_lose(target) {
                self.session.handle(Event::Lost { target }, Instant::now());
            }
        }
    }

    /// Sends the targets their new superblocks, and returns `true` if the session continues because the superblocks
    /// have reached the state it waits for.
    fn keep_superblocks(&mut self) -> Result<bool, Failure> {
        let now = Instant::now();
        let Some(degraded_mode) = self.service.degraded_mode() else {
            return Ok(false);
        };
        let mut are_persisted = true;
        for (target, storage) in self.storage.iter_mut().enumerate() {
            if self.session.is_without(target) {
                continue;
            }
            let wanted = degraded_mode.superblock_of(target);
            if let Some(request) = self.superblocks.request(now, target, wanted) {
                storage.send(&request)?;
            }
            are_persisted &= self.superblocks.is_persisted(target, wanted);
        }
        let is_reached = are_persisted
            && match self.awaited {
                Some(Awaited::Open) => degraded_mode.is_open(),
                Some(Awaited::Concluded) => degraded_mode.is_concluded(),
                None => false,
            };
        if !is_reached {
            return Ok(false);
        }
        self.awaited = None;
        self.superblocks.reached();
        self.session.handle(Event::JobDone(Ok(Outcome::Done)), now);
        Ok(true)
    }
}

fn left() -> Failure {
    Failure::new(
        ErrorCode::CONNECTION_RESET,
        "it closed its control connection",
    )
}

// Jobs of a session on its workers. The main thread does not wait for a peer.

/// Bytes of the memory in place of an initiator's.
const UNUSED_MEMORY: usize = 4096;

/// Added to a worker's own timeout, so that the worker's more specific error is reported.
const WORKER_GRACE: Duration = Duration::from_secs(1);

impl<S: Service> App<'_, S> {
    /// Starts a job. [`finish_job`](Self::finish_job) returns its outcome.
    fn start_job(&mut self, job: Job) -> Result<(), Failure> {
        match job {
            Job::PrepareMemory(memory) if memory.is_maintenance => {
                // Nothing is copied to or from it.
                let region = MemoryRegion::new(UNUSED_MEMORY)?;
                let unused = Mmap::register(&self.device, region, Access::LOCAL_READ_WRITE)?;
                let device = self.device.clone();
                let prepared = self.service.prepare_memory(&device, &memory, unused);
                self.handle(Event::JobDone(prepared.map(Outcome::Exported)));
                return Ok(());
            }
            Job::PrepareMemory(memory) => {
                let (device, export) = (self.device.clone(), memory.mmap_export_blob.clone());
                let waker = self.shutdown.waker().clone();
                let within = self.flags.control_timeout();
                return self.job.import(memory, device, export, within, waker);
            }
            Job::CreateWorker {
                index,
                transaction_count,
            } => {
                self.create_worker(index, transaction_count)?;
            }
            Job::Export {
                index,
                target,
                role,
            } => {
                self.begin(index, Command::Export { target, role })?;
            }
            Job::Connect { target, details } => {
                let RdmaConnectionDetails {
                    context_index,
                    role,
                    connection_details: details,
                } = details;
                let command = Command::Connect {
                    target,
                    role,
                    details,
                };
                self.begin(context_index, command)?;
            }
            Job::StartWorkers { consumers } => {
                let within = self.flags.control_timeout();
                for (worker, &consumer) in self.workers.iter_mut().zip(&consumers) {
                    worker.begin(Command::Prepare { consumer, within }, within + WORKER_GRACE)?;
                }
                self.job.await_start();
                return Ok(());
            }
            Job::StopWorkers => {
                let within = self.flags.control_timeout() + WORKER_GRACE;
                for worker in &mut self.workers {
                    worker.begin_stop(within)?;
                }
                self.job.await_stop();
                return Ok(());
            }
            Job::DestroyWorkers => {
                Worker::end_all(&mut self.workers)?;
            }
            // Handled elsewhere.
            Job::Verify(_) | Job::OpenSuperblocks | Job::Quiesce | Job::CloseSuperblocks => {}
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
        let reports = &mut self.reports;
        let polled = self.job.poll(
            &mut self.workers,
            Instant::now(),
            |worker, answer| match answer {
                Answer::Replied(Reply::Exported(export)) => Some(Bytes::from(export)),
                Answer::Stopped(report) => {
                    reports.insert(worker, report);
                    None
                }
                Answer::Replied(Reply::Done) | Answer::Created => None,
            },
        );
        let outcome = polled.and_then(|completed| match completed {
            None => Ok(None),
            Some(Completed::Job(outcome)) => Ok(Some(outcome)),
            Some(Completed::Imported(memory, initiator)) => self
                .service
                .prepare_memory(&self.device, &memory, initiator)
                .map(|export| Some(Outcome::Exported(export))),
            Some(Completed::Stopped) => self.leave_comch().map(|()| None),
        });
        outcome.transpose()
    }

    fn leave_comch(&mut self) -> Result<(), Failure> {
        let within = self.flags.control_timeout() + WORKER_GRACE;
        for worker in &mut self.workers {
            worker.begin(Command::LeaveComch, within)?;
        }
        self.job.await_replies();
        Ok(())
    }

    fn create_worker(&mut self, index: u32, transaction_count: u32) -> Result<(), Failure> {
        let (client, limits) = if self.session.is_maintenance() {
            (None, Limits::default())
        } else {
            let gone = || Failure::new(ErrorCode::NOT_CONNECTED, "the initiator is gone");
            let client = self.client.connection().ok_or_else(gone)?;
            (Some(client), self.flags.limits())
        };
        // The session creates at most as many workers as there are CPUs.
        let core = usize::try_from(index)
            .ok()
            .and_then(|index| self.flags.cpu.get(index).copied());
        let core =
            core.ok_or_else(|| Failure::invalid(format!("there is no --cpu for worker {index}")))?;
        let create = self.service.worker(WorkerSetup {
            index,
            core,
            device: self.device.clone(),
            client,
            transaction_count,
            features: self.session.features(),
            release: self.session.release(),
            limits,
            metrics: self.metrics.worker(core),
        })?;
        let waker = self.shutdown.waker().clone();
        let within = self.flags.control_timeout();
        let worker = Worker::begin_spawn(index, core, waker, within, create)?;
        self.workers.push(worker);
        Ok(())
    }

    fn begin(&mut self, index: u32, command: Command) -> Result<(), Failure> {
        let worker = usize::try_from(index)
            .ok()
            .and_then(|index| self.workers.get_mut(index));
        let worker =
            worker.ok_or_else(|| Failure::invalid(format!("there is no worker {index}")))?;
        worker.begin(command, self.flags.control_timeout() + WORKER_GRACE)
    }
}
