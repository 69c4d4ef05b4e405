//! An installation in a temporary directory, the compilers of this machine, and programs compiled with both.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, iter};

use softdoca_sdk::Release;
use tempfile::TempDir;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// C11
    C,
    /// C++17
    Cxx,
}

impl Language {
    pub const ALL: [Self; 2] = [Self::C, Self::Cxx];

    /// Compiler flags for all sources of the project.
    pub fn flags(self) -> &'static [&'static str] {
        match self {
            Self::C => &["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"],
            Self::Cxx => &["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"],
        }
    }

    pub fn suffix(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cxx => "cpp",
        }
    }

    /// The compiler chosen by the user, or the default name.
    fn main_compiler(self) -> PathBuf {
        let (variable, default) = match self {
            Self::C => ("CC", "cc"),
            Self::Cxx => ("CXX", "c++"),
        };
        env::var_os(variable).map_or_else(|| default.into(), PathBuf::from)
    }

    /// All distinct compilers of this machine. Panics without a C compiler; a missing C++ compiler is
    /// [reported](not_run).
    pub fn compilers(self) -> Vec<PathBuf> {
        let others = match self {
            Self::C => ["gcc", "clang"],
            Self::Cxx => ["g++", "clang++"],
        };
        let mut seen = BTreeSet::new();
        let compilers: Vec<PathBuf> = iter::once(self.main_compiler())
            .chain(others.map(PathBuf::from))
            .filter(|compiler| identity(compiler).is_some_and(|identity| seen.insert(identity)))
            .collect();
        if compilers.is_empty() {
            let what = format!(
                "no compiler for {self:?}: expected {} or the one that CC and CXX name; install one (gcc, g++, or clang)",
                self.main_compiler().display()
            );
            assert!(self == Self::Cxx, "{what}");
            not_run(&what);
        }
        for other in others {
            if identity(Path::new(other)).is_none() {
                eprintln!("NOT RUN with {other}: it is not installed");
            }
        }
        compilers
    }
}

/// Reports a check that cannot run because this machine lacks a tool, bypassing the capture of a test's output, because
/// the test is counted as passed. In CI, where all tools exist, it fails instead.
pub fn not_run(what: &str) {
    assert!(env::var_os("CI").is_none(), "{what}");
    // The stream itself is not captured, unlike the macro.
    let _ = writeln!(std::io::stderr(), "NOT RUN: {what}");
}

/// `true` if pkg-config is missing, which is [reported](not_run).
pub fn lacks_pkg_config() -> bool {
    let missing = identity(Path::new("pkg-config")).is_none();
    if missing {
        not_run("pkg-config is not installed");
    }
    missing
}

/// A compiler's version output without its name: `cc` and `gcc` are usually the same.
fn identity(compiler: &Path) -> Option<String> {
    let output = Command::new(compiler).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| {
        text.split_once(' ')
            .map_or(text.clone(), |(_, rest)| rest.to_owned())
    })
}

/// An installation of softdoca.
pub struct Sdk {
    directory: TempDir,
}

impl Sdk {
    /// Installs the library that cargo has just built.
    pub fn install() -> Self {
        Self::install_for(Release::CURRENT)
    }

    /// As [`install`](Self::install), with the headers of a release.
    pub fn install_for(release: Release) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let sdk = Self { directory };
        let layout = softdoca_sdk::Layout::Plain;
        softdoca_sdk::install(&built_library(), &sdk.prefix(), layout, release)
            .expect("an installation");
        sdk
    }

    pub fn prefix(&self) -> PathBuf {
        self.directory.path().join("prefix")
    }

    pub fn include(&self) -> PathBuf {
        self.prefix().join("include")
    }

    pub fn libraries(&self) -> PathBuf {
        self.prefix().join("lib")
    }

    /// A new private directory that is removed with the installation; softdoca requires it for its runtime directory.
    pub fn scratch(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .expect("a directory");
        path
    }

    /// Compiles a program of one source, linked with plain `-l` flags.
    pub fn program(&self, language: Language, source: &Path, libraries: &[&str]) -> PathBuf {
        self.program_of(language, &[source], libraries)
    }

    /// Compiles a program of several sources, named after the first.
    pub fn program_of(&self, language: Language, sources: &[&Path], libraries: &[&str]) -> PathBuf {
        let name = sources[0].file_stem().expect("a source's name");
        let program = self.scratch("programs").join(name);
        let mut command = Command::new(language.main_compiler());
        command
            .args(language.flags())
            .arg("-g")
            .arg("-I")
            .arg(self.include())
            .args(sources)
            .arg("-L")
            .arg(self.libraries())
            .args(libraries.iter().map(|library| format!("-l{library}")))
            .args(["-pthread", "-ldl", "-o"])
            .arg(&program);
        succeed(&mut command);
        program
    }

    /// Writes a source of the test.
    pub fn source(&self, name: &str, text: &str) -> PathBuf {
        let path = self.scratch("sources").join(name);
        fs::write(&path, text).expect("a source");
        path
    }

    /// Command for a program, with the library's path and its own runtime directory.
    pub fn command(&self, program: &Path, runtime: &str) -> Command {
        self.command_through(&[], program, runtime)
    }

    /// As [`command`](Self::command), run by a tool whose flags precede the program.
    pub fn command_through(&self, tool: &[OsString], program: &Path, runtime: &str) -> Command {
        let mut words = tool
            .iter()
            .map(OsString::as_os_str)
            .chain([program.as_os_str()]);
        let mut command = Command::new(words.next().expect("the program at least"));
        command
            .args(words)
            .env("LD_LIBRARY_PATH", self.libraries())
            .env("SOFTDOCA_RUNTIME_DIR", self.scratch(runtime))
            .env_remove("SOFTDOCA_TOPOLOGY");
        command
    }
}

/// A C or C++ source of the repository, e.g. `examples/rdma_write.cpp`.
pub fn repository_source(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    assert!(path.is_file(), "{} is missing", path.display());
    path
}

/// The cdylib, which cargo builds before the tests of its package, into the same directory.
pub fn built_library() -> PathBuf {
    let test = env::current_exe().expect("the test's path");
    let library = test.with_file_name("libsoftdoca_shared.so");
    assert!(library.is_file(), "{} is missing", library.display());
    library
}

/// Runs a command to completion; on a failure, shows its output.
pub fn succeed(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Starts a program whose output is read with [`output`].
fn start(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process")
}

/// Output of a program that must exit successfully within a time limit.
fn output(mut child: Child, name: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().expect("a status").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("to end it");
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("its output");
    assert!(
        output.status.success(),
        "{name}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// `examples/comch_ping_pong.c`.
pub fn ping_pong(sdk: &Sdk, through: &[OsString]) {
    let program = sdk.program(
        Language::C,
        &repository_source("examples/comch_ping_pong.c"),
        &["doca_common", "doca_comch"],
    );
    let server = start(
        sdk.command_through(through, &program, "run")
            .args(["server", "03:00.0", "3b:00.0"]),
    );
    // The client exits with this status (sysexits.h) if the server does not exist yet, and is then restarted.
    const EX_UNAVAILABLE: i32 = 69;
    let deadline = Instant::now() + Duration::from_secs(30);
    let printed = loop {
        let client = sdk
            .command_through(through, &program, "run")
            .args(["client", "3b:00.0", "1000"])
            .output()
            .expect("a process");
        if client.status.success() {
            break String::from_utf8_lossy(&client.stdout).into_owned();
        }
        assert!(
            client.status.code() == Some(EX_UNAVAILABLE) && Instant::now() < deadline,
            "{client:?}"
        );
    };
    assert_eq!(printed, "1000 round trips\n");
    assert_eq!(output(server, "server"), "answered 1000 messages\n");
}

/// `tests/c/channel_peer.c` as server and client, compiled with the headers of different releases.
pub fn channel(server: &Sdk, client: &Sdk) -> (String, String) {
    let source = repository_source("tests/c/channel_peer.c");
    let compile = |sdk: &Sdk| sdk.program(Language::C, &source, &["softdoca"]);
    let (server_program, client_program) = (compile(server), compile(client));
    channel_of((server, &server_program), (client, &client_program), &[])
}

/// Server and client of one channel: installations with the programs that were compiled with their headers. Returns what
/// they print.
pub fn channel_of(
    server: (&Sdk, &Path),
    client: (&Sdk, &Path),
    arguments: &[&str],
) -> (String, String) {
    let runtime = server.0.scratch("channel");
    let command = |(sdk, program): (&Sdk, &Path), side: &str| {
        let mut command = sdk.command(program, "run");
        command.env("SOFTDOCA_RUNTIME_DIR", &runtime);
        command.arg(side).args(arguments);
        command
    };
    let running = start(&mut command(server, "server"));
    // The client exits with this status (sysexits.h) if the server does not exist yet, and is then restarted.
    const EX_UNAVAILABLE: i32 = 69;
    let deadline = Instant::now() + Duration::from_secs(30);
    let printed = loop {
        let finished = command(client, "client").output().expect("a process");
        if finished.status.success() {
            break String::from_utf8_lossy(&finished.stdout).into_owned();
        }
        assert!(
            finished.status.code() == Some(EX_UNAVAILABLE) && Instant::now() < deadline,
            "{finished:?}"
        );
    };
    (output(running, "server"), printed)
}

/// `tests/c/rdma_peer.c` as responder and requester: installations with the programs that were compiled with their headers.
pub fn rdma(responder: (&Sdk, &Path), requester: (&Sdk, &Path)) -> (String, String) {
    let runtime = responder.0.scratch("rdma");
    let exchange = tempfile::tempdir().expect("a directory");
    let start = |(sdk, program): (&Sdk, &Path), side: &str| {
        let mut command = sdk.command(program, "run");
        command.env("SOFTDOCA_RUNTIME_DIR", &runtime).arg(side);
        start(command.arg(exchange.path()))
    };
    let (responder, requester) = (start(responder, "responder"), start(requester, "requester"));
    let printed = output(requester, "requester");
    (output(responder, "responder"), printed)
}

/// `examples/rdma_write.cpp`.
pub fn write_to_a_peer(sdk: &Sdk, through: &[OsString]) {
    let program = sdk.program(
        Language::Cxx,
        &repository_source("examples/rdma_write.cpp"),
        &["doca_common", "doca_rdma"],
    );
    let socket = sdk
        .scratch("exchange")
        .join(format!("socket-{}", through.len()));
    let responder = start(
        sdk.command_through(through, &program, "run")
            .args(["responder", "03:00.0"])
            .arg(&socket),
    );
    let requester = start(
        sdk.command_through(through, &program, "run")
            .args(["requester", "03:00.0"])
            .arg(&socket)
            .arg("remote words"),
    );
    assert_eq!(output(requester, "requester"), "wrote remote words\n");
    assert_eq!(output(responder, "responder"), "found remote words\n");
}

/// The test programs, by the names of their sources.
pub const PROGRAMS: &[&str] = &[
    "aes_gcm",
    "argp",
    "buf_pool",
    "core",
    "log",
    "memory",
    "progress",
    "devices_in_use",
    "documented_comch_rdma",
    "documented_core",
    "documented_tasks",
    "dma",
    "comch",
    "comch_dpa",
    "comch_properties",
    "compress",
    "erasure_coding",
    "every_context",
    "graph",
    "lists",
    "mmap_advise",
    "properties",
    "rdma",
    "rdma_connections",
    "rdma_properties",
    "rdma_remote_events",
    "reference",
    "sha",
    "sync_event",
    "sync_event_tasks",
];

/// The test programs for releases with `doca_cc_*`.
pub const PROGRAMS_OF_2_X: &[&str] = &["cc", "comm_channel", "names_2_5", "rdma_2_x"];

/// Releases with `doca_cc_*`.
pub const RELEASES_OF_2_X: [Release; 2] = [Release::V2_5, Release::V2_6];

/// Compiles the program `name` of [`PROGRAMS`] or [`PROGRAMS_OF_2_X`].
pub fn compile(sdk: &Sdk, name: &str) -> PathBuf {
    let main = repository_source("tests/c/main.c");
    let source = repository_source(&format!("tests/c/{name}.c"));
    sdk.program_of(Language::C, &[&source, &main], &["softdoca"])
}
