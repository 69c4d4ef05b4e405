//! System calls of a session's roles, counted by the kernel for `perf stat`: all of them, and apart from the others those that
//! only give the CPU away.

use std::path::PathBuf;
use std::process::Command;

use conformance::scene::Scene;

use super::Cast;
use super::stage::Stage;
use crate::Error;
use crate::point::Point;
use crate::series::{Figures, SystemCalls};

/// All system calls, of whatever name.
const ALL: &str = "raw_syscalls:sys_enter";
/// Those that only give the CPU away.
const YIELDS: &str = "syscalls:sys_enter_sched_yield";
/// Operations of the session whose calls are subtracted: it starts, fills its pipeline and ends as the long one does.
const FEW: u64 = 1000;
/// The long one has so many times what takes the time of a run: few calls are found among many operations.
const LONGER: u64 = 4;

/// Counts of one process and all its threads, from its start to its end.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Tally {
    all: f64,
    yields: f64,
}

/// Why system calls cannot be counted here, in words; nothing when they can.
pub fn cannot_count() -> Option<String> {
    let counted = || -> Result<Tally, Error> {
        let tallies = Tallies {
            directory: tempfile::tempdir()?,
        };
        let output = tallies.around("true", &Command::new("true")).output()?;
        tallies.of("true").map_err(|error| match error {
            // What it could not do is on its standard error.
            Error::Io(_) => Error::Output {
                program: "perf",
                expected: "its counts",
                got: String::from_utf8_lossy(&output.stderr).into_owned(),
            },
            other => other,
        })
    };
    match counted() {
        Ok(_) => None,
        Err(error) => Some(format!(
            "system calls per I/O: `perf stat -e {ALL}` does not count here ({}); Debian's package is linux-perf, and tracepoints \
             are for root, or for kernel.perf_event_paranoid=-1 and a tracefs that may be read",
            error.to_string().trim_end()
        )),
    }
}

/// Files that `perf stat` writes its counts to, one for each process.
#[derive(Debug)]
pub(super) struct Tallies {
    directory: tempfile::TempDir,
}

impl Tallies {
    fn file(&self, role: &str) -> PathBuf {
        self.directory.path().join(role)
    }

    /// The same command, counted from its first system call to its last.
    pub(super) fn around(&self, role: &str, command: &Command) -> Command {
        let mut counted = Command::new("perf");
        counted
            .args(["stat", "-x", ",", "-e", ALL, "-e", YIELDS, "-o"])
            .arg(self.file(role))
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => counted.env(name, value),
                None => counted.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            counted.current_dir(directory);
        }
        counted
    }

    /// What was counted of a process that has ended.
    fn of(&self, role: &str) -> Result<Tally, Error> {
        parse(&std::fs::read_to_string(self.file(role))?)
    }
}

/// Lines are: count, unit, event, time, percent of the time.
fn parse(text: &str) -> Result<Tally, Error> {
    let count = |event: &str| {
        text.lines().find_map(|line| {
            let mut fields = line.split(',');
            let count = fields.next()?.trim().parse().ok()?;
            (fields.nth(1)?.trim() == event).then_some(count)
        })
    };
    count(ALL)
        .zip(count(YIELDS))
        .map(|(all, yields)| Tally { all, yields })
        .ok_or_else(|| Error::Output {
            program: "perf",
            expected: "counts of system calls",
            got: text.to_owned(),
        })
}

/// System calls per I/O of a session of some times as many operations. Those of start and end are not among them: a short session's calls
/// are subtracted.
///
/// # Errors
///
/// A role cannot be started or has failed, or perf does not count.
pub fn system_calls(
    cast: &Cast,
    point: Point,
    operations: u64,
    cpus: &[usize],
) -> Result<Figures, Error> {
    let operations = LONGER * operations;
    let (short, _) = session(cast, point, FEW, cpus)?;
    let (long, mut figures) = session(cast, point, FEW + operations, cpus)?;
    figures.system_calls = Some(per_operation(&short, &long, operations as f64));
    Ok(figures)
}

/// What each role calls more in a longer session: initiator, service, targets.
fn per_operation(short: &[Tally; 3], long: &[Tally; 3], operations: f64) -> SystemCalls {
    let more = |of: fn(&Tally) -> f64, role: usize| {
        // May be below nothing by a little: roles sleep more or less often while sessions begin and end.
        (of(&long[role]) - of(&short[role])) / operations
    };
    let working = |tally: &Tally| tally.all - tally.yields;
    SystemCalls {
        initiator: more(working, 0),
        service: more(working, 1),
        targets: more(working, 2),
        yields: (0..3).map(|role| more(|tally| tally.yields, role)).sum(),
    }
}

fn session(
    cast: &Cast,
    point: Point,
    operations: u64,
    cpus: &[usize],
) -> Result<([Tally; 3], Figures), Error> {
    let stage = Stage {
        cast,
        point,
        operations,
        cpus,
        scene: Scene::new()?,
        backing: None,
        tallies: Some(Tallies {
            directory: tempfile::tempdir()?,
        }),
    };
    let ended = stage.run()?;
    let tally = |role| match &stage.tallies {
        Some(tallies) => tallies.of(role),
        None => Ok(Tally::default()),
    };
    let mut targets = Tally::default();
    for name in point.layout.targets() {
        let target = tally(name)?;
        targets.all += target.all;
        targets.yields += target.yields;
    }
    let figures = super::figures::parse(&ended.stdout, point)?;
    Ok(([tally("initiator")?, tally("service")?, targets], figures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_what_was_not_counted_is_no_zero() {
        let text = "# started on a day\n\n1024,,raw_syscalls:sys_enter,5000,100.00,,\n24,,syscalls:sys_enter_sched_yield,5000,100.00,,\n";
        let expected = Tally {
            all: 1024.0,
            yields: 24.0,
        };
        assert_eq!(parse(text).expect("counts"), expected);
        let error = parse(&text.replace("1024", "<not counted>")).expect_err("no count");
        assert!(error.to_string().contains("<not counted>"), "{error}");
    }

    #[test]
    fn what_a_session_calls_anyway_is_not_counted_per_operation() {
        let tally = |all, yields| Tally { all, yields };
        let short = [tally(500.0, 100.0); 3];
        let long = [
            tally(900.0, 200.0),
            tally(700.0, 300.0),
            tally(490.0, 100.0),
        ];
        let calls = per_operation(&short, &long, 1000.0);
        let calls = [
            calls.initiator,
            calls.service,
            calls.targets,
            calls.yields,
            calls.total(),
        ];
        let expected = [0.3, 0.0, -0.01, 0.3, 0.29];
        for (came, expected) in calls.into_iter().zip(expected) {
            assert!((came - expected).abs() < 1e-9, "{calls:?}");
        }
    }

    #[test]
    fn a_command_keeps_its_arguments_and_surroundings() {
        let tallies = Tallies {
            directory: tempfile::tempdir().expect("a directory"),
        };
        let mut command = Command::new("role");
        command
            .arg("--cpu")
            .env("A", "b")
            .env_remove("C")
            .current_dir("/");
        let counted = tallies.around("service", &command);
        let words: Vec<_> = counted.get_args().collect();
        assert!(
            words.ends_with(&["--".as_ref(), "role".as_ref(), "--cpu".as_ref()]),
            "{words:?}"
        );
        assert_eq!(counted.get_envs().count(), 2);
        assert_eq!(counted.get_current_dir(), Some("/".as_ref()));
    }
}
