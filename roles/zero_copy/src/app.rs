//! Drives the session of the service over real channels and real workers.

use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::{Device, ErrorCode, Mmap};
use role_common::Failure;
use role_common::application::Environment;
use role_common::control::{
    ChannelEvent, ComchServerChannel, ControlChannel, TcpClientChannel, Waiter,
};
use role_common::shutdown::Shutdown;
use role_common::statistics::{CoreStatistics, Statistics};
use role_common::worker::Worker;
use wire::control::RdmaConnectionDetails;

use crate::cli::Flags;
use crate::data_path::{Command, Reply, Setup, ZeroCopyDataPath};
use crate::session::{Action, Job, Outcome, Session};

/// Added to the time that a worker itself has for something, so that it is the worker that says
/// what it waited for.
const WORKER_GRACE: Duration = Duration::from_secs(1);

/// How long the last messages may take to leave.
const FAREWELL: Duration = Duration::from_secs(1);

pub(crate) fn run(flags: Flags, environment: Environment) -> Result<(), Failure> {
    let console = environment.console;
    let device = Device::open(&flags.device)
        .map_err(|error| Failure::from(error).context(format_args!("--device {}", flags.device)))?;
    let representor = device
        .open_representor(&flags.representor)
        .map_err(|error| {
            Failure::from(error).context(format_args!("--representor {}", flags.representor))
        })?;
    let client = ComchServerChannel::start(&device, &representor, &flags.command_channel_name)?;
    let storage = TcpClientChannel::connect(flags.storage_server);
    let cpu_count = u32::try_from(flags.cpu.len()).unwrap_or(u32::MAX);
    let mut app = App {
        workers: Vec::new(),
        memory: None,
        client,
        storage,
        session: Session::new(cpu_count, flags.control_timeout),
        waiter: Waiter::new(environment.shutdown.clone()),
        shutdown: environment.shutdown,
        device,
        flags,
        statistics: Vec::new(),
    };
    app.connect_to_storage()?;
    // Whoever starts an initiator next may wait for this line.
    console.announce(format_args!("waiting for the {}", app.client.peer()));
    let result = app.serve();
    app.client.flush(FAREWELL);
    app.storage.flush(FAREWELL);
    result?;
    console.report(&Statistics::new(
        crate::NAME,
        std::mem::take(&mut app.statistics),
    ));
    Ok(())
}

/// Fields are in the order in which they must be dropped.
struct App {
    workers: Vec<Worker<ZeroCopyDataPath>>,
    /// The initiator's memory, which the target uses as long as it is imported here.
    memory: Option<Mmap>,
    client: ComchServerChannel,
    storage: TcpClientChannel,
    session: Session,
    waiter: Waiter,
    shutdown: Shutdown,
    device: Device,
    flags: Flags,
    statistics: Vec<CoreStatistics>,
}

impl App {
    /// Initiators are served from the moment on that there is a target.
    fn connect_to_storage(&mut self) -> Result<(), Failure> {
        tracing::info!("connecting to the {}", self.storage.peer());
        while self.storage.poll()? != Some(ChannelEvent::Connected) {
            if self.shutdown.is_requested() {
                return Err(Failure::aborted(format_args!(
                    "connecting to the {}",
                    self.storage.peer()
                )));
            }
            self.waiter.wait(&[&self.storage], None);
        }
        Ok(())
    }

    fn serve(&mut self) -> Result<(), Failure> {
        loop {
            while let Some(action) = self.session.next_action() {
                match action {
                    Action::SendToClient(message) => self.client.send(&message)?,
                    Action::SendToStorage(message) => self.storage.send(&message)?,
                    Action::Do(job) => {
                        let outcome = self.perform(job);
                        self.session.complete(Instant::now(), outcome);
                    }
                    Action::End(result) => return result,
                }
            }
            if self.shutdown.is_requested() {
                let waiting = self.session.waiting_for();
                self.session
                    .fail(Failure::aborted(format_args!("waiting for {waiting}")));
            } else if self.take_events() {
                self.waiter.active();
            } else {
                self.waiter
                    .wait(&[&self.client, &self.storage], self.session.deadline());
                self.session.timed_out(Instant::now());
            }
        }
    }

    /// Gives the session what happened, and returns whether anything did.
    fn take_events(&mut self) -> bool {
        let now = Instant::now();
        let client = self.client.poll();
        let storage = self.storage.poll();
        let quiet = matches!((&client, &storage), (Ok(None), Ok(None)));
        // The target first: what it said last explains what comes after.
        match storage {
            Ok(Some(event)) => self.session.storage_event(now, event),
            Ok(None) => {}
            Err(failure) => self.session.fail(failure),
        }
        match client {
            Ok(Some(event)) => self.session.client_event(now, event),
            Ok(None) => {}
            Err(failure) => self.session.fail(failure),
        }
        // A data path ends by itself only when it fails.
        for worker in self.workers.iter_mut().filter(|worker| worker.is_running()) {
            if let Err(failure) = worker.poll() {
                self.session.fail(failure);
            }
        }
        !quiet
    }

    fn perform(&mut self, job: Job) -> Result<Outcome, Failure> {
        match job {
            Job::ImportMemory(blob) => return self.import_memory(&blob).map(Outcome::Exported),
            Job::CreateWorker {
                index,
                transaction_count,
            } => self.create_worker(index, transaction_count)?,
            Job::Export { index, role } => match self.execute(index, Command::Export(role))? {
                Reply::Exported(export) => return Ok(Outcome::Exported(Bytes::from(export))),
                Reply::Done => {
                    return Err(Failure::unexpected(
                        "a worker gave another reply than to the command",
                    ));
                }
            },
            Job::Connect(RdmaConnectionDetails {
                context_index,
                role,
                connection_details,
            }) => {
                self.execute(context_index, Command::Connect(role, connection_details))?;
            }
            Job::StartWorkers { consumers } => self.start_workers(&consumers)?,
            Job::StopWorkers => self.stop_workers()?,
            Job::DestroyWorkers => self.workers.clear(),
        }
        Ok(Outcome::Done)
    }

    fn import_memory(&mut self, blob: &[u8]) -> Result<Bytes, Failure> {
        let doing = "memory map of the init request";
        let memory = Mmap::import(&self.device, blob)
            .map_err(|error| Failure::from(error).context(doing))?;
        let export = memory
            .export_rdma(&self.device)
            .map_err(|error| Failure::from(error).context(doing))?;
        self.memory = Some(memory);
        Ok(Bytes::from(export))
    }

    fn create_worker(&mut self, index: u32, transaction_count: u32) -> Result<(), Failure> {
        let client = self.client.connection();
        let client = client
            .ok_or_else(|| Failure::new(ErrorCode::NOT_CONNECTED, "the initiator is gone"))?;
        // The session asked for no more workers than there are CPUs.
        let core = usize::try_from(index)
            .ok()
            .and_then(|index| self.flags.cpu.get(index).copied());
        let core =
            core.ok_or_else(|| Failure::invalid(format!("there is no --cpu for worker {index}")))?;
        let setup = Setup {
            core,
            device: self.device.clone(),
            client,
            transaction_count,
        };
        let create = || ZeroCopyDataPath::create(setup);
        let waker = self.shutdown.waker().clone();
        self.workers.push(Worker::spawn(
            index,
            core,
            waker,
            self.flags.control_timeout,
            create,
        )?);
        Ok(())
    }

    fn execute(&mut self, index: u32, command: Command) -> Result<Reply, Failure> {
        let worker = usize::try_from(index)
            .ok()
            .and_then(|index| self.workers.get_mut(index));
        let worker =
            worker.ok_or_else(|| Failure::invalid(format!("there is no worker {index}")))?;
        worker.execute(command, self.flags.control_timeout + WORKER_GRACE)
    }

    fn start_workers(&mut self, consumers: &[u32]) -> Result<(), Failure> {
        let within = self.flags.control_timeout;
        for (worker, &consumer) in self.workers.iter_mut().zip(consumers) {
            worker.execute(Command::Prepare { consumer, within }, within + WORKER_GRACE)?;
        }
        self.workers.iter_mut().try_for_each(Worker::start)
    }

    fn stop_workers(&mut self) -> Result<(), Failure> {
        let within = self.flags.control_timeout + WORKER_GRACE;
        self.workers.iter().for_each(Worker::request_stop);
        for worker in &mut self.workers {
            self.statistics.push(worker.stop(within)?);
        }
        for worker in &mut self.workers {
            worker.execute(Command::LeaveComch, within)?;
        }
        Ok(())
    }
}
