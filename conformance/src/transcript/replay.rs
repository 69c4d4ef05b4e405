//! Replay of one side of a recorded session against a live program.
//!
//! Recorded messages of this side are sent, and those of the other side compared field by field, in the recorded order.
//! Values that differ between runs are replaced: exports of memory and of RDMA contexts are real ones of this process,
//! and received exports are used, so that a program that answers with an invalid export fails.
//!
//! A [`Script`] is a session of a transcript. [`against_target`] replays the service, [`against_service`] the target.

mod player;

use std::io;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use wire::control::{Message, Payload};

use super::{Event, Field, Side, Transcript, Value, fields};
use crate::report::{Case, Outcome};
use crate::violation::Violation;
use player::Player;

#[derive(Debug, Clone)]
pub struct Settings {
    /// DOCA device of the replayed side, as in the roles' flags.
    pub device: String,
    /// Timeout of an answer.
    pub timeout: Duration,
    /// Timeout of one session with a service, from the wait for its connection to its end, regardless of its initiator;
    /// `None` disables it.
    pub session_timeout: Option<Duration>,
    /// `true` if the ids of a live service's requests are compared, too: ids of another implementation, or with another
    /// initiator, may differ. A target's responses always have the ids of their requests.
    pub compare_ids: bool,
    /// `true` to read a block through the live connections once a target has started.
    pub probe: bool,
    /// Initial contents of a replayed target's storage, followed by zeros.
    pub content: Vec<u8>,
}

/// Replays the service against the target at `address`, `HOST:PORT`. Returns one case per message that the target
/// must send. `stop` cancels the replay.
pub fn against_target(
    script: &Script,
    address: &str,
    settings: &Settings,
    stop: &dyn Fn() -> bool,
) -> Vec<Case> {
    let mut journal = Journal::new(script, "target");
    match player::connect(address, settings.timeout) {
        Ok(peer) => {
            let mut part = player::Service::new(settings);
            Player::new(script, Side::Client, peer, &mut part, settings, stop).play(&mut journal);
        }
        Err(error) => journal.unreachable(format!("cannot connect to {address}: {error}")),
    }
    journal.finish(script, Side::Server)
}

/// Replays the target for the next service that connects to `listener`. Returns one case per event that the service
/// must cause. The connection and the end of the data path depend on an initiator: only `session_timeout` limits the
/// wait for them.
///
/// # Errors
///
/// The listener has failed, or `stop` returned `true` before a connection.
pub fn against_service(
    script: &Script,
    listener: &TcpListener,
    settings: &Settings,
    stop: &dyn Fn() -> bool,
) -> io::Result<Vec<Case>> {
    let mut journal = Journal::new(script, "service");
    let deadline = settings.session_timeout.map(|limit| Instant::now() + limit);
    match player::accept(listener, deadline, stop) {
        Ok(peer) => {
            let mut part = player::Target::new(settings);
            Player::new(script, Side::Server, peer, &mut part, settings, stop)
                .until(deadline)
                .play(&mut journal);
        }
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            journal.unreachable(error.to_string());
        }
        Err(error) => return Err(error),
    }
    Ok(journal.finish(script, Side::Client))
}

// A session of a transcript, prepared for a replay.

/// Reason why a transcript cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoScript {
    /// The session is truncated.
    #[error("expected a whole transcript to replay: {0}")]
    Truncated(String),
    /// The transcript has no session with this number.
    #[error("expected a transcript with a session of its channel {0}, it has none")]
    Nothing(u32),
}

/// The events of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Number of the channel's connection, from 0.
    pub session: u32,
    channel: u32,
    steps: Vec<Step>,
}

/// An event caused by one side.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    /// Number of the transcript's entry.
    entry: usize,
    side: Side,
    event: Event,
    /// `true` for a request that was answered with an error.
    is_refused: bool,
}

impl Script {
    /// Sessions of a channel, in the order in which they began.
    ///
    /// # Errors
    ///
    /// The channel has no session, or the transcript is truncated, so that missing events could not be checked.
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

    /// Returns `true` if the session was shut down, so that both sides must close the connection.
    pub fn is_shut_down(&self) -> bool {
        self.steps.iter().any(|step| match &step.event {
            Event::Frame(frame) => frame.message.payload == Payload::ShutdownResponse,
            _ => false,
        })
    }

    fn add(&mut self, entry: usize, side: Side, event: Event) {
        match (&event, self.steps.last_mut()) {
            // The portions of raw bytes have no meaning.
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

// Results of all steps, as cases of a report.

/// Cases of one script.
struct Journal {
    suite: String,
    cases: Vec<Case>,
    /// Entry at which the replay was abandoned, and the reason.
    stopped: Option<(usize, Violation)>,
    /// `true` once the program under test is connected.
    is_reached: bool,
}

impl Journal {
    fn new(script: &Script, role: &str) -> Self {
        Self {
            suite: format!("replay.{role}.{}.{}", script.channel, script.session),
            cases: Vec::new(),
            stopped: None,
            is_reached: true,
        }
    }

    /// Adds the result of a step of the program under test.
    fn add(&mut self, step: &Step, differences: &[String], notes: &[String], took: Duration) {
        let outcome = match differences {
            [] => Outcome::Passed,
            _ => Outcome::Failed(differences.join("; ")),
        };
        self.cases.push(Case {
            meaning: "the recorded message is received again".to_owned(),
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            took,
            ..Case::new(&self.suite, name(step), outcome)
        });
    }

    /// Fails the replay because the program cannot be reached.
    fn unreachable(&mut self, why: String) {
        self.is_reached = false;
        let outcome = Outcome::Failed(why);
        self.cases.push(Case::new(&self.suite, "connect", outcome));
    }

    /// Abandons the replay at an entry.
    fn stop(&mut self, entry: usize, why: Violation) {
        self.stopped.get_or_insert((entry, why));
    }

    /// Returns the cases, including a case with the result "not run" for each step of the side under test after the
    /// entry at which the replay was abandoned.
    fn finish(mut self, script: &Script, tested: Side) -> Vec<Case> {
        let (rest, left) = match self.stopped {
            Some((entry, why)) => {
                let mut rest = script.steps.iter().filter(|step| step.entry >= entry);
                // The failed step is a separate case, whichever side it belongs to.
                let failed = rest.next().map_or_else(String::new, name);
                self.cases.push(Case::new(
                    &self.suite,
                    failed,
                    Outcome::Failed(why.to_string()),
                ));
                let rest: Vec<_> = rest.collect();
                (rest, format!("the session was left at entry {entry}"))
            }
            None if !self.is_reached => {
                let rest = script.steps.iter().collect();
                (rest, "nothing could be said".to_owned())
            }
            None => return self.cases,
        };
        for step in rest.into_iter().filter(|step| step.side == tested) {
            let outcome = Outcome::NotRun(left.clone());
            self.cases.push(Case::new(&self.suite, name(step), outcome));
        }
        self.cases
    }
}

fn name(step: &Step) -> String {
    format!("entry {}: {}", step.entry, step.event)
}

// Comparison of received with recorded messages, field by field.

#[derive(Debug, Default, PartialEq, Eq)]
struct Comparison {
    /// Differences in fields that must be equal.
    differences: Vec<String>,
    /// Differences in fields that may differ.
    notes: Vec<String>,
    /// `true` if it is another message, so that later comparisons are meaningless.
    is_other: bool,
}

/// Compares a received message with the recorded one. Texts may differ, and blobs must be present, but may have any contents.
fn compare(recorded: &Message, came: &Message, ids: bool) -> Comparison {
    let mut result = Comparison::default();
    let (expected, got) = (recorded.payload.message_type(), came.payload.message_type());
    if expected != got {
        let said: Vec<_> = fields(&came.payload).iter().map(Field::to_string).collect();
        let said = match said.is_empty() {
            true => String::new(),
            false => format!(" ({})", said.join(", ")),
        };
        result
            .differences
            .push(format!("expected {expected}, got {got}{said}"));
        result.is_other = true;
    }
    if ids {
        for (name, expected, got) in [
            ("message_id", recorded.message_id, came.message_id),
            (
                "correlation_id",
                recorded.correlation_id,
                came.correlation_id,
            ),
        ] {
            if expected != got {
                result
                    .differences
                    .push(format!("{name}: expected {expected}, got {got}"));
            }
        }
    }
    if !result.is_other {
        for (expected, got) in std::iter::zip(fields(&recorded.payload), fields(&came.payload)) {
            result.field(&expected, &got);
        }
    }
    result
}

impl Comparison {
    fn field(&mut self, expected: &Field, got: &Field) {
        let differs = || {
            format!(
                "{}: expected {}, got {}",
                got.name, expected.value, got.value
            )
        };
        match (&expected.value, &got.value) {
            (Value::Blob(expected), Value::Blob(got)) => {
                if expected.is_empty() != got.is_empty() {
                    self.differences.push(differs());
                }
            }
            (Value::Text(expected), Value::Text(got)) => {
                if expected != got {
                    self.notes.push(differs());
                }
            }
            (expected, got) => {
                if expected != got {
                    self.differences.push(differs());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::control::{ErrorResponse, InitStorage, Payload, StorageDetails};

    use super::*;

    fn message(payload: Payload) -> Message {
        Message {
            message_id: 1,
            correlation_id: 2,
            payload,
        }
    }

    #[test]
    fn every_field_that_differs_is_named() {
        let details = |total_size, block_size| {
            message(Payload::QueryStorageResponse(StorageDetails {
                total_size,
                block_size,
            }))
        };
        let mut came = details(1024, 512);
        came.correlation_id = 9;
        let found = compare(&details(2048, 512), &came, true);
        assert_eq!(
            found.differences,
            [
                "correlation_id: expected 2, got 9",
                "total_size: expected 2048, got 1024"
            ]
        );
        assert!(!found.is_other);
        let found = compare(&details(1024, 512), &came, false);
        assert_eq!(found, Comparison::default());
    }

    #[test]
    fn blobs_are_required_and_texts_may_differ() {
        let init = |blob: &'static [u8]| {
            message(Payload::InitStorageRequest(InitStorage {
                transaction_count: 1,
                core_count: 1,
                mmap_export_blob: blob.into(),
            }))
        };
        assert_eq!(
            compare(&init(b"one"), &init(b"another"), true),
            Comparison::default()
        );
        let found = compare(&init(b"one"), &init(b""), true);
        assert_eq!(
            found.differences,
            ["mmap_export_blob: expected 3 bytes 6f6e65, got 0 bytes"]
        );
        let error = |text: &str| {
            message(Payload::ErrorResponse(ErrorResponse {
                error_code: 6,
                message: text.to_owned(),
            }))
        };
        let found = compare(&error("no"), &error("never"), true);
        assert!(found.differences.is_empty() && found.notes.len() == 1);
    }

    #[test]
    fn difference_of_type_shows_the_fields() {
        let error = Payload::ErrorResponse(ErrorResponse {
            error_code: 18,
            message: "busy".to_owned(),
        });
        let found = compare(
            &message(Payload::StartStorageResponse),
            &message(error),
            true,
        );
        assert!(found.is_other);
        let [difference] = &found.differences[..] else {
            panic!("{:?}", found.differences);
        };
        for value in ["start_storage_response", "error_response", "18", "\"busy\""] {
            assert!(difference.contains(value), "{difference}");
        }
    }
}
