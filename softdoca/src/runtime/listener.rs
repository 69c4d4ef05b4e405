//! Listening sockets in the runtime directory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};

use super::directory::{FileGuard, RuntimeDir};
use super::socket::Socket;
use crate::error::{Error, Result};

/// A socket that other processes connect to by name. Its file is removed with it.
///
/// Other processes check that the owner is alive by connecting and closing immediately: a connection that closes
/// without a message is not an error.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    _file: FileGuard,
}

impl Listener {
    /// Listens on `name` (a file name ending in `.sock`; see [`named_socket`]); removes the sockets of dead processes,
    /// this name included.
    ///
    /// # Errors
    /// [`Error::AlreadyExist`] if a living process listens on that name.
    pub fn bind(directory: &RuntimeDir, name: &str) -> Result<Listener> {
        if !name.ends_with(".sock") || name.contains('/') {
            return Err(Error::InvalidValue.because(format_args!(
                "expected a file name ending in .sock, got {name:?}"
            )));
        }
        let fd = Socket::new_raw()?;
        let address = SocketAddrUnix::new(directory.short_path(name))?;
        let lock = directory.lock()?;
        directory.reap(&lock)?;
        rustix::net::bind(&fd, &address).map_err(|errno| match errno {
            Errno::ADDRINUSE => Error::AlreadyExist,
            errno => Error::from(errno).because(format_args!(
                "cannot create a socket in {}: {errno}",
                directory.path().display()
            )),
        })?;
        let file = FileGuard::new(directory.shared_fd(), name);
        rustix::net::listen(&fd, 128)?;
        drop(lock);
        Ok(Listener { fd, _file: file })
    }

    /// Accepts the next pending connection; `None` if there is none. Connections of other users are refused.
    ///
    /// # Errors
    /// The error of the operating system, such as too many open descriptors.
    pub fn accept(&self) -> Result<Option<Socket>> {
        loop {
            match rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(fd) => match Socket::from_connected(fd) {
                    Err(Error::Authentication) => {}
                    socket => return socket.map(Some),
                },
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// File name of a socket for a name of any length: `<prefix>-<hash of the parts>.sock`. Hashes may collide, so the full
/// name has to be checked when a connection is established.
pub fn named_socket(prefix: &str, parts: &[&str]) -> String {
    // 128-bit FNV-1a: stable between builds, unlike the hashes of the standard library.
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash = BASIS;
    for part in parts {
        // The length distinguishes ("ab", "c") from ("a", "bc").
        for byte in (part.len() as u64)
            .to_le_bytes()
            .iter()
            .chain(part.as_bytes())
        {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    }
    format!("{prefix}-{hash:032x}.sock")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn names(directory: &RuntimeDir) -> Vec<String> {
        let entries = std::fs::read_dir(directory.path()).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_name_has_one_living_listener() {
        // Longer than a socket address.
        let parent = tempfile::tempdir().unwrap();
        let directory = RuntimeDir::open(&parent.path().join("d".repeat(200))).unwrap();
        let name = named_socket("c", &["server", "0000:3b:00.0"]);
        assert_eq!(
            Socket::connect(&directory, &name).unwrap_err(),
            Error::NotFound
        );
        let listener = Listener::bind(&directory, &name).unwrap();
        assert_eq!(
            Listener::bind(&directory, &name).unwrap_err(),
            Error::AlreadyExist
        );
        let client = Socket::connect(&directory, &name).unwrap();
        // The failed bind above has probed this listener.
        let mut probes = 0;
        let server = loop {
            let socket = listener.accept().unwrap().unwrap();
            if !socket.is_closed() {
                break socket;
            }
            probes += 1;
        };
        assert_eq!(probes, 1);
        assert!(listener.accept().unwrap().is_none());
        assert_eq!(server.peer_pid().unwrap(), std::process::id() as i32);
        client.send(b"hello", &[]).unwrap();
        server.wait_readable(Duration::from_secs(1)).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(server.receive(&mut buffer, &mut Vec::new()), Ok(Some(5)));
        drop(listener);
        assert_eq!(names(&directory), [""; 0]);
        assert_eq!(
            Socket::connect(&directory, &name).unwrap_err(),
            Error::NotFound
        );
    }

    #[test]
    fn sockets_of_dead_processes_are_reaped() {
        let parent = tempfile::tempdir().unwrap();
        let directory = RuntimeDir::open(&parent.path().join("run")).unwrap();
        for name in ["dead.sock", "other.sock"] {
            let fd = Socket::new_raw().unwrap();
            rustix::net::bind(
                &fd,
                &SocketAddrUnix::new(directory.short_path(name)).unwrap(),
            )
            .unwrap();
            rustix::net::listen(&fd, 1).unwrap();
        }
        std::fs::write(directory.path().join("unrelated.txt"), "stays").unwrap();
        let _live = Listener::bind(&directory, "dead.sock").unwrap();
        let mut names = names(&directory);
        names.sort();
        assert_eq!(names, ["dead.sock", "unrelated.txt"]);
    }

    #[test]
    fn names_are_short_and_distinct() {
        assert_eq!(
            named_socket("c", &[&"x".repeat(1000)]).len(),
            "c-.sock".len() + 32
        );
        assert_ne!(
            named_socket("c", &["ab", "c"]),
            named_socket("c", &["a", "bc"])
        );
        assert_eq!(
            named_socket("c", &["ab", "c"]),
            named_socket("c", &["ab", "c"])
        );
        let parent = tempfile::tempdir().unwrap();
        let directory = RuntimeDir::open(&parent.path().join("run")).unwrap();
        assert_eq!(
            Listener::bind(&directory, "../x.sock").unwrap_err(),
            Error::InvalidValue
        );
        assert_eq!(
            Listener::bind(&directory, "x").unwrap_err(),
            Error::InvalidValue
        );
    }
}
