//! TLS 1.3 of connections between machines: both sides present a certificate that an authority of the deployment has
//! signed.
//!
//! rustls performs the handshake, after which [`Records`] takes over the keys. The client also checks that the server's
//! certificate is for the IP address that it has connected to.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::version::TLS13;
use rustls::{ClientConfig, ExtractedSecrets, ServerConfig};
use softdoca_net::tls::{TlsError, is_no_tls};

use super::super::Deadline;
use super::records::{Records, check_copies};
use super::settings::{TLS_CA, TLS_CERTIFICATE, TLS_KEY};
use super::stream::Stream;
use crate::error::{Error, Result};

/// Maximum number of unprocessed bytes of a peer's handshake: its chain of certificates.
const MOST_HANDSHAKE: usize = 32 * 1024;
const FIRST_READ: usize = 4 * 1024;

/// Certificates of this process.
#[derive(Clone)]
pub(super) struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// Omits the keys, because the text is used in logs.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the certificates and the key that the environment names; `None` if it names none.
    ///
    /// # Errors
    /// [`Error::BadConfig`] for a file that is missing or unusable, [`Error::NotPermitted`] for a private key that is readable by all users.
    pub(super) fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Tls>> {
        let files =
            [TLS_CERTIFICATE, TLS_KEY, TLS_CA].map(|name| variable(name).map(PathBuf::from));
        match &files {
            [None, None, None] => Ok(None),
            [Some(certificate), Some(key), Some(ca)] => {
                check_mode(key)?;
                check_copies().map_err(|error| {
                    error.because(
                        "TLS between machines copies exported memory by process_vm_readv, which a seccomp filter does not let this process do",
                    )
                })?;
                Self::new(certificate, key, ca).map(Some).map_err(|error| {
                    Error::BadConfig.because(format_args!(
                        "{error} (environment variables {TLS_CERTIFICATE}, {TLS_KEY}, {TLS_CA})"
                    ))
                })
            }
            _ => Err(Error::BadConfig.because(format_args!(
                "expected all of the environment variables {TLS_CERTIFICATE}, {TLS_KEY} and {TLS_CA}, or none: both sides of a connection show a \
                 certificate"
            ))),
        }
    }

    pub(super) fn new(
        certificate: &Path,
        key: &Path,
        ca: &Path,
    ) -> std::result::Result<Tls, TlsError> {
        let mut client = softdoca_net::tls::client(ca, Some((certificate, key)))?;
        client.resumption = rustls::client::Resumption::disabled();
        client.enable_secret_extraction = true;
        let mut server = softdoca_net::tls::server(&[&TLS13], certificate, key, Some(ca))?;
        server.send_tls13_tickets = 0;
        server.enable_secret_extraction = true;
        Ok(Tls {
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }

    /// Encrypts a connection that this process has made to `address`.
    ///
    /// # Errors
    /// The peer does not use TLS, has no certificate of the authority for this address, or has disconnected.
    pub(super) fn connect(
        &self,
        stream: Stream,
        address: IpAddr,
        deadline: Deadline,
    ) -> std::result::Result<Stream, Refused> {
        let name = ServerName::from(address);
        let client = UnbufferedClientConnection::new(Arc::clone(&self.client), name)?;
        let records = shake(client, &stream, deadline)?;
        Ok(stream.encrypted(records))
    }

    /// Encrypts a connection that a peer has made.
    ///
    /// # Errors
    /// As [`Tls::connect`].
    pub(super) fn accept(
        &self,
        stream: Stream,
        deadline: Deadline,
    ) -> std::result::Result<Stream, Refused> {
        let server = UnbufferedServerConnection::new(Arc::clone(&self.server))?;
        let records = shake(server, &stream, deadline)?;
        Ok(stream.encrypted(records))
    }
}

/// The private key of a service may belong to a group, as in Debian's `ssl-cert`.
fn check_mode(key: &Path) -> Result<()> {
    let metadata = std::fs::metadata(key).map_err(|error| {
        Error::BadConfig.because(format_args!(
            "cannot read {}, which the environment variable {TLS_KEY} names: {error}",
            key.display()
        ))
    })?;
    if metadata.mode() & 0o007 != 0 {
        return Err(Error::NotPermitted.because(format_args!(
            "the private key {} has mode {:03o}, so that any user can use it: run chmod 600 on it",
            key.display(),
            metadata.mode() & 0o777
        )));
    }
    Ok(())
}

/// Message about a peer that uses TLS, in a process that does not.
pub(super) fn not_configured() -> String {
    format!(
        "the peer uses TLS, and this process does not: set {TLS_CERTIFICATE}, {TLS_KEY} and {TLS_CA} on both machines or on neither"
    )
}

/// A failed handshake.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) error: Error,
    /// `None` if the connection was closed or timed out.
    reason: Option<rustls::Error>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Some(reason) if is_no_tls(reason) => write!(
                f,
                "TLS: {reason}; the peer does not use TLS: set {TLS_CERTIFICATE}, {TLS_KEY} and {TLS_CA} on both machines or on neither"
            ),
            Some(reason) => write!(f, "TLS: {reason}"),
            None => write!(f, "no TLS handshake: {}", self.error),
        }
    }
}

impl Refused {
    /// Returns the client's error, and logs its reason, if there is one. The caller reports an unreachable peer.
    pub(super) fn explained(&self) -> Error {
        match self.reason {
            Some(_) => self.error.because(self),
            None => self.error,
        }
    }
}

impl From<rustls::Error> for Refused {
    fn from(reason: rustls::Error) -> Self {
        Refused {
            error: Error::Authentication,
            reason: Some(reason),
        }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused {
            error,
            reason: None,
        }
    }
}

/// A side of a handshake.
trait Side {
    type Data;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn finish(
        self,
    ) -> std::result::Result<(ExtractedSecrets, KernelConnection<Self::Data>), rustls::Error>;
}

impl Side for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn finish(
        self,
    ) -> std::result::Result<(ExtractedSecrets, KernelConnection<Self::Data>), rustls::Error> {
        self.dangerous_into_kernel_connection()
    }
}

impl Side for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn finish(
        self,
    ) -> std::result::Result<(ExtractedSecrets, KernelConnection<Self::Data>), rustls::Error> {
        self.dangerous_into_kernel_connection()
    }
}

/// Next step of a handshake.
enum Next {
    Continue,
    Receive,
    Send,
    Done,
    Fail(rustls::Error),
}

/// Performs the handshake. Neither side sends data before the other has finished: the server sends first, after it has
/// verified the client.
fn shake<S: Side>(
    mut side: S,
    stream: &Stream,
    deadline: Deadline,
) -> std::result::Result<Records, Refused>
where
    KernelConnection<S::Data>: Send + 'static,
{
    let (mut incoming, mut used) = (vec![0; FIRST_READ], 0);
    let mut outgoing = Vec::new();
    loop {
        let UnbufferedStatus { discard, state, .. } = side.process(&mut incoming[..used]);
        let next = match state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                let at = outgoing.len();
                if let Err(EncodeError::InsufficientSize(error)) = data.encode(&mut []) {
                    outgoing.resize(at + error.required_size, 0);
                }
                match data.encode(&mut outgoing[at..]) {
                    Ok(_) => Next::Continue,
                    Err(error) => Next::Fail(rustls::Error::General(error.to_string())),
                }
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                Next::Send
            }
            Ok(ConnectionState::BlockedHandshake) => Next::Receive,
            Ok(ConnectionState::WriteTraffic(_)) => Next::Done,
            Ok(_) => Next::Fail(rustls::Error::General("data before the handshake".into())),
            Err(error) => Next::Fail(error),
        };
        incoming.copy_within(discard..used, 0);
        used -= discard;
        match next {
            Next::Continue => {}
            Next::Send => {
                stream.send_all(&outgoing, deadline)?;
                outgoing.clear();
            }
            Next::Receive => {
                if used == incoming.len() {
                    if used >= MOST_HANDSHAKE {
                        return Err(
                            rustls::Error::General("a handshake that is too long".into()).into(),
                        );
                    }
                    incoming.resize(2 * used, 0);
                }
                used += stream.receive_some(&mut incoming[used..], deadline)?;
            }
            Next::Done if used > 0 => {
                return Err(
                    rustls::Error::General("data before the handshake's end".into()).into(),
                );
            }
            Next::Done => {
                let (secrets, keys) = side.finish()?;
                return Ok(Records::new(secrets, Box::new(keys))?);
            }
            Next::Fail(error) => {
                // The alert contains the reason for the peer; it is sent only if this does not block.
                if let Ok(ConnectionState::EncodeTlsData(mut data)) =
                    side.process(&mut incoming[..used]).state
                {
                    let mut alert = [0; 64];
                    if let Ok(len) = data.encode(&mut alert) {
                        let _ = stream.send_from(&alert[..len]);
                    }
                }
                return Err(error.into());
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Handshakes between two sides, and records exchanged with our implementation or that of rustls.

    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpStream};
    use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use proptest::prelude::*;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::{ClientConnection, ServerConnection};

    use super::super::stream::{self, Piece};
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);
    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn tls(authority: &Authority, host: &str) -> Tls {
        let [certificate, key] = authority.sign(host, |_| {});
        Tls::new(&certificate, &key, &authority.path()).expect("good files")
    }

    type Shaken = std::result::Result<Stream, Refused>;

    /// Client and server after the handshake of both sides.
    fn shaken(client: &Tls, server: &Tls) -> (Shaken, Shaken) {
        let (here, there) = stream::pair();
        let deadline = Deadline::after(TIMEOUT);
        std::thread::scope(|scope| {
            let server = scope.spawn(|| server.accept(there, deadline));
            let client = client.connect(here, HOST, deadline);
            (client, server.join().expect("no panic"))
        })
    }

    /// Two ends of a connection.
    fn connected() -> (Stream, Stream) {
        let authority = Authority::new();
        let (client, server) = shaken(&tls(&authority, "127.0.0.1"), &tls(&authority, "127.0.0.1"));
        (client.expect("a client"), server.expect("a server"))
    }

    /// Sends the data in calls of at most `size` bytes, while receiving it in pieces of at most `piece` bytes.
    fn pass(from: &Stream, to: &Stream, bytes: &[u8], (size, piece): (usize, usize)) -> Vec<u8> {
        let deadline = Instant::now() + TIMEOUT;
        let (mut sent, mut received) = (0, Vec::new());
        let mut buffer = vec![0; 4 * piece];
        while received.len() < bytes.len() {
            assert!(Instant::now() < deadline, "{} bytes", received.len());
            let next = &bytes[sent..bytes.len().min(sent + size)];
            // Received in two pieces.
            let halves = next.split_at(next.len() / 3);
            match from.send(&[Piece::of(halves.0), Piece::of(halves.1)]) {
                Ok(taken) => sent += taken,
                Err(error) => assert_eq!(error, Error::Again),
            }
            from.flush().expect("a peer");
            let pieces: Vec<Piece> = buffer.chunks_mut(piece).map(Piece::of_mut).collect();
            // SAFETY: parts of the buffer.
            match unsafe { to.receive(&pieces) } {
                Ok(len) => received.extend_from_slice(&buffer[..len]),
                Err(error) => assert_eq!(error, Error::Again),
            }
        }
        received
    }

    #[test]
    fn bytes_arrive_in_both_directions_in_any_pieces() {
        let (client, server) = connected();
        for len in [1, 15, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 300_000] {
            for sizes in [(len, len), (1000, 77), (70_000, 16_384)] {
                let bytes = contents::noise(1, len);
                assert!(
                    pass(&client, &server, &bytes, sizes) == bytes,
                    "{len}, {sizes:?}"
                );
                assert!(
                    pass(&server, &client, &bytes, sizes) == bytes,
                    "{len}, {sizes:?}"
                );
            }
        }
        client.shut_down_output();
        assert_eq!(
            server.receive_all(&mut [0], Deadline::after(TIMEOUT)),
            Err(Error::ConnectionReset)
        );
        assert_eq!(server.receive_into(&mut [0]), Ok(0), "a clean end");
        // The other direction continues.
        assert_eq!(pass(&server, &client, b"more", (4, 4)), b"more");
    }

    #[test]
    fn keys_change_without_a_pause() {
        let (client, server) = connected();
        for stream in [&client, &server] {
            let records = stream.records.as_ref().expect("TLS");
            records.borrow_mut().update_after(3);
        }
        let bytes = contents::noise(1, 500_000);
        for _ in 0..3 {
            assert!(pass(&client, &server, &bytes, (4096, 4096)) == bytes);
            assert!(pass(&server, &client, &bytes, (4096, 4096)) == bytes);
        }
    }

    /// Sends a record without data.
    type SendRecord = fn(&mut Records, BorrowedFd<'_>) -> Result<()>;

    #[test]
    fn key_updates_and_empty_records_are_limited_between_data() {
        let send: [(&str, SendRecord); 2] = [
            ("key updates", Records::send_key_update),
            ("empty records", Records::send_empty),
        ];
        for (name, send) in send {
            let (client, server) = connected();
            let records = client.records.as_ref().expect("TLS");
            let send = |count| {
                for _ in 0..count {
                    send(&mut records.borrow_mut(), client.as_fd()).expect("sent");
                }
            };
            for _ in 0..3 {
                send(32);
                assert_eq!(pass(&client, &server, b"data", (4, 4)), b"data", "{name}");
                // The peer answers an update with its own, once.
                assert_eq!(pass(&server, &client, b"data", (4, 4)), b"data", "{name}");
            }
            send(33);
            assert_eq!(
                server.receive_all(&mut [0], Deadline::after(TIMEOUT)),
                Err(Error::ConnectionReset),
                "{name}"
            );
        }
    }

    /// Error of the client and of the server.
    fn errors((client, server): (Shaken, Shaken)) -> (Error, Error) {
        // The client completes its handshake before the server has verified its certificate.
        let client = match client {
            Err(refused) => refused.error,
            Ok(stream) => stream
                .receive_all(&mut [0], Deadline::after(TIMEOUT))
                .expect_err("refused"),
        };
        (client, server.expect_err("refused").error)
    }

    #[test]
    fn certificates_of_other_authorities_hosts_and_times_are_refused() {
        let (ours, other) = (Authority::new(), Authority::new());
        let good = tls(&ours, "127.0.0.1");
        let mut bad = Vec::new();
        // Signed by another authority, and trusting ours.
        let [certificate, key] = other.sign("127.0.0.1", |_| {});
        bad.push(Tls::new(&certificate, &key, &ours.path()));
        let [certificate, key] = ours.sign("127.0.0.1", |params| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        });
        bad.push(Tls::new(&certificate, &key, &ours.path()));
        for bad in bad {
            let bad = bad.expect("good files");
            let refused = (Error::Authentication, Error::Authentication);
            assert_eq!(errors(shaken(&bad, &good)), refused);
            assert_eq!(errors(shaken(&good, &bad)), refused);
        }
        // Only the certificates of servers are compared with an address.
        let elsewhere = tls(&ours, "192.0.2.1");
        let (client, server) = shaken(&elsewhere, &good);
        assert!(client.is_ok() && server.is_ok());
        let refused = (Error::Authentication, Error::Authentication);
        assert_eq!(errors(shaken(&good, &elsewhere)), refused);
    }

    #[test]
    fn a_client_without_a_certificate_is_refused() {
        let ours = Authority::new();
        let server = tls(&ours, "127.0.0.1");
        let mut without = server.clone();
        let mut config = softdoca_net::tls::client(&ours.path(), None).expect("a file");
        config.enable_secret_extraction = true;
        without.client = Arc::new(config);
        assert_eq!(
            errors(shaken(&without, &server)),
            (Error::Authentication, Error::Authentication)
        );
    }

    #[test]
    fn variables_belong_together_and_keys_are_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let ours = Authority::new();
        let [certificate, key] = ours.sign("127.0.0.1", |_| {});
        let all = [
            (TLS_CERTIFICATE, certificate.clone()),
            (TLS_KEY, key.clone()),
            (TLS_CA, ours.path()),
        ];
        let read = |variables: &[(&str, PathBuf)]| {
            Tls::read(|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, path)| path.into())
            })
            .map(|tls| tls.is_some())
        };
        assert_eq!(read(&[]), Ok(false));
        assert_eq!(read(&all), Ok(true));
        for count in 1..3 {
            assert_eq!(read(&all[..count]), Err(Error::BadConfig));
        }
        let mut exchanged = all.clone();
        exchanged[0].1 = key.clone();
        assert_eq!(read(&exchanged), Err(Error::BadConfig), "no certificate");
        exchanged[0].1 = "/nonexistent".into();
        assert_eq!(read(&exchanged), Err(Error::BadConfig), "no file");
        // The key of another certificate.
        exchanged = all.clone();
        exchanged[1].1 = ours.sign("127.0.0.1", |_| {})[1].clone();
        assert_eq!(read(&exchanged), Err(Error::BadConfig));
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("a file");
        assert_eq!(read(&all), Err(Error::NotPermitted));
    }

    /// A socket of the standard library at the other end.
    fn with_plain_peer() -> (Stream, TcpStream) {
        let (here, there) = stream::pair();
        let there: OwnedFd = there.as_fd().try_clone_to_owned().expect("a descriptor");
        let there = TcpStream::from(there);
        there.set_nonblocking(false).expect("a socket");
        there.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        (here, there)
    }

    /// Sends and receives with a peer that has rustls' records. Both change their keys several times.
    fn exchange<C, S>(stream: &Stream, mut connection: C, mut socket: TcpStream)
    where
        C: std::ops::DerefMut<Target = rustls::ConnectionCommon<S>> + Send + 'static,
        S: rustls::SideData,
    {
        let bytes = contents::noise(1, 200_000);
        let records = stream.records.as_ref().expect("TLS");
        records.borrow_mut().update_after(5);
        let reply = bytes.clone();
        let peer = std::thread::spawn(move || {
            let mut tls = rustls::Stream::new(&mut connection, &mut socket);
            let mut received = vec![0; reply.len()];
            tls.read_exact(&mut received).expect("all of it");
            assert!(received == reply);
            for part in reply.chunks(50_000) {
                tls.write_all(part).expect("sent");
                tls.conn.refresh_traffic_keys().expect("a handshake");
            }
            tls.conn.send_close_notify();
            tls.flush().expect("sent");
            assert_eq!(tls.read(&mut [0]).expect("a clean end"), 0);
        });
        let deadline = Deadline::after(TIMEOUT);
        stream.send_all(&bytes, deadline).expect("sent");
        let mut received = vec![0; bytes.len()];
        stream
            .receive_all(&mut received, deadline)
            .expect("all of it");
        assert!(received == bytes);
        let end = stream.receive_some(&mut [0], deadline);
        assert_eq!(end, Err(Error::ConnectionReset), "its end");
        stream.shut_down_output();
        peer.join().expect("no panic");
    }

    #[test]
    fn rustls_reads_and_writes_the_same_records() {
        let ours = Authority::new();
        let tls = tls(&ours, "127.0.0.1");
        let deadline = Deadline::after(TIMEOUT);
        let (stream, mut socket) = with_plain_peer();
        let name = ServerName::from(HOST);
        let mut client = ClientConnection::new(Arc::clone(&tls.client), name).expect("a client");
        std::thread::scope(|scope| {
            let server = scope.spawn(|| tls.accept(stream, deadline).expect("a peer"));
            while client.is_handshaking() || client.wants_write() {
                client.complete_io(&mut socket).expect("a handshake");
            }
            exchange(&server.join().expect("no panic"), client, socket);
        });
        let (stream, mut socket) = with_plain_peer();
        let mut server = ServerConnection::new(Arc::clone(&tls.server)).expect("a server");
        std::thread::scope(|scope| {
            let client = scope.spawn(|| tls.connect(stream, HOST, deadline).expect("a peer"));
            while server.is_handshaking() || server.wants_write() {
                server.complete_io(&mut socket).expect("a handshake");
            }
            exchange(&client.join().expect("no panic"), server, socket);
        });
    }

    /// Encrypted bytes of a side that has sent these messages, and the other end, which has not received anything yet.
    fn captured(sent: &[&[u8]]) -> (Vec<u8>, Stream, TcpStream) {
        let ours = Authority::new();
        let tls = tls(&ours, "127.0.0.1");
        let (client, mut before) = with_plain_peer();
        let (server, mut behind) = with_plain_peer();
        let deadline = Deadline::after(TIMEOUT);
        std::thread::scope(|scope| {
            let client = scope.spawn(|| tls.connect(client, HOST, deadline).expect("a peer"));
            let server = scope.spawn(|| tls.accept(server, deadline).expect("a peer"));
            // A relay between the two sides.
            for socket in [&before, &behind] {
                socket
                    .set_read_timeout(Some(Duration::from_millis(1)))
                    .expect("a socket");
            }
            let mut buffer = [0; 4096];
            while !client.is_finished() || !server.is_finished() {
                if let Ok(len) = before.read(&mut buffer) {
                    behind.write_all(&buffer[..len]).expect("sent");
                }
                if let Ok(len) = behind.read(&mut buffer) {
                    before.write_all(&buffer[..len]).expect("sent");
                }
            }
            let (client, server) = (
                client.join().expect("no panic"),
                server.join().expect("no panic"),
            );
            for bytes in sent {
                client.send_all(bytes, deadline).expect("sent");
            }
            drop(client);
            before.set_read_timeout(Some(TIMEOUT)).expect("a socket");
            let mut bytes = Vec::new();
            before.read_to_end(&mut bytes).expect("an end");
            (bytes, server, behind)
        })
    }

    /// Data that a receiver gets, and its error.
    fn received(stream: &Stream) -> (Vec<u8>, Error) {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 256]);
        let deadline = Deadline::after(TIMEOUT);
        loop {
            match stream.receive_some(&mut buffer, deadline) {
                Ok(len) => bytes.extend_from_slice(&buffer[..len]),
                Err(error) => return (bytes, error),
            }
        }
    }

    #[test]
    fn nothing_is_in_the_clear_and_every_changed_byte_is_noticed() {
        let secret = b"a block that only the peer may read";
        let (wire, server, mut socket) = captured(&[secret]);
        assert!(wire.len() > secret.len());
        for window in secret.windows(4) {
            assert!(!wire.windows(4).any(|found| found == window), "{window:?}");
        }
        socket.write_all(&wire).expect("sent");
        drop(socket);
        // A cut connection is not a clean shutdown.
        assert_eq!(received(&server), (secret.to_vec(), Error::ConnectionReset));
        for at in 0..wire.len() {
            let (mut wire, server, mut socket) = captured(&[secret]);
            wire[at] ^= 1;
            socket.write_all(&wire).expect("sent");
            drop(socket);
            assert_eq!(
                received(&server),
                (Vec::new(), Error::ConnectionReset),
                "byte {at}"
            );
        }
    }

    #[test]
    fn records_that_are_missing_repeated_or_exchanged_are_noticed() {
        let (wire, ..) = captured(&[b"one", b"two", b"six"]);
        let len = wire.len() / 3;
        for (order, expected) in [
            (vec![0, 1, 2], "onetwosix"),
            (vec![1, 2], ""),
            (vec![0, 2, 1], "one"),
            (vec![0, 0, 1], "one"),
            (vec![0, 1, 1], "onetwo"),
        ] {
            let (wire, server, mut socket) = captured(&[b"one", b"two", b"six"]);
            for record in &order {
                socket
                    .write_all(&wire[record * len..][..len])
                    .expect("sent");
            }
            drop(socket);
            let expected = (expected.as_bytes().to_vec(), Error::ConnectionReset);
            assert_eq!(received(&server), expected, "{order:?}");
        }
    }

    #[test]
    fn exported_memory_that_is_not_mapped_fails_the_call_alone() {
        let (client, server) = connected();
        let unmapped = Piece {
            start: std::ptr::without_provenance_mut(0x1000),
            len: 64,
            exported: true,
        };
        assert_eq!(client.send(&[unmapped]), Err(Error::InvalidValue));
        let deadline = Deadline::after(TIMEOUT);
        client.send_all(b"bytes", deadline).expect("sent");
        server.wait_readable(deadline).expect("sent");
        // SAFETY: no memory is mapped at this address.
        let lost = unsafe { server.receive(&[unmapped]) };
        assert_eq!(lost, Err(Error::InvalidValue));
        // A header is sent with its memory or not at all.
        let (one, two) = (Piece::of(b"head"), Piece::of(b"tail"));
        let memory = Piece {
            exported: true,
            ..Piece::of(b"memory")
        };
        assert_eq!(client.send(&[one, unmapped]), Err(Error::InvalidValue));
        assert_eq!(client.send(&[one, memory, two, unmapped]), Ok(10));
        let mut bytes = [0; 5];
        let (mut first, mut second) = (
            Piece::of_mut(&mut bytes[..2]),
            Piece {
                exported: true,
                ..unmapped
            },
        );
        first.exported = true;
        second.len = 3;
        // SAFETY: the first piece is a part of a buffer, and the second is not mapped.
        let received = unsafe { server.receive(&[first, second]) };
        assert_eq!(received, Ok(2), "what there is a place for");
        server
            .receive_all(&mut bytes[2..], deadline)
            .expect("the rest");
        assert_eq!(&bytes, b"bytes");
        let mut both = [0; 10];
        server.receive_all(&mut both, deadline).expect("sent");
        assert_eq!(&both, b"headmemory");
    }

    /// After the handshake, transfers do not allocate in either direction.
    #[test]
    fn records_are_sent_and_received_without_allocation() {
        let (client, server) = connected();
        let (bytes, mut buffer) = (contents::noise(1, 100_000), vec![0; 100_000]);
        for stream in [&client, &server] {
            // Key changes may allocate.
            stream
                .records
                .as_ref()
                .expect("TLS")
                .borrow_mut()
                .update_after(u64::MAX);
        }
        let allocations = allocation_counter::measure(|| {
            for len in [1, 64, 4096, 100_000] {
                let (mut sent, mut received) = (0, 0);
                while received < len {
                    if sent < len
                        && let Ok(taken) = client.send_from(&bytes[sent..len])
                    {
                        sent += taken;
                    }
                    client.flush().expect("a peer");
                    if let Ok(count) = server.receive_into(&mut buffer[received..len]) {
                        received += count;
                    }
                }
            }
        });
        assert!(buffer == bytes);
        assert_eq!(allocations.count_total, 0);
    }

    /// Results of a server whose client sends only these bytes.
    fn accepted(server: &Tls, bytes: &[u8]) -> (Error, Duration) {
        let (stream, mut socket) = with_plain_peer();
        let begin = Instant::now();
        // The server may end the connection before it has received all bytes.
        let _ = socket.write_all(bytes);
        let deadline = Deadline::after(Duration::from_millis(300));
        let error = server
            .accept(stream, deadline)
            .expect_err("no client")
            .error;
        (error, begin.elapsed())
    }

    #[test]
    fn handshakes_are_bounded_in_time_and_size() {
        let server = tls(&Authority::new(), "127.0.0.1");
        let (error, time) = accepted(&server, &[]);
        assert_eq!(error, Error::TimeOut);
        assert!(time >= Duration::from_millis(300));
        // A record that is announced but not sent.
        assert_eq!(accepted(&server, &[22, 3, 1, 0x40, 0]).0, Error::TimeOut);
        assert_eq!(
            accepted(&server, b"SDTCP\0\x01\0").0,
            Error::Authentication,
            "no TLS"
        );
        // A handshake message of 16 MiB, in records.
        let mut long = vec![22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
        long.resize(5 + 0x4000, 0);
        for _ in 0..8 {
            long.extend([22, 3, 1, 0x40, 0]);
            long.resize(long.len() + 0x4000, 0);
        }
        assert_eq!(accepted(&server, &long).0, Error::Authentication);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn garbage_is_refused_before_and_within_a_handshake(
            garbage in proptest::collection::vec(any::<u8>(), 5..2000),
            kind in prop_oneof![Just(20_u8), Just(21), Just(22), Just(23), any::<u8>()],
            kept in 0..400_usize,
        ) {
            static SERVER: std::sync::OnceLock<Tls> = std::sync::OnceLock::new();
            let server = SERVER.get_or_init(|| tls(&Authority::new(), "127.0.0.1"));
            // In a record, and after the start of a valid message.
            let [high, low] = (garbage.len() as u16).to_be_bytes();
            let record = [&[kind, 3, 3, high, low], &garbage[..]].concat();
            let mut client = ClientConnection::new(Arc::clone(&server.client), HOST.into()).unwrap();
            let mut hello = Vec::new();
            client.write_tls(&mut hello).unwrap();
            let begun = [&hello[..kept.min(hello.len())], &garbage].concat();
            for bytes in [&garbage, &record, &begun, &[&hello[..], &record].concat()] {
                let (stream, mut socket) = with_plain_peer();
                socket.write_all(bytes).unwrap();
                socket.shutdown(std::net::Shutdown::Write).unwrap();
                prop_assert!(server.accept(stream, Deadline::after(TIMEOUT)).is_err());
            }
        }

        #[test]
        fn garbage_behind_a_handshake_ends_the_connection(
            garbage in proptest::collection::vec(any::<u8>(), 0..500),
            len in 0..300_u16,
        ) {
            let (_, server, mut socket) = captured(&[]);
            let [high, low] = len.to_be_bytes();
            socket.write_all(&[23, 3, 3, high, low]).unwrap();
            socket.write_all(&garbage).unwrap();
            drop(socket);
            prop_assert_eq!(received(&server), (Vec::new(), Error::ConnectionReset));
        }
    }

    /// An authority, and certificates that it has signed, in files of a directory.
    pub(crate) struct Authority {
        directory: tempfile::TempDir,
        issuer: CertifiedIssuer<'static, KeyPair>,
    }

    impl Authority {
        pub(crate) fn new() -> Authority {
            let mut params = CertificateParams::new(vec![]).expect("parameters");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key");
            let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
            let directory = tempfile::tempdir().expect("a directory");
            std::fs::write(directory.path().join("ca.pem"), issuer.pem()).expect("a file");
            Authority { directory, issuer }
        }

        pub(crate) fn path(&self) -> PathBuf {
            self.directory.path().join("ca.pem")
        }

        /// Signs a certificate for a host; the files of the certificate and of its key.
        pub(crate) fn sign(
            &self,
            host: &str,
            change: impl FnOnce(&mut CertificateParams),
        ) -> [PathBuf; 2] {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
            change(&mut params);
            let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
            let file = |name: &str, text: &str| {
                let count = std::fs::read_dir(self.directory.path())
                    .expect("a directory")
                    .count();
                let path = self.directory.path().join(format!("{count}-{name}.pem"));
                write_private(&path, text);
                path
            };
            [
                file("certificate", &certificate.pem()),
                file("key", &key.serialize_pem()),
            ]
        }
    }

    fn write_private(path: &Path, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(path, text).expect("a file");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    }
}
