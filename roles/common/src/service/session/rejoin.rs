//! A target that was lost comes back while its session goes on: the steps of a session, for this target alone.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::ErrorCode;
use wire::control::{
    InitStorage, Message, MessageType, Payload, RdmaConnectionDetails, StorageDetails,
};

use super::connections::Connections;
use super::storage::Described;
use crate::control::ChannelEvent;
use crate::failure::Failure;
use crate::service::command::{Errand, Reply};
use crate::session::{MessageIds, expect_response};

/// What a target that comes back has to fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Number of the target.
    pub target: usize,
    /// What errors call it.
    pub name: &'static str,
    /// What it said of its storage when the session began.
    pub storage: StorageDetails,
    /// Which storage it was, if it knew.
    pub identity: Option<Bytes>,
    /// What it is asked for its storage with.
    pub query: Payload,
    /// What all targets of the session were told.
    pub init: InitStorage,
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub enum RejoinAction {
    /// Send this to the target.
    Send(Message),
    /// Ask this of a worker, and tell [`Rejoin::errand_done`].
    Ask {
        /// Number of the worker.
        worker: u32,
        /// What it is to do.
        errand: Errand,
    },
    /// The target takes I/Os of all workers, or will not come back this time.
    End(Result<Returned, Failure>),
}

/// What has come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    /// Which storage it is, if it knows.
    pub identity: Option<Bytes>,
    /// Whether it is the one that was lost, with all that this had. False also when nobody knows.
    pub has_kept: bool,
}

/// One attempt to bring a target back, without I/O and without a clock.
#[derive(Debug)]
pub struct Rejoin {
    place: Place,
    timeout: Duration,
    deadline: Instant,
    step: Step,
    /// Which storage has come back, if it knows.
    identity: Option<Bytes>,
    ids: MessageIds,
    connections: Connections,
    actions: VecDeque<RejoinAction>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Connection,
    /// The target owes this answer to the request of this id.
    Answer(MessageType, u32),
    /// A worker owes its end of a connection.
    Export,
    /// A worker connects.
    Connect,
    /// So many workers attach the target.
    Attach(u32),
    Ended,
}

impl Rejoin {
    /// An attempt that begins with the connection to the target, and waits at most `timeout` for every step.
    #[must_use]
    pub fn new(now: Instant, place: Place, timeout: Duration) -> Self {
        Self {
            connections: Connections::of_workers(place.init.core_count),
            place,
            timeout,
            deadline: now + timeout,
            step: Step::Connection,
            identity: None,
            ids: MessageIds::default(),
            actions: VecDeque::new(),
        }
    }

    /// Number of the target.
    #[must_use]
    pub fn target(&self) -> usize {
        self.place.target
    }

    /// What to do next. Ask again until there is nothing.
    pub fn next_action(&mut self) -> Option<RejoinAction> {
        self.actions.pop_front()
    }

    /// When to call [`timed_out`](Self::timed_out), unless something happens before.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The deadline may have passed.
    pub fn timed_out(&mut self, now: Instant) {
        if self.deadline <= now {
            let waiting = match self.step {
                Step::Connection => "its connection".to_owned(),
                Step::Answer(expected, _) => format!("its {expected}"),
                Step::Export | Step::Connect | Step::Attach(_) => "the workers".to_owned(),
                Step::Ended => return,
            };
            self.fail(Failure::timed_out(waiting, self.timeout));
        }
    }

    /// It will not come back this time.
    pub fn fail(&mut self, failure: Failure) {
        if self.step != Step::Ended {
            self.end(Err(failure.context(self.place.name)));
        }
    }

    /// Something happened on the channel to the target.
    pub fn channel_event(&mut self, now: Instant, event: ChannelEvent) {
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
            (ChannelEvent::Message(message), _) => {
                let came = message.payload.message_type();
                self.fail(Failure::unexpected(format!(
                    "unexpected {came}, nothing was asked"
                )));
            }
            (ChannelEvent::Closed, _) => {
                let message = "it left while it was to come back";
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
                let Some(Described {
                    storage, identity, ..
                }) = Described::of_answer(answer)
                else {
                    return;
                };
                self.identity = identity;
                let expected = &self.place.storage;
                if storage != *expected {
                    let message = format!(
                        "expected {} bytes in blocks of {}, as before, {} in blocks of {} came",
                        expected.total_size,
                        expected.block_size,
                        storage.total_size,
                        storage.block_size
                    );
                    return self.fail(Failure::new(ErrorCode::BAD_STATE, message));
                }
                let init = Payload::InitStorageRequest(self.place.init.clone());
                self.ask(now, init, MessageType::InitStorageResponse);
            }
            Payload::InitStorageResponse => self.export(now),
            Payload::CreateRdmaConnectionResponse(details) => {
                let expected = self.connections.current();
                if (details.context_index, details.role) != expected {
                    let (index, role) = expected;
                    return self.fail(Failure::unexpected(format!(
                        "expected the {role} connection of context {index}, the {} connection of context {} came",
                        details.role, details.context_index
                    )));
                }
                let errand = Errand::Connect {
                    target: self.place.target,
                    role: details.role,
                    details: details.connection_details,
                };
                self.errand(now, Step::Connect, details.context_index, errand);
            }
            Payload::StartStorageResponse => {
                let workers = self.place.init.core_count;
                for worker in 0..workers {
                    let target = self.place.target;
                    self.errand(
                        now,
                        Step::Attach(workers),
                        worker,
                        Errand::Attach { target },
                    );
                }
            }
            other => {
                let came = other.message_type();
                self.fail(Failure::unexpected(format!("unexpected {came}")));
            }
        }
    }

    /// A worker has done what it was asked.
    pub fn errand_done(&mut self, now: Instant, worker: u32, reply: Result<Reply, Failure>) {
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
                let identity = self.identity.take();
                let has_kept = identity.is_some() && identity == self.place.identity;
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
        self.errand(now, Step::Export, worker, Errand::Export { target, role });
    }

    fn errand(&mut self, now: Instant, step: Step, worker: u32, errand: Errand) {
        self.step = step;
        self.deadline = now + self.timeout;
        self.actions.push_back(RejoinAction::Ask { worker, errand });
    }

    fn ask(&mut self, now: Instant, payload: Payload, expected: MessageType) {
        let message = self.ids.request(0, payload);
        self.step = Step::Answer(expected, message.message_id);
        self.deadline = now + self.timeout;
        self.actions.push_back(RejoinAction::Send(message));
    }

    fn end(&mut self, result: Result<Returned, Failure>) {
        self.step = Step::Ended;
        self.actions.push_back(RejoinAction::End(result));
    }
}

#[cfg(test)]
mod tests;
