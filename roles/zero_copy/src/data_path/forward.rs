//! What a worker does with completions while it runs.

use doca::{Completion, CtxState, ErrorCode, Event, PeStats, Polled};
use role_common::Failure;
use role_common::turns::{EVENTS_PER_TURN, Limits, Turns};
use role_common::worker::RunFlag;
use wire::io_message::{self, IoMessage};

use super::ZeroCopyDataPath;
use super::lanes::{Kind, Token};
use super::message;

impl Turns for ZeroCopyDataPath {
    #[inline]
    fn turn(&mut self, run: &RunFlag) -> Result<(), Failure> {
        for _ in 0..EVENTS_PER_TURN {
            match self.pe.poll_completion() {
                Polled::Completion(Completion {
                    token,
                    result: Ok(()),
                }) => self.completed(token)?,
                Polled::Completion(Completion {
                    token,
                    result: Err(code),
                }) => self.failed(token, code, run)?,
                Polled::Other => self.happened(run)?,
                Polled::Nothing => break,
            }
        }
        self.retry()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn finished(&self) -> u64 {
        self.operations
    }

    fn pe_stats(&self) -> PeStats {
        self.pe.stats()
    }

    fn limits(&self) -> Limits {
        self.setup.limits
    }

    fn suspect(&self) -> &'static str {
        match self.deferred.first().map(|token| Token(token).parts()) {
            Some((_, Kind::ForwardResult | Kind::Refuse)) => "the initiator takes no results",
            Some((_, Kind::ForwardRequest)) => "the storage target takes no requests",
            _ => "the storage target does not answer",
        }
    }
}

impl ZeroCopyDataPath {
    #[inline]
    pub(super) fn submit(&mut self, lane: usize, kind: Kind) -> Result<(), ErrorCode> {
        self.deferred
            .submit(Token::new(lane, kind).0, self.lanes.task(lane, kind))
    }

    /// As [`submit`](Self::submit), where there is nobody to be told but the user.
    #[inline(always)]
    fn must_submit(&mut self, lane: usize, kind: Kind) -> Result<(), Failure> {
        self.submit(lane, kind)
            .map_err(|code| not_submitted(kind, code))
    }

    #[inline(always)]
    fn completed(&mut self, token: u64) -> Result<(), Failure> {
        let (lane, kind) = Token(token).parts();
        match kind {
            Kind::ReceiveRequest => self.request_received(lane),
            Kind::ForwardRequest => self.receive_next(lane, Kind::ReceiveRequest),
            Kind::ReceiveResult => self.result_received(lane),
            Kind::ForwardResult => {
                self.finished_one();
                self.receive_next(lane, Kind::ReceiveResult)
            }
            Kind::Refuse => {
                self.finished_one();
                self.refusals.sent(lane);
                self.refuse_waiting()
            }
        }
    }

    #[cold]
    fn failed(&mut self, token: u64, code: ErrorCode, run: &RunFlag) -> Result<(), Failure> {
        let (_, kind) = Token(token).parts();
        if run.is_set() {
            let suspect = kind.suspect();
            return Err(Failure::new(code, format!("{kind:?} failed: {suspect}")));
        }
        // When the run ends, whatever waits for a message is flushed.
        Ok(())
    }

    /// Something that is no end of a task.
    #[cold]
    fn happened(&mut self, run: &RunFlag) -> Result<(), Failure> {
        match self.pe.poll() {
            Some(Event::State {
                next: CtxState::Stopping | CtxState::Idle,
                ..
            }) if run.is_set() => Err(Failure::new(
                ErrorCode::CONNECTION_RESET,
                "a Comch or RDMA connection was lost: the initiator or the storage target is gone",
            )),
            _ => Ok(()),
        }
    }

    #[inline]
    fn request_received(&mut self, lane: usize) -> Result<(), Failure> {
        self.in_flight += 1;
        let mut bytes = [0; io_message::SIZE];
        let length = self.message(lane, Kind::ReceiveRequest, &mut bytes)?;
        if message::is_request(&bytes, length) {
            self.awaited += 1;
            self.must_submit(lane, Kind::ForwardRequest)
        } else {
            self.refuse(lane, length)
        }
    }

    /// Answers a message that is no request, as soon as there is a lane for the answer.
    #[cold]
    fn refuse(&mut self, lane: usize, length: usize) -> Result<(), Failure> {
        // Only the first is logged: a broken client can send millions a second.
        if self.refusals.count() == 0 {
            tracing::warn!(
                "refused a message of {length} bytes that is no read or write, and will not log further ones"
            );
        }
        self.refusals.wait(lane);
        self.refuse_waiting()
    }

    #[cold]
    fn refuse_waiting(&mut self) -> Result<(), Failure> {
        while let Some((request, refusal)) = self.refusals.next() {
            let mut bytes = [0; io_message::SIZE];
            self.message(request, Kind::ReceiveRequest, &mut bytes)?;
            let (message, _) = self.lanes.message(refusal, Kind::Refuse);
            message.write_data(&message::refusal(&bytes))?;
            self.must_submit(refusal, Kind::Refuse)?;
            self.receive_next(request, Kind::ReceiveRequest)?;
        }
        Ok(())
    }

    #[inline]
    fn result_received(&mut self, lane: usize) -> Result<(), Failure> {
        let mut bytes = [0; io_message::SIZE];
        let length = self.message(lane, Kind::ReceiveResult, &mut bytes)?;
        if !message::is_result(&bytes, length) {
            return Err(no_result(&bytes, length));
        }
        if self.awaited == 0 {
            return self.result_unasked(lane, IoMessage::new_unchecked_len(&bytes).user_data());
        }
        self.awaited -= 1;
        self.must_submit(lane, Kind::ForwardResult)
    }

    /// Nobody waits for a result: it is not passed on. One too many that comes while others are waited for is the initiator's to
    /// judge, which knows what it asked for.
    #[cold]
    fn result_unasked(&mut self, lane: usize, user_data: u64) -> Result<(), Failure> {
        // Only the first is logged: a broken target can send millions a second.
        if self.unasked == 0 {
            tracing::warn!(
                "the storage target sent a result that nobody waits for, user data {user_data:#x}; it, and further ones, are ignored"
            );
        }
        self.unasked += 1;
        self.receive_next(lane, Kind::ReceiveResult)
    }

    /// Copies the message that a task has received, and answers its length.
    #[inline(always)]
    fn message(
        &self,
        lane: usize,
        kind: Kind,
        into: &mut [u8; io_message::SIZE],
    ) -> Result<usize, Failure> {
        let (message, place) = self.lanes.message(lane, kind);
        Ok(self.messages.received(place, message, into)?)
    }

    #[inline(always)]
    fn receive_next(&mut self, lane: usize, kind: Kind) -> Result<(), Failure> {
        let (message, _) = self.lanes.message(lane, kind);
        message.reset_data()?;
        self.must_submit(lane, kind)
    }

    #[inline]
    fn finished_one(&mut self) {
        self.operations += 1;
        // A target that sends more results than it got requests is no reason to panic.
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Submits what had to wait.
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

#[cold]
fn no_result(bytes: &[u8; io_message::SIZE], length: usize) -> Failure {
    let message = IoMessage::new_unchecked_len(bytes);
    Failure::unexpected(format!(
        "the storage target sent a message of {length} bytes that is no result: {:?}, user data {:#x}",
        message.message_type(),
        message.user_data()
    ))
}

#[cold]
fn not_submitted(kind: Kind, code: ErrorCode) -> Failure {
    Failure::new(code, format!("{kind:?} cannot be submitted"))
}
