//! Every combination of implementations, in one deployment each.
//!
//! A [`Mix`] assigns an implementation to every role of a [`Layout`]; a [`Check`] is one session with it: the four
//! strategies of the initiator, two I/Os that fail, a corrupt block. [`Matrix::run`] starts the processes of a
//! session in a [`Sandbox`], and compares their exit statuses, their statistics and
//! leftovers with the [`Expectation`] for this mix, which depends on the [`Traits`] of its members.

mod check;
mod session;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::implementation::{Error, Implementation, Role, Usage};
use deployment::network::Network;
use deployment::sandbox::Sandbox;
use serde::Serialize;

use crate::report::{Case, Outcome};
use crate::violation::{During as _, Violation};
use check::judge;
use session::{BLOCKS, Deployment, Library, Plan, Session};

pub use check::{Check, Expectation, Strategy};
pub use deployment::implementation::Layout;

/// Interval of recovery reads of a gga service, in reads.
const RECOVER_EVERY: u32 = 2;

/// Result of a check.
#[derive(Debug, Clone, Serialize)]
pub struct Tried {
    pub layout: Layout,
    /// Names of the implementations, from the initiator to the last target.
    pub mix: Vec<String>,
    #[serde(skip)]
    pub check: Check,
    /// Table cell: `pass`, `FAIL`, or the role in which an error was detected or hidden.
    pub cell: &'static str,
    /// Number of sessions repeated because a program crashed at the start of a worker thread.
    pub start_races: u32,
    #[serde(flatten)]
    pub case: Case,
}

/// Runs checks with mixes.
#[derive(Debug)]
pub struct Matrix {
    settings: Settings,
    library: Library,
}

impl Matrix {
    /// Creates a matrix with these settings.
    pub fn new(settings: Settings) -> Self {
        let library = Library::new(settings.timeout);
        Self { settings, library }
    }

    /// Runs a check with a mix: one session, repeated while the session fails because of the reference's race at start.
    pub fn run(&self, mix: &Mix<'_>, check: Check, interrupted: Interrupted<'_>) -> Tried {
        let started = Instant::now();
        let expectation = Expectation::of(mix, check, self.settings.protocol.as_deref());
        let plan = self.plan(mix, check);
        let mut start_races = 0;
        let verdict = loop {
            let session = self.session(mix, check, plan, interrupted);
            if session.is_start_race() && start_races < self.settings.retries && !interrupted() {
                start_races += 1;
                continue;
            }
            break judge(mix, plan, &expectation, &session);
        };
        let races = match start_races {
            0 => None,
            1 => Some("1 start race repeated".to_owned()),
            n => Some(format!("{n} start races repeated")),
        };
        let notes: Vec<String> = verdict.note.into_iter().chain(races).collect();
        Tried {
            layout: mix.layout,
            mix: mix.names().map(str::to_owned).collect(),
            check,
            cell: verdict.cell,
            start_races,
            case: Case {
                meaning: check.meaning().to_owned(),
                note: (!notes.is_empty()).then(|| notes.join("; ")),
                took: started.elapsed(),
                output: verdict.output,
                ..Case::new(
                    suite(mix.layout),
                    format!("{mix}: {}", check.name()),
                    verdict.outcome,
                )
            },
        }
    }

    fn plan(&self, mix: &Mix<'_>, check: Check) -> Plan {
        let layout = mix.layout;
        let strategy = check.strategy(layout);
        let one_pass = u32::try_from(BLOCKS).unwrap_or(u32::MAX);
        let operations = self.settings.operations;
        Plan {
            strategy,
            // An initiator requests the block beyond the end in its first pass.
            operations: if strategy.validates() && mix.initiator.traits(Role::Initiator).one_pass {
                one_pass
            } else if strategy.validates() || check == Check::IoPastEnd {
                operations.max(2 * one_pass)
            } else {
                operations
            },
            recover_every: match check {
                Check::Strategy(_) => RECOVER_EVERY,
                // A recovery read might bypass the faulty target.
                Check::FailingIo | Check::IoPastEnd | Check::CorruptBlock => 0,
            },
            failing_io: check == Check::FailingIo,
            overstated: check == Check::IoPastEnd,
        }
    }

    fn session(
        &self,
        mix: &Mix<'_>,
        check: Check,
        plan: Plan,
        interrupted: Interrupted<'_>,
    ) -> Session {
        let trouble = |trouble| Session {
            trouble: Some(trouble),
            ..Session::default()
        };
        let mut files = match self.library.of(mix, self.settings.cpus[0]) {
            Ok(files) => files,
            Err(error) => return trouble(error),
        };
        match check {
            Check::CorruptBlock => files.corrupt(mix.layout),
            Check::Strategy(Strategy::WriteReadValidation) => files.shift(mix.layout),
            _ => {}
        }
        let roles = self.sandbox().and_then(|sandbox| {
            let roles = deployment::Deployment::new(sandbox, mix.layout, session::READY);
            Ok(roles?)
        });
        let roles = match roles {
            Ok(roles) => roles,
            Err(error) => return trouble(error),
        };
        let deployment = Deployment {
            settings: &self.settings,
            mix,
            plan,
            files: &files,
            interrupted,
            roles,
        };
        deployment.play()
    }
}

impl Matrix {
    fn sandbox(&self) -> Result<Sandbox, Violation> {
        let sandbox = match self.settings.hosts {
            0 | 1 => Sandbox::new(),
            hosts => Sandbox::over(Network::new(hosts)?),
        };
        sandbox.during("a directory")
    }
}

/// Name of a layout's group of cases in a report.
fn suite(layout: Layout) -> &'static str {
    match layout {
        Layout::ZeroCopy => "matrix.zero_copy",
        Layout::Gga => "matrix.gga",
    }
}

impl Tried {
    /// Returns `true` if the result was as expected.
    pub fn passed(&self) -> bool {
        self.case.outcome == Outcome::Passed
    }
}

// Combinations of implementations.

/// An implementation for every role of a deployment.
#[derive(Debug, Clone)]
pub struct Mix<'a> {
    pub layout: Layout,
    pub initiator: &'a Member,
    /// Implementation of the service; its generator, if it has a program for it, generates the contents of gga targets.
    pub service: &'a Member,
    /// Implementations of the targets, in the order of [`Layout::targets`].
    pub targets: Vec<&'a Member>,
    /// Implementation of the generator, if one is needed.
    pub generator: Option<&'a Member>,
}

impl Mix<'_> {
    /// Names of the implementations, from the initiator to the last target.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [self.initiator, self.service]
            .into_iter()
            .chain(self.targets.iter().copied())
            .map(Member::name)
    }
}

/// Names, separated by commas: `rust,cpp,rust`.
impl fmt::Display for Mix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(","))
    }
}

/// All mixes of these members in a layout; members without a program for a role are not assigned to it. Two members
/// have 8 mixes for zero copy, 32 for gga.
pub fn mixes(layout: Layout, members: &[Member]) -> Vec<Mix<'_>> {
    let having = |role| members.iter().filter(move |member| member.has(role));
    let mut targets = vec![Vec::new()];
    for _ in layout.targets() {
        targets = targets
            .iter()
            .flat_map(|chosen| {
                having(Role::Target).map(move |member| {
                    let mut chosen = chosen.clone();
                    chosen.push(member);
                    chosen
                })
            })
            .collect();
    }
    let mut mixes = Vec::new();
    for initiator in having(Role::Initiator) {
        for service in having(layout.service()) {
            let generator = std::iter::once(service)
                .chain(members)
                .find(|member| layout == Layout::Gga && member.has(Role::SbcGenerator));
            mixes.extend(targets.iter().map(|targets| Mix {
                layout,
                initiator,
                service,
                targets: targets.clone(),
                generator,
            }));
        }
    }
    mixes
}

// An implementation and the properties of its programs.

/// Flag for the timeout of an I/O.
const IO_TIMEOUT: &str = "--io-timeout";
/// Flag for the release of the protocol.
const PROTOCOL: &str = "--protocol";

/// Behaviour of a role in which implementations differ. An unexpected difference fails a check, and so does a missing expected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// Initiators: a failed I/O is detected.
    pub looks_at_results: bool,
    /// Targets: a read beyond their end is an error. The reference ignores the error when it sets the buffer's range,
    /// and transfers the previous range; a write fails, because the buffer is full.
    pub checks_read_offsets: bool,
    /// The zero-copy service: an error of a target is forwarded to the initiator.
    pub forwards_errors: bool,
    /// Initiators: the program has a flag `--io-timeout`, with a default of some seconds.
    pub io_timeout: bool,
    /// Initiators: flag for the number of I/Os in flight.
    pub transactions_flag: &'static str,
    /// Initiators: a validating strategy makes one pass over the storage, regardless of the limit, and counts reads and
    /// writes. Only version 3.0 of the reference, which is recognised by `--batch-size`.
    pub one_pass: bool,
    /// The program has a flag `--protocol`.
    pub protocol: bool,
    /// May crash at the start of a worker thread: the reference's threads read a handle that their parent may not have stored yet.
    pub start_race: bool,
}

impl Traits {
    pub const OURS: Self = Self {
        looks_at_results: true,
        checks_read_offsets: true,
        forwards_errors: true,
        io_timeout: true,
        transactions_flag: "--transaction-count",
        one_pass: false,
        protocol: true,
        start_race: false,
    };

    /// Traits of the C++ reference.
    pub const REFERENCE: Self = Self {
        looks_at_results: false,
        checks_read_offsets: false,
        forwards_errors: false,
        io_timeout: false,
        transactions_flag: "--transaction-count",
        one_pass: false,
        protocol: false,
        start_race: true,
    };

    /// Traits of a program with this usage.
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

/// An implementation with the traits of each of its programs.
#[derive(Debug, Clone)]
pub struct Member {
    implementation: Implementation,
    traits: BTreeMap<Role, Traits>,
}

impl Member {
    /// Runs each program with `--help`, and determines its traits from the usage. A program without a usage is assumed
    /// to be of the reference: its error is reported when it is run.
    ///
    /// # Errors
    ///
    /// None at present: a role without a program is not an error.
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

    /// A member with known traits.
    pub fn with_traits(implementation: Implementation, traits: Traits) -> Self {
        Self {
            implementation,
            traits: Role::ALL.map(|role| (role, traits)).into(),
        }
    }

    pub fn name(&self) -> &str {
        self.implementation.name()
    }

    /// Returns `true` if the member has a program for this role.
    pub fn has(&self, role: Role) -> bool {
        self.implementation.has(role)
    }

    /// Traits of a role; the reference's traits for an unknown role.
    pub fn traits(&self, role: Role) -> Traits {
        self.traits.get(&role).copied().unwrap_or(Traits::REFERENCE)
    }

    /// Command line of this role, without flags, that starts on `cpu`.
    ///
    /// # Errors
    ///
    /// The member has no program for the role.
    fn command(&self, role: Role, cpu: usize) -> Result<Command, Error> {
        let command = self.implementation.command(role)?;
        Ok(if self.traits(role).start_race {
            patient(command, cpu)
        } else {
            command
        })
    }
}

/// Wraps a command so that its threads do not preempt their parent, which makes it more likely that the parent wins the
/// race at their start. Without the tools for that, the command is returned unchanged.
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
    deployment::wrap(first, words, &command)
}

fn in_path(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsStr::new("/usr/bin:/bin").to_owned());
    std::env::split_paths(&path)
        .map(|directory| directory.join(tool))
        .find(|path| path.is_file())
}

// Settings of all checks of a run.

/// Returns `true` if the run is to be stopped.
pub type Interrupted<'a> = &'a (dyn Fn() -> bool + Sync);

#[derive(Debug, Clone)]
pub struct Settings {
    /// Operations of an initiator; a validating strategy makes at least two passes over the storage.
    pub operations: u32,
    /// Timeout of a session.
    pub timeout: Duration,
    /// Maximum number of repetitions of a session that ended in a start race.
    pub retries: u32,
    /// Value of `--protocol` for programs with that flag, if any.
    pub protocol: Option<String>,
    /// CPUs for the roles' workers, at least one.
    pub cpus: Vec<usize>,
    /// Number of machines of each session: if more than one, they are network namespaces, and the targets run on other
    /// machines than the service.
    pub hosts: usize,
    /// Program and first arguments of a [`ScriptedTarget`](crate::target::ScriptedTarget) as a process:
    /// `doca-storage conformance faulty-target`.
    pub scripted_target: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use deployment::implementation::Implementation;

    use super::{Traits, *};

    fn member(name: &str) -> Member {
        let multi_call = Path::new("/nowhere/doca-storage");
        let implementation = Implementation::of_binary(name, Role::Target, multi_call);
        Member::with_traits(implementation, Traits::REFERENCE)
    }

    #[test]
    fn mixes_are_all_combinations() {
        let members = [member("rust"), member("cpp")];
        let zero_copy = mixes(Layout::ZeroCopy, &members);
        let names: Vec<String> = zero_copy.iter().map(Mix::to_string).collect();
        assert_eq!(
            names,
            [
                "rust,rust,rust",
                "rust,rust,cpp",
                "rust,cpp,rust",
                "rust,cpp,cpp",
                "cpp,rust,rust",
                "cpp,rust,cpp",
                "cpp,cpp,rust",
                "cpp,cpp,cpp"
            ]
        );
        let gga = mixes(Layout::Gga, &members);
        assert_eq!(gga.len(), 32);
        assert_eq!(gga[21].to_string(), "cpp,rust,cpp,rust,cpp");
        assert_eq!(gga[21].generator.map(Member::name), Some("rust"));
        assert_eq!(mixes(Layout::Gga, &members[..1]).len(), 1);
    }

    #[test]
    fn implementations_without_a_program_are_left_out() {
        let own = Implementation::of_binary("own", Role::Target, Path::new("/nowhere/own"));
        let members = [member("rust"), Member::with_traits(own, Traits::REFERENCE)];
        let names: Vec<_> = mixes(Layout::ZeroCopy, &members)
            .iter()
            .map(Mix::to_string)
            .collect();
        assert_eq!(names, ["rust,rust,rust", "rust,rust,own"]);
    }

    #[test]
    fn traits_are_taken_from_the_usage() {
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
        assert!(ours.checks_read_offsets && !ours.io_timeout);
        assert_eq!(mixed.traits(Role::ZeroCopy), Traits::REFERENCE);
        assert!(!mixed.has(Role::Initiator));
    }

    #[test]
    fn patient_command_keeps_arguments_and_environment() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo $WORD"]).env("WORD", "hello");
        let cpu = deployment::allowed_cpus().expect("an affinity mask")[0];
        let output = patient(command, cpu).output().expect("a shell");
        assert_eq!(output.stdout, b"hello\n");
    }
}
