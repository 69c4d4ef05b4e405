//! What becomes of the others.

use std::time::{Duration, Instant};

use wire::control::MessageType;

use super::case::{Fault, Mode, Part, Phase};
use super::stage::{Actor, BLOCKS, Stage, WAITING, Work, soon};
use crate::process::Signal;

/// What is said of a session that is over, whichever way.
const ENDED: &str = "session 1 ended";
/// What stands behind the number of operations that an initiator has done, each second.
const PROGRESS: &str = " of ";
/// What a target says of a service that comes, and what of the end of its session.
const CLIENT: &str = " connected";
const SESSION: &str = "session ";
/// What a service says that has lost its targets before there was an initiator.
const NOT_READY: &str = "not ready for session";
/// What the service says of a target that it does without, and of one that is back.
const LOST: &str = "detached storage target";
const WHOLE: &str = "is up to date";

/// How the others took it.
#[derive(Debug, Default)]
pub(super) struct Aftermath {
    /// When the last of them had noticed, after the fault.
    pub(super) noticed: Duration,
    /// What should have been otherwise.
    pub(super) problems: Vec<String>,
}

impl Stage<'_> {
    /// Waits until everybody has noticed, and does what they then can do. An error is something without which this cannot go on.
    pub(super) fn watch(&mut self) -> Result<Aftermath, String> {
        let started = Instant::now();
        let mut aftermath = Aftermath::default();
        if self.case.phase == Phase::Waiting && self.case.fault == Fault::Stop {
            // Who says nothing while nothing is asked is not missed.
            let channel = self.scene.channel().to_owned();
            self.start_initiator(Work::WriteAndRead, &channel)?;
        }
        if self.case.is_survived() {
            self.lose_and_regain()?;
        } else if self.case.mode == Mode::Serving {
            self.serve_on(&mut aftermath, started)?;
        } else {
            let others = |stage: &Self, actor: &Actor| actor.part != stage.case.victim;
            // The frame at hand is that of one target; the service may not have asked the others yet.
            let first = [
                Phase::Waiting,
                Phase::Frame(MessageType::QueryStorageRequest, 0),
                Phase::Frame(MessageType::QueryStorageResponse, 0),
            ];
            if first.contains(&self.case.phase) {
                let is_target = |actor: &Actor| matches!(actor.part, Part::Target(_));
                let askers =
                    |stage: &Self, actor: &Actor| others(stage, actor) && !is_target(actor);
                self.all_end(askers, &mut aftermath.problems);
                // Targets that have not been asked for anything have no session that could end, and go on.
                for actor in self.actors.iter().filter(|actor| is_target(actor)) {
                    actor.signal(Signal::TERM);
                }
            }
            self.all_end(others, &mut aftermath.problems);
            aftermath.noticed = started.elapsed();
            self.wake_victim();
            self.all_end(|_, _| true, &mut aftermath.problems);
        }
        self.judge(&mut aftermath.problems);
        Ok(aftermath)
    }

    /// Waits for the ends of some, and notes who has not come to it.
    fn all_end(&mut self, who: impl Fn(&Self, &Actor) -> bool, problems: &mut Vec<String>) {
        let notice = self.settings.notice;
        let deadline = Instant::now() + notice;
        for index in 0..self.actors.len() {
            if !who(self, &self.actors[index]) {
                continue;
            }
            let actor = &mut self.actors[index];
            if !actor.ends(deadline) {
                let seconds = notice.as_secs();
                problems.push(format!("{} still ran after {seconds} s", actor.label));
                actor.signal(Signal::KILL);
                actor.ends(soon());
            }
        }
    }

    /// Who was stopped learns that the others have given it up.
    fn wake_victim(&mut self) {
        let Self { actors, case, .. } = self;
        if case.fault == Fault::Stop
            && let Some(actor) = actors.iter().find(|actor| actor.part == case.victim)
        {
            actor.signal(Signal::CONT);
        }
    }

    /// Looks at everybody's end, and puts them aside.
    fn judge(&mut self, problems: &mut Vec<String>) {
        let case = self.case;
        // The first one that plays a part is the one that was there at the fault.
        let mut seen = Vec::new();
        for actor in std::mem::take(&mut self.actors) {
            let ended = actor.into_ended();
            let was_there = !seen.contains(&ended.part);
            seen.push(ended.part);
            let is_victim = was_there && ended.part == case.victim;
            problems.extend(ended.complaint(is_victim && case.fault == Fault::Kill));
            if case.mode != Mode::Serving
                && was_there
                && !is_victim
                && ended.is_well()
                && !case.may_end_well(ended.part)
            {
                problems.push(format!("{} ended well, and noticed nothing", ended.label));
            }
            self.ended.push(ended);
        }
    }

    /// The others serve the next session, with another one in the place of the victim.
    fn serve_on(&mut self, aftermath: &mut Aftermath, started: Instant) -> Result<(), String> {
        let case = self.case;
        let is_initiator = |_: &Self, actor: &Actor| actor.part == Part::Initiator;
        let targets = 0..self.ports.len();
        if case.victim != Part::Initiator {
            self.all_end(is_initiator, &mut aftermath.problems);
        }
        let deadline = Instant::now() + self.settings.notice;
        for index in targets {
            let begun = case.phase != Phase::Waiting || case.victim == Part::Service;
            if case.victim != Part::Target(index) && begun {
                self.actor(Part::Target(index))?.says(ENDED, 1, deadline)?;
            }
        }
        let mut channel = self.scene.channel().to_owned();
        let mut has_content = case.phase.is_written();
        let mut ready = 2;
        match (case.victim, case.fault) {
            (Part::Initiator, _) => {}
            // The other one is there, and has nothing yet.
            (Part::Target(_), Fault::Stop) => has_content = false,
            (Part::Target(index), _) => {
                self.start_target(index, self.ports[index], 0)?;
            }
            (Part::Service, fault) => {
                if fault == Fault::Stop {
                    // It has its channel, too.
                    channel.push_str("-next");
                }
                self.start_service(channel.clone())?;
                ready = 1;
            }
        }
        self.wait_until_ready(ready, deadline)?;
        aftermath.noticed = started.elapsed();
        if case.fault == Fault::Stop {
            self.wake_in_a_session(&channel, &mut aftermath.problems)?;
            self.wait_until_ready(ready + 1, soon())?;
            has_content = true;
        }
        let work = if has_content {
            Work::Read
        } else {
            Work::WriteAndRead
        };
        self.good_session(work, &channel)?;
        // They would wait for the next one for ever.
        for actor in &self.actors {
            actor.signal(Signal::TERM);
        }
        self.all_end(|_, _| true, &mut aftermath.problems);
        Ok(())
    }

    /// Waits until the service has been ready so many times, and is it: each target has a client.
    fn wait_until_ready(&mut self, times: usize, deadline: Instant) -> Result<(), String> {
        self.actor(Part::Service)?.says(WAITING, times, deadline)?;
        for index in 0..self.ports.len() {
            let target = self.actor(Part::Target(index))?;
            target.says_what("that the service is there", deadline, |text| {
                let is_over = |line: &&str| line.trim_start().starts_with(SESSION);
                let over = text.lines().filter(is_over).count();
                (text.matches(CLIENT).count() > over).then_some(())
            })?;
        }
        let service = self.actor(Part::Service)?;
        service.says_what("that it is ready", deadline, |text| {
            (text.rfind(WAITING) > text.rfind(NOT_READY)).then_some(())
        })
    }

    /// The victim wakes up in the middle of the next session, which does not suffer from it.
    fn wake_in_a_session(
        &mut self,
        channel: &str,
        problems: &mut Vec<String>,
    ) -> Result<(), String> {
        self.start_initiator(Work::Endless, channel)?;
        let initiator = self.actor(Part::Initiator)?;
        initiator.says_what("that it has written all", soon(), |text| {
            text.lines()
                .any(|line| operations(line) >= 4 * BLOCKS)
                .then_some(())
        })?;
        self.wake_victim();
        let victim = self.case.victim;
        let first = self
            .actors
            .iter_mut()
            .find(|actor| actor.part == victim)
            .ok_or("there is no victim")?;
        if !first.ends(Instant::now() + self.settings.notice) {
            problems.push(format!("{} has woken up and does not end", first.label));
        }
        let initiator = self.actor(Part::Initiator)?;
        if initiator.has_ended() {
            return Err("the next session ended when the victim woke up".to_owned());
        }
        initiator.signal(Signal::INT);
        if !initiator.ends(soon()) {
            return Err("the next session's initiator does not end".to_owned());
        }
        Ok(())
    }

    /// One session whose initiator finds what it expects.
    pub(super) fn good_session(&mut self, work: Work, channel: &str) -> Result<(), String> {
        self.start_initiator(work, channel)?;
        let initiator = self.actor(Part::Initiator)?;
        if !initiator.ends(soon()) {
            return Err("the next session does not end".to_owned());
        }
        if initiator.is_well() {
            Ok(())
        } else {
            Err("the next session is none".to_owned())
        }
    }

    /// The session goes on without the target, and with it when it is back.
    fn lose_and_regain(&mut self) -> Result<(), String> {
        let Part::Target(index) = self.case.victim else {
            return Err("only targets are done without".to_owned());
        };
        let deadline = Instant::now() + self.settings.notice;
        self.actor(Part::Service)?.says(LOST, 1, deadline)?;
        self.wake_victim();
        let victim = self.actor(self.case.victim)?;
        if !victim.ends(deadline) {
            return Err("the lost target does not end".to_owned());
        }
        self.start_target(index, self.ports[index], 0)?;
        self.actor(Part::Service)?.says(WHOLE, 1, soon())?;
        let initiator = self.actor(Part::Initiator)?;
        if initiator.has_ended() {
            return Err("the session has ended with the target".to_owned());
        }
        initiator.signal(Signal::INT);
        let mut problems = Vec::new();
        self.all_end(|_, _| true, &mut problems);
        match problems.pop() {
            Some(problem) => Err(problem),
            None => Ok(()),
        }
    }
}

/// Operations that an initiator has done, from a line of its progress; none from another line.
fn operations(line: &str) -> usize {
    line.split_once(PROGRESS)
        .and_then(|(number, _)| number.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_counted() {
        let line = "    17 of 200 operations (8 %), 3 per second";
        assert_eq!(operations(line), 17);
        assert_eq!(operations("4 sessions of 5 ended badly"), 0);
    }
}
