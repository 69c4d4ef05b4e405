//! What one worker thread of the target does.
//!
//! A request arrives in a message buffer (RDMA receive), the blocks move between the service's
//! client and the storage (RDMA write for a read, RDMA read for a write), and the answer leaves from
//! the same message buffer (RDMA send), which then waits for the next request. The two RDMA contexts
//! keep answers from queueing behind other transfers.

pub mod request;
mod transfers;

use std::sync::Arc;
use std::time::Duration;

use doca::{
    Access, BufInventory, Completion, CtxState, Device, ErrorCode, Event, Mmap, Pe, PeStats,
    Polled, Rdma,
};
use role_common::Failure;
use role_common::messages::Messages;
use role_common::rdma::RdmaEndpoint;
use role_common::readiness::wait_until_running;
use role_common::statistics::CoreStatistics;
use role_common::submit::DeferredTasks;
use role_common::turns::{EVENTS_PER_TURN, Limits, Turns, run_to_end};
use role_common::worker::{DataPath, RunFlag};
use wire::control::RdmaConnectionRole;
use wire::io_message::{self, Repr};

use request::Direction;
use transfers::{Kind, Token, Transfers};

pub(crate) fn permissions() -> Access {
    Access::LOCAL_READ_WRITE | Access::RDMA_READ | Access::RDMA_WRITE
}

/// What a worker is made from.
pub(crate) struct Setup {
    pub(crate) core: u32,
    pub(crate) device: Device,
    /// The blocks.
    pub(crate) storage: Mmap,
    /// The memory of the service's client.
    pub(crate) requester: Mmap,
    pub(crate) transaction_count: u32,
    /// How long there may be nothing to do, or nobody who takes results.
    pub(crate) idle_timeout: Option<Duration>,
}

/// What the main thread may ask for.
pub(crate) enum Command {
    /// Export a connection and connect it to the other end's export.
    Connect {
        role: RdmaConnectionRole,
        details: Vec<u8>,
    },
    /// Wait, at most this long, for the contexts to be ready; then wait for requests.
    Prepare(Duration),
}

/// Answer to a [`Command`].
pub(crate) enum Reply {
    /// The export of the local end.
    Exported(Vec<u8>),
    /// Requests may come.
    Prepared,
}

/// The data path of one worker. Fields are in the order in which they must be dropped.
pub(crate) struct TargetDataPath {
    transfers: Transfers,
    control: RdmaEndpoint,
    data: RdmaEndpoint,
    inventory: BufInventory,
    message_map: Mmap,
    pe: Pe,
    messages: Messages,
    deferred: DeferredTasks,
    setup: Setup,
    /// Requests that were received and whose answers have not been sent.
    in_flight: usize,
    operations: u64,
    refused: u64,
}

impl TargetDataPath {
    pub(crate) fn create(setup: Setup) -> Result<Self, Failure> {
        let count = setup.transaction_count;
        let slots = count as usize;
        let messages = Messages::new(slots)?;
        let message_map =
            Mmap::register(&setup.device, Arc::clone(messages.region()), permissions())?;
        // One buffer for the messages of a transfer, one for either end of its blocks.
        let inventory = BufInventory::new(slots * 3)?;
        let pe = Pe::new()?;
        let builder = || Rdma::builder(&setup.device).permissions(permissions());
        let control = builder()
            .receive_tasks(count)
            .send_tasks(count)
            .start(&pe)?;
        let data = builder().read_tasks(count).write_tasks(count).start(&pe)?;
        Ok(Self {
            transfers: Transfers::default(),
            control: RdmaEndpoint::new(RdmaConnectionRole::IoControl, control),
            data: RdmaEndpoint::new(RdmaConnectionRole::IoData, data),
            inventory,
            message_map,
            pe,
            messages,
            // At any time, one task of each transfer is under way.
            deferred: DeferredTasks::with_capacity(slots),
            setup,
            in_flight: 0,
            operations: 0,
            refused: 0,
        })
    }

    fn connect(&mut self, role: RdmaConnectionRole, details: &[u8]) -> Result<Vec<u8>, Failure> {
        let endpoint = match role {
            RdmaConnectionRole::IoData => &mut self.data,
            RdmaConnectionRole::IoControl => &mut self.control,
        };
        let export = endpoint.export()?;
        endpoint.connect(details)?;
        Ok(export)
    }

    fn prepare(&mut self, within: Duration) -> Result<(), Failure> {
        let states = || [self.control.rdma().state(), self.data.rdma().state()];
        wait_until_running(&self.pe, within, "the RDMA contexts", states)?;
        self.transfers = Transfers::allocate(
            self.setup.transaction_count,
            &self.inventory,
            [
                &self.message_map,
                &self.setup.storage,
                &self.setup.requester,
            ],
            (self.control.rdma(), self.control.connection()?),
            (self.data.rdma(), self.data.connection()?),
        )?;
        for slot in 0..self.transfers.len() {
            self.submit(slot, Kind::Receive)
                .map_err(|code| Failure::new(code, "first receives of requests"))?;
        }
        Ok(())
    }

    #[inline]
    fn submit(&mut self, slot: usize, kind: Kind) -> Result<(), ErrorCode> {
        self.deferred
            .submit(Token::new(slot, kind).0, self.transfers[slot].task(kind))
    }

    #[inline(always)]
    fn completed(
        &mut self,
        token: u64,
        result: Result<(), ErrorCode>,
        run: &RunFlag,
    ) -> Result<(), Failure> {
        let (slot, kind) = Token(token).parts();
        match (kind, result) {
            (Kind::Receive, Ok(())) => self.request_received(slot),
            (Kind::Read | Kind::Write, result) => self.answer(
                slot,
                result.map_or(ErrorCode::IO_FAILED, |()| ErrorCode::SUCCESS),
            ),
            (Kind::Send, Ok(())) => self.answer_sent(slot),
            // When the run ends, whatever waits for a request is flushed.
            (Kind::Receive | Kind::Send, Err(_)) if !run.is_set() => Ok(()),
            (Kind::Receive, Err(code)) => Err(Failure::new(code, "receiving a request failed")),
            (Kind::Send, Err(code)) => Err(Failure::new(code, "sending an answer failed")),
        }
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
                "an RDMA connection was lost: the service is gone, or its device failed",
            )),
            _ => Ok(()),
        }
    }

    #[inline]
    fn request_received(&mut self, slot: usize) -> Result<(), Failure> {
        self.in_flight += 1;
        let message = &self.transfers[slot].message;
        let mut bytes = [0; io_message::SIZE];
        let length = self.messages.received(slot, message, &mut bytes)?;
        let limits = request::Limits {
            storage: self.setup.storage.len(),
            requester: self.setup.requester.len(),
        };
        let examined = request::examine(&bytes, length, limits);
        let transfer = &mut self.transfers[slot];
        transfer.request = examined.repr;
        let started = match examined.direction {
            Ok(direction) => transfer.aim(direction).and_then(|()| {
                let kind = match direction {
                    Direction::ToRequester => Kind::Write,
                    Direction::ToStorage => Kind::Read,
                };
                self.submit(slot, kind)
            }),
            Err(code) => Err(code),
        };
        match started {
            Ok(()) => Ok(()),
            Err(code) => self.refuse(slot, code),
        }
    }

    #[cold]
    fn refuse(&mut self, slot: usize, code: ErrorCode) -> Result<(), Failure> {
        // Only the first is logged: a broken client can send millions a second.
        if self.refused == 0 {
            let request = &self.transfers[slot].request;
            tracing::warn!(
                "refused an I/O with {code:?}, and will not log further ones: {request:?}"
            );
        }
        self.refused += 1;
        self.answer(slot, code)
    }

    #[inline]
    fn answer(&mut self, slot: usize, result: ErrorCode) -> Result<(), Failure> {
        let bytes = self.transfers[slot].request.answer(result.0).to_bytes();
        self.messages.put(slot, &bytes)?;
        self.operations += 1;
        self.submit(slot, Kind::Send)
            .map_err(|code| Failure::new(code, "an answer cannot be sent"))
    }

    #[inline]
    fn answer_sent(&mut self, slot: usize) -> Result<(), Failure> {
        self.in_flight -= 1;
        self.transfers[slot].message.reset_data()?;
        self.submit(slot, Kind::Receive)
            .map_err(|code| Failure::new(code, "a receive cannot be posted"))
    }

    /// Submits what had to wait.
    #[inline]
    fn retry(&mut self) -> Result<(), Failure> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        let transfers = &self.transfers;
        let task = |token| {
            let (slot, kind) = Token(token).parts();
            transfers[slot].task(kind)
        };
        match self.deferred.retry(task) {
            Ok(()) => Ok(()),
            Err((token, code)) => match Token(token).parts() {
                (slot, Kind::Read | Kind::Write) => self.answer(slot, code),
                (_, kind) => Err(Failure::new(
                    code,
                    format!("a deferred {kind:?} task cannot be submitted"),
                )),
            },
        }
    }
}

impl Turns for TargetDataPath {
    #[inline]
    fn turn(&mut self, run: &RunFlag) -> Result<(), Failure> {
        for _ in 0..EVENTS_PER_TURN {
            match self.pe.poll_completion() {
                Polled::Completion(Completion { token, result }) => {
                    self.completed(token, result, run)?;
                }
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
        Limits {
            io: self.setup.idle_timeout,
            idle: self.setup.idle_timeout,
        }
    }

    fn client(&self) -> &'static str {
        "service"
    }

    fn suspect(&self) -> &'static str {
        "the service takes no results"
    }
}

impl DataPath for TargetDataPath {
    type Command = Command;
    type Reply = Reply;
    type Report = CoreStatistics;

    fn execute(&mut self, command: Command) -> Result<Reply, Failure> {
        match command {
            Command::Connect { role, details } => self.connect(role, &details).map(Reply::Exported),
            Command::Prepare(within) => self.prepare(within).map(|()| Reply::Prepared),
        }
    }

    fn run(&mut self, run: &RunFlag) -> Result<CoreStatistics, Failure> {
        let calls = run_to_end(self, run)?;
        if self.refused != 0 {
            tracing::warn!("{} I/Os were refused", self.refused);
        }
        Ok(CoreStatistics {
            core: self.setup.core,
            operation_count: self.operations,
            pe_hit_count: calls.hits,
            pe_miss_count: calls.misses,
        })
    }
}

/// A result without an I/O, for transfers that have not seen one yet.
const NO_REQUEST: Repr = Repr {
    message_type: io_message::IoMessageType::Result,
    user_data: 0,
    result: 0,
    size: 0,
    requester_offset: 0,
    storage_offset: 0,
};
