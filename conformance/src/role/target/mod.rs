//! Checks of a storage target: the peer is a service with its client's memory.
//!
//! * [`service`] the control side of that service, step by step; [`worker`] the data side of one of its workers; [`messages`]
//!   what both say; [`plan`] a session's steps and its size.
//! * [`sessions`] whole sessions, one after the other and in odd orders.
//! * [`refusals`] requests that are not due or ask for the impossible.
//! * [`frames`] frames in pieces, in heaps, and broken ones.
//! * [`leaving`] services that go away.
//! * [`io`] reads and writes, [`io_refusals`] those that must fail; [`store`] what they are compared with.
//! * [`visit`] a client of checks that are not of this role.
//! * [`content`] what a target begins with; [`flush`] the extension that makes blocks durable.

mod content;
mod flush;
mod frames;
mod io;
mod io_refusals;
mod leaving;
mod messages;
mod plan;
mod refusals;
mod service;
mod sessions;
mod store;
mod visit;
mod worker;

pub(crate) use visit::visit;

use super::Check;

/// All of them.
pub(super) fn checks() -> Vec<Check> {
    [
        sessions::CHECKS,
        refusals::CHECKS,
        frames::CHECKS,
        leaving::CHECKS,
        io::CHECKS,
        io_refusals::CHECKS,
        content::CHECKS,
        flush::CHECKS,
    ]
    .concat()
}
