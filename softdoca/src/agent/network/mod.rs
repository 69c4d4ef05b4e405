//! The agent over the network: access of processes of different machines to each other's memory and services, over TCP.
//!
//! * `settings` are read from the environment; without them this process neither listens nor connects.
//! * `listener` accepts peers, `authentication` checks that they have the key of the deployment, `serving` handles their
//!   requests.
//! * [`NetworkOffer`] is the part of a blob with the network addresses of its owner.
//! * [`Link`] detects the end of a process; [`Lane`] carries requests to its memory, and [`NetworkRegion`] one at a time.
//! * `stream` is the socket; with `tls`, it carries `records`.

mod authentication;
#[cfg(all(test, feature = "tls"))]
pub(crate) mod certificates;
mod lane;
mod link;
mod listener;
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

pub(crate) use lane::{Lane, NetworkRegion};
pub(crate) use link::{Link, close_after_delivery};
pub(crate) use listener::{Deliver, NetworkGuard, expose, serve};
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
/// An invalid configuration of the network.
pub(crate) fn uses_network() -> Result<bool> {
    Ok(settings::Settings::get()?.is_some())
}

/// Returns the RDMA device by which peers access memory of `device`; `None` if there is none, or this process does not
/// use the network.
///
/// # Errors
/// An invalid configuration of the network.
pub(crate) fn nic_of(device: &DeviceModel) -> Result<Option<&'static Nic>> {
    let settings = Settings::get()?;
    // Encrypted connections use TCP.
    Ok(settings
        .filter(|settings| settings.transport != Transport::Tcp && settings.tls.is_none())
        .and_then(|_| Nic::of(device)))
}

/// Returns the RDMA device for connections of `device`, as [`nic_of`].
///
/// # Errors
/// As [`nic_of`], and [`Error::NotSupported`] if there is none and [`requires_verbs`] is `true`.
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

/// Connects to the service of an offer.
///
/// # Errors
/// Errors of [`Link::to`] and of the service.
pub(crate) fn call(offer: &NetworkOffer) -> Result<Stream> {
    link::open(offer, authentication::Purpose::Service)
}

/// Fills the buffer within `timeout`.
///
/// # Errors
/// As [`send_within`].
pub(crate) fn receive_within(
    stream: &Stream,
    buffer: &mut [u8],
    timeout: std::time::Duration,
) -> Result<()> {
    stream.receive_all(buffer, Deadline::after(timeout))
}

/// Sends the whole buffer within `timeout`.
///
/// # Errors
/// [`Error::TimeOut`] and [`Error::ConnectionReset`].
pub(crate) fn send_within(
    stream: &Stream,
    bytes: &[u8],
    timeout: std::time::Duration,
) -> Result<()> {
    stream.send_all(bytes, Deadline::after(timeout))
}
