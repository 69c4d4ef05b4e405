//! Submission and completion of requests to one worker of the service: a Comch producer and consumer, the tasks that
//! send and receive their I/O messages, and the [requests](self) in flight.
//!
//! A [`Queue`](crate::Queue) has one endpoint in each session; the initiator's workers use it directly. An endpoint
//! belongs to one session: it does not split, order or repeat requests. The caller manages the memory for the data,
//! which is exported to the service.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use control::Failure;
use doca::{
    Access, BufInventory, CompletionHandler, Connection, Consumer, CtxState, Device, ErrorCode,
    Event, MemoryRegion, Mmap, OneBuffer, PeStats, Producer, Refused, Slot, Slots, WorkerPe,
};
use thiserror::Error;
use wire::DecodeError;
use wire::io_message::{IoMessage, IoMessageType, Repr, SIZE};
use wire::release::{CorrelationId as _, IoLayout};

/// Receive tasks for each request that may be in flight, as in the reference.
const RECEIVES_PER_REQUEST: u32 = 2;

/// Index of a slot's only task.
const TASK: usize = 0;

/// Device and connection for the contexts of a worker.
#[derive(Clone, Debug)]
pub struct Contexts {
    /// Device that the memory of I/O messages is registered with.
    pub device: Device,
    /// The connection to the service.
    pub connection: Connection,
}

/// Owner of the requests of an endpoint. Its methods are called during [`Endpoint::poll`].
pub trait Client: Sized + 'static {
    /// Requests and tasks, as returned by [`Endpoint::begin`].
    fn lane(&mut self) -> &mut Lane;

    /// Passes an answer to [`Lane::answered`], with the layout of the session's I/O messages.
    ///
    /// # Errors
    /// The errors of [`Lane::answered`].
    fn answered(
        &mut self,
        bytes: &[u8; SIZE],
        length: usize,
    ) -> Result<Option<Completed>, BadAnswer>;

    /// Handles a completed request, whose number can then be reused.
    fn completed(&mut self, request: Completed);

    /// Handles an answer that matches no request, or a failure of the endpoint. Further failures may be consequences of the first.
    fn failed(&mut self, error: EndpointError);
}

/// Failure of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// An answer matches no request. The requests in flight may still complete.
    #[error("the service sent an answer that fits no request: {0}")]
    Answer(BadAnswer),
    /// A DOCA call or task failed. Requests in flight do not complete.
    #[error("{doing}: {} ({})", .code.name(), .code.description())]
    Doca {
        /// The operation that failed.
        doing: &'static str,
        /// Result of the request, as a `doca_error_t`.
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

/// Handles the receipt of an answer.
struct AnswerReceived<C>(std::marker::PhantomData<C>);
/// Handles the completed send of a request.
struct RequestSent<C>(std::marker::PhantomData<C>);

impl<C: Client> CompletionHandler for AnswerReceived<C> {
    type Worker = C;
    type State = ();
    type Buffers = OneBuffer;

    #[inline(always)]
    fn completed(client: &mut C, mut slot: Slot<()>, result: Result<(), ErrorCode>) {
        client.lane().completions += 1;
        if let Err(code) = result {
            return client.failed(EndpointError::doca("receiving an answer", code));
        }
        // Copied before it is parsed, so that the receive task can be resubmitted immediately.
        let mut bytes = [0; SIZE];
        let length = slot.data_len();
        if !slot.read(&mut bytes) {
            return client.failed(EndpointError::doca("reading an answer", ErrorCode::TOO_BIG));
        }
        slot.reset_data();
        if let Err(Refused { code, .. }) = slot.submit::<TASK>() {
            client.failed(EndpointError::doca("posting a receive task again", code));
        }
        match client.answered(&bytes, length) {
            Ok(Some(request)) => client.completed(request),
            Ok(None) => {}
            Err(answer) => client.failed(EndpointError::Answer(answer)),
        }
    }
}

impl<C: Client> CompletionHandler for RequestSent<C> {
    type Worker = C;
    type State = ();
    type Buffers = OneBuffer;

    #[inline(always)]
    fn completed(client: &mut C, slot: Slot<()>, result: Result<(), ErrorCode>) {
        let lane = client.lane();
        lane.completions += 1;
        if let Err(code) = result {
            return client.failed(EndpointError::doca("sending a request", code));
        }
        let number = slot.index();
        if let Some(place) = lane.sends.get_mut(number) {
            *place = Some(slot);
        }
        if let Some(request) = lane.requests.sent(number as u32) {
            client.completed(request);
        }
    }
}

/// Requests of an endpoint and the tasks that send them. Owned by the [`Client`] from [`Endpoint::begin`] to [`Endpoint::end`].
#[derive(Debug, Default)]
pub struct Lane {
    requests: Requests,
    /// Send slots by request number; `None` while the message is being sent.
    sends: Box<[Option<Slot<()>>]>,
    /// Messages that wait for receive credits of the service, in order.
    deferred: VecDeque<Slot<()>>,
    /// Number of completed tasks, wrapping.
    completions: u64,
}

impl Lane {
    /// Sends request `number`, which must not be in flight. Without receive credits of the service, it is queued for a later
    /// [`poll`](Endpoint::poll).
    ///
    /// # Errors
    /// The task could not be submitted; the endpoint can no longer be used.
    ///
    /// # Panics
    /// If the number is out of range.
    #[inline(always)]
    pub fn send<L: IoLayout>(
        &mut self,
        layout: L,
        number: u32,
        request: &Request,
    ) -> Result<(), EndpointError> {
        // The slot's data range is its whole buffer, and its previous message was sent.
        let bytes = self.requests.begin(layout, number, request);
        let is_written = match &mut self.sends[number as usize] {
            Some(slot) => slot.write(&bytes),
            None => false,
        };
        match self.sends[number as usize].take() {
            Some(slot) if is_written => match slot.submit::<TASK>() {
                Ok(()) => Ok(()),
                Err(refused) => self.refused(refused),
            },
            _ => Err(EndpointError::doca(
                "writing a request",
                ErrorCode::BAD_STATE,
            )),
        }
    }

    /// Checks an answer, of which `length` bytes were received. Returns the request that it completes.
    ///
    /// # Errors
    /// The answer matches no request.
    #[inline(always)]
    pub fn answered<L: IoLayout>(
        &mut self,
        layout: L,
        bytes: &[u8; SIZE],
        length: usize,
    ) -> Result<Option<Completed>, BadAnswer> {
        self.requests.answered(layout, bytes, length)
    }

    /// Returns `true` if requests wait for receive credits of the service: [`Endpoint::poll`] must be called.
    #[must_use]
    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    #[cold]
    fn refused(&mut self, refused: Refused<()>) -> Result<(), EndpointError> {
        if refused.code != ErrorCode::AGAIN {
            return Err(EndpointError::doca("submitting a request", refused.code));
        }
        self.deferred.push_back(refused.slot);
        Ok(())
    }

    /// Sends deferred requests in order, until the service has no receive credits.
    #[cold]
    fn retry(&mut self) -> Result<(), EndpointError> {
        while let Some(slot) = self.deferred.pop_front() {
            match slot.submit::<TASK>() {
                Ok(()) => {}
                Err(Refused {
                    slot,
                    code: ErrorCode::AGAIN,
                }) => {
                    self.deferred.push_front(slot);
                    break;
                }
                Err(refused) => {
                    return Err(EndpointError::doca("submitting a request", refused.code));
                }
            }
        }
        Ok(())
    }
}

/// A worker's producer and consumer, with as many prepared tasks as requests may be in flight. Used by one thread at a time.
#[derive(Debug)]
pub struct Endpoint<C> {
    // Drop order: each context before the objects that it needs to stop, and the progress engine last.
    /// Receive tasks, two per request; `None` once the endpoint has [begun](Self::begin).
    receives: Option<Slots<()>>,
    /// Empty while a client owns the lane.
    lane: Lane,
    consumer: Consumer,
    producer: Producer,
    inventory: BufInventory,
    /// Memory of received messages, followed by that of sent ones.
    mmap: Mmap,
    pe: WorkerPe<C>,
    count: u32,
}

impl<C: Client> Endpoint<C> {
    /// Creates and starts contexts for `count` requests in flight. [`Endpoint::ready`] reports when they are running.
    ///
    /// # Errors
    /// A DOCA call failed.
    pub fn new(contexts: &Contexts, count: u32) -> Result<Self, Failure> {
        let tasks = count as usize * (RECEIVES_PER_REQUEST as usize + 1);
        let mmap = Mmap::register(
            &contexts.device,
            MemoryRegion::new(tasks.saturating_mul(SIZE))?,
            Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE,
        )?;
        let inventory = BufInventory::new(tasks)?;
        let pe = WorkerPe::new()?;
        let connection = &contexts.connection;
        let producer = Producer::start_with::<RequestSent<C>>(&pe, connection, count)?;
        let receives = count * RECEIVES_PER_REQUEST;
        let consumer = Consumer::start_with::<AnswerReceived<C>>(&pe, connection, &mmap, receives)?;
        Ok(Self {
            receives: None,
            lane: Lane::default(),
            consumer,
            producer,
            inventory,
            mmap,
            pe,
            count,
        })
    }

    /// Makes progress; returns `true` once both contexts are running.
    pub fn ready(&mut self) -> bool {
        while self.pe.poll().is_some() {}
        self.consumer.state() == CtxState::Running && self.producer.state() == CtxState::Running
    }

    /// Allocates the tasks, for the service's consumer with this id.
    ///
    /// # Errors
    /// A DOCA call failed.
    pub fn prepare(&mut self, consumer: u32) -> Result<(), Failure> {
        let (size, count) = (SIZE as u32, self.count as usize);
        let received = count * RECEIVES_PER_REQUEST as usize;
        let slots = |place: usize, count: usize| {
            let range = (place * SIZE, size, count);
            Slots::new(&self.pe, &self.inventory, &self.mmap, range, |_| ())
        };
        let receives = slots(0, received)?;
        self.consumer
            .receive_into::<TASK, AnswerReceived<C>>(&receives)?;
        let sends = slots(received, count)?;
        self.producer
            .send_from::<TASK, RequestSent<C>>(&sends, consumer)?;
        let mut sends: Vec<_> = sends.into_iter().collect();
        for slot in &mut sends {
            slot.write_data(&[0; SIZE])?;
        }
        self.receives = Some(receives);
        self.lane = Lane {
            requests: Requests::new(self.count),
            sends: sends.into_iter().map(Some).collect(),
            deferred: VecDeque::with_capacity(count),
            completions: 0,
        };
        Ok(())
    }

    /// Submits all receive tasks, and returns the lane. Must be called before the first request.
    ///
    /// # Errors
    /// A submission failed.
    pub fn begin(&mut self) -> Result<Lane, EndpointError> {
        for slot in self.receives.take().into_iter().flatten() {
            slot.submit::<TASK>()
                .map_err(|refused| EndpointError::doca("posting a receive task", refused.code))?;
        }
        Ok(std::mem::take(&mut self.lane))
    }

    /// Takes ownership of the lane back. Must be called before the endpoint is dropped or moved to another thread.
    pub fn end(&mut self, lane: Lane) {
        self.lane = lane;
    }

    /// Makes progress once, and passes completed requests to the client; returns `true` if there was any event. May sleep
    /// briefly when idle.
    #[inline(always)]
    pub fn poll(&mut self, client: &mut C) -> bool {
        if client.lane().has_deferred()
            && let Err(error) = client.lane().retry()
        {
            client.failed(error);
            return true;
        }
        let before = client.lane().completions;
        if self.pe.progress(client) {
            self.happened(client);
            return true;
        }
        client.lane().completions != before
    }

    /// Handles an event that is not a completion.
    #[cold]
    fn happened(&self, client: &mut C) {
        if let Some(Event::State {
            next: CtxState::Stopping | CtxState::Idle,
            ..
        }) = self.pe.poll()
        {
            client.failed(EndpointError::doca(
                "keeping consumer and producer running",
                ErrorCode::CONNECTION_RESET,
            ));
        }
    }

    /// Counters of the progress engine.
    #[must_use]
    pub fn stats(&self) -> PeStats {
        self.pe.stats()
    }

    /// Arms the [descriptor](AsFd) to become readable with the next event; `false` if an event is already pending.
    ///
    /// # Errors
    /// As [`doca::Pe::arm`].
    pub fn arm(&self) -> doca::Result<bool> {
        self.pe.arm()
    }

    /// Reverts [`arm`](Self::arm).
    ///
    /// # Errors
    /// As [`doca::Pe::disarm`].
    pub fn disarm(&self) -> doca::Result<()> {
        self.pe.disarm()
    }
}

/// Descriptor of the progress engine.
impl<C: Client> AsFd for Endpoint<C> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pe.as_fd()
    }
}

/// A read, a write or a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub message_type: IoMessageType,
    /// Offset in the storage in bytes.
    pub storage_offset: u64,
    /// Offset in the exported memory in bytes.
    pub memory_offset: u64,
    /// Length in bytes.
    pub size: u32,
}

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Number, free for another request.
    pub number: u32,
    /// `doca_error_t` of the result.
    pub result: u32,
}

/// An answer that matches no request: the service violates the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadAnswer {
    /// The message is not an I/O message.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The message is not a result.
    #[error("its type is {0:?}; expected a result")]
    Type(IoMessageType),
    /// No request has this number.
    #[error("its transaction is {number}; expected 0 to {last}")]
    Number {
        /// Number in the answer.
        number: u64,
        /// Largest number of a request.
        last: u32,
    },
    /// The request with its number is not in flight, or already has an answer.
    #[error("transaction {0} has no request that waits for an answer (answered twice?)")]
    NotAwaited(u32),
    /// The range differs from that of its request. A range is storage offset, memory offset and size, in bytes.
    #[error(
        "transaction {number}: storage offset, requester offset and size are {got:?}; expected those of the request, {expected:?}"
    )]
    Range {
        /// Number of the request.
        number: u32,
        /// Range in the answer.
        got: (u64, u64, u32),
        /// Range of the request.
        expected: (u64, u64, u32),
    },
}

/// Bits of [`InFlight::awaits`].
const SENT: u8 = 1;
const ANSWER: u8 = 2;

/// State of a request.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    storage_offset: u64,
    memory_offset: u64,
    size: u32,
    /// Result of the answer, while the send is not complete.
    result: u32,
    /// Events that the request awaits, as bits; 0 if it is not in flight.
    awaits: u8,
}

/// Requests, numbered from 0. See the [module](self).
#[derive(Debug, Default)]
pub struct Requests {
    table: Box<[InFlight]>,
}

impl Requests {
    /// Creates the state of `count` requests. All memory is allocated here.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self {
            table: vec![InFlight::default(); count as usize].into(),
        }
    }

    /// Begins request `number`, which must not be in flight, and returns its message.
    ///
    /// # Panics
    /// If the number is out of range.
    #[inline(always)]
    pub fn begin<L: IoLayout>(&mut self, layout: L, number: u32, request: &Request) -> [u8; SIZE] {
        let place = &mut self.table[number as usize];
        debug_assert_eq!(place.awaits, 0, "request {number} is in flight");
        *place = InFlight {
            storage_offset: request.storage_offset,
            memory_offset: request.memory_offset,
            size: request.size,
            result: 0,
            awaits: SENT | ANSWER,
        };
        let values = Repr {
            message_type: request.message_type,
            user_data: u64::from(number),
            result: 0,
            size: request.size,
            requester_offset: request.memory_offset,
            storage_offset: request.storage_offset,
        };
        layout.to_bytes(&values, L::CorrelationId::from_number(number))
    }

    /// Handles the completed send of request `number`. Returns the request if it is complete.
    #[inline(always)]
    pub fn sent(&mut self, number: u32) -> Option<Completed> {
        let place = self.table.get_mut(number as usize)?;
        let is_complete = place.awaits == SENT;
        place.awaits &= !SENT;
        let result = place.result;
        is_complete.then_some(Completed { number, result })
    }

    /// Checks an answer, of which `length` bytes were received, against its request. Returns the request if it is
    /// complete.
    ///
    /// # Errors
    /// The answer matches no request. The state is unchanged.
    #[inline(always)]
    pub fn answered<L: IoLayout>(
        &mut self,
        layout: L,
        bytes: &[u8; SIZE],
        length: usize,
    ) -> Result<Option<Completed>, BadAnswer> {
        let is_result = length == SIZE
            && IoMessage::new_unchecked_len(bytes).message_type() == Ok(IoMessageType::Result);
        let number = L::CorrelationId::transaction(bytes);
        let answer = layout.answer_to(bytes);
        let place = usize::try_from(number)
            .ok()
            .and_then(|index| self.table.get_mut(index));
        if let Some(place) = place
            && is_result
            && place.awaits & ANSWER != 0
            && place.storage_offset == answer.storage_offset
            // Services of 3.0 do not repeat the memory offset.
            && (L::IS_MIRRORED || place.memory_offset == answer.requester_offset)
            && place.size == answer.size
        {
            place.awaits &= !ANSWER;
            place.result = answer.result;
            let completed = Completed {
                number: number as u32,
                result: answer.result,
            };
            return Ok((place.awaits == 0).then_some(completed));
        }
        Err(self.refuse(number, &answer, L::IS_MIRRORED, bytes, length))
    }

    /// Determines the error of an answer that matches no request.
    #[cold]
    fn refuse(
        &self,
        number: u64,
        answer: &Repr,
        is_mirrored: bool,
        bytes: &[u8; SIZE],
        length: usize,
    ) -> BadAnswer {
        let message = IoMessage::new_checked(&bytes[..length.min(SIZE)]);
        match message.and_then(|message| message.message_type()) {
            Ok(IoMessageType::Result) => {}
            Ok(other) => return BadAnswer::Type(other),
            Err(error) => return error.into(),
        }
        let place = usize::try_from(number)
            .ok()
            .and_then(|index| self.table.get(index));
        let Some(place) = place else {
            let last = (self.table.len() as u32).saturating_sub(1);
            return BadAnswer::Number { number, last };
        };
        let number = number as u32;
        if place.awaits & ANSWER == 0 {
            return BadAnswer::NotAwaited(number);
        }
        let memory_offset = if is_mirrored {
            place.memory_offset
        } else {
            answer.requester_offset
        };
        BadAnswer::Range {
            number,
            got: (answer.storage_offset, memory_offset, answer.size),
            expected: (place.storage_offset, place.memory_offset, place.size),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Messages, and valid and invalid answers.

    use wire::release::{Release3_0, Release3_1, Release3_2};

    use super::*;

    const READ: Request = Request {
        message_type: IoMessageType::Read,
        storage_offset: 4096,
        memory_offset: 512,
        size: 1024,
    };

    /// Request 1 of 2, in flight, and its result.
    fn one_read() -> (Requests, Repr) {
        let mut requests = Requests::new(2);
        let message = requests.begin(Release3_2, 1, &READ);
        let answer = Release3_2.answer_to(&message);
        (requests, answer)
    }

    fn answered(requests: &mut Requests, answer: &Repr) -> Result<Option<Completed>, BadAnswer> {
        requests.answered(Release3_2, &answer.to_bytes(), SIZE)
    }

    #[test]
    fn request_completes_once_sent_and_answered_in_any_order() {
        let done = |result| Some(Completed { number: 1, result });
        let (mut requests, answer) = one_read();
        assert_eq!(requests.sent(1), None);
        assert_eq!(answered(&mut requests, &answer.answer(7)), Ok(done(7)));
        // The number is free again.
        requests.begin(Release3_2, 1, &READ);
        assert_eq!(answered(&mut requests, &answer.answer(5)), Ok(None));
        assert_eq!(requests.sent(1), done(5));
        assert_eq!(requests.sent(1), None, "sent once");
        assert_eq!(requests.sent(2), None, "there is no such request");
    }

    #[test]
    fn a_message_has_the_values_of_its_request_and_zeros() {
        let mut requests = Requests::new(2);
        let expected = Repr {
            message_type: IoMessageType::Read,
            user_data: 1,
            result: 0,
            size: 1024,
            requester_offset: 512,
            storage_offset: 4096,
        };
        assert_eq!(requests.begin(Release3_2, 1, &READ), expected.to_bytes());
    }

    #[test]
    fn answers_without_a_matching_request_are_refused() {
        let (mut requests, good) = one_read();
        let bytes = good.to_bytes();
        let malformed = |refused: Result<Option<Completed>, BadAnswer>| {
            assert!(
                matches!(refused, Err(BadAnswer::Malformed(_))),
                "{refused:?}"
            );
        };
        malformed(requests.answered(Release3_2, &bytes, SIZE - 1));
        malformed(requests.answered(Release3_2, &bytes, 0));
        let mut unknown = bytes;
        unknown[3] = 9;
        malformed(requests.answered(Release3_2, &unknown, SIZE));
        let request = Repr {
            message_type: IoMessageType::Write,
            ..good
        };
        assert_eq!(
            answered(&mut requests, &request),
            Err(BadAnswer::Type(IoMessageType::Write))
        );
        for number in [2, u64::from(u32::MAX) + 2, u64::MAX] {
            let answer = Repr {
                user_data: number,
                ..good
            };
            assert_eq!(
                answered(&mut requests, &answer),
                Err(BadAnswer::Number { number, last: 1 })
            );
        }
        let idle = Repr {
            user_data: 0,
            ..good
        };
        assert_eq!(
            answered(&mut requests, &idle),
            Err(BadAnswer::NotAwaited(0))
        );
        for (storage, memory, size) in [(4608, 512, 1024), (4096, 513, 1024), (4096, 512, 1023)] {
            let wrong = Repr {
                storage_offset: storage,
                requester_offset: memory,
                size,
                ..good
            };
            let range = BadAnswer::Range {
                number: 1,
                got: (storage, memory, size),
                expected: (4096, 512, 1024),
            };
            assert_eq!(answered(&mut requests, &wrong), Err(range));
        }
        assert_eq!(answered(&mut requests, &good), Ok(None));
        assert_eq!(
            answered(&mut requests, &good),
            Err(BadAnswer::NotAwaited(1)),
            "answered twice"
        );
        assert_eq!(
            requests.sent(1),
            Some(Completed {
                number: 1,
                result: 0
            })
        );
        assert_eq!(
            answered(&mut requests, &good),
            Err(BadAnswer::NotAwaited(1))
        );
    }

    /// Services of 3.0 and 3.1 need not repeat the user data, and those of 3.0 need not repeat the memory offset.
    #[test]
    fn answers_of_earlier_releases_are_matched_by_correlation_id() {
        fn check<L: IoLayout>(layout: L, request: Request) {
            let mut requests = Requests::new(2);
            let message = requests.begin(layout, 1, &request);
            assert_eq!(message[4..8], [0, 0, 0, 1]);
            let answer = Repr {
                user_data: u64::MAX,
                requester_offset: request.memory_offset + 512 * u64::from(L::IS_MIRRORED),
                ..layout.answer_to(&message)
            };
            let unknown = layout.to_bytes(&answer, L::CorrelationId::from_number(2));
            assert_eq!(
                requests.answered(layout, &unknown, SIZE),
                Err(BadAnswer::Number { number: 2, last: 1 })
            );
            let bytes = layout.to_bytes(&answer, L::CorrelationId::read(&message));
            assert_eq!(requests.answered(layout, &bytes, SIZE), Ok(None));
            let completed = Completed {
                number: 1,
                result: 0,
            };
            assert_eq!(requests.sent(1), Some(completed));
        }
        check(Release3_1, READ);
        let mirrored = Request {
            memory_offset: READ.storage_offset,
            ..READ
        };
        let layout = Release3_0 {
            requester_address: 0x7000_0000,
        };
        check(layout, mirrored);
    }
}
