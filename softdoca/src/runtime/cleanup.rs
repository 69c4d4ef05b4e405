//! Removal of this process's socket files at exit, for programs that exit without stopping what they started.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Once, PoisonError};

use rustix::fs::AtFlags;

/// A file to unlink, by directory and name.
#[derive(Clone)]
struct Entry {
    directory: Arc<OwnedFd>,
    name: String,
    /// A forked child inherits this list, and must not remove its parent's files when it exits.
    owner: rustix::process::Pid,
}

static FILES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Removes its file when dropped, or at exit.
#[derive(Debug)]
pub(super) struct FileGuard {
    directory: Arc<OwnedFd>,
    name: String,
}

impl FileGuard {
    pub(super) fn new(directory: Arc<OwnedFd>, name: &str) -> FileGuard {
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| {
            // SAFETY: `remove_all` has the signature that atexit wants and touches only data with static lifetime.
            // A failure (no memory) only means that the next process reaps the file.
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
        // The file may be gone, with the whole directory: nothing to do then.
        let _ = rustix::fs::unlinkat(&*entry.directory, &*entry.name, AtFlags::empty());
    }
}

extern "C" fn remove_all() {
    // Another thread may hold the lock for ever when exit is called from a signal handler: never wait here.
    if let Ok(mut files) = FILES.try_lock() {
        files.drain(..).for_each(|entry| remove(&entry));
    }
}
