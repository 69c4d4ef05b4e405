//! Memory maps: ranges of memory for devices and, through exports, for other processes.
//!
//! A range of a started map with remote permissions is shared in place: its whole private pages become pages of a
//! memfd that importers map as well; the rest is accessed through the [`agent`](crate::agent). Addresses of an
//! imported map are its exporter's, throughout this API.
//!
//! Other processes write to this memory at any time, so no Rust reference to it is created: bytes are moved by raw
//! copies.

mod access;
mod descriptor;
mod export;
mod imported;
mod mmap;
mod sharing;
#[cfg(test)]
mod tests;

pub use access::copy;
pub use descriptor::{ExportKind, Permissions};
pub(crate) use descriptor::{again as descriptor_again, examples as example_descriptors};
pub use mmap::{FreeCallback, FreeFunction, Mmap};
