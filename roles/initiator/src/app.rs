//! Runs the session over the real channel and the workers, and reports the result.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::{Device, ErrorCode};
use role_common::Failure;
use role_common::application::Environment;
use role_common::control::Waiter;
use volume::driver::Driver;
use volume::session::{Action, Event, SessionConfig};
use wire::control::{FEATURE_FLUSH, StorageDetails};

use crate::cli::Flags;
use crate::conclusion::{Conclusion, Findings};
use crate::data_path::Messaging;
use crate::progress::Progress;
use crate::statistics::Report;
use crate::storage::{self, Storage};
use crate::workers::{self, Workers};

/// Polling interval for contexts that are starting.
const CREATION_POLL: Duration = Duration::from_millis(1);

/// Polling interval during the shutdown after an interruption.
const WIND_DOWN_POLL: Duration = Duration::from_millis(1);

/// Time added to the I/O timeout for the data path to stop.
const HALT_MARGIN: Duration = Duration::from_secs(1);

/// Runs the test described by the flags.
///
/// # Errors
/// The test failed, or did not start. Measurements and findings are printed before that.
pub fn run(flags: Flags, environment: Environment) -> Result<(), Failure> {
    let seed = match flags.seed {
        Some(seed) => seed,
        None => getrandom::u64().map_err(|error| {
            Failure::new(
                ErrorCode::OPERATING_SYSTEM,
                format!("no random seed: {error}; give --seed"),
            )
        })?,
    };
    let plain = storage::load_content(&flags)?;
    let reported_seed = storage::reported_seed(&flags, plain.as_ref(), seed);
    if let Some(seed) = reported_seed {
        tracing::info!("the validation pattern has seed {seed}");
    }
    environment.metrics.declare(&[], true);
    let mut app = App::new(flags, environment, plain, seed)?;
    app.drive();
    app.conclude(reported_seed).print(app.environment.console)
}

struct App {
    // Dropped in this order: workers before the memory and the connection that they use.
    workers: Workers,
    storage: Option<Storage>,
    driver: Driver,
    device: Device,
    waiter: Waiter,
    progress: Option<Progress>,
    plain: Option<Arc<[u8]>>,
    seed: u64,
    interrupted: bool,
    /// `true` if the run ended before the session failed: a failure of the run is then not a consequence of the session's.
    run_came_first: bool,
    flags: Flags,
    environment: Environment,
}

impl App {
    fn new(
        flags: Flags,
        environment: Environment,
        plain: Option<Arc<[u8]>>,
        seed: u64,
    ) -> Result<Self, Failure> {
        let device = Device::open(&flags.device).map_err(|error| {
            Failure::from(error).context(format_args!("--device {}", flags.device))
        })?;
        let config = SessionConfig {
            workers: flags.cpu.len() as u32,
            control_timeout: flags.control_timeout,
            halt_timeout: flags.io_timeout + HALT_MARGIN,
            features: if flags.flush_every == 0 {
                0
            } else {
                FEATURE_FLUSH
            },
            release: flags.release(),
        };
        Ok(Self {
            workers: Workers::new(
                flags.cpu.clone(),
                environment.shutdown.waker().clone(),
                flags.control_timeout,
                &environment.metrics,
            ),
            storage: None,
            driver: Driver::connect(&device, &flags.command_channel_name, config)?,
            device,
            waiter: Waiter::new(environment.shutdown.clone()),
            progress: None,
            plain,
            seed,
            interrupted: false,
            run_came_first: false,
            flags,
            environment,
        })
    }

    /// Handles events until the session has ended.
    fn drive(&mut self) {
        loop {
            while let Some(action) = self.driver.session.poll_action() {
                if action == Action::Finish {
                    self.progress = None;
                    return;
                }
                if let Err(failure) = self.perform(action) {
                    self.driver.handle(Event::Failed(failure));
                }
            }
            if self.collect() {
                self.waiter.active();
            } else {
                self.wait();
            }
            let now = Instant::now();
            self.driver.handle(Event::Timeout);
            if let Some(progress) = &mut self.progress {
                progress.refresh(now);
            }
        }
    }

    fn perform(&mut self, action: Action) -> Result<(), Failure> {
        match action {
            Action::Send(message) => {
                tracing::info!("{}", message.payload.message_type());
                self.driver.send(&message)?;
            }
            Action::OpenStorage(details) => self.open(&details)?,
            Action::CreateWorkers => self.create_workers()?,
            Action::PrepareWorkers(consumers) => {
                self.workers.prepare(&consumers)?;
                self.driver.handle(Event::WorkersPrepared);
            }
            Action::StartDataPath => {
                let total =
                    u64::from(self.flags.run_limit_operation_count) * self.flags.cpu.len() as u64;
                self.progress = Some(Progress::new(
                    self.flags.progress,
                    total,
                    self.workers.counters(),
                ));
                self.workers.start()?;
            }
            Action::HaltDataPath { drain } => self.workers.halt(drain),
            Action::DestroyWorkers => {
                self.progress = None;
                self.workers.destroy();
                self.driver.handle(Event::WorkersDestroyed);
            }
            Action::Finish => {}
        }
        Ok(())
    }

    fn open(&mut self, details: &StorageDetails) -> Result<(), Failure> {
        if self.flags.flush_every != 0 && self.driver.session.features() & FEATURE_FLUSH == 0 {
            return Err(Failure::new(
                ErrorCode::NOT_SUPPORTED,
                "the storage does not announce flush, so nothing that is written to it is known to survive a power failure: expected a service \
                 and targets that have it, with --backing-file; or run without --flush-every",
            ));
        }
        tracing::info!(
            "the storage has {} bytes in blocks of {} bytes",
            details.total_size,
            details.block_size
        );
        let storage = Storage::open(
            &self.device,
            details,
            &self.flags,
            self.plain.take(),
            self.seed,
        )?;
        let init = storage.init(&self.device)?;
        self.storage = Some(storage);
        self.driver.handle(Event::Opened(init));
        Ok(())
    }

    fn create_workers(&mut self) -> Result<(), Failure> {
        let Some(storage) = &self.storage else {
            return Err(Failure::new(
                ErrorCode::BAD_STATE,
                "workers without a storage",
            ));
        };
        let contexts = self.driver.contexts(&self.device)?;
        let messaging = Messaging {
            release: self.flags.release(),
            local_address: storage.local_address(),
        };
        self.workers
            .create(contexts, messaging, storage.tasks(&self.flags))
    }

    /// Passes events to the session; returns `true` if there were any.
    fn collect(&mut self) -> bool {
        let mut happened = false;
        if self.environment.shutdown.is_requested() && !self.interrupted {
            self.interrupted = true;
            happened = true;
            tracing::warn!("interrupted: stopping the storage");
            self.driver.handle(Event::Interrupted);
        }
        happened |= self.driver.poll();
        match self.workers.poll() {
            Ok(None) => {}
            Ok(Some(event)) => {
                happened = true;
                let input = match event {
                    workers::Event::Ready => Event::WorkersReady,
                    workers::Event::Finished => {
                        self.run_came_first = self.driver.session.result().is_ok();
                        Event::WorkersFinished
                    }
                };
                self.driver.handle(input);
            }
            Err(failure) => {
                happened = true;
                self.driver.handle(Event::Failed(failure));
            }
        }
        happened
    }

    fn wait(&mut self) {
        if self.interrupted {
            // The waiter returns at once after a shutdown request, and the session would spin.
            return std::thread::sleep(WIND_DOWN_POLL);
        }
        let now = Instant::now();
        let creation = self.workers.is_polled().then_some(now + CREATION_POLL);
        let progress = self
            .progress
            .as_ref()
            .and_then(|progress| progress.deadline(now));
        self.driver.wait(&mut self.waiter, &[creation, progress]);
    }

    fn conclude(&self, seed: Option<u64>) -> Conclusion {
        let strategy = self.flags.execution_strategy;
        let measurements = self.workers.measurements();
        Findings {
            strategy,
            seed,
            session: self.driver.session.result(),
            failure: self.workers.failure(),
            run_came_first: self.run_came_first,
            measured: measurements
                .map(|(start, workers)| Report::new(strategy, seed, start, workers)),
        }
        .conclude()
    }
}
