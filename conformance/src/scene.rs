//! Where the processes of one check meet, and nobody else: a runtime directory, files, a channel, ports.

use std::cell::RefCell;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io};

use tempfile::TempDir;

use super::port::Port;

/// The DPU's device in softdoca's built-in topology.
pub const DPU_DEVICE: &str = "03:00.0";
/// The host's device there, which is also what the DPU calls its representor.
pub const HOST_DEVICE: &str = "3b:00.0";

/// The flag of a listening socket in `/proc/net/unix`.
const ACCEPTS: u32 = 1 << 16;

/// Numbers the scenes of this process.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A place of its own for one check. What is in it goes with it.
#[derive(Debug)]
pub struct Scene {
    directory: TempDir,
    runtime: PathBuf,
    channel: String,
    ports: RefCell<Vec<Port>>,
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
            ports: RefCell::default(),
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

    /// A TCP port that is nobody else's while the scene is there.
    ///
    /// # Errors
    ///
    /// As [`Port::reserve`].
    pub fn port(&self) -> io::Result<u16> {
        let port = Port::reserve()?;
        let number = port.number();
        self.ports.borrow_mut().push(port);
        Ok(number)
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

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

    use super::*;

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
