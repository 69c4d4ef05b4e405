//! Atomic access to 8-byte words of memory maps, in this machine's byte order.

use std::sync::atomic::{AtomicU64, Ordering};

use super::mmap::Mmap;
use crate::error::{Error, Result};

const SIZE: usize = size_of::<u64>();

/// An atomic operation on a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Load,
    Store,
    Atomic,
}

impl Mmap {
    /// Loads the u64 at `addr`.
    ///
    /// # Errors
    /// As [`copy`](super::copy()); [`Error::InvalidValue`] for an address that is not a multiple of 8.
    pub fn load(&self, addr: u64) -> Result<u64> {
        match self.word(addr, Access::Load)? {
            Some(word) => Ok(word.load(Ordering::SeqCst)),
            None => {
                let mut bytes = [0; SIZE];
                // SAFETY: the array has that many bytes.
                unsafe { self.region()?.read(addr, bytes.as_mut_ptr(), SIZE) }?;
                Ok(u64::from_ne_bytes(bytes))
            }
        }
    }

    /// Stores the u64 at `addr`.
    ///
    /// # Errors
    /// As [`Mmap::load`].
    pub fn store(&self, addr: u64, value: u64) -> Result<()> {
        match self.word(addr, Access::Store)? {
            Some(word) => {
                word.store(value, Ordering::SeqCst);
                Ok(())
            }
            None => {
                let bytes = value.to_ne_bytes();
                self.region()?.write(addr, bytes.as_ptr(), SIZE)
            }
        }
    }

    /// Adds `value` to the u64 at `addr`; returns the old value.
    ///
    /// # Errors
    /// As [`Mmap::load`]. The caller must check that the peer permits atomics; its agent checks as well.
    pub fn fetch_add(&self, addr: u64, value: u64) -> Result<u64> {
        match self.word(addr, Access::Atomic)? {
            Some(word) => Ok(word.fetch_add(value, Ordering::SeqCst)),
            None => self.region()?.fetch_add(addr, value),
        }
    }

    /// Replaces the u64 at `addr` by `new` if it is `expected`; returns the old value.
    ///
    /// # Errors
    /// As [`Mmap::fetch_add`].
    pub fn compare_swap(&self, addr: u64, expected: u64, new: u64) -> Result<u64> {
        match self.word(addr, Access::Atomic)? {
            Some(word) => {
                match word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(old) | Err(old) => Ok(old),
                }
            }
            None => self.region()?.compare_swap(addr, expected, new),
        }
    }

    /// The word, if it is mapped here.
    fn word(&self, addr: u64, access: Access) -> Result<Option<&AtomicU64>> {
        self.check(addr, SIZE)?;
        let allowed = match (self.imported(), access) {
            (Some(imported), Access::Load) => imported.rights.read,
            (Some(imported), Access::Store) => imported.rights.write,
            (Some(imported), Access::Atomic) => imported.rights.atomic,
            (None, Access::Load) => true,
            (None, Access::Store | Access::Atomic) => self.is_writable(),
        };
        if !allowed {
            return Err(Error::NotPermitted);
        }
        if !addr.is_multiple_of(SIZE as u64) {
            return Err(Error::InvalidValue);
        }
        let Some(pointer) = self
            .local_ptr(addr, SIZE as u64)
            .map(<*mut u8>::cast::<u64>)
        else {
            return Ok(None);
        };
        if !pointer.is_aligned() {
            return Err(Error::InvalidValue);
        }
        // SAFETY: in range, aligned as checked above, valid as long as the map, and writable unless it is only loaded
        // from, which as an aligned u64 is one instruction that writes nothing; all sides use atomics on shared words.
        Ok(Some(unsafe { AtomicU64::from_ptr(pointer) }))
    }

    /// Returns `true` if the memory belongs to another process that has exited or withdrawn it.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.imported()
            .is_some_and(|imported| imported.region().is_closed())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Permissions;
    use super::*;

    #[test]
    fn words_are_loaded_and_stored() {
        let mut words = [1_u64, 2];
        let addr = words.as_mut_ptr().expose_provenance() as u64;
        let mmap = Mmap::new();
        mmap.set_memrange(addr, 16).unwrap();
        assert_eq!(mmap.load(addr), Err(Error::BadState), "not started");
        mmap.start().unwrap();
        assert_eq!((mmap.load(addr), mmap.load(addr + 8)), (Ok(1), Ok(2)));
        assert_eq!(mmap.store(addr + 8, u64::MAX), Ok(()));
        assert_eq!(mmap.load(addr + 8), Ok(u64::MAX));
        assert_eq!(mmap.fetch_add(addr + 8, 3), Ok(u64::MAX));
        assert_eq!(mmap.compare_swap(addr + 8, 2, 5), Ok(2));
        assert_eq!(mmap.load(addr + 8), Ok(5));
        assert_eq!(mmap.load(addr + 4), Err(Error::InvalidValue));
        assert_eq!(mmap.store(addr + 16, 0), Err(Error::InvalidValue));
        assert!(!mmap.is_orphaned());
    }

    #[test]
    fn read_only_words_can_be_loaded() {
        let words = [7_u64];
        let addr = words.as_ptr().expose_provenance() as u64;
        let mmap = Mmap::new();
        mmap.set_memrange(addr, 8).unwrap();
        mmap.set_permissions(Permissions::empty()).unwrap();
        mmap.start().unwrap();
        assert_eq!(mmap.load(addr), Ok(7));
        assert_eq!(mmap.store(addr, 1), Err(Error::NotPermitted));
        assert_eq!(mmap.fetch_add(addr, 1), Err(Error::NotPermitted));
    }
}
