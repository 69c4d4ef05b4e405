//! The control state machine of the zero copy service, without I/O and without a clock.
//!
//! Requests of the initiator ("client") are forwarded to the storage target under message ids of the
//! service's own, with the work in between that the service has to do itself. Events go in, each with
//! the time; actions come out of [`Session::next_action`].

mod action;
mod connections;
mod progress;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use doca::ErrorCode;
use role_common::Failure;
use role_common::control::ChannelEvent;
use role_common::session::{MessageIds, expect_response, unexpected};
use wire::control::{InitStorage, Message, MessageType, Payload, RdmaConnectionDetails};

use connections::Connections;
use progress::{Doing, Phase, Step};

pub use action::{Action, Job, Outcome};

/// Most transactions per core that an initiator may ask for. The service and the target use twice as
/// many, so that an initiator that is ahead of a completion here still finds a free one.
pub const MAX_TRANSACTIONS: u32 = 1 << 15;

/// One session between one initiator and one target.
#[derive(Debug)]
pub struct Session {
    cpu_count: u32,
    timeout: Duration,
    phase: Phase,
    step: Step,
    deadline: Option<Instant>,
    /// The initiator's request at hand.
    request: Option<Message>,
    ids: MessageIds,
    connections: Connections,
    core_count: u32,
    transaction_count: u32,
    /// The initiator's consumers, in the order of their creation.
    consumers: Vec<u32>,
    actions: VecDeque<Action>,
}

impl Session {
    /// A session at its beginning, with at most `cpu_count` workers, that waits at most `timeout`
    /// for whatever the initiator or the target owes.
    #[must_use]
    pub fn new(cpu_count: u32, timeout: Duration) -> Self {
        Self {
            cpu_count,
            timeout,
            phase: Phase::Query,
            step: Step::Request,
            deadline: None,
            request: None,
            ids: MessageIds::default(),
            connections: Connections::default(),
            core_count: 0,
            transaction_count: 0,
            consumers: Vec::new(),
            actions: VecDeque::new(),
        }
    }

    /// What to do next. Ask again until there is nothing.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`timed_out`](Self::timed_out), unless something happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// What the session waits for, in words.
    #[must_use]
    pub fn waiting_for(&self) -> String {
        match self.step {
            Step::Request => format!("the {} of the initiator", self.phase.request()),
            Step::Storage { expected, .. } => format!("the {expected} of the storage target"),
            Step::Consumers => {
                format!(
                    "{} consumers of the initiator, {} are there",
                    self.core_count,
                    self.consumers.len()
                )
            }
            Step::Expiry => format!(
                "{} consumers of the initiator to expire",
                self.consumers.len()
            ),
            Step::Job(_) => "its workers".to_owned(),
            Step::Ended => "nothing".to_owned(),
        }
    }

    /// Something happened on the channel to the initiator.
    pub fn client_event(&mut self, now: Instant, event: ChannelEvent) {
        match event {
            ChannelEvent::Message(request) => self.client_request(now, request),
            ChannelEvent::ConsumerAdded(id) => {
                self.consumers.push(id);
                self.check_consumers(now);
            }
            ChannelEvent::ConsumerExpired(id) => {
                self.consumers.retain(|&consumer| consumer != id);
                self.check_consumers(now);
            }
            ChannelEvent::Closed => {
                // Nobody is left to be told.
                self.request = None;
                let waiting = self.waiting_for();
                let message = format!("the initiator left while the service waited for {waiting}");
                self.fail(Failure::new(ErrorCode::CONNECTION_RESET, message));
            }
            ChannelEvent::Connected => {}
        }
    }

    /// Something happened on the channel to the target.
    pub fn storage_event(&mut self, now: Instant, event: ChannelEvent) {
        match (event, self.step) {
            (_, Step::Ended) => {}
            (
                ChannelEvent::Message(response),
                Step::Storage {
                    message_id,
                    expected,
                },
            ) => match expect_response(response, message_id, expected) {
                Ok(payload) => self.storage_response(now, payload),
                Err(failure) => self.fail(failure.context("storage target")),
            },
            // A target that is busy with another service says so without being asked.
            (
                ChannelEvent::Message(Message {
                    payload: Payload::ErrorResponse(error),
                    ..
                }),
                _,
            ) => {
                self.fail(Failure::from(error).context("storage target"));
            }
            (ChannelEvent::Message(message), _) => {
                let came = message.payload.message_type();
                self.fail(Failure::unexpected(format!(
                    "storage target: unexpected {came}, nothing was asked"
                )));
            }
            (ChannelEvent::Closed, _) => {
                let waiting = self.waiting_for();
                let message =
                    format!("the storage target left while the service waited for {waiting}");
                self.fail(Failure::new(ErrorCode::CONNECTION_RESET, message));
            }
            (
                ChannelEvent::Connected
                | ChannelEvent::ConsumerAdded(_)
                | ChannelEvent::ConsumerExpired(_),
                _,
            ) => {}
        }
    }

    /// The job at hand is done.
    pub fn complete(&mut self, now: Instant, outcome: Result<Outcome, Failure>) {
        let Step::Job(doing) = self.step else { return };
        match (doing, outcome) {
            (Doing::ImportMemory, Ok(Outcome::Exported(mmap_export_blob))) => {
                let init = InitStorage {
                    transaction_count: self.transaction_count,
                    core_count: self.core_count,
                    mmap_export_blob,
                };
                self.ask_storage(
                    now,
                    Payload::InitStorageRequest(init),
                    MessageType::InitStorageResponse,
                );
            }
            // The target was not asked yet, and the initiator may try another memory map.
            (Doing::ImportMemory, Err(failure)) => self.refuse(failure),
            (Doing::Export, Ok(Outcome::Exported(connection_details))) => {
                let (context_index, role) = self.connections.current();
                let details = RdmaConnectionDetails {
                    context_index,
                    role,
                    connection_details,
                };
                let request = Payload::CreateRdmaConnectionRequest(details);
                self.ask_storage(now, request, MessageType::CreateRdmaConnectionResponse);
            }
            (Doing::CreateWorker, Ok(Outcome::Done)) => self.export(),
            (Doing::Connect, Ok(Outcome::Done)) => self.connected(),
            (Doing::StartWorkers, Ok(Outcome::Done)) => {
                self.answer(Payload::StartStorageResponse, Phase::Stop)
            }
            (Doing::StopWorkers, Ok(Outcome::Done)) => {
                self.answer(Payload::StopStorageResponse, Phase::Shutdown)
            }
            (Doing::DestroyWorkers, Ok(Outcome::Done)) => {
                self.answer(Payload::ShutdownResponse, Phase::Shutdown);
                self.end(Ok(()));
            }
            (_, Err(failure)) => self.fail(failure),
            (doing, Ok(outcome)) => {
                self.fail(Failure::unexpected(format!(
                    "{outcome:?} is no outcome of {doing:?}"
                )));
            }
        }
    }

    /// The deadline may have passed.
    pub fn timed_out(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.fail(Failure::timed_out(self.waiting_for(), self.timeout));
        }
    }

    /// The session cannot go on: a worker, a channel or the user ended it. An initiator that waits
    /// for an answer is told why.
    pub fn fail(&mut self, failure: Failure) {
        if self.step == Step::Ended {
            return;
        }
        if let Some(request) = self.request.take() {
            self.actions
                .push_back(Action::SendToClient(failure.response_to(&request)));
        }
        self.end(Err(failure));
    }

    fn client_request(&mut self, now: Instant, request: Message) {
        let examined = match self.step {
            Step::Ended => return,
            Step::Request => self.examine(&request),
            _ => {
                let came = request.payload.message_type();
                let busy = self.phase.request();
                Err(Failure::unexpected(format!(
                    "unexpected {came} while the {busy} is processed"
                )))
            }
        };
        if let Err(failure) = examined {
            tracing::warn!("refused: {failure}");
            self.actions
                .push_back(Action::SendToClient(failure.response_to(&request)));
            return;
        }
        let memory = match &request.payload {
            Payload::InitStorageRequest(init) => Some(init.mmap_export_blob.clone()),
            _ => None,
        };
        self.request = Some(request);
        match self.phase {
            Phase::Query => {
                self.ask_storage(
                    now,
                    Payload::QueryStorageRequest,
                    MessageType::QueryStorageResponse,
                );
            }
            Phase::Init => self.begin(
                Doing::ImportMemory,
                Job::ImportMemory(memory.unwrap_or_default()),
            ),
            Phase::Start => {
                self.ask_storage(
                    now,
                    Payload::StartStorageRequest,
                    MessageType::StartStorageResponse,
                );
            }
            Phase::Stop => self.ask_storage(
                now,
                Payload::StopStorageRequest,
                MessageType::StopStorageResponse,
            ),
            Phase::Shutdown => {
                // A consumer that expires after the target is gone is one that nobody can serve.
                self.wait(now, Step::Expiry);
                self.check_consumers(now);
            }
        }
    }

    fn examine(&mut self, request: &Message) -> Result<(), Failure> {
        if request.payload.message_type() != self.phase.request() {
            return Err(unexpected(&request.payload, self.phase.request()));
        }
        let Payload::InitStorageRequest(init) = &request.payload else {
            return Ok(());
        };
        let InitStorage {
            transaction_count,
            core_count,
            ..
        } = *init;
        if !(1..=self.cpu_count).contains(&core_count) {
            return Err(Failure::invalid(format!(
                "core count: expected 1 to {}, as many --cpu as this service has, {core_count} came",
                self.cpu_count
            )));
        }
        if !(1..=MAX_TRANSACTIONS).contains(&transaction_count) {
            return Err(Failure::invalid(format!(
                "transactions per core: expected 1 to {MAX_TRANSACTIONS}, {transaction_count} came"
            )));
        }
        self.core_count = core_count;
        self.transaction_count = transaction_count * 2;
        Ok(())
    }

    fn storage_response(&mut self, now: Instant, payload: Payload) {
        match payload {
            Payload::QueryStorageResponse(details) => {
                tracing::info!(
                    "storage of {} bytes in blocks of {}",
                    details.total_size,
                    details.block_size
                );
                self.answer(Payload::QueryStorageResponse(details), Phase::Init);
            }
            Payload::InitStorageResponse => {
                self.connections = Connections::of_workers(self.core_count);
                self.create_worker();
            }
            Payload::CreateRdmaConnectionResponse(details) => {
                let (context_index, role) = self.connections.current();
                if (details.context_index, details.role) == (context_index, role) {
                    self.begin(Doing::Connect, Job::Connect(details));
                } else {
                    self.fail(Failure::unexpected(format!(
                        "storage target: expected the {role} connection of context {context_index}, the {} \
                         connection of context {} came",
                        details.role, details.context_index
                    )));
                }
            }
            Payload::StartStorageResponse => {
                self.wait(now, Step::Consumers);
                self.check_consumers(now);
            }
            Payload::StopStorageResponse => self.begin(Doing::StopWorkers, Job::StopWorkers),
            Payload::ShutdownResponse => self.begin(Doing::DestroyWorkers, Job::DestroyWorkers),
            // `expect_response` lets through only what was asked for.
            other => self.fail(unexpected(&other, self.phase.request())),
        }
    }

    /// Goes on when the consumers of the initiator are what the session waits for.
    fn check_consumers(&mut self, now: Instant) {
        let count = self.core_count as usize;
        match self.step {
            Step::Consumers if self.consumers.len() >= count => {
                if self.consumers.len() > count {
                    tracing::warn!(
                        "the initiator has {} consumers for {count} workers",
                        self.consumers.len()
                    );
                }
                let consumers = self.consumers[..count].to_vec();
                self.begin(Doing::StartWorkers, Job::StartWorkers { consumers });
            }
            Step::Expiry if self.consumers.is_empty() => {
                self.ask_storage(now, Payload::ShutdownRequest, MessageType::ShutdownResponse);
            }
            _ => {}
        }
    }

    fn create_worker(&mut self) {
        let (index, _) = self.connections.current();
        let job = Job::CreateWorker {
            index,
            transaction_count: self.transaction_count,
        };
        self.begin(Doing::CreateWorker, job);
    }

    fn export(&mut self) {
        let (index, role) = self.connections.current();
        self.begin(Doing::Export, Job::Export { index, role });
    }

    /// One connection is there: on to the next one, which may be the first of the next worker.
    fn connected(&mut self) {
        let (last_index, _) = self.connections.current();
        match self.connections.advance() {
            None => self.answer(Payload::InitStorageResponse, Phase::Start),
            Some((index, _)) if index == last_index => self.export(),
            Some(_) => self.create_worker(),
        }
    }

    fn begin(&mut self, doing: Doing, job: Job) {
        self.step = Step::Job(doing);
        // Whoever does the job bounds it.
        self.deadline = None;
        self.actions.push_back(Action::Do(job));
    }

    fn wait(&mut self, now: Instant, step: Step) {
        self.step = step;
        self.deadline = Some(now + self.timeout);
    }

    fn ask_storage(&mut self, now: Instant, payload: Payload, expected: MessageType) {
        let correlation_id = self
            .request
            .as_ref()
            .map_or(0, |request| request.correlation_id);
        let message = self.ids.request(correlation_id, payload);
        self.wait(
            now,
            Step::Storage {
                message_id: message.message_id,
                expected,
            },
        );
        self.actions.push_back(Action::SendToStorage(message));
    }

    /// Answers the request at hand, and waits for the one that is due in the next phase.
    fn answer(&mut self, payload: Payload, next: Phase) {
        if let Some(request) = self.request.take() {
            self.actions
                .push_back(Action::SendToClient(request.response(payload)));
        }
        self.phase = next;
        self.step = Step::Request;
        self.deadline = None;
    }

    /// Answers the request at hand with an error, after which it may be repeated.
    fn refuse(&mut self, failure: Failure) {
        tracing::warn!("refused: {failure}");
        if let Some(request) = self.request.take() {
            self.actions
                .push_back(Action::SendToClient(failure.response_to(&request)));
        }
        self.step = Step::Request;
        self.deadline = None;
    }

    fn end(&mut self, result: Result<(), Failure>) {
        self.step = Step::Ended;
        self.deadline = None;
        self.actions.push_back(Action::End(result));
    }
}

#[cfg(test)]
mod tests;
