//! Runs checks: several at a time, because most of them mostly wait.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::{Bench, Check, Subject, Wrong};
use crate::process::Signal;
use crate::report::{Case, Outcome, Report};

/// Plays the checks on `jobs` threads. `done` is told the name of each that has ended; `interrupted` says that nobody wants the
/// rest. The cases come in the order of the checks.
pub fn run(
    subject: &Subject,
    checks: &[Check],
    jobs: usize,
    done: &(dyn Fn(&str) + Sync),
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Report {
    let next = AtomicUsize::new(0);
    let cases = Mutex::new(Vec::with_capacity(checks.len()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, checks.len().max(1)) {
            scope.spawn(|| {
                while let Some((index, check)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    checks.get(index).map(|check| (index, check))
                } {
                    let case = if interrupted() {
                        Case::new(
                            &suite(subject),
                            check.name,
                            Outcome::NotRun("interrupted".to_owned()),
                        )
                    } else {
                        play(subject, check)
                    };
                    done(check.name);
                    cases
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .push((index, case));
                }
            });
        }
    });
    let mut cases = cases
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    cases.sort_by_key(|(index, _)| *index);
    Report {
        cases: cases.into_iter().map(|(_, case)| case).collect(),
    }
}

fn suite(subject: &Subject) -> String {
    format!("role.{}", subject.role)
}

fn play(subject: &Subject, check: &Check) -> Case {
    let started = Instant::now();
    let mut repeated = 0;
    let (result, output) = loop {
        let (result, output, crash) = play_once(subject, check);
        let raced = crash == Some(Signal::SEGV.as_raw());
        if result.is_ok() || !raced || repeated == subject.crash_retries {
            break (result, output);
        }
        repeated += 1;
    };
    Case {
        meaning: check.meaning.to_owned(),
        note: (repeated > 0).then(|| format!("repeated after {repeated} crashes (SIGSEGV)")),
        took: started.elapsed(),
        output: Some(output).filter(|output| !output.is_empty()),
        ..Case::new(
            &suite(subject),
            check.name,
            result.map_or_else(
                |wrong| Outcome::Failed(wrong.to_string()),
                |()| Outcome::Passed,
            ),
        )
    }
}

/// A role that is killed by a signal nobody has sent has failed, whatever its peers saw.
fn play_once(subject: &Subject, check: &Check) -> (Result<(), Wrong>, String, Option<i32>) {
    let bench = match Bench::new(subject) {
        Ok(bench) => bench,
        Err(wrong) => return (Err(wrong), String::new(), None),
    };
    let result = (check.play)(&bench);
    let watch = bench.watch();
    let result = result.and_then(|()| match watch.crash {
        None => Ok(()),
        Some(signal) => Err(Wrong::new(format!("it was killed by signal {signal}"))),
    });
    (result, watch.output.clone(), watch.crash)
}
