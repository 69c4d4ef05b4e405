//! The memory of a worker's I/O messages: one place of 64 bytes after the other, each the area of one buf.

use std::sync::Arc;

use doca::{Buf, MemoryRegion};
use wire::io_message;

/// Copies messages out of the places, and into them, by their numbers.
#[derive(Debug, Clone)]
pub struct Messages {
    region: Arc<MemoryRegion>,
}

impl Messages {
    /// New memory for so many messages.
    ///
    /// # Errors
    ///
    /// There is not so much memory.
    pub fn new(places: usize) -> doca::Result<Self> {
        let region = MemoryRegion::new(places.saturating_mul(io_message::SIZE))?;
        Ok(Self { region })
    }

    /// The memory.
    #[must_use]
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    /// Where a place begins in the memory.
    #[inline]
    #[must_use]
    pub const fn offset(place: usize) -> usize {
        place * io_message::SIZE
    }

    /// Copies the message that came into the place that `buf` is of, and answers its length in bytes. Bytes that did not come are zeros.
    ///
    /// A copy, because the peer may change its mind after ours has looked. Not one that is returned: in a result, the compiler takes it
    /// apart, and what is read from the pieces waits for all of them.
    ///
    /// # Errors
    ///
    /// There is no such place.
    #[inline(always)]
    pub fn received(
        &self,
        place: usize,
        buf: &Buf,
        into: &mut [u8; io_message::SIZE],
    ) -> doca::Result<usize> {
        let length = buf.data_len()?;
        let offset = Self::offset(place);
        if length >= io_message::SIZE {
            self.region.read(offset, into)?;
        } else {
            into[length..].fill(0);
            self.region.read(offset, &mut into[..length])?;
        }
        Ok(length)
    }

    /// Makes `message` the data of `buf`, which is of this place.
    ///
    /// # Errors
    ///
    /// There is no such place, or a task with the buf is in flight.
    #[inline(always)]
    pub fn send_from(
        &self,
        place: usize,
        buf: &Buf,
        message: &[u8; io_message::SIZE],
    ) -> doca::Result<()> {
        // First, because it fails in flight.
        buf.set_data(Self::offset(place) as u64, message.len())?;
        self.put(place, message)
    }

    /// Puts a message into a place that no task uses.
    ///
    /// # Errors
    ///
    /// There is no such place.
    #[inline(always)]
    pub fn put(&self, place: usize, message: &[u8; io_message::SIZE]) -> doca::Result<()> {
        self.region.write(Self::offset(place), message)
    }
}
