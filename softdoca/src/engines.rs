//! Algorithms of the accelerators, independent of contexts, tasks and bufs: erasure coding, LZ4, deflate, checksums.
//!
//! Another process may write to the source and destination of a task at any time, so no Rust reference to them is
//! created:
//!
//! * [`stripe`] and [`region`] access them through raw pointers and read each source byte of a product once, so that a
//!   concurrent change can only produce a wrong product.
//! * [`lz4`] and [`deflate`] branch on their input. They take slices, which the caller has copied to private memory.
//!
//! Each module uses only those before it in this list: [`galois`]; [`region`]; [`matrix`]; [`stripe`]. [`lz4`] and
//! [`deflate`], with their checksums, use none.

pub mod deflate;
pub mod galois;
pub mod lz4;
pub mod matrix;
pub mod region;
pub mod stripe;
