//! Certificate files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

use super::text;

/// Two authorities, `ca` and `other`; certificates signed by each for 127.0.0.1 and for another host, named
/// `ca-127.0.0.1` and so on; and an expired one of `ca`, `expired-127.0.0.1`. The names of the keys have the suffix
/// `-key`.
pub struct Certificates(PathBuf);

impl Certificates {
    /// Creates the files in a directory.
    pub fn new(directory: &Path) -> Self {
        let certificates = Self::at(directory);
        for authority in ["ca", "other"] {
            let mut params = CertificateParams::new(vec![]).expect("parameters");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key");
            let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
            certificates.write(authority, &issuer.pem());
            for host in ["127.0.0.1", "storage.example"] {
                certificates.sign(&format!("{authority}-{host}"), host, &issuer, |_| {});
            }
            if authority == "ca" {
                certificates.sign("expired-127.0.0.1", "127.0.0.1", &issuer, |params| {
                    params.not_before = date_time_ymd(2020, 1, 1);
                    params.not_after = date_time_ymd(2021, 1, 1);
                });
            }
        }
        certificates
    }

    /// Uses the files that exist in a directory.
    pub fn at(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    fn sign(
        &self,
        name: &str,
        host: &str,
        issuer: &CertifiedIssuer<'_, KeyPair>,
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
        change(&mut params);
        let certificate = params.signed_by(&key, issuer).expect("a certificate");
        self.write(name, &certificate.pem());
        self.write(&format!("{name}-key"), &key.serialize_pem());
    }

    fn write(&self, name: &str, pem: &str) {
        let path = self.path(name);
        std::fs::write(&path, pem).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    }

    /// Path of the file with this name.
    pub fn path(&self, name: &str) -> String {
        text(&self.0.join(format!("{name}.pem"))).to_owned()
    }

    /// Flags for TLS on a control channel with the certificate of this name.
    pub fn flags(&self, name: &str) -> Vec<String> {
        let (certificate, key) = (self.path(name), self.path(&format!("{name}-key")));
        [
            "--tls",
            "--tls-certificate",
            &certificate,
            "--tls-key",
            &key,
        ]
        .map(str::to_owned)
        .to_vec()
    }

    #[allow(dead_code, reason = "only the tests of several machines use it")]
    /// softdoca's environment variables for the certificate of this name, with peers that `ca` has signed.
    pub fn environment(&self, name: &str) -> [(&'static str, String); 3] {
        [
            ("SOFTDOCA_TLS_CERTIFICATE", self.path(name)),
            ("SOFTDOCA_TLS_KEY", self.path(&format!("{name}-key"))),
            ("SOFTDOCA_TLS_CA", self.path("ca")),
        ]
    }
}
