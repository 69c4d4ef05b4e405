//! Memory of a worker's I/O messages: consecutive slots of 64 bytes, each the buffer of one message.

use std::sync::Arc;

use doca::MemoryRegion;
use wire::io_message;

/// Memory of I/O messages.
#[derive(Debug, Clone)]
pub struct Messages {
    region: Arc<MemoryRegion>,
}

impl Messages {
    /// Allocates memory for `places` messages.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub fn new(places: usize) -> doca::Result<Self> {
        let region = MemoryRegion::new(places.saturating_mul(io_message::SIZE))?;
        Ok(Self { region })
    }

    /// The memory region.
    #[must_use]
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    /// Byte offset of a slot in the memory.
    #[inline]
    #[must_use]
    pub const fn offset(place: usize) -> usize {
        place * io_message::SIZE
    }
}
