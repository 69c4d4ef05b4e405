//! The control state machine of the target, without I/O.
//!
//! A request goes in, and either its answer comes out or a job, whose outcome then makes the answer.
//! A request that is not due, or that asks for something impossible, is answered with an error
//! response, and the session stays where it was.

use bytes::Bytes;
use role_common::Failure;
use role_common::budget::InitLimits;
use role_common::membership::{QUESTION, SetRecord};
use role_common::session::unexpected;
use wire::control::{
    IdentifiedStorage, IdentityQuery, InitStorage, Message, MessageType, Payload,
    RdmaConnectionDetails, RdmaConnectionRole, RecordState, StorageDetails,
};

pub use crate::content::Geometry;

/// Returns `true` for the requests that begin a session: the query in both forms.
#[must_use]
pub fn opens(request: &Payload) -> bool {
    match request {
        Payload::QueryStorageRequest => true,
        Payload::IdentifyStorageRequest(query) => SetRecord::of_request(query).is_none(),
        _ => false,
    }
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this answer.
    Answer(Message),
    /// Do this, and tell [`Session::complete`] how it went.
    Do(Job),
}

/// Something that takes more than the state machine.
#[derive(Debug, PartialEq, Eq)]
pub enum Job {
    /// Import the memory map and create a worker per core.
    CreateWorkers(InitStorage),
    /// Export an RDMA connection of a worker, and connect it to the given one. The outcome is
    /// [`Outcome::Exported`].
    Connect(RdmaConnectionDetails),
    /// Wait for the connections to be established, and start the data paths.
    StartWorkers,
    /// Stop the data paths.
    StopWorkers,
    /// Destroy the workers.
    DestroyWorkers,
    /// Keep this, from now on and beyond the end of the target.
    Keep(SetRecord),
}

/// How a job went.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to tell.
    Done,
    /// The export of the local end of a connection.
    Exported(Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Query,
    Init,
    Connect,
    Start,
    Stop,
    Shutdown,
    Finished,
}

/// One session with one service.
#[derive(Debug)]
pub struct Session {
    geometry: Geometry,
    /// Which storage it is, for those who ask; `None` when nobody knows.
    identity: Option<Bytes>,
    /// What it keeps of the set that it is a part of.
    record: Option<SetRecord>,
    /// Workers that can be had.
    cpu_count: u32,
    limits: InitLimits,
    phase: Phase,
    /// The request that a job is done for.
    pending: Option<Message>,
    /// Per worker, whether io_data and io_control are connected.
    connected: Vec<[bool; 2]>,
}

impl Session {
    /// A session at its beginning, about a storage with these blocks, with at most `cpu_count`
    /// workers.
    #[must_use]
    pub fn new(geometry: Geometry, cpu_count: u32) -> Self {
        Self {
            geometry,
            identity: None,
            record: None,
            cpu_count,
            limits: InitLimits::default(),
            phase: Phase::Query,
            pending: None,
            connected: Vec::new(),
        }
    }

    /// The same session, about a storage with an identity: bytes that no other has, and that this one has as long as it keeps all
    /// that was written; and with what it keeps of the set that it is a part of.
    #[must_use]
    pub fn with_identity(mut self, identity: Bytes, record: Option<SetRecord>) -> Self {
        (self.identity, self.record) = (Some(identity), record);
        self
    }

    /// The same session, with other limits than the default ones.
    #[must_use]
    pub fn with_limits(mut self, limits: InitLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Whether shutdown was answered.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Whether it is up to the service to go on, by a request and not by I/Os.
    #[must_use]
    pub fn waits_for_request(&self) -> bool {
        self.phase != Phase::Stop && !self.is_finished()
    }

    /// What the session waits for, in words.
    #[must_use]
    pub fn waiting_for(&self) -> String {
        if self.is_finished() {
            "nothing".to_owned()
        } else {
            format!("the {}", self.due())
        }
    }

    /// Takes a request of the service.
    pub fn receive(&mut self, request: Message) -> Action {
        match self.examine(&request) {
            Ok(Step::Answer(payload, next)) => {
                self.phase = next;
                Action::Answer(request.response(payload))
            }
            Ok(Step::Do(job)) => {
                self.pending = Some(request);
                Action::Do(job)
            }
            Err(failure) => {
                tracing::warn!("refused: {failure}");
                Action::Answer(failure.response_to(&request))
            }
        }
    }

    /// Takes the outcome of the job at hand, and returns the answer to the request behind it.
    ///
    /// # Panics
    ///
    /// When there is no job at hand.
    pub fn complete(&mut self, outcome: Result<Outcome, Failure>) -> Message {
        let request = self.pending.take().expect("complete() follows Action::Do");
        match outcome {
            Ok(outcome) => self.advance(&request, outcome),
            Err(failure) => {
                tracing::warn!("{} failed: {failure}", request.payload.message_type());
                failure.response_to(&request)
            }
        }
    }

    fn due(&self) -> MessageType {
        match self.phase {
            Phase::Query => MessageType::QueryStorageRequest,
            Phase::Init => MessageType::InitStorageRequest,
            Phase::Connect => MessageType::CreateRdmaConnectionRequest,
            Phase::Start => MessageType::StartStorageRequest,
            Phase::Stop => MessageType::StopStorageRequest,
            Phase::Shutdown | Phase::Finished => MessageType::ShutdownRequest,
        }
    }

    fn examine(&self, request: &Message) -> Result<Step, Failure> {
        if let Some(pending) = &self.pending {
            let (came, busy) = (
                request.payload.message_type(),
                pending.payload.message_type(),
            );
            return Err(Failure::unexpected(format!(
                "unexpected {came} while the {busy} is processed"
            )));
        }
        if self.is_finished() {
            let came = request.payload.message_type();
            return Err(Failure::unexpected(format!(
                "unexpected {came} after the end of the session"
            )));
        }
        if let Payload::IdentifyStorageRequest(query) = &request.payload
            && let Some(record) = SetRecord::of_request(query)
        {
            return self.to_keep(record);
        }
        if request.payload.message_type() != self.due() {
            return Err(unexpected(&request.payload, self.due()));
        }
        match &request.payload {
            Payload::QueryStorageRequest => {
                let details = Payload::QueryStorageResponse(self.details());
                Ok(Step::Answer(details, Phase::Init))
            }
            Payload::IdentifyStorageRequest(_) => Ok(Step::Answer(self.described(), Phase::Init)),
            Payload::InitStorageRequest(init) => {
                self.check_init(init)?;
                Ok(Step::Do(Job::CreateWorkers(init.clone())))
            }
            Payload::CreateRdmaConnectionRequest(details) => {
                self.check_connection(details)?;
                Ok(Step::Do(Job::Connect(details.clone())))
            }
            Payload::StartStorageRequest => Ok(Step::Do(Job::StartWorkers)),
            Payload::StopStorageRequest => Ok(Step::Do(Job::StopWorkers)),
            Payload::ShutdownRequest => Ok(Step::Do(Job::DestroyWorkers)),
            other => Err(unexpected(other, self.due())),
        }
    }

    fn details(&self) -> StorageDetails {
        StorageDetails {
            total_size: self.geometry.capacity(),
            block_size: self.geometry.block_size,
        }
    }

    /// The answer to who asks which storage this is.
    fn described(&self) -> Payload {
        let StorageDetails {
            total_size,
            block_size,
        } = self.details();
        let Some(identity) = &self.identity else {
            // As a target that has never heard of identities.
            return Payload::QueryStorageResponse(self.details());
        };
        let record = self.record.as_ref();
        let IdentityQuery {
            set_high,
            set_low,
            epoch,
            member,
            state,
        } = record.map_or(QUESTION, SetRecord::request);
        Payload::IdentifiedStorageResponse(IdentifiedStorage {
            total_size,
            block_size,
            set_high,
            set_low,
            epoch,
            member,
            state,
            identity: identity.clone(),
        })
    }

    /// A service that knows which storage this is, wants a record kept. It is at any time that this is right.
    fn to_keep(&self, record: SetRecord) -> Result<Step, Failure> {
        match (self.phase, record.state) {
            (Phase::Query, _) => Err(Failure::unexpected(
                "a record to keep came before the question for the one that is there",
            )),
            (_, RecordState::Clean | RecordState::InUse) if self.identity.is_some() => {
                Ok(Step::Do(Job::Keep(record)))
            }
            (_, state) => Err(Failure::invalid(format!(
                "state of a record to keep: expected clean or in_use, {state} came"
            ))),
        }
    }

    fn check_init(&self, init: &InitStorage) -> Result<(), Failure> {
        let core_count = init.core_count;
        if !(1..=self.cpu_count).contains(&core_count) {
            return Err(Failure::invalid(format!(
                "core count: expected 1 to {}, as many --cpu as this target has, {core_count} came",
                self.cpu_count
            )));
        }
        self.limits.check(init)
    }

    fn check_connection(&self, details: &RdmaConnectionDetails) -> Result<(), Failure> {
        let RdmaConnectionDetails {
            context_index,
            role,
            ..
        } = *details;
        match self.worker(context_index) {
            None => Err(Failure::invalid(format!(
                "context index: expected 0 to {}, {context_index} came",
                self.connected.len().saturating_sub(1)
            ))),
            Some(connected) if connected[slot(role)] => Err(Failure::unexpected(format!(
                "context {context_index} has its {role} connection already"
            ))),
            Some(_) => Ok(()),
        }
    }

    fn worker(&self, context_index: u32) -> Option<&[bool; 2]> {
        usize::try_from(context_index)
            .ok()
            .and_then(|index| self.connected.get(index))
    }

    fn advance(&mut self, request: &Message, outcome: Outcome) -> Message {
        let (payload, next) = match (&request.payload, outcome) {
            (Payload::InitStorageRequest(init), Outcome::Done) => {
                self.connected = vec![[false; 2]; init.core_count as usize];
                (Payload::InitStorageResponse, Phase::Connect)
            }
            (
                Payload::CreateRdmaConnectionRequest(details),
                Outcome::Exported(connection_details),
            ) => {
                self.connected[details.context_index as usize][slot(details.role)] = true;
                let all = self.connected.iter().flatten().all(|&connected| connected);
                let details = RdmaConnectionDetails {
                    connection_details,
                    ..details.clone()
                };
                let next = if all { Phase::Start } else { Phase::Connect };
                (Payload::CreateRdmaConnectionResponse(details), next)
            }
            (Payload::StartStorageRequest, Outcome::Done) => {
                (Payload::StartStorageResponse, Phase::Stop)
            }
            (Payload::StopStorageRequest, Outcome::Done) => {
                (Payload::StopStorageResponse, Phase::Shutdown)
            }
            (Payload::ShutdownRequest, Outcome::Done) => {
                (Payload::ShutdownResponse, Phase::Finished)
            }
            (Payload::IdentifyStorageRequest(query), Outcome::Done) => {
                self.record = SetRecord::of_request(query);
                return request.response(self.described());
            }
            (_, outcome) => {
                let came = request.payload.message_type();
                return Failure::unexpected(format!("{outcome:?} is no outcome of a {came}"))
                    .response_to(request);
            }
        };
        self.phase = next;
        request.response(payload)
    }
}

enum Step {
    Answer(Payload, Phase),
    Do(Job),
}

fn slot(role: RdmaConnectionRole) -> usize {
    match role {
        RdmaConnectionRole::IoData => 0,
        RdmaConnectionRole::IoControl => 1,
    }
}

#[cfg(test)]
mod tests;
