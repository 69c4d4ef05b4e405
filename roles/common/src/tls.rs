//! Certificates: TLS of the NBD server, and of the control connections between services and targets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

use crate::address::HostPort;
use crate::failure::Failure;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read, or is no PEM.
    #[error("{path}: expected {expected} in PEM: {error}")]
    File {
        /// The file.
        path: String,
        /// Its purpose.
        expected: &'static str,
        /// Reason.
        error: rustls::pki_types::pem::Error,
    },
    /// A file without a certificate.
    #[error("{0}: expected at least one certificate, found none")]
    NoCertificate(String),
    /// Key and certificate do not fit, or are of a kind that is not supported.
    #[error("TLS: {0}")]
    Unusable(String),
    /// A flag without another one that it needs.
    #[error("{0}")]
    Incomplete(&'static str),
}

impl From<TlsError> for Failure {
    fn from(error: TlsError) -> Self {
        Self::invalid(error.to_string())
    }
}

fn unusable(error: impl std::fmt::Display) -> TlsError {
    TlsError::Unusable(error.to_string())
}

/// Makes the configuration of TLS 1.2 and 1.3 from files in PEM: the server's certificate with those that it was signed with, its
/// private key, and, for servers that only clients with a certificate may use, the authorities that sign these.
///
/// # Errors
///
/// A file is missing or unusable.
pub fn configure(
    certificate: &Path,
    key: &Path,
    client_ca: Option<&Path>,
) -> Result<Arc<ServerConfig>, TlsError> {
    server(rustls::DEFAULT_VERSIONS, certificate, key, client_ca)
}

fn server(
    versions: &[&'static SupportedProtocolVersion],
    certificate: &Path,
    key: &Path,
    client_ca: Option<&Path>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, key) = (certificates(certificate)?, private_key(key)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(unusable)?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(path)?), provider)
                    .build()
                    .map_err(unusable)?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(chain, key).map_err(unusable)?;
    Ok(Arc::new(config))
}

/// Makes the configuration of a client of TLS 1.3: the authorities that sign servers' certificates, and its own certificate and key.
fn client(ca: &Path, own: Option<(&Path, &Path)>) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(authorities(ca)?), provider.clone())
            .build()
            .map_err(unusable)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .with_webpki_verifier(verifier);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let (chain, key) = (certificates(certificate)?, private_key(key)?);
            builder
                .with_client_auth_cert(chain, key)
                .map_err(unusable)?
        }
    };
    Ok(Arc::new(config))
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(unusable)?;
    }
    Ok(roots)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| TlsError::File {
        path: path.display().to_string(),
        expected: "a private key",
        error,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file_error = |error| TlsError::File {
        path: path.display().to_string(),
        expected: "certificates",
        error,
    };
    let found = CertificateDer::pem_file_iter(path)
        .map_err(file_error)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(file_error)?;
    if found.is_empty() {
        return Err(TlsError::NoCertificate(path.display().to_string()));
    }
    Ok(found)
}

/// The name that a server's certificate must be for.
pub(crate) fn server_name(address: &HostPort) -> Result<ServerName<'static>, TlsError> {
    match address {
        HostPort::Address(address) => Ok(ServerName::from(address.ip())),
        HostPort::Name { host, .. } => {
            ServerName::try_from(host.trim_end_matches('.').to_owned()).map_err(unusable)
        }
    }
}

/// TLS of a target.
#[derive(Debug, Clone, Default, Args)]
pub struct ServerTlsFlags {
    /// Use TLS 1.3 on control connections: services without --tls are refused. Needs --tls-certificate and --tls-key
    #[arg(long)]
    pub tls: bool,

    /// Certificate for TLS in PEM, followed by those that it was signed with
    #[arg(long, value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,

    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Accept only services with a certificate that one of these authorities has signed (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
}

impl ServerTlsFlags {
    /// Checks the flags against each other.
    ///
    /// # Errors
    ///
    /// A flag needs another one.
    pub fn check(&self) -> Result<(), TlsError> {
        let files = [&self.tls_certificate, &self.tls_key];
        match self.tls {
            false if files.iter().any(|file| file.is_some()) || self.tls_client_ca.is_some() => {
                Err(TlsError::Incomplete(
                    "--tls-certificate, --tls-key and --tls-client-ca need --tls",
                ))
            }
            true if files.iter().any(|file| file.is_none()) => Err(TlsError::Incomplete(
                "--tls needs --tls-certificate and --tls-key",
            )),
            _ => Ok(()),
        }
    }

    /// The configuration, if TLS is used.
    ///
    /// # Errors
    ///
    /// A flag needs another one, or a file is missing or unusable.
    pub fn config(&self) -> Result<Option<Arc<ServerConfig>>, TlsError> {
        self.check()?;
        let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) else {
            return Ok(None);
        };
        server(&[&TLS13], certificate, key, self.tls_client_ca.as_deref()).map(Some)
    }
}

/// TLS of a service, towards its targets.
#[derive(Debug, Clone, Default, Args)]
pub struct ClientTlsFlags {
    /// Use TLS 1.3 on control connections to targets, which need --tls too. Needs --tls-ca
    #[arg(long)]
    pub tls: bool,

    /// Authorities that sign the certificates of targets (PEM). A certificate must be for the host of the target's address
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// Certificate of this service for targets that want one, in PEM, followed by those that it was signed with
    #[arg(long, value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,

    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
}

impl ClientTlsFlags {
    /// Checks the flags against each other.
    ///
    /// # Errors
    ///
    /// A flag needs another one.
    pub fn check(&self) -> Result<(), TlsError> {
        let files = [&self.tls_ca, &self.tls_certificate, &self.tls_key];
        let incomplete = |what| Err(TlsError::Incomplete(what));
        match self.tls {
            false if files.iter().any(|file| file.is_some()) => {
                incomplete("--tls-ca, --tls-certificate and --tls-key need --tls")
            }
            true if self.tls_ca.is_none() => incomplete("--tls needs --tls-ca"),
            _ if self.tls_certificate.is_some() != self.tls_key.is_some() => {
                incomplete("--tls-certificate and --tls-key need each other")
            }
            _ => Ok(()),
        }
    }

    /// The configuration, if TLS is used.
    ///
    /// # Errors
    ///
    /// A flag needs another one, or a file is missing or unusable.
    pub fn config(&self) -> Result<Option<Arc<ClientConfig>>, TlsError> {
        self.check()?;
        let Some(ca) = &self.tls_ca else {
            return Ok(None);
        };
        let own = self.tls_certificate.as_deref().zip(self.tls_key.as_deref());
        client(ca, own).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_need_others_are_refused_without_them() {
        let file = || Some(PathBuf::from("x.pem"));
        let server = |tls, certificate, key| ServerTlsFlags {
            tls,
            tls_certificate: certificate,
            tls_key: key,
            tls_client_ca: None,
        };
        for (flags, is_complete) in [
            (server(false, None, None), true),
            (server(true, file(), file()), true),
            (server(true, None, file()), false),
            (server(true, file(), None), false),
            (server(false, file(), file()), false),
        ] {
            assert_eq!(flags.check().is_ok(), is_complete, "{flags:?}");
        }
        let client = |tls, ca, certificate, key| ClientTlsFlags {
            tls,
            tls_ca: ca,
            tls_certificate: certificate,
            tls_key: key,
        };
        for (flags, is_complete) in [
            (client(false, None, None, None), true),
            (client(true, file(), None, None), true),
            (client(true, file(), file(), file()), true),
            (client(true, None, None, None), false),
            (client(true, file(), file(), None), false),
            (client(true, file(), None, file()), false),
            (client(false, file(), None, None), false),
        ] {
            assert_eq!(flags.check().is_ok(), is_complete, "{flags:?}");
        }
    }

    #[test]
    fn missing_files_are_named() {
        let flags = ClientTlsFlags {
            tls: true,
            tls_ca: Some("/nonexistent/ca.pem".into()),
            ..ClientTlsFlags::default()
        };
        let error = flags.config().expect_err("no such file");
        assert!(matches!(error, TlsError::File { path, .. } if path == "/nonexistent/ca.pem"));
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
