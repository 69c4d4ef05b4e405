//! Somebody's binaries of the roles: ours, NVIDIA's, or their own.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

/// The program that has all our roles as subcommands.
const MULTI_CALL: &str = "doca-storage";

/// A part in a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// On the host: asks for I/O.
    Initiator,
    /// On the DPU: passes I/O on.
    ZeroCopy,
    /// On the DPU: compresses and protects blocks.
    GgaOffload,
    /// Holds blocks.
    Target,
    /// Prepares the targets' content for [`Role::GgaOffload`].
    SbcGenerator,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Initiator,
        Self::ZeroCopy,
        Self::GgaOffload,
        Self::Target,
        Self::SbcGenerator,
    ];

    /// The name that this project gives it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Initiator => "initiator",
            Self::ZeroCopy => "zero_copy",
            Self::GgaOffload => "gga_offload",
            Self::Target => "target",
            Self::SbcGenerator => "sbc_generator",
        }
    }

    /// The name of the reference's program, which is also that of ours.
    pub fn program(self) -> &'static str {
        match self {
            Self::Initiator => "doca_storage_initiator_comch",
            Self::ZeroCopy => "doca_storage_comch_to_rdma_zero_copy",
            Self::GgaOffload => "doca_storage_comch_to_rdma_gga_offload",
            Self::Target => "doca_storage_target_rdma",
            Self::SbcGenerator => "doca_storage_gga_offload_sbc_generator",
        }
    }

    /// The subcommand of `doca-storage`.
    fn subcommand(self) -> String {
        self.name().replace('_', "-")
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why there is no program to start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not `NAME=DIR`.
    #[error("{0:?}: expected NAME=DIR, as in rust=target/release")]
    Syntax(String),
    /// A directory without any.
    #[error(
        "{}: expected a directory with {MULTI_CALL} or the roles' programs ({} and so on), found none of them",
        .0.display(), Role::Initiator.program()
    )]
    Nothing(PathBuf),
    /// The one asked for is not among them.
    #[error("implementation {implementation} has no {role}: expected {} in its directory", .role.program())]
    NoProgram {
        /// Whose.
        implementation: String,
        /// Which.
        role: Role,
    },
}

/// Programs of some or all roles, by one author.
#[derive(Debug, Clone)]
pub struct Implementation {
    name: String,
    programs: BTreeMap<Role, PathBuf>,
    library_path: Option<PathBuf>,
    protocol: Option<String>,
}

impl Implementation {
    /// Those of a directory: under the reference's names, or else in our `doca-storage`.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn in_directory(name: &str, directory: &Path) -> Result<Self, Error> {
        let multi_call = directory.join(MULTI_CALL);
        let programs: BTreeMap<_, _> = Role::ALL
            .into_iter()
            .filter_map(|role| {
                let own = directory.join(role.program());
                let path = [own, multi_call.clone()]
                    .into_iter()
                    .find(|path| path.is_file())?;
                Some((role, std::path::absolute(&path).unwrap_or(path)))
            })
            .collect();
        if programs.is_empty() {
            return Err(Error::Nothing(directory.to_owned()));
        }
        Ok(Self {
            name: name.to_owned(),
            programs,
            library_path: None,
            protocol: None,
        })
    }

    /// From `NAME=DIR`.
    ///
    /// # Errors
    ///
    /// It is not of this form, or there is no program.
    pub fn parse(text: &str) -> Result<Self, Error> {
        match text.split_once('=') {
            Some((name, directory)) if !name.is_empty() && !directory.is_empty() => {
                Self::in_directory(name, Path::new(directory))
            }
            _ => Err(Error::Syntax(text.to_owned())),
        }
    }

    /// One binary, under whatever name, as `role`; a `doca-storage` as all roles.
    pub fn of_binary(name: &str, role: Role, path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let roles = if is_multi_call(&path) {
            Role::ALL.to_vec()
        } else {
            vec![role]
        };
        Self {
            name: name.to_owned(),
            programs: roles.into_iter().map(|role| (role, path.clone())).collect(),
            library_path: None,
            protocol: None,
        }
    }

    /// The same, run with the DOCA libraries of this directory, before those that `LD_LIBRARY_PATH` names.
    #[must_use]
    pub fn with_library_path(mut self, directory: Option<PathBuf>) -> Self {
        self.library_path = directory;
        self
    }

    /// The same, whose roles are started with `--protocol` and this release. Only programs that know this flag can be.
    #[must_use]
    pub fn with_protocol(mut self, release: Option<String>) -> Self {
        self.protocol = release;
        self
    }

    /// What its author is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is a program of this role.
    pub fn has(&self, role: Role) -> bool {
        self.programs.contains_key(&role)
    }

    /// A command line of this role, without flags but those that all starts of it have.
    ///
    /// # Errors
    ///
    /// There is no such program.
    pub fn command(&self, role: Role) -> Result<Command, Error> {
        let path = self.programs.get(&role).ok_or_else(|| Error::NoProgram {
            implementation: self.name.clone(),
            role,
        })?;
        let mut command = Command::new(path);
        if is_multi_call(path) {
            command.arg(role.subcommand());
        }
        if let Some(release) = &self.protocol
            && role != Role::SbcGenerator
        {
            command.args(["--protocol", release]);
        }
        if let Some(directory) = &self.library_path {
            let inherited = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
            let inherited = std::env::split_paths(&inherited).filter(|path| path != "");
            // What cannot be joined has a colon in it, which no loader would understand either.
            let joined = std::env::join_paths(std::iter::once(directory.clone()).chain(inherited))
                .unwrap_or_else(|_| directory.clone().into_os_string());
            command.env("LD_LIBRARY_PATH", joined);
        }
        Ok(command)
    }
}

fn is_multi_call(path: &Path) -> bool {
    path.file_name() == Some(OsStr::new(MULTI_CALL))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(command: &Command) -> Vec<String> {
        std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn own_programs_are_preferred_to_subcommands() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name| directory.path().join(name).display().to_string();
        std::fs::write(path(MULTI_CALL), "").expect("a file");
        std::fs::write(path(Role::Target.program()), "").expect("a file");
        let ours = Implementation::parse(&format!("rust={}", directory.path().display()))
            .expect("programs");
        assert_eq!(ours.name(), "rust");
        let of = |role| line(&ours.command(role).expect("a program"));
        assert_eq!(of(Role::Target), [path(Role::Target.program())]);
        assert_eq!(
            of(Role::ZeroCopy),
            [path(MULTI_CALL), "zero-copy".to_owned()]
        );
        let older = ours.with_protocol(Some("3.1".to_owned()));
        let of = |role| line(&older.command(role).expect("a program"));
        let protocol = ["--protocol", "3.1"].map(str::to_owned);
        assert_eq!(of(Role::Target)[1..], protocol);
        assert_eq!(of(Role::ZeroCopy)[2..], protocol);
        assert_eq!(of(Role::SbcGenerator).len(), 2, "it speaks with no role");
    }

    #[test]
    fn what_is_missing_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = Implementation::in_directory("cpp", directory.path()).expect_err("nothing");
        assert!(
            error.to_string().contains("doca_storage_initiator_comch"),
            "{error}"
        );
        for text in ["rust", "=dir", "rust="] {
            let error = Implementation::parse(text).expect_err("no NAME=DIR");
            assert!(error.to_string().contains("expected NAME=DIR"), "{error}");
        }
        let one = Implementation::of_binary("own", Role::Target, Path::new("/bin/my_target"));
        assert!(one.has(Role::Target) && !one.has(Role::Initiator));
        let error = one.command(Role::Initiator).expect_err("none");
        assert!(
            error.to_string().contains("own has no initiator"),
            "{error}"
        );
    }
}
