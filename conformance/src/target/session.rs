//! A session of the scripted target, without its control channel.

use std::sync::Arc;

use doca::{Device, MemoryRegion, Mmap};
use wire::control::{
    AnnouncedStorage, Payload, RdmaConnectionDetails, RdmaConnectionRole, StorageDetails,
};
use wire::io_message::Repr;
use wire::release::Release;

use super::fault::Faults;
use super::messages::Messages;
use super::records::Records;
use super::worker::{Storage, Worker};
use super::{Error, Script};
use crate::access::REMOTE;

/// What a target does about the requests of a service, and with the I/Os of its workers. How they come is another's.
pub(crate) struct Session {
    workers: Vec<Worker>,
    device: Device,
    block_size: u32,
    capacity: u64,
    local: Mmap,
    region: Arc<MemoryRegion>,
    faults: Faults,
    records: Option<Records>,
    features: u32,
    release: Release,
    running: bool,
}

impl Session {
    /// One that holds what the script says.
    pub(crate) fn new(script: &Script) -> Result<Self, Error> {
        let device = Device::open(&script.device)?;
        let region = MemoryRegion::new(script.content.len())?;
        region.write(0, &script.content)?;
        let local = Mmap::register(&device, Arc::clone(&region), REMOTE)?;
        Ok(Self {
            workers: Vec::new(),
            device,
            block_size: script.block_size,
            capacity: script.content.len() as u64,
            local,
            region,
            faults: Faults::new(script.fault, script.block_size),
            records: script.records.map(Records::new),
            features: script.features,
            release: script.release,
            running: false,
        })
    }

    /// Keeps the I/Os that come from now on.
    pub(crate) fn watch_ios(&mut self) {
        self.faults.watch();
    }

    /// The I/Os that have come since the last time, in the order in which they came.
    pub(crate) fn take_ios(&mut self) -> Vec<Repr> {
        self.faults.take_seen()
    }

    /// Whether I/Os are served.
    pub(crate) fn is_running(&self) -> bool {
        self.running
    }

    /// What it holds in the end. Nobody writes there any more: the workers' connections are gone.
    pub(crate) fn into_content(mut self) -> Result<Vec<u8>, Error> {
        self.workers.clear();
        self.content()
    }

    /// What it holds now.
    pub(crate) fn content(&self) -> Result<Vec<u8>, Error> {
        let mut content = vec![0; self.region.len()];
        self.region.read(0, &mut content)?;
        Ok(content)
    }

    /// Whether a request is not answered at all.
    pub(crate) fn withholds(&mut self, request: &Payload) -> bool {
        let records = self.records.as_mut();
        records.is_some_and(|records| records.withholds(request))
    }

    /// Does what is asked, and says what to answer.
    pub(crate) fn answer(&mut self, request: &Payload) -> Result<Payload, Error> {
        let details = StorageDetails {
            total_size: self.capacity,
            block_size: self.block_size,
        };
        Ok(match request {
            Payload::IdentifyStorageRequest(query) if let Some(records) = &mut self.records => {
                records.answer(query, &details)
            }
            Payload::AnnounceStorageRequest(query) if query.features & self.features != 0 => {
                Payload::AnnouncedStorageResponse(AnnouncedStorage {
                    total_size: details.total_size,
                    block_size: details.block_size,
                    features: query.features & self.features,
                })
            }
            // Like the reference, it does not see what follows the shorter request.
            Payload::QueryStorageRequest
            | Payload::IdentifyStorageRequest(_)
            | Payload::AnnounceStorageRequest(_) => Payload::QueryStorageResponse(details),
            Payload::InitStorageRequest(_) | Payload::BatchedInitStorageRequest(_) => {
                let init = request.as_init_storage();
                let (init, _) = init.ok_or_else(|| Error::Unexpected {
                    expected: "an init_storage_request",
                    got: request.message_type().to_string(),
                })?;
                let remote = Mmap::import(&self.device, &init.mmap_export_blob)?;
                let storage = Arc::new(Storage {
                    local: self.local.clone(),
                    messages: Messages {
                        release: self.release,
                        requester_address: remote.base_address(),
                    },
                    remote,
                });
                for _ in 0..init.core_count {
                    self.workers
                        .push(Worker::new(&self.device, &storage, init.transaction_count)?);
                }
                Payload::InitStorageResponse
            }
            Payload::CreateRdmaConnectionRequest(details) => {
                let index = details.context_index;
                let worker =
                    self.workers
                        .get_mut(index as usize)
                        .ok_or_else(|| Error::Unexpected {
                            expected: "the context index of a worker",
                            got: index.to_string(),
                        })?;
                let is_data = details.role == RdmaConnectionRole::IoData;
                let blob = worker.connect(is_data, &details.connection_details)?;
                Payload::CreateRdmaConnectionResponse(RdmaConnectionDetails {
                    context_index: index,
                    role: details.role,
                    connection_details: blob.into(),
                })
            }
            Payload::StartStorageRequest => {
                for worker in &mut self.workers {
                    worker.start()?;
                }
                self.running = true;
                Payload::StartStorageResponse
            }
            Payload::StopStorageRequest => {
                self.running = false;
                Payload::StopStorageResponse
            }
            Payload::ShutdownRequest => {
                self.workers.clear();
                Payload::ShutdownResponse
            }
            other => {
                return Err(Error::Unexpected {
                    expected: "a request",
                    got: other.message_type().to_string(),
                });
            }
        })
    }

    /// Serves the I/Os that have come.
    pub(crate) fn progress(&mut self) -> Result<(), Error> {
        for worker in &mut self.workers {
            worker.progress(&mut self.faults)?;
        }
        Ok(())
    }
}
