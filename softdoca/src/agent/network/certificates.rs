//! Certificates for tests.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

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
