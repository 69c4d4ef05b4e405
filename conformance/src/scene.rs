//! Where the processes of one check meet, and nobody else: a runtime directory, files, a channel, ports.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::net;
use tempfile::TempDir;

/// The DPU's device in softdoca's built-in topology.
pub const DPU_DEVICE: &str = "03:00.0";
/// The host's device there, which is also what the DPU calls its representor.
pub const HOST_DEVICE: &str = "3b:00.0";

/// How often waiting looks around.
const TICK: Duration = Duration::from_millis(2);
/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// The flag of a listening socket in `/proc/net/unix`.
const ACCEPTS: u32 = 1 << 16;

/// Numbers the ports of this process.
static NEXT_PORT: AtomicU32 = AtomicU32::new(0);
/// Numbers the scenes of this process.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A place of its own for one check. What is in it goes with it.
#[derive(Debug)]
pub struct Scene {
    directory: TempDir,
    runtime: PathBuf,
    channel: String,
}

impl Scene {
    /// One with a runtime directory of its own.
    ///
    /// # Errors
    ///
    /// A directory cannot be made.
    pub fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("doca-storage-").tempdir()?;
        let runtime = directory.path().join("run");
        // softdoca refuses a directory that others may enter.
        fs::DirBuilder::new().mode(0o700).create(&runtime)?;
        Ok(Self::with(directory, runtime))
    }

    /// One in the runtime directory that this process uses itself: a peer in this process and a program under test must share
    /// one. The names of their channels keep scenes apart.
    ///
    /// # Errors
    ///
    /// A directory cannot be made, or `SOFTDOCA_RUNTIME_DIR` names none.
    pub fn shared() -> io::Result<Self> {
        let runtime = std::env::var_os("SOFTDOCA_RUNTIME_DIR").ok_or_else(|| {
            io::Error::other("expected SOFTDOCA_RUNTIME_DIR to name a directory of mode 0700")
        })?;
        let directory = tempfile::Builder::new().prefix("doca-storage-").tempdir()?;
        Ok(Self::with(directory, runtime.into()))
    }

    fn with(directory: TempDir, runtime: PathBuf) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self {
            directory,
            runtime,
            channel: format!("conformance-{}-{number}", std::process::id()),
        }
    }

    /// The name of the scene's Comch channel.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// The runtime directory.
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// Where a file of this name is, or is going to be.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Leaves everything where it is, for whoever wants to look at it; says where.
    pub fn keep(self) -> PathBuf {
        self.directory.keep()
    }

    /// Writes a file.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn file(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, content)?;
        Ok(path)
    }

    /// Lets a program meet its peers here.
    pub fn place<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("SOFTDOCA_RUNTIME_DIR", &self.runtime)
            .current_dir(self.directory.path())
    }

    /// What is in the runtime directory: after all processes have ended, nothing should be.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn leftovers(&self) -> io::Result<Vec<PathBuf>> {
        entries(&self.runtime)
    }

    /// The sockets in the runtime directory that somebody listens on: servers that clients find.
    ///
    /// # Errors
    ///
    /// The operating system does not say.
    pub fn servers(&self) -> io::Result<Vec<PathBuf>> {
        let table = fs::read_to_string("/proc/net/unix")?;
        let mut entries = self.leftovers()?;
        entries.retain(|path| accepts(&table, path));
        Ok(entries)
    }
}

/// Whether a socket of this file name accepts connections. A bound one that does not do so yet refuses them. Lines are: address, count,
/// protocol, flags, type, state, inode, path as it was bound. softdoca binds in the directory by its descriptor, so that only the
/// name says which socket it is.
fn accepts(table: &str, path: &Path) -> bool {
    table.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace().skip(3);
        let flags = words
            .next()
            .and_then(|word| u32::from_str_radix(word, 16).ok());
        let bound = words.nth(3).map(Path::new);
        flags.is_some_and(|flags| flags & ACCEPTS != 0)
            && bound.and_then(Path::file_name) == path.file_name()
    })
}

/// What is in a directory.
///
/// # Errors
///
/// It cannot be read.
pub fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect()
}

/// A TCP port that nobody used a moment ago, on any address. Programs that cannot choose a port themselves (the C++ target) are
/// started with it at once: somebody else may take it in between, which the program will report.
///
/// # Errors
///
/// There is none.
pub fn free_port() -> io::Result<u16> {
    bind(0).map(|(_, port)| port)
}

/// Takes a TCP port, or any for 0, without listening on it: [`wait_for_listener`] must not find somebody who only looks for a port.
fn bind(port: u16) -> io::Result<(OwnedFd, u16)> {
    let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None)?;
    // As those who will listen there: connections that have just ended are no reason to refuse the port.
    net::sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
    let address = SocketAddrV4::try_from(net::getsockname(&socket)?)?;
    Ok((socket, address.port()))
}

/// A TCP port that nobody uses, and that nobody gets who asks for any port or connects to somewhere: it stays free while a program that
/// listens there ends and another one begins.
///
/// # Errors
///
/// There is none.
pub fn lasting_port() -> io::Result<u16> {
    const RANGE: std::ops::Range<u32> = 12_000..32_000;
    // Several processes look for one at the same time: each begins elsewhere.
    let start = std::process::id().wrapping_mul(97);
    for _ in RANGE {
        let number = start.wrapping_add(NEXT_PORT.fetch_add(1, Ordering::Relaxed));
        let port = RANGE.start + number % (RANGE.end - RANGE.start);
        let port = u16::try_from(port).map_err(io::Error::other)?;
        if bind(port).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::other(format!(
        "expected a free port in {RANGE:?}, all are in use"
    )))
}

/// Waits until somebody listens on a TCP port, without connecting: a target serves only one client. `false` when nobody does
/// at `deadline`, or `given_up` says so.
///
/// # Errors
///
/// The operating system does not say who listens.
pub fn wait_for_listener(
    port: u16,
    deadline: Instant,
    mut given_up: impl FnMut() -> bool,
) -> io::Result<bool> {
    loop {
        if is_listening(port)? {
            return Ok(true);
        }
        if Instant::now() >= deadline || given_up() {
            return Ok(false);
        }
        std::thread::sleep(TICK);
    }
}

fn is_listening(port: u16) -> io::Result<bool> {
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match fs::read_to_string(table) {
            Ok(text) if listens(&text, port) => return Ok(true),
            Ok(_) => {}
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Lines are: number, local address:port, remote address:port, state, ..., in hexadecimal.
fn listens(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let local = words.next().unwrap_or_default();
        local.ends_with(&port) && words.nth(1) == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

    use super::*;

    #[test]
    fn listeners_are_seen_without_connecting() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let now = Instant::now();
        assert!(wait_for_listener(port, now, || false).expect("a table"));
        drop(listener);
        assert!(!wait_for_listener(port, now, || false).expect("a table"));
        let never = now + Duration::from_secs(3600);
        assert!(!wait_for_listener(port, never, || true).expect("a table"));
    }

    #[test]
    fn whoever_looks_for_a_port_is_not_taken_for_one_that_listens() {
        let (looking, port) = bind(0).expect("a port");
        let now = Instant::now();
        assert!(!wait_for_listener(port, now, || false).expect("a table"));
        rustix::net::listen(&looking, 1).expect("listening");
        assert!(wait_for_listener(port, now, || false).expect("a table"));
        let taken = bind(port).expect_err("somebody listens there");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_server_is_a_socket_that_accepts() {
        let scene = Scene::new().expect("a directory");
        let path = scene.runtime.join(format!("{}.sock", scene.channel()));
        let bound = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)
            .expect("a socket");
        let address = SocketAddrUnix::new(&path).expect("an address");
        rustix::net::bind(&bound, &address).expect("bound");
        fs::write(scene.runtime.join("file"), "").expect("a file");
        assert_eq!(scene.leftovers().expect("a directory").len(), 2);
        assert!(scene.servers().expect("a table").is_empty());
        rustix::net::listen(&bound, 1).expect("listening");
        assert_eq!(scene.servers().expect("a table"), [path]);
    }

    #[test]
    fn scenes_are_apart() {
        let (a, b) = (Scene::new().expect("one"), Scene::new().expect("another"));
        assert_ne!(a.channel(), b.channel());
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "touch \"$SOFTDOCA_RUNTIME_DIR/left\""]);
        assert!(a.place(&mut command).status().expect("a shell").success());
        assert_eq!(a.leftovers().expect("a directory").len(), 1);
        assert!(b.leftovers().expect("a directory").is_empty());
    }
}
