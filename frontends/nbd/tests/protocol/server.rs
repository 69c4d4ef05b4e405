//! The server with real sockets, misbehaving clients, and TLS with server and client certificates.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::network::{HostPort, TlsError, tls_config};
use nbd_frontend::sockets::{ListenError, Listener};
use nbd_frontend::transmission::Limits;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;
use volume::testing::Settings;

use crate::support::*;

/// Timeout of every operation, for loaded machines.
const TIMEOUT: Duration = Duration::from_secs(60);

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !is_there() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn writes_are_read_back_by_simple_and_structured_replies() {
    let sandbox = Sandbox::new();
    let mut simple = sandbox.client(false);
    let mut structured = sandbox.client(true);
    // In a single part, in several parts, and unaligned.
    for (offset, len) in [
        (0, 4096),
        (1 << 20, 3 << 20),
        (12_345, 700_001),
        (8_388_607, 1),
    ] {
        let data = contents::noise(offset, len);
        assert_eq!(simple.write(offset, &data), 0);
        assert_eq!(
            structured.read_structured(0, offset, len as u32),
            (data.clone(), vec![])
        );
        assert_eq!(simple.read_simple(offset, len as u32), Ok(data.clone()));
        let content = sandbox.disk.content();
        assert!(content[offset as usize..][..len] == data, "{offset} {len}");
    }
}

#[test]
fn largest_payload_is_written_and_read() {
    let sandbox = Sandbox::with(Options {
        size: MAX_PAYLOAD as usize + 4096,
        ..Options::default()
    });
    let data = contents::noise(3, MAX_PAYLOAD as usize);
    let mut client = sandbox.client(true);
    assert_eq!(client.write(1, &data), 0);
    assert!(client.read_structured(0, 1, MAX_PAYLOAD).0 == data);
    assert!(sandbox.client(false).read_simple(1, MAX_PAYLOAD) == Ok(data.clone()));
    // One more byte is refused, and the connection stays usable.
    assert_eq!(client.write(0, &contents::noise(3, data.len() + 1)), EINVAL);
    assert!(client.read_structured(0, 1, MAX_PAYLOAD).0 == data);
}

#[test]
fn zeroes_trim_and_flush_reach_the_device() {
    let sandbox = Sandbox::new();
    sandbox.disk.fill(&contents::noise(1, 1 << 20));
    let mut client = sandbox.client(true);
    let cookie = client.send(NO_HOLE, WRITE_ZEROES, 4096, 512 * 1024);
    assert_eq!(client.result(cookie), 0);
    assert!(
        sandbox.disk.content()[4096..][..512 * 1024]
            .iter()
            .all(|it| *it == 0)
    );
    assert_eq!(sandbox.disk.flushes(), 0);
    let cookie = client.send(0, FLUSH, 0, 0);
    assert_eq!((client.result(cookie), sandbox.disk.flushes()), (0, 1));
    let cookie = client.send_write(FUA, 0, b"durable");
    assert_eq!((client.result(cookie), sandbox.disk.flushes()), (0, 2));
    let cookie = client.send(0, TRIM, 0, 4096);
    assert_eq!(client.result(cookie), 0);
    assert_eq!(sandbox.disk.content()[..4096], [0; 4096]);
}

#[test]
fn flush_of_each_client_fails_once_after_completed_writes_were_lost() {
    let sandbox = Sandbox::new();
    let (mut one, mut other) = (sandbox.client(true), sandbox.client(false));
    let flush = |client: &mut Client<_>| {
        let cookie = client.send(0, FLUSH, 0, 0);
        client.result(cookie)
    };
    assert_eq!((flush(&mut one), flush(&mut other)), (0, 0));
    sandbox.disk.lose();
    assert_eq!(one.write(0, b"new"), 0, "only flushes fail");
    // Its lost writes are unknown: it may be a client that has reconnected.
    let mut unknown = sandbox.client(true);
    for client in [&mut one, &mut unknown] {
        assert_eq!((flush(client), flush(client)), (EIO, 0));
    }
    assert_eq!((flush(&mut other), flush(&mut other)), (EIO, 0));
    assert_eq!(flush(&mut sandbox.client(true)), 0, "a new client");
    sandbox.disk.lose();
    assert_eq!((flush(&mut one), flush(&mut one)), (EIO, 0));
}

#[test]
fn errors_of_the_device_are_io_errors() {
    let sandbox = Sandbox::new();
    sandbox.disk.fail(300_000..300_001);
    let mut client = sandbox.client(true);
    let (_, errors) = client.read_structured(0, 0, 1 << 20);
    assert_eq!(errors, [(EIO, Some(262_144))]);
    assert_eq!(client.write(299_999, b"ab"), EIO);
    assert_eq!(sandbox.client(false).read_simple(0, 1 << 20), Err(EIO));
    assert_eq!(client.write(0, b"ab"), 0);
}

#[test]
fn pipelined_requests_of_many_clients_are_all_replied_to() {
    // Little memory, and a queue that is full most of the time.
    let sandbox = Sandbox::with(Options {
        settings: Settings {
            depth: 3,
            buffers: 5,
            delay: 2,
            ..Settings::default()
        },
        limits: Limits {
            in_flight: 8,
            ..Limits::default()
        },
        ..Options::default()
    });
    let clients: Vec<_> = (0..6_u64)
        .map(|number| {
            let mut client = sandbox.client(number % 2 == 0);
            std::thread::spawn(move || {
                let base = number << 20;
                for round in 0..3 {
                    let data = contents::noise(number + round, 200_000);
                    let mut writes = Vec::new();
                    for piece in data.chunks(10_000) {
                        let offset = base + writes.len() as u64 * 10_000;
                        writes.push(client.send_write(0, offset, piece));
                    }
                    while !writes.is_empty() {
                        let cookie = match client.reply() {
                            Reply::Simple { cookie, error: 0 } => cookie,
                            other => panic!("{other:?}"),
                        };
                        writes.retain(|it| *it != cookie);
                    }
                    if number % 2 == 0 {
                        assert!(client.read_structured(0, base, 200_000).0 == data);
                    } else {
                        assert!(client.read_simple(base, 200_000) == Ok(data));
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("all replies");
    }
}

/// Sends as many requests as the socket accepts, without reading replies.
fn flood(client: &mut Client<UnixStream>, request: &[u8]) {
    let timeout = Some(Duration::from_millis(100));
    client.stream.set_write_timeout(timeout).expect("a timeout");
    let mut sent = 0;
    while client.stream.write(request).is_ok() {
        sent += 1;
        assert!(sent < 1_000_000, "the server leaves requests in the socket");
    }
}

#[test]
fn client_that_does_not_read_withholds_no_buffers_from_others() {
    for len in [1, 256 * 1024] {
        // Timeouts are disabled, so they cannot free the buffers.
        let sandbox = Sandbox::with(Options {
            client_timeout: Duration::from_secs(3600),
            queues: 1,
            settings: Settings {
                buffers: 16,
                ..Settings::default()
            },
            ..Options::default()
        });
        let mut greedy = sandbox.client(true);
        flood(&mut greedy, &request(0, READ, 1, 0, len));
        let mut other = sandbox.client(true);
        let data = vec![1; 256 * 1024];
        assert_eq!(other.write(0, &data), 0);
        assert!(other.read_structured(0, 0, data.len() as u32).0 == data);
    }
}

#[test]
fn client_that_does_not_read_is_disconnected() {
    let sandbox = Sandbox::with(Options {
        client_timeout: Duration::from_millis(300),
        ..Options::default()
    });
    let mut greedy = sandbox.client(true);
    flood(&mut greedy, &request(0, READ, 1, 0, 256 * 1024));
    wait_for("the end of the connection", || {
        let mut sockets = [PollFd::new(&greedy.stream, PollFlags::empty())];
        poll(&mut sockets, Some(&Timespec::default())).expect("polled");
        sockets[0].revents().contains(PollFlags::HUP)
    });
}

#[test]
fn reader_is_served_while_others_write_zeroes() {
    let options = Options {
        size: 64 << 20,
        queues: 1,
        ..Options::default()
    };
    let pieces = 2 * options.limits.pieces;
    let sandbox = Sandbox::with(options);
    let disk = &sandbox.disk;
    let mut reader = sandbox.client(true);
    let mut loads: Vec<_> = (0..2).map(|_| sandbox.client(true)).collect();
    disk.hold(true);
    // 64 requests of 64 MiB by each client, of which only a few pieces are in flight.
    for load in &mut loads {
        for _ in 0..64 {
            load.send(0, WRITE_ZEROES, 0, 64 << 20);
        }
    }
    wait_for("pieces in flight", || disk.in_flight() == pieces);
    // While no piece completes, a read is submitted.
    let cookie = reader.send(0, READ, 0, 4096);
    wait_for("a read in flight", || disk.in_flight() == pieces + 1);
    // A read of a busy connection is also submitted.
    loads[0].send(0, READ, 0, 4096);
    wait_for("both reads in flight", || disk.in_flight() == pieces + 2);
    disk.hold(false);
    assert!(matches!(reader.reply(), Reply::Chunk { cookie: it, kind: 1, .. } if it == cookie));
}

#[test]
fn client_that_stops_inside_a_payload_is_disconnected() {
    let sandbox = Sandbox::with(Options {
        client_timeout: Duration::from_millis(500),
        ..Options::default()
    });
    let mut client = sandbox.client(false);
    client.send(0, WRITE, 0, 100_000);
    client.stream.write_all(&[1; 50_000]).expect("sent");
    assert!(client.is_closed());
    // An idle client is not disconnected.
    let mut idle = sandbox.client(false);
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(idle.write(0, b"still there"), 0);
}

#[test]
fn silent_client_is_disconnected_before_transmission() {
    let sandbox = Sandbox::with(Options {
        handshake_timeout: Duration::from_millis(400),
        ..Options::default()
    });
    let mut client = Client::connect(&sandbox.socket());
    assert!(client.is_closed());
}

#[test]
fn connections_are_limited() {
    let sandbox = Sandbox::with(Options {
        max_connections: 2,
        ..Options::default()
    });
    let first = sandbox.client(true);
    let _second = sandbox.client(true);
    let mut stream = std::os::unix::net::UnixStream::connect(sandbox.socket()).expect("connected");
    assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
    drop(first);
    wait_for("room for another client", || {
        let stream = std::os::unix::net::UnixStream::connect(sandbox.socket()).expect("connected");
        Client::begin(stream).is_ok()
    });
}

#[test]
fn lost_clients_leave_no_resources() {
    let sandbox = Sandbox::with(Options {
        max_connections: 4,
        settings: Settings {
            delay: 50,
            ..Settings::default()
        },
        ..Options::default()
    });
    for round in 0..20 {
        wait_for("room for another client", || {
            let stream =
                std::os::unix::net::UnixStream::connect(sandbox.socket()).expect("connected");
            let Ok(mut client) = Client::begin(stream) else {
                return false;
            };
            client.option(STRUCTURED_REPLY, &[]);
            client.option(GO, &info_data("", &[]));
            client.send(0, READ, 0, 1 << 20);
            client.send_write(0, 0, &[1; 1000]);
            if round % 2 == 0 {
                client.send(0, WRITE, 0, 1 << 20);
            }
            true
        });
    }
    wait_for("room for a last client", || {
        let stream = std::os::unix::net::UnixStream::connect(sandbox.socket()).expect("connected");
        Client::begin(stream).is_ok_and(|mut client| {
            client.option(GO, &info_data("", &[]));
            client.write(0, b"x") == 0
        })
    });
}

#[test]
fn requests_before_a_disconnect_are_executed() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.client(true);
    client.send_write(0, 0, &[7; 100_000]);
    client.send(0, DISC, 0, 0);
    drop(client);
    wait_for("the write", || {
        sandbox.disk.content()[..100_000] == [7; 100_000]
    });
}

#[test]
fn half_closed_client_gets_its_replies() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.client(false);
    let cookie = client.send_write(0, 0, b"last words");
    client
        .stream
        .shutdown(std::net::Shutdown::Write)
        .expect("half closed");
    assert_eq!(client.result(cookie), 0);
    assert!(client.is_closed());
}

#[test]
fn garbage_ends_only_its_connection() {
    let sandbox = Sandbox::new();
    let mut good = sandbox.client(true);
    for garbage in [
        &[0xff; 5000][..],
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        let mut bad = Client::connect(&sandbox.socket());
        let _ = bad.stream.write_all(garbage);
        assert!(bad.is_closed());
        let mut bad = sandbox.client(true);
        let _ = bad.stream.write_all(garbage);
        assert!(bad.is_closed());
    }
    assert_eq!(good.write(0, b"x"), 0);
}

#[test]
fn shutdown_completes_requests_and_removes_the_socket() {
    let sandbox = Sandbox::with(Options {
        settings: Settings {
            delay: 200,
            ..Settings::default()
        },
        ..Options::default()
    });
    let socket = sandbox.socket();
    let mut client = sandbox.client(false);
    let _negotiating = Client::connect(&socket);
    let cookie = client.send_write(0, 0, &[5; 4096]);
    let disk = sandbox.disk.clone();
    wait_for("the request", || disk.content()[0] == 5);
    let directory = std::thread::spawn(move || sandbox.stop());
    assert_eq!(client.result(cookie), 0);
    assert!(client.is_closed());
    directory.join().expect("an orderly end");
    assert!(!socket.exists());
}

#[test]
fn unix_socket_is_private_and_a_stale_one_is_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    // Stale socket of a killed server.
    drop(UnixListener::bind(&path).expect("bound"));
    let listener = Listener::unix(&path).expect("replaced");
    let mode = std::fs::metadata(&path)
        .expect("a file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = Listener::unix(&path);
    assert!(matches!(second, Err(ListenError::InUse(_))), "{second:?}");
    drop(listener);
    assert!(!path.exists());
    std::fs::write(&path, "precious").expect("a file");
    let result = Listener::unix(&path);
    assert!(
        matches!(result, Err(ListenError::NotASocket(_))),
        "{result:?}"
    );
    assert_eq!(std::fs::read(&path).expect("a file"), b"precious");
}

fn place(text: &str) -> HostPort {
    text.parse().expect("a host and a port")
}

#[test]
fn tcp_beyond_loopback_needs_tls() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let result = Listener::tcp(&place(address), false);
        assert!(
            matches!(result, Err(ListenError::Insecure(_))),
            "{result:?}"
        );
    }
    assert_eq!(
        Listener::tcp(&place("0.0.0.0:0"), true)
            .expect("a listener")
            .len(),
        1
    );
    let unknown = Listener::tcp(&place("no-such-host.invalid:0"), true);
    assert!(
        matches!(unknown, Err(ListenError::System { .. })),
        "{unknown:?}"
    );
    let listeners = Listener::tcp(&place("127.0.0.1:0"), false).expect("a listener");
    let uri = listeners[0].uri("", false);
    let address = uri
        .strip_prefix("nbd://")
        .and_then(|it| it.strip_suffix('/'));
    let address = address.expect("a URI").to_owned();
    let directory = tempfile::tempdir().expect("a directory");
    let _bench = Sandbox::on(directory, listeners, Options::default());
    let stream = TcpStream::connect(address).expect("connected");
    let mut client = Client::begin(stream).expect("a greeting");
    assert_eq!(client.option(LIST, &[]).len(), 2);
    assert_eq!(client.option(STARTTLS, &[])[0].0, ERR_POLICY);
    assert_eq!(client.option(GO, &info_data("", &[])).len(), 2);
    assert_eq!(client.write(0, b"x"), 0);
}

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
    let data = contents::noise(5, 3 << 20);
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
    // With TLS 1.3, the client detects the refusal at its next read.
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
    // Injected before the handshake, in the same segment; must not be treated as received over TLS.
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
