//! Inputs in files, for decoders that read files.

use std::cell::RefCell;
use std::io::{Seek as _, Write as _};
use std::path::Path;

use tempfile::NamedTempFile;

thread_local! {
    /// One file per thread for all inputs: creating one takes longer than reading it.
    static FILE: RefCell<Option<NamedTempFile>> = const { RefCell::new(None) };
}

/// Calls `work` with the path of a file that contains `bytes`.
///
/// # Panics
///
/// If the file cannot be written, and if `work` calls this function.
pub fn with<T>(bytes: &[u8], work: impl FnOnce(&Path) -> T) -> T {
    FILE.with_borrow_mut(|file| {
        let file = file.get_or_insert_with(|| NamedTempFile::new().expect("a directory for files"));
        file.as_file().set_len(0).expect("emptied");
        file.rewind().expect("at its beginning");
        file.write_all(bytes).expect("written");
        work(file.path())
    })
}
