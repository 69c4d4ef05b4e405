//! Scripted service for a target: executes the steps of a session one by one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::{
    Buf, BufInventory, Completion, Device, Event, MemoryRegion, Mmap, Pe, Rdma, RdmaConnection,
    Task,
};
use wire::control::{
    FeatureQuery, InitStorage, Message, Payload, RdmaConnectionDetails, RdmaConnectionRole,
    StorageDetails,
};
use wire::io_message::{Repr, SIZE};

use super::{Plan, Step, describe, is_error, is_refusal, parse};
use crate::role::{
    ControlPeer as _, During as _, Fixture, Polled, REMOTE, Running, TcpPeer, Violation,
};

/// Sends bytes to the target.
pub(super) type Deliver = Box<dyn FnMut(&mut TcpPeer, &[u8]) -> Result<(), Violation>>;

/// Fields are in drop order: workers before the memory that their peers access.
pub(super) struct Service {
    pub(super) workers: Vec<Worker>,
    pub(super) memory: Arc<MemoryRegion>,
    map: Mmap,
    device: Device,
    pub(super) control: TcpPeer,
    /// Segmentation of frames: one segment unless a check changes it.
    pub(super) deliver: Deliver,
    /// Message id and correlation id of the next request.
    pub(super) ids: Box<dyn FnMut() -> (u32, u32)>,
    plan: Plan,
    pub(super) port: u16,
    pub(super) due: Step,
    timeout: Duration,
}

impl Service {
    /// Connects a service to the target on `port`.
    pub(super) fn connect(fixture: &Fixture<'_>, port: u16, plan: Plan) -> Result<Self, Violation> {
        let device = Device::open(&fixture.subject().devices.dpu)?;
        Self::new(device, port, plan, fixture.timeout())
    }

    /// As [`connect`](Self::connect), on this device.
    pub(super) fn new(
        device: Device,
        port: u16,
        plan: Plan,
        timeout: Duration,
    ) -> Result<Self, Violation> {
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
    pub(super) fn at(
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
    pub(super) fn go_to(&mut self, step: Step) -> Result<(), Violation> {
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
    pub(super) fn finish(mut self, running: &mut Running) -> Result<(), Violation> {
        self.go_to(Step::End)?;
        running
            .expect_success(self.timeout)
            .during("after its last answer")
    }

    /// Records that a step was executed, other than by [`Service::go_to`].
    pub(super) fn taken(&mut self, step: Step) {
        self.due = step.next();
    }

    /// Creates a request with the next ids.
    pub(super) fn request(&mut self, payload: Payload) -> Message {
        let (message_id, correlation_id) = (self.ids)();
        Message {
            message_id,
            correlation_id,
            payload,
        }
    }

    /// Sends a request, and waits for the answer with its ids.
    pub(super) fn ask(&mut self, payload: Payload) -> Result<Payload, Violation> {
        let request = self.request(payload);
        (self.deliver)(&mut self.control, &request.encode_to_vec())?;
        self.answer_to(&request)
    }

    /// Waits for the answer to a request that was sent.
    pub(super) fn answer_to(&mut self, request: &Message) -> Result<Payload, Violation> {
        self.control.answer_to(request, self.timeout)
    }

    /// Sends a request that must get this answer.
    pub(super) fn expect(&mut self, request: Payload, answer: Payload) -> Result<(), Violation> {
        let came = self.ask(request)?;
        Violation::unless(came == answer, answer.message_type(), describe(&came))
    }

    /// Sends a request that must be refused.
    pub(super) fn refused(&mut self, request: Payload) -> Result<(), Violation> {
        let what = request.message_type();
        let came = self.ask(request)?;
        Violation::unless(
            is_error(&came),
            format!("an error_response to {what}"),
            describe(&came),
        )
    }

    /// Sends a request that must be refused, or make the target exit with a failure.
    pub(super) fn refused_or_over(
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

    /// Announces extensions of the data path instead of sending the plain query, and returns those of the target: 0
    /// for one of the reference.
    pub(super) fn announce(&mut self, features: u32) -> Result<u32, Violation> {
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
    pub(super) fn query(&mut self) -> Result<StorageDetails, Violation> {
        match self.ask(Payload::QueryStorageRequest)? {
            Payload::QueryStorageResponse(details) => Ok(details),
            other => Err(Violation::expected(
                "query_storage_response",
                describe(&other),
            )),
        }
    }

    /// Init request for this service's plan.
    pub(super) fn init_request(&self) -> Result<InitStorage, Violation> {
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
    pub(super) fn make_workers(&mut self) -> Result<(), Violation> {
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
    pub(super) fn connection_request(
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

    /// Creates one connection.
    pub(super) fn connect_one(
        &mut self,
        index: u32,
        role: RdmaConnectionRole,
    ) -> Result<(), Violation> {
        let details = self.connection_request(index, role)?;
        let answer = self.ask(Payload::CreateRdmaConnectionRequest(details))?;
        self.connected(index, role, answer)
    }

    /// Handles the answer to a [`Service::connection_request`].
    pub(super) fn connected(
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

    /// Performs an I/O with one worker; returns the error code of its result, whose other fields must repeat the request.
    pub(super) fn io(&mut self, worker: usize, request: &Repr) -> Result<u32, Violation> {
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
    pub(super) fn works(&mut self) -> Result<(), Violation> {
        let code = self.io(0, &super::io::read(0, 0, 512))?;
        Violation::unless(code == 0, "a read to succeed", format!("result {code}"))
    }

    /// Waits for a result.
    pub(super) fn result(&mut self, worker: usize) -> Result<Repr, Violation> {
        parse(&self.workers[worker].receive(self.timeout)?)
    }

    /// Closes only the control connection, and returns the rest of the service.
    pub(super) fn hang_up(self, reset: bool) -> Result<impl Sized, Violation> {
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

/// Fields are in drop order: tasks before contexts, and those before the engine.
pub(super) struct Worker {
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
    pub(super) fn new(device: &Device, depth: usize) -> Result<Self, Violation> {
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
    pub(super) fn export(&mut self, role: RdmaConnectionRole) -> Result<Vec<u8>, Violation> {
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
    pub(super) fn connect(
        &mut self,
        role: RdmaConnectionRole,
        export: &[u8],
    ) -> Result<(), Violation> {
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
    pub(super) fn prepare(&mut self) -> Result<(), Violation> {
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
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let slot = self.requests.iter().find(|slot| !slot.task.is_in_flight());
        let slot = slot.ok_or_else(|| {
            let all = self.depth;
            Violation::expected(
                "the target to take requests",
                format!("all {all} under way"),
            )
        })?;
        slot.message.write_data(bytes)?;
        Ok(slot.task.submit()?)
    }

    /// Waits for a result, and returns its bytes.
    pub(super) fn receive(&mut self, timeout: Duration) -> Result<[u8; SIZE], Violation> {
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

    /// Polls for a result.
    pub(super) fn poll(&mut self) -> Result<Option<[u8; SIZE]>, Violation> {
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
