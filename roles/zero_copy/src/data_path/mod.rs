//! What one worker thread of the zero copy service does.
//!
//! Requests arrive from the initiator (Comch consumer) and leave to the target (RDMA send) from the
//! same buffer; results arrive from the target (RDMA receive) and leave to the initiator (Comch
//! producer) likewise, unchanged. A request that is none is answered here. The second RDMA context
//! carries blocks on behalf of the target; nothing is submitted to it here.

mod lanes;
mod refusals;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::{
    Access, Buf, BufInventory, Completion, Connection, Consumer, CtxState, Device, ErrorCode,
    Event, MemoryRegion, Mmap, Pe, Producer, Rdma, RdmaConnection,
};
use role_common::Failure;
use role_common::statistics::CoreStatistics;
use role_common::submit::DeferredTasks;
use role_common::worker::{DataPath, RunFlag};
use wire::control::RdmaConnectionRole;
use wire::io_message::{self, IoMessage, IoMessageType};

use lanes::{Counts, Kind, Lanes, Token};
use refusals::Refusals;

/// How long I/Os in flight may take to finish after the end of the run was asked for.
const DRAIN: Duration = Duration::from_secs(1);

/// What a worker is made from.
pub(crate) struct Setup {
    pub(crate) core: u32,
    pub(crate) device: Device,
    /// The connection to the initiator.
    pub(crate) client: Connection,
    pub(crate) transaction_count: u32,
}

/// What the main thread may ask for.
pub(crate) enum Command {
    /// Make an RDMA connection, and export it.
    Export(RdmaConnectionRole),
    /// Connect it to the target's export.
    Connect(RdmaConnectionRole, Bytes),
    /// Wait, at most this long, for all contexts to be ready; then wait for requests, and answer to
    /// this consumer of the initiator.
    Prepare { consumer: u32, within: Duration },
    /// Destroy consumer and producer.
    LeaveComch,
}

/// Answer to a [`Command`].
pub(crate) enum Reply {
    /// The export of a connection.
    Exported(Vec<u8>),
    /// Nothing to tell.
    Done,
}

/// One RDMA context with its one connection.
struct Endpoint {
    rdma: Rdma,
    connection: Option<RdmaConnection>,
}

impl Endpoint {
    fn connection(&self, role: RdmaConnectionRole) -> Result<&RdmaConnection, Failure> {
        let missing = || {
            Failure::new(
                ErrorCode::NOT_CONNECTED,
                format!("the {role} connection was not exported"),
            )
        };
        self.connection.as_ref().ok_or_else(missing)
    }
}

/// The ends of the fast path to the initiator.
struct Comch {
    consumer: Consumer,
    producer: Producer,
}

/// The data path of one worker. Fields are in the order in which they must be dropped.
pub(crate) struct ZeroCopyDataPath {
    lanes: Lanes,
    /// `None` once the service has left it.
    comch: Option<Comch>,
    control: Endpoint,
    data: Endpoint,
    inventory: BufInventory,
    messages: Mmap,
    pe: Pe,
    region: Arc<MemoryRegion>,
    deferred: DeferredTasks,
    setup: Setup,
    /// Requests that were received and whose results have not been sent.
    in_flight: usize,
    operations: u64,
    refusals: Refusals,
}

impl ZeroCopyDataPath {
    pub(crate) fn create(setup: Setup) -> Result<Self, Failure> {
        let count = setup.transaction_count;
        let counts = Counts::new(count);
        let region = MemoryRegion::new(counts.lanes() * io_message::SIZE)?;
        let access = Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE;
        let messages = Mmap::register(&setup.device, region.clone(), access)?;
        let inventory = BufInventory::new(counts.lanes())?;
        let pe = Pe::new()?;
        let consumer = Consumer::start(&pe, &setup.client, &messages, count)?;
        let producer = Producer::start(&pe, &setup.client, counts.producer_tasks())?;
        let permissions = Access::LOCAL_READ_WRITE | Access::RDMA_READ | Access::RDMA_WRITE;
        let builder = || Rdma::builder(&setup.device).permissions(permissions);
        let control = builder()
            .receive_tasks(count)
            .send_tasks(count)
            .start(&pe)?;
        let data = builder().start(&pe)?;
        Ok(Self {
            lanes: Lanes::default(),
            comch: Some(Comch { consumer, producer }),
            control: Endpoint {
                rdma: control,
                connection: None,
            },
            data: Endpoint {
                rdma: data,
                connection: None,
            },
            inventory,
            messages,
            pe,
            region,
            // At any time, one task of each lane is under way.
            deferred: DeferredTasks::with_capacity(counts.lanes()),
            refusals: Refusals::default(),
            setup,
            in_flight: 0,
            operations: 0,
        })
    }

    fn endpoint(&mut self, role: RdmaConnectionRole) -> &mut Endpoint {
        match role {
            RdmaConnectionRole::IoData => &mut self.data,
            RdmaConnectionRole::IoControl => &mut self.control,
        }
    }

    fn export(&mut self, role: RdmaConnectionRole) -> Result<Vec<u8>, Failure> {
        let endpoint = self.endpoint(role);
        let (export, connection) = endpoint.rdma.export()?;
        endpoint.connection = Some(connection);
        Ok(export)
    }

    fn connect(&mut self, role: RdmaConnectionRole, details: &[u8]) -> Result<(), Failure> {
        let endpoint = self.endpoint(role);
        let connection = endpoint.connection(role)?;
        endpoint.rdma.connect(connection, details).map_err(|error| {
            Failure::from(error).context(format_args!("{role} connection of the storage target"))
        })
    }

    fn prepare(&mut self, client_consumer: u32, within: Duration) -> Result<(), Failure> {
        let Some(Comch { consumer, producer }) = &self.comch else {
            return Err(Failure::new(
                ErrorCode::BAD_STATE,
                "the worker has left Comch already",
            ));
        };
        let ready = || {
            let states = [
                consumer.state(),
                producer.state(),
                self.control.rdma.state(),
                self.data.rdma.state(),
            ];
            states.iter().all(|&state| state == CtxState::Running)
        };
        if !self.pe.progress_until(within, ready) {
            return Err(Failure::timed_out(
                "the Comch and RDMA contexts to be ready",
                within,
            ));
        }
        let target = self.control.connection(RdmaConnectionRole::IoControl)?;
        let task = |kind, token, message: &Buf| match kind {
            Kind::ReceiveRequest => consumer.post_recv_task(message, token),
            Kind::ForwardRequest => self.control.rdma.send_task(target, message, token),
            Kind::ReceiveResult => self.control.rdma.receive_task(message, token),
            Kind::ForwardResult | Kind::Refuse => {
                producer.send_task(message, client_consumer, token)
            }
        };
        let counts = Counts::new(self.setup.transaction_count);
        self.lanes = Lanes::allocate(counts, &self.inventory, &self.messages, task)?;
        self.refusals = Refusals::new(self.lanes.refusals(), self.lanes.transactions());
        for lane in 0..self.lanes.transactions() {
            for kind in [Kind::ReceiveResult, Kind::ReceiveRequest] {
                self.submit(lane, kind)
                    .map_err(|code| Failure::new(code, format!("first {kind:?}")))?;
            }
        }
        Ok(())
    }

    fn leave_comch(&mut self) -> Result<(), Failure> {
        self.lanes = Lanes::default();
        let Some(Comch { consumer, producer }) = self.comch.take() else {
            return Ok(());
        };
        // Both are stopped, whatever comes of the first.
        let results = [consumer.stop(), producer.stop()];
        results.into_iter().collect::<Result<(), _>>()?;
        Ok(())
    }

    #[inline]
    fn submit(&mut self, lane: usize, kind: Kind) -> Result<(), ErrorCode> {
        self.deferred
            .submit(Token::new(lane, kind).0, self.lanes.task(lane, kind))
    }

    /// As [`submit`](Self::submit), where there is nobody to be told but the user.
    #[inline]
    fn must_submit(&mut self, lane: usize, kind: Kind) -> Result<(), Failure> {
        self.submit(lane, kind)
            .map_err(|code| Failure::new(code, format!("{kind:?} cannot be submitted")))
    }

    #[inline]
    fn handle(&mut self, event: Event, run: &RunFlag) -> Result<(), Failure> {
        match event {
            Event::Task(Completion { token, result }) => {
                let (lane, kind) = Token(token).parts();
                match (kind, result) {
                    (Kind::ReceiveRequest, Ok(())) => self.request_received(lane),
                    (Kind::ForwardRequest, Ok(())) => self.receive_next(lane, Kind::ReceiveRequest),
                    (Kind::ReceiveResult, Ok(())) => self.result_received(lane),
                    (Kind::ForwardResult, Ok(())) => {
                        self.finished_one();
                        self.receive_next(lane, Kind::ReceiveResult)
                    }
                    (Kind::Refuse, Ok(())) => {
                        self.finished_one();
                        self.refusals.sent(lane);
                        self.refuse_waiting()
                    }
                    // When the run ends, whatever waits for a message is flushed.
                    (_, Err(_)) if !run.is_set() => Ok(()),
                    (kind, Err(code)) => Err(Failure::new(
                        code,
                        format!("{kind:?} failed: {}", kind.suspect()),
                    )),
                }
            }
            Event::State {
                next: CtxState::Stopping | CtxState::Idle,
                ..
            } if run.is_set() => Err(Failure::new(
                ErrorCode::CONNECTION_RESET,
                "a Comch or RDMA connection was lost: the initiator or the storage target is gone",
            )),
            Event::State { .. } | Event::Comch(_) => Ok(()),
        }
    }

    #[inline]
    fn request_received(&mut self, lane: usize) -> Result<(), Failure> {
        self.in_flight += 1;
        let (bytes, length) = self.message(lane, Kind::ReceiveRequest)?;
        let kind = IoMessage::new_unchecked_len(&bytes).message_type();
        if length == io_message::SIZE
            && matches!(kind, Ok(IoMessageType::Read | IoMessageType::Write))
        {
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
            let (bytes, _) = self.message(request, Kind::ReceiveRequest)?;
            let (message, _) = self.lanes.message(refusal, Kind::Refuse);
            message.write_data(&refusals::answer(&bytes))?;
            self.must_submit(refusal, Kind::Refuse)?;
            self.receive_next(request, Kind::ReceiveRequest)?;
        }
        Ok(())
    }

    #[inline]
    fn result_received(&mut self, lane: usize) -> Result<(), Failure> {
        let (bytes, length) = self.message(lane, Kind::ReceiveResult)?;
        let kind = IoMessage::new_unchecked_len(&bytes).message_type();
        if length != io_message::SIZE || kind != Ok(IoMessageType::Result) {
            return Err(Failure::unexpected(format!(
                "the storage target sent a message of {length} bytes that is no result: {kind:?}"
            )));
        }
        self.must_submit(lane, Kind::ForwardResult)
    }

    /// A copy of the message in the buffer of a task, and its length. Bytes that did not come are zeros.
    #[inline]
    fn message(&self, lane: usize, kind: Kind) -> Result<([u8; io_message::SIZE], usize), Failure> {
        let (message, offset) = self.lanes.message(lane, kind);
        let length = message.data_len()?;
        let mut bytes = [0; io_message::SIZE];
        let came = length.min(bytes.len());
        self.region.read(offset, &mut bytes[..came])?;
        Ok((bytes, length))
    }

    #[inline]
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

    #[inline]
    fn turn(&mut self, run: &RunFlag) -> Result<(), Failure> {
        if let Some(event) = self.pe.poll() {
            self.handle(event, run)?;
        }
        self.retry()
    }
}

impl DataPath for ZeroCopyDataPath {
    type Command = Command;
    type Reply = Reply;
    type Report = CoreStatistics;

    fn execute(&mut self, command: Command) -> Result<Reply, Failure> {
        match command {
            Command::Export(role) => return self.export(role).map(Reply::Exported),
            Command::Connect(role, details) => self.connect(role, &details)?,
            Command::Prepare { consumer, within } => self.prepare(consumer, within)?,
            Command::LeaveComch => self.leave_comch()?,
        }
        Ok(Reply::Done)
    }

    fn run(&mut self, run: &RunFlag) -> Result<CoreStatistics, Failure> {
        let before = self.pe.stats();
        while run.is_set() {
            self.turn(run)?;
        }
        let deadline = Instant::now() + DRAIN;
        while self.in_flight != 0 && Instant::now() < deadline {
            self.turn(run)?;
        }
        if self.in_flight != 0 {
            tracing::warn!(
                "{} I/Os were not finished within {DRAIN:?} after the end",
                self.in_flight
            );
        }
        if self.refusals.count() != 0 {
            tracing::warn!("{} messages were refused", self.refusals.count());
        }
        let after = self.pe.stats();
        Ok(CoreStatistics {
            core: self.setup.core,
            operation_count: self.operations,
            pe_hit_count: after.hits - before.hits,
            pe_miss_count: after.misses - before.misses,
        })
    }
}
