//! `doca-storage conformance`: tests of an implementation from the outside.

mod faults;
mod faulty_target;
mod hammer;
mod hostile;
mod layout;
mod layout_choice;
mod matrix;
mod network;
mod record;
mod replay;
mod report;
mod role;
mod samples;
mod show;
mod simulate;
mod sweep;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use role_common::errln;

use faults::Faults;
use faulty_target::FaultyTarget;
use hammer::{Hammer, LoadOptions, StrangerOptions, WitnessOptions};
use hostile::Hostile;
use layout::Layout;
use matrix::Matrix;
use network::{CableOptions, NetworkOptions};
use record::Record;
use replay::Replay;
use role::RoleOptions;
use samples::Samples;
use show::Show;
use simulate::Simulate;

const EXAMPLES: &str = "\
Examples:
  doca-storage conformance layout
  doca-storage conformance layout --print --only io_message
  doca-storage conformance role target --bin build/doca_storage_target_rdma
  doca-storage conformance faulty-target --content disk.img --fault ignore-writes
  doca-storage conformance faulty-target --content disk.img --fault swap-blocks:3:17 --listen-port 12345
  doca-storage conformance faulty-target --content disk.img --fault none --dump afterwards.img
  doca-storage conformance matrix --impl rust=target/release --impl cpp=build --library-path ~/softdoca/lib
  doca-storage conformance hammer --layout gga --duration 5m
  doca-storage conformance network --layout gga --duration 10m
  doca-storage conformance simulate --duration 10m
  doca-storage conformance hostile --role target
  doca-storage conformance samples --bin /tmp/build --library-path ~/softdoca/lib
  doca-storage conformance faults --jobs 8
  doca-storage conformance record --listen 12346 --to 127.0.0.1:12345 --output session.transcript
  doca-storage conformance show session.transcript
  doca-storage conformance replay session.transcript --to 127.0.0.1:12345";

/// Which test.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check golden vectors of everything on the wire, and show where every byte lies
    Layout(Layout),
    /// Test one role's binary between scripted peers: does it speak the protocol?
    Role(RoleOptions),
    /// Serve one session as a target that lies: does your initiator notice?
    FaultyTarget(FaultyTarget),
    /// Try every mix of implementations of the roles in both deployments: which work together?
    Matrix(Matrix),
    /// Hurt a deployment at random, under a load that knows what every block must hold: is anything lost?
    Hammer(Hammer),
    /// Inject faults into the network between service and targets: are sessions served, with the right data?
    Network(NetworkOptions),
    /// A cable between two machines of `network`
    #[command(hide = true)]
    Cable(CableOptions),
    /// Simulate the redundancy of the gga_offload service through crashes, partitions and damage: is what is read always right?
    Simulate(Simulate),
    /// Attack one role with clients that follow no protocol: what may they cost it?
    Hostile(Hostile),
    /// What `hammer` reads and writes with
    #[command(hide = true)]
    HammerLoad(LoadOptions),
    /// Who judges what `hammer` reads
    #[command(hide = true)]
    HammerWitness(WitnessOptions),
    /// A client that `hammer` sends to disturb others
    #[command(hide = true)]
    HammerStranger(StrangerOptions),
    /// Kill, stop and end every role at every place of a session: does everybody else take it as they should?
    Faults(Faults),
    /// Run DOCA's own samples, which you have built: does your DOCA bring them to their documented end?
    Samples(Samples),
    /// Record what a service and its targets tell each other, from between them
    Record(Record),
    /// Play one side of a recording again: does a role still answer as it did?
    Replay(Replay),
    /// Show a recording: every message, when, from whom, with its fields and its place in the stream
    Show(Show),
}

/// Runs the test: 0 when it played its part to the end.
pub fn run(options: &Options) -> ExitCode {
    let result = match &options.command {
        Command::Layout(layout) => layout.run(),
        Command::Role(role) => role.run(),
        Command::FaultyTarget(target) => target.serve().map(|()| ExitCode::SUCCESS),
        Command::Matrix(matrix) => matrix.run(),
        Command::Hammer(hammer) => hammer.run(),
        Command::Network(network) => network.run(),
        Command::Cable(cable) => cable.carry(),
        Command::Simulate(simulate) => simulate.run(),
        Command::Hostile(hostile) => hostile.run(),
        Command::HammerLoad(load) => load.play(),
        Command::HammerWitness(witness) => witness.watch(),
        Command::HammerStranger(stranger) => stranger.intrude(),
        Command::Faults(faults) => faults.run(),
        Command::Samples(samples) => samples.run(),
        Command::Record(record) => record.run(),
        Command::Replay(replay) => replay.run(),
        Command::Show(show) => show.run(),
    };
    result.unwrap_or_else(|error| {
        errln!("doca-storage conformance: error: {error}");
        ExitCode::FAILURE
    })
}

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;
