//! Every function of the API is exported and has a test in C, and the test can fail. The C and C++ examples run, each as
//! a pair of processes.
//!
//! The tests are in `softdoca/tests/c`. Each lists the functions that it covers; one test breaks each function once so
//! that it does nothing and succeeds, and once so that it is not supported, and one of its tests must fail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use softdoca_sdk::State;

use crate::support::{self, Language, PROGRAMS, Sdk, built_library, compile, succeed};

/// A C test and the functions that it covers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    program: PathBuf,
    name: String,
}

struct Suite {
    sdk: Sdk,
    tests: BTreeMap<String, Vec<Test>>,
}

impl Suite {
    fn compile() -> Self {
        let sdk = Sdk::install();
        let mut tests: BTreeMap<String, Vec<Test>> = BTreeMap::new();
        for name in PROGRAMS {
            let program = compile(&sdk, name);
            for line in succeed(sdk.command(&program, "run").arg("--list")).lines() {
                let (name, functions) = line.split_once(": ").expect("a name and functions");
                for function in functions.split(", ") {
                    tests.entry(function.to_owned()).or_default().push(Test {
                        program: program.clone(),
                        name: name.to_owned(),
                    });
                }
            }
        }
        Self { sdk, tests }
    }

    fn run(&self, test: &Test, broken: Option<(&str, u32)>) -> Output {
        // Private directories, because tests run in parallel.
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let mut command: Command = self.sdk.command(&test.program, &format!("run-{run}"));
        command.arg(&test.name);
        if let Some((function, result)) = broken {
            command.env("SOFTDOCA_BREAK", format!("{function}={result}"));
        }
        command.output().expect("a process")
    }

    /// Runs an action for each item on a few threads, and collects the results.
    fn each<T: Sync>(
        &self,
        items: &[T],
        check: impl Fn(&T) -> Option<String> + Sync,
    ) -> Vec<String> {
        let next = AtomicUsize::new(0);
        let worker = || {
            let mut problems = Vec::new();
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                problems.extend(check(item));
            }
            problems
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
            workers
                .into_iter()
                .flat_map(|worker| worker.join().expect("no panic"))
                .collect()
        })
    }
}

#[test]
fn every_function_has_a_test_that_can_fail() {
    let suite = Suite::compile();
    let declared: BTreeSet<&str> = doca_abi::headers()
        .iter()
        .flat_map(|header| header.functions)
        .map(|function| function.name)
        .chain(softdoca_sdk::VARIADIC_FUNCTIONS.iter().copied())
        .collect();
    let tested: BTreeSet<&str> = suite.tests.keys().map(String::as_str).collect();
    let unknown: Vec<_> = tested.difference(&declared).collect();
    assert!(
        unknown.is_empty(),
        "tests for functions that there are not: {unknown:?}"
    );

    let all: BTreeSet<&Test> = suite.tests.values().flatten().collect();
    let all: Vec<&Test> = all.into_iter().collect();
    let failures = suite.each(&all, |test| {
        let output = suite.run(test, None);
        (!output.status.success()).then(|| {
            format!(
                "{} of {}: {}\n{}",
                test.name,
                file_name(&test.program),
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )
        })
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));

    let functions: Vec<(&String, &Vec<Test>)> = suite
        .tests
        .iter()
        // Breaking functions without effect cannot be detected.
        .filter(|(function, _)| softdoca_sdk::state(function) != State::NothingToDo)
        .collect();
    let blind = suite.each(&functions, |(function, tests)| {
        let unnoticed: Vec<u32> = [doca_abi::DOCA_SUCCESS, doca_abi::DOCA_ERROR_NOT_SUPPORTED]
            .into_iter()
            .filter(|result| {
                tests
                    .iter()
                    .all(|test| suite.run(test, Some((function, *result))).status.success())
            })
            .collect();
        (!unnoticed.is_empty()).then(|| {
            format!("{function}: its tests pass although it does nothing but return {unnoticed:?}")
        })
    });
    assert!(blind.is_empty(), "{}", blind.join("\n"));

    let untested: Vec<_> = declared.difference(&tested).collect();
    assert!(
        untested.is_empty(),
        "{} functions without a test in C: {untested:?}",
        untested.len()
    );
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn exported() -> BTreeSet<String> {
    succeed(
        Command::new("nm")
            .args(["--dynamic", "--defined-only", "--format=posix"])
            .arg(built_library()),
    )
    .lines()
    .filter_map(|line| line.split(' ').next().map(str::to_owned))
    .collect()
}

#[test]
fn every_function_of_the_table_is_exported() {
    let exported = exported();
    let expected: BTreeSet<String> = doca_abi::headers()
        .iter()
        .flat_map(|header| header.functions)
        .map(|function| function.name)
        .chain(softdoca_sdk::VARIADIC_FUNCTIONS.iter().copied())
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = expected.difference(&exported).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    // An exported symbol without a declaration is a leak, except those that variadic.c calls.
    let surplus: Vec<_> = exported
        .difference(&expected)
        .filter(|name| *name != "softdoca_log_formatted")
        .collect();
    assert!(
        surplus.is_empty(),
        "exported, but not declared: {surplus:?}"
    );
}

#[test]
fn the_library_has_one_name() {
    let sdk = Sdk::install();
    for entry in sdk.libraries().read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "so") {
            let target = path.canonicalize().unwrap();
            assert_eq!(target.file_name().unwrap(), softdoca_sdk::SONAME);
        }
    }
    let dynamic = succeed(
        Command::new("readelf")
            .arg("-d")
            .arg(sdk.libraries().join("libdoca_comch.so")),
    );
    assert!(
        dynamic.contains(&format!("soname: [{}]", softdoca_sdk::SONAME)),
        "{dynamic}"
    );
}

#[test]
fn comch_messages_go_back_and_forth() {
    support::ping_pong(&Sdk::install(), &[]);
}

#[test]
fn a_process_writes_into_anothers_memory() {
    if !Language::Cxx.compilers().is_empty() {
        support::write_to_a_peer(&Sdk::install(), &[]);
    }
}
