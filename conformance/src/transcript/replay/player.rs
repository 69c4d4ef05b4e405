//! Goes through a script: sends what one side sent, and expects what the other did.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use wire::control::Message;

use super::compare::compare;
use super::journal::Journal;
use super::peer::{Came, Peer};
use super::script::{Script, Step};
use super::{Settings, Side};
use crate::transcript::{Event, Piece};

/// What is alive of the side that is played.
pub(super) trait Part {
    /// The message to send instead of a recorded one, which `is_refused` where an error answered it.
    ///
    /// # Errors
    ///
    /// What it needs cannot be made.
    fn send(&mut self, recorded: &Message, is_refused: bool) -> Result<Message, String>;

    /// Uses what came instead of a recorded message; answers what is wrong with it.
    ///
    /// # Errors
    ///
    /// It cannot be used.
    fn receive(
        &mut self,
        recorded: &Message,
        came: &Message,
        is_refused: bool,
    ) -> Result<(), String>;

    /// Does what there is to do; answers whether there was anything to do at all.
    ///
    /// # Errors
    ///
    /// Its data path fails.
    fn progress(&mut self) -> Result<bool, String>;

    /// Whether what comes next is up to somebody who may take as long as they want.
    fn is_patient(&self) -> bool;

    /// Whether the ids that come are those of requests sent from here.
    fn ids_are_ours(&self) -> bool;
}

/// A script, and those who play it.
pub(super) struct Player<'a> {
    script: &'a Script,
    us: Side,
    peer: Peer,
    part: &'a mut dyn Part,
    settings: &'a Settings,
    stop: &'a dyn Fn() -> bool,
}

impl<'a> Player<'a> {
    pub(super) fn new(
        script: &'a Script,
        us: Side,
        peer: Peer,
        part: &'a mut dyn Part,
        settings: &'a Settings,
        stop: &'a dyn Fn() -> bool,
    ) -> Self {
        Self {
            script,
            us,
            peer,
            part,
            settings,
            stop,
        }
    }

    /// Plays until the end, or until it makes no sense to go on.
    pub(super) fn play(mut self, journal: &mut Journal) {
        for (index, step) in self.script.steps.iter().enumerate() {
            let done = if step.side == self.us {
                self.send(step)
            } else {
                // Who of both closes first is a matter of luck.
                let only_closing = |step: &Step| step.event == Event::Closed;
                if self.script.steps[index..].iter().all(only_closing) {
                    self.peer.close();
                }
                self.expect(step, journal)
            };
            if let Err(why) = done {
                journal.stop(step.entry, why);
                return;
            }
        }
    }

    fn send(&mut self, step: &Step) -> Result<(), String> {
        let bytes = match &step.event {
            Event::Frame(frame) => {
                let live = self.part.send(&frame.message, step.is_refused)?;
                match live == frame.message {
                    true => frame.to_bytes(),
                    false => live.encode_to_vec().into(),
                }
            }
            Event::Raw(bytes) => bytes.clone(),
            Event::Closed | Event::Failed(_) => {
                self.peer.close();
                return Ok(());
            }
            Event::Opened | Event::Ended => return Ok(()),
        };
        self.peer
            .send(&bytes, Instant::now() + self.settings.timeout)
            .map_err(|error| format!("cannot be sent: {error}"))
    }

    fn expect(&mut self, step: &Step, journal: &mut Journal) -> Result<(), String> {
        let started = Instant::now();
        let mut notes = Vec::new();
        let mut differences = Vec::new();
        let mut fatal = None;
        match &step.event {
            Event::Frame(frame) => {
                let came = self.frame(started)?;
                let recorded = &frame.message;
                let ids = self.part.ids_are_ours() || self.settings.compare_ids;
                let compared = compare(recorded, &came, ids);
                (differences, notes) = (compared.differences, compared.notes);
                if compared.is_other {
                    fatal = Some(differences.join("; "));
                } else if let Err(why) = self.part.receive(recorded, &came, step.is_refused) {
                    differences.push(why);
                }
            }
            Event::Raw(expected) => {
                let came = self.raw(expected.len(), started)?;
                if came != expected {
                    differences.push(format!("expected the bytes {expected:x}, {came:x} came"));
                }
            }
            Event::Closed => match self.wait(started)? {
                Came::Piece(piece) => {
                    return Err(format!("expected its end, {} came", told(&piece)));
                }
                Came::Failed(error) => notes.push(format!("it failed instead: {error}")),
                Came::Closed | Came::Nothing => {}
            },
            Event::Failed(_) => match self.wait(started)? {
                Came::Piece(piece) => {
                    return Err(format!("expected no more, {} came", told(&piece)));
                }
                Came::Closed | Came::Failed(_) | Came::Nothing => {}
            },
            Event::Opened | Event::Ended => return Ok(()),
        }
        match fatal {
            // The journal makes the case of it.
            Some(why) => Err(why),
            None => {
                journal.add(step, &differences, &notes, started.elapsed());
                Ok(())
            }
        }
    }

    fn frame(&mut self, started: Instant) -> Result<Message, String> {
        match self.wait(started)? {
            Came::Piece(Piece::Frame(frame)) => Ok(frame.message),
            Came::Piece(raw) => Err(format!("expected it, {} came", told(&raw))),
            Came::Closed => Err("expected it, the connection was closed".to_owned()),
            Came::Failed(error) => Err(format!("expected it, the connection failed: {error}")),
            Came::Nothing => Err("expected it, nothing came".to_owned()),
        }
    }

    fn raw(&mut self, expected: usize, started: Instant) -> Result<Bytes, String> {
        let mut bytes = BytesMut::new();
        while bytes.len() < expected {
            match self.wait(started)? {
                Came::Piece(piece) => bytes.extend_from_slice(&piece.to_bytes()),
                Came::Closed | Came::Failed(_) | Came::Nothing => break,
            }
        }
        if bytes.len() > expected {
            let rest = bytes.split_off(expected).freeze();
            self.peer.put_back(Piece::Raw(rest));
        }
        Ok(bytes.freeze())
    }

    /// What comes next.
    fn wait(&mut self, started: Instant) -> Result<Came, String> {
        loop {
            match self.peer.receive() {
                Came::Nothing => {}
                came => return Ok(came),
            }
            if (self.stop)() {
                return Err("interrupted".to_owned());
            }
            if !self.part.is_patient() && started.elapsed() >= self.settings.timeout {
                return Err(format!(
                    "expected it within {:?}, nothing came",
                    self.settings.timeout
                ));
            }
            if !self.part.progress()? {
                Peer::pause();
            }
        }
    }
}

fn told(piece: &Piece) -> String {
    match piece {
        Piece::Frame(frame) => frame.message.payload.message_type().to_string(),
        Piece::Raw(bytes) => format!("{} bytes that are no frame", bytes.len()),
    }
}
