//! Checks of a storage target with a scripted service that provides its client's memory.
//!
//! * [`Service`]: the scripted service, step by step; [`Worker`]: one of its workers.
//! * [`sessions`]: whole sessions, repeated ones, and services that disconnect.
//! * [`frames`]: split, merged and malformed frames, and requests that must be refused.
//! * [`io`]: reads and writes that must succeed or fail, flushes; the initial and the expected contents.
//! * [`versions`]: versions of blocks.
//!
//! [`run_session`] is a client for other checks.

mod frames;
mod io;
mod sessions;
mod versions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use deployment::sandbox::DPU_DEVICE;
use doca::{
    Buf, BufInventory, Completion, Device, Event, MemoryRegion, Mmap, Pe, Rdma, RdmaConnection,
    Task,
};
use wire::control::{
    ErrorResponse, FeatureQuery, InitStorage, Message, Payload, RdmaConnectionDetails,
    RdmaConnectionRole, StorageDetails,
};
use wire::io_message::{self, IoMessage, IoMessageType, Repr, SIZE};

use super::{Check, ControlPeer as _, Fixture, Polled, REMOTE, Running, TcpPeer};
use crate::violation::{During as _, Violation};
use io::{read, write};

pub(super) fn checks() -> Vec<Check> {
    [
        sessions::CHECKS,
        frames::REFUSAL_CHECKS,
        frames::CHECKS,
        sessions::DEPARTURE_CHECKS,
        io::CHECKS,
        io::REFUSAL_CHECKS,
        io::CONTENT_CHECKS,
        io::FLUSH_CHECKS,
        versions::CHECKS,
    ]
    .concat()
}

// Steps of a session, and its parameters.

/// Next step of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Query,
    Init,
    Connect,
    Start,
    Stop,
    Shutdown,
    End,
}

impl Step {
    /// All steps with a request.
    const ALL: [Self; 6] = [
        Self::Query,
        Self::Init,
        Self::Connect,
        Self::Start,
        Self::Stop,
        Self::Shutdown,
    ];

    fn next(self) -> Self {
        match self {
            Self::Query => Self::Init,
            Self::Init => Self::Connect,
            Self::Connect => Self::Start,
            Self::Start => Self::Stop,
            Self::Stop => Self::Shutdown,
            Self::Shutdown | Self::End => Self::End,
        }
    }
}

/// Parameters of a session.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Requested number of workers.
    cores: u32,
    /// Requested number of transactions.
    transactions: u32,
    /// Number of requests in flight per worker.
    depth: usize,
    /// Size in bytes of the memory that the target accesses.
    memory: usize,
}

impl Plan {
    /// One worker, four transactions, 8 KiB.
    const SMALL: Self = Self {
        cores: 1,
        transactions: 4,
        depth: 4,
        memory: 8192,
    };
}

// Complete session of a correct service, as a second client of a target under test.

/// Size of an I/O in bytes.
const IO_SIZE: usize = 4096;
/// Size of the written and read part of the storage in bytes.
const AREA: usize = 16 * IO_SIZE;

/// Connects to the target on `port`, writes `rounds` blocks and reads them back, and disconnects cleanly. Sets `begun`
/// when the query has been answered, which gives the session to this client.
///
/// # Errors
///
/// The target refuses the session, in which case `begun` is not set, or does not answer correctly.
pub(crate) fn run_session(
    port: u16,
    rounds: usize,
    timeout: Duration,
    begun: &mut bool,
) -> Result<(), Violation> {
    let device = Device::open(DPU_DEVICE)?;
    let mut service = Service::new(device, port, Plan::SMALL, timeout)?;
    service.go_to(Step::Init)?;
    *begun = true;
    service.go_to(Step::Stop)?;
    for round in 0..rounds {
        let content = vec![fastrand::u8(1..); IO_SIZE];
        let place = ((round * IO_SIZE) % AREA) as u64;
        service.memory.write(0, &content)?;
        succeeds(service.io(0, &write(0, place, IO_SIZE))?)?;
        service.memory.fill(0, IO_SIZE, 0)?;
        succeeds(service.io(0, &read(0, place, IO_SIZE))?)?;
        let mut came = vec![0; IO_SIZE];
        service.memory.read(0, &mut came)?;
        Violation::unless(
            came == content,
            "the block that was written",
            "another content",
        )?;
    }
    service.go_to(Step::End)
}

fn succeeds(code: u32) -> Result<(), Violation> {
    Violation::unless(code == 0, "an I/O to succeed", format!("result {code}"))
}

// Messages of every type, for checks that ignore their contents.

/// Fails if the message is not a result.
fn parse(bytes: &[u8; io_message::SIZE]) -> Result<Repr, Violation> {
    let result = Repr::parse(&IoMessage::new_unchecked_len(bytes))?;
    Violation::unless(
        result.message_type == IoMessageType::Result,
        "a message of type result",
        result.message_type,
    )?;
    Ok(result)
}

/// A message of every type, in the order of their numbers, with meaningless contents.
fn one_of_each() -> Vec<Payload> {
    let connection = RdmaConnectionDetails {
        context_index: 0,
        role: RdmaConnectionRole::IoData,
        connection_details: Bytes::from_static(b"none"),
    };
    vec![
        Payload::ErrorResponse(ErrorResponse {
            error_code: 18,
            message: "the service has a problem".to_owned(),
        }),
        Payload::QueryStorageRequest,
        Payload::QueryStorageResponse(StorageDetails {
            total_size: 1 << 20,
            block_size: 4096,
        }),
        Payload::InitStorageRequest(InitStorage {
            transaction_count: 1,
            core_count: 1,
            mmap_export_blob: Bytes::from_static(b"none"),
        }),
        Payload::InitStorageResponse,
        Payload::CreateRdmaConnectionRequest(connection.clone()),
        Payload::CreateRdmaConnectionResponse(connection),
        Payload::StartStorageRequest,
        Payload::StartStorageResponse,
        Payload::StopStorageRequest,
        Payload::StopStorageResponse,
        Payload::ShutdownRequest,
        Payload::ShutdownResponse,
    ]
}

/// Returns `true` for an error response with an error code.
fn is_error(payload: &Payload) -> bool {
    matches!(payload, Payload::ErrorResponse(error) if error.error_code != 0)
}

/// Returns `true` if the response refuses this request.
fn is_refusal(answer: &Message, request: &Message) -> bool {
    let ids = |message: &Message| (message.message_id, message.correlation_id);
    is_error(&answer.payload) && ids(answer) == ids(request)
}

/// Short description of a payload.
fn describe(payload: &Payload) -> String {
    match payload {
        Payload::ErrorResponse(ErrorResponse {
            error_code,
            message,
        }) => format!("error_response {error_code} ({message})"),
        Payload::CreateRdmaConnectionResponse(RdmaConnectionDetails {
            context_index,
            role,
            ..
        }) => format!("create_rdma_connection_response of context {context_index}, {role}"),
        other => other.message_type().to_string(),
    }
}

// Scripted service for a target: executes the steps of a session one by one.

/// Sends bytes to the target.
type Deliver = Box<dyn FnMut(&mut TcpPeer, &[u8]) -> Result<(), Violation>>;

/// Fields are in drop order: workers before the memory that their peers access.
struct Service {
    workers: Vec<Worker>,
    memory: Arc<MemoryRegion>,
    map: Mmap,
    device: Device,
    control: TcpPeer,
    /// Segmentation of frames: one segment unless a check changes it.
    deliver: Deliver,
    /// Message id and correlation id of the next request.
    ids: Box<dyn FnMut() -> (u32, u32)>,
    plan: Plan,
    port: u16,
    due: Step,
    timeout: Duration,
}

impl Service {
    /// Connects a service to the target on `port`.
    fn connect(fixture: &Fixture<'_>, port: u16, plan: Plan) -> Result<Self, Violation> {
        let device = Device::open(&fixture.subject().devices.dpu)?;
        Self::new(device, port, plan, fixture.timeout())
    }

    /// As [`connect`](Self::connect), on this device.
    fn new(device: Device, port: u16, plan: Plan, timeout: Duration) -> Result<Self, Violation> {
        let memory = MemoryRegion::new(plan.memory)?;
        let map = Mmap::register(&device, Arc::clone(&memory), REMOTE)?;
        let mut next = 0x1000;
        Ok(Self {
            workers: Vec::new(),
            memory,
            map,
            device,
            control: TcpPeer::connect(port)?,
            deliver: Box::new(|peer, bytes| peer.send_bytes(bytes)),
            ids: Box::new(move || {
                next += 1;
                (next, 0x77)
            }),
            plan,
            port,
            due: Step::Query,
            timeout,
        })
    }

    /// Starts a target with these flags, and a service that has executed all steps before `step`.
    fn at(
        fixture: &Fixture<'_>,
        flags: &[&str],
        plan: Plan,
        step: Step,
    ) -> Result<(Running, Self), Violation> {
        let (running, port) = fixture.start_target(flags)?;
        let mut service = Self::connect(fixture, port, plan)?;
        service.go_to(step)?;
        Ok((running, service))
    }

    /// Executes all steps before this one.
    fn go_to(&mut self, step: Step) -> Result<(), Violation> {
        while self.due < step {
            match self.due {
                Step::Query => {
                    self.query()?;
                }
                Step::Init => self.init()?,
                Step::Connect => self.connect_all()?,
                Step::Start => {
                    self.expect(Payload::StartStorageRequest, Payload::StartStorageResponse)?
                }
                Step::Stop => {
                    self.expect(Payload::StopStorageRequest, Payload::StopStorageResponse)?
                }
                Step::Shutdown => {
                    self.expect(Payload::ShutdownRequest, Payload::ShutdownResponse)?
                }
                Step::End => {}
            }
            self.due = self.due.next();
        }
        Ok(())
    }

    /// Executes the rest of the session, after which the target must exit with success.
    fn finish(mut self, running: &mut Running) -> Result<(), Violation> {
        self.go_to(Step::End)?;
        running
            .expect_success(self.timeout)
            .during("after its last answer")
    }

    /// Records that a step was executed by other means than [`Service::go_to`].
    fn taken(&mut self, step: Step) {
        self.due = step.next();
    }

    /// Creates a request with the next ids.
    fn request(&mut self, payload: Payload) -> Message {
        let (message_id, correlation_id) = (self.ids)();
        Message {
            message_id,
            correlation_id,
            payload,
        }
    }

    /// Sends a request, and waits for the answer with its ids.
    fn ask(&mut self, payload: Payload) -> Result<Payload, Violation> {
        let request = self.request(payload);
        (self.deliver)(&mut self.control, &request.encode_to_vec())?;
        self.answer_to(&request)
    }

    /// Waits for the answer to a request that was sent.
    fn answer_to(&mut self, request: &Message) -> Result<Payload, Violation> {
        self.control.answer_to(request, self.timeout)
    }

    /// Sends a request that must get this response.
    fn expect(&mut self, request: Payload, answer: Payload) -> Result<(), Violation> {
        let came = self.ask(request)?;
        Violation::unless(came == answer, answer.message_type(), describe(&came))
    }

    /// Sends a request that must be refused.
    fn refused(&mut self, request: Payload) -> Result<(), Violation> {
        let what = request.message_type();
        let came = self.ask(request)?;
        Violation::unless(
            is_error(&came),
            format!("an error_response to {what}"),
            describe(&came),
        )
    }

    /// Sends a request that must be refused, or make the target exit with a failure.
    fn refused_or_over(
        &mut self,
        request: Payload,
        running: &mut Running,
    ) -> Result<(), Violation> {
        let request = self.request(request);
        let what = request.payload.message_type();
        self.control.send(&request)?;
        match self.control.next(self.timeout)? {
            Polled::Closed => running.expect_failure(self.timeout),
            Polled::Message(answer) if is_refusal(&answer, &request) => Ok(()),
            Polled::Message(answer) => Err(Violation::expected(
                format!("an error_response to {what} with its ids"),
                describe(&answer.payload),
            )),
            Polled::Nothing => Err(Violation::expected(
                format!("an error_response to {what}, or the end"),
                format!("nothing in {:?}", self.timeout),
            )),
        }
    }

    /// Announces extensions of the data path instead of sending the plain query, and returns those of the target: 0 for
    /// a target of the reference.
    fn announce(&mut self, features: u32) -> Result<u32, Violation> {
        let query = Payload::AnnounceStorageRequest(FeatureQuery { features });
        let announced = match self.ask(query)? {
            Payload::AnnouncedStorageResponse(answer) => answer.features,
            Payload::QueryStorageResponse(_) => 0,
            other => {
                return Err(Violation::expected(
                    "query_storage_response",
                    describe(&other),
                ));
            }
        };
        self.taken(Step::Query);
        Violation::unless(
            announced & !features == 0,
            format!("no other extensions than those that were announced, {features:#x}"),
            format!("{announced:#x}"),
        )?;
        Ok(announced)
    }

    /// Storage details reported by the target.
    fn query(&mut self) -> Result<StorageDetails, Violation> {
        match self.ask(Payload::QueryStorageRequest)? {
            Payload::QueryStorageResponse(details) => Ok(details),
            other => Err(Violation::expected(
                "query_storage_response",
                describe(&other),
            )),
        }
    }

    /// Init request for this service's plan.
    fn init_request(&self) -> Result<InitStorage, Violation> {
        Ok(InitStorage {
            transaction_count: self.plan.transactions,
            core_count: self.plan.cores,
            mmap_export_blob: self.map.export_rdma(&self.device)?.into(),
        })
    }

    fn init(&mut self) -> Result<(), Violation> {
        let init = self.init_request()?;
        self.expect(
            Payload::InitStorageRequest(init),
            Payload::InitStorageResponse,
        )
    }

    /// Creates the service's side of all workers.
    fn make_workers(&mut self) -> Result<(), Violation> {
        self.workers = (0..self.plan.cores)
            .map(|_| Worker::new(&self.device, self.plan.depth))
            .collect::<Result<_, _>>()?;
        Ok(())
    }

    fn connect_all(&mut self) -> Result<(), Violation> {
        self.make_workers()?;
        for index in 0..self.plan.cores {
            self.connect_one(index, RdmaConnectionRole::IoData)?;
            self.connect_one(index, RdmaConnectionRole::IoControl)?;
        }
        self.workers.iter_mut().try_for_each(Worker::prepare)
    }

    /// Request for a connection of a worker.
    fn connection_request(
        &mut self,
        index: u32,
        role: RdmaConnectionRole,
    ) -> Result<RdmaConnectionDetails, Violation> {
        Ok(RdmaConnectionDetails {
            context_index: index,
            role,
            connection_details: self.workers[index as usize].export(role)?.into(),
        })
    }

    fn connect_one(&mut self, index: u32, role: RdmaConnectionRole) -> Result<(), Violation> {
        let details = self.connection_request(index, role)?;
        let answer = self.ask(Payload::CreateRdmaConnectionRequest(details))?;
        self.connected(index, role, answer)
    }

    /// Handles the answer to a [`Service::connection_request`].
    fn connected(
        &mut self,
        index: u32,
        role: RdmaConnectionRole,
        answer: Payload,
    ) -> Result<(), Violation> {
        match answer {
            Payload::CreateRdmaConnectionResponse(details)
                if (details.context_index, details.role) == (index, role) =>
            {
                self.workers[index as usize].connect(role, &details.connection_details)
            }
            other => Err(Violation::expected(
                format!("create_rdma_connection_response of context {index}, {role}"),
                describe(&other),
            )),
        }
    }

    /// Performs an I/O with one worker; returns the error code of its result, whose other fields must equal those of
    /// the request.
    fn io(&mut self, worker: usize, request: &Repr) -> Result<u32, Violation> {
        self.workers[worker].send(&request.to_bytes())?;
        let result = self.result(worker)?;
        Violation::unless(
            result == request.answer(result.result),
            format!("a result that repeats {request:?}"),
            format!("{result:?}"),
        )?;
        Ok(result.result)
    }

    /// Reads a block with the first worker, which must succeed.
    fn works(&mut self) -> Result<(), Violation> {
        let code = self.io(0, &io::read(0, 0, 512))?;
        Violation::unless(code == 0, "a read to succeed", format!("result {code}"))
    }

    /// Waits for a result.
    fn result(&mut self, worker: usize) -> Result<Repr, Violation> {
        parse(&self.workers[worker].receive(self.timeout)?)
    }

    /// Closes only the control connection, and returns the rest of the service.
    fn hang_up(self, reset: bool) -> Result<impl Sized, Violation> {
        let Self {
            workers,
            memory,
            map,
            control,
            ..
        } = self;
        if reset {
            control.reset()?;
        }
        Ok((workers, memory, map))
    }
}

// The service's end of one worker: two RDMA contexts, requests out, results in.

/// Bit in the token of a receive task; the other bits are its number.
const RECEIVE: u64 = 1 << 32;

/// One of the two contexts.
struct Endpoint {
    rdma: Rdma,
    connection: RdmaConnection,
}

/// A message buffer with the task that transfers it.
struct Slot {
    task: Task,
    message: Buf,
}

/// Fields are in drop order: tasks before contexts, and contexts before the engine.
struct Worker {
    requests: Vec<Slot>,
    results: Vec<Slot>,
    control: Option<Endpoint>,
    data: Option<Endpoint>,
    messages: Mmap,
    device: Device,
    pe: Pe,
    depth: usize,
}

impl Worker {
    /// Creates a worker with `depth` requests in flight.
    fn new(device: &Device, depth: usize) -> Result<Self, Violation> {
        let messages = Mmap::register(device, MemoryRegion::new(depth * SIZE * 2)?, REMOTE)?;
        Ok(Self {
            requests: Vec::new(),
            results: Vec::new(),
            control: None,
            data: None,
            messages,
            device: device.clone(),
            pe: Pe::new()?,
            depth,
        })
    }

    /// Creates the context of this role, and exports its connection for the target.
    fn export(&mut self, role: RdmaConnectionRole) -> Result<Vec<u8>, Violation> {
        let builder = Rdma::builder(&self.device).permissions(REMOTE);
        let count = u32::try_from(self.depth).unwrap_or(u32::MAX);
        let (slot, builder) = match role {
            RdmaConnectionRole::IoData => (&mut self.data, builder),
            RdmaConnectionRole::IoControl => (
                &mut self.control,
                builder.receive_tasks(count).send_tasks(count),
            ),
        };
        let rdma = builder.start(&self.pe)?;
        let (export, connection) = rdma.export()?;
        *slot = Some(Endpoint { rdma, connection });
        Ok(export)
    }

    /// Connects to the target's export.
    fn connect(&mut self, role: RdmaConnectionRole, export: &[u8]) -> Result<(), Violation> {
        let endpoint = match role {
            RdmaConnectionRole::IoData => &self.data,
            RdmaConnectionRole::IoControl => &self.control,
        };
        let Endpoint { rdma, connection } = endpoint
            .as_ref()
            .ok_or_else(|| Violation::expected("an export before it is connected", "none"))?;
        Ok(rdma.connect(connection, export)?)
    }

    /// Allocates all tasks and submits the receives. Both connections must be established.
    fn prepare(&mut self) -> Result<(), Violation> {
        let Endpoint { rdma, connection } = self
            .control
            .as_ref()
            .ok_or_else(|| Violation::expected("the io_control connection", "none"))?;
        let inventory = BufInventory::new(self.depth * 2)?;
        for index in 0..self.depth {
            let place = |n: usize| inventory.buf(&self.messages, (n * SIZE) as u64, SIZE);
            let (request, result) = (place(index)?, place(self.depth + index)?);
            let receive = rdma.receive_task(&result, RECEIVE | index as u64)?;
            receive.submit()?;
            self.results.push(Slot {
                task: receive,
                message: result,
            });
            self.requests.push(Slot {
                task: rdma.send_task(connection, &request, index as u64)?,
                message: request,
            });
        }
        Ok(())
    }

    /// Sends these bytes, at most 64, as a request.
    fn send(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let slot = self.requests.iter().find(|slot| !slot.task.is_in_flight());
        let slot = slot.ok_or_else(|| {
            let all = self.depth;
            Violation::expected(
                "the target to take requests",
                format!("all {all} in flight"),
            )
        })?;
        slot.message.write_data(bytes)?;
        Ok(slot.task.submit()?)
    }

    /// Waits for a result, and returns its bytes.
    fn receive(&mut self, timeout: Duration) -> Result<[u8; SIZE], Violation> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(result) = self.poll()? {
                return Ok(result);
            }
            if Instant::now() > deadline {
                return Err(Violation::expected(
                    "a result",
                    format!("nothing in {timeout:?}"),
                ));
            }
        }
    }

    fn poll(&mut self) -> Result<Option<[u8; SIZE]>, Violation> {
        let Some(Event::Task(Completion { token, result })) = self.pe.poll() else {
            return Ok(None);
        };
        result?;
        if token & RECEIVE == 0 {
            return Ok(None);
        }
        let Slot { task, message } = &self.results[(token & !RECEIVE) as usize];
        let mut bytes = [0; SIZE];
        let length = message.read_data(&mut bytes)?;
        Violation::unless(
            length == SIZE,
            format!("a result of {SIZE} bytes"),
            format!("{length} bytes"),
        )?;
        message.reset_data()?;
        task.submit()?;
        Ok(Some(bytes))
    }
}
