//! Descriptors that came from another process: what they are.
//!
//! Nothing here asks the file system behind a descriptor (`fstat`, `read`) before it is known to be the kernel's own: one in user space
//! (FUSE) may take for ever to answer.

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::SealFlags;

use crate::error::{Error, Result};

/// File system of a memfd without huge pages (`TMPFS_MAGIC`).
const TMPFS: u32 = 0x0102_1994;
/// File system of a memfd with huge pages (`HUGETLBFS_MAGIC`).
const HUGETLBFS: u32 = 0x9584_58f6;

/// Size in bytes of memory that can be mapped and used for as long as the mapping lives, whatever the sender does.
///
/// # Errors
/// [`Error::InvalidValue`] for anything but a memfd that is sealed against shrinking: an access beyond its new end would be SIGBUS.
/// [`Error::NotSupported`] for a memfd of huge pages: its sender can punch a hole into it, and an access there is SIGBUS when the pool of
/// huge pages is empty.
pub(crate) fn sealed_memory_len(fd: impl AsFd) -> Result<u64> {
    let refused = |reason: &str| {
        Error::InvalidValue.because(format_args!(
            "expected a memfd sealed against shrinking from another process, got {reason}"
        ))
    };
    // Answered for memfds alone, by the kernel.
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
                "memory of another process lies in a memfd of huge pages, which cannot be mapped safely: export ordinary pages",
            ));
        }
        _ => return Err(refused("one of an unknown file system")),
    }
    let size = rustix::fs::fstat(&fd)?.st_size;
    u64::try_from(size).map_err(|_| refused("one of negative size"))
}

/// Whether it is an eventfd.
pub(crate) fn is_eventfd(fd: impl AsFd) -> bool {
    // There is no system call that asks for it. The runtime directory is reached through the same file system.
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    rustix::fs::readlink(link, Vec::new())
        .is_ok_and(|target| target.as_bytes() == b"anon_inode:[eventfd]")
}

/// Whether it is a socket that never leaves the machine.
pub(crate) fn is_unix_socket(fd: impl AsFd) -> bool {
    rustix::net::sockopt::socket_domain(fd)
        .is_ok_and(|domain| domain == rustix::net::AddressFamily::UNIX)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::MemfdFlags;

    use super::*;
    use crate::runtime::Socket;

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
    fn eventfds_and_sockets_are_told_from_others() {
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
