//! The service's end of one worker: two RDMA contexts, requests out, results in.

use std::time::{Duration, Instant};

use doca::{
    Buf, BufInventory, Completion, Device, Event, MemoryRegion, Mmap, Pe, Rdma, RdmaConnection,
    Task,
};
use wire::control::RdmaConnectionRole;
use wire::io_message::SIZE;

use crate::access::REMOTE;
use crate::role::Wrong;

/// Set in the token of a receive; the rest is its number.
const RECEIVE: u64 = 1 << 32;

/// One of the two contexts.
struct Endpoint {
    rdma: Rdma,
    connection: RdmaConnection,
}

/// A place for a message, and the task that moves it.
struct Slot {
    task: Task,
    message: Buf,
}

/// Fields are in the order in which they are dropped: tasks before contexts, those before the engine.
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
    /// One that can have `depth` requests under way.
    pub(super) fn new(device: &Device, depth: usize) -> Result<Self, Wrong> {
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

    /// Makes the context of this role, and exports its connection for the target.
    pub(super) fn export(&mut self, role: RdmaConnectionRole) -> Result<Vec<u8>, Wrong> {
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
    pub(super) fn connect(&mut self, role: RdmaConnectionRole, export: &[u8]) -> Result<(), Wrong> {
        let endpoint = match role {
            RdmaConnectionRole::IoData => &self.data,
            RdmaConnectionRole::IoControl => &self.control,
        };
        let Endpoint { rdma, connection } = endpoint
            .as_ref()
            .ok_or_else(|| Wrong::expected("an export before it is connected", "none"))?;
        Ok(rdma.connect(connection, export)?)
    }

    /// Allocates all tasks and posts the receives. Both connections are there.
    pub(super) fn prepare(&mut self) -> Result<(), Wrong> {
        let Endpoint { rdma, connection } = self
            .control
            .as_ref()
            .ok_or_else(|| Wrong::expected("the io_control connection", "none"))?;
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
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        let slot = self.requests.iter().find(|slot| !slot.task.is_in_flight());
        let slot = slot.ok_or_else(|| {
            let all = self.depth;
            Wrong::expected(
                "the target to take requests",
                format!("all {all} under way"),
            )
        })?;
        slot.message.write_data(bytes)?;
        Ok(slot.task.submit()?)
    }

    /// Waits for a result; its bytes.
    pub(super) fn receive(&mut self, patience: Duration) -> Result<[u8; SIZE], Wrong> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(result) = self.poll()? {
                return Ok(result);
            }
            if Instant::now() > deadline {
                return Err(Wrong::expected(
                    "a result",
                    format!("nothing in {patience:?}"),
                ));
            }
        }
    }

    /// Looks for a result.
    pub(super) fn poll(&mut self) -> Result<Option<[u8; SIZE]>, Wrong> {
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
        Wrong::unless(
            length == SIZE,
            format!("a result of {SIZE} bytes"),
            format!("{length} bytes"),
        )?;
        message.reset_data()?;
        task.submit()?;
        Ok(Some(bytes))
    }
}
