//! The initiator's side of a session: its requests and its consumers.

use std::time::Instant;

use bytes::Bytes;
use doca::ErrorCode;
use wire::control::{InitStorage, Message, MessageType, Payload};

use super::progress::{Doing, Phase, Step};
use super::{Action, Job, Layout, MAX_TRANSACTIONS, Memory, Session};
use crate::control::ChannelEvent;
use crate::failure::Failure;
use crate::session::unexpected;

impl<L: Layout> Session<L> {
    pub(super) fn client_event(&mut self, now: Instant, event: ChannelEvent) {
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
                // The initiator has disconnected, so the request needs no response.
                self.request = None;
                let waiting = self.waiting_for();
                let message = format!("the initiator left while the service waited for {waiting}");
                self.fail(Failure::new(ErrorCode::CONNECTION_RESET, message));
            }
            ChannelEvent::Connected => self.has_client = true,
        }
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
        let memory = match request.payload.as_init_storage() {
            Some((init, _)) => init.mmap_export_blob,
            None => Bytes::new(),
        };
        self.request = Some(request);
        match self.phase {
            Phase::Query => {
                self.begin_without_missing();
                self.wanted_features = match self.request.as_ref().map(|it| &it.payload) {
                    Some(Payload::AnnounceStorageRequest(query)) => query.features & L::FEATURES,
                    _ => 0,
                };
                let expected = MessageType::QueryStorageResponse;
                let query = self.query();
                self.ask_all(now, &query, expected);
            }
            Phase::Init => {
                let job = Job::PrepareMemory(Memory {
                    mmap_export_blob: memory,
                    core_count: self.core_count,
                    transaction_count: self.transaction_count,
                    release: self.release,
                    targets: self.targets.clone(),
                    limits: self.limits,
                });
                self.begin(Doing::PrepareMemory, job);
            }
            Phase::Start if self.maintains => {
                self.begin(Doing::OpenSuperblocks, Job::OpenSuperblocks);
            }
            Phase::Start => self.start_targets(now),
            Phase::Stop => self.begin(Doing::Quiesce, Job::Quiesce),
            Phase::Shutdown => {
                // A consumer that is still in use after the targets are gone could not be served.
                self.wait(now, Step::Expiry);
                self.check_consumers(now);
            }
        }
    }

    fn examine(&mut self, request: &Message) -> Result<(), Failure> {
        if request.payload.message_type() != self.phase.request() {
            return Err(unexpected(&request.payload, self.phase.request()));
        }
        let Some((init, batch_size)) = request.payload.as_init_storage() else {
            return Ok(());
        };
        let release = self.protocol.of_client(batch_size.is_some())?;
        let InitStorage {
            transaction_count,
            core_count,
            ..
        } = init;
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
        let doubled = InitStorage {
            transaction_count: transaction_count * 2,
            ..init
        };
        self.limits.check(&doubled)?;
        self.release = release;
        self.batch_size = batch_size.unwrap_or(0);
        self.core_count = core_count;
        self.transaction_count = doubled.transaction_count;
        Ok(())
    }

    /// Continues if the session waits for the initiator's consumers.
    pub(super) fn check_consumers(&mut self, now: Instant) {
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
            Step::Expiry if self.consumers.is_empty() && self.maintains => {
                self.begin(Doing::CloseSuperblocks, Job::CloseSuperblocks);
            }
            Step::Expiry if self.consumers.is_empty() => self.shut_targets_down(now),
            _ => {}
        }
    }
}
