//! The targets' side of a session: requests to them and their responses.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use control::ChannelEvent;
use control::Failure;
use doca::ErrorCode;
use wire::control::{
    AnnouncedStorage, FEATURE_VERIFIER, FeatureQuery, IdentityQuery, Message, MessageType, Payload,
    RdmaConnectionDetails, StorageDetails,
};

use super::{Action, Connections, Doing, Job, Layout, Phase, Place, Session, Step};
use crate::protocol::expect_response;
use crate::superblock;
use role_formats::superblock::Superblock;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    pub storage: StorageDetails,
    /// Identity of the storage. `None` if it has none; then it has no superblock, either.
    pub identity: Option<Bytes>,
    /// The target's superblock, if it is a member of a set.
    pub superblock: Option<Superblock>,
    /// Extensions of the data path announced by the target, among the requested ones.
    pub features: u32,
    /// Versions of the target's blocks, if its extensions were requested.
    pub versions: KeptVersions,
}

/// Versions of blocks that a target keeps in addition to one of each block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptVersions {
    /// Maximum number of these versions.
    pub slots: u32,
    /// Epoch and number of the last version that was written to the target; zeros for none.
    pub last: (u64, u64),
    /// Epoch and number below which versions are retired; zeros for none.
    pub retired: (u64, u64),
    /// Blocks of which the target has a version that is not retired.
    pub unretired: Vec<u64>,
}

impl KeptVersions {
    pub(super) fn of_answer(answer: &AnnouncedStorage) -> Self {
        let numbers = answer.unretired.chunks_exact(size_of::<u64>());
        Self {
            slots: answer.version_slots,
            last: (answer.last_epoch, answer.last_number),
            retired: (answer.retired_epoch, answer.retired_number),
            unretired: numbers
                .map(|bytes| u64::from_be_bytes(bytes.try_into().expect("8 bytes")))
                .collect(),
        }
    }
}

impl Described {
    /// Extracts the description from the response to a query; `None` for any other message.
    ///
    /// # Errors
    ///
    /// The superblock in it is not valid.
    pub(super) fn of_answer(answer: Payload) -> Result<Option<Self>, Failure> {
        let described = match answer {
            Payload::QueryStorageResponse(storage) => Self {
                storage,
                identity: None,
                superblock: None,
                features: 0,
                versions: KeptVersions::default(),
            },
            Payload::AnnouncedStorageResponse(answer) => Self {
                storage: StorageDetails {
                    total_size: answer.total_size,
                    block_size: answer.block_size,
                },
                identity: None,
                superblock: None,
                features: answer.features,
                versions: KeptVersions::of_answer(&answer),
            },
            Payload::IdentifiedStorageResponse(answer) => Self {
                storage: StorageDetails {
                    total_size: answer.total_size,
                    block_size: answer.block_size,
                },
                superblock: Superblock::of_answer(&answer).map_err(superblock::malformed)?,
                identity: Some(answer.identity),
                features: 0,
                versions: KeptVersions::default(),
            },
            _ => return Ok(None),
        };
        Ok(Some(described))
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
                    Ok(()) => {
                        self.limit_silence(now);
                        self.storage_answered(now);
                    }
                    // The target's disk has failed. Other errors may be temporary, such as those of a target that still
                    // serves another session.
                    Err(failure)
                        if failure.code == ErrorCode::IO_FAILED
                            && self.may_begin_without(target) =>
                    {
                        self.begin_without(now, target, &failure);
                    }
                    Err(failure) => self.fail(failure.context(name)),
                }
            }
            (ChannelEvent::Message(message), _) => self.fail(Self::nonsense(target, message)),
            // After its shutdown response, a target may disconnect before the service has finished.
            (ChannelEvent::Closed, Step::Storage | Step::Job(Doing::DestroyWorkers))
                if self.phase == Phase::Shutdown && !self.inquiry.is_pending(target) => {}
            (ChannelEvent::Closed, _) => {
                let waiting = self.waiting_for();
                let message =
                    format!("the {name} disconnected while the service waited for {waiting}");
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
    /// If the target does not exist.
    #[must_use]
    pub fn unasked(&self, target: usize, message: &Message) -> Option<Failure> {
        let is_asked = self.step == Step::Storage && self.inquiry.is_pending(target);
        (!is_asked).then(|| Self::nonsense(target, message.clone()))
    }

    /// Failure for an unsolicited message. Targets send error responses unsolicited if they are busy with another
    /// service or have received an invalid message.
    fn nonsense(target: usize, message: Message) -> Failure {
        let name = L::TARGETS[target];
        match message.payload {
            Payload::ErrorResponse(error) => Failure::from(error).context(name),
            other => {
                let came = other.message_type();
                Failure::unexpected(format!(
                    "{name}: unexpected {came}: no request is outstanding"
                ))
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
                let verifiers = answers.iter().map(|answer| match answer {
                    Some(Payload::VerifiedInitStorageResponse(verifier)) => Some(verifier.into()),
                    _ => None,
                });
                self.verifiers = verifiers.collect();
                self.connections = Connections::of_workers(self.core_count);
                self.create_worker();
            }
            MessageType::CreateRdmaConnectionResponse => self.connections_created(now, answers),
            MessageType::StartStorageResponse => {
                self.wait(now, Step::Consumers);
                self.check_consumers(now);
            }
            MessageType::StopStorageResponse if self.is_closing() => {
                self.phase = Phase::Shutdown;
                self.leave_targets(now);
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

    /// Query for a target's storage details.
    pub(super) fn query(&self) -> Payload {
        if self.identifies {
            Payload::IdentifyStorageRequest(IdentityQuery::WITHOUT_SUPERBLOCK)
        } else if self.wanted_features != 0 {
            self.feature_query()
        } else {
            Payload::QueryStorageRequest
        }
    }

    fn feature_query(&self) -> Payload {
        feature_query(self.wanted_features)
    }

    /// Queries the targets that have an identity for their extensions of the data path. A target without an identity is
    /// of the reference, which has no extensions.
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
        let mut described = Vec::new();
        for (name, answer) in L::TARGETS.iter().zip(answers) {
            match answer.map_or(Ok(None), Described::of_answer) {
                Ok(target) => described.push(target),
                Err(failure) => return self.fail(failure.context(name)),
            }
        }
        if self.has_asked_features {
            for (target, answer) in self.targets.iter_mut().zip(described) {
                if let (Some(target), Some(answer)) = (target, answer) {
                    target.features = answer.features;
                    target.versions = answer.versions;
                }
            }
        } else {
            self.targets = described;
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
            }) if self.features & self.client_features != 0 => {
                let answer = Payload::AnnouncedStorageResponse(AnnouncedStorage {
                    total_size,
                    block_size,
                    features: self.features & self.client_features,
                    version_slots: 0,
                    last_epoch: 0,
                    last_number: 0,
                    retired_epoch: 0,
                    retired_number: 0,
                    unretired: Bytes::new(),
                });
                self.answer(answer, Phase::Init);
            }
            Ok(details) => self.answer(Payload::QueryStorageResponse(details), Phase::Init),
            Err(failure) => self.fail(failure),
        }
    }

    /// Handles the creation of the current connections by all targets.
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

    /// Connects to the next target's export. After the last target, continues with the next connection, which may be
    /// the first of the next worker.
    pub(super) fn connect(&mut self, now: Instant) {
        if let Some((target, details)) = self.imports.pop_front() {
            self.begin(Doing::Connect, Job::Connect { target, details });
            return;
        }
        let (last_index, _) = self.connections.current();
        match self.connections.advance() {
            None if self.features & FEATURE_VERIFIER != 0 => {
                let job = Job::Verify(std::mem::take(&mut self.verifiers));
                self.begin(Doing::Verify, job);
            }
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

// A request to all targets, and their responses.

/// A request sent to all targets that are present.
#[derive(Debug, Default)]
pub(in crate::service::session) struct Inquiry {
    /// Expected type of the responses while a request is outstanding.
    expected: Option<MessageType>,
    targets: Vec<Asked>,
}

#[derive(Debug)]
enum Asked {
    /// The response to the request with this id is outstanding.
    Pending(u32),
    Answered(Payload),
    /// The target is missing or lost.
    Absent,
}

impl Inquiry {
    /// Starts a request whose responses have type `expected`.
    pub(in crate::service::session) fn begin(&mut self, expected: MessageType) {
        self.expected = Some(expected);
        self.targets.clear();
    }

    /// Records that the request with this id was sent to the next target.
    pub(in crate::service::session) fn ask(&mut self, message_id: u32) {
        self.targets.push(Asked::Pending(message_id));
    }

    /// Records that the next target is absent.
    pub(in crate::service::session) fn skip(&mut self) {
        self.targets.push(Asked::Absent);
    }

    /// Stops expecting a response from a lost target.
    pub(in crate::service::session) fn forgive(&mut self, target: usize) {
        if self.is_pending(target) {
            self.targets[target] = Asked::Absent;
        }
    }

    /// Returns `true` while this target's response is outstanding.
    pub(in crate::service::session) fn is_pending(&self, target: usize) -> bool {
        matches!(self.targets.get(target), Some(Asked::Pending(_)))
    }

    /// First target with an outstanding response, and its type.
    pub(in crate::service::session) fn pending(&self) -> Option<(usize, MessageType)> {
        let target = (0..self.targets.len()).find(|&target| self.is_pending(target))?;
        Some((target, self.expected?))
    }

    /// Accepts the response of a target whose response is outstanding.
    pub(in crate::service::session) fn answer(
        &mut self,
        target: usize,
        response: Message,
    ) -> Result<(), Failure> {
        let (Some(expected), Some(Asked::Pending(id))) = (self.expected, self.targets.get(target))
        else {
            return Err(Failure::unexpected("no request is outstanding"));
        };
        let payload = expect_response(response, *id, expected)?;
        self.targets[target] = Asked::Answered(payload);
        Ok(())
    }

    /// The only target whose response is outstanding; `None` if a target is absent.
    pub(in crate::service::session) fn last_pending(&self) -> Option<usize> {
        let is_answered = |it: &&Asked| matches!(it, Asked::Answered(_));
        let answered = self.targets.iter().filter(is_answered).count();
        let (target, _) = self.pending()?;
        (answered + 1 == self.targets.len()).then_some(target)
    }

    /// Returns the type of the responses and the responses in the order of the targets, `None` for absent ones, once
    /// none is outstanding.
    pub(in crate::service::session) fn take(
        &mut self,
    ) -> Option<(MessageType, Vec<Option<Payload>>)> {
        if self.pending().is_some() {
            return None;
        }
        let expected = self.expected.take()?;
        let answers = self.targets.drain(..).map(|asked| match asked {
            Asked::Answered(payload) => Some(payload),
            Asked::Pending(_) | Asked::Absent => None,
        });
        Some((expected, answers.collect()))
    }
}

// Sessions that start or continue without a target.

/// Maximum time for the last target to connect after all others.
const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// As [`LONGEST_GRACE`], for a target that was offline at the end of the previous session.
const SHORT_GRACE: Duration = Duration::from_millis(200);

/// Maximum time for the last target to respond to the query after all others: less than the control timeout of the reference's initiator.
const LONGEST_SILENCE: Duration = Duration::from_secs(4);

impl<L: Layout> Session<L> {
    /// Returns `true` if the session can continue when this target disconnects now: while I/Os are served and during
    /// the subsequent stop, unless the target is permitted to disconnect anyway.
    ///
    /// # Panics
    ///
    /// If the target does not exist.
    #[must_use]
    pub fn may_lose(&self, target: usize) -> bool {
        let serves = match self.phase {
            Phase::Query | Phase::Init | Phase::Start => false,
            Phase::Stop | Phase::Shutdown => self.step != Step::Ended,
        };
        let has_left = self.phase == Phase::Shutdown
            && self.step != Step::Request
            && self.step != Step::Expiry
            && self.step != Step::Job(Doing::CloseSuperblocks)
            && !self.inquiry.is_pending(target);
        serves && !self.without[target] && !has_left
    }

    /// Returns `true` if the session continues without this target.
    ///
    /// # Panics
    ///
    /// If the target does not exist.
    #[must_use]
    pub fn is_without(&self, target: usize) -> bool {
        self.without[target]
    }

    /// Place of a missing or lost target, while it may rejoin: as long as I/Os are served.
    ///
    /// # Panics
    ///
    /// If the target does not exist.
    #[must_use]
    pub fn place(&self, target: usize) -> Option<Place> {
        let serves = self.phase == Phase::Stop && self.step == Step::Request;
        if !serves || !self.without[target] {
            return None;
        }
        Some(Place {
            target,
            name: L::TARGETS[target],
            storage: self.storage_of(target)?.clone(),
            query: self.query(),
            // A target without a verifier is rebuilt, like a target that has lost its writes.
            features: self.features & !FEATURE_VERIFIER,
            init: self.init.clone()?,
            core_count: self.core_count,
        })
    }

    /// Storage of a target. If the target was missing at the start, the storage of another target: all are equal.
    pub(in crate::service::session) fn storage_of(&self, target: usize) -> Option<&StorageDetails> {
        let own = self.targets.get(target)?.as_ref();
        let described = own.or_else(|| self.targets.iter().flatten().next())?;
        Some(&described.storage)
    }

    pub(in crate::service::session) fn rejoined(&mut self, target: usize, identity: Option<Bytes>) {
        let Some(storage) = self.storage_of(target).cloned() else {
            return;
        };
        self.without[target] = false;
        self.targets[target] = Some(Described {
            storage,
            identity,
            superblock: None,
            features: self.features,
            versions: KeptVersions::default(),
        });
    }

    /// Continues without a target, if [allowed](Self::may_lose): sends it no further requests and expects no responses
    /// from it.
    pub(in crate::service::session) fn lost(&mut self, now: Instant, target: usize) {
        if !self.may_lose(target) {
            return;
        }
        self.go_without(target);
        self.inquiry.forgive(target);
        if self.step == Step::Storage {
            self.storage_answered(now);
        }
    }

    fn go_without(&mut self, target: usize) {
        self.without[target] = true;
        self.actions.push_back(Action::Leave { target });
    }

    /// Handles the connection of a target.
    pub(in crate::service::session) fn connected(&mut self, now: Instant, target: usize) {
        self.connected[target] = true;
        if self.step != Step::Connection {
            return;
        }
        match self.missing() {
            0 => self.announce(),
            1 if self.maintains => {
                let mut connected = self.connected.iter().zip(&self.were_offline);
                let was_offline = connected.any(|(&connected, &offline)| !connected && offline);
                let grace = if was_offline {
                    SHORT_GRACE
                } else {
                    LONGEST_GRACE
                };
                self.limit_deadline(now + self.timeout.min(grace));
            }
            _ => {}
        }
    }

    /// Limits the time for the last response to the query, if the session can begin without its target.
    fn limit_silence(&mut self, now: Instant) {
        if self.silent_target().is_some() {
            self.limit_deadline(now + self.timeout.min(LONGEST_SILENCE));
        }
    }

    /// Moves the deadline of the current step to this time, unless it is earlier.
    fn limit_deadline(&mut self, at: Instant) {
        self.deadline = Some(self.deadline.map_or(at, |limit| limit.min(at)));
    }

    /// Returns the only target that has not responded to the query, if the session can begin without it. A stopped
    /// process, or a machine that hangs, still accepts
    /// connections.
    pub(in crate::service::session) fn silent_target(&self) -> Option<usize> {
        let is_query = self.phase == Phase::Query && self.step == Step::Storage;
        let pending = self.inquiry.last_pending();
        pending.filter(|_| self.maintains && is_query)
    }

    /// Returns `true` if the session can begin without this target, which has not responded to the query yet.
    fn may_begin_without(&self, target: usize) -> bool {
        let is_query = self.phase == Phase::Query && self.step == Step::Storage;
        let is_first = !self.without.iter().any(|&it| it);
        self.maintains && is_query && is_first && self.inquiry.is_pending(target)
    }

    /// Begins the session without a target that has not responded to the query, for the given reason.
    pub(in crate::service::session) fn begin_without(
        &mut self,
        now: Instant,
        target: usize,
        why: &dyn fmt::Display,
    ) {
        tracing::warn!("{}: {why}; beginning without it", L::TARGETS[target]);
        self.go_without(target);
        self.inquiry.forgive(target);
        if let Some(described) = self.targets.get_mut(target) {
            *described = None;
        }
        self.storage_answered(now);
    }

    /// Number of targets that are not connected yet.
    pub(in crate::service::session) fn missing(&self) -> usize {
        self.connected.iter().filter(|&&it| !it).count()
    }

    /// Allows initiators to connect.
    pub(in crate::service::session) fn announce(&mut self) {
        self.step = Step::Request;
        self.deadline = None;
        self.actions.push_back(Action::Announce);
    }

    /// Handles the initiator's first request: targets that are not connected by now are missing.
    pub(in crate::service::session) fn begin_without_missing(&mut self) {
        for target in 0..self.connected.len() {
            if !self.connected[target] {
                tracing::warn!(
                    "{}: not connected; beginning without it",
                    L::TARGETS[target]
                );
                self.go_without(target);
            }
        }
    }
}

#[cfg(test)]
mod inquiry_tests {
    use super::*;

    fn message(message_id: u32, payload: Payload) -> Message {
        Message {
            message_id,
            correlation_id: 0,
            payload,
        }
    }

    #[test]
    fn answers_are_returned_in_the_order_of_the_targets() {
        let mut inquiry = Inquiry::default();
        inquiry.begin(MessageType::StopStorageResponse);
        inquiry.ask(7);
        inquiry.ask(8);
        inquiry.skip();
        assert_eq!(
            inquiry.pending(),
            Some((0, MessageType::StopStorageResponse))
        );
        inquiry
            .answer(1, message(8, Payload::StopStorageResponse))
            .expect("asked");
        assert!(inquiry.is_pending(0) && !inquiry.is_pending(1) && !inquiry.is_pending(2));
        assert_eq!(inquiry.take(), None);
        assert!(
            inquiry
                .answer(0, message(8, Payload::StopStorageResponse))
                .is_err(),
            "another target's id"
        );
        inquiry
            .answer(0, message(7, Payload::StopStorageResponse))
            .expect("asked");
        let stopped = Some(Payload::StopStorageResponse);
        assert_eq!(
            inquiry.take(),
            Some((
                MessageType::StopStorageResponse,
                vec![stopped.clone(), stopped, None]
            ))
        );
        assert_eq!(inquiry.take(), None, "taken");
    }

    #[test]
    fn no_answer_is_expected_from_a_lost_target() {
        let mut inquiry = Inquiry::default();
        assert_eq!(inquiry.take(), None, "nothing was asked");
        inquiry.begin(MessageType::ShutdownResponse);
        inquiry.ask(7);
        assert_eq!(inquiry.take(), None);
        inquiry.forgive(0);
        assert!(!inquiry.is_pending(0));
        assert_eq!(
            inquiry.take(),
            Some((MessageType::ShutdownResponse, vec![None]))
        );
    }
}
