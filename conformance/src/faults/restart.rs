//! The whole deployment once more, right behind a session that ended badly, at the same place.

use super::case::{Mode, Part};
use super::command_lines::Work;
use super::stage::{Stage, WAITING, soon};

impl Stage<'_> {
    /// Starts all roles with the ports, files and names that they had, and has one session; what is wrong with that.
    pub(super) fn restart(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        self.is_calm = true;
        problems.extend(self.play_again().err().map(|why| format!("restart: {why}")));
        for mut actor in std::mem::take(&mut self.actors) {
            actor.ends(soon());
            let ended = actor.into_ended();
            match ended.complaint(false) {
                Some(complaint) => problems.push(format!("restart: {complaint}")),
                None if !ended.is_well() => {
                    problems.push(format!("restart: {} failed", ended.label));
                }
                None => {}
            }
            self.ended.push(ended);
        }
        problems
    }

    fn play_again(&mut self) -> Result<(), String> {
        for index in 0..self.ports.len() {
            self.start_target(index, self.ports[index], 0)?;
        }
        let channel = self.scene.channel().to_owned();
        self.start_service(channel.clone())?;
        self.actor(Part::Service)?.says(WAITING, 1, soon())?;
        let work = if self.case.phase.is_written() {
            Work::Read
        } else {
            Work::WriteAndRead
        };
        self.good_session(work, &channel)
    }

    /// Those who serve on have shown it already.
    pub(super) fn is_restarted(&self) -> bool {
        self.case.mode != Mode::Serving
    }
}
