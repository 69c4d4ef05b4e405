//! The agent over the network: access of processes of different machines to each other's memory and services, over TCP.
//!
//! * `settings` are read from the environment; without them, this process neither listens nor connects. They determine
//!   the [`NetworkOffer`], the part of a blob with the network addresses of its owner.
//! * `listener` accepts peers, `authentication` checks that they have the key of the deployment, `serving` handles their
//!   requests.
//! * [`Link`] detects the end of a process; [`Lane`] carries requests to its memory, and [`NetworkRegion`] one at a time.
//! * `stream` is the socket; with `tls`, it carries `records`.

mod authentication;
mod link;
mod listener;
#[cfg(feature = "tls")]
mod records;
mod serving;
mod settings;
mod stream;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "network/no_tls.rs"]
mod tls;

pub(crate) use link::{Lane, Link, NetworkRegion, close_after_delivery};
pub(crate) use listener::{Deliver, NetworkGuard, expose, serve};
pub(crate) use serving::Memory;
pub(crate) use settings::{NetworkOffer, Route};
#[cfg(test)]
pub(crate) use stream::pair as stream_pair;
pub(crate) use stream::{Piece, Stream};
#[cfg(all(test, feature = "tls"))]
pub(crate) use tls::tests::Authority;

use super::Deadline;
use crate::error::{Error, Result};
use crate::topology::{DeviceModel, VARIABLE as TOPOLOGY};
use crate::verbs::Nic;
use settings::{Settings, Transport};

/// Returns `true` if this process uses the network.
///
/// # Errors
/// An invalid configuration of the network.
pub(crate) fn uses_network() -> Result<bool> {
    Ok(settings::Settings::get()?.is_some())
}

/// Checks the network settings of this process before they are needed: otherwise, errors would be reported for the
/// first exported memory, after a program has announced that it is ready.
///
/// # Errors
/// An invalid configuration, or addresses on which this process cannot listen. A name server that currently does not
/// respond is not an error.
pub(crate) fn check() -> Result<()> {
    let settings = match Settings::get() {
        Err(Error::TimeOut) => return Ok(()),
        settings => settings?,
    };
    // The sockets that peers connect to are opened with the first export.
    let addresses = settings.map_or(&[][..], |settings| &settings.addresses);
    addresses
        .iter()
        .try_for_each(|address| listener::listen_at(*address).map(drop))
}

/// Returns the RDMA device by which peers access memory of `device`; `None` if the device has none, or this process
/// does not use the network.
///
/// # Errors
/// An invalid configuration of the network.
pub(crate) fn nic_of(device: &DeviceModel) -> Result<Option<&'static Nic>> {
    let settings = Settings::get()?;
    // Encrypted connections use TCP.
    Ok(settings
        .filter(|settings| settings.transport != Transport::Tcp && settings.tls.is_none())
        .and_then(|_| Nic::of(device)))
}

/// Returns the RDMA device for connections of `device`, as [`nic_of`].
///
/// # Errors
/// As [`nic_of`], and [`Error::NotSupported`] if there is none and [`requires_verbs`] is `true`.
pub(crate) fn nic_for_connections(device: &DeviceModel) -> Result<Option<&'static Nic>> {
    match nic_of(device)? {
        None if requires_verbs() => Err(Error::NotSupported.because(format_args!(
            "{} is verbs, and device {} has no RDMA device: expected its ibdev in the file of {TOPOLOGY} to be one of \
             /sys/class/infiniband, and rdma-core's libibverbs to be installed",
            settings::TRANSPORT,
            device.pci
        ))),
        nic => Ok(nic),
    }
}

/// Returns `true` if connections without verbs are refused.
pub(crate) fn requires_verbs() -> bool {
    Settings::get()
        .is_ok_and(|settings| settings.is_some_and(|it| it.transport == Transport::Verbs))
}

/// Connects to the service of an offer.
///
/// # Errors
/// Errors of [`Link::to`] and of the service.
pub(crate) fn call(offer: &NetworkOffer) -> Result<Stream> {
    link::open(offer, authentication::Purpose::Service)
}

/// Fills the buffer within `timeout`.
///
/// # Errors
/// As [`send_within`].
pub(crate) fn receive_within(
    stream: &Stream,
    buffer: &mut [u8],
    timeout: std::time::Duration,
) -> Result<()> {
    stream.receive_all(buffer, Deadline::after(timeout))
}

/// Sends the whole buffer within `timeout`.
///
/// # Errors
/// [`Error::TimeOut`] and [`Error::ConnectionReset`].
pub(crate) fn send_within(
    stream: &Stream,
    bytes: &[u8],
    timeout: std::time::Duration,
) -> Result<()> {
    stream.send_all(bytes, Deadline::after(timeout))
}

#[cfg(test)]
mod tests {
    //! A listener in this process, and peers that connect to it.

    use std::io::{Read, Write};
    use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::super::protocol::{Backing, Export, ReplyHeader, RequestHeader, Rights, Segment};
    use super::super::{Deadline, Limits};
    use super::authentication::{
        CLIENT_HELLO, Purpose, Request, SERVER_ANSWER, SERVER_HELLO, SharedKey,
    };
    use super::link::{Lane, Link, authenticate, encrypted, open_with};
    use super::listener::{Listener, NetworkGuard};
    use super::serving::Exposed;
    use super::settings::{NetworkOffer, Settings, Transport};
    use super::stream::{Piece, Stream};
    use super::tls::Tls;
    use crate::error::{Error, Result};
    use crate::runtime::Key;

    const TIMEOUT: Duration = Duration::from_secs(60);
    const ALL: Rights = Rights {
        read: true,
        write: true,
        atomic: true,
    };

    /// Tests over TCP, and over TLS.
    macro_rules! with_and_without_tls {
    ($($test:ident: $connections:literal,)*) => {
        mod plain {
            $(#[test] fn $test() { super::$test(super::listener($connections)); })*
        }

        #[cfg(feature = "tls")]
        mod encrypted {
            $(#[test] fn $test() { super::$test(super::door_with($connections, super::certificate())); })*
        }
    };
}

    with_and_without_tls! {
        requests_are_answered_in_order_and_placed: 8,
        many_requests_at_a_time: 8,
        what_was_not_given_is_not_reached: 8,
        withdrawn_and_unmapped_memory_fails_the_request: 8,
        unauthenticated_peers_get_random_bytes_and_are_disconnected: 8,
        a_peer_with_the_key_is_told_what_is_wrong: 8,
        connections_are_bounded: 3,
        connections_that_prove_nothing_keep_no_peer_out: 1000,
        malformed_requests_end_the_connection_alone: 8,
    }

    /// A certificate that a new authority has signed.
    #[cfg(feature = "tls")]
    fn certificate() -> Option<Tls> {
        let authority = super::tls::tests::Authority::new();
        let [certificate, key] = authority.sign("127.0.0.1", |_| {});
        Some(Tls::new(&certificate, &key, &authority.path()).unwrap())
    }

    fn settings(byte: u8, tls: Option<Tls>) -> Settings {
        Settings {
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            key: Some(SharedKey::new(vec![byte; 32])),
            tls,
            transport: Transport::Auto,
        }
    }

    fn listener(connections: usize) -> Arc<Listener> {
        door_with(connections, None)
    }

    fn door_with(connections: usize, tls: Option<Tls>) -> Arc<Listener> {
        let limits = Limits {
            connections,
            ..Limits::get().unwrap().clone()
        };
        Listener::open(settings(1, tls), limits).unwrap()
    }

    fn address(listener: &Listener) -> SocketAddr {
        listener.addresses().next().unwrap()
    }

    fn connect(listener: &Listener, byte: u8, purpose: Purpose) -> Result<Stream> {
        let request = Request {
            purpose,
            process: listener.process(),
            key: Key::from_bytes([0; 16]),
        };
        connect_for(listener, byte, &request)
    }

    fn connect_for(listener: &Listener, byte: u8, request: &Request) -> Result<Stream> {
        let (address, deadline) = (address(listener), Deadline::after(TIMEOUT));
        let stream = Stream::connect(address, deadline)?;
        let settings = settings(byte, listener.settings().tls.clone());
        let stream = encrypted(stream, &settings, address.ip(), deadline)?;
        authenticate(&stream, &settings, request, deadline)?;
        Ok(stream)
    }

    fn lane(listener: &Listener) -> Lane {
        let stream = connect(listener, 1, Purpose::Memory).unwrap();
        Lane::over(stream, Link::unwatched(listener.process()).unwrap())
    }

    /// Memory on the heap that a listener exposes.
    struct Memory {
        bytes: Vec<u64>,
        key: Key,
        guard: Option<NetworkGuard>,
    }

    impl Memory {
        fn new(listener: &Arc<Listener>, len: usize, rights: Rights) -> Memory {
            let mut bytes = vec![0; len / 8];
            let addr = bytes.as_mut_ptr().expose_provenance() as u64;
            let key = Key::random().unwrap();
            let guard = expose(listener, key, rights, addr, len as u64);
            Memory {
                bytes,
                key,
                guard: Some(guard),
            }
        }

        fn addr(&self) -> u64 {
            self.bytes.as_ptr().addr() as u64
        }

        fn byte(&self, at: usize) -> u8 {
            // SAFETY: inside of the vector; no peer writes at this time.
            unsafe { self.bytes.as_ptr().cast::<u8>().add(at).read_volatile() }
        }
    }

    fn expose(
        listener: &Arc<Listener>,
        key: Key,
        rights: Rights,
        addr: u64,
        len: u64,
    ) -> NetworkGuard {
        let export = Export {
            rights,
            segments: vec![Segment {
                addr,
                len,
                backing: Backing::Private,
            }],
            validity: None,
        };
        Arc::clone(listener).expose(key, Exposed::new(rights, (addr, len), Box::new(export)))
    }

    fn replies(lane: &mut Lane, count: usize) -> Vec<Result<u64>> {
        let deadline = Instant::now() + TIMEOUT;
        let mut replies = Vec::new();
        while replies.len() < count {
            lane.flush().unwrap();
            lane.set_readable();
            while let Some(reply) = lane.next_reply().unwrap() {
                replies.push(reply);
            }
            assert!(Instant::now() < deadline, "{replies:?}");
            std::thread::yield_now();
        }
        replies
    }

    fn requests_are_answered_in_order_and_placed(listener: Arc<Listener>) {
        let memory = Memory::new(&listener, 1 << 20, ALL);
        let mut lane = lane(&listener);
        // Payloads of one byte up to more than a socket takes, in one and in several pieces.
        let source: Vec<u8> = (0..300_000)
            .map(|at: usize| (at * 7 + at / 251) as u8)
            .collect();
        for (round, len) in [1, 55, 56, 57, 4096, 70_000, 300_000]
            .into_iter()
            .enumerate()
        {
            let addr = memory.addr() + round as u64;
            let halves = source[..len].split_at(len / 3);
            let mut copies = [vec![0_u8; len], vec![0_u8; len]];
            for copy in &mut copies {
                let (first, second) = copy.split_at_mut(len / 2);
                let from = [Piece::of(halves.0), Piece::of(halves.1)];
                let to = [Piece::of_mut(first), Piece::of_mut(second)];
                // SAFETY: the buffers live until the replies have come.
                unsafe {
                    lane.write(memory.key, addr, from.into_iter());
                    lane.read(memory.key, addr, to.into_iter());
                }
            }
            assert_eq!(replies(&mut lane, 4), [Ok(0); 4]);
            for copy in &copies {
                assert!(copy == &source[..len], "{len} bytes");
            }
        }
        assert_eq!(lane.outstanding(), 0);
    }

    fn many_requests_at_a_time(listener: Arc<Listener>) {
        let memory = Memory::new(&listener, 4096 * 256, ALL);
        let mut lane = lane(&listener);
        let blocks: Vec<Vec<u8>> = (0..256).map(|at| vec![at as u8; 4096]).collect();
        for (at, block) in blocks.iter().enumerate() {
            let addr = memory.addr() + at as u64 * 4096;
            // SAFETY: the blocks live until the replies have come.
            unsafe { lane.write(memory.key, addr, std::iter::once(Piece::of(block))) };
        }
        assert_eq!(replies(&mut lane, 256), [Ok(0); 256]);
        for at in 0..256 {
            assert_eq!(memory.byte(at * 4096 + 4095), at as u8);
        }
    }

    fn what_was_not_given_is_not_reached(listener: Arc<Listener>) {
        let read = Memory::new(
            &listener,
            4096,
            Rights {
                write: false,
                atomic: false,
                ..ALL
            },
        );
        let write = Memory::new(
            &listener,
            4096,
            Rights {
                read: false,
                atomic: false,
                ..ALL
            },
        );
        let mut lane = lane(&listener);
        let mut buffer = vec![7_u8; 5000];
        let (addr, end) = (read.addr(), read.addr() + 4096);
        let mut ask = |key: Key, addr: u64, len: usize, is_write: bool| {
            let piece = std::iter::once(Piece::of_mut(&mut buffer[..len]));
            // SAFETY: the buffer lives until the reply has come.
            unsafe {
                match is_write {
                    true => lane.write(key, addr, piece),
                    false => lane.read(key, addr, piece),
                }
            }
            replies(&mut lane, 1)[0]
        };
        let peer = Key::random().unwrap();
        assert_eq!(ask(peer, addr, 8, true), Err(Error::NotFound));
        assert_eq!(ask(peer, addr, 8, false), Err(Error::NotFound));
        assert_eq!(ask(read.key, addr, 8, true), Err(Error::NotPermitted));
        assert_eq!(
            ask(write.key, write.addr(), 8, false),
            Err(Error::NotPermitted)
        );
        for (addr, len) in [
            (addr - 1, 8),
            (end - 7, 8),
            (end, 1),
            (addr, 4097),
            (u64::MAX - 3, 8),
        ] {
            assert_eq!(
                ask(read.key, addr, len, false),
                Err(Error::InvalidValue),
                "{addr:#x}"
            );
        }
        for (addr, len) in [
            (write.addr() - 1, 8),
            (write.addr() + 4089, 8),
            (u64::MAX, 4096),
        ] {
            assert_eq!(
                ask(write.key, addr, len, true),
                Err(Error::InvalidValue),
                "{addr:#x}"
            );
        }
        // The connection stays open.
        assert_eq!(ask(read.key, addr, 4096, false), Ok(0));
        assert_eq!(ask(write.key, write.addr(), 4096, true), Ok(0));
        assert_eq!(write.byte(4095), 0, "what was read");
    }

    fn withdrawn_and_unmapped_memory_fails_the_request(listener: Arc<Listener>) {
        let mut memory = Memory::new(&listener, 4096, ALL);
        let mut lane = lane(&listener);
        let mut buffer = vec![7_u8; 4096];
        let mut both = |lane: &mut Lane, key: Key, addr: u64| {
            // SAFETY: the buffer lives until the replies have come.
            unsafe {
                lane.write(key, addr, std::iter::once(Piece::of(&buffer)));
                lane.read(key, addr, std::iter::once(Piece::of_mut(&mut buffer)));
            }
            replies(lane, 2)
        };
        assert_eq!(both(&mut lane, memory.key, memory.addr()), [Ok(0), Ok(0)]);
        memory.guard = None;
        memory.bytes.fill(0);
        assert_eq!(
            both(&mut lane, memory.key, memory.addr()),
            [Err(Error::NotFound); 2]
        );
        assert_eq!(memory.byte(0), 0);
        // The program has unmapped the exported memory.
        let key = Key::random().unwrap();
        let _guard = expose(&listener, key, ALL, 0x1000, 4096);
        let answers = both(&mut lane, key, 0x1000);
        assert_eq!(answers[0], Err(Error::InvalidValue));
        assert!(answers[1].is_err());
    }

    /// Bytes sent to an unauthenticated peer before the end of the connection.
    fn sent_to(mut peer: TcpStream) -> Vec<u8> {
        peer.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut bytes = Vec::new();
        // A reset is also treated as the end of the connection.
        let ended = peer.read_to_end(&mut bytes);
        let is_late = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!is_late, "no end in time");
        bytes
    }

    /// Random bytes or, with TLS, an alert.
    fn expect_server_hello_only(listener: &Listener, sent: &[u8]) {
        if listener.uses_tls() {
            assert!(matches!(sent, [21, 3, _, 0, 2, 2, _]), "{sent:?}");
        } else {
            assert_eq!(sent.len(), SERVER_HELLO);
        }
    }

    fn unauthenticated_peers_get_random_bytes_and_are_disconnected(listener: Arc<Listener>) {
        assert_eq!(
            connect(&listener, 2, Purpose::Memory).err(),
            Some(Error::Authentication)
        );
        for garbage in [vec![0; CLIENT_HELLO], vec![0xff; CLIENT_HELLO]] {
            let mut peer = TcpStream::connect(address(&listener)).unwrap();
            peer.write_all(&garbage).unwrap();
            expect_server_hello_only(&listener, &sent_to(peer));
        }
        // A silent peer is disconnected.
        let begin = Instant::now();
        let silent = TcpStream::connect(address(&listener)).unwrap();
        let sent = sent_to(silent);
        if listener.uses_tls() {
            assert!(sent.is_empty(), "the client speaks first: {sent:?}");
        } else {
            expect_server_hello_only(&listener, &sent);
        }
        assert!(begin.elapsed() >= Duration::from_secs(1));
        let good = connect(&listener, 1, Purpose::Memory);
        assert!(good.is_ok(), "{good:?}");
    }

    /// A listener that drops connection requests, like a failed link: its queue is full.
    struct Cut {
        listener: std::os::fd::OwnedFd,
        address: SocketAddr,
        queued: Vec<TcpStream>,
    }

    impl Cut {
        fn new() -> Cut {
            let (listener, address) =
                super::stream::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            rustix::net::listen(&listener, 0).unwrap();
            let mut queued = Vec::new();
            while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300))
            {
                queued.push(stream);
            }
            Cut {
                listener,
                address,
                queued,
            }
        }

        /// From now on, connections reach the listener, until `is_done` is set.
        fn mend(self, listener: &Arc<Listener>, is_done: &AtomicBool) {
            rustix::net::listen(&self.listener, 128).unwrap();
            drop(self.queued);
            while !is_done.load(Ordering::Relaxed) {
                match rustix::net::accept_with(&self.listener, rustix::net::SocketFlags::NONBLOCK) {
                    Ok(fd) => listener.admit(fd, self.address.ip()),
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        }
    }

    #[test]
    fn a_connection_survives_a_link_that_is_down_for_a_part_of_the_limit() {
        let listener = listener(8);
        // The kernel repeats the first packet after 1 s and after 2 s or 3 s.
        let (cut, down) = (Cut::new(), Duration::from_millis(1_100));
        let limit = Duration::from_millis(1_900);
        let offer = NetworkOffer::at(listener.process(), &[cut.address]);
        let settings = settings(1, None);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(down);
                cut.mend(&listener, &is_done);
            });
            let opened = open_with(&settings, limit, &offer, Purpose::Liveness);
            is_done.store(true, Ordering::Relaxed);
            assert!(opened.is_ok(), "{opened:?}");
        });
    }

    #[test]
    fn a_machine_that_does_not_answer_is_a_timeout_and_a_process_that_has_ended_is_not_waited_for()
    {
        let settings = settings(1, None);
        let limit = Duration::from_millis(700);
        let cut = Cut::new();
        let closed = super::stream::listen((Ipv4Addr::LOCALHOST, 0).into())
            .unwrap()
            .1;
        // Unroutable: packets to the class E network are not routed.
        let nowhere: SocketAddr = "240.0.0.1:1".parse().unwrap();
        let open = |addresses: &[SocketAddr]| {
            let offer = NetworkOffer::at(Key::from_bytes([7; 16]), addresses);
            let begin = Instant::now();
            let opened = open_with(&settings, limit, &offer, Purpose::Liveness);
            (opened.err(), begin.elapsed())
        };
        let (error, time) = open(&[cut.address]);
        assert_eq!(error, Some(Error::TimeOut));
        assert!(time >= limit / 2, "{time:?}");
        let (error, _) = open(&[cut.address, closed]);
        assert_eq!(error, Some(Error::TimeOut));
        let (error, time) = open(&[closed]);
        assert_eq!(error, Some(Error::NotFound));
        assert!(time < limit, "{time:?}");
        let (error, _) = open(&[nowhere]);
        assert_eq!(error, Some(Error::TimeOut));
    }

    /// With TLS on one side only, connections are refused immediately, in both directions.
    #[cfg(feature = "tls")]
    #[test]
    fn tls_on_one_side_is_refused() {
        let (plain, encrypted) = (listener(8), door_with(8, certificate()));
        let request = Request {
            purpose: Purpose::Memory,
            process: plain.process(),
            key: Key::from_bytes([0; 16]),
        };
        let open = |listener: &Listener, settings: &Settings| {
            let deadline = Deadline::after(TIMEOUT);
            let stream = Stream::connect(address(listener), deadline)?;
            let stream =
                super::link::encrypted(stream, settings, address(listener).ip(), deadline)?;
            authenticate(&stream, settings, &request, deadline)
        };
        assert_eq!(
            open(&plain, encrypted.settings()),
            Err(Error::Authentication)
        );
        // The offer states that the listener uses TLS, so a connection without TLS is not attempted.
        assert_eq!(
            open(&encrypted, plain.settings()),
            Err(Error::ConnectionReset)
        );
        let mut peer = TcpStream::connect(address(&encrypted)).unwrap();
        peer.write_all(b"SDTCP\0").unwrap();
        expect_server_hello_only(&encrypted, &sent_to(peer));
    }

    fn a_peer_with_the_key_is_told_what_is_wrong(listener: Arc<Listener>) {
        assert_eq!(
            connect(&listener, 1, Purpose::Service).err(),
            Some(Error::NotFound)
        );
        let request = Request {
            purpose: Purpose::Memory,
            process: Key::from_bytes([5; 16]),
            key: Key::from_bytes([0; 16]),
        };
        let another = connect_for(&listener, 1, &request).err();
        assert_eq!(another, Some(Error::NotFound), "another process");
        const { assert!(SERVER_ANSWER == 40) };
    }

    fn connections_are_bounded(listener: Arc<Listener>) {
        let held: Vec<_> = (0..3)
            .map(|_| connect(&listener, 1, Purpose::Memory).unwrap())
            .collect();
        for _ in 0..5 {
            assert!(connect(&listener, 1, Purpose::Memory).is_err());
        }
        drop(held);
        let deadline = Instant::now() + TIMEOUT;
        while connect(&listener, 1, Purpose::Memory).is_err() {
            assert!(Instant::now() < deadline, "no room again");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn connections_that_prove_nothing_keep_no_peer_out(listener: Arc<Listener>) {
        // More than may wait at a time, twice.
        let silent: Vec<_> = (0..130)
            .map(|_| TcpStream::connect(address(&listener)).unwrap())
            .collect();
        for _ in 0..3 {
            let peer = connect(&listener, 1, Purpose::Memory);
            assert!(peer.is_ok(), "{peer:?}");
        }
        drop(silent);
    }

    fn malformed_requests_end_the_connection_alone(listener: Arc<Listener>) {
        let memory = Memory::new(&listener, 4096, ALL);
        let header = |len: u64| RequestHeader {
            operation: super::super::protocol::Operation::Write,
            key: memory.key,
            addr: memory.addr(),
            len,
            operands: [0; 2],
        };
        let mut unknown = header(8).encode();
        unknown[6] = 99;
        for bytes in [
            vec![0; 56],
            unknown.to_vec(),
            header(u64::MAX).encode().to_vec(),
        ] {
            let stream = connect(&listener, 1, Purpose::Memory).unwrap();
            let deadline = Deadline::after(TIMEOUT);
            stream.send_all(&bytes, deadline).unwrap();
            let ended = stream.receive_all(&mut [0; ReplyHeader::SIZE], deadline);
            assert_eq!(ended, Err(Error::ConnectionReset));
        }
        let mut lane = lane(&listener);
        // SAFETY: the bytes are constant.
        unsafe {
            lane.write(
                memory.key,
                memory.addr(),
                std::iter::once(Piece::of(b"good")),
            )
        };
        assert_eq!(replies(&mut lane, 1), [Ok(0)]);
    }

    /// Generates valid and invalid requests.
    fn requests() -> impl Strategy<Value = Vec<u8>> {
        let any = (1..8_u16, any::<[u8; 16]>(), any::<u64>(), 0..300_u64).prop_map(
            |(operation, key, addr, len)| {
                let mut bytes = b"SDrq\x02\0".to_vec();
                bytes.extend(operation.to_le_bytes());
                bytes.extend(key);
                for word in [addr, len, 1, 2] {
                    bytes.extend(word.to_le_bytes());
                }
                if operation == 3 {
                    bytes.resize(bytes.len() + len as usize, 9);
                }
                bytes
            },
        );
        prop_oneof![
            9 => any,
            1 => proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80),
        ]
    }

    /// Number of replies to these bytes, none of which succeeds, and `true` if the bytes end within a request.
    fn expected_replies(mut bytes: &[u8]) -> (usize, bool) {
        let mut replies = 0;
        while let Some((head, rest)) = bytes.split_first_chunk::<56>() {
            let operation = u16::from_le_bytes([head[6], head[7]]);
            let len = u64::from_le_bytes(head[32..40].try_into().unwrap());
            if !head.starts_with(b"SDrq\x02\0") || !(1..8).contains(&operation) || len > 2 << 30 {
                return (replies, true);
            }
            let payload = if operation == 3 { len as usize } else { 0 };
            if payload > rest.len() {
                return (replies, true);
            }
            replies += 1;
            bytes = &rest[payload..];
        }
        (replies, !bytes.is_empty())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn any_requests_in_any_pieces_are_answered_in_order(
            requests in proptest::collection::vec(requests(), 0..10),
            sizes in proptest::collection::vec(1..400_usize, 1..6),
        ) {
            static LISTENER: std::sync::OnceLock<Arc<Listener>> = std::sync::OnceLock::new();
            let listener = LISTENER.get_or_init(|| listener(1000));
            let bytes = requests.concat();
            let stream = connect(listener, 1, Purpose::Memory).unwrap();
            let deadline = Deadline::after(TIMEOUT);
            let (mut rest, mut sizes) = (&bytes[..], sizes.iter().cycle());
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                // Fails once the listener has closed the connection.
                if stream.send_all(piece, deadline).is_err() {
                    break;
                }
                rest = behind;
            }
            stream.shut_down_output();
            let mut replies = 0;
            let mut reply = [0; ReplyHeader::SIZE];
            while stream.receive_all(&mut reply, deadline).is_ok() {
                let reply = ReplyHeader::decode(&reply).unwrap();
                prop_assert!(reply.result.is_err(), "{reply:?}");
                replies += 1;
            }
            let (expected, is_broken) = expected_replies(&bytes);
            // A connection that is closed with unread bytes is reset, and replies may be lost.
            prop_assert!(replies == expected || is_broken && replies < expected, "{replies} of {expected}");
        }

        #[test]
        fn any_replies_in_any_pieces_fill_no_other_memory(
            bytes in proptest::collection::vec(prop_oneof![
                3 => Just(ReplyHeader { result: Ok(()), value: 0 }.encode().to_vec()),
                1 => Just(ReplyHeader { result: Err(Error::NotFound), value: 0 }.encode().to_vec()),
                2 => proptest::collection::vec(any::<u8>(), 0..200),
            ], 0..12),
            sizes in proptest::collection::vec(1..100_usize, 1..6),
            lens in proptest::collection::vec(0..100_usize, 1..6),
        ) {
            let (here, there) = super::stream::pair();
            let mut lane = Lane::over(here, Link::example());
            // The destinations of the reads, separated by bytes that do not belong to them.
            let mut places: Vec<Vec<u8>> = lens.iter().map(|len| vec![0x11; len + 32]).collect();
            for (place, len) in places.iter_mut().zip(&lens) {
                let piece = Piece::of_mut(&mut place[16..16 + len]);
                // SAFETY: the places live until the lane is dropped.
                unsafe { lane.read(Key::from_bytes([1; 16]), 0, std::iter::once(piece)) };
            }
            lane.flush().unwrap();
            let bytes = bytes.concat();
            let (mut rest, mut sizes) = (&bytes[..], sizes.iter().cycle());
            let mut replies = 0;
            'all: while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                prop_assert_eq!(there.send_from(piece), Ok(piece.len()));
                rest = behind;
                lane.set_readable();
                loop {
                    match lane.next_reply() {
                        Ok(Some(_)) => replies += 1,
                        Ok(None) => break,
                        Err(error) => {
                            prop_assert_eq!(error, Error::ConnectionReset);
                            break 'all;
                        }
                    }
                }
            }
            prop_assert!(replies <= lens.len());
            drop(lane);
            for (place, len) in places.iter().zip(&lens) {
                let around = [&place[..16], &place[16 + len..]].concat();
                prop_assert_eq!(around, vec![0x11; 32]);
            }
        }
    }
}
