//! One process of a yardstick. `bench` starts them; people do not.

use std::path::PathBuf;
use std::process::ExitCode;

use ::yardstick::ring::{self, Load};
use clap::{Args, ValueEnum};
use role_common::{errln, outln};

/// Its flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Which process of the pipeline
    #[arg(value_enum)]
    stage: Stage,

    /// Memory that the three processes share
    #[arg(long, value_name = "FILE")]
    memory: PathBuf,

    /// CPU that it runs on
    #[arg(long)]
    cpu: usize,

    /// I/Os on their way
    #[arg(long)]
    transactions: usize,

    /// Bytes of an I/O
    #[arg(long)]
    block_size: usize,

    /// Blocks of the target
    #[arg(long)]
    blocks: usize,

    /// I/Os altogether
    #[arg(long)]
    operations: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Stage {
    Initiator,
    Service,
    Target,
}

/// Plays the part; the initiator prints what it has measured, as JSON.
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
