//! Network addresses of a process: the part of an export blob that peers on other machines use.
//!
//! ```text
//!    0  16 bytes: the runtime directory (device and inode) in which processes of the same machine reach it
//!   16  process
//!   32  key of the export or service
//!   48  u8 number of addresses, 1 to 4, and 128 if connections use TLS, 64 if the service can be reached by verbs; for each: 16 bytes IPv6 address (IPv4 mapped), u16 port (big endian)
//! ```

use std::net::{Ipv6Addr, SocketAddr};

use super::super::protocol::AgentAddress;
use super::listener::Listener;
use super::settings::{MOST_ADDRESSES, Settings, Transport};
use crate::error::{Error, Result};
use crate::runtime::{Key, RuntimeDir};

/// An address with a port: 16 bytes and 2.
type Place = ([u8; 16], u16);

/// Address and key of an export for peers on other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetworkOffer {
    directory: [u8; 16],
    pub(super) process: Key,
    pub(crate) key: Key,
    /// Connections use TLS. For a clear error in a peer whose setting differs; the connection does not depend on it.
    pub(super) tls: bool,
    /// The service expects the endpoint of a queue pair of the peer, or a message that there is none.
    pub(crate) verbs: bool,
    places: [Option<Place>; MOST_ADDRESSES],
}

/// Transport over which the owner of a blob is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Route {
    /// Through its agent in the runtime directory.
    Local,
    /// Over TCP.
    Network(NetworkOffer),
}

const HEAD: usize = 3 * 16 + 1;
const PLACE: usize = 18;
/// Flag in the number of addresses.
const TLS: u8 = 0x80;
/// As [`TLS`].
const VERBS: u8 = 0x40;

impl NetworkOffer {
    /// Largest encoded size in bytes.
    pub(crate) const LONGEST: usize = HEAD + MOST_ADDRESSES * PLACE;

    /// The offer of the export or service with `key` in this process, if it uses the network.
    ///
    /// # Errors
    /// An invalid configuration of the network, or addresses on which this process cannot listen.
    pub(crate) fn of(key: Key) -> Result<Option<NetworkOffer>> {
        let Some(listener) = Listener::get()? else {
            return Ok(None);
        };
        let mut places = [None; MOST_ADDRESSES];
        for (place, address) in places.iter_mut().zip(listener.addresses()) {
            let ip = match address.ip() {
                std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                std::net::IpAddr::V6(ip) => ip,
            };
            *place = Some((ip.octets(), address.port()));
        }
        Ok(Some(NetworkOffer {
            directory: RuntimeDir::get()?.identity()?,
            process: listener.process(),
            key,
            tls: listener.uses_tls(),
            verbs: false,
            places,
        }))
    }

    /// An offer of a nonexistent export.
    pub(crate) fn example() -> NetworkOffer {
        let mut places = [None; MOST_ADDRESSES];
        places[0] = Some((
            std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets(),
            4791,
        ));
        NetworkOffer {
            directory: [9; 16],
            process: Key::from_bytes([3; Key::SIZE]),
            key: Key::from_bytes([4; Key::SIZE]),
            tls: false,
            verbs: false,
            places,
        }
    }

    /// The offer of a process at these addresses.
    #[cfg(test)]
    pub(super) fn at(process: Key, addresses: &[SocketAddr]) -> NetworkOffer {
        let mut offer = NetworkOffer {
            process,
            places: [None; MOST_ADDRESSES],
            ..NetworkOffer::example()
        };
        for (place, address) in offer.places.iter_mut().zip(addresses) {
            let ip = match address.ip() {
                std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                std::net::IpAddr::V6(ip) => ip,
            };
            *place = Some((ip.octets(), address.port()));
        }
        offer
    }

    /// Returns `true` if it is this process's offer.
    pub(crate) fn is_of(&self, process: Key) -> bool {
        self.process == process
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.places.into_iter().flatten().map(|(ip, port)| {
            let ip = Ipv6Addr::from(ip);
            SocketAddr::new(ip.to_canonical(), port)
        })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::LONGEST);
        bytes.extend_from_slice(&self.directory);
        bytes.extend_from_slice(&self.process.to_bytes());
        bytes.extend_from_slice(&self.key.to_bytes());
        let mut flags = 0;
        for (flag, is_set) in [(TLS, self.tls), (VERBS, self.verbs)] {
            flags |= if is_set { flag } else { 0 };
        }
        bytes.push(self.places.iter().flatten().count() as u8 | flags);
        for (ip, port) in self.places.iter().flatten() {
            bytes.extend_from_slice(ip);
            bytes.extend_from_slice(&port.to_be_bytes());
        }
        bytes
    }

    /// Decodes an offer of exactly `bytes`.
    pub(crate) fn decode(bytes: &[u8]) -> Option<NetworkOffer> {
        let (directory, rest) = bytes.split_first_chunk()?;
        let (process, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (&count, rest) = rest.split_first()?;
        let (tls, verbs) = (count & TLS != 0, count & VERBS != 0);
        let count = usize::from(count & !(TLS | VERBS));
        if !(1..=MOST_ADDRESSES).contains(&count) || rest.len() != count * PLACE {
            return None;
        }
        let mut places = [None; MOST_ADDRESSES];
        for (place, bytes) in places.iter_mut().zip(rest.chunks_exact(PLACE)) {
            let (ip, port) = bytes.split_first_chunk()?;
            let port = u16::from_be_bytes(port.try_into().ok()?);
            if port == 0 || Ipv6Addr::from(*ip).to_canonical().is_unspecified() {
                return None;
            }
            *place = Some((*ip, port));
        }
        Some(NetworkOffer {
            directory: *directory,
            process: Key::from_bytes(*process),
            key: Key::from_bytes(*key),
            tls,
            verbs,
            places,
        })
    }
}

impl AgentAddress {
    /// Returns the route to the process of this address, which has made `offer`.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for a process of another machine without an offer.
    pub(crate) fn route(&self, offer: Option<&NetworkOffer>) -> Result<Route> {
        match offer {
            None => {
                self.check()?;
                Ok(Route::Local)
            }
            Some(offer) => {
                if !Settings::get()?.is_some_and(|settings| settings.transport != Transport::Auto)
                    && self.is_of_this_machine()?
                    && offer.directory == RuntimeDir::get()?.identity()?
                {
                    return Ok(Route::Local);
                }
                Ok(Route::Network(*offer))
            }
        }
    }
}

/// The error of a process that does not use the network.
pub(super) fn not_configured() -> Error {
    Error::NotSupported.because(format_args!(
        "the peer is on another machine (or has another {}) and this process does not use the network: set {} to the address of \
         this machine at which peers reach it",
        RuntimeDir::VARIABLE,
        super::settings::ADDRESS
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_round_trip_and_every_length_counts() {
        let mut offer = NetworkOffer::example();
        for count in 1..=MOST_ADDRESSES {
            (offer.tls, offer.verbs) = (count % 2 == 0, count > 2);
            offer.places[count - 1] = Some(([count as u8; 16], count as u16));
            let bytes = offer.encode();
            assert!(bytes.len() <= NetworkOffer::LONGEST);
            assert_eq!(NetworkOffer::decode(&bytes), Some(offer));
            for len in 0..bytes.len() {
                assert_eq!(NetworkOffer::decode(&bytes[..len]), None, "{len} bytes");
            }
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(NetworkOffer::decode(&longer), None);
        }
        let mut bytes = NetworkOffer::example().encode();
        let last = bytes.len() - 2;
        bytes[last..].fill(0);
        assert_eq!(NetworkOffer::decode(&bytes), None, "port 0");
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        let addresses: Vec<_> = NetworkOffer::example().addresses().collect();
        assert_eq!(addresses, ["127.0.0.1:4791".parse().unwrap()]);
    }
}
