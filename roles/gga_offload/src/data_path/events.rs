//! What a worker does with completions while it runs.

use doca::{Completion, CtxState, ErrorCode, Event, PeStats, Polled};
use role_common::Failure;
use role_common::turns::{Limits, Turns};
use role_common::worker::RunFlag;
use wire::io_message;

use super::GgaDataPath;
use super::request::Request;
use super::token::{Kind, Token};
use super::transaction::Stage;

/// Events that are handled in one turn when there are as many: what comes between two turns is then paid for once.
const EVENTS_PER_TURN: u32 = 32;

impl Turns for GgaDataPath {
    #[inline]
    fn turn(&mut self, run: &RunFlag) -> Result<(), Failure> {
        for _ in 0..EVENTS_PER_TURN {
            let polled = self.pe.poll_completion();
            if self.survival.is_some() {
                self.look_after_targets(polled == Polled::Nothing)?;
            }
            match polled {
                Polled::Completion(Completion {
                    token,
                    result: Ok(()),
                }) => {
                    let (index, kind) = Token(token).parts();
                    self.completed(index, kind)?;
                }
                Polled::Completion(Completion {
                    token,
                    result: Err(code),
                }) => {
                    let (index, kind) = Token(token).parts();
                    self.failed(index, kind, code, run)?;
                }
                Polled::Other => self.happened(run)?,
                Polled::Nothing => break,
            }
        }
        self.retry_stripes()?;
        self.retry_deferred()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn finished(&self) -> u64 {
        self.statistics.core.operation_count
    }

    fn pe_stats(&self) -> PeStats {
        self.pe.stats()
    }

    fn limits(&self) -> Limits {
        self.setup.worker.limits
    }

    fn suspect(&self) -> &'static str {
        "a storage target does not answer, or the initiator takes no results"
    }
}

impl GgaDataPath {
    /// Something that is no end of a task.
    #[cold]
    fn happened(&mut self, run: &RunFlag) -> Result<(), Failure> {
        let Some(event) = self.pe.poll() else {
            return Ok(());
        };
        match event {
            Event::State { context, .. } if self.fetcher.has_replaced(context) => Ok(()),
            Event::State { context, next, .. } if self.is_of_target(context) => {
                if matches!(next, CtxState::Stopping | CtxState::Idle) && run.is_set() {
                    self.connection_lost(context);
                }
                Ok(())
            }
            Event::State {
                context,
                next: CtxState::Stopping | CtxState::Idle,
                ..
            } if run.is_set() && !self.fetcher.owns(context) => Err(Failure::new(
                ErrorCode::CONNECTION_RESET,
                "a Comch or RDMA connection was lost: the initiator or a storage target is gone",
            )),
            Event::State {
                context,
                next: CtxState::Stopping | CtxState::Idle,
                ..
            } if self.fetcher.owns(context) => {
                self.fetcher.failed();
                self.restart_fetcher()
            }
            Event::State { .. } | Event::Comch(_) | Event::Task(_) => Ok(()),
        }
    }

    #[inline]
    fn completed(&mut self, index: usize, kind: Kind) -> Result<(), Failure> {
        match kind {
            Kind::Send(target) | Kind::ReceiveResult(target) if self.is_detached(target) => Ok(()),
            Kind::ReceiveRequest => self.request_received(index),
            Kind::Answer => self.answered(index),
            Kind::Send(target) => self.request_sent(index, target),
            Kind::ReceiveResult(target) => self.result_received(index, target),
            Kind::Fetch => self.content_fetched(index),
            Kind::CreateParity => match self.transactions[index].rebuilds {
                None => self.parity_created(index),
                Some(work) => self.store_missed_half(index, work),
            },
            Kind::Recover(_) => match self.transactions[index].stage {
                Stage::Suspicion(suspect) => self.suspect_recovered(index, suspect),
                Stage::Verdict(odd) => self.odd_one_recovered(index, odd),
                Stage::MissedHalf => match self.transactions[index].rebuilds {
                    Some(work) => self.store_missed_half(index, work),
                    None => Ok(()),
                },
                _ => self.check_block(index),
            },
            Kind::Decompress => self.decompressed(index),
        }
    }

    #[cold]
    fn failed(
        &mut self,
        index: usize,
        kind: Kind,
        code: ErrorCode,
        run: &RunFlag,
    ) -> Result<(), Failure> {
        match kind {
            Kind::Fetch => self.fetch_failed(index, code),
            Kind::CreateParity | Kind::Recover(_) => self.fail(index, code),
            Kind::Decompress => self.decompression_failed(index, code),
            // When the run ends, whatever waits for a message is flushed.
            Kind::Answer if !run.is_set() => {
                self.in_flight -= 1;
                Ok(())
            }
            _ if !run.is_set() => Ok(()),
            Kind::ReceiveRequest | Kind::Answer => Err(Failure::new(
                code,
                format!("{kind:?} failed: the initiator or its connection is broken"),
            )),
            Kind::Send(target) | Kind::ReceiveResult(target) => {
                self.target_failed(target, kind, code)
            }
        }
    }

    #[inline]
    fn request_received(&mut self, lane: usize) -> Result<(), Failure> {
        // As many lanes as transactions, and who has received something takes one of them.
        let Some(index) = self.idle.take() else {
            return Err(Failure::unexpected("no transaction is left for a request"));
        };
        self.in_flight += 1;
        let message = self.tasks.request(lane);
        let mut bytes = [0; io_message::SIZE];
        let length = self
            .messages
            .received(message.place, &message.buf, &mut bytes)?;
        message.buf.reset_data()?;
        let memory = self.setup.initiator.len();
        match Request::read(&bytes, length, self.setup.volume, memory) {
            Ok(request) => {
                self.transactions[index].begin(request, lane);
                self.begin_block(index)
            }
            Err((identity, refusal)) => {
                if self.statistics.refused.count() {
                    let count = self.statistics.refused;
                    tracing::warn!("refused a request ({count} so far): {refusal}");
                }
                self.transactions[index].begin(identity, lane);
                self.fail(index, ErrorCode::INVALID_VALUE)
            }
        }
    }

    #[inline]
    pub(super) fn submit(&mut self, index: usize, kind: Kind) -> Result<(), ErrorCode> {
        let task = self
            .tasks
            .task(index, kind)
            .unwrap_or_else(|| self.fetcher.get(index));
        self.deferred.submit(Token::new(index, kind).0, task)
    }

    /// As [`submit`](Self::submit), where there is nobody to be told but the user.
    #[inline]
    pub(super) fn must_submit(&mut self, index: usize, kind: Kind) -> Result<(), Failure> {
        self.submit(index, kind)
            .map_err(|code| Failure::new(code, format!("{kind:?} cannot be submitted")))
    }

    /// Submits the next step of a transaction, whose buffers were aimed, or fails the transaction.
    #[inline]
    pub(super) fn begin_step(
        &mut self,
        index: usize,
        kind: Kind,
        aimed: Result<(), ErrorCode>,
    ) -> Result<(), Failure> {
        aimed
            .and_then(|()| self.submit(index, kind))
            .or_else(|code| self.fail(index, code))
    }

    /// Submits what had to wait.
    #[inline]
    fn retry_deferred(&mut self) -> Result<(), Failure> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        let (tasks, fetcher) = (&self.tasks, &self.fetcher);
        let task = |token| {
            let (index, kind) = Token(token).parts();
            tasks
                .task(index, kind)
                .unwrap_or_else(|| fetcher.get(index))
        };
        match self.deferred.retry(task) {
            Ok(()) => Ok(()),
            Err((token, code)) => self.deferred_failed(Token(token), code),
        }
    }

    #[cold]
    fn deferred_failed(&mut self, token: Token, code: ErrorCode) -> Result<(), Failure> {
        let (index, kind) = token.parts();
        match kind {
            Kind::Fetch | Kind::CreateParity | Kind::Recover(_) | Kind::Decompress => {
                self.fail(index, code)
            }
            Kind::Send(target) | Kind::ReceiveResult(target) => {
                self.target_failed(target, kind, code)
            }
            Kind::ReceiveRequest | Kind::Answer => Err(Failure::new(
                code,
                format!("a deferred {kind:?} cannot be submitted"),
            )),
        }
    }
}
