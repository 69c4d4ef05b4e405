//! softdoca as it is installed, used from C and C++.
//!
//! * Every function of the API is exported and has a test in C (`softdoca/tests/c`), and the test can fail: each test
//!   lists the functions that it covers; a further test breaks each function, once so that it succeeds without effect,
//!   and once so that it is not supported, and checks that a test of the function fails. The C and C++ examples run,
//!   each as a pair of processes.
//! * The headers are compiled with several compilers; programs are compiled with the flags of the pkg-config files.
//! * The programs of the roles, linked through pkg-config to an installed softdoca as they would be to NVIDIA's libraries,
//!   are rebuilt with `--cfg doca_sdk`. The first run compiles everything but build scripts and procedural macros, to which
//!   `RUSTFLAGS` does not apply with `--target`: those are reused from this test's build.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, thread};

use conformance::matrix::{self, Check, Matrix, Member, Settings, Strategy, mixes};
use deployment::implementation::{Implementation, Role};
use doca_abi::EARLIER_FUNCTIONS;
use softdoca_sdk::{Directories, Layout, Release, Side, State, modules};

use support::{
    Language, PROGRAMS, PROGRAMS_OF_2_X, RELEASES_OF_2_X, Sdk, built_library, compile,
    lacks_pkg_config, succeed,
};

/// A C test and the functions that it covers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    /// Of the headers that the program was compiled with.
    release: Release,
    program: PathBuf,
    name: String,
}

struct Suite {
    /// An installation for each release.
    sdks: BTreeMap<Release, Sdk>,
    tests: BTreeMap<String, Vec<Test>>,
}

impl Suite {
    fn compile() -> Self {
        let sdks = BTreeMap::from(Release::ALL.map(|release| (release, Sdk::install_for(release))));
        let mut tests: BTreeMap<String, Vec<Test>> = BTreeMap::new();
        let current = PROGRAMS.iter().map(|name| (Release::CURRENT, name));
        let earlier = RELEASES_OF_2_X
            .into_iter()
            .flat_map(|release| PROGRAMS_OF_2_X.iter().map(move |name| (release, name)));
        for (release, name) in current.chain(earlier) {
            let sdk = &sdks[&release];
            let program = compile(sdk, name);
            for line in succeed(sdk.command(&program, "run").arg("--list")).lines() {
                let (name, functions) = line.split_once(": ").expect("a name and functions");
                for function in functions.split(", ") {
                    tests.entry(function.to_owned()).or_default().push(Test {
                        release,
                        program: program.clone(),
                        name: name.to_owned(),
                    });
                }
            }
        }
        Self { sdks, tests }
    }

    fn run(&self, test: &Test, broken: Option<(&str, u32)>) -> Output {
        // Private directories, because tests run in parallel.
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let sdk = &self.sdks[&test.release];
        let mut command: Command = sdk.command(&test.program, &format!("run-{run}"));
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
        .chain(EARLIER_FUNCTIONS.iter().map(|earlier| earlier.decl.symbol))
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
        .chain(EARLIER_FUNCTIONS.iter().map(|earlier| earlier.decl.symbol))
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = expected.difference(&exported).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    // An exported symbol without a declaration is a leak, except for those that variadic.c calls.
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
    for release in Release::ALL {
        has_one_name(&Sdk::install_for(release), release);
    }
}

fn has_one_name(sdk: &Sdk, release: Release) {
    let soname = softdoca_sdk::soname(release);
    for entry in sdk.libraries().read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "so") {
            let target = path.canonicalize().unwrap();
            assert_eq!(target.file_name().unwrap(), soname);
        }
    }
    let dynamic = succeed(
        Command::new("readelf")
            .arg("-d")
            .arg(sdk.libraries().join("libdoca_common.so")),
    );
    assert!(
        dynamic.contains(&format!("soname: [{soname}]")),
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

/// `doca_cc_*` of 2.5 and 2.6, and `doca_comch_*` of later releases, are names of the same channel.
#[test]
fn ends_of_different_releases_use_one_channel() {
    let [lts, later, next_lts, current] = Release::ALL.map(Sdk::install_for);
    for (server, client, versions) in [
        (&lts, &current, ["2.5.0", "3.3.0"]),
        (&current, &lts, ["3.3.0", "2.5.0"]),
        (&later, &next_lts, ["2.6.0", "2.9.0"]),
        (&next_lts, &later, ["2.9.0", "2.6.0"]),
    ] {
        let [of_server, of_client] = versions;
        let printed = support::channel(server, client);
        assert_eq!(printed.0, format!("server of DOCA {of_server}\n"));
        assert_eq!(printed.1, format!("client of DOCA {of_client}\n"));
    }
}

/// Endpoints of 2.5 and 2.6 (`doca_comm_channel_*`) connect to clients and servers of any release by control messages.
#[test]
fn endpoints_of_2_x_connect_to_ends_of_all_releases() {
    let endpoint = support::repository_source("tests/c/endpoint_peer.c");
    let channel = support::repository_source("tests/c/channel_peer.c");
    let compile = |release, source: &Path| {
        let sdk = Sdk::install_for(release);
        let program = sdk.program(Language::C, source, &["softdoca"]);
        (sdk, program, release.name())
    };
    let endpoints = support::RELEASES_OF_2_X.map(|release| compile(release, &endpoint));
    let others = [Release::V2_5, Release::V2_9, Release::CURRENT].map(|it| compile(it, &channel));
    let run = |server: &(Sdk, PathBuf, _), client: &(Sdk, PathBuf, _)| {
        support::channel_of((&server.0, &server.1), (&client.0, &client.1), &["control"])
    };
    let [lts, later] = &endpoints;
    // The headers of 2.5 and 2.6 are the same.
    for (end, other) in [lts, later, later].into_iter().zip(&others) {
        let (own, theirs) = (end.2, other.2);
        let (server, client) = run(end, other);
        assert_eq!(server, format!("server endpoint of DOCA {own}.0\n"));
        assert_eq!(client, format!("client of DOCA {theirs}.0\n"));
        let (server, client) = run(other, end);
        assert_eq!(server, format!("server of DOCA {theirs}.0\n"));
        assert_eq!(client, format!("client endpoint of DOCA {own}.0\n"));
    }
    let (server, client) = run(lts, later);
    assert_eq!(server, "server endpoint of DOCA 2.5.0\n");
    assert_eq!(client, "client endpoint of DOCA 2.6.0\n");
}

/// Contexts of 2.5 and 2.6, which are connected while they start, can be connected to contexts of later releases.
#[test]
fn contexts_of_different_releases_are_connected() {
    let source = support::repository_source("tests/c/rdma_peer.c");
    let ends = Release::ALL.map(|release| {
        let sdk = Sdk::install_for(release);
        let program = sdk.program(Language::C, &source, &["softdoca"]);
        (release.name(), sdk, program)
    });
    for (of_responder, sdk, program) in &ends {
        let responder = (sdk, program.as_path());
        for (of_requester, sdk, program) in &ends {
            let printed = support::rdma(responder, (sdk, program));
            assert_eq!(printed.0, format!("responder of DOCA {of_responder}.0\n"));
            assert_eq!(printed.1, format!("requester of DOCA {of_requester}.0\n"));
        }
    }
}

fn check(sdk: &Sdk, language: Language, sources: &[PathBuf]) {
    for compiler in language.compilers() {
        succeed(
            Command::new(&compiler)
                .args(language.flags())
                .arg("-fsyntax-only")
                .arg("-I")
                .arg(sdk.include())
                .args(sources),
        );
    }
}

#[test]
fn each_header_compiles_alone_and_twice() {
    for release in Release::ALL {
        each_header_compiles(&Sdk::install_for(release), release);
    }
}

fn each_header_compiles(sdk: &Sdk, release: Release) {
    for language in Language::ALL {
        let sources: Vec<PathBuf> = softdoca_sdk::headers(release)
            .iter()
            .map(|header| {
                let name = header.name;
                // A C source must not be empty, hence the declaration.
                let text = format!("#include <{name}>\n#include <{name}>\nextern int nothing;\n");
                sdk.source(&format!("{name}.{}", language.suffix()), &text)
            })
            .collect();
        assert!(sources.len() > 20);
        check(sdk, language, &sources);
    }
}

#[test]
fn enums_constants_and_sizes_are_those_of_the_table() {
    for release in Release::ALL {
        let sdk = Sdk::install_for(release);
        let source = sdk.source("assertions.c", &softdoca_sdk::assertions(release));
        check(&sdk, Language::C, &[source]);
    }
    let sdk = Sdk::install();
    let text = softdoca_sdk::assertions(Release::CURRENT);
    assert!(text.contains("\nASSERT(DOCA_ERROR_AGAIN == 5, "), "{text}");
    for language in Language::ALL {
        let source = sdk.source(&format!("assertions.{}", language.suffix()), &text);
        check(&sdk, language, &[source]);
    }
    // The assertions can fail.
    let wrong = text.replace("(DOCA_ERROR_AGAIN == 5,", "(DOCA_ERROR_AGAIN == 6,");
    let source = sdk.source("wrong.c", &wrong);
    for compiler in Language::C.compilers() {
        let output = Command::new(compiler)
            .arg("-fsyntax-only")
            .arg("-I")
            .arg(sdk.include())
            .arg(&source)
            .output()
            .unwrap();
        assert!(!output.status.success());
    }
}

/// Integers in network byte order have the types of the kernel's headers where there are any, and plain integer types elsewhere.
const TYPES: &str = r#"
#include <doca_types.h>
#include <stdio.h>

#ifdef __linux__
typedef __u32 comes_with_it;
#endif

int main(void)
{
	doca_be16_t half = 1;
	doca_be32_t word = 2;
	doca_be64_t longest = 3;
	unsigned short *as_half = &half;
	unsigned int *as_word = &word;
	unsigned long long *as_longest = &longest;

	return printf("%hu %u %llu", *as_half, *as_word, *as_longest) < 0;
}
"#;

/// Uses a type declared by rdma-core, without including its header.
const RDMA: &str = "#include <doca_rdma.h>\nextern struct declared_by_rdma_cma event;\nstruct declared_by_rdma_cma event;\n";

#[test]
fn headers_of_the_system_are_included_where_they_are_installed() {
    let sdk = Sdk::install();
    let system = sdk.scratch("system");
    std::fs::create_dir(system.join("rdma")).unwrap();
    let declaration = "struct declared_by_rdma_cma { int value; };\n";
    std::fs::write(system.join("rdma/rdma_cma.h"), declaration).unwrap();
    for language in Language::ALL {
        let types = sdk.source(&format!("types.{}", language.suffix()), TYPES);
        let rdma = sdk.source(&format!("rdma.{}", language.suffix()), RDMA);
        for compiler in language.compilers() {
            // Without the macro, the headers take the branch for systems without a Linux kernel.
            for (flags, source) in [(&[][..], &types), (&["-U__linux__"], &types), (&[], &rdma)] {
                succeed(
                    Command::new(&compiler)
                        .args(language.flags())
                        .arg("-fsyntax-only")
                        .args(flags)
                        .arg("-I")
                        .arg(sdk.include())
                        .arg("-I")
                        .arg(&system)
                        .arg(source),
                );
            }
        }
    }
}

/// Typical uses of the macros.
const MACROS: &str = r#"
#include <doca_build_config.h>
#include <doca_error.h>
#include <doca_log.h>
#include <doca_version.h>

DOCA_LOG_REGISTER(TEST::MACROS)

#ifdef DOCA_ARCH_DPU
#error "this is a host"
#endif
#ifndef DOCA_ARCH_HOST
#error "this is a host"
#endif
#if DOCA_VERSION_MAJOR < 3
#error "too old"
#endif

struct versioned {
	DOCA_STRUCT_START;
	int value;
};

doca_error_t use(void);

doca_error_t use(void)
{
	doca_error_t result = DOCA_SUCCESS, next = DOCA_ERROR_AGAIN;
	struct versioned versioned;

	DOCA_STRUCT_MEMSET_CTOR(versioned);
	if (DOCA_STRUCT_GET_VERSION(&versioned) != DOCA_VERSION_EXACT || !DOCA_VERSION_LTE_CURRENT(2, 9, 0))
		return DOCA_ERROR_UNEXPECTED;
	DOCA_ERROR_PROPAGATE(result, next);
	DOCA_LOG_CRIT("no argument");
	DOCA_LOG_ERR("%s", doca_error_get_descr(result));
	DOCA_LOG_WARN("%d of %zu", 1, sizeof(versioned));
	DOCA_LOG_INFO(DOCA_VERSION_STRING);
	DOCA_LOG_DBG("%s", doca_version());
	DOCA_LOG_TRC("%s", doca_version_runtime());
	return DOCA_IS_ERROR(result) ? result : next;
}
"#;

/// Bit fields, with results that depend on the order of bytes in memory.
const BITFIELDS: &str = r#"
#include <doca_bitfield.h>

#include <assert.h>
#include <string.h>

int main(void)
{
	uint8_t byte = 0, bytes[4] = {0};
	doca_be16_t half = 0;
	doca_be32_t word = 0;

	assert(DOCA_SHIFT(0x30) == 4 && DOCA_BETOH32(DOCA_HTOBE32(0x12345678)) == 0x12345678);
	assert(DOCA_U8_GENMASK(7, 0) == 0xff && DOCA_U8_GENMASK(5, 4) == 0x30);
	assert(DOCA_U8_SET(0x30, 2) == 0x20 && DOCA_U8_SET(0x30, 7) == 0x30 && DOCA_U8_GET(0x30, 0xef) == 2);
	DOCA_U8P_GENMASK(3, 2, &byte);
	assert(byte == 0x0c);
	DOCA_U8P_SET(0xf0, 5, &byte)
	assert(byte == 0x5c);
	half = DOCA_BE16_GENMASK(11, 4);
	memcpy(bytes, &half, 2);
	assert(bytes[0] == 0x0f && bytes[1] == 0xf0);
	half = DOCA_BE16_SET(half, 0xab);
	memcpy(bytes, &half, 2);
	assert(bytes[0] == 0x0a && bytes[1] == 0xb0);
	assert(DOCA_BE16_GET(DOCA_BE16_GENMASK(11, 4), half) == 0xab);
	DOCA_BE16P_SET(DOCA_BE16_GENMASK(3, 0), 0xc, &half)
	assert(DOCA_BETOH16(half) == 0x0abc);
	DOCA_BE16P_GENMASK(15, 15, &half);
	assert(DOCA_BETOH16(half) == 0x8000);
	DOCA_BE32P_GENMASK(31, 0, &word);
	assert(word == 0xffffffff);
	word = DOCA_BE32_SET(DOCA_BE32_GENMASK(23, 8), 0xbeef);
	memcpy(bytes, &word, 4);
	assert(bytes[0] == 0 && bytes[1] == 0xbe && bytes[2] == 0xef && bytes[3] == 0);
	assert(DOCA_BE32_GET(DOCA_BE32_GENMASK(23, 8), word) == 0xbeef);
	DOCA_BE32P_SET(DOCA_BE32_GENMASK(31, 24), 1, &word)
	assert(DOCA_BETOH32(word) == 0x01beef00);
	return 0;
}
"#;

#[test]
fn bitfields_match_the_wire_format() {
    let sdk = Sdk::install();
    for language in Language::ALL {
        let source = sdk.source(&format!("bitfields.{}", language.suffix()), BITFIELDS);
        check(&sdk, language, std::slice::from_ref(&source));
        let program = sdk.program(language, &source, &[]);
        succeed(&mut sdk.command(&program, "run"));
    }
}

#[test]
fn macros_work_as_programs_use_them() {
    let sdk = Sdk::install();
    for language in Language::ALL {
        let source = sdk.source(&format!("macros.{}", language.suffix()), MACROS);
        check(&sdk, language, &[source]);
    }
}

fn pkg_config(sdk: &Sdk, side: Side, arguments: &[&str]) -> String {
    succeed(
        Command::new("pkg-config")
            .env(
                "PKG_CONFIG_PATH",
                sdk.prefix().join(Directories::PLAIN.packages(side)),
            )
            .args(arguments),
    )
}

/// Prints the side for which the program was compiled.
const PROGRAM: &str = r#"
#include <doca_build_config.h>
#include <doca_error.h>
#include <stdio.h>

int main(void)
{
#ifdef DOCA_ARCH_DPU
	printf("dpu");
#else
	printf("host");
#endif
	return doca_error_get_name(DOCA_SUCCESS) == NULL;
}
"#;

fn build(sdk: &Sdk, program: &Path, source: &Path, flags: &str) {
    succeed(
        Command::new("cc")
            .arg(source)
            .args(flags.split_whitespace())
            .arg("-o")
            .arg(program),
    );
    assert!(program.is_file(), "{}", sdk.prefix().display());
}

#[test]
fn every_package_compiles_and_links_a_program_of_its_side() {
    if lacks_pkg_config() {
        return;
    }
    let sdk = Sdk::install();
    let source = sdk.source("side.c", PROGRAM);
    for (side, expected) in [(Side::Host, "host"), (Side::Dpu, "dpu")] {
        for module in modules(Release::CURRENT) {
            let flags = pkg_config(&sdk, side, &["--cflags", "--libs", module.package]);
            assert!(
                flags.contains(&format!("-l{}", module.library)) && flags.contains("-ldoca_common"),
                "{flags}"
            );
            let program = sdk.scratch("programs").join("side");
            build(&sdk, &program, &source, &flags);
            assert_eq!(succeed(&mut sdk.command(&program, "run")), expected);
        }
        // Several packages still refer to a single library.
        let all: Vec<&str> = ["--cflags", "--libs"]
            .into_iter()
            .chain(modules(Release::CURRENT).map(|module| module.package))
            .collect();
        let program = sdk.scratch("programs").join("all");
        build(&sdk, &program, &source, &pkg_config(&sdk, side, &all));
        let needed = succeed(Command::new("readelf").arg("-d").arg(&program));
        assert_eq!(needed.matches("softdoca").count(), 1, "{needed}");
        assert!(!needed.contains("libdoca_"), "{needed}");
    }
}

#[test]
fn the_version_is_that_of_the_table() {
    if lacks_pkg_config() {
        return;
    }
    let sdk = Sdk::install();
    let version = pkg_config(&sdk, Side::Host, &["--modversion", "doca-common"]);
    assert_eq!(
        version.trim(),
        format!(
            "{}.{}.{}",
            doca_abi::DOCA_VERSION_MAJOR,
            doca_abi::DOCA_VERSION_MINOR,
            doca_abi::DOCA_VERSION_PATCH
        )
    );
}

#[test]
fn installation_is_found_through_the_environment() {
    let sdk = Sdk::install();
    let source = sdk.source("plain.c", PROGRAM);
    let program = sdk.scratch("programs").join("plain");
    let script = format!(
        "{}cc '{}' -ldoca_comch -ldoca_common -o '{2}' && '{2}'",
        softdoca_sdk::environment(&sdk.prefix(), Directories::PLAIN, Side::Host),
        source.display(),
        program.display()
    );
    assert_eq!(succeed(Command::new("sh").args(["-c", &script])), "host");
}

/// A program linked to NVIDIA's libraries runs with softdoca instead, and a program that is built with softdoca finds
/// the paths used in build files.
#[test]
fn nvidia_layout_replaces_nvidias_packages() {
    let sdk = Sdk::install();
    let prefix = sdk.scratch("opt").join("mellanox/doca");
    softdoca_sdk::install(
        &support::built_library(),
        &prefix,
        Layout::Nvidia(Side::Host),
        Release::CURRENT,
    )
    .expect("an installation");
    let directories = Directories::found_in(&prefix).expect("an installation");
    let libraries = prefix.join(directories.libraries());
    let source = sdk.source("layout.c", PROGRAM);

    // Simulates linking against NVIDIA's libraries: the program requests two libraries by their SONAMEs.
    let theirs = sdk.scratch("theirs");
    let mut needed = Vec::new();
    for name in ["libdoca_common.so.2", "libdoca_comch.so.2"] {
        let stub = sdk.source(
            "stub.c",
            &format!(
                "const char *doca_error_get_name(int error) {{ return error ? 0 : \"{name}\"; }}\n"
            ),
        );
        let library = theirs.join(name);
        succeed(
            Command::new("cc")
                .args(["-shared", "-fPIC", &format!("-Wl,-soname,{name}")])
                .arg(&stub)
                .arg("-o")
                .arg(&library),
        );
        needed.push(library);
    }
    let program = sdk.scratch("programs").join("theirs");
    succeed(
        Command::new("cc")
            .arg("-I")
            .arg(prefix.join("include"))
            .arg(&source)
            .arg("-Wl,--no-as-needed")
            .args(&needed)
            .arg("-o")
            .arg(&program),
    );
    let dynamic = succeed(Command::new("readelf").arg("-d").arg(&program));
    assert!(
        dynamic.contains("[libdoca_common.so.2]") && dynamic.contains("[libdoca_comch.so.2]"),
        "{dynamic}"
    );
    let run = |program: &Path| {
        succeed(
            Command::new(program)
                .env("LD_LIBRARY_PATH", &libraries)
                .env("SOFTDOCA_RUNTIME_DIR", sdk.scratch("run")),
        )
    };
    assert_eq!(run(&program), "host");

    // Paths used in build files.
    let program = sdk.scratch("programs").join("named");
    succeed(
        Command::new("cc")
            .arg("-I")
            .arg(prefix.join("infrastructure/include"))
            .arg(&source)
            .arg("-L")
            .arg(&libraries)
            .args(["-ldoca_comch", "-ldoca_common", "-o"])
            .arg(&program),
    );
    assert_eq!(run(&program), "host");
    if lacks_pkg_config() {
        return;
    }
    for directory in [
        libraries.join("pkgconfig"),
        prefix.join("lib64/pkgconfig"),
        prefix.join("infrastructure/lib/pkgconfig"),
    ] {
        let flags = succeed(
            Command::new("pkg-config")
                .env("PKG_CONFIG_PATH", &directory)
                .args(["--cflags", "--libs", "doca"]),
        );
        for module in modules(Release::CURRENT) {
            let library = format!("-l{}", module.library);
            assert!(flags.split(' ').any(|flag| flag == library), "{flags}");
        }
        let program = sdk.scratch("programs").join("packaged");
        build(&sdk, &program, &source, &flags);
        assert_eq!(run(&program), "host", "{}", directory.display());
    }
}

#[test]
fn a_moved_prefix_works() {
    if lacks_pkg_config() {
        return;
    }
    let sdk = Sdk::install();
    let moved = sdk.prefix().with_file_name("moved");
    std::fs::rename(sdk.prefix(), &moved).unwrap();
    let flags = succeed(
        Command::new("pkg-config")
            .env("PKG_CONFIG_PATH", moved.join("lib/pkgconfig"))
            .args(["--cflags", "doca-rdma"]),
    );
    let include = flags.trim().strip_prefix("-I").unwrap();
    assert_eq!(
        Path::new(include).canonicalize().unwrap(),
        moved.join("include").canonicalize().unwrap()
    );
}

const PACKAGES: [&str; 5] = [
    "role-initiator",
    "role-zero-copy",
    "role-gga-offload",
    "role-target",
    "role-sbc-generator",
];

/// Lower bound on the number of library functions that a program imports; the smallest program imports 53.
const FEWEST_FUNCTIONS: usize = 40;

/// Builds the roles' programs; returns their directory.
fn build_roles(sdk: &Sdk) -> PathBuf {
    // The target directory of this test's build.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("the target directory");
    let flags = format!(
        "{} --cfg doca_sdk",
        env::var("RUSTFLAGS").unwrap_or_default()
    );
    succeed(
        Command::new(env!("CARGO"))
            .args(["build", "--offline", "--bins"])
            .args(["--target", env!("TARGET")])
            .args(PACKAGES.map(|package| format!("--package={package}")))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env(
                "PKG_CONFIG_PATH",
                sdk.prefix().join(Directories::PLAIN.packages(Side::Dpu)),
            )
            .env("CARGO_TARGET_DIR", target)
            // The value for this test does not apply.
            .env_remove("OUT_DIR")
            .env("RUSTFLAGS", flags.trim())
            // Debug information would take a third of the build time.
            .env("CARGO_PROFILE_DEV_DEBUG", "0"),
    );
    target.join(env!("TARGET")).join("debug")
}

/// The DOCA functions in a program's symbol table, with their nm(1) type.
fn functions(program: &Path) -> Vec<(String, String)> {
    succeed(Command::new("nm").arg("--format=posix").arg(program))
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').map(str::to_owned);
            Some((words.next()?, words.next()?))
        })
        .filter(|(name, _)| name.starts_with("doca_"))
        .collect()
}

/// The initiator writes and reads back every block, in a deployment of these programs.
fn run_roles(sdk: &Sdk, programs: &Path) {
    let implementation = Implementation::in_directory("installed", programs)
        .expect("the programs")
        .with_library_path(Some(sdk.libraries()));
    let members = [Member::probe(implementation).expect("a program for each role")];
    let matrix = Matrix::new(Settings {
        operations: 2000,
        timeout: Duration::from_secs(120),
        retries: 0,
        protocol: None,
        cpus: deployment::allowed_cpus().expect("CPUs"),
        hosts: 1,
        scripted_target: Vec::new(),
    });
    for layout in matrix::Layout::ALL {
        let check = Check::Strategy(Strategy::WriteReadValidation);
        let mixes = mixes(layout, &members);
        assert_eq!(mixes.len(), 1);
        let tried = matrix.run(&mixes[0], check, &|| false);
        assert!(tried.passed(), "{layout}: {tried:#?}");
    }
}

#[test]
fn roles_import_every_function_from_the_installed_library() {
    if lacks_pkg_config() {
        return;
    }
    let sdk = Sdk::install();
    let programs = build_roles(&sdk);
    for role in Role::ALL {
        let program = programs.join(role.program());
        let functions = functions(&program);
        for (name, kind) in &functions {
            assert_eq!(kind, "U", "{name} is in {}", role.program());
        }
        assert!(
            functions.len() > FEWEST_FUNCTIONS,
            "{}: {functions:?}",
            role.program()
        );
        // Without the library, the functions are missing.
        let output = sdk
            .command(&program, "run")
            .env("LD_LIBRARY_PATH", "")
            .arg("--version")
            .output()
            .expect("a process");
        assert!(!output.status.success(), "{}: {output:?}", role.program());
    }
    run_roles(&sdk, &programs);
}
