//! Shared parts of the storage services between one initiator and one or more storage targets.
//!
//! [`session`] is the control state machine, [`run`] runs it over real channels and workers, and
//! [`DegradedMode`] is the part of services that continue without a target. The handling of I/Os, and the combination of the targets into
//! one storage, differ between services: a [`Service`].

mod app;
mod degraded_mode;
pub mod session;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use doca::{Connection, Device};
use wire::control::RdmaConnectionRole;
use wire::release::Release;

use crate::budget::InitLimits;
use crate::flags::{Timeout, channel_name, cpu, duration, timeout};
use crate::metrics::WorkerMetrics;
use crate::protocol::ProtocolFlags;
use crate::run_loop::Limits;
use crate::sessions::SessionFlags;
use crate::tls::ClientTlsFlags;

pub use app::{Service, run};
pub use degraded_mode::DegradedMode;

// Commands from the main thread of a service to its workers.

/// Parameters of a worker.
#[derive(Debug)]
pub struct WorkerSetup {
    /// Number of the worker.
    pub index: u32,
    /// CPU that it runs on.
    pub core: u32,
    /// The DPU's device.
    pub device: Device,
    /// The connection to the initiator.
    pub client: Connection,
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

/// Command to a worker whose data path does not run.
#[derive(Debug)]
pub enum Command {
    /// Create an RDMA connection for this target, and export it.
    Export {
        /// Number of the target.
        target: usize,
        /// Role of the connection.
        role: RdmaConnectionRole,
    },
    /// Connect to the target's export.
    Connect {
        /// Number of the target.
        target: usize,
        /// Role of the connection.
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
        /// Number of the target.
        target: usize,
        /// Role of the connection.
        role: RdmaConnectionRole,
    },
    /// Connect to the target's export.
    Connect {
        /// Number of the target.
        target: usize,
        /// Role of the connection.
        role: RdmaConnectionRole,
        /// The target's export.
        details: Bytes,
    },
    /// Get ready to exchange messages with the target.
    Attach {
        /// Number of the target.
        target: usize,
    },
}

/// Answer to a [`Command`] or an [`WorkerCommand`].
#[derive(Debug)]
pub enum Reply {
    /// The export of a connection.
    Exported(Vec<u8>),
    /// Success, without data.
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
    #[arg(long, value_name = "NAME", default_value = "doca_storage_comch", value_parser = channel_name)]
    pub command_channel_name: String,

    /// Timeout of a control operation, in seconds or with a unit such as 2m
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = duration)]
    pub control_timeout: Duration,

    /// Time without a completion while I/Os are in flight, in seconds or with a unit such as 2m, before the session is
    /// given up; 0 is unlimited
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = timeout)]
    pub io_timeout: Timeout,

    /// Time without a request of the initiator, in seconds or with a unit such as 2m, before its session is given up; 0 is
    /// unlimited. A stopped initiator cannot be told from an idle one
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = timeout)]
    pub idle_timeout: Timeout,

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

impl ServiceFlags {
    /// Timeouts for lack of progress while I/Os are served.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            io: self.io_timeout.0,
            idle: self.idle_timeout.0,
        }
    }
}
