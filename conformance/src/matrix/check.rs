//! Checks that are run with every mix, their expected results, and the comparison.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use deployment::implementation::{Layout, Role};
use serde::Serialize;

use super::session::{CORRUPT, Ended, Plan, Session};
use super::{Mix, Traits};
use crate::report::Outcome;
use crate::violation::Violation;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Read without validation.
    ReadThroughput,
    /// Write without validation.
    WriteThroughput,
    /// Read the initial contents of the targets, and compare.
    ReadValidation,
    /// Write, read back, and compare.
    WriteReadValidation,
}

impl Strategy {
    pub const ALL: [Self; 4] = [
        Self::ReadThroughput,
        Self::WriteThroughput,
        Self::ReadValidation,
        Self::WriteReadValidation,
    ];

    /// Value of the initiator's `--execution-strategy`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadThroughput => "read_throughput_test",
            Self::WriteThroughput => "write_throughput_test",
            Self::ReadValidation => "read_only_data_validity_test",
            Self::WriteReadValidation => "read_write_data_validity_test",
        }
    }

    /// Number of reads per operation.
    pub(super) fn reads(self) -> u64 {
        u64::from(self != Self::WriteThroughput)
    }

    /// Number of writes per operation.
    pub(super) fn writes(self) -> u64 {
        u64::from(matches!(
            self,
            Self::WriteThroughput | Self::WriteReadValidation
        ))
    }

    /// Returns `true` if the initiator compares data, and so needs the expected contents.
    pub(super) fn validates(self) -> bool {
        matches!(self, Self::ReadValidation | Self::WriteReadValidation)
    }
}

/// A check: one session with a mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// A session without a fault, with this strategy.
    Strategy(Strategy),
    /// A target fails one valid I/O.
    FailingIo,
    /// The initiator requests a block beyond the end of the targets, which must fail.
    IoPastEnd,
    /// A target stores a block with one wrong byte.
    CorruptBlock,
}

impl Check {
    pub const ALL: [Self; 7] = [
        Self::Strategy(Strategy::ReadThroughput),
        Self::Strategy(Strategy::WriteThroughput),
        Self::Strategy(Strategy::ReadValidation),
        Self::Strategy(Strategy::WriteReadValidation),
        Self::FailingIo,
        Self::IoPastEnd,
        Self::CorruptBlock,
    ];

    /// The strategy's name, `failing_io`, `io_past_end` or `corrupt_block`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strategy(strategy) => strategy.name(),
            Self::FailingIo => "failing_io",
            Self::IoPastEnd => "io_past_end",
            Self::CorruptBlock => "corrupt_block",
        }
    }

    /// Verified property.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Strategy(Strategy::ReadThroughput | Strategy::WriteThroughput) => {
                "every I/O is answered with success, all roles count the same number of I/Os, exit with success and leave nothing behind; \
                 the bytes are not compared"
            }
            Self::Strategy(Strategy::ReadValidation) => {
                "as with throughput, and every block read is what the target's file (of the generator, in gga) says"
            }
            Self::Strategy(Strategy::WriteReadValidation) => {
                "as with throughput, and every block read back is what was written before"
            }
            Self::FailingIo => {
                "a scripted target in place of the mix's only, or first, one answers one I/O with DOCA_ERROR_IO_FAILED: the \
                 initiator fails and says so, unless a role of the mix is known to hide it"
            }
            Self::IoPastEnd => {
                "relays between service and targets tell of one block more than there is, so that the mix's own targets get an I/O \
                 that they cannot do: the initiator fails and says so, unless a role of the mix is known to hide it"
            }
            Self::CorruptBlock => {
                "a byte of one block in the target's (in gga, data_1's) file is wrong: the initiator's comparison finds it"
            }
        }
    }
}

// Expected result of a check with a mix.

/// Expected result of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expectation {
    /// All roles exit with success, report equal counts, and leave nothing behind.
    Good,
    /// The initiator fails, and its output contains these texts.
    Found(Vec<String>),
    /// The initiator exits with success: this role is known not to report the error.
    Hidden(Role),
}

impl Expectation {
    /// Expectation for this mix; `protocol` is the release of its programs, if given. The expectation is exact: a mix
    /// that behaves better than expected also fails.
    pub fn of(mix: &Mix<'_>, check: Check, protocol: Option<&str>) -> Self {
        let initiator = mix.initiator.traits(Role::Initiator);
        let service = mix.service.traits(mix.layout.service());
        match check {
            Check::Strategy(_) => Self::Good,
            // A target of 3.0 that refuses a read counts it as in flight, and therefore never answers
            // stop_storage_request.
            Check::IoPastEnd
                if mix.layout == Layout::ZeroCopy
                    && protocol == Some("3.0")
                    && !mix.targets[0].traits(Role::Target).checks_read_offsets =>
            {
                Self::Found(vec![
                    if initiator.looks_at_results && service.forwards_errors {
                        "DOCA_ERROR_INVALID_VALUE"
                    } else {
                        "stop_storage_re"
                    }
                    .to_owned(),
                ])
            }
            // All gga targets refuse the write.
            Check::IoPastEnd
                if mix.layout == Layout::ZeroCopy
                    && !mix.targets[0].traits(Role::Target).checks_read_offsets =>
            {
                Self::Hidden(Role::Target)
            }
            Check::FailingIo | Check::IoPastEnd
                if mix.layout == Layout::ZeroCopy && !service.forwards_errors =>
            {
                Self::Hidden(Role::ZeroCopy)
            }
            Check::FailingIo | Check::IoPastEnd if !initiator.looks_at_results => {
                Self::Hidden(Role::Initiator)
            }
            Check::FailingIo => Self::Found(vec!["DOCA_ERROR_IO_FAILED".to_owned()]),
            Check::IoPastEnd => Self::Found(vec!["DOCA_ERROR_".to_owned()]),
            Check::CorruptBlock => Self::mismatch(initiator),
        }
    }

    fn mismatch(initiator: Traits) -> Self {
        Self::Found(if initiator.looks_at_results {
            vec!["mismatch".to_owned(), format!("block {CORRUPT}")]
        } else if initiator.one_pass {
            vec!["Data mismatch".to_owned()]
        } else {
            vec!["does not match expected value".to_owned()]
        })
    }
}

impl Check {
    /// Strategy of the initiator for this check.
    pub(super) fn strategy(self, layout: Layout) -> Strategy {
        match (self, layout) {
            (Self::Strategy(strategy), _) => strategy,
            (Self::FailingIo | Self::IoPastEnd, Layout::ZeroCopy) => Strategy::ReadThroughput,
            // A failed chunk read in gga is not an error if the service recovers the block from the other targets.
            (Self::FailingIo | Self::IoPastEnd, Layout::Gga) => Strategy::WriteThroughput,
            (Self::CorruptBlock, _) => Strategy::ReadValidation,
        }
    }
}

// Comparison of a session with its expectation.

/// Numbers of lines and of bytes per line of each role's output that a report keeps: failed comparisons print whole
/// blocks in hexadecimal.
const KEPT_LINES: usize = 30;
const KEPT_LINE: usize = 240;

#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) outcome: Outcome,
    /// Table cell: `pass`, or the role in which an error was detected or hidden.
    pub(super) cell: &'static str,
    pub(super) note: Option<String>,
    /// Output of the roles, for a failed check.
    pub(super) output: Option<String>,
}

/// Compares a session with its expectation.
pub(super) fn judge(
    mix: &Mix<'_>,
    plan: Plan,
    expectation: &Expectation,
    session: &Session,
) -> Verdict {
    let result = match &session.trouble {
        Some(trouble) => Err(trouble.clone()),
        None => match expectation {
            Expectation::Good => ended_cleanly(session).and_then(|()| counted(mix, plan, session)),
            Expectation::Found(words) => found(words, session),
            Expectation::Hidden(role) => ended_cleanly(session).map_err(|reason| {
                Violation::new(format!(
                    "expected that the {role} hides the failed I/O from the initiator, but {reason}"
                ))
            }),
        },
    };
    let (outcome, cell, note, output) = match result {
        Ok(()) => (
            Outcome::Passed,
            cell(expectation),
            note(mix, expectation),
            None,
        ),
        Err(reason) => (
            Outcome::Failed(reason.to_string()),
            "FAIL",
            None,
            Some(transcript(session)),
        ),
    };
    Verdict {
        outcome,
        cell,
        note,
        output,
    }
}

fn cell(expectation: &Expectation) -> &'static str {
    match expectation {
        Expectation::Good => "pass",
        Expectation::Found(_) => "noticed",
        Expectation::Hidden(Role::Initiator) => "hidden by the initiator",
        Expectation::Hidden(Role::Target) => "hidden by the target",
        Expectation::Hidden(_) => "hidden by the service",
    }
}

fn note(mix: &Mix<'_>, expectation: &Expectation) -> Option<String> {
    match expectation {
        Expectation::Good => None,
        Expectation::Found(words) => Some(format!("the initiator fails: {}", words.join(", "))),
        Expectation::Hidden(role) => {
            let (member, label) = match role {
                Role::Initiator => (mix.initiator, "initiator"),
                Role::Target => (mix.targets[0], "target"),
                _ => (mix.service, "service"),
            };
            Some(format!(
                "hidden by the {label} of {}, as expected",
                member.name()
            ))
        }
    }
}

/// Checks that all roles exited by themselves with status 0, and left no files.
fn ended_cleanly(session: &Session) -> Result<(), Violation> {
    if let Some(bad) = session.all().find(|ended| !ended.exit.succeeded()) {
        let (role, name) = (bad.exit.role, &bad.name);
        return Err(Violation::new(match bad.exit.status {
            Some(status) => format!("{role} of {name} failed ({status})"),
            None => format!("{role} of {name} did not end and was killed"),
        }));
    }
    let leftovers = &session.leftovers;
    Violation::unless(
        leftovers.is_empty(),
        "an empty runtime directory",
        format_args!("{leftovers:?}"),
    )
}

/// Checks that all roles counted the I/Os of this strategy.
fn counted(mix: &Mix<'_>, plan: Plan, session: &Session) -> Result<(), Violation> {
    let operations = u64::from(plan.operations);
    let (reads, writes) = (plan.strategy.reads(), plan.strategy.writes());
    // I/Os of all targets together, per read and per write: any two chunks, all three.
    let (for_read, for_write) = match mix.layout {
        Layout::ZeroCopy => (1, 1),
        Layout::Gga => (2, 3),
    };
    let count = |what: &str, ended: &[&Ended], expected: u64| {
        let counted: Option<u64> = ended.iter().map(|ended| statistics(ended).operations).sum();
        match counted {
            Some(counted) if counted == expected => Ok(()),
            Some(counted) => Err(Violation::expected(
                format_args!("{what} to count {expected} I/Os"),
                counted,
            )),
            None => Err(Violation::new(format!(
                "expected {what} to print its operation count"
            ))),
        }
    };
    let initiator: Vec<_> = session.initiator.iter().collect();
    let service: Vec<_> = session.service.iter().collect();
    let targets: Vec<_> = session.targets.iter().collect();
    let each = if mix.initiator.traits(Role::Initiator).one_pass {
        reads + writes
    } else {
        1
    };
    count("the initiator", &initiator, operations * each)?;
    count("the service", &service, operations * (reads + writes))?;
    let halves = reads * for_read + writes * for_write;
    count("the targets", &targets, operations * halves)?;
    if mix.layout == Layout::Gga && plan.recover_every != 0 {
        let expected = operations * reads / u64::from(plan.recover_every);
        let counted = session
            .service
            .as_ref()
            .and_then(|ended| statistics(ended).recoveries);
        if counted != Some(expected) {
            return Err(Violation::expected(
                format_args!("the service to count {expected} recoveries"),
                format_args!("{counted:?}"),
            ));
        }
    }
    Ok(())
}

fn statistics(ended: &Ended) -> Statistics {
    Statistics::parse(&ended.exit.stdout)
}

/// Checks that the initiator failed, and printed these texts.
fn found(words: &[String], session: &Session) -> Result<(), Violation> {
    let expected = words.join(", ");
    let initiator = session
        .initiator
        .as_ref()
        .ok_or_else(|| Violation::new("there is no initiator"))?;
    match initiator
        .exit
        .status
        .and_then(|status: ExitStatus| status.code())
    {
        Some(0) => {
            return Err(Violation::new(format!(
                "expected the initiator to fail and to say {expected}; it exited with success"
            )));
        }
        Some(_) => {}
        None => {
            return Err(Violation::new(format!(
                "expected the initiator to fail and to say {expected}; it was ended by a signal ({:?})",
                initiator.exit.status
            )));
        }
    }
    let missing: Vec<_> = words
        .iter()
        .filter(|word| {
            !initiator.exit.stderr.contains(*word) && !initiator.exit.stdout.contains(*word)
        })
        .map(String::as_str)
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Violation::new(format!(
            "the initiator failed, as expected, but did not say {}",
            missing.join(", ")
        )))
    }
}

/// Last lines of the output of all roles.
///
/// Failed roles come last, and roles killed by a signal after all others, because a terminal shows the last lines.
/// Among roles of the same kind, the initiator is last, because its output is the most informative.
fn transcript(session: &Session) -> String {
    let mut text = String::new();
    let mut all: Vec<_> = session.all().collect();
    all.reverse();
    all.sort_by_key(|ended| match ended.exit.status {
        // Killed after other roles had failed.
        None => 1,
        Some(status) if status.success() => 0,
        Some(status) if status.signal().is_none() => 2,
        Some(_) => 3,
    });
    for ended in all {
        let status = match ended.exit.status {
            Some(status) => status.to_string(),
            None => "killed".to_owned(),
        };
        text.push_str(&format!(
            "--- {} of {} ({status})\n",
            ended.exit.role, ended.name
        ));
        for lines in [&ended.exit.stdout, &ended.exit.stderr] {
            let lines: Vec<&str> = lines.lines().collect();
            for line in &lines[lines.len().saturating_sub(KEPT_LINES)..] {
                match line.char_indices().nth(KEPT_LINE) {
                    Some((end, _)) => text.push_str(&format!("{}…\n", &line[..end])),
                    None => text.push_str(&format!("{line}\n")),
                }
            }
        }
    }
    text
}

// Statistics that the roles print at exit, in the reference's format, which our roles also use.

const OPERATIONS: &str = "| Operation count:";
const RECOVERIES: &str = "| Recovery count:";

/// Statistics of a role, summed over its workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Statistics {
    /// I/Os of a role, or operations of an initiator. `None` if the role has not printed them.
    pub(super) operations: Option<u64>,
    /// Blocks that a gga service read without one of the targets.
    pub(super) recoveries: Option<u64>,
}

impl Statistics {
    /// Parses the standard output of a role.
    pub(super) fn parse(text: &str) -> Self {
        let sum = |key: &str| {
            text.lines()
                .filter_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok())
                .reduce(u64::saturating_add)
        };
        Self {
            operations: sum(OPERATIONS),
            recoveries: sum(RECOVERIES),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use deployment::implementation::Implementation;

    use super::*;
    use crate::matrix::Member;

    fn member(name: &str, traits: Traits) -> Member {
        let path = Path::new("/nonexistent/doca-storage");
        let implementation = Implementation::of_binary(name, Role::Target, path);
        Member::with_traits(implementation, traits)
    }

    #[test]
    fn target_of_3_0_that_refuses_a_read_does_not_stop() {
        let (ours, reference) = (
            member("ours", Traits::OURS),
            member("reference", Traits::REFERENCE),
        );
        let of = |initiator, service, target, protocol| {
            let mix = Mix {
                layout: Layout::ZeroCopy,
                initiator,
                service,
                targets: vec![target],
                generator: None,
            };
            Expectation::of(&mix, Check::IoPastEnd, protocol)
        };
        let found = |word: &str| Expectation::Found(vec![word.to_owned()]);
        let noticed = found("DOCA_ERROR_INVALID_VALUE");
        let stuck = found("stop_storage_re");
        assert_eq!(of(&ours, &ours, &reference, Some("3.0")), noticed);
        assert_eq!(of(&ours, &reference, &reference, Some("3.0")), stuck);
        assert_eq!(of(&reference, &ours, &reference, Some("3.0")), stuck);
        assert_eq!(of(&reference, &reference, &reference, Some("3.0")), stuck);
        for protocol in [None, Some("3.1")] {
            let hidden = Expectation::Hidden(Role::Target);
            assert_eq!(of(&ours, &ours, &reference, protocol), hidden);
        }
        assert_eq!(of(&ours, &ours, &ours, Some("3.0")), found("DOCA_ERROR_"));
    }

    #[test]
    fn statistics_are_summed_over_workers() {
        let text = "[DOCA] log\n| Core: 0\n| Operation count: 20\n| Recovery count: 3\n| PE hit rate: 1.0% (1:2)\n\
                    | Core: 1\n| Operation count: 5\n| Recovery count: 1\n";
        let parsed = Statistics::parse(text);
        assert_eq!(parsed.operations, Some(25));
        assert_eq!(parsed.recoveries, Some(4));
        assert_eq!(Statistics::parse("nothing"), Statistics::default());
    }
}
