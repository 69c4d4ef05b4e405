//! Hosts and ports, whose names are resolved for each use; TLS of servers, and the names that their certificates must
//! match; listening Unix sockets that only their owner can connect to.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustls::ServerConfig;
use rustls::pki_types::ServerName;

pub use softdoca_net::tls::TlsError;

/// Longest host name in bytes (RFC 1035).
const LONGEST_NAME: usize = 253;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// An IPv4 or IPv6 address.
    Ip(IpAddr),
    Name(String),
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(address));
        }
        is_host_name(text)
            .then(|| Self::Name(text.to_owned()))
            .ok_or_else(|| "expected an IP address or a host name".to_owned())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Returns `true` if the text is a host name. A name whose last label is a number is not valid, because it is a
/// mistyped IPv4 address.
fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    name.len() <= LONGEST_NAME
        && name.split('.').all(is_label)
        && name
            .rsplit('.')
            .next()
            .is_some_and(|last| !last.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A TCP port of a host: `172.17.0.1:12345`, `[fd00::1]:12345` or `storage.example:12345`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPort {
    /// An IPv4 or IPv6 address and a port.
    Address(SocketAddr),
    /// A host name and a port.
    Name { host: String, port: u16 },
}

impl HostPort {
    #[must_use]
    pub fn new(host: &Host, port: u16) -> Self {
        match host {
            Host::Ip(address) => Self::Address(SocketAddr::new(*address, port)),
            Host::Name(name) => Self::Name {
                host: name.clone(),
                port,
            },
        }
    }

    /// The port; 0 selects a free one where the flag allows it.
    #[must_use]
    pub fn port(&self) -> u16 {
        match self {
            Self::Address(address) => address.port(),
            Self::Name { port, .. } => *port,
        }
    }

    /// The address; `None` for a host name.
    #[must_use]
    pub fn literal(&self) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Name { .. } => None,
        }
    }

    /// Returns all addresses of the host, IPv4 ones first, because servers listen on IPv4 by default. Blocks while a
    /// host name is resolved.
    ///
    /// # Errors
    ///
    /// The name is unknown, or the resolver does not answer.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let (host, port) = match self {
            Self::Address(address) => return Ok(vec![*address]),
            Self::Name { host, port } => (host.as_str(), *port),
        };
        let mut addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
        addresses.sort_by_key(SocketAddr::is_ipv6);
        addresses.dedup();
        if addresses.is_empty() {
            return Err(io::Error::other("the host has no address"));
        }
        Ok(addresses)
    }
}

/// Unanswered lookups, one per name.
static PENDING: Mutex<Vec<(HostPort, Weak<Lookup>)>> = Mutex::new(Vec::new());

/// A lookup of a host name on a separate thread, because a resolver may take minutes to answer. Lookups of the same
/// name share a thread, so that the number of threads does not increase with the number of sessions.
#[derive(Debug)]
pub struct Lookup {
    /// `None` until the resolver has answered.
    answer: Mutex<Option<Result<Vec<SocketAddr>, Arc<io::Error>>>>,
}

impl Lookup {
    /// Starts a lookup, or joins an unanswered one of the same name.
    ///
    /// # Errors
    ///
    /// The operating system cannot create a thread.
    pub fn start(address: &HostPort) -> io::Result<Arc<Self>> {
        Self::start_with(address, HostPort::resolve)
    }

    fn start_with(
        address: &HostPort,
        resolve: impl FnOnce(&HostPort) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
        // A lookup is referenced by its thread until it is answered.
        pending.retain(|(_, lookup)| lookup.upgrade().is_some_and(|lookup| !lookup.is_answered()));
        let known = pending.iter().find(|(pending, _)| pending == address);
        if let Some(lookup) = known.and_then(|(_, lookup)| lookup.upgrade()) {
            return Ok(lookup);
        }
        let lookup = Arc::new(Self {
            answer: Mutex::new(None),
        });
        let (ours, name) = (Arc::clone(&lookup), address.clone());
        thread::Builder::new()
            .name("resolve".to_owned())
            .spawn(move || {
                let answer = resolve(&name).map_err(Arc::new);
                *ours.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
            })?;
        pending.push((address.clone(), Arc::downgrade(&lookup)));
        Ok(lookup)
    }

    fn is_answered(&self) -> bool {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.is_some()
    }

    /// Returns the result; `None` until the lookup has completed.
    #[must_use]
    pub fn answer(&self) -> Option<Result<Vec<SocketAddr>, Arc<io::Error>>> {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.clone()
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl From<SocketAddrV4> for HostPort {
    fn from(address: SocketAddrV4) -> Self {
        Self::Address(address.into())
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        // IPv6 addresses have brackets, and were parsed above.
        text.rsplit_once(':')
            .filter(|(host, _)| is_host_name(host))
            .and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)))
            .map(|(host, port)| Self::Name { host, port })
            .ok_or_else(|| {
                "expected <host>:<port>, for example 172.17.0.1:12345, [fd00::1]:12345 or storage.example:12345"
                    .to_owned()
            })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Error of [`UnixServer::bind`].
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The path exists and is not a socket; it is not removed.
    #[error("{0}: expected a socket or nothing, found a file; remove it, or give another path")]
    NotASocket(PathBuf),
    /// Another process listens on the socket.
    #[error("{0}: another process is listening there; stop it, or give another path")]
    InUse(PathBuf),
    /// Operating system error.
    #[error("{path}: {error}")]
    System { path: PathBuf, error: io::Error },
}

/// A listening, non-blocking Unix socket with mode 0600. Dropping it removes its file.
#[derive(Debug)]
pub struct UnixServer {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode, to detect that another process has replaced the file.
    file: Option<(u64, u64)>,
}

impl UnixServer {
    /// Listens at a path, with a backlog of `backlog` connections. The stale socket of a killed process is replaced.
    ///
    /// # Errors
    ///
    /// The path exists and is not a stale socket, or the directory is not writable.
    pub fn bind(path: &Path, backlog: i32) -> Result<Self, ListenError> {
        let system = |error: io::Error| ListenError::System {
            path: path.to_owned(),
            error,
        };
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(system(error)),
            Ok(metadata) if !metadata.file_type().is_socket() => {
                return Err(ListenError::NotASocket(path.to_owned()));
            }
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(system)?;
                }
                // A process whose backlog is full also listens.
                _ => return Err(ListenError::InUse(path.to_owned())),
            },
        }
        let listen = || -> io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // The file inherits the socket's mode, so other users cannot connect at any time.
            fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
            rustix::net::listen(&socket, backlog)?;
            Ok(socket)
        };
        Ok(Self {
            listener: UnixListener::from(listen().map_err(system)?),
            path: path.to_owned(),
            file: identity(path),
        })
    }

    #[must_use]
    pub const fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Path of the socket's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixServer {
    fn drop(&mut self) {
        if self.file.is_some() && identity(&self.path) == self.file {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Builds the configuration of a server with TLS 1.2 and 1.3 from PEM files: its certificate chain, its private key
/// and, if clients must present a certificate, the authorities that sign those.
///
/// # Errors
///
/// A file is missing or unusable.
pub fn tls_config(
    certificate: &Path,
    key: &Path,
    client_ca: Option<&Path>,
) -> Result<Arc<ServerConfig>, TlsError> {
    softdoca_net::tls::server(rustls::DEFAULT_VERSIONS, certificate, key, client_ca).map(Arc::new)
}

/// Name that a server's certificate must match.
pub(crate) fn server_name(address: &HostPort) -> Result<ServerName<'static>, TlsError> {
    match address {
        HostPort::Address(address) => Ok(ServerName::from(address.ip())),
        HostPort::Name { host, .. } => {
            ServerName::try_from(host.trim_end_matches('.').to_owned()).map_err(TlsError::unusable)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_shown_as_they_were_written() {
        for text in [
            "127.0.0.1:80",
            "[::1]:12345",
            "[fe80::1%2]:7",
            "localhost:1",
            "dpu-1.storage.example:65535",
            "3com.example.:0",
            "target_1:12345",
        ] {
            let parsed: HostPort = text.parse().expect(text);
            assert_eq!(parsed.to_string(), text);
            let is_name = text.contains(char::is_alphabetic) && !text.starts_with('[');
            assert_eq!(parsed.literal().is_none(), is_name, "{text}");
        }
    }

    #[test]
    fn mistyped_addresses_are_not_host_names() {
        let long = format!("{}:1", ["x"; 128].join("."));
        for wrong in [
            "",
            ":80",
            "127.0.0.1",
            "127.0.0.1:",
            "127.0.0.1:65536",
            "127.0.0.1:-1",
            "127.0.0:1",
            "127.0.0.256:1",
            "1:1",
            "::1:80",
            "[::1]",
            "[localhost]:1",
            "-x:1",
            "a..b:1",
            "a b:1",
            "http://a:1",
            &long,
        ] {
            let message = wrong.parse::<HostPort>().expect_err(wrong);
            assert!(message.contains("storage.example:12345"), "{message}");
        }
        for wrong in ["", "1.2.3", "[::1]", "a:b"] {
            assert!(wrong.parse::<Host>().is_err(), "{wrong}");
        }
        assert_eq!(
            "::".parse(),
            Ok(Host::Ip("::".parse().expect("an address")))
        );
    }

    #[test]
    fn lookups_of_one_name_share_a_thread_until_the_answer() {
        let name: HostPort = "shared-lookup.invalid:7".parse().expect("a name");
        let (release, released) = std::sync::mpsc::channel::<()>();
        let first = Lookup::start_with(&name, move |_| {
            // Fails if the sender was dropped.
            let _ = released.recv();
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], 7))])
        });
        let first = first.expect("a thread");
        let second = Lookup::start_with(&name, |_| panic!("expected no second lookup"));
        let second = second.expect("the first lookup");
        assert!(Arc::ptr_eq(&first, &second));
        assert!(first.answer().is_none());
        drop(release);
        while second.answer().is_none() {
            thread::yield_now();
        }
        let answer = first.answer().expect("an answer").expect("an address");
        assert_eq!(answer, ["127.0.0.1:7".parse().expect("an address")]);
        // Later lookups query the resolver again: the address may have changed.
        let third = Lookup::start_with(&name, |_| Err(io::Error::other("unknown")));
        let third = third.expect("a thread");
        assert!(!Arc::ptr_eq(&first, &third));
        while third.answer().is_none() {
            thread::yield_now();
        }
        assert!(third.answer().expect("an answer").is_err());
    }

    #[test]
    fn a_name_has_its_ipv4_addresses_first() {
        let local: HostPort = "localhost:7".parse().expect("an address");
        let addresses = local.resolve().expect("every machine knows localhost");
        assert!(
            addresses
                .iter()
                .all(|it| it.ip().is_loopback() && it.port() == 7)
        );
        assert!(
            addresses.is_sorted_by_key(SocketAddr::is_ipv6),
            "{addresses:?}"
        );
        let unknown: HostPort = "no-such-host.invalid:7".parse().expect("a name");
        assert!(unknown.resolve().is_err());
    }

    #[test]
    fn certificates_are_for_the_host_of_the_address() {
        let name = |text: &str| {
            let address: HostPort = text.parse().expect("an address");
            server_name(&address).expect("a name").to_str().into_owned()
        };
        assert_eq!(name("10.0.0.2:12345"), "10.0.0.2");
        assert_eq!(name("[fd00::1]:12345"), "fd00::1");
        assert_eq!(name("storage.example.:12345"), "storage.example");
    }
}
