//! What the main thread of a service tells its workers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use doca::{Connection, Device};
use wire::control::RdmaConnectionRole;
use wire::release::Release;

use crate::metrics::WorkerMetrics;
use crate::turns::Limits;

/// What every worker of a service is made from.
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
    /// Transactions that it needs room for.
    pub transaction_count: u32,
    /// Extensions of the data path that initiator and targets have announced (`FeatureQuery::features`).
    pub features: u32,
    /// The release of the session's I/O messages.
    pub release: Release,
    /// How long nothing may happen.
    pub limits: Limits,
    /// Where the worker publishes its counts, with `--metrics`.
    pub metrics: Option<Arc<WorkerMetrics>>,
}

/// What the main thread may ask of a worker.
#[derive(Debug)]
pub enum Command {
    /// Make an RDMA connection, and export it for this target.
    Export {
        /// Number of the target.
        target: usize,
        /// Which of the two connections to it.
        role: RdmaConnectionRole,
    },
    /// Connect it to the target's export.
    Connect {
        /// Number of the target.
        target: usize,
        /// Which of the two connections to it.
        role: RdmaConnectionRole,
        /// The target's export.
        details: Bytes,
    },
    /// Wait for all contexts to be ready; then wait for requests.
    Prepare {
        /// The initiator's consumer that is answered to.
        consumer: u32,
        /// How long the contexts may take.
        within: Duration,
    },
    /// Destroy consumer and producer.
    LeaveComch,
}

/// Command to a worker that serves I/Os, by which a target rejoins.
#[derive(Debug, PartialEq, Eq)]
pub enum WorkerCommand {
    /// Make an RDMA connection, and export it for this target: io_data first, which begins anew.
    Export {
        /// Number of the target.
        target: usize,
        /// Which of the two connections to it.
        role: RdmaConnectionRole,
    },
    /// Connect it to the target's export.
    Connect {
        /// Number of the target.
        target: usize,
        /// Which of the two connections to it.
        role: RdmaConnectionRole,
        /// The target's export.
        details: Bytes,
    },
    /// Be ready to exchange messages with the target.
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
    /// Nothing to tell.
    Done,
}
