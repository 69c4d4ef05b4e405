//! Flags of TLS on the control connections between services and targets.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use control::network::TlsError;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};

/// TLS flags of a target.
#[derive(Debug, Clone, Default, Args)]
pub struct ServerTlsFlags {
    /// Use TLS 1.3 on control connections: services without --tls are refused. Needs --tls-certificate and --tls-key
    #[arg(long)]
    pub tls: bool,

    /// TLS certificate in PEM, followed by its intermediate certificates
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
    /// Checks the combination of the flags.
    ///
    /// # Errors
    ///
    /// A flag requires another one that is missing.
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

    /// Returns the configuration; `None` without `--tls`.
    ///
    /// # Errors
    ///
    /// A flag requires another one, or a file is missing or unusable.
    pub fn config(&self) -> Result<Option<Arc<ServerConfig>>, TlsError> {
        self.check()?;
        let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) else {
            return Ok(None);
        };
        let client_ca = self.tls_client_ca.as_deref();
        softdoca_net::tls::server(&[&TLS13], certificate, key, client_ca)
            .map(|config| Some(Arc::new(config)))
    }
}

/// TLS flags of a service, for connections to its targets.
#[derive(Debug, Clone, Default, Args)]
pub struct ClientTlsFlags {
    /// Use TLS 1.3 on control connections to targets, which need --tls too. Needs --tls-ca
    #[arg(long)]
    pub tls: bool,

    /// Authorities that sign the certificates of targets (PEM). A certificate must be for the host of the target's address
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// Certificate of this service for targets that require one, in PEM, followed by its intermediate certificates
    #[arg(long, value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,

    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
}

impl ClientTlsFlags {
    /// Checks the combination of the flags.
    ///
    /// # Errors
    ///
    /// A flag requires another one that is missing.
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

    /// Returns the configuration; `None` without `--tls`.
    ///
    /// # Errors
    ///
    /// A flag requires another one, or a file is missing or unusable.
    pub fn config(&self) -> Result<Option<Arc<ClientConfig>>, TlsError> {
        self.check()?;
        let Some(ca) = &self.tls_ca else {
            return Ok(None);
        };
        let own = self.tls_certificate.as_deref().zip(self.tls_key.as_deref());
        softdoca_net::tls::client(ca, own).map(|config| Some(Arc::new(config)))
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
}
