//! TCP ports for programs that are told on which one to listen, and waiting until they do.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::net;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Below those that Linux gives to whoever asks for any port, or connects to somewhere (`ip_local_port_range`, 32768 and up).
const RANGE: Range<u32> = 12_000..32_000;
/// How often waiting looks around.
const TICK: Duration = Duration::from_millis(2);
/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Numbers the ports of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A TCP port, for a program that will listen there: nobody used it a moment ago, and no other `Port` of this machine has this
/// number. It stays so while the program ends and another one begins.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reservation: OwnedFd,
}

impl Port {
    /// Finds one.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn reserve() -> io::Result<Self> {
        // Several processes look for one at the same time: each begins elsewhere.
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

    /// This one. The reservation comes first: whoever looks whether the port is in use has it for a moment.
    fn take(number: u16) -> io::Result<Self> {
        let reservation = reservation(number)?;
        bind(number)?;
        Ok(Self {
            number,
            _reservation: reservation,
        })
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// A socket whose name says that the port is taken. The name is an abstract one: as a port, it belongs to the network namespace, and
/// it goes with the socket, however its owner ends.
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

/// Takes a TCP port without listening on it: [`wait_for_listener`] must not find somebody who only looks for a port.
fn bind(port: u16) -> io::Result<OwnedFd> {
    let socket = net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // As those who will listen there: connections that have just ended are no reason to refuse the port.
    net::sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
    Ok(socket)
}

/// Waits until somebody listens on a TCP port, without connecting: a target serves only one client. `false` when nobody does
/// at `deadline`, or `given_up` says so.
///
/// # Errors
///
/// The operating system does not say who listens.
pub fn wait_for_listener(
    port: u16,
    deadline: Instant,
    mut given_up: impl FnMut() -> bool,
) -> io::Result<bool> {
    loop {
        if is_listening(port)? {
            return Ok(true);
        }
        if Instant::now() >= deadline || given_up() {
            return Ok(false);
        }
        std::thread::sleep(TICK);
    }
}

fn is_listening(port: u16) -> io::Result<bool> {
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match fs::read_to_string(table) {
            Ok(text) if listens(&text, port) => return Ok(true),
            Ok(_) => {}
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Lines are: number, local address:port, remote address:port, state, ..., in hexadecimal.
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
    fn listeners_are_seen_without_connecting() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let now = Instant::now();
        assert!(wait_for_listener(port, now, || false).expect("a table"));
        drop(listener);
        assert!(!wait_for_listener(port, now, || false).expect("a table"));
        let never = now + Duration::from_secs(3600);
        assert!(!wait_for_listener(port, never, || true).expect("a table"));
    }

    #[test]
    fn whoever_looks_for_a_port_is_not_taken_for_one_that_listens() {
        let port = Port::reserve().expect("a port").number();
        let looking = bind(port).expect("free");
        let now = Instant::now();
        assert!(!wait_for_listener(port, now, || false).expect("a table"));
        net::listen(&looking, 1).expect("listening");
        assert!(wait_for_listener(port, now, || false).expect("a table"));
        let taken = bind(port).expect_err("somebody listens there");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_port_is_reserved_until_it_is_dropped_whether_or_not_anybody_listens() {
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
    fn a_port_that_somebody_listens_on_is_not_taken() {
        let port = Port::reserve().expect("a port");
        let number = port.number();
        let _listener = TcpListener::bind(("127.0.0.1", number)).expect("free");
        drop(port);
        let taken = Port::take(number).expect_err("somebody listens there");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }
}
