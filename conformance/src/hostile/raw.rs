//! Sockets, rings and memory of softdoca's processes, made from their documented layouts without softdoca.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::attack::Descriptor;

/// Most descriptors in one message.
const MAX_FDS: usize = 16;
/// Longest message.
const MAX_MESSAGE: usize = 65_536;

/// A `SOCK_SEQPACKET` socket of the runtime directory.
pub(super) struct Packets(OwnedFd);

impl Packets {
    fn socket() -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            flags,
            None,
        )?)
    }

    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let socket = Self::socket()?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    pub(super) fn listen(path: &Path) -> io::Result<Self> {
        let socket = Self::socket()?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, 128)?;
        Ok(Self(socket))
    }

    /// A caller, if there is one.
    pub(super) fn accept(&self) -> Option<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::accept_with(&self.0, flags).ok().map(Self)
    }

    /// Two connected ends.
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(a), Self(b)))
    }

    /// Sends one message, without waiting.
    pub(super) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let parts = [IoSlice::new(bytes)];
        rustix::net::sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// One message with its descriptors, within `timeout`; `None` at the end of the connection.
    pub(super) fn receive(&self, timeout: Duration) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let deadline = Instant::now() + timeout;
        let mut bytes = vec![0; MAX_MESSAGE];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            match rustix::net::recvmsg(&self.0, &mut parts, &mut control, flags) {
                Ok(message) => {
                    let rights = control.drain().filter_map(|part| match part {
                        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
                        _ => None,
                    });
                    let descriptors = rights.flatten().collect();
                    bytes.truncate(message.bytes);
                    return Ok((message.bytes != 0).then_some((bytes, descriptors)));
                }
                Err(rustix::io::Errno::AGAIN) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_micros(500));
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The name of the socket where a Comch server waits: FNV-1a of 128 bits over both names, each behind its length.
pub(super) fn comch_socket(function: &str, server: &str) -> String {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = [function, server].iter().fold(BASIS, |hash, part| {
        let length = (part.len() as u64).to_le_bytes();
        length
            .iter()
            .chain(part.as_bytes())
            .fold(hash, |hash, byte| {
                (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
            })
    });
    format!("comch-{hash:032x}.sock")
}

/// The first frame of a Comch client.
pub(super) fn hello(function: &str, server: &str) -> Vec<u8> {
    let mut bytes = words(&[1, u32::from_be_bytes(*b"SDCC"), 1, 4080]);
    for text in [function, server] {
        bytes.push(text.len() as u8);
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// Words of a Comch frame.
pub(super) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A memfd of so many bytes, sealed or not.
pub(super) fn memfd(len: u64, sealed: bool) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = rustix::fs::memfd_create("hostile", flags)?;
    rustix::fs::ftruncate(&memfd, len)?;
    if sealed {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memfd, seals)?;
    }
    Ok(memfd)
}

/// A ring of 64 slots and 1024 units whose consumer has posted receives; its header says `slots`.
fn ring(slots: u64, sealed: bool) -> io::Result<OwnedFd> {
    const UNITS: u64 = 1024;
    let len = (512 + 64 * 64 + UNITS * 64_u64).next_multiple_of(4096);
    let memfd = memfd(len, sealed)?;
    for (at, word) in [
        (0, u64::from_be_bytes(*b"SDRING\0\x02")),
        (8, slots),
        (16, UNITS),
        (144, 32),
    ] {
        rustix::io::pwrite(&memfd, &word.to_ne_bytes(), at)?;
    }
    Ok(memfd)
}

/// A descriptor of this kind.
pub(super) fn descriptor(kind: Descriptor) -> io::Result<OwnedFd> {
    Ok(match kind {
        Descriptor::Ring => ring(64, true)?,
        Descriptor::UnsealedRing => ring(64, false)?,
        Descriptor::LyingRing => ring(1 << 17, true)?,
        Descriptor::EventFd => rustix::event::eventfd(0, EventfdFlags::NONBLOCK)?,
        Descriptor::FullEventFd => {
            let event = rustix::event::eventfd(0, EventfdFlags::empty())?;
            rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes())?;
            event
        }
        Descriptor::Pipe => rustix::pipe::pipe()?.0,
        Descriptor::File => tempfile::tempfile()?.into(),
        Descriptor::Socket => Packets::pair()?.0.0,
    })
}

/// The message in the slot at `position` of a ring of the attacker's, once it is there: the part that lies in the slot.
pub(super) fn message(ring: &OwnedFd, position: u64) -> io::Result<Option<[u8; 56]>> {
    let mut slots = [0; 8];
    rustix::io::pread(ring, &mut slots, 8)?;
    let slots = u64::from_ne_bytes(slots).max(1);
    let (mut descriptor, mut bytes) = ([0; 8], [0; 56]);
    let at = 512 + position % slots * 64;
    rustix::io::pread(ring, &mut descriptor, at)?;
    let lap = (position / slots) << 1 | 1;
    if u64::from_ne_bytes(descriptor) >> 32 != lap {
        return Ok(None);
    }
    rustix::io::pread(ring, &mut bytes, at + 8)?;
    Ok(Some(bytes))
}

/// So many messages have been taken from a ring of the attacker's, and as many receives were posted again.
pub(super) fn consumed(ring: &OwnedFd, count: u64) -> io::Result<()> {
    rustix::io::pwrite(ring, &count.to_ne_bytes(), 128)?;
    rustix::io::pwrite(ring, &(32 + count).to_ne_bytes(), 144)?;
    Ok(())
}

/// The sending end of a ring of the role's.
pub(super) struct RawRing {
    memfd: OwnedFd,
    slots: u64,
    position: u64,
}

impl RawRing {
    pub(super) fn new(memfd: OwnedFd) -> io::Result<Self> {
        let mut slots = [0; 8];
        rustix::io::pread(&memfd, &mut slots, 8)?;
        let slots = u64::from_ne_bytes(slots).max(1);
        Ok(Self {
            memfd,
            slots,
            position: 0,
        })
    }

    fn put(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        rustix::io::pwrite(&self.memfd, bytes, at)?;
        Ok(())
    }

    fn consumed(&self) -> io::Result<u64> {
        let mut word = [0; 8];
        rustix::io::pread(&self.memfd, &mut word, 128)?;
        Ok(u64::from_ne_bytes(word))
    }

    /// Puts a fragment into the next slot; `low` is the low half of its descriptor.
    pub(super) fn fragment(&mut self, low: u32, bytes: &[u8; 56]) -> io::Result<()> {
        let at = 512 + self.position % self.slots * 64;
        let lap = (self.position / self.slots) << 1 | 1;
        self.put(at + 8, bytes)?;
        self.put(at, &(u64::from(low) | lap << 32).to_ne_bytes())?;
        self.position += 1;
        Ok(())
    }

    /// The same, when the role has made room within `timeout`.
    pub(super) fn fragment_when_free(&mut self, low: u32, timeout: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + timeout;
        while self.position.wrapping_sub(self.consumed()?) >= self.slots {
            if Instant::now() > deadline {
                return Ok(false);
            }
            std::thread::yield_now();
        }
        self.fragment(low, &[0; 56])?;
        Ok(true)
    }

    /// Any words anywhere behind the header.
    pub(super) fn noise(&self, words: usize) -> io::Result<()> {
        let mut rng = fastrand::Rng::with_seed(words as u64);
        for _ in 0..words {
            let at = 64 + 8 * rng.u64(..(448 + self.slots * 64) / 8);
            self.put(at, &rng.u64(..).to_ne_bytes())?;
        }
        Ok(())
    }

    pub(super) fn close(&self) -> io::Result<()> {
        self.put(64, &1_u64.to_ne_bytes())
    }
}
