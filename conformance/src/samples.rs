//! DOCA's own samples as a test of a DOCA implementation: C programs, built elsewhere, that are started in pairs
//! according to their READMEs, given the input that they prompt for, and checked for their documented result.
//!
//! * [`Scenario`]: the description of a run, as data, with the contents of its files; [`catalogue`]: all known runs.
//! * [`Binaries`]: finds the programs; [`Runner`]: runs a scenario.

mod catalogue;
mod scenario;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, FileType};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use deployment::port::Port;
use deployment::process::Process;

use crate::violation::{During as _, Violation};

pub use catalogue::catalogue;
pub use scenario::{
    Check, Content, Event, Input, Lz4, Party, Reply, Said, Scenario, Side, Step, Stream,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All processes had their documented result, and all checks passed.
    Pass,
    /// A process or a check failed, for this reason.
    Fail(Violation),
    /// Not run, because these programs were not found.
    NotFound(Vec<&'static str>),
}

#[derive(Debug)]
pub struct Runner {
    pub binaries: Binaries,
    /// Directory of the DOCA libraries, prepended to `LD_LIBRARY_PATH`; `None` to use the libraries of the environment.
    pub library_path: Option<PathBuf>,
    /// Time limit of a scenario.
    pub timeout: Duration,
}

impl Runner {
    /// Runs one scenario in this directory, which must be empty. `interrupted` cancels it.
    ///
    /// # Errors
    ///
    /// An error that the samples did not cause: a directory cannot be created, or no port is free.
    pub fn run(
        &self,
        scenario: &Scenario,
        directory: &Path,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<(Verdict, Vec<Transcript>)> {
        let missing = self.missing(scenario);
        if !missing.is_empty() {
            return Ok((Verdict::NotFound(missing), Vec::new()));
        }
        let libraries = self.library_path.as_deref();
        let workspace = Workspace::new(&self.binaries, libraries, scenario, directory)?;
        let mut parties = Parties::new(&workspace, scenario);
        let verdict = parties
            .play(self.timeout, interrupted)
            .and_then(|()| workspace.check(&scenario.checks));
        let transcripts = parties.transcripts();
        let verdict = verdict.map_or_else(Verdict::Fail, |()| Verdict::Pass);
        Ok((verdict, transcripts))
    }

    /// Samples without a program.
    fn missing(&self, scenario: &Scenario) -> Vec<&'static str> {
        let mut missing = Vec::new();
        for party in &scenario.parties {
            let found = self
                .binaries
                .find(scenario.library, party.sample, party.side);
            if found.is_none() && !missing.contains(&party.sample) {
                missing.push(party.sample);
            }
        }
        missing
    }
}

// Workspace of a scenario: its directories, its programs, and the check of its files.

/// Directory and programs of a scenario.
struct Workspace<'a> {
    binaries: &'a Binaries,
    library_path: Option<&'a Path>,
    library: &'static str,
    shared: PathBuf,
    runtime: PathBuf,
    port: Port,
}

impl<'a> Workspace<'a> {
    /// Creates the directories and the initial files.
    fn new(
        binaries: &'a Binaries,
        library_path: Option<&'a Path>,
        scenario: &Scenario,
        shared: &Path,
    ) -> io::Result<Self> {
        let workspace = Self {
            binaries,
            library_path,
            library: scenario.library,
            shared: shared.to_owned(),
            runtime: shared.join("run"),
            port: Port::reserve()?,
        };
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&workspace.runtime)?;
        for party in &scenario.parties {
            fs::create_dir(shared.join(&party.name))?;
        }
        for input in &scenario.inputs {
            fs::write(
                workspace.fill(&input.path, &scenario.parties[0].name),
                input.content.bytes()?,
            )?;
        }
        Ok(workspace)
    }

    /// Replaces `{dir}`, `{shared}` and `{port}`.
    fn fill(&self, text: &str, party: &str) -> String {
        let directory = self.shared.join(party);
        text.replace("{dir}", &directory.to_string_lossy())
            .replace("{shared}", &self.shared.to_string_lossy())
            .replace("{port}", &self.port.number().to_string())
    }

    fn start(&self, party: &Party) -> Result<Process, Violation> {
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
        Process::spawn_interactive("sample", command)
            .map_err(|failure| Violation::new(failure.what))
    }

    fn path(&self, sample: &str, side: Side) -> Result<&Path, Violation> {
        self.binaries
            .find(self.library, sample, side)
            .ok_or_else(|| Violation::new(format!("there is no program of {sample}")))
    }

    /// Executes an action of the user.
    fn step(&self, step: &Step, party: &str) -> Result<(), Violation> {
        match step {
            Step::Copy { from, to } => {
                let (from, to) = (self.fill(from, party), self.fill(to, party));
                let copied = fs::copy(&from, &to).map(drop);
                copied.during(format_args!("{from} cannot be copied to {to}"))
            }
            Step::Remove(path) => {
                let path = self.fill(path, party);
                fs::remove_file(&path).during(format_args!("{path} cannot be removed"))
            }
        }
    }

    fn check(&self, checks: &[Check]) -> Result<(), Violation> {
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
            let mut bytes = fs::read(&path).during(format_args!("{path} cannot be read"))?;
            if let Some(stream) = stream {
                bytes = stream
                    .decode(&bytes)
                    .during(format_args!("{path} is no {stream:?} stream"))?;
            }
            let expected = content
                .bytes()
                .during(format_args!("what {path} should contain cannot be made"))?;
            if let Some(difference) = difference(&bytes, &expected) {
                return Err(Violation::new(format!("{path}: {difference}")));
            }
        }
        Ok(())
    }
}

/// Offset of the first difference between two contents.
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

// Processes of a scenario: start conditions, prompts and answers, exits.

/// Polling interval of the processes.
const TICK: Duration = Duration::from_millis(5);
/// Time limit for the remaining output after a program has exited; its children may keep the pipes open longer.
const REST: Duration = Duration::from_secs(2);
/// Time without output after which a program is assumed to wait for an event.
const QUIET: Duration = Duration::from_secs(1);
/// Markers of error lines in the log of a sample.
const ERROR_LEVELS: [&str; 2] = ["[ERR]", "[CRT]"];

#[derive(Debug, Clone)]
pub struct Transcript {
    pub party: String,
    pub lines: Vec<String>,
}

/// The parties of a scenario and their progress.
struct Parties<'a> {
    workspace: &'a Workspace<'a>,
    running: Vec<RunningParty<'a>>,
}

struct RunningParty<'a> {
    party: &'a Party,
    program: Option<Process>,
    ended: bool,
    /// Number of answered prompts.
    answered: usize,
    /// Number of lines searched for prompts.
    searched: usize,
    /// `true` if the line with the next prompt was found.
    asked: bool,
}

impl<'a> RunningParty<'a> {
    fn new(party: &'a Party) -> Self {
        Self {
            party,
            program: None,
            ended: false,
            answered: 0,
            searched: 0,
            asked: false,
        }
    }

    fn transcript(&self) -> Transcript {
        let lines = self.program.as_ref().map(Process::lines);
        Transcript {
            party: self.party.name.clone(),
            lines: lines.unwrap_or_default(),
        }
    }

    fn has_said(&self, said: &Said) -> bool {
        self.program
            .as_ref()
            .is_some_and(|program| said.is_in(program.lines().iter().map(String::as_str)))
    }

    /// Returns `true` if the program has written output, and then no more for [`QUIET`].
    fn rests(&self) -> bool {
        self.program
            .as_ref()
            .and_then(Process::quiet_for)
            .is_some_and(|time| time >= QUIET)
    }

    /// Returns `true` if the program has printed the next prompt.
    fn asks(&mut self) -> bool {
        let Some(reply) = self.party.replies.get(self.answered) else {
            return false;
        };
        if !self.asked
            && let Some(program) = &self.program
        {
            let lines = program.lines();
            let new = lines.get(self.searched..).unwrap_or_default();
            match new.iter().position(|line| line.contains(&reply.prompt)) {
                Some(position) => {
                    self.asked = true;
                    self.searched += position + 1;
                }
                None => self.searched = lines.len(),
            }
        }
        self.asked
    }

    /// Checks the result of an exited party.
    fn judge(&self, status: ExitStatus) -> Result<(), Violation> {
        let name = &self.party.name;
        if !status.success() {
            return Err(Violation::new(format!("{name} ended with {status}")));
        }
        if let Some(reply) = self.party.replies.get(self.answered) {
            return Err(Violation::new(format!(
                "{name} ended before it had asked {:?} and got its answer",
                reply.prompt
            )));
        }
        for said in &self.party.says {
            if !self.has_said(said) {
                return Err(Violation::new(match said.times {
                    1 => format!("{name} did not write {:?}", said.text),
                    times => format!("{name} did not write {:?} {times} times", said.text),
                }));
            }
        }
        if !self.party.shows_errors {
            let transcript = self.transcript();
            let is_error = |line: &&String| ERROR_LEVELS.iter().any(|level| line.contains(level));
            if let Some(line) = transcript.lines.iter().find(is_error) {
                return Err(Violation::new(format!("{name} reported an error: {line}")));
            }
        }
        Ok(())
    }
}

impl<'a> Parties<'a> {
    fn new(workspace: &'a Workspace<'a>, scenario: &'a Scenario) -> Self {
        Self {
            workspace,
            running: scenario.parties.iter().map(RunningParty::new).collect(),
        }
    }

    fn transcripts(&self) -> Vec<Transcript> {
        self.running.iter().map(RunningParty::transcript).collect()
    }

    /// Runs all parties until they have exited.
    ///
    /// # Errors
    ///
    /// A party has not exited with its documented result, or not in time; the error contains its name, and the event
    /// that it waits for.
    fn play(&mut self, timeout: Duration, interrupted: &dyn Fn() -> bool) -> Result<(), Violation> {
        let deadline = Instant::now() + timeout;
        loop {
            for index in 0..self.running.len() {
                self.advance(index)?;
            }
            if self.running.iter().all(|running| running.ended) {
                return Ok(());
            }
            if interrupted() {
                return Err(Violation::new("interrupted"));
            }
            if Instant::now() >= deadline {
                return Err(Violation::new(format!(
                    "after {timeout:?}, {}",
                    self.stuck()
                )));
            }
            std::thread::sleep(TICK);
        }
    }

    /// Advances one party as far as possible.
    fn advance(&mut self, index: usize) -> Result<(), Violation> {
        let party = self.running[index].party;
        if self.running[index].ended {
            return Ok(());
        }
        if self.running[index].program.is_none() {
            if !self.all(&party.starts) {
                return Ok(());
            }
            for step in &party.before {
                self.workspace.step(step, &party.name)?;
            }
            self.running[index].program = Some(self.workspace.start(party)?);
        }
        // The status is read before the output, so that the last output is included.
        let status = match &mut self.running[index].program {
            Some(program) => {
                let status = program.status();
                if status.is_some() {
                    program.drain(REST);
                }
                status
            }
            None => None,
        };
        while self.running[index].asks() {
            let reply = &party.replies[self.running[index].answered];
            if !self.all(&reply.when) {
                break;
            }
            for step in &reply.steps {
                self.workspace.step(step, &party.name)?;
            }
            let running = &mut self.running[index];
            if let Some(program) = &mut running.program {
                program.press_enter();
            }
            running.answered += 1;
            running.asked = false;
        }
        if let Some(status) = status {
            self.running[index].ended = true;
            self.running[index].judge(status)?;
        }
        Ok(())
    }

    fn all(&self, events: &[Event]) -> bool {
        events.iter().all(|event| self.happened(event))
    }

    fn happened(&self, event: &Event) -> bool {
        let party = event.party();
        self.running
            .iter()
            .filter(|running| running.party.name == party)
            .any(|running| match event {
                Event::Says(_, said) => running.has_said(said),
                Event::Rests(_) => running.rests(),
                Event::Ends(_) => running.ended,
            })
    }

    /// Description of the parties that have not exited, with the events that they wait for.
    fn stuck(&self) -> String {
        let waiting = self.running.iter().filter(|running| !running.ended);
        let reasons: Vec<String> = waiting.map(|running| self.waits_for(running)).collect();
        reasons.join("; ")
    }

    fn waits_for(&self, running: &RunningParty<'_>) -> String {
        let name = &running.party.name;
        let reply = running.party.replies.get(running.answered);
        let events = match reply {
            _ if running.program.is_none() => &running.party.starts,
            Some(reply) if running.asked => &reply.when,
            Some(reply) => return format!("{name} has not ended, nor asked {:?}", reply.prompt),
            None => return format!("{name} has not ended"),
        };
        match events.iter().find(|event| !self.happened(event)) {
            Some(Event::Says(other, said)) => {
                format!("{name} waits for {other} to write {:?}", said.text)
            }
            Some(Event::Rests(other)) => format!("{name} waits for {other} to be quiet"),
            Some(Event::Ends(other)) => format!("{name} waits for {other} to end"),
            None => format!("{name} has not ended"),
        }
    }
}

// Search for the samples' programs in common build layouts.

/// Maximum depth of the search below a directory: `<samples>/<library>/<sample>/<build>/`, and a little more.
const DEPTH: usize = 6;

/// Programs found below some directories.
///
/// A program is called `doca_<sample>`, as meson builds it, or `<library>_<sample>` if all are in one directory. It
/// counts as built for a DPU or a host if its name begins with `dpu_` or `host_`, or the name of a directory of its
/// path contains `dpu` or `host`; otherwise it counts as built for both.
#[derive(Debug, Default)]
pub struct Binaries {
    /// Programs by name without the prefix of the side; of programs with equal names, the first one found is preferred.
    found: BTreeMap<String, Vec<Binary>>,
}

#[derive(Debug)]
struct Binary {
    path: PathBuf,
    side: Side,
}

impl Binaries {
    /// Searches the directories.
    ///
    /// # Errors
    ///
    /// One of the directories cannot be read. Unreadable subdirectories are skipped.
    pub fn below(roots: &[impl AsRef<Path>]) -> io::Result<Self> {
        let mut binaries = Self::default();
        for root in roots {
            let root = root.as_ref();
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", root.display()))
            };
            let root = fs::canonicalize(root).map_err(named)?;
            let side = root.file_name().map_or(Side::Any, side_of_directory);
            binaries.walk(&root, side, DEPTH).map_err(named)?;
        }
        Ok(binaries)
    }

    /// Best program of a sample for a side.
    pub fn find(&self, library: &str, sample: &str, side: Side) -> Option<&Path> {
        // If the side matters, a program for the other side is not used: the sample would only report an error.
        let rank = |binary: &Binary| match (side, binary.side) {
            (wanted, built) if wanted == built => Some(0),
            (Side::Any, Side::Host) | (Side::Host | Side::Dpu, Side::Any) => Some(1),
            (Side::Any, _) => Some(2),
            _ => None,
        };
        [format!("doca_{sample}"), format!("{library}_{sample}")]
            .iter()
            .filter_map(|name| self.found.get(name))
            .flatten()
            .filter_map(|binary| Some((rank(binary)?, binary)))
            .min_by_key(|(rank, _)| *rank)
            .map(|(_, binary)| binary.path.as_path())
    }

    fn walk(&mut self, directory: &Path, side: Side, depth: usize) -> io::Result<()> {
        let mut entries = fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            let path = entry.path();
            let kind = entry.file_type()?;
            if kind.is_dir() && depth > 0 {
                let below = match side_of_directory(&name) {
                    Side::Any => side,
                    marked => marked,
                };
                // An unreadable directory of another user must not end the search.
                let _ = self.walk(&path, below, depth - 1);
            } else if let Some(name) = name.to_str()
                && is_program(&path, kind)
            {
                self.add(name, path, side);
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &str, path: PathBuf, side: Side) {
        let (name, side) = if let Some(name) = name.strip_prefix("dpu_") {
            (name, Side::Dpu)
        } else if let Some(name) = name.strip_prefix("host_") {
            (name, Side::Host)
        } else {
            (name, side)
        };
        if name.starts_with("doca_") {
            let binary = Binary { path, side };
            self.found.entry(name.to_owned()).or_default().push(binary);
        }
    }
}

/// Side for which a directory's programs are built, from its name: `build-dpu`, `host`.
fn side_of_directory(name: &OsStr) -> Side {
    let name = name.to_string_lossy();
    // The name of a sample's own directory does not indicate the side: doca_dma/dma_copy_dpu.
    if name.starts_with("dma_copy_") {
        return Side::Any;
    }
    let mut words = name.split(['-', '_', '.']);
    words
        .find_map(|word| match word.to_ascii_lowercase().as_str() {
            "dpu" => Some(Side::Dpu),
            "host" => Some(Side::Host),
            _ => None,
        })
        .unwrap_or(Side::Any)
}

/// Returns `true` for an executable file, or a link to one.
fn is_program(path: &Path, kind: FileType) -> bool {
    (kind.is_file() || kind.is_symlink())
        && fs::metadata(path)
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(root: &Path, path: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
        fs::write(&path, "").expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
    }

    fn found<'b>(binaries: &'b Binaries, root: &Path, sample: &str, side: Side) -> Option<&'b str> {
        let path = binaries.find("doca_dma", sample, side)?;
        path.strip_prefix(root).ok()?.to_str()
    }

    #[test]
    fn layouts_of_builds_are_known() {
        let root = tempfile::tempdir().expect("a directory");
        let root = fs::canonicalize(root.path()).expect("a path");
        program(&root, "doca_dma_dma_local_copy");
        program(&root, "dpu_doca_dma_dma_local_copy");
        program(&root, "build-dpu/samples/doca_dma_copy_dpu");
        program(&root, "doca_dma/dma_copy_host/build/doca_dma_copy_host");
        fs::write(root.join("doca_dma_no_program"), "").expect("a file");
        let binaries = Binaries::below(&[&root]).expect("a search");

        let local = |side| found(&binaries, &root, "dma_local_copy", side);
        assert_eq!(local(Side::Dpu), Some("dpu_doca_dma_dma_local_copy"));
        assert_eq!(local(Side::Host), Some("doca_dma_dma_local_copy"));
        assert_eq!(local(Side::Any), Some("doca_dma_dma_local_copy"));

        let dpu = |side| found(&binaries, &root, "dma_copy_dpu", side);
        assert_eq!(dpu(Side::Dpu), Some("build-dpu/samples/doca_dma_copy_dpu"));
        assert_eq!(dpu(Side::Host), None, "built for the other side");
        assert!(dpu(Side::Any).is_some());

        let host = "doca_dma/dma_copy_host/build/doca_dma_copy_host";
        assert_eq!(
            found(&binaries, &root, "dma_copy_host", Side::Host),
            Some(host)
        );
        assert_eq!(found(&binaries, &root, "no_program", Side::Any), None);
    }

    #[test]
    fn missing_directory_is_named() {
        let error = Binaries::below(&["/nowhere/at/all"]).expect_err("nothing to search");
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }
}
