//! Certificates.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

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
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::File {
        path: key.display().to_string(),
        expected: "a private key",
        error,
    })?;
    let unusable = |error: &dyn std::fmt::Display| TlsError::Unusable(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| unusable(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| unusable(&error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder
        .with_single_cert(chain, key)
        .map_err(|error| unusable(&error))?;
    Ok(Arc::new(config))
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
