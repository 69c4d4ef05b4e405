//! The initiator with a pause, as a process of its own. Started by `bench` only.

use std::process::ExitCode;

use ::bench::first_ios::{self, Load};
use clap::Args;
use role_common::{errln, outln};

#[derive(Debug, Args)]
pub struct Options {
    /// Name of the service's channel
    #[arg(long)]
    channel: String,

    /// CPU that it runs on
    #[arg(long)]
    cpu: usize,

    /// I/Os on their way
    #[arg(long)]
    transactions: u32,
}

/// Runs the load, and prints its measurements as JSON.
pub fn run(options: &Options) -> ExitCode {
    play(options).map_or_else(
        |error| {
            errln!("doca-storage first-ios: error: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn play(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    ::yardstick::pin(options.cpu)?;
    let load = Load {
        channel: options.channel.clone(),
        transactions: options.transactions,
    };
    outln!("{}", serde_json::to_string(&first_ios::run(&load)?)?);
    Ok(())
}
