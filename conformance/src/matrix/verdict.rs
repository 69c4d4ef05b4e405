//! Comparison of a session with its expectation.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use super::check::Expectation;
use super::mix::Mix;
use super::session::{Ended, Plan, Session};
use crate::report::Outcome;
use deployment::implementation::Layout;
use deployment::implementation::Role;

/// Numbers of lines and of bytes per line of each role's output that a report keeps: failed comparisons print whole
/// blocks in hexadecimal.
const KEPT_LINES: usize = 30;
const KEPT_LINE: usize = 240;

/// Result of a check.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) outcome: Outcome,
    /// Table cell: `pass`, or the role in which an error was detected or hidden.
    pub(super) cell: &'static str,
    /// Note in the report.
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
            Expectation::Good => ended_well(session).and_then(|()| counted(mix, plan, session)),
            Expectation::Found(words) => found(words, session),
            Expectation::Hidden(role) => ended_well(session).map_err(|reason| {
                format!(
                    "expected that the {role} hides the failed I/O from the initiator, but {reason}"
                )
            }),
            Expectation::Healed => healed(session),
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
            Outcome::Failed(reason),
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
        Expectation::Healed => "healed",
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
        Expectation::Healed => Some(format!(
            "the service of {} makes the block anew from its parity",
            mix.service.name()
        )),
    }
}

/// Checks that all roles exited by themselves with status 0, and left no files.
fn ended_well(session: &Session) -> Result<(), String> {
    if let Some(bad) = session.all().find(|ended| !ended.exit.succeeded()) {
        return Err(match bad.exit.status {
            Some(status) => format!("{} of {} failed ({status})", bad.exit.role, bad.name),
            None => format!(
                "{} of {} did not end and was killed",
                bad.exit.role, bad.name
            ),
        });
    }
    if session.leftovers.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "expected an empty runtime directory, found {:?}",
            session.leftovers
        ))
    }
}

/// Checks that all roles counted the I/Os of this strategy.
fn counted(mix: &Mix<'_>, plan: Plan, session: &Session) -> Result<(), String> {
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
            Some(counted) => Err(format!(
                "expected {what} to count {expected} I/Os, got {counted}"
            )),
            None => Err(format!("expected {what} to print its operation count")),
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
            return Err(format!(
                "expected the service to count {expected} recoveries, got {counted:?}"
            ));
        }
    }
    Ok(())
}

fn statistics(ended: &Ended) -> Statistics {
    Statistics::parse(&ended.exit.stdout)
}

/// Checks that the initiator failed, and printed these texts.
fn found(words: &[String], session: &Session) -> Result<(), String> {
    let expected = words.join(", ");
    let initiator = session.initiator.as_ref().ok_or("there is no initiator")?;
    match initiator
        .exit
        .status
        .and_then(|status: ExitStatus| status.code())
    {
        Some(0) => {
            return Err(format!(
                "expected the initiator to fail and to say {expected}; it ended well"
            ));
        }
        Some(_) => {}
        None => {
            return Err(format!(
                "expected the initiator to fail and to say {expected}; it was ended by a signal ({:?})",
                initiator.exit.status
            ));
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
        Err(format!(
            "the initiator failed, as expected, but did not say {}",
            missing.join(", ")
        ))
    }
}

fn healed(session: &Session) -> Result<(), String> {
    ended_well(session)?;
    let service = session.service.as_ref().ok_or("there is no service")?;
    match statistics(service).corrected {
        Some(1..) => Ok(()),
        got => Err(format!(
            "expected the service to count corrected half blocks of data_1, got {got:?}"
        )),
    }
}

/// Last lines of the output of all roles.
///
/// Failed roles come last, and of them those that were killed by a signal, because a terminal shows the last lines.
/// Among equals, the initiator is last, because its output is the most informative.
fn transcript(session: &Session) -> String {
    let mut text = String::new();
    let mut all: Vec<_> = session.all().collect();
    all.reverse();
    all.sort_by_key(|ended| match ended.exit.status {
        // Killed because other roles had failed.
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

// Statistics that the roles print at exit, in the reference's format, which ours have, too.

const OPERATIONS: &str = "| Operation count:";
const RECOVERIES: &str = "| Recovery count:";
const CORRECTED: &str = "| Corrected half blocks of data_1:";

/// Statistics of a role, summed over its workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Statistics {
    /// I/Os of a role, or operations of an initiator. `None` if the role has not printed them.
    pub(super) operations: Option<u64>,
    /// Blocks that a gga service read without one of the targets.
    pub(super) recoveries: Option<u64>,
    /// Half blocks of data_1 that a gga service found corrupt, and corrected; the reference does not check.
    pub(super) corrected: Option<u64>,
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
            corrected: sum(CORRECTED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_summed_over_workers() {
        let text = "[DOCA] log\n| Core: 0\n| Operation count: 20\n| Recovery count: 3\n| PE hit rate: 1.0% (1:2)\n\
                    | Corrected half blocks of data_1: 2\n| Core: 1\n| Operation count: 5\n| Recovery count: 1\n";
        let parsed = Statistics::parse(text);
        assert_eq!(parsed.operations, Some(25));
        assert_eq!(parsed.recoveries, Some(4));
        assert_eq!(parsed.corrected, Some(2));
        assert_eq!(Statistics::parse("nothing"), Statistics::default());
    }
}
