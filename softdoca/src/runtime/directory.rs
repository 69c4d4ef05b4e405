//! The private directory with the sockets of one user's softdoca processes.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::socket::Socket;
use crate::error::{Error, Result};
use crate::log;

/// An open runtime directory. Cheap to clone.
#[derive(Clone)]
pub struct RuntimeDir {
    fd: Arc<OwnedFd>,
    path: Arc<Path>,
}

/// Held while the set of sockets in the directory is examined and changed.
pub(super) struct DirectoryLock {
    // The lock belongs to this open file and is released with it.
    _file: OwnedFd,
}

impl RuntimeDir {
    /// Environment variable that names the directory.
    pub const VARIABLE: &'static str = "SOFTDOCA_RUNTIME_DIR";

    /// Time to wait for the lock of the directory, which other processes hold for microseconds.
    const LOCK_PATIENCE: Duration = Duration::from_secs(5);

    /// The directory of this process: `SOFTDOCA_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/softdoca`, else
    /// `/tmp/softdoca-<uid>`; created if missing. Opened once; later changes of the environment have no effect.
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

    pub(super) fn shared_fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// A path to `name` that fits into a socket address (108 bytes), wherever the directory is.
    pub(super) fn short_path(&self, name: &str) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd())
    }

    /// Locks the set of sockets against other processes.
    pub(super) fn lock(&self) -> Result<DirectoryLock> {
        // A separate open file for each lock: flock locks open files, not threads.
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let file = rustix::fs::openat(&*self.fd, ".", flags, Mode::empty())?;
        let begin = Instant::now();
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(DirectoryLock { _file: file }),
                Err(Errno::WOULDBLOCK) if begin.elapsed() < RuntimeDir::LOCK_PATIENCE => {
                    std::thread::sleep(Duration::from_micros(200));
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(Error::TimeOut.because(format_args!(
                        "another process has held the lock of {} for {:?}; check that it is not stopped",
                        self.path.display(),
                        RuntimeDir::LOCK_PATIENCE
                    )));
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Removes the sockets of dead processes.
    pub(super) fn reap(&self, _lock: &DirectoryLock) -> Result<()> {
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

    /// `true` if this socket has no listener any more. Sockets are bound and listened on under the lock, so a refused
    /// connection cannot be one that is about to be listened on.
    pub(super) fn is_dead(&self, name: &str) -> bool {
        matches!(Socket::connect_raw(self, name), Err(Errno::CONNREFUSED))
    }

    pub(super) fn unlink(&self, name: &str) {
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
pub(super) struct FileGuard {
    directory: Arc<OwnedFd>,
    name: String,
}

impl FileGuard {
    pub(super) fn new(directory: Arc<OwnedFd>, name: &str) -> FileGuard {
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
        // The file may be gone already, with the whole directory.
        let _ = rustix::fs::unlinkat(&*entry.directory, &*entry.name, AtFlags::empty());
    }
}

extern "C" fn remove_all() {
    // Never wait here: if exit is called from a signal handler, another thread may hold the lock for ever.
    if let Ok(mut files) = FILES.try_lock() {
        files.drain(..).for_each(|entry| remove(&entry));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
}
