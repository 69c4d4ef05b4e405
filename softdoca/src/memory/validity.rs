//! Validity of an export: a word shared by its exporter and all its importers.
//!
//! Memory that a peer has mapped stays mapped there when its exporter stops the map: the peer would not know that the
//! memory has been reused. So each export has a word in pages of the exporting process and a number: the word holds
//! the number while the export is valid, and another value afterwards. Importers read the word before each access. It
//! is written once, when the export ends, so the read hits a line that is shared by all caches.

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
    /// Descriptor for peers; it cannot be mapped for writing.
    memfd: Arc<OwnedFd>,
    /// Mapped for writing, and never unmapped.
    words: NonNull<AtomicU32>,
    /// Indices of free words.
    free: Vec<u32>,
}

// SAFETY: the words are atomics in memory that stays mapped.
unsafe impl Send for Page {}

/// All pages. They are never freed.
static PAGES: Mutex<Vec<Page>> = Mutex::new(Vec::new());

/// Validity word of an export. Dropping it ends the export.
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
    /// Allocates a word for a new export.
    ///
    /// # Errors
    /// Those of the operating system, if a new page is needed.
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

    /// Descriptor, offset and value for importers.
    pub(super) fn shared(&self) -> &SharedWord {
        &self.shared
    }
}

impl Drop for Validity {
    fn drop(&mut self) {
        let mut pages = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
        let index = self.shared.offset / WORD as u32;
        let page = &mut pages[self.page];
        // Ordered before anything that the program does with its memory from now on.
        page.word(index).fetch_add(1, Ordering::SeqCst);
        page.free.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_words_are_reused_with_new_values() {
        // More than fit in two pages.
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
