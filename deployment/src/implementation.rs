//! Programs of the storage roles: this project's, NVIDIA's, or any other implementation's.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::process::Process;

/// Multi-call program with all roles of this project as subcommands.
const MULTI_CALL: &str = "doca-storage";

/// A role in a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// On the host: submits I/O.
    Initiator,
    /// On the DPU: forwards I/O to one target.
    ZeroCopy,
    /// On the DPU: compresses blocks and stripes them with parity over three targets.
    GgaOffload,
    Target,
    /// Generates the initial contents of the targets of [`Role::GgaOffload`].
    SbcGenerator,
}

impl Role {
    pub const ALL: [Self; 5] = [
        Self::Initiator,
        Self::ZeroCopy,
        Self::GgaOffload,
        Self::Target,
        Self::SbcGenerator,
    ];

    /// Name in this project, in snake case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Initiator => "initiator",
            Self::ZeroCopy => "zero_copy",
            Self::GgaOffload => "gga_offload",
            Self::Target => "target",
            Self::SbcGenerator => "sbc_generator",
        }
    }

    /// File name of the program, the same as in the reference.
    pub fn program(self) -> &'static str {
        match self {
            Self::Initiator => "doca_storage_initiator_comch",
            Self::ZeroCopy => "doca_storage_comch_to_rdma_zero_copy",
            Self::GgaOffload => "doca_storage_comch_to_rdma_gga_offload",
            Self::Target => "doca_storage_target_rdma",
            Self::SbcGenerator => "doca_storage_gga_offload_sbc_generator",
        }
    }

    /// Subcommand of `doca-storage`.
    fn subcommand(self) -> String {
        self.name().replace('_', "-")
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A deployment of the reference: a service and its targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// `zero_copy` with one target.
    ZeroCopy,
    /// `gga_offload` with three targets.
    Gga,
}

impl Layout {
    pub const ALL: [Self; 2] = [Self::ZeroCopy, Self::Gga];

    pub fn service(self) -> Role {
        match self {
            Self::ZeroCopy => Role::ZeroCopy,
            Self::Gga => Role::GgaOffload,
        }
    }

    pub const fn targets(self) -> &'static [&'static str] {
        match self {
            Self::ZeroCopy => &["target"],
            Self::Gga => &["data_1", "data_2", "data_p"],
        }
    }

    /// The service's flags for the addresses of its targets, in the order of [`Layout::targets`].
    pub fn storage_flags(self) -> &'static [&'static str] {
        match self {
            Self::ZeroCopy => &["--storage-server"],
            Self::Gga => &["--data-1-storage", "--data-2-storage", "--data-p-storage"],
        }
    }

    /// Block size of the targets for blocks of `block_size` bytes of the service, which stripes them over two data targets in
    /// [`Layout::Gga`].
    pub fn target_block_size(self, block_size: usize) -> usize {
        match self {
            Self::ZeroCopy => block_size,
            Self::Gga => block_size / 2,
        }
    }

    /// As [`target_block_size`](Self::target_block_size), where the service has `--logical-block-size`: the targets of [`Layout::Gga`] store
    /// chunks, which are half a block and a record of 64 bytes.
    pub fn chunk_size(self, block_size: usize) -> usize {
        match self {
            Self::ZeroCopy => block_size,
            Self::Gga => block_size.div_ceil(2).next_multiple_of(64) + 64,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroCopy => "zero copy",
            Self::Gga => "gga",
        })
    }
}

/// Error of finding a program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not of the form `NAME=DIR`.
    #[error("{0:?}: expected NAME=DIR, as in rust=target/release")]
    Syntax(String),
    /// A directory without a role's program.
    #[error(
        "{}: expected a directory with {MULTI_CALL} or the roles' programs ({} and so on), found none of them",
        .0.display(), Role::Initiator.program()
    )]
    Nothing(PathBuf),
    /// The implementation lacks a program for this role.
    #[error("implementation {implementation} has no {role}: expected {} in its directory", .role.program())]
    NoProgram { implementation: String, role: Role },
}

/// The programs of one implementation, for some or all roles.
#[derive(Debug, Clone)]
pub struct Implementation {
    name: String,
    programs: BTreeMap<Role, PathBuf>,
    library_path: Option<PathBuf>,
    protocol: Option<String>,
}

impl Implementation {
    /// Finds the programs in a directory: under the reference's names, or else as subcommands of `doca-storage`.
    ///
    /// # Errors
    ///
    /// [`Error::Nothing`] if the directory contains no program.
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

    /// Parses `NAME=DIR` and finds the programs in the directory.
    ///
    /// # Errors
    ///
    /// [`Error::Syntax`] or [`Error::Nothing`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        match text.split_once('=') {
            Some((name, directory)) if !name.is_empty() && !directory.is_empty() => {
                Self::in_directory(name, Path::new(directory))
            }
            _ => Err(Error::Syntax(text.to_owned())),
        }
    }

    /// An implementation of one binary, with any file name, for `role`; `doca-storage` provides all roles.
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

    /// Runs the programs with the DOCA libraries of this directory, which is prepended to `LD_LIBRARY_PATH`.
    #[must_use]
    pub fn with_library_path(mut self, directory: Option<PathBuf>) -> Self {
        self.library_path = directory;
        self
    }

    /// Starts its roles with `--protocol` and this release. Its programs must have this flag.
    #[must_use]
    pub fn with_protocol(mut self, release: Option<String>) -> Self {
        self.protocol = release;
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns `true` if the member has a program for this role.
    pub fn has(&self, role: Role) -> bool {
        self.programs.contains_key(&role)
    }

    /// Returns the command that starts this role, with the flags common to all starts.
    ///
    /// # Errors
    ///
    /// [`Error::NoProgram`] if the implementation has no program for it.
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
            // Joining fails for a directory with a colon, which the loader could not use either.
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

/// Time for a program to print its usage.
const USAGE_TIMEOUT: Duration = Duration::from_secs(20);
/// A flag that all roles of this project have, and roles of the reference lack.
const OUR_FLAG: &str = "--output";
/// Flag for the number of I/Os in flight of an initiator, up to version 3.1 of the reference.
const TASK_COUNT: &str = "--task-count";
const TRANSACTION_COUNT: &str = "--transaction-count";
/// A flag that the reference's initiator has in version 3.0 only.
const BATCH_SIZE: &str = "--batch-size";

/// Usage text of a program (`--help`), which distinguishes implementations and their versions.
#[derive(Debug, Clone, Default)]
pub struct Usage(String);

impl Usage {
    /// Runs the program of a role with `--help`. The usage of a program that hangs or cannot be started is empty.
    ///
    /// # Errors
    ///
    /// [`Error::NoProgram`] if the implementation has no program for it.
    pub fn of(implementation: &Implementation, role: Role) -> Result<Self, Error> {
        let mut command = implementation.command(role)?;
        command.arg("--help");
        Ok(Self(printed(role.name(), command)))
    }

    /// Returns `true` if the program has this flag.
    #[must_use]
    pub fn has(&self, flag: &str) -> bool {
        self.0
            .split(|c: char| c.is_whitespace() || c == ',' || c == '=')
            .any(|word| word == flag)
    }

    /// Returns `true` for a program of this project.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.has(OUR_FLAG)
    }

    /// Flag for the number of I/Os in flight of an initiator.
    #[must_use]
    pub fn transactions_flag(&self) -> &'static str {
        if self.has(TASK_COUNT) {
            TASK_COUNT
        } else {
            TRANSACTION_COUNT
        }
    }

    /// Release of this initiator's protocol, as a value of `--protocol`.
    #[must_use]
    pub fn release(&self) -> &'static str {
        match (self.has(TASK_COUNT), self.has(BATCH_SIZE)) {
            (true, true) => "3.0",
            (true, false) => "3.1",
            (false, _) => "3.2",
        }
    }
}

impl From<&str> for Usage {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Output of the program on both streams; empty if it hangs or cannot be started.
fn printed(role: &'static str, command: Command) -> String {
    let Ok(mut process) = Process::spawn(role, command) else {
        return String::new();
    };
    if process.wait(Instant::now() + USAGE_TIMEOUT).is_none() {
        return String::new();
    }
    let (stdout, stderr) = process.into_output();
    stdout + "\n" + &stderr
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
    fn named_programs_are_preferred_to_subcommands() {
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
    fn errors_name_the_missing_program() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = Implementation::in_directory("cpp", directory.path()).expect_err("nothing");
        assert!(
            error.to_string().contains("doca_storage_initiator_comch"),
            "{error}"
        );
        for text in ["rust", "=dir", "rust="] {
            let error = Implementation::parse(text).expect_err("no NAME=DIR");
            assert!(
                matches!(&error, Error::Syntax(got) if got == text),
                "{error}"
            );
        }
        let one = Implementation::of_binary("own", Role::Target, Path::new("/bin/my_target"));
        assert!(one.has(Role::Target) && !one.has(Role::Initiator));
        let error = one.command(Role::Initiator).expect_err("none");
        let Error::NoProgram {
            implementation,
            role,
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!((&*implementation, role), ("own", Role::Initiator));
    }

    #[test]
    fn transactions_flag_is_taken_from_the_usage() {
        let of = |usage: &str| Usage::from(usage).transactions_flag();
        assert_eq!(of("  --task-count     Number of tasks"), "--task-count");
        assert_eq!(of("  --transaction-count  N"), "--transaction-count");
        assert_eq!(of(""), "--transaction-count");
    }

    #[test]
    fn release_is_told_from_the_flags_of_the_initiator() {
        let of = |usage: &str| Usage::from(usage).release();
        assert_eq!(of("  --task-count  N\n  --batch-size  N"), "3.0");
        assert_eq!(of("  --task-count  N"), "3.1");
        assert_eq!(of("  --transaction-count  N"), "3.2");
        assert_eq!(of(""), "3.2");
    }

    #[test]
    fn flags_are_matched_as_whole_words() {
        let usage = Usage::from("-d, --device DEV\n--output=FORMAT");
        assert!(usage.has("--device") && usage.has("-d") && usage.is_ours());
        assert!(!usage.has("--dev"));
    }
}
