//! A lost target rejoins a running session: the steps of a session, for this target alone.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::ErrorCode;
use wire::control::{Message, MessageType, Payload, RdmaConnectionDetails, StorageDetails};

use super::Connections;
use super::storage::{Described, feature_query};
use crate::control::ChannelEvent;
use crate::failure::Failure;
use crate::protocol::{MessageIds, expect_response};
use crate::service::{Reply, WorkerCommand};

/// Requirements for a target that rejoins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Number of the target.
    pub target: usize,
    /// Its name in error messages.
    pub name: &'static str,
    /// Its storage at the start of the session.
    pub storage: StorageDetails,
    /// Query for its storage.
    pub query: Payload,
    /// Extensions of the data path used by the session (`FeatureQuery::features`).
    pub features: u32,
    /// The session's init request.
    pub init: Payload,
    /// Number of workers.
    pub core_count: u32,
}

/// Input of an attempt.
#[derive(Debug)]
pub enum RejoinEvent {
    /// An event of the channel to the target.
    Channel(ChannelEvent),
    /// Result of [`RejoinAction::Admit`]: `true` if the target has all that it had when it was lost, `false` if it
    /// must be rebuilt completely; an error if it is not a member of the set.
    Admitted(Result<bool, Failure>),
    /// A worker has replied to its command.
    CommandDone {
        /// Number of the worker.
        worker: u32,
        /// Its reply.
        reply: Result<Reply, Failure>,
    },
    /// The time of [`Rejoin::poll_timeout`] may have passed.
    Timeout,
    /// The attempt has failed.
    Failed(Failure),
}

/// Output of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub enum RejoinAction {
    /// Send this message to the target.
    Send(Message),
    /// Decide whether the target may rejoin, and report [`RejoinEvent::Admitted`].
    Admit(Described),
    /// Send this command to a worker, and report [`RejoinEvent::CommandDone`].
    Command {
        /// Number of the worker.
        worker: u32,
        /// The command.
        command: WorkerCommand,
    },
    /// The target is attached to all workers, or the attempt has failed.
    End(Result<Returned, Failure>),
}

/// A target that has rejoined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    /// Identity of its storage, if it has one.
    pub identity: Option<Bytes>,
    /// `true` if it has all that it had when it was lost, as [admitted](RejoinEvent::Admitted).
    pub has_kept: bool,
}

/// One attempt of a target to rejoin, without I/O and without a clock.
#[derive(Debug)]
pub struct Rejoin {
    place: Place,
    timeout: Duration,
    deadline: Instant,
    step: Step,
    /// Identity of its storage, if it has one.
    identity: Option<Bytes>,
    /// Extensions of the data path that it has announced.
    features: u32,
    /// As admitted.
    has_kept: bool,
    ids: MessageIds,
    connections: Connections,
    actions: VecDeque<RejoinAction>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Connection,
    /// The response of this type, to the request with this id, is outstanding.
    Answer(MessageType, u32),
    /// The admission decision is outstanding.
    Admission,
    /// The target's extensions, in the response to the request with this id, are outstanding.
    Features(u32),
    /// A worker's export of a connection is outstanding.
    Export,
    /// A worker is connecting.
    Connect,
    /// This many workers are attaching the target.
    Attach(u32),
    Ended,
}

impl Rejoin {
    /// Creates an attempt that starts with the connection to the target, and waits at most `timeout` for every step.
    #[must_use]
    pub fn new(now: Instant, place: Place, timeout: Duration) -> Self {
        Self {
            connections: Connections::of_workers(place.core_count),
            place,
            timeout,
            deadline: now + timeout,
            step: Step::Connection,
            identity: None,
            features: 0,
            has_kept: false,
            ids: MessageIds::default(),
            actions: VecDeque::new(),
        }
    }

    /// Number of the target.
    #[must_use]
    pub fn target(&self) -> usize {
        self.place.target
    }

    /// Handles an event.
    pub fn handle(&mut self, event: RejoinEvent, now: Instant) {
        match event {
            RejoinEvent::Channel(event) => self.channel_event(now, event),
            RejoinEvent::Admitted(judgement) => self.admitted(now, judgement),
            RejoinEvent::CommandDone { worker, reply } => self.command_done(now, worker, reply),
            RejoinEvent::Timeout => self.timed_out(now),
            RejoinEvent::Failed(failure) => self.fail(failure),
        }
    }

    /// Returns the next action. Call until it returns `None`.
    pub fn poll_action(&mut self) -> Option<RejoinAction> {
        self.actions.pop_front()
    }

    /// Time at which to report [`RejoinEvent::Timeout`], unless another event comes first.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        (self.step != Step::Ended).then_some(self.deadline)
    }

    fn timed_out(&mut self, now: Instant) {
        if self.deadline <= now {
            let waiting = match self.step {
                Step::Connection => "its connection".to_owned(),
                Step::Answer(expected, _) => format!("its {expected}"),
                Step::Admission => "the judgement of its superblock".to_owned(),
                Step::Features(_) => "its extensions of the data path".to_owned(),
                Step::Export | Step::Connect | Step::Attach(_) => "the workers".to_owned(),
                Step::Ended => return,
            };
            self.fail(Failure::timed_out(waiting, self.timeout));
        }
    }

    fn fail(&mut self, failure: Failure) {
        if self.step != Step::Ended {
            self.end(Err(failure.context(self.place.name)));
        }
    }

    fn channel_event(&mut self, now: Instant, event: ChannelEvent) {
        match (event, self.step) {
            (ChannelEvent::Connected, Step::Connection) => {
                self.ask(
                    now,
                    self.place.query.clone(),
                    MessageType::QueryStorageResponse,
                );
            }
            (ChannelEvent::Message(message), Step::Answer(expected, id)) => {
                match expect_response(message, id, expected) {
                    Ok(payload) => self.answered(now, payload),
                    Err(failure) => self.fail(failure),
                }
            }
            (ChannelEvent::Message(message), Step::Features(id)) => {
                match expect_response(message, id, MessageType::QueryStorageResponse) {
                    Ok(payload) => {
                        let features = Described::of_answer(payload).map_or(0, |it| it.features);
                        self.has_features(now, features);
                    }
                    Err(failure) => self.fail(failure),
                }
            }
            (ChannelEvent::Message(message), _) => {
                let came = message.payload.message_type();
                self.fail(Failure::unexpected(format!(
                    "unexpected {came}, nothing was asked"
                )));
            }
            (ChannelEvent::Closed, _) => {
                let message = "it disconnected before it had rejoined";
                self.fail(Failure::new(ErrorCode::CONNECTION_RESET, message));
            }
            _ => {}
        }
    }

    fn answered(&mut self, now: Instant, payload: Payload) {
        match payload {
            answer @ (Payload::QueryStorageResponse(_)
            | Payload::IdentifiedStorageResponse(_)
            | Payload::AnnouncedStorageResponse(_)) => {
                let Some(described) = Described::of_answer(answer) else {
                    return;
                };
                let (expected, storage) = (&self.place.storage, &described.storage);
                if storage != expected {
                    let message = format!(
                        "expected {} bytes in blocks of {}, as before, got {} in blocks of {}",
                        expected.total_size,
                        expected.block_size,
                        storage.total_size,
                        storage.block_size
                    );
                    return self.fail(Failure::new(ErrorCode::BAD_STATE, message));
                }
                self.identity = described.identity.clone();
                self.features = described.features;
                self.step = Step::Admission;
                self.actions.push_back(RejoinAction::Admit(described));
            }
            Payload::InitStorageResponse => self.export(now),
            Payload::CreateRdmaConnectionResponse(details) => {
                let expected = self.connections.current();
                if (details.context_index, details.role) != expected {
                    let (index, role) = expected;
                    return self.fail(Failure::unexpected(format!(
                        "expected the {role} connection of context {index}, got the {} connection of context {}",
                        details.role, details.context_index
                    )));
                }
                let command = WorkerCommand::Connect {
                    target: self.place.target,
                    role: details.role,
                    details: details.connection_details,
                };
                self.command(now, Step::Connect, details.context_index, command);
            }
            Payload::StartStorageResponse => {
                let workers = self.place.core_count;
                for worker in 0..workers {
                    let target = self.place.target;
                    self.command(
                        now,
                        Step::Attach(workers),
                        worker,
                        WorkerCommand::Attach { target },
                    );
                }
            }
            other => {
                let came = other.message_type();
                self.fail(Failure::unexpected(format!("unexpected {came}")));
            }
        }
    }

    fn admitted(&mut self, now: Instant, judgement: Result<bool, Failure>) {
        match (self.step, judgement) {
            (Step::Admission, Ok(has_kept)) => {
                self.has_kept = has_kept;
                let wanted = self.place.features;
                if wanted & !self.features != 0 && self.identity.is_some() {
                    // A target with an identity is queried for its extensions separately.
                    let id = self.send(now, feature_query(wanted));
                    self.step = Step::Features(id);
                } else {
                    self.has_features(now, self.features);
                }
            }
            (Step::Admission, Err(failure)) => self.fail(failure),
            _ => {}
        }
    }

    /// Handles the extensions announced by the target.
    fn has_features(&mut self, now: Instant, features: u32) {
        let missing = self.place.features & !features;
        if missing != 0 {
            let message = format!(
                "it lacks extensions of the data path that this session uses ({missing:#x}; 0x1 is flush, which targets with their blocks in \
                 memory do not have); it can take part in a new session"
            );
            return self.fail(Failure::new(ErrorCode::NOT_SUPPORTED, message));
        }
        let init = self.place.init.clone();
        self.ask(now, init, MessageType::InitStorageResponse);
    }

    fn command_done(&mut self, now: Instant, worker: u32, reply: Result<Reply, Failure>) {
        let reply = match reply {
            Ok(reply) => reply,
            Err(failure) => return self.fail(failure.context(format_args!("worker {worker}"))),
        };
        match (self.step, reply) {
            (Step::Export, Reply::Exported(export)) => {
                let (context_index, role) = self.connections.current();
                let request = Payload::CreateRdmaConnectionRequest(RdmaConnectionDetails {
                    context_index,
                    role,
                    connection_details: export.into(),
                });
                self.ask(now, request, MessageType::CreateRdmaConnectionResponse);
            }
            (Step::Connect, Reply::Done) => match self.connections.advance() {
                Some(_) => self.export(now),
                None => {
                    self.ask(
                        now,
                        Payload::StartStorageRequest,
                        MessageType::StartStorageResponse,
                    );
                }
            },
            (Step::Attach(1), Reply::Done) => {
                let (identity, has_kept) = (self.identity.take(), self.has_kept);
                self.end(Ok(Returned { identity, has_kept }));
            }
            (Step::Attach(left), Reply::Done) => self.step = Step::Attach(left - 1),
            (Step::Ended, _) => {}
            (_, reply) => {
                self.fail(Failure::unexpected(format!(
                    "worker {worker} gave another reply: {reply:?}"
                )));
            }
        }
    }

    fn export(&mut self, now: Instant) {
        let (worker, role) = self.connections.current();
        let target = self.place.target;
        self.command(
            now,
            Step::Export,
            worker,
            WorkerCommand::Export { target, role },
        );
    }

    fn command(&mut self, now: Instant, step: Step, worker: u32, command: WorkerCommand) {
        self.step = step;
        self.deadline = now + self.timeout;
        self.actions
            .push_back(RejoinAction::Command { worker, command });
    }

    fn ask(&mut self, now: Instant, payload: Payload, expected: MessageType) {
        let id = self.send(now, payload);
        self.step = Step::Answer(expected, id);
    }

    /// Sends a request, and returns its id.
    fn send(&mut self, now: Instant, payload: Payload) -> u32 {
        let message = self.ids.request(0, payload);
        let id = message.message_id;
        self.deadline = now + self.timeout;
        self.actions.push_back(RejoinAction::Send(message));
        id
    }

    fn end(&mut self, result: Result<Returned, Failure>) {
        self.step = Step::Ended;
        self.actions.push_back(RejoinAction::End(result));
    }
}

#[cfg(test)]
mod tests;
