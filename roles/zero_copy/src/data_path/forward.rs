//! What a worker does when its tasks end: each message goes on from the buffer that it came into.
//!
//! This runs inside of the calls of progress, for every message twice. What happens seldom is apart, and marked as cold.

use doca::{Completion, ErrorCode};
use role_common::ends::Ends;
use role_common::messages::Messages;
use role_common::metrics::{self, Count, Traffic};
use role_common::submit::DeferredTasks;
use role_common::worker::RunFlag;
use role_common::{Failure, FirstFailure};
use wire::io_message::{self, IoMessage, IoMessageType};
use wire::release::Release;

use super::lanes::{Counts, Kind, Lane, Lanes, Token};
use super::message;
use super::refusals::Refusals;

/// Passes messages on. Fields are in the order in which they must be dropped.
pub(super) struct Forwarder {
    lanes: Lanes,
    messages: Messages,
    /// `true` if flushes and durable writes were announced on both sides.
    flush: bool,
    release: Release,
    deferred: DeferredTasks,
    /// Requests that were received and whose results have not been sent.
    in_flight: usize,
    operations: u64,
    /// Requests that the target owes a result for.
    awaited: usize,
    /// Results that nobody waited for.
    unasked: u64,
    refusals: Refusals,
    /// Requests forwarded to the target.
    traffic: Traffic,
    /// Why the worker cannot go on.
    failure: FirstFailure,
}

impl Forwarder {
    /// Without lanes, before it [begins](Self::begin).
    pub(super) fn new(messages: Messages, counts: Counts, flush: bool, release: Release) -> Self {
        Self {
            lanes: Lanes::default(),
            messages,
            flush,
            release,
            // At any time, one task of each lane is under way.
            deferred: DeferredTasks::with_capacity(counts.lanes()),
            in_flight: 0,
            operations: 0,
            awaited: 0,
            unasked: 0,
            refusals: Refusals::default(),
            traffic: Traffic::default(),
            failure: FirstFailure::default(),
        }
    }

    /// Receives with all lanes from now on.
    pub(super) fn begin(&mut self, lanes: Lanes) -> Result<(), Failure> {
        self.refusals = Refusals::new(lanes.refusals(), lanes.transactions());
        self.lanes = lanes;
        for lane in 0..self.lanes.transactions() {
            for kind in [Kind::ReceiveResult, Kind::ReceiveRequest] {
                self.submit(lane, kind)
                    .map_err(|code| Failure::new(code, format!("first {kind:?}")))?;
            }
        }
        Ok(())
    }

    /// Lets the lanes go.
    pub(super) fn end(&mut self) {
        self.lanes = Lanes::default();
    }

    /// Requests that were received and whose results have not been sent.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Requests that came to their end.
    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    /// Whose fault it probably is that nothing goes on.
    pub(super) fn suspect(&self) -> &'static str {
        match self.deferred.first().map(|token| Token(token).parts()) {
            Some((_, Kind::ForwardResult | Kind::Refuse)) => "the initiator takes no results",
            Some((_, Kind::ForwardRequest)) => "the storage target takes no requests",
            _ => "the storage target does not answer",
        }
    }

    /// The counters, for metrics.
    pub(super) fn counts(&self) -> metrics::Counts {
        self.traffic
            .counts()
            .with(Count::Refused, self.refusals.count())
            .with(Count::Unexpected, self.unasked)
    }

    /// Logs what was not passed on.
    pub(super) fn warn(&self) {
        if self.refusals.count() != 0 {
            tracing::warn!("{} messages were refused", self.refusals.count());
        }
        if self.unasked != 0 {
            tracing::warn!(
                "{} results that nobody waited for were ignored",
                self.unasked
            );
        }
    }

    #[inline(always)]
    fn request_received(&mut self, lane: usize) {
        self.in_flight += 1;
        let passed = self.lanes.request(lane);
        let flush = self.flush;
        let mut traffic = self.traffic;
        if !self.is_whole(passed, |bytes, length| {
            let message = IoMessage::new_unchecked_len(bytes);
            let size = u64::from(message.size());
            match message.message_type() {
                Ok(IoMessageType::Read) => traffic.read(size),
                Ok(IoMessageType::Flush) => traffic.flush(),
                _ => traffic.write(size),
            }
            message::is_request(bytes, length, flush)
        }) {
            return self.refuse(lane);
        }
        self.traffic = traffic;
        self.awaited += 1;
        self.submitted(passed.forward().submit(), lane, Kind::ForwardRequest);
    }

    #[inline(always)]
    fn result_received(&mut self, lane: usize) {
        let passed = self.lanes.result(lane);
        if self.awaited == 0 || !self.is_whole(passed, message::is_result) {
            return self.unwanted(lane);
        }
        self.awaited -= 1;
        self.submitted(passed.forward().submit(), lane, Kind::ForwardResult);
    }

    /// Returns `true` if the message that a lane has received passes the test. That is only to read as much of it as the test does.
    #[inline(always)]
    fn is_whole(
        &self,
        lane: &Lane<2>,
        test: impl FnOnce(&[u8; io_message::SIZE], usize) -> bool,
    ) -> bool {
        let Ok(length) = lane.message.data_len() else {
            return false;
        };
        let mut bytes = [0; io_message::SIZE];
        let offset = Messages::offset(lane.place);
        let was_read = self.messages.region().read(offset, &mut bytes);
        was_read.is_ok() && test(&bytes, length)
    }

    /// A task was submitted, or not.
    #[inline(always)]
    fn submitted(&mut self, result: Result<(), ErrorCode>, lane: usize, kind: Kind) {
        if let Err(code) = result {
            self.not_submitted(lane, kind, code);
        }
    }

    #[cold]
    fn not_submitted(&mut self, lane: usize, kind: Kind, code: ErrorCode) {
        let token = Token::new(lane, kind).0;
        if let Err(code) = self.deferred.refused(token, code) {
            self.failure.keep(cannot_be_submitted(kind, code));
        }
    }

    #[cold]
    fn failed(&mut self, token: u64, code: ErrorCode, run: &RunFlag) {
        let (_, kind) = Token(token).parts();
        // When the run ends, whatever waits for a message is flushed.
        if run.is_set() {
            let suspect = kind.suspect();
            self.failure
                .keep(Failure::new(code, format!("{kind:?} failed: {suspect}")));
        }
    }

    #[cold]
    fn submit(&mut self, lane: usize, kind: Kind) -> Result<(), ErrorCode> {
        self.deferred
            .submit(Token::new(lane, kind).0, self.lanes.task(lane, kind))
    }

    #[inline(always)]
    fn finished_one(&mut self) {
        self.operations += 1;
        // A target that sends more results than it got requests is no reason to panic.
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Answers a message that is no request, as soon as there is a lane for the answer.
    #[cold]
    fn refuse(&mut self, lane: usize) {
        // Only the first is logged: a broken client can send millions a second.
        if self.refusals.count() == 0 {
            let length = self.lanes.request(lane).message.data_len().unwrap_or(0);
            tracing::warn!(
                "refused a message of {length} bytes that is no read or write, and will not log further ones"
            );
        }
        self.refusals.wait(lane);
        if let Err(failure) = self.refuse_waiting() {
            self.failure.keep(failure);
        }
    }

    /// A refusal was sent.
    #[cold]
    fn refused(&mut self, lane: usize) {
        self.finished_one();
        self.refusals.sent(lane);
        if let Err(failure) = self.refuse_waiting() {
            self.failure.keep(failure);
        }
    }

    fn refuse_waiting(&mut self) -> Result<(), Failure> {
        while let Some((request, refusal)) = self.refusals.next() {
            let (bytes, _) = self.received(request, Kind::ReceiveRequest)?;
            let (message, _) = self.lanes.message(refusal, Kind::Refuse);
            message.write_data(&message::refusal(&bytes, self.release))?;
            self.lanes.request(request).message.reset_data()?;
            for (lane, kind) in [(refusal, Kind::Refuse), (request, Kind::ReceiveRequest)] {
                self.submit(lane, kind)
                    .map_err(|code| cannot_be_submitted(kind, code))?;
            }
        }
        Ok(())
    }

    /// The message that a task has received, zeros where nothing came, and its length.
    fn received(
        &self,
        lane: usize,
        kind: Kind,
    ) -> Result<([u8; io_message::SIZE], usize), Failure> {
        let (message, place) = self.lanes.message(lane, kind);
        let mut bytes = [0; io_message::SIZE];
        let length = self.messages.received(place, message, &mut bytes)?;
        Ok((bytes, length))
    }

    /// A message of the target that is no result, or that nobody waits for.
    #[cold]
    fn unwanted(&mut self, lane: usize) {
        if let Err(failure) = self.judge_unwanted(lane) {
            self.failure.keep(failure);
        }
    }

    /// Nobody waits for a result: it is not passed on. One too many that comes while others are waited for is the initiator's to
    /// judge, which knows what it asked for.
    fn judge_unwanted(&mut self, lane: usize) -> Result<(), Failure> {
        let (bytes, length) = self.received(lane, Kind::ReceiveResult)?;
        let message = IoMessage::new_unchecked_len(&bytes);
        if !message::is_result(&bytes, length) {
            return Err(Failure::unexpected(format!(
                "the storage target sent a message of {length} bytes that is no result: {:?}, user data {:#x}",
                message.message_type(),
                message.user_data()
            )));
        }
        // Only the first is logged: a broken target can send millions a second.
        if self.unasked == 0 {
            tracing::warn!(
                "the storage target sent a result that nobody waits for, user data {:#x}; it, and further ones, are ignored",
                message.user_data()
            );
        }
        self.unasked += 1;
        self.lanes.result(lane).message.reset_data()?;
        self.submit(lane, Kind::ReceiveResult)
            .map_err(|code| cannot_be_submitted(Kind::ReceiveResult, code))
    }
}

impl Ends for Forwarder {
    #[inline(always)]
    fn ended(&mut self, completion: Completion, run: &RunFlag) {
        let Completion { token, result } = completion;
        if let Err(code) = result {
            return self.failed(token, code, run);
        }
        let (lane, kind) = Token(token).parts();
        match kind {
            Kind::ReceiveRequest => self.request_received(lane),
            Kind::ForwardRequest => {
                let passed = self.lanes.request(lane);
                let received = receive_next(passed);
                self.submitted(received, lane, Kind::ReceiveRequest);
            }
            Kind::ReceiveResult => self.result_received(lane),
            Kind::ForwardResult => {
                self.finished_one();
                let passed = self.lanes.result(lane);
                let received = receive_next(passed);
                self.submitted(received, lane, Kind::ReceiveResult);
            }
            Kind::Refuse => self.refused(lane),
        }
    }

    #[inline(always)]
    fn outcome(&mut self) -> Result<(), Failure> {
        self.failure.outcome()
    }

    #[inline]
    fn retry(&mut self) -> Result<(), Failure> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        let lanes = &self.lanes;
        let task = |token| {
            let (lane, kind) = Token(token).parts();
            lanes.task(lane, kind)
        };
        self.deferred.retry(task).map_err(|(token, code)| {
            let (_, kind) = Token(token).parts();
            Failure::new(code, format!("a deferred {kind:?} cannot be submitted"))
        })
    }
}

/// Makes room in a lane's buffer and receives into it.
#[inline(always)]
fn receive_next(lane: &Lane<2>) -> Result<(), ErrorCode> {
    lane.message.reset_data().map_err(|error| error.code)?;
    lane.receive().submit()
}

#[cold]
fn cannot_be_submitted(kind: Kind, code: ErrorCode) -> Failure {
    Failure::new(code, format!("{kind:?} cannot be submitted"))
}
