//! A session of the service between the test, as initiator, and the session of a target.

use std::time::{Duration, Instant};

use bytes::Bytes;
use role_common::Failure;
use role_common::control::ChannelEvent;
use role_common::service::session::{Action, Event, Job, Outcome};
use role_target::session::{
    Action as TargetAction, Event as TargetEvent, Geometry, Job as TargetJob,
    Outcome as TargetOutcome,
};
use wire::control::{ErrorResponse, Message, Payload};

use super::super::{Passthrough, Session};
use super::init;

pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// A session of a service between the test, as initiator, and the session of a target.
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) service: Session,
    pub(super) target: role_target::session::Session,
    /// Jobs of service and target, in order.
    pub(super) jobs: Vec<String>,
    /// Messages that reached the initiator.
    pub(super) answers: Vec<Message>,
    /// Correlation and message ids that reached the target.
    pub(super) forwarded: Vec<(u32, u32)>,
    pub(super) end: Option<Result<(), Failure>>,
    /// `true` if the target's responses are held back.
    pub(super) target_is_silent: bool,
    /// Job of the service that must fail, by the start of its name.
    pub(super) failing_job: &'static str,
    pub(super) next_id: u32,
}

impl World {
    pub(super) fn new(service_cpus: u32, target_cpus: u32) -> Self {
        let mut world = Self {
            now: Instant::now(),
            service: Session::new(Passthrough, service_cpus, TIMEOUT),
            target: role_target::session::Session::new(
                Geometry {
                    block_size: 512,
                    block_count: 8,
                },
                target_cpus,
            ),
            jobs: Vec::new(),
            answers: Vec::new(),
            forwarded: Vec::new(),
            end: None,
            target_is_silent: false,
            failing_job: "nothing",
            next_id: 1000,
        };
        for target in 0..1 {
            let event = ChannelEvent::Connected;
            world
                .service
                .handle(Event::Storage { target, event }, world.now);
        }
        world.run();
        world
    }

    pub(super) fn run(&mut self) {
        while let Some(action) = self.service.poll_action() {
            assert!(self.end.is_none(), "{action:?} after the end");
            match action {
                Action::Announce | Action::Leave { .. } | Action::Stalled { .. } => {}
                Action::SendToClient(message) => self.answers.push(message),
                Action::SendToStorage { message, .. } => self.target_receives(message),
                Action::Do(job) => {
                    let name = format!("{job:?}");
                    let outcome = match job {
                        _ if name.starts_with(self.failing_job) => {
                            Err(Failure::invalid("the job failed"))
                        }
                        Job::PrepareMemory(memory) => Ok(Outcome::Exported(Bytes::from(
                            [&memory.mmap_export_blob[..], b" for rdma"].concat(),
                        ))),
                        Job::Export { .. } => {
                            Ok(Outcome::Exported(Bytes::from_static(b"service end")))
                        }
                        _ => Ok(Outcome::Done),
                    };
                    self.jobs.push(name);
                    self.service.handle(Event::JobDone(outcome), self.now);
                }
                Action::End(result) => self.end = Some(result),
            }
        }
    }

    pub(super) fn target_receives(&mut self, message: Message) {
        self.forwarded
            .push((message.correlation_id, message.message_id));
        if self.target_is_silent {
            return;
        }
        self.target.handle(
            TargetEvent::Service(ChannelEvent::Message(message)),
            self.now,
        );
        let answer = loop {
            match self.target.poll_action().expect("an answer") {
                TargetAction::Send(answer) => break answer,
                TargetAction::Do(job) => {
                    self.jobs.push(format!("target {job:?}"));
                    let outcome = match job {
                        TargetJob::Connect(_) => {
                            TargetOutcome::Exported(Bytes::from_static(b"target end"))
                        }
                        _ => TargetOutcome::Done,
                    };
                    self.target
                        .handle(TargetEvent::JobDone(Ok(outcome)), self.now);
                }
                TargetAction::End(result) => panic!("{result:?}"),
            }
        };
        let event = ChannelEvent::Message(answer);
        self.service
            .handle(Event::Storage { target: 0, event }, self.now);
    }

    pub(super) fn client(&mut self, event: ChannelEvent) {
        self.service.handle(Event::Client(event), self.now);
        self.run();
    }

    pub(super) fn storage(&mut self, event: ChannelEvent) {
        self.service
            .handle(Event::Storage { target: 0, event }, self.now);
        self.run();
    }

    /// Sends a request and returns the response, if it was immediate.
    pub(super) fn request(&mut self, payload: Payload) -> Option<Payload> {
        self.next_id += 1;
        let request = Message {
            message_id: self.next_id,
            correlation_id: 77,
            payload,
        };
        self.client(ChannelEvent::Message(request));
        self.answer()
    }

    pub(super) fn answer(&mut self) -> Option<Payload> {
        let answer = self.answers.pop()?;
        assert!(self.answers.is_empty(), "one answer per request");
        assert_eq!(
            (answer.message_id, answer.correlation_id),
            (self.next_id, 77),
            "the request's ids come back"
        );
        Some(answer.payload)
    }

    pub(super) fn error(&mut self, payload: Payload) -> ErrorResponse {
        match self.request(payload) {
            Some(Payload::ErrorResponse(error)) => error,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    pub(super) fn ended_with(&self) -> &Failure {
        self.end
            .as_ref()
            .expect("the end")
            .as_ref()
            .expect_err("a failure")
    }

    /// Creates a session with two workers whose data path is running.
    pub(super) fn running() -> Self {
        let mut world = Self::new(2, 2);
        world.request(Payload::QueryStorageRequest);
        world.request(init(2, 64));
        world.client(ChannelEvent::ConsumerAdded(11));
        world.client(ChannelEvent::ConsumerAdded(12));
        assert_eq!(
            world.request(Payload::StartStorageRequest),
            Some(Payload::StartStorageResponse)
        );
        world.jobs.clear();
        world
    }
}
