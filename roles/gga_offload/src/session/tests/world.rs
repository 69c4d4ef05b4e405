//! A session of the service between a test that plays the initiator and the sessions of three targets.

use std::time::{Duration, Instant};

use bytes::Bytes;
use role_common::Failure;
use role_common::control::ChannelEvent;
use role_common::service::session::{Action, Event, Job, Outcome};
use role_target::session::{
    Action as TargetAction, Event as TargetEvent, Geometry, Job as TargetJob,
    Outcome as TargetOutcome, Session as TargetSession,
};
use wire::control::{ErrorResponse, Message, Payload, StorageDetails};

use super::super::{Session, Striped};
use super::init;

/// What one of the targets does differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    Honest,
    Silent(usize),
    Refuses(usize),
    /// It answers, and closes its connection right behind the answer.
    LeavesAtOnce(usize),
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) service: Session,
    targets: Vec<TargetSession>,
    /// What the targets say of their storage.
    pub(super) storage: [StorageDetails; 3],
    pub(super) script: Script,
    pub(super) jobs: Vec<String>,
    target_jobs: [Vec<String>; 3],
    pub(super) sent: Vec<(usize, Message)>,
    answers: Vec<Message>,
    pub(super) end: Option<Result<(), Failure>>,
    next_id: u32,
}

impl World {
    pub(super) fn new() -> Self {
        let geometry = Geometry {
            block_size: 512,
            block_count: 8,
        };
        let details = StorageDetails {
            total_size: 4096,
            block_size: 512,
        };
        let mut world = Self {
            now: Instant::now(),
            service: Session::new(Striped::default(), 1, Duration::from_secs(5)),
            targets: (0..3).map(|_| TargetSession::new(geometry, 1)).collect(),
            storage: [details.clone(), details.clone(), details],
            script: Script::Honest,
            jobs: Vec::new(),
            target_jobs: Default::default(),
            sent: Vec::new(),
            answers: Vec::new(),
            end: None,
            next_id: 1000,
        };
        for target in 0..3 {
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
                Action::SendToStorage { target, message } => {
                    self.sent.push((target, message.clone()));
                    self.target_receives(target, message);
                }
                Action::Do(job) => {
                    self.jobs.push(format!("{job:?}"));
                    let outcome = match job {
                        Job::PrepareMemory(_) => {
                            Outcome::Exported(Bytes::from_static(b"service memory"))
                        }
                        Job::Export { target, .. } => {
                            Outcome::Exported(Bytes::from(format!("service end for {target}")))
                        }
                        _ => Outcome::Done,
                    };
                    self.service.handle(Event::JobDone(Ok(outcome)), self.now);
                }
                Action::End(result) => self.end = Some(result),
            }
        }
    }

    fn target_receives(&mut self, target: usize, message: Message) {
        if self.script == Script::Silent(target) {
            return;
        }
        if self.script == Script::Refuses(target) {
            let refusal = Payload::ErrorResponse(ErrorResponse {
                error_code: doca::ErrorCode::NOT_PERMITTED.0,
                message: "not today".to_owned(),
            });
            let answer = message.response(refusal);
            let event = ChannelEvent::Message(answer);
            self.service
                .handle(Event::Storage { target, event }, self.now);
            return;
        }
        let session = &mut self.targets[target];
        session.handle(
            TargetEvent::Service(ChannelEvent::Message(message)),
            self.now,
        );
        let mut answer = loop {
            match session.poll_action().expect("an answer") {
                TargetAction::Send(answer) => break answer,
                TargetAction::Do(job) => {
                    let outcome = match &job {
                        TargetJob::Connect(_) => {
                            TargetOutcome::Exported(Bytes::from_static(b"target end"))
                        }
                        _ => TargetOutcome::Done,
                    };
                    self.target_jobs[target].push(format!("{job:?}"));
                    session.handle(TargetEvent::JobDone(Ok(outcome)), self.now);
                }
                TargetAction::End(result) => panic!("{result:?}"),
            }
        };
        if let Payload::QueryStorageResponse(details) = &mut answer.payload {
            *details = self.storage[target].clone();
        }
        let event = ChannelEvent::Message(answer);
        self.service
            .handle(Event::Storage { target, event }, self.now);
        if self.script == Script::LeavesAtOnce(target) {
            let event = ChannelEvent::Closed;
            self.service
                .handle(Event::Storage { target, event }, self.now);
        }
    }

    pub(super) fn target_jobs(&self, target: usize) -> &[String] {
        &self.target_jobs[target]
    }

    pub(super) fn client(&mut self, event: ChannelEvent) {
        self.service.handle(Event::Client(event), self.now);
        self.run();
    }

    pub(super) fn storage_event(&mut self, target: usize, event: ChannelEvent) {
        self.service
            .handle(Event::Storage { target, event }, self.now);
        self.run();
    }

    /// Sends a request and returns the answer, if one came at once.
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
        let ids = (answer.message_id, answer.correlation_id);
        assert_eq!(ids, (self.next_id, 77), "the request's ids come back");
        Some(answer.payload)
    }

    pub(super) fn error(&mut self, payload: Payload) -> ErrorResponse {
        match self.request(payload) {
            Some(Payload::ErrorResponse(error)) => error,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    pub(super) fn ended_with(&self) -> &Failure {
        let end = self.end.as_ref().expect("the end");
        end.as_ref().expect_err("a failure")
    }

    /// A session that ran, up to the point where its shutdown is due.
    pub(super) fn run_to_stop(&mut self) {
        self.request(Payload::QueryStorageRequest);
        self.request(init(1, 1));
        self.client(ChannelEvent::ConsumerAdded(11));
        self.request(Payload::StartStorageRequest);
        self.request(Payload::StopStorageRequest);
        self.client(ChannelEvent::ConsumerExpired(11));
    }
}
