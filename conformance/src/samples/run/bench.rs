//! Where a scenario runs: its directories, its programs, and what is in its files in the end.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::samples::binaries::Binaries;
use crate::samples::program::Program;
use crate::samples::scenario::{Check, Party, Scenario, Side, Step};

/// Where a scenario runs.
pub(super) struct Bench<'a> {
    binaries: &'a Binaries,
    library_path: Option<&'a Path>,
    library: &'static str,
    shared: PathBuf,
    runtime: PathBuf,
    /// Held by nobody: taken, asked for its number, and given back.
    port: u16,
}

impl<'a> Bench<'a> {
    /// Makes the directories and the files that are there before anything starts.
    pub(super) fn new(
        binaries: &'a Binaries,
        library_path: Option<&'a Path>,
        scenario: &Scenario,
        shared: &Path,
    ) -> io::Result<Self> {
        let bench = Self {
            binaries,
            library_path,
            library: scenario.library,
            shared: shared.to_owned(),
            runtime: shared.join("run"),
            port: TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port(),
        };
        fs::DirBuilder::new().mode(0o700).create(&bench.runtime)?;
        for party in &scenario.parties {
            fs::create_dir(shared.join(&party.name))?;
        }
        for input in &scenario.inputs {
            fs::write(
                bench.fill(&input.path, &scenario.parties[0].name),
                input.content.bytes()?,
            )?;
        }
        Ok(bench)
    }

    /// Puts in what `{dir}`, `{shared}` and `{port}` stand for.
    fn fill(&self, text: &str, party: &str) -> String {
        let directory = self.shared.join(party);
        text.replace("{dir}", &directory.to_string_lossy())
            .replace("{shared}", &self.shared.to_string_lossy())
            .replace("{port}", &self.port.to_string())
    }

    /// Starts a party's program.
    pub(super) fn start(&self, party: &Party) -> Result<Program, String> {
        let program = self.path(party.sample, party.side)?;
        let mut command = Command::new(program);
        command
            .args(
                party
                    .arguments
                    .iter()
                    .map(|text| self.fill(text, &party.name)),
            )
            .current_dir(self.shared.join(&party.name))
            .env("SOFTDOCA_RUNTIME_DIR", &self.runtime);
        if let Some(directory) = self.library_path {
            let mut path = OsString::from(directory);
            if let Some(inherited) = std::env::var_os("LD_LIBRARY_PATH") {
                path.push(":");
                path.push(inherited);
            }
            command.env("LD_LIBRARY_PATH", path);
        }
        Program::start(command)
            .map_err(|error| format!("{} could not be started: {error}", program.display()))
    }

    fn path(&self, sample: &str, side: Side) -> Result<&Path, String> {
        self.binaries
            .find(self.library, sample, side)
            .ok_or_else(|| format!("there is no program of {sample}"))
    }

    /// Does what a user does.
    pub(super) fn step(&self, step: &Step, party: &str) -> Result<(), String> {
        match step {
            Step::Copy { from, to } => {
                let (from, to) = (self.fill(from, party), self.fill(to, party));
                let copied = fs::copy(&from, &to).map(drop);
                copied.map_err(|error| format!("{from} cannot be copied to {to}: {error}"))
            }
            Step::Remove(path) => {
                let path = self.fill(path, party);
                fs::remove_file(&path).map_err(|error| format!("{path} cannot be removed: {error}"))
            }
        }
    }

    /// Looks at the files.
    pub(super) fn check(&self, checks: &[Check]) -> Result<(), String> {
        for check in checks {
            let (path, content, stream) = match check {
                Check::File { path, content } => (path, content, None),
                Check::Decodes {
                    path,
                    stream,
                    content,
                } => (path, content, Some(*stream)),
            };
            let path = self.fill(path, "");
            let read = |error: io::Error| format!("{path} cannot be read: {error}");
            let mut bytes = fs::read(&path).map_err(read)?;
            if let Some(stream) = stream {
                bytes = stream
                    .decode(&bytes)
                    .map_err(|error| format!("{path} is no {stream:?} stream: {error}"))?;
            }
            let expected = content
                .bytes()
                .map_err(|error| format!("what {path} should contain cannot be made: {error}"))?;
            if let Some(difference) = difference(&bytes, &expected) {
                return Err(format!("{path}: {difference}"));
            }
        }
        Ok(())
    }
}

/// Where two contents differ.
fn difference(got: &[u8], expected: &[u8]) -> Option<String> {
    if got == expected {
        return None;
    }
    let same = got.iter().zip(expected).take_while(|(a, b)| a == b);
    Some(format!(
        "expected {} bytes and got {}; the first {} are right",
        expected.len(),
        got.len(),
        same.count()
    ))
}
