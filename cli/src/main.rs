//! `doca-storage`: NVIDIA's DOCA storage reference in Rust, on software DOCA, from one command.
//!
//! Without arguments it runs the demo. Each role is a subcommand, so that the demo needs no other binary.
#![forbid(unsafe_code)]
// They panic if the stream is closed or full: see role_common::console.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod conformance;
mod demo;
mod failure;
mod generate;
mod monitor;
mod roles;
mod sdk;
mod table;
mod yardstick;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use role_common::console;
use role_common::flags::lay_out;

const NAME: &str = "doca-storage";

const EXAMPLES: &str = "\
Examples:
  doca-storage                       the demo, with content that the program brings
  doca-storage demo --content photo.raw --workers 2
  doca-storage demo --block-size 1048576 --blocks-per-io 4
  doca-storage target --help         a role, with the flags of the reference";

/// The DOCA storage reference in Rust, without a BlueField.
#[derive(Debug, Parser)]
#[command(name = "doca-storage", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a deployment, read and write a file through it, validate, measure: PASS or FAIL
    Demo(demo::Options),
    /// Measure deployments, and the limits of the machine
    Bench(bench::Options),
    /// Test an implementation of the protocol as a black box
    Conformance(conformance::Options),
    /// softdoca for C and C++: install its library, headers and pkg-config files
    Sdk(sdk::Options),
    /// Show counters and state of roles with --metrics: a table or JSON
    Status(monitor::StatusOptions),
    /// Show counters and state of roles continuously, with rates
    Top(monitor::TopOptions),
    /// Write man pages and completions for packages
    #[command(hide = true)]
    Generate(generate::Options),
    /// A process of a baseline measurement of `bench`
    #[command(hide = true)]
    Yardstick(yardstick::Options),
    /// The initiator of `bench` for measurements after pauses
    #[command(hide = true)]
    FirstIos(bench::first_ios::Options),
    /// The storage target: doca_storage_target_rdma
    #[command(disable_help_flag = true)]
    Target(RoleArguments),
    /// The zero-copy service: doca_storage_comch_to_rdma_zero_copy
    #[command(disable_help_flag = true)]
    ZeroCopy(RoleArguments),
    /// The compressing, erasure coding service: doca_storage_comch_to_rdma_gga_offload
    #[command(disable_help_flag = true)]
    GgaOffload(RoleArguments),
    /// A disk of virtual machines: serves a storage by vhost-user-blk
    #[command(disable_help_flag = true)]
    VhostUserBlk(RoleArguments),
    /// A network block device: serves a storage to programs that speak NBD
    #[command(disable_help_flag = true)]
    Nbd(RoleArguments),
    /// The initiator: doca_storage_initiator_comch
    #[command(disable_help_flag = true)]
    Initiator(RoleArguments),
    /// The generator of .sbc files for the gga_offload targets: doca_storage_gga_offload_sbc_generator
    #[command(disable_help_flag = true)]
    SbcGenerator(RoleArguments),
}

/// Arguments that are parsed by the role.
#[derive(Debug, Args)]
struct RoleArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl RoleArguments {
    /// Arguments as a program gets them, starting with its name.
    fn with_program_name(self) -> impl Iterator<Item = OsString> {
        std::iter::once(OsString::from("doca-storage")).chain(self.arguments)
    }
}

/// Parses the command line.
fn parsed() -> Result<Cli, clap::Error> {
    let mut command = lay_out(Cli::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = roles::run_as_program(&arguments).or_else(|| roles::help(&arguments)) {
        return code;
    }
    let command = match parsed() {
        Ok(cli) => cli.command,
        Err(error) => {
            if error.use_stderr() {
                let text = error.render();
                match console::is_coloured(&std::io::stderr()) {
                    true => console::print_error(format_args!("{}", text.ansi())),
                    false => console::print_error(format_args!("{text}")),
                }
            } else {
                // Help and version.
                console::printed(error.print().and_then(|()| std::io::stdout().flush()));
            }
            let code = u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
            return console::conclude(NAME, code);
        }
    };
    let code = match command.unwrap_or_else(|| Command::Demo(demo::Options::default())) {
        Command::Demo(options) => demo::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Conformance(options) => conformance::run(&options),
        Command::Sdk(options) => sdk::run(&options),
        Command::Status(options) => monitor::status(&options),
        Command::Top(options) => monitor::top(&options),
        Command::Generate(options) => generate::run(&options),
        Command::Yardstick(options) => yardstick::run(&options),
        Command::FirstIos(options) => bench::first_ios::run(&options),
        Command::Target(role) => role_target::run(role.with_program_name()),
        Command::ZeroCopy(role) => role_zero_copy::run(role.with_program_name()),
        Command::GgaOffload(role) => role_gga_offload::run(role.with_program_name()),
        Command::VhostUserBlk(role) => vhost_user_blk_frontend::run(role.with_program_name()),
        Command::Nbd(role) => nbd_frontend::run(role.with_program_name()),
        Command::Initiator(role) => role_initiator::run(role.with_program_name()),
        Command::SbcGenerator(role) => role_sbc_generator::run(role.with_program_name()),
    };
    console::conclude(NAME, code)
}
