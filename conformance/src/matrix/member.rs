//! An implementation and what is known of it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use crate::implementation::{Error, Implementation, Role};
use crate::usage::Usage;

/// How long an initiator waits for an answer.
pub(super) const IO_TIMEOUT: &str = "--io-timeout";
/// The release of the reference whose messages a role speaks.
pub(super) const PROTOCOL: &str = "--protocol";

/// What an implementation of a role does where implementations differ. A difference that nobody expects fails a check; one
/// that is expected must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// Initiators: an I/O that has failed is noticed.
    pub looks_at_results: bool,
    /// Targets: a read behind their end is an error. The reference ignores that it could not aim a buffer at such a place, and
    /// answers a read with what the buffer was aimed at before; a write fails, because that buffer is full.
    pub checks_read_offsets: bool,
    /// The zero-copy service: an error of a target reaches the initiator.
    pub forwards_errors: bool,
    /// Generators write a checksum into each block, and gga services make a block that has another one anew from its parity.
    pub checksums: bool,
    /// Initiators: `--io-timeout` is a flag, with a default of seconds.
    pub io_timeout: bool,
    /// Initiators: the flag for the number of I/Os in flight.
    pub transactions_flag: &'static str,
    /// Initiators: a strategy that validates makes one pass over the storage, whatever it is told, and counts reads and writes; as in version 3.0
    /// of the reference, which alone has `--batch-size`.
    pub one_pass: bool,
    /// `--protocol` is a flag.
    pub protocol: bool,
    /// May crash when a worker thread begins, before it does anything: the reference's threads read a handle that their
    /// parent may not have stored yet.
    pub start_race: bool,
}

impl Traits {
    /// Of our roles.
    pub const OURS: Self = Self {
        looks_at_results: true,
        checks_read_offsets: true,
        forwards_errors: true,
        checksums: true,
        io_timeout: true,
        transactions_flag: "--transaction-count",
        one_pass: false,
        protocol: true,
        start_race: false,
    };

    /// Of the C++ reference.
    pub const REFERENCE: Self = Self {
        looks_at_results: false,
        checks_read_offsets: false,
        forwards_errors: false,
        checksums: false,
        io_timeout: false,
        transactions_flag: "--transaction-count",
        one_pass: false,
        protocol: false,
        start_race: true,
    };

    /// Flags of a program with this usage.
    fn of_usage(usage: &Usage) -> Self {
        let known = if usage.is_ours() {
            Self::OURS
        } else {
            Self::REFERENCE
        };
        Self {
            io_timeout: usage.has(IO_TIMEOUT),
            transactions_flag: usage.transactions_flag(),
            one_pass: usage.has("--batch-size"),
            protocol: usage.has(PROTOCOL),
            ..known
        }
    }
}

/// An implementation that takes part, with what is known of each of its programs.
#[derive(Debug, Clone)]
pub struct Member {
    implementation: Implementation,
    traits: BTreeMap<Role, Traits>,
}

impl Member {
    /// Asks each program for its usage (`--help`), from which its traits are known. A program that does not even print that is
    /// taken for a reference: what is wrong with it will be seen when it is run.
    ///
    /// # Errors
    ///
    /// There is none: a role without a program is no error.
    pub fn probe(implementation: Implementation) -> Result<Self, Error> {
        let mut traits = BTreeMap::new();
        for role in Role::ALL {
            if implementation.has(role) {
                let usage = Usage::of(&implementation, role)?;
                traits.insert(role, Traits::of_usage(&usage));
            }
        }
        Ok(Self {
            implementation,
            traits,
        })
    }

    /// One of which these traits are known.
    pub fn with_traits(implementation: Implementation, traits: Traits) -> Self {
        Self {
            implementation,
            traits: Role::ALL.map(|role| (role, traits)).into(),
        }
    }

    /// What its author is called.
    pub fn name(&self) -> &str {
        self.implementation.name()
    }

    /// Whether there is a program of this role.
    pub fn has(&self, role: Role) -> bool {
        self.implementation.has(role)
    }

    /// What is known of a role; the least where nothing is known.
    pub fn traits(&self, role: Role) -> Traits {
        self.traits.get(&role).copied().unwrap_or(Traits::REFERENCE)
    }

    /// A command line of this role, without flags, which starts on `cpu`.
    ///
    /// # Errors
    ///
    /// There is no such program.
    pub(super) fn command(&self, role: Role, cpu: usize) -> Result<Command, Error> {
        let command = self.implementation.command(role)?;
        Ok(if self.traits(role).start_race {
            patient(command, cpu)
        } else {
            command
        })
    }
}

/// The same, with threads that do not preempt the one that made them, so that it wins the race at the start more often; as it
/// is where the system has no tools for this.
fn patient(command: Command, cpu: usize) -> Command {
    let tools: Vec<Vec<OsString>> = [
        ("chrt", vec!["-b".to_owned(), "0".to_owned()]),
        ("taskset", vec!["-c".to_owned(), cpu.to_string()]),
    ]
    .into_iter()
    .filter_map(|(tool, arguments)| {
        let arguments = arguments.into_iter().map(OsString::from);
        Some(
            std::iter::once(in_path(tool)?.into_os_string())
                .chain(arguments)
                .collect(),
        )
    })
    .collect();
    let mut words = tools.into_iter().flatten();
    let Some(first) = words.next() else {
        return command;
    };
    let mut wrapped = Command::new(first);
    wrapped
        .args(words)
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    wrapped
}

fn in_path(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsStr::new("/usr/bin:/bin").to_owned());
    std::env::split_paths(&path)
        .map(|directory| directory.join(tool))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn ours_are_known_by_their_usage() {
        let of = |usage: &str| Traits::of_usage(&Usage::from(usage));
        let usage = "  --output <FORMAT>  Format\n  --io-timeout <SECONDS>\n --protocol <RELEASE>";
        assert_eq!(of(usage), Traits::OURS);
        assert_eq!(of("--output-directory DIR"), Traits::REFERENCE);
        assert_eq!(
            of("  --task-count                Number of tasks").transactions_flag,
            "--task-count"
        );
    }

    #[test]
    fn each_program_is_asked_for_its_usage() {
        let directory = tempfile::tempdir().expect("a directory");
        for (role, script) in [
            (Role::Target, "echo '  --output FORMAT'"),
            (Role::ZeroCopy, "echo usage; exit 1"),
        ] {
            let path = directory.path().join(role.program());
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
        }
        let mixed = Implementation::in_directory("mixed", directory.path()).expect("programs");
        let mixed = Member::probe(mixed).expect("programs");
        let ours = mixed.traits(Role::Target);
        assert!(ours.checksums && !ours.io_timeout);
        assert_eq!(mixed.traits(Role::ZeroCopy), Traits::REFERENCE);
        assert!(!mixed.has(Role::Initiator));
    }

    #[test]
    fn a_patient_command_runs_the_same() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo $WORD"]).env("WORD", "hello");
        let allowed = rustix::thread::sched_getaffinity(None).expect("CPUs");
        let cpu = (0..rustix::thread::CpuSet::MAX_CPU)
            .find(|&cpu| allowed.is_set(cpu))
            .expect("a CPU");
        let output = patient(command, cpu).output().expect("a shell");
        assert_eq!(output.stdout, b"hello\n");
    }
}
