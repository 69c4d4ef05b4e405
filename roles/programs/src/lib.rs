//! All roles and front ends: as subcommands of a program, and as the program itself if it is started under the name of a
//! reference program.
#![forbid(unsafe_code)]
// `print!` and `eprint!` panic if the stream is closed or full: see role_common::console.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use role_common::console;
use role_common::flags::{self, lay_out};

/// A role, or a front end.
#[derive(Debug, Clone, Copy)]
pub struct Role {
    /// Subcommand.
    pub name: &'static str,
    pub about: &'static str,
    /// Program name: that of the reference, if it has the role.
    pub program: &'static str,
    /// `true` if the reference has the role: packages install the program under this name, too.
    is_reference: bool,
    /// Command with its flags, for a program of this name.
    pub command: fn(&'static str) -> Command,
    run: fn(Vec<OsString>) -> ExitCode,
}

/// Id of the argument with a role's arguments, which the role parses.
const ROLE_ARGUMENTS: &str = "arguments";

impl Role {
    /// Subcommand that takes all arguments for the role.
    fn subcommand(&self) -> Command {
        let arguments = Arg::new(ROLE_ARGUMENTS)
            .action(ArgAction::Append)
            .num_args(1..)
            .trailing_var_arg(true)
            .allow_hyphen_values(true)
            .value_parser(value_parser!(OsString));
        Command::new(self.name)
            .about(self.about)
            .disable_help_flag(true)
            .arg(arguments)
    }

    fn called(name: &OsStr) -> Option<&'static Self> {
        ROLES.iter().find(|role| name == role.name)
    }
}

/// All roles, in the order of the help.
pub static ROLES: [Role; 7] = [
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

/// Roles of the reference, under whose names packages install the program.
pub fn reference_roles() -> impl Iterator<Item = &'static Role> {
    ROLES.iter().filter(|role| role.is_reference)
}

/// Runs a program that has the roles as subcommands in addition to those of `command`.
///
/// `run` executes the other subcommands; its errors are usage errors.
pub fn main(
    command: Command,
    run: impl FnOnce(&ArgMatches) -> Result<ExitCode, clap::Error>,
) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = run_as_program(&arguments).or_else(|| role_help(&arguments)) {
        return code;
    }
    let name = command.get_name().to_owned();
    let mut command = lay_out(command.subcommands(ROLES.iter().map(Role::subcommand)));
    let outcome = command
        .try_get_matches_from_mut(arguments)
        .and_then(|matches| {
            if let Some((subcommand, matches)) = matches.subcommand()
                && let Some(role) = Role::called(OsStr::new(subcommand))
            {
                let arguments = matches.get_many(ROLE_ARGUMENTS).into_iter().flatten();
                // Arguments as a program gets them, starting with its name.
                let all = [OsString::from(&name)].into_iter();
                return Ok((role.run)(all.chain(arguments.cloned()).collect()));
            }
            run(&matches)
        });
    let code = match outcome {
        Ok(code) => code,
        Err(error) => report(&error.format(&mut command)),
    };
    console::conclude(&name, code)
}

/// Prints help, version or an error of usage, and returns its exit status.
fn report(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let text = error.render();
        match console::is_coloured(&std::io::stderr()) {
            true => console::print_error(format_args!("{}", text.ansi())),
            false => console::print_error(format_args!("{text}")),
        }
    } else {
        console::printed(error.print().and_then(|()| std::io::stdout().flush()));
    }
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Runs the role under whose program name this program was started.
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
    let role = Role::called(name)?;
    (help == OsStr::new("help")).then(|| (role.run)(vec![role.name.into(), "--help".into()]))
}
