//! TLS over TCP, with server and client certificates.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use crate::support::*;
use nbd_frontend::sockets::Listener;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use role_common::network::{TlsError, tls_config};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

/// An authority and certificates signed by it, as files.
struct Certificates {
    directory: TempDir,
}

impl Certificates {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let this = Self { directory };
        let mut params = CertificateParams::new(vec![]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        this.write("ca.pem", &authority.pem());
        for name in ["localhost", "client"] {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
            let certificate = params.signed_by(&key, &authority).expect("a certificate");
            this.write(&format!("{name}.pem"), &certificate.pem());
            this.write(&format!("{name}-key.pem"), &key.serialize_pem());
        }
        this
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).expect("a file");
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn server(&self, client_ca: bool) -> Arc<rustls::ServerConfig> {
        let ca = self.path("ca.pem");
        tls_config(
            &self.path("localhost.pem"),
            &self.path("localhost-key.pem"),
            client_ca.then_some(&*ca),
        )
        .expect("a configuration")
    }

    fn client(&self, with_certificate: bool) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(self.path("ca.pem")).expect("a certificate");
        roots.add(ca).expect("an authority");
        let builder =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_root_certificates(roots);
        Arc::new(if with_certificate {
            let chain = CertificateDer::from_pem_file(self.path("client.pem")).expect("one");
            let key = PrivateKeyDer::from_pem_file(self.path("client-key.pem")).expect("a key");
            builder
                .with_client_auth_cert(vec![chain], key)
                .expect("they fit")
        } else {
            builder.with_no_client_auth()
        })
    }
}

fn serve(certificates: &Certificates, client_ca: bool) -> (Sandbox, String) {
    let listeners =
        Listener::tcp(&"127.0.0.1:0".parse().expect("an address"), true).expect("a listener");
    let uri = listeners[0].uri("", false);
    let address = uri
        .trim_start_matches("nbd://")
        .trim_end_matches('/')
        .to_owned();
    let options = Options {
        tls: Some(certificates.server(client_ca)),
        ..Options::default()
    };
    let directory = tempfile::tempdir().expect("a directory");
    (Sandbox::on(directory, listeners, options), address)
}

/// Connects, and starts TLS.
fn connect(
    address: &str,
    config: Arc<ClientConfig>,
) -> Client<StreamOwned<ClientConnection, TcpStream>> {
    let stream = TcpStream::connect(address).expect("connected");
    let mut plain = Client::begin(stream).expect("a greeting");
    assert_eq!(plain.option(LIST, &[])[0].0, ERR_TLS_REQD);
    assert_eq!(plain.option(STARTTLS, &[]), [(ACK, vec![])]);
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(config, name).expect("a session");
    plain.over(|stream| StreamOwned::new(session, stream))
}

#[test]
fn data_passes_a_tls_session() {
    let certificates = Certificates::new();
    let (sandbox, address) = serve(&certificates, false);
    let mut client = connect(&address, certificates.client(false));
    assert_eq!(client.option(STRUCTURED_REPLY, &[]), [(ACK, vec![])]);
    assert_eq!(client.option(STARTTLS, &[])[0].0, ERR_INVALID);
    assert_eq!(client.option(GO, &info_data("disk", &[])).len(), 2);
    let data = pattern(3 << 20, 5);
    assert_eq!(client.write(77, &data), 0);
    assert!(client.read_structured(0, 77, data.len() as u32).0 == data);
    assert!(sandbox.disk.content()[77..][..data.len()] == data);
}

#[test]
fn client_without_a_demanded_certificate_is_refused() {
    let certificates = Certificates::new();
    let (_bench, address) = serve(&certificates, true);
    let mut welcome = connect(&address, certificates.client(true));
    assert_eq!(welcome.option(GO, &info_data("", &[])).len(), 2);
    let mut refused = connect(&address, certificates.client(false));
    // With TLS 1.3, the client detects it at its next read.
    let _ = refused.stream.write_all(&option(LIST, &[]));
    assert!(refused.stream.read(&mut [0]).is_err());
    // A certificate of another authority is refused.
    let foreign = Certificates::new();
    std::fs::copy(certificates.path("ca.pem"), foreign.path("ca.pem")).expect("copied");
    let mut refused = connect(&address, foreign.client(true));
    let _ = refused.stream.write_all(&option(LIST, &[]));
    assert!(refused.stream.read(&mut [0]).is_err());
}

#[test]
fn plain_bytes_after_starttls_are_not_options() {
    let certificates = Certificates::new();
    let (_bench, address) = serve(&certificates, false);
    let stream = TcpStream::connect(address).expect("connected");
    let mut client = Client::begin(stream).expect("a greeting");
    // Injected before the handshake, in the same segment: must not be treated as received over TLS.
    let injected = [option(STARTTLS, &[]), option(GO, &info_data("", &[]))].concat();
    client.stream.write_all(&injected).expect("sent");
    assert_eq!(
        option_replies(&mut client.stream, STARTTLS).expect("replies"),
        [(ACK, vec![])]
    );
    let mut rest = Vec::new();
    let _ = client.stream.read_to_end(&mut rest);
    // A TLS alert, and no reply to the second option.
    assert!(
        rest.len() < 16 && rest.first().is_none_or(|it| *it == 21),
        "{rest:?}"
    );
}

#[test]
fn unusable_files_are_named() {
    let certificates = Certificates::new();
    let key = certificates.path("localhost-key.pem");
    let good = certificates.path("localhost.pem");
    let missing = Path::new("/does/not/exist.pem");
    let cases = [
        tls_config(missing, &key, None),
        tls_config(&good, missing, None),
        tls_config(&good, &good, None),
        tls_config(&good, &key, Some(missing)),
    ];
    for case in cases {
        assert!(
            matches!(case, Err(TlsError::File { .. })),
            "{:?}",
            case.err()
        );
    }
    let case = tls_config(&key, &key, None);
    assert!(
        matches!(case, Err(TlsError::NoCertificate(_))),
        "{:?}",
        case.err()
    );
    let other = certificates.path("client-key.pem");
    let case = tls_config(&good, &other, None);
    assert!(
        matches!(case, Err(TlsError::Unusable(_))),
        "{:?}",
        case.err()
    );
}
