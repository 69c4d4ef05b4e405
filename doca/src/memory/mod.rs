//! Memory: regions of it, permissions, and maps that devices and peers use.

mod access;
mod copy_apart;
mod mmap;
mod region;

pub use access::Access;
pub use mmap::Mmap;
pub use region::MemoryRegion;
