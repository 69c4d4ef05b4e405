//! What the tests of log back ends share.

mod destinations;
mod limits;
mod standard;

use std::ffi::CString;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use doca_abi::{
    DOCA_ERROR_INVALID_VALUE, DOCA_LOG_LEVEL_CRIT, DOCA_LOG_LEVEL_DEBUG, DOCA_LOG_LEVEL_DISABLE,
    DOCA_LOG_LEVEL_ERROR, DOCA_LOG_LEVEL_INFO, DOCA_LOG_LEVEL_TRACE, DOCA_LOG_LEVEL_WARNING,
    DOCA_SUCCESS,
};

use super::*;

/// Back ends and global limits are the process's: one test at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn say(level: u32, text: &str) -> u32 {
    let text = CString::new(text).unwrap();
    // SAFETY: C strings.
    unsafe {
        softdoca_log_formatted(
            level,
            0,
            c"dir/file.c".as_ptr(),
            7,
            c"main".as_ptr(),
            text.as_ptr(),
        )
    }
}

/// No later change of the global limits makes this back end for the program's messages write again.
unsafe fn silence(backend: *mut doca_log_backend) {
    // SAFETY: a live handle.
    unsafe {
        assert_eq!(
            doca_log_backend_set_level_lower_limit(backend, DOCA_LOG_LEVEL_DISABLE),
            DOCA_SUCCESS
        );
        assert_eq!(
            doca_log_backend_set_level_lower_limit_strict(backend),
            DOCA_SUCCESS
        );
    }
}

/// A file that stays open, as that of a back end must.
fn file() -> File {
    let file = tempfile::tempfile().unwrap();
    std::mem::forget(file.try_clone().unwrap());
    file
}

/// The lines in the file that contain `mark`, each from its level on.
fn lines(file: &mut File, mark: &str) -> Vec<String> {
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text.lines()
        .filter(|line| line.contains(mark))
        .map(|line| line.splitn(4, ']').last().unwrap().to_owned())
        .collect()
}
