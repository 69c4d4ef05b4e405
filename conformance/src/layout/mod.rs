//! Golden vectors: bytes on the wire, field by field, against the `wire` crate and its table of offsets.
//!
//! The vectors are data files, written from the documented layout. Each must be what the crate encodes for its values and
//! decode to them, and its fields must lie where the table says. So an implementation in any language can be held against
//! the same files.

mod check;
mod file;
mod values;

pub use check::check;
pub use file::{Field, FileError, Vector, embedded, parse};
