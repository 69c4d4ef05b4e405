//! Control transcripts: what was said on control connections between services and targets, and when.
//!
//! * [`Relay`] stands between the two, with a [`Recorder`] or another [`Interceptor`]; [`Splitter`] finds the frames in what passes.
//! * [`Writer`], [`Reader`] and [`Transcript`] are the file; `proto/transcript.proto` is its schema.
//! * [`replay`] plays one of the two sides again, against a live program.

mod entry;
mod fields;
mod file;
mod relay;
pub mod replay;
mod splitter;

pub use entry::{Entry, Event, Frame, Header, Side};
pub use fields::{Field, Value, fields};
pub use file::{Error, MAGIC, MAX_ENTRY, Reader, Transcript, VERSION, Writer};
pub use relay::{Action, End, Interceptor, Place, Recorder, Relay, Summary};
pub use splitter::{Piece, Splitter};
pub use wire::recording::transcript::Role;
