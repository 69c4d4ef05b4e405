//! The initiator: its flags (the reference's, and additional ones), and the program, which runs the session over the real channel and
//! the workers, and reports the result.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use control::Failure;
use control::Waiter;
use doca::{Device, ErrorCode};
use role_common::application::Environment;
use role_common::flags::{self, GeneralFlags, OutputFlags, RoleFlags};
use role_common::protocol::ProtocolFlags;
use serde::Serialize;
use volume::session::{Action, BATCH_SIZE, Driver, Event, SessionConfig};
use wire::control::{FEATURE_FLUSH, StorageDetails};
use wire::release::Release;

use crate::data_path::Messaging;
use crate::layout::{self, Storage};
use crate::statistics::{Conclusion, Findings, Report};
use crate::workers::{self, Progress, Workers};

const EXAMPLE: &str = "Example:
  doca_storage_initiator_comch -d 3b:00.0 --cpu 0 --execution-strategy read_throughput_test --run-limit-operation-count 1000000";

/// Reads, writes, measures and validates a storage through its service.
#[derive(Clone, Debug, Parser)]
#[command(about = "Read, write, measure and validate a storage through its service", after_help = EXAMPLE)]
pub struct Flags {
    /// DOCA's general flags.
    #[command(flatten)]
    pub general: GeneralFlags,

    /// DOCA device: PCI address, RDMA device name or network interface name
    #[arg(short = 'd', long, value_name = "DEVICE")]
    pub device: String,

    /// CPU for a worker thread, which is pinned to it; repeat the flag for more workers
    #[arg(long, value_name = "CPU", required = true, value_parser = flags::cpu)]
    pub cpu: Vec<u32>,

    /// File with the expected data of the storage: validation compares with it, and read_write_data_validity_test
    /// writes it in place of its own pattern
    #[arg(long, value_name = "FILE")]
    pub storage_plain_content: Option<PathBuf>,

    /// Test to run
    #[arg(long, value_enum, value_name = "STRATEGY")]
    pub execution_strategy: Strategy,

    /// Number of operations per worker
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = flags::nonzero_u32)]
    pub run_limit_operation_count: u32,

    /// Number of concurrent transactions per worker
    #[arg(long, value_name = "N", default_value = "64", value_parser = transaction_count)]
    pub transaction_count: u32,

    /// The name of --transaction-count until 3.1; only with --protocol 3.0 or 3.1. Hidden, as is the next one: scripts
    /// recognise the releases of the reference by these flags in the help
    #[arg(long, hide = true, value_name = "N", conflicts_with = "transaction_count", value_parser = transaction_count)]
    pub task_count: Option<u32>,

    /// Number of receive tasks that 3.0 submits together, to which the service adapts its queues; only with --protocol
    /// 3.0. This initiator submits each task at once [default: 1]
    #[arg(long, hide = true, value_name = "N", value_parser = batch_size)]
    pub batch_size: Option<u32>,

    /// Name of the service's Comch server to connect to
    #[arg(long, value_name = "NAME", default_value = flags::DEFAULT_CHANNEL, value_parser = flags::channel_name)]
    pub command_channel_name: String,

    /// Timeout of control operations, in seconds or with a unit such as 2m
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = flags::duration)]
    pub control_timeout: Duration,

    /// Size of the local region, in bytes or with a unit such as 4M; 0 for the size of the storage, but not more than 1 GiB
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = region_size)]
    pub local_io_region_size: u64,

    /// Number of blocks per I/O
    #[arg(long, value_name = "N", default_value = "1", value_parser = blocks_per_io)]
    pub blocks_per_io: u16,

    /// Flush after every N writes per worker, so that they survive a power failure; a write followed by a flush counts
    /// when the flush completes. Service and targets must support flush. 0 disables flushes
    #[arg(long, value_name = "N", default_value = "0", value_parser = flags::number_u32)]
    pub flush_every: u32,

    /// Order in which blocks are accessed
    #[arg(long, value_enum, value_name = "ORDER", default_value = "sequential")]
    pub access_order: AccessOrder,

    /// Timeout of an I/O, in seconds or with a unit such as 2m
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = flags::duration)]
    pub io_timeout: Duration,

    /// Seed of the pattern of read_write_data_validity_test; random by default, so that a storage that ignores writes
    /// is detected even if it holds the pattern of an earlier run
    #[arg(long, value_name = "N", value_parser = seed)]
    pub seed: Option<u64>,

    /// Show a progress line on standard error: auto shows it on a terminal
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub progress: ProgressMode,

    /// Wire format.
    #[command(flatten)]
    pub protocol: ProtocolFlags,

    /// Flags for output, log and metrics.
    #[command(flatten)]
    pub output: OutputFlags,
}

/// Test to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Read, without checking data
    ReadThroughputTest,
    /// Write, without checking data
    WriteThroughputTest,
    /// Write each block, read it back and compare
    ReadWriteDataValidityTest,
    /// Read, and compare with the expected data
    ReadOnlyDataValidityTest,
}

impl Strategy {
    /// Returns `true` if a transaction writes (before it reads).
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(
            self,
            Self::WriteThroughputTest | Self::ReadWriteDataValidityTest
        )
    }

    /// Returns `true` if a transaction reads.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::WriteThroughputTest)
    }

    /// Returns `true` if read data is compared with expected data.
    #[must_use]
    pub const fn validates(self) -> bool {
        matches!(
            self,
            Self::ReadWriteDataValidityTest | Self::ReadOnlyDataValidityTest
        )
    }
}

/// Order in which a worker visits its blocks, repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AccessOrder {
    /// In ascending order
    Sequential,
    /// Scattered over all blocks, each once per pass
    Scattered,
}

/// Condition for showing the progress line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// If standard error is a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Flags {
    /// Release of the requests.
    #[must_use]
    pub fn release(&self) -> Release {
        self.protocol.protocol.chosen().unwrap_or_default()
    }

    /// Number of concurrent transactions per worker.
    #[must_use]
    pub fn transactions(&self) -> u32 {
        self.task_count.unwrap_or(self.transaction_count)
    }
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
        if self.execution_strategy == Strategy::ReadOnlyDataValidityTest
            && self.storage_plain_content.is_none()
        {
            return Err(Failure::invalid(
                "--execution-strategy read_only_data_validity_test needs --storage-plain-content FILE to compare with",
            ));
        }
        if self.local_io_region_size != 0 && self.release() == Release::V3_0 {
            return Err(Failure::invalid(
                "--local-io-region-size: with --protocol 3.0, expected none: the local region is as large as the storage",
            ));
        }
        if self.task_count.is_some() && !matches!(self.release(), Release::V3_0 | Release::V3_1) {
            return Err(Failure::invalid(
                "--task-count: expected --protocol 3.0 or 3.1, or --transaction-count, the name since 3.2",
            ));
        }
        if self.batch_size.is_some() && self.release() != Release::V3_0 {
            return Err(Failure::invalid(
                "--batch-size: expected --protocol 3.0: later releases do not have it",
            ));
        }
        if self.flush_every != 0 && !self.execution_strategy.writes() {
            return Err(Failure::invalid(
                "--flush-every needs an --execution-strategy that writes",
            ));
        }
        Ok(())
    }
}

/// Each transaction takes two receive tasks and a send task, and twice that number at the service.
const MAX_TRANSACTIONS: u32 = 1 << 16;

fn transaction_count(text: &str) -> Result<u32, String> {
    in_range(text, 1, u64::from(MAX_TRANSACTIONS)).map(|count| count as u32)
}

fn batch_size(text: &str) -> Result<u32, String> {
    in_range(text, 1, u64::from(u8::MAX)).map(|count| count as u32)
}

fn blocks_per_io(text: &str) -> Result<u16, String> {
    in_range(text, 1, u64::from(u16::MAX)).map(|count| count as u16)
}

fn region_size(text: &str) -> Result<u64, String> {
    flags::size(text)
        .ok()
        .filter(|&size| size <= i64::MAX as u64)
        .ok_or_else(|| format!("expected bytes, 0 to {}, or a size such as 4M", i64::MAX))
}

fn seed(text: &str) -> Result<u64, String> {
    in_range(text, 0, u64::MAX)
}

fn in_range(text: &str, min: u64, max: u64) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("expected a number, {min} to {max}")),
    }
}

/// Polling interval for contexts that are starting.
const CREATION_POLL: Duration = Duration::from_millis(1);

/// Polling interval during the shutdown after an interruption.
const WIND_DOWN_POLL: Duration = Duration::from_millis(1);

/// Time added to the I/O timeout for the data path to stop.
const HALT_MARGIN: Duration = Duration::from_secs(1);

/// Runs the test described by the flags.
///
/// # Errors
/// The test failed, or did not start. Measurements and findings are printed in any case.
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
    let plain = layout::load_content(&flags)?;
    let reported_seed = layout::reported_seed(&flags, plain.as_ref(), seed);
    if let Some(seed) = reported_seed {
        tracing::info!("the validation pattern has seed {seed}");
    }
    environment.metrics.declare(&[], true);
    let mut app = App::new(flags, environment, plain, seed)?;
    app.drive();
    app.conclude(reported_seed).print(app.environment.console)
}

struct App {
    // Drop order: workers before the memory and the connection that they use.
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
            batch_size: flags
                .batch_size
                .unwrap_or(BATCH_SIZE)
                .min(flags.transactions()),
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
                "the storage does not announce flush, so writes may not survive a power failure: expected a service \
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
            // The waiter returns immediately after a shutdown request, so the session would busy-wait.
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use role_common::flags::{FlagsError, OutputFormat};

    use super::*;

    fn parse(args: &[&str]) -> Result<Flags, FlagsError> {
        flags::read(
            crate::NAME,
            std::iter::once(crate::NAME)
                .chain(args.iter().copied())
                .map(OsString::from),
        )
    }

    /// A CPU that this process may use, as a flag's value.
    fn cpu() -> String {
        (0..4096)
            .map(|index: u32| index.to_string())
            .find(|index| flags::cpu(index).is_ok())
            .expect("a CPU")
    }

    fn with(more: &[&str]) -> Result<Flags, FlagsError> {
        let cpu = cpu();
        let mut args = vec![
            "-d",
            "3b:00.0",
            "--cpu",
            &cpu,
            "--execution-strategy",
            "read_throughput_test",
        ];
        args.extend(more);
        parse(&args)
    }

    fn usage_error(result: Result<Flags, FlagsError>) -> String {
        match result {
            Err(FlagsError::Usage(text)) => text,
            other => panic!("expected a usage error, got {other:?}"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let flags = with(&[]).expect("complete");
        assert_eq!(flags.device, "3b:00.0");
        assert_eq!(flags.execution_strategy, Strategy::ReadThroughputTest);
        assert_eq!(flags.run_limit_operation_count, 1_000_000);
        assert_eq!(flags.transaction_count, 64);
        assert_eq!(flags.command_channel_name, "doca_storage_comch");
        assert_eq!(flags.control_timeout, Duration::from_secs(5));
        assert_eq!(flags.local_io_region_size, 0);
        assert_eq!(flags.blocks_per_io, 1);
        assert_eq!(flags.io_timeout, Duration::from_secs(5));
        assert_eq!(
            (flags.seed, flags.progress, flags.output().output),
            (None, ProgressMode::Auto, OutputFormat::Text)
        );
        assert!(flags.check().is_ok());
    }

    #[test]
    fn flags_of_earlier_releases_need_their_protocol() {
        let flags = with(&[
            "--protocol",
            "3.0",
            "--task-count",
            "7",
            "--batch-size",
            "4",
        ]);
        let flags = flags.expect("flags of 3.0");
        assert_eq!((flags.transactions(), flags.batch_size), (7, Some(4)));
        let flags = with(&["--protocol", "3.1", "--task-count", "7"]).expect("a flag of 3.1");
        assert_eq!((flags.transactions(), flags.batch_size), (7, None));
        for wrong in [
            &["--task-count", "7"][..],
            &["--protocol", "3.2", "--task-count", "7"],
            &["--protocol", "3.1", "--batch-size", "4"],
            &["--protocol", "3.0", "--batch-size", "0"],
            &[
                "--protocol",
                "3.0",
                "--task-count",
                "7",
                "--transaction-count",
                "7",
            ],
        ] {
            let is_accepted = with(wrong).is_ok_and(|flags| flags.check().is_ok());
            assert!(!is_accepted, "{wrong:?}");
        }
    }

    #[test]
    fn every_flag_is_read() {
        let cpu = cpu();
        let flags = with(&[
            "--cpu",
            &cpu,
            "--storage-plain-content",
            "file",
            "--run-limit-operation-count",
            "7",
            "--transaction-count",
            "8",
            "--command-channel-name",
            "channel",
            "--control-timeout",
            "9",
            "--local-io-region-size",
            "8589934592",
            "--blocks-per-io",
            "4",
            "--io-timeout",
            "2",
            "--seed",
            "18446744073709551615",
            "--progress",
            "never",
            "--output",
            "json",
        ])
        .expect("all known");
        assert_eq!(flags.cpu.len(), 2);
        assert_eq!(flags.storage_plain_content, Some("file".into()));
        assert_eq!(
            (flags.run_limit_operation_count, flags.transaction_count),
            (7, 8)
        );
        assert_eq!(flags.command_channel_name, "channel");
        assert_eq!(
            (flags.control_timeout.as_secs(), flags.io_timeout.as_secs()),
            (9, 2)
        );
        assert_eq!(
            (flags.local_io_region_size, flags.blocks_per_io),
            (8 << 30, 4)
        );
        assert_eq!(
            (flags.seed, flags.progress, flags.output().output),
            (Some(u64::MAX), ProgressMode::Never, OutputFormat::Json)
        );
    }

    #[test]
    fn strategy_names_are_those_of_the_reference() {
        let strategies = [
            (
                "read_throughput_test",
                Strategy::ReadThroughputTest,
                (true, false, false),
            ),
            (
                "write_throughput_test",
                Strategy::WriteThroughputTest,
                (false, true, false),
            ),
            (
                "read_write_data_validity_test",
                Strategy::ReadWriteDataValidityTest,
                (true, true, true),
            ),
            (
                "read_only_data_validity_test",
                Strategy::ReadOnlyDataValidityTest,
                (true, false, true),
            ),
        ];
        for (name, strategy, does) in strategies {
            let cpu = cpu();
            let flags =
                parse(&["-d", "x", "--cpu", &cpu, "--execution-strategy", name]).expect(name);
            assert_eq!(flags.execution_strategy, strategy);
            assert_eq!(
                (strategy.reads(), strategy.writes(), strategy.validates()),
                does,
                "{name}"
            );
            assert_eq!(serde_json::to_value(strategy).expect("serializable"), name);
        }
    }

    #[test]
    fn error_for_a_wrong_value_names_flag_and_accepted_values() {
        let wrong = [
            ("--run-limit-operation-count", "0", "1 to 4294967295"),
            ("--transaction-count", "0", "1 to 65536"),
            ("--transaction-count", "65537", "1 to 65536"),
            ("--blocks-per-io", "0", "1 to 65535"),
            ("--blocks-per-io", "65536", "1 to 65535"),
            ("--local-io-region-size", "-1", "0 to"),
            ("--control-timeout", "0", "seconds"),
            ("--io-timeout", "x", "seconds"),
            ("--progress", "sometimes", "auto"),
            ("--output", "xml", "json"),
        ];
        for (flag, value, accepts) in wrong {
            let text = usage_error(with(&[flag, value]));
            assert!(
                text.contains(flag) && text.contains(accepts),
                "{flag} {value}: {text}"
            );
        }
        let cpu = cpu();
        let text = usage_error(parse(&[
            "-d",
            "x",
            "--cpu",
            &cpu,
            "--execution-strategy",
            "read",
        ]));
        assert!(
            text.contains("--execution-strategy") && text.contains("read_only_data_validity_test"),
            "{text}"
        );
    }

    #[test]
    fn errors_name_missing_mandatory_flags() {
        for (missing, args) in [
            (
                "--device",
                vec!["--cpu", "0", "--execution-strategy", "read_throughput_test"],
            ),
            (
                "--cpu",
                vec!["-d", "x", "--execution-strategy", "read_throughput_test"],
            ),
            ("--execution-strategy", vec!["-d", "x", "--cpu", "0"]),
        ] {
            let text = usage_error(parse(&args));
            assert!(text.contains(missing), "{missing}: {text}");
        }
    }

    #[test]
    fn read_only_validation_needs_content() {
        let cpu = cpu();
        let args = [
            "-d",
            "x",
            "--cpu",
            &cpu,
            "--execution-strategy",
            "read_only_data_validity_test",
        ];
        let error = parse(&args)
            .expect("syntactically complete")
            .check()
            .expect_err("no content");
        assert!(error.message.contains("--storage-plain-content"), "{error}");
        let mut args = args.to_vec();
        args.extend(["--storage-plain-content", "file"]);
        assert!(parse(&args).expect("complete").check().is_ok());
    }
}
