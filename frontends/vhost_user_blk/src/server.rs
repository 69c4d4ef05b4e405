//! The socket, for one front end at a time: its messages, its guest's memory, and the virtqueues that it has set up.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use control::network::UnixServer;
use control::shutdown::Shutdown;
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

/// Backlog of the socket: number of front ends that can wait while another one is connected.
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
/// The system is out of threads or file descriptors.
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

/// Configuration of a virtqueue, as received so far.
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
                max_piece: crate::MAX_PIECE,
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
            // Without the protocol features, no message enables a virtqueue: virtqueues are enabled from the start.
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
        // The offered fields are all read-only. A guest that writes to them must not end the session.
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
mod tests {
    //! rust-vmm's vhost-user front end with a simulated guest, against the server with a disk in memory.
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use control::network::ListenError;
    use tempfile::TempDir;
    use vhost::vhost_user::message::{
        VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
    };
    use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
    use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
    use vm_memory::{GuestMemoryBackend as _, GuestMemoryRegion as _};
    use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
    use volume::testing::{MemoryDisk, Settings};

    use super::*;
    use crate::guest::*;

    /// Timeout of every operation, for loaded machines.
    const TIMEOUT: Duration = Duration::from_secs(120);

    /// Address of the guest's memory in the front end's address space, which messages use.
    const USER: u64 = 0x7000_0000_0000;

    /// Operations without data can use the whole depth.
    const SETTINGS: Settings = Settings {
        depth: 16,
        buffers: 12,
        largest_transfer: crate::MAX_TRANSFER,
        delay: 0,
    };

    fn until(what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !condition() {
            assert!(Instant::now() < deadline, "expected {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A server with its disk.
    struct Bench {
        directory: TempDir,
        disk: MemoryDisk,
        shutdown: Shutdown,
        thread: Option<JoinHandle<()>>,
    }

    impl Bench {
        fn new(content: Vec<u8>) -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            let disk = MemoryDisk::new(content);
            let mut bench = Self {
                directory,
                disk,
                shutdown: Shutdown::new().expect("a pipe"),
                thread: None,
            };
            bench.start();
            bench
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("socket")
        }

        fn start(&mut self) {
            self.shutdown = Shutdown::new().expect("a pipe");
            let listener = UnixServer::bind(&self.path(), BACKLOG).expect("a socket");
            let workers: Arc<[Worker]> = (0..2)
                .map(|index| {
                    Worker::spawn(index, self.disk.queue(SETTINGS).expect("a queue"), None)
                        .expect("a thread")
                })
                .collect();
            let shutdown = self.shutdown.clone();
            let device = Device {
                queues: 2,
                ..DEVICE
            };
            self.thread = Some(std::thread::spawn(move || {
                serve(&listener, device, &workers, &shutdown)
                    .expect("served")
                    .join();
            }));
        }

        fn stop(&mut self) {
            self.shutdown.request();
            if let Some(thread) = self.thread.take() {
                thread.join().expect("it ends");
            }
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            self.stop();
        }
    }

    /// A front end with a guest whose first virtqueue has been set up.
    struct Machine {
        front_end: Frontend,
        guest: Guest,
        kick: EventFd,
        call: EventFd,
        error: EventFd,
    }

    impl Machine {
        fn connect(bench: &Bench) -> Frontend {
            let mut front_end = Frontend::connect(bench.path(), 2).expect("connected");
            front_end.set_owner().expect("owner");
            let features = front_end.get_features().expect("features");
            front_end.set_features(features).expect("accepted");
            let protocol = front_end.get_protocol_features().expect("features");
            front_end.set_protocol_features(protocol).expect("accepted");
            front_end.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
            front_end
        }

        fn region(guest: &Guest) -> VhostUserMemoryRegionInfo {
            let region = guest.memory.iter().next().expect("a region");
            VhostUserMemoryRegionInfo {
                guest_phys_addr: 0,
                memory_size: MEMORY,
                userspace_addr: USER,
                mmap_offset: 0,
                mmap_handle: region.file_offset().expect("a file").file().as_raw_fd(),
            }
        }

        fn new(bench: &Bench) -> Self {
            Self::with(bench, Guest::new(), 0, None)
        }

        fn with(
            bench: &Bench,
            guest: Guest,
            base: u16,
            inflight: Option<&(VhostUserInflight, std::fs::File)>,
        ) -> Self {
            let event = || EventFd::new(EFD_NONBLOCK).expect("an event counter");
            let mut machine = Self {
                front_end: Self::connect(bench),
                guest,
                kick: event(),
                call: event(),
                error: event(),
            };
            if let Some((inflight, file)) = inflight {
                machine
                    .front_end
                    .set_inflight_fd(inflight, file.as_raw_fd())
                    .expect("accepted");
            }
            machine
                .front_end
                .set_mem_table(&[Self::region(&machine.guest)])
                .expect("mapped");
            machine.start(base).expect("started");
            machine
        }

        fn start(&mut self, base: u16) -> vhost::Result<()> {
            let front_end = &mut self.front_end;
            front_end.set_vring_num(0, SIZE)?;
            front_end.set_vring_base(0, base)?;
            front_end.set_vring_addr(
                0,
                &VringConfigData {
                    queue_max_size: SIZE,
                    queue_size: SIZE,
                    flags: 0,
                    desc_table_addr: USER + DESCRIPTORS,
                    used_ring_addr: USER + USED,
                    avail_ring_addr: USER + AVAILABLE,
                    log_addr: None,
                },
            )?;
            front_end.set_vring_call(0, &self.call)?;
            front_end.set_vring_err(0, &self.error)?;
            front_end.set_vring_kick(0, &self.kick)?;
            front_end.set_vring_enable(0, true)
        }

        /// Executes a request, and returns its status.
        fn request(&mut self, kind: u32, sector: u64, len: u32) -> u8 {
            self.guest.offer_request(0, kind, sector, len);
            self.kick.write(1).expect("kicked");
            let expected = self.guest.available;
            until("a used chain", || self.guest.used() == expected);
            self.guest.status(0)
        }
    }

    fn content() -> Vec<u8> {
        (0..DEVICE.size)
            .map(|at| (at / 512 * 3 + at % 251) as u8)
            .collect()
    }

    #[test]
    fn requests_reach_the_disk_and_are_announced() {
        let bench = Bench::new(content());
        let mut machine = Machine::new(&bench);
        assert_eq!(machine.request(IN, 9, 20480), 0);
        assert_eq!(
            machine.guest.read(DATA, 20480),
            content()[9 * 512..9 * 512 + 20480]
        );
        until("an announcement", || machine.call.read().is_ok());
        machine.guest.write(DATA, &[0xab; 1024]);
        assert_eq!(machine.request(OUT, 9, 1024), 0);
        assert_eq!(bench.disk.content()[9 * 512..11 * 512], [0xab; 1024]);
        assert_eq!(machine.request(FLUSH, 0, 0), 0);
        assert_eq!(bench.disk.flushes(), 1);
        assert_eq!(machine.request(IN, DEVICE.sectors(), 512), 1);
        bench.disk.fail(0..u64::MAX);
        assert_eq!(machine.request(IN, 0, 512), 1);
        bench.disk.fail(0..0);
        assert_eq!(machine.request(IN, 0, 512), 0);
    }

    #[test]
    fn flush_fails_once_after_acknowledged_writes_were_lost() {
        let bench = Bench::new(content());
        let mut machine = Machine::new(&bench);
        bench.disk.lose();
        assert_eq!(machine.request(OUT, 0, 512), 0, "only flushes fail");
        assert_eq!(machine.request(FLUSH, 0, 0), 1);
        assert_eq!(machine.request(FLUSH, 0, 0), 0);
    }

    /// Unblocks a waiting writer, so that a failed test ends.
    struct Drained<'a>(&'a EventFd);

    impl Drop for Drained<'_> {
        fn drop(&mut self) {
            let _ = self.0.read();
        }
    }

    #[test]
    fn full_event_counter_of_a_running_virtqueue_does_not_block_it() {
        let bench = Bench::new(content());
        let mut machine = Machine::new(&bench);
        assert_eq!(machine.request(IN, 0, 512), 0);
        // Without EFD_NONBLOCK, so that a write to a full counter blocks.
        let full = EventFd::new(0).expect("an event counter");
        full.write(u64::MAX - 1).expect("counted");
        let _drained = Drained(&full);
        machine
            .front_end
            .set_vring_call(0, &full)
            .expect("accepted");
        assert_eq!(machine.request(IN, 1, 512), 0);
        assert_eq!(machine.request(IN, 2, 512), 0);
    }

    #[test]
    fn configuration_and_limits_are_reported() {
        let bench = Bench::new(content());
        let mut front_end = Machine::connect(&bench);
        assert_eq!(front_end.get_queue_num().expect("a number"), 2);
        assert_eq!(front_end.get_max_mem_slots().expect("a number"), 512);
        let flags = VhostUserConfigFlags::empty();
        let (_, config) = front_end
            .get_config(0, 60, flags, &[0; 60])
            .expect("the configuration");
        assert_eq!(
            config,
            Device {
                queues: 2,
                ..DEVICE
            }
            .config()[..60]
        );
        let (_, tail) = front_end
            .get_config(56, 64, flags, &[0; 64])
            .expect("the configuration");
        assert_eq!((tail.len(), tail[0]), (64, 1));
        front_end
            .set_config(32, VhostUserConfigFlags::WRITABLE, &[1])
            .expect("ignored");
        let features = front_end.get_protocol_features().expect("features");
        let without = VhostUserProtocolFeatures::LOG_SHMFD | VhostUserProtocolFeatures::PAGEFAULT;
        assert!(!features.intersects(without), "{features:?}");
    }

    #[test]
    fn stopping_completes_requests_in_flight() {
        let bench = Bench::new(content());
        let mut machine = Machine::new(&bench);
        bench.disk.hold(true);
        for (head, sector) in [(0, 1), (3, 2), (6, 3)] {
            machine.guest.offer_request(head, IN, sector, 512);
        }
        machine.kick.write(1).expect("kicked");
        until("all are in flight", || bench.disk.in_flight() == 3);
        let release = {
            let disk = bench.disk.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                disk.hold(false);
            })
        };
        let base = machine.front_end.get_vring_base(0).expect("stopped") as u16;
        assert_eq!((machine.guest.used(), base), (3, 3));
        release.join().expect("it ends");
        machine.guest.offer_request(9, IN, 4, 512);
        machine.kick.write(1).expect("kicked");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(
            machine.guest.used(),
            base,
            "a stopped virtqueue does nothing"
        );
        machine.start(base).expect("started");
        until("all are done", || machine.guest.used() == 4);
        assert_eq!([0, 3, 6, 9].map(|head| machine.guest.status(head)), [0; 4]);
    }

    #[test]
    fn disabled_virtqueues_and_new_memory() {
        let bench = Bench::new(content());
        let mut machine = Machine::new(&bench);
        machine
            .front_end
            .set_vring_enable(0, false)
            .expect("disabled");
        machine.guest.offer_request(0, IN, 1, 512);
        machine.kick.write(1).expect("kicked");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(machine.guest.used(), 0);
        machine
            .front_end
            .set_vring_enable(0, true)
            .expect("enabled");
        until("a used chain", || machine.guest.used() == 1);
        // Adds another region while the virtqueue runs.
        let other = Guest::new();
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 1 << 32,
            userspace_addr: USER + (1 << 32),
            ..Machine::region(&other)
        };
        machine.front_end.add_mem_region(&region).expect("mapped");
        machine.guest.header(HEADER_AT, IN, 7);
        machine.guest.chain(
            0,
            &[
                (HEADER_AT, 16, 0),
                ((1 << 32) + DATA, 512, WRITE),
                (STATUS_AT, 1, WRITE),
            ],
        );
        machine.guest.offer(0);
        machine.kick.write(1).expect("kicked");
        until("a used chain", || machine.guest.used() == 2);
        assert_eq!(machine.guest.status(0), 0);
        assert_eq!(other.read(DATA, 512), content()[7 * 512..8 * 512]);
        machine
            .front_end
            .remove_mem_region(&region)
            .expect("unmapped");
        machine.guest.offer(0);
        machine.kick.write(1).expect("kicked");
        until("a used chain", || machine.guest.used() == 3);
        assert_eq!(
            machine.guest.status(0),
            1,
            "memory that is not the guest's any more"
        );
    }

    #[test]
    fn violations_stop_the_virtqueue_and_are_announced() {
        let bench = Bench::new(content());
        let mut machine = Machine::new(&bench);
        assert_eq!(machine.request(IN, 0, 512), 0);
        machine.guest.offer(SIZE);
        machine.kick.write(1).expect("kicked");
        until("an error", || machine.error.read().is_ok());
        // The session continues: the driver can reset the device.
        let base = machine.front_end.get_vring_base(0).expect("stopped");
        assert_eq!(base, 1);
        machine.guest.write(AVAILABLE, &[0; 64]);
        machine.guest.write(USED, &[0; 4]);
        machine.guest.available = 0;
        machine.start(0).expect("started");
        assert_eq!(machine.request(IN, 0, 512), 0);
    }

    #[test]
    fn impossible_virtqueues_are_refused() {
        let bench = Bench::new(content());
        let refuses = |change: fn(&mut VringConfigData)| {
            let machine = Machine::new(&bench);
            let mut config = VringConfigData {
                queue_max_size: SIZE,
                queue_size: SIZE,
                flags: 0,
                desc_table_addr: USER + DESCRIPTORS,
                used_ring_addr: USER + USED,
                avail_ring_addr: USER + AVAILABLE,
                log_addr: None,
            };
            assert!(machine.front_end.set_vring_addr(0, &config).is_ok());
            change(&mut config);
            machine.front_end.set_vring_addr(0, &config).is_err()
        };
        assert!(refuses(|it| it.desc_table_addr = DESCRIPTORS));
        assert!(refuses(|it| it.used_ring_addr = USER + MEMORY - 4));
        assert!(refuses(|it| it.avail_ring_addr += 1));
        for (num, is_fine) in [(SIZE, true), (0, false), (3, false), (2048, false)] {
            let machine = Machine::new(&bench);
            assert_eq!(
                machine.front_end.set_vring_num(0, num).is_ok(),
                is_fine,
                "{num}"
            );
        }
        assert!(
            Machine::new(&bench)
                .front_end
                .set_features(1 << 60)
                .is_err()
        );
    }

    #[test]
    fn front_ends_are_served_one_at_a_time() {
        let bench = Bench::new(content());
        let mut first = Machine::new(&bench);
        let path = bench.path();
        let second = std::thread::spawn(move || {
            let front_end = Frontend::connect(path, 2).expect("connected");
            front_end.get_features().expect("features")
        });
        assert_eq!(first.request(IN, 0, 512), 0);
        assert!(!second.is_finished());
        drop(first);
        assert_eq!(
            second.join().expect("it ends") & DEVICE.features(),
            DEVICE.features()
        );
        // An invalid connection does not affect others.
        let mut stream = UnixStream::connect(bench.path()).expect("connected");
        std::io::Write::write_all(&mut stream, &[0xff; 64]).expect("sent");
        drop(stream);
        assert_eq!(Machine::new(&bench).request(IN, 0, 512), 0);
    }

    #[test]
    fn next_back_end_completes_requests_of_a_closed_one() {
        let mut bench = Bench::new(content());
        let mut machine = Machine::new(&bench);
        machine.front_end.get_vring_base(0).expect("stopped");
        let inflight = machine
            .front_end
            .get_inflight_fd(&VhostUserInflight::new(0, 0, 1, SIZE))
            .expect("memory");
        machine.start(0).expect("started");
        assert_eq!(machine.request(IN, 0, 512), 0);
        bench.disk.hold(true);
        for (head, sector) in [(0, 1), (3, 2), (6, 3)] {
            machine.guest.offer_request(head, OUT, sector, 512);
        }
        machine.guest.write(DATA, &[0xcd; 512]);
        machine.kick.write(1).expect("kicked");
        until("all are in flight", || bench.disk.in_flight() == 3);
        // The storage is closed while the back end uses it; the back end then exits.
        bench.disk.close();
        bench.stop();
        assert_eq!(machine.guest.used(), 1);
        assert_eq!(bench.disk.content(), content());
        bench.disk = MemoryDisk::new(content());
        bench.start();
        let Machine { guest, .. } = machine;
        let base = guest.used();
        let machine = Machine::with(&bench, guest, base, Some(&inflight));
        until("all are done", || machine.guest.used() == 4);
        assert_eq!([0, 3, 6].map(|head| machine.guest.status(head)), [0; 3]);
        assert_eq!(bench.disk.content()[512..2048], [0xcd; 1536]);
        assert_eq!(bench.disk.content()[2048..], content()[2048..]);
    }

    #[test]
    fn sockets_in_use_and_files_are_not_replaced() {
        let mut bench = Bench::new(content());
        assert!(matches!(
            UnixServer::bind(&bench.path(), BACKLOG),
            Err(ListenError::InUse(_))
        ));
        bench.stop();
        assert!(!bench.path().exists());
        std::fs::write(bench.path(), "a file").expect("written");
        assert!(matches!(
            UnixServer::bind(&bench.path(), BACKLOG),
            Err(ListenError::NotASocket(_))
        ));
        std::fs::remove_file(bench.path()).expect("removed");
        drop(UnixListener::bind(bench.path()).expect("a socket"));
        let listener =
            UnixServer::bind(&bench.path(), BACKLOG).expect("a socket that was left is replaced");
        let mode = std::fs::metadata(bench.path()).expect("a file").mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(listener);
        assert!(!bench.path().exists());
    }
}
