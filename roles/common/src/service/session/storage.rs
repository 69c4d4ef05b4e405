//! The targets' side of a session: requests to them and their responses.

use std::time::Instant;

use bytes::Bytes;
use doca::ErrorCode;
use wire::control::{
    AnnouncedStorage, FeatureQuery, Message, MessageType, Payload, RdmaConnectionDetails,
    StorageDetails,
};

use super::connections::Connections;
use super::progress::{Doing, Phase, Step};
use super::{Action, Job, Layout, Session};
use crate::control::ChannelEvent;
use crate::failure::Failure;
use crate::superblock::{QUESTION, Superblock};

/// Description of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its storage.
    pub storage: StorageDetails,
    /// Identity of the storage. `None` if it has none; then it has no superblock, either.
    pub identity: Option<Bytes>,
    /// Its superblock, if it is a member of a set.
    pub superblock: Option<Superblock>,
    /// Extensions of the data path announced by the target, of those it was asked for.
    pub features: u32,
}

impl Described {
    /// Extracts the description from the response to a query.
    pub(super) fn of_answer(answer: Payload) -> Option<Self> {
        match answer {
            Payload::QueryStorageResponse(storage) => Some(Self {
                storage,
                identity: None,
                superblock: None,
                features: 0,
            }),
            Payload::AnnouncedStorageResponse(answer) => Some(Self {
                storage: StorageDetails {
                    total_size: answer.total_size,
                    block_size: answer.block_size,
                },
                identity: None,
                superblock: None,
                features: answer.features,
            }),
            Payload::IdentifiedStorageResponse(answer) => Some(Self {
                storage: StorageDetails {
                    total_size: answer.total_size,
                    block_size: answer.block_size,
                },
                superblock: Superblock::of_answer(&answer),
                identity: Some(answer.identity),
                features: 0,
            }),
            _ => None,
        }
    }
}

/// Query for extensions of the data path.
pub(super) fn feature_query(features: u32) -> Payload {
    Payload::AnnounceStorageRequest(FeatureQuery { features })
}

impl<L: Layout> Session<L> {
    pub(super) fn storage_event(&mut self, now: Instant, target: usize, event: ChannelEvent) {
        let name = L::TARGETS[target];
        match (event, self.step) {
            (_, Step::Ended) => {}
            _ if self.without[target] => {}
            (ChannelEvent::Message(response), Step::Storage) if self.inquiry.is_pending(target) => {
                match self.inquiry.answer(target, response) {
                    Ok(()) => self.storage_answered(now),
                    Err(failure) => self.fail(failure.context(name)),
                }
            }
            (ChannelEvent::Message(message), _) => self.fail(Self::nonsense(target, message)),
            // After its shutdown response, a target may disconnect before the service has finished.
            (ChannelEvent::Closed, Step::Storage | Step::Job(Doing::DestroyWorkers))
                if self.phase == Phase::Shutdown && !self.inquiry.is_pending(target) => {}
            (ChannelEvent::Closed, _) => {
                let waiting = self.waiting_for();
                let message = format!("the {name} left while the service waited for {waiting}");
                self.fail(Failure::new(ErrorCode::CONNECTION_RESET, message));
            }
            (ChannelEvent::Connected, _) => self.connected(now, target),
            (ChannelEvent::ConsumerAdded(_) | ChannelEvent::ConsumerExpired(_), _) => {}
        }
    }

    /// Returns the failure in an unsolicited message of this target; `None` if the message is expected.
    ///
    /// # Panics
    ///
    /// If there is no such target.
    #[must_use]
    pub fn unasked(&self, target: usize, message: &Message) -> Option<Failure> {
        let is_asked = self.step == Step::Storage && self.inquiry.is_pending(target);
        (!is_asked).then(|| Self::nonsense(target, message.clone()))
    }

    /// A target that is busy with another service reports that unsolicited, and so does one that has received an
    /// invalid message.
    fn nonsense(target: usize, message: Message) -> Failure {
        let name = L::TARGETS[target];
        match message.payload {
            Payload::ErrorResponse(error) => Failure::from(error).context(name),
            other => {
                let came = other.message_type();
                Failure::unexpected(format!("{name}: unexpected {came}, nothing was asked"))
            }
        }
    }

    /// Continues when the responses of all targets have arrived.
    pub(super) fn storage_answered(&mut self, now: Instant) {
        let Some((answered, answers)) = self.inquiry.take() else {
            return;
        };
        match answered {
            MessageType::QueryStorageResponse => self.described(now, answers),
            MessageType::InitStorageResponse => {
                self.connections = Connections::of_workers(self.core_count);
                self.create_worker();
            }
            MessageType::CreateRdmaConnectionResponse => self.connections_created(now, answers),
            MessageType::StartStorageResponse => {
                self.wait(now, Step::Consumers);
                self.check_consumers(now);
            }
            MessageType::StopStorageResponse => {
                self.begin(Doing::StopWorkers, Job::StopWorkers);
            }
            MessageType::ShutdownResponse => {
                self.begin(Doing::DestroyWorkers, Job::DestroyWorkers);
            }
            other => self.fail(Failure::unexpected(format!(
                "{other} answers no request to a storage target"
            ))),
        }
    }

    /// Query for a target's storage.
    pub(super) fn query(&self) -> Payload {
        if self.identifies {
            Payload::IdentifyStorageRequest(QUESTION)
        } else if self.wanted_features != 0 {
            self.feature_query()
        } else {
            Payload::QueryStorageRequest
        }
    }

    fn feature_query(&self) -> Payload {
        feature_query(self.wanted_features)
    }

    /// Queries the targets that have an identity for their extensions of the data path. One without is a target of the
    /// reference, which has no extensions.
    fn ask_for_features(&mut self, now: Instant) {
        self.has_asked_features = true;
        self.inquiry.begin(MessageType::QueryStorageResponse);
        for target in 0..L::TARGETS.len() {
            let has_identity = self.targets[target]
                .as_ref()
                .is_some_and(|target| target.identity.is_some());
            if has_identity && !self.without[target] {
                let query = self.feature_query();
                self.ask(target, query);
            } else {
                self.inquiry.skip();
            }
        }
        self.wait(now, Step::Storage);
        self.storage_answered(now);
    }

    /// Handles the targets' descriptions.
    fn described(&mut self, now: Instant, answers: Vec<Option<Payload>>) {
        let described = answers
            .into_iter()
            .map(|answer| answer.and_then(Described::of_answer));
        if self.has_asked_features {
            for (target, answer) in self.targets.iter_mut().zip(described) {
                if let (Some(target), Some(answer)) = (target, answer) {
                    target.features = answer.features;
                }
            }
        } else {
            self.targets = described.collect();
            if self.identifies && self.wanted_features != 0 {
                return self.ask_for_features(now);
            }
        }
        for (name, target) in L::TARGETS.iter().zip(&self.targets) {
            match target {
                Some(Described { storage, .. }) => tracing::info!(
                    "{name}: {} bytes in blocks of {}",
                    storage.total_size,
                    storage.block_size
                ),
                None => tracing::info!("{name}: missing"),
            }
        }
        let storage: Vec<_> = (0..self.targets.len())
            .filter_map(|target| self.storage_of(target).cloned())
            .collect();
        // A missing target must support the session's extensions to rejoin.
        let present = self.targets.iter().flatten();
        let features: Vec<_> = present.map(|target| target.features).collect();
        self.features = self.wanted_features & self.layout.features(&features);
        match self.layout.present(&storage) {
            Ok(StorageDetails {
                total_size,
                block_size,
            }) if self.features != 0 => {
                let answer = Payload::AnnouncedStorageResponse(AnnouncedStorage {
                    total_size,
                    block_size,
                    features: self.features,
                });
                self.answer(answer, Phase::Init);
            }
            Ok(details) => self.answer(Payload::QueryStorageResponse(details), Phase::Init),
            Err(failure) => self.fail(failure),
        }
    }

    /// Every target has created its side of the current connections.
    fn connections_created(&mut self, now: Instant, answers: Vec<Option<Payload>>) {
        let (context_index, role) = self.connections.current();
        self.imports.clear();
        for (target, answer) in answers.into_iter().enumerate() {
            let Some(Payload::CreateRdmaConnectionResponse(details)) = answer else {
                continue;
            };
            if (details.context_index, details.role) != (context_index, role) {
                self.fail(Failure::unexpected(format!(
                    "{}: expected the {role} connection of context {context_index}, got the {} connection of context {}",
                    L::TARGETS[target],
                    details.role,
                    details.context_index
                )));
                return;
            }
            self.imports.push_back((target, details));
        }
        self.connect(now);
    }

    /// Starts the current connection.
    pub(super) fn begin_connection(&mut self, now: Instant) {
        self.exports.clear();
        self.export(now);
    }

    /// Exports the current connection for the next target that is present, or asks all targets for their exports.
    pub(super) fn export(&mut self, now: Instant) {
        while self.exports.len() < L::TARGETS.len() {
            let target = self.exports.len();
            if self.without[target] {
                self.exports.push(None);
                continue;
            }
            let (index, role) = self.connections.current();
            let job = Job::Export {
                index,
                target,
                role,
            };
            return self.begin(Doing::Export, job);
        }
        self.ask_for_connections(now);
    }

    /// Asks every target for its export of the current connection.
    fn ask_for_connections(&mut self, now: Instant) {
        let (context_index, role) = self.connections.current();
        self.inquiry
            .begin(MessageType::CreateRdmaConnectionResponse);
        for (target, export) in std::mem::take(&mut self.exports).into_iter().enumerate() {
            match export {
                Some(connection_details) => {
                    let request = Payload::CreateRdmaConnectionRequest(RdmaConnectionDetails {
                        context_index,
                        role,
                        connection_details,
                    });
                    self.ask(target, request);
                }
                None => self.inquiry.skip(),
            }
        }
        self.wait(now, Step::Storage);
        self.storage_answered(now);
    }

    /// Connects to the next target's export or, if there is none left, continues with the next connection, which may
    /// be the next worker's first.
    pub(super) fn connect(&mut self, now: Instant) {
        if let Some((target, details)) = self.imports.pop_front() {
            self.begin(Doing::Connect, Job::Connect { target, details });
            return;
        }
        let (last_index, _) = self.connections.current();
        match self.connections.advance() {
            None => self.answer(Payload::InitStorageResponse, Phase::Start),
            Some((index, _)) if index == last_index => self.begin_connection(now),
            Some(_) => self.create_worker(),
        }
    }

    /// Sends a request to every target that is present.
    pub(super) fn ask_all(&mut self, now: Instant, request: &Payload, expected: MessageType) {
        self.inquiry.begin(expected);
        for target in 0..L::TARGETS.len() {
            if self.without[target] {
                self.inquiry.skip();
            } else {
                self.ask(target, request.clone());
            }
        }
        self.wait(now, Step::Storage);
        self.storage_answered(now);
    }

    fn ask(&mut self, target: usize, payload: Payload) {
        let correlation_id = self
            .request
            .as_ref()
            .map_or(0, |request| request.correlation_id);
        let message = self.ids.request(correlation_id, payload);
        self.inquiry.ask(message.message_id);
        self.actions
            .push_back(Action::SendToStorage { target, message });
    }
}
