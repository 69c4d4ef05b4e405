//! A non-blocking socket, with or without TLS.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use softdoca_net::tls::is_no_tls;

/// Maximum number of bytes that rustls buffers for a socket that accepts no more.
const TLS_BUFFER: usize = 64 * 1024;

/// A non-blocking socket, with or without TLS.
pub(super) struct Transport {
    pub(super) socket: TcpStream,
    tls: Option<Box<rustls::Connection>>,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport")
            .field("socket", &self.socket)
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

impl Transport {
    pub(super) fn plain(socket: TcpStream) -> Self {
        Self { socket, tls: None }
    }

    pub(super) fn server(
        socket: TcpStream,
        config: Option<&Arc<ServerConfig>>,
    ) -> io::Result<Self> {
        let Some(config) = config else {
            return Ok(Self::plain(socket));
        };
        let session = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        Ok(Self::over(socket, session))
    }

    pub(super) fn client(
        socket: TcpStream,
        config: &Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Self::over(socket, session))
    }

    fn over(socket: TcpStream, session: impl Into<rustls::Connection>) -> Self {
        let mut session = Box::new(session.into());
        session.set_buffer_limit(Some(TLS_BUFFER));
        Self {
            socket,
            tls: Some(session),
        }
    }

    /// Continues with the handshake. Returns `true` once it is complete.
    pub(super) fn handshake(&mut self) -> io::Result<bool> {
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            match self.receive() {
                Ok(0) => return Err(no_handshake()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.send_held_back()?;
        Ok(true)
    }

    /// Reads TLS records. Returns the number of bytes.
    fn receive(&mut self) -> io::Result<usize> {
        self.send_held_back()?;
        let Some(tls) = &mut self.tls else {
            return Ok(0);
        };
        let received = tls.read_tls(&mut &self.socket)?;
        if let Err(error) = tls.process_new_packets() {
            // The alert reports the reason to the peer.
            let _ = self.send_held_back();
            return Err(io::Error::new(ErrorKind::InvalidData, Refused { error }));
        }
        self.send_held_back()?;
        Ok(received)
    }

    /// Sends the data buffered by TLS, until the socket accepts no more.
    pub(super) fn send_held_back(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        while tls.wants_write() {
            match tls.write_tls(&mut &self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    pub(super) fn holds_back(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    pub(super) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(tls) = &mut self.tls else {
                return (&self.socket).read(bytes);
            };
            match tls.reader().read(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The connection was closed without close_notify: only complete messages count anyway.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
            if self.receive()? == 0 {
                let is_early = self.tls.as_ref().is_some_and(|tls| tls.is_handshaking());
                return if is_early { Err(no_handshake()) } else { Ok(0) };
            }
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return (&self.socket).write(bytes);
        };
        let taken = tls.writer().write(bytes)?;
        self.send_held_back()?;
        match taken {
            0 => Err(ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // Does not block.
            let _ = self.send_held_back();
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("TLS: {error}{}", hint(.error))]
struct Refused {
    error: rustls::Error,
}

/// Remedy for a TLS error, appended to the message.
fn hint(error: &rustls::Error) -> &'static str {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};
    match error {
        error if is_no_tls(error) => {
            "; the peer does not use TLS: use --tls on both sides or on neither"
        }
        Error::InvalidCertificate(Certificate::UnknownIssuer | Certificate::BadSignature) => {
            "; no authority of this side's --tls-ca (or --tls-client-ca) has signed the peer's certificate"
        }
        Error::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        ) => "; name the target by the host name or address that its certificate is for",
        Error::InvalidCertificate(
            Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. },
        ) => "; renew the peer's certificate, or correct the clock",
        Error::AlertReceived(Alert::CertificateRequired) => {
            "; the peer has --tls-client-ca: give this side --tls-certificate and --tls-key"
        }
        Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::DecryptError,
        ) => {
            "; the peer has refused this side's --tls-certificate: no authority of its --tls-ca or --tls-client-ca has signed it"
        }
        _ => "",
    }
}

fn no_handshake() -> io::Error {
    let text = "the peer has closed the connection during the TLS handshake; does it use --tls?";
    io::Error::new(ErrorKind::InvalidData, text)
}
