//! rust-vmm's vhost-user front end with a simulated guest, against the server with a disk in memory.

use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use role_common::unix_server::ListenError;
use tempfile::TempDir;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{GuestMemoryBackend as _, GuestMemoryRegion as _};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::*;
use crate::guest::*;
use crate::storage::Disk;

/// Timeout of every operation, for loaded machines.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Address of the guest's memory in the front end's address space, which messages use.
const USER: u64 = 0x7000_0000_0000;

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
    disk: Disk,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl Bench {
    fn new(content: Vec<u8>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = Disk::new(content);
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
                Worker::spawn(index, self.disk.queue().expect("a queue"), None).expect("a thread")
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

/// A front end with a guest whose first virtqueue is set up.
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
    bench.disk.set_failing(true);
    assert_eq!(machine.request(IN, 0, 512), 1);
    bench.disk.set_failing(false);
    assert_eq!(machine.request(IN, 0, 512), 0);
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
    // Without EFD_NONBLOCK: a write to a full counter blocks.
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
    let release = {
        let disk = bench.disk.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            disk.hold(false);
        })
    };
    // Each request was either completed, or not yet taken: none is in flight.
    let base = machine.front_end.get_vring_base(0).expect("stopped") as u16;
    assert_eq!(machine.guest.used(), base);
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
    std::thread::sleep(Duration::from_millis(50));
    // The storage is closed while the back end uses it; the back end then exits.
    bench.disk.close();
    bench.stop();
    assert_eq!(machine.guest.used(), 1);
    assert_eq!(bench.disk.content(), content());
    bench.disk = Disk::new(content());
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
