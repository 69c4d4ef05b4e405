//! The accesses of [`doca::MemoryRegion`] under ThreadSanitizer: concurrent accesses of two threads to the same bytes are not a data race.
//!
//! Only a sanitizer can detect one: on common hardware, plain copies return the same bytes. Compiling all dependencies
//! with the sanitizer takes a long time, so the accesses are in a module without dependencies, which is compiled
//! separately. Instructions in `asm!` blocks are opaque to the sanitizer, as they are to the compiler.
//!
//! Without the sanitizer's runtime library, which comes with the toolchains of rustup, the tests are reported as ignored. CI fails
//! without it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};

/// Exit status of a program with a finding, set by `TSAN_OPTIONS`. Panics have 101.
const FINDING: i32 = 66;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = missing();
    if let Some(reason) = &missing {
        eprintln!("NOT RUN: {reason}");
        if env::var_os("CI").is_some() {
            return ExitCode::FAILURE;
        }
    }
    let program = Arc::new(OnceLock::new());
    let trials = [
        ("write", None),
        ("read", None),
        ("fill", None),
        ("copy", None),
        ("control", Some(FINDING)),
    ];
    let trials = trials.map(|(access, finding)| {
        let program = Arc::clone(&program);
        let run = move || {
            let program = program.get_or_init(Program::compile);
            expect(&program.run(access), finding.unwrap_or(0))
        };
        // With --ignored, the tests were requested explicitly, and must run.
        Trial::test(access, run).with_ignored_flag(missing.is_some())
    });
    drop(program);
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

fn rustc() -> Command {
    Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

/// The reason why the sanitizer cannot be used; `None` if its runtime library is installed.
fn missing() -> Option<String> {
    let output = match rustc().args(["--print", "target-libdir"]).output() {
        Ok(output) => output,
        Err(error) => return Some(format!("rustc cannot be started: {error}")),
    };
    let directory = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let is_runtime = |name: &str| name.starts_with("librustc") && name.contains("rt.tsan");
    let installed = std::fs::read_dir(&directory).is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(is_runtime))
        })
    });
    (!installed).then(|| format!("no ThreadSanitizer in {}", directory.display()))
}

struct Program {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Program {
    fn compile() -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/races/program.rs");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("program");
        let output = rustc()
            .args([
                "--edition",
                "2024",
                "-Copt-level=0",
                "-Cdebuginfo=line-tables-only",
            ])
            // The standard library is not compiled with the sanitizer.
            .args([
                "-Zsanitizer=thread",
                "-Cunsafe-allow-abi-mismatch=sanitizer",
            ])
            .arg(source)
            .arg("-o")
            .arg(&path)
            // Sanitizers are unstable. This is not product code, and no other crate is compiled with this setting.
            .env("RUSTC_BOOTSTRAP", "1")
            .output()
            .expect("rustc is started");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Self {
            path,
            _directory: directory,
        }
    }

    fn run(&self, access: &str) -> Output {
        Command::new(&self.path)
            .arg(access)
            .env("TSAN_OPTIONS", format!("exitcode={FINDING}"))
            .output()
            .expect("the program is started")
    }
}

fn expect(output: &Output, code: i32) -> Result<(), Failed> {
    let errors = String::from_utf8_lossy(&output.stderr);
    let has_finding = errors.contains("WARNING: ThreadSanitizer: data race");
    if output.status.code() == Some(code) && has_finding == (code == FINDING) {
        return Ok(());
    }
    Err(format!(
        "expected exit status {code}, got {}\n{errors}",
        output.status
    )
    .into())
}
