//! Environment variables of the network, and the resulting network addresses: the part of an export blob that peers on
//! other machines use.
//!
//! ```text
//!    0  16 bytes: the runtime directory (device and inode) in which processes of the same machine reach it
//!   16  process
//!   32  key of the export or service
//!   48  u8 number of addresses, 1 to 4, and 128 if connections use TLS, 64 if the service can be reached by verbs;
//!       for each: 16 bytes IPv6 address (IPv4 mapped), u16 port (big endian)
//! ```

use std::ffi::OsString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use softdoca_net::is_temporary;

use super::super::Limits;
use super::super::protocol::AgentAddress;
use super::authentication::SharedKey;
use super::listener::Listener;
use super::tls::Tls;
use crate::error::{Error, Result};
use crate::runtime::{Key, RuntimeDir};

/// Addresses on which this process listens for peers on other machines.
pub(crate) const ADDRESS: &str = "SOFTDOCA_ADDRESS";
/// File with the key shared by all processes of a deployment.
const KEY_FILE: &str = "SOFTDOCA_KEY_FILE";
/// `tcp`: processes of this machine are also reached over the network, and verbs are never used. `verbs`: also over the
/// network, but always with verbs.
pub(super) const TRANSPORT: &str = "SOFTDOCA_TRANSPORT";
/// Files in PEM for TLS: the certificate of this machine, its private key, and the authorities that sign the peers' certificates.
pub(super) const TLS_CERTIFICATE: &str = "SOFTDOCA_TLS_CERTIFICATE";
pub(super) const TLS_KEY: &str = "SOFTDOCA_TLS_KEY";
pub(super) const TLS_CA: &str = "SOFTDOCA_TLS_CA";
/// Maximum number of addresses offered to a peer: blobs are small.
const MOST_ADDRESSES: usize = 4;
/// Minimum size of a key in bytes: a shorter one can be guessed from a recorded connection.
const SHORTEST_KEY: usize = 16;
const LONGEST_KEY: usize = 4096;
/// Pause between attempts to resolve a host name.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// Processes on other machines are reached over the network, with verbs if both sides have a device.
    Auto,
    /// Over TCP, including peers on this machine that offer it.
    Tcp,
    /// By verbs, including peers on this machine that offer it.
    Verbs,
}

/// Network configuration of this process.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) addresses: Vec<IpAddr>,
    /// `None`: only peers on this machine.
    pub(super) key: Option<SharedKey>,
    /// `None`: connections are not encrypted.
    pub(super) tls: Option<Tls>,
    pub(super) transport: Transport,
}

impl Settings {
    /// Settings of this process, read once; `None` if it does not use the network.
    ///
    /// # Errors
    /// [`Error::BadConfig`] for an invalid variable, [`Error::NotPermitted`] for a key that other users can read, and
    /// [`Error::TimeOut`] if no name server answers; only this error is not cached.
    pub(super) fn get() -> Result<Option<&'static Settings>> {
        static SETTINGS: OnceLock<Result<Option<Settings>>> = OnceLock::new();
        Settings::get_or_read(&SETTINGS, || {
            Settings::read(
                |name| std::env::var_os(name),
                lookup,
                Limits::get()?.request,
            )
        })
    }

    fn get_or_read(
        settings: &OnceLock<Result<Option<Settings>>>,
        read: impl FnOnce() -> Result<Option<Settings>>,
    ) -> Result<Option<&Settings>> {
        let known = match settings.get() {
            Some(known) => known,
            None => match read() {
                Err(Error::TimeOut) => return Err(Error::TimeOut),
                read => settings.get_or_init(|| read),
            },
        };
        known.as_ref().map(Option::as_ref).map_err(|error| *error)
    }

    fn read(
        variable: impl Fn(&str) -> Option<OsString>,
        lookup: impl Fn(&str) -> std::io::Result<Vec<IpAddr>>,
        timeout: Duration,
    ) -> Result<Option<Settings>> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let Some(list) = variable(ADDRESS) else {
            return Ok(None);
        };
        let addresses = addresses(&list.to_string_lossy(), lookup, timeout)?;
        let key = variable(KEY_FILE)
            .map(|path| key(Path::new(&path)))
            .transpose()?;
        let tls = Tls::read(variable)?;
        let transport = match variable(TRANSPORT) {
            None => Transport::Auto,
            Some(value) if value == "auto" => Transport::Auto,
            Some(value) if value == "tcp" => Transport::Tcp,
            Some(value) if value == "verbs" => Transport::Verbs,
            Some(value) => {
                return Err(Error::BadConfig.because(format_args!(
                    "expected auto, tcp or verbs in the environment variable {TRANSPORT}, got {value:?}"
                )));
            }
        };
        if transport == Transport::Verbs && tls.is_some() {
            return Err(Error::BadConfig.because(format_args!(
                "{TRANSPORT} is verbs, which does not encrypt, and {TLS_CERTIFICATE} is set: use one of them"
            )));
        }
        let settings = Settings {
            addresses,
            key,
            tls,
            transport,
        };
        for address in &settings.addresses {
            settings.check(*address)?;
        }
        Ok(Some(settings))
    }

    /// Refuses an address outside of this machine if its peers are not authenticated.
    pub(super) fn check(&self, address: IpAddr) -> Result<()> {
        if self.key.is_some() || self.tls.is_some() || address.is_loopback() {
            return Ok(());
        }
        Err(Error::NotPermitted.because(format_args!(
            "{address} is not a loopback address and there is no key: set {KEY_FILE} to a file of at least {SHORTEST_KEY} random \
             bytes, with mode 0600, and the same content on all machines of the deployment, or use TLS"
        )))
    }
}

fn lookup(name: &str) -> std::io::Result<Vec<IpAddr>> {
    Ok((name, 0)
        .to_socket_addrs()?
        .map(|address| address.ip())
        .collect())
}

/// Parses addresses and host names, separated by commas. Temporary failures of the resolver are retried until `timeout`.
fn addresses(
    list: &str,
    lookup: impl Fn(&str) -> std::io::Result<Vec<IpAddr>>,
    timeout: Duration,
) -> Result<Vec<IpAddr>> {
    let begin = Instant::now();
    let mut addresses = Vec::new();
    for name in list.split(',').map(str::trim) {
        let found = match name.parse() {
            Ok(address) => vec![address],
            Err(_) => loop {
                match lookup(name) {
                    Ok(found) => break found,
                    Err(error) if !is_temporary(&error) => break Vec::new(),
                    Err(_) if begin.elapsed() + PAUSE < timeout => std::thread::sleep(PAUSE),
                    Err(error) => {
                        return Err(Error::TimeOut.because(format_args!(
                            "cannot resolve {name:?} of the environment variable {ADDRESS}: {error}; try again: the failure may be \
                             temporary"
                        )));
                    }
                }
            },
        };
        if found.is_empty() || found.iter().any(IpAddr::is_unspecified) {
            return Err(Error::BadConfig.because(format_args!(
                "expected addresses of this machine, separated by commas, in the environment variable {ADDRESS}, such as \
                 192.0.2.1,2001:db8::1; got {name:?}"
            )));
        }
        addresses.extend(found);
    }
    addresses.dedup();
    if addresses.len() > MOST_ADDRESSES {
        return Err(Error::BadConfig.because(format_args!(
            "expected at most {MOST_ADDRESSES} addresses in the environment variable {ADDRESS}, got {}",
            addresses.len()
        )));
    }
    Ok(addresses)
}

fn key(path: &Path) -> Result<SharedKey> {
    let cannot = |error: std::io::Error| {
        Error::BadConfig.because(format_args!(
            "cannot read {}, which the environment variable {KEY_FILE} names: {error}",
            path.display()
        ))
    };
    let metadata = std::fs::metadata(path).map_err(cannot)?;
    let user = rustix::process::geteuid().as_raw();
    if metadata.mode() & 0o077 != 0 || ![user, 0].contains(&metadata.uid()) {
        return Err(Error::NotPermitted.because(format_args!(
            "the key {} has mode {:03o} and belongs to user {}, expected 600 and user {user}: run chmod 600 on it",
            path.display(),
            metadata.mode() & 0o777,
            metadata.uid()
        )));
    }
    if !metadata.is_file() || metadata.len() > LONGEST_KEY as u64 {
        return Err(Error::BadConfig.because(format_args!(
            "expected a file of at most {LONGEST_KEY} bytes at {}",
            path.display()
        )));
    }
    let mut bytes = std::fs::read(path).map_err(cannot)?;
    // Editors end files with a newline.
    while bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    if bytes.len() < SHORTEST_KEY {
        return Err(Error::BadConfig.because(format_args!(
            "expected a key of at least {SHORTEST_KEY} bytes in {}, got {}",
            path.display(),
            bytes.len()
        )));
    }
    Ok(SharedKey::new(bytes))
}

/// An address with a port: 16 bytes and 2.
type Place = ([u8; 16], u16);

/// Address and key of an export for peers on other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetworkOffer {
    directory: [u8; 16],
    pub(super) process: Key,
    pub(crate) key: Key,
    /// Connections use TLS. Only for a clear error message in a peer whose setting differs; the connection does not
    /// depend on it.
    pub(super) tls: bool,
    /// The service expects the endpoint of a queue pair of the peer, or a message that the peer has none.
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

    /// Returns `true` if the offer belongs to this process.
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
        ADDRESS
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn read(address: Option<&str>, key: Option<&Path>) -> Result<Option<Settings>> {
        let variable = |name: &str| match name {
            ADDRESS => address.map(Into::into),
            KEY_FILE => key.map(Into::into),
            _ => None,
        };
        Settings::read(variable, lookup, Duration::ZERO)
    }

    /// The settings for a host name whose lookups fail temporarily `failures` times.
    fn read_name(failures: u32, timeout: Duration) -> (Result<Option<Settings>>, u32) {
        let lookups = std::cell::Cell::new(0);
        let variable = |name: &str| (name == ADDRESS).then(|| "storage.example".into());
        let lookup = |name: &str| {
            assert_eq!(name, "storage.example");
            lookups.set(lookups.get() + 1);
            if lookups.get() <= failures {
                let text =
                    "failed to lookup address information: Temporary failure in name resolution";
                return Err(std::io::Error::other(text));
            }
            Ok(vec![IpAddr::from([127, 0, 0, 5])])
        };
        (Settings::read(variable, lookup, timeout), lookups.get())
    }

    #[test]
    fn temporary_failure_of_the_resolver_is_retried_and_never_final() {
        let (settings, lookups) = read_name(2, Duration::from_secs(3600));
        let addresses = settings.map(|settings| settings.unwrap().addresses);
        assert_eq!(addresses, Ok(vec![IpAddr::from([127, 0, 0, 5])]));
        assert_eq!(lookups, 3);
        // The next call reads the settings again, this time successfully.
        let known = OnceLock::new();
        let mut failures = 2;
        let mut get = || {
            Settings::get_or_read(&known, || {
                failures -= 1;
                read_name(failures, Duration::ZERO).0
            })
            .map(|settings| settings.is_some())
        };
        assert_eq!(get(), Err(Error::TimeOut));
        assert_eq!(get(), Ok(true));
        assert_eq!(get(), Ok(true));
    }

    #[test]
    fn other_errors_are_final() {
        let known = OnceLock::new();
        let mut reads = 0;
        for _ in 0..2 {
            let settings = Settings::get_or_read(&known, || {
                reads += 1;
                read(Some("192.0.2.1"), None)
            });
            assert_eq!(settings.err(), Some(Error::NotPermitted));
        }
        assert_eq!(reads, 1);
    }

    #[test]
    fn nothing_listens_by_default() {
        assert!(read(None, None).unwrap().is_none());
        assert!(read(Some(""), None).unwrap().is_none());
    }

    #[test]
    fn addresses_outside_of_the_machine_need_a_key() {
        let only = |list| read(Some(list), None).map(|settings| settings.unwrap().addresses.len());
        assert_eq!(only("127.0.0.1, ::1"), Ok(2));
        // A host name: with its IPv4 and IPv6 addresses, where it has both.
        assert!(matches!(only("localhost"), Ok(1..=2)));
        assert_eq!(only("192.0.2.1"), Err(Error::NotPermitted));
        assert_eq!(only("127.0.0.1,192.0.2.1"), Err(Error::NotPermitted));
        for list in ["0.0.0.0", "::", "no such host.invalid", ",", "127.0.0.1,"] {
            assert_eq!(only(list), Err(Error::BadConfig), "{list:?}");
        }
        assert_eq!(
            only("127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4,127.0.0.5"),
            Err(Error::BadConfig)
        );
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, "sixteen bytes at least\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let with_key = || read(Some("192.0.2.1"), Some(&path)).map(|settings| settings.is_some());
        assert_eq!(with_key(), Ok(true));
        for mode in [0o640, 0o604, 0o660] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(with_key(), Err(Error::NotPermitted), "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "short\n").unwrap();
        assert_eq!(with_key(), Err(Error::BadConfig));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(with_key(), Err(Error::BadConfig));
    }

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
