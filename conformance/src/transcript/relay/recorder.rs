//! What several threads write into one transcript.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::{Interceptor, Place};
use crate::transcript::{Entry, Event, Header, Side, Writer};

/// What was recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Connections.
    pub sessions: u64,
    /// Frames.
    pub frames: u64,
    /// Bytes that were no frames.
    pub raw_bytes: u64,
}

/// A transcript that several threads write.
#[derive(Debug)]
pub struct Recorder<W> {
    started: Instant,
    state: Mutex<State<W>>,
}

#[derive(Debug)]
struct State<W> {
    writer: Writer<W>,
    summary: Summary,
    error: Option<io::Error>,
}

impl<W: Write> Recorder<W> {
    /// Begins a transcript.
    ///
    /// # Errors
    ///
    /// Those of the sink.
    pub fn new(sink: W, header: &Header) -> io::Result<Self> {
        Ok(Self {
            started: Instant::now(),
            state: Mutex::new(State {
                writer: Writer::new(sink, header)?,
                summary: Summary::default(),
                error: None,
            }),
        })
    }

    /// Adds what happened now. A failure is kept for [`finish`](Self::finish): the deployment must not suffer from it.
    fn record(&self, place: Place, from: Option<Side>, event: Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &event {
            Event::Opened => state.summary.sessions += 1,
            Event::Frame(_) => state.summary.frames += 1,
            Event::Raw(bytes) => state.summary.raw_bytes += bytes.len() as u64,
            Event::Closed | Event::Failed(_) | Event::Ended => {}
        }
        if state.error.is_none() {
            let entry = Entry {
                // Taken under the lock, so that the times of entries never decrease.
                time: self.started.elapsed(),
                channel: place.channel,
                session: place.session,
                from,
                event,
            };
            state.error = state.writer.write(&entry).err();
        }
    }

    /// Ends the transcript.
    ///
    /// # Errors
    ///
    /// The first failure of the sink; the transcript is good up to there.
    pub fn finish(self) -> io::Result<Summary> {
        let place = Place {
            channel: 0,
            session: 0,
        };
        self.record(place, None, Event::Ended);
        let state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        match state.error {
            Some(error) => Err(error),
            None => Ok(state.summary),
        }
    }
}

impl<W: Write + Send> Interceptor for Recorder<W> {
    fn observe(&self, place: Place, from: Option<Side>, event: Event) {
        self.record(place, from, event);
    }
}
