//! TLS 1.3 of connections between machines: both sides show a certificate that an authority of the deployment has signed.
//!
//! rustls does the handshake, after which [`Records`] takes over the keys. The client also checks that the server's certificate is for the
//! IP address that it has connected to.

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

use super::super::limits::Deadline;
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

/// Without the keys: for logs.
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
    /// The peer does not use TLS, has no certificate of the authority for this address, or is gone.
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

/// Message for a peer that uses TLS, in a process that does not.
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
    /// The error of a client, logged with the reason. An unreachable peer is reported by the caller.
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
                // The alert has the reason for the peer; it is sent if possible without waiting.
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
mod tests;
