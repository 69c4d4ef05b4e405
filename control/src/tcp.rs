//! Control channels over TCP: a target listens, a service connects.

mod client;
mod server;
mod stream;
mod transport;

pub use client::TcpClientChannel;
pub use server::TcpServerChannel;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::{Read as _, Write as _};
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpStream};
    use std::time::{Duration, Instant};

    use doca::ErrorCode;
    use rustix::net::{AddressFamily, SocketType};
    use wire::control::{ErrorResponse, FrameDecoder, Message, Payload, StorageDetails};

    use super::client::{RETRY, Untried};
    use super::*;
    use crate::budget;
    use crate::failure::Failure;
    use crate::network::{Host, HostPort};
    use crate::shutdown::Shutdown;
    use crate::{ChannelEvent, ControlChannel, Waiter};

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn opens(payload: &Payload) -> bool {
        *payload == Payload::QueryStorageRequest
    }

    fn server() -> (TcpServerChannel, SocketAddrV4) {
        let server = TcpServerChannel::listen(0, opens).expect("a free port");
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, server.port().expect("port"));
        assert_ne!(address.port(), 0);
        (server, address)
    }

    fn next(channel: &mut dyn ControlChannel) -> Result<ChannelEvent, Failure> {
        let mut waiter = Waiter::new(Shutdown::new().expect("pipe"));
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(event) = channel.poll()? {
                return Ok(event);
            }
            assert!(Instant::now() < deadline, "nothing happened on the channel");
            waiter.wait(&[channel], Some(deadline));
        }
    }

    /// Begins a session with this request, and waits until the server serves the client.
    fn begin(client: &mut TcpClientChannel, server: &mut TcpServerChannel, message_id: u32) {
        assert_eq!(next(client), Ok(ChannelEvent::Connected));
        client.send(&request(message_id)).expect("sent");
        assert_eq!(next(server), Ok(ChannelEvent::Connected));
        let first = ChannelEvent::Message(request(message_id));
        assert_eq!(server.poll(), Ok(Some(first)));
    }

    /// Messages that the server sends on a connection until it is closed; asserts that the server reports no event in
    /// that time.
    fn received(server: &mut TcpServerChannel, mut stream: TcpStream) -> Vec<Payload> {
        stream.set_nonblocking(true).expect("non-blocking");
        let deadline = Instant::now() + TIMEOUT;
        let (mut decoder, mut bytes) = (FrameDecoder::new(), [0; 1024]);
        let mut payloads = Vec::new();
        loop {
            assert!(
                Instant::now() < deadline,
                "the connection stays: {payloads:?}"
            );
            assert_eq!(server.poll(), Ok(None), "other peers are not affected");
            match stream.read(&mut bytes) {
                Ok(0) => return payloads,
                Ok(count) => decoder.push(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return payloads;
                }
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
            while let Some(message) = decoder.next().expect("a frame") {
                payloads.push(message.payload);
            }
        }
    }

    fn error_codes(payloads: &[Payload]) -> Vec<u32> {
        let code = |payload: &Payload| match payload {
            Payload::ErrorResponse(error) => error.error_code,
            other => panic!("{other:?}"),
        };
        payloads.iter().map(code).collect()
    }

    fn request(message_id: u32) -> Message {
        Message {
            message_id,
            correlation_id: 7,
            payload: Payload::QueryStorageRequest,
        }
    }

    #[test]
    fn messages_pass_both_ways_and_disconnection_is_reported() {
        let (mut server, address) = server();
        let mut client = TcpClientChannel::connect(address);
        assert!(client.send(&request(0)).is_err(), "not connected yet");
        begin(&mut client, &mut server, 0);
        for id in [1, 2] {
            client.send(&request(id)).expect("sent");
        }
        for id in [1, 2] {
            assert_eq!(next(&mut server), Ok(ChannelEvent::Message(request(id))));
        }
        let answer = request(2).response(Payload::ShutdownResponse);
        server.send(&answer).expect("sent");
        drop(server);
        assert_eq!(
            next(&mut client),
            Ok(ChannelEvent::Message(answer)),
            "what was sent before the end arrives"
        );
        assert_eq!(next(&mut client), Ok(ChannelEvent::Closed));
        client
            .send(&request(3))
            .expect("no error, but the event again");
        assert_eq!(next(&mut client), Ok(ChannelEvent::Closed));
    }

    #[test]
    fn client_retries_until_server_listens() {
        let (server, address) = server();
        drop(server);
        let mut client = TcpClientChannel::connect(address);
        let start = Instant::now();
        let mut waiter = Waiter::new(Shutdown::new().expect("pipe"));
        while start.elapsed() < RETRY * 2 {
            assert_eq!(client.poll(), Ok(None));
            waiter.wait(&[&client], None);
        }
        let mut server =
            TcpServerChannel::listen(address.port(), opens).expect("the port is free again");
        begin(&mut client, &mut server, 0);
    }

    #[test]
    fn second_client_gets_an_error_with_the_reason() {
        let (mut server, address) = server();
        let mut first = TcpClientChannel::connect(address);
        begin(&mut first, &mut server, 0);
        let second = TcpStream::connect(address).expect("connected");
        let codes = error_codes(&received(&mut server, second));
        assert_eq!(codes, [ErrorCode::IN_USE.0]);
    }

    /// A client may disconnect between a poll of its connection and the accept of the next client.
    #[test]
    fn client_that_is_accepted_after_the_last_has_hung_up_is_served() {
        let storage = StorageDetails {
            total_size: 4096,
            block_size: 512,
        };
        for takes_reservations in [false, true] {
            let (mut server, address) = server();
            if takes_reservations {
                server = server.with_reservations(storage.clone(), None);
            }
            let mut first = TcpClientChannel::connect(address);
            begin(&mut first, &mut server, 0);
            drop(first);
            let deadline = Instant::now() + TIMEOUT;
            while !server.client.as_ref().expect("a client").has_hung_up() {
                assert!(Instant::now() < deadline, "its end does not arrive");
            }
            let mut second = TcpClientChannel::connect(address);
            assert_eq!(next(&mut second), Ok(ChannelEvent::Connected));
            second.send(&request(1)).expect("sent");
            assert!(server.accept());
            assert_eq!(server.begin(), None, "the first session has not ended");
            // A request of the first client is being processed.
            server.pause(true);
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(server.poll(), Ok(None));
            server.pause(false);
            assert_eq!(next(&mut server), Ok(ChannelEvent::Closed));
            server.next_client(Duration::ZERO);
            assert_eq!(next(&mut server), Ok(ChannelEvent::Connected));
            let first_request = ChannelEvent::Message(request(1));
            assert_eq!(server.poll(), Ok(Some(first_request)));
        }
    }

    #[test]
    fn idle_connections_neither_begin_a_session_nor_block_clients() {
        let (mut server, address) = server();
        let probe = TcpStream::connect(address).expect("connected");
        assert_eq!(server.poll(), Ok(None));
        drop(probe);
        let mut garbage = TcpStream::connect(address).expect("connected");
        garbage.write_all(&[0xff; 64]).expect("written");
        let codes = error_codes(&received(&mut server, garbage));
        assert_eq!(codes, [ErrorCode::INVALID_VALUE.0]);
        let mut early = TcpStream::connect(address).expect("connected");
        let stop = Message {
            payload: Payload::StopStorageRequest,
            ..request(1)
        };
        early.write_all(&stop.encode_to_vec()).expect("written");
        early
            .shutdown(std::net::Shutdown::Write)
            .expect("half closed");
        let codes = error_codes(&received(&mut server, early));
        let ends = [ErrorCode::UNEXPECTED.0, ErrorCode::CONNECTION_RESET.0];
        assert_eq!(codes, ends);

        let idle = TcpStream::connect(address).expect("connected");
        assert_eq!(server.poll(), Ok(None));
        let mut client = TcpClientChannel::connect(address);
        begin(&mut client, &mut server, 9);
        let codes = error_codes(&received(&mut server, idle));
        assert_eq!(codes, [ErrorCode::IN_USE.0], "another one was first");
    }

    #[test]
    fn idle_connections_are_limited_in_number_and_time() {
        let (server, address) = server();
        let within = Duration::from_millis(200);
        let mut server = server.first_request_within(Some(within));
        let start = Instant::now();
        let mut idle: VecDeque<_> = (0..=budget::WAITING_CONNECTIONS_PER_ADDRESS)
            .map(|_| TcpStream::connect(address).expect("connected"))
            .collect();
        let oldest = idle.pop_front().expect("the first");
        let codes = error_codes(&received(&mut server, oldest));
        assert_eq!(codes, [ErrorCode::FULL.0], "displaced by the last");
        for stream in idle {
            let codes = error_codes(&received(&mut server, stream));
            assert_eq!(codes, [ErrorCode::TIME_OUT.0]);
        }
        assert!(start.elapsed() >= within);
        let mut client = TcpClientChannel::connect(address);
        begin(&mut client, &mut server, 1);
    }

    /// Idle connections may wait indefinitely, because a service without an initiator sends nothing.
    #[test]
    fn idle_connections_do_not_block_a_client_of_the_same_address() {
        let (mut server, address) = server();
        let mut idle = VecDeque::new();
        for _ in 0..2 * budget::WAITING_CONNECTIONS_PER_ADDRESS {
            idle.push_back(TcpStream::connect(address).expect("connected"));
            assert_eq!(server.poll(), Ok(None));
        }
        let mut client = TcpClientChannel::connect(address);
        assert_eq!(next(&mut client), Ok(ChannelEvent::Connected));
        for _ in 1..budget::WAITING_CONNECTIONS_PER_ADDRESS {
            idle.push_back(TcpStream::connect(address).expect("connected"));
            assert_eq!(server.poll(), Ok(None));
        }
        client.send(&request(3)).expect("sent");
        assert_eq!(next(&mut server), Ok(ChannelEvent::Connected));
        assert_eq!(next(&mut server), Ok(ChannelEvent::Message(request(3))));
    }

    #[test]
    fn client_that_reads_no_answers_exceeds_its_budget() {
        let (mut server, address) = server();
        let mut client = TcpClientChannel::connect(address);
        begin(&mut client, &mut server, 0);
        let answer = request(0).response(Payload::ErrorResponse(ErrorResponse {
            error_code: 1,
            message: "x".repeat(1000),
        }));
        // The kernel buffers some MiB in addition.
        let failure = (0..64 << 10)
            .find_map(|_| server.send(&answer).err())
            .expect("64 MiB are too much");
        assert_eq!(failure.code, ErrorCode::FULL);
    }

    #[test]
    fn fragments_are_reassembled_and_garbage_is_an_error() {
        let (mut server, address) = server();
        let mut client = TcpStream::connect(address).expect("connected");
        client.set_nodelay(true).expect("nodelay");
        let frame = request(9).encode_to_vec();
        for (piece, expected) in [
            (&frame[..5], None),
            (&frame[5..], Some(ChannelEvent::Connected)),
        ] {
            client.write_all(piece).expect("written");
            match expected {
                None => assert_eq!(server.poll(), Ok(None)),
                Some(event) => assert_eq!(next(&mut server), Ok(event)),
            }
        }
        assert_eq!(next(&mut server), Ok(ChannelEvent::Message(request(9))));
        client.write_all(&[0xff; 64]).expect("written");
        let failure = next(&mut server).expect_err("garbage");
        assert!(
            failure.message.contains("127.0.0.1"),
            "the message names the peer: {failure}"
        );
    }

    #[test]
    fn error_for_a_port_in_use_names_the_flag() {
        let (_server, address) = server();
        let failure = TcpServerChannel::listen(address.port(), opens).expect_err("in use");
        assert!(failure.message.contains("--listen-port"), "{failure}");
    }

    #[test]
    fn clients_are_served_one_after_the_other() {
        let (mut server, address) = server();
        let mut first = TcpClientChannel::connect(address);
        begin(&mut first, &mut server, 4);
        drop(first);
        // The client connects before the server has detected that the first client has disconnected.
        let mut second = TcpClientChannel::connect(address);
        assert_eq!(next(&mut second), Ok(ChannelEvent::Connected));
        assert_eq!(next(&mut server), Ok(ChannelEvent::Closed));
        server.next_client(TIMEOUT);
        second.send(&request(5)).expect("sent");
        assert_eq!(next(&mut server), Ok(ChannelEvent::Connected));
        assert_eq!(next(&mut server), Ok(ChannelEvent::Message(request(5))));
        // A client that does not disconnect is disconnected.
        server.next_client(TIMEOUT);
        assert_eq!(next(&mut second), Ok(ChannelEvent::Closed));
    }

    #[test]
    fn server_listens_on_the_given_address_only() {
        let here = Ipv4Addr::new(127, 0, 0, 2);
        let host = Host::Ip(here.into());
        let server = TcpServerChannel::listen_at(&host, 0, opens).expect("a free port");
        let port = server.port().expect("port");
        assert!(TcpStream::connect((here, port)).is_ok());
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
        // 192.0.2.0/24 is reserved for documentation.
        for other in ["192.0.2.1", "no-such-host.invalid"] {
            let host = other.parse().expect("a host");
            let failure =
                TcpServerChannel::listen_at(&host, 0, opens).expect_err("another machine's");
            assert!(
                failure
                    .message
                    .contains(&format!("--listen-address {other}")),
                "{failure}"
            );
        }
    }

    #[test]
    fn a_server_is_reached_by_name_and_by_ipv6_address() {
        for (listens, reached) in [
            ("127.0.0.1", "localhost"),
            ("localhost", "localhost"),
            ("::1", "[::1]"),
            // If the name has addresses of both families, the first address refuses the connection.
            ("::1", "localhost"),
            ("::", "127.0.0.1"),
        ] {
            let host = listens.parse().expect("a host");
            let mut server = TcpServerChannel::listen_at(&host, 0, opens).expect("a free port");
            let port = server.port().expect("port");
            let address: HostPort = format!("{reached}:{port}").parse().expect("an address");
            let has_it = |ip: IpAddr| {
                address
                    .resolve()
                    .is_ok_and(|all| all.iter().any(|it| it.ip() == ip))
            };
            if listens == "::1" && !has_it(Ipv6Addr::LOCALHOST.into()) {
                assert_eq!(reached, "localhost", "it is an address");
                continue;
            }
            let mut client = TcpClientChannel::connect(address);
            begin(&mut client, &mut server, 0);
            let peer = server.client.as_ref().expect("a client").peer();
            assert!(!peer.contains("ffff"), "{peer}");
        }
    }

    #[test]
    fn an_unknown_name_is_final_and_a_refusing_one_is_tried_again() {
        let unknown: HostPort = "no-such-host.invalid:7".parse().expect("an address");
        let failure = next(&mut TcpClientChannel::connect(unknown)).expect_err("unknown");
        assert!(
            failure.message.contains("no-such-host.invalid:7"),
            "{failure}"
        );

        let (server, address) = server();
        let port = address.port();
        drop(server);
        let name: HostPort = format!("localhost:{port}").parse().expect("an address");
        let mut client = TcpClientChannel::connect(name);
        let deadline = Instant::now() + TIMEOUT;
        let mut was_tried = false;
        // Initially the state is that of a refused connection.
        while !(was_tried && client.is_refused()) {
            assert_eq!(client.poll(), Ok(None));
            was_tried |= !client.is_refused();
            assert!(Instant::now() < deadline, "{client:?}");
        }
        let host = Host::Ip(Ipv4Addr::LOCALHOST.into());
        let mut server = TcpServerChannel::listen_at(&host, port, opens).expect("the same port");
        begin(&mut client, &mut server, 1);
    }

    /// A listening socket whose backlog is full: the kernel does not answer further connections.
    fn deaf() -> (std::os::fd::OwnedFd, SocketAddr, Vec<TcpStream>) {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
        let socket = socket.expect("a socket");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        rustix::net::bind(&socket, &any).expect("a free port");
        rustix::net::listen(&socket, 0).expect("listening");
        let address = rustix::net::getsockname(&socket).expect("an address");
        let address = SocketAddr::try_from(address).expect("of IPv4");
        let mut held = Vec::new();
        let within = Duration::from_millis(300);
        while let Ok(stream) = TcpStream::connect_timeout(&address, within) {
            held.push(stream);
            assert!(held.len() < 64, "expected a full queue");
        }
        (socket, address, held)
    }

    #[test]
    fn an_address_that_does_not_answer_is_given_up_for_the_next() {
        let (_socket, silent, _held) = deaf();
        let (mut server, address) = server();
        let mut client = TcpClientChannel::connect(address);
        client
            .start_first(Untried::new(vec![silent, address.into()]))
            .expect("an attempt");
        begin(&mut client, &mut server, 0);
    }

    #[test]
    fn keepalive_is_enabled() {
        use rustix::net::sockopt;
        let (mut server, address) = server();
        let mut client = TcpClientChannel::connect(address);
        begin(&mut client, &mut server, 0);
        let stream = server.client.as_ref().expect("a client").stream();
        assert_eq!(sockopt::socket_keepalive(stream), Ok(true));
        let longest = sockopt::tcp_keepidle(stream).expect("supported")
            + sockopt::tcp_keepintvl(stream).expect("supported")
                * sockopt::tcp_keepcnt(stream).expect("supported");
        assert!(longest < Duration::from_secs(15), "{longest:?}");
    }
}
