//! The agent: a thread of an exporting process that serves its peers while the program is busy.
//!
//! It hands out the shared memory behind exports, copies memory that cannot be shared, performs atomics on it, and
//! passes calls (RDMA connects) to published services. It runs while there are exports or services, on one socket in
//! the runtime directory, which it removes afterwards. Peers on other machines use TCP instead, if enabled by the
//! environment: `network`.

mod client;
mod export;
mod limits;
mod network;
mod protocol;
mod server;
#[cfg(test)]
pub(crate) mod testing;

pub use client::{AgentConnection, RemoteBacking, RemoteRegion, RemoteSegment, request};
pub use export::{Backing, Export, Rights, Segment, SharedWord};
pub(crate) use limits::{Limits, WaitScope, is_held_up, is_in_progress};
#[cfg(all(test, feature = "tls"))]
pub(crate) use network::certificates;
#[cfg(test)]
pub(crate) use network::stream_pair;
pub(crate) use network::{
    Deliver, Lane, Link, Memory, NetworkGuard, NetworkOffer, NetworkRegion, Piece, Route, Stream,
    call, close_after_delivery, expose, nic_for_connections, nic_of, receive_within,
    requires_verbs, send_within, serve, uses_network,
};
pub use protocol::{AgentAddress, MAX_PAYLOAD};
pub(crate) use protocol::{again as request_again, examples as example_requests};

pub use server::{
    ConnectionId, ExportGuard, Handler, OnClose, PublishGuard, Reply, Request, export, publish,
};
