//! TLS between services and targets: `--tls` on both sides, on one, with the wrong certificates, and without.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;

use ::deployment::process::Process;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::support::{Bench, complaint, document, failure, text, waiting};

/// Two authorities, and certificates that each has signed for 127.0.0.1 and for another host.
struct Certificates<'a>(&'a Bench);

impl<'a> Certificates<'a> {
    fn new(bench: &'a Bench) -> Self {
        for authority in ["ca", "other"] {
            let mut params = CertificateParams::new(vec![]).expect("parameters");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key");
            let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
            bench.file(&format!("{authority}.pem"), issuer.pem().as_bytes());
            for host in ["127.0.0.1", "storage.example"] {
                let key = KeyPair::generate().expect("a key");
                let params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
                let certificate = params.signed_by(&key, &issuer).expect("a certificate");
                let name = format!("{authority}-{host}");
                bench.file(&format!("{name}.pem"), certificate.pem().as_bytes());
                let key = key.serialize_pem();
                bench.file(&format!("{name}-key.pem"), key.as_bytes());
            }
        }
        Self(bench)
    }

    fn path(&self, name: &str) -> String {
        text(Path::new(&self.0.path(&format!("{name}.pem")))).to_owned()
    }

    /// Flags for a certificate of this name.
    fn own(&self, name: &str) -> Vec<String> {
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

    /// A target with the certificate of this name, which wants clients with one that `client_ca` has signed.
    fn target(&self, name: &str, client_ca: Option<&str>) -> (Process, u16) {
        let mut flags = self.own(name);
        if let Some(authority) = client_ca {
            flags.extend(["--tls-client-ca".to_owned(), self.path(authority)]);
        }
        self.0.target(&words(&flags))
    }

    /// A service that trusts an authority, with the certificate of this name.
    fn service(&self, port: u16, authority: &str, name: Option<&str>) -> Process {
        let mut flags = name.map_or_else(|| vec!["--tls".to_owned()], |name| self.own(name));
        flags.extend(["--tls-ca".to_owned(), self.path(authority)]);
        self.0.starting_service(port, &words(&flags))
    }
}

fn words(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

fn validate(bench: &Bench) -> Process {
    let limit = ["--run-limit-operation-count", "200"];
    bench.initiator("read_write_data_validity_test", &limit)
}

/// The service must give up its target with exit code 1, and say that it is because of TLS.
fn refused(service: Process) -> String {
    let stderr = complaint(service);
    assert!(stderr.contains("TLS"), "{stderr}");
    stderr
}

#[test]
fn session_over_tls_is_as_without() {
    let bench = Bench::new();
    let certificates = Certificates::new(&bench);
    for (client_ca, own) in [(None, None), (Some("ca"), Some("ca-storage.example"))] {
        let (target, port) = certificates.target("ca-127.0.0.1", client_ca);
        let service = waiting(certificates.service(port, "ca", own));
        let report = document(validate(&bench));
        assert_eq!(report["operation_count"], 200);
        document(service);
        document(target);
    }
}

#[test]
fn wrong_certificates_are_refused_on_either_side() {
    let bench = Bench::new();
    let certificates = Certificates::new(&bench);
    // A target that an unknown authority has signed, and one for another host.
    for name in ["other-127.0.0.1", "ca-storage.example"] {
        let (target, port) = certificates.target(name, None);
        refused(certificates.service(port, "ca", None));
        drop(target);
    }
    // A service without a certificate, and one with another authority's.
    for own in [None, Some("other-127.0.0.1")] {
        let (target, port) = certificates.target("ca-127.0.0.1", Some("ca"));
        refused(certificates.service(port, "ca", own));
        // The target serves the next one.
        let service = waiting(certificates.service(port, "ca", Some("ca-127.0.0.1")));
        assert_eq!(document(validate(&bench))["operation_count"], 200);
        document(service);
        document(target);
    }
}

#[test]
fn one_side_without_tls_is_told_so() {
    let bench = Bench::new();
    let certificates = Certificates::new(&bench);
    let (target, port) = certificates.target("ca-127.0.0.1", None);
    // A service that does not use TLS sends nothing before an initiator comes.
    let service = bench.service(port, &[]);
    complaint(validate(&bench));
    let stderr = refused(service);
    assert!(stderr.contains("--tls"), "{stderr}");
    drop(target);
    let (target, port) = bench.target(&[]);
    let stderr = refused(certificates.service(port, "ca", None));
    assert!(stderr.contains("--tls"), "{stderr}");
    drop(target);
}

/// A query in the clear gets no answer of the protocol.
#[test]
fn target_with_tls_answers_nothing_in_the_clear() {
    const QUERY: [u8; 16] = [0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
    let bench = Bench::new();
    let certificates = Certificates::new(&bench);
    let ask = |port: u16| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
        stream.write_all(&QUERY).expect("sent");
        let mut answer = [0; 8];
        let count = stream.read(&mut answer).unwrap_or(0);
        answer[..count].to_vec()
    };
    let (target, port) = certificates.target("ca-127.0.0.1", None);
    // An alert at most.
    let answer = ask(port);
    assert!(answer.is_empty() || answer[0] == 0x15, "{answer:?}");
    drop(target);
    let (target, port) = bench.target(&[]);
    assert_eq!(
        ask(port),
        [0, 0, 0, 24, 0, 0, 0, 2],
        "a query_storage_response"
    );
    drop(target);
}

#[test]
fn flags_without_those_that_they_need_are_wrong_usage() {
    let bench = Bench::new();
    let target = [
        "target",
        "-d",
        "3b:00.0",
        "--cpu",
        "0",
        "--listen-port",
        "0",
    ];
    let service = [
        "zero-copy",
        "-d",
        "03:00.0",
        "-r",
        "3b:00.0",
        "--cpu",
        "0",
        "--storage-server",
        "127.0.0.1:1",
    ];
    for (base, flags) in [
        (&target[..], &["--tls"][..]),
        (&target, &["--tls-key", "key.pem"]),
        (&service, &["--tls"]),
        (&service, &["--tls-ca", "ca.pem"]),
    ] {
        let stderr = failure(bench.spawn("role", &[base, flags].concat()), 2);
        assert!(stderr.contains("--tls"), "{stderr}");
    }
    let missing = ["--tls", "--tls-ca", "/nonexistent/ca.pem"];
    let stderr = complaint(bench.spawn("role", &[&service[..], &missing].concat()));
    assert!(stderr.contains("/nonexistent/ca.pem"), "{stderr}");
}
