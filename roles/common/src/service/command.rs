//! Commands from the main thread of a service to its workers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use doca::{Connection, Device};
use wire::control::RdmaConnectionRole;
use wire::release::Release;

use crate::metrics::WorkerMetrics;
use crate::turns::Limits;

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
        /// Time for the contexts to become ready.
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
