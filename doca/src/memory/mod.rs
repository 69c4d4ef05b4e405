//! Memory: regions of it, permissions, and maps that devices and peers use.

mod access;
mod mmap;
mod region;
mod shared_bytes;

pub use access::Access;
pub use mmap::Mmap;
pub use region::MemoryRegion;
