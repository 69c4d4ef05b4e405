//! `doca-storage`: NVIDIA's DOCA storage reference in Rust, on software DOCA, from one command.
//!
//! Without arguments it runs the demo. Each role is a subcommand, so that the demo needs no other binary.
#![forbid(unsafe_code)]
// They panic if the stream is closed or full: see role_common::console.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod conformance;
mod demo;
mod generate;
mod monitor;
mod sdk;
mod set;
mod table;
mod up;

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{
    Arg, ArgAction, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, value_parser,
};
use deployment::implementation::{self, Implementation};
use role_common::console::{self, EXIT_USAGE};
use role_common::errln;
use role_common::flags::{self, lay_out};

const NAME: &str = "doca-storage";

const EXAMPLES: &str = "\
Examples:
  doca-storage                       the demo, with content of its own
  doca-storage demo --content photo.raw --workers 2
  doca-storage up --size 1G          a redundant disk at an NBD socket
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
    /// Serve a redundant disk on this machine: targets, service and front end, supervised
    Up(up::Options),
    /// Measure deployments, and the limits of the machine
    Bench(bench::Options),
    /// Test an implementation of the protocol as a black box
    Conformance(conformance::Options),
    /// softdoca for C and C++: install its library, headers and pkg-config files
    Sdk(sdk::Options),
    /// Sets of targets, from their backing files: which are current, and whether all blocks are intact
    Set(set::Options),
    /// Show counters and state of roles with --metrics: a table or JSON
    Status(monitor::StatusOptions),
    /// Show counters and state of roles continuously, with rates
    Top(monitor::TopOptions),
    /// Write man pages and completions for packages
    #[command(hide = true)]
    Generate(generate::Options),
    /// A process of a baseline measurement of `bench`
    #[command(hide = true)]
    Yardstick(bench::YardstickOptions),
    /// The initiator of `bench` for measurements after pauses
    #[command(hide = true)]
    FirstIos(bench::FirstIosOptions),
    /// A role, with the arguments that it parses itself.
    #[command(skip)]
    Role(&'static Role, Vec<OsString>),
}

fn parsed() -> Result<Option<Command>, clap::Error> {
    let mut command = lay_out(Cli::command().subcommands(ROLES.iter().map(Role::subcommand)));
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    if let Some((name, matches)) = matches.subcommand()
        && let Some(role) = role_called(OsStr::new(name))
    {
        let arguments = matches.get_many(ROLE_ARGUMENTS).into_iter().flatten();
        return Ok(Some(Command::Role(role, arguments.cloned().collect())));
    }
    match Cli::from_arg_matches(&matches) {
        Ok(cli) => Ok(cli.command),
        Err(error) => Err(error.format(&mut command)),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = run_as_program(&arguments).or_else(|| role_help(&arguments)) {
        return code;
    }
    let command = match parsed() {
        Ok(command) => command,
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
        Command::Up(options) => up::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Conformance(options) => conformance::run(&options),
        Command::Sdk(options) => sdk::run(&options),
        Command::Set(options) => set::run(&options),
        Command::Status(options) => monitor::status(&options),
        Command::Top(options) => monitor::top(&options),
        Command::Generate(options) => generate::run(&options),
        Command::Yardstick(options) => bench::run_yardstick(&options),
        Command::FirstIos(options) => bench::run_first_ios(&options),
        // Arguments as a program gets them, starting with its name.
        Command::Role(role, arguments) => (role.run)([vec![NAME.into()], arguments].concat()),
    };
    console::conclude(NAME, code)
}

// Errors of commands, and their exit status: 1 for failures, 2 for wrong usage.

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Invalid or inconsistent flags; the text says what was expected.
#[derive(Debug)]
struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for UsageError {}

/// Creates a usage error.
fn usage(message: impl Into<String>) -> Box<dyn Error> {
    Box::new(UsageError(message.into()))
}

/// Exit status of a command that has run: 0, or 1 for a failure that it has reported.
fn exit_code(is_success: bool) -> ExitCode {
    if is_success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Finds the implementation given by a flag's `NAME=DIR`.
fn implementation(text: &str) -> Result<Implementation> {
    Implementation::parse(text).map_err(|error| match error {
        implementation::Error::Syntax(_) => usage(error.to_string()),
        _ => error.into(),
    })
}

/// Reports the error of `doca-storage <command>`, and returns its exit status.
fn conclude(command: &str, error: &(dyn Error + 'static)) -> ExitCode {
    errln!("doca-storage {command}: error: {error}");
    if error.is::<UsageError>() {
        ExitCode::from(EXIT_USAGE)
    } else {
        ExitCode::FAILURE
    }
}

// Roles of this program: as subcommands, and selected by the name of the executable if it is that of a reference
// program.

/// A role, or a front end.
#[derive(Debug, Clone, Copy)]
struct Role {
    /// Subcommand.
    name: &'static str,
    about: &'static str,
    /// Program name: that of the reference, if it has the role.
    program: &'static str,
    /// `true` if the reference has the role: this program is installed under its program name, too.
    is_reference: bool,
    /// Command with its flags, for a program of this name.
    command: fn(&'static str) -> clap::Command,
    run: fn(Vec<OsString>) -> ExitCode,
}

/// Id of the argument with a role's arguments, which the role parses.
const ROLE_ARGUMENTS: &str = "arguments";

impl Role {
    /// Subcommand that takes all arguments for the role.
    fn subcommand(&self) -> clap::Command {
        let arguments = Arg::new(ROLE_ARGUMENTS)
            .action(ArgAction::Append)
            .num_args(1..)
            .trailing_var_arg(true)
            .allow_hyphen_values(true)
            .value_parser(value_parser!(OsString));
        clap::Command::new(self.name)
            .about(self.about)
            .disable_help_flag(true)
            .arg(arguments)
    }
}

/// Roles of the reference, under whose names this program is installed.
fn reference_roles() -> impl Iterator<Item = &'static Role> {
    ROLES.iter().filter(|role| role.is_reference)
}

fn role_called(name: &OsStr) -> Option<&'static Role> {
    ROLES.iter().find(|role| name == role.name)
}

/// All roles, in the order of the help.
static ROLES: [Role; 7] = [
    Role {
        name: "target",
        about: "The storage target: doca_storage_target_rdma",
        program: role_target::NAME,
        is_reference: true,
        command: flags::command::<role_target::Flags>,
        run: |arguments| role_target::run(arguments),
    },
    Role {
        name: "zero-copy",
        about: "The zero-copy service: doca_storage_comch_to_rdma_zero_copy",
        program: role_zero_copy::NAME,
        is_reference: true,
        command: flags::command::<role_zero_copy::Flags>,
        run: |arguments| role_zero_copy::run(arguments),
    },
    Role {
        name: "gga-offload",
        about: "The compressing, erasure coding service: doca_storage_comch_to_rdma_gga_offload",
        program: role_gga_offload::NAME,
        is_reference: true,
        command: flags::command::<role_gga_offload::Flags>,
        run: |arguments| role_gga_offload::run(arguments),
    },
    Role {
        name: "vhost-user-blk",
        about: "A disk of virtual machines: serves a storage by vhost-user-blk",
        program: vhost_user_blk_frontend::NAME,
        is_reference: false,
        command: flags::command::<vhost_user_blk_frontend::Flags>,
        run: |arguments| vhost_user_blk_frontend::run(arguments),
    },
    Role {
        name: "nbd",
        about: "A network block device: serves a storage to programs that speak NBD",
        program: nbd_frontend::NAME,
        is_reference: false,
        command: flags::command::<nbd_frontend::Flags>,
        run: |arguments| nbd_frontend::run(arguments),
    },
    Role {
        name: "initiator",
        about: "The initiator: doca_storage_initiator_comch",
        program: role_initiator::NAME,
        is_reference: true,
        command: flags::command::<role_initiator::Flags>,
        run: |arguments| role_initiator::run(arguments),
    },
    Role {
        name: "sbc-generator",
        about: "The generator of .sbc files for the gga_offload targets: doca_storage_gga_offload_sbc_generator",
        program: role_sbc_generator::NAME,
        is_reference: true,
        command: flags::command::<role_sbc_generator::Flags>,
        run: |arguments| role_sbc_generator::run(arguments),
    },
];

/// Runs the role whose program name this was started under, through a link of that name.
fn run_as_program(arguments: &[OsString]) -> Option<ExitCode> {
    let program = Path::new(arguments.first()?).file_name()?;
    let role = ROLES
        .iter()
        .find(|role| program == OsStr::new(role.program))?;
    Some((role.run)(arguments.to_vec()))
}

/// Runs `help ROLE`: roles print their own help.
fn role_help(arguments: &[OsString]) -> Option<ExitCode> {
    let [_, help, name] = arguments else {
        return None;
    };
    let role = role_called(name)?;
    (help == OsStr::new("help")).then(|| (role.run)(vec![role.name.into(), "--help".into()]))
}
