//! Rendezvous of processes on one machine: a private directory with the sockets of one user's softdoca processes,
//! listening sockets, the boot id, random keys.

mod socket;

pub use socket::{MAX_FDS, MAX_MESSAGE, Socket};
pub(crate) use socket::{is_eventfd, is_unix_socket, sealed_memory_len};

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};

use crate::error::{Error, Result};
use crate::log;

/// The kernel's boot id: two processes can share memory only if theirs are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootId([u8; BootId::SIZE]);

impl BootId {
    /// Encoded size in bytes.
    pub const SIZE: usize = 16;

    const PATH: &'static str = "/proc/sys/kernel/random/boot_id";

    /// The boot id of this machine.
    ///
    /// # Errors
    /// [`Error::OperatingSystem`] if `/proc` does not provide it.
    pub fn current() -> Result<BootId> {
        static CURRENT: OnceLock<BootId> = OnceLock::new();
        if let Some(id) = CURRENT.get() {
            return Ok(*id);
        }
        let text = std::fs::read_to_string(BootId::PATH).map_err(|error| {
            Error::OperatingSystem.because(format_args!(
                "cannot read {}: {error}; is /proc mounted?",
                BootId::PATH
            ))
        })?;
        let id = BootId::parse(text.trim()).ok_or_else(|| {
            Error::OperatingSystem.because(format_args!(
                "{} holds {text:?}, expected a UUID",
                BootId::PATH
            ))
        })?;
        Ok(*CURRENT.get_or_init(|| id))
    }

    fn parse(text: &str) -> Option<BootId> {
        let digits: Vec<u8> = text
            .chars()
            .filter(|c| *c != '-')
            .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect::<Option<_>>()?;
        let bytes: Vec<u8> = digits
            .chunks_exact(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect();
        (digits.len() == 2 * BootId::SIZE).then(|| bytes.try_into().ok().map(BootId))?
    }

    /// Inverse of [`to_bytes`](Self::to_bytes).
    pub const fn from_bytes(bytes: [u8; BootId::SIZE]) -> BootId {
        BootId(bytes)
    }

    /// The bytes, for embedding in a descriptor.
    pub const fn to_bytes(self) -> [u8; BootId::SIZE] {
        self.0
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A random 128-bit capability: knowing it proves that its owner disclosed it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; Key::SIZE]);

impl Key {
    /// Encoded size in bytes.
    pub const SIZE: usize = 16;

    /// Generates a key with the kernel's random generator.
    ///
    /// # Errors
    /// [`Error::OperatingSystem`] if it is not available.
    pub fn random() -> Result<Key> {
        let mut bytes = [0; Key::SIZE];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::OperatingSystem
                .because(format_args!("no random numbers from the kernel: {error}"))
        })?;
        Ok(Key(bytes))
    }

    /// Inverse of [`to_bytes`](Self::to_bytes).
    pub const fn from_bytes(bytes: [u8; Key::SIZE]) -> Key {
        Key(bytes)
    }

    /// The bytes, for embedding in a descriptor.
    pub const fn to_bytes(self) -> [u8; Key::SIZE] {
        self.0
    }
}

/// 32 hexadecimal digits, as used in file names.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Prints only the first digits: logs must not contain secrets.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}…", self.0[0], self.0[1])
    }
}

/// An open runtime directory. Cheap to clone.
#[derive(Clone)]
pub struct RuntimeDir {
    fd: Arc<OwnedFd>,
    path: Arc<Path>,
}

/// Another runtime directory, which may contain a socket.
#[derive(Debug)]
pub(crate) enum Elsewhere {
    /// A directory of this user that contains the socket.
    Has(PathBuf),
    /// A directory of the user with this id, which may contain the socket.
    OfUser(PathBuf, u32),
}

/// Held while the set of sockets in the directory is examined and changed.
struct DirectoryLock {
    // The lock belongs to this open file and is released with it.
    _file: OwnedFd,
}

impl RuntimeDir {
    /// Environment variable that names the directory.
    pub const VARIABLE: &'static str = "SOFTDOCA_RUNTIME_DIR";

    /// Time to wait for the lock of the directory, which other processes hold for microseconds.
    const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

    /// The directory of this process: `SOFTDOCA_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/softdoca`, else
    /// `/tmp/softdoca-<uid>`; created if missing. It is opened once; later changes of the environment have no effect.
    ///
    /// # Errors
    /// As [`RuntimeDir::open`].
    pub fn get() -> Result<RuntimeDir> {
        static CURRENT: Mutex<Option<RuntimeDir>> = Mutex::new(None);
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(directory) = &*current {
            return Ok(directory.clone());
        }
        let directory = RuntimeDir::open(&RuntimeDir::default_path())?;
        *current = Some(directory.clone());
        Ok(directory)
    }

    fn default_path() -> PathBuf {
        let variable = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        variable(RuntimeDir::VARIABLE)
            .or_else(|| variable("XDG_RUNTIME_DIR").map(|path| path.join("softdoca")))
            .unwrap_or_else(|| {
                format!("/tmp/softdoca-{}", rustix::process::geteuid().as_raw()).into()
            })
    }

    /// Opens `path`, creating it (and missing parents) with mode 0700.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if it belongs to another user or is accessible to others: access to the directory gives
    /// access to all memory that is exported through it. Otherwise the error of the operating system.
    pub fn open(path: &Path) -> Result<RuntimeDir> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|error| {
                Error::OperatingSystem
                    .because(format_args!("cannot create {}: {error}", parent.display()))
            })?;
        }
        let described = |errno: Errno, what: &str| {
            Error::from(errno).because(format_args!(
                "cannot {what} the runtime directory {}: {errno}; set {} to a private directory",
                path.display(),
                RuntimeDir::VARIABLE
            ))
        };
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(described(errno, "create")),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let fd = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| described(errno, "open"))?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| described(errno, "examine"))?;
        let user = rustix::process::geteuid().as_raw();
        if stat.st_uid != user {
            return Err(Error::NotPermitted.because(format_args!(
                "the runtime directory {} belongs to user {}, expected {user}; set {} to a directory of your own",
                path.display(),
                stat.st_uid,
                RuntimeDir::VARIABLE
            )));
        }
        if stat.st_mode & 0o077 != 0 {
            return Err(Error::NotPermitted.because(format_args!(
                "the runtime directory {} has mode {:03o}, expected 700; run chmod 700 on it, or set {} to another",
                path.display(),
                stat.st_mode & 0o777,
                RuntimeDir::VARIABLE
            )));
        }
        Ok(RuntimeDir {
            fd: Arc::new(fd),
            path: path.into(),
        })
    }

    /// Path of the directory, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Device and inode: the same for all processes that have opened the directory.
    ///
    /// # Errors
    /// Device and inode number of the directory, as the operating system reports them.
    pub fn identity(&self) -> Result<[u8; 16]> {
        let stat = rustix::fs::fstat(&*self.fd)?;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(stat.st_dev as u64).to_le_bytes());
        bytes[8..].copy_from_slice(&(stat.st_ino as u64).to_le_bytes());
        Ok(bytes)
    }

    fn shared_fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// A path to `name` that fits into a socket address (108 bytes), regardless of the directory's path.
    fn short_path(&self, name: &str) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd())
    }

    /// Locks the set of sockets against other processes.
    fn lock(&self) -> Result<DirectoryLock> {
        // A separate open file for each lock: flock locks open files, not threads.
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let file = rustix::fs::openat(&*self.fd, ".", flags, Mode::empty())?;
        let begin = Instant::now();
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(DirectoryLock { _file: file }),
                Err(Errno::WOULDBLOCK) if begin.elapsed() < RuntimeDir::LOCK_TIMEOUT => {
                    std::thread::sleep(Duration::from_micros(200));
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(Error::TimeOut.because(format_args!(
                        "another process has held the lock of {} for {:?}; check that it is not stopped",
                        self.path.display(),
                        RuntimeDir::LOCK_TIMEOUT
                    )));
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Removes the sockets of processes that have exited.
    fn reap(&self, _lock: &DirectoryLock) -> Result<()> {
        for entry in rustix::fs::Dir::read_from(&*self.fd)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name.ends_with(".sock") && self.is_dead(name) {
                log::info!(
                    "removing {}/{name}, left by a dead process",
                    self.path.display()
                );
                self.unlink(name);
            }
        }
        Ok(())
    }

    /// `true` if this socket no longer has a listener. Binding and listening are both done under the lock, so a refused
    /// connection does not mean that the owner is about to listen.
    fn is_dead(&self, name: &str) -> bool {
        matches!(Socket::connect_raw(self, name), Err(Errno::CONNREFUSED))
    }

    /// `true` if this directory has a file of this name, e.g. a socket.
    pub(crate) fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&*self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Number of sockets of running processes whose names begin with `prefix`.
    pub(crate) fn count(&self, prefix: &str) -> usize {
        let Ok(entries) = rustix::fs::Dir::read_from(&*self.fd) else {
            return 0;
        };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .filter(|name| name.starts_with(prefix) && name.ends_with(".sock"))
            .filter(|name| !self.is_dead(name))
            .count()
    }

    /// Searches for a socket in the other directories that processes of this machine use by default, without
    /// [`RuntimeDir::VARIABLE`]. For messages.
    pub(crate) fn elsewhere(&self, socket: &str) -> Option<Elsewhere> {
        let within = |parent: &str, is_candidate: fn(&str) -> bool| {
            let entries = std::fs::read_dir(parent).ok().into_iter().flatten();
            entries
                .flatten()
                .filter(move |entry| entry.file_name().to_str().is_some_and(is_candidate))
                .map(|entry| entry.path())
                .collect::<Vec<_>>()
        };
        let mut candidates = within("/tmp", |name| name.starts_with("softdoca-"));
        let users = within("/run/user", |_| true);
        candidates.extend(users.into_iter().map(|path| path.join("softdoca")));
        let user = rustix::process::geteuid().as_raw();
        let mut of_others = None;
        for path in candidates {
            let Ok(metadata) = std::fs::symlink_metadata(&path) else {
                continue;
            };
            if !metadata.is_dir() || self.is(&metadata) {
                continue;
            }
            let is_there = std::fs::symlink_metadata(path.join(socket));
            match is_there {
                Ok(_) if metadata.uid() == user => return Some(Elsewhere::Has(path)),
                Ok(_) => of_others = Some(Elsewhere::OfUser(path, metadata.uid())),
                Err(error)
                    if error.kind() == std::io::ErrorKind::PermissionDenied
                        && of_others.is_none() =>
                {
                    of_others = Some(Elsewhere::OfUser(path, metadata.uid()));
                }
                Err(_) => {}
            }
        }
        of_others
    }

    fn is(&self, metadata: &std::fs::Metadata) -> bool {
        rustix::fs::fstat(&*self.fd)
            .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (metadata.dev(), metadata.ino()))
    }

    fn unlink(&self, name: &str) {
        // Ignored: the file may have been removed already.
        let _ = rustix::fs::unlinkat(&*self.fd, name, AtFlags::empty());
    }
}

impl AsFd for RuntimeDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for RuntimeDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RuntimeDir").field(&self.path).finish()
    }
}

/// A file to unlink, by directory and name.
#[derive(Clone)]
struct Entry {
    directory: Arc<OwnedFd>,
    name: String,
    /// A forked child inherits this list, and must not remove its parent's files when it exits.
    owner: rustix::process::Pid,
}

static FILES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Removes its file when dropped or at exit.
#[derive(Debug)]
struct FileGuard {
    directory: Arc<OwnedFd>,
    name: String,
}

impl FileGuard {
    fn new(directory: Arc<OwnedFd>, name: &str) -> FileGuard {
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| {
            // SAFETY: `remove_all` has the signature that atexit expects and accesses only data with static lifetime.
            // If the registration fails (no memory), the next process reaps the file.
            unsafe { libc::atexit(remove_all) };
        });
        let entry = Entry {
            directory: Arc::clone(&directory),
            name: name.to_owned(),
            owner: rustix::process::getpid(),
        };
        FILES
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(entry);
        FileGuard {
            directory,
            name: name.to_owned(),
        }
    }
}

impl Drop for FileGuard {
    fn drop(&mut self) {
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = files.iter().position(|entry| {
            entry.name == self.name && Arc::ptr_eq(&entry.directory, &self.directory)
        }) {
            remove(&files.swap_remove(index));
        }
    }
}

fn remove(entry: &Entry) {
    if entry.owner == rustix::process::getpid() {
        // The file may already have been removed, with the whole directory.
        let _ = rustix::fs::unlinkat(&*entry.directory, &*entry.name, AtFlags::empty());
    }
}

extern "C" fn remove_all() {
    // Must not wait here: if exit is called from a signal handler, another thread may hold the lock forever.
    if let Ok(mut files) = FILES.try_lock() {
        files.drain(..).for_each(|entry| remove(&entry));
    }
}

/// A socket to which other processes connect by name. Dropping it removes its file.
///
/// Other processes check that the owner is running by connecting and closing immediately: a connection that closes
/// without a message is not an error.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    _file: FileGuard,
}

impl Listener {
    /// Listens on `name` (a file name ending in `.sock`; see [`named_socket`]); removes the sockets of processes that
    /// have exited, including this name.
    ///
    /// # Errors
    /// [`Error::AlreadyExist`] if a running process listens on that name.
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn parses_uuids_only() {
        let id = BootId::parse("00112233-4455-6677-8899-aabbccddeeff").unwrap();
        assert_eq!(id.to_bytes()[..3], [0x00, 0x11, 0x22]);
        assert_eq!(id.to_bytes()[15], 0xff);
        assert_eq!(BootId::parse(""), None);
        assert_eq!(BootId::parse("00112233-4455-6677-8899-aabbccddeef"), None);
        assert_eq!(BootId::parse("00112233-4455-6677-8899-aabbccddeeffa"), None);
        assert_eq!(BootId::parse("g0112233-4455-6677-8899-aabbccddeeff"), None);
    }

    #[test]
    fn is_stable() {
        assert_eq!(BootId::current(), BootId::current());
    }

    #[test]
    fn keys_differ_and_print_in_full_only_as_names() {
        let (a, b) = (Key::random().unwrap(), Key::random().unwrap());
        assert_ne!(a, b);
        assert_eq!(a.to_string().len(), 32);
        assert_eq!(Key::from_bytes(a.to_bytes()), a);
        assert!(format!("{a:?}").len() < 10);
    }

    #[test]
    fn is_created_private() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let directory = RuntimeDir::open(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert_eq!(directory.path(), path);
        RuntimeDir::open(&path).unwrap();
    }

    #[test]
    fn is_refused_when_open_to_others_or_no_directory() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("open");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o750)).unwrap();
        assert_eq!(RuntimeDir::open(&path).unwrap_err(), Error::NotPermitted);
        let link = parent.path().join("link");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(RuntimeDir::open(&link).is_err());
        let file = parent.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(RuntimeDir::open(&file).is_err());
    }

    fn names(directory: &RuntimeDir) -> Vec<String> {
        let entries = std::fs::read_dir(directory.path()).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_name_has_one_living_listener() {
        // A path longer than a socket address.
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
