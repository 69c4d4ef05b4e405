//! The targets' side of a session: what they are asked and what they answer.

use std::time::Instant;

use bytes::Bytes;
use doca::ErrorCode;
use wire::control::{
    AnnouncedStorage, FeatureQuery, Message, MessageType, Payload, RdmaConnectionDetails,
    StorageDetails,
};

use super::connections::Connections;
use super::progress::{Doing, Phase, Step};
use super::{Action, Job, Layout, Session, loss};
use crate::control::ChannelEvent;
use crate::failure::Failure;
use crate::membership::{QUESTION, SetRecord};
use crate::session::unexpected;

/// What a target says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its storage.
    pub storage: StorageDetails,
    /// Which storage it is. `None` when it does not know; then it keeps no record, either.
    pub identity: Option<Bytes>,
    /// What it keeps of the set that it is a part of.
    pub record: Option<SetRecord>,
    /// Extensions of the data path that it has announced, of those that it was asked for.
    pub features: u32,
}

impl Described {
    /// What an answer to a query says.
    pub(super) fn of_answer(answer: Payload) -> Option<Self> {
        match answer {
            Payload::QueryStorageResponse(storage) => Some(Self {
                storage,
                identity: None,
                record: None,
                features: 0,
            }),
            Payload::AnnouncedStorageResponse(answer) => Some(Self {
                storage: StorageDetails {
                    total_size: answer.total_size,
                    block_size: answer.block_size,
                },
                identity: None,
                record: None,
                features: answer.features,
            }),
            Payload::IdentifiedStorageResponse(answer) => Some(Self {
                storage: StorageDetails {
                    total_size: answer.total_size,
                    block_size: answer.block_size,
                },
                record: SetRecord::of_answer(&answer),
                identity: Some(answer.identity),
                features: 0,
            }),
            _ => None,
        }
    }
}

impl<L: Layout> Session<L> {
    /// Something happened on the channel to the target of this number.
    ///
    /// # Panics
    ///
    /// There is no such target.
    pub fn storage_event(&mut self, now: Instant, target: usize, event: ChannelEvent) {
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
            // A target that has answered to its shutdown may leave before the service is done.
            (ChannelEvent::Closed, Step::Storage | Step::Job(Doing::DestroyWorkers))
                if self.phase == Phase::Shutdown && !self.inquiry.is_pending(target) => {}
            (ChannelEvent::Closed, _) => {
                let waiting = self.waiting_for();
                let message = format!("the {name} left while the service waited for {waiting}");
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

    /// What is wrong with a message of this target that nobody has asked for. `None` when it is one that is waited for.
    ///
    /// # Panics
    ///
    /// There is no such target.
    #[must_use]
    pub fn unasked(&self, target: usize, message: &Message) -> Option<Failure> {
        let is_asked = self.step == Step::Storage && self.inquiry.is_pending(target);
        (!is_asked).then(|| Self::nonsense(target, message.clone()))
    }

    /// A target that is busy with another service says so without being asked; so does one that was told what it does not
    /// understand.
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

    /// Goes on when the answers of all targets are there.
    pub(super) fn storage_answered(&mut self, now: Instant) {
        let Some(answers) = self.inquiry.take() else {
            return;
        };
        // All answers are of the type that was asked for, which is one for all targets.
        match answers.first() {
            Some(
                Payload::QueryStorageResponse(_)
                | Payload::IdentifiedStorageResponse(_)
                | Payload::AnnouncedStorageResponse(_),
            ) => self.described(now, answers),
            Some(Payload::InitStorageResponse) => {
                self.connections = Connections::of_workers(self.core_count);
                self.create_worker();
            }
            Some(Payload::CreateRdmaConnectionResponse(_)) => self.connections_created(answers),
            Some(Payload::StartStorageResponse) => {
                self.wait(now, Step::Consumers);
                self.check_consumers(now);
            }
            Some(Payload::StopStorageResponse) => {
                self.begin(Doing::StopWorkers, Job::StopWorkers);
            }
            Some(Payload::ShutdownResponse) => {
                self.begin(Doing::DestroyWorkers, Job::DestroyWorkers);
            }
            Some(other) => {
                let failure = unexpected(other, self.phase.request());
                self.fail(failure);
            }
            None => {}
        }
    }

    /// What targets are asked for their storage with.
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
        Payload::AnnounceStorageRequest(FeatureQuery {
            features: self.wanted_features,
        })
    }

    /// Asks the targets that have said which storages they are for their extensions of the data path; a target that has not is one of the
    /// reference, which has none.
    fn ask_for_features(&mut self, now: Instant) {
        self.has_asked_features = true;
        self.inquiry.clear();
        for target in 0..L::TARGETS.len() {
            let Described {
                storage, identity, ..
            } = &self.targets[target];
            if identity.is_some() {
                let query = self.feature_query();
                self.ask(target, query, MessageType::QueryStorageResponse);
            } else {
                let answer = Payload::QueryStorageResponse(storage.clone());
                self.inquiry.skip(answer);
            }
        }
        self.wait(now, Step::Storage);
        self.storage_answered(now);
    }

    /// The targets said what they have.
    fn described(&mut self, now: Instant, answers: Vec<Payload>) {
        let described = answers.into_iter().filter_map(Described::of_answer);
        if self.has_asked_features {
            for (target, answer) in self.targets.iter_mut().zip(described) {
                target.features = answer.features;
            }
        } else {
            self.targets = described.collect();
            if self.identifies && self.wanted_features != 0 {
                return self.ask_for_features(now);
            }
        }
        for (name, target) in L::TARGETS.iter().zip(&self.targets) {
            tracing::info!(
                "{name}: {} bytes in blocks of {}",
                target.storage.total_size,
                target.storage.block_size
            );
        }
        let storage: Vec<_> = self
            .targets
            .iter()
            .map(|target| target.storage.clone())
            .collect();
        let features: Vec<_> = self.targets.iter().map(|target| target.features).collect();
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

    /// Every target made its end of the connections at hand.
    fn connections_created(&mut self, answers: Vec<Payload>) {
        let (context_index, role) = self.connections.current();
        self.imports.clear();
        for (name, answer) in L::TARGETS.iter().zip(answers) {
            let Payload::CreateRdmaConnectionResponse(details) = answer else {
                continue;
            };
            if (details.context_index, details.role) != (context_index, role) {
                self.fail(Failure::unexpected(format!(
                    "{name}: expected the {role} connection of context {context_index}, the {} connection of context {} \
                     came",
                    details.role, details.context_index
                )));
                return;
            }
            self.imports.push(details);
        }
        self.connect(0);
    }

    /// Exports the connection at hand for this target.
    pub(super) fn export(&mut self, target: usize) {
        if target == 0 {
            self.exports.clear();
        }
        let (index, role) = self.connections.current();
        let job = Job::Export {
            index,
            target,
            role,
        };
        self.begin(Doing::Export { target }, job);
    }

    /// Asks every target for its end of the connection at hand.
    pub(super) fn ask_for_connections(&mut self, now: Instant) {
        let (context_index, role) = self.connections.current();
        self.inquiry.clear();
        for (target, connection_details) in
            std::mem::take(&mut self.exports).into_iter().enumerate()
        {
            let request = Payload::CreateRdmaConnectionRequest(RdmaConnectionDetails {
                context_index,
                role,
                connection_details,
            });
            self.ask(target, request, MessageType::CreateRdmaConnectionResponse);
        }
        self.wait(now, Step::Storage);
    }

    /// Connects to this target's end, or goes on when there is no such target: to the next
    /// connection, which may be the first of the next worker.
    pub(super) fn connect(&mut self, target: usize) {
        if let Some(details) = self.imports.get(target).cloned() {
            self.begin(Doing::Connect { target }, Job::Connect { target, details });
            return;
        }
        let (last_index, _) = self.connections.current();
        match self.connections.advance() {
            None => self.answer(Payload::InitStorageResponse, Phase::Start),
            Some((index, _)) if index == last_index => self.export(0),
            Some(_) => self.create_worker(),
        }
    }

    /// Asks every target the same.
    pub(super) fn ask_all(&mut self, now: Instant, request: &Payload, expected: MessageType) {
        self.inquiry.clear();
        for target in 0..L::TARGETS.len() {
            match loss::answer_of_nobody(expected) {
                Some(answer) if self.without[target] => self.inquiry.skip(answer),
                _ => self.ask(target, request.clone(), expected),
            }
        }
        self.wait(now, Step::Storage);
        self.storage_answered(now);
    }

    fn ask(&mut self, target: usize, payload: Payload, expected: MessageType) {
        let correlation_id = self
            .request
            .as_ref()
            .map_or(0, |request| request.correlation_id);
        let message = self.ids.request(correlation_id, payload);
        self.inquiry.ask(message.message_id, expected);
        self.actions
            .push_back(Action::SendToStorage { target, message });
    }
}
