//! A session of a transcript, as something to play.

use wire::control::Payload;

use crate::transcript::{Event, Side, Transcript};

/// Why a transcript cannot be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoScript {
    /// It is cut off.
    #[error("expected a whole transcript to replay: {0}")]
    Truncated(String),
    /// It has no such session.
    #[error("expected a transcript with a session of its channel {0}, it has none")]
    Nothing(u32),
}

/// What happened on one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The session: which of the channel's connections, from 0.
    pub session: u32,
    pub(super) channel: u32,
    pub(super) steps: Vec<Step>,
}

/// Something that one side did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// Number of the transcript's entry.
    pub(super) entry: usize,
    pub(super) side: Side,
    pub(super) event: Event,
    /// A request that was answered with an error.
    pub(super) is_refused: bool,
}

impl Script {
    /// The sessions of a channel, in the order in which they began.
    ///
    /// # Errors
    ///
    /// There is none, or the transcript lacks its end: what is missing would pass unseen.
    pub fn all(transcript: &Transcript, channel: u32) -> Result<Vec<Self>, NoScript> {
        if let Some(truncated) = &transcript.truncated {
            return Err(NoScript::Truncated(truncated.clone()));
        }
        let mut scripts: Vec<Self> = Vec::new();
        for (number, entry) in transcript.entries.iter().enumerate() {
            if entry.channel != channel {
                continue;
            }
            if entry.event == Event::Opened {
                scripts.push(Self {
                    session: entry.session,
                    channel,
                    steps: Vec::new(),
                });
            } else if let Some(script) = scripts
                .iter_mut()
                .rfind(|script| script.session == entry.session)
                && let Some(side) = entry.from
            {
                script.add(number, side, entry.event.clone());
            }
        }
        if scripts.is_empty() {
            return Err(NoScript::Nothing(channel));
        }
        Ok(scripts)
    }

    /// Whether the session was shut down, and both sides are expected to end.
    pub fn is_shut_down(&self) -> bool {
        self.steps.iter().any(|step| match &step.event {
            Event::Frame(frame) => frame.message.payload == Payload::ShutdownResponse,
            _ => false,
        })
    }

    fn add(&mut self, entry: usize, side: Side, event: Event) {
        match (&event, self.steps.last_mut()) {
            // In which portions raw bytes came says nothing.
            (Event::Raw(more), Some(last)) if last.side == side => {
                if let Event::Raw(bytes) = &mut last.event {
                    *bytes = [&bytes[..], &more[..]].concat().into();
                    return;
                }
            }
            (Event::Frame(frame), _)
                if matches!(frame.message.payload, Payload::ErrorResponse(_)) =>
            {
                self.mark_refused(side.peer(), frame.message.message_id);
            }
            _ => {}
        }
        self.steps.push(Step {
            entry,
            side,
            event,
            is_refused: false,
        });
    }

    fn mark_refused(&mut self, side: Side, id: u32) {
        let request = self.steps.iter_mut().rfind(|step| match &step.event {
            Event::Frame(frame) => step.side == side && frame.message.message_id == id,
            _ => false,
        });
        if let Some(step) = request {
            step.is_refused = true;
        }
    }
}
