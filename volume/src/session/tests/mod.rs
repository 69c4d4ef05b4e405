//! Scripted sessions with a simulated clock.

mod course;
mod ends;

use bytes::Bytes;
use role_common::Failure;
use wire::control::{ErrorResponse, InitStorage, StorageDetails};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(5);
const HALT: Duration = Duration::from_secs(8);

/// Drives a session with a simulated clock.
struct Script {
    session: Session,
    now: Instant,
}

impl Script {
    fn new(workers: u32) -> Self {
        let now = Instant::now();
        let config = SessionConfig {
            workers,
            control_timeout: TIMEOUT,
            halt_timeout: HALT,
            features: 0,
            release: Release::default(),
        };
        Self {
            session: Session::new(config),
            now,
        }
    }

    fn input(&mut self, event: Event) -> &mut Self {
        self.session.handle(event, self.now);
        self
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.session.poll_action()).collect()
    }

    /// Returns the only action, which must send a message.
    fn sent(&mut self) -> Message {
        match self.actions().as_slice() {
            [Action::Send(message)] => message.clone(),
            other => panic!("expected one message to be sent, got {other:?}"),
        }
    }

    fn expect(&mut self, expected: &[Action]) -> &mut Self {
        assert_eq!(self.actions(), expected);
        self
    }

    fn expect_request(&mut self, kind: MessageType, id: u32) -> &mut Self {
        let message = self.sent();
        assert_eq!(
            (
                message.payload.message_type(),
                message.message_id,
                message.correlation_id
            ),
            (kind, id, id)
        );
        self
    }

    fn answer(&mut self, id: u32, payload: Payload) -> &mut Self {
        self.input(Event::Message(Message {
            message_id: id,
            correlation_id: id,
            payload,
        }))
    }

    fn refuse(&mut self, id: u32) -> &mut Self {
        self.answer(
            id,
            Payload::ErrorResponse(ErrorResponse {
                error_code: 6,
                message: "not today".into(),
            }),
        )
    }

    fn time_out(&mut self) -> &mut Self {
        self.now = self.session.poll_timeout().expect("a step that is bounded");
        self.session.handle(Event::Timeout, self.now);
        self
    }

    fn error(&self) -> SessionError {
        self.session.result().expect_err("a failed session")
    }

    fn to_querying(workers: u32) -> Self {
        let mut script = Self::new(workers);
        script
            .input(Event::Connected)
            .expect_request(MessageType::QueryStorageRequest, 0);
        script
    }

    fn to_opening(workers: u32) -> Self {
        let mut script = Self::to_querying(workers);
        script.answer(0, Payload::QueryStorageResponse(details()));
        script.expect(&[Action::OpenStorage(details())]);
        script
    }

    fn to_initialising(workers: u32) -> Self {
        let mut script = Self::to_opening(workers);
        script
            .input(Event::Opened(init(workers)))
            .expect_request(MessageType::InitStorageRequest, 1);
        script
    }

    fn to_gathering(workers: u32) -> Self {
        let mut script = Self::to_initialising(workers);
        script
            .answer(1, Payload::InitStorageResponse)
            .expect(&[Action::CreateWorkers]);
        script
    }

    fn to_preparing(workers: u32) -> Self {
        let mut script = Self::to_gathering(workers);
        for id in 0..workers {
            script.input(Event::ConsumerAdded(10 + id));
        }
        script.input(Event::WorkersReady);
        script.expect(&[Action::PrepareWorkers((10..10 + workers).collect())]);
        script
    }

    fn to_starting(workers: u32) -> Self {
        let mut script = Self::to_preparing(workers);
        script
            .input(Event::WorkersPrepared)
            .expect_request(MessageType::StartStorageRequest, 2);
        script
    }

    fn to_running(workers: u32) -> Self {
        let mut script = Self::to_starting(workers);
        script
            .answer(2, Payload::StartStorageResponse)
            .expect(&[Action::StartDataPath]);
        assert_eq!(
            script.session.poll_timeout(),
            None,
            "the length of a run is the user's affair"
        );
        script
    }

    fn to_stopping(workers: u32) -> Self {
        let mut script = Self::to_running(workers);
        script
            .input(Event::WorkersFinished)
            .expect_request(MessageType::StopStorageRequest, 3);
        script
    }

    fn to_destroying(workers: u32) -> Self {
        let mut script = Self::to_stopping(workers);
        for id in 0..workers {
            script.input(Event::ConsumerExpired(10 + id));
        }
        script
            .answer(3, Payload::StopStorageResponse)
            .expect(&[Action::DestroyWorkers]);
        script
    }

    fn to_shutting_down(workers: u32) -> Self {
        let mut script = Self::to_destroying(workers);
        script
            .input(Event::WorkersDestroyed)
            .expect_request(MessageType::ShutdownRequest, 4);
        script
    }
}

fn details() -> StorageDetails {
    StorageDetails {
        total_size: 1 << 20,
        block_size: 4096,
    }
}

fn init(workers: u32) -> InitStorage {
    InitStorage {
        transaction_count: 64,
        core_count: workers,
        mmap_export_blob: Bytes::from_static(b"blob"),
    }
}
