//! Roles of this program: as subcommands, and selected by the name of the executable if it is that of a reference
//! program.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use role_common::flags;

/// A role, or a front end.
#[derive(Debug, Clone, Copy)]
pub struct Role {
    /// Subcommand.
    pub name: &'static str,
    /// Program name: that of the reference, if it has the role.
    pub program: &'static str,
    /// Command with its flags, for a program of this name.
    pub command: fn(&'static str) -> Command,
    run: fn(Vec<OsString>) -> ExitCode,
}

/// Number of roles of the reference.
const REFERENCE: usize = 5;

/// Roles of the reference, under whose names this program is installed.
pub fn reference() -> &'static [Role] {
    &ALL[..REFERENCE]
}

/// All roles, those of the reference first.
pub static ALL: [Role; REFERENCE + 2] = [
    Role {
        name: "target",
        program: role_target::NAME,
        command: flags::command::<role_target::cli::Flags>,
        run: |arguments| role_target::run(arguments),
    },
    Role {
        name: "zero-copy",
        program: role_zero_copy::NAME,
        command: flags::command::<role_zero_copy::cli::Flags>,
        run: |arguments| role_zero_copy::run(arguments),
    },
    Role {
        name: "gga-offload",
        program: role_gga_offload::NAME,
        command: flags::command::<role_gga_offload::cli::Flags>,
        run: |arguments| role_gga_offload::run(arguments),
    },
    Role {
        name: "initiator",
        program: role_initiator::cli::NAME,
        command: flags::command::<role_initiator::cli::Flags>,
        run: |arguments| role_initiator::run(arguments),
    },
    Role {
        name: "sbc-generator",
        program: role_sbc_generator::NAME,
        command: flags::command::<role_sbc_generator::cli::Flags>,
        run: |arguments| role_sbc_generator::run(arguments),
    },
    Role {
        name: "nbd",
        program: nbd_frontend::cli::NAME,
        command: flags::command::<nbd_frontend::cli::Flags>,
        run: |arguments| nbd_frontend::run(arguments),
    },
    Role {
        name: "vhost-user-blk",
        program: vhost_user_blk_frontend::cli::NAME,
        command: flags::command::<vhost_user_blk_frontend::cli::Flags>,
        run: |arguments| vhost_user_blk_frontend::run(arguments),
    },
];

/// Runs the role whose program name this was started under, through a link of that name.
pub fn run_as_program(arguments: &[OsString]) -> Option<ExitCode> {
    let program = Path::new(arguments.first()?).file_name()?;
    let role = ALL
        .iter()
        .find(|role| program == OsStr::new(role.program))?;
    Some((role.run)(arguments.to_vec()))
}

/// Runs `help ROLE`: roles print their own help.
pub fn help(arguments: &[OsString]) -> Option<ExitCode> {
    let [_, help, name] = arguments else {
        return None;
    };
    let role = ALL.iter().find(|role| name == OsStr::new(role.name))?;
    (help == OsStr::new("help")).then(|| (role.run)(vec![role.name.into(), "--help".into()]))
}
