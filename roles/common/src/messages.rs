//! Memory of a worker's I/O messages: consecutive slots of 64 bytes, each the memory of one buf.

use std::sync::Arc;

use doca::{Buf, MemoryRegion};
use wire::io_message;

/// Copies messages out of and into slots, by slot number.
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

    /// Copies the received message out of `buf`'s slot, and returns its length in bytes. Bytes beyond it are zero.
    /// Afterwards the whole slot is the buf's data, whatever was received: a response that is [`put`](Self::put) there
    /// can be sent from it.
    ///
    /// A copy, because the peer may change the message after validation. It is not returned by value: the compiler
    /// would take it apart, and each read of the pieces would wait for all of them.
    ///
    /// # Errors
    ///
    /// There is no such slot, or a task with the buf is in flight.
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

    /// Writes a message into a slot that is not in use by a task. A buf whose data is the whole slot, either because
    /// it was created so or because it has [`received`](Self::received) a message, can then be sent as it is.
    ///
    /// # Errors
    ///
    /// There is no such slot.
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
    fn received_message_is_copied_and_its_slot_can_be_sent() {
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
