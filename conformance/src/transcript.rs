//! Control transcripts: the messages on control connections between services and targets, with their times.
//!
//! * [`Relay`] forwards connections under a [`Recorder`] or another [`Interceptor`]; [`Splitter`] finds the frames in a stream.
//! * [`Writer`], [`Reader`] and [`Transcript`] are the file format; `proto/transcript.proto` is its schema.
//! * [`replay`] replays one of the two sides against a live program.

mod entry;
mod file;
mod relay;
pub mod replay;

pub use entry::{Entry, Event, Field, Frame, Header, Side, Value, fields};
pub use file::{Error, MAGIC, MAX_ENTRY, Piece, Reader, Splitter, Transcript, VERSION, Writer};
pub use relay::{Action, End, Interceptor, Place, Recorder, Relay, Summary};
pub use wire::recording::transcript::Role;
