//! The attacker's own agent, and how it asks the role's. Layouts are those that softdoca documents; none of its code is used.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::attack::{Descriptor, Manner};
use super::raw::{Packets, descriptor, memfd};

/// Address of the memory that the attacker claims to export; its length in bytes is below.
pub(super) const ADDRESS: u64 = 0x4000_0000;
pub(super) const LENGTH: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Keys of the memory, of exporting it again, and of RDMA connections: agents of their own tell attacks apart.
const MEMORY: [u8; 16] = [0x11; 16];
const ONWARD: [u8; 16] = [0x22; 16];
const CONNECTION: [u8; 16] = [0x33; 16];

const DESCRIBE: u16 = 1;
const READ: u16 = 2;
const CALL: u16 = 6;
/// A request for the word that says whether an export stands.
const VALIDITY: u16 = 7;

/// Operations and replies.
const REQUEST: usize = 56;

/// Address of an agent: boot id and key.
pub(super) type Address = [u8; 32];

fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16)
        .map(u128::to_be_bytes)
        .map_err(io::Error::other)
}

fn path(runtime: &Path, address: &Address) -> PathBuf {
    let key: String = address[16..]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    runtime.join(format!("a-{key}.sock"))
}

/// An agent, on a thread.
pub(super) struct Agent {
    address: Address,
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// One of this manner in the runtime directory.
    pub(super) fn start(runtime: &Path, manner: Manner) -> io::Result<Self> {
        let mut address = [0; 32];
        address[..16].copy_from_slice(&boot_id()?);
        address[16..].copy_from_slice(&fastrand::u128(..).to_be_bytes());
        let (path, stop) = (path(runtime, &address), Arc::new(AtomicBool::new(false)));
        let thread = if manner == Manner::Absent {
            None
        } else {
            let (listener, stop) = (Packets::listen(&path)?, Arc::clone(&stop));
            Some(std::thread::spawn(move || {
                run(&listener, manner, &stop);
            }))
        };
        Ok(Self {
            address,
            path,
            stop,
            thread,
        })
    }

    /// An export descriptor of its memory: for RDMA peers, or across PCIe for those who export it again.
    pub(super) fn memory(&self, across_pcie: bool) -> Vec<u8> {
        let (kind, permissions, onward) = match across_pcie {
            true => (1_u8, 0x2e_u32, ONWARD),
            false => (2, 0x0e, [0; 16]),
        };
        let mut bytes = b"SOFTDOCA\x01\x00".to_vec();
        bytes.extend([kind, 0]);
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(ADDRESS.to_le_bytes());
        bytes.extend(LENGTH.to_le_bytes());
        bytes.extend(self.address);
        bytes.extend(MEMORY);
        bytes.extend(onward);
        bytes
    }

    /// Details of an RDMA connection of its own.
    pub(super) fn connection(&self) -> Vec<u8> {
        let mut bytes = b"SDRDMA".to_vec();
        for word in [1_u16, 1, 0] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(0x0f_u32.to_be_bytes());
        bytes.extend(self.address);
        bytes.extend(CONNECTION);
        bytes
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn run(listener: &Packets, manner: Manner, stop: &AtomicBool) {
    std::thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            match listener.accept() {
                Some(socket) => drop(scope.spawn(move || {
                    // What cannot be answered any more needs no answer.
                    let _ = serve(&socket, manner, stop);
                })),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    });
}

/// Sleeps, but not after the end of the attack.
fn pause(time: Duration, stop: &AtomicBool) {
    let begin = std::time::Instant::now();
    while begin.elapsed() < time && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5).min(time));
    }
}

fn serve(socket: &Packets, manner: Manner, stop: &AtomicBool) -> io::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let request = match socket.receive(Duration::from_millis(20)) {
            Ok(Some((request, _))) if request.len() >= REQUEST => request,
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let operation = u16::from_le_bytes([request[6], request[7]]);
        let word = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap_or([0; 8]));
        let (from, len) = (word(24), word(32));
        match (manner, operation) {
            (Manner::Silent, _) | (Manner::NoCalls, CALL) => continue,
            (Manner::HangsUp, _) => return Ok(()),
            (Manner::Garbage, _) => socket.send(&[0xa5; 40], &[])?,
            (Manner::CallsWith(kind), CALL) => {
                let (a, b) = (descriptor(kind)?, descriptor(kind)?);
                answer(socket, 0, &[], &[a.as_fd(), b.as_fd()])?;
            }
            (_, CALL) => {
                let ring = descriptor(Descriptor::Ring)?;
                let bell = descriptor(Descriptor::EventFd)?;
                answer(socket, 0, &[], &[ring.as_fd(), bell.as_fd()])?;
            }
            (Manner::Slow(time), DESCRIBE) => {
                pause(time, stop);
                let entry = segment(ADDRESS + from * PAGE, PAGE, 0, None);
                answer(socket, LENGTH / PAGE, &entry, &[])?;
            }
            (Manner::Segments(count), DESCRIBE) => {
                let entries = (from..from + 16)
                    .flat_map(|index| segment(ADDRESS + index * PAGE, PAGE, 0, None));
                answer(socket, count, &entries.collect::<Vec<_>>(), &[])?;
            }
            (Manner::SlowCopies(_), DESCRIBE) => {
                answer(socket, 1, &segment(ADDRESS, LENGTH, 0, None), &[])?;
            }
            (_, DESCRIBE) => describe(socket, manner)?,
            // The word that says that an export stands: 0, and it stays so.
            (_, VALIDITY) => answer(socket, 0, &[], &[memfd(PAGE, true)?.as_fd()])?,
            (Manner::SlowCopies(time), operation) => {
                pause(time, stop);
                let read = match operation {
                    READ => vec![0x5a; usize::try_from(len).unwrap_or(0).min(65_472)],
                    _ => Vec::new(),
                };
                answer(socket, 0, &read, &[])?;
            }
            _ => answer(socket, 0, &[], &[])?,
        }
    }
    Ok(())
}

/// The memory in one memfd.
fn describe(socket: &Packets, manner: Manner) -> io::Result<()> {
    let (offset, len) = match manner {
        Manner::Misaligned => (4, LENGTH + PAGE),
        Manner::Short => (0, LENGTH / 2),
        _ => (0, LENGTH),
    };
    let memory: OwnedFd = match manner {
        Manner::Instead(kind) => descriptor(kind)?,
        _ => memfd(len, manner != Manner::Unsealed)?,
    };
    let entry = segment(ADDRESS, LENGTH, offset, Some(0));
    answer(socket, 1, &entry, &[memory.as_fd()])
}

fn segment(addr: u64, len: u64, offset: u64, memfd: Option<u32>) -> Vec<u8> {
    let last = u64::from(memfd.unwrap_or(u32::MAX));
    [addr, len, offset, last]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect()
}

fn answer(
    socket: &Packets,
    value: u64,
    payload: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut reply = b"SDrp\0\0\0\0".to_vec();
    reply.extend(value.to_le_bytes());
    reply.extend_from_slice(payload);
    socket.send(&reply, descriptors)
}

/// Address of the role's agent, from the role's RDMA connection details.
pub(super) fn agent_of(details: &[u8]) -> Option<(Address, [u8; 16])> {
    let address = details.get(16..48)?.try_into().ok()?;
    let key = details.get(48..64)?.try_into().ok()?;
    Some((address, key))
}

/// Address of the agent of a memory map, from its export descriptor.
pub(super) fn agent_of_export(descriptor: &[u8]) -> Option<Address> {
    descriptor.get(32..64)?.try_into().ok()
}

/// A connection to an agent.
pub(super) fn connect(runtime: &Path, address: &Address) -> io::Result<Packets> {
    Packets::connect(&path(runtime, address))
}

/// Claims the ring behind RDMA connection details. The connection to the agent has to stay open.
pub(super) fn claim(runtime: &Path, details: &[u8]) -> io::Result<(Packets, OwnedFd)> {
    let invalid = || io::Error::other("expected RDMA connection details of softdoca");
    let (address, key) = agent_of(details).ok_or_else(invalid)?;
    let socket = connect(runtime, &address)?;
    let claim = b"SDRDMA\0\x01";
    let mut request = b"SDrq\x02\0\x06\0".to_vec();
    request.extend(key);
    for word in [0, claim.len() as u64, 0, 0] {
        request.extend(word.to_le_bytes());
    }
    request.extend_from_slice(claim);
    let bell = descriptor(Descriptor::EventFd)?;
    socket.send(&request, &[bell.as_fd()])?;
    let (_, mut descriptors) = socket
        .receive(Duration::from_secs(2))?
        .ok_or_else(invalid)?;
    if descriptors.is_empty() {
        return Err(invalid());
    }
    Ok((socket, descriptors.swap_remove(0)))
}
