//! Configurations of TLS from certificates and keys in PEM.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

/// Reason why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read, or is not in PEM format.
    #[error("{path}: expected {expected} in PEM: {error}")]
    File {
        path: String,
        /// Purpose of the file.
        expected: &'static str,
        error: rustls::pki_types::pem::Error,
    },
    /// A file without a certificate.
    #[error("{0}: expected at least one certificate, found none")]
    NoCertificate(String),
    /// Key and certificate do not match, or are of an unsupported type.
    #[error("TLS: {0}")]
    Unusable(String),
    /// A setting requires another one that is missing.
    #[error("{0}")]
    Incomplete(&'static str),
}

impl TlsError {
    /// The error of a TLS library.
    pub fn unusable(error: impl std::fmt::Display) -> Self {
        Self::Unusable(error.to_string())
    }
}

/// Creates the configuration of a server from PEM files: its certificate with the intermediate certificates, its
/// private key, and, for servers that only clients with a certificate may use, the authorities that sign client
/// certificates.
///
/// # Errors
///
/// A file is missing or unusable.
pub fn server(
    versions: &[&'static SupportedProtocolVersion],
    certificate: &Path,
    key: &Path,
    client_ca: Option<&Path>,
) -> Result<ServerConfig, TlsError> {
    let (chain, key) = (certificates(certificate)?, private_key(key)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(TlsError::unusable)?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(path)?), provider)
                    .build()
                    .map_err(TlsError::unusable)?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    builder
        .with_single_cert(chain, key)
        .map_err(TlsError::unusable)
}

/// Creates the configuration of a TLS 1.3 client from PEM files: the authorities that sign servers' certificates, and
/// its own certificate and key.
///
/// # Errors
///
/// A file is missing or unusable.
pub fn client(ca: &Path, own: Option<(&Path, &Path)>) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(authorities(ca)?), provider.clone())
            .build()
            .map_err(TlsError::unusable)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(TlsError::unusable)?
        .with_webpki_verifier(verifier);
    match own {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let (chain, key) = (certificates(certificate)?, private_key(key)?);
            builder
                .with_client_auth_cert(chain, key)
                .map_err(TlsError::unusable)
        }
    }
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(TlsError::unusable)?;
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

/// Returns `true` if the error means that the peer's data is not TLS.
#[must_use]
pub fn is_no_tls(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidMessage(_))
}
