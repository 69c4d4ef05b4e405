//! Whether an export still stands, in a word that its exporter and all its importers share.
//!
//! Memory that a peer has mapped stays mapped there when its exporter stops the map: nothing would tell the peer that the memory is used
//! for something else by then. So each export has a word in pages of the exporting process, and a number: the word has the number while the
//! export stands, and another one afterwards. Importers look at the word before each access. It is written once, when the export ends, so
//! that the look is a load from a line that all processors have.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::export::read_only;
use crate::agent::SharedWord;
use crate::error::Result;

const WORD: usize = size_of::<AtomicU32>();

/// A page of words.
struct Page {
    /// For peers; it cannot be mapped for writing.
    memfd: Arc<OwnedFd>,
    /// Mapped for writing, and never unmapped.
    words: NonNull<AtomicU32>,
    /// Words that no export uses, as indices.
    free: Vec<u32>,
}

// SAFETY: the words are atomics in memory that stays mapped.
unsafe impl Send for Page {}

/// As many pages as were ever needed at a time.
static PAGES: Mutex<Vec<Page>> = Mutex::new(Vec::new());

/// The word of one export. The export ends with it.
#[derive(Debug)]
pub(super) struct Validity {
    page: usize,
    shared: SharedWord,
}

impl Page {
    fn new() -> Result<Page> {
        let size = rustix::param::page_size();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = rustix::fs::memfd_create("softdoca-validity", flags)?;
        rustix::fs::ftruncate(&memfd, size as u64)?;
        rustix::fs::fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let words =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, protection, flags, &memfd, 0) }?;
        Ok(Page {
            memfd: Arc::new(read_only(&memfd)?),
            words: NonNull::new(words.cast()).ok_or(crate::error::Error::Unexpected)?,
            free: (0..(size / WORD) as u32).rev().collect(),
        })
    }

    fn word(&self, index: u32) -> &AtomicU32 {
        // SAFETY: indices are those of words of the page, which stays mapped.
        unsafe { self.words.add(index as usize).as_ref() }
    }
}

impl Validity {
    /// Takes a word for an export that begins.
    ///
    /// # Errors
    /// Those of the operating system, when a new page is needed.
    pub(super) fn begin() -> Result<Validity> {
        let mut pages = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
        let page = match pages.iter().position(|page| !page.free.is_empty()) {
            Some(page) => page,
            None => {
                pages.push(Page::new()?);
                pages.len() - 1
            }
        };
        let Page { memfd, free, .. } = &mut pages[page];
        let memfd = Arc::clone(memfd);
        let index = free.pop().ok_or(crate::error::Error::Unexpected)?;
        let shared = SharedWord {
            memfd,
            offset: index * WORD as u32,
            value: pages[page].word(index).load(Ordering::Relaxed),
        };
        Ok(Validity { page, shared })
    }

    /// For importers.
    pub(super) fn shared(&self) -> &SharedWord {
        &self.shared
    }
}

impl Drop for Validity {
    fn drop(&mut self) {
        let mut pages = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
        let index = self.shared.offset / WORD as u32;
        let page = &mut pages[self.page];
        // Before anything that the program does with its memory from now on.
        page.word(index).fetch_add(1, Ordering::SeqCst);
        page.free.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_words_are_reused_with_new_values() {
        // More than two pages of them.
        let count = 2 * rustix::param::page_size() / WORD + 1;
        let words: Vec<_> = (0..count)
            .map(|_| Validity::begin().expect("a word"))
            .collect();
        let mut places: Vec<_> = words
            .iter()
            .map(|word| (word.page, word.shared.offset))
            .collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), count, "each has a word of its own");
        let (page, offset, value) = {
            let word = &words[0];
            (word.page, word.shared.offset, word.shared.value)
        };
        drop(words);
        let now = PAGES.lock().expect("not poisoned")[page]
            .word(offset / WORD as u32)
            .load(Ordering::Relaxed);
        assert_ne!(now, value);
    }
}
