//! A block volume over a DOCA storage service, for ordinary programs: reads, writes, flushes, zeroing and discards of any byte range.
//!
//! A [`Volume`] is the initiator's side of the storage protocol: it connects to a service (`zero_copy` or `gga_offload`) over Comch, exports
//! memory, and keeps a session. Its [`Queue`]s do the I/O, one for each thread and each worker of the service: I/Os are submitted with a tag and
//! a [`Buffer`] of memory that the storage reads and writes in place, and reaped in the order in which they complete.
//!
//! ```no_run
//! use volume::{Config, Io, Operation, Volume};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut volume = Volume::open(Config { queues: 1, ..Config::default() })?;
//! let mut queue = volume.take_queues().remove(0);
//! let mut buffer = queue.buffer(4096).expect("nothing is in flight");
//! buffer.fill(7);
//! let write = Operation::Write { fua: volume.capabilities().fua };
//! queue.submit(Io { tag: 1, operation: write, offset: 0, len: 4096, buffer: Some(buffer) }).expect("nothing is in flight");
//! let mut done = 0;
//! while done == 0 {
//!     done = queue.poll(&mut |completion| println!("{}: {:?}", completion.tag, completion.result));
//! }
//! drop(queue);
//! volume.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Queue::into_blocking`] has calls that wait instead, and [`Queue::into_async`] futures. A thread that waits for sockets as well sleeps on
//! [`Queue::descriptor`].
//!
//! # What is promised
//!
//! * **Any range.** I/Os of whole blocks go to and from the buffer as they are. A write of a part of a block reads the block, and writes it back.
//! * **Order.** I/Os that overlap, on any queues of one volume, are done one after the other: a read never sees half of a write, and of two
//!   overlapping writes one is done before the other. Which of two that are in flight at the same time comes first is not defined.
//!   Other volumes, and other initiators, of the same storage are not coordinated.
//! * **Durability.** When a [flush](Operation::Flush) has completed, all writes are durable whose completion was returned, by any queue, before it was submitted. A
//!   storage that cannot promise this says so in [`Capabilities`], and flushes fail.
//! * **Reconnection.** When the service goes away, or is silent for [`Config::io_timeout`], I/Os wait until there is a session again, and are sent again: they are idempotent, and nothing
//!   else touches their blocks meanwhile. After [`Config::reconnect_timeout`] they fail with [`IoError::Disconnected`], until there is a session. A storage that
//!   comes back smaller, with another block size, or without its flush is refused. What was written and not flushed is as durable as the targets are:
//!   a target with its blocks in memory comes back with others.
//! * **Cost.** An I/O of whole blocks takes no allocation, no mutex and, while the queue is polled and the storage busy, no system call: two atomic
//!   operations for each of its blocks, a message, and its answer.
//!
//! # Structure
//!
//! The control thread drives [`session`], a state machine without I/O, and creates an [`endpoint`] in each session for each queue: its contexts, and
//! submission and completion of its [`requests`]. What a queue asks for, in which order, is decided by a state machine as well, which is tested in any order
//! of events against an array of bytes.
//!
//! Programs that must not wait for a lost service, and that decide themselves where blocks are in memory, use session and endpoints without a volume, as
//! the initiator does.
#![deny(unsafe_code)]

mod asynchronous;
mod blocking;
mod buffer;
mod config;
mod control;
pub mod driver;
pub mod endpoint;
mod engine;
mod io;
mod metered;
mod queue;
mod range_lock;
pub mod requests;
mod seat;
pub mod session;
mod volume;
mod watchdog;

pub use asynchronous::AsyncQueue;
pub use blocking::BlockingQueue;
pub use buffer::Buffer;
pub use config::{Capabilities, CloseError, Config, OpenError};
pub use io::{Completion, Io, IoError, Operation};
pub use queue::Queue;
pub use volume::Volume;
pub use wire::release::Release;
