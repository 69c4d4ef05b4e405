//! Exports used by a malicious process: altered or forged descriptors, and requests by the wrong process, do not grant
//! access.

mod process;

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use process::{Peer, from_hex, hear, say, to_hex};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Resource, Rlimit};
use softdoca::device::Device;
use softdoca::error::Error;
use softdoca::log::{self, Origin, Record, Sink};
use softdoca::memory::{ExportKind, Mmap, Permissions};
use softdoca::runtime::{RuntimeDir, Socket};

const PAGE: usize = 4096;
/// Size of the memory; the program exports the pages in the middle.
const ALL: usize = 4 * PAGE;
const FIRST: usize = PAGE;
const LEN: usize = 2 * PAGE;

fn device() -> Arc<Device> {
    Device::open_by_name("mlx5_0").unwrap()
}

/// Memory of this process, whose middle is exported. Accessed only by raw copies.
struct Memory {
    base: *mut u8,
    mmap: Mmap,
}

impl Memory {
    /// In private pages (shared in place) or shared pages (accessible only through the agent).
    fn new(flags: MapFlags, permissions: Permissions) -> Memory {
        // SAFETY: a new mapping.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                ALL,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        };
        let base = base.unwrap().cast::<u8>();
        for index in 0..ALL {
            // SAFETY: inside the mapping.
            unsafe { base.add(index).write_volatile(pattern(index)) };
        }
        let mmap = Mmap::new();
        let addr = base.wrapping_add(FIRST).expose_provenance() as u64;
        mmap.set_memrange(addr, LEN as u64).unwrap();
        mmap.set_permissions(permissions).unwrap();
        mmap.add_device(&device()).unwrap();
        mmap.start().unwrap();
        Memory { base, mmap }
    }

    fn export(&self, kind: ExportKind) -> Vec<u8> {
        self.mmap.export(kind, &device()).unwrap().to_vec()
    }

    fn addr(&self) -> u64 {
        self.mmap.memrange().unwrap().0
    }

    fn is_untouched(&self) -> bool {
        // SAFETY: inside the mapping.
        (0..ALL).all(|index| unsafe { self.base.add(index).read_volatile() } == pattern(index))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = self.mmap.stop();
        // SAFETY: our mapping, which is not accessed any more.
        unsafe { rustix::mm::munmap(self.base.cast(), ALL) }.unwrap();
    }
}

fn pattern(index: usize) -> u8 {
    (index % 251) as u8
}

fn import(descriptor: &[u8]) -> Result<Mmap, Error> {
    Mmap::import(descriptor, &device())
}

fn try_read(mmap: &Mmap, addr: u64, len: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; len];
    // SAFETY: the vector has that many bytes.
    unsafe { mmap.read_into(addr, bytes.as_mut_ptr(), len) }.map(|()| bytes)
}

/// Rewrites the existing bytes, so that only the permission matters; `Err` if refused.
fn try_write(mmap: &Mmap, addr: u64) -> Result<(), Error> {
    let same = [pattern(FIRST)];
    // SAFETY: the array has that many bytes.
    unsafe { mmap.write_from(addr, same.as_ptr(), same.len()) }
}

#[test]
fn an_altered_permission_allows_nothing() {
    const NAME: &str = "an_altered_permission_allows_nothing";
    fn main() {
        use Permissions as P;
        let noted = [
            (P::PCI_READ_ONLY, ExportKind::Pci),
            (P::PCI_READ_WRITE, ExportKind::Pci),
            (P::RDMA_READ, ExportKind::Rdma),
            (P::RDMA_WRITE, ExportKind::Rdma),
            (P::RDMA_ATOMIC, ExportKind::Rdma),
            (P::RDMA_READ | P::RDMA_WRITE, ExportKind::Rdma),
            (P::PCI_READ_ONLY | P::RDMA, ExportKind::Pci),
        ];
        for flags in [MapFlags::PRIVATE, MapFlags::SHARED] {
            for (permissions, kind) in noted {
                let memory = Memory::new(flags, permissions);
                let descriptor = memory.export(kind);
                let mut accepted = 0;
                for said in 0..=0x7f {
                    for kind_byte in [1, 2] {
                        let mut altered = descriptor.clone();
                        altered[10] = kind_byte;
                        altered[12..16].copy_from_slice(&u32::to_le_bytes(said));
                        if let Ok(mmap) = import(&altered) {
                            accepted += 1;
                            allows_no_more(&mmap, &memory, permissions, kind);
                        }
                    }
                }
                assert!(accepted > 0, "as it was, at least");
            }
        }
    }
    /// Checks that operations that the owner has not permitted are refused, for any contents of the descriptor.
    fn allows_no_more(mmap: &Mmap, memory: &Memory, noted: Permissions, kind: ExportKind) {
        let may = |pci: Permissions, rdma: Permissions| match kind {
            ExportKind::Pci => noted.intersects(pci),
            ExportKind::Rdma => noted.contains(rdma),
        };
        let addr = memory.addr();
        if !may(Permissions::PCI, Permissions::RDMA_READ) {
            // The reader is expected to check read permission with the map.
            let said = mmap.permissions().contains(Permissions::RDMA_READ);
            assert!(
                !said || try_read(mmap, addr, 8).is_err(),
                "{noted:?} is read"
            );
        }
        if !may(Permissions::PCI_READ_WRITE, Permissions::RDMA_WRITE) {
            assert!(try_write(mmap, addr).is_err(), "{noted:?} is written");
        }
        if !may(Permissions::empty(), Permissions::RDMA_ATOMIC) {
            assert!(mmap.fetch_add(addr, 0).is_err(), "{noted:?} is added to");
        }
        assert!(memory.is_untouched());
    }
    process::run(NAME, main, &[]);
}

#[test]
fn an_altered_range_is_refused() {
    const NAME: &str = "an_altered_range_is_refused";
    fn main() {
        for flags in [MapFlags::PRIVATE, MapFlags::SHARED] {
            let memory = Memory::new(flags, Permissions::PCI_READ_WRITE | Permissions::RDMA);
            let (addr, len) = (memory.addr(), LEN as u64);
            let page = PAGE as u64;
            let descriptor = memory.export(ExportKind::Pci);
            for (start, length) in [
                (addr - page, len),
                (addr - page, len + page),
                (addr + page, len),
                (addr + page, len - page),
                (addr, len + page),
                (addr, len - page),
                (addr, len + 1),
                (addr - 1, len + 1),
                (0, addr + len),
                (1, u64::from(u32::MAX)),
                (addr, u64::MAX - addr),
            ] {
                let mut altered = descriptor.clone();
                altered[16..24].copy_from_slice(&start.to_le_bytes());
                altered[24..32].copy_from_slice(&length.to_le_bytes());
                let refused = import(&altered).expect_err("another range");
                let expected = [Error::Unexpected, Error::InvalidValue, Error::TooBig];
                assert!(expected.contains(&refused), "{refused}");
            }
            assert!(import(&descriptor).is_ok() && memory.is_untouched());
        }
    }
    process::run(NAME, main, &[]);
}

#[test]
fn every_altered_bit_is_refused_or_changes_nothing() {
    const NAME: &str = "every_altered_bit_is_refused_or_changes_nothing";
    fn main() {
        let memory = Memory::new(
            MapFlags::PRIVATE,
            Permissions::PCI_READ_WRITE | Permissions::RDMA,
        );
        let descriptor = memory.export(ExportKind::Pci);
        let mut accepted = Vec::new();
        for bit in 0..descriptor.len() * 8 {
            let mut altered = descriptor.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            let Ok(mmap) = import(&altered) else { continue };
            accepted.push(bit / 8);
            assert_eq!(mmap.memrange(), memory.mmap.memrange(), "bit {bit}");
            // The key for exporting it again is checked when that export is imported.
            if bit / 8 >= 80 {
                let onward = mmap.export(ExportKind::Rdma, &device()).unwrap();
                assert_eq!(import(&onward).unwrap_err(), Error::NotFound, "bit {bit}");
            }
        }
        // Permissions without a meaning across PCIe, and the key for exporting it again.
        assert!(accepted.iter().all(|&byte| byte == 12 || byte >= 80));
        assert!(memory.is_untouched());
    }
    process::run(NAME, main, &[]);
}

const READ: u16 = 2;
const WRITE: u16 = 3;
const FETCH_ADD: u16 = 4;
const COMPARE_SWAP: u16 = 5;

/// A connection to this process's own agent that bypasses all checks of the requesting side.
struct Agent(Socket);

impl Agent {
    fn connect() -> Agent {
        let directory = RuntimeDir::get().unwrap();
        let name = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .find(|name| name.starts_with("a-"))
            .expect("an agent");
        Agent(Socket::connect(&directory, &name).unwrap())
    }

    /// The error code of the reply, and the number of bytes after it.
    fn ask(&self, message: &[u8]) -> (u32, usize) {
        self.0.send(message, &[]).unwrap();
        self.0.wait_readable(Duration::from_secs(60)).unwrap();
        let mut answer = [0; 16384];
        let length = self
            .0
            .receive(&mut answer, &mut Vec::new())
            .unwrap()
            .unwrap();
        let code = u32::from_le_bytes(*answer[4..].first_chunk().unwrap());
        (code, length - 16)
    }
}

/// A request to an agent in the format of `agent/protocol.rs`.
fn request(operation: u16, key: &[u8], addr: u64, len: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = b"SDrq\x02\x00".to_vec();
    bytes.extend(operation.to_le_bytes());
    bytes.extend(key);
    for word in [addr, len, 1, 1] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(payload);
    bytes
}

#[test]
fn an_agent_accesses_only_exported_memory() {
    const NAME: &str = "an_agent_accesses_only_exported_memory";
    fn main() {
        let permissions = Permissions::PCI_READ_WRITE | Permissions::RDMA;
        let memory = Memory::new(MapFlags::SHARED, permissions);
        let descriptor = memory.export(ExportKind::Rdma);
        let key = &descriptor[64..80];
        let agent = Agent::connect();
        let ask = |message: &[u8]| agent.ask(message);
        let (addr, len) = (memory.addr(), LEN as u64);
        let outside = [
            (addr - 1, 1),
            (addr - 1, len),
            (addr + len, 1),
            (addr + len - 1, 2),
            (addr, len + 1),
            (0, 8),
            (u64::MAX, 1),
            (u64::MAX - 7, 8),
            (addr, u64::MAX),
            (addr + 8, u64::MAX - 8),
        ];
        for (start, length) in outside {
            let (code, came) = ask(&request(READ, key, start, length, &[]));
            assert!(code != 0 && came == 0, "read of {length} at {start:x}");
            let payload = vec![0xee; length.min(64) as usize];
            let (code, _) = ask(&request(WRITE, key, start, length, &payload));
            assert!(code != 0, "write of {length} at {start:x}");
        }
        for start in [addr - 8, addr - 4, addr + 4, addr + len - 4, addr + len, 0] {
            for operation in [FETCH_ADD, COMPARE_SWAP] {
                let (code, _) = ask(&request(operation, key, start, 8, &[]));
                assert!(code != 0, "atomic at {start:x}");
            }
        }
        // More and fewer bytes than announced, and an unknown key.
        for (length, payload) in [(8, &[0xee; 9][..]), (8, &[0xee; 7]), (8, &[])] {
            let (code, _) = ask(&request(WRITE, key, addr + len, length, payload));
            assert!(code != 0, "{} bytes for {length}", payload.len());
        }
        let (code, came) = ask(&request(READ, &[7; 16], addr, 8, &[]));
        assert!(code != 0 && came == 0, "another key");
        assert!(memory.is_untouched());
        // The agent still serves correct requests.
        assert_eq!(ask(&request(READ, key, addr, 8, &[])), (0, 8));
    }
    process::run(NAME, main, &[]);
}

#[test]
fn an_agent_performs_only_permitted_operations() {
    const NAME: &str = "an_agent_performs_only_permitted_operations";
    fn main() {
        use Permissions as P;
        for permissions in [
            P::RDMA_READ,
            P::RDMA_WRITE,
            P::RDMA_ATOMIC,
            P::RDMA_READ | P::RDMA_WRITE,
            P::RDMA,
        ] {
            let memory = Memory::new(MapFlags::SHARED, permissions);
            let descriptor = memory.export(ExportKind::Rdma);
            let (agent, key, addr) = (Agent::connect(), &descriptor[64..80], memory.addr());
            let (code, came) = agent.ask(&request(READ, key, addr, 8, &[]));
            let may_read = permissions.contains(P::RDMA_READ);
            let expected = if may_read { (true, 8) } else { (false, 0) };
            assert_eq!((code == 0, came), expected, "{permissions:?}: read");
            // The existing bytes, so that a permitted write changes nothing.
            let same: Vec<u8> = (FIRST..FIRST + 8).map(pattern).collect();
            let (code, _) = agent.ask(&request(WRITE, key, addr, 8, &same));
            let may_write = permissions.contains(P::RDMA_WRITE);
            assert_eq!(code == 0, may_write, "{permissions:?}: write");
            if !may_write {
                let (code, _) = agent.ask(&request(WRITE, key, addr, 8, &[0xee; 8]));
                assert!(code != 0);
            }
            // The operands of `request` are 1 and 1, so the value is not changed.
            let (code, _) = agent.ask(&request(COMPARE_SWAP, key, addr, 8, &[]));
            let may_change = permissions.contains(P::RDMA_ATOMIC);
            assert_eq!(code == 0, may_change, "{permissions:?}: compare and swap");
            if !may_change {
                let (code, _) = agent.ask(&request(FETCH_ADD, key, addr, 8, &[]));
                assert!(code != 0, "{permissions:?}: fetch and add");
            }
            assert!(memory.is_untouched(), "{permissions:?}");
        }
    }
    process::run(NAME, main, &[]);
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn an_agent_without_descriptors_neither_spins_nor_floods_the_log() {
    const NAME: &str = "an_agent_without_descriptors_neither_spins_nor_floods_the_log";
    struct Count(&'static AtomicUsize);
    impl Sink for Count {
        fn accept(&self, _: &Record<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    static MESSAGES: AtomicUsize = AtomicUsize::new(0);
    fn main() {
        let memory = Memory::new(MapFlags::SHARED, Permissions::RDMA_READ);
        let descriptor = memory.export(ExportKind::Rdma);
        let _backend = log::add_backend(Origin::Sdk, Box::new(Count(&MESSAGES)));
        // Initialised before descriptors run out, as in a program that is attacked later.
        import(&descriptor).unwrap();
        let mut peer = Peer::start(NAME, "peer");
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        let few = Rlimit {
            current: Some(open + 8),
            maximum: rustix::process::getrlimit(Resource::Nofile).maximum,
        };
        rustix::process::setrlimit(Resource::Nofile, few).unwrap();
        peer.tell("connect");
        assert_eq!(peer.answer(), "connected");
        std::thread::sleep(Duration::from_millis(200));
        let (cpu, messages) = (cpu_time(), MESSAGES.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(1500));
        let (cpu, messages) = (
            cpu_time() - cpu,
            MESSAGES.load(Ordering::Relaxed) - messages,
        );
        assert!(cpu < Duration::from_millis(300), "{cpu:?} of CPU time");
        assert!(messages <= 3, "{messages} messages");
        // The state is the same as before once the peer has disconnected.
        peer.finish();
        assert!(import(&descriptor).is_ok());
    }
    fn peer() {
        assert_eq!(hear(), "connect");
        let _sockets: Vec<_> = (0..40).map(|_| Agent::connect()).collect();
        say("connected");
        std::thread::sleep(Duration::from_secs(2));
    }
    process::run(NAME, main, &[("peer", peer)]);
}

#[test]
fn a_process_of_another_user_has_no_access() {
    const NAME: &str = "a_process_of_another_user_has_no_access";
    /// The user `nobody`.
    const OTHER: u32 = 65534;
    fn main() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("only root can be another user as well: not run");
            return;
        }
        let memory = Memory::new(
            MapFlags::PRIVATE,
            Permissions::PCI_READ_WRITE | Permissions::RDMA,
        );
        let descriptor = memory.export(ExportKind::Pci);
        let directory = RuntimeDir::get().unwrap();
        let parent = directory.path().parent().unwrap();
        let mode = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(parent, 0o711);
        let mut stranger = Peer::start(NAME, "stranger");
        stranger.tell(&to_hex(&descriptor));
        assert_eq!(stranger.answer(), "kept out");
        // As if a user had opened the directory to others: in this case, the sockets check the peer's credentials.
        mode(directory.path(), 0o777);
        for entry in std::fs::read_dir(directory.path()).unwrap() {
            mode(&entry.unwrap().path(), 0o777);
        }
        stranger.tell("open");
        assert_eq!(stranger.answer(), "hung up on");
        stranger.finish();
        mode(directory.path(), 0o700);
        mode(parent, 0o700);
        assert!(memory.is_untouched());
        assert!(import(&descriptor).is_ok(), "the owner is still served");
    }
    fn stranger() {
        let descriptor = from_hex(&hear());
        // SAFETY: no memory is involved; glibc does it for all threads.
        let dropped = unsafe {
            libc::setgroups(0, std::ptr::null()) == 0
                && libc::setresgid(OTHER, OTHER, OTHER) == 0
                && libc::setresuid(OTHER, OTHER, OTHER) == 0
        };
        assert!(dropped, "root may");
        assert!(import(&descriptor).is_err());
        let path = std::env::var("SOFTDOCA_RUNTIME_DIR").unwrap();
        assert!(std::fs::read_dir(&path).is_err());
        say("kept out");
        assert_eq!(hear(), "open");
        assert!(import(&descriptor).is_err(), "somebody else's directory");
        let mut sockets = 0;
        for entry in std::fs::read_dir(&path).unwrap() {
            let socket = entry.unwrap().path();
            is_hung_up_on(&socket, &descriptor[64..80]);
            sockets += 1;
        }
        assert!(sockets > 0);
        say("hung up on");
    }
    fn is_hung_up_on(path: &std::path::Path, key: &[u8]) {
        use rustix::net::{
            AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, connect, recv, send,
            socket,
        };
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        // The agent may close the connection before or after this.
        let _ = send(&socket, &request(1, key, 0, 0, &[]), SendFlags::NOSIGNAL);
        let mut answer = [0; 1024];
        let received = recv(&socket, &mut answer, RecvFlags::empty());
        assert!(
            matches!(received, Ok((0, _)) | Err(rustix::io::Errno::CONNRESET)),
            "{received:?}"
        );
    }
    process::run(NAME, main, &[("stranger", stranger)]);
}

/// A peer with the key of the deployment, whose handshake and requests are handwritten.
mod network {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv6Addr, SocketAddr, TcpStream};

    use hmac::{Hmac, KeyInit as _, Mac as _};
    use sha2::Sha256;

    pub const KEY: &str = "the key of this deployment";
    pub const READ: u16 = 2;
    pub const WRITE: u16 = 3;
    pub const FETCH_ADD: u16 = 4;
    pub const COMPARE_SWAP: u16 = 5;

    /// A connection to the memory of the process behind an export descriptor.
    pub struct Attacker {
        stream: TcpStream,
        key: [u8; 16],
    }

    impl Attacker {
        pub fn connect(descriptor: &[u8]) -> Attacker {
            let offer = &descriptor[96..];
            let ip = Ipv6Addr::from(<[u8; 16]>::try_from(&offer[49..65]).unwrap());
            let port = u16::from_be_bytes([offer[65], offer[66]]);
            let mut stream = TcpStream::connect(SocketAddr::new(ip.to_canonical(), port)).unwrap();
            let mut said = vec![0; 40];
            stream.read_exact(&mut said).unwrap();
            let text = [&[7; 32][..], &2_u64.to_le_bytes(), &offer[16..32], &[0; 16]].concat();
            said.extend_from_slice(&text);
            let mut mac = Hmac::<Sha256>::new_from_slice(KEY.as_bytes()).unwrap();
            mac.update(b"softdoca client");
            mac.update(&said);
            stream.write_all(&text).unwrap();
            stream.write_all(&mac.finalize().into_bytes()).unwrap();
            let mut answer = [0; 40];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer[..4], [0; 4], "it is served");
            Attacker {
                stream,
                key: offer[32..48].try_into().unwrap(),
            }
        }

        /// The result of a request: the data of a read or the old value of an atomic operation, or the error.
        pub fn ask(&mut self, operation: u16, addr: u64, len: u64) -> Result<Vec<u8>, u32> {
            let mut bytes = b"SDrq\x02\0".to_vec();
            bytes.extend(operation.to_le_bytes());
            bytes.extend(self.key);
            for word in [addr, len, 0, 0] {
                bytes.extend(word.to_le_bytes());
            }
            if operation == WRITE {
                bytes.resize(bytes.len() + len as usize, 0xee);
            }
            self.stream.write_all(&bytes).unwrap();
            let mut reply = [0; 16];
            self.stream.read_exact(&mut reply).unwrap();
            assert!(reply.starts_with(b"SDrp"), "{reply:?}");
            match u32::from_le_bytes(reply[4..8].try_into().unwrap()) {
                0 if operation == READ => {
                    let mut data = vec![0; len as usize];
                    self.stream.read_exact(&mut data).unwrap();
                    Ok(data)
                }
                0 => Ok(reply[8..].to_vec()),
                code => Err(code),
            }
        }
    }
}

#[test]
fn the_network_reaches_only_exported_memory_until_withdrawal() {
    use network::{Attacker, COMPARE_SWAP, FETCH_ADD, READ, WRITE};
    const NAME: &str = "the_network_reaches_only_exported_memory_until_withdrawal";
    fn environment(directory: &std::path::Path) -> Vec<(&'static str, String)> {
        let key = directory.join("key");
        std::fs::write(&key, network::KEY).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let key = key.to_str().unwrap().to_owned();
        vec![
            ("SOFTDOCA_ADDRESS", "127.0.0.1".to_owned()),
            ("SOFTDOCA_KEY_FILE", key),
        ]
    }
    fn main() {
        use Permissions as P;
        for flags in [MapFlags::PRIVATE, MapFlags::SHARED] {
            for permissions in [
                P::RDMA_READ,
                P::RDMA_WRITE,
                P::RDMA_ATOMIC,
                P::RDMA_READ | P::RDMA_WRITE | P::RDMA_ATOMIC,
            ] {
                attack(&Memory::new(flags, permissions), permissions);
            }
        }
    }
    fn attack(memory: &Memory, permissions: Permissions) {
        const NOT_PERMITTED: Result<Vec<u8>, u32> = Err(Error::NotPermitted.code());
        const INVALID: Result<Vec<u8>, u32> = Err(Error::InvalidValue.code());
        const NOT_FOUND: Result<Vec<u8>, u32> = Err(Error::NotFound.code());
        let mut attacker = Attacker::connect(&memory.export(ExportKind::Rdma));
        let (addr, end) = (memory.addr(), memory.addr() + LEN as u64);
        let allowed = [
            (READ, permissions.contains(Permissions::RDMA_READ)),
            (WRITE, permissions.contains(Permissions::RDMA_WRITE)),
            (FETCH_ADD, permissions.contains(Permissions::RDMA_ATOMIC)),
            (COMPARE_SWAP, permissions.contains(Permissions::RDMA_ATOMIC)),
        ];
        for (operation, is_allowed) in allowed {
            // Around the range, across its ends, and around the address space.
            for (addr, len) in [
                (addr - 8, 8),
                (addr - 1, 8),
                (end - 1, 8),
                (end, 8),
                (addr, LEN as u64 + 1),
                (addr - PAGE as u64, ALL as u64),
                (0, 8),
                (u64::MAX - 7, 8),
                (u64::MAX, 8),
            ] {
                let expected = if is_allowed { INVALID } else { NOT_PERMITTED };
                let got = attacker.ask(operation, addr, len);
                let is_refused = got == expected || got == INVALID;
                assert!(
                    is_refused,
                    "{operation} at {addr:#x}: {got:?}, {permissions:?}"
                );
            }
            assert!(memory.is_untouched());
            if !is_allowed {
                let got = attacker.ask(operation, addr, 8);
                assert_eq!(got, NOT_PERMITTED, "{operation}, {permissions:?}");
                assert!(memory.is_untouched());
            }
        }
        if permissions.contains(Permissions::RDMA_READ) {
            let expected: Vec<u8> = (FIRST..FIRST + LEN).map(pattern).collect();
            assert!(attacker.ask(READ, addr, LEN as u64) == Ok(expected));
        }
        if permissions.contains(Permissions::RDMA_ATOMIC) {
            let before: Vec<u8> = (FIRST..FIRST + 8).map(pattern).collect();
            // Adds zero.
            assert_eq!(attacker.ask(FETCH_ADD, addr, 8), Ok(before));
        }
        let mut another = Attacker::connect(&memory.export(ExportKind::Rdma));
        memory.mmap.stop().unwrap();
        for (operation, is_allowed) in allowed {
            assert_eq!(another.ask(operation, addr, 8), NOT_FOUND, "{operation}");
            // Also over a connection that has already accessed the memory.
            let got = attacker.ask(operation, addr, 8);
            let is_refused = got == NOT_FOUND || !is_allowed && got == NOT_PERMITTED;
            assert!(is_refused, "{operation}: {got:?}");
        }
        assert!(memory.is_untouched());
    }
    process::run_with(NAME, environment, main, &[]);
}
