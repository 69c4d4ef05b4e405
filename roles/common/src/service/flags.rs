//! Flags common to all services.

use std::time::Duration;

use clap::Args;

use crate::budget::InitLimits;
use crate::flags::{Patience, channel_name, cpu, patience, seconds};
use crate::protocol::ProtocolFlags;
use crate::sessions::SessionFlags;
use crate::turns::Limits;

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

    /// Timeout of a control operation, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub control_timeout: Duration,

    /// Time without a completion while I/Os are in flight, in seconds or with a unit such as 2m, before the session is
    /// given up; 0 is unlimited
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = patience)]
    pub io_timeout: Patience,

    /// Time without a request of the initiator, in seconds or with a unit such as 2m, before its session is given up; 0 is
    /// unlimited. A stopped initiator cannot be told from an idle one
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = patience)]
    pub idle_timeout: Patience,

    /// Limits of a session.
    #[command(flatten)]
    pub init_limits: InitLimits,

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
