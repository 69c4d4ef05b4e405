//! A scenario from its first process to the verdict.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, io};

use super::binaries::Binaries;
use super::scenario::{Check, Event, Party, Said, Scenario, Side, Step};

/// What became of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All processes came to their documented end, and all checks held.
    Pass,
    /// Not so, and why.
    Fail(String),
    /// It was not run: these programs are not there.
    NotFound(Vec<&'static str>),
}

/// Runs scenarios.
#[derive(Debug)]
pub struct Runner {
    /// The programs.
    pub binaries: Binaries,
    /// Directory of the DOCA libraries, put before what `LD_LIBRARY_PATH` says; `None` for what the environment has.
    pub library_path: Option<PathBuf>,
    /// How long a scenario may take.
    pub timeout: Duration,
}

impl Runner {
    /// Runs one scenario in a directory of its own, which must be empty. `interrupted` says that nobody wants the result
    /// any more.
    ///
    /// # Errors
    ///
    /// Something that is no fault of the samples: a directory cannot be made, a free port is not to be had.
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
        let bench = Bench::new(&self.binaries, libraries, scenario, directory)?;
        let mut cast = Cast::new(&bench, scenario);
        let verdict = cast
            .play(self.timeout, interrupted)
            .and_then(|()| bench.check(&scenario.checks));
        let transcripts = cast.transcripts();
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

// Where a scenario runs: its directories, its programs, and what is in its files in the end.

/// Where a scenario runs.
struct Bench<'a> {
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
    fn new(
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
    fn start(&self, party: &Party) -> Result<Program, String> {
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
    fn step(&self, step: &Step, party: &str) -> Result<(), String> {
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
    fn check(&self, checks: &[Check]) -> Result<(), String> {
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

// The processes of a scenario: who starts when, who gets which answer, and how each ended.

/// How often the processes are looked at.
const TICK: Duration = Duration::from_millis(5);
/// A program that has written nothing for so long will not go on before something happens.
const QUIET: Duration = Duration::from_secs(1);
/// What lines of these levels look like in the log of a sample.
const ERROR_LEVELS: [&str; 2] = ["[ERR]", "[CRT]"];

/// What a party wrote.
#[derive(Debug, Clone)]
pub struct Transcript {
    /// The party.
    pub party: String,
    /// Its lines.
    pub lines: Vec<String>,
}

/// The parties of a scenario, as far as they have come.
struct Cast<'a> {
    bench: &'a Bench<'a>,
    actors: Vec<Actor<'a>>,
}

struct Actor<'a> {
    party: &'a Party,
    program: Option<Program>,
    ended: bool,
    /// Prompts that have been answered.
    answered: usize,
    /// Lines that have been searched for prompts.
    searched: usize,
    /// The line that asks for the next answer was found.
    asked: bool,
}

impl<'a> Actor<'a> {
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
        let lines = self
            .program
            .as_ref()
            .map(|program| program.output().lines.clone());
        Transcript {
            party: self.party.name.clone(),
            lines: lines.unwrap_or_default(),
        }
    }

    fn has_said(&self, said: &Said) -> bool {
        self.program
            .as_ref()
            .is_some_and(|program| said.is_in(program.output().lines.iter().map(String::as_str)))
    }

    /// Whether it has begun to write and then stopped.
    fn rests(&self) -> bool {
        self.program
            .as_ref()
            .and_then(Program::quiet_for)
            .is_some_and(|time| time >= QUIET)
    }

    /// Whether it asks for the next answer.
    fn asks(&mut self) -> bool {
        let Some(reply) = self.party.replies.get(self.answered) else {
            return false;
        };
        if !self.asked
            && let Some(program) = &self.program
        {
            let lines = &program.output().lines;
            let new = &lines[self.searched..];
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

    /// It has ended: was this the documented end?
    fn judge(&self, status: ExitStatus) -> Result<(), String> {
        let name = &self.party.name;
        if !status.success() {
            return Err(format!("{name} ended with {status}"));
        }
        if let Some(reply) = self.party.replies.get(self.answered) {
            return Err(format!(
                "{name} ended before it had asked {:?} and got its answer",
                reply.prompt
            ));
        }
        for said in &self.party.says {
            if !self.has_said(said) {
                return Err(match said.times {
                    1 => format!("{name} did not write {:?}", said.text),
                    times => format!("{name} did not write {:?} {times} times", said.text),
                });
            }
        }
        if !self.party.shows_errors {
            let transcript = self.transcript();
            let is_error = |line: &&String| ERROR_LEVELS.iter().any(|level| line.contains(level));
            if let Some(line) = transcript.lines.iter().find(is_error) {
                return Err(format!("{name} reported an error: {line}"));
            }
        }
        Ok(())
    }
}

impl<'a> Cast<'a> {
    fn new(bench: &'a Bench<'a>, scenario: &'a Scenario) -> Self {
        Self {
            bench,
            actors: scenario.parties.iter().map(Actor::new).collect(),
        }
    }

    /// What everybody has written.
    fn transcripts(&self) -> Vec<Transcript> {
        self.actors.iter().map(Actor::transcript).collect()
    }

    /// Runs all to their end.
    ///
    /// # Errors
    ///
    /// One has ended in another way than documented, or they have not ended in time: which one, and what it waits for.
    fn play(&mut self, timeout: Duration, interrupted: &dyn Fn() -> bool) -> Result<(), String> {
        let deadline = Instant::now() + timeout;
        loop {
            for index in 0..self.actors.len() {
                self.advance(index)?;
            }
            if self.actors.iter().all(|actor| actor.ended) {
                return Ok(());
            }
            if interrupted() {
                return Err("interrupted".to_owned());
            }
            if Instant::now() >= deadline {
                return Err(format!("after {timeout:?}, {}", self.stuck()));
            }
            std::thread::sleep(TICK);
        }
    }

    /// Lets one party go as far as it can.
    fn advance(&mut self, index: usize) -> Result<(), String> {
        let party = self.actors[index].party;
        if self.actors[index].ended {
            return Ok(());
        }
        if self.actors[index].program.is_none() {
            if !self.all(&party.starts) {
                return Ok(());
            }
            for step in &party.before {
                self.bench.step(step, &party.name)?;
            }
            self.actors[index].program = Some(self.bench.start(party)?);
        }
        // Asked for before the output is looked at: what it wrote last is there then.
        let status = match &mut self.actors[index].program {
            Some(program) => program.ended().map_err(|error| error.to_string())?,
            None => None,
        };
        while self.actors[index].asks() {
            let reply = &party.replies[self.actors[index].answered];
            if !self.all(&reply.when) {
                break;
            }
            for step in &reply.steps {
                self.bench.step(step, &party.name)?;
            }
            let actor = &mut self.actors[index];
            if let Some(program) = &mut actor.program {
                program.press_enter();
            }
            actor.answered += 1;
            actor.asked = false;
        }
        if let Some(status) = status {
            self.actors[index].ended = true;
            self.actors[index].judge(status)?;
        }
        Ok(())
    }

    fn all(&self, events: &[Event]) -> bool {
        events.iter().all(|event| self.happened(event))
    }

    fn happened(&self, event: &Event) -> bool {
        let party = event.party();
        self.actors
            .iter()
            .filter(|actor| actor.party.name == party)
            .any(|actor| match event {
                Event::Says(_, said) => actor.has_said(said),
                Event::Rests(_) => actor.rests(),
                Event::Ends(_) => actor.ended,
            })
    }

    /// Who waits for what.
    fn stuck(&self) -> String {
        let waiting = self.actors.iter().filter(|actor| !actor.ended);
        let reasons: Vec<String> = waiting.map(|actor| self.waits_for(actor)).collect();
        reasons.join("; ")
    }

    fn waits_for(&self, actor: &Actor<'_>) -> String {
        let name = &actor.party.name;
        let reply = actor.party.replies.get(actor.answered);
        let events = match reply {
            _ if actor.program.is_none() => &actor.party.starts,
            Some(reply) if actor.asked => &reply.when,
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

// A sample that runs: its two outputs as one list of lines, in the order in which they came, and somebody to press Enter.

/// Lines that are kept: a sample that prints without end must not fill the memory.
const KEPT_LINES: usize = 20_000;
/// Time for the rest of the output once the program has ended; a process that it left may hold the pipes longer.
const REST: Duration = Duration::from_secs(2);

/// What a program has written.
#[derive(Default)]
pub(super) struct Output {
    /// Both outputs, in the order in which they came.
    pub(super) lines: Vec<String>,
    /// When the last one came.
    last: Option<Instant>,
}

/// A running program. Dropping it kills it.
pub(super) struct Program {
    child: Child,
    /// Kept open to the end: samples read until Enter comes and never look for the end of the input.
    stdin: ChildStdin,
    output: Arc<Mutex<Output>>,
    readers: Vec<JoinHandle<()>>,
}

impl Program {
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().expect("piped above");
        let stdout = child.stdout.take().expect("piped above");
        let stderr = child.stderr.take().expect("piped above");
        let output = Arc::<Mutex<Output>>::default();
        let readers = vec![collect(stdout, &output), collect(stderr, &output)];
        Ok(Self {
            child,
            stdin,
            output,
            readers,
        })
    }

    /// What it has written so far.
    pub(super) fn output(&self) -> MutexGuard<'_, Output> {
        // A reader cannot panic while it holds this.
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long ago it wrote its last line; `None` before the first.
    pub(super) fn quiet_for(&self) -> Option<Duration> {
        self.output().last.map(|last| last.elapsed())
    }

    /// Presses Enter. One that has ended in this moment does not need it any more.
    pub(super) fn press_enter(&mut self) {
        let _ = self.stdin.write_all(b"\n");
    }

    /// How it ended, once it has.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_some() {
            let deadline = Instant::now() + REST;
            while !self.readers.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(status)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended, most of the time.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Adds what comes to the output, until nothing more can come.
fn collect(source: impl Read + Send + 'static, output: &Arc<Mutex<Output>>) -> JoinHandle<()> {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        for line in BufReader::new(source).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            output.last = Some(Instant::now());
            if output.lines.len() < KEPT_LINES {
                output.lines.push(line);
            }
        }
    })
}
