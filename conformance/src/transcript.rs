//! Control transcripts: what was said on control connections between services and targets, and when.
//!
//! * [`Relay`] stands between the two, with a [`Recorder`] or another [`Interceptor`]; [`Splitter`] finds the frames in what passes.
//! * [`Writer`], [`Reader`] and [`Transcript`] are the file; `proto/transcript.proto` is its schema.
//! * [`replay`] plays one of the two sides again, against a live program.

mod entry;
mod file;
mod relay;
pub mod replay;

pub use entry::{Entry, Event, Field, Frame, Header, Side, Value, fields};
pub use file::{Error, MAGIC, MAX_ENTRY, Piece, Reader, Splitter, Transcript, VERSION, Writer};
pub use relay::{Action, End, Interceptor, Place, Recorder, Relay, Summary};
pub use wire::recording::transcript::Role;
