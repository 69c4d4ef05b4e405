//! The socket, for one front end at a time: its messages, its guest's memory, and the virtqueues that it has set up.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use role_common::shutdown::Shutdown;
use role_common::unix_server::UnixServer;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVirtioFeatures,
    VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Backend, BackendReqHandler, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut,
};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryRegion as _, GuestRegionMmap, MmapRegion};

use crate::device::{Device, MAX_QUEUE_SIZE};
use crate::inflight::{self, Inflight};
use crate::request::Memory;
use crate::ring::Setup;
use crate::worker::{Start, Worker};

/// Backlog of the socket: front ends that wait while another one is connected.
pub const BACKLOG: i32 = 8;

/// A connected front end, and the thread of its session.
struct Connection {
    stream: UnixStream,
    thread: JoinHandle<()>,
}

/// Serves front ends, one at a time, until shutdown is requested. Returns the session that is still running: it
/// completes the requests that its guest has submitted.
///
/// # Errors
/// The system has no threads or descriptors.
pub fn serve(
    listener: &UnixServer,
    device: Device,
    workers: &Arc<[Worker]>,
    shutdown: &Shutdown,
) -> io::Result<Ending> {
    let ended = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let mut connection: Option<Connection> = None;
    while !shutdown.is_requested() {
        let mut fds = vec![
            PollFd::from_borrowed_fd(shutdown.waker().readable(), PollFlags::IN),
            PollFd::new(&ended, PollFlags::IN),
        ];
        if connection.is_none() {
            fds.push(PollFd::new(listener.listener(), PollFlags::IN));
        }
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if rustix::io::read(&ended, &mut [0_u8; 8]).is_ok()
            && let Some(Connection { thread, .. }) = connection.take()
        {
            let _ = thread.join();
        }
        if connection.is_none() && !shutdown.is_requested() {
            connection = match listener.listener().accept() {
                Ok((stream, _)) => Some(connect(stream, device, workers, &ended)?),
                Err(error) if is_transient(&error) => None,
                Err(error) => return Err(error),
            };
        }
    }
    if let Some(Connection { stream, .. }) = &connection {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    Ok(Ending(connection.map(|it| it.thread)))
}

/// The session that is still running when shutdown is requested.
#[derive(Debug)]
pub struct Ending(Option<JoinHandle<()>>);

impl Ending {
    /// Returns `true` once the session has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the session has ended.
    pub fn join(self) {
        if let Some(thread) = self.0 {
            let _ = thread.join();
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted)
}

fn connect(
    stream: UnixStream,
    device: Device,
    workers: &Arc<[Worker]>,
    ended: &Arc<OwnedFd>,
) -> io::Result<Connection> {
    stream.set_nonblocking(false)?;
    let copy = stream.try_clone()?;
    let session = Session::new(device, Arc::clone(workers));
    let ended = Arc::clone(ended);
    let thread = std::thread::Builder::new()
        .name("vhost-user".to_owned())
        .spawn(move || {
            tracing::info!("a front end has connected");
            let mut handler = BackendReqHandler::from_stream(copy, Arc::new(Mutex::new(session)));
            let error = loop {
                if let Err(error) = handler.handle_request() {
                    break error;
                }
            };
            match error {
                Error::Disconnected => tracing::info!("the front end has disconnected"),
                error => tracing::warn!("the session with the front end has ended: {error}"),
            }
            // Stops the virtqueues, and completes their requests.
            drop(handler);
            let _ = rustix::io::write(ended.as_fd(), &1_u64.to_ne_bytes());
        })?;
    Ok(Connection { stream, thread })
}

/// Maximum number of memory regions of a front end.
const MAX_REGIONS: usize = 512;

/// Maximum size of the configuration space in the protocol, in bytes.
const MAX_CONFIG: usize = 256;

/// A region of the guest's memory.
#[derive(Debug)]
struct Region {
    mapped: Arc<GuestRegionMmap<()>>,
    /// Guest physical address.
    guest: u64,
    /// Address in the front end's address space, which ring addresses use.
    user: u64,
    size: u64,
}

impl Region {
    fn map(region: &VhostUserMemoryRegion, file: File) -> Result<Self> {
        let size = usize::try_from(region.memory_size).map_err(|_| Error::InvalidParam)?;
        // Checks that the file is large enough.
        let mapping = MmapRegion::from_file(FileOffset::new(file, region.mmap_offset), size)
            .map_err(|error| Error::ReqHandlerError(std::io::Error::other(error)))?;
        let mapped = GuestRegionMmap::new(mapping, GuestAddress(region.guest_phys_addr))
            .ok_or(Error::InvalidParam)?;
        Ok(Self {
            mapped: Arc::new(mapped),
            guest: region.guest_phys_addr,
            user: region.user_addr,
            size: region.memory_size,
        })
    }
}

/// Configuration of a virtqueue, as far as it was received.
#[derive(Debug, Default)]
struct Virtqueue {
    size: u16,
    /// Descriptor table, available ring and used ring, in the front end's address space.
    addresses: Option<[u64; 3]>,
    base: u16,
    kick: Option<File>,
    call: Option<File>,
    error: Option<File>,
    is_enabled: bool,
    is_running: bool,
}

/// A session with a front end. Dropping it stops its virtqueues.
#[derive(Debug)]
pub struct Session {
    device: Device,
    workers: Arc<[Worker]>,
    virtqueues: Vec<Virtqueue>,
    features: u64,
    regions: Vec<Region>,
    inflight: Option<Inflight>,
}

impl Session {
    /// Creates a session in which worker n serves virtqueue n.
    #[must_use]
    pub fn new(device: Device, workers: Arc<[Worker]>) -> Self {
        let mut virtqueues = Vec::new();
        virtqueues.resize_with(workers.len(), Virtqueue::default);
        Self {
            device,
            workers,
            virtqueues,
            features: 0,
            regions: Vec::new(),
            inflight: None,
        }
    }

    fn offered(&self) -> u64 {
        self.device.features() | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn has(&self, bit: u32) -> bool {
        self.features & 1 << bit != 0
    }

    fn virtqueue(&mut self, index: usize) -> Result<&mut Virtqueue> {
        self.virtqueues.get_mut(index).ok_or(Error::InvalidParam)
    }

    /// Translates an address of the front end to a guest physical address.
    fn translate(&self, user: u64) -> Result<GuestAddress> {
        let inside = |region: &&Region| {
            user.checked_sub(region.user)
                .is_some_and(|offset| offset < region.size)
        };
        let region = self
            .regions
            .iter()
            .find(inside)
            .ok_or(Error::InvalidParam)?;
        Ok(GuestAddress(region.guest + (user - region.user)))
    }

    /// Starts a virtqueue if its configuration is complete.
    fn start_if_ready(&mut self, index: usize) -> Result<()> {
        let virtqueue = &self.virtqueues[index];
        let (Some(addresses), Some(kick), false) =
            (virtqueue.addresses, &virtqueue.kick, virtqueue.is_running)
        else {
            return Ok(());
        };
        if !virtqueue.is_enabled || self.regions.is_empty() {
            return Ok(());
        }
        let [descriptors, available, used] = addresses.map(|address| self.translate(address));
        let mut regions: Vec<_> = self
            .regions
            .iter()
            .map(|region| Arc::clone(&region.mapped))
            .collect();
        regions.sort_by_key(|region| region.start_addr());
        let memory = Memory::from_arc_regions(regions).map_err(|_| Error::InvalidParam)?;
        let clone = |file: &Option<File>| {
            file.as_ref()
                .map(File::try_clone)
                .transpose()
                .map_err(Error::ReqHandlerError)
        };
        let start = Start {
            setup: Setup {
                memory,
                size: virtqueue.size,
                descriptors: descriptors?,
                available: available?,
                used: used?,
                next_available: virtqueue.base,
                event_idx: self.has(VIRTIO_RING_F_EVENT_IDX),
                write_through: !self.has(VIRTIO_BLK_F_FLUSH),
                inflight: self
                    .inflight
                    .as_ref()
                    .and_then(|it| it.queue(index as u16, virtqueue.size)),
                device: self.device,
                max_transfer: crate::MAX_TRANSFER,
            },
            kick: kick.try_clone().map_err(Error::ReqHandlerError)?,
            call: clone(&virtqueue.call)?,
            error: clone(&virtqueue.error)?,
        };
        self.workers[index].start(start).map_err(|error| {
            tracing::warn!("virtqueue {index} cannot be started: {error}");
            Error::InvalidParam
        })?;
        self.virtqueues[index].is_running = true;
        tracing::debug!("virtqueue {index} is running");
        Ok(())
    }

    fn stop(&mut self, index: usize) {
        if self.virtqueues[index].is_running {
            self.virtqueues[index].base = self.workers[index].stop();
            self.virtqueues[index].is_running = false;
            tracing::debug!("virtqueue {index} has stopped");
        }
    }

    /// Changes state that all virtqueues use, while none is running.
    fn change(&mut self, change: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let running: Vec<usize> = (0..self.virtqueues.len())
            .filter(|&it| self.virtqueues[it].is_running)
            .collect();
        for &index in &running {
            self.stop(index);
        }
        change(self)?;
        running
            .into_iter()
            .try_for_each(|index| self.start_if_ready(index))
    }

    /// Stops all virtqueues, and discards the negotiated features.
    fn reset(&mut self) {
        for index in 0..self.virtqueues.len() {
            self.stop(index);
            self.virtqueues[index] = Virtqueue::default();
        }
        self.features = 0;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.reset();
    }
}

fn unsupported<T>() -> Result<T> {
    Err(Error::InvalidOperation("not offered"))
}

impl VhostUserBackendReqHandlerMut for Session {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.reset();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.offered())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.offered() != 0 {
            return Err(Error::FeatureMismatch);
        }
        if features == self.features {
            return Ok(());
        }
        self.change(|session| {
            session.features = features;
            // Without the protocol features, no message enables a virtqueue: it is enabled from the start.
            if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
                session
                    .virtqueues
                    .iter_mut()
                    .for_each(|virtqueue| virtqueue.is_enabled = true);
            }
            Ok(())
        })
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let mapped: Result<Vec<Region>> = regions
            .iter()
            .zip(files)
            .map(|(region, file)| Region::map(region, file))
            .collect();
        let mapped = mapped?;
        self.change(|session| {
            session.regions = mapped;
            Ok(())
        })?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num)
            .ok()
            .filter(|size| (1..=MAX_QUEUE_SIZE).contains(size));
        let size = size
            .filter(|size| size.is_power_of_two())
            .ok_or(Error::InvalidParam)?;
        self.stop_for(index)?.size = size;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        self.stop_for(index)?.addresses = Some([descriptor, available, used]);
        self.start_if_ready(index as usize)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        self.stop_for(index)?.base = base;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let virtqueue = self.stop_for(index)?;
        virtqueue.kick = None;
        Ok(VhostUserVringState::new(index, u32::from(virtqueue.base)))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        if fd.is_none() {
            tracing::warn!(
                "virtqueue {index}: expected a descriptor for kicks, got none: polling for ever is not supported"
            );
            return Err(Error::InvalidParam);
        }
        self.stop_for(u32::from(index))?.kick = fd;
        self.start_if_ready(usize::from(index))
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let virtqueue = self.virtqueue(usize::from(index))?;
        let is_running = virtqueue.is_running;
        virtqueue.call = fd;
        if is_running {
            let call = virtqueue
                .call
                .as_ref()
                .map(File::try_clone)
                .transpose()
                .map_err(Error::ReqHandlerError)?;
            self.workers[usize::from(index)].set_call(call);
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        self.virtqueue(usize::from(index))?.error = fd;
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let offered = self.get_protocol_features()?.bits();
        if features & !offered == 0 {
            Ok(())
        } else {
            Err(Error::FeatureMismatch)
        }
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.virtqueues.len() as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let virtqueue = self.virtqueue(index as usize)?;
        virtqueue.is_enabled = enable;
        if enable {
            return self.start_if_ready(index as usize);
        }
        self.stop(index as usize);
        Ok(())
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        let mut config = self.device.config();
        config.resize(MAX_CONFIG, 0);
        let end = offset.checked_add(size).ok_or(Error::InvalidParam)?;
        let bytes = config
            .get(offset as usize..end as usize)
            .ok_or(Error::InvalidParam)?;
        Ok(bytes.to_vec())
    }

    fn set_config(
        &mut self,
        _offset: u32,
        _bytes: &[u8],
        _flags: VhostUserConfigFlags,
    ) -> Result<()> {
        // No offered field is writable. A guest that writes anyway must not end the session.
        tracing::debug!("the driver has written to the configuration space; ignored");
        Ok(())
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> Result<()> {
        unsupported()
    }

    fn set_backend_req_fd(&mut self, _backend: Backend) {}

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        unsupported()
    }

    fn get_inflight_fd(
        &mut self,
        inflight: &VhostUserInflight,
    ) -> Result<(VhostUserInflight, File)> {
        let (queues, size) = (inflight.num_queues, inflight.queue_size);
        if usize::from(queues) > self.virtqueues.len() || size > MAX_QUEUE_SIZE {
            return Err(Error::InvalidParam);
        }
        let (file, bytes) = inflight::create(queues, size).map_err(|_| Error::MemFdCreateError)?;
        let copy = file.try_clone().map_err(Error::ReqHandlerError)?;
        let mapped =
            Inflight::map(copy, 0, bytes as u64, queues, size).map_err(Error::ReqHandlerError)?;
        self.change(|session| {
            session.inflight = Some(mapped);
            Ok(())
        })?;
        Ok((VhostUserInflight::new(bytes as u64, 0, queues, size), file))
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        let (queues, size) = (inflight.num_queues, inflight.queue_size);
        let mapped = Inflight::map(file, inflight.mmap_offset, inflight.mmap_size, queues, size)
            .map_err(|error| {
                tracing::warn!("{error}");
                Error::InvalidParam
            })?;
        self.change(|session| {
            session.inflight = Some(mapped);
            Ok(())
        })
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MAX_REGIONS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        fd: File,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        if self.regions.len() >= MAX_REGIONS {
            return Err(Error::InvalidParam);
        }
        let region = Region::map(region, fd)?;
        self.change(|session| {
            session.regions.push(region);
            Ok(())
        })?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let is_it = |it: &Region| {
            it.guest == region.guest_phys_addr
                && it.user == region.user_addr
                && it.size == region.memory_size
        };
        let index = self
            .regions
            .iter()
            .position(is_it)
            .ok_or(Error::InvalidParam)?;
        self.change(|session| {
            session.regions.remove(index);
            Ok(())
        })
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        unsupported()
    }

    fn check_device_state(&mut self) -> Result<()> {
        unsupported()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        unsupported()
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        unsupported()
    }
}

impl Session {
    /// Stops a virtqueue and returns its configuration, to be changed.
    fn stop_for(&mut self, index: u32) -> Result<&mut Virtqueue> {
        self.virtqueue(index as usize)?;
        self.stop(index as usize);
        self.virtqueue(index as usize)
    }
}

#[cfg(test)]
mod tests;
