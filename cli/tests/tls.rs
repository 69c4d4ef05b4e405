//! TLS between services and targets: `--tls` on both sides, on one, with wrong certificates, and without.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use deployment::log::LogEvent;
use deployment::process::Process;

use crate::support::gga::{Set, interrupted};
use crate::support::{
    Certificates, Sandbox, ZERO_COPY, document, ended, expect_failure, wait_for_io, wait_for_log,
    wait_for_value, waiting,
};

struct Deployment<'a> {
    sandbox: &'a Sandbox,
    certificates: Certificates,
}

impl<'a> Deployment<'a> {
    fn new(sandbox: &'a Sandbox) -> Self {
        Self {
            sandbox,
            certificates: Certificates::new(&sandbox.path("")),
        }
    }

    /// Starts a target with the certificate of this name; `client_ca`: requires client certificates signed by this authority.
    fn target(&self, name: &str, client_ca: Option<&str>) -> (Process, u16) {
        let mut flags = self.certificates.flags(name);
        if let Some(authority) = client_ca {
            flags.extend([
                "--tls-client-ca".to_owned(),
                self.certificates.path(authority),
            ]);
        }
        self.sandbox.target(&words(&flags))
    }

    /// Starts a service that trusts an authority, with the certificate of this name.
    fn service(&self, port: u16, authority: &str, name: Option<&str>) -> Process {
        let mut flags = name.map_or_else(
            || vec!["--tls".to_owned()],
            |name| self.certificates.flags(name),
        );
        flags.extend(["--tls-ca".to_owned(), self.certificates.path(authority)]);
        self.sandbox.starting_service(port, &words(&flags))
    }
}

fn words(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

fn validate(sandbox: &Sandbox) -> Process {
    let limit = ["--run-limit-operation-count", "200"];
    sandbox.initiator("read_write_data_validity_test", &limit)
}

/// Checks that the service exits with 1, and reports TLS as the reason; returns its standard error.
fn refused(service: Process) -> String {
    let stderr = expect_failure(service);
    assert!(stderr.contains("TLS"), "{stderr}");
    stderr
}

#[test]
fn session_over_tls_is_as_without() {
    let sandbox = Sandbox::new();
    let deployment = Deployment::new(&sandbox);
    for (client_ca, own) in [(None, None), (Some("ca"), Some("ca-storage.example"))] {
        let (target, port) = deployment.target("ca-127.0.0.1", client_ca);
        let service = waiting(deployment.service(port, "ca", own));
        let report = document(validate(&sandbox));
        assert_eq!(report["operation_count"], 200);
        document(service);
        document(target);
    }
}

#[test]
fn wrong_certificates_are_refused_on_either_side() {
    let sandbox = Sandbox::new();
    let deployment = Deployment::new(&sandbox);
    // A target with a certificate of an unknown authority, and one with a certificate for another host.
    for name in ["other-127.0.0.1", "ca-storage.example"] {
        let (target, port) = deployment.target(name, None);
        refused(deployment.service(port, "ca", None));
        drop(target);
    }
    // A service without a certificate, and one with a certificate of another authority.
    for own in [None, Some("other-127.0.0.1")] {
        let (target, port) = deployment.target("ca-127.0.0.1", Some("ca"));
        refused(deployment.service(port, "ca", own));
        // The target serves the next client.
        let service = waiting(deployment.service(port, "ca", Some("ca-127.0.0.1")));
        assert_eq!(document(validate(&sandbox))["operation_count"], 200);
        document(service);
        document(target);
    }
}

/// A service that continues without a target connects again and again; the reason of the last failure is that of the first.
#[test]
fn unknown_authority_is_the_reason_that_a_redundant_service_gives_up() {
    let sandbox = Sandbox::new();
    let certificates = Certificates::new(&sandbox.path(""));
    let mut flags = vec!["--tls".to_owned()];
    flags.extend(["--tls-ca".to_owned(), certificates.path("other")]);
    let target = certificates.flags("ca-127.0.0.1");
    let targets: Vec<_> = (0..3).map(|_| sandbox.target(&words(&target))).collect();
    let addresses: Vec<_> = targets
        .iter()
        .map(|(_, port)| format!("127.0.0.1:{port}"))
        .collect();
    let mut command = vec![
        "gga-offload",
        "-d",
        "03:00.0",
        "-r",
        "3b:00.0",
        "--cpu",
        "0",
    ];
    command.extend(["--logical-block-size", "4096", "--control-timeout", "1"]);
    for (flag, address) in ["--data-1-storage", "--data-2-storage", "--data-p-storage"]
        .into_iter()
        .zip(&addresses)
    {
        command.extend([flag, address]);
    }
    command.extend(words(&flags));
    let stderr = refused(sandbox.spawn("service", &command));
    let last = stderr.lines().last().unwrap_or_default();
    assert!(
        last.contains(&addresses[0]) && last.contains("--tls-ca"),
        "{stderr}"
    );
    assert_eq!(stderr.matches(&addresses[0]).count(), 3, "{stderr}");
}

#[test]
fn tls_on_one_side_only_is_reported() {
    let sandbox = Sandbox::new();
    let deployment = Deployment::new(&sandbox);
    let (target, port) = deployment.target("ca-127.0.0.1", None);
    // A service without TLS sends nothing before an initiator connects.
    let service = sandbox.service(port, &[]);
    expect_failure(validate(&sandbox));
    let stderr = refused(service);
    assert!(stderr.contains("--tls"), "{stderr}");
    drop(target);
    let (target, port) = sandbox.target(&[]);
    let stderr = refused(deployment.service(port, "ca", None));
    assert!(stderr.contains("--tls"), "{stderr}");
    drop(target);
}

/// A query without TLS gets no answer of the protocol.
#[test]
fn target_with_tls_does_not_answer_unencrypted_requests() {
    const QUERY: [u8; 16] = [0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
    let sandbox = Sandbox::new();
    let deployment = Deployment::new(&sandbox);
    let ask = |port: u16| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
        stream.write_all(&QUERY).expect("sent");
        let mut answer = [0; 8];
        let count = stream.read(&mut answer).unwrap_or(0);
        answer[..count].to_vec()
    };
    let (target, port) = deployment.target("ca-127.0.0.1", None);
    // A TLS alert at most.
    let answer = ask(port);
    assert!(answer.is_empty() || answer[0] == 0x15, "{answer:?}");
    drop(target);
    let (target, port) = sandbox.target(&[]);
    assert_eq!(
        ask(port),
        [0, 0, 0, 24, 0, 0, 0, 2],
        "a query_storage_response"
    );
    drop(target);
}

#[test]
fn lost_target_rejoins_over_tls_with_a_certificate_of_the_same_authority() {
    let sandbox = Sandbox::new();
    let certificates = Certificates::new(&sandbox.path(""));
    // Leaked, because the set's flags are `'static`.
    let leak = |flags: Vec<String>| -> Vec<&'static str> {
        let flags = flags.into_iter();
        flags.map(|flag| &*flag.leak()).collect()
    };
    let ca = certificates.path("ca");
    let with = |name: &str, flag: &str| {
        let authority = [flag.to_owned(), ca.clone()];
        leak([certificates.flags(name), authority.to_vec()].concat())
    };
    let good = with("ca-127.0.0.1", "--tls-client-ca");
    let bad = with("other-127.0.0.1", "--tls-client-ca");
    let service = with("ca-storage.example", "--tls-ca");
    let mut set = Set::with_flags(sandbox, &service, &good);
    let content = set.content(0);
    let service = set.service(&[]);
    let writer = set.writer(&content);
    set.kill(1);
    wait_for_log(&service, LogEvent::TargetDetached("data_2"), 1);
    set.start_with(1, &bad);
    // Logged once, and not at each further attempt.
    wait_for_value(&service, "BadSignature", 1);
    wait_for_io(&writer);
    assert!(!service.has_logged(LogEvent::TargetUpToDate("data_2")));
    set.kill(1);
    set.start_with(1, &good);
    wait_for_log(&service, LogEvent::TargetUpToDate("data_2"), 1);
    interrupted(writer);
    document(service);
    // All blocks are intact, with any two of the targets.
    let service = set.service(&[]);
    let reader = set.reader(&content);
    set.reads_with_any_two(&service, reader);
    document(service);
}

#[test]
fn flags_without_required_ones_are_wrong_usage() {
    let sandbox = Sandbox::new();
    let target = [
        "target",
        "-d",
        "3b:00.0",
        "--cpu",
        "0",
        "--listen-port",
        "0",
    ];
    let service = [&ZERO_COPY[..], &["--storage-server", "127.0.0.1:1"]].concat();
    for (base, flags) in [
        (&target[..], &["--tls"][..]),
        (&target, &["--tls-key", "key.pem"]),
        (&service, &["--tls"]),
        (&service, &["--tls-ca", "ca.pem"]),
    ] {
        let stderr = ended(sandbox.spawn("role", &[base, flags].concat()), 2);
        assert!(stderr.contains("--tls"), "{stderr}");
    }
    let missing = ["--tls", "--tls-ca", "/nonexistent/ca.pem"];
    let stderr = expect_failure(sandbox.spawn("role", &[&service[..], &missing].concat()));
    assert!(stderr.contains("/nonexistent/ca.pem"), "{stderr}");
}
