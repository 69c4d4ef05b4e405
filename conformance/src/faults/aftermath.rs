//! Behaviour of the other roles after a fault.

use std::time::{Duration, Instant};

use wire::control::MessageType;

use super::case::{Fault, Mode, Part, Phase};
use super::deployment::{BLOCKS, Deployment, Running, WAITING, Work, default_deadline};
use deployment::process::Signal;

/// Log text at the end of a session, clean or unclean.
const ENDED: &str = "session 1 has ";
/// Text after the number of completed operations in an initiator's progress line, which is printed each second.
const PROGRESS: &str = " of ";
/// Log texts of a target for a connected service and for the end of its session.
const CLIENT: &str = " connected";
const SESSION: &str = "session ";
/// Log text of a service that loses its targets before an initiator has connected.
const NOT_READY: &str = "not ready for session";
/// Log texts of a service for a detached target and for a rebuilt one.
const LOST: &str = "detached storage target";
const WHOLE: &str = "is up to date";

/// Reaction of the other roles to the fault.
#[derive(Debug, Default)]
pub(super) struct Aftermath {
    /// Time until all other roles had detected the fault.
    pub(super) noticed: Duration,
    /// Violations.
    pub(super) problems: Vec<String>,
}

impl Deployment<'_> {
    /// Waits until all other roles have detected the fault, and runs the sessions that are possible afterwards. An
    /// error ends the case.
    pub(super) fn watch(&mut self) -> Result<Aftermath, String> {
        let started = Instant::now();
        let mut aftermath = Aftermath::default();
        if self.case.phase == Phase::Waiting && self.case.fault == Fault::Stop {
            // A stopped role with no outstanding response is not detected.
            let channel = self.sandbox.channel().to_owned();
            self.start_initiator(Work::WriteAndRead, &channel)?;
        }
        if self.case.is_survived() {
            self.lose_and_regain()?;
        } else if self.case.mode == Mode::Serving {
            self.serve_on(&mut aftermath, started)?;
        } else {
            let others = |deployment: &Self, role: &Running| role.part != deployment.case.faulty;
            // The frame is one target's; the service may not have sent the request to the others yet.
            let first = [
                Phase::Waiting,
                Phase::Frame(MessageType::QueryStorageRequest, 0),
                Phase::Frame(MessageType::QueryStorageResponse, 0),
            ];
            if first.contains(&self.case.phase) {
                let is_target = |role: &Running| matches!(role.part, Part::Target(_));
                let askers = |deployment: &Self, role: &Running| {
                    others(deployment, role) && !is_target(role)
                };
                self.all_end(askers, &mut aftermath.problems);
                // Targets without a request have no session to end, and keep running.
                for role in self.running.iter().filter(|role| is_target(role)) {
                    role.signal(Signal::TERM);
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

    /// Waits for some roles to exit, and reports those that do not.
    fn all_end(&mut self, who: impl Fn(&Self, &Running) -> bool, problems: &mut Vec<String>) {
        let notice = self.settings.notice;
        let deadline = Instant::now() + notice;
        for index in 0..self.running.len() {
            if !who(self, &self.running[index]) {
                continue;
            }
            let role = &mut self.running[index];
            if !role.ends(deadline) {
                let seconds = notice.as_secs();
                problems.push(format!("{} still ran after {seconds} s", role.label()));
                role.signal(Signal::KILL);
                role.ends(default_deadline());
            }
        }
    }

    /// Continues the stopped role, which then detects that its peers have disconnected.
    fn wake_victim(&mut self) {
        let Self { running, case, .. } = self;
        if case.fault == Fault::Stop
            && let Some(role) = running.iter().find(|role| role.part == case.faulty)
        {
            role.signal(Signal::CONT);
        }
    }

    /// Checks the exit status of every role and moves it to `ended`.
    fn judge(&mut self, problems: &mut Vec<String>) {
        let case = self.case;
        // The first process of a role is the one that was running at the time of the fault.
        let mut seen = Vec::new();
        for role in std::mem::take(&mut self.running) {
            let ended = role.into_ended();
            let was_there = !seen.contains(&ended.part);
            seen.push(ended.part);
            let is_faulty = was_there && ended.part == case.faulty;
            problems.extend(ended.complaint(is_faulty && case.fault == Fault::Kill));
            if case.mode != Mode::Serving
                && was_there
                && !is_faulty
                && ended.exit.succeeded()
                && !case.may_end_well(ended.part)
            {
                problems.push(format!(
                    "{} ended well, and noticed nothing",
                    ended.exit.role
                ));
            }
            self.ended.push(ended);
        }
    }

    /// Checks that the other roles serve the next session, with a replacement of the faulty role.
    fn serve_on(&mut self, aftermath: &mut Aftermath, started: Instant) -> Result<(), String> {
        let case = self.case;
        let is_initiator = |_: &Self, role: &Running| role.part == Part::Initiator;
        let targets = 0..self.ports.len();
        if case.faulty != Part::Initiator {
            self.all_end(is_initiator, &mut aftermath.problems);
        }
        let deadline = Instant::now() + self.settings.notice;
        for index in targets {
            let begun = case.phase != Phase::Waiting || case.faulty == Part::Service;
            if case.faulty != Part::Target(index) && begun {
                self.role(Part::Target(index))?.says(ENDED, 1, deadline)?;
            }
        }
        let mut channel = self.sandbox.channel().to_owned();
        let mut has_content = case.phase.is_written();
        let mut ready = 2;
        match (case.faulty, case.fault) {
            (Part::Initiator, _) => {}
            // The replacement has an empty storage.
            (Part::Target(_), Fault::Stop) => has_content = false,
            (Part::Target(index), _) => {
                self.start_target(index, self.ports[index], 0)?;
            }
            (Part::Service, fault) => {
                if fault == Fault::Stop {
                    // The stopped service still has its channel, too.
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
            self.wait_until_ready(ready + 1, default_deadline())?;
            has_content = true;
        }
        let work = if has_content {
            Work::Read
        } else {
            Work::WriteAndRead
        };
        self.good_session(work, &channel)?;
        // They would otherwise wait for the next session indefinitely.
        for role in &self.running {
            role.signal(Signal::TERM);
        }
        self.all_end(|_, _| true, &mut aftermath.problems);
        Ok(())
    }

    /// Waits until the service has announced its readiness this many times, and each target has a client.
    fn wait_until_ready(&mut self, times: usize, deadline: Instant) -> Result<(), String> {
        self.role(Part::Service)?.says(WAITING, times, deadline)?;
        for index in 0..self.ports.len() {
            let target = self.role(Part::Target(index))?;
            target.says_what("the service connected", deadline, |text| {
                let is_over = |line: &&str| line.trim_start().starts_with(SESSION);
                let over = text.lines().filter(is_over).count();
                (text.matches(CLIENT).count() > over).then_some(())
            })?;
        }
        let service = self.role(Part::Service)?;
        service.says_what("it was ready", deadline, |text| {
            (text.rfind(WAITING) > text.rfind(NOT_READY)).then_some(())
        })
    }

    /// Continues the faulty role during the next session, which must not be affected.
    fn wake_in_a_session(
        &mut self,
        channel: &str,
        problems: &mut Vec<String>,
    ) -> Result<(), String> {
        self.start_initiator(Work::Endless, channel)?;
        let initiator = self.role(Part::Initiator)?;
        initiator.says_what("all blocks were written", default_deadline(), |text| {
            text.lines()
                .any(|line| operations(line) >= 4 * BLOCKS)
                .then_some(())
        })?;
        self.wake_victim();
        let faulty = self.case.faulty;
        let first = self
            .running
            .iter_mut()
            .find(|role| role.part == faulty)
            .ok_or("there is no faulty role")?;
        if !first.ends(Instant::now() + self.settings.notice) {
            problems.push(format!("{} has woken up and does not end", first.label()));
        }
        let initiator = self.role(Part::Initiator)?;
        if initiator.has_ended() {
            return Err("the next session ended when the faulty role woke up".to_owned());
        }
        initiator.signal(Signal::INT);
        if !initiator.ends(default_deadline()) {
            return Err("the next session's initiator does not end".to_owned());
        }
        Ok(())
    }

    /// Runs one session whose initiator must read the expected content.
    pub(super) fn good_session(&mut self, work: Work, channel: &str) -> Result<(), String> {
        self.start_initiator(work, channel)?;
        let initiator = self.role(Part::Initiator)?;
        if !initiator.ends(default_deadline()) {
            return Err("the next session does not end".to_owned());
        }
        if initiator.is_well() {
            Ok(())
        } else {
            Err("the next session is none".to_owned())
        }
    }

    /// Checks that the session continues without the target, and with it after its rejoin.
    fn lose_and_regain(&mut self) -> Result<(), String> {
        let Part::Target(index) = self.case.faulty else {
            return Err("only targets are done without".to_owned());
        };
        let deadline = Instant::now() + self.settings.notice;
        self.role(Part::Service)?.says(LOST, 1, deadline)?;
        self.wake_victim();
        let faulty = self.role(self.case.faulty)?;
        if !faulty.ends(deadline) {
            return Err("the lost target does not end".to_owned());
        }
        self.start_target(index, self.ports[index], 0)?;
        self.role(Part::Service)?
            .says(WHOLE, 1, default_deadline())?;
        let initiator = self.role(Part::Initiator)?;
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

/// Number of completed operations in a progress line; 0 for other lines.
fn operations(line: &str) -> usize {
    line.split_once(PROGRESS)
        .and_then(|(number, _)| number.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_parsed_from_progress_lines() {
        let line = "    17 of 200 operations (8 %), 3 per second";
        assert_eq!(operations(line), 17);
        assert_eq!(operations("4 sessions of 5 have failed"), 0);
    }
}
