//! What the accelerators compute, without contexts, tasks or buffers: erasure coding, LZ4, deflate, checksums.
//!
//! Sources and destinations of a task may be memory that another process writes at the same time. No Rust reference to such
//! bytes is ever made here:
//!
//! * [`stripe`] and [`region`] read and write it through raw pointers, each source byte of a product once, so that a byte
//!   that changes meanwhile makes a wrong product and nothing worse.
//! * [`lz4`] and [`deflate`] branch on what they read. They take slices, which the caller has copied to private memory.
//!
//! Each module uses only those before it in this list: [`galois`]; [`region`]; [`matrix`]; [`stripe`]; [`checksum`];
//! [`lz4`], [`deflate`].

pub mod checksum;
pub mod deflate;
pub mod galois;
pub mod lz4;
pub mod matrix;
pub mod region;
pub mod stripe;
