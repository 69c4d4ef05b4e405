//! TCP ports for programs that take a port number as a flag, and waiting until they listen.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::io::Errno;
use rustix::net;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Below the ephemeral ports of Linux (`ip_local_port_range`, 32768 and up).
const RANGE: Range<u32> = 12_000..32_000;
/// Polling interval of all waits.
const TICK: Duration = Duration::from_millis(2);
/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Counter of this process that varies the first number to try.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A reserved TCP port for a program to listen on. It was free when it was reserved, and no other `Port` of this
/// network namespace has its number while this value exists, even if the programs that use it are restarted.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reservation: OwnedFd,
}

impl Port {
    /// Reserves a free port.
    ///
    /// # Errors
    ///
    /// All ports of the range are in use.
    pub fn reserve() -> io::Result<Self> {
        // Processes that reserve ports concurrently start at different numbers.
        let start = std::process::id().wrapping_mul(97);
        for _ in RANGE {
            let step = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            let number = RANGE.start + step % (RANGE.end - RANGE.start);
            let number = u16::try_from(number).map_err(io::Error::other)?;
            if let Ok(port) = Self::take(number) {
                return Ok(port);
            }
        }
        Err(io::Error::other(format!(
            "expected a free port in {RANGE:?}, all are in use"
        )))
    }

    /// Reserves this port. The reservation precedes the check, which binds the port briefly.
    fn take(number: u16) -> io::Result<Self> {
        let reservation = reservation(number)?;
        bind(number)?;
        Ok(Self {
            number,
            _reservation: reservation,
        })
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

/// Binds a socket whose abstract name marks the port as reserved. Like a port, the name belongs to the network
/// namespace, and the kernel frees it when its owner exits for any reason.
fn reservation(port: u16) -> io::Result<OwnedFd> {
    let socket = net::socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let name = format!("doca-storage-conformance-port-{port}");
    net::bind(
        &socket,
        &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    )?;
    Ok(socket)
}

/// Binds a TCP port without listening, so that [`wait_for_listener`] does not mistake a check for a listener.
fn bind(port: u16) -> io::Result<OwnedFd> {
    let socket = net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Same option as that of the roles: connections in TIME_WAIT do not occupy the port.
    net::sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
    Ok(socket)
}

/// Waits until a process listens on a TCP port of this network namespace, without connecting: a target serves only
/// one client. Returns `false` after `deadline`, or if `given_up` returned `true`.
///
/// # Errors
///
/// The kernel's table of TCP sockets cannot be read.
pub fn wait_for_listener(
    port: u16,
    deadline: Instant,
    given_up: impl FnMut() -> bool,
) -> io::Result<bool> {
    wait_for_listener_in(Path::new("/proc/net"), port, deadline, given_up)
}

/// As [`wait_for_listener`], in the network namespace of a process: `net` is its `/proc/<pid>/net`. Returns `false` if the process
/// has exited.
pub(crate) fn wait_for_listener_in(
    net: &Path,
    port: u16,
    deadline: Instant,
    mut given_up: impl FnMut() -> bool,
) -> io::Result<bool> {
    loop {
        if is_listening(net, port)? {
            return Ok(true);
        }
        if Instant::now() >= deadline || given_up() {
            return Ok(false);
        }
        std::thread::sleep(TICK);
    }
}

fn is_listening(net: &Path, port: u16) -> io::Result<bool> {
    for table in ["tcp", "tcp6"] {
        if listens(&read(&net.join(table))?, port) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads a table of sockets; empty if the kernel has no IPv6, or the process has exited.
fn read(table: &Path) -> io::Result<String> {
    match fs::read_to_string(table) {
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) =>
        {
            Ok(String::new())
        }
        text => text,
    }
}

/// Reachable sockets of a network namespace: listening ones of TCP, and unconnected ones of UDP, as `address:port`.
pub(crate) fn listeners(net: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        for line in read(&net.join(table))?.lines().skip(1) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_, local, remote, state, ..] = words[..] else {
                continue;
            };
            let waits = match table {
                "tcp" | "tcp6" => state == LISTEN,
                _ => remote.ends_with(":0000"),
            };
            if waits {
                found.push(
                    address(local).map_or_else(|| local.to_owned(), |address| address.to_string()),
                );
            }
        }
    }
    Ok(found)
}

/// Addresses at which a process of this network namespace listens for TCP connections.
///
/// # Errors
///
/// The process has exited, or belongs to another user.
pub fn listeners_of(process: u32) -> io::Result<Vec<SocketAddr>> {
    let mut sockets = Vec::new();
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        // A descriptor may have been closed since.
        if let Ok(target) = entry.and_then(|entry| fs::read_link(entry.path()))
            && let Some(inode) = target
                .to_str()
                .and_then(|name| name.strip_prefix("socket:["))
        {
            sockets.push(inode.trim_end_matches(']').to_owned());
        }
    }
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        let table = read(&Path::new("/proc").join(format!("{process}/net/{table}")))?;
        for line in table.lines().skip(1) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_, local, _, LISTEN, _, _, _, _, _, inode, ..] = words[..] else {
                continue;
            };
            if sockets.iter().any(|socket| socket == inode) {
                found.extend(address(local));
            }
        }
    }
    Ok(found)
}

/// Parses an address of `/proc/net/tcp` or `tcp6`: 32-bit words in native byte order, then the port, in hexadecimal.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for at in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
    };
    Some(SocketAddr::new(ip, port))
}

/// Returns `true` if a table has a listening socket on the port. Fields are: number, local address:port, remote
/// address:port, state, ..., in hexadecimal.
fn listens(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let local = words.next().unwrap_or_default();
        local.ends_with(&port) && words.nth(1) == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn listeners_are_found_without_connecting() {
        // Reserved, so that concurrent tests do not use the port afterwards.
        let reserved = Port::reserve().expect("a port");
        let port = reserved.number();
        let listener = bind(port).expect("free");
        net::listen(&listener, 1).expect("listening");
        let now = Instant::now();
        assert!(wait_for_listener(port, now, || false).expect("a table"));
        drop(listener);
        // A child process that a concurrent test has forked keeps the listener open until it calls exec.
        let gone = Instant::now() + Duration::from_secs(30);
        while wait_for_listener(port, now, || false).expect("a table") {
            assert!(Instant::now() < gone, "nothing listens any more");
            std::thread::sleep(Duration::from_millis(1));
        }
        let never = now + Duration::from_secs(3600);
        assert!(!wait_for_listener(port, never, || true).expect("a table"));
    }

    #[test]
    fn bound_port_is_not_a_listener() {
        let port = Port::reserve().expect("a port").number();
        let looking = bind(port).expect("free");
        let now = Instant::now();
        assert!(!wait_for_listener(port, now, || false).expect("a table"));
        net::listen(&looking, 1).expect("listening");
        assert!(wait_for_listener(port, now, || false).expect("a table"));
        let taken = bind(port).expect_err("in use");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn listeners_are_named_by_address_and_port() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let expected = listener.local_addr().expect("an address").to_string();
        let found = listeners(Path::new("/proc/self/net")).expect("tables");
        assert!(found.contains(&expected), "{expected} in {found:?}");
        let own = listeners_of(std::process::id()).expect("tables");
        assert!(own.iter().any(|it| it.to_string() == expected), "{own:?}");
        let none = listeners(Path::new("/proc/0/net")).expect("no tables");
        assert_eq!(none, [""; 0]);
        let mapped = "00000000000000000000000001000000:0050";
        if cfg!(target_endian = "little") {
            assert_eq!(address(mapped), "[::1]:80".parse().ok());
            assert_eq!(address("0100007F:1F90"), "127.0.0.1:8080".parse().ok());
        }
        assert_eq!(address("0100007F"), None);
    }

    #[test]
    fn port_is_reserved_until_it_is_dropped() {
        let port = Port::reserve().expect("a port");
        let number = port.number();
        let taken = Port::take(number).expect_err("it is reserved");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(bind(number).expect("a program can listen there"));
        drop(port);
        let again = Port::take(number).expect("given back");
        assert_eq!(again.number(), number);
    }

    #[test]
    fn port_with_a_listener_is_not_reserved() {
        let port = Port::reserve().expect("a port");
        let number = port.number();
        let _listener = TcpListener::bind(("127.0.0.1", number)).expect("free");
        drop(port);
        let taken = Port::take(number).expect_err("in use");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }
}
