//! A process of a baseline measurement, started by `bench`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use ::yardstick::ring::{self, Load};
use ::yardstick::tcp;
use clap::{Args, ValueEnum};
use role_common::{errln, outln};

#[derive(Debug, Args)]
pub struct Options {
    /// Process of the pipeline, or of the connection
    #[arg(value_enum)]
    stage: Stage,

    /// Memory shared by the three processes of the pipeline
    #[arg(long, value_name = "FILE", required_unless_present = "address")]
    memory: Option<PathBuf>,

    /// Address of the connection's server
    #[arg(long, value_name = "ADDRESS:PORT", required_if_eq_any = [("stage", "client"), ("stage", "server")])]
    address: Option<SocketAddr>,

    /// CPU to run on
    #[arg(long)]
    cpu: usize,

    /// Number of I/Os in flight
    #[arg(long)]
    transactions: usize,

    /// Size of an I/O in bytes
    #[arg(long)]
    block_size: usize,

    /// Number of blocks of the target
    #[arg(long)]
    blocks: usize,

    /// Total number of I/Os
    #[arg(long)]
    operations: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Stage {
    Initiator,
    Service,
    Target,
    Client,
    Server,
}

/// Runs the process; the initiator or client prints its measurement as JSON.
pub fn run(options: &Options) -> ExitCode {
    play(options).map_or_else(
        |error| {
            errln!("doca-storage yardstick: error: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn play(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    ::yardstick::pin(options.cpu)?;
    let load = Load {
        transactions: options.transactions,
        block_size: options.block_size,
        blocks: options.blocks,
        operations: options.operations,
    };
    let memory = || options.memory.as_deref().ok_or("expected --memory");
    let address = || options.address.ok_or("expected --address");
    let measured = match options.stage {
        Stage::Initiator => ring::run(ring::Stage::Initiator, memory()?, load)?,
        Stage::Service => ring::run(ring::Stage::Service, memory()?, load)?,
        Stage::Target => ring::run(ring::Stage::Target, memory()?, load)?,
        Stage::Client => Some(tcp::run(address()?, load)?),
        Stage::Server => {
            tcp::serve(address()?, load)?;
            None
        }
    };
    if let Some(measured) = measured {
        outln!("{}", serde_json::to_string(&measured)?);
    }
    Ok(())
}
