//! The agent's side to the network: how processes of different machines reach each other's memory and services, over TCP.
//!
//! * `settings` is what the environment says; without it nothing listens and nothing connects.
//! * `door` accepts peers, `authentication` lets them prove that they belong to the deployment, `serving` does what they ask for.
//! * [`NetworkOffer`] is the part of a blob that says how its owner is reached.
//! * [`Link`] tells whether a process lives; [`Lane`] carries requests to its memory, and [`NetworkRegion`] one after the other.
//! * `stream` is the socket; with `tls`, it carries `records`.

mod authentication;
#[cfg(all(test, feature = "tls"))]
pub(crate) mod certificates;
mod door;
mod lane;
mod link;
mod offer;
#[cfg(feature = "tls")]
mod records;
mod serving;
mod settings;
mod stream;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;

pub(crate) use door::{Deliver, NetworkGuard, expose, serve};
pub(crate) use lane::{Lane, NetworkRegion};
pub(crate) use link::{Link, close_gently};
pub(crate) use offer::{NetworkOffer, Route};
pub(crate) use serving::Memory;
#[cfg(test)]
pub(crate) use stream::pair as stream_pair;
pub(crate) use stream::{Piece, Stream};

use super::limits::Deadline;
use crate::error::{Error, Result};
use crate::topology::{DeviceModel, VARIABLE as TOPOLOGY};
use crate::verbs::Nic;
use settings::{Settings, Transport};

/// Returns `true` if this process uses the network.
///
/// # Errors
/// When the network is configured wrongly.
pub(crate) fn uses_network() -> Result<bool> {
    Ok(settings::Settings::get()?.is_some())
}

/// The RDMA device by which peers reach memory of `device`; `None` if there is none, or this process does not use the network.
///
/// # Errors
/// When the network is configured wrongly.
pub(crate) fn nic_of(device: &DeviceModel) -> Result<Option<&'static Nic>> {
    let settings = Settings::get()?;
    // What is to be encrypted goes over TCP.
    Ok(settings
        .filter(|settings| settings.transport != Transport::Tcp && settings.tls.is_none())
        .and_then(|_| Nic::of(device)))
}

/// The RDMA device for connections of `device`, as [`nic_of`].
///
/// # Errors
/// Also when connections without one are refused, and there is none.
pub(crate) fn nic_for_connections(device: &DeviceModel) -> Result<Option<&'static Nic>> {
    match nic_of(device)? {
        None if requires_verbs() => Err(Error::NotSupported.because(format_args!(
            "{} is verbs, and device {} has no RDMA device: expected its ibdev in the file of {TOPOLOGY} to be one of \
             /sys/class/infiniband, and rdma-core's libibverbs to be installed",
            settings::TRANSPORT,
            device.pci
        ))),
        nic => Ok(nic),
    }
}

/// Returns `true` if connections without verbs are refused.
pub(crate) fn requires_verbs() -> bool {
    Settings::get()
        .is_ok_and(|settings| settings.is_some_and(|it| it.transport == Transport::Verbs))
}

/// A connection with the service of an offer.
///
/// # Errors
/// As [`Link::to`], and whatever the service answers.
pub(crate) fn call(offer: &NetworkOffer) -> Result<Stream> {
    link::open(offer, authentication::Purpose::Service)
}

/// Fills the buffer within `patience`.
///
/// # Errors
/// As [`send_patiently`].
pub(crate) fn receive_patiently(
    stream: &Stream,
    buffer: &mut [u8],
    patience: std::time::Duration,
) -> Result<()> {
    stream.receive_all(buffer, Deadline::after(patience))
}

/// Sends the whole buffer within `patience`.
///
/// # Errors
/// [`Error::TimeOut`](crate::error::Error::TimeOut), and [`Error::ConnectionReset`](crate::error::Error::ConnectionReset).
pub(crate) fn send_patiently(
    stream: &Stream,
    bytes: &[u8],
    patience: std::time::Duration,
) -> Result<()> {
    stream.send_all(bytes, Deadline::after(patience))
}
