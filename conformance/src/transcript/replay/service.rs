//! The service's side: requests with live memory and connections.

use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::{Buf, BufInventory, Device, Event, MemoryRegion, Mmap, Pe, Rdma, RdmaConnection, Task};
use wire::control::{
    InitStorage, Message, Payload, RdmaConnectionDetails, RdmaConnectionRole, StorageDetails,
};
use wire::io_message::{IoMessage, IoMessageType, Repr, SIZE};

use super::Settings;
use super::player::Part;
use crate::access::REMOTE;

/// Most bytes of memory for a target to move blocks to and from.
const MOST_MEMORY: usize = 64 << 20;
/// Most workers; each is two RDMA contexts.
const MOST_WORKERS: u32 = 256;
/// The block size before a target has told its own, in bytes.
const BLOCK_SIZE: u32 = 4096;
/// Tokens of the probe's tasks.
const ANSWER: u64 = 1;
const QUESTION: u64 = 2;
/// The probe's user data, which its answer repeats.
const USER_DATA: u64 = 0x5245_504c_4159;

/// A service, as far as a target can tell.
pub(super) struct Service {
    device: String,
    timeout: Duration,
    probe: bool,
    block_size: u32,
    session: Option<Session>,
}

/// What lives from init to shutdown. Fields drop in this order.
struct Session {
    workers: Vec<Worker>,
    _memory: Mmap,
}

impl Service {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            device: settings.device.clone(),
            timeout: settings.timeout,
            probe: settings.probe,
            block_size: BLOCK_SIZE,
            session: None,
        }
    }

    /// Memory and workers for a session, and the blob of the memory.
    fn init(&mut self, init: &InitStorage) -> Result<Bytes, String> {
        if init.core_count > MOST_WORKERS {
            return Err(format!(
                "expected at most {MOST_WORKERS} workers to replay, the recording has {}",
                init.core_count
            ));
        }
        let blocks = init.transaction_count as usize * init.core_count as usize;
        let size = (self.block_size as usize)
            .saturating_mul(blocks)
            .clamp(BLOCK_SIZE as usize, MOST_MEMORY);
        let device = Device::open(&self.device).map_err(text)?;
        let region = MemoryRegion::new(size).map_err(text)?;
        let memory = Mmap::register(&device, region, REMOTE).map_err(text)?;
        let blob = memory.export_rdma(&device).map_err(text)?;
        let workers = (0..init.core_count)
            .map(|_| Worker::new(&device))
            .collect::<doca::Result<_>>()
            .map_err(text)?;
        self.session = Some(Session {
            workers,
            _memory: memory,
        });
        Ok(blob.into())
    }

    fn worker(&mut self, details: &RdmaConnectionDetails) -> Result<&mut Worker, String> {
        self.session
            .as_mut()
            .and_then(|session| session.workers.get_mut(details.context_index as usize))
            .ok_or_else(|| {
                format!(
                    "the recording has no worker {} before it",
                    details.context_index
                )
            })
    }
}

impl Part for Service {
    fn send(&mut self, recorded: &Message, is_refused: bool) -> Result<Message, String> {
        let payload = match &recorded.payload {
            // What was wrong with it must be wrong again.
            payload if is_refused => payload.clone(),
            Payload::InitStorageRequest(init) => Payload::InitStorageRequest(InitStorage {
                mmap_export_blob: self.init(init)?,
                ..init.clone()
            }),
            Payload::CreateRdmaConnectionRequest(details) => {
                let blob = self.worker(details)?.export(details.role).map_err(text)?;
                Payload::CreateRdmaConnectionRequest(RdmaConnectionDetails {
                    connection_details: blob.into(),
                    ..details.clone()
                })
            }
            payload => payload.clone(),
        };
        Ok(Message {
            payload,
            ..recorded.clone()
        })
    }

    fn receive(&mut self, _: &Message, came: &Message, _: bool) -> Result<(), String> {
        match &came.payload {
            Payload::QueryStorageResponse(StorageDetails { block_size, .. }) => {
                self.block_size = *block_size;
            }
            Payload::CreateRdmaConnectionResponse(details) => self
                .worker(details)?
                .connect(details.role, &details.connection_details)
                .map_err(|error| {
                    format!("connection_details: expected some that connect: {error}")
                })?,
            Payload::StartStorageResponse if self.probe => {
                let (block_size, timeout) = (self.block_size, self.timeout);
                let workers = self
                    .session
                    .iter_mut()
                    .flat_map(|session| &mut session.workers);
                for (index, worker) in workers.enumerate() {
                    worker.probe(block_size, timeout).map_err(|why| {
                        format!(
                            "worker {index}: expected a block through the live connections: {why}"
                        )
                    })?;
                }
            }
            Payload::ShutdownResponse => self.session = None,
            _ => {}
        }
        Ok(())
    }

    fn progress(&mut self) -> Result<bool, String> {
        Ok(false)
    }

    fn is_patient(&self) -> bool {
        false
    }

    fn ids_are_ours(&self) -> bool {
        true
    }
}

/// A worker's ends of two connections. Fields drop in this order: tasks before contexts, those before the engine.
struct Worker {
    probe: Option<Probe>,
    control: Rdma,
    data: Rdma,
    connections: [Option<RdmaConnection>; 2],
    pe: Pe,
    messages: Mmap,
}

struct Probe {
    _question: Task,
    _answer: Task,
}

impl Worker {
    fn new(device: &Device) -> doca::Result<Self> {
        let pe = Pe::new()?;
        let builder = || Rdma::builder(device).permissions(REMOTE);
        let control = builder().receive_tasks(1).send_tasks(1).start(&pe)?;
        let data = builder().start(&pe)?;
        Ok(Self {
            probe: None,
            control,
            data,
            connections: [None, None],
            pe,
            messages: Mmap::register(device, MemoryRegion::new(2 * SIZE)?, REMOTE)?,
        })
    }

    fn rdma(&self, role: RdmaConnectionRole) -> &Rdma {
        match role {
            RdmaConnectionRole::IoData => &self.data,
            RdmaConnectionRole::IoControl => &self.control,
        }
    }

    fn export(&mut self, role: RdmaConnectionRole) -> doca::Result<Vec<u8>> {
        let (blob, connection) = self.rdma(role).export()?;
        self.connections[role as usize] = Some(connection);
        Ok(blob)
    }

    fn connect(&mut self, role: RdmaConnectionRole, blob: &[u8]) -> Result<(), String> {
        let connection = self.connections[role as usize]
            .as_ref()
            .ok_or("there was no request for it")?;
        self.rdma(role).connect(connection, blob).map_err(text)
    }

    /// Reads the first block of the storage: the request and its answer need one connection, the block the other, and the
    /// memory.
    fn probe(&mut self, block_size: u32, timeout: Duration) -> Result<(), String> {
        let connection = self.connections[RdmaConnectionRole::IoControl as usize]
            .as_ref()
            .ok_or("there is none for I/O messages")?;
        let request = Repr {
            message_type: IoMessageType::Read,
            user_data: USER_DATA,
            result: 0,
            size: block_size.min(MOST_MEMORY as u32),
            requester_offset: 0,
            storage_offset: 0,
        };
        let inventory = BufInventory::new(2).map_err(text)?;
        let place = |index: usize| inventory.buf(&self.messages, (index * SIZE) as u64, SIZE);
        let (question, answer) = (place(0).map_err(text)?, place(1).map_err(text)?);
        question.write_data(&request.to_bytes()).map_err(text)?;
        let receive = self.control.receive_task(&answer, ANSWER).map_err(text)?;
        let send = self
            .control
            .send_task(connection, &question, QUESTION)
            .map_err(text)?;
        receive.submit().map_err(text)?;
        send.submit().map_err(text)?;
        self.probe = Some(Probe {
            _question: send,
            _answer: receive,
        });
        let deadline = Instant::now() + timeout;
        loop {
            match self.pe.poll() {
                Some(Event::Task(done)) => {
                    done.result
                        .map_err(|code| format!("a task failed: {code}"))?;
                    if done.token == ANSWER {
                        return check(&answer, &request);
                    }
                }
                Some(_) => {}
                None if Instant::now() >= deadline => {
                    return Err(format!("nothing came within {timeout:?}"));
                }
                None => {}
            }
        }
    }
}

fn check(answer: &Buf, request: &Repr) -> Result<(), String> {
    let mut bytes = [0; SIZE];
    let len = answer.read_data(&mut bytes).map_err(text)?;
    let view = IoMessage::new_checked(&bytes[..len]).map_err(text)?;
    let came = Repr::parse(&view).map_err(text)?;
    let expected = Repr {
        message_type: IoMessageType::Result,
        ..*request
    };
    if came == expected {
        Ok(())
    } else {
        Err(format!("expected {expected:?}, {came:?} came"))
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
