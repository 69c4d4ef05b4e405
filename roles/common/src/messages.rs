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
    /// Afterwards the whole place is the buf's data, whatever came: an answer that is [`put`](Self::put) there can be sent from it.
    ///
    /// A copy, because the peer may change its mind after ours has looked. Not one that is returned: in a result, the compiler takes it
    /// apart, and what is read from the pieces waits for all of them.
    ///
    /// # Errors
    ///
    /// There is no such place, or a task with the buf is in flight.
    #[inline(always)]
    pub fn received(
        &self,
        place: usize,
        buf: &Buf,
        into: &mut [u8; io_message::SIZE],
    ) -> doca::Result<usize> {
        let length = buf.data_len()?;
        if length < io_message::SIZE {
            self.received_less(place, buf, &mut into[..length])?;
            into[length..].fill(0);
        } else {
            self.region.read(Self::offset(place), into)?;
        }
        Ok(length)
    }

    #[cold]
    fn received_less(&self, place: usize, buf: &Buf, into: &mut [u8]) -> doca::Result<()> {
        self.region.read(Self::offset(place), into)?;
        buf.set_data(Self::offset(place) as u64, io_message::SIZE)
    }

    /// Puts a message into a place that no task uses. A buf of which the whole place is the data, because it was made so or has
    /// [`received`](Self::received) something, needs nothing more to be sent.
    ///
    /// # Errors
    ///
    /// There is no such place.
    #[inline(always)]
    pub fn put(&self, place: usize, message: &[u8; io_message::SIZE]) -> doca::Result<()> {
        self.region.write(Self::offset(place), message)
    }
}

#[cfg(test)]
mod tests {
    use doca::{Access, BufInventory, Device, Mmap};

    use super::*;

    #[test]
    fn what_was_received_is_copied_and_its_place_can_be_answered_from() {
        let device = Device::open("mlx5_0").expect("device");
        let messages = Messages::new(2).expect("memory");
        let region = Arc::clone(messages.region());
        let mmap = Mmap::register(&device, region, Access::LOCAL_READ_WRITE).expect("map");
        let inventory = BufInventory::new(1).expect("bufs");
        let offset = Messages::offset(1) as u64;
        let buf = inventory.buf(&mmap, offset, io_message::SIZE).expect("buf");
        for length in [0, 1, io_message::SIZE - 1, io_message::SIZE] {
            messages.put(1, &[0xee; io_message::SIZE]).expect("a place");
            buf.write_data(&vec![7; length]).expect("room");
            let mut bytes = [0xff; io_message::SIZE];
            assert_eq!(messages.received(1, &buf, &mut bytes), Ok(length));
            let (came, rest) = bytes.split_at(length);
            assert!(came.iter().all(|&byte| byte == 7), "{length}");
            assert!(rest.iter().all(|&byte| byte == 0), "{length}");
            messages.put(1, &[9; io_message::SIZE]).expect("a place");
            let mut sent = [0; io_message::SIZE];
            assert_eq!(buf.read_data(&mut sent), Ok(io_message::SIZE));
            assert_eq!(sent, [9; io_message::SIZE], "{length}");
        }
    }
}
