//! The flags that all services have.

use std::time::Duration;

use clap::Args;

use crate::budget::InitLimits;
use crate::flags::{Patience, channel_name, cpu, duration, patience};
use crate::protocol::ProtocolFlags;
use crate::sessions::SessionFlags;
use crate::turns::Limits;

/// Where a service runs, and how it talks to its initiator.
#[derive(Debug, Clone, Args)]
pub struct ServiceFlags {
    /// Device identifier: PCI address, RDMA device or network interface name
    #[arg(short, long, value_name = "DEVICE")]
    pub device: String,

    /// Device host side representor identifier: PCI address
    #[arg(short, long, value_name = "PCI")]
    pub representor: String,

    /// CPU core to which the process affinity can be set; one worker thread each, may be repeated
    #[arg(long, value_name = "CPU", required = true, value_parser = cpu)]
    pub cpu: Vec<u32>,

    /// Name of the channel used by the doca_comch_client
    #[arg(long, value_name = "NAME", default_value = "doca_storage_comch", value_parser = channel_name)]
    pub command_channel_name: String,

    /// Time (in seconds, or with units such as 2m) to wait while performing control operations
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = duration)]
    pub control_timeout: Duration,

    /// Time (in seconds, or with units such as 2m) that I/Os may be in flight without any of them coming to its end, before the session is given up;
    /// 0 for any time
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = patience)]
    pub io_timeout: Patience,

    /// Time (in seconds, or with units such as 2m) that an initiator may ask for nothing before its session is given up; 0 for any time. One that is
    /// stopped cannot be told from one that has nothing to do
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = patience)]
    pub idle_timeout: Patience,

    /// What a session may ask for.
    #[command(flatten)]
    pub init_limits: InitLimits,

    /// Which messages it speaks.
    #[command(flatten)]
    pub protocol: ProtocolFlags,

    /// How many sessions it serves.
    #[command(flatten)]
    pub sessions: SessionFlags,
}

impl ServiceFlags {
    /// How long nothing may happen while I/Os can come.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            io: self.io_timeout.0,
            idle: self.idle_timeout.0,
        }
    }
}
