//! Connected Unix sockets that preserve message boundaries, pass file descriptors and identify their peer.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType,
};

use super::RuntimeDir;
use crate::error::{Error, Result};

/// Maximum length of a message in bytes.
pub const MAX_MESSAGE: usize = 64 * 1024;

/// Maximum number of file descriptors in one message.
pub const MAX_FDS: usize = 16;

/// One endpoint of a connection (`SOCK_SEQPACKET`, non-blocking, closed on exec).
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
}

impl Socket {
    /// Connects to the socket `name` of the runtime directory; the listener must belong to the same user.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no process listens (any longer), [`Error::Again`] if the listener's queue is full,
    /// [`Error::Authentication`] if it belongs to another user.
    pub fn connect(directory: &RuntimeDir, name: &str) -> Result<Socket> {
        match Socket::connect_raw(directory, name) {
            Ok(fd) => Socket::from_connected(fd),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Err(Error::NotFound),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn connect_raw(directory: &RuntimeDir, name: &str) -> rustix::io::Result<OwnedFd> {
        let fd = Socket::new_raw()?;
        rustix::net::connect(&fd, &SocketAddrUnix::new(directory.short_path(name))?)?;
        Ok(fd)
    }

    pub(super) fn new_raw() -> rustix::io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
    }

    /// Takes over a connected descriptor after checking the peer's credentials.
    pub(super) fn from_connected(fd: OwnedFd) -> Result<Socket> {
        let peer = rustix::net::sockopt::socket_peercred(&fd)?;
        let user = rustix::process::geteuid();
        if peer.uid != user {
            return Err(Error::Authentication.because(format_args!(
                "the peer of a softdoca socket is user {}, expected {}",
                peer.uid.as_raw(),
                user.as_raw()
            )));
        }
        Ok(Socket { fd })
    }

    /// Creates two connected endpoints.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn pair() -> Result<(Socket, Socket)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Socket { fd: a }, Socket { fd: b }))
    }

    /// Sends one message with copies of `fds`. Never blocks.
    ///
    /// # Errors
    /// [`Error::Again`] if the socket's buffer is full, [`Error::ConnectionReset`] if the peer has disconnected,
    /// [`Error::TooBig`] over [`MAX_MESSAGE`] bytes or [`MAX_FDS`], [`Error::InvalidValue`] for an empty message, which
    /// would be interpreted as the end of the connection.
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        if message.is_empty() {
            return Err(Error::InvalidValue);
        }
        if message.len() > MAX_MESSAGE || fds.len() > MAX_FDS {
            return Err(Error::TooBig);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Error::TooBig);
        }
        loop {
            match rustix::net::sendmsg(
                &self.fd,
                &[IoSlice::new(message)],
                &mut control,
                SendFlags::NOSIGNAL,
            ) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::MSGSIZE) => return Err(Error::TooBig),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Receives one message into `buffer` and appends its descriptors to `fds`. `None` if the peer has closed the
    /// connection. Never blocks.
    ///
    /// # Errors
    /// [`Error::Again`] if no message has arrived, [`Error::TooBig`] if it does not fit into `buffer` (the message is
    /// discarded), [`Error::NoMemory`] if too many files are open for its descriptors, [`Error::ConnectionReset`] if
    /// the peer exited with unread messages.
    pub fn receive(&self, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<Option<usize>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message = loop {
            let flags = RecvFlags::CMSG_CLOEXEC;
            match rustix::net::recvmsg(
                &self.fd,
                &mut [IoSliceMut::new(buffer)],
                &mut control,
                flags,
            ) {
                Ok(message) => break message,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        };
        let before = fds.len();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                fds.extend(rights);
            }
        }
        if message.flags.contains(ReturnFlags::TRUNC) {
            return Err(Error::TooBig);
        }
        if message.flags.contains(ReturnFlags::CTRUNC) {
            // The kernel drops descriptors that do not fit, or that would exceed this process's limit.
            return Err(match fds.len() - before {
                MAX_FDS.. => Error::TooBig,
                _ => Error::NoMemory.because("too many open files to receive a descriptor"),
            });
        }
        Ok((message.bytes != 0).then_some(message.bytes))
    }

    /// Sends one message: `header` followed by the `len` bytes at `memory`, which the kernel reads without an
    /// intermediate copy.
    ///
    /// Unmapped memory results in [`Error::InvalidValue`], and not in a crash; the bytes may change while they are
    /// read.
    ///
    /// # Errors
    /// As [`Socket::send`].
    pub fn send_memory(&self, header: &[u8], memory: *const u8, len: usize) -> Result<()> {
        if header.is_empty()
            || header
                .len()
                .checked_add(len)
                .is_none_or(|sum| sum > MAX_MESSAGE)
        {
            return Err(Error::TooBig);
        }
        let mut parts = [
            libc::iovec {
                iov_base: header.as_ptr().cast_mut().cast(),
                iov_len: header.len(),
            },
            libc::iovec {
                iov_base: memory.cast_mut().cast(),
                iov_len: len,
            },
        ];
        let message = message_of(&mut parts);
        loop {
            // SAFETY: the kernel only reads the parts, and checks each address; `header` is alive.
            let sent = unsafe { libc::sendmsg(self.fd.as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
            match (sent, last_errno()) {
                (0.., _) => return Ok(()),
                (_, Errno::INTR) => {}
                (_, Errno::FAULT) => return Err(Error::InvalidValue),
                (_, errno) => return Err(errno.into()),
            }
        }
    }

    /// Receives one message: the first bytes into `header`, the remaining ones into the `len` bytes at `memory`.
    /// Returns the length of the whole message, `None` at the end of the connection. Descriptors in the message are
    /// dropped.
    ///
    /// # Errors
    /// As [`Socket::receive`]; unmapped memory results in [`Error::InvalidValue`], and discards the message.
    ///
    /// # Safety
    /// The `len` bytes at `memory` are the caller's to write, or not mapped at all.
    pub unsafe fn receive_memory(
        &self,
        header: &mut [u8],
        memory: *mut u8,
        len: usize,
    ) -> Result<Option<usize>> {
        let mut parts = [
            libc::iovec {
                iov_base: header.as_mut_ptr().cast(),
                iov_len: header.len(),
            },
            libc::iovec {
                iov_base: memory.cast(),
                iov_len: len,
            },
        ];
        let mut message = message_of(&mut parts);
        loop {
            // SAFETY: the kernel writes to `header`, which is borrowed mutably, and to memory that the caller
            // guarantees.
            let received = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &mut message, 0) };
            match (usize::try_from(received), last_errno()) {
                (Ok(_), _) if message.msg_flags & libc::MSG_TRUNC != 0 => {
                    return Err(Error::TooBig);
                }
                (Ok(received), _) => return Ok((received != 0).then_some(received)),
                (_, Errno::INTR) => {}
                (_, Errno::FAULT) => return Err(Error::InvalidValue),
                (_, errno) => return Err(errno.into()),
            }
        }
    }

    /// Copies the start of the next message to `header` without consuming the message. Returns the number of bytes,
    /// `None` at the end of the connection.
    ///
    /// # Errors
    /// [`Error::Again`] if there is no message.
    pub fn peek(&self, header: &mut [u8]) -> Result<Option<usize>> {
        loop {
            match rustix::net::recv(&self.fd, &mut *header, RecvFlags::PEEK) {
                Ok((0, _)) => return Ok(None),
                Ok((len, _)) => return Ok(Some(len)),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Waits until [`Socket::receive`] would not return `Again`.
    ///
    /// # Errors
    /// [`Error::TimeOut`] if no message arrived in time.
    pub fn wait_readable(&self, timeout: Duration) -> Result<()> {
        self.wait(PollFlags::IN, timeout)
    }

    /// Waits until [`Socket::send`] would not return `Again`.
    ///
    /// # Errors
    /// [`Error::TimeOut`] if the peer did not read in time.
    pub fn wait_writable(&self, timeout: Duration) -> Result<()> {
        self.wait(PollFlags::OUT, timeout)
    }

    fn wait(&self, what: PollFlags, timeout: Duration) -> Result<()> {
        let deadline = std::time::Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let left = Timespec::try_from(left).map_err(|_| Error::InvalidValue)?;
            match rustix::event::poll(&mut [PollFd::new(&self.fd, what)], Some(&left)) {
                Ok(0) => return Err(Error::TimeOut),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// `true` if the peer has closed its endpoint or exited. Messages that it sent before may still be queued.
    pub fn is_closed(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match rustix::event::poll(&mut fds, Some(&now)) {
            Ok(0) | Err(Errno::INTR) => false,
            Ok(_) => fds[0]
                .revents()
                .intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR),
            Err(_) => true,
        }
    }

    /// Shuts the connection down for both sides; the descriptor remains valid.
    pub fn shut_down(&self) {
        // Ignored, because it fails only if the socket is no longer connected.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
    }

    /// Process id of the peer when it connected or listened. For messages only: it may have been reused since.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn peer_pid(&self) -> Result<i32> {
        Ok(rustix::net::sockopt::socket_peercred(&self.fd)?
            .pid
            .as_raw_nonzero()
            .get())
    }
}

fn message_of(parts: &mut [libc::iovec; 2]) -> libc::msghdr {
    // SAFETY: all-zero is a valid message header: no address, no parts, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    message
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// File system of a memfd without huge pages (`TMPFS_MAGIC`).
const TMPFS: u32 = 0x0102_1994;
/// File system of a memfd with huge pages (`HUGETLBFS_MAGIC`).
const HUGETLBFS: u32 = 0x9584_58f6;

/// Size in bytes of shared memory that remains accessible for the lifetime of its mapping, even if the sender is
/// malicious.
///
/// No system call on the file system behind the descriptor (`fstat`, `read`) is made before the descriptor is known to
/// be a memfd: a file system in user space (FUSE) could block it forever.
///
/// # Errors
/// [`Error::InvalidValue`] for descriptors other than memfds that are sealed against shrinking: an access beyond its
/// new end would raise SIGBUS. [`Error::NotSupported`] for a memfd of huge pages: its sender can punch a hole into it,
/// and an access there raises SIGBUS if the pool of huge pages is empty.
pub(crate) fn sealed_memory_len(fd: impl AsFd) -> Result<u64> {
    let refused = |reason: &str| {
        Error::InvalidValue.because(format_args!(
            "expected a memfd sealed against shrinking from another process, got {reason}"
        ))
    };
    // Succeeds only for memfds, and is answered by the kernel itself.
    let Ok(seals) = rustix::fs::fcntl_get_seals(&fd) else {
        return Err(refused("a descriptor of another kind"));
    };
    if !seals.contains(SealFlags::SHRINK) {
        return Err(refused("one that is not"));
    }
    match rustix::fs::fstatfs(&fd)?.f_type as u32 {
        TMPFS => {}
        HUGETLBFS => {
            return Err(Error::NotSupported.because(
                "the memfd of another process uses huge pages, which cannot be mapped safely: export ordinary pages",
            ));
        }
        _ => return Err(refused("one of an unknown file system")),
    }
    let size = rustix::fs::fstat(&fd)?.st_size;
    u64::try_from(size).map_err(|_| refused("one of negative size"))
}

/// `true` if the descriptor is an eventfd.
pub(crate) fn is_eventfd(fd: impl AsFd) -> bool {
    // No system call provides this information. The runtime directory is also accessed through this file system.
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    rustix::fs::readlink(link, Vec::new())
        .is_ok_and(|target| target.as_bytes() == b"anon_inode:[eventfd]")
}

/// `true` if the descriptor is a Unix socket, which cannot leave the machine.
pub(crate) fn is_unix_socket(fd: impl AsFd) -> bool {
    rustix::net::sockopt::socket_domain(fd)
        .is_ok_and(|domain| domain == rustix::net::AddressFamily::UNIX)
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;

    use super::*;
    use crate::runtime::Socket;

    #[test]
    fn messages_keep_their_boundaries_and_descriptors() {
        let (a, b) = Socket::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        a.send(b"one", &[file.as_fd(), file.as_fd()]).unwrap();
        a.send(&vec![7; MAX_MESSAGE], &[]).unwrap();
        let (mut buffer, mut fds) = (vec![0; MAX_MESSAGE], Vec::new());
        assert_eq!(b.receive(&mut buffer, &mut fds), Ok(Some(3)));
        assert_eq!((&buffer[..3], fds.len()), (&b"one"[..], 2));
        assert_eq!(b.receive(&mut buffer, &mut fds), Ok(Some(MAX_MESSAGE)));
        assert_eq!(fds.len(), 2);
        assert_eq!(b.receive(&mut buffer, &mut fds), Err(Error::Again));
        assert!(!b.is_closed());
        drop(a);
        assert!(b.is_closed());
        assert_eq!(b.receive(&mut buffer, &mut fds), Ok(None));
        assert_eq!(b.send(b"x", &[]), Err(Error::ConnectionReset));
    }

    #[test]
    fn memory_is_transferred_without_a_copy_and_unmapped_memory_is_an_error() {
        let (a, b) = Socket::pair().unwrap();
        let (source, mut target, mut header) = ([1_u8, 2, 3, 4], [0_u8; 4], [0_u8; 2]);
        a.send_memory(b"hd", source.as_ptr(), 4).unwrap();
        let mut peeked = [0; 2];
        assert_eq!(b.peek(&mut peeked), Ok(Some(2)));
        // SAFETY: `target` is ours; the page at 8 is never mapped.
        unsafe {
            assert_eq!(
                b.receive_memory(&mut header, target.as_mut_ptr(), 4),
                Ok(Some(6))
            );
            a.send(b"hdxx", &[]).unwrap();
            let nowhere = std::ptr::without_provenance_mut(8);
            assert_eq!(
                b.receive_memory(&mut header, nowhere, 4),
                Err(Error::InvalidValue)
            );
        }
        assert_eq!((&peeked, &header, target), (b"hd", b"hd", source));
        assert_eq!(
            a.send_memory(b"hd", std::ptr::without_provenance(8), 4),
            Err(Error::InvalidValue)
        );
        assert_eq!(
            a.send_memory(b"hd", source.as_ptr(), usize::MAX),
            Err(Error::TooBig)
        );
    }

    #[test]
    fn limits() {
        let (a, b) = Socket::pair().unwrap();
        assert_eq!(a.send(&[], &[]), Err(Error::InvalidValue));
        assert_eq!(a.send(&vec![0; MAX_MESSAGE + 1], &[]), Err(Error::TooBig));
        assert_eq!(a.send(b"x", &[b.as_fd(); MAX_FDS + 1]), Err(Error::TooBig));
        a.send(b"long", &[b.as_fd(); MAX_FDS]).unwrap();
        let mut fds = Vec::new();
        assert_eq!(b.receive(&mut [0; 2], &mut fds), Err(Error::TooBig));
        assert_eq!(
            a.wait_readable(Duration::from_millis(5)),
            Err(Error::TimeOut)
        );
        while a.send(&[0; 1000], &[]).is_ok() {}
        assert_eq!(a.send(b"x", &[]), Err(Error::Again));
        assert_eq!(
            a.wait_writable(Duration::from_millis(5)),
            Err(Error::TimeOut)
        );
    }

    fn memfd(flags: MemfdFlags, seals: SealFlags) -> rustix::io::Result<OwnedFd> {
        let memfd = rustix::fs::memfd_create("test", flags | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&memfd, 4 << 20)?;
        rustix::fs::fcntl_add_seals(&memfd, seals)?;
        Ok(memfd)
    }

    #[test]
    fn only_sealed_memfds_of_ordinary_pages_are_memory() {
        let sealed = memfd(MemfdFlags::empty(), SealFlags::SHRINK).unwrap();
        assert_eq!(sealed_memory_len(&sealed), Ok(4 << 20));
        let unsealed = memfd(MemfdFlags::empty(), SealFlags::GROW).unwrap();
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        for other in [unsealed, file] {
            assert_eq!(sealed_memory_len(&other), Err(Error::InvalidValue));
        }
        match memfd(MemfdFlags::HUGETLB, SealFlags::SHRINK) {
            Ok(huge) => assert_eq!(sealed_memory_len(&huge), Err(Error::NotSupported)),
            Err(errno) => eprintln!("not run for huge pages, this kernel has none: {errno}"),
        }
    }

    #[test]
    fn eventfds_and_sockets_are_recognised() {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let (socket, _other) = Socket::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        let network = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_eventfd(&event) && !is_unix_socket(&event));
        assert!(is_unix_socket(&socket) && !is_eventfd(&socket));
        assert!(!is_eventfd(&file) && !is_unix_socket(&file));
        assert!(!is_eventfd(&network) && !is_unix_socket(&network));
    }
}
