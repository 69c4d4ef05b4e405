//! Drives the session of a service over real channels and real workers.

mod jobs;

use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::{Device, ErrorCode, Mmap};
use wire::control::Payload;

use super::command::{Command, Reply, WorkerSetup};
use super::flags::ServiceFlags;
use super::records::Records;
use super::session::{Action, Job, Layout, Memory, Outcome, Session};
use super::survival::{Comeback, Survival};
use crate::application::Environment;
use crate::budget::{Deadline, Quota};
use crate::control::{ChannelEvent, ComchServerChannel, ControlChannel, TcpClientChannel, Waiter};
use crate::failure::{Failure, FirstFailure};
use crate::sessions::{self, Broken};
use crate::shutdown::Shutdown;
use crate::worker::{DataPath, Worker};
use jobs::Running;

/// How long the last messages may take to leave.
const FAREWELL: Duration = Duration::from_secs(1);

/// What distinguishes one service from another.
pub trait Service {
    /// How it makes one storage of its targets.
    type Layout: Layout + Clone;
    /// What its workers do.
    type DataPath: DataPath<Command = Command, Reply = Reply>;

    /// Takes the initiator's memory, which has been imported, prepares what else the I/Os need, and returns the export of
    /// the memory that the targets are to use.
    ///
    /// # Errors
    ///
    /// The memory cannot be exported or allocated. The initiator is told, and may try again.
    fn prepare_memory(
        &mut self,
        device: &Device,
        memory: &Memory,
        initiator: Mmap,
    ) -> Result<Bytes, Failure>;

    /// Returns what makes the data path of a worker, on the worker's thread.
    ///
    /// # Errors
    ///
    /// The memory was not prepared.
    fn worker(
        &self,
        setup: WorkerSetup,
    ) -> Result<impl FnOnce() -> Result<Self::DataPath, Failure> + Send + 'static, Failure>;

    /// What goes on when a target is lost while I/Os are served. Without it, the session ends.
    fn survival(&mut self) -> Option<&mut dyn Survival> {
        None
    }
}

/// Serves sessions with the targets at `addresses`, one for each of the layout's: as many as the flags say, each by a service of
/// its own that `service` makes. `report` is told what the workers of a session that ended well report.
///
/// # Errors
///
/// A device that is not there, a peer or a worker that failed, or the user's wish to end.
///
/// # Panics
///
/// There are not as many addresses as targets.
pub fn run<S: Service>(
    mut service: impl FnMut() -> S,
    layout: &S::Layout,
    flags: &ServiceFlags,
    addresses: &[SocketAddrV4],
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
    let opens = |request: &Payload| *request == Payload::QueryStorageRequest;
    let name = &flags.command_channel_name;
    let mut client = ComchServerChannel::start(&device, &representor, name, opens)?;
    let cpu_count = u32::try_from(flags.cpu.len()).unwrap_or(u32::MAX);
    sessions::serve(flags.sessions.sessions, environment, || {
        let app = App {
            workers: Vec::new(),
            service: service(),
            client: &mut client,
            storage: addresses
                .iter()
                .copied()
                .map(TcpClientChannel::connect)
                .collect(),
            session: Session::new(layout.clone(), cpu_count, flags.control_timeout)
                .with_limits(flags.init_limits),
            refused: Quota::refused_requests(),
            running: None,
            job_failure: FirstFailure::default(),
            waiter: Waiter::new(environment.shutdown.clone()),
            shutdown: environment.shutdown.clone(),
            device: device.clone(),
            flags,
            reports: Vec::new(),
            comeback: Comeback::new(),
            records: Records::new(addresses.len(), flags.control_timeout),
            waits_for_records: false,
        };
        report(app.run(environment)?);
        Ok(())
    })
}

/// Fields are in the order in which they must be dropped.
struct App<'a, S: Service> {
    workers: Vec<Worker<S::DataPath>>,
    /// It may hold memory that the workers and the targets use.
    service: S,
    client: &'a mut ComchServerChannel,
    storage: Vec<TcpClientChannel>,
    session: Session<S::Layout>,
    refused: Quota,
    /// The job at hand.
    running: Option<Running>,
    /// The first failure of a worker in it.
    job_failure: FirstFailure,
    waiter: Waiter,
    shutdown: Shutdown,
    device: Device,
    flags: &'a ServiceFlags,
    reports: Vec<<S::DataPath as DataPath>::Report>,
    comeback: Comeback,
    records: Records,
    /// Whether the session goes on when all targets keep what they are to keep.
    waits_for_records: bool,
}

impl<S: Service> App<'_, S> {
    /// Serves a session from its beginning to its end, and leaves nothing of it.
    fn run(
        mut self,
        environment: &Environment,
    ) -> Result<Vec<<S::DataPath as DataPath>::Report>, Broken> {
        let result = self.connect_to_storage().and_then(|()| {
            // Whoever starts an initiator next may wait for this line.
            environment
                .console
                .announce(format_args!("waiting for the {}", self.client.peer()));
            self.serve()
        });
        let ended_well = result.is_ok();
        let begun = self.session.has_client();
        for storage in &mut self.storage {
            storage.flush(FAREWELL);
        }
        self.client.flush(FAREWELL);
        // Of a job that is given up.
        self.running = None;
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
        // In the order in which they use each other.
        drop((service, storage));
        if let Err(stuck) = &ended {
            tracing::error!("{stuck}");
        }
        if !flags.sessions.sessions.is_single() {
            client.next_client(ended_well);
        }
        match result.and(ended) {
            Ok(()) => Ok(reports),
            Err(failure) if begun => Err(Broken::During(failure)),
            Err(failure) => Err(Broken::Before(failure)),
        }
    }

    /// Initiators are served from the moment on that there are targets. A refused connection is tried again: the target may be starting.
    fn connect_to_storage(&mut self) -> Result<(), Failure> {
        let timeout = self.flags.control_timeout;
        let deadline = Deadline::new(Instant::now(), timeout);
        for storage in &mut self.storage {
            tracing::info!("connecting to the {}", storage.peer());
            let mut is_announced = false;
            while storage.poll()? != Some(ChannelEvent::Connected) {
                if storage.is_refused() && !std::mem::replace(&mut is_announced, true) {
                    tracing::warn!(
                        "the {} refused the connection, trying again until {timeout:?} after the start, see --control-timeout",
                        storage.peer()
                    );
                }
                let why = if is_announced {
                    "it refuses connections, start it first"
                } else {
                    "it does not answer"
                };
                let waiting = format_args!("a connection to the {}: {why}", storage.peer());
                deadline.check(Instant::now(), waiting)?;
                if self.shutdown.is_requested() {
                    return Err(Failure::aborted(format_args!(
                        "connecting to the {}",
                        storage.peer()
                    )));
                }
                self.waiter.wait(&[storage], Some(deadline.at()));
            }
        }
        Ok(())
    }

    fn serve(&mut self) -> Result<(), Failure> {
        let mut silent_since = Instant::now();
        if self.service.survival().is_some() {
            self.session.identify_targets();
        }
        loop {
            self.part_from_lost();
            while let Some(action) = self.session.next_action() {
                match action {
                    Action::SendToClient(message) => {
                        self.client.send(&message)?;
                        if let Payload::ErrorResponse(_) = message.payload {
                            self.refused.charge(1)?;
                        }
                    }
                    Action::SendToStorage { target, .. } if self.session.is_without(target) => {}
                    Action::SendToStorage { target, message } => {
                        self.storage[target].send(&message)?;
                    }
                    Action::Do(Job::OpenRecords) => self.waits_for_records = true,
                    Action::Do(Job::CloseRecords) => {
                        self.waits_for_records = true;
                        if let Some(survival) = self.service.survival() {
                            survival.conclude();
                        }
                    }
                    Action::Do(job) => {
                        if let Err(failure) = self.start_job(job) {
                            self.session.complete(Instant::now(), Err(failure));
                        }
                    }
                    Action::End(result) => return result,
                }
            }
            if self.keep_records()? {
                continue;
            }
            if let Some(outcome) = self.finish_job() {
                self.session.complete(Instant::now(), outcome);
                silent_since = Instant::now();
                continue;
            }
            if self.shutdown.is_requested() {
                let waiting = self.session.waiting_for();
                self.session
                    .fail(Failure::aborted(format_args!("waiting for {waiting}")));
            } else if self.take_events() {
                self.waiter.active();
                silent_since = Instant::now();
            } else {
                let silence = self
                    .flags
                    .idle_timeout
                    .0
                    .filter(|_| self.session.waits_for_request());
                let mut channels: Vec<&dyn ControlChannel> = vec![&*self.client];
                channels.extend(
                    (self.storage.iter().enumerate())
                        .filter(|&(target, _)| {
                            !self.session.is_without(target)
                                || self.comeback.target() == Some(target)
                        })
                        .map(|(_, channel)| channel as &dyn ControlChannel),
                );
                let silent_until = silence.map(|limit| silent_since + limit);
                let deadline = self
                    .session
                    .deadline()
                    .into_iter()
                    .chain(silent_until)
                    .chain(self.job_deadline())
                    .chain(self.comeback.deadline())
                    .chain(self.records.deadline())
                    .min();
                self.waiter.wait(&channels, deadline);
                let now = Instant::now();
                self.session.timed_out(now);
                if let Some(limit) = silence.filter(|&limit| silent_since + limit <= now) {
                    let waiting = self.session.waiting_for();
                    self.session.fail(Failure::timed_out(waiting, limit));
                }
            }
        }
    }

    /// Gives the session what happened, and returns whether anything did.
    fn take_events(&mut self) -> bool {
        let now = Instant::now();
        let client = self.client.poll();
        let mut quiet = matches!(client, Ok(None));
        // The targets first: what they said last explains what comes after.
        for (target, storage) in self.storage.iter_mut().enumerate() {
            if self.session.is_without(target) {
                continue;
            }
            let mut event = storage.poll();
            quiet &= matches!(event, Ok(None));
            if let Ok(Some(ChannelEvent::Message(message))) = &event
                && let Some(answer) = self.records.answer(target, message)
            {
                match (answer, self.service.survival()) {
                    (Ok(record), Some(survival)) => {
                        survival.recorded(target, record);
                        continue;
                    }
                    (Ok(_), None) => continue,
                    (Err(failure), _) => event = Err(failure),
                }
            }
            let gone = match &event {
                Ok(Some(ChannelEvent::Closed)) => Some(left()),
                // Who talks nonsense is of no more use than who has left.
                Ok(Some(ChannelEvent::Message(message))) => self.session.unasked(target, message),
                Err(failure) => Some(failure.clone()),
                Ok(_) => None,
            };
            if let Some(why) = gone
                && self.session.may_lose(target)
                && let Some(survival) = self.service.survival()
            {
                survival.lose(target, &why);
                continue;
            }
            match event {
                Ok(Some(event)) => self.session.storage_event(now, target, event),
                Ok(None) => continue,
                Err(failure) => self.session.fail(failure),
            }
        }
        if let Some(survival) = self.service.survival() {
            let timeout = self.flags.control_timeout;
            let (session, storage) = (&mut self.session, &mut self.storage);
            quiet &= !self.comeback.go_on(survival, session, storage, timeout);
        }
        match client {
            Ok(Some(event)) => self.session.client_event(now, event),
            Ok(None) => {}
            Err(failure) => self.session.fail(failure),
        }
        // A data path ends by itself only when it fails.
        let running = |worker: &&mut Worker<_>| worker.is_running() && !worker.is_pending();
        for worker in self.workers.iter_mut().filter(running) {
            if let Err(failure) = worker.poll() {
                self.session.fail(failure);
            }
        }
        !quiet
    }

    /// Parts from the targets that the service goes on without.
    fn part_from_lost(&mut self) {
        let Some(survival) = self.service.survival() else {
            return;
        };
        for (target, storage) in self.storage.iter_mut().enumerate() {
            if survival.has_lost(target) && self.session.may_lose(target) {
                self.session.lose(Instant::now(), target);
                self.records.forget(target);
                storage.disconnect();
            }
        }
    }

    /// Has the targets keep what they are to keep, and returns whether the session goes on because they do.
    fn keep_records(&mut self) -> Result<bool, Failure> {
        let now = Instant::now();
        let Some(survival) = self.service.survival() else {
            return Ok(false);
        };
        if let Some((target, late)) = self.records.late(now) {
            self.records.forget(target);
            if self.session.may_lose(target) {
                survival.lose(target, &late);
            } else {
                self.session.fail(late.context(self.storage[target].peer()));
            }
            return Ok(true);
        }
        let mut are_kept = true;
        for (target, storage) in self.storage.iter_mut().enumerate() {
            if self.session.is_without(target) {
                continue;
            }
            let wanted = survival.record_of(target);
            if let Some(request) = self.records.request(now, target, wanted) {
                storage.send(&request)?;
            }
            are_kept &= self.records.is_kept(target, wanted);
        }
        let goes_on = self.waits_for_records && are_kept;
        if goes_on {
            self.waits_for_records = false;
            self.session.complete(now, Ok(Outcome::Done));
        }
        Ok(goes_on)
    }
}

fn left() -> Failure {
    Failure::new(
        ErrorCode::CONNECTION_RESET,
        "it closed its control connection",
    )
}
