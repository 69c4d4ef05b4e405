//! The processes of a scenario: who starts when, who gets which answer, and how each ended.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::bench::Bench;
use crate::samples::program::Program;
use crate::samples::scenario::{Event, Party, Said, Scenario};

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
pub(super) struct Cast<'a> {
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
    pub(super) fn new(bench: &'a Bench<'a>, scenario: &'a Scenario) -> Self {
        Self {
            bench,
            actors: scenario.parties.iter().map(Actor::new).collect(),
        }
    }

    /// What everybody has written.
    pub(super) fn transcripts(&self) -> Vec<Transcript> {
        self.actors.iter().map(Actor::transcript).collect()
    }

    /// Runs all to their end.
    ///
    /// # Errors
    ///
    /// One has ended in another way than documented, or they have not ended in time: which one, and what it waits for.
    pub(super) fn play(
        &mut self,
        timeout: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), String> {
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
