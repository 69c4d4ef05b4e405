//! The control session with the service, without I/O: the input is events, the output is actions.
//!
//! Its owner, which uses a [`Driver`] for the control channel, reports events ([`Session::handle`]), executes actions
//! ([`Session::poll_action`]), and reports [`Event::Timeout`] once [`Session::poll_timeout`] has passed. Time is an argument, so that
//! every transition can be tested.
//!
//! ```text
//! Connecting -> Querying -> Opening -> Initialising -> Gathering -> Preparing -> Starting -> Running
//!                                                                                              |
//!            Finished <- Expiring <- ShuttingDown <- Destroying <- Stopping <- Halting <-------+
//! ```
//!
//! The duration of a shutdown is bounded in every state. After an interruption, the session is shut down in the order
//! required by the protocol (a C++ service answers a message out of order with an error, and then waits for the
//! expected one forever): an initialised storage is started and immediately stopped. A peer that has not answered in
//! time gets no further requests.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use control::verifier::Verifier;
use control::{ChannelEvent, ComchClientChannel, ControlChannel as _, Waiter};
use control::{Failure, text_of_peer};
use doca::{Connection, Device, ErrorCode};
use thiserror::Error;
use wire::control::{
    FEATURE_VERIFIER, FeatureQuery, InitStorage, Message, MessageType, Payload, StorageDetails,
};
use wire::release::Release;

use crate::endpoint::Contexts;

/// Input of a session.
#[derive(Debug)]
pub enum Event {
    /// The control channel to the service is established.
    Connected,
    /// The control channel was closed.
    Disconnected,
    /// A control message was received.
    Message(Message),
    /// The service has created a consumer with this id.
    ConsumerAdded(u32),
    /// The service's consumer with this id has expired.
    ConsumerExpired(u32),
    /// [`Action::OpenStorage`] has completed; this is the init request to send.
    Opened(InitStorage),
    /// [`Action::CreateWorkers`] has completed: all local contexts are running.
    WorkersReady,
    /// [`Action::PrepareWorkers`] has completed.
    WorkersPrepared,
    /// The data path has stopped: completed, halted or failed. The driver reports its result.
    WorkersFinished,
    /// [`Action::DestroyWorkers`] has completed.
    WorkersDestroyed,
    /// A local operation or the control channel failed.
    Failed(Failure),
    /// Interrupted by the user.
    Interrupted,
    /// The time of [`Session::poll_timeout`](Session::poll_timeout) may have passed.
    Timeout,
}

impl From<ChannelEvent> for Event {
    fn from(event: ChannelEvent) -> Self {
        match event {
            ChannelEvent::Connected => Self::Connected,
            ChannelEvent::Message(message) => Self::Message(message),
            ChannelEvent::ConsumerAdded(id) => Self::ConsumerAdded(id),
            ChannelEvent::ConsumerExpired(id) => Self::ConsumerExpired(id),
            ChannelEvent::Closed => Self::Disconnected,
        }
    }
}

/// Output of a session.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message to the service.
    Send(Message),
    /// Allocate and export memory for this storage; report [`Event::Opened`].
    OpenStorage(StorageDetails),
    /// Create the workers with their contexts; report [`Event::WorkersReady`].
    CreateWorkers,
    /// Prepare the tasks of each worker for the consumer with the same index; report [`Event::WorkersPrepared`].
    PrepareWorkers(Vec<u32>),
    /// Start the data path; report [`Event::WorkersFinished`] when it has stopped.
    StartDataPath,
    /// Stop the data path; report [`Event::WorkersFinished`] when it has stopped.
    HaltDataPath {
        /// `true` if I/Os in flight may still be answered, and are waited for.
        drain: bool,
    },
    /// Destroy the workers' contexts; report [`Event::WorkersDestroyed`].
    DestroyWorkers,
    /// The session has ended; [`Session::result`](Session::result) is final.
    Finish,
}

/// Event that the session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Querying,
    Opening,
    Initialising,
    Gathering,
    Preparing,
    Starting,
    Running,
    Halting,
    Stopping,
    /// `shutdown`: continue with the shutdown request; otherwise the session ends.
    Destroying {
        shutdown: bool,
    },
    ShuttingDown,
    Expiring,
    Finished,
}

impl State {
    /// Description of the awaited event, for timeouts and disconnections.
    const fn waits_for(self) -> &'static str {
        match self {
            Self::Connecting => "the connection to the service",
            Self::Querying => "query_storage_response",
            Self::Opening => "local memory",
            Self::Initialising => "init_storage_response",
            Self::Gathering => "the service's consumers and the local contexts",
            Self::Preparing => "the workers to prepare their tasks",
            Self::Starting => "start_storage_response",
            Self::Running => "the operations to complete",
            Self::Halting => "the operations in flight",
            Self::Stopping => "stop_storage_response",
            Self::Destroying { .. } => "the local contexts to stop",
            Self::ShuttingDown => "shutdown_response",
            Self::Expiring => "the service's consumers to expire",
            Self::Finished => "nothing",
        }
    }
}

/// Ids of the service's consumers, in the order of their creation: the n-th belongs to the n-th worker.
#[derive(Debug, Default)]
struct Peers {
    ids: Vec<u32>,
}

impl Peers {
    /// Adds a consumer; `false` if it exists already.
    fn add(&mut self, id: u32) -> bool {
        let new = !self.ids.contains(&id);
        if new {
            self.ids.push(id);
        }
        new
    }

    /// Removes a consumer; `false` if it is unknown.
    fn remove(&mut self, id: u32) -> bool {
        let position = self.ids.iter().position(|known| *known == id);
        position.map(|at| self.ids.remove(at)).is_some()
    }

    fn ids(&self) -> &[u32] {
        &self.ids
    }

    fn len(&self) -> usize {
        self.ids.len()
    }

    fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// Reason for the end of a control session that failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SessionError {
    /// The service answered a request with an error response.
    #[error("the service refused {request} (message id {id}): {}: {text}", ErrorCode(*.code).name())]
    Refused {
        /// Type of the refused request.
        request: MessageType,
        /// Message id of the request.
        id: u32,
        /// `doca_error_t` in the response.
        code: u32,
        /// Text in the response.
        text: String,
    },
    /// The service sent an error response without a request.
    #[error("the service reported an error: {}: {text}", ErrorCode(*.code).name())]
    Unsolicited {
        /// `doca_error_t` in the response.
        code: u32,
        /// Text in the response.
        text: String,
    },
    /// The service sent a message that is not permitted in this state.
    #[error("the service sent {came} with message id {id}; expected {expected}")]
    Unexpected {
        /// Type of the received message.
        came: MessageType,
        /// Message id of the message.
        id: u32,
        /// Expected messages.
        expected: String,
    },
    /// A step exceeded its timeout.
    #[error("no end of waiting for {waiting_for} after {} s", .after.as_secs_f64())]
    Timeout {
        /// Description of the awaited event.
        waiting_for: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// The control channel was closed.
    #[error("the service closed the connection while the initiator waited for {waiting_for}")]
    Disconnected {
        /// Description of the awaited event.
        waiting_for: &'static str,
    },
    /// The service has more consumers than there are workers.
    #[error(
        "the service has more consumers than the {expected} that were asked for, one for each worker"
    )]
    TooManyConsumers {
        /// Number of workers.
        expected: u32,
    },
    /// A consumer of the service expired while it was needed.
    #[error("the service's consumer {id} expired before the storage was stopped")]
    ConsumerLost {
        /// Id of the consumer.
        id: u32,
    },
    /// A local operation failed, or the control channel received an invalid message.
    #[error("{}", .0.message)]
    Local(Failure),
    /// The user interrupted the program.
    #[error("interrupted by the user")]
    Interrupted,
}

impl SessionError {
    /// Returns `true` if a retry may succeed: the service is still closing the session of an earlier client, or has just lost a
    /// target.
    pub(crate) fn is_temporary(&self) -> bool {
        const CODES: [ErrorCode; 3] = [
            ErrorCode::CONNECTION_RESET,
            ErrorCode::CONNECTION_ABORTED,
            ErrorCode::NOT_CONNECTED,
        ];
        match self {
            Self::Disconnected { .. } => true,
            Self::Refused { code, .. } => CODES.contains(&ErrorCode(*code)),
            _ => false,
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let code = match &error {
            SessionError::Local(failure) => return failure.clone(),
            SessionError::Refused { code, .. } | SessionError::Unsolicited { code, .. } => {
                ErrorCode(*code)
            }
            SessionError::Unexpected { .. } | SessionError::TooManyConsumers { .. } => {
                ErrorCode::UNEXPECTED
            }
            SessionError::Timeout { .. } => ErrorCode::TIME_OUT,
            SessionError::Disconnected { .. }
            | SessionError::ConsumerLost { .. }
            | SessionError::Interrupted => ErrorCode::CONNECTION_ABORTED,
        };
        Self::new(code, error.to_string())
    }
}

/// Parameters of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionConfig {
    /// Number of workers, and of consumers that the service must create.
    pub workers: u32,
    /// Timeout of each step that depends on the service, or on the local contexts.
    pub control_timeout: Duration,
    /// Timeout for the data path to stop.
    pub halt_timeout: Duration,
    /// Extensions of the data path to announce ([`FeatureQuery::features`]); 0 for none. [`Session::features`]
    /// returns those that the service supports.
    pub features: u32,
    /// Release of the protocol to use.
    pub release: Release,
    /// Batch size requested from services of 3.0, in receive tasks; other releases have none.
    pub batch_size: u32,
}

/// Batch size of a client that submits each receive task again at once.
pub const BATCH_SIZE: u32 = 1;

/// The outstanding request.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    message_id: u32,
    correlation_id: u32,
    request: MessageType,
}

/// Control state machine of a session. See the [module](self).
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    state: State,
    deadline: Option<Instant>,
    actions: VecDeque<Action>,
    outstanding: Option<Outstanding>,
    next_message_id: u32,
    next_correlation_id: u32,
    peers: Peers,
    workers_exist: bool,
    workers_ready: bool,
    connected: bool,
    interrupted: bool,
    features: u32,
    verifier: Option<Verifier>,
    error: Option<SessionError>,
}

impl Session {
    /// Creates a session that waits for its connection. The driver limits that wait: [`Event::Failed`] ends it.
    #[must_use]
    pub fn new(config: SessionConfig) -> Self {
        Self {
            config,
            state: State::Connecting,
            deadline: None,
            actions: VecDeque::new(),
            outstanding: None,
            next_message_id: 0,
            next_correlation_id: 0,
            peers: Peers::default(),
            workers_exist: false,
            workers_ready: false,
            connected: false,
            interrupted: false,
            features: 0,
            verifier: None,
            error: None,
        }
    }

    /// Returns the next action. Call until it returns `None`.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Time at which to report [`Event::Timeout`], unless another event comes first.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// Description of the awaited event, for logs.
    #[must_use]
    pub const fn waits_for(&self) -> &'static str {
        self.state.waits_for()
    }

    /// Extensions of the data path that both sides have announced. Final from [`Action::OpenStorage`] on.
    #[must_use]
    pub const fn features(&self) -> u32 {
        self.features
    }

    /// The verifier of the storage, if both sides have announced it and the storage has one. Final from [`Action::CreateWorkers`] on.
    #[must_use]
    pub fn verifier(&self) -> Option<Verifier> {
        self.verifier.clone()
    }

    /// Result of the session, final once [`Action::Finish`] was returned.
    ///
    /// # Errors
    /// The first error that occurred.
    pub fn result(&self) -> Result<(), SessionError> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Handles an event.
    pub fn handle(&mut self, event: Event, now: Instant) {
        if self.state == State::Finished {
            return;
        }
        match event {
            Event::Connected => {
                self.connected = true;
                if self.state == State::Connecting {
                    let query = match self.config.features {
                        0 => Payload::QueryStorageRequest,
                        features => Payload::AnnounceStorageRequest(FeatureQuery { features }),
                    };
                    self.request(now, State::Querying, query);
                }
            }
            Event::Disconnected => self.disconnected(now),
            Event::Message(message) => self.message(now, message),
            Event::ConsumerAdded(id) => self.consumer_added(now, id),
            Event::ConsumerExpired(id) => self.consumer_expired(now, id),
            Event::Opened(init) => {
                if self.state == State::Opening {
                    let request =
                        Payload::init_storage_of(self.config.release, init, self.config.batch_size);
                    self.request(now, State::Initialising, request);
                }
            }
            Event::WorkersReady => {
                self.workers_ready = true;
                self.gathered(now);
            }
            Event::WorkersPrepared => {
                if self.state == State::Preparing {
                    self.request(now, State::Starting, Payload::StartStorageRequest);
                }
            }
            Event::WorkersFinished => self.workers_finished(now),
            Event::WorkersDestroyed => self.workers_destroyed(now),
            Event::Failed(failure) => self.fail(now, SessionError::Local(failure)),
            Event::Interrupted => self.interrupt(now),
            Event::Timeout => self.timed_out(now),
        }
    }

    fn timed_out(&mut self, now: Instant) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        let after = match self.state {
            State::Halting => self.config.halt_timeout,
            _ => self.config.control_timeout,
        };
        self.note(SessionError::Timeout {
            waiting_for: self.state.waits_for(),
            after,
        });
        self.outstanding = None;
        match self.state {
            // A peer that does not respond gets no further requests; contexts that do not stop are left until the
            // process exits.
            State::Destroying { shutdown: false } | State::ShuttingDown | State::Expiring => {
                self.finish()
            }
            _ => self.destroy(now, false),
        }
    }

    fn message(&mut self, now: Instant, message: Message) {
        let came = message.payload.message_type();
        let Some(expected) = self.outstanding else {
            let error = match message.payload {
                Payload::ErrorResponse(error) => SessionError::Unsolicited {
                    code: error.error_code,
                    text: text_of_peer(&error.message),
                },
                _ => SessionError::Unexpected {
                    came,
                    id: message.message_id,
                    expected: "no message".into(),
                },
            };
            return self.fail(now, error);
        };
        if message.message_id < expected.message_id {
            // Late answer to a request that has timed out.
            tracing::warn!(%came, id = message.message_id, "ignoring the late answer to an earlier request");
            return;
        }
        if message.message_id != expected.message_id
            || message.correlation_id != expected.correlation_id
        {
            let error = SessionError::Unexpected {
                came,
                id: message.message_id,
                expected: format!(
                    "{} with message id {} and correlation id {}",
                    self.state.waits_for(),
                    expected.message_id,
                    expected.correlation_id
                ),
            };
            return self.fail(now, error);
        }
        self.outstanding = None;
        match (self.state, message.payload) {
            (State::Querying, Payload::QueryStorageResponse(details)) => {
                self.described(now, details, 0);
            }
            (State::Querying, Payload::AnnouncedStorageResponse(answer)) => {
                let details = StorageDetails {
                    total_size: answer.total_size,
                    block_size: answer.block_size,
                };
                self.described(now, details, answer.features);
            }
            (State::Initialising, Payload::InitStorageResponse) => self.initialised(now),
            (State::Initialising, Payload::VerifiedInitStorageResponse(verifier)) => {
                if self.features & FEATURE_VERIFIER != 0 {
                    self.verifier = Some((&verifier).into());
                }
                self.initialised(now);
            }
            (State::Starting, Payload::StartStorageResponse) => self.started(now),
            (State::Stopping, Payload::StopStorageResponse) => self.destroy(now, true),
            (State::ShuttingDown, Payload::ShutdownResponse) => {
                self.enter(now, State::Expiring);
                self.expired();
            }
            (_, Payload::ErrorResponse(error)) => self.fail(
                now,
                SessionError::Refused {
                    request: expected.request,
                    id: expected.message_id,
                    code: error.error_code,
                    text: text_of_peer(&error.message),
                },
            ),
            (_, other) => self.fail(
                now,
                SessionError::Unexpected {
                    came: other.message_type(),
                    id: expected.message_id,
                    expected: self.state.waits_for().into(),
                },
            ),
        }
    }

    fn initialised(&mut self, now: Instant) {
        self.workers_exist = true;
        self.enter(now, State::Gathering);
        self.actions.push_back(Action::CreateWorkers);
    }

    /// Handles the description of the storage.
    fn described(&mut self, now: Instant, details: StorageDetails, features: u32) {
        if self.interrupted {
            return self.finish();
        }
        // Extensions that were not requested are not used.
        self.features = features & self.config.features;
        self.enter(now, State::Opening);
        self.actions.push_back(Action::OpenStorage(details));
    }

    fn consumer_added(&mut self, now: Instant, id: u32) {
        if !self.peers.add(id) {
            tracing::warn!(
                id,
                "ignoring a consumer of the service that was announced before"
            );
        } else if self.peers.len() > self.config.workers as usize {
            self.fail(
                now,
                SessionError::TooManyConsumers {
                    expected: self.config.workers,
                },
            );
        } else {
            self.gathered(now);
        }
    }

    fn consumer_expired(&mut self, now: Instant, id: u32) {
        if !self.peers.remove(id) {
            tracing::warn!(
                id,
                "ignoring the expiry of a consumer that was never announced"
            );
            return;
        }
        match self.state {
            State::Preparing | State::Starting | State::Running => {
                self.fail(now, SessionError::ConsumerLost { id })
            }
            _ => self.expired(),
        }
    }

    fn gathered(&mut self, now: Instant) {
        if self.state == State::Gathering
            && self.workers_ready
            && self.peers.len() == self.config.workers as usize
        {
            self.enter(now, State::Preparing);
            self.actions
                .push_back(Action::PrepareWorkers(self.peers.ids().to_vec()));
        }
    }

    fn started(&mut self, now: Instant) {
        if self.interrupted {
            self.request(now, State::Stopping, Payload::StopStorageRequest);
        } else {
            self.state = State::Running;
            self.deadline = None;
            self.actions.push_back(Action::StartDataPath);
        }
    }

    fn workers_finished(&mut self, now: Instant) {
        if !matches!(self.state, State::Running | State::Halting) {
            return;
        }
        if self.connected {
            self.request(now, State::Stopping, Payload::StopStorageRequest);
        } else {
            self.destroy(now, false);
        }
    }

    fn workers_destroyed(&mut self, now: Instant) {
        self.workers_exist = false;
        match self.state {
            State::Destroying { shutdown: true } if self.connected => {
                self.request(now, State::ShuttingDown, Payload::ShutdownRequest);
            }
            State::Destroying { .. } => self.finish(),
            _ => {}
        }
    }

    fn expired(&mut self) {
        if self.state == State::Expiring && self.peers.is_empty() {
            self.finish();
        }
    }

    fn disconnected(&mut self, now: Instant) {
        self.connected = false;
        self.outstanding = None;
        match self.state {
            // The service has answered all requests, and its consumers were destroyed with its connection.
            State::Expiring => self.finish(),
            state => {
                if matches!(self.error, Some(SessionError::ConsumerLost { .. })) {
                    // The error is a consequence of the disconnection, which is reported instead.
                    self.error = None;
                }
                self.note(SessionError::Disconnected {
                    waiting_for: state.waits_for(),
                });
                if state == State::Halting {
                    // I/Os in flight will not be answered.
                    self.actions
                        .push_back(Action::HaltDataPath { drain: false });
                }
                self.wind_down(now);
            }
        }
    }

    fn interrupt(&mut self, now: Instant) {
        self.note(SessionError::Interrupted);
        self.interrupted = true;
        match self.state {
            State::Connecting | State::Opening => self.finish(),
            State::Running => self.halt(now),
            // Each of these states has a deadline and continues with the shutdown.
            _ => {}
        }
    }

    fn fail(&mut self, now: Instant, error: SessionError) {
        self.note(error);
        self.wind_down(now);
    }

    /// Shuts the session down from any state, by the shortest path that leaves the service in a defined state.
    fn wind_down(&mut self, now: Instant) {
        match self.state {
            State::Connecting | State::Querying | State::Opening | State::Initialising => {
                self.finish()
            }
            State::Gathering | State::Preparing => self.destroy(now, false),
            State::Starting if self.connected => {
                // A service that refused to start expects a stop request next.
                self.outstanding = None;
                self.request(now, State::Stopping, Payload::StopStorageRequest);
            }
            State::Starting => self.destroy(now, false),
            State::Running => self.halt(now),
            State::Stopping => {
                self.outstanding = None;
                self.destroy(now, self.connected);
            }
            // These states continue with the shutdown by themselves.
            State::Halting | State::Destroying { .. } => {}
            State::ShuttingDown | State::Expiring => self.finish(),
            State::Finished => {}
        }
    }

    fn halt(&mut self, now: Instant) {
        self.state = State::Halting;
        self.deadline = Some(now + self.config.halt_timeout);
        self.actions.push_back(Action::HaltDataPath {
            drain: self.connected,
        });
    }

    fn destroy(&mut self, now: Instant, shutdown: bool) {
        if matches!(self.state, State::Destroying { .. }) {
            // Already requested; the request has timed out.
            return self.finish();
        }
        if self.workers_exist {
            self.enter(now, State::Destroying { shutdown });
            self.actions.push_back(Action::DestroyWorkers);
        } else {
            self.finish();
        }
    }

    fn request(&mut self, now: Instant, state: State, payload: Payload) {
        let message = Message {
            message_id: self.next_message_id,
            correlation_id: self.next_correlation_id,
            payload,
        };
        self.next_message_id += 1;
        self.next_correlation_id += 1;
        self.outstanding = Some(Outstanding {
            message_id: message.message_id,
            correlation_id: message.correlation_id,
            request: message.payload.message_type(),
        });
        self.enter(now, state);
        self.actions.push_back(Action::Send(message));
    }

    fn enter(&mut self, now: Instant, state: State) {
        tracing::debug!(from = ?self.state, to = ?state, "session");
        self.state = state;
        self.deadline = Some(now + self.config.control_timeout);
    }

    fn finish(&mut self) {
        self.state = State::Finished;
        self.deadline = None;
        self.outstanding = None;
        self.actions.push_back(Action::Finish);
    }

    /// Stores the first error, because later errors are mostly its consequences.
    fn note(&mut self, error: SessionError) {
        match &self.error {
            None => self.error = Some(error),
            Some(first) => tracing::debug!(%first, %error, "a further error"),
        }
    }
}

/// A [`Session`] and its control channel. The owner executes the actions of [`Session::poll_action`].
pub struct Driver {
    channel: ComchClientChannel,
    /// `true` while the channel may have events.
    is_open: bool,
    /// The state machine.
    pub session: Session,
}

impl Driver {
    /// Starts to connect to the service with this name.
    ///
    /// # Errors
    /// A DOCA call failed.
    pub fn connect(device: &Device, service: &str, config: SessionConfig) -> Result<Self, Failure> {
        Ok(Self {
            channel: ComchClientChannel::connect(device, service, config.control_timeout)?,
            is_open: true,
            session: Session::new(config),
        })
    }

    /// As [`connect`](Self::connect), but fails if the service does not exist, or has not accepted the connection within
    /// this time.
    pub(crate) fn try_connect(
        device: &Device,
        service: &str,
        config: SessionConfig,
        within: Duration,
    ) -> Result<Self, Failure> {
        Ok(Self {
            channel: ComchClientChannel::connect(device, service, within)?.without_waiting(),
            is_open: true,
            session: Session::new(config),
        })
    }

    /// Passes an event to the session.
    pub fn handle(&mut self, event: Event) {
        self.session.handle(event, Instant::now());
    }

    /// Sends a message to the service.
    ///
    /// # Errors
    /// The channel is broken.
    pub fn send(&mut self, message: &Message) -> Result<(), Failure> {
        self.channel.send(message)
    }

    /// Passes the events of the channel to the session; returns `true` if there were any.
    pub fn poll(&mut self) -> bool {
        let mut happened = false;
        while self.is_open {
            match self.channel.poll() {
                Ok(None) => break,
                Ok(Some(event)) => {
                    self.is_open = event != ChannelEvent::Closed;
                    self.handle(event.into());
                }
                Err(failure) => {
                    // Reported in addition to the failure: the channel can no longer be used.
                    self.handle(Event::Failed(failure));
                    self.disconnect();
                }
            }
            happened = true;
        }
        happened
    }

    /// Handles an unresponsive service as disconnected.
    pub fn disconnect(&mut self) {
        self.is_open = false;
        self.handle(Event::Disconnected);
    }

    /// Returns the device and the connection for the contexts of a worker.
    ///
    /// # Errors
    /// The channel is not connected.
    pub fn contexts(&self, device: &Device) -> Result<Contexts, Failure> {
        let connection: Option<Connection> = self.channel.connection();
        Ok(Contexts {
            device: device.clone(),
            connection: connection
                .ok_or_else(|| Failure::new(ErrorCode::NOT_CONNECTED, "the service is gone"))?,
        })
    }

    /// Waits for an event of the channel or of the waiter, for the session's deadline, or for the earliest of `deadlines`.
    pub fn wait(&self, waiter: &mut Waiter, deadlines: &[Option<Instant>]) {
        let deadlines = deadlines.iter().copied();
        let deadline = deadlines
            .chain([self.session.poll_timeout()])
            .flatten()
            .min();
        if self.is_open {
            waiter.wait(&[&self.channel], deadline);
        } else {
            waiter.wait(&[], deadline);
        }
    }

    /// Returns the channel, which the contexts of the session need until they are destroyed.
    pub(crate) fn into_channel(self) -> ComchClientChannel {
        self.channel
    }
}

#[cfg(test)]
mod tests {
    //! Scripted sessions with a simulated clock.
    use bytes::Bytes;
    use wire::control::ErrorResponse;

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
                batch_size: BATCH_SIZE,
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
                    message: "declined".into(),
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

    // Regular sessions, and invalid or refusing answers.

    #[test]
    fn verifier_is_that_of_the_init_response_if_both_sides_have_announced_it() {
        use control::verifier::{Incarnation, StorageId};
        use wire::control::AnnouncedStorage;
        let verifier = Verifier::of_one(StorageId(5), false, Incarnation(6));
        for (features, expected) in [(FEATURE_VERIFIER, Some(&verifier)), (0, None)] {
            let mut script = Script::new(1);
            script.session.config.features = u32::MAX;
            script.input(Event::Connected);
            let StorageDetails {
                total_size,
                block_size,
            } = details();
            script.sent();
            script.answer(
                0,
                Payload::AnnouncedStorageResponse(AnnouncedStorage {
                    total_size,
                    block_size,
                    features,
                    version_slots: 0,
                    last_epoch: 0,
                    last_number: 0,
                    retired_epoch: 0,
                    retired_number: 0,
                    unretired: bytes::Bytes::new(),
                }),
            );
            script.expect(&[Action::OpenStorage(details())]);
            script.input(Event::Opened(init(1))).sent();
            let answer = Payload::VerifiedInitStorageResponse((&verifier).into());
            script.answer(1, answer).expect(&[Action::CreateWorkers]);
            assert_eq!(script.session.verifier().as_ref(), expected);
        }
    }

    #[test]
    fn complete_session() {
        for workers in 1..=3 {
            let mut script = Script::to_shutting_down(workers);
            script
                .answer(4, Payload::ShutdownResponse)
                .expect(&[Action::Finish]);
            assert_eq!(script.session.result(), Ok(()));
            assert_eq!(script.session.poll_timeout(), None);
        }
    }

    #[test]
    fn init_request_is_that_of_the_opened_storage() {
        let mut script = Script::to_opening(2);
        script.input(Event::Opened(init(2)));
        assert_eq!(script.sent().payload, Payload::InitStorageRequest(init(2)));
    }

    #[test]
    fn consumers_may_come_before_the_init_response_and_after_the_contexts() {
        let mut early = Script::to_initialising(2);
        early
            .input(Event::ConsumerAdded(7))
            .input(Event::ConsumerAdded(5))
            .expect(&[]);
        early
            .answer(1, Payload::InitStorageResponse)
            .expect(&[Action::CreateWorkers]);
        early
            .input(Event::WorkersReady)
            .expect(&[Action::PrepareWorkers(vec![7, 5])]);

        let mut late = Script::to_gathering(2);
        late.input(Event::WorkersReady)
            .input(Event::ConsumerAdded(7))
            .expect(&[]);
        late.input(Event::ConsumerAdded(7)).expect(&[]);
        late.input(Event::ConsumerAdded(5))
            .expect(&[Action::PrepareWorkers(vec![7, 5])]);
    }

    #[test]
    fn own_contexts_are_destroyed_before_shutdown() {
        let mut script = Script::to_stopping(1);
        script
            .answer(3, Payload::StopStorageResponse)
            .expect(&[Action::DestroyWorkers]);
        script
            .input(Event::WorkersDestroyed)
            .expect_request(MessageType::ShutdownRequest, 4);
    }

    #[test]
    fn shutdown_waits_for_consumers_of_the_service_with_a_timeout() {
        let slow = || {
            let mut script = Script::to_stopping(2);
            script
                .answer(3, Payload::StopStorageResponse)
                .expect(&[Action::DestroyWorkers]);
            script
                .input(Event::WorkersDestroyed)
                .expect_request(MessageType::ShutdownRequest, 4);
            script.answer(4, Payload::ShutdownResponse).expect(&[]);
            script
        };
        let mut script = slow();
        script.input(Event::ConsumerExpired(11)).expect(&[]);
        script
            .input(Event::ConsumerExpired(10))
            .expect(&[Action::Finish]);
        assert_eq!(script.session.result(), Ok(()));

        let mut script = slow();
        script.time_out().expect(&[Action::Finish]);
        assert_eq!(
            script.error(),
            SessionError::Timeout {
                waiting_for: "the service's consumers to expire",
                after: TIMEOUT
            }
        );

        let mut script = slow();
        script.input(Event::Disconnected).expect(&[Action::Finish]);
        assert_eq!(
            script.session.result(),
            Ok(()),
            "consumers go with their connection"
        );
    }

    #[test]
    fn a_refusal_names_the_request_and_the_text() {
        let refusal = |request, id| SessionError::Refused {
            request,
            id,
            code: 6,
            text: "declined".into(),
        };

        let mut script = Script::to_querying(1);
        script.refuse(0).expect(&[Action::Finish]);
        assert_eq!(script.error(), refusal(MessageType::QueryStorageRequest, 0));

        let mut script = Script::to_initialising(1);
        script.refuse(1).expect(&[Action::Finish]);
        assert_eq!(script.error(), refusal(MessageType::InitStorageRequest, 1));

        // From here on, the remaining requests of the session follow.
        let mut script = Script::to_starting(1);
        script
            .refuse(2)
            .expect_request(MessageType::StopStorageRequest, 3);
        script.refuse(3).expect(&[Action::DestroyWorkers]);
        script
            .input(Event::WorkersDestroyed)
            .expect_request(MessageType::ShutdownRequest, 4);
        script.refuse(4).expect(&[Action::Finish]);
        assert_eq!(script.error(), refusal(MessageType::StartStorageRequest, 2));

        let text = script.error().to_string();
        for part in [
            "start_storage_request",
            "DOCA_ERROR_INVALID_VALUE",
            "declined",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn unsolicited_error_ends_the_run() {
        let mut script = Script::to_running(1);
        script
            .refuse(9)
            .expect(&[Action::HaltDataPath { drain: true }]);
        script
            .input(Event::WorkersFinished)
            .expect_request(MessageType::StopStorageRequest, 3);
        assert_eq!(
            script.error(),
            SessionError::Unsolicited {
                code: 6,
                text: "declined".into()
            }
        );
    }

    #[test]
    fn wrong_answers_are_errors() {
        let mut script = Script::to_querying(1);
        script
            .answer(0, Payload::InitStorageResponse)
            .expect(&[Action::Finish]);
        assert!(matches!(
            script.error(),
            SessionError::Unexpected {
                came: MessageType::InitStorageResponse,
                id: 0,
                ..
            }
        ));

        let mut script = Script::to_querying(1);
        script
            .answer(1, Payload::QueryStorageResponse(details()))
            .expect(&[Action::Finish]);
        assert!(matches!(
            script.error(),
            SessionError::Unexpected { id: 1, .. }
        ));

        let mut script = Script::to_querying(1);
        let foreign = Message {
            message_id: 0,
            correlation_id: 3,
            payload: Payload::QueryStorageResponse(details()),
        };
        script
            .input(Event::Message(foreign))
            .expect(&[Action::Finish]);
        assert!(matches!(script.error(), SessionError::Unexpected { .. }));

        let mut script = Script::to_gathering(1);
        script
            .answer(1, Payload::InitStorageResponse)
            .expect(&[Action::DestroyWorkers]);
        assert!(matches!(script.error(), SessionError::Unexpected { .. }));
    }

    #[test]
    fn late_answers_to_earlier_requests_are_ignored() {
        let mut script = Script::to_initialising(1);
        script
            .answer(0, Payload::QueryStorageResponse(details()))
            .expect(&[]);
        script
            .answer(1, Payload::InitStorageResponse)
            .expect(&[Action::CreateWorkers]);
        assert_eq!(script.session.result(), Ok(()));
    }

    #[test]
    fn storage_is_initialised_in_the_release_that_was_chosen() {
        for (release, batch_size) in [
            (Release::V3_0, Some(1)),
            (Release::V3_1, None),
            (Release::V3_2, None),
        ] {
            let mut script = Script::to_opening(1);
            script.session.config.release = release;
            script.input(Event::Opened(init(1)));
            let request = script.sent().payload;
            assert_eq!(request.as_init_storage(), Some((init(1), batch_size)));
        }
    }

    // Irregular ends of sessions: timeouts, interruptions, disconnections, local failures.

    #[test]
    fn every_step_is_bounded() {
        // Script, and the action that follows the timeout; `None` if the session ends.
        let steps: [(Script, Option<Action>); 9] = [
            (Script::to_querying(1), None),
            (Script::to_opening(1), None),
            (Script::to_initialising(1), None),
            (Script::to_gathering(1), Some(Action::DestroyWorkers)),
            (Script::to_preparing(1), Some(Action::DestroyWorkers)),
            (Script::to_starting(1), Some(Action::DestroyWorkers)),
            (Script::to_stopping(1), Some(Action::DestroyWorkers)),
            (Script::to_destroying(1), None),
            (Script::to_shutting_down(1), None),
        ];
        for (mut script, next) in steps {
            let waiting_for = script.session.waits_for();
            let before = script.now;
            script.session.handle(Event::Timeout, before);
            assert_eq!(script.actions(), [], "too early: {waiting_for}");
            script.time_out();
            assert_eq!(script.now - before, TIMEOUT);
            match next {
                Some(action) => {
                    script.expect(&[action]);
                    script.time_out().expect(&[Action::Finish]);
                }
                None => {
                    script.expect(&[Action::Finish]);
                }
            }
            assert_eq!(
                script.error(),
                SessionError::Timeout {
                    waiting_for,
                    after: TIMEOUT
                }
            );
        }
    }

    #[test]
    fn interruption_before_init_ends_the_session() {
        for mut script in [Script::new(1), Script::to_opening(1)] {
            script.input(Event::Interrupted).expect(&[Action::Finish]);
            assert_eq!(script.error(), SessionError::Interrupted);
        }
        let mut script = Script::to_querying(1);
        script.input(Event::Interrupted).expect(&[]);
        script
            .answer(0, Payload::QueryStorageResponse(details()))
            .expect(&[Action::Finish]);
        assert_eq!(script.error(), SessionError::Interrupted);
    }

    #[test]
    fn interruption_after_init_shuts_down_without_io() {
        let mut script = Script::to_initialising(1);
        script.input(Event::Interrupted).expect(&[]);
        script
            .answer(1, Payload::InitStorageResponse)
            .expect(&[Action::CreateWorkers]);
        script
            .input(Event::ConsumerAdded(1))
            .input(Event::WorkersReady)
            .expect(&[Action::PrepareWorkers(vec![1])]);
        script
            .input(Event::WorkersPrepared)
            .expect_request(MessageType::StartStorageRequest, 2);
        script
            .answer(2, Payload::StartStorageResponse)
            .expect_request(MessageType::StopStorageRequest, 3);
        script.input(Event::ConsumerExpired(1));
        script
            .answer(3, Payload::StopStorageResponse)
            .expect(&[Action::DestroyWorkers]);
        script
            .input(Event::WorkersDestroyed)
            .expect_request(MessageType::ShutdownRequest, 4);
        script
            .answer(4, Payload::ShutdownResponse)
            .expect(&[Action::Finish]);
        assert_eq!(script.error(), SessionError::Interrupted);
    }

    #[test]
    fn an_interrupted_run_is_halted_and_stopped() {
        let mut script = Script::to_running(1);
        script
            .input(Event::Interrupted)
            .expect(&[Action::HaltDataPath { drain: true }]);
        script
            .input(Event::WorkersFinished)
            .expect_request(MessageType::StopStorageRequest, 3);
        assert_eq!(script.error(), SessionError::Interrupted);

        let mut stuck = Script::to_running(1);
        let before = stuck.now;
        stuck
            .input(Event::Interrupted)
            .expect(&[Action::HaltDataPath { drain: true }]);
        stuck.time_out().expect(&[Action::DestroyWorkers]);
        assert_eq!(stuck.now - before, HALT);
    }

    #[test]
    fn disconnection_of_the_service_ends_the_session() {
        let mut script = Script::to_running(1);
        script
            .input(Event::Disconnected)
            .expect(&[Action::HaltDataPath { drain: false }]);
        script
            .input(Event::WorkersFinished)
            .expect(&[Action::DestroyWorkers]);
        script
            .input(Event::WorkersDestroyed)
            .expect(&[Action::Finish]);
        assert_eq!(
            script.error(),
            SessionError::Disconnected {
                waiting_for: "the operations to complete"
            }
        );

        for mut script in [
            Script::to_gathering(1),
            Script::to_preparing(1),
            Script::to_starting(1),
            Script::to_stopping(1),
        ] {
            script
                .input(Event::Disconnected)
                .expect(&[Action::DestroyWorkers]);
            script
                .input(Event::WorkersDestroyed)
                .expect(&[Action::Finish]);
        }
        for mut script in [
            Script::to_querying(1),
            Script::to_initialising(1),
            Script::to_shutting_down(1),
        ] {
            script.input(Event::Disconnected).expect(&[Action::Finish]);
            assert!(matches!(script.error(), SessionError::Disconnected { .. }));
        }
        let mut script = Script::to_destroying(1);
        script.input(Event::Disconnected).expect(&[]);
        script
            .input(Event::WorkersDestroyed)
            .expect(&[Action::Finish]);
    }

    #[test]
    fn consumer_lost_during_the_run_is_an_error() {
        let mut script = Script::to_running(1);
        script
            .input(Event::ConsumerExpired(10))
            .expect(&[Action::HaltDataPath { drain: true }]);
        assert_eq!(script.error(), SessionError::ConsumerLost { id: 10 });

        script
            .input(Event::Disconnected)
            .expect(&[Action::HaltDataPath { drain: false }]);
        let expected = SessionError::Disconnected {
            waiting_for: "the operations in flight",
        };
        assert_eq!(
            script.error(),
            expected,
            "the consumer went with the service"
        );

        let mut script = Script::to_stopping(1);
        script
            .input(Event::ConsumerExpired(10))
            .input(Event::ConsumerExpired(99))
            .expect(&[]);
        assert_eq!(script.session.result(), Ok(()));
    }

    #[test]
    fn expiry_of_an_unknown_consumer_is_ignored() {
        let mut script = Script::to_running(1);
        script.input(Event::ConsumerExpired(99)).expect(&[]);
        assert_eq!(script.session.result(), Ok(()));
    }

    #[test]
    fn more_consumers_than_workers_are_refused() {
        let mut script = Script::to_gathering(1);
        script
            .input(Event::ConsumerAdded(1))
            .input(Event::ConsumerAdded(2))
            .expect(&[Action::DestroyWorkers]);
        assert_eq!(
            script.error(),
            SessionError::TooManyConsumers { expected: 1 }
        );
    }

    #[test]
    fn local_failure_is_reported_and_shuts_down() {
        let mut script = Script::to_opening(1);
        let failure = Failure::invalid("--local-io-region-size");
        script
            .input(Event::Failed(failure.clone()))
            .expect(&[Action::Finish]);
        assert_eq!(Failure::from(script.error()), failure);

        let mut script = Script::new(1);
        script
            .input(Event::Failed(failure.clone()))
            .expect(&[Action::Finish]);
        assert_eq!(script.error(), SessionError::Local(failure.clone()));

        let mut script = Script::to_gathering(1);
        script
            .input(Event::Failed(failure.clone()))
            .expect(&[Action::DestroyWorkers]);
        script
            .input(Event::WorkersDestroyed)
            .expect(&[Action::Finish]);
        assert_eq!(script.error(), SessionError::Local(failure));
    }

    #[test]
    fn failures_carry_the_code_of_the_service() {
        let mut script = Script::to_querying(1);
        script.refuse(0);
        assert_eq!(
            Failure::from(script.error()).code,
            doca::ErrorCode::INVALID_VALUE
        );
    }

    #[test]
    fn ended_session_ignores_events() {
        let mut script = Script::to_querying(1);
        script.refuse(0).expect(&[Action::Finish]);
        let error = script.error();
        script
            .input(Event::Interrupted)
            .input(Event::Connected)
            .input(Event::WorkersReady)
            .expect(&[]);
        assert_eq!(script.error(), error);
    }
}
