//! A process of a baseline measurement, started by `bench`.

use std::path::PathBuf;
use std::process::ExitCode;

use ::yardstick::ring::{self, Load};
use clap::{Args, ValueEnum};
use role_common::{errln, outln};

#[derive(Debug, Args)]
pub struct Options {
    /// Process of the pipeline
    #[arg(value_enum)]
    stage: Stage,

    /// Memory shared by the three processes
    #[arg(long, value_name = "FILE")]
    memory: PathBuf,

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
}

/// Runs the process; the initiator prints its measurement as JSON.
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
    let stage = match options.stage {
        Stage::Initiator => ring::Stage::Initiator,
        Stage::Service => ring::Stage::Service,
        Stage::Target => ring::Stage::Target,
    };
    let load = Load {
        transactions: options.transactions,
        block_size: options.block_size,
        blocks: options.blocks,
        operations: options.operations,
    };
    if let Some(measured) = ring::run(stage, &options.memory, load)? {
        outln!("{}", serde_json::to_string(&measured)?);
    }
    Ok(())
}
