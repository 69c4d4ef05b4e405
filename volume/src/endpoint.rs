//! Submission and completion of requests to one worker of the service: a Comch producer and consumer, the tasks that send and receive
//! their I/O messages, and the [requests](crate::requests) in flight.
//!
//! It is what a [`Queue`](crate::Queue) has in each session, and what the initiator's workers use as it is. An endpoint belongs to one session: it
//! neither divides, orders nor repeats requests. Where their data is, in memory that was exported to the service, is up to the caller.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use doca::{
    Access, Buf, BufInventory, Connection, Consumer, CtxState, Device, ErrorCode, Event, Mmap, Pe,
    PeStats, Producer, Task,
};
use role_common::Failure;
use role_common::messages::Messages;
use role_common::submit::DeferredTasks;
use thiserror::Error;
use wire::io_message;
use wire::release::IoLayout;

use crate::requests::{BadAnswer, Completed, Request, Requests};

/// Bit of the token of a send task; the others are the number of the request. The token of a receive task is its index.
const SEND: u64 = 1 << 32;

/// Receive tasks for each request that may be in flight, as in the reference.
const RECEIVES_PER_REQUEST: u32 = 2;

/// Parts that the contexts of a worker are made from.
#[derive(Clone, Debug)]
pub struct Contexts {
    /// The device that the I/O messages are registered with.
    pub device: Device,
    /// The connection to the service.
    pub connection: Connection,
}

/// A buf with the task that sends or receives it.
#[derive(Debug)]
struct Message {
    task: Task,
    buf: Buf,
}

/// Result of a [poll](Endpoint::poll).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// Nothing has happened.
    Nothing,
    /// Something has happened that completes no request.
    Progress,
    /// A request is complete.
    Completed(Completed),
}

/// Failure of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// An answer fits no request. The requests in flight may still complete.
    #[error("the service sent an answer that fits no request: {0}")]
    Answer(BadAnswer),
    /// A DOCA call or task failed. Requests in flight do not complete.
    #[error("{doing}: {} ({})", .code.name(), .code.description())]
    Doca {
        /// The operation that failed.
        doing: &'static str,
        /// The error.
        code: ErrorCode,
    },
}

impl EndpointError {
    #[cold]
    fn doca(doing: &'static str, code: ErrorCode) -> Self {
        Self::Doca { doing, code }
    }
}

impl From<EndpointError> for Failure {
    fn from(error: EndpointError) -> Self {
        let code = match &error {
            EndpointError::Answer(_) => ErrorCode::UNEXPECTED,
            EndpointError::Doca { code, .. } => *code,
        };
        Self::new(code, error.to_string())
    }
}

/// A worker's producer and consumer, with as many prepared tasks as requests may be in flight. Used by one thread at a time.
#[derive(Debug)]
pub struct Endpoint {
    // Dropped in this order: what stops first comes first, and the progress engine that stopping needs comes last.
    /// Receive tasks, two for each request.
    receives: Vec<Message>,
    /// Send tasks, one for each request.
    sends: Vec<Message>,
    /// Send tasks that the service has no room for yet.
    deferred: DeferredTasks,
    requests: Requests,
    consumer: Consumer,
    producer: Producer,
    inventory: BufInventory,
    mmap: Mmap,
    /// The places of the receives, and then those of the sends.
    messages: Messages,
    pe: Pe,
    count: u32,
}

impl Endpoint {
    /// Creates and starts the contexts for `count` requests in flight. They run once [`Endpoint::ready`] says so.
    ///
    /// # Errors
    /// A DOCA call failed.
    pub fn new(contexts: &Contexts, count: u32) -> Result<Self, Failure> {
        let tasks = count as usize * (RECEIVES_PER_REQUEST as usize + 1);
        let messages = Messages::new(tasks)?;
        let mmap = Mmap::register(
            &contexts.device,
            Arc::clone(messages.region()),
            Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE,
        )?;
        let inventory = BufInventory::new(tasks)?;
        let pe = Pe::new()?;
        let producer = Producer::start(&pe, &contexts.connection, count)?;
        let receives = count * RECEIVES_PER_REQUEST;
        let consumer = Consumer::start(&pe, &contexts.connection, &mmap, receives)?;
        Ok(Self {
            receives: Vec::with_capacity(receives as usize),
            sends: Vec::with_capacity(count as usize),
            deferred: DeferredTasks::with_capacity(count as usize),
            requests: Requests::new(count),
            consumer,
            producer,
            inventory,
            mmap,
            messages,
            pe,
            count,
        })
    }

    /// Progresses the contexts; returns `true` when both run.
    pub fn ready(&mut self) -> bool {
        while self.pe.poll().is_some() {}
        self.consumer.state() == CtxState::Running && self.producer.state() == CtxState::Running
    }

    /// Makes the tasks, for the service's consumer with this id.
    ///
    /// # Errors
    /// A DOCA call failed.
    pub fn prepare(&mut self, consumer: u32) -> Result<(), Failure> {
        let size = io_message::SIZE;
        let receives = u64::from(self.count * RECEIVES_PER_REQUEST);
        for index in 0..receives {
            let buf = self.inventory.buf(&self.mmap, index * size as u64, size)?;
            let task = self.consumer.post_recv_task(&buf, index)?;
            self.receives.push(Message { task, buf });
        }
        for index in 0..u64::from(self.count) {
            let buf =
                self.inventory
                    .buf_with_data(&self.mmap, (receives + index) * size as u64, size)?;
            let task = self.producer.send_task(&buf, consumer, SEND | index)?;
            self.sends.push(Message { task, buf });
        }
        Ok(())
    }

    /// Posts all receive tasks. Comes before the first request.
    ///
    /// # Errors
    /// The submission of one failed.
    pub fn begin(&self) -> Result<(), EndpointError> {
        self.receives
            .iter()
            .try_for_each(|message| message.task.submit())
            .map_err(|code| EndpointError::doca("posting a receive task", code))
    }

    /// Sends request `number`, which is not in flight. If the service has no room for it, a later [`poll`](Self::poll) does.
    ///
    /// # Errors
    /// The task could not be submitted: the endpoint cannot be used any more.
    ///
    /// # Panics
    /// There is no such number.
    #[inline(always)]
    pub fn send<L: IoLayout>(
        &mut self,
        layout: L,
        number: u32,
        request: &Request,
    ) -> Result<(), EndpointError> {
        // The buf has all of its place as its data, and what was there before has been sent.
        let bytes = self.requests.begin(layout, number, request);
        let place = self.receives.len() + number as usize;
        self.messages
            .put(place, &bytes)
            .map_err(|error| EndpointError::doca("writing a request", error.code))?;
        let task = &self.sends[number as usize].task;
        self.deferred
            .submit(u64::from(number), task)
            .map_err(|code| EndpointError::doca("submitting a request", code))
    }

    /// Makes progress, and takes one event. It may sleep briefly when there is nothing to do.
    ///
    /// # Errors
    /// An answer fits no request, or the endpoint cannot be used any more.
    #[inline(always)]
    pub fn poll<L: IoLayout>(&mut self, layout: L) -> Result<Polled, EndpointError> {
        if !self.deferred.is_empty() {
            self.retry()?;
        }
        let completion = match self.pe.poll_completion() {
            doca::Polled::Completion(completion) => completion,
            doca::Polled::Other => return self.happened(),
            doca::Polled::Nothing => return Ok(Polled::Nothing),
        };
        let is_send = completion.token & SEND != 0;
        let completed = match completion.result {
            Ok(()) if is_send => self.requests.sent((completion.token & !SEND) as u32),
            Ok(()) => self.received(layout, completion.token as usize)?,
            Err(code) if is_send => return Err(EndpointError::doca("sending a request", code)),
            Err(code) => return Err(EndpointError::doca("receiving an answer", code)),
        };
        Ok(completed.map_or(Polled::Progress, Polled::Completed))
    }

    #[inline(always)]
    fn received<L: IoLayout>(
        &mut self,
        layout: L,
        index: usize,
    ) -> Result<Option<Completed>, EndpointError> {
        // Copied before it is looked at, so that the receive task can be posted again at once.
        let mut bytes = [0; io_message::SIZE];
        let message = &self.receives[index];
        let length = self
            .messages
            .received(index, &message.buf, &mut bytes)
            .and_then(|length| message.buf.reset_data().map(|()| length))
            .map_err(|error| EndpointError::doca("reading an answer", error.code))?;
        message
            .task
            .submit()
            .map_err(|code| EndpointError::doca("posting a receive task again", code))?;
        self.requests
            .answered(layout, &bytes, length)
            .map_err(EndpointError::Answer)
    }

    /// An event that is no completion of a task.
    #[cold]
    fn happened(&self) -> Result<Polled, EndpointError> {
        match self.pe.poll() {
            Some(Event::State {
                next: CtxState::Stopping | CtxState::Idle,
                ..
            }) => Err(EndpointError::doca(
                "keeping consumer and producer running",
                ErrorCode::CONNECTION_RESET,
            )),
            _ => Ok(Polled::Progress),
        }
    }

    /// Sends what the service had no room for, as far as it has room now.
    #[cold]
    fn retry(&mut self) -> Result<(), EndpointError> {
        let sends = &self.sends;
        self.deferred
            .retry(|index| &sends[index as usize].task)
            .map_err(|(_, code)| EndpointError::doca("submitting a request", code))
    }

    /// Returns `true` if requests wait until the service has room for them: [`poll`](Self::poll) has to be called.
    #[must_use]
    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Counts of the progress engine.
    #[must_use]
    pub fn stats(&self) -> PeStats {
        self.pe.stats()
    }

    /// Asks for the [descriptor](AsFd) to become readable with the next event; `false` if there is one already.
    ///
    /// # Errors
    /// The errors of [`Pe::arm`].
    pub fn arm(&self) -> doca::Result<bool> {
        self.pe.arm()
    }

    /// Takes back [`arm`](Self::arm).
    ///
    /// # Errors
    /// The errors of [`Pe::disarm`].
    pub fn disarm(&self) -> doca::Result<()> {
        self.pe.disarm()
    }
}

/// The descriptor of the progress engine.
impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pe.as_fd()
    }
}
