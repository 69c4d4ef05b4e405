//! The session of a load: control channel, fast path, memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use doca::{Access, Device, MemoryRegion, Mmap};
use wire::control::{InitStorage, Message, Payload, StorageDetails};

use super::Load;
use super::source::MOST_BLOCKS;
use crate::access::REMOTE;
use crate::role::{ComchPeer, ControlPeer as _, During as _, IoChannel, Polled, Wrong};

/// I/Os under way at a time.
pub(super) const DEPTH: usize = 16;

/// What an initiator allows for its memory: a service may export it again for RDMA.
const ACCESS: Access = REMOTE.union(Access::PCI_READ_WRITE);

/// A session with a service. Dropped in this order: what uses a connection before the connection.
pub(super) struct Link {
    pub(super) io: Option<IoChannel>,
    pub(super) control: ComchPeer,
    /// Room for [`MOST_BLOCKS`] of each I/O under way.
    pub(super) memory: Arc<MemoryRegion>,
    pub(super) storage: StorageDetails,
    _memory_map: Mmap,
    device: Device,
    patience: Duration,
    requests: u32,
}

impl Link {
    /// Connects, and gives the service its memory.
    pub(super) fn connect(load: &Load) -> Result<Self, Wrong> {
        let device = Device::open(&load.device)?;
        let mut control = ComchPeer::connect(&device, &load.channel, load.patience)?;
        let mut requests = 0;
        let storage = match ask(
            &mut control,
            &mut requests,
            Payload::QueryStorageRequest,
            load.patience,
        )? {
            Payload::QueryStorageResponse(storage) if storage.block_size > 0 => storage,
            other => return Err(Wrong::expected("a storage", format!("{other:?}"))),
        };
        let memory = MemoryRegion::new(DEPTH * MOST_BLOCKS * storage.block_size as usize)?;
        let memory_map = Mmap::register(&device, Arc::clone(&memory), ACCESS)?;
        let init = InitStorage {
            transaction_count: DEPTH as u32,
            core_count: 1,
            mmap_export_blob: Bytes::from(memory_map.export_pci(&device)?),
        };
        let init = Payload::InitStorageRequest(init);
        let answer = ask(&mut control, &mut requests, init, load.patience)?;
        expect(Payload::InitStorageResponse, answer)?;
        Ok(Self {
            io: None,
            control,
            memory,
            storage,
            _memory_map: memory_map,
            device,
            patience: load.patience,
            requests,
        })
    }

    /// Blocks of the storage.
    pub(super) fn blocks(&self) -> u64 {
        self.storage.total_size / u64::from(self.storage.block_size)
    }

    /// Makes I/O possible.
    pub(super) fn start(&mut self) -> Result<(), Wrong> {
        self.control
            .wait_until("the service's consumer", self.patience, |control| {
                !control.consumers().is_empty()
            })?;
        let mut io = IoChannel::start(&self.device, &self.control, DEPTH as u32, self.patience)?;
        io.send_to(self.control.consumers()[0])?;
        self.io = Some(io);
        let answer = self.ask(Payload::StartStorageRequest)?;
        expect(Payload::StartStorageResponse, answer)
    }

    /// Ends the session, in which no I/O is under way.
    pub(super) fn end(&mut self) -> Result<(), Wrong> {
        let answer = self.ask(Payload::StopStorageRequest)?;
        expect(Payload::StopStorageResponse, answer)?;
        if let Some(io) = self.io.take() {
            io.stop()?;
        }
        let answer = self.ask(Payload::ShutdownRequest)?;
        expect(Payload::ShutdownResponse, answer)
    }

    /// What has come on the control channel while I/O was done, which is nothing.
    pub(super) fn heard(&mut self) -> Result<Option<Message>, Wrong> {
        match self.control.poll()? {
            Polled::Nothing => Ok(None),
            Polled::Message(message) => Ok(Some(message)),
            Polled::Closed => Err(Wrong::expected("I/O to go on", "the end of the service")),
        }
    }

    /// The fast path.
    pub(super) fn io(&mut self) -> Result<&mut IoChannel, Wrong> {
        self.io
            .as_mut()
            .ok_or_else(|| Wrong::new("no I/O has been started"))
    }

    fn ask(&mut self, payload: Payload) -> Result<Payload, Wrong> {
        ask(
            &mut self.control,
            &mut self.requests,
            payload,
            self.patience,
        )
    }
}

fn ask(
    control: &mut ComchPeer,
    requests: &mut u32,
    payload: Payload,
    patience: Duration,
) -> Result<Payload, Wrong> {
    *requests += 1;
    let request = Message {
        message_id: *requests,
        correlation_id: *requests,
        payload,
    };
    let what = request.payload.message_type();
    control.ask(&request, patience).during(what)
}

fn expect(expected: Payload, came: Payload) -> Result<(), Wrong> {
    Wrong::unless(
        came == expected,
        format!("{expected:?}"),
        format!("{came:?}"),
    )
}
