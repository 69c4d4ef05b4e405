//! A simulated guest for tests: memory with a virtqueue, to which arbitrary bytes can be written.

use vm_memory::{Bytes as _, FileOffset, GuestAddress};

use crate::device::{Device, ID_BYTES};
use crate::request::{Memory, Table};
use crate::ring::{Ring, RingError, Setup};

/// Size of the memory in bytes.
pub const MEMORY: u64 = 1 << 20;
/// Entries of the virtqueue.
pub const SIZE: u16 = 16;
/// Address of the descriptor table.
pub const DESCRIPTORS: u64 = 0x1000;
/// Address of the available ring.
pub const AVAILABLE: u64 = 0x2000;
/// Address of the used ring.
pub const USED: u64 = 0x3000;
/// Address of free memory.
pub const DATA: u64 = 0x10000;

/// Address of the status bytes, one for each head.
pub const STATUS_AT: u64 = DATA + 0x9000;
/// Address of the headers, one for each head.
pub const HEADER_AT: u64 = DATA + 0x9100;

/// Types of requests.
pub const IN: u32 = 0;
pub const OUT: u32 = 1;
pub const FLUSH: u32 = 4;
pub const ID: u32 = 8;
pub const ZEROES: u32 = 13;

/// Flags of descriptors.
pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// Maximum size of a part of a read or a write in bytes.
pub const MAX_TRANSFER: u32 = 8192;
/// Maximum size of a piece of write-zeroes in bytes.
pub const MAX_PIECE: u32 = 4096;

pub const DEVICE: Device = Device {
    size: 256 * 1024,
    block_size: 4096,
    flush: true,
    read_only: false,
    queues: 1,
    id: *b"identifier\0\0\0\0\0\0\0\0\0\0",
};

const _: () = assert!(DEVICE.id.len() == ID_BYTES);

/// Guest memory, and the driver's position in the available ring.
pub struct Guest {
    pub memory: Memory,
    pub available: u16,
}

impl Guest {
    /// Creates a guest whose memory can be shared.
    pub fn new() -> Self {
        let file =
            rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        rustix::fs::ftruncate(&file, MEMORY).expect("memory");
        let file = FileOffset::new(file.into(), 0);
        let memory =
            Memory::from_ranges_with_files([(GuestAddress(0), MEMORY as usize, Some(file))])
                .expect("memory");
        Self {
            memory,
            available: 0,
        }
    }

    pub fn table() -> Table {
        Table {
            address: GuestAddress(DESCRIPTORS),
            size: SIZE,
        }
    }

    pub fn setup(&self) -> Setup {
        Setup {
            memory: self.memory.clone(),
            size: SIZE,
            descriptors: GuestAddress(DESCRIPTORS),
            available: GuestAddress(AVAILABLE),
            used: GuestAddress(USED),
            next_available: self.available,
            event_idx: true,
            write_through: false,
            inflight: None,
            device: DEVICE,
            max_transfer: MAX_TRANSFER,
            max_piece: MAX_PIECE,
        }
    }

    pub fn ring(&self) -> Result<Ring, RingError> {
        Ring::new(self.setup())
    }

    pub fn write(&self, address: u64, bytes: &[u8]) {
        self.memory
            .write_slice(bytes, GuestAddress(address))
            .expect("guest memory");
    }

    pub fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory
            .read_slice(&mut bytes, GuestAddress(address))
            .expect("guest memory");
        bytes
    }

    pub fn byte(&self, address: u64) -> u8 {
        self.read(address, 1)[0]
    }

    /// Writes a descriptor of a table.
    pub fn descriptor_at(
        &self,
        table: u64,
        index: u16,
        address: u64,
        len: u32,
        flags: u16,
        next: u16,
    ) {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        self.write(table + 16 * u64::from(index), &bytes);
    }

    /// Writes a chain of descriptors (address, length in bytes, flags) to consecutive entries from `head` on.
    pub fn chain(&self, head: u16, descriptors: &[(u64, u32, u16)]) {
        for (at, &(address, len, flags)) in descriptors.iter().enumerate() {
            let index = head + at as u16;
            let flags = if at + 1 < descriptors.len() {
                flags | NEXT
            } else {
                flags
            };
            self.descriptor_at(DESCRIPTORS, index, address, len, flags, index + 1);
        }
    }

    pub fn header(&self, address: u64, kind: u32, sector: u64) {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend(sector.to_le_bytes());
        self.write(address, &bytes);
    }

    /// Makes a chain available.
    pub fn offer(&mut self, head: u16) {
        self.write(
            AVAILABLE + 4 + 2 * u64::from(self.available % SIZE),
            &head.to_le_bytes(),
        );
        self.available = self.available.wrapping_add(1);
        self.write(AVAILABLE + 2, &self.available.to_le_bytes());
    }

    /// Index of the used ring.
    pub fn used(&self) -> u16 {
        u16::from_le_bytes(self.read(USED + 2, 2).try_into().expect("2 bytes"))
    }

    /// Head and length of an element of the used ring.
    pub fn used_element(&self, index: u16) -> (u32, u32) {
        let bytes = self.read(USED + 4 + 8 * u64::from(index % SIZE), 8);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        (word(0), word(4))
    }

    /// Offers a request of this type and sector with data at [`DATA`], which the device reads or writes according to
    /// the type. Heads must be at least three apart.
    pub fn offer_request(&mut self, head: u16, kind: u32, sector: u64, len: u32) {
        let at = u64::from(head);
        self.header(HEADER_AT + 16 * at, kind, sector);
        let data = (DATA, len, if kind == OUT { 0 } else { WRITE });
        let mut chain = vec![
            (HEADER_AT + 16 * at, 16, 0),
            data,
            (STATUS_AT + at, 1, WRITE),
        ];
        if len == 0 {
            chain.remove(1);
        }
        self.write(STATUS_AT + at, &[0xee]);
        self.chain(head, &chain);
        self.offer(head);
    }

    /// Status of the request with this head.
    pub fn status(&self, head: u16) -> u8 {
        self.byte(STATUS_AT + u64::from(head))
    }
}
